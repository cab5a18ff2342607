"""Estimates of the counts of a column, combined from all releases that contain them."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

__all__ = [
    "LEAST_NOISE",
    "PRIOR_SPREAD",
    "SEEN_DEVIATIONS",
    "column_shares",
    "deviation_in_classes",
    "likely_counts",
    "sums_of_pairs",
    "with_totals",
]

# The least standard deviation of noise that is assumed, in records.
LEAST_NOISE = 1.0

# A cell whose count has fewer deviations of the noise is treated like the others of its group.
SEEN_DEVIATIONS = 2.0
_EVEN_SHARE = 1e-6
# The number of updates of the expected counts of such cells, and their relative deviation from it.
_PRIORS, PRIOR_SPREAD = 2, 2.0
# Rounds of pivots, and the number of rounds without progress that may move all entries at once.
_PIVOTS, _PATIENCE = 200, 3
_ROUNDING = 1e-12


def with_totals(
    counts: np.ndarray,
    totals: np.ndarray,
    count_noise: float | np.ndarray,
    total_noise: float | np.ndarray,
    possible: bool | np.ndarray = True,
) -> np.ndarray:
    """Return the least-squares counts of each class, given counts of all classes together.

    `counts` of shape (n_cells, n_classes) are released, and 0 where none are possible. `totals` are
    the released counts of all classes together. Standard deviations of noise are one number, or one
    for each cell. `possible` tells which classes records of a cell may have. All classes of a cell
    get the same correction.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.column_totals import with_totals
    >>> with_totals(np.array([[30.0, 10.0]]), np.array([46.0]), 1.0, 1.0)
    array([[32., 12.]])
    """
    possible = np.broadcast_to(possible, counts.shape)
    sum_variance = possible.sum(axis=1) * count_noise**2
    correction = (totals - counts.sum(axis=1)) * count_noise**2 / (sum_variance + total_noise**2)
    return counts + possible * correction[:, None]


def deviation_in_classes(count_noise: float, total_noise: float, n_classes: int) -> float:
    """Return the deviation of the noise of a count of `with_totals`, in each of some classes.

    Examples
    --------
    >>> from skdpot.generative._sketch.column_totals import deviation_in_classes
    >>> round(deviation_in_classes(1.0, 1.0, 2) ** 2, 3)
    0.667
    """
    explained = count_noise**2 / (n_classes * count_noise**2 + total_noise**2)
    return float(count_noise * np.sqrt(1 - explained))


def likely_counts(
    counts: np.ndarray,
    deviations: np.ndarray,
    sums: Sequence[tuple[np.ndarray, np.ndarray, float]],
    group: np.ndarray,
    empty: np.ndarray,
) -> np.ndarray:
    """Return the nonnegative least-squares counts, given counts and sums of them.

    Cells that may hold only noise are expected to have the mean of such cells in their group, with
    a deviation of twice as much. Otherwise, the positive noise of many cells would add up.

    Parameters
    ----------
    counts, deviations : ndarray of shape (n_cells,)
        Released counts, and the standard deviations of their noise.
    sums : sequence of (ndarray, ndarray, float)
        The part of each cell, the released counts of parts, and the deviation of their noise.
    group : ndarray of shape (n_cells,)
        The group of each cell.
    empty : ndarray of shape (n_cells,)
        Which cells are known to be empty.

    Returns
    -------
    ndarray of shape (n_cells,)
        A function of the release.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.column_totals import likely_counts
    >>> counts, group = np.array([90.0, 12.0, -2.0, 30.0]), np.array([0, 1, 1, 2])
    >>> sums = [(group, np.array([90.0, 10.0, 30.0]), 1.0)]
    >>> likely_counts(counts, np.full(4, 10.0), sums, group, np.arange(4) == 3).round(1)
    array([90. ,  8.5,  1.5,  0. ])
    """
    precision, weighted = _equations(counts, deviations, sums)
    seen = np.linalg.solve(precision, weighted) > SEEN_DEVIATIONS * deviations
    hidden = ~(seen | empty)
    n_hidden = np.maximum(np.bincount(group, hidden), 1)
    estimates = _nonnegative(precision, weighted, ~empty)
    for _ in range(_PRIORS):
        expected = (np.bincount(group, np.where(hidden, estimates, 0.0)) / n_hidden)[group]
        prior = hidden / np.maximum(PRIOR_SPREAD * expected, LEAST_NOISE) ** 2
        estimates = _nonnegative(precision + np.diag(prior), weighted + prior * expected, ~empty)
    return estimates


def _equations(counts, deviations, sums):
    """Return the matrix and the right side of the normal equations of counts and their sums."""
    precisions = np.maximum(deviations, LEAST_NOISE) ** -2.0
    precision, weighted = np.diag(precisions), precisions * counts
    for parts, part_counts, deviation in sums:
        part_precision = max(deviation, LEAST_NOISE) ** -2.0
        precision += part_precision * (parts[:, None] == parts)
        weighted += part_precision * part_counts[parts]
    return precision, weighted


def _nonnegative(precision, weighted, possible):
    """Return the nonnegative least-squares solution, which is 0 for entries that are not possible.

    Pivoting: entries below 0 are fixed at 0, and entries at 0 with a slope below 0 are freed, all
    at once for some rounds. After these, one entry moves at a time, which makes the method end.
    """
    free, solution, least = possible.copy(), np.zeros(len(weighted)), len(weighted) + 1
    patience = _PATIENCE
    tolerance = _ROUNDING * np.abs(weighted).max(initial=0.0)
    for _ in range(_PIVOTS):
        solution = np.zeros(len(weighted))
        solution[free] = np.linalg.solve(precision[np.ix_(free, free)], weighted[free])
        slopes = precision @ solution - weighted
        wrong = np.flatnonzero(possible & np.where(free, solution < 0, slopes < -tolerance))
        if not len(wrong):
            break
        patience = _PATIENCE if len(wrong) < least else patience - 1
        least = min(least, len(wrong))
        free[wrong if patience > 0 else wrong[-1:]] ^= True
    return np.maximum(solution, 0.0)


def sums_of_pairs(
    pairs: Sequence[np.ndarray], sizes: Sequence[int], n_classes: int, deviations: Sequence[float]
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield the counts of each column's groups by its pairs with others, and their noise.

    `pairs` has the counts with noise of each two columns: of groups of the first, the second, and
    classes. `sizes` has the number of groups of each column, and `deviations` those of the noise of
    each pair.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.column_totals import sums_of_pairs
    >>> for sums, deviation in sums_of_pairs([np.arange(6.0)], [2, 3], 1, [1.0]):
    ...     print(sums, round(deviation, 2))
    [ 3. 12.] 1.73
    [3. 5. 7.] 1.41
    """
    sums, precisions = [np.zeros(size) for size in sizes], np.zeros(len(sizes))
    for (a, b), counts, deviation in zip(
        combinations(range(len(sizes)), 2), pairs, deviations, strict=True
    ):
        table = counts.reshape(sizes[a], sizes[b], n_classes).sum(axis=2)
        for j, other, axis in ((a, b, 1), (b, a, 0)):
            precision = 1 / (deviation**2 * sizes[other] * n_classes)
            sums[j] += precision * table.sum(axis=axis)
            precisions[j] += precision
    for column_sums, precision in zip(sums, precisions, strict=True):
        yield column_sums / precision, float(precision**-0.5)


def column_shares(totals: np.ndarray, group: np.ndarray, noise: float) -> np.ndarray:
    """Return the share of each cell in its group, from counts with noise.

    Cells that may hold only noise share their total evenly. Without that, the positive noise of all
    cells would be added to the column. `totals` are counts with noise of this standard deviation,
    and `group` has the group of each cell. The shares of a group have the sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.column_totals import column_shares
    >>> column_shares(np.array([90.0, -2.0, 12.0]), np.array([0, 1, 1]), 10.0).round(6)
    array([1. , 0.5, 0.5])
    """
    seen = totals > SEEN_DEVIATIONS * noise
    hidden = np.maximum(np.bincount(group, np.where(seen, 0.0, totals)), 0.0)
    n_hidden = np.maximum(np.bincount(group, ~seen), 1)
    kept = np.where(seen, totals, (hidden / n_hidden)[group]) + _EVEN_SHARE * noise
    return kept / np.bincount(group, kept)[group]
