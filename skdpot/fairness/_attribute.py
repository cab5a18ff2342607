"""The sensitive attribute: where it is given, and which group every row is in."""

import math
from collections import Counter
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse

from skdpot._declarations import is_missing, label_codes, objects
from skdpot.fairness._tables import as_table, take_columns

OTHER = "other"


def split_attribute(
    X: Any,
    sensitive_features_param: Any,
    sensitive_features_keyword: Any,
    *,
    estimator_name: str,
    private: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of every row, and which columns of X are not the sensitive attribute.

    Parameters
    ----------
    X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
        The data; data frames are those of pandas and polars.
    sensitive_features_param : str, int, or list of these, or None
        The columns of X that hold the attribute: names, for data frames, or positions.
    sensitive_features_keyword : array-like of shape (n_samples,[ n_attributes]) or None
        The attribute itself, if it was given beside X.
    estimator_name : str
        Who asks, for errors.
    private : bool, default=False
        Whether labels are private: then none of them raises, whatever it is.

    Returns
    -------
    labels : ndarray of shape (n_samples,), dtype=object
        A scalar of Python for one attribute, a tuple of scalars for several.
    kept : ndarray of shape (n_kept,)
        Positions of the other columns of X, in order.

    Raises
    ------
    ValueError
        If the attribute is given twice or not at all, columns are none of X, lengths differ, or
        labels are missing or infinite. No value of a row is quoted.
    TypeError
        If labels cannot be looked up, as lists.

    Examples
    --------
    >>> from skdpot.fairness._attribute import split_attribute
    >>> X = [["f", 1.5, "b"], ["m", 2.5, "b"]]
    >>> labels, kept = split_attribute(X, [0, 2], None, estimator_name="Estimator")
    >>> labels.tolist(), kept.tolist()
    ([('f', 'b'), ('m', 'b')], [1])
    """
    if sensitive_features_param is not None and sensitive_features_keyword is not None:
        raise ValueError(
            f"{estimator_name} was given the sensitive attribute twice: as columns of X, by its "
            "parameter sensitive_features, and beside X. Give one of them."
        )
    if sensitive_features_param is not None:
        X = as_table(X)
        positions = attribute_positions(X, sensitive_features_param)
        labels = _combined([column_of(X, position) for position in positions], check=not private)
        return labels, np.setdiff1d(np.arange(X.shape[1]), positions)
    if sensitive_features_keyword is None:
        raise ValueError(
            f"{estimator_name} needs the sensitive attribute of every row: name its columns of X "
            "by the parameter sensitive_features, or pass sensitive_features= beside X."
        )
    labels = read_labels(sensitive_features_keyword, check=not private)
    shape = as_table(X).shape
    if len(labels) != shape[0]:
        raise ValueError(
            f"sensitive_features has {len(labels)} rows, and X has {shape[0]}; they must agree."
        )
    return labels, np.arange(shape[1] if len(shape) == 2 else 0)


def attribute_positions(X: Any, columns: Any) -> list[int]:
    """Return the positions of columns of X, a table, that are given by names or positions."""
    if getattr(X, "ndim", 2) != 2 or len(X.shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(X.shape)}D array instead, which has no columns to hold a "
            "sensitive attribute. Reshape your data using array.reshape(-1, 1) if it is a single "
            "feature."
        )
    if X.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is required."
        )
    columns = [columns] if np.ndim(columns) == 0 else list(columns)
    positions = [_position(X, column) for column in columns]
    if not positions or len(set(positions)) < len(positions):
        raise ValueError(
            "sensitive_features must name one column of X, or several different ones, got "
            f"{columns!r}."
        )
    return positions


def read_labels(values: Any, name: str = "sensitive_features", *, check: bool = True) -> np.ndarray:
    """Return the group label of every row of one attribute, or of several side by side.

    Parameters
    ----------
    values : array-like of shape (n_samples,) or (n_samples, n_attributes)
        One attribute, or several whose intersections are the groups: an array, a list, or a series
        or data frame of pandas or polars.
    name : str, default="sensitive_features"
        What errors call them.
    check : bool, default=True
        Whether labels must be labels; else only their shape can raise.

    Returns
    -------
    ndarray of shape (n_samples,), dtype=object
        A scalar of Python for one attribute, a tuple of scalars for several.

    Raises
    ------
    ValueError
        If a label is missing or infinite, or the shape is another one.
    TypeError
        If labels cannot be looked up, as lists.

    Examples
    --------
    >>> from skdpot.fairness._attribute import read_labels
    >>> read_labels(["a", 1, "a"]).tolist(), read_labels([["a", 1], ["b", 2]]).tolist()
    (['a', 1, 'a'], [('a', 1), ('b', 2)])
    """
    if not hasattr(values, "shape") and not np.isscalar(values):
        if not check:
            return objects([_label_of_row(row) for row in values])
        values = np.asarray(list(values), dtype=object)
    shape = np.shape(values)
    if len(shape) == 1:
        return _combined([_scalars(values)], name, check)
    if len(shape) == 2 and shape[1] > 0:
        return _combined([column_of(values, j) for j in range(shape[1])], name, check)
    raise ValueError(
        f"{name} must have one label, or one row of labels, for every row of X; got an object of "
        f"shape {shape}."
    )


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows by group, and the rule by which further rows are put into the same groups.

    Attributes
    ----------
    names : ndarray of shape (n_groups,), dtype=object
        Labels of the groups in order: numbers, then words, then what else there is, then tuples.
    codes : ndarray of shape (n_samples,)
        The number of each row's group; -1 for rows of groups that are left out.
    sizes : ndarray of shape (n_groups,)
        How many rows each group has.
    number : dict
        The number of the group that each label of the fit belongs to, -1 if it is left out.
    """

    names: np.ndarray
    codes: np.ndarray
    sizes: np.ndarray
    number: dict[Any, int]

    def encode(self, labels: np.ndarray, unknown: str = "error") -> np.ndarray:
        """Return the number of the group of each label.

        Parameters
        ----------
        labels : ndarray of shape (n_samples,), dtype=object
            As of :func:`split_attribute`.
        unknown : {"error", "nearest", "none"}, default="error"
            What to do with labels that no row of the fit had. ``"nearest"`` takes the group of the
            label that differs in the fewest attributes; of those, the one whose numbers are closest
            to its own; of those, the merged group, or else the largest. ``"none"`` gives -1.

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbers of groups.

        Raises
        ------
        ValueError
            If there are unknown labels and `unknown` is ``"error"``.
        """
        missing = [label for label in dict.fromkeys(labels.tolist()) if label not in self.number]
        if missing and unknown == "error":
            rows = [i for i, label in enumerate(labels.tolist()) if label not in self.number]
            raise ValueError(
                f"{len(rows)} rows, the first at position {rows[0]}, are in groups that no row of "
                "the fit was in."
            )
        found = {label: self._nearest(label) if unknown == "nearest" else -1 for label in missing}
        number = self.number | found
        return np.array([number[label] for label in labels.tolist()], dtype=np.intp)

    def find(self, labels: np.ndarray) -> np.ndarray:
        """Return the number of the group of each label, -1 for what is none; nothing raises."""
        return label_codes(labels, self.number)

    def _nearest(self, label: Any) -> int:
        """Return the number of the group that has the known label most like this one."""

        def unlikeness(known: Any) -> tuple[int, float, bool, int]:
            code = self.number[known]
            apart, distance = _difference(label, known)
            return apart, distance, self.names[code] != OTHER, -int(self.sizes[code])

        kept = sorted((known for known, code in self.number.items() if code >= 0), key=label_order)
        return self.number[min(kept, key=unlikeness)]


def find_groups(
    labels: np.ndarray, *, min_group_size: int = 1, small_groups: str = "error"
) -> Groups:
    """Return the groups that labels make, small ones according to a policy.

    Labels are one where Python says that they are equal: 1 and 1.0, and words of numpy and of
    Python.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,), dtype=object
        As of :func:`split_attribute`.
    min_group_size : int, default=1
        Groups with fewer rows than that are small.
    small_groups : {"error", "merge", "drop"}, default="error"
        ``"error"`` refuses small groups. ``"merge"`` puts all of them into one group, ``"other"``,
        which is also where a group goes whose label is that word. If they are too few together,
        they join the largest group, whose distribution they change least. ``"drop"`` leaves their
        rows out.

    Returns
    -------
    Groups
        Names in order, the number of each row's group, and the rule for further rows.

    Raises
    ------
    ValueError
        If there are small groups and `small_groups` is ``"error"``, or all rows together are fewer
        than `min_group_size` and `small_groups` is not ``"drop"``.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._attribute import find_groups
    >>> labels = np.array(["a", "a", "b", "c", "a"], dtype=object)
    >>> groups = find_groups(labels, min_group_size=2, small_groups="merge")
    >>> groups.names.tolist(), groups.codes.tolist()
    (['a', 'other'], [0, 0, 1, 1, 0])
    >>> groups.encode(np.array(["c", "a", "d"], dtype=object), unknown="nearest").tolist()
    [1, 0, 1]
    """
    counts = Counter(labels.tolist())
    small = [label for label, count in counts.items() if count < min_group_size]
    target: dict[Any, Any] = {label: label for label in counts}
    if small_groups != "drop" and len(labels) < min_group_size:
        raise ValueError(f"n_samples={len(labels)} is fewer than min_group_size={min_group_size}.")
    if small and small_groups == "error":
        raise ValueError(
            f"{len(small)} of {len(counts)} groups have fewer than {min_group_size} rows, the "
            f"smallest {min(counts.values())}. Merge them with others, or use a smaller "
            "min_group_size."
        )
    if small and small_groups == "merge":
        target |= dict.fromkeys(small, _merged_into(counts, small, min_group_size))
    elif small:
        target = {label: label for label in counts if counts[label] >= min_group_size}
    names = sorted(set(target.values()), key=label_order)
    place = {name: g for g, name in enumerate(names)}
    number = {label: place[target[label]] if label in target else -1 for label in counts}
    number |= place
    codes = np.array([number[label] for label in labels.tolist()], dtype=np.intp)
    sizes = np.bincount(codes + 1, minlength=len(names) + 1)[1:]
    return Groups(objects(names), codes, sizes, number)


def declare_groups(groups: Any) -> Groups:
    """Return the groups that were declared, whatever rows there are.

    Parameters
    ----------
    groups : array-like
        Labels, or tuples or lists of labels for several attributes.

    Returns
    -------
    Groups
        In the order given, without rows.

    Raises
    ------
    ValueError
        If there are none, or some are equal or missing.

    Examples
    --------
    >>> from skdpot.fairness._attribute import declare_groups
    >>> declare_groups([("f", 1), ("m", 1)]).number
    {('f', 1): 0, ('m', 1): 1}
    """
    if groups is None:
        raise ValueError(
            "groups must be declared: a list of all groups, whose labels may not be learned from "
            "private data."
        )
    labels = read_labels(groups, "groups")
    number = {label: g for g, label in enumerate(labels.tolist())}
    if len(number) < len(labels) or not len(labels):
        raise ValueError(f"groups must be a list of different labels, got {groups!r}.")
    nothing = np.empty(0, dtype=np.intp)
    return Groups(labels, nothing, np.zeros(len(labels), dtype=np.intp), number)


def rows_of_declared(groups: Groups, labels: np.ndarray) -> Groups:
    """Return declared groups with the rows they have; raise if one has none, or a row has none."""
    codes = groups.encode(labels)
    sizes = np.bincount(codes, minlength=len(groups.names))
    if (sizes < 2).any():
        raise ValueError(
            f"the declared group {groups.names.tolist()[int(np.argmin(sizes))]!r} has fewer than "
            "2 rows. Declare only groups that have rows."
        )
    return Groups(groups.names, codes, sizes, groups.number)


def _merged_into(counts: Counter, small: list[Any], min_group_size: int) -> Any:
    """Return the name of the group that all small ones are put into."""
    together = sum(counts[label] for label in {*small, OTHER})
    if together >= min_group_size or len(small) == len(counts):
        return OTHER
    return min(
        (label for label in counts if label not in small),
        key=lambda x: (-counts[x], label_order(x)),
    )


def _position(X: Any, column: Any) -> int:
    """Return where a column is in a table, given its name or its position."""
    n_columns = X.shape[1]
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
    if not hasattr(X, "columns"):
        raise ValueError(
            f"sensitive_features has the name {column!r}, and X is no data frame with names of "
            "columns. Use positions; or, in a pipeline, set_output(transform='pandas')."
        )
    places = [j for j, name in enumerate(X.columns) if name == column]
    if len(places) != 1:
        raise ValueError(
            f"sensitive_features has the name {column!r}, which {len(places)} columns of X have, "
            "instead of one."
        )
    return places[0]


def column_of(X: Any, position: Any) -> list[Any]:
    """Return one column of a table as scalars of Python."""
    if sparse.issparse(X):
        return take_columns(X, [position]).toarray()[:, 0].tolist()
    return _scalars(X.iloc[:, position] if hasattr(X, "iloc") else X[:, position])


def _scalars(column: Any) -> list[Any]:
    """Return the entries of an array or series as scalars of Python."""
    if isinstance(column, np.ndarray):
        # In other units dates become integers, or dates that equal no times.
        column = column.astype("datetime64[us]") if column.dtype.kind == "M" else column
        scalars = column.tolist()
    else:
        scalars = column.to_list() if hasattr(column, "to_list") else list(column)
    return [value.item() if isinstance(value, np.generic) else value for value in scalars]


def _combined(
    columns: list[list[Any]], name: str = "sensitive_features", check: bool = True
) -> np.ndarray:
    """Return the labels of the intersections of columns, or raise where one is no label."""
    for column in columns if check else ():
        try:
            different = set(column)
        except TypeError as error:
            raise TypeError(
                f"{name} holds what cannot be a label: the argument must be a string, a number, or "
                "the like."
            ) from error
        if any(_is_no_label(value) for value in different):
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
        attributes = tuple(_scalars(row))
        return attributes[0] if len(attributes) == 1 else attributes
    return _scalars([row])[0]


def label_order(label: Any) -> tuple[int, str, Any]:
    """Return a key that labels of all types can be sorted by together."""
    if isinstance(label, Real):
        return 0, "", label
    if isinstance(label, str):
        return 1, "", label
    if isinstance(label, tuple):
        return 3, "", tuple(label_order(part) for part in label)
    return 2, type(label).__name__, str(label)


def _difference(label: Any, other: Any) -> tuple[int, float]:
    """Return in how many attributes two labels differ, and by how much where both are numbers."""
    if isinstance(label, tuple) and isinstance(other, tuple) and len(label) == len(other):
        parts = [_difference(*pair) for pair in zip(label, other, strict=True)]
        return sum(part[0] for part in parts), math.fsum(part[1] for part in parts)
    numbers = isinstance(label, Real) and isinstance(other, Real)
    return int(label != other), abs(float(label) - float(other)) if numbers else 0.0
