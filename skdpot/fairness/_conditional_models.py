"""Models of a column: its parts, and how these depend on earlier columns and on the group.

The *parts* of a column are its states and the scores of its regular numbers. Every category is a
state. So are every level, a missing value, a number that very many rows have, and each number of a
column with few distinct numbers. All other numbers have the state *regular*, and a score. States
have probabilities, and scores a mean and a distribution of residuals, given earlier columns.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize
from scipy.special import ndtri, softmax

from skdpot.tables import NOMINAL, NUMERIC, Column

N_FOLDS = 4

# ------------------------------------------------------------------------ parts of a column

# Values with this many decimals, or more, are not rounded: they look measured, not written.
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
    decimals : int
        Number of decimals of values without ties.
    """

    values: np.ndarray
    scores: np.ndarray
    lattice: np.ndarray | None
    decimals: int

    def score(self, values: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the scores of values, spread within their cells; beyond the range, of its ends."""
        if self.lattice is not None:
            cell = _cells(self.values, values)
            values = self.values[cell] + uniforms * (self.values[cell + 1] - self.values[cell])
        return np.interp(values, self.values, self.scores)

    def value(self, scores: np.ndarray) -> np.ndarray:
        """Return the spread values of scores."""
        return np.interp(scores, self.scores, self.values)

    def middle(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores that models of later columns are given: one for each tied value."""
        if self.lattice is None:
            return np.clip(scores, self.scores[0], self.scores[-1])
        return np.interp(self.lattice[_cells(self.scores, scores)], self.values, self.scores)


def least_decimals(values: np.ndarray) -> int:
    """Return the least number of decimals that represents all values, 15 if it is above 6."""
    known = values[np.isfinite(values)]
    exact = (d for d in range(_MOST_DECIMALS) if (np.round(known, d) == known).all())
    return next(exact, 15)


def _cells(ends: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the cell between ends of each value; beyond them, the first cell or the last."""
    return np.searchsorted(ends[1:-1], values, side="right")


def fit_scale(values: np.ndarray, groups: np.ndarray) -> Scale:
    """Return the scale of a column that has at least two distinct values.

    Among several functions, it is the one for which groups are most nearly Gaussian with a common
    variance. If there are more different values than half of the rows, values count as untied, and
    their quantiles are the knots.
    """
    lattice = np.unique(values)
    untied, n_knots = 0.5, 257
    if len(lattice) > untied * len(values):
        shares = np.linspace(0, 1, min(n_knots, len(lattice)))
        ends = np.unique(np.quantile(values, shares))
        scores = _best_scores(ends, values, values, groups)
        return Scale(ends, scores, None, least_decimals(lattice))
    # Cells end halfway between values, so that a moved score is put back on the nearest one.
    wider = np.r_[2 * lattice[0] - lattice[1], lattice, 2 * lattice[-1] - lattice[-2]]
    ends = (wider[1:] + wider[:-1]) / 2
    # Values are spread within their cells, here at equal distances: multiples of the golden ratio
    # fill any interval evenly, whatever rows lie between.
    place = (np.arange(len(values)) * 0.6180339887) % 1.0
    cell = np.searchsorted(lattice, values)
    spread = ends[cell] + place * (ends[cell + 1] - ends[cell])
    return Scale(ends, _best_scores(ends, spread, values, groups), lattice, _MOST_DECIMALS)


def _best_scores(
    ends: np.ndarray, spread: np.ndarray, values: np.ndarray, groups: np.ndarray
) -> np.ndarray:
    """Return scores at the ends of cells, by the most likely function, with unit variance."""
    counts = np.histogram(spread, ends)[0]
    indicators = np.eye(groups.max() + 1)[groups]
    sizes = np.maximum(indicators.sum(axis=0), 1.0)
    best, found = ends, -np.inf
    for scores, n_parameters in _candidates(ends, spread, values):
        # Functions that overflow, or are flat to the last digit, cannot be inverted.
        steps = np.diff(scores)
        if not np.isfinite(scores).all() or (steps <= 0).any():
            continue
        scored = np.interp(spread, ends, scores)
        means = (scored @ indicators) / sizes
        variance = np.mean((scored - means[groups]) ** 2)
        if variance <= 0:
            continue
        # Of Gaussian scores, with the density of the change of variables; as in Akaike's criterion,
        # each parameter costs 1.
        likelihood = counts @ np.log(steps) - 0.5 * len(values) * np.log(variance) - n_parameters
        if likelihood > found:
            best, found = (scores - scored.mean()) / scored.std(), likelihood
    return best


def _candidates(
    ends: np.ndarray, spread: np.ndarray, values: np.ndarray
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield increasing functions at the ends of cells, each with its number of parameters."""
    # Of a Gaussian distribution these are one standard deviation apart; tails do not count.
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
        # The lowest end of a cell may be below 0, where a logarithm has no value.
        above = np.maximum(ends, values.min() / 2 * (1 + 1e-9 * np.arange(len(ends))))
        yield np.log(above), 0
        yield np.sqrt(above), 0
    running = np.r_[0, np.histogram(spread, ends)[0].cumsum()] / len(values)
    # Gaussian quantiles that are finite at 0 and 1.
    yield ndtri(np.clip(running, 0.25 / len(values), 1 - 0.25 / len(values))), len(ends)


# The state of a row whose value does not occur in the fit.
UNKNOWN = -1
# The value of the state of rare categories.
_RARE = np.inf


@dataclass(frozen=True, eq=False)
class ColumnParts:
    """How a column's values are split into states and scores, and put together again.

    Attributes
    ----------
    values : ndarray of shape (n_states,)
        The value of each state, increasing; NaN is last, for a missing value, or, with a scale,
        first, for regular numbers.
    missing : float
        The code of a missing value.
    ordered : bool
        Whether the states have an order.
    positions : ndarray of shape (n_states,)
        Standardised values of ordered states, 0 where missing.
    distinct : ndarray of shape (n_values,)
        The distinct numbers or levels of the fit, increasing.
    scale : Scale or None
        The scale of regular numbers, which are state 0.
    corners : tuple of float
        Where functions of the score bend.
    rare : ndarray of shape (n_rows,)
        The rare categories of rows of the fit, which are one state together.
    lacking : int or None
        The state of a missing value, if there are any.
    """

    values: np.ndarray
    missing: float
    ordered: bool
    positions: np.ndarray
    distinct: np.ndarray
    scale: Scale | None
    corners: tuple[float, ...]
    rare: np.ndarray
    lacking: int | None

    @property
    def n_states(self) -> int:
        """Return the number of states."""
        return len(self.values)

    @property
    def width(self) -> int:
        """Return the number of features that models of later columns get."""
        return self._n_numbers + (self.n_states if self.n_states > 1 else 0)

    @property
    def _n_numbers(self) -> int:
        """Return the number of features that are no indicators; these come first."""
        if self.scale is not None:
            return 1 + len(self.corners)
        return int(self.ordered and self.n_states > 2)

    @property
    def order(self) -> np.ndarray | None:
        """Return the states in rising order, with the missing value last.

        Regular numbers are placed at their median. Three or more categories have no order.
        """
        if self.scale is not None:
            return np.argsort(np.append(self.scale.value(np.zeros(1)), self.values[1:]))
        return np.arange(self.n_states) if self.ordered or self.n_states <= 2 else None

    def states(self, codes: np.ndarray) -> np.ndarray:
        """Return the states of values, `UNKNOWN` for values without one."""
        # Small integers: arrays of states have an entry for each group and row.
        states = np.full(len(codes), UNKNOWN, dtype=np.int8)
        if len(self.rare):
            codes = np.where(np.isin(codes, self.rare), _RARE, codes)
        if self.scale is not None:
            states[~_is_missing(codes, self.missing)] = 0
        for state in range(self.scale is not None, self.n_states):
            value = self.values[state]
            is_it = _is_missing(codes, self.missing) if np.isnan(value) else codes == value
            states[is_it] = state
        return states

    def write_features(self, out: np.ndarray, states: np.ndarray, scores: np.ndarray) -> None:
        """Write the features for models of later columns, from states and scores.

        `out` has an axis of features before that of rows, which the other arrays lack.
        """
        # A score of 0 for rows that have none would be a value like others; their indicators tell.
        first = self._n_numbers
        for state in range(self.width - first):
            np.equal(states, state, out=out[..., first + state, :])
        if self.scale is not None:
            is_regular = states == 0
            middles = self.scale.middle(np.where(is_regular, scores, 0.0))
            out[..., 0, :] = middles
            for i, corner in enumerate(self.corners, 1):
                np.maximum(middles - corner, 0, out=out[..., i, :])
            out[..., :first, :] *= is_regular[..., None, :]
        elif first:
            out[..., 0, :] = np.append(self.positions, 0.0)[states]

    def combined(
        self, states: np.ndarray, scores: np.ndarray, weights: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Return one value for each row from its states and scores in every group.

        A value is missing with the probability of the groups in which it is, by their weights and
        by `draws`, uniform numbers that do not depend on the group. So the share of missing values
        is the mean of those of the groups; by a vote it would be that of the largest one. Else the
        state is the one that most of the other groups have, and numbers are averaged over these.
        """
        shares = np.broadcast_to(weights[:, None], states.shape)
        codes = np.where(np.isnan(self.values), self.missing, self.values)
        if self.lacking is not None:
            lacks = states == self.lacking
            is_missing = (shares * lacks).sum(axis=0) > draws * shares.sum(axis=0)
            shares = np.where(is_missing, shares, shares * ~lacks)
        # The mean of two or three levels would mostly be the middle one, which few rows may have.
        if self.scale is not None or (self.ordered and self.n_states >= 4):
            found = self._average(states, scores, shares)
        else:
            votes = [(shares * (states == state)).sum(axis=0) for state in range(self.n_states)]
            found = codes[np.argmax(votes, axis=0)]
        if self.lacking is None:
            return found
        return np.where(is_missing, codes[self.lacking], found)

    def _average(self, states: np.ndarray, scores: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return the value that is nearest to the mean, or a mean with as many decimals."""
        numbers = self.values.take(states)
        if self.scale is not None:
            numbers = np.where(states == 0, self.scale.value(scores), numbers)
        numbers = np.where(shares > 0, numbers, 0.0)
        means = (shares * numbers).sum(axis=0) / shares.sum(axis=0)
        if self.scale is None or self.scale.lattice is not None:
            between = (self.distinct[1:] + self.distinct[:-1]) / 2
            return self.distinct[np.searchsorted(between, means)]
        decimals = self.scale.decimals
        return np.round(means, decimals) if decimals < _MOST_DECIMALS else means

    def resolved(self, combined: np.ndarray, codes: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return values in which merged rare categories are told apart: own or drawn ones."""
        if not len(self.rare):
            return combined
        drawn = self.rare[(places * len(self.rare)).astype(np.int64)]
        found = np.where(np.isin(codes, self.rare), codes, drawn)
        return np.where(combined == _RARE, found, combined)


def fit_parts(column: Column, codes: np.ndarray, groups: np.ndarray) -> ColumnParts:
    """Return the parts of a column, fitted to these values.

    A column with at most 12 different numbers or levels has only states. Of more than 50
    categories, the 49 most frequent ones are states, and all others are one state.
    """
    missing = np.nan if column.kind == NUMERIC else -1.0
    is_missing = _is_missing(codes, missing)
    present = codes[~is_missing]
    values, counts = np.unique(present, return_counts=True)
    lacking = [np.nan] if is_missing.any() else []
    rare = present[:0]
    few, most_categories = 12, 50
    if column.kind == NOMINAL and len(values) > most_categories:
        frequent = np.sort(values[np.argsort(-counts, kind="stable")[: most_categories - 1]])
        rare = present[~np.isin(present, frequent)]
        values = np.r_[frequent, _RARE]
    if len(values) <= few or column.kind == NOMINAL:
        states, ordered = np.r_[values, lacking], column.kind != NOMINAL
        positions = np.zeros(len(states))
        if ordered and len(values) > 1:
            positions[: len(values)] = (values - np.mean(present)) / np.std(present)
        # Among labels, a missing one is None. Labels of users are not asked what they equal.
        code = next((i for i, label in enumerate(column.values) if label is None), missing)
        places = np.flatnonzero(np.isnan(states) if np.isnan(code) or code < 0 else states == code)
        no_value = int(places[0]) if len(places) else None
        return ColumnParts(states, missing, ordered, positions, values, None, (), rare, no_value)
    # A number with five times the share of an average number is a state of its own: spread over a
    # cell, its rows would move apart by group. Of 13 or more values these are 10, 20 or a fifth at
    # most, so that two or more are left for the scale.
    share = min(max(5.0 / len(values), 0.05), 0.1)
    atoms = values[counts >= share * len(codes)]
    is_regular = ~is_missing & ~np.isin(codes, atoms)
    scale = fit_scale(codes[is_regular], groups[is_regular])
    # Functions of the score bend where there are rows enough to know how.
    by_rows = ((4000, (-0.8, 0.0, 0.8)), (1000, (0.0,)), (0, ()))
    corners = next(corners for least, corners in by_rows if len(codes) >= least)
    states = np.r_[np.nan, atoms, lacking]
    no_value = len(states) - 1 if lacking else None
    return ColumnParts(
        states, missing, False, np.zeros(len(states)), values, scale, corners, rare, no_value
    )


def _is_missing(codes: np.ndarray, missing: float) -> np.ndarray:
    return np.isnan(codes) if np.isnan(missing) else codes < 0


# ------------------------------------------------------------------------- linear functions


def deal_folds(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random fold for every row; each fold has an equal share of every group."""
    order = np.lexsort((rng.random(len(groups)), groups))
    folds = np.empty(len(groups), dtype=np.int64)
    # Dealt like cards along the rows of one group after the other.
    folds[order] = np.arange(len(groups)) % N_FOLDS
    return folds


# Columns that are functions of others leave residuals of rounding alone.
_SMALLEST_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Linear:
    """Linear functions of earlier features in every group: means of scores, or logits of states.

    Attributes
    ----------
    intercepts : ndarray of shape (n_groups, n_functions)
    slopes : ndarray of shape (n_groups or 1, n_functions, n_features)
        Slopes, a single one if groups share them.
    differ : bool
        Whether groups have different functions.
    """

    intercepts: np.ndarray
    slopes: np.ndarray
    differ: bool

    def of(self, features: np.ndarray) -> np.ndarray:
        """Return the functions of features in every group, of shape (n_groups, n_functions, n).

        `features` have the shape (n_groups, n_features, n), or the same for all groups.
        """
        return np.matmul(self.slopes, features) + self.intercepts[:, :, None]

    def error(self, sums: np.ndarray) -> float:
        """Return the sum of squared errors on the rows of moments (n_groups, width, width)."""
        v = np.column_stack([-self.intercepts, -self.slopes[:, 0], np.ones(len(self.slopes))])
        return float((v[:, None] @ sums @ v[:, :, None]).sum())


# Numbers of rows, means, and products within groups of features and, last, the target.
_Within = tuple[np.ndarray, np.ndarray, np.ndarray]


def fit_lines(by_fold: np.ndarray) -> Linear:
    """Return the functions with the least error on held-out rows.

    `by_fold` has second moments, by fold and group, of a constant 1, the features, and the target.
    Penalties are in rows. Slopes of some features differ between groups, if that gains more than
    two variances of residuals.
    """
    common_penalties = (1.0, 10.0, 100.0, 1000.0, 1e6)
    total = by_fold.sum(axis=0)
    # Without each fold, by subtraction: the rows are read once.
    starts = [_within(total - fold) for fold in by_fold]
    common = min(common_penalties, key=lambda a: _held_out([_lines(s, a) for s in starts], by_fold))
    lines, start = [_lines(s, common) for s in starts], _within(total)
    plain = _lines(start, common)
    if by_fold.shape[-1] == 2:
        return plain
    error, errors = _held_out(lines, by_fold), {}
    n_differing, penalties_by_group = (4, 12, 48), (3.0, 10.0, 30.0, 100.0, 300.0)
    for choice in itertools.product(n_differing, penalties_by_group):
        by_group = [_by_group(s, line, *choice) for s, line in zip(starts, lines, strict=True)]
        errors[choice] = _held_out(by_group, by_fold)
    best = min(errors, key=errors.__getitem__)
    variance = error / max(total[:, 0, 0].sum(), 1.0)
    min_gain = 2.0
    supported = error - errors[best] > min_gain * variance
    return _by_group(start, plain, *best) if supported else plain


def _within(sums: np.ndarray) -> _Within:
    """Return moments about the means of groups."""
    counts = sums[:, 0, 0]
    means = sums[:, 0, 1:] / np.maximum(counts, 1.0)[:, None]
    outer = means[:, :, None] * means[:, None, :]
    return counts, means, sums[:, 1:, 1:] - counts[:, None, None] * outer


def _lines(start: _Within, penalty: float) -> Linear:
    """Return functions with common slopes, and intercepts that are shrunk to a common one."""
    counts, means, within = start
    pooled = within.sum(axis=0)
    slopes = np.empty(0)
    if len(pooled) > 1:
        products = pooled[:-1, :-1] + penalty * np.eye(len(pooled) - 1)
        slopes = linalg.solve(products, pooled[:-1, -1], assume_a="pos")
    residual = np.r_[-slopes, 1.0]
    levels = means @ residual
    variance = residual @ pooled @ residual / max(counts.sum() - len(levels), 1.0)
    level, shifts = _shrunk(levels, counts, max(variance, _SMALLEST_VARIANCE))
    slopes = np.tile(slopes, (len(levels), 1, 1))
    return Linear((level + shifts)[:, None], slopes, bool(shifts.any()))


def _by_group(start: _Within, lines: Linear, n_differing: int, penalty: float) -> Linear:
    """Return the functions with slopes by group, about the group's means."""
    _, means, within = start
    slopes = lines.slopes[:, 0].copy()
    products = within[:, :-1, :-1]
    left = within[:, :-1, -1] - (products @ slopes[:, :, None])[:, :, 0]
    sizes = np.einsum("gii->gi", products)
    # What each feature alone would gain, so that the system of a few of them is solved.
    evidence = (left**2 / (sizes + penalty)).sum(axis=0)
    chosen = np.argsort(evidence)[-n_differing:]
    blocks = within[:, chosen[:, None], chosen] + penalty * np.eye(len(chosen))
    slopes[:, chosen] += np.linalg.solve(blocks, left[:, chosen, None])[:, :, 0]
    moved = ((slopes - lines.slopes[:, 0]) * means[:, :-1]).sum(axis=1)
    return Linear(lines.intercepts - moved[:, None], slopes[:, None], True)


def _shrunk(levels: np.ndarray, counts: np.ndarray, variance: float) -> tuple[float, np.ndarray]:
    """Return the mean level, and each group's shrunk difference from it.

    The variance between groups is estimated by moments. If it is not positive, no difference is
    left.
    """
    n_rows, n_groups = counts.sum(), np.count_nonzero(counts)
    level = float(counts @ levels / max(n_rows, 1.0))
    shifts = np.where(counts > 0, levels - level, 0.0)
    # The estimator of moments for unequal sizes.
    spare = n_rows - (counts**2).sum() / max(n_rows, 1.0)
    between = (counts @ shifts**2 - (n_groups - 1) * variance) / max(spare, _SMALLEST_VARIANCE)
    if n_groups < 2 or between <= 0:
        return level, np.zeros_like(levels)
    return level, shifts * counts * between / (counts * between + variance)


def _held_out(lines: list[Linear], by_fold: np.ndarray) -> float:
    return sum(line.error(sums) for line, sums in zip(lines, by_fold, strict=True))


# ----------------------------------------------------------------------------- scores


@dataclass(frozen=True, eq=False)
class NumberModel:
    """A linear function of features, and the distribution of residuals in every group.

    Attributes
    ----------
    lines : Linear
        The mean.
    knots : ndarray of shape (n_knots,)
        Quantiles of all residuals.
    running : ndarray of shape (n_groups, n_knots)
        Distribution functions of residuals in groups, at the knots.
    quantiles : ndarray of shape (16 * n_cells + 1,)
        Quantiles of all scores, of which every sixteenth is the end of a cell.
    """

    lines: Linear
    knots: np.ndarray
    running: np.ndarray
    quantiles: np.ndarray

    @property
    def differ(self) -> bool:
        """Tell whether groups have different conditional distributions."""
        return self.lines.differ or bool(np.ptp(self.running, axis=0).any())

    def move(
        self, scores: np.ndarray, means: np.ndarray, groups: np.ndarray, uniforms: np.ndarray
    ) -> np.ndarray:
        """Return the scores of rows in every group, of shape (n_groups, n_rows).

        `means` are the values of the lines for the rows' images in every group. A residual keeps
        its rank in the row's own group. A score that is NaN is drawn.
        """
        rows, known = np.arange(len(scores)), ~np.isnan(scores)
        residuals = scores - means[groups, rows]
        inside, ranks = np.clip(residuals, self.knots[0], self.knots[-1]), uniforms.copy()
        for group, running in enumerate(self.running):
            own = known & (groups == group)
            # Ranks stay below 1, so that the highest one is where the last rows are.
            ranks[own] = np.minimum(np.interp(inside[own], self.knots, running), 1.0 - 1e-12)
        # Beyond the knots nothing is known: there, a residual keeps its distance from them.
        moved = means + np.nan_to_num(residuals - inside)
        for group, running in enumerate(self.running):
            moved[group] += np.interp(ranks, running, self.knots)
        moved[groups[known], rows[known]] = scores[known]
        return moved

    def masses(self, means: np.ndarray) -> np.ndarray:
        """Return the probabilities of cells, for means of shape (2, n_groups, n_rows)."""
        below = self.quantiles[16:-1:16, None, None, None] - means
        for group, running in enumerate(self.running):
            below[:, :, group] = np.interp(below[:, :, group], self.knots, running)
        return np.diff(below, axis=0, prepend=0.0, append=1.0)

    def cells(self, scores: np.ndarray) -> np.ndarray:
        """Return the cells of scores."""
        return _cells(self.quantiles[::16], scores)

    def drawn(self, cells: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return scores in cells, distributed as all scores are."""
        return np.interp(16 * (cells + uniforms), np.arange(len(self.quantiles)), self.quantiles)


def fit_numbers(
    scores: np.ndarray, features: np.ndarray, groups: np.ndarray, folds: np.ndarray, n_groups: int
) -> NumberModel:
    """Return the model of scores; `features` have a row for each feature.

    Each group's distribution of residuals, in bins, is shrunk towards that of all groups, by as
    many pseudo rows as are best on held-out rows, or wholly.
    """
    n_knots, n_bins = 257, 64
    table = np.vstack([np.ones(len(scores)), features, scores])
    parts = folds * n_groups + groups
    of_parts = (table[:, parts == part] for part in range(N_FOLDS * n_groups))
    sums = np.array([rows @ rows.T for rows in of_parts])
    lines = fit_lines(sums.reshape(N_FOLDS, n_groups, len(table), len(table)))
    residuals = scores - lines.of(features)[groups, 0, np.arange(len(scores))]
    grid = np.linspace(0, 1, n_knots)
    knots = np.maximum.accumulate(np.quantile(residuals, grid))
    # At least a minimum distance apart, as equal knots would make ranks of residuals ambiguous.
    knots += 1e-9 * max(knots[-1] - knots[0], 1.0) * np.arange(n_knots)
    bins = (np.interp(residuals, knots, grid) * n_bins).astype(np.int64)
    # One fold is held out: the number of pseudo rows is a single choice among few.
    trained = folds != N_FOLDS - 1
    cell = (trained * n_groups + groups) * n_bins + np.minimum(bins, n_bins - 1)
    counts = np.bincount(cell, minlength=2 * n_groups * n_bins)
    tested, training = counts.reshape(2, n_groups, n_bins)
    sizes = tested.sum(axis=1, keepdims=True)
    found = np.cumsum(tested, axis=1) / np.maximum(sizes, 1)

    def error(pseudo: float) -> float:
        return float((sizes * (_running(training, pseudo)[:, 1:] - found) ** 2).sum())

    pseudo_rows = (30.0, 100.0, 300.0, 1000.0)
    best = min((np.inf, *pseudo_rows), key=error)
    quantiles = np.quantile(scores, np.linspace(0, 1, 16 * n_bins + 1))
    ends, found = np.linspace(0, 1, n_bins + 1), _running(training + tested, best)
    running = np.array([np.interp(grid, ends, of_group) for of_group in found])
    return NumberModel(lines, knots, running, quantiles)


def _running(counts: np.ndarray, pseudo: float) -> np.ndarray:
    """Return distribution functions from counts of shape (n_groups, n_bins).

    They are shrunk towards the pooled distribution, which is flat, by this number of rows.
    """
    flat = np.full(counts.shape, 1.0 / counts.shape[1])
    if np.isfinite(pseudo):
        flat = (counts + pseudo * flat) / (counts.sum(axis=1, keepdims=True) + pseudo)
    running = np.concatenate([np.zeros((len(flat), 1)), flat.cumsum(axis=1)], axis=1)
    return running / running[:, -1:]


# ----------------------------------------------------------------------------- states

# Added to probabilities, so that one that is rounded to 0 has a logarithm.
_LITTLE = 1e-300


def minimise(
    features: np.ndarray,
    states: np.ndarray,
    offset: np.ndarray,
    penalties: np.ndarray,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return the slopes that minimise the penalised loss, and their loss without the penalty.

    `features` have one row per feature; `offset` and slopes have one per state. Slopes are found in
    coordinates in which the curvature is nearly the identity. If all rows have the same
    probabilities, the curvature is a product of a matrix of states and one of features.
    """
    n_states, n_rows = offset.shape
    width, rows = len(features), np.arange(n_rows)
    # The first column depends on no other, and a part may have no rows.
    if not width or not n_rows:
        found = softmax(offset, axis=0)
        return np.zeros((n_states, width)), -np.log(found[states, rows]).sum()
    # One row more of each state keeps the curvature positive.
    shares = (np.bincount(states, minlength=n_states) + 1) / (n_rows + n_states)
    products = features @ features.T
    sizes, axes = np.linalg.eigh(np.diag(shares) - np.outer(shares, shares))
    curvatures = np.maximum(sizes, 0)[:, None, None] * products + np.diag(penalties)
    roots = np.linalg.cholesky(curvatures)
    turns = np.linalg.inv(roots)

    def slopes_at(flat: np.ndarray) -> np.ndarray:
        return axes @ (flat.reshape(n_states, 1, width) @ turns)[:, 0]

    def evaluated(flat: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = slopes_at(flat)
        logits = slopes @ features
        logits += offset
        found = softmax(logits, axis=0)
        loss = -np.log(found[states, rows] + _LITTLE).sum()
        found[states, rows] -= 1
        gradient = found @ features.T + penalties * slopes
        penalised = loss + 0.5 * (penalties * slopes**2).sum()
        return penalised, (turns @ (axes.T @ gradient)[:, :, None]).ravel()

    first = np.zeros((n_states, width)) if start is None else start
    flat = ((axes.T @ first)[:, None] @ roots).ravel()
    # Iterations end when they gain a hundredth of what a parameter gains by chance.
    options = {"maxiter": 60, "maxcor": 8, "ftol": 0.005 / n_rows}
    result = optimize.minimize(evaluated, flat, jac=True, method="L-BFGS-B", options=options)
    slopes = slopes_at(result.x)
    return slopes, float(result.fun - 0.5 * (penalties * slopes**2).sum())


# The penalty of intercepts by group, in rows.
_INTERCEPTS = 0.5


def fit_states(
    states: np.ndarray,
    features: np.ndarray,
    groups: np.ndarray,
    folds: np.ndarray,
    n_groups: int,
    n_states: int,
) -> Linear:
    """Return the logits of states; slopes differ between groups if that lowers the held-out loss.

    `features` have one row per feature; the penalty of common slopes is in rows: 3, and up to 3,000
    rows the one of several with the least loss on held-out rows: with eight tables of 500 rows,
    this kept .003 more of the AUC of a target at the same AUC of the group. The model is fitted to
    at most 20,000 rows, or to 20 for each feature and group if that is more.
    """
    # Half a row more of each, so that a state without rows has a logarithm.
    counts = np.bincount(states, minlength=n_states) + 0.5
    level = np.log(counts / counts.sum())
    penalty, few_rows, most_rows, rows_per_slope = 3.0, 3000, 20_000, 20
    few = slice(0, max(most_rows, rows_per_slope * n_groups * len(features)))
    states, features, groups, folds = states[few], features[:, few], groups[few], folds[few]
    width, offset = len(features), np.broadcast_to(level[:, None], (n_states, len(states)))
    trained, tested = folds != N_FOLDS - 1, folds == N_FOLDS - 1
    known = features[:, trained], states[trained]
    new = features[:, tested], states[tested]
    if width and len(states) <= few_rows:
        # With few rows slopes are mostly chance, and a column may depend on no other.
        def held_out_loss(penalty: float) -> float:
            slopes = minimise(*known, offset[:, trained], np.full(width, penalty))[0]
            return _loss(Linear(level[None], slopes[None], False), *new, 0 * groups[tested])

        penalties_by_loss = (3.0, 30.0, 300.0, 1e6)
        penalty = min(penalties_by_loss, key=held_out_loss)
    penalties = np.full(width, penalty)
    slopes, loss = minimise(features, states, offset, penalties)
    shifts = np.zeros((n_groups, n_states))
    # Intercepts of groups are shrunk by the likelihood ratio.
    both = np.vstack([features, np.eye(n_groups)[:, groups]])
    penalties = np.r_[penalties, np.full(n_groups, _INTERCEPTS)]
    start = np.hstack([slopes, np.zeros((n_states, n_groups))])
    found, with_groups = minimise(both, states, offset, penalties, start)
    spared = (len(np.unique(groups)) - 1) * (n_states - 1)
    support = 1 - spared / max(2 * (loss - with_groups), 1e-9)
    if support > 0:
        slopes, shifts = found[:, :width], support * found[:, width:].T
    model = Linear(level + shifts, slopes[None], bool(shifts.any()))
    if not width or not tested.any() or not trained.any():
        return model
    tilted = _tilted(model, *known, groups[trained])
    new_groups = groups[tested]
    # A gain of 1 in the logarithm of the likelihood is little, but of rows that were held out.
    if _loss(tilted, *new, new_groups) < _loss(model, *new, new_groups) - 1.0:
        return _tilted(model, features, states, groups)
    return model


def _tilted(model: Linear, features: np.ndarray, states: np.ndarray, groups: np.ndarray) -> Linear:
    """Return the model with group-specific slopes in addition to common ones."""
    # Of slopes, in rows; more than of common ones, as fewer rows tell of them.
    penalties = np.r_[np.full(len(features), 20.0), _INTERCEPTS]
    found = []
    for group, intercepts in enumerate(model.intercepts):
        rows = groups == group
        inputs = np.vstack([features[:, rows], np.ones((1, rows.sum()))])
        start = np.column_stack([model.slopes[0], intercepts])
        found.append(start + minimise(inputs, states[rows], start @ inputs, penalties)[0])
    both = np.array(found)
    return Linear(both[:, :, -1], both[:, :, :-1], True)


def _loss(model: Linear, features: np.ndarray, states: np.ndarray, groups: np.ndarray) -> float:
    """Return the sum of logarithmic losses of rows in their own groups."""
    rows = np.arange(len(states))
    found = softmax(model.of(features)[groups, :, rows], axis=1)[rows, states]
    return float(-np.log(found + _LITTLE).sum())
