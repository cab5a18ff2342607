"""The exponential function between two integers, by its series in integer arithmetic alone."""

from fractions import Fraction
from functools import lru_cache


@lru_cache
def exp_bounds(x, bits=2048):
    """Return integers that enclose ``exp(x) * 2**bits``, for a float x from 1e-6 to 700.

    The series of ``exp(x / 2**halvings)`` is squared as often as x was halved; everything is
    rounded down for the lower bound and up for the upper one.
    """
    halvings = 20
    reduced = Fraction(x) / 2**halvings
    low = high = low_term = high_term = 1 << bits
    order = 0
    while high_term > 1:
        order += 1
        factor = reduced / order
        low_term = low_term * factor.numerator // factor.denominator
        high_term = -(-high_term * factor.numerator // factor.denominator)
        low, high = low + low_term, high + high_term
    # What remains of the series is smaller than its last term, since reduced < 1/2.
    high += high_term
    for _ in range(halvings):
        low = low * low >> bits
        high = -(-high * high >> bits)
    return low, high
