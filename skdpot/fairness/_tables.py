"""Rows and columns of whatever holds data: arrays, sparse matrices, data frames, lists."""

from typing import Any

import numpy as np
from scipy import sparse

from skdpot.tables import container_of

# Integers up to here are doubles.
_LARGEST_EXACT = 2.0**53


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


def as_numbers(X: Any, max_categories: int) -> tuple[Any, Any]:
    """Return data as numbers, and which columns are categorical, or None.

    Columns of words and categories get the positions of their values in order; they are categorical
    unless there are too many. What is missing is NaN.
    """
    X = as_table(X)
    if not hasattr(X, "columns") and X.dtype.kind != "O":
        return X.toarray() if sparse.issparse(X) else X, None
    columns, categorical = [], []
    for j in range(X.shape[1]):
        values = take_columns(X, [j])
        values = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)[:, 0]
        try:
            columns.append(values.astype(np.float64))
            categorical.append(False)
        except (TypeError, ValueError):
            words = np.array([str(value) for value in values.tolist()])
            missing = np.array([value is None or value != value for value in values.tolist()])
            codes = np.unique(words, return_inverse=True)[1].astype(np.float64)
            columns.append(np.where(missing, np.nan, codes))
            categorical.append(len(np.unique(words)) <= max_categories)
    return np.column_stack(columns), np.array(categorical)


def make_frame(container: str, names: Any, columns: list[np.ndarray], dtypes: list, X: Any) -> Any:
    """Return columns as a data frame, with the types that they are given where these hold them.

    Parameters
    ----------
    container : {"pandas", "polars"}
        Which kind.
    names : sequence of str
        Of the columns.
    columns : list of ndarray of shape (n_samples,)
        Numbers, or objects.
    dtypes : list
        Which type columns of objects get if it holds them; None for the library's own choice.
    X : {ndarray, DataFrame}
        The rows that went in, whose index goes out.

    Returns
    -------
    DataFrame
        Numbers are doubles.
    """
    pairs = list(zip(names, columns, dtypes, strict=True))
    if container == "polars":
        import polars as pl

        return pl.DataFrame([_polars_series(*pair) for pair in pairs])
    import pandas as pd

    frame = pd.DataFrame(
        {name: column for name, column, _ in pairs}, index=getattr(X, "index", None)
    )
    for name, column, dtype in pairs:
        if column.dtype == object and hasattr(dtype, "type"):
            frame[name] = _with_type(frame[name], dtype)
    return frame


def _with_type(column: Any, dtype: Any) -> Any:
    """Return a series of pandas with a type, or as it is if the type has not all of its values."""
    known = column.dropna()
    if hasattr(dtype, "categories"):
        return column.astype(dtype) if known.isin(dtype.categories).all() else column
    try:
        typed = column.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return column
    same = typed.isna().equals(column.isna()) and (typed[known.index] == known).all()
    return typed if same else column


def _polars_series(name: Any, column: np.ndarray, dtype: Any) -> Any:
    """Return a series of polars with a type, or one that polars finds if that cannot hold it."""
    import polars as pl

    values = column.tolist()
    if column.dtype == object and hasattr(dtype, "is_numeric"):
        try:
            return pl.Series(name, values, dtype=dtype)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            pass
    return pl.Series(name, values, strict=False)


def as_array(columns: list[np.ndarray]) -> np.ndarray:
    """Return columns as one array: of numbers if all of them are, else of objects."""
    if all(column.dtype != object for column in columns):
        return np.column_stack(columns)
    array = np.empty((len(columns[0]), len(columns)), dtype=object)
    for j, column in enumerate(columns):
        array[:, j] = column.tolist()
    return array
