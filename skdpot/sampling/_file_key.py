"""The secret key of a release of files, with what was claimed under it, in one file."""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from skdpot.sampling._file_tasks import sync_folders

# What is written over a key.
_ERASED = bytes(32)


class KeyFile:
    """A key, the claim under it, and results of files, each in a line of a file.

    The key and the claim are on disk before anything is charged. Results may get lost: then they
    are computed again, and are the same. When all results are on disk, the key is erased.

    Parameters
    ----------
    file : binary file
        The file.

    Attributes
    ----------
    key : bytes
        The secret key, a new one if nothing is claimed.
    claim : dict
        What is drawn with the key; empty if nothing is claimed.
    results : dict of int to str
        Digests of the targets of files that are done, by the numbers of the files.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.claim: dict[str, Any] = {}
        self.results: dict[int, str] = {}
        content = file.read()
        written = bytes.fromhex(content[:64].decode())
        # What comes after the last end of a line was cut off. A claim that was is not charged.
        lines = content.split(b"\n")[1:-1]
        self.key = written if lines else secrets.token_bytes(32)
        if lines:
            self.claim = json.loads(lines[0])
        for line in lines[1:]:
            with contextlib.suppress(ValueError):
                number, self.results[number] = json.loads(line)

    @property
    def is_erased(self) -> bool:
        """Tell whether all is done."""
        return self.key == _ERASED

    def write(self, claim: dict[str, Any]) -> None:
        """Write the key and a claim."""
        self.claim = claim
        self.forget()
        self._file.write(f"{self.key.hex()}\n{json.dumps(claim)}\n".encode())
        self._sync()
        sync_folders([self._file.name])

    def forget(self) -> None:
        """Remove a claim that was not charged, and its key."""
        self._file.truncate(0)
        self._file.seek(0)

    def record(self, number: int, digest: str) -> None:
        """Add the result of a file."""
        self.results[number] = digest
        # A line that was cut off does not spoil this one.
        self._file.write(f"\n{json.dumps([number, digest])}\n".encode())
        self._file.flush()

    def finish(self) -> None:
        """Write zeros over the key, once the results are on disk."""
        self._sync()
        os.pwrite(self._file.fileno(), _ERASED.hex().encode(), 0)
        self._sync()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


@contextlib.contextmanager
def held_key(ledger_path: Path, partition: str) -> Iterator[KeyFile]:
    """Hold the key of a partition, beside the ledger, which one process at a time can do."""
    # Whatever links lead to the ledger, it has one key.
    ledger = os.path.realpath(ledger_path)
    # The name of a partition may hold characters that a file name cannot.
    safe = "".join(
        letter if letter.isalnum() or letter in "-_" else f"%{ord(letter):x}"
        for letter in partition
    )
    path = f"{ledger}.{safe}.key"
    with contextlib.ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(open(path, "r+b", opener=_open))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            keys = KeyFile(file)
        except BlockingIOError:
            raise RuntimeError(
                f"another process is releasing these files, and holds {path}: let it finish, or "
                "end it and its workers. Nothing was done."
            ) from None
        except (OSError, ValueError) as error:
            raise RuntimeError(
                f"cannot use the key at {path}: {error}. It must be a file of this account, no "
                "link, and not damaged. If it is lost, remove it: then all of its files are "
                "charged again. Nothing was done."
            ) from error
        # Processes that were forked meanwhile have the file open, too.
        stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield keys


def _open(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    # A copy from a backup may have lost its mode.
    os.fchmod(handle, 0o600)
    return handle
