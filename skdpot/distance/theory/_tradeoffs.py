"""How near noisy Sinkhorn can come to the optimum for a given budget."""

import math
from typing import Any, NamedTuple

import numpy as np

from skdpot.distance.theory._privacy import published_constant, round_sensitivity
from skdpot.distance.theory._problem import (
    Problem,
    check_problem,
    check_wide_bound,
    exp,
    is_sound,
    log,
)
from skdpot.distance.theory._utility import (
    check_initial_gap,
    log_published_gain,
    log_rate,
    sound_gaps,
    zero_potentials_gap,
)
from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.checks import check_delta, check_positive

# All numbers of iterations up to 50, and then in steps of two per cent.
_ITERATIONS = np.unique(np.concatenate([np.arange(1, 51), np.geomspace(50, 1e12, 1200)]).round())


class PrivacyUtilityTradeoff(NamedTuple):
    """The least bound on the error, and the run that has it; 0 iterations keep zero potentials.

    Parameters
    ----------
    error : float
        Bound on how far the dual objective is from the optimum.
    n_iter : float
        Number of iterations, K; with the paper's accounting no integer.
    noise_variance : float
        Variance M of the noise on every potential.

    Examples
    --------
    >>> from skdpot.distance.theory import privacy_utility_tradeoff
    >>> settings = {"n_samples": 1000, "cost_range": 1.0, "reg": 2.0}
    >>> error, n_iter, noise_variance = privacy_utility_tradeoff(500.0, 1e-5, **settings)
    >>> n_iter, round(error, 3)
    (1, 0.085)
    """

    error: float
    n_iter: float
    noise_variance: float


def privacy_utility_tradeoff(
    epsilon: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
    bound: float | None = None,
    initial_gap: float | None = None,
    accounting: str = "sound",
) -> PrivacyUtilityTradeoff:
    r"""Return how near noisy Sinkhorn comes to the optimum for a budget, and the run that does.

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        Above 0 and below 1.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes.
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation.
    bound : float, default=None
        Released potentials are clipped to ``[-bound, bound]``; at least `cost_range`, which is the
        default. The paper does not clip.
    initial_gap : float, default=None
        How far the start is from the optimum, a0, for the paper's bound. It depends on the data.
        The default does not: a bound for potentials that are zero, at which the other one always
        starts.
    accounting : {"sound", "published"}, default="sound"
        Whether K and M minimise :func:`sound_utility_bound` under :func:`sound_privacy`, or the
        paper's Theorem 1 under its Theorem 2, which is *not* a guarantee.

    Returns
    -------
    PrivacyUtilityTradeoff
        With the bound ``error``, ``n_iter`` and ``noise_variance``. The paper's number of
        iterations is no integer. Where no noisy run is better than the start there are 0.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    two_stage_tradeoff : The same for the cost of the plan, which is released behind the potentials.

    Notes
    -----
    *Sound.* A budget fixes mu of Gaussian differential privacy, and so ``M = K (D / mu)^2`` with
    the sensitivity D of an iteration; what remains is a minimum over K, which is looked for among
    all K up to 50, and then in steps of two per cent. Since D is at least R however large the
    samples are, it takes a large epsilon for a run to be better than its start.

    *Published.* With ``e = log(1 / delta) / (alpha - 1)`` the claim allows ``K = (epsilon - e) M /
    (alpha C)``, and ``a0 (1 - rho)^K + tau M / (2 rho)`` is least, over M, at ``W (1 + log(a0 /
    W))`` with ``W = C' / (epsilon - e)`` and ``C' = -alpha tau C / (2 rho log(1 - rho))``. This is
    what is returned. It departs from print where that contradicts its own proofs: alpha is where
    ``(alpha - 1)^2 = log(1 / delta) (2 alpha - 1) / epsilon``, the best there is, and not ``alpha``
    in place of ``2 alpha - 1``, which follows from Theorem 2 without the factor 2 that it lost; the
    C' of eq. (17) is twice as large, and C_eta of eq. (7) leaves alpha out of its bound; and with
    the paper's M, which is best for a0 = 1, ``1 + log(a0)`` becomes a0.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Corollary 1, eq. (7), and
    eq. (17).

    Examples
    --------
    >>> from skdpot.distance.theory import privacy_utility_tradeoff
    >>> settings = {"n_samples": 1000, "cost_range": 1.0, "reg": 2.0}
    >>> privacy_utility_tradeoff(1.0, 1e-5, **settings).n_iter
    0
    >>> best = privacy_utility_tradeoff(500.0, 1e-5, **settings)
    >>> best.n_iter, round(best.error, 3), round(best.noise_variance, 4)
    (1, 0.085, 0.0013)
    """
    problem = check_problem(n_samples, cost_range, reg, bound)
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    start = check_initial_gap(initial_gap, problem.cost_range, problem.reg)
    if not is_sound(accounting):
        return _published_tradeoff(problem, epsilon, delta, start)
    _check_start(initial_gap)
    check_wide_bound(problem)
    return _sound_tradeoff(problem, epsilon, delta)


def _sound_tradeoff(problem: Problem, epsilon: float, delta: float) -> PrivacyUtilityTradeoff:
    start = zero_potentials_gap(problem.cost_range, problem.reg)
    deviation = calibrate_noise_multiplier(epsilon, delta) * round_sensitivity(problem)
    with np.errstate(over="ignore"):
        variances = _ITERATIONS * np.square(deviation)
    gaps = sound_gaps(problem, _ITERATIONS, variances)
    best = int(np.argmin(gaps))
    if not gaps[best] < start:
        return PrivacyUtilityTradeoff(start, 0, 0.0)
    return PrivacyUtilityTradeoff(float(gaps[best]), int(_ITERATIONS[best]), float(variances[best]))


def _published_tradeoff(
    problem: Problem, epsilon: float, delta: float, start: float
) -> PrivacyUtilityTradeoff:
    log_inverse_delta = -math.log(delta)
    # alpha - 1, the positive root of epsilon s^2 = log(1 / delta) (2 s + 1).
    excess = log_inverse_delta / epsilon
    excess += math.sqrt(excess) * math.sqrt(excess + 1)
    # (epsilon - log(1 / delta) / (alpha - 1)) / (alpha C), simplified by what alpha is.
    iterations_per_variance = log_inverse_delta / excess**2 / published_constant(problem)
    log_gain = log_published_gain(problem.ratio)
    log_decay = log_rate(log_gain) + log(iterations_per_variance)
    log_slope = -6 * problem.ratio - math.log(4 * problem.reg) - log_gain
    log_w = log_slope - log_decay
    if log_w >= log(start):
        return PrivacyUtilityTradeoff(start, 0, 0.0)
    logarithm = log(start) - log_w
    variance = exp(math.log(logarithm) - log_decay)
    return PrivacyUtilityTradeoff(
        exp(log_w) * (1 + logarithm), iterations_per_variance * variance, variance
    )


def _check_start(initial_gap: Any) -> None:
    if initial_gap is not None:
        raise ValueError(
            'initial_gap is for accounting="published"; runs that are private start at zero.'
        )
