"""The barycenter whose support points may lie anywhere: squared Euclidean costs, equal masses."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from skdpot.transport.base_measure import TransportConvergenceWarning
from skdpot.transport.polytope import check_weights

from ._free_bounds import moment_bound, pair_bound
from ._masses import check_masses, common_masses
from ._warm_transport import WarmTransport

_BOUNDS = ("moments", "pairs")
# The first one has to do with where the start happened to lie.
_USUAL_ROUNDS = 2
# Of the square of the largest coordinate: below lies nothing but rounding.
_SMALLEST_DECREASE = 1e-29
_SMALLEST_SHARE = 1e-100


@dataclass(frozen=True, eq=False)
class FreeBarycenter:
    """A barycenter with free support, and bounds on what it leaves to be desired.

    Attributes
    ----------
    support : ndarray of shape (n_support, n_features)
        Support points, each of mass ``1 / n_support``.
    objective : float
        Weighted sum of the groups' squared Wasserstein distances of order 2 to this support.
    gap : float
        Certified: that weighted sum is at least ``objective - gap``.
    lower_bound : float
        Lower bound on the objective of every distribution, whatever its support and masses.
    n_iter : int
        Number of sweeps over the groups.
    converged : bool
        Whether the last sweep lowered the objective by no more than the tolerance.
    plans : list of scipy.sparse.csr_array of shape (n_s, n_support)
        Optimal couplings of the groups with the support.
    """

    support: np.ndarray
    objective: float
    gap: float
    lower_bound: float
    n_iter: int
    converged: bool
    plans: list[sparse.csr_array]


def free_support_barycenter(
    points: Sequence[Any],
    group_weights: Any,
    start: Any,
    *,
    masses: Sequence[Any] | None = None,
    tol: float = 1e-6,
    max_iter: int = 100,
    bound: str = "moments",
    callback: Callable[[int, np.ndarray, float], None] | None = None,
) -> FreeBarycenter:
    r"""Return a barycenter of order 2 of groups of points, with support points that move freely.

    It lowers :math:`\sum_s \lambda_s W_2^2(Q_s, q)` over distributions q of a given number of
    points of equal mass. The problem is not convex: what is found is a local optimum, by steps of
    which each lowers the objective.

    Parameters
    ----------
    points : sequence of array-like of shape (n_s, n_features)
        The groups' points.
    group_weights : array-like of shape (n_groups,)
        Non-negative weights with sum 1. A group of weight 0 has no say, but gets its plan.
    start : array-like of shape (n_support, n_features)
        Support points to begin with. Only their shape matters, not where they lie as a whole.
    masses : sequence of array-like of shape (n_s,) or None, default=None
        Masses of the groups' points, non-negative with sum 1. None is equal masses.
    tol : float, default=1e-6
        Sweeps end when one lowers the objective by no more than this fraction of it, where the
        share of the objective that is due to the groups' means is left out: it is the same for
        all supports with the right mean.
    max_iter : int, default=100
        Maximum number of sweeps.
    bound : {"moments", "pairs"}, default="moments"
        Where `lower_bound` is taken from: means and covariances, or exact transport between all
        pairs of groups, which is better and takes longer.
    callback : callable, default=None
        Called as ``callback(n_iter, support, objective)`` after each sweep, with an upper bound
        on the objective.

    Returns
    -------
    FreeBarycenter
        Support, objective, bounds and plans.

    Raises
    ------
    ValueError
        If points are not finite or of different dimensions, or differ by more than a double can
        hold, weights or masses are no weights, or a parameter is out of range.

    Warns
    -----
    TransportConvergenceWarning
        If `max_iter` sweeps were not enough.

    Notes
    -----
    *What is lowered.* A coupling of group s gives each support point its image :math:`b_{sj}`, the
    mean of the mass that it receives. For fixed couplings the best support is :math:`x_j = \sum_s
    \lambda_s b_{sj}`, which leaves, with the scatter :math:`v_s = \langle \pi_s, |y - b_s|^2
    \rangle` of the mass about the images,

    .. math:: F(\pi) = \sum_s \lambda_s \Bigl( v_s + \tfrac1M \sum_j |b_{sj} - x_j|^2 \Bigr).

    *A sweep.* The usual round couples every group with x and moves x. This is slow to leave a
    bad arrangement, since x was drawn towards the very images that the group is asked to
    reconsider. Here, after two such rounds, one group after the other is coupled with
    :math:`r_j = \sum_{t \neq s} \lambda_t b_{tj} / (1 - \lambda_s)`, where the points would be
    without it. As a function of :math:`\pi_s` alone,

    .. math:: F = \lambda_s (1 - \lambda_s) \langle \pi_s, |y - r|^2 \rangle
        + \lambda_s^2 v_s + \text{const},

    by ``min_x l |b - x|^2 + (1 - l) |r - x|^2 = l (1 - l) |b - r|^2`` and :math:`\langle \pi_s,
    |y - r|^2 \rangle = v_s + \frac1M \sum_j |b_{sj} - r_j|^2`. If every support point receives a
    single point of each group (equally many of equal mass), :math:`v_s = 0`, and the coupling is
    the best one given all others; otherwise it is taken if it lowers F, and else the one with x,
    which never raises F. For two such groups, one sweep reaches the optimum. The network simplex
    starts from where it ended for the same group, which makes all but the first round cheap. For a
    group, a step is a message of its M targets, and one of its M images.

    *Means.* Translations of groups move the barycenter and nothing else: all is computed for
    groups about their means, and :math:`\sum_s \lambda_s |m_s - m|^2` is added.

    *Lower bound.* Let random points :math:`y_s` of all groups be coupled with a point z of q such
    that each pair :math:`(y_s, z)` is coupled optimally. Then

    .. math:: \sum_s \lambda_s W_2^2(Q_s, q) = E \sum_s \lambda_s |y_s - z|^2
        \ge E \min_x \sum_s \lambda_s |y_s - x|^2
        = E \sum_{s < t} \lambda_s \lambda_t |y_s - y_t|^2
        \ge \sum_{s < t} \lambda_s \lambda_t W_2^2(Q_s, Q_t),

    for *every* q. For two groups there is a q with equality: the image of their optimal coupling
    under :math:`\lambda_1 y_1 + \lambda_2 y_2`. By moments, each distance is bounded from below
    by that of normal distributions with the same means and covariances, :math:`|m_s - m_t|^2 +
    \mathrm{tr}\, S_s + \mathrm{tr}\, S_t - 2 |S_s^{1/2} S_t^{1/2}|_*` (Gelbrich).

    *Not private.* The support is a function of the points, and where support points receive a
    single point of each group, images are these points.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, equation (3).

    M. Cuturi and A. Doucet, "Fast computation of Wasserstein barycenters", algorithm 2: the usual
    round.

    M. Agueh and G. Carlier, "Barycenters in the Wasserstein space", section 4: the problem of
    coupling all groups at once.

    M. Gelbrich, "On a formula for the L2 Wasserstein metric between measures on Euclidean and
    Hilbert spaces", theorem 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport.barycenter import free_support_barycenter
    >>> square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> groups = [square, 3 * square + 4]
    >>> result = free_support_barycenter(groups, [0.5, 0.5], start=square[::-1], bound="pairs")
    >>> np.array_equal(np.unique(result.support, axis=0), 2 * square + 2)
    True
    >>> round(result.objective, 9), round(result.lower_bound, 9)
    (13.0, 13.0)
    """
    weights = check_weights(group_weights, len(points), "group_weights")
    _check_settings(tol, max_iter, bound)
    arrays, beginning, origin = _relative_to_origin(points, start)
    groups = [
        _Group(array, weight, one, len(beginning))
        for array, weight, one in zip(arrays, weights, check_masses(masses, arrays), strict=True)
    ]
    means = np.array([group.mean for group in groups])
    mean = weights @ means
    between = float(weights @ ((means - mean) ** 2).sum(axis=1))
    beginning = beginning - beginning.mean(axis=0)
    heard = [group for group in groups if group.weight > 0]
    scale = _scale([group.points for group in heard], [beginning, *arrays])
    for group in groups:
        group.points /= scale

    def report(n_iter: int, shape: np.ndarray, value: float) -> None:
        if callback is not None:
            callback(n_iter, origin + mean + scale * shape, between + scale**2 * value)

    shape, n_iter, converged = _sweep_until_settled(heard, beginning / scale, tol, max_iter, report)
    if not converged:
        warnings.warn(
            f"free_support_barycenter stopped after max_iter={max_iter} sweeps, of which the last "
            "one lowered the objective by more than the tolerance. The barycenter is valid; raise "
            "max_iter or tol.",
            TransportConvergenceWarning,
            stacklevel=2,
        )
    plans, bounds = zip(*(group.optimal_plan(shape) for group in groups), strict=True)
    lower, upper = weights @ np.array(bounds)
    within = (moment_bound if bound == "moments" else pair_bound)(
        [group.points for group in heard],
        [group.masses for group in heard],
        [group.weight for group in heard],
    )
    objective = between + float(scale**2 * upper)
    return FreeBarycenter(
        support=origin + mean + scale * shape,
        objective=objective,
        gap=float(scale**2 * (upper - lower)),
        lower_bound=min(between + float(scale**2 * within), objective),
        n_iter=n_iter,
        converged=converged,
        plans=list(plans),
    )


class _Group:
    """A group's points about their mean, and its images at the support points."""

    def __init__(self, points: np.ndarray, weight: float, masses: np.ndarray, n_support: int):
        support_masses, point_masses = common_masses([np.full(n_support, 1 / n_support), masses])
        self.n_points, self.weight = len(points), float(weight)
        # Points without mass would be leaves of the tree that nothing holds.
        self.used = np.flatnonzero(point_masses)
        self.masses = point_masses[self.used] / point_masses.sum()
        self.mean = self.masses @ points[self.used]
        self.points = points[self.used] - self.mean
        self.transport = WarmTransport(support_masses, point_masses[self.used])
        self.image, self.scatter = np.empty(0), math.inf

    def propose(self, targets: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the images of an optimal coupling with the targets, and the scatter about them."""
        coupling = self.transport.solve(_fast_costs(targets, self.points))
        moved = self.points[coupling.columns]
        image = _sum_by_row(coupling.rows, coupling.masses[:, None] * moved, len(targets))
        image *= len(targets)
        about = moved - image[coupling.rows]
        return image, float(coupling.masses @ (about**2).sum(axis=1))

    def objective_beside(self, rest: np.ndarray, image: np.ndarray, scatter: float) -> float:
        """Return what the group adds to the objective, per weight, if others pull to `rest`."""
        return scatter + (1 - self.weight) * _mean_square(image - rest)

    def reconsider(self, rest: np.ndarray) -> None:
        """Couple with where the others pull to, or with the support, if either is better."""
        now = self.objective_beside(rest, self.image, self.scatter)
        support = rest + self.weight * (self.image - rest)
        for targets in (rest, support) if self.weight < 1 else (support,):
            proposal = self.propose(targets)
            if self.objective_beside(rest, *proposal) < now:
                self.image, self.scatter = proposal
                return

    def optimal_plan(self, support: np.ndarray) -> tuple[sparse.csr_array, tuple[float, float]]:
        """Return an optimal coupling with the support, and bounds on its cost."""
        cost = cdist(support, self.points, "sqeuclidean")
        coupling = self.transport.solve(cost)
        where = (self.used[coupling.columns], coupling.rows)
        plan = sparse.csr_array((coupling.masses, where), shape=(self.n_points, len(support)))
        return plan, self.transport.bounds(cost, coupling)


def _sweep_until_settled(
    groups: list[_Group],
    start: np.ndarray,
    tol: float,
    max_iter: int,
    report: Callable[[int, np.ndarray, float], None],
) -> tuple[np.ndarray, int, bool]:
    """Return the support, the number of sweeps, and whether they lower the objective no more."""
    support = start
    for _ in range(_USUAL_ROUNDS):
        for group in groups:
            group.image, group.scatter = group.propose(support)
        support = _support(groups)
    value = _objective(groups)
    for n_iter in range(1, max_iter + 1):
        for group in groups:
            group.reconsider(_without(group, groups))
        before, value = value, _objective(groups)
        report(n_iter, _support(groups), value)
        if before - value <= tol * value + _SMALLEST_DECREASE:
            return _support(groups), n_iter, True
    return _support(groups), max_iter, False


def _support(groups: list[_Group]) -> np.ndarray:
    """Return the best support for the groups' images."""
    return np.sum([group.weight * group.image for group in groups], axis=0)


def _without(group: _Group, groups: list[_Group]) -> np.ndarray:
    """Return where the support points would be without a group; with it, if it is alone."""
    others = [other for other in groups if other is not group]
    if not others:
        return group.image
    return _support(others) / sum(other.weight for other in others)


def _objective(groups: list[_Group]) -> float:
    """Return the objective of the groups' present couplings at their best support."""
    support = _support(groups)
    return sum(
        group.weight * (group.scatter + _mean_square(group.image - support)) for group in groups
    )


def _scale(inside: list[np.ndarray], everything: list[np.ndarray]) -> float:
    """Return a unit of length in which what matters is of size 1, and squares do not overflow."""
    largest, limit = (max(np.abs(one).max() for one in some) for some in (inside, everything))
    return float(max(largest, limit * _SMALLEST_SHARE)) or 1.0


def _fast_costs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return squared distances, as exact as the largest one allows: the solver rounds them more."""
    costs = x @ (-2 * y.T)
    costs += np.square(x).sum(axis=1)[:, None]
    costs += np.square(y).sum(axis=1)
    return np.maximum(costs, 0.0, out=costs)


def _sum_by_row(rows: np.ndarray, values: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the sums of the values that belong to each row."""
    return np.stack([np.bincount(rows, column, n_rows) for column in values.T], axis=1)


def _mean_square(vectors: np.ndarray) -> float:
    """Return the mean squared length of vectors."""
    return float((vectors**2).sum(axis=1).mean())


def _check_settings(tol: float, max_iter: int, bound: str) -> None:
    """Raise if a parameter is out of range."""
    if not tol >= 0:
        raise ValueError(f"tol must be non-negative, got {tol!r}.")
    if not max_iter >= 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}.")
    if bound not in _BOUNDS:
        raise ValueError(f"bound must be one of {_BOUNDS}, got {bound!r}.")


def _relative_to_origin(
    points: Sequence[Any], start: Any
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return points and start relative to one of the points, and that point."""
    arrays = [_check_points(one, f"points[{s}]") for s, one in enumerate(points)]
    start = _check_points(start, "start")
    if len({array.shape[1] for array in [*arrays, start]}) > 1:
        shapes = [array.shape for array in [*arrays, start]]
        raise ValueError(f"points and start must have as many columns, got shapes {shapes}.")
    origin = arrays[0][0]
    with np.errstate(over="ignore"):
        arrays, start = [array - origin for array in arrays], start - origin
        # Room for sums of squares.
        largest = max(np.square(array).sum() for array in [*arrays, start])
    if not math.isfinite(largest):
        raise ValueError("points differ by more than a double can hold: divide them by a number.")
    return arrays, start, origin


def _check_points(points: Any, name: str) -> np.ndarray:
    """Return points as a finite, non-empty matrix."""
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
        raise ValueError(
            f"{name} must be a two-dimensional array of finite numbers, and not empty, got shape "
            f"{points.shape}."
        )
    return points
