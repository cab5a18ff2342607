"""Products of the rows of a person: the points of rows, and sums of their products over people."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from skdpot.generative._sketch.people_parts import PeoplePart
from skdpot.generative._sketch.people_table import LARGEST_PRODUCT, PeopleTable, largest_scatters
from skdpot.releases import RADIUS, ball_points
from skdpot.tables import NUMERIC

__all__ = [
    "cells_of_rows",
    "clipping_radius",
    "mean_products",
    "next_products",
    "row_points",
    "scatters_within",
]

# Categories beyond the most frequent ones share one corner of the simplex of points.
_MOST_CORNERS = 8
# The lengths of the two coordinates of a number: its place, and the distance of that from the
# middle.
_PLACE_LENGTH, _SPREAD_LENGTH = 0.95, 0.31
# The share of rows that are moved to the lowest place, and to the highest one.
_CLIPPED_SHARE = 0.02
# Products are clipped to this multiple of their mean length.
_RADIUS_OVER_MEAN, _SMALLEST_RADIUS = 6.0, 0.2


def row_points(table: PeopleTable, released: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return a point of the ball for each cell of the columns of rows, given released counts."""
    ends = np.cumsum(released["n_cells"])[:-1]
    starts, stops, counts = (
        np.split(released[name], ends) for name in ("starts", "stops", "counts")
    )
    return [
        _points(table.schema.columns[j], starts[j], stops[j], counts[j][:, 0])
        for j in table.row_columns
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
            # Places are proportional to numbers, so that means and variances are those of numbers.
            ends = (starts[:n_known], stops[:n_known] - 1)
            middle = sum(map(column.places_of_units, ends)) / 2
            first, last = np.searchsorted(rank, [_CLIPPED_SHARE, 1 - _CLIPPED_SHARE])
            low, high = middle[min(first, n_known - 1)], middle[max(last - 1, 0)]
            place = np.clip(2 * (middle - low) / max(high - low, 1e-9) - 1, -1.0, 1.0)
        rows = np.zeros((len(mass), 2 + column.missing))
        rows[:n_known, 0] = _PLACE_LENGTH * place
        rows[:n_known, 1] = _SPREAD_LENGTH * (1.5 * place**2 - 0.5)
        rows[n_known:, 2:] = 1.0
    largest = np.sqrt((rows**2).sum(axis=1)).max()
    return ball_points(rows, max(float(largest), 1e-6)).astype(np.int64)


def cells_of_rows(
    part: PeoplePart, table: PeopleTable, edges: Mapping[int, np.ndarray], j: int
) -> Any:
    """Return the cell of each row in a column."""
    if j == len(table.schema.columns) - 1:
        units = np.minimum(part.sizes, table.schema.columns[j].n_units) - 1
        return np.repeat(np.searchsorted(edges[j], units, side="right") - 1, part.sizes)
    return np.searchsorted(edges[j], part.column(j, table.shared), side="right") - 1


def _means_of(part, table, edges, points):
    """Return the mean point of each person's rows, for each column."""
    return [
        np.add.reduceat(column_points[cells_of_rows(part, table, edges, j)], part.starts)
        / part.sizes[:, None]
        for j, column_points in zip(table.row_columns, points, strict=True)
    ]


def scatters_within(table, edges, points, part):
    """Return the sums over people of the scatter of their rows' points around their mean."""
    sums = []
    means = _means_of(part, table, edges, points)
    scatters = largest_scatters(table)
    for j, column_points, mean, radius in zip(
        table.row_columns, points, means, scatters, strict=True
    ):
        rows = column_points[cells_of_rows(part, table, edges, j)]
        squares = _products_of(rows, rows)
        scatter = np.add.reduceat(squares, part.starts) / part.sizes[:, None]
        scatter -= _products_of(mean, mean)
        scatter = ball_points(scatter, radius * LARGEST_PRODUCT)
        sums.append(scatter.sum(axis=0).astype(np.int64))
    return sums


def _products_of(first, second):
    """Return the products of all pairs of coordinates, row by row."""
    products = first[:, :, None] * second[:, None, :]
    return products.reshape(len(first), first.shape[1] * second.shape[1])


def mean_products(table, edges, points, part):
    """Return the sums over people of the products of the means of two columns."""
    means = [np.trunc(mean) for mean in _means_of(part, table, edges, points)]
    return [(a.T @ b).astype(np.int64).ravel() for a, b in combinations(means, 2)]


def next_products(table, edges, points, radii, part):
    """Return the sums over people of the mean product of a row's point and the next row's point."""
    steps = part.sizes[part.sizes > 1] - 1
    is_first = np.ones(len(part.units[0]), dtype=bool)
    is_first[np.cumsum(part.sizes) - 1] = False
    rows, starts = np.flatnonzero(is_first), np.cumsum(steps) - steps
    sums = []
    for j, radius in zip(table.chained_columns, radii, strict=True):
        column_points = points[table.row_columns.index(j)]
        if not len(rows):
            sums.append(np.zeros(column_points.shape[1] ** 2, dtype=np.int64))
            continue
        cells = cells_of_rows(part, table, edges, j)
        products = _products_of(column_points[cells[rows]], column_points[cells[rows + 1]])
        means = np.add.reduceat(products, starts) / steps[:, None]
        sums.append(ball_points(means, radius * LARGEST_PRODUCT).sum(axis=0).astype(np.int64))
    return sums


def clipping_radius(
    points: np.ndarray, counts: np.ndarray, within: np.ndarray, noise: float
) -> float:
    """Return a radius that the mean products of few people exceed.

    The product of two rows of a person is about as long as the square of her mean. On average, that
    is the mean square of a row minus the scatter of rows, which noise may have made too large.
    """
    width = points.shape[1]
    squares = ((points / RADIUS) ** 2).sum(axis=1) @ np.maximum(counts, 0.0)
    mean_square = squares / max(float(np.maximum(counts, 0.0).sum()), 1e-300)
    mean_square += noise * np.sqrt(width) - np.trace(within.reshape(width, width))
    return float(np.clip(_RADIUS_OVER_MEAN * mean_square, _SMALLEST_RADIUS, 1.0))
