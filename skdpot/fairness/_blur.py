"""Blurring of private rows to the resolution of the release, and of their images."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skdpot.fairness._row_draws import BLUR_DRAW, BLURRED_IMAGE_DRAW, uniforms
from skdpot.tables import NUMERIC, Column

if TYPE_CHECKING:
    from skdpot.generative import ReleasedTable

# Cells with fewer rows than this many deviations of the noise of a count are merged.
_TOLD_APART = 4.0
# Cells of images with a smaller share of the rows than this are merged. Maps are not precise enough
# to give smaller cells the same share in all groups.
_LEAST_SHARE = 0.02


@dataclass(frozen=True, eq=False)
class BlurredColumn:
    """A column of numbers with merged cells.

    Attributes
    ----------
    position : int
        Its place in the table.
    column : Column
        Its declaration.
    starts, stops : ndarray of shape (n_cells,)
        The ranges of units of the cells.
    running : ndarray of shape (n_cells + 1,)
        The share of rows in all cells before.
    low, high : ndarray of shape (n_cells,)
        Where in these shares the merged cell of each begins and ends.
    """

    position: int
    column: Column
    starts: np.ndarray
    stops: np.ndarray
    running: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def drawn(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return numbers drawn in the merged cells of these, by uniform numbers."""
        cell = np.searchsorted(self.starts, self.column.units(numbers), side="right") - 1
        at = self.low[cell] + places * (self.high[cell] - self.low[cell])
        # Cells without rows are skipped.
        cell = np.searchsorted(self.running, at, side="right") - 1
        cell = np.clip(cell, 0, len(self.starts) - 1)
        share = self.running[cell + 1] - self.running[cell]
        inside = np.clip((at - self.running[cell]) / np.where(share > 0, share, 1.0), 0.0, 1.0)
        units = self.starts[cell] + inside * (self.stops[cell] - self.starts[cell])
        whole = np.minimum(np.floor(units), self.stops[cell] - 1)
        return self.column.numbers(whole.astype(np.int64), units - whole)


@dataclass(frozen=True, eq=False)
class Blur:
    """Redraws the numbers of rows: only the information of the release remains.

    The release does not contain numbers that many rows share, nor close ties between columns. A map
    would move them by different errors in each group, and so mark the rows of a group. Images are
    redrawn too: numbers that heap up in the release would be moved apart by group.

    Attributes
    ----------
    of_rows, of_images : tuple of BlurredColumn
        The numbers, before and after a map.
    """

    of_rows: tuple[BlurredColumn, ...]
    of_images: tuple[BlurredColumn, ...]

    def rows(self, codes: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return rows with redrawn numbers, regardless of their groups."""
        return _redrawn(self.of_rows, codes, keys, BLUR_DRAW)

    def images(self, images: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return images of rows with redrawn numbers, regardless of their groups."""
        return _redrawn(self.of_images, images, keys, BLURRED_IMAGE_DRAW)


def _redrawn(
    columns: tuple[BlurredColumn, ...], codes: np.ndarray, keys: np.ndarray, first_draw: int
) -> np.ndarray:
    codes = codes.copy()
    for blurred in columns:
        j = blurred.position
        codes[:, j] = blurred.drawn(codes[:, j], uniforms(keys, first_draw + j))
    return codes


def blur_of(
    released: "ReleasedTable",
    columns: list[Column],
    fixed: tuple[int, ...],
    noise: float,
    n_records: int,
) -> Blur:
    """Return the blur of all numbers except those at fixed positions.

    The release counts so many rows, with noise of this deviation on the counts.
    """
    free = [j for j, column in enumerate(columns) if column.kind == NUMERIC and j not in fixed]
    least = _TOLD_APART * noise * np.sqrt(released.space.schema.n_classes) / n_records
    return Blur(
        _blurred_columns(released, free, least),
        _blurred_columns(released, free, max(least, _LEAST_SHARE)),
    )


def _blurred_columns(
    released: "ReleasedTable", positions: list[int], least: float
) -> tuple[BlurredColumn, ...]:
    """Return columns whose cells with smaller shares than this are merged."""
    cells, found = released.merged_cells(least), []
    for j in positions:
        starts, stops, shares, merged = cells[j]
        running = np.r_[0.0, np.cumsum(shares)]
        first, last = (np.searchsorted(merged, merged, side=side) for side in ("left", "right"))
        column = released.space.schema.columns[j]
        found.append(
            BlurredColumn(j, column, starts, stops, running, running[first], running[last])
        )
    return tuple(found)
