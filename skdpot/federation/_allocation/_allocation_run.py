"""A coordinator's part in a run over a carrier: a greeting, rounds, and the agreement."""

import numpy as np

from .._legs import FederationError, Leg
from .._wire import Packet
from ._allocation_coordinator import (
    AllocationCoordinator,
    addresses,
    edges_of,
    neighbours_of,
    side_of,
)
from ._allocation_messages import ROLES, AllocationMessage

_AGAIN = "Run it again to go on."


class AllocationRun:
    """Rounds of a coordinator as messages, for any carrier.

    Every run begins with a greeting, which checks nodes that were restarted. A round is repeated
    until all nodes have answered: a node repeats the same answer.

    Parameters
    ----------
    coordinator : AllocationCoordinator
        The coordinator, possibly after earlier rounds.
    last : int
        The round to stop after.
    n_attempts : int
        How often a node is asked before the run stops.

    Attributes
    ----------
    finished : bool
        Whether nothing is left to be asked.
    """

    def __init__(self, coordinator: AllocationCoordinator, last: int, n_attempts: int) -> None:
        self._coordinator, self._last, self._n_attempts = coordinator, last, n_attempts
        self._sides = {role: side_of(coordinator.network, role) for role in ROLES}
        self._nodes = addresses(coordinator.network)
        self._answers: dict[str, AllocationMessage] = {}
        self._leg: Leg | None = self._hello()

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to be asked."""
        return self._leg is None

    @property
    def place(self) -> tuple[str, bool, int]:
        """Return a value that changes whenever a new checkpoint is due."""
        is_greeted = self._leg is None or self._leg.kind != "hello"
        return self._coordinator.session, is_greeted, self._coordinator.n_iter

    def checkpoint(self) -> bytes:
        """Return the coordinator's checkpoint."""
        return self._coordinator.checkpoint()

    def messages(self) -> dict[str, bytes]:
        """Return the messages to send now, to all nodes that have not answered."""
        return {} if self._leg is None else self._leg.messages(self._coordinator.key)

    def receive(self, name: str, data: bytes) -> None:
        """Accept data from a node; invalid or late data are counted, and nothing raises."""
        cause: str | None = "late"
        if self._leg is not None:
            public = self._coordinator.publics.get(name)
            cause = self._leg.receive(name, data, public, self._wrong)
        if cause:
            self._coordinator.rejected[cause] += 1

    def advance(self) -> None:
        """Continue with the next leg, or repeat the present one.

        Raises a FederationError if nodes do not answer.
        """
        leg = self._leg
        if leg is None or (leg.missing and leg.n_tries < self._n_attempts):
            return
        if leg.missing:
            leg.n_tries = 0
            reasons = [f"{name} ({why.rstrip('.')})" for name, why in leg.why.items()]
            raise FederationError(
                f"{len(reasons)} of {len(self._nodes)} nodes refused or did not answer: "
                f"{', '.join(reasons)}. {_AGAIN}",
                leg.why,
            )
        self._coordinator.traffic.append(leg.crossing(self._coordinator.n_iter, ""))
        if leg.kind == "round":
            sides = [
                {self._nodes[name][1]: sent for name, sent in self._answers.items()
                 if self._nodes[name][0] == role}
                for role in ROLES
            ]  # fmt: skip
            self._coordinator.observe(*sides)
        self._leg = None if leg.kind == "finish" else self._next()

    # ------------------------------------------------------------------------------ messages

    def _hello(self) -> Leg:
        return self._leg_of("hello", {}, {})

    def _next(self) -> Leg | None:
        coordinator = self._coordinator
        if coordinator.finished:
            return self._finish()
        if coordinator.n_iter >= self._last:
            return None
        told, self._answers = coordinator.announce(), {}
        rates = {"eta": told.eta, "shift": told.shift, "relaxation": told.relaxation}
        arrays = {
            name: {"amounts": np.array(list(coordinator.incoming(*node).amounts.values()))}
            for name, node in self._nodes.items()
        }
        return self._leg_of("round", rates, arrays, told.round)

    def _finish(self) -> Leg:
        found, sources = self._coordinator.result(), self._coordinator.network.sources
        arrays = {}
        for name, (role, node) in self._nodes.items():
            values = {"plan": found.plan, "prices": found.prices}
            if role == "source":
                values = {key: array[sources.positions] for key, array in values.items()}
            edges = edges_of(self._sides[role], node)
            arrays[name] = {key: array[edges] for key, array in values.items()}
        return self._leg_of("finish", {}, arrays, self._coordinator.n_iter)

    def _leg_of(
        self,
        kind: str,
        fields: dict[str, float],
        arrays: dict[str, dict[str, np.ndarray]],
        number: int = 0,
    ) -> Leg:
        session = self._coordinator.session
        return Leg(
            kind,
            {
                name: Packet(
                    kind, session, number, "", "", fields | {"node": name}, arrays.get(name, {})
                )
                for name in self._nodes
            },
        )

    def _wrong(self, name: str, packet: Packet) -> tuple[str, str] | None:
        """Accept the content of an answer, or return what is wrong with it."""
        role, node = self._nodes[name]
        why = None
        if packet.kind == "welcome":
            why = self._unwelcome(name, packet)
        elif packet.kind == "answer":
            amounts = packet.arrays.get("amounts")
            neighbours = neighbours_of(self._sides[role], node)
            if (
                amounts is None
                or amounts.dtype != np.float64
                or amounts.shape != (len(neighbours),)
            ):
                why = "its answer has not one amount for each edge"
            else:
                self._answers[name] = AllocationMessage(
                    packet.round, dict(zip(neighbours, amounts.tolist(), strict=True))
                )
        return ("malformed", why) if why else None

    def _unwelcome(self, name: str, packet: Packet) -> str | None:
        """Return why a node does not fit the network or cannot make all rounds, or None."""
        role, node = self._nodes[name]
        side = self._sides[role]
        neighbours = packet.arrays.get("neighbours")
        if neighbours is None or neighbours.tolist() != neighbours_of(side, node):
            return "it has other neighbours than in the network"
        if packet.fields.get("bounds") != [side.lower[node], side.upper[node]]:
            return "it has other bounds than in the network"
        most = packet.fields.get("n_rounds")
        if most is not None and (type(most) is not int or most < self._last):
            left = most - self._coordinator.n_iter if type(most) is int else 0
            return (
                f"there are {self._last - self._coordinator.n_iter} rounds to make, and its budget "
                f"is for {left} more: give NodePrivacy the coordinator's n_rounds, or run fewer"
            )
        return None
