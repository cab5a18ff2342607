"""Temporary files that live as long as one of the processes that use them."""

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_HOLDER = "held-by-"
_held: dict[Path, int] = {}


def scratch_file() -> Path:
    """Return the path of a file to be made in a new temporary folder, held by this process."""
    path = Path(tempfile.mkdtemp(prefix="skdpot-")) / "ledger.sqlite"
    keep_scratch_file(path)
    return path


def keep_scratch_file(path: Path) -> None:
    """Keep a scratch file at least as long as this process lives.

    The folder holds an empty file for every process that uses it, and the last one to exit in good
    order removes it; what a killed process held does not count.
    """
    if _held.get(path.parent) == os.getpid():
        return
    with contextlib.suppress(OSError):
        (path.parent / f"{_HOLDER}{os.getpid()}").touch()
        if os.getpid() not in _held.values():
            atexit.register(_let_go)
        _held[path.parent] = os.getpid()


def _let_go() -> None:
    for folder, process in list(_held.items()):
        if process != os.getpid():
            continue
        with contextlib.suppress(OSError):
            (folder / f"{_HOLDER}{process}").unlink()
            holders = [int(each.name.removeprefix(_HOLDER)) for each in folder.glob(f"{_HOLDER}*")]
            if not any(_lives(holder) for holder in holders):
                shutil.rmtree(folder, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
