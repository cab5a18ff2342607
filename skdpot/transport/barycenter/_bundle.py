r"""Cutting planes in a trust region: exact transport of the groups, and a small linear program.

In each round groups are sent shares; each answers by its exact transport cost to them and by the
minorant that touches it there. The next shares are near the best known ones, and minimise the sum
of the largest planes of every part of the groups. Where only sums over all groups are known, as in
rounds of owners, all groups are one part. The multipliers of that linear program mix each part's
planes to one that is as good as all of them, which proves the lower bound. Nothing is believed of
the program's solution but that it is a proposal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from ._exchange import Rounds
from ._relaxation import Plane, Relaxation, RelaxedMethod, into_capped_simplex, mixture

# Radii are in units of the cap.
_FIRST_RADIUS = 0.1
_ACCEPTED, _GOOD = 0.1, 0.5
# Planes that were slack for this many rounds are forgotten.
_PATIENCE = 20
_NO_PLANE = 1e-12


class Bundle(RelaxedMethod):
    """Cutting planes within a trust region."""

    name = "bundle"

    def relax(self, relaxation: Relaxation) -> Rounds[None]:
        """Improve shares and bound until the gap is closed or nothing can be improved."""
        center, radius, n_support = relaxation.shares, _FIRST_RADIUS, relaxation.n_support
        heights, (touching,) = yield from relaxation.evaluate(center)
        models = [[plane] for plane in touching]
        while not relaxation.finished:
            proposal = _propose(models, center, n_support, heights, relaxation.gap, radius)
            if proposal is None:
                break
            relaxation.learn(list(map(mixture, models, proposal.multipliers)))
            if relaxation.converged:
                break
            trial, (touching,) = yield from relaxation.evaluate(proposal.shares)
            models = [
                [*_still_needed(planes, multipliers), plane]
                for planes, multipliers, plane in zip(
                    models, proposal.multipliers, touching, strict=True
                )
            ]
            decrease = float(heights.sum() - trial.sum())
            radius = _next_radius(radius, decrease, proposal.decrease, relaxation.gap)
            if decrease > 0:
                center, heights = proposal.shares, trial
        relaxation.note()


def _still_needed(planes: Sequence[Plane], multipliers: np.ndarray) -> list[Plane]:
    """Return the planes without those that have not mattered for long."""
    for plane, multiplier in zip(planes, multipliers, strict=True):
        plane.idle = 0 if multiplier > _NO_PLANE else plane.idle + 1
    return [plane for plane in planes if plane.idle <= _PATIENCE]


def _next_radius(radius: float, decrease: float, expected: float, gap: float) -> float:
    """Return the trust region's next radius, which is at most 1: the whole capped simplex."""
    if decrease >= _GOOD * expected:
        radius *= 2.0
    elif decrease < 0:
        radius /= 2.0 if decrease > -expected else 4.0
    # If no step within the region can gain anything, the bound must be improved.
    if expected <= _ACCEPTED * gap:
        radius *= 4.0
    return min(radius, 1.0)


@dataclass(frozen=True, eq=False)
class _Proposal:
    """Shares to try, their possible gain, and each model's multipliers of its planes."""

    shares: np.ndarray
    decrease: float
    multipliers: list[np.ndarray]


def _propose(
    models: Sequence[Sequence[Plane]],
    center: np.ndarray,
    n_support: int,
    heights: np.ndarray,
    unit: float,
    radius: float,
) -> _Proposal | None:
    """Minimise the models near the center: shares, expected decrease, multipliers of the planes.

    A model is its planes, and `heights` are the values of models at the center. Variables are the
    moves in units of the cap, and the models' changes in units of the gap: the solver's absolute
    tolerances then act as relative ones.
    """
    n_candidates = len(center)
    planes = [plane for model in models for plane in model]
    model_of = np.repeat(np.arange(len(models)), [len(model) for model in models])
    prices = np.array([plane.prices for plane in planes])
    constants = prices @ center - heights[model_of]
    slopes = prices - prices.mean(axis=1, keepdims=True)
    constraints = np.zeros((len(planes), n_candidates + len(models)))
    constraints[:, :n_candidates] = slopes / (n_support * unit)
    constraints[np.arange(len(planes)), n_candidates + model_of] = -1.0
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
    return _Proposal(
        shares,
        -float(solution.fun) * unit,
        [multipliers[model_of == m] for m in range(len(models))],
    )
