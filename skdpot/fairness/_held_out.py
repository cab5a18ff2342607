"""Scores of rows by estimators that were trained without them."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv

from skdpot.tables import Table, take_rows

Folds = list[tuple[np.ndarray, np.ndarray]]


def make_folds(
    cv: Any, y: np.ndarray, codes: np.ndarray, classes: bool, random_state: Any
) -> Folds:
    """Return folds, each a pair of training rows and held-out rows.

    Folds for a given number are shuffled. They have equal shares of groups, and of classes in
    these, if there are enough rows.
    """
    if not isinstance(cv, Integral):
        folds = list(check_cv(cv, y, classifier=classes).split(np.zeros(len(y)), y))
        tested = np.concatenate([test for _, test in folds])
        if not np.array_equal(np.sort(tested), np.arange(len(y))):
            raise ValueError("cv must leave out every row in one fold, and in one only.")
        return folds
    options = {"n_splits": cv, "shuffle": True, "random_state": random_state}
    y_codes = np.unique(y, return_inverse=True)[1] if classes else 0
    for strata in (codes * len(y) + y_codes, codes):
        if np.unique(strata, return_counts=True)[1].min() >= cv:
            return list(StratifiedKFold(**options).split(strata, strata))
    return list(KFold(**options).split(codes))


def one_score_per_row(
    estimator: Any, method: str, X: Any, params: Mapping[str, Any] | None = None
) -> np.ndarray:
    """Return the predictions of a method, one finite number for every row, or raise."""
    scores = numbers_per_row(estimator, method, X, params)
    if not np.isfinite(scores).all():
        raise ValueError(f"the estimator's {method} returned NaN or infinity.")
    return scores


def numbers_per_row(
    estimator: Any, method: str, X: Any, params: Mapping[str, Any] | None = None
) -> np.ndarray:
    """Return the predictions of a method, one number for every row, or raise."""
    scores = np.asarray(getattr(estimator, method)(X, **(params or {})))
    if method == "predict_proba" and scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1]
    if scores.shape != (X.shape[0],) or scores.dtype.kind not in "buif":
        raise ValueError(
            "the estimator must predict one number for every row, or probabilities of two classes; "
            f"its {method} returned {scores.dtype} of shape {scores.shape}."
        )
    return scores.astype(np.float64)


def scores_of_fold(estimator, method, X, y, train, test, params) -> np.ndarray:
    """Return the scores of the held-out rows of a fold."""
    params = {name: _select_rows(value, train, len(y)) for name, value in params.items()}
    fitted = clone(estimator).fit(take_rows(X, train), y[train], **params)
    return one_score_per_row(fitted, method, take_rows(X, test))


def _select_rows(value, rows, n_samples):
    """Return the part of a fit's keyword for some rows; values that are not per row stay whole."""
    if value is None or np.ndim(value) == 0:
        return value
    table = Table(value).X
    return take_rows(table, rows) if table.shape[0] == n_samples else value
