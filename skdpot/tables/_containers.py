"""Rows and columns of whatever holds a table: arrays, sparse matrices, data frames, lists."""

from typing import Any

import numpy as np
from scipy import sparse

from skdpot.tables._declarations import is_missing, objects

CONTAINERS = ("array", "pandas", "polars")
# Integers up to here are doubles.
_LARGEST_EXACT = 2.0**53


def container_of(X: Any) -> str:
    """Return what holds a table: "pandas", "polars" or "array".

    Other tables with columns raise a TypeError: what they call their columns may be private values.

    Examples
    --------
    >>> from skdpot.tables import container_of
    >>> container_of([["a", 1], ["b", 2]])
    'array'
    """
    kind = type(X)
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if base.__name__ == "DataFrame" and library in CONTAINERS:
            return library
    if not hasattr(X, "columns"):
        return "array"
    raise TypeError(
        f"X is a {kind.__module__}.{kind.__qualname__}; give a pandas or polars frame, or an array "
        "(table.to_pandas())."
    )


def as_table(X: Any) -> Any:
    """Return data as something with a shape, in which words and numbers stay what they are."""
    if container_of(X) != "array" or sparse.issparse(X) or isinstance(X, np.ndarray):
        return X
    array = np.asarray(X)
    # An integer beyond 2**53 may be a label, which a fraction in another row would have rounded.
    rounded = array.dtype.kind == "f" and bool((np.abs(array) >= _LARGEST_EXACT).any())
    return np.asarray(X, dtype=object) if array.dtype.kind in "US" or rounded else array


def take_rows(X: Any, rows: Any) -> Any:
    """Return some rows of a table or vector, by their positions."""
    if sparse.issparse(X):
        return X.tocsr()[rows]
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def take_columns(X: Any, columns: Any) -> Any:
    """Return some columns of a table, by their positions."""
    if sparse.issparse(X):
        return X.tocsc()[:, columns]
    return X.iloc[:, columns] if hasattr(X, "iloc") else X[:, columns]


def names_of(X: Any) -> list[Any]:
    """Return the names of a table's columns: positions where it has none."""
    return list(X.columns) if hasattr(X, "columns") else list(range(X.shape[1]))


def dtype_of(X: Any, position: Any) -> Any:
    """Return the type of a data frame's column, None for arrays."""
    if hasattr(X, "iloc"):
        return X.dtypes.iloc[position]
    return list(X.dtypes)[position] if hasattr(X, "columns") else None


def column_of(X: Any, position: Any) -> np.ndarray:
    """Return one column of a table, as of `plain_values`."""
    if sparse.issparse(X):
        return take_columns(X, [position]).toarray()[:, 0]
    return plain_values(take_columns(X, position))


def plain_values(column: Any) -> np.ndarray:
    """Return the entries of an array or series: numbers of NumPy, or objects of Python.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import plain_values
    >>> plain_values(np.array(["2020-01-01"], dtype="datetime64[s]"))
    array([datetime.datetime(2020, 1, 1, 0, 0)], dtype=object)
    """
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(column)
    if isinstance(column, np.ndarray) and dtype is not None and dtype.kind in "mM":
        # In other units dates become integers, or dates that equal no times.
        column = column.astype(f"{dtype.kind}8[us]")
    values = getattr(column, "tolist", getattr(column, "to_list", lambda: list(column)))()
    return objects([value.item() if isinstance(value, np.generic) else value for value in values])


def labels_in(values: np.ndarray) -> np.ndarray:
    """Return values as objects, None where one is missing."""
    return objects([None if is_missing(value) else value for value in values.tolist()])
