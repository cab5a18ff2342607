"""Noise: its sources, exact integer noise, Laplace and Gaussian mechanisms, and Poisson samples.

Sources are cryptographic by default. A seeded release is reproducible, and therefore not private:
whoever knows or guesses the seed knows the noise. A keyed one is reproducible by the holder of a
secret key alone.

A variable X is represented by the bits of a uniform number drawn so far. They put X into an
interval, and if the whole interval rounds to one integer, no more bits are needed. Doubles nearly
always decide this; if they are too close, bounds of higher precision do, and more bits are drawn
until they can.
"""

import decimal
import hashlib
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.special import ndtri, ndtri_exp

from skdpot.privacy import accounting
from skdpot.privacy.checks import check_count, check_delta, check_positive, private_vector
from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent

Shape = int | tuple[int, ...]


def _system_words(_n_drawn: int, count: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)


class NoiseSource:
    """A source of uniform bits, and of noise made from them: see `make_source`.

    Parameters
    ----------
    words : callable, default=_system_words
        Returns the next uniform 64-bit words, for the number of those that were drawn before and
        the number of new ones. By default they are those of the operating system's cryptographic
        source, and nothing about them can be reproduced.
    of_user : callable, default=None
        Returns the source of one user's noise, for the position of the user in the batch. None is
        this source, whose draws are independent for all users.
    seeded : bool, default=False
        Whether the draws can be reproduced, so that releases made with them are not private.
    """

    def __init__(
        self,
        words: Callable[[int, int], np.ndarray] = _system_words,
        of_user: "Callable[[int], NoiseSource] | None" = None,
        *,
        seeded: bool = False,
    ) -> None:
        self._next_words, self._of_user, self.seeded = words, of_user, seeded
        self._n_drawn = 0

    def bits(self, n_bits: int, size: Shape) -> np.ndarray:
        """Return independent uniform integers below ``2 ** n_bits``, for 1 to 63 bits.

        If a release has to be private, nobody may see them.
        """
        if not 1 <= n_bits <= 63:
            raise ValueError(f"n_bits must be from 1 to 63, got {n_bits}.")
        raw = self._words(int(np.prod(size, dtype=np.int64)))
        return (raw >> np.uint64(64 - n_bits)).astype(np.int64).reshape(size)

    def uniform(self, size: Shape) -> np.ndarray:
        """Return doubles on the midpoints of a grid of 2**52 cells of (0, 1): never 0, never 1."""
        # At the ends, quantiles would be infinite.
        return (self.bits(52, size) + 0.5) * 2.0**-52

    def normal(self, size: Shape) -> np.ndarray:
        """Return standard Gaussian doubles."""
        return ndtri(self.uniform(size))

    def for_user(self, index: int) -> "NoiseSource":
        """Return the source of one user's noise, independent of the order of users."""
        return self if self._of_user is None else self._of_user(index)

    def _words(self, count: int) -> np.ndarray:
        """Return `count` uniform 64-bit words."""
        # No two draws begin at the same word.
        start, self._n_drawn = self._n_drawn, self._n_drawn + count
        return self._next_words(start, count)


def seeded_source(key: Sequence[int] | np.ndarray, user: int = -1) -> NoiseSource:
    """Return a counter-based stream (Philox), determined by a seed: for tests and teaching.

    Parameters
    ----------
    key : sequence of two int
        The 128-bit key.
    user : int
        Position of the user whose noise it is, -1 for a whole batch: each has its own stream.
    """
    generator = np.random.Philox(
        key=np.array([int(word) for word in key], dtype=np.uint64),
        # A stream has 2**128 blocks before the counter reaches the next one.
        counter=np.array([0, 0, 1 + user, 0], dtype=np.uint64),
    )
    return NoiseSource(partial(_philox_words, generator), partial(seeded_source, key), seeded=True)


def _philox_words(generator: np.random.Philox, _n_drawn: int, count: int) -> np.ndarray:
    return np.asarray(generator.random_raw(count), dtype=np.uint64)


def source_of_key(key: bytes) -> NoiseSource:
    """Return a stream of SHAKE-256, determined by a secret key of 32 random bytes.

    *Statement* (:ref:`keyed-noise`). If SHAKE-256 behaves as a random function, the words of all
    keys, users and places in a stream are independent and uniform for everybody who does not have
    the key. So a release made with them has the guarantee of one made with the cryptographic
    source, against all computations that are feasible. Whoever has the key can compute the noise:
    against her nothing is private, as long as any copy of the key exists.

    The holder of the key makes the same release again. She must never make two different releases,
    or one release of two data sets, with one stream: name in :func:`keyed_source` all that a
    release depends on.
    """
    return NoiseSource(partial(_shake_words, key), partial(_user_of_key, key))


def _shake_words(key: bytes, n_drawn: int, count: int) -> np.ndarray:
    words = _shake(8 * count, b"words", key, n_drawn.to_bytes(8, "big"))
    return np.frombuffer(words, dtype="<u8")


def _user_of_key(key: bytes, index: int) -> NoiseSource:
    return keyed_source(key, b"user", int(index).to_bytes(8, "big"))


def derive_key(key: bytes, *what: bytes) -> bytes:
    """Return the secret key of one purpose; it tells nothing about `key` or other purposes.

    Raises ValueError if `key` has fewer than 32 bytes.
    """
    if len(key) < 32:
        raise ValueError(f"a key must have at least 32 random bytes, got {len(key)}.")
    return _shake(32, b"key", key, *what)


def keyed_source(key: bytes, *what: bytes) -> NoiseSource:
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
    >>> from skdpot.privacy.noise import keyed_source
    >>> key = secrets.token_bytes(32)
    >>> may, again, june = (keyed_source(key, b"sum", month) for month in (b"5", b"5", b"6"))
    >>> bool((may.bits(62, 3) == again.bits(62, 3)).all())
    True
    >>> bool((may.bits(62, 3) == june.bits(62, 3)).any())
    False
    """
    return source_of_key(derive_key(key, *what))


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
    >>> from skdpot.privacy.noise import make_source
    >>> make_source().seeded
    False
    >>> bool((make_source(7).bits(62, 3) == make_source(7).bits(62, 3)).all())
    True
    """
    if isinstance(random_state, NoiseSource):
        return random_state
    if random_state is None:
        return NoiseSource()
    # scikit-learn takes the module for its global state.
    if random_state is np.random:
        random_state = np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState):
        return seeded_source(random_state.randint(0, 2**63, size=2, dtype=np.int64))
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        return seeded_source(np.random.SeedSequence(int(random_state)).generate_state(2, np.uint64))
    raise ValueError(
        "random_state must be None, a non-negative integer, a numpy RandomState or a NoiseSource, "
        f"got {random_state!r}."
    )


# For larger scales, doubles could decide hardly any draw.
LARGEST_SCALE = 2.0**40
# Maximum magnitude of noise: a larger one takes more than 2**22 standard deviations.
SATURATION = 1 << 62

# Bits of the tail probability that are drawn at a time.
_TAIL_BITS = 62
# Doubles are trusted up to an error of 2**-MARGIN_BITS times one plus the result: 30 times the
# largest error of `ndtri`, and 100 times that of the logarithm. (Tests compare both with arithmetic
# of 60 digits.)
MARGIN_BITS = 46


def rounded_gaussian(source: NoiseSource, scale: float | np.ndarray, size: Shape) -> np.ndarray:
    """Return ``round(scale * G)`` for exact, real, independent standard Gaussian variables G.

    Parameters
    ----------
    source : NoiseSource
        Where the bits come from.
    scale : float or array-like of float
        Standard deviation in units of the grid, above 0 and at most ``2**40``; broadcast to the
        shape of the result.
    size : int or tuple of int
        Shape of the result.

    Returns
    -------
    ndarray of int64
        The noise, clipped to a magnitude of ``2**62``.

    Raises
    ------
    ValueError
        If the scale is out of its range.

    Notes
    -----
    ``|G|`` exceeds t where a uniform number p is below ``P(|G| > t)``. The first 62 bits of p, and
    a sign, are drawn for all variables at once. The distribution of the result is exact if the
    error of ``scipy.special.ndtri`` is below ``2**-46 (1 + |G|)``, and however bad it is where more
    bits had to be drawn. Its time depends only on the noise and the scale.

    Examples
    --------
    >>> from skdpot.privacy.noise import rounded_gaussian
    >>> from skdpot.privacy.noise import make_source
    >>> rounded_gaussian(make_source(0), 1000.0, 4).tolist()
    [2456, 1132, 720, 1688]
    """
    return _rounded(source, scale, size, *_GAUSSIAN)


def rounded_laplace(source: NoiseSource, scale: float | np.ndarray, size: Shape) -> np.ndarray:
    """Return ``round(scale * L)`` for exact, real, independent standard Laplace variables L.

    All is as for :func:`rounded_gaussian`, with ``P(|L| > t) = exp(-t)``: `scale` is the mean
    magnitude in units of the grid.

    Examples
    --------
    >>> from skdpot.privacy.noise import rounded_laplace
    >>> from skdpot.privacy.noise import make_source
    >>> rounded_laplace(make_source(0), 1000.0, 4).tolist()
    [4264, 1356, 752, 2392]
    """
    return _rounded(source, scale, size, *_LAPLACE)


def _rounded(
    source: NoiseSource,
    scale: float | np.ndarray,
    size: Shape,
    quantile: Callable[[np.ndarray], np.ndarray],
    log_quantile: Callable[[float], float],
    tail_bounds: Callable[[Fraction, int], tuple[int, int]],
) -> np.ndarray:
    """Return rounded variables of a symmetric distribution.

    Parameters
    ----------
    source, scale, size
        As for :func:`rounded_gaussian`.
    quantile : callable
        The magnitude that goes with tail probabilities, in doubles.
    log_quantile : callable
        The same for the logarithm of one tail probability, however small.
    tail_bounds : callable
        Integers that enclose ``2**n_bits`` times the probability to exceed a rational magnitude.
    """
    scales = np.asarray(scale, dtype=np.float64)
    refused = scales[~((scales > 0) & (scales <= LARGEST_SCALE))]
    if refused.size:
        raise ValueError(f"scale must be above 0 and at most 2**40, got {float(refused[0])!r}.")
    words = source.bits(_TAIL_BITS + 1, size)
    scales = np.broadcast_to(scales, words.shape).ravel()
    tails = words.ravel() >> 1
    quantiles = quantile((tails + 0.5) * 2.0**-_TAIL_BITS)
    values = scales * quantiles
    nearest = np.rint(values)
    # The undrawn bits leave the magnitude open by a little less than 1 / (tails + 1).
    uncertain = scales * ((1.0 + quantiles) * 2.0**-MARGIN_BITS + 1.0 / (tails + 1.0))
    # A tail number below 2**10 has too few significant bits for doubles.
    unclear = (np.abs(values - nearest) >= 0.5 - uncertain) | (tails < 1 << 10)
    magnitudes = nearest.astype(np.int64)
    for index in np.flatnonzero(unclear):
        magnitudes[index] = _decide(
            source, Fraction(scales[index]), int(tails[index]), log_quantile, tail_bounds
        )
    return magnitudes.reshape(words.shape) * (1 - 2 * (words & 1))


def _decide(
    source: NoiseSource, scale: Fraction, tail: int, log_quantile: Callable, tail_bounds: Callable
) -> int:
    """Return the magnitude of the variable whose tail probability begins with these bits."""
    n_bits = _TAIL_BITS

    def guess() -> int:
        log_tail = math.log(2 * tail + 1) - (n_bits + 1) * math.log(2)
        return round(float(scale) * log_quantile(log_tail))

    def exceeds(magnitude: int) -> bool | None:
        """Tell whether the variable lies above a number; None if the bits do not decide it."""
        low, high = tail_bounds(Fraction(2 * magnitude + 1, 2) / scale, n_bits)
        if tail + 1 <= low:
            return True
        return False if tail >= high else None

    magnitude = guess()
    while True:
        reached = magnitude == 0 or exceeds(magnitude - 1)
        passed = exceeds(magnitude)
        if reached and passed is False:
            return min(magnitude, SATURATION)
        if reached is None or passed is None:
            tail = tail << _TAIL_BITS | int(source.bits(_TAIL_BITS, ()))
            n_bits += _TAIL_BITS
            magnitude = guess()
        else:
            magnitude += 1 if passed else -1


def exact_context(digits: int) -> decimal.Context:
    """Return a context with this number of digits, without traps, that rounds to nearest.

    It is independent of the context that the caller's thread happens to be in.
    """
    return decimal.Context(prec=digits, rounding=decimal.ROUND_HALF_EVEN, traps=[])


def _digits(n_bits: int) -> int:
    """Return the number of digits that resolves steps of ``2**-n_bits``, with twelve to spare."""
    return math.ceil(0.30103 * n_bits) + 12


def _laplace_tail(t: Fraction, n_bits: int) -> tuple[int, int]:
    """Return bounds of ``2**n_bits exp(-t)``."""
    if t > 0.6932 * n_bits:
        return 0, 1
    digits = _digits(n_bits)
    context = exact_context(digits)
    quotient = context.divide(decimal.Decimal(t.numerator), decimal.Decimal(t.denominator))
    # A relative error of half a unit in t is an error of t exp(-t) < 1 such units in the result.
    return _scale_up(context.exp(context.minus(quotient)), 20, digits, n_bits)


def _gaussian_tail(t: Fraction, n_bits: int) -> tuple[int, int]:
    """Return bounds of ``2**n_bits P(|G| > t)``.

    ``P(|G| < t) = sqrt(2/pi) exp(-t^2/2) (t + t^3/3 + t^5/(3*5) + ...)``. All terms are positive,
    so that relative errors of 5e-d, for d digits, only add up: at most ``6 n`` of them for n terms,
    ``1.5 t^2`` for the exponential and a dozen for the rest. The terms at the end of the sum at
    least halve, so the omitted ones add up to less than the last one.
    """
    if t * t > 1.3863 * n_bits:  # P(|G| > t) <= exp(-t^2/2)
        return 0, 1
    digits = _digits(n_bits)
    with decimal.localcontext(exact_context(digits)):
        magnitude = decimal.Decimal(t.numerator) / decimal.Decimal(t.denominator)
        square = magnitude * magnitude
        term = total = magnitude
        n_terms = 1
        while term > total.scaleb(-digits) or square > n_terms:
            term = term * square / (2 * n_terms + 1)
            total += term
            n_terms += 1
        inside = (2 / _pi(digits)).sqrt() * (-square / 2).exp() * total
        return _scale_up(1 - inside, 40 * (n_terms + int(square) + 10), digits, n_bits)


def _scale_up(value: decimal.Decimal, slack: int, digits: int, n_bits: int) -> tuple[int, int]:
    """Return bounds of ``2**n_bits`` times a number, with an error of ``slack`` last digits."""
    unit = 10**digits
    numerator, denominator = value.as_integer_ratio()
    units = numerator * unit // denominator
    return (units - slack << n_bits) // unit, -(-(units + 1 + slack << n_bits) // unit)


@lru_cache
def _pi(digits: int) -> decimal.Decimal:
    """Return pi within one unit of the last digit, by Machin's formula."""
    unit = 10 ** (digits + 10)

    def arctangent_of_inverse(x: int) -> int:
        term, total, order = unit // x, 0, 1
        while term:
            total += term // order if order % 4 == 1 else -(term // order)
            term //= x * x
            order += 2
        return total

    scaled = 16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)
    return exact_context(digits + 10).scaleb(decimal.Decimal(scaled), -(digits + 10))


# The quantile, log_quantile and tail_bounds of `_rounded`.
_GAUSSIAN = (
    lambda tail: -ndtri(0.5 * tail),
    lambda log_tail: float(-ndtri_exp(log_tail - math.log(2))),
    _gaussian_tail,
)
_LAPLACE = (lambda tail: -np.log(tail), lambda log_tail: -log_tail, _laplace_tail)


# Laplace and Gaussian noise on integers, private also in finite arithmetic.

# Integers are clipped to this magnitude, and sums of value and noise to twice of it.
_LARGEST_INTEGER = 1 << 60
# Exponents of grid widths whose multiples up to 2**61 are doubles.
_EXPONENTS = range(-1000, 900)


class _GridMechanism(ABC):
    """Round to a public grid, and add rounded real noise to the resulting integer.

    Subclasses define the distribution of the noise, and the order of the norm that bounds how far
    neighbouring values may be apart.
    """

    _order: int

    def _prepare(
        self,
        noise_multiplier: float,
        sensitivity: Any,
        n_coordinates: Any,
        granularity: Any,
        on_grid: bool,
    ) -> None:
        """Choose the grid, bound the sensitivity on it, and set the scale of the noise."""
        if on_grid and granularity is None:
            raise ValueError("values on a grid (on_grid=True) need its granularity.")
        self.on_grid = bool(on_grid)
        self.noise_multiplier = noise_multiplier
        self.sensitivity = check_positive("sensitivity", sensitivity)
        self.n_coordinates = check_count("n_coordinates", n_coordinates)
        if granularity is None:
            self._exponent = self._default_exponent()
        else:
            mantissa, exponent = math.frexp(check_positive("granularity", granularity))
            if mantissa != 0.5:
                raise ValueError(f"granularity must be a power of two, got {granularity!r}.")
            self._exponent = exponent - 1
        if self._exponent not in _EXPONENTS or math.isinf(noise_multiplier):
            raise ValueError(
                f"noise of scale {noise_multiplier:g} * {self.sensitivity:g}, on a grid of width "
                f"2**{self._exponent}, is out of the range of double precision."
            )
        self.granularity = math.ldexp(1.0, self._exponent)
        grid_sensitivity = self._grid_sensitivity()
        if Fraction(noise_multiplier) * grid_sensitivity > LARGEST_SCALE:
            raise ValueError(
                f"noise of {noise_multiplier:g} times the sensitivity would span more than 2**40 "
                f"points of a grid of width {self.granularity!r}: use a coarser one, or less noise."
            )
        # Rounded up twice, so that the noise is never less than the exact product.
        self.grid_sensitivity = accounting.fraction_rounded_up(grid_sensitivity)
        exact_scale = Fraction(noise_multiplier) * Fraction(self.grid_sensitivity)
        self.grid_scale = accounting.fraction_rounded_up(exact_scale)
        self.scale = math.ldexp(self.grid_scale, self._exponent)

    def __repr__(self) -> str:
        shown = ("noise_multiplier", "sensitivity", "n_coordinates", "granularity")
        settings = ", ".join(f"{name}={getattr(self, name):g}" for name in shown)
        return f"<{type(self).__name__} {settings}>"

    def _default_exponent(self) -> int:
        """Return the exponent of the default grid's width."""
        scale = self.noise_multiplier * self.sensitivity
        # The norm of a vector of ones: the amount that rounding may add to a distance.
        most_rounding = self.n_coordinates ** (1.0 / self._order)
        finest = min(scale, self.sensitivity / most_rounding)
        if not 1e-280 < finest <= scale < 1e250:
            return _EXPONENTS.stop
        # Finer than the noise and the sensitivity by 2**20, unless the noise would then span more
        # than 2**36 points. frexp(x)[1] is one more than the floor of the base-two logarithm of x.
        return max(math.frexp(finest)[1] - 1 - 20, math.frexp(scale)[1] - 36)

    def _grid_sensitivity(self) -> Fraction:
        """Return the largest distance of the integers of neighbouring values, in the norm.

        Rounding commutes with translation by integers, so ``|round(a) - round(b)|`` is at most the
        ceiling of ``|a - b|``, which is less than ``|a - b| + 1``. It does not change multiples of
        the granularity.
        """
        distance = Fraction(self.sensitivity) / Fraction(self.granularity)
        # Multiples of the granularity are not moved.
        if self.on_grid:
            return distance
        if self._order == 1 or self.n_coordinates == 1:
            return Fraction(math.ceil(distance) + self.n_coordinates - 1)
        return distance + Fraction(math.nextafter(math.sqrt(self.n_coordinates), math.inf))

    def release(self, value: Any, random_state: Any = None) -> Any:
        """Return the value with noise.

        Parameters
        ----------
        value : float or array-like of at most n_coordinates numbers
            Private. Values beyond the end of the grid, at ``2**60`` times the granularity, are
            clipped to it, and integers are clipped to ``2**53``. NaN becomes zero. There is no
            error or warning, because it would reveal something about the value. The default grid
            ends at about ``2**39`` times the noise or the sensitivity, whichever is smaller.
        random_state : None, int, numpy.random.RandomState or NoiseSource, default=None
            None uses the operating system's cryptographic source. Seeded noise can be reproduced,
            so it is not private.

        Returns
        -------
        float or ndarray
            A multiple of the granularity, in the shape of the value, rounded to a double if it has
            more than 53 bits.

        Raises
        ------
        TypeError
            If the value is text, or complex.
        ValueError
            If there are more than n_coordinates numbers, or `random_state` is invalid.
        """
        integers = self._to_grid(private_vector(value, self.n_coordinates))
        noise = self._draw(make_source(random_state), integers.shape)
        # Noise that saturated is beyond this bound for any value, so clipping this sum gives the
        # same result as clipping the sum with the full noise.
        sums = np.clip(integers + noise, -2 * _LARGEST_INTEGER, 2 * _LARGEST_INTEGER)
        released = np.ldexp(sums.astype(np.float64), self._exponent)
        return released if released.ndim else float(released)

    def noise(self, size: Shape, random_state: Any = None) -> np.ndarray:
        """Return the noise alone, for values on the grid that are summed elsewhere.

        Parameters
        ----------
        size : int or tuple of int
            Shape of the noise.
        random_state : None, int, numpy.random.RandomState or NoiseSource, default=None
            As in `release`.

        Returns
        -------
        ndarray of int64
            The noise in units of the granularity.
        """
        return self._draw(make_source(random_state), size)

    def _to_grid(self, doubles: np.ndarray) -> np.ndarray:
        """Return the nearest points of the grid, as exact integers; halves are rounded up.

        Rounding halves to even would not commute with odd translations: 0.5 and 1.5 would become 0
        and 2.
        """
        # No error: it would tell that a value is missing.
        numbers = np.where(np.isnan(doubles), 0.0, doubles)
        with np.errstate(all="ignore"):
            halves = np.floor(np.ldexp(numbers, 1 - self._exponent))
        bound = 2.0 * _LARGEST_INTEGER
        return (np.clip(halves, -bound, bound).astype(np.int64) + 1) >> 1

    @abstractmethod
    def _draw(self, source: NoiseSource, shape: Shape) -> np.ndarray:
        """Return integer noise at the grid's scale."""


class LaplaceMechanism(_GridMechanism):
    """Add Laplace noise: epsilon-differentially private, also in floating point.

    A value is rounded to a public grid, which gives an integer. Then a real Laplace variable,
    rounded to the same grid, is added. An integer can be added before or after rounding, so this
    equals the textbook mechanism on integers, followed by rounding. Its guarantee holds exactly,
    for the sensitivity between these integers, and the noise is scaled to that.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one release, above 0.
    sensitivity : float
        By how much the values of neighbouring data sets may differ, in the l1 norm: of the doubles
        that are given to :meth:`release`, rounding errors of their computation included.
    n_coordinates : int, default=1
        Largest number of coordinates of a value.
    granularity : float, default=None
        Width of the grid, a power of two. By default at least ``2**20`` times finer than the noise
        and the sensitivity, unless the noise would then span more than ``2**36`` points of it.
    on_grid : bool, default=False
        Whether all values are multiples of the granularity, as counts are of 1. Rounding then adds
        nothing to their sensitivity.

    Attributes
    ----------
    epsilon, sensitivity, n_coordinates, granularity, on_grid
        As given, or the chosen default.
    noise_multiplier : float
        Guaranteed scale over sensitivity: ``1 / epsilon``, rounded up.
    scale : float
        Scale of the noise (its mean magnitude). It is slightly larger than ``sensitivity /
        epsilon``, because rounding to the grid may increase the sensitivity.
    grid_sensitivity, grid_scale : float
        Sensitivity and scale in units of the grid.
    event : LaplaceDpEvent
        The event of one release, for a ledger.

    Raises
    ------
    ValueError
        If a parameter is out of its range, the granularity is not a power of two, or missing with
        ``on_grid=True``, or the noise would span more points of the grid than can be drawn.

    See Also
    --------
    GaussianMechanism : Less noise for long vectors, at the price of a delta.

    Notes
    -----
    Rounding may move each coordinate by one more grid point than its value moved. So the l1
    sensitivity of the integers is at most ``ceil(sensitivity / granularity) + n_coordinates - 1``.
    By default this adds less than ``2**-20`` of it, or ``2**-35 n_coordinates / epsilon`` if the
    grid is limited. (:ref:`proof-grid-noise`.)

    References
    ----------
    .. [1] I. Mironov, "On significance of the least significant bits for differential privacy",
       CCS 2012.

    Examples
    --------
    >>> from skdpot.privacy.noise import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(epsilon=0.5, sensitivity=1.0)
    >>> mechanism.scale
    2.0
    >>> mechanism.event
    LaplaceDpEvent(noise_multiplier=2.0)
    >>> released = mechanism.release(42.0)
    >>> released % mechanism.granularity
    0.0
    """

    _order = 1

    def __init__(
        self,
        epsilon: float,
        sensitivity: float,
        *,
        n_coordinates: int = 1,
        granularity: float | None = None,
        on_grid: bool = False,
    ) -> None:
        self.epsilon = check_positive("epsilon", epsilon)
        multiplier = accounting.inverse_rounded_up(self.epsilon)
        self._prepare(multiplier, sensitivity, n_coordinates, granularity, on_grid)

    @property
    def event(self) -> LaplaceDpEvent:
        """Return the event of one release."""
        return LaplaceDpEvent(self.noise_multiplier)

    def _draw(self, source: NoiseSource, shape: Shape) -> np.ndarray:
        return rounded_laplace(source, self.grid_scale, shape)


class GaussianMechanism(_GridMechanism):
    """Add Gaussian noise: (epsilon, delta)-differentially private, also in floating point.

    Like :class:`LaplaceMechanism`, with a real Gaussian variable and the l2 norm. All results for
    Gaussian noise on real numbers (the exact trade-off between epsilon and delta, composition)
    hold exactly for the release.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one release, above 0.
    delta : float
        Above 0 and below 1.
    sensitivity : float
        By how much the values of neighbouring data sets may differ, in the l2 norm: of the doubles
        that are given to :meth:`release`, rounding errors of their computation included.
    n_coordinates : int, default=1
        Largest number of coordinates of a value.
    granularity : float, default=None
        Width of the grid, a power of two. By default at least ``2**20`` times finer than the noise
        and the sensitivity, unless the noise would then span more than ``2**36`` points of it.
    on_grid : bool, default=False
        Whether all values are multiples of the granularity, as counts are of 1. Rounding then adds
        nothing to their sensitivity.

    Attributes
    ----------
    epsilon, delta : float or None
        As given; None for a mechanism made by :meth:`from_noise_multiplier`.
    sensitivity, n_coordinates, granularity, on_grid
        As given, or the chosen default.
    noise_multiplier : float
        Guaranteed standard deviation over sensitivity.
    scale : float
        Standard deviation of the noise. It is slightly larger than ``noise_multiplier *
        sensitivity``, because rounding to the grid may increase the sensitivity.
    grid_sensitivity, grid_scale : float
        Sensitivity and scale in units of the grid.
    event : GaussianDpEvent
        The event of one release, for a ledger.

    Raises
    ------
    ValueError
        If a parameter is out of its range, the granularity is not a power of two, or missing with
        ``on_grid=True``, or the noise would span more points of the grid than can be drawn.

    See Also
    --------
    skdpot.privacy.accounting.calibrate_noise_multiplier : Noise for an epsilon and delta.
    LaplaceMechanism : Pure privacy, without a delta.

    Notes
    -----
    Rounding may move each coordinate by one more grid point than its value moved. So the l2
    sensitivity of the integers is at most ``sensitivity / granularity + sqrt(n_coordinates)``, and
    for one coordinate ``ceil(sensitivity / granularity)`` (:ref:`proof-grid-noise`).

    References
    ----------
    .. [1] B. Balle and Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy:
       analytical calibration and optimal denoising", ICML 2018.

    Examples
    --------
    >>> from skdpot.privacy.noise import GaussianMechanism
    >>> mechanism = GaussianMechanism(epsilon=1.0, delta=1e-5, sensitivity=0.5, n_coordinates=3)
    >>> round(mechanism.scale, 4)
    1.8653
    >>> mechanism.release([1.0, 2.0, 3.0]).shape
    (3,)
    >>> GaussianMechanism.from_noise_multiplier(4.0, sensitivity=0.5).event
    GaussianDpEvent(noise_multiplier=4.0)
    """

    _order = 2

    def __init__(
        self,
        epsilon: float,
        delta: float,
        sensitivity: float,
        *,
        n_coordinates: int = 1,
        granularity: float | None = None,
        on_grid: bool = False,
    ) -> None:
        self.epsilon: float | None = check_positive("epsilon", epsilon)
        self.delta: float | None = check_delta(delta)
        multiplier = accounting.calibrate_noise_multiplier(self.epsilon, self.delta)
        self._prepare(multiplier, sensitivity, n_coordinates, granularity, on_grid)

    @classmethod
    def from_noise_multiplier(
        cls,
        noise_multiplier: float,
        sensitivity: float,
        *,
        n_coordinates: int = 1,
        granularity: float | None = None,
        on_grid: bool = False,
    ) -> "GaussianMechanism":
        """Return the mechanism with a given noise multiplier, as accountants use it.

        Parameters
        ----------
        noise_multiplier : float
            Standard deviation over sensitivity, above 0.
        sensitivity : float
            By how much the values of neighbouring data sets may differ, in the l2 norm.
        n_coordinates : int, default=1
            Largest number of coordinates of a value.
        granularity : float, default=None
            Width of the grid, a power of two.
        on_grid : bool, default=False
            Whether all values are multiples of it.

        Returns
        -------
        GaussianMechanism
            The mechanism; its ``epsilon`` and ``delta`` are None.

        Raises
        ------
        ValueError
            As for the class.
        """
        mechanism = cls.__new__(cls)
        mechanism.epsilon = mechanism.delta = None
        multiplier = check_positive("noise_multiplier", noise_multiplier)
        mechanism._prepare(multiplier, sensitivity, n_coordinates, granularity, on_grid)
        return mechanism

    @property
    def event(self) -> GaussianDpEvent:
        """Return the event of one release."""
        return GaussianDpEvent(self.noise_multiplier)

    def _draw(self, source: NoiseSource, shape: Shape) -> np.ndarray:
        return rounded_gaussian(source, self.grid_scale, shape)


# Poisson samples of records, with exactly the accounted probability or slightly less.


def poisson_sample(source: NoiseSource, n_records: int, rate: float) -> np.ndarray:
    """Return which records are sampled, each with the same probability.

    Returns positions in ascending order. Whether a record is among them is independent of all
    others. Under "add_remove" `n_records` is private, and then so is the running time.

    Notes
    -----
    The probability is that multiple of ``2**-63`` that is not above the rate and nearest to it, so
    that a price for the rate covers it (more sampling cannot cost less).

    Examples
    --------
    >>> from skdpot.privacy.noise import poisson_sample
    >>> from skdpot.privacy.noise import make_source
    >>> poisson_sample(make_source(0), 50, 0.1).tolist()
    [10, 18, 23, 27, 34, 37, 42, 43]
    """
    # A record is in the sample if a random integer below 2**63 is below the threshold. The first 16
    # bits of the integer, of three records in one word, decide for all but one record in 2**16.
    threshold = int(Fraction(rate) * 2**63)
    leading, trailing = divmod(threshold, 2**47)
    words = source.bits(48, -(-n_records // 3))
    drawn = np.concatenate([words >> shift & (2**16 - 1) for shift in (0, 16, 32)])[:n_records]
    included = drawn < leading
    undecided = np.flatnonzero(drawn == leading)
    included[undecided] = source.bits(47, len(undecided)) < trailing
    return np.flatnonzero(included)
