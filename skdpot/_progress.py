"""Progress bars that end no release, and whose clocks go on during long steps."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tqdm.auto import tqdm

# Seconds between two looks at the clock.
_PAUSE = 1.0


class _ErrorStream:
    """The standard error stream, for bars: where it is closed, the release goes on without."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def plain_bar(*iterable: Any, **options: Any) -> Any:
    """Return a bar of tqdm, which may fail to be shown.

    Examples
    --------
    >>> from skdpot._progress import plain_bar
    >>> list(plain_bar([1, 2], disable=True))
    [1, 2]
    """
    return tqdm(*iterable, **({"file": _ErrorStream()} | options))


@contextmanager
def progress_bar(*iterable: Any, **options: Any) -> Iterator[Any]:
    """Show a bar of tqdm, and refresh its clock every second, also during a step.

    Of what is private, the clock shows the running time only, which nothing protects.

    Examples
    --------
    >>> from skdpot._progress import progress_bar
    >>> with progress_bar(total=2, disable=True) as bar:
    ...     _ = bar.update()
    """
    over = threading.Event()
    with plain_bar(*iterable, **options) as bar:

        def refresh() -> None:
            while not over.wait(_PAUSE):
                bar.refresh()

        clock = threading.Thread(target=refresh, daemon=True)
        if not bar.disable:
            clock.start()
        try:
            yield bar
        finally:
            over.set()
            if clock.is_alive():
                clock.join()
