"""The map of one group: its coupling with the support, and the images of rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import KDTree
from sklearn.base import clone
from sklearn.metrics import pairwise_distances_argmin

# Doubles of the costs between new rows and the support that are held at a time: 8 MiB.
_PANEL_SIZE = 1 << 20
# Rounding error of squared norms, for each summand: eight times that of four roundings.
_ROUNDING = 32 * float(np.finfo(np.float64).eps)
# Smaller masses are dropped: the solver represents masses as integers with a sum below 2**53.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, eq=False)
class GroupMap:
    """A group's coupling with the support.

    Attributes
    ----------
    points : ndarray of shape (n_points, n_coordinates)
        Different points of the group.
    plan : csr_array of shape (n_points, n_support)
        How much of a point's mass goes where.
    prices : ndarray of shape (n_support,)
        Dual potentials of the support: the optimal plan takes mass from y to a z for which the cost
        minus the price is smallest.
    support : ndarray of shape (n_support, n_coordinates)
        The support of the barycenter.
    order : float
        Costs are distances to this power.
    """

    points: np.ndarray
    plan: sparse.csr_array
    prices: np.ndarray
    support: np.ndarray
    order: float

    def draw(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the indices of support points, drawn by the coupling at the positions of rows.

        A row, new or not, is at the nearest point of the group. Equal rows are at the same point
        and are drawn separately, so that equal values do not stay together. `uniforms` are in [0,
        1).
        """
        at = nearest(rows, self.points)
        starts, ends = self.plan.indptr[at], self.plan.indptr[at + 1]
        running = np.concatenate([[0.0], np.cumsum(self.plan.data)])
        wanted = running[starts] + uniforms * (running[ends] - running[starts])
        drawn = np.searchsorted(running, wanted, side="right") - 1
        return self.plan.indices[np.clip(drawn, starts, ends - 1)]

    def mean_images(self) -> np.ndarray:
        """Return the mean image of each point of the group."""
        sums = np.asarray(self.plan.sum(axis=1)).reshape(-1, 1)
        return (self.plan @ self.support) / sums

    def image(self, rows: np.ndarray, method: Any) -> np.ndarray:
        """Return deterministic images: by the name of a rule, or a regressor of mean images."""
        if method == "laguerre":
            return self.support[self.cell(rows)]
        if method == "barycentric":
            return self.mean_images()[nearest(rows, self.points)]
        learned = clone(method).fit(self.points, self.mean_images())
        return np.reshape(learned.predict(rows), (len(rows), -1))

    def cell(self, rows: np.ndarray) -> np.ndarray:
        """Return the Laguerre cell of each row."""
        height = max(1, _PANEL_SIZE // len(self.support))
        parts = [
            np.argmin(powers(rows[start : start + height], self.support, self.order) - self.prices,
                      axis=1)
            for start in range(0, len(rows), height)
        ]  # fmt: skip
        return np.concatenate(parts)


def nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the index of the nearest point of each row, even for very close points.

    The fast search computes squared distances from squared norms, whose rounding errors hide small
    distances: most of those in a column with a long tail. Such rows are searched again.
    """
    found = pairwise_distances_argmin(rows, points)
    distances = ((rows - points[found]) ** 2).sum(axis=1)
    unresolved = _ROUNDING * (rows.shape[1] + 4) * (rows**2).sum(axis=1)
    # At a distance of 0, no point is nearer.
    doubtful = (distances > 0) & (distances < unresolved)
    if doubtful.any():
        found[doubtful] = KDTree(points).query(rows[doubtful])[1]
    return found


def powers(x: np.ndarray, y: np.ndarray, order: float) -> np.ndarray:
    """Return Euclidean distances between points to a power."""
    squares = (x**2).sum(axis=1)[:, None] - 2 * x @ y.T + (y**2).sum(axis=1)
    np.maximum(squares, 0.0, out=squares)
    return squares if order == 2 else squares ** (order / 2)


def distinct(points: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct points and the sums of their masses, without negligible ones."""
    found, place = np.unique(points, axis=0, return_inverse=True)
    sums = np.bincount(place.reshape(-1), masses, minlength=len(found))
    kept = sums > _NEGLIGIBLE * sums.max()
    return found[kept], sums[kept] / sums[kept].sum()
