"""The history of a ledger: its charges, its partitions, and their totals."""

import json
import math
import sys
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from skdpot.privacy._store import ORIGIN, Link, Record
from skdpot.privacy._totals import LargestTotals
from skdpot.privacy.errors import LedgerError, LedgerTamperedError
from skdpot.privacy.events import DpEvent, event_from_json
from skdpot.privacy.filters import (
    MixtureFilter,
    Pair,
    PairFilter,
    Total,
    counted_pair,
    price_for_report,
)

# Version of the format of records.
FORMAT = 1


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
    token: str | None = None

    @property
    def pair(self) -> Pair | None:
        """Return the (epsilon, delta) that it adds if pairs are added; None if it has none."""
        return None if math.isnan(self.epsilon) else (self.epsilon, self.delta)


def now() -> str:
    """Return the time as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def charge_body(
    time: str,
    unit: str,
    label: str,
    event: str,
    pair: Pair | None,
    seeded: bool,
    place: tuple[str | None, str | None],
    token: str | None = None,
) -> dict[str, Any]:
    """Return the record of a charge; `entry_of` reads it."""
    named = {} if token is None else {"token": token}
    return {
        "kind": "charge",
        "time": time,
        "unit": unit,
        "label": label,
        "event": event,
        "pair": None if pair is None else [json_number(number) for number in pair],
        "seeded": seeded,
        "partition": place[0],
        "part": place[1],
        **named,
    }


def content_of(body: dict[str, Any]) -> tuple:
    """Return the part of a charge that must agree for two charges with one token."""
    return tuple(body[name] for name in ("unit", "event", "seeded", "partition", "part"))


def entry_of(record: Record) -> Entry | None:
    """Return the charge in a record, None if the record is something else."""
    body = json.loads(record.body)
    if body.pop("kind") != "charge":
        return None
    body.pop("nonce", None)
    epsilon, delta = _pair_of(body.pop("pair"), body["event"]) or (math.nan, math.nan)
    body["event"] = event_from_json(body["event"])
    return Entry(number=record.number, digest=record.digest, epsilon=epsilon, delta=delta, **body)


def declaration_of(record: Record) -> dict[str, Any] | None:
    """Return a record's declaration about the ledger's file, None without one."""
    body = json.loads(record.body)
    if body["kind"] != "anchor" or body["reason"] is None:
        return None
    missing = 0 if body["knew"] is None else max(body["knew"] - record.number + 1, 0)
    return {
        "number": record.number,
        "time": body["time"],
        "reason": body["reason"],
        "missing": missing,
    }


def json_number(number: float) -> Any:
    """Return a number in a form for JSON, in which infinity is text."""
    return float(number) if math.isfinite(number) else "inf"


class History:
    """The known facts of a ledger, from the records that were read.

    `after` returns the history after further records, without a change to this one. `keep`
    publishes it to all objects that share this history: by one update of a dictionary, which no
    signal interrupts halfway.

    Every fact has a tuple as its key, so that an update replaces only the facts that change:

    ==================================  ========================================================
    ``("link",)``                       the last record read
    ``("settings",)``                   the first record
    ``("slack",)``                      the part of delta for tight composition
    ``("anchored",)``                   whether charges need the ledger's anchor
    ``("last charge",)``                the last record that is a charge
    ``("corrected",)``                  the number of charges recorded with too small a delta
    ``("partition", name)``             the declaration of a partition
    ``("parts", name)``                 the number of each part of a partition, by its name
    ``("token", token)``                the record with a token, and its content
    ``("units",)``                      the units of all charges
    ``("total", unit, name, part)``     the cost of the charges to a part
    ``("largest", unit, name)``         the largest totals of a partition's parts
    ``("terms", unit)``                 the number of terms of the cost for a unit
    ``("term", unit, name)``            the position of a partition among these terms
    ``("sum", unit, level, place)``     a node of the tree of sums of these terms
    ``("combined", unit)``              the root of this tree: the cost for a unit
    ==================================  ========================================================

    Parameters
    ----------
    facts : ChainMap, default=None
        The facts. The last of its maps is the shared one.
    """

    def __init__(self, facts: ChainMap[tuple, Any] | None = None) -> None:
        self._facts: ChainMap[tuple, Any] = ChainMap() if facts is None else facts

    @classmethod
    def expected(cls, settings: Any) -> "History":
        """Return the history of a new ledger with these settings."""
        return cls(ChainMap({("settings",): settings, ("slack",): settings["slack"]}))

    def keep(self) -> None:
        """Make the new facts known to all objects that share this history."""
        *news, shared = self._facts.maps
        shared.update(dict(ChainMap(*news)))

    @property
    def link(self) -> Link:
        """Return the last record read."""
        return self._facts.get(("link",), ORIGIN)

    @property
    def settings(self) -> Any:
        """Return the first record, as far as it is known."""
        return self._facts.get(("settings",))

    @property
    def last_charge(self) -> Link | None:
        """Return the last record that is a charge."""
        return self._facts.get(("last charge",))

    @property
    def corrected(self) -> int:
        """Return the number of charges that were recorded with too small a delta."""
        return self._facts.get(("corrected",), 0)

    @property
    def is_anchored(self) -> bool:
        """Return whether charges need the ledger's anchor."""
        return self._facts.get(("anchored",), False)

    @property
    def _slack(self) -> float | None:
        """Return the part of delta for tight composition; None until the first charge decides."""
        return self._facts.get(("slack",))

    def partition(self, name: str | None) -> Any:
        """Return the declaration of a partition, None if there is none of this name."""
        return self._facts.get(("partition", name))

    def has_part(self, partition: str, part: str) -> bool:
        """Tell whether a partition has a part of this name."""
        return part in self._facts.get(("parts", partition), ())

    def named(self, token: str | None) -> tuple[Link, tuple] | None:
        """Return the record with a token, and its content; None if there is none."""
        return self._facts.get(("token", token))

    def after(self, records: Iterable[Record], *, for_report: bool = False) -> "History":
        """Return the history after some further records."""
        history = History(self._facts.new_child())
        for record in records:
            history._read(record, for_report)
        if history.settings is None:
            raise LedgerError("the file is not a ledger: its first record is missing.")
        return history

    def _read(self, record: Record, for_report: bool) -> None:
        # The chain proves that no record was changed. This proves that a ledger writes such
        # records.
        try:
            body = json.loads(record.body)
            if (body["kind"] == "ledger") != (record.number == 0):
                raise ValueError("a ledger begins once")
            if body["kind"] == "ledger":
                self._begin(body)
            elif body["kind"] == "partition":
                self._declare(body)
            elif body["kind"] == "charge":
                self._share(body)
                self._add_charge(body, for_report)
                self._facts["last charge",] = Link(record.number, record.digest)
                self._name(body, record)
            elif body["kind"] == "anchor":
                self._facts["anchored",] = True
            else:
                raise ValueError("no such kind of record")
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerTamperedError(
                f"record {record.number} is not one that a ledger writes ({error})."
            ) from error
        self._facts["link",] = Link(record.number, record.digest)

    def _share(self, body: dict[str, Any]) -> None:
        """Replace the texts of a charge by equal ones of earlier charges, which saves memory."""
        for name in ("unit", "event", "partition"):
            if body[name] is not None:
                body[name] = sys.intern(body[name])
        number = self._facts.get(("parts", body["partition"]), {}).get(body["part"])
        if number is not None:
            body["part"] = self._facts["partition", body["partition"]]["parts"][number]

    def _name(self, body: dict[str, Any], record: Record) -> None:
        """Register the token of a record; tokens are unique."""
        if (token := body.get("token")) is None:
            return
        if self.named(token) is not None:
            raise ValueError("a token that another record has")
        link = Link(record.number, record.digest)
        self._facts["token", token] = (link, content_of(body))

    def _begin(self, body: dict[str, Any]) -> None:
        if body["format"] != FORMAT:
            raise LedgerError(
                f"the ledger is of format {body['format']}, and this version of skdpot reads "
                f"{FORMAT}."
            )
        self._facts["settings",], self._facts["slack",] = body, body["slack"]

    def with_charge(self, body: dict[str, Any]) -> "History":
        """Return the history after a charge, given its record."""
        history = History(self._facts.new_child())
        history._add_charge(body, for_report=False)
        return history

    def _declare(self, body: dict[str, Any]) -> None:
        name, parts = body["name"], body["parts"]
        self._facts["partition", name] = {"parts": parts, "fixed_key": body["fixed_key"]}
        self._facts["parts", name] = {part: number for number, part in enumerate(parts)}

    def _add_charge(self, body: dict[str, Any], for_report: bool) -> None:
        pair = _pair_of(body["pair"], body["event"])
        if pair is not None and pair[1] > body["pair"][1]:
            self._facts["corrected",] = self.corrected + 1
        unit, partition, part = body["unit"], body["partition"], body["part"]
        number = 0
        if partition is not None:
            if part not in self._facts["parts", partition]:
                raise ValueError("no such part")
            number = self._facts["parts", partition][part]
        self._facts["slack",] = self._slack_with(pair)
        budget = None if for_report else self._budget(self._slack)
        cost = _price(budget, body["event"], self.settings["neighbouring"], pair)
        before = self._facts.get(("total", unit, partition, part))
        total = cost if before is None else before + cost
        self._facts["total", unit, partition, part] = total
        if partition is None:
            self._add_term(unit, partition, total)
            return
        ranked = self._facts.get(("largest", unit, partition))
        ranked = (
            LargestTotals.of_one(number, total) if ranked is None else ranked.raised(number, total)
        )
        self._facts["largest", unit, partition] = ranked
        self._add_term(unit, partition, ranked.sum_of(self._parts_of_a_unit(partition)))

    def _add_term(self, unit: str, partition: str | None, term: Total) -> None:
        """Replace the cost of a partition for a unit.

        The terms are the leaves of a binary tree of sums: no update adds all of them.
        """
        units = self._facts.get(("units",), ())
        if unit not in units:
            self._facts["units",] = (*units, unit)
        size = self._facts.get(("terms", unit), 0)
        place = self._facts.setdefault(("term", unit, partition), size)
        size = self._facts["terms", unit] = max(size, place + 1)
        level = 0
        self._facts["sum", unit, level, place] = term
        while size > 1:
            beside = self._facts.get(("sum", unit, level, place ^ 1))
            if beside is not None:
                term = beside + term if place % 2 else term + beside
            level, place, size = level + 1, place // 2, (size + 1) // 2
            self._facts["sum", unit, level, place] = term
        self._facts["combined", unit] = term

    def _slack_with(self, pair: Pair | None) -> float:
        """Return the slack, which the first charge, with this pair, decides."""
        if self._slack is not None:
            return self._slack
        return 0.0 if pair is not None else self.settings["delta"]

    @property
    def rule(self) -> PairFilter | MixtureFilter:
        """Return the filter that admits charges; the slack is decided."""
        return _rule(*self._budget(self._slack))

    def rule_with(self, pair: Pair | None) -> PairFilter | MixtureFilter:
        """Return the filter that admits charges from one with this pair on."""
        return _rule(*self._budget(self._slack_with(pair)))

    def _budget(self, slack: float | None) -> tuple[float, float, float]:
        return float(self.settings["epsilon"]), self.settings["delta"], slack or 0.0

    def units(self) -> list[str]:
        """Return the units of all charges, in alphabetical order."""
        return sorted(self._facts.get(("units",), ()))

    def combined(self, unit: str, rule: PairFilter | MixtureFilter | None = None) -> Total:
        """Return the largest cost of all releases for a unit, over all parts."""
        total = self._facts.get(("combined", unit))
        return (rule or self.rule).nothing if total is None else total

    def _parts_of_a_unit(self, partition: str) -> int:
        """Return in how many parts the data of two neighbours may differ."""
        if self.settings["neighbouring"] == "add_remove":
            return 1
        return 1 if self.partition(partition)["fixed_key"] else 2


def _pair_of(recorded: Any, event: str) -> Pair | None:
    """Return the pair that a recorded charge counts as."""
    if recorded is None:
        return None
    epsilon, delta = (float(number) for number in recorded)
    if not (epsilon >= 0 and delta >= 0):
        raise ValueError("no such pair")
    return _counted(event, (epsilon, delta))


@lru_cache(maxsize=2**15)
def _counted(event: str, pair: Pair) -> Pair:
    return counted_pair(event_from_json(event), pair)


@lru_cache(maxsize=256)
def _rule(epsilon: float, delta: float, slack: float) -> PairFilter | MixtureFilter:
    return MixtureFilter(epsilon, delta, slack) if slack > 0 else PairFilter(epsilon, delta)


@lru_cache(maxsize=2**15)
def _price(budget: Any, event: str, neighbouring: str, pair: Pair | None) -> Total:
    """Return the price of a recorded event under a budget's rule; without one, for reports."""
    price = price_for_report if budget is None else _rule(*budget).price
    return price(event_from_json(event), neighbouring, pair)
