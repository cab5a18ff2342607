"""The barycenter of released groups, computed by the coordinator alone."""

from typing import Any

import numpy as np
from scipy.stats import qmc

from skdpot.releases import ReleasedGroups, group_weights
from skdpot.transport.barycenter import (
    BarycenterResult,
    free_support_barycenter,
    quantile_barycenter,
)


def barycenter_of_groups(
    groups: ReleasedGroups, weights: Any, n_support: int, tol: float
) -> BarycenterResult:
    """Return the free-support barycenter of released groups; every computation gives the same.

    Proportional `weights` use released sizes. With an `n_support` of 0 there is no barycenter. The
    search stops at progress `tol`, relative to the objective.
    """
    shares = group_weights(weights, groups.sizes)
    n_features = groups.points[0].shape[1]
    if not n_support:
        return BarycenterResult(np.empty((0, n_features)), 0.0, 0.0, 0, True, lower_bound=0.0)
    if n_features == 1:
        line = quantile_barycenter(
            [points[:, 0] for points in groups.points],
            shares,
            masses=groups.masses,
            n_support=n_support,
        )
        support, bound = line.support[:, None], float(line.lower_bound)
        return BarycenterResult(support, float(line.objective), 0.0, 1, True, lower_bound=bound)
    start = _spread_over(groups, shares, n_support)
    free = free_support_barycenter(groups.points, shares, start, masses=groups.masses, tol=tol)
    bound = float(free.lower_bound)
    return BarycenterResult(
        free.support, free.objective, free.gap, free.n_iter, free.converged, lower_bound=bound
    )


def _spread_over(groups: ReleasedGroups, weights: np.ndarray, n_support: int) -> np.ndarray:
    """Return points of the groups, chosen evenly by weight and mass: a deterministic start."""
    points = np.concatenate(groups.points)
    masses = np.concatenate(
        [weight * mass for weight, mass in zip(weights, groups.masses, strict=True)]
    )
    where = qmc.Sobol(1, scramble=False).random_base2(int(np.ceil(np.log2(n_support))) + 1)[:, 0]
    ends = np.cumsum(masses) / masses.sum()
    order = np.searchsorted(ends, where[:n_support], side="right")
    return points[np.minimum(order, len(points) - 1)]
