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
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from skdpot.privacy._anchor import Anchor, AnchorError, Vouched
from skdpot.privacy._mounts import warn_or_refuse_network_mount
from skdpot.privacy._queue import in_turn
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

APPLICATION_ID = 0x736B6470
# Seconds that a writer waits for another one that makes no progress.
_PATIENCE = 120.0
_SHORT_WAIT = 0.1
_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
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
    anchor : Anchor, default=None
        The anchor that vouches for the newest record.
    """

    def __init__(self, path: Path, key: bytes | None, anchor: Anchor | None = None) -> None:
        self.path, self.key, self.anchor = path, key, anchor
        with _explaining_errors(path):
            warn_or_refuse_network_mount(path)

    def create(self, body: dict[str, Any]) -> None:
        """Create the file with a first record, atomically, unless it exists by now."""
        draft = self.path.with_name(f".{self.path.name}.{os.urandom(8).hex()}")
        try:
            with (
                one_at_a_time,
                _explaining_errors(self.path),
                contextlib.closing(_connect_to_new(draft)) as connection,
            ):
                connection.executescript(_SCHEMA)
                text = canonical(body)
                first = (0, text, self._digest(ORIGIN.digest, text))
                connection.execute("INSERT INTO records VALUES (?, ?, ?)", first)
                connection.commit()
            with _explaining_errors(self.path), contextlib.suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()

    def read(self, after: Link = ORIGIN) -> list[Record]:
        """Return the records after a link, checked to follow it."""
        # The anchor is read before the file, since writers write the file first and then move the
        # anchor.
        vouched = self.vouched()
        with self._connection() as connection:
            records = self._follow(connection, after)
            self._check_vouched(connection, vouched)
        return records

    def vouched(self) -> Vouched | None:
        """Return what the anchor vouches for; None without an anchor, and for an empty one."""
        with _explaining_anchor_errors(self.path, "Nothing was charged."):
            return None if self.anchor is None else self.anchor.read()

    def holds(self, record: Record) -> bool:
        """Tell whether the file holds this record."""
        with self._connection() as connection:
            return self._holds(connection, record)

    @contextlib.contextmanager
    def writing(self, after: Link, *, is_trusted: bool = False) -> Iterator["Pen"]:
        """Exclude all other writers until the block ends; appended records are on disk then.

        The anchor vouches for the appended records by then. With `is_trusted`, the file may hold
        less than the anchor says.
        """
        process = os.getpid()
        with _explaining_errors(self.path):
            self._check_file()
        with in_turn(self.path, _PATIENCE), self._alone() as connection:
            try:
                pen = Pen(self, connection, after, self.vouched())
                if not is_trusted:
                    self._check_vouched(connection, pen.vouched)
                yield pen
                if os.getpid() != process:
                    raise LedgerError("a process that forks while it charges has charged nothing.")
                self._probe(pen)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            with _explaining_errors(self.path):
                connection.execute("COMMIT")
            self._move_anchor(connection, pen, "The record is written, and stays so.")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Open the file once no other writer is in it; readers are not blocked."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            with self._connection() as connection:
                if self._begins(connection, last_attempt=time.monotonic() > deadline):
                    yield connection
                    return
            time.sleep(random.uniform(0.0, 0.01))

    def _begins(self, connection: sqlite3.Connection, last_attempt: bool) -> bool:
        """Tell whether a transaction has begun; False if another writer is busy."""
        with _explaining_errors(self.path):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or last_attempt:
                    raise
                return False
        return True

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with one_at_a_time:
            yield from self._opened()

    def _opened(self) -> Iterator[sqlite3.Connection]:
        with _explaining_errors(self.path):
            self._check_file()
            connection = sqlite3.connect(
                _uri_of(self.path),
                uri=True,
                timeout=_SHORT_WAIT,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with _explaining_errors(self.path):
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                if application != APPLICATION_ID:
                    raise LedgerError(f"{self.path} is not a ledger; give another path.")
                connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()

    def _check_file(self) -> None:
        """Raise unless the file exists under one name only: locks go by file, not by name."""
        if self.path.is_dir():
            raise LedgerError(f"{self.path} is a folder: give the path of a file in it.")
        if not self.path.is_file():
            raise LedgerError(
                f"there is no ledger at {self.path}. (A temporary one ends with the processes "
                "that use it; to keep a ledger, give a path.)"
            )
        real = Path(os.path.realpath(self.path))
        if real.stat().st_nlink > 1:
            self._remove_drafts(real)
            if real.stat().st_nlink > 1:
                raise LedgerError(
                    f"the ledger at {self.path} has another name (a hard link), under which it "
                    "could be charged unnoticed. Remove that name."
                )

    def _probe(self, pen: "Pen") -> None:
        """Raise if the anchor cannot be moved, as far as known before anything is written."""
        if self.anchor is not None and pen.vouched is not None:
            with _explaining_anchor_errors(self.path, "Nothing was charged."):
                self.anchor.probe(pen.vouched)

    def _check_vouched(self, connection: sqlite3.Connection, vouched: Vouched | None) -> None:
        if vouched is None or self._holds(connection, vouched):
            return
        identity = self._identity(connection)
        what = (
            f"does not hold record {vouched.number} as its anchor vouches for it: records were "
            "removed or rewritten, an old copy was put in its place, or another copy was charged"
            if vouched.ledger == identity
            else (
                f"is ledger {identity}, and the anchor vouches for ledger {vouched.ledger}: the "
                "file was replaced, or the anchor belongs to another ledger"
            )
        )
        raise LedgerTamperedError(
            f"the ledger at {self.path} {what}. Nothing may be released. If you restored it from a "
            "backup, and know what is missing, see PrivacyLedger.anchor_again."
        )

    def _holds(self, connection: sqlite3.Connection, record: Record | Vouched) -> bool:
        with _explaining_errors(self.path):
            found = connection.execute(
                "SELECT digest FROM records WHERE number = ?", (record.number,)
            ).fetchone()
        return found == (record.digest,)

    def _identity(self, connection: sqlite3.Connection) -> str:
        with _explaining_errors(self.path):
            rows = connection.execute("SELECT body FROM records WHERE number = 0").fetchall()
        return str(json.loads(rows[0][0]).get("identity")) if rows else "unknown"

    def _move_anchor(self, connection: sqlite3.Connection, pen: "Pen", what_holds: str) -> None:
        """Let the anchor vouch for the last record, unless it vouches for a later one by now."""
        if self.anchor is None:
            return
        new, stored = Vouched(self._identity(connection), *pen.last), pen.vouched
        while stored != new:
            with _explaining_anchor_errors(self.path, what_holds):
                found = self.anchor.move(new, stored)
                if found is None or found == stored:
                    raise AnchorError(f"{self.anchor} does not keep what is stored in it")
            if found != new:
                # Another writer has moved the anchor. This raises if that writer used another copy
                # of the file.
                self._check_vouched(connection, found)
                if found.number > new.number:
                    return
            stored = found

    @staticmethod
    def _remove_drafts(real: Path) -> None:
        """Remove temporary names of the file that a crashed creator left."""
        for draft in real.parent.glob(f".{glob.escape(real.name)}.*"):
            with contextlib.suppress(OSError):
                if draft.samefile(real):
                    draft.unlink()

    def _follow(self, connection: sqlite3.Connection, after: Link) -> list[Record]:
        with _explaining_errors(self.path):
            rows = connection.execute(
                "SELECT number, body, digest FROM records WHERE number >= ? ORDER BY number",
                (after.number,),
            ).fetchall()
        records = [Record(*row) for row in rows]
        if after.number >= 0:
            if not records or Link(records[0].number, records[0].digest) != after:
                raise LedgerTamperedError(
                    f"the ledger at {self.path} does not hold record {after.number} any more as it "
                    "was read before: records were removed or rewritten, or an old copy was put in "
                    "its place. Nothing was charged; find out who did it before you release more."
                )
            del records[0]
        previous = after
        for record in records:
            link = self.link_after(previous, record.body)
            if link.digest != record.digest or link.number != record.number:
                raise LedgerTamperedError(
                    f"record {link.number} of the ledger at {self.path} does not follow from those "
                    "before it: the file was tampered with, or written with another key. Open it "
                    "with the key= that it was created with, if any."
                )
            previous = link
        return records

    def link_after(self, previous: Link, body: str) -> Link:
        """Return the link of a record with this body."""
        return Link(previous.number + 1, self._digest(previous.digest, body))

    def _digest(self, previous: str, body: str) -> str:
        message = f"{previous}\n{body}".encode()
        if self.key is None:
            return hashlib.sha256(message).hexdigest()
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()


class Pen:
    """The access of the one writer of a chain.

    Attributes
    ----------
    records : list of Record
        Records that others have appended after the last one that the writer knew.
    last : Link
        The newest record.
    vouched : Vouched or None
        What the anchor vouches for.
    """

    def __init__(
        self, chain: Chain, connection: sqlite3.Connection, after: Link, vouched: Vouched | None
    ) -> None:
        self.records, self.vouched = chain._follow(connection, after), vouched
        self._chain, self._connection = chain, connection
        last = self.records[-1] if self.records else None
        self.last = after if last is None else Link(last.number, last.digest)

    def vouch(self) -> None:
        """Let an empty anchor vouch for the existing records before anything is appended."""
        self._chain._move_anchor(self._connection, self, "Nothing was charged.")
        self.vouched = self._chain.vouched()

    @property
    def is_missing(self) -> bool:
        """Tell whether the file lacks the record that the anchor vouches for."""
        vouched = self.vouched
        return vouched is not None and not self._chain._holds(self._connection, vouched)

    def append(self, body: dict[str, Any]) -> Record:
        """Append a record, which is kept if the block ends without an error."""
        if self._chain.anchor is not None:
            # Without it, two copies that record the same charge at the same moment would be equal.
            body = {**body, "nonce": os.urandom(8).hex()}
        text = canonical(body)
        self.last = self._chain.link_after(self.last, text)
        record = Record(self.last.number, text, self.last.digest)
        with _explaining_errors(self._chain.path):
            self._connection.execute("INSERT INTO records VALUES (?, ?, ?)", record)
        return record


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


def canonical(body: dict[str, Any]) -> str:
    """Return the text of a record from which its digest is computed."""
    return json.dumps(body, sort_keys=True, allow_nan=False)


@contextlib.contextmanager
def _explaining_anchor_errors(path: Path, what_holds: str) -> Iterator[None]:
    """Turn the errors of an anchor into errors about the ledger."""
    try:
        yield
    except AnchorError as error:
        raise LedgerError(
            f"cannot vouch for the ledger at {path}: {error}. {what_holds} Nothing may be released."
        ) from error


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
