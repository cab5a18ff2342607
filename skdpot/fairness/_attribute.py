"""The sensitive attribute: where it is given, and the label of every row."""

import math
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.tables import Table, is_missing, no_column_said, objects, plain_values


def split_attribute(
    table: Table,
    columns: Any,
    beside: Any,
    *,
    estimator_name: str,
    private: bool = False,
    may_miss: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of every row, and which columns are not the sensitive attribute.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
        The data.
    columns : str, int, or list of these, or None
        The columns that hold the attribute: names, for data frames, or positions.
    beside : array-like of shape (n_samples,[ n_attributes]) or None
        The attribute itself, if it was given beside the data.
    estimator_name : str
        Who asks, for errors.
    private : bool, default=False
        Whether labels are private: then none of them raises, whatever it is.
    may_miss : bool, default=False
        Whether labels may be missing, for some rows or altogether; they are None then.

    Returns
    -------
    labels : ndarray of shape (n_samples,), dtype=object
        A scalar of Python for one attribute, a tuple of scalars for several.
    kept : ndarray of shape (n_kept,)
        Positions of the other columns, in order.

    Examples
    --------
    >>> from skdpot.fairness._attribute import split_attribute
    >>> from skdpot.tables import Table
    >>> table = Table([["f", 1.5, "b"], ["m", 2.5, "b"]])
    >>> labels, kept = split_attribute(table, [0, 2], None, estimator_name="Estimator")
    >>> labels.tolist(), kept.tolist()
    ([('f', 'b'), ('m', 'b')], [1])
    """
    if columns is not None and beside is not None:
        raise ValueError(
            f"{estimator_name} was given the sensitive attribute twice: as columns of X, by its "
            "parameter sensitive_features, and beside X. Give one of them."
        )
    if columns is not None:
        positions = attribute_positions(table, columns)
        values = [table.column(j).tolist() for j in positions]
        labels = _combined(values, check=not private, may_miss=may_miss)
        return labels, np.setdiff1d(np.arange(table.X.shape[1]), positions)
    if beside is None and may_miss:
        beside = [None] * len(table)
    if beside is None:
        raise ValueError(
            f"{estimator_name} needs the sensitive attribute of every row: name its columns of X "
            "by the parameter sensitive_features, or pass sensitive_features= beside X."
        )
    labels = read_labels(beside, check=not private, may_miss=may_miss)
    if len(labels) != len(table):
        raise ValueError(
            f"sensitive_features has {len(labels)} rows, and X has {len(table)}; they must agree."
        )
    return labels, np.arange(table.X.shape[1] if len(table.X.shape) == 2 else 0)


def attribute_positions(table: Table, columns: Any) -> list[int]:
    """Return the positions of columns that are given by names or positions."""
    shape = table.X.shape
    if len(shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(shape)}D array instead, which has no columns to hold a "
            "sensitive attribute. Reshape your data using array.reshape(-1, 1) if it is a single "
            "feature."
        )
    if shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required."
        )
    columns = [columns] if np.ndim(columns) == 0 else list(columns)
    positions = [_position(table, column) for column in columns]
    if not positions or len(set(positions)) < len(positions):
        raise ValueError(
            "sensitive_features must name one column of X, or several different ones, got "
            f"{columns!r}."
        )
    return positions


def read_labels(
    values: Any, name: str = "sensitive_features", *, check: bool = True, may_miss: bool = False
) -> np.ndarray:
    """Return the label of every row of one attribute, or the tuple of its labels of several.

    `name` is what errors call them. Without `check` only the shape can raise; with it labels that
    are missing, infinite or lists do, too. With `may_miss`, missing ones are None.

    Examples
    --------
    >>> from skdpot.fairness._attribute import read_labels
    >>> read_labels(["a", 1, "a"]).tolist(), read_labels([["a", 1], ["b", 2]]).tolist()
    (['a', 1, 'a'], [('a', 1), ('b', 2)])
    """
    if not hasattr(values, "shape") and not np.isscalar(values) and values is not None:
        if not check:
            return objects([_label_of_row(row) for row in values])
        values = np.asarray(list(values), dtype=object)
    shape = np.shape(values)
    if len(shape) == 1:
        return _combined([plain_values(values).tolist()], name, check, may_miss)
    if len(shape) == 2 and shape[1] > 0:
        table = Table(values)
        found = [table.column(j).tolist() for j in range(shape[1])]
        return _combined(found, name, check, may_miss)
    raise ValueError(
        f"{name} must have one label, or one row of labels, for every row of X; got an object of "
        f"shape {shape}."
    )


def _position(table: Table, column: Any) -> int:
    """Return where a column is in a table, given its name or its position."""
    n_columns = table.X.shape[1]
    if isinstance(column, Integral) and not isinstance(column, bool | np.bool_):
        if not -n_columns <= column < n_columns:
            raise ValueError(
                f"sensitive_features has the position {column}, and X has {n_columns} columns."
            )
        return int(column) % n_columns
    if not isinstance(column, str):
        raise ValueError(
            f"sensitive_features must be names or positions of columns of X, got {column!r}."
        )
    if table.container == "array":
        raise ValueError(
            f"sensitive_features has the name {column!r}, and X is no data frame with names of "
            "columns. Use positions; or, in a pipeline, set_output(transform='pandas')."
        )
    places = [j for j, name in enumerate(table.names) if name == column]
    if not places:
        raise ValueError(
            f"sensitive_features has the name {column!r}. {no_column_said(column, table.names)}"
        )
    if len(places) > 1:
        raise ValueError(
            f"sensitive_features has the name {column!r}, which {len(places)} columns of X have, "
            "instead of one."
        )
    return places[0]


def _combined(
    columns: list[list[Any]],
    name: str = "sensitive_features",
    check: bool = True,
    may_miss: bool = False,
) -> np.ndarray:
    """Return the labels of the intersections of columns, or raise where one is no label."""
    if may_miss:
        columns = [[None if is_missing(value) else value for value in one] for one in columns]
    for column in columns if check else ():
        try:
            different = set(column)
        except TypeError as error:
            raise TypeError(
                f"{name} holds what cannot be a label: the argument must be a string, a number, or "
                "the like."
            ) from error
        if any(_is_no_label(value) for value in different - ({None} if may_miss else set())):
            raise ValueError(
                f"{name} contains NaN, infinity or nothing at all for some rows, which are then in "
                "no group. Remove these rows, or give them a label."
            )
    if len(columns) == 1:
        return objects(columns[0])
    return objects(list(zip(*columns, strict=True)))


def _is_no_label(value: Any) -> bool:
    return (isinstance(value, float) and not math.isfinite(value)) or is_missing(value)


def _label_of_row(row: Any) -> Any:
    """Return the label in an entry of a list, whatever the other entries are."""
    if isinstance(row, list | tuple) or (isinstance(row, np.ndarray) and row.ndim == 1):
        attributes = tuple(plain_values(row).tolist())
        return attributes[0] if len(attributes) == 1 else attributes
    return plain_values([row])[0]
