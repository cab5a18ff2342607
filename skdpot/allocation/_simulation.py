"""Simulated allocations of made-up utilities: the share of the optimum that noise costs."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdpot.privacy.preview import ExpectedError
from skdpot.transport.consensus import welfare

from ._problem import Problem
from ._solver import Solution, Solver

# Networks with more edges are not simulated. If the network simplex finds plans, small networks are
# simulated several times, with up to this many edges in all.
LARGEST_SIMULATED = 2000
_EDGES, _MOST_DRAWS = 1000, 10
# Maximum number of rounds of the search for a plan, and its smallest tolerance.
_ROUNDS, _TOLERANCE = 300, 1e-3
# If a plan for the middles of the ranges loses less than this share, every plan is good.
_NOTHING_AT_STAKE = 1e-6


# Returns the plan made of released utilities of a problem, given a seed.
Released = Callable[[int, Problem, Solver], Solution]


def share_lost(
    problem: Problem, solver: Solver, ranges: Any, released: Released
) -> tuple[ExpectedError, ...]:
    """Return the share of the optimum that a release loses; its scale is the loss of a blind plan.

    Only the public network of the problem is used. `ranges` are the ranges of uniform utilities of
    targets and of sources. `released` makes a release, and the plan from it. The result is empty
    where any plan is about as good as another.
    """
    quick = replace(
        solver,
        max_iter=min(solver.max_iter, _ROUNDS),
        tol=max(solver.tol, _TOLERANCE),
        progress={"disable": True},
    )
    network, rng = problem.network, np.random.default_rng(0)
    ends = ranges[: len(problem.values)]
    most = _MOST_DRAWS if problem.family == "linear" else 1
    n_draws = int(np.clip(_EDGES // max(network.n_edges, 1), 1, most))
    worth = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        middles = problem.with_values(np.full(network.n_edges, np.mean(values)) for values in ends)
        blind = quick.best_plan(middles)
        for seed in range(n_draws):
            drawn = problem.with_values(
                rng.uniform(low, high, network.n_edges) for low, high in ends
            )
            targets, sources = drawn.utilities()
            plans = (quick.best_plan(drawn), released(seed, drawn, quick), blind)
            worth.append([welfare(network, targets, sources, result.plan) for result in plans])
    best, found, guessed = np.mean(worth, axis=0)
    if not best or best - guessed <= _NOTHING_AT_STAKE * abs(best):
        return ()
    lost, scale = max(best - found, 0.0) / abs(best), (best - guessed) / abs(best)
    what = "share of the largest total utility that is lost, if utilities are uniform"
    return (ExpectedError(what, float(lost), float(scale)),)
