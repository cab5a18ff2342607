"""A file for the state of an owner or a node, which one process at a time may use."""

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from ._keys import SigningKey, checked_public
from ._wire import Packet, Refusal, WireError, pack, unpack

# How long a process waits for another process that holds the lock, in seconds.
_PATIENCE = 600.0


class StateFile:
    """A file with the states of owners; it is as private as their rows.

    When `write` returns, the state is on disk.

    Parameters
    ----------
    path : Path
        The file. It is created if it does not exist, and only its user can read it.
    owner : str
        The owner whose state is read and written.

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
        """Exclude all other processes until the block ends."""
        with self._locked():
            # Created here, because SQLite creates files that everybody can read.
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
        """Hold a lock, which may outlast a transaction and ends with the process."""
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
        """Return the owner's state, or None; only inside `alone`."""
        found = self._open.execute("SELECT state FROM states WHERE owner = ?", (self._owner,))
        row = found.fetchone()
        return None if row is None else bytes(row[0])

    def write(self, state: bytes) -> None:
        """Replace the owner's state; only inside `alone`."""
        self._open.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (self._owner, state))

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RuntimeError("read and write a state only inside of alone().")
        return self._connection


def is_only_answer(path: Path, charge: str, number: int, answer: str, is_first: bool) -> bool:
    """Record an answer in a file. Return whether it is the only one of its round.

    The file is beside a ledger, so it is newer than a state that was restored from a backup. It is
    created if it does not exist. `charge` is the token of the charge of this and other rounds, and
    `answer` is a digest. If `is_first` is false, the file must know this round or the one before.
    Returns False if there was, or may have been, another answer for the same charge.
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
    """Base of owners and nodes, which answer messages and must remember their answers."""

    _file: StateFile | None = None
    # The known content of the file; None if it must be read again.
    _on_file: bytes | None = None
    _called: ClassVar[str]
    # Whether it has released. Without a ledger it releases once.
    _has_released = False

    def __init__(self, state: Any, key: SigningKey | None, coordinator_key: str | None) -> None:
        # The key that signs answers, and the public key that verifies questions.
        self._key = key
        self._coordinator_key = None if coordinator_key is None else checked_public(coordinator_key)
        # Held while a message is answered.
        self._lock = threading.Lock()
        if state is not None:
            self.remember_in(Path(state))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"the {self._called} cannot be copied or pickled: a copy would hold private data, and "
            "release them again. Create it where its data are; state= keeps its answers."
        )

    @property
    @abstractmethod
    def address(self) -> str:
        """Return the name under which the state is stored."""

    @abstractmethod
    def _answer(self, packet: Packet, data: bytes) -> bytes:
        """Return the answer to a message, after its release was stored and charged."""

    @abstractmethod
    def _state(self) -> bytes:
        """Return the state, as bytes."""

    @abstractmethod
    def _load(self, state: bytes) -> None:
        """Continue from a state, or raise ValueError if it is invalid."""

    @abstractmethod
    def _forget(self) -> None:
        """Reset the state."""

    def handle(self, data: bytes) -> bytes:
        """Answer a message of a coordinator.

        Parameters
        ----------
        data : bytes
            The message; it may be invalid.

        Returns
        -------
        bytes
            The answer, or a refusal with its reason. This method never raises.
        """
        asked = Packet("")
        # Two messages at the same time could get two answers, and only one answer is allowed.
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
                # The error may depend on private values.
                fields = {"reason": f"the {self._called} cannot answer this."}
        return pack(asked.reply("refusal", self.address, fields), self._key)

    def state(self) -> bytes:
        """Return the state, for a carrier that stores it elsewhere.

        The state is as private as the rows or the utility, and must stay with their owner. For a
        release that is charged, use the parameter `state` instead: it writes a file before the
        charge.

        Returns
        -------
        bytes
            For `restore`.
        """
        with self._lock:
            return self._state()

    def restore(self, state: bytes) -> None:
        """Continue from the latest state of the same owner or node.

        Parameters
        ----------
        state : bytes
            From `state`.

        Raises
        ------
        ValueError
            If the state is invalid, or belongs to another owner or node.
        """
        with self._lock, self._remembering():
            self._load(state)
            self._keep()

    def remember_in(self, path: Path) -> None:
        """Keep all answers in a file from now on, as with the parameter `state`.

        Parameters
        ----------
        path : Path
            The file.
        """
        self._file, self._on_file = StateFile(path, self.address), None

    @property
    def has_file(self) -> bool:
        """Return whether answers are kept in a file."""
        return self._file is not None

    def _asking_the_ledger(self, ask: Callable[[], object]) -> None:
        """Charge a ledger, or ask for a price; refuse a charge that the ledger does not allow."""
        try:
            ask()
        except Exception:
            # The ledger's own error would reveal how much budget is left.
            raise Refusal(f"the {self._called}'s ledger does not allow the release.") from None

    def _check_is_first(self) -> None:
        """Refuse a second release without a ledger."""
        if self._has_released:
            raise Refusal(f"the {self._called} released once, and has no ledger to charge again.")

    @contextlib.contextmanager
    def _remembering(self) -> Iterator[None]:
        """Load the newest state of any process, and exclude other processes from answering."""
        if self._file is None:
            yield
            return
        with self._file.alone() as file:
            found = file.read()
            if found is None:
                self._forget()
            elif found != self._on_file:
                self._load(found)
            # Until the next write, the content of the file counts.
            self._on_file = None
            yield

    def _keep(self) -> None:
        """Write the state to the file, if there is one."""
        if self._file is not None:
            state = self._state()
            self._file.write(state)
            self._on_file = state


def _is_taken(lock: int) -> bool:
    """Try to take a lock; return whether it is held now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
