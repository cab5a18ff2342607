"""Ridge regression with intercepts and slopes by group, from second moments alone."""

import itertools
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from skdpot.fairness._conditional._products import Linear

# Candidates of the penalties of slopes, in rows: common slopes, and slopes by group.
_COMMON = (1.0, 10.0, 100.0, 1000.0)
_BY_GROUP = (3.0, 10.0, 30.0, 100.0, 300.0)
# Candidates of the number of features whose slopes differ between groups.
_N_DIFFERING = (4, 12, 48)
# Minimum gain of slopes by group on held-out rows, in variances of residuals.
_GAIN = 2.0
_LITTLE = 1e-9


@dataclass(frozen=True, eq=False)
class Lines:
    """A linear function for every group.

    Attributes
    ----------
    intercepts : ndarray of shape (n_groups,)
    slopes : ndarray of shape (n_groups, n_features)
    differ : bool
        Whether groups have different functions.
    """

    intercepts: np.ndarray
    slopes: np.ndarray
    differ: bool

    def linear(self) -> Linear:
        """Return the functions as functions of images in every group."""
        slopes = self.slopes if np.ptp(self.slopes, axis=0).any() else self.slopes[:1]
        return Linear(self.intercepts[:, None], slopes[:, None])

    def predict(self, features: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Return predictions for rows in their groups; `features` have one row per feature."""
        rows = np.arange(len(groups))
        return (self.slopes @ features)[groups, rows] + self.intercepts[groups]

    def error(self, sums: np.ndarray) -> float:
        """Return the sum of squared errors on the rows of moments (n_groups, width, width)."""
        v = np.column_stack([-self.intercepts, -self.slopes, np.ones(len(self.slopes))])
        return float((v[:, None] @ sums @ v[:, :, None]).sum())


def fit_lines(by_fold: np.ndarray) -> Lines:
    """Return the functions with the least error on held-out rows.

    `by_fold` has second moments, by fold and group, of a constant 1, the features, and the target.
    Differences between groups are shrunk, and are omitted if they do not help.
    """
    total = by_fold.sum(axis=0)
    trained = [total - fold for fold in by_fold]
    starts = [_Start(sums) for sums in trained]
    common = min(_COMMON, key=lambda a: _held_out([s.lines(a) for s in starts], by_fold))
    lines = [start.lines(common) for start in starts]
    start = _Start(total)
    plain = start.lines(common)
    if by_fold.shape[-1] == 2 or by_fold.shape[1] == 1:
        return plain
    error = _held_out(lines, by_fold)
    errors = {}
    for choice in itertools.product(_N_DIFFERING, _BY_GROUP):
        tilted = [s.tilted(line, *choice) for s, line in zip(starts, lines, strict=True)]
        errors[choice] = _held_out(tilted, by_fold)
    best = min(errors, key=errors.__getitem__)
    variance = error / max(total[:, 0, 0].sum(), 1.0)
    supported = error - errors[best] > _GAIN * variance
    return start.tilted(plain, *best) if supported else plain


class _Start:
    """Moments within groups, from which functions are fitted."""

    def __init__(self, sums: np.ndarray) -> None:
        self.counts = sums[:, 0, 0]
        self.means = sums[:, 0, 1:] / np.maximum(self.counts, 1.0)[:, None]
        outer = self.means[:, :, None] * self.means[:, None, :]
        self.within = sums[:, 1:, 1:] - self.counts[:, None, None] * outer
        self.pooled = self.within.sum(axis=0)

    def lines(self, penalty: float) -> Lines:
        """Return functions with common slopes, and intercepts that are shrunk to a common one."""
        slopes = _solve(self.pooled[:-1, :-1], self.pooled[:-1, -1], penalty)
        residual = np.r_[-slopes, 1.0]
        levels = self.means @ residual
        variance = residual @ self.pooled @ residual / max(self.counts.sum() - len(levels), 1.0)
        level, shifts = _shrunk(levels, self.counts, max(variance, _LITTLE))
        return Lines(level + shifts, np.tile(slopes, (len(levels), 1)), bool(shifts.any()))

    def tilted(self, lines: Lines, n_differing: int, penalty: float) -> Lines:
        """Return the functions with slopes by group, about the group's means."""
        slopes = lines.slopes.copy()
        products = self.within[:, :-1, :-1]
        left = self.within[:, :-1, -1] - (products @ slopes[:, :, None])[:, :, 0]
        sizes = np.einsum("gii->gi", products)
        evidence = (left**2 / (sizes + penalty)).sum(axis=0)
        chosen = np.argsort(evidence)[-n_differing:]
        blocks = self.within[:, chosen[:, None], chosen] + penalty * np.eye(len(chosen))
        slopes[:, chosen] += np.linalg.solve(blocks, left[:, chosen, None])[:, :, 0]
        moved = ((slopes - lines.slopes) * self.means[:, :-1]).sum(axis=1)
        return Lines(lines.intercepts - moved, slopes, True)


def _solve(products: np.ndarray, right: np.ndarray, penalty: float) -> np.ndarray:
    if not len(right):
        return right
    return linalg.solve(products + penalty * np.eye(len(right)), right, assume_a="pos")


def _shrunk(levels: np.ndarray, counts: np.ndarray, variance: float) -> tuple[float, np.ndarray]:
    """Return the mean level, and each group's shrunk difference from it.

    The variance between groups is estimated by moments. If it is not positive, no difference is
    left.
    """
    n_rows, n_groups = counts.sum(), np.count_nonzero(counts)
    level = float(counts @ levels / max(n_rows, 1.0))
    shifts = np.where(counts > 0, levels - level, 0.0)
    spare = n_rows - (counts**2).sum() / max(n_rows, 1.0)
    between = (counts @ shifts**2 - (n_groups - 1) * variance) / max(spare, _LITTLE)
    if n_groups < 2 or between <= 0:
        return level, np.zeros_like(levels)
    return level, shifts * counts * between / (counts * between + variance)


def _held_out(lines: list[Lines], by_fold: np.ndarray) -> float:
    return sum(line.error(sums) for line, sums in zip(lines, by_fold, strict=True))
