"""The release of groups: noisy sums over records, and the groups estimated from them."""

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from skdpot.privacy.preview import ExpectedError
from skdpot.releases._layout import ReleasedGroups, UnitLayout
from skdpot.releases._release import NoisyRelease


class GroupsRelease(NoisyRelease):
    """Base of releases of groups, whose parts several owners may add up.

    Each part has the noise of a release of its own, so the sum of `n_parts` of them has as many
    times the variance. The released values are a pair ``(V, codes)``: private records in unit
    coordinates, of shape (n, n_coordinates), and the private group of each, -1 for none.
    """

    layout: UnitLayout
    n_parts: int

    @property
    def standard_deviation(self) -> float:
        """Return the deviation of the noise on a number of the sum of all parts."""
        return self._noise.standard_deviation * math.sqrt(self.n_parts)

    @property
    @abstractmethod
    def expected_error(self) -> float:
        """Return about how far, in squared distance, the noise moves a group of average size.

        Kinds of releases are compared by it.
        """

    @property
    def transport_cost(self) -> float:
        """Return about the cost, in squared distance, of moving a released group back."""
        return self.expected_error

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Tell whether noise hides a group of average size."""

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return how far noise moves a group; its scale is the distance of two random points."""
        scale = math.sqrt(self.layout.random_distance)
        moved = scale if self.is_lost else math.sqrt(self.transport_cost)
        what = "distance by which a group is moved, in parts of the ranges of the columns"
        return (ExpectedError(what, moved, scale),)

    @property
    @abstractmethod
    def released_shape(self) -> tuple[int, ...]:
        """Return the shape of what is released."""

    @abstractmethod
    def values(self, V: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the sums without noise, as integers in doubles of `released_shape`: private.

        `V` are private records in unit coordinates, and `codes` their private groups, -1 for none.
        """

    @abstractmethod
    def groups_of(self, released: np.ndarray) -> ReleasedGroups:
        """Return the groups estimated from the sum of all parts; a function of the release."""

    def add_noise(self, values: np.ndarray, source: Any) -> np.ndarray:
        """Release sums, of all records or of one owner's, with all the noise that they need."""
        return self._noise.run(values, source)

    def run(self, values: tuple[np.ndarray, np.ndarray], source: Any) -> ReleasedGroups:
        """Release the groups of records in one process."""
        return self.groups_of(self.add_noise(self.values(*values), source))
