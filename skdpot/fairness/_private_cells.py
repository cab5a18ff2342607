"""Private rows of a fit, read cell by cell: no value raises, warns, or changes how others are read.

Types, names and shapes are public, and are all that a fit may refuse for nothing. A value that is
not declared is missing, and a row without a place is counted nowhere.
"""

import math
from collections.abc import Iterable
from decimal import Decimal
from numbers import Number, Real
from typing import Any

import numpy as np

from skdpot.tables import NUMERIC, Column, Table, objects

# What of rows is not protected by a private fit, besides what is said of single estimators.
PUBLIC_OF_ROWS = ("the number of rows", "the names and types of columns", "the time of the fit")
# Names of the types of text of polars.
_TEXTS = ("String", "Categorical", "Enum")


def in_cells(X: Any) -> Any:
    """Return rows in a list as an array of objects, whatever their values; others as they are.

    Lists have no type: that of `np.asarray` would depend on single values.

    Examples
    --------
    >>> from skdpot.fairness._private_cells import in_cells
    >>> in_cells([[1, 2.5], [["a"], None]])
    array([[1, 2.5],
           [list(['a']), None]], dtype=object)
    """
    rows = X if isinstance(X, list | tuple) else []
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in rows}
    if len(widths) != 1 or -1 in widths:
        return X
    return objects([cell for row in rows for cell in row]).reshape(len(rows), *widths)


def private_codes(table: Table, column: Column) -> np.ndarray:
    """Return the numbers of a column, NaN for a missing one, or the positions of its labels.

    An undeclared or missing label is -1. A number beyond all doubles is infinite. Text is read as a
    number where it is one.

    Examples
    --------
    >>> from skdpot.fairness._private_cells import in_cells, private_codes
    >>> from skdpot.tables import NUMERIC, Column, Table
    >>> table = Table(in_cells([[1], ["2.5"], ["two"], [None], [[3]], [-(10**400)]]))
    >>> private_codes(table, Column("x", NUMERIC, position=0)).tolist()
    [1.0, 2.5, nan, nan, nan, -inf]
    """
    if column.kind != NUMERIC:
        return np.maximum(column.codes(table.labels(column.position)), -1).astype(np.float64)
    values = table.column(column.position)
    if values.dtype != object:
        return values.astype(np.float64)
    return np.array([_number(value) for value in values.tolist()], dtype=np.float64)


def _number(value: Any) -> float:
    """Return a value as a double; NaN for what is no number."""
    try:
        return float(value) if isinstance(value, Real | Decimal | str) else math.nan
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:
        return math.nan


def refuse_types(table: Table, columns: Iterable[Column]) -> None:
    """Raise if the type of a column shows that it holds no declared value; no value is read."""
    for column in columns:
        dtype = table.dtype(column.position)
        if column.kind != NUMERIC:
            refuse_other_labels(type_of(table, column.position), column.values, column.name)
        elif table.holds_dates(column.position):
            raise TypeError(
                f"column {column.name!r} of X is not numeric, it holds dates. Convert them first, "
                "for example to days since a fixed day."
            )
        elif _is_text(dtype) or getattr(dtype, "kind", "f") in "cm":
            raise ValueError(
                f"column {column.name!r} of X has the type {dtype}, which is not numeric. Convert "
                "it first, or declare its labels by categories."
            )


def refuse_other_labels(dtype: Any, labels: Iterable, name: Any) -> None:
    """Raise if values of a type are no declared labels: text for numbers, or the other way round.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._private_cells import refuse_other_labels
    >>> refuse_other_labels(np.dtype(object), [0, 1], "sex")
    >>> refuse_other_labels(np.dtype("U1"), [0, 1], "sex")
    Traceback (most recent call last):
    ValueError: column 'sex' has text where numbers or truth values are declared, or the other ...
    """
    texts = [label for label in labels if isinstance(label, str)]
    numbers = [label for label in labels if isinstance(label, Number)]
    written = not numbers and any(not math.isnan(_number(text)) for text in texts)
    if (written and _is_number(dtype)) or (numbers and not texts and _is_text(dtype)):
        raise ValueError(
            f"column {name!r} has text where numbers or truth values are declared, or the other "
            "way round (the number 1 is not the text '1'): convert the column, as none of it would "
            "be a declared label."
        )


def type_of(table: Table, position: Any) -> Any:
    """Return the type of a column, in arrays that of all columns."""
    return table.X.dtype if table.container == "array" else table.dtype(position)


def _is_number(dtype: Any) -> bool:
    is_one = getattr(dtype, "is_numeric", lambda: False)()
    return is_one or getattr(dtype, "kind", "O") in "biuf"


def _is_text(dtype: Any) -> bool:
    kind = getattr(dtype, "type", None)
    return (isinstance(kind, type) and issubclass(kind, str | bytes)) or (
        type(dtype).__name__ in _TEXTS
    )
