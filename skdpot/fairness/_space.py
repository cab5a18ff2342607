"""The metric space of rows of numbers, levels and categories."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpot.releases import UnitLayout
from skdpot.tables import NOMINAL, NUMERIC, ORDINAL, Column, objects

# Makes the squared distance between rows of different categories 1, in their own units.
_ONE_HOT = math.sqrt(0.5)


@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """Rows as codes, and as points with Euclidean distances.

    The *codes* of a row are its numbers, and the positions of its levels and categories, -1 for an
    unknown category. The coordinates of its point are numbers and ranks of levels, shifted and
    scaled, and then a block for every nominal column. A block has one coordinate per category: the
    column's factor for the row's category, and 0 for all others.

    Attributes
    ----------
    columns : list of Column
        The columns, in the order of X.
    origin, factor : ndarray of shape (n_coordinates,)
        A coordinate is ``(raw - origin) * factor``.
    """

    columns: list[Column]
    origin: np.ndarray
    factor: np.ndarray

    @property
    def layout(self) -> UnitLayout:
        """Return the layout of points in unit coordinates."""
        levels = (len(c.values) for c in self._ranked)
        return UnitLayout(tuple(levels), tuple(len(c.values) for c in self._nominal))

    @property
    def _ranked(self) -> list[Column]:
        return [column for column in self.columns if column.kind != NOMINAL]

    @property
    def _nominal(self) -> list[Column]:
        return [column for column in self.columns if column.kind == NOMINAL]

    def _places(self, kept: list[Column]) -> list[int]:
        return [j for j, column in enumerate(self.columns) if column in kept]

    def raw(self, codes: Iterable[np.ndarray]) -> np.ndarray:
        """Return coordinates without offset and factor: numbers, ranks, zeros and ones.

        `codes` has one array per column. An unknown level is put in the middle of the known ones.
        """
        ranked, blocks = [], []
        for column, values in zip(self.columns, codes, strict=True):
            if column.kind == NOMINAL:
                blocks.append(values[:, None] == np.arange(len(column.values)))
            elif column.kind == ORDINAL:
                middle = (len(column.values) - 1) / 2.0
                ranked.append(np.where(values < 0, middle, values))
            else:
                ranked.append(values)
        # Each column is contiguous, so that its mean is exact to the last digits.
        parts = [np.array(ranked, dtype=np.float64).T] if ranked else []
        return np.hstack([*parts, *blocks]).astype(np.float64)

    def encode(self, codes: np.ndarray) -> np.ndarray:
        """Return the points of rows, given as codes of shape (n, n_columns)."""
        # In row order, in which the search for nearest points is fast.
        return np.ascontiguousarray((self.raw(codes.T) - self.origin) * self.factor)

    def decode(self, points: np.ndarray, uniforms: np.ndarray | None = None) -> np.ndarray:
        """Return the codes of the valid rows nearest to points, which may be averages of rows.

        Levels are the nearest ones. `uniforms`, of shape (n, n_nominal), draw a category with its
        share in an average; None takes the category with the largest share.
        """
        raw = points / self.factor + self.origin
        codes = np.empty((len(points), len(self.columns)))
        for j, (place, column) in enumerate(
            zip(self._places(self._ranked), self._ranked, strict=True)
        ):
            codes[:, place] = raw[:, j]
            if column.kind == ORDINAL:
                codes[:, place] = np.clip(np.rint(raw[:, j]), 0, len(column.values) - 1)
        for j, (place, block) in enumerate(
            zip(self._places(self._nominal), self.layout.block_slices, strict=True)
        ):
            shares = np.maximum(raw[:, block], 0.0)
            if uniforms is None:
                codes[:, place] = shares.argmax(axis=1)
            else:
                ends = shares.cumsum(axis=1)
                drawn = uniforms[:, j] * ends[:, -1]
                codes[:, place] = np.minimum((ends <= drawn[:, None]).sum(1), shares.shape[1] - 1)
        return codes

    def labelled(self, codes: np.ndarray) -> list[np.ndarray]:
        """Return the columns of valid rows in the user's terms: numbers, or labels as objects."""
        return [
            codes[:, j] if column.labels is None else column.labels[codes[:, j].astype(np.intp)]
            for j, column in enumerate(self.columns)
        ]

    def scaled_to(self, codes: np.ndarray) -> "ColumnSpace":
        """Return the space in which every column of these rows has variance 1.

        For a nominal column this is the sum over its categories. So two random rows are as far
        apart in it as in any other column.
        """
        raw = self.raw(codes.T)
        # In units of the range, so that squares neither overflow nor underflow.
        width = np.ptp(raw, axis=0)
        unit = np.where(width > 0, width, 1.0)
        # For equal numbers, the rounding of their mean may leave a variance.
        variances = np.where(width > 0, (raw / unit).var(axis=0), 0.0)
        for block in self.layout.block_slices:
            variances[block] = variances[block].sum()
        with np.errstate(divide="ignore"):
            factor = np.where(variances > 0, 1.0 / np.sqrt(variances), 1.0) / unit
        return replace(self.centred_on(codes), factor=factor)

    def centred_on(self, codes: np.ndarray) -> "ColumnSpace":
        """Return the space with the mean of these rows as its origin, so that squares are small."""
        return self._relative_to(self.raw(codes.T)[:, : len(self._ranked)].mean(axis=0))

    def _relative_to(self, ranked: np.ndarray) -> "ColumnSpace":
        origin = np.zeros(len(self.origin))
        origin[: len(self._ranked)] = ranked
        return replace(self, origin=origin)

    def of_box(self, low: np.ndarray, high: np.ndarray, *, scaled: bool) -> "ColumnSpace":
        """Return the space with the lower corner as its origin; the box may have side 1.

        The box has one side for every number and rank.
        """
        width = np.ones(len(self.factor))
        width[: len(self._ranked)] = high - low if scaled else 1.0
        factor = np.where(self._is_ranked, 1.0 / width, _ONE_HOT)
        return replace(self._relative_to(low), factor=factor)

    @property
    def _is_ranked(self) -> np.ndarray:
        return np.arange(len(self.factor)) < len(self._ranked)

    def box(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of numbers and ranks, given those of numbers."""
        lows, highs = np.zeros(len(self._ranked)), np.ones(len(self._ranked))
        numeric = [column.kind == NUMERIC for column in self._ranked]
        lows[numeric], highs[numeric] = low, high
        for j, column in enumerate(self._ranked):
            if column.kind == ORDINAL:
                highs[j] = max(len(column.values) - 1, 1)
        return lows, highs


def in_own_units(columns: list[Column]) -> ColumnSpace:
    """Return the space in which columns keep their own units.

    Adjacent levels have distance 1, and so have different categories.
    """
    ranked = sum(column.kind != NOMINAL for column in columns)
    n_coordinates = sum(column.n_coordinates for column in columns)
    factor = np.where(np.arange(n_coordinates) < ranked, 1.0, _ONE_HOT)
    return ColumnSpace(columns, np.zeros(n_coordinates), factor)


def blend(
    columns: list[Column],
    original: list[Any],
    codes: np.ndarray,
    images: np.ndarray,
    moved: np.ndarray,
    uniforms: np.ndarray,
    level: float,
) -> list[np.ndarray]:
    """Return rows moved part of the way to their images, as columns in the user's terms.

    `original` has the labels of rows, None for columns of numbers. `moved` tells which rows are
    moved at all; among these, rows with one of `uniforms` below `level` get all categories of their
    images.
    """
    drawn = moved & (uniforms < level)
    return [
        _numbers_between(codes[:, j], images[:, j], drawn, level)
        if column.kind == NUMERIC
        else _labels_between(column, labels, codes[:, j], images[:, j], moved, drawn, level)
        for j, (column, labels) in enumerate(zip(columns, original, strict=True))
    ]


def _numbers_between(
    start: np.ndarray, end: np.ndarray, drawn: np.ndarray, level: float
) -> np.ndarray:
    """Return numbers on their way; nothing is between a number and a missing value."""
    between = end if level == 1 else (1 - level) * start + level * end
    jumps = np.isnan(start) != np.isnan(end)
    return np.where(jumps, np.where(drawn, end, start), between)


def _labels_between(
    column: Column,
    labels: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    moved: np.ndarray,
    drawn: np.ndarray,
    level: float,
) -> np.ndarray:
    """Return labels on their way: levels in between, and other labels at random."""
    jumps = (start < 0) | (end < 0) if column.kind == ORDINAL else np.full(len(start), True)
    between = end if level == 1 else np.rint((1 - level) * start + level * end)
    end = np.where(jumps, end, between)
    # An unknown label that stays unknown is kept.
    taken = np.where(jumps, drawn, moved & (level > 0)) & ~((start < 0) & (end < 0))
    labels = labels.copy()
    labels[taken] = objects([*column.values, None])[end[taken].astype(np.intp)]
    return labels
