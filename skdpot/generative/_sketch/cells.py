"""The cells of columns: ranges of units, narrow where there are many records."""

import math
from collections.abc import Sequence

import numpy as np

from skdpot.tables import LOG, NUMERIC, Column, TableSchema

__all__ = [
    "CUT_DEVIATIONS",
    "FIRST_CELLS",
    "MOST_CELLS",
    "ROUNDS",
    "WIDENING",
    "cells_of_units",
    "clear_cells",
    "cut_cells",
    "empty_tails",
    "first_edges",
    "records_hidden_by",
    "refined_columns",
    "widened_cells",
]

# A numeric column with more than MOST_CELLS units begins with this number of cells. They are cut in
# three rounds.
FIRST_CELLS = 64
MOST_CELLS = 128
ROUNDS = ("cells 1", "cells 2", "cells 3")
# With fewer records in a cell on average than this number of deviations of the noise, cells are
# made wider by this factor.
_HIDDEN_DEVIATIONS, WIDENING = 0.5, 4
# A cell is cut if its count is above this number of deviations, and above the smaller share of all
# records. It is also so large that the noise of its final count is below this part of the sampling
# error, unless it has more than the larger share.
CUT_DEVIATIONS = 4.0
_NOISE_TO_SAMPLING_ERROR = 0.7
_CUT_SHARES = 0.003, 0.01
_MOST_PARTS = 16
# Adjacent cells of a tail are clearly not empty if their sum exceeds this number of deviations.
_TAIL_DEVIATIONS = 4.0
_TAIL_WIDTHS = (1, 2, 4, 8, 16)
# The same for further cells on a linear scale.
_BEYOND_DEVIATIONS = 3.0


def refined_columns(schema: TableSchema) -> list[int]:
    """Return the columns whose units are too many to be counted one by one.

    Examples
    --------
    >>> from skdpot.generative._sketch.cells import refined_columns
    >>> from skdpot.tables import read_schema
    >>> refined_columns(read_schema({"sex": ["F", "M"], "wage": (0.0, 100.0)}))
    [1]
    """
    return [j for j in schema.features if _is_refined(schema.columns[j])]


def _is_refined(column):
    return column.kind == "numeric" and column.n_known > MOST_CELLS


def first_edges(column: Column) -> np.ndarray:
    """Return the edges of the first cells of a column.

    Each unit has a cell. A column with many units has even cells, and one for each of its bounds.

    Examples
    --------
    >>> from skdpot.generative._sketch.cells import first_edges
    >>> from skdpot.tables import read_schema
    >>> first_edges(read_schema({"sex": ["F", "M"]}).columns[0])
    array([0, 1, 2])
    """
    n_known, n_units = column.n_known, column.n_units
    edges = column.even_edges(FIRST_CELLS) if _is_refined(column) else np.arange(n_known + 1)
    # A missing value has a cell of its own.
    return np.append(edges, n_units) if n_units > n_known else edges


def cells_of_units(units, edges):
    """Return the cell of each unit. A list of all units is faster if it is not too long."""
    if edges[-1] > len(units):
        return (np.searchsorted(edges, units, side="right") - 1).astype(np.int32)
    return np.repeat(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges))[units]


def cut_cells(
    edges: np.ndarray, counts: np.ndarray, deviation: float, final_deviation: float
) -> np.ndarray:
    """Return the edges of cells, after those with many records were cut.

    The deviations are those of the noise of these counts, and of the counts that will be released
    of the cells that are returned.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.cells import cut_cells
    >>> cut_cells(np.array([0, 10, 20]), np.array([3.0, 30.0]), 5.0, 2.0)
    array([ 0, 10, 13, 16, 20])
    """
    smallest, largest = (share * counts.sum() for share in _CUT_SHARES)
    precise = min((final_deviation / _NOISE_TO_SAMPLING_ERROR) ** 2, largest)
    least = max(CUT_DEVIATIONS * deviation, smallest, precise, 1.0)
    parts = np.clip(np.ceil(2 * counts / least), 2, _MOST_PARTS).astype(np.int64)
    parts = np.where(counts > least, np.minimum(parts, np.diff(edges)), 1)
    cut = [
        start + (stop - start) * np.arange(n) // n
        for start, stop, n in zip(edges[:-1], edges[1:], parts, strict=True)
    ]
    return np.append(np.concatenate(cut), edges[-1])


def records_hidden_by(deviation):
    """Return the number of records below which noise hides those in the first cells."""
    return _HIDDEN_DEVIATIONS * deviation * FIRST_CELLS


def widened_cells(edges, counts):
    """Return the edges and counts of wider cells; the cells at both ends are kept."""
    firsts = np.unique([0, *range(1, len(counts) - 2, WIDENING), len(counts) - 2, len(counts) - 1])
    return np.append(edges[firsts], edges[-1]), np.add.reduceat(counts, firsts)


def empty_tails(
    counts: Sequence[np.ndarray],
    starts: Sequence[np.ndarray],
    schema: TableSchema,
    deviations: Sequence[float],
) -> list[np.ndarray]:
    """Tell which cells of numbers lie far beyond all cells that clearly have records.

    They hold only noise. As they are far out, it would change means and distances a lot.

    Parameters
    ----------
    counts, starts : sequence of ndarray of shape (n_cells,)
        Released counts in all classes together, of all columns but the target; and the first unit
        of each cell.
    schema : TableSchema
        The declaration of the table. The lower end of a logarithmic scale from 0 is kept,
        because small values change little.
    deviations : sequence of float
        Of the noise of a count of each column.

    Returns
    -------
    list of ndarray of shape (n_cells,)
        True for cells beyond the last one that clearly has records, alone or with its neighbours.
        On a linear scale, they are also farther away than such cells are from each other.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.cells import empty_tails
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"wage": {"bounds": (1, 1e6), "scale": "log"}})
    >>> empty_tails([np.array([90.0, -2.0, 9.0, 3.0, -1.0])], [np.arange(5)], schema, [2.0])
    [array([False, False, False, False,  True])]
    """
    empty = []
    for j, totals, start, deviation in zip(
        schema.features, counts, starts, deviations, strict=True
    ):
        column, tail = schema.columns[j], np.zeros(len(totals), dtype=bool)
        numbers = totals[: len(totals) - column.missing]
        is_log = column.scale == LOG
        widths = _TAIL_WIDTHS if is_log else _TAIL_WIDTHS[:1]
        first, last = clear_cells(numbers, _TAIL_DEVIATIONS * deviation, widths)
        if column.kind == NUMERIC and first <= last:
            margin = 0
            stop = np.append(start[1:], column.n_known)
            if not is_log:
                first -= _n_beyond(numbers[:first][::-1], deviation)
                last += _n_beyond(numbers[last + 1 :], deviation)
                margin = stop[last] - start[first]
            tail[: len(numbers)] = start[: len(numbers)] >= stop[last] + margin
            if not is_log or column.low < 0:
                tail |= stop <= start[first] - margin
        empty.append(tail)
    return empty


def _n_beyond(totals, deviation):
    """Return how many cells, from the first on, have clearly more than noise together.

    The number with the most deviations above noise is chosen, and then again beyond these cells.
    """
    n_cells = 0
    while n_cells < len(totals):
        rest = totals[n_cells:]
        above = np.cumsum(rest) / np.sqrt(np.arange(1, len(rest) + 1))
        best = int(np.argmax(above))
        if above[best] <= _BEYOND_DEVIATIONS * deviation:
            break
        n_cells += best + 1
    return n_cells


def clear_cells(totals, noise, widths):
    """Return the first and the last cell in the middle of adjacent ones that are clearly not empty.

    A real tail has few records in each of many cells, so sums of several cells are used as well.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.cells import clear_cells
    >>> clear_cells(np.array([1.0, 9.0, 2.0, 4.0, 4.0, -3.0]), 5.0, (1, 2))
    (0, 4)
    """
    first, last = len(totals), -1
    for width in widths:
        if width <= len(totals):
            sums = np.convolve(totals, np.ones(width), "valid")
            clear = np.flatnonzero(sums > noise * math.sqrt(width))
            first = min([first, *(clear[:1] + (width - 1) // 2).tolist()])
            last = max([last, *(clear[-1:] + width // 2).tolist()])
    return first, last
