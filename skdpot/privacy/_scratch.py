"""Temporary files that last as long as one of the processes that use them."""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from multiprocessing import util
from pathlib import Path

# Name of a file in each scratch folder. Every process that uses the folder keeps this file open and
# locked. A forked process shares the lock, and the system releases the lock of a killed process.
_IN_USE = "in-use"
_held: dict[Path, tuple[int, int]] = {}
_registered: set[int] = set()


def scratch_file() -> Path:
    """Return the path for a file in a new temporary folder that this process keeps."""
    path = Path(tempfile.mkdtemp(prefix="skdpot-")) / "ledger.sqlite"
    keep_scratch_file(path)
    return path


def keep_scratch_file(path: Path) -> None:
    """Keep a scratch file while this process or a fork of it lives.

    The last process that uses the folder removes it.
    """
    process, folder = os.getpid(), path.parent
    if folder in _held and _held[folder][0] == process:
        return
    with contextlib.suppress(OSError):
        lock = os.open(folder / _IN_USE, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        _held[folder] = (process, lock)
    if process not in _registered:
        _registered.add(process)
        atexit.register(_let_go)
        # Processes of multiprocessing skip functions registered with atexit.
        util.Finalize(None, _let_go, exitpriority=0)


def _let_go() -> None:
    while _held:
        folder, (_, lock) = _held.popitem()
        with contextlib.suppress(OSError):
            os.close(lock)
            last = os.open(folder / _IN_USE, os.O_RDWR)
            fcntl.flock(last, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
