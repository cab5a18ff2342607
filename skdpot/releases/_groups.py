"""The release of groups: noisy sums over records, and the groups estimated from them."""

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from skdpot.privacy.preview import ExpectedError
from skdpot.releases._layout import ReleasedGroups, UnitLayout
from skdpot.releases._ranges import check_range
from skdpot.releases._release import NoisyRelease


class GroupsRelease(NoisyRelease):
    """Base of releases of groups, which several owners may add up.

    The released values are a pair ``(V, codes)``: private records in unit coordinates, of shape (n,
    n_coordinates), and the private group of each, -1 for none.
    """

    layout: UnitLayout

    @property
    def noise(self) -> Any:
        """Return the release that adds the noise: to a vector, or to an owner's part of a sum."""
        return self._noise

    def use_noise(self, noise: Any) -> None:
        """Set another noise for the reading of a release, for example with fewer owners."""
        self._noise = noise

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

    @property
    @abstractmethod
    def record_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the minimum and the maximum that a record adds to each number of its place.

        A place is a group, or one of its cells. The first number counts its records.
        """

    def check_range(self, total: np.ndarray, n_records: int, n_parts: int = 1) -> None:
        """Raise for a sum of parts that needs noise rarer than ``2**-40``.

        `total` is the sum of `n_parts` parts of owners, who have the public number of `n_records`
        records. The error says what is out of range. Proof: :ref:`proof-ranges`.
        """
        numbers = np.reshape(
            self._noise.read_sum(total), (self.released_shape[0], -1, len(self.record_range[0]))
        )
        check_range(numbers, self.record_range, n_records, self._noise, n_parts)

    @abstractmethod
    def values(self, V: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the sums without noise, as integers in doubles of `released_shape`: private.

        `V` are private records in unit coordinates, and `codes` their private groups, -1 for none.
        """

    @abstractmethod
    def groups_of(self, released: np.ndarray, deviations: Any = None) -> ReleasedGroups:
        """Return the groups estimated from noisy sums; a function of the release.

        `deviations` are the standard deviations of the noise in every group; None is that of the
        release.
        """

    def part(self, values: tuple[np.ndarray, np.ndarray], source: Any) -> np.ndarray:
        """Release one owner's part of the sums, with noise.

        After the parts have been added and read as a sum, it is the argument of `groups_of`.
        """
        return self._noise.run(self.values(*values), source)

    def run(self, values: tuple[np.ndarray, np.ndarray], source: Any) -> ReleasedGroups:
        """Release the groups of records in one process."""
        return self.groups_of(self._noise.run(self.values(*values), source))
