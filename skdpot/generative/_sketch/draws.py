"""Random entries of distributions, and random units of cells."""

import numpy as np

__all__ = ["draw_entries", "draw_units", "even_uniforms", "independent_uniforms"]

_LARGEST_UNIFORM = 1 - 2.0**-30


def independent_uniforms(rows, rng):
    """Return independent numbers from 0 to 1, one for each record."""
    return rng.uniform(size=len(rows))


def even_uniforms(rows, rng):
    """Return numbers from 0 to 1, evenly spread over the records of each row, in random order."""
    order = rng.permutation(len(rows))
    order = order[np.argsort(rows[order], kind="stable")]
    sizes = np.bincount(rows)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    offsets = np.repeat(rng.uniform(size=len(sizes)), sizes)
    uniforms = np.empty(len(rows))
    uniforms[order] = (np.arange(len(rows)) - starts + offsets) / np.repeat(sizes, sizes)
    return uniforms


def draw_entries(weights, rows, rng, uniforms=independent_uniforms):
    """Return an entry for each record, with a probability proportional to those of its row."""
    cumulated = np.cumsum(weights, axis=1)
    totals = cumulated[:, -1:]
    # One search for all: each row is moved to an interval of its own.
    ladder = cumulated / np.where(totals > 0, totals, 1.0) + 2 * np.arange(len(weights))[:, None]
    ladder[:, -1] = 2 * np.arange(len(weights)) + 2
    # Rounding moves no number to the next integer, where entries of no weight are.
    places = np.minimum(uniforms(rows, rng), _LARGEST_UNIFORM) + 2 * rows
    positions = np.searchsorted(ladder.ravel(), places, side="right")
    return positions - rows * weights.shape[1]


def draw_units(starts, stops, intervals, rng):
    """Return units that are evenly spread over cells, and within the intervals."""
    if intervals is None:
        return starts + np.floor(rng.uniform(size=len(starts)) * (stops - starts)).astype(np.int64)
    firsts, lasts = np.array(intervals).T
    low = np.maximum(starts[:, None], firsts)
    sizes = np.maximum(np.minimum(stops[:, None], lasts) - low, 0)
    passed = np.cumsum(sizes, axis=1)
    position = np.floor(rng.uniform(size=len(starts)) * passed[:, -1]).astype(np.int64)
    piece = (position[:, None] >= passed).sum(axis=1)
    row = np.arange(len(starts))
    return low[row, piece] + position - (passed - sizes)[row, piece]
