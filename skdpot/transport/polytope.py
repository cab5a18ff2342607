"""The LDP polytope M_s = {nu : s <= nu <= exp(epsilon) s, sum nu = 1}: checks, rounding, duality.

Users' distributions are CSR rows; a user's kernel sees the numbers of the input points in use
(`rows`), their weights, and the rows of the cost matrix that belong to them.
"""

import math
import operator

import numpy as np
from scipy import sparse

from .kernels import kernel, lesser, part, run

_MASS_TOLERANCE = 1e-9
_ROUNDING = 1e-13
# Of the interpreter, an output point and user.
_SECONDS = 1e-5


def check_epsilon(epsilon):
    """Return epsilon as a float; raise if it is not positive or its exponential overflows.

    Examples
    --------
    >>> from skdpot.transport import check_epsilon
    >>> check_epsilon(1)
    1.0
    """
    epsilon = float(epsilon)
    # This refuses NaN, too, which `epsilon <= 0` would let pass.
    if not epsilon > 0:
        raise ValueError(f"epsilon must be positive, got {epsilon}.")
    if epsilon > 700:
        raise ValueError(
            f"epsilon={epsilon} is too large: exp(epsilon) overflows. Choose epsilon <= 700; "
            "beyond about 40 nothing is protected."
        )
    return epsilon


def check_cost_matrix(cost_matrix):
    """Return the cost matrix as finite contiguous float64 of shape (n_inputs, n_outputs).

    Examples
    --------
    >>> from skdpot.transport import check_cost_matrix
    >>> check_cost_matrix([[0, 1]])
    array([[0., 1.]])
    """
    cost_matrix = _as_doubles(cost_matrix, "cost_matrix")
    if cost_matrix.ndim != 2 or 0 in cost_matrix.shape:
        raise ValueError(
            "cost_matrix must be non-empty, of shape (n_inputs, n_outputs), got "
            f"{cost_matrix.shape}."
        )
    if not np.isfinite(cost_matrix).all():
        raise ValueError(
            "cost_matrix contains NaN or infinity: give a large number where mass must not move."
        )
    return cost_matrix


def _as_doubles(values, name):
    """Return an array of float64; raise if a mask would be lost."""
    if np.ma.isMaskedArray(values):
        raise TypeError(f"{name} is a masked array, whose mask would be lost: fill it first.")
    # Kernels read rows, and are compiled for this type alone.
    return np.asarray(values, dtype=np.float64, order="C")


def check_numbers(values, name, n_dim):
    """Return a vector or matrix as float64; raise if it is empty, or not all is finite."""
    values = _as_doubles(values, name)
    if values.ndim != n_dim or not values.size or not np.isfinite(values).all():
        kind = "vector" if n_dim == 1 else "matrix"
        shape = values.shape
        raise ValueError(f"{name} must be a non-empty {kind} of finite numbers, got shape {shape}.")
    return values


def check_stopping(tol, **numbers):
    """Raise unless a tolerance is positive and finite, and numbers, or None, are at least 1."""
    if not 0 < float(tol) < math.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}.")
    for name, number in numbers.items():
        if number is not None and operator.index(number) < 1:
            raise ValueError(f"{name} must be at least 1, got {number}.")


def check_range(low, high, name, power=1):
    """Raise if numbers between these differ by more than a double can hold."""
    # The difference may overflow although both numbers are finite.
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float64(high - low) ** power):
            raise ValueError(
                f"{name} from {low:.3g} to {high:.3g} differ by more than a double can hold: "
                "rescale them."
            )


def check_weights(weights, length, name):
    """Return non-negative weights with sum 1 as float64; raise if they are not, up to 1e-9.

    Private weights must be valid before, because an error reveals that they are not.
    """
    weights = _as_doubles(weights, name)
    if weights.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), got {weights.shape}.")
    if not (weights >= 0).all() or not abs(weights.sum() - 1) <= _MASS_TOLERANCE:
        raise ValueError(f"{name} must hold non-negative weights with sum 1.")
    # A sum that is off by rounding would be off in all that is computed from it.
    return weights / weights.sum()


def check_masses(masses, groups):
    """Return the masses of all groups' points, equal ones where none are given."""
    given = [None] * len(groups) if masses is None else masses
    if len(given) != len(groups):
        raise ValueError(f"masses are of {len(given)} groups, points of {len(groups)}.")
    return [
        np.full(len(group), 1 / len(group))
        if one is None
        else check_weights(one, len(group), f"masses[{s}]")
        for s, (one, group) in enumerate(zip(given, groups, strict=True))
    ]


def check_base_measure(base_measure, epsilon, n_outputs):
    """Return the base measure as float64 if its polytope is not empty, or raise.

    Sums may miss their bounds by 1e-9, which is then mended by scaling. The base measure is public,
    and so are the errors that it causes.

    Examples
    --------
    >>> from skdpot.transport import check_base_measure
    >>> check_base_measure([0.25, 0.25], epsilon=1.0, n_outputs=2)
    array([0.25, 0.25])
    """
    base = _as_doubles(base_measure, "base_measure").copy()
    if base.shape != (n_outputs,):
        raise ValueError(
            f"base_measure must have one entry per output point ({n_outputs}), got {base.shape}."
        )
    if not np.isfinite(base).all() or base.min() < 0:
        raise ValueError("base_measure must be finite and non-negative.")
    ratio = math.exp(check_epsilon(epsilon))
    # Without rounding, so that a measure that was checked once passes again.
    total = math.fsum(base)
    if total > 1 + _MASS_TOLERANCE:
        raise ValueError(
            f"infeasible base_measure: it sums to {total:.6g}, more than 1, so no distribution "
            "lies above it. Scale it down."
        )
    if ratio * total < 1 - _MASS_TOLERANCE:
        raise ValueError(
            f"infeasible base_measure: exp(epsilon) times its sum is {ratio * total:.6g}, less "
            "than 1, so no distribution lies below exp(epsilon) times it. Scale it up."
        )
    # Rounding is not corrected, so a measure that was checked once is not changed again.
    if 1 - _ROUNDING <= ratio * total and total <= 1 + _ROUNDING:
        return base
    return base * (np.clip(total, 1 / ratio, 1.0) / total)


def normalise_rows(weights):
    """Return non-negative rows as CSR float64 with rows that sum to 1 and no explicit zeros.

    A single row may be one-dimensional. Raises if a weight is negative or not finite, or a row is
    all zero, and names the row: the fact that all rows are distributions is not protected.

    Examples
    --------
    >>> from skdpot.transport import normalise_rows
    >>> normalise_rows([[1, 3], [2, 0]]).toarray()
    array([[0.25, 0.75],
           [1.  , 0.  ]])
    """
    if sparse.issparse(weights):
        rows = weights.tocsr().astype(np.float64, copy=True)
        # Duplicates would be two points at one place, and zeros points without mass.
        rows.sum_duplicates()
        rows.eliminate_zeros()
    else:
        rows = sparse.csr_array(np.atleast_2d(_as_doubles(weights, "weights")))
    if not np.isfinite(rows.data).all():
        raise ValueError("weights contain NaN or infinity.")
    if rows.data.size and rows.data.min() < 0:
        raise ValueError("weights must be non-negative.")
    # Division by the largest weight first, so sums neither overflow nor vanish.
    maxima = rows.max(axis=1).toarray().ravel()
    empty = np.flatnonzero(maxima == 0)
    if empty.size:
        raise ValueError(
            f"row {empty[0]} is all zero, so it is no distribution. Give it weights that do not "
            "depend on anybody's data, such as all ones: its absence reveals that it is empty."
        )
    lengths = np.diff(rows.indptr)
    rows.data /= np.repeat(maxima, lengths)
    rows.data /= np.repeat(np.asarray(rows.sum(axis=1)).ravel(), lengths)
    rows.eliminate_zeros()
    return rows


def nearest_distribution(weights: np.ndarray) -> np.ndarray:
    """Return the probability vector that is nearest to a vector in the Euclidean sense.

    A constant is subtracted, and negative entries become 0. The result is as private as the vector:
    for released vectors this is post-processing.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport import nearest_distribution
    >>> nearest_distribution(np.array([0.7, 0.5, -0.3]))
    array([0.6, 0.4, 0. ])
    """
    # Differences keep their digits, however large the entries are.
    weights = weights - weights.max()
    falling = np.sort(weights)[::-1]
    constants = (np.cumsum(falling) - 1.0) / np.arange(1, len(falling) + 1)
    constant = constants[np.flatnonzero(falling > constants)[-1]]
    projected = np.maximum(weights - constant, 0.0)
    return projected / projected.sum()


@part
def max_spread(cost, rows):
    """Return the most that changing the destination of a unit of mass can cost."""
    spread = 0.0
    for row in rows:
        spread = max(spread, cost[row].max() - cost[row].min())
    return spread


@part
def round_into_box(columns, lower, upper):
    """Move `columns` in place into the box, with sum 1; return the L1 distance moved.

    The mass that clipping adds or removes is balanced by the remaining slack in proportion; the box
    holds a vector of sum 1 up to rounding, so a few rounds end at rounding error.
    """
    moved = 0.0
    for j in range(len(columns)):
        clipped = min(max(columns[j], lower[j]), upper[j])
        moved += abs(clipped - columns[j])
        columns[j] = clipped
    # Each round mends what the last one missed by: a few end at rounding error.
    for _ in range(8):
        # Neumaier's summation: many small masses must not hide an error of 1e-13.
        total = 0.0
        carry = 0.0
        for j in range(len(columns)):
            step = total + columns[j]
            if abs(total) >= columns[j]:
                carry += (total - step) + columns[j]
            else:
                carry += (columns[j] - step) + total
            total = step
        missing = 1.0 - total - carry
        if abs(missing) <= 1e-15:
            break
        slack = 0.0
        for j in range(len(columns)):
            slack += upper[j] - columns[j] if missing > 0 else columns[j] - lower[j]
        if slack <= 0:
            break
        # In proportion to the slack, no entry can leave the box, but for rounding.
        share = min(abs(missing) / slack, 1.0)
        moved += abs(missing)
        for j in range(len(columns)):
            if missing > 0:
                moved_to = columns[j] + share * (upper[j] - columns[j])
            else:
                moved_to = columns[j] - share * (columns[j] - lower[j])
            # Rounding of that product must not leave the box: privacy is that bounds hold exactly.
            columns[j] = min(max(moved_to, lower[j]), upper[j])
    return moved


@part
def cheapest_in_box(prices, lower, upper):
    """Return the minimum of <prices, nu> over the box and sum 1."""
    remaining, value = 1.0, 0.0
    for j in range(len(prices)):
        remaining -= lower[j]
        value += lower[j] * prices[j]
    for j in np.argsort(prices, kind="mergesort"):
        if remaining <= 0:
            break
        # The cheapest first is optimal, since only the sum joins the entries.
        extra = min(upper[j] - lower[j], remaining)
        remaining -= extra
        value += extra * prices[j]
    return value


@part
def smallest_difference(costs, prices):
    """Return ``min(costs - prices)``; both are finite."""
    minimum = costs[0] - prices[0]
    for j in range(len(prices)):
        minimum = lesser(costs[j] - prices[j], minimum)
    return minimum


@part
def any_below(costs, prices, bound):
    """Tell whether ``costs - prices`` is below a bound somewhere: four times as fast as a minimum.

    There is no way out of the loop, so that it is made of vector instructions.
    """
    found = False
    for j in range(len(prices)):
        found |= costs[j] - prices[j] < bound
    return found


@part
def c_transform(cost, rows, weights, potential, row_prices, column_prices):
    """Set ``f_i = min_j (C_ij - g_j)`` and ``h_j = min_i (C_ij - f_i)`` for any `potential` g.

    Returns ``sum_i P_i f_i``; with the minimum of <h, nu> over the polytope it is the dual value.
    """
    column_prices[:] = np.inf
    value = 0.0
    for i in range(len(rows)):
        row_cost = cost[rows[i]]
        row_prices[i] = smallest_difference(row_cost, potential)
        # Any potential is feasible after this step, whatever it was: no trust in a solver is
        # needed.
        value += weights[i] * row_prices[i]
        for j in range(len(column_prices)):
            column_prices[j] = lesser(row_cost[j] - row_prices[i], column_prices[j])
    return value


transform_prices = kernel(c_transform)


@part
def dual_bound(cost, rows, weights, lower, upper, potential):
    """Return a lower bound on the projection's cost, the best one for any `potential`."""
    row_prices, column_prices = np.empty(len(rows)), np.empty(len(potential))
    value = c_transform(cost, rows, weights, potential, row_prices, column_prices)
    return value + cheapest_in_box(column_prices, lower, upper)


@part
def cheapest_in_free_box(prices, lower, upper):
    """Return the minimum of <prices, nu> over the box with any sum, which saves a sort.

    As a part of a dual bound it is as good as that with sum 1 where the price of the sum is zero,
    as the network simplex leaves it.
    """
    value = 0.0
    for j in range(len(prices)):
        value += min(lower[j] * prices[j], upper[j] * prices[j])
    return value


def clip_to_polytope(probabilities, base_measure, epsilon):
    """Return probability vectors moved into the polytope where rounding left them outside.

    Bounds then hold exactly in double precision, and sums to 1e-12. The vectors are *not private*:
    only a sample drawn from them is.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport import clip_to_polytope
    >>> clip_to_polytope(np.array([[0.75 + 1e-12, 0.25 - 1e-12]]), [0.25, 0.25], np.log(3)).round(9)
    array([[0.75, 0.25]])
    """
    # A copy, which the kernel changes in place.
    clipped = np.array(probabilities, dtype=np.float64)
    base = check_base_measure(base_measure, epsilon, clipped.shape[1])
    run(_clip_rows, _SECONDS * clipped.size, clipped, base, math.exp(epsilon) * base)
    return clipped


@kernel
def _clip_rows(probabilities, lower, upper):
    for user in range(len(probabilities)):
        round_into_box(probabilities[user], lower, upper)


@part
def _scale_into_box(weights, lower, upper, nu):
    """Set ``nu = clip(r weights, lower, upper)`` with sum 1 where such an r exists.

    Where the weights' support cannot take all the mass, it is filled to its upper bounds and the
    rest is spread over the other points in proportion to their slack.
    """
    # Weights that would have to be scaled by more than this are as good as zero, and would
    # overflow.
    max_scale = 1e300
    n_columns = len(weights)
    breakpoints = np.empty(2 * n_columns)
    slopes = np.empty(2 * n_columns)
    size = 0
    outside_slack = 0.0
    filled = 0.0
    base = 0.0
    for j in range(n_columns):
        base += lower[j]
        if upper[j] < max_scale * weights[j] and upper[j] > 0:
            # As the factor grows, an entry leaves its lower bound here, and stays at its upper one
            # there.
            breakpoints[size], slopes[size] = lower[j] / weights[j], weights[j]
            breakpoints[size + 1], slopes[size + 1] = upper[j] / weights[j], -weights[j]
            size += 2
            filled += upper[j]
        else:
            filled += lower[j]
            outside_slack += upper[j] - lower[j]
    # Even a full support cannot take all the mass: no factor r exists.
    if filled < 1:
        share = min((1 - filled) / outside_slack, 1.0) if outside_slack > 0 else 0.0
        filled_up = lower + share * (upper - lower)
        nu[:] = np.where(upper < max_scale * weights, upper, filled_up)
    else:
        order = np.argsort(breakpoints[:size], kind="mergesort")
        total, slope, scale = base, 0.0, 0.0
        for index in order:
            step = slope * (breakpoints[index] - scale)
            # The sum grows linearly between breakpoints, and passes 1 in this piece.
            if total + step >= 1:
                break
            total += step
            scale = breakpoints[index]
            slope += slopes[index]
        if slope > 0:
            scale += (1 - total) / slope
        nu[:] = np.minimum(np.maximum(scale * weights, lower), upper)
    round_into_box(nu, lower, upper)


@kernel
def _scale_rows(weights, lower, upper, projections):
    for user in range(len(weights)):
        _scale_into_box(weights[user], lower, upper, projections[user])


def kl_projection(weights, base_measure, epsilon):
    """Project distributions onto the LDP polytope in the Kullback-Leibler sense.

    ``nu = clip(r P, s, exp(epsilon) s)`` with the r that makes the sum 1. No such r exists when
    the support of P cannot take all the mass (a Dirac, say): the support is then filled to its
    upper bounds and the rest spread over the other points in proportion to their slack. Like every
    projection, the result is *not private*.

    Parameters
    ----------
    weights : {array-like, sparse matrix} of shape (n_users, n_outputs)
        Non-negative weights over the output points; rows are normalised.
    base_measure : array-like of shape (n_outputs,)
        The base measure s, with ``sum(s) <= 1 <= exp(epsilon) sum(s)``.
    epsilon : float
        Privacy parameter of the local differential privacy constraint.

    Returns
    -------
    ndarray of shape (n_users, n_outputs)
        Vectors of the polytope: bounds hold exactly in double precision, sums to 1e-12.

    Raises
    ------
    ValueError
        If weights, base measure or epsilon are not valid; nothing is computed then.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, which compares
    itself with it. What is done where no r exists: :ref:`proof-kl-projection`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport import kl_projection
    >>> kl_projection([[0.7, 0.2, 0.1, 0.0]], np.full(4, 0.15), np.log(3)).round(3)
    array([[0.45, 0.25, 0.15, 0.15]])
    """
    rows = normalise_rows(weights)
    base = check_base_measure(base_measure, epsilon, rows.shape[1])
    projections = np.empty(rows.shape)
    upper = math.exp(epsilon) * base
    run(_scale_rows, _SECONDS * projections.size, rows.toarray(), base, upper, projections)
    return projections
