"""Repairs of rows, and fair decisions and scores: ours, fairlearn's and EquiPy's.

A repair changes rows, or weighs them, before a model is trained. A correction changes what a model
decides or scores, and needs the group of new rows.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import OneHotEncoder

from benchmarks.fair_tables import FairTable
from skdpot import FairBarycenterClassifier, FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.fairness.metrics import ks_between_groups

# Words that fewer training rows have are one column of the encoded table.
_RARE = 10
_FOLDS = 3


@dataclass(frozen=True, eq=False)
class Half:
    """Rows of one side of a split: as they are, as a matrix of numbers, groups and targets."""

    X: pd.DataFrame
    encoded: np.ndarray
    groups: np.ndarray
    target: np.ndarray


@dataclass(frozen=True, eq=False)
class Split:
    """Training rows and test rows of a table."""

    train: Half
    test: Half
    encode: Callable[[pd.DataFrame], np.ndarray]
    is_regression: bool
    seed: int

    @property
    def halves(self) -> tuple[Half, Half]:
        return self.train, self.test


@dataclass(frozen=True, eq=False)
class Repaired:
    """Rows of both sides as matrices, and the weights of the training rows, if there are any."""

    train: np.ndarray
    test: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Corrected:
    """What is decided about test rows (yes or no, or the predicted number), and their scores."""

    decisions: np.ndarray
    scores: np.ndarray


def split_at(
    table: FairTable, sides: tuple[np.ndarray, np.ndarray], seed: int, numeric: Any
) -> Split:
    """Return training rows and test rows; a transformer encodes the numbers, which come first."""
    numbers = [name for name in table.X if pd.api.types.is_numeric_dtype(table.X[name])]
    words = [name for name in table.X if name not in numbers]
    rare = OneHotEncoder(
        min_frequency=_RARE, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    encoder = ColumnTransformer([("numbers", numeric, numbers), ("words", rare, words)])

    def plain(frame):
        present = {name: frame[name].astype(object).fillna("") for name in words}
        return frame.astype(dict.fromkeys(numbers, float)).assign(**present)

    def encode(frame):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return encoder.transform(plain(frame))

    frames = [table.X.iloc[side].reset_index(drop=True) for side in sides]
    encoder.fit(plain(frames[0]))
    halves = [
        Half(frame, encode(frame), table.groups[side].astype(str), table.target[side])
        for frame, side in zip(frames, sides, strict=True)
    ]
    return Split(*halves, encode, table.is_regression, seed)


def judge(split: Split, decisions: np.ndarray, scores: np.ndarray, least: int = 1) -> dict:
    """Return utility on test rows, and parity between groups of at least so many of these."""
    target = split.test.target
    of = {"sensitive_features": split.test.groups, "min_group_size": least}
    if split.is_regression:
        utility = {"R2": r2_score(target, scores)}
        decisions = scores > np.median(split.train.target)
    else:
        utility = {
            "accuracy": accuracy_score(target, decisions),
            "AUC": roc_auc_score(target, scores),
        }
    gap = ks_between_groups(decisions.astype(int), **of)
    return {
        "utility": utility,
        "parity": {"decisions": gap, "scores": ks_between_groups(scores, **of)},
    }


# Repairs: each returns the rows of both sides.


def untouched(split: Split) -> Repaired:
    return Repaired(split.train.encoded, split.test.encoded)


def by_default(split: Split) -> Repaired:
    fair = FairBarycenterPreprocessor(missing="category", random_state=split.seed)
    fair.set_output(transform="pandas")
    fair.fit(split.train.X, sensitive_features=split.train.groups)
    moved = [fair.transform(half.X, sensitive_features=half.groups) for half in split.halves]
    return Repaired(*map(split.encode, moved))


def by_correlation(split: Split) -> Repaired:
    """Remove correlations with the groups: one column for each group but one."""
    from fairlearn.preprocessing import CorrelationRemover

    names = np.unique(split.train.groups)[1:]
    both = [
        np.column_stack([half.encoded, half.groups[:, None] == names]).astype(float)
        for half in split.halves
    ]
    width = split.train.encoded.shape[1]
    sensitive = list(range(width, width + len(names)))
    remover = CorrelationRemover(sensitive_feature_ids=sensitive).fit(both[0])
    return Repaired(*map(remover.transform, both))


# Corrections: each returns decisions and scores of test rows.


def scores_of(model: Any, X: np.ndarray) -> np.ndarray:
    """Return predicted numbers, or the probability of the second class."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)[:, 1]
    return model.predict(X)


def decisions_of(split: Split, scores: np.ndarray) -> np.ndarray:
    return scores if split.is_regression else scores > 0.5


def by_thresholds(split: Split, model: Any) -> Corrected:
    from fairlearn.postprocessing import ThresholdOptimizer

    optimizer = ThresholdOptimizer(
        estimator=model, constraints="demographic_parity", predict_method="predict_proba"
    )
    train, test = split.halves
    optimizer.fit(train.encoded, train.target, sensitive_features=train.groups)
    decisions = optimizer.predict(
        test.encoded, sensitive_features=test.groups, random_state=split.seed
    )
    # How likely a yes is, which is randomised, is the only score that there is.
    scores = optimizer._pmf_predict(test.encoded, sensitive_features=test.groups)[:, 1]
    return Corrected(decisions.astype(bool), scores)


def _folds(split):
    """Return folds in which every group is on both sides."""
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=split.seed)
    return list(folds.split(split.train.encoded, split.train.groups))


def by_equipy(split: Split, model: Any) -> Corrected:
    """Move scores; distributions are learned from scores of folds, as ours are."""
    from equipy.fairness import FairWasserstein

    train, test = split.halves
    method = "predict" if split.is_regression else "predict_proba"
    held_out = cross_val_predict(
        model, train.encoded, train.target, cv=_folds(split), method=method
    )
    held_out = held_out if split.is_regression else held_out[:, 1]
    scores = scores_of(clone(model).fit(train.encoded, train.target), test.encoded)
    wasserstein = FairWasserstein()
    wasserstein.fit(held_out, train.groups)
    moved = wasserstein.transform(scores, test.groups)
    return Corrected(decisions_of(split, moved), moved)


def by_fair_predictions(split: Split, model: Any) -> Corrected:
    train, test = split.halves
    made = FairBarycenterRegressor if split.is_regression else FairBarycenterClassifier
    fair = made(model, cv=_FOLDS, random_state=split.seed)
    fair.fit(train.encoded, train.target, sensitive_features=train.groups)
    predict = fair.predict if split.is_regression else fair.predict_proba
    moved = predict(test.encoded, sensitive_features=test.groups)
    moved = moved if split.is_regression else moved[:, 1]
    return Corrected(decisions_of(split, moved), moved)


@dataclass(frozen=True)
class Contender:
    """One way to be fair: who offers it, how it is done, and where it applies."""

    name: str
    run: Callable[..., Repaired | Corrected]
    is_ours: bool = False
    package: str | None = None
    for_numbers: bool = True

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None

    def applies_to(self, table: FairTable) -> bool:
        return self.is_installed and (self.for_numbers or not table.is_regression)
