"""Files of tables, .csv or .parquet: the reading and writing of declared columns."""

import csv
import datetime
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy.quotes import without_quotes
from skdpot.tables._column import NUMERIC, Column
from skdpot.tables._containers import Table, labels_in
from skdpot.tables._declarations import is_missing, objects
from skdpot.tables._schema import TableSchema

SUFFIXES = (".csv", ".parquet")
# Texts that stand for a missing value, unless they are declared labels.
_MISSING = frozenset(
    ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "NaT")
)
# Number of rows that are held as text at once.
_ROWS_AT_ONCE = 65_536


def read_table_file(
    path: str | os.PathLike[str], schema: TableSchema, *, may_have_others: bool = False
) -> list[np.ndarray]:
    """Return the declared columns of a private file, in the order of the schema, or raise.

    Texts become the declared numbers or labels: "1", "1.0" and "01" are the label 1, and "TRUE" is
    True. Errors quote no value.

    Parameters
    ----------
    path : str or path-like
        A file that ends with .csv (UTF-8, with names of columns in its first line) or .parquet,
        which needs pyarrow.
    schema : TableSchema
        The declarations of the columns.
    may_have_others : bool, default=False
        Whether the file may have columns that are not declared. They are left out.

    Returns
    -------
    list of ndarray
        Numbers are doubles, with NaN for missing ones; others are objects, with None.

    Raises
    ------
    ImportError
        If pyarrow is needed, and is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If the file holds no such table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.tables import read_schema, read_table_file
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "table.csv"
    ...     _ = path.write_text("age,retired\\n30,false\\n,TRUE\\n")
    ...     read_table_file(path, read_schema({"retired": [False, True], "age": range(120)}))
    [array([False, True], dtype=object), array([30., nan])]
    """
    path = Path(path)
    if suffix_of(path) == ".parquet":
        return _read_parquet(path, schema, may_have_others)
    problem = ""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file, skipinitialspace=True)
            return _read_text(lines, schema, may_have_others)
    except UnicodeDecodeError:
        problem = "it is no text in UTF-8"
    except csv.Error:
        problem = "a line cannot be split into fields"
    # Raised outside of the handlers, so that an error that quotes values is not its context.
    raise ValueError(f"{path.name} cannot be read as a CSV file: {problem}.")


def read_header(path: str | os.PathLike[str]) -> Any:
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

    path, problem = Path(path), ""
    if suffix_of(path) == ".parquet":
        try:
            return _parquet().read_schema(path).empty_table().to_pandas()
        except OSError:
            raise
        except Exception:
            problem = f"{path.name} cannot be read as a Parquet file."
    else:
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                header = next(csv.reader(file, skipinitialspace=True), [])
            names = [name.strip() for name in header]
            if _may_be_names(names):
                return pandas.DataFrame(columns=names, dtype=object)
            problem = (
                f"the first line of {path.name} must have the names of the columns, but some are "
                "numbers or occur twice. If it is a record, add a line of names above."
            )
        except (UnicodeDecodeError, csv.Error):
            problem = f"{path.name} cannot be read as a CSV file."
    raise ValueError(problem)


def write_table_file(path: str | os.PathLike[str], names: Sequence[Any], table: Any) -> None:
    """Write a table to a file that ends with .csv or .parquet; an existing one is replaced.

    Missing values are empty fields of a CSV file. Parquet files need pyarrow.
    """
    read, path = Table(table), Path(path)
    columns = [read.column(j) for j in range(len(names))]
    if suffix_of(path) == ".parquet":
        _write_parquet(path, names, columns)
        return
    fields = [_fields(column.tolist()) for column in columns]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*fields, strict=True))


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return ".csv" or ".parquet", which needs pyarrow, or raise."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{Path(path).name} must end with {' or '.join(SUFFIXES)}.")
    if suffix == ".parquet":
        _parquet()
    return suffix


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError(".parquet files need pyarrow: python -m pip install pyarrow.") from None
    return parquet


def _fields(values: list[Any]) -> list[Any]:
    """Return values for a CSV file; times that are all at midnight are written as days."""
    present = [value for value in values if not is_missing(value)]
    if present and all(isinstance(value, datetime.datetime) for value in present):
        days = all(value.time() == datetime.time.min for value in present)
        values = [
            None if is_missing(value) else (value.date() if days else value.replace(tzinfo=None))
            for value in values
        ]
    return ["" if is_missing(value) else value for value in values]


def _read_parquet(path: Path, schema: TableSchema, may_have_others: bool) -> list[np.ndarray]:
    arrow = _parquet()
    try:
        file = arrow.ParquetFile(path)
        header = file.schema_arrow.names
        named = [str(name) for name in schema.names if str(name) in header]
        table = file.read(columns=named)
    except OSError:
        raise
    except Exception:
        table = None
    if table is None:
        raise ValueError(f"{path.name} cannot be read as a Parquet file.")
    _places(header, schema, may_have_others)
    return [
        _as_column(_values_of(table, column, _reader(column), path.name))
        for column in schema.columns
    ]


def _values_of(table: Any, column: Column, reader: Callable[[Any], Any], name: str) -> list[Any]:
    """Return the values of an Arrow column, or raise; a year out of range is not quoted."""
    return without_quotes(
        lambda: [reader(value) for value in table.column(str(column.name)).to_pylist()],
        f"{name} has values in column {column.name!r} that are no numbers, texts or dates.",
    )


def _write_parquet(path: Path, names: Sequence[Any], columns: list[np.ndarray]) -> None:
    import pyarrow

    arrays = [_arrow_array(pyarrow, labels_in(column).tolist()) for column in columns]
    _parquet().write_table(pyarrow.table(arrays, names=[str(name) for name in names]), path)


def _arrow_array(pyarrow: Any, values: list[Any]) -> Any:
    """Return values as a pyarrow array: as text if they have several types."""
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return pyarrow.array([None if value is None else str(value) for value in values])


def _read_text(
    lines: Iterator[list[str]], schema: TableSchema, may_have_others: bool
) -> list[np.ndarray]:
    """Return the columns of split lines, or raise."""
    header = next(lines, [])
    places = _places(header, schema, may_have_others)
    readers = [_reader(column) for column in schema.columns]
    columns: list[list[Any]] = [[] for _ in readers]
    rows = (line for line in lines if line)
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        if any(len(row) != len(header) for row in chunk):
            raise ValueError(
                f"the file has lines with more or fewer fields than its {len(header)} names."
            )
        fields = list(zip(*chunk, strict=True))
        for values, place, reader in zip(columns, places, readers, strict=True):
            values.extend(map(reader, fields[place]))
    return list(map(_as_column, columns))


def _places(header: list[str], schema: TableSchema, may_have_others: bool) -> list[int]:
    """Return the positions of a schema's columns in a file, or raise."""
    header = [name.strip() for name in header]
    names = [str(name).strip() for name in schema.names]
    twice = sorted({name for name in names if header.count(name) > 1})
    lacking = [name for name in names if name not in header]
    if twice or lacking:
        wrong = [f"it lacks the columns {lacking} of the schema"] if lacking else []
        wrong += [f"it has the columns {twice} more than once"] if twice else []
        raise ValueError(f"the table is not the declared one: {'; '.join(wrong)}.")
    # A first line that has all names of the schema consists of names, and not of private values.
    declared = {str(column.name).strip() for column in schema.declared}
    others = [name for name in header if name not in declared]
    if others and not may_have_others:
        raise ValueError(
            f"the table has columns that the schema does not declare: {others}. Declare them, or "
            "leave them out with --leave-out-others."
        )
    return [header.index(name) for name in names]


def _as_column(values: Iterable[Any]) -> np.ndarray:
    """Return doubles if all values are numbers, else objects, which the schema checks."""
    listed = list(values)
    if all(type(value) is float for value in listed):
        return np.array(listed, dtype=np.float64)
    return objects([None if is_missing(value) else value for value in listed])


def _reader(column: Column) -> Callable[[Any], Any]:
    """Return the function that converts a file's text to a value of a column."""
    if column.kind == NUMERIC:
        return _number
    # Blanks around a text do not belong to it.
    label_of_text = {str(label).strip(): label for label in column.values}
    if len(label_of_text) < len(column.values):
        raise ValueError(
            f"column {column.name!r} has labels that look the same in a file: they differ only by "
            "blanks around them or by type, such as 1 and '1'. Declare one of each."
        )
    label_of_number = {
        float(label): label
        for label in column.values
        if isinstance(label, Real) and not isinstance(label, bool)
    }
    label_of_bool = {
        str(label).lower(): label for label in column.values if isinstance(label, bool)
    }
    memory: dict[Any, Any] = {}

    def label_of(value: Any) -> Any:
        if value not in memory:
            memory[value] = _label(value, label_of_text, label_of_number, label_of_bool)
        return memory[value]

    return label_of


def _may_be_names(texts: list[str]) -> bool:
    """Tell whether texts are distinct and none is a number; one may be empty."""
    numbers = [number for number in map(_number, texts) if isinstance(number, float)]
    return len(set(texts)) == len(texts) and all(map(math.isnan, numbers))


def _number(value: Any) -> Any:
    """Return a double, or the text if it is no number, such as a date."""
    if is_missing(value) or (isinstance(value, str) and value.strip() in _MISSING):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return value.strip() if isinstance(value, str) else value


def _label(value: Any, texts: dict, numbers: dict, flags: dict) -> Any:
    """Return the declared label for a value of a file, or the value itself."""
    if not isinstance(value, str):
        return None if is_missing(value) else value
    word = value.strip()
    if word in texts:
        return texts[word]
    if word.lower() in flags:
        return flags[word.lower()]
    if word in _MISSING:
        return None
    try:
        return numbers.get(float(word), word)
    except ValueError:
        return word
