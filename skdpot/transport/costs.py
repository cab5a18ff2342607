"""Costs between points: in memory, or computed on the fly, a panel of rows at a time.

Each kind of costs answers column potentials by row potentials, with the kernels of `log_domain`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from .log_domain import answer_matrix, answer_points

# Doubles of a panel of costs that is computed on the fly: 8 MiB.
_PANEL_SIZE = 1 << 20
# Where costs need no memory, so many panels keep this many threads busy.
_N_PANELS = 16


def refuse_degrees(metric: Any, points: Any) -> None:
    """Raise if a metric needs radians, and points or bounds are in degrees.

    Examples
    --------
    >>> from skdpot.transport import refuse_degrees
    >>> refuse_degrees("haversine", [[51.5, -0.1]])
    Traceback (most recent call last):
    ValueError: metric='haversine' needs latitude and longitude in radians, and there are ...
    """
    if metric == "haversine" and any(np.abs(each).max() > 2 * np.pi for each in points):
        raise ValueError(
            "metric='haversine' needs latitude and longitude in radians, and there are numbers "
            "above 2 pi. Convert degrees by numpy.radians."
        )


class Costs(ABC):
    """Costs between n rows and m columns, as private as the points between which they are.

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and columns.
    low, high : float
        Between these all costs lie.
    """

    shape: tuple[int, int]
    low: float
    high: float

    def panels(self) -> list[slice]:
        """Return the slices of rows that are worked on one at a time; the shape decides."""
        height = -(-self.shape[0] // _N_PANELS)
        return [slice(start, start + height) for start in range(0, self.shape[0], height)]

    @abstractmethod
    def answer(
        self,
        rows: slice,
        biased: np.ndarray,
        weights: np.ndarray,
        reg: float,
        potential: np.ndarray,
        columns: np.ndarray,
        kept: np.ndarray,
    ) -> None:
        """Write the potentials of a panel's rows, and add the panel to the columns of their plan.

        These are the potentials for costs from which `low` is taken off.

        Parameters
        ----------
        rows : slice
            Of `panels`.
        biased : ndarray of shape (m,)
            Column potentials in units of `reg`, plus the logarithms of the columns' weights.
        weights : ndarray of shape (n,)
            Weights of the rows.
        reg : float
            Regularisation.
        potential : ndarray of shape (n,)
            Receives the row potentials, in units of `reg`.
        columns : ndarray of shape (m,)
            To these the panel's rows of the plan are added.
        kept : ndarray of shape (n, m) or (0, 0)
            Receives the rows of the plan, scaled to sum 1, unless it is empty.
        """

    @abstractmethod
    def transposed(self) -> "Costs":
        """Return the costs with rows and columns exchanged."""


class MatrixCosts(Costs):
    """A cost matrix that is held in memory.

    Parameters
    ----------
    matrix : array-like of shape (n, m)
        Finite costs.

    Raises
    ------
    ValueError
        If they are empty, not a matrix, or not all finite.

    Examples
    --------
    >>> from skdpot.transport.costs import MatrixCosts
    >>> costs = MatrixCosts([[0.0, 1.0, 4.0]])
    >>> costs.shape, costs.low, costs.high
    ((1, 3), 0.0, 4.0)
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float64)
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ValueError(f"costs must be a non-empty matrix, got shape {self.matrix.shape}.")
        if not np.isfinite(self.matrix).all():
            raise ValueError("costs must be finite, and these contain NaN or infinity.")
        self.shape = self.matrix.shape
        self.low, self.high = float(self.matrix.min()), float(self.matrix.max())

    def answer(self, rows, biased, weights, reg, potential, columns, kept):
        answer_matrix(
            self.matrix[rows], self.low, reg, biased, weights[rows], potential[rows], columns,
            kept[rows],
        )  # fmt: skip

    def transposed(self) -> "MatrixCosts":
        return MatrixCosts(self.matrix.T)


class FunctionCosts(Costs):
    """Costs between two sets of points by a function, which is called anew in every pass.

    Parameters
    ----------
    x, y : ndarray of shape (n, n_features), (m, n_features)
        The points.
    function : callable
        Returns the costs between the rows of two matrices of points.
    low, high : float
        Between these all costs lie.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import cdist
    >>> from skdpot.transport.costs import FunctionCosts
    >>> FunctionCosts(np.zeros((3, 1)), np.ones((2, 1)), cdist, low=0.0, high=1.0).shape
    (3, 2)
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        function: Callable[[np.ndarray, np.ndarray], np.ndarray],
        low: float,
        high: float,
    ) -> None:
        self.x, self.y, self.function = x, y, function
        self.low, self.high = low, high
        self.shape = (len(x), len(y))

    def panels(self) -> list[slice]:
        height = max(1, _PANEL_SIZE // self.shape[1])
        return [slice(start, start + height) for start in range(0, self.shape[0], height)]

    def answer(self, rows, biased, weights, reg, potential, columns, kept):
        cost = np.ascontiguousarray(self.function(self.x[rows], self.y), dtype=np.float64)
        answer_matrix(
            cost, self.low, reg, biased, weights[rows], potential[rows], columns, kept[rows]
        )

    def transposed(self) -> "FunctionCosts":
        def exchanged(y, x):
            return self.function(x, y).T

        return FunctionCosts(self.y, self.x, exchanged, self.low, self.high)


class PointCosts(Costs):
    """Euclidean distances between points, or their squares, which the kernels compute themselves.

    Parameters
    ----------
    x, y : array-like of shape (n, n_features), (m, n_features)
        The points.
    squared : bool
        Whether the costs are squares of distances.
    high : float
        No cost is larger; one that is, by rounding, is replaced by it.

    Examples
    --------
    >>> from skdpot.transport.costs import PointCosts
    >>> PointCosts([[0.0], [1.0]], [[2.0]], squared=True, high=4.0).shape
    (2, 1)
    """

    low = 0.0

    def __init__(self, x: Any, y: Any, *, squared: bool, high: float) -> None:
        self.x = np.ascontiguousarray(x, dtype=np.float64)
        self.y = np.ascontiguousarray(y, dtype=np.float64)
        self.squared, self.high = squared, float(high)
        self.shape = (len(self.x), len(self.y))
        self._y_columns = np.ascontiguousarray(self.y.T)

    def answer(self, rows, biased, weights, reg, potential, columns, kept):
        answer_points(
            self.x[rows], self._y_columns, self.squared, self.high, reg,
            biased, weights[rows], potential[rows], columns, kept[rows],
        )  # fmt: skip

    def transposed(self) -> "PointCosts":
        return PointCosts(self.y, self.x, squared=self.squared, high=self.high)


def as_costs(cost: Any) -> Costs:
    """Return costs as they are, and a matrix of them as `MatrixCosts`."""
    return cost if isinstance(cost, Costs) else MatrixCosts(cost)
