"""What single events add to a privacy filter: guarantees that simply add up.

Under fully adaptive composition, where what is released next depends on what was released before,
only such guarantees may be added as charges arrive: pairs (epsilon, delta), Renyi divergences at
orders fixed beforehand, and squared Gaussian parameters. Every function returns what one event
counts; that of a composed event is the sum over its parts.

A release that is (epsilon, delta)-private counts as an epsilon-private one, and with its delta as
the probability that this fails; the deltas are added up apart.

What is Poisson-sampled is meant to bound also the comparison of a sample with the record in it to
the sample without it: under "replace_one" its parameters hold for adding and for removing a record
of the sample as well as for replacing one, as they do for sums of contributions from a set that
contains zero.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfinv, ndtri_exp

from skdpot.privacy.accounting.relations import check_relation
from skdpot.privacy.accounting.renyi import (
    renyi_laplace,
    renyi_mixture,
    renyi_randomised_response,
    renyi_sampled_gaussian,
)
from skdpot.privacy.events import (
    ApproximateDpEvent,
    CentredGaussianDpEvent,
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
    plain_event,
)


def pure_epsilon(event: DpEvent, neighbouring: str) -> float:
    """Return the epsilon of an event's pure guarantee, failures aside.

    Parameters
    ----------
    event : DpEvent
        What is released.
    neighbouring : {"add_remove", "replace_one"}
        The relation under which the event is described.

    Returns
    -------
    float
        Infinite where there is no such guarantee, as for Gaussian noise. The event is
        ``(pure_epsilon(event), failure_delta(event))``-differentially private.

    Raises
    ------
    TypeError
        If the event cannot be priced.
    ValueError
        If a parameter of the event is out of its range, or the relation is unknown.

    Examples
    --------
    >>> from skdpot.privacy import LaplaceDpEvent, PureDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import pure_epsilon
    >>> pure_epsilon(SelfComposedDpEvent(PureDpEvent(0.5), 3), "replace_one")
    1.5
    >>> pure_epsilon(LaplaceDpEvent(4.0), "replace_one")
    0.25
    """
    event = plain_event(event)
    check_relation(neighbouring)
    return _pure_epsilon(event)


def _pure_epsilon(event: Any) -> float:
    match event:
        case PureDpEvent() | ApproximateDpEvent():
            return float(event.epsilon)
        case LaplaceDpEvent():
            return 1 / event.noise_multiplier
        case GaussianDpEvent():
            return math.inf
        case ZCDpEvent():
            return math.inf if event.rho else float(event.xi)
        case PoissonSampledDpEvent():
            return amplified_epsilon(_pure_epsilon(event.event), event.sampling_probability)
    return _sum_over_parts(event, _pure_epsilon, 0.0)


def amplified_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return ``log(1 + q (exp(epsilon) - 1))``, what is left of epsilon after Poisson sampling."""
    if sampling_rate == 0:
        return 0.0
    if epsilon < 700:
        return math.log1p(sampling_rate * math.expm1(epsilon))
    # In logarithms, so that exp(epsilon) does not overflow.
    rest = epsilon + math.log(sampling_rate)
    amplified = math.log1p(math.exp(rest) - sampling_rate) if rest < 700 else rest
    return min(amplified * (1 + 1e-12), epsilon)


def failure_delta(event: DpEvent) -> float:
    """Return the probability with which an event's other guarantees may fail.

    Parameters
    ----------
    event : DpEvent
        What is released.

    Returns
    -------
    float
        The sum of the deltas of its approximate parts, times the sampling rate for a part that is
        Poisson-sampled. The delta at which a plan is sold is none of them.

    Raises
    ------
    TypeError
        If the event cannot be priced.
    ValueError
        If a parameter of the event is out of its range.

    Examples
    --------
    >>> from skdpot.privacy import ApproximateDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import failure_delta
    >>> failure_delta(SelfComposedDpEvent(ApproximateDpEvent(0.5, 1e-6), 3))
    3e-06
    """
    event = plain_event(event)
    return _failure_delta(event)


def _failure_delta(event: Any) -> float:
    match event:
        case ApproximateDpEvent():
            return float(event.delta)
        case PureDpEvent() | LaplaceDpEvent() | GaussianDpEvent() | ZCDpEvent():
            return 0.0
        case PoissonSampledDpEvent():
            return event.sampling_probability * _failure_delta(event.event)
    return _sum_over_parts(event, _failure_delta, 0.0)


def squared_gaussian_mu(event: DpEvent) -> float:
    """Return the square of the parameter of the Gaussian release that an event does not exceed.

    A release is mu-Gaussian differentially private if telling two neighbours apart is at least as
    hard as telling N(0, 1) from N(mu, 1). The squares of such parameters add up, under adaptive
    composition too [1]_.

    Parameters
    ----------
    event : DpEvent
        What is released, under either relation.

    Returns
    -------
    float
        ``1 / noise_multiplier ** 2`` for Gaussian noise; for a pure release, that of the Gaussian
        with the total variation of randomised response, ``mu = -2 ndtri(1 / (1 + exp(epsilon)))``.
        A part that is Poisson-sampled counts as if it were not, unless it is pure. Infinite
        where a part has no such guarantee. Failures (`failure_delta`) come on top.

    Raises
    ------
    TypeError
        If the event cannot be priced.
    ValueError
        If a parameter of the event is out of its range.

    References
    ----------
    .. [1] J. Dong, A. Roth, W. J. Su, "Gaussian differential privacy", Journal of the Royal
       Statistical Society B 84, 2022. :doi:`10.1111/rssb.12454`

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import squared_gaussian_mu
    >>> squared_gaussian_mu(SelfComposedDpEvent(GaussianDpEvent(2.0), 3))
    0.75
    """
    event = plain_event(event)
    return _squared_gaussian_mu(event)


def _squared_gaussian_mu(event: Any) -> float:
    match event:
        case GaussianDpEvent():
            return event.noise_multiplier**-2.0
        case PureDpEvent() | ApproximateDpEvent() | LaplaceDpEvent() | ZCDpEvent():
            return _squared_mu_of_pure(_pure_epsilon(event))
        case PoissonSampledDpEvent():
            return min(_squared_gaussian_mu(event.event), _squared_mu_of_pure(_pure_epsilon(event)))
    return _sum_over_parts(event, _squared_gaussian_mu, 0.0)


def _squared_mu_of_pure(epsilon: float) -> float:
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 0.1:
        # Where a logarithm near that of 1/2 would lose what epsilon is.
        mu = 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))) * (1 + 1e-14)
    else:
        mu = -2 * float(ndtri_exp(-np.logaddexp(0.0, epsilon)))
    return mu * mu


def renyi_divergence(event: DpEvent, orders: Any, neighbouring: str) -> np.ndarray:
    """Return bounds on the Renyi divergences between what two neighbours release.

    Parameters
    ----------
    event : DpEvent
        What is released.
    orders : array-like of shape (n_orders,)
        Orders, above 1.
    neighbouring : {"add_remove", "replace_one"}
        The relation under which the event is described.

    Returns
    -------
    ndarray of shape (n_orders,)
        For every order a bound on the divergence, failures (`failure_delta`) aside: exact for
        Gaussian and Laplace noise, for randomised response and, under "add_remove", for
        Poisson-sampled Gaussian noise.

    Raises
    ------
    ValueError
        If an order is not a number above 1.

    References
    ----------
    .. [1] I. Mironov, "Rényi differential privacy", CSF 2017. :doi:`10.1109/CSF.2017.11`
    .. [2] I. Mironov, K. Talwar, L. Zhang, "Rényi differential privacy of the sampled Gaussian
       mechanism", 2019. :arxiv:`1908.10530`

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent
    >>> from skdpot.privacy.accounting import renyi_divergence
    >>> renyi_divergence(GaussianDpEvent(2.0), [2, 4], "replace_one")
    array([0.25, 0.5 ])
    """
    event = plain_event(event)
    check_relation(neighbouring)
    orders = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if not (np.isfinite(orders).all() and (orders > 1).all()):
        raise ValueError("orders must be finite numbers above 1.")
    return _renyi(event, orders, neighbouring)


def _renyi(event: Any, orders: np.ndarray, neighbouring: str) -> np.ndarray:
    match event:
        case GaussianDpEvent():
            return orders * _squared_gaussian_mu(event) / 2
        case LaplaceDpEvent():
            return renyi_laplace(1 / event.noise_multiplier, orders)
        case PureDpEvent() | ApproximateDpEvent():
            return renyi_randomised_response(event.epsilon, orders)
        case ZCDpEvent():
            return event.xi + event.rho * orders
        case PoissonSampledDpEvent():
            return _renyi_sampled(event, orders, neighbouring)
    return _sum_over_parts(
        event, lambda part: _renyi(part, orders, neighbouring), np.zeros_like(orders)
    )


def _renyi_sampled(
    event: PoissonSampledDpEvent, orders: np.ndarray, neighbouring: str
) -> np.ndarray:
    rate = event.sampling_probability
    if rate == 0:
        return np.zeros_like(orders)
    bounds = [renyi_mixture(rate, _renyi(event.event, orders, neighbouring), orders)]
    pure = _pure_epsilon(event)
    if math.isfinite(pure):
        bounds.append(renyi_randomised_response(pure, orders))
    squared_mu = _squared_gaussian_mu(event.event)
    if 0 < squared_mu < math.inf:
        mu = math.sqrt(squared_mu)
        centred = consists_of(event.event, CentredGaussianDpEvent)
        bounds.append(renyi_sampled_gaussian(rate, mu, orders, neighbouring, centred=centred))
    return np.min(bounds, axis=0)


def consists_of(event: Any, kind: type) -> bool:
    """Tell whether all that is released is of one kind."""
    match event:
        case SelfComposedDpEvent() | PlannedDpEvent():
            return consists_of(event.event, kind)
        case ComposedDpEvent():
            return all(consists_of(part, kind) for part in event.events)
    return isinstance(event, kind)


def _sum_over_parts(event: Any, value: Callable[[Any], Any], zero: Any) -> Any:
    """Return the sum of a quantity over the parts of an event that consists of such."""
    match event:
        case NoOpDpEvent():
            return zero
        case PlannedDpEvent():
            return value(event.event)
        case SelfComposedDpEvent():
            # An infinite price is not charged by what never happens.
            return event.count * value(event.event) if event.count else zero
        case ComposedDpEvent():
            return sum((value(part) for part in event.events), zero)
    raise TypeError(f"no rule for a {type(event).__name__}.")
