"""Groups as noisy counts, sums, and sums of products."""

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.sensitivity import moment_sensitivities
from skdpot.releases._groups import GroupsRelease
from skdpot.releases._layout import ReleasedGroups, UnitLayout
from skdpot.releases._moment_estimates import NoisyAverages
from skdpot.releases._moment_points import points_with_moments
from skdpot.releases._moment_weights import TYPICAL_VARIANCE, importance, weights
from skdpot.releases._vector import VectorRelease

_MOST_MOMENTS = 1 << 22
# How many points a released group has.
_N_POINTS = 1024
# Multipliers are integers of at least this size, so that their ratios can be chosen.
_SMALLEST_MULTIPLIER = 16
# Maximum bits of sums, of noise, and of coordinates of records.
_BITS_OF_SUMS, _BITS_OF_NOISE, _BITS_OF_RECORDS = 52, 38, 20
# A group whose size is below this many deviations of the noise is unknown.
_DEVIATIONS = 2.0
# Transport cost of the part of a shape that moments do not describe, as a share of the typical
# variance of a feature, measured on groups of several shapes. The remaining shape distinguishes
# groups, so at equal costs rows are fairer after a histogram. So the choice between both weighs
# this cost by the second number.
_UNKNOWN_SHAPE, _SHAPES_TELL = 0.06, 3.0


class MomentsRelease(GroupsRelease):
    """The sums of every group, and their noise; made of public quantities.

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
        If there are more than four million moments.

    Notes
    -----
    Records are rounded to a public grid of integers, whose zero is the middle of the box. A
    category is a vertex of a simplex around zero; an invalid one is zero. In the slot of its group
    a record adds one, its coordinates, all products of coordinates of different features, and ``v
    (1 - v)`` of every number that is not binary. The last is 0 at the ends, and gives the square.
    Each kind has a multiplier, an integer. Products within a block follow from the frequencies of
    its categories.

    So all sums are integers below ``2**53``, and therefore exact. The sensitivities of
    :func:`skdpot.privacy.sensitivity.moment_sensitivities` hold for the computed sums, because
    records are rounded first. How the multipliers are chosen is said in `_moment_weights.weights`.
    """

    kind = "moments"

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
        self.continuous = np.flatnonzero(~layout.binary)
        if n_groups * layout.n_coordinates**2 > 2 * _MOST_MOMENTS:
            raise ValueError(
                f"moments of {layout.n_coordinates} coordinates in {n_groups} groups are more than "
                f"{_MOST_MOMENTS} numbers. Drop columns, or merge categories."
            )
        self._choose_grid(epsilon, delta)

    def _choose_grid(self, epsilon: float, delta: float) -> None:
        """Choose the finest grid with exact sums and noise within range."""
        # A larger epsilon is not spent: the grid is the finest one with less noise.
        epsilon_spent = min(epsilon, 2.0**_BITS_OF_NOISE)
        multiplier = 1.0 / epsilon
        if delta > 0:
            multiplier = calibrate_noise_multiplier(epsilon_spent, delta)
        shares = weights(self.layout, delta)
        for bits in range(_BITS_OF_RECORDS, 1, -1):
            self.half_width = 1 << (bits - 1)
            self.multipliers = self._multipliers(shares)
            sensitivities = self._sensitivities()
            l1, l2 = sensitivities()
            scale = multiplier * (l1 if delta == 0 else l2)
            if self.n_records * l2 <= 2.0**_BITS_OF_SUMS and scale <= 2.0**_BITS_OF_NOISE:
                break
        self._noise = VectorRelease(
            epsilon,
            delta,
            sensitivities,
            n_coordinates=self.n_groups * self.n_moments,
            largest=self.n_records * l2,
            counts=True,
        )

    def _multipliers(self, shares: np.ndarray) -> tuple[int, int, int, int]:
        """Return the weights of unit coordinates, as integer multipliers of grid coordinates."""
        width = 2.0 * self.half_width
        scaled = shares / [1.0, width, width**2, width**2]
        smallest = scaled[scaled > 0].min()
        k0, k1, k2, k3 = (round(x / smallest * _SMALLEST_MULTIPLIER) for x in scaled.tolist())
        return k0, k1, k2, k3

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all pairs of coordinates of different features."""
        layout = self.layout
        of_feature = [1] * layout.n_numbers + list(layout.blocks)
        feature = np.repeat(np.arange(len(of_feature)), of_feature)
        rows, columns = np.triu_indices(layout.n_coordinates, 1)
        across = feature[rows] != feature[columns]
        return rows[across], columns[across]

    @property
    def n_moments(self) -> int:
        """Return the number of released numbers of every group."""
        return 1 + self.layout.n_coordinates + len(self.continuous) + len(self.pairs[0])

    @property
    def vertices(self) -> list[tuple[int, int, int]]:
        """Return the number of categories and the two entries of a vertex, for every block."""
        width = 2 * self.half_width
        return [(k, round(width * (k - 1) / k), round(width / k)) for k in self.layout.blocks]

    def _sensitivities(self) -> Callable[..., tuple[float, float]]:
        """Return how much a record can change all moments."""
        return partial(
            moment_sensitivities,
            self.multipliers,
            self.half_width,
            n_continuous=len(self.continuous),
            n_binary=int(self.layout.binary.sum()),
            blocks=self.vertices,
        )

    @property
    def released_shape(self) -> tuple[int, ...]:
        """Return the shape of what is released."""
        return self.n_groups, self.n_moments

    @property
    def expected_error(self) -> float:
        """Return about how far, in squared distance, the noise moves a group of average size.

        The lost part of a shape counts more than its cost, since shapes distinguish groups.
        """
        return self._moved_by_noise + _SHAPES_TELL * self._lost_of_shape

    @property
    def transport_cost(self) -> float:
        """Return about the cost, in squared distance, of moving a released group back."""
        return self._moved_by_noise + self._lost_of_shape

    @property
    def _moved_by_noise(self) -> float:
        average = np.array([self.n_records / self.n_groups])
        variances = self._noise_of_averages(average)[:, 0]
        noise = float(variances @ importance(self.layout))
        return noise / (1.0 + noise / self.layout.random_distance)

    @property
    def _lost_of_shape(self) -> float:
        n_features = self.layout.n_numbers + len(self.layout.blocks)
        return _UNKNOWN_SHAPE * TYPICAL_VARIANCE * n_features

    @property
    def is_lost(self) -> bool:
        """Tell whether noise drowns a group of average size."""
        noise = self.standard_deviation / self._units[0]
        return bool(self.n_records / self.n_groups < _DEVIATIONS * noise)

    @property
    def most_points(self) -> int:
        """Return how many points a released group has at most."""
        return _N_POINTS

    # ------------------------------------------------------------------- private records

    def on_grid(self, V: np.ndarray) -> np.ndarray:
        """Return private records as the integers that `moment_sensitivities` refers to."""
        numbers, categories = self.layout.read(V)
        on_vertices = [
            _vertices(*vertex)[category]
            for vertex, category in zip(self.vertices, categories, strict=True)
        ]
        numbers = np.floor(numbers * (2 * self.half_width) + 0.5) - self.half_width
        return np.hstack([numbers, *on_vertices])

    def values(self, V: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the moments without noise: private."""
        return np.array([self._sums_of_one(V[codes == s]) for s in range(self.n_groups)])

    def _sums_of_one(self, V: np.ndarray) -> np.ndarray:
        integers = self.on_grid(V)
        # Partial sums are integers below 2**53, too, so the order of summation does not matter.
        products = integers.T @ integers
        spreads = len(V) * float(self.half_width**2) - products[self.continuous, self.continuous]
        k0, k1, k2, k3 = self.multipliers
        return np.concatenate(
            [[k0 * len(V)], k1 * integers.sum(axis=0), k2 * products[self.pairs], k3 * spreads]
        )

    # ------------------------------------------------------------------- post-processing

    def groups_of(self, released: np.ndarray) -> ReleasedGroups:
        """Return groups that have these moments.

        Sizes are raised to 1. Means, variances and covariances are shrunk towards those of all
        groups, by as much as the known noise suggests: wholly if a size is below two standard
        deviations of its noise. If no group is larger, numbers are uniform, all categories equally
        frequent, and all coordinates independent.
        """
        with np.errstate(all="ignore"):
            averages = self.averages_of(released)
            moments = zip(
                averages.estimated_means() + self._middle,
                averages.estimated_variances(),
                averages.estimated_covariances(),
                strict=True,
            )
            points = [
                points_with_moments(self.layout, *of_group, _N_POINTS) for of_group in moments
            ]
        masses = [np.full(_N_POINTS, 1.0 / _N_POINTS) for _ in points]
        return ReleasedGroups(averages.sizes, points, masses)

    def averages_of(self, released: np.ndarray) -> NoisyAverages:
        """Return averages in unit coordinates, with 0 as the middle; a function of the release."""
        ends = np.cumsum([1, self.layout.n_coordinates, len(self.pairs[0])]).tolist()
        counts, *sums = np.split(released, ends, axis=1)
        counts = counts[:, 0] / self._units[0]
        sizes = np.maximum(counts, 1.0)
        means, products, spreads = (
            values / unit / sizes[:, None]
            for values, unit in zip(sums, self._units[1:], strict=True)
        )
        return NoisyAverages(
            sizes=sizes,
            known=counts > _DEVIATIONS * self.standard_deviation / self._units[0],
            means=means,
            products=products,
            spreads=spreads,
            noise=self._noise_of_averages(sizes),
            continuous=self.continuous,
            pairs=self.pairs,
        )

    @property
    def _units(self) -> np.ndarray:
        """Return the released number for a moment of 1 in unit coordinates."""
        width = 2.0 * self.half_width
        return np.maximum(self.multipliers, 1) * [1.0, width, width**2, width**2]

    @property
    def _middle(self) -> np.ndarray:
        blocks = [np.full(k, 1.0 / k) for k in self.layout.blocks]
        return np.concatenate([np.full(self.layout.n_numbers, 0.5), *blocks])

    def _noise_of_averages(self, sizes: np.ndarray) -> np.ndarray:
        """Return the variances of the noise on averages, of shape (4, n_groups)."""
        return (self.standard_deviation / self._units[:, None] / sizes) ** 2


def _vertices(k: int, own: int, other: int) -> np.ndarray:
    """Return the vertices of a block, and zero as the last row."""
    table = np.full((k + 1, k), -float(other))
    table[np.arange(k), np.arange(k)] = own
    table[k] = 0.0
    return table
