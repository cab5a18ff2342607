"""The private rows of one class, and the exact sums over them that a mixture needs."""

import math
from typing import Any

import numpy as np

from skdpot.generative._sketch.clusters import Centres
from skdpot.generative._sketch.moments import COUNT, entry_weights
from skdpot.generative._sketch.radii import norm_counts
from skdpot.releases import RADIUS, ball_points, sum_of_blocks

# Projections onto directions are exact for directions on this grid.
_DIRECTIONS_GRID = 2.0**20
# Lower powers of two have no effect, beside one of 0.
_SMALLEST_POWER = -60.0
# Coefficients of a polynomial that is a power of two, from 0 to 1, up to an error of 1e-9.
_OF_TWO = [math.log(2) ** n / math.factorial(n) for n in range(9, -1, -1)]
# Numbers whose exponentials stay in a fast cache.
_AT_ONCE = 1 << 13


class ClassRows:
    """The codes of a class, which are moved as one learns where they are, and clipped for a sum.

    A row is clipped to a ball, and rounded to integers there, so sums are exact. One record changes
    them only by its own row, in any order of rows. Nothing that is computed of a row depends on
    another row.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Private, of norms up to 1. They are changed in place.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.class_rows import ClassRows
    >>> rows = ClassRows(np.array([[0.25, 0.5], [0.5, 0.0]]))
    >>> rows.clip(1.0)
    >>> rows.sums()
    array([6144, 4096])
    """

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        # In units of the ball: whole rows, and projections of them on leading directions.
        self._units: Any = None
        self._projected: Any = None
        self._nearest: Any = None

    def __len__(self) -> int:
        return len(self._rows)

    def norm_counts(self) -> np.ndarray:
        """Return how many rows have which norm; a record changes one count."""
        squares = np.square(np.ascontiguousarray(self._rows))
        return norm_counts(np.sqrt(np.add.reduce(squares, axis=1)))

    def subtract(self, vector: np.ndarray) -> None:
        """Move all rows."""
        self._rows -= vector

    def subtract_nearest(self, vectors: np.ndarray) -> None:
        """Move every row by the vector of the centre that it is nearest to."""
        self._rows -= vectors[self._nearest]

    def clip(self, radius: float) -> None:
        """Take the rows in units of a ball of a public radius."""
        self._units = ball_points(self._rows, radius)

    def sums(self) -> np.ndarray:
        """Return the sum of clipped rows; a record changes it by `BALL`."""
        return np.add.reduce(self._units, axis=0).astype(np.int64)

    def symmetric_sums(self) -> np.ndarray:
        """Return the weighted entries of the sum of ``x x'``; a record changes them by `SYMMETRIC`.

        They are of clipped rows, and have the shape (d (d + 1) / 2,).
        """
        rows, columns, weights = entry_weights(self._units.shape[1])
        units = self._units
        sums = sum_of_blocks(lambda block: units[block].T @ units[block], len(units))
        return weights * sums[rows, columns]

    def counts_and_sums(self, n_groups: int) -> np.ndarray:
        """Return sizes and sums of clusters; a record changes one row of them by `WITH_COUNT`.

        Row by row these are COUNT times the size of a cluster, and the sum of its clipped rows; the
        shape is (n_groups, 1 + d).
        """
        sums = np.zeros((n_groups, 1 + self._units.shape[1]))
        sums[:, 0] = COUNT * np.bincount(self._nearest, minlength=n_groups)
        np.add.at(sums[:, 1:], self._nearest, self._units)
        return sums.astype(np.int64)

    def project(self, directions: np.ndarray, unit: float, radius: float) -> None:
        """Take clipped rows along public directions, in units of another ball."""
        grid = np.rint(directions * _DIRECTIONS_GRID)
        # Products of integers, so that a row's depend on no other row.
        projected = self._units @ grid * (unit / _DIRECTIONS_GRID)
        self._projected = ball_points(projected, radius)

    def round_sums(self, centres: Centres) -> np.ndarray:
        """Return the sums of a round; a record changes them by at most `ROUND`.

        The shape is (k, 1 + r): of each centre the shares, and the rows weighted by them.
        """
        shares = self._shares(centres)
        totals = COUNT * np.add.reduce(shares, axis=0).astype(np.int64)
        sums = sum_of_blocks(lambda block: shares[block].T @ self._projected[block], len(shares))
        return np.column_stack([totals, sums])

    def find_nearest(self, centres: Centres) -> None:
        """Give every row to the centre of which it has the largest share."""
        self._nearest = np.argmax(self._shares(centres), axis=1)

    def _shares(self, centres: Centres) -> np.ndarray:
        """Return how rows share themselves out among centres.

        They are integers of at least 0. Those of a row add up to at most RADIUS.
        """
        # Products of integers, so that neither they nor their sums are rounded.
        grid = np.clip(np.nan_to_num(np.rint(centres.points)), -RADIUS, RADIUS)
        closeness = 2 * (self._projected @ grid.T) - np.add.reduce(grid * grid, axis=1)
        scores = closeness / centres.reg + centres.potentials
        # A common offset of all scores of a row has no effect.
        below = scores - np.maximum.reduce(scores, axis=1)[:, None]
        likeness = _exponentials(below.ravel()).reshape(below.shape)
        totals = np.add.reduce(np.ascontiguousarray(likeness), axis=1)
        # No number at all would be as far as can be from any other.
        return np.nan_to_num(np.floor(likeness / totals[:, None] * RADIUS))


def _exponentials(numbers: np.ndarray) -> np.ndarray:
    """Return the exponentials of numbers up to 0, nearly.

    They use only operations whose rounding does not depend on the position of a number in an array;
    the exponential function of a library need not be.
    """
    result = np.empty_like(numbers)
    for start in range(0, len(numbers), _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        powers = np.maximum(np.nan_to_num(numbers[block] * (1 / math.log(2))), _SMALLEST_POWER)
        exponents = np.floor(powers)
        fractions = powers - exponents
        power = np.full(fractions.shape, _OF_TWO[0])
        for coefficient in _OF_TWO[1:]:
            power *= fractions
            power += coefficient
        np.ldexp(power, exponents.astype(np.int64), out=result[block])
    return result
