"""Wasserstein projection of many users' distributions onto the LDP polytope."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from .entropic import entropic_projection, starting_kernel, warm_potential
from .network import integer_bounds, network_projection
from .polytope import (
    check_base_measure,
    check_cost_matrix,
    free_dual_bound,
    largest_spread,
    normalise_rows,
    round_into_box,
    transform_prices,
)

SOLVERS = ("auto", "exact", "entropic")
# Regularisation, relative to the cost, from which the network simplex starts best (measured).
_WARM_RATIO = 0.02


class ProjectionResult(NamedTuple):
    """Projected distributions and the bounds that certify them, one row per user.

    Attributes
    ----------
    projections : ndarray of shape (n_users, n_outputs)
        Vectors of the polytope: bounds hold exactly in double precision, sums to 1e-12.
    costs : ndarray of shape (n_users,)
        Upper bounds on the transport cost from each user's distribution to its projection.
    lower_bounds : ndarray of shape (n_users,)
        Lower bounds on the cost of *any* vector of the polytope.
    """

    projections: np.ndarray
    costs: np.ndarray
    lower_bounds: np.ndarray


class Projector:
    """Wasserstein projection onto one polytope under one cost, prepared once for many users.

    Everything it holds is public: the cost, the bounds, the starting kernel. The projections are
    *not private*: only samples drawn from them are.

    Parameters
    ----------
    cost_matrix : array-like of shape (n_inputs, n_outputs)
        Cost of moving a unit of mass from an input to an output point.
    base_measure : array-like of shape (n_outputs,)
        The base measure s, with ``sum(s) <= 1 <= exp(epsilon) sum(s)``.
    epsilon : float
        Privacy parameter of the local differential privacy constraint.
    solver : {"auto", "exact", "entropic"}, default="auto"
        As for :func:`wasserstein_projection`.
    tol : float, default=1e-3
        Certified relative excess of the entropic solver.
    max_iter : int, default=1000
        Sweeps of the entropic solver per user.

    Raises
    ------
    ValueError
        If a parameter is not valid.

    See Also
    --------
    wasserstein_projection : The same for distributions that are not prepared.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport import Projector, normalise_rows
    >>> projector = Projector([[0.0, 1.0], [1.0, 0.0]], [0.25, 0.25], np.log(3))
    >>> projector(normalise_rows([[1, 0]])).round(6)
    array([[0.75, 0.25]])
    """

    def __init__(
        self, cost_matrix, base_measure, epsilon, *, solver="auto", tol=1e-3, max_iter=1000
    ):
        if solver not in SOLVERS:
            raise ValueError(f"solver must be one of {SOLVERS}, got {solver!r}.")
        if not tol > 0:
            raise ValueError(f"tol must be positive, got {tol}; solver='exact' does not use it.")
        cost_matrix = check_cost_matrix(cost_matrix)
        self.n_inputs, self.n_outputs = cost_matrix.shape
        base = check_base_measure(base_measure, epsilon, self.n_outputs)
        self.active = np.flatnonzero(base > 0)
        self.cost, self.unit = _in_units_of_its_range(cost_matrix[:, self.active])
        self.lower = base[self.active]
        self.upper = math.exp(epsilon) * self.lower
        self.integer_bounds = integer_bounds(self.lower[None], self.upper[None])
        self.start = starting_kernel(self.cost)
        self.entropic = solver == "entropic"
        self.tol = float(tol)
        self.max_iter = int(max_iter)

    def __setstate__(self, state):
        self.__dict__.update({name: _writeable(value) for name, value in state.items()})

    def __call__(self, weights):
        """Return the projections of normalised CSR rows, of shape (n_users, n_outputs)."""
        return self.project(weights).projections

    def project(self, weights):
        """Project normalised CSR rows, and bound what that costs.

        Parameters
        ----------
        weights : csr_array of shape (n_users, n_inputs)
            Distributions, as `normalise_rows` returns them.

        Returns
        -------
        ProjectionResult
            As of :func:`wasserstein_projection`.
        """
        inside = np.empty((weights.shape[0], len(self.active)))
        costs = np.empty(weights.shape[0])
        lower_bounds = np.empty(weights.shape[0])
        _project_rows(
            *_csr_arrays(weights), self.cost, self.lower[None],
            self.upper[None], *self.integer_bounds, *self.start, self.entropic, self.tol,
            self.max_iter, inside, costs, lower_bounds,
        )  # fmt: skip
        projections = inside
        if len(self.active) < self.n_outputs:
            projections = np.zeros((weights.shape[0], self.n_outputs))
            projections[:, self.active] = inside
        return ProjectionResult(projections, costs * self.unit, lower_bounds * self.unit)


def _csr_arrays(rows):
    """Return the arrays of CSR rows, in the one type for which the kernels are compiled."""
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), _writeable(rows.data)


def _writeable(value):
    """Return an array, or a tuple of arrays, of the writeable type that the kernels know.

    Arrays that another process maps from a file are not, and would be compiled for anew.
    """
    if isinstance(value, tuple):
        return tuple(map(_writeable, value))
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value.copy()
    return value


def _in_units_of_its_range(cost):
    """Return costs divided by a power of two near their range, which is exact, and that power."""
    # Halves first: the range itself could overflow.
    spread = float(cost.max() / 2 - cost.min() / 2)
    unit = 2.0 ** (math.frexp(spread)[1] + 1) if spread > 0 else 1.0
    return np.ascontiguousarray(cost / unit), unit


@njit(nogil=True, cache=True)
def _project_user(
    cost, rows, weights, lower, upper, smallest, largest, kernel, row_minima, reg, entropic, tol,
    max_sweeps, row_prices, column_prices, filling, potential, nu,
):  # fmt: skip
    """Project one user to a certified relative excess; return the cost and a lower bound.

    Where the entropic solver is not asked for, or does not end, the network simplex does.
    """
    if entropic:
        upper_bound, lower_bound, reg = entropic_projection(
            cost, rows, weights, lower, upper, kernel, row_minima, reg, tol, max_sweeps,
            row_prices, column_prices, filling, nu, potential,
        )  # fmt: skip
        if upper_bound - lower_bound <= tol * abs(lower_bound):
            return upper_bound, lower_bound
    else:
        reg = warm_potential(
            rows, weights, lower, upper, kernel, row_minima, reg, _WARM_RATIO, potential
        )
        transform_prices(cost, rows, weights, potential, row_prices, column_prices)
    upper_bound = network_projection(
        cost, rows, weights, smallest, largest, row_prices, column_prices, reg, nu, potential
    )
    upper_bound += 0.5 * round_into_box(nu, lower, upper) * largest_spread(cost, rows)
    lower_bound = free_dual_bound(
        cost, rows, weights, lower, upper, potential, row_prices, column_prices
    )
    return upper_bound, min(lower_bound, upper_bound)


@njit(nogil=True, cache=True)
def _project_rows(
    indptr, indices, data, cost, lower, upper, smallest, largest, kernel, row_minima, reg, entropic,
    tol, max_sweeps, projections, costs, lower_bounds,
):  # fmt: skip
    """Project every row onto one polytope, or onto its own where the bounds have as many rows."""
    n_columns = cost.shape[1]
    longest = 0
    for user in range(len(costs)):
        longest = max(longest, indptr[user + 1] - indptr[user])
    user_kernel = np.empty((longest, n_columns), np.float32)
    row_prices = np.empty(longest)
    column_prices = np.empty(n_columns)
    filling = np.empty(n_columns)
    potential = np.empty(n_columns)
    for user in range(len(costs)):
        rows = indices[indptr[user] : indptr[user + 1]]
        weights = data[indptr[user] : indptr[user + 1]]
        n_rows = len(rows)
        for i in range(n_rows):
            user_kernel[i] = kernel[rows[i]]
        box = user if len(lower) > 1 else 0
        costs[user], lower_bounds[user] = _project_user(
            cost, rows, weights, lower[box], upper[box], smallest[box], largest[box],
            user_kernel[:n_rows], row_minima, reg, entropic, tol, max_sweeps,
            row_prices[:n_rows], column_prices, filling, potential, projections[user],
        )  # fmt: skip


def transport_costs(weights, targets, cost_matrix) -> np.ndarray:
    """Return the optimal transport cost from every user's distribution to a target of its own.

    Parameters
    ----------
    weights : {array-like, sparse matrix} of shape (n_users, n_inputs)
        Non-negative weights over the input points; rows are normalised.
    targets : array-like of shape (n_users, n_outputs)
        Non-negative weights over the output points; rows are normalised.
    cost_matrix : array-like of shape (n_inputs, n_outputs)
        Cost of moving a unit of mass from an input to an output point.

    Returns
    -------
    ndarray of shape (n_users,)
        Exact costs, up to rounding (the p-th power of the p-Wasserstein distance where the cost
        is a distance to the power p). *Not private.*

    Raises
    ------
    ValueError
        If shapes do not fit, weights are no distributions, or costs are not finite.

    Examples
    --------
    >>> from skdpot.transport import transport_costs
    >>> transport_costs([[1, 0], [1, 1]], [[0, 1], [1, 1]], [[0, 3], [3, 0]])
    array([3., 0.])
    """
    cost = check_cost_matrix(cost_matrix)
    rows = normalise_rows(weights)
    targets = normalise_rows(targets).toarray()
    if cost.shape != (rows.shape[1], targets.shape[1]) or len(targets) != rows.shape[0]:
        raise ValueError(
            f"weights {rows.shape}, targets {targets.shape} and cost_matrix {cost.shape} do not "
            "fit: expected (n_users, n_inputs), (n_users, n_outputs) and (n_inputs, n_outputs)."
        )
    cost, unit = _in_units_of_its_range(cost)
    costs = np.empty(len(targets))
    _project_rows(
        *_csr_arrays(rows), cost, targets, targets,
        *integer_bounds(targets, targets), *starting_kernel(cost), False, 0.0, 0,
        np.empty(targets.shape), costs, np.empty(len(targets)),
    )  # fmt: skip
    return costs * unit


def wasserstein_projection(
    weights, cost_matrix, base_measure, epsilon, *, solver="auto", tol=1e-3, max_iter=1000
) -> ProjectionResult:
    """Project distributions onto the LDP polytope in the Wasserstein sense.

    For every row P of `weights`, find nu with ``s <= nu <= exp(epsilon) s`` that minimises the
    optimal transport cost from P to nu. The result is *not private*: only a sample drawn from it
    is.

    Parameters
    ----------
    weights : {array-like, sparse matrix} of shape (n_users, n_inputs)
        Non-negative weights over the input points; rows are normalised.
    cost_matrix : array-like of shape (n_inputs, n_outputs)
        Cost of moving a unit of mass from an input to an output point.
    base_measure : array-like of shape (n_outputs,)
        The base measure s, with ``sum(s) <= 1 <= exp(epsilon) sum(s)``.
    epsilon : float
        Privacy parameter of the local differential privacy constraint.
    solver : {"auto", "exact", "entropic"}, default="auto"
        ``"exact"``: a few entropic iterations give prices from which a network simplex reaches the
        optimum in few pivots. ``"entropic"``: regularisation is lowered until the certified
        excess is at most `tol`; what `max_iter` sweeps do not certify is finished exactly.
        ``"auto"`` is the exact one, which was the faster one in all but crude approximations.
    tol : float, default=1e-3
        Certified relative excess of the entropic solver: ``costs <= (1 + tol) lower_bounds``.
        That of the exact one is at rounding error.
    max_iter : int, default=1000
        Sweeps of the entropic solver per user.

    Returns
    -------
    ProjectionResult
        Named tuple ``(projections, costs, lower_bounds)``.

    Raises
    ------
    ValueError
        If weights, costs, base measure or epsilon are not valid; nothing is computed then.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport import wasserstein_projection
    >>> positions = np.arange(4.0)
    >>> cost = np.abs(positions[:, None] - positions)
    >>> result = wasserstein_projection([1, 0, 0, 0], cost, np.full(4, 0.125), np.log(4))
    >>> result.projections.round(4)
    array([[0.5  , 0.25 , 0.125, 0.125]])
    >>> result.costs.round(4)
    array([0.875])
    """
    projector = Projector(
        cost_matrix, base_measure, epsilon, solver=solver, tol=tol, max_iter=max_iter
    )
    rows = normalise_rows(weights)
    if rows.shape[1] != projector.n_inputs:
        raise ValueError(
            f"weights have {rows.shape[1]} columns but cost_matrix has {projector.n_inputs} rows; "
            "they must agree."
        )
    return projector.project(rows)
