"""Random entries of distributions, and random units of cells."""

import numpy as np

__all__ = ["EvenDraws", "IndependentDraws", "draw_units", "shares_of_rows"]

_LARGEST_UNIFORM = 1 - 2.0**-30
# No record is moved to an entry that fewer than this number would have, if all records of its entry
# were drawn again.
_LEAST_CHANCE = 0.1
_TINY = 1e-300


class IndependentDraws:
    """Draws of records that do not depend on each other.

    Parameters
    ----------
    rng : RandomState
        Source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.draws import IndependentDraws
    >>> draws = IndependentDraws(np.random.RandomState(0))
    >>> draws.entries(np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([0, 1, 1]))
    array([1, 0, 0])
    """

    def __init__(self, rng: np.random.RandomState) -> None:
        self._rng = rng

    def uniforms(self, rows: np.ndarray) -> np.ndarray:
        """Return a number from 0 to 1 for each record."""
        return self._rng.uniform(size=len(rows))

    def entries(self, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return an entry for each record, with a probability proportional to those of its row."""
        cumulated = np.cumsum(weights, axis=1)
        totals = cumulated[:, -1:]
        # One search for all: each row is moved to an interval of its own.
        ladder = (
            cumulated / np.where(totals > 0, totals, 1.0) + 2 * np.arange(len(weights))[:, None]
        )
        ladder[:, -1] = 2 * np.arange(len(weights)) + 2
        # Rounding moves no number to the next integer, where entries of no weight are.
        places = np.minimum(self.uniforms(rows), _LARGEST_UNIFORM) + 2 * rows
        positions = np.searchsorted(ladder.ravel(), places, side="right")
        return positions - rows * weights.shape[1]


class EvenDraws(IndependentDraws):
    """Draws whose totals are as expected: of each entry in each row, and of each entry in all rows.

    They differ by few records at most. Each record is drawn almost as if it were the only one.

    Parameters
    ----------
    rng : RandomState
        Source of randomness.
    row_shares : ndarray of shape (n_rows,), default=None
        The share of the records that each row is expected to have. None is for the share it has.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.draws import EvenDraws
    >>> weights, rows = np.full((50, 2), 0.5), np.arange(50)
    >>> np.bincount(EvenDraws(np.random.RandomState(0)).entries(weights, rows))
    array([25, 25])
    """

    def __init__(self, rng: np.random.RandomState, row_shares: np.ndarray | None = None) -> None:
        super().__init__(rng)
        self._row_shares = row_shares

    def uniforms(self, rows: np.ndarray) -> np.ndarray:
        """Return numbers from 0 to 1, evenly spread over the records of each row."""
        sizes = np.bincount(rows)
        order = self._rng.permutation(len(rows))
        # Short integers are sorted in linear time.
        keys = rows.astype(np.uint16) if len(sizes) <= 2**16 else rows
        order = order[np.argsort(keys[order], kind="stable")]
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        offsets = np.repeat(self._rng.uniform(size=len(sizes)), sizes)
        uniforms = np.empty(len(rows))
        uniforms[order] = (np.arange(len(rows)) - starts + offsets) / np.repeat(sizes, sizes)
        return uniforms

    def entries(self, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return an entry for each record, with a probability proportional to those of its row."""
        entries = super().entries(weights, rows)
        n_entries = weights.shape[1]
        shares = shares_of_rows(weights)
        sizes = np.bincount(rows, minlength=len(weights))
        expected = (sizes if self._row_shares is None else len(rows) * self._row_shares) @ shares
        wanted = np.diff(np.floor(np.cumsum(expected) + self._rng.uniform()), prepend=0)
        surplus = (np.bincount(entries, minlength=n_entries) - wanted).astype(np.int64)
        keys = rows * n_entries + entries
        counts = np.bincount(keys, minlength=weights.size).reshape(weights.shape)
        moved, takers = self._moves(surplus, counts, shares)
        entries[self._some_records(keys, moved, weights.size)] = takers
        return entries

    def _moves(self, surplus, counts, shares):
        """Return from which entries of which rows records are moved, in order, and where to.

        Records move to an entry that is near in the order, which rows that have the first are
        likely to have. A row is chosen with the probability with which independent draws would make
        this move. The opposite move is about as likely, so rows hardly gain entries on average.
        """
        givers, takers = (
            np.repeat(np.arange(len(surplus)), np.maximum(sign * surplus, 0)) for sign in (1, -1)
        )
        moves = []
        for giver, taker in zip(givers, takers, strict=False):
            ladder = np.cumsum(counts[:, giver] * shares[:, taker])
            if ladder[-1] >= _LEAST_CHANCE:
                row = np.searchsorted(ladder, self._rng.uniform() * ladder[-1], side="right")
                counts[row, giver] -= 1
                moves.append((row * len(surplus) + giver, taker))
        return np.array(sorted(moves), dtype=np.int64).reshape(-1, 2).T

    def _some_records(self, keys, wanted, n_keys):
        """Return a record of each wanted key, at random and all different; keys are sorted."""
        is_wanted = np.zeros(n_keys, dtype=bool)
        is_wanted[wanted] = True
        records = self._rng.permutation(np.flatnonzero(is_wanted[keys]))
        records = records[np.argsort(keys[records], kind="stable")]
        ranks = np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
        return records[np.searchsorted(keys[records], wanted) + ranks]


def shares_of_rows(weights):
    """Return the share that each entry has of its row; a row of zeros remains one."""
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), _TINY)


def draw_units(starts, stops, intervals, uniforms):
    """Return units that are spread over cells, by numbers from 0 to 1, and within the intervals."""
    if intervals is None:
        return starts + np.floor(uniforms * (stops - starts)).astype(np.int64)
    firsts, lasts = np.array(intervals).T
    low = np.maximum(starts[:, None], firsts)
    sizes = np.maximum(np.minimum(stops[:, None], lasts) - low, 0)
    passed = np.cumsum(sizes, axis=1)
    position = np.floor(uniforms * passed[:, -1]).astype(np.int64)
    piece = (position[:, None] >= passed).sum(axis=1)
    row = np.arange(len(starts))
    return low[row, piece] + position - (passed - sizes)[row, piece]
