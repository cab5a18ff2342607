"""The file of a ledger: a chain of records in SQLite, with one writer at a time.

Every operation opens the file, and closes it again. So no connection is carried into another
thread, a forked process or a pickle, and at rest the ledger is a single file.
"""

import contextlib
import glob
import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from skdpot.privacy.errors import LedgerError, LedgerTamperedError

# SQLite has locks of its own. A process that is forked while another thread holds one of them would
# wait for it for ever. So one thread at a time uses SQLite, and forks wait for it. The history of a
# ledger, which its parts and copies share, changes under this lock as well.
one_at_a_time = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=one_at_a_time.acquire,
        after_in_parent=one_at_a_time.release,
        after_in_child=one_at_a_time.release,
    )

_APPLICATION_ID = 0x736B6470
# Seconds that a writer waits for others, and seconds after which it asks SQLite anew: Python hears
# no interruption while SQLite waits.
_PATIENCE = 120.0
_SHORT_WAIT = 0.1
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA journal_mode = WAL;
CREATE TABLE records (
    number INTEGER PRIMARY KEY CHECK (number >= 0),
    body TEXT NOT NULL,
    digest TEXT NOT NULL
);
CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
CREATE TRIGGER records_are_not_deleted BEFORE DELETE ON records
    BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
"""


class Link(NamedTuple):
    """A place in the chain: the number of a record and its digest."""

    number: int
    digest: str


class Record(NamedTuple):
    """A record as it is in the file."""

    number: int
    body: str
    digest: str


ORIGIN = Link(-1, "")


class Chain:
    """Records in a file, each with a digest of itself and all before it.

    Parameters
    ----------
    path : Path
        The file.
    key : bytes or None
        Secret without which no digest can be made; None makes digests that show accidents and
        careless hands, and that anyone can make anew.
    """

    def __init__(self, path: Path, key: bytes | None) -> None:
        self.path, self.key = path, key

    def create(self, body: dict[str, Any]) -> None:
        """Create the file with a first record, atomically, unless it exists by now."""
        draft = self.path.with_name(f".{self.path.name}.{os.urandom(8).hex()}")
        try:
            with (
                one_at_a_time,
                _explaining_errors(self.path),
                contextlib.closing(_connect_to_new(draft)) as file,
            ):
                file.executescript(_SCHEMA)
                file.executemany("INSERT INTO records VALUES (?, ?, ?)", self.after(ORIGIN, [body]))
                file.commit()
            with _explaining_errors(self.path), contextlib.suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def read(self, after: Link = ORIGIN) -> list[Record]:
        """Return the records after a link, checked to follow it."""
        with self._open() as file:
            return self._follow(file, after)

    def append(self, after: Link, decide: Callable[[list[Record]], list[Record]]) -> list[Record]:
        """Append what `decide` returns, given the records after a link; all other writers wait.

        The records are on disk when this returns. If anything raises before, none is.
        """
        process = os.getpid()
        with self._open() as file:
            self._exclude_others(file)
            records = decide(self._follow(file, after))
            file.executemany("INSERT INTO records VALUES (?, ?, ?)", records)
            if os.getpid() != process:
                raise LedgerError("a process that forks while it charges has charged nothing.")
            file.execute("COMMIT")
        return records

    def after(self, previous: Link, bodies: list[dict[str, Any]]) -> list[Record]:
        """Return the records of these bodies, each of which follows the one before."""
        records, last = [], previous
        for body in bodies:
            text = json.dumps(body, sort_keys=True, allow_nan=False)
            last = Link(last.number + 1, self._digest(last.digest, text))
            records.append(Record(last.number, text, last.digest))
        return records

    @staticmethod
    def _exclude_others(file: sqlite3.Connection) -> None:
        """Begin to write once no other writer does; readers are not blocked."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                file.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file; what is not committed when it closes was never written."""
        with one_at_a_time, _explaining_errors(self.path):
            self._check_file()
            uri = _uri_of(self.path)
            with contextlib.closing(
                sqlite3.connect(uri, uri=True, timeout=_SHORT_WAIT, isolation_level=None)
            ) as file:
                (application,) = file.execute("PRAGMA application_id").fetchone()
                if application != _APPLICATION_ID:
                    raise LedgerError(f"{self.path} is not a ledger; give another path.")
                file.execute("PRAGMA synchronous = FULL")
                yield file

    def _check_file(self) -> None:
        """Raise unless the file exists under one name only: locks go by file, not by name."""
        if self.path.is_dir():
            raise LedgerError(f"{self.path} is a folder: give the path of a file in it.")
        if not self.path.is_file():
            raise LedgerError(
                f"there is no ledger at {self.path}. (A temporary one ends with the process that "
                "made it; to keep a ledger, give a path.)"
            )
        real = Path(os.path.realpath(self.path))
        if real.stat().st_nlink > 1:
            # A creator that was killed may have left a draft.
            for draft in real.parent.glob(f".{glob.escape(real.name)}.*"):
                with contextlib.suppress(OSError):
                    if draft.samefile(real):
                        draft.unlink()
        if real.stat().st_nlink > 1:
            raise LedgerError(
                f"the ledger at {self.path} has another name (a hard link), under which it could "
                "be charged unnoticed. Remove that name."
            )

    def _follow(self, file: sqlite3.Connection, after: Link) -> list[Record]:
        records = [
            Record(*row)
            for row in file.execute(
                "SELECT number, body, digest FROM records WHERE number >= ? ORDER BY number",
                (after.number,),
            )
        ]
        if after != ORIGIN:
            first = records.pop(0) if records else None
            if first is None or (first.number, first.digest) != after:
                raise LedgerTamperedError(
                    f"the ledger at {self.path} does not hold record {after.number} any more as it "
                    "was read before: records were removed or rewritten, or an old copy was put in "
                    "its place. Nothing was charged; find out who did it before you release more."
                )
        last = after
        for record in records:
            last = Link(last.number + 1, self._digest(last.digest, record.body))
            if last != (record.number, record.digest):
                raise LedgerTamperedError(
                    f"record {last.number} of the ledger at {self.path} does not follow from those "
                    "before it: the file was tampered with, or written with another key. Open it "
                    "with the key= that it was created with, if any."
                )
        return records

    def _digest(self, previous: str, body: str) -> str:
        message = f"{previous}\n{body}".encode()
        if self.key is None:
            return hashlib.sha256(message).hexdigest()
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()


def _connect_to_new(path: Path) -> sqlite3.Connection:
    """Create a file that only its owner can read, from the first moment on, and open it.

    SQLite gives the same mode to its files beside it.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    # If the file does not exist now, SQLite says why.
    return sqlite3.connect(_uri_of(path), uri=True)


def _uri_of(path: Path) -> str:
    """Return the URI under which SQLite opens an existing file."""
    return f"{path.absolute().as_uri()}?mode=rw"


@contextlib.contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and the system into errors about the ledger."""
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerError(f"cannot use the ledger at {path}: {_advice(str(error))}") from error
    except OSError as error:
        raise LedgerError(
            f"cannot use the ledger at {path}: {error.strerror}. Nothing was charged."
        ) from error


_ADVICE = {
    "not a database": "the file is not a ledger; give another path",
    "malformed": "the file is damaged; restore it from a copy",
    "readonly": "the file or its folder is read-only; give a path that can be written to",
    "unable to open": "the file or its folder cannot be opened or written to; check the path and "
    "the permissions",
    "full": "the disk is full; make room",
    "disk I/O": "the disk does not accept writes; check its space and its health",
    "locked": f"another process has kept it locked for {_PATIENCE:.0f} s; find out why",
    "no such table": "the file is not a ledger, or is damaged; give another path",
}


def _advice(message: str) -> str:
    said = [advice for words, advice in _ADVICE.items() if words in message]
    return f"{said[0] if said else message} ({message}). Nothing was charged."
