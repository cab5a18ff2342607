"""The network simplex for dense costs, which starts from the tree that it ended with.

As masses stay the same, the flow of that tree is feasible whatever the costs are, and where costs
changed little, few pivots are left to do. Masses are integers, and costs are rounded to integers so
small that all sums along a path are exact. The trees are strongly feasible, which excludes cycling:
the simplex ends whatever the data are, without a limit on its pivots.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .kernels import kernel
from .network import LARGEST_COST, greedy_forest, hang_forest, integer_masses
from .polytope import smallest_difference, transform_prices
from .spanning_tree import PARENT, ROW_ARC, empty_tree, label_subtree, pivot, price_leaves

_integer_masses, _greedy_forest = kernel(integer_masses), kernel(greedy_forest)
_hang_forest, _empty_tree = kernel(hang_forest), kernel(empty_tree)
_EPS = float(np.finfo(np.float64).eps)
_LARGEST_TOTAL = 2**52


def common_masses(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return weights (each of sum 1) as integers with one sum, exactly if all are equal weights.

    That sum is below 2**53, so that sums of these masses are exact as doubles, too. Otherwise
    weights are rounded to multiples of 2**-52.
    """
    total = math.lcm(*(len(one) for one in weights))
    if total <= _LARGEST_TOTAL and all((one == one[0]).all() for one in weights):
        return [np.full(len(one), total // len(one)) for one in weights]
    return [_integer_masses(one) for one in weights]


class Coupling(NamedTuple):
    """The pairs of rows and columns that a coupling joins, and its masses there, with sum 1."""

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray

    def cost(self, cost: np.ndarray) -> float:
        """Return what the coupling costs."""
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
        self._hub = len(row_masses)
        n_nodes = len(row_masses) + len(column_masses) + 1
        self._tree = _empty_tree(n_nodes)
        self._flow = np.zeros(n_nodes, np.int64)
        self._price, self._arc_cost = np.zeros(n_nodes), np.zeros(n_nodes)
        self._at_root = np.zeros(len(column_masses), np.bool_)
        self._n_quanta = 0.0

    def tree(self) -> dict[str, np.ndarray]:
        """Return what the next solution starts from, as arrays of doubles' size."""
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

    def solve(self, cost: np.ndarray, *, overwrite: bool = False) -> Coupling:
        """Return an optimal coupling for finite non-negative costs of shape (n, m).

        With `overwrite`, the costs are rounded in place, which saves the memory of a second matrix.
        """
        self._n_quanta = math.floor(LARGEST_COST / len(self._tree)) / (cost.max() or 1.0)
        quanta = np.multiply(cost, self._n_quanta, out=cost if overwrite else None)
        np.rint(quanta, out=quanta)
        if not self._at_root[0]:
            self._plant(quanta)
        _price_tree(quanta, self._tree, self._price, self._arc_cost, self._hub)
        _optimise(
            quanta, self._tree, self._price, self._arc_cost, self._flow, self._column_masses,
            self._at_root,
        )  # fmt: skip
        return self._coupling()

    def bounds(self, cost: np.ndarray, coupling: Coupling) -> tuple[float, float]:
        """Return certified bounds on the optimum for the costs that were solved for last.

        The upper one is the cost of the coupling; the lower one is the value of the last prices,
        made feasible for the true costs, less what rounding may have added.
        """
        return self.certify(cost, coupling)[:2]

    def certify(self, cost: np.ndarray, coupling: Coupling) -> tuple[float, float, np.ndarray]:
        """Return these bounds, and the rows' prices that the lower one is for."""
        n_rows, n_columns = cost.shape
        rows = self._row_masses / self._row_masses.sum()
        columns = self._column_masses / self._column_masses.sum()
        prices = self.prices()[1]
        phi, psi = np.empty(n_rows), np.empty(n_columns)
        transform_prices(cost, np.arange(n_rows), rows, prices, phi, psi)
        rounding = (n_rows + n_columns + 16) * _EPS * float(cost.max())
        lower = math.fsum(rows * phi) + math.fsum(columns * psi) - rounding
        upper = coupling.cost(cost)
        return min(lower, upper), upper, phi

    def prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the last prices of rows and columns, in units of cost; the root's are left out."""
        prices = self._price[:-1] / self._n_quanta
        return prices[: self._hub], prices[self._hub :]

    def _plant(self, quanta: np.ndarray) -> None:
        """Grow the first tree: columns take what is left of their cheapest rows, one by one."""
        rows, nothing = np.arange(self._hub), np.empty(0, np.int32)
        forest = _greedy_forest(
            quanta, rows, self._row_masses, np.zeros(self._hub), self._column_masses.copy(),
            np.zeros(len(self._column_masses), np.bool_), nothing, nothing,
        )  # fmt: skip
        _hang_forest(
            quanta, rows, self._hub, self._tree, self._arc_cost, self._flow, self._at_root, *forest,
        )  # fmt: skip

    def _coupling(self) -> Coupling:
        """Read the coupling off the tree."""
        nodes = np.flatnonzero(self._flow > 0)
        parents = self._tree[nodes, PARENT]
        is_row = nodes < self._hub
        return Coupling(
            np.where(is_row, nodes, parents),
            np.where(is_row, parents, nodes) - self._hub,
            self._flow[nodes] / self._row_masses.sum(),
        )


@kernel
def _price_tree(cost, tree, price, arc_cost, hub):
    """Set arc costs and prices of the tree, which hangs from the root by the column `hub` alone."""
    n_rows = cost.shape[0]
    root = len(tree) - 1
    for node in range(root):
        parent = tree[node, PARENT]
        if parent == root:
            arc_cost[node] = 0.0
        elif node < n_rows:
            arc_cost[node] = cost[node, parent - n_rows]
        else:
            arc_cost[node] = cost[parent, node - n_rows]
    label_subtree(tree, price, arc_cost, hub)
    price_leaves(tree, price, arc_cost, n_rows)


@kernel
def _optimise(cost, tree, price, arc_cost, flow, amount, at_root):
    """Let the cheapest arc of one row after the other enter, until no row has one to offer.

    The hub's arc to the root is on no cycle, so that what the columns send to the root is fixed.
    """
    n_rows, n_columns = cost.shape
    column_prices = price[n_rows : n_rows + n_columns]
    row = 0
    n_settled = 0
    while n_settled < n_rows:
        row_cost = cost[row]
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
