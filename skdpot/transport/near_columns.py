"""The network simplex for costs that are not kept: each row has a list of near columns.

Pivots take arcs from these lists. Of the other columns, a row knows how far away they are at least.
Its costs are computed again once prices have risen by more than that, in blocks of rows. So all
memory is linear in the number of points. The result is the same as with a whole matrix.
"""

from typing import Any

import numpy as np

from .kernels import kernel
from .polytope import any_below, smallest_difference
from .spanning_tree import LISTED, PARENT, ROW_ARC, label_subtree, pivot, price_leaves

# Costs that are in memory at a time: 1 MiB.
BLOCK = 1 << 17
# A list has room for so many columns. Those are near that are below one of the smallest of every
# eighth column, some fifty on average.
_ROOM = 96
_STEP, _RANK = 8, 5
# Passes end before. But products of the same numbers may be rounded differently in other blocks,
# and then nothing proves it.
_MOST_PASSES = 1000


def optimise_by_lists(
    distances: Any,
    n_quanta: float,
    tree: np.ndarray,
    price: np.ndarray,
    arc_cost: np.ndarray,
    flow: np.ndarray,
    amount: np.ndarray,
    at_root: np.ndarray,
) -> None:
    """Make a tree optimal for distances, which are computed in blocks and rounded to quanta."""
    n_rows, n_columns = distances.shape
    column_prices = price[n_rows:-1]
    nodes = np.flatnonzero(tree[:-1, PARENT] < len(tree) - 1)
    rows, columns = np.sort([nodes, tree[nodes, PARENT]], axis=0)
    arc_cost[:] = 0.0
    arc_cost[nodes] = np.rint(distances[rows, columns - n_rows] * n_quanta)
    _price(tree, price, arc_cost, n_rows)
    near, costs = np.empty((n_rows, _ROOM), np.int32), np.empty((n_rows, _ROOM))
    # Other columns than the listed ones cost no less, after prices are subtracted.
    length, floor = np.zeros(n_rows, np.int64), np.full(n_rows, -np.inf)
    height = max(1, BLOCK // n_columns)
    buffer = np.empty((min(height, n_rows), n_columns))
    for _ in range(_MOST_PASSES):
        unsure, is_optimal = np.flatnonzero(floor < price[:n_rows]), True
        for start in range(0, len(unsure), height):
            block = unsure[start : start + height]
            of_block = distances.products(block, buffer[: len(block)])
            is_optimal &= _list_near(of_block, n_quanta, block, price, near, costs, length, floor)
        if is_optimal:
            return
        before = column_prices.copy()
        _settle(tree, price, arc_cost, flow, amount, at_root, near, costs, length)
        floor -= (column_prices - before).max()


@kernel
def _price(tree, price, arc_cost, n_rows):
    label_subtree(tree, price, arc_cost, n_rows)
    price_leaves(tree, price, arc_cost, n_rows)


@kernel
def _list_near(block, n_quanta, rows, price, near, costs, length, floor):
    """List the near columns of a block of rows; tell whether no arc of theirs should enter."""
    n_rows, n_columns = len(near), block.shape[1]
    column_prices = price[n_rows : n_rows + n_columns]
    sample = np.empty((n_columns + _STEP - 1) // _STEP)
    is_optimal = True
    for i in range(len(rows)):
        row, row_cost = rows[i], block[i]
        for j in range(n_columns):
            row_cost[j] = np.rint(row_cost[j] * n_quanta)
        smallest = smallest_difference(row_cost, column_prices)
        is_optimal &= smallest >= price[row]
        limit = np.inf
        if n_columns >= _ROOM:
            for k in range(len(sample)):
                sample[k] = row_cost[_STEP * k] - column_prices[_STEP * k]
            limit = np.partition(sample, _RANK)[_RANK]
        # The best column comes first, as there may be no room for all.
        column = 0
        while row_cost[column] - column_prices[column] != smallest:
            column += 1
        near[row, 0], costs[row, 0] = column, row_cost[column]
        size = 1
        for start in range(0, n_columns, 16):
            end = min(start + 16, n_columns)
            if any_below(row_cost[start:end], column_prices[start:end], limit):
                for j in range(start, end):
                    if row_cost[j] - column_prices[j] < limit:
                        if size == _ROOM:
                            limit = smallest
                            break
                        near[row, size], costs[row, size] = j, row_cost[j]
                        size += 1
        length[row], floor[row] = size, limit
    return is_optimal


@kernel
def _settle(tree, price, arc_cost, flow, amount, at_root, near, costs, length):
    """Let the cheapest listed arc of one row after the other enter, until no list has one."""
    n_rows = len(near)
    row = 0
    n_settled = 0
    while n_settled < n_rows:
        smallest, at = np.inf, 0
        for k in range(length[row]):
            column = n_rows + np.int64(near[row, k])
            if tree[column, LISTED]:
                value = costs[row, k] - price[column]
            else:
                value = costs[row, k] - (arc_cost[column] - price[tree[column, PARENT]])
            if value < smallest:
                smallest, at = value, k
        if smallest < price[row]:
            pivot(
                tree, price, arc_cost, flow, amount, at_root, amount, amount, n_rows,
                ROW_ARC, row, n_rows + np.int64(near[row, at]), costs[row, at],
            )  # fmt: skip
            n_settled = 0
        else:
            n_settled += 1
        row = row + 1 if row + 1 < n_rows else 0
    price_leaves(tree, price, arc_cost, n_rows)
