"""The report of a ledger, as text and as HTML."""

from dataclasses import dataclass
from html import escape

from skdpot.privacy._history import Entry
from skdpot.privacy._ledger_checks import said_pair
from skdpot.privacy.filters import Pair


@dataclass(frozen=True)
class UnitSummary:
    """What releases cost one kind of unit.

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

    def __str__(self) -> str:
        return f"{self.unit}: spent {said_pair(self.spent)}, left {said_pair(self.left)}"


@dataclass(frozen=True)
class LedgerReport:
    """A summary of a ledger: ``print`` it, or end a notebook cell with it.

    Attributes
    ----------
    budget : str
        The budget and the relation, in words.
    rule : str
        By what charges are admitted.
    units : list of UnitSummary
        One for every unit that something was charged for.
    entries : list of Entry
        All charges.
    """

    budget: str
    rule: str
    units: list[UnitSummary]
    entries: list[Entry]

    def __str__(self) -> str:
        lines = [f"Privacy ledger: {self.budget}", f"Charges are admitted by {self.rule}."]
        lines += [f"  {summary}" for summary in self.units]
        header = ("unit", "label", "epsilon", "delta", "part", "event")
        rows = [header, *(_row(entry) for entry in self.entries)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header) - 1)]
        for row in rows if self.entries else []:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
            lines.append("  ".join([*cells, row[-1]]))
        if not self.entries:
            lines.append("Nothing was released.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        summaries = "".join(f"<li>{escape(str(summary))}</li>" for summary in self.units)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _row(entry)) + "</tr>"
            for entry in self.entries
        )
        return (
            f"<p><b>Privacy ledger</b>: {escape(self.budget)}<br>Charges are admitted by "
            f"{escape(self.rule)}.</p><ul>{summaries}</ul><table><thead><tr><th>unit</th>"
            "<th>label</th><th>epsilon</th><th>delta</th><th>part</th><th>event</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def _row(entry: Entry) -> tuple[str, ...]:
    pair = entry.pair
    part = "" if entry.partition is None else f"{entry.partition}: {entry.part}"
    return (
        entry.unit,
        entry.label + (" (seeded: not private)" if entry.seeded else ""),
        "" if pair is None else f"{pair[0]:.6g}",
        "" if pair is None else f"{pair[1]:.3g}",
        part,
        str(entry.event),
    )
