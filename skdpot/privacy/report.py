"""The report of a ledger for signatories: as text, HTML and JSON."""

import json
import math
import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any

from skdpot.privacy.events import event_to_json
from skdpot.privacy.filters import Pair
from skdpot.privacy.records import Entry, json_number

# A title, paragraphs, and a table, whose first row names its columns; empty without one.
Section = tuple[str, Sequence[str], Sequence[Sequence[str]]]


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
        for title, paragraphs, table in self._sections():
            lines += [title, "-" * len(title)]
            for paragraph in paragraphs:
                lines += textwrap.wrap(paragraph, self._width)
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            for row in table:
                cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
                lines.append("  ".join(cells).rstrip())
            lines.append("")
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        return "".join(_as_html(*section) for section in self._sections())

    def to_html(self) -> str:
        """Return the report as a page."""
        title, *_ = next(iter(self._sections()))
        style = (
            "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
            "td,th{text-align:left;padding:.1em .8em .1em 0;vertical-align:top}"
            "td{overflow-wrap:anywhere;min-width:3.5em}table{font-size:.8em}"
            "@media print{body{font-size:10pt}}"
        )
        return (
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
            f"<title>{escape(title)}</title><style>{style}</style></head>"
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
        forms = {
            ".txt": lambda: f"{self}\n",
            ".html": self.to_html,
            # NaN and infinity are no JSON.
            ".json": lambda: json.dumps(self._for_json(), indent=1, allow_nan=False),
        }
        if path.suffix not in forms:
            raise ValueError(f"path must end with .txt, .html or .json, got {path.name!r}.")
        path.write_text(forms[path.suffix](), encoding="utf-8")


def _as_html(title: str, paragraphs: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    # Labels are text of users, and no markup.
    said = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    # Notebooks, which do not have the style of the page, may break long events there.
    cells = [[escape(cell).replace("(", "(<wbr>") for cell in row] for row in table]
    header, *rows = [
        "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in row) + "</tr>"
        for row, kind in zip(cells, ["th"] + ["td"] * len(table), strict=False)
    ] or [""]
    tagged = f"<table><thead>{header}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<h3>{escape(title)}</h3>{said}" + (tagged if table else "")


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
    units : dict
        For each charged unit, the pairs (epsilon, delta) that are spent and left.
    entries : list of Entry
        All charges.
    """

    _width = 100

    time: str
    identity: str
    place: str
    epsilon: float
    delta: float
    neighbouring: str
    rule: str
    units: dict[str, tuple[Pair, Pair]]
    entries: list[Entry]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON; an infinite number is "inf".

        Returns
        -------
        dict
            ``time``, ``ledger``, ``place``, ``budget`` (epsilon and delta), ``neighbouring`` and
            ``rule``; ``units``, with the exact pairs ``spent`` and ``left`` and the ``sentence``
            on who is protected; ``charges``, with all recorded values.
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
                    "unit": unit,
                    "spent": [json_number(number) for number in spent],
                    "left": [json_number(number) for number in left],
                    "sentence": self._protection(unit),
                }
                for unit, (spent, left) in self.units.items()
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
        }

    _for_json = as_dict

    def _sections(self) -> list[Section]:
        return [
            (
                f"Privacy report of {day(self.time)}",
                [
                    f"Based on every entry of ledger {self.identity}, in {self.place}. Spent "
                    "amounts are rounded up, remaining ones down."
                ],
                (),
            ),
            ("Who is protected, and against what", self._who(), ()),
            self._what(),
            ("What is left", self._left(), ()),
            self._appendix(),
        ]

    def _who(self) -> list[str]:
        if not self.units:
            return ["Nothing was released, so nobody needs protection."]
        said = [self._protection(unit) for unit in self.units]
        if "record" in self.units:
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

    def _protection(self, unit: str) -> str:
        (epsilon, delta), _ = self.units[unit]
        if not math.isfinite(epsilon):
            return f"No {unit} is protected: what was released has no finite epsilon."
        seeded = sum(entry.seeded for entry in self.entries if entry.unit == unit)
        changing = "replacing" if self.neighbouring == "replace_one" else "adding or removing"
        who = f"Every {unit} is protected:"
        if seeded:
            who = (
                f"No {unit} is protected from whoever knows the seed of {seeded} of the releases, "
                "which can be reproduced from it. For all others:"
            )
        plus = f", but for an added probability of {chance(delta)} (delta)" if delta else ""
        only = f" for the unit {unit}" if len(self.units) > 1 else ""
        return (
            f"{who} {changing} the data of one {unit} changes the probability of any outcome of "
            f"all releases{only} by a factor of at most {factor(epsilon)} (epsilon "
            f"{amount(epsilon)}){plus}."
        )

    def _what(self) -> Section:
        if not self.entries:
            return "What was released", ["Nothing was released."], ()
        head = ("when", "what", "for", "times", "epsilon of each", "delta of each")
        rows = [head, *map(_row, _grouped(self.entries))]
        count = f"{len(self.entries):,} release" + ("s" if len(self.entries) > 1 else "")
        said = [f"{count}, {_period(self.entries[0], self.entries[-1])}:"]
        return "What was released", said, rows

    def _left(self) -> list[str]:
        if not math.isfinite(self.epsilon):
            return ["No budget is set: releases are recorded, and none is refused."]
        budget = f"epsilon {amount(self.epsilon)} and delta {chance(self.delta)}"
        if not self.units:
            return [f"All of the budget: {budget} for every unit."]
        return [
            f"Of the budget of {budget} for every {unit}, epsilon {amount(spent[0])} "
            f"and delta {chance(spent[1])} are spent. Another release may cost at most "
            f"epsilon {amount(left[0], ROUND_FLOOR)} and delta {chance(left[1], ROUND_FLOOR)}."
            for unit, (spent, left) in self.units.items()
        ]

    def _appendix(self) -> Section:
        exact = [
            f"Spent per {unit}: {spent!r}; left: {left!r}."
            for unit, (spent, left) in self.units.items()
        ]
        rows = [("number", "time", "unit", "label", "part", "event", "digest")]
        for each in self.entries:
            about = (str(each.number), each.time, each.unit, each.label, _part_of(each))
            rows.append((*about, str(each.event), each.digest[:12]))
        about_sensitivities = (
            "An event states the noise of a release as a multiple of its sensitivity: the largest "
            "change of what is released, without noise, if the data of one unit change. For each "
            "estimator, whose name is in the label, the table in doc/theory/releases.csv names the "
            "sensitivity, the function that computes it, and the section that proves it. Other "
            "charges rest on the word of whoever charged them."
        )
        said = [
            f"Budget: ({self.epsilon!r}, {self.delta!r}). Neighbouring relation: "
            f"{self.neighbouring}. Charges are admitted by {self.rule}.",
            *exact,
            *([about_sensitivities] if self.entries else []),
        ]
        return "Technical appendix", said, rows if self.entries else ()


def _grouped(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Return lists of charges that differ in their time only."""
    # Without the event, which the appendix shows.
    kind = attrgetter("unit", "label", "partition", "part", "pair", "seeded", "released")
    found: dict[tuple, list[Entry]] = {}
    for entry in entries:
        found.setdefault(kind(entry), []).append(entry)
    return list(found.values())


def _row(releases: list[Entry]) -> tuple[str, ...]:
    entry, pair = releases[0], releases[0].pair
    part = _part_of(entry)
    return (
        _period(entry, releases[-1]),
        entry.label
        + " (seeded: not private)" * entry.seeded
        + " (charged, not released)" * (not entry.released),
        entry.unit + (f" in {part}" if part else ""),
        f"{len(releases):,}",
        "by its noise" if pair is None else amount(pair[0]),
        "by its noise" if pair is None else chance(pair[1]),
    )


def _period(first: Entry, last: Entry) -> str:
    days = (day(first.time), day(last.time))
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def _part_of(entry: Entry) -> str:
    return "" if entry.partition is None else f"{entry.partition}: {entry.part}"


def amount(number: float, rounding: str = ROUND_CEILING) -> str:
    """Return an amount, rounded up to two decimals, or to two digits if it is small.

    Amounts that remain are rounded down.

    Examples
    --------
    >>> from decimal import ROUND_FLOOR
    >>> from skdpot.privacy.report import amount
    >>> amount(2.00000000078653), amount(2.001), amount(0.00123)
    ('2.00', '2.01', '0.0013')
    >>> [amount(number, ROUND_FLOOR) for number in (0.999, 0.0, float("inf"))]
    ['0.99', '0.00', 'unlimited']
    """
    if math.isinf(number):
        return "unlimited"
    if number > 1e15:
        return "more than 1,000,000,000,000,000"
    exact = Decimal(repr(float(number)))
    step = Decimal("0.01")
    if 0 < exact < Decimal("0.1"):
        step = Decimal(1).scaleb(exact.adjusted() - 1)
    nearest = exact.quantize(step)
    # Prices are computed in doubles: a relative difference of 1e-8 is a rounding error.
    is_noise = abs(exact - nearest) <= exact * Decimal("1e-8")
    shown = nearest if is_noise else exact.quantize(step, rounding)
    text = f"{shown:,f}"
    # Small amounts have two significant digits, and every amount at least two decimals.
    while text.endswith("0") and len(text.rpartition(".")[2]) > 2:
        text = text[:-1]
    return text


def chance(delta: float, rounding: str = ROUND_CEILING) -> str:
    """Return a delta and its rarity in words, rounded up; one that remains is rounded down.

    Examples
    --------
    >>> from decimal import ROUND_FLOOR
    >>> from skdpot.privacy.report import chance
    >>> chance(1e-5), chance(1.234e-6), chance(0.0)
    ('0.00001 (1 in 100,000)', '0.0000013 (1 in 810,372)', '0')
    >>> chance(1.28e-6, ROUND_FLOOR)
    '0.0000012 (1 in 781,250)'
    """
    if delta == 0:
        return "0"
    exact = Decimal(repr(float(delta)))
    shown = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding).normalize()
    written = f"{shown:f}" if shown >= Decimal("1e-9") else f"{shown:e}"
    inverse = math.floor(1 / exact) if rounding == ROUND_CEILING else math.ceil(1 / exact)
    return f"{written} (1 in {inverse:,})"


def factor(epsilon: float) -> str:
    """Return the factor by which an epsilon can raise a probability, rounded up."""
    # From there on nobody needs the number.
    if epsilon > 30:
        return "more than 10 million million"
    grown = math.exp(epsilon)
    return amount(grown) if grown < 100 else f"{math.ceil(grown):,}"


def day(time: str) -> str:
    """Return the UTC day of a time.

    Examples
    --------
    >>> from skdpot.privacy.report import day
    >>> day("2031-03-05T12:00:00+00:00")
    '5 March 2031'
    """
    when = date.fromisoformat(time[:10])
    # Not by strftime, which speaks the language of the machine.
    months = "January February March April May June July August September October November December"
    return f"{when.day} {months.split()[when.month - 1]} {when.year}"
