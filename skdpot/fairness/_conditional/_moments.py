"""Sums of squares and products of features, by fold and group."""

import numpy as np

N_FOLDS = 4


def moments(table: np.ndarray, parts: np.ndarray, n_groups: int) -> np.ndarray:
    """Return second moments by fold and group, as sums; the table has shape (width, n_rows).

    `parts` is each row's fold times the number of groups, plus its group. The result has the shape
    (n_folds, n_groups, width, width).
    """
    width = len(table)
    sums = np.zeros((N_FOLDS * n_groups, width, width))
    order = np.argsort(parts, kind="stable")
    ends = np.searchsorted(parts[order], np.arange(len(sums) + 1))
    for part, (start, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        rows = table[:, order[start:end]]
        sums[part] = rows @ rows.T
    return sums.reshape(N_FOLDS, n_groups, width, width)


def deal_folds(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random fold for every row; each fold has an equal share of every group."""
    order = np.lexsort((rng.random(len(groups)), groups))
    folds = np.empty(len(groups), dtype=np.int64)
    folds[order] = np.arange(len(groups)) % N_FOLDS
    return folds
