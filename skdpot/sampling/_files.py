"""Samples of users in many files: each file is released once, despite crashes."""

import base64
import contextlib
import copy
import glob
import hashlib
import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.utils.validation import check_is_fitted

from skdpot import __version__
from skdpot._progress import plain_bar
from skdpot.privacy import PrivacyLedger, Receipt
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import event_to_json
from skdpot.privacy.random import derive_key, make_source
from skdpot.sampling._base import BaseLocalSampler, UserSamples, check_n_samples
from skdpot.sampling._file_formats import check_suffixes, read_users, write_samples
from skdpot.sampling._file_key import KeyFile, held_key
from skdpot.sampling._file_tasks import Task, digest_of, draw, inspect, pickled
from skdpot.sampling._file_workers import run_tasks

# Maximum number of files of a task, and of users, unless one file has more. The files of a task
# share the costs of writing to a disk.
_MOST_FILES = 64
_MOST_USERS = 5000
# Seconds after which a progress bar appears.
_PATIENCE = 3.0
_RESUME = (
    "All files are charged. Call release_files again with the same arguments: it goes on where it "
    "stopped, and nothing is charged again."
)


class ReleasedFile(NamedTuple):
    """A released file of samples, and the receipt of its charge.

    Attributes
    ----------
    source, target : str
        Absolute paths of the users and of their samples.
    n_users : int
        Number of users.
    digest : str
        SHA-256 digest of the file of samples.
    receipt : Receipt
        The receipt of the charge.
    """

    source: str
    target: str
    n_users: int
    digest: str
    receipt: Receipt


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

    All files are checked and charged first. Then workers draw samples and write the targets. All
    noise is derived (by SHAKE-256) from a secret key, the position of the file, and a digest of its
    users, of the sampler and of `n_samples`. So work that is repeated repeats its result: a worker,
    a scheduler or this process may die at any moment, or run a task twice. To resume, call the
    function again with the same arguments. No user is charged twice, and each target gets the one
    sample of its users. See :ref:`files-of-users`.

    The key lies in a file beside the ledger and is erased when all is done. **While a copy of it
    exists, privacy is computational**: it holds against everybody who does not have the key.
    Whoever has the key can compute the noise, so keep its copies, such as backups, as you keep the
    users' files.

    Parameters
    ----------
    sampler : estimator
        A fitted local sampler, such as :class:`WassersteinProjectionSampler`. If its
        `random_state` is an integer, each file has a different seed.
    sources : sequence of str or Path
        Files of users. Each user is in exactly one file, and it is public which one. Files with
        the same content have independent noise.
    targets : sequence of str or Path
        Files for the samples, one for each source and in the same order. They must not exist.
    ledger : PrivacyLedger
        Is charged for every file before the first sample is drawn. Give it a `path`: the key beside
        it is needed to resume.
    client : dask.distributed.Client, callable or executor, default=None
        Where the tasks run: on a Dask cluster, by a function ``client(function, tasks)``, or by an
        object with such a method ``map``. They may return results in any order. None uses joblib.
        Tasks hold keys of their files, so all of these must be trusted with users' data.
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
        ``write(samples, path)`` writes the samples, the same ones as the same bytes. None writes
        ".npy", ".npz" and ".parquet".
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
        If another process is releasing these files, a file has changed since it was charged or
        written, a target is gone and the key is erased, or the file of the key cannot be used.

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
    names, files = _check_files(sources, targets, read, write)
    quiet = copy.copy(sampler).set_params(ledger=None, random_state=None, verbose=0)
    facts = {
        "version": __version__,
        "ledger": ledger.identity,
        "partition": partition,
        "sampler": plan.label,
        # Fitted numbers may differ in their last digits on another machine.
        "parameters": joblib.hash(quiet.get_params() | {"n_jobs": None}),
        "event": event_to_json(plan.event),
        "n_samples": int(n_samples),
        "random_state": None if sampler.random_state is None else int(sampler.random_state),
        "files": files,
    }
    if read is None:
        columns = vars(quiet).pop("feature_names_in_", None)
        # The columns are chosen by their names, which arrays do not have.
        read = partial(read_users, n_columns=quiet.n_features_in_, names=columns)
    run = partial(_run, client, n_jobs, bool(verbose))
    with held_key(ledger.path, partition) as keys:
        release = _FilesRelease(
            keys, facts, pickled(quiet), pickled((read, write or write_samples)), run
        )
        release.claim(plan, ledger)
        receipts = release.pay(plan, ledger, names)
        try:
            release.finish()
        except BaseException as error:
            error.add_note(_RESUME)
            raise
        n_users = keys.claim["n_users"]
        return [
            ReleasedFile(source, target, n_users[k], keys.results[k], receipts[name])
            for k, ((source, target), name) in enumerate(zip(files, names, strict=True))
        ]


class _FilesRelease:
    """One release of files, from the claim to the last target.

    Parameters
    ----------
    keys : KeyFile
        Held by this process alone.
    facts : dict
        The arguments of the call.
    sampler, functions : bytes
        The pickles of the fitted sampler, and of ``read`` and ``write``.
    run : callable
        ``run(function, tasks, title, n_files)`` returns the results of tasks, in any order.
    """

    def __init__(
        self, keys: KeyFile, facts: dict[str, Any], sampler: bytes, functions: bytes, run: Any
    ) -> None:
        self._keys, self._facts, self._files, self._run = keys, facts, facts["files"], run
        self._is_new = not keys.claim
        if self._is_new:
            self._sampler = sampler
        else:
            self._check_same_call()
            # One mechanism draws all samples: another fit could have other last digits.
            self._sampler = base64.b64decode(keys.claim["sampler"])
        self._arguments = self._sampler, facts["n_samples"], functions
        name = f"{facts['ledger']} {facts['partition']}"
        self._prefix = f".unfinished-{hashlib.sha256(name.encode()).hexdigest()[:16]}-"

    def _check_same_call(self) -> None:
        """Raise if the key is of a call with other arguments."""
        earlier = self._keys.claim["facts"]
        # Nothing is drawn any more without a key.
        names = [name for name in self._facts if name != "version" or not self._keys.is_erased]
        differing = [name for name in names if self._facts[name] != earlier.get(name)]
        if differing:
            raise ValueError(
                f"partition {self._facts['partition']!r} of this ledger is of an earlier call that "
                f"differs in {', '.join(differing)}. To resume that one, pass the same arguments; "
                "for another release, pass another name as partition, which is charged."
            )

    def claim(self, plan: ReleasePlan, ledger: PrivacyLedger) -> None:
        """Check all files and write tokens of what is drawn, unless an earlier call has."""
        if not self._is_new:
            return
        _refuse_targets(self._files)
        plan.price(ledger)
        work, numbers = partial(inspect, *self._arguments), range(len(self._files))
        tasks = ([self._task(number)] for number in numbers)
        found = dict(self._run(work, tasks, "files checked", len(numbers)))
        self._keys.write(
            {
                "facts": self._facts,
                "sampler": base64.b64encode(self._sampler).decode(),
                "tokens": [found[number][0] for number in numbers],
                "n_users": [found[number][1] for number in numbers],
            }
        )

    def pay(self, plan: ReleasePlan, ledger: PrivacyLedger, names: list[str]) -> dict[str, Receipt]:
        """Charge all files that no earlier call has charged: all at once, or none."""
        tokens = dict(zip(names, self._keys.claim["tokens"], strict=True))
        try:
            return plan.charge_parts_to(ledger, self._facts["partition"], tokens)
        except ValueError:
            # The charge was refused: the files may be tried again with other arguments.
            if self._is_new:
                self._keys.forget()
            raise

    def finish(self) -> None:
        """Check the targets of files that are done, draw the others, and erase the key."""
        missing = [k for k in range(len(self._files)) if not self._is_done(k)]
        if self._keys.is_erased:
            return
        folders = {os.path.dirname(target) for _, target in self._files}
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        work = partial(draw, *self._arguments, self._prefix)
        for number, digest in self._run(work, self._batches(missing), "files", len(missing)):
            self._keys.record(number, digest)
        for folder in folders:
            for draft in glob.glob(os.path.join(glob.escape(folder), f"{self._prefix}*")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft)
        self._keys.finish()

    def _is_done(self, number: int) -> bool:
        """Tell whether a target is known to hold its samples; raise if it cannot any more."""
        target, digest = self._files[number][1], self._keys.results.get(number)
        is_there = os.path.lexists(target)
        if digest is not None and is_there and digest_of(target) != digest:
            raise RuntimeError(
                f"{target} is not what was released: its digest is another. Put the released file "
                "back."
            )
        if self._keys.is_erased and not is_there:
            raise RuntimeError(
                f"{target} was released, and is gone. Put it back; its users are not drawn again."
            )
        return digest is not None and is_there

    def _batches(self, numbers: list[int]) -> Iterator[list[Task]]:
        """Return the tasks of files, several at a time."""
        claim, results = self._keys.claim, self._keys.results
        size = max(1, min(_MOST_FILES, _MOST_USERS // max(claim["n_users"])))
        for start in range(0, len(numbers), size):
            yield [
                self._task(k, token=claim["tokens"][k], digest=results.get(k))
                for k in numbers[start : start + size]
            ]

    def _task(self, number: int, **known: Any) -> Task:
        source, target = self._files[number]
        # Users with equal numbers in two files have different noise, and different seeds.
        key = derive_key(self._keys.key, number.to_bytes(8, "big"))
        seed = self._facts["random_state"]
        if seed is not None:
            sequence = np.random.SeedSequence(seed, spawn_key=(number,))
            seed = int(sequence.generate_state(1)[0])
        return Task(number, source, target, key, seed, **known)


def _run(
    client: Any, n_jobs: Any, is_watched: bool, function: Any, tasks: Any, title: str, n_files: int
) -> Iterator[Any]:
    """Return the results of all files in tasks, in any order."""
    results = chain.from_iterable(run_tasks(function, tasks, client, n_jobs))
    options = {"unit": "file", "delay": _PATIENCE, "disable": not is_watched}
    came = set()
    for number, result in plain_bar(results, title, n_files, **options):
        came.add(number)
        yield number, result
    if len(came) < n_files:
        raise RuntimeError(
            f"{n_files - len(came)} results are missing: client must return one for each task that "
            "it is given."
        )


def _refuse_targets(files: list[list[str]]) -> None:
    """Raise if a target exists before anything is claimed."""
    for _, target in files:
        if os.path.lexists(target):
            raise FileExistsError(
                f"{target} exists, and was not written by this call. Nothing was charged. Move it "
                "away, or give another target. If it is from an interrupted call whose key is "
                "lost, its users are charged again."
            )


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
        raise TypeError("ledger must be a PrivacyLedger. Create one with a path=, for the key.")
    return plan


def _check_files(
    sources: Any, targets: Any, read: Any, write: Any
) -> tuple[list[str], list[list[str]]]:
    """Return the names of sources, and the paths of all sources and targets, or raise."""
    names = [os.fspath(source) for source in sources]
    origins, places = ([os.path.abspath(path) for path in paths] for paths in (names, targets))
    # A source with two names would be released twice.
    paths = {*map(_real_path, origins), *map(_real_path, places)}
    if not names or len(names) != len(places) or len(paths) != 2 * len(names):
        raise ValueError(
            "sources and targets must be as many, at least one, and all different; got "
            f"{len(names)} sources and {len(places)} targets."
        )
    if read is None:
        check_suffixes(origins, "read")
    if write is None:
        check_suffixes(places, "write")
    return names, [list(pair) for pair in zip(origins, places, strict=True)]


def _real_path(path: str) -> Any:
    """Return the real path of a file, which all its names and links share."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return status.st_dev, status.st_ino
