"""The spanning trees of the network simplex: links, prices and pivots.

Nodes are rows 0..k-1, columns k..k+m-1 and the root k+m. Most columns are leaves. Lists of children
hold only the other nodes, so a pivot touches few of them; depth and price of a leaf column are made
from its parent's when wanted.
"""

from typing import Any

import numpy as np

from .kernels import leaf, part

# Kernels compile anew for every literal that they are called with, and for every type of integers:
# these, and the numbers of nodes, are of one type.
NONE: Any = np.int64(-1)
# Arcs that can enter the basis: from a row to a column, or from a column to the root.
ROW_ARC, MORE_TO_ROOT, LESS_TO_ROOT = np.int64(0), np.int64(1), np.int64(2)
_UNLIMITED = np.int64(1 << 62)
# A node of the tree is a row of small integers: few arrays to pass around, and all in the fastest
# cache, two rows to a line of it. `CHILDREN` counts leaves too, which the lists do not hold.
PARENT, DEPTH, CHILDREN, LISTED, FIRST, NEXT, PREVIOUS = range(7)
_ROW_SIZE = 8


@part
def empty_tree(n_nodes):
    """Return a tree of unlinked nodes."""
    tree = np.empty((n_nodes, _ROW_SIZE), np.int32)
    for node in range(n_nodes):
        for field in range(_ROW_SIZE):
            tree[node, field] = 0 if DEPTH <= field <= LISTED else NONE
    return tree


@leaf
def _list(tree, node):
    """Put a node on its parent's list of children."""
    parent = tree[node, PARENT]
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
def list_children(tree, n_rows):
    """Fill the lists of a tree, in which only parents are set."""
    for node in range(len(tree) - 1):
        tree[tree[node, PARENT], CHILDREN] += 1
    for node in range(len(tree) - 1):
        if node < n_rows or tree[node, CHILDREN] > 0:
            _list(tree, node)


@leaf
def _attach(tree, node, parent, n_rows):
    """Hang a node, which has no parent, below another one."""
    root = len(tree) - 1
    tree[node, PARENT] = parent
    tree[parent, CHILDREN] += 1
    if n_rows <= parent < root and not tree[parent, LISTED]:
        _list(tree, parent)
    if node < n_rows or tree[node, CHILDREN] > 0:
        _list(tree, node)


@leaf
def _detach(tree, node, n_rows):
    if tree[node, LISTED]:
        _unlist(tree, node)
    parent = np.int64(tree[node, PARENT])
    tree[parent, CHILDREN] -= 1
    if parent >= n_rows and tree[parent, CHILDREN] == 0 and tree[parent, LISTED]:
        _unlist(tree, parent)


@leaf
def _label(tree, price, arc_cost, node):
    """Set depth and price of a node from its parent."""
    parent = tree[node, PARENT]
    tree[node, DEPTH] = tree[parent, DEPTH] + 1
    price[node] = arc_cost[node] - price[parent]


@leaf
def label_subtree(tree, price, arc_cost, top):
    """Set depths and prices below and at `top`, of leaves only `top` itself."""
    node = top
    while True:
        _label(tree, price, arc_cost, node)
        if tree[node, FIRST] != NONE:
            node = tree[node, FIRST]
            continue
        while node != top and tree[node, NEXT] == NONE:
            node = tree[node, PARENT]
        if node == top:
            return
        node = tree[node, NEXT]


@leaf
def price_leaves(tree, price, arc_cost, n_rows):
    """Set the prices of all columns that are leaves."""
    for column in range(n_rows, len(tree) - 1):
        if not tree[column, LISTED]:
            price[column] = arc_cost[column] - price[tree[column, PARENT]]


@leaf
def fresh_price(tree, price, arc_cost, column):
    """Return the price of a column, which is made anew if it is a leaf."""
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
def pivot(
    tree, price, arc_cost, flow, amount, at_root, smallest, largest, n_rows, kind, row, column, cost
):
    """Let an arc enter the basis: push mass around its cycle, and remove the blocking arc.

    Among the arcs that block, the last one along the cycle (from its apex, in the direction of
    the push) leaves: this keeps the tree strongly feasible, which excludes cycling.
    """
    root = len(tree) - 1
    slot = column - n_rows
    fresh_price(tree, price, arc_cost, column)
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
        if tree[up, DEPTH] >= tree[down, DEPTH]:
            parent = tree[up, PARENT]
            if up >= n_rows:
                if parent == root:
                    here = largest[up - n_rows] - amount[up - n_rows]
                else:
                    here = flow[up]
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
    if mass > 0:
        _push(tree, flow, amount, surplus, apex, n_rows, mass)
        _push(tree, flow, amount, deficit, apex, n_rows, -mass)
        if kind == MORE_TO_ROOT:
            amount[slot] += mass
        elif kind == LESS_TO_ROOT:
            amount[slot] -= mass
    if leaving == NONE:
        return

    if tree[leaving, PARENT] == root:
        at_root[leaving - n_rows] = False
    if kind != ROW_ARC:
        at_root[slot] = True
    # The path from the moving end to the leaving arc is hung upside down.
    node, parent = moving_end, other_end
    while True:
        old_parent, old_flow, old_cost = np.int64(tree[node, PARENT]), flow[node], arc_cost[node]
        _detach(tree, node, n_rows)
        _attach(tree, node, parent, n_rows)
        flow[node] = mass
        arc_cost[node] = cost
        if node == leaving:
            break
        node, parent, mass, cost = old_parent, node, old_flow, old_cost
    label_subtree(tree, price, arc_cost, moving_end)
