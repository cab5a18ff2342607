"""Fixed-point numbers as 64-bit words, whose sums modulo 2**64 are sums of the numbers."""

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral

import numpy as np

# Squares of numbers between these, and their sums, stay in the range of doubles.
_SMALLEST, LARGEST_NUMBER = 1e-150, 1e150


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Doubles as integer multiples of a step, whose sums never wrap.

    Parameters
    ----------
    largest : float or ndarray of shape (size,)
        Public bound of the absolute values, from 0 to 1e150. It must hold for all possible data:
        a larger number is an error, which others see.
    n_owners : int
        Largest number of summed vectors, up to 2**53.

    Attributes
    ----------
    step : ndarray of shape () or (size,)
        Difference of neighbouring numbers, a power of two.
    error_bound : ndarray of shape () or (size,)
        Largest difference of a sum of encoded numbers from the sum of the numbers.

    Raises
    ------
    ValueError
        If a parameter is not valid.

    Notes
    -----
    Let Q be ``(2**63 - 1) // n_owners``, and the step s the least power of two for which
    ``largest / s <= Q``. A number x is encoded by the integer q nearest to x / s. Division by a
    power of two is exact, and doubles from 2**52 on are integers, so ``|q s - x| <= s / 2``
    exactly. As Q is an integer, ``|q| <= Q``. So sums of up to `n_owners` such integers are at most
    ``2**63 - 1``, and never wrap in two's complement. They differ from ``sum(x) / s`` by at most
    ``n_owners / 2``, so the error bound is ``n_owners * s / 2``. As s < 2 largest / Q, it is below
    ``n_owners * largest / Q``, about ``2**-63 * n_owners**2 * largest``. Multiples of s have no
    error. Decoding gives the double that is nearest to the sum.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._secure_sum import FixedPoint
    >>> numbers = FixedPoint(largest=10.0, n_owners=2)
    >>> words = numbers.encode(np.array([0.1, -9.5])) + numbers.encode(np.array([0.2, -0.5]))
    >>> numbers.decode(words)
    array([  0.3, -10. ])
    """

    largest: float | np.ndarray
    n_owners: int

    def __post_init__(self) -> None:
        largest = np.asarray(self.largest)
        if largest.dtype.kind not in "iuf" or largest.ndim > 1:
            raise ValueError("largest must be a real number or a vector of them.")
        if not np.all((largest >= 0) & (largest <= LARGEST_NUMBER)):
            raise ValueError(f"largest must be from 0 to {LARGEST_NUMBER:g}.")
        if not isinstance(self.n_owners, Integral) or not 1 <= self.n_owners <= 2**53:
            raise ValueError(f"n_owners must be from 1 to 2**53, got {self.n_owners!r}.")

    @cached_property
    def step(self) -> np.ndarray:
        """Return the difference of neighbouring numbers."""
        largest = np.maximum(np.asarray(self.largest, dtype=np.float64), _SMALLEST)
        limit = _round_down((2**63 - 1) // int(self.n_owners))
        # With mantissas from 1/2 to 1, the quotient's exponent is right or one too small.
        exponent = np.frexp(largest)[1] - math.frexp(limit)[1]
        exponent = exponent + (np.ldexp(largest, -exponent) > limit)
        return np.ldexp(1.0, exponent)

    @property
    def error_bound(self) -> np.ndarray:
        """Return the largest difference of a sum of encoded numbers from that of the numbers."""
        return 0.5 * int(self.n_owners) * self.step

    def encode(self, vector: np.ndarray) -> np.ndarray:
        """Return the words of a vector: integers in two's complement.

        Raises ValueError if the shape is another, or an entry is not finite or exceeds `largest`.
        An error shows no entries.
        """
        vector = np.asarray(vector, dtype=np.float64)
        self._check_shape("vector", vector)
        # Also false for NaN.
        if not np.all(np.abs(vector) <= self.largest):
            raise ValueError("all entries must be finite and at most `largest`.")
        return words_of(np.rint(vector / self.step).astype(np.int64))

    def decode(self, words: np.ndarray) -> np.ndarray:
        """Return the doubles nearest to a sum of up to `n_owners` encoded vectors."""
        integers = integers_of(words)
        self._check_shape("words", integers)
        return integers.astype(np.float64) * self.step

    def _check_shape(self, name: str, vector: np.ndarray) -> None:
        sizes = np.shape(self.largest)
        if vector.ndim != 1 or (sizes and vector.shape != sizes):
            raise ValueError(f"{name} must be a vector, of the length of `largest` if it has one.")


def words_of(integers: np.ndarray) -> np.ndarray:
    """Return signed integers as words, in two's complement: a view of the same memory.

    Sums of the integers must stay below 2**63 in absolute value.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._secure_sum import integers_of, words_of
    >>> integers_of(words_of(np.array([3, -5])) + words_of(np.array([-4, 1])))
    array([-1, -4])
    """
    return _viewed(integers, np.int64, np.uint64)


def integers_of(words: np.ndarray) -> np.ndarray:
    """Return words as signed integers, in two's complement: a view of the same memory.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._secure_sum import integers_of
    >>> integers_of(np.array([0, 2**64 - 1], dtype=np.uint64))
    array([ 0, -1])
    """
    return _viewed(words, np.uint64, np.int64)


def _viewed(array: np.ndarray, given: type, wanted: type) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype != given:
        raise ValueError(f"an array of {np.dtype(given).name} is expected.")
    return array.view(wanted)


def _round_down(integer: int) -> float:
    """Return the largest double that is at most a positive integer."""
    nearest = float(integer)
    return math.nextafter(nearest, 0) if nearest > integer else nearest
