"""Noisy Sinkhorn as published, without a guarantee: its plan and its run.

Algorithm 1 and the second stage, eq. (8), of "Differentially Private Sinkhorn Algorithm" by J. Wang
and Z. Goldfeld, with the noise of its Theorem 2 and Lemma 5. :doc:`/published` describes the errors
in that.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.privacy.checks import check_positive
from skdpot.privacy.random import NoiseSource
from skdpot.published._noisy_sinkhorn import (
    MOST_ROUNDS,
    check_gaussian_delta,
    half_step,
    nothing_left,
    plan_cost,
    read_costs,
)
from skdpot.published._sinkhorn_privacy import (
    Problem,
    published_linear_sensitivity,
    published_privacy,
)


@dataclass(frozen=True)
class PaperSinkhornPlan:
    """A run of noisy Sinkhorn as published, with the published claim: *no guarantee*.

    The claims are the epsilons of the potentials and of the cost of the plan.
    """

    problem: Problem
    n_iter: int
    noise_variance: float
    adaptive_noise: float
    cost_noise_scale: float
    delta: float
    first_claim: float
    second_claim: float

    # A ledger cannot be charged for it.
    event = None


def plan_paper_sinkhorn(
    epsilon: float,
    delta: float,
    problem: Problem,
    *,
    n_iter: int = MOST_ROUNDS,
    noise_variance: float | None = None,
    adaptive_noise: float = 0.0,
) -> PaperSinkhornPlan:
    """Return a plan of published noisy Sinkhorn for an epsilon that is claimed and does not hold.

    By default half of epsilon is claimed for the potentials (Theorem 2); eq. (12) splits it. The
    share `adaptive_noise`, sigma^2, of a round's squared step is added to the variance. The claim
    does not depend on it.

    Examples
    --------
    >>> from skdpot.published._paper_sinkhorn import plan_paper_sinkhorn
    >>> from skdpot.published._sinkhorn_privacy import check_problem
    >>> problem = check_problem(10_000, cost_range=1.0, reg=5.0)
    >>> plan = plan_paper_sinkhorn(8.0, 1e-5, problem, n_iter=1, noise_variance=0.02)
    >>> round(plan.first_claim, 2), round(plan.first_claim + plan.second_claim, 2)
    (3.91, 8.0)
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_gaussian_delta(delta)
    of_problem: dict[str, Any] = {
        "n_samples": (problem.n, problem.m),
        "cost_range": problem.cost_range,
        "reg": problem.reg,
    }
    if noise_variance is None:
        # The claim depends only on K C / M.
        with_unit_variance = published_privacy(n_iter, 1.0, delta, **of_problem)
        noise_variance = _rate(with_unit_variance, delta) / _rate(epsilon / 2, delta)
    first_claim = published_privacy(n_iter, noise_variance, delta, **of_problem)
    if first_claim >= epsilon:
        raise nothing_left(epsilon, first_claim)
    sensitivity = published_linear_sensitivity(problem)
    return PaperSinkhornPlan(
        problem=problem,
        n_iter=n_iter,
        noise_variance=noise_variance,
        adaptive_noise=adaptive_noise,
        cost_noise_scale=sensitivity / (epsilon - first_claim),
        delta=delta,
        first_claim=first_claim,
        second_claim=epsilon - first_claim,
    )


def run_paper_sinkhorn(
    cost: Any, plan: PaperSinkhornPlan, source: NoiseSource
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the noisy cost of the plan, and the noisy potentials of the last round: *not private*.

    Line 5 of Algorithm 1 answers a ``phi`` that line 8 only defines. Here it is the one before the
    noise, as in the operator T of the proof of Theorem 2.
    """
    problem = plan.problem
    costs = read_costs(cost, problem)
    phi, psi = np.zeros(problem.n), np.zeros(problem.m)
    with np.errstate(all="ignore"):
        for _ in range(plan.n_iter):
            answer = half_step(costs, psi, problem.reg)
            new_phi = answer - answer.mean()
            new_psi = half_step(costs.T, new_phi, problem.reg)
            step = np.sum((new_phi - phi) ** 2) + np.sum((new_psi - psi) ** 2)
            deviation = math.sqrt(plan.adaptive_noise * step + plan.noise_variance)
            phi = new_phi + deviation * source.normal(problem.n)
            psi = new_psi + deviation * source.normal(problem.m)
        value = plan_cost(costs, phi, psi, problem.reg)
    return value + plan.cost_noise_scale * float(_laplace(source, ())), phi, psi


def _laplace(source: NoiseSource, size: Any) -> np.ndarray:
    """Return standard Laplace doubles, which are not private in finite arithmetic."""
    uniform = source.uniform(size) - 0.5
    return -np.copysign(np.log1p(-2 * np.abs(uniform)), uniform)


def _rate(claim: float, delta: float) -> float:
    """Return the x for which Theorem 2 claims ``x + sqrt(x log(1 / delta))``."""
    root = math.sqrt(-math.log(delta))
    return (2 * claim / (math.sqrt(root**2 + 4 * claim) + root)) ** 2
