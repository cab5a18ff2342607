"""A group's points, coupled with supports of one size."""

import math

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from ..exact import common_masses, exact_transport


class PlacedPoints:
    """A group's points, and the images that the last coupling gave to a support's points."""

    def __init__(self, points: np.ndarray, masses: np.ndarray, n_support: int) -> None:
        self.n_support, self._equal = n_support, np.full(n_support, 1.0 / n_support)
        # Points far away, of masses that are rounded to nothing, would spoil the precision of all.
        columns = common_masses([self._equal, masses])[1]
        self.used = np.flatnonzero(columns)
        self.points, self.masses = points[self.used], columns[self.used] / columns.sum()
        self.image, self.scatter = np.empty(0), math.inf

    def couple(self, support: np.ndarray) -> tuple[sparse.csr_array, float, float]:
        """Return an optimal coupling of a support, in rows, and bounds on its cost."""
        cost = cdist(support, self.points, "sqeuclidean")
        found = exact_transport(cost, self._equal, self.masses)
        upper = float(found.plan.data @ cost[found.plan.nonzero()])
        # The gap exceeds all that rounding may do.
        return found.plan, min(found.cost - found.gap, upper), upper

    def images(self, plan: sparse.csr_array) -> tuple[np.ndarray, float]:
        """Return the images of the support points, and the scatter of the mass about them."""
        image = self.n_support * (plan @ self.points)
        rows, columns = plan.nonzero()
        about = self.points[columns] - image[rows]
        return image, float(plan.data @ (about**2).sum(axis=1))

    def place(self, support: np.ndarray) -> tuple[float, float]:
        """Couple with a support, take the images of its points, and return bounds on the cost."""
        plan, lower, upper = self.couple(support)
        self.image, self.scatter = self.images(plan)
        return lower, upper
