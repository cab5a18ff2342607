"""The published private ADMM: an allocation by rounds of noisy messages.

A node's utilities leave it in messages of :class:`~skdpot.releases.MessageReleases` only. All
results here are computed from those, and from public numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from skdpot import allocation
from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.checks import silence
from skdpot.privacy.events import DpEvent
from skdpot.privacy.noise import make_source
from skdpot.privacy.sensitivity import marginal_bounds, message_error
from skdpot.releases import MessageReleases, ReleaseSeries
from skdpot.transport import consensus


@dataclass(frozen=True, eq=False)
class RoundReleases(ReleaseSeries):
    """All messages of the nodes of both sides.

    Attributes
    ----------
    network : BipartiteNetwork
        The public network.
    noises : tuple of MessageReleases
        The noise of targets, and of sources if they have utilities.
    family : {"linear", "quadratic", "log"}
        The family of the utilities.
    ranges : tuple of (float, float)
        The ranges of their private parameters, for each noise.
    scale : float
        Curvature b of quadratic utilities, and c in ``a log(1 + x / c)``; public.
    eta : float
        Penalty of the rounds.
    n_rounds : int
        Number of messages of every node, for which the budget is divided.
    average_from : int
        The first round whose amounts and prices are averaged.
    """

    network: consensus.BipartiteNetwork
    noises: tuple[MessageReleases, ...]
    family: str
    ranges: tuple[tuple[float, float], ...]
    scale: float
    eta: float
    n_rounds: int
    average_from: int

    @property
    def event(self) -> DpEvent:
        """Return the event of the node that spends most: a unit of privacy belongs to one node."""
        return max(self.noises, key=lambda noise: noise.epsilons.max(initial=0.0)).event

    @property
    def epsilons(self) -> tuple[np.ndarray, ...]:
        """Return the epsilon of each target, and of each source."""
        return tuple(noise.epsilons for noise in self.noises)

    def run(self, utilities: Any, progress: Callable[[], Any]) -> Any:
        """Return what the nodes agree on: a function of their noisy messages only.

        Utilities are in the order of the targets. The answers of a side without noise follow from
        released messages. All rounds are made, for any messages.

        A node starts from its last multiplier, which is private; it reaches the same minimiser from
        any start, up to an error that the noise covers. (Hughes and Chen, Algorithm 2, with the
        corrections of :ref:`differences`.)
        """
        network, eta = self.network, self.eta
        # Each side has its own order of the edges, and messages cross between them.
        order, back = network.sources.positions, network.targets.positions
        start = consensus.starting_amounts(network)
        states = (
            consensus.SideState(network.targets, utilities[0], 1, start),
            consensus.SideState(network.sources, utilities[1].take(order), -1, start[order]),
        )
        sent = [start, start[order]]
        agreed, amounts, prices = start, np.zeros_like(start), np.zeros_like(start)
        rows = []
        for n_iter in range(1, self.n_rounds + 1):
            # The published iteration has no over-relaxation, and no shift of prices.
            with silence():
                answers = [
                    state.answer(sent[k], sent[1 - k], eta, 1.0, 0.0)
                    for k, state in enumerate(states)
                ]
            # New arrays, since a state overwrites its answers.
            sent = [answer.copy() for answer in answers]
            for k, noise in enumerate(self.noises):
                error = self._error_of(states[k], self.ranges[k])
                sent[k] = noise.run(answers[k], eta, error=error)
            # From messages with noise only, as everything below.
            before, agreed = agreed, 0.5 * (sent[0] + sent[1][back])
            primal = float(np.linalg.norm(sent[0] - sent[1][back]))
            rows.append((n_iter, eta, primal, eta * float(np.linalg.norm(agreed - before))))
            # Noise of single rounds averages out, and the first rounds are far from agreement.
            if n_iter >= self.average_from:
                amounts += agreed
                prices += states[0].prices
            progress()
        n_averaged = self.n_rounds - self.average_from + 1
        names = ("n_iter", "eta", "primal_residual", "dual_residual")
        return SimpleNamespace(
            plan=self._feasible(amounts / n_averaged),
            prices=prices / n_averaged,
            n_iter=self.n_rounds,
            primal_residual=rows[-1][2],
            dual_residual=rows[-1][3],
            history=dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)),
        )

    def _error_of(self, state: consensus.SideState, between: tuple[float, float]) -> np.ndarray:
        """Return how far each node's computed messages may be from the exact minimisers, in l2.

        The state is the public one after the answer.
        """
        # The largest absolute marginal utility, at no amount or at the cap.
        side, max_marginal = state.side, max(map(abs, between))
        if self.family == "quadratic":
            max_marginal += self.scale * float(side.upper.max(initial=0.0))
        elif self.family == "log":
            max_marginal /= self.scale
        # Released numbers, so that the error bound is public, and so is the noise.
        reach = np.zeros(side.n_nodes)
        np.maximum.at(reach, side.nodes, self.eta * np.abs(state.agreed) + np.abs(state.prices))
        return message_error(
            self.eta,
            side.upper,
            side.degrees,
            reach=reach,
            max_marginal=max_marginal,
            max_scale=self.scale if self.family == "log" else 0.0,
            # Amounts of the other families are a closed form of the multiplier.
            iterative=self.family == "log",
        )

    def _feasible(self, amounts: np.ndarray) -> np.ndarray:
        """Return the nearest feasible plan, within the bounds of edges, by alternating projections.

        With loud noise, the projection may fail. The budget is spent, and a plan from a part of the
        messages is better than none: amounts nearer to the start are tried.
        """
        targets, sources = self.network.targets, self.network.sources
        # No edge carries more than its ends may; amounts far beyond are noise.
        caps = np.minimum(targets.upper[targets.nodes], sources.upper[targets.neighbours])
        clipped = np.clip(amounts, -caps, 2.0 * caps)
        start = consensus.starting_amounts(self.network)
        for share in (1.0, 0.3, 0.1):
            try:
                return consensus.repair(self.network, start + share * (clipped - start))
            except RuntimeError:
                continue
        return consensus.repair(self.network, start)


class PrivateMessageADMM(allocation.AllocationEstimator):
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
        source gives; or one pair for all of them, a tuple. None is (0, 1).
    adjacency : {array-like, sparse matrix} of shape (n_targets, n_sources), default=None
        Public. 1 where an edge is, else 0. None means all pairs.
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
    verbose : bool, default=None
        Whether to show a progress bar over rounds. None shows it on a terminal after three seconds.

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
        **allocation.ALLOCATION_CONSTRAINTS,
        "utility": [StrOptions(set(consensus.FAMILIES))],
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
        verbose=None,
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

    def _plan(self, problem: allocation.Problem) -> ReleasePlan:
        network, source, family = problem.network, make_source(self.random_state), self.utility
        # Sensitivities of all edges follow from one public scale.
        if np.ndim(self.utility_scale) or sparse.issparse(self.utility_scale):
            raise ValueError("utility_scale must be a number with messages: one for all edges.")
        scale = float(self.utility_scale)
        # Sources without utilities release nothing.
        sides = (network.targets, network.sources)[: len(problem.values)]
        ranges = allocation.read_ranges(self.utility_bounds)[: len(sides)]
        noises = []
        for side, between, factors in zip(
            sides, ranges, allocation.read_factors(self.node_budgets, network), strict=False
        ):
            of_family = {"a": between, "b": (scale, scale), "c": (scale, scale)}
            # A node's own cap decides how large its marginal utilities can be.
            bounds = np.array([marginal_bounds(family, of_family, float(c)) for c in side.upper])
            noises.append(
                MessageReleases(
                    self.epsilon,
                    self.delta,
                    n_rounds=self.n_rounds,
                    degrees=side.degrees,
                    # Utilities that differ are never treated as public, however little they do.
                    utility_range=np.maximum(bounds[:, 0], np.finfo(float).tiny),
                    cap=side.upper,
                    least=side.lower,
                    curvature=bounds[:, 1],
                    protect=self.protect,
                    factors=factors,
                    source=source,
                )
            )
        eta = self.eta
        if eta is None:
            eta = consensus.starting_eta(network, max(high - low for low, high in ranges))
        # The published method uses the last round.
        average_from = self.n_rounds // 2 + 1 if self.averaging else self.n_rounds
        release = RoundReleases(
            network, tuple(noises), family, ranges, scale, eta, self.n_rounds, average_from
        )
        return self._plan_of(release, source, delta=self.delta, by="messages")

    def _run(self, plan: ReleasePlan, problem: allocation.Problem) -> dict[str, Any]:
        with self._bar(self.n_rounds) as bar:
            found = plan.release.run(problem.utilities(), bar.update)
        return self._attributes(problem, found)
