"""Parities of three and more columns: their sums over records, and those that stand out.

Every column is cut in two halves, by its released counts. A record has the sign +1 or -1 in each,
and the parity of some columns is the product of its signs. Where pairs of columns are all that
there is, a model that has them predicts parities.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.stats import chi2

from skdpot.tables import TableSchema

__all__ = [
    "MOST_PARITIES",
    "PARITY_SIZES",
    "are_scanned",
    "column_halves",
    "count_subsets",
    "largest_scanned",
    "mixture_parities",
    "parity_sums",
    "scanned_subsets",
    "standing_out",
]

PARITY_SIZES = range(3, 6)
_FEWEST = PARITY_SIZES[0]
# No more parities are scanned. Those of all sizes are scanned for which noise leaves so much.
MOST_PARITIES = 28_000
_MOST_DEVIATION = 0.2
# A table without any has this chance to show one, and shows no more than so many.
_FALSE_ALARM = 0.01
_MOST_SHOWN = 16
# A smaller error is not worth more components.
_LEAST_EXCESS = 0.35
_RECORDS_OF_BLOCK, _TESTS_OF_BLOCK = 2**16, 512


def are_scanned(n_columns: int) -> bool:
    """Tell whether so many columns have parities, and not too many of them.

    Examples
    --------
    >>> from skdpot.generative._sketch.parities import are_scanned
    >>> [are_scanned(n_columns) for n_columns in (2, 20, 200)]
    [False, True, False]
    """
    return 0 < math.comb(n_columns, _FEWEST) <= MOST_PARITIES


def column_halves(masses: Sequence[np.ndarray], schema: TableSchema) -> list[np.ndarray]:
    """Return which half of its column each group is in.

    `masses` are counts with noise of the groups of each column but the target. Halves of numbers
    and levels are a lower and an upper one. Those of categories are about equally large: the
    largest group comes first, and each goes to the smaller half.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.parities import column_halves
    >>> from skdpot.tables import read_schema
    >>> schema = read_schema({"n": range(3), "town": ["a", "b", "c"]})
    >>> column_halves([np.array([30.0, 30.0, 40.0]), np.array([20.0, 45.0, 35.0])], schema)
    [array([False, False,  True]), array([ True, False,  True])]
    """
    halves = []
    for j, mass in zip(schema.features, masses, strict=True):
        upper = np.zeros(len(mass), dtype=bool)
        if schema.columns[j].kind == "nominal":
            sizes = [0.0, 0.0]
            for group in np.argsort(-mass, kind="stable"):
                upper[group] = sizes[1] < sizes[0]
                sizes[int(upper[group])] += mass[group]
        elif len(mass) > 1:
            below = np.cumsum(mass)
            cut = np.argmin(np.abs(below[:-1] - below[-1] / 2))
            upper[cut + 1 :] = True
        halves.append(upper)
    return halves


def largest_scanned(n_columns: int, n_records: float, deviation: float) -> int:
    """Return of how many columns parities are released, at most.

    `n_records` is about the number of records of a class, and `deviation` that of the noise of one
    parity, if it were the only one.

    Examples
    --------
    >>> from skdpot.generative._sketch.parities import largest_scanned
    >>> largest_scanned(10, 10_000, 10.0), largest_scanned(10, 10_000, 100.0)
    (5, 4)
    """
    largest = _FEWEST
    for size in PARITY_SIZES[1 : n_columns - 2]:
        n_tests = count_subsets(n_columns, size)
        too_noisy = deviation * math.sqrt(n_tests) > _MOST_DEVIATION * max(n_records, 1.0)
        if too_noisy or n_tests > MOST_PARITIES:
            break
        largest = size
    return largest


def count_subsets(n_columns: int, largest: int) -> int:
    """Return how many subsets `scanned_subsets` has.

    Examples
    --------
    >>> from skdpot.generative._sketch.parities import count_subsets
    >>> count_subsets(10, 5)
    582
    """
    sizes = range(_FEWEST, largest + 1)
    return sum(math.comb(n_columns, size) for size in sizes)


def scanned_subsets(n_columns: int, largest: int) -> list[np.ndarray]:
    """Return the subsets of three and more columns, of each size up to the largest.

    Examples
    --------
    >>> from skdpot.generative._sketch.parities import scanned_subsets
    >>> [len(subsets) for subsets in scanned_subsets(10, 5)]
    [120, 210, 252]
    """
    sizes = range(_FEWEST, largest + 1)
    return [np.array(list(combinations(range(n_columns), size))) for size in sizes]


def parity_sums(
    upper: np.ndarray, classes: np.ndarray, n_classes: int, subsets: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the sum of each parity over the records of each class.

    `upper` of shape (n_columns, n) and `classes` are private. A record in the upper halves of an
    odd number of columns counts -1, and others 1. The sums have the shape (n_subsets, n_classes).

    Notes
    -----
    A record changes one entry in each row, by 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.parities import parity_sums
    >>> upper = np.array([[True, False, False], [True, False, False], [True, True, False]])
    >>> parity_sums(upper, np.array([0, 0, 1]), 2, [np.array([[0, 1, 2]])])
    array([[-2,  1]])
    """
    sums = np.zeros((sum(map(len, subsets)), n_classes), dtype=np.int64)
    for c in range(n_classes):
        rows = upper[:, classes == c]
        for start in range(0, rows.shape[1], _RECORDS_OF_BLOCK):
            sums[:, c] += _sums_of_block(rows[:, start : start + _RECORDS_OF_BLOCK], subsets)
    return sums


def _sums_of_block(upper, subsets):
    """Return the sum of each parity over some records."""
    n_columns, n = upper.shape
    padded = np.zeros((n_columns, -(-n // 64) * 64), dtype=bool)
    padded[:, :n] = upper
    bits = np.packbits(padded, axis=1).view(np.uint64)
    odd = []
    for group in subsets:
        for start in range(0, len(group), _TESTS_OF_BLOCK):
            block = group[start : start + _TESTS_OF_BLOCK]
            words = bits[block[:, 0]]
            for column in block.T[1:]:
                words ^= bits[column]
            odd.append(np.bitwise_count(words).sum(axis=1, dtype=np.int64))
    return n - 2 * np.concatenate(odd)


def mixture_parities(
    weights: np.ndarray, signs: np.ndarray, subsets: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the mean of each parity in a mixture of products of distributions.

    `signs` of shape (n_components, n_columns) are the mean signs of columns. `subsets` are those of
    `scanned_subsets`. Results are from -1 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.parities import mixture_parities
    >>> signs = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.5]])
    >>> mixture_parities(np.array([0.5, 0.5]), signs, [np.array([[0, 1, 2]])])
    array([0.25])
    """
    means = []
    for group in subsets:
        products = signs[:, group[:, 0]]
        for column in group.T[1:]:
            products = products * signs[:, column]
        means.append(weights @ products)
    return np.concatenate(means)


def standing_out(
    seen: np.ndarray,
    predicted: np.ndarray,
    deviations: np.ndarray,
    sizes: np.ndarray,
    subsets: Sequence[np.ndarray],
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Return the parities whose distance from the prediction noise does not explain.

    Parameters
    ----------
    seen : ndarray of shape (n_subsets, n_classes)
        Mean parities, with noise.
    predicted : ndarray of shape (n_subsets, n_classes)
        Of `mixture_parities`.
    deviations : ndarray of shape (n_classes,)
        Of the noise.
    sizes : ndarray of shape (n_classes,)
        How many records classes have.
    subsets : sequence of ndarray
        Of `scanned_subsets`.

    Returns
    -------
    list of (tuple of int, ndarray of shape (n_classes,))
        The columns, and the mean parity that was seen of each class; the clearest first. Subsets
        with others inside them that are clearer are left out, as they may be a trace of these.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.parities import standing_out
    >>> subsets = [np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]), np.array([[0, 1, 2, 3]])]
    >>> seen = np.array([[0.02], [0.9], [0.01], [-0.02], [0.4]])
    >>> standing_out(seen, np.zeros((5, 1)), np.array([0.02]), np.ones(1), subsets)
    [((0, 1, 3), array([0.9]))]
    """
    differences = seen - predicted
    excess = np.sum((differences / deviations) ** 2, axis=1)
    excess[np.sqrt(np.average(differences**2, axis=1, weights=sizes)) < _LEAST_EXCESS] = 0.0
    least = chi2.isf(_FALSE_ALARM / len(seen), len(deviations))
    columns = [tuple(subset) for group in subsets for subset in group.tolist()]
    clearest: list[tuple[tuple[int, ...], np.ndarray]] = []
    for i in np.argsort(-excess, kind="stable"):
        if excess[i] <= least or len(clearest) == _MOST_SHOWN:
            break
        if not any(set(smaller) <= set(columns[i]) for smaller, _ in clearest):
            clearest.append((columns[i], np.clip(seen[i], -1.0, 1.0)))
    return clearest
