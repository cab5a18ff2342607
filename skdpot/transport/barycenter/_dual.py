r"""The paper's single-loop dual subgradient method, with a certificate.

A client keeps potentials phi of its points; theta_i of the paper is ``w_s phi_i``, with
``w_s = lambda_s / M``, so that a step in units of w_s is a step in units of cost here. Its message
is ``T_k = max_i (theta_i - w_s c_ik) - sum_i a_i theta_i``, K numbers. The best multiplier theta_0
of the number of points is known for given messages: it lets the M candidates of the largest sums
pass, and the dual value is minus their sum. The answer is who they are.
"""

import math
from collections import deque
from collections.abc import Iterable

import numpy as np

from ._problem import (
    CandidateProblem,
    Certificate,
    Minorant,
    best_points,
    into_capped_simplex,
    minorant_of_potential,
)

MOMENTUM = 0.9
# The first step for one point too many or too few, in units of the mean cost above the smallest.
FIRST_STEP = 0.05
ROUNDS_PER_CHECK = 50
AVERAGED = 200


def useful_candidates(
    cost: np.ndarray, masses: np.ndarray, unit: float, potential: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return a client's message T of equation (15), and the points that attain its maxima."""
    prices, points = np.empty(cost.shape[1]), np.zeros(cost.shape[1], np.int32)
    best_points(cost, potential, prices, points)
    return -unit * (prices + math.fsum(masses * potential)), points


def selected(usefulness: np.ndarray, n_selected: int) -> np.ndarray:
    """Return the coordinator's answer: the candidates of the largest sums of messages."""
    return np.sort(np.argpartition(-usefulness, n_selected - 1)[:n_selected])


def ascent(masses: np.ndarray, points: np.ndarray, n_support: int) -> np.ndarray:
    """Return a client's subgradient: points it should have been given, less those that it was.

    `points` are its points that serve the selected candidates, of which a batch may have fewer
    than `n_support`: they count for as many.
    """
    counts = np.bincount(points, minlength=len(masses))
    return n_support * (masses - counts / len(points))


def average_selection(
    selections: Iterable[tuple[float, np.ndarray]], n_candidates: int, n_support: int
) -> np.ndarray:
    """Return the average of selections, each weighted by the length of its step, as shares."""
    total = np.zeros(n_candidates)
    for step, chosen in selections:
        total[chosen] += step / len(chosen)
    return into_capped_simplex(total / total.sum(), n_support)


class DualSubgradient:
    """The state of all clients and of the coordinator, and rounds of ascent."""

    def __init__(self, problem: CandidateProblem, primal_recovery: int | None) -> None:
        self.problem = problem
        low = problem.bounds_of_costs[0]
        self._unit = FIRST_STEP * (
            float(problem.weights @ [cost.mean() for cost in problem.costs]) - low
        )
        self._potentials = [np.zeros(len(masses)) for masses in problem.masses]
        self._momenta = [np.zeros(len(masses)) for masses in problem.masses]
        self._best_value, self._best = -math.inf, self._potentials
        self._recent: deque = deque(maxlen=primal_recovery or AVERAGED)
        self._n_steps = 0

    def ascend(self, batch: np.ndarray | None = None) -> None:
        """Exchange messages about all candidates, or about a batch of them, and take a step."""
        problem = self.problem
        n_seen = problem.n_candidates if batch is None else len(batch)
        n_selected = max(1, round(problem.n_support * n_seen / problem.n_candidates))
        usefulness, attained = np.zeros(n_seen), []
        for cost, masses, weight, potential in self._clients():
            message, points = useful_candidates(
                cost if batch is None else cost[:, batch],
                masses,
                weight / problem.n_support,
                potential,
            )
            usefulness += message
            attained.append(points)
        chosen = selected(usefulness, n_selected)
        if batch is None:
            value = -math.fsum(usefulness[chosen])
            if value > self._best_value:
                self._best_value = value
                self._best = [potential.copy() for potential in self._potentials]
        self._n_steps += 1
        step = 1.0 / math.sqrt(self._n_steps)
        self._recent.append((step, chosen if batch is None else batch[chosen]))
        for potential, momentum, masses, points in zip(
            self._potentials, self._momenta, problem.masses, attained, strict=True
        ):
            momentum *= MOMENTUM
            momentum += (1 - MOMENTUM) * ascent(masses, points[chosen], problem.n_support)
            potential += self._unit * step * momentum

    def recovered_shares(self) -> np.ndarray:
        """Return the average of the last selections, weighted by their steps, as shares."""
        return average_selection(self._recent, self.problem.n_candidates, self.problem.n_support)

    def candidates_of_bound(self) -> list[list[Minorant]]:
        """Return the minorants of the best and of the last potentials."""
        return [
            [
                minorant_of_potential(cost, masses, potential.copy())
                for cost, masses, potential in zip(
                    self.problem.costs, self.problem.masses, potentials, strict=True
                )
            ]
            for potentials in (self._best, self._potentials)
        ]

    def _clients(self):
        problem = self.problem
        return zip(problem.costs, problem.masses, problem.weights, self._potentials, strict=True)


def ascend(
    certificate: Certificate, batches: Iterable[np.ndarray] | None, primal_recovery: int | None
) -> None:
    """Take steps until the gap is closed, the batches are used up, or no round is left."""
    method = DualSubgradient(certificate.problem, primal_recovery)
    queue = None if batches is None else iter(batches)
    n_steps = 0
    while not certificate.finished:
        batch = None if queue is None else next(queue, None)
        exhausted = queue is not None and batch is None
        if not exhausted:
            method.ascend(batch)
            certificate.n_iter += 1
            n_steps += 1
        last = exhausted or certificate.n_iter >= certificate.max_iter - 1
        if last or n_steps % ROUNDS_PER_CHECK == 0:
            certificate.n_iter += 1
            for minorants in method.candidates_of_bound():
                certificate.learn(minorants)
            certificate.evaluate(method.recovered_shares())
            certificate.report()
        if exhausted:
            break
