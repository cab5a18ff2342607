"""Random numbers that depend on the key of a row alone, not on other rows."""

import numpy as np

# The constants of the splitmix64 generator.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
# Number of draws that are reserved for each column.
DRAWS_PER_COLUMN = 1 << 20


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
