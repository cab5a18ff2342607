"""Increasing piecewise linear functions that find the cell of a value by arithmetic."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

# A guide of cells with equal widths finds the knot of a value: this many cells for each knot.
_GUIDES_PER_KNOT = 4
# Maximum number of knots in a guide's cell, which are then passed one by one.
_MOST_STEPS = 3
# A guide's cell begins this share of its width earlier, against rounding.
_MARGIN = 1e-6


@dataclass(frozen=True, eq=False)
class Polyline:
    """A function that is linear between its knots and constant beyond them.

    Attributes
    ----------
    x, y : ndarray of shape (n_knots,)
        The knots, two or more; x grows, or stays where y jumps.
    """

    x: np.ndarray
    y: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the function of values; NaN stays NaN."""
        inside = np.clip(values, self.x[0], self.x[-1])
        cell = self.cell(inside)
        inside -= self.x.take(cell)
        inside *= self._slopes.take(cell)
        inside += self.y.take(cell)
        return inside

    def cell(self, values: np.ndarray) -> np.ndarray:
        """Return the index of the last knot at or below a value, from 0; that of NaN is arbitrary.

        Values beyond the knots are in the first cell or the last.
        """
        low, factor, first, n_steps = self._guide
        if n_steps > _MOST_STEPS:
            return np.searchsorted(self.x[1:-1], values, side="right")
        at = values - low
        at *= factor
        # fmax and fmin turn NaN into a number.
        np.fmin(np.fmax(at, 0, out=at), len(first) - 1, out=at)
        found = first.take(at.astype(np.intp))
        for _ in range(n_steps):
            found += self._upper.take(found) <= values
        return found

    @cached_property
    def _slopes(self) -> np.ndarray:
        widths = np.diff(self.x)
        return np.divide(np.diff(self.y), widths, out=np.zeros(len(widths)), where=widths > 0)

    @cached_property
    def _upper(self) -> np.ndarray:
        """Return the upper ends of cells; infinity for the last one."""
        return np.append(self.x[1:-1], np.inf)

    @cached_property
    def _guide(self) -> tuple[float, float, np.ndarray, int]:
        """Return the guide table: its origin, density, first cells, and the most knots to pass."""
        n_guides = _GUIDES_PER_KNOT * len(self.x)
        low, width = self.x[0], (self.x[-1] - self.x[0]) / n_guides
        if not (np.isfinite(1 / width) if width > 0 else False):
            return low, 0.0, np.zeros(1, dtype=np.intp), _MOST_STEPS + 1
        begins = low + width * (np.arange(n_guides) - _MARGIN)
        ends = low + width * (np.arange(n_guides) + 1 + _MARGIN)
        first, last = (np.searchsorted(self.x[1:-1], v, side="right") for v in (begins, ends))
        return low, 1 / width, first, int((last - first).max())
