"""The sensitive attribute: where it is, the label of every row, and the groups of labels."""

import math
from collections import Counter
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, StrOptions, validate_parameters
from skdpot.privacy.foreign import shown
from skdpot.releases import group_weights
from skdpot.tables import (
    Table,
    is_missing,
    label_codes,
    label_order,
    no_such_column,
    objects,
    plain_values,
    refuse_other_labels,
)

# Default advice for missing labels.
_LEAVE_OUT = "Leave out these rows, or give them their own label, such as 'unknown'."


def split_attribute(
    reader: Any, table: Table, beside: Any, fitted: "Groups | None" = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of every row, and the positions of the other columns.

    The columns that the parameter `sensitive_features` of the `reader` names hold the attribute, or
    `beside` has it. Labels are scalars of Python for one attribute, and tuples of scalars for
    several. Missing ones are None, and raise unless the reader's policy for groups takes them:
    that of a fit, or that for new rows if the groups are `fitted`. Invalid labels of a private
    reader do not raise, and errors count no rows; types that no declared label has do.

    Examples
    --------
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness._groups import split_attribute
    >>> from skdpot.tables import Table
    >>> table = Table([["f", 1.5, "b"], ["m", 2.5, "b"]])
    >>> labels, kept = split_attribute(FairBarycenterPreprocessor([0, 2]), table, None)
    >>> labels.tolist(), kept.tolist()
    ([('f', 'b'), ('m', 'b')], [1])
    """
    columns, reader_name = reader.sensitive_features, type(reader).__name__
    policy, private = group_policy(reader.groups), reader.epsilon is not None
    if fitted is not None:
        may_miss, remedy = policy.unknown != "error" or fitted.take_missing, MISSING_IN_NEW_ROWS
        declared = ()
    else:
        may_miss = private or getattr(policy, "small", "error") != "error"
        remedy = MISSING_IN_FIT
        # Columns without rows may stand for any.
        declared = getattr(policy, "labels", ()) if private and len(table) else ()
    how: dict[str, Any] = {"check": not private, "may_miss": may_miss, "remedy": remedy}
    if columns is not None and beside is not None:
        raise ValueError(
            f"{reader_name} was given the sensitive attribute twice: as columns of X, by its "
            "parameter sensitive_features, and beside X. Give one of them."
        )
    if columns is not None:
        return labels_of_columns(table, columns, declared, **how)
    # Never taken for "all rows are in one group", which would leave them without a repair.
    if beside is None:
        raise ValueError(
            f"{reader_name} needs the sensitive attribute of every row: name its columns of X "
            "by the parameter sensitive_features, or pass sensitive_features= beside X."
        )
    _refuse_other_types([beside], declared)
    labels = read_labels(beside, **how)
    if len(labels) != len(table):
        raise ValueError(
            f"sensitive_features has {len(labels)} rows, and X has {len(table)}; they must agree."
        )
    return labels, np.arange(table.X.shape[1] if len(table.X.shape) == 2 else 0)


def labels_of_columns(
    table: Table,
    columns: Any,
    declared: Any = (),
    *,
    check: bool = True,
    may_miss: bool = False,
    remedy: str = _LEAVE_OUT,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of every row from columns, and the positions of the other columns.

    The options are those of `read_labels`; the types of columns must fit to `declared` groups.
    """
    positions = attribute_positions(table, columns)
    _refuse_other_types([table.series(j) for j in positions], declared)
    labels = _combined([table.column(j).tolist() for j in positions], check=check)
    if not may_miss:
        names = [f"the sensitive attribute {table.names[j]!r}" for j in positions]
        _refuse_missing(labels, names, remedy, counted=check)
    return labels, np.setdiff1d(np.arange(table.X.shape[1]), positions)


def _refuse_other_types(columns: list[Any], declared: Any) -> None:
    """Raise if types of attributes show that no row is in a declared group."""
    groups = [label if isinstance(label, tuple) else (label,) for label in declared]
    for column, labels in zip(columns, zip(*groups, strict=False), strict=False):
        refuse_other_labels(column, labels, "sensitive_features")


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
    # A name and a position may be of one column, and negative positions count from the end.
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
    >>> from skdpot.fairness._groups import read_labels
    >>> read_labels(["a", 1, "a"]).tolist(), read_labels([["a", 1], ["b", 2]]).tolist()
    (['a', 1, 'a'], [('a', 1), ('b', 2)])
    """
    # Lists have no type: each entry is read for itself, so that one changes no other's label.
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
    >>> from skdpot.fairness._groups import is_unlabelled
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
    # True is an integer in Python, and is more likely meant as a mask.
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
    names = list(table.names)
    if column not in names:
        raise ValueError(
            f"sensitive_features has the name {column!r}. {no_such_column(column, names)}"
        )
    return names.index(column)


def _combined(
    columns: list[list[Any]], name: str = "sensitive_features", check: bool = True
) -> np.ndarray:
    """Return the labels of the intersections of columns, or raise if a label is missing."""
    columns = [[None if is_missing(value) else value for value in one] for one in columns]
    for column in columns if check else ():
        try:
            # Groups are found by hashing: what cannot be hashed is no label.
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
    # A tuple of one label would be another label than the scalar that a user declares.
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


# The name of the group that small groups are merged into.
OTHER = "other"
_POLICIES = [StrOptions({"error", "nearest"})]

# Advice for missing labels, in a fit and in new rows.
MISSING_IN_FIT = (
    "FoundGroups(small='drop') leaves them as they are, and small='merge' counts them as a small "
    "group; or leave out these rows, or give them their own label, such as 'unknown'."
)
MISSING_IN_NEW_ROWS = (
    "FoundGroups(unknown='nearest') and DeclaredGroups(..., unknown='nearest') assign the group "
    "with the most similar label; or leave out these rows."
)


class FoundGroups(BaseEstimator):
    """Groups found in the fitted rows, and the policy for small and unknown groups.

    Parameters
    ----------
    min_size : int, default=2
        Groups with fewer rows are small.
    small : {"error", "merge", "drop"}, default="error"
        Policy for small groups. ``"error"`` refuses them. ``"merge"`` merges them into one group
        ``"other"``, or into the largest group if they are too few together. ``"drop"`` leaves them
        out, so that their rows are never changed. Rows with a missing label (None, NaN or NA; an
        empty string is a label) count as a small group.
    unknown : {"error", "nearest"}, default="error"
        Policy for new rows whose group was not in the fit, or whose label is missing. ``"error"``
        refuses them. ``"nearest"`` treats them as the group with the most similar label; if there
        are several, the merged group, otherwise the largest.

    See Also
    --------
    DeclaredGroups : Declared groups.

    Examples
    --------
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness import FoundGroups
    >>> groups = FoundGroups(min_size=3, small="merge")
    >>> fair = FairBarycenterPreprocessor(sensitive_features=0, groups=groups)
    >>> fair.fit([["a", 1.0], ["a", 2.0], ["a", 4.0], ["b", 2.0], ["c", 3.0], ["d", 5.0]]).groups_
    array(['a', 'other'], dtype=object)
    """

    _parameter_constraints = {
        "min_size": [Interval(Integral, 2, None, closed="left")],
        "small": [StrOptions({"error", "merge", "drop"})],
        "unknown": _POLICIES,
    }

    def __init__(self, *, min_size=2, small="error", unknown="error") -> None:
        self.min_size = min_size
        self.small = small
        self.unknown = unknown

    def _make_groups(self, labels: np.ndarray) -> "Groups":
        """Return the groups in these rows, or raise."""
        groups = find_groups(labels, min_group_size=self.min_size, small_groups=self.small)
        if not len(groups.names):
            raise ValueError(
                f"no group has min_size={self.min_size} rows, and small='drop' leaves out all."
            )
        return groups


class DeclaredGroups(BaseEstimator):
    """Declared groups, independent of the rows, and the policy for unknown groups.

    A plain list of labels means the same, with ``unknown="error"``.

    Parameters
    ----------
    labels : array-like
        Labels, or tuples of labels for several attributes.
    unknown : {"error", "nearest"}, default="error"
        As of :class:`FoundGroups`.

    See Also
    --------
    FoundGroups : Groups found in the rows.

    Examples
    --------
    >>> from skdpot import FairBarycenterPreprocessor
    >>> from skdpot.fairness import DeclaredGroups
    >>> groups = DeclaredGroups(["b", "a"], unknown="nearest")
    >>> fair = FairBarycenterPreprocessor(sensitive_features=0, groups=groups)
    >>> fair.fit([["a", 1.0], ["a", 2.0], ["b", 4.0], ["b", 5.0]]).groups_
    array(['b', 'a'], dtype=object)
    """

    _parameter_constraints = {"labels": ["array-like"], "unknown": _POLICIES}

    def __init__(self, labels, *, unknown="error") -> None:
        self.labels = labels
        self.unknown = unknown

    def _make_groups(self, labels: np.ndarray) -> "Groups":
        """Return the declared groups with their rows; raise if either is without the other."""
        groups = declare_groups(self.labels)
        missing = [label for label in dict.fromkeys(labels.tolist()) if label not in groups.number]
        if missing:
            raise ValueError(
                f"{_unknown_rows(labels, groups.number)}, are in groups that were not declared: "
                f"{_listed(missing)}. Declare these by groups, or leave out their rows."
            )
        codes = groups.encode(labels)
        sizes = np.bincount(codes, minlength=len(groups.names))
        # A single row has no distribution.
        if (sizes < 2).any():
            raise ValueError(
                f"the declared group {groups.names.tolist()[int(np.argmin(sizes))]!r} has fewer "
                "than 2 rows. Declare only groups that have rows."
            )
        return Groups(groups.names, codes, sizes, groups.number)


def doubts_about_small_groups(
    policy: FoundGroups | DeclaredGroups,
    groups: "Groups",
    *,
    largest_error: float = 0.2,
    probability: float = 0.05,
    many_rows: int = 200,
) -> str | None:
    """Return a warning about groups that are too small for their distribution, or None.

    Rows are not private. By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, shares of n
    rows below any value are off by at most ``sqrt(log(2 / q) / (2 n))``, except with probability q.
    There is no warning if the user sets `min_size`, nor for fewer than `many_rows`, which are taken
    for an example.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._groups import FoundGroups, find_groups, doubts_about_small_groups
    >>> groups = find_groups(np.repeat(["a", "b"], [500, 12]))
    >>> doubts_about_small_groups(FoundGroups(), groups).partition(", and")[0]
    "the group 'b' has 12 rows"
    """
    needed = math.ceil(math.log(2 / probability) / (2 * largest_error**2))
    small = [g for g, size in enumerate(groups.sizes.tolist()) if 0 < size < needed]
    if not small or getattr(policy, "min_size", 2) > 2 or groups.sizes.sum() < many_rows:
        return None
    g = min(small, key=lambda g: groups.sizes[g])
    others = f", and {len(small) - 1} further groups are as small" if len(small) > 1 else ""
    return (
        f"the group {groups.names.tolist()[g]!r} has {groups.sizes[g]} rows, and {needed} are "
        "needed to know its distribution: then the share of rows below any value is off by at most "
        f"{largest_error} (with a probability of {100 * (1 - probability):.0f} %){others}. "
        "What is fair for such a group in these rows may not be in new ones. Merge small groups by "
        f"FoundGroups(min_size={needed}, small='merge'), or accept them by min_size."
    )


def group_policy(groups: Any) -> FoundGroups | DeclaredGroups:
    """Return the policy of a parameter `groups` (None, labels, or a policy), or raise."""
    if groups is None:
        groups = FoundGroups()
    if not isinstance(groups, FoundGroups | DeclaredGroups):
        groups = DeclaredGroups(groups)
    validate_parameters(groups)
    return groups


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows by group, and the rule that assigns further rows to the same groups.

    Attributes
    ----------
    names : ndarray of shape (n_groups,), dtype=object
        Labels of the groups in order: numbers, words, other labels, tuples.
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

    @property
    def take_missing(self) -> bool:
        """Tell whether rows of the fit without a label had a place among the groups."""
        return any(map(is_unlabelled, self.number))

    def encode(
        self, labels: np.ndarray, unknown: str = "error", *, quoted: bool = False
    ) -> np.ndarray:
        """Return the group number of each label, -1 for one that is left out; or raise.

        For labels that no row of the fit had, `unknown` is ``"error"``, which raises, or
        ``"nearest"``, the group of the label that differs in the fewest attributes, among those the
        one with the closest numbers, and among those the merged or else the largest group. With
        `quoted`, an error may name the unknown labels.
        """
        missing = [label for label in dict.fromkeys(labels.tolist()) if label not in self.number]
        if missing and unknown == "error":
            # Labels of private rows are not quoted.
            names = f": {_listed(missing)}" if quoted else ""
            raise ValueError(
                f"{_unknown_rows(labels, self.number)}, are in groups that no row of the fit was "
                f"in{names}. FoundGroups(unknown='nearest') and DeclaredGroups(..., "
                "unknown='nearest') assign the group with the most similar label; or leave out "
                "these rows."
            )
        number = self.number | {label: self._nearest(label) for label in missing}
        return np.array([number[label] for label in labels.tolist()], dtype=np.intp)

    def find(self, labels: np.ndarray) -> np.ndarray:
        """Return the group number of each private label, -1 for an unknown one."""
        return label_codes(labels, self.number)

    def _nearest(self, label: Any) -> int:
        """Return the number of the group with the known label that is most similar to this one."""

        def unlikeness(known: Any) -> tuple[int, float, bool, int]:
            code = self.number[known]
            apart, distance = _difference(label, known)
            return apart, distance, self.names[code] != OTHER, -int(self.sizes[code])

        # Sorted, so that of equally similar labels the same one is taken in every run.
        kept = sorted((known for known, code in self.number.items() if code >= 0), key=label_order)
        return self.number[min(kept, key=unlikeness)]


def find_groups(
    labels: np.ndarray, *, min_group_size: int = 1, small_groups: str = "error"
) -> Groups:
    """Return the groups that labels define, with the policy for small ones applied.

    Labels that are equal in Python are one: 1 and 1.0, and text of numpy and of Python.

    `small_groups` is ``"error"``, which refuses groups with fewer than `min_group_size` rows;
    ``"merge"``, which merges all of them, and an existing group with the label ``"other"``, into
    one group ``"other"``, or into the largest group, whose distribution changes least, if they are
    too few together; or ``"drop"``, which leaves their rows out. Missing labels are small groups.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._groups import find_groups
    >>> labels = np.array(["a", "a", "b", "c", "a"], dtype=object)
    >>> groups = find_groups(labels, min_group_size=2, small_groups="merge")
    >>> groups.names.tolist(), groups.codes.tolist()
    (['a', 'other'], [0, 0, 1, 1, 0])
    >>> groups.encode(np.array(["c", "a", "d"], dtype=object), unknown="nearest").tolist()
    [1, 0, 1]
    """
    counts = Counter(labels.tolist())
    small = [label for label in counts if counts[label] < min_group_size or is_unlabelled(label)]
    target: dict[Any, Any] = {label: label for label in counts}
    if small_groups != "drop" and len(labels) < min_group_size:
        raise ValueError(f"n_samples={len(labels)} is fewer than min_size={min_group_size}.")
    if small and small_groups == "error":
        raise ValueError(
            f"{len(small)} of {len(counts)} groups have fewer than {min_group_size} rows, the "
            f"smallest {min(counts.values())}. Merge them with FoundGroups(small='merge'), leave "
            "their rows as they are with small='drop', or use a smaller min_size."
        )
    if small and small_groups == "merge":
        target |= dict.fromkeys(small, _merged_into(counts, small, min_group_size))
    elif small:
        target = {label: label for label in counts if label not in small}
    names = sorted(set(target.values()), key=label_order)
    place = {name: g for g, name in enumerate(names)}
    number = {label: place[target[label]] if label in target else -1 for label in counts}
    # New rows may also be labelled by the name of a merged group.
    number |= place
    codes = np.array([number[label] for label in labels.tolist()], dtype=np.intp)
    sizes = np.bincount(codes + 1, minlength=len(names) + 1)[1:]
    return Groups(objects(names), codes, sizes, number)


def declare_groups(groups: Any) -> Groups:
    """Return the declared groups, in their order and without rows, or raise.

    Examples
    --------
    >>> from skdpot.fairness._groups import declare_groups
    >>> declare_groups([("f", 1), ("m", 1)]).number
    {('f', 1): 0, ('m', 1): 1}
    """
    if groups is None:
        raise ValueError(
            "groups must be declared: with epsilon, pass all labels as groups=[...] or "
            "DeclaredGroups([...]). They may not be learned from private data."
        )
    labels = read_labels(groups, "groups")
    number = {label: g for g, label in enumerate(labels.tolist())}
    if len(number) < len(labels) or not len(labels):
        raise ValueError(f"groups must be a list of different labels, got {shown(groups)}.")
    nothing = np.empty(0, dtype=np.intp)
    return Groups(labels, nothing, np.zeros(len(labels), dtype=np.intp), number)


def _unknown_rows(labels: np.ndarray, number: dict[Any, int]) -> str:
    rows = [i for i, label in enumerate(labels.tolist()) if label not in number]
    return f"{len(rows)} rows, the first at position {rows[0]}"


def _listed(labels: list[Any]) -> str:
    """Return labels for an error message: not too many."""
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


def _merged_into(counts: Counter, small: list[Any], min_group_size: int) -> Any:
    """Return the name of the group that all small ones are merged into."""
    together = sum(counts[label] for label in {*small, OTHER})
    # Where all groups are small there is no larger one to join.
    if together >= min_group_size or len(small) == len(counts):
        return OTHER
    return min(
        (label for label in counts if label not in small),
        key=lambda x: (-counts[x], label_order(x)),
    )


def _difference(label: Any, other: Any) -> tuple[int, float]:
    """Return in how many attributes two labels differ, and by how much if both are numbers."""
    if isinstance(label, tuple) and isinstance(other, tuple) and len(label) == len(other):
        parts = [_difference(*pair) for pair in zip(label, other, strict=True)]
        return sum(part[0] for part in parts), math.fsum(part[1] for part in parts)
    # An age of 33 is more like 30 than like 40, though it differs from both.
    numbers = isinstance(label, Real) and isinstance(other, Real)
    return int(label != other), abs(float(label) - float(other)) if numbers else 0.0


def read_groups(policy: FoundGroups | DeclaredGroups, weights: Any) -> Groups:
    """Return the declared groups; raise if they or their weights are wrong."""
    groups = declare_groups(policy.labels if isinstance(policy, DeclaredGroups) else None)
    if len(groups.names) < 2:
        raise ValueError("a repair needs two or more groups, and one was declared.")
    # Wrong weights raise before anything is charged; the sizes are not known yet.
    group_weights(weights, np.ones(len(groups.names)), groups.names)
    return groups
