"""Groups as noisy counts in the cells of a public grid."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdpot.privacy.charging import ExpectedError
from skdpot.privacy.noise import NoiseSource
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases._sums import NoisyRelease, VectorRelease

LARGEST_GRID = 4096
_MOST_BINS = 64
# A group whose size is below this many deviations of the noise is unknown.
_DEVIATIONS = 2.0
# The counts are used if they lower the squared error of a division by more than this, in variances.
_PENALTY = 8.0


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
    >>> from skdpot.releases._groups import UnitLayout
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

    @property
    def random_distance(self) -> float:
        """Return the mean squared distance of two points drawn uniformly and independently.

        It is raised to a small number if all points are equal.
        """
        return max(len(self.levels) / 6.0 + sum(2.0 - 2.0 / k for k in self.blocks), 1e-9)

    def read(self, V: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the numbers and the categories of private records, without errors.

        Numbers are in [0, 1], for any input: NaN becomes one half, and ordinal ones the nearest
        level. Categories are one array of integers for every block: the position of the only 1
        among zeros, or -1 for none.
        """
        numbers = V[:, : self.n_numbers]
        numbers = np.clip(np.where(np.isnan(numbers), 0.5, numbers), 0.0, 1.0)
        for j, levels in enumerate(self.levels):
            if levels > 1:
                numbers[:, j] = np.floor(numbers[:, j] * (levels - 1.0) + 0.5) / (levels - 1.0)
        categories = []
        for block in self.block_slices:
            ones, zeros = V[:, block] == 1.0, V[:, block] == 0.0
            declared = (ones | zeros).all(axis=1) & (ones.sum(axis=1) == 1)
            categories.append(np.where(declared, np.argmax(ones, axis=1), -1))
        return numbers, categories

    def points(self, numbers: np.ndarray, categories: list[np.ndarray]) -> np.ndarray:
        """Return valid points, of numbers in [0, 1] and of categories of every block."""
        points = np.zeros((len(numbers), self.n_coordinates))
        points[:, : self.n_numbers] = numbers
        for block, chosen in zip(self.block_slices, categories, strict=True):
            points[np.arange(len(points)), block.start + chosen] = 1.0
        return points


class HistogramRelease(NoisyRelease):
    """A grid, and the noise of the counts in its cells; made of public quantities.

    Parameters
    ----------
    layout : UnitLayout
        The meaning of the coordinates.
    n_groups, n_records : int
        Numbers of groups and of records.
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above.
    n_parts : int, default=1
        Number of parts that are added up, each with the noise of one release.

    Raises
    ------
    ValueError
        If even two bins for every number make too many cells.

    Notes
    -----
    A cell is a bin of every number and a category of every block. A record without a declared
    group, or without a category in one of the blocks, is not counted.

    More bins blur records less, but their noise moves more mass. The number of bins minimises the
    expected error, which is public.

    Several owners may add up parts. Each part has the noise of a release of its own, so the sum of
    `n_parts` of them has as many times the variance.
    """

    def __init__(
        self,
        layout: UnitLayout,
        n_groups: int,
        n_records: int,
        epsilon: float,
        delta: float,
        n_parts: int = 1,
    ) -> None:
        self.layout, self.n_groups, self.n_records = layout, n_groups, n_records
        self.n_parts = n_parts
        self._noise = VectorRelease(
            epsilon,
            delta,
            histogram_sensitivities,
            n_coordinates=n_groups * LARGEST_GRID,
            largest=float(n_records),
            counts=True,
        )
        if not has_grid(layout):
            raise ValueError(
                f"a histogram of {layout.n_numbers} numbers and blocks of {list(layout.blocks)} "
                f"categories has more than {LARGEST_GRID} cells, even with two bins for every "
                "number. Use method='conditional' with a delta, or drop or merge columns."
            )
        # With fewer rows than this in a cell on average, cells tell more of rows than of groups.
        size, rows_per_cell = n_records / n_groups, 4
        most_cells = max(min(size / rows_per_cell, LARGEST_GRID), math.prod(_shape(layout, 2)))
        shapes = {_shape(layout, n_bins) for n_bins in range(2, _MOST_BINS + 1)}
        possible = [shape for shape in shapes if math.prod(shape) <= most_cells]
        self.shape = min(sorted(possible), key=lambda shape: sum(self._errors(shape, size)))

    @property
    def standard_deviation(self) -> float:
        """Return the deviation of the noise on a count of the sum of all parts."""
        return self._noise.standard_deviation * math.sqrt(self.n_parts)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return how far noise moves a group; its scale is the distance of two random points."""
        scale = math.sqrt(self.layout.random_distance)
        size = self.n_records / self.n_groups
        blur, noise = self._errors(self.shape, size)
        moved = math.sqrt(blur + noise / (1.0 + noise / self.layout.random_distance))
        what = "distance by which a group is moved, in parts of the ranges of the columns"
        return (ExpectedError(what, scale if self.is_harmful(size) else moved, scale),)

    def is_harmful(self, size: float) -> bool:
        """Tell whether noise moves so much mass of a group of this size that a map shows it.

        Measured on two to four columns of nine public tables, with 600 to 2,000 rows and an epsilon
        of 0.15 to 3. Where no group had more, the AUC of the group fell in all nine maps; elsewhere
        it rose in 17 of 27, by up to .31.
        """
        most_of_map = 0.015
        return self._errors(self.shape, size)[1] >= most_of_map * self.layout.random_distance

    def _errors(self, shape: tuple[int, ...], size: float) -> tuple[float, float]:
        """Return the errors of a grid: from the width of bins, and from the noise of counts."""
        blur = sum(
            1.0 / (12.0 * n_bins**2)
            for n_bins, levels in zip(shape, self.layout.levels, strict=False)
            if not levels or n_bins < levels
        )
        # Squared distance due to noise, divided by the deviation of the noise on half of all counts
        # and by the squared distance of random points. Measured on groups of several shapes.
        share_that_moves = 0.25
        moved = share_that_moves * self.standard_deviation * math.sqrt(math.prod(shape))
        return blur, moved / size * self.layout.random_distance

    # ------------------------------------------------------------------- private records

    def values(self, V: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the counts without noise, as integers in doubles: private.

        `V` are private records in unit coordinates, and `codes` their private groups, -1 for none.
        """
        numbers, categories = self.layout.read(V)
        cells = [*map(_bins, numbers.T, self.shape, self.layout.levels), *categories]
        member = (np.array([codes, *cells]) >= 0).all(axis=0)
        counts = np.zeros((self.n_groups, *self.shape))
        np.add.at(counts, tuple(index[member] for index in (codes, *cells)), 1.0)
        return counts

    def run(
        self, values: tuple[np.ndarray, np.ndarray], source: NoiseSource
    ) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """Release the groups of records ``(V, codes)``, all in one process, as `groups_of` does."""
        return self.groups_of(self.add_noise(self.values(*values), source))

    # ------------------------------------------------------------------- post-processing

    @property
    def middles(self) -> np.ndarray:
        """Return a point for every cell, of shape (n_cells, n_coordinates); public.

        It is the middle of a bin, or the median of the levels in it.
        """
        indices = np.indices(self.shape).reshape(len(self.shape), -1)
        d = self.layout.n_numbers
        numbers = np.empty((indices.shape[1], d))
        for j, levels in enumerate(self.layout.levels):
            n_bins = self.shape[j]
            if levels:
                bins = np.arange(levels) * n_bins // levels
                values = [int(np.median(np.flatnonzero(bins == i))) for i in range(n_bins)]
                numbers[:, j] = np.array(values)[indices[j]] / (levels - 1.0)
            else:
                numbers[:, j] = (indices[j] + 0.5) / n_bins
        return self.layout.points(numbers, list(indices[d:]))

    def groups_of(self, noisy: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """Return the sizes of groups with these counts, their points, and the masses of these.

        Points are valid, in unit coordinates. Masses are above 0, with sum 1 in every group. A size
        is the sum of a group's counts, raised to 1. If that sum is below two standard
        deviations of its noise, the group is uniform over all cells; otherwise its masses are those
        of :func:`denoised`.
        """
        deviation = self.standard_deviation
        totals = noisy.reshape(self.n_groups, -1).sum(axis=1)
        n_cells = math.prod(self.shape)
        masses = denoised(noisy, deviation, self.layout.n_numbers).reshape(self.n_groups, -1)
        masses[totals < _DEVIATIONS * deviation * math.sqrt(n_cells)] = 1.0 / n_cells
        middles = self.middles
        points = [middles[row > 0] for row in masses]
        return np.maximum(totals, 1.0), points, [row[row > 0] for row in masses]


def has_grid(layout: UnitLayout) -> bool:
    """Return whether two bins for every number give few enough cells for a histogram."""
    return math.prod(_shape(layout, 2)) <= LARGEST_GRID


def _bins(numbers: np.ndarray, n_bins: int, levels: int) -> np.ndarray:
    """Return the bins of numbers in [0, 1], of levels if there are some."""
    if levels:
        return np.rint(numbers * (levels - 1)).astype(np.intp) * n_bins // levels
    return np.minimum((numbers * n_bins).astype(np.intp), n_bins - 1)


def _shape(layout: UnitLayout, n_bins: int) -> tuple[int, ...]:
    """Return the numbers of bins and of categories."""
    of_numbers = (min(levels, n_bins) if levels else n_bins for levels in layout.levels)
    return (*of_numbers, *layout.blocks)


@np.errstate(all="ignore")
def denoised(noisy: np.ndarray, deviation: float, n_numbers: int) -> np.ndarray:
    """Return distributions estimated from counts with noise of a known deviation.

    Parameters
    ----------
    noisy : ndarray of shape (n_groups, *shape)
        Counts with independent noise.
    deviation : float
        Standard deviation of the noise on a count.
    n_numbers : int
        How many of the axes are of numbers; the others are of categories, and are divided first.

    Returns
    -------
    ndarray of shape (n_groups, *shape)
        Non-negative, with sum 1 in every group.

    Notes
    -----
    The grid is halved again and again, along its longest axis. The mass of a part is known before
    it is divided. It is divided in one of four ways: all to one half, all to the other, in
    proportion to their cells, or in proportion to the noisy sums of both halves. The last way fits
    best, but has a parameter, so its cost is raised by eight variances. The cheapest way is chosen.

    So empty regions stay empty and flat regions stay flat, unless the counts at that scale
    contradict it. Noise within a part moves no mass out of it. In contrast, the nearest
    distribution in the Euclidean sense spreads the noise of empty cells all over the grid.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases._groups import denoised
    >>> denoised(np.array([[101.0, 98.0, 3.0, -2.0]]), 5.0, 1)
    array([[0.5, 0.5, 0. , 0. ]])
    """
    halvings = []
    sums, cells = noisy, np.ones((1, *noisy.shape[1:]))
    while (axis := _longest(sums.shape, n_numbers)) > 0:
        halvings.append((axis, _halves(sums, axis), _halves(cells, axis), sums.shape[axis]))
        sums, cells = (np.add(*_halves(array, axis)) for array in (sums, cells))
    masses = np.maximum(sums, 1.0)
    for axis, of_counts, of_cells, length in reversed(halvings):
        share = _share_of_first(masses, of_counts, of_cells, deviation)
        both = np.stack([masses * share, masses * (1.0 - share)], axis=axis + 1)
        shape = [*both.shape[:axis], -1, *both.shape[axis + 2 :]]
        masses = np.take(both.reshape(shape), range(length), axis=axis)
    return masses / masses.sum(axis=tuple(range(1, masses.ndim)), keepdims=True)


def _longest(shape: tuple[int, ...], n_numbers: int) -> int:
    """Return the axis to be halved next, from the smallest parts upwards; 0 for none."""
    for axes in (range(1, n_numbers + 1), range(n_numbers + 1, len(shape))):
        longest = max(axes, key=lambda axis: shape[axis], default=0)
        if longest and shape[longest] > 1:
            return longest
    return 0


def _halves(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries at even and at odd positions, with 0 for a missing last one."""
    along = np.moveaxis(array, axis, 0)
    first, second = along[::2], np.zeros_like(along[::2])
    second[: len(along) // 2] = along[1::2]
    return np.moveaxis(first, 0, axis), np.moveaxis(second, 0, axis)


def _share_of_first(
    mass: np.ndarray,
    counts: tuple[np.ndarray, np.ndarray],
    cells: tuple[np.ndarray, np.ndarray],
    deviation: float,
) -> np.ndarray:
    """Return the share of the mass of parts that is in their first half."""
    (a, b), (first, second) = counts, cells
    fitted = (a * second - (b - mass) * first) / (mass * (first + second))
    fitted = np.clip(np.where(np.isfinite(fitted), fitted, 0.5), 0.0, 1.0)
    even = np.broadcast_to(first / (first + second), mass.shape)
    shares = np.stack([np.ones_like(mass), np.zeros_like(mass), even, fitted])
    errors = (a - mass * shares) ** 2 / first + (b - mass * (1.0 - shares)) ** 2 / second
    errors[3] += _PENALTY * deviation**2
    chosen = np.take_along_axis(shares, np.argmin(errors, axis=0)[None], axis=0)[0]
    return np.where(second > 0, chosen, 1.0)
