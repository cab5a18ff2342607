"""The anchor of a ledger: its newest record, kept where nobody restores it with the ledger's file.

A charge moves the anchor after it is on disk, and before it is granted. So if a process stops at
any point, the ledger's file holds what the anchor vouches for, or more. A file that holds less, or
other records, is old, a copy, or was cut off. Records beyond the anchor were never granted.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Takes the text to store, and the text that must be stored before; returns the text stored now.
Store = Callable[..., str | None]
# Bytes of each half of the anchor's file.
_HALF = 512


class Vouched(NamedTuple):
    """What an anchor vouches for: the newest record of a ledger at its last move."""

    ledger: str
    number: int
    digest: str

    @property
    def text(self) -> str:
        """Return the text to store."""
        return json.dumps(self._asdict(), sort_keys=True)


class AnchorError(Exception):
    """An anchor cannot be read, or cannot be moved."""


class Anchor:
    """A place for the newest record of a ledger.

    Parameters
    ----------
    place : str, Path or callable
        A file, or a callable that stores a text elsewhere.
    """

    def __init__(self, place: Any) -> None:
        if not (callable(place) or isinstance(place, str | os.PathLike)):
            raise ValueError(f"anchor must be None, a path or a callable, got {place!r}.")
        self.file = None if callable(place) else Path(place).absolute()
        self._store: Store = place if self.file is None else _AnchorFile(self.file)

    def __str__(self) -> str:
        return f"the anchor {self.file or self._store}"

    def read(self) -> Vouched | None:
        """Return what the anchor vouches for; None if nothing has been stored."""
        return self._read_from(self._ask())

    def probe(self, vouched: Vouched) -> None:
        """Raise if the stored text could not be stored again, before anything is charged."""
        self._ask(vouched.text, vouched.text)

    def move(self, new: Vouched, old: Vouched | None) -> Vouched | None:
        """Store a text if the expected one is stored now; return the text that is stored then."""
        return self._read_from(self._ask(new.text, None if old is None else old.text))

    def _ask(self, *what: str | None) -> Any:
        try:
            return self._store(*what)
        except Exception as error:
            raise AnchorError(f"{self} cannot be used: {error}") from error

    def _read_from(self, text: Any) -> Vouched | None:
        if text is None:
            return None
        try:
            vouched = Vouched(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise AnchorError(f"{self} does not hold a record of a ledger") from error
        return vouched


class _AnchorFile:
    """A line of text in a file, which can be replaced atomically.

    The file has two halves, which are written in turn. If the process or the machine stops, one of
    them is whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return str(self.path)

    def __call__(self, new: str | None = None, old: str | None = None) -> str | None:
        flags = os.O_RDONLY if new is None else os.O_RDWR
        if new is not None and old is None:
            flags |= os.O_CREAT
        try:
            file = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH if new is None else fcntl.LOCK_EX)
            turn, stored = self._newest(os.pread(file, 2 * _HALF, 0))
            if new is None or stored != old or stored == new:
                return stored
            os.pwrite(file, _line(turn + 1, new), _HALF * ((turn + 1) % 2))
            os.fsync(file)
            if stored is None:
                self._keep_the_name()
            return new
        finally:
            os.close(file)

    def _newest(self, content: bytes) -> tuple[int, str | None]:
        halves = [_read_line(content[start : start + _HALF]) for start in (0, _HALF)]
        whole = [half for half in halves if half is not None]
        if content.strip(b"\0") and not whole:
            raise OSError("the file is not an anchor, or is damaged")
        return max(whole, default=(-1, None), key=lambda half: half[0])

    def _keep_the_name(self) -> None:
        """Make the folder's entry of a new file durable."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _line(turn: int, text: str) -> bytes:
    line = f"{turn} {_check(turn, text)} {text}".encode()
    return line.ljust(_HALF - 1) + b"\n"


def _read_line(line: bytes) -> tuple[int, str] | None:
    """Return the time of a line, and its text; None if the line is not whole."""
    try:
        turn, check, text = line.decode().rstrip().split(" ", 2)
        return (int(turn), text) if check == _check(int(turn), text) else None
    except ValueError:
        return None


def _check(turn: int, text: str) -> str:
    return hashlib.sha256(f"{turn} {text}".encode()).hexdigest()[:16]
