"""A group's points, coupled with supports of one size."""

import math

import numpy as np

from ..dense_simplex import Coupling, WarmTransport, common_masses, squared_distances


class PlacedPoints:
    """A group's points, coupled with supports of one size; each solution starts from the last."""

    def __init__(self, points: np.ndarray, masses: np.ndarray, n_support: int) -> None:
        rows, columns = common_masses([np.full(n_support, 1.0 / n_support), masses])
        # Points without mass would be leaves of the tree that nothing holds.
        self.used = np.flatnonzero(columns)
        self.points, self.masses = points[self.used], columns[self.used] / columns.sum()
        self.transport, self.n_support = WarmTransport(rows, columns[self.used]), n_support
        self.image, self.scatter = np.empty(0), math.inf

    def images(self, coupling: Coupling) -> tuple[np.ndarray, float]:
        """Return the images of the support points, and the scatter of the mass about them."""
        moved = self.points[coupling.columns]
        weighted = coupling.masses[:, None] * moved
        image = np.stack(
            [np.bincount(coupling.rows, column, self.n_support) for column in weighted.T], axis=1
        )
        image *= self.n_support
        about = moved - image[coupling.rows]
        return image, float(coupling.masses @ (about**2).sum(axis=1))

    def place(self, support: np.ndarray) -> tuple[float, float, Coupling]:
        """Couple with a support: return certified bounds on the cost, and the coupling."""
        # No name is given to the costs: a matrix would be kept until the next one is made.
        coupling = self.transport.solve(squared_distances(support, self.points), overwrite=True)
        self.image, self.scatter = self.images(coupling)
        # Computed twice: the first ones were rounded in place, if they were a matrix.
        costs = squared_distances(support, self.points)
        return *self.transport.bounds(costs, coupling), coupling
