"""Data frames and arrays: their columns read as a schema declares them, and made of samples."""

import importlib
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot.generative._sketch.columns import Column
from skdpot.generative._sketch.schema import TableSchema
from skdpot.tables import container_of, is_missing, objects

__all__ = ["read_columns", "write_table"]


def read_columns(X: Any, schema: TableSchema) -> list[np.ndarray]:
    """Return the columns of a table as `TableSchema.encode` takes them, or raise.

    Parameters
    ----------
    X : {array-like, DataFrame}
        Private. The columns of a frame are found by their names; those of an array are in the
        order of the schema.
    schema : TableSchema
        What the table is declared to hold.

    Returns
    -------
    list of ndarray of shape (n,)
        Doubles, with NaN for missing ones, of numeric columns; objects, with None for missing
        ones, of others.

    Raises
    ------
    TypeError
        If the table is of a kind that is not known, or names of columns are neither text nor
        integers.
    ValueError
        If the table is empty, or does not have the columns of the schema, or has text where
        numbers are declared. No value is in the message.

    Examples
    --------
    >>> from skdpot.generative._sketch.frames import read_columns
    >>> from skdpot.generative._sketch.schema import read_schema
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> read_columns([[30, "F"], [40, "M"]], schema)
    [array([30., 40.]), array(['F', 'M'], dtype=object)]
    """
    columns = _columns(X, schema)
    if not len(columns[0]):
        raise ValueError("the table has no records (0 rows); at least 1 is needed.")
    return [
        _as_numbers(values, column) if column.kind == "numeric" else _as_labels(values)
        for values, column in zip(columns, schema.columns, strict=True)
    ]


def write_table(container: str, schema: TableSchema, values: Sequence[np.ndarray]) -> Any:
    """Return columns as a table.

    Parameters
    ----------
    container : {"pandas", "polars", "array"}
        What is to hold it.
    schema : TableSchema
        What the columns hold.
    values : sequence of ndarray of shape (n,)
        Of `TableSchema.decode`.

    Returns
    -------
    {DataFrame, ndarray}
        Integers that may be missing have the nullable type of pandas. An array is of doubles
        where all columns are numeric, and of objects otherwise.

    Raises
    ------
    ImportError
        If the library of the frame is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.frames import write_table
    >>> from skdpot.generative._sketch.schema import read_schema
    >>> schema = read_schema({"age": range(17, 91), "sex": ["F", "M"]})
    >>> values = [np.array([30, 40]), np.array(["F", "M"], dtype=object)]
    >>> write_table("array", schema, values)
    array([[30, 'F'],
           [40, 'M']], dtype=object)
    """
    names = schema.names
    if container == "pandas":
        pd = _library(container)
        series = [
            pd.Series(value.tolist(), dtype="Int64" if _optional_integers(column) else None)
            for column, value in zip(schema.columns, values, strict=True)
        ]
        return pd.concat(series, axis=1, keys=names)
    if container == "polars":
        pl = _library(container)
        return pl.DataFrame(
            [pl.Series(name, _with_none(v)) for name, v in zip(names, values, strict=True)]
        )
    if all(column.kind == "numeric" for column in schema.columns):
        return np.column_stack([np.asarray(value, dtype=np.float64) for value in values])
    array = np.empty((len(values[0]), len(values)), dtype=object)
    for j, value in enumerate(values):
        array[:, j] = value.tolist()
    return array


def _columns(X, schema):
    """Return the columns of a table in the order of the schema, or raise."""
    if container_of(X) != "array":
        _check_names(list(X.columns), schema.names)
        return [_column(X[name]) for name in schema.names]
    array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
    if array.ndim != 2 or array.shape[1] != len(schema.names):
        raise ValueError(
            f"the table must have the {len(schema.names)} columns of the schema, got an array of "
            f"shape {array.shape}."
        )
    return list(array.T)


def _check_names(names, declared):
    """Raise where the columns of a frame are not the declared ones, each once."""
    # Others may be private values, as where a table was turned on its side.
    if not all(isinstance(name, str | Integral) for name in names):
        raise TypeError("names of columns must be text or integers; those of X are not.")
    wrong = [f"column {name!r} is there twice" for name in declared if names.count(name) > 1]
    extra = [name for name in names if name not in declared]
    if extra:
        wrong.append(
            f"the table has columns that the schema does not declare: {extra}. Declare them, or "
            "leave them out; identifiers always"
        )
    lacking = [name for name in declared if name not in names]
    if lacking:
        wrong.append(f"the table lacks the columns {lacking} of the schema")
    if wrong:
        raise ValueError("; ".join(wrong) + ".")


def _column(series):
    """Return a column of a frame: as numbers where numpy has such, and as objects otherwise."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return series.to_numpy()
    return objects(series.to_list())


def _as_numbers(values, column: Column):
    """Return a column as doubles, with NaN for missing ones, or raise."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "O":
        numbers = [_number(value) for value in values.tolist()]
        if None not in numbers:
            return np.array(numbers, dtype=np.float64)
    raise ValueError(
        f"column {column.name!r} is declared numeric, and has what is no number. Give dates as "
        "days since a public day."
    )


def _number(value: Any) -> float | None:
    """Return a value as a double, NaN for a missing one, and None for what is no number."""
    if is_missing(value):
        return math.nan
    try:
        return float(value) if isinstance(value, Real) else None
    except OverflowError:
        # An integer beyond all doubles is also beyond all bounds.
        return math.inf if value > 0 else -math.inf


def _as_labels(values):
    """Return a column as objects, with None for missing ones."""
    return objects([None if is_missing(value) else value for value in values.tolist()])


def _library(name):
    """Return the library that makes frames, or raise."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            f"the sketch was made of a {name} DataFrame, and draws one: install {name}, or "
            "load(path, container='array')."
        ) from None


def _optional_integers(column):
    """Tell whether a column is of integers of which some may be missing."""
    if column.kind == "numeric":
        return column.missing and column.integer
    return column.missing and all(type(value) is int for value in column.values)


def _with_none(values):
    """Return values as a list, with None for missing ones."""
    return [None if value != value else value for value in values.tolist()]
