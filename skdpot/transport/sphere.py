"""The optimal base measure on the unit sphere under powers of the Euclidean distance.

With ``E = exp(epsilon)``, ``z = (1 - <x, y>) / 2`` (so that the squared distance is ``4 z``) and
``a = (d - 1) / 2``, a uniform output y makes z a symmetric beta variable with parameters (a, a).
The optimal mechanism has density ``E c`` on the cap ``z <= z*`` around the input and c outside it
(:ref:`proof-unit-vectors`).
"""

import math
import operator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaln, psi

from .polytope import check_epsilon

__all__ = ["SphereBaseMeasure", "sphere_cap_cost", "sphere_base_measure"]

_LOG_4 = math.log(4.0)
_LOG_SMALLEST = math.log(np.finfo(np.float64).tiny)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class SphereBaseMeasure:
    """A multiple of the uniform distribution on the sphere, and the mechanism that belongs to it.

    Parameters
    ----------
    scale : float
        The base measure is `scale` times the uniform distribution.
    threshold : float
        The density is ``exp(epsilon) * scale`` where ``(1 - <x, y>) / 2 <= threshold``, and
        `scale` elsewhere.
    cost : float
        Expected distance between input and output to the power ``order``, the same for every unit
        vector, and the worst case over all distributions on the sphere.
    cap_probability : float
        Probability of the cap ``(1 - <x, y>) / 2 <= threshold`` under the uniform distribution.

    Examples
    --------
    >>> from skdpot.transport.sphere import sphere_base_measure
    >>> round(sphere_base_measure(3, epsilon=2.0, order=2).cap_probability, 4)
    0.2689
    """

    scale: float
    threshold: float
    cost: float
    cap_probability: float


def sphere_base_measure(n_features, epsilon, *, order=1) -> SphereBaseMeasure:
    """Find the optimal base measure for unit vectors under Euclidean distance to a power.

    By symmetry it is a multiple of the uniform distribution; which one is the root of a scalar
    equation, solved to rounding. It depends on nothing private.

    Parameters
    ----------
    n_features : int
        Number of coordinates d of the vectors, at least 2.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.
    order : float, default=1
        The cost is the Euclidean distance to this power; positive.

    Returns
    -------
    SphereBaseMeasure
        With fields `scale`, `threshold`, `cost` and `cap_probability`.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or if the cap or the cost is not representable.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, Appendix H.

    Examples
    --------
    In three dimensions with squared distances, the scale is ``exp(-epsilon / 2)`` and the cost
    ``4 / (1 + exp(epsilon / 2))``:

    >>> import math
    >>> from skdpot.transport import sphere_base_measure
    >>> result = sphere_base_measure(3, epsilon=2.0, order=2)
    >>> round(result.scale / math.exp(-1.0), 9)
    1.0
    >>> round(result.cost * (1.0 + math.exp(1.0)), 9)
    4.0
    """
    shape = _check_dimension(n_features)
    gain = math.expm1(check_epsilon(epsilon))
    half_order = _check_order(order) / 2
    log_threshold = _solve_log_threshold(shape, gain, half_order)
    threshold = math.exp(log_threshold)
    cap = float(betainc(shape, shape, threshold))
    return SphereBaseMeasure(
        scale=1.0 / (1.0 + gain * cap),
        threshold=threshold,
        cost=_exp(half_order * (log_threshold + _LOG_4)),
        cap_probability=cap,
    )


def sphere_cap_cost(n_features, epsilon, threshold, *, order=1) -> float:
    """Expected cost of the mechanism that prefers a cap, whether or not the cap suits the cost.

    Parameters
    ----------
    n_features : int
        Number of coordinates d of the vectors, at least 2.
    epsilon : float
        Privacy parameter, positive, with a finite exponential.
    threshold : float
        The density is ``exp(epsilon)`` times larger where ``(1 - <x, y>) / 2 <= threshold``; in
        (0, 1].
    order : float, default=1
        The cost is the Euclidean distance to this power; positive.

    Returns
    -------
    float
        Expectation of the distance between input and output to the power `order`; the same for
        every unit vector, and so public.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the cost is not representable.

    References
    ----------
    Differentially Private Sampling from Distributions via Wasserstein Projection, Appendix H.

    Examples
    --------
    The mechanism that is optimal for distances, and its expected squared distance:

    >>> from skdpot.transport.sphere import sphere_cap_cost, sphere_base_measure
    >>> result = sphere_base_measure(10, epsilon=2.0)
    >>> round(sphere_cap_cost(10, 2.0, result.threshold, order=2), 4)
    1.5007
    """
    shape = _check_dimension(n_features)
    gain = math.expm1(check_epsilon(epsilon))
    half_order = _check_order(order) / 2
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold!r}.")
    near = 1.0 + gain * float(betainc(shape + half_order, shape, threshold))
    total = 1.0 + gain * float(betainc(shape, shape, threshold))
    return _exp(_log_mean_cost(shape, half_order) + math.log(near) - math.log(total))


def _check_dimension(n_features):
    """Return the parameter (d - 1) / 2 of the beta distribution."""
    n_features = operator.index(n_features)
    if n_features < 2:
        raise ValueError(f"n_features={n_features}: a sphere needs at least 2 features.")
    return (n_features - 1) / 2


def _check_order(order):
    order = float(order)
    if not (order > 0 and math.isfinite(order)):
        raise ValueError(f"order must be positive and finite, got {order}.")
    return order


def _exp(log_cost):
    try:
        return math.exp(log_cost)
    except OverflowError:
        raise ValueError(
            "the cost overflows, as distances reach 2: choose a smaller order."
        ) from None


def _solve_log_threshold(shape, gain, half_order):
    """Return log(z*), where the density's jump costs as much as it saves.

    Both sides of the optimality condition are compared by their logarithms, as functions of
    log z: they span hundreds of decades, and this difference does not.
    """
    log_mean = _log_mean_cost(shape, half_order)

    def excess(log_z):
        z = math.exp(log_z)
        cap = math.log1p(gain * float(betainc(shape, shape, z)))
        cost_in_cap = math.log1p(gain * float(betainc(shape + half_order, shape, z)))
        return half_order * (log_z + _LOG_4) + cap - (log_mean + cost_in_cap)

    # The cost at the edge of the cap never exceeds the mean cost of a uniform output.
    largest = log_mean / half_order - _LOG_4
    if excess(largest) <= 0:
        return largest
    if excess(_LOG_SMALLEST) >= 0:
        raise ValueError(
            "epsilon is too large for this number of features and this order: the optimal cap is "
            "smaller than the smallest float. Choose a smaller epsilon."
        )
    # As tight as brentq allows.
    return brentq(excess, _LOG_SMALLEST, largest, xtol=1e-16, rtol=4 * np.finfo(np.float64).eps)


def _log_mean_cost(shape, half_order):
    """Return the logarithm of the mean cost of a uniform output, 4**h B(a + h, a) / B(a, a)."""
    if half_order > shape:
        ratio = betaln(shape + half_order, shape) - betaln(shape, shape)
    else:
        # In high dimension both terms are large and nearly equal; their difference is an integral
        # of digamma functions, so smooth here that the quadrature is exact to rounding.
        steps = half_order * (_NODES + 1) / 2
        slopes = psi(shape + steps) - psi(2 * shape + steps)
        ratio = half_order / 2 * float(_WEIGHTS @ slopes)
    return half_order * _LOG_4 + float(ratio)
