"""Scales on which the units of real numbers are evenly spaced: linear, and logarithmic."""

import numpy as np

LINEAR, LOG = "linear", "log"
SCALES = (LINEAR, LOG)


def scaled(values: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return numbers of a column as places on its scale, which are in the same order.

    The scale ``"log"`` is the logarithm where the lower bound is above 0. Elsewhere it is
    ``sign(x) * log(1 + |x|)``, which is about linear from -1 to 1.

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


def unscaled(places: np.ndarray, scale: str, low: float) -> np.ndarray:
    """Return the numbers that are at places of a scale.

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
