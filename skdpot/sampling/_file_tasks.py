"""The tasks of workers for a release of files: they know no ledger, and commit nothing."""

import contextlib
import copy
import hashlib
import os
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from joblib import wrap_non_picklable_objects

from skdpot.sampling._file_formats import read_users, write_samples

# Number of files that are synchronised at a time.
_SYNCED_AT_ONCE = 32


@dataclass(frozen=True)
class Work:
    """The work on every file.

    Attributes
    ----------
    sampler : BaseLocalSampler
        Fitted, and without a ledger.
    n_samples : int
        Samples of each user.
    read, write : callable or None
        ``read(path)`` returns users and ``write(samples, path)`` writes their samples; None for
        the formats that are known.
    """

    sampler: Any
    n_samples: int
    read: Callable[[str], Any] | None
    write: Callable[[Any, str], Any] | None

    def users_of(self, source: str) -> Any:
        """Return the data of the users in a file."""
        if self.read is not None:
            return self.read(source)
        names = getattr(self.sampler, "feature_names_in_", None)
        return read_users(source, self.sampler.n_features_in_, names)

    def sampler_for(self, seed: int | None) -> Any:
        """Return a sampler for one file."""
        sampler = copy.copy(self.sampler).set_params(random_state=seed)
        if self.read is None:
            # The columns were chosen by their names, which arrays do not have.
            vars(sampler).pop("feature_names_in_", None)
        return sampler


class Parcel(NamedTuple):
    """Work in a file, which workers open once, so that tasks need not carry it.

    Attributes
    ----------
    path : str
        The path of the file.
    digest : str
        The digest of its content.
    """

    path: str
    digest: str


class InspectTask(NamedTuple):
    """A file to be read and checked before anything is charged."""

    number: int
    source: str
    parcel: Parcel


class Inspected(NamedTuple):
    """The facts about a file that can be released."""

    number: int
    n_users: int
    source_digest: str


class DrawTask(NamedTuple):
    """A file whose samples are to be drawn, and written to a new name in a folder."""

    number: int
    source: str
    source_digest: str
    folder: str
    suffix: str
    seed: int | None
    parcel: Parcel


class Drawn(NamedTuple):
    """Drawn samples that are not committed yet."""

    number: int
    temporary: str
    digest: str


def pickled(value: Any) -> bytes:
    """Return a pickle that includes the functions of scripts and notebooks."""
    return pickle.dumps(wrap_non_picklable_objects(value, keep_wrapper=False))


def pack(work: Work, folder: str) -> Parcel:
    """Write work to a file of a folder."""
    content = pickled(work)
    path = os.path.join(folder, f"work-{secrets.token_hex(8)}")
    Path(path).write_bytes(content)
    return Parcel(path, hashlib.sha256(content).hexdigest())


@lru_cache(maxsize=4)
def _unpack(parcel: Parcel) -> Work:
    content = Path(parcel.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != parcel.digest:
        raise RuntimeError(f"{parcel.path} is not what was written to it: nothing was drawn.")
    work: Work = pickle.loads(content)
    return work


def digest_of(path: str) -> str:
    """Return the SHA-256 digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: str) -> None:
    """Make a file durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Sequence[str]) -> None:
    """Make files durable.

    Files that are synced together share the commits of the file system, each of which takes as long
    as one file alone.
    """
    with ThreadPoolExecutor(min(len(paths), _SYNCED_AT_ONCE)) as pool:
        # list() raises the first error.
        list(pool.map(sync, paths))


def sync_folders(paths: Iterable[str]) -> None:
    """Make the names in the folders of files durable, if file systems support that."""
    for folder in sorted(set(map(os.path.dirname, paths))):
        with contextlib.suppress(OSError):
            sync(folder)


@contextlib.contextmanager
def _naming_file(source: str) -> Iterator[None]:
    """Add the name of a file to an error about it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The file is {source}.")
        raise


def inspect(task: InspectTask) -> Inspected:
    """Read and check the users of a file; nothing is drawn."""
    work = _unpack(task.parcel)
    with _naming_file(task.source):
        users = work.sampler_for(None)._read_users(work.users_of(task.source))
    return Inspected(task.number, users.shape[0], digest_of(task.source))


def draw(tasks: Sequence[DrawTask]) -> list[Drawn]:
    """Draw the samples of the users of some files, and write them to new unique names."""
    drawn = [_draw(task) for task in tasks]
    temporaries = [file.temporary for file in drawn]
    sync_all(temporaries)
    sync_folders(temporaries)
    return drawn


def _draw(task: DrawTask) -> Drawn:
    """Draw the samples of one file, which may not be durable yet."""
    work = _unpack(task.parcel)
    with _naming_file(task.source):
        users = work.users_of(task.source)
        if digest_of(task.source) != task.source_digest:
            raise RuntimeError("the file has changed since it was claimed; put the old one back.")
        samples = work.sampler_for(task.seed).sample(users, work.n_samples)
    name = f"{task.number}-{secrets.token_hex(8)}{task.suffix}"
    temporary = os.path.join(task.folder, name)
    (work.write or write_samples)(samples, temporary)
    return Drawn(task.number, temporary, digest_of(temporary))
