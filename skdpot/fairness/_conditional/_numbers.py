"""The conditional distribution of a column's scores, given earlier columns and the group."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skdpot.fairness._conditional._leaves import Leaves, grow
from skdpot.fairness._conditional._moments import N_FOLDS, moments
from skdpot.fairness._conditional._polyline import Polyline
from skdpot.fairness._conditional._ridge import Lines, fit_lines

# Knots of the pooled distribution of residuals, and bins of each group's deviation from it.
_N_KNOTS, _N_BINS = 257, 64
# Candidates of the weight of the pooled distribution, in rows.
_PSEUDO_ROWS = (30.0, 100.0, 300.0, 1000.0)
# Ranks stay below 1, where the next function begins.
_ALMOST_ONE = 1.0 - 1e-12
# Weight of the distribution of all leaves in that of one leaf, in rows.
_LEAF_ROWS = 20.0


@dataclass(frozen=True, eq=False)
class NumberModel:
    """A linear function of features, and the distribution of residuals.

    Attributes
    ----------
    lines : Lines
        The mean.
    knots : ndarray of shape (n_knots,)
        Quantiles of all residuals.
    leaves : Leaves or None
        Where residuals have other distributions.
    running : ndarray of shape (n_leaves, n_groups, n_bins + 1)
        Distribution functions of the pooled rank, at equal distances.
    """

    lines: Lines
    knots: np.ndarray
    leaves: Leaves | None
    running: np.ndarray

    @property
    def differs(self) -> bool:
        """Tell whether groups have different conditional distributions."""
        return self.lines.differ or bool(np.ptp(self.running, axis=1).any())

    def move(
        self,
        scores: np.ndarray,
        means: np.ndarray,
        features: np.ndarray,
        groups: np.ndarray,
        uniforms: np.ndarray,
    ) -> np.ndarray:
        """Return the scores of rows in every group, of shape (n_groups, n_rows).

        `features` are the rows' images in every group, of shape (n_groups, n_features, n_rows), and
        `means` are the values of the lines for them. A score that is NaN is drawn.
        """
        rows, known = np.arange(len(scores)), ~np.isnan(scores)
        residuals = scores - means[groups, rows]
        if self._is_shift:
            drawn = _between(self.knots, uniforms)
            moved = means + np.where(known, residuals, drawn)
        else:
            moved = means + self._exchanged(residuals, features, groups, uniforms)
        moved[groups[known], rows[known]] = scores[known]
        return moved

    @property
    def _is_shift(self) -> bool:
        """Tell whether residuals have the same distribution in all groups and leaves."""
        return len(self.running) == 1 and not np.ptp(self.running, axis=1).any()

    def _exchanged(
        self, residuals: np.ndarray, features: np.ndarray, groups: np.ndarray, uniforms: np.ndarray
    ) -> np.ndarray:
        """Return the residuals in every group that have the same rank there."""
        n_groups, rows = len(features), np.arange(len(residuals))
        functions = np.arange(n_groups)[:, None]
        if self.leaves is not None:
            functions = functions + n_groups * self.leaves.numbers(features)
        functions = np.broadcast_to(functions, (n_groups, len(residuals)))
        inside = np.clip(residuals, self.knots[0], self.knots[-1])
        ranks = _forward(self.running.reshape(-1, _N_BINS + 1), functions[groups, rows],
                         self._to_ranks(inside))  # fmt: skip
        ranks = np.where(np.isnan(residuals), uniforms, np.minimum(ranks, _ALMOST_ONE))
        pooled = self._backward(functions + ranks)
        return _between(self.knots, pooled) + np.nan_to_num(residuals - inside)

    @cached_property
    def _to_ranks(self) -> Polyline:
        return Polyline(self.knots, np.linspace(0, 1, len(self.knots)))

    @cached_property
    def _backward(self) -> Polyline:
        """Return the function from a linear function's index, plus a value, to a pooled rank."""
        functions = self.running.reshape(-1, _N_BINS + 1)
        values = np.arange(len(functions))[:, None] + functions
        ranks = np.tile(np.linspace(0, 1, _N_BINS + 1), len(functions))
        return Polyline(values.ravel(), ranks)


def fit_numbers(
    scores: np.ndarray, features: np.ndarray, groups: np.ndarray, folds: np.ndarray, n_groups: int
) -> NumberModel:
    """Return the model of scores; `features` have a row for each feature."""
    table = np.vstack([np.ones(len(scores)), features, scores])
    lines = fit_lines(moments(table, folds * n_groups + groups, n_groups))
    residuals = scores - lines.predict(features, groups)
    grid = np.linspace(0, 1, _N_KNOTS)
    knots = _increasing(np.quantile(residuals, grid))
    ranks = Polyline(knots, grid)(residuals)
    trained = folds != N_FOLDS - 1
    residuals = np.column_stack([ranks - 0.5, np.abs(ranks - 0.5) - 0.25])
    leaves = grow(features[:, trained], residuals[trained], groups[trained])
    leaf = np.zeros(len(scores), dtype=np.int64) if leaves is None else leaves.numbers(features)
    n_leaves = 1 if leaves is None else leaves.n_leaves
    bins = np.minimum((ranks * _N_BINS).astype(np.int64), _N_BINS - 1)
    cell = ((trained * n_leaves + leaf) * n_groups + groups) * _N_BINS + bins
    counts = np.bincount(cell, minlength=2 * n_leaves * n_groups * _N_BINS)
    tested, training = counts.reshape(2, n_leaves, n_groups, _N_BINS)
    shape = _best_shape(training, tested)
    running = shape.running(training + tested)
    return NumberModel(lines, knots, leaves if shape.by_leaf else None, running)


@dataclass(frozen=True)
class _Shape:
    """Strengths of shrinkage towards pooled distributions, as numbers of rows; None is full."""

    by_leaf: bool
    pseudo: float | None

    def running(self, counts: np.ndarray) -> np.ndarray:
        """Return distribution functions from counts of shape (n_leaves, n_groups, n_bins)."""
        if not self.by_leaf:
            counts = counts.sum(axis=0, keepdims=True)
        flat = np.full(counts.shape[-1], 1 / counts.shape[-1])
        pooled = counts.sum(axis=1, keepdims=True)
        base = np.broadcast_to(flat, pooled.shape)
        if self.by_leaf:
            base = _mixed(pooled, base, _LEAF_ROWS)
        shares = np.broadcast_to(base, counts.shape)
        if self.pseudo is not None:
            shares = _mixed(counts, base, self.pseudo)
        running = np.zeros((*counts.shape[:-1], counts.shape[-1] + 1))
        running[..., 1:] = shares.cumsum(axis=-1)
        return running / running[..., -1:]


def _mixed(counts: np.ndarray, base: np.ndarray, pseudo: float) -> np.ndarray:
    return (counts + pseudo * base) / (counts.sum(axis=-1, keepdims=True) + pseudo)


def _best_shape(training: np.ndarray, tested: np.ndarray) -> _Shape:
    """Return the shrinkage with the highest likelihood on held-out rows."""
    sizes = tested.sum(axis=-1, keepdims=True)
    found = np.cumsum(tested, axis=-1) / np.maximum(sizes, 1)

    def error(shape: _Shape) -> float:
        return float((sizes * (shape.running(training)[..., 1:] - found) ** 2).sum())

    by_leaf = (False, True) if len(training) > 1 else (False,)
    candidates = [_Shape(leaf, pseudo) for leaf in by_leaf for pseudo in (None, *_PSEUDO_ROWS)]
    return min(candidates, key=error)


def _increasing(knots: np.ndarray) -> np.ndarray:
    """Return knots that are at least a minimum distance apart."""
    least = 1e-9 * max(knots[-1] - knots[0], 1.0)
    return np.maximum.accumulate(knots) + least * np.arange(len(knots))


def _forward(running: np.ndarray, functions: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return the values of piecewise linear functions, one for each row."""
    at = np.nan_to_num(ranks) * _N_BINS
    cell = np.minimum(at.astype(np.int64), _N_BINS - 1)
    low, high = running[functions, cell], running[functions, cell + 1]
    return low + (at - cell) * (high - low)


def _between(knots: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return values at ranks of the piecewise linear function with equidistant knots."""
    at = ranks * (len(knots) - 1)
    cell = np.minimum(at.astype(np.int64), len(knots) - 2)
    at -= cell
    at *= np.diff(knots).take(cell)
    at += knots.take(cell)
    return at
