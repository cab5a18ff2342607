r"""Noisy Sinkhorn with the corrections that make it private: its plan and its run.

Algorithm 1 and the second stage, eq. (8), of "Differentially Private Sinkhorn Algorithm" by J. Wang
and Z. Goldfeld, with released and clipped potentials as the only inputs of a half step, and noise
scaled to its sensitivity. A *plan* is made of public values, and describes the releases of a run;
the run then neither raises nor warns because of private values.

The following makes a run private if labels, and so the sizes n and m, are public:

*Inputs.* Every half step computes from costs that are clipped to ``[0, R]``, and from potentials
that were *released* before, clipped to ``[-B, B]``: for neighbours these are the same.

*Potentials.* In real numbers, the two half steps of a round move by at most s and s' in the l2
norm, with ``s^2 + s'^2 <= D^2`` (`noisy_sinkhorn_sensitivity`). A computed potential is off by less
than ``2**-45 (R + B + reg)``, a bound that Higham's rules for sums and a relative error of 1 ulp in
exp and log give for up to 2**30 terms. Rounded to a grid of width g, two potentials are at most g
further apart than they were. So the l2 norms grow by at most ``e = sqrt(max(n, m)) (g + 2**-44 (R +
B + reg))`` each, and with D for ``noisy_sinkhorn_sensitivity``, and Gaussian noise of at least the
planned variance M, rounded to the same grid, K rounds are Gaussian
differential privacy with ``mu = D sqrt(K / M)``. g is so small that D hardly grows by that.

*Cost of the plan.* Given the released potentials, a record moves it by at most
`plan_cost_sensitivity`. Rounding adds less than ``2**-44 (1 + (2 B + R) / reg)`` of the largest
term, which is ``min(n, m)`` times as much as that. With Laplace noise of that scale it is pure
differential privacy, and composes with the first stage.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of, plan_epsilon
from skdpot.privacy.checks import check_count, check_delta, check_positive
from skdpot.privacy.events import ComposedDpEvent, GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism
from skdpot.privacy.random import NoiseSource
from skdpot.privacy.sensitivity import plan_cost_sensitivity
from skdpot.published._sinkhorn_privacy import Problem

# Maximum number of rounds, unless more are asked for.
MOST_ROUNDS = 10
# More rounds lose more by noise than they gain by convergence, unless the standard deviation of the
# noise is below this share of the bound on potentials (tried for regularisations of 0.2 to 1 times
# R).
_SMALL_NOISE = 0.02
# Rounding to the grid adds at most this share of a round's sensitivity, or this share of the noise,
# whichever is more: the noise must span fewer than 2**40 points.
_GRID_SHARE, _GRID_SHARE_OF_NOISE = 2.0**-20, 2.0**-27
# A larger budget is not spent, since noise can hardly be smaller.
_LARGEST_BUDGET = 1e30
# With a larger epsilon times the number of records, the grid of the second stage, which is finer
# than its noise, would not reach the largest cost of a plan.
_LARGEST_EPSILON = 2.0**39
# Larger exponents, or their products with costs, could overflow.
_LARGEST_EXPONENT = 700.0
# Error of the arithmetic, as a share of its inputs.
_ARITHMETIC_SHARE = 2.0**-44
_MARGIN = 1e-12


@dataclass(frozen=True)
class NoisySinkhornPlan:
    """The releases of a run of private noisy Sinkhorn; everything in it is public.

    The noise multiplier is that of all rounds together, as one Gaussian release. The cost
    sensitivity is how much a record can change the cost of the plan, once the potentials are
    released. The first epsilon is the price of the potentials at delta.
    """

    problem: Problem
    n_iter: int
    noise_variance: float
    granularity: float
    noise_multiplier: float
    cost_sensitivity: float
    delta: float
    first_epsilon: float
    second_epsilon: float

    @property
    def event(self) -> PlannedDpEvent:
        """Return the event of a run, under the relation "replace_one"."""
        return _event(self.noise_multiplier, self.second_epsilon, self.delta)

    @cached_property
    def potential_mechanism(self) -> GaussianMechanism:
        """Return the noise on the potentials of a sample, with at least the planned variance."""
        of_a_round = self.noise_multiplier * math.sqrt(self.n_iter)
        return GaussianMechanism.from_noise_multiplier(
            of_a_round,
            math.sqrt(self.noise_variance) / of_a_round,
            n_coordinates=max(self.problem.n, self.problem.m),
            granularity=self.granularity,
        )

    @cached_property
    def cost_mechanism(self) -> LaplaceMechanism:
        """Return the noise on the cost of the plan."""
        return LaplaceMechanism(self.second_epsilon, self.cost_sensitivity)


def plan_noisy_sinkhorn(
    epsilon: float,
    delta: float,
    problem: Problem,
    *,
    n_iter: int | None = None,
    noise_variance: float | None = None,
) -> NoisySinkhornPlan:
    """Return a plan of noisy Sinkhorn whose event costs at most epsilon at delta, or raise.

    By default the number of rounds, from 1 to 10, is what half of epsilon pays for with noise of
    variance `noise_variance`; or, without it, with a standard deviation of a fiftieth of the bound
    on potentials. The default variance makes all rounds cost half of epsilon.

    Examples
    --------
    >>> from skdpot.published._noisy_sinkhorn import plan_noisy_sinkhorn
    >>> from skdpot.published._sinkhorn_privacy import check_problem
    >>> plan = plan_noisy_sinkhorn(1.0, 1e-5, check_problem(1000, cost_range=1.0, reg=1.0))
    >>> plan.n_iter, round(plan.first_epsilon, 3), round(plan.second_epsilon, 3)
    (1, 0.5, 0.5)
    >>> round(plan.noise_variance), round(plan.cost_mechanism.scale, 4)
    (57, 0.0054)
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_gaussian_delta(delta)
    epsilon = min(epsilon, _LARGEST_BUDGET)
    # With this deviation, a single round costs half of epsilon.
    half = calibrate_noise_multiplier(epsilon / 2, delta) * _round_sensitivity(problem)
    if noise_variance is None:
        n_iter = _rounds(n_iter, _SMALL_NOISE * problem.bound / half)
        noise_variance = n_iter * half**2
    else:
        noise_variance = check_positive("noise_variance", noise_variance)
        n_iter = _rounds(n_iter, math.sqrt(noise_variance) / half)
    granularity = _granularity(problem, math.sqrt(noise_variance))
    of_all_rounds = math.sqrt(n_iter) * _round_sensitivity(problem, granularity)
    multiplier = math.sqrt(noise_variance) / of_all_rounds * (1 - _MARGIN)
    first_epsilon = epsilon_of(multiplier, delta)
    left = _what_is_left(epsilon, delta, multiplier, first_epsilon)
    plan = NoisySinkhornPlan(
        problem=problem,
        n_iter=n_iter,
        noise_variance=noise_variance,
        granularity=granularity,
        noise_multiplier=multiplier,
        cost_sensitivity=_cost_sensitivity(problem),
        delta=delta,
        first_epsilon=first_epsilon,
        second_epsilon=min(left, _LARGEST_EPSILON / problem.smaller),
    )
    # Computed now, since they raise if the noise is out of range.
    plan.potential_mechanism, plan.cost_mechanism  # noqa: B018
    return plan


def run_noisy_sinkhorn(
    cost: Any, plan: NoisySinkhornPlan, source: NoiseSource
) -> tuple[float, np.ndarray, np.ndarray]:
    """Release the potentials of the last round, and the cost of their transport plan.

    Costs are of shape (n, m), and shifted to the interval from 0 to the range of costs; others are
    clipped, and NaN counts as the largest. Only the row or column of a record may depend on the
    record, except for arithmetic errors below ``2**-46 R``. The cost of the plan is ``sum_ij c_ij
    exp((phi_i + psi_j - c_ij) / reg) / (n m)`` for the clipped potentials, with Laplace noise.
    """
    problem, mechanism = plan.problem, plan.potential_mechanism
    costs = read_costs(cost, problem)
    bound, largest = problem.bound, problem.cost_range
    with np.errstate(all="ignore"):
        costs = np.clip(np.where(np.isnan(costs), largest, costs), 0.0, largest)
        psi = np.zeros(problem.m)
        for _ in range(plan.n_iter):
            answer = half_step(costs, np.clip(psi, -bound, bound), problem.reg)
            phi = mechanism.release(answer - answer.mean(), source)
            answer = half_step(costs.T, np.clip(phi, -bound, bound), problem.reg)
            psi = mechanism.release(answer, source)
        phi_used, psi_used = np.clip(phi, -bound, bound), np.clip(psi, -bound, bound)
        value = plan_cost(costs, phi_used, psi_used, problem.reg)
    return plan.cost_mechanism.release(value, source), phi, psi


def read_costs(cost: Any, problem: Problem) -> np.ndarray:
    """Return costs as doubles, or raise if the plan is for other costs."""
    costs = np.asarray(cost, dtype=np.float64)
    if costs.shape != (problem.n, problem.m):
        raise ValueError(f"costs must have shape {problem.n, problem.m}, got {costs.shape}.")
    return costs


def half_step(costs: np.ndarray, potentials: np.ndarray, reg: float) -> np.ndarray:
    """Return the potentials of the rows, computed from those of the columns."""
    # Sums along contiguous rows are pairwise, as the bound on their rounding errors requires.
    exponents = np.subtract(potentials, costs, order="C") / reg
    largest = exponents.max(axis=1, keepdims=True)
    means = np.exp(exponents - largest).mean(axis=1)
    return -reg * (largest[:, 0] + np.log(means))


def plan_cost(costs: np.ndarray, phi: np.ndarray, psi: np.ndarray, reg: float) -> float:
    """Return the cost of the plan of two potentials."""
    return float(np.mean(costs * np.exp((phi[:, None] + psi - costs) / reg)))


def _event(noise_multiplier: float, second_epsilon: float, delta: float) -> PlannedDpEvent:
    """Return the event of both stages."""
    stages = [GaussianDpEvent(noise_multiplier), LaplaceDpEvent(1 / second_epsilon)]
    return PlannedDpEvent(ComposedDpEvent(stages), delta)


def check_gaussian_delta(delta: Any) -> float:
    """Return delta, or raise, with a reason if it is zero."""
    if isinstance(delta, (int, float)) and delta == 0:
        raise ValueError("noisy Sinkhorn adds Gaussian noise: delta must be above 0, got 0.")
    return check_delta(delta)


def _rounds(n_iter: Any, deviations: float) -> int:
    """Return the number of rounds: the requested one, or one that the budget pays for."""
    if n_iter is not None:
        return check_count("n_iter", n_iter)
    return int(min(max(deviations**2, 1), MOST_ROUNDS))


def _granularity(problem: Problem, deviation: float) -> float:
    """Return the width of a grid for potentials with noise of this deviation: a power of two."""
    rounding = max(_GRID_SHARE * _round_sensitivity(problem), _GRID_SHARE_OF_NOISE * deviation)
    return math.ldexp(0.5, math.frexp(rounding / math.sqrt(max(problem.n, problem.m)))[1])


def _round_sensitivity(problem: Problem, granularity: float = 0.0) -> float:
    """Return how much a record moves a round that is computed and rounded to a grid."""
    arithmetic = _ARITHMETIC_SHARE * (problem.cost_range + problem.bound + problem.reg)
    return problem.round_sensitivity(granularity + arithmetic)


def _cost_sensitivity(problem: Problem) -> float:
    """Return how much a record moves the computed cost of the plan, or raise if it is too much."""
    n, m, cost_range, reg, bound = problem
    computed = plan_cost_sensitivity(cost_range, reg, n, m, bound, rounding=_ARITHMETIC_SHARE)
    if not (2 * bound / reg <= _LARGEST_EXPONENT and math.isfinite(computed)):
        raise ValueError(
            f"reg={reg!r} is too small for potentials up to {bound!r}: the cost of their plan may "
            "be beyond the range of doubles. Choose a larger reg or a smaller potential_bound."
        )
    return computed


def _what_is_left(epsilon: float, delta: float, multiplier: float, first_epsilon: float) -> float:
    """Return the largest epsilon of the second stage that keeps the total price at epsilon.

    The sum of the stages' epsilons is a valid price as well. But a ledger takes the price of the
    composition, which is about 3 % lower if the stages cost the same, and may be slightly higher,
    by rounding, if one costs much more than the other.
    """
    left = epsilon - first_epsilon
    while left > epsilon * _MARGIN:
        price = plan_epsilon(_event(multiplier, left, delta), delta, neighbouring="replace_one")
        if price <= epsilon:
            return left
        left -= min(2 * (price - epsilon), left / 2)
    raise nothing_left(epsilon, first_epsilon)


def nothing_left(epsilon: float, first_epsilon: float) -> ValueError:
    """Return the error for rounds that spend the whole budget."""
    return ValueError(
        f"the rounds spend {first_epsilon:g} of epsilon={epsilon:g}, and leave nothing for the "
        "cost of the plan. Choose a larger noise_variance or a smaller n_iter."
    )
