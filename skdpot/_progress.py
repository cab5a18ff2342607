"""Progress bars whose clocks go on during long steps."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

# Seconds between two looks at the clock.
_PAUSE = 1.0


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
    with tqdm(*iterable, **options) as bar:

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
