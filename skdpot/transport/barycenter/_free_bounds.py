"""Lower bounds on the objective of any barycenter of order 2, from pairs of groups.

``sum_(s < t) lambda_s lambda_t W_2(Q_s, Q_t)**2`` is one, and is proved in the Notes of
`free_support_barycenter`; lower bounds of these distances are also sufficient.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from scipy.spatial.distance import cdist

from ..exact import exact_transport


def moment_bound(
    points: Sequence[np.ndarray], masses: Sequence[np.ndarray], weights: Sequence[float]
) -> float:
    """Return the bound that covariances imply, for groups about their means."""
    roots = [_root_of_covariance(*group) for group in zip(points, masses, strict=True)]

    def distance(s: int, t: int) -> float:
        # The nuclear norm of S^(1/2) T^(1/2) is that of R Q' for any S = R'R and T = Q'Q.
        traces = np.square(roots[s]).sum() + np.square(roots[t]).sum()
        return float(traces - 2 * np.linalg.norm(roots[s] @ roots[t].T, "nuc"))

    return _sum_over_pairs(distance, weights)


def pair_bound(
    points: Sequence[np.ndarray], masses: Sequence[np.ndarray], weights: Sequence[float]
) -> float:
    """Return the bound that exact transport implies, minus the largest effect of rounding."""

    def distance(s: int, t: int) -> float:
        cost = cdist(points[s], points[t], "sqeuclidean")
        found = exact_transport(cost, masses[s], masses[t])
        # The gap exceeds all that rounding may do.
        return found.cost - found.gap

    return _sum_over_pairs(distance, weights)


def _sum_over_pairs(distance: Callable[[int, int], float], weights: Sequence[float]) -> float:
    """Return the weighted sum of distances, which are bounds from below, of all pairs."""
    return sum(
        weights[s] * weights[t] * max(distance(s, t), 0.0)
        for s, t in combinations(range(len(weights)), 2)
    )


def _root_of_covariance(points: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return a matrix R, of as few rows as possible, for which R'R is the covariance."""
    return np.linalg.qr(np.sqrt(masses)[:, None] * points).R
