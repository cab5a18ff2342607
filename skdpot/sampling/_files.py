"""Samples of users in many files: each file is released once, despite crashes."""

import copy
import os
from numbers import Integral
from typing import Any

from sklearn.utils.validation import check_is_fitted

from skdpot.privacy import PrivacyLedger
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.random import make_source
from skdpot.sampling._base import BaseLocalSampler, UserSamples, check_n_samples
from skdpot.sampling._file_formats import check_suffixes
from skdpot.sampling._file_journal import FileJournal, journal_of
from skdpot.sampling._file_release import Files, FilesRelease, ReleasedFile
from skdpot.sampling._file_tasks import Work
from skdpot.sampling._file_workers import run_tasks

_RESUME = (
    "All files are charged. Call release_files again with the same arguments: it goes on where it "
    "stopped, and nothing is charged again."
)


def release_files(
    sampler,
    sources,
    targets,
    *,
    ledger,
    client=None,
    n_jobs=None,
    n_samples=1,
    partition="files",
    read=None,
    write=None,
    verbose=1,
) -> list[ReleasedFile]:
    """Release private samples of all users in many files, each file exactly once.

    All files are checked and charged first. Then workers draw samples and write them under
    temporary names, and this process commits one result for each file. A worker, a scheduler or
    this process may die at any moment, or run a task twice. To resume, call the function again
    with the same arguments. No user is charged twice, and each target gets exactly one sample of
    its users. See :ref:`files-of-users`.

    Parameters
    ----------
    sampler : estimator
        A fitted local sampler, such as :class:`WassersteinProjectionSampler`. If its
        `random_state` is an integer, each file has a different seed.
    sources : sequence of str or Path
        Files of users. Each user is in exactly one file, and it is public which one.
    targets : sequence of str or Path
        Files for the samples, one for each source and in the same order. They must not exist.
    ledger : PrivacyLedger
        Is charged for every file before the first sample is drawn. Give it a `path`: the journal
        beside it is needed to resume.
    client : dask.distributed.Client, callable or executor, default=None
        Where the tasks run: on a Dask cluster, by a function ``client(function, tasks)``, or by an
        object with such a method ``map``. They may return results in any order. None uses joblib.
    n_jobs : int, default=None
        Number of worker processes, if joblib is used.
    n_samples : int, default=1
        Samples of each user.
    partition : str, default="files"
        Name of these files in the ledger. Later files need another name, and the same users are
        charged again.
    read : callable, default=None
        ``read(path)`` returns one row per user. None reads ".npy" (arrays), ".npz" (sparse
        matrices of SciPy, or one array) and ".parquet" (numeric columns; or two columns of lists:
        indices of columns, and weights).
    write : callable, default=None
        ``write(samples, path)`` writes the samples. None writes ".npy", ".npz" and ".parquet".
    verbose : int, default=1
        Whether to show a progress bar for work of more than three seconds.

    Returns
    -------
    list of ReleasedFile
        For each file: `source`, `target`, `n_users`, the `digest` of the samples and the `receipt`
        of the charge.

    Raises
    ------
    ValueError
        If an argument is wrong, or a file cannot be used (a note names it). Nothing is charged in
        this case.
    BudgetExceededError
        If the ledger does not allow the release. Nothing is charged in this case.
    FileExistsError
        If a target exists that this release did not write.
    RuntimeError
        If another process is releasing these files, a file has changed or disappeared since it was
        charged or written, or the journal is an old one from a backup.

    See Also
    --------
    WassersteinProjectionSampler : Samples of users in memory.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from skdpot import PrivacyLedger, WassersteinProjectionSampler, release_files
    >>> folder = Path(tempfile.mkdtemp())
    >>> sources = [folder / f"visits-{k}.npy" for k in range(3)]
    >>> for source in sources:
    ...     np.save(source, np.array([[8, 1, 1, 0, 0], [0, 0, 1, 4, 5]]))
    >>> targets = [folder / f"samples-{k}.npy" for k in range(3)]
    >>> ledger = PrivacyLedger(epsilon=2.0, path=folder / "ledger")
    >>> sampler = WassersteinProjectionSampler(epsilon=2.0).fit(np.ones((1, 5)))
    >>> released = release_files(sampler, sources, targets, ledger=ledger)
    >>> [np.load(file.target).shape for file in released]
    [(2, 1), (2, 1), (2, 1)]
    >>> release_files(sampler, sources, targets, ledger=ledger) == released
    True
    >>> ledger.spent()
    (2.0, 0.0)
    """
    plan = _plan(sampler, ledger, n_samples)
    files = _check_files(sources, targets, read, write)
    work = Work(_without_ledger(sampler), int(n_samples), read, write)

    def run(function: Any, tasks: Any) -> Any:
        return run_tasks(function, tasks, client, n_jobs)

    with FileJournal(journal_of(ledger.path, partition)) as journal:
        release = FilesRelease(
            journal, files, work, sampler.random_state, ledger, partition, run, bool(verbose)
        )
        release.claim(plan)
        receipts = release.pay(plan)
        try:
            release.finish()
        except BaseException as error:
            error.add_note(_RESUME)
            raise
        return release.report(receipts)


def _plan(sampler: Any, ledger: Any, n_samples: Any) -> ReleasePlan:
    """Return the plan of the samples of each file, or raise."""
    if not isinstance(sampler, BaseLocalSampler):
        raise TypeError(f"sampler must be a local sampler, got an object of {type(sampler)}.")
    check_is_fitted(sampler)
    if sampler.ledger is not None and sampler.ledger is not ledger:
        raise ValueError("the sampler has another ledger than the one given: leave it out there.")
    if not (sampler.random_state is None or isinstance(sampler.random_state, Integral)):
        raise ValueError("random_state of the sampler must be None or an integer.")
    samples = UserSamples(sampler._fitted, check_n_samples(n_samples))
    plan = sampler._plan_samples(samples, make_source(sampler.random_state))
    plan.check(ledger)
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError("ledger must be a PrivacyLedger. Create one with a path=, for its journal.")
    return plan


def _without_ledger(sampler: Any) -> Any:
    """Return the copy of a sampler for workers, without its ledger and progress bar."""
    return copy.copy(sampler).set_params(ledger=None, random_state=None, verbose=0)


def _check_files(sources: Any, targets: Any, read: Any, write: Any) -> Files:
    """Return the names and paths of all files, or raise."""
    names = [os.fspath(source) for source in sources]
    files = Files(
        names,
        [os.path.abspath(name) for name in names],
        [os.path.abspath(target) for target in targets],
    )
    # A source with two names would be released twice.
    paths = {*map(_real_path, files.sources), *map(_real_path, files.targets)}
    if not names or len(names) != len(files.targets) or len(paths) != 2 * len(names):
        raise ValueError(
            "sources and targets must be as many, at least one, and all different; got "
            f"{len(names)} sources and {len(files.targets)} targets."
        )
    if read is None:
        check_suffixes(files.sources, "read")
    if write is None:
        check_suffixes(files.targets, "write")
    return files


def _real_path(path: str) -> Any:
    """Return the real path of a file, which all its names and links share."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino
