"""Rows as points, the support of their barycenter, and the groups' couplings with it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from scipy.spatial import KDTree
from scipy.stats import rankdata
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances_argmin

from skdpot._sklearn_compat import Interval
from skdpot.releases import UnitLayout
from skdpot.tables import NOMINAL, NUMERIC, ORDINAL, Column, as_array
from skdpot.transport.barycenter import free_support_barycenter, quantile_barycenter

# The constants of the splitmix64 generator.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
# Numbers of draws, beyond those of the columns.
IMAGE_DRAW, BLEND_DRAW = 2**62, 2**62 + 1
# Numbers of the draws of the first column, of blurred rows and of blurred images.
BLUR_DRAW, BLURRED_IMAGE_DRAW = 2**62 + 3, 2**62 + 2**61


def row_keys(seed: int, codes: np.ndarray) -> np.ndarray:
    """Return a key of 64 bits for every row, from a seed and its values.

    Equal rows are numbered. The first has the same key in every table, and the others have further
    keys, so rows with equal values are drawn separately. Keys do not depend on groups: otherwise,
    who knows the images of rows in one table would tell the groups of equal rows in another.
    """
    # Adding 0.0 turns -0.0 into 0.0.
    # Missing numbers may have any of many bit patterns, and get the same one.
    values = np.nan_to_num(codes, nan=np.pi) + 0.0
    keys = np.full(len(values), seed, dtype=np.uint64)
    for column in values.T:
        keys = mixed(keys ^ np.ascontiguousarray(column).view(np.uint64))
    # How many equal keys come before each.
    occurrences = rankdata(keys, method="ordinal") - rankdata(keys, method="min")
    return mixed(keys ^ occurrences.astype(np.uint64))


def uniforms(keys: np.ndarray, draw: int) -> np.ndarray:
    """Return a number in the open interval (0, 1) for every key, for this draw."""
    with np.errstate(over="ignore"):
        bits = mixed(mixed(keys) + _STEP * np.uint64(draw + 1))
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def mixed(bits: np.ndarray) -> np.ndarray:
    """Return well-mixed bits: a permutation of the 64-bit numbers that keeps 0."""
    # Each step can be undone, so that different keys stay different.
    bits = (bits ^ (bits >> 30)) * _MIX[0]
    bits = (bits ^ (bits >> 27)) * _MIX[1]
    return bits ^ (bits >> 31)


# Makes the squared distance between rows of different categories 1, in their own units.
_ONE_HOT = math.sqrt(0.5)
# A group's distinct points, and their masses with sum 1.
Group = tuple[np.ndarray, np.ndarray]
_COUNT = [Interval(Integral, 1, None, closed="left"), None]


# ------------------------------------------------------------------------------ points of rows


@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """Rows as codes, and as points with Euclidean distances.

    The *codes* of a row are its numbers as they are, and the positions of its levels and
    categories, -1 for an unknown category. The coordinates of its point are numbers and ranks of
    levels, shifted and scaled, and then a block for every nominal column. A block has one
    coordinate per category: the column's factor for the row's category, and 0 for all others.

    Attributes
    ----------
    columns : list of Column
        The columns, in the order of X.
    origin, factor : ndarray of shape (n_coordinates,)
        A coordinate is ``(raw - origin) * factor``.
    """

    columns: list[Column]
    origin: np.ndarray
    factor: np.ndarray

    @property
    def layout(self) -> UnitLayout:
        """Return the layout of points in unit coordinates."""
        nominal = (len(c.values) for c in self.columns if c.kind == NOMINAL)
        return UnitLayout(tuple(len(c.values) for c in self._ranked), tuple(nominal))

    @property
    def _ranked(self) -> list[Column]:
        return [column for column in self.columns if column.kind != NOMINAL]

    def raw(self, codes: Iterable[np.ndarray]) -> np.ndarray:
        """Return coordinates without offset and factor: numbers, ranks, zeros and ones.

        `codes` has one array per column. An unknown level is put in the middle of the known ones.
        """
        ranked, blocks = [], []
        for column, values in zip(self.columns, codes, strict=True):
            if column.kind == NOMINAL:
                blocks.append(values[:, None] == np.arange(len(column.values)))
            elif column.kind == ORDINAL:
                middle = (len(column.values) - 1) / 2.0
                ranked.append(np.where(values < 0, middle, values))
            else:
                ranked.append(values)
        # Each column is contiguous, so that its mean is exact to the last digits.
        parts = [np.array(ranked, dtype=np.float64).T] if ranked else []
        return np.hstack([*parts, *blocks]).astype(np.float64)

    def encode(self, codes: np.ndarray) -> np.ndarray:
        """Return the points of rows, given as codes of shape (n, n_columns)."""
        # In row order, in which the search for nearest points is fast.
        return np.ascontiguousarray((self.raw(codes.T) - self.origin) * self.factor)

    def decode(self, points: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the codes of the valid rows nearest to points, which may be averages of rows.

        Levels are the nearest ones. `uniforms`, of shape (n, n_nominal), draw a category with its
        share in an average.
        """
        raw = points / self.factor + self.origin
        codes = np.empty((len(points), len(self.columns)))
        numbers, blocks = iter(raw.T), iter(enumerate(self.layout.block_slices))
        for place, column in enumerate(self.columns):
            if column.kind == NUMERIC:
                codes[:, place] = next(numbers)
            elif column.kind == ORDINAL:
                codes[:, place] = np.clip(np.rint(next(numbers)), 0, len(column.values) - 1)
            else:
                j, block = next(blocks)
                # An average of rows has the share of each category as its coordinate.
                ends = np.maximum(raw[:, block], 0.0).cumsum(axis=1)
                drawn = (ends <= (uniforms[:, j] * ends[:, -1])[:, None]).sum(axis=1)
                codes[:, place] = np.minimum(drawn, ends.shape[1] - 1)
        return codes

    def of_rows(self, codes: np.ndarray, *, scaled: bool) -> "ColumnSpace":
        """Return the space with the mean of these rows as its origin, so that squares are small.

        If scaled, every column of these rows has variance 1. For a nominal column this is the sum
        over its categories. So two random rows are as far apart in it as in any other column.
        """
        raw, ranked, origin = self.raw(codes.T), len(self._ranked), np.zeros(len(self.origin))
        origin[:ranked] = raw[:, :ranked].mean(axis=0)
        if not scaled:
            return replace(self, origin=origin)
        # In units of the range, so that squares neither overflow nor underflow.
        width = np.ptp(raw, axis=0)
        unit = np.where(width > 0, width, 1.0)
        # For equal numbers, the rounding of their mean may leave a variance.
        variances = np.where(width > 0, (raw / unit).var(axis=0), 0.0)
        for block in self.layout.block_slices:
            variances[block] = variances[block].sum()
        factor = 1.0 / np.sqrt(np.where(variances > 0, variances, 1.0)) / unit
        return replace(self, origin=origin, factor=factor)

    def in_bounds(self, *, scaled: bool) -> tuple["ColumnSpace", np.ndarray, np.ndarray]:
        """Return the space with the corner of all lower bounds as its origin, and the bounds.

        These are the bounds of numbers and ranks. If scaled, they are 1 apart. Blocks of categories
        have none: their points are zeros and ones.
        """
        origin, factor, ranked = np.zeros(len(self.origin)), self.factor.copy(), self._ranked
        low = origin[: len(ranked)]
        low[:] = [column.low for column in ranked]
        # A single level has no width, by which ranks could be divided.
        high = np.array(
            [c.high if c.kind == NUMERIC else max(len(c.values) - 1, 1) for c in ranked]
        )
        if scaled:
            factor[: len(ranked)] = 1.0 / (high - low)
        return replace(self, origin=origin, factor=factor), low, high


def in_own_units(columns: list[Column]) -> ColumnSpace:
    """Return the space in which columns keep their own units.

    Adjacent levels have distance 1, and so have different categories.
    """
    ranked = sum(column.kind != NOMINAL for column in columns)
    n_coordinates = sum(column.n_coordinates for column in columns)
    factor = np.where(np.arange(n_coordinates) < ranked, 1.0, _ONE_HOT)
    return ColumnSpace(columns, np.zeros(n_coordinates), factor)


# --------------------------------------------------------------------- the map, and its methods


@dataclass(frozen=True, eq=False)
class SupportMap:
    """The groups' barycenter as valid rows, and the couplings with it.

    Attributes
    ----------
    space : ColumnSpace
        Where distances are taken.
    codes : ndarray of shape (n_support, n_columns)
        The support, as codes of rows.
    points : list of ndarray of shape (n_points, n_coordinates)
        The distinct points of each group.
    plans : list of csr_array of shape (n_points, n_support)
        How much of a point's mass goes where.
    objective : float
        Weighted sum of the groups' transport costs to the support.
    lower_bound : float
        A lower bound of the cost of all barycenters with as many points.
    n_iter : int
        Rounds of the method.
    shared : ndarray of shape (n_groups,)
        The place of each group among the groups above, which it may share with others.
    """

    space: ColumnSpace
    codes: np.ndarray
    points: list[np.ndarray]
    plans: list[sparse.csr_array]
    objective: float
    lower_bound: float
    n_iter: int
    shared: np.ndarray

    @property
    def moves(self) -> bool:
        """Tell whether any row may move: not if no group is told apart from the others."""
        return bool(self.shared.any())

    def images(
        self, codes: np.ndarray, groups: np.ndarray, keys: np.ndarray, n_jobs: int | None = None
    ) -> np.ndarray:
        """Return the images of rows, as codes; randomness depends on their keys."""
        drawn = uniforms(keys, IMAGE_DRAW)

        # Threads do not inherit the caller's np.errstate.
        @np.errstate(all="ignore")
        def move(g: int, rows: np.ndarray) -> np.ndarray:
            at = nearest(self.space.encode(codes[rows]), self.points[g])
            return self.codes[drawn_by(self.plans[g], at, drawn[rows])]

        maps = np.where(groups >= 0, self.shared[groups], -1)
        rows_of = {g: np.flatnonzero(maps == g) for g in np.unique(maps[maps >= 0]).tolist()}
        threads = Parallel(n_jobs=n_jobs, prefer="threads")
        found = threads(delayed(move)(*task) for task in rows_of.items())
        # Rows in no group stay what they are.
        images = codes.copy()
        for rows, image in zip(rows_of.values(), found, strict=True):
            images[rows] = image
        return images

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes that an estimator shows, by name."""
        # Valid rows in the user's terms: numbers, or labels as objects.
        support = [
            codes if column.labels is None else column.labels[codes.astype(np.intp)]
            for column, codes in zip(self.space.columns, self.codes.T, strict=True)
        ]
        return {
            "support_": as_array(support),
            "couplings_": [self.plans[g] for g in self.shared],
            "objective_": self.objective,
            "lower_bound_": self.lower_bound,
            "n_iter_": self.n_iter,
        }


def drawn_by(plan: sparse.csr_array, at: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return where a plan sends rows that are at these points, drawn by numbers in [0, 1).

    Rows at one point are drawn separately. Images that equal rows of a group share would give the
    group away, even where every mean is the same.
    """
    starts, ends = plan.indptr[at], plan.indptr[at + 1]
    running = np.concatenate([[0.0], np.cumsum(plan.data)])
    wanted = running[starts] + uniforms * (running[ends] - running[starts])
    drawn = np.searchsorted(running, wanted, side="right") - 1
    # Sums are rounded, so that a number near an end may fall beyond the row of the plan.
    return plan.indices[np.clip(drawn, starts, ends - 1)]


class FreeSupport(BaseEstimator):
    """A support whose points move freely; costs are squared distances.

    The result is a local optimum. For a single numeric column it is exact.

    Parameters
    ----------
    n_support : int, default=None
        Number M of points of the barycenter, each with mass 1/M. Fewer points are fairer on new
        rows; more points keep more detail. None is a tenth of the number of rows that `fit` uses,
        at least 50 (or that number, if it is smaller) and at most 1000.
    scale : bool, default=True
        Whether columns are scaled before distances are computed: to a variance of 1 (for a nominal
        column, the sum over its categories), or with epsilon by the declared bounds. With False,
        numbers keep their units, neighbouring levels have distance 1, and different categories
        have distance 1.
    tol : float, default=0.001
        The method stops when a round improves the objective by a smaller fraction.
    max_iter : int, default=100
        Cap on rounds.
    max_rows : int, default=None
        Number of rows to draw from a group that has more; None is 10,000. Not with epsilon, where
        a release has few points.

    See Also
    --------
    ConditionalRepair : Repair of one column after the other, for wide and mixed tables.
    skdpot.transport.barycenter.candidate_barycenter : A support that is chosen among candidates.

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

    _parameter_constraints = {
        "n_support": _COUNT,
        "scale": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_rows": _COUNT,
    }

    def __init__(
        self, *, n_support=None, scale=True, tol=1e-3, max_iter=100, max_rows=None
    ) -> None:
        self.n_support = n_support
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.max_rows = max_rows

    def _check(self, epsilon: float | None, delta: float | None) -> None:
        """Raise if parameters do not fit a private fit, or an open one."""
        if epsilon is not None and self.max_rows is not None:
            raise ValueError("max_rows is for fits without epsilon.")

    def _find(
        self,
        space: ColumnSpace,
        groups: list[Group],
        weights: np.ndarray,
        n_support: int,
        rng: np.random.RandomState,
        callback: Any,
    ) -> tuple[np.ndarray, float, int]:
        """Return the codes of a support, a lower bound of the objective, and the rounds.

        No row is read. `weights` have the sum 1, and `rng` draws the start and categories of
        averages. `callback` is called with the number of rounds, and more, after each of them.
        """
        points, masses = ([group[i] for group in groups] for i in (0, 1))
        # On a line the barycenter has a closed form.
        if points[0].shape[1] == 1:
            line = quantile_barycenter(
                [x[:, 0] for x in points], weights, masses=masses, n_support=n_support
            )
            # Of one coordinate there is no category to be drawn.
            no_draws = np.zeros((n_support, 1))
            return space.decode(line.support[:, None], no_draws), line.lower_bound, 1
        # Points of the mixture of groups, distinct ones if there are enough.
        of_all = np.concatenate([w * of for w, of in zip(weights, masses, strict=True)])
        # Rounded weights may have another sum, which `choice` refuses.
        of_all /= of_all.sum()
        too_few = bool(np.count_nonzero(of_all) < n_support)
        drawn = rng.choice(len(of_all), n_support, replace=too_few, p=of_all)
        result = free_support_barycenter(
            points,
            weights,
            np.concatenate(points)[drawn],
            masses=masses,
            tol=self.tol,
            max_iter=self.max_iter,
            callback=callback,
        )
        uniforms = rng.uniform(size=(n_support, len(space.layout.blocks)))
        return space.decode(result.support, uniforms), result.lower_bound, result.n_iter


def nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the index of the nearest point of each row, even for very close points.

    The fast search computes squared distances from squared norms, whose rounding errors hide small
    distances: most of those in a column with a long tail. Such rows are searched again.
    """
    found = pairwise_distances_argmin(rows, points)
    distances = ((rows - points[found]) ** 2).sum(axis=1)
    # Rounding error of squared norms, for each summand: eight times that of four roundings.
    rounding = 32 * float(np.finfo(np.float64).eps)
    unresolved = rounding * (rows.shape[1] + 4) * (rows**2).sum(axis=1)
    # At a distance of 0, no point is nearer.
    doubtful = (distances > 0) & (distances < unresolved)
    if doubtful.any():
        found[doubtful] = KDTree(points).query(rows[doubtful])[1]
    return found


def distinct(points: np.ndarray, masses: np.ndarray) -> Group:
    """Return distinct points and the sums of their masses, without negligible ones."""
    found, place = np.unique(points, axis=0, return_inverse=True)
    sums = np.bincount(place.reshape(-1), masses, minlength=len(found))
    # The solver represents masses as integers with a sum below 2**53, so that less would be lost.
    kept = sums > 1e-12 * sums.max()
    return found[kept], sums[kept] / sums[kept].sum()
