r"""The feasible plan nearest to any array of amounts.

With a multiplier for every node the projection is ``x_e = max(v_e - l_t - m_s, 0)``. The
multipliers minimise a convex and piecewise quadratic function ::

    |x|^2 / 2 + sum_t (upper_t max(l_t, 0) + lower_t min(l_t, 0)) + the same for the sources.

A sweep minimises over one side and then over the other, by a projection for every node; this always
decreases the function. Between sweeps, Newton steps on the active edges and nodes are tried. A step
is taken if it decreases the function more than the sweep did.
"""

import numpy as np
from scipy import sparse

from ._bipartite import BipartiteNetwork, Side
from ._feasibility import check_feasible
from ._nodes import nearest_on_side
from ._rounding import largest_bound, rounded

_MAX_SWEEPS = 2000
_MAX_CG = 300
_CG_PRECISION = 1e-13
# Precision of the projection, as a share of the largest bound (or of 1, if all are smaller).
_PRECISION = 1e-12
_ACCEPTED = 1e-10
# Share by which a sum may exceed its bounds, so that amounts that a node computed do not change.
_SLACK = 1e-9


class Repairer:
    """Projects arrays of amounts onto the feasible plans of one network, one after the other.

    The multipliers of one projection are the start of the next.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    """

    def __init__(self, network: BipartiteNetwork):
        self.network = network
        n_targets, n_sources = network.shape
        self.target_levels = np.zeros(n_targets)
        self.source_levels = np.zeros(n_sources)
        self.unit = largest_bound(network)

    def __call__(self, amounts: np.ndarray) -> np.ndarray:
        """Return the nearest feasible plan."""
        values = np.ascontiguousarray(amounts, dtype=np.float64)
        if self.network.violation(values) == 0.0:
            return values.copy()
        self._values = values
        self._source_values = values[self.network.sources.positions]
        plan = self._sweep()
        best, least = plan, np.inf
        for _ in range(_MAX_SWEEPS):
            sums = self.network.targets.sums(plan)
            excess = self._excess(sums)
            error = float(np.abs(excess).max(initial=0.0))
            if error < least:
                best, least = plan, error
            if error <= _PRECISION * self.unit:
                break
            plan = self._advance(plan, excess)
        # The remaining violation is mostly below the precision of the projection, but above
        # rounding errors.
        cleaned = rounded(self.network, best)
        if cleaned is not None:
            return cleaned
        if least > _ACCEPTED * self.unit:
            check_feasible(self.network)
            raise RuntimeError(
                f"The projection onto the feasible plans stopped {least:.3g} away from "
                "them: divide bounds and amounts by a number, so that both are near one."
            )
        return best

    def _sweep(self) -> np.ndarray:
        """Minimise over the multipliers of the targets and then of the sources; return the plan."""
        targets, sources = self.network.targets, self.network.sources
        amounts = np.empty_like(self._values)
        nearest_on_side(
            targets.indptr, targets.lower, targets.upper,
            self._values - self.source_levels[targets.neighbours], self.target_levels, amounts,
        )  # fmt: skip
        values = self._source_values - self.target_levels[sources.neighbours]
        nearest_on_side(
            sources.indptr, sources.lower, sources.upper, values, self.source_levels, amounts
        )
        return amounts[targets.positions]

    def _excess(self, sums: np.ndarray) -> np.ndarray:
        """Return how far the sums of targets are from the bounds that their multipliers require."""
        targets, levels = self.network.targets, self.target_levels
        inside = np.clip(sums, targets.lower, targets.upper)
        bound = np.where(levels > 0, targets.upper, np.where(levels < 0, targets.lower, inside))
        return np.where(targets.degrees > 0, sums - bound, sums - inside)

    def _objective(self, plan: np.ndarray) -> float:
        total = 0.5 * float(plan @ plan)
        for side, levels in (
            (self.network.targets, self.target_levels),
            (self.network.sources, self.source_levels),
        ):
            total += float(side.upper @ np.maximum(levels, 0.0))
            total += float(side.lower @ np.minimum(levels, 0.0))
        return total

    def _advance(self, plan: np.ndarray, excess: np.ndarray) -> np.ndarray:
        """Return the plan of a sweep, or of a Newton step and a sweep if that is better."""
        start = self.target_levels.copy(), self.source_levels.copy()
        target_step, source_step = self._newton_step(plan, excess)
        swept = self._sweep()
        value, levels = self._objective(swept), (self.target_levels, self.source_levels)
        for length in (1.0, 0.25):
            self.target_levels = _stepped(start[0], length * target_step)
            self.source_levels = _stepped(start[1], length * source_step)
            stepped = self._sweep()
            if self._objective(stepped) <= value:
                return stepped
        self.target_levels, self.source_levels = levels
        return swept

    def _newton_step(self, plan: np.ndarray, excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the step to the minimum for the active edges and nodes."""
        targets = self.network.targets
        bound = (excess != 0) | (self.target_levels != 0)
        used = plan > 0
        edges = used & bound[targets.nodes]
        giving = self.source_levels != 0
        weights = np.bincount(targets.nodes, used, targets.n_nodes)
        source_weights = np.bincount(targets.neighbours, used, len(giving))
        edges &= giving[targets.neighbours]
        counts = np.concatenate([[0], np.cumsum(edges)])[targets.indptr]
        matrix = sparse.csr_array(
            (np.ones(counts[-1]), targets.neighbours[edges], counts), shape=self.network.shape
        )
        return _solve(matrix, weights, source_weights, np.where(bound & (weights > 0), excess, 0.0))


def _stepped(levels: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the levels after a step, with zero for levels that would change their sign."""
    stepped = levels + step
    return np.where(levels * stepped < 0, 0.0, stepped)


def _solve(
    matrix: sparse.csr_array, weights: np.ndarray, other_weights: np.ndarray, excess: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solve ``[[diag(weights), M], [M.T, diag(others)]] (x, y) = (excess, 0)`` for x and y.

    The method is conjugate gradients on the Schur complement of the second block. A singular system
    is consistent if its nodes can be served, and otherwise its result does no harm.
    """
    weights = np.maximum(weights, 1.0)
    other_weights = np.maximum(other_weights, 1.0)
    transposed = matrix.T.tocsr()

    def complement(x: np.ndarray) -> np.ndarray:
        return weights * x - matrix @ ((transposed @ x) / other_weights)

    x = np.zeros_like(excess)
    residual = excess.copy()
    direction = residual / weights
    product = float(residual @ direction)
    goal = _CG_PRECISION**2 * product
    for _ in range(min(_MAX_CG, 2 * len(excess))):
        if product <= goal:
            break
        image = complement(direction)
        curvature = float(direction @ image)
        if curvature <= 1e-14 * float(direction @ (weights * direction)):
            break
        length = product / curvature
        x += length * direction
        residual -= length * image
        scaled = residual / weights
        previous, product = product, float(residual @ scaled)
        direction = scaled + (product / previous) * direction
    return x, -(transposed @ x) / other_weights


def repair(network: BipartiteNetwork, amounts: np.ndarray) -> np.ndarray:
    """Return the feasible plan that is nearest to an array of amounts.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    amounts : ndarray of shape (n_edges,)
        Any finite amounts, in the order of the targets; negative ones too.

    Returns
    -------
    plan : ndarray of shape (n_edges,)
        The Euclidean projection onto the feasible plans, with an error of 1e-10 of the largest
        bound (or of 1). Bounds hold to 1e-13 of the largest (or of 1): to 1e-9 for bounds up to
        1e4. Amounts are never negative. For released amounts this is post-processing.

    Raises
    ------
    ValueError
        If the network has no feasible plan, or the amounts are not finite.
    RuntimeError
        If bounds or amounts are so large that no doubles are near a plan.

    Examples
    --------
    >>> from skdpot.transport.consensus import make_network, repair
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), [(0, 2), (0.5, 0.5)])
    >>> repair(network, [2.0, 0.0, 0.0, -1.0]).round(3) + 0.0
    array([0.833, 0.167, 0.   , 0.333])
    """
    amounts = np.asarray(amounts, dtype=np.float64)
    if amounts.shape != (network.n_edges,) or not np.isfinite(amounts).all():
        raise ValueError(
            f"amounts must be finite, of shape ({network.n_edges},), got {amounts.shape}."
        )
    return Repairer(network)(amounts)


def nearest_amounts(side: Side, amounts: np.ndarray) -> np.ndarray:
    """Return the nearest amounts that are within the bounds of each node of a side.

    This is the Euclidean projection of finite `amounts` (in the order of the side), node by node,
    onto amounts of at least 0 with a sum within the node's bounds. If the sum is within them up to
    a billionth, no bit of the amounts changes.

    Examples
    --------
    >>> from skdpot.transport.consensus import make_network, nearest_amounts
    >>> network = make_network([[1, 1], [1, 1]], (0, 5), (0, 5))
    >>> nearest_amounts(network.targets, np.array([1000.0, 999.0, 1.0, 3.0]))
    array([3., 2., 1., 3.])
    """
    peaks = side.maxima(amounts)
    # If a bound is active, only differences of amounts matter. They are taken first, because huge
    # numbers would lose digits.
    beyond = np.maximum(peaks - 2.0 * side.upper, 0.0) + np.minimum(peaks, 0.0)
    values = amounts - beyond[side.nodes]
    positive = np.maximum(values, 0.0)
    sums, projected = side.sums(positive), np.empty_like(values)
    is_outside = (sums > (1.0 + _SLACK) * side.upper) | (sums < (1.0 - _SLACK) * side.lower)
    start = np.zeros(side.n_nodes)
    nearest_on_side(side.indptr, side.lower, side.upper, values, start, projected)
    return np.where(is_outside[side.nodes], projected, positive)
