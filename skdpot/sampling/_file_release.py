"""The steps of a release of files; a later call completes each, or finds it complete."""

import contextlib
import glob
import hashlib
import os
import pickle
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from skdpot._progress import plain_bar
from skdpot.privacy import PrivacyLedger, Receipt
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import event_to_json
from skdpot.sampling._file_journal import Claim, FileJournal, Recorded, check_all_came, journal_of
from skdpot.sampling._file_tasks import (
    Drawn,
    DrawTask,
    InspectTask,
    Parcel,
    Work,
    digest_of,
    draw,
    inspect,
    pack,
    pickled,
    sync,
    sync_folders,
)

# Maximum number of files of a task, and of users, unless one file has more. The files of a task
# share the costs of writing to a disk.
_MOST_FILES = 64
_MOST_USERS = 5000
# Seconds after which a progress bar appears.
_PATIENCE = 3.0


class Files(NamedTuple):
    """The files to be released, in order.

    Attributes
    ----------
    names : list of str
        Sources, as they were given.
    sources, targets : list of str
        Absolute paths.
    """

    names: list[str]
    sources: list[str]
    targets: list[str]


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


class FilesRelease:
    """One release of files, from the claim in the journal to the last target.

    Parameters
    ----------
    journal : FileJournal
        Held by this process alone.
    files : Files
        The files to be released.
    work : Work
        The work on each file.
    random_state : int or None
        Determines the seeds of files.
    ledger : PrivacyLedger
        The ledger to be charged.
    partition : str
        Name of the files in the ledger.
    run : callable
        ``run(function, tasks)`` returns the results of tasks, in any order.
    is_watched : bool
        Whether progress bars are shown.
    """

    def __init__(
        self,
        journal: FileJournal,
        files: Files,
        work: Work,
        random_state: Any,
        ledger: PrivacyLedger,
        partition: str,
        run: Callable[[Any, Iterator[Any]], Iterator[Any]],
        is_watched: bool,
    ) -> None:
        self._journal, self._files, self._work, self._run = journal, files, work, run
        self._seed = None if random_state is None else int(random_state)
        self._ledger, self._partition, self._is_watched = ledger, partition, is_watched
        key = hashlib.sha256(f"{ledger.identity} {partition}".encode()).hexdigest()[:16]
        self._prefix = f".unfinished-{key}-"
        self._unfinished = self._prefix + secrets.token_hex(8)
        self._is_new = False
        # A backup of the journal has not what lies beside the anchor.
        self._calls = journal_of(ledger.anchor_path or ledger.path, partition, "calls")

    def claim(self, plan: ReleasePlan) -> None:
        """Check all files and record the claim, unless an earlier call has."""
        event: Any = plan.event
        facts = {
            "ledger": self._ledger.identity,
            "sampler": plan.label,
            # Fitted numbers may differ in their last digits on another machine.
            "parameters": joblib.hash(self._work.sampler.get_params() | {"n_jobs": None}),
            "event": event_to_json(event),
            "n_samples": self._work.n_samples,
            "random_state": self._seed,
        }
        earlier_call = self._journal.call()
        if earlier_call is not None:
            self._check_same_call(facts, earlier_call[0])
            if self._n_calls() > self._journal.n_calls:
                raise RuntimeError(
                    f"the journal {self._journal.path} is an old one, from a backup: users would "
                    "be drawn again whose samples have left. Nothing was drawn. Put the newest "
                    "one back; or pass another name as partition, which is charged."
                )
            self._count_call()
            # One mechanism draws all samples: another machine could prepare it with other last
            # digits.
            self._work = replace(self._work, sampler=pickle.loads(earlier_call[1]))
            return
        _refuse_targets(zip(self._files.sources, self._files.targets, strict=True))
        plan.price(self._ledger)
        self._clean()
        sampler, n_files = pickled(self._work.sampler), len(self._files.sources)
        self._journal.claim(facts, sampler, self._inspected(), n_files)
        self._count_call()
        self._is_new = True

    def _n_calls(self) -> int:
        """Return how many calls began or ended, as the file says that no backup brings back."""
        return int(Path(self._calls).read_text()) if os.path.exists(self._calls) else 0

    def _count_call(self) -> None:
        """Count the beginning or the end of a call: in the journal first, which may be ahead."""
        count, draft = self._journal.count_call(self._n_calls()), f"{self._calls}.new"
        with open(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(str(count))
        sync(draft)
        os.replace(draft, self._calls)
        sync_folders([self._calls])

    def _check_same_call(self, facts: dict[str, Any], earlier_facts: dict[str, Any]) -> None:
        differing = [name for name in facts if facts[name] != earlier_facts[name]]
        claimed = ((claim.source, claim.target) for claim in self._journal.claims())
        pairs = zip(self._files.sources, self._files.targets, strict=True)
        if any(ours != theirs for ours, theirs in zip_longest(pairs, claimed)):
            differing.append("files")
        if differing:
            raise ValueError(
                f"partition {self._partition!r} of this ledger is of an earlier call that differs "
                f"in {', '.join(differing)}. To resume that one, pass the same arguments; for "
                "another release, pass another name as partition."
            )

    def _inspected(self) -> Iterator[Claim]:
        sources, targets = self._files.sources, self._files.targets
        parcel = self._parcel()
        tasks = (InspectTask(number, source, parcel) for number, source in enumerate(sources))
        results = self._run(inspect, tasks)
        for inspected in self._with_progress(results, "files checked", len(sources)):
            token = secrets.token_hex(16)
            place = sources[inspected.number], targets[inspected.number]
            yield Claim(inspected.number, *place, token, inspected.n_users, inspected.source_digest)

    def pay(self, plan: ReleasePlan) -> dict[str, Receipt]:
        """Charge all files that no earlier call has charged: all at once, or none."""
        tokens = {self._files.names[claim.number]: claim.token for claim in self._journal.claims()}
        try:
            return plan.charge_parts_to(self._ledger, self._partition, tokens)
        except ValueError:
            # The charge was refused: the files may be tried again with other arguments.
            if self._is_new:
                self._journal.give_up()
            raise

    def finish(self) -> None:
        """Complete and check recorded results; draw and commit the others."""
        for result in self._with_progress(self._journal.recorded(), "files that were done"):
            _settle(result)
        # The names given by an earlier call may not be on disk yet, and its temporary files are
        # removed.
        sync_folders(self._files.targets)
        _refuse_targets(claim[1:3] for claim in self._journal.claims(unfinished=True))
        self._clean()
        for _ in self._with_progress(self._committed(), "files", self._journal.count_unfinished()):
            pass
        check_all_came(self._journal.count_unfinished())
        self._count_call()
        self._clean()

    def _draw_tasks(self) -> Iterator[list[DrawTask]]:
        parcel = None
        for claims in _batches(self._journal.claims(unfinished=True)):
            parcel = parcel or self._parcel()
            yield [
                DrawTask(
                    claim.number,
                    claim.source,
                    claim.source_digest,
                    self._folder_for(claim.target),
                    os.path.splitext(claim.target)[1],
                    self._seed_of(claim.number),
                    parcel,
                )
                for claim in claims
            ]

    def _seed_of(self, number: int) -> int | None:
        """Return the seed of one file, which depends on its position only."""
        if self._seed is None:
            return None
        return int(np.random.SeedSequence(self._seed, spawn_key=(number,)).generate_state(1)[0])

    def _parcel(self) -> Parcel:
        return pack(self._work, self._folder_for(self._files.targets[0]))

    def _folder_for(self, target: str) -> str:
        """Return this call's folder for temporary files, on the file system of a target."""
        folder = os.path.join(os.path.dirname(target), self._unfinished)
        if not os.path.isdir(folder):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            sync_folders([folder])
        return folder

    def _committed(self) -> Iterator[Drawn]:
        """Record results as those of their files, as they come, unless the files have one."""
        for drawn in self._run(draw, self._draw_tasks()):
            counting = self._journal.record(drawn)
            targets = self._files.targets
            _move([(o.temporary, targets[o.number]) for o in drawn if o.number in counting])
            _remove(file.temporary for file in drawn)
            yield from drawn

    def _clean(self) -> None:
        """Remove all temporary files, also those of running tasks, which then fail."""
        for parent in dict.fromkeys(map(os.path.dirname, self._files.targets)):
            for folder in glob.glob(os.path.join(glob.escape(parent), f"{self._prefix}*")):
                # Renamed first, so that nobody can create a file in it any more.
                gone = os.path.join(parent, self._prefix + secrets.token_hex(8))
                os.rename(folder, gone)
                shutil.rmtree(gone)

    def report(self, receipts: dict[str, Receipt]) -> list[ReleasedFile]:
        """Return the released files, in order."""
        return [
            ReleasedFile(source, target, result.n_users, result.digest, receipts[name])
            for name, source, target, result in zip(
                *self._files, self._journal.recorded(), strict=True
            )
        ]

    def _with_progress(
        self, results: Iterable[Any], title: str, total: int | None = None
    ) -> Iterator[Any]:
        hidden = not self._is_watched
        yield from plain_bar(results, title, total, unit="file", delay=_PATIENCE, disable=hidden)


def _refuse_targets(files: Iterable[tuple[str, str]]) -> None:
    """Raise if a target exists that is not from this release."""
    for source, target in files:
        if os.path.lexists(target):
            raise FileExistsError(
                f"{target} exists, and the journal does not know it as the samples of {source}: "
                "another release wrote it. Nothing was drawn; move it away, or give another target."
            )


def _settle(result: Recorded) -> None:
    """Complete the commit of a recorded result, or check that it is complete."""
    for path in (result.target, result.temporary):
        if os.path.lexists(path):
            if digest_of(path) != result.digest:
                raise RuntimeError(
                    f"{path} is not what was released for {result.target}: its digest is another. "
                    "Put the released file back; its users are not drawn again."
                )
            if path == result.temporary:
                _move([(path, result.target)])
                _remove([path])
            return
    raise RuntimeError(
        f"{result.target} was released, and is gone. Put it back; its users are not drawn again."
    )


def _batches(claims: Iterable[Claim]) -> Iterator[list[Claim]]:
    """Return claims in lists, one per task."""
    batch: list[Claim] = []
    n_users = 0
    for claim in claims:
        n_users += claim.n_users
        if batch and (len(batch) == _MOST_FILES or n_users > _MOST_USERS):
            yield batch
            batch, n_users = [], claim.n_users
        batch.append(claim)
    if batch:
        yield batch


def _move(files: Sequence[tuple[str, str]]) -> None:
    """Rename files to final names that are free; the new names are durable afterwards."""
    for temporary, target in files:
        _name(temporary, target)
    sync_folders(target for _, target in files)


def _name(temporary: str, target: str) -> None:
    try:
        # Unlike a rename, a link never replaces a file.
        os.link(temporary, target)
    except FileExistsError:
        raise FileExistsError(f"{target} was written by somebody else meanwhile.") from None
    except OSError:
        # Some file systems have no links.
        _refuse_targets([(temporary, target)])
        os.rename(temporary, target)


def _remove(paths: Iterable[str]) -> None:
    """Remove files that exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
