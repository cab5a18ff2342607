"""The report of a ledger for signatories: as text, HTML, JSON, and for a public registry."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from skdpot.privacy._history import Entry, json_number
from skdpot.privacy._report_numbers import (
    amount_down,
    amount_up,
    chance_down,
    chance_up,
    day,
    factor,
)
from skdpot.privacy.checks import check_choice
from skdpot.privacy.events import event_to_json, leaves
from skdpot.privacy.filters import Pair
from skdpot.privacy.sections import Report, Section

_IN_PLACE = {
    "replace_one": "as with any other data in their place",
    "add_remove": "as without them, or the other way round",
}
_NEIGHBOURS = {
    "replace_one": "the data of one {unit} are replaced by any other data",
    "add_remove": "the data of one {unit} are added or removed",
}
_ABOUT_SENSITIVITIES = (
    "An event states the noise of a release as a multiple of its sensitivity: the largest change "
    "of what is released, without noise, if the data of one unit change. For each estimator, whose "
    'name is in the label, the table "Every release at a glance" of doc/theory/index.rst names the '
    "sensitivity, the function that computes it, and the section that proves it. Other charges "
    "rest on the word of whoever charged them."
)


@dataclass(frozen=True)
class UnitSummary:
    """The cost of releases for one kind of unit.

    Attributes
    ----------
    unit : str
        "record", "user", "edge" or "node".
    spent, left : tuple of two float
        Pairs (epsilon, delta).
    """

    unit: str
    spent: Pair
    left: Pair


class _Releases(NamedTuple):
    """Charges that differ in their time only."""

    first: Entry
    last: Entry
    times: int


@dataclass(frozen=True)
class LedgerReport(Report):
    """A summary of a ledger: ``print`` it, end a notebook cell with it, or `save` it.

    Attributes
    ----------
    time : str
        Time of the report, in UTC.
    identity, place : str
        Name and place of the ledger.
    epsilon, delta : float
        The budget.
    neighbouring : str
        The relation.
    rule : str
        Rule by which charges are accepted.
    units : list of UnitSummary
        One summary per charged unit.
    entries : list of Entry
        All charges.
    declarations : list of dict
        Declarations that the file is the right one, after a restore or a lost anchor: each with its
        ``number``, ``time`` and ``reason``, and how many records are known to be ``missing``.
    """

    _width = 100

    time: str
    identity: str
    place: str
    epsilon: float
    delta: float
    neighbouring: str
    rule: str
    units: list[UnitSummary]
    entries: list[Entry]
    declarations: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON; an infinite number is "inf".

        Returns
        -------
        dict
            ``time``, ``ledger``, ``place``, ``budget`` (epsilon and delta), ``neighbouring`` and
            ``rule``; ``units``, with the exact pairs ``spent`` and ``left`` and the ``sentence``
            on who is protected; ``charges``, with all recorded values; ``declarations``.
        """
        return {
            "time": self.time,
            "ledger": self.identity,
            "place": self.place,
            "budget": [json_number(self.epsilon), json_number(self.delta)],
            "neighbouring": self.neighbouring,
            "rule": self.rule,
            "units": [
                {
                    "unit": each.unit,
                    "spent": [json_number(number) for number in each.spent],
                    "left": [json_number(number) for number in each.left],
                    "sentence": self._protection(each),
                }
                for each in self.units
            ],
            "charges": [
                {
                    **asdict(entry),
                    "event": json.loads(event_to_json(entry.event)),
                    "epsilon": None if entry.pair is None else entry.epsilon,
                    "delta": None if entry.pair is None else entry.delta,
                }
                for entry in self.entries
            ],
            "declarations": self.declarations,
        }

    _for_json = as_dict

    def registry_entry(
        self,
        *,
        name: str,
        data_curators: Sequence[str],
        description: str,
        intended_use: str,
        data_product_type: str,
        data_product_region: str,
        registry_authors: Sequence[str],
        model_name: str = "Central",
        not_protected: str | None = None,
        unit: str | None = None,
    ) -> dict[str, Any]:
        """Return a draft for the Differential Privacy Deployments Registry.

        The ledger fills in the privacy unit and parameters, the relation, the composition, the
        mechanisms and the dates. You give the rest.

        Parameters
        ----------
        name, description, intended_use, data_product_region : str
            Facts about the published data; public.
        data_curators, registry_authors : sequence of str
            Publishers of the data, and authors of this entry.
        data_product_type : str
            Type of the product, such as "Summary statistics", "Machine learning model" or
            "Synthetic data".
        model_name : {"Central", "Local", "Shuffle", "Federated"}, default="Central"
            Trust model: who sees the data before noise is added.
        not_protected : str, default=None
            Facts that are released or declared public without noise, in words.
        unit : {"record", "user", "edge", "node"}, default=None
            Unit whose protection is stated; None is the unit that has spent most.

        Returns
        -------
        dict
            An entry in the registry's schema, with the status "Draft". Written as JSON it is a
            YAML file, too.

        Raises
        ------
        ValueError
            If nothing was charged for the unit, or a charge has no finite epsilon or is seeded.
        """
        check_choice("model_name", model_name, ("Central", "Local", "Shuffle", "Federated"))
        found = [each for each in self.units if unit in (None, each.unit)]
        summary = max(found, key=lambda each: each.spent, default=None)
        if summary is None or not math.isfinite(summary.spent[0]) or self._seeded(summary.unit):
            raise ValueError(
                "there is nothing to register: no charge for the unit, no finite epsilon, or "
                "releases that can be reproduced from a seed."
            )
        entries = [entry for entry in self.entries if entry.unit == summary.unit]
        (epsilon, delta), published = summary.spent, entries[0].time[:10]
        words = " ".join([name, *data_curators, published[:4]]).lower()
        variant = {"variant_name": "Approximate DP" if delta else "Pure DP"}
        if not_protected is not None:
            variant["unprotected_quantities"] = not_protected
        shown = amount_up(epsilon).replace(",", "")
        parameters = {"epsilon": epsilon if epsilon > 1e15 else float(shown)}
        if delta:
            parameters["delta"] = delta
        return {
            "url_slug": "-".join(re.findall("[a-z0-9]+", words)),
            "status": "Draft",
            "tier": 2,
            "deployment": {
                "basic": {
                    "name": name,
                    "data_curators": list(data_curators),
                    "intended_use": intended_use,
                    "data_product_type": data_product_type,
                    "data_product_region": data_product_region,
                    "description": description,
                    "publication_date": published,
                },
                "dp_variant": variant,
                "privacy_loss": {
                    "privacy_unit": summary.unit,
                    "privacy_unit_details": "Adjacent data sets: "
                    + _NEIGHBOURS[self.neighbouring].format(unit=summary.unit)
                    + ".",
                    "privacy_parameters": parameters,
                    "privacy_parameters_details": self._protection(summary),
                },
                "deployment_model": {
                    "model_name": model_name,
                    "release_type": "One release" if len(entries) == 1 else "Many releases",
                },
                "accounting": {
                    "composition": f"{len(entries)} releases, charged to one ledger before each; "
                    f"admitted by {self.rule}, under fully adaptive composition."
                },
                "implementation": {
                    "mechanisms": "skdpot; releases described as " + ", ".join(_kinds(entries))
                },
                "administrative": {"registry_authors": list(registry_authors)},
            },
        }

    def _sections(self) -> list[Section]:
        sections = [
            Section(
                f"Privacy report of {day(self.time)}",
                [
                    f"On all that is recorded in ledger {self.identity}, in {self.place}. Amounts "
                    "that are spent are rounded up, and what is left is rounded down."
                ],
            ),
            Section("Who is protected, and against what", self._who()),
            self._what(),
            Section("What is left", self._left()),
        ]
        if self.declarations:
            sections.append(
                Section("Declarations", [_declared(each) for each in self.declarations])
            )
        return [*sections, self._appendix()]

    def _who(self) -> list[str]:
        if not self.units:
            return ["Nothing was released, so nobody needs protection."]
        said = [self._protection(each) for each in self.units]
        if any(each.unit == "record" for each in self.units):
            said.append("A person with several records is protected less: each of them counts.")
        if len(self.units) > 1:
            said.append(
                "Each of these sentences is about the releases for its unit only. Units are never "
                "added up: a person whose data are in releases for several units is protected "
                "less, because each of these releases counts."
            )
        said.append(
            "This holds against anyone, whatever else they know, and for all later use of what "
            "was released. It holds for releases that were charged to this ledger, and not for "
            "what was declared public."
        )
        return said

    def _protection(self, summary: UnitSummary) -> str:
        unit, (epsilon, delta) = summary.unit, summary.spent
        if not math.isfinite(epsilon):
            return f"No {unit} is protected: what was released has no finite epsilon."
        seeded = self._seeded(unit)
        who = f"Every {unit} is protected: of"
        if seeded:
            who = (
                f"No {unit} is protected from whoever knows the seed of {seeded} of the releases, "
                "which can be reproduced from it. For all others: of"
            )
        plus = f", but for an added probability of {chance_up(delta)} (delta)" if delta else ""
        only = f" for the unit {unit}" if len(self.units) > 1 else ""
        return (
            f"{who} all that was released{only}, no outcome was more than {factor(epsilon)} times "
            f"as probable with the data of one {unit} {_IN_PLACE[self.neighbouring]} (epsilon "
            f"{amount_up(epsilon)}){plus}.{self._doubt()}"
        )

    def _doubt(self) -> str:
        if not self.declarations:
            return ""
        return (
            " The ledger was restored, or its anchor was lost (see the declarations): what was "
            "released and is missing from it is spent in addition."
        )

    def _seeded(self, unit: str) -> int:
        return sum(entry.seeded for entry in self.entries if entry.unit == unit)

    def _what(self) -> Section:
        if not self.entries:
            return Section("What was released", ["Nothing was released."])
        rows: list[tuple[str, ...]]
        rows = [("when", "what", "for", "times", "epsilon of each", "delta of each")]
        rows += [_row(releases) for releases in _grouped(self.entries)]
        count = f"{len(self.entries):,} release" + ("s" if len(self.entries) > 1 else "")
        said = [f"{count}, {_period(self.entries[0], self.entries[-1])}:"]
        return Section("What was released", said, rows)

    def _left(self) -> list[str]:
        if not math.isfinite(self.epsilon):
            return ["There is no budget: this ledger records releases and refuses none."]
        budget = f"epsilon {amount_up(self.epsilon)} and delta {chance_up(self.delta)}"
        if not self.units:
            return [f"All of the budget: {budget} for every unit."]
        return [
            f"Of the budget of {budget} for every {each.unit}, epsilon {amount_up(each.spent[0])} "
            f"and delta {chance_up(each.spent[1])} are spent. Another release may cost at most "
            f"epsilon {amount_down(each.left[0])} and delta {chance_down(each.left[1])}."
            for each in self.units
        ]

    def _appendix(self) -> Section:
        exact = [
            f"Spent per {each.unit}: {each.spent!r}; left: {each.left!r}." for each in self.units
        ]
        rows: list[tuple[str, ...]]
        rows = [("number", "time", "unit", "label", "part", "event", "digest")]
        for each in self.entries:
            about = (str(each.number), each.time, each.unit, each.label, _part_of(each))
            rows.append((*about, str(each.event), each.digest[:12]))
        said = [
            f"Budget: ({self.epsilon!r}, {self.delta!r}). Neighbouring relation: "
            f"{self.neighbouring}. Charges are admitted by {self.rule}.",
            *exact,
            *([_ABOUT_SENSITIVITIES] if self.entries else []),
        ]
        return Section("Technical appendix", said, rows if self.entries else ())


def _declared(declaration: dict[str, Any]) -> str:
    missing = declaration["missing"]
    lost = f" {missing} records that the anchor knew are missing." if missing else ""
    return (
        f"{day(declaration['time'])}: the ledger's file was declared to be the right one, though "
        f"its anchor did not vouch for it. Reason: {declaration['reason']}.{lost}"
    )


def _grouped(entries: Iterable[Entry]) -> list[_Releases]:
    found: dict[tuple, _Releases] = {}
    for entry in entries:
        key = (entry.unit, entry.label, entry.partition, entry.part, entry.pair, entry.seeded)
        before = found.get(key, _Releases(entry, entry, 0))
        found[key] = before._replace(last=entry, times=before.times + 1)
    return list(found.values())


def _row(releases: _Releases) -> tuple[str, ...]:
    entry, pair = releases.first, releases.first.pair
    part = _part_of(entry)
    return (
        _period(entry, releases.last),
        entry.label + (" (seeded: not private)" if entry.seeded else ""),
        entry.unit + (f" in {part}" if part else ""),
        f"{releases.times:,}",
        "by its noise" if pair is None else amount_up(pair[0]),
        "by its noise" if pair is None else chance_up(pair[1]),
    )


def _period(first: Entry, last: Entry) -> str:
    days = (day(first.time), day(last.time))
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def _part_of(entry: Entry) -> str:
    return "" if entry.partition is None else f"{entry.partition}: {entry.part}"


def _kinds(entries: Iterable[Entry]) -> list[str]:
    """Return the kinds of the events, each named once."""
    return sorted({type(leaf).__name__ for entry in entries for leaf, _ in leaves(entry.event)})
