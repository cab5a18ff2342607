"""Counts, means and covariances of classes, as exact sums over records, and read back from noise.

The integers of a release have units of their own; what is returned is in units of the codes.
"""

from functools import partial

import numpy as np

from skdpot.privacy.sensitivity import (
    ball_sum_sensitivity,
    cell_count_sensitivity,
    counted_sum_sensitivity,
    product_sum_sensitivity,
)
from skdpot.releases import RADIUS, products

# The entries of a symmetric matrix and those beside its diagonal, which stand for two each, are
# weighted by integers whose ratio is just below the root of two: the norm of the weighted entries
# of x x' is then at most the first weight times the squared norm of x.
DIAGONAL, _BESIDE = 29, 41
# What a record adds to a count of its class beside a vector in the ball.
COUNT = RADIUS // 2
# By how much a record can change counts, and sums: of vectors, of both, and of products.
COUNTED = cell_count_sensitivity
BALL = partial(ball_sum_sensitivity, radius=RADIUS)
WITH_COUNT = partial(counted_sum_sensitivity, radius=RADIUS, count_weight=COUNT)
SYMMETRIC = partial(product_sum_sensitivity, radius=RADIUS, diagonal=DIAGONAL, beside=_BESIDE)


def vector_sums(units: np.ndarray) -> np.ndarray:
    """Return the sum of rows of integers, exactly; one of `ball_points` changes it by `BALL`."""
    return np.add.reduce(units, axis=0).astype(np.int64)


def counts_and_sums(units: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the weighted size of each group, and the sum of its rows, exactly.

    Parameters
    ----------
    units : ndarray of shape (n, d)
        Of `ball_points`.
    groups : ndarray of shape (n,)
        The group of each row.
    n_groups : int
        How many groups there are.

    Returns
    -------
    ndarray of shape (n_groups, 1 + d), dtype int64
        COUNT times the size, and the sum. A record more or less changes one row, by at most
        `WITH_COUNT` in the Euclidean norm.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.moments import counts_and_sums
    >>> counts_and_sums(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1]), 2)
    array([[   0,    0,    0],
           [8192,    4,    6]])
    """
    sums = np.zeros((n_groups, 1 + units.shape[1]))
    sums[:, 0] = COUNT * np.bincount(groups, minlength=n_groups)
    np.add.at(sums[:, 1:], groups, units)
    return sums.astype(np.int64)


def symmetric_sums(units: np.ndarray) -> np.ndarray:
    """Return the weighted entries of the sum of ``x x'`` over rows, exactly.

    Parameters
    ----------
    units : ndarray of shape (n, d)
        Of `ball_points`.

    Returns
    -------
    ndarray of shape (d (d + 1) / 2,), dtype int64
        A record more or less changes them by at most `SYMMETRIC`, in the Euclidean norm.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.moments import symmetric_sums
    >>> symmetric_sums(np.array([[1.0, 2.0]]))
    array([ 29,  82, 116])
    """
    rows, columns = np.triu_indices(units.shape[1])
    weights = np.where(rows == columns, DIAGONAL, _BESIDE)
    return weights * products(units, units)[rows, columns]


def as_matrix(entries: np.ndarray, n_dimensions: int) -> np.ndarray:
    """Return the symmetric matrix of weighted entries, in units of integers.

    Parameters
    ----------
    entries : ndarray of shape (d (d + 1) / 2,)
        Of `symmetric_sums`, with noise, perhaps.
    n_dimensions : int
        d.

    Returns
    -------
    ndarray of shape (d, d)
        The sum of ``x x'``.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.moments import as_matrix
    >>> as_matrix(np.array([29, 82, 116]), 2)
    array([[1., 2.],
           [2., 4.]])
    """
    rows, columns = np.triu_indices(n_dimensions)
    matrix = np.empty((n_dimensions, n_dimensions))
    matrix[rows, columns] = entries / np.where(rows == columns, DIAGONAL, _BESIDE)
    matrix[columns, rows] = matrix[rows, columns]
    return matrix
