"""File systems on which SQLite's locks are unreliable."""

import os
import re
import warnings
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
# File systems whose locks fail between machines, or which cannot map a shared memory file.
_NETWORK = frozenset(
    "9p afs beegfs ceph cifs fuse.glusterfs fuse.s3fs fuse.sshfs glusterfs gpfs lustre ncpfs nfs "
    "nfs4 smb3 smbfs".split()
)


def warn_or_refuse_network_mount(path: Path) -> None:
    """Raise if a path lies on a network file system, and warn if it may do so.

    On network file systems two machines can hold a lock at once, and both could spend the same
    budget. Nothing is known about the locks of user-space file systems.
    """
    kind = _file_system_of(path)
    if kind in _NETWORK:
        raise OSError(
            0,
            f"it lies on a network file system ({kind}), whose locks cannot be relied on: two "
            "processes could spend the same budget. Give a path on a local disk",
        )
    if kind is not None and kind.startswith("fuse."):
        warnings.warn(
            f"the ledger at {path} lies on a file system in user space ({kind}). If it is shared "
            "between machines or does not lock files, a budget can be spent twice.",
            stacklevel=2,
        )


def _file_system_of(path: Path) -> str | None:
    """Return the type of a path's file system; None if the system does not tell it."""
    if not _MOUNTS.exists():
        return None
    folder = os.path.dirname(os.path.realpath(path))
    best, kind = "", None
    for line in os.fsdecode(_MOUNTS.read_bytes()).splitlines():
        _, place, this_kind, *_ = line.split(" ")
        # Spaces and similar characters are written as octal numbers.
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)
        if len(place) >= len(best) and os.path.commonpath([folder, place]) == place:
            best, kind = place, this_kind
    return kind
