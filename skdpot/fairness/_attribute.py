"""The sensitive attribute: its place in the data, and the label of every row."""

import math
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.fairness._private_cells import refuse_other_labels, type_of
from skdpot.privacy.quotes import shown
from skdpot.tables import Table, is_missing, no_such_column, objects, plain_values

# Default advice for missing labels.
_LEAVE_OUT = "Leave out these rows, or give them their own label, such as 'unknown'."


def split_attribute(
    reader: Any,
    table: Table,
    beside: Any,
    *,
    private: bool = False,
    may_miss: bool = False,
    remedy: str = _LEAVE_OUT,
    declared: Any = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of every row, and the positions of the other columns.

    The columns that the parameter `sensitive_features` of the `reader` names hold the attribute, or
    `beside` has it. Labels are scalars of Python for one attribute, and tuples of scalars for
    several. Invalid `private` labels do not raise, and errors count no rows. With `may_miss` labels
    may be missing, and are None. `remedy` is the advice of errors about rows with a missing label.
    Types that no label of a `declared` group has raise.

    Examples
    --------
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness._attribute import split_attribute
    >>> from skdpot.tables import Table
    >>> table = Table([["f", 1.5, "b"], ["m", 2.5, "b"]])
    >>> labels, kept = split_attribute(FairBarycenterPreprocessor([0, 2]), table, None)
    >>> labels.tolist(), kept.tolist()
    ([('f', 'b'), ('m', 'b')], [1])
    """
    columns, reader_name = reader.sensitive_features, type(reader).__name__
    if columns is not None and beside is not None:
        raise ValueError(
            f"{reader_name} was given the sensitive attribute twice: as columns of X, by its "
            "parameter sensitive_features, and beside X. Give one of them."
        )
    if columns is not None:
        positions = attribute_positions(table, columns)
        _refuse_other_types([type_of(table, j) for j in positions], declared)
        values = [table.column(j).tolist() for j in positions]
        labels = _combined(values, check=not private)
        if not may_miss:
            names = [f"the sensitive attribute {table.names[j]!r}" for j in positions]
            _refuse_missing(labels, names, remedy, counted=not private)
        return labels, np.setdiff1d(np.arange(table.X.shape[1]), positions)
    if beside is None:
        raise ValueError(
            f"{reader_name} needs the sensitive attribute of every row: name its columns of X "
            "by the parameter sensitive_features, or pass sensitive_features= beside X."
        )
    _refuse_other_types([getattr(beside, "dtype", None)], declared)
    labels = read_labels(beside, check=not private, may_miss=may_miss, remedy=remedy)
    if len(labels) != len(table):
        raise ValueError(
            f"sensitive_features has {len(labels)} rows, and X has {len(table)}; they must agree."
        )
    return labels, np.arange(table.X.shape[1] if len(table.X.shape) == 2 else 0)


def _refuse_other_types(dtypes: list[Any], declared: Any) -> None:
    """Raise if types of attributes show that no row is in a declared group."""
    groups = [label if isinstance(label, tuple) else (label,) for label in declared]
    for dtype, labels in zip(dtypes, zip(*groups, strict=False), strict=False):
        refuse_other_labels(dtype, labels, "sensitive_features")


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
    values: Any,
    name: str = "sensitive_features",
    *,
    check: bool = True,
    may_miss: bool = False,
    remedy: str = _LEAVE_OUT,
) -> np.ndarray:
    """Return the label of every row, or the tuple of its labels for several attributes.

    Missing labels are None, and raise unless they are allowed. With `check`, infinite labels and
    lists raise as well; without it, errors do not count rows. Errors use `name` for the labels, and
    `remedy` as the advice about missing ones.

    Examples
    --------
    >>> from skdpot.fairness._attribute import read_labels
    >>> read_labels(["a", 1, "a"]).tolist(), read_labels([["a", 1], ["b", 2]]).tolist()
    (['a', 1, 'a'], [('a', 1), ('b', 2)])
    """
    if not hasattr(values, "shape") and not np.isscalar(values) and values is not None:
        rows = [_label_of_row(row) for row in values] if not check else list(values)
        values = objects(rows) if not check else np.asarray(rows, dtype=object)
    shape, names = np.shape(values), [name]
    if len(shape) == 1:
        labels = _combined([plain_values(values).tolist()], name, check)
    elif len(shape) == 2 and shape[1] > 0:
        table = Table(values)
        labels = _combined([table.column(j).tolist() for j in range(shape[1])], name, check)
        if shape[1] > 1:
            names = [f"column {column!r} of {name}" for column in table.names]
    else:
        raise ValueError(
            f"{name} must have one label, or one row of labels, for every row of X; got an object "
            f"of shape {shape}. An estimator takes the name of a column in its constructor."
        )
    if not may_miss:
        _refuse_missing(labels, names, remedy, counted=check)
    return labels


def is_unlabelled(label: Any) -> bool:
    """Tell whether a label, or one of the labels in a tuple, is missing.

    Examples
    --------
    >>> from skdpot.fairness._attribute import is_unlabelled
    >>> [is_unlabelled(label) for label in (None, ("a", None), "", ("a", 1))]
    [True, True, False, False]
    """
    return label is None or (isinstance(label, tuple) and any(part is None for part in label))


def _refuse_missing(labels: np.ndarray, names: list[str], remedy: str, *, counted: bool) -> None:
    """Raise if labels are missing, and name the attribute and the number of rows."""
    for place, name in enumerate(names):
        parts = labels.tolist() if len(names) == 1 else [label[place] for label in labels.tolist()]
        missing = [i for i, part in enumerate(parts) if part is None]
        if not missing:
            continue
        where = "some rows"
        if counted:
            where = f"{len(missing)} of {len(parts)} rows, the first at position {missing[0]}"
        raise ValueError(
            f"{name} contains NaN or None: it is missing in {where}, so that these are in no "
            f"group. {remedy}"
        )


def _position(table: Table, column: Any) -> int:
    """Return the position of a column, given its name or its position."""
    n_columns = table.X.shape[1]
    if isinstance(column, Integral) and not isinstance(column, bool | np.bool_):
        if not -n_columns <= column < n_columns:
            raise ValueError(
                f"sensitive_features has the position {column}, and X has {n_columns} columns."
            )
        return int(column) % n_columns
    if not isinstance(column, str):
        raise ValueError(
            f"sensitive_features must be names or positions of columns of X, got {shown(column)}."
        )
    if table.container == "array":
        raise ValueError(
            f"sensitive_features has the name {column!r}, and X is no data frame with names of "
            "columns. Use positions; or, in a pipeline, set_output(transform='pandas')."
        )
    places = [j for j, name in enumerate(table.names) if name == column]
    if not places:
        raise ValueError(
            f"sensitive_features has the name {column!r}. {no_such_column(column, table.names)}"
        )
    if len(places) > 1:
        raise ValueError(
            f"sensitive_features has the name {column!r}, which {len(places)} columns of X have, "
            "instead of one."
        )
    return places[0]


def _combined(
    columns: list[list[Any]], name: str = "sensitive_features", check: bool = True
) -> np.ndarray:
    """Return the labels of the intersections of columns, or raise if a label is missing."""
    columns = [[None if is_missing(value) else value for value in one] for one in columns]
    for column in columns if check else ():
        try:
            different = set(column)
        except TypeError as error:
            raise TypeError(
                f"{name} holds what cannot be a label: the argument must be a string, a number, or "
                "the like."
            ) from error
        if any(isinstance(value, float) and math.isinf(value) for value in different):
            raise ValueError(
                f"{name} contains infinity for some rows. It is not a label. Leave out these rows, "
                "or give them a label."
            )
    if len(columns) == 1:
        return objects(columns[0])
    return objects(list(zip(*columns, strict=True)))


def _label_of_row(row: Any) -> Any:
    """Return the label in an entry of a list, regardless of the other entries."""
    (label,) = plain_values([row])
    if isinstance(label, list | tuple) or (isinstance(label, np.ndarray) and label.ndim == 1):
        attributes = tuple(plain_values(label).tolist())
        return attributes[0] if len(attributes) == 1 else attributes
    return label
