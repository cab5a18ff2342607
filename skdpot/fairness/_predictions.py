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
from scipy.integrate import cumulative_trapezoid

from skdpot.transport.barycenter import quantile_barycenter

# Of each group: a limit of what is released, whatever the number of rows.
MOST_CELLS = 64


@dataclass(frozen=True, eq=False)
class QuantileFunction:
    """A distribution of numbers, given by its quantiles.

    Attributes
    ----------
    ranks : ndarray of shape (n_knots,)
        Increasing, in [0, 1]; equal neighbours are where quantiles jump.
    values : ndarray of shape (n_knots,)
        Quantiles, between which they are linear, and beyond which they are constant.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._predictions import QuantileFunction
    >>> quantiles = QuantileFunction(np.array([0.0, 1.0]), np.array([3.0, 5.0]))
    >>> quantiles([0.25, 1.0]).tolist()
    [3.5, 5.0]
    """

    ranks: np.ndarray
    values: np.ndarray

    def __call__(self, ranks):
        """Return the quantiles at ranks in [0, 1]; at a jump, its upper end."""
        return np.interp(ranks, self.ranks, self.values)

    def lower(self, ranks):
        """Return the quantiles at ranks in [0, 1]; at a jump, its lower end."""
        return np.interp(-np.asarray(ranks), -self.ranks[::-1], self.values[::-1])

    def mean(self, low, high):
        """Return the means of the quantiles between ranks; of equal ranks, the quantile there."""
        ends = cumulative_trapezoid(self.values, self.ranks, initial=0.0)

        def area(ranks):
            # Quantiles are linear between knots, and constant before the first.
            at = np.maximum(np.searchsorted(self.ranks, ranks, side="right") - 1, 0)
            return ends[at] + (ranks - self.ranks[at]) * (self.values[at] + self(ranks)) / 2.0

        means, wide = self(low), high > low
        low, high = low[wide], high[wide]
        found = (area(high) - area(low)) / (high - low)
        # Rounding must not change the order of means.
        means[wide] = np.clip(found, means[wide], self.lower(high))
        return means


def resolution(scores: np.ndarray) -> float:
    """Return the unit that scores are rounded to before comparisons.

    Predictions that differ by rounding count as equal: the rounding of a prediction depends on the
    batch of its row.
    """
    exponent = int(np.frexp(np.abs(scores).max())[1])
    # A tiny share of the largest score; dividing by a power of two rounds nothing.
    return math.ldexp(1.0, max(exponent - 36, -1022))


def rounded(scores: np.ndarray, unit: float) -> np.ndarray:
    """Return scores rounded to multiples of a unit."""
    return np.round(scores / unit) * unit


@dataclass(frozen=True, eq=False)
class GroupDistribution:
    """The distribution of the predictions of one group.

    Attributes
    ----------
    quantiles : QuantileFunction
        The quantiles at ranks. Two knots with one value are an atom, or a single prediction, whose
        ranks are both the middle of its mass.
    drawn : ndarray of shape (n_knots - 1,), dtype=bool
        Between which neighbouring knots ranks are drawn; between others they are linear.
    sorted_scores : ndarray of shape (n,)
        The predictions that it was estimated from, its own or those of all groups; none if they
        were counted in cells.
    """

    quantiles: QuantileFunction
    drawn: np.ndarray
    sorted_scores: np.ndarray

    @classmethod
    def from_scores(
        cls, scores: np.ndarray, n_quantiles: int | str, every: np.ndarray
    ) -> "GroupDistribution":
        """Return the distribution of a sample of predictions.

        All atoms are knots. Among the predictions without ties, about as many as there are
        quantiles are, equally spaced in rank, and the extremes. ``"auto"`` takes the square root of
        the number of predictions, and shrinks counts with the help of the sorted predictions of
        all groups.
        """
        n, seen = len(scores), every if isinstance(n_quantiles, str) else np.sort(scores)
        values, together = np.unique(seen, return_counts=True)
        counts = np.bincount(np.searchsorted(values, scores), minlength=len(values))
        if isinstance(n_quantiles, str):
            n_quantiles, counts = math.isqrt(n), shrunk_counts(counts, together)
        ends, single = np.minimum(np.cumsum(counts), n), together == 1
        starts = np.append(0.0, ends[:-1])
        low = np.where(single, 0.5 * (starts + ends), starts) / n
        high = np.where(single, 0.5 * (starts + ends), ends) / n
        untied = np.cumsum(np.where(single, counts, 0.0))
        places = np.round(untied * n_quantiles / max(untied[-1], 1.0))
        used = ~single | (np.diff(places, prepend=0.0) > 0)
        # Without the extremes, ranks beyond them would have no anchor.
        used[[0, -1]] = True
        ranks = np.column_stack([low[used], high[used]]).ravel()
        quantiles = QuantileFunction(ranks, np.repeat(values[used], 2))
        return cls(quantiles, np.diff(quantiles.values) == 0, seen)

    @classmethod
    def from_cells(cls, edges: np.ndarray, masses: np.ndarray) -> "GroupDistribution":
        """Return the distribution with masses above 0 in cells, within which it is even.

        In a cell with far more mass than its neighbours, many predictions may be equal or nearly
        equal, and counts do not show it. So ranks are drawn within the mass of the cell.
        """
        ends = np.append(0.0, np.cumsum(masses))
        # The outermost cells have one neighbour, which counts twice.
        padded = np.pad(masses, 1, mode="reflect")
        neighbours = 0.5 * (padded[:-2] + padded[2:])
        # And more than the mean of all cells, as noise alone makes empty neighbours differ.
        crowded = masses > np.maximum(2.0 * neighbours, 1.0 / len(masses))
        quantiles = QuantileFunction(np.minimum(ends / ends[-1], 1.0), edges)
        return cls(quantiles, crowded, np.empty(0))

    def ranks(self, scores: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the ranks of predictions; those that are drawn, by uniform random numbers."""
        ranks, values = self.quantiles.ranks, self.quantiles.values
        # Searches, since there may be as many values as rows.
        right = np.searchsorted(values, scores)
        known = values[np.minimum(right, len(values) - 1)] == scores
        # Beyond the knots, the outermost piece.
        at = np.clip(np.where(known, right, right - 1), 0, len(values) - 2)
        below, above = values[at], values[at + 1]
        even = ~self.drawn[at]
        places = np.divide(scores - below, above - below, out=uniforms.copy(), where=even)
        found = ranks[at] + np.clip(places, 0.0, 1.0) * (ranks[at + 1] - ranks[at])
        if len(self.sorted_scores):
            under, over = scores < values[0], scores > values[-1]
            found[under] = ranks[0] * _tail(self.sorted_scores, scores[under])
            found[over] = 1.0 - (1.0 - ranks[-1]) * _tail(-self.sorted_scores[::-1], -scores[over])
        return found


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
    groups : list of GroupDistribution
        The groups.
    quantiles : QuantileFunction
        The average of their quantile functions.
    objective : float
        The weighted sum of their squared Wasserstein distances from the barycenter; of samples, of
        these themselves.
    unit : float
        Predictions are rounded to multiples of it before they are ranked.
    levels : ndarray of shape (n_groups,)
        How far each group is moved by default, from 0 to 1.
    """

    groups: Sequence[GroupDistribution]
    quantiles: QuantileFunction
    objective: float
    unit: float
    levels: np.ndarray

    @classmethod
    def from_scores(
        cls, samples: Sequence[np.ndarray], weights: np.ndarray, n_quantiles: int | str
    ) -> "PredictionBarycenter":
        """Return the barycenter of samples of predictions, by a number of quantiles of each."""
        unit = resolution(np.concatenate(samples))
        samples = [rounded(sample, unit) for sample in samples]
        every = np.sort(np.concatenate(samples))
        groups = [GroupDistribution.from_scores(sample, n_quantiles, every) for sample in samples]
        # Of the samples themselves, not of the knots that smooth them.
        objective = quantile_barycenter(samples, weights).objective
        levels = clear_levels([sample / unit for sample in samples], weights)
        return cls(groups, _average(groups, weights), objective, unit, levels)

    @classmethod
    def from_cells(
        cls, edges: np.ndarray, masses: np.ndarray, weights: np.ndarray
    ) -> "PredictionBarycenter":
        """Return the barycenter of groups with known masses in cells."""
        groups = [GroupDistribution.from_cells(edges, of_group) for of_group in masses]
        average = _average(groups, weights)
        distances = [_squared_distance(group.quantiles, average) for group in groups]
        # Masses are shrunk before.
        levels = np.ones(len(groups))
        return cls(groups, average, float(weights @ distances), resolution(edges), levels)

    def move(
        self, scores: np.ndarray, codes: np.ndarray, uniforms: np.ndarray | None
    ) -> np.ndarray:
        """Return moved predictions of groups; predictions with code -1 stay.

        The ranks of ties are drawn by uniform random numbers. Without these, ties get the mean of
        all images that could be drawn: a monotone function of the prediction in every group. Its
        mean is that of the barycenter, as in all groups, and its variance is smaller.
        """
        # Rows in no group keep their predictions.
        moved = scores.copy()
        for g, group in enumerate(self.groups):
            rows = np.flatnonzero(codes == g)
            values = rounded(scores[rows], self.unit)
            if uniforms is not None:
                moved[rows] = self.quantiles(group.ranks(values, uniforms[rows]))
                continue
            low, high = (group.ranks(values, np.full(len(rows), end)) for end in (0.0, 1.0))
            moved[rows] = self.quantiles.mean(low, high)
        return moved


def share_of_ties(scores: np.ndarray, codes: np.ndarray) -> float:
    """Return the share of predictions that are tied with others in their group."""
    pairs = np.column_stack([rounded(scores, resolution(scores)), codes])
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    return float(counts[counts > 1].sum() / len(scores))


def shrunk_counts(counts: np.ndarray, together: np.ndarray) -> np.ndarray:
    """Return how often a group has each value, shrunk towards a model with one parameter.

    In the model, a share u ** a of the group is below the value that a share u of all groups is
    below; or a share u ** a is above the value that a share u of all is above. The mean rank of the
    group among all decides which, and a. If the model is right, the mean squared difference of both
    distribution functions is about 1 / (14 n) for n predictions, spread over about five dimensions.
    For five, James and Stein's rule shrinks by three fifths of the part that chance explains. So a
    group with few predictions has the shape of all groups, and one with many its own.

    Chosen on 28 other tables, and measured on 23 public ones with 500 rows (ten seeds, mean of two
    models): the Kolmogorov-Smirnov distance of new rows is .132 and not .138, and the AUC or R2 is
    .002 higher. With 2,000 rows (19 tables), it is .107 and not .109.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._predictions import shrunk_counts
    >>> shrunk_counts(np.array([0, 1, 2]), np.array([10, 10, 10])).round(2)
    array([0.33, 1.  , 1.67])
    """
    n, ends = counts.sum(), np.cumsum(together) / together.sum()
    # One row more, in the middle, so that few rows decide less.
    mean = (counts @ (ends - 0.5 * together / together.sum()) + 0.5) / (n + 1)
    odds = mean / (1.0 - mean)
    model = ends**odds if odds > 1 else 1.0 - (1.0 - ends) ** (1.0 / odds)
    masses = np.diff(model, prepend=0.0)
    found = masses @ np.square(np.cumsum(counts) / n - model)
    shrunk = min(1.0 / (23.0 * n * max(found, np.finfo(float).tiny)), 1.0)
    return (1.0 - shrunk) * counts + shrunk * n * masses


def clear_levels(samples: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return how far groups are to be moved, so that maps follow differences and not chance.

    Chance explains a part of a group's squared distance from the barycenter: its mean if the same
    predictions are dealt to groups at random. The group is moved by the rest, as in James and
    Stein's rule, and not at all where chance explains more. Above .9, it is wholly moved, so that
    ties of all groups get the same images. Measured on 23 public tables (two seeds, mean of two
    models): with 500 rows, against moving all, the AUC is .003 higher, the Kolmogorov-Smirnov
    distance of new rows .117 and not .140, and the group is named from scores with an AUC of .558
    and not .595 (.565 before). With 2,000 rows it is .001 higher, .098 and .105, .559 and .572.
    """
    ranks = (np.arange(200) + 0.5) / 200

    def distances(samples: Sequence[np.ndarray]) -> np.ndarray:
        quantiles = np.array([np.quantile(sample, ranks) for sample in samples])
        return np.square(quantiles - weights @ quantiles).mean(axis=1)

    rng, every = np.random.default_rng(0), np.concatenate(samples)
    ends, n_deals = np.cumsum([*map(len, samples)])[:-1], int(np.clip(2e6 / len(every), 1, 20))
    dealt = [distances(np.split(rng.permutation(every), ends)) for _ in range(n_deals)]
    found = np.maximum(distances(samples), np.finfo(float).tiny)
    levels = np.maximum(1.0 - np.mean(dealt, axis=0) / found, 0.0)
    return np.where(levels > 0.9, 1.0, levels)


def _squared_distance(one: QuantileFunction, other: QuantileFunction) -> float:
    """Return the squared distance of two continuous quantile functions."""
    ranks = np.union1d(one.ranks, other.ranks)
    # At all knots of both, so that nothing bends in between.
    off = one(ranks) - other(ranks)
    # Differences are linear between ranks.
    squares = off[:-1] ** 2 + off[:-1] * off[1:] + off[1:] ** 2
    return float(np.diff(ranks) @ squares / 3.0)


def _average(groups: Sequence[GroupDistribution], weights: np.ndarray) -> QuantileFunction:
    """Return the exact weighted average of quantile functions, with the knots of all."""
    functions = [group.quantiles for group in groups]
    ranks = np.unique(np.concatenate([function.ranks for function in functions]))
    lower = np.average([function.lower(ranks) for function in functions], axis=0, weights=weights)
    upper = np.average([function(ranks) for function in functions], axis=0, weights=weights)
    return QuantileFunction(np.repeat(ranks, 2), np.column_stack([lower, upper]).ravel())


# ---------------------------------------------------------- distributions that are counted in cells


def number_of_cells(n_records: float, deviation: float) -> int:
    """Return the number of cells to count the rows of a distribution in.

    Noise of a standard deviation s on each of G counts of about n rows (public) moves a
    distribution function by about ``s sqrt(G) / (2 n)``. Within a cell the function is taken to be
    linear, which is off by up to ``b / G**2``. The sum of squares is smallest for ``G = (4 b n / s)
    ** (2/5)``.

    Examples
    --------
    >>> from skdpot.fairness._predictions import number_of_cells
    >>> number_of_cells(500, 2.8), number_of_cells(500, 28.0), number_of_cells(1e5, 2.8)
    (20, 8, 64)
    """
    # Scores are assumed to have a standard deviation of a ninth of the width of their bounds: then
    # b is 81 / 8 times the steepest slope of a Gaussian density, exp(-1/2) / sqrt(2 pi).
    bend = 81.0 / 8.0 * math.exp(-0.5) / math.sqrt(2.0 * math.pi)
    number = round((4.0 * bend * n_records / deviation) ** 0.4)
    return min(max(number, 2), MOST_CELLS)


def shrunk_masses(noisy: np.ndarray, deviation: float) -> np.ndarray:
    """Return distributions, above 0, estimated from counts with noise of a known deviation.

    First all groups together, then each of them is divided in two parts again and again. The share
    of a part comes from noisy counts, and is shrunk towards a known share: the share of cells for
    all groups together, and the share of all groups for one group. As in James and Stein's rule, it
    is shrunk by the variance of the noise over the squared difference, and wholly where noise is
    larger. A group whose sum of counts is below two standard deviations of its noise is taken to be
    like all.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._predictions import shrunk_masses
    >>> shrunk_masses(np.array([[101.0, 98.0], [6.0, -5.0]]), 3.0).round(2)
    array([[0.51, 0.49],
           [0.53, 0.47]])
    """
    n_groups, n_cells = noisy.shape
    even = np.full(n_cells, 1.0 / n_cells)
    total = noisy.sum(axis=0, keepdims=True)
    together = _divided(total, even, deviation * math.sqrt(n_groups))[0]
    masses = _divided(noisy, together, deviation)
    # A group that noise hides would otherwise be moved by noise alone.
    masses[noisy.sum(axis=1) < 2.0 * deviation * math.sqrt(n_cells)] = together
    return masses


def _divided(counts: np.ndarray, known: np.ndarray, deviation: float) -> np.ndarray:
    """Return masses in cells, shrunk towards known ones, to which one record is added."""
    # Noise may leave a negative number of rows.
    totals = np.maximum(counts.sum(axis=1), 1.0)
    ends = np.concatenate([[0.0], np.cumsum(known)])
    upto = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    masses = np.empty(counts.shape)
    parts = [(0, len(known), totals)]
    while parts:
        low, high, mass = parts.pop()
        if high - low == 1:
            masses[:, low] = mass
            continue
        # The cut at which the known mass is nearest to one half.
        inner = ends[low + 1 : high]
        cut = low + 1 + int(np.abs(inner - 0.5 * (ends[low] + ends[high])).argmin())
        share = (ends[cut] - ends[low]) / (ends[high] - ends[low])
        first, second = upto[:, cut] - upto[:, low], upto[:, high] - upto[:, cut]
        # How far the first half is from its known share, and the variance of the noise of that.
        n_first, n_second, n_cells = cut - low, high - cut, high - low
        off = (first * n_second - (second - mass) * n_first) / n_cells - mass * share
        variance = deviation**2 * n_first * n_second / n_cells
        kept = np.maximum(1.0 - variance / np.maximum(off**2, np.finfo(float).tiny), 0.0)
        of_first = np.clip(mass * share + kept * off, 0.0, mass)
        parts += [(low, cut, of_first), (cut, high, mass - of_first)]
    # One record more, spread as is known, keeps every mass above 0: quantiles then have no jumps.
    masses += known / known.sum()
    return masses / masses.sum(axis=1, keepdims=True)
