"""Classifiers that learn to find the group of a row from repaired rows."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skdpot.tables import NOMINAL, NUMERIC, Column

# Gradient boosting takes categorical features with at most this many values. Linear models get no
# more values than are likely to matter.
_MOST_CATEGORIES, _MOST_ONE_HOT = 255, 50


def gradient_boosting(columns: list[Column], seed: int) -> Any:
    """Return boosted trees that split categories into sets."""
    categorical = [
        column.kind == NOMINAL and len(column.values) <= _MOST_CATEGORIES for column in columns
    ]
    return HistGradientBoostingClassifier(
        max_iter=50, early_stopping=False, categorical_features=categorical, random_state=seed
    )


def forest(columns: list[Column], seed: int) -> Any:
    """Return deep trees, grown on resampled rows."""
    return RandomForestClassifier(n_estimators=60, min_samples_leaf=5, random_state=seed)


def logistic_regression(columns: list[Column], seed: int) -> Any:
    """Return a linear model of scaled numbers, of categories, and of missing values."""
    nominal = [column.kind == NOMINAL for column in columns]
    numbers = make_pipeline(
        SimpleImputer(add_indicator=True, keep_empty_features=True), StandardScaler()
    )
    categories = OneHotEncoder(handle_unknown="ignore", max_categories=_MOST_ONE_HOT)
    encoded = make_column_transformer(
        (numbers, np.flatnonzero(np.logical_not(nominal))), (categories, np.flatnonzero(nominal))
    )
    return make_pipeline(encoded, LogisticRegression(max_iter=300, tol=1e-3))


FAMILY = {
    "gradient boosting": gradient_boosting,
    "forest": forest,
    "logistic regression": logistic_regression,
}


@dataclass(frozen=True, eq=False)
class GroupFinder:
    """A classifier of rows, given as codes, trained to find their group."""

    classifier: Any
    columns: list[Column]
    n_groups: int

    def probabilities(self, codes: np.ndarray) -> np.ndarray:
        """Return the probabilities of all groups, one row per row of data."""
        found = np.zeros((len(codes), self.n_groups))
        values = with_missing(codes, self.columns)
        found[:, self.classifier.classes_] = self.classifier.predict_proba(values)
        return found


def train_finder(
    learner: str,
    columns: list[Column],
    seed: int,
    train: tuple[np.ndarray, np.ndarray],
    n_groups: int,
) -> GroupFinder:
    """Return a classifier of the family, trained on rows, given as codes, and their groups."""
    codes, groups = train
    classifier = FAMILY[learner](columns, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(with_missing(codes, columns), groups)
    return GroupFinder(classifier, columns, n_groups)


def group_probabilities(
    learner: str,
    columns: list[Column],
    seed: int,
    train: tuple[np.ndarray, np.ndarray],
    codes: np.ndarray,
    n_groups: int,
) -> np.ndarray:
    """Return the probabilities of all groups for rows, by a classifier trained on other rows."""
    return train_finder(learner, columns, seed, train, n_groups).probabilities(codes)


def with_missing(codes: np.ndarray, columns: list[Column]) -> np.ndarray:
    """Return codes in which missing and unknown labels are NaN, like missing numbers."""
    labelled = np.array([column.kind != NUMERIC for column in columns])
    return np.where(labelled & (codes < 0), np.nan, codes)
