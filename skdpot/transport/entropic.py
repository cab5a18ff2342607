"""Entropic projection of one user's distribution onto the LDP polytope, with a certificate.

The block ascent on the dual (mathematical notes: theory page, "Entropic projection") alternates

    u = P / (K v),    q = K^T u,    v = clip(1, s / q, E s / q),      K = exp(-C / reg).

Three things make it fast. A sweep reads every row of the kernel once, for the product with `v`
and for the accumulation of `q`. The column step is over-relaxed. And `reg` is annealed by
*squaring*: absorbing the scalings and halving `reg` turns each entry x of the kernel into
``(u x v) ** 2``, so that no exponential is ever taken per user and single precision suffices at
any `reg`; what the rounding of the kernel costs is seen by the certificate, which is computed in
double precision from the costs themselves.
"""

import numpy as np
from numba import njit

from .polytope import dual_bound, largest_spread, round_into_box

FAST = {"reassoc", "contract", "arcp", "nsz"}
# The kernel's entries start above exp(-START_RANGE) and never fall below FLOOR, so that no row or
# column of it vanishes in single precision.
START_RANGE = 12.0
FLOOR = np.float32(1e-20)
CEILING = np.float32(1e15)
TINY = np.float32(1e-30)
HUGE = np.float32(1e30)
MAX_EXPONENT = 69.0
SWEEPS_PER_LEVEL = 10
# Sweeps with which one level may wait for its column sums to settle, once `reg` is small enough
# for the certificate to be within reach.
MAX_SWEEPS_PER_LEVEL = 100
MAX_LEVELS = 24


def starting_kernel(cost_matrix):
    """Return the single-precision kernel at the coarsest regularisation, and that regularisation.

    Rows are shifted by their smallest cost, which changes no projection.
    """
    shifted = cost_matrix - cost_matrix.min(axis=1, keepdims=True)
    reg = max(float(shifted.max()), np.finfo(np.float64).tiny) / START_RANGE
    return np.exp(-shifted / reg).astype(np.float32), reg


@njit(nogil=True, cache=True, fastmath=FAST)
def _sweep(kernel, weights, v, u, q):
    """Set `u` so that the plan's rows are exact, and `q` to the kernel's column sums under `u`."""
    q[:] = np.float32(0)
    for i in range(len(weights)):
        row = kernel[i]
        total = np.float32(0)
        for j in range(len(v)):
            total += row[j] * v[j]
        u[i] = np.float32(1) / max(total, TINY)
        mass = weights[i] * u[i]
        for j in range(len(v)):
            q[j] += mass * row[j]


@njit(nogil=True, cache=True, fastmath=FAST)
def _step_columns(v, q, free, lower, upper, relax):
    """Update `v` for the column bounds; with `relax` the step is taken with exponent 1.5.

    `free` is the scaling of a column that neither bound holds: that of potential zero.
    """
    for j in range(len(v)):
        column = max(q[j], TINY)
        target = min(max(free[j], lower[j] / column), upper[j] / column)
        if relax:
            target *= np.sqrt(target / v[j])
        v[j] = min(max(target, TINY), HUGE)


@njit(nogil=True, cache=True, fastmath=FAST)
def _sharpen(kernel, u, v):
    """Absorb the scalings into the kernel and halve the regularisation."""
    for i in range(len(u)):
        row = kernel[i]
        for j in range(len(v)):
            entry = min(u[i] * row[j] * v[j], CEILING)
            row[j] = max(entry * entry, FLOOR)


@njit(nogil=True, cache=True, fastmath=FAST)
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


@njit(nogil=True, cache=True)
def entropic_projection(
    cost, rows, weights, lower, upper, kernel, reg, warm_ratio, tol, max_sweeps,
    row_prices, column_prices, filling, nu, potential,
):  # fmt: skip
    """Anneal the entropic projection of one user; return what it certifies.

    `kernel` holds this user's rows of the starting kernel and is overwritten. `nu` receives a
    vector of the polytope and `potential` the dual potential ``reg log v``. With ``tol > 0`` the
    levels go on until the certified relative excess is at most `tol` or `max_sweeps` is used up;
    with ``tol == 0`` they end as soon as `reg` is at most `warm_ratio` times the cost. The prices
    and `filling` are those of :func:`dual_bound`.

    Returns
    -------
    upper_bound, lower_bound, reg, n_sweeps
        Bounds on the cost of `nu` and of the exact projection (``-inf`` where not computed).
    """
    n_columns = len(lower)
    single_weights = weights.astype(np.float32)
    single_lower = lower.astype(np.float32)
    single_upper = upper.astype(np.float32)
    u = np.ones(len(rows), np.float32)
    v = np.ones(n_columns, np.float32)
    q = np.empty(n_columns, np.float32)
    free = np.ones(n_columns, np.float32)
    spread = largest_spread(cost, rows)
    potential[:] = 0.0
    n_sweeps = 0
    upper_bound = np.inf
    lower_bound = -np.inf
    for level in range(MAX_LEVELS):
        patience = SWEEPS_PER_LEVEL
        settled = 0
        while True:
            for sweep in range(SWEEPS_PER_LEVEL):
                _sweep(kernel, single_weights, v, u, q)
                relax = sweep < SWEEPS_PER_LEVEL - 1
                _step_columns(v, q, free, single_lower, single_upper, relax)
            settled += SWEEPS_PER_LEVEL
            plan_cost = _row_exact_plan(cost, rows, weights, kernel, v, nu)
            rounding = 0.5 * round_into_box(nu, lower, upper) * spread
            upper_bound = plan_cost + rounding
            within_reach = tol > 0 and reg <= 2 * tol * abs(plan_cost)
            if within_reach:
                patience = MAX_SWEEPS_PER_LEVEL
            unsettled = rounding > 0.25 * tol * abs(plan_cost)
            if not (within_reach and unsettled and settled < patience):
                break
            if n_sweeps + settled >= max_sweeps:
                break
        n_sweeps += settled
        for j in range(n_columns):
            potential[j] += reg * np.log(np.float64(v[j]))
        if tol == 0:
            finished = reg <= warm_ratio * abs(plan_cost)
        else:
            finished = n_sweeps >= max_sweeps
            if within_reach or finished:
                lower_bound = dual_bound(
                    cost, rows, weights, lower, upper, potential, row_prices, column_prices, filling
                )
                finished = finished or upper_bound - lower_bound <= tol * abs(upper_bound)
        if finished or level == MAX_LEVELS - 1:
            break
        # The last sweep's u belongs to the v before the step; the next level corrects it.
        _sharpen(kernel, u, v)
        v[:] = np.float32(1)
        reg *= 0.5
        for j in range(n_columns):
            exponent = min(max(-potential[j] / reg, -MAX_EXPONENT), MAX_EXPONENT)
            free[j] = np.float32(np.exp(exponent))
    return upper_bound, lower_bound, reg, n_sweeps
