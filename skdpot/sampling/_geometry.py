"""The public geometry of distributions: input points, output points and their costs."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import PAIRWISE_BOOLEAN_FUNCTIONS
from sklearn.utils.validation import check_array

from skdpot.transport import check_cost_matrix, refuse_degrees

# Distances below zero by no more than this fraction of the largest are rounding.
_NEGLIGIBLE = 1e-12


class Geometry(NamedTuple):
    """Input and output points, and the costs between them; no inputs without a space."""

    input_points: np.ndarray | None
    output_points: np.ndarray
    cost_matrix: np.ndarray


def make_geometry(
    input_points: Any,
    output_points: Any,
    cost_matrix: Any,
    metric: Any,
    order: float,
    *,
    n_inputs: int,
) -> Geometry:
    """Return the geometry that a sampler's parameters describe, or raise."""
    inputs = _check_points(input_points, "input_points")
    outputs = _check_points(output_points, "output_points")
    if inputs is not None and len(inputs) != n_inputs:
        raise ValueError(
            f"input_points has {len(inputs)} rows but X has {n_inputs} features; there must "
            "be one input point per column of X."
        )
    if cost_matrix is None:
        inputs = _bins(n_inputs) if inputs is None else inputs
        outputs = inputs if outputs is None else outputs
        return Geometry(inputs, outputs, power_of_distances(inputs, outputs, metric, order))
    cost = _check_cost_shape(cost_matrix, n_inputs, outputs)
    if outputs is None and inputs is not None and cost.shape[1] == n_inputs:
        outputs = inputs
    elif outputs is None:
        inputs, outputs = None, _bins(cost.shape[1])
    return Geometry(inputs, outputs, cost)


def _check_points(points, name):
    if points is None:
        return None
    if np.ndim(points) != 2:
        raise ValueError(
            f"{name} must have shape (n_points, n_coordinates), got an array of "
            f"{np.ndim(points)} dimension(s). Give points on a line as a column: "
            "array.reshape(-1, 1)."
        )
    points = check_array(points, dtype=np.float64, ensure_all_finite=False, input_name=name)
    if not np.isfinite(points).all():
        raise ValueError(
            f"{name} contains NaN or infinity. Every coordinate must be a finite number."
        )
    return points


def _bins(count):
    return np.arange(float(count))[:, None]


def _check_cost_shape(cost_matrix, n_inputs, outputs):
    cost = check_cost_matrix(cost_matrix)
    if cost.shape[0] != n_inputs:
        raise ValueError(
            f"cost_matrix has {cost.shape[0]} rows but X has {n_inputs} features; it must have "
            "shape (n_inputs, n_outputs)."
        )
    if outputs is not None and cost.shape[1] != len(outputs):
        raise ValueError(
            f"cost_matrix has {cost.shape[1]} columns but output_points has {len(outputs)} rows; "
            "they must agree."
        )
    return cost


def check_row_names(cost_matrix: Any, names: list[Any]) -> None:
    """Raise if rows of costs and columns of X have other names, or the same in another order."""
    if not names or not hasattr(cost_matrix, "iloc"):
        return
    rows = list(cost_matrix.index)
    are_words = all(isinstance(name, str) for name in rows + names)
    if rows != names and (are_words or set(rows) == set(names)):
        raise ValueError(
            "rows of cost_matrix have other names than the columns of X. They are matched by "
            "position: reindex it with cost.loc[X.columns], or with cost.loc[X.columns, X.columns] "
            "if the columns of X can be released."
        )


def _for_metric(points, metric):
    """Return booleans for a metric of sets, which would warn about floats."""
    is_of_sets = isinstance(metric, str) and metric in PAIRWISE_BOOLEAN_FUNCTIONS
    return points.astype(bool) if is_of_sets and np.isin(points, (0, 1)).all() else points


def power_of_distances(inputs, outputs, metric, order):
    """Return costs: a power of distances between points; or raise if they are invalid."""
    if inputs.shape[1] != outputs.shape[1]:
        raise ValueError(
            f"input_points have {inputs.shape[1]} coordinates but output_points have "
            f"{outputs.shape[1]}; give points of one space, or a cost_matrix."
        )
    if isinstance(metric, str) and metric == "precomputed":
        raise ValueError('metric="precomputed" has no meaning here; give costs as cost_matrix.')
    refuse_degrees(metric, [inputs, outputs])
    with np.errstate(all="ignore"):
        try:
            distances = pairwise_distances(
                _for_metric(inputs, metric), _for_metric(outputs, metric), metric=metric
            )
        except ValueError as error:
            raise ValueError(
                f"metric={metric!r} does not measure distances between these points ({error}). "
                "Give another metric of sklearn.metrics.pairwise_distances, or a cost_matrix."
            ) from error
        rounding = _NEGLIGIBLE * np.max(np.abs(distances))
        distances[(distances < 0) & (distances >= -rounding)] = 0.0
        cost = distances**order
    if not np.isfinite(cost).all():
        i, j = np.argwhere(~np.isfinite(cost))[0]
        raise ValueError(
            f"metric={metric!r} to the power order={order!r} gives no finite cost between input "
            f"point {i} and output point {j}. Change metric or order, or rescale the points."
        )
    return check_cost_matrix(cost)
