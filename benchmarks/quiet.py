"""The load of other programs on the machine while something is measured."""

import os
import time
from contextlib import suppress
from pathlib import Path

_STATISTICS = Path("/proc/stat")
# Cores that others may keep busy on a machine that is called quiet.
QUIET = 0.2
# Linux counts in hundredths of a second: of less time, nothing is known.
_SHORTEST = 0.5


class Watch:
    """Says how many cores others kept busy since it was made: on Linux, by the kernel's counts.

    Others are all programs but this one and the processes that it started. What a host took from a
    virtual machine is counted, too.
    """

    def __init__(self) -> None:
        self._start = self._read()

    def _read(self) -> tuple[float, float, float]:
        return time.perf_counter(), busy_seconds(), own_seconds()

    def others(self) -> float | None:
        """Return the mean number of cores that others used; None where that is not known."""
        wall, busy, own = (now - then for now, then in zip(self._read(), self._start, strict=True))
        if not wall >= _SHORTEST or busy != busy:
            return None
        return max(0.0, busy - own) / wall


def busy_seconds() -> float:
    """Return the seconds of all cores that were not idle since the start; NaN if not on Linux."""
    if not _STATISTICS.exists():
        return float("nan")
    user, nice, system, _, _, interrupts, softer, stolen = map(
        int, _STATISTICS.read_text().split("\n", 1)[0].split()[1:9]
    )
    ticks = user + nice + system + interrupts + softer + stolen
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the processor time of this process, of its children, and of those it waited for."""
    times = os.times()
    ticks = 0
    for path in _STATISTICS.parent.glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of a program, in brackets, may hold anything.
            fields = path.read_text().rpartition(")")[2].split()
            ticks += (int(fields[1]) == os.getpid()) * (int(fields[11]) + int(fields[12]))
    own = times.user + times.system + times.children_user + times.children_system
    return own + ticks / os.sysconf("SC_CLK_TCK")


def load() -> float:
    """Return how many programs wanted a core in the last minute; NaN where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
