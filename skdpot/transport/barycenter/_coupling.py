"""The optimal coupling of a group with a support, as sparse as it is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..dense_simplex import WarmTransport, common_masses
from ..polytope import check_cost_matrix, check_weights


@dataclass(frozen=True, eq=False)
class SupportCoupling:
    """An optimal coupling with points of equal mass, and how good it is.

    Attributes
    ----------
    cost : float
        What it costs.
    gap : float
        Certified: no coupling costs less than ``cost - gap``.
    prices : ndarray of shape (n_support,)
        Dual potentials of the support: where a point's mass goes, its cost minus the price is the
        smallest there is, up to rounding.
    plan : csr_array of shape (n, n_support)
        How much of each point's mass goes where: n + n_support - 1 entries at most.
    """

    cost: float
    gap: float
    prices: np.ndarray
    plan: sparse.csr_array


def couple_with_support(cost: Any, masses: Any) -> SupportCoupling:
    """Return the optimal coupling of weighted points with a support of equal masses.

    As :func:`skdpot.transport.exact_transport`, for which both sides may have any masses, but in
    less memory: nothing dense is kept besides the costs.

    Parameters
    ----------
    cost : array-like of shape (n, n_support)
        Finite costs, non-negative.
    masses : array-like of shape (n,)
        Positive masses of the points, with sum 1.

    Returns
    -------
    SupportCoupling
        Coupling, cost, certified gap and prices; not private, as they depend on single points.

    Raises
    ------
    ValueError
        If costs or masses are not what they should be.

    Examples
    --------
    >>> from skdpot.transport.barycenter import couple_with_support
    >>> coupling = couple_with_support([[0.0, 4.0], [1.0, 1.0], [4.0, 0.0]], [0.25, 0.5, 0.25])
    >>> round(coupling.cost, 9), coupling.gap < 1e-9
    (0.5, True)
    >>> coupling.plan.toarray()
    array([[0.25, 0.  ],
           [0.25, 0.25],
           [0.  , 0.25]])
    """
    cost = check_cost_matrix(cost)
    masses = check_weights(masses, cost.shape[0], "masses")
    if (cost < 0).any() or not masses.all():
        raise ValueError("costs must be non-negative, and masses positive.")
    n_support = cost.shape[1]
    whole_support, whole = common_masses([np.full(n_support, 1.0 / n_support), masses])
    if not whole.all():
        raise ValueError("some masses are too small beside others to be told from 0.")
    from_support = np.ascontiguousarray(cost.T)
    transport = WarmTransport(whole_support, whole)
    found = transport.solve(from_support)
    lower, upper, prices = transport.certify(from_support, found)
    plan = sparse.csr_array((found.masses, (found.columns, found.rows)), shape=cost.shape)
    return SupportCoupling(upper, upper - lower, prices, plan)
