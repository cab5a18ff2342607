"""Distributions of predictions, known by their masses in cells."""

import math
from dataclasses import dataclass

import numpy as np

from skdpot.fairness._quantiles import QuantileFunction

MOST_CELLS = 64
_FEWEST_CELLS = 2
# Largest distance of a distribution function from a straight line within a cell, times the squared
# number of cells. Scores are assumed to have a standard deviation of a ninth of the width of their
# bounds: then it is 81 / 8 times the steepest slope of a Gaussian density, exp(-1/2) / sqrt(2 pi).
_BEND = 81.0 / 8.0 * math.exp(-0.5) / math.sqrt(2.0 * math.pi)
# A cell may hold an atom if its mass exceeds this factor times the mean mass of its neighbours, and
# also the mean mass of all cells.
_CROWDED = 2.0


def number_of_cells(n_records: float, deviation: float) -> int:
    """Return the number of cells to count the rows of a distribution in.

    Noise of a standard deviation s on each of G counts of about n rows (public) moves a
    distribution function by about ``s sqrt(G) / (2 n)``. Within a cell the function is taken to be
    linear, which is off by up to ``b / G**2``. The sum of squares is smallest for ``G = (4 b n / s)
    ** (2/5)``.

    Examples
    --------
    >>> from skdpot.fairness._cells import number_of_cells
    >>> number_of_cells(500, 2.8), number_of_cells(500, 28.0), number_of_cells(1e5, 2.8)
    (20, 8, 64)
    """
    number = round((4.0 * _BEND * n_records / deviation) ** 0.4)
    return min(max(number, _FEWEST_CELLS), MOST_CELLS)


def cell_edges(low: float, high: float, n_cells: int, *, probabilities: bool) -> np.ndarray:
    """Return the edges of cells: equally wide, or quantiles of probabilities.

    Probabilities of a rare class are near 0, and those of a common one near 1. Cells are equally
    wide on the scale of the arcsine of the root, and so narrower there.

    Examples
    --------
    >>> from skdpot.fairness._cells import cell_edges
    >>> cell_edges(0.0, 1.0, 4, probabilities=True).round(2)
    array([0.  , 0.15, 0.5 , 0.85, 1.  ])
    """
    shares = np.linspace(0.0, 1.0, n_cells + 1)
    if probabilities:
        shares = np.sin(0.5 * np.pi * shares) ** 2
    return low + (high - low) * shares


def cell_numbers(scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the cell of each score; scores beyond the range are in the outermost cells."""
    return np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, len(edges) - 2)


@dataclass(frozen=True, eq=False)
class CellDistribution:
    """The distribution of the predictions of one group, known by its masses in cells.

    Attributes
    ----------
    edges : ndarray of shape (n_cells + 1,)
        Increasing.
    masses : ndarray of shape (n_cells,)
        Above 0, with sum 1.
    """

    edges: np.ndarray
    masses: np.ndarray

    @property
    def quantiles(self) -> QuantileFunction:
        """Return the quantiles at ranks; mass is spread evenly within a cell."""
        return QuantileFunction(self._cumulative, self.edges)

    @property
    def _cumulative(self) -> np.ndarray:
        ends = np.concatenate([[0.0], np.cumsum(self.masses)])
        return np.minimum(ends / ends[-1], 1.0)

    @property
    def _crowded(self) -> np.ndarray:
        """Return which cells have far more mass than their neighbours."""
        padded = np.pad(self.masses, 1, mode="reflect")
        neighbours = 0.5 * (padded[:-2] + padded[2:])
        return self.masses > np.maximum(_CROWDED * neighbours, 1.0 / len(self.masses))

    def ranks(self, scores: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the ranks of predictions.

        Ranks are linear within a cell, in the order of predictions. In a cell with far more mass
        than its neighbours, many predictions may be equal or nearly equal, and counts do not show
        it. So ranks are drawn within the mass of the cell, by uniform random numbers.
        """
        cells = cell_numbers(scores, self.edges)
        places = (scores - self.edges[cells]) / np.diff(self.edges)[cells]
        places = np.where(self._crowded[cells], uniforms, np.clip(places, 0.0, 1.0))
        low, high = self._cumulative[cells], self._cumulative[cells + 1]
        return low + places * (high - low)


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
    >>> from skdpot.fairness._cells import shrunk_masses
    >>> shrunk_masses(np.array([[101.0, 98.0], [6.0, -5.0]]), 3.0).round(2)
    array([[0.51, 0.49],
           [0.53, 0.47]])
    """
    n_groups, n_cells = noisy.shape
    even = np.full(n_cells, 1.0 / n_cells)
    total = noisy.sum(axis=0, keepdims=True)
    together = _divided(total, even, deviation * math.sqrt(n_groups))[0]
    masses = _divided(noisy, together, deviation)
    masses[noisy.sum(axis=1) < 2.0 * deviation * math.sqrt(n_cells)] = together
    return masses


def _divided(counts: np.ndarray, known: np.ndarray, deviation: float) -> np.ndarray:
    """Return masses in cells, shrunk towards known ones, to which one record is added."""
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
    masses += known / known.sum()
    return masses / masses.sum(axis=1, keepdims=True)
