"""Copies of private rows that hold only their values, and of candidates that leave no trace.

A container may hold values of rows that are not in it: labels of an index or categories that no row
has, the memory of a larger array, the width of its longest text.
"""

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from skdpot import privacy
from skdpot.privacy.charging import is_budget_accountant
from skdpot.privacy.checks import redact_errors
from skdpot.tables import Table, make_table, objects, take_columns, take_rows

# Types of values that are kept as they are: they cannot be changed, and refer to no others.
_KEPT = {
    type(None), bool, int, float, complex, str, bytes, datetime.date, datetime.datetime,
    datetime.time, datetime.timedelta, decimal.Decimal,
    *(set(np.sctypeDict.values()) - {np.void, np.object_}),
}  # fmt: skip


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
    elif not (_library_of(rows) or isinstance(rows, np.ndarray) or _is_list(rows)):
        # Frames of unknown libraries may hold an index, or values of other rows.
        if not hasattr(rows, "__array__") or hasattr(rows, "columns"):
            raise _refused(name, type(rows).__name__)
        rows = redact_errors(lambda: np.asarray(rows), f"{name} cannot be read as an array.")
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
    library = _library_of(rows)
    if library == "pandas":
        return _pandas_copy(rows, name)
    if library == "polars":
        return _polars_copy(rows, name)
    if sparse.issparse(rows):
        if rows.ndim != 2 or rows.dtype.kind not in "biufc":
            raise _refused(name, f"{type(rows).__name__} of {rows.dtype}")
        # Made anew: a slice may keep the memory of all rows.
        kind = sparse.csr_array if isinstance(rows, sparse.sparray) else sparse.csr_matrix
        return kind((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=True)
    if isinstance(rows, np.ndarray):
        return _array_copy(rows, name)
    if rows is None:
        return None
    # A list of rows, or of values.
    return [list(map(_kept, row)) if _is_list(row) else _kept(row) for row in rows]


# What text of invented rows begins with.
WORDS = ("red wine", "green tea", "blue milk")


def stand_in(rows: Any, n_rows: int, n_labels: int | None, words: bool) -> Any:
    """Return invented rows in the container, and with the types, of private ones.

    No private value is read. Numbers are above 0. With `n_labels`, rows are so many labels in turn,
    or all categories. Objects are `words`, or numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.model_selection._copies import stand_in
    >>> stand_in(np.array(["Ann", "Bo"]), 3, 2, True)
    array(['red wine 0', 'green tea 1', 'red wine 0'], dtype='<U11')
    """
    rng = np.random.default_rng(0)
    if rows is None or not _library_of(rows):
        shape, dtype = (n_rows, *getattr(rows, "shape", ())[1:]), getattr(rows, "dtype", object)
        made = _invented(np.dtype(dtype).kind, None, shape, n_labels, words, rng)
        made = made.tolist() if _is_list(rows) else made
        return None if rows is None else type(rows)(made) if sparse.issparse(rows) else made
    none = take_rows(rows, slice(0))
    table = Table(none.to_frame() if hasattr(none, "to_frame") else none)
    dtypes = [table.dtype(j) for j in range(len(table.names))]
    columns = [
        _invented(table.kind(j), getattr(dtype, "categories", None), n_rows, n_labels, words, rng)
        for j, dtype in enumerate(dtypes)
    ]
    made = make_table(table.container, table.names, columns, dtypes)
    return take_columns(made, 0) if hasattr(none, "to_frame") else made


def _invented(
    kind: str, categories: Any, shape: Any, n_labels: int | None, words: bool, rng: Any
) -> np.ndarray:
    """Return invented values of one of NumPy's kinds, or of categories."""
    codes, numbers = rng.integers(1, 6, shape), rng.uniform(0.1, 10.0, shape)
    if n_labels is not None:
        in_turn = np.arange(len(codes)) % (len(categories) if categories is not None else n_labels)
        codes = np.resize(in_turn, codes.shape[::-1]).T
        numbers = codes.astype(np.float64)
    if categories is not None and len(categories):
        return objects(list(categories))[codes % len(categories)]
    if kind in "mM":
        return np.array(codes, dtype=f"{kind}8[D]").astype(f"{kind}8[us]")
    if kind in "US" or (kind == "O" and words):
        text = np.array([f"{WORDS[code % 3]} {code}" for code in codes.flat]).reshape(codes.shape)
        return text.astype(kind)
    return {"b": codes % 2 == 1, "i": codes, "u": codes}.get(kind, numbers)


def _refused(name: str, kind: str) -> TypeError:
    return TypeError(
        f"{name} has the type {kind}, whose rows cannot be separated from all others. Give numbers "
        "or text, in a NumPy array, SciPy matrix, list, or table of pandas or polars."
    )


def _is_list(rows: Any) -> bool:
    return isinstance(rows, Sequence) and not isinstance(rows, str | bytes)


def _library_of(rows: Any) -> str | None:
    """Return the library of a table or series, None for all others."""
    # Subclasses, such as those of geopandas, are copied as plain frames.
    for base in type(rows).__mro__:
        library = base.__module__.partition(".")[0]
        if base.__name__ in ("DataFrame", "Series") and library in ("pandas", "polars"):
            return library
    return None


def _kept(value: Any) -> Any:
    """Return a value that refers to no others, or raise."""
    kind = type(value)
    of_pandas = {"Timestamp", "Timedelta", "Period", "Interval", "NAType", "NaTType"}
    if kind in _KEPT or (kind.__module__[:6] == "pandas" and kind.__name__ in of_pandas):
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
    # The width of the longest text of all rows is a value of some row.
    if kind in "US":
        return values.astype(f"{kind}{np.char.str_len(values).max(initial=1)}", order="C")
    # Of the type by its name: the type itself may hold notes.
    copied = np.empty(values.shape, values.dtype.str)
    copied[...] = values
    return copied


def _pandas_copy(rows: Any, name: str) -> Any:
    import pandas as pd

    if isinstance(rows, pd.Series):
        return pd.Series(_pandas_column(rows, name), name=rows.name)
    labels = list(rows.columns)
    columns = [
        _pandas_column(rows.iloc[:, j], f"column {label!r} of {name}")
        for j, label in enumerate(labels)
    ]
    # By position, since names may repeat; they are public, and an index is not.
    made = pd.DataFrame(dict(enumerate(columns)), index=range(len(rows)))
    made.columns = labels
    return made


def _pandas_column(column: Any, name: str) -> Any:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return _array_copy(column.to_numpy(), name)
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        used = pd.unique(codes[codes >= 0])
        if dtype.ordered:
            used.sort()
        own = _pandas_column(pd.Series(dtype.categories.take(used)), name)
        # Categories without an order are sorted, as far as they can be.
        own = pd.Categorical(own, categories=own if dtype.ordered else None, ordered=dtype.ordered)
        # The last one is that of missing values.
        renumbered = np.full(len(dtype.categories) + 1, -1)
        renumbered[used] = own.codes
        return pd.Categorical.from_codes(renumbered[codes], dtype=own.dtype)
    # Types of Arrow may be nested, or have a dictionary of labels that other rows have.
    nested = isinstance(dtype, pd.ArrowDtype) and dtype.kind not in "biufmMU"
    foreign = type(dtype).__module__.partition(".")[0] != "pandas"
    if nested or foreign or isinstance(dtype, pd.SparseDtype):
        raise _refused(name, str(dtype))
    return pd.array(column.tolist(), dtype=dtype)


def _polars_copy(rows: Any, name: str) -> Any:
    import polars as pl

    if isinstance(rows, pl.Series):
        return _polars_column(rows, name)
    return pl.DataFrame(
        [_polars_column(column, f"column {column.name!r} of {name}") for column in rows]
    )


def _polars_column(column: Any, name: str) -> Any:
    import polars as pl

    dtype = column.dtype
    # Python's times have no nanoseconds.
    values = column.to_physical() if dtype.is_temporal() else column
    if isinstance(dtype, pl.Categorical | pl.Enum):
        values = column.cast(pl.String)
        used = set(values.drop_nulls())
        # An Enum declares its order; a Categorical has that in which the process has seen its
        # labels.
        labels = dtype.categories if isinstance(dtype, pl.Enum) else sorted(used)
        dtype = pl.Enum([label for label in labels if label in used])
    elif not (
        dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.Boolean, pl.String, pl.Null)
    ):
        raise _refused(name, str(dtype))
    return pl.Series(column.name, values.to_list(), dtype=values.dtype).cast(dtype)


def make_trial(candidate: Any) -> Any:
    """Return a copy of a candidate that charges no ledger, prints nothing and keeps no files.

    It is fitted on a part of one block. Noise on its scores covers everything that it computes from
    its block: the search pays for its charges, and the length of a ledger or of printed text would
    reveal how many candidates there were.
    """
    trial = clone(candidate)
    for part in [trial, *trial.get_params(deep=True).values()]:
        # Callbacks of scikit-learn may show or keep what they are told.
        if hasattr(part, "set_callbacks") and not isinstance(part, type):
            part.set_callbacks()
    changes: dict[str, Any] = {}
    for path, value in trial.get_params(deep=True).items():
        name = path.rpartition("__")[2]
        # A cache on disk would keep models of blocks.
        if name in ("ledger", "memory"):
            changes[path] = None
        elif name == "accountant":
            # diffprivlib's models would charge the default one otherwise.
            changes[path] = privacy.BudgetAccountant()
        elif name == "verbose" and value:
            changes[path] = False
        elif not hasattr(value, "get_params"):
            changes[path] = _charging_nobody(value)
    return trial.set_params(**changes)


def _charging_nobody(value: Any) -> Any:
    """Return a parameter's value without ledgers, also within containers such as a grid."""
    if isinstance(value, privacy.PrivacyLedger):
        return None
    if is_budget_accountant(value):
        return privacy.BudgetAccountant()
    if type(value) is dict:
        return {key: _charging_nobody(inside) for key, inside in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_charging_nobody, value))
    if hasattr(value, "get_params") and not isinstance(value, type):
        return make_trial(value)
    return value
