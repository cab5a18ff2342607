"""Guarantees that add up: the cost of a single event in a privacy filter.

Under fully adaptive composition a release may depend on earlier ones. Then only these guarantees
may be added as charges arrive: pairs (epsilon, delta), Renyi divergences at orders fixed
beforehand, and squared Gaussian parameters. Every function returns the sum over the parts of an
event, and raises as `check_event` does.

An (epsilon, delta)-private release counts as an epsilon-private one that fails with probability
delta; the deltas are added separately.

A guarantee of a Poisson-sampled event must also bound the comparison of a sample with the record to
the sample without it. So under "replace_one" its parameters must hold for adding, removing and
replacing a record of the sample. They do so for sums of contributions from a set that contains
zero.

References
----------
.. [1] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", Journal of the Royal
   Statistical Society B 84, 2022. :doi:`10.1111/rssb.12454`
.. [2] I. Mironov, "Rényi differential privacy", CSF 2017. :doi:`10.1109/CSF.2017.11`
.. [3] I. Mironov, K. Talwar, L. Zhang, "Rényi differential privacy of the sampled Gaussian
   mechanism", 2019. :arxiv:`1908.10530`
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import erfinv, ndtri_exp

from skdpot.privacy import events as ev
from skdpot.privacy.accounting.relations import check_relation
from skdpot.privacy.accounting.renyi import (
    renyi_laplace,
    renyi_mixture,
    renyi_randomised_response,
    renyi_sampled_gaussian,
)
from skdpot.privacy.rounding import as_written, written_rounded_up


def pure_epsilon(event: ev.DpEvent) -> float:
    """Return the epsilon of an event's pure guarantee, apart from failures.

    It is infinite for an event without one, such as Gaussian noise. An event is
    ``(pure_epsilon(event), failure_delta(event))``-differentially private.

    Examples
    --------
    >>> from skdpot.privacy import LaplaceDpEvent, PureDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import pure_epsilon
    >>> pure_epsilon(SelfComposedDpEvent(PureDpEvent(0.5), 3))
    1.5
    >>> pure_epsilon(LaplaceDpEvent(4.0))
    0.25
    """
    return sum((count * _pure_epsilon(leaf) for leaf, count in ev.leaves(event)), 0.0)


def _pure_epsilon(leaf: Any) -> float:
    match leaf:
        case ev.PureDpEvent() | ev.ApproximateDpEvent():
            return float(leaf.epsilon)
        case ev.LaplaceDpEvent():
            return 1 / leaf.noise_multiplier
        case ev.ZCDpEvent(rho=0):
            return float(leaf.xi)
        case ev.PoissonSampledDpEvent():
            return amplified_epsilon(pure_epsilon(leaf.event), leaf.sampling_probability)
    return math.inf


def amplified_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return ``log(1 + q (exp(epsilon) - 1))``, the epsilon after Poisson sampling."""
    if sampling_rate == 0:
        return 0.0
    if epsilon < 700:
        return math.log1p(sampling_rate * math.expm1(epsilon))
    # In logarithms, so that exp(epsilon) does not overflow.
    rest = epsilon + math.log(sampling_rate)
    amplified = math.log1p(math.exp(rest) - sampling_rate) if rest < 700 else rest
    return min(amplified * (1 + 1e-12), epsilon)


def failure_delta(event: ev.DpEvent) -> float:
    """Return the probability with which an event's other guarantees may fail.

    It is the sum of the deltas of its approximate parts, times the sampling rate for a
    Poisson-sampled part. The delta at which a plan is sold does not count.

    Examples
    --------
    >>> from skdpot.privacy import ApproximateDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import failure_delta
    >>> failure_delta(SelfComposedDpEvent(ApproximateDpEvent(0.5, 1e-6), 3))
    3e-06
    """
    return written_rounded_up(exact_failure(event))


def exact_failure(event: ev.DpEvent) -> Fraction:
    """Return the exact number that `failure_delta` rounds up."""
    return sum((count * _failure_of(leaf) for leaf, count in ev.leaves(event)), Fraction(0))


def _failure_of(leaf: Any) -> Fraction:
    # Every kind has its rule: a kind that was forgotten here would fail for free.
    match leaf:
        case ev.ApproximateDpEvent():
            return as_written(leaf.delta)
        case ev.PoissonSampledDpEvent():
            return Fraction(leaf.sampling_probability) * exact_failure(leaf.event)
        case ev.GaussianDpEvent() | ev.LaplaceDpEvent() | ev.PureDpEvent() | ev.ZCDpEvent():
            return Fraction(0)
    raise TypeError(f"no rule for a {type(leaf).__name__}.")


def squared_gaussian_mu(event: ev.DpEvent) -> float:
    """Return the squared parameter of a Gaussian release that bounds the event.

    A release is mu-Gaussian differentially private if telling two neighbours apart is at least as
    hard as telling N(0, 1) from N(mu, 1). The squares of such parameters add up, under adaptive
    composition too [1]_. The square is ``1 / noise_multiplier ** 2`` for Gaussian noise. For a pure
    release, mu is that of the Gaussian with the total variation of randomised response, ``mu = -2
    ndtri(1 / (1 + exp(epsilon)))``. A Poisson-sampled part counts as if it were not sampled, unless
    it is pure. The sum is infinite if a part has no such guarantee. Failures (`failure_delta`) come
    on top.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import squared_gaussian_mu
    >>> squared_gaussian_mu(SelfComposedDpEvent(GaussianDpEvent(2.0), 3))
    0.75
    """
    return sum((count * _squared_gaussian_mu(leaf) for leaf, count in ev.leaves(event)), 0.0)


def _squared_gaussian_mu(leaf: Any) -> float:
    match leaf:
        case ev.GaussianDpEvent():
            return leaf.noise_multiplier**-2.0
        case ev.PoissonSampledDpEvent():
            return min(squared_gaussian_mu(leaf.event), _squared_mu_of_pure(_pure_epsilon(leaf)))
    return _squared_mu_of_pure(_pure_epsilon(leaf))


def _squared_mu_of_pure(epsilon: float) -> float:
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 0.1:
        # A logarithm near that of 1/2 would lose the digits of a small epsilon.
        mu = 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))) * (1 + 1e-14)
    else:
        mu = -2 * float(ndtri_exp(-np.logaddexp(0.0, epsilon)))
    return mu * mu


def renyi_divergence(event: ev.DpEvent, orders: Any, neighbouring: str) -> np.ndarray:
    """Return bounds of the Renyi divergences between the outputs of two neighbours.

    There is one bound for every order (above 1), apart from failures (`failure_delta`): exact for
    Gaussian and Laplace noise and for randomised response [2]_, and for Poisson-sampled Gaussian
    noise under "add_remove" [3]_ and for centred sums.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent
    >>> from skdpot.privacy.accounting import renyi_divergence
    >>> renyi_divergence(GaussianDpEvent(2.0), [2, 4], "replace_one")
    array([0.25, 0.5 ])
    """
    check_relation(neighbouring)
    orders = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if not (np.isfinite(orders).all() and (orders > 1).all()):
        raise ValueError("orders must be finite numbers above 1.")
    divergences = (count * _renyi(leaf, orders, neighbouring) for leaf, count in ev.leaves(event))
    return sum(divergences, np.zeros_like(orders))


def _renyi(leaf: Any, orders: np.ndarray, neighbouring: str) -> np.ndarray:
    match leaf:
        case ev.GaussianDpEvent():
            return orders * _squared_gaussian_mu(leaf) / 2
        case ev.LaplaceDpEvent():
            return renyi_laplace(1 / leaf.noise_multiplier, orders)
        case ev.ZCDpEvent():
            return leaf.xi + leaf.rho * orders
        case ev.PoissonSampledDpEvent():
            return _renyi_sampled(leaf, orders, neighbouring)
    return renyi_randomised_response(leaf.epsilon, orders)


def _renyi_sampled(
    sample: ev.PoissonSampledDpEvent, orders: np.ndarray, neighbouring: str
) -> np.ndarray:
    rate, event = sample.sampling_probability, sample.event
    if rate == 0:
        return np.zeros_like(orders)
    bounds = [renyi_mixture(rate, renyi_divergence(event, orders, neighbouring), orders)]
    pure = _pure_epsilon(sample)
    if math.isfinite(pure):
        bounds.append(renyi_randomised_response(pure, orders))
    mu = math.sqrt(squared_gaussian_mu(event))
    if 0 < mu < math.inf:
        centred = consists_of(event, ev.CentredGaussianDpEvent)
        bounds.append(renyi_sampled_gaussian(rate, mu, orders, neighbouring, centred=centred))
    return np.min(bounds, axis=0)


def consists_of(event: Any, kind: type) -> bool:
    """Tell whether an event consists of releases of one kind only."""
    return all(isinstance(leaf, kind) for leaf, _ in ev.leaves(event))
