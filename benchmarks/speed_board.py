"""The board of speed: every ratio of the table of benchmarks, and the page that shows it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.contest import Contest, Row
from benchmarks.quiet import QUIET
from benchmarks.report import duration, machine, versions
from benchmarks.stored_board import StoredBoard

ROUNDS = 10
RESULTS = Path(__file__).with_name("speed_results.json")
PAGE = Path(__file__).parents[1] / "doc" / "speed_measured.inc"
HEADINGS = ("work", "peer", "ours", "peer's", "ratio (least to largest)", "reached (ours; peer)")


@dataclass(frozen=True)
class SpeedResult(Row):
    """One comparison of the table.

    Attributes
    ----------
    test : str
        The benchmark that made it.
    place : tuple of int
        Of the benchmark in the table, and of the row in the benchmark.
    machine : str
        On what it was made, and with which versions.
    """

    test: str = ""
    place: tuple[int, int] = (0, 0)
    machine: str = ""

    @property
    def key(self) -> tuple[int, int]:
        return tuple(self.place)

    @property
    def is_behind(self) -> bool:
        return self.ratio is not None and self.ratio < 1


class SpeedBoard(StoredBoard[SpeedResult]):
    """All comparisons of the table."""

    kind: ClassVar = SpeedResult
    file: ClassVar = RESULTS

    def add_rows(self, test: str, place: int, rows: list[Row], contest: Contest) -> None:
        """Keep what a benchmark found."""
        found = machine(contest)
        facts = [found[name] for name in ("Processor", "Memory", "System") if name in found]
        facts[0] += f", {found['Cores']} cores"
        facts += [f"Python {found['Python']}"]
        facts += [f"{name} {it}" for name, it in versions().items() if it[:1].isdigit()]
        for number, row in enumerate(rows):
            more = {"test": test, "place": (place, number), "machine": ", ".join(facts)}
            self.add(SpeedResult(**{name: getattr(row, name) for name in asdict(row)}, **more))


def page_of(board: SpeedBoard) -> str:
    """Return the table as reStructuredText, after what it was measured on."""
    rows = sorted(board.results, key=lambda one: one.key)
    machines = sorted({one.machine for one in rows})
    known = [one.others for one in rows if one.others is not None]
    loud = sum(others > QUIET for others in known)
    rounds = [one.n_rounds for one in rows if one.ratio is not None]
    lines = [
        *(f"Machine and versions: {one}." for one in machines),
        f"In {loud} of {len(known)} comparisons, other programs kept more than {QUIET} cores busy; "
        f"at most {max(known, default=0.0):.1f}. There were {min(rounds, default=0)} rounds or "
        "more. A ratio below 1 is in bold.",
        "",
        ".. csv-table::",
        f"   :header: {_quoted(HEADINGS)}",
        "",
        *(f"   {_quoted(_cells(row))}" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: SpeedResult) -> tuple[str, ...]:
    work = f"{row.work}, {row.ours}"
    if row.ratio is None:
        return work, row.peer, "", "", row.note, ""
    ratio = f"**{row.ratio:.3g}**" if row.is_behind else f"{row.ratio:.3g}"
    least, most = row.ratios
    reached = ", ".join(f"{name} {a:.2g}; {b:.2g}" for name, (a, b) in row.figures.items())
    if row.same_accuracy is False:
        reached += ": the peer misses the tolerance"
    times = (duration(seconds) for seconds in row.seconds)
    reached = ", ".join(filter(None, (reached, row.note)))
    return work, row.peer, *times, f"{ratio} ({least:.3g} to {most:.3g})", reached


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join('"' + word.replace('"', "'") + '"' for word in words)
