"""The alternating direction method of multipliers between targets and sources."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._bipartite import BipartiteNetwork
from ._certificate import side_bound, welfare
from ._penalty import Coordinator, check_rates
from ._repair import Repairer
from ._rounding import rounded
from ._side import SideState
from ._utilities import check_utility

Messages = tuple[np.ndarray, np.ndarray]
Release = Callable[[int, float, np.ndarray, np.ndarray], Messages]

# With fewer edges, starting a second thread takes longer than it saves.
_WORTH_A_THREAD = 20_000
# Number of rounds between two checks of the criterion.
_CHECK_EVERY = 20
# Projections are slow: the number of rounds between two of them grows by this factor.
_PROJECTION_GROWTH = 1.25


@dataclass(frozen=True, eq=False)
class ConsensusResult:
    """Result of the rounds.

    Attributes
    ----------
    plan : ndarray of shape (n_edges,)
        Feasible plan, in the order of the targets: with the criterion "gap" the best that was
        found, otherwise the one nearest to `agreed`.
    agreed : ndarray of shape (n_edges,)
        Amounts that targets and sources agreed on, feasible only in the limit.
    prices : ndarray of shape (n_edges,)
        Dual variables alpha: prices that targets pay to sources.
    welfare : float
        Sum of all utilities of `plan`.
    bound : float
        Upper bound of the welfare of all plans: with the criterion "gap" the smallest that was
        proved, otherwise that of `prices`.
    primal_residual, dual_residual : float
        Euclidean norms, as last measured: of the difference of the two sides' amounts, and of eta
        times the last change of their mean.
    eta : float
        Penalty of the last round.
    n_iter : int
        Number of rounds.
    converged : bool
        Whether the criterion was met.
    history : dict of str to ndarray
        ``n_iter``, ``eta``, ``shift``, ``primal_residual``, ``dual_residual``, ``welfare`` and
        ``bound`` at the checked rounds; the last two are NaN unless the criterion is "gap".
    """

    plan: np.ndarray
    agreed: np.ndarray
    prices: np.ndarray
    welfare: float
    bound: float
    primal_residual: float
    dual_residual: float
    eta: float
    n_iter: int
    converged: bool
    history: dict[str, np.ndarray]

    @property
    def gap(self) -> float:
        """Return the largest possible distance of the welfare from the optimum, per bound."""
        return (self.bound - self.welfare) / max(abs(self.bound), 1e-300)


def starting_eta(network: BipartiteNetwork, utility_range: float) -> float:
    """Return a penalty to start with: a fifth of the utilities' range per mean amount."""
    total = min(network.targets.upper.sum(), network.sources.upper.sum())
    if not total > 0 or not utility_range > 0:
        return 1.0
    return float(0.2 * utility_range * sum(network.shape) / total)


def starting_amounts(network: BipartiteNetwork) -> np.ndarray:
    """Return the amounts of the first round: products of both capacities, with a common total."""
    targets, sources = network.targets, network.sources
    amounts = targets.upper[targets.nodes] * sources.upper[targets.neighbours]
    total = amounts.sum()
    if total > 0:
        amounts *= min(targets.upper.sum(), sources.upper.sum()) / total
    return amounts


def consensus(
    network: BipartiteNetwork,
    target_utility: Any,
    source_utility: Any,
    *,
    eta: float = 1.0,
    relaxation: float = 1.8,
    adaptive: bool = True,
    shifting: bool = True,
    criterion: str | None = "gap",
    tol: float = 1e-3,
    max_iter: int = 1000,
    release: Release | None = None,
    n_threads: int = 2,
) -> ConsensusResult:
    """Find a plan with nearly the largest welfare, by messages between targets and sources.

    In every round each target and each source sends the amounts that are best for itself, near
    the agreed amounts so far. Both sides then agree on the mean. Prices rise by ``eta / 2`` times
    the amount by which targets want more than sources offer.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    target_utility, source_utility : ConcaveUtility
        Utilities of the edges to their targets and to their sources, both in the order of the
        targets: :class:`LinearUtility`, :class:`QuadraticUtility`, :class:`LogUtility` or others.
    eta : float, default=1.0
        Penalty of a squared difference of amounts in the first round.
    relaxation : float, default=1.8
        Factor of over-relaxation, in (0, 2); 1 is the plain iteration.
    adaptive : bool, default=True
        Whether eta follows the residuals, in the first 300 rounds or the first half. It is a
        function of the messages.
    shifting : bool, default=True
        Whether all prices are shifted by the difference of both sides' totals, in the first 100
        rounds or the first quarter. It is a function of the messages.
    criterion : {"gap", "residuals"} or None, default="gap"
        When to stop before `max_iter`. ``"gap"``: when the welfare of a feasible plan is within
        `tol` of an upper bound; this uses the utilities. ``"residuals"``: when both residuals are
        at most `tol`, relative to the amounts and to the spread of the prices; this uses only the
        messages. None: never.
    tol : float, default=1e-3
        Relative tolerance of the criterion.
    max_iter : int, default=1000
        Largest number of rounds.
    release : callable or None, default=None
        ``release(n_iter, eta, targets, sources)`` returns the messages to send instead of the
        amounts of the targets and of the sources, each in the order of its side.
    n_threads : {1, 2}, default=2
        With 2, both sides answer at the same time. The result is the same.

    Returns
    -------
    ConsensusResult
        The plan, its welfare, prices, and a bound on the welfare of any plan.

    Raises
    ------
    ValueError
        If a parameter is not valid, or the network has no feasible plan.

    Notes
    -----
    *Not private* without a private `release`: messages, prices and plan depend on single utilities.
    With a private `release`, the agreed amounts and prices are functions of the messages. But
    `welfare` and `bound`, and with the criterion "gap" also `plan`, `n_iter` and `history`, are
    computed from the utilities themselves.

    References
    ----------
    Differentially Private ADMM-Based Distributed Discrete Optimal Transport for Resource
    Allocation, Algorithm 1.

    Examples
    --------
    >>> from skdpot.transport.consensus import LinearUtility, consensus, make_network
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> likes = LinearUtility([3.0, 1.0, 2.0, 1.0])
    >>> result = consensus(network, likes, likes, tol=1e-6)
    >>> result.plan.round(3) + 0.0, round(result.welfare, 3)
    (array([1., 0., 0., 1.]), 8.0)
    """
    _check_parameters(eta, relaxation, criterion, tol, max_iter)
    run = _Run(network, target_utility, source_utility, relaxation)
    coordinator = Coordinator(network, eta, adaptive, shifting, max_iter)
    check = _Check(run, coordinator, criterion, tol)
    two = n_threads > 1 and network.n_edges >= _WORTH_A_THREAD
    with ThreadPoolExecutor(2 if two else 1) as threads:
        n_iter = 0
        while n_iter < max_iter and not check.converged:
            n_iter += 1
            run.advance(n_iter, coordinator, release, threads.map if two else map)
            if n_iter % _CHECK_EVERY == 0 or n_iter == max_iter:
                check(n_iter)
    return check.result(n_iter)


class _Run:
    """The two sides, and the messages between them."""

    def __init__(self, network, target_utility, source_utility, relaxation):
        for utility, name in ((target_utility, "target"), (source_utility, "source")):
            check_utility(utility, network.n_edges, f"{name}_utility")
        self.network = network
        self.utilities = target_utility, source_utility
        order = network.sources.positions
        start = starting_amounts(network)
        self.targets = SideState(network.targets, target_utility, 1, start)
        self.sources = SideState(network.sources, source_utility.take(order), -1, start[order])
        self.messages: Messages = (start, start[order])
        self.relaxation = relaxation

    def advance(self, n_iter, coordinator, release, mapping):
        """Do one round."""
        eta, shift = coordinator.eta, coordinator.shift
        targets, sources = self.messages

        def answer(call):
            state, own_messages, received = call
            return state.answer(own_messages, received, eta, self.relaxation, shift)

        calls = (self.targets, targets, sources), (self.sources, sources, targets)
        messages = tuple(mapping(answer, calls))
        if release is not None:
            messages = release(n_iter, eta, *messages)
        coordinator.observe(n_iter, *messages, targets, sources, self.targets.prices)
        self.messages = messages

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the agreed amounts and the prices after the last round."""
        targets, sources = self.messages
        return 0.5 * (targets + sources[self.network.targets.positions]), self.targets.prices


class _Check:
    """The criterion to stop by, and the best plan and bound so far."""

    def __init__(self, run, coordinator, criterion, tol):
        self.run = run
        self.coordinator = coordinator
        self.criterion = criterion
        self.tol = tol
        self.converged = False
        self.repairer = Repairer(run.network)
        self.next_projection = 0.0
        self.plan: Any = None
        self.value, self.bound = -math.inf, math.inf
        self.rows: list[tuple] = []

    def __call__(self, n_iter):
        """Check the state after a round."""
        value, bound = math.nan, math.nan
        if self.criterion == "gap":
            value, bound = self._gap(n_iter)
            self.converged = self.bound - self.value <= self.tol * abs(self.bound)
        elif self.criterion == "residuals":
            prices = self.run.targets.prices
            self.converged = self.coordinator.has_settled(self.tol, *self.run.messages, prices)
        state = self.coordinator
        self.rows.append(
            (n_iter, state.eta, state.shift, state.primal_residual, state.dual_residual,
             value, bound)
        )  # fmt: skip

    def _gap(self, n_iter):
        """Return the welfare of a nearby plan, NaN without one, and the bound; keep the best."""
        agreed, prices = self.run.state()
        plan = self._near_plan(n_iter, agreed)
        value = math.nan if plan is None else self._keep(plan)
        return value, self._prove(prices)

    def _keep(self, plan):
        """Return the welfare of a plan, and keep the better one."""
        target_utility, source_utility = self.run.utilities
        value = welfare(self.run.network, target_utility, source_utility, plan)
        if value > self.value:
            self.plan, self.value = plan, value
        return value

    def _prove(self, prices):
        """Return the bound that prices prove, and keep the smallest."""
        network, sources = self.run.network, self.run.sources
        bound = side_bound(network.targets, self.run.utilities[0], prices)
        bound += side_bound(network.sources, sources.utility, -prices[network.sources.positions])
        self.bound = min(self.bound, bound)
        return bound

    def _near_plan(self, n_iter, agreed):
        """Return a feasible plan near the agreed amounts, or None if that would take long."""
        amounts = np.maximum(agreed, 0.0)
        gains = sum(utility.derivative(amounts) for utility in self.run.utilities)
        curvatures = -sum(utility.second_derivative(amounts) for utility in self.run.utilities)
        plan = rounded(self.run.network, amounts, gains, curvatures, self.run.sources.multipliers)
        if plan is None and n_iter >= self.next_projection:
            self.next_projection = _PROJECTION_GROWTH * n_iter
            plan = self.repairer(agreed)
        return plan

    def result(self, n_iter):
        """Return the result after the last round."""
        agreed, prices = self.run.state()
        if self.plan is None:
            self._keep(self.repairer(agreed))
        if self.criterion != "gap":
            self._prove(prices)
        names = ("n_iter", "eta", "shift", "primal_residual", "dual_residual", "welfare", "bound")
        coordinator = self.coordinator
        return ConsensusResult(
            plan=self.plan,
            agreed=agreed,
            prices=prices.copy(),
            welfare=self.value,
            bound=self.bound,
            primal_residual=coordinator.primal_residual,
            dual_residual=coordinator.dual_residual,
            eta=coordinator.eta,
            n_iter=n_iter,
            converged=self.converged,
            history=dict(zip(names, map(np.array, zip(*self.rows, strict=True)), strict=True)),
        )


def _check_parameters(eta, relaxation, criterion, tol, max_iter):
    """Raise if a parameter of the iteration is invalid."""
    check_rates(eta, relaxation, tol)
    if criterion not in ("gap", "residuals", None):
        raise ValueError(f"criterion must be 'gap', 'residuals' or None, got {criterion!r}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
