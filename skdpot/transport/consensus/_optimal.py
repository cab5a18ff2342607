"""The best plan for linear utilities, by a central solver: linear programs on a few edges.

Few edges carry the best plan, and the multipliers of the nodes show which: an edge whose utility
is at most the sum of those of its two nodes adds nothing. So the program is solved on some edges,
those that its multipliers miss most join them, and so on until none is missed. Then the multipliers
prove that the plan is the best one on all edges. What a node must have and does not get on the
edges so far is a shortage, at a price that rises until there is none.

Where nearly all edges are there, a network simplex on all of them finds the multipliers to start
with. It knows no lower bounds other than equalities.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from skdpot.transport.exact import exact_transport

from ..kernels import kernel
from ._bipartite import BipartiteNetwork
from ._certificate import welfare, welfare_bound
from ._feasibility import check_feasible
from ._repair import repair
from ._rounding import largest_bound, rounded
from ._utilities import LinearUtility

# Edges of every node in the first program, and those that join at a time.
_FIRST, _MORE = 10, 5
_MAX_PROGRAMS = 200
# The share of all pairs, and the number, from which a network simplex on all of them is worth it.
_DENSE, _MANY = 0.5, 20_000
# Of the range of utilities, which is the unit of the program.
_PRECISION = 1e-11
_SHORTAGE_PRICE = 10.0
# Of the largest bound, in all: what is no shortage.
_SHORTAGE = 1e-8
_HIGHS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# Of the range: utilities that are equal are told apart by so much where edges are chosen, or else
# all nodes would choose the same neighbours.
_SPREAD = 1e-2
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class OptimalPlan:
    """A plan of the most welfare, and prices that prove it.

    Attributes
    ----------
    plan : ndarray of shape (n_edges,)
        Amounts, in the order of the targets; feasible as those of :func:`repair` are.
    prices : ndarray of shape (n_edges,)
        What targets pay and sources are paid for a unit; they prove `bound`.
        Where an edge carries nothing, they are in the middle of all that would do.
    welfare, bound : float
        Sum of all utilities of `plan`, and what no plan exceeds.
    target_multipliers, source_multipliers : ndarray of shape (n_targets,), (n_sources,)
        By how much the optimum rises with every unit that a node may, or must, have. Their sum is
        at least the utility of an edge, and equal to it where there is an amount.
    n_programs : int
        How many linear programs were solved.
    """

    plan: np.ndarray
    prices: np.ndarray
    welfare: float
    bound: float
    target_multipliers: np.ndarray
    source_multipliers: np.ndarray
    n_programs: int

    @property
    def gap(self) -> float:
        """How far the welfare can be from the optimum, relative to the bound."""
        return (self.bound - self.welfare) / max(abs(self.bound), 1e-300)


def optimal_plan(
    network: BipartiteNetwork,
    target_utility: Any,
    source_utility: Any,
    *,
    start: np.ndarray | None = None,
) -> OptimalPlan:
    """Return a plan of the most welfare for linear utilities: the central solver, not a protocol.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    target_utility, source_utility : LinearUtility
        Utilities of the edges to their targets and to their sources, both in the order of the
        targets. The plan depends on their sums alone.
    start : ndarray of shape (n_edges,) or None, default=None
        Prices near the best ones, such as those of :func:`consensus`: edges that are good at these
        are tried first. The optimum does not depend on it, nor does the time by much.

    Returns
    -------
    OptimalPlan
        The plan, with prices that prove it to be the best one, but for rounding: its gap is 1e-9
        at most. Not private, unless the utilities are released ones.

    Raises
    ------
    ValueError
        If the utilities are not linear, or not of the network's edges, or the network has no
        feasible plan.
    RuntimeError
        If no plan is found; that would be a defect.

    Notes
    -----
    Column generation. Each linear program goes to HiGHS, with bounds and utilities divided by their
    largest ones.

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
    scale = float(np.abs(slopes).max(initial=0.0)) or 1.0
    if start is not None:
        levels = _levels_of_prices(network, target_utility, source_utility, start)
        levels = levels[0] / scale, levels[1] / scale
    elif network.n_edges >= max(_DENSE * math.prod(network.shape), _MANY):
        levels = _levels_of_simplex(network, slopes / scale)
    else:
        levels = np.zeros(network.shape[0]), np.zeros(network.shape[1])
    program = _Program(network, slopes / scale)
    amounts, levels = program.solve(levels)
    target_levels, source_levels = (scale * of_side for of_side in levels)
    side = network.targets
    # Targets would pay as much as leaves them their multiplier, and sources ask as little.
    pay = target_utility.slopes - target_levels[side.nodes]
    ask = source_levels[side.neighbours] - source_utility.slopes
    prices = 0.5 * (pay + ask)
    utilities = target_utility, source_utility
    plan = rounded(network, amounts, np.where(amounts > 0, slopes, 0.0), None, source_levels)
    if plan is None:
        plan = repair(network, amounts)
    return OptimalPlan(
        plan=plan,
        prices=prices,
        welfare=welfare(network, *utilities, plan),
        bound=welfare_bound(network, *utilities, prices),
        target_multipliers=target_levels,
        source_multipliers=source_levels,
        n_programs=program.n_solved,
    )


def _levels_of_prices(network, target_utility, source_utility, prices):
    """Return what every node gains by a unit of its best edge at some prices."""
    prices = np.asarray(prices, dtype=np.float64)
    if prices.shape != (network.n_edges,):
        raise ValueError(f"start must have shape ({network.n_edges},), got {prices.shape}.")
    levels = []
    for side, gains in (
        (network.targets, target_utility.slopes - prices),
        (network.sources, (source_utility.slopes + prices)[network.sources.positions]),
    ):
        best = np.full(side.n_nodes, -np.inf)
        np.maximum.at(best, side.nodes, gains)
        # Who may have nothing gains nothing at worst.
        levels.append(np.where(np.isfinite(best) & ((best > 0) | (side.lower > 0)), best, 0.0))
    return tuple(levels)


def _levels_of_simplex(network, slopes):
    """Return the best multipliers on all pairs of nodes, with lower bounds left out.

    A further node on each side takes what is not moved. Equal bounds are kept by a price on that.
    """
    targets, sources = network.targets, network.sources
    masses = (
        np.append(targets.upper, sources.upper.sum()),
        np.append(sources.upper, targets.upper.sum()),
    )
    total = masses[0].sum()
    if not total > 0:
        return np.zeros(network.shape[0]), np.zeros(network.shape[1])
    cost = np.zeros((network.shape[0] + 1, network.shape[1] + 1))
    cost[targets.nodes, targets.neighbours] = -slopes
    cost[:-1, -1] = np.where(targets.lower == targets.upper, _SHORTAGE_PRICE, 0.0)
    cost[-1, :-1] = np.where(sources.lower == sources.upper, _SHORTAGE_PRICE, 0.0)
    best = exact_transport(cost, masses[0] / total, masses[1] / masses[1].sum())
    of_targets, of_sources = -best.row_potential, -best.column_potential
    return of_targets[:-1] + of_sources[-1], of_sources[:-1] + of_targets[-1]


class _Program:
    """The linear program on the edges that were chosen so far."""

    def __init__(self, network: BipartiteNetwork, slopes: np.ndarray):
        self.network = network
        self.slopes = slopes
        self.unit = largest_bound(network)
        self.n_solved = 0
        self._shortage_price = _SHORTAGE_PRICE
        self._chosen = np.zeros(network.n_edges, bool)
        # Of the type of the positions, so that the kernel is compiled once for both sides.
        self._identity = np.arange(network.n_edges, dtype=network.sources.positions.dtype)
        lower = np.concatenate([network.targets.lower, network.sources.lower]) / self.unit
        upper = np.concatenate([network.targets.upper, network.sources.upper]) / self.unit
        self._equal = np.flatnonzero(lower == upper)
        self._needy = np.flatnonzero(lower > 0)
        self._at_most = np.flatnonzero(lower < upper)
        self._at_least = np.flatnonzero((lower < upper) & (lower > 0))
        self._lower, self._upper = lower, upper
        edges = np.arange(network.n_edges)
        self._spread = (
            _SPREAD * float(np.ptp(slopes) if len(slopes) else 0.0) * np.modf(edges * _GOLDEN)[0]
        )

    def solve(self, levels):
        """Return the best amounts, and the multipliers of targets and of sources."""
        reduced = self._reduced(levels)
        self._choose(reduced, -np.inf, _FIRST)
        self._choose(reduced + self._spread, -np.inf, _FIRST)
        for _ in range(_MAX_PROGRAMS):
            amounts, levels, shortage = self._solve_chosen()
            reduced = self._reduced(levels)
            if (reduced > _PRECISION).any():
                self._choose(reduced, _PRECISION, _MORE)
            elif shortage <= _SHORTAGE:
                return amounts, levels
            else:
                self._shortage_price *= 10.0
                check_feasible(self.network)
        raise RuntimeError(f"No best plan was found by {_MAX_PROGRAMS} linear programs.")

    def _reduced(self, levels):
        side = self.network.targets
        return self.slopes - levels[0][side.nodes] - levels[1][side.neighbours]

    def _choose(self, values, threshold, count):
        """Choose the edges of every node with the largest values, as far as above a threshold."""
        for side, places in (
            (self.network.targets, self._identity),
            (self.network.sources, self.network.sources.positions),
        ):
            _choose_largest(side.indptr, places, values, threshold, count, self._chosen)

    def _solve_chosen(self):
        """Return the best amounts on the chosen edges, the multipliers, and what is short."""
        network, chosen = self.network, np.flatnonzero(self._chosen)
        n_targets, n_nodes, n_edges = network.shape[0], sum(network.shape), len(chosen)
        n_columns = n_edges + len(self._needy)
        if not n_columns:
            return np.zeros(network.n_edges), (np.zeros(n_targets), np.zeros(network.shape[1])), 0.0
        edges = np.arange(n_edges)
        columns = np.concatenate([edges, edges, np.arange(n_edges, n_columns)])
        sources = n_targets + network.targets.neighbours[chosen]
        rows = np.concatenate([network.targets.nodes[chosen], sources, self._needy])
        matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), (n_nodes, n_columns))
        self.n_solved += 1
        found = linprog(
            np.append(-self.slopes[chosen], np.full(len(self._needy), self._shortage_price)),
            A_ub=sparse.vstack([matrix[self._at_most], -matrix[self._at_least]]),
            b_ub=np.concatenate([self._upper[self._at_most], -self._lower[self._at_least]]),
            A_eq=matrix[self._equal],
            b_eq=self._upper[self._equal],
            method="highs-ipm",
            options=_HIGHS,
        )
        if found.status != 0:
            raise RuntimeError(f"The linear program failed: {found.message}")
        levels = np.zeros(n_nodes)
        marginals = -found.ineqlin.marginals
        levels[self._at_most] = marginals[: len(self._at_most)]
        levels[self._at_least] -= marginals[len(self._at_most) :]
        levels[self._equal] = -found.eqlin.marginals
        amounts = np.zeros(network.n_edges)
        amounts[chosen] = self.unit * np.maximum(found.x[:n_edges], 0.0)
        return amounts, (levels[:n_targets], levels[n_targets:]), float(found.x[n_edges:].sum())


@kernel
def _choose_largest(indptr, places, values, threshold, count, chosen):
    """Choose the edges with the largest values of every node, among those above a threshold."""
    keys = np.empty(count)
    edges = np.empty(count, np.int64)
    for node in range(len(indptr) - 1):
        found = 0
        for k in range(indptr[node], indptr[node + 1]):
            value = values[places[k]]
            if value <= threshold or (found == count and value <= keys[count - 1]):
                continue
            # Sorted by insertion: few are kept.
            at = min(found, count - 1)
            while at > 0 and keys[at - 1] < value:
                keys[at], edges[at] = keys[at - 1], edges[at - 1]
                at -= 1
            keys[at], edges[at] = value, places[k]
            found = min(found + 1, count)
        for i in range(found):
            chosen[edges[i]] = True
