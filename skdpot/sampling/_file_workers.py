"""The places where tasks run: this machine, a Dask cluster, or any executor with a map."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs

# Number of tasks handed over at a time: a killed call loses at most these.
_BATCH = 1000
# Minimum number of tasks that wait on a Dask cluster, so that no worker is idle.
_AHEAD = 64


def run_tasks(
    function: Callable[[Any], Any], tasks: Iterator[Any], client: Any, n_jobs: Any
) -> Iterator[Any]:
    """Return the results of tasks as they come, in any order.

    Parameters
    ----------
    function : callable
        A function at the top level of a module, so that workers find it.
    tasks : iterator
        Its arguments; not many more are taken than workers are busy with.
    client : dask.distributed.Client, object with a method `map`, callable or None
        Who does them; None does it by joblib.
    n_jobs : int or None
        For joblib.
    """
    if client is None:
        return _on_joblib(function, tasks, n_jobs)
    if is_dask(client):
        return _on_dask(function, tasks, client)
    return _by_map(function, tasks, client if callable(client) else client.map)


def is_dask(client: Any) -> bool:
    """Tell whether this is a client of a Dask cluster."""
    return hasattr(client, "submit") and hasattr(client, "scheduler_info")


def _on_joblib(function: Any, tasks: Iterator[Any], n_jobs: Any) -> Iterator[Any]:
    if effective_n_jobs(n_jobs) == 1:
        return map(function, tasks)
    return iter(Parallel(n_jobs, return_as="generator")(delayed(function)(task) for task in tasks))


def _on_dask(function: Any, tasks: Iterator[Any], client: Any) -> Iterator[Any]:
    from dask.distributed import as_completed

    def submit(count: int) -> list[Any]:
        # pure=False: a task that is done again must not return an earlier result.
        return [client.submit(function, task, pure=False) for task in islice(tasks, count)]

    waiting = submit(max(_AHEAD, 2 * sum(client.nthreads().values())))
    completed = as_completed(waiting, with_results=True)
    try:
        for future, result in completed:
            if future.status != "finished":
                raise RuntimeError("the cluster gave up its tasks: its scheduler was lost.")
            future.release()
            completed.update(submit(1))
            yield result
    finally:
        client.cancel(list(completed.futures))


def _by_map(function: Any, tasks: Iterator[Any], mapped: Any) -> Iterator[Any]:
    while batch := list(islice(tasks, _BATCH)):
        yield from mapped(function, batch)
