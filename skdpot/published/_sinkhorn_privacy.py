"""Public quantities of noisy Sinkhorn; its published claim, and the epsilon that holds."""

import math
from typing import Any, NamedTuple

import numpy as np

from skdpot.privacy.accounting import epsilon_of
from skdpot.privacy.checks import check_count, check_delta, check_positive
from skdpot.privacy.sensitivity import noisy_sinkhorn_sensitivity

_LARGEST_EXPONENT = 709.0


class Problem(NamedTuple):
    """Sizes of two samples, the range of costs, the regularisation, a bound of potentials."""

    n: int
    m: int
    cost_range: float
    reg: float
    bound: float

    @property
    def smaller(self) -> int:
        """Return the size of the smaller sample."""
        return min(self.n, self.m)

    def round_sensitivity(self, rounding: float = 0.0) -> float:
        """Return how much a record moves everything that a round releases."""
        return noisy_sinkhorn_sensitivity(
            self.cost_range, self.reg, self.n, self.m, self.bound, rounding=rounding
        )

    @property
    def ratio(self) -> float:
        """Return the range of costs over the regularisation."""
        return self.cost_range / self.reg


def check_problem(n_samples: Any, cost_range: Any, reg: Any, bound: Any = None) -> Problem:
    """Return the public quantities, or raise."""
    sizes = n_samples if isinstance(n_samples, (tuple, list)) else (n_samples, n_samples)
    if len(sizes) != 2:
        raise ValueError(f"n_samples must be one size for both samples, or two, got {n_samples!r}.")
    n, m = (check_count("n_samples", size) for size in sizes)
    cost_range, reg = check_positive("cost_range", cost_range), check_positive("reg", reg)
    return Problem(
        n, m, cost_range, reg, cost_range if bound is None else check_positive("bound", bound)
    )


def exp(exponent: float) -> float:
    """Return the exponential, infinity on overflow."""
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf


def published_privacy(
    n_iter: int,
    noise_variance: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
) -> float:
    r"""Return the epsilon that the paper claims for noisy Sinkhorn: *not* a guarantee.

    Parameters
    ----------
    n_iter : int
        Number of iterations, K.
    noise_variance : float
        Variance M of the noise, above 0.
    delta : float
        Above 0 and below 1.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes; n is the smaller one.
    cost_range : float
        Costs lie between 0 and this, R.
    reg : float
        Regularisation.

    Returns
    -------
    float
        ``K C / M + sqrt(K C log(1 / delta) / M)`` with ``C = reg / 2 log(1 + 4 reg R / n exp(6 R /
        reg))``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    sound_privacy : The epsilon of a version that is private.

    Notes
    -----
    What is wrong: a replaced record moves its own potential by up to R, however many records there
    are; a bound in the sup norm is used in the l2 norm; the sensitivity is not squared; noise whose
    variance depends on the data is not covered; and the argument of the logarithm has a unit.
    Besides, the minimum over alpha that ends the proof has *twice* the square root.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Theorem 2.

    Examples
    --------
    >>> from skdpot.published import published_privacy, sound_privacy
    >>> settings = {"n_samples": 10_000, "cost_range": 1.0, "reg": 5.0}
    >>> round(published_privacy(1, 0.02, 1e-5, **settings), 2)
    3.91
    >>> sound_privacy(1, 0.02, 1e-5, **settings) > 54
    True
    """
    problem = check_problem(n_samples, cost_range, reg)
    n_iter = check_count("n_iter", n_iter)
    noise_variance = check_positive("noise_variance", noise_variance)
    log_term = math.log(4 * problem.reg * problem.cost_range / problem.smaller)
    constant = problem.reg / 2 * float(np.logaddexp(0.0, log_term + 6 * problem.ratio))
    price = n_iter * constant / noise_variance
    return price + math.sqrt(price * -math.log(check_delta(delta)))


def sound_privacy(
    n_iter: int,
    noise_variance: float,
    delta: float,
    *,
    n_samples: Any,
    cost_range: float,
    reg: float,
    bound: float | None = None,
) -> float:
    r"""Return the epsilon of noisy Sinkhorn on clipped potentials.

    Parameters
    ----------
    n_iter : int
        Number of iterations, K.
    noise_variance : float
        Variance M of the noise, above 0.
    delta : float
        Above 0 and below 1.
    n_samples : int or tuple of two ints
        Size of both samples, or their sizes. They are public, and so is the sample of each record.
    cost_range : float
        Costs lie between 0 and this.
    reg : float
        Regularisation.
    bound : float, default=None
        Released potentials are clipped to ``[-bound, bound]`` before they are used; by default
        `cost_range`.

    Returns
    -------
    float
        The epsilon of Gaussian differential privacy with ``mu = D sqrt(K / M)``, where D is the
        sensitivity of all that an iteration releases.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    See Also
    --------
    skdpot.privacy.sensitivity.noisy_sinkhorn_sensitivity : The sensitivity D.
    published_privacy : What the paper claims.

    References
    ----------
    J. Wang, Z. Goldfeld, "Differentially Private Sinkhorn Algorithm", Algorithm 1 with sigma = 0.

    Examples
    --------
    >>> from skdpot.published import sound_privacy
    >>> round(sound_privacy(1, 16.0, 1e-5, n_samples=1000, cost_range=1.0, reg=1.0), 2)
    1.0
    """
    problem = check_problem(n_samples, cost_range, reg, bound)
    n_iter = check_count("n_iter", n_iter)
    noise_variance = check_positive("noise_variance", noise_variance)
    multiplier = math.sqrt(noise_variance / n_iter) / problem.round_sensitivity()
    return epsilon_of(multiplier, check_delta(delta))


def published_linear_sensitivity(problem: Problem) -> float:
    """Return the bound of Lemma 5 on how much a record moves the cost of the optimal plan."""
    largest = problem.cost_range
    information = problem.reg * math.log(problem.smaller)
    stability = largest * math.sqrt(problem.ratio / (2 * problem.smaller)) * exp(problem.ratio)
    return 2 * largest / problem.smaller + min(information, largest, stability)
