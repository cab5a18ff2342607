"""The network simplex of one user's projection, and of transport between the same masses again.

The linear program is a flow problem: row i sends ``P_i`` to the columns at cost ``C_ij``, and
column j sends on to a root between ``s_j`` and ``E s_j`` at no cost. Masses are integers (2**52 in
total). So flows are exact, ties are ties, and the strongly feasible trees kept below exclude
cycling. A basis is a tree that hangs from the root: rows 0..k-1, columns k..k+m-1, root k+m; a
column whose arc to the root is not in the tree sends its smallest or its largest amount. Most
columns are leaves. Lists of children hold only the other nodes, so a pivot touches few of them;
depth and price of a leaf column are made from its parent's when wanted.

The start comes from an entropic solution. Columns that it has at a bound are served first, along
the arcs of smallest reduced cost. The rest of the rows goes to the other columns, each with its own
tree: few pivots are left. Where that is not feasible, columns are filled in the order of their
prices.
"""

from typing import Any

import numpy as np

from .kernels import kernel, leaf, lesser, part
from .polytope import any_below, c_transform

# Kernels compile anew for every literal that they are called with, and for every type of integers:
# these, and the numbers of nodes, are of one type.
NONE: Any = np.int64(-1)
# Arcs that can enter the basis: from a row to a column, or from a column to the root.
ROW_ARC, MORE_TO_ROOT, LESS_TO_ROOT = np.int64(0), np.int64(1), np.int64(2)
_UNLIMITED = np.int64(1 << 62)
# A node of the tree is a row of small integers: few arrays to pass around, and all in the fastest
# cache, two rows to a line of it. `CHILDREN` counts leaves too, which the lists do not hold.
PARENT, DEPTH, CHILDREN, LISTED, FIRST, NEXT, PREVIOUS = range(7)


TOTAL_MASS = 1 << 52
# Prices grow with the number of nodes: costs of this size, divided by that number, leave all sums
# of prices below 2**53.
LARGEST_COST = 2.0**50


@part
def empty_tree(n_nodes):
    """Return a tree of unlinked nodes."""
    # Seven fields, and room to be in one half of a cache line.
    tree = np.full((n_nodes, 8), NONE, np.int32)
    # Depths and numbers of children are counted from 0; all links are to no node.
    tree[:, DEPTH : LISTED + 1] = 0
    return tree


@leaf
def _list(tree, node):
    """Put a node on its parent's list of children."""
    parent = tree[node, PARENT]
    # A new child goes first, which needs no search for the end of the list.
    head = tree[parent, FIRST]
    tree[node, NEXT] = head
    tree[node, PREVIOUS] = NONE
    if head != NONE:
        tree[head, PREVIOUS] = node
    tree[parent, FIRST] = node
    tree[node, LISTED] = 1


@leaf
def _unlist(tree, node):
    before = tree[node, PREVIOUS]
    after = tree[node, NEXT]
    if before != NONE:
        tree[before, NEXT] = after
    else:
        tree[tree[node, PARENT], FIRST] = after
    if after != NONE:
        tree[after, PREVIOUS] = before
    tree[node, LISTED] = 0


@leaf
def _attach(tree, node, parent, n_rows):
    """Hang a node, which has no parent, below another one."""
    root = len(tree) - 1
    tree[node, PARENT] = parent
    tree[parent, CHILDREN] += 1
    # A column with a child is no leaf any more: walks from above must find it.
    if n_rows <= parent < root and not tree[parent, LISTED]:
        _list(tree, parent)
    if node < n_rows or tree[node, CHILDREN] > 0:
        _list(tree, node)


@leaf
def _detach(tree, node, n_rows):
    if tree[node, LISTED]:
        _unlist(tree, node)
    # The tree has 32-bit integers, and kernels compile anew for every type.
    parent = np.int64(tree[node, PARENT])
    tree[parent, CHILDREN] -= 1
    if parent >= n_rows and tree[parent, CHILDREN] == 0 and tree[parent, LISTED]:
        _unlist(tree, parent)


@leaf
def _label(tree, price, arc_cost, node):
    """Set depth and price of a node from its parent."""
    parent = tree[node, PARENT]
    tree[node, DEPTH] = tree[parent, DEPTH] + 1
    # On an arc of the tree, the prices of row and column have the cost as their sum.
    price[node] = arc_cost[node] - price[parent]


@leaf
def label_subtree(tree, price, arc_cost, top):
    """Set depths and prices below and at `top`, of leaves only `top` itself."""
    node = top
    while True:
        _label(tree, price, arc_cost, node)
        # Down to the first child, or else on to the next node on the way up: no stack is needed.
        if tree[node, FIRST] != NONE:
            node = tree[node, FIRST]
            continue
        while node != top and tree[node, NEXT] == NONE:
            node = tree[node, PARENT]
        if node == top:
            return
        node = tree[node, NEXT]


@leaf
def fresh_price(tree, price, arc_cost, column):
    """Return the price of a column, which is made anew if it is a leaf."""
    # Leaf columns are in no list, so no walk has reached them.
    if not tree[column, LISTED]:
        _label(tree, price, arc_cost, column)
    return price[column]


@leaf
def _push(tree, flow, amount, node, apex, n_rows, mass):
    """Send `mass` (negative: take it back) from `node` up the tree to `apex`."""
    root = len(tree) - 1
    while node != apex:
        parent = tree[node, PARENT]
        if node < n_rows:
            flow[node] += mass
        elif parent == root:
            amount[node - n_rows] += mass
        else:
            flow[node] -= mass
        node = parent


@leaf
def pivot(basis, n_rows, kind, row, column, cost):
    """Let an arc enter the basis: push mass around its cycle, and remove the blocking arc.

    The walk to the apex compares depths, so that of the column must be fresh.

    Among the arcs that block, the last one along the cycle (from its apex, in the direction of
    the push) leaves: this keeps the tree strongly feasible, which excludes cycling.
    """
    tree, price, arc_cost, flow, amount, at_root, smallest, largest = basis
    root = len(tree) - 1
    slot = column - n_rows
    if kind == ROW_ARC:
        surplus, deficit, room = column, row, _UNLIMITED
    elif kind == MORE_TO_ROOT:
        surplus, deficit, room = root, column, largest[slot] - amount[slot]
    else:
        surplus, deficit, room = column, root, amount[slot] - smallest[slot]

    up, down = surplus, deficit
    up_room, up_node = _UNLIMITED, NONE
    down_room, down_node = _UNLIMITED, NONE
    while up != down:
        # The deeper end moves, so both meet at the lowest common ancestor.
        if tree[up, DEPTH] >= tree[down, DEPTH]:
            parent = tree[up, PARENT]
            if up >= n_rows:
                if parent == root:
                    here = largest[up - n_rows] - amount[up - n_rows]
                else:
                    here = flow[up]
                # Ties go to the last arc here, and to the first one on the other side: that is the
                # rule that keeps the tree strongly feasible.
                if here <= up_room:
                    up_room, up_node = here, up
            up = parent
        else:
            parent = tree[down, PARENT]
            here = _UNLIMITED
            if down < n_rows:
                here = flow[down]
            elif parent == root:
                here = amount[down - n_rows] - smallest[down - n_rows]
            if here < down_room:
                down_room, down_node = here, down
            down = parent
    apex = up

    mass, leaving = room, NONE
    moving_end, other_end = NONE, NONE
    if down_room < mass:
        mass, leaving, moving_end, other_end = down_room, down_node, deficit, surplus
    if up_room <= mass:
        mass, leaving, moving_end, other_end = up_room, up_node, surplus, deficit
    # A degenerate pivot moves no mass, but it still changes the tree.
    if mass > 0:
        _push(tree, flow, amount, surplus, apex, n_rows, mass)
        _push(tree, flow, amount, deficit, apex, n_rows, -mass)
        if kind == MORE_TO_ROOT:
            amount[slot] += mass
        elif kind == LESS_TO_ROOT:
            amount[slot] -= mass
    # The entering arc itself was the first to block: it goes to its other bound, and the tree
    # stays.
    if leaving == NONE:
        return

    # The flags tell which columns hang from the root, before parents change.
    if tree[leaving, PARENT] == root:
        at_root[leaving - n_rows] = False
    if kind != ROW_ARC:
        at_root[slot] = True
    _turn_over(tree, flow, arc_cost, moving_end, other_end, leaving, mass, cost, n_rows)
    # All that hangs below the moved end has new depths and prices, and nothing else does.
    label_subtree(tree, price, arc_cost, moving_end)


@leaf
def _turn_over(tree, flow, arc_cost, node, parent, leaving, mass, cost, n_rows):
    """Hang the path from a node up to the leaving arc upside down, below a new parent."""
    while True:
        old_parent, old_flow, old_cost = np.int64(tree[node, PARENT]), flow[node], arc_cost[node]
        _detach(tree, node, n_rows)
        _attach(tree, node, parent, n_rows)
        flow[node] = mass
        arc_cost[node] = cost
        if node == leaving:
            return
        node, parent, mass, cost = old_parent, node, old_flow, old_cost


@part
def integer_masses(weights):
    """Return the weights (sum 1) as integers with sum 2**52; the largest takes the remainder."""
    # Rounded down; the heaviest takes the remainder, and it matters least there.
    masses = (weights * TOTAL_MASS).astype(np.int64)
    masses[np.argmax(weights)] += TOTAL_MASS - masses.sum()
    return masses


def integer_bounds(lower, upper):
    """Return the column bounds as integers, opened by one unit so that they always leave room."""
    # Without that unit, rounding could leave bounds with no flow between them.
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
    for j in np.argsort(column_prices, kind="mergesort"):
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
    # Costs among which candidates are looked for at once: whole vectors of the processor.
    looks = 32
    # The order need only be about right, so a sort by buckets will do.
    n_buckets = 128
    n_rows, n_columns = len(used), len(column_prices)
    capacity = n_rows * n_columns
    # Of unsigned indices, compiled code need not ask whether they count from the end.
    rows = np.empty(capacity, np.uint32)
    columns = np.empty(capacity, np.uint32)
    excess = np.empty(capacity)
    best, second = np.full(n_columns, width), np.full(n_columns, width)
    size = 0
    for i in range(n_rows):
        row_cost = cost[used[i]]
        price = row_prices[i]
        for start in range(0, n_columns, looks):
            end = min(start + looks, n_columns)
            # Most stretches have no candidate, and this tells so in a few vector instructions.
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
    starts = np.zeros(n_buckets + 2, np.int64)
    # Without compiled code a division by zero is an error: if all costs are equal, there is no arc.
    scale = n_buckets / (2 * width) if width > 0 else 0.0
    for a in range(size):
        j = columns[a]
        # Regret is at most the width, so levels are at least 0 but for rounding.
        level = (excess[a] - (second[j] - best[j]) + width) * scale
        buckets[a] = np.int32(min(max(level, 0.0), n_buckets))
        starts[buckets[a] + 1] += 1
    for b in range(n_buckets + 1):
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
    # Whichever is exhausted gets no further arc, so that arcs cannot close a cycle.
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
    # The masses of the rows are needed again if this attempt is not feasible.
    supply = supply.copy()
    demand = amount.copy()
    parents = np.full(n_rows + n_columns, NONE)
    masses = np.zeros(n_rows + n_columns, np.int64)
    # Columns at a bound first: they must get exactly that, and the others can take the rest.
    for turn in range(2):
        for a in range(len(candidate_rows)):
            row, column = np.int64(candidate_rows[a]), np.int64(candidate_columns[a])
            if min(supply[row], demand[column]) > 0 and is_free[column] == turn:
                serve(row, column, supply, demand, parents, masses)
        if turn:
            break
        for j in range(n_columns):
            # Candidates were not enough: any row with a rest will do, the cheapest first.
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
        # What is left of the rows goes to columns that may take more.
        while supply[i] > 0:
            best = NONE
            for j in range(n_columns):
                if is_free[j] and demand[j] > 0:
                    if best == NONE or cost[used[i], j] < cost[used[i], best]:
                        best = j
            # No free column has room. The amounts that come out are too small, which the caller
            # sees.
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
    # To find which columns have an amount between their bounds.
    attempts = 4
    for j in range(len(amount)):
        share = np.int64(shares[j] * TOTAL_MASS)
        # A share at a bound of the entropic solution is probably at it in the best one.
        is_free[j] = smallest[j] < share < largest[j]
        amount[j] = min(max(share, smallest[j]), largest[j])
    attempt = 0
    while True:
        lowest, highest = np.int64(0), np.int64(0)
        for j in range(len(amount)):
            lowest += smallest[j] if is_free[j] else amount[j]
            if is_free[j]:
                amount[j] = largest[j]
            highest += amount[j]
        attempt += 1
        # If nothing is free, the amounts add up to the total, and any forest of them is feasible.
        is_last = attempt > attempts or not lowest <= TOTAL_MASS <= highest
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
        # A strongly feasible tree needs room towards the root on the arc that carries it.
        if amount[j] < largest[j]:
            chosen = j
            if amount[j] > smallest[j]:
                break
    return chosen


@part
def connect_forest(n_rows, hub, tree, flow, at_root, parents, masses):
    """Turn the forest into a strongly feasible spanning tree that hangs from the root.

    Trees hang by the column `hub`, by another column that is their top, or else from the hub: by
    an empty arc of a row, which points to the root.
    """
    root = len(tree) - 1
    # The hub becomes the top of its tree.
    # Turning the path over keeps its masses, as each belongs to an arc and not to a node.
    below, parent, mass = np.int64(hub), parents[hub], masses[hub]
    parents[hub] = NONE
    while parent != NONE:
        further, next_mass = parents[parent], masses[parent]
        parents[parent], masses[parent] = below, mass
        below, parent, mass = parent, further, next_mass
    for node in range(root):
        parent = parents[node]
        if parent != NONE:
            flow[node] = masses[node]
        elif node >= n_rows:
            parent = np.int64(root)
            at_root[node - n_rows] = True
        else:
            # An exhausted row without an arc: an arc of no flow joins it.
            parent = np.int64(hub)
        tree[node, PARENT] = parent
        tree[parent, CHILDREN] += 1
    # Numbers of children decide which columns are listed.
    for node in range(root):
        if node < n_rows or tree[node, CHILDREN] > 0:
            _list(tree, node)


@leaf
def _price_tree(cost, rows, tree, price, arc_cost, at_root):
    """Set the costs of all arcs of a tree, and the prices that they lead to."""
    n_rows, root = len(rows), len(tree) - 1
    for node in range(root):
        parent = np.int64(tree[node, PARENT])
        if node < n_rows:
            arc_cost[node] = cost[rows[node], parent - n_rows]
        elif parent < root:
            arc_cost[node] = cost[rows[parent], node - n_rows]
        else:
            arc_cost[node] = 0.0
    # Every tree hangs from the root by a column, whose price is 0.
    for j in range(len(at_root)):
        if at_root[j]:
            label_subtree(tree, price, arc_cost, n_rows + j)


@leaf
def _pivot_to_root(basis, n_rows, tolerance):
    """Price the columns, and pivot where the root should get more or less; return how often.

    Prices of leaves are set here, once a round, and may be stale after a pivot.
    """
    tree, price, arc_cost, _, amount, at_root, smallest, largest = basis
    pivots = 0
    for j in range(len(amount)):
        column = n_rows + j
        value = fresh_price(tree, price, arc_cost, column)
        if at_root[j]:
            continue
        if value < -tolerance and amount[j] < largest[j]:
            kind = MORE_TO_ROOT
        elif value > tolerance and amount[j] > smallest[j]:
            kind = LESS_TO_ROOT
        else:
            continue
        pivot(basis, n_rows, kind, NONE, column, 0.0)
        pivots += 1
    return pivots


@leaf
def _pivot_on(basis, n_rows, row, j, cost, tolerance):
    """Pivot on the arc of a row and a column if it is still violated; return how often: 0 or 1."""
    tree, price, arc_cost, _, _, _, _, _ = basis
    fresh = fresh_price(tree, price, arc_cost, n_rows + j)
    if cost - price[row] - fresh >= -tolerance:
        return 0
    pivot(basis, n_rows, ROW_ARC, row, n_rows + j, cost)
    return 1


@leaf
def _optimise(cost, used, basis, rows, columns, costs, size, tolerance):
    """Price a tree, and pivot until no arc is violated, the candidates first.

    The number of pivots is bounded.

    When no candidate is violated any more, other violated arcs become candidates. Stale prices may
    hide violated arcs until the next round.
    """
    # The most violated arc of each block of this size enters.
    pricing_block = 20
    # Prices are rounded, so an arc may stay violated for ever.
    pivots_per_node = 200
    tree, price, arc_cost, _, amount, at_root, _, _ = basis
    n_rows, n_columns = len(used), len(amount)
    _price_tree(cost, used, tree, price, arc_cost, at_root)
    for a in range(size):
        # Costs of candidates in a row of memory, as they are read again and again.
        costs[a] = cost[used[rows[a]], columns[a]]
    column_prices = price[n_rows : n_rows + n_columns]
    budget = pivots_per_node * len(tree)
    while budget > 0:
        pivots = _pivot_to_root(basis, n_rows, tolerance)
        for start in range(0, size, pricing_block):
            worst, worst_value = NONE, -tolerance
            for a in range(start, min(start + pricing_block, size)):
                value = costs[a] - price[rows[a]] - column_prices[columns[a]]
                if value < worst_value:
                    worst, worst_value = a, value
            if worst != NONE:
                row, column = np.int64(rows[worst]), np.int64(columns[worst])
                pivots += _pivot_on(basis, n_rows, row, column, costs[worst], tolerance)
        # No candidate is violated: the rows are looked at as a whole, which takes longer.
        if pivots == 0:
            for i in range(n_rows):
                row_cost = cost[used[i]]
                if not any_below(row_cost, column_prices, price[i] - tolerance):
                    continue
                best, min_value = 0, np.inf
                for j in range(n_columns):
                    value = row_cost[j] - column_prices[j]
                    # Further violated arcs of the row are candidates from now on.
                    if value - price[i] < -tolerance and size < len(rows):
                        rows[size], columns[size], costs[size] = i, j, row_cost[j]
                        size += 1
                    if value < min_value:
                        best, min_value = j, value
                pivots += _pivot_on(basis, n_rows, i, best, row_cost[best], tolerance)
        # No arc at all is violated: the flow is the cheapest.
        if pivots == 0:
            break
        budget -= pivots
    for j in range(n_columns):
        fresh_price(tree, price, arc_cost, n_rows + j)


@part
def network_projection(
    cost, rows, weights, smallest, largest, row_prices, column_prices, reg, magnitude, nu, potential
):
    """Project one user's distribution exactly, from the prices of an entropic solution.

    `nu` has the first amounts of columns, and receives the projected distribution (up to 2**-52);
    `potential` receives the columns' dual prices. Returns the cost of the flow.
    """
    # Arcs whose reduced cost under the entropic prices is below this many units of the
    # regularisation are tried first.
    candidate_width = 4.0
    n_rows, n_columns = len(rows), len(nu)
    n_nodes = n_rows + n_columns + 1
    tree = empty_tree(n_nodes)
    # The flow on each node's arc to its parent, without the arcs to the root.
    flow = np.zeros(n_nodes, np.int64)
    price, arc_cost = np.zeros(n_nodes), np.zeros(n_nodes)
    # The flow of each column to the root, and whether it is in the tree.
    amount, at_root = np.zeros(n_columns, np.int64), np.zeros(n_columns, np.bool_)
    supply = integer_masses(weights)
    arc_rows, arc_columns, size = _candidate_arcs(
        cost, rows, row_prices, column_prices, candidate_width * reg
    )
    is_free = np.empty(n_columns, np.bool_)
    forest = _first_forest(
        cost, rows, supply, row_prices, column_prices, smallest, largest, nu, amount, is_free,
        arc_rows[:size], arc_columns,
    )  # fmt: skip
    # Of all columns, this one hangs from the root whatever the forest is.
    hub = n_rows + _root_column(smallest, largest, amount)
    connect_forest(n_rows, hub, tree, flow, at_root, forest[0], forest[1])
    basis = (tree, price, arc_cost, flow, amount, at_root, smallest, largest)
    costs = np.empty(len(arc_rows))
    _optimise(cost, rows, basis, arc_rows, arc_columns, costs, size, 1e-12 * magnitude)
    for j in range(n_columns):
        # An exact quotient: the mass is an integer below 2**53, and the total a power of two.
        nu[j] = amount[j] / TOTAL_MASS
        potential[j] = price[n_rows + j]
    total = 0.0
    for node in range(n_nodes):
        total += flow[node] * arc_cost[node]
    return total / TOTAL_MASS


@kernel
def transport_again(cost, supply, amount, is_first, tree, flow, at_root, arc_cost, price):
    """Find the cheapest flow between the same positive masses, from the tree of the last costs.

    Costs are integers from 0 to ``LARGEST_COST / (n + m + 2)``, so that all prices are exact, too.
    Columns send on what they get: no arc to the root but that of the first column is ever in the
    tree.
    """
    # Of the largest cost: the width of candidates without an entropic solution (the fastest of
    # 1/1000 to 1/6, for two clouds of 1000 points).
    first_width = 1.0 / 24.0
    n_rows, n_columns = cost.shape
    rows = np.arange(n_rows)
    arc_rows, arc_columns = np.empty(cost.size, np.uint32), np.empty(cost.size, np.uint32)
    size = 0
    if is_first:
        row_prices, column_prices, zeros = np.empty(n_rows), np.empty(n_columns), price[n_rows:-1]
        # Without prices of an entropic solution, those that answer zeros tell which arcs are cheap.
        c_transform(cost, rows, row_prices, zeros, row_prices, column_prices)
        arc_rows, arc_columns, size = _candidate_arcs(
            cost, rows, row_prices, column_prices, first_width * cost.max()
        )
        rest, is_free = amount.copy(), np.zeros(n_columns, np.bool_)
        forest = _greedy_forest(
            cost, rows, supply, row_prices, rest, is_free, arc_rows[:size], arc_columns
        )
        connect_forest(n_rows, np.int64(n_rows), tree, flow, at_root, forest[0], forest[1])
    # The flow of the last tree is still feasible, since masses are the same: only prices change.
    basis = (tree, price, arc_cost, flow, amount, at_root, amount, amount)
    _optimise(cost, rows, basis, arc_rows, arc_columns, np.empty(cost.size), size, 0.5)
