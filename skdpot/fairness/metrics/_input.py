"""Checks of metrics' arguments, and the docstring entries that metrics share."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skdpot.fairness._attribute import read_labels
from skdpot.fairness._groups import Groups, find_groups
from skdpot.tables import Table, is_missing

Metric = TypeVar("Metric", bound=Callable)
# An entry of a numpydoc section, and a line that stands for such an entry.
_ENTRY = re.compile(r"^    (\w+) : .*\n(?:        .*\n)+", re.MULTILINE)
_SHARED = re.compile(r"^    \{(\w+)\}\n", re.MULTILINE)


def documented(metric: Metric) -> Metric:
    """Return a metric in whose docstring each line ``{name}`` is replaced by a shared entry.

    Parameters
    ----------
    y_pred : array-like of shape (n_samples,)
        Predicted labels, with at most two distinct values.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_attributes)
        The sensitive attribute of every row. Several attributes define groups by their
        intersections.
    method : {"between_groups", "to_overall"}, default="between_groups"
        Whether groups are compared with each other, or with all rows together.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of rows.
    pos_label : object, default=None
        The positive label. None is 1, for labels 0 and 1, or -1 and 1.
    min_group_size : int, default=1
        Groups with fewer rows are left out.
    scores : array-like of shape (n_samples,)
        Predictions, or scores of a classifier.
    """
    entries = {entry[1]: entry[0] for entry in _ENTRY.finditer(documented.__doc__ or "")}
    metric.__doc__ = _SHARED.sub(lambda line: entries[line[1]], metric.__doc__ or "")
    return metric


def check_groups(values: Any, sensitive_features: Any, min_group_size: int) -> Groups:
    """Return the groups of rows, two or more, or raise."""
    labels = read_labels(sensitive_features)
    check_consistent_length(values, labels)
    groups = find_groups(labels, min_group_size=min_group_size, small_groups="drop")
    if len(groups.names) < 2:
        raise ValueError(
            f"groups can be compared if there are two or more with at least {min_group_size} rows; "
            f"sensitive_features has {len(groups.names)}."
        )
    return groups


def check_scores(scores: Any, name: str = "scores") -> np.ndarray:
    """Return finite numbers, one for each row, or raise."""
    scores = column_or_1d(scores)
    if scores.dtype.kind not in "buif":
        raise ValueError(f"{name} must be numbers, got an array of {scores.dtype}.")
    scores = scores.astype(np.float64)
    if not np.isfinite(scores).all():
        raise ValueError(f"{name} must be finite: they contain NaN or infinity.")
    return scores


def check_positives(y: Any, pos_label: Any, name: str) -> np.ndarray:
    """Return which binary labels are positive, or raise."""
    y = column_or_1d(y)
    if y.dtype.kind == "f" and np.isnan(y).any() or y.dtype.kind == "O" and (y != y).any():
        raise ValueError(f"{name} contains NaN.")
    values = set(y.tolist())
    if None in values:
        raise ValueError(f"{name} contains None.")
    if pos_label is None:
        if not (values <= {0, 1} or values <= {-1, 1}):
            raise ValueError(
                f"{name} must be labels from {{0, 1}} or {{-1, 1}}; for other labels, give the "
                "positive one as pos_label."
            )
        pos_label = 1
    if len(values | {pos_label}) > 2:
        raise ValueError(
            f"{name} must have at most two labels, pos_label among them, got {len(values)}."
        )
    return y == pos_label


def as_numbers(X: Any, max_categories: int) -> tuple[Any, Any]:
    """Return data as numbers, and which columns are categorical, or None.

    Columns of words and categories are replaced by the positions of their values in order, and are
    categorical unless there are too many values. Missing values are NaN.
    """
    table = Table(X)
    X = table.X
    if table.container == "array" and X.dtype.kind != "O":
        return X.toarray() if sparse.issparse(X) else X, None
    columns, categorical = [], []
    for j in range(X.shape[1]):
        values = table.column(j)
        try:
            columns.append(values.astype(np.float64))
            categorical.append(False)
        except (TypeError, ValueError):
            words, codes = np.unique([str(value) for value in values], return_inverse=True)
            missing = [is_missing(value) for value in values]
            columns.append(np.where(missing, np.nan, codes.astype(np.float64)))
            categorical.append(len(words) <= max_categories)
    return np.column_stack(columns), np.array(categorical)
