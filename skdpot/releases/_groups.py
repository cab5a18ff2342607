"""What releases of groups have in common: noise, and owners that add their parts."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent
from skdpot.releases._layout import ReleasedGroups


class GroupPlan(ABC):
    """What will be released of groups: numbers that add up over records, with noise."""

    _noise: Any

    @property
    def noise(self) -> Any:
        """Return what adds the noise."""
        return self._noise

    def use_noise(self, noise: Any) -> None:
        """Let what was released be read as if it had other noise: that of fewer owners, say."""
        self._noise = noise

    @property
    def event(self) -> DpEvent:
        """Return what a release is charged as."""
        return self._noise.event

    @abstractmethod
    def values(self, V: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the numbers without noise: private.

        Parameters
        ----------
        V : ndarray of shape (n, n_coordinates)
            Private records in unit coordinates.
        codes : ndarray of shape (n,)
            Private group of every record, -1 for none.

        Returns
        -------
        ndarray of shape `released_shape`
            Integers, in doubles.
        """

    @abstractmethod
    def groups_of(self, released: np.ndarray, deviations: Any = None) -> ReleasedGroups:
        """Return the groups that numbers with noise tell of; a function of the release.

        Parameters
        ----------
        released : ndarray of shape `released_shape`
            Numbers with noise.
        deviations : ndarray of shape (n_groups,), default=None
            Standard deviations of the noise in every group; None is that of the plan.

        Returns
        -------
        ReleasedGroups
            Points and masses of every group.
        """

    def part(self, V: np.ndarray, codes: np.ndarray, source: Any) -> np.ndarray:
        """Release what one owner's records add to the groups, with noise.

        Parameters
        ----------
        V : ndarray of shape (n, n_coordinates)
            Private records in unit coordinates.
        codes : ndarray of shape (n,)
            Private group of every record, -1 for none.
        source : NoiseSource
            Where the noise comes from.

        Returns
        -------
        ndarray of shape `released_shape`
            What `groups_of` takes, once noise that comes in parts was read as a sum.
        """
        return self._noise.release(self.values(V, codes), source)

    def run(self, V: np.ndarray, codes: np.ndarray, source: Any) -> ReleasedGroups:
        """Release the groups of records that are all in one place.

        Parameters
        ----------
        V : ndarray of shape (n, n_coordinates)
            Private records in unit coordinates.
        codes : ndarray of shape (n,)
            Private group of every record, -1 for none.
        source : NoiseSource
            Where the noise comes from.

        Returns
        -------
        ReleasedGroups
            Points and masses of every group.
        """
        return self.groups_of(self.part(V, codes, source))
