"""The targets of the model of people: released statistics, and the precision of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.generative._sketch.descent import column_slices
from skdpot.generative._sketch.latent_classes import penalty_of
from skdpot.generative._sketch.noisy_counts import released_size
from skdpot.generative._sketch.people_table import PeopleTable, largest_scatters, released_products
from skdpot.generative._sketch.row_products import row_points
from skdpot.generative._sketch.table_model import with_even_share
from skdpot.releases import RADIUS
from skdpot.transport import nearest_distribution

__all__ = ["N_LAGS", "WEIGHT_OF_MEANS", "Targets"]

# Weights of the errors of single columns, of products over the rows of a person, and of pairs of a
# column of people with one of rows, relative to other pairs. These are few numbers, all of them
# informative, and the penalty would hide them.
WEIGHT_OF_MEANS, _WEIGHT_OF_PRODUCTS, _WEIGHT_OF_OWN = 30.0, 30.0, 5.0
# The longest lag at which two rows depend on each other, given the type.
N_LAGS = 100
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Targets:
    """The statistics that a model is fitted to, and their precisions: one over variances of noise.

    Arrays over groups of cells have one column of the table after another.
    """

    pair_noise: float
    sizes: np.ndarray
    columns: list
    means: np.ndarray
    mean_precisions: np.ndarray
    pairs: np.ndarray
    pair_precisions: np.ndarray
    # Which groups are of columns of people. Slices of columns among groups of rows, and of people.
    is_own: np.ndarray
    row_columns: list
    own_columns: list
    # Points of the groups of columns of rows, products of two of their coordinates, and which pairs
    # of coordinates are of one column. Products of two rows of a person, and of consecutive rows.
    points: np.ndarray
    squares: np.ndarray
    in_one_column: np.ndarray
    products: np.ndarray
    product_precisions: np.ndarray
    next_products: np.ndarray | None
    next_precisions: np.ndarray | None
    # Of groups of numbers of rows: the mean of one over the number, whether there are two rows or
    # more, and the share of pairs of rows with each lag.
    inverse_sizes: np.ndarray
    has_several: np.ndarray
    lag_shares: np.ndarray
    group_of_cell: np.ndarray
    cell_shares: np.ndarray

    @property
    def n_numbers(self) -> float:
        """Return about how many statistics there are."""
        n_pairs, n_products = (self.pair_precisions > 0).sum(), (self.product_precisions > 0).sum()
        return float(n_pairs + len(self.means) + n_products)

    @property
    def penalty(self) -> float:
        """Return the weight of the pull towards the mean."""
        return penalty_of(len(self.sizes)) / self.pair_noise

    @classmethod
    def read(cls, released: Mapping[str, np.ndarray], table: PeopleTable) -> "Targets":
        """Return the release, in shares of people and units of noise."""
        counted = _Counted.read(released, table)
        return cls(
            **_count_targets(released, table, counted),
            **_product_targets(released, table, counted),
            **_size_targets(released, counted),
        )


@dataclass(frozen=True, eq=False)
class _Counted:
    """Released counts of people, by column, and the noise of each release in shares of people."""

    n_people: float
    noise: dict[str, float]
    # That of pairs without the least noise that is assumed.
    pair_deviation: float
    groups: list[np.ndarray]
    counts: list[np.ndarray]
    # The share of each cell of its group.
    cell_shares: list[np.ndarray]

    @property
    def sizes(self) -> list[int]:
        """Return the number of groups of each column."""
        return [int(group.max()) + 1 for group in self.groups]

    @classmethod
    def read(cls, released: Mapping[str, np.ndarray], table: PeopleTable) -> "_Counted":
        """Return the counts by column."""
        n_people = max(float(released_size(released)), 1.0)
        names = ["values", "pairs", *released_products(table)]
        deviations = dict(zip(names, released["deviations"].tolist(), strict=True))
        noise = {name: max(deviation, 1.0) / n_people for name, deviation in deviations.items()}
        ends = np.cumsum(released["n_cells"])[:-1]
        groups = np.split(released["groups"], ends)
        counts = np.split(released["counts"][:, 0], ends)
        cells = [with_even_share(_nearest_cells(count / n_people)) for count in counts]
        cell_shares = [c / np.bincount(g, c)[g] for g, c in zip(groups, cells, strict=True)]
        return cls(n_people, noise, deviations["pairs"] / n_people, groups, counts, cell_shares)


def _count_targets(
    released: Mapping[str, np.ndarray], table: PeopleTable, counted: _Counted
) -> dict[str, Any]:
    """Return the targets from counts of single columns and of pairs."""
    sizes, n_people, noise = counted.sizes, counted.n_people, counted.noise
    columns = column_slices(sizes)
    column_pairs = list(combinations(columns, 2))
    pairs, pair_precisions = _blocks(
        released["pairs"] / n_people, column_pairs, noise["pairs"], sum(sizes)
    )
    singles = [
        np.bincount(*group_and_counts) / n_people
        for group_and_counts in zip(counted.groups, counted.counts, strict=True)
    ]
    n_cells = np.concatenate([np.bincount(group) for group in counted.groups])
    shares, mean_precisions = _group_shares(
        np.concatenate(singles),
        1 / (n_cells * noise["values"] ** 2),
        pairs,
        pair_precisions,
        columns,
    )
    for place, distributions in zip(column_pairs, combinations(shares, 2), strict=True):
        pairs[place] = _denoised(pairs[place], distributions, counted.pair_deviation)
    is_own = np.repeat(np.isin(np.arange(len(sizes)), table.shared), sizes)
    pair_precisions *= np.where(is_own[:, None] != is_own, _WEIGHT_OF_OWN, 1.0)
    group_of_cell = [c.start + group for c, group in zip(columns, counted.groups, strict=True)]
    return {
        "pair_noise": noise["pairs"],
        "sizes": np.array(sizes),
        "columns": columns,
        "means": np.concatenate(shares),
        "mean_precisions": WEIGHT_OF_MEANS * mean_precisions,
        "pairs": pairs,
        "pair_precisions": pair_precisions,
        "is_own": is_own,
        "row_columns": column_slices([sizes[j] for j in table.row_columns]),
        "own_columns": column_slices([sizes[j] for j in table.shared]),
        "group_of_cell": np.concatenate(group_of_cell),
        "cell_shares": np.concatenate(counted.cell_shares),
    }


def _product_targets(
    released: Mapping[str, np.ndarray], table: PeopleTable, counted: _Counted
) -> dict[str, Any]:
    """Return the targets from means of products of rows, and the points of groups of rows."""
    rows, n_people, noise = table.row_columns, counted.n_people, counted.noise
    moments = [
        _group_means(counted, j, _points_and_products(points))
        for j, points in zip(rows, row_points(table, released), strict=True)
    ]
    points, squares, coordinates = _points_of_rows(moments)
    size = len(points.T)
    in_one_column = np.zeros((size, size))
    for column in coordinates:
        in_one_column[column, column] = 1
    # Of one column, the scatter of a person's rows; of two columns, the products of their means.
    diagonal = [(place, place) for place in coordinates]
    scatter = noise["within"] * np.array(largest_scatters(table))
    products, precisions = _blocks(-released["within"] / n_people, diagonal, scatter, size)
    if "crossed" in released:
        places = list(combinations(coordinates, 2))
        crossed = _blocks(released["crossed"] / n_people, places, noise["crossed"], size)
        products, precisions = products + crossed[0], precisions + crossed[1]
    next_products, next_precisions = None, None
    if "next" in released:
        places = [diagonal[rows.index(j)] for j in table.chained_columns]
        next_noise = noise["next"] * released["radii"]
        next_products, next_precisions = _blocks(
            released["next"] / n_people, places, next_noise, size
        )
        next_precisions = _WEIGHT_OF_PRODUCTS * next_precisions
    return {
        "points": points,
        "squares": squares,
        "in_one_column": in_one_column,
        "products": products,
        "product_precisions": _WEIGHT_OF_PRODUCTS * precisions,
        "next_products": next_products,
        "next_precisions": next_precisions,
    }


def _size_targets(released: Mapping[str, np.ndarray], counted: _Counted) -> dict[str, Any]:
    """Return the statistics of groups of numbers of rows, which is the last column."""
    n_cells = len(counted.groups[-1])
    starts, stops = (1 + released[name][-n_cells:] for name in ("starts", "stops"))
    statistics = _group_means(counted, -1, _size_statistics(starts, stops))
    return {
        "inverse_sizes": statistics[:, 0],
        "has_several": statistics[:, 1],
        "lag_shares": statistics[:, 2:],
    }


def _group_means(counted: _Counted, j: int, values: np.ndarray) -> np.ndarray:
    """Return the mean of values of cells, in each group of a column."""
    group = counted.groups[j]
    return np.eye(counted.sizes[j])[group].T @ (counted.cell_shares[j][:, None] * values)


def _nearest_cells(shares):
    """Return the distribution nearest to these shares, with 0 where an empty tail was cleared."""
    is_counted, cells = shares != 0, np.zeros(len(shares))
    if not is_counted.any():
        return nearest_distribution(shares)
    cells[is_counted] = nearest_distribution(shares[is_counted])
    return cells


def _group_shares(singles, precisions, pairs, pair_precisions, columns):
    """Return shares of groups, and one over their variances, from counts and margins of pairs."""
    total, precision = singles * precisions, precisions.copy()
    for a, b in combinations(columns, 2):
        for column, table in ((a, pairs[a, b]), (b, pairs[a, b].T)):
            margin_precision = pair_precisions[a, b].max() / table.shape[1]
            total[column] += margin_precision * table.sum(axis=1)
            precision[column] += margin_precision
    return [
        nearest_distribution(total[column] / precision[column]) for column in columns
    ], precision


def _denoised(table, shares, deviation):
    """Return a table of two columns with these margins, whose dependence is shrunk by its noise."""
    centred = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    row_effects, column_effects = (column - column.mean() for column in shares)
    dependence = centred - np.outer(row_effects, column_effects)
    noise = np.prod([len(column) - 1 for column in shares]) * deviation**2
    kept_share = max(1 - noise / max(float((dependence**2).sum()), _TINY), 0.0)
    return np.outer(*shares) + kept_share * dependence


def _blocks(numbers, places, noise, size):
    """Return numbers at places of a square matrix, and one over the variance of each."""
    target, precision = np.zeros((size, size)), np.zeros((size, size))
    begin = 0
    for (row, column), deviation in zip(places, np.broadcast_to(noise, len(places)), strict=True):
        shape = (row.stop - row.start, column.stop - column.start)
        end = begin + shape[0] * shape[1]
        target[row, column] = numbers[begin:end].reshape(shape)
        precision[row, column] = 1 / deviation**2
        begin = end
    return target, precision


def _points_and_products(points):
    """Return points of length one, each followed by the products of two of its coordinates."""
    points = points / RADIUS
    products = points[:, :, None] * points[:, None, :]
    return np.column_stack([points, products.reshape(len(points), -1)])


def _points_of_rows(parts):
    """Return coordinates of groups of all columns, products of two, and slices of each column."""
    # A column with n coordinates has n + n * n numbers.
    widths = [round((4 * moments.shape[1] + 1) ** 0.5 - 1) // 2 for moments in parts]
    coordinates, rows = column_slices(widths), column_slices([len(moments) for moments in parts])
    points = np.zeros((rows[-1].stop, coordinates[-1].stop))
    squares = np.zeros((rows[-1].stop, coordinates[-1].stop, coordinates[-1].stop))
    for moments, row, place, width in zip(parts, rows, coordinates, widths, strict=True):
        points[row, place] = moments[:, :width]
        squares[row, place, place] = moments[:, width:].reshape(-1, width, width)
    return points, squares, coordinates


def _size_statistics(starts, stops):
    """Return three statistics of each cell of numbers of rows.

    These are the mean of one over the number, whether there are two rows or more, and the share of
    pairs of random rows with each lag, in either order.
    """
    lags, statistics = np.arange(1, N_LAGS + 1), []
    for start, stop in zip(starts, stops, strict=True):
        sizes = np.arange(start, stop)[:, None]
        lag_shares = 2 * np.maximum(sizes - lags, 0) / sizes**2
        statistics.append([np.mean(1 / sizes), start > 1, *lag_shares.mean(axis=0)])
    return np.array(statistics, dtype=np.float64)
