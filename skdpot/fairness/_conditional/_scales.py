"""Scales of numbers: from values, possibly tied, to nearly Gaussian scores."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from skdpot.fairness._conditional._polyline import Polyline

# Knots of a scale of values without ties.
_N_KNOTS = 257
# If more than this share of the rows have different values, values count as untied.
_UNTIED = 0.5
# Values with this many decimals, or more, are not rounded.
_MOST_DECIMALS = 7


@dataclass(frozen=True, eq=False)
class Scale:
    """An increasing piecewise linear function from values to scores.

    Tied values are spread within their cells first, so that scores have no ties. Moved scores are
    put back on the lattice of values.

    Attributes
    ----------
    values, scores : ndarray of shape (n_knots,)
        Knots: ends of cells where values are tied, otherwise quantiles.
    lattice : ndarray of shape (n_values,) or None
        The values that occur, where they are tied.
    middles : ndarray of shape (n_values,) or None
        The score by which a value of the lattice is known to models of later columns.
    decimals : int
        Number of decimals of values without ties.
    """

    values: np.ndarray
    scores: np.ndarray
    lattice: np.ndarray | None
    middles: np.ndarray | None
    decimals: int

    @cached_property
    def _to_scores(self) -> Polyline:
        return Polyline(self.values, self.scores)

    @cached_property
    def _to_values(self) -> Polyline:
        return Polyline(self.scores, self.values)

    def spread(self, values: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return values spread within their cells; values beyond the range go to its ends."""
        if self.lattice is None:
            return np.clip(values, self.values[0], self.values[-1])
        cell = self._to_scores.cell(values)
        return self.values[cell] + uniforms * (self.values[cell + 1] - self.values[cell])

    def score(self, spread: np.ndarray) -> np.ndarray:
        """Return the scores of spread values."""
        return self._to_scores(spread)

    def value(self, scores: np.ndarray) -> np.ndarray:
        """Return the spread values of scores."""
        return self._to_values(scores)

    def put_back(self, spread: np.ndarray) -> np.ndarray:
        """Return values on the lattice, or with as many decimals as values have."""
        if self.lattice is not None:
            return self.lattice[self._to_scores.cell(spread)]
        return np.round(spread, self.decimals) if self.decimals < _MOST_DECIMALS else spread

    def middle(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores that models of later columns are given."""
        if self.lattice is None or self.middles is None:
            return np.clip(scores, self.scores[0], self.scores[-1])
        return self.middles.take(self._to_values.cell(scores))


def fit_scale(values: np.ndarray, groups: np.ndarray) -> Scale:
    """Return the scale of a column that has at least two distinct values.

    Among several functions, it is the one for which groups are most nearly Gaussian with a common
    variance.
    """
    lattice, counts = np.unique(values, return_counts=True)
    if len(lattice) > _UNTIED * len(values):
        shares = np.linspace(0, 1, min(_N_KNOTS, len(lattice)))
        ends = np.unique(np.quantile(values, shares))
        scores = _best_scores(ends, values, values, groups)
        return Scale(ends, scores, None, None, _decimals(lattice))
    ends = np.r_[
        1.5 * lattice[0] - 0.5 * lattice[1],
        (lattice[1:] + lattice[:-1]) / 2,
        1.5 * lattice[-1] - 0.5 * lattice[-2],
    ]
    # Values are spread within their cells, here at equal distances.
    place = (np.arange(len(values)) * 0.6180339887) % 1.0
    cell = np.searchsorted(lattice, values)
    spread = ends[cell] + place * (ends[cell + 1] - ends[cell])
    scores = _best_scores(ends, spread, values, groups)
    middles = np.interp(lattice, ends, scores)
    return Scale(ends, scores, lattice, middles, _MOST_DECIMALS)


def _best_scores(
    ends: np.ndarray, spread: np.ndarray, values: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """Return scores at the ends of cells, by the most likely function, with unit variance."""
    counts = np.histogram(spread, ends)[0]
    indicators = np.eye(groups.max() + 1)[groups]
    sizes = np.maximum(indicators.sum(axis=0), 1.0)
    best, found = ends, -np.inf
    for scores, n_parameters in _candidates(ends, spread, values):
        steps = np.diff(scores)
        if not np.isfinite(scores).all() or (steps <= 0).any():
            continue
        scored = np.interp(spread, ends, scores)
        means = (scored @ indicators) / sizes
        variance = np.mean((scored - means[groups]) ** 2)
        if variance <= 0:
            continue
        likelihood = counts @ np.log(steps) - 0.5 * len(values) * np.log(variance) - n_parameters
        if likelihood > found:
            best, found = (scores - scored.mean()) / scored.std(), likelihood
    return best


def _candidates(
    ends: np.ndarray, spread: np.ndarray, values: np.ndarray
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield increasing functions at the ends of cells, each with its number of parameters."""
    low, middle, high = np.quantile(spread, (0.16, 0.5, 0.84))
    width = (high - low) / 2 if high > low else max(np.std(spread), 1e-300)
    centred = (ends - middle) / width
    yield centred, 0
    yield np.arcsinh(centred), 0
    for sign in (1, -1):
        bent = sign * centred
        positive, negative = np.maximum(bent, 0), np.minimum(bent, 0)
        yield sign * (np.log1p(positive) - ((1 - negative) ** 2 - 1) / 2), 0
        yield sign * (2 * np.sqrt(1 + positive) - 2 - (2 / 3) * ((1 - negative) ** 1.5 - 1)), 0
    if values.min() > 0:
        above = np.maximum(ends, values.min() / 2 * (1 + 1e-9 * np.arange(len(ends))))
        yield np.log(above), 0
        yield np.sqrt(above), 0
    running = np.r_[0, np.histogram(spread, ends)[0].cumsum()] / len(values)
    yield _score(running, len(values)), len(ends)


def _decimals(values: np.ndarray) -> int:
    """Return the least number of decimals that represents all values."""
    candidates = range(_MOST_DECIMALS)
    return next((d for d in candidates if (np.round(values, d) == values).all()), _MOST_DECIMALS)


def _score(shares: np.ndarray, n_rows: int) -> np.ndarray:
    """Return Gaussian quantiles that are finite at 0 and 1."""
    return ndtri(np.clip(shares, 0.25 / n_rows, 1 - 0.25 / n_rows))
