"""Compiled half steps of Sinkhorn's algorithm in the logarithmic domain, in double precision.

A half step answers column potentials by row potentials,

    f_i = -reg log sum_j b_j exp((g_j - c_ij) / reg),

and the same pass over the costs adds up the columns of the plan that both describe. Potentials are
in units of reg here, and `biased` is ``g / reg + log b``. The largest exponent of a row is
subtracted before exponentials are taken. So nothing overflows, and terms that underflow are
negligible. Costs are read once, or computed on the fly: a pass needs memory for a row or two.
"""

import math

import numpy as np

from .kernels import kernel, part

# exp(x) = 2**k exp(r) with r = x - k log 2: k is rounded by adding a number so large that no bits
# for fractions are left, and shifted into the exponent of a double.
_LOG2_E = 1.0 / math.log(2.0)
_LOG_2_HIGH = 6.93147180369123816490e-01
_LOG_2_LOW = 1.90821492927058770002e-10
_ROUNDER = 1.5 * 2.0**52
_EXPONENT_OF_ONE = 1023 << 52
_SMALLEST_EXPONENT = -708.0


@part(fastmath={"contract"})
def exponentials(values, scratch):
    """Replace values of at most 700 by their exponentials, in place; 1e-16 from the right ones.

    Written as loops that compilers turn into vector instructions. Libraries for doubles have none
    on most machines. Values below -708 are taken for that.
    """
    bits = scratch.view(np.int64)
    for j in range(len(values)):
        x = max(values[j], _SMALLEST_EXPONENT)
        k = x * _LOG2_E + _ROUNDER
        scratch[j] = k
        k = k - _ROUNDER
        r = x - k * _LOG_2_HIGH
        r = r - k * _LOG_2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        values[j] = p * r + 1.0
    for j in range(len(values)):
        bits[j] = (bits[j] << 52) + _EXPONENT_OF_ONE
    for j in range(len(values)):
        values[j] *= scratch[j]


# Minus infinity must be allowed, of columns without weight.
@part(fastmath={"nnan", "nsz", "reassoc", "contract"})
def _largest(values):
    largest = values[0]
    for j in range(len(values)):
        largest = max(largest, values[j])
    return largest


@part(fastmath=True)
def _total(values):
    total = 0.0
    for j in range(len(values)):
        total += values[j]
    return total


@part(fastmath={"contract"})
def _finish_row(exponents, scratch, weight, columns):
    """Return the potential of a row, add the row to the plan's columns, and leave it normalised."""
    largest = _largest(exponents)
    for j in range(len(exponents)):
        exponents[j] -= largest
    exponentials(exponents, scratch)
    total = _total(exponents)
    inverse = 1.0 / total
    for j in range(len(exponents)):
        exponents[j] *= inverse
        columns[j] += weight * exponents[j]
    return -(largest + math.log(total))


@kernel(fastmath={"contract"})
def answer_matrix(cost, low, reg, biased, weights, potential, columns, kept):
    """Answer column potentials by those of the rows of a cost matrix; add to the plan's columns.

    From the costs `low` is taken off first. The rows of the plan, with sum 1, are written to `kept`
    unless that is empty.
    """
    buffer, scratch = np.empty(len(biased)), np.empty(len(biased))
    for i in range(len(weights)):
        exponents = kept[i] if len(kept) else buffer
        row = cost[i]
        for j in range(len(biased)):
            exponents[j] = biased[j] - (row[j] - low) / reg
        potential[i] = _finish_row(exponents, scratch, weights[i], columns)


@kernel(fastmath={"contract"})
def answer_points(x, y_columns, squared, high, reg, biased, weights, potential, columns, kept):
    """Answer as `answer_matrix` does, for costs of at most `high` between points x and y."""
    buffer, scratch = np.empty(len(biased)), np.empty(len(biased))
    for i in range(len(weights)):
        exponents = kept[i] if len(kept) else buffer
        exponents[:] = 0.0
        for k in range(len(y_columns)):
            coordinate, others = x[i, k], y_columns[k]
            for j in range(len(biased)):
                difference = coordinate - others[j]
                exponents[j] += difference * difference
        if not squared:
            for j in range(len(biased)):
                exponents[j] = math.sqrt(exponents[j])
        for j in range(len(biased)):
            exponents[j] = biased[j] - min(exponents[j], high) / reg
        potential[i] = _finish_row(exponents, scratch, weights[i], columns)
