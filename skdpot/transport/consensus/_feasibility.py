"""Whether a network has a plan at all, and which nodes are to blame if it has none.

A network has a plan if and only if some flow serves the least demands of all targets within the
capacities of the sources, and some other flow the least gifts of all sources within the capacities
of the targets: by Hoffman's circulation theorem every cut that no circulation passes is a set of
nodes of one side that must have more than all its neighbours may give. A maximum flow finds it.
"""

import math

import numpy as np
from numba import njit

from ._network import BipartiteNetwork, Side

# Of the largest total: what bounds that should agree may differ by.
_TOLERANCE = 1e-12
_LARGEST_TOTAL = 60
_NAMED = 10


def check_feasible(network: BipartiteNetwork) -> None:
    """Raise an error that names the offending nodes if a network has no feasible plan.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.

    Raises
    ------
    ValueError
        If some nodes must have more than all their neighbours may give (or take). Differences of
        less than 1e-12 of the total are taken for rounding.

    Examples
    --------
    >>> from skdpot.transport.consensus import check_feasible, make_network
    >>> check_feasible(make_network([[1, 0], [1, 1]], [(2, 3), (0, 1)], (0, 2)))
    >>> check_feasible(make_network([[1, 0], [1, 1]], [(3, 3), (0, 1)], (0, 2)))
    Traceback (most recent call last):
    ...
    ValueError: The network has no feasible plan: targets [0] must receive at least 3 in all, but
    their neighbours, sources [0], can give at most 2.
    """
    pairs = (
        (network.targets, network.sources, "targets", "sources", "receive", "give"),
        (network.sources, network.targets, "sources", "targets", "give", "receive"),
    )
    for needy, giving, names, others, verb, other_verb in pairs:
        nodes = deficient_nodes(needy, giving)
        if not len(nodes):
            continue
        neighbours = _neighbours(needy, nodes)
        raise ValueError(
            f"The network has no feasible plan: {names} {_names(nodes)} must {verb} at least "
            f"{math.fsum(needy.lower[nodes]):.10g} in all, but their neighbours, {others} "
            f"{_names(neighbours)}, can {other_verb} at most "
            f"{math.fsum(giving.upper[neighbours]):.10g}."
        )


def deficient_nodes(needy: Side, giving: Side) -> np.ndarray:
    """Return nodes that must have more than their neighbours may give, or none."""
    wanting = np.flatnonzero(needy.lower > 0)
    alone = wanting[needy.degrees[wanting] == 0]
    total = max(math.fsum(needy.lower), math.fsum(giving.upper))
    if len(alone) or not len(wanting):
        return alone
    if (needy.degrees[wanting] == giving.n_nodes).all():
        short = math.fsum([*needy.lower, *-giving.upper]) > _TOLERANCE * total
        return wanting if short else wanting[:0]
    # Integers, rounded so that what is feasible stays so.
    unit = 2.0 ** (_LARGEST_TOTAL - math.frexp(total)[1])
    demands = np.floor(needy.lower * unit).astype(np.int64)
    supplies = np.ceil(giving.upper * unit).astype(np.int64)
    reached, shortage = _maximum_flow(
        needy.indptr, needy.neighbours, giving.indptr, giving.neighbours, giving.positions,
        demands, supplies,
    )  # fmt: skip
    if shortage <= _TOLERANCE * total * unit:
        return wanting[:0]
    return np.flatnonzero(reached & (needy.lower > 0))


def _neighbours(side: Side, nodes: np.ndarray) -> np.ndarray:
    chosen = np.zeros(side.n_nodes, bool)
    chosen[nodes] = True
    return np.unique(side.neighbours[chosen[side.nodes]])


def _names(nodes: np.ndarray) -> str:
    """Return the first nodes of a list in words."""
    shown = ", ".join(map(str, nodes[:_NAMED]))
    more = f", ... ({len(nodes)} in all)" if len(nodes) > _NAMED else ""
    return f"[{shown}{more}]"


@njit(nogil=True, cache=True)
def _fill_greedily(indptr, neighbours, demands, supplies, flow):
    """Serve every node from its neighbours in their order, as far as they can."""
    for node in range(len(demands)):
        for edge in range(indptr[node], indptr[node + 1]):
            if demands[node] == 0:
                break
            amount = min(demands[node], supplies[neighbours[edge]])
            flow[edge] += amount
            demands[node] -= amount
            supplies[neighbours[edge]] -= amount


@njit(nogil=True, cache=True)
def _levels(
    indptr, neighbours, back_indptr, back_nodes, back_edges, demands, supplies, flow, depth,
    giver_depth, queue,
):  # fmt: skip
    """Set how far every node is from those that lack something; tell whether a supply is left."""
    depth[:] = -1
    giver_depth[:] = -1
    tail = 0
    for node in range(len(demands)):
        if demands[node] > 0:
            depth[node] = 0
            queue[tail] = node
            tail += 1
    head = 0
    found = False
    while head < tail:
        node = queue[head]
        head += 1
        for edge in range(indptr[node], indptr[node + 1]):
            giver = neighbours[edge]
            if giver_depth[giver] >= 0:
                continue
            giver_depth[giver] = depth[node] + 1
            found = found or supplies[giver] > 0
            for k in range(back_indptr[giver], back_indptr[giver + 1]):
                taker = back_nodes[k]
                if flow[back_edges[k]] > 0 and depth[taker] < 0:
                    depth[taker] = depth[node] + 2
                    queue[tail] = taker
                    tail += 1
    return found


@njit(nogil=True, cache=True)
def _augment(
    start, indptr, neighbours, back_indptr, back_nodes, back_edges, demands, supplies, flow, depth,
    giver_depth, forward, backward, path, trail,
):  # fmt: skip
    """Serve a node along shortest paths: it takes from a giver, which takes back from another."""
    length = 0
    node = start
    while demands[start] > 0:
        # `path` holds edges: forward ones at even places, ones to take back from at odd places.
        stuck = True
        while forward[node] < indptr[node + 1]:
            edge = forward[node]
            giver = neighbours[edge]
            if giver_depth[giver] != depth[node] + 1:
                forward[node] += 1
                continue
            if supplies[giver] > 0:
                amount = min(demands[start], supplies[giver])
                for k in range(1, length, 2):
                    amount = min(amount, flow[path[k]])
                for k in range(1, length, 2):
                    flow[path[k - 1]] += amount
                    flow[path[k]] -= amount
                flow[edge] += amount
                supplies[giver] -= amount
                demands[start] -= amount
                length = 0
                node = start
                stuck = False
                break
            while backward[giver] < back_indptr[giver + 1]:
                k = backward[giver]
                if flow[back_edges[k]] > 0 and depth[back_nodes[k]] == depth[node] + 2:
                    break
                backward[giver] += 1
            if backward[giver] == back_indptr[giver + 1]:
                forward[node] += 1
                continue
            k = backward[giver]
            trail[length // 2] = node
            path[length] = edge
            path[length + 1] = back_edges[k]
            length += 2
            node = back_nodes[k]
            stuck = False
            break
        if not stuck:
            continue
        if length == 0:
            return
        # A dead end: go back to the node before, and let its giver try the next one.
        length -= 2
        edge = path[length]
        giver = neighbours[edge]
        backward[giver] += 1
        node = trail[length // 2]


@njit(nogil=True, cache=True)
def _maximum_flow(indptr, neighbours, back_indptr, back_nodes, back_edges, demands, supplies):
    """Serve the demands as far as possible (Dinic's algorithm).

    Returns the nodes from which none with a supply left can be reached, and what is not served.
    """
    n_nodes = len(demands)
    flow = np.zeros(len(neighbours), np.int64)
    depth = np.empty(n_nodes, np.int64)
    giver_depth = np.empty(len(supplies), np.int64)
    queue = np.empty(n_nodes, np.int64)
    path = np.empty(2 * n_nodes + 2, np.int64)
    trail = np.empty(n_nodes + 1, np.int64)
    _fill_greedily(indptr, neighbours, demands, supplies, flow)
    while _levels(
        indptr, neighbours, back_indptr, back_nodes, back_edges, demands, supplies, flow, depth,
        giver_depth, queue,
    ):  # fmt: skip
        forward = indptr[:-1].copy()
        backward = back_indptr[:-1].copy()
        for node in range(n_nodes):
            if demands[node] > 0:
                _augment(
                    node, indptr, neighbours, back_indptr, back_nodes, back_edges, demands,
                    supplies, flow, depth, giver_depth, forward, backward, path, trail,
                )  # fmt: skip
    return depth >= 0, demands.sum()
