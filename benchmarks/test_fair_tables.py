"""Public tables repaired by ours and by peers: utility, parity, what tells the group, time.

Run with ``SKDPOT_FAIR_TABLES=FOLDER python -m pytest benchmarks -m benchmark -s -k
test_fair_tables --benchmark-report=REPORT``. The folder holds the files that `fair_tables.SOURCES`
names; a table whose file is missing is skipped, and the reason says where to get it. Nothing is
downloaded, and nothing is asserted about who wins. The report gets ``fair_tables.json``, with every
result, and ``fair_tables_*.inc``, with sections of the documentation. A later run replaces the
tables that it measures and keeps the others.

Every table gives at most 7,500 rows to each of five splits, of which a third is for tests. All
contenders see the same rows. A linear model and boosting are trained on what a repair returns, and
judged on test rows that went through it. Corrections of scores need no repaired rows: what tells
the group is looked for in their scores.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from benchmarks.fair_board import Board, Result, frontier_of, page_of, summary_of, table_of
from benchmarks.fair_contenders import (
    CORRECTIONS,
    FULL,
    REPAIRS,
    decisions_of,
    scores_of,
    split_table,
)
from benchmarks.fair_tables import SOURCES, load_fair_table
from skdpot.fairness.metrics import group_auc, ks_between_groups

_BOOSTING = {"max_iter": 100, "max_leaf_nodes": 15, "random_state": 0}
CLASSIFIERS = {
    "linear": LogisticRegression(max_iter=500),
    "boosting": HistGradientBoostingClassifier(**_BOOSTING),
}
REGRESSORS = {"linear": Ridge(), "boosting": HistGradientBoostingRegressor(**_BOOSTING)}
DETECTIVES = {
    "boosting": HistGradientBoostingClassifier(**_BOOSTING),
    "forest": RandomForestClassifier(50, min_samples_leaf=5),
}
# Choices between methods were made on splits 0 to 9.
_FIRST_SPLIT = 100
FRONTIERS = (
    ("FairBarycenterPreprocessor", "repair"),
    ("FairBarycenterPreprocessor", "correction"),
    ("FairBarycenterRegressor", "correction"),
)


def judge(split, decisions, scores):
    """Return what a model reached on the test rows: utility and parity."""
    target, groups = split.test.target, split.test.groups
    if split.is_regression:
        utility = {"R2": r2_score(target, scores)}
        decisions = scores > np.median(split.train.target)
    else:
        utility = {
            "accuracy": accuracy_score(target, decisions),
            "AUC": roc_auc_score(target, scores),
        }
    decisions = decisions.astype(int)
    gap = ks_between_groups(decisions, sensitive_features=groups)
    return {
        "utility": utility,
        "parity": {
            "decisions": gap,
            "scores": ks_between_groups(scores, sensitive_features=groups),
        },
    }


def detect(X, groups, names=tuple(DETECTIVES)):
    """Return how well each detective recovers the group from rows that it has not seen."""
    return {
        name: group_auc(X, groups, estimator=DETECTIVES[name], cv=3, random_state=0)
        for name in names
    }


def timed(steps):
    """Yield what an iterator yields, and how many seconds of the processor each took."""
    while True:
        start = time.process_time()
        found = next(steps, None)
        if found is None:
            return
        yield found, time.process_time() - start


def results_of_repair(table, split, seed, contender, levels):
    models = REGRESSORS if split.is_regression else CLASSIFIERS
    steps = timed(contender.run(split, levels))
    for level, (repaired, seconds) in zip(levels, steps, strict=True):
        found = detect(repaired.test, split.test.groups) if level == FULL else {}
        for name, model in models.items():
            model = clone(model).fit(
                repaired.train, split.train.target, sample_weight=repaired.weights
            )
            scores = scores_of(model, repaired.test)
            yield Result(
                *(table.name, contender.name, "repair", contender.is_ours, level, name, seed),
                **judge(split, decisions_of(split, scores), scores),
                group_auc=found,
                seconds=seconds,
            )


def results_of_correction(table, split, seed, contender, levels):
    models = REGRESSORS if split.is_regression else CLASSIFIERS
    for name, model in models.items():
        steps = timed(contender.run(split, clone(model), levels))
        for level, (corrected, seconds) in zip(levels, steps, strict=True):
            scores = corrected.scores[:, None]
            yield Result(
                *(table.name, contender.name, "correction", contender.is_ours, level, name, seed),
                **judge(split, corrected.decisions, corrected.scores),
                group_auc=detect(scores, split.test.groups, ["boosting"]) if level == FULL else {},
                seconds=seconds,
            )


def measure(table, n_rows, n_splits, all_levels):
    """Return the board of one table."""
    board = Board()
    for seed in range(_FIRST_SPLIT, _FIRST_SPLIT + n_splits):
        split = split_table(table, n_rows, seed)
        for kind, of in ((results_of_repair, REPAIRS), (results_of_correction, CORRECTIONS)):
            for contender in of:
                if contender.applies_to(table):
                    levels = contender.levels if all_levels else contender.levels[:1]
                    board.results += kind(table, split, seed, contender, levels)
    return board


@pytest.mark.benchmark
@pytest.mark.quick
@pytest.mark.parametrize("name", SOURCES)
def test_fair_tables(name, contest, request):
    folder = os.environ.get("SKDPOT_FAIR_TABLES", "")
    try:
        table = load_fair_table(name, folder)
    except FileNotFoundError as error:
        pytest.skip(f"{error} SKDPOT_FAIR_TABLES names the folder.")
    board = measure(table, contest.size(7_500, 2_000), contest.size(5, 2), not contest.quick)
    print("", name, *table_of(board, name), *frontier_of(board, FRONTIERS), sep="\n")
    report = request.config.getoption("--benchmark-report")
    if report is not None:
        path = Path(report, "fair_tables.json")
        board.save(path)
        titles = {of: source.title for of, source in SOURCES.items()}
        board = Board.load(path)
        Path(report, "fair_tables_measured.inc").write_text(page_of(board, FRONTIERS, titles))
        Path(report, "fair_tables_summary.inc").write_text("\n".join(summary_of(board)))
