"""Laplace and Gaussian noise on integers, private also in finite arithmetic."""

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np

from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.checks import check_count, check_delta, check_positive, private_vector
from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent
from skdpot.privacy.exact_noise import LARGEST_SCALE, rounded_gaussian, rounded_laplace
from skdpot.privacy.random import make_source
from skdpot.privacy.rounding import fraction_rounded_up, inverse_rounded_up

# The default grid is finer than the noise and the sensitivity by 2**20, unless the noise would then
# span more than 2**36 grid points.
_FINENESS_BITS = 20
_LARGEST_DEFAULT_SCALE_BITS = 36
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
            self._exponent = _power_of_two(granularity)
        if self._exponent not in _EXPONENTS or math.isinf(noise_multiplier):
            raise ValueError(
                f"noise of scale {noise_multiplier:g} * {self.sensitivity:g}, on a grid of width "
                f"2**{self._exponent}, is out of the range of double precision."
            )
        self.granularity = math.ldexp(1.0, self._exponent)
        grid_sensitivity = self._grid_sensitivity()
        if Fraction(noise_multiplier) * grid_sensitivity > LARGEST_SCALE:
            raise ValueError(
                f"the scale of the noise, {noise_multiplier:g} times the sensitivity, would span "
                f"more than 2**40 points of a grid of width {self.granularity!r}: choose a coarser "
                "granularity, or less noise."
            )
        self.grid_sensitivity = fraction_rounded_up(grid_sensitivity)
        self.grid_scale = fraction_rounded_up(
            Fraction(noise_multiplier) * Fraction(self.grid_sensitivity)
        )
        self.scale = math.ldexp(self.grid_scale, self._exponent)

    def __repr__(self) -> str:
        shown = ("noise_multiplier", "sensitivity", "n_coordinates", "granularity")
        settings = ", ".join(f"{name}={getattr(self, name):g}" for name in shown)
        return f"<{type(self).__name__} {settings}>"

    def _default_exponent(self) -> int:
        """Return the exponent of the default grid's width."""
        scale = self.noise_multiplier * self.sensitivity
        finest = min(scale, self.sensitivity / self._most_rounding())
        if not 1e-280 < finest <= scale < 1e250:
            return _EXPONENTS.stop
        # frexp(x)[1] is one more than the floor of the base-two logarithm of x.
        return max(
            math.frexp(finest)[1] - 1 - _FINENESS_BITS,
            math.frexp(scale)[1] - _LARGEST_DEFAULT_SCALE_BITS,
        )

    def _most_rounding(self) -> float:
        """Return the norm of a vector of ones: the amount that rounding may add to a distance."""
        return self.n_coordinates ** (1.0 / self._order)

    def _grid_sensitivity(self) -> Fraction:
        """Return the largest distance of the integers of neighbouring values, in the norm.

        Rounding commutes with translation by integers, so ``|round(a) - round(b)|`` is at most the
        ceiling of ``|a - b|``, which is less than ``|a - b| + 1``. It does not change multiples of
        the granularity.
        """
        distance = Fraction(self.sensitivity) / Fraction(self.granularity)
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

    def noise(self, size: Any, random_state: Any = None) -> np.ndarray:
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
        numbers = np.where(np.isnan(doubles), 0.0, doubles)
        with np.errstate(all="ignore"):
            halves = np.floor(np.ldexp(numbers, 1 - self._exponent))
        bound = 2.0 * _LARGEST_INTEGER
        return (np.clip(halves, -bound, bound).astype(np.int64) + 1) >> 1

    @abstractmethod
    def _draw(self, source: Any, shape: Any) -> np.ndarray:
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
    >>> from skdpot.privacy.mechanisms import LaplaceMechanism
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
        self._prepare(
            inverse_rounded_up(self.epsilon), sensitivity, n_coordinates, granularity, on_grid
        )

    @property
    def event(self) -> LaplaceDpEvent:
        """Return the event of one release."""
        return LaplaceDpEvent(self.noise_multiplier)

    def _draw(self, source: Any, shape: Any) -> np.ndarray:
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
    >>> from skdpot.privacy.mechanisms import GaussianMechanism
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
        multiplier = calibrate_noise_multiplier(self.epsilon, self.delta)
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

    def _draw(self, source: Any, shape: Any) -> np.ndarray:
        return rounded_gaussian(source, self.grid_scale, shape)


def _power_of_two(granularity: Any) -> int:
    """Return the exponent of a power of two, or raise."""
    mantissa, exponent = math.frexp(check_positive("granularity", granularity))
    if mantissa != 0.5:
        raise ValueError(f"granularity must be a power of two, got {granularity!r}.")
    return exponent - 1
