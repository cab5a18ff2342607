"""The history of a ledger: its charges, its partitions, and the totals they add up to."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from skdpot.privacy._store import ORIGIN, LedgerError, LedgerTamperedError, Link, Record
from skdpot.privacy.events import DpEvent, event_from_json
from skdpot.privacy.filters import (
    MixtureFilter,
    Pair,
    PairFilter,
    Total,
    largest,
    price_for_report,
)

# What records look like; another one is another number.
FORMAT = 1
_NOTHING: Any = MappingProxyType({})


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
        What was released, in words.
    event : DpEvent
        What was released, as it was priced.
    epsilon, delta : float
        The pair that it adds where pairs are added up; NaN where it has none.
    seeded : bool
        Whether the release can be reproduced, and so is not private.
    partition, part : str or None
        The part of the data that the release looked at, where it was not all of it.
    digest : str
        Digest of the record and of all before it.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
    >>> ledger = PrivacyLedger()
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

    @property
    def pair(self) -> Pair | None:
        """The pair that it adds where pairs are added up, None where it has none."""
        return None if math.isnan(self.epsilon) else (self.epsilon, self.delta)


def charge_body(
    time: str,
    unit: str,
    label: str,
    event: str,
    pair: Pair | None,
    seeded: bool,
    place: tuple[str | None, str | None],
) -> dict[str, Any]:
    """Return what is recorded of a charge; `entry_of` reads it."""
    return {
        "kind": "charge",
        "time": time,
        "unit": unit,
        "label": label,
        "event": event,
        "pair": None if pair is None else [plain(number) for number in pair],
        "seeded": seeded,
        "partition": place[0],
        "part": place[1],
    }


def entry_of(record: Record) -> Entry | None:
    """Return the charge that a record is of, None if it is of something else."""
    body = json.loads(record.body)
    if body.pop("kind") != "charge":
        return None
    epsilon, delta = body.pop("pair") or (math.nan, math.nan)
    body["event"] = event_from_json(body["event"])
    return Entry(
        number=record.number,
        digest=record.digest,
        epsilon=float(epsilon),
        delta=float(delta),
        **body,
    )


def plain(number: float) -> Any:
    """Return a number as JSON can hold it: infinity is spelled."""
    return float(number) if math.isfinite(number) else "inf"


class History(NamedTuple):
    """What a process knows of the records that it has read; never changed, only replaced.

    Attributes
    ----------
    link : Link
        The last record read.
    settings : mapping or None
        The first record.
    slack : float or None
        Part of delta for tight composition; None until the first charge decides.
    partitions : mapping of str to dict
        Declared partitions.
    totals : mapping of tuple to Total
        By unit, partition and part; the partition and part None are the whole of the data.
    """

    link: Link = ORIGIN
    settings: Any = None
    slack: float | None = None
    partitions: Any = _NOTHING
    totals: Any = _NOTHING

    def after(self, records: Iterable[Record], *, for_report: bool = False) -> "History":
        """Return what is known after some further records."""
        history = self
        for record in records:
            history = history._after(record, for_report)
        if history.settings is None:
            raise LedgerError("the file is not a ledger: its first record is missing.")
        return history

    def _after(self, record: Record, for_report: bool) -> "History":
        # The chain shows that no record was changed. This shows that each record is of a kind that
        # a ledger writes.
        try:
            body = json.loads(record.body)
            history = self._replace(link=Link(record.number, record.digest))
            if (body["kind"] == "ledger") != (record.number == 0):
                raise ValueError("a ledger begins once")
            if body["kind"] == "ledger":
                return history._begun(body)
            if body["kind"] == "partition":
                declared = {name: body[name] for name in ("parts", "fixed_key")}
                return history._replace(partitions={**self.partitions, body["name"]: declared})
            if body["kind"] == "charge":
                return history.with_charge(body, for_report=for_report)
            raise ValueError("no such kind of record")
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerTamperedError(
                f"record {record.number} is not one that a ledger writes ({error})."
            ) from error

    def _begun(self, body: dict[str, Any]) -> "History":
        if body["format"] != FORMAT:
            raise LedgerError(
                f"the ledger was written in format {body['format']}, and this version of skdpot "
                f"reads format {FORMAT}."
            )
        return self._replace(settings=body, slack=body["slack"])

    def with_charge(self, body: dict[str, Any], *, for_report: bool = False) -> "History":
        """Return what is known after a charge, given what is recorded of it."""
        pair = _checked_pair(body["pair"])
        place = (body["unit"], body["partition"], body["part"])
        if place[1] is not None and place[2] not in self.partitions[place[1]]["parts"]:
            raise ValueError("no such part")
        history = self.decided(pair)
        budget = None if for_report else history._budget
        cost = _price(budget, body["event"], self.settings["neighbouring"], pair)
        before = history.totals.get(place)
        total = cost if before is None else before + cost
        return history._replace(totals={**history.totals, place: total})

    def decided(self, pair: Pair | None) -> "History":
        """Return this with its slack settled, if need be by a first charge with this pair."""
        if self.slack is not None:
            return self
        return self._replace(slack=0.0 if pair is not None else self.settings["delta"])

    @property
    def rule(self) -> PairFilter | MixtureFilter:
        """What admits charges, once the slack is settled."""
        return _rule(*self._budget)

    @property
    def _budget(self) -> tuple[float, float, float]:
        return float(self.settings["epsilon"]), self.settings["delta"], self.slack or 0.0

    def units(self) -> list[str]:
        """Return the units that something was charged for, in alphabetical order."""
        return sorted({unit for unit, _, _ in self.totals})

    def combined(self, unit: str) -> Total:
        """Return what all releases cost a unit, wherever in the partitions it lies."""
        by_partition: dict[str | None, list[Total]] = {}
        for (each, partition, _), total in self.totals.items():
            if each == unit:
                by_partition.setdefault(partition, []).append(total)
        terms = [
            largest(totals, self._parts_of_a_unit(partition))
            for partition, totals in by_partition.items()
        ]
        return sum(terms[1:], terms[0]) if terms else self.rule.nothing

    def _parts_of_a_unit(self, partition: str | None) -> int:
        """Return in how many parts the data of two neighbours may differ."""
        if partition is None or self.settings["neighbouring"] == "add_remove":
            return 1
        return 1 if self.partitions[partition]["fixed_key"] else 2


def _checked_pair(pair: Any) -> Pair | None:
    if pair is None:
        return None
    epsilon, delta = (float(number) for number in pair)
    if not (epsilon >= 0 and 0 <= delta < 1):
        raise ValueError("no such pair")
    return epsilon, delta


@lru_cache(maxsize=256)
def _rule(epsilon: float, delta: float, slack: float) -> PairFilter | MixtureFilter:
    return MixtureFilter(epsilon, delta, slack) if slack > 0 else PairFilter(epsilon, delta)


@lru_cache(maxsize=2**15)
def _price(budget: Any, event: str, neighbouring: str, pair: Pair | None) -> Total:
    """Return what a recorded event adds under the rule of a budget, or for reports if None."""
    price = price_for_report if budget is None else _rule(*budget).price
    return price(event_from_json(event), neighbouring, pair)
