"""The result of a release of costs."""

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Released:
    """Released costs between all pairs of groups.

    Attributes
    ----------
    costs : ndarray of shape (n_pairs,)
        In the order of ``itertools.combinations``.
    standard_errors, half_widths : ndarray of shape (n_pairs,)
        Standard deviation of the noise, and the magnitude that it exceeds with a probability of 5
        %; NaN if unknown.
    attributes : dict
        Further fitted attributes, by name.
    transport : object, default=None
        The map between two groups, where one was released.
    """

    costs: np.ndarray
    standard_errors: np.ndarray
    half_widths: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)
    transport: Any = None

    @classmethod
    def without_errors(
        cls, costs: np.ndarray, attributes: dict[str, Any], transport: Any = None
    ) -> "Released":
        """Return released costs with unknown errors."""
        unknown = np.full(len(costs), np.nan)
        return cls(costs, unknown, unknown, attributes, transport)

    def distances(self, order: float | None, n_groups: int) -> dict[str, Any]:
        """Return the fitted attributes about distances, as roots of a degree if it is not None.

        Numbers that are negative by noise become 0 before the root. There are matrices, and numbers
        beside them if there are two groups.
        """
        ends = [self.costs - self.half_widths, self.costs + self.half_widths]
        interval = np.stack([as_matrix(_root(end, order), n_groups) for end in ends], axis=-1)
        distances = as_matrix(_root(self.costs, order), n_groups)
        errors = as_matrix(self.standard_errors, n_groups)
        shown = {"distances_": distances, "standard_error_": errors, "noise_interval_": interval}
        if n_groups > 2:
            return shown
        return shown | {
            "distance_": float(distances[0, 1]),
            "standard_error_": float(errors[0, 1]),
            "noise_interval_": tuple(interval[0, 1].tolist()),
        }


def as_matrix(values: np.ndarray, n_groups: int) -> np.ndarray:
    """Return values of pairs as a symmetric matrix with zeros on its diagonal."""
    matrix = np.zeros((n_groups, n_groups))
    for (g, h), value in zip(combinations(range(n_groups), 2), values, strict=True):
        matrix[g, h] = matrix[h, g] = value
    return matrix


def _root(costs: np.ndarray, order: float | None) -> np.ndarray:
    return costs if order is None else np.maximum(costs, 0.0) ** (1.0 / order)
