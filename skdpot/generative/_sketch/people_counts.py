"""Private sums over people with several rows: every person counts once, however many rows she has.

A person adds the mean over her rows to every table of counts, and means of products over pairs of
her rows, in integers that are rounded towards zero. Sums are over parts of the table that hold all
rows of their people, one part after another.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.generative._sketch.cell_groups import group_cells, joint_parts
from skdpot.generative._sketch.cells import (
    ROUNDS,
    clear_cells,
    cut_cells,
    empty_tails,
    first_edges,
    refined_columns,
)
from skdpot.generative._sketch.expected_errors import errors_of_counts
from skdpot.generative._sketch.noisy_counts import (
    count_together,
    noise_of_tables,
    release_tables,
    release_weighted,
    released_size,
    workload_statistics,
)
from skdpot.generative._sketch.workload import Workload
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import cell_count_sensitivity
from skdpot.releases import RADIUS, SketchReleases, ball_points
from skdpot.tables import LOG, NUMERIC, TableSchema

__all__ = [
    "WHOLE",
    "LocalParts",
    "PeoplePart",
    "PeopleTable",
    "largest_scatters",
    "people_errors",
    "people_sensitivities",
    "release_people",
    "released_products",
    "row_points",
    "share_people",
]

# What a person adds to a table of counts, in all.
WHOLE = 2**20
# And to means of products of two points of the ball.
SQUARE = RADIUS**2
# More columns of categories than these have the rarest of them together, in products of rows.
_MOST_CORNERS = 8
# Cells of numbers of rows are so much wider each, before they are cut where many people are.
_SIZE_STEP = 1.4
# People have the largest numbers of rows where there are so many deviations of the noise of them,
# or so many in a cell.
_REAL_DEVIATIONS, _CLEAR_DEVIATIONS = 3.0, 4.0
# How long the two coordinates of a number are: its place, and how far that is from the middle.
_OF_PLACE, _OF_SPREAD = 0.95, 0.31
# What part of all rows has numbers below the lowest place, and above the highest one.
_BEYOND = 0.02
# Where there are more than two values, rows of few people scatter by more than this, of the most
# that there may be.
_LARGE_SCATTER = 0.8
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

    def taken(self, people: np.ndarray) -> "PeoplePart":
        """Return the part of some people, by a mask."""
        rows = np.repeat(people, self.sizes)
        return PeoplePart([units[rows] for units in self.units], self.sizes[people])

    def column(self, j: int, own: Sequence[int]) -> np.ndarray:
        """Return a column; what is a person's own is what her first row says."""
        units = self.units[j]
        return np.repeat(units[self.starts], self.sizes) if j in own else units

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

    def taken(self, people: np.ndarray) -> "LocalParts":
        """Return the parts of some people, by a mask."""
        ends = np.cumsum([len(part.sizes) for part in self.parts])[:-1]
        of_parts = np.split(people, ends)
        return LocalParts(
            [part.taken(rows) for part, rows in zip(self.parts, of_parts, strict=True)]
        )


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
    wanted : Workload, default=None
        Which tables of counts have more noise than others. None is for even weights.
    """

    schema: TableSchema
    own: tuple[int, ...]
    order: int | None
    wanted: Workload | None = None

    @cached_property
    def workload(self) -> Workload:
        """Return the weights of tables of counts."""
        return self.wanted or Workload.even(len(self.schema.columns))

    @property
    def refined(self) -> list[int]:
        """Return the positions of columns whose cells are cut where many people are."""
        return [*refined_columns(self.schema), len(self.schema.columns) - 1]

    @property
    def first_edges(self) -> dict[int, np.ndarray]:
        """Return the edges of the cells that each column begins with."""
        *columns, of_sizes = self.schema.columns
        edges = [1]
        while edges[-1] <= of_sizes.n_units:
            edges.append(max(edges[-1] + 1, math.ceil(edges[-1] * _SIZE_STEP)))
        of_rows = np.minimum(edges[:-1], of_sizes.n_units) - 1
        of_rows[-1] = of_sizes.n_units
        return dict(enumerate([*map(first_edges, columns), of_rows]))

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
    shares = table.workload.shares("values", 0.28)
    shares |= dict.fromkeys(ROUNDS, 0.02)
    shares |= table.workload.shares("pairs", 0.38)
    return shares | {name: share for name, (share, _, _) in released_products(table).items()}


def released_products(table: PeopleTable) -> dict[str, tuple[float, int, int]]:
    """Return the share, the number of tables and the unit of each release of products."""
    n_rows = len(table.of_rows)
    products = {
        "within": (0.2, n_rows, RADIUS),
        "crossed": (0.04, n_rows * (n_rows - 1) // 2, SQUARE),
        "next": (0.12, len(table.walking), RADIUS),
    }
    return {name: product for name, product in products.items() if product[1]}


def largest_scatters(table: PeopleTable) -> list[float]:
    """Return to what the scatter of each person's rows is clipped, of each column of rows: public.

    It is in units of what is possible.
    """
    columns = [table.schema.columns[j] for j in table.of_rows]
    return [1.0 if column.n_known <= 2 else _LARGE_SCATTER for column in columns]


def people_sensitivities(table: PeopleTable) -> dict[str, Any]:
    """Return the sensitivity of each release."""
    workload = table.workload
    levels = workload.levels("values") | workload.levels("pairs")
    tables = {
        **dict.fromkeys(ROUNDS, (len(table.refined), WHOLE)),
        **{name: (len(of_level), WHOLE) for name, of_level in levels.items()},
        **{name: product[1:] for name, product in released_products(table).items()},
    }
    return {
        name: partial(cell_count_sensitivity, n_tables=tables[name][0], whole=tables[name][1])
        for name in share_people(table)
    }


def noise_of_people(table: PeopleTable, releases: SketchReleases) -> dict[str, float]:
    """Return the noise of values and pairs of weight 1, and of products, in units of people."""
    noise = {
        kind: noise_of_tables(releases, kind, table.workload, WHOLE) for kind in ("values", "pairs")
    }
    sensitivities = people_sensitivities(table)
    for name, (_, _, unit) in released_products(table).items():
        noise[name] = releases.standard_deviation(name, sensitivities[name]) / unit
    return noise


def release_people(
    parts: Any, table: PeopleTable, releases: SketchReleases
) -> dict[str, np.ndarray]:
    """Release counts and means of products of rows, of which each person has a bounded part."""
    schema, workload = table.schema, table.workload
    sensitivities, noise = people_sensitivities(table), noise_of_people(table, releases)
    features = range(len(schema.columns))

    def release(name: str, sums: list[np.ndarray], unit: int) -> list[np.ndarray]:
        noisy = releases.run(name, np.concatenate(sums), sensitivities[name]) / unit
        return np.split(noisy, np.cumsum([len(part) for part in sums])[:-1])

    edges = table.first_edges
    for name in ROUNDS:
        exact = parts.sums(partial(_counts_of, table, edges, table.refined))
        deviation = releases.standard_deviation(name, sensitivities[name]) / WHOLE
        for j, count in zip(
            table.refined, release_tables(releases, name, exact, WHOLE), strict=True
        ):
            edges[j] = cut_cells(edges[j], count, deviation)
    exact = parts.sums(partial(_counts_of, table, edges, features))
    counts = release_weighted(releases, "values", exact, workload, WHOLE)
    starts = [edges[j][:-1] for j in features]
    counts = _without_empty_tails(counts, starts, schema, noise["values"])
    # Of numbers of rows, cells that were cut go together: pairs have enough of the first ones.
    wide = np.searchsorted(table.first_edges[len(counts) - 1], starts[-1], side="right") - 1
    together = [*counts[:-1], np.bincount(wide, counts[-1])]
    *groups, of_sizes = group_cells(together, schema, noise["pairs"])
    groups.append(of_sizes[wide])
    masses = [
        np.bincount(*group_and_counts) for group_and_counts in zip(groups, counts, strict=True)
    ]
    of_joints = joint_parts(masses, 1, noise["pairs"], workload)
    exact = parts.sums(partial(_tables_of, table, edges, groups, of_joints))
    tables = release_weighted(releases, "pairs", exact, workload, WHOLE)
    n_pairs = len(workload.pairs)
    released = {
        "n_cells": np.array([len(edges[j]) - 1 for j in features]),
        "starts": np.concatenate(starts),
        "stops": np.concatenate([edges[j][1:] for j in features]),
        "counts": np.concatenate(counts)[:, None],
        "groups": np.concatenate(groups),
        "pairs": np.concatenate(tables[:n_pairs]),
        "deviations": np.array(list(noise.values())),
    }
    if table.wanted is not None:
        released |= workload_statistics(workload, of_joints, tables[n_pairs:])
    points = row_points(table, released)
    scatters = largest_scatters(table)
    exact = parts.sums(partial(_within_of, table, edges, points))
    within = release("within", exact, RADIUS)
    within = [radius * products for radius, products in zip(scatters, within, strict=True)]
    released["within"] = np.concatenate(within)
    if "crossed" in noise:
        exact = parts.sums(partial(_crossed_of, table, edges, points))
        released["crossed"] = np.concatenate(release("crossed", exact, SQUARE))
    if "next" in noise:
        total = max(float(released_size(released)), 1.0)
        radii = []
        for j in table.walking:
            i = table.of_rows.index(j)
            of_within = scatters[i] * noise["within"] / total
            radii.append(_radius(points[i], counts[j], within[i] / total, of_within))
        exact = parts.sums(partial(_next_of, table, edges, points, radii))
        following = release("next", exact, RADIUS)
        released["next"] = np.concatenate(
            [r * products for r, products in zip(radii, following, strict=True)]
        )
        released["radii"] = np.array(radii)
    return released


def _without_empty_tails(counts, starts, schema, deviation):
    """Return counts with nothing in tails in which noise is all.

    These are tails of logarithmic scales, and of numbers of rows: one in a thousand people may have
    most of all rows.
    """
    *empty, _ = empty_tails(counts, starts, schema, [deviation] * len(counts))
    empty = [
        gone & (column.scale == LOG)
        for gone, column in zip(empty, schema.columns[:-1], strict=True)
    ]
    # One or two cells have clearly more than noise, or all beyond have it together.
    _, last = clear_cells(counts[-1], _CLEAR_DEVIATIONS * deviation, (1, 2))
    tails = np.cumsum(counts[-1][::-1])[::-1]
    noise = deviation * np.sqrt(np.arange(len(tails), 0, -1))
    real = [*range(last + 1), *np.flatnonzero(tails > _REAL_DEVIATIONS * noise)]
    empty.append(np.arange(len(tails)) > max(real, default=len(tails)))
    return [np.where(gone, 0.0, count) for gone, count in zip(empty, counts, strict=True)]


def people_errors(
    n_people: int, table: PeopleTable, releases: SketchReleases
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of what counts of so many people tell of columns and of pairs."""
    noise = noise_of_people(table, releases)
    known = noise["values"], noise["pairs"]
    # Of numbers of rows, those of the cells that these begin with.
    *columns, of_sizes = table.schema.columns
    wide = tuple(map(str, table.first_edges[len(columns)][:-1] + 1))
    schema = replace(table.schema, columns=(*columns, replace(of_sizes, values=wide)))
    return errors_of_counts(n_people, schema, known, table.workload)


def _radius(points: np.ndarray, counts: np.ndarray, within: np.ndarray, noise: float) -> float:
    """Return a radius that few people's means of products of rows are beyond.

    Products of two rows of a person are as long as her mean, squared, about. The mean of that is
    the mean square of a row without what rows scatter by, of which the noise may take away.
    """
    width = points.shape[1]
    squares = ((points / RADIUS) ** 2).sum(axis=1) @ np.maximum(counts, 0.0)
    mean_square = squares / max(float(np.maximum(counts, 0.0).sum()), 1e-300)
    mean_square += noise * np.sqrt(width) - np.trace(within.reshape(width, width))
    return float(np.clip(_RADIUS_OVER_MEAN * mean_square, _SMALLEST_RADIUS, 1.0))


def row_points(table: PeopleTable, released: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return a point of the ball for each cell of the columns of rows, given released counts."""
    ends = np.cumsum(released["n_cells"])[:-1]
    starts, stops, counts = (
        np.split(released[name], ends) for name in ("starts", "stops", "counts")
    )
    return [
        _points(table.schema.columns[j], starts[j], stops[j], counts[j][:, 0])
        for j in table.of_rows
    ]


def _points(column: Any, starts: np.ndarray, stops: np.ndarray, counts: np.ndarray) -> np.ndarray:
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
        rank = (np.cumsum(known) - known / 2) / max(known.sum(), 1e-300)
        place = 2 * rank - 1
        if column.kind == NUMERIC:
            # Means and variances of numbers are those of places: between what few are beyond.
            of_cells = (starts[:n_known], stops[:n_known] - 1)
            middle = sum(map(column.places_of_units, of_cells)) / 2
            first, last = np.searchsorted(rank, [_BEYOND, 1 - _BEYOND])
            low, high = middle[min(first, n_known - 1)], middle[max(last - 1, 0)]
            place = np.clip(2 * (middle - low) / max(high - low, 1e-9) - 1, -1.0, 1.0)
        rows = np.zeros((len(mass), 2 + column.missing))
        rows[:n_known, 0] = _OF_PLACE * place
        rows[:n_known, 1] = _OF_SPREAD * (1.5 * place**2 - 0.5)
        rows[n_known:, 2:] = 1.0
    largest = np.sqrt((rows**2).sum(axis=1)).max()
    return ball_points(rows, max(float(largest), 1e-6)).astype(np.int64)


def _cells(part: PeoplePart, table: PeopleTable, edges: Mapping[int, np.ndarray], j: int) -> Any:
    """Return the cell of a column that each row is in."""
    if j == len(table.schema.columns) - 1:
        units = np.minimum(part.sizes, table.schema.columns[j].n_units) - 1
        return np.repeat(np.searchsorted(edges[j], units, side="right") - 1, part.sizes)
    return np.searchsorted(edges[j], part.column(j, table.own), side="right") - 1


def _counts_of(table, edges, columns, part):
    weights = part.weights
    return [_count(_cells(part, table, edges, j), weights, len(edges[j]) - 1) for j in columns]


def _count(codes, weights, size):
    return np.bincount(codes, weights, minlength=size).astype(np.int64)


def _tables_of(table, edges, groups, of_joints, part):
    """Return the counts of each two columns, and of more that are wanted together."""
    codes = [group[_cells(part, table, edges, j)] for j, group in enumerate(groups)]
    sizes = [int(group.max()) + 1 for group in groups]
    count = partial(count_together, classes=0, n_classes=1, weights=part.weights)
    tables = [count(codes, sizes, pair) for pair in combinations(range(len(codes)), 2)]
    for (joint, _), of_columns in zip(table.workload.joints, of_joints, strict=True):
        within = {j: of_columns[j][codes[j]] for j in joint}
        tables.append(count(within, [int(part.max()) + 1 for part in of_columns], joint))
    return [found.astype(np.int64) for found in tables]


def _means_of(part, table, edges, points):
    """Return the means over each person's rows of the points of columns."""
    return [
        np.add.reduceat(column_points[_cells(part, table, edges, j)], part.starts)
        / part.sizes[:, None]
        for j, column_points in zip(table.of_rows, points, strict=True)
    ]


def _within_of(table, edges, points, part):
    """Return sums over people of how much their rows' points scatter around their mean."""
    sums = []
    means = _means_of(part, table, edges, points)
    scatters = largest_scatters(table)
    for j, column_points, mean, radius in zip(table.of_rows, points, means, scatters, strict=True):
        rows = column_points[_cells(part, table, edges, j)]
        squares = _products_of(rows, rows)
        scatter = np.add.reduceat(squares, part.starts) / part.sizes[:, None]
        scatter -= _products_of(mean, mean)
        scatter = ball_points(scatter, radius * SQUARE)
        sums.append(scatter.sum(axis=0).astype(np.int64))
    return sums


def _products_of(one, other):
    """Return the products of two coordinates of each row."""
    products = one[:, :, None] * other[:, None, :]
    return products.reshape(len(one), one.shape[1] * other.shape[1])


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
        column_points = points[table.of_rows.index(j)]
        if not len(rows):
            sums.append(np.zeros(column_points.shape[1] ** 2, dtype=np.int64))
            continue
        cells = _cells(part, table, edges, j)
        products = _products_of(column_points[cells[rows]], column_points[cells[rows + 1]])
        means = np.add.reduceat(products, starts) / steps[:, None]
        sums.append(ball_points(means, radius * SQUARE).sum(axis=0).astype(np.int64))
    return sums
