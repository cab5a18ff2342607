"""Records in unit coordinates, and released groups of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

_TINY = 1e-9


@dataclass(frozen=True)
class UnitLayout:
    """The public meaning of the coordinates of a record.

    The first coordinates are numbers between 0 and 1. The blocks that follow have one coordinate
    per category, which is 1 for the category of the record, and 0 for all others.

    Attributes
    ----------
    levels : tuple of int
        For every number, 0 if it is continuous, else how many levels it has, at equal distances
        from 0 to 1.
    blocks : tuple of int
        How many categories every block has.

    Examples
    --------
    >>> from skdpot.releases._layout import UnitLayout
    >>> layout = UnitLayout(levels=(0, 2), blocks=(3,))
    >>> layout.n_coordinates
    5
    >>> layout.block_slices
    [slice(2, 5, None)]
    """

    levels: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def n_numbers(self) -> int:
        """Return the number of numerical coordinates."""
        return len(self.levels)

    @property
    def n_coordinates(self) -> int:
        """Return the number of coordinates."""
        return len(self.levels) + sum(self.blocks)

    @cached_property
    def block_slices(self) -> list[slice]:
        """Return the coordinates of every block."""
        ends = np.cumsum([self.n_numbers, *self.blocks]).tolist()
        return [slice(start, end) for start, end in zip(ends[:-1], ends[1:], strict=True)]

    @cached_property
    def binary(self) -> np.ndarray:
        """Return which numbers have two levels."""
        return np.array([count == 2 for count in self.levels], dtype=bool)

    @property
    def random_distance(self) -> float:
        """Return the mean squared distance of two points drawn uniformly and independently.

        It is raised to a small number if all points are equal.
        """
        return max(len(self.levels) / 6.0 + sum(2.0 - 2.0 / k for k in self.blocks), _TINY)

    def read(self, V: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the numbers and the categories of private records, without errors.

        Numbers are in [0, 1], for any input: NaN becomes one half, and ordinal ones the nearest
        level. Categories are one array of integers for every block: the position of the only 1
        among zeros, or -1 for none.
        """
        numbers = V[:, : self.n_numbers]
        numbers = np.clip(np.where(np.isnan(numbers), 0.5, numbers), 0.0, 1.0)
        for j, levels in enumerate(self.levels):
            numbers[:, j] = _nearest_level(numbers[:, j], levels)
        categories = []
        for block in self.block_slices:
            ones, zeros = V[:, block] == 1.0, V[:, block] == 0.0
            declared = (ones | zeros).all(axis=1) & (ones.sum(axis=1) == 1)
            categories.append(np.where(declared, np.argmax(ones, axis=1), -1))
        return numbers, categories

    def to_levels(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers with ordinal ones moved to the nearest level."""
        numbers = numbers.copy()
        for j, levels in enumerate(self.levels):
            numbers[:, j] = _nearest_level(numbers[:, j], levels)
        return numbers

    def points(self, numbers: np.ndarray, categories: list[np.ndarray]) -> np.ndarray:
        """Return valid points, of numbers in [0, 1] and of categories of every block."""
        points = np.zeros((len(numbers), self.n_coordinates))
        points[:, : self.n_numbers] = numbers
        for block, chosen in zip(self.block_slices, categories, strict=True):
            points[np.arange(len(points)), block.start + chosen] = 1.0
        return points


def _nearest_level(numbers: np.ndarray, levels: int) -> np.ndarray:
    """Return numbers moved to equidistant levels in [0, 1], if there are levels."""
    return np.floor(numbers * (levels - 1.0) + 0.5) / (levels - 1.0) if levels > 1 else numbers


@dataclass(frozen=True, eq=False)
class ReleasedGroups:
    """Publishable groups: functions of a release and of public quantities.

    Attributes
    ----------
    sizes : ndarray of shape (n_groups,)
        About how many records every group has; at least 1.
    points : list of ndarray of shape (n_points, n_coordinates)
        Valid points of every group, in unit coordinates; of a `GroupRelease` with bounds, in the
        features' own units.
    masses : list of ndarray of shape (n_points,)
        Their weights in every group, above 0, with sum 1.
    """

    sizes: np.ndarray
    points: list[np.ndarray]
    masses: list[np.ndarray]
