"""Scores whose sum changes by at most a public amount with one record.

Records are assigned to blocks at random, independent of their values. The score of a block is
computed only from its own records, and moved to a public range. A replaced record changes the score
of its own block only (:ref:`proof-search`).
"""

from typing import Any

import numpy as np

# The score of a block is an integer in units of the range divided by this. One record therefore
# changes the sum over blocks by at most this number, in exact arithmetic.
SCORE_UNITS = 2**20


def random_blocks(source: Any, n_records: int, n_blocks: int) -> list[np.ndarray]:
    """Return the records of each block, drawn at random and independent of their values.

    Every position is in one of the blocks, whose sizes differ by one.

    Examples
    --------
    >>> from skdpot.privacy.block_scores import random_blocks
    >>> from skdpot.privacy.random import make_source
    >>> [block.tolist() for block in random_blocks(make_source(0), 7, 3)]
    [[0, 3, 5], [1, 2], [6, 4]]
    """
    return np.array_split(np.argsort(source.bits(63, n_records), kind="stable"), n_blocks)


def in_units(score: Any, low: float, high: float) -> int:
    """Return a block's score as an integer number of units of the range, for any object.

    The range is public and finite. NaN and other objects count as the lowest score; numbers out of
    the range are clipped. No score causes an error or a warning, which would depend on the records.

    Examples
    --------
    >>> from skdpot.privacy.block_scores import in_units
    >>> [in_units(score, 0.0, 1.0) / 2**20 for score in (0.25, 7.0, float("nan"), "good")]
    [0.25, 1.0, 0.0, 0.0]
    """
    try:
        number = float(score)
    except Exception:  # any error of a foreign object when it is asked for a number
        return 0
    if not number > low:
        return 0
    if number >= high:
        return SCORE_UNITS
    # Halved, so that the difference of two finite numbers cannot overflow.
    share = (number / 2 - low / 2) / (high / 2 - low / 2)
    return min(max(round(share * SCORE_UNITS), 0), SCORE_UNITS)
