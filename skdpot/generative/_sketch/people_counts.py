"""Private sums over people with several rows: every person counts once, however many rows she has.

A person adds the mean over her rows to every table of counts, and means of products over pairs of
her rows, in integers that are rounded towards zero. Sums are over parts of the table that hold all
rows of their people, one part after another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.generative._sketch.marginals import (
    ROUNDS,
    cut_cells,
    empty_tails,
    errors_of_counts,
    first_edges,
    group_cells,
    refined_columns,
)
from skdpot.generative._sketch.workload import Workload
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import RADIUS, SketchReleases, ball_points
from skdpot.tables import TableSchema

__all__ = [
    "LocalParts",
    "PeoplePart",
    "PeopleTable",
    "people_errors",
    "people_sensitivities",
    "people_size",
    "release_people",
    "row_points",
    "share_people",
]

# What a person adds to a table of counts, in all.
WHOLE = 2**20
# And to means of products of two points of the ball.
SQUARE = RADIUS**2
# More columns of categories than these have the rarest of them together, in products of rows.
_MOST_CORNERS = 8
# People have the largest numbers of rows where there are so many deviations of the noise of them.
_REAL_DEVIATIONS = 3.0
# How long the two coordinates of a number are: its rank, and how far that is from the middle.
_OF_RANK, _OF_SPREAD = 0.95, 0.31
# Products are clipped where they are so many times as long as they are in the mean.
_RADIUS_OVER_MEAN, _SMALLEST_RADIUS = 6.0, 0.2


@dataclass(frozen=True, eq=False)
class PeoplePart:
    """All rows of some people: private.

    Parameters
    ----------
    units : list of ndarray of shape (n_rows,)
        Of each column but that of numbers of rows; the rows of a person are next to each other, in
        their order.
    sizes : ndarray of shape (n_people,)
        How many rows each person has, at least one.
    """

    units: list[np.ndarray]
    sizes: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Return where the rows of each person start."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def weights(self) -> np.ndarray:
        """Return what each row adds to a count: integers, of a person at most WHOLE in all."""
        return np.repeat((WHOLE // self.sizes).astype(np.float64), self.sizes)


@dataclass(frozen=True, eq=False)
class LocalParts:
    """Parts of a table in this process."""

    parts: list[PeoplePart]

    def sums(self, of_part: Callable[[PeoplePart], list[np.ndarray]]) -> list[np.ndarray]:
        """Return exact sums over parts of what a function returns of each."""
        total: list[np.ndarray] = []
        for part in self.parts:
            found = of_part(part)
            total = [a + b for a, b in zip(total, found, strict=True)] if total else found
        return total


@dataclass(frozen=True)
class PeopleTable:
    """What a table of the rows of people is declared to hold: public.

    Parameters
    ----------
    schema : TableSchema
        Of all columns, the target among them, and of the number of rows of a person, which is the
        last one; without target.
    own : tuple of int
        Positions of the columns that people have, and not their rows; the last one among them.
    order : int or None
        Position of the column by which rows of a person are in order.
    size_edges : ndarray
        Numbers of rows at which cells of the last column start, and the end of the last one.
    """

    schema: TableSchema
    own: tuple[int, ...]
    order: int | None
    size_edges: tuple[int, ...]

    @property
    def of_rows(self) -> list[int]:
        """Return the positions of columns that rows have."""
        return [j for j in range(len(self.schema.columns)) if j not in self.own]

    @property
    def walking(self) -> list[int]:
        """Return the positions of columns whose values in consecutive rows are compared."""
        return [] if self.order is None else [j for j in self.of_rows if j != self.order]


def share_people(table: PeopleTable) -> dict[str, float]:
    """Return the shares of the budget of all that `release_people` releases."""
    shares = {"values": 0.28}
    if refined_columns(table.schema):
        shares |= dict.fromkeys(ROUNDS, 0.02)
    shares["pairs"] = 0.38
    shares["others"] = 0.12
    if len(table.of_rows) > 1:
        shares["crossed"] = 0.04
    if table.walking:
        shares["next"] = 0.12
    return shares


def people_sensitivities(table: PeopleTable) -> dict[str, Any]:
    """Return the sensitivity of each release."""
    n_columns, n_rows = len(table.schema.columns), len(table.of_rows)
    n_refined = max(len(refined_columns(table.schema)), 1)
    tables = {
        **dict.fromkeys(ROUNDS, (n_refined, WHOLE)),
        "values": (n_columns, WHOLE),
        "pairs": (n_columns * (n_columns - 1) // 2, WHOLE),
        "others": (n_rows, RADIUS),
        "crossed": (n_rows * (n_rows - 1) // 2, SQUARE),
        "next": (len(table.walking), RADIUS),
    }
    return {
        name: partial(cell_count_sensitivity, n_tables=tables[name][0], whole=tables[name][1])
        for name in share_people(table)
    }


def release_people(
    parts: Any, table: PeopleTable, releases: SketchReleases
) -> dict[str, np.ndarray]:
    """Release counts and means of products of rows, of which each person has a bounded part."""
    schema, sensitivities = table.schema, people_sensitivities(table)
    features = range(len(schema.columns))

    def release(name: str, sums: list[np.ndarray], unit: int) -> list[np.ndarray]:
        noisy = releases.run(name, np.concatenate(sums), sensitivities[name]) / unit
        return np.split(noisy, np.cumsum([len(part) for part in sums])[:-1])

    edges = {j: first_edges(schema.columns[j]) for j in features}
    refined = refined_columns(schema)
    for name in ROUNDS if refined else ():
        counts = release(name, parts.sums(partial(_counts_of, table, edges, refined)), WHOLE)
        deviation = releases.standard_deviation(name, sensitivities[name]) / WHOLE
        for j, count in zip(refined, counts, strict=True):
            edges[j] = cut_cells(edges[j], count, deviation)
    counts = release("values", parts.sums(partial(_counts_of, table, edges, features)), WHOLE)
    units = {"values": WHOLE, "pairs": WHOLE, "others": RADIUS, "crossed": SQUARE, "next": RADIUS}
    deviations = {
        name: releases.standard_deviation(name, sensitivities[name]) / unit
        for name, unit in units.items()
        if name in sensitivities
    }
    counts = _without_empty_tails(counts, schema, deviations["values"])
    groups = group_cells([count[:, None] for count in counts], schema, deviations["pairs"])
    pairs = release("pairs", parts.sums(partial(_pairs_of, table, edges, groups)), WHOLE)
    points = row_points(table, counts)
    released = {
        "n_cells": np.array([len(edges[j]) - 1 for j in features]),
        "starts": np.concatenate([edges[j][:-1] for j in features]),
        "stops": np.concatenate([edges[j][1:] for j in features]),
        "counts": np.concatenate(counts),
        "groups": np.concatenate(groups),
        "pairs": np.concatenate(pairs),
        "deviations": np.array(list(deviations.values())),
    }
    others = release("others", parts.sums(partial(_others_of, table, edges, points)), RADIUS)
    released["others"] = np.concatenate(others)
    if "crossed" in deviations:
        crossed = release("crossed", parts.sums(partial(_crossed_of, table, edges, points)), SQUARE)
        released["crossed"] = np.concatenate(crossed)
    if "next" in deviations:
        total = max(float(people_size(released)), 1.0)
        noise = deviations["others"] / total
        radii = [_radius(others[table.of_rows.index(j)] / total, noise) for j in table.walking]
        following = parts.sums(partial(_next_of, table, edges, points, radii))
        following = release("next", following, RADIUS)
        released["next"] = np.concatenate([r * of for r, of in zip(radii, following, strict=True)])
        released["radii"] = np.array(radii)
    return released


def _without_empty_tails(counts, schema, deviation):
    """Return counts with nothing in tails in which noise is all.

    These are tails of logarithmic scales, and of numbers of rows: one in a thousand people may have
    most of all rows.
    """
    *empty, _ = empty_tails([count[:, None] for count in counts], schema, deviation)
    tails = np.cumsum(counts[-1][::-1])[::-1]
    noise = deviation * np.sqrt(np.arange(len(tails), 0, -1))
    real = np.flatnonzero(tails > _REAL_DEVIATIONS * noise)
    empty.append(np.arange(len(tails)) > max(real, default=len(tails)))
    return [np.where(gone, 0.0, count) for gone, count in zip(empty, counts, strict=True)]


def people_errors(
    n_people: int, table: PeopleTable, releases: SketchReleases
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of what counts of so many people tell of columns and of pairs."""
    count, pair = (
        releases.standard_deviation(name, people_sensitivities(table)[name]) / WHOLE
        for name in ("values", "pairs")
    )
    even = Workload.even(len(table.schema.columns))
    return errors_of_counts(n_people, table.schema, (count, pair), even)


def _radius(others: np.ndarray, noise: float) -> float:
    """Return a radius that few people's means of products of rows are beyond.

    Of lengths of people's means the mean square is known. Products of two rows are as long as
    these, about, and what is known may be too small by its noise.
    """
    width = round(len(others) ** 0.5)
    mean_square = np.trace(others.reshape(width, width)) + noise * np.sqrt(width)
    return float(np.clip(_RADIUS_OVER_MEAN * mean_square, _SMALLEST_RADIUS, 1.0))


def row_points(table: PeopleTable, counts: list[np.ndarray]) -> list[np.ndarray]:
    """Return a point of the ball for each cell of the columns of rows, given released counts."""
    return [_points(table.schema.columns[j], counts[j]) for j in table.of_rows]


def _points(column: Any, counts: np.ndarray) -> np.ndarray:
    mass = np.maximum(counts, 0.0)
    if column.kind == "nominal":
        order = np.argsort(-mass, kind="stable")
        corner = np.empty(len(mass), dtype=np.int64)
        corner[order] = np.minimum(np.arange(len(mass)), _MOST_CORNERS - 1)
        rows = np.eye(corner.max() + 1)[corner] - 1 / max(corner.max() + 1, 2)
        if corner.max() == 1:
            rows = rows[:, :1]
    else:
        n_known = len(mass) - column.missing
        known = mass[:n_known]
        rank = 2 * (np.cumsum(known) - known / 2) / max(known.sum(), 1e-300) - 1
        rows = np.zeros((len(mass), 2 + column.missing))
        rows[:n_known, 0] = _OF_RANK * rank
        rows[:n_known, 1] = _OF_SPREAD * (1.5 * rank**2 - 0.5)
        rows[n_known:, 2:] = 1.0
    largest = np.sqrt((rows**2).sum(axis=1)).max()
    return ball_points(rows, max(float(largest), 1e-6)).astype(np.int64)


def people_size(released: Mapping[str, np.ndarray]) -> int:
    """Return the number of people, as nearly as what was released tells."""
    n_cells = released["n_cells"]
    totals = np.add.reduceat(released["counts"], np.cumsum(n_cells) - n_cells)
    # Columns with more cells add up more noise.
    return max(round(float(np.average(totals, weights=1 / n_cells))), 0)


def _cells(part: PeoplePart, table: PeopleTable, edges: Mapping[int, np.ndarray], j: int) -> Any:
    """Return the cell of a column that each row is in."""
    if j == len(table.schema.columns) - 1:
        sizes = np.searchsorted(table.size_edges, part.sizes, side="right") - 1
        return np.repeat(np.minimum(sizes, len(table.size_edges) - 2), part.sizes)
    units = part.units[j]
    if j in table.own:
        # What is a person's is what her first row says.
        units = np.repeat(units[part.starts], part.sizes)
    return np.searchsorted(edges[j], units, side="right") - 1


def _counts_of(table, edges, columns, part):
    weights = part.weights
    return [_count(_cells(part, table, edges, j), weights, len(edges[j]) - 1) for j in columns]


def _count(codes, weights, size):
    return np.bincount(codes, weights, minlength=size).astype(np.int64)


def _pairs_of(table, edges, groups, part):
    weights = part.weights
    codes = [group[_cells(part, table, edges, j)] for j, group in enumerate(groups)]
    sizes = [int(group.max()) + 1 for group in groups]
    return [
        _count(codes[a] * sizes[b] + codes[b], weights, sizes[a] * sizes[b])
        for a, b in combinations(range(len(codes)), 2)
    ]


def _means_of(part, table, edges, points):
    """Return the means over each person's rows of the points of columns."""
    return [
        np.add.reduceat(of[_cells(part, table, edges, j)], part.starts) / part.sizes[:, None]
        for j, of in zip(table.of_rows, points, strict=True)
    ]


def _others_of(table, edges, points, part):
    """Return sums over people of the products of the means of their rows' points with these."""
    sums = []
    for mean in _means_of(part, table, edges, points):
        products = (mean[:, :, None] * mean[:, None, :]).reshape(len(mean), -1)
        sums.append(ball_points(products, float(SQUARE)).sum(axis=0).astype(np.int64))
    return sums


def _crossed_of(table, edges, points, part):
    """Return sums over people of products of the means of two columns."""
    means = [np.trunc(mean) for mean in _means_of(part, table, edges, points)]
    return [(one.T @ other).astype(np.int64).ravel() for one, other in combinations(means, 2)]


def _next_of(table, edges, points, radii, part):
    """Return sums over people of means of products of each row's points with the next one's."""
    steps = part.sizes[part.sizes > 1] - 1
    is_first = np.ones(len(part.units[0]), dtype=bool)
    is_first[np.cumsum(part.sizes) - 1] = False
    rows, starts = np.flatnonzero(is_first), np.cumsum(steps) - steps
    sums = []
    for j, radius in zip(table.walking, radii, strict=True):
        of = points[table.of_rows.index(j)]
        if not len(rows):
            sums.append(np.zeros(of.shape[1] ** 2, dtype=np.int64))
            continue
        cells = _cells(part, table, edges, j)
        products = of[cells[rows]][:, :, None] * of[cells[rows + 1]][:, None, :]
        means = np.add.reduceat(products.reshape(len(rows), -1), starts) / steps[:, None]
        sums.append(ball_points(means, radius * SQUARE).sum(axis=0).astype(np.int64))
    return sums
