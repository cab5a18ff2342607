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

from skdpot.distance._named_metrics import (
    LARGEST_RANGE,
    NORMS,
    SMALLEST_RANGE,
    Box,
    check_name,
    check_params,
    matrix_function,
    proven_range,
)
from skdpot.privacy.foreign import result_of, silence


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
        A metric of scipy or scikit-learn, or a function of two one-dimensional arrays that returns
        a number.
    low, high : ndarray of shape (n_features,)
        Bounds of the box.
    metric_params : dict, default=None
        Parameters of the metric: `p` and optionally `w` of minkowski, the variances `V` of
        seuclidean, the inverse covariance matrix `VI` of mahalanobis. They are public, and never
        learnt from data.
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

    - sqeuclidean, euclidean, cityblock, chebyshev, minkowski, seuclidean: they grow with every
      :math:`|x_k - y_k| \le w_k`, so that they are largest between opposite corners.
    - mahalanobis: :math:`(x - y)^T V^{-1} (x - y) \le \sum_{kl} |V^{-1}_{kl}| w_k w_l`.
    - hamming: a share of d features, at most 1, and 1 between opposite corners.
    - cosine, correlation: 1 minus the cosine of an angle, at most 2. Of a box in one orthant, all
      :math:`x_k y_k \ge 0`, so that the cosine is at most 1.
    - canberra: a sum of :math:`|x_k - y_k| / (|x_k| + |y_k|)`. Across zero a term reaches 1, and
      elsewhere is largest between the ends: :math:`w_k / (|low_k| + |high_k|)` in both cases.
    - braycurtis, of a box in one orthant: there :math:`|x_k + y_k| = |x_k| + |y_k|`, so that the
      ratio of the sums is at most the largest of the ratios of canberra.
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
    box = Box(np.array(low, dtype=np.float64), np.array(high, dtype=np.float64))
    if not isinstance(metric, str):
        return _callable_cost(metric, box, metric_params, _check_cost_range(cost_range))
    name = check_name(metric)
    params = check_params(name, metric_params, box)
    proven = proven_range(name, params, box)
    bounds = range_within(name, proven, cost_range)
    is_line = box.n_features == 1
    unclipped = bounds == proven
    matrix = matrix_function(name, params, box)
    if is_line and unclipped and name in NORMS:
        # On a line, all of these are multiples of one distance. Formulas with powers would
        # underflow, and the sorted order is optimal only for convex costs.
        matrix = partial(_multiples, bounds[1] / box.widths[0])
    return CostFunction(
        range=bounds,
        kind=name if unclipped and name in ("sqeuclidean", "euclidean") else None,
        monotone=is_line and unclipped and (name == "sqeuclidean" or name in NORMS),
        _matrix=matrix,
    )


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
    metric: Any, box: Box, params: dict[str, Any] | None, bounds: tuple[float, float] | None
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
        _number(metric(_read_only(box.low), _read_only(box.high)))
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
