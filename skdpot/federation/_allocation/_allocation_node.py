"""A node of an allocation: a target or a source with a private utility."""

import hashlib
import math
import secrets
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import DpEvent
from skdpot.privacy.ledger import PrivacyLedger
from skdpot.transport.consensus import LinearUtility, QuadraticUtility, SideState, check_utility

from .._keys import SigningKey
from .._state_file import Remembering, is_only_answer
from .._wire import Arrays, Packet, Refusal, pack, unpack
from ._allocation_messages import (
    AllocationMessage,
    Announcement,
    address_of,
    check_announcement,
    check_role,
    read_amounts,
)
from ._input_release import InputRelease
from ._node_privacy import NodePrivacy, message_noise, plan_of, solver_error
from ._node_sessions import NodeSessions
from ._node_work import NodeWork, digest_of_round, only_side

# Attributes of `SideState` that change from round to round.
_STATE = ("agreed", "prices", "multipliers")
# A plan may exceed a node's bounds by this share of the upper bound.
_PRECISION = 1e-9


class AllocationNode(Remembering):
    """A target or a source of an allocation, which sees only its own utility and messages.

    In every round it reads the last messages of its neighbours. It answers with the amounts that
    are best for itself, close to the amounts agreed so far. Without `privacy`, anybody who sees
    enough answers can compute its utility. With `privacy`, noise is added to every answer, and the
    node itself continues from the noisy answer. So everything that it stores, except its utility,
    was released. Its privacy does not depend on the messages of others.

    A node cannot be copied or pickled, because a copy would contain its utility and spend its
    budget again.

    Parameters
    ----------
    role : {"target", "source"}
        Targets pay the prices, and sources are paid them.
    name : hashable
        Name among the nodes of its role: for a coordinator, its index.
    neighbours : sequence of hashable
        Names of the nodes of the other role with which it has an edge. In ascending order, the
        answers are bit-identical to those of ``skdpot.transport.consensus.consensus``.
    bounds : tuple of two float
        Smallest and largest total amount that it receives or gives. Public.
    utility : ConcaveUtility
        Utility of its edges, in the order of the neighbours; a class of
        ``skdpot.transport.consensus`` such as ``LinearUtility``. Private.
    privacy : NodePrivacy, default=None
        None sends exact amounts.
    state : str or Path, default=None
        A file in which the node keeps its answers. It is as sensitive as the utility; several
        nodes may share it. It is created if it does not exist. Without it, a node that was
        restarted cannot answer the next round.
    key : SigningKey, default=None
        Key with which the node signs its answers.
    coordinator_key : str, default=None
        Public key of the coordinator. If given, the coordinator must sign its messages.

    Attributes
    ----------
    role, name, neighbours, bounds
        As given.
    n_rounds : int
        Number of answered rounds.
    outcome : dict of str to ndarray
        Final message of the coordinator: amounts of the ``"plan"`` and ``"prices"`` on the edges
        to its ``"neighbours"``.

    Raises
    ------
    TypeError
        If the utility lacks a method.
    ValueError
        If a parameter is invalid, or the utility is not as `privacy` declares.

    See Also
    --------
    AllocationCoordinator : Announces the rounds.
    run_allocation : Carries messages within a process.

    Notes
    -----
    :ref:`proof-private-messages`. Rounding errors of the solver grow with the received amounts, so
    neighbours that send very large amounts could move messages by more than their sensitivity. The
    noise is scaled to the sensitivity plus twice a bound on these errors. This bound depends only
    on released and declared values.

    References
    ----------
    J. Hughes and J. Chen, "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
    for Resource Allocation", Algorithms 1 and 2, with the corrections of :ref:`differences`.

    Examples
    --------
    >>> from skdpot.federation import AllocationMessage, AllocationNode, Announcement
    >>> from skdpot.transport.consensus import LinearUtility
    >>> node = AllocationNode("target", 0, [0, 1], (0.0, 1.0), LinearUtility([3.0, 1.0]))
    >>> node
    AllocationNode('target', 0, n_neighbours=2, bounds=(0.0, 1.0), epsilon=None)
    >>> start = AllocationMessage(round=0, amounts={0: 0.5, 1: 0.5})
    >>> node.answer(Announcement(round=1, eta=4.0, shift=0.0, relaxation=1.0), start).amounts
    {0: 0.75, 1: 0.25}
    """

    _called = "node"

    def __init__(
        self,
        role: str,
        name: Hashable,
        neighbours: Sequence[Hashable],
        bounds: tuple[float, float],
        utility: Any,
        privacy: NodePrivacy | None = None,
        *,
        state: Any = None,
        key: SigningKey | None = None,
        coordinator_key: str | None = None,
    ) -> None:
        check_role(role)
        self.role = role
        self.name = name
        self.neighbours = tuple(neighbours)
        if len(set(self.neighbours)) != len(self.neighbours):
            raise ValueError("neighbours must be different from each other.")
        self.bounds = _checked_bounds(bounds)
        check_utility(utility, len(self.neighbours))
        self._utility = utility
        self._privacy = privacy
        self._plan: ReleasePlan | None = None
        self._input: InputRelease | None = None
        self._input_digest = ""
        # Its result, which is released once, and the token of the charge.
        self._released: np.ndarray | None = None
        self._input_token = ""
        if privacy is not None:
            self._plan, self._input = plan_of(
                privacy, utility, self.bounds, len(self.neighbours), type(self).__name__
            )
            if self._input is not None:
                self._input_digest = self._input.digest(self.neighbours)
            self._plan.check(privacy.ledger)
        self.outcome: Arrays = {}
        self._sessions, self._work = NodeSessions(), self._new_work()
        super().__init__(state, key, coordinator_key)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.role!r}, {self.name!r}, "
            f"n_neighbours={len(self.neighbours)}, bounds={self.bounds}, epsilon={self.epsilon})"
        )

    @property
    def address(self) -> str:
        """Return the node's name among all nodes, for carriers: its role and its name."""
        return address_of(self.role, self.name)

    @property
    def n_rounds(self) -> int:
        """Return how many rounds it answered."""
        return self._work.n_rounds

    @property
    def epsilon(self) -> float | None:
        """Return the total budget of all its messages, or None without privacy."""
        return None if self._plan is None else float(self._plan.release.epsilons[0])

    @property
    def n_left(self) -> int | None:
        """Return the number of rounds left in its budget, or None if rounds cost nothing."""
        return None if self._most_rounds is None else self._most_rounds - self.n_rounds

    @property
    def _most_rounds(self) -> int | None:
        """Return how many rounds there may be in a session, None for any number."""
        if self._privacy is None or self._input is not None:
            return None
        return self._privacy.n_rounds

    @property
    def event(self) -> DpEvent | None:
        """Return the event of all its messages, charged before the first; None without privacy."""
        return None if self._plan is None else self._plan.event

    @property
    def prices(self) -> dict[Any, float]:
        """Return the prices of the last round by neighbour: a function of the messages."""
        return self._on_edges("prices")

    @property
    def agreed(self) -> dict[Any, float]:
        """Return the agreed amounts of the last answer: a function of the messages."""
        return self._on_edges("agreed")

    def answer(self, announcement: Announcement, incoming: AllocationMessage) -> AllocationMessage:
        """Read the messages of the last round, and return the amounts that it wants now.

        Parameters
        ----------
        announcement : Announcement
            Announcement of the next round, or of the last answered round, for which the node
            repeats its answer.
        incoming : AllocationMessage
            Messages of its neighbours in the previous round, by neighbour; in the first round, the
            public starting amounts of the edges.

        Returns
        -------
        AllocationMessage
            An amount for every neighbour, within the node's bounds. With privacy it is noisy, and
            may be published.

        Raises
        ------
        RuntimeError
            If the node has answered all rounds of its budget.
        BudgetExceededError
            If the node's ledger does not allow its messages. No message is sent in this case.
        ValueError
            If the announcement or the incoming message belongs to another round, lacks a neighbour
            or has an unknown one, or has numbers that are not finite; or if an answered round is
            announced with other numbers. The node is then unchanged.
        """
        with self._lock, self._remembering():
            received = self._check(announcement, incoming)
            if self.n_rounds == 0:
                self._charge()
            answer = self._answered(announcement, received)
            self._keep()
            self._settle(self._charge)
            return answer

    def _check(self, announcement: Announcement, incoming: AllocationMessage) -> np.ndarray:
        """Return the incoming amounts, if they can be answered; errors show only public values."""
        work, number = self._work, self.n_rounds + 1
        if isinstance(announcement, Announcement) and announcement.round == work.n_rounds > 0:
            number = work.n_rounds
        elif self._most_rounds is not None and number > self._most_rounds:
            raise RuntimeError(f"all {self._most_rounds} rounds of the node's budget were made.")
        check_announcement(announcement, number)
        received = read_amounts(incoming, number - 1, self.neighbours, "the incoming message")
        if number == work.n_rounds and digest_of_round(announcement, received) != work.asked:
            raise ValueError(f"round {number} was announced with other numbers before.")
        return received

    def _answered(self, announcement: Announcement, received: np.ndarray) -> AllocationMessage:
        """Return the answer to a round, which is computed once."""
        work = self._work
        if announcement.round != work.n_rounds:
            if work.state is None:
                work.state, work.sent = self._start(received), received
            if self.neighbours:
                work.sent = work.wanted(announcement, received, self._error)
            work.n_rounds, work.asked = announcement.round, digest_of_round(announcement, received)
            self._has_released = True
        return AllocationMessage(
            work.n_rounds, dict(zip(self.neighbours, work.sent.tolist(), strict=True))
        )

    # ------------------------------------------------------------------------------ messages

    def _answer(self, packet: Packet, _data: bytes) -> bytes:
        reply = pack(self._reply(packet), self._key)
        self._keep()
        if packet.kind == "round":
            self._settle(lambda: self._asking_the_ledger(self._charge))
        return reply

    def _reply(self, packet: Packet) -> Packet:
        if packet.kind not in ("hello", "round", "finish"):
            raise Refusal("there is no such message.")
        if packet.fields.get("node") != self.address:
            raise Refusal(f"the node is {self.address}.")
        if not all(type(name) is int and name >= 0 for name in self.neighbours):
            raise Refusal("the node's neighbours are not named by indices.")
        if packet.kind == "hello":
            greeted = self._sessions.greet(packet.session)
            if greeted != self._sessions:
                self._check_ledger()
            self._sessions = greeted
            return self._welcome(packet)
        if packet.kind == "finish":
            self.outcome = self._checked_outcome(packet)
            return packet.reply("done", self.address, {})
        before = self._sessions, self._work
        if packet.session != self._sessions.present:
            self._sessions, self._work = self._sessions.begin(packet.session), self._new_work()
        try:
            return self._round(packet)
        except BaseException:
            self._sessions, self._work = before
            raise

    def _welcome(self, packet: Packet) -> Packet:
        """Return the public facts about the node."""
        fields = {"n_rounds": self._most_rounds, "bounds": list(self.bounds)}
        neighbours = np.array(self._order, dtype=np.int64)
        return packet.reply("welcome", self.address, fields, {"neighbours": neighbours})

    def _round(self, packet: Packet) -> Packet:
        """Return the answer to a round that arrived as a packet, after the charge."""
        order = self._order
        try:
            rates = [float(packet.fields[name]) for name in ("eta", "shift", "relaxation")]
            arrived = dict(zip(order, self._of_edges(packet, "amounts"), strict=True))
            announcement = Announcement(packet.round, *rates)
            received = self._check(announcement, AllocationMessage(packet.round - 1, arrived))
        except (KeyError, TypeError):
            raise Refusal("the announcement of the round is invalid.") from None
        except (ValueError, RuntimeError) as error:
            raise Refusal(str(error)) from None
        if self.n_rounds == 0:
            self._refuse_second_release()
            self._asking_the_ledger(self._charge)
        sent = self._answered(announcement, received).amounts
        amounts = np.array([sent[name] for name in order], dtype=np.float64)
        return packet.reply("answer", self.address, {}, {"amounts": amounts})

    def _charge(self) -> None:
        """Charge the present session, unless it was charged before."""
        if self._plan is None or self._privacy is None:
            return
        if self._input is not None and self._released is None:
            # On file before the charge: a restarted process does not draw or pay again.
            self._released = self._input.draw(self._plan.source)
            self._input_token = f"allocation {secrets.token_hex(16)}"
            self._keep()
        token = self._sessions.token if self._input is None else self._input_token
        self._plan.charge_to(self._privacy.ledger, token=token)

    def _settle(self, pay: Callable[[], None]) -> None:
        """Charge again if the round was answered differently before: the state is a backup."""
        ledger = None if self._privacy is None else self._privacy.ledger
        if self._input is not None or not (self.has_file and isinstance(ledger, PrivacyLedger)):
            return
        beside = ledger.anchor_path or ledger.path
        path = beside.with_name(f"{beside.name}-rounds")
        answer = hashlib.sha256(self._work.sent.tobytes()).hexdigest()
        is_new = self.n_rounds == 1
        while not is_only_answer(path, self._sessions.token, self.n_rounds, answer, is_new):
            self._sessions, is_new = self._sessions.charged_anew(), True
            self._keep()
        # Also if it was charged before: a ledger with an anchor checks that it is the newest.
        pay()

    def _check_ledger(self) -> None:
        """Refuse a session that could not be charged, before other nodes are charged for it."""
        self._refuse_second_release()
        plan, privacy = self._plan, self._privacy
        if plan is not None and privacy is not None and not self._is_paid_for_good():
            self._asking_the_ledger(lambda: plan.price(privacy.ledger))

    def _is_paid_for_good(self) -> bool:
        """Tell whether the utilities were released, and charged, before."""
        ledger = None if self._privacy is None else self._privacy.ledger
        if not (self._input_token and isinstance(ledger, PrivacyLedger)):
            return False
        return any(entry.token == self._input_token for entry in ledger.entries())

    def _refuse_second_release(self) -> None:
        if self._privacy is None or self._released is not None:
            return
        if self._privacy.ledger is None:
            self._check_is_first()

    @property
    def _order(self) -> list[int]:
        """Return the indices of the neighbours in the order of messages."""
        indices: Any = self.neighbours
        return sorted(indices)

    def _checked_outcome(self, packet: Packet) -> Arrays:
        """Return the final plan and prices, if the plan is within the node's bounds."""
        if packet.session != self._sessions.present or not self.n_rounds:
            raise Refusal("nothing was asked in this session.")
        plan, prices = self._of_edges(packet, "plan"), self._of_edges(packet, "prices")
        lower, upper = self.bounds
        beyond = _PRECISION * max(upper, 1.0)
        if self.neighbours and (
            plan.min() < 0 or not lower - beyond <= plan.sum() <= upper + beyond
        ):
            raise Refusal("the agreed plan is not within the node's bounds.")
        return {"neighbours": np.array(self._order), "plan": plan, "prices": prices}

    def _of_edges(self, packet: Packet, name: str) -> np.ndarray:
        """Return an array of a message with a number for every neighbour."""
        found = packet.arrays.get(name)
        if found is None or found.dtype != np.float64 or found.shape != (len(self.neighbours),):
            raise Refusal("there is not one number for each neighbour.")
        return found

    # --------------------------------------------------------------------------------- state

    def _state(self) -> bytes:
        work = self._work
        fields: dict[str, Any] = {
            "sessions": self._sessions.as_fields(),
            "has_released": self._has_released,
            "n_rounds": work.n_rounds,
            "asked": work.asked,
            "n_words": 0 if self._plan is None else self._plan.source.n_words,
            "input_token": self._input_token,
            "input": self._input_digest,
        }
        arrays: Arrays = {} if self._released is None else {"released": self._released}
        if work.state is not None:
            arrays |= {name: getattr(work.state, name) for name in _STATE} | {"sent": work.sent}
        return pack(Packet("node state", sender=self.address, fields=fields, arrays=arrays))

    def _load(self, state: bytes) -> None:
        packet = unpack(state)
        fields, arrays, work = packet.fields, packet.arrays, self._new_work()
        before = self._released, self._input_token
        try:
            if packet.kind != "node state" or packet.sender != self.address:
                raise ValueError
            sessions = NodeSessions.from_fields(fields["sessions"])
            work.n_rounds, work.asked = int(fields["n_rounds"]), str(fields["asked"])
            # A release of another utility, or with other parameters, is not used.
            is_same = self._input_digest == fields.get("input", "")
            self._released = arrays.get("released") if is_same else None
            self._input_token = str(fields.get("input_token", "")) if is_same else ""
            if not is_same:
                sessions, work = sessions.ended(), self._new_work()
            elif "sent" in arrays:
                work.state = self._start(np.zeros(len(self.neighbours)))
                work.sent = self._of_edges(packet, "sent").copy()
                for name in _STATE:
                    getattr(work.state, name)[:] = arrays[name]
            has_released, n_words = bool(fields["has_released"]), int(fields["n_words"])
        except (KeyError, TypeError, ValueError, Refusal):
            self._released, self._input_token = before
            raise ValueError("these bytes are no state of this node.") from None
        self._sessions, self._work = sessions, work
        self._has_released = has_released or self._has_released
        if self._plan is not None and work.noise is not None:
            work.noise.n_released = work.n_rounds
            self._plan.source.skip(max(n_words - self._plan.source.n_words, 0))

    def _forget(self) -> None:
        self._sessions, self._work = NodeSessions(), self._new_work()
        self._released, self._input_token = None, ""

    # --------------------------------------------------------------------------------- rounds

    def _new_work(self) -> NodeWork:
        privacy, plan = self._privacy, self._plan
        if privacy is None or plan is None or self._input is not None:
            return NodeWork(None)
        n_edges = len(self.neighbours)
        return NodeWork(message_noise(privacy, self._utility, self.bounds, n_edges, plan.source))

    def _start(self, amounts: np.ndarray) -> SideState:
        """Return the node's state before the first round."""
        utility = self._utility
        if self._input is not None:
            assert self._released is not None
            utility = self._input.utility(self._released)
        sign = 1 if self.role == "target" else -1
        return SideState(only_side(self.bounds, len(self.neighbours)), utility, sign, amounts)

    def _error(self, state: SideState, eta: float) -> float:
        """Return a bound on the solver's error, in the l2 norm, from public numbers."""
        assert self._privacy is not None
        iterative = not isinstance(self._utility, (LinearUtility, QuadraticUtility))
        return solver_error(self._privacy, state, eta, iterative)

    def _on_edges(self, name: str) -> dict[Any, float]:
        if self._work.state is None:
            raise RuntimeError("the node has answered no round yet.")
        return dict(zip(self.neighbours, getattr(self._work.state, name).tolist(), strict=True))


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    lower, upper = (float(bound) for bound in bounds)
    if not 0 <= lower <= upper < math.inf:
        raise ValueError(
            "bounds must be finite, non-negative, and given as (smallest, largest), got "
            f"({lower:g}, {upper:g})."
        )
    return lower, upper
