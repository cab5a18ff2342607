"""The published private ADMM: an allocation by messages with noise."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpot._progress import plain_bar
from skdpot._sklearn_compat import Interval
from skdpot.allocation import (
    ALLOCATION_CONSTRAINTS,
    AllocationEstimator,
    Problem,
    Solution,
    Solver,
    read_factors,
    read_ranges,
)
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import DpEvent
from skdpot.privacy.random import make_source
from skdpot.releases import ReleaseSeries
from skdpot.transport.consensus import BipartiteNetwork

from ._message_estimates import estimate_utilities
from ._message_planning import RoundPlan, plan_rounds
from ._message_rounds import (
    DeclaredUtilities,
    ForeignUtility,
    declare_utilities,
    make_noise,
    private_consensus,
)


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
    rounds : RoundPlan
        The rounds and queries.
    delta : float
        Delta of the noise.
    """

    network: BipartiteNetwork
    noises: tuple[Any, ...]
    declared: tuple[DeclaredUtilities | None, DeclaredUtilities | None]
    rounds: RoundPlan
    delta: float

    @property
    def event(self) -> DpEvent:
        """Return the event of the node that spends most: a unit of privacy belongs to one node."""
        return max(self._noisy, key=lambda noise: noise.epsilons.max(initial=0.0)).event

    @property
    def epsilons(self) -> tuple[np.ndarray, ...]:
        """Return the epsilon of each target, and of each source."""
        return tuple(noise.epsilons for noise in self._noisy)

    def run(self, utilities: Any, progress: Any = None) -> Any:
        """Return the agreement of the nodes, or means of their utilities if those are asked for."""
        of_nodes = self.network, utilities, self.noises, self.declared
        if self.rounds.queries is not None:
            return estimate_utilities(*of_nodes, self.rounds.queries, delta=self.delta)
        return private_consensus(
            *of_nodes, eta=self.rounds.eta, n_rounds=self.rounds.n_rounds,
            average_from=self.rounds.average_from, progress=progress,
        )  # fmt: skip

    @property
    def _noisy(self) -> list[Any]:
        return [noise for noise in self.noises if noise is not None]


class PrivateMessageADMM(AllocationEstimator):
    """The published private ADMM, with corrected noise: an allocation by messages with noise.

    **Superseded** by :class:`~skdpot.PrivateADMMTransport`, which reaches a far larger total
    utility with the same budget. In every round each node sends the amounts that are best for
    itself, with noise, and all rounds share its budget. By default each node sends a single
    message, with the penalty that makes it most informative. The utilities are estimated from the
    messages, and the plan is optimal for the estimates.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of a node for all its messages.
    delta : float, default=0.0
        0 means noise whose density decreases exponentially with its Euclidean norm; a value above
        0 means Gaussian noise, which is smaller for many rounds.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at one of its ends, or all utilities of a node.
    utility : {"linear", "quadratic", "log"} or callable, default="linear"
        As in :class:`~skdpot.PrivateADMMTransport`. A callable must also have a method
        ``marginal_bounds(low, high, cap)``: the smallest and the largest marginal utility for
        parameters from `low` to `high`, at any amount from 0 to `cap`. The noise is scaled to it.
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
    n_rounds : int, default=None
        Number of rounds; all of them are run and charged. None chooses it by simulations with
        other utilities in their range, without X.
    eta : float, default=None
        Penalty of a squared difference between amounts, in units of utility per squared amount.
        None is chosen like `n_rounds`.
    averaging : bool, default=True
        Whether the plan may use the mean of the second half of the rounds, and a single message if
        neither `n_rounds` nor `eta` is given. False uses the last round, as published.
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
        Amount from each source to each target: the feasible plan nearest to the agreed amounts, or
        the best plan for the estimated utilities.
    duals_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Prices on the edges.
    n_iter_ : int
        Number of rounds.
    primal_residual_, dual_residual_ : float
        Residuals of the last round.
    history_ : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` of the rounds.
    welfare_, gap_ : float
        As in :class:`~skdpot.PrivateADMMTransport`, by estimated utilities; only for a single
        message.
    target_utilities_, source_utilities_ : {ndarray, sparse array} of shape (n_targets, n_sources)
        Estimated utilities; only for a single message.
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
        "n_rounds": [Interval(Integral, 1, None, closed="left"), None],
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
        n_rounds=None,
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

    def _plan(self, data: tuple[Problem, Solver]) -> ReleasePlan:
        problem, _ = data
        network, source = problem.network, make_source(self.random_state)
        declared = declare_utilities(
            self.utility, read_ranges(self.utility_bounds), self.utility_scale, network,
            both=len(problem.values) > 1,
        )  # fmt: skip
        factors = read_factors(self.node_budgets, network)
        budget = {"epsilon": self.epsilon, "delta": self.delta, "protect": self.protect}
        rounds = plan_rounds(
            network, declared, factors=factors, averaging=self.averaging, n_rounds=self.n_rounds,
            eta=self.eta, **budget,
        )  # fmt: skip
        sides = (network.targets, network.sources)
        noises = tuple(
            make_noise(
                side, declared_side, n_rounds=rounds.n_rounds, factors=part, source=source, **budget
            )
            for side, declared_side, part in zip(sides, declared, factors, strict=True)
        )
        release = RoundReleases(network, noises, declared, rounds, self.delta)
        return self._plan_of(release, source, delta=self.delta, by="messages")

    def _run(self, plan: ReleasePlan, data: tuple[Problem, Solver]) -> Solution:
        problem, solver = data
        rounds, declared = plan.release.rounds, plan.release.declared
        if callable(self.utility):
            made = map(ForeignUtility, filter(None, declared), problem.values)
            targets, sources = (*made, None)[:2]
        else:
            targets, sources = problem.utilities()
        utilities = targets, None if declared[1] is None else sources
        if rounds.queries is not None:
            estimates = plan.release.run(utilities)
            return solver.best_plan(
                problem.with_values(estimate for estimate in estimates if estimate is not None)
            )
        with plain_bar(total=rounds.n_rounds, unit=" rounds", **solver.progress) as bar:
            return Solution.from_agreement(problem, plan.release.run(utilities, bar.update))
