"""The sensitive attribute: where it is, the label of every row, and the groups of labels."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from skdpot._base import warn_of_variants, warn_user
from skdpot._sklearn_compat import Interval, StrOptions, validate_parameters
from skdpot.privacy.checks import redact_errors, refuse_other_order, refuse_other_rows, to_display
from skdpot.tables import (
    Table,
    is_missing,
    label_codes,
    label_order,
    number_in_file,
    objects,
    plain_values,
    position_of,
    refuse_other_labels,
)

# Advice for missing labels: by default, in a fit, and in new rows.
_LEAVE_OUT = "Leave out these rows, or give them their own label, such as 'unknown'."
_MISSING_IN_FIT = (
    "FoundGroups(small='drop') leaves them as they are, and small='merge' counts them as a small "
    "group; or leave out these rows, or give them their own label, such as 'unknown'."
)
_UNKNOWN_IN_NEW_ROWS = (
    "FoundGroups(unknown='nearest') and DeclaredGroups(..., unknown='nearest') assign the group "
    "with the most similar label; or leave out these rows."
)


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
        remedy, declared = _UNKNOWN_IN_NEW_ROWS, ()
        # Rows of the fit without a label may have had a place among the groups.
        may_miss = policy.unknown != "error" or any(map(is_unlabelled, fitted.number))
    else:
        remedy = _MISSING_IN_FIT
        may_miss = private or getattr(policy, "small", "error") != "error"
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
    refuse_other_rows(table.X, {"sensitive_features": beside})
    _refuse_other_types([beside], declared)
    labels = read_labels(beside, **how)
    if len(labels) != len(table):
        raise ValueError(
            f"sensitive_features has {len(labels)} rows, and X has {len(table)}; they must agree."
        )
    return labels, np.arange(table.X.shape[1] if len(table.X.shape) == 2 else 0)


def labels_of_columns(
    table: Table, columns: Any, declared: Any = (), **how: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the label of every row from columns, and the positions of the other columns.

    Columns are given by names or positions, and their types must fit to `declared` groups. The
    options are those of `_combined`.
    """
    shape = table.X.shape
    # Columns, and one at least.
    check_array(np.empty((0, *shape[1:])), ensure_min_samples=0)
    columns = [columns] if np.ndim(columns) == 0 else list(columns)
    if len(columns) > shape[1]:
        raise ValueError("sensitive_features must name columns of X; give values of rows to fit.")
    # A name and a position may be of one column, and negative positions count from the end.
    positions = [position_of(column, table.names, "sensitive_features") for column in columns]
    if not positions or len(set(positions)) < len(positions):
        raise ValueError("sensitive_features must name one column of X, or several different ones.")
    _refuse_other_types([table.series(j) for j in positions], declared)
    names = [f"the sensitive attribute {table.names[j]!r}" for j in positions]
    labels = _combined([table.column(j).tolist() for j in positions], names, **how)
    return labels, np.setdiff1d(np.arange(shape[1]), positions)


def _refuse_other_types(columns: list[Any], declared: Any) -> None:
    """Raise if types of attributes show that no row is in a declared group."""
    groups = [label if isinstance(label, tuple) else (label,) for label in declared]
    # One column may hold tuples.
    if groups and all(len(group) < len(columns) for group in groups):
        raise ValueError(
            f"sensitive_features are {len(columns)} columns: declare groups as tuples, with a "
            "label of each."
        )
    for column, labels in zip(columns, zip(*groups, strict=False), strict=False):
        refuse_other_labels(column, labels, "sensitive_features")


def read_labels(
    values: Any, name: str = "sensitive_features", *, check: bool = True, **how: Any
) -> np.ndarray:
    """Return the label of every row, or the tuple of its labels for several attributes.

    Errors use `name` for the labels, and the options are those of `_combined`.

    Examples
    --------
    >>> from skdpot.fairness._groups import read_labels
    >>> read_labels(["a", 1, "a"]).tolist(), read_labels([["a", 1], ["b", 2]]).tolist()
    (['a', 1, 'a'], [('a', 1), ('b', 2)])
    """
    # Lists have no type: each entry is read for itself, so that one changes no other's label.
    if not hasattr(values, "shape") and not np.isscalar(values) and values is not None:
        values = np.asarray(list(values), object) if check else objects(map(_label_of_row, values))
    shape = np.shape(values)
    if len(shape) == 1:
        return _combined([plain_values(values).tolist()], [name], check=check, **how)
    if len(shape) != 2 or not shape[1]:
        raise ValueError(
            f"{name} must have one label, or one row of labels, for every row of X; got an object "
            f"of shape {shape}. An estimator takes the name of a column in its constructor."
        )
    table = Table(values)
    names = [f"column {column!r} of {name}" for column in table.names]
    columns = [table.column(j).tolist() for j in range(shape[1])]
    return _combined(columns, names, check=check, **how)


def is_unlabelled(label: Any) -> bool:
    """Tell whether a label, or one of the labels in a tuple, is missing.

    Examples
    --------
    >>> from skdpot.fairness._groups import is_unlabelled
    >>> [is_unlabelled(label) for label in (None, ("a", None), "", ("a", 1))]
    [True, True, False, False]
    """
    return label is None or (isinstance(label, tuple) and any(part is None for part in label))


def _combined(
    columns: list[list[Any]],
    names: list[str],
    *,
    check: bool = True,
    may_miss: bool = False,
    remedy: str = _LEAVE_OUT,
) -> np.ndarray:
    """Return the labels of the intersections of columns with these names, or raise.

    Missing labels are None, and raise unless they are allowed; `remedy` is the advice about them.
    With `check`, infinite labels and lists raise as well; without it, errors do not count rows.
    """
    columns = [[None if is_missing(value) else value for value in one] for one in columns]
    for column, name in zip(columns, names, strict=True):
        if check:
            _refuse_odd(column, name)
        missing = [i for i, label in enumerate(column) if label is None]
        if missing and not may_miss:
            where = "some rows"
            if check:
                where = f"{len(missing)} of {len(column)} rows, the first at position {missing[0]}"
            raise ValueError(
                f"{name} contains NaN or None: it is missing in {where}, so that these are in no "
                f"group. {remedy}"
            )
    # A tuple of one label would be another label than the scalar that a user declares.
    if len(columns) == 1:
        return objects(columns[0])
    return objects(list(zip(*columns, strict=True)))


def _refuse_odd(labels: list[Any], name: str) -> None:
    """Raise if labels are infinite, or lists and the like."""
    # Groups are found by hashing: what cannot be hashed is no label.
    odd = f"{name} holds what cannot be a label: the argument must be a string, a number or such."
    different = redact_errors(lambda: set(labels), odd)
    if any(isinstance(value, float) and math.isinf(value) for value in different):
        raise ValueError(
            f"{name} contains infinity for some rows. It is not a label. Leave out these rows, or "
            "give them a label."
        )


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
        remedy = "Declare these by groups, or leave out their rows."
        codes = groups.encode(labels, quoted=True, remedy=remedy)
        sizes = np.bincount(codes, minlength=len(groups.names))
        # A single row has no distribution.
        if (sizes < 2).any():
            raise ValueError(
                f"the declared group {groups.names.tolist()[int(np.argmin(sizes))]!r} has fewer "
                "than 2 rows. Declare only groups that have rows."
            )
        return replace(groups, codes=codes, sizes=sizes)


# Constraints of the parameters that all fair estimators share.
FAIR_CONSTRAINTS = {
    "sensitive_features": [str, Integral, "array-like", None],
    "weights": [StrOptions({"proportional", "uniform"}), dict, "array-like"],
    "repair_level": [Interval(Real, 0, 1, closed="both")],
    "groups": ["array-like", FoundGroups, DeclaredGroups, None],
    "epsilon": [Interval(Real, 0, None, closed="neither"), None],
    "delta": [Interval(Real, 0, 1, closed="left"), None],
    "bounds": "no_validation",
    "ledger": "no_validation",
    "n_jobs": [Integral, None],
    "random_state": ["random_state"],
    "verbose": ["verbose", None],
}


def small_groups_warning(policy: FoundGroups | DeclaredGroups, groups: "Groups") -> str | None:
    """Return a warning about groups that are too small for their distribution, or None.

    Rows are not private. By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, shares of n
    rows below any value are off by at most ``sqrt(log(2 / q) / (2 n))``, except with probability q.
    There is no warning if the user sets `min_size`, nor for fewer than 200 rows, which are taken
    for an example.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._groups import FoundGroups, find_groups, small_groups_warning
    >>> groups = find_groups(np.repeat(["a", "b"], [500, 12]))
    >>> small_groups_warning(FoundGroups(), groups)
    "the group 'b' has fewer than the 47 rows that are needed to know its distribution: ...
    """
    max_error, probability = 0.2, 0.05
    needed = math.ceil(math.log(2 / probability) / (2 * max_error**2))
    small = [g for g, size in enumerate(groups.sizes.tolist()) if 0 < size < needed]
    if not small or getattr(policy, "min_size", 2) > 2 or groups.sizes.sum() < 200:
        return None
    g = min(small, key=lambda g: groups.sizes[g])
    others = ", and other groups are as small" if len(small) > 1 else ""
    # No numbers of rows: a text that differs in each fold would be shown for each.
    return (
        f"the group {groups.names.tolist()[g]!r} has fewer than the {needed} rows that are needed "
        "to know its distribution: then the share of rows below any value is off by at most "
        f"{max_error} (with a probability of {100 * (1 - probability):.0f} %){others}. "
        "What is fair for such a group in these rows may not be in new ones. Merge small groups by "
        f"FoundGroups(min_size={needed}, small='merge'), or accept them by min_size."
        + _hint_to_bands(groups.names.tolist())
    )


def _hint_to_bands(labels: list[Any], *, most_codes: int = 20) -> str:
    """Return advice for an attribute that is a number, such as an age; empty for others."""
    if len(labels) <= most_codes or not all(isinstance(label, Real) for label in labels):
        return ""
    return (
        f" The attribute has {len(labels)} different numbers, each of which is a group: make bands "
        "of it first, for example with pandas.cut."
    )


def group_policy(groups: Any) -> FoundGroups | DeclaredGroups:
    """Return the policy of a parameter `groups` (None, labels, or a policy), or raise."""
    groups = FoundGroups() if groups is None else groups
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

    def encode(
        self, labels: np.ndarray, unknown="error", *, quoted=False, remedy=_UNKNOWN_IN_NEW_ROWS
    ) -> np.ndarray:
        """Return the group number of each label, -1 for one that is left out; or raise.

        For labels that no row of the fit had, `unknown` is ``"error"``, which raises with a
        `remedy`, or ``"nearest"``, the group of the label that differs in the fewest attributes,
        among those the one with the closest numbers, and among those the merged or else the largest
        group. With `quoted`, an error may name the unknown labels.
        """
        rows = [i for i, label in enumerate(labels.tolist()) if label not in self.number]
        missing = list(dict.fromkeys(labels[rows].tolist()))
        if missing and unknown == "error":
            # Labels of private rows are not quoted.
            listed = [repr(label) for label in missing[:5]] + ["..."] * (len(missing) > 5)
            names = f": {', '.join(listed)}" if quoted else ""
            # As a file has them: without the type, also within a tuple.
            known = {number_in_file(str(label).replace("'", "")) for label in self.number}
            if known & {number_in_file(str(label).replace("'", "")) for label in missing}:
                remedy = "The number 1 is not the text '1': convert these labels."
            raise ValueError(
                f"{len(rows)} rows, the first at position {rows[0]}, are in groups that were "
                f"neither declared nor in the fit{names}. {remedy}"
            )
        number = self.number | {label: self._nearest(label) for label in missing}
        return np.array([number[label] for label in labels.tolist()], dtype=np.intp)

    def warn_of_attribute(self, columns: Iterable, names: Iterable) -> None:
        """Warn of columns that have one value in each group, and others in other groups."""
        kept = np.flatnonzero(self.codes >= 0)
        codes, first = self.codes[kept], kept[np.unique(self.codes[kept], return_index=True)[1]]
        for column, name in zip(columns, names, strict=True):
            differ = len(codes) > 2 * len(first) == 2 * len(set(map(repr, column[first]))) > 2
            if differ and np.all(column[kept] == column[first][codes]):
                warn_user(
                    f"column {name!r} of X tells the group of every row: drop it if it is the "
                    "sensitive attribute, or made of it."
                )

    def find(self, labels: np.ndarray) -> np.ndarray:
        """Return the group number of each private label, -1 for an unknown one."""
        return label_codes(labels, self.number)

    def _nearest(self, label: Any) -> int:
        """Return the number of the group with the known label that is most similar to this one."""

        def unlikeness(known: Any) -> tuple[int, float, bool, int]:
            code = self.number[known]
            return *_difference(label, known), self.names[code] != OTHER, -int(self.sizes[code])

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
    warn_of_variants(counts)
    small = [label for label in counts if counts[label] < min_group_size or is_unlabelled(label)]
    if small_groups != "drop" and len(labels) < min_group_size:
        raise ValueError(f"n_samples={len(labels)} is fewer than min_size={min_group_size}.")
    if small and small_groups == "error":
        raise ValueError(
            f"{len(small)} of {len(counts)} groups have fewer than {min_group_size} rows, the "
            f"smallest {min(counts.values())}. Merge them with FoundGroups(small='merge'), leave "
            "their rows as they are with small='drop', or use a smaller min_size."
            + _hint_to_bands(list(counts))
        )
    kept = sorted((label for label in counts if label not in small), key=label_order)
    name_of = {label: label for label in kept}
    if small and small_groups == "merge":
        enough = sum(counts[label] for label in {*small, OTHER}) >= min_group_size
        # Where all groups are small there is no larger one to join.
        merged = OTHER if enough or not kept else max(kept, key=counts.__getitem__)
        name_of |= dict.fromkeys(small, merged)
    names = sorted(set(name_of.values()), key=label_order)
    # New rows may also be labelled by the name of a merged group.
    place = {name: g for g, name in enumerate(names)}
    number = dict.fromkeys(counts, -1) | {label: place[name_of[label]] for label in name_of} | place
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
    labels = read_labels(groups, "groups")
    number = {label: g for g, label in enumerate(labels.tolist())}
    if len(number) < len(labels) or not len(labels):
        raise ValueError(f"groups must be a list of different labels, got {to_display(groups)}.")
    return Groups(labels, np.empty(0, np.intp), np.zeros(len(labels), np.intp), number)


def _difference(label: Any, other: Any) -> tuple[int, float]:
    """Return in how many attributes two labels differ, and by how much if both are numbers."""
    if isinstance(label, tuple) and isinstance(other, tuple) and len(label) == len(other):
        parts = [_difference(*pair) for pair in zip(label, other, strict=True)]
        return sum(part[0] for part in parts), math.fsum(part[1] for part in parts)
    # An age of 33 is more like 30 than like 40, though it differs from both.
    numbers = isinstance(label, Real) and isinstance(other, Real)
    return int(label != other), abs(float(label) - float(other)) if numbers else 0.0


def group_weights(weights: Any, sizes: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the weights of groups, non-negative with sum 1, or raise.

    `weights` is the user's parameter: "proportional", "uniform", one number for each group, or a
    dict with one for each label in `names`. `sizes` are numbers of rows, possibly as released.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._groups import group_weights
    >>> group_weights("proportional", np.array([10, 30]), np.array(["a", "b"]))
    array([0.25, 0.75])
    """
    if isinstance(weights, str):
        shares = sizes if weights == "proportional" else np.ones(len(sizes))
        return shares / shares.sum()
    if isinstance(weights, Mapping):
        if set(weights) != set(names.tolist()):
            raise ValueError(f"weights must have the labels of the {len(names)} groups as keys.")
        weights = [weights[name] for name in names.tolist()]
    refuse_other_order("weights", weights, names.tolist(), of="the groups")
    weights = np.asarray(weights, dtype=np.float64)
    is_valid = np.isfinite(weights).all() and (weights >= 0).all() and weights.any()
    if weights.shape != (len(sizes),) or not is_valid:
        raise ValueError(
            f"weights must be {len(sizes)} numbers, one per group, finite and non-negative, not "
            f"all zero; got shape {weights.shape}."
        )
    # The sum of very large weights could overflow.
    weights = weights / weights.max()
    return weights / weights.sum()


def read_groups(fair: Any, labels: np.ndarray | None = None) -> Groups:
    """Return the groups of an estimator's rows, or raise; also if their weights are wrong.

    Without `labels`, those of a fit with epsilon: they are declared, and have no rows.
    """
    policy = group_policy(fair.groups)
    if labels is not None:
        groups = policy._make_groups(labels)
        warn_user(small_groups_warning(policy, groups))
    elif isinstance(policy, DeclaredGroups):
        groups = declare_groups(policy.labels)
        if len(groups.names) < 2:
            raise ValueError("a repair needs two or more groups, and one was declared.")
    else:
        raise ValueError(
            "groups must be declared: with epsilon, pass all labels as groups=[...] or "
            "DeclaredGroups([...]). They may not be learned from private data."
        )
    # Wrong weights raise before anything is charged; declared groups have no sizes yet.
    group_weights(fair.weights, np.maximum(groups.sizes, 1), groups.names)
    return groups
