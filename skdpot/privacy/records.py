"""The records of a ledger: errors, the chain in its file, and what charges add up to."""

import contextlib
import copy
import glob
import hashlib
import heapq
import hmac
import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from skdpot.privacy.accounting import RELATIONS
from skdpot.privacy.checks import check_choice, check_flag, check_probability, draft_of, real_number
from skdpot.privacy.events import DpEvent
from skdpot.privacy.filters import MixtureFilter, Pair, PairFilter, Total, charged


class BudgetExceededError(ValueError):
    """Error: the budget does not allow a charge. Nothing is recorded and nothing is released.

    Parameters
    ----------
    message : str
        The full message.
    asked, spent, left : tuple of two float
        Pairs (epsilon, delta): of the charge, of the earlier releases, and of the remaining
        budget.
    """

    def __init__(self, message: str, asked: Pair, spent: Pair, left: Pair) -> None:
        # All go into args, from which pickles of workers restore the error.
        super().__init__(message, asked, spent, left)
        self.asked, self.spent, self.left = asked, spent, left

    def __str__(self) -> str:
        return str(self.args[0])


class LedgerError(RuntimeError):
    """The ledger's file cannot be used, and nothing may be released.

    Nothing was charged, unless the message says that a charge is recorded.
    """


class LedgerTamperedError(LedgerError):
    """The ledger's file differs from what was written to it."""


# The file of a ledger: a chain of records in SQLite, with one writer at a time.
#
# Every operation opens the file, and closes it again. So no connection is carried into another
# thread, a forked process or a pickle, and at rest the ledger is a single file.

# SQLite has locks of its own. A process that is forked while another thread holds one of them would
# wait for it for ever. So one thread at a time uses SQLite, and forks wait for it. The history of a
# ledger, which its parts and copies share, changes under this lock as well.
one_at_a_time = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=one_at_a_time.acquire,
        after_in_parent=one_at_a_time.release,
        after_in_child=one_at_a_time.release,
    )

_APPLICATION_ID = 0x736B6470
# Seconds that a writer waits for others.
_PATIENCE = 120.0


class Record(NamedTuple):
    """A record as it is in the file, and its place in the chain."""

    number: int
    body: str
    digest: str


# Before the first record.
ORIGIN = Record(-1, "", "")


class Chain:
    """Records in a file, each with a digest of itself and all before it.

    Parameters
    ----------
    path : Path
        The file.
    key : bytes or None
        Secret without which no digest can be made; None makes digests that show accidents and
        careless hands, and that anyone can make anew.
    """

    def __init__(self, path: Path, key: bytes | None) -> None:
        self.path, self.key = path, key

    def create(self, body: dict[str, Any]) -> None:
        """Create the file with a first record, atomically, unless it exists by now."""
        schema = f"""
            PRAGMA application_id = {_APPLICATION_ID};
            PRAGMA journal_mode = WAL;
            CREATE TABLE records (
                number INTEGER PRIMARY KEY CHECK (number >= 0),
                body TEXT NOT NULL,
                digest TEXT NOT NULL
            );
            CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
                BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
            CREATE TRIGGER records_are_not_deleted BEFORE DELETE ON records
                BEGIN SELECT RAISE(ABORT, 'a ledger is only ever appended to'); END;
        """
        # Of several creators the first one wins.
        with contextlib.suppress(FileExistsError), self._new_file(self.path) as file:
            file.executescript(schema)
            file.executemany("INSERT INTO records VALUES (?, ?, ?)", self.after(ORIGIN, [body]))
            file.commit()

    @contextlib.contextmanager
    def _new_file(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Give a new database, which has its name when the block ends, unless there is a file."""
        # A file that appears is complete: a process that is killed leaves a draft at most.
        with _explaining_errors(path), draft_of(path, linked=True) as draft, one_at_a_time:
            # Only its owner can read it, from the first moment on. SQLite gives the same mode
            # to its files beside it. If the file does not exist then, SQLite says why.
            with contextlib.suppress(OSError):
                os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            new = sqlite3.connect(f"{draft.absolute().as_uri()}?mode=rw", uri=True)
            with contextlib.closing(new) as file:
                yield file

    def read(self, after: Record = ORIGIN) -> list[Record]:
        """Return the records after another one, checked to follow it."""
        with self._open() as file:
            return self._follow(file, after)

    @contextlib.contextmanager
    def appending(
        self, after: Record, pending: bool = False, done: int | None = None
    ) -> Iterator[tuple[list[Record], list[Record]]]:
        """Keep all other writers out; give what is new after a record, and a list to append.

        The records in that list are on disk when the block ends. If anything raises before, none
        is. If `pending`, they are of releases that are not made yet; that of the record `done` is.
        """
        # A process that is forked in here must not write through its parent's connection.
        process, deadline = os.getpid(), time.monotonic() + _PATIENCE
        with self._open() as file:
            while not file.in_transaction:
                try:
                    # The lock of writers, before anything is read: no charge is decided by totals
                    # that are out of date. Readers are not blocked.
                    file.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error) or time.monotonic() > deadline:
                        raise
            records: list[Record] = []
            yield self._follow(file, after), records
            file.executemany("INSERT INTO records VALUES (?, ?, ?)", records)
            if pending:
                # Beside the chain, as no price depends on it. Earlier versions made no such table.
                file.execute("CREATE TABLE IF NOT EXISTS pending (number INTEGER PRIMARY KEY)")
                numbers = [(record.number,) for record in records]
                file.executemany("INSERT OR IGNORE INTO pending VALUES (?)", numbers)
            if done is not None:
                file.execute("DELETE FROM pending WHERE number = ?", (done,))
            if os.getpid() != process:
                raise LedgerError("a process that forks while it charges has charged nothing.")
            file.execute("COMMIT")

    def pending(self) -> set[int]:
        """Return the numbers of charges whose releases were not made."""
        with self._open() as file:
            if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'pending'").fetchone():
                return set()
            return {number for (number,) in file.execute("SELECT number FROM pending")}

    def copy(self, path: Path) -> None:
        """Write all that is committed to a new file, also while others write, or raise."""
        with self._new_file(path) as copy, self._open() as file:
            file.backup(copy)

    def after(self, previous: Record, bodies: Iterable[dict[str, Any] | str]) -> list[Record]:
        """Return the records of bodies, or of their texts, each of which follows the one before."""
        records, last = [], previous
        for one in bodies:
            # Auditors read it without Python: keys in order, and no NaN.
            text = one if isinstance(one, str) else json.dumps(one, sort_keys=True, allow_nan=False)
            message = f"{last.digest}\n{text}".encode()
            if self.key is None:
                digest = hashlib.sha256(message).hexdigest()
            else:
                # Nobody without the key can continue the chain, or write another one.
                digest = hmac.new(self.key, message, hashlib.sha256).hexdigest()
            last = Record(last.number + 1, text, digest)
            records.append(last)
        return records

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file; what is not committed when it closes was never written."""
        with one_at_a_time, _explaining_errors(self.path):
            # Locks go by file, not by name, so that the file must have one name only.
            if self.path.is_dir():
                raise LedgerError(f"{self.path} is a folder: give the path of a file in it.")
            if not self.path.is_file():
                raise LedgerError(
                    f"there is no ledger at {self.path}. (A temporary one ends with the process "
                    "that made it; to keep a ledger, give a path.)"
                )
            # A link to the file, not a symbolic one, would have locks of its own.
            if self.path.stat().st_nlink > 1:
                self._remove_drafts()
            uri = f"{self.path.absolute().as_uri()}?mode=rw"
            # SQLite is asked anew every 0.1 s: Python hears no interruption while SQLite waits.
            opened = sqlite3.connect(uri, uri=True, timeout=0.1, isolation_level=None)
            with contextlib.closing(opened) as file:
                # A database of another program is left alone.
                (application,) = file.execute("PRAGMA application_id").fetchone()
                if application != _APPLICATION_ID:
                    raise LedgerError(f"{self.path} is not a ledger; give another path.")
                # A charge that has returned outlives a power cut.
                file.execute("PRAGMA synchronous = FULL")
                yield file

    def _remove_drafts(self) -> None:
        """Remove drafts that a killed creator has left; raise if the file has yet another name."""
        real = Path(os.path.realpath(self.path))
        for draft in real.parent.glob(f".{glob.escape(real.name)}.*"):
            with contextlib.suppress(OSError):
                if draft.samefile(real):
                    draft.unlink()
        if real.stat().st_nlink > 1:
            raise LedgerError(
                f"the ledger at {self.path} has another name (a hard link), under which it could "
                "be charged unnoticed. Remove that name."
            )

    def _follow(self, file: sqlite3.Connection, after: Record) -> list[Record]:
        query = "SELECT number, body, digest FROM records WHERE number >= ? ORDER BY number"
        records = [Record(*row) for row in file.execute(query, (after.number,))]
        if after != ORIGIN:
            first = records.pop(0) if records else None
            if first != after:
                raise LedgerTamperedError(
                    f"the ledger at {self.path} does not hold record {after.number} any more as it "
                    "was read before: records were removed or rewritten, or an old copy was put in "
                    "its place. Nothing was charged; find out who did it before you release more."
                )
        chained = self.after(after, [record.body for record in records])
        for found, right in zip(records, chained, strict=True):
            if found != right:
                raise LedgerTamperedError(
                    f"record {right.number} of the ledger at {self.path} does not follow from "
                    "those before it: the file was tampered with, or written with another key. "
                    "Open it with the key that it was created with, if any."
                )
        return records


@contextlib.contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and the system into errors about the ledger."""
    try:
        yield
    except FileExistsError:
        raise FileExistsError(f"{path} exists, and is not replaced: name another.") from None
    except (sqlite3.Error, OSError) as error:
        # What to do, by words of SQLite's message.
        advice = {
            "not a database": "the file is not a ledger; give another path",
            "malformed": "the file is damaged; restore it from a copy",
            "readonly": "the file or its folder is read-only; give a path that can be written to",
            "unable to open": "the file or its folder cannot be opened or written to; check the "
            "path and the permissions",
            "full": "the disk is full; make room",
            "disk I/O": "the disk does not accept writes; check its space and its health",
            "locked": f"another process has kept it locked for {_PATIENCE:.0f} s; find out why",
            "no such table": "the file is not a ledger, or is damaged; give another path",
        }
        # SQLite quotes damaged statements, in several lines.
        told = " ".join(str(getattr(error, "strerror", error)).split())
        said = [f"{do} ({told})" for words, do in advice.items() if words in told] or [told]
        raise LedgerError(
            f"cannot use the ledger at {path}: {said[0]}. Nothing was charged."
        ) from error


# Version of the format of records.
FORMAT = 1
UNITS = ("record", "user", "edge", "node")


@dataclass(frozen=True)
class Entry:
    """A recorded charge.

    Parameters
    ----------
    number : int
        Position among the records of the ledger.
    time : str
        When it was recorded, in UTC.
    unit : str
        Whom the release protects: "record", "user", "edge" or "node".
    label : str
        The release, in words.
    event : DpEvent
        The release, as it was priced.
    epsilon, delta : float
        The pair that it adds where pairs are added up; NaN where it has none.
    seeded : bool
        Whether the release can be reproduced, and so is not private.
    partition, part : str or None
        The part of the data that the release looked at, where it was not all of it.
    digest : str
        Digest of the record and of all before it.
    token : str or None
        The name of the release, under which it is charged once.
    released : bool
        False for a release of an estimator that is not made yet, or was interrupted.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
    >>> ledger = PrivacyLedger(1.0)
    >>> receipt = ledger.charge(PureDpEvent(0.5), unit="record", label="a mean")
    >>> (entry,) = ledger.entries()
    >>> entry.label, entry.event, entry.pair
    ('a mean', PureDpEvent(epsilon=0.5), (0.5, 0.0))
    """

    number: int
    time: str
    unit: str
    label: str
    event: DpEvent
    epsilon: float
    delta: float
    seeded: bool
    partition: str | None
    part: str | None
    digest: str
    token: str | None = None
    released: bool = True

    @property
    def pair(self) -> Pair | None:
        """Return the (epsilon, delta) that it adds if pairs are added; None if it has none."""
        return None if math.isnan(self.epsilon) else (self.epsilon, self.delta)


def charge_body(
    unit: str,
    label: str,
    event: str,
    pair: Pair | None,
    seeded: bool,
    place: tuple[str | None, str | None],
    token: str | None = None,
) -> dict[str, Any]:
    """Return the record of a charge now; `entry_of` reads it."""
    return {
        "kind": "charge",
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "unit": unit,
        "label": label,
        "event": event,
        "pair": None if pair is None else [json_number(number) for number in pair],
        "seeded": seeded,
        "partition": place[0],
        "part": place[1],
        # Without it, the same charge to two copies of a file would have the same receipt.
        "nonce": os.urandom(8).hex(),
        **({} if token is None else {"token": token}),
    }


def content_of(body: dict[str, Any]) -> tuple:
    """Return the part of a charge that must agree for two charges with one token."""
    return tuple(body[name] for name in ("label", "unit", "event", "seeded", "partition", "part"))


def entry_of(record: Record, pending: Container[int] = ()) -> Entry | None:
    """Return the charge in a record, None if the record is something else."""
    body = json.loads(record.body)
    if body["kind"] != "charge":
        return None
    event, pair = charged(body["event"], body["pair"] and tuple(body["pair"]))
    epsilon, delta = pair or (math.nan, math.nan)
    known = {name: body.get(name) for name in Entry.__match_args__}
    known |= {"number": record.number, "digest": record.digest, "event": event}
    known |= {"epsilon": epsilon, "delta": delta, "released": record.number not in pending}
    return Entry(**known)


def check_settings(
    epsilon: Any, delta: Any, units: Any, neighbouring: Any, allow_seeded: Any, slack: Any
) -> dict[str, Any]:
    """Return the settings that a new ledger is created with, in the form of its record."""
    epsilon = math.inf if epsilon is None else epsilon
    # Not by conversion: float('1') and float(True) would be budgets.
    if not real_number(epsilon) > 0:
        own = "A file is path=, and PrivacyLedger.open(path) opens one that exists."
        raise ValueError(f"epsilon must be above 0, or None to record only; got {epsilon!r}. {own}")
    check_probability("delta", delta)
    check_choice("neighbouring", neighbouring, RELATIONS)
    if slack is not None and not 0 <= real_number(slack) <= delta:
        raise ValueError(f"slack must be None or from 0 to delta={delta}, got {slack!r}.")
    check_flag("allow_seeded", allow_seeded)
    units = None if units is None else [units] if isinstance(units, str) else sorted(set(units))
    for unit in units or ():
        check_choice("units", unit, UNITS)
    return {
        "epsilon": json_number(epsilon),
        "delta": float(delta),
        "units": units,
        "neighbouring": neighbouring,
        "allow_seeded": bool(allow_seeded),
        "slack": None if slack is None else float(slack),
    }


def json_number(number: float) -> float | str:
    """Return a number in a form for JSON, in which infinity is text."""
    return float(number) if math.isfinite(number) else "inf"


# What reading a record raises that no ledger writes.
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class History:
    """The known facts of a ledger, from the records that were read.

    It is never changed: `after` returns the history after further records.

    Attributes
    ----------
    settings : dict or None
        The first record.
    last : Record
        The last record read.
    last_charge : Record or None
        The last record that is a charge.
    rule : PairFilter or MixtureFilter
        The filter that admits charges; pairs are added until the first charge decides.
    rule_without_pair : PairFilter or MixtureFilter
        The filter from the next charge on, if that has no pair.
    anchors : tuple of dict
        Records of anchors, which earlier versions wrote.
    corrected : int
        The number of charges that were recorded with too small a delta.
    partitions : dict
        The declaration of each partition, by its name.
    tokens : dict
        The number and digest of the record with a token, and its content.
    totals : dict
        The cost of the charges for a unit to a part of a partition, by (unit, partition, part).
    """

    def __init__(self, settings: Any = None) -> None:
        self.settings: Any = None
        if settings is not None:
            self._set(settings)
        self.last = ORIGIN
        self.last_charge: Record | None = None
        self.anchors: tuple[dict[str, Any], ...] = ()
        self.corrected = 0
        self.partitions: dict[str | None, Any] = {}
        self.tokens: dict[str | None, tuple[tuple[int, str], tuple]] = {}
        self.totals: dict[tuple[str, str | None, str | None], Total] = {}
        # Shared with all histories that follow.
        self.prices: dict[tuple, Total] = {}

    def _set(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        epsilon, delta, slack = float(settings["epsilon"]), settings["delta"], settings["slack"]
        others = (settings["neighbouring"], settings["allow_seeded"], slack)
        check_settings(epsilon, delta, settings.get("units"), *others)
        by_pairs = PairFilter(epsilon, delta)
        most = delta if slack is None else slack
        tight = MixtureFilter(epsilon, delta, most) if most > 0 else by_pairs
        # Undecided, pairs are shown until the first charge.
        self.rule = tight if slack else by_pairs
        self.rule_without_pair = tight

    def after(self, records: Iterable[Record]) -> "History":
        """Return the history after some further records."""
        # Never in place: a charge that is refused must leave nothing behind.
        history = copy.copy(self)
        for name in ("partitions", "tokens", "totals"):
            setattr(history, name, dict(getattr(self, name)))
        for record in records:
            history._read(record)
        if history.settings is None:
            raise LedgerError("the file is not a ledger: its first record is missing.")
        return history

    def _read(self, record: Record) -> None:
        # The chain proves that no record was changed. This proves that a ledger writes such
        # records.
        try:
            body = json.loads(record.body)
            if (body["kind"] == "ledger") != (record.number == 0):
                raise ValueError("a ledger begins once")
            match body["kind"]:
                case "ledger":
                    if body["format"] != FORMAT:
                        raise LedgerError(
                            f"the ledger is of format {body['format']}, and this version of skdpot "
                            f"reads {FORMAT}."
                        )
                    bytes.fromhex(body["identity"])
                    self._set(body)
                case "partition":
                    self.partitions[body["name"]] = {
                        "parts": dict.fromkeys(body["parts"]),
                        "fixed_key": body["fixed_key"],
                    }
                case "charge":
                    self._add_charge(body)
                    self.last_charge = record
                    if (token := body.get("token")) is not None:
                        if token in self.tokens:
                            raise ValueError("a token that another record has")
                        self.tokens[token] = (record.number, record.digest), content_of(body)
                case "anchor":
                    self.anchors = (*self.anchors, body)
                case _:
                    raise ValueError("no such kind of record")
        except _UNREADABLE as error:
            raise LedgerTamperedError(
                f"record {record.number} is not one that a ledger writes ({error})."
            ) from error
        self.last = record

    def _add_charge(self, body: dict[str, Any]) -> None:
        place = body["unit"], body["partition"], body["part"]
        if place[1] is not None and not self.has_part(place[1], place[2]):
            raise ValueError("no such part")
        date.fromisoformat(body["time"][:10])
        is_flag = isinstance(body["seeded"], bool)
        if not (is_flag and body["unit"] in UNITS and body["label"].isprintable()):
            raise ValueError("no such unit, label or seed")
        recorded = body["pair"] and tuple(body["pair"])
        event, pair = charged(body["event"], recorded)
        # Version 0.1.0 recorded some with too small a delta.
        if pair is not None and pair[1] > recorded[1]:
            self.corrected += 1
        # The first charge decides.
        if pair is None:
            self.rule = self.rule_without_pair
        self.rule_without_pair = self.rule
        # Charges of one event cost the same. The rule is part of the key: a first charge that is
        # refused has not decided it.
        key = self.rule, body["event"], pair
        if key not in self.prices:
            self.prices[key] = self.rule.price(event, pair)
        before, cost = self.totals.get(place), self.prices[key]
        self.totals[place] = cost if before is None else before.plus(cost)

    def has_part(self, partition: str, part: str) -> bool:
        """Tell whether a partition has a part of this name."""
        return part in self.partitions.get(partition, {"parts": ()})["parts"]

    def parts_change(self, partition: str | None) -> bool:
        """Tell whether a replaced unit may move to another part of a partition, None for none."""
        # A unit that is added or removed changes its own part only.
        is_fixed = partition is None or self.partitions[partition]["fixed_key"]
        return self.settings["neighbouring"] == "replace_one" and not is_fixed

    def units(self) -> list[str]:
        """Return the units of all charges, in alphabetical order."""
        return sorted({unit for unit, *_ in self.totals})

    def spent(self, unit: str) -> Pair:
        """Return the part of the budget that charges for a unit have used."""
        return self.rule.spent(self.combined(unit))

    def left(self, unit: str) -> Pair:
        """Return the largest (epsilon, delta) of one further release for a unit."""
        return self.rule.left(self.combined(unit))

    def combined(self, unit: str) -> Total:
        """Return the largest cost of all releases for a unit, over all parts.

        In every currency for itself, the dearest part of each partition counts, or the two
        dearest where the part of a replaced unit may change.
        """
        by_partition: dict[str | None, list[Total]] = {}
        for (each, partition, _), total in self.totals.items():
            if each == unit:
                by_partition.setdefault(partition, []).append(total)
        totals_of_parts: list[Total] = []
        for partition, totals in by_partition.items():
            # Parts are disjoint: a unit pays for its own, and for another one if it moves.
            if len(totals) > 1:
                currencies = zip(*(total.amounts for total in totals), strict=True)
                ordered = [
                    heapq.nlargest(1 + self.parts_change(partition), amounts)
                    for amounts in currencies
                ]
                totals = list(map(Total.of, zip(*ordered, strict=True)))
            totals_of_parts += totals
        return reduce(Total.plus, totals_of_parts) if totals_of_parts else Total()
