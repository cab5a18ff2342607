r"""Rounds of the support: from shares to a choice of candidates, or to points that move freely.

A group's optimal coupling with a support of M points gives each of them its image, the mean of the
mass it receives. Of squared costs, the sums :math:`b_j` of the weighted images are all that is
needed: with couplings kept, point j would cost :math:`|b_j - z|^2 / M` at z, but for a constant.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from scipy.stats import qmc

from skdpot.federation._solvers._problem import BarycenterProblem, Exchange
from skdpot.federation._solvers._relaxation_rounds import Rounds
from skdpot.transport.barycenter import _rounding


class Placed(NamedTuple):
    """A support, bounds on its objective, and the weighted sum of the groups' images."""

    support: np.ndarray
    upper: float
    lower: float
    images: np.ndarray


def place(exchange: Exchange, support: np.ndarray) -> Rounds[Placed]:
    """Let groups couple with a support."""
    problem = exchange.problem
    largest = max(problem.largest_cost, problem.largest_coordinate)
    answer = yield from exchange.ask("images", 2 + support.size, largest, support=support)
    unheard = problem.resolution * largest if problem.resolution else 0.0
    upper, lower = float(answer[0]) + unheard, float(answer[1]) - unheard
    return Placed(support, upper, lower, answer[2:].reshape(support.shape))


def choose(
    exchange: Exchange, candidates: np.ndarray, shares: np.ndarray
) -> Rounds[tuple[np.ndarray, Placed]]:
    """Return a choice near the shares that no relocation improves much, as `_rounding.choose`."""
    n_support = exchange.problem.n_support
    order = _rounding.space_filling_order(candidates, shares)
    best: Placed | None = None
    for start in _rounding.first_choices(shares, order, n_support):
        placed = yield from place(exchange, candidates[start])
        if best is None or placed.upper < best.upper:
            chosen, best = start, placed
    assert best is not None
    for _ in range(_rounding.MOST_MOVES):
        moved = _rounding.relocated(
            chosen, cdist(best.images, candidates, "sqeuclidean") / n_support
        )
        if (moved == chosen).all():
            break
        before = best.upper
        trial = yield from place(exchange, candidates[moved])
        if trial.upper < best.upper:
            chosen, best = moved, trial
        if not before - trial.upper > _rounding.SMALLEST_GAIN * abs(trial.upper):
            break
    return chosen, best


def first_support(exchange: Exchange, weighing: dict[str, np.ndarray]) -> Rounds[np.ndarray]:
    """Return points of a normal distribution, spread evenly, like the groups on average.

    Its mean is the groups' weighted mean, and its covariance the weighted mean of theirs: that of
    the barycenter is of this size, whereas the covariance of all points together is larger.
    """
    problem = exchange.problem
    d = problem.n_features
    largest = max(problem.largest_cost, problem.largest_coordinate)
    answer = yield from exchange.ask("moments", d + d * d, largest, **weighing)
    covariance = answer[d:].reshape(d, d)
    variances, directions = np.linalg.eigh(0.5 * (covariance + covariance.T))
    # The symmetric root does not depend on the signs that directions happen to have.
    root = (directions * np.sqrt(np.maximum(variances, 0.0))) @ directions.T
    return within(problem, answer[:d] + _spread_points(problem.n_support, d) @ root)


def _spread_points(n: int, n_features: int) -> np.ndarray:
    """Return points of the standard normal distribution, always the same."""
    sequence = qmc.Sobol(n_features, scramble=False).random_base2(math.ceil(math.log2(n + 1)))
    # The first one is a corner of the cube.
    return ndtri(sequence[1 : n + 1])


def within(problem: BarycenterProblem, points: np.ndarray) -> np.ndarray:
    """Return points moved into the declared box, if there is one."""
    return points if problem.bounds is None else np.clip(points, *problem.bounds)


def move_freely(
    exchange: Exchange, support: np.ndarray, history: list[tuple[int, float, float]]
) -> Rounds[tuple[Placed, bool]]:
    """Move points to the sums of their images until that gains little; tell whether it does.

    Each round lowers the objective: with couplings kept, the sums are the best places, and new
    couplings are cheaper still.
    """
    problem = exchange.problem
    best = yield from place(exchange, support)
    history.append((1, math.nan, best.upper))
    for n_iter in range(2, problem.max_iter + 1):
        trial = yield from place(exchange, within(problem, best.images))
        history.append((n_iter, math.nan, min(trial.upper, best.upper)))
        gained, best = best.upper - trial.upper, min(best, trial, key=lambda one: one.upper)
        if gained <= problem.tol * best.upper:
            return best, True
    return best, False
