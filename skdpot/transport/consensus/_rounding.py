"""A feasible plan near any amounts, found quickly.

First, amounts are scaled down until no node exceeds its upper bound. Then nodes below their lower
bounds get more on their most valuable edges. If neighbours are full, amounts are moved along
augmenting paths. Last, the remaining capacity is used where that adds welfare. No step moves the
sum of another node out of its bounds.
"""

import numpy as np

from ..kernels import kernel
from ..sorting import sorted_places
from ._bipartite import BipartiteNetwork

# Typical rounding error of a sum of amounts, and accepted violation of a bound, as shares of the
# largest bound (or of 1, if all are smaller).
NOTHING = 1e-14
_ACCEPTED = 1e-13
# Accepted violation as a share of the total: the totals of both sides' bounds may differ by as much
# if they should be equal.
_ACCEPTED_OF_TOTAL = 1e-15
# The search for augmenting paths stops after so many visits to every edge, but not before so many
# visits in total.
_MAX_LOOKS, _FREE_LOOKS = 5, 1_000_000


def rounded(
    network: BipartiteNetwork,
    amounts: np.ndarray,
    gains: np.ndarray | None = None,
    bends: np.ndarray | None = None,
    source_levels: np.ndarray | None = None,
) -> np.ndarray | None:
    """Return a feasible plan near some amounts, or None if none is found soon.

    `gains` are the marginal welfare of the edges. Edges with a positive gain get more if their
    nodes have capacity; with None, amounts only grow as far as lower bounds require. Gains fall by
    `bends` with every unit. `source_levels` are the values of a unit of each source on other edges:
    edges with the largest gain above that are filled first.

    Bounds hold to 1e-13 of the largest of them (or of 1), or to 1e-15 of their total; doubles may
    allow no nearer plan.
    """
    targets, sources = network.targets, network.sources
    # Same type as the sources' positions, so that kernels are compiled once for both sides.
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
    """Return the largest bound of all nodes, at least 1."""
    return max(
        1.0,
        float(network.targets.upper.max(initial=0.0)),
        float(network.sources.upper.max(initial=0.0)),
    )


@kernel
def _scale_down(indptr, places, upper, plan):
    """Scale down the amounts of every node that exceeds its upper bound."""
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
    """Fill every node up to its goal on allowed edges with capacity, the most valuable first.

    `limits` are the largest additions to the edges, or one number for all.
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
    """Serve all nodes below their bounds along shortest paths; return whether all are served.

    A node takes from a giver. The giver has capacity, or takes as much back from another node. That
    node can spare it, or takes from another giver, and so on.
    """
    n_nodes = len(lower)
    taken_edges = np.empty(len(back_upper), np.int64)
    given_edges = np.empty(n_nodes, np.int64)
    seen_node = np.empty(n_nodes, np.int64)
    seen_node[:] = -1
    seen_giver = np.empty(len(back_upper), np.int64)
    seen_giver[:] = -1
    # Predecessors on a path: the node before a giver, and the giver before a node.
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
