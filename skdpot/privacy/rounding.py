"""Rounding to the safe side: the scale of noise is never too small."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

# A few roundings change a number by less than this share.
RAISED = 1 + 2.0**-40
# More than the rounding errors of the formulas of sensitivities.
_MARGIN = 1e-12


def as_written(number: float) -> Fraction:
    """Return the decimal number that a finite double is written as: 0.1 is one tenth.

    It is the shortest decimal that rounds to the double, and may be less or more than it.
    """
    return Fraction(repr(float(number)))


def least_meant(number: float) -> Fraction:
    """Return a finite double or the decimal number that it is written as, whichever is less."""
    return min(Fraction(number), as_written(number))


def written_rounded_up(exact: Fraction) -> float:
    """Return the smallest double that is written as this number or more, or infinity."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if as_written(nearest) >= exact else math.nextafter(nearest, math.inf)


def written_rounded_down(exact: Fraction) -> float:
    """Return the largest double that is written as this number or less."""
    nearest = float(exact)
    return nearest if as_written(nearest) <= exact else math.nextafter(nearest, -math.inf)


def sum_rounded_up(a: Any, b: Any) -> Any:
    """Return the smallest doubles that are at least the sums of doubles, or of arrays of them."""
    total = a + b
    # The rounding error of the sum, exactly (Knuth's two-sum); NaN next to infinity.
    rest = total - a
    lost = (a - (total - rest)) + (b - rest)
    if isinstance(total, np.ndarray):
        return np.where(lost > 0, np.nextafter(total, np.inf), total)
    return math.nextafter(total, math.inf) if lost > 0 else total


def inverse_rounded_up(x: float) -> float:
    """Return the smallest double that is at least 1 / x, for x as a double and as written."""
    inverse = 1.0 / x
    return fraction_rounded_up(1 / least_meant(x)) if math.isfinite(inverse) else inverse


def fraction_rounded_up(exact: Fraction) -> float:
    """Return the smallest double that is at least this number."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def raised_by_margin(bound: Any) -> Any:
    """Return a slightly raised bound, to cover rounding errors; as plain floats for numbers.

    A bound beyond the range of doubles is infinite.
    """
    with np.errstate(over="ignore"):
        raised = np.asarray(bound * (1 + _MARGIN))
    return raised if raised.ndim else float(raised)
