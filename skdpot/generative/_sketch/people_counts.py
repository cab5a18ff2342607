"""Private counts and products of people with several rows, in which each person has one share.

A person adds the mean over her rows to every table of counts, and means of products of pairs of her
rows, as integers that are rounded towards zero. Sums are over parts of the table that hold all rows
of their people, one part after another.
"""

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from skdpot.generative._sketch.cell_groups import group_cells
from skdpot.generative._sketch.cells import ROUNDS, clear_cells, cut_cells, empty_tails
from skdpot.generative._sketch.noisy_counts import count_together, release_tables, released_size
from skdpot.generative._sketch.people_parts import LARGEST_WEIGHT
from skdpot.generative._sketch.people_table import (
    LARGEST_PRODUCT,
    PeopleTable,
    largest_scatters,
    noise_of_people,
    people_sensitivities,
)
from skdpot.generative._sketch.row_products import (
    cells_of_rows,
    clipping_radius,
    mean_products,
    next_products,
    row_points,
    scatters_within,
)
from skdpot.releases import RADIUS, SketchReleases
from skdpot.tables import LOG, TableSchema

__all__ = ["release_people"]

# The largest numbers of rows are those of cells above this number of deviations of the noise, and
# of all cells beyond them that have more deviations than this together.
_CLEAR_DEVIATIONS, _REAL_DEVIATIONS = 4.0, 3.0


class _ColumnCounts(NamedTuple):
    """The edges of the cells of each column, and the released counts of people in each cell."""

    edges: dict[int, np.ndarray]
    counts: list[np.ndarray]

    @property
    def starts(self) -> list[np.ndarray]:
        """Return the first unit of each cell."""
        return [edges[:-1] for edges in self.edges.values()]


def release_people(
    parts: Any, table: PeopleTable, releases: SketchReleases
) -> dict[str, np.ndarray]:
    """Release counts of people, and means of products of their rows.

    Each person has a bounded part in all of them.
    """
    noise = noise_of_people(table, releases)
    columns = _release_columns(parts, table, releases, noise["values"])
    groups = _group_columns(columns, table, noise["pairs"])
    released = {
        "n_cells": np.array([len(count) for count in columns.counts]),
        "starts": np.concatenate(columns.starts),
        "stops": np.concatenate([edges[1:] for edges in columns.edges.values()]),
        "counts": np.concatenate(columns.counts)[:, None],
        "groups": np.concatenate(groups),
        "deviations": np.array(list(noise.values())),
    }
    released |= _release_pairs(parts, table, columns, groups, releases, noise["pairs"])
    return released | _release_products(parts, table, columns, released, releases, noise)


def _release_columns(
    parts: Any, table: PeopleTable, releases: SketchReleases, noise: float
) -> _ColumnCounts:
    """Release counts, cut cells with many people by them, and then release counts of all cells."""
    edges, sensitivities = table.first_edges, people_sensitivities(table)
    for name in ROUNDS:
        exact = parts.sums(partial(_count_cells, table, edges, table.refined))
        deviation = releases.standard_deviation(name, sensitivities[name]) / LARGEST_WEIGHT
        noisy = release_tables(releases, name, exact, LARGEST_WEIGHT)
        for j, count in zip(table.refined, noisy, strict=True):
            edges[j] = cut_cells(edges[j], count, deviation, noise)
    exact = parts.sums(partial(_count_cells, table, edges, edges))
    counts = release_tables(releases, "values", exact, LARGEST_WEIGHT)
    columns = _ColumnCounts(edges, counts)
    return columns._replace(counts=_without_empty_tails(columns, table.schema, noise))


def _group_columns(
    columns: _ColumnCounts, table: PeopleTable, pair_noise: float
) -> list[np.ndarray]:
    """Return the group of each cell of every column.

    Numbers of rows are grouped by their first cells, which are narrow enough for pairs.
    """
    counts, last = columns.counts, len(columns.counts) - 1
    first_cell = np.searchsorted(table.first_edges[last], columns.starts[last], side="right") - 1
    wide_counts = [*counts[:-1], np.bincount(first_cell, counts[-1])]
    *groups, size_groups = group_cells(wide_counts, table.schema, pair_noise)
    return [*groups, size_groups[first_cell]]


def _release_pairs(
    parts: Any,
    table: PeopleTable,
    columns: _ColumnCounts,
    groups: list[np.ndarray],
    releases: SketchReleases,
    pair_noise: float,
) -> dict[str, np.ndarray]:
    """Release the counts of all pairs of columns."""
    exact = parts.sums(partial(_count_pairs, table, columns.edges, groups))
    noisy = release_tables(releases, "pairs", exact, LARGEST_WEIGHT)
    return {"pairs": np.concatenate(noisy)}


def _release_products(
    parts: Any,
    table: PeopleTable,
    columns: _ColumnCounts,
    released: Mapping[str, np.ndarray],
    releases: SketchReleases,
    noise: Mapping[str, float],
) -> dict[str, np.ndarray]:
    """Release means of products of rows: of a person's rows, of two columns, of adjacent rows."""
    sensitivities, edges = people_sensitivities(table), columns.edges

    def release(name: str, sums: list[np.ndarray], unit: int) -> list[np.ndarray]:
        noisy = releases.run(name, np.concatenate(sums), sensitivities[name]) / unit
        return np.split(noisy, np.cumsum([len(part) for part in sums])[:-1])

    points, scatters = row_points(table, released), largest_scatters(table)
    exact = parts.sums(partial(scatters_within, table, edges, points))
    noisy = release("within", exact, RADIUS)
    within = [radius * products for radius, products in zip(scatters, noisy, strict=True)]
    products = {"within": np.concatenate(within)}
    if "crossed" in noise:
        exact = parts.sums(partial(mean_products, table, edges, points))
        products["crossed"] = np.concatenate(release("crossed", exact, LARGEST_PRODUCT))
    if "next" in noise:
        total = max(float(released_size(released)), 1.0)
        radii = []
        for j in table.chained_columns:
            i = table.row_columns.index(j)
            scatter_noise = scatters[i] * noise["within"] / total
            radii.append(
                clipping_radius(points[i], columns.counts[j], within[i] / total, scatter_noise)
            )
        exact = parts.sums(partial(next_products, table, edges, points, radii))
        noisy = release("next", exact, RADIUS)
        products["next"] = np.concatenate([r * part for r, part in zip(radii, noisy, strict=True)])
        products["radii"] = np.array(radii)
    return products


def _without_empty_tails(
    columns: _ColumnCounts, schema: TableSchema, deviation: float
) -> list[np.ndarray]:
    """Return counts that are 0 in tails which hold only noise.

    These are tails of logarithmic scales and of numbers of rows: one in a thousand people may have
    most of all rows.
    """
    counts, starts = columns.counts, columns.starts
    *tails, _ = empty_tails(counts, starts, schema, [deviation] * len(counts))
    is_log = [column.scale == LOG for column in schema.columns[:-1]]
    empty = [tail & log for tail, log in zip(tails, is_log, strict=True)]
    # The last cell with records is clear, alone or with a neighbour, or with all cells beyond it.
    _, last = clear_cells(counts[-1], _CLEAR_DEVIATIONS * deviation, (1, 2))
    sums = np.cumsum(counts[-1][::-1])[::-1]
    noise = deviation * np.sqrt(np.arange(len(sums), 0, -1))
    real = [*range(last + 1), *np.flatnonzero(sums > _REAL_DEVIATIONS * noise)]
    empty.append(np.arange(len(sums)) > max(real, default=len(sums)))
    return [np.where(tail, 0.0, count) for tail, count in zip(empty, counts, strict=True)]


def _count_cells(table, edges, columns, part):
    """Return the weighted counts of the cells of some columns."""
    weights = part.weights
    cells = [cells_of_rows(part, table, edges, j) for j in columns]
    return [
        np.bincount(cell, weights, minlength=len(edges[j]) - 1).astype(np.int64)
        for j, cell in zip(columns, cells, strict=True)
    ]


def _count_pairs(table, edges, groups, part):
    """Return the weighted counts of pairs of columns."""
    codes = [group[cells_of_rows(part, table, edges, j)] for j, group in enumerate(groups)]
    sizes = [int(group.max()) + 1 for group in groups]
    count = partial(count_together, classes=0, n_classes=1, weights=part.weights)
    tables = [count(codes, sizes, pair) for pair in combinations(range(len(codes)), 2)]
    return [counts.astype(np.int64) for counts in tables]
