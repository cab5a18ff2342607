"""Noisy histograms on a public grid, and the results computed from them."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from skdpot.distance._costs import CostSettings, debiased
from skdpot.distance._groups import Layout
from skdpot.distance._released import Released
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases import NoisyRelease, VectorRelease
from skdpot.transport import (
    EntropicResult,
    TransportResult,
    entropic_transport,
    exact_transport,
    nearest_distribution,
    smallest_tolerance,
)

# Maximum number of cells of an automatic grid, and of any grid; the costs of the latter take 128
# MiB.
_LARGEST_AUTOMATIC = 1024
_LARGEST_GRID = 4096
# Tolerance of costs between histograms, as a share of their range, if it can be certified.
_TOLERANCE = 1e-9


def make_grid(
    grid: Any, box: tuple[np.ndarray, np.ndarray], layout: Layout, epsilon: float
) -> np.ndarray:
    """Return the points of a public grid in a box, or raise if they are not in it, or too many.

    `grid` has the points, or how many a feature has, at the middles of cells of equal width. None
    chooses as many as the n records and epsilon allow: rounding to cells of width 1/g moves a
    record by a share 1/g of the box, and the noise of g**d cells, of k parts, by ``g**d sqrt(k) /
    (epsilon n)`` of the mass. Both are of one size for ``g**(d + 1) = epsilon n / sqrt(k)``.
    """
    if grid is None:
        d = len(box[0])
        heard = epsilon * layout.n_records / math.sqrt(layout.n_parts)
        balanced = max(heard, 1.0) ** (1.0 / (d + 1))
        grid = int(max(min(balanced, _LARGEST_AUTOMATIC ** (1.0 / d) + 1e-9), 2))
    return _middles(grid, *box) if np.ndim(grid) == 0 else _given_points(grid, *box)


def _middles(n_cells: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the middles of cells in all combinations, with so many cells per feature, or raise."""
    d = len(low)
    if d * math.log(n_cells) > math.log(_LARGEST_GRID) + 1e-9:
        raise ValueError(
            f"a grid of {n_cells} cells for each of {d} features has more than {_LARGEST_GRID} "
            "cells. Give fewer, or the points themselves as grid=, an array of shape "
            "(n_cells, n_features)."
        )
    middles = (np.arange(n_cells) + 0.5) / n_cells
    return low + (high - low) * np.array(list(product(middles, repeat=d)))


def _given_points(grid: Any, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the points that a user gives, or raise if they are no grid."""
    d = len(low)
    try:
        points = np.asarray(grid, dtype=np.float64)
    except (TypeError, ValueError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != d or not 2 <= len(points) <= _LARGEST_GRID:
        raise ValueError(
            "grid must be a number of cells per feature, or an array of 2 to "
            f"{_LARGEST_GRID} points, of shape (n_cells, {d}), got {grid!r}."
        )
    if not ((low <= points) & (points <= high)).all():
        raise ValueError("all points of grid must lie within the bounds.")
    return points


@dataclass(frozen=True)
class GridTransport:
    """Released histograms, and the transport between the first two of them.

    Attributes
    ----------
    settings : CostSettings
        The settings of the cost.
    support : ndarray of shape (n_cells, n_features)
        Points of the grid; public.
    histograms : ndarray of shape (n_groups, n_cells)
        Private distributions of the groups.
    costs : ndarray of shape (n_pairs,)
        Costs, or divergences, between all pairs of them.
    plan : ndarray of shape (n_cells, n_cells)
        Coupling of the first two.
    potentials : tuple of two ndarray of shape (n_cells,)
        Dual potentials of that coupling, in units of cost.
    """

    settings: CostSettings
    support: np.ndarray
    histograms: np.ndarray
    costs: np.ndarray
    plan: np.ndarray
    potentials: tuple[np.ndarray, np.ndarray]

    def map(self, X: np.ndarray) -> np.ndarray:
        """Return the mean images of points of the first group, in the box, under the coupling.

        Images are as sensitive as the points. For reg > 0 the weights are those of the entropic
        plan, extended to all points by its potentials. For reg = 0 a point has the image of its
        cell.
        """
        if self.settings.reg == 0:
            return self._images[cKDTree(self.support).query(X)[1]]
        target = self.histograms[1] > 0
        cost = self.settings.cost(X, self.support[target])
        exponents = (self.potentials[1][target] - cost) / self.settings.reg
        exponents -= exponents.max(axis=1, keepdims=True)
        weights = self.histograms[1][target] * np.exp(exponents)
        return weights @ self.support[target] / weights.sum(axis=1, keepdims=True)

    @cached_property
    def _images(self) -> np.ndarray:
        """Return the image of every cell; for an empty cell, the cheapest by the dual prices."""
        mass = self.plan.sum(axis=1)
        target = np.flatnonzero(self.histograms[1] > 0)
        prices = self.settings.cost(self.support, self.support[target]) - self.potentials[1][target]
        cheapest = self.support[target[np.argmin(prices, axis=1)]]
        means = self.plan @ self.support / np.where(mass > 0, mass, 1.0)[:, None]
        return np.where(mass[:, None] > 0, means, cheapest)


class GridRelease(NoisyRelease):
    """Noisy counts of all groups and cells, and the results computed from them.

    A record that is replaced, or changes its group, or both, leaves one count and joins another. So
    the vector of all counts moves by at most 2 in the l1 norm, and sqrt(2) in the l2 norm.

    Parameters
    ----------
    settings : CostSettings
        The public settings of the cost.
    layout : Layout
        The groups, the number of records, and of parts that are added up.
    support : ndarray of shape (n_cells, n_features)
        Points of the grid; public.
    epsilon, delta : float
        Budget; Laplace noise for delta 0, Gaussian noise above.
    """

    def __init__(
        self,
        settings: CostSettings,
        layout: Layout,
        support: np.ndarray,
        epsilon: float,
        delta: float,
    ) -> None:
        self.settings, self.groups, self.support = settings, layout.groups, support
        self.n_parts = layout.n_parts
        self._noise = VectorRelease(
            epsilon,
            delta,
            histogram_sensitivities,
            n_coordinates=len(self.groups.names) * len(support),
            largest=float(layout.n_records),
            counts=True,
        )

    def expected_errors(self, n_records):
        """Return the standard error of each cost, to first order in the noise.

        Noise e of the histograms changes a cost by the scalar product of e with the potentials,
        which are assumed to be uniform over the range of costs. Groups of private sizes may be
        equally large.
        """
        largest, sizes = self.settings.cost_range, self.groups.sizes
        if self.groups.labels == "private":
            sizes = np.full(len(sizes), n_records / len(sizes))
        deviation = self._noise.standard_deviation * math.sqrt(self.n_parts)
        of_count = deviation * math.sqrt(len(self.support) / 12.0)
        of_group = of_count / sizes * largest
        errors = (math.hypot(*pair) for pair in combinations(of_group.tolist(), 2))
        return self.groups.cost_errors(errors, largest)

    def values(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the counts of records in the groups of these codes, without noise: private."""
        cells = cKDTree(self.support).query(X)[1]
        counts = np.zeros((len(self.groups.names), len(self.support)))
        member = codes >= 0
        np.add.at(counts, (codes[member], cells[member]), 1.0)
        return counts

    def add_noise(self, values: np.ndarray, source: Any) -> np.ndarray:
        """Release counts, of all records or of one owner's, with all the noise that they need."""
        return self._noise.run(values, source)

    def run(self, X, source):
        return self.read(self.add_noise(self.values(X, self.groups.codes), source))

    def read(self, noisy: np.ndarray) -> Released:
        """Return what is computed from the sum of all parts; a function of the release."""
        totals = self.groups.sizes.astype(np.float64)
        if self.groups.labels == "private":
            totals = np.maximum(noisy.sum(axis=1), totals)
        histograms = np.array(
            [nearest_distribution(row / size) for row, size in zip(noisy, totals, strict=True)]
        )
        transport = transport_on_grid(self.settings, self.support, histograms)
        shown: dict[str, Any] = {"support_": self.support, "histograms_": histograms}
        if len(histograms) > 2:
            return Released.without_errors(transport.costs, shown)
        shown |= {"plan_": transport.plan, "potentials_": transport.potentials}
        return Released.without_errors(transport.costs, shown, transport)


def transport_on_grid(
    settings: CostSettings, support: np.ndarray, histograms: np.ndarray
) -> GridTransport:
    """Return the transport between histograms on one grid."""
    low, _ = settings.cost.range
    cost = settings.cost(support, support) - low
    pairs = list(combinations(range(len(histograms)), 2))
    self_pairs = [(g, g) for g in range(len(histograms))] if settings.divergence != "ot" else []
    tasks = [
        (_transport, cost, histograms[g], histograms[h], settings) for g, h in pairs + self_pairs
    ]
    found = dict(zip(pairs + self_pairs, settings.threads.map(tasks), strict=True))
    values = {pair: result.cost for pair, result in found.items()}
    costs = settings.offset + debiased(values, pairs)
    first = found[0, 1]
    rows, columns = first.row_potential + low, first.column_potential
    if isinstance(first, TransportResult):
        plan = first.plan.toarray()
    else:
        exponents = (rows[:, None] + columns - cost - low) / settings.reg
        # Exponents are far below this where both weights are positive.
        plan = histograms[0][:, None] * histograms[1] * np.exp(np.minimum(exponents, 700.0))
    return GridTransport(settings, support, histograms, costs, plan, (rows, columns))


def _transport(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, settings: CostSettings
) -> EntropicResult | TransportResult:
    if settings.reg == 0:
        return exact_transport(cost, a, b)
    cost_range, reg = settings.cost_range, settings.reg
    tol = max(_TOLERANCE * cost_range, smallest_tolerance(len(a), len(b), cost_range, reg))
    return entropic_transport(cost, a, b, reg, tol)
