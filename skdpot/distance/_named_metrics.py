"""Metrics of scipy and scikit-learn on a box: names, parameters, ranges, and computation.

The results are neither clipped nor free of NaN.
"""

import math
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from skdpot.transport import refuse_degrees

_ALIASES = {"l1": "cityblock", "l2": "euclidean", "manhattan": "cityblock"}
# Metrics of scipy without parameters whose range on a box is not proven here.
_WITHOUT_PROOF = (
    "dice",
    "jaccard",
    "jensenshannon",
    "matching",
    "rogerstanimoto",
    "russellrao",
    "sokalsneath",
    "yule",
)
# Within these limits, costs, their squares and quotients neither overflow nor underflow.
SMALLEST_RANGE, LARGEST_RANGE = 1e-150, 1e300
# Metrics that are multiples of |x - y| on a line.
NORMS = ("euclidean", "cityblock", "chebyshev", "minkowski", "seuclidean", "mahalanobis")
# Negative eigenvalues up to this share of the largest one are rounding errors.
_NEGLIGIBLE = 1e-10


class Box(NamedTuple):
    """The public bounds of the features."""

    low: np.ndarray
    high: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.low)

    @property
    def widths(self) -> np.ndarray:
        return self.high - self.low

    @property
    def keeps_signs(self) -> bool:
        """Tell whether no feature has values of both signs."""
        return bool(((self.low >= 0) | (self.high <= 0)).all())

    @property
    def relative_widths(self) -> np.ndarray:
        """Return the suprema of ``|x - y| / (|x| + |y|)``.

        It is 1 for a feature with both signs; else it decreases with the ratio of the smaller to
        the larger absolute bound.
        """
        return self.widths / (np.abs(self.low) + np.abs(self.high))


def check_name(metric: str) -> str:
    """Return the canonical name of a metric, or raise."""
    name = _ALIASES.get(metric, metric)
    if name == "precomputed":
        raise ValueError(
            'metric="precomputed" has no meaning here: distances that are given already have no '
            "range that could be proven, and would be private. Give points, and a metric."
        )
    if name not in _PROVEN and name not in _WITHOUT_PROOF:
        known = ", ".join(sorted([*_PROVEN, *_WITHOUT_PROOF, *_ALIASES]))
        raise ValueError(f"metric={metric!r} is not known. Give a function, or one of: {known}.")
    return name


def check_params(name: str, params: dict[str, Any] | None, box: Box) -> dict[str, Any]:
    """Return the parameters of a named metric, checked."""
    params = dict(params or {})
    taken = {"minkowski": {"p", "w"}, "seuclidean": {"V"}, "mahalanobis": {"VI"}}.get(name, set())
    unknown = sorted(set(params) - taken, key=repr)
    if unknown:
        takes = f"only {', '.join(sorted(taken))}" if taken else "none"
        raise ValueError(
            f"metric_params has {', '.join(map(repr, unknown))}, but metric={name!r} takes {takes}."
        )
    if name == "minkowski":
        return _minkowski_params(params, box)
    if name == "seuclidean":
        return {"V": _variances(params, box)}
    if name == "mahalanobis":
        return {"VI": _inverse_covariance(params, box)}
    return params


def _minkowski_params(params: dict[str, Any], box: Box) -> dict[str, Any]:
    order = params.get("p", 2.0)
    if not (isinstance(order, Real) and 1 <= float(order) < math.inf):
        raise ValueError(
            f"metric_params['p'] must be a finite number >= 1, got {order!r}. For infinity, give "
            'metric="chebyshev".'
        )
    weights = _public_array(params.get("w", np.ones(box.n_features)), "w", (box.n_features,))
    if not ((weights >= 0).all() and weights.any()):
        raise ValueError("metric_params['w'] must be non-negative, and not all zero.")
    return {"p": float(order), "w": weights}


def _variances(params: dict[str, Any], box: Box) -> np.ndarray:
    if "V" not in params:
        raise ValueError(
            "metric='seuclidean' needs the variances of the features as metric_params={'V': ...}: "
            "to learn them from the data would release them."
        )
    variances = _public_array(params["V"], "V", (box.n_features,))
    if not (variances > 0).all():
        raise ValueError("metric_params['V'] must be positive.")
    return variances


def _inverse_covariance(params: dict[str, Any], box: Box) -> np.ndarray:
    if "VI" not in params:
        raise ValueError(
            "metric='mahalanobis' needs an inverse covariance matrix as metric_params={'VI': ...}: "
            "to learn it from the data would release it."
        )
    inverse = _public_array(params["VI"], "VI", (box.n_features, box.n_features))
    rounding = _NEGLIGIBLE * np.abs(inverse).max()
    if not (np.abs(inverse - inverse.T) <= rounding).all():
        raise ValueError("metric_params['VI'] must be symmetric.")
    symmetric = inverse / 2 + inverse.T / 2
    if np.linalg.eigvalsh(symmetric)[0] < -rounding:
        raise ValueError("metric_params['VI'] must be positive semidefinite.")
    return symmetric


def _public_array(value: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = np.array(value, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f"metric_params[{name!r}] must hold finite numbers of shape {shape}, got {array.shape}."
        )
    return array


# The largest cost on a box, by the metric's checked parameters; proofs are in `make_cost`.
_PROVEN: dict[str, Callable[[Box, dict[str, Any]], float]] = {
    "sqeuclidean": lambda box, params: np.sum(box.widths**2),
    "euclidean": lambda box, params: math.hypot(*box.widths),
    "cityblock": lambda box, params: np.sum(box.widths),
    "chebyshev": lambda box, params: np.max(box.widths),
    "minkowski": lambda box, params: _minkowski_norm(box.widths, **params),
    "seuclidean": lambda box, params: math.hypot(*(box.widths / np.sqrt(params["V"]))),
    "mahalanobis": lambda box, params: math.sqrt(box.widths @ np.abs(params["VI"]) @ box.widths),
    "hamming": lambda box, params: 1.0,
    "cosine": lambda box, params: 1.0 if box.keeps_signs else 2.0,
    "correlation": lambda box, params: 2.0,
    "canberra": lambda box, params: np.sum(box.relative_widths),
    "braycurtis": lambda box, params: np.max(box.relative_widths) if box.keeps_signs else math.nan,
    "haversine": lambda box, params: math.pi,
}


def _minkowski_norm(vector: np.ndarray, p: float, w: np.ndarray) -> float:
    largest = vector.max()
    return float(largest * np.sum(w * (vector / largest) ** p) ** (1 / p))


def proven_range(name: str, params: dict[str, Any], box: Box) -> tuple[float, float] | None:
    """Return the proven range of a metric on a box; None without a proof, or if it overflows."""
    if name not in _PROVEN:
        return None
    if name == "haversine" and box.n_features != 2:
        raise ValueError(
            "metric='haversine' is about two features, latitude and longitude in radians, and the "
            f"bounds have {box.n_features}."
        )
    refuse_degrees(name, box)
    with np.errstate(all="ignore"):
        high = float(_PROVEN[name](box, params))
    return (0.0, high) if SMALLEST_RANGE <= high <= LARGEST_RANGE else None


def matrix_function(name: str, params: dict[str, Any], box: Box) -> Callable[..., np.ndarray]:
    """Return a picklable function that maps two matrices of points to the matrix of their costs."""
    if name == "haversine":
        return _haversine
    if name == "mahalanobis" and box.n_features > 1:
        values, vectors = np.linalg.eigh(params["VI"])
        centre = box.low / 2 + box.high / 2
        return partial(_distances_of_images, vectors * np.sqrt(np.maximum(values, 0.0)), centre)
    return partial(cdist, metric=name, **params)


def _distances_of_images(
    matrix: np.ndarray, centre: np.ndarray, A: np.ndarray, B: np.ndarray
) -> np.ndarray:
    """Return Euclidean distances of linear images, so that no square is negative by rounding."""
    return cdist(_images(A - centre, matrix), _images(B - centre, matrix))


def _images(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return linear images, whose last bits depend on their own point alone.

    The order of addition in a matrix product would depend on the number of points.
    """
    images = np.zeros_like(points)
    for column, row in zip(points.T, matrix, strict=True):
        images += column[:, None] * row
    return images


def _haversine(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    latitudes, longitudes = A[:, None, 0] - B[:, 0], A[:, None, 1] - B[:, 1]
    both = np.cos(A[:, None, 0]) * np.cos(B[:, 0])
    share = np.sin(latitudes / 2) ** 2 + both * np.sin(longitudes / 2) ** 2
    return 2 * np.arcsin(np.sqrt(np.clip(share, 0.0, 1.0)))
