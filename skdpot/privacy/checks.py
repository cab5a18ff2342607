"""Values from outside: checks that may raise; private values and foreign code, which may not."""

import contextlib
import decimal
import io
import logging
import math
import os
import random
import re
import secrets
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import time
from functools import partial
from numbers import Integral, Number, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

# All integers up to here are doubles.
_LARGEST_EXACT = 2**53


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {to_display(value)}.")


def check_flag(name: str, value: Any) -> None:
    """Raise unless a value is True or False; any text would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {to_display(value)}.")


def real_number(value: Any) -> float:
    """Return a number as a double; NaN for other objects and for numbers beyond all doubles."""
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def check_positive(name: str, value: Any) -> float:
    """Return a finite number above zero as a float, or raise."""
    number = real_number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {to_display(value)}.")
    return number


def check_probability(name: str, value: Any) -> None:
    """Raise unless a value is a number in [0, 1)."""
    if not 0 <= real_number(value) < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {to_display(value)}.")


def check_delta(value: Any, name: str = "delta") -> float:
    """Return a probability strictly between zero and one as a float, or raise."""
    number = real_number(value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {to_display(value)}.")
    return number


def check_count(name: str, value: Any) -> int:
    """Return an integer of at least one, or raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {to_display(value)}.")
    return int(value)


def refuse_other_order(
    name: str, value: Any, names: Any, *, of: str = "X", axis: str = "index"
) -> None:
    """Raise if a frame or series does not have the names that it stands for, in their order.

    Everything that has names is checked here, since it is read by position: names in another order
    would give one thing the value of another. Without names on either side nothing is checked, and
    numbers are no names, unless they are those of the other side.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpot.privacy.checks import refuse_other_order
    >>> refuse_other_order("bounds", pd.Series({"b": 1.0, "a": 2.0}), ["a", "b"])
    Traceback (most recent call last):
    ValueError: bounds has the names of X in another order, and is read by position. Put ...
    """
    labels, names = names_of(value, axis), list(names)
    if labels == names or len(labels) != len(names):
        return
    if set(labels) == set(names):
        raise ValueError(
            f"{name} has the names of {of} in another order, and is read by position. Put it in "
            f"the order of {of}, as by reindex."
        )
    if all(isinstance(each, str) for each in labels + names):
        raise ValueError(
            f"{name} has other names than {of}, and is read by position. Give it the same names, "
            f"or none if it is in the order of {of}, as by to_numpy."
        )


def refuse_dates(name: str, value: Any) -> None:
    """Raise if the type of an array or frame is of dates: they would become numbers of any unit."""
    types = [value.dtype] if hasattr(value, "dtype") else getattr(value, "dtypes", ())
    if any(str(each).lower().startswith(("date", "duration", "time")) for each in types):
        raise TypeError(f"{name} holds dates or durations: make numbers of them first, as of days.")


def check_type(name: str, value: Any) -> None:
    """Raise if a value is of a type with a mask, or with rows that were not read yet.

    NumPy drops masks where it makes an array: what they hide would count as data.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.checks import check_type
    >>> check_type("X", np.ma.masked_equal([1, -999], -999))
    Traceback (most recent call last):
    TypeError: X is a masked array, whose mask would be lost. Fill it first, as by ...
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost. Fill it first, as by "
            "astype(float).filled(numpy.nan), or by numpy.asarray if nothing is masked."
        )
    if type(value).__name__ == "LazyFrame":
        raise TypeError(f"{name} is a LazyFrame, whose rows were not read: pass table.collect().")


def check_memory(n_bytes: float, what: str, remedy: str) -> None:
    """Raise if something of a public size needs more memory than this process may have.

    Examples
    --------
    >>> from skdpot.privacy.checks import check_memory
    >>> check_memory(2.0**60, "a matrix of all pairs", "Use fewer of them.")
    Traceback (most recent call last):
    ValueError: nothing was charged: a matrix of all pairs would take about 1,073,741,824.0 GiB ...
    """
    limits = [math.inf]
    # Windows has none of these; the last one is that of a container.
    with contextlib.suppress(AttributeError, ImportError, OSError, ValueError):
        import resource

        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        limits.append(resource.getrlimit(resource.RLIMIT_AS)[0] % 2**63)
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    # The rows and other programs need memory, too.
    if n_bytes > 0.8 * min(limits):
        needed, limit = (f"{n / 2**30:,.1f} GiB" for n in (n_bytes, min(limits)))
        raise ValueError(
            f"nothing was charged: {what} would take about {needed} of memory, too much for the "
            f"{limit} that there are. {remedy}"
        )


@contextlib.contextmanager
def draft_of(path: Path, *, linked: bool = False) -> Iterator[Path]:
    """Give a draft of a file, which has its name at the end of the block; errors name the file.

    A ledger, which is a file of SQLite, is not replaced.
    """
    with contextlib.suppress(OSError), open(path, "rb") as known:
        if not linked and known.read(15) == b"SQLite format 3":
            raise ValueError(f"{path} is a ledger, and is not replaced: name another file.")
    # In the same folder, since a file can only be moved at once within a file system.
    unique = secrets.token_hex(8) + "".join(path.suffixes)
    draft = path.with_name(f".{path.name}.{unique}")
    try:
        yield draft
        # A link never replaces a file.
        (os.link if linked else os.replace)(draft, path)
    except OSError as error:
        if error.filename is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def names_of(value: Any, axis: str = "index") -> list[Any]:
    """Return the labels of a series, or of the rows or columns of a frame; of others, nothing."""
    # Lists have a method index, frames of polars no index, and those of pyarrow values as columns.
    if axis == "columns":
        return list(getattr(value, "column_names", getattr(value, "columns", ())))
    return list(value.index) if hasattr(value, "iloc") else []


def refuse_other_rows(X: Any, beside: Mapping[str, Any], *, or_new: bool = False) -> None:
    """Raise if vectors beside X, by their names, have the labels of its rows in another order.

    Vectors with other labels are read by position, as in scikit-learn, or with `or_new` refused.
    Types of X and of vectors are those of `check_type`, which raises for others.
    """
    check_type("X", X)
    for name, value in beside.items():
        check_type(name, value)
        both = hasattr(X, "iloc") and hasattr(value, "iloc")
        if both and not X.index.equals(value.index):
            if or_new or (len(value) == len(X) and set(value.index) == set(X.index)):
                raise ValueError(
                    f"{name} has another index than X, or another order: reindex it like X, or "
                    "pass its to_numpy() if it is in the order of the rows."
                )


def refuse_derived(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    """Raise if a part of an estimator, which reads private data, is of none of these types."""
    if not any(type(value) is kind for kind in kinds):
        known = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"{name} is a {type(value).__name__}: code of a derived class would read private data "
            f"before the charge. Take a {known}."
        )


def refuse_unused(X: Any, y: Any) -> None:
    """Raise if a y that is not used can be no target of the rows of X, so that more was meant.

    In pipelines there is a target of each row, which is one number or a few.
    """
    shape, of_X = (tuple(getattr(each, "shape", ())) for each in (y, X))
    if shape and of_X and (shape[0] != of_X[0] or (shape == of_X and shape[1:] not in ((), (1,)))):
        raise ValueError("y is not used: pass other data by name, as source_utilities or points.")


def private_vector(values: Any, n_coordinates: int) -> np.ndarray:
    """Return private numbers as doubles; raise if there are more than the noise is made for."""
    doubles = private_doubles(values)
    # Shapes are public; more numbers would have more than the declared sensitivity.
    if doubles.size > n_coordinates:
        raise ValueError(
            f"a value of {doubles.size} numbers is too long for n_coordinates={n_coordinates}: "
            "create the mechanism for as many, with their joint sensitivity."
        )
    return doubles


def private_doubles(values: Any) -> np.ndarray:
    """Return private numbers as an array of doubles, for any kind of numbers.

    Missing values become NaN, and numbers beyond the range of doubles become infinite. An error on
    only one of two neighbouring data sets would distinguish them. Integers beyond ``2**53`` are
    moved there, also beside other numbers in a list, since neighbours that are 1 apart could become
    doubles that are further apart.

    Raises
    ------
    TypeError
        If they are of a kind that no real numbers are of: text, dates, or complex numbers.
    """
    check_type("a private value", values)
    with np.errstate(all="ignore"):
        array = redact_errors(lambda: _unrounded(values), "private values must be real numbers.")
        refused = (str, bytes, complex, np.complexfloating)
        is_refused = array.dtype.kind in "cmMSTU"
        if array.dtype == object:
            is_refused = any(isinstance(value, refused) for value in array.flat)
        if is_refused:
            raise TypeError("private values must be real numbers: no text, dates or complex ones.")
        if array.dtype == object:
            array = np.array([_double(value) for value in array.flat]).reshape(array.shape)
        elif array.dtype.kind == "u":
            array = np.minimum(array.astype(np.uint64), np.uint64(_LARGEST_EXACT))
        elif array.dtype.kind == "i":
            array = np.clip(array.astype(np.int64), -_LARGEST_EXACT, _LARGEST_EXACT)
        return array.astype(np.float64)


def _unrounded(values: Any) -> np.ndarray:
    """Return an array, in which integers of a mixed list are not rounded.

    NumPy turns them into doubles, and also integers that have no common integer type.
    """
    array = np.asarray(values)
    if isinstance(values, (list, tuple)) and array.dtype.kind == "f":
        if (np.abs(array) >= _LARGEST_EXACT).any():
            return np.asarray(values, dtype=object)
    return array


def _double(value: Any) -> float:
    if isinstance(value, Integral):
        return float(max(-_LARGEST_EXACT, min(int(value), _LARGEST_EXACT)))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def number_labels(labels: list, number: Mapping[Any, int]) -> list[int]:
    """Return the number of each private label, -1 if it is not declared, without errors.

    Examples
    --------
    >>> from skdpot.privacy.checks import number_labels
    >>> number_labels(["b", None, ["a"]], {"a": 0, "b": 1})
    [1, -1, -1]
    """
    # Of these types, neither labels nor declared ones run code of others when they are compared.
    if {type(None), bool, int, float, str}.issuperset({*map(type, labels), *map(type, number)}):
        return [number.get(label, -1) for label in labels]
    return [_number_of_label(label, number) for label in labels]


def _number_of_label(label, number):
    try:
        if isinstance(label, time) and label not in number:
            # Schemas, which are JSON, have times of day as text: 09:30:00, or 09:30.
            return number.get(str(label), number.get(str(label).removesuffix(":00"), -1))
        return number.get(label, -1)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # Foreign objects can raise anything when they are hashed or compared, also an exit.
        # A value that cannot be looked up is no declared label. An error would reveal it.
        return -1


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


# The `silence` blocks that are open, in all threads. And what the last one does: each step may be
# done twice, as where it is interrupted.
_inside: set[object] = set()
_counting = threading.Lock()
_undo: list[Callable[[], Any]] = []


def _exit_from(ignored: warnings.catch_warnings) -> None:
    # It may not have been entered, where this was interrupted.
    with contextlib.suppress(RuntimeError):
        ignored.__exit__(None, None, None)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Hide all output and warnings inside, until the last of those inside has left.

    These are warnings, prints and logs, which may depend on private values; random states, which
    foreign code may change, are restored. Output of compiled code that bypasses Python is not
    caught.

    Streams, warnings and logs belong to the process: with several threads, the first one silences
    them and the last one restores them, with the global random states.
    """
    me = object()

    def leave() -> None:
        with _counting:
            _inside.discard(me)
            if not _inside:
                for step in reversed(_undo):
                    step()
                _undo.clear()

    try:
        with _counting:
            if not _inside:
                _undo.append(partial(np.random.set_state, np.random.get_state()))
                _undo.append(partial(random.setstate, random.getstate()))
                _undo.append(_torch_restorer())
                _undo.append(partial(logging.disable, logging.root.manager.disable))
                logging.disable(sys.maxsize)
                for name in ("stdout", "stderr"):
                    _undo.append(partial(setattr, sys, name, getattr(sys, name)))
                    setattr(sys, name, io.StringIO())
                # Recorded, as foreign code may show warnings again that are ignored here.
                ignored = warnings.catch_warnings(record=True)
                _undo.append(partial(_exit_from, ignored))
                ignored.__enter__()
                warnings.simplefilter("ignore")
            _inside.add(me)
        # Settings and flags of numbers are those of a thread, and not of the process.
        with np.errstate(), decimal.localcontext():
            yield
    finally:
        # Where one is interrupted, the other leaves: otherwise all that follows would be heard.
        try:
            leave()
        finally:
            leave()


def is_silent() -> bool:
    """Tell whether some thread is inside of `silence`."""
    return bool(_inside)


def result_of(call: Callable[[], Any], default: Any) -> Any:
    """Return the result of foreign code on private values, or a public default if it fails.

    An error may quote a value, and the fact that there is one depends on values: all count as the
    default, also an exit of the process. Only an interruption by the user is passed on, without its
    text, which that code may have written. Call it within `silence`.

    Examples
    --------
    >>> from skdpot.privacy.checks import result_of
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
        "X must be two-dimensional, one row per record or user. Reshape your data using "
        "array.reshape(-1, 1) if it is a single feature, or array.reshape(1, -1) if it is a single "
        "row."
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
    "Unknown label type": "Unknown label type: y has continuous values, or none that are classes.",
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
    "X has ", "X holds dates", "dtype='numeric'", "float() argument", "int too large", "np.matrix",
    "y should be a 1d", "the budget does not", "Expected unique column", "a list of labels is a",
)  # fmt: skip


class UndeclaredError(ValueError):
    """A value that a declaration lacks, as it lacks those that are invented for a trial."""


def to_display(value: Any) -> str:
    """Return words, numbers and short tuples of them as text, and the type of other values.

    Others may be private, such as a table that was passed where a parameter is expected.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.checks import to_display
    >>> to_display((5, 1)), to_display(np.array([71.5]))
    ('(5, 1)', 'a value of type ndarray')
    """
    # A longer tuple may be a record.
    parts = value if type(value) is tuple and len(value) <= 4 else [value]
    if all(part is None or isinstance(part, str | Number) for part in parts):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def redact_errors(
    call: Callable[[], Result], otherwise: str, *, instead: Mapping[str, str] | None = None
) -> Result:
    """Return the result of a call, or raise an error that quotes none of its values.

    Only messages that are known to quote nothing are shown, since an object in the data may have
    raised any other. `otherwise` replaces an unknown one; `instead` has beginnings of further
    messages, each with its replacement. The error is a TypeError or a ValueError.

    Examples
    --------
    >>> from skdpot.privacy.checks import redact_errors
    >>> redact_errors(lambda: int("3.75 euros"), "the price is no integer.")
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

    Libraries name the shape of an array that does not fit in memory, also in text alone, and a
    number that is too large for its type. The text of an interruption is left out.

    Examples
    --------
    >>> from skdpot.privacy.checks import without_sizes
    >>> without_sizes(MemoryError("Unable to allocate an array with shape (4711,)"))
    MemoryError('there is not enough memory: use fewer records, or smaller settings.')
    """
    said = error
    # PyTorch on a CPU says it in text alone.
    lacks_memory = r"(allocate|enough|of) memory|ALLOC_FAILED"
    short = isinstance(error, RuntimeError) and re.search(lacks_memory, str(error))
    if isinstance(error, MemoryError) or short:
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
