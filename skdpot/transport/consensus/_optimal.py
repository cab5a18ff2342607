"""The best plan for linear utilities, by a central solver: a network simplex on all edges.

The multipliers of the nodes prove that the plan is the best one: the utility of every edge is at
most the sum of the multipliers of its two nodes. If a node gets less than its lower bound, the rest
is a shortage, which has a price. The price is raised until there is no shortage.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bipartite_simplex import FORBIDDEN, LARGEST_PRICE, UNLIMITED, BipartiteSimplex
from ._bipartite import BipartiteNetwork
from ._certificate import welfare, welfare_bound
from ._feasibility import check_feasible
from ._repair import repair
from ._rounding import NOTHING, largest_bound, rounded
from ._utilities import LinearUtility

# First price of a shortage, in units of the largest utility.
_SHORTAGE_PRICE = 10
# A smaller total shortage, as a share of the largest bound, counts as none.
_SHORTAGE = 1e-8
# Largest total of all masses and of all prices on a path, and digits of a price, as powers of two:
# sums of such integers are exact.
_TOTAL_MASS, _TOTAL_COST, _DIGITS = 60, 59, 52
# With a start, edges that miss less at its prices are tried first; a share of the largest utility.
_NEAR = 1e-2


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
    network: BipartiteNetwork,
    target_utility: Any,
    source_utility: Any,
    *,
    start: np.ndarray | None = None,
) -> OptimalPlan:
    """Return a plan with the largest welfare for linear utilities, computed centrally.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    target_utility, source_utility : LinearUtility
        Utilities of the edges to their targets and to their sources, both in the order of the
        targets. The plan depends only on their sums.
    start : ndarray of shape (n_edges,) or None, default=None
        Prices near the best ones, such as those of :func:`consensus`. Edges that are good at these
        prices are tried first. The optimum does not depend on them, and the time hardly does.

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
    The solver is a network simplex on integers: bounds are rounded to 2**-60 of the total, and
    utilities to 2**-59 of the largest one times the number of nodes. It always ends. The gap
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
    program = _Program(network, slopes / scale)
    if start is not None:
        levels = _levels_of_prices(network, target_utility, source_utility, start)
        side = network.targets
        missing = levels[0][side.nodes] + levels[1][side.neighbours] - slopes
        program.start(missing / scale)
    amounts, levels = program.solve()
    target_levels, source_levels = (scale * side_levels for side_levels in levels)
    side = network.targets
    # The largest price that leaves a target its multiplier, and the smallest for a source.
    pay = target_utility.slopes - target_levels[side.nodes]
    ask = source_levels[side.neighbours] - source_utility.slopes
    prices = 0.5 * (pay + ask)
    utilities = target_utility, source_utility
    plan: np.ndarray | None = amounts
    if program.violation(amounts) > NOTHING * largest_bound(network):
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
    """Return the gain of every node per unit on its best edge, at some prices."""
    prices = np.asarray(prices, dtype=np.float64)
    if prices.shape != (network.n_edges,):
        raise ValueError(f"start must have shape ({network.n_edges},), got {prices.shape}.")
    levels = []
    for side, gains in (
        (network.targets, target_utility.slopes - prices),
        (network.sources, (source_utility.slopes + prices)[network.sources.positions]),
    ):
        best = side.maxima(gains)
        # A node that may have nothing never loses.
        levels.append(np.where(np.isfinite(best) & ((best > 0) | (side.lower > 0)), best, 0.0))
    return tuple(levels)


class _Program:
    """A network and utilities (up to 1) as integers, and the current tree of the simplex."""

    def __init__(self, network: BipartiteNetwork, slopes: np.ndarray):
        self.network, self._slopes = network, slopes
        self.n_solved = 0
        n_targets, n_nodes = network.shape[0], sum(network.shape)
        sides = network.targets, network.sources
        total = max(float(side.upper.sum()) for side in sides)
        self._mass = 2.0 ** (_TOTAL_MASS - (math.frexp(total)[1] if total > 0 else 0))
        lower, upper = (
            np.rint(np.concatenate(bounds) * self._mass).astype(np.int64)
            for bounds in zip(*((side.lower, side.upper) for side in sides), strict=True)
        )
        self._quantum = 2.0 ** -min(_DIGITS, _TOTAL_COST - (n_nodes + 1).bit_length())
        self._costs = np.rint(slopes * (-1.0 / self._quantum)).astype(np.int64)
        self._is_target = np.arange(n_nodes) < n_targets
        # The unserved part of a target's upper bound is free up to the kink, and a shortage beyond
        # it. A source that gives less than its kink has a shortage.
        kinks = np.where(lower > 0, upper - lower, UNLIMITED)
        self._kinks = np.where(self._is_target, kinks, lower)
        self._simplex = BipartiteSimplex(
            *(network.targets.indptr, network.targets.neighbours),
            np.where(self._is_target, upper, 0),
            self._kinks,
            np.where(self._is_target, UNLIMITED, upper),
        )
        # An arc without capacity must not be in a cycle.
        self._empty = upper[n_targets:] == 0
        self._costs[self._empty[network.targets.neighbours]] = FORBIDDEN

    def start(self, missing: np.ndarray) -> None:
        """Move to the best plan on the edges that miss little, in units of the largest utility."""
        self._solve(np.where(missing < _NEAR, self._costs, FORBIDDEN), self._first_price())

    def solve(self) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return the best amounts, and the multipliers of targets and of sources."""
        price = self._first_price()
        while True:
            self.n_solved += 1
            self._solve(self._costs, price)
            if self._shortage() <= _SHORTAGE * largest_bound(self.network):
                return self._amounts(), self._levels()
            check_feasible(self.network)
            if price == LARGEST_PRICE:
                raise RuntimeError("No plan without a shortage was found.")
            price = min(10 * price, LARGEST_PRICE)

    def _first_price(self) -> int:
        return min(_SHORTAGE_PRICE * round(1.0 / self._quantum), LARGEST_PRICE)

    def _solve(self, costs: np.ndarray, shortage_price: int) -> None:
        low = np.where(self._is_target, 0, -shortage_price)
        self._simplex.solve(costs, low, low + shortage_price)

    def _shortage(self) -> float:
        beyond = self._simplex.to_root - self._kinks
        return float(np.maximum(np.where(self._is_target, beyond, -beyond), 0).sum()) / self._mass

    def _amounts(self) -> np.ndarray:
        amounts = np.zeros(self.network.n_edges)
        edges, masses = self._simplex.flow()
        amounts[edges] = masses / self._mass
        return amounts

    def violation(self, amounts: np.ndarray) -> float:
        """Return the largest violation of a bound by amounts on the edges of the tree."""
        side, edges = self.network.targets, self._simplex.flow()[0]
        masses, largest = amounts[edges], 0.0
        for side_of_nodes, nodes in ((side, side.nodes), (self.network.sources, side.neighbours)):
            sums = np.bincount(nodes[edges], masses, side_of_nodes.n_nodes)
            largest = max(
                largest,
                (np.maximum(sums - side_of_nodes.upper, side_of_nodes.lower - sums)).max(
                    initial=0.0
                ),
            )
        return float(largest)

    def _levels(self) -> tuple[np.ndarray, np.ndarray]:
        levels = self._simplex.prices * self._quantum
        targets, sources = np.split(levels, [self.network.shape[0]])
        sources = -sources
        if self._empty.any():
            side = self.network.targets
            worth = self._slopes - targets[side.nodes]
            least = np.zeros(len(sources))
            np.maximum.at(least, side.neighbours, worth)
            sources = np.where(self._empty, least, sources)
        return targets, sources
