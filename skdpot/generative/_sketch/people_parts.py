"""Private tables in parts that hold all rows of their people, here or in the processes of Dask."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from skdpot.tables import check_one_kind, container_of, person_codes

__all__ = [
    "LARGEST_WEIGHT",
    "LocalParts",
    "PeoplePart",
    "RemoteParts",
    "by_person",
    "first_of",
    "read_parts",
]

# The largest sum of the integers that the rows of a person add to a table of counts.
LARGEST_WEIGHT = 2**20
# The number of rows of a part.
_PART_ROWS = 2**18


@dataclass(frozen=True, eq=False)
class PeoplePart:
    """All rows of some people: private.

    Parameters
    ----------
    units : list of ndarray of shape (n_rows,)
        Of each column but the number of rows. The rows of a person are adjacent and in order.
    sizes : ndarray of shape (n_people,)
        The number of rows of each person, at least one.
    """

    units: list[np.ndarray]
    sizes: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """Return the position of the first row of each person."""
        return np.cumsum(self.sizes) - self.sizes

    def column(self, j: int, shared: Sequence[int]) -> np.ndarray:
        """Return a column; in `shared` columns, the first row of a person sets all."""
        units = self.units[j]
        return np.repeat(units[self.starts], self.sizes) if j in shared else units

    @property
    def weights(self) -> np.ndarray:
        """Return the integer that each row adds to a count."""
        return np.repeat((LARGEST_WEIGHT // self.sizes).astype(np.float64), self.sizes)


@dataclass(frozen=True, eq=False)
class LocalParts:
    """Parts of a table in this process."""

    parts: list[PeoplePart]

    @property
    def n_in_all(self) -> int:
        """Return the number of people."""
        return _n_people(self.parts)

    def sums(self, sum_part: Callable[[PeoplePart], list[np.ndarray]]) -> list[np.ndarray]:
        """Return exact sums of the arrays that a function returns for each part."""
        return reduce(_add, map(sum_part, self.parts)) if self.parts else []


@dataclass(frozen=True, eq=False)
class RemoteParts:
    """Parts of a table in the processes of Dask, which return sums only, with numbers of people."""

    parts: list[Any]
    n_people: list[int]

    @property
    def n_in_all(self) -> int:
        """Return the number of people."""
        return sum(self.n_people)

    def sums(self, sum_part: Any) -> list[np.ndarray]:
        """Return exact sums of the arrays that a function returns for each part."""
        import dask

        part_sums = dask.compute(*[dask.delayed(_sums_of)(part, sum_part) for part in self.parts])
        # A partition may have no rows.
        return [sum(arrays) for arrays in zip(*filter(None, part_sums), strict=True)]


def first_of(X: Any, groups: Any) -> tuple[Any, Any, Any]:
    """Return a table, the person of each of its rows, and all frames if it is in several.

    `groups` are the persons of rows, or the column that has them, which is taken out. If X is in
    several frames, the table and persons are those of the first frame, perhaps without rows, and
    `frames` has all of them, with the column. If X is one table, `frames` is None.
    """
    if not isinstance(groups, str):
        return X, groups, None
    if hasattr(X, "to_delayed"):
        return *_taken_out(X._meta, groups), X
    if not isinstance(X, Iterable) or hasattr(X, "columns") or isinstance(X, np.ndarray):
        return *_taken_out(X, groups), None
    frames = iter(X)
    first = next(frames, None)
    return *_taken_out(first, groups), chain([first], frames)


def read_parts(frames: Any, groups: str, rows: Any, order: int | None, private: bool) -> Any:
    """Return the parts of a table in several frames, and how many people have names, or raise.

    All rows of a person are in one frame, or one partition. `groups` is the column with the person
    of each row, and `order` the column by which the rows of a person are in order.
    """
    read = partial(_read_part, groups=groups, rows=rows, order=order, private=private)
    if not hasattr(frames, "to_delayed"):
        by_frame = list(map(read, frames))
        parts: Any = LocalParts([part for parts, _ in by_frame for part in parts])
        names = [people for _, people in by_frame]
    else:
        import dask

        pairs = dask.persist(*[dask.delayed(read)(frame) for frame in frames.to_delayed()])
        names = dask.compute(*[pair[1] for pair in pairs])
        sizes = dask.compute(*[dask.delayed(_n_people)(pair[0]) for pair in pairs])
        parts = RemoteParts([pair[0] for pair in pairs], list(sizes))
    people = [person for frame_people in names for person in frame_people or ()]
    if all(frame_people is None for frame_people in names):
        raise ValueError("the table has no records (0 rows); at least 1 is needed.")
    check_one_kind(people)
    if len(set(people)) < len(people):
        raise ValueError(
            "rows of a person are in several parts of the table, where she would count several "
            "times: bring all rows of each person into one part."
        )
    return parts, len(people)


def by_person(
    units: np.ndarray, groups: Any, order: int | None, *, private: bool = False
) -> tuple[list[PeoplePart], list[Any]]:
    """Return rows in parts of about as many rows, or of one person with more; and the people.

    Units are those of `TableSchema.encode`, and `groups` has the person of each row. `order` is the
    column by which the rows of a person are in order; rows that are alike there stay in their
    order. If `private`, rows with a unit below 0, or without a person, count nowhere.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.people_parts import by_person
    >>> parts, people = by_person(np.array([[1], [2], [3]]), ["b", "a", "b"], None)
    >>> people, parts[0].sizes, parts[0].units
    (['b', 'a'], array([2, 1]), [array([1, 3, 2], dtype=uint8)])
    """
    codes, people = person_codes(groups, len(units), leave_out=private)
    kept = (codes >= 0) & (units >= 0).all(axis=1)
    units, codes = units[kept], codes[kept]
    rows = np.lexsort((codes,) if order is None else (units[:, order], codes))
    units, sizes = units[rows], np.unique(codes, return_counts=True)[1]
    if not len(sizes):
        return [PeoplePart(list(units.T), sizes)], people
    stops = np.cumsum(sizes)
    part_of = (stops - sizes) // _PART_ROWS
    ends = np.flatnonzero(np.diff(part_of, append=part_of[-1] + 1)) + 1
    parts, start = [], 0
    for end in ends.tolist():
        block = slice(int(stops[start] - sizes[start]), int(stops[end - 1]))
        columns = [_compact(units[block, j]) for j in range(units.shape[1])]
        parts.append(PeoplePart(columns, sizes[start:end]))
        start = end
    return parts, people


def _read_part(
    frame: Any, *, groups: str, rows: Any, order: int | None, private: bool
) -> tuple[list[PeoplePart], list[Any] | None]:
    """Return the rows of a frame by person, and its people; None where there are no rows."""
    if not len(frame):
        return [], None
    X, persons = _taken_out(frame, groups)
    units = rows.read(BaseEstimator(), X, None, reset=True, private=private)
    return by_person(units, persons, order, private=private)


def _n_people(parts: list[PeoplePart]) -> int:
    return sum(len(part.sizes) for part in parts)


def _add(first: list[np.ndarray], second: list[np.ndarray]) -> list[np.ndarray]:
    return [a + b for a, b in zip(first, second, strict=True)]


def _sums_of(parts: list[PeoplePart], sum_part: Any) -> list[np.ndarray]:
    return LocalParts(parts).sums(sum_part)


def _taken_out(X: Any, name: str) -> tuple[Any, Any]:
    """Return a frame without a column, and this column, or raise."""
    # Frames of other libraries raise.
    container_of(X)
    if list(getattr(X, "columns", ())).count(name) != 1:
        raise ValueError(
            f"groups names a column, and X has no column {name!r}, or several. Name one of a data "
            "frame, or give the person of each row itself."
        )
    return X.drop(columns=name) if hasattr(X, "iloc") else X.drop(name), X[name]


def _compact(units: np.ndarray) -> np.ndarray:
    """Return units as short integers."""
    return units.astype(np.min_scalar_type(int(units.max())))
