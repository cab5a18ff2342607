"""Entropic projection of one user's distribution onto the LDP polytope, with a certificate.

The block ascent on the dual (mathematical notes: :ref:`proof-entropic-projection`) alternates

    u = P / (K v),    q = K^T u,    v = clip(1, s / q, E s / q),      K = exp(-C / reg).

Three things make it fast. A sweep reads every row of the kernel once, for the product with `v`
and for the accumulation of `q`. The column step is over-relaxed. And `reg` is annealed by
*squaring*: absorbing the scalings and halving `reg` turns each entry x of the kernel into ``(u x v)
** 2``. So no exponential is computed per user, and single precision suffices for any `reg`; the
certificate, which is computed in double precision from the costs themselves, includes the rounding
of the kernel.
"""

import numpy as np

from .kernels import leaf, part
from .polytope import dual_bound, largest_spread, round_into_box

FAST = {"reassoc", "contract", "arcp", "nsz"}
# The kernel's entries start above exp(-START_RANGE) and never fall below FLOOR, so that no row or
# column of it vanishes in single precision.
START_RANGE = 24.0
FLOOR = np.float32(1e-20)
LEAST = np.float32(9e-11)
CEILING = np.float32(1e15)
TINY = np.float32(1e-30)
HUGE = np.float32(1e30)
SWEEPS_PER_LEVEL = 10
# Rows of a sweep that are read together.
_ROWS_AT_ONCE = 4
# Of masses, in the step that balances them.
_LEAST_SLOPE = np.float32(0.02)
# Largest number of sweeps in which the column sums of a level may settle, once `reg` is small
# enough for the certificate.
MAX_SWEEPS_PER_LEVEL = 200
# Column sums are settled when their repair costs this fraction of the tolerance.
SETTLED = 0.08
MAX_LEVELS = 24
# Error in columns at which a level is good enough for a start.
_WARM_SETTLED = np.float32(0.015)
# Of the bits of a number in single precision.
_FRACTION = np.int32((1 << 23) - 1)
_LOG_2 = np.float32(np.log(2.0))


def starting_kernel(cost_matrix):
    """Return the single-precision kernel at the coarsest regularisation, and its parameters.

    Returns
    -------
    kernel : ndarray of float32, shape (n_inputs, n_outputs)
        ``exp(-(C - row_minima) / reg)``; shifting rows changes no projection.
    row_minima : ndarray of shape (n_inputs,)
    reg : float
    """
    row_minima = cost_matrix.min(axis=1)
    shifted = cost_matrix - row_minima[:, None]
    reg = (float(shifted.max()) or 1.0) / START_RANGE
    return np.exp(-shifted / reg).astype(np.float32), row_minima, reg


@leaf(fastmath=FAST)
def _sweep(kernel, weights, v, u, q):
    """Set `u` so that the plan's rows are exact, and `q` to the kernel's column sums under `u`.

    Rows are taken by four, which saves traffic on `v` and `q`, and waiting for sums.
    """
    n_rows, n_columns = kernel.shape
    q[:] = np.float32(0)
    for i in range(0, n_rows, _ROWS_AT_ONCE):
        row_0, row_1, row_2, row_3 = kernel[i], kernel[i + 1], kernel[i + 2], kernel[i + 3]
        total_0 = total_1 = total_2 = total_3 = np.float32(0)
        for j in range(n_columns):
            total_0 += row_0[j] * v[j]
            total_1 += row_1[j] * v[j]
            total_2 += row_2[j] * v[j]
            total_3 += row_3[j] * v[j]
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
        target = min(max(free[j], lower[j] / column), upper[j] / column)
        error += abs(target - v[j]) * column
        if relax:
            target *= (v[j] + three * target) / (three * v[j] + target)
        v[j] = min(max(target, TINY), HUGE)
    return error


@leaf(fastmath=FAST)
def _sharpen(kernel, u, v):
    """Absorb the scalings into the kernel and halve the regularisation."""
    for i in range(len(u)):
        row = kernel[i]
        for j in range(len(v)):
            # Squares of less would be subnormal, which takes much longer.
            entry = max(min(u[i] * row[j] * v[j], CEILING), LEAST)
            row[j] = max(entry * entry, FLOOR)


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
            entry = np.float64(row[j]) * np.float64(v[j])
            total += entry
            moment += entry * row_cost[j]
        scale = weights[i] / total
        plan_cost += scale * moment
        for j in range(len(v)):
            columns[j] += scale * (np.float64(row[j]) * np.float64(v[j]))
    return plan_cost


@part
def _single(values, size):
    """Return values in single precision, and zeros after them."""
    single = np.empty(size, np.float32)
    for i in range(size):
        single[i] = values[i] if i < len(values) else 0.0
    return single


@part
def _start(kernel, weights, lower, upper):
    """Return masses and bounds in single precision, u, v, q and the scaling of free columns."""
    n_rows, n_columns = kernel.shape
    u, v = np.empty(n_rows, np.float32), np.empty(n_columns, np.float32)
    q, free = np.empty(n_columns, np.float32), np.empty(n_columns, np.float32)
    for i in range(n_rows):
        u[i] = 1.0
    for j in range(n_columns):
        v[j] = free[j] = 1.0
    singles = _single(weights, n_rows), _single(lower, n_columns), _single(upper, n_columns)
    return (*singles, u, v, q, free)


@part
def _own_rows(kernel, row_minima, rows):
    """Return copies of the rows of a user's points, and rows of zeros until sweeps can take all."""
    n_columns = kernel.shape[1]
    n_rows = -(-len(rows) // _ROWS_AT_ONCE) * _ROWS_AT_ONCE
    own = np.empty((n_rows, n_columns), np.float32)
    minima = np.empty(len(rows))
    for i in range(n_rows):
        own_row = own[i]
        if i >= len(rows):
            own_row[:] = np.float32(0)
            continue
        row = kernel[rows[i]]
        for j in range(n_columns):
            own_row[j] = row[j]
        minima[i] = row_minima[rows[i]]
    return own, minima


@leaf(fastmath=FAST)
def _balance(u, q, free, lower, upper):
    """Scale `u`, and `q` with it, for masses of columns whose sum is closer to 1: a Newton step.

    Sweeps change that scale slowly where few columns are free.
    """
    total, slope = np.float32(0), np.float32(0)
    for j in range(len(q)):
        mass = min(max(q[j] * free[j], lower[j]), upper[j])
        total += mass
        slope += mass if lower[j] < mass < upper[j] else np.float32(0)
    step = (np.float32(1) - total) / max(slope, _LEAST_SLOPE)
    scale = min(max(np.float32(1) + step, np.float32(0.5)), np.float32(2))
    for i in range(len(u)):
        u[i] *= scale
    for j in range(len(q)):
        q[j] *= scale


@leaf
def _run_sweeps(kernel, weights, u, v, q, free, lower, upper, n_sweeps, settled):
    """Run the sweeps of one level, the last one not relaxed; return its error in columns.

    The last one is the one after an error below `settled`, or else the one of that number.
    """
    error = np.float32(np.inf)
    for sweep in range(n_sweeps):
        _sweep(kernel, weights, v, u, q)
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
    bits = scalings.view(np.int32)
    for i in range(len(potential)):
        # A positive number is (1 + fraction) times a power of two.
        fraction = np.float32(bits[i] & _FRACTION) * np.float32(2.0**-23)
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
        potential[i] += reg * np.float64(exponent * _LOG_2 + series * x)


@leaf(fastmath=FAST)
def _absorb(reg, weights, u, v, q, row_potential, potential):
    """Add the scalings to the potentials; return the dual value, which estimates the cost."""
    _add_logarithms(reg, u, row_potential)
    _add_logarithms(reg, v, potential)
    value = 0.0
    for i in range(len(weights)):
        value += weights[i] * row_potential[i]
    for j in range(len(v)):
        value += np.float64(v[j] * q[j]) * potential[j]
    return value


@leaf(fastmath=FAST)
def _halve(kernel, u, v, free, is_first):
    """Absorb the scalings into the kernel, for half the regularisation.

    Scalings of potential zero, which are ``exp(-potential / reg)``, are squared as entries are.
    Potentials are nearly linear in the regularisation: the next change is half of the last one,
    which is the same scaling again. The first change is from an arbitrary start.
    """
    _sharpen(kernel, u, v)
    for j in range(len(v)):
        scaling = free[j] / v[j]
        free[j] = min(max(scaling * scaling, TINY), HUGE)
        if is_first:
            v[j] = np.float32(1)


@part
def warm_potential(
    rows, weights, lower, upper, kernel, row_minima, reg, ratio, n_sweeps, least, nu, potential
):
    """Anneal until the regularisation is at most `ratio` times the estimated cost; return it.

    `kernel` is the starting kernel, of all rows; `nu` receives the masses of the columns, and
    `potential` their dual potential ``reg log v``. Nothing is certified, so rows of little mass may
    be left out.
    """
    n_kept, total = 0, 0.0
    for i in range(len(rows)):
        if weights[i] * len(rows) >= least:
            total += weights[i]
            n_kept += 1
    kept, kept_weights = np.empty(n_kept, np.int64), np.empty(n_kept)
    place = 0
    for i in range(len(rows)):
        if weights[i] * len(rows) >= least:
            kept[place], kept_weights[place] = rows[i], weights[i] / total
            place += 1
    kernel, row_potential = _own_rows(kernel, row_minima, kept)
    single_weights, single_lower, single_upper, u, v, q, free = _start(
        kernel, kept_weights, lower, upper
    )
    potential[:] = 0.0
    for level in range(MAX_LEVELS):
        _run_sweeps(
            kernel, single_weights, u, v, q, free, single_lower, single_upper, n_sweeps,
            _WARM_SETTLED,
        )  # fmt: skip
        estimate = _absorb(reg, kept_weights, u, v, q, row_potential, potential)
        if reg <= ratio * abs(estimate) or level == MAX_LEVELS - 1:
            break
        _halve(kernel, u, v, free, level == 0)
        reg *= 0.5
    for j in range(len(v)):
        if v[j] == free[j]:
            nu[j] = v[j] * q[j]
        else:
            nu[j] = lower[j] if v[j] > free[j] else upper[j]
    return reg


@part
def entropic_projection(
    cost, rows, weights, lower, upper, kernel, row_minima, reg, tol, max_sweeps,
    row_prices, column_prices, filling, nu, potential,
):  # fmt: skip
    """Anneal until the projection's relative excess cost is certified to be at most `tol`.

    `kernel` is the starting kernel, of all rows. `nu` receives a vector of the polytope and
    `potential` the columns' dual potential ``reg log v``; the prices and `filling` are those of
    :func:`dual_bound`. Ends uncertified after `max_sweeps`.

    Returns
    -------
    upper_bound, lower_bound
        Bounds on the cost of `nu` and on that of the exact projection.
    """
    kernel, row_potential = _own_rows(kernel, row_minima, rows)
    single_weights, single_lower, single_upper, u, v, q, free = _start(
        kernel, weights, lower, upper
    )
    potential[:] = 0.0
    spread = largest_spread(cost, rows)
    estimate = 0.0
    n_sweeps = 0
    level = 0
    while True:
        within_reach = reg <= 2 * tol * abs(estimate)
        settled = 0
        while True:
            error = _run_sweeps(
                kernel, single_weights, u, v, q, free, single_lower, single_upper,
                SWEEPS_PER_LEVEL, np.float32(0),
            )  # fmt: skip
            settled += SWEEPS_PER_LEVEL
            n_sweeps += SWEEPS_PER_LEVEL
            finished = n_sweeps >= max_sweeps or level == MAX_LEVELS - 1
            settling = error * spread > SETTLED * tol * abs(estimate)
            patient = within_reach and settled < MAX_SWEEPS_PER_LEVEL and not finished
            if not (settling and patient):
                break
        if within_reach or finished:
            upper_bound = _row_exact_plan(cost, rows, weights, kernel, v, nu)
            upper_bound += 0.5 * round_into_box(nu, lower, upper) * spread
        estimate = _absorb(reg, weights, u, v, q, row_potential, potential)
        if within_reach or finished:
            lower_bound = dual_bound(
                cost, rows, weights, lower, upper, potential, row_prices, column_prices, filling
            )
            if finished or upper_bound - lower_bound <= tol * abs(lower_bound):
                return upper_bound, lower_bound
        # The last sweep's u belongs to the v before the step; the next level corrects it.
        _halve(kernel, u, v, free, level == 0)
        reg *= 0.5
        level += 1
