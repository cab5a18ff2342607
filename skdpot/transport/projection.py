"""Wasserstein projection of many users' distributions onto the LDP polytope.

The network simplex starts from an entropic projection of the user's distribution, which also has a
certificate of its own. The block ascent on the dual (mathematical notes:
:ref:`proof-entropic-projection`) alternates

    u = P / (K v),    q = K^T u,    v = clip(1, s / q, E s / q),      K = exp(-C / reg).

Three things make it fast. A sweep reads every row of the kernel once, for the product with `v`
and for the accumulation of `q`. The column step is over-relaxed. And `reg` is annealed by
*squaring*: absorbing the scalings and halving `reg` turns each entry x of the kernel into ``(u x v)
** 2``. So no exponential is computed per user, and single precision suffices for any `reg`; the
certificate, which is computed in double precision from the costs themselves, includes the rounding
of the kernel.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from . import polytope
from .kernels import kernel, leaf, longest_row, part, prepare, run
from .simplex import integer_bounds, network_projection

# Up to which size of a user, by `_size`, the network simplex is the faster one without that start
# (measured).
SMALL = 1 << 20
FAST = {"reassoc", "contract", "arcp", "nsz"}
TINY = np.float32(1e-30)
HUGE = np.float32(1e30)
# Rows of a sweep that are read together.
_ROWS_AT_ONCE = 4
MAX_LEVELS = 24


def starting_kernel(cost_matrix):
    """Return the single-precision kernel at the coarsest regularisation, and its parameters.

    Returns
    -------
    kernel : ndarray of float32, shape (n_inputs, n_outputs)
        ``exp(-(C - row_minima) / reg)``; shifting rows changes no projection.
    row_minima : ndarray of shape (n_inputs,)
    reg : float
    """
    # The kernel's entries start above exp(-24) and never fall below 1e-20, so that no row or column
    # of it vanishes in single precision.
    start_range = 24.0
    # Rows that begin at 0 use all of the range that single precision has.
    row_minima = cost_matrix.min(axis=1)
    shifted = cost_matrix - row_minima[:, None]
    reg = (float(shifted.max()) or 1.0) / start_range
    return np.exp(-shifted / reg).astype(np.float32), row_minima, reg


@leaf(fastmath=FAST)
def _sweep(kernel, weights, v, u, q):
    """Set `u` so that the plan's rows are exact, and `q` to the kernel's column sums under `u`.

    Rows are taken by four, which saves traffic on `v` and `q`, and waiting for sums.
    """
    n_rows, n_columns = kernel.shape
    q[:] = np.float32(0)
    for i in range(0, n_rows, _ROWS_AT_ONCE):
        # Four rows by name, and not a loop over them: sums in registers.
        row_0, row_1, row_2, row_3 = kernel[i], kernel[i + 1], kernel[i + 2], kernel[i + 3]
        total_0 = total_1 = total_2 = total_3 = np.float32(0)
        for j in range(n_columns):
            total_0 += row_0[j] * v[j]
            total_1 += row_1[j] * v[j]
            total_2 += row_2[j] * v[j]
            total_3 += row_3[j] * v[j]
        # A row whose sum underflowed would make everything infinite.
        u[i] = np.float32(1) / max(total_0, TINY)
        u[i + 1] = np.float32(1) / max(total_1, TINY)
        u[i + 2] = np.float32(1) / max(total_2, TINY)
        u[i + 3] = np.float32(1) / max(total_3, TINY)
        mass_0, mass_1 = weights[i] * u[i], weights[i + 1] * u[i + 1]
        mass_2, mass_3 = weights[i + 2] * u[i + 2], weights[i + 3] * u[i + 3]
        for j in range(n_columns):
            q[j] += mass_0 * row_0[j] + mass_1 * row_1[j] + mass_2 * row_2[j] + mass_3 * row_3[j]


@leaf(fastmath=FAST)
def _step_columns(v, q, free, lower, upper, relax):
    """Update `v` for the column bounds; return how far column sums were from them (L1).

    `free` is the scaling of a column with no active bound, whose potential is zero. With `relax`
    the step is taken with exponent 1.5, where the square root of the ratio r is replaced by ``(1 +
    3 r) / (3 + r)``, which is faster and tamer.
    """
    three = np.float32(3)
    error = np.float32(0)
    for j in range(len(v)):
        column = max(q[j], TINY)
        # The scaling of potential zero if that is within the bounds, and else that of the bound.
        target = min(max(free[j], lower[j] / column), upper[j] / column)
        error += abs(target - v[j]) * column
        if relax:
            target *= (v[j] + three * target) / (three * v[j] + target)
        v[j] = min(max(target, TINY), HUGE)
    return error


@leaf(fastmath=FAST)
def _sharpen(kernel, u, v):
    """Absorb the scalings into the kernel and halve the regularisation."""
    # Squares of less than `lowest` would be subnormal, which takes much longer.
    lowest, ceiling = np.float32(9e-11), np.float32(1e15)
    floor = np.float32(1e-20)
    for i in range(len(u)):
        row = kernel[i]
        for j in range(len(v)):
            entry = max(min(u[i] * row[j] * v[j], ceiling), lowest)
            row[j] = max(entry * entry, floor)


@part(fastmath=FAST)
def _row_exact_plan(cost, rows, weights, kernel, v, columns):
    """Fill `columns` with the column sums of the row-exact plan; return its transport cost."""
    columns[:] = 0.0
    plan_cost = 0.0
    for i in range(len(rows)):
        row = kernel[i]
        row_cost = cost[rows[i]]
        total = 0.0
        moment = 0.0
        for j in range(len(v)):
            # In double precision: the bounds that follow from it are certified.
            entry = np.float64(row[j]) * np.float64(v[j])
            total += entry
            moment += entry * row_cost[j]
        # Rows are exact by construction; the columns are what is left to be mended.
        scale = weights[i] / total
        plan_cost += scale * moment
        for j in range(len(v)):
            columns[j] += scale * (np.float64(row[j]) * np.float64(v[j]))
    return plan_cost


@part
def _single(values, size):
    """Return values in single precision, and zeros after them."""
    single = np.zeros(size, np.float32)
    single[: len(values)] = values.astype(np.float32)
    return single


@part
def _start(kernel, row_minima, rows, weights, lower, upper):
    """Return a user's own rows of the kernel, the potentials of rows, and the state of sweeps.

    The state is masses and bounds in single precision, u, v, q and the scaling of free columns.
    """
    n_columns = kernel.shape[1]
    # Rows of zeros change no sum, and sweeps need no special case for the last rows.
    n_rows = -(-len(rows) // _ROWS_AT_ONCE) * _ROWS_AT_ONCE
    own = np.zeros((n_rows, n_columns), np.float32)
    for i in range(len(rows)):
        own[i, :] = kernel[rows[i]]
    singles = _single(weights, n_rows), _single(lower, n_columns), _single(upper, n_columns)
    u = np.ones(n_rows, np.float32)
    v, free = np.ones(n_columns, np.float32), np.ones(n_columns, np.float32)
    return own, row_minima[rows], (*singles, u, v, np.empty(n_columns, np.float32), free)


@leaf(fastmath=FAST)
def _balance(u, q, free, lower, upper):
    """Scale `u`, and `q` with it, for masses of columns whose sum is closer to 1: a Newton step.

    Sweeps change that scale slowly where few columns are free.
    """
    # Of masses, in the step that balances them.
    min_slope = np.float32(0.02)
    total, slope = np.float32(0), np.float32(0)
    for j in range(len(q)):
        mass = min(max(q[j] * free[j], lower[j]), upper[j])
        total += mass
        slope += mass if lower[j] < mass < upper[j] else np.float32(0)
    # Where hardly any column is free, the derivative is near 0, and the step would be wild.
    step = (np.float32(1) - total) / max(slope, min_slope)
    scale = min(max(np.float32(1) + step, np.float32(0.5)), np.float32(2))
    for i in range(len(u)):
        u[i] *= scale
    for j in range(len(q)):
        q[j] *= scale


@leaf
def _run_sweeps(kernel, state, n_sweeps, settled):
    """Run the sweeps of one level, the last one not relaxed; return its error in columns.

    The last one is the one after an error below `settled`, or else the one of that number.
    """
    weights, lower, upper, u, v, q, free = state
    error = np.float32(np.inf)
    for sweep in range(n_sweeps):
        _sweep(kernel, weights, v, u, q)
        # Once a level is enough, as it is a start for the sweeps that follow.
        if sweep == 0:
            _balance(u, q, free, lower, upper)
        is_last = error < settled or sweep == n_sweeps - 1
        error = _step_columns(v, q, free, lower, upper, not is_last)
        if is_last:
            break
    return error


@leaf(fastmath=FAST)
def _add_logarithms(reg, scalings, potential):
    """Add ``reg log(scalings)``, with an error of 1e-7 in the logarithm.

    A library's logarithm is no vector instruction: it takes ten times as long.
    """
    log_2 = np.float32(0.6931471805599453)
    # The last 23 of the bits of a number in single precision.
    fraction_bits = np.int32((1 << 23) - 1)
    bits = scalings.view(np.int32)
    for i in range(len(potential)):
        # A positive number is (1 + fraction) times a power of two.
        fraction = np.float32(bits[i] & fraction_bits) * np.float32(2.0**-23)
        exponent = np.float32((bits[i] >> 23) - 127)
        # log(1 + fraction) = 2 artanh(x), and x is at most 1/3.
        x = fraction / (np.float32(2) + fraction)
        square = x * x
        series = np.float32(2 / 11)
        series = series * square + np.float32(2 / 9)
        series = series * square + np.float32(2 / 7)
        series = series * square + np.float32(2 / 5)
        series = series * square + np.float32(2 / 3)
        series = series * square + np.float32(2)
        potential[i] += reg * np.float64(exponent * log_2 + series * x)


@leaf(fastmath=FAST)
def _absorb(reg, weights, state, row_potential, potential):
    """Add the scalings to the potentials; return the dual value, which estimates the cost."""
    _, _, _, u, v, q, _ = state
    _add_logarithms(reg, u, row_potential)
    _add_logarithms(reg, v, potential)
    value = 0.0
    for i in range(len(weights)):
        value += weights[i] * row_potential[i]
    for j in range(len(v)):
        # The product is the mass of the column, which the dual value weighs the potential by.
        value += np.float64(v[j] * q[j]) * potential[j]
    return value


@leaf(fastmath=FAST)
def _halve(kernel, state, is_first):
    """Absorb the scalings into the kernel, for half the regularisation.

    Scalings of potential zero, which are ``exp(-potential / reg)``, are squared as entries are.
    Potentials are nearly linear in the regularisation: the next change is half of the last one,
    which is the same scaling again. The first change is from an arbitrary start.
    """
    _, _, _, u, v, _, free = state
    _sharpen(kernel, u, v)
    for j in range(len(v)):
        # The column's scaling is absorbed into the kernel: what is free is relative to that.
        scaling = free[j] / v[j]
        free[j] = min(max(scaling * scaling, TINY), HUGE)
        if is_first:
            v[j] = np.float32(1)


@part
def warm_potential(
    rows, weights, lower, upper, kernel, row_minima, reg, ratio, n_sweeps, min_mass, nu, potential
):
    """Anneal until the regularisation is at most `ratio` times the estimated cost; return it.

    `kernel` is the starting kernel, of all rows; `nu` receives the masses of the columns, and
    `potential` their dual potential ``reg log v``. Nothing is certified, so rows of little mass may
    be left out.
    """
    # Error in columns at which a level is good enough for a start.
    warm_settled = np.float32(0.015)
    # Points of little mass cost as much time as others, and hardly move the start.
    is_kept = weights * len(rows) >= min_mass
    kept, kept_weights = rows[is_kept], weights[is_kept]
    kept_weights /= kept_weights.sum()
    kernel, row_potential, state = _start(kernel, row_minima, kept, kept_weights, lower, upper)
    potential[:] = 0.0
    for level in range(MAX_LEVELS):
        _run_sweeps(kernel, state, n_sweeps, warm_settled)
        estimate = _absorb(reg, kept_weights, state, row_potential, potential)
        if reg <= ratio * abs(estimate) or level == MAX_LEVELS - 1:
            break
        _halve(kernel, state, level == 0)
        reg *= 0.5
    _, _, _, _, v, q, free = state
    for j in range(len(v)):
        # A column at a bound gets exactly that, so that the simplex starts there.
        if v[j] == free[j]:
            nu[j] = v[j] * q[j]
        else:
            nu[j] = lower[j] if v[j] > free[j] else upper[j]
    return reg


@part
def entropic_projection(
    cost, rows, weights, lower, upper, kernel, row_minima, reg, tol, max_sweeps, nu
):
    """Anneal until the projection's relative excess cost is certified to be at most `tol`.

    `kernel` is the starting kernel, of all rows. `nu` receives a vector of the polytope. Ends
    uncertified after `max_sweeps`.

    Returns
    -------
    upper_bound, lower_bound
        Bounds on the cost of `nu` and on that of the exact projection.
    """
    # Largest number of sweeps in which the column sums of a level may settle, once `reg` is small
    # enough for the certificate.
    max_sweeps_per_level = 200
    # Column sums are settled when their repair costs this fraction of the tolerance.
    settled_share = 0.08
    sweeps_per_level = 10
    kernel, row_potential, state = _start(kernel, row_minima, rows, weights, lower, upper)
    # Of the columns: ``reg log v``.
    potential = np.zeros(len(nu))
    spread = polytope.max_spread(cost, rows)
    estimate = upper_bound = lower_bound = 0.0
    n_sweeps = 0
    for level in range(MAX_LEVELS):
        # Before, a certificate would take a pass in double precision for nothing.
        within_reach = reg <= 2 * tol * abs(estimate)
        settled = 0
        while True:
            error = _run_sweeps(kernel, state, sweeps_per_level, np.float32(0))
            settled += sweeps_per_level
            n_sweeps += sweeps_per_level
            finished = n_sweeps >= max_sweeps or level == MAX_LEVELS - 1
            settling = error * spread > settled_share * tol * abs(estimate)
            patient = within_reach and settled < max_sweeps_per_level and not finished
            if not (settling and patient):
                break
        estimate = _absorb(reg, weights, state, row_potential, potential)
        if within_reach or finished:
            upper_bound = _row_exact_plan(cost, rows, weights, kernel, state[4], nu)
            # Mass that is moved between columns costs no more than the largest difference in a row.
            upper_bound += 0.5 * polytope.round_into_box(nu, lower, upper) * spread
            lower_bound = polytope.dual_bound(cost, rows, weights, lower, upper, potential)
            if finished or upper_bound - lower_bound <= tol * abs(lower_bound):
                break
        # The last sweep's u belongs to the v before the step; the next level corrects it.
        _halve(kernel, state, level == 0)
        reg *= 0.5
    return upper_bound, lower_bound


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
        solvers = ("auto", "exact", "entropic")
        if solver not in solvers:
            raise ValueError(f"solver must be one of {solvers}, got {solver!r}.")
        if not tol > 0:
            raise ValueError(f"tol must be positive, got {tol}; solver='exact' does not use it.")
        cost_matrix = polytope.check_cost_matrix(cost_matrix)
        self.n_inputs, self.n_outputs = cost_matrix.shape
        base = polytope.check_base_measure(base_measure, epsilon, self.n_outputs)
        self.active = np.flatnonzero(base > 0)
        self.cost, self.unit = _in_units_of_its_range(cost_matrix[:, self.active])
        self.lower = base[self.active]
        # No mass is above 1. A larger bound would only multiply the rounding of prices.
        self.upper = np.minimum(math.exp(epsilon) * self.lower, np.maximum(self.lower, 1.0))
        # Kernels take a box for every user, of which this is the only one.
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
        # Columns without a base measure hold no mass, and are in no kernel.
        result = self._anneal(weights) if self.entropic else self._solve(weights)
        projections = result.projections
        if len(self.active) < self.n_outputs:
            projections = np.zeros((weights.shape[0], self.n_outputs))
            projections[:, self.active] = result.projections
        costs = (result.costs * self.unit, result.lower_bounds * self.unit)
        return ProjectionResult(projections, *costs)

    def prepare(self, n_points):
        """Compile the kernels that `project` needs for users with this many points each.

        Then nothing is compiled after a charge.
        """
        rows = sparse.csr_array((0, self.n_inputs))
        result, n_columns = self._empty_result(rows), self.cost.shape[1]
        # The same test as in the kernel, so that what is compiled here is what will run.
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
        bounds = self.lower[None], self.upper[None], *self.integer_bounds
        return *_csr_arrays(weights), self.cost, *bounds, self.row_maxima, *self.start, *result

    def _anneal_arguments(self, weights, result):
        given = self.cost, self.lower, self.upper, *self.start, self.tol, self.max_iter
        return *_csr_arrays(weights), *given, *result

    def _anneal(self, weights):
        """Project rows by the entropic solver, and those that it does not certify by the other."""
        result = self._empty_result(weights)
        is_large = _size(np.diff(weights.indptr), self.cost.shape[1]) > SMALL
        some = weights[is_large]
        annealed = self._empty_result(some)
        if is_large.any():
            run(_anneal_rows, math.inf, *self._anneal_arguments(some, annealed))
        # Where single precision was not enough, the other solver takes over: results always keep
        # the tolerance.
        certified = annealed.costs - annealed.lower_bounds <= self.tol * abs(annealed.lower_bounds)
        is_done = is_large.copy()
        is_done[is_large] = certified
        for into, done, exact in zip(result, annealed, self._solve(weights[~is_done]), strict=True):
            into[is_done] = done[certified]
            into[~is_done] = exact
        return result

    def _empty_result(self, weights):
        n_users = weights.shape[0]
        shapes = ((n_users, len(self.active)), n_users, n_users)
        return ProjectionResult(*map(np.empty, shapes))


def _csr_arrays(rows):
    """Return the arrays of CSR rows, in the one type for which the kernels are compiled."""
    return rows.indptr.astype(np.int64), rows.indices.astype(np.int64), _writeable(rows.data)


def _seconds(n_points, n_columns):
    """Return how long the interpreter takes for all users: for ever where one of them is large.

    That would not be the same, bit by bit: its start may reorder sums when it is compiled.
    """
    if (_size(n_points, n_columns) > SMALL).any():
        return math.inf
    return 2e-4 * len(n_points) + 1e-5 * float((n_points * n_columns).sum())


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
    # Of a row's mean mass: rows that have less have no part in that start.
    min_mass = 0.1
    # Regularisation, relative to the cost, and sweeps of each level before it, from which the
    # network simplex starts best (measured).
    warm_ratio, warm_sweeps = 0.01, 5
    n_columns = cost.shape[1]
    longest = longest_row(indptr)
    row_prices = np.empty(longest)
    column_prices = np.empty(n_columns)
    potential = np.empty(n_columns)
    for user in range(len(costs)):
        first, last = indptr[user], indptr[user + 1]
        rows, weights, prices = indices[first:last], data[first:last], row_prices[: last - first]
        # One kernel for one polytope and for targets of each user's own.
        box = user if len(lower) > 1 else 0
        nu = projections[user]
        spread = magnitude = 0.0
        for row in rows:
            # Of the user's own rows only: another user must not change a bit of the result.
            spread = max(spread, row_maxima[row] - row_minima[row])
            magnitude = max(magnitude, row_maxima[row], -row_minima[row])
        width = reg
        if _size(len(rows), n_columns) > SMALL:
            width = warm_potential(
                rows, weights, lower[box], upper[box], kernel, row_minima, reg, warm_ratio,
                warm_sweeps, min_mass, nu, potential,
            )  # fmt: skip
        else:
            nu[:] = potential[:] = 0.0
        bound = 0.0
        for turn in range(2):
            # Used before the simplex and for its result: in one place, which is compiled once.
            bound = polytope.c_transform(cost, rows, weights, potential, prices, column_prices)
            if turn == 0:
                costs[user] = network_projection(
                    cost, rows, weights, smallest[box], largest[box], prices, column_prices, width,
                    magnitude, nu, potential,
                )  # fmt: skip
        costs[user] += 0.5 * polytope.round_into_box(nu, lower[box], upper[box]) * spread
        # Feasible for any prices, so this bound needs no trust in the simplex.
        bound += polytope.cheapest_in_free_box(column_prices, lower[box], upper[box])
        # Rounding may put a tight bound above the cost, and that would be no bound.
        lower_bounds[user] = min(bound, costs[user])


@kernel
def _anneal_rows(
    indptr, indices, data, cost, lower, upper, kernel, row_minima, reg, tol, max_sweeps,
    projections, costs, lower_bounds,
):  # fmt: skip
    """Project every row onto one polytope by the entropic solver, up to its certified gap."""
    for user in range(len(costs)):
        first, last = indptr[user], indptr[user + 1]
        costs[user], lower_bounds[user] = entropic_projection(
            cost, indices[first:last], data[first:last], lower, upper, kernel, row_minima, reg, tol,
            max_sweeps, projections[user],
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
    cost = polytope.check_cost_matrix(cost_matrix)
    rows = polytope.normalise_rows(weights)
    targets = polytope.normalise_rows(targets).toarray()
    if cost.shape != (rows.shape[1], targets.shape[1]) or len(targets) != rows.shape[0]:
        raise ValueError(
            f"weights {rows.shape}, targets {targets.shape} and cost_matrix {cost.shape} do not "
            "fit: expected (n_users, n_inputs), (n_users, n_outputs) and (n_inputs, n_outputs)."
        )
    cost, unit = _in_units_of_its_range(cost)
    costs = np.empty(len(targets))
    seconds = _seconds(np.diff(rows.indptr), cost.shape[1])
    bounds = targets, targets, *integer_bounds(targets, targets)
    given = *_csr_arrays(rows), cost, *bounds, cost.max(axis=1), *starting_kernel(cost)
    run(_project_rows, seconds, *given, np.empty(targets.shape), costs, np.empty(len(targets)))
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
    how = {"solver": solver, "tol": tol, "max_iter": max_iter}
    projector = Projector(cost_matrix, base_measure, epsilon, **how)
    rows = polytope.normalise_rows(weights)
    if rows.shape[1] != projector.n_inputs:
        raise ValueError(
            f"weights have {rows.shape[1]} columns but cost_matrix has {projector.n_inputs} rows; "
            "they must agree."
        )
    return projector.project(rows)
