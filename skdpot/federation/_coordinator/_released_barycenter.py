"""The barycenter of groups that were released: calculated by the coordinator alone."""

from typing import Any

import numpy as np
from scipy.stats import qmc

from skdpot.federation._solvers import BarycenterResult
from skdpot.federation.group_release import ReleasedGroups
from skdpot.transport.barycenter import free_support_barycenter, quantile_barycenter


def barycenter_of_groups(
    groups: ReleasedGroups, weights: Any, n_support: int, tol: float
) -> BarycenterResult:
    """Return the free-support barycenter of released groups; the same whenever it is calculated.

    Parameters
    ----------
    groups : ReleasedGroups
        What was released.
    weights : {"proportional", "uniform"} or array-like of shape (n_groups,)
        Of the groups; proportional to their released sizes.
    n_support : int
        Number of points; 0 is for no barycenter.
    tol : float
        Progress to stop at, relative to the objective.

    Returns
    -------
    BarycenterResult
        Support, objective and lower bound, of the released groups.
    """
    shares = weights_of_groups(weights, groups.sizes)
    support = np.empty((0, groups.points[0].shape[1]))
    n_iter, converged, objective, gap, lower = 0, True, 0.0, 0.0, 0.0
    if not n_support:
        pass
    elif groups.points[0].shape[1] == 1:
        line = quantile_barycenter(
            [points[:, 0] for points in groups.points],
            shares,
            masses=groups.masses,
            n_support=n_support,
        )
        support, n_iter, converged = line.support[:, None], 1, True
        objective, gap, lower = line.objective, 0.0, line.lower_bound
    else:
        start = _spread_over(groups, shares, n_support)
        free = free_support_barycenter(groups.points, shares, start, masses=groups.masses, tol=tol)
        support, n_iter, converged = free.support, free.n_iter, free.converged
        objective, gap, lower = free.objective, free.gap, free.lower_bound
    return BarycenterResult(
        support=support,
        chosen=None,
        shares=None,
        objective=float(objective),
        gap=float(gap),
        relaxed_objective=float(objective),
        lower_bound=float(lower),
        n_rounds=n_iter,
        converged=converged,
        history=[],
    )


def weights_of_groups(weights: Any, sizes: np.ndarray) -> np.ndarray:
    """Return the weights of groups, with sum 1, or raise."""
    if isinstance(weights, str):
        if weights not in ("proportional", "uniform"):
            raise ValueError(f"weights must be 'proportional' or 'uniform', got {weights!r}.")
        given = sizes if weights == "proportional" else np.ones(len(sizes))
    else:
        given = np.asarray(weights, dtype=np.float64)
    if given.shape != sizes.shape or not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError(f"weights must be {len(sizes)} non-negative numbers, one for each group.")
    if not given.any():
        raise ValueError("weights must not be all zero.")
    return given / given.sum()


def _spread_over(groups: ReleasedGroups, weights: np.ndarray, n_support: int) -> np.ndarray:
    """Return points of the groups, drawn evenly by weight and mass: a start without randomness."""
    points = np.concatenate(groups.points)
    masses = np.concatenate(
        [weight * mass for weight, mass in zip(weights, groups.masses, strict=True)]
    )
    where = qmc.Sobol(1, scramble=False).random_base2(int(np.ceil(np.log2(n_support))) + 1)[:, 0]
    ends = np.cumsum(masses) / masses.sum()
    order = np.searchsorted(ends, where[:n_support], side="right")
    return points[np.minimum(order, len(points) - 1)]
