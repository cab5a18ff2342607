"""Values of columns: numbers, labels and missing values, and rows as codes."""

import math
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import compress
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse

from skdpot.privacy.foreign import result_of
from skdpot.tables._column import NOMINAL, NUMERIC, ORDINAL, Column
from skdpot.tables._containers import LARGEST_EXACT, Table, kind_of, library_of, rows_as_array
from skdpot.tables._dates import numbers_of_dates
from skdpot.tables._declarations import is_missing, label_codes, objects

# Longer integers cannot be written.
_LARGEST_WRITTEN = 1e300
_DATES = "dates: write them in ISO 8601, as 2024-12-31, or read them by pandas.to_datetime"
# What to do about missing numbers.
_IN_OPEN_ROWS = (
    "Impute it before, in the same pipeline; or keep it with missing='category', for which missing "
    "numbers and levels need the conditional method."
)
_IN_PRIVATE_ROWS = (
    "With epsilon, leave out the rows that have missing numbers, or fill in a number that is "
    "public. Do not impute from private rows: what an imputer learns of them has no protection."
)


def numbers_in(table: Table, place: Any, column: Column) -> tuple[np.ndarray, list[str]]:
    """Return a column as doubles, and the problem of values that are no numbers, in a list.

    Missing values, and those that are no numbers, are NaN. Dates and durations become numbers if
    they are declared.
    """
    if column.unit is not None:
        dates, valid = numbers_of_dates(table.series(place), column.unit, column.duration)
        wanted = "durations" if column.duration else _DATES
        wrong = f"column {column.name!r} is declared to hold {wanted}; it has others, or two kinds"
        return dates, [] if valid else [wrong]
    values = table.column(place)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64), []
    numbers = [_number(value) for value in values.tolist()]
    wrong = (
        f"column {column.name!r} is declared numeric, and has values that are not numbers. Convert "
        "text to numbers first, as by pandas.to_numeric; dates have dates as bounds, in the schema"
    )
    found = np.array([math.nan if number is None else number for number in numbers], float)
    return found, [wrong] if None in numbers else []


def as_numbers(X: Any) -> Any:
    """Return private records as numbers: NaN for a value that is none. No value raises.

    X is returned as it is if its types say that it holds numbers, or no numbers at all. A type of
    text raises.

    Examples
    --------
    >>> from skdpot.tables import as_numbers
    >>> as_numbers([[1, "2.5"], [None, "two"]])
    array([[1. , 2.5],
           [nan, nan]])
    """
    table = Table(X) if library_of(type(X)) != "array" else None
    if table is None:
        given = X if hasattr(X, "dtype") or sparse.issparse(X) else rows_as_array(X, object)
        kinds = {getattr(given.dtype, "kind", "f")}
    else:
        kinds = {table.kind(place) for place in range(len(table.names))}
    if kinds & {"U", "S"}:
        raise ValueError("could not convert a type of text")
    if table is not None and "O" in kinds:
        return np.column_stack([_floats(table.column(j)) for j in range(len(table.names))])
    return _floats(given) if kinds == {"O"} and len(given.shape) == 2 else X


def _floats(values: np.ndarray) -> np.ndarray:
    """Return values as doubles, NaN for those that are no numbers."""
    if values.dtype != object:
        return values.astype(np.float64)
    numbers = [_number_in_text(value) for value in values.ravel().tolist()]
    found = [math.nan if number is None else number for number in numbers]
    return np.array(found, dtype=np.float64).reshape(values.shape)


def _number_in_text(value: Any) -> float | None:
    with suppress(Exception):
        return float(value) if isinstance(value, str) else _number(value)
    return None


def finite_numbers(table: Table, column: Column, missing: str) -> np.ndarray:
    """Return a column as finite doubles, also read from text, or raise; no value is quoted.

    `missing` is as for `column_codes`.
    """
    may_miss = missing == "kept"
    if table.holds_dates(column.position):
        raise TypeError(
            f"column {column.name!r} of X is not numeric, it holds dates. Convert them first, for "
            "example to days since a fixed day."
        )
    values = table.column(column.position)
    if may_miss and values.dtype == object:
        values = objects([math.nan if is_missing(value) else value for value in values])
    try:
        numbers = values.astype(np.float64)
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        finite = not any(is_missing(value) for value in values.tolist())
    else:
        finite = not (np.isinf(numbers) | (np.isnan(numbers) & (not may_miss))).any()
        if finite:
            return numbers
    # Raised outside of the handler, so that the original message is not their context.
    if not finite and may_miss:
        raise ValueError(
            f"Input X contains infinity, in column {column.name!r}, which is not a missing value: "
            "make it NaN, or a number."
        )
    if not finite:
        advice = _IN_PRIVATE_ROWS
        if missing != "none":
            advice = f"{_IN_OPEN_ROWS} {_columns_with_missing(table)}"
        raise ValueError(f"Input X contains NaN or infinity, in column {column.name!r}. {advice}")
    raise kind(
        f"column {column.name!r} of X holds what cannot be read as a number: the argument must be "
        "a string or a number. Name columns of categories by categorical_features, or with epsilon "
        "by categories."
    )


def labels_of(table: Table, column: Column, missing: str) -> np.ndarray:
    """Return a column of labels as objects, None for a missing one, or raise.

    `missing` is ``"error"``, which refuses missing labels; ``"category"``, which makes them a
    category, and refuses them for ordered labels; or ``"kept"`` or ``"none"``, with which no value
    raises.
    """
    labels = table.labels(column.position)
    if missing in ("kept", "none") or not any(label is None for label in labels):
        return labels
    if missing == "category" and column.kind == ORDINAL:
        raise ValueError(
            f"Input X contains NaN, in column {column.name!r} of levels, whose order has no place "
            "for missing values. Impute it, or declare the column to be nominal."
        )
    if missing == "error":
        raise ValueError(
            f"Input X contains NaN, in column {column.name!r} of categories. Impute it, or, if it "
            "is nominal, make it a category of its own with missing='category'. "
            f"{_columns_with_missing(table)}"
        )
    return labels


def _columns_with_missing(table: Table) -> str:
    """Return a sentence that names all columns with missing values, for errors about open rows."""
    values = [table.column(place).tolist() for place in range(len(table.names))]
    missing = [any(map(is_missing, column)) for column in values]
    return f"Columns with missing values: {list(compress(table.names, missing))}."


def column_codes(table: Table, column: Column, missing: str) -> np.ndarray:
    """Return numbers, or positions of labels, -1 for an unknown label.

    `missing` is as for `labels_of`; ``"kept"`` keeps missing numbers as NaN. Errors quote no value.
    """
    if column.kind == NUMERIC:
        return finite_numbers(table, column, missing)
    labels = labels_of(table, column, missing)
    codes = column.codes(labels)
    if missing == "none" and (problems := labels_of_other_types(column, labels, codes)):
        raise ValueError(f"{problems[0]}.")
    return np.maximum(codes, -1).astype(np.float64)


def labels_of_other_types(column: Column, labels: np.ndarray, codes: np.ndarray) -> list[str]:
    """Return the problem of unknown labels that are declared ones of another type.

    A single text makes text of all numbers that pandas reads from a file: one record would make
    the labels of all others unknown. `codes` are those of `Column.codes`.
    """
    unknown = labels[codes == -2] if column.kind != NUMERIC else ()
    found = (result_of(partial(_is_of_other_type, value, column), False) for value in unknown)
    return mistyped(column) if any(found) else []


def mistyped(column: Column) -> list[str]:
    """Return the problem of a column of labels that has another type than those declared."""
    return [
        f"column {column.name!r} has text where numbers or truth values are declared, or the other "
        "way round (the number 1 is not the text '1'): convert the column, as none of it would be "
        "a declared label"
    ]


def has_other_labels(declared: Any, kind: str) -> bool:
    """Tell whether a type of this kind holds none of the declared labels."""
    are_text = [isinstance(label, str) for label in declared]
    return (kind in "biuf" and all(are_text)) or (kind in "US" and not any(are_text))


def refuse_other_labels(labels: Any, declared: Any, name: str) -> None:
    """Raise if private labels have a type that none of the declared ones has; no value raises."""
    if has_other_labels(declared, kind_of(labels)):
        raise ValueError(f"{mistyped(Column(name, NOMINAL))[0]}.")


def declared_codes(labels: np.ndarray, number: dict[Any, int], name: str) -> np.ndarray:
    """Return the number of each private label, -1 for an undeclared one.

    Raise if an undeclared label is a declared one that is written as another type.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import declared_codes
    >>> labels = np.array(["b", "a", "c"], dtype=object)
    >>> declared_codes(labels, {"a": 0, "b": 1}, "y").tolist()
    [1, 0, -1]
    """
    codes = label_codes(labels, number)
    column = Column(name, NOMINAL, values=tuple(number))
    if problems := labels_of_other_types(column, labels, np.where(codes < 0, -2, codes)):
        raise ValueError(f"{problems[0]}.")
    return codes


def _is_of_other_type(value: Any, column: Column) -> bool:
    """Tell whether a value that is no label is written as one of another type."""
    if isinstance(value, str):
        declared = [label for label in column.values if not isinstance(label, str)]
        with suppress(ValueError):
            return float(value) in declared
        return value in map(str, declared)
    # Longer integers are no labels, and cannot be written.
    if not isinstance(value, int | float) or abs(value) >= _LARGEST_WRITTEN:
        return False
    whole = abs(value) < LARGEST_EXACT and value == int(value)
    return str(value) in column.number or (whole and str(int(value)) in column.number)


def read_codes(table: Table, columns: list[Column], missing: str) -> np.ndarray:
    """Return the codes of all columns, one row per row of data."""
    return np.column_stack([column_codes(table, column, missing) for column in columns])


def label_order(label: Any) -> tuple[int, str, Any]:
    """Return a key that sorts labels of all types together."""
    if isinstance(label, Real):
        return 0, "", label
    if isinstance(label, str):
        return 1, "", label
    if isinstance(label, tuple):
        return 3, "", tuple(label_order(part) for part in label)
    return 2, type(label).__name__, str(label)


def _number(value: Any) -> float | None:
    """Return a value as a double, NaN for a missing one, and None if it is no number."""
    if is_missing(value):
        return math.nan
    try:
        # Databases return decimal numbers.
        return float(value) if isinstance(value, Real | Decimal) else None
    except OverflowError:
        # An integer beyond all doubles is beyond all bounds, too.
        return math.inf if value > 0 else -math.inf
    except Exception:
        # A signalling NaN, or an object that raises.
        return None


def private_codes(table: Table, column: Column) -> np.ndarray:
    """Return the numbers of a column, NaN for a missing one, or the positions of its labels.

    No value raises. An undeclared or missing label is -1, and so is one of another type. A number
    beyond all doubles is infinite. Text is read as a number where it is one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import NUMERIC, Column, Table, private_codes
    >>> cells = np.array([[1], ["2.5"], ["two"], [None], [-(10**400)]], dtype=object)
    >>> private_codes(Table(cells), Column("x", NUMERIC, position=0)).tolist()
    [1.0, 2.5, nan, nan, -inf]
    """
    if column.kind == NUMERIC:
        return _floats(table.column(column.position))
    return np.maximum(column.codes(table.labels(column.position)), -1).astype(np.float64)
