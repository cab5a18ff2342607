"""Exact optimal transport, with a certificate: network simplex, or sorting on a line.

The network simplex is that of POT, on integers below 2**53, which are exact as doubles; the
strongly feasible trees that it keeps exclude cycling. So it ends for all data, and its distance
from the optimum is known beforehand. It is not trusted for that: its prices are made feasible for
the true costs, and its plan is measured against them.
"""

import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from .kernels import run
from .polytope import check_cost_matrix, check_numbers, check_range, check_weights, transform_prices
from .simplex import LARGEST_COST, PARENT, TOTAL_MASS, empty_tree, integer_masses, transport_again

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class TransportResult:
    """The result of an exact or entropic solver: a bound on the cost, its gap, and potentials.

    Attributes
    ----------
    cost : float
        Lower bound on the transport cost, or on the entropic one, up to rounding: the dual value of
        the potentials, or a better bound.
    gap : float
        Certified: that cost is at most ``cost + gap``. Both bounds include the effect of rounding.
    row_potential, column_potential : ndarray of shape (n,), (m,)
        Dual potentials, also of points without weight. Of an exact solver no sum
        ``row_potential[i] + column_potential[j]`` is above ``cost[i, j]`` by more than rounding. Of
        the entropic one ``exp((f_i + g_j - c_ij) / reg)`` is the plan's density with respect to the
        product of the weights.
    plan : scipy.sparse.csr_array of shape (n, m) or None
        The coupling that an exact solver found, optimal up to the gap: n + m - 1 entries at most.
        None for the entropic solver, whose potentials describe its plan.
    n_iter : int
        Passes of the entropic solver over the costs, or over the plan.
    """

    cost: float
    gap: float
    row_potential: np.ndarray
    column_potential: np.ndarray
    plan: Any = None
    n_iter: int = 0


def certifiable_gap(n_rows: int, n_columns: int, low: float, high: float) -> float:
    """Return the gap within which `exact_transport` ends for all costs between two bounds.

    It is in units of cost, and depends only on these arguments, so it may be public.

    Notes
    -----
    The quantum is ``4 (N + 3) eps R`` at most, for N = n_rows + n_columns points and costs of range
    R. The simplex leaves reduced costs above -6 quanta, as prices are below 1.2 * 2**51 quanta and
    its tolerance is ten times eps of them; rounding the costs hides one quantum. Masses are rounded
    by eps each, and sums of N doubles by N eps.

    Examples
    --------
    >>> from skdpot.transport import certifiable_gap
    >>> certifiable_gap(1000, 1000, 0.0, 1.0) < 2e-11
    True
    """
    max_magnitude = max(abs(low), abs(high))
    return 40 * (n_rows + n_columns + 16) * _EPS * (high - low) + 2 * _EPS * max_magnitude


def exact_transport(cost: Any, a: Any, b: Any) -> TransportResult:
    r"""Return the optimal transport cost between two weighted samples, with a certificate.

    The cost is :math:`\min_\pi \langle c, \pi \rangle` over all plans with marginals a and b.

    Parameters
    ----------
    cost : array-like of shape (n, m)
        Finite costs.
    a, b : array-like of shape (n,), (m,)
        Non-negative weights with sum 1.

    Returns
    -------
    TransportResult
        Cost, certified gap, potentials and plan.

    Raises
    ------
    ValueError
        If costs are not finite, or differ by more than a double can hold, or weights are not
        weights.

    Notes
    -----
    *Certificate.* Potentials with ``phi_i + psi_j <= c_ij`` bound the cost from below by
    ``<a, phi> + <b, psi>``, and ``phi_i = min_j c_ij - psi_j`` is feasible for any psi. A plan P
    with marginals r and s bounds it from above: the part of P within the marginals a and b can be
    completed to a coupling. With costs in [0, R] its cost is at most ``<c, P> + R (|a - r|_1 + |b -
    s|_1)``.

    *Not private*: cost, potentials and plan depend on single points.

    References
    ----------
    Differentially Private Sinkhorn Algorithm, equation (1) without regularisation.

    N. Bonneel, M. van de Panne, S. Paris and W. Heidrich, "Displacement interpolation using
    Lagrangian mass transport", 2011: the network simplex of POT.

    Examples
    --------
    >>> from skdpot.transport import exact_transport
    >>> result = exact_transport([[0.0, 1.0], [2.0, 1.0]], [0.5, 0.5], [0.25, 0.75])
    >>> round(result.cost, 9), result.gap < 1e-9
    (0.75, True)
    """
    cost = check_cost_matrix(cost)
    a, b = check_weights(a, cost.shape[0], "a"), check_weights(b, cost.shape[1], "b")
    low, high = float(cost.min()), float(cost.max())
    unit = high - low
    check_range(low, high, "costs")
    result = _in_units(_solved((cost - low) / (unit or 1.0), a, b), unit, low)
    return replace(result, gap=result.gap + 2 * _EPS * max(abs(low), abs(high)))


def _in_units(result: TransportResult, unit: float, low: float = 0.0) -> TransportResult:
    """Return the result for costs that begin at `low`, from that for costs in [0, 1]."""
    rows, columns = low + unit * result.row_potential, unit * result.column_potential
    cost, gap = float(low + unit * result.cost), float(unit * result.gap)
    return TransportResult(cost, gap, rows, columns, result.plan)


def common_masses(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return weights (each of sum 1) as integers with one sum, exactly if all are equal weights.

    That sum is at most 2**52, so sums of these masses are exact as doubles, too. Otherwise weights
    are rounded to multiples of 2**-52, and the largest one takes the remainder.
    """
    # Equal weights of all groups are whole multiples of one unit of mass, which is exact.
    total = math.lcm(*(len(one) for one in weights))
    if total <= TOTAL_MASS and all((one == one[0]).all() for one in weights):
        return [np.full(len(one), total // len(one)) for one in weights]
    return [integer_masses(one) for one in weights]


@cache
def load_solver() -> Callable[..., Any]:
    """Import POT, and return its solver.

    For releases, which call it after they were charged: an interrupted import leaves modules half
    made. POT gets no other backend than NumPy, unless one is imported already, or the environment
    says otherwise.
    """
    # Libraries that POT would import, though arrays of NumPy do not need them.
    backends = {"PYTORCH": "torch", "JAX": "jax", "CUPY": "cupy", "TENSORFLOW": "tensorflow"}
    switches = {
        name: "1"
        for backend, module in backends.items()
        if module not in sys.modules
        and (name := f"POT_BACKEND_DISABLE_{backend}") not in os.environ
    }
    # POT reads them when it is imported, and they are of no use afterwards.
    os.environ.update(switches)
    try:
        from ot import emd
    finally:
        for name in switches:
            del os.environ[name]
    return emd


def cheapest_flow(cost: Any, supplies: np.ndarray, demands: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the cheapest flow, of the kind of `cost`, and the prices of the columns.

    Parameters
    ----------
    cost : ndarray or sparse array of shape (n, m)
        Integers from 0 to ``LARGEST_COST / (n + m + 2)``. A sparse array has the costs of all pairs
        that may be joined, zeros as well.
    supplies, demands : ndarray of shape (n,), (m,)
        Positive integers with one sum, `TOTAL_MASS` of `network` at most.

    Raises
    ------
    RuntimeError
        If POT finds no flow; that would be a defect.
    """
    emd = load_solver()
    with warnings.catch_warnings():
        # Its warnings are in the log, too, and there they become an error.
        warnings.simplefilter("ignore")
        masses = supplies.astype(np.float64), demands.astype(np.float64)
        flow, log = emd(*masses, cost, numItermax=2**63, log=True, center_dual=False)
    if log["warning"] is not None:
        raise RuntimeError(f"POT has found no plan: {log['warning']}")
    return flow, log["v"]


def _solved(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> TransportResult:
    """Solve for costs in [0, 1] on exact integers; the certificate is about the true costs."""
    masses = common_masses([a, b])
    rows, columns = map(np.flatnonzero, masses)
    # Costs become integers, so that sums of prices are exact as doubles.
    n_quanta = math.floor(LARGEST_COST / (sum(cost.shape) + 2))
    quanta = n_quanta * (
        # Points without mass are left out; where there are none, a copy is saved.
        cost if len(rows) * len(columns) == cost.size else cost[np.ix_(rows, columns)]
    )
    flow, prices = cheapest_flow(np.rint(quanta, out=quanta), masses[0][rows], masses[1][columns])
    ends = np.nonzero(flow)
    parts = flow[ends] / masses[0].sum()
    plan = sparse.coo_array((parts, (rows[ends[0]], columns[ends[1]])), shape=cost.shape)
    # Columns without mass have no price of their own: any low one will do.
    potential = np.full(len(b), -np.inf)
    potential[columns] = prices / n_quanta
    return _certified(cost, a, b, plan, potential)


def _certified(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, plan: sparse.coo_array, potential: np.ndarray
) -> TransportResult:
    """Return a plan for costs in [0, 1], and what any column potential proves about it."""
    # A column that is more than 1 below the highest decides no minimum, as costs lie in [0, 1].
    with np.errstate(all="ignore"):
        potential = np.maximum(np.nan_to_num(potential - potential.max(), neginf=-1.0), -1.0)
    phi, psi = np.empty(len(a)), np.empty(len(b))
    transform_prices(cost, np.arange(len(a)), a, potential, phi, psi)
    dual = math.fsum(a * phi) + math.fsum(b * psi)
    # The part of the plan within the marginals can be completed, at a cost of at most 1.
    missing = np.abs(a - plan.sum(axis=1)).sum() + np.abs(b - plan.sum(axis=0)).sum()
    # The plan is measured by the true costs, whatever the solver made of them.
    upper = float(np.sum(plan.data * cost[plan.coords])) + missing
    rounding = (sum(cost.shape) + 16) * _EPS
    return TransportResult(dual, max(upper - dual, 0.0) + rounding, phi, psi, plan.tocsr())


def repeated_transport(a: np.ndarray, b: np.ndarray) -> Callable[[np.ndarray], TransportResult]:
    """Return exact transport between two weights as a function of the costs, to be called again.

    Our own network simplex begins with the tree in which it ended for the last costs: where these
    were similar, it takes a tenth of the time of POT, which starts anew (1000 points, 5 groups).

    Parameters
    ----------
    a, b : ndarray of shape (n,), (m,)
        Weights above 0 with sum 1.

    Returns
    -------
    callable
        Returns the same as `exact_transport` for costs of 0 and above, with another gap.
    """
    masses = common_masses([a, b])
    n_rows, n_nodes = len(a), len(a) + len(b) + 1
    # What the simplex ends in, and goes on from: it changes these arrays in place.
    tree, flow = empty_tree(n_nodes), np.zeros(n_nodes, np.int64)
    at_root, arc_cost, prices = np.zeros(len(b), bool), np.zeros(n_nodes), np.zeros(n_nodes)

    def solve(cost: np.ndarray) -> TransportResult:
        unit = float(cost.max())
        scaled, n_quanta = cost / (unit or 1.0), math.floor(LARGEST_COST / (sum(cost.shape) + 2))
        # At the end of a call all mass flows: where none does yet, this is the first one.
        state = not flow.any(), tree, flow, at_root, arc_cost, prices
        run(transport_again, 1e-4 * cost.size, np.rint(n_quanta * scaled), *masses, *state)
        nodes = np.flatnonzero(flow)
        parents = tree[nodes, PARENT]
        # An arc joins a row and a column, and rows have the lower numbers.
        rows, columns = np.minimum(nodes, parents), np.maximum(nodes, parents) - n_rows
        parts = flow[nodes] / masses[0].sum()
        plan = sparse.coo_array((parts, (rows, columns)), shape=cost.shape)
        return _in_units(_certified(scaled, a, b, plan, prices[n_rows:-1] / n_quanta), unit)

    return solve


@np.errstate(all="ignore")
def monotone_transport(x: Any, y: Any, *, cost: Any = 1) -> float:
    r"""Return the transport cost between points on a line, for a convex function of differences.

    The coupling of the sorted points is then optimal. Where its mass changes from one pair of
    points to the next is computed in integers, and so exactly. Points have equal weights.

    Parameters
    ----------
    x, y : array-like of shape (n,), (m,)
        Points.
    cost : float or callable, default=1
        An order p >= 1, for the cost ``|x - y|**p``, or a function of two arrays of equal length
        that returns the costs between corresponding points. It must be convex in x - y, which is
        not checked.

    Returns
    -------
    float
        The cost, exact up to rounding.

    Raises
    ------
    ValueError
        If points are not finite, or the order is below 1.

    Notes
    -----
    *Not private*: the cost depends on single points.

    References
    ----------
    F. Santambrogio, "Optimal Transport for Applied Mathematicians", theorem 2.9.

    Examples
    --------
    >>> from skdpot.transport import monotone_transport
    >>> monotone_transport([0.0, 1.0], [3.0, 2.0], cost=2)
    4.0
    """
    x, y = check_numbers(x, "x", 1), check_numbers(y, "y", 1)
    if not callable(cost) and not 1 <= cost < math.inf:
        raise ValueError(
            f"a transport cost must be a function, or of a finite order >= 1, got {cost!r}: of a "
            "lower one, costs are not convex in x - y."
        )
    equal = [np.full(len(x), 1.0 / len(x)), np.full(len(y), 1.0 / len(y))]
    row_masses, column_masses = common_masses(equal)
    row_order, column_order = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    row_ends = np.cumsum(row_masses[row_order])
    column_ends = np.cumsum(column_masses[column_order])
    # Two sorted runs are merged by a stable sort; union1d would hash them.
    ends = np.sort(np.concatenate([row_ends, column_ends]), kind="stable")
    # Pieces without mass would cost nothing, and be in no coupling.
    ends = ends[np.diff(ends, prepend=0) > 0]
    masses = np.diff(ends, prepend=0) / ends[-1]
    rows = row_order[np.searchsorted(row_ends, ends)]
    columns = column_order[np.searchsorted(column_ends, ends)]
    x, y = x[rows], y[columns]
    costs = cost(x, y) if callable(cost) else np.abs(x - y) ** cost
    return float(np.sum(masses * costs))
