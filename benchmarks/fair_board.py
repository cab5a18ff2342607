"""A board of fair tables: who reaches what, who is on the frontier, and lists for a page.

A `Result` is one contender at one level, with one model, on one split. `Board` keeps them, finds by
how much ours is above or below the best peer at equal parity, and writes lists for the
documentation.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

# Gaps that differ by no more than this are called equal.
EQUAL_PARITY = 0.01
# A lead or a loss counts from here on, if it is also beyond two standard errors.
_NOTABLE = 0.005
UNTOUCHED = "no repair"


@dataclass(frozen=True)
class Result:
    """What a model reached on the test rows of a split.

    Attributes
    ----------
    utility : dict of str to float
        Accuracy and AUC of a classifier, R2 of a regressor.
    parity : dict of str to float
        The largest difference of decisions between groups, and the largest Kolmogorov-Smirnov
        distance of scores.
    group_auc : dict of str to float
        How well boosting and a forest recover the group; empty below the full level.
    """

    table: str
    contender: str
    kind: str
    is_ours: bool
    level: float
    model: str
    split: int
    utility: dict[str, float]
    parity: dict[str, float]
    group_auc: dict[str, float]
    seconds: float


# Utility, the parity beside which it is judged, and the contenders that have no such utility.
MEASURES = (
    ("accuracy", "decisions", ()),
    ("AUC", "scores", ("fairlearn, ThresholdOptimizer", "fairlearn, ExponentiatedGradient")),
    ("R2", "scores", ()),
)


@dataclass(frozen=True)
class Verdict:
    """By how much ours is above the peer that comes off best, at equal parity."""

    table: str
    model: str
    measure: str
    ours: str
    against: str
    peer: str
    level: float
    lead: float
    error: float
    gap: float
    reached: bool

    @property
    def is_lost(self) -> bool:
        return -self.lead > max(_NOTABLE, 2 * self.error)

    @property
    def number(self) -> str:
        """Return the lead with its standard error."""
        return f"{self.lead:+.3f} ± {self.error:.3f}"

    @property
    def words(self) -> str:
        """Return the lead, bold where it is lost, and the peer."""
        peer = f"{self.peer.split(', ')[-1]} at {self.level:g}"
        shown = f"**{self.number}**" if self.is_lost else self.number
        return f"{shown} ({peer})"


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and its standard error; the error of a single value is NaN."""
    values = np.array(list(values), dtype=float)
    if len(values) < 2:
        return float(values.mean()), float("nan")
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def shares_at(gaps: np.ndarray, utilities: np.ndarray, gap: float) -> np.ndarray:
    """Return the mixture of points that has the largest utility with at most this gap.

    Points may be mixed at random, row by row, so that all of their convex hull can be reached. If
    none has so small a gap, it is the point with the smallest.
    """
    best, chosen = -np.inf, np.zeros(len(gaps))
    if gap <= gaps.min():
        chosen[np.argmin(gaps)] = 1.0
        return chosen
    for low in np.flatnonzero(gaps <= gap):
        for high in range(len(gaps)):
            share = 0.0
            if gaps[high] > gap:
                share = (gap - gaps[low]) / (gaps[high] - gaps[low])
            elif high != low:
                continue
            value = (1 - share) * utilities[low] + share * utilities[high]
            if value > best:
                best, chosen = value, np.zeros(len(gaps))
                chosen[low] += 1 - share
                chosen[high] += share
    return chosen


@dataclass
class Board:
    """All results, in the order in which they were found."""

    results: list[Result] = field(default_factory=list)

    def select(self, **wanted: object) -> list[Result]:
        """Return the results whose attributes are as wanted."""
        return [
            one
            for one in self.results
            if all(getattr(one, name) == value for name, value in wanted.items())
        ]

    def names(self, attribute: str, results: Sequence[Result] | None = None) -> list[str]:
        """Return the values of an attribute in the order in which they occur."""
        results = self.results if results is None else results
        return list(dict.fromkeys(getattr(one, attribute) for one in results))

    def verdict(
        self, table: str, model: str, measure: str, ours: str, against: str
    ) -> Verdict | None:
        """Compare ours with every peer of a kind at every level; None where there is none.

        The peer that comes off best, in standard errors or more than so much, is the one shown.
        """
        measure, parity, without = next(one for one in MEASURES if one[0] == measure)
        here = [one for one in self.select(table=table, model=model) if measure in one.utility]
        points = self._points(
            [one for one in here if one.contender in (ours, UNTOUCHED)], measure, parity
        )
        peers = [
            one
            for one in here
            if one.kind == against
            and not one.is_ours
            and one.contender not in (*without, UNTOUCHED)
        ]
        rivals = self._points(peers, measure, parity)
        if not rivals or len(points) < 2:
            return None
        gaps, utilities = (np.array([p[k].mean() for p in points.values()]) for k in (0, 1))
        found = []
        for (peer, level), (rival_gaps, rival_utilities) in rivals.items():
            gap = rival_gaps.mean()
            shares = shares_at(gaps, utilities, gap + EQUAL_PARITY)
            own = shares @ np.array([p[1] for p in points.values()])
            lead, error = mean_and_error(own - rival_utilities)
            found.append(
                Verdict(
                    *(table, model, measure, ours, against, peer, level, lead, error, float(gap)),
                    reached=bool(gap + EQUAL_PARITY >= gaps.min()),
                )
            )
        return min(found, key=lambda one: one.lead)

    def _points(self, results, measure, parity):
        """Return the gaps and utilities of all splits by contender and level."""
        found = {}
        for one in sorted(results, key=lambda one: one.split):
            key = one.contender, one.level
            found.setdefault(key, ([], []))
            found[key][0].append(one.parity[parity])
            found[key][1].append(one.utility[measure])
        return {key: (np.array(a), np.array(b)) for key, (a, b) in found.items()}

    def save(self, path: Path) -> None:
        """Write all results; those of other tables that the file holds are kept."""
        kept = Board.load(path).results if path.exists() else []
        tables = self.names("table")
        kept = [one for one in kept if one.table not in tables]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(one) for one in [*kept, *self.results]]))

    @classmethod
    def load(cls, path: Path) -> "Board":
        """Read what `save` wrote."""
        return cls([Result(**one) for one in json.loads(path.read_text())])


def brief(values: Sequence[float], digits: int = 3) -> str:
    """Return a mean with the standard error of its last digit in brackets, as .834(3)."""
    mean, error = mean_and_error(values)
    shown = f"{mean:.{digits}f}".replace("0.", ".", 1) if abs(mean) < 1 else f"{mean:.{digits}f}"
    return shown if np.isnan(error) else f"{shown}({round(error * 10**digits)})"


def list_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table for the documentation."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (headings, *rows):
        marks = ["   * - ", *["     - "] * (len(row) - 1)]
        lines += [(mark + word).rstrip() for mark, word in zip(marks, row, strict=True)]
    return [*lines, ""]


def table_of(board: Board, table: str) -> list[str]:
    """Return the lines of what every contender reached on one table, fully repaired."""
    here = [one for one in board.select(table=table) if one.level == 1.0]
    models = board.names("model", here)
    measures = list(here[0].utility)
    headings = ["", *measures, "gap of decisions", "KS of scores", "group AUC", "seconds"]
    rows = []
    for name in board.names("contender", here):
        of = {m: [one for one in here if one.contender == name and one.model == m] for m in models}
        of = {model: results for model, results in of.items() if results}

        def both(pick, digits=3, of=of):
            return " / ".join(brief([pick(one) for one in each], digits) for each in of.values())

        row = [name, *(both(lambda one, m=m: one.utility[m]) for m in measures)]
        row += [both(lambda one, p=p: one.parity[p]) for p in ("decisions", "scores")]
        first = next(iter(of.values()))
        if first[0].kind == "correction":
            worst = [both(lambda one: max(one.group_auc.values()), 2)]
        else:
            worst = [brief([one.group_auc[a] for one in first], 2) for a in first[0].group_auc]
        row += [
            " / ".join(worst),
            brief_seconds([one.seconds for each in of.values() for one in each]),
        ]
        rows.append(row)
    return list_table(headings, rows)


def brief_seconds(values: Sequence[float]) -> str:
    mean = float(np.mean(values))
    return f"{mean:.2g}" if mean < 10 else f"{mean:.0f}"


def verdicts_of(board: Board, ours: str, against: str) -> list[Verdict]:
    """Return all verdicts of one of ours, table by table and model by model."""
    found = [
        board.verdict(table, model, measure, ours, against)
        for table in board.names("table")
        for model in board.names("model", board.select(table=table))
        for measure, _, _ in MEASURES
        if measure in board.select(table=table)[0].utility
    ]
    return [one for one in found if one is not None]


def losses_of(board: Board, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of all verdicts that are lost, the largest first."""
    lost = [one for column in columns for one in verdicts_of(board, *column) if one.is_lost]
    headings = ["table", "model", "measure", "ours", "peer", "lead", "its gap", "ours reaches it"]
    rows = [
        [
            *(one.table, one.model, one.measure, one.ours, f"{one.peer} at {one.level:g}"),
            *(one.number, f"{one.gap:.3f}", "yes" if one.reached else "no"),
        ]
        for one in sorted(lost, key=lambda one: one.lead)
    ]
    return list_table(headings, rows) if rows else ["None.", ""]


def frontier_of(board: Board, columns: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of the leads; `columns` are one of ours, and the kind of its peers."""
    cells: dict[tuple[str, str, str], dict] = {}
    for column in columns:
        for one in verdicts_of(board, *column):
            cells.setdefault((one.table, one.model, one.measure), {})[column] = one.words
    headings = ["table", "model", "measure", *(f"{a}, against {b}s" for a, b in columns)]
    rows = [
        [*key, *(found.get(column, "no peer") for column in columns)]
        for key, found in cells.items()
    ]
    return list_table(headings, rows)


def summary_of(board: Board) -> list[str]:
    """Return the lines of means over the tables of classifiers, which all contenders have."""
    here = [one for one in board.select(level=1.0) if "AUC" in one.utility]
    models = board.names("model", here)
    rows = []
    for name in board.names("contender", here):
        of = [
            [one for one in here if one.contender == name and one.model == model]
            for model in models
        ]

        def both(pick, digits=3, of=of):
            return " / ".join(brief([np.mean([pick(one) for one in each])], digits) for each in of)

        rows.append(
            [
                name,
                *(both(lambda one, m=m: one.utility[m]) for m in ("accuracy", "AUC")),
                *(both(lambda one, p=p: one.parity[p]) for p in ("decisions", "scores")),
                _worst(of, both),
            ]
        )
    headings = ["", "accuracy", "AUC", "gap of decisions", "KS of scores", "group AUC"]
    return list_table(headings, rows)


def _worst(of, both):
    """Return the larger group AUC of the detectives: one for rows, two for scores."""
    shown = both(lambda one: max(one.group_auc.values()), 2)
    return shown if of[0][0].kind == "correction" else shown.split(" / ")[0]


def page_of(board: Board, columns: Sequence[tuple[str, str]], titles: Mapping[str, str]) -> str:
    """Return sections for the documentation: losses, leads, and every table."""
    lines = ["Where ours loses", "----------------", "", *losses_of(board, columns)]
    lines += ["Leads at equal parity", "---------------------", "", *frontier_of(board, columns)]
    lines += ["Table by table", "--------------", ""]
    for table in board.names("table"):
        lines += [titles[table], "~" * len(titles[table]), "", *table_of(board, table)]
    return "\n".join(lines)
