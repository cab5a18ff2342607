r"""Cutting planes in a trust region: exact transport at the clients, and a small linear program.

In each round the coordinator sends shares; each client answers by its exact transport cost to them
and by the minorant that touches it there, which is its level and K prices. The next shares minimise
the sum of the groups' largest minorants near the best shares known. The multipliers of that linear
program mix each group's minorants to one that is as good as all of them: to the potential that
proves the lower bound. Nothing is believed of the program's solution but that it is a proposal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from scipy.optimize import linprog

from ._problem import CandidateProblem, Certificate, Minorant, into_capped_simplex, mixture

# Groups beyond this number share models, so that the linear program stays small.
_MOST_MODELS = 16
# Radii are in units of the cap.
FIRST_RADIUS = 0.1
_ACCEPTED, _GOOD = 0.1, 0.5
# Planes that were slack for this many rounds are forgotten.
_PATIENCE = 20
_NO_PLANE = 1e-12


@dataclass(eq=False)
class Plane:
    """A linear function of shares, below the weighted sum of some groups' costs."""

    level: float
    prices: np.ndarray
    # For how many rounds it was slack.
    idle: int = field(default=0, kw_only=True)


@dataclass(eq=False)
class _SumOfMinorants(Plane):
    """A minorant of each group of a model, summed up with the groups' weights."""

    minorants: list[Minorant]


_AnyPlane = TypeVar("_AnyPlane", bound=Plane)


class _Model:
    """Some groups, and the planes known below the sum of their costs."""

    def __init__(self, problem: CandidateProblem, groups: np.ndarray) -> None:
        self.groups, self.weights = groups, problem.weights[groups]
        self.planes: list[_SumOfMinorants] = []

    def add(self, minorants: Sequence[Minorant]) -> None:
        """Take in a minorant of each group of the problem."""
        own = [minorants[s] for s in self.groups]
        level = float(self.weights @ [minorant.level for minorant in own])
        prices = self.weights @ np.array([minorant.prices for minorant in own])
        self.planes.append(_SumOfMinorants(level, prices, own))

    def mixtures(self, multipliers: np.ndarray) -> list[Minorant]:
        """Mix the planes of each group."""
        used, parts = parts_of_mixture(multipliers)
        return [
            mixture([self.planes[j].minorants[position] for j in used], parts)
            for position in range(len(self.groups))
        ]

    def forget(self, multipliers: np.ndarray) -> None:
        """Drop planes that have not mattered for long."""
        self.planes = still_needed(self.planes, multipliers)


def parts_of_mixture(multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which planes multipliers mix, and to which parts; the last one if they are all 0."""
    total = multipliers.sum()
    if not total > 0:
        return np.array([len(multipliers) - 1]), np.ones(1)
    used = np.flatnonzero(multipliers)
    return used, multipliers[used] / total


def still_needed(planes: Sequence[_AnyPlane], multipliers: np.ndarray) -> list[_AnyPlane]:
    """Return the planes without those that have not mattered for long."""
    for plane, multiplier in zip(planes, multipliers, strict=True):
        plane.idle = 0 if multiplier > _NO_PLANE else plane.idle + 1
    return [plane for plane in planes if plane.idle <= _PATIENCE]


def descend(certificate: Certificate, known: Sequence[list[Minorant]]) -> None:
    """Improve shares and bound until the gap is closed or nothing can be improved.

    `known` are minorants of all groups that other methods met.
    """
    problem = certificate.problem
    n_models = min(len(problem.costs), _MOST_MODELS)
    models = [
        _Model(problem, np.arange(first, len(problem.costs), n_models)) for first in range(n_models)
    ]
    center = certificate.shares
    costs, touching = certificate.evaluate(center)
    certificate.n_iter += 1
    for model in models:
        for minorants in (*known, touching):
            model.add(minorants)
    value, radius = float(problem.weights @ costs), FIRST_RADIUS
    while not certificate.finished:
        heights = [float(model.weights @ costs[model.groups]) for model in models]
        planes = [model.planes for model in models]
        proposal = propose(planes, center, problem.n_support, heights, certificate.gap, radius)
        if proposal is None:
            break
        shares, expected = proposal.shares, proposal.decrease
        certificate.learn(_in_order(models, proposal.multipliers))
        if certificate.converged:
            break
        trial_costs, touching = certificate.evaluate(shares)
        certificate.n_iter += 1
        for model, multipliers in zip(models, proposal.multipliers, strict=True):
            model.forget(multipliers)
            model.add(touching)
        trial = float(problem.weights @ trial_costs)
        radius = next_radius(radius, value - trial, expected, certificate.gap)
        if trial < value:
            center, costs, value = shares, trial_costs, trial
        certificate.report()


def next_radius(radius: float, decrease: float, expected: float, gap: float) -> float:
    """Return the trust region's next radius, which is at most 1: the whole capped simplex."""
    if decrease >= _GOOD * expected:
        radius *= 2.0
    elif decrease < 0:
        radius /= 2.0 if decrease > -expected else 4.0
    # If a step within the region has nothing to win, the bound is what must be improved.
    if expected <= _ACCEPTED * gap:
        radius *= 4.0
    return min(radius, 1.0)


@dataclass(frozen=True, eq=False)
class Proposal:
    """Shares to try, what they may gain, and each model's multipliers of its planes."""

    shares: np.ndarray
    decrease: float
    multipliers: list[np.ndarray]


def propose(
    models: Sequence[Sequence[Plane]],
    center: np.ndarray,
    n_support: int,
    heights: Sequence[float],
    unit: float,
    radius: float,
) -> Proposal | None:
    """Minimise the models near the center: shares, expected decrease, multipliers of the planes.

    A model is its planes, and `heights` are what models are worth at the center.
    Variables are the moves in units of the cap, and the models' changes in units of the gap: the
    solver's absolute tolerances then act as relative ones.
    """
    n_candidates = len(center)
    planes = [plane for model in models for plane in model]
    owners = np.repeat(np.arange(len(models)), [len(model) for model in models])
    prices = np.array([plane.prices for plane in planes])
    constants = np.array([plane.level for plane in planes]) + prices @ center
    constants -= np.array(heights)[owners]
    slopes = prices - prices.mean(axis=1, keepdims=True)
    constraints = np.zeros((len(planes), n_candidates + len(models)))
    constraints[:, :n_candidates] = slopes / (n_support * unit)
    constraints[np.arange(len(planes)), n_candidates + owners] = -1.0
    filling = center * n_support
    bounds = np.empty((n_candidates + len(models), 2))
    bounds[:n_candidates, 0] = np.maximum(-filling, -radius)
    bounds[:n_candidates, 1] = np.minimum(1.0 - filling, radius)
    bounds[n_candidates:] = -np.inf, np.inf
    balance = np.concatenate([np.ones(n_candidates), np.zeros(len(models))])
    solution = linprog(
        1.0 - balance,
        A_ub=constraints,
        b_ub=-constants / unit,
        A_eq=balance[None],
        b_eq=[0.0],
        bounds=bounds,
        method="highs",
    )
    if solution.status != 0:
        return None
    multipliers = np.maximum(-solution.ineqlin.marginals, 0.0)
    shares = into_capped_simplex(center + solution.x[:n_candidates] / n_support, n_support)
    return Proposal(
        shares,
        -float(solution.fun) * unit,
        [multipliers[owners == m] for m in range(len(models))],
    )


def _in_order(models: Sequence[_Model], multipliers: Sequence[np.ndarray]) -> list[Minorant]:
    """Return the mixed minorants of all groups, in the order of the groups."""
    found: dict[int, Minorant] = {}
    for model, parts in zip(models, multipliers, strict=True):
        found.update(zip(model.groups.tolist(), model.mixtures(parts), strict=True))
    return [found[s] for s in sorted(found)]
