"""Poisson samples of records, with exactly the accounted probability or slightly less."""

from fractions import Fraction
from typing import Any

import numpy as np

# A record is in the sample if a random integer below 2**63 is below the threshold. The first 16
# bits of the integer decide for all but one record in 2**16.
_LEADING_BITS, _TRAILING_BITS = 16, 47


def poisson_sample(source: Any, n_records: int, rate: float) -> np.ndarray:
    """Return which records are sampled, each with the same probability.

    Returns positions in ascending order. Whether a record is among them is independent of all
    others. Under "add_remove" `n_records` is private, and then so is the running time.

    Notes
    -----
    The probability is that multiple of ``2**-63`` that is not above the rate and nearest to it, so
    that a price for the rate covers it (more sampling cannot cost less).

    Examples
    --------
    >>> from skdpot.privacy.poisson import poisson_sample
    >>> from skdpot.privacy.random import make_source
    >>> poisson_sample(make_source(0), 50, 0.1).tolist()
    [10, 18, 23, 27, 34, 37, 42, 43]
    """
    threshold = int(Fraction(rate) * 2 ** (_LEADING_BITS + _TRAILING_BITS))
    leading, trailing = divmod(threshold, 2**_TRAILING_BITS)
    drawn = _leading_bits(source, n_records)
    included = drawn < leading
    undecided = np.flatnonzero(drawn == leading)
    included[undecided] = source.bits(_TRAILING_BITS, len(undecided)) < trailing
    return np.flatnonzero(included)


def _leading_bits(source: Any, n_records: int) -> np.ndarray:
    """Return the first bits of every record, three records per word."""
    words = source.bits(3 * _LEADING_BITS, -(-n_records // 3))
    parts = (words >> k * _LEADING_BITS & (2**_LEADING_BITS - 1) for k in range(3))
    return np.concatenate(list(parts))[:n_records]
