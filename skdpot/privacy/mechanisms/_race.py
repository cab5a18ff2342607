"""Exact noisy maxima: which of several real random variables is the largest.

Every candidate has a score, an exact rational number, plus a real random variable made of a uniform
number q, of which 62 bits are drawn at first. Doubles tell which sum can still be the largest; if
several can, bounds of higher precision decide, and more bits are drawn until one is left.
"""

import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from skdpot.privacy.exact_noise import MARGIN_BITS, exact_context

_BITS = 62
_CELLS = 1 << _BITS


@dataclass(frozen=True)
class NoiseKind:
    """The noise of a score, as a function of an exponential variable.

    Attributes
    ----------
    value : callable
        Noise as a function of the exponential variable, in doubles.
    enclosure : callable
        Bounds of the noise, as decimals, between bounds of the exponential variable, which may be
        0 and infinite.
    """

    value: Callable[[np.ndarray], np.ndarray]
    enclosure: Callable[[Any, Any], tuple[Any, Any]]


EXPONENTIAL = NoiseKind(value=lambda x: x, enclosure=lambda low, high: (low, high))
GUMBEL = NoiseKind(value=lambda x: -np.log(x), enclosure=lambda low, high: (-high.ln(), -low.ln()))


def noisy_argmax(
    source: Any,
    scores: np.ndarray,
    exact_score: Callable[[int], Fraction],
    n_draws: int,
    kind: NoiseKind,
) -> np.ndarray:
    """Return the index of the largest noisy score, in each of several independent draws.

    Scores are finite, and within ``2**-50`` of the exact ones, relative to their magnitudes.
    `exact_score` returns the exact score of a candidate.
    """
    words = source.bits(_BITS, (n_draws, len(scores)))
    noise = kind.value(_exponentials(words))
    sums = scores + noise
    margins = (1.0 + np.abs(scores) + np.abs(noise)) * 2.0**-MARGIN_BITS + _open(words)
    alive = sums + margins >= (sums - margins).max(axis=1, keepdims=True)
    winners = sums.argmax(axis=1)
    for draw in np.flatnonzero(alive.sum(axis=1) > 1):
        cells = {int(index): int(words[draw, index]) for index in np.flatnonzero(alive[draw])}
        winners[draw] = _decide(source, cells, exact_score, kind)
    return winners


def _exponentials(words: np.ndarray) -> np.ndarray:
    """Return ``-log(1 - q)`` for q in the middle of a cell, accurate near 0 and near 1."""
    lower_half = words < _CELLS // 2
    from_end = np.where(lower_half, words, _CELLS - 1 - words) + 0.5
    nearer = from_end * 2.0**-_BITS
    return np.where(lower_half, -np.log1p(-nearer), -np.log(nearer))


def _open(words: np.ndarray) -> np.ndarray:
    """Return the uncertainty of the exponential variable, or its logarithm, within a cell."""
    with np.errstate(all="ignore"):
        return 1.0 / words + 1.0 / (_CELLS - 1 - words)


def _decide(
    source: Any, cells: dict[int, int], exact_score: Callable[[int], Fraction], kind: NoiseKind
) -> int:
    """Return the candidate with the largest sum; bits are drawn until it is decided."""
    n_bits = _BITS
    while True:
        bounds = {
            index: _enclose(cell, n_bits, exact_score(index), kind) for index, cell in cells.items()
        }
        reached = max(low for low, _ in bounds.values())
        cells = {index: cell for index, cell in cells.items() if bounds[index][1] >= reached}
        if len(cells) == 1:
            return next(iter(cells))
        cells = {
            index: cell << _BITS | int(source.bits(_BITS, ())) for index, cell in cells.items()
        }
        n_bits += _BITS


def _enclose(cell: int, n_bits: int, score: Fraction, kind: NoiseKind) -> tuple[Any, Any]:
    """Return bounds of a noisy score, as decimals.

    With h digits before ``2**-n_bits``, and d = 2 h + 25 in all, the exponential variable is off by
    at most ``10**(2-d)`` times one plus itself. Unless it is zero it is at least ``10**-h``, and so
    its logarithm is off by at most ``10**(3-d+h)``, which is far less than the margin added here.
    """
    half = math.ceil(0.30103 * n_bits)
    with decimal.localcontext(exact_context(2 * half + 25)):
        low, high = kind.enclosure(_exponential(cell, n_bits), _exponential(cell + 1, n_bits))
        exact = decimal.Decimal(score.numerator) / decimal.Decimal(score.denominator)
        slack = decimal.Decimal(1).scaleb(-half - 10)
        below, above = (slack * (1 + abs(exact) + abs(noise)) for noise in (low, high))
        return exact + low - below, exact + high + above


def _exponential(cell: int, n_bits: int) -> decimal.Decimal:
    """Return ``-log(1 - cell / 2**n_bits)``, to the precision of the context."""
    left = decimal.Decimal((1 << n_bits) - cell)
    return -(left / decimal.Decimal(1 << n_bits)).ln()
