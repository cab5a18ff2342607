"""The report of a ledger for signatories: as text, HTML, JSON, and for a public registry."""

import json
import math
import os
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from skdpot.privacy.checks import check_choice
from skdpot.privacy.events import event_to_json, leaves
from skdpot.privacy.filters import Pair
from skdpot.privacy.records import Entry, json_number

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
    "name is in the label, the table in doc/theory/releases.csv names the sensitivity, the "
    "function that computes it, and the section that proves it. Other charges rest on the word of "
    "whoever charged them."
)
_STYLE = (
    "body{font-family:sans-serif;max-width:60em;margin:2em auto}"
    "td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top}"
)
_MONTHS = (
    "January February March April May June July August September October November December".split()
)
# Prices are computed in doubles: a relative difference of this size is a rounding error.
_NOISE = Decimal("1e-8")


class Section(NamedTuple):
    """A title, paragraphs, and a table, whose first row may name its columns."""

    title: str
    paragraphs: Sequence[str]
    table: Sequence[Sequence[str]] = ()
    has_header: bool = True


class Report(ABC):
    """A report: ``print`` it, end a notebook cell with it, or `save` it."""

    # Most characters of a line of a paragraph.
    _width = 1 << 30

    @abstractmethod
    def _sections(self) -> Iterable[Section]:
        """Return the sections; the title of the first one is that of the report."""

    @abstractmethod
    def _for_json(self) -> Any:
        """Return the report as values for JSON."""

    def __str__(self) -> str:
        lines: list[str] = []
        for section in self._sections():
            lines += [section.title, "-" * len(section.title)]
            for paragraph in section.paragraphs:
                lines += textwrap.wrap(paragraph, self._width)
            lines += [*_in_columns(section.table), ""]
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        return "".join(_as_html(section) for section in self._sections())

    def to_html(self) -> str:
        """Return the report as a page."""
        title = next(iter(self._sections())).title
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
            f"<body>{self._repr_html_()}</body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file.

        Parameters
        ----------
        path : str or Path
            Ends with ".txt", ".html" or ".json".

        Raises
        ------
        ValueError
            If the path has another ending.
        """
        path = Path(path)
        if path.suffix == ".txt":
            text = f"{self}\n"
        elif path.suffix == ".html":
            text = self.to_html()
        elif path.suffix == ".json":
            text = json.dumps(self._for_json(), indent=1, allow_nan=False)
        else:
            raise ValueError(f"path must end with .txt, .html or .json, got {path.name!r}.")
        path.write_text(text, encoding="utf-8")


def _in_columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _as_html(section: Section) -> str:
    said = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs)
    kinds = ["th" if section.has_header else "td"] + ["td"] * len(section.table)
    header, *rows = [
        "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row) + "</tr>"
        for row, kind in zip(section.table, kinds, strict=False)
    ] or [""]
    table = f"<table><thead>{header}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<h3>{escape(section.title)}</h3>{said}" + (table if section.table else "")


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
        Declarations that the file is the right one, after a restore or a lost anchor, as earlier
        versions recorded them: each with its ``time`` and ``reason``.
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
    return (
        f"{day(declaration['time'])}: the ledger's file was declared to be the right one, though "
        f"its anchor did not vouch for it. Reason: {declaration['reason']}."
    )


def _grouped(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Return lists of charges that differ in their time only."""
    found: dict[tuple, list[Entry]] = {}
    for entry in entries:
        key = (entry.unit, entry.label, entry.partition, entry.part, entry.pair, entry.seeded)
        found.setdefault(key, []).append(entry)
    return list(found.values())


def _row(releases: list[Entry]) -> tuple[str, ...]:
    entry, pair = releases[0], releases[0].pair
    part = _part_of(entry)
    return (
        _period(entry, releases[-1]),
        entry.label + (" (seeded: not private)" if entry.seeded else ""),
        entry.unit + (f" in {part}" if part else ""),
        f"{len(releases):,}",
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


def amount_up(number: float) -> str:
    """Return a spent amount, rounded up to two decimals, or to two digits if it is small.

    Examples
    --------
    >>> from skdpot.privacy.report import amount_down, amount_up
    >>> amount_up(2.00000000078653), amount_up(2.001), amount_up(0.00123)
    ('2.00', '2.01', '0.0013')
    >>> amount_down(0.999), amount_down(0.0), amount_down(float("inf"))
    ('0.99', '0.00', 'unlimited')
    """
    return _rounded(number, ROUND_CEILING)


def amount_down(number: float) -> str:
    """Return a remaining amount: as `amount_up`, rounded down."""
    return _rounded(number, ROUND_FLOOR)


def _rounded(number: float, rounding: str) -> str:
    if math.isinf(number):
        return "unlimited"
    if number > 1e15:
        return "more than 1,000,000,000,000,000"
    exact = Decimal(repr(float(number)))
    step = Decimal("0.01")
    if 0 < exact < Decimal("0.1"):
        step = Decimal(1).scaleb(exact.adjusted() - 1)
    nearest = exact.quantize(step)
    shown = nearest if abs(exact - nearest) <= exact * _NOISE else exact.quantize(step, rounding)
    text = f"{shown:,f}"
    # Small amounts have two significant digits, and every amount at least two decimals.
    while text.endswith("0") and len(text.rpartition(".")[2]) > 2:
        text = text[:-1]
    return text


def chance_up(delta: float) -> str:
    """Return a spent delta and its rarity in words, rounded up.

    Examples
    --------
    >>> from skdpot.privacy.report import chance_down, chance_up
    >>> chance_up(1e-5), chance_up(1.234e-6), chance_up(0.0)
    ('0.00001 (1 in 100,000)', '0.0000013 (1 in 810,372)', '0')
    >>> chance_down(1.28e-6)
    '0.0000012 (1 in 781,250)'
    """
    return _chance(delta, ROUND_CEILING, math.floor)


def chance_down(delta: float) -> str:
    """Return a remaining delta, rounded down."""
    return _chance(delta, ROUND_FLOOR, math.ceil)


def _chance(delta: float, rounding: str, rounded_inverse: Callable[[Decimal], int]) -> str:
    if delta == 0:
        return "0"
    exact = Decimal(repr(float(delta)))
    shown = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding).normalize()
    written = f"{shown:f}" if shown >= Decimal("1e-9") else f"{shown:e}"
    return f"{written} (1 in {rounded_inverse(1 / exact):,})"


def factor(epsilon: float) -> str:
    """Return the factor by which an epsilon can raise a probability, rounded up."""
    if epsilon > 30:
        return "more than 10 million million"
    grown = math.exp(epsilon)
    return amount_up(grown) if grown < 100 else f"{math.ceil(grown):,}"


def day(time: str) -> str:
    """Return the UTC day of a time.

    Examples
    --------
    >>> from skdpot.privacy.report import day
    >>> day("2031-03-05T12:00:00+00:00")
    '5 March 2031'
    """
    when = datetime.fromisoformat(time)
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"
