"""The network simplex for all pairs of points, which starts from the tree that it ended with.

As masses stay the same, the flow of that tree is feasible for all costs, and if costs changed
little, few pivots are left. Masses are integers, and costs are rounded to integers so small that
all sums along a path are exact. The trees are strongly feasible, which excludes cycling: the
simplex ends for all data, without a limit on its pivots.

Costs are a matrix, or squared distances that are computed whenever they are needed: then all memory
is linear in the number of points. Of many coordinates, they are computed in blocks of rows.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from .kernels import kernel, leaf
from .near_columns import BLOCK, optimise_by_lists
from .network import LARGEST_COST, hang_forest, integer_masses, serve
from .polytope import smallest_difference, transform_prices
from .spanning_tree import NONE, PARENT, ROW_ARC, empty_tree, label_subtree, pivot, price_leaves

_integer_masses, _empty_tree = kernel(integer_masses), kernel(empty_tree)
_EPS = float(np.finfo(np.float64).eps)
_LARGEST_TOTAL = 2**52
_NO_MATRIX = np.empty((0, 0))
# Of more coordinates, distances are not computed one by one (measured).
_MOST_COORDINATES = 8
# Of more coordinates, a matrix is kept, which is faster, if it has at most so many distances,
# 8 MiB, or at most so many times the numbers that points consist of.
_LARGEST_MATRIX = 1 << 20
_LARGEST_SHARE = 4


def common_masses(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return weights (each of sum 1) as integers with one sum, exactly if all are equal weights.

    That sum is below 2**53, so sums of these masses are exact as doubles, too. Otherwise weights
    are rounded to multiples of 2**-52.
    """
    total = math.lcm(*(len(one) for one in weights))
    if total <= _LARGEST_TOTAL and all((one == one[0]).all() for one in weights):
        return [np.full(len(one), total // len(one)) for one in weights]
    return [_integer_masses(one) for one in weights]


class SquaredDistances:
    """Squared distances between the rows x and the columns y, none of them kept.

    Parameters
    ----------
    x, y : ndarray of shape (n, n_features), (m, n_features)
        The points.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y_columns = np.ascontiguousarray(x), np.ascontiguousarray(y.T)
        self.shape = len(x), len(y)

    def __getitem__(self, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        rows, columns = pairs
        squares = np.zeros(len(rows))
        for one, other in zip(self.x.T, self.y_columns, strict=True):
            squares += np.square(one[rows] - other[columns])
        return squares

    def max(self) -> float:
        """Return a bound on all distances, from the boxes around x and around y."""
        low, high = self.x.min(axis=0), self.x.max(axis=0)
        other_low, other_high = self.y_columns.min(axis=1), self.y_columns.max(axis=1)
        return float(np.square(np.maximum(high - other_low, other_high - low)).sum())

    @property
    def n_roundings(self) -> int:
        """By how many roundings of the largest distance `rows` may be off."""
        return 0

    def rows(self, block: slice) -> np.ndarray:
        """Return the distances of some rows."""
        return _matrix(self.x[block], self.y_columns.T)


class DistancesByProducts(SquaredDistances):
    """Squared distances of points with many coordinates, of which blocks are products of matrices.

    Points are taken relative to the mean of y, which makes rounding errors of products small.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        super().__init__(x, y)
        mean = self.y_columns.mean(axis=1)
        self._x, self._y = self.x - mean, self.y_columns - mean[:, None]
        self._x_squares, self._y_squares = np.square(self._x).sum(1), np.square(self._y).sum(0)
        self._y *= -2

    def max(self) -> float:
        """Return a bound on all distances, from the balls around the mean of y."""
        lengths = np.sqrt(self._x_squares.max()) + np.sqrt(self._y_squares.max())
        return float(lengths**2)

    @property
    def n_roundings(self) -> int:
        """By how many roundings of the bound on all distances `rows` may be off, at most."""
        return len(self.y_columns) + 16

    def rows(self, block: slice) -> np.ndarray:
        """Return the distances of some rows, as products."""
        rows = np.arange(self.shape[0])[block]
        return self.products(rows, np.empty((len(rows), self.shape[1])))

    def products(self, rows: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Return the distances of some rows, with errors relative to the largest one."""
        np.matmul(self._x[rows], self._y, out=out)
        out += self._x_squares[rows, None]
        out += self._y_squares
        return out


def _matrix(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return cdist(x, y, "sqeuclidean")


def squared_distances(
    x: np.ndarray, y: np.ndarray, matrix: Callable[..., np.ndarray] = _matrix
) -> SquaredDistances | np.ndarray:
    """Return squared distances, as a matrix only if few points have many coordinates."""
    if x.shape[1] <= _MOST_COORDINATES:
        return SquaredDistances(x, y)
    if len(x) * len(y) <= max(_LARGEST_MATRIX, _LARGEST_SHARE * (x.size + y.size)):
        return matrix(x, y)
    return DistancesByProducts(x, y)


class Coupling(NamedTuple):
    """The pairs of rows and columns that a coupling joins, and its masses there, with sum 1."""

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray

    def cost(self, cost: SquaredDistances | np.ndarray) -> float:
        """Return the cost of the coupling."""
        return float(np.sum(self.masses * cost[self.rows, self.columns]))


class WarmTransport:
    """Exact transport from rows to columns of fixed masses, each time from the last tree.

    Parameters
    ----------
    row_masses, column_masses : ndarray of shape (n,), (m,)
        Positive integers with one sum, as from `common_masses`.
    """

    def __init__(self, row_masses: np.ndarray, column_masses: np.ndarray) -> None:
        self._row_masses, self._column_masses = row_masses, column_masses
        self._n_rows = len(row_masses)
        n_nodes = len(row_masses) + len(column_masses) + 1
        self._tree = _empty_tree(n_nodes)
        self._flow = np.zeros(n_nodes, np.int64)
        self._price, self._arc_cost = np.zeros(n_nodes), np.zeros(n_nodes)
        self._at_root = np.zeros(len(column_masses), np.bool_)
        self._n_quanta = self._largest = 0.0

    def tree(self) -> dict[str, np.ndarray]:
        """Return the start of the next solution, as arrays of doubles' size."""
        return {
            "tree": self._tree.astype(np.int64),
            "flow": self._flow.astype(np.int64),
            "at_root": self._at_root.astype(np.int64),
        }

    def start_from(self, tree: dict[str, np.ndarray]) -> None:
        """Start the next solution from a tree of the same masses that `tree` returned."""
        self._tree[...] = tree["tree"]
        self._flow[...] = tree["flow"]
        self._at_root[...] = tree["at_root"]

    def solve(self, cost: SquaredDistances | np.ndarray, *, overwrite: bool = False) -> Coupling:
        """Return an optimal coupling for finite non-negative costs of shape (n, m).

        With `overwrite`, a matrix is rounded in place, which saves the memory of a second one.
        """
        self._largest = float(cost.max())
        self._n_quanta = math.floor(LARGEST_COST / len(self._tree)) / (self._largest or 1.0)
        if isinstance(cost, SquaredDistances):
            quanta = _NO_MATRIX, cost.x, cost.y_columns
        else:
            rounded = np.multiply(cost, self._n_quanta, out=cost if overwrite else None)
            quanta = np.rint(rounded, out=rounded), _NO_MATRIX, _NO_MATRIX
        if not self._at_root[0]:
            _plant(
                *quanta, self._n_quanta, self._tree, self._flow, self._at_root, self._row_masses,
                self._column_masses,
            )  # fmt: skip
        state = (
            self._tree, self._price, self._arc_cost, self._flow, self._column_masses, self._at_root,
        )  # fmt: skip
        if isinstance(cost, DistancesByProducts):
            optimise_by_lists(cost, self._n_quanta, *state)
        else:
            _optimise(*quanta, self._n_quanta, *state)
        return self._coupling()

    def bounds(
        self, cost: SquaredDistances | np.ndarray, coupling: Coupling
    ) -> tuple[float, float]:
        """Return certified bounds on the optimum for the costs that were solved for last.

        The upper one is the cost of the coupling; the lower one is the value of the last prices,
        made feasible for the true costs, minus the largest effect of rounding.
        """
        return self.certify(cost, coupling)[:2]

    def certify(
        self, cost: SquaredDistances | np.ndarray, coupling: Coupling
    ) -> tuple[float, float, np.ndarray]:
        """Return these bounds, and the rows' prices that the lower one is for."""
        n_rows, n_columns = cost.shape
        rows = self._row_masses / self._row_masses.sum()
        columns = self._column_masses / self._column_masses.sum()
        prices = self.prices()[1]
        phi, psi, of_block = np.empty(n_rows), np.full(n_columns, np.inf), np.empty(n_columns)
        height = max(1, BLOCK // n_columns)
        for start in range(0, n_rows, height):
            block = slice(start, start + height)
            part = cost.rows(block) if isinstance(cost, SquaredDistances) else cost[block]
            transform_prices(part, np.arange(len(part)), rows[block], prices, phi[block], of_block)
            np.minimum(psi, of_block, out=psi)
        n_roundings = n_rows + n_columns + 16
        if isinstance(cost, SquaredDistances):
            n_roundings += cost.n_roundings
        rounding = n_roundings * _EPS * self._largest
        lower = math.fsum(rows * phi) + math.fsum(columns * psi) - rounding
        upper = coupling.cost(cost)
        return min(lower, upper), upper, phi

    def prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the last prices of rows and columns, in units of cost; the root's are left out."""
        prices = self._price[:-1] / self._n_quanta
        return prices[: self._n_rows], prices[self._n_rows :]

    def _coupling(self) -> Coupling:
        """Read the coupling off the tree."""
        nodes = np.flatnonzero(self._flow > 0)
        parents = self._tree[nodes, PARENT]
        is_row = nodes < self._n_rows
        return Coupling(
            np.where(is_row, nodes, parents),
            np.where(is_row, parents, nodes) - self._n_rows,
            self._flow[nodes] / self._row_masses.sum(),
        )


@leaf
def _cost(matrix, x, y_columns, n_quanta, row, column):
    """Return a cost in quanta, from the matrix unless that is empty."""
    if len(matrix):
        return matrix[row, column]
    square = 0.0
    for k in range(len(y_columns)):
        difference = x[row, k] - y_columns[k, column]
        square += difference * difference
    return np.rint(square * n_quanta)


@leaf
def _write_row(x, y_columns, n_quanta, row, costs):
    """Write the costs of a row, as `_cost` has them."""
    costs[:] = 0.0
    for k in range(len(y_columns)):
        coordinate, others = x[row, k], y_columns[k]
        for j in range(len(costs)):
            difference = coordinate - others[j]
            costs[j] += difference * difference
    for j in range(len(costs)):
        costs[j] = np.rint(costs[j] * n_quanta)


@kernel
def _plant(matrix, x, y_columns, n_quanta, tree, flow, at_root, row_masses, column_masses):
    """Grow the first tree: columns take the rest of their cheapest rows, one by one."""
    n_rows = len(row_masses)
    supply, demand = row_masses.copy(), column_masses.copy()
    parents = np.full(len(tree) - 1, NONE)
    masses = np.zeros(len(tree) - 1, np.int64)
    for column in range(len(demand)):
        while demand[column] > 0:
            cheapest, least = NONE, np.inf
            for row in range(n_rows):
                if supply[row] > 0:
                    value = _cost(matrix, x, y_columns, n_quanta, row, column)
                    if value < least:
                        cheapest, least = np.int64(row), value
            serve(cheapest, column, supply, demand, parents, masses)
    hang_forest(n_rows, n_rows, tree, flow, at_root, parents, masses)


@kernel
def _optimise(
    matrix, x, y_columns, n_quanta, tree, price, arc_cost, flow, amount, at_root
):  # fmt: skip
    """Let the cheapest arc of one row after the other enter, until no row has one to offer.

    Only the first column connects the tree with the root. That arc is on no cycle, so the flow of
    the columns to the root is fixed.
    """
    root, n_columns = len(tree) - 1, len(amount)
    n_rows = root - n_columns
    for node in range(root):
        parent = np.int64(tree[node, PARENT])
        if node < n_rows:
            arc_cost[node] = _cost(matrix, x, y_columns, n_quanta, node, parent - n_rows)
        elif parent < root:
            arc_cost[node] = _cost(matrix, x, y_columns, n_quanta, parent, node - n_rows)
        else:
            arc_cost[node] = 0.0
    label_subtree(tree, price, arc_cost, n_rows)
    price_leaves(tree, price, arc_cost, n_rows)
    column_prices = price[n_rows:root]
    scratch = np.empty(n_columns)
    row = 0
    n_settled = 0
    while n_settled < n_rows:
        row_cost = scratch
        if len(matrix):
            row_cost = matrix[row]
        else:
            _write_row(x, y_columns, n_quanta, row, scratch)
        smallest = smallest_difference(row_cost, column_prices)
        if smallest < price[row]:
            column = 0
            while row_cost[column] - column_prices[column] != smallest:
                column += 1
            pivot(
                tree, price, arc_cost, flow, amount, at_root, amount, amount, n_rows,
                ROW_ARC, row, n_rows + column, row_cost[column],
            )  # fmt: skip
            price_leaves(tree, price, arc_cost, n_rows)
            n_settled = 0
        else:
            n_settled += 1
        row = row + 1 if row + 1 < n_rows else 0
