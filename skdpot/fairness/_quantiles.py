"""The quantile function of a distribution of numbers, and their resolution."""

import math
from dataclasses import dataclass

import numpy as np

# Predictions that differ by rounding count as equal: the rounding of a prediction depends on the
# batch of its row. Predictions are rounded to multiples of a power of two, this share of the
# largest one.
_RESOLUTION_BITS = 36


@dataclass(frozen=True, eq=False)
class QuantileFunction:
    """A distribution of numbers, given by its quantiles.

    Attributes
    ----------
    ranks : ndarray of shape (n_knots,)
        Increasing, in [0, 1]; equal neighbours are where quantiles jump.
    values : ndarray of shape (n_knots,)
        Quantiles, between which they are linear, and beyond which they are constant.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._quantiles import QuantileFunction
    >>> quantiles = QuantileFunction(np.array([0.0, 1.0]), np.array([3.0, 5.0]))
    >>> quantiles([0.25, 1.0]).tolist()
    [3.5, 5.0]
    """

    ranks: np.ndarray
    values: np.ndarray

    def __call__(self, ranks):
        """Return the quantiles at ranks in [0, 1]; at a jump, its upper end."""
        return np.interp(ranks, self.ranks, self.values)

    def lower(self, ranks):
        """Return the quantiles at ranks in [0, 1]; at a jump, its lower end."""
        return np.interp(-np.asarray(ranks), -self.ranks[::-1], self.values[::-1])


def resolution(scores: np.ndarray) -> float:
    """Return the unit that scores are rounded to before comparisons."""
    exponent = int(np.frexp(np.abs(scores).max())[1])
    return math.ldexp(1.0, max(exponent - _RESOLUTION_BITS, -1022))


def rounded(scores: np.ndarray, unit: float) -> np.ndarray:
    """Return scores rounded to multiples of a unit."""
    return np.round(scores / unit) * unit
