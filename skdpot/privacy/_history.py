"""The history of a ledger: its charges, its partitions, and their totals."""

import json
import math
import operator
import os
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from skdpot.privacy._chain import ORIGIN, Link, Record
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
    ``("anchors",)``                    records of anchors, which earlier versions wrote
    ``("last charge",)``                the last record that is a charge
    ``("corrected",)``                  the number of charges recorded with too small a delta
    ``("partition", name)``             the declaration of a partition
    ``("parts", name)``                 its parts, as a set
    ``("token", token)``                the record with a token, and its content
    ``("units",)``                      the units of all charges
    ``("places", unit)``                the partitions with charges; None is the whole ledger
    ``("total", unit, name, part)``     the cost of the charges to a part
    ``("largest", unit, name)``         in every currency, the two parts that have cost most
    ``("cost", unit, name)``            the cost of a partition
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
    def anchors(self) -> tuple[dict[str, Any], ...]:
        """Return the records of anchors, which earlier versions wrote."""
        return self._facts.get(("anchors",), ())

    def partition(self, name: str | None) -> Any:
        """Return the declaration of a partition, None if there is none of this name."""
        return self._facts.get(("partition", name))

    def has_part(self, partition: str | None, part: str) -> bool:
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

    def with_charge(self, body: dict[str, Any]) -> "History":
        """Return the history after a charge, given its record."""
        history = History(self._facts.new_child())
        history._add_charge(body, for_report=False)
        return history

    def _read(self, record: Record, for_report: bool) -> None:
        # The chain proves that no record was changed. This proves that a ledger writes such
        # records.
        link = Link(record.number, record.digest)
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
                    self._facts["settings",], self._facts["slack",] = body, body["slack"]
                case "partition":
                    name, parts = body["name"], body["parts"]
                    declared = {"parts": parts, "fixed_key": body["fixed_key"]}
                    self._facts["partition", name] = declared
                    self._facts["parts", name] = frozenset(parts)
                case "charge":
                    self._add_charge(body, for_report)
                    self._facts["last charge",] = link
                    if (token := body.get("token")) is not None:
                        if self.named(token) is not None:
                            raise ValueError("a token that another record has")
                        self._facts["token", token] = (link, content_of(body))
                case "anchor":
                    self._facts["anchors",] = (*self.anchors, body)
                case _:
                    raise ValueError("no such kind of record")
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerTamperedError(
                f"record {record.number} is not one that a ledger writes ({error})."
            ) from error
        self._facts["link",] = link

    def _add_charge(self, body: dict[str, Any], for_report: bool) -> None:
        unit, partition, part = body["unit"], body["partition"], body["part"]
        if partition is not None and not self.has_part(partition, part):
            raise ValueError("no such part")
        pair = _pair_of(body["pair"], body["event"])
        if pair is not None and pair[1] > body["pair"][1]:
            self._facts["corrected",] = self.corrected + 1
        self._facts["slack",] = self._slack_with(pair)
        budget = None if for_report else self._budget(self._facts["slack",])
        cost = _price(budget, body["event"], self.settings["neighbouring"], pair)
        before = self._facts.get(("total", unit, partition, part))
        total = cost if before is None else before + cost
        self._facts["total", unit, partition, part] = total
        if partition is not None:
            ranked = self._facts.get(("largest", unit, partition), ((),) * len(_flat(total)))
            ranked = tuple(_raised(*each, part) for each in zip(ranked, _flat(total), strict=True))
            self._facts["largest", unit, partition] = ranked
            total = _sum_of_largest(ranked, self._parts_of_a_unit(partition))
        self._facts["cost", unit, partition] = total
        places = self._facts.get(("places", unit), ())
        if partition not in places:
            self._facts["places", unit] = (*places, partition)
        if not places:
            self._facts["units",] = (*self._facts.get(("units",), ()), unit)

    def _slack_with(self, pair: Pair | None) -> float:
        """Return the slack, which the first charge, with this pair, decides."""
        slack = self._facts.get(("slack",))
        if slack is not None:
            return float(slack)
        return 0.0 if pair is not None else float(self.settings["delta"])

    @property
    def rule(self) -> PairFilter | MixtureFilter:
        """Return the filter that admits charges; the slack is decided."""
        return _rule(*self._budget(self._facts.get(("slack",))))

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
        costs = [self._facts["cost", unit, each] for each in self._facts.get(("places", unit), ())]
        return reduce(operator.add, costs) if costs else (rule or self.rule).nothing

    def _parts_of_a_unit(self, partition: str) -> int:
        """Return in how many parts the data of two neighbours may differ."""
        if self.settings["neighbouring"] == "add_remove":
            return 1
        return 1 if self.partition(partition)["fixed_key"] else 2


def _flat(total: Total) -> tuple:
    """Return the amount of a total in every currency, each order of divergences for itself."""
    *exact, renyi, squared_mu = total.amounts
    return (*exact, *renyi, squared_mu)


def _raised(ranked: tuple, amount: Any, part: str) -> tuple:
    """Return the two largest amounts, with their parts, after one part's amount has risen.

    Amounts only grow, so these are sufficient for any further charge.
    """
    amounts = {**dict(ranked), part: amount}
    return tuple(sorted(amounts.items(), key=lambda item: item[1], reverse=True)[:2])


def _sum_of_largest(ranked: tuple, how_many: int) -> Total:
    """Return the sum of the largest one or two amounts, in every currency for itself."""
    totals = []
    for each in list(zip(*ranked, strict=True))[:how_many]:
        epsilon, delta, pure, failure, *renyi, squared_mu = (amount for _, amount in each)
        totals.append(Total(epsilon, delta, pure, failure, np.array(renyi), squared_mu))
    return reduce(operator.add, totals)


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
