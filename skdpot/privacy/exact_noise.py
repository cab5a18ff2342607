"""Integer noise whose distribution is exactly that of a rounded real variable.

A variable X is represented by the bits of a uniform number drawn so far. They put X into an
interval, and if the whole interval rounds to one integer, no more bits are needed. Doubles nearly
always decide this; if they are too close, bounds of higher precision do, and more bits are drawn
until they can.
"""

import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri, ndtri_exp

# For larger scales, doubles could decide hardly any draw.
LARGEST_SCALE = 2.0**40
# Maximum magnitude of noise: a larger one takes more than 2**22 standard deviations.
SATURATION = 1 << 62

# Bits of the tail probability that are drawn at a time.
_TAIL_BITS = 62
# Doubles are trusted up to an error of 2**-MARGIN_BITS times one plus the result: 30 times the
# largest error of `ndtri`, and 100 times that of the logarithm. (Tests compare both with arithmetic
# of 60 digits.)
MARGIN_BITS = 46
# A smaller tail number has too few significant bits for doubles.
_SMALLEST_TAIL = 1 << 10


def rounded_gaussian(source: Any, scale: Any, size: Any) -> np.ndarray:
    """Return ``round(scale * G)`` for exact, real, independent standard Gaussian variables G.

    Parameters
    ----------
    source : NoiseSource
        Where the bits come from.
    scale : float or array-like of float
        Standard deviation in units of the grid, above 0 and at most ``2**40``; broadcast to the
        shape of the result.
    size : int or tuple of int
        Shape of the result.

    Returns
    -------
    ndarray of int64
        The noise, clipped to a magnitude of ``2**62``.

    Raises
    ------
    ValueError
        If the scale is out of its range.

    Notes
    -----
    ``|G|`` exceeds t where a uniform number p is below ``P(|G| > t)``. The first 62 bits of p, and
    a sign, are drawn for all variables at once. The distribution of the result is exact if the
    error of ``scipy.special.ndtri`` is below ``2**-46 (1 + |G|)``, and however bad it is where more
    bits had to be drawn. Its time depends only on the noise and the scale.

    Examples
    --------
    >>> from skdpot.privacy.exact_noise import rounded_gaussian
    >>> from skdpot.privacy.random import make_source
    >>> rounded_gaussian(make_source(0), 1000.0, 4).tolist()
    [2456, 1132, 720, 1688]
    """
    return _rounded(source, scale, size, _GAUSSIAN)


def rounded_laplace(source: Any, scale: Any, size: Any) -> np.ndarray:
    """Return ``round(scale * L)`` for exact, real, independent standard Laplace variables L.

    All is as for :func:`rounded_gaussian`, with ``P(|L| > t) = exp(-t)``: `scale` is the mean
    magnitude in units of the grid.

    Examples
    --------
    >>> from skdpot.privacy.exact_noise import rounded_laplace
    >>> from skdpot.privacy.random import make_source
    >>> rounded_laplace(make_source(0), 1000.0, 4).tolist()
    [4264, 1356, 752, 2392]
    """
    return _rounded(source, scale, size, _LAPLACE)


@dataclass(frozen=True)
class _Kind:
    """A symmetric distribution: the magnitude for a tail probability, and the reverse.

    Attributes
    ----------
    quantile : callable
        The magnitude that goes with tail probabilities, in doubles.
    quantile_of_log : callable
        The same for the logarithm of one tail probability, however small.
    tail : callable
        Integers that enclose ``2**n_bits`` times the probability to exceed a rational magnitude.
    """

    quantile: Callable[[np.ndarray], np.ndarray]
    quantile_of_log: Callable[[float], float]
    tail: Callable[[Fraction, int], tuple[int, int]]


def _rounded(source: Any, scale: Any, size: Any, kind: _Kind) -> np.ndarray:
    scales = np.asarray(scale, dtype=np.float64)
    refused = scales[~((scales > 0) & (scales <= LARGEST_SCALE))]
    if refused.size:
        raise ValueError(
            f"scale must be above 0 and at most 2**40 grid points, got {float(refused[0])!r}."
        )
    words = source.bits(_TAIL_BITS + 1, size)
    scales = np.broadcast_to(scales, words.shape).ravel()
    tails = words.ravel() >> 1
    quantiles = kind.quantile((tails + 0.5) * 2.0**-_TAIL_BITS)
    values = scales * quantiles
    nearest = np.rint(values)
    # The undrawn bits leave the magnitude open by a little less than 1 / (tails + 1).
    uncertain = scales * ((1.0 + quantiles) * 2.0**-MARGIN_BITS + 1.0 / (tails + 1.0))
    unclear = (np.abs(values - nearest) >= 0.5 - uncertain) | (tails < _SMALLEST_TAIL)
    magnitudes = nearest.astype(np.int64)
    for index in np.flatnonzero(unclear):
        magnitudes[index] = _decide(source, Fraction(scales[index]), int(tails[index]), kind)
    return magnitudes.reshape(words.shape) * (1 - 2 * (words & 1))


def _decide(source: Any, scale: Fraction, tail: int, kind: _Kind) -> int:
    """Return the magnitude of the variable whose tail probability begins with these bits."""
    n_bits = _TAIL_BITS

    def guess() -> int:
        log_tail = math.log(2 * tail + 1) - (n_bits + 1) * math.log(2)
        return round(float(scale) * kind.quantile_of_log(log_tail))

    def exceeds(magnitude: int) -> bool | None:
        """Tell whether the variable lies above a number; None if the bits do not decide it."""
        low, high = kind.tail(Fraction(2 * magnitude + 1, 2) / scale, n_bits)
        if tail + 1 <= low:
            return True
        return False if tail >= high else None

    magnitude = guess()
    while True:
        reached = magnitude == 0 or exceeds(magnitude - 1)
        passed = exceeds(magnitude)
        if reached and passed is False:
            return min(magnitude, SATURATION)
        if reached is None or passed is None:
            tail = tail << _TAIL_BITS | int(source.bits(_TAIL_BITS, ()))
            n_bits += _TAIL_BITS
            magnitude = guess()
        else:
            magnitude += 1 if passed else -1


def exact_context(digits: int) -> decimal.Context:
    """Return a context with so many digits, without traps, that rounds to nearest.

    It is independent of the context that the caller's thread happens to be in.
    """
    return decimal.Context(prec=digits, rounding=decimal.ROUND_HALF_EVEN, traps=[])


def _digits(n_bits: int) -> int:
    """Return the number of digits that resolves steps of ``2**-n_bits``, with twelve to spare."""
    return math.ceil(0.30103 * n_bits) + 12


def _laplace_tail(t: Fraction, n_bits: int) -> tuple[int, int]:
    """Return bounds of ``2**n_bits exp(-t)``."""
    if t > 0.6932 * n_bits:
        return 0, 1
    digits = _digits(n_bits)
    context = exact_context(digits)
    quotient = context.divide(decimal.Decimal(t.numerator), decimal.Decimal(t.denominator))
    # A relative error of half a unit in t is an error of t exp(-t) < 1 such units in the result.
    return _scale_up(context.exp(context.minus(quotient)), 20, digits, n_bits)


def _gaussian_tail(t: Fraction, n_bits: int) -> tuple[int, int]:
    """Return bounds of ``2**n_bits P(|G| > t)``.

    ``P(|G| < t) = sqrt(2/pi) exp(-t^2/2) (t + t^3/3 + t^5/(3*5) + ...)``. All terms are positive,
    so that relative errors of 5e-d, for d digits, only add up: at most ``6 n`` of them for n terms,
    ``1.5 t^2`` for the exponential and a dozen for the rest. The terms at the end of the sum at
    least halve, so the omitted ones add up to less than the last one.
    """
    if t * t > 1.3863 * n_bits:  # P(|G| > t) <= exp(-t^2/2)
        return 0, 1
    digits = _digits(n_bits)
    with decimal.localcontext(exact_context(digits)):
        magnitude = decimal.Decimal(t.numerator) / decimal.Decimal(t.denominator)
        square = magnitude * magnitude
        term = total = magnitude
        n_terms = 1
        while term > total.scaleb(-digits) or square > n_terms:
            term = term * square / (2 * n_terms + 1)
            total += term
            n_terms += 1
        inside = (2 / _pi(digits)).sqrt() * (-square / 2).exp() * total
        return _scale_up(1 - inside, 40 * (n_terms + int(square) + 10), digits, n_bits)


def _scale_up(value: decimal.Decimal, slack: int, digits: int, n_bits: int) -> tuple[int, int]:
    """Return bounds of ``2**n_bits`` times a number, with an error of ``slack`` last digits."""
    unit = 10**digits
    numerator, denominator = value.as_integer_ratio()
    units = numerator * unit // denominator
    return (units - slack << n_bits) // unit, -(-(units + 1 + slack << n_bits) // unit)


@lru_cache
def _pi(digits: int) -> decimal.Decimal:
    """Return pi within one unit of the last digit, by Machin's formula."""
    unit = 10 ** (digits + 10)

    def arctangent_of_inverse(x: int) -> int:
        term, total, order = unit // x, 0, 1
        while term:
            total += term // order if order % 4 == 1 else -(term // order)
            term //= x * x
            order += 2
        return total

    scaled = 16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)
    return exact_context(digits + 10).scaleb(decimal.Decimal(scaled), -(digits + 10))


_GAUSSIAN = _Kind(
    quantile=lambda tail: -ndtri(0.5 * tail),
    quantile_of_log=lambda log_tail: float(-ndtri_exp(log_tail - math.log(2))),
    tail=_gaussian_tail,
)
_LAPLACE = _Kind(
    quantile=lambda tail: -np.log(tail),
    quantile_of_log=lambda log_tail: -log_tail,
    tail=_laplace_tail,
)
