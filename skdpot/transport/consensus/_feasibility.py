"""Feasibility of a network, and the nodes that prevent a plan.

A network has no plan if and only if some nodes of one side must have more than all their neighbours
may give (Hoffman's circulation theorem). For most networks a plan is found quickly. If not, a
linear program finds such nodes.
"""

import math

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ._bipartite import BipartiteNetwork, Side
from ._rounding import rounded

# Bounds that should agree may differ by this share of the largest total.
_TOLERANCE = 1e-12
_HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_NAMED = 10


def check_feasible(network: BipartiteNetwork) -> None:
    """Raise an error that names the offending nodes if a network has no feasible plan.

    Differences below 1e-12 of the total count as rounding errors, and those below 1e-9 may do so.
    """
    pairs = (
        (network.targets, network.sources, "targets", "sources", "receive", "give"),
        (network.sources, network.targets, "sources", "targets", "give", "receive"),
    )
    if all(_are_served(needy, giving) for needy, giving, *_ in pairs):
        return
    if rounded(network, np.zeros(network.n_edges)) is not None:
        return
    for needy, giving, names, neighbour_names, verb, other_verb in pairs:
        nodes = deficient_nodes(needy, giving)
        if not len(nodes):
            continue
        neighbours = _neighbours(needy, nodes)
        raise ValueError(
            f"The network has no feasible plan: {names} {_names(nodes)} must {verb} at least "
            f"{math.fsum(needy.lower[nodes]):.10g} in all, but their neighbours, {neighbour_names} "
            f"{_names(neighbours)}, can {other_verb} at most "
            f"{math.fsum(giving.upper[neighbours]):.10g}."
        )


def _are_served(needy: Side, giving: Side) -> bool:
    """Tell whether a side is surely served: every node in need is linked to all nodes that give."""
    wanting = needy.lower > 0
    suffices = math.fsum(needy.lower) <= math.fsum(giving.upper)
    return not wanting.any() or bool(suffices and (needy.degrees[wanting] == giving.n_nodes).all())


def deficient_nodes(needy: Side, giving: Side) -> np.ndarray:
    """Return nodes that together must have more than their neighbours may give; maybe empty."""
    wanting = np.flatnonzero(needy.lower > 0)
    isolated = wanting[needy.degrees[wanting] == 0]
    if len(isolated) or not len(wanting):
        return isolated
    total = max(math.fsum(needy.lower), math.fsum(giving.upper))
    # The program minimises the total shortage. A node is deficient if each further unit of its
    # need adds a unit to the shortage.
    edges = np.flatnonzero(needy.lower[needy.nodes] > 0)
    n_edges, n_short = len(edges), len(wanting)
    places = np.arange(n_edges)
    served = sparse.coo_array(
        (np.ones(n_edges), (np.searchsorted(wanting, needy.nodes[edges]), places)),
        shape=(n_short, n_edges),
    )
    gifts = sparse.coo_array(
        (np.ones(n_edges), (needy.neighbours[edges], places)), shape=(giving.n_nodes, n_edges)
    )
    unit = max(float(needy.lower.max()), float(giving.upper.max()))
    result = linprog(
        np.concatenate([np.zeros(n_edges), np.ones(n_short)]),
        A_ub=sparse.block_array([[-served, -sparse.eye_array(n_short)], [gifts, None]]),
        b_ub=np.concatenate([-needy.lower[wanting], giving.upper]) / unit,
        method="highs-ds",
        options=_HIGHS,
    )
    if result.status != 0:
        raise RuntimeError(f"The linear program failed: {result.message}")
    nodes = wanting[result.ineqlin.marginals[:n_short] < -0.5]
    short = math.fsum([*needy.lower[nodes], *-giving.upper[_neighbours(needy, nodes)]])
    return nodes if short > _TOLERANCE * total else wanting[:0]


def _neighbours(side: Side, nodes: np.ndarray) -> np.ndarray:
    chosen = np.zeros(side.n_nodes, bool)
    chosen[nodes] = True
    return np.unique(side.neighbours[chosen[side.nodes]])


def _names(nodes: np.ndarray) -> str:
    """Return the first nodes of a list as text."""
    shown = ", ".join(map(str, nodes[:_NAMED]))
    rest = f", ... ({len(nodes)} in all)" if len(nodes) > _NAMED else ""
    return f"[{shown}{rest}]"
