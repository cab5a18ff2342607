"""The release of a vector or a number: Laplace noise without delta, Gaussian noise with it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent, PlannedDpEvent
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism
from skdpot.releases._release import Release

# Half widths of the intervals that hold unit noise with a probability of 95 %.
_LAPLACE_QUANTILE = math.log(20.0)
_NORMAL_QUANTILE = 1.959963984540054
# The grid of the noise ends at 2**39 times its scale, and values must lie on it.
_LARGEST_PRECISION = 2.0**38

# By how much neighbours differ in the l1 and in the l2 norm, under a relation given by keyword.
Sensitivities = Callable[..., tuple[float, float]]


class VectorRelease(Release):
    """The (epsilon, delta)-private release of a vector with noise.

    All parameters are public.

    Parameters
    ----------
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above. If epsilon is very large, only the
        part is spent that the range of the grid can use.
    sensitivities : callable
        A function of :mod:`skdpot.privacy.sensitivity` that returns, for ``relation=``, the largest
        l1 and l2 distances of the vectors of neighbours. The noise is for "replace_one".
    n_coordinates : int
        Length of the vector, at most.
    largest : float
        Largest magnitude of a value. It is not enforced, and only utility depends on it.
    counts : bool, default=False
        Whether values are integers. Their noise is rounded to integers, too, which makes it smaller
        for a large epsilon.

    Attributes
    ----------
    event : DpEvent
        The event of a release.
    standard_deviation, half_width : float
        The standard deviation of the noise on each value, and the magnitude that it exceeds with a
        probability of 5 %.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the noise would span too many points of a grid.

    See Also
    --------
    LaplaceMechanism, GaussianMechanism : The mechanisms that add the noise, with proofs.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import histogram_sensitivities
    >>> from skdpot.releases import VectorRelease
    >>> release = VectorRelease(
    ...     1.0, 0.0, histogram_sensitivities, n_coordinates=5, largest=1e6, counts=True
    ... )
    >>> release.event, release.sensitivity("replace_one")
    (LaplaceDpEvent(noise_multiplier=1.0), 2.0)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        sensitivities: Sensitivities,
        *,
        n_coordinates: int,
        largest: float,
        counts: bool = False,
    ) -> None:
        self._delta, self._sensitivities = delta, sensitivities
        grid: dict[str, Any] = {"granularity": 1.0, "on_grid": True} if counts else {}
        sensitivity = self.sensitivity("replace_one")
        epsilon = min(epsilon, _LARGEST_PRECISION * sensitivity / largest)
        self._mechanism: LaplaceMechanism | GaussianMechanism
        if delta == 0:
            self._mechanism = LaplaceMechanism(
                epsilon, sensitivity, n_coordinates=n_coordinates, **grid
            )
        else:
            self._mechanism = GaussianMechanism(
                epsilon, delta, sensitivity, n_coordinates=n_coordinates, **grid
            )

    @property
    def event(self) -> DpEvent:
        event = self._mechanism.event
        return event if self._delta == 0 else PlannedDpEvent(event, self._delta)

    def sensitivity(self, relation: str) -> float:
        l1, l2 = self._sensitivities(relation=relation)
        return l1 if self._delta == 0 else l2

    @property
    def standard_deviation(self) -> float:
        """Return the standard deviation of the noise on each value."""
        return self._mechanism.scale * (math.sqrt(2.0) if self._delta == 0 else 1.0)

    @property
    def half_width(self) -> float:
        """Return the magnitude that the noise on a value exceeds with a probability of 5 %."""
        return self._mechanism.scale * (_LAPLACE_QUANTILE if self._delta == 0 else _NORMAL_QUANTILE)

    def run(self, values: Any, source: Any) -> np.ndarray:
        """Return noisy values in their shape; every call is a separate release.

        Values beyond the end of the grid are clipped, and NaN becomes zero, silently.
        """
        return self._mechanism.release(values, source)
