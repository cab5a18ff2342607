"""Barycenters with free support, for squared Euclidean costs and equal masses."""

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from ..base_measure import TransportConvergenceWarning
from ..exact import TransportResult, common_masses, exact_transport, repeated_transport
from ..polytope import check_masses, check_numbers, check_weights
from ._relaxation import BarycenterResult


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
) -> BarycenterResult:
    r"""Return a barycenter of order 2 of groups of points, with support points that move freely.

    It lowers :math:`\sum_s \lambda_s W_2^2(Q_s, q)` over distributions q of a given number of
    points of equal mass. The problem is not convex. The result is a local optimum; each step
    lowers the objective.

    Parameters
    ----------
    points : sequence of array-like of shape (n_s, n_features)
        The groups' points.
    group_weights : array-like of shape (n_groups,)
        Non-negative weights with sum 1. A group of weight 0 has no influence, but gets its plan.
    start : array-like of shape (n_support, n_features)
        Initial support points. A common translation of them has no effect.
    masses : sequence of array-like of shape (n_s,) or None, default=None
        Masses of the groups' points, non-negative with sum 1. None is equal masses.
    tol : float, default=1e-6
        Sweeps end when one lowers the objective by no more than this fraction of it. The part of
        the objective that is due to the groups' means is left out, because it is the same for all
        supports with the right mean.
    max_iter : int, default=100
        Maximum number of sweeps.
    bound : {"moments", "pairs"}, default="moments"
        Method of `lower_bound`: means and covariances, or exact transport between all pairs of
        groups, which is tighter but slower.
    callback : callable, default=None
        Called as ``callback(n_iter, support, objective)`` after each sweep, with an upper bound
        on the objective.

    Returns
    -------
    BarycenterResult
        Support, objective, bounds and plans.

    Raises
    ------
    ValueError
        If points are not finite, have different dimensions or differ by more than a double can
        hold, weights or masses are invalid, or a parameter is out of range.

    Warns
    -----
    TransportConvergenceWarning
        If `max_iter` sweeps were not enough.

    Notes
    -----
    *Objective.* A coupling of group s gives each support point its image :math:`b_{sj}`, the mean
    of the mass that it receives. For fixed couplings the best support is :math:`x_j = \sum_s
    \lambda_s b_{sj}`, which leaves, with the scatter :math:`v_s = \langle \pi_s, |y - b_s|^2
    \rangle` of the mass about the images,

    .. math:: F(\pi) = \sum_s \lambda_s \Bigl( v_s + \tfrac1M \sum_j |b_{sj} - x_j|^2 \Bigr).

    *A sweep.* The usual round couples every group with x and moves x. This is slow to leave a
    bad arrangement, since x was drawn towards the very images that the group is asked to
    reconsider. After two such rounds, the method couples one group after the other with
    :math:`r_j = \sum_{t \neq s} \lambda_t b_{tj} / (1 - \lambda_s)`, where the points would be
    without it. As a function of :math:`\pi_s` alone,

    .. math:: F = \lambda_s (1 - \lambda_s) \langle \pi_s, |y - r|^2 \rangle
        + \lambda_s^2 v_s + \text{const},

    by ``min_x l |b - x|^2 + (1 - l) |r - x|^2 = l (1 - l) |b - r|^2`` and :math:`\langle \pi_s,
    |y - r|^2 \rangle = v_s + \frac1M \sum_j |b_{sj} - r_j|^2`. If every support point receives a
    single point of each group (equally many of equal mass), :math:`v_s = 0`, and the coupling is
    the best one given all others; otherwise it is taken if it lowers F, and else the one with x,
    which never raises F. For two such groups, one sweep reaches the optimum. For a group, a step is
    a message of its M targets, and one of its M images.

    *Means.* Translations of groups only move the barycenter. So everything is computed for groups
    about their means, and :math:`\sum_s \lambda_s |m_s - m|^2` is added.

    *Lower bound.* Let random points :math:`y_s` of all groups be coupled with a point z of q such
    that each pair :math:`(y_s, z)` is coupled optimally. Then

    .. math:: \sum_s \lambda_s W_2^2(Q_s, q) = E \sum_s \lambda_s |y_s - z|^2
        \ge E \min_x \sum_s \lambda_s |y_s - x|^2
        = E \sum_{s < t} \lambda_s \lambda_t |y_s - y_t|^2
        \ge \sum_{s < t} \lambda_s \lambda_t W_2^2(Q_s, Q_t),

    for *every* q. For two groups there is a q with equality: the image of their optimal coupling
    under :math:`\lambda_1 y_1 + \lambda_2 y_2`. By moments, each distance is bounded from below
    by that of Gaussian distributions with the same means and covariances, :math:`|m_s - m_t|^2 +
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
    if not tol >= 0:
        raise ValueError(f"tol must be non-negative, got {tol!r}.")
    if not max_iter >= 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter!r}.")
    if bound not in ("moments", "pairs"):
        raise ValueError(f"bound must be one of ('moments', 'pairs'), got {bound!r}.")
    arrays, beginning, origin = _relative_to_origin(points, start)
    checked = check_masses(masses, arrays)
    groups = [
        _FreeGroup(array, one, float(weight), len(beginning))
        for array, one, weight in zip(arrays, checked, weights, strict=True)
    ]
    means = np.array([group.mean for group in groups])
    mean = weights @ means
    between = float(weights @ ((means - mean) ** 2).sum(axis=1))
    # Translations change nothing, and numbers near 0 keep their digits.
    beginning = beginning - beginning.mean(axis=0)
    # Groups without weight get a plan at the end, and no say.
    moving = [group for group in groups if group.weight > 0]
    # A unit of length in which coordinates are about 1, and squares do not overflow.
    smallest_share = 1e-100
    max_magnitude = max(np.abs(group.points).max() for group in moving)
    limit = max(np.abs(array).max() for array in [beginning, *arrays])
    scale = float(max(max_magnitude, limit * smallest_share)) or 1.0
    for group in groups:
        group.points /= scale

    def report(n_iter: int, shape: np.ndarray, value: float) -> None:
        if callback is not None:
            callback(n_iter, origin + mean + scale * shape, between + scale**2 * value)

    start = beginning / scale
    shape, n_iter, converged = _sweep_until_settled(moving, start, tol, max_iter, report)
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
    objective = between + float(scale**2 * upper)
    between_pairs = scale**2 * _bound_of_pairs(moving, bound)
    return BarycenterResult(
        support=origin + mean + scale * shape,
        objective=objective,
        gap=float(scale**2 * (upper - lower)),
        lower_bound=min(between + float(between_pairs), objective),
        n_iter=n_iter,
        converged=converged,
        plans=list(plans),
    )


def with_mass(masses: np.ndarray, n_support: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the equal masses of a support, which points to couple with it, and their masses.

    Points far away, of masses that are rounded to nothing, would spoil the precision of all.
    """
    equal = np.full(n_support, 1.0 / n_support)
    columns = common_masses([equal, masses])[1]
    used = np.flatnonzero(columns)
    return equal, used, columns[used] / columns.sum()


def couple(
    support: np.ndarray, points: np.ndarray, solve: Callable[[np.ndarray], TransportResult]
) -> tuple[sparse.csr_array, float, float]:
    """Return an optimal coupling of a support, in rows, and bounds on its cost.

    `solve` returns the exact transport between their masses for a matrix of costs.
    """
    cost = cdist(support, points, "sqeuclidean")
    found = solve(cost)
    # Measured on the plan itself, as the result's cost is a lower bound.
    upper = float(found.plan.data @ cost[found.plan.nonzero()])
    # The gap exceeds all that rounding may do.
    return found.plan, min(found.cost - found.gap, upper), upper


def images_of(plan: sparse.csr_array, points: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the images of the support points, and the scatter of the mass about them."""
    image = plan.shape[0] * (plan @ points)
    rows, columns = plan.nonzero()
    # As differences, since a difference of squares would cancel far from the origin.
    about = points[columns] - image[rows]
    return image, float(plan.data @ (about**2).sum(axis=1))


class _FreeGroup:
    """A group's points about their mean, and the images that the last coupling gave the support."""

    def __init__(self, points: np.ndarray, masses: np.ndarray, weight: Any, n_support: int) -> None:
        self.n_points, self.weight = len(points), weight
        equal, self.used, self.masses = with_mass(masses, n_support)
        self.mean = self.masses @ points[self.used]
        self.points = points[self.used] - self.mean
        # Supports move little from one coupling to the next.
        self._solve = repeated_transport(equal, self.masses)

    def place(self, support: np.ndarray) -> float:
        """Couple with a support, take the images of its points, and return the weighted cost."""
        plan, _, upper = couple(support, self.points, self._solve)
        self.image, self.scatter = images_of(plan, self.points)
        return self.weight * upper

    def reconsider(self, support: np.ndarray) -> None:
        """Couple with points that others pull to, or the support, if that lowers the objective."""
        weight, alone = self.weight, not self.weight < 1
        # A group that is alone has no others to pull.
        rest = self.image if alone else (support - weight * self.image) / (1 - weight)

        def beside(image: np.ndarray, scatter: float) -> float:
            """Return the group's part of the objective, per weight, if others pull to `rest`."""
            return scatter + (1 - weight) * _mean_square(image - rest)

        now = beside(self.image, self.scatter)
        # The second coupling never raises the objective, and is tried only if the first does.
        for targets in (support,) if alone else (rest, support):
            plan, *_ = couple(targets, self.points, self._solve)
            proposal = images_of(plan, self.points)
            if beside(*proposal) < now:
                self.image, self.scatter = proposal
                return

    def optimal_plan(self, support: np.ndarray) -> tuple[sparse.csr_array, list[float]]:
        """Return an optimal coupling with the support, and bounds on its cost."""
        coupling, *bounds = couple(support, self.points, self._solve)
        rows, columns = coupling.nonzero()
        where = (self.used[columns], rows)
        plan = sparse.csr_array((coupling.data, where), shape=(self.n_points, len(support)))
        return plan, bounds


def _sweep_until_settled(
    groups: Sequence[_FreeGroup],
    support: np.ndarray,
    tol: float,
    max_iter: int,
    report: Callable[[int, np.ndarray, float], None],
) -> tuple[np.ndarray, int, bool]:
    """Return the support, the number of sweeps, and whether they converged.

    In the first rounds, all groups move at once. After them, one group at a time reconsiders.
    """
    # Relative to the square of the largest coordinate: smaller decreases are rounding errors.
    smallest_decrease = 1e-29
    # In the first rounds all groups move at once; the first one depends on the start.
    usual_rounds = 2

    def pulled_to() -> np.ndarray:
        return np.sum([group.weight * group.image for group in groups], axis=0)

    value = math.inf
    for _ in range(usual_rounds):
        cost = sum(group.place(support) for group in groups)
        before, support = support, pulled_to()
        # Moving points to the mean of the images lowers the cost by just that.
        value = cost - _mean_square(support - before)
    for n_iter in range(1, max_iter + 1):
        last = value
        for group in groups:
            group.reconsider(support)
            support = pulled_to()
        value = sum(g.weight * (g.scatter + _mean_square(g.image - support)) for g in groups)
        report(n_iter, support, value)
        if last - value <= tol * value + smallest_decrease:
            return support, n_iter, True
    return support, max_iter, False


def _bound_of_pairs(groups: Sequence[_FreeGroup], bound: str) -> float:
    """Return ``sum_(s < t) lambda_s lambda_t W_2(Q_s, Q_t)**2`` for groups about their means.

    It is a lower bound on the objective of any barycenter, as the Notes of
    `free_support_barycenter` prove; lower bounds of these distances are also sufficient.
    """
    distance = _moment_distance if bound == "moments" else _pair_distance
    return sum(
        one.weight * other.weight * max(distance(one, other), 0.0)
        for one, other in combinations(groups, 2)
    )


def _moment_distance(one: _FreeGroup, other: _FreeGroup) -> float:
    """Return the bound that covariances S and T imply.

    The nuclear norm of S^(1/2) T^(1/2) is that of R Q' for any S = R'R and T = Q'Q: these have as
    few rows as possible.
    """
    roots = [np.linalg.qr(np.sqrt(g.masses)[:, None] * g.points).R for g in (one, other)]
    # Of R'R the trace is the sum of squares of R, and no product has to be formed.
    traces = sum(np.square(root).sum() for root in roots)
    return float(traces - 2 * np.linalg.norm(roots[0] @ roots[1].T, "nuc"))


def _pair_distance(one: _FreeGroup, other: _FreeGroup) -> float:
    """Return the bound that exact transport implies, minus the largest effect of rounding."""
    cost = cdist(one.points, other.points, "sqeuclidean")
    found = exact_transport(cost, one.masses, other.masses)
    # The gap exceeds all that rounding may do.
    return found.cost - found.gap


def _mean_square(vectors: np.ndarray) -> float:
    """Return the mean squared length of vectors."""
    return float((vectors**2).sum(axis=1).mean())


def _relative_to_origin(
    points: Sequence[Any], start: Any
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return points and start relative to one of the points, and that point."""
    arrays = [check_numbers(one, f"points[{s}]", 2) for s, one in enumerate(points)]
    start = check_numbers(start, "start", 2)
    if len({array.shape[1] for array in [*arrays, start]}) > 1:
        shapes = [array.shape for array in [*arrays, start]]
        raise ValueError(f"points and start must have as many columns, got shapes {shapes}.")
    # A point of the data: its differences to the others are exact if these are near.
    origin = arrays[0][0]
    with np.errstate(over="ignore"):
        arrays, start = [array - origin for array in arrays], start - origin
        # Room for sums of squares.
        max_square = max(np.square(array).sum() for array in [*arrays, start])
    if not math.isfinite(max_square):
        raise ValueError("points differ by more than a double can hold: divide them by a number.")
    return arrays, start, origin
