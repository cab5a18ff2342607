"""From shares of candidates to a choice of distinct ones: systematic sampling, then relocation.

The largest shares may all lie in one place. Taken instead along an order in which neighbours are
near each other, every stretch of candidates gets as many points as its shares add up to, but for
one: mass moves a short way only. The choice is then improved as Lloyd's method does: with the
couplings kept, every point moves to the candidate that is cheapest for the mass it receives.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from skdpot.transport.exact import exact_transport

from ._problem import CandidateProblem

_N_LANDMARKS = 8
# Beyond this number of pairs, an optimal assignment would take longer than the solver did.
_LARGEST_ASSIGNMENT = 2_000_000
# Relative: what less than this is gained takes longer than it is worth.
SMALLEST_GAIN = 3e-4
MOST_MOVES = 5


def space_filling_order(points: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the leaves of a kd-tree from left to right: neighbours in it are near in space.

    Cells are cut at the middle of their shares, across the direction in which they are longest.
    """
    order = np.arange(len(points))
    cells = [(0, len(points))]
    while cells:
        start, end = cells.pop()
        own = order[start:end]
        coordinates = points[own]
        lengths = coordinates.max(axis=0) - coordinates.min(axis=0)
        if end - start < 2 or not lengths.max() > 0:
            continue
        own = own[np.argsort(coordinates[:, lengths.argmax()], kind="stable")]
        order[start:end] = own
        filled = np.cumsum(shares[own])
        middle = int(np.searchsorted(filled, 0.5 * filled[-1])) + 1
        middle = start + min(max(middle, 1), end - start - 1)
        cells += [(start, middle), (middle, end)]
    return order


def coordinates_from_costs(problem: CandidateProblem) -> np.ndarray:
    """Return costs to a few landmarks, points of the groups that are far apart, as coordinates.

    Each landmark is the point that is dearest to reach from the candidates near those before.
    """
    rows = np.concatenate([cost[_spread(len(cost))] for cost in problem.costs])
    rows = rows[np.unique(rows, axis=0, return_index=True)[1]]
    chosen = [0]
    distances = np.full(len(rows), np.inf)
    while len(chosen) < min(_N_LANDMARKS, len(rows)):
        distances = np.minimum(distances, np.abs(rows - rows[chosen[-1]]).max(axis=1))
        chosen.append(int(distances.argmax()))
    return rows[chosen].T


def _spread(length: int) -> np.ndarray:
    """Return a few evenly spread indices."""
    return np.unique(np.linspace(0, length - 1, 4 * _N_LANDMARKS).astype(int))


def systematic_choice(shares: np.ndarray, order: np.ndarray, n_support: int) -> np.ndarray:
    """Return the candidates at which the running sum of shares passes another half of a point."""
    filled = np.cumsum(shares[order])
    passed = np.floor(filled / filled[-1] * n_support + 0.5)
    steps = np.diff(np.minimum(passed, n_support), prepend=0.0)
    chosen = order[steps > 0]
    # Only rounding lets one candidate take two steps.
    others = np.setdiff1d(np.argsort(-shares, kind="stable"), chosen, assume_unique=True)
    return np.sort(np.concatenate([chosen, others[: n_support - len(chosen)]]))


def first_choices(shares: np.ndarray, order: np.ndarray, n_support: int) -> list[np.ndarray]:
    """Return the systematic choice, and the largest shares if they are another one."""
    systematic = systematic_choice(shares, order, n_support)
    largest = np.sort(np.argsort(-shares, kind="stable")[:n_support])
    return [systematic] if (systematic == largest).all() else [systematic, largest]


def couplings(
    problem: CandidateProblem, chosen: np.ndarray
) -> tuple[float, list[sparse.csr_array]]:
    """Return the exact objective of a choice, and each group's optimal coupling with it."""
    masses = np.full(len(chosen), 1.0 / len(chosen))
    results = [
        exact_transport(cost[:, chosen], own, masses, return_plan=True)
        for cost, own in zip(problem.costs, problem.masses, strict=True)
    ]
    value = math.fsum(problem.weights * [result.cost for result in results])
    return value, [sparse.csr_array(result.plan) for result in results]


def choose(problem: CandidateProblem, shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return a choice of candidates near the shares that no relocation of points improves much.

    The objective falls in each: it is that of the couplings, which the move makes cheaper, and new
    couplings are cheaper still.
    """
    starts = first_choices(shares, order, problem.n_support)
    (value, plans), chosen = min(
        ((couplings(problem, start), start) for start in starts), key=lambda found: found[0][0]
    )
    for _ in range(MOST_MOVES):
        moved = relocated(chosen, _relocation_costs(problem, plans))
        if (moved == chosen).all():
            break
        before = value
        trial, trial_plans = couplings(problem, moved)
        if trial < value:
            chosen, value, plans = moved, trial, trial_plans
        if not before - trial > SMALLEST_GAIN * abs(trial):
            break
    return chosen


def _relocation_costs(problem: CandidateProblem, plans: Sequence[sparse.csr_array]) -> np.ndarray:
    """Return what each chosen point would cost at each candidate, if couplings were kept."""
    costs = np.zeros((problem.n_support, problem.n_candidates))
    for weight, plan, cost in zip(problem.weights, plans, problem.costs, strict=True):
        costs += (weight * plan.T) @ cost
    return costs


def relocated(chosen: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the best distinct candidates for the chosen points, or better ones."""
    if costs.size <= _LARGEST_ASSIGNMENT:
        return np.sort(linear_sum_assignment(costs)[1])
    free = np.setdiff1d(np.arange(costs.shape[1]), chosen, assume_unique=True)
    moved = chosen.copy()
    targets = costs[:, free].argmin(axis=1)
    gains = costs[np.arange(len(chosen)), chosen] - costs[np.arange(len(chosen)), free[targets]]
    order = np.argsort(-gains, kind="stable")
    # Where several points want one candidate, it goes to the one that gains most.
    winners = order[np.unique(targets[order], return_index=True)[1]]
    winners = winners[gains[winners] > 0]
    moved[winners] = free[targets[winners]]
    return np.sort(moved)
