"""Private records of a search, and their division into blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._sklearn_compat import rows_at


@dataclass(frozen=True, eq=False)
class Records:
    """Private records, and the arrays of `params` and `groups`, with one value for each."""

    X: Any
    y: Any
    n_records: int
    params: dict[str, Any]
    groups: Any
    # Further parameters of fits.
    public: dict[str, Any]
    # The number of each record's person, if people have several records.
    person: np.ndarray | None = None

    @property
    def n_units(self) -> int:
        """Return the number of units that are assigned to blocks: records, or people."""
        return self.n_records if self.person is None else int(self.person.max()) + 1

    def rows_in(self, blocks: list[np.ndarray]) -> list[np.ndarray]:
        """Return the positions of the records in each block; a person's records stay together."""
        if self.person is None:
            return blocks
        ordered = np.argsort(self.person, kind="stable")
        of_people = np.split(ordered, np.cumsum(np.bincount(self.person))[:-1])
        return [np.concatenate([of_people[i] for i in block]) for block in blocks]

    def subset(self, rows: np.ndarray) -> tuple[Any, ...]:
        """Return X, y, groups and parameters of some records."""
        X, y, groups, *values = (
            None if each is None else rows_at(each, rows)
            for each in (self.X, self.y, self.groups, *self.params.values())
        )
        return X, y, groups, dict(zip(self.params, values, strict=True))
