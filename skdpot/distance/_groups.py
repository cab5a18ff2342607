"""The groups of records, and the public facts about them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skdpot.distance._space import BoxSpace, TableSpace
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.quotes import shown, without_quotes
from skdpot.tables import declared_labels, label_codes, one_by_one, refuse_other_labels


@dataclass(frozen=True)
class Groups:
    """Records by group.

    Attributes
    ----------
    names : ndarray of shape (n_groups,)
        Public.
    codes : ndarray of shape (n_records,)
        Private with private labels: the number of each record's group, -1 if it is in none.
    sizes : ndarray of shape (n_groups,)
        Public: how many records a group has, or at least how many it is filled up to.
    labels : {"public", "private"}
        Whether the group of a record is public.
    """

    names: np.ndarray
    codes: np.ndarray
    sizes: np.ndarray
    labels: str

    def cost_errors(
        self, errors: Iterable[float], cost_range: float, note: str = ""
    ) -> tuple[ExpectedError, ...]:
        """Return the given standard errors of the costs between pairs of groups, with names."""
        pairs = combinations(self.names.tolist(), 2)
        return tuple(
            ExpectedError(
                f"standard error of the cost between {g!r} and {h!r}{note}",
                float(error),
                cost_range,
            )
            for (g, h), error in zip(pairs, errors, strict=True)
        )

    def largest_pair(self, n_records: int) -> tuple[int, int]:
        """Return the public largest sizes of two groups, given the total number of records."""
        if self.labels == "public":
            second, first = np.sort(self.sizes)[-2:]
            return int(first), int(second)
        # The group of each record is private: the product of two sizes is largest if they are
        # equal.
        filled = n_records + int(np.sort(self.sizes)[-2:].sum())
        return -(-filled // 2), -(-filled // 2)

    def split(self, X: np.ndarray, filler: np.ndarray) -> list[np.ndarray]:
        """Return the records of every group.

        If a group of private size has fewer records than declared, a public point is added as often
        as needed. An error, or a guarantee that did not hold, would reveal its size.
        """
        samples = [X[self.codes == g] for g in range(len(self.names))]
        if self.labels == "public":
            return samples
        return [
            np.vstack([sample, np.tile(filler, (max(size - len(sample), 0), 1))])
            for sample, size in zip(samples, self.sizes, strict=True)
        ]


class Layout(NamedTuple):
    """The public facts about records that a release is planned from: space, groups and number.

    Releases of `n_parts` owners are added up, each with noise of its own.
    """

    space: BoxSpace | TableSpace
    groups: Groups
    n_records: int
    n_parts: int = 1


class Records(NamedTuple):
    """Private records with their layout."""

    X: np.ndarray
    layout: Layout

    def scaled(self) -> "Records":
        """Return the records in public units."""
        space = self.layout.space
        return Records(space.scaled(self.X), self.layout._replace(space=space.unit))


def make_groups(X: np.ndarray, y: Any, *, groups: Any, labels: str, min_group_size: Any) -> Groups:
    """Return the groups that y names; raise if something public is wrong.

    With private labels errors depend on the shape of y only.
    """
    without_quotes(lambda: check_consistent_length(X, y), "y cannot be read as labels.")
    if labels == "private" and (groups is None or min_group_size is None):
        missing = "groups" if groups is None else "min_group_size"
        raise ValueError(
            f"labels='private' needs {missing}: with private labels, which groups there are and "
            "how large they are may not be learned from y. Declare groups=, and with "
            "min_group_size= a number of records that every group has."
        )
    if groups is None:
        names, codes = _public_groups(column_or_1d(y, warn=True))
        given = names[codes]
    else:
        names, number = declared_labels(groups, "groups")
        given = one_by_one(y)
        if labels == "private":
            refuse_other_labels(y, number, "y")
        codes = label_codes(given, number)
    if len(names) < 2:
        raise ValueError(f"a distance needs two or more groups, got {len(names)}.")
    declared = None if min_group_size is None else _check_sizes(min_group_size, len(names))
    if labels == "private" and declared is not None:
        if sum(declared.tolist()) > len(X):
            raise ValueError(
                f"min_group_size adds up to {sum(declared.tolist())} records in {len(names)} "
                f"groups, and there are {len(X)} in all. Declare what every group surely has."
            )
        return Groups(names, codes, declared.astype(np.int64), labels)
    sizes = np.bincount(codes + 1, minlength=len(names) + 1)[1:]
    _check_public(names, given, codes, sizes, declared)
    return Groups(names, codes, sizes, labels)


def declared_groups(
    n_records: int, group_sizes: Any, *, groups: Any, labels: str, min_group_size: Any
) -> Groups:
    """Return groups of declared sizes without records, or raise.

    Without sizes, two groups or the declared ones have equally many records.
    """
    if isinstance(group_sizes, Mapping):
        names, group_sizes = list(group_sizes), list(group_sizes.values())
    else:
        given = group_sizes if groups is None else groups
        names = list(range(2 if given is None else len(given))) if groups is None else groups
    if group_sizes is None:
        group_sizes = np.diff(np.linspace(0, n_records, len(names) + 1).astype(np.int64))
    if len(group_sizes) != len(names) or sum(group_sizes) != n_records:
        raise ValueError(
            f"group_sizes must give one number for each of the {len(names)} groups, and add up to "
            f"n_records={n_records}, got {shown(group_sizes)}."
        )
    y = np.repeat(np.arange(len(names)), np.asarray(group_sizes, dtype=np.int64))
    names_of = np.asarray(names, dtype=object)[y]
    return make_groups(
        y[:, None], names_of, groups=list(names), labels=labels, min_group_size=min_group_size,
    )  # fmt: skip


def _public_groups(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels in y, and the number of each record's label."""
    if any(label is None or label != label for label in one_by_one(y)):
        raise ValueError(
            "y contains NaN or None: a record without a group cannot be compared. Remove it, or "
            "give these records their own label."
        )
    try:
        names, codes = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            "the labels in y are of types that cannot be sorted together. Make them all text, or "
            "declare groups=."
        ) from error
    return names, codes


def _check_sizes(min_group_size: Any, n_groups: int) -> np.ndarray:
    sizes = np.asarray(min_group_size)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (n_groups,)) or (sizes < 1).any():
        raise ValueError(
            "min_group_size must be a positive integer, or one for each of the "
            f"{n_groups} groups, got {shown(min_group_size)}."
        )
    # Sizes of any integer type are added without overflow.
    return np.broadcast_to(sizes, n_groups)


def _check_public(
    names: np.ndarray,
    given: np.ndarray,
    codes: np.ndarray,
    sizes: np.ndarray,
    declared: np.ndarray | None,
) -> None:
    if (codes < 0).any():
        raise ValueError(
            f"y holds {given[codes < 0].tolist()[0]!r}, which is not one of the declared groups "
            f"{names.tolist()}. Declare it, or remove the records that have it."
        )
    if not sizes.all():
        raise ValueError(
            f"there is no record of group {names[sizes == 0].tolist()[0]!r} in y. Declare only "
            "groups that have records. In a search, take folds with all of them: StratifiedKFold."
        )
    if declared is not None and (sizes < declared).any():
        g = int(np.argmax(sizes < declared))
        raise ValueError(
            f"group {names.tolist()[g]!r} has {sizes[g]} records, fewer than "
            f"min_group_size={declared[g]}."
        )
