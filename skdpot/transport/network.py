"""Projection of one user's distribution onto the LDP polytope by a warm network simplex.

The linear program is a flow problem: row i sends ``P_i`` to the columns at cost ``C_ij``, and
column j sends on to a root between ``s_j`` and ``E s_j`` at no cost. Masses are integers (2**52 in
total). So flows are exact, ties are ties, and the strongly feasible trees kept below exclude
cycling. A basis is a tree that hangs from the root: rows 0..k-1, columns k..k+m-1, root k+m; a
column whose arc to the root is not in the tree sends its smallest or its largest amount.

The start comes from an entropic solution. Columns that it has at a bound are served first, along
the arcs of smallest reduced cost. The rest of the rows goes to the other columns, each with its own
tree: few pivots are left. Where that is not feasible, columns are filled in the order of their
prices.
"""

import numpy as np

from .kernels import leaf, lesser, part
from .polytope import any_below
from .sorting import sorted_places
from .spanning_tree import (
    LESS_TO_ROOT,
    LISTED,
    MORE_TO_ROOT,
    NONE,
    PARENT,
    ROW_ARC,
    empty_tree,
    fresh_price,
    label_subtree,
    list_children,
    pivot,
    price_leaves,
)

TOTAL_MASS = 1 << 52
_PRICING_BLOCK = 20
# Costs among which candidates are looked for at once: whole vectors of the processor.
_LOOKS = 32
_PIVOTS_PER_NODE = 200
# To find which columns have an amount between their bounds.
_ATTEMPTS = 4
_BUCKETS = 128
# Arcs whose reduced cost under the entropic prices is below this many units of the
# regularisation are tried first.
_CANDIDATE_WIDTH = 4.0
# Prices grow with the number of nodes: costs of this size, divided by that number, leave all sums
# of prices below 2**53.
LARGEST_COST = 2.0**50


@part
def integer_masses(weights):
    """Return the weights (sum 1) as integers with sum 2**52; the largest takes the remainder."""
    masses = np.empty(len(weights), np.int64)
    rest = np.int64(TOTAL_MASS)
    heaviest = 0
    for i in range(len(weights)):
        masses[i] = np.int64(weights[i] * TOTAL_MASS)
        rest -= masses[i]
        if weights[i] > weights[heaviest]:
            heaviest = i
    masses[heaviest] += rest
    return masses


def integer_bounds(lower, upper):
    """Return the column bounds as integers, opened by one unit so that they always leave room."""
    smallest = np.floor(lower * TOTAL_MASS).astype(np.int64)
    largest = np.ceil(np.minimum(upper, 1.0) * TOTAL_MASS).astype(np.int64) + 1
    return smallest, largest


@part
def _fill_columns(smallest, largest, column_prices, amount):
    """Give every column its smallest amount and the rest to the cheapest ones."""
    rest = np.int64(TOTAL_MASS)
    for j in range(len(amount)):
        amount[j] = smallest[j]
        rest -= amount[j]
    for j in sorted_places(column_prices):
        extra = min(largest[j] - smallest[j], rest)
        amount[j] += extra
        rest -= extra
        if rest == 0:
            break


@part
def _candidate_arcs(cost, used, row_prices, column_prices, width):
    """Find the arcs of reduced cost below `width`, in the order in which they should be filled.

    A column whose second-best row is much worse than its best one comes before a column that
    several rows could serve as well: arcs are sorted by reduced cost minus that regret. Returns
    their rows, columns and number; the arrays have room for all arcs.
    """
    n_rows, n_columns = len(used), len(column_prices)
    capacity = n_rows * n_columns
    # Of unsigned indices, compiled code need not ask whether they count from the end.
    rows = np.empty(capacity, np.uint32)
    columns = np.empty(capacity, np.uint32)
    excess = np.empty(capacity)
    best = np.empty(n_columns)
    second = np.empty(n_columns)
    for j in range(n_columns):
        best[j] = second[j] = width
    size = 0
    for i in range(n_rows):
        row_cost = cost[used[i]]
        price = row_prices[i]
        for start in range(0, n_columns, _LOOKS):
            end = min(start + _LOOKS, n_columns)
            if not any_below(row_cost[start:end], column_prices[start:end], width + price):
                continue
            for j in range(start, end):
                value = row_cost[j] - column_prices[j] - price
                # Written in any case: which arcs are candidates is hard to predict.
                rows[size], columns[size], excess[size] = i, j, value
                size += value < width
                second[j] = lesser(second[j], max(best[j], value))
                best[j] = lesser(best[j], value)

    buckets = np.empty(size, np.int32)
    starts = np.empty(_BUCKETS + 2, np.int64)
    for b in range(_BUCKETS + 2):
        starts[b] = 0
    scale = _BUCKETS / (2 * width)
    for a in range(size):
        j = columns[a]
        level = (excess[a] - (second[j] - best[j]) + width) * scale
        buckets[a] = np.int32(min(max(level, 0.0), _BUCKETS))
        starts[buckets[a] + 1] += 1
    for b in range(_BUCKETS + 1):
        starts[b + 1] += starts[b]
    sorted_rows = np.empty(capacity, np.uint32)
    sorted_columns = np.empty(capacity, np.uint32)
    for a in range(size):
        place = starts[buckets[a]]
        starts[buckets[a]] += 1
        sorted_rows[place] = rows[a]
        sorted_columns[place] = columns[a]
    return sorted_rows, sorted_columns, size


@part
def serve(i, j, supply, demand, parents, masses):
    """Send the mass of row i to column j: the one that this exhausts hangs from the other."""
    mass = min(supply[i], demand[j])
    supply[i] -= mass
    demand[j] -= mass
    child, parent = i, len(supply) + j
    if demand[j] == 0:
        child, parent = parent, child
    parents[child], masses[child] = parent, mass


@part
def _greedy_forest(
    cost, used, supply, row_prices, amount, is_free, candidate_rows, candidate_columns
):
    """Serve the column amounts along the candidate arcs, then along the cheapest others.

    The rest of the rows then goes to the free columns, up to their amounts, which are set to the
    mass that they take. Every arc takes all it can, and so exhausts a row or a column: the arcs
    form a forest. Returns the parent of each node, or `NONE`, and the mass between them. No column
    is the top of a tree but those that are free and could take more, or have no arc.
    """
    n_rows, n_columns = len(used), len(amount)
    supply = supply.copy()
    demand = amount.copy()
    parents = np.empty(n_rows + n_columns, np.int64)
    masses = np.empty(n_rows + n_columns, np.int64)
    for node in range(n_rows + n_columns):
        parents[node], masses[node] = NONE, 0
    for turn in range(2):
        for a in range(len(candidate_rows)):
            row, column = np.int64(candidate_rows[a]), np.int64(candidate_columns[a])
            if min(supply[row], demand[column]) > 0 and is_free[column] == turn:
                serve(row, column, supply, demand, parents, masses)
        if turn:
            break
        for j in range(n_columns):
            while demand[j] > 0 and not is_free[j]:
                best = NONE
                best_value = np.inf
                for i in range(n_rows):
                    if supply[i] > 0:
                        value = cost[used[i], j] - row_prices[i]
                        if best == NONE or value < best_value:
                            best, best_value = i, value
                serve(best, j, supply, demand, parents, masses)
    for i in range(n_rows):
        while supply[i] > 0:
            best = NONE
            for j in range(n_columns):
                if is_free[j] and demand[j] > 0:
                    if best == NONE or cost[used[i], j] < cost[used[i], best]:
                        best = j
            if best == NONE:
                break
            serve(i, best, supply, demand, parents, masses)
    for j in range(n_columns):
        amount[j] -= demand[j]
    return parents, masses


@part
def _first_forest(
    cost, used, supply, row_prices, column_prices, smallest, largest, shares, amount, is_free,
    candidate_rows, candidate_columns,
):  # fmt: skip
    """Return a feasible forest, and set the amounts and which columns may have more or less.

    Columns whose share is between their bounds take the rest of the rows. Those that get too little
    are given their smallest amount in the next attempt.
    """
    for j in range(len(amount)):
        share = np.int64(shares[j] * TOTAL_MASS)
        is_free[j] = smallest[j] < share < largest[j]
        amount[j] = min(max(share, smallest[j]), largest[j])
    attempt = 0
    while True:
        fixed, least, most = np.int64(0), np.int64(0), np.int64(0)
        for j in range(len(amount)):
            if is_free[j]:
                amount[j] = largest[j]
                least += smallest[j]
                most += largest[j]
            else:
                fixed += amount[j]
        attempt += 1
        is_last = attempt > _ATTEMPTS or not least <= TOTAL_MASS - fixed <= most
        if is_last:
            for j in range(len(amount)):
                is_free[j] = False
            _fill_columns(smallest, largest, column_prices, amount)
        forest = _greedy_forest(
            cost, used, supply, row_prices, amount, is_free, candidate_rows, candidate_columns
        )
        is_short = False
        for j in range(len(amount)):
            if amount[j] < smallest[j]:
                amount[j], is_free[j], is_short = smallest[j], False, True
        if is_last or not is_short:
            return forest


@part
def _root_column(smallest, largest, amount):
    """Return the column whose arc to the root carries the tree: one between its bounds."""
    chosen = 0
    for j in range(len(amount)):
        if amount[j] < largest[j]:
            chosen = j
            if amount[j] > smallest[j]:
                break
    return chosen


@part
def hang_forest(n_rows, hub, tree, flow, at_root, parents, masses):
    """Turn the forest into a strongly feasible spanning tree that hangs from the root.

    Trees hang by the column `hub`, by another column that is their top, or else from the hub: by
    an empty arc of a row, which points to the root.
    """
    root = len(tree) - 1
    # The hub becomes the top of its tree.
    below, parent, mass = np.int64(hub), parents[hub], masses[hub]
    parents[hub] = NONE
    while parent != NONE:
        further, next_mass = parents[parent], masses[parent]
        parents[parent], masses[parent] = below, mass
        below, parent, mass = parent, further, next_mass
    for node in range(root):
        parent = parents[node]
        if parent == NONE and node >= n_rows:
            tree[node, PARENT] = root
            at_root[node - n_rows] = True
            continue
        if parent == NONE:
            parent = np.int64(hub)
        else:
            flow[node] = masses[node]
        tree[node, PARENT] = parent
    list_children(tree, n_rows)


@leaf
def _optimise(
    cost, used, tree, price, arc_cost, flow, amount, at_root, smallest, largest,
    rows, columns, costs, n_candidates, tolerance,
):  # fmt: skip
    """Pivot until no arc is violated, the candidates first; the number of pivots is bounded.

    When no candidate is violated any more, other violated arcs become candidates.

    Prices of leaves are set once a round and may be stale after a pivot. Violations are checked
    again, and missed ones are found in the next round.
    """
    n_rows, n_columns = len(used), len(amount)
    size = n_candidates
    for a in range(size):
        costs[a] = cost[used[rows[a]], columns[a]]
    column_prices = price[n_rows : n_rows + n_columns]
    budget = _PIVOTS_PER_NODE * len(tree)
    while budget > 0:
        pivots = 0
        for j in range(n_columns):
            if not tree[n_rows + j, LISTED]:
                column_prices[j] = arc_cost[n_rows + j] - price[tree[n_rows + j, PARENT]]
            if at_root[j]:
                continue
            if column_prices[j] < -tolerance and amount[j] < largest[j]:
                kind, sign = MORE_TO_ROOT, -1
            elif column_prices[j] > tolerance and amount[j] > smallest[j]:
                kind, sign = LESS_TO_ROOT, 1
            else:
                continue
            if sign * fresh_price(tree, price, arc_cost, n_rows + j) <= tolerance:
                continue
            pivot(
                tree, price, arc_cost, flow, amount, at_root, smallest, largest, n_rows,
                kind, NONE, n_rows + j, 0.0,
            )  # fmt: skip
            pivots += 1
        for start in range(0, size, _PRICING_BLOCK):
            worst, worst_value = NONE, -tolerance
            for a in range(start, min(start + _PRICING_BLOCK, size)):
                value = costs[a] - price[rows[a]] - column_prices[columns[a]]
                if value < worst_value:
                    worst, worst_value = a, value
            if worst == NONE:
                continue
            fresh = fresh_price(tree, price, arc_cost, n_rows + np.int64(columns[worst]))
            if costs[worst] - price[rows[worst]] - fresh < -tolerance:
                pivot(
                    tree, price, arc_cost, flow, amount, at_root, smallest, largest, n_rows,
                    ROW_ARC, np.int64(rows[worst]), n_rows + np.int64(columns[worst]), costs[worst],
                )  # fmt: skip
                pivots += 1
        if pivots == 0:
            for i in range(n_rows):
                row_cost = cost[used[i]]
                if not any_below(row_cost, column_prices, price[i] - tolerance):
                    continue
                best, least = 0, np.inf
                for j in range(n_columns):
                    value = row_cost[j] - column_prices[j]
                    if value - price[i] < -tolerance and size < len(rows):
                        rows[size], columns[size], costs[size] = i, j, row_cost[j]
                        size += 1
                    if value < least:
                        best, least = j, value
                fresh = fresh_price(tree, price, arc_cost, n_rows + best)
                if row_cost[best] - price[i] - fresh < -tolerance:
                    pivot(
                        tree, price, arc_cost, flow, amount, at_root, smallest, largest, n_rows,
                        ROW_ARC, i, n_rows + best, row_cost[best],
                    )  # fmt: skip
                    pivots += 1
        if pivots == 0:
            break
        budget -= pivots


@part
def network_projection(
    cost, rows, weights, smallest, largest, row_prices, column_prices, reg, magnitude, nu, potential
):
    """Project one user's distribution exactly, from the prices of an entropic solution.

    `nu` has the first amounts of columns, and receives the projected distribution (up to 2**-52);
    `potential` receives the columns' dual prices. Returns the cost of the flow.
    """
    n_rows, n_columns = len(rows), len(nu)
    n_nodes = n_rows + n_columns + 1
    tree = empty_tree(n_nodes)
    # The flow on each node's arc to its parent, without the arcs to the root.
    flow = np.empty(n_nodes, np.int64)
    price = np.empty(n_nodes)
    arc_cost = np.empty(n_nodes)
    for node in range(n_nodes):
        flow[node] = 0
        price[node] = arc_cost[node] = 0.0
    # The flow of each column to the root, and whether it is in the tree.
    amount = np.empty(n_columns, np.int64)
    at_root = np.empty(n_columns, np.bool_)
    for j in range(n_columns):
        at_root[j] = False
    supply = integer_masses(weights)
    candidates = _candidate_arcs(cost, rows, row_prices, column_prices, _CANDIDATE_WIDTH * reg)
    candidate_rows, candidate_columns = candidates[0][: candidates[2]], candidates[1]
    is_free = np.empty(n_columns, np.bool_)
    forest = _first_forest(
        cost, rows, supply, row_prices, column_prices, smallest, largest, nu, amount, is_free,
        candidate_rows, candidate_columns,
    )  # fmt: skip
    hub = n_rows + _root_column(smallest, largest, amount)
    hang_forest(n_rows, hub, tree, flow, at_root, forest[0], forest[1])
    for node in range(n_nodes - 1):
        parent = np.int64(tree[node, PARENT])
        if node < n_rows:
            arc_cost[node] = cost[rows[node], parent - n_rows]
        elif parent < n_nodes - 1:
            arc_cost[node] = cost[rows[parent], node - n_rows]
    for j in range(n_columns):
        if at_root[j]:
            label_subtree(tree, price, arc_cost, n_rows + j)
    _optimise(
        cost, rows, tree, price, arc_cost, flow, amount, at_root, smallest, largest,
        candidates[0], candidates[1], np.empty(len(candidates[1])), candidates[2],
        1e-12 * magnitude,
    )  # fmt: skip

    price_leaves(tree, price, arc_cost, n_rows)
    for j in range(n_columns):
        nu[j] = amount[j] / TOTAL_MASS
        potential[j] = price[n_rows + j]
    total = 0.0
    for node in range(n_nodes):
        total += flow[node] * arc_cost[node]
    return total / TOTAL_MASS
