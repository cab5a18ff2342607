"""Parallel work on chunks of users, with a result that does not depend on the chunks."""

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from skdpot._progress import plain_bar
from skdpot._threads import one_blas_thread

# Doubles that the work on one chunk of users may take: 1 MiB, so that all of it fits into a cache.
_CHUNK_SIZE = 1 << 17
# Minimum number of chunks while a progress bar is shown.
_WATCHED_CHUNKS = 100


def plan_chunks(n_users, doubles_per_user, *, n_jobs=None, verbose=0):
    """Return slices of users, small enough for memory, and enough of them for all workers.

    Raises if joblib does not understand `n_jobs`, so that this is known before a budget is charged.
    """
    n_chunks = max(effective_n_jobs(n_jobs), _WATCHED_CHUNKS if verbose else 1)
    size = max(1, min(_CHUNK_SIZE // doubles_per_user, -(-n_users // n_chunks)))
    return tuple(slice(start, start + size) for start in range(0, n_users, size))


def map_chunks(function, chunks, *per_user, n_jobs=None, title=None):
    """Apply a function to every chunk of the arrays `per_user`, and stack the results.

    Workers are threads unless another joblib backend is active. With a title, a progress bar over
    the chunks is shown.
    """
    # Without max_nbytes=None, joblib would write large chunks, which are private, to files.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", max_nbytes=None)
    tasks = (delayed(function)(*(array[chunk] for array in per_user)) for chunk in chunks)
    with (
        one_blas_thread(),
        plain_bar(tasks, desc=title, total=len(chunks), disable=title is None) as watched,
    ):
        return np.concatenate(parallel(watched))
