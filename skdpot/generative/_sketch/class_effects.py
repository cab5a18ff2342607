"""Differences between the classes of a table, as far as noise and chance do not explain them.

Counts with noise of two equal classes are not equal. Here they are moved towards what the classes
have in common, by empirical Bayes: a difference that noise explains is none. It is computed of
what was released, and of public numbers.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from skdpot.generative._sketch.shrinkage import kept_shares
from skdpot.transport import nearest_distribution

__all__ = ["pool_classes"]

# Rounds by which a table is given its margins.
_N_ROUNDS = 10
_TINY = 1e-9
# A class has at least so large a share.
_SMALLEST_SHARE = 1e-3


def pool_classes(
    released: Mapping[str, np.ndarray], n_classes: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return what was released, with the classes as alike as noise and chance allow.

    Parameters
    ----------
    released : mapping of str to ndarray
        Of `release_marginals`.
    n_classes : int
        How many there are.

    Returns
    -------
    released : dict of str to ndarray
        In groups of cells, and in pairs of these, no count is below 0.
    deviations : ndarray of shape (n_classes,)
        Of the noise that is left in pairs, as shares of the class.

    Notes
    -----
    Pairs of columns are compared with those of all classes together, given the margins of the
    class: classes whose columns are distributed otherwise need not depend otherwise on each other.

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
    of_counts, of_pairs = released["deviations"]
    columns = np.split(np.arange(len(counts)), np.cumsum(sizes)[:-1])
    totals = np.array([counts[column].sum(axis=0) for column in columns])
    # Columns with more cells have more noise.
    mean = np.average(totals, axis=0, weights=1 / sizes)
    n_records = max(float(mean.sum()), 1.0)
    shares = np.maximum(nearest_distribution(mean / n_records), _SMALLEST_SHARE)
    shares /= shares.sum()
    groups = [released["groups"][column] for column in columns]
    tables = _tables(released["pairs"], [group.max() + 1 for group in groups], n_classes)
    margins = []
    for j, (column, group) in enumerate(zip(columns, groups, strict=True)):
        n_cells = np.bincount(group).astype(np.float64)
        own = np.array([np.bincount(group, of_class) for of_class in counts[column].T])
        seen, noise = _margins(own, n_cells * of_counts**2, j, tables, of_pairs)
        common = nearest_distribution(seen.sum(axis=0) / n_records)
        expected = np.tile(common, (n_classes, 1))
        # True differences in a column are taken for proportional to the root of what is expected.
        # Otherwise empty cells, which have next to no noise, would speak for all others.
        scale = np.sqrt(np.maximum(expected, _TINY))
        margins.append(_pooled(seen, expected, shares, n_records, noise, scale)[0])
        missing = shares[:, None] * n_records * margins[-1] - own
        counts[column] += (missing / n_cells).T[group]
    pairs, left = [], []
    for (a, b), seen in tables.items():
        common = nearest_distribution(seen.sum(axis=0).ravel() / n_records)
        table = common.reshape(seen.shape[1:]) + _TINY
        both = zip(margins[a], margins[b], strict=True)
        expected = np.array([_with_margins(table, *of_class).ravel() for of_class in both])
        noise = np.full(expected.shape[1], of_pairs**2)
        flat = seen.reshape(n_classes, -1)
        # Those in pairs are judged by the cells with the least noise: if dependence is repaired by
        # mistake, this shows the group more clearly than if it is left.
        one = np.ones_like(expected)
        kept, deviations = _pooled(flat, expected, shares, n_records, noise, one)
        pairs.append((shares[:, None] * n_records * kept).T.ravel())
        left.append(deviations**2)
    deviations = np.sqrt(np.mean(left, axis=0)) if left else np.zeros(n_classes)
    together = np.concatenate([*pairs, np.zeros(0)])
    return {**released, "counts": counts, "pairs": together}, deviations


def _tables(
    pairs: np.ndarray, sizes: list[int], n_classes: int
) -> dict[tuple[int, int], np.ndarray]:
    """Return the counts of each two columns, of shape (n_classes, n_groups, n_groups)."""
    tables, start = {}, 0
    for a, b in combinations(range(len(sizes)), 2):
        stop = start + sizes[a] * sizes[b] * n_classes
        table = pairs[start:stop].reshape(sizes[a], sizes[b], n_classes)
        tables[a, b], start = np.moveaxis(table, -1, 0), stop
    return tables


def _margins(
    own: np.ndarray,
    noise: np.ndarray,
    j: int,
    tables: Mapping[tuple[int, int], np.ndarray],
    of_pairs: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of a column, and their variances: its own and those of all its pairs."""
    precisions = 1 / np.maximum(noise, _TINY)
    total, precise = own * precisions, precisions
    for pair, table in tables.items():
        if j in pair:
            along = 2 - pair.index(j)
            precision = 1 / max(table.shape[along] * of_pairs**2, _TINY)
            total, precise = total + precision * table.sum(axis=along), precise + precision
    return total / precise, 1 / precise


def _pooled(
    seen: np.ndarray, expected: np.ndarray, shares: np.ndarray, n_records: float,
    noise: np.ndarray, scale: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return a distribution for every class, between what is seen of it and what is expected.

    `seen` has counts and `expected` shares, of shape (n_classes, n_cells), and `noise` the
    variances of counts. True differences are taken for proportional to `scale`. The second array
    has the standard deviations of the noise that is left.
    """
    n_classes, sizes = len(shares), (shares * n_records)[:, None]
    apart = seen / sizes - expected
    # Errors of a class's size are in all its cells alike, and are no differences.
    apart -= expected * apart.sum(axis=1, keepdims=True)
    of_noise = noise * (1 - 2 * expected) + expected**2 * noise.sum()
    # All classes together have noise of their own.
    of_noise *= (1 - shares[:, None]) ** 2 + shares[:, None] ** 2 * (n_classes - 1)
    variances = of_noise / sizes**2 + expected / np.maximum(sizes, 1.0)
    one_group = np.zeros(len(noise), dtype=int)
    kept = kept_shares(apart / scale, variances / scale**2, one_group, sure=True)
    found = np.array([nearest_distribution(row) for row in expected + kept * apart])
    own, common = noise.mean() / sizes[:, 0] ** 2, noise.mean() * n_classes / n_records**2
    weights = kept.mean(axis=1)
    return found, np.sqrt(weights**2 * own + (1 - weights) ** 2 * common)


def _with_margins(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the table with these sums of rows and columns that is most like a table."""
    for _ in range(_N_ROUNDS):
        table = table * (rows / np.maximum(table.sum(axis=1), _TINY))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), _TINY))
    return table / max(table.sum(), _TINY)
