r"""Upper confidence bounds of areas and differences, for all distributions and sample sizes.

The largest of several unknown quantities is one of them, and which one does not depend on the
sample. If each quantity has an upper bound that fails with some risk, the largest bound is an upper
bound of the largest quantity at the same risk. The number of quantities does not matter. Proofs:
:ref:`certificate`.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom, kstwo


def largest_mean(mean: float, n: int, risk: float) -> float:
    """Return an upper bound of an expectation, from the mean of n numbers in [0, 1].

    The variables may be those with the largest spread of n draws of 0 or 1, such as a share of
    ordered pairs of n and at least n rows.

    Examples
    --------
    >>> from skdpot.fairness._confidence import largest_mean
    >>> round(largest_mean(0.5, 500, 0.05), 3)
    0.546
    """
    if mean >= 1.0:
        return 1.0
    # Up to this probability, the lowest cases are n times 0.
    least = max(mean, 1.0 - risk ** (1.0 / n))
    if mean <= 0.0:
        return least
    return float(brentq(lambda p: _lowest_mean(n, p, risk) - mean, least, 1.0, xtol=1e-9))


def _lowest_mean(n: int, p: float, risk: float) -> float:
    """Return the lower tail mean of the share of successes in n draws with probability p.

    The tail has the probability `risk`.
    """
    if p >= 1.0:
        return 1.0
    count = binom.ppf(risk, n, p)
    below = binom.cdf(count - 1, n, p)
    in_full = n * p * binom.cdf(count - 2, n - 1, p)
    return float((in_full + count * (risk - below)) / (n * risk))


@cache
def gap_radius(n: int, m: int, risk: float) -> float:
    """Return the confidence radius of the difference of two probabilities, from n and m rows.

    Examples
    --------
    >>> from skdpot.fairness._confidence import gap_radius
    >>> round(gap_radius(500, 500, 0.05), 3)
    0.058
    """
    of_hoeffding = math.sqrt(math.log(1.0 / risk) / 2.0 * (1.0 / n + 1.0 / m))
    found = brentq(lambda x: _sum_exceeds(x, n, m) - risk, 0.0, of_hoeffding)
    return min(of_hoeffding, float(found) + 1.0 / n + 1.0 / m)


def _sum_exceeds(x: float, n: int, m: int) -> float:
    """Return the probability that the positive parts of two Gaussian errors have a larger sum.

    The errors have the largest variances of shares of n and m rows.
    """
    wide, narrow = 0.5 / math.sqrt(min(n, m)), 0.5 / math.sqrt(max(n, m))

    def density(part: float) -> float:
        return math.exp(-0.5 * (part / wide) ** 2) * float(ndtr((part - x) / narrow))

    between = quad(density, 0.0, x, epsabs=1e-10)[0] / (wide * math.sqrt(2.0 * math.pi))
    return float(ndtr(-x / wide)) + 0.5 * float(ndtr(-x / narrow)) + between


def largest_gap(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest difference between the shares of two samples at or below a number.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._confidence import largest_gap
    >>> largest_gap(np.array([1.0, 2.0]), np.array([1.5, 3.0]))
    0.5
    """
    values = np.unique(np.concatenate([x, y]))
    shares = [np.searchsorted(np.sort(s), values, side="right") / len(s) for s in (x, y)]
    return float(np.abs(shares[0] - shares[1]).max())


def gap_bound(x: np.ndarray, y: np.ndarray, risk: float) -> float:
    """Return an upper bound of the largest difference, for the distributions of the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.fairness._confidence import gap_bound
    >>> round(gap_bound(np.arange(900), np.arange(900), 0.05), 3)
    0.042
    """
    return min(1.0, largest_gap(x, y) + gap_radius(len(x), len(y), risk))


def rank_gap(sizes: Sequence[int], shifts: Sequence[float], risk: float) -> float:
    """Return an upper bound of the difference of two groups' rank distributions, for new rows.

    A group's ranks are among `sizes` of its own rows, and are off by at most its `shifts`.

    Examples
    --------
    >>> from skdpot.fairness._confidence import rank_gap
    >>> round(rank_gap([1000, 1000], [0.0, 0.0], 0.05), 3)
    0.093
    """
    of_each = kstwo.isf(risk / len(sizes), np.asarray(sizes))
    largest = np.sort(of_each + np.asarray(shifts))[-2:]
    return min(1.0, float(largest.sum()))


def area_under(gap: float) -> float:
    """Return the largest AUC of a score whose two distributions differ by `gap`.

    Examples
    --------
    >>> from skdpot.fairness._confidence import area_under
    >>> area_under(0.0), area_under(1.0)
    (0.5, 1.0)
    """
    return 0.5 + gap - gap**2 / 2.0
