"""A source of noise whose integers a test chooses."""

import numpy as np

from skdpot.privacy.noise import NoiseSource


class GivenBits(NoiseSource):
    """A source of the integers that a test has chosen; one too many is an error."""

    seeded = True

    def __init__(self, *integers):
        self.left = list(integers)
        self.asked = []

    def bits(self, n_bits, size):
        """Return the next integers, in the shape that is asked for."""
        self.asked.append((n_bits, size))
        taken = [self.left.pop(0) for _ in range(int(np.prod(size)))]
        assert all(0 <= integer < 1 << n_bits for integer in taken)
        return np.array(taken, dtype=np.int64).reshape(size)

    def for_user(self, index):
        raise NotImplementedError

    def _words(self, count):
        raise NotImplementedError
