r"""Barycenters in rounds of sums: groups keep their points, and answer a coordinator's steps.

Costs are squared Euclidean distances. A group's optimal coupling with a support of M points gives
each of them its image, the mean of the mass it receives. The sums :math:`b_j` of the weighted
images are sufficient: with fixed couplings, point j costs :math:`|b_j - z|^2 / M` at z, up to a
constant.
"""

import math
import operator
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from scipy.stats import qmc

from ..exact import exact_transport
from ..polytope import check_numbers, check_stopping, check_weights
from ._candidates import Placement, choose
from ._free import couple, images_of, with_mass
from ._relaxation import METHODS, Arrays, BarycenterResult, Group, Relaxation, Rounds, ask


class PointGroup(Group):
    """One group's points, its state of the method, and its answers.

    Parameters
    ----------
    points : array-like of shape (n, n_features)
        The group's points, which leave this object only in answers.

    Raises
    ------
    ValueError
        If points are not a non-empty matrix of finite numbers.

    Notes
    -----
    *Not private.* Answers, and sums of them, reveal much about single points. Private points must
    be protected before: for example, these points may come from a release with noise.

    *State.* It changes with each step, by the steps only. So a group that was stored
    (:meth:`put_away`) continues as if it had stayed (:meth:`restore`). A step must be answered
    once: an answer that may be asked for again has to be kept.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport.barycenter import PointGroup
    >>> group = PointGroup([[0.0], [2.0]])
    >>> group.answer("size", {}, place=0)
    array([2.])
    """

    def __init__(self, points: Any) -> None:
        self.points = check_numbers(points, "points", 2)
        self.masses = np.full(len(self.points), 1.0 / len(self.points))
        self.state = {}

    def answer(self, kind: str, arrays: Arrays, place: int) -> np.ndarray:
        """Return the group's summand, of the length that the step says.

        Parameters
        ----------
        kind : str
            Kind of the step.
        arrays : dict of str to ndarray
            The arrays of the step, the same for all groups.
        place : int
            Position of the group among all, which its weight is found at.

        Returns
        -------
        ndarray of float64
            Already weighted: answers of all groups are to be added up.

        Raises
        ------
        ValueError
            If the step is unknown, or does not follow on those before.
        """
        if kind == "size":
            # Without a weight, as the sum of these decides on the weights.
            return np.array([float(len(self.points))])
        if kind in ("begin", "moments"):
            if "total" in arrays:
                weight = len(self.points) / arrays["total"][0]
            else:
                weight = arrays["weights"][place]
            self.enter(float(weight), int(arrays["n_groups"][0]))
            if kind == "begin":
                self.state["candidates"] = np.array(arrays["candidates"], dtype=np.float64)
                # Costs are computed once, and used in every step.
                self._measure_candidates()
        elif "weight" not in self.state:
            raise ValueError(f"step {kind!r} came before a beginning.")
        return super().answer(kind, arrays, place)

    def answer_moments(self, arrays: Arrays) -> np.ndarray:
        """Answer the mean and the covariance matrix."""
        mean = self.masses @ self.points
        centered = self.points - mean
        covariance = (self.masses[:, None] * centered).T @ centered
        return np.concatenate([mean, covariance.ravel()])

    def answer_images(self, arrays: Arrays) -> np.ndarray:
        """Answer bounds on the cost of a support, and the means of the mass its points receive."""
        support = np.ascontiguousarray(arrays["support"], dtype=np.float64)
        equal, used, masses = with_mass(self.masses, len(support))
        points = self.points[used]
        plan, lower, upper = couple(support, points, lambda c: exact_transport(c, equal, masses))
        rounding = self.relative_rounding
        # Sums over groups are rounded, too, and bounds must hold for those.
        bounds = [upper * (1 + rounding), max(lower, 0.0) * (1 - rounding)]
        return np.concatenate([bounds, images_of(plan, points)[0].ravel()])

    def put_away(self) -> Arrays:
        """Return copies of the arrays that the next answers depend on, besides the points."""
        return {name: array.copy() for name, array in self.state.items()}

    def restore(self, state: Arrays) -> None:
        """Take on a state of a group with the same points."""
        self.state = {name: np.array(array) for name, array in state.items()}
        if "candidates" in self.state:
            self._measure_candidates()

    def _measure_candidates(self) -> None:
        """Compute the costs, which are no state: candidates are, and points are kept elsewhere."""
        self.measure(cdist(self.points, self.state["candidates"], "sqeuclidean"))


def solve(
    n_groups: int,
    n_support: int,
    *,
    weights: Any = "proportional",
    candidates: Any = None,
    method: str = "bundle",
    tol: float = 1e-3,
    max_iter: int | None = None,
    n_features: int | None = None,
) -> Rounds[BarycenterResult]:
    r"""Yield steps, be sent the sums of all groups' answers to them, and return a barycenter.

    Parameters
    ----------
    n_groups : int
        Number of groups.
    n_support : int
        Number of points of the barycenter, which have equal masses.
    weights : "proportional" or array-like of shape (n_groups,), default="proportional"
        Non-negative weights of the groups with sum 1, or in proportion to their sizes, of which
        only the sum becomes known.
    candidates : array-like of shape (n_candidates, n_features), default=None
        Points to choose from; for "bundle" and "dual" only. Points of method "free" begin spread
        like the groups on average.
    method : {"bundle", "dual", "free"}, default="bundle"
        How candidates are chosen, or "free" for points that may lie anywhere.
    tol : float, default=1e-3
        Certified gap, relative to the relaxed objective, at which the choice among candidates
        stops. Algorithm "free" stops at a round that lowers the objective by less than this part.
    max_iter : int, default=None
        Largest number of rounds of the algorithm. Beginning, and choosing candidates by the shares
        that were found, takes up to ten more. None is 3000 for "dual", 100 for "free", else 200.
    n_features : int, default=None
        Number of coordinates, needed by method "free".

    Yields
    ------
    Step
        What groups are to answer.

    Returns
    -------
    BarycenterResult
        The barycenter. `converged` says whether the tolerance was reached in time.

    Raises
    ------
    ValueError
        If a parameter is invalid, or the sum that is sent is not of the length that the step says,
        or not finite.

    Notes
    -----
    It minimises :math:`\sum_s \lambda_s W_2^2(Q_s, q)` over distributions q of a given number of
    points of equal mass: :func:`~skdpot.transport.barycenter.candidate_barycenter` and
    :func:`~skdpot.transport.barycenter.free_support_barycenter` describe the algorithms. But if
    only sums over all groups are known, "bundle" has one model of the sum instead of a model of
    each group, and "free" moves all groups at once, as Cuturi and Doucet do.

    All that is used of the answers is their sum. The same sums lead to the same steps, bit by bit.
    So an interrupted coordinator can continue: send the old sums to a new generator.

    *Not private.* Neither sums nor results are, unless points were made private before.

    Examples
    --------
    >>> from skdpot.transport.barycenter import PointGroup, solve
    >>> groups = [PointGroup([[0.0], [1.0]]), PointGroup([[4.0], [5.0]])]
    >>> rounds = solve(2, 2, n_features=1, method="free")
    >>> step = next(rounds)
    >>> while True:
    ...     answers = [
    ...         group.answer(step.kind, step.arrays, place) for place, group in enumerate(groups)
    ...     ]
    ...     try:
    ...         step = rounds.send(sum(answers))
    ...     except StopIteration as end:
    ...         result = end.value
    ...         break
    >>> result.support.round(6).tolist(), round(result.objective, 6)
    ([[2.0], [3.0]], 4.0)
    """
    # Rounds of couplings take longest, and subgradient steps are many and short.
    default_rounds = {"free": 100, **{name: rounds for name, (_, rounds) in METHODS.items()}}
    if method not in default_rounds:
        raise ValueError(f"method must be one of {list(default_rounds)}, got {method!r}.")
    check_stopping(tol, n_groups=n_groups, n_support=n_support, max_iter=max_iter)
    max_iter = default_rounds[method] if max_iter is None else operator.index(max_iter)
    # All that can be wrong with the problem is said before owners are asked anything.
    if (candidates is None) != (method == "free"):
        raise ValueError("methods 'bundle' and 'dual' need candidates, and 'free' takes none.")
    if candidates is not None:
        candidates = check_numbers(candidates, "candidates", 2)
        if len(candidates) < n_support:
            raise ValueError(
                f"n_support must not be above the number of candidates, {len(candidates)}, because "
                f"the chosen points are distinct; got {n_support}."
            )
    n_features = operator.index(n_features or 0)
    if candidates is None and n_features < 1:
        raise ValueError("method='free' needs n_features, the number of coordinates of the points.")
    told = {"n_groups": np.array([n_groups])}
    if isinstance(weights, str) and weights == "proportional":
        (told["total"],) = yield from ask("size", 1)
    else:
        told["weights"] = check_weights(weights, n_groups, "weights")
    if candidates is None:
        start = yield from _moments_support(n_support, n_features, told)
        return (yield from _move_freely(start, tol, max_iter))
    relaxation = Relaxation(len(candidates), n_support, tol, max_iter)
    yield from relaxation.begin(candidates=candidates, **told)
    # There is one choice only, and the planes at equal shares prove it.
    if n_support == len(candidates):
        yield from relaxation.evaluate(relaxation.shares)
    else:
        yield from METHODS[method][0](relaxation)

    def place(chosen: np.ndarray) -> Rounds[Placement]:
        upper, lower, images = yield from _place_support(candidates[chosen])
        return upper, lower, lambda: cdist(images, candidates, "sqeuclidean") / len(chosen)

    chosen, upper, lower = yield from choose(place, relaxation.shares, candidates, n_support)
    return BarycenterResult(
        support=candidates[chosen],
        chosen=chosen,
        shares=relaxation.shares,
        objective=upper,
        gap=upper - lower,
        relaxed_objective=relaxation.upper,
        lower_bound=relaxation.lower,
        converged=relaxation.converged,
    )


def _place_support(support: np.ndarray) -> Rounds[tuple[float, float, np.ndarray]]:
    """Let groups couple with a support: return bounds on its objective, and the mean images."""
    (answer,) = yield from ask("images", 2 + support.size, support=support)
    upper, lower = float(answer[0]), float(answer[1])
    return upper, lower, answer[2:].reshape(support.shape)


def _move_freely(support: np.ndarray, tol: float, max_iter: int) -> Rounds[BarycenterResult]:
    """Move points to the sums of their images until the objective hardly falls.

    Each round lowers the objective: the sums are the best points for the present couplings, and
    new couplings are cheaper.
    """
    upper, lower, images = yield from _place_support(support)
    converged = False
    for _ in range(max_iter - 1):
        trial = yield from _place_support(images)
        before, reached = upper, trial[0]
        # Only rounding lets the objective rise, and then the points stay.
        if reached < before:
            support, (upper, lower, images) = images, trial
        converged = before - reached <= tol * upper
        if converged:
            break
    return BarycenterResult(support, upper, gap=upper - lower, converged=converged)


def _moments_support(n_support: int, n_features: int, told: Arrays) -> Rounds[np.ndarray]:
    """Return evenly spread points of a Gaussian distribution with the groups' mean moments.

    The covariance of the barycenter is about the weighted mean of the groups' covariances. The
    covariance of all points together would be larger.
    """
    d = n_features
    (answer,) = yield from ask("moments", d + d * d, **told)
    covariance = answer[d:].reshape(d, d)
    # Symmetric but for rounding of the sum.
    variances, directions = np.linalg.eigh(0.5 * (covariance + covariance.T))
    # The symmetric root does not depend on the signs that directions happen to have.
    root = (directions * np.sqrt(np.maximum(variances, 0.0))) @ directions.T
    sequence = qmc.Sobol(d, scramble=False).random_base2(math.ceil(math.log2(n_support + 1)))
    # The first point of the sequence is a corner of the cube.
    return answer[:d] + ndtri(sequence[1 : n_support + 1]) @ root
