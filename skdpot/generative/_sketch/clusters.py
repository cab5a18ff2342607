"""Clusters of similar sizes, found by balanced transport between records and centres.

A round is a step of the semi-dual of entropic transport: records share themselves out among the
centres, by squared distance less the potential of a centre, and the sums of these shares are
released. Centres move to the means, and potentials of crowded ones fall.
"""

import math
from functools import partial

import numpy as np

from skdpot.generative._sketch.moments import COUNT
from skdpot.generative._sketch.shrinkage import kept_shares
from skdpot.privacy.sensitivity import share_sum_sensitivity
from skdpot.releases import RADIUS, products

# By how much a record more or less changes the sums of a round, in the Euclidean norm.
ROUND = partial(share_sum_sensitivity, radius=RADIUS, count_weight=COUNT, whole=RADIUS)
# Steps of potentials, and what none exceeds, in units of the regularisation.
_POTENTIAL_STEP, _LARGEST_POTENTIAL = 0.5, 3.0
# A centre is not taken for having less than this part of an equal share.
_LEAST_SHARE = 0.1
# Lower powers of two are of no account, beside one of 0.
_SMALLEST_POWER = -60.0
# Coefficients of a polynomial that is a power of two, from 0 to 1, up to an error of 1e-9.
_OF_TWO = [math.log(2) ** n / math.factorial(n) for n in range(9, -1, -1)]


def record_shares(
    units: np.ndarray, centres: np.ndarray, potentials: np.ndarray, reg: float
) -> np.ndarray:
    """Return how records share themselves out among centres.

    Parameters
    ----------
    units : ndarray of shape (n, r)
        Private, of `ball_points`.
    centres : ndarray of shape (k, r)
        Public, in the same units.
    potentials : ndarray of shape (k,)
        Public, in units of `reg`.
    reg : float
        Regularisation, in units of squared distances.

    Returns
    -------
    ndarray of shape (n, k), dtype float64
        Integers of at least 0; those of a row add up to at most RADIUS, and depend on no other row.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.clusters import record_shares
    >>> record_shares(np.array([[0.0], [3.0]]), np.array([[0.0], [3.0]]), np.zeros(2), 1.0).tolist()
    [[8190.0, 1.0], [1.0, 8190.0]]
    """
    # Products of integers, so that neither they nor their sums are rounded.
    grid = np.clip(np.nan_to_num(np.rint(centres)), -RADIUS, RADIUS)
    closeness = 2 * (units @ grid.T) - np.add.reduce(grid * grid, axis=1)
    scores = closeness / reg + potentials
    # What all scores of a row have in common is of no account.
    likeness = _exponential(scores - np.maximum.reduce(scores, axis=1)[:, None])
    whole = np.add.reduce(np.ascontiguousarray(likeness), axis=1)
    # No number at all would be as far as can be from any other.
    return np.nan_to_num(np.floor(likeness / whole[:, None] * RADIUS))


def round_sums(shares: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the sums of a round.

    Parameters
    ----------
    shares : ndarray of shape (n, k)
        Private, of `record_shares`.
    units : ndarray of shape (n, r)
        Private, of `ball_points`.

    Returns
    -------
    ndarray of shape (k, 1 + r), dtype int64
        Of each centre the shares and the rows, so weighted. The shares of a record have at most the
        norm RADIUS, so that it changes them by at most ROUND.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.clusters import round_sums
    >>> round_sums(np.array([[2.0, 3.0]]), np.array([[5.0]])).tolist()
    [[8192, 10], [12288, 15]]
    """
    weighted = products(shares, units)
    totals = COUNT * np.add.reduce(shares, axis=0).astype(np.int64)
    return np.column_stack([totals, weighted])


def _exponential(numbers: np.ndarray) -> np.ndarray:
    """Return the exponential of numbers up to 0, nearly.

    It is made of operations that are rounded in one way only, wherever a number stands among
    others; the exponential function of a library need not be.
    """
    powers = np.maximum(np.nan_to_num(numbers * (1 / math.log(2))), _SMALLEST_POWER)
    whole = np.floor(powers)
    rest = powers - whole
    power = np.full(numbers.shape, _OF_TWO[0])
    for coefficient in _OF_TWO[1:]:
        power = power * rest + coefficient
    return np.ldexp(power, whole.astype(np.int64))


class Centres:
    """Centres of one class, which move by what rounds release.

    Parameters
    ----------
    points : ndarray of shape (k, r)
        Where they are at first, in units of integers, along leading directions first.
    reg : float
        Regularisation, in units of squared distances.

    Attributes
    ----------
    points : ndarray of shape (k, r)
        Where they are.
    potentials : ndarray of shape (k,)
        In units of the regularisation.
    """

    def __init__(self, points: np.ndarray, reg: float) -> None:
        self.points, self.potentials = points, np.zeros(len(points))
        self._reg = reg

    def shares(self, units: np.ndarray) -> np.ndarray:
        """Return how records share themselves out among the centres."""
        return record_shares(units, self.points, self.potentials, self._reg)

    def nearest(self, units: np.ndarray) -> np.ndarray:
        """Return the centre of which each record has the largest share."""
        return np.argmax(self.shares(units), axis=1)

    def move(self, sums: np.ndarray, deviation: float, n_records: float) -> None:
        """Take in the released sums of a round of about so many records.

        Parameters
        ----------
        sums : ndarray of shape (k, 1 + r)
            Of `round_sums`, with noise.
        deviation : float
            Its standard deviation.
        n_records : float
            About how many records there are.
        """
        target = n_records / len(sums)
        counts = np.maximum(sums[:, 0] / COUNT / RADIUS, _LEAST_SHARE * target)
        means = sums[:, 1:] / RADIUS / counts[:, None]
        noise = (deviation / RADIUS / counts[:, None]) ** 2
        ranks = np.arange(means.shape[1])
        # The first three directions are judged one by one, and others by sixes.
        self.points = kept_shares(means, noise, np.minimum(ranks, 3 + ranks // 6)) * means
        moved = self.potentials + _POTENTIAL_STEP * np.log(target / counts)
        moved = np.clip(moved, -_LARGEST_POTENTIAL, _LARGEST_POTENTIAL)
        self.potentials = moved - moved.mean()
