"""Trees of depth two, searched exhaustively for the largest difference between groups.

A tree asks one question, and then another one that depends on the answer. Its outputs in the four
leaves can be any numbers in [0, 1], for any training target. So the mean outputs of two groups
differ by at most a sum of differences of probabilities: over the leaves that are likelier in one of
the groups.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from skdpot.tables import NOMINAL, Column

# Maximum and minimum number of questions for a column, and about the maximum for all columns.
_MOST_OF_COLUMN, _LEAST_OF_COLUMN, _MOST = 32, 3, 600


@dataclass(frozen=True)
class Question:
    """A question of a tree about a row: is a column's value below, or equal to, a value?"""

    column: int
    value: float
    is_category: bool

    def answers(self, codes: np.ndarray) -> np.ndarray:
        """Return which rows answer yes; a missing value is -1, or below all numbers."""
        values = codes[:, self.column]
        if self.is_category:
            return values == self.value
        return ~(values > self.value)


def find_questions(codes: np.ndarray, columns: list[Column]) -> list[Question]:
    """Return the questions that rows suggest: quantiles of numbers, the largest categories."""
    of_column = np.clip(_MOST // max(len(columns), 1), _LEAST_OF_COLUMN, _MOST_OF_COLUMN)
    questions = []
    for j, column in enumerate(columns):
        values, counts = np.unique(codes[:, j], return_counts=True)
        if column.kind == NOMINAL:
            kept = values[np.argsort(-counts, kind="stable")[:of_column]]
        else:
            levels = np.linspace(0.0, 1.0, of_column + 2)[1:-1]
            known = codes[~np.isnan(codes[:, j]), j]
            kept = np.unique(np.quantile(known, levels, method="lower")) if len(known) else known
            if len(known) < len(codes):
                kept = np.append(kept, -np.inf)
        questions += [Question(j, float(value), column.kind == NOMINAL) for value in kept]
    return questions


def differences(
    codes: np.ndarray, groups: np.ndarray, questions: list[Question]
) -> dict[tuple[int, int], float]:
    """Return the largest difference between any two groups in the leaves of a tree."""
    answers = np.column_stack([question.answers(codes) for question in questions])
    shares = {}
    for g in np.unique(groups):
        of_group = answers[groups == g].astype(np.float32)
        # Sums of ones below 2**24 are exact.
        shares[g] = (of_group.T @ of_group).astype(np.float64) / len(of_group)
    return {(a, b): _best_tree(shares[a] - shares[b]) for a, b in combinations(shares, 2)}


def _best_tree(both: np.ndarray) -> float:
    """Return the largest sum of positive differences of leaves.

    `both` is the difference, between groups, of the shares of rows that answer yes to two
    questions.
    """
    of_one = np.diag(both)
    under_yes = _positive(both) + _positive(of_one[:, None] - both)
    neither = both - of_one[:, None] - of_one
    under_no = _positive(of_one - both) + _positive(neither)
    return float((under_yes.max(axis=1) + under_no.max(axis=1)).max())


def _positive(numbers: np.ndarray) -> np.ndarray:
    return np.maximum(numbers, 0.0)
