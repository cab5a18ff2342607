"""Allocations within one process: nodes are objects, and messages go by calls."""

import dataclasses
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from skdpot.privacy.random import make_source
from skdpot.transport.consensus import BipartiteNetwork, LinearUtility

from ._allocation_coordinator import AllocationAgreement, AllocationCoordinator
from ._allocation_messages import ROLES
from ._allocation_node import AllocationNode, NodePrivacy


def allocation_nodes(
    network: BipartiteNetwork,
    target_utility: Any,
    source_utility: Any = None,
    privacy: NodePrivacy | Sequence[NodePrivacy | None] | None = None,
) -> list[AllocationNode]:
    """Make all nodes of a network, as one process may do for all of them.

    Parameters
    ----------
    network : BipartiteNetwork
        Edges and bounds.
    target_utility, source_utility : ConcaveUtility or None
        Utilities of the edges to their targets and to their sources, both in the order of the
        targets. Each node is given a copy of its own. None is a side without any, whose nodes have
        nothing to hide: their answers follow from those of others.
    privacy : NodePrivacy or sequence of NodePrivacy or None, default=None
        That of every node with a utility, or of every node, targets before sources; one is that of
        all of them, whose noise then comes from streams of their own.

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
    # Where the edges of each side stand in the order of the targets.
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
            own, neighbours = utility.take(order[edges]), side.neighbours[edges].tolist()
            own_budget = None if known else budget
            nodes.append(AllocationNode(role, node, neighbours, bounds, own, own_budget))
    return nodes


def run_allocation(
    nodes: Iterable[AllocationNode], coordinator: AllocationCoordinator, n_iter: int | None = None
) -> AllocationAgreement:
    """Carry messages between nodes and a coordinator, round by round.

    Parameters
    ----------
    nodes : iterable of AllocationNode
        All nodes of the coordinator's network, named by their indices.
    coordinator : AllocationCoordinator
        It may have made rounds with these nodes before.
    n_iter : int, default=None
        How many rounds to make, at most; None is as many as the coordinator announces.

    Returns
    -------
    AllocationAgreement
        What was agreed on. Without noise and with the same parameters it is, bit by bit, that of
        ``skdpot.transport.consensus.consensus``.

    Raises
    ------
    RuntimeError
        If a node's budget is for fewer rounds. No round was made then.
    ValueError
        If the nodes are not those of the network.

    Examples
    --------
    >>> from skdpot.federation import AllocationCoordinator, allocation_nodes, run_allocation
    >>> from skdpot.transport.consensus import LinearUtility, make_network
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> likes = LinearUtility([3.0, 1.0, 2.0, 1.0])
    >>> nodes = allocation_nodes(network, likes, likes)
    >>> coordinator = AllocationCoordinator(network, n_rounds=200)
    >>> run_allocation(nodes, coordinator, n_iter=40).n_iter
    40
    >>> run_allocation(nodes, coordinator).n_iter
    200
    """
    sides = _by_role(nodes, coordinator)
    _check_budgets(sides, coordinator, n_iter)
    done = 0
    while not coordinator.finished and (n_iter is None or done < n_iter):
        announcement = coordinator.announce()
        answers = [
            {
                name: node.answer(announcement, coordinator.incoming(role, name))
                for name, node in side.items()
            }
            for role, side in zip(ROLES, sides, strict=True)
        ]
        coordinator.observe(*answers)
        done += 1
    return coordinator.result()


def _budgets(
    privacy: NodePrivacy | Sequence[NodePrivacy | None] | None, n_nodes: int
) -> list[NodePrivacy | None]:
    """Return what each node may tell, with noise that no two nodes share."""
    if privacy is None:
        return [None] * n_nodes
    if isinstance(privacy, NodePrivacy):
        if privacy.ledger is not None:
            raise ValueError("a ledger is that of one node: give a NodePrivacy for every node.")
        source = make_source(privacy.random_state)
        return [
            dataclasses.replace(privacy, random_state=source.for_user(node))
            for node in range(n_nodes)
        ]
    if len(privacy) != n_nodes:
        raise ValueError(f"privacy must be of {n_nodes} nodes, got that of {len(privacy)}.")
    seeds = [of.random_state for of in privacy if of is not None and of.random_state is not None]
    integers = [seed for seed in seeds if isinstance(seed, Integral)]
    if len(set(integers)) < len(integers):
        raise ValueError(
            "two nodes have the same random_state, and so the same noise, which is no secret then."
        )
    return list(privacy)


def _check_budgets(
    sides: list[dict[Any, AllocationNode]],
    coordinator: AllocationCoordinator,
    n_iter: int | None,
) -> None:
    """Raise before any round where a node's budget is for fewer rounds."""
    wanted = coordinator.n_left
    wanted = wanted if n_iter is None else min(wanted, n_iter)
    left = [node.n_left for side in sides for node in side.values() if node.n_left is not None]
    if left and min(left) < wanted:
        raise RuntimeError(
            f"there are {wanted} rounds to make, and a node's budget is for {min(left)} more: give "
            "NodePrivacy as many n_rounds as the coordinator has, or run fewer."
        )


def _by_role(
    nodes: Iterable[AllocationNode], coordinator: AllocationCoordinator
) -> list[dict[Any, AllocationNode]]:
    """Return the nodes of both sides by their indices, or raise if they are not the network's."""
    sides: dict[str, dict[Any, AllocationNode]] = {role: {} for role in ROLES}
    for node in nodes:
        if node.name in sides[node.role]:
            raise ValueError(f"there are two nodes for {node.role} {node.name!r}.")
        sides[node.role][node.name] = node
    for role, n_nodes in zip(ROLES, coordinator.network.shape, strict=True):
        if set(sides[role]) != set(range(n_nodes)):
            raise ValueError(f"nodes must have one {role} for each index from 0 to {n_nodes - 1}.")
    return [sides[role] for role in ROLES]
