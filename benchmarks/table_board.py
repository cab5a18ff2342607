"""A board of private tables: what each method reached, where ours is behind, lists for a page.

A `TableResult` is what one method made of one table at one epsilon with one seed. `TableBoard`
keeps them in a file of the repository, so that what is slow is computed once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fair_board import brief, brief_seconds, list_table, mean_and_error
from benchmarks.stored_board import StoredBoard

OURS, BINNED, REAL = "ours", "ours, in bins", "real records"
RESULTS = Path(__file__).with_name("table_results.json")
DOC = Path(__file__).parents[1] / "doc"
PAGE, SUMMARY = DOC / "tables_measured.inc", DOC / "measured" / "tables.csv"
ERRORS_SUMMARY = DOC / "measured" / "tables_errors.csv"
# The first table of the page shows these beside ours.
SUMMARISED = ("AIM", "MST")
DELTA = 1e-6
# Epsilons of the page's first table.
EPSILONS = (0.2, 1.0, 10.0)
# Epsilons at which ours is to be at least level.
JUDGED = (1.0, 10.0)
# Measures by the headings of the page; of errors, less is better.
UTILITIES = {"boosting": "boosting", "linear": "linear"}
ERRORS = {
    "one_way": "one-way",
    "two_way": "two-way",
    "three_way": "three-way",
    "correlation": "correlations",
    "strong": "strong correlations",
    "wasserstein": "Wasserstein",
    "tails": "99th percentiles",
    "missing": "missing patterns",
    "propensity": "propensity",
    "noise": "noise target",
}
# A difference that is smaller than this is not called a loss.
_NEGLIGIBLE = 0.0005


@dataclass(frozen=True)
class TableResult:
    """What one method made of one table.

    Attributes
    ----------
    measures : dict of str to float
        Utilities, AUC or R2 on real test records, and errors.
    seconds, megabytes : float
        Of the processor, to fit and to sample; the largest memory of the process.
    version : str
        Of the package, with the options that are not its defaults.
    failure : str
        Why there are no measures: an error, or more seconds than allowed.
    """

    table: str
    method: str
    epsilon: float
    seed: int
    measures: dict[str, float]
    seconds: float
    megabytes: float
    version: str
    failure: str = ""

    @property
    def key(self) -> tuple:
        return self.table, self.method, self.epsilon, self.seed


@dataclass(frozen=True)
class Standing:
    """By how much ours is ahead of the peer that is best by one measure."""

    table: str
    epsilon: float
    measure: str
    ours: float
    peer: str
    best: float
    lead: float
    error: float

    @property
    def is_behind(self) -> bool:
        """Tell whether ours is worse by more than one standard error."""
        return -self.lead > max(self.error, _NEGLIGIBLE)


class TableBoard(StoredBoard[TableResult]):
    """All results of tables, and how ours stands among them."""

    kind, file = TableResult, RESULTS

    def methods(self, results: Iterable[TableResult]) -> list[str]:
        """Return the methods of results: real records, ours, and the others by name."""
        rank = {REAL: 0, OURS: 1, BINNED: 2}
        return sorted({one.method for one in results}, key=lambda name: (rank.get(name, 2), name))

    def standing(
        self, table: str, epsilon: float, measure: str, own: str = OURS
    ) -> Standing | None:
        """Compare ours with the peer that is best by a measure; None where there is none.

        The standard error of a peer with a single run is taken to be that of a run of ours. It is 0
        while ours has a single run as well.
        """
        here = [one for one in self.select(table=table, epsilon=epsilon) if measure in one.measures]
        runs: dict[str, list[float]] = {}
        for one in here:
            runs.setdefault(one.method, []).append(one.measures[measure])
        ours = {name: runs.pop(name, []) for name in (OURS, BINNED)}[own]
        if not ours or not runs:
            return None
        sign = 1 if measure in UTILITIES else -1
        peer = max(runs, key=lambda name: sign * float(np.mean(runs[name])))
        of_ours, own_error = mean_and_error(ours)
        best, error = mean_and_error(runs[peer])
        if np.isnan(error):
            error = own_error * np.sqrt(len(ours))
        lead, error = sign * (of_ours - best), float(np.nan_to_num(np.hypot(own_error, error)))
        return Standing(table, epsilon, measure, of_ours, peer, best, lead, error)

    def standings(self, tables: Iterable[str], own: str = OURS) -> list[Standing]:
        """Return all comparisons with the best peer, table by table."""
        found = [
            self.standing(table, epsilon, measure, own)
            for table in tables
            for epsilon in JUDGED
            for measure in (*UTILITIES, *ERRORS)
        ]
        return [one for one in found if one is not None]


def table_of(board: TableBoard, table: str) -> list[str]:
    """Return the lines of what every method reached on one table."""
    here = board.select(table=table)
    shown = [name for name in (*UTILITIES, *ERRORS) if any(name in one.measures for one in here)]
    rows = []
    for epsilon in (None, *sorted({one.epsilon for one in here if one.epsilon}, reverse=True)):
        at = [one for one in here if one.epsilon == (epsilon or 0.0)]
        for method in board.methods(at):
            rows.append(_row([one for one in at if one.method == method], epsilon, shown))
    names = [UTILITIES.get(name) or ERRORS[name] for name in shown]
    return list_table(["method", "epsilon", *names, "seconds", "MB"], rows)


def _row(runs: Sequence[TableResult], epsilon: float | None, shown: Sequence[str]) -> list[str]:
    method = f"**{OURS}**" if runs[0].method == OURS else runs[0].method
    failures = ", ".join(sorted({one.failure for one in runs if one.failure}))
    runs = [one for one in runs if not one.failure]
    if not runs:
        return [method, f"{epsilon:g}", *[""] * len(shown), failures, ""]
    cells = [
        _brief([one.measures[name] for one in runs if name in one.measures], name) for name in shown
    ]
    if epsilon is None:
        return [method, "", *cells, "", ""]
    return [
        *(method, f"{epsilon:g}", *cells, brief_seconds([one.seconds for one in runs])),
        f"{np.mean([one.megabytes for one in runs]):.0f}",
    ]


def _brief(values: Sequence[float], measure: str) -> str:
    """Return a mean; errors are small, and have a digit more. Older runs lack some measures."""
    return brief(values, 3 if measure in UTILITIES else 4) if values else ""


def behind_of(board: TableBoard, titles: dict[str, str], own: str = OURS) -> list[str]:
    """Return the lines of all comparisons that ours loses, the largest loss in errors first."""
    lost = [one for one in board.standings(titles, own) if one.is_behind]
    rows = [
        [
            *(titles[one.table], f"{one.epsilon:g}", (UTILITIES | ERRORS)[one.measure]),
            *(_brief([one.ours], one.measure), f"{_brief([one.best], one.measure)} ({one.peer})"),
            f"{one.error:.4f}",
        ]
        for one in lost
    ]
    headings = ["table", "epsilon", "measure", "ours", "best peer", "standard error"]
    return list_table(headings, rows) if rows else ["None.", ""]


def versions_of(board: TableBoard) -> list[str]:
    """Return the lines of which versions were run, and with which options."""
    found: dict[tuple[str, str], set[int]] = {}
    for one in board.results:
        if one.method != REAL:
            found.setdefault((one.method, one.version), set()).add(one.seed)
    rows = [[*key, str(len(found[key]))] for key in sorted(found)]
    return list_table(["method", "version and options", "seeds"], rows)


def page_of(board: TableBoard, titles: dict[str, str]) -> str:
    """Return sections for the documentation."""
    titles = {name: title for name, title in titles.items() if board.select(table=name)}
    lines = []
    for own in (OURS, BINNED):
        title = f"Where {own} is behind"
        lines += [title, "-" * len(title), "", *behind_of(board, titles, own)]
    for table, title in titles.items():
        lines += [title, "-" * len(title), "", *table_of(board, table)]
    lines += ["Versions", "--------", "", *versions_of(board)]
    return "\n".join(lines)


def summary_of(board: TableBoard, titles: dict[str, str]) -> str:
    """Return the first table of the page as CSV: what boosting reached with each method."""
    headings = [
        f"{epsilon:g}: {name}" if name == OURS else name
        for epsilon in EPSILONS[::-1]
        for name in (OURS, *SUMMARISED)
    ]
    lines = [["table", "real", *headings]]
    for table, title in titles.items():
        if not board.select(table=table):
            continue
        cells = [_boosting(board, table, REAL, 0.0)]
        for epsilon in EPSILONS[::-1]:
            cells += [_boosting(board, table, name, epsilon) for name in (OURS, *SUMMARISED)]
        lines.append([title, *cells])
    return "".join(",".join(line) + "\n" for line in lines)


def errors_of(board: TableBoard, titles: dict[str, str], epsilon: float = 1.0) -> str:
    """Return the page's table of errors as CSV: ours by bounds, in bins, and the best peer."""
    shown = ("one_way", "two_way", "three_way")
    headings = [
        cell for name in shown for cell in (f"{ERRORS[name]}: ours", "in bins", "best peer")
    ]
    lines = [["table", *headings]]
    for table, title in titles.items():
        cells = []
        for name in shown:
            found = [board.standing(table, epsilon, name, own) for own in (OURS, BINNED)]
            if all(found):
                cells += [f"{_brief([one.ours], name)}" for one in found]
                cells.append(f"{_brief([found[0].best], name)} {found[0].peer}")
        if cells:
            lines.append([title, *cells])
    return "".join(",".join(line) + "\n" for line in lines)


def _boosting(board: TableBoard, table: str, method: str, epsilon: float) -> str:
    runs = board.select(table=table, method=method, epsilon=epsilon)
    return _brief([one.measures["boosting"] for one in runs if not one.failure], "boosting")
