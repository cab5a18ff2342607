"""A file for the state of an owner or a node, which one process at a time may use."""

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ._keys import SigningKey
from ._wire import Packet, Refusal, WireError, pack, unpack

# How long a process waits for another one that answers, in seconds.
_PATIENCE = 600.0


class StateFile:
    """A file that owners' states are kept in; it is as private as their rows.

    What is written is on disk when `write` returns, whatever happens to the process afterwards.

    Parameters
    ----------
    path : Path
        The file. It is made if there is none, for its user alone to read.
    owner : str
        Whose state is read and written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skdpot.federation._state_file import StateFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = StateFile(Path(folder) / "state", "north")
    ...     with file.alone():
    ...         file.write(b"what was said")
    ...     with file.alone():
    ...         print(file.read())
    b'what was said'
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path, self._owner = path, owner
        self._connection: sqlite3.Connection | None = None

    @contextlib.contextmanager
    def alone(self) -> Iterator["StateFile"]:
        """Keep all other processes out until the block ends."""
        with self._locked():
            # SQLite makes files that everybody may read.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            with contextlib.closing(
                sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS states "
                    "(owner TEXT PRIMARY KEY, state BLOB NOT NULL)"
                )
                self._connection = connection
                try:
                    yield self
                finally:
                    self._connection = None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock for longer than a transaction; the system drops it with the process."""
        beside = self._path.with_name(f"{self._path.name}-lock")
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _PATIENCE
            while not _is_taken(lock):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process has kept {self._path} locked for too long")
                time.sleep(0.01)
            yield
        finally:
            os.close(lock)

    def read(self) -> bytes | None:
        """Return the owner's state, None if there is none; inside of `alone`."""
        found = self._open.execute("SELECT state FROM states WHERE owner = ?", (self._owner,))
        row = found.fetchone()
        return None if row is None else bytes(row[0])

    def write(self, state: bytes) -> None:
        """Replace the owner's state; inside of `alone`."""
        self._open.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (self._owner, state))

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("a state is read and written inside of alone().")
        return self._connection


def is_only_answer(path: Path, charge: str, number: int, answer: str, is_first: bool) -> bool:
    """Remember an answer in a file, and tell whether it is the only one of its round.

    The file is beside a ledger, and so knows better than a state that was restored from a backup.
    It is made if there is none. `charge` is the token of the charge that is for this and other
    rounds, and `answer` a digest. `is_first` says whether nothing was answered for the charge
    before; else the file knows the last round, or it is from before that. False if there was
    another answer for the same charge, or may have been.
    """
    with StateFile(path, charge).alone() as file:
        said = json.loads(file.read() or b"{}")
        if not (is_first or {str(number - 1), str(number)} & said.keys()):
            return False
        if said.setdefault(str(number), answer) != answer:
            return False
        file.write(json.dumps(said).encode())
        return True


class Remembering(ABC):
    """Base of what answers messages, and must not forget what it has answered."""

    _file: StateFile | None = None
    # What the file is known to hold; None where this has to be read.
    _on_file: bytes | None = None
    # Held while a message is answered.
    _lock: threading.Lock

    # Who signs the answers, and by which key the questions are signed.
    _key: SigningKey | None
    _coordinator_key: str | None
    _called: ClassVar[str]

    @property
    @abstractmethod
    def address(self) -> str:
        """Return whose state it is."""

    @abstractmethod
    def _answer(self, packet: Packet, data: bytes) -> bytes:
        """Return the answer to a message; what it releases is charged by then, and remembered."""

    @abstractmethod
    def _state(self) -> bytes:
        """Return what must not be forgotten."""

    @abstractmethod
    def _load(self, state: bytes) -> None:
        """Go on from a state, or raise ValueError if it is none."""

    @abstractmethod
    def _forget(self) -> None:
        """Begin anew."""

    def handle(self, data: bytes) -> bytes:
        """Answer a message of a coordinator.

        Parameters
        ----------
        data : bytes
            What arrived, whatever it is.

        Returns
        -------
        bytes
            The answer, or a refusal with its reason. Nothing raises.
        """
        asked = Packet("")
        # Two messages at once could get two answers where there must be one.
        with self._lock:
            try:
                asked = unpack(data, self._coordinator_key)
                with self._remembering():
                    return self._answer(asked, data)
            except Refusal as refusal:
                fields = refusal.fields
            except WireError as error:
                fields = {"reason": str(error)}
            except Exception:
                # What went wrong may be due to private values.
                fields = {"reason": f"the {self._called} cannot answer this."}
        return pack(asked.reply("refusal", self.address, fields), self._key)

    def state(self) -> bytes:
        """Return what is remembered, for a carrier that keeps it in a place of its own.

        It is as private as what the answers are of, and stays with whose it is. What a release is
        charged for is remembered in a file (`state` as a parameter), before it is charged.

        Returns
        -------
        bytes
            For `restore`.
        """
        with self._lock:
            return self._state()

    def restore(self, state: bytes) -> None:
        """Go on from a state of the same owner or node; only the last one is of use.

        Parameters
        ----------
        state : bytes
            From `state`.

        Raises
        ------
        ValueError
            If it is no such state.
        """
        with self._lock, self._remembering():
            self._load(state)
            self._keep()

    def remember_in(self, path: Path) -> None:
        """Remember all answers in a file from now on, as with the parameter `state`.

        Parameters
        ----------
        path : Path
            The file.
        """
        self._file, self._on_file = StateFile(path, self.address), None

    @property
    def has_file(self) -> bool:
        """Return whether it remembers in a file."""
        return self._file is not None

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        """Know what was said last, by whatever process, and be the only one that answers."""
        if self._file is None:
            yield
            return
        with self._file.alone() as file:
            found = file.read()
            if found is None:
                self._forget()
            elif found != self._on_file:
                self._load(found)
            # Until the file is written, what it holds is what counts.
            self._on_file = None
            yield

    def _keep(self) -> None:
        """Write to the file what must not be forgotten."""
        if self._file is not None:
            state = self._state()
            self._file.write(state)
            self._on_file = state


def _is_taken(lock: int) -> bool:
    """Tell whether a lock is held by now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
