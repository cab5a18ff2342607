"""Renyi divergences between the releases from two neighbouring data sets.

All functions take orders above 1 as an array and return an array.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# Integrals that need more points are replaced by a bound. The other integrals are raised by a share
# that is far above their errors.
_MOST_POINTS = 200_000
_MARGIN = 1e-9
# Beyond this many standard deviations, a Gaussian density is negligible.
_FAR = 13.0


def renyi_randomised_response(epsilon: float, orders: np.ndarray) -> np.ndarray:
    """Return ``log(cosh((a - 1/2) epsilon) / cosh(epsilon / 2)) / (a - 1)`` for every order a.

    It is exact for randomised response, and an upper bound for every epsilon-private release.
    """
    if epsilon == 0:
        return np.zeros_like(orders)
    far, near = (orders - 0.5) * epsilon, epsilon / 2
    # The difference of the hyperbolic cosines over the second, exact also where both are small.
    small = np.minimum(orders * near, 10)
    excess = 2 * np.sinh(small) * np.sinh(small * (1 - 1 / orders)) / math.cosh(min(near, 10))
    log_ratio = np.where(
        orders * near < 10, np.log1p(excess), np.logaddexp(far, -far) - np.logaddexp(near, -near)
    )
    return np.minimum(log_ratio / (orders - 1), epsilon)


def renyi_laplace(epsilon: float, orders: np.ndarray) -> np.ndarray:
    """Return the divergences of Laplace noise of scale ``1 / epsilon`` around 0 and around 1."""
    weight = orders / (2 * orders - 1)
    up, down = (orders - 1) * epsilon, -orders * epsilon
    small = weight * np.expm1(np.minimum(up, 1)) + (1 - weight) * np.expm1(down)
    large = np.logaddexp(np.log(weight) + up, np.log1p(-weight) + down)
    logs = np.where(up < 1, np.log1p(np.maximum(small, 0)), large)
    # Where the difference cancels, the bound for any pure release is the same number.
    any_release = renyi_randomised_response(epsilon, orders)
    return np.where(orders * epsilon < 1e-6, any_release, np.minimum(logs / (orders - 1), epsilon))


def renyi_mixture(rate: float, divergences: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return bounds for two mixtures that share ``1 - rate``; the rest has `divergences`.

    ``exp((a - 1) D_a)`` is jointly convex, and 1 for equal distributions.
    """
    powers = (orders - 1) * divergences
    near = np.log1p(rate * np.expm1(np.minimum(powers, 700)))
    # In logarithms, so that exp(power) does not overflow.
    rest = powers + math.log(rate)
    far = np.where(rest < 700, np.log1p(np.exp(np.minimum(rest, 700)) - rate), rest)
    far = np.minimum(far * (1 + 1e-12), powers)
    return np.where(powers < 700, near, far) / (orders - 1)


def renyi_sampled_gaussian(
    rate: float, mu: float, orders: np.ndarray, neighbouring: str, *, centred: bool = False
) -> np.ndarray:
    """Return the divergences of the dominating pairs of Poisson-sampled Gaussian noise.

    With the sampling rate q, and the likelihood ratio ``w = 1 - q + q exp(mu z - mu ** 2 / 2)`` at
    a standard normal z, the divergence at order a is that of the expectation of ``w ** a`` under
    "add_remove"; of its part where w > 1, and of the mirror image of that part, under
    "replace_one".

    `centred` says that a record that is added moves a sum by at most half of mu. Under
    "replace_one" two samples then have the ratios w for mu / 2 and for -mu / 2 to one without the
    record.

    A divergence is infinite where the integral would take too many points.
    """
    pair = neighbouring if neighbouring == "add_remove" or not centred else "centred"
    return np.array([_sampled_gaussian(rate, mu, float(a), pair) for a in orders])


@lru_cache(maxsize=8192)
def _sampled_gaussian(rate: float, mu: float, order: float, pair: str) -> float:
    lowest = {"add_remove": -_FAR, "replace_one": mu / 2, "centred": 0.0}[pair]
    highest = order * mu + _FAR
    n_panels = math.ceil((highest - lowest) / (0.5 / max(1.0, mu)))
    if n_panels * len(_NODES) > _MOST_POINTS:
        return math.inf
    width = (highest - lowest) / n_panels
    middles = lowest + width * (np.arange(n_panels)[:, np.newaxis] + 0.5)
    z = middles + width / 2 * _NODES
    if pair == "centred":
        log_reference = _log_sampled_ratio(rate, -mu / 2, z)
        log_ratio = _log_sampled_ratio(rate, mu / 2, z) - log_reference
        log_terms = log_reference + _log_symmetric_excess(log_ratio, order)
    else:
        log_excess = _log_excess if pair == "add_remove" else _log_symmetric_excess
        log_terms = log_excess(_log_sampled_ratio(rate, mu, z), order)
    log_terms -= z**2 / 2
    log_integral = logsumexp(log_terms, b=_WEIGHTS * width / 2) - math.log(2 * math.pi) / 2
    return float(np.logaddexp(0, log_integral)) / (order - 1) * (1 + _MARGIN)


def _log_sampled_ratio(rate: float, mu: float, z: np.ndarray) -> np.ndarray:
    """Return the logarithm of ``w = 1 - q + q exp(mu z - mu ** 2 / 2)``."""
    log_ratio = mu * z - mu**2 / 2
    if rate == 1:
        return log_ratio
    return np.where(
        log_ratio < 1,
        np.log1p(rate * np.expm1(np.minimum(log_ratio, 1))),
        np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio),
    )


def _log_excess(log_w: np.ndarray, order: float) -> np.ndarray:
    """Return the logarithm of ``w ** a - 1 - a (w - 1)``, whose mean is that of ``w ** a - 1``."""
    near = np.expm1(np.minimum(order * log_w, 40)) - order * np.expm1(np.minimum(log_w, 40))
    # Where the difference cancels, the first terms of its series.
    tiny = np.abs(order * log_w) < 1e-3
    small = np.where(tiny, log_w, 0.0)
    terms = ((order**k - order) * small**k / math.factorial(k) for k in (2, 3, 4))
    near = np.where(tiny, sum(terms), near)
    # For large w relative to w ** a, which would overflow.
    far = -np.expm1(np.minimum((1 - order) * log_w + math.log(order), 0))
    with np.errstate(divide="ignore"):
        return np.where(
            order * log_w < 40, np.log(np.maximum(near, 0)), order * log_w + np.log(far)
        )


def _log_symmetric_excess(log_w: np.ndarray, order: float) -> np.ndarray:
    """Return the logarithm of ``w ** a - w + w ** (1 - a) - 1 = (w ** a - w) (1 - w ** -a)``."""
    with np.errstate(divide="ignore"):
        rest = np.log(-np.expm1((1 - order) * log_w)) + np.log(-np.expm1(-order * log_w))
    return order * log_w + rest
