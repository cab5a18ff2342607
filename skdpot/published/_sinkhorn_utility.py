"""The utility of noisy Sinkhorn: its distance from the optimum."""

import math
from typing import Any

import numpy as np
from scipy.special import expit

from skdpot.privacy.checks import check_count, check_positive
from skdpot.published._sinkhorn_problem import check_not_negative, check_problem, exp, log

_TINY, _HUGE = 1e-300, 1e300


def utility_bound(
    n_iter: int,
    noise_variance: float,
    *,
    cost_range: float,
    reg: float,
    adaptive_noise: float = 0.0,
    initial_gap: float | None = None,
) -> float:
    r"""Return how far noisy Sinkhorn is from the optimum, according to the paper.

    It holds without noise; with noise use `sound_utility_bound`.

    Parameters
    ----------
    n_iter : int
        Number of iterations, k.
    noise_variance : float
        Variance M of the noise, at least 0.
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation, eta in the paper.
    adaptive_noise : float, default=0.0
        Share sigma^2 of the squared step that is added to the variance: at least 0, below 1.
    initial_gap : float, default=None
        How far the start is from the optimum, ``a0 = F(theta_0) - F(theta*)``. It depends on the
        data. The default does not: the bound ``R - reg (1 - exp(-R / reg))``, for potentials that
        are zero.

    Returns
    -------
    float
        ``(1 - rho)^k (a0 - f) + f`` with ``rho = (1 - sigma^2) / 8 exp(-24 R / reg)``, ``f = tau M
        / (2 rho)`` and ``tau = exp(-6 R / reg) / (2 reg)``; infinite beyond the range of doubles.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    sound_utility_bound : A bound that holds with noise, too.

    Notes
    -----
    *Zero potentials.* Their dual objective is ``reg E[1 - exp(-c / reg)]``, and the optimum is at
    most ``E[c]``, the cost of the independent plan. The difference is the mean of ``c - reg (1 -
    exp(-c / reg))``, which grows with c; the bound is attained where all costs are R.

    *With noise the claim is false.* The proof of its Lemma 4 takes strong convexity, which bounds
    from below, for smoothness, and the variance of one coordinate for that of all. Where all costs
    are 0, zero is optimal. After one iteration from there the noise of psi alone adds ``reg (exp(M
    / (2 reg^2)) - 1)`` to the mean of F: at least ``M / (2 reg)``, and the claim is half of that.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 1, eq. (6).

    Examples
    --------
    >>> from skdpot.published import utility_bound
    >>> round(utility_bound(1000, 0.0, cost_range=1.0, reg=5.0), 3)
    0.033
    >>> round(utility_bound(1000, 0.0, cost_range=1.0, reg=0.001), 3)
    0.999
    """
    n_iter = check_count("n_iter", n_iter)
    noise_variance = check_not_negative("noise_variance", noise_variance)
    cost_range, reg = check_positive("cost_range", cost_range), check_positive("reg", reg)
    adaptive_noise = check_not_negative("adaptive_noise", adaptive_noise)
    if adaptive_noise >= 1:
        raise ValueError(f"adaptive_noise must be below 1, got {adaptive_noise!r}.")
    ratio = cost_range / reg
    # That of potentials that are zero.
    gap = max(cost_range + reg * math.expm1(-ratio), 0.0)
    if initial_gap is not None:
        gap = check_not_negative("initial_gap", initial_gap)
    rho = (1 - adaptive_noise) / 8 * math.exp(-24 * ratio)
    log_left = n_iter * math.log1p(-rho)
    # The bound is (1 - rho)^k a0, and the sum of (1 - rho)^i tau M / 2 over all i < k.
    n_noises = -math.expm1(log_left) / rho if rho > 0 else n_iter
    noise = exp(log(noise_variance) - math.log(4 * reg) - 6 * ratio)
    return math.exp(log_left) * gap + noise * n_noises


def sound_utility_bound(
    n_iter: int,
    noise_variance: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
    bound: float | None = None,
) -> float:
    r"""Return how far noisy Sinkhorn on clipped potentials is from the optimum, in expectation.

    Parameters
    ----------
    n_iter : int
        Number of iterations, K.
    noise_variance : float
        Variance M of the noise, at least 0.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes.
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation.
    bound : float, default=None
        Released potentials are clipped to ``[-bound, bound]``. By default `cost_range`, which is
        also the least that is allowed here.

    Returns
    -------
    float
        Bound on the mean of ``F - F*`` at the last potentials, clipped: `reg` times the generalised
        Kullback-Leibler divergence of their plan from the optimal one.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    utility_bound : What the paper claims.

    Notes
    -----
    An iteration starts from clipped potentials psi (zero at first), computes, centres and adds
    noise to phi, clips it, computes psi and adds noise. The bound is ::

        min(S^2 / (8 reg), S) + min(S^2 / (2 reg), S) + reg min(e^(M / (2 reg^2)) - 1, e^y - 1 - y)
        S = min(r^K R + (z_n + z_m) (r + ... + r^(K - 1)) + z_n, 2 B + R)

    with ``r = tanh(R / (2 reg))``, ``z_n = 2 sqrt(2 M (1 + log(max(n, 2) / 2)))``, the bound B on
    potentials and ``y = 2 B / reg``.

    *Proof.* Let osc be the largest less the least entry of a vector, and w that with 0 as one more
    entry. Let phi* and psi* be optimal, phi* with mean 0; both are within R, so in the box.

    1. Clipping brings no entry further away from one in the box, on either side of it: w of the
       difference does not grow. Nor does it in a half step, which shrinks its osc to r times that
       (Birkhoff).
    2. Let phi' be centred, and ``e = phi' - phi*``, so that ``osc(e) = w(e)``. Noise Z and clipping
       make that at most ``w(e) + w(Z)`` in w; the half step does not enlarge it; noise Z' and
       clipping add ``w(Z')``; and the half step for the next phi' leaves r times the sum. For the
       first phi', ``osc(e) <= r R``.
    3. The root mean square of w(Z) is at most z_n, since ``max(Z, 0)^2`` exceeds t with a
       probability of at most ``n / 2 exp(-t / (2 M))``. So S is one for the last ``phi - phi*``,
       clipped; and 2 B + R is a bound.
    4. With the best psi' for phi, F as a function of phi has derivatives that are differences of
       probability vectors, second derivatives of at most ``osc^2 / (4 reg)``, and derivative 0 at
       phi*. That gives the first term.
    5. In psi, F is a mean of ``v(psi_j - psi'_j)``, up to a constant, with ``v(t) = reg e^(t / reg)
       - t``. Clipping lowers some of the psi' towards psi*, by at most the w of 3, and
       ``v(-t) - v(0) <= min(t^2 / (2 reg), t)``: the second term. Noise adds the third, where no
       entry moves by more than 2 B.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 1.

    Examples
    --------
    >>> from skdpot.published import sound_utility_bound
    >>> settings = {"n_samples": 1000, "cost_range": 1.0, "reg": 1.0}
    >>> [round(sound_utility_bound(k, 1e-4, **settings), 3) for k in (1, 2, 10)]
    [0.181, 0.081, 0.027]
    """
    problem = check_problem(n_samples, cost_range, reg, bound)
    if problem.bound < problem.cost_range:
        raise ValueError(
            f"bound must be at least cost_range={problem.cost_range!r}, within which optimal "
            f"potentials are, got {problem.bound!r}."
        )
    n_iter = check_count("n_iter", n_iter)
    variance = check_not_negative("noise_variance", noise_variance)
    reg, widest = problem.reg, min(2 * problem.bound / problem.reg, _HUGE)
    contraction = max(math.tanh(problem.ratio / 2), _TINY)
    # A number close to 1 is represented by its distance from 1, 2 / (1 + exp(R / reg)).
    lack = max(2 * float(expit(-problem.ratio)), _TINY)
    log_contraction = math.log1p(-lack) if problem.ratio > 1 else math.log(contraction)
    with np.errstate(over="ignore", under="ignore"):
        sum_of_powers = -np.expm1((n_iter - 1) * log_contraction) * (contraction / lack)
        noise_of_n, noise_of_m = (
            2 * np.sqrt(2 * variance * (1 + math.log(max(size, 2) / 2)))
            for size in (problem.n, problem.m)
        )
        distance = min(
            np.exp(n_iter * log_contraction) * problem.cost_range
            + sum_of_powers * (noise_of_n + noise_of_m)
            + noise_of_n,
            2 * problem.bound + problem.cost_range,
        )
        gap_of_phi = min(distance * (distance / (8 * reg)), distance)
        gap_of_clipping = min(distance * (distance / (2 * reg)), distance)
        growth = min(np.expm1(variance / reg / reg / 2), np.expm1(widest) - widest)
        return float(gap_of_phi + gap_of_clipping + reg * growth)
