"""Rows and columns of the containers of tables: arrays, sparse matrices, data frames, lists."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from skdpot.privacy.quotes import without_quotes
from skdpot.tables._declarations import is_missing, objects

CONTAINERS = ("array", "pandas", "polars")
# All integers up to here are doubles.
LARGEST_EXACT = 2.0**53
# Binary digits of floating-point types; all other types have 53.
_DIGITS = {"float16": 11, "halffloat[pyarrow]": 11, "float32": 24, "float[pyarrow]": 24}

# NumPy's letters for the types of polars, without their sizes.
_KINDS_OF_POLARS = {
    **{"Boolean": "b", "Int": "i", "UInt": "u", "Float": "f", "Decimal": "f", "String": "U"},
    **{"Date": "M", "Datetime": "M", "Duration": "m"},
}


class Table:
    """The container of a table, and its columns by position.

    Words and numbers are not converted. Frames of other libraries than pandas and polars raise a
    TypeError: the names of their columns may be private values.

    Attributes
    ----------
    X : {ndarray, sparse matrix, DataFrame}
        The rows, as something with a shape.
    container : {"array", "pandas", "polars"}
        The container.

    Examples
    --------
    >>> from skdpot.tables import Table
    >>> table = Table([["a", 1], ["b", 2]])
    >>> table.container, table.names, table.column(0).tolist()
    ('array', [0, 1], ['a', 'b'])
    """

    def __init__(self, X: Any) -> None:
        self.X, self.container = X, library_of(type(X))
        # NumPy finds the types of lists in their values, which are private.
        self._has_types = self.container != "array" or sparse.issparse(X) or hasattr(X, "dtype")
        self._labels: dict[Any, np.ndarray] = {}
        kind = type(X)
        # polars warns of whoever asks for the columns of a lazy frame.
        is_lazy = kind.__name__ == "LazyFrame"
        is_frame = is_lazy or hasattr(X, "columns") or isinstance(X, Mapping)
        if self.container == "array" and is_frame:
            convert = "collect" if is_lazy else "to_pandas"
            raise TypeError(
                f"X is a {kind.__module__}.{kind.__qualname__}; give a pandas or polars frame, or "
                f"an array (table.{convert}())."
            )
        if self.container == "array" and not (sparse.issparse(X) or isinstance(X, np.ndarray)):
            self.X = without_quotes(
                lambda: rows_as_array(X), "X cannot be read as a table of rows."
            )
            kind = self.X.dtype.kind
            # An integer beyond 2**53 may be a label that was rounded because another row has a
            # fraction.
            rounded = kind == "f" and bool((np.abs(self.X) >= LARGEST_EXACT).any())
            if kind in "USmM" or rounded:
                self.X = np.asarray(X, dtype=object)

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def names(self) -> list[Any]:
        """Return the names of the columns, or positions if there are none."""
        return list(range(self.X.shape[1])) if self.container == "array" else list(self.X.columns)

    @property
    def index(self) -> Any:
        """Return the index of a pandas frame, else None."""
        return getattr(self.X, "index", None)

    def dtype(self, position: Any) -> Any:
        """Return the type of a data frame's column, None for arrays."""
        if self.container == "array":
            return None
        dtypes = self.X.dtypes
        return dtypes.iloc[position] if self.container == "pandas" else dtypes[position]

    def series(self, position: Any) -> Any:
        """Return a column as it is stored."""
        if sparse.issparse(self.X):
            return self.X.tocsc()[:, [position]].toarray()[:, 0]
        return self.X.iloc[:, position] if self.container == "pandas" else self.X[:, position]

    def column(self, position: Any) -> np.ndarray:
        """Return a column in the form of `plain_values`."""
        return plain_values(self.series(position))

    def labels(self, position: Any) -> np.ndarray:
        """Return a column as objects, with None for missing values; it is read once."""
        if position not in self._labels:
            self._labels[position] = labels_in(self.column(position))
        return self._labels[position]

    def kind(self, position: Any) -> str:
        """Return the letter of `kind_of` for a column.

        The types of lists are found in their values, and say nothing.
        """
        return kind_of(self.series(position)) if self._has_types else "O"

    def holds_dates(self, position: Any) -> bool:
        """Tell whether a column has a type of dates or times."""
        dtype: Any = self.X.dtype if self.container == "array" else self.dtype(position)
        if hasattr(dtype, "is_temporal"):
            return dtype.is_temporal()
        return getattr(dtype, "kind", "f") == "M"


def kind_of(column: Any) -> str:
    """Return NumPy's letter for what the type of a column holds, "O" for anything.

    No value decides about it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._containers import kind_of
    >>> kind_of(np.array([1, 2])), kind_of(np.array([1, 2], dtype=object)), kind_of([1, 2])
    ('i', 'O', 'O')
    """
    dtype: Any = getattr(column, "dtype", None)
    if hasattr(dtype, "is_temporal"):
        return _KINDS_OF_POLARS.get(str(dtype).partition("(")[0].rstrip("0123468"), "O")
    return "U" if str(dtype).startswith("str") else getattr(dtype, "kind", "O")


def rows_as_array(rows: Any, dtype: Any = None) -> np.ndarray:
    """Return rows as an array, of objects if a cell is a list, or cannot be read."""
    try:
        return np.asarray(rows, dtype=dtype)
    except Exception:
        listed = [list(row) for row in rows]
        if len(set(map(len, listed))) != 1:
            raise
        return objects(cell for row in listed for cell in row).reshape(len(listed), -1)


def container_of(X: Any) -> str:
    """Return the container of a table: "pandas", "polars" or "array"; raise for others."""
    return Table(X).container


def library_of(kind: type) -> str:
    """Return the library of a data frame's type, "array" for all other types."""
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if base.__name__ == "DataFrame" and library in CONTAINERS:
            return library
    return "array"


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


def plain_values(column: Any) -> np.ndarray:
    """Return the entries of an array or series, as NumPy numbers or Python objects.

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
        # In other units, dates become integers, or dates that equal no times.
        column = column.astype(f"{dtype.kind}8[us]")
    values = getattr(column, "tolist", getattr(column, "to_list", lambda: list(column)))()
    return objects([_plain_value(value) for value in values])


def _plain_value(value: Any) -> Any:
    try:
        if isinstance(value, np.datetime64 | np.timedelta64):
            return plain_values(np.array([value]))[0]
        return value.item() if isinstance(value, np.generic) else value
    except Exception:
        # What raises when it is read is a value that nobody declared.
        return object()


def labels_in(values: np.ndarray) -> np.ndarray:
    """Return values as objects, with None for missing ones."""
    return objects([None if is_missing(value) else value for value in values.tolist()])


def exact_digits(column: Any) -> int:
    """Return of how many binary digits floating-point numbers of a column hold all integers."""
    return _DIGITS.get(str(getattr(column, "dtype", None)).lower(), 53)
