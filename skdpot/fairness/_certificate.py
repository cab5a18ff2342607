"""Certificates of a repair, from held-out rows. Proofs: :ref:`certificate`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from skdpot.fairness._confidence import (
    area_under,
    gap_bound,
    gap_radius,
    largest_gap,
    largest_mean,
    rank_gap,
)
from skdpot.fairness._group_finders import FAMILY, group_probabilities
from skdpot.fairness._small_trees import differences, find_questions
from skdpot.tables import Column

# More rows hardly sharpen bounds, and make learners slower.
MOST_ROWS = 10_000
# Bounds from fewer rows say next to nothing, and small groups need their rows for the fit.
_FEWEST = 25
# The probability with which each bound holds.
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class GroupBounds:
    """Bounds for two groups, or for all pairs, by one classifier or by several.

    Attributes
    ----------
    group_auc : float
        Upper bound of the AUC with which a classifier distinguishes two groups.
    parity_gap : float
        Upper bound of the difference of two groups' rates, for decisions by any threshold.
    seen_auc, seen_gap : float
        The same, as measured on the held-out rows; they vary by chance.
    """

    group_auc: float
    parity_gap: float
    seen_auc: float
    seen_gap: float


@dataclass(frozen=True)
class FairnessCertificate:
    """Bounds for new rows, each valid with the stated confidence.

    Attributes
    ----------
    confidence : float
        Each bound holds with this probability. `group_auc`, `parity_gap` and `tree_gap` are the
        largest of many bounds, and hold for all of these at once.
    group_auc : float
        Upper bound of the AUC with which a tested learner distinguishes any two groups.
    parity_gap : float
        Upper bound of the difference of any two groups' rates, for decisions by any threshold on
        the scores of a tested learner.
    tree_gap : float or None
        Upper bound of the same for every decision tree of two levels, for any target.
    by_learner : dict of str to GroupBounds
        The bounds of each learner.
    by_pair : dict of (label, label) to GroupBounds
        The bounds of each pair of groups, for all learners.
    n_rows : dict of label to int
        Number of held-out rows of each group. Groups without held-out rows have no bounds.
    statement : str
        A summary in words.
    """

    confidence: float
    group_auc: float
    parity_gap: float
    tree_gap: float | None
    n_rows: dict[Any, int]
    statement: str = field(repr=False)
    by_learner: dict[str, GroupBounds] = field(default_factory=dict, repr=False)
    by_pair: dict[Any, GroupBounds] = field(default_factory=dict, repr=False)

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
    *,
    n_jobs: int | None = None,
    learners: Sequence[str] = tuple(FAMILY),
) -> FairnessCertificate:
    """Return the certificate of a repair, from rows that its fit did not use.

    `train` and `held_out` are pairs (codes, groups) of repaired rows: those that the repair was
    fitted to, and those that it does not depend on. They have two groups or more, numbered from 0.
    `names` are the labels of all groups, `learners` the tested learners of the family, and `n_jobs`
    of them are trained in parallel.
    """
    codes, groups = held_out
    found = Parallel(n_jobs=n_jobs)(
        delayed(group_probabilities)(learner, columns, seed, train, codes, len(names))
        for learner, seed in zip(learners, rng.integers(2**31, size=len(learners)), strict=True)
    )
    sizes = np.bincount(groups, minlength=len(names))
    risk = 1.0 - _CONFIDENCE
    pairs = list(combinations(np.flatnonzero(sizes).tolist(), 2))
    tested = [
        [_compare(probabilities, groups, *pair, risk) for pair in pairs] for probabilities in found
    ]
    overall = _largest([bounds for row in tested for bounds in row])
    best_trees = differences(codes, groups, find_questions(train[0], columns))
    tree_gap = max(
        min(1.0, best_trees[a, b] + gap_radius(sizes[a], sizes[b], risk)) for a, b in pairs
    )
    labels = list(names)
    n_rows = dict(zip(labels, sizes.tolist(), strict=True))
    return FairnessCertificate(
        _CONFIDENCE,
        overall.group_auc,
        overall.parity_gap,
        tree_gap,
        n_rows,
        _statement(overall, tree_gap, list(learners), len(train[0]), n_rows),
        {name: _largest(row) for name, row in zip(learners, tested, strict=True)},
        {
            (labels[a], labels[b]): _largest(list(of_pair))
            for (a, b), of_pair in zip(pairs, zip(*tested, strict=True), strict=True)
        },
    )


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
        None,
        dict(zip(names, map(int, sizes), strict=True)),
        f"With confidence {_CONFIDENCE:.0%}, rates of any decision by a threshold on fair "
        f"predictions of new rows differ between two groups by at most {gap:.3f}. This holds "
        "for a full repair, for rows that are distributed in every group as those of the fit, if "
        "the estimator was not trained with rows of the fit. It says nothing about single rows or "
        "error rates.",
    )


def _compare(
    probabilities: np.ndarray, groups: np.ndarray, a: int, b: int, risk: float
) -> GroupBounds:
    """Return how well classifiers tell two groups apart: by each probability, and ratios."""
    of_a, of_b = (_scores(probabilities[groups == g], a, b) for g in (a, b))
    compared = list(zip(of_a, of_b, strict=True))
    auc = max(_area(x, y) for x, y in compared)
    return GroupBounds(
        largest_mean(auc, min(len(of_a[0]), len(of_b[0])), risk),
        max(gap_bound(x, y, risk) for x, y in compared),
        auc,
        max(largest_gap(x, y) for x, y in compared),
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


def _largest(bounds: Sequence[GroupBounds]) -> GroupBounds:
    return GroupBounds(
        max(bound.group_auc for bound in bounds),
        max(bound.parity_gap for bound in bounds),
        max(bound.seen_auc for bound in bounds),
        max(bound.seen_gap for bound in bounds),
    )


def _statement(overall, tree_gap, learners, n_known, n_rows) -> str:
    tested = " and ".join(filter(None, [", ".join(learners[:-1]), learners[-1]]))
    compared = {name: n for name, n in n_rows.items() if n}
    too_small = [str(name) for name in n_rows if name not in compared]
    left_out = f"the groups {', '.join(too_small)}, which have too few rows; " if too_small else ""
    return (
        f"With confidence {_CONFIDENCE:.0%} each, from {sum(compared.values())} rows that had no "
        f"part in the fit, at least {min(compared.values())} of every group. Tested: {tested}, "
        f"trained with {n_known} repaired rows to find the group, tell no two groups apart with an "
        f"AUC above {overall.group_auc:.3f}, and rates of any decision by a threshold on their "
        f"scores differ by at most {overall.parity_gap:.3f}. Proved: for every decision tree of "
        f"two levels with the usual splits, and every average of such trees, means differ by at "
        f"most {tree_gap:.3f}, whatever it was trained for. Not certified: {left_out}other models, "
        "among them models of the same kind that find the group better, as after training with "
        "many new repaired rows; rows that are distributed otherwise; single rows; error rates; a "
        "partial repair."
    )
