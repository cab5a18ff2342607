"""The queue of the writers of a ledger, who write in the order of their arrival.

Every writer draws a number, and holds a lock on the byte of that number in a small file beside the
ledger. Its turn comes when nobody holds a smaller number. The system drops the locks of a process
that dies, so nobody waits for it. SQLite's lock, which a writer takes in its turn, keeps writers
apart, not the queue: if the queue is deleted or disturbed, only fairness is lost.
"""

import contextlib
import errno
import fcntl
import io
import logging
import os
import struct
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

_log = logging.getLogger(__name__)
# Locks that belong to an open file and not to a process, so that threads have locks of their own.
# On systems without them, the quickest writer is first.
_AVAILABLE = sys.platform == "linux" and sys.maxsize > 2**32 and hasattr(fcntl, "F_OFD_SETLK")
# A lock as the kernel describes it: kind, origin of the position, first byte, number of bytes,
# process.
_LOCK = struct.Struct("hhqqi4x")
# The file holds the next number, and then a ring of the processes that drew the latest numbers.
_NUMBER = struct.Struct("q")
_RING = 512
# The byte that is locked while a number is drawn, and the byte of number 0.
_DRAWING, _FIRST = 0, 2**16
# Seconds after which a waiting writer logs for whom it waits, and then logs it again.
_SAYS_SO_AFTER = 10.0


class _Ticket:
    """A place in the queue: a number, and the open file with its lock."""

    def __init__(self) -> None:
        self.number = 0
        self.file: io.FileIO | None = None

    def draw(self, path: Path, mode: int) -> bool:
        """Draw the next number; return False if there is no queue to wait in."""
        while True:
            with _one_draws:
                try:
                    self.file = io.FileIO(path, "r+", opener=_opened_or_made)
                    if _locks(self.file, fcntl.F_WRLCK, _DRAWING):
                        # The last writer may have removed the file while this one was opening it.
                        if os.fstat(self.file.fileno()).st_nlink:
                            self._take_number(mode)
                            return True
                except OSError:
                    return False
            time.sleep(0.0005)

    def _take_number(self, mode: int) -> None:
        file = self._open_file()
        drawn = os.pread(file.fileno(), _NUMBER.size, 0)
        if len(drawn) == _NUMBER.size:
            (self.number,) = _NUMBER.unpack(drawn)
        else:
            # Everybody who may write to the ledger may use the queue.
            os.fchmod(file.fileno(), mode)
        os.pwrite(file.fileno(), _NUMBER.pack(self.number + 1), 0)
        place = _NUMBER.size * (1 + self.number % _RING)
        os.pwrite(file.fileno(), _NUMBER.pack(os.getpid()), place)
        _locks(file, fcntl.F_WRLCK, _FIRST + self.number)
        _tickets.add(self)
        _locks(file, fcntl.F_UNLCK, _DRAWING)

    def _open_file(self) -> io.FileIO:
        assert self.file is not None
        return self.file

    def wait(self, ledger: Path, path: Path, patience: float) -> None:
        """Wait until no earlier writer is left, or the first one is stuck."""
        began = said = since = time.monotonic()
        front = None
        while not self._is_next():
            now, first = time.monotonic(), self._first_in_line()
            if first is None:
                continue
            if first != front:
                front, since = first, now
            process = self._process_of(first)
            if now - since > patience:
                _log.warning(
                    "Process %d stands in front of all that wait for the ledger at %s, and has "
                    "done nothing for %.0f s. This one goes past it.",
                    process,
                    ledger,
                    now - since,
                )
                # Writers that come from now on use another queue.
                with contextlib.suppress(OSError):
                    path.unlink()
                return
            if now - said > _SAYS_SO_AFTER:
                said = now
                _log.warning(
                    "Waiting for the ledger at %s for %.0f s: process %d writes to it, and at most "
                    "%d others come before this one.",
                    ledger,
                    now - began,
                    process,
                    self.number - first - 1,
                )
            time.sleep(min(0.0005 * (self.number - first), 0.02))

    def _is_next(self) -> bool:
        # A fork of the waiting process has the closed file; the ledger refuses it.
        if self.number == 0 or self._open_file().closed:
            return True
        return _locks(self._open_file(), fcntl.F_RDLCK, _FIRST, how_many=self.number)

    def _first_in_line(self) -> int | None:
        """Return the smallest number of the earlier writers."""
        first, end = None, self.number
        while end and (found := _locked(self._open_file(), _FIRST, end)) is not None:
            first = end = found - _FIRST
        return first

    def _process_of(self, number: int) -> int:
        """Return the process that drew a number."""
        place = _NUMBER.size * (1 + number % _RING)
        (process,) = _NUMBER.unpack(os.pread(self._open_file().fileno(), _NUMBER.size, place))
        return int(process)

    def give_back(self, path: Path) -> None:
        """Let the next writer proceed; the last one removes the file."""
        with _one_draws, contextlib.suppress(OSError):
            if self.file is None or self.file.closed:
                return
            with self.file as file:
                is_last = _locks(file, fcntl.F_WRLCK, _DRAWING) and _locked(file, _FIRST, 0) is None
                # If another process overtook this writer, the name belongs to another queue by now.
                if is_last and os.fstat(file.fileno()).st_nlink:
                    path.unlink()
                # A copy of the open file in another process would keep the locks.
                _locks(file, fcntl.F_UNLCK, 0, how_many=0)


# A forked process has a copy of every open file, which would keep the locks of its parent.
_tickets: "weakref.WeakSet[_Ticket]" = weakref.WeakSet()
_one_draws = threading.RLock()


def _leave_the_queue_of_the_parent() -> None:
    for ticket in list(_tickets):
        if ticket.file is not None:
            ticket.file.close()
    _one_draws.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_one_draws.acquire,
        after_in_parent=_one_draws.release,
        after_in_child=_leave_the_queue_of_the_parent,
    )


@contextlib.contextmanager
def in_turn(ledger: Path, patience: float) -> Iterator[None]:
    """Wait for all earlier writers of a ledger's file, and keep later ones waiting.

    The writer in front may do nothing for `patience` seconds.
    """
    path = Path(os.path.realpath(ledger) + "-queue")
    ticket = _Ticket()
    try:
        if _AVAILABLE and ticket.draw(path, _mode_of(ledger)):
            ticket.wait(ledger, path, patience)
        yield
    finally:
        ticket.give_back(path)


def _mode_of(ledger: Path) -> int:
    with contextlib.suppress(OSError):
        return os.stat(ledger).st_mode & 0o666
    return 0o600


def _opened_or_made(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)


def _locks(file: io.FileIO, kind: int, first: int, *, how_many: int = 1) -> bool:
    """Lock or unlock bytes; return False if other locks forbid it."""
    asked = _LOCK.pack(kind, os.SEEK_SET, first, how_many, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _locked(file: io.FileIO, first: int, how_many: int) -> int | None:
    """Return a locked byte among other writers' numbers, None if there is none."""
    asked = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, first, how_many, 0)
    kind, _, start, *_ = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(start)
