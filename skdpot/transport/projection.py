"""Wasserstein projection of many users' distributions onto the LDP polytope."""

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from .entropic import entropic_projection, starting_kernel, warm_potential
from .kernels import kernel, longest_row, part, prepare, run
from .network import integer_bounds, network_projection
from .polytope import (
    c_transform,
    cheapest_in_free_box,
    check_base_measure,
    check_cost_matrix,
    normalise_rows,
    round_into_box,
)

SOLVERS = ("auto", "exact", "entropic")
# Regularisation, relative to the cost, and sweeps of each level before it, from which the network
# simplex starts best (measured).
_WARM_RATIO, _WARM_SWEEPS = 0.01, 5
# Of a row's mean mass: rows that have less have no part in that start.
_LEAST_MASS = 0.1
# Up to which size of a user, by `_size`, the network simplex is the faster one without that start
# (measured).
SMALL = 1 << 20


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
        # No mass is above 1. A larger bound would only multiply the rounding of prices.
        self.upper = np.minimum(math.exp(epsilon) * self.lower, np.maximum(self.lower, 1.0))
        self.integer_bounds = integer_bounds(self.lower[None], self.upper[None])
        self.row_maxima = self.cost.max(axis=1)
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
        """Project normalised CSR rows, and bound the cost.

        Parameters
        ----------
        weights : csr_array of shape (n_users, n_inputs)
            Distributions, as `normalise_rows` returns them.

        Returns
        -------
        ProjectionResult
            As of :func:`wasserstein_projection`.
        """
        result = self._anneal(weights) if self.entropic else self._solve(weights)
        projections = result.projections
        if len(self.active) < self.n_outputs:
            projections = np.zeros((weights.shape[0], self.n_outputs))
            projections[:, self.active] = result.projections
        return ProjectionResult(
            projections, result.costs * self.unit, result.lower_bounds * self.unit
        )

    def prepare(self, n_points):
        """Compile the kernels that `project` needs for users with so many points each.

        Then nothing is compiled after a charge.
        """
        rows = sparse.csr_array((0, self.n_inputs))
        result, n_columns = self._empty_result(rows), self.cost.shape[1]
        is_large = _size(n_points, n_columns) > SMALL
        if self.entropic and is_large.any():
            prepare(_anneal_rows, math.inf, *self._anneal_arguments(rows, result))
            # Large users that it does not certify are few, if there are any.
            n_points = n_points[~is_large]
        prepare(_project_rows, _seconds(n_points, n_columns), *self._arguments(rows, result))

    def _solve(self, weights):
        """Project rows by the network simplex, in units of the cost's range."""
        result = self._empty_result(weights)
        seconds = _seconds(np.diff(weights.indptr), self.cost.shape[1])
        run(_project_rows, seconds, *self._arguments(weights, result))
        return result

    def _arguments(self, weights, result):
        return (
            *_csr_arrays(weights), self.cost, self.lower[None], self.upper[None],
            *self.integer_bounds, self.row_maxima, *self.start, *result,
        )  # fmt: skip

    def _anneal_arguments(self, weights, result):
        return (
            *_csr_arrays(weights), self.cost, self.lower, self.upper, *self.start, self.tol,
            self.max_iter, *result,
        )  # fmt: skip

    def _anneal(self, weights):
        """Project rows by the entropic solver, and those that it does not certify by the other."""
        result = self._empty_result(weights)
        is_large = _size(np.diff(weights.indptr), self.cost.shape[1]) > SMALL
        some = weights[is_large]
        annealed = self._empty_result(some)
        if is_large.any():
            run(_anneal_rows, math.inf, *self._anneal_arguments(some, annealed))
        certified = annealed.costs - annealed.lower_bounds <= self.tol * abs(annealed.lower_bounds)
        is_done = is_large.copy()
        is_done[is_large] = certified
        for into, done, exact in zip(result, annealed, self._solve(weights[~is_done]), strict=True):
            into[is_done] = done[certified]
            into[~is_done] = exact
        return result

    def _empty_result(self, weights):
        n_users = weights.shape[0]
        return ProjectionResult(
            np.empty((n_users, len(self.active))), np.empty(n_users), np.empty(n_users)
        )


def _csr_arrays(rows):
    """Return the arrays of CSR rows, in the one type for which the kernels are compiled."""
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), _writeable(rows.data)


def _seconds(n_points, n_columns):
    """Return how long the interpreter takes for all users: for ever where one of them is large.

    That would not be the same, bit by bit: its start may reorder sums when it is compiled.
    """
    sizes = n_points * n_columns
    return (
        math.inf
        if (_size(n_points, n_columns) > SMALL).any()
        else 2e-4 * len(sizes) + 1e-5 * float(sizes.sum())
    )


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


@part
def _size(n_points, n_columns):
    """Return a measure of users, which columns add more to than points do."""
    return n_points * n_columns * max(n_columns**2, 1024)


@kernel
def _project_rows(
    indptr, indices, data, cost, lower, upper, smallest, largest, row_maxima, kernel, row_minima,
    reg, projections, costs, lower_bounds,
):  # fmt: skip
    """Project every row onto one polytope, or onto its own where the bounds have as many rows."""
    n_columns = cost.shape[1]
    longest = longest_row(indptr)
    row_prices = np.empty(longest)
    column_prices = np.empty(n_columns)
    potential = np.empty(n_columns)
    for user in range(len(costs)):
        first, last = indptr[user], indptr[user + 1]
        rows, weights, prices = indices[first:last], data[first:last], row_prices[: last - first]
        box = user if len(lower) > 1 else 0
        nu = projections[user]
        spread = magnitude = 0.0
        for row in rows:
            spread = max(spread, row_maxima[row] - row_minima[row])
            magnitude = max(magnitude, row_maxima[row], -row_minima[row])
        width = reg
        if _size(len(rows), n_columns) > SMALL:
            width = warm_potential(
                rows, weights, lower[box], upper[box], kernel, row_minima, reg, _WARM_RATIO,
                _WARM_SWEEPS, _LEAST_MASS, nu, potential,
            )  # fmt: skip
        else:
            nu[:] = potential[:] = 0.0
        bound = 0.0
        for turn in range(2):
            # Used before the simplex and for its result: in one place, which is compiled once.
            bound = c_transform(cost, rows, weights, potential, prices, column_prices)
            if turn == 0:
                costs[user] = network_projection(
                    cost, rows, weights, smallest[box], largest[box], prices, column_prices, width,
                    magnitude, nu, potential,
                )  # fmt: skip
        costs[user] += 0.5 * round_into_box(nu, lower[box], upper[box]) * spread
        bound += cheapest_in_free_box(column_prices, lower[box], upper[box])
        lower_bounds[user] = min(bound, costs[user])


@kernel
def _anneal_rows(
    indptr, indices, data, cost, lower, upper, kernel, row_minima, reg, tol, max_sweeps,
    projections, costs, lower_bounds,
):  # fmt: skip
    """Project every row onto one polytope by the entropic solver, up to its certified gap."""
    n_columns = cost.shape[1]
    row_prices = np.empty(longest_row(indptr))
    column_prices = np.empty(n_columns)
    filling = np.empty(n_columns)
    potential = np.empty(n_columns)
    for user in range(len(costs)):
        first, last = indptr[user], indptr[user + 1]
        costs[user], lower_bounds[user] = entropic_projection(
            cost, indices[first:last], data[first:last], lower, upper, kernel, row_minima, reg, tol,
            max_sweeps, row_prices[: last - first], column_prices, filling, projections[user],
            potential,
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
    run(
        _project_rows, _seconds(np.diff(rows.indptr), cost.shape[1]), *_csr_arrays(rows), cost,
        targets, targets,
        *integer_bounds(targets, targets), cost.max(axis=1), *starting_kernel(cost),
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
        optimum in few pivots. ``"entropic"``: regularisation is lowered until the certified excess
        is at most `tol`. Users that are small, or not certified after `max_iter` sweeps, are solved
        exactly.
        ``"auto"`` is the exact solver, which was faster except for rough approximations.
    tol : float, default=1e-3
        Certified relative excess of the entropic solver: ``costs <= (1 + tol) lower_bounds``. The
        exact solver is exact up to rounding.
    max_iter : int, default=1000
        Sweeps of the entropic solver per user.

    Returns
    -------
    ProjectionResult
        Named tuple ``(projections, costs, lower_bounds)``.

    Raises
    ------
    ValueError
        If weights, costs, base measure or epsilon are invalid; nothing is computed in this case.

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
