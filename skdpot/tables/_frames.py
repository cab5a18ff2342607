"""Tables in memory and in files: arrays, lists, data frames through narwhals, CSV and Parquet."""

import codecs
import csv
import gzip
import importlib
import math
import os
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from skdpot.privacy.checks import check_type, redact_errors, result_of
from skdpot.tables._column import Column, is_missing, objects, read_in_parts

CONTAINERS = ("array", "pandas", "polars", "pyarrow")
# Texts of files that stand for a missing value, unless they are declared labels.
_MISSING = frozenset(["", *"NA N/A n/a #N/A <NA> NaN nan NULL null None NaT".split()])


class Table:
    """The container of a table, and its columns by position.

    Words and numbers are not converted. Frames of other libraries than pandas, polars and pyarrow
    raise a TypeError: the names of their columns may be private values.

    Attributes
    ----------
    X : {ndarray, sparse matrix, DataFrame}
        The rows, as something with a shape.
    container : {"array", "pandas", "polars", "pyarrow"}
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
        self._labels: dict[int | None, np.ndarray] = {}
        if self.container != "array":
            return
        # First: polars warns of whoever asks for the columns of a lazy frame.
        check_type("X", X)
        if hasattr(X, "columns") or isinstance(X, Mapping):
            raise TypeError(
                f"X is a {type(X).__module__}.{type(X).__qualname__}; give a pandas, polars or "
                "pyarrow frame, or an array (table.to_pandas())."
            )
        if not (sparse.issparse(X) or isinstance(X, np.ndarray)):
            self.X = redact_errors(lambda: rows_as_array(X), "X cannot be read as a table of rows.")
            # As objects, since one text or time makes text or times of all numbers in a list.
            if self.X.dtype.kind not in "biufO":
                self.X = rows_as_array(X, object)

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def names(self) -> list[Any]:
        """Return the names of the columns, or positions if there are none."""
        if self.container == "array":
            if len(self.X.shape) != 2:
                raise ValueError(
                    "X must be a table of rows and columns. A column becomes one by to_frame(), a "
                    "file by pandas.read_csv, a list of dictionaries by pandas.DataFrame."
                )
            return list(range(self.X.shape[1]))
        return list(self.X.columns) if self.container == "pandas" else _in_narwhals(self.X).columns

    def dtype(self, position: int | None) -> Any:
        """Return the type of a data frame's column, None for arrays.

        For pandas it is the library's own: narwhals looks into the values of objects, which are
        private, and calls them text if all are. Others are types of narwhals.
        """
        if self.container == "array":
            return None
        if self.container == "pandas":
            return self.X.dtypes.iloc[position]
        return self.series(position).dtype

    def series(self, position: int | None) -> Any:
        """Return a column as it is stored, those of data frames as a series of narwhals."""
        # By position: names of pandas may repeat, and those of arrays are none.
        column = take_columns(self.X, position)
        return _in_narwhals(column.toarray()[:, 0] if sparse.issparse(column) else column)

    def column(self, position: int | None) -> np.ndarray:
        """Return a column in the form of `plain_values`."""
        return plain_values(self.series(position))

    def labels(self, position: int | None) -> np.ndarray:
        """Return a column as objects, with None for missing values; it is read once."""
        # A private object's own code runs when it is compared, so that it is asked only once.
        if position not in self._labels:
            self._labels[position] = labels_in(self.column(position))
        return self._labels[position]

    def kind(self, position: int | None) -> str:
        """Return the letter of `kind_of` for a column.

        The types of lists are found in their values, and say nothing.
        """
        return kind_of(self.series(position)) if self._has_types else "O"


def kind_of(column: Any) -> str:
    """Return NumPy's letter for what the type of a column holds, "O" for anything.

    "V" is for periods and intervals of pandas, which are no numbers, labels or dates. No value
    decides about it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables._frames import kind_of
    >>> kind_of(np.array([1, 2])), kind_of(np.array([1, 2], dtype=object)), kind_of([1, 2])
    ('i', 'O', 'O')
    """
    series = _in_narwhals(column)
    # NumPy's own letter first: narwhals looks into objects to find out whether all are text.
    own = getattr(series.to_native() if isinstance(series, nw.Series) else series, "dtype", None)
    if isinstance(own, np.dtype):
        return own.kind
    within = getattr(getattr(own, "categories", None), "dtype", None)
    if {type(own).__name__, type(within).__name__} & {"PeriodDtype", "IntervalDtype"}:
        return "V"
    if not isinstance(series, nw.Series):
        return "O"
    dtype = series.dtype
    kinds = {
        "b": dtype == nw.Boolean,
        "i": dtype.is_signed_integer(),
        "u": dtype.is_unsigned_integer(),
        "f": dtype.is_numeric(),
        "m": dtype == nw.Duration,
        "M": dtype == nw.Date or dtype == nw.Datetime,
        "U": dtype == nw.String,
    }
    return next((letter for letter, is_one in kinds.items() if is_one), "O")


def rows_as_array(rows: Any, dtype: Any = None) -> np.ndarray:
    """Return rows as an array, of objects if a cell is a list, or cannot be read."""
    with suppress(Exception):
        array = np.asarray(rows, dtype=dtype)
        # Cells that are all lists make a further dimension, and one that is none makes none.
        if array.ndim < 3:
            return array
    listed = [list(row) for row in rows]
    if len(set(map(len, listed))) != 1:
        raise ValueError("rows must have equal lengths")
    return objects(cell for row in listed for cell in row).reshape(len(listed), -1)


def library_of(kind: type, names: Container[str] = ("DataFrame", "Table")) -> str:
    """Return the library of a data frame's type, "array" for all other types.

    The type is derived from one of the library with one of these names.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import library_of
    >>> library_of(np.ndarray)
    'array'
    """
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        # By name, so that no library is imported for a look at an array.
        if base.__name__ in names and library in CONTAINERS:
            return library
    return "array"


def take_rows(X: Any, rows: Any) -> Any:
    """Return some rows of a table or vector, by their positions."""
    if sparse.issparse(X):
        return X.tocsr()[rows]
    # Columns of pandas may share a name, which narwhals refuses.
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return nw.to_native(_in_narwhals(X)[rows], pass_through=True)


def take_columns(X: Any, columns: Any) -> Any:
    """Return some columns of a table, by their positions."""
    if sparse.issparse(X):
        return X.tocsc()[:, np.atleast_1d(columns)]
    if hasattr(X, "iloc"):
        return X.iloc[:, columns]
    return nw.to_native(_in_narwhals(X)[:, columns], pass_through=True)


def with_person(table: Any, name: str, person: np.ndarray) -> Any:
    """Return a data frame with the person of each row as its first column."""
    frame = nw.from_native(table)
    persons = nw.new_series(name, person, backend=frame.implementation)
    return frame.select(persons, nw.all()).to_native()


def _in_narwhals(column: Any) -> Any:
    """Return a frame or series as one of narwhals, and anything else as it is."""
    return nw.from_native(column, eager_only=True, allow_series=True, pass_through=True)


def plain_values(column: Any) -> np.ndarray:
    """Return the entries of an array or series, as NumPy numbers or Python objects.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import plain_values
    >>> plain_values(np.array(["2020-01-01"], dtype="datetime64[s]"))
    array([datetime.datetime(2020, 1, 1, 0, 0)], dtype=object)
    """
    column = nw.to_native(column, pass_through=True)
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(column)
    if isinstance(column, np.ndarray):
        if dtype is not None and dtype.kind in "mM":
            # In other units, dates become integers, or dates that equal no times.
            column = column.astype(f"{dtype.kind}8[us]")
        values = column.tolist()
    else:
        values = entries_of(column, object()).tolist()
    # What raises when it is read is a value that nobody declared.
    return objects([result_of(partial(_plain_value, value), object()) for value in values])


def entries_of(column: Any, unread: Any = None) -> np.ndarray:
    """Return the entries of a series or sequence as they are, `unread` for what raises."""

    def read(part: Any) -> np.ndarray:
        return objects(part.to_list() if isinstance(part, nw.Series) else part)

    return read_in_parts(read, _in_narwhals(column), objects([unread]))


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return plain_values(np.array([value]))[0]
    return value.item() if isinstance(value, np.generic) else value


def labels_in(values: np.ndarray) -> np.ndarray:
    """Return values as objects, with None for missing ones."""
    may_miss = values.dtype.kind not in "biu"
    return objects([None if may_miss and is_missing(x) else x for x in values.tolist()])


def make_table(
    container: str, names: list, columns: list[np.ndarray], dtypes: Any = None, index: Any = None
) -> Any:
    """Return columns of numbers, dates or objects as a table.

    None in a column of objects is a missing value. `dtypes` are the types that columns get if these
    hold all values: types of `Table.dtype`, or names of pandas. None, and types of another library,
    leave the choice to the library. An array is of numbers if all columns are, else of objects.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.tables import make_table
    >>> columns = [np.array([30, 40]), np.array(["F", "M"], dtype=object)]
    >>> make_table("array", ["age", "sex"], columns)
    array([[30, 'F'],
           [40, 'M']], dtype=object)
    """
    dtypes = dtypes or [None] * len(columns)
    if container == "array":
        return as_array(list(map(_whole_numbers, columns, dtypes)))
    try:
        library = importlib.import_module(container)
    except ImportError:
        raise ImportError(
            f"the sketch was made of a {container} DataFrame, and draws one: install {container}, "
            "or load(path, container='array')."
        ) from None
    if container == "pandas":
        series = [_pandas_series(library, *pair) for pair in zip(columns, dtypes, strict=True)]
        # A dictionary would lose columns that share a name.
        frame = library.concat(series, axis=1, keys=list(names))
        return frame if index is None else frame.set_axis(index)
    named = zip(names, columns, dtypes, strict=True)
    made = [_series(container, *each).to_frame() for each in named]
    # `from_dict` would lose the order of enumerations.
    return nw.concat(made, how="horizontal").to_native()


def as_array(columns: list[np.ndarray]) -> np.ndarray:
    """Return columns as one array: of numbers if all are numbers, else of objects."""
    if any(column.dtype == object for column in columns):
        columns = [column.astype(object, copy=False) for column in columns]
    return np.column_stack(columns)


def _whole_numbers(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Return numbers as integers of a type if all are whole and it holds them, else as they are."""
    with suppress(TypeError, ValueError), np.errstate(invalid="ignore"):
        # Types of narwhals have the names of NumPy's.
        wanted = np.dtype(str(dtype).lower() if isinstance(dtype, nw.dtypes.DType) else dtype)
        if values.dtype.kind == "f" and wanted.kind in "iu" and np.isfinite(values).all():
            whole = values.astype(wanted)
            # Numbers beyond the type have become others.
            return whole if (whole == values).all() else values
    return values


def _pandas_series(pandas: ModuleType, values: np.ndarray, dtype: Any) -> Any:
    """Return a pandas series with a type, or with an inferred one if that cannot hold it."""
    if values.dtype.kind == "f" and pandas.api.types.is_integer_dtype(dtype):
        # Whole numbers are integers again; missing or other ones may have no place in the type.
        with suppress(TypeError, ValueError):
            typed = pandas.Series(values).astype(dtype)
            back = typed.to_numpy(dtype=np.float64, na_value=np.nan)
            return typed if np.array_equal(back, values, equal_nan=True) else pandas.Series(values)
    if dtype is None or values.dtype != object or isinstance(dtype, nw.dtypes.DType):
        return pandas.Series(values.tolist() if values.dtype == object else values)
    plain = labels_in(values).tolist()
    # pandas warns of labels that a type of categories does not have.
    categories = getattr(dtype, "categories", None)
    if categories is not None and not set(plain) <= {None, *categories}:
        return pandas.Series(values)
    # Not a TypeError alone: types of extensions raise errors of their own.
    with suppress(TypeError, ValueError, OverflowError, KeyError):
        typed = pandas.Series(plain, dtype=dtype)
        # Numbers may have been rounded.
        if [None if is_missing(value) else value for value in typed.tolist()] == plain:
            return typed
    # From a list, pandas would make doubles of integers beside a missing value.
    return pandas.Series(plain if isinstance(dtype, str) else values)


def _series(container: Any, name: Any, values: np.ndarray, dtype: Any) -> nw.Series:
    """Return a series of narwhals with a type, or with an inferred one if that cannot hold it."""
    kinds = {"f": nw.Float64(), "i": nw.Int64(), "M": nw.Datetime("us"), "O": dtype}
    plain, kind_of_values = labels_in(values).tolist(), values.dtype.kind
    is_integer = isinstance(dtype, nw.dtypes.DType) and dtype.is_integer()
    # Whole numbers are integers again, also beside missing ones.
    if is_integer and kind_of_values in "fiu" and all(one is None or one % 1 == 0 for one in plain):
        plain = [None if one is None else int(one) for one in plain]
        kinds[kind_of_values] = dtype
    for kind in (kinds.get(kind_of_values), None):
        # Each library has errors of its own for values that a type does not hold.
        with suppress(Exception):
            known = kind if isinstance(kind, nw.dtypes.DType) else None
            return nw.new_series(str(name), plain, known, backend=container)
    # polars and pyarrow have no columns of several types.
    text = [None if value is None else str(value) for value in plain]
    return nw.new_series(str(name), text, nw.String(), backend=container)


def categories_type(container: str, labels: Iterable, ordered: bool) -> Any:
    """Return the type of declared labels in a data frame; None if the library has none for them."""
    labels = [label for label in labels if label is not None]
    if container == "pandas":
        return importlib.import_module("pandas").CategoricalDtype(labels, ordered=ordered)
    return nw.Enum(labels) if all(isinstance(label, str) for label in labels) else None


# Files
# -----


def read_table_file(
    path: str | os.PathLike[str],
    columns: Iterable[Column],
    *,
    sep: str = ",",
    decimal: str = ".",
    encoding: str = "utf-8-sig",
    na: Iterable[str] = (),
) -> Any:
    """Return a private file as a pandas frame of objects, or raise; errors quote no value.

    Texts become the declared numbers or labels: "1", "1.0" and "01" are the label 1, and "TRUE" is
    True. Columns that are not declared stay text.

    Parameters
    ----------
    path : str or path-like
        A file that ends with .csv or .csv.gz, with names of columns in its first line, or with
        .parquet, which needs pyarrow.
    columns : iterable of Column
        Declared columns.
    sep : str, default=","
        The character between fields. This and all that follows is for CSV files.
    decimal : str, default="."
        The decimal point of numbers. A number with another one is read as text.
    encoding : str, default="utf-8-sig"
        The encoding, such as "latin-1". The default is UTF-8.
    na : iterable of str, default=()
        Further texts that stand for a missing value, unless they are declared labels.

    Returns
    -------
    DataFrame
        With all columns of the file. No type depends on a value.

    Raises
    ------
    ImportError
        If pandas or pyarrow is needed, and is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If the file holds no table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.tables import read_schema, read_table_file
    >>> columns = read_schema({"retired": [False, True], "age": range(120)}).columns
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "table.csv"
    ...     _ = path.write_text("age,retired\\n30,false\\n,TRUE\\n")
    ...     read_table_file(path, columns).to_numpy()
    array([[30.0, False],
           [nan, True]], dtype=object)
    """
    import pandas

    path = Path(path)
    if suffix_of(path) == ".parquet":
        if (sep, decimal, encoding, *na) != (",", ".", "utf-8-sig"):
            raise ValueError("sep, decimal, encoding and na are for CSV files.")
        # Other types would round integers beside a missing one.
        options = {"dtype_backend": "numpy_nullable"}
        frame = _readable(lambda: pandas.read_parquet(path, **options).astype(object), path)
    else:
        # pandas.read_csv would guess types from values, and fill short lines in silence.
        header, *rows = _csv_rows(path, sep, encoding) or [[]]
        if any(len(row) != len(header) for row in rows):
            raise ValueError(f"lines of the file have more or fewer fields than {len(header)}.")
        frame = pandas.DataFrame(rows, columns=header, dtype=object)
    declared = {str(column.name).strip(): column for column in columns}
    number = partial(number_in_file, decimal=decimal, missing=_MISSING.union(na))
    names = []
    for position, name in enumerate(_stripped(frame.columns)):
        column = declared.get(name)
        # Names of a schema may be integers; those of a file are text.
        names.append(name if column is None else column.name)
        if column is not None:
            values = list(map(_reader(column, number), frame.iloc[:, position].tolist()))
            frame.isetitem(position, pandas.Series(values, dtype=object))
    return frame.set_axis(names, axis=1)


def read_header(path: str | os.PathLike[str], sep: str = ",", encoding: str = "utf-8-sig") -> Any:
    """Return the columns of a file as a pandas frame without rows; no value is read.

    Columns of .csv have no types, since these depend on values. The first line has their names; one
    that looks like a record is refused.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.tables import read_header
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "table.csv"
    ...     _ = path.write_text("id,age\\n7,30\\n")
    ...     read_header(path).shape
    (0, 2)
    """
    import pandas

    path = Path(path)
    if suffix_of(path) == ".parquet":
        # The schema of the file alone: no value is read.
        read_names = importlib.import_module("pyarrow.parquet").read_schema
        frame = _readable(lambda: read_names(path).empty_table().to_pandas(), path)
        return frame.set_axis(_stripped(frame.columns), axis=1)
    names = _stripped((_csv_rows(path, sep, encoding, 1) or [[]])[0])
    numbers = [number for number in map(number_in_file, names) if isinstance(number, float)]
    # One name may be empty: that of an index, which is no column to learn.
    if not names or len(set(names)) < len(names) or not all(map(math.isnan, numbers)):
        raise ValueError(
            f"the first line of {path.name} must have the names of the columns, but some are "
            "missing, numbers or occur twice. If it is a record, add a line of names above."
        )
    return pandas.DataFrame(columns=list(filter(None, names)), dtype=object)


def write_table_file(path: str | os.PathLike[str], frame: Any) -> None:
    """Write a pandas frame to a .csv, .csv.gz or .parquet file; an existing one is replaced.

    Missing values are empty fields of a CSV file. Parquet files need pyarrow.
    """
    frame = frame.rename(columns=str)
    if suffix_of(path) == ".csv":
        frame.to_csv(path, index=False, lineterminator="\n")
        return
    for j, dtype in enumerate(frame.dtypes):
        values = frame.iloc[:, j]
        # Parquet has no columns of several types.
        if str(dtype) == "object" and values.dropna().map(type).nunique() > 1:
            frame.isetitem(j, values.map(str, na_action="ignore"))
    frame.to_parquet(path, index=False)


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return ".csv" or ".parquet", which needs pyarrow, or raise."""
    suffix = Path(Path(path).name.lower().replace(".csv.gz", ".csv")).suffix
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{Path(path).name or path} must end with .csv or .parquet, or .csv.gz.")
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ImportError(".parquet files need pyarrow: python -m pip install pyarrow.")
    return suffix


def _readable(read: Callable[[], Any], path: Path) -> Any:
    """Return the result of a function that reads a file, or raise without a quote."""
    kind = {".csv": "CSV", ".parquet": "Parquet"}[suffix_of(path)]
    problem = f"{path.name} cannot be read as a {kind} file."
    try:
        return read()
    except OSError as error:
        # Libraries raise others, which may quote what is in the file.
        if error.errno is not None:
            raise
    except UnicodeDecodeError as error:
        problem += (
            f" It is no text in {error.encoding.upper()}: pass another encoding, or write CSV."
        )
    except csv.Error:
        problem += " A quotation mark is not closed, or stands within a quoted field."
    except Exception:
        pass
    # Raised outside of the handlers, so that an error that quotes values is not its context.
    raise ValueError(problem)


def _csv_rows(path: Path, sep: str, encoding: str, n_rows: int | None = None) -> list[list[str]]:
    """Return the first lines of a file, or all, as fields; empty lines are left out."""
    # Raises for an encoding that there is not.
    if codecs.lookup(encoding) and len(sep) != 1:
        raise ValueError(f"sep must be one character, got {sep!r}.")

    def read() -> list[list[str]]:
        opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
        with opened(path, "rt", newline="", encoding=encoding) as file:
            # A quotation mark that is not closed would swallow the lines that follow.
            rows = csv.reader(file, delimiter=sep, skipinitialspace=True, strict=True)
            return [row for row in islice(rows, n_rows) if row]

    rows = _readable(read, path)
    others = [mark for mark in ",;\t|" if rows and len(rows[0]) == 1 and mark in rows[0][0]]
    if others:
        raise ValueError(f"{path.name} has other separators: pass sep={others[0]!r}.")
    return rows


def _stripped(names: Iterable) -> list[str]:
    # Blanks around a name do not belong to it.
    return [str(name).strip() for name in names]


def _reader(column: Column, number: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that converts a file's text to a value of a column."""
    if column.labels is None:
        return number
    # Blanks around a text do not belong to it.
    label_of_text: dict[str, Any] = {str(label).strip(): label for label in column.values}
    if len(label_of_text) < len(column.values):
        raise ValueError(
            f"column {column.name!r} has labels that look the same in a file: they differ only by "
            "blanks around them or by type, such as 1 and '1'. Declare one of each."
        )
    flags = {str(label).lower(): label for label in column.values if isinstance(label, bool)}
    numbers = {float(label): label for label in column.values if type(label) in (int, float)}

    @cache
    def label_of(value: Any) -> Any:
        """Return the declared label for a value of a file, or the value itself."""
        if not isinstance(value, str):
            return None if is_missing(value) else value
        word = value.strip()
        # Declared labels come first: "NA" and "None" may be among them.
        if word in label_of_text:
            return label_of_text[word]
        if word.lower() in flags:
            return flags[word.lower()]
        read = number(word)
        return None if is_missing(read) else numbers.get(read, word)

    return label_of


def number_in_file(value: Any, decimal: str = ".", missing: Container[Any] = _MISSING) -> Any:
    """Return a double, or the text if it is no number, such as a date.

    Examples
    --------
    >>> from skdpot.tables import number_in_file
    >>> [number_in_file(text, ",") for text in ("1,5", "1.500", " a ", "")]
    [1.5, '1.500', 'a', nan]
    """
    word = value.strip() if isinstance(value, str) else value
    if is_missing(value) or (isinstance(value, str) and word in missing):
        return math.nan
    try:
        # With another decimal point, a point may separate thousands.
        plain = decimal == "." or not isinstance(value, str)
        return float(word if plain else word.replace(".", "?").replace(decimal, "."))
    except (TypeError, ValueError, OverflowError):
        return word
