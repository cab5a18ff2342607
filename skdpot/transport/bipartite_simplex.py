"""The network simplex for flows from targets to sources whose sums are within bounds.

Every target has a supply, all of which goes to sources along edges or straight to a root; sources
send on to the root what they get. Straight to the root it costs nothing up to a kink, and beyond
it the price of a shortage; what a source sends earns as much up to its kink. So for all bounds,
nothing moves at first, which is a feasible tree.

Masses and costs are integers, so small that all sums are exact. The trees are strongly feasible
(W. H. Cunningham, "A network simplex method", 1976), which excludes cycling: the simplex ends for
all data.
"""

import math
from typing import Any

import numpy as np

from .kernels import kernel, part, run

# Kernels compile anew for every type of integers that they are called with.
_NONE: Any = np.int64(-1)
_EDGE, _MORE, _LESS = np.int64(0), np.int64(1), np.int64(2)
UNLIMITED = np.int64(1 << 62)
# Sums of two prices and of a cost that forbids an edge are below 2**63.
LARGEST_PRICE, FORBIDDEN = 1 << 60, np.int64(1 << 61)
# A block has 2 sqrt(n) of n edges, and as many for each node whose price changed in one of the last
# pivots (measured).
_LOOKS_PER_SHIFT, _SPAN = 5, 32
# Number of edges without gaps between their neighbours from which on so many are checked at once.
_SHORT_ROW, _LOOKS_IN_ROW = 8, 4
# Of the interpreter: looks at an edge, and at a node as at so many edges.
_SECONDS, _LOOKS = 1e-5, 50
# A node of the tree is a row of small integers. `ARC` is the edge to the parent or, below the root,
# `_LOW` or `_HIGH`: the part of the node's arc, below or above its kink, that is in the tree.
PARENT, DEPTH, ARC, FIRST, NEXT, PREVIOUS = range(6)
_ROW_SIZE = 8
_LOW, _HIGH = np.int64(-1), np.int64(-2)


class BipartiteSimplex:
    """A network simplex. Each solution starts from the tree of the last one.

    Parameters
    ----------
    indptr, neighbours : ndarray
        The edges of the targets, as of a `Side`.
    supplies : ndarray of int64, shape (n_nodes,)
        The first amount of every node: of targets, and then of sources, which have nothing.
    kinks, limits : ndarray of int64, shape (n_nodes,)
        The largest amounts that a node sends to the root at its lower cost, and in total.
    """

    def __init__(
        self,
        indptr: np.ndarray,
        neighbours: np.ndarray,
        supplies: np.ndarray,
        kinks: np.ndarray,
        limits: np.ndarray,
    ) -> None:
        self._edges = indptr, neighbours.astype(np.int32)
        self._bounds = kinks, limits
        self.to_root = supplies.copy()
        n_nodes = len(kinks)
        # All nodes hang from the root.
        self._tree = tree = np.full((n_nodes + 1, _ROW_SIZE), _NONE, np.int32)
        tree[:n_nodes, PARENT], tree[:, DEPTH] = n_nodes, 1
        tree[:n_nodes, ARC] = np.where(supplies < kinks, _LOW, _HIGH)
        tree[: n_nodes - 1, NEXT] = np.arange(1, n_nodes)
        tree[:n_nodes, PREVIOUS] = np.arange(-1, n_nodes - 1)
        tree[n_nodes, DEPTH], tree[n_nodes, FIRST] = 0, 0 if n_nodes else _NONE
        self._flow, self._price = np.zeros((2, n_nodes + 1), np.int64)

    def solve(self, costs: np.ndarray, low_costs: np.ndarray, high_costs: np.ndarray) -> None:
        """Find the cheapest flow for the costs of edges and of arcs to the root.

        Parameters
        ----------
        costs : ndarray of int64, shape (n_edges,)
            Those of a path, and prices of shortages, are 2**60 at most; or `FORBIDDEN`.
        low_costs, high_costs : ndarray of int64, shape (n_nodes,)
            Costs of the arcs to the root, up to the kink and beyond it.
        """
        n_edges = len(costs)
        least_block = max(math.isqrt(4 * n_edges), 1)
        seconds = _SECONDS * (n_edges + _LOOKS * len(self._price))
        run(
            _optimise, seconds, *self._edges, costs, *self._bounds, low_costs, high_costs,
            self._tree, self._flow, self.to_root, self._price, least_block,
        )  # fmt: skip

    @property
    def prices(self) -> np.ndarray:
        """The last prices of the nodes."""
        return self._price[:-1]

    def flow(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the edges of the tree, and their flows."""
        arcs = self._tree[:-1, ARC]
        nodes = np.flatnonzero(arcs >= 0)
        return arcs[nodes], self._flow[nodes]


@part
def _room(tree, flow, amount, kinks, limits, n_targets, node, is_up):
    """Return how much more a node's arc to its parent can take, up to the root or down from it."""
    root = len(tree) - 1
    if tree[node, PARENT] == root:
        is_high = tree[node, ARC] == _HIGH
        if is_up:
            return (limits[node] if is_high else kinks[node]) - amount[node]
        return amount[node] - (kinks[node] if is_high else 0)
    return UNLIMITED if (node < n_targets) == is_up else flow[node]


@part
def _push(tree, flow, amount, n_targets, node, apex, mass):
    """Send `mass` (negative: take it back) from `node` up the tree to `apex`."""
    root = len(tree) - 1
    while node != apex:
        parent = np.int64(tree[node, PARENT])
        if parent == root:
            amount[node] += mass
        elif node < n_targets:
            flow[node] += mass
        else:
            flow[node] -= mass
        node = parent


@part
def _hang(tree, node, parent):
    """Hang a node, which is on no list of children, below another one."""
    head = tree[parent, FIRST]
    tree[node, PARENT] = parent
    tree[node, NEXT] = head
    tree[node, PREVIOUS] = _NONE
    if head != _NONE:
        tree[head, PREVIOUS] = node
    tree[parent, FIRST] = node


@part
def _cut(tree, node):
    """Take a node off its parent's list of children."""
    before, after = tree[node, PREVIOUS], tree[node, NEXT]
    if before != _NONE:
        tree[before, NEXT] = after
    else:
        tree[tree[node, PARENT], FIRST] = after
    if after != _NONE:
        tree[after, PREVIOUS] = before


@part
def _shift(tree, price, top, change):
    """Add to the prices of all nodes below and at `top`, and set their depths; count them."""
    node, depth, count = top, tree[tree[top, PARENT], DEPTH] + 1, 0
    while True:
        tree[node, DEPTH] = depth
        price[node] += change
        count += 1
        if tree[node, FIRST] != _NONE:
            node = np.int64(tree[node, FIRST])
            depth += 1
            continue
        while node != top and tree[node, NEXT] == _NONE:
            node = np.int64(tree[node, PARENT])
            depth -= 1
        if node == top:
            return count
        node = np.int64(tree[node, NEXT])


@part
def _pivot(tree, flow, amount, price, kinks, limits, n_targets, kind, tail, head, arc, reduced):
    """Let an arc of negative reduced cost enter the basis: push mass around its cycle.

    Among the arcs that block, the last one along the cycle (from its apex, in the direction of
    the push) leaves. Returns how many nodes got another price.
    """
    room = UNLIMITED
    if kind == _MORE:
        room = (kinks[tail] if amount[tail] < kinks[tail] else limits[tail]) - amount[tail]
    elif kind == _LESS:
        room = amount[head] - (kinks[head] if amount[head] > kinks[head] else 0)
    up, down = head, tail
    up_room, up_node = UNLIMITED, _NONE
    down_room, down_node = UNLIMITED, _NONE
    while up != down:
        if tree[up, DEPTH] >= tree[down, DEPTH]:
            room_here = _room(tree, flow, amount, kinks, limits, n_targets, up, True)
            if room_here <= up_room:
                up_room, up_node = room_here, up
            up = np.int64(tree[up, PARENT])
        else:
            room_here = _room(tree, flow, amount, kinks, limits, n_targets, down, False)
            if room_here < down_room:
                down_room, down_node = room_here, down
            down = np.int64(tree[down, PARENT])
    apex = up
    mass, leaving, moving, new_parent = room, _NONE, _NONE, _NONE
    if down_room < mass:
        mass, leaving, moving, new_parent = down_room, down_node, tail, head
    if up_room <= mass:
        mass, leaving, moving, new_parent = up_room, up_node, head, tail
    if kind == _MORE:
        part_of_arc = _LOW if amount[tail] < kinks[tail] else _HIGH
    else:
        part_of_arc = _HIGH if amount[head] > kinks[head] else _LOW
    if mass > 0:
        _push(tree, flow, amount, n_targets, head, apex, mass)
        _push(tree, flow, amount, n_targets, tail, apex, -mass)
        if kind == _MORE:
            amount[tail] += mass
        elif kind == _LESS:
            amount[head] -= mass
    if leaving == _NONE:
        return 0
    if kind != _EDGE:
        arc = part_of_arc
    # The path from the moving end to the leaving arc is hung upside down.
    node, parent = moving, new_parent
    while True:
        old_parent, old_arc, old_flow = np.int64(tree[node, PARENT]), tree[node, ARC], flow[node]
        _cut(tree, node)
        _hang(tree, node, parent)
        tree[node, ARC], flow[node] = arc, mass
        if node == leaving:
            break
        node, parent, arc, mass = old_parent, node, np.int64(old_arc), old_flow
    return _shift(tree, price, moving, -reduced if moving == tail else reduced)


@part
def _price_tree(tree, price, costs, low_costs, high_costs, n_targets):
    """Set the prices of all nodes from the costs of the arcs of the tree."""
    root = node = np.int64(len(tree) - 1)
    price[root] = 0
    while True:
        if node != root:
            parent, arc = tree[node, PARENT], tree[node, ARC]
            if parent == root:
                price[node] = -(high_costs[node] if arc == _HIGH else low_costs[node])
            elif node < n_targets:
                price[node] = price[parent] - costs[arc]
            else:
                price[node] = price[parent] + costs[arc]
        if tree[node, FIRST] != _NONE:
            node = np.int64(tree[node, FIRST])
            continue
        while node != root and tree[node, NEXT] == _NONE:
            node = np.int64(tree[node, PARENT])
        if node == root:
            return
        node = np.int64(tree[node, NEXT])


@part
def _best_in_row(costs, prices, best):
    """Return the least cost beyond a price, if below `best`, and where: this is vectorised."""
    smallest, place = best, _NONE
    for k in range(len(costs)):
        smallest = min(smallest, costs[k] - prices[k])
    if smallest < best:
        place = np.int64(0)
        while costs[place] - prices[place] != smallest:
            place += 1
    return smallest, place


@kernel
def _optimise(
    indptr, neighbours, costs, kinks, limits, low_costs, high_costs, tree, flow, amount, price,
    least_block,
):  # fmt: skip
    """Pivot until no arc has a negative reduced cost.

    Targets are checked one after the other until a block of edges is complete: the best of their
    arcs enters. The more work the last pivots were, the larger is a block.
    """
    n_targets, n_nodes = len(indptr) - 1, len(kinks)
    root = n_nodes
    _price_tree(tree, price, costs, low_costs, high_costs, n_targets)
    source_prices = price[n_targets:]
    node = 0
    n_quiet = 0
    shifted = 0
    while n_quiet < n_nodes:
        best, kind, tail, head, arc = np.int64(0), _EDGE, _NONE, _NONE, _NONE
        n_seen, block = 0, least_block + _LOOKS_PER_SHIFT * shifted // _SPAN
        while n_seen < block and n_quiet < n_nodes:
            here = price[node]
            if node < n_targets:
                first, last = indptr[node], indptr[node + 1]
                is_whole = False
                if last - first > _SHORT_ROW:
                    start, end = np.int64(neighbours[first]), np.int64(neighbours[last - 1]) + 1
                    # Neighbours ascend: where none is missing, neither is a price.
                    is_whole = end - start == last - first
                if is_whole:
                    prices = source_prices[start:end]
                    value, k = _best_in_row(costs[first:last], prices, best - here)
                    if k >= 0:
                        best, kind, tail, arc = value + here, _EDGE, node, first + k
                    n_seen += (last - first) // _LOOKS_IN_ROW
                else:
                    for k in range(first, last):
                        value = costs[k] + here - source_prices[neighbours[k]]
                        if value < best:
                            best, kind, tail, arc = value, _EDGE, node, k
                    n_seen += last - first
            if tree[node, PARENT] != root:
                has = amount[node]
                if has < limits[node]:
                    value = here + (low_costs[node] if has < kinks[node] else high_costs[node])
                    if value < best:
                        best, kind, tail, head = value, _MORE, node, root
                if has > 0:
                    value = -here - (high_costs[node] if has > kinks[node] else low_costs[node])
                    if value < best:
                        best, kind, tail, head = value, _LESS, root, node
            n_seen += 1
            n_quiet += 1
            node = node + 1 if node + 1 < n_nodes else 0
        if best < 0:
            if kind == _EDGE:
                head = n_targets + neighbours[arc]
            shifted -= shifted // _SPAN
            shifted += _pivot(
                tree, flow, amount, price, kinks, limits, n_targets, kind, tail, head, arc, best
            )
            n_quiet = 0
