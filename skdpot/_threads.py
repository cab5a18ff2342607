"""One thread for linear algebra, while this package divides the work itself."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra uses one thread."""
    return _libraries().limit(limits=1, user_api="blas")


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries that have threads; finding them takes some milliseconds.

    Python ignores an interruption during the search.
    """
    # numpy's and scipy's are loaded by the modules that calculate.
    return ThreadpoolController()
