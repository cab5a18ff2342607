"""Differences between the classes of a table, as far as noise and chance do not explain them.

Noisy counts of two equal classes are not equal. Empirical Bayes moves them towards the counts of
all classes together: a difference that noise explains is removed. All is computed from released
and public numbers.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from skdpot.generative._sketch.shrinkage import kept_shares
from skdpot.transport import nearest_distribution

__all__ = ["pool_classes"]

# Rounds of iterative proportional fitting of a table to its margins.
_N_ROUNDS = 10
_TINY = 1e-9
# The smallest share that a class is taken to have.
_SMALLEST_SHARE = 1e-3


def pool_classes(
    released: Mapping[str, np.ndarray], n_classes: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the release, with the classes as similar as noise and chance allow.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.
    n_classes : int
        Number of classes.

    Returns
    -------
    released : dict of str to ndarray
        No count of a group of cells, or of a pair of groups, is below 0.
    deviations : ndarray of shape (n_classes,)
        Standard deviations of the remaining noise of pairs, as shares of the class.

    Notes
    -----
    The pairs of a class are compared with the pairs of all classes together, adjusted to the
    margins of the class. Columns may be distributed differently and still depend on each other in
    the same way.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.class_effects import pool_classes
    >>> released = {
    ...     "n_cells": np.array([2]), "groups": np.array([0, 1]), "pairs": np.zeros(0),
    ...     "counts": np.array([[110.0, 90.0], [90.0, 110.0]]), "deviations": np.array([20.0, 0.0]),
    ... }
    >>> pooled, _ = pool_classes(released, 2)
    >>> pooled["counts"].round()
    array([[100., 100.],
           [100., 100.]])
    """
    sizes, counts = released["n_cells"], released["counts"].copy()
    cell_noise, pair_noise = released["deviations"]
    columns = np.split(np.arange(len(counts)), np.cumsum(sizes)[:-1])
    totals = np.array([counts[column].sum(axis=0) for column in columns])
    # Columns with more cells have more noise.
    mean = np.average(totals, axis=0, weights=1 / sizes)
    n_records = max(float(mean.sum()), 1.0)
    shares = np.maximum(nearest_distribution(mean / n_records), _SMALLEST_SHARE)
    shares /= shares.sum()
    groups = [released["groups"][column] for column in columns]
    tables = _pair_counts(released["pairs"], [group.max() + 1 for group in groups], n_classes)
    margins = []
    for j, (column, group) in enumerate(zip(columns, groups, strict=True)):
        n_cells = np.bincount(group).astype(np.float64)
        class_counts = np.array([np.bincount(group, cells) for cells in counts[column].T])
        variances = n_cells * cell_noise**2
        estimates, noise = _column_counts(class_counts, variances, j, tables, pair_noise)
        common_shares = nearest_distribution(estimates.sum(axis=0) / n_records)
        expected = np.tile(common_shares, (n_classes, 1))
        # True differences in a column are modelled as proportional to the root of expected shares.
        # Otherwise empty cells, which have hardly any noise, would decide for all others.
        scale = np.sqrt(np.maximum(expected, _TINY))
        margins.append(_pooled_shares(estimates, expected, shares, n_records, noise, scale)[0])
        corrections = shares[:, None] * n_records * margins[-1] - class_counts
        counts[column] += (corrections / n_cells).T[group]
    pairs, pair_variances = [np.zeros(0)], []
    for (a, b), table in tables.items():
        common_shares = nearest_distribution(table.sum(axis=0).ravel() / n_records)
        common_table = common_shares.reshape(table.shape[1:]) + _TINY
        class_margins = zip(margins[a], margins[b], strict=True)
        expected = np.array([_fit_to_margins(common_table, *m).ravel() for m in class_margins])
        noise = np.full(expected.shape[1], pair_noise**2)
        # Differences in pairs are judged by the cells with the least noise. A dependence that is
        # repaired by mistake reveals the group more clearly than one that is left unchanged.
        pooled, deviations = _pooled_shares(
            table.reshape(n_classes, -1), expected, shares, n_records, noise, np.ones_like(expected)
        )
        pairs.append((shares[:, None] * n_records * pooled).T.ravel())
        pair_variances.append(deviations**2)
    deviations = np.sqrt(np.mean(pair_variances, axis=0)) if pair_variances else np.zeros(n_classes)
    return {**released, "counts": counts, "pairs": np.concatenate(pairs)}, deviations


def _pair_counts(
    pairs: np.ndarray, sizes: list[int], n_classes: int
) -> dict[tuple[int, int], np.ndarray]:
    """Return the counts of each two columns, of shape (n_classes, n_groups, n_groups)."""
    tables, start = {}, 0
    for a, b in combinations(range(len(sizes)), 2):
        stop = start + sizes[a] * sizes[b] * n_classes
        table = pairs[start:stop].reshape(sizes[a], sizes[b], n_classes)
        tables[a, b], start = np.moveaxis(table, -1, 0), stop
    return tables


def _column_counts(
    class_counts: np.ndarray,
    noise: np.ndarray,
    j: int,
    tables: Mapping[tuple[int, int], np.ndarray],
    pair_noise: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of a column and their variances, from its own counts and all its pairs."""
    precisions = 1 / np.maximum(noise, _TINY)
    total = class_counts * precisions
    for pair, table in tables.items():
        if j in pair:
            along = 2 - pair.index(j)
            precision = 1 / max(table.shape[along] * pair_noise**2, _TINY)
            total, precisions = total + precision * table.sum(axis=along), precisions + precision
    return total / precisions, 1 / precisions


def _pooled_shares(
    estimates: np.ndarray, expected: np.ndarray, shares: np.ndarray, n_records: float,
    count_variances: np.ndarray, scale: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return a distribution for every class, between its estimate and the expected one.

    `estimates` are counts and `expected` are shares, of shape (n_classes, n_cells);
    `count_variances` are those of the noise of counts. True differences are modelled as
    proportional to `scale`. The second array has the standard deviations of the remaining noise.
    """
    n_classes, sizes = len(shares), (shares * n_records)[:, None]
    differences = estimates / sizes - expected
    # An error of the size of a class changes all its cells alike, and is no difference.
    differences -= expected * differences.sum(axis=1, keepdims=True)
    noise_variances = count_variances * (1 - 2 * expected) + expected**2 * count_variances.sum()
    # The counts of all classes together have noise, too.
    noise_variances *= (1 - shares[:, None]) ** 2 + shares[:, None] ** 2 * (n_classes - 1)
    variances = noise_variances / sizes**2 + expected / np.maximum(sizes, 1.0)
    one_group = np.zeros(len(count_variances), dtype=int)
    kept = kept_shares(differences / scale, variances / scale**2, one_group, sure=True)
    pooled = np.array([nearest_distribution(row) for row in expected + kept * differences])
    class_variances = count_variances.mean() / sizes[:, 0] ** 2
    common_variance = count_variances.mean() * n_classes / n_records**2
    weights = kept.mean(axis=1)
    return pooled, np.sqrt(weights**2 * class_variances + (1 - weights) ** 2 * common_variance)


def _fit_to_margins(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a table scaled to these sums of rows and columns: iterative proportional fitting."""
    for _ in range(_N_ROUNDS):
        table = table * (rows / np.maximum(table.sum(axis=1), _TINY))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), _TINY))
    return table / max(table.sum(), _TINY)
