"""The tasks that workers do for a release of files: they know no ledger, and commit nothing."""

import contextlib
import copy
import hashlib
import os
import pickle
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from joblib import wrap_non_picklable_objects

from skdpot.sampling._file_formats import read_users, write_samples


@dataclass(frozen=True)
class Work:
    """What is done with every file.

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
        """Return what the users of a file hold."""
        if self.read is not None:
            return self.read(source)
        names = getattr(self.sampler, "feature_names_in_", None)
        return read_users(source, self.sampler.n_features_in_, names)

    def sampler_for(self, seed: int | None) -> Any:
        """Return a sampler for one file."""
        sampler = copy.copy(self.sampler).set_params(random_state=seed)
        if self.read is None:
            # Columns were chosen by their names, and arrays have none.
            vars(sampler).pop("feature_names_in_", None)
        return sampler


class Parcel(NamedTuple):
    """Work in a file, which workers open once instead of being sent it with every task.

    Attributes
    ----------
    path : str
        Of the file.
    digest : str
        What it holds.
    """

    path: str
    digest: str


class InspectTask(NamedTuple):
    """A file that is to be read and checked before anything is charged."""

    number: int
    source: str
    parcel: Parcel


class Inspected(NamedTuple):
    """What is known of a file that can be released."""

    number: int
    n_users: int
    source_digest: str


class DrawTask(NamedTuple):
    """A file of which samples are to be drawn; they are written to a new name in a folder."""

    number: int
    source: str
    source_digest: str
    folder: str
    suffix: str
    seed: int | None
    parcel: Parcel


class Drawn(NamedTuple):
    """Samples that were drawn, and that nobody has committed."""

    number: int
    temporary: str
    digest: str


def pickled(value: Any) -> bytes:
    """Return a pickle, in which functions of scripts and notebooks go along."""
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
    """Wait until a file is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: str) -> None:
    """Wait until the names in a folder are on disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        sync(path)


@contextlib.contextmanager
def _naming(source: str) -> Iterator[None]:
    """Add the name of a file to what is wrong with it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"The file is {source}.")
        raise


def inspect(task: InspectTask) -> Inspected:
    """Read and check the users of a file, of which nothing is drawn."""
    work = _unpack(task.parcel)
    with _naming(task.source):
        users = work.sampler_for(None)._read_users(work.users_of(task.source))
    return Inspected(task.number, users.shape[0], digest_of(task.source))


def draw(task: DrawTask) -> Drawn:
    """Draw the samples of a file's users, and write them to a name that no other task has."""
    work = _unpack(task.parcel)
    with _naming(task.source):
        users = work.users_of(task.source)
        if digest_of(task.source) != task.source_digest:
            raise RuntimeError("the file has changed since it was claimed; put the old one back.")
        samples = work.sampler_for(task.seed).sample(users, work.n_samples)
    name = f"{task.number}-{secrets.token_hex(8)}{task.suffix}"
    temporary = os.path.join(task.folder, name)
    (work.write or write_samples)(samples, temporary)
    sync(temporary)
    sync_folder(task.folder)
    return Drawn(task.number, temporary, digest_of(temporary))
