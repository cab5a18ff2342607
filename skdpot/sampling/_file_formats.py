"""Formats of the files of users, and of their samples."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

_SUFFIXES = (".npy", ".npz", ".parquet")


def read_users(path: str, n_columns: int, names: Any = None) -> Any:
    """Return the data of the users in a file, one row per user.

    Parameters
    ----------
    path : str
        Ends with ".npy" (an array), ".npz" (a sparse matrix by SciPy, or a single array), or
        ".parquet".
    n_columns : int
        How many columns sparse rows have that a Parquet file holds as lists.
    names : sequence of str, default=None
        Columns of a Parquet file that are read, in this order; None reads all.

    Returns
    -------
    {ndarray, sparse matrix} of shape (n_users, n_features)
        With two columns of lists in a Parquet file, the first holds a user's numbers of columns,
        and the second her weights there.
    """
    suffix = Path(path).suffix
    if suffix == ".parquet":
        return _read_parquet(path, n_columns, names)
    if suffix == ".npy":
        return np.load(path, allow_pickle=False)
    with np.load(path, allow_pickle=False) as arrays:
        if "format" not in arrays and len(arrays.files) == 1:
            return arrays[arrays.files[0]]
    return sparse.load_npz(path)


def _read_parquet(path: str, n_columns: int, names: Any) -> Any:
    from pyarrow import parquet, types

    table = parquet.read_table(path, columns=None if names is None else list(names))
    lists = [types.is_list(kind) or types.is_large_list(kind) for kind in table.schema.types]
    if lists == [True, True]:
        return _rows_of_lists(n_columns, *(column.combine_chunks() for column in table.columns))
    if len(lists) != n_columns:
        raise ValueError(
            f"the file has {len(lists)} columns, and fit had {n_columns} without names. Fit to "
            "columns with names of text, as by X.rename(columns=str): they are read by name."
        )
    return np.column_stack([column.to_numpy() for column in table.columns])


def _rows_of_lists(n_columns: int, columns: Any, weights: Any) -> sparse.csr_array:
    """Return sparse rows from lists of columns and lists of weights, one pair per user."""
    starts = columns.offsets.to_numpy()
    if columns.null_count or not np.array_equal(starts, weights.offsets.to_numpy()):
        raise ValueError(
            "the two columns of lists do not go together: each user needs as many numbers of "
            "columns as weights, and no list may be missing."
        )
    # A slice of a longer array keeps its offsets.
    indices = columns.values.to_numpy()[starts[0] : starts[-1]]
    data = weights.values.to_numpy()[starts[0] : starts[-1]]
    shape = (len(starts) - 1, n_columns)
    return sparse.csr_array((data, indices, starts - starts[0]), shape=shape)


def write_samples(samples: np.ndarray, path: str) -> None:
    """Write samples to a file, one row per user.

    Parameters
    ----------
    samples : ndarray of shape (n_users, n_samples) or (n_users, n_samples, n_features)
        The result of `sample`.
    path : str
        Ends with ".npy", ".npz" (the array "samples") or ".parquet" (columns "sample_0", ...).
    """
    suffix = Path(path).suffix
    if suffix == ".npy":
        np.save(path, samples)
    elif suffix == ".npz":
        np.savez(path, samples=samples)
    else:
        _write_parquet(samples, path)


def _write_parquet(samples: np.ndarray, path: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        f"sample_{k}": pa.array(column)
        if column.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])
        for k, column in enumerate(np.moveaxis(samples, 1, 0))
    }
    parquet.write_table(pa.table(columns), path)


def check_suffixes(paths: list[str], parameter: str) -> None:
    """Raise unless all files have a known format; Parquet needs pyarrow."""
    suffixes = {Path(path).suffix for path in paths}
    unknown = sorted(suffixes.difference(_SUFFIXES))
    if unknown:
        raise ValueError(
            f"files end with {', '.join(_SUFFIXES)}; for {', '.join(map(repr, unknown))}, pass a "
            f"function as {parameter}."
        )
    if ".parquet" in suffixes and find_spec("pyarrow") is None:
        raise ImportError('Parquet files need pyarrow: pip install "skdpot[dask]".')
