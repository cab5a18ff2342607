"""Sources of noise: cryptographic by default, keyed or seeded only on request.

A seeded release is reproducible, and therefore not private: whoever knows or guesses the seed
knows the noise. A keyed one is reproducible by the holder of a secret key alone.
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
        # At the ends, quantiles would be infinite.
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
            # A stream has 2**128 blocks before the counter reaches the next one.
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


class KeyedSource(NoiseSource):
    """A stream of SHAKE-256, determined by a secret key of 32 random bytes.

    *Statement* (:ref:`keyed-noise`). If SHAKE-256 behaves as a random function, the words of all
    keys, users and places in a stream are independent and uniform for everybody who does not have
    the key. So a release made with them has the guarantee of one made with the cryptographic
    source, against all computations that are feasible. Whoever has the key can compute the noise:
    against her nothing is private, as long as any copy of the key exists.

    The holder of the key makes the same release again. She must never make two different releases,
    or one release of two data sets, with one stream: name in :func:`keyed_source` all that a
    release depends on.

    Parameters
    ----------
    key : bytes
        The key.
    """

    seeded = False

    def __init__(self, key: bytes) -> None:
        self._key, self._n_words = key, 0

    @property
    def n_words(self) -> int:
        return self._n_words

    def skip(self, n_words: int) -> None:
        self._n_words += n_words

    def for_user(self, index: int) -> "KeyedSource":
        """Return the stream of the user with this position in the batch."""
        return keyed_source(self._key, b"user", int(index).to_bytes(8, "big"))

    def _words(self, count: int) -> np.ndarray:
        # No two draws begin at the same word.
        start, self._n_words = self._n_words, self._n_words + count
        words = _shake(8 * count, b"words", self._key, start.to_bytes(8, "big"))
        return np.frombuffer(words, dtype="<u8")


def derive_key(key: bytes, *what: bytes) -> bytes:
    """Return the secret key of one purpose; it tells nothing about `key` or other purposes.

    Raises ValueError if `key` has fewer than 32 bytes.
    """
    if len(key) < 32:
        raise ValueError(f"a key must have at least 32 random bytes, got {len(key)}.")
    return _shake(32, b"key", key, *what)


def keyed_source(key: bytes, *what: bytes) -> KeyedSource:
    """Return the source of noise that a secret key and the name of a release determine.

    Parameters
    ----------
    key : bytes
        At least 32 bytes from a cryptographic source, kept secret.
    *what : bytes
        All that the release depends on, such as digests of its data and of its parameters.

    Examples
    --------
    >>> import secrets
    >>> from skdpot.privacy.random import keyed_source
    >>> key = secrets.token_bytes(32)
    >>> may, again, june = (keyed_source(key, b"sum", month) for month in (b"5", b"5", b"6"))
    >>> bool((may.bits(62, 3) == again.bits(62, 3)).all())
    True
    >>> bool((may.bits(62, 3) == june.bits(62, 3)).any())
    False
    """
    return KeyedSource(derive_key(key, *what))


def _shake(size: int, *parts: bytes) -> bytes:
    """Return `size` bytes of SHAKE-256 of some parts, each with its length in front."""
    # Without lengths, parts that are divided otherwise would share their words.
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hashlib.shake_256(message).digest(size)


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
    # scikit-learn takes the module for its global state.
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
