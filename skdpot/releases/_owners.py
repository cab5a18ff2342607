"""Releases of owners who add up integers: each with the full noise, or with a share."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.checks import check_count, check_delta, check_positive, private_vector
from skdpot.privacy.events import DpEvent, GaussianDpEvent, PlannedDpEvent
from skdpot.privacy.exact_noise import LARGEST_SCALE, rounded_gaussian
from skdpot.privacy.random import make_source
from skdpot.releases._release import NoisyRelease, Release
from skdpot.releases._tails import NoiseTail
from skdpot.releases._vector import Sensitivities, VectorRelease

# The noise is larger than needed by this share, which pays for the clipping and for the rounding of
# doubles.
_SPARE = 2.0**-40
# With this many grid points in a deviation, rounding adds less than a thousandth to the variance,
# at a price that cannot be measured.
_SMALLEST_SCALE = 16.0
# Parts are clipped at this many deviations or more: a probability below exp(-2**22.9).
_DEVIATIONS = 2.0**12
# A larger epsilon is not spent: exp(2**22) times that probability is still negligible.
_LARGEST_EPSILON = 2.0**22
# Number of draws from which the deviation of a median is computed.
_N_DRAWS = 1 << 14
# Variance that rounding adds, in squares of the grid's width.
_OF_ROUNDING = 1.0 / 12.0


class _PartRelease(Release):
    """Base of both releases: the number of parts, and the limit that their sum is an int64."""

    _deviation_of_part: float
    # How far the noise of a part reaches, in units of `step`.
    tail: NoiseTail

    def __init__(
        self, sensitivities: Sensitivities, n_coordinates: Any, largest: Any, n_parts: Any
    ) -> None:
        self._sensitivities = sensitivities
        self.n_coordinates = check_count("n_coordinates", n_coordinates)
        self.largest = check_positive("largest", largest)
        self.n_parts = self.n_contributors = check_count("n_parts", n_parts)
        self._fewest, self._shift = 1, 0
        # Deviation of the value that is read of all parts, in deviations of one part.
        self._spread = math.sqrt(self.n_parts)

    @property
    def _largest_part(self) -> int:
        """Return the largest magnitude of a part that keeps every sum within int64."""
        return min((2**63 - 1) // self.n_parts, 2**61)

    def _set_deviation(self, deviation: float) -> None:
        """Raise unless values and very large noise fit into a part, in steps."""
        self._deviation_of_part = deviation
        needed = self.largest * 2.0**self._shift + _DEVIATIONS * deviation
        if not needed <= self._largest_part:
            raise ValueError(
                f"values up to {self.largest:g} and their noise, on a grid of width "
                f"{self.step:g}, do not fit into a sum of {self.n_parts} integers of 64 bits: use "
                "a coarser grid, fewer parts, or a smaller epsilon."
            )

    @property
    def standard_deviation(self) -> float:
        """Return the deviation of the noise on a value of the sum of all parts."""
        return self.step * self._deviation_of_part * self._spread

    @property
    def step(self) -> float:
        """Return the size of 1 in a part, in units of the values."""
        return math.ldexp(1.0, -self._shift)

    def with_parts(self, n: int) -> "_PartRelease":
        """Return the same noise for a sum of so many parts, or raise if it must not be read.

        It must not be read with more parts than planned, nor with so few that the sum does not have
        the promised noise.
        """
        if not self._fewest <= check_count("n", n) <= self.n_parts:
            raise ValueError(f"a sum has {self._fewest} to {self.n_parts} contributors, got {n}.")
        other = copy.copy(self)
        other.n_contributors, other._spread = int(n), math.sqrt(n)
        return other

    def read_sum(self, total: Any) -> np.ndarray:
        """Return a sum of int64 parts in units of the values; a function of the release."""
        total = np.asarray(total)
        if total.dtype != np.int64:
            raise TypeError(f"a sum of parts is of int64, got {total.dtype}.")
        return np.ldexp(total.astype(np.float64), -self._shift)


class SummedRelease(_PartRelease, NoisyRelease):
    """Noise that every owner adds in full, as its own records need it.

    Parameters
    ----------
    epsilon, delta : float
        Budget of every owner's part; Laplace noise for delta 0, Gaussian noise above.
    sensitivities : callable
        How much one record can change the vector of its owner, as in `VectorRelease`.
    n_coordinates : int
        Length of the vector.
    largest : float
        Magnitude that no value exceeds, in a part or in the sum.
    n_parts : int
        Number of owners.

    Attributes
    ----------
    n_parts, n_coordinates, largest
        As given.
    n_contributors : int
        How many parts `standard_deviation` is of: all of them, or as `with_parts` was told.
    step : float
        Size of 1 in a part, in units of the values: 1.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or sums might leave that of 64 bits.

    See Also
    --------
    SharedRelease : Less noise, for secure sums.

    Notes
    -----
    Every part is private by itself, and so is the sum, even if all other owners are dishonest. Its
    noise has `n_parts` times the variance that one owner of all records would need. For a person
    with records at k owners, the charges of these owners add up: ``k epsilon`` and ``k delta``.
    (:ref:`proof-shared-noise`.)

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import histogram_sensitivities
    >>> from skdpot.releases import SummedRelease
    >>> noise = SummedRelease(
    ...     1.0, 0.0, histogram_sensitivities, n_coordinates=2, largest=1e6, n_parts=3
    ... )
    >>> noise.event
    LaplaceDpEvent(noise_multiplier=1.0)
    >>> round(noise.standard_deviation / noise.with_parts(1).standard_deviation, 3)
    1.732
    >>> parts = [noise.run([100, 50], random_state) for random_state in range(3)]
    >>> noise.read_sum(sum(parts)).tolist()
    [303.0, 148.0]
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        sensitivities: Sensitivities,
        *,
        n_coordinates: int,
        largest: float,
        n_parts: int,
    ) -> None:
        super().__init__(sensitivities, n_coordinates, largest, n_parts)
        options: Any = {"n_coordinates": self.n_coordinates, "largest": self.largest}
        self._noise = VectorRelease(epsilon, delta, sensitivities, counts=True, **options)
        self.tail = self._noise.tail
        self._set_deviation(self._noise.standard_deviation)

    def of_median(self, n_rows: Sequence[int]) -> "SummedRelease":
        """Return the noise of `median_of_parts`, for owners with these numbers of rows.

        Its deviation is simulated, to about a percent: the noises of parts are independent, with
        known distributions.
        """
        other = copy.copy(self)
        other.n_contributors = len(n_rows)
        random_state = np.random.RandomState(0)
        draw = random_state.laplace if self.tail.laplace else random_state.normal
        draws = np.rint(draw(0.0, self.tail.scale, (len(n_rows), _N_DRAWS)))
        squares = median_of_parts(draws, n_rows).astype(np.float64) ** 2
        other._spread = math.sqrt(np.mean(squares)) / self._deviation_of_part
        return other

    def run(self, values: Any, source: Any = None) -> np.ndarray:
        """Return what one owner sends, as int64: its values with the full noise.

        NaN becomes zero, and values beyond the room in a sum are clipped, silently.
        """
        noisy = np.asarray(self._noise.run(values, source))
        return np.clip(noisy.astype(np.int64), -self._largest_part, self._largest_part)


class SharedRelease(_PartRelease):
    """Gaussian noise in shares: every owner adds one, and only the sum is seen.

    Parameters
    ----------
    epsilon, delta : float
        Budget of the sum; delta above 0.
    sensitivities : callable
        How much one record can change the vector of its owner, as in `VectorRelease`.
    n_coordinates : int
        Length of the vector.
    largest : float
        Magnitude that no value exceeds, in a part or in the sum.
    n_parts : int
        Number of owners.
    n_honest : int
        Minimum number of contributors to a sum that add their noise and keep it secret. The
        guarantee depends on it.

    Attributes
    ----------
    n_parts, n_honest, n_coordinates, largest
        As given.
    n_contributors : int
        How many parts `standard_deviation` is of: all of them, or as `with_parts` was told.
    step : float
        Size of 1 in a part, in units of the values: a power of two, at most 1.
    scale : float
        Standard deviation of the noise of a part before it is rounded, in units of `step`.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or sums might leave that of 64 bits.

    See Also
    --------
    SummedRelease : More noise, but no trust in other owners is needed.

    Notes
    -----
    The sum of the parts of `n_honest` owners is private against all others together, including the
    coordinator. It has the noise that one owner of all their records would add. Other terms of the
    sum do not change this. A single part has too little noise, so it must not be seen: the
    aggregation must be secure.

    Rounded Gaussian variables do not add up to a rounded Gaussian variable. But their sum is
    distributed nearly as the sum of one Gaussian and m uniform variables, rounded: at every point
    up to a factor that `rounding_price` bounds. A slightly larger deviation pays for this factor.
    So the sum is at least as private as the Gaussian mechanism of `event`, at every epsilon and
    under any composition. The grid is chosen fine enough for this. Parts are clipped so that no sum
    leaves 64 bits; the clip is at least 4096 deviations of the noise away.
    (:ref:`proof-shared-noise`.)

    A person with records at k owners moves the sum k times as far as the event says. The cost for
    this person is the price of ``GaussianDpEvent(noise_multiplier / k)``. The sum of the owners'
    charges is *not* a bound on it.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import histogram_sensitivities
    >>> from skdpot.releases import SharedRelease, SummedRelease
    >>> options = dict(n_coordinates=2, largest=1e6, n_parts=3)
    >>> shared = SharedRelease(1.0, 1e-5, histogram_sensitivities, **options, n_honest=2)
    >>> summed = SummedRelease(1.0, 1e-5, histogram_sensitivities, **options)
    >>> round(shared.standard_deviation, 2), round(summed.standard_deviation, 2)
    (6.46, 9.14)
    >>> shared.step
    0.125
    >>> parts = [shared.run([100, 50], random_state) for random_state in range(3)]
    >>> shared.read_sum(sum(parts)).tolist()
    [300.75, 148.625]
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        sensitivities: Sensitivities,
        *,
        n_coordinates: int,
        largest: float,
        n_parts: int,
        n_honest: int,
    ) -> None:
        super().__init__(sensitivities, n_coordinates, largest, n_parts)
        self.n_honest = self._fewest = check_count("n_honest", n_honest)
        if self.n_honest > self.n_parts:
            raise ValueError(f"n_honest={n_honest} must be at most n_parts={n_parts}.")
        if delta == 0:
            raise ValueError(
                "shares of noise are Gaussian: delta must be above 0. Or choose SummedRelease."
            )
        self._delta = check_delta(delta)
        self._noise_multiplier = calibrate_noise_multiplier(
            min(check_positive("epsilon", epsilon), _LARGEST_EPSILON), self._delta
        )
        self._choose_grid(check_positive("sensitivity", self.sensitivity("replace_one")))
        self.tail = NoiseTail(False, self.scale)
        self._set_deviation(math.sqrt(self.scale**2 + _OF_ROUNDING))

    def _choose_grid(self, l2: float) -> None:
        """Choose the coarsest grid that is fine enough, and noise that covers its rounding.

        Let m be the multiplier of the event, and p the price. Then the multiplier of the noise must
        be at least ``1 / (1 / m - p)``, which is below ``m (1 + 2 m p)``.
        """
        price = rounding_price(_SMALLEST_SCALE, self.n_honest, self.n_coordinates)
        share = _SPARE + 2.0 * self._noise_multiplier * price
        # Different integers are at least 1 apart.
        deviation = self._noise_multiplier * max(l2, 1.0) * (1.0 + share)
        deviation /= math.sqrt(self.n_honest)
        if not deviation <= LARGEST_SCALE:
            raise ValueError(
                f"noise of deviation {deviation:g} spans more than 2**40 integers: use a coarser "
                "grid, or a larger budget."
            )
        while (scale := math.ldexp(deviation, self._shift)) < _SMALLEST_SCALE:
            self._shift += 1
        self.scale = scale

    @property
    def event(self) -> DpEvent:
        return PlannedDpEvent(GaussianDpEvent(self._noise_multiplier), self._delta)

    def sensitivity(self, relation: str) -> float:
        return self._sensitivities(relation=relation)[1]

    def run(self, values: Any, source: Any = None) -> np.ndarray:
        """Return one owner's part of the sum, as int64 in units of `step`.

        It has only a share of the noise, so it is not private. Send it only into a sum whose parts
        nobody sees. Values beyond `largest` are clipped, and NaN becomes zero, silently.
        """
        doubles = private_vector(values, self.n_coordinates)
        doubles = np.clip(np.where(np.isnan(doubles), 0.0, doubles), -self.largest, self.largest)
        integers = np.rint(doubles).astype(np.int64) << self._shift
        # Neither overflows: noise is at most 2**62, and values are at most 2**61.
        noisy = integers + rounded_gaussian(make_source(source), self.scale, doubles.shape)
        return np.clip(noisy, -self._largest_part, self._largest_part)


def median_of_parts(parts: np.ndarray, n_rows: Sequence[int]) -> np.ndarray:
    """Return the sum of parts that results if all owners have the median share of rows.

    `parts` has one owner's part in each row, and `n_rows` how many rows every owner declared. Every
    number is the median over owners, per row of theirs, times the rows of all.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases import median_of_parts
    >>> median_of_parts(np.array([[10, 30], [21, 59], [900, 0]]), [100, 200, 300])
    array([ 63, 177])
    """
    rows = np.array(n_rows, dtype=np.float64)
    return np.rint(np.median(parts / rows[:, None], axis=0) * rows.sum()).astype(np.int64)


def rounding_price(scale: float, n_parts: int, n_coordinates: int = 1) -> float:
    """Return the loss from rounding Gaussian variables before the addition instead of after it.

    Let mu be the sensitivity over ``scale * sqrt(n_parts)``. A sum without rounding is mu-Gaussian
    private. The sum of rounded variables is so for mu plus this number (:ref:`proof-shared-noise`).
    The scale, at least 1, is that of each variable, in units of the grid.

    Examples
    --------
    >>> from skdpot.releases._owners import rounding_price
    >>> rounding_price(1.0, 2) < 3e-4
    True
    >>> rounding_price(4.0, 100, 1_000_000) < 1e-59
    True
    """
    if not scale >= 1.0:
        raise ValueError(f"scale must be at least 1, got {scale!r}.")
    # The terms fall by more than exp(-3 pi^2): a share of 1e-12 covers all but the first. The
    # positive number that is added keeps underflow from making the price 0.
    factor = 2.0 * math.exp(-((math.pi * scale) ** 2)) * (1.0 + 1e-12) + 1e-300
    additions = float(n_coordinates) * (n_parts - 1)
    return math.sqrt(math.pi / 2.0) * additions * 2.0 * math.atanh(factor) * (1.0 + 1e-12)
