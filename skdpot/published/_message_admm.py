"""The published private ADMM: an allocation by rounds of noisy messages.

A node's utilities leave it in messages of :class:`~skdpot.releases.MessageReleases` only. All
results here are computed from those, and from public numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse

from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.allocation import (
    ALLOCATION_CONSTRAINTS,
    AllocationEstimator,
    Problem,
    read_factors,
    read_ranges,
)
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import DpEvent
from skdpot.privacy.foreign import silence
from skdpot.privacy.random import make_source
from skdpot.privacy.sensitivity import marginal_bounds, message_error
from skdpot.releases import MessageReleases, ReleaseSeries
from skdpot.transport.consensus import (
    FAMILIES,
    BipartiteNetwork,
    LinearUtility,
    Side,
    SideState,
    make_utility,
    repair,
    starting_amounts,
    starting_eta,
)

# With loud noise, the projection of the messages may fail; amounts nearer to the start are tried.
_SHARES = (1.0, 0.3, 0.1)


@dataclass(frozen=True)
class DeclaredUtilities:
    """The public facts about the utilities of one side.

    Attributes
    ----------
    family : {"linear", "quadratic", "log"}
        The family of the utilities.
    low, high : float
        The range of the private parameters.
    scale : float
        Curvature b of quadratic utilities, and c in ``a log(1 + x / c)``.
    """

    family: str
    low: float
    high: float
    scale: float = 1.0

    @property
    def width(self) -> float:
        """Return the width of the range."""
        return self.high - self.low

    def make(self, values: np.ndarray) -> Any:
        """Return utilities with parameters, which are clipped to the range if they are private."""
        values = np.clip(np.where(np.isnan(values), self.low, values), self.low, self.high)
        return make_utility(self.family, values, np.full_like(values, self.scale))

    def marginal_bounds(self, cap: float) -> tuple[float, float]:
        """Return the range of marginal utilities up to an amount, and their minimum curvature."""
        ranges = {"a": (self.low, self.high)} | dict.fromkeys("bc", (self.scale, self.scale))
        return marginal_bounds(self.family, ranges, cap)

    def largest_marginal(self, cap: float) -> float:
        """Return the largest absolute marginal utility up to an amount."""
        largest = max(abs(self.low), abs(self.high))
        if self.family == "quadratic":
            return largest + self.scale * cap
        return largest / self.scale if self.family == "log" else largest


@dataclass(frozen=True, eq=False)
class RoundReleases(ReleaseSeries):
    """All messages of the nodes of both sides.

    Attributes
    ----------
    network : BipartiteNetwork
        The public network.
    noises : tuple of MessageReleases or None
        The noise of targets and of sources; None for a side without utilities.
    declared : tuple of DeclaredUtilities or None
        The public facts about their utilities.
    eta : float
        Penalty of the rounds.
    n_rounds : int
        Number of messages of every node, for which the budget is divided.
    average_from : int
        The first round whose amounts are averaged.
    """

    network: BipartiteNetwork
    noises: tuple[Any, ...]
    declared: tuple[DeclaredUtilities | None, DeclaredUtilities | None]
    eta: float
    n_rounds: int
    average_from: int

    @property
    def event(self) -> DpEvent:
        """Return the event of the node that spends most: a unit of privacy belongs to one node."""
        return max(self._noisy, key=lambda noise: noise.epsilons.max(initial=0.0)).event

    @property
    def epsilons(self) -> tuple[np.ndarray, ...]:
        """Return the epsilon of each target, and of each source."""
        return tuple(noise.epsilons for noise in self._noisy)

    def run(self, utilities: Any, progress: Any = None) -> Any:
        """Return the agreement of the nodes."""
        return private_consensus(
            self.network, utilities, self.noises, self.declared, eta=self.eta,
            n_rounds=self.n_rounds, average_from=self.average_from, progress=progress,
        )  # fmt: skip

    @property
    def _noisy(self) -> list[Any]:
        return [noise for noise in self.noises if noise is not None]


class PrivateMessageADMM(AllocationEstimator):
    """The published private ADMM, with corrected noise: an allocation by messages with noise.

    **Superseded** by :class:`~skdpot.PrivateADMMTransport`, which reaches a far larger total
    utility with the same budget. In every round each node sends the amounts that are best for
    itself, with noise, and all rounds share its budget.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of a node for all its messages.
    delta : float, default=0.0
        0 means noise whose density decreases exponentially with its Euclidean norm; a value above
        0 means Gaussian noise, which is smaller for many rounds.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
    utility : {"linear", "quadratic", "log"}, default="linear"
        As in :class:`~skdpot.PrivateADMMTransport`.
    utility_bounds : array-like of shape (2,) or (2, 2)
        Public. The smallest and the largest possible utility, or one pair for the targets and one
        for the sources. Utilities outside are
        clipped, and NaN is read as the middle.
    utility_scale : float, default=1.0
        Public. The b of quadratic utilities, or the c of logarithmic ones.
    target_bounds, source_bounds : array-like of shape (2,) or (n_nodes, 2), default=None
        Public. The smallest and the largest total amount that each target receives, and that each
        source gives; or one pair for all of them. None is (0, 1).
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
        Public. Nonzero entries are edges. None means all pairs.
    node_budgets : pair of float or array-like, default=None
        Public. The part of epsilon that each target and each source spends, above 0 and at most 1.
    n_rounds : int, default=20
        Number of rounds; all of them are run and charged.
    eta : float, default=None
        Penalty of a squared difference between amounts, in units of utility per squared amount.
        None is a fifth of the range of utilities per mean amount of a node.
    averaging : bool, default=True
        Whether the plan uses the mean of the second half of the rounds. False uses the last round,
        as published.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged before anything is released, with the unit ``"edge"`` or ``"node"`` and the
        relation ``"replace_one"``.
    random_state : int or RandomState, default=None
        None uses the operating system's cryptographic source. Seeded releases can be reproduced,
        so they are *not private*: use seeds for tests and teaching only.
    verbose : int, default=0
        Whether to show a progress bar over rounds.

    Attributes
    ----------
    plan_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Amount from each source to each target: the feasible plan nearest to the agreed amounts.
    duals_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Prices on the edges.
    n_iter_ : int
        Number of rounds.
    primal_residual_, dual_residual_ : float
        Residuals of the last round.
    history_ : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` of the rounds.
    epsilons_ : tuple of ndarray
        The epsilon that each target spent, and each source, if sources have utilities.
    privacy_guarantee_ : PrivacyGuarantee or None
        The guarantee; None for seeded releases.
    n_features_in_ : int
        Number of sources.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the sources, if X has names.

    See Also
    --------
    skdpot.PrivateADMMTransport : Releases utilities once.

    Notes
    -----
    Two published claims are wrong: the printed rate of the noise is inverted, so a larger
    sensitivity gets less noise; and the printed budget covers a single round only. Here the noise
    follows the proven sensitivity, and epsilon covers all rounds. Proofs:
    :ref:`proof-message-sensitivity`, :ref:`proof-private-messages`.

    References
    ----------
    J. Hughes and J. Chen, "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
    for Resource Allocation", Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.published import PrivateMessageADMM
    >>> likes = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
    >>> messages = PrivateMessageADMM(
    ...     50.0, delta=1e-6, n_rounds=20, eta=2.0, utility_bounds=(1, 5), target_bounds=(0, 1),
    ...     source_bounds=[(0, 1), (0, 2)], random_state=0,
    ... ).fit(likes)
    >>> messages.plan_.shape, messages.n_iter_
    ((3, 2), 20)
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        **ALLOCATION_CONSTRAINTS,
        "utility": [StrOptions(set(FAMILIES))],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "eta": [Interval(Real, 0, None, closed="neither"), None],
        "averaging": ["boolean"],
    }

    def __init__(
        self,
        epsilon=1.0,
        delta=0.0,
        *,
        protect="parameter",
        utility="linear",
        utility_bounds=None,
        utility_scale=1.0,
        target_bounds=None,
        source_bounds=None,
        adjacency=None,
        node_budgets=None,
        n_rounds=20,
        eta=None,
        averaging=True,
        ledger=None,
        random_state=None,
        verbose=0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.protect = protect
        self.utility = utility
        self.utility_bounds = utility_bounds
        self.utility_scale = utility_scale
        self.target_bounds = target_bounds
        self.source_bounds = source_bounds
        self.adjacency = adjacency
        self.node_budgets = node_budgets
        self.n_rounds = n_rounds
        self.eta = eta
        self.averaging = averaging
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose

    def _plan(self, problem: Problem) -> ReleasePlan:
        network, source = problem.network, make_source(self.random_state)
        declared = declare_utilities(
            self.utility, read_ranges(self.utility_bounds), self.utility_scale,
            both=len(problem.values) > 1,
        )  # fmt: skip
        factors = read_factors(self.node_budgets, network)
        noises = tuple(
            make_noise(
                side, declared_side, epsilon=self.epsilon, delta=self.delta,
                n_rounds=self.n_rounds, protect=self.protect, factors=part, source=source,
            )
            for side, declared_side, part in zip(
                (network.targets, network.sources), declared, factors, strict=True
            )
        )  # fmt: skip
        width = max(declared_side.width for declared_side in declared if declared_side is not None)
        eta = starting_eta(network, width) if self.eta is None else self.eta
        average_from = self.n_rounds // 2 + 1 if self.averaging else self.n_rounds
        release = RoundReleases(network, noises, declared, eta, self.n_rounds, average_from)
        return self._plan_of(release, source, delta=self.delta, by="messages")

    def _run(self, plan: ReleasePlan, problem: Problem) -> dict[str, Any]:
        targets, sources = problem.utilities()
        utilities = targets, None if plan.release.declared[1] is None else sources
        with self._bar(self.n_rounds) as bar:
            found = plan.release.run(utilities, bar.update)
        return self._attributes(problem, found)


@dataclass(frozen=True, eq=False)
class Agreement:
    """The result of noisy messages; it is a function of these messages.

    Attributes
    ----------
    plan : ndarray of shape (n_edges,)
        Feasible plan nearest to `agreed`, in the order of the targets.
    agreed : ndarray of shape (n_edges,)
        Mean of both sides' amounts: of the last round, or averaged over rounds.
    prices : ndarray of shape (n_edges,)
        Dual variables, likewise.
    history : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` of every round.
    """

    plan: np.ndarray
    agreed: np.ndarray
    prices: np.ndarray
    history: dict[str, np.ndarray]

    @property
    def n_iter(self) -> int:
        """Return the number of rounds."""
        return len(self.history["n_iter"])

    @property
    def primal_residual(self) -> float:
        """Return the primal residual of the last round."""
        return float(self.history["primal_residual"][-1])

    @property
    def dual_residual(self) -> float:
        """Return the dual residual of the last round."""
        return float(self.history["dual_residual"][-1])


def declare_utilities(
    utility: str, ranges: tuple[tuple[float, float], tuple[float, float]], scale: Any, *, both: bool
) -> tuple[DeclaredUtilities | None, DeclaredUtilities | None]:
    """Return the public facts about the utilities of targets, and of sources if they have any."""
    if np.ndim(scale) or sparse.issparse(scale):
        raise ValueError("utility_scale must be a number with messages: one for all edges.")
    found = [DeclaredUtilities(utility, *pair, float(scale)) for pair in ranges[: 1 + both]]
    return (*found, None)[:2]  # type: ignore[return-value]


def make_noise(
    side: Side,
    declared: DeclaredUtilities | None,
    *,
    epsilon: float,
    delta: float,
    n_rounds: int,
    protect: str = "parameter",
    factors: Any = 1.0,
    source: Any = None,
) -> MessageReleases | None:
    """Return the noise of a side's messages, or None for a side without utilities."""
    if declared is None:
        return None
    bounds = np.array([declared.marginal_bounds(float(cap)) for cap in side.upper])
    # Utilities that differ are never treated as public, however small the difference is.
    bounds[:, 0] = np.maximum(bounds[:, 0], np.finfo(float).tiny)
    return MessageReleases(
        epsilon,
        delta,
        n_rounds=n_rounds,
        degrees=side.degrees,
        utility_range=bounds[:, 0],
        cap=side.upper,
        least=side.lower,
        curvature=bounds[:, 1],
        protect=protect,
        factors=factors,
        source=source,
    )


def error_of_answers(state: SideState, declared: DeclaredUtilities, eta: float) -> np.ndarray:
    """Return how far each node's computed messages may be from the exact minimisers, in l2.

    The state is the public one after the answer.
    """
    side = state.side
    reach = np.zeros(side.n_nodes)
    np.maximum.at(reach, side.nodes, eta * np.abs(state.agreed) + np.abs(state.prices))
    return message_error(
        eta,
        side.upper,
        side.degrees,
        reach=reach,
        largest_marginal=declared.largest_marginal(float(side.upper.max(initial=0.0))),
        largest_scale=declared.scale if declared.family == "log" else 0.0,
        iterative=declared.family not in ("linear", "quadratic"),
    )


def private_consensus(
    network: BipartiteNetwork,
    utilities: tuple[Any, Any],
    noises: tuple[Any, Any],
    declared: tuple[DeclaredUtilities | None, DeclaredUtilities | None],
    *,
    eta: float,
    n_rounds: int,
    relaxation: float = 1.0,
    average_from: int | None = None,
    progress: Callable[[], Any] | None = None,
) -> Agreement:
    """Return the agreement of nodes by rounds of noisy messages; a function of those messages.

    Utilities are in the order of the targets, and None for a side without any, whose answers follow
    from released messages. All rounds are made, for any messages. Amounts and prices are averaged
    from the round `average_from` on; None takes the last.

    A node starts from its last multiplier, which is private; it reaches the same minimiser from any
    start, up to `error_of_answers`, which the noise covers. (Hughes and Chen, Algorithm 2, with the
    corrections of :ref:`differences`.)
    """
    order, back = network.sources.positions, network.targets.positions
    start = starting_amounts(network)
    states = (
        SideState(network.targets, _or_nothing(utilities[0], network), 1, start),
        SideState(network.sources, _or_nothing(utilities[1], network).take(order), -1,
                  start[order]),
    )  # fmt: skip
    sent = [start, start[order]]
    agreed, totals, n_averaged = start, [np.zeros_like(start), np.zeros_like(start)], 0
    rows = []
    for round_ in range(1, n_rounds + 1):
        with silence():
            answers = [
                state.answer(sent[k], sent[1 - k], eta, relaxation, 0.0)
                for k, state in enumerate(states)
            ]
        sent = [
            released_answers(state, answer, noise, declared_side, eta)
            for state, answer, noise, declared_side in zip(
                states, answers, noises, declared, strict=True
            )
        ]
        before, agreed = agreed, 0.5 * (sent[0] + sent[1][back])
        primal = float(np.linalg.norm(sent[0] - sent[1][back]))
        rows.append((round_, eta, primal, eta * float(np.linalg.norm(agreed - before))))
        if round_ >= (average_from or n_rounds):
            n_averaged += 1
            totals[0] += agreed
            totals[1] += states[0].prices
        if progress is not None:
            progress()
    means = [total / n_averaged for total in totals]
    names = ("n_iter", "eta", "primal_residual", "dual_residual")
    return Agreement(
        plan=_feasible(network, means[0]),
        agreed=means[0],
        prices=means[1],
        history=dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)),
    )


def _or_nothing(utility: Any, network: BipartiteNetwork) -> Any:
    return LinearUtility(np.zeros(network.n_edges)) if utility is None else utility


def released_answers(
    state: SideState, answer: np.ndarray, noise: Any, declared: DeclaredUtilities | None, eta: float
) -> np.ndarray:
    """Return the message of a side: a new array, since the state overwrites its answers."""
    if noise is None or declared is None:
        return answer.copy()
    return noise.run(answer, eta, error=error_of_answers(state, declared, eta))


def _feasible(network: BipartiteNetwork, amounts: np.ndarray) -> np.ndarray:
    """Return the nearest feasible plan, within the bounds of edges, by alternating projections."""
    targets, sources = network.targets, network.sources
    caps = np.minimum(targets.upper[targets.nodes], sources.upper[targets.neighbours])
    clipped = np.clip(amounts, -caps, 2.0 * caps)
    start = starting_amounts(network)
    for share in _SHARES:
        try:
            return repair(network, start + share * (clipped - start))
        except RuntimeError:
            # The budget is spent, and a plan from a part of the messages is better than none.
            continue
    return repair(network, start)
