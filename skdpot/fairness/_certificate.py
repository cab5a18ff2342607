"""Certificates of a repair, from held-out rows. Proofs: :ref:`certificate`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from skdpot.fairness._confidence import area_under, gap_bound, largest_mean, rank_gap
from skdpot.tables import NOMINAL, NUMERIC, Column

# More rows hardly sharpen bounds, and make the classifier slower.
MOST_ROWS = 10_000
# Bounds from fewer rows say next to nothing, and small groups need their rows for the fit.
_FEWEST = 25
# The probability with which each bound holds.
_CONFIDENCE = 0.95
# Gradient boosting takes categorical features with at most this many values.
_MOST_CATEGORIES = 255


@dataclass(frozen=True)
class FairnessCertificate:
    """Bounds for new rows, each valid with the stated confidence.

    Attributes
    ----------
    confidence : float
        Each bound holds with this probability.
    group_auc : float
        Upper bound of the AUC with which the tested classifier distinguishes any two groups.
    parity_gap : float
        Upper bound of the difference of any two groups' rates, for decisions by any threshold on
        the scores of the tested classifier, or on fair predictions.
    n_rows : dict of label to int
        Number of held-out rows of each group. Groups without held-out rows have no bounds.
    statement : str
        A summary in words.
    """

    confidence: float
    group_auc: float
    parity_gap: float
    n_rows: dict[Any, int]
    statement: str = field(repr=False)

    def __str__(self) -> str:
        return self.statement


def hold_out(groups: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return which rows are held out: a random share of every group.

    Fewer rows of large groups are held out, equally many of each. No rows of small groups are, and
    none at all unless two groups can be compared.
    """
    held_out = np.zeros(len(groups), dtype=bool)
    sizes = np.bincount(groups[groups >= 0])
    numbers = np.minimum((share * sizes).astype(int), MOST_ROWS // max(int((sizes > 0).sum()), 1))
    compared = np.flatnonzero(numbers >= _FEWEST)
    for g in compared if len(compared) > 1 else []:
        rows = np.flatnonzero(groups == g)
        held_out[rng.choice(rows, numbers[g], replace=False)] = True
    return held_out


def certify(
    train: tuple[np.ndarray, np.ndarray],
    held_out: tuple[np.ndarray, np.ndarray],
    columns: list[Column],
    names: Sequence[Any],
    rng: np.random.Generator,
) -> FairnessCertificate:
    """Return the certificate of a repair, from rows that its fit did not use.

    `train` and `held_out` are pairs (codes, groups) of repaired rows: those that the repair was
    fitted to, and those that it does not depend on. They have two groups or more, numbered from 0.
    `names` are the labels of all groups.
    """
    codes, groups = held_out
    probabilities = group_probabilities(train, codes, columns, len(names), rng)
    sizes, risk = np.bincount(groups, minlength=len(names)), 1.0 - _CONFIDENCE
    auc = gap = 0.0
    for a, b in combinations(np.flatnonzero(sizes).tolist(), 2):
        of_pair = (_scores(probabilities[groups == g], a, b) for g in (a, b))
        for x, y in zip(*of_pair, strict=True):
            auc = max(auc, largest_mean(_area(x, y), min(len(x), len(y)), risk))
            gap = max(gap, gap_bound(x, y, risk))
    n_rows = dict(zip(names, sizes.tolist(), strict=True))
    statement = _statement(auc, gap, len(train[0]), n_rows)
    return FairnessCertificate(_CONFIDENCE, auc, gap, n_rows, statement)


def group_probabilities(
    train: tuple[np.ndarray, np.ndarray],
    codes: np.ndarray,
    columns: list[Column],
    n_groups: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the probabilities of all groups for rows, by gradient boosting of other rows."""
    categorical = [
        column.kind == NOMINAL and len(column.values) <= _MOST_CATEGORIES for column in columns
    ]
    classifier = HistGradientBoostingClassifier(
        max_iter=50,
        early_stopping=False,
        categorical_features=categorical,
        random_state=int(rng.integers(2**31)),
    ).fit(_with_missing(train[0], columns), train[1])
    found = np.zeros((len(codes), n_groups))
    found[:, classifier.classes_] = classifier.predict_proba(_with_missing(codes, columns))
    return found


def _with_missing(codes: np.ndarray, columns: list[Column]) -> np.ndarray:
    """Return codes in which missing and unknown labels are NaN, like missing numbers."""
    labelled = np.array([column.kind != NUMERIC for column in columns])
    return np.where(labelled & (codes < 0), np.nan, codes)


def certify_ranks(
    names: Sequence[Any], sizes: Sequence[int], shifts: Sequence[float]
) -> FairnessCertificate:
    """Return the certificate of predictions that are moved by their ranks.

    Ranks are among `sizes` predictions of the same group by an estimator that did not see them, and
    differ by `shifts` from shares of these.
    """
    gap = rank_gap(sizes, shifts, 1.0 - _CONFIDENCE)
    return FairnessCertificate(
        _CONFIDENCE,
        area_under(gap),
        gap,
        dict(zip(names, map(int, sizes), strict=True)),
        f"With confidence {_CONFIDENCE:.0%}, rates of any decision by a threshold on fair "
        f"predictions of new rows differ between two groups by at most {gap:.3f}. This holds "
        "for a full repair, for rows that are distributed in every group as those of the fit, if "
        "the estimator was not trained with rows of the fit. It says nothing about single rows or "
        "error rates.",
    )


def _scores(probabilities: np.ndarray, a: int, b: int) -> list[np.ndarray]:
    of_a, of_b = probabilities[:, a], probabilities[:, b]
    both = of_a + of_b
    ratio = np.divide(of_a, both, out=np.full(len(both), 0.5), where=both > 0)
    return [ratio] if probabilities.shape[1] == 2 else [ratio, of_a, of_b]


def _area(x: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the curve, or 1 minus it if that is larger."""
    x = np.sort(x)
    below, upto = (np.searchsorted(x, y, side) for side in ("left", "right"))
    auc = float((below + upto).mean() / (2 * len(x)))
    return max(auc, 1.0 - auc)


def _statement(auc: float, gap: float, n_known: int, n_rows: dict[Any, int]) -> str:
    compared = {name: n for name, n in n_rows.items() if n}
    too_small = [str(name) for name in n_rows if name not in compared]
    left_out = f"the groups {', '.join(too_small)}, which have too few rows; " if too_small else ""
    return (
        f"With confidence {_CONFIDENCE:.0%} each, from {sum(compared.values())} rows that had no "
        f"part in the fit, at least {min(compared.values())} of every group: gradient boosting, "
        f"trained with {n_known} repaired rows to find the group, tells no two groups apart with "
        f"an AUC above {auc:.3f}, and rates of any decision by a threshold on its scores differ by "
        f"at most {gap:.3f}. Not certified: {left_out}other models, among them models of the same "
        "kind that find the group better, as after training with many new repaired rows; rows that "
        "are distributed otherwise; single rows; error rates; a partial repair."
    )
