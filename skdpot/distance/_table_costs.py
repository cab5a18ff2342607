"""Costs between rows of a table, derived from a schema."""

import math
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from skdpot.distance._metrics import CostFunction, make_cost, range_within
from skdpot.privacy.quotes import shown
from skdpot.tables import NOMINAL, NUMERIC, Column, TableSchema

# The exponent of distances within columns, and the root of their mean.
_EXPONENTS = {"sqeuclidean": (2.0, 1.0), "euclidean": (2.0, 2.0), "cityblock": (1.0, 1.0)}
# Place of a missing value: more than 1 away from the places of numbers and levels, in [0, 1].
_PLACE_OF_MISSING = 2.0
# Number of costs that stay in the cache while columns are added to them (256 KiB).
_BLOCK_SIZE = 1 << 15


def table_places(schema: TableSchema, columns: list[np.ndarray]) -> np.ndarray:
    """Return the place of every value on the line of its column.

    Numbers and levels are in [0, 1], from the first to the last; categories are at least 1 apart,
    and a missing value is at least 1 from all others. Where missing values are not declared, they
    have the place of `middle_of_table`, as undeclared ones. A row of the result follows from that
    row of the private table alone.
    """
    units, _ = schema.units_and_problems(columns)
    places = [
        _places_in(column, values, units[:, j])
        for j, (column, values) in enumerate(zip(schema.columns, columns, strict=True))
    ]
    return np.where(units < 0, middle_of_table(schema), np.column_stack(places))


def middle_of_table(schema: TableSchema) -> np.ndarray:
    """Return the places of a public row: middles of numbers and levels, first categories."""
    middles = [
        0.0 if column.kind == NOMINAL
        else 0.5 if column.kind == NUMERIC
        else float(column.places_of_units(np.array((column.n_known - 1) // 2)))
        for column in schema.columns
    ]  # fmt: skip
    return np.array(middles)


def table_cost(
    schema: TableSchema,
    metric: Any,
    *,
    metric_params: dict[str, Any] | None = None,
    cost_range: Any = None,
) -> CostFunction:
    r"""Return the cost function between rows of a table, given as places; its range is [0, 1].

    Parameters
    ----------
    schema : TableSchema
        Public.
    metric : {"sqeuclidean", "euclidean", "cityblock", "minkowski"}
        How the distances within columns become one.
    metric_params : dict, default=None
        Public: the weights of the columns `w`, and the exponent `p` of minkowski.
    cost_range : tuple of float, default=None
        Smallest and largest cost, into which all costs are clipped.

    Returns
    -------
    CostFunction
        With the weights :math:`w_k` divided by their sum, ``cityblock`` is :math:`\sum_k w_k d_k`,
        ``sqeuclidean`` is :math:`\sum_k w_k d_k^2`, ``euclidean`` the root of that, and
        ``minkowski`` the root of degree p of :math:`\sum_k w_k d_k^p`, where :math:`d_k` is the
        distance of two places, or 1 if that is less.

    Raises
    ------
    ValueError
        If a parameter is none of these.

    Notes
    -----
    Proof of the range: :ref:`proof-table-costs`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_columns, read_schema
    >>> from skdpot.distance._table_costs import table_cost, table_places
    >>> schema = read_schema({"age": {"bounds": (20, 60), "missing": True}, "sex": ["F", "M"]})
    >>> rows = table_places(schema, read_columns([[20, "F"], [30, "M"], [None, "F"]], schema))
    >>> table_cost(schema, "cityblock")(rows, rows)
    array([[0.   , 0.625, 0.5  ],
           [0.625, 0.   , 1.   ],
           [0.5  , 1.   , 0.   ]])
    """
    exponent, root = _exponents(metric, dict(metric_params or {}))
    weights = _weights((metric_params or {}).get("w"), len(schema.columns))
    (first, *others) = schema.columns
    if not others and first.kind != NOMINAL and not first.missing:
        # Numbers of one column are transported in their order.
        params = {"p": exponent} if metric == "minkowski" else None
        line = np.zeros(1), np.ones(1)
        return make_cost(metric, *line, metric_params=params, cost_range=cost_range)
    return CostFunction(
        range=range_within(metric, (0.0, 1.0), cost_range),
        kind=None,
        monotone=False,
        _matrix=partial(_costs_of_places, exponent, root, weights),
    )


def _places_in(column: Column, values: np.ndarray, units: np.ndarray) -> np.ndarray:
    if column.kind == NOMINAL:
        return units.astype(np.float64)
    exact = column.kind == NUMERIC and not column.integer
    places = column.places(values) if exact else column.places_of_units(units)
    places[units == column.n_known] = _PLACE_OF_MISSING
    return places


def _costs_of_places(
    exponent: float, root: float, weights: np.ndarray, A: np.ndarray, B: np.ndarray
) -> np.ndarray:
    costs = np.zeros((len(A), len(B)))
    height = max(1, _BLOCK_SIZE // max(1, len(B)))
    buffer, lines = np.empty((height, len(B))), np.ascontiguousarray(B.T)
    for start in range(0, len(A), height):
        block = costs[start : start + height]
        apart = buffer[: len(block)]
        for weight, x, y in zip(weights, A[start : start + height].T, lines, strict=True):
            np.abs(np.subtract(x[:, None], y, out=apart), out=apart)
            np.minimum(apart, 1.0, out=apart)
            if exponent != 1:
                apart **= exponent
            apart *= weight
            block += apart
        if root != 1:
            block **= 1 / root
    return costs


def _exponents(metric: Any, params: dict[str, Any]) -> tuple[float, float]:
    """Return the exponent within columns and the root over them of a metric, or raise."""
    if metric != "minkowski" and (not isinstance(metric, str) or metric not in _EXPONENTS):
        raise ValueError(
            f"with schema, metric is one of {', '.join(map(repr, sorted(_EXPONENTS)))} or "
            f"'minkowski', got {shown(metric)}: each is a mean over columns."
        )
    unknown = sorted(set(params) - {"w"} - ({"p"} if metric == "minkowski" else set()), key=repr)
    if unknown:
        raise ValueError(
            f"metric_params has {', '.join(map(repr, unknown))}; with schema, metric={metric!r} "
            f"takes w, the weights of the columns{', and p' * (metric == 'minkowski')}."
        )
    if metric != "minkowski":
        return _EXPONENTS[metric]
    order = params.get("p", 2.0)
    if not (isinstance(order, Real) and 1 <= float(order) < math.inf):
        raise ValueError(f"metric_params['p'] must be a finite number >= 1, got {shown(order)}.")
    return float(order), float(order)


def _weights(given: Any, n_columns: int) -> np.ndarray:
    """Return column weights that sum to 1, or raise."""
    try:
        weights = np.ones(n_columns) if given is None else np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (n_columns,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise ValueError(
            f"metric_params['w'] must have a weight for each of the {n_columns} columns of the "
            "schema, none of them negative, and not all zero."
        )
    return weights / weights.sum()
