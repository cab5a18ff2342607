"""Repairs of rows, and fair decisions and scores: ours, fairlearn's, AIF360's and EquiPy's.

A repair changes rows, or weighs them, before a model is trained. A correction changes what a model
decides or scores, and needs the group of new rows. Each is tried at the levels that it has.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.fair_tables import FairTable
from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor

FULL = 1.0
LEVELS = (FULL, 0.75, 0.5, 0.25)
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
    """Training rows and test rows of a table; numbers that are missing are medians."""

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


def split_table(table: FairTable, n_rows: int, seed: int) -> Split:
    """Draw at most so many rows, of which a third is for tests."""
    rows = np.random.default_rng(seed).permutation(len(table))[:n_rows]
    n_test = len(rows) // 3
    sides = rows[n_test:], rows[:n_test]
    X = table.X
    numbers = [name for name in X if pd.api.types.is_numeric_dtype(X[name])]
    words = [name for name in X if name not in numbers]
    medians = X[numbers].iloc[sides[0]].median()
    X = X.fillna({**medians, **dict.fromkeys(words, "")}).astype(dict.fromkeys(numbers, float))
    rare = OneHotEncoder(
        min_frequency=_RARE, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    encoder = ColumnTransformer([("numbers", StandardScaler(), numbers), ("words", rare, words)])
    encoder.fit(X.iloc[sides[0]])

    def encode(frame):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return encoder.transform(frame)

    halves = [
        Half(
            X.iloc[side].reset_index(drop=True),
            encode(X.iloc[side]),
            table.groups[side].astype(str),
            table.target[side],
        )
        for side in sides
    ]
    return Split(*halves, encode, table.is_regression, seed)


# Repairs: each yields rows at the levels that are asked for, in their order.


def untouched(split: Split, _: Sequence[float]) -> Iterator[Repaired]:
    yield Repaired(split.train.encoded, split.test.encoded)


def _ours(split, levels, **options):
    fair = FairBarycenterPreprocessor(missing="category", random_state=split.seed, **options)
    fair.set_output(transform="pandas")
    fair.fit(split.train.X, sensitive_features=split.train.groups)
    for level in levels:
        fair.set_params(repair_level=level)
        moved = [fair.transform(half.X, sensitive_features=half.groups) for half in split.halves]
        yield Repaired(*map(split.encode, moved))


def by_default(split: Split, levels: Sequence[float]) -> Iterator[Repaired]:
    return _ours(split, levels)


def by_support(split: Split, levels: Sequence[float]) -> Iterator[Repaired]:
    return _ours(split, levels, method="support")


def by_correlation(split: Split, levels: Sequence[float]) -> Iterator[Repaired]:
    """Remove correlations with the groups: one column for each group but one."""
    from fairlearn.preprocessing import CorrelationRemover

    names = np.unique(split.train.groups)[1:]
    both = [
        np.column_stack([half.encoded, half.groups[:, None] == names]).astype(float)
        for half in split.halves
    ]
    width = split.train.encoded.shape[1]
    sensitive = list(range(width, width + len(names)))
    for level in levels:
        remover = CorrelationRemover(sensitive_feature_ids=sensitive, alpha=level).fit(both[0])
        yield Repaired(*map(remover.transform, both))


def _in_aif360(half, names):
    """Return rows as AIF360 takes them: the group is a number, and the first name is privileged."""
    from aif360.datasets import BinaryLabelDataset

    columns = [f"column {k}" for k in range(half.encoded.shape[1])]
    frame = pd.DataFrame(half.encoded, columns=columns)
    codes = (half.groups[:, None] == names).argmax(1)
    # The label of a regression is not read by a repair of rows.
    label = (half.target > np.median(half.target)) if _has_numbers(half) else half.target
    frame = frame.assign(group=codes.astype(float), label=np.asarray(label, dtype=float))
    return BinaryLabelDataset(df=frame, label_names=["label"], protected_attribute_names=["group"])


def _has_numbers(half):
    return len(np.unique(half.target)) > 2


def _largest_first(groups):
    names, sizes = np.unique(groups, return_counts=True)
    return names[np.argsort(-sizes)]


def by_disparate_impact(split: Split, levels: Sequence[float]) -> Iterator[Repaired]:
    """Repair each side on its own, since the remover has no way to transform new rows."""
    from aif360.algorithms.preprocessing import DisparateImpactRemover

    names = _largest_first(split.train.groups)
    width = split.train.encoded.shape[1]
    for level in levels:
        yield Repaired(
            *(
                DisparateImpactRemover(repair_level=level, sensitive_attribute="group")
                .fit_transform(_in_aif360(half, names))
                .features[:, :width]
                for half in split.halves
            )
        )


def by_weights(split: Split, _: Sequence[float]) -> Iterator[Repaired]:
    """Weigh rows; where there are more than two groups, the largest is privileged."""
    from aif360.algorithms.preprocessing import Reweighing

    names = _largest_first(split.train.groups)
    others = [{"group": float(k)} for k in range(1, len(names))]
    reweighing = Reweighing(unprivileged_groups=others, privileged_groups=[{"group": 0.0}])
    weighted = reweighing.fit_transform(_in_aif360(split.train, names))
    yield Repaired(split.train.encoded, split.test.encoded, weighted.instance_weights)


# Corrections: each yields decisions and scores at the levels that are asked for.


def scores_of(model: Any, X: np.ndarray) -> np.ndarray:
    """Return predicted numbers, or the probability of the second class."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)[:, 1]
    return model.predict(X)


def decisions_of(split: Split, scores: np.ndarray) -> np.ndarray:
    return scores if split.is_regression else scores > 0.5


def by_thresholds(split: Split, model: Any, _: Sequence[float]) -> Iterator[Corrected]:
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
    yield Corrected(decisions.astype(bool), scores)


def by_reduction(split: Split, model: Any, levels: Sequence[float]) -> Iterator[Corrected]:
    """Reduce to weighted problems; a level of repair l is a bound of 0.01 + (1 - l) / 4."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    train, test = split.halves
    for level in levels:
        gradient = ExponentiatedGradient(
            clone(model), DemographicParity(difference_bound=0.01 + (1 - level) / 4), max_iter=10
        )
        gradient.fit(train.encoded, train.target, sensitive_features=train.groups)
        decisions = gradient.predict(test.encoded, random_state=split.seed)
        yield Corrected(decisions.astype(bool), gradient._pmf_predict(test.encoded)[:, 1])


def _folds(split):
    """Return folds in which every group is on both sides."""
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=split.seed)
    return list(folds.split(split.train.encoded, split.train.groups))


def by_equipy(split: Split, model: Any, levels: Sequence[float]) -> Iterator[Corrected]:
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
    for level in levels:
        moved = wasserstein.transform(scores, test.groups, epsilon=1 - level)
        yield Corrected(decisions_of(split, moved), moved)


def by_fair_predictions(split: Split, model: Any, levels: Sequence[float]) -> Iterator[Corrected]:
    train, test = split.halves
    fair = FairBarycenterRegressor(model, cv=_folds(split), random_state=split.seed)
    fair.fit(train.encoded, train.target, sensitive_features=train.groups)
    for level in levels:
        fair.set_params(repair_level=level)
        moved = fair.predict(test.encoded, sensitive_features=test.groups)
        yield Corrected(decisions_of(split, moved), moved)


@dataclass(frozen=True)
class Contender:
    """One way to be fair: who offers it, how it is done, and where it applies."""

    name: str
    run: Callable[..., Iterator]
    levels: tuple[float, ...] = (FULL,)
    is_ours: bool = False
    package: str | None = None
    for_numbers: bool = True

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None

    def applies_to(self, table: FairTable) -> bool:
        return self.is_installed and (self.for_numbers or not table.is_regression)


REPAIRS = (
    Contender("no repair", untouched),
    Contender("FairBarycenterPreprocessor", by_default, LEVELS, is_ours=True),
    Contender("FairBarycenterPreprocessor, support", by_support, is_ours=True),
    Contender("fairlearn, CorrelationRemover", by_correlation, LEVELS, package="fairlearn"),
    Contender("AIF360, DisparateImpactRemover", by_disparate_impact, LEVELS, package="aif360"),
    Contender("AIF360, Reweighing", by_weights, package="aif360", for_numbers=False),
)
CORRECTIONS = (
    Contender("FairBarycenterRegressor", by_fair_predictions, LEVELS, is_ours=True),
    Contender(
        "fairlearn, ThresholdOptimizer", by_thresholds, package="fairlearn", for_numbers=False
    ),
    Contender(
        "fairlearn, ExponentiatedGradient", by_reduction, package="fairlearn", for_numbers=False
    ),
    Contender("EquiPy, FairWasserstein", by_equipy, LEVELS, package="equipy"),
)
