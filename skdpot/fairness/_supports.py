"""The support of a barycenter, the groups' couplings with it, and the images of rows."""

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from scipy.spatial import KDTree
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import pairwise_distances_argmin

from skdpot._sklearn_compat import HasMethods, Interval, StrOptions
from skdpot.fairness._rows import IMAGE_DRAW, ColumnSpace, uniforms
from skdpot.tables import as_array
from skdpot.transport import exact_transport
from skdpot.transport.barycenter import (
    LARGEST_EXACT,
    candidate_barycenter,
    free_support_barycenter,
    quantile_barycenter,
)

LARGEST_AUTOMATIC_SUPPORT = 1000
# Doubles of the costs between new rows and the support that are held at a time: 8 MiB.
_PANEL_SIZE = 1 << 20
# Rounding error of squared norms, for each summand: eight times that of four roundings.
_ROUNDING = 32 * float(np.finfo(np.float64).eps)
# Smaller masses are dropped: the solver represents masses as integers with a sum below 2**53.
_NEGLIGIBLE = 1e-12
# A support is bad if its objective exceeds its lower bound by this factor, and by this share of the
# variance. The share is hardly above 0.2 for up to three columns, and 0.5 for ten columns of a
# table.
_FAR_ABOVE, _LARGEST_GAP = 4.0, 0.25
# Default maximum number of rows of a group that a support is found from.
_MOST_ROWS = 10_000
# Default number of batches of a stochastic method.
_DEFAULT_BATCHES = 3000
# Default number of candidates for each support point.
_CANDIDATES_PER_POINT = 2
_COUNT = [Interval(Integral, 1, None, closed="left"), None]
# Constraints of the parameters that both supports share.
_SHARED = {
    "n_support": _COUNT,
    "scale": ["boolean"],
    "max_rows": _COUNT,
    "transform_method": [
        StrOptions({"coupling", "barycentric", "laguerre"}),
        HasMethods(["fit", "predict"]),
    ],
}
# Parameters of each method, besides `tol`.
_OPTIONS = {
    "auto": {"max_iter"},
    "exact": set(),
    "bundle": {"max_iter"},
    "dual": {"max_iter", "batch_size", "primal_recovery", "rounding"},
}


@dataclass(frozen=True, eq=False)
class GroupMap:
    """A group's coupling with the support.

    Attributes
    ----------
    points : ndarray of shape (n_points, n_coordinates)
        Different points of the group.
    plan : csr_array of shape (n_points, n_support)
        How much of a point's mass goes where.
    prices : ndarray of shape (n_support,)
        Dual potentials of the support: the optimal plan takes mass from y to a z for which the cost
        minus the price is smallest.
    support : ndarray of shape (n_support, n_coordinates)
        The support of the barycenter.
    order : float
        Costs are distances to this power.
    """

    points: np.ndarray
    plan: sparse.csr_array
    prices: np.ndarray
    support: np.ndarray
    order: float

    def draw(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the indices of support points, drawn by the coupling at the positions of rows.

        A row, new or not, is at the nearest point of the group. Equal rows are at the same point
        and are drawn separately, so that equal values do not stay together. `uniforms` are in [0,
        1).
        """
        at = nearest(rows, self.points)
        starts, ends = self.plan.indptr[at], self.plan.indptr[at + 1]
        running = np.concatenate([[0.0], np.cumsum(self.plan.data)])
        wanted = running[starts] + uniforms * (running[ends] - running[starts])
        drawn = np.searchsorted(running, wanted, side="right") - 1
        return self.plan.indices[np.clip(drawn, starts, ends - 1)]

    def mean_images(self) -> np.ndarray:
        """Return the mean image of each point of the group."""
        sums = np.asarray(self.plan.sum(axis=1)).reshape(-1, 1)
        return (self.plan @ self.support) / sums

    def image(self, rows: np.ndarray, method: Any) -> np.ndarray:
        """Return deterministic images: by the name of a rule, or a regressor of mean images."""
        if method == "laguerre":
            return self.support[self.cell(rows)]
        if method == "barycentric":
            return self.mean_images()[nearest(rows, self.points)]
        learned = clone(method).fit(self.points, self.mean_images())
        return np.reshape(learned.predict(rows), (len(rows), -1))

    def cell(self, rows: np.ndarray) -> np.ndarray:
        """Return the Laguerre cell of each row."""
        height = max(1, _PANEL_SIZE // len(self.support))
        parts = [
            np.argmin(powers(rows[start : start + height], self.support, self.order) - self.prices,
                      axis=1)
            for start in range(0, len(rows), height)
        ]  # fmt: skip
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class SupportMap:
    """The groups' barycenter as valid rows, and the couplings with it.

    Attributes
    ----------
    space : ColumnSpace
        Where distances are taken.
    codes : ndarray of shape (n_support, n_columns)
        The support, as codes of rows.
    groups : list of GroupMap
        The map of each group.
    objective : float
        Weighted sum of the groups' transport costs to the support.
    lower_bound : float
        A lower bound of the cost of all barycenters with as many points, of the candidates if there
        are some.
    n_iter : int
        Rounds of the method.
    """

    space: ColumnSpace
    codes: np.ndarray
    groups: list[GroupMap]
    objective: float
    lower_bound: float
    n_iter: int

    method = "support"
    moves = True

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: Any, way: Any
    ) -> np.ndarray:
        """Return the images of rows, as codes; `way` is the method's `transform_method`."""
        drawn = uniforms(keys, IMAGE_DRAW)

        # Threads do not inherit the caller's np.errstate.
        @np.errstate(all="ignore")
        def move(g: int, rows: np.ndarray) -> np.ndarray:
            points = self.space.encode(codes[rows])
            if isinstance(way, str) and way == "coupling":
                return self.codes[self.groups[g].draw(points, drawn[rows])]
            return self.space.decode(self.groups[g].image(points, way))

        rows_of = [np.flatnonzero(groups == g) for g in range(len(self.groups))]
        work = [(g, rows) for g, rows in enumerate(rows_of) if len(rows)]
        found = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(move)(*task) for task in work)
        images = codes.copy()
        for (_, rows), image in zip(work, found, strict=True):
            images[rows] = image
        return images

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes that an estimator shows, by name."""
        return {
            "support_": as_array(self.space.labelled(self.codes)),
            "couplings_": [group.plan for group in self.groups],
            "objective_": self.objective,
            "lower_bound_": self.lower_bound,
            "n_iter_": self.n_iter,
        }


def doubts_about_support(question: "Question", barycenter: SupportMap) -> str | None:
    """Return a warning about a support that moves rows much farther than needed, or None."""
    objective, bound, variance = barycenter.objective, barycenter.lower_bound, question.variance
    if not (objective > _FAR_ABOVE * bound and objective - bound > _LARGEST_GAP * variance):
        return None
    return (
        f"rows are moved by {objective:.2g}, a mean squared distance, of which {bound:.2g} is "
        f"certified to be needed (the variance of all columns together is {variance:.2g}): the "
        "support has too few points for so many columns, and information is lost. Use "
        "method='conditional', leave out columns, or use more points (n_support)."
    )


@dataclass(frozen=True, eq=False)
class Question:
    """The groups, and the kind of barycenter that is asked for.

    Attributes
    ----------
    space : ColumnSpace
        Where distances are taken.
    points, masses : list of ndarray
        Different points of every group, and their masses with sum 1.
    weights : ndarray of shape (n_groups,)
        Weights of the groups, with sum 1.
    n_support : int
        How many points the support has.
    candidates : ndarray of shape (n_candidates, n_columns) or None
        Rows to choose from as codes, if they were given.
    """

    space: ColumnSpace
    points: list[np.ndarray]
    masses: list[np.ndarray]
    weights: np.ndarray
    n_support: int
    candidates: np.ndarray | None

    @property
    def variance(self) -> float:
        """Return the mean squared distance of all groups' points from their mean."""
        masses = [weight * mass for weight, mass in zip(self.weights, self.masses, strict=True)]
        of_groups = list(zip(self.points, masses, strict=True))
        mean = sum(mass @ points for points, mass in of_groups)
        return sum(float(mass @ ((points - mean) ** 2).sum(axis=1)) for points, mass in of_groups)

    def drawn(self, rng: Any, size: int, *, each_once: bool) -> np.ndarray:
        """Return points drawn from the mixture of groups, distinct ones if there are enough.

        If there are fewer, points are repeated. With `each_once`, each distinct point comes first.
        """
        points = np.concatenate(self.points)
        masses = np.concatenate(
            [weight * mass for weight, mass in zip(self.weights, self.masses, strict=True)]
        )
        masses /= masses.sum()
        available = np.flatnonzero(masses)
        if len(available) >= size:
            return points[rng.choice(len(points), size, replace=False, p=masses)]
        first = available[: len(available) * each_once]
        further = rng.choice(len(points), size - len(first), p=masses)
        return points[np.concatenate([first, further])]


class Support(BaseEstimator, metaclass=ABCMeta):
    """Base of the methods that couple groups with the support of a barycenter."""

    candidates: Any = None
    order: Any = 2

    def _check(self, epsilon: float | None, delta: float | None) -> None:
        """Raise if parameters contradict each other, or do not fit a private or an open fit."""
        if epsilon is not None and self.max_rows is not None:
            raise ValueError("max_rows is for fits without epsilon.")

    def _check_size(self, n_points: int, candidates: np.ndarray | None) -> None:
        """Raise if the problem of released points may be too large for the method."""

    def _most_rows(self) -> int:
        return _MOST_ROWS if self.max_rows is None else self.max_rows

    @abstractmethod
    def _find(self, question: Question, rng: Any, callback: Any) -> tuple[np.ndarray, float, int]:
        """Return the codes of a support, a lower bound of the objective, and the rounds."""

    def _solve(self, question: Question, rng: Any, n_jobs: Any, callback: Any) -> SupportMap:
        """Return the barycenter; `rng` draws starts, candidates and categories of averages."""
        codes, lower_bound, n_iter = self._find(question, rng, callback)
        support = question.space.encode(codes)
        found = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_coupling)(points, masses, support, float(self.order))
            for points, masses in zip(question.points, question.masses, strict=True)
        )
        objective = math.fsum(
            weight * cost for weight, (cost, _) in zip(question.weights, found, strict=True)
        )
        lower_bound = min(max(lower_bound, 0.0), objective)
        groups = [group for _, group in found]
        return SupportMap(question.space, codes, groups, objective, lower_bound, n_iter)


class FreeSupport(Support):
    """A support whose points move freely; costs are squared distances.

    The result is a local optimum. For a single numeric column it is exact.

    Parameters
    ----------
    n_support : int, default=None
        Number M of points of the barycenter, each with mass 1/M. Fewer points are fairer on new
        rows; more points keep more detail. None is a tenth of the number of rows that `fit` uses,
        at least 50 (or that number, if it is smaller) and at most 1000; with epsilon, 1000.
    scale : bool, default=True
        Whether columns are scaled before distances are computed: to a variance of 1 (for a nominal
        column, the sum over its categories), or with epsilon by the declared bounds. With False,
        numbers keep their units, neighbouring levels have distance 1, and different categories
        have distance 1.
    tol : float, default=0.001
        The method stops when a round improves the objective by a smaller fraction.
    max_iter : int, default=100
        Cap on rounds.
    bound : {"moments", "pairs"}, default="moments"
        Method of the lower bound; ``"pairs"`` is tighter, but slower.
    max_rows : int, default=None
        Number of rows to draw from a group that has more; None is 10,000. Not with epsilon, where
        a release has few points.
    transform_method : {"coupling", "barycentric", "laguerre"} or regressor, default="coupling"
        ``"coupling"`` finds the nearest fitted row of the group, and draws a support point with
        the probabilities of the coupling; equal rows get different draws. The others are
        deterministic: ``"barycentric"`` is the mean of the distribution from which ``"coupling"``
        draws; a regressor, such as :class:`~sklearn.neighbors.KNeighborsRegressor`, learns these
        means; and ``"laguerre"`` is the support point whose Laguerre cell contains the row. **They
        reveal the group:** rows of a group with equal values, as in discrete features, get equal
        images, and flexible models recognise these. Use them only if a deterministic map is
        required, and measure with :func:`skdpot.fairness.metrics.group_auc`.

    See Also
    --------
    CandidateSupport : A support that is chosen among candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness import FreeSupport
    >>> X = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> fair = FairBarycenterPreprocessor(method=FreeSupport(n_support=2, scale=False))
    >>> fair.fit(X, sensitive_features=["a", "a", "b", "b"]).support_.ravel()
    array([2., 3.])
    """

    _parameter_constraints = _SHARED | {
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "bound": [StrOptions({"moments", "pairs"})],
    }

    def __init__(
        self,
        *,
        n_support=None,
        scale=True,
        tol=1e-3,
        max_iter=100,
        bound="moments",
        max_rows=None,
        transform_method="coupling",
    ) -> None:
        self.n_support = n_support
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.bound = bound
        self.max_rows = max_rows
        self.transform_method = transform_method

    def _find(self, question: Question, rng: Any, callback: Any) -> tuple[np.ndarray, float, int]:
        space = question.space
        if question.points[0].shape[1] == 1:
            line = quantile_barycenter(
                [points[:, 0] for points in question.points],
                question.weights,
                masses=question.masses,
                n_support=question.n_support,
            )
            return space.decode(line.support[:, None]), line.lower_bound, 1
        result = free_support_barycenter(
            question.points,
            question.weights,
            question.drawn(rng, question.n_support, each_once=False),
            masses=question.masses,
            tol=self.tol,
            max_iter=self.max_iter,
            bound=self.bound,
            callback=lambda n_iter, *_: callback(n_iter),
        )
        uniforms = rng.uniform(size=(question.n_support, len(space.layout.blocks)))
        return space.decode(result.support, uniforms), result.lower_bound, result.n_iter


class CandidateSupport(Support):
    """A support that is chosen among candidates, with a certificate; costs of any order.

    Parameters
    ----------
    candidates : {array-like, DataFrame} of shape (n_candidates, n_columns), default=None
        Rows to choose from, with the columns of X that are not sensitive. With epsilon they must
        be public. None draws twice as many as support points, from the rows or from the release.
    n_support : int, default=None
        As in :class:`FreeSupport`.
    order : float, default=2
        Costs are distances to this power, of 1 or more.
    method : {"auto", "dual", "bundle", "exact"}, default="auto"
        ``"dual"`` is the paper's Algorithm 1, with an exact step in one variable and a
        certificate. ``"bundle"`` makes cutting planes. ``"exact"`` is a linear program, for small
        problems. ``"auto"`` chooses by the size of the problem.
    scale : bool, default=True
        As in :class:`FreeSupport`.
    tol : float, default=0.001
        The method stops at this certified gap, relative to the objective.
    max_iter : int, default=None
        Cap on rounds; None is the default of the method. Not for ``"exact"``.
    batch_size : int, default=None
        For ``"dual"``: the number of random candidates that a step uses (the paper's stochastic
        variant). None uses all candidates.
    primal_recovery : int, default=None
        For ``"dual"``: how many of the last selections are averaged. None is the default of the
        method.
    rounding : {"draw"}, default=None
        For ``"dual"``: ``"draw"`` draws the support in proportion to the averaged selections, like
        the paper. None chooses the best support that was found.
    max_rows : int, default=None
        As in :class:`FreeSupport`.
    transform_method : {"coupling", "barycentric", "laguerre"} or regressor, default="coupling"
        As in :class:`FreeSupport`.

    See Also
    --------
    FreeSupport : A support whose points move freely.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness import CandidateSupport
    >>> X = np.array([[0.0], [1.0], [4.0], [5.0]])
    >>> candidates = [[1.0], [2.0], [3.0]]
    >>> method = CandidateSupport(candidates, n_support=2, method="exact", scale=False)
    >>> fair = FairBarycenterPreprocessor(method=method)
    >>> fair.fit(X, sensitive_features=["a", "a", "b", "b"]).support_.ravel()
    array([2., 3.])
    """

    _parameter_constraints = _SHARED | {
        "candidates": "no_validation",
        "order": [Interval(Real, 1, None, closed="left")],
        "method": [StrOptions(set(_OPTIONS))],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": _COUNT,
        "batch_size": _COUNT,
        "primal_recovery": _COUNT,
        "rounding": [StrOptions({"draw"}), None],
    }

    def __init__(
        self,
        candidates=None,
        *,
        n_support=None,
        order=2,
        method="auto",
        scale=True,
        tol=1e-3,
        max_iter=None,
        batch_size=None,
        primal_recovery=None,
        rounding=None,
        max_rows=None,
        transform_method="coupling",
    ) -> None:
        self.candidates = candidates
        self.n_support = n_support
        self.order = order
        self.method = method
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.primal_recovery = primal_recovery
        self.rounding = rounding
        self.max_rows = max_rows
        self.transform_method = transform_method

    def _check(self, epsilon: float | None, delta: float | None) -> None:
        super()._check(epsilon, delta)
        given = {name for name in _OPTIONS["dual"] if getattr(self, name) is not None}
        if given - _OPTIONS[self.method]:
            raise ValueError(
                f"CandidateSupport(method={self.method!r}) has no {sorted(given)}: leave them out, "
                "or use method='dual'."
            )

    def _check_size(self, n_points: int, candidates: np.ndarray | None) -> None:
        n_support = self.n_support or LARGEST_AUTOMATIC_SUPPORT
        n_candidates = _CANDIDATES_PER_POINT * n_support if candidates is None else len(candidates)
        if self.method == "exact" and n_points * n_candidates > LARGEST_EXACT:
            raise ValueError(
                f"method='exact' is for at most {LARGEST_EXACT} pairs of points and candidates, "
                f"and these may be {n_points * n_candidates}. Use method='bundle' with a small tol."
            )

    def _find(self, question: Question, rng: Any, callback: Any) -> tuple[np.ndarray, float, int]:
        codes = question.candidates
        if codes is None:
            n_candidates = _CANDIDATES_PER_POINT * question.n_support
            codes = question.space.decode(question.drawn(rng, n_candidates, each_once=True))
        candidates = question.space.encode(codes)
        options = {}
        if self.max_iter is not None:
            options["max_iter"] = self.max_iter
        if self.primal_recovery is not None:
            options["primal_recovery"] = self.primal_recovery
        if self.batch_size is not None:
            batches = _batches(rng, len(candidates), self.batch_size)
            options["batches"] = islice(batches, self.max_iter or _DEFAULT_BATCHES)
        n_support = min(question.n_support, len(candidates))
        result = candidate_barycenter(
            [powers(points, candidates, float(self.order)) for points in question.points],
            question.weights,
            n_support,
            masses=question.masses,
            method=self.method,
            candidates=candidates,
            tol=self.tol,
            callback=lambda n_iter, *_: callback(n_iter),
            **options,
        )
        chosen = result.chosen
        if self.rounding == "draw":
            chosen = _drawn_by(result.shares, n_support, rng)
        return codes[chosen], result.lower_bound, result.n_iter


def _batches(rng: Any, n_candidates: int, batch_size: int) -> Iterator[np.ndarray]:
    while True:
        yield rng.choice(n_candidates, min(batch_size, n_candidates), replace=False)


def _drawn_by(shares: np.ndarray, n_support: int, rng: Any) -> np.ndarray:
    """Return distinct candidates, drawn in proportion to their shares."""
    shares = np.maximum(shares, 1e-12 / len(shares))
    return np.sort(rng.choice(len(shares), n_support, replace=False, p=shares / shares.sum()))


@np.errstate(all="ignore")
def _coupling(
    points: np.ndarray, masses: np.ndarray, support: np.ndarray, order: float
) -> tuple[float, GroupMap]:
    """Return the cost of the optimal coupling of a group with the support, and the coupling."""
    equal = np.full(len(support), 1 / len(support))
    found = exact_transport(powers(points, support, order), masses, equal)
    return found.cost, GroupMap(points, found.plan, found.column_potential, support, order)


def nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the index of the nearest point of each row, even for very close points.

    The fast search computes squared distances from squared norms, whose rounding errors hide small
    distances: most of those in a column with a long tail. Such rows are searched again.
    """
    found = pairwise_distances_argmin(rows, points)
    distances = ((rows - points[found]) ** 2).sum(axis=1)
    unresolved = _ROUNDING * (rows.shape[1] + 4) * (rows**2).sum(axis=1)
    # At a distance of 0, no point is nearer.
    doubtful = (distances > 0) & (distances < unresolved)
    if doubtful.any():
        found[doubtful] = KDTree(points).query(rows[doubtful])[1]
    return found


def powers(x: np.ndarray, y: np.ndarray, order: float) -> np.ndarray:
    """Return Euclidean distances between points to a power."""
    squares = (x**2).sum(axis=1)[:, None] - 2 * x @ y.T + (y**2).sum(axis=1)
    np.maximum(squares, 0.0, out=squares)
    return squares if order == 2 else squares ** (order / 2)


def distinct(points: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct points and the sums of their masses, without negligible ones."""
    found, place = np.unique(points, axis=0, return_inverse=True)
    sums = np.bincount(place.reshape(-1), masses, minlength=len(found))
    kept = sums > _NEGLIGIBLE * sums.max()
    return found[kept], sums[kept] / sums[kept].sum()
