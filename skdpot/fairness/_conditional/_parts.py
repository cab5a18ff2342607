"""The parts of a column: its states, and the scores of its regular numbers.

Every category is a state. So are every level, a missing value, a number that very many rows have,
and each number of a column with few distinct numbers. All other numbers have the state *regular*,
and a score.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdpot.fairness._conditional._scales import Scale, fit_scale
from skdpot.tables import NOMINAL, NUMERIC, Column

# A column with at most this many different numbers or levels has only states.
_FEW = 12
# A number that has this many times the share of an average number is a state of its own, if this is
# within these limits.
_TIMES, _LEAST_SHARE, _MOST_SHARE = 5.0, 0.05, 0.1
# With this many states, or more, the states of a row in different groups are averaged.
_AVERAGED = 4
# Minimum number of rows of a fit, and the corners of the piecewise linear functions of a score that
# later models then have.
_CORNERS = ((4000, (-0.8, 0.0, 0.8)), (1000, (0.0,)), (0, ()))
# Maximum number of states of categories: the most frequent ones, and one state for all others.
_MOST_CATEGORIES = 50
# The state of a row whose value does not occur in the fit.
UNKNOWN = -1
# The value of the state of rare categories.
_RARE = np.inf


@dataclass(frozen=True, eq=False)
class Parts:
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
    scale : Scale or None
        The scale of regular numbers, which are state 0.
    corners : tuple of float
        Where functions of the score bend.
    rare : ndarray of shape (n_rows,)
        The rare categories of rows of the fit, which are one state together.
    """

    values: np.ndarray
    missing: float
    ordered: bool
    positions: np.ndarray
    scale: Scale | None
    corners: tuple[float, ...]
    rare: np.ndarray

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
    def averages(self) -> bool:
        """Tell whether the values of a row in all groups are averaged."""
        return self.scale is not None or (self.ordered and self.n_states >= _AVERAGED)

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

    def write_features(
        self, out: np.ndarray, states: np.ndarray, scores: np.ndarray | None
    ) -> None:
        """Write the features for models of later columns, from states and scores.

        `out` has an axis of features before that of rows, which the other arrays lack.
        """
        first = self._n_numbers
        for state in range(self.width - first):
            np.equal(states, state, out=out[..., first + state, :])
        if self.scale is not None and scores is not None:
            is_regular = states == 0
            all_are = is_regular.all()
            middles = self.scale.middle(scores if all_are else np.where(is_regular, scores, 0.0))
            out[..., 0, :] = middles
            for i, corner in enumerate(self.corners, 1):
                np.maximum(middles - corner, 0, out=out[..., i, :])
            if not all_are:
                out[..., :first, :] *= is_regular[..., None, :]
        elif first:
            out[..., 0, :] = np.append(self.positions, 0.0)[states]

    def combined(self, states: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return one value for each row from its states and scores in every group.

        It is the state that most groups have, by their weights. Numbers are averaged over the
        groups in which the row has one.
        """
        if not self.averages:
            return self._codes[self._chosen(states, weights)]
        shares, numbers = weights[:, None], self._numbers(states, scores)
        if not self._may_lack:
            return self._put_back((shares * numbers).sum(axis=0) / shares.sum(axis=0))
        lacks, chosen = states == self.n_states - 1, self._chosen(states, weights)
        averaged, shares = chosen != self.n_states - 1, shares * ~lacks
        sums = (shares * np.where(lacks, 0.0, numbers)).sum(axis=0)
        means = sums / np.where(averaged, shares.sum(axis=0), 1.0)
        return np.where(averaged, self._put_back(means), self.missing)

    @cached_property
    def _codes(self) -> np.ndarray:
        return np.where(np.isnan(self.values), self.missing, self.values)

    @cached_property
    def _may_lack(self) -> bool:
        """Tell whether the last state is a missing value."""
        return bool(np.isnan(self.values[self.scale is not None :]).any())

    def _chosen(self, states: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the state that most groups have, by weight."""
        chosen, most = np.zeros(states.shape[1], dtype=np.int8), np.full(states.shape[1], -np.inf)
        for state in range(self.n_states):
            votes = (weights[:, None] * (states == state)).sum(axis=0)
            np.copyto(chosen, state, where=votes > most)
            np.maximum(most, votes, out=most)
        return chosen

    def _numbers(self, states: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return the numbers of states and scores, in every group; any for a missing value."""
        if self.scale is None:
            return self.values.take(states)
        regular = self.scale.value(scores)
        if self.n_states == 1:
            return regular
        return np.where(states == 0, regular, self.values.take(states))

    def resolved(self, combined: np.ndarray, codes: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return values in which merged rare categories are told apart: own or drawn ones."""
        if not len(self.rare):
            return combined
        drawn = self.rare[(places * len(self.rare)).astype(np.int64)]
        found = np.where(np.isin(codes, self.rare), codes, drawn)
        return np.where(combined == _RARE, found, combined)

    def _put_back(self, means: np.ndarray) -> np.ndarray:
        """Return the nearest values of the column, or values with as many decimals."""
        if self.scale is not None and self.scale.lattice is None:
            return self.scale.put_back(means)
        values, between = self._lattice
        return values[np.searchsorted(between, means)]

    @cached_property
    def _lattice(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct values of the column, and the midpoints between them."""
        values = self.values[~np.isnan(self.values)]
        if self.scale is not None and self.scale.lattice is not None:
            values = np.union1d(self.scale.lattice, values)
        return values, (values[1:] + values[:-1]) / 2


def fit_parts(column: Column, codes: np.ndarray, groups: np.ndarray) -> Parts:
    """Return the parts of a column, fitted to these values."""
    missing = np.nan if column.kind == NUMERIC else -1.0
    is_missing = _is_missing(codes, missing)
    present = codes[~is_missing]
    values, counts = np.unique(present, return_counts=True)
    lacking = [np.nan] if is_missing.any() else []
    rare = present[:0]
    if column.kind == NOMINAL and len(values) > _MOST_CATEGORIES:
        frequent = np.sort(values[np.argsort(-counts, kind="stable")[: _MOST_CATEGORIES - 1]])
        rare = present[~np.isin(present, frequent)]
        values = np.r_[frequent, _RARE]
    if len(values) <= _FEW or column.kind == NOMINAL:
        spread = np.std(present) if len(values) > 1 else 1.0
        ordered = column.kind != NOMINAL
        positions = np.zeros(len(values) + len(lacking))
        if ordered:
            positions[: len(values)] = (values - np.mean(present)) / spread
        return Parts(np.r_[values, lacking], missing, ordered, positions, None, (), rare)
    share = min(max(_TIMES / len(values), _LEAST_SHARE), _MOST_SHARE)
    atoms = values[counts >= share * len(codes)]
    if len(values) - len(atoms) <= 1:
        atoms = values[:0]
    is_regular = ~is_missing & ~np.isin(codes, atoms)
    scale = fit_scale(codes[is_regular], groups[is_regular])
    corners = next(corners for rows, corners in _CORNERS if len(codes) >= rows)
    states = np.r_[np.nan, atoms, lacking]
    return Parts(states, missing, False, np.zeros(len(states)), scale, corners, rare)


def _is_missing(codes: np.ndarray, missing: float) -> np.ndarray:
    return np.isnan(codes) if np.isnan(missing) else codes < 0
