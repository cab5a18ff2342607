"""Foreign code that is given private values: its output is hidden, and its failures say nothing."""

import contextlib
import io
import logging
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def _torch_restorer() -> Callable[[], None]:
    """Return a function that restores torch's random states, without an import of torch."""
    before = sys.modules.get("torch")
    state = before.get_rng_state() if before else None
    on_cuda = before.cuda.get_rng_state_all() if before and before.cuda.is_initialized() else None

    def restore() -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if state is None or (on_cuda is None and torch.cuda.is_initialized()):
            torch.seed()  # objects set up meanwhile had no state before, and get a new one
        if state is not None:
            torch.set_rng_state(state)
        if on_cuda is not None:
            torch.cuda.set_rng_state_all(on_cuda)

    return restore


class _Silence:
    """Hides all output and warnings inside, until the last of those inside has left.

    Streams, warnings and logs belong to the process: with several threads, the first one silences
    them and the last one restores them, with the global random states.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._hush()
            self._inside += 1
        try:
            # Settings of floating-point errors are those of a thread, and not of the process.
            with np.errstate():
                yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._undo.close()

    def _hush(self) -> None:
        self._undo.callback(np.random.set_state, np.random.get_state())
        self._undo.callback(random.setstate, random.getstate())
        self._undo.callback(_torch_restorer())
        self._undo.callback(logging.disable, logging.root.manager.disable)
        logging.disable(sys.maxsize)
        self._undo.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self._undo.enter_context(contextlib.redirect_stderr(io.StringIO()))
        # Recorded, as foreign code may show warnings again that are ignored here.
        self._undo.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("ignore")


# Hides warnings, prints and logs, which may depend on private values, and restores random states,
# which foreign code may change. Output of compiled code that bypasses Python is not caught.
silence = _Silence()


def result_of(call: Callable[[], Any], default: Any) -> Any:
    """Return the result of foreign code on private values, or a public default if it fails.

    An error may quote a value, and the fact that there is one depends on values: all count as the
    default, also an exit of the process. Only an interruption by the user is passed on, without its
    text, which that code may have written. Call it within `silence`.

    Examples
    --------
    >>> from skdpot.privacy.foreign import result_of
    >>> result_of(lambda: 1 / 0, 0.5)
    0.5
    """
    try:
        return call()
    except KeyboardInterrupt:
        pass
    except BaseException:
        return default
    # Raised outside of the handler, so that the original is not its context.
    raise KeyboardInterrupt
