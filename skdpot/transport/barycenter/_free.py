"""Barycenters with free support, for squared Euclidean costs and equal masses."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtri
from scipy.stats import qmc

from ..base_measure import TransportConvergenceWarning
from ..polytope import check_weights
from ._bundle import Bundle
from ._choice import space_filling_order, systematic_choice
from ._exchange import Arrays, Exchange, Group, Method, Rounds, answers, drive
from ._free_bounds import moment_bound, pair_bound
from ._masses import check_masses
from ._placed_points import PlacedPoints
from ._placing import place_support
from ._point_problem import BarycenterProblem, BarycenterResult
from ._relaxation import Relaxation

_BOUNDS = ("moments", "pairs")
# The number of rounds before candidates are chosen as a start for free points.
_FIRST_ROUNDS = 20
# In the first rounds all groups move at once; the first one depends on the start.
_USUAL_ROUNDS = 2
# Relative to the square of the largest coordinate: smaller decreases are rounding errors.
_SMALLEST_DECREASE = 1e-29
_SMALLEST_SHARE = 1e-100


@dataclass(frozen=True, eq=False)
class FreeBarycenter:
    """A barycenter with free support, with bounds on its distance from the optimum.

    Attributes
    ----------
    support : ndarray of shape (n_support, n_features)
        Support points, each of mass ``1 / n_support``.
    objective : float
        Weighted sum of the groups' squared Wasserstein distances of order 2 to this support.
    gap : float
        Certified: that weighted sum is at least ``objective - gap``.
    lower_bound : float
        Lower bound on the objective of every distribution, with any support and masses.
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
    FreeBarycenter
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
    _check_settings(tol, max_iter, bound)
    arrays, beginning, origin = _relative_to_origin(points, start)
    checked = check_masses(masses, arrays)
    groups = [
        _FreeGroup(array, one, weight, place, len(beginning))
        for place, (array, one, weight) in enumerate(zip(arrays, checked, weights, strict=True))
    ]
    means = np.array([group.mean for group in groups])
    mean = weights @ means
    between = float(weights @ ((means - mean) ** 2).sum(axis=1))
    beginning = beginning - beginning.mean(axis=0)
    heard = [group for group in groups if group.weight > 0]
    scale = _scale([group.placing.points for group in heard], [beginning, *arrays])
    for group in groups:
        group.placing.points /= scale

    def report(n_iter: int, shape: np.ndarray, value: float) -> None:
        if callback is not None:
            callback(n_iter, origin + mean + scale * shape, between + scale**2 * value)

    turns = np.array([group.place for group in heard])
    sweeps = _sweep_until_settled(Exchange(), beginning / scale, turns, tol, max_iter, report)
    shape, n_iter, converged = drive(sweeps, heard)
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
    shape_bound = (moment_bound if bound == "moments" else pair_bound)(
        [group.placing.points for group in heard],
        [group.placing.masses for group in heard],
        [group.weight for group in heard],
    )
    objective = between + float(scale**2 * upper)
    return FreeBarycenter(
        support=origin + mean + scale * shape,
        objective=objective,
        gap=float(scale**2 * (upper - lower)),
        lower_bound=min(between + float(scale**2 * shape_bound), objective),
        n_iter=n_iter,
        converged=converged,
        plans=list(plans),
    )


class _FreeGroup(Group):
    """A group of this process, with its points about their mean."""

    placing: PlacedPoints

    def __init__(
        self, points: np.ndarray, masses: np.ndarray, weight: float, place: int, n_support: int
    ) -> None:
        super().__init__()
        self.enter(float(weight), 0, place)
        self.n_points = len(points)
        self.placing = PlacedPoints(points, masses, n_support)
        self.mean = self.placing.masses @ self.placing.points
        self.placing.points = self.placing.points - self.mean

    def optimal_plan(self, support: np.ndarray) -> tuple[sparse.csr_array, list[float]]:
        """Return an optimal coupling with the support, and bounds on its cost."""
        coupling, *bounds = self.placing.couple(support)
        rows, columns = coupling.nonzero()
        where = (self.placing.used[columns], rows)
        plan = sparse.csr_array((coupling.data, where), shape=(self.n_points, len(support)))
        return plan, bounds


def _sweep_until_settled(
    exchange: Exchange,
    support: np.ndarray,
    turns: np.ndarray,
    tol: float,
    max_iter: int,
    report: Callable[[int, np.ndarray, float], None],
) -> Rounds[tuple[np.ndarray, int, bool]]:
    """Return the support, the number of sweeps, and whether they converged.

    In the first rounds, all groups move at once. After them, one group at a time reconsiders.
    """
    value = math.inf
    for _ in range(_USUAL_ROUNDS):
        placed = yield from place_support(exchange, support)
        support = placed.images
        value = placed.upper - _mean_square(support - placed.support)
    for n_iter in range(1, max_iter + 1):
        before = value
        for turn in turns:
            answer = yield from exchange.ask(
                "reconsider", 1 + support.size, math.inf, turn=turn, support=support
            )
            moved = answer[1:].reshape(support.shape)
            # The objective of the moved support; answers are about the support before.
            value = float(answer[0]) - _mean_square(moved - support)
            support = moved
        report(n_iter, support, value)
        if before - value <= tol * value + _SMALLEST_DECREASE:
            return support, n_iter, True
    return support, max_iter, False


@answers("reconsider")
def _reconsider(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer the group's part of the objective, and its images of the support.

    If it is the group's turn, it first couples with the points that the others pull to, or with the
    support, if either lowers the objective.
    """
    support, placed, weight = arrays["support"], group.placed(len(arrays["support"])), group.weight
    if arrays["turn"] == group.place:
        alone = not weight < 1
        rest = placed.image if alone else (support - weight * placed.image) / (1 - weight)

        def beside(image: np.ndarray, scatter: float) -> float:
            """Return the group's part of the objective, per weight, if others pull to `rest`."""
            return scatter + (1 - weight) * _mean_square(image - rest)

        now = beside(placed.image, placed.scatter)
        for targets in (support,) if alone else (rest, support):
            proposal = placed.images(placed.couple(targets)[0])
            if beside(*proposal) < now:
                placed.image, placed.scatter = proposal
                break
    level = placed.scatter + _mean_square(placed.image - support)
    return weight * np.concatenate([[level], placed.image.ravel()])


class FreeSupport(Method):
    """Free points that all groups move at once, by sums over all groups."""

    name = "free"
    default_rounds = 100
    needs_candidates = False

    def rounds(self, problem: BarycenterProblem, exchange: Exchange) -> Rounds[BarycenterResult]:
        """Move points to the sums of their images until the objective hardly falls.

        Each round lowers the objective: the sums are the best points for the present couplings, and
        new couplings are cheaper.
        """
        weighing = yield from problem.weighing(exchange)
        start = _moments_support if problem.candidates is None else _rough_choice
        support = yield from start(problem, exchange, weighing)
        best = yield from place_support(exchange, support)
        history, converged = [(1, math.nan, best.upper)], False
        while not converged and len(history) < problem.max_iter:
            trial = yield from place_support(exchange, problem.within(best.images))
            history.append((len(history) + 1, math.nan, min(trial.upper, best.upper)))
            gained, best = best.upper - trial.upper, min(best, trial, key=lambda one: one.upper)
            converged = gained <= problem.tol * best.upper
        gap = best.upper - best.lower
        n_rounds = exchange.n_rounds
        return BarycenterResult(best.support, best.upper, gap, n_rounds, converged, history)


def _rough_choice(
    problem: BarycenterProblem, exchange: Exchange, weighing: Arrays
) -> Rounds[np.ndarray]:
    """Return candidates that a few cutting planes choose."""
    relaxation = Relaxation(
        exchange, problem.n_candidates, problem.n_support, problem.tol, _FIRST_ROUNDS
    )
    yield from relaxation.begin(candidates=problem.candidates, **weighing)
    yield from Bundle().relax(relaxation)
    order = space_filling_order(problem.candidates, relaxation.shares)
    return problem.candidates[systematic_choice(relaxation.shares, order, problem.n_support)]


def _moments_support(
    problem: BarycenterProblem, exchange: Exchange, weighing: Arrays
) -> Rounds[np.ndarray]:
    """Return evenly spread points of a Gaussian distribution with the groups' mean moments.

    The covariance of the barycenter is about the weighted mean of the groups' covariances. The
    covariance of all points together would be larger.
    """
    d = problem.n_features
    largest = max(problem.largest_cost, problem.largest_coordinate)
    answer = yield from exchange.ask("moments", d + d * d, largest, **weighing)
    covariance = answer[d:].reshape(d, d)
    variances, directions = np.linalg.eigh(0.5 * (covariance + covariance.T))
    # The symmetric root does not depend on the signs that directions happen to have.
    root = (directions * np.sqrt(np.maximum(variances, 0.0))) @ directions.T
    n = problem.n_support
    sequence = qmc.Sobol(d, scramble=False).random_base2(math.ceil(math.log2(n + 1)))
    # The first point of the sequence is a corner of the cube.
    return problem.within(answer[:d] + ndtri(sequence[1 : n + 1]) @ root)


@answers("moments")
def _moments(group: Group, arrays: Arrays) -> np.ndarray:
    """Answer the mean and the covariance matrix."""
    mean = group.masses @ group.points
    centered = group.points - mean
    covariance = (group.masses[:, None] * centered).T @ centered
    return group.weight * np.concatenate([mean, covariance.ravel()])


def _scale(points: list[np.ndarray], everything: list[np.ndarray]) -> float:
    """Return a unit of length in which coordinates are about 1, and squares do not overflow."""
    largest, limit = (max(np.abs(a).max() for a in arrays) for arrays in (points, everything))
    return float(max(largest, limit * _SMALLEST_SHARE)) or 1.0


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
            f"{name} must be a non-empty matrix of finite numbers, got shape {points.shape}."
        )
    return points
