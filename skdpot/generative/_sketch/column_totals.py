"""Counts of columns in all classes together, combined from all releases that have them."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

__all__ = ["LEAST_NOISE", "column_shares", "combined_counts", "sums_of_pairs"]

# The least that is taken for noise is a record.
LEAST_NOISE = 1.0

# A cell with fewer deviations of the noise is taken to be like all others of its group with fewer.
_SEEN_DEVIATIONS = 2.0
_EVEN_SHARE = 1e-6


def combined_counts(
    counts: np.ndarray,
    deviations: np.ndarray,
    sums: Sequence[tuple[np.ndarray, np.ndarray, float]],
) -> np.ndarray:
    """Return the counts of least squares, each in units of its noise, given sums of them.

    Parameters
    ----------
    counts, deviations : ndarray of shape (n_cells,)
        Released counts, and the standard deviations of their noise.
    sums : sequence of (ndarray, ndarray, float)
        The part that each cell is in, the released counts of parts, and the deviation of their
        noise.

    Returns
    -------
    ndarray of shape (n_cells,)
        A function of what was released.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.column_totals import combined_counts
    >>> counts, parts = np.array([10.0, 20.0, 5.0]), np.array([0, 0, 1])
    >>> combined_counts(counts, np.ones(3), [(parts, np.array([36.0, 5.0]), 1.0)]).round(6)
    array([12., 22.,  5.])
    """
    precisions = np.maximum(deviations, LEAST_NOISE) ** -2.0
    precision, weighted = np.diag(precisions), precisions * counts
    for parts, of_parts, deviation in sums:
        of_part = max(deviation, LEAST_NOISE) ** -2.0
        precision += of_part * (parts[:, None] == parts)
        weighted += of_part * of_parts[parts]
    return np.linalg.solve(precision, weighted)


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
    seen = totals > _SEEN_DEVIATIONS * noise
    hidden = np.maximum(np.bincount(group, np.where(seen, 0.0, totals)), 0.0)
    n_hidden = np.maximum(np.bincount(group, ~seen), 1)
    kept = np.where(seen, totals, (hidden / n_hidden)[group]) + _EVEN_SHARE * noise
    return kept / np.bincount(group, kept)[group]
