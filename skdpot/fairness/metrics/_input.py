"""Checks of metrics' arguments."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skdpot.fairness._attribute import read_labels
from skdpot.fairness._groups import Groups, find_groups
from skdpot.tables import Table, is_missing


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


def check_scores(scores: Any) -> np.ndarray:
    """Return finite numbers, one for each row, or raise."""
    scores = column_or_1d(scores)
    if scores.dtype.kind not in "buif":
        raise ValueError(f"scores must be numbers, got an array of {scores.dtype}.")
    scores = scores.astype(np.float64)
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite: they contain NaN or infinity.")
    return scores


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
