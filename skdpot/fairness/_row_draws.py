"""Keys of rows, and their random numbers: a row and a seed determine them."""

import numpy as np

# The constants of the splitmix64 generator.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
# Number of draws that are reserved for each column.
DRAWS_PER_COLUMN = 1 << 20
# Numbers of draws, beyond those of the columns.
IMAGE_DRAW, BLEND_DRAW = 2**62, 2**62 + 1
# Numbers of the draws of the first column, of blurred rows and of blurred images.
BLUR_DRAW, BLURRED_IMAGE_DRAW = 2**62 + 3, 2**62 + 2**61


def row_keys(seed: int, codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return a key of 64 bits for every row, from a seed, its values and its group.

    Equal rows are numbered. The first has the same key in every table, and the others have further
    keys, so rows with equal values are drawn separately.
    """
    # Adding 0.0 turns -0.0 into 0.0.
    values = np.column_stack([np.nan_to_num(codes, nan=np.pi) + 0.0, groups])
    keys = np.full(len(values), seed, dtype=np.uint64)
    for column in values.T:
        keys = mixed(keys ^ np.ascontiguousarray(column).view(np.uint64))
    return mixed(keys ^ _occurrences(keys))


class Draws:
    """The random numbers of rows: a row's key and the number of a draw determine each."""

    def __init__(self, keys: np.ndarray) -> None:
        self._mixed = mixed(keys)

    def uniforms(self, draw: int) -> np.ndarray:
        """Return a number in the open interval (0, 1) for every row."""
        with np.errstate(over="ignore"):
            bits = mixed(self._mixed + _STEP * np.uint64(draw + 1))
        return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def exponentials(self, draws: range) -> np.ndarray:
        """Return standard exponential random numbers, one row per draw."""
        return -np.log(np.stack([self.uniforms(draw) for draw in draws]))


def uniforms(keys: np.ndarray, draw: int) -> np.ndarray:
    """Return a number in the open interval (0, 1) for every key, for this draw."""
    return Draws(keys).uniforms(draw)


def mixed(bits: np.ndarray) -> np.ndarray:
    """Return well-mixed bits: a permutation of the 64-bit numbers that keeps 0."""
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MIX[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MIX[1]
    return bits ^ (bits >> _SHIFTS[2])


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
