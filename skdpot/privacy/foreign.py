"""Foreign code that is given private values: its output is hidden, and its errors quote none."""

import contextlib
import io
import logging
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from numbers import Number
from typing import Any, TypeVar

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


Result = TypeVar("Result")

# Messages of scikit-learn or NumPy that quote values, or name a number of records that may be
# private, by their beginning, and the text that replaces each of them.
_INSTEAD = {
    "Expected 2D array": (
        "X must be two-dimensional, one row per user. Reshape your data using "
        "array.reshape(1, -1) if it is a single user's."
    ),
    "Complex data not supported": "Complex data not supported: X must hold real numbers.",
    "could not convert": (
        "X holds text that cannot be read as numbers. Convert it to numbers first."
    ),
    "setting an array": (
        "setting an array element with a sequence: rows of X are inhomogeneous, of different "
        "lengths or with entries that are no numbers."
    ),
    "This solver needs samples of at least 2 classes": "y has records of only one class.",
    "Unknown label type": (
        "Unknown label type: y has continuous values, or others that are no classes."
    ),
    # scikit-learn's own text advises another estimator, or imputation.
    "Input X contains NaN": (
        "Input X contains NaN. Leave out the rows that have missing values, or fill them with a "
        "number that is public. Do not impute from private rows: nothing protects what an imputer "
        "learns from them."
    ),
    "Input X contains infinity": (
        "Input X contains infinity or a value too large for a double. Leave out the rows that "
        "have one, or write a finite number."
    ),
}
# Beginnings of messages that name shapes, types and columns, but no value.
_WITHOUT_QUOTES = (
    "Expected 2D input", "Expected a 2-dimensional container", "Expected sequence",
    "Feature names", "Found array with", "Found input variables", "Input X", "Input contains",
    "Input y", "Negative values in data", "Only sparse", "Sparse data", "The feature names",
    "X has ", "dtype='numeric'", "float() argument", "int too large", "np.matrix",
    "y should be a 1d",
)  # fmt: skip


def shown(value: Any) -> str:
    """Return words, numbers and short tuples of them as text, and the type of other values.

    Others may be private, such as a table that was passed where a parameter is expected.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.foreign import shown
    >>> shown((5, 1)), shown(np.array([71.5]))
    ('(5, 1)', 'a value of type ndarray')
    """
    # A longer tuple may be a record.
    parts = value if type(value) is tuple and len(value) <= 4 else [value]
    if all(part is None or isinstance(part, str | Number) for part in parts):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def without_quotes(
    call: Callable[[], Result], otherwise: str, *, instead: Mapping[str, str] | None = None
) -> Result:
    """Return the result of a call, or raise an error that quotes none of its values.

    Only messages that are known to quote nothing are shown, since an object in the data may have
    raised any other. `otherwise` replaces an unknown one; `instead` has beginnings of further
    messages, each with its replacement. The error is a TypeError or a ValueError.

    Examples
    --------
    >>> from skdpot.privacy.foreign import without_quotes
    >>> without_quotes(lambda: int("3.75 euros"), "the price is no integer.")
    Traceback (most recent call last):
    ValueError: the price is no integer.
    """
    try:
        return call()
    except MemoryError:
        raise
    except Exception as error:
        said, kind = str(error), TypeError if isinstance(error, TypeError) else ValueError
        known = {**_INSTEAD, **(instead or {})}
        replaced = [text for start, text in known.items() if said.startswith(start)]
        wants_target = said.endswith("requires y to be passed, but the target y is None")
        if not replaced and (said.startswith(_WITHOUT_QUOTES) or wants_target):
            # The cause of the error may quote a value that could not be converted.
            error.__cause__ = error.__context__ = None
            raise
    # Raised outside of the handler, so that the original message is not the context of this error.
    raise kind(replaced[0] if replaced else otherwise)


def without_sizes(error: BaseException) -> BaseException:
    """Return an error, or another one of its kind if its message may name a private size or value.

    Libraries name the shape of an array that does not fit in memory, and a number that is too large
    for its type. The text of an interruption is left out.

    Examples
    --------
    >>> from skdpot.privacy.foreign import without_sizes
    >>> without_sizes(MemoryError("Unable to allocate an array with shape (4711,)"))
    MemoryError('there is not enough memory: use fewer records, or smaller settings.')
    """
    said = error
    # The package's own message names no size.
    ours = str(error).startswith("the training does not fit in memory")
    if isinstance(error, MemoryError) and not ours:
        said = MemoryError("there is not enough memory: use fewer records, or smaller settings.")
    elif isinstance(error, OverflowError):
        said = OverflowError("a number is too large for this computation.")
    elif isinstance(error, KeyboardInterrupt) and error.args:
        # That of a user has no text. Code of users that is given private values may write one.
        said = KeyboardInterrupt()
    if said is not error:
        for note in getattr(error, "__notes__", ()):
            said.add_note(note)
    return said
