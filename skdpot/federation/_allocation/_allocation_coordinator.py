"""The coordinator of an allocation, which sees only the nodes' messages."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from skdpot.transport.consensus import (
    BipartiteNetwork,
    Coordinator,
    Side,
    check_feasible,
    check_rates,
    nearest_amounts,
    repair,
    starting_amounts,
)

from .._keys import SigningKey, checked_publics
from .._legs import Crossing
from .._session_names import new_session
from .._wire import Packet, pack, unpack
from ._allocation_messages import (
    ROLES,
    AllocationMessage,
    Announcement,
    address_of,
    check_role,
    read_amounts,
)

_HISTORY = ("n_iter", "eta", "shift", "primal_residual", "dual_residual")


@dataclass(frozen=True, eq=False)
class AllocationAgreement:
    """Result of an allocation, computed from the nodes' messages.

    It is a function of the messages and of public bounds. If all nodes sent noisy messages, it is
    as private as these, and costs nothing more.

    Parameters
    ----------
    plan : ndarray of shape (n_edges,)
        The feasible plan nearest to `agreed`, in the order of the targets.
    agreed : ndarray of shape (n_edges,)
        Mean of the amounts that both ends sent; feasible only in the limit.
    prices : ndarray of shape (n_edges,)
        Prices that targets pay and sources receive.
    primal_residual, dual_residual : float
        Last measured Euclidean norms of the difference of the two sides' amounts, and of eta times
        the last change of their mean.
    eta : float
        Penalty that the next round would have.
    n_iter : int
        Number of rounds.
    converged : bool
        Whether both residuals were small enough to stop.
    history : dict of str to ndarray
        ``n_iter``, ``eta``, ``shift``, ``primal_residual`` and ``dual_residual`` of the rounds that
        were checked.

    See Also
    --------
    AllocationCoordinator.result : Returns one.

    Examples
    --------
    >>> from skdpot.federation import AllocationCoordinator, allocation_nodes, run_allocation
    >>> from skdpot.transport.consensus import LinearUtility, make_network
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> likes = LinearUtility([3.0, 1.0, 2.0, 1.0])
    >>> nodes = allocation_nodes(network, likes, likes)
    >>> agreement = run_allocation(nodes, AllocationCoordinator(network, n_rounds=200))
    >>> agreement.plan.round(3) + 0.0
    array([1., 0., 0., 1.])
    """

    plan: np.ndarray
    agreed: np.ndarray
    prices: np.ndarray
    primal_residual: float
    dual_residual: float
    eta: float
    n_iter: int
    converged: bool
    history: dict[str, np.ndarray]


class AllocationCoordinator:
    """Coordinator of an allocation: announces rounds, passes messages on, computes the plan.

    It knows the public network, and sees only the messages of the nodes. Penalties, shifts and the
    end of the iteration depend only on these.

    Parameters
    ----------
    network : BipartiteNetwork
        Edges and bounds; ``skdpot.transport.consensus.make_network``.
    n_rounds : int
        Largest number of rounds.
    eta : float, default=1.0
        Penalty of a squared difference of amounts in the first round.
    relaxation : float, default=1.8
        Factor of over-relaxation, in (0, 2); 1 is the plain iteration.
    adaptive : bool, default=True
        Whether eta is adapted to the residuals, in the first 300 rounds, or half of all rounds.
    shifting : bool, default=True
        Whether all prices may be shifted, in the first 100 rounds, or a quarter of all rounds.
    tol : float, default=None
        The run stops when both residuals are at most this, relative to the amounts and to the
        spread of the prices. None makes all rounds.
    check_every : int, default=20
        Interval of rounds at which residuals are checked.
    average_from : int, default=None
        First round from which agreed amounts and prices are averaged; None uses only the last
        round. Use averages for noisy messages.
    nodes : mapping of str to str, default=None
        Public keys of all nodes, by addresses such as ``"target 0"``. Then a node's answers must
        be signed with its key.
    key : SigningKey, default=None
        Key with which the coordinator signs its messages, for nodes that require it.

    Attributes
    ----------
    network : BipartiteNetwork
        As given.
    n_iter : int
        How many rounds were made.
    converged : bool
        Whether the residuals are small enough.
    publics : dict of str to str
        Public keys of the nodes, if they have any.
    key : SigningKey or None
        As given.
    session : str
        Name of this run, by which nodes distinguish it from others.
    traffic : list of Crossing
        Record of the messages.
    rejected : Counter of str
        Number of refused messages, by cause: ``"late"``, ``"repeated"``, ``"malformed"``,
        ``"refusal"``, ``"unknown sender"``, ``"not signed"``.

    Raises
    ------
    ValueError
        If a parameter is not valid, or the network has no feasible plan.

    References
    ----------
    J. Hughes and J. Chen, "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
    for Resource Allocation", Algorithm 1, with over-relaxation and an adaptive penalty.

    Examples
    --------
    >>> from skdpot.federation import AllocationCoordinator
    >>> from skdpot.transport.consensus import make_network
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> coordinator = AllocationCoordinator(network, n_rounds=100, eta=2.0)
    >>> coordinator.announce()
    Announcement(round=1, eta=2.0, shift=0.0, relaxation=1.8)
    >>> coordinator.incoming("source", 1)
    AllocationMessage(round=0, amounts={0: 0.5, 1: 0.5})
    """

    def __init__(
        self,
        network: BipartiteNetwork,
        *,
        n_rounds: int,
        eta: float = 1.0,
        relaxation: float = 1.8,
        adaptive: bool = True,
        shifting: bool = True,
        tol: float | None = None,
        check_every: int = 20,
        average_from: int | None = None,
        nodes: Mapping[str, str] | None = None,
        key: SigningKey | None = None,
    ) -> None:
        check_rates(eta, relaxation, tol)
        if n_rounds < 1 or check_every < 1:
            raise ValueError(
                f"n_rounds={n_rounds} and check_every={check_every} must be at least 1."
            )
        check_feasible(network)
        self.network = network
        self.n_iter = 0
        self.converged = False
        self._n_rounds = n_rounds
        self._relaxation = float(relaxation)
        self._tol = tol
        self._check_every = check_every
        self._average_from = average_from
        self._rates = Coordinator(network, float(eta), adaptive, shifting, n_rounds)
        start = starting_amounts(network)
        # Each in the order of its own side.
        self._targets, self._sources = start, start[network.sources.positions]
        self._prices = np.zeros_like(start)
        self._sums: tuple[np.ndarray, np.ndarray] | None = None
        self._rows: list[tuple] = []
        self.publics = {} if nodes is None else checked_publics(nodes)
        if nodes is not None and set(nodes) != set(addresses(network)):
            raise ValueError("nodes must have a public key of each node, such as 'target 0'.")
        self.key = key
        self.session = new_session()
        self.traffic: list[Crossing] = []
        self.rejected: Counter[str] = Counter()
        rules = eta, relaxation, adaptive, shifting, n_rounds, tol, check_every, average_from
        self._digest = _digest(network, rules)

    @property
    def is_new(self) -> bool:
        """Return whether the run has not begun: there was no round and no answer."""
        return not (self.n_iter or self.traffic)

    @property
    def digest(self) -> str:
        """Return a digest of all parameters that a checkpoint depends on."""
        return self._digest

    @property
    def finished(self) -> bool:
        """Return whether the run is over."""
        return self.converged or self.n_iter >= self._n_rounds

    @property
    def n_left(self) -> int:
        """Return the largest number of further rounds."""
        return self._n_rounds - self.n_iter

    def announce(self) -> Announcement:
        """Return the announcement of the next round, for all nodes.

        Returns
        -------
        Announcement
            Its number, penalty, shift and relaxation.

        Raises
        ------
        RuntimeError
            If there is no other round.
        """
        if self.finished:
            raise RuntimeError(f"there is no other round after {self.n_iter}.")
        rates = self._rates
        return Announcement(self.n_iter + 1, rates.eta, rates.shift, self._relaxation)

    def incoming(self, role: str, node: int) -> AllocationMessage:
        """Return the amounts that a node's neighbours sent to it in the last round.

        Parameters
        ----------
        role : {"target", "source"}
            Its role.
        node : int
            Its index.

        Returns
        -------
        AllocationMessage
            An amount by every neighbour; before the first round, the amounts that all start from.
        """
        sent = self._sources if role == "target" else self._targets
        side = side_of(self.network, role)
        amounts = sent[side.positions[edges_of(side, node)]].tolist()
        neighbours = neighbours_of(side, node)
        return AllocationMessage(self.n_iter, dict(zip(neighbours, amounts, strict=True)))

    def observe(
        self, targets: Mapping[int, AllocationMessage], sources: Mapping[int, AllocationMessage]
    ) -> None:
        """Take note of all messages of the round that was announced.

        Parameters
        ----------
        targets, sources : dict of int to AllocationMessage
            The message of each node, by its index.

        Raises
        ------
        RuntimeError
            If there was no other round.
        ValueError
            If a node's message is missing, of another round or from no node, or does not fit the
            node's edges. The coordinator is then as it was.
        """
        announced = self.announce()
        number = announced.round
        sent = self._collect("target", targets, number), self._collect("source", sources, number)
        last = self._targets, self._sources
        # The nodes changed their prices by the messages of the last round before they answered.
        received = last[1][self.network.targets.positions]
        step = 0.5 * announced.relaxation * announced.eta
        self._prices = self._prices + (step * (last[0] - received) + announced.shift)
        self._rates.observe(number, *sent, *last, self._prices)
        self._targets, self._sources = sent
        self.n_iter = number
        if self._average_from is not None and number >= self._average_from:
            agreed, prices = self._agreed(), self._prices
            sums = self._sums
            self._sums = (agreed, prices) if sums is None else (sums[0] + agreed, sums[1] + prices)
        if number % self._check_every == 0 or number == self._n_rounds:
            self._check()

    def result(self) -> AllocationAgreement:
        """Return the agreement so far.

        Returns
        -------
        AllocationAgreement
            By the messages of the last round, or by the average of those since `average_from`.
        """
        agreed, prices = self._agreed(), self._prices.copy()
        if self._sums is not None and self._average_from is not None:
            count = self.n_iter - max(self._average_from, 1) + 1
            agreed, prices = self._sums[0] / count, self._sums[1] / count
        rates = self._rates
        columns = np.array(self._rows, dtype=np.float64).reshape(-1, len(_HISTORY)).T
        history = dict(zip(_HISTORY, columns, strict=True))
        history["n_iter"] = history["n_iter"].astype(np.int64)
        return AllocationAgreement(
            plan=repair(self.network, agreed),
            agreed=agreed,
            prices=prices,
            primal_residual=rates.primal_residual,
            dual_residual=rates.dual_residual,
            eta=rates.eta,
            n_iter=self.n_iter,
            converged=self.converged,
            history=history,
        )

    def checkpoint(self) -> bytes:
        """Return the state from which a new coordinator with the same parameters continues.

        Returns
        -------
        bytes
            For `restore`. It holds only what follows from messages.
        """
        sums = self._sums or (np.zeros(0), np.zeros(0))
        names = ("targets", "sources", "prices", "summed amounts", "summed prices")
        values = (self._targets, self._sources, self._prices, *sums)
        fields = {
            "settings": self._digest,
            "session": self.session,
            "n_iter": self.n_iter,
            "converged": self.converged,
            # JSON has no infinity, which residuals are at first.
            "rates": {name: repr(float(x)) for name, x in self._rates.state().items()},
            "rows": [[repr(float(x)) for x in row] for row in self._rows],
        }
        return pack(
            Packet("allocation", fields=fields, arrays=dict(zip(names, values, strict=True)))
        )

    def restore(self, checkpoint: bytes) -> None:
        """Go on from where another coordinator was.

        Parameters
        ----------
        checkpoint : bytes
            From `checkpoint`.

        Raises
        ------
        ValueError
            If it is invalid, or from a coordinator with another network or other parameters.
        """
        packet = unpack(checkpoint)
        fields, arrays = packet.fields, packet.arrays
        if packet.kind != "allocation" or fields.get("settings") != self._digest:
            raise ValueError("the checkpoint is of a coordinator with other parameters.")
        self.session = fields["session"]
        self.n_iter, self.converged = fields["n_iter"], fields["converged"]
        self._rates.restore({name: float(x) for name, x in fields["rates"].items()})
        self._rows = [(int(float(n)), *map(float, row)) for n, *row in fields["rows"]]
        self._targets, self._sources = arrays["targets"], arrays["sources"]
        self._prices = arrays["prices"]
        sums = arrays["summed amounts"], arrays["summed prices"]
        averages = self._average_from is not None and self.n_iter >= self._average_from
        self._sums = sums if averages else None

    def _agreed(self) -> np.ndarray:
        return 0.5 * (self._targets + self._sources[self.network.targets.positions])

    def _collect(
        self, role: str, messages: Mapping[int, AllocationMessage], number: int
    ) -> np.ndarray:
        """Return the amounts of the messages of a side in its order."""
        side = side_of(self.network, role)
        strangers = [node for node in messages if node not in range(side.n_nodes)]
        if strangers:
            raise ValueError(f"there is no {role} {strangers[0]!r}, which sent a message.")
        parts = []
        for node in range(side.n_nodes):
            if node not in messages:
                raise ValueError(f"there is no message of {role} {node} in round {number}.")
            subject = f"the message of {role} {node}"
            neighbours = neighbours_of(side, node)
            parts.append(read_amounts(messages[node], number, neighbours, subject))
        amounts = np.concatenate(parts) if parts else np.empty(0)
        # Honest messages do not change. No node has more influence than its bounds allow.
        return nearest_amounts(side, amounts)

    def _check(self) -> None:
        """Record the round in the history, and decide whether it is the last one."""
        rates = self._rates
        self._rows.append(
            (self.n_iter, rates.eta, rates.shift, rates.primal_residual, rates.dual_residual)
        )
        if self._tol is not None:
            sent = self._targets, self._sources
            self.converged = rates.has_settled(self._tol, *sent, self._prices)


def addresses(network: BipartiteNetwork) -> dict[str, tuple[str, int]]:
    """Return roles and indices of all nodes, by the names that carriers use."""
    return {
        address_of(role, node): (role, node)
        for role, n_nodes in zip(ROLES, network.shape, strict=True)
        for node in range(n_nodes)
    }


def side_of(network: BipartiteNetwork, role: str) -> Side:
    """Return the side of a network with this role."""
    check_role(role)
    return network.targets if role == "target" else network.sources


def edges_of(side: Side, node: int) -> slice:
    """Return the positions of a node's edges in the order of its side."""
    return slice(side.indptr[node], side.indptr[node + 1])


def neighbours_of(side: Side, node: int) -> list[int]:
    """Return the indices of a node's neighbours."""
    return side.neighbours[edges_of(side, node)].tolist()


def _digest(network: BipartiteNetwork, rules: tuple) -> str:
    digest = hashlib.sha256(repr(rules).encode())
    for side in (network.targets, network.sources):
        for name in ("indptr", "neighbours", "lower", "upper"):
            values = np.asarray(getattr(side, name), dtype=np.float64)
            digest.update(f"{name} {len(values)} ".encode() + values.tobytes())
    return digest.hexdigest()
