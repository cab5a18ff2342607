"""Noise on a vector: Laplace's without a delta, and normal with one."""

import math
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent, PlannedDpEvent
from skdpot.privacy.mechanisms import GaussianMechanism, LaplaceMechanism

# Half the width of an interval that holds the noise with a probability of 95 %.
_LAPLACE_QUANTILE = math.log(20.0)
_NORMAL_QUANTILE = 1.959963984540054
# The grid of the noise ends at 2**39 times its scale, and values have to lie on it.
_LARGEST_PRECISION = 2.0**38


class VectorNoise:
    """Noise for a budget: what is released of a vector is (epsilon, delta)-private.

    All parameters are public, and so is all that it tells but the values that are released.

    Parameters
    ----------
    epsilon, delta : float
        Budget; Laplace noise for delta 0, normal noise above. Of a large epsilon no more is spent
        than the range of the grid has a use for.
    l1, l2 : float
        By how much the vectors of neighbours may differ, in either norm; the noise has a use for
        one of them.
    n_coordinates : int
        Length of the vector, at most.
    largest : float
        Magnitude that no value exceeds. It is not enforced, and nothing but utility depends on it.
    counts : bool, default=False
        Whether values are integers. Their noise is rounded to integers, too, which makes it smaller
        for a large epsilon.

    Attributes
    ----------
    event : DpEvent
        What a release is charged as.
    standard_deviation, half_width : float
        Of the noise on each value: its standard deviation, and what its magnitude exceeds with a
        probability of 5 %.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the noise would span too many points of a grid.

    See Also
    --------
    LaplaceMechanism, GaussianMechanism : What adds it, with the proofs.

    Examples
    --------
    >>> from skdpot.releases._vector import VectorNoise
    >>> noise = VectorNoise(1.0, 0.0, l1=2.0, l2=1.5, n_coordinates=5, largest=1e6, counts=True)
    >>> noise.event
    LaplaceDpEvent(noise_multiplier=1.0)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        l1: float,
        l2: float,
        n_coordinates: int,
        largest: float,
        counts: bool = False,
    ) -> None:
        self._delta = delta
        grid: dict[str, Any] = {"granularity": 1.0, "on_grid": True} if counts else {}
        self._mechanism: Any
        if delta == 0:
            epsilon = min(epsilon, _LARGEST_PRECISION * l1 / largest)
            self._mechanism = LaplaceMechanism(epsilon, l1, n_coordinates=n_coordinates, **grid)
        else:
            epsilon = min(epsilon, _LARGEST_PRECISION * l2 / largest)
            self._mechanism = GaussianMechanism(
                epsilon, delta, l2, n_coordinates=n_coordinates, **grid
            )

    @property
    def event(self) -> DpEvent:
        """Return what a release is charged as."""
        event = self._mechanism.event
        return event if self._delta == 0 else PlannedDpEvent(event, self._delta)

    @property
    def standard_deviation(self) -> float:
        """Return the standard deviation of the noise on each value."""
        return self._mechanism.scale * (math.sqrt(2.0) if self._delta == 0 else 1.0)

    @property
    def half_width(self) -> float:
        """Return what the magnitude of the noise on a value exceeds with a probability of 5 %."""
        return self._mechanism.scale * (_LAPLACE_QUANTILE if self._delta == 0 else _NORMAL_QUANTILE)

    def release(self, values: np.ndarray, source: Any) -> np.ndarray:
        """Return values with noise; every call is a release of its own.

        Parameters
        ----------
        values : array-like of at most n_coordinates numbers
            Private. What is beyond the end of the grid is moved there, and NaN to zero, silently.
        source : None, int, numpy.random.RandomState or NoiseSource
            Where the noise comes from; None is the cryptographic source.

        Returns
        -------
        float or ndarray
            In the shape of the values.

        Raises
        ------
        TypeError
            If values are text, or complex.
        ValueError
            If there are more than n_coordinates of them.
        """
        return self._mechanism.release(values, source)
