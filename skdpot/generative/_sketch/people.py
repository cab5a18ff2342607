"""People with several rows, whose rows share the weight of one record.

Proofs: :ref:`proof-sketch-people`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from skdpot.generative._sketch.noisy_counts import release_tables, tables_sensitivity
from skdpot.releases import SketchReleases
from skdpot.tables import container_of

__all__ = [
    "LARGEST_WEIGHT",
    "SIZE_EDGES",
    "People",
    "draw_sizes",
    "release_sizes",
    "taken_out",
    "with_person",
]

# The integer weights of a person's rows add up to at most this, which is the weight of a record.
LARGEST_WEIGHT = 2**20
# Numbers of rows are counted in these cells, each about 1.4 times as wide as the one before. From
# 1,000 rows on, a person counts, and is drawn, with about 1,000.
SIZE_EDGES = np.unique(np.ceil(1.4 ** np.arange(21)).astype(np.int64).clip(max=1001))
# Numbers of rows are those up to the last cell whose count is above this many deviations of noise.
_CLEAR_DEVIATIONS = 4.0


class People(NamedTuple):
    """The people of a private table: the weight of each row, and each person's number of rows."""

    weights: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray) -> "People":
        """Return the people of rows, by the number of each row's person.

        Notes
        -----
        The weights of a person's rows are ``LARGEST_WEIGHT // k`` for `k` rows, which add up to at
        most LARGEST_WEIGHT. They depend on no other person.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot.generative._sketch.people import People
        >>> people = People.of(np.array([0, 1, 0, 0]))
        >>> people.weights, people.sizes
        (array([ 349525, 1048576,  349525,  349525]), array([3, 1]))
        """
        _, person, sizes = np.unique(codes, return_inverse=True, return_counts=True)
        return cls((LARGEST_WEIGHT // sizes)[person], sizes)


def release_sizes(sizes: np.ndarray, releases: SketchReleases) -> np.ndarray:
    """Release how many people have so many rows, in cells; a person is in one of them.

    Counts are 0 beyond the last cell that is clear of noise: otherwise noise alone would make
    people with hundreds of rows.
    """
    cells = np.searchsorted(SIZE_EDGES, np.minimum(sizes, SIZE_EDGES[-1] - 1), side="right") - 1
    exact = np.bincount(cells, minlength=len(SIZE_EDGES) - 1)
    (counts,) = release_tables(releases, "numbers of rows", [exact])
    noise = releases.standard_deviation("numbers of rows", tables_sensitivity(1))
    clear = np.flatnonzero(counts > _CLEAR_DEVIATIONS * noise)
    last = clear[-1] if len(clear) else counts.argmax()
    return np.where(np.arange(len(counts)) > last, 0.0, counts)


def draw_sizes(statistics: Mapping[str, np.ndarray], n_users: int, rng: Any) -> np.ndarray:
    """Return the numbers of rows of so many people, from released counts."""
    counts = np.maximum(statistics["sizes"], 0.0)
    shares = counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))
    cells = rng.choice(len(shares), n_users, p=shares)
    return rng.randint(SIZE_EDGES[cells], SIZE_EDGES[cells + 1])


def taken_out(X: Any, groups: Any) -> tuple[Any, Any, str]:
    """Return a table, the person of each row, and the name of their column, or raise.

    `groups` has the persons, or names the column of X that has them, which is taken out.
    """
    if not isinstance(groups, str):
        name = getattr(groups, "name", None)
        return X, groups, name if isinstance(name, str) else "user"
    # Frames of other libraries raise.
    container_of(X)
    if list(getattr(X, "columns", ())).count(groups) != 1:
        raise ValueError(
            f"groups names a column, and X has no column {groups!r}, or several. Name one of a "
            "data frame, or give the person of each row itself."
        )
    return X.drop(columns=groups) if hasattr(X, "iloc") else X.drop(groups), X[groups], groups


def with_person(table: Any, name: str, person: np.ndarray) -> Any:
    """Return a drawn table with the person of each row as its first column."""
    if isinstance(table, np.ndarray):
        return np.column_stack([person.astype(table.dtype), table])
    if hasattr(table, "iloc"):
        table.insert(0, name, person)
        return table
    return table.insert_column(0, type(table)({name: person})[name])
