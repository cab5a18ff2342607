"""Results of benchmarks that a file of the repository keeps, so that what is slow is done once."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

R = TypeVar("R")


@dataclass
class StoredBoard(Generic[R]):
    """Results in the order in which they were found; a board says of which kind, and where.

    A result is a frozen dataclass of numbers, words and dictionaries. Its `key` says of what it is.
    """

    kind: ClassVar[type]
    file: ClassVar[Path]
    results: list[R] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read what `save` wrote; a file that is not there holds nothing."""
        path = cls.file if path is None else path
        lines = path.read_text().splitlines() if path.exists() else []
        return cls([cls.kind(**json.loads(line)) for line in lines])

    def save(self, path: Path | None = None) -> None:
        """Write a line for each result, in an order that does not depend on when it was found."""
        ordered: list[Any] = sorted(self.results, key=lambda one: one.key)
        path = self.file if path is None else path
        path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in ordered))

    def add(self, result: R) -> None:
        """Add a result in place of one that has the same key."""
        self.results = [one for one in self.results if one.key != result.key] + [result]

    def select(self, **wanted: object) -> list[R]:
        """Return the results whose attributes are as wanted."""
        return [
            one
            for one in self.results
            if all(getattr(one, name) == value for name, value in wanted.items())
        ]
