"""Linear functions of shares that a group's transport cost never falls below.

By duality, a group of masses a with costs c to the candidates has, for any potential phi of its
points ::

    OT(q) >= sum_i a_i phi_i + sum_k q_k psi_k,      psi_k = min_i (c_ik - phi_i).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..exact import exact_transport
from ..kernels import kernel

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Minorant:
    """The linear function ``level + prices @ shares``, and the potential that proves it."""

    level: float
    prices: np.ndarray
    potential: np.ndarray


@kernel
def best_points(cost, potential, prices, points):
    """Set ``prices[k] = min_i cost[i, k] - potential[i]``, and `points` to who attains that."""
    prices[:] = np.inf
    for i in range(len(potential)):
        row = cost[i]
        own = potential[i]
        for k in range(len(prices)):
            price = row[k] - own
            points[k] = i if price < prices[k] else points[k]
            prices[k] = min(price, prices[k])


def minorant_of_potential(cost: np.ndarray, masses: np.ndarray, potential: np.ndarray) -> Minorant:
    """Return the minorant that a potential of a group's points leads to."""
    prices, points = np.empty(cost.shape[1]), np.zeros(cost.shape[1], np.int32)
    best_points(cost, potential, prices, points)
    return Minorant(math.fsum(masses * potential), prices, potential)


def exact_answer(
    cost: np.ndarray, masses: np.ndarray, shares: np.ndarray
) -> tuple[float, Minorant]:
    """Return an upper bound on a group's transport cost, and the minorant that touches it there."""
    result = exact_transport(cost, masses, shares)
    level = math.fsum(masses * result.row_potential)
    minorant = Minorant(level, result.column_potential, result.row_potential)
    return result.cost + result.gap, minorant


def rounding_allowance(
    n_terms: int, low: float, high: float, potentials: Sequence[np.ndarray]
) -> float:
    """Return the rounding error of so many terms in a bound, for costs in `low` to `high`."""
    n_terms += 16
    spread = max(float(np.ptp(potential)) for potential in potentials)
    largest = max(float(np.abs(potential).max()) for potential in potentials)
    return _EPS * (n_terms * (high - low + spread) + 16 * (max(abs(low), abs(high)) + largest))
