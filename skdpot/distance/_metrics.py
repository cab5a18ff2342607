"""Costs between points of a public box, with a proven range or one that costs are clipped to.

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

from skdpot.privacy.foreign import result_of, silence
from skdpot.transport import refuse_degrees

# Within these limits, costs, their squares and quotients neither overflow nor underflow.
SMALLEST_RANGE, LARGEST_RANGE = 1e-150, 1e300
# The largest cost between points whose features are at most these widths apart.
_LARGEST: dict[str, Callable[..., float]] = {
    "sqeuclidean": lambda widths: np.sum(widths**2),
    "euclidean": lambda widths: math.hypot(*widths),
    "cityblock": np.sum,
    "chebyshev": np.max,
    "minkowski": lambda widths, p, w: (
        widths.max() * np.sum(w * (widths / widths.max()) ** p) ** (1 / p)
    ),
    "haversine": lambda widths: math.pi,
}


def _check_params(name: str, params: dict[str, Any] | None, n_features: int) -> dict[str, Any]:
    """Return the parameters of a named metric, checked."""
    params = dict(params or {})
    taken = ("p", "w") if name == "minkowski" else ()
    unknown = sorted(set(params) - set(taken), key=repr)
    if unknown:
        takes = f"only {', '.join(taken)}" if taken else "none"
        raise ValueError(
            f"metric_params has {', '.join(map(repr, unknown))}, but metric={name!r} takes {takes}."
        )
    if not taken:
        return params
    order = params.get("p", 2.0)
    if not (isinstance(order, Real) and 1 <= float(order) < math.inf):
        raise ValueError(
            f"metric_params['p'] must be a finite number >= 1, got {order!r}. For infinity, give "
            'metric="chebyshev".'
        )
    weights = np.array(params.get("w", np.ones(n_features)), dtype=np.float64)
    if weights.shape != (n_features,) or not np.isfinite(weights).all():
        raise ValueError(
            f"metric_params['w'] must hold finite numbers of shape ({n_features},), got "
            f"{weights.shape}."
        )
    if not ((weights >= 0).all() and weights.any()):
        raise ValueError("metric_params['w'] must be non-negative, and not all zero.")
    return {"p": float(order), "w": weights}


def _proven_range(
    name: str, params: dict[str, Any], low: np.ndarray, high: np.ndarray
) -> tuple[float, float] | None:
    """Return the proven range of a metric on a box; None if it overflows or underflows."""
    with np.errstate(all="ignore"):
        largest = float(_LARGEST[name](high - low, **params))
    return (0.0, largest) if SMALLEST_RANGE <= largest <= LARGEST_RANGE else None


def _check_haversine(low: np.ndarray, high: np.ndarray) -> None:
    """Raise unless a box is one of latitudes and longitudes in radians."""
    if len(low) != 2:
        raise ValueError(
            "metric='haversine' is about two features, latitude and longitude in radians, and the "
            f"bounds have {len(low)}."
        )
    refuse_degrees("haversine", (low, high))


def _haversine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    latitudes, longitudes = A[:, None, 0] - B[:, 0], A[:, None, 1] - B[:, 1]
    both = np.cos(A[:, None, 0]) * np.cos(B[:, 0])
    share = np.sin(latitudes / 2) ** 2 + both * np.sin(longitudes / 2) ** 2
    return 2 * np.arcsin(np.sqrt(np.clip(share, 0.0, 1.0)))


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
        A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
        with np.errstate(all="ignore"):
            return self._clipped(self._matrix(A, B))

    def between(self, x: Any, y: Any) -> np.ndarray:
        """Return the costs between corresponding numbers of two private arrays, within the range.

        Raises ValueError if the cost is not monotone.
        """
        if not self.monotone:
            raise ValueError("only the costs of a monotone cost are a function of differences.")
        with np.errstate(all="ignore"):
            differences = np.subtract(x, y, dtype=np.float64)[:, None]
            return self._clipped(self._matrix(differences, np.zeros((1, 1))))[:, 0]

    def _clipped(self, costs: np.ndarray) -> np.ndarray:
        low, high = self.range
        costs[np.isnan(costs)] = high
        return np.clip(costs, low, high, out=costs)


def make_cost(
    metric: Any,
    low: Any,
    high: Any,
    *,
    metric_params: dict[str, Any] | None = None,
    cost_range: Any = None,
) -> CostFunction:
    r"""Return the cost function of a metric on a public box, with its range.

    Parameters
    ----------
    metric : str or callable
        "sqeuclidean", "euclidean", "cityblock", "chebyshev", "minkowski" or "haversine", or a
        function of two one-dimensional arrays that returns a number.
    low, high : ndarray of shape (n_features,)
        Bounds of the box.
    metric_params : dict, default=None
        Parameters of the metric: `p` and `w` of minkowski. They are public, and never learnt from
        data.
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
        If the metric is not known, its parameters or the range are missing or wrong, or a callable
        returns no number for the two corners of the box. Only public values are used.

    Notes
    -----
    Proven ranges, for a box of widths w in d dimensions. All begin at 0, at equal points.

    - sqeuclidean, euclidean, cityblock, chebyshev, minkowski: they grow with every
      :math:`|x_k - y_k| \le w_k`, so that they are largest between opposite corners.
    - haversine: two arcsines of at most :math:`\pi / 2`.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", section III, where costs are
    bounded.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.distance._metrics import make_cost
    >>> cost = make_cost("sqeuclidean", np.zeros(2), np.array([1.0, 2.0]))
    >>> cost.range, cost.kind
    ((0.0, 5.0), 'sqeuclidean')
    >>> cost([[0.0, 0.0]], [[1.0, 1.0], [1.0, 2.0]])
    array([[2., 5.]])
    """
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    if not isinstance(metric, str):
        return _callable_cost(metric, low, high, metric_params, _check_cost_range(cost_range))
    if metric not in _LARGEST:
        known = ", ".join(_LARGEST)
        raise ValueError(
            f"metric={metric!r} is not known. Give one of: {known}; or a function of two points, "
            "with its cost_range."
        )
    params = _check_params(metric, metric_params, len(low))
    if metric == "haversine":
        _check_haversine(low, high)
    proven = _proven_range(metric, params, low, high)
    bounds = range_within(metric, proven, cost_range)
    unclipped = bounds == proven
    # On a line, all but the square and the sphere's are multiples of one distance. Formulas with
    # powers would underflow, and the sorted order is optimal only for convex costs.
    is_line = len(low) == 1 and unclipped
    if metric == "haversine":
        matrix: Callable[..., np.ndarray] = _haversine
    elif is_line and metric != "sqeuclidean":
        matrix = partial(_multiples, bounds[1] / (high - low)[0])
    else:
        matrix = partial(cdist, metric=metric, **params)
    kind = metric if unclipped and metric in ("sqeuclidean", "euclidean") else None
    return CostFunction(range=bounds, kind=kind, monotone=is_line, _matrix=matrix)


def _multiples(factor: float, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return factor * np.abs(A - B[:, 0])


def _check_cost_range(cost_range: Any) -> tuple[float, float] | None:
    if cost_range is None:
        return None
    message = (
        "cost_range must be two finite numbers (lo, hi) with lo < hi, from 1e-150 to 1e300 apart, "
        f"got {cost_range!r}."
    )
    if np.shape(cost_range) != (2,) or not all(isinstance(bound, Real) for bound in cost_range):
        raise ValueError(message)
    low, high = (float(bound) for bound in cost_range)
    if not SMALLEST_RANGE <= high - low <= LARGEST_RANGE:
        raise ValueError(message)
    return low, high


def range_within(
    name: str, proven: tuple[float, float] | None, cost_range: Any
) -> tuple[float, float]:
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
    metric: Any,
    low: np.ndarray,
    high: np.ndarray,
    params: dict[str, Any] | None,
    bounds: tuple[float, float] | None,
) -> CostFunction:
    if not callable(metric):
        raise ValueError(f"metric must be a name or a function of two points, got {metric!r}.")
    if params:
        raise ValueError(
            "metric_params is for named metrics. Bind the parameters of a function with "
            "functools.partial."
        )
    if bounds is None:
        raise ValueError(
            "a callable metric needs cost_range=(smallest, largest); other costs are clipped."
        )
    try:
        _number(metric(_read_only(low), _read_only(high)))
    except Exception as error:
        raise ValueError(
            f"metric={metric!r} returned no number for the two corners of the box: {error}"
        ) from error
    return CostFunction(bounds, None, False, partial(_called_costs, metric))


def _called_costs(metric: Callable[..., Any], A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Call a metric for all pairs of points; the result is NaN where the call fails."""
    A, B = _read_only(A), _read_only(B)
    costs = np.full((len(A), len(B)), np.nan)
    with silence():
        for i, x in enumerate(A):
            for j, y in enumerate(B):
                costs[i, j] = result_of(partial(_called, metric, x, y), np.nan)
    return costs


def _called(metric: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> float:
    return _number(metric(x, y))


def _number(value: Any) -> float:
    if isinstance(value, str | bytes) or np.ndim(value) or math.isnan(float(value)):
        raise ValueError(f"{value!r} is not a number.")
    return float(value)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a copy that a metric cannot write to."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy
