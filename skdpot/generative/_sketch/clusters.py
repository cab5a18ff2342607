"""Clusters of similar sizes, found by balanced transport between records and centres.

A round is a step of the semi-dual of entropic transport. Each record is shared among the centres,
by squared distance minus the potential of a centre, and the sums of these shares are released.
Centres move to the means, and potentials of crowded ones fall.
"""

from functools import partial

import numpy as np

from skdpot.generative._sketch.moments import COUNT
from skdpot.generative._sketch.shrinkage import kept_shares
from skdpot.privacy.sensitivity import share_sum_sensitivity
from skdpot.releases import RADIUS

# By how much a record more or less changes the sums of a round, in the Euclidean norm.
ROUND = partial(share_sum_sensitivity, radius=RADIUS, count_weight=COUNT, whole=RADIUS)
# Steps of potentials, and their largest magnitude, in units of the regularisation.
_POTENTIAL_STEP, _LARGEST_POTENTIAL = 0.5, 3.0
# A centre is not taken for having less than this part of an equal share.
_LEAST_SHARE = 0.1


class Centres:
    """Centres of one class, which move by the releases of rounds.

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
    reg : float
        Regularisation.
    """

    def __init__(self, points: np.ndarray, reg: float) -> None:
        self.points, self.potentials = points, np.zeros(len(points))
        self.reg = reg

    def move(self, sums: np.ndarray, deviation: float, n_records: float) -> None:
        """Take in the released sums of a round of about so many records.

        `sums` of shape (k, 1 + r) are those of `ClassRows.round_sums`, with noise of this standard
        deviation.
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
