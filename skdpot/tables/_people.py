"""The people of a table's rows, who have one or several rows each."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from skdpot.tables._containers import exact_digits, plain_values
from skdpot.tables._declarations import is_missing, objects


def check_index(X: Any, groups: Any) -> None:
    """Raise if pandas rows and their people have different indices."""
    if hasattr(X, "iloc") and hasattr(groups, "iloc") and not X.index.equals(groups.index):
        raise ValueError(
            "groups has another index than X, or another order: reindex it like X, or pass "
            "groups.to_numpy() if it is in the order of the rows."
        )


def person_codes(groups: Any, n_rows: int) -> tuple[np.ndarray, list[Any]]:
    """Return the number of each row's person, and the people, or raise without a quote.

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
    if any(map(is_missing, values.tolist())):
        raise ValueError(
            "groups has missing values. A row without a person cannot be protected: leave these "
            "rows out, or give each its own person."
        )
    digits = exact_digits(groups)
    if any(isinstance(value, float) and abs(value) >= 2.0**digits for value in values.tolist()):
        raise ValueError(
            f"groups has floating-point numbers from 2**{digits} on, which may stand for several "
            "people: read them as text, or as integers."
        )
    if values.dtype != object:
        people, codes = np.unique(values, return_inverse=True)
        return codes, people.tolist()
    number: dict[Any, int] = {}
    try:
        codes = np.array([number.setdefault(value, len(number)) for value in values.tolist()])
    except TypeError:
        pass
    else:
        check_one_kind(number)
        return codes, list(number)
    raise ValueError("groups has values that cannot name a person: use words or numbers.")


def check_one_kind(people: Iterable[Any]) -> None:
    """Raise if people are named by values of several kinds: one person might have two names."""
    if len(set(map(_kind_of, people))) > 1:
        raise ValueError(
            "groups names people by values of different types, such as 7 and '7', and one person "
            "may have two names: read the column as text (dtype=str), in all parts."
        )


def _kind_of(person: Any) -> Any:
    if isinstance(person, tuple):
        return tuple(map(_kind_of, person))
    # Numbers of different types are equal, except for decimal ones.
    kind = Real if isinstance(person, Real) else type(person)
    return kind, getattr(person, "tzinfo", None) is None
