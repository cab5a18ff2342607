"""Rounding against whoever releases: what noise is scaled to is never too small."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

# What comes from a few roundings is less than this share.
RAISED = 1 + 2.0**-40
# More than the rounding errors of the formulas of sensitivities.
_MARGIN = 1e-12


def inverse_rounded_up(x: float) -> float:
    """Return the smallest double that is at least 1 / x."""
    inverse = 1.0 / x
    if math.isfinite(inverse) and Fraction(inverse) * Fraction(x) < 1:
        return math.nextafter(inverse, math.inf)
    return inverse


def fraction_rounded_up(exact: Fraction) -> float:
    """Return the smallest double that is at least this."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def raised_by_margin(bound: Any) -> Any:
    """Return a little more than a bound that was computed in doubles, and plain floats for numbers.

    What is then beyond the range of doubles is infinite.
    """
    with np.errstate(over="ignore"):
        raised = np.asarray(bound * (1 + _MARGIN))
    return raised if raised.ndim else float(raised)
