"""Small files that are written at once: new private ones, and replaced ones."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its user can read."""
    _write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), content)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically."""
    beside = path.with_name(path.name + ".new")
    _write(beside, content)
    beside.replace(path)


def _write(file: int | Path, content: bytes) -> None:
    with open(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
