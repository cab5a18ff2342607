r"""The barycenter on candidates as a linear program: its data, its minorants, its certificate.

With groups of masses a_s and weights lambda_s, costs c_s to the candidates and M points to choose,
the relaxed problem is to minimise ``F(q) = sum_s lambda_s OT_s(q)`` over the capped simplex
``{0 <= q <= 1/M, sum q = 1}``, whose vertices are the uniform distributions on M candidates. By
duality, OT_s(q) is the largest of its minorants: for any potential phi of the group's points ::

    OT_s(q) >= sum_i a_i phi_i + sum_k q_k psi_k,      psi_k = min_i (c_ik - phi_i).

The weighted sum of a minorant of each group has the mean of its M smallest prices as its minimum
over the capped simplex, which is a lower bound on F.
"""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from skdpot.transport.exact import certifiable_gap, exact_transport
from skdpot.transport.polytope import check_weights, transform_prices

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class CandidateProblem:
    """Costs between each group's points and the candidates, and what they are weighted with."""

    costs: list[np.ndarray]
    masses: list[np.ndarray]
    weights: np.ndarray
    n_support: int

    @property
    def n_candidates(self) -> int:
        """Number of columns that all costs share."""
        return self.costs[0].shape[1]

    def essential(self) -> "CandidateProblem":
        """Return the problem without the groups and the points that have no part in it."""
        used = np.flatnonzero(self.weights)
        points = [self.masses[s] > 0 for s in used]
        return CandidateProblem(
            [
                self.costs[s] if kept.all() else self.costs[s][kept]
                for s, kept in zip(used, points, strict=True)
            ],
            [self.masses[s][kept] for s, kept in zip(used, points, strict=True)],
            self.weights[used],
            self.n_support,
        )

    @cached_property
    def bounds_of_costs(self) -> tuple[float, float]:
        """The smallest and the largest cost."""
        return (
            float(min(cost.min() for cost in self.costs)),
            float(max(cost.max() for cost in self.costs)),
        )


def check_problem(
    costs: Any, group_weights: Any, n_support: Any, masses: Any = None
) -> CandidateProblem:
    """Return the problem as arrays of doubles, or raise where it is none."""
    arrays = [_check_costs(cost, s) for s, cost in enumerate(costs)]
    if not arrays:
        raise ValueError("costs must hold one matrix per group, got none.")
    widths = sorted({cost.shape[1] for cost in arrays})
    if len(widths) > 1:
        raise ValueError(
            f"all groups must have costs to the same candidates: costs have {widths} columns."
        )
    weights = check_weights(group_weights, len(arrays), "group_weights")
    n_support = operator.index(n_support)
    if not 1 <= n_support <= widths[0]:
        raise ValueError(
            f"n_support must be between 1 and the number of candidates, {widths[0]}, as the points "
            f"that are chosen are distinct; got {n_support}."
        )
    if masses is None:
        masses = [np.full(len(cost), 1.0 / len(cost)) for cost in arrays]
    elif len(masses) != len(arrays):
        raise ValueError(f"masses are of {len(masses)} groups, costs of {len(arrays)}.")
    checked = [
        check_weights(mass, len(cost), f"masses[{s}]")
        for s, (mass, cost) in enumerate(zip(masses, arrays, strict=True))
    ]
    problem = CandidateProblem(arrays, checked, weights, n_support)
    low, high = problem.bounds_of_costs
    if not math.isfinite(high - low):
        raise ValueError(
            f"costs from {low:.3g} to {high:.3g} differ by more than a double can hold: divide "
            "them by a number."
        )
    return problem


def _check_costs(cost: Any, group: int) -> np.ndarray:
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(
            f"costs[{group}] must be a non-empty array of shape (n_points, n_candidates), got "
            f"shape {cost.shape}."
        )
    if not np.isfinite(cost).all():
        raise ValueError(f"costs[{group}] contains NaN or infinity; costs must be finite.")
    return cost


@dataclass(frozen=True, eq=False)
class Minorant:
    """A linear function of shares that a group's transport cost never falls below.

    It is ``level + prices @ shares``. The level and the prices are what a client tells the
    coordinator; the potential that they come from stays with the client.
    """

    level: float
    prices: np.ndarray
    potential: np.ndarray


@njit(nogil=True, cache=True)
def best_points(cost, potential, prices, points):
    """Set ``prices[k] = min_i cost[i, k] - potential[i]``, and `points` to who attains that."""
    prices[:] = np.inf
    for i in range(len(potential)):
        row = cost[i]
        own = potential[i]
        for k in range(len(prices)):
            price = row[k] - own
            points[k] = i if price < prices[k] else points[k]
            prices[k] = min(price, prices[k])


def minorant_of_potential(cost: np.ndarray, masses: np.ndarray, potential: np.ndarray) -> Minorant:
    """Return the minorant that a potential of a group's points leads to."""
    prices, points = np.empty(cost.shape[1]), np.zeros(cost.shape[1], np.int32)
    best_points(cost, potential, prices, points)
    return Minorant(math.fsum(masses * potential), prices, potential)


def minorant_of_prices(cost: np.ndarray, masses: np.ndarray, prices: np.ndarray) -> Minorant:
    """Return the best minorant whose prices are nowhere below the given ones."""
    potential, improved = np.empty(len(cost)), np.empty(cost.shape[1])
    transform_prices(cost, np.arange(len(cost)), masses, prices, potential, improved)
    return Minorant(math.fsum(masses * potential), improved, potential)


def exact_answer(
    cost: np.ndarray, masses: np.ndarray, shares: np.ndarray
) -> tuple[float, Minorant]:
    """Return an upper bound on a group's transport cost, and the minorant that touches it there."""
    result = exact_transport(cost, masses, shares)
    level = math.fsum(masses * result.row_potential)
    minorant = Minorant(level, result.column_potential, result.row_potential)
    return result.cost + result.gap, minorant


def mixture(minorants: Sequence[Minorant], coefficients: np.ndarray) -> Minorant:
    """Return the minorant of a mixture of potentials, or one below it that needs no client."""
    parts = list(zip(coefficients, minorants, strict=True))
    return Minorant(
        float(sum(part * minorant.level for part, minorant in parts)),
        np.sum([part * minorant.prices for part, minorant in parts], axis=0),
        np.sum([part * minorant.potential for part, minorant in parts], axis=0),
    )


def lower_bound(problem: CandidateProblem, minorants: Sequence[Minorant]) -> float:
    """Return the smallest value over the capped simplex of the groups' minorants, rounded down."""
    prices = np.zeros(problem.n_candidates)
    for weight, minorant in zip(problem.weights, minorants, strict=True):
        prices += weight * minorant.prices
    smallest = np.partition(prices, problem.n_support - 1)[: problem.n_support]
    levels = [minorant.level for minorant in minorants]
    value = math.fsum(problem.weights * levels) + math.fsum(smallest) / problem.n_support
    return value - _rounding_allowance(problem, minorants)


def _rounding_allowance(problem: CandidateProblem, minorants: Sequence[Minorant]) -> float:
    """Return what rounding may add to a bound: in sums of masses, and in prices and levels."""
    n_terms = max(map(len, problem.costs)) + problem.n_candidates + len(problem.costs)
    return rounding_allowance(
        n_terms, *problem.bounds_of_costs, [minorant.potential for minorant in minorants]
    )


def rounding_allowance(
    n_terms: int, low: float, high: float, potentials: Sequence[np.ndarray]
) -> float:
    """Return what sums of so many terms may add to a bound, for costs within `low` and `high`."""
    n_terms += 16
    spread = max(float(np.ptp(potential)) for potential in potentials)
    largest = max(float(np.abs(potential).max()) for potential in potentials)
    return _EPS * (n_terms * (high - low + spread) + 16 * (max(abs(low), abs(high)) + largest))


class Certificate:
    """The best shares and the best minorants that a solver has found, and the gap between them.

    A round is one message of n_candidates numbers from each group, and one to all of them.
    """

    def __init__(
        self,
        problem: CandidateProblem,
        tol: float,
        max_iter: int,
        callback: Callable[[int, float, float], Any] | None = None,
    ) -> None:
        self.problem, self.tol, self.max_iter = problem, tol, max_iter
        self.shares = np.full(problem.n_candidates, 1.0 / problem.n_candidates)
        self.upper, self.lower = math.inf, -math.inf
        self.minorants: list[Minorant] = []
        self.n_iter = 0
        self._callback = callback
        shape = max(map(len, problem.costs)), problem.n_candidates
        # No transport cost is known better than this.
        self._noise = 4 * certifiable_gap(*shape, *problem.bounds_of_costs)

    @property
    def gap(self) -> float:
        """How far from the optimum the best shares can be."""
        return self.upper - self.lower

    @property
    def converged(self) -> bool:
        """Whether the gap is within the tolerance, or within what rounding hides."""
        tolerance = self.tol * abs(self.upper) + self._noise
        return math.isfinite(self.gap) and self.gap <= tolerance

    @property
    def finished(self) -> bool:
        """Whether nothing remains to be done, or no round is left to do it in."""
        return self.converged or self.n_iter >= self.max_iter

    def learn(self, minorants: list[Minorant]) -> None:
        """Keep a minorant of each group if they give the best lower bound."""
        bound = lower_bound(self.problem, minorants)
        if bound > self.lower:
            self.lower, self.minorants = bound, minorants

    def evaluate(self, shares: np.ndarray) -> tuple[np.ndarray, list[Minorant]]:
        """Return the groups' exact costs of shares and their minorants, and keep what is best."""
        problem = self.problem
        answers = [
            exact_answer(cost, masses, shares)
            for cost, masses in zip(problem.costs, problem.masses, strict=True)
        ]
        costs = np.array([cost for cost, _ in answers])
        minorants = [minorant for _, minorant in answers]
        value = math.fsum(problem.weights * costs)
        if value < self.upper:
            self.upper, self.shares = value, shares
        self.learn(minorants)
        return costs, minorants

    def report(self) -> None:
        """Tell the caller how far the solver is."""
        if self._callback is not None:
            self._callback(self.n_iter, self.lower, self.upper)


def into_capped_simplex(shares: np.ndarray, n_support: int) -> np.ndarray:
    """Return shares that rounding or a solver's tolerance left outside of the capped simplex."""
    cap = 1.0 / n_support
    shares = np.clip(shares, 0.0, cap)
    missing = 1.0 - math.fsum(shares)
    room = cap - shares if missing > 0 else shares
    total = math.fsum(room)
    return shares + room * (missing / total) if total > 0 else shares
