"""How near the cost of a noisy plan can come to that of optimal transport for a given budget."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from skdpot.distance.theory._privacy import published_linear_sensitivity
from skdpot.distance.theory._problem import Problem, check_problem, exp, is_sound, log
from skdpot.distance.theory._tradeoffs import privacy_utility_tradeoff
from skdpot.privacy.checks import check_delta, check_positive
from skdpot.privacy.sensitivity import plan_cost_sensitivity

# Odds of the shares of epsilon that are tried, one after the other.
_LOG_ODDS = np.linspace(-9, 9, 37)


class TwoStageTradeoff(NamedTuple):
    """The least bound on the error, and the shares of epsilon and the run that have it.

    Parameters
    ----------
    error : float
        Bound on how far the cost is from that of optimal transport.
    epsilon_cost, epsilon_potentials : float
        What the cost and the potentials spend.
    n_iter : float
        Number of iterations, K; with the paper's accounting no integer.
    noise_variance : float
        Variance M of the noise on every potential.

    Examples
    --------
    >>> from skdpot.distance.theory import two_stage_tradeoff
    >>> best = two_stage_tradeoff(500.0, 1e-5, n_samples=1000, cost_range=1.0, reg=2.0)
    >>> round(best.epsilon_cost + best.epsilon_potentials, 9)
    500.0
    """

    error: float
    epsilon_cost: float
    epsilon_potentials: float
    n_iter: float
    noise_variance: float


def two_stage_tradeoff(
    epsilon: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
    bound: float | None = None,
    vertex_gap: float | None = None,
    initial_gap: float | None = None,
    accounting: str = "sound",
) -> TwoStageTradeoff:
    r"""Return how near the two-stage cost comes to that of optimal transport for a budget.

    Parameters
    ----------
    epsilon : float
        Above 0: the sum of what both stages may spend.
    delta : float
        Above 0 and below 1; all of it is for the potentials.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes.
    cost_range : float
        Costs lie between 0 and this.
    reg : float
        Regularisation.
    bound : float, default=None
        Released potentials are clipped to ``[-bound, bound]``; at least `cost_range`, which is the
        default. The paper does not clip.
    vertex_gap : float, default=None
        As for :func:`regularization_objective`.
    initial_gap : float, default=None
        As for :func:`privacy_utility_tradeoff`.
    accounting : {"sound", "published"}, default="sound"
        Whether the formulas are sound, or the paper's, which are *not* a guarantee.

    Returns
    -------
    TwoStageTradeoff
        With the bound ``error``; ``epsilon_cost`` and ``epsilon_potentials``, which add up to
        `epsilon`; and ``n_iter`` and ``noise_variance`` of the first stage. With 0 iterations
        potentials are zero, and cost no privacy.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    regularization_objective : The error for a given split of epsilon, and where it comes from.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 3 and Corollary 2,
    eq. (12).

    Examples
    --------
    >>> from skdpot.distance.theory import two_stage_tradeoff
    >>> best = two_stage_tradeoff(500.0, 1e-5, n_samples=1000, cost_range=1.0, reg=2.0)
    >>> best.n_iter, round(best.epsilon_cost, 2), round(best.error, 2)
    (1, 2.77, 1.32)
    """
    problem = check_problem(n_samples, cost_range, reg, bound)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    options = {"n_samples": n_samples, "cost_range": cost_range, "reg": reg, "bound": bound}
    options |= {"initial_gap": initial_gap, "accounting": accounting}

    def evaluate(share: float) -> TwoStageTradeoff:
        first = privacy_utility_tradeoff((1 - share) * epsilon, delta, **options)
        # What potentials that are zero would have cost is left for the second stage.
        own = epsilon if first.n_iter == 0 else share * epsilon
        error = _two_stage_error(problem, own, first.error, vertex_gap, is_sound(accounting))
        return TwoStageTradeoff(error, own, epsilon - own, first.n_iter, first.noise_variance)

    return _least(evaluate)


def _least(evaluate: Callable[[float], TwoStageTradeoff]) -> TwoStageTradeoff:
    """Return the best split: of a few shares for the cost, then of all between its neighbours."""
    few = [evaluate(float(expit(odds))) for odds in _LOG_ODDS]
    best = min(range(len(few)), key=lambda index: few[index].error)
    if math.isinf(few[best].error):
        return few[best]
    step = _LOG_ODDS[1] - _LOG_ODDS[0]
    fine = minimize_scalar(
        lambda odds: evaluate(float(expit(odds))).error,
        bounds=(_LOG_ODDS[best] - step, _LOG_ODDS[best] + step),
        method="bounded",
    )
    return min(few[best], evaluate(float(expit(fine.x))), key=lambda split: split.error)


def regularization_objective(
    reg: float,
    epsilon_cost: float,
    epsilon_potentials: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    bound: float | None = None,
    vertex_gap: float | None = None,
    initial_gap: float | None = None,
    accounting: str = "sound",
) -> float:
    r"""Return the bound on the error of the two-stage cost that regularisation is to minimise.

    Parameters
    ----------
    reg : float
        Regularisation.
    epsilon_cost : float
        What the second stage, Laplace noise on the cost, may spend.
    epsilon_potentials : float
        What the first stage, the noisy potentials, may spend together with delta.
    delta : float
        Above 0 and below 1.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes, of which the smaller is N.
    cost_range : float
        Costs lie between 0 and this, R.
    bound : float, default=None
        Released potentials are clipped to ``[-bound, bound]``; at least `cost_range`, which is the
        default. The paper does not clip.
    vertex_gap : float, default=None
        By how much, G, the best vertex of the transport polytope that is not optimal costs more
        than one that is, where that is known. It depends on the data: bounds that are to be public
        do without.
    initial_gap : float, default=None
        As for :func:`privacy_utility_tradeoff`.
    accounting : {"sound", "published"}, default="sound"
        Whether the formulas are sound, or the paper's, which are *not* a guarantee.

    Returns
    -------
    float
        The sum of three errors: of regularisation, of Laplace noise, and of noisy potentials.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    two_stage_tradeoff : Its minimum over splits of epsilon.

    Notes
    -----
    *Regularisation* raises the cost by at most ``reg log N``, and R; where ``reg <= G / (1 + log
    N)`` by at most ``G exp(1 + log N - G / reg)``.

    *Laplace noise.* Sound: its mean size, the :func:`~skdpot.privacy.sensitivity
    .plan_cost_sensitivity` over its epsilon. Published: the square root of two times the
    sensitivity of Lemma 5 over epsilon, which is at most the ``4 sqrt(2) R / (N epsilon)`` of
    eq. (10) where the theorem's condition on reg holds. That is the sensitivity of another plan
    than the one whose cost is released.

    *Noisy potentials.* Sound: `reg` times the divergence q of the optimal plan p from the private
    one p' is what :func:`sound_utility_bound` bounds. Since ``|p - p'|^2 <= (2 + 4 |p - p'| / 3)
    q`` in the l1 norm (Pinsker's inequality for measures, of which one has mass 1), costs differ by
    at most ``R (2 q / 3 + sqrt(4 q^2 / 9 + 2 q))``, which is concave in q. Published: eq. (11),
    ``N R sqrt(8 / reg) exp(9 R / reg)`` times the root of the error of Corollary 1.

    This is eq. (12) before it is minimised. Its simplification, eq. (13), cannot be right: the sum
    of what it is made of has no ``1 / reg`` under the root, is proportional to ``1 / (epsilon_2 -
    e)`` and not to its inverse, and has ``-8 / reg log nu`` where there is a plus. Without the
    Laplace term, moreover, it is least where the potentials get all of epsilon. The exponent ``8 /
    3`` in eq. (11) is ``8 / reg``.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 3, eq. (10), (11),
    (12) and (13).

    Examples
    --------
    >>> from skdpot.distance.theory import regularization_objective
    >>> settings = {"n_samples": 1000, "cost_range": 1.0}
    >>> for reg in (0.5, 1.0, 2.0):
    ...     print(reg, round(regularization_objective(reg, 2.0, 498.0, 1e-5, **settings), 2))
    0.5 3.45
    1.0 2.12
    2.0 1.32
    """
    problem = check_problem(n_samples, cost_range, reg, bound)
    first = privacy_utility_tradeoff(
        check_positive("epsilon_potentials", epsilon_potentials),
        delta,
        n_samples=n_samples,
        cost_range=cost_range,
        reg=reg,
        bound=bound,
        initial_gap=initial_gap,
        accounting=accounting,
    )
    epsilon_cost = check_positive("epsilon_cost", epsilon_cost)
    return _two_stage_error(problem, epsilon_cost, first.error, vertex_gap, is_sound(accounting))


def _two_stage_error(
    problem: Problem, epsilon_cost: float, gap: float, vertex_gap: Any, sound: bool
) -> float:
    """Return the sum of the errors of regularisation, of Laplace noise and of potentials."""
    n, m, cost_range, reg, bound = problem
    regularisation = _entropic_error(problem, vertex_gap)
    if sound:
        sensitivity = plan_cost_sensitivity(cost_range, reg, n, m, bound)
        divergence = gap / reg
        distance = 2 * divergence / 3 + math.sqrt(divergence) * math.sqrt(4 * divergence / 9 + 2)
        return regularisation + sensitivity / epsilon_cost + cost_range * distance
    noise = math.sqrt(2) * published_linear_sensitivity(problem) / epsilon_cost
    log_factor = math.log(problem.smaller * cost_range) + math.log(8 / reg) / 2 + 9 * problem.ratio
    return regularisation + noise + exp(log_factor + log(gap) / 2)


def _entropic_error(problem: Problem, vertex_gap: Any) -> float:
    """Return by how much regularisation raises the cost of the optimal plan, at most."""
    log_size = math.log(problem.smaller)
    largest = min(problem.reg * log_size, problem.cost_range)
    if vertex_gap is None:
        return largest
    vertex_gap = check_positive("vertex_gap", vertex_gap)
    if problem.reg * (1 + log_size) > vertex_gap:
        return largest
    return min(vertex_gap * math.exp(1 + log_size - vertex_gap / problem.reg), largest)
