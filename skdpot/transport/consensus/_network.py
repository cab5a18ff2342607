r"""Bipartite networks, whether they have a plan, and feasible plans near any amounts.

*A plan found quickly.* First, amounts are scaled down until no node exceeds its upper bound. Then
nodes below their lower bounds get more on their most valuable edges. If neighbours are full,
amounts are moved along augmenting paths. Last, the remaining capacity is used where that adds
welfare. No step moves the sum of another node out of its bounds.

*Feasibility.* A network has no plan if and only if some nodes of one side must have more than all
their neighbours may give (Hoffman's circulation theorem). The last search for an augmenting path
that fails has found such nodes: all that it reached.

*The nearest plan.* With a multiplier for every node the projection of amounts v is ``x_e = max(v_e
- l_t - m_s, 0)``. The multipliers minimise a convex and piecewise quadratic function ::

    |x|^2 / 2 + sum_t (upper_t max(l_t, 0) + lower_t min(l_t, 0)) + the same for the sources.

A sweep minimises over one side and then over the other, by a projection for every node; this always
decreases the function. Between sweeps, Newton steps on the active edges and nodes are tried. A step
is taken if it decreases the function more than the sweep did.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import cg

from ..kernels import kernel, longest_row, part

# Typical rounding error of a sum of amounts, and accepted violation of a bound, as shares of the
# largest bound (or of 1, if all are smaller).
NOTHING = 1e-14
_ACCEPTED = 1e-13
# Bounds that should agree may differ by this share of the largest total.
_TOLERANCE = 1e-12
# Precision of the projection, as a share of the largest bound (or of 1, if all are smaller).
_PRECISION = 1e-12
# Fast-math flags for sums over the edges of one node.
_SUMS = {"nnan", "nsz", "reassoc"}
_MAX_STEPS = 200


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a network: its nodes, each with the edges that it sees.

    Attributes
    ----------
    indptr : ndarray of shape (n_nodes + 1,)
        Node i has the edges ``indptr[i]`` to ``indptr[i + 1]``, in the order of this side.
    neighbours : ndarray of shape (n_edges,)
        Node of the other side at every edge; ascending for every node.
    positions : ndarray of shape (n_edges,)
        Position of every edge in the order of the other side: ``values[positions]`` brings values
        from that order into the order of this side.
    lower, upper : ndarray of shape (n_nodes,)
        Bounds on the sum of the plan over the edges of a node.
    """

    indptr: np.ndarray
    neighbours: np.ndarray
    positions: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def n_nodes(self) -> int:
        """Number of nodes, including isolated ones."""
        return len(self.lower)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Number of edges of every node."""
        return np.diff(self.indptr)

    @cached_property
    def nodes(self) -> np.ndarray:
        """Node of this side at every edge."""
        return np.repeat(np.arange(self.n_nodes), self.degrees)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum at every node of values in the order of this side."""
        # Sums in the order of the edges, so that a node by itself gets the same bits.
        return np.bincount(self.nodes, values, self.n_nodes)


@dataclass(frozen=True, eq=False)
class BipartiteNetwork:
    """Targets and sources, the edges between them and the bounds of both.

    A plan is an array with one value for each edge, in the order of the targets: by target, then
    by source. `make_network` makes networks.

    Attributes
    ----------
    targets, sources : Side
        The two sides. Each has its own order of the edges.
    """

    targets: Side
    sources: Side

    @property
    def shape(self) -> tuple[int, int]:
        """Number of targets and number of sources."""
        return self.targets.n_nodes, self.sources.n_nodes

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.targets.neighbours)

    def matrix(self, plan: np.ndarray) -> sparse.csr_array:
        """Return a plan as a sparse array of shape (n_targets, n_sources)."""
        side = self.targets
        return sparse.csr_array((plan, side.neighbours, side.indptr), shape=self.shape, copy=True)

    def violation(self, plan: np.ndarray) -> float:
        """Return the largest violation of a bound by a plan."""
        # An amount below 0 violates a bound, too.
        violation = max(0.0, float(-plan.min(initial=0.0)))
        for side, values in ((self.targets, plan), (self.sources, plan[self.sources.positions])):
            sums = side.sums(values)
            for excess in (sums - side.upper, side.lower - sums):
                violation = max(violation, float(excess.max(initial=0.0)))
        return violation


def make_network(adjacency: Any, target_bounds: Any, source_bounds: Any) -> BipartiteNetwork:
    """Make a bipartite network from its edges and the bounds of its nodes.

    Parameters
    ----------
    adjacency : {array-like, sparse array or matrix} of shape (n_targets, n_sources)
        1 or True where an edge is, else 0 or False. Nodes without edges are allowed.
    target_bounds, source_bounds : array-like of shape (2,) or (n_nodes, 2)
        Smallest and largest amount that a target receives, and that a source gives. One pair is
        for all nodes of the side; of two nodes it is a tuple, unless the smallest is 0. All are
        finite and non-negative.

    Returns
    -------
    BipartiteNetwork
        The network.

    Raises
    ------
    ValueError
        If the shapes do not fit, the adjacency holds other numbers, or bounds are negative, not
        finite, or crossed.

    Examples
    --------
    >>> from skdpot.transport.consensus import make_network
    >>> network = make_network([[1, 1, 0], [0, 1, 1]], (0, 2), [(0, 1), (1, 3), (0, 1)])
    >>> network.shape, network.n_edges
    ((2, 3), 4)
    """
    edges = _edges(adjacency)
    # Edges are numbered in the order of the targets, and the numbers sorted by sources.
    edges.data = np.arange(edges.nnz, dtype=np.int64)
    by_source = edges.tocsc()
    positions = np.empty_like(edges.data)
    positions[by_source.data] = edges.data
    return BipartiteNetwork(
        _make_side(edges, positions, target_bounds, "target"),
        _make_side(by_source, by_source.data, source_bounds, "source"),
    )


def _make_side(edges: Any, positions: np.ndarray, bounds: Any, name: str) -> Side:
    """Return the side of compressed edges, or raise if its bounds are invalid."""
    indptr, neighbours = edges.indptr.astype(np.int64), edges.indices.astype(np.int64)
    return Side(indptr, neighbours, positions, *_bounds(bounds, len(indptr) - 1, name))


def _edges(adjacency: Any) -> sparse.csr_array:
    """Return the edges as a boolean CSR array with sorted indices."""
    if not sparse.issparse(adjacency):
        adjacency = np.asarray(adjacency)
    if adjacency.ndim != 2 or adjacency.dtype.kind not in "biuf":
        raise ValueError(
            "adjacency must be a boolean or numeric array of shape (n_targets, n_sources), got "
            f"shape {adjacency.shape} and dtype {adjacency.dtype}."
        )
    numbers = sparse.coo_array(adjacency).data if sparse.issparse(adjacency) else adjacency
    # Of distances, the best pair would be no edge, and weights would count for nothing.
    if not ((numbers == 0) | (numbers == 1)).all():
        raise ValueError(
            "adjacency must hold only 0 and 1, and 1 is an edge: other numbers are no weights. "
            "Pass a condition, such as distances <= limit or weights > 0."
        )
    # Of truth values, as entries that are stored twice would add up to 2.
    edges = sparse.csr_array(adjacency != 0, copy=True)
    edges.sum_duplicates()
    return edges


def _bounds(bounds: Any, n_nodes: int, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bounds of a side, or raise if they are invalid."""
    is_tuple = isinstance(bounds, tuple)
    try:
        bounds = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{side}_bounds must be a pair of numbers (low, high), or a list with a pair for each "
            f"{side}, in their order; got {type(bounds).__name__}."
        ) from None
    if bounds.shape != (2,) and bounds.shape != (n_nodes, 2):
        raise ValueError(
            f"{side}_bounds must have shape (2,) or ({n_nodes}, 2), a pair per {side}; got "
            f"{bounds.shape}."
        )
    lower, upper = np.ascontiguousarray(np.broadcast_to(bounds, (n_nodes, 2)).T)
    # The first of these that is wrong is named, with one node as an example: all of it is public.
    for wrong, what in (
        (~(np.isfinite(lower) & np.isfinite(upper)), "finite"),
        (lower < 0, "non-negative"),
        (lower > upper, "given as (smallest, largest) with smallest <= largest"),
        # Two numbers, or lists of them, may be those of two nodes instead.
        ((lower > 0) & (bounds.size == n_nodes and not is_tuple), "a tuple, or a pair for each"),
        ((upper == 0) & (lower[-1] > 0) & (n_nodes == 2), "pairs, with nodes of (0, 0) left out"),
    ):
        if wrong.any():
            node = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"{side}_bounds must be {what}; those of {side} {node} are ({lower[node]:g}, "
                f"{upper[node]:g}) ({np.count_nonzero(wrong)} of {n_nodes} are wrong)."
            )
    return lower.copy(), upper.copy()


def check_feasible(network: BipartiteNetwork) -> None:
    """Raise an error that names the offending nodes if a network has no feasible plan.

    Differences below 1e-12 of the total count as rounding errors, and those below 1e-9 may do so.
    """
    pairs = (
        (network.targets, network.sources, "targets", "sources", "receive", "give"),
        (network.sources, network.targets, "sources", "targets", "give", "receive"),
    )
    # Complete networks, the usual ones, need no search.
    if all(_are_served(needy, giving) for needy, giving, *_ in pairs):
        return
    stuck = rounded(network, np.zeros(network.n_edges))[1]
    if stuck is None:
        return
    needy, giving, names, neighbour_names, verb, other_verb = pairs[stuck[0]]
    # The marks of the search that failed are the proof, by Hoffman's theorem.
    nodes = np.flatnonzero(stuck[1])
    neighbours = np.unique(needy.neighbours[stuck[1][needy.nodes]])
    needed, available = math.fsum(needy.lower[nodes]), math.fsum(giving.upper[neighbours])
    if needed - available > _TOLERANCE * max(math.fsum(needy.lower), math.fsum(giving.upper)):
        raise ValueError(
            f"The network has no feasible plan: {names} {_names(nodes)} must {verb} at least "
            f"{needed:.10g} in all, but their neighbours, {neighbour_names} {_names(neighbours)}, "
            f"can {other_verb} at most {available:.10g}."
        )


def _are_served(needy: Side, giving: Side) -> bool:
    """Tell whether a side is surely served: every node in need is linked to all nodes that give."""
    wanting = needy.lower > 0
    suffices = math.fsum(needy.lower) <= math.fsum(giving.upper)
    return not wanting.any() or bool(suffices and (needy.degrees[wanting] == giving.n_nodes).all())


def _names(nodes: np.ndarray) -> str:
    """Return the first nodes of a list as text."""
    named = 10
    shown = ", ".join(map(str, nodes[:named]))
    rest = f", ... ({len(nodes)} in all)" if len(nodes) > named else ""
    return f"[{shown}{rest}]"


def rounded(
    network: BipartiteNetwork,
    amounts: np.ndarray,
    gains: np.ndarray | None = None,
    bends: np.ndarray | None = None,
    source_levels: np.ndarray | None = None,
) -> tuple[np.ndarray | None, tuple[int, np.ndarray] | None]:
    """Return a feasible plan near some amounts, or None, and the nodes that cannot be served.

    `gains` are the marginal welfare of the edges. Edges with a positive gain get more if their
    nodes have capacity; with None, amounts only grow as far as lower bounds require. Gains fall by
    `bends` with every unit. `source_levels` are the values of a unit of each source on other edges:
    edges with the largest gain above that are filled first.

    Bounds hold to 1e-13 of the largest of them (or of 1), or to 1e-15 of their total; doubles may
    allow no nearer plan. Nodes that cannot be served, if any, are those of a side (0 or 1), as
    marks: they are short by more than the tolerance of feasibility.
    """
    # Accepted violation as a share of the total: the totals of both sides' bounds may differ by as
    # much if they should be equal.
    accepted_of_total = 1e-15
    targets, sources = network.targets, network.sources
    # A copy, which all kernels below change.
    plan = np.maximum(amounts, 0.0)
    for side, nodes in ((targets, targets.nodes), (sources, targets.neighbours)):
        sums = np.bincount(nodes, plan, side.n_nodes)
        # Nodes above their upper bound give up the same share on all edges.
        plan *= np.divide(side.upper, sums, out=np.ones(len(sums)), where=sums > side.upper)[nodes]
    # Without gains any edge is as good as another for what lower bounds require.
    worth = np.zeros_like(plan) if gains is None else gains
    if source_levels is not None:
        worth = worth - source_levels[targets.neighbours]
    unit = max_bound(network)
    nothing = NOTHING * unit
    total = max(float(side.lower.sum()) for side in (targets, sources))
    accepted = max(_ACCEPTED * unit, accepted_of_total * total)
    # Same type as the sources' positions, so that kernels are compiled once for both sides.
    identity = np.arange(network.n_edges, dtype=sources.positions.dtype)
    sides = [
        (side.indptr, side.neighbours, places, side.lower, side.upper, side.sums(plan[places]))
        for side, places in ((targets, identity), (sources, sources.positions))
    ]
    directions = sides, sides[::-1]
    limits = np.full(len(plan), np.inf)
    # Greedily first: it serves nearly all, and paths take longer.
    for needy, giving in directions:
        _fill(needy, giving, needy[3], plan, worth, limits, nothing)
    for place, (needy, giving) in enumerate(directions):
        # Both sides in turn; serving one keeps the sums of the other within their bounds.
        unserved = _augment(needy, giving, plan, nothing, max(accepted, _TOLERANCE * total))
        if unserved.any():
            return None, (place, unserved)
    if gains is not None:
        # Gains that fall with the amount must not be filled beyond where they vanish.
        if bends is not None:
            np.divide(gains, bends, out=limits, where=bends > 0)
        np.copyto(limits, 0.0, where=gains <= 0)
        _fill(*sides, targets.upper, plan, worth, limits, nothing)
    return (plan if network.violation(plan) <= accepted else None), None


def max_bound(network: BipartiteNetwork) -> float:
    """Return the largest bound of all nodes, at least 1."""
    return float(max(side.upper.max(initial=1.0) for side in (network.targets, network.sources)))


@kernel
def _fill(needy, giving, goals, plan, worth, limits, nothing):
    """Fill every node up to its goal on edges with capacity, the most valuable first.

    A side is its arrays: indptr, neighbours, places in the plan, lower and upper bounds, and sums,
    which change. `limits` are the largest additions to the edges.
    """
    indptr, neighbours, places, _, _, sums = needy
    _, _, _, _, most, given = giving
    # When no giver has room any more, all further nodes can be left out.
    n_open = np.count_nonzero(most - given > nothing)
    for node in range(len(goals)):
        missing = goals[node] - sums[node]
        if missing <= nothing or n_open == 0:
            continue
        start, stop = indptr[node], indptr[node + 1]
        givers, edges = neighbours[start:stop], places[start:stop]
        can = np.flatnonzero((most[givers] - given[givers] > nothing) & (limits[edges] > 0))
        # The sort is ascending and stable, and the most valuable edge is wanted first.
        for k in can[np.argsort(-worth[edges[can]], kind="mergesort")]:
            giver, edge = givers[k], edges[k]
            room = most[giver] - given[giver]
            amount = min(missing, room, limits[edge])
            plan[edge] += amount
            sums[node] += amount
            given[giver] += amount
            missing -= amount
            n_open -= room - amount <= nothing
            if missing <= nothing:
                break


@kernel
def _augment(needy, giving, plan, nothing, accepted):
    """Serve all nodes below their bounds along shortest paths; return marks of those that are not.

    These are all nodes to which the search of one that cannot be served led: together they must
    have more than all their neighbours may give. A node takes from a giver. The giver has capacity,
    or takes as much back from another node. That node can spare it, or takes from another giver,
    and so on.
    """
    lower, sums = needy[3], needy[5]
    most, given = giving[4], giving[5]
    n_nodes, n_givers = len(lower), len(most)
    unserved = np.zeros(n_nodes, np.bool_)
    # Of a giver: the edge on which a node takes from it, that node, and the search that found it.
    # Of a node: the edge on which it gives back, the giver that it does so to, and the search.
    of_givers = np.zeros((3, n_givers), np.int64)
    of_nodes = np.zeros((3, n_nodes), np.int64)
    queue = np.empty(n_nodes, np.int64)
    search = 0
    for start in range(n_nodes):
        while lower[start] - sums[start] > nothing:
            search += 1
            giver, spare = _path(
                start, search, needy, giving, plan, nothing, of_givers, of_nodes, queue
            )
            if giver < 0:
                if lower[start] - sums[start] > accepted:
                    unserved |= of_nodes[2] == search
                break
            # No edge on the path may give back more than it has.
            amount = lower[start] - sums[start]
            if spare >= 0:
                amount = min(amount, sums[spare] - lower[spare], plan[of_nodes[0, spare]])
            else:
                amount = min(amount, most[giver] - given[giver])
            node = of_givers[1, giver]
            while node != start:
                amount = min(amount, plan[of_nodes[0, node]])
                node = of_givers[1, of_nodes[1, node]]
            if spare >= 0:
                sums[spare] -= amount
                plan[of_nodes[0, spare]] -= amount
            else:
                given[giver] += amount
            sums[start] += amount
            plan[of_givers[0, giver]] += amount
            node = of_givers[1, giver]
            while node != start:
                giver = of_nodes[1, node]
                plan[of_nodes[0, node]] -= amount
                plan[of_givers[0, giver]] += amount
                node = of_givers[1, giver]
    return unserved


@part
def _path(start, search, needy, giving, plan, nothing, of_givers, of_nodes, queue):
    """Search breadth first for a giver with capacity, or one that can take from a node to spare.

    Return that giver and node, or -1; the rows of `of_givers` and `of_nodes` lead back from them.
    """
    indptr, neighbours, places, lower, _, sums = needy
    back_indptr, back_neighbours, back_places, _, most, given = giving
    # Numbers of searches instead of flags, which would have to be cleared.
    of_nodes[2, start] = search
    queue[0] = start
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        for k in range(indptr[node], indptr[node + 1]):
            giver = neighbours[k]
            if of_givers[2, giver] == search:
                continue
            of_givers[0, giver], of_givers[1, giver], of_givers[2, giver] = places[k], node, search
            if most[giver] - given[giver] > nothing:
                return giver, -1
            for j in range(back_indptr[giver], back_indptr[giver + 1]):
                other, edge = back_neighbours[j], back_places[j]
                if of_nodes[2, other] == search or plan[edge] <= nothing:
                    continue
                of_nodes[0, other], of_nodes[1, other], of_nodes[2, other] = edge, giver, search
                if sums[other] - lower[other] > nothing:
                    return giver, other
                queue[tail] = other
                tail += 1
    return -1, -1


@part(fastmath=_SUMS)
def _weighted_above(values, weights, level):
    """Return the weighted sum of the values above a level, and the sum of their weights."""
    total = 0.0
    weight = 0.0
    for k in range(len(values)):
        if values[k] > level:
            total += weights[k] * values[k]
            weight += weights[k]
    return total, weight


@part
def _weighted_level(values, weights, mass, start):
    """Return the level m with ``sum(weights * max(values - m, 0)) == mass``."""
    level = start
    total, weight = _weighted_above(values, weights, level)
    # Above the start there is nothing: the largest value alone gives a level below the root.
    if weight == 0.0:
        best = np.argmax(values)
        level = values[best] - mass / weights[best]
        total, weight = _weighted_above(values, weights, level)
        if weight == 0.0:
            return level
    for _ in range(_MAX_STEPS):
        # Newton's method: the sum is piecewise linear in the level, and exact once the set is
        # right.
        level = (total - mass) / weight
        total, new_weight = _weighted_above(values, weights, level)
        # Levels increase, so values only leave the set above: equal weights mean equal sets.
        if new_weight == weight or new_weight == 0.0:
            break
        weight = new_weight
    return level


@part
def level_within(values, weights, lower, upper, start):
    """Return the level with a weighted mass above it within bounds; 0 if 0 is such a level."""
    free = _weighted_above(values, weights, 0.0)[0]
    mass = min(max(free, lower), upper)
    return 0.0 if mass == free else _weighted_level(values, weights, mass, start)


@kernel
def nearest_on_side(indptr, lower, upper, values, multipliers, amounts):
    """Project the values of every node onto its feasible amounts, in the order of the side."""
    ones = np.ones(longest_row(indptr))
    for node in range(len(lower)):
        first, last = indptr[node], indptr[node + 1]
        # Nodes without edges have no amounts, and their bounds were checked before.
        if first == last:
            continue
        level = level_within(
            values[first:last], ones[: last - first], lower[node], upper[node], multipliers[node]
        )
        multipliers[node] = level
        for edge in range(first, last):
            amounts[edge] = max(values[edge] - level, 0.0)


class _Projection:
    """The projection of amounts onto the feasible plans, by the multipliers of the nodes."""

    def __init__(self, network: BipartiteNetwork, values: np.ndarray) -> None:
        self.sides = network.targets, network.sources
        self.values = values, values[network.sources.positions]
        # The multipliers of both sides.
        self.levels = tuple(map(np.zeros, network.shape))

    def sweep(self) -> np.ndarray:
        """Minimise over the multipliers of the targets and then of the sources; return the plan."""
        amounts = np.empty_like(self.values[0])
        given = zip(self.sides, self.values, self.levels, self.levels[::-1], strict=True)
        for side, values, levels, others in given:
            rest = values - others[side.neighbours]
            nearest_on_side(side.indptr, side.lower, side.upper, rest, levels, amounts)
        return amounts[self.sides[0].positions]

    def excess(self, plan: np.ndarray) -> np.ndarray:
        """Return how far the sums of targets are from the bounds that their multipliers require."""
        targets, levels = self.sides[0], self.levels[0]
        sums = targets.sums(plan)
        # A multiplier stands for the bound that it pushes at; without one, any sum within will do.
        inside = np.clip(sums, targets.lower, targets.upper)
        bound = np.where(levels > 0, targets.upper, np.where(levels < 0, targets.lower, inside))
        return np.where(targets.degrees > 0, sums - bound, sums - inside)

    def _objective(self, plan: np.ndarray) -> float:
        total = 0.5 * float(plan @ plan)
        for side, levels in zip(self.sides, self.levels, strict=True):
            total += float(side.upper @ np.maximum(levels, 0.0))
            total += float(side.lower @ np.minimum(levels, 0.0))
        return total

    def advance(self, plan: np.ndarray, excess: np.ndarray) -> np.ndarray:
        """Return the plan of a sweep, or of a Newton step and a sweep if that is better."""
        start = [levels.copy() for levels in self.levels]
        steps = self._newton_step(plan, excess)
        swept = self.sweep()
        value, reached = self._objective(swept), self.levels
        for length in (1.0, 0.25):
            self.levels = tuple(map(_stepped, start, [length * step for step in steps]))
            stepped = self.sweep()
            if self._objective(stepped) <= value:
                return stepped
        self.levels = reached
        return swept

    def _newton_step(self, plan: np.ndarray, excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the step to the minimum for the active edges and nodes."""
        cg_precision = 1e-10
        # Newton steps need not be exact; of singular systems, whose residual stays, they cannot be.
        max_cg = 60
        targets, (levels, source_levels) = self.sides[0], self.levels
        bound = (excess != 0) | (levels != 0)
        used = plan > 0
        edges = used & bound[targets.nodes]
        giving = source_levels != 0
        weights = np.bincount(targets.nodes, used, targets.n_nodes)
        source_weights = np.bincount(targets.neighbours, used, len(giving))
        # Multipliers that are 0 stay so in this step, and drop out of the system.
        edges &= giving[targets.neighbours]
        counts = np.concatenate([[0], np.cumsum(edges)])[targets.indptr]
        matrix = sparse.csr_array(
            (np.ones(counts[-1]), targets.neighbours[edges], counts), (len(bound), len(giving))
        )
        # Conjugate gradients. A singular system is consistent if its nodes can be served, and
        # otherwise its result does no harm.
        diagonal = np.maximum(np.concatenate([weights, source_weights]), 1.0)
        system = sparse.block_array([[None, matrix], [matrix.T, None]], format="csr")
        system = system + sparse.diags_array(diagonal)
        wanted = np.zeros(len(diagonal))
        wanted[: targets.n_nodes] = np.where(bound & (weights > 0), excess, 0.0)
        with np.errstate(all="ignore"):
            inverse = sparse.diags_array(1.0 / diagonal)
            step, _ = cg(system, wanted, rtol=cg_precision, maxiter=max_cg, M=inverse)
        return step[: targets.n_nodes], step[targets.n_nodes :]


def _stepped(levels: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the levels after a step, with zero for levels that would change their sign."""
    stepped = levels + step
    return np.where(levels * stepped < 0, 0.0, stepped)


def repair(network: BipartiteNetwork, amounts: np.ndarray) -> np.ndarray:
    """Return the feasible plan that is nearest to an array of amounts.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    amounts : ndarray of shape (n_edges,)
        Any finite amounts, in the order of the targets; negative ones too.

    Returns
    -------
    plan : ndarray of shape (n_edges,)
        The Euclidean projection onto the feasible plans, with an error of 1e-10 of the largest
        bound (or of 1). Bounds hold to 1e-13 of the largest (or of 1): to 1e-9 for bounds up to
        1e4. Amounts are never negative. For released amounts this is post-processing.

    Raises
    ------
    ValueError
        If the network has no feasible plan, or the amounts are not finite.
    RuntimeError
        If bounds or amounts are so large that no doubles are near a plan.

    Examples
    --------
    >>> from skdpot.transport.consensus import make_network, repair
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), [(0, 2), (0.5, 0.5)])
    >>> repair(network, [2.0, 0.0, 0.0, -1.0]).round(3) + 0.0
    array([0.833, 0.167, 0.   , 0.333])
    """
    accepted_distance, max_sweeps = 1e-10, 2000
    amounts = np.ascontiguousarray(amounts, dtype=np.float64)
    if amounts.shape != (network.n_edges,) or not np.isfinite(amounts).all():
        shape = (network.n_edges,)
        raise ValueError(f"amounts must be finite, of shape {shape}, got {amounts.shape}.")
    # Plans stay as they are, to the last bit.
    if network.violation(amounts) == 0.0:
        return amounts.copy()
    unit, projection = max_bound(network), _Projection(network, amounts)
    plan = projection.sweep()
    best, error_of_best = plan, np.inf
    for _ in range(max_sweeps):
        excess = projection.excess(plan)
        error = float(np.abs(excess).max(initial=0.0))
        # Newton steps may overshoot near the end: the best plan so far is kept.
        if error < error_of_best:
            best, error_of_best = plan, error
        if error <= _PRECISION * unit:
            break
        plan = projection.advance(plan, excess)
    # The remaining violation is mostly below the precision of the projection, but above rounding
    # errors.
    cleaned, _ = rounded(network, best)
    if cleaned is not None:
        return cleaned
    if error_of_best > accepted_distance * unit:
        check_feasible(network)
        raise RuntimeError(
            f"The projection onto the feasible plans stopped {error_of_best:.3g} away from them: "
            "divide bounds and amounts by a number, so that both are near one."
        )
    return best
