"""The tasks of workers for a release of files: they know no ledger, and draw what was charged."""

import contextlib
import hashlib
import os
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import wrap_non_picklable_objects
from scipy import sparse

from skdpot.privacy.random import KeyedSource, derive_key, make_source
from skdpot.sampling._base import UserSamples

# Number of files that are synchronised at a time.
_SYNCED_AT_ONCE = 32


@dataclass(frozen=True)
class Task:
    """A file of users, to be checked or drawn.

    Attributes
    ----------
    number : int
        Its position among the sources.
    source, target : str
        Absolute paths.
    key : bytes
        The secret key of files in this position. Logs of workers do not show it.
    seed : int or None
        A seed that is used instead of the key.
    token : str
        The token under which its samples were charged.
    digest : str or None
        The digest of its target, if that is known.
    """

    number: int
    source: str
    target: str
    key: bytes = field(repr=False)
    seed: int | None
    token: str = ""
    digest: str | None = None


def pickled(value: Any) -> bytes:
    """Return a pickle that includes the functions of scripts and notebooks."""
    return pickle.dumps(wrap_non_picklable_objects(value, keep_wrapper=False))


@lru_cache(maxsize=8)
def _loaded(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def digest_of(path: str) -> str:
    """Return the SHA-256 digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of_users(users: Any) -> bytes:
    """Return the SHA-256 digest of checked users, dense or CSR: of every bit of their numbers."""
    arrays = [np.asarray(users)]
    if sparse.issparse(users):
        arrays = [np.asarray(each, np.int64) for each in (users.indptr, users.indices)]
        arrays.append(users.data)
    digest = hashlib.sha256(repr([array.shape for array in arrays]).encode())
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()


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


def _read(sampler: bytes, n_samples: int, read: Any, task: Task) -> tuple[Any, bytes]:
    """Return the checked users of a file, and the key of their noise."""
    users = _loaded(sampler)._read_users(read(task.source))
    # The key depends on all that samples depend on. What is digested here is what is drawn,
    # whatever happens to the file meanwhile.
    what = hashlib.sha256(sampler).digest(), n_samples.to_bytes(8, "big"), _digest_of_users(users)
    return users, derive_key(task.key, *what)


def _token_of(key: bytes) -> str:
    """Return the public token of what is drawn with a key."""
    return derive_key(key, b"token").hex()[:32]


def inspect(
    sampler: bytes, n_samples: int, functions: bytes, tasks: Sequence[Task]
) -> list[tuple[int, tuple[str, int]]]:
    """Read and check users of some files; return the files' numbers, tokens and sizes.

    `sampler` is the pickle of the fitted sampler, `functions` that of ``read`` and ``write``.
    """
    found = []
    for task in tasks:
        with _naming_file(task.source):
            users, key = _read(sampler, n_samples, _loaded(functions)[0], task)
        found.append((task.number, (_token_of(key), users.shape[0])))
    return found


def draw(
    sampler: bytes, n_samples: int, functions: bytes, prefix: str, tasks: Sequence[Task]
) -> list[tuple[int, str]]:
    """Draw the samples of the users of some files; return their numbers, and digests of targets.

    `prefix` is how the names of temporary files begin.
    """
    read, write = _loaded(functions)
    drafts = [_draw(sampler, n_samples, read, write, prefix, task) for task in tasks]
    sync_all(drafts)
    digests = [_settle(draft, task) for draft, task in zip(drafts, tasks, strict=True)]
    sync_folders(task.target for task in tasks)
    return digests


def _draw(sampler: bytes, n_samples: int, read: Any, write: Any, prefix: str, task: Task) -> str:
    """Write the samples of a file under a temporary name, which may not be durable yet."""
    with _naming_file(task.source):
        users, key = _read(sampler, n_samples, read, task)
        if _token_of(key) != task.token:
            raise RuntimeError("the file has changed since it was charged; put the old one back.")
        source = KeyedSource(key) if task.seed is None else make_source(task.seed)
        estimator = _loaded(sampler)
        chunks = estimator._plan_chunks(users.shape[0], n_samples)
        samples = UserSamples(estimator._fitted, n_samples, chunks)
        drawn = estimator._release(estimator._plan_samples(samples, source), users)
    folder, name = os.path.split(task.target)
    unique = f"{prefix}{task.number}-{secrets.token_hex(8)}{os.path.splitext(name)[1]}"
    write(drawn, draft := os.path.join(folder, unique))
    return draft


def _settle(draft: str, task: Task) -> tuple[int, str]:
    """Give samples the name of their target, unless it has the same content by now."""
    digest = digest_of(draft)
    if digest != (task.digest or digest):
        raise RuntimeError(
            f"{task.target} was released with other bytes than those that were drawn now: write "
            "must write the same samples as the same bytes, with the same versions of libraries. "
            "Put the released file back."
        )
    try:
        # Unlike a rename, a link never replaces a file.
        os.link(draft, task.target)
    except OSError:
        if not os.path.lexists(task.target):
            # Some file systems have no links.
            os.rename(draft, task.target)
        elif digest_of(task.target) != digest:
            raise FileExistsError(
                f"{task.target} was written by somebody else meanwhile: move it away."
            ) from None
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)
    return task.number, digest
