"""A node of an allocation: a target or a source that keeps its utility to itself."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import DpEvent
from skdpot.privacy.random import NoiseSource, make_source
from skdpot.privacy.sensitivity import message_error
from skdpot.releases import MessageReleases, quiet
from skdpot.transport.consensus import LinearUtility, LogUtility, QuadraticUtility, Side, SideState

from ._allocation_messages import (
    AllocationMessage,
    Announcement,
    check_announcement,
    check_role,
    read_amounts,
)

_METHODS = ("value", "derivative", "second_derivative", "take")


@dataclass(frozen=True)
class NodePrivacy:
    """Privacy of all messages of a node, and what is declared of its utilities.

    Parameters
    ----------
    epsilon : float
        Total budget of the node for all rounds, above 0.
    marginal_bounds : (float, float)
        Public, and required: the least and the largest marginal utility that there may be, of any
        amount from 0 to the node's upper bound. For linear utilities, the range of their slopes. A
        utility outside of it is refused. Noise is scaled to the width.
    n_rounds : int, default=100
        How many messages the node sends, at most. The budget is divided among them.
    delta : float, default=0.0
        With 0, noise whose density falls exponentially with its Euclidean norm; above 0, Gaussian
        noise.
    utility_range : float, default=None
        By how much marginal utilities of *one* amount may differ, where that is known to be less
        than the width: :func:`~skdpot.privacy.sensitivity.marginal_bounds`. None is the
        width.
    largest_scale : float, default=0.0
        Of logarithmic utilities, what scales are at most, as declared.
    curvature : float, default=0.0
        What minus the second derivative of every utility is at least.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at this end, or all utilities of the node.
    random_state : None, int, RandomState or NoiseSource, default=None
        Where the node's noise comes from; None is the cryptographic source. Two nodes must not
        share a seed.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        The node's own. All its messages are charged to it before the first.

    See Also
    --------
    AllocationNode : Checks what is declared, and spends the budget.
    skdpot.releases.MessageReleases : The noise of many nodes at once.

    Examples
    --------
    >>> from skdpot.federation import NodePrivacy
    >>> NodePrivacy(1.0, marginal_bounds=(1.0, 5.0), n_rounds=50, delta=1e-6).protect
    'parameter'
    """

    epsilon: float
    marginal_bounds: tuple[float, float]
    n_rounds: int = 100
    delta: float = 0.0
    utility_range: float | None = None
    largest_scale: float = 0.0
    curvature: float = 0.0
    protect: str = "parameter"
    random_state: Any = field(default=None, repr=False)
    ledger: Any = field(default=None, repr=False)


class AllocationNode:
    """A target or a source of an allocation, which sees its own utility and messages to itself.

    In every round it absorbs what its neighbours sent in the last one, and answers with the amounts
    that are best for itself, near those that are agreed on so far. Without `privacy`, whoever sees
    enough of its answers can compute its utility. With it, noise is added to every answer, and the
    node itself goes on from the noisy answer: all that it holds besides its utility was released.
    Its privacy does not depend on what others send or announce.

    A node cannot be copied or pickled: a copy would carry its utility elsewhere, and spend its
    budget once more.

    Parameters
    ----------
    role : {"target", "source"}
        Targets pay the prices, and sources are paid them.
    name : hashable
        Its name among the nodes of its role: its index, for a coordinator.
    neighbours : sequence of hashable
        Names of the nodes of the other role that it has an edge with; ascending, if the answers are
        to be those of ``skdpot.transport.consensus.consensus`` bit by bit.
    bounds : tuple of two float
        Smallest and largest amount that it receives, or gives, in all. Public.
    utility : ConcaveUtility
        Of its edges, in the order of the neighbours; a class of ``skdpot.transport.consensus`` such
        as ``LinearUtility``. Private.
    privacy : NodePrivacy, default=None
        None is to send amounts as they are.

    Attributes
    ----------
    role, name, neighbours, bounds
        As given.
    n_rounds : int
        How many rounds it answered.

    Raises
    ------
    TypeError
        If the utility lacks a method.
    ValueError
        If a parameter is not what it should be, or the utility is not what `privacy` declares.

    See Also
    --------
    AllocationCoordinator : Announces the rounds.
    run_allocation : Carries messages within a process.

    Notes
    -----
    :ref:`proof-private-messages`. Rounding errors of the solver grow with the amounts that
    arrive, so that neighbours who send enormous ones could make messages move by more than their
    sensitivity. The noise is scaled to the sensitivity and twice a bound on these errors, which is
    made of what was released and declared.

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

    def __init__(
        self,
        role: str,
        name: Hashable,
        neighbours: Sequence[Hashable],
        bounds: tuple[float, float],
        utility: Any,
        privacy: NodePrivacy | None = None,
    ) -> None:
        check_role(role)
        self.role = role
        self.name = name
        self.neighbours = tuple(neighbours)
        if len(set(self.neighbours)) != len(self.neighbours):
            raise ValueError("neighbours must be different from each other.")
        self.bounds = _checked_bounds(bounds)
        _check_utility(utility, len(self.neighbours))
        self.n_rounds = 0
        self._utility = utility
        self._privacy = privacy
        self._noise, self._plan = None, None
        if privacy is not None:
            source = make_source(privacy.random_state)
            self._noise = self._make_noise(privacy, source)
            unit = "node" if privacy.protect == "node" else "edge"
            label = f"{type(self).__name__}, {privacy.n_rounds} messages"
            self._plan = ReleasePlan(self._noise, self._noise.event, source, label, None, unit=unit)
            self._plan.check(privacy.ledger)
        self._state: SideState | None = None
        self._sent = np.empty(0)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.role!r}, {self.name!r}, "
            f"n_neighbours={len(self.neighbours)}, bounds={self.bounds}, epsilon={self.epsilon})"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a node of an allocation is not copied or pickled: a copy would carry its utility "
            "elsewhere, and spend its budget once more. Make it where its utility is."
        )

    @property
    def epsilon(self) -> float | None:
        """Return the total budget of all its messages, or None without privacy."""
        return None if self._noise is None else float(self._noise.epsilons[0])

    @property
    def n_left(self) -> int | None:
        """Return how many rounds its budget is still for, or None without privacy."""
        return None if self._privacy is None else self._privacy.n_rounds - self.n_rounds

    @property
    def event(self) -> DpEvent | None:
        """Return what all its messages are to be charged as, before the first; None without."""
        return None if self._plan is None else self._plan.event

    @property
    def prices(self) -> dict[Any, float]:
        """Return the prices of the last round by neighbour: a function of the messages."""
        return self._on_edges("prices")

    @property
    def agreed(self) -> dict[Any, float]:
        """Return the amounts that the last answer was near to: a function of the messages."""
        return self._on_edges("agreed")

    def answer(self, announcement: Announcement, incoming: AllocationMessage) -> AllocationMessage:
        """Absorb the messages of the last round, and return the amounts it wants now.

        Parameters
        ----------
        announcement : Announcement
            Of the round after the last that the node answered.
        incoming : AllocationMessage
            What its neighbours sent in the round before, by neighbour; in the first round, the
            public amounts that both ends of an edge start from.

        Returns
        -------
        AllocationMessage
            An amount for every neighbour. With privacy it is noisy, may be negative, and can be
            shown to anyone.

        Raises
        ------
        RuntimeError
            If all rounds were made that the node's budget is for.
        BudgetExceededError
            If the node's ledger does not allow its messages; none is sent then.
        ValueError
            If the announcement or the incoming message is of another round, lacks a neighbour or
            has an unknown one, or has numbers that are not finite. The node is then as it was.
        """
        number = self.n_rounds + 1
        if self._privacy is not None and number > self._privacy.n_rounds:
            raise RuntimeError(
                f"all {self._privacy.n_rounds} rounds that the node's budget is for were made."
            )
        check_announcement(announcement, number)
        received = read_amounts(incoming, number - 1, self.neighbours, "the incoming message")
        if self._state is None:
            if self._plan is not None and self._privacy is not None:
                self._plan.charge_to(self._privacy.ledger)
            self._state, self._sent = self._start(received), received
        self.n_rounds = number
        if self.neighbours:
            self._sent = self._wanted(self._state, announcement, received)
        amounts = dict(zip(self.neighbours, self._sent.tolist(), strict=True))
        return AllocationMessage(number, amounts)

    def _start(self, amounts: np.ndarray) -> SideState:
        """Return what the node holds before the first round."""
        n_edges = len(self.neighbours)
        side = Side(
            indptr=np.array([0, n_edges]),
            neighbours=np.arange(n_edges),
            positions=np.arange(n_edges, dtype=np.int32),
            lower=np.array([self.bounds[0]]),
            upper=np.array([self.bounds[1]]),
        )
        return SideState(side, self._utility, 1 if self.role == "target" else -1, amounts)

    def _wanted(
        self, state: SideState, announcement: Announcement, received: np.ndarray
    ) -> np.ndarray:
        """Return the amounts to send, with noise if the node has a budget."""
        eta = float(announcement.eta)
        relaxation, shift = float(announcement.relaxation), float(announcement.shift)
        if self._noise is None or self._privacy is None:
            return state.answer(self._sent, received, eta, relaxation, shift)
        with quiet():
            wanted = state.answer(self._sent, received, eta, relaxation, shift)
        return self._noise.run(wanted, eta, error=self._error(state, eta))

    def _error(self, state: SideState, eta: float) -> float:
        """Return a bound on the solver's error, in the l2 norm, from public numbers."""
        assert self._noise is not None and self._privacy is not None
        declared = self._privacy
        bound = message_error(
            eta,
            self.bounds[1],
            len(self.neighbours),
            reach=np.max(eta * np.abs(state.agreed) + np.abs(state.prices)),
            largest_marginal=max(map(abs, declared.marginal_bounds)),
            largest_scale=declared.largest_scale,
            iterative=not isinstance(self._utility, (LinearUtility, QuadraticUtility)),
        )
        return float(bound)

    def _make_noise(self, privacy: NodePrivacy, source: NoiseSource) -> MessageReleases:
        """Return the noise of this one node, whose caps are its bounds."""
        width = _check_declared(privacy, self._utility, len(self.neighbours), self.bounds[1])
        return MessageReleases(
            privacy.epsilon,
            privacy.delta,
            n_rounds=privacy.n_rounds,
            degrees=[len(self.neighbours)],
            utility_range=width,
            cap=self.bounds[1],
            least=self.bounds[0],
            curvature=privacy.curvature,
            protect=privacy.protect,
            source=source,
        )

    def _on_edges(self, name: str) -> dict[Any, float]:
        if self._state is None:
            raise RuntimeError("the node has answered no round yet.")
        return dict(zip(self.neighbours, getattr(self._state, name).tolist(), strict=True))


def _check_declared(privacy: NodePrivacy, utility: Any, n_edges: int, cap: float) -> float:
    """Return by how much marginal utilities may differ; raise where a utility is none of those.

    Marginal utilities never rise, so that those of the least and the largest amount are enough.
    """
    least, largest = (float(end) for end in privacy.marginal_bounds)
    if not -math.inf < least < largest < math.inf:
        raise ValueError("marginal_bounds must be a pair (least, largest) of finite numbers.")
    width = largest - least if privacy.utility_range is None else float(privacy.utility_range)
    if not 0 < width <= largest - least:
        raise ValueError("utility_range must be above 0, and at most what marginal_bounds leaves.")
    if not 0 <= privacy.largest_scale < math.inf:
        raise ValueError("largest_scale must be finite and at least 0.")
    ends = np.zeros(n_edges), np.full(n_edges, cap)
    marginals = [utility.derivative(amounts) for amounts in ends]
    if (marginals[0] > largest).any() or (marginals[1] < least).any():
        raise ValueError("the utility is outside of its declared marginal_bounds.")
    if any((-utility.second_derivative(x) < privacy.curvature).any() for x in ends):
        raise ValueError("the utility has less than its declared curvature.")
    if isinstance(utility, LogUtility) and (utility.scales > privacy.largest_scale).any():
        raise ValueError("the utility has a larger scale than the declared largest_scale.")
    return width


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    lower, upper = (float(bound) for bound in bounds)
    if not 0 <= lower <= upper < math.inf:
        raise ValueError(
            "bounds must be finite, non-negative, and given as (smallest, largest), got "
            f"({lower:g}, {upper:g})."
        )
    return lower, upper


def _check_utility(utility: Any, n_edges: int) -> None:
    """Raise unless a utility is of as many edges; a user's own may not check that itself."""
    if not all(hasattr(utility, name) for name in _METHODS):
        raise TypeError(
            f"utility must have the methods {', '.join(_METHODS)}, such as a LinearUtility of "
            "skdpot.transport.consensus has."
        )
    if isinstance(utility, (LinearUtility, QuadraticUtility)):
        shape = utility.slopes.shape
    elif isinstance(utility, LogUtility):
        shape = utility.weights.shape
    else:
        shape = np.shape(utility.derivative(np.zeros(n_edges)))
    if shape != (n_edges,):
        raise ValueError(f"utility must be of {n_edges} edges, got shape {shape}.")
