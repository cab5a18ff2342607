"""Noisy Sinkhorn as it was published: nothing is guaranteed of it.

Algorithm 1 and the second stage, eq. (8), of "Differentially Private Sinkhorn Algorithm" by J. Wang
and Z. Goldfeld, with the noise that its Theorem 2 and Lemma 5 ask for. What is wrong with
that: :ref:`proof-noisy-sinkhorn`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.distance._noisy_sinkhorn import (
    MOST_ROUNDS,
    check_normal_delta,
    half_step,
    nothing_left,
    plan_cost,
    read_costs,
)
from skdpot.distance.theory import linear_component_sensitivity, published_privacy
from skdpot.privacy.checks import check_positive
from skdpot.privacy.random import NoiseSource


@dataclass(frozen=True)
class PublishedSinkhornPlan:
    """A run of noisy Sinkhorn as it was published, with what is claimed of it: *no guarantee*.

    Parameters
    ----------
    n, m : int
        Sizes of the two samples.
    cost_range : float
        Costs are from 0 to this.
    reg : float
        Regularisation.
    n_iter : int
        Number of rounds, K.
    noise_variance : float
        The least variance of the noise, M.
    adaptive_noise : float
        Share sigma^2 of a round's squared step that is added to the variance.
    cost_noise_scale : float
        Scale b of the Laplace noise on the cost of the plan.
    delta : float
        For which the claim is made.
    first_claim, second_claim : float
        The epsilons that are claimed for the potentials and for the cost of the plan.
    """

    n: int
    m: int
    cost_range: float
    reg: float
    n_iter: int
    noise_variance: float
    adaptive_noise: float
    cost_noise_scale: float
    delta: float
    first_claim: float
    second_claim: float

    @property
    def claimed_epsilon(self) -> float:
        """Return the epsilon that is claimed for the whole run, and that does not hold."""
        return self.first_claim + self.second_claim


def plan_published_sinkhorn(
    epsilon: float,
    delta: float,
    n: int,
    m: int,
    cost_range: float,
    reg: float,
    *,
    n_iter: int = MOST_ROUNDS,
    noise_variance: float | None = None,
    adaptive_noise: float = 0.0,
) -> PublishedSinkhornPlan:
    """Return a plan of published noisy Sinkhorn that claims an epsilon which does not hold.

    Parameters
    ----------
    epsilon, delta : float
        What will be claimed.
    n, m : int
        Sizes of the two samples; in the paper's formulas n is the smaller one.
    cost_range : float
        Costs are from 0 to this.
    reg : float
        Regularisation, eta in the paper.
    n_iter : int, default=10
        Number of rounds, K.
    noise_variance : float, default=None
        The least variance of the noise, M. By default such that half of epsilon is claimed for the
        potentials (Theorem 2).
    adaptive_noise : float, default=0.0
        Share sigma^2 of a round's squared step that is added to the variance: from 0 to less than
        1. The claim does not depend on it.

    Returns
    -------
    PublishedSinkhornPlan
        With no event: there is nothing that a ledger could be charged.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or if Theorem 2 leaves nothing of epsilon.

    See Also
    --------
    skdpot.distance.theory.published_privacy : The claim for the potentials.
    skdpot.distance.theory.linear_component_sensitivity : The scale of the second stage's noise.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 2, Lemma 5, and
    eq. (12), which splits epsilon between the stages.

    Examples
    --------
    >>> from skdpot.distance._published_sinkhorn import plan_published_sinkhorn
    >>> plan = plan_published_sinkhorn(
    ...     8.0, 1e-5, 10_000, 10_000, 1.0, reg=5.0, n_iter=1, noise_variance=0.02
    ... )
    >>> round(plan.first_claim, 2), round(plan.claimed_epsilon, 2)
    (3.91, 8.0)
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_normal_delta(delta)
    if not 0 <= adaptive_noise < 1:
        raise ValueError(f"adaptive_noise must be from 0 to below 1, got {adaptive_noise!r}.")
    problem: dict[str, Any] = {"n_samples": (n, m), "cost_range": cost_range, "reg": reg}
    if noise_variance is None:
        # The claim is a function of K C / M alone.
        with_unit_variance = published_privacy(n_iter, 1.0, delta, **problem)
        noise_variance = _rate(with_unit_variance, delta) / _rate(epsilon / 2, delta)
    first_claim = published_privacy(n_iter, noise_variance, delta, **problem)
    if first_claim >= epsilon:
        raise nothing_left(epsilon, first_claim)
    sensitivity = linear_component_sensitivity(**problem, accounting="published")
    return PublishedSinkhornPlan(
        n=n,
        m=m,
        cost_range=cost_range,
        reg=reg,
        n_iter=n_iter,
        noise_variance=noise_variance,
        adaptive_noise=adaptive_noise,
        cost_noise_scale=sensitivity / (epsilon - first_claim),
        delta=delta,
        first_claim=first_claim,
        second_claim=epsilon - first_claim,
    )


def run_published_sinkhorn(
    cost: Any, plan: PublishedSinkhornPlan, source: NoiseSource
) -> tuple[float, np.ndarray, np.ndarray]:
    """Run noisy Sinkhorn as it was published; its results are *not private*.

    Parameters
    ----------
    cost : array-like of shape (n, m)
        Costs from 0 to the plan's `cost_range`.
    plan : PublishedSinkhornPlan
        How it is run.
    source : NoiseSource
        Where the noise comes from.

    Returns
    -------
    value : float
        The cost of the plan that the potentials stand for, with Laplace noise.
    phi, psi : ndarray
        The potentials of the last round, with normal noise.

    Raises
    ------
    ValueError
        If the shape of the costs is not the planned one.

    Notes
    -----
    Line 5 of Algorithm 1 answers a ``phi`` that line 8 only defines. Here it is the one before the
    noise, as in the operator T of the proof of Theorem 2.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Algorithm 1 and eq. (8).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.distance._published_sinkhorn import (
    ...     plan_published_sinkhorn,
    ...     run_published_sinkhorn,
    ... )
    >>> from skdpot.privacy.random import make_source
    >>> plan = plan_published_sinkhorn(1.0, 1e-5, 3, 2, cost_range=1.0, reg=1.0)
    >>> value, phi, psi = run_published_sinkhorn(np.eye(3, 2), plan, make_source(0))
    >>> phi.shape, psi.shape
    ((3,), (2,))
    """
    costs = read_costs(cost, plan.n, plan.m)
    phi, psi = np.zeros(plan.n), np.zeros(plan.m)
    with np.errstate(all="ignore"):
        for _ in range(plan.n_iter):
            answer = half_step(costs, psi, plan.reg)
            new_phi = answer - answer.mean()
            new_psi = half_step(costs.T, new_phi, plan.reg)
            step = np.sum((new_phi - phi) ** 2) + np.sum((new_psi - psi) ** 2)
            deviation = math.sqrt(plan.adaptive_noise * step + plan.noise_variance)
            phi = new_phi + deviation * source.normal(plan.n)
            psi = new_psi + deviation * source.normal(plan.m)
        value = plan_cost(costs, phi, psi, plan.reg)
    return value + plan.cost_noise_scale * float(_laplace(source, ())), phi, psi


def _laplace(source: NoiseSource, size: Any) -> np.ndarray:
    """Return standard Laplace doubles, which protect nothing down to the last bit."""
    uniform = source.uniform(size) - 0.5
    return -np.copysign(np.log1p(-2 * np.abs(uniform)), uniform)


def _rate(claim: float, delta: float) -> float:
    """Return the x for which Theorem 2 claims ``x + sqrt(x log(1 / delta))``."""
    root = math.sqrt(-math.log(delta))
    return (2 * claim / (math.sqrt(root**2 + 4 * claim) + root)) ** 2
