r"""Iterative Bregman projections with a cap, in the logarithmic domain.

The regularised problem is to minimise ``sum_s lambda_s (<c_s, P_s> + reg KL(P_s))`` over plans with
rows a_s and common columns q in the capped simplex. One projection makes rows exact. The other one
makes columns equal and keeps them in the capped simplex: by the conditions of optimality,
``q_k = min(1/M, C prod_s columns_sk ** lambda_s)`` with the C that makes the sum 1. A round of both
is one pass over the costs: a client sends the logarithms of its columns, and gets those of q.
"""

import numpy as np

from skdpot.transport.log_domain import answer_matrix

from ._problem import CandidateProblem, Certificate, Minorant, minorant_of_prices

_NOTHING = np.empty((0, 0))
_SMALLEST = 1e-300
# Over-relaxation of the logarithms: 1 are the projections themselves.
RELAXATION = 1.5
# Regularisations, in units of the mean cost above the smallest one. They fall as fast as plans can
# follow: while the groups' columns differ by more than this, they wait.
FIRST_REG, LAST_REG = 0.3, 1e-5
FACTOR = 0.8
LARGEST_DISAGREEMENT = 0.1
FIRST_CHECK = 30
ROUNDS_PER_CHECK = 10
STALLED = 0.8


def log_columns(
    cost: np.ndarray, low: float, masses: np.ndarray, reg: float, prices: np.ndarray
) -> np.ndarray:
    """Return a client's message: the logarithms of the columns of its plan with exact rows."""
    columns, potential = np.zeros(cost.shape[1]), np.empty(len(masses))
    answer_matrix(cost, low, reg, prices / reg, masses, potential, columns, _NOTHING)
    return np.log(np.maximum(columns, _SMALLEST))


def capped_average(messages: np.ndarray, weights: np.ndarray, n_support: int) -> np.ndarray:
    """Return the coordinator's answer: logarithms of the capped geometric mean, with sum 1."""
    return capped(weights @ messages, n_support)


def capped(means: np.ndarray, n_support: int) -> np.ndarray:
    """Return logarithms of shares with sum 1: given ones, scaled and cut off at the cap."""
    descending = np.sort(means)[::-1]
    rest = np.logaddexp.accumulate(descending[::-1])[::-1]
    n_capped = np.arange(n_support)
    # With the m largest at the cap, this scale gives the others what is left of the mass. That
    # none of them is above the cap is certain for the last m, but for rounding.
    scales = np.log1p(-n_capped / n_support) - rest[:n_support]
    fits = scales + descending[:n_support] <= -np.log(n_support)
    fits[-1] = True
    return np.minimum(scales[fits.argmax()] + means, -np.log(n_support))


class BregmanProjections:
    """The state of all clients, and rounds of projections."""

    def __init__(self, problem: CandidateProblem) -> None:
        self.problem = problem
        self._low = problem.bounds_of_costs[0]
        self.scale = float(problem.weights @ [cost.mean() for cost in problem.costs]) - self._low
        self.prices = np.zeros((len(problem.costs), problem.n_candidates))
        self.log_shares = np.full(problem.n_candidates, -np.log(problem.n_candidates))
        # How much of the plans is where the others' is not.
        self.disagreement = 2.0

    def project(self, reg: float) -> None:
        """Make rows exact, send columns, and make them equal to the capped average."""
        problem = self.problem
        messages = np.array(
            [
                log_columns(cost, self._low, masses, reg, prices)
                for cost, masses, prices in zip(
                    problem.costs, problem.masses, self.prices, strict=True
                )
            ]
        )
        self.log_shares = capped_average(messages, problem.weights, problem.n_support)
        self.prices += (RELAXATION * reg) * (self.log_shares - messages)
        differences = np.abs(np.exp(messages) - np.exp(self.log_shares)).sum(axis=1)
        self.disagreement = float(problem.weights @ differences)

    def minorants(self) -> list[Minorant]:
        """Return what the clients' prices are worth without regularisation."""
        problem = self.problem
        return [
            minorant_of_prices(cost, masses, prices)
            for cost, masses, prices in zip(problem.costs, problem.masses, self.prices, strict=True)
        ]


def anneal(certificate: Certificate, last_reg: float = 0.0) -> list[list[Minorant]]:
    """Project with falling regularisation until the gap is closed; return the minorants met.

    Where it is not closed, end without a round left; or, if `last_reg` is positive, as soon as a
    check is below that regularisation or finds the gap nearly as wide as the one before.
    """
    projections = BregmanProjections(certificate.problem)
    found: list[list[Minorant]] = []
    relative, n_projections = FIRST_REG, 0
    while not certificate.finished:
        # Costs that do not differ need no regularisation, but a number to divide by.
        projections.project(relative * (projections.scale or 1.0))
        n_projections += 1
        certificate.n_iter += 1
        if projections.disagreement <= LARGEST_DISAGREEMENT:
            relative = max(relative * FACTOR, LAST_REG)
        if certificate.n_iter >= certificate.max_iter - 1 or (
            n_projections >= FIRST_CHECK and n_projections % ROUNDS_PER_CHECK == 0
        ):
            gap_before = certificate.gap
            found += _check(certificate, projections)
            stalled = certificate.gap > STALLED * gap_before
            if last_reg and (relative <= last_reg or stalled):
                break
    return found


def _check(certificate: Certificate, projections: BregmanProjections) -> list[list[Minorant]]:
    """Spend a round on exact costs of the shares, and on the bound that prices give."""
    certificate.n_iter += 1
    own = projections.minorants()
    certificate.learn(own)
    shares = np.exp(projections.log_shares)
    _, touching = certificate.evaluate(shares / shares.sum())
    certificate.report()
    return [own, touching]
