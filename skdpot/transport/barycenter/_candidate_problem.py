"""Costs between groups and candidates, checked; and the bound that potentials prove."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..polytope import check_weights
from ._minorants import Minorant, rounding_allowance


@dataclass(frozen=True, eq=False)
class CandidateProblem:
    """Costs between each group's points and the candidates, and their weights."""

    costs: list[np.ndarray]
    masses: list[np.ndarray]
    weights: np.ndarray
    n_support: int

    @property
    def n_candidates(self) -> int:
        """Number of columns that all costs share."""
        return self.costs[0].shape[1]

    @property
    def n_couplings(self) -> int:
        """Number of pairs of points and candidates, which are variables of the program."""
        return sum(cost.size for cost in self.costs)

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
    """Return the problem as arrays of doubles, or raise if it is invalid."""
    arrays = [_check_costs(cost, s) for s, cost in enumerate(costs)]
    if not arrays:
        raise ValueError("costs must hold one matrix per group, got none.")
    widths = sorted({cost.shape[1] for cost in arrays})
    if len(widths) > 1:
        raise ValueError(f"all groups need the same candidates: costs have {widths} columns.")
    weights = check_weights(group_weights, len(arrays), "group_weights")
    n_support = operator.index(n_support)
    if not 1 <= n_support <= widths[0]:
        raise ValueError(
            f"n_support must be between 1 and the number of candidates, {widths[0]}, because the "
            f"chosen points are distinct; got {n_support}."
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
            f"costs from {low:.3g} to {high:.3g} differ by more than a double can hold: rescale "
            "them."
        )
    return problem


def _check_costs(cost: Any, group: int) -> np.ndarray:
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(
            f"costs[{group}] must be non-empty, of shape (n_points, n_candidates), got "
            f"{cost.shape}."
        )
    if not np.isfinite(cost).all():
        raise ValueError(f"costs[{group}] contains NaN or infinity; costs must be finite.")
    return cost


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
    """Return the largest effect of rounding on a bound, in masses, prices and levels."""
    n_terms = max(map(len, problem.costs)) + problem.n_candidates + len(problem.costs)
    return rounding_allowance(
        n_terms, *problem.bounds_of_costs, [minorant.potential for minorant in minorants]
    )
