"""Counts of columns in all classes together, combined from all releases that have them."""

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

# The least that is taken for noise is a record.
LEAST_NOISE = 1.0

# A cell with fewer deviations of the noise is taken to be like all others of its group with fewer.
SEEN_DEVIATIONS = 2.0
_EVEN_SHARE = 1e-6
# How often cells are expected to have what was found last, and how far off that may be.
_PRIORS, PRIOR_SPREAD = 2, 2.0
# Rounds of pivots, and how many of them may move all entries at once for nothing.
_PIVOTS, _PATIENCE = 200, 3
_ROUNDING = 1e-12


def with_totals(
    counts: np.ndarray,
    totals: np.ndarray,
    of_counts: float | np.ndarray,
    of_totals: float | np.ndarray,
    possible: bool | np.ndarray = True,
) -> np.ndarray:
    """Return the counts of least squares of each class, given counts of all classes together.

    Parameters
    ----------
    counts : ndarray of shape (n_cells, n_classes)
        Released, and 0 where none are possible.
    totals : ndarray of shape (n_cells,)
        Released counts of all classes together.
    of_counts, of_totals : float
        Standard deviations of the noise of both, perhaps one for each cell.
    possible : ndarray of shape (n_cells, n_classes), default=True
        In which classes records of a cell may be.

    Returns
    -------
    ndarray of shape (n_cells, n_classes)
        All classes of a cell are moved alike.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.column_totals import with_totals
    >>> with_totals(np.array([[30.0, 10.0]]), np.array([46.0]), 1.0, 1.0)
    array([[32., 12.]])
    """
    possible = np.broadcast_to(possible, counts.shape)
    of_sums = possible.sum(axis=1) * of_counts**2
    moved = (totals - counts.sum(axis=1)) * of_counts**2 / (of_sums + of_totals**2)
    return counts + possible * moved[:, None]


def deviation_in_classes(of_counts: float, of_totals: float, n_classes: int) -> float:
    """Return the deviation of the noise of a count of `with_totals`, in each of some classes.

    Examples
    --------
    >>> from skdpot.generative._sketch.column_totals import deviation_in_classes
    >>> round(deviation_in_classes(1.0, 1.0, 2) ** 2, 3)
    0.667
    """
    explained = of_counts**2 / (n_classes * of_counts**2 + of_totals**2)
    return float(of_counts * np.sqrt(1 - explained))


def likely_counts(
    counts: np.ndarray,
    deviations: np.ndarray,
    sums: Sequence[tuple[np.ndarray, np.ndarray, float]],
    group: np.ndarray,
    empty: np.ndarray,
) -> np.ndarray:
    """Return the counts of least squares, none below 0, given sums of them: in units of noise.

    Cells that noise alone may fill are expected to have what those of their group have in the mean,
    give or take twice as much. Otherwise what is above 0 of the noise of many cells would add up.

    Parameters
    ----------
    counts, deviations : ndarray of shape (n_cells,)
        Released counts, and the standard deviations of their noise.
    sums : sequence of (ndarray, ndarray, float)
        The part that each cell is in, the released counts of parts, and the deviation of their
        noise.
    group : ndarray of shape (n_cells,)
        Of each cell.
    empty : ndarray of shape (n_cells,)
        Which cells have nothing.

    Returns
    -------
    ndarray of shape (n_cells,)
        A function of what was released.

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
    found = _nonnegative(precision, weighted, ~empty)
    for _ in range(_PRIORS):
        expected = (np.bincount(group, np.where(hidden, found, 0.0)) / n_hidden)[group]
        prior = hidden / np.maximum(PRIOR_SPREAD * expected, LEAST_NOISE) ** 2
        found = _nonnegative(precision + np.diag(prior), weighted + prior * expected, ~empty)
    return found


def _equations(counts, deviations, sums):
    """Return the matrix and the right side of the normal equations of counts and their sums."""
    precisions = np.maximum(deviations, LEAST_NOISE) ** -2.0
    precision, weighted = np.diag(precisions), precisions * counts
    for parts, of_parts, deviation in sums:
        of_part = max(deviation, LEAST_NOISE) ** -2.0
        precision += of_part * (parts[:, None] == parts)
        weighted += of_part * of_parts[parts]
    return precision, weighted


def _nonnegative(precision, weighted, possible):
    """Return the solution of least squares with no entry below 0, and 0 where none is possible.

    By pivoting: entries that are below 0 become 0, and those whose slope is are let free, all at
    once for some rounds. Then it is one at a time, so that it ends.
    """
    free, found, least = possible.copy(), np.zeros(len(weighted)), len(weighted) + 1
    left = _PATIENCE
    tolerance = _ROUNDING * np.abs(weighted).max(initial=0.0)
    for _ in range(_PIVOTS):
        found = np.zeros(len(weighted))
        found[free] = np.linalg.solve(precision[np.ix_(free, free)], weighted[free])
        slopes = precision @ found - weighted
        wrong = np.flatnonzero(possible & np.where(free, found < 0, slopes < -tolerance))
        if not len(wrong):
            break
        left = _PATIENCE if len(wrong) < least else left - 1
        least = min(least, len(wrong))
        free[wrong if left > 0 else wrong[-1:]] ^= True
    return np.maximum(found, 0.0)


def sums_of_pairs(
    pairs: Sequence[np.ndarray], sizes: Sequence[int], n_classes: int, deviations: Sequence[float]
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield the counts of each column's groups that its pairs with others tell, and their noise.

    Parameters
    ----------
    pairs : sequence of ndarray
        Counts with noise of each two columns: of groups of the first, the second, and classes.
    sizes : sequence of int
        How many groups each column has.
    n_classes : int
        How many classes there are.
    deviations : sequence of float
        Of the noise of each pair's counts, above 0.

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
    for (a, b), of_pair, deviation in zip(
        combinations(range(len(sizes)), 2), pairs, deviations, strict=True
    ):
        table = of_pair.reshape(sizes[a], sizes[b], n_classes).sum(axis=2)
        for j, other, axis in ((a, b, 1), (b, a, 0)):
            precision = 1 / (deviation**2 * sizes[other] * n_classes)
            sums[j] += precision * table.sum(axis=axis)
            precisions[j] += precision
    for of_column, precision in zip(sums, precisions, strict=True):
        yield of_column / precision, float(precision**-0.5)


def column_shares(totals: np.ndarray, group: np.ndarray, noise: float) -> np.ndarray:
    """Return the share that each cell has of its group, of counts with noise.

    Counts that noise alone may be are shared out evenly, as many as they are together. Each of
    them without its negative ones would add half of the noise of all cells to the column.

    Parameters
    ----------
    totals : ndarray of shape (n_cells,)
        Counts with noise.
    group : ndarray of shape (n_cells,)
        Of each cell.
    noise : float
        Standard deviation of the noise of a count.

    Returns
    -------
    ndarray of shape (n_cells,)
        Those of a group have the sum 1.

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
