"""Samples of users in many files: each file is released once, despite crashes."""

import contextlib
import copy
import fcntl
import hashlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from numbers import Integral
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

import joblib
import numpy as np
from joblib import Parallel, delayed, wrap_non_picklable_objects
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from skdpot import __version__
from skdpot._base import make_bar, warn_user
from skdpot.privacy import PrivacyLedger, Receipt
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.checks import check_count, names_of
from skdpot.privacy.events import event_to_json
from skdpot.privacy.noise import derive_key, make_source, source_of_key
from skdpot.sampling._base import BaseLocalSampler

# What is written over a key.
_ERASED = bytes(32)


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
    verbose=None,
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
        Files for the samples, ".npy", one for each source and in the same order. They must not
        exist.
    ledger : PrivacyLedger
        Is charged for every file before the first sample is drawn. Give it a `path`: the key beside
        it is needed to resume.
    client : callable, default=None
        Where the tasks run: ``client(function, tasks)`` returns the results of the function for all
        tasks, in any order, as the method ``map`` of an executor does. None uses joblib. Tasks hold
        keys of their files, so all that they pass must be trusted with users' data.
    n_jobs : int, default=None
        Number of worker processes, if joblib is used.
    n_samples : int, default=1
        Samples of each user.
    partition : str, default="files"
        Name of these files in the ledger. Later files need another name, and the same users are
        charged again.
    read : callable, default=None
        ``read(path)`` returns one row per user, as ``pandas.read_parquet`` does. None reads ".npy"
        (arrays) and ".npz" (sparse matrices of SciPy).
    verbose : bool, default=None
        Whether to show progress bars over files, one as they are checked and one as they are drawn.
        None shows them on a terminal after three seconds.

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
    >>> for k, source in enumerate(sources):
    ...     np.save(source, np.array([[8, 1, k, 0, 0], [0, 0, 1, 4, 5]]))
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
    # Everything that can be wrong with arguments is refused before a file is read.
    names, files = _check_files(sources, targets, read)
    quiet = copy.copy(sampler).set_params(ledger=None, random_state=None, verbose=0)
    facts = {
        "format": 2,
        "version": __version__,
        # A copy of the key beside another ledger would charge there what is drawn here.
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
    # Several releases may write to one folder: each removes the drafts of its own workers only.
    name = hashlib.sha256(f"{ledger.identity} {partition}".encode()).hexdigest()[:16]
    prefix = f".unfinished-{name}-"
    run = partial(_results, client, n_jobs, verbose)
    with _held_key(ledger.path, partition) as keys:
        is_new = not keys.claim
        # One mechanism draws all samples, also those of another call: another fit could have other
        # last digits.
        chosen = keys.claim.get("sampler") or _told(quiet, with_names=read is not None)
        work = partial(_work, type(sampler), chosen, read or _read_users, int(n_samples), prefix)
        if is_new:
            # A target that exists before the claim is somebody else's; later ones may be ours.
            there = [target for _, target in files if os.path.lexists(target)]
            if there:
                raise FileExistsError(
                    f"{there[0]} exists, and was not written by this call. Nothing was charged. "
                    "Move it away, or give another target. If it is from an interrupted call whose "
                    "key is lost, its users are charged again."
                )
            plan.price(ledger)
            tasks = [_task(keys, facts, number) for number in range(len(files))]
            # Workers report in any order, and a task may have run twice.
            found = dict(run(work, tasks, "files checked"))
            tokens, n_users, digests = zip(*map(found.get, range(len(files))), strict=True)
            claim = {"facts": facts, "sampler": chosen, "names": names}
            keys.write(claim | {"tokens": tokens, "n_users": n_users})
        _check_same_call(keys, facts)
        # The ledger has the paths as they were given first.
        names = keys.claim.get("names", names)
        token_of = dict(zip(names, keys.claim["tokens"], strict=True))
        try:
            receipts = plan.charge_parts_to(ledger, partition, token_of)
        except ValueError:
            # The charge was refused: the files may be tried again with other arguments.
            if is_new:
                keys.forget()
            raise
        try:
            if is_new:
                _warn_of_copies(names, digests)
            _finish(keys, facts, prefix, partial(run, work))
        except BaseException as error:
            error.add_note(
                "All files are charged. Call release_files again with the same arguments: it goes "
                "on where it stopped, and nothing is charged again."
            )
            raise
        each_file = zip(names, files, keys.claim["n_users"], strict=True)
        return [
            ReleasedFile(source, target, n_users, keys.results[number], receipts[name])
            for number, (name, (source, target), n_users) in enumerate(each_file)
        ]


def _check_same_call(keys: "KeyFile", facts: dict[str, Any]) -> None:
    """Raise if the key is of a call with other arguments."""
    # The noise follows from these facts; with others, the same key would draw two data sets.
    # A source may have moved: its users are known by their token.
    facts, earlier = (
        each | {"files": [target for _, target in each["files"]]}
        for each in (facts, keys.claim["facts"])
    )
    # Nothing is drawn any more without a key.
    names = [name for name in facts if name not in ("format", "version") or not keys.is_erased]
    differing = [name for name in names if facts[name] != earlier.get(name)]
    if differing:
        raise ValueError(
            f"partition {facts['partition']!r} is of an earlier call that differs in "
            f"{', '.join(differing)}. Pass the same arguments to resume it, or another partition."
        )


def _task(keys: "KeyFile", facts: dict[str, Any], number: int, **known: Any) -> "FileTask":
    source, target = facts["files"][number]
    # Users with equal numbers in two files have different noise, and different seeds.
    key, seed = derive_key(keys.key, number.to_bytes(8, "big")), facts["random_state"]
    if seed is not None:
        sequence = np.random.SeedSequence(seed, spawn_key=(number,))
        seed = int(sequence.generate_state(1)[0])
    return FileTask(number, source, target, key, seed, **known)


def _finish(keys: "KeyFile", facts: dict[str, Any], prefix: str, run: Callable) -> None:
    """Check the targets of files that are done, draw the others, and erase the key."""
    tasks = []
    for number, (_, target) in enumerate(facts["files"]):
        digest, is_there = keys.results.get(number), os.path.lexists(target)
        # Somebody may have edited a released file, or put another one in its place.
        if digest is not None and is_there and _digest_of(target) != digest:
            raise RuntimeError(f"{target} is not what was released: put the released file back.")
        # Without the key, other noise would be drawn: a second release of the same users.
        if keys.is_erased and not is_there:
            raise RuntimeError(f"{target} was released, and is gone: put it back.")
        if digest is None or not is_there:
            token = keys.claim["tokens"][number]
            tasks.append(_task(keys, facts, number, token=token, digest=digest))
    # Nothing is drawn any more, and there is nothing left to erase.
    if keys.is_erased:
        return
    folders = {os.path.dirname(target) for _, target in facts["files"]}
    for folder in folders:
        # Made here, as workers on other machines may race to make it.
        os.makedirs(folder, exist_ok=True)
    for number, digest in run(tasks, "files drawn"):
        keys.record(number, digest)
    for folder in folders:
        # What workers left that were killed.
        for draft in Path(folder).glob(f"{prefix}*"):
            draft.unlink(missing_ok=True)
    # Only now can no task be repeated any more.
    keys.finish()


def _results(
    client: Any, n_jobs: Any, verbose: bool | None, work: Any, tasks: list["FileTask"], title: str
) -> Iterator[Any]:
    """Return the results of all tasks, in any order, and show a progress bar as `verbose` says."""
    if client is None:
        found = Parallel(n_jobs, return_as="generator")(delayed(work)(task) for task in tasks)
    else:
        # Functions of scripts and notebooks reach other processes, too.
        found = client(wrap_non_picklable_objects(work, keep_wrapper=False), tasks)
    came = set()
    for number, result in make_bar(found, title, len(tasks), unit=" files", verbose=verbose):
        came.add(number)
        yield number, result
    if len(came) < len(tasks):
        raise RuntimeError(f"{len(tasks) - len(came)} results are missing: client must return all.")


def _plan(sampler: Any, ledger: PrivacyLedger, n_samples: Any) -> ReleasePlan:
    """Return the plan of the samples of each file, or raise."""
    if not isinstance(sampler, BaseLocalSampler):
        raise TypeError(f"sampler must be a local sampler, got an object of {type(sampler)}.")
    check_is_fitted(sampler)
    # The sampler's own ledger would not be charged, although the user expects it.
    if sampler.ledger is not None and sampler.ledger is not ledger:
        raise ValueError("the sampler has another ledger than the one given: leave it out there.")
    if not (sampler.random_state is None or isinstance(sampler.random_state, Integral)):
        raise ValueError("random_state of the sampler must be None or an integer.")
    samples = replace(sampler._fitted, n_samples=check_count("n_samples", n_samples))
    plan = sampler._plan_samples(samples, make_source(sampler.random_state))
    # Raises for a wrong relation or a seed before anything is read.
    plan.check(ledger)
    if not isinstance(ledger, PrivacyLedger):
        raise TypeError("ledger must be a PrivacyLedger. Create one with a path=, for the key.")
    return plan


def _check_files(sources: Any, targets: Any, read: Any) -> tuple[list[str], list[list[str]]]:
    """Return the names of sources, and the paths of all sources and targets, or raise."""
    for each in (sources, targets):
        if isinstance(each, str | os.PathLike):
            raise ValueError(f"sources and targets must be lists of files, got {each!r}.")
    names = [os.fspath(source) for source in sources]
    origins, places = ([os.path.abspath(path) for path in paths] for paths in (names, targets))
    # A source with two names would be released twice.
    paths = Counter(map(os.path.realpath, origins + places))
    if not names or len(names) != len(places) or len(paths) != 2 * len(names):
        twice = [path for path, times in paths.items() if times > 1][:3]
        raise ValueError(
            "sources and targets must be as many, at least one, and all different; got "
            f"{len(names)} sources and {len(places)} targets, more than once {twice or 'none'}."
        )
    # Before the key is made: a worker would fail after the charge.
    unknown = {Path(path).suffix for path in origins} - {".npy", ".npz"}
    if read is None and unknown:
        raise ValueError(f"for files that end with {min(unknown)!r}, pass a function as read.")
    if {Path(path).suffix for path in places} != {".npy"}:
        raise ValueError("samples are arrays of NumPy: targets must end with .npy.")
    return names, [list(pair) for pair in zip(origins, places, strict=True)]


@dataclass(frozen=True)
class FileTask:
    """A file of users, to be checked, or to be drawn if it has the token of a charge.

    Logs of workers do not show `key`, the secret key of files in this position; a `seed` is used
    instead of it. `digest` is that of the target, if it is known.
    """

    number: int
    source: str
    target: str
    key: bytes = field(repr=False)
    seed: int | None
    token: str = ""
    digest: str | None = None


def _told(sampler: Any, with_names: bool) -> str:
    """Return a fitted sampler as text, from which `_loaded` makes the same mechanism."""
    names = getattr(sampler, "feature_names_in_", None) if with_names else None
    # What was computed may have other last digits in another fit.
    fitted = {name: getattr(sampler, f"{name}_", None) for name in sampler.get_params(deep=False)}
    kept = ("order", "solver", "tol", "output", "n_jobs")
    parameters = {name: getattr(sampler, name) for name in kept if name in fitted}
    parameters |= {name: value for name, value in fitted.items() if value is not None}
    parameters["epsilon"] = sampler._fitted.draws.epsilon
    told = {"parameters": parameters, "n_features": sampler.n_features_in_, "names": names}
    return json.dumps(told, sort_keys=True, default=lambda array: array.tolist())


def _warn_of_copies(names: list[str], digests: Sequence[str]) -> None:
    """Warn of files with equal users, who may be the same people."""
    copies = [name for k, name in enumerate(names) if digests[k] in digests[:k]]
    if copies:
        warn_user(
            f"{', '.join(copies)}: exact copies of other files of this call. If they hold the same "
            "users, these are released more than once, and charged once: leave the copies out."
        )


def _work(
    kind: type, sampler: str, read: Any, n_samples: int, prefix: str, task: FileTask
) -> tuple:
    """Return a file's number, and its token, users and digest; or the digest of its samples.

    It runs anywhere, knows no ledger, and draws what was charged. `sampler` is the text of the
    fitted sampler, `kind` its class, and `prefix` is how the names of temporary files begin.
    """
    try:
        # One mechanism per process, however many files it draws.
        estimator = _loaded(kind, sampler)
        rows = read(task.source)
        names = [name for name in names_of(rows, "columns") if isinstance(name, str)]
        known = getattr(estimator, "feature_names_in_", map(str, range(len(names))))
        are_numbers = all(re.fullmatch(r"-?\d[\d.e+-]*", name) for name in names)
        if names and are_numbers and names != list(known):
            raise ValueError(
                "all names of its columns are numbers, and not those of the fit. If its first row "
                "was read as names, read it with header=None."
            )
        users = estimator._read_users(rows)
        # The key depends on all that samples depend on. What is digested here is what is drawn,
        # whatever happens to the file meanwhile.
        # The threshold of directions follows from the parameters, up to its last digits.
        text = f"{sampler} {getattr(estimator, 'threshold_', None)!r}"
        facts = (hashlib.sha256(text.encode()).digest(), n_samples.to_bytes(8, "big"))
        digest = _digest_of_users(users)
        key = derive_key(task.key, *facts, digest)
        # The ledger shows tokens; they tell nothing about the key or the users.
        token = derive_key(key, b"token").hex()[:32]
        if not task.token:
            return task.number, (token, users.shape[0], digest.hex())
        if token != task.token:
            raise RuntimeError("the file has changed since it was charged; put the old one back.")
        source = source_of_key(key) if task.seed is None else make_source(task.seed)
        samples = replace(estimator._fitted, n_samples=n_samples)
        drawn = estimator._release(estimator._plan_samples(samples, source), users)
        # Two workers may draw one file at the same time: each has a draft of its own.
        unique = f"{prefix}{task.number}-{secrets.token_hex(8)}.npy"
        draft = os.path.join(os.path.dirname(task.target), unique)
        with open(draft, "xb") as file:
            np.save(file, drawn)
            # Before it has the target's name, which a crash could otherwise give to half a file.
            _sync(file)
        return task.number, _settle(draft, task)
    except Exception as error:
        if isinstance(error, OSError) and prefix in str(error.filename):
            error.filename = task.target
        error.add_note(f"The file is {task.source}.")
        raise


@lru_cache(maxsize=8)
def _loaded(kind: type, text: str) -> Any:
    """Return the fitted sampler of a text; nothing in it is executed."""
    told = json.loads(text)
    sampler = kind(**told["parameters"]).fit(np.ones((1, told["n_features"])))
    if told["names"] is not None:
        sampler.feature_names_in_ = np.array(told["names"], dtype=object)
    return sampler


def _settle(draft: str, task: FileTask) -> str:
    """Give samples the name of their target, unless it has the same content by now."""
    digest = _digest_of(draft)
    if digest != (task.digest or digest):
        raise RuntimeError(
            f"{task.target} was released with other bytes than those that were drawn now, perhaps "
            "with other versions of libraries. Put the released file back."
        )
    try:
        # Unlike a rename, a link never replaces a file.
        os.link(draft, task.target)
    except OSError:
        if not os.path.lexists(task.target):
            # Some file systems have no links.
            os.rename(draft, task.target)
        elif _digest_of(task.target) != digest:
            raise FileExistsError(
                f"{task.target} was written by somebody else meanwhile: move it away."
            ) from None
    Path(draft).unlink(missing_ok=True)
    _sync_folder(task.target)
    return digest


def _digest_of(path: str) -> str:
    """Return the SHA-256 digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_users(users: Any) -> bytes:
    """Return the SHA-256 digest of checked users, dense or CSR: of every bit of their numbers."""
    # Columns of sparse rows may be of 32 or 64 bits, for the same users.
    arrays = [users]
    if sparse.issparse(users):
        arrays = [users.indptr.astype(np.int64), users.indices.astype(np.int64), users.data]
    # Shapes first: arrays of other shapes may have the same bytes.
    digest = hashlib.sha256(repr([array.shape for array in arrays]).encode())
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()


def _sync(file: BinaryIO) -> None:
    """Make an open file durable."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    """Make the name of a file durable, if its file system supports that."""
    with contextlib.suppress(OSError):
        handle = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class KeyFile:
    """A key, the claim under it, and results of files, each in a line of a file.

    The key and the claim are on disk before anything is charged. Results may get lost: then they
    are computed again, and are the same. When all results are on disk, the key is erased.

    Parameters
    ----------
    file : binary file
        The file.

    Attributes
    ----------
    key : bytes
        The secret key, a new one if nothing is claimed.
    claim : dict
        What is drawn with the key; empty if nothing is claimed.
    results : dict of int to str
        Digests of the targets of files that are done, by the numbers of the files.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.claim: dict[str, Any] = {}
        self.results: dict[int, str] = {}
        content = file.read()
        # The key is of fixed width, so that zeros can be written over it in place.
        written = bytes.fromhex(content[:64].decode())
        # What comes after the last end of a line was cut off. A claim that was is not charged.
        lines = content.split(b"\n")[1:-1]
        self.key = written if lines else secrets.token_bytes(32)
        if lines:
            self.claim = json.loads(lines[0])
            if not (isinstance(self.claim, dict) and {"facts", "tokens"} <= self.claim.keys()):
                raise ValueError("its claim is damaged")
        for line in lines[1:]:
            # A line that was cut off is of a file that is then drawn again, with the same noise.
            with contextlib.suppress(ValueError):
                number, self.results[number] = json.loads(line)

    @property
    def is_erased(self) -> bool:
        """Tell whether all is done."""
        return self.key == _ERASED

    def write(self, claim: dict[str, Any]) -> None:
        """Write the key and a claim."""
        self.claim = claim
        self.forget()
        self._file.write(f"{self.key.hex()}\n{json.dumps(claim)}\n".encode())
        _sync(self._file)
        _sync_folder(self._file.name)

    def forget(self) -> None:
        """Remove a claim that was not charged, and its key."""
        self._file.truncate(0)
        self._file.seek(0)

    def record(self, number: int, digest: str) -> None:
        """Add the result of a file."""
        self.results[number] = digest
        # A line that was cut off does not spoil this one.
        self._file.write(f"\n{json.dumps([number, digest])}\n".encode())
        self._file.flush()

    def finish(self) -> None:
        """Write zeros over the key, once the results are on disk."""
        _sync(self._file)
        # In place: a new file would leave the old blocks, which hold the key.
        os.pwrite(self._file.fileno(), _ERASED.hex().encode(), 0)
        _sync(self._file)


@contextlib.contextmanager
def _held_key(ledger_path: Path, partition: str) -> Iterator[KeyFile]:
    """Hold the key of a partition, beside the ledger, which one process at a time can do."""
    # The lock is on the key's file, so two names of a ledger must lead to one.
    # Whatever links lead to the ledger, it has one key.
    ledger = os.path.realpath(ledger_path)
    # The name of a partition may hold characters that a file name cannot.
    path = f"{ledger}.{quote(partition, safe='')}.key"
    with contextlib.ExitStack() as stack:
        try:
            file: Any = stack.enter_context(open(path, "r+b", opener=_open_key))
            # Two callers would both find no claim, and make two keys.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            keys = KeyFile(file)
        except BlockingIOError:
            raise RuntimeError(
                f"another process is releasing these files, and holds {path}: let it finish, or "
                "end it and its workers. Nothing was done."
            ) from None
        except (OSError, ValueError) as error:
            raise RuntimeError(
                f"cannot use the key at {path}: {error}. It must be a file of this account, no "
                "link, and not damaged. If it is lost, remove it: then all of its files are "
                "charged again. Nothing was done."
            ) from error
        # Processes that were forked meanwhile have the file open, too.
        stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield keys


def _open_key(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    # A copy from a backup may have lost its mode.
    os.fchmod(handle, 0o600)
    return handle


def _read_users(path: str) -> Any:
    return sparse.load_npz(path) if path.endswith(".npz") else np.load(path, allow_pickle=False)
