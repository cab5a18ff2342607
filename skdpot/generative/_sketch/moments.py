"""The integers of sums over records: their units, weights and sensitivities."""

from functools import partial

import numpy as np

from skdpot.privacy.sensitivity import (
    ball_sum_sensitivity,
    cell_count_sensitivity,
    counted_sum_sensitivity,
    product_sum_sensitivity,
)
from skdpot.releases import RADIUS

# Entries on and off the diagonal of a symmetric matrix are weighted by integers whose ratio is just
# below the root of two, because each off the diagonal stands for two. Then the norm of the weighted
# entries of x x' is at most the first weight times the squared norm of x.
DIAGONAL, _BESIDE = 29, 41
# Contribution of a record to a count of its class, next to a vector in the ball.
COUNT = RADIUS // 2
# By how much a record can change counts, and sums: of vectors, of both, and of products.
COUNTED = cell_count_sensitivity
BALL = partial(ball_sum_sensitivity, radius=RADIUS)
WITH_COUNT = partial(counted_sum_sensitivity, radius=RADIUS, count_weight=COUNT)
SYMMETRIC = partial(product_sum_sensitivity, radius=RADIUS, diagonal=DIAGONAL, beside=_BESIDE)


def entry_weights(n_dimensions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows and columns of a symmetric matrix's upper entries, and their weights."""
    rows, columns = np.triu_indices(n_dimensions)
    return rows, columns, np.where(rows == columns, DIAGONAL, _BESIDE)


def as_matrix(entries: np.ndarray, n_dimensions: int) -> np.ndarray:
    """Return the symmetric matrix of weighted entries, in units of integers.

    `entries` are those of `ClassRows.symmetric_sums`, perhaps with noise; the matrix is the sum of
    ``x x'``.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.moments import as_matrix
    >>> as_matrix(np.array([29, 82, 116]), 2)
    array([[1., 2.],
           [2., 4.]])
    """
    rows, columns, weights = entry_weights(n_dimensions)
    matrix = np.empty((n_dimensions, n_dimensions))
    matrix[rows, columns] = entries / weights
    matrix[columns, rows] = matrix[rows, columns]
    return matrix
