"""The exact price of Gaussian noise."""

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, ndtri

# Prices are raised by this share, which is far above the rounding errors here.
_MARGIN = 1e-12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for epsilon between N(0, 1) and N(mu, 1), rounded up.

    Here mu is sensitivity over standard deviation, and ``sqrt(T)`` times that for T releases. Delta
    is ``ndtr(-a) - exp(epsilon) ndtr(-a - mu)`` with ``a = epsilon / mu - mu / 2``. With density f
    and Mills' ratio ``M = ndtr(-x) / f(x)`` this is ``f(a) (M(a) - M(a + mu))``, because
    ``exp(epsilon) f(a + mu) = f(a)``. This form is accurate for tiny deltas.
    """
    if mu == 0:
        return 0.0
    shift = epsilon / mu - mu / 2
    if shift < -30:
        # The difference from 1 is below the smallest step of a double.
        return 1.0
    # Farther out, all values are below the smallest double, and this one is returned.
    shift = min(shift, 40.0)
    density = math.exp(-(shift**2) / 2) / math.sqrt(2 * math.pi)
    if mu > 0.5:
        drop = _mills(shift) - _mills(shift + mu)
    else:
        # The integral of -M' = 1 - x M over a short interval: no difference of nearly equal
        # numbers.
        x = shift + mu * (_NODES + 1) / 2
        drop = mu / 2 * float(_WEIGHTS @ (1 - x * _mills(x)))
    return min(max(density * float(drop) * (1 + _MARGIN), math.ulp(0.0)), 1.0)


def _mills(x: Any) -> Any:
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon for delta between N(0, 1) and N(mu, 1), rounded up."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    # delta <= ndtr(-a), so that this epsilon is enough.
    highest = max(mu**2 / 2 - mu * float(ndtri(delta)), 0.0)

    def excess(epsilon: float) -> float:
        return math.log(gaussian_delta(epsilon, mu)) - math.log(delta)

    if excess(highest) >= 0:
        return highest * (1 + _MARGIN)
    return brentq(excess, 0.0, highest, xtol=1e-300, rtol=1e-15) * (1 + _MARGIN)
