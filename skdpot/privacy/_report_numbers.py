"""Numbers and days in readable form, rounded to the disadvantage of the one who releases."""

import math
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

_MONTHS = (
    "January February March April May June July August September October November December".split()
)
# Prices are computed in doubles: a relative difference of this size is a rounding error.
_NOISE = Decimal("1e-8")


def amount_up(number: float) -> str:
    """Return a spent amount, rounded up to two decimals, or to two digits if it is small.

    Examples
    --------
    >>> from skdpot.privacy._report_numbers import amount_down, amount_up
    >>> amount_up(2.00000000078653), amount_up(2.001), amount_up(0.00123)
    ('2.00', '2.01', '0.0013')
    >>> amount_down(0.999), amount_down(0.0), amount_down(float("inf"))
    ('0.99', '0.00', 'unlimited')
    """
    return _rounded(number, ROUND_CEILING)


def amount_down(number: float) -> str:
    """Return a remaining amount: as `amount_up`, rounded down."""
    return _rounded(number, ROUND_FLOOR)


def _rounded(number: float, rounding: str) -> str:
    if math.isinf(number):
        return "unlimited"
    if number > 1e15:
        return "more than 1,000,000,000,000,000"
    exact = Decimal(repr(float(number)))
    step = Decimal("0.01")
    if 0 < exact < Decimal("0.1"):
        step = Decimal(1).scaleb(exact.adjusted() - 1)
    nearest = exact.quantize(step)
    shown = nearest if abs(exact - nearest) <= exact * _NOISE else exact.quantize(step, rounding)
    text = f"{shown:,f}"
    # Small amounts have two significant digits, and every amount at least two decimals.
    while text.endswith("0") and len(text.rpartition(".")[2]) > 2:
        text = text[:-1]
    return text


def chance_up(delta: float) -> str:
    """Return a spent delta and its rarity in words, rounded up.

    Examples
    --------
    >>> from skdpot.privacy._report_numbers import chance_down, chance_up
    >>> chance_up(1e-5), chance_up(1.234e-6), chance_up(0.0)
    ('0.00001 (1 in 100,000)', '0.0000013 (1 in 810,372)', '0')
    >>> chance_down(1.28e-6)
    '0.0000012 (1 in 781,250)'
    """
    return _chance(delta, ROUND_CEILING, math.floor)


def chance_down(delta: float) -> str:
    """Return a remaining delta, rounded down."""
    return _chance(delta, ROUND_FLOOR, math.ceil)


def _chance(delta: float, rounding: str, rounded_inverse: Callable[[Decimal], int]) -> str:
    if delta == 0:
        return "0"
    exact = Decimal(repr(float(delta)))
    shown = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding).normalize()
    written = f"{shown:f}" if shown >= Decimal("1e-9") else f"{shown:e}"
    return f"{written} (1 in {rounded_inverse(1 / exact):,})"


def factor(epsilon: float) -> str:
    """Return the factor by which an epsilon can raise a probability, rounded up."""
    if epsilon > 30:
        return "more than 10 million million"
    grown = math.exp(epsilon)
    return amount_up(grown) if grown < 100 else f"{math.ceil(grown):,}"


def day(time: str) -> str:
    """Return the UTC day of a time.

    Examples
    --------
    >>> from skdpot.privacy._report_numbers import day
    >>> day("2031-03-05T12:00:00+00:00")
    '5 March 2031'
    """
    when = datetime.fromisoformat(time)
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"
