r"""The barycenter of distributions of predictions, which are numbers, and the maps to it.

On a line the barycenter has a closed form: its quantile function is the weighted average of the
groups' quantile functions, and optimal transport to it preserves the order of the predictions in
every group. So a prediction is moved by its rank in its own group.

A group's distribution is estimated from n predictions, each with the mass 1/n. Equal predictions
form an atom, with their mass at one value. The rank of a prediction in an atom is drawn at random
within that mass. A fixed rank would move the whole atom to one value, which would then identify the
group. A prediction without ties stands for a density: its rank is the middle of its mass, and ranks
are linear between neighbours. Beyond the extremes of its group nothing is observed; there, ranks
have exponential tails in the order of the predictions, and do not pile up at one value.

The mass between neighbours is uncertain by as much as itself. So if all predictions are used, the
distribution functions of new ranks are close, but their densities are not. Methods that use
densities, such as gradient boosting, then distinguish the groups. With k of n predictions as knots,
the mass between them is n / k times as large and has a relative error of (k / n)^(1/2). Ranks in
the bulk of smooth distributions are then off by the order of 1 / k^2, which is less than the
sampling error for k above n^(1/4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.fairness._cells import CellDistribution
from skdpot.fairness._quantiles import QuantileFunction, resolution, rounded
from skdpot.transport.barycenter import quantile_barycenter


@dataclass(frozen=True, eq=False)
class GroupDistribution:
    """The distribution of the predictions of one group.

    Attributes
    ----------
    sorted_scores : ndarray of shape (n,)
        The predictions that it was estimated from.
    values : ndarray of shape (n_values,)
        Distinct predictions in increasing order: all atoms, and some of the others.
    low, high : ndarray of shape (n_values,)
        The ranks that a prediction with such a value may have: the ends of an atom's mass, and
        twice the middle of a single prediction's.
    """

    sorted_scores: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def from_scores(cls, scores: np.ndarray, n_quantiles: int | None = None) -> "GroupDistribution":
        """Return the distribution of a sample of predictions.

        Among the predictions without ties, about as many as there are quantiles are used, equally
        spaced in rank, and the extremes. None uses all of them.
        """
        n = len(scores)
        values, counts = np.unique(scores, return_counts=True)
        ends = np.cumsum(counts)
        single = counts == 1
        low = np.where(single, ends - 0.5, ends - counts) / n
        high = np.where(single, ends - 0.5, ends) / n
        number = np.cumsum(single) - 1
        step = -(-int(single.sum()) // n_quantiles) if n_quantiles else 1
        used = ~single | (number % max(step, 1) == max(step, 1) // 2)
        used[[0, -1]] = True
        return cls(np.sort(scores), values[used], low[used], high[used])

    @property
    def quantiles(self) -> QuantileFunction:
        """Return the quantiles at ranks; atoms are flat, and jumps are between them."""
        return QuantileFunction(
            np.column_stack([self.low, self.high]).ravel(), np.repeat(self.values, 2)
        )

    def ranks(self, scores: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the ranks of predictions, randomised within atoms."""
        right = np.searchsorted(self.values, scores)
        last = len(self.values) - 1
        at = np.minimum(right, last)
        known = self.values[at] == scores
        inner = ~known & (right > 0) & (right <= last)
        ranks = self.low[at] + uniforms * (self.high[at] - self.low[at])
        i = right[inner]
        below, above = self.values[i - 1], self.values[i]
        share = (scores[inner] - below) / (above - below)
        ranks[inner] = self.high[i - 1] + share * (self.low[i] - self.high[i - 1])
        under, over = scores < self.values[0], scores > self.values[-1]
        ranks[under] = self.low[0] * _tail(self.sorted_scores, scores[under])
        ranks[over] = 1.0 - (1.0 - self.high[-1]) * _tail(-self.sorted_scores[::-1], -scores[over])
        return ranks

    def largest_shift(self) -> float:
        """Return the largest difference between a rank and the share of lower predictions.

        Between predictions the share is constant and ranks are monotone, so the difference is
        largest at a prediction, on one of its sides.
        """
        values, counts = np.unique(self.sorted_scores, return_counts=True)
        upto = np.cumsum(counts)
        n, ones = len(self.sorted_scores), np.ones(len(values))
        below = np.abs(self.ranks(values, 0.0 * ones) - (upto - counts) / n)
        above = np.abs(self.ranks(values, ones) - upto / n)
        return float(max(below.max(), above.max()))


def _tail(sorted_scores: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the share of the lowest prediction's rank that is left to lower ones.

    The tail is exponential. Its scale is the mean distance of the lowest predictions from the next
    one, the maximum likelihood estimate.
    """
    n_lowest = min(math.isqrt(len(sorted_scores)), len(sorted_scores) - 1)
    scale = float(np.mean(sorted_scores[n_lowest] - sorted_scores[:n_lowest])) if n_lowest else 0.0
    # Without a scale, the lowest value is an atom, whose lowest rank is 0.
    return np.exp((scores - sorted_scores[0]) / scale) if scale > 0 else np.zeros(len(scores))


@dataclass(frozen=True, eq=False)
class PredictionBarycenter:
    """The barycenter of the groups' distributions of predictions, and the maps to it.

    Attributes
    ----------
    groups : list of GroupDistribution or of CellDistribution
        The groups.
    quantiles : QuantileFunction
        The average of their quantile functions.
    objective : float
        The weighted sum of their squared Wasserstein distances from the barycenter; of samples, of
        these themselves.
    unit : float
        Predictions are rounded to multiples of it before they are ranked.
    """

    groups: Sequence[GroupDistribution | CellDistribution]
    quantiles: QuantileFunction
    objective: float
    unit: float

    @classmethod
    def from_scores(
        cls,
        samples: Sequence[np.ndarray],
        weights: np.ndarray,
        n_quantiles: int | str | None = None,
    ) -> "PredictionBarycenter":
        """Return the barycenter of samples of predictions.

        ``"auto"`` takes the square root of a group's size as its `n_quantiles`.
        """
        unit = resolution(np.concatenate(samples))
        samples = [rounded(sample, unit) for sample in samples]
        numbers = [
            math.isqrt(len(sample)) if isinstance(n_quantiles, str) else n_quantiles
            for sample in samples
        ]
        groups = [
            GroupDistribution.from_scores(sample, number)
            for sample, number in zip(samples, numbers, strict=True)
        ]
        objective = quantile_barycenter(samples, weights).objective
        return cls(groups, _average(groups, weights), objective, unit)

    @classmethod
    def from_cells(
        cls, edges: np.ndarray, masses: np.ndarray, weights: np.ndarray
    ) -> "PredictionBarycenter":
        """Return the barycenter of groups with known masses in cells."""
        groups = [CellDistribution(edges, of_group) for of_group in masses]
        average = _average(groups, weights)
        objective = sum(
            weight * _squared_distance(group.quantiles, average)
            for weight, group in zip(weights, groups, strict=True)
        )
        return cls(groups, average, float(objective), resolution(edges))

    def move(self, scores: np.ndarray, codes: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return moved predictions of groups; predictions with code -1 stay."""
        moved = scores.copy()
        for g, group in enumerate(self.groups):
            rows = np.flatnonzero(codes == g)
            ranks = group.ranks(rounded(scores[rows], self.unit), uniforms[rows])
            moved[rows] = self.quantiles(ranks)
        return moved


def share_of_ties(scores: np.ndarray, codes: np.ndarray) -> float:
    """Return the share of predictions that are tied with others in their group."""
    pairs = np.column_stack([rounded(scores, resolution(scores)), codes])
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    return float(counts[counts > 1].sum() / len(scores))


def _squared_distance(one: QuantileFunction, other: QuantileFunction) -> float:
    """Return the squared distance of two continuous quantile functions."""
    ranks = np.union1d(one.ranks, other.ranks)
    off = one(ranks) - other(ranks)
    # Differences are linear between ranks.
    squares = off[:-1] ** 2 + off[:-1] * off[1:] + off[1:] ** 2
    return float(np.diff(ranks) @ squares / 3.0)


def _average(
    groups: Sequence[GroupDistribution | CellDistribution], weights: np.ndarray
) -> QuantileFunction:
    """Return the exact weighted average of quantile functions, with the knots of all."""
    functions = [group.quantiles for group in groups]
    ranks = np.unique(np.concatenate([function.ranks for function in functions]))
    lower, upper = np.zeros(len(ranks)), np.zeros(len(ranks))
    for weight, function in zip(weights, functions, strict=True):
        lower += weight * function.lower(ranks)
        upper += weight * function(ranks)
    return QuantileFunction(np.repeat(ranks, 2), np.column_stack([lower, upper]).ravel())
