"""Sources of noise: cryptographic by default, seeded only on request.

A seeded release is reproducible, and therefore not private: whoever knows or guesses the seed
knows the noise.
"""

import hashlib
import secrets
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import ndtri


class NoiseSource(ABC):
    """A source of uniform bits, and of noise made from them.

    Attributes
    ----------
    seeded : bool
        Whether the draws can be reproduced, so that releases made with them are not private.
    """

    seeded: bool

    def bits(self, n_bits: int, size: Any) -> np.ndarray:
        """Return independent uniform integers below ``2 ** n_bits``, for 1 to 63 bits.

        If a release has to be private, nobody may see them.
        """
        if not 1 <= n_bits <= 63:
            raise ValueError(f"n_bits must be from 1 to 63, got {n_bits}.")
        raw = self._words(int(np.prod(size, dtype=np.int64)))
        return (raw >> np.uint64(64 - n_bits)).astype(np.int64).reshape(size)

    def uniform(self, size: Any) -> np.ndarray:
        """Return doubles on the midpoints of a grid of 2**52 cells of (0, 1): never 0, never 1."""
        return (self.bits(52, size) + 0.5) * 2.0**-52

    def normal(self, size: Any) -> np.ndarray:
        """Return standard Gaussian doubles."""
        return ndtri(self.uniform(size))

    @property
    def n_words(self) -> int:
        """Return the number of words drawn, if it determines the next ones."""
        return 0

    def skip(self, n_words: int) -> None:  # noqa: B027
        """Skip words that another process has drawn, if they determine the next ones."""

    @abstractmethod
    def for_user(self, index: int) -> "NoiseSource":
        """Return the source of one user's noise, independent of the order of users."""

    @abstractmethod
    def _words(self, count: int) -> np.ndarray:
        """Return `count` uniform 64-bit words."""


class CryptographicSource(NoiseSource):
    """The operating system's cryptographic source; nothing about it can be reproduced."""

    seeded = False

    def for_user(self, index: int) -> "CryptographicSource":
        """Return this source: its draws are independent for all users."""
        return self

    def _words(self, count: int) -> np.ndarray:
        return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)


class SeededSource(NoiseSource):
    """A counter-based stream (Philox), determined by a seed: for tests and teaching.

    Parameters
    ----------
    key : sequence of two int
        The 128-bit key.
    stream : int
        Number of the stream: 0 for a whole batch, ``1 + index`` for one user.
    """

    seeded = True

    def __init__(self, key: Any, stream: int = 0) -> None:
        self.key = tuple(int(word) for word in key)
        self._generator = np.random.Philox(
            key=np.array(self.key, dtype=np.uint64),
            counter=np.array([0, 0, stream, 0], dtype=np.uint64),
        )
        self._n_words = 0

    @property
    def n_words(self) -> int:
        return self._n_words

    def skip(self, n_words: int) -> None:
        self._words(n_words)

    def for_user(self, index: int) -> "SeededSource":
        """Return the stream of the user with this position in the batch."""
        return SeededSource(self.key, 1 + index)

    def _words(self, count: int) -> np.ndarray:
        self._n_words += count
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)


def make_source(random_state: Any = None) -> NoiseSource:
    """Return the source of noise that a `random_state` stands for, or raise ValueError.

    None is the cryptographic source. An integer gives the same draws at every call; a
    ``RandomState`` gives new ones at every call and is advanced by it. A source is returned as it
    is, so that several releases can draw from one after another. Releases made with a ``seeded``
    source are not private.

    Examples
    --------
    >>> from skdpot.privacy.random import make_source
    >>> make_source().seeded
    False
    >>> bool((make_source(7).bits(62, 3) == make_source(7).bits(62, 3)).all())
    True
    """
    if isinstance(random_state, NoiseSource):
        return random_state
    if random_state is None:
        return CryptographicSource()
    if random_state is np.random:
        random_state = np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState):
        return SeededSource(random_state.randint(0, 2**63, size=2, dtype=np.int64))
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return SeededSource(np.random.SeedSequence(int(random_state)).generate_state(2, np.uint64))
    raise ValueError(
        "random_state must be None, a non-negative integer, a numpy RandomState or a NoiseSource, "
        f"got {random_state!r}."
    )


class KeyedSource(NoiseSource):
    """Noise that a secret key and texts determine: repeated work repeats it.

    Whoever has the key can compute the noise. To everybody else it is as random as SHAKE-256 with
    a secret prefix, so a guarantee with it is a computational one.
    """

    seeded = False

    def __init__(self, key: bytes, *what: bytes) -> None:
        self._prefix = b"".join(len(one).to_bytes(8, "big") + one for one in (key, *what))
        self._n_drawn = 0

    def for_user(self, index: int) -> "KeyedSource":
        """Return the source of the user with this position in the batch."""
        return KeyedSource(self._prefix, index.to_bytes(8, "big"))

    def _words(self, count: int) -> np.ndarray:
        text = self._prefix + self._n_drawn.to_bytes(8, "big")
        self._n_drawn += 1
        return np.frombuffer(hashlib.shake_256(text).digest(8 * count), dtype=np.uint64)


def keyed_source(key: bytes, *what: bytes) -> NoiseSource:
    """Return the source of noise that belongs to a secret key and to what is released."""
    return KeyedSource(key, *what)
