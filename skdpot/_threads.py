"""Limits of the threads that libraries use for linear algebra and trees."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController

# Fewer rows are small work for trees and for linear models.
MANY_ROWS = 10_000


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses one thread."""
    return _libraries().limit(limits=1, user_api="blas")


def one_thread_unless(is_large: bool) -> AbstractContextManager[object]:
    """Return a context in which linear algebra and trees use one thread, unless work is large.

    In small work, threads mostly wait for each other. On a busy machine they can take a hundred
    times as long as one thread.
    """
    return _libraries().limit(limits=None if is_large else 1)


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries that have threads; finding them takes some milliseconds.

    Python ignores an interruption during the search.
    """
    # numpy's and scipy's are loaded by the modules that calculate.
    return ThreadpoolController()
