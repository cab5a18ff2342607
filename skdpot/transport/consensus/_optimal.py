"""The best plan for linear utilities, by a central solver: POT on all edges.

The multipliers of the nodes prove that the plan is the best one: the utility of every edge is at
most the sum of the multipliers of its two nodes. If a node gets less than its lower bound, the rest
is a shortage, which has a price. The price is raised until there is no shortage.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..network import LARGEST_COST, TOTAL_MASS
from ..pot import cheapest_flow
from ._bipartite import BipartiteNetwork, Side
from ._certificate import welfare, welfare_bound
from ._feasibility import check_feasible
from ._repair import repair
from ._rounding import NOTHING, largest_bound, rounded
from ._utilities import LinearUtility

# First price of a shortage, in units of the largest utility.
_SHORTAGE_PRICE = 10
# A smaller total shortage, as a share of the largest bound, counts as none.
_SHORTAGE = 1e-8


@dataclass(frozen=True, eq=False)
class OptimalPlan:
    """A plan with the largest welfare, and prices that prove it.

    Attributes
    ----------
    plan : ndarray of shape (n_edges,)
        Amounts, in the order of the targets, with the same precision of feasibility as
        :func:`repair`.
    prices : ndarray of shape (n_edges,)
        Prices of a unit that targets pay to sources; they prove `bound`. The price of an edge
        without an amount is the middle of all valid prices.
    welfare, bound : float
        Sum of all utilities of `plan`, and an upper bound for all plans.
    target_multipliers, source_multipliers : ndarray of shape (n_targets,), (n_sources,)
        Increase of the optimum for every further unit that a node may, or must, have. For every
        edge, the sum of both is at least the utility, and equal to it if there is an amount.
    n_programs : int
        Number of solved programs: more than one if the price of a shortage was raised.
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
        """Return the largest possible distance of the welfare from the optimum, per bound."""
        return (self.bound - self.welfare) / max(abs(self.bound), 1e-300)


def optimal_plan(
    network: BipartiteNetwork, target_utility: Any, source_utility: Any
) -> OptimalPlan:
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
    OptimalPlan
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
    scale = float(np.abs(slopes).max(initial=0.0)) or 1.0
    amounts, levels, n_programs = _Program(network, slopes / scale).solve()
    target_levels, source_levels = (scale * side_levels for side_levels in levels)
    side = network.targets
    # The largest price that leaves a target its multiplier, and the smallest for a source.
    pay = target_utility.slopes - target_levels[side.nodes]
    ask = source_levels[side.neighbours] - source_utility.slopes
    prices = 0.5 * (pay + ask)
    utilities = target_utility, source_utility
    plan: np.ndarray | None = amounts
    if network.violation(amounts) > NOTHING * largest_bound(network):
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
        n_programs=n_programs,
    )


class _Program:
    """A network and utilities (up to 1) as integers: a transport problem.

    Targets are rows and sources are columns. The last row and the last column are dummies: they
    take, at no cost, what is neither received nor given. A node with a lower bound is two rows or
    columns: one of that mass, whose shortage has a price, and one of the rest. Nodes that may have
    nothing are in neither.
    """

    def __init__(self, network: BipartiteNetwork, slopes: np.ndarray):
        self.network, self._slopes = network, slopes
        sides = network.targets, network.sources
        total = sum(float(side.upper.sum()) for side in sides)
        # The dummies' masses are above half of the largest total, so that POT divides by no other.
        self._mass = TOTAL_MASS / 2 / 2.0 ** (math.frexp(total)[1] if total > 0 else 0)
        self._parts = [_parts(side, self._mass) for side in sides]
        (rows, supplies, must_receive), (columns, demands, must_give) = self._parts
        of_parts = sparse.csr_array(
            (np.arange(1, network.n_edges + 1), sides[0].neighbours, sides[0].indptr),
            shape=network.shape,
        )[rows][:, columns].tocoo()
        self._edges = of_parts.data - 1
        self._ends = of_parts.coords
        n_rows, n_columns = self._shape = len(rows), len(columns)
        self._where = (
            np.concatenate([self._ends[0], np.arange(n_rows + 1), np.full(n_columns, n_rows)]),
            np.concatenate([self._ends[1], np.full(n_rows + 1, n_columns), np.arange(n_columns)]),
        )
        self._masses = [
            np.append(masses, TOTAL_MASS - masses.sum()) for masses in (supplies, demands)
        ]
        self._dummies = np.concatenate([must_receive, [False], must_give])

    def solve(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], int]:
        """Return the best amounts, the multipliers of both sides, and the number of programs."""
        price, n_solved = _SHORTAGE_PRICE, 0
        accepted = _SHORTAGE * largest_bound(self.network) * self._mass
        while True:
            flow, prices = self._solve(price)
            n_solved += 1
            dummies = flow[len(self._edges) :]
            if dummies[self._dummies].sum() <= accepted:
                amounts = np.bincount(self._edges, flow[: len(self._edges)], self.network.n_edges)
                return amounts / self._mass, self._levels(prices), n_solved
            check_feasible(self.network)
            if price > 10 * sum(self.network.shape):
                raise RuntimeError("No plan without a shortage was found.")
            price *= 10

    def _solve(self, price: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the cheapest flow, in the order of the pairs, and the columns' prices."""
        shape = self._shape[0] + 1, self._shape[1] + 1
        quantum = (price + 1) * (sum(shape) + 2) / LARGEST_COST
        # Costs are those above the least one, as all rows have to send all their masses.
        costs = np.concatenate([1.0 - self._slopes[self._edges], 1.0 + price * self._dummies])
        quanta = sparse.coo_array((np.rint(costs / quantum), self._where), shape=shape)
        if quanta.nnz == shape[0] * shape[1]:
            flow, prices = cheapest_flow(quanta.toarray(), *self._masses)
        else:
            flow, prices = cheapest_flow(quanta, *self._masses)
            flow = sparse.csr_array(flow)
        return flow[self._where], quantum * (prices[:-1] - prices[-1])

    def _levels(self, prices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return multipliers that no edge is worth more than, near the columns' prices."""
        targets, sources = self.network.targets, self.network.sources
        given = np.full(sources.n_nodes, np.inf)
        # The part that must be given has the price of the node.
        columns = self._parts[1][0]
        given[columns[::-1]] = -prices[::-1]
        given = np.where(sources.lower > 0, given, np.maximum(given, 0.0))
        received = _best(targets, self._slopes - given[targets.neighbours])
        worth = (self._slopes - received[targets.nodes])[sources.positions]
        return received, np.where(np.isfinite(given), given, _best(sources, worth))


def _parts(side: Side, unit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the nodes of parts with a mass, those masses, and which of them nodes must have."""
    lower, upper = (np.rint(bounds * unit) for bounds in (side.lower, side.upper))
    nodes = np.tile(np.arange(side.n_nodes), 2)
    masses = np.concatenate([lower, upper - lower])
    must = np.arange(len(nodes)) < side.n_nodes
    return nodes[masses > 0], masses[masses > 0], must[masses > 0]


def _best(side: Side, gains: np.ndarray) -> np.ndarray:
    """Return the gain of every node per unit on its best edge: 0 if it would lose, and need not."""
    best = side.maxima(gains)
    return np.where(np.isfinite(best) & ((best > 0) | (side.lower > 0)), best, 0.0)
