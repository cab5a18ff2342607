"""The journal of a release of files: the claims, and the valid result of each file."""

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from skdpot.sampling._file_tasks import Drawn, sync_folders

# Number of rows in memory at a time.
_PAGE = 1000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS call (facts TEXT NOT NULL, sampler BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    token TEXT NOT NULL,
    n_users INTEGER NOT NULL,
    source_digest TEXT NOT NULL,
    temporary TEXT,
    digest TEXT
);
CREATE TABLE IF NOT EXISTS calls (count INTEGER NOT NULL);
"""


class Claim(NamedTuple):
    """A file of users to be released.

    Attributes
    ----------
    number : int
        Its position among the sources.
    source, target : str
        Absolute paths.
    token : str
        Names the release in the ledger.
    n_users : int
        How many users it holds.
    source_digest : str
        The digest of its content.
    """

    number: int
    source: str
    target: str
    token: str
    n_users: int
    source_digest: str


class Recorded(NamedTuple):
    """The one valid result of a file, and its current place.

    Attributes
    ----------
    number : int
        Position among the sources.
    target, temporary : str
        Where it belongs, and where it was written.
    digest : str
        The digest of its content.
    n_users : int
        How many users it is of.
    """

    number: int
    target: str
    temporary: str
    digest: str
    n_users: int


class FileJournal:
    """A file beside the ledger with one writing process at a time.

    The writes of a method are on disk when it returns. The system frees the file when its writer
    dies.

    Parameters
    ----------
    path : str
        Its path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # Only the owner of the ledger may read tokens and digests of private files.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        sync_folders([path])
        self._connection = sqlite3.connect(
            path, isolation_level=None, timeout=0.5, check_same_thread=False
        )
        # joblib asks for the next tasks in threads of its own.
        self._lock = threading.RLock()
        try:
            for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.executescript(_SCHEMA)
            with self._transaction():
                pass
        except sqlite3.Error as error:
            self._connection.close()
            raise RuntimeError(
                f"cannot use the journal at {path}: {error}. If it is locked, another process is "
                "releasing these files: let it finish, or end it. Nothing was done."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN EXCLUSIVE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def call(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the facts of the call that claimed the files, and its sampler; None before it."""
        rows = self._fetched("SELECT facts, sampler FROM call")
        return (json.loads(rows[0][0]), rows[0][1]) if rows else None

    def claim(
        self, facts: dict[str, Any], sampler: bytes, claims: Iterable[Claim], n_files: int
    ) -> None:
        """Record a call and all of its files, or nothing."""
        with self._transaction():
            self._connection.execute("INSERT INTO call VALUES (?, ?)", (json.dumps(facts), sampler))
            # A task may be done twice.
            self._connection.executemany(
                "INSERT OR IGNORE INTO files VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)", claims
            )
            check_all_came(n_files - self.count_unfinished())

    @property
    def n_calls(self) -> int:
        """Return how many calls have begun or ended, as far as this journal knows."""
        ((count,),) = self._fetched("SELECT coalesce(max(count), 0) FROM calls")
        return int(count)

    def count_call(self, least: int) -> int:
        """Count the beginning or the end of a call, of which there were so many at least."""
        with self._transaction():
            count = max(self.n_calls, least) + 1
            self._connection.execute("INSERT INTO calls VALUES (?)", (count,))
        return count

    def give_up(self) -> None:
        """Forget a claim that has not been charged."""
        with self._transaction():
            self._connection.execute("DELETE FROM call")
            self._connection.execute("DELETE FROM files")

    def claims(self, *, unfinished: bool = False) -> Iterator[Claim]:
        """Return the claims in order: all of them, or those without a result."""
        columns = "source, target, token, n_users, source_digest"
        return self._pages(Claim, columns, "digest IS NULL" if unfinished else "TRUE")

    def recorded(self) -> Iterator[Recorded]:
        """Return the valid results, in order."""
        return self._pages(Recorded, "target, temporary, digest, n_users", "digest IS NOT NULL")

    def count_unfinished(self) -> int:
        """Return the number of files without a result."""
        ((count,),) = self._fetched("SELECT count(*) FROM files WHERE digest IS NULL")
        return int(count)

    def _pages(self, kind: Any, columns: str, condition: str) -> Iterator[Any]:
        query = (
            f"SELECT number, {columns} FROM files WHERE {condition} AND number > ? "
            f"ORDER BY number LIMIT {_PAGE}"
        )
        last = -1
        while rows := self._fetched(query, last):
            yield from map(kind._make, rows)
            last = rows[-1][0]

    def _fetched(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def record(self, drawn: Iterable[Drawn]) -> set[int]:
        """Record results of files without one; return the numbers of the files that got one."""
        query = "UPDATE files SET temporary = ?, digest = ? WHERE number = ? AND digest IS NULL"
        with self._transaction():
            return {
                number
                for number, temporary, digest in drawn
                if self._connection.execute(query, (temporary, digest, number)).rowcount
            }


def check_all_came(missing: int) -> None:
    """Raise if there are fewer results than tasks."""
    if missing:
        raise RuntimeError(
            f"{missing} results are missing: client must return one for each task that it is given."
        )


def journal_of(ledger_path: Path, partition: str, kind: str = "journal") -> str:
    """Return the path of the journal of a partition, or of another file of it, beside a ledger."""
    # The name of a partition may hold characters that a file name cannot.
    safe = "".join(
        letter if letter.isalnum() or letter in "-_" else f"%{ord(letter):x}"
        for letter in partition
    )
    return str(ledger_path.with_name(f"{ledger_path.name}.{safe}.{kind}"))
