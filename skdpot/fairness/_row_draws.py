"""Keys of rows: a row and a seed alone determine its key and all its randomness."""

import numpy as np

from skdpot.fairness._conditional import mixed

# Numbers of draws, beyond those of the columns.
IMAGE_DRAW, BLEND_DRAW, GROUP_DRAW = range(2**62, 2**62 + 3)
# Numbers of the draws of the first column, of blurred rows and of blurred images.
BLUR_DRAW, BLURRED_IMAGE_DRAW = 2**62 + 3, 2**62 + 2**61


def row_keys(seed: int, codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return a key of 64 bits for every row, from a seed, its values and its group.

    Equal rows are counted: the first has the same key in every table, and the others have further
    keys, so that rows with equal values are drawn separately.
    """
    # Adding 0.0 turns -0.0 into 0.0.
    values = np.column_stack([np.nan_to_num(codes, nan=np.pi) + 0.0, groups])
    keys = np.full(len(values), seed, dtype=np.uint64)
    for column in values.T:
        keys = mixed(keys ^ np.ascontiguousarray(column).view(np.uint64))
    return mixed(keys ^ _occurrences(keys))


def _occurrences(keys: np.ndarray) -> np.ndarray:
    """Return how many equal keys come before each key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = np.arange(len(keys))
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    counts = np.empty(len(keys), dtype=np.uint64)
    counts[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return counts
