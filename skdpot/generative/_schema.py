"""Schemas of which only the types of columns are known: what is counted, and what counts show.

The release of the counts is `SchemaReleases`. Proof: :ref:`proof-found-schemas`.
"""

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from skdpot import tables
from skdpot.generative import _records
from skdpot.generative._counts import clear_cells, n_beyond
from skdpot.generative._records import PrivateRecords, TableSpace
from skdpot.tables import LOG, NUMERIC, Column, Table

# The category of labels that few records have.
OTHER = "other"
# Numbers are counted in cells that begin with these, up to the largest integers of a schema: two
# cells for each power of two, with a sign, and one for 0.
_MAGNITUDES = np.append(np.outer(2.0 ** np.arange(-30, 51), [1, 1.5]), 2.0**51)
_ENDS = np.concatenate([-_MAGNITUDES[::-1], [0.0], _MAGNITUDES])
_N_CELLS = len(_ENDS) - 1
# A sum of counts is clear of noise above this number of deviations: of some hundred sums, noise
# alone does that in less than one of a thousand columns.
CLEAR_DEVIATIONS = 5.0
# What holds for all columns of a type, by NumPy's letter. Objects may be numbers, too.
_INTEGERS = {"bounds": [-(2**51), 2**51], "integer": True}
_LABELS = {"categories": [OTHER], "other": OTHER}
_DECLARED: dict[str, dict] = {
    "b": {"categories": [False, True]},
    "i": _INTEGERS,
    "u": _INTEGERS,
    "U": _LABELS,
    "O": _LABELS,
    "f": {"bounds": [-(2.0**51), 2.0**51]},
    "M": {"bounds": ["0001-01-01", "9999-12-31"]},
}


def is_auto(estimator: Any) -> bool:
    """Tell whether the schema of an estimator is to be found."""
    return isinstance(estimator.schema, str) and estimator.schema == "auto"


def open_space(estimator: Any, X: Any) -> TableSpace:
    """Return what holds for all tables with the columns and types of this one, or raise.

    No value is looked at.
    """
    parameters = ("bounds", "classes", "image_shape", "rules", "computed")
    _records.refuse_declared(estimator, "schema='auto'", *parameters)
    # What has no shape, such as a list, has no types.
    has_shape = len(getattr(X, "shape", ())) == 2
    table = Table(X if has_shape else np.empty((0, 1), dtype=object))
    declared = {}
    for place, name in enumerate(tables.checked_names(table)):
        kind, dtype = table.kind(place), table.dtype(place)
        if kind not in _DECLARED or (table.container == "array" and kind in "MUO"):
            raise ValueError(
                "schema='auto' reads what columns may hold from their types: pass a data frame "
                "(X[:0] to a preview) with numbers, truth values, dates and text, or an array of "
                "numbers. Durations become numbers before, and periods dates."
            )
        is_full = kind in "biu" and (dtype is None or isinstance(dtype, np.dtype))
        declared[name] = _DECLARED[kind] | {"missing": not is_full}
    schema = tables.read_schema(declared, estimator.target).typed(table)
    return TableSpace(schema, table.container, False, is_open=True)


def read_open(estimator: Any, X: Any, y: Any, *, reset: bool) -> PrivateRecords:
    """Return the numbers and the labels of each column: private. No value raises."""
    if y is not None:
        raise ValueError("with schema='auto' the target is a column of X: leave out y.")
    space = open_space(estimator, X)
    read = tables.read_columns(X, space.schema, private=True)
    # Only counts features and keeps their names.
    validate_data(estimator, X, skip_check_array=True, reset=reset)
    values: Any = list(map(_numbers_and_labels, space.schema.columns, read))
    return PrivateRecords(space, values, len(read[0]))


def _numbers_and_labels(column: Column, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of a column, NaN for none, and its labels, None for none."""
    numbers, labels = np.full((2, len(values)), None)
    if column.kind == NUMERIC:
        return values, labels
    for i, value in enumerate(values.tolist()):
        # Not of derived types: their own code must not run after the charge.
        if type(value) in (str, bool):
            labels[i] = value
        elif type(value) in (int, float, Decimal):
            # Where labels are found, a number is an undeclared one.
            numbers[i], labels[i] = value, OTHER
    return tables.private_numbers(Table(numbers[:, None]), Column("", NUMERIC, position=0)), labels


def count_column(numbers: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, list]:
    """Return how many values are missing, are numbers in each cell, or are a label; and the labels.

    Cells of whole numbers come first. A record counts once at most.
    """
    are_numbers = ~np.isnan(numbers)
    cells = np.clip(np.searchsorted(_ENDS, numbers, side="right") - 1, 0, _N_CELLS - 1)
    cells += _N_CELLS * (numbers != np.rint(numbers))
    in_cells = np.bincount(cells[are_numbers], minlength=2 * _N_CELLS)
    are_missing = np.array([label is None for label in labels.tolist()], dtype=bool)
    named = Counter(label for label in labels if label not in (None, OTHER, tables.FILL_IN))
    # In an order that tells nothing about that of records.
    found = sorted(named, key=repr)
    n_missing = np.count_nonzero(are_missing & ~are_numbers)
    return np.array([n_missing, *in_cells, *(named[word] for word in found)]), found


# All of the following is made of public values, and of what was released.


def _clear_range(counts: np.ndarray, deviation: float) -> np.ndarray:
    """Return the cells from the first to the last that are clear of noise, with nearby tails."""
    first, last = clear_cells(counts, CLEAR_DEVIATIONS * deviation, (1,))
    # Farther out, noise alone would often seem to be a tail.
    most = 8
    before, after = counts[max(first - most, 0) : first][::-1], counts[last + 1 :][:most]
    first, last = first - n_beyond(before, deviation), last + n_beyond(after, deviation)
    return np.arange(first, last + 1)


def found_column(
    column: Column, counts: np.ndarray, labels: list, size: float, noise: tuple[float, int]
) -> Column:
    """Return what the noisy counts of a column show that it holds, or the column: nothing."""
    deviation, threshold = noise
    n_missing, cells, of_labels = np.split(counts, [1, 1 + 2 * _N_CELLS])
    whole, broken = cells.reshape(2, -1)
    clear = [_clear_range(whole, deviation), _clear_range(broken, deviation)]
    found = np.union1d(*clear).astype(np.int64)
    kept = of_labels >= threshold
    n_labels, in_cells = of_labels[kept].sum(), (whole + broken)[found]
    if len(found) and (column.kind == NUMERIC or n_labels < in_cells.sum()):
        return _numeric(column, found, in_cells, column.integer or not len(clear[1]))
    if column.kind == NUMERIC or column.other is None or not kept.any():
        return column
    values = [label for label, is_kept in zip(labels, kept, strict=True) if is_kept]
    # Others are declared where more are left than noise explains, or perhaps beside a single label.
    noisy = deviation * math.sqrt(2 + len(values))
    if size - n_missing[0] - n_labels <= (3 if len(values) > 1 else 1) * noisy:
        return replace(column, values=tuple(values), other=None)
    return replace(column, values=(*values, OTHER))


def _numeric(column: Column, found: np.ndarray, in_cells: np.ndarray, is_whole: bool) -> Column:
    """Return a column of numbers with bounds around the cells that are clear of noise."""
    low, high, scale = float(_ENDS[found[0]]), float(_ENDS[found[-1] + 1]), column.scale
    in_cells = np.where(_ENDS[found] == 0, 0.0, in_cells)
    upper = np.abs(_ENDS[found]) >= max(-low, high) / 32
    if column.unit is not None:
        # Years have four digits.
        low, high = min(max(low, column.low), column.high - 1), min(high, column.high)
    elif 2 * in_cells[upper].sum() < in_cells.sum():
        # Most numbers but 0 are crowded near it.
        scale = LOG
    elif 0 < 8 * low <= high:
        low = 0.0
    if is_whole:
        # An end is the first number of the next cell.
        low, high = math.ceil(low), max(math.ceil(high) - 1, math.ceil(low) + 1)
    return Column(column.name, NUMERIC, column.missing, low, high, is_whole, scale, column.unit)
