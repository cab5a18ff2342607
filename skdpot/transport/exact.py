"""Exact optimal transport, with a certificate: network simplex, or sorting on a line.

The network simplex of POT gets nothing but integers: weights as integer masses, and costs rounded
to multiples of a quantum, so large that all sums of costs along a path are below 2**53 quanta.
Every number that it computes is then exact, so that the strongly feasible trees it keeps exclude
cycling: it ends whatever the data are, without a limit on its pivots, and how far from the optimum
is known beforehand. The answer is not trusted for that: its prices are made feasible for the true
costs, and its plan is measured against them.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .network import LARGEST_COST, integer_masses
from .polytope import check_cost_matrix, check_weights, transform_prices
from .sinkhorn import entropic_transport, smallest_tolerance

_EPS = float(np.finfo(np.float64).eps)
_DEFAULT_TOLERANCE = 1e-9
_UNLIMITED = np.iinfo(np.uint64).max


@dataclass(frozen=True, eq=False)
class TransportResult:
    """What an exact solver found: a bound on the cost, how good it is, and potentials.

    Attributes
    ----------
    cost : float
        Lower bound on the transport cost, up to rounding: the dual value of the potentials, or a
        better bound.
    gap : float
        Certified: the transport cost is at most ``cost + gap``. What rounding does to either of
        these bounds is included.
    row_potential, column_potential : ndarray of shape (n,), (m,)
        Dual potentials, also of points without weight: no sum ``row_potential[i] +
        column_potential[j]`` is above ``cost[i, j]`` by more than rounding.
    plan : ndarray of shape (n, m) or None
        The coupling that was found, optimal up to the gap, if it was asked for.
    """

    cost: float
    gap: float
    row_potential: np.ndarray
    column_potential: np.ndarray
    plan: np.ndarray | None = None


def certifiable_gap(n_rows: int, n_columns: int, low: float, high: float) -> float:
    """Return the gap within which `exact_transport` ends for all costs between two bounds.

    Parameters
    ----------
    n_rows, n_columns : int
        Numbers of points.
    low, high : float
        Bounds of the costs.

    Returns
    -------
    float
        In units of cost. It depends on nothing else, so that it may be public.

    Notes
    -----
    The quantum is ``4 (N + 3) eps R`` at most, for N = n_rows + n_columns points and costs of range
    R. The simplex leaves reduced costs above -6 quanta, as its prices are below 1.2 * 2**51 quanta
    and its tolerance is ten times eps of them; rounding the costs hides one quantum. Masses are
    rounded by eps each, and sums of N doubles by N eps.

    Examples
    --------
    >>> from skdpot.transport import certifiable_gap
    >>> certifiable_gap(1000, 1000, 0.0, 1.0) < 2e-11
    True
    """
    largest = max(abs(low), abs(high))
    return 40 * (n_rows + n_columns + 16) * _EPS * (high - low) + 2 * _EPS * largest


def exact_transport(
    cost: Any, a: Any, b: Any, *, tol: float | None = None, return_plan: bool = False
) -> TransportResult:
    r"""Return the optimal transport cost between two weighted samples, with a certificate.

    The cost is :math:`\min_\pi \langle c, \pi \rangle` over all plans with marginals a and b.

    Parameters
    ----------
    cost : array-like of shape (n, m)
        Finite costs.
    a, b : array-like of shape (n,), (m,)
        Non-negative weights with sum 1.
    tol : float, default=None
        Gap above which the network simplex is not believed, and the entropic solver is asked
        instead. None is 1e-9 of the range of the costs; less than `certifiable_gap` is
        raised to that.
    return_plan : bool, default=False
        Whether to return the plan, too.

    Returns
    -------
    TransportResult
        Cost, certified gap, and potentials.

    Raises
    ------
    ValueError
        If costs are not finite, or differ by more than a double can hold, weights are not weights,
        or `tol` is negative.

    Notes
    -----
    *Certificate.* Potentials with ``phi_i + psi_j <= c_ij`` bound the cost from below by
    ``<a, phi> + <b, psi>``, and ``phi_i = min_j c_ij - psi_j`` is feasible for any psi. A plan P
    with marginals r and s bounds it from above: what of P is within the marginals a and b can be
    completed to a coupling, and with costs in [0, R] that costs
    ``<c, P> + R (|a - r|_1 + |b - s|_1)`` at most.

    *Not private*: cost, potentials and plan depend on single points.

    The entropic solver, if it is needed, gets as regularisation what makes up for half of the
    tolerance: the entropic cost exceeds the exact one by ``reg log(min(n, m))`` at most, as no
    coupling has a larger relative entropy than that. It certifies no less than about 1e-6 of the
    range of the costs; where `tol` is below, `gap` may then be above `tol`.

    References
    ----------
    Differentially Private Sinkhorn Algorithm, equation (1) without regularisation.

    W. H. Cunningham, "A network simplex method", Mathematical Programming 11, 1976.

    Examples
    --------
    >>> from skdpot.transport import exact_transport
    >>> result = exact_transport([[0.0, 1.0], [2.0, 1.0]], [0.5, 0.5], [0.25, 0.75])
    >>> round(result.cost, 9), result.gap < 1e-9
    (0.75, True)
    """
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol must be non-negative, got {tol!r}.")
    cost = check_cost_matrix(cost)
    a, b = check_weights(a, cost.shape[0], "a"), check_weights(b, cost.shape[1], "b")
    low, high = float(cost.min()), float(cost.max())
    unit = high - low
    if not math.isfinite(unit):
        raise ValueError(
            f"costs from {low:.3g} to {high:.3g} differ by more than a double can hold: divide "
            "them by a number."
        )
    relative = (cost - low) / (unit or 1.0)
    tol = _DEFAULT_TOLERANCE if tol is None else tol / (unit or 1.0)
    tol = max(tol, certifiable_gap(len(a), len(b), 0.0, 1.0))
    result = _by_network_simplex(relative, a, b)
    if not result.gap <= tol:
        result = _by_entropic(relative, a, b, tol)
    return TransportResult(
        cost=float(low + unit * result.cost),
        gap=float(unit * result.gap + 2 * _EPS * max(abs(low), abs(high))),
        row_potential=low + unit * result.row_potential,
        column_potential=unit * result.column_potential,
        plan=result.plan if return_plan else None,
    )


def _by_network_simplex(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> TransportResult:
    """Solve for costs in [0, 1] on exact integers; the certificate is about the true costs."""
    row_masses, column_masses = _integer_weights(a, b)
    rows, columns = np.flatnonzero(row_masses), np.flatnonzero(column_masses)
    whole = len(rows) == len(a) and len(columns) == len(b)
    plan, prices = _network_simplex(
        cost if whole else cost[np.ix_(rows, columns)], row_masses[rows], column_masses[columns]
    )
    if not whole:
        part, plan = plan, np.zeros(cost.shape)
        plan[np.ix_(rows, columns)] = part
    potential = np.full(len(b), -np.inf)
    potential[columns] = np.nan_to_num(prices)
    dual, phi, psi = _best_dual(cost, a, b, potential)
    gap = _plan_bound(cost, a, b, plan) - dual
    return TransportResult(dual, max(gap, 0.0) + _rounding(cost), phi, psi, plan)


def _network_simplex(
    cost: np.ndarray, row_masses: np.ndarray, column_masses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the plan and the column prices for rounded costs and positive integer masses."""
    # Imported here since POT brings torch along, where that is installed.
    import ot

    n_quanta = math.floor(LARGEST_COST / (sum(cost.shape) + 2))
    quanta = cost * n_quanta
    np.rint(quanta, out=quanta)
    with warnings.catch_warnings():
        # What POT has to say about its answer, the certificate says better.
        warnings.simplefilter("ignore")
        flow, log = ot.emd(
            row_masses.astype(np.float64),
            column_masses.astype(np.float64),
            quanta,
            numItermax=_UNLIMITED,
            log=True,
            center_dual=False,
        )
    flow /= row_masses.sum()
    return flow, log["v"] / n_quanta


def _integer_weights(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights as integers with one sum, below 2**53: equal ones as equal small integers."""
    if (a == a[0]).all() and (b == b[0]).all():
        divisor = math.gcd(len(a), len(b))
        return np.full(len(a), len(b) // divisor), np.full(len(b), len(a) // divisor)
    return integer_masses(a), integer_masses(b)


def _best_dual(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, potential: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the dual value and the feasible potentials that any column potential leads to.

    The costs lie in [0, 1]. A column that is more than 1 below the highest decides no minimum.
    """
    with np.errstate(all="ignore"):
        potential = np.maximum(np.nan_to_num(potential - potential.max(), neginf=-1.0), -1.0)
    phi, psi = np.empty(len(a)), np.empty(len(b))
    transform_prices(cost, np.arange(len(a)), a, potential, phi, psi)
    return math.fsum(a * phi) + math.fsum(b * psi), phi, psi


def _plan_bound(cost: np.ndarray, a: np.ndarray, b: np.ndarray, plan: np.ndarray) -> float:
    """Return an upper bound on the cost of the best coupling, infinite if the plan is none."""
    rows, columns = np.nonzero(plan)
    masses = plan[rows, columns]
    if not (np.isfinite(masses).all() and (masses > 0).all()):
        return math.inf
    with np.errstate(over="ignore"):
        missing = np.abs(a - np.bincount(rows, masses, len(a))).sum()
        missing += np.abs(b - np.bincount(columns, masses, len(b))).sum()
        return float(np.sum(masses * cost[rows, columns]) + missing)


def _rounding(cost: np.ndarray) -> float:
    """Return what rounding may add to the difference of two bounds, for costs in [0, 1]."""
    return (sum(cost.shape) + 16) * _EPS


def _by_entropic(cost: np.ndarray, a: np.ndarray, b: np.ndarray, tol: float) -> TransportResult:
    """Solve for costs in [0, 1] by regularisation, where the network simplex failed."""
    entropy = max(math.log(min(cost.shape)), 1.0)
    half = tol / 2
    while half < smallest_tolerance(len(a), len(b), 1.0, half / entropy):
        half *= 2
    reg = half / entropy
    entropic = entropic_transport(cost, a, b, reg, half)
    dual, phi, psi = _best_dual(cost, a, b, entropic.column_potential)
    exponents = (entropic.row_potential[:, None] + entropic.column_potential - cost) / reg
    plan = _rounded_to_marginals(a[:, None] * b * np.exp(np.minimum(exponents, 700.0)), a, b)
    # The theory's bounds are those that hold beforehand; potentials and plan do better, mostly.
    lower = max(entropic.cost - reg * entropy, dual)
    upper = min(entropic.cost + entropic.gap, _plan_bound(cost, a, b, plan))
    return TransportResult(lower, max(upper - lower, 0.0) + _rounding(cost), phi, psi, plan)


def _rounded_to_marginals(plan: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a coupling near a plan: too large rows and columns shrink, the rest is spread."""
    for weights, axis in ((a, 1), (b, 0)):
        sums = plan.sum(axis=axis)
        shares = np.minimum(np.divide(weights, sums, out=np.ones_like(sums), where=sums > 0), 1.0)
        plan = plan * np.expand_dims(shares, axis)
    missing_rows = np.maximum(a - plan.sum(axis=1), 0.0)
    missing_columns = np.maximum(b - plan.sum(axis=0), 0.0)
    return plan + np.outer(missing_rows, missing_columns / (missing_columns.sum() or 1.0))


@np.errstate(all="ignore")
def monotone_transport(
    x: Any, y: Any, a: Any = None, b: Any = None, *, cost: Any = 1, return_plan: bool = False
) -> Any:
    r"""Return the transport cost between points on a line, for a convex function of differences.

    The coupling of the sorted points is then optimal. Where its mass changes from one pair of
    points to the next is computed in integers, and so exactly if weights are equal.

    Parameters
    ----------
    x, y : array-like of shape (n,), (m,)
        Points.
    a, b : array-like of shape (n,), (m,), default=None
        Non-negative weights with sum 1. None is equal weights.
    cost : float or callable, default=1
        An order p >= 1, for the cost ``|x - y|**p``, or a function of two arrays of equal length
        that returns the costs between corresponding points. It must be convex in x - y, which is
        not checked.
    return_plan : bool, default=False
        Whether to return the plan, too.

    Returns
    -------
    cost : float
        Exact up to rounding.
    plan : scipy.sparse.coo_array of shape (n, m)
        The coupling, with n + m - 1 entries at most. Only if `return_plan` is True.

    Raises
    ------
    ValueError
        If points are not finite, weights are not weights, or the order is below 1.

    Notes
    -----
    *Not private*: cost and plan depend on single points.

    References
    ----------
    F. Santambrogio, "Optimal Transport for Applied Mathematicians", theorem 2.9.

    Examples
    --------
    >>> from skdpot.transport import monotone_transport
    >>> monotone_transport([0.0, 1.0], [3.0, 2.0], cost=2)
    4.0
    >>> cost, plan = monotone_transport([0.0, 1.0, 2.0], [5.0], return_plan=True)
    >>> cost, plan.nnz
    (4.0, 3)
    """
    x, y = _check_points(x, "x"), _check_points(y, "y")
    pair_cost = cost if callable(cost) else _power(cost)
    a = np.full(len(x), 1.0 / len(x)) if a is None else check_weights(a, len(x), "a")
    b = np.full(len(y), 1.0 / len(y)) if b is None else check_weights(b, len(y), "b")
    row_masses, column_masses = _integer_weights(a, b)
    row_order, column_order = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    row_ends = np.cumsum(row_masses[row_order])
    column_ends = np.cumsum(column_masses[column_order])
    # Two sorted runs are merged by a stable sort; union1d would hash them.
    ends = np.sort(np.concatenate([row_ends, column_ends]), kind="stable")
    ends = ends[np.diff(ends, prepend=0) > 0]
    masses = np.diff(ends, prepend=0) / ends[-1]
    rows = row_order[np.searchsorted(row_ends, ends)]
    columns = column_order[np.searchsorted(column_ends, ends)]
    value = float(np.sum(masses * pair_cost(x[rows], y[columns])))
    if not return_plan:
        return value
    return value, sparse.coo_array((masses, (rows, columns)), shape=(len(x), len(y)))


def _check_points(points: Any, name: str) -> np.ndarray:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 1 or not points.size or not np.isfinite(points).all():
        raise ValueError(
            f"{name} must be a one-dimensional array of finite numbers, and not empty."
        )
    return points


def _power(order: Any) -> Any:
    """Return the cost ``|x - y|**order`` as a function."""
    if not 1 <= order < math.inf:
        raise ValueError(
            f"cost must be a function, or a finite order >= 1, got {order!r}: of a lower order, "
            "costs are not convex in x - y."
        )
    return lambda x, y: np.abs(x - y) ** order
