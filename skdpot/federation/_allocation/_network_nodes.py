"""All nodes of a network, as one process makes them."""

import dataclasses
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.privacy.random import make_source
from skdpot.transport.consensus import BipartiteNetwork, LinearUtility

from ._allocation_messages import ROLES
from ._allocation_node import AllocationNode
from ._node_privacy import NodePrivacy


def allocation_nodes(
    network: BipartiteNetwork,
    target_utility: Any,
    source_utility: Any = None,
    privacy: NodePrivacy | Sequence[NodePrivacy | None] | None = None,
) -> list[AllocationNode]:
    """Return all nodes of a network, for use in one process.

    Parameters
    ----------
    network : BipartiteNetwork
        Edges and bounds.
    target_utility, source_utility : ConcaveUtility or None
        Utilities of the edges to their targets and to their sources, both in the order of the
        targets; each node gets its part. Nodes of a side with None have nothing to hide: their
        answers follow from those of others.
    privacy : NodePrivacy or sequence of NodePrivacy or None, default=None
        One for all nodes with a utility, each with its own stream of noise; or one for every node,
        targets before sources.

    Returns
    -------
    list of AllocationNode
        Targets before sources.

    Raises
    ------
    ValueError
        If there is not one entry of `privacy` for every node.

    Examples
    --------
    >>> from skdpot.federation import NodePrivacy, allocation_nodes
    >>> from skdpot.transport.consensus import LinearUtility, make_network
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> likes = LinearUtility([3.0, 1.0, 2.0, 1.0])
    >>> nodes = allocation_nodes(network, likes, likes, NodePrivacy(2.0, (1.0, 5.0)))
    >>> nodes[0]
    AllocationNode('target', 0, n_neighbours=2, bounds=(0.0, 1.0), epsilon=2.0)
    """
    budgets = _budgets(privacy, sum(network.shape))
    n_targets = network.shape[0]
    # Positions of the edges of each side in the order of the targets.
    orders = np.arange(network.n_edges), network.sources.positions
    nodes = []
    for role, side, utility, order, of_side in zip(
        ROLES,
        (network.targets, network.sources),
        (target_utility, source_utility),
        orders,
        (budgets[:n_targets], budgets[n_targets:]),
        strict=True,
    ):
        known = utility is None
        utility = LinearUtility(np.zeros(network.n_edges)) if known else utility
        for node, budget in enumerate(of_side):
            edges = slice(side.indptr[node], side.indptr[node + 1])
            bounds = float(side.lower[node]), float(side.upper[node])
            node_utility, neighbours = utility.take(order[edges]), side.neighbours[edges].tolist()
            own_budget = None if known else budget
            nodes.append(AllocationNode(role, node, neighbours, bounds, node_utility, own_budget))
    return nodes


def _budgets(
    privacy: NodePrivacy | Sequence[NodePrivacy | None] | None, n_nodes: int
) -> list[NodePrivacy | None]:
    """Return the budget of each node; no two nodes share their noise."""
    if privacy is None:
        return [None] * n_nodes
    if isinstance(privacy, NodePrivacy):
        if privacy.ledger is not None:
            raise ValueError("a ledger belongs to one node: give one NodePrivacy for each node.")
        source = make_source(privacy.random_state)
        return [
            dataclasses.replace(privacy, random_state=source.for_user(node))
            for node in range(n_nodes)
        ]
    if len(privacy) != n_nodes:
        raise ValueError(f"privacy must have {n_nodes} entries, one per node, got {len(privacy)}.")
    seeds = [
        side.random_state for side in privacy if side is not None and side.random_state is not None
    ]
    integers = [seed for seed in seeds if isinstance(seed, Integral)]
    if len(set(integers)) < len(integers):
        raise ValueError(
            "two nodes have one random_state and know each other's noise: give each its own."
        )
    return list(privacy)
