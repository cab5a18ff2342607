"""The people of a table's rows, who have one or several rows each."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from skdpot.privacy.foreign import result_of
from skdpot.tables._containers import exact_digits, plain_values
from skdpot.tables._declarations import is_missing, objects


def check_index(X: Any, groups: Any) -> None:
    """Raise if pandas rows and their people have different indices."""
    if hasattr(X, "iloc") and hasattr(groups, "iloc") and not X.index.equals(groups.index):
        raise ValueError(
            "groups has another index than X, or another order: reindex it like X, or pass "
            "groups.to_numpy() if it is in the order of the rows."
        )


def person_codes(
    groups: Any, n_rows: int, *, leave_out: bool = False
) -> tuple[np.ndarray, list[Any]]:
    """Return the number of each row's person, and the people, or raise without a quote.

    With `leave_out`, the number is -1 where a value names no single person: a missing value, a list
    or a floating-point number that may stand for several people. Otherwise these raise.

    Examples
    --------
    >>> from skdpot.tables import person_codes
    >>> person_codes(["b", "a", "b"], 3)
    (array([0, 1, 0]), ['b', 'a'])
    """
    if np.ma.isMaskedArray(groups):
        raise ValueError("groups is a masked array: give the person of each row, without a mask.")
    if not isinstance(groups, Iterable):
        groups = ()
    # One by one: a person of another type changes none of the others.
    values = plain_values(groups if hasattr(groups, "dtype") else objects(groups))
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError("groups must have one person for each row of X, in one dimension.")
    number: dict[Any, int] = {}
    largest = 2.0 ** exact_digits(groups)
    codes = [_code_of(value, number, largest) for value in values.tolist()]
    if -1 in codes and not leave_out:
        raise ValueError(
            "groups has values that do not name one person, whose rows cannot be protected: "
            "missing values, lists, or floating-point numbers that may stand for several people "
            f"(from 2**{exact_digits(groups)} on). Leave these rows out, or read names as text."
        )
    _check_one_kind(number)
    return np.array(codes, dtype=np.intp), list(number)


def _code_of(value: Any, number: dict[Any, int], largest: float) -> int:
    """Return the number of a person, a new one for a new person, and -1 for no name."""
    try:
        if is_missing(value) or (isinstance(value, float) and abs(value) >= largest):
            return -1
        return number.setdefault(value, len(number))
    except Exception:
        return -1


def _check_one_kind(people: Iterable[Any]) -> None:
    """Raise if people are named by values of several kinds: one person might have two names."""
    if len(set(map(_kind_of, people))) > 1:
        raise ValueError(
            "groups names people by values of different types, such as 7 and '7', and one person "
            "may have two names: read the column as text (dtype=str)."
        )


def _kind_of(person: Any) -> Any:
    if isinstance(person, tuple):
        return tuple(map(_kind_of, person))
    # Numbers of different types are equal, except for decimal ones.
    kind = Real if isinstance(person, Real) else type(person)
    return kind, result_of(lambda: person.tzinfo, None) is None
