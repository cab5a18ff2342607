"""Configuration of allocations on Flower: of runs, and of the nodes of SuperNodes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skdpot.privacy.ledger import PrivacyLedger
from skdpot.transport.consensus import FAMILIES, LinearUtility, make_network, make_utility

from . import _config_values as values
from ._allocation._allocation_coordinator import (
    AllocationAgreement,
    AllocationCoordinator,
    addresses,
)
from ._allocation._allocation_messages import ROLES
from ._allocation._allocation_node import AllocationNode
from ._allocation._node_privacy import NodePrivacy
from ._carriers import Carrier, run_allocation
from ._flower_settings import OwnerSettings
from ._run_defaults import OF_RUNS
from ._settings_error import SettingsError

# Keys of a configuration: a type for a required key, otherwise the default.
_NODE = {
    "name": str,
    "neighbours": str,
    "bounds": str,
    "data": "",
    "utility": "linear",
    "utility-scale": 1.0,
    "epsilon": 0.0,
    "delta": 0.0,
    "marginals": "",
    "rounds": 100,
    "protect": "parameter",
    "mechanism": "messages",
    "ledger": "",
    "state": "",
    "outcome": "",
    "key": "",
    "coordinator-key": "",
    **values.OF_SIMULATIONS,
}
_RUN = {
    "network": "",
    "edges": "",
    "target-bounds": "",
    "source-bounds": "",
    "rounds": int,
    **OF_RUNS["allocation"],
    "output": "",
    "checkpoint": "",
    "key": "",
    "owner-keys": "",
}
_OF_NETWORK = {"adjacency", "target_bounds", "source_bounds"}


@dataclass(frozen=True)
class AllocationSettings:
    """The settings of a run of an allocation.

    Attributes
    ----------
    coordinator : AllocationCoordinator
        The coordinator.
    timeout : float
        Seconds to wait for answers in a round.
    n_attempts : int
        How often a node is asked.
    output, checkpoint : Path or None
        Files that are written.
    """

    coordinator: AllocationCoordinator
    timeout: float
    n_attempts: int
    output: Path | None
    checkpoint: Path | None

    @property
    def goal(self) -> str:
        """Return the goal of the run, in words."""
        n_targets, n_sources = self.coordinator.network.shape
        return f"an allocation of {n_targets} targets and {n_sources} sources"

    @property
    def n_done(self) -> int:
        """Return how many rounds were made."""
        return self.coordinator.n_iter

    def about(self) -> list[str]:
        """Return lines that an operator should read before the first message."""
        return [
            self.goal,
            "messages of nodes without an epsilon are NOT PRIVATE: many of them reveal utilities",
        ]

    def run(self, carrier: Carrier, checkpoint: Path | None) -> AllocationAgreement:
        """Run the rounds, and return the result."""
        return run_allocation(
            carrier,
            self.coordinator,
            timeout=self.timeout,
            n_attempts=self.n_attempts,
            checkpoint=checkpoint,
        )

    def outcome(self, found: AllocationAgreement) -> tuple[str, dict[str, Any]]:
        """Return the result in words, and as arrays for a file."""
        network = self.coordinator.network
        arrays = {"plan": found.plan, "prices": found.prices}
        arrays |= {"targets": network.targets.nodes, "sources": network.targets.neighbours}
        told = f"primal residual {found.primal_residual:.3g}, rounds: {found.n_iter}"
        return told, arrays

    def record(self, found: AllocationAgreement) -> str:
        """Return the record of the messages, as JSON."""
        told: dict[str, Any] = {"owners": list(addresses(self.coordinator.network))}
        told |= {"n_rounds": found.n_iter, "rejected": dict(self.coordinator.rejected)}
        legs = [asdict(crossing) for crossing in self.coordinator.traffic]
        return json.dumps(told | {"legs": legs}, indent=1)


def read_node(config: Mapping[str, Any]) -> OwnerSettings:
    """Make the node that a SuperNode's configuration describes, or raise a SettingsError.

    The guide to allocations has a table of the keys.
    """
    given = values.checked(config, _NODE, "the SuperNode's configuration")
    role, _, index = given["name"].partition(" ")
    if role not in ROLES or not index.isdecimal():
        raise SettingsError(
            f"name must be 'target' or 'source' and an index, got {given['name']!r}."
        )
    if not given["state"]:
        raise SettingsError(
            "state= must be a file: a node that forgets its last round cannot answer the next one."
        )
    if given["data"] and given["ledger"] and not given["epsilon"]:
        raise SettingsError(
            "epsilon must be above 0: there are utilities, and a ledger that answers without noise "
            "would not be charged to. If the utilities are no secret, give no ledger."
        )
    bounds = values.numbers_in(given["bounds"], "bounds")
    if len(bounds) != 2:
        raise SettingsError(f"bounds must be the least and the largest amount, got {bounds}.")
    neighbours = values.whole_numbers_in(given["neighbours"], "neighbours") or []
    state, outcome = values.path_in(given, "state"), values.path_in(given, "outcome")
    with values.readable():
        node = AllocationNode(
            role,
            int(index),
            neighbours,
            (bounds[0], bounds[1]),
            _utility_in(given, len(neighbours)),
            privacy_in(given),
            state=state,
            key=values.key_in(given),
            coordinator_key=given["coordinator-key"] or None,
        )
    data = f"utilities of {len(neighbours)} edges" if given["data"] else "no utilities to hide"
    unit, epsilon = "node" if given["protect"] == "node" else "edge", node.epsilon or 0.0
    return OwnerSettings(node.address, state, outcome, node, data, node.event, unit, epsilon)


def read_allocation(config: Mapping[str, Any]) -> AllocationSettings:
    """Make the coordinator that a run's configuration describes, or raise a SettingsError.

    The guide to allocations has a table of the keys.
    """
    given = values.checked(config, _RUN, "the run's configuration")
    network = read_network(Path(given["network"])) if given["network"] else _network_in(given)
    with values.readable():
        coordinator = AllocationCoordinator(
            make_network(**network),
            n_rounds=given["rounds"],
            eta=float(given["eta"]),
            relaxation=float(given["relaxation"]),
            tol=float(given["tol"]) or None,
            average_from=given["average-from"] or None,
            nodes=values.publics_in(given),
            key=values.key_in(given),
        )
    timeout, n_attempts = values.checked_timeout(given), given["n-attempts"]
    output, checkpoint = values.files_of_run(given)
    return AllocationSettings(coordinator, timeout, n_attempts, output, checkpoint)


def read_network(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file that holds a network."""
    network = values.loaded(path, "network")
    if isinstance(network, np.ndarray) or set(network) != _OF_NETWORK:
        raise SettingsError(f"network: {path} must hold {', '.join(sorted(_OF_NETWORK))} (.npz).")
    return network


def _network_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network given by texts, such as ``0 0, 0 1`` for edges and ``0, 2`` for bounds."""
    pairs = [edge.split() for edge in values.names_in(given["edges"], "network or edges")]
    if not all(len(pair) == 2 and "".join(pair).isdecimal() for pair in pairs):
        raise SettingsError("edges must be pairs of indices, of a target and of a source.")
    edges = np.array(pairs, dtype=np.int64)
    adjacency = np.zeros(edges.max(axis=0) + 1)
    adjacency[tuple(edges.T)] = 1.0
    network = {"adjacency": adjacency}
    for side in ("target", "source"):
        bounds = np.array(values.numbers_in(given[f"{side}-bounds"], f"{side}-bounds"))
        if bounds.size % 2:
            raise SettingsError(f"{side}-bounds must be pairs, of a least and a largest amount.")
        network[f"{side}_bounds"] = bounds if bounds.size == 2 else bounds.reshape(-1, 2)
    return network


def _utility_in(given: Mapping[str, Any], n_edges: int) -> Any:
    if not given["data"] and not given["epsilon"]:
        return LinearUtility(np.zeros(n_edges))
    path, family = Path(given["data"]), given["utility"]
    if family not in FAMILIES:
        raise SettingsError(f"utility must be one of {', '.join(FAMILIES)}, got {family!r}.")
    data = values.loaded(path, "data")
    utilities = None if isinstance(data, np.ndarray) else data.get("utilities")
    if utilities is None or utilities.dtype.kind not in "fiu" or utilities.shape != (n_edges,):
        raise SettingsError(f"data: {path} must hold an array utilities (.npz), one per neighbour.")
    utilities, scale = utilities.astype(np.float64), np.full(n_edges, float(given["utility-scale"]))
    return make_utility(family, utilities, scale)


def privacy_in(given: Mapping[str, Any]) -> NodePrivacy | None:
    """Return the budget that a configuration describes, None without an epsilon."""
    if not given["epsilon"]:
        return None
    marginals = values.numbers_in(given["marginals"], "marginals")
    if len(marginals) != 2:
        raise SettingsError(
            "marginals must be the least and the largest possible marginal utility, got "
            f"{given['marginals']!r}."
        )
    scale = float(given["utility-scale"])
    return NodePrivacy(
        float(given["epsilon"]),
        (marginals[0], marginals[1]),
        n_rounds=given["rounds"],
        delta=float(given["delta"]),
        largest_scale=scale if given["utility"] == "log" else 0.0,
        curvature=scale if given["utility"] == "quadratic" else 0.0,
        protect=given["protect"],
        mechanism=given["mechanism"],
        ledger=PrivacyLedger.open(given["ledger"]) if given["ledger"] else None,
    )
