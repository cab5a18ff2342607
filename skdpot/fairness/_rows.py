"""Rows of numbers, levels and categories: their points, their random numbers, and their images."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpot.releases import UnitLayout
from skdpot.tables import NOMINAL, NUMERIC, ORDINAL, Column, objects

# The constants of the splitmix64 generator.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
# Number of draws that are reserved for each column.
DRAWS_PER_COLUMN = 1 << 20
# Numbers of draws, beyond those of the columns.
IMAGE_DRAW, BLEND_DRAW = 2**62, 2**62 + 1
# Numbers of the draws of the first column, of blurred rows and of blurred images.
BLUR_DRAW, BLURRED_IMAGE_DRAW = 2**62 + 3, 2**62 + 2**61
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
        numbers, blocks = iter(raw.T), iter(enumerate(self.layout.block_slices))
        for place, column in enumerate(self.columns):
            if column.kind == NUMERIC:
                codes[:, place] = next(numbers)
            elif column.kind == ORDINAL:
                codes[:, place] = np.clip(np.rint(next(numbers)), 0, len(column.values) - 1)
            else:
                j, block = next(blocks)
                shares = np.maximum(raw[:, block], 0.0)
                codes[:, place] = shares.argmax(axis=1)
                if uniforms is not None:
                    ends = shares.cumsum(axis=1)
                    drawn = (ends <= (uniforms[:, j] * ends[:, -1])[:, None]).sum(axis=1)
                    codes[:, place] = np.minimum(drawn, shares.shape[1] - 1)
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
    drawn, moved_columns = moved & (uniforms < level), []
    for column, labels, start, end in zip(columns, original, codes.T, images.T, strict=True):
        between = end if level == 1 else (1 - level) * start + level * end
        if column.kind == NUMERIC:
            # Nothing is between a number and a missing value.
            jumps = np.isnan(start) != np.isnan(end)
            moved_columns.append(np.where(jumps, np.where(drawn, end, start), between))
            continue
        # Levels stop in between, and other labels jump at random.
        jumps = (start < 0) | (end < 0) | (column.kind != ORDINAL)
        end = np.where(jumps, end, np.rint(between))
        # An unknown label that stays unknown is kept.
        taken = np.where(jumps, drawn, moved & (level > 0)) & ~((start < 0) & (end < 0))
        labels = labels.copy()
        labels[taken] = objects([*column.values, None])[end[taken].astype(np.intp)]
        moved_columns.append(labels)
    return moved_columns


def row_keys(seed: int, codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return a key of 64 bits for every row, from a seed, its values and its group.

    Equal rows are numbered. The first has the same key in every table, and the others have further
    keys, so rows with equal values are drawn separately.
    """
    # Adding 0.0 turns -0.0 into 0.0.
    values = np.column_stack([np.nan_to_num(codes, nan=np.pi) + 0.0, groups])
    keys = np.full(len(values), seed, dtype=np.uint64)
    for column in values.T:
        keys = mixed(keys ^ np.ascontiguousarray(column).view(np.uint64))
    return mixed(keys ^ _occurrences(keys))


class Draws:
    """The random numbers of rows: a row's key and the number of a draw determine each."""

    def __init__(self, keys: np.ndarray) -> None:
        self._mixed = mixed(keys)

    def uniforms(self, draw: int) -> np.ndarray:
        """Return a number in the open interval (0, 1) for every row."""
        with np.errstate(over="ignore"):
            bits = mixed(self._mixed + _STEP * np.uint64(draw + 1))
        return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def exponentials(self, draws: range) -> np.ndarray:
        """Return standard exponential random numbers, one row per draw."""
        return -np.log(np.stack([self.uniforms(draw) for draw in draws]))


def uniforms(keys: np.ndarray, draw: int) -> np.ndarray:
    """Return a number in the open interval (0, 1) for every key, for this draw."""
    return Draws(keys).uniforms(draw)


def mixed(bits: np.ndarray) -> np.ndarray:
    """Return well-mixed bits: a permutation of the 64-bit numbers that keeps 0."""
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MIX[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MIX[1]
    return bits ^ (bits >> _SHIFTS[2])


def _occurrences(keys: np.ndarray) -> np.ndarray:
    """Return how many equal keys come before each key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = np.arange(len(keys))
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    counts = np.empty(len(keys), dtype=np.uint64)
    counts[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return counts
