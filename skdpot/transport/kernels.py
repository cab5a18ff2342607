"""Kernels: functions that Numba compiles and keeps on disk, or that the interpreter runs instead.

To compile a kernel takes seconds, once on a machine. Before kernels are compiled, small tasks run
in the interpreter, with the same steps in the same order. Results are the same, bit by bit, unless
a kernel or its parts may reorder sums or products.
"""

import logging
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numba import njit, typeof
from numba.extending import intrinsic, overload, register_jitable

# Divisions that raise no error of Python become vector instructions.
_OPTIONS = {"nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


# The work that the interpreter does in place of kernels that are not compiled: the limit in seconds
# for one kernel, all calls of a process together; the seconds that each has taken so far; and
# whether the process has said that it compiles.
interpreter_budget = SimpleNamespace(limit=1.0, spent=defaultdict(float), is_told=False)


@contextmanager
def compiled_at_once():
    """Let everything be compiled at once, and in silence."""
    before = interpreter_budget.limit, interpreter_budget.is_told
    interpreter_budget.limit, interpreter_budget.is_told = -1.0, True
    try:
        yield
    finally:
        interpreter_budget.limit, interpreter_budget.is_told = before


def kernel(function=None, **options):
    """Return a function that is compiled when it is first called, for the types it is called with.

    The plain function is its attribute `py_func`.
    """
    if function is None:
        return lambda function: kernel(function, **options)
    compiled = njit(**_OPTIONS, **options)(function)
    if compiled is function:
        # NUMBA_DISABLE_JIT is set: nothing is compiled, and nothing need be.
        function.signatures = [None]
        return function
    # Neither beside the source nor in the user's own folder for caches may there be room: then
    # every process compiles for itself. In a folder for all users they could run each other's code.
    with suppress(RuntimeError):
        compiled.enable_caching()
    return compiled


def part(function=None, **options):
    """Return a function for kernels to call: compiled with them, and otherwise plain Python.

    It takes half as long to compile as a kernel of its own, which can be called from outside.
    """
    if function is None:
        return lambda function: part(function, **options)
    return register_jitable(**_OPTIONS, **options)(function)


def leaf(function=None, **options):
    """Return a part that makes no arrays, and in which nobody counts references to those it gets.

    The caller must hold them. To count takes a third of the time of short work such as a pivot.
    """
    return part(function, _nrt=False, **options)


@part
def longest_row(indptr):
    """Return the number of entries of the longest row of a compressed matrix."""
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest


def lesser(one, other):
    """Return the lesser of two finite numbers, in loops that become vector instructions.

    Of `min`, compilers keep the order, for NaN and signed zeros.
    """
    return one if one < other else other


@intrinsic
def _lesser(_, one, other):
    def emit(context, builder, signature, arguments):
        flags = ("nnan", "nsz")
        is_below = builder.fcmp_ordered("<", *arguments, flags=flags)
        return builder.select(is_below, *arguments, flags=flags)

    return one(one, one), emit


# Nobody calls it by name: it is what Numba compiles where kernels call `lesser`.
@overload(lesser, inline="always")
def _compiled_lesser(one, other):
    return lambda one, other: _lesser(one, other)


@kernel
def _nothing(numbers):
    return np.empty_like(numbers), 0.0


def load_compiler() -> None:
    """Import all that kernels need once they are called.

    For releases, which call kernels after they were charged: an interrupted import leaves modules
    half made.
    """
    # One call loads the compiler; a second would only take time.
    if not _nothing.signatures:
        _nothing(np.zeros(1))


def prepare(kernel, seconds, *arguments) -> bool:
    """Compile a kernel for such arguments unless the interpreter finishes sooner.

    Tell whether it is compiled. `seconds` is the time that the interpreter would take.
    """
    message = (
        "skdpot compiles kernels, once on this machine: this takes up to 20 seconds. "
        "`python -m skdpot warm` does so in advance."
    )
    log = logging.getLogger("skdpot")
    # It was compiled or loaded in this process, and any argument types are those of then.
    if kernel.signatures:
        return True
    if not is_on_disk(kernel):
        if interpreter_budget.spent[kernel] + seconds <= interpreter_budget.limit:
            return False
        if not interpreter_budget.is_told:
            interpreter_budget.is_told = True
            log.warning(message)
    kernel.compile(tuple(map(typeof, arguments)))
    return True


def run(kernel, seconds, *arguments):
    """Call a kernel, or let the interpreter do its work of `seconds`, as `prepare` says."""
    if prepare(kernel, seconds, *arguments):
        return kernel(*arguments)
    start = time.perf_counter()
    try:
        with np.errstate(all="ignore"):
            return kernel.py_func(*arguments)
    finally:
        # Also where the kernel raised: the time was spent.
        interpreter_budget.spent[kernel] += time.perf_counter() - start


def is_on_disk(kernel) -> bool:
    """Tell whether an earlier process has left a kernel's machine code."""
    folder, function = kernel.stats.cache_path, kernel.py_func
    name = f"{function.__qualname__}-{function.__code__.co_firstlineno}"
    return folder is not None and any(Path(folder).glob(f"*.{name}.*"))
