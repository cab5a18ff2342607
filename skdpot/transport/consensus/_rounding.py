"""A feasible plan near any amounts, found quickly.

Amounts are scaled down until no node has more than its upper bound. What lower bounds lack is then
filled in on the edges that are worth most, and where neighbours are full along augmenting paths, on
which amounts move from node to node; and last, what is left is filled where it is worth something.
Every step leaves the sums of the others within their bounds.
"""

import numpy as np

from ..kernels import kernel
from ..sorting import sorted_places
from ._bipartite import BipartiteNetwork

# Of the largest bound, or of one where all are smaller: about what a sum of amounts is off.
NOTHING = 1e-14
_ACCEPTED = 1e-13
# Of the total of all bounds: by so much those of both sides may disagree where they are equalities.
_ACCEPTED_OF_TOTAL = 1e-15
# How often augmenting paths may look at every edge, and how many of them they may look at in any
# case, before the amounts are given up.
_MAX_LOOKS, _FREE_LOOKS = 5, 1_000_000


def rounded(
    network: BipartiteNetwork,
    amounts: np.ndarray,
    gains: np.ndarray | None = None,
    bends: np.ndarray | None = None,
    source_levels: np.ndarray | None = None,
) -> np.ndarray | None:
    """Return a feasible plan near some amounts, or None where none is found soon.

    `gains` are marginal welfare of the edges: while one is positive, more is put on an edge whose
    nodes have room, and with None nothing is added to what bounds ask for. They fall by `bends`
    with every unit. `source_levels` are what a unit of a source is worth elsewhere: edges with the
    largest gain beyond that are filled first.

    Bounds of the plan hold to 1e-13 of the largest of them (or of one), or to 1e-15 of their total:
    where bounds are doubles there may be no plan that is nearer.
    """
    targets, sources = network.targets, network.sources
    # Of the type of the sources' positions, so that kernels are compiled once for both sides.
    identity = np.arange(network.n_edges, dtype=sources.positions.dtype)
    plan = np.maximum(amounts, 0.0)
    _scale_down(targets.indptr, identity, targets.upper, plan)
    _scale_down(sources.indptr, sources.positions, sources.upper, plan)
    worth = np.zeros_like(plan) if gains is None else gains
    if source_levels is not None:
        worth = worth - source_levels[targets.neighbours]
    unit = largest_bound(network)
    nothing = NOTHING * unit
    total = max(float(side.lower.sum()) for side in (targets, sources))
    accepted = max(_ACCEPTED * unit, _ACCEPTED_OF_TOTAL * total)
    sums = targets.sums(plan), sources.sums(plan[sources.positions])
    target_side = (targets.indptr, targets.neighbours, identity, targets.lower, targets.upper)
    source_side = (
        sources.indptr, sources.neighbours, sources.positions, sources.lower, sources.upper,
    )  # fmt: skip
    sides = [(target_side, sums[0]), (source_side, sums[1])]
    directions = [sides[0] + sides[1], sides[1] + sides[0]]
    everywhere, unlimited = np.ones(len(plan), bool), np.full(1, np.inf)
    for needy, got, giving, gave in directions:
        _fill(*needy[:4], got, giving[4], gave, plan, worth, everywhere, unlimited, nothing)
    for needy, got, giving, gave in directions:
        if not _augment(*needy[:4], got, *giving[:3], giving[4], gave, plan, nothing, accepted):
            return None
    if gains is not None:
        limits = unlimited
        if bends is not None and bends.any():
            with np.errstate(divide="ignore", invalid="ignore"):
                limits = np.where(bends > 0, gains / bends, np.inf)
        _fill(
            *target_side[:3], targets.upper, sums[0], sources.upper, sums[1], plan, worth,
            gains > 0, limits, nothing,
        )  # fmt: skip
    return plan if network.violation(plan) <= accepted else None


def largest_bound(network: BipartiteNetwork) -> float:
    """Return the largest bound of all nodes, or one where all are smaller."""
    return max(
        1.0,
        float(network.targets.upper.max(initial=0.0)),
        float(network.sources.upper.max(initial=0.0)),
    )


@kernel
def _scale_down(indptr, places, upper, plan):
    """Divide the amounts of every node that has more than its upper bound."""
    for node in range(len(upper)):
        total = 0.0
        for k in range(indptr[node], indptr[node + 1]):
            total += plan[places[k]]
        if total > upper[node]:
            factor = upper[node] / total
            for k in range(indptr[node], indptr[node + 1]):
                plan[places[k]] *= factor


@kernel
def _fill(
    indptr, neighbours, places, goals, sums, other_upper, other_sums, plan, worth, allowed, limits,
    nothing,
):  # fmt: skip
    """Fill every node up to its goal on allowed edges, the worthiest first, where others have room.

    `limits` are the largest additions to all edges, or one for all.
    """
    n_open = 0
    for giver in range(len(other_upper)):
        n_open += other_upper[giver] - other_sums[giver] > nothing
    for node in range(len(goals)):
        missing = goals[node] - sums[node]
        if missing <= nothing or n_open == 0:
            continue
        start, stop = indptr[node], indptr[node + 1]
        candidates = np.empty(stop - start, np.int64)
        keys = np.empty(stop - start)
        count = 0
        for k in range(start, stop):
            giver = neighbours[k]
            if other_upper[giver] - other_sums[giver] > nothing and allowed[places[k]]:
                candidates[count] = k
                keys[count] = -worth[places[k]]
                count += 1
        for i in sorted_places(keys[:count]):
            k = candidates[i]
            giver, edge = neighbours[k], places[k]
            room = other_upper[giver] - other_sums[giver]
            limit = limits[edge] if len(limits) > 1 else limits[0]
            amount = min(missing, room, limit)
            plan[edge] += amount
            sums[node] += amount
            other_sums[giver] += amount
            missing -= amount
            n_open -= room - amount <= nothing
            if missing <= nothing:
                break


@kernel
def _augment(
    indptr, neighbours, places, lower, sums, back_indptr, back_neighbours, back_places, back_upper,
    back_sums, plan, nothing, accepted,
):  # fmt: skip
    """Serve all nodes that lack something along shortest paths; return whether they are served.

    A node takes from a giver, which has room or takes as much from another node, which can spare it
    or takes from another giver, and so on.
    """
    n_nodes = len(lower)
    taken_edges = np.empty(len(back_upper), np.int64)
    given_edges = np.empty(n_nodes, np.int64)
    seen_node = np.empty(n_nodes, np.int64)
    seen_node[:] = -1
    seen_giver = np.empty(len(back_upper), np.int64)
    seen_giver[:] = -1
    # The node that reached a giver, and the giver that reached a node.
    node_before = np.empty(len(back_upper), np.int64)
    giver_before = np.empty(n_nodes, np.int64)
    queue = np.empty(n_nodes, np.int64)
    looks = max(_MAX_LOOKS * len(plan), _FREE_LOOKS)
    search = 0
    for start in range(n_nodes):
        while lower[start] - sums[start] > nothing:
            search += 1
            seen_node[start] = search
            queue[0] = start
            head, tail = 0, 1
            giver, spare = -1, -1
            while head < tail and giver < 0 and spare < 0:
                node = queue[head]
                head += 1
                looks -= indptr[node + 1] - indptr[node]
                for k in range(indptr[node], indptr[node + 1]):
                    neighbour = neighbours[k]
                    if seen_giver[neighbour] == search:
                        continue
                    seen_giver[neighbour] = search
                    taken_edges[neighbour], node_before[neighbour] = places[k], node
                    if back_upper[neighbour] - back_sums[neighbour] > nothing:
                        giver = neighbour
                        break
                    looks -= back_indptr[neighbour + 1] - back_indptr[neighbour]
                    for j in range(back_indptr[neighbour], back_indptr[neighbour + 1]):
                        another = back_neighbours[j]
                        if seen_node[another] == search or plan[back_places[j]] <= nothing:
                            continue
                        seen_node[another] = search
                        given_edges[another], giver_before[another] = back_places[j], neighbour
                        if sums[another] - lower[another] > nothing:
                            spare = another
                            break
                        queue[tail] = another
                        tail += 1
                    if spare >= 0:
                        break
            if looks < 0:
                return False
            if giver < 0 and spare < 0:
                if lower[start] - sums[start] > accepted:
                    return False
                break
            if spare >= 0:
                amount = min(lower[start] - sums[start], sums[spare] - lower[spare])
                node = spare
            else:
                amount = min(lower[start] - sums[start], back_upper[giver] - back_sums[giver])
                node = node_before[giver]
            step = node
            while step != start:
                amount = min(amount, plan[given_edges[step]])
                step = node_before[giver_before[step]]
            if spare >= 0:
                sums[spare] -= amount
            else:
                back_sums[giver] += amount
                plan[taken_edges[giver]] += amount
            sums[start] += amount
            while node != start:
                plan[given_edges[node]] -= amount
                plan[taken_edges[giver_before[node]]] += amount
                node = node_before[giver_before[node]]
    return True
