"""Types of columns: their names, the declarations that they can hold, and their values.

Types have the names of pandas; dates that are objects are "date" or "text".
"""

import datetime
import re
from typing import Any

import numpy as np

from skdpot.tables._column import NUMERIC, ORDINAL, Column
from skdpot.tables._dates import DATE, DATETIME, TEXT, TIMEDELTA, date_objects

_INTEGERS = re.compile(r"[uU]?[iI]nt(8|16|32|64)")
_FLOATS = re.compile(r"[fF]loat(32|64)")
_DATES = re.compile(r"(datetime|timedelta)64\[(s|ms|us|ns)(, [\w/+:-]+)?\]")
_OF_LABELS = ("category", "string", "bool", "boolean", "object")
# Types of polars, by the beginning of their names.
_OF_POLARS = {"Categorical": "category", "Enum": "category", "String": "string"}


def is_type(name: Any) -> bool:
    """Tell whether columns may be declared to have the type with this name."""
    if not isinstance(name, str):
        return False
    patterns = (_INTEGERS, _FLOATS, _DATES)
    return name in (*_OF_LABELS, DATE, TEXT) or any(one.fullmatch(name) for one in patterns)


def holds_integers(name: Any) -> bool:
    """Tell whether a type, or None, is a type of integers."""
    return name is not None and bool(_INTEGERS.fullmatch(name))


def default_type(ends: list) -> str | None:
    """Return the type of dates with these declared bounds."""
    if all(isinstance(end, str) for end in ends):
        return TEXT
    kinds = {type(end) for end in ends}
    return DATE if kinds == {datetime.date} else None


def type_in_frame(dtype: Any, column: Column) -> str | None:
    """Return the name of the type that this column has in drawn frames; None if none is named.

    A column takes how text is stored. Types of numbers, dates and truth values follow from the
    declaration, since a single value can change them. A missing value turns integers into doubles,
    as does the label 1.0. A large number makes longer integers, and 1 turns truth values into
    objects. pandas leaves all dates of a file as text if one of them is written in another way,
    such as with a time or another zone. An undeclared label changes the type where such labels
    count as missing; then only the type of categories is taken, which the maker of the frame asked
    for.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import read_schema
    >>> from skdpot.tables._types import type_in_frame
    >>> age, day = read_schema({"age": range(18, 300), "day": ("2020-01-01", "2024-12-31")}).columns
    >>> [type_in_frame(np.dtype(name), of) for name, of in (("int16", age), ("O", day))]
    [None, 'datetime64[us]']
    """
    if column.unit is not None:
        return f"{TIMEDELTA if column.duration else DATETIME}64[us]"
    name = str(dtype)
    if hasattr(dtype, "is_temporal"):
        name = _name_of_polars(name)
    elif hasattr(dtype, "ordered"):
        name = "category"
    return name if column.kind != NUMERIC and _holds_labels(name, column) else None


def typed_values(container: str, column: Column, values: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return values of `Column.presented`, and the library's type for them."""
    if column.kind == NUMERIC and column.unit is not None:
        return _typed_dates(container, column, values)
    dtype: Any = column.dtype
    if container == "array":
        return values, None
    if dtype is None:
        return values, _nullable_type(column)
    return values, Categories(column) if dtype == "category" else dtype


def _nullable_type(column: Column) -> str | None:
    """Return the type of integers and truth values that may be missing, None for others."""
    if column.may_lack_integers:
        return "Int64"
    are_flags = bool(column.values) and all(isinstance(label, bool) for label in column.values)
    return "boolean" if column.missing and are_flags else None


class Categories:
    """The type of a column's declared labels, made once the library is known."""

    def __init__(self, column: Column) -> None:
        self._labels = list(column.values)
        self._ordered = column.kind == ORDINAL

    def in_library(self, library: Any) -> Any:
        """Return the type, None if the library has none for such labels."""
        if hasattr(library, "CategoricalDtype"):
            return library.CategoricalDtype(self._labels, ordered=self._ordered)
        text = all(isinstance(label, str) for label in self._labels)
        return library.Enum(self._labels) if text else None


def _typed_dates(container: str, column: Column, dates: np.ndarray) -> tuple[np.ndarray, Any]:
    name = column.dtype
    if name in (DATE, TEXT):
        if container == "polars" and name == DATE:
            return dates.astype("M8[D]"), None
        return date_objects(dates, name), None
    if container == "array":
        return date_objects(dates, TIMEDELTA if column.duration else DATETIME), None
    return dates.astype(f"{dates.dtype.kind}8[us]"), name


def _name_of_polars(name: str) -> str:
    for beginning, pandas_name in _OF_POLARS.items():
        if name == beginning or name.startswith(f"{beginning}("):
            return pandas_name
    return name.lower()


def _holds_labels(name: str, column: Column) -> bool:
    """Tell whether labels have a type that no single value can have caused."""
    text = all(isinstance(label, str) for label in column.values)
    return name == "category" or (name == "string" and text and not column.missing)
