"""Random numbers of rows, and rows that are moved part of the way to their images."""

from typing import Any

import numpy as np

from skdpot.tables import NUMERIC, ORDINAL, Column, objects

# The constants of the splitmix64 generator.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
# Numbers of draws, beyond those of the columns.
IMAGE_DRAW, BLEND_DRAW = 2**62, 2**62 + 1
# Numbers of the draws of the first column, of blurred rows and of blurred images.
BLUR_DRAW, BLURRED_IMAGE_DRAW = 2**62 + 3, 2**62 + 2**61


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
    # Missing numbers may have any of many bit patterns, and get the same one.
    values = np.column_stack([np.nan_to_num(codes, nan=np.pi) + 0.0, groups])
    keys = np.full(len(values), seed, dtype=np.uint64)
    for column in values.T:
        keys = mixed(keys ^ np.ascontiguousarray(column).view(np.uint64))
    return mixed(keys ^ _occurrences(keys))


def uniforms(keys: np.ndarray, draw: int) -> np.ndarray:
    """Return a number in the open interval (0, 1) for every key, for this draw."""
    with np.errstate(over="ignore"):
        bits = mixed(mixed(keys) + _STEP * np.uint64(draw + 1))
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def mixed(bits: np.ndarray) -> np.ndarray:
    """Return well-mixed bits: a permutation of the 64-bit numbers that keeps 0."""
    # Each step can be undone, so that different keys stay different.
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MIX[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MIX[1]
    return bits ^ (bits >> _SHIFTS[2])


def _occurrences(keys: np.ndarray) -> np.ndarray:
    """Return how many equal keys come before each key."""
    # Stable, so that equal keys stay in the order of their rows.
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    place = np.arange(len(keys))
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    counts = np.empty(len(keys), dtype=np.uint64)
    counts[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return counts
