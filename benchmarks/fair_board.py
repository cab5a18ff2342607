"""What a repair or correction reached on one split, and numbers and lists for the documentation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

# Gaps that differ by no more than this are called equal.
EQUAL_PARITY = 0.01
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
        How well each attacker names the group of fresh rows.
    n_rows : int
        Training rows.
    """

    table: str
    contender: str
    kind: str
    is_ours: bool
    model: str
    split: int
    utility: dict[str, float]
    parity: dict[str, float]
    group_auc: dict[str, float]
    seconds: float
    n_rows: int


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and its standard error; the error of a single value is NaN."""
    values = np.array(list(values), dtype=float)
    if len(values) < 2:
        return float(values.mean()), float("nan")
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


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


def brief_seconds(values: Sequence[float]) -> str:
    mean = float(np.mean(values))
    return f"{mean:.2g}" if mean < 10 else f"{mean:.0f}"
