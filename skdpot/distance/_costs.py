"""Costs between points of a public box, and between rows of a table, with a proven range.

Noise is scaled to the range of a cost, so no point may lead to a cost outside of it, and no point
may cause an error or a warning that depends on the point.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from skdpot.privacy.checks import result_of, silence, to_display
from skdpot.tables import NOMINAL, NUMERIC, Column, TableSchema

# Within these limits, costs, their squares and quotients neither overflow nor underflow.
SMALLEST_RANGE, LARGEST_RANGE = 1e-150, 1e300
# The largest cost between points whose features are at most these widths apart.
_LARGEST: dict[str, Callable[..., float]] = {
    "sqeuclidean": lambda widths: np.sum(widths**2),
    "euclidean": lambda widths: math.hypot(*widths),
    "cityblock": np.sum,
    "chebyshev": np.max,
}


@dataclass(frozen=True, eq=False)
class CostFunction:
    """A cost between points, clipped into its range.

    Attributes
    ----------
    range : tuple of float
        Smallest and largest cost.
    kind : {"sqeuclidean", "euclidean"} or None
        The formula of the cost, if clipping changes none of its values.
    monotone : bool
        Whether points are numbers and the cost is convex in their difference. Then coupling them in
        their order is optimal. Then :meth:`between` is there, too.
    """

    range: tuple[float, float]
    kind: str | None
    monotone: bool
    _matrix: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def __call__(self, A: Any, B: Any) -> np.ndarray:
        """Return the costs between all rows of A and all rows of B, which are private points.

        No value causes an error or a warning. Costs are within the range: its upper end if a cost
        is NaN or the function fails.
        """
        # Private values may be anything: infinities and differences of them are silent, and clipped
        # below.
        A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
        with np.errstate(all="ignore"):
            return self._clipped(self._matrix(A, B))

    def between(self, x: Any, y: Any) -> np.ndarray:
        """Return the costs between corresponding numbers of two private arrays, within the range.

        Raises ValueError if the cost is not monotone.
        """
        with np.errstate(all="ignore"):
            # A monotone cost is a function of the difference, which saves a matrix of all pairs.
            differences = np.subtract(x, y, dtype=np.float64)[:, None]
            return self._clipped(self._matrix(differences, np.zeros((1, 1))))[:, 0]

    def _clipped(self, costs: np.ndarray) -> np.ndarray:
        low, high = self.range
        # NaN would spread to all results, and so reveal that one record holds it.
        costs[np.isnan(costs)] = high
        return np.clip(costs, low, high, out=costs)


def make_cost(metric: Any, low: Any, high: Any, *, cost_range: Any = None) -> CostFunction:
    r"""Return the cost function of a metric on a public box, with its range.

    Parameters
    ----------
    metric : str or callable
        "sqeuclidean", "euclidean", "cityblock" or "chebyshev", or a function of two one-dimensional
        arrays that returns a number.
    low, high : ndarray of shape (n_features,)
        Bounds of the box.
    cost_range : tuple of float, default=None
        Smallest and largest cost, into which all costs are clipped. It is required if no range is
        proven. Otherwise the intersection of both is used: a smaller range needs less noise.

    Returns
    -------
    CostFunction
        Picklable, if a callable metric is.

    Raises
    ------
    ValueError
        If the metric is not known, the range is missing or wrong, or a callable returns no number,
        or one far outside of the range, for the two corners of the box. Only public values are
        used.

    Notes
    -----
    Proven ranges, for a box of widths w in d dimensions: they begin at 0, at equal points. All of
    these costs grow with every :math:`|x_k - y_k| \le w_k`, so that they are largest between
    opposite corners.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", section III, where costs are
    bounded.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.distance._costs import make_cost
    >>> cost = make_cost("sqeuclidean", np.zeros(2), np.array([1.0, 2.0]))
    >>> cost.range, cost.kind
    ((0.0, 5.0), 'sqeuclidean')
    >>> cost([[0.0, 0.0]], [[1.0, 1.0], [1.0, 2.0]])
    array([[2., 5.]])
    """
    # Copies: a caller's array may change after the range was proven.
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    if not isinstance(metric, str):
        return _callable_cost(metric, low, high, _check_cost_range(cost_range))
    if metric not in _LARGEST:
        known = ", ".join(_LARGEST)
        raise ValueError(
            f"metric={metric!r} is not known. Give one of: {known}; or a function of two points, "
            "with its cost_range."
        )
    with np.errstate(all="ignore"):
        max_cost = float(_LARGEST[metric](high - low))
    # Other costs overflow or underflow.
    proven = (0.0, max_cost) if SMALLEST_RANGE <= max_cost <= LARGEST_RANGE else None
    bounds = range_within(metric, proven, cost_range)
    unclipped = bounds == proven
    # On a line, all but the square are multiples of one distance. Formulas with powers would
    # underflow, and the sorted order is optimal only for convex costs.
    is_line = len(low) == 1 and unclipped
    matrix: Callable[..., np.ndarray] = partial(cdist, metric=metric)
    if is_line and metric != "sqeuclidean":
        matrix = partial(_multiples, bounds[1] / (high - low)[0])
    # Solvers compute these two from coordinates, without a matrix; a clipped cost has another
    # formula.
    kind = metric if unclipped and metric in ("sqeuclidean", "euclidean") else None
    return CostFunction(range=bounds, kind=kind, monotone=is_line, _matrix=matrix)


def _multiples(factor: float, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return factor * np.abs(A - B[:, 0])


def _check_cost_range(cost_range: Any) -> tuple[float, float] | None:
    if cost_range is None:
        return None
    # Texts and complex numbers would be converted, or fail later with another error.
    is_pair = np.shape(cost_range) == (2,) and all(isinstance(bound, Real) for bound in cost_range)
    low, high = map(float, cost_range) if is_pair else (0.0, 0.0)
    if not SMALLEST_RANGE <= high - low <= LARGEST_RANGE:
        raise ValueError(
            "cost_range must be two finite numbers (lo, hi) with lo < hi, from 1e-150 to 1e300 "
            f"apart, got {cost_range!r}."
        )
    return low, high


def range_within(name: str, proven: tuple | None, cost_range: Any) -> tuple[float, float]:
    """Return the smaller of the proven range of costs and the clipping range, or raise."""
    imposed = _check_cost_range(cost_range)
    if proven is None or imposed is None:
        bounds = proven or imposed
        if bounds is None:
            raise ValueError(
                f"metric={name!r} has no proven range on this box, or none that a double can hold. "
                "Give cost_range=(smallest, largest); other costs are clipped."
            )
        return bounds
    low, high = max(proven[0], imposed[0]), min(proven[1], imposed[1])
    if not low < high:
        raise ValueError(
            f"cost_range=({imposed[0]:g}, {imposed[1]:g}) leaves one cost only: between these "
            f"bounds metric={name!r} takes values from {proven[0]:g} to {proven[1]:g}."
        )
    return low, high


def _callable_cost(
    metric: Any, low: np.ndarray, high: np.ndarray, bounds: tuple[float, float] | None
) -> CostFunction:
    if not callable(metric):
        raise ValueError(f"metric must be a name or a function of two points, got {metric!r}.")
    if bounds is None:
        raise ValueError(
            "a callable metric needs cost_range=(smallest, largest); other costs are clipped."
        )
    first, second = _read_only(low), _read_only(high)
    try:
        # The corners are public, so that a mistake is shown before anything private is read.
        apart = _called(metric, first, second)
    except Exception as error:
        raise ValueError(
            f"metric={metric!r} returned no number for the two corners of the box: {error}"
        ) from error
    with silence():
        # A cost may be undefined where nothing is moved.
        same = result_of(partial(_called, metric, first, first), math.nan)
    # Costs may be clipped on purpose, but not most of them.
    width, rounding, most = bounds[1] - bounds[0], 1e-6, 10.0
    if same - apart > rounding * width or not -rounding <= (apart - bounds[0]) / width <= most:
        raise ValueError(
            f"metric={metric!r} is {apart:g} between opposite corners, {same:g} at equal points, "
            f"with cost_range={bounds}. Give a distance in this unit, no similarity, or clip it."
        )
    return CostFunction(bounds, None, False, partial(_called_costs, metric))


def _called_costs(metric: Callable[..., Any], A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Call a metric for all pairs of points; the result is NaN where the call fails."""
    # A metric that writes to its arguments would change records for later pairs.
    A, B = _read_only(A), _read_only(B)
    costs = np.full((len(A), len(B)), np.nan)
    with silence():
        for i, x in enumerate(A):
            for j, y in enumerate(B):
                # A failure of foreign code at a private pair must not be seen: its cost is the
                # largest.
                costs[i, j] = result_of(partial(_called, metric, x, y), np.nan)
    return costs


def _called(metric: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> float:
    return _number(metric(x, y))


def _number(value: Any) -> float:
    # float() would read a text, and a one-element array, as a number.
    if isinstance(value, str | bytes) or np.ndim(value) or math.isnan(float(value)):
        raise ValueError(f"{value!r} is not a number.")
    return float(value)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a copy that a metric cannot write to."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, eq=False)
class BoxSpace:
    """The points of a box.

    Attributes
    ----------
    low, high : ndarray of shape (n_features,)
        Public bounds.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """Return a public point."""
        return (self.low + self.high) / 2

    def moved_inside(self, points: np.ndarray) -> np.ndarray:
        """Return points with numbers moved to the bounds, and the middle in place of NaN."""
        # No value refuses a fit, as a refusal would reveal it.
        return np.where(np.isnan(points), self.middle, np.clip(points, self.low, self.high))

    def cost(self, metric: Any, cost_range: Any = None) -> CostFunction:
        """Return the cost function of a metric between points."""
        return make_cost(metric, self.low, self.high, cost_range=cost_range)


@dataclass(frozen=True, eq=False)
class SchemaSpace:
    """Rows of a table, as positions on the lines of their columns.

    Attributes
    ----------
    schema : TableSchema
        Public.
    """

    schema: TableSchema

    @property
    def middle(self) -> np.ndarray:
        """Return the positions of a public row: middles of numbers and levels, first categories."""
        # The position of a public row: it fills up small groups, and stands for undeclared values.
        middles = np.full(len(self.schema.columns), 0.5)
        for k, column in enumerate(self.schema.columns):
            if column.kind == NOMINAL:
                middles[k] = 0.0
            elif column.kind != NUMERIC:
                middles[k] = column.positions_of_codes(np.array((column.n_known - 1) // 2))
        return middles

    def points(self, columns: list[np.ndarray]) -> np.ndarray:
        """Return the position of every value on the line of its column.

        Numbers and levels are in [0, 1], from the first to the last; categories are at least 1
        apart, and a missing value is at least 1 from all others. Where missing values are not
        declared, they have the position of `middle`, as undeclared ones. A row of the result comes
        from that row of the private table alone.
        """
        # Problems are not looked at: they depend on private values.
        codes, _ = self.schema.codes_and_problems(columns)
        positions = [
            _positions_in(column, values, codes[:, j])
            for j, (column, values) in enumerate(zip(self.schema.columns, columns, strict=True))
        ]
        return np.where(codes < 0, self.middle, np.column_stack(positions))

    def cost(self, metric: Any, cost_range: Any = None) -> CostFunction:
        r"""Return the cost function between rows of a table, given as positions.

        Its range is [0, 1] (:ref:`proof <proof-table-costs>`).

        Parameters
        ----------
        metric : {"sqeuclidean", "euclidean", "cityblock"}
            How the distances within columns become one.
        cost_range : tuple of float, default=None
            Smallest and largest cost, into which all costs are clipped.

        Returns
        -------
        CostFunction
            Where :math:`d_k` is the distance of two positions, at most 1, ``cityblock`` is
            the mean of :math:`d_k` over columns, ``sqeuclidean`` the mean of :math:`d_k^2`, and
            ``euclidean`` the root of that.

        Raises
        ------
        ValueError
            If a parameter is none of these.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot.tables import read_columns, read_schema
        >>> from skdpot.distance._costs import SchemaSpace
        >>> schema = read_schema({"age": {"bounds": (20, 60), "missing": True}, "sex": ["F", "M"]})
        >>> space = SchemaSpace(schema)
        >>> rows = space.points(read_columns([[20, "F"], [30, "M"], [None, "F"]], schema))
        >>> space.cost("cityblock")(rows, rows)
        array([[0.   , 0.625, 0.5  ],
               [0.625, 0.   , 1.   ],
               [0.5  , 1.   , 0.   ]])
        """
        # The exponent of distances within columns, and the root of their mean.
        exponents = {"sqeuclidean": (2.0, 1.0), "euclidean": (2.0, 2.0), "cityblock": (1.0, 1.0)}
        if not isinstance(metric, str) or metric not in exponents:
            raise ValueError(
                f"with schema, metric is one of {', '.join(map(repr, sorted(exponents)))}, got "
                f"{to_display(metric)}: each is a mean over columns."
            )
        columns = self.schema.columns
        if len(columns) == 1 and columns[0].kind != NOMINAL and not columns[0].missing:
            # A single ordered column is a line, without missing values that would be off it.
            # Numbers of one column are transported in their order.
            return make_cost(metric, np.zeros(1), np.ones(1), cost_range=cost_range)
        return CostFunction(
            range=range_within(metric, (0.0, 1.0), cost_range),
            kind=None,
            monotone=False,
            _matrix=partial(_costs_of_positions, *exponents[metric]),
        )


def _positions_in(column: Column, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    if column.kind == NOMINAL:
        return codes.astype(np.float64)
    # Real numbers are not rounded to codes, which are cells of a grid.
    exact = column.kind == NUMERIC and not column.integer
    positions = column.positions_on_scale(values) if exact else column.positions_of_codes(codes)
    # More than 1 away from the positions of numbers and levels, in [0, 1].
    positions[codes == column.n_known] = 2.0
    return positions


def _costs_of_positions(exponent: float, root: float, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    costs = np.zeros((len(A), len(B)))
    # 32,768 costs (256 KiB) stay in the cache while columns are added to them.
    height = max(1, (1 << 15) // max(1, len(B)))
    # One buffer for all columns: temporaries of each would leave the cache.
    buffer, lines = np.empty((height, len(B))), np.ascontiguousarray(B.T)
    for start in range(0, len(A), height):
        block = costs[start : start + height]
        apart = buffer[: len(block)]
        for x, y in zip(A[start : start + height].T, lines, strict=True):
            np.abs(np.subtract(x[:, None], y, out=apart), out=apart)
            np.minimum(apart, 1.0, out=apart)
            if exponent != 1:
                apart **= exponent
            block += apart
        block /= len(lines)
        if root != 1:
            block **= 1 / root
    return costs
