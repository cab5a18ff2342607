"""Copies of private rows that hold only their values, and invented rows of the same types.

A container may hold values of rows that are not in it: labels of an index or categories that no row
has, the memory of a larger array, the width of its longest text.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from skdpot.privacy.checks import redact_errors
from skdpot.tables import Table, is_plain, library_of, make_table, objects, take_columns, take_rows

# Types of tables that are copied; subclasses, such as those of geopandas, as plain ones.
_FRAMES = ("DataFrame", "Series")


def as_rows(rows: Any, name: str) -> Any:
    """Return private rows in a container that `copy_of` copies, or raise.

    Only types decide. Other arrays become NumPy arrays; other containers raise a TypeError.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.model_selection._copies import as_rows
    >>> as_rows(np.ma.masked_array([1.0, 2.0]), "y")
    Traceback (most recent call last):
    TypeError: y has the type MaskedArray of float64, whose rows cannot be separated from ...
    """
    if rows is None:
        return None
    if sparse.issparse(rows):
        # Other formats cannot be divided by rows.
        rows = rows.tocsr()
    elif library_of(type(rows), _FRAMES) == "array" and not _is_list(rows):
        # Frames of unknown libraries may hold an index, or values of other rows.
        if not hasattr(rows, "__array__") or hasattr(rows, "columns"):
            raise _refused(name, type(rows).__name__)
        rows = redact_errors(lambda: np.asanyarray(rows), f"{name} cannot be read as an array.")
    # Without a row, types alone decide whether it is refused: this happens before the charge.
    copy_of(take_rows(rows, slice(0)), name)
    return rows


def copy_of(rows: Any, name: str = "X") -> Any:
    """Return a copy of rows in the container of `as_rows`, made of their values alone.

    Numbers of rows are their only names. Categories are those that the rows have: in the declared
    order if it has a meaning. Raises a TypeError if an object is no plain value.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.model_selection._copies import copy_of
    >>> of_people = pd.Series(["b", "a", "c"], index=["Ann", "Bo", "Cy"], dtype="category")
    >>> copy_of(of_people[:2])
    0    b
    1    a
    dtype: category
    Categories (2, ...): ['a', 'b']
    """
    of_frames = {"pandas": _pandas_copy, "polars": _polars_copy}
    if (library := library_of(type(rows), _FRAMES)) in of_frames:
        return of_frames[library](rows, name)
    if sparse.issparse(rows):
        if rows.ndim != 2 or rows.dtype.kind not in "biufc":
            raise _refused(name, f"{type(rows).__name__} of {rows.dtype}")
        # Made anew: a slice may keep the memory of all rows.
        kind = sparse.csr_array if isinstance(rows, sparse.sparray) else sparse.csr_matrix
        return kind((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=True)
    if isinstance(rows, np.ndarray):
        return _array_copy(rows, name)
    # A list of rows, or of values.
    return [list(map(_kept, row)) if _is_list(row) else _kept(row) for row in rows]


# Texts of invented rows: words, and numbers that are written as text.
WORDS = tuple(f"invented {letter}" for letter in "abcdefghij")
DIGITS = ("1", "2", "3")


def stand_in(
    rows: Any, n_rows: int, n_labels: int | None, words: bool, texts: Sequence[str], scale: float
) -> Any:
    """Return invented rows in the container, and with the types, of private ones.

    No private value is read. Numbers are above 0, and with another `scale` than 1 of other sizes,
    and all different. With `n_labels`, rows are this many labels in turn, or all categories.
    Objects, and lists, are `words` or numbers. Without `texts` all are numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.model_selection._copies import WORDS, stand_in
    >>> stand_in(np.array(["Ann", "Bo"]), 3, 2, True, WORDS, 1.0)
    array(['invented a', 'invented b', 'invented a'], dtype='<U10')
    """
    rng, shape = np.random.default_rng(0), (n_rows, *getattr(rows, "shape", [0])[1:])

    def invented(kind: str, labels: Any = (), shape: Any = (n_rows,)) -> Any:
        codes = rng.integers(1, 6, shape)
        if n_labels:
            codes = np.resize(np.arange(n_rows) % (len(labels) or n_labels), shape[::-1]).T
            # Where numbers stand for text, labels are others: an error may name those that lack.
            codes = codes + (kind in "iuf" and not texts)
        elif scale != 1:
            codes = np.arange(1, codes.size + 1).reshape(shape)
        if texts and (labels or kind in "US" or (kind in "OV" and words)):
            text = labels or texts
            return np.array(text, kind if kind in "US" else "O")[codes % len(text)]
        if kind in "mM":
            return codes.astype(f"{kind}8[D]").astype(f"{kind}8[us]")
        numbers = rng.uniform(0.1, 10.0, shape) * scale
        return codes if n_labels or labels or kind in "iuUS" else numbers

    if library_of(type(rows), _FRAMES) == "array":
        made = invented(getattr(rows, "dtype", np.dtype("O")).kind, shape=shape)
        return type(rows)(made) if sparse.issparse(rows) else made
    none = take_rows(rows, slice(0))
    table = Table(none.to_frame() if len(shape) == 1 else none)
    types = [table.dtype(j) for j in range(len(table.names))]
    labels = [list(getattr(each, "categories", ())) for each in types]
    columns = [invented(table.kind(j), of) for j, of in enumerate(labels)]
    made = make_table(table.container, table.names, columns, types)
    return take_columns(made, 0) if len(shape) == 1 else made


def _refused(name: str, kind: str) -> TypeError:
    return TypeError(
        f"{name} has the type {kind}, whose rows cannot be separated from all others. Give numbers "
        "or text, in a NumPy array, SciPy matrix, list, or table of pandas or polars."
    )


def _is_list(rows: Any) -> bool:
    return isinstance(rows, Sequence) and not isinstance(rows, str | bytes)


def _kept(value: Any) -> Any:
    """Return a value that refers to no others, or raise."""
    if is_plain(value):
        return value
    # A list or dictionary in a cell may hold rows of others, as do objects of any other type.
    raise TypeError("an object may refer to other records")


def _array_copy(values: np.ndarray, name: str) -> np.ndarray:
    kind = values.dtype.kind
    if isinstance(values, np.ma.MaskedArray) or kind not in "biufcmMUSO":
        raise _refused(name, f"{type(values).__name__} of {values.dtype}")
    values = np.asarray(values)
    if kind == "O":
        return objects(map(_kept, values.ravel())).reshape(values.shape)
    # Of the type by its name: the type itself may hold notes. The width of the longest text of all
    # rows is a value of some row.
    width = np.char.str_len(values).max(initial=1) if kind in "US" else 0
    return values.astype(f"{kind}{width}" if width else values.dtype.str, order="C")


def _pandas_copy(rows: Any, name: str) -> Any:
    import pandas as pd

    if isinstance(rows, pd.DataFrame):
        # By position, since names may repeat; they are public, and an index is not.
        columns = [_pandas_copy(v, f"column {label!r} of {name}") for label, v in rows.items()]
        made = pd.DataFrame(dict(enumerate(columns)), index=range(len(rows)))
        return made.set_axis(list(rows.columns), axis=1)
    dtype = rows.dtype
    if isinstance(dtype, np.dtype):
        return pd.Series(_array_copy(rows.to_numpy(), name), name=rows.name)
    if isinstance(dtype, pd.CategoricalDtype):
        used = rows.dropna().drop_duplicates()
        used = used.sort_values() if dtype.ordered else used
        own = _pandas_copy(used.astype(dtype.categories.dtype), name).array
        # Categories without an order are sorted, as far as they can be.
        own = pd.Categorical(own, categories=own if dtype.ordered else None, ordered=dtype.ordered)
        # Not by pandas, which keeps in the new categories whether there were others.
        number = {label: code for code, label in enumerate(own.categories)}
        codes = [number.get(label, -1) for label in rows.tolist()]
        return pd.Series(pd.Categorical.from_codes(codes, dtype=own.dtype), name=rows.name)
    # Types of Arrow may be nested, or have a dictionary of labels that other rows have.
    nested = isinstance(dtype, pd.ArrowDtype) and dtype.kind not in "biufmMU"
    foreign = type(dtype).__module__.partition(".")[0] != "pandas"
    if nested or foreign or isinstance(dtype, pd.SparseDtype):
        raise _refused(name, str(dtype))
    return pd.Series(rows.tolist(), dtype=dtype, name=rows.name)


def _polars_copy(rows: Any, name: str) -> Any:
    import polars as pl

    if isinstance(rows, pl.DataFrame):
        return pl.DataFrame([_polars_copy(v, f"column {v.name!r} of {name}") for v in rows])
    column, dtype, plain = rows, rows.dtype, (pl.Boolean, pl.String, pl.Null)
    # Python's times have no nanoseconds.
    values = column.to_physical() if dtype.is_temporal() else column
    if isinstance(dtype, pl.Categorical | pl.Enum):
        values = column.cast(pl.String)
        used = set(values.drop_nulls())
        # An Enum declares its order; a Categorical has that in which the process has seen its
        # labels.
        labels = dtype.categories if isinstance(dtype, pl.Enum) else sorted(used)
        dtype = pl.Enum([label for label in labels if label in used])
    elif not (dtype.is_numeric() or dtype.is_temporal() or dtype in plain):
        raise _refused(name, str(dtype))
    return pl.Series(column.name, values.to_list(), dtype=values.dtype).cast(dtype)
