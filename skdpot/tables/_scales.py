"""Scales with evenly spaced units of real numbers: linear and logarithmic."""

import numpy as np

LINEAR, LOG = "linear", "log"
SCALES = (LINEAR, LOG)
_MOST_DIGITS = 15


def scaled(values: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the places of a column's numbers on its scale, in the same order.

    The scale ``"log"`` is the logarithm if the lower bound is above 0. Otherwise it is ``sign(x) *
    log(1 + |x|)``, which is about linear from -1 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._scales import scaled
    >>> scaled(np.array([-9.0, 0.0, 99.0]), "log", -9.0) / np.log(10)
    array([-1.,  0.,  2.])
    """
    if scale == LINEAR:
        return values
    return np.log(values) if low > 0 else np.sign(values) * np.log1p(np.abs(values))


def roundest(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return numbers in [low, high) with as few decimals as possible.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._scales import roundest
    >>> roundest(np.array([74.9996, 0.1231, 2.0]), np.array([75.0002, 0.1241, 2.0]))
    array([75.   ,  0.124,  2.   ])
    """
    numbers, remaining = np.array(low, dtype=np.float64), np.asarray(low < high)
    for n_decimals in range(-_MOST_DIGITS, _MOST_DIGITS + 1):
        power = 10.0 ** abs(n_decimals)
        if n_decimals < 0:
            candidates = np.ceil(low / power) * power
        else:
            candidates = np.ceil(low * power) / power
        fits = remaining & (candidates >= low) & (candidates < high)
        numbers[fits] = candidates[fits]
        remaining = remaining & ~fits
        if not remaining.any():
            break
    return numbers


def with_few_decimals(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the number in [low, high) that is far rounder than others; NaN if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._scales import with_few_decimals
    >>> with_few_decimals(np.array([74.9999, 75.0001]), np.array([75.0001, 75.0003]))
    array([75., nan])
    """
    with np.errstate(all="ignore"):
        power = 10.0 ** (np.floor(-np.log10(high - low)) - 1)
        steps = np.ceil(low * power)
        short = np.where(power < 1, steps * (1 / power), steps / power)
    return np.where((short >= low) & (short < high), short, np.nan)


def unscaled(places: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the numbers at places of a scale.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._scales import unscaled
    >>> unscaled(np.log([2.0, 8.0]), "log", 1.0).round(9)
    array([2., 8.])
    """
    if scale == LINEAR:
        return places
    return np.exp(places) if low > 0 else np.sign(places) * np.expm1(np.abs(places))
