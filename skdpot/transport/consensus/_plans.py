"""Plans of a network: agreed on by rounds of messages (ADMM), or the best one by a central solver.

*The best plan for linear utilities* is found by POT, on all edges. The multipliers of the nodes
prove that the plan is the best one: the utility of every edge is at most the sum of the multipliers
of its two nodes. If a node gets less than its lower bound, the rest is a shortage, which has a
price. The price is raised until there is no shortage.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from ..exact import cheapest_flow
from ..simplex import LARGEST_COST, TOTAL_MASS
from . import _network
from ._nodes import ConcaveUtility, LinearUtility, SideState, check_utility, welfare, welfare_bound

Messages = tuple[np.ndarray, np.ndarray]
Release = Callable[[int, float, np.ndarray, np.ndarray], Messages]

# With fewer edges, starting a second thread takes longer than it saves.
_WORTH_A_THREAD = 20_000
# Number of rounds between two checks of the gap, and between two changes of the penalty.
_CHECK_EVERY = 20
HISTORY = ("n_iter", "eta", "shift", "primal_residual", "dual_residual", "welfare", "bound")


@dataclass(frozen=True, eq=False)
class NetworkPlan:
    """A feasible plan of a network, and a bound on the welfare of all plans.

    Attributes
    ----------
    plan : ndarray of shape (n_edges,)
        Amounts, in the order of the targets, with the same precision of feasibility as
        :func:`repair`. Of rounds it is the best that was found or, without a tolerance, the one
        nearest to `agreed`.
    prices : ndarray of shape (n_edges,)
        Dual variables alpha: prices of a unit that targets pay to sources. Those of the optimal
        plan prove `bound`; the price of an edge without an amount is then the middle of all valid
        prices.
    welfare : float
        Sum of all utilities of `plan`.
    bound : float
        Upper bound of the welfare of all plans. Of rounds it is the smallest that was proved or,
        without a tolerance, that of `prices`.
    agreed : ndarray of shape (n_edges,) or None
        Amounts that targets and sources agreed on in rounds, feasible only in the limit.
    primal_residual, dual_residual : float
        Euclidean norms, as last measured in rounds: of the difference of the two sides' amounts,
        and of eta times the last change of their mean; 0 without rounds.
    n_iter : int
        Number of rounds, or of programs solved for the optimal plan: more than one if the price of
        a shortage was raised.
    converged : bool
        Whether the gap is within the tolerance.
    history : dict of str to ndarray
        ``n_iter``, ``eta``, ``shift``, ``primal_residual``, ``dual_residual``, ``welfare`` and
        ``bound`` at the checked rounds; the last two are NaN without a tolerance. Arrays are empty
        without rounds.
    """

    plan: np.ndarray
    prices: np.ndarray
    welfare: float
    bound: float
    n_iter: int
    agreed: np.ndarray | None = None
    primal_residual: float = 0.0
    dual_residual: float = 0.0
    converged: bool = True
    history: dict[str, np.ndarray] = field(
        default_factory=lambda: {name: np.empty(0) for name in HISTORY}
    )

    @property
    def gap(self) -> float:
        """Return the largest possible distance of the welfare from the optimum, per bound."""
        return (self.bound - self.welfare) / max(abs(self.bound), 1e-300)


def starting_eta(network: _network.BipartiteNetwork, utility_range: float) -> float:
    """Return a penalty to start with: a fifth of the utilities' range per mean amount."""
    total = min(network.targets.upper.sum(), network.sources.upper.sum())
    if not total > 0 or not utility_range > 0:
        return 1.0
    return float(0.2 * utility_range * sum(network.shape) / total)


def starting_amounts(network: _network.BipartiteNetwork) -> np.ndarray:
    """Return the amounts of the first round: products of both capacities, with a common total."""
    targets, sources = network.targets, network.sources
    # Public numbers only: the first messages must not depend on utilities.
    amounts = targets.upper[targets.nodes] * sources.upper[targets.neighbours]
    total = amounts.sum()
    # A network that may carry nothing has no start but 0.
    if total > 0:
        amounts *= min(targets.upper.sum(), sources.upper.sum()) / total
    return amounts


def consensus(
    network: _network.BipartiteNetwork,
    target_utility: ConcaveUtility,
    source_utility: ConcaveUtility,
    *,
    eta: float = 1.0,
    relaxation: float = 1.8,
    adaptive: bool = True,
    tol: float | None = 1e-3,
    max_iter: int = 1000,
    release: Release | None = None,
) -> NetworkPlan:
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
        Whether eta follows the residuals, in the first 300 rounds or the first half, and all prices
        are shifted by the difference of both sides' totals, in the first 100 rounds or the first
        quarter. Both are functions of the messages.
    tol : float or None, default=1e-3
        Rounds end when the welfare of a feasible plan is within this fraction of an upper bound;
        this uses the utilities. None makes all rounds, and uses only the messages.
    max_iter : int, default=1000
        Largest number of rounds.
    release : callable or None, default=None
        ``release(n_iter, eta, targets, sources)`` returns the messages to send instead of the
        amounts of the targets and of the sources, each in the order of its side.

    Returns
    -------
    NetworkPlan
        The plan, its welfare, prices, and a bound on the welfare of any plan.

    Raises
    ------
    ValueError
        If a parameter is not valid, or the network has no feasible plan.

    Notes
    -----
    *Not private* without a private `release`: messages, prices and plan depend on single utilities.
    With a private `release`, the agreed amounts and prices are functions of the messages. But
    `welfare` and `bound`, and with a tolerance also `plan`, `n_iter` and `history`, are
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
    utilities = target_utility, source_utility
    _check_parameters(eta, relaxation, tol, max_iter)
    for utility, name in zip(utilities, ("target", "source"), strict=True):
        check_utility(utility, network.n_edges, f"{name}_utility")
    order, back = network.sources.positions, network.targets.positions
    start = starting_amounts(network)
    targets = SideState(network.targets, target_utility, 1, start)
    sources = SideState(network.sources, source_utility.take(order), -1, start[order])
    messages: Messages = (start, start[order])
    pace = _Pace(network, eta, adaptive, max_iter)
    plan, value, bound = None, -math.inf, math.inf
    converged, rows = False, []

    def answer(call: tuple[SideState, np.ndarray, np.ndarray]) -> np.ndarray:
        state, own, received = call
        return state.answer(own, received, pace.eta, relaxation, pace.shift)

    # The result is the same in any number of threads.
    two = network.n_edges >= _WORTH_A_THREAD
    with ThreadPoolExecutor(2 if two else 1) as threads:
        for n_iter in range(1, max_iter + 1):
            # Both answer the messages of the last round, so neither needs the other's new ones.
            calls = (targets, *messages), (sources, *messages[::-1])
            of_targets, of_sources = (threads.map if two else map)(answer, calls)
            sent = of_targets, of_sources
            if release is not None:
                sent = release(n_iter, pace.eta, *sent)
            pace.shift_prices(n_iter, *sent)
            before, messages = messages, sent
            # A check takes longer than a round: it rounds to a feasible plan, and bounds the
            # optimum.
            if n_iter % _CHECK_EVERY and n_iter < max_iter:
                continue
            pace.measure(n_iter, messages, before, targets.prices)
            agreed = 0.5 * (messages[0] + messages[1][back])
            near, worth, proved = None, math.nan, math.nan
            if tol is not None:
                near, worth, proved = _near_plan(network, utilities, agreed, targets, sources)
            if worth > value:
                plan, value = near, worth
            # Any prices prove a bound, so the smallest of all rounds holds; NaN is not smaller.
            bound = min(bound, proved)
            rows.append((n_iter, pace.eta, pace.shift, *pace.residuals, worth, proved))
            converged = tol is not None and bound - value <= tol * abs(bound)
            if converged:
                break
    # No check found a plan, or none was made.
    if plan is None:
        plan = _network.repair(network, agreed)
        value = welfare(*utilities, plan)
    if tol is None:
        bound = welfare_bound(network, *utilities, targets.prices)
    return NetworkPlan(
        plan=plan,
        agreed=agreed,
        prices=targets.prices.copy(),
        welfare=value,
        bound=bound,
        primal_residual=pace.residuals[0],
        dual_residual=pace.residuals[1],
        n_iter=n_iter,
        converged=converged,
        history=dict(zip(HISTORY, map(np.array, zip(*rows, strict=True)), strict=True)),
    )


def _check_parameters(eta: float, relaxation: float, tol: float | None, max_iter: int) -> None:
    """Raise if a parameter of `consensus` is not valid."""
    if not 0 < eta < math.inf:
        raise ValueError(f"eta must be positive and finite, got {eta}.")
    if not 0 < relaxation < 2:
        raise ValueError(f"relaxation must be between 0 and 2, both excluded; got {relaxation}.")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol must be at least 0, got {tol}.")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")


def _near_plan(
    network: _network.BipartiteNetwork,
    utilities: tuple[ConcaveUtility, ConcaveUtility],
    agreed: np.ndarray,
    targets: SideState,
    sources: SideState,
) -> tuple[np.ndarray | None, float, float]:
    """Return a plan near what was agreed on, its welfare, and the bound that prices prove."""
    amounts = np.maximum(agreed, 0.0)
    # What a further unit is worth decides which edges are filled first.
    of_targets, of_sources = utilities
    gains = of_targets.derivative(amounts) + of_sources.derivative(amounts)
    bends = -(of_targets.second_derivative(amounts) + of_sources.second_derivative(amounts))
    plan, _ = _network.rounded(network, amounts, gains, bends, sources.multipliers)
    value = math.nan if plan is None else welfare(*utilities, plan)
    return plan, value, welfare_bound(network, *utilities, targets.prices)


class _Pace:
    """The penalty eta and the shift of all prices, which are announced before every round.

    Both are functions of the messages, so they reveal no more than the messages.

    The shift saves rounds. If all targets together want more than the sources offer, all prices
    must rise, but the iteration raises each in small steps. So the coordinator shifts all prices by
    one step. The step grows while the difference of totals keeps its sign, and shrinks when the
    sign changes. There is no shift if the totals are nearly equal.

    Prices are shifted in the first 100 of `max_iter` rounds or the first quarter, and the penalty
    changes in the first 300 or the first half. After that the iteration is the plain one, which
    converges from any state.
    """

    def __init__(
        self, network: _network.BipartiteNetwork, eta: float, adaptive: bool, max_iter: int
    ) -> None:
        # The last rounds in which prices are shifted, and in which penalties change. Later than
        # that, both slow convergence.
        last_shift, last_change = 100, 300
        self.network, self.eta, self.shift = network, eta, 0.0
        self.residuals = math.inf, math.inf
        self._last_shift = min(max_iter / 4, last_shift) if adaptive else 0
        self._last_change = min(max_iter / 2, last_change) if adaptive else 0
        self._step = self._sign = 0.0

    def shift_prices(self, n_iter: int, targets: np.ndarray, sources: np.ndarray) -> None:
        """Set the shift by the messages of a round."""
        # Prices are not shifted if both sides' totals differ by less, relative to the larger one.
        longer, shorter = 1.5, 0.4
        settled = 1e-3
        self.shift = 0.0
        demand, supply = float(targets.sum()), float(sources.sum())
        larger = max(abs(demand), abs(supply))
        # Near balance, a common shift would only disturb single prices.
        if n_iter > self._last_shift or abs(demand - supply) <= settled * larger:
            return
        sign = math.copysign(1.0, demand - supply)
        if self._step == 0.0:
            # A tenth of the penalty's price for the mean amount of a node.
            nodes = sum(self.network.shape)
            self._step = 0.1 * self.eta * larger / nodes
        else:
            self._step *= longer if sign == self._sign else shorter
        self._sign = sign
        self.shift = sign * self._step

    def measure(self, n_iter: int, sent: Messages, before: Messages, prices: np.ndarray) -> None:
        """Set the residuals, and change the penalty if one residual is much larger.

        Messages are those of a round and of the one before it: of targets and of sources, each in
        its own order. `prices` are in the order of the targets; they follow from the messages
        before this round.
        """
        factor = 2.0
        ratio = 4.0
        order = self.network.targets.positions
        targets, received = sent[0], sent[1][order]
        # Residuals as in ADMM: how far the sides disagree, and how far their mean moved.
        change = 0.5 * (targets + received) - 0.5 * (before[0] + before[1][order])
        disagreement = float(np.linalg.norm(targets - received))
        self.residuals = disagreement, self.eta * float(np.linalg.norm(change))
        if n_iter > self._last_change:
            return
        # Norms of the amounts, and of the differences of prices from their mean.
        amount = float(max(map(np.linalg.norm, sent)))
        spread = float(np.std(prices)) * math.sqrt(len(prices))
        # Each relative to what it is a residual of, so that units of amounts and utilities do not
        # matter.
        primal, dual = self.residuals[0] * spread, self.residuals[1] * amount
        if primal > ratio * dual:
            self.eta *= factor
        elif dual > ratio * primal:
            self.eta /= factor


def optimal_plan(
    network: _network.BipartiteNetwork, target_utility: LinearUtility, source_utility: LinearUtility
) -> NetworkPlan:
    """Return a plan with the largest welfare for linear utilities, computed centrally.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    target_utility, source_utility : LinearUtility
        Utilities of the edges to their targets and to their sources, both in the order of the
        targets. The plan depends only on their sums.

    Returns
    -------
    NetworkPlan
        The plan, and prices that prove that it is the best one: its gap is at most 1e-9, from
        rounding. It is private only if the utilities were released.

    Raises
    ------
    ValueError
        If the utilities are not linear, or not of the network's edges, or the network has no
        feasible plan.
    RuntimeError
        If no plan is found; that would be a defect.

    Notes
    -----
    The solver is the network simplex of POT on integers: bounds are rounded to 2**-51 of the total,
    and utilities to 2**-45 of the largest one times the number of nodes. It always ends. The gap
    includes the rounding errors.

    Examples
    --------
    >>> from skdpot.transport.consensus import LinearUtility, make_network, optimal_plan
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> likes = LinearUtility([3.0, 1.0, 2.0, 1.0])
    >>> best = optimal_plan(network, likes, likes)
    >>> best.plan, best.welfare
    (array([1., 0., 0., 1.]), 8.0)
    """
    for utility, name in ((target_utility, "target"), (source_utility, "source")):
        if not isinstance(utility, LinearUtility) or len(utility.slopes) != network.n_edges:
            raise ValueError(f"{name}_utility must be a LinearUtility of {network.n_edges} edges.")
    slopes = target_utility.slopes + source_utility.slopes
    # The program has utilities up to 1, so that their rounding to integers is relative to the
    # largest.
    scale = float(np.abs(slopes).max(initial=0.0)) or 1.0
    amounts, levels, n_programs = _solved_on_integers(network, slopes / scale)
    target_levels, source_levels = (scale * side_levels for side_levels in levels)
    side = network.targets
    # The largest price that leaves a target its multiplier, and the smallest for a source.
    pay = target_utility.slopes - target_levels[side.nodes]
    ask = source_levels[side.neighbours] - source_utility.slopes
    # Both ends of what is valid are prices that prove the plan; the middle favours neither side.
    prices = 0.5 * (pay + ask)
    plan: np.ndarray | None = amounts
    # Integers of the program differ from the bounds by rounding, and plans must keep these.
    if network.violation(amounts) > _network.NOTHING * _network.max_bound(network):
        worth = np.where(amounts > 0, slopes, 0.0)
        plan, _ = _network.rounded(network, amounts, worth, None, source_levels)
    if plan is None:
        plan = _network.repair(network, amounts)
    return NetworkPlan(
        plan=plan,
        prices=prices,
        welfare=welfare(target_utility, source_utility, plan),
        bound=welfare_bound(network, target_utility, source_utility, prices),
        n_iter=n_programs,
    )


def _solved_on_integers(
    network: _network.BipartiteNetwork, slopes: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], int]:
    """Return the best amounts, the multipliers of both sides, and the number of programs.

    A network and utilities (up to 1) become integers: a transport problem. Targets are rows and
    sources are columns. The last row and the last column are dummies: they take, at no cost, what
    is neither received nor given. A node with a lower bound is two rows or columns: one of that
    mass, whose shortage has a price, and one of the rest. Nodes that may have nothing are in
    neither.
    """
    sides = network.targets, network.sources
    total = sum(float(side.upper.sum()) for side in sides)
    # The dummies' masses are above half of the largest total, so that POT divides by no other.
    unit = TOTAL_MASS / 2 / 2.0 ** (math.frexp(total)[1] if total > 0 else 0)
    (rows, supplies, must_receive), (columns, demands, must_give) = (_parts(s, unit) for s in sides)
    # Edges are numbered from 1: a zero would not be kept as an entry.
    of_parts = sparse.csr_array(
        (np.arange(1, network.n_edges + 1), sides[0].neighbours, sides[0].indptr),
        shape=network.shape,
    )[rows][:, columns].tocoo()
    edges, ends = of_parts.data - 1, of_parts.coords
    n_rows, n_columns = len(rows), len(columns)
    where = (
        np.concatenate([ends[0], np.arange(n_rows + 1), np.full(n_columns, n_rows)]),
        np.concatenate([ends[1], np.full(n_rows + 1, n_columns), np.arange(n_columns)]),
    )
    masses = [np.append(one, TOTAL_MASS - one.sum()) for one in (supplies, demands)]
    dummies = np.concatenate([must_receive, [False], must_give])
    # The first price of a shortage, in units of the largest utility. A smaller total shortage, as a
    # share of the largest bound, counts as none.
    price, accepted = 10, 1e-8 * _network.max_bound(network) * unit
    n_programs = 0
    while True:
        n_programs += 1
        quantum = (price + 1) * (n_rows + n_columns + 4) / LARGEST_COST
        # Costs are those above the least one, as all rows have to send all their masses.
        costs = np.concatenate([1.0 - slopes[edges], 1.0 + price * dummies])
        shape = (n_rows + 1, n_columns + 1)
        quanta = sparse.coo_array((np.rint(costs / quantum), where), shape=shape)
        # Of complete networks POT takes the dense matrix, which is faster.
        if quanta.nnz == (n_rows + 1) * (n_columns + 1):
            flow, prices = cheapest_flow(quanta.toarray(), *masses)
        else:
            flow, prices = cheapest_flow(quanta, *masses)
            flow = sparse.csr_array(flow)
        sent = flow[where]
        if sent[len(edges) :][dummies].sum() <= accepted:
            break
        # A shortage that stays is an error in words, or a price that was too low.
        _network.check_feasible(network)
        if price > 10 * sum(network.shape):
            raise RuntimeError("No plan without a shortage was found.")
        price *= 10
    amounts = np.bincount(edges, sent[: len(edges)], network.n_edges) / unit
    given = np.full(sides[1].n_nodes, np.inf)
    # The part that must be given has the price of the node.
    given[columns[::-1]] = -(quantum * (prices[:-1] - prices[-1]))[::-1]
    given = np.where(sides[1].lower > 0, given, np.maximum(given, 0.0))
    # No edge is worth more than the multipliers of its nodes.
    received = _best(sides[0], slopes - given[sides[0].neighbours])
    worth = (slopes - received[sides[0].nodes])[sides[1].positions]
    levels = received, np.where(np.isfinite(given), given, _best(sides[1], worth))
    return amounts, levels, n_programs


def _parts(side: _network.Side, unit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the nodes of parts with a mass, those masses, and which of them nodes must have."""
    # Rounded before the difference, so that both parts add up to the rounded upper bound.
    lower, upper = (np.rint(bounds * unit) for bounds in (side.lower, side.upper))
    nodes = np.tile(np.arange(side.n_nodes), 2)
    masses = np.concatenate([lower, upper - lower])
    must = np.arange(len(nodes)) < side.n_nodes
    return nodes[masses > 0], masses[masses > 0], must[masses > 0]


def _best(side: _network.Side, gains: np.ndarray) -> np.ndarray:
    """Return the gain of every node per unit on its best edge: 0 if it would lose, and need not."""
    # Nodes without edges have no maximum, and `reduceat` would give them another node's.
    best = np.full(side.n_nodes, -np.inf)
    np.maximum.at(best, side.nodes, gains)
    return np.where(np.isfinite(best) & ((best > 0) | (side.lower > 0)), best, 0.0)
