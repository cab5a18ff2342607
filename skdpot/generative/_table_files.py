"""Checks of the arrays of a file that holds the sketch of a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from skdpot.generative._counts import PARITY_SIZES, are_scanned, count_subsets, released_size
from skdpot.generative._file_parts import part_of, with_kinds
from skdpot.generative._table_space import SIZE_EDGES
from skdpot.tables import TableSchema

__all__ = ["STATISTICS_PREFIX", "are_cells", "read_further", "read_model"]

STATISTICS_PREFIX = "statistics."
# The largest noisy count of a valid file.
_LARGEST = 2.0**53
# Arrays of a model in a file, and their types.
_ARRAYS = {
    **dict.fromkeys(("n_cells", "starts", "stops", "classes"), np.int64),
    **dict.fromkeys(("weights", "cells"), np.float64),
}
# How many parities the model of a file has; without it, arrays are empty.
_N_PARITIES = {"n_parities": np.int64}
# Arrays of released statistics in a file, and their types.
_STATISTICS = {
    **dict.fromkeys(("n_cells", "starts", "stops", "groups"), np.int64),
    **dict.fromkeys(("counts", "pairs", "deviations"), np.float64),
}
_PARITY_ARRAYS = {
    **dict.fromkeys(("halves", "largest_parity"), np.int64),
    **dict.fromkeys(("parities", "parity_deviation"), np.float64),
}


def read_model(arrays: Mapping[str, np.ndarray], schema: TableSchema) -> dict[str, np.ndarray]:
    """Return the arrays of a model, or raise."""
    kinds = _ARRAYS | (_N_PARITIES if "n_parities" in arrays else {})
    model = with_kinds(arrays, kinds)
    if not _is_model(schema, **model):
        raise ValueError("the file does not hold a sketch of a table.")
    return model


def _is_model(
    schema: TableSchema,
    n_cells: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    weights: np.ndarray,
    classes: np.ndarray,
    cells: np.ndarray,
    n_parities: np.ndarray | None = None,
) -> bool:
    """Tell whether arrays are a model of a table, from which records can be drawn."""
    if (
        not are_cells(schema, n_cells, starts, stops)
        or weights.ndim != 1
        or weights.shape != classes.shape
        or cells.shape != (len(weights), len(starts))
        or (n_parities is not None and (n_parities.shape != () or n_parities < 1))
    ):
        return False
    column_sums = np.add.reduceat(cells, np.cumsum(n_cells) - n_cells, axis=1)
    return bool(
        ((classes >= 0) & (classes < schema.n_classes)).all()
        and (weights >= 0).all()
        and np.isclose(weights.sum(), 1)
        and (cells >= 0).all()
        and np.allclose(column_sums, 1)
    )


def are_cells(
    schema: TableSchema, n_cells: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> bool:
    """Tell whether arrays are cells of the columns of a table but the target."""
    columns = [schema.columns[j] for j in schema.features]
    # Shapes are checked before entries are read.
    if (
        n_cells.shape != (len(columns),)
        or not columns
        or starts.ndim != 1
        or not ((n_cells > 0) & (n_cells <= len(starts))).all()
        or not starts.shape == stops.shape == (n_cells.sum(),)
    ):
        return False
    # The cells of a column have all its units, in order.
    lasts = np.cumsum(n_cells) - 1
    expected = np.append(0, stops[:-1])
    expected[lasts[:-1] + 1] = 0
    n_units = [column.n_units for column in columns]
    return bool(
        (starts == expected).all() and (starts < stops).all() and (stops[lasts] == n_units).all()
    )


def read_further(
    arrays: Mapping[str, np.ndarray], n_others: int, counted: TableSchema, n_records: Any
) -> dict[str, Any]:
    """Return the released statistics of a file, of counted columns.

    `n_others` is the number of arrays of the model.
    """
    statistics = part_of(arrays, STATISTICS_PREFIX)
    if len(arrays) != n_others + len(statistics):
        raise ValueError("the file does not hold a sketch of a table.")
    if not statistics:
        return {}
    kinds = _STATISTICS | (_PARITY_ARRAYS if "parities" in statistics else {})
    kinds |= {"sizes": np.float64} if "sizes" in statistics else {}
    statistics |= with_kinds(statistics, kinds)
    if (
        statistics.keys() != kinds.keys()
        or not _are_statistics(counted, statistics)
        or n_records != released_size(statistics)
    ):
        raise ValueError("the file lacks the release of a table.")
    return {"statistics": statistics}


def _are_statistics(schema: TableSchema, statistics: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are released statistics of a table, to which a model can be fitted."""
    n_cells, starts, stops, groups, counts, pairs, deviations = (
        statistics[name] for name in _STATISTICS
    )
    if not (
        are_cells(schema, n_cells, starts, stops)
        and counts.shape == (len(starts), schema.n_classes)
        and groups.shape == starts.shape
        and all((np.abs(array) <= _LARGEST).all() for array in statistics.values())
    ):
        return False
    column_groups = np.split(groups, np.cumsum(n_cells)[:-1])
    if any(set(column) != set(range(len(set(column)))) for column in column_groups):
        return False
    sizes = [int(column.max()) + 1 for column in column_groups]
    n_pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    return (
        pairs.shape == (n_pairs * schema.n_classes,)
        and deviations.shape in ((2,), (4,))
        and bool((deviations >= 0).all() and (deviations[2:] > 0).all())
        and ("parities" not in statistics or _are_parities(schema, sum(sizes), statistics))
        and ("sizes" not in statistics or statistics["sizes"].shape == (len(SIZE_EDGES) - 1,))
    )


def _are_parities(schema: TableSchema, n_groups: int, statistics: Mapping[str, np.ndarray]) -> bool:
    """Tell whether arrays are the parities of a table with `n_groups` groups of cells."""
    halves, largest, parities, deviation = (statistics[name] for name in _PARITY_ARRAYS)
    n_columns = len(schema.features)
    if not (
        set(halves.tolist()) <= {0, 1}
        and halves.shape == (n_groups,)
        and largest.shape == deviation.shape == (1,)
        and deviation[0] >= 0
        and are_scanned(n_columns)
        and largest[0] in PARITY_SIZES[: n_columns - 2]
    ):
        return False
    n_subsets = count_subsets(n_columns, int(largest[0]))
    return parities.shape == (n_subsets, schema.n_classes)
