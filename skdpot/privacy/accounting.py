"""Accounting: prices of events and plans, the noise for a budget, and amounts rounded up.

Rules for single events are exact, and so is the price of Gaussian noise. Everything sampled or
mixed is composed by dp_accounting's privacy loss distributions, rounded against the user [1]_.

An (epsilon, delta)-private release counts as an epsilon-private one that fails with probability
delta; the deltas are added separately.

A guarantee of a Poisson-sampled event must also bound the comparison of a sample with the record to
the sample without it. So under "replace_one" its parameters must hold for adding, removing and
replacing a record of the sample. They do so for sums of contributions from a set that contains
zero.

References
----------
.. [1] V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Connect the dots: tighter
   discrete approximations of privacy loss distributions", PoPETs 2022.
   :doi:`10.56553/popets-2022-0122`
"""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss, LaplacePrivacyLoss
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, ndtri, ndtri_exp

from skdpot.privacy import checks
from skdpot.privacy import events as ev

RELATIONS = ("add_remove", "replace_one")
# A few roundings change a number by less than this share.
RAISED = 1 + 2.0**-40
# More than the rounding errors of the formulas of sensitivities.
_MARGIN = 1e-12
# Orders of Renyi divergences: any of them gives a bound.
_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 60, endpoint=False), np.geomspace(2, 1e6, 240)])
# Nodes and weights of an integral from -1 to 1, which take long to compute.
_QUADRATURE = np.polynomial.legendre.leggauss(24)
# By how much the transforms of a composition may change a delta, for each release: two hundred
# times the largest error against the exact deltas of 10 to 10**6 Gaussian releases, 4.5e-17.
_ROUNDING = 1e-14
# A record that is sampled more rarely counts as sampled with this probability.
_RAREST = 1e-12
# Noise with a smaller multiplier counts as none.
_LEAST_NOISE = 1e-50


def as_written(number: Fraction | float) -> Any:
    """Return the decimal number that a double is written as: 0.1 is one tenth.

    It is the shortest decimal that rounds to the double, and may be less or more than it. Fractions
    and infinity stay.
    """
    if isinstance(number, Fraction) or math.isinf(number):
        return number
    return Fraction(repr(float(number)))


def rounded_up(exact: Fraction | float) -> float:
    """Return the smallest double that is written as this number or more; infinity stays."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if as_written(nearest) >= exact else math.nextafter(nearest, math.inf)


def rounded_down(exact: Fraction) -> float:
    """Return the largest double that is written as this number or less."""
    nearest = float(exact)
    return nearest if as_written(nearest) <= exact else math.nextafter(nearest, -math.inf)


def sum_rounded_up(a: float, b: float) -> float:
    """Return the smallest double that is at least the sum of two doubles."""
    total = a + b
    # The rounding error of the sum, exactly (Knuth's two-sum); NaN next to infinity.
    rest = total - a
    lost = (a - (total - rest)) + (b - rest)
    return math.nextafter(total, math.inf) if lost > 0 else total


def inverse_rounded_up(x: float) -> float:
    """Return the smallest double that is at least 1 / x, for x as a double and as written."""
    inverse = 1.0 / x
    if not math.isfinite(inverse):
        return inverse
    # Of both meanings the lesser, whose inverse is larger.
    return fraction_rounded_up(1 / min(Fraction(x), as_written(x)))


def fraction_rounded_up(exact: Fraction) -> float:
    """Return the smallest double that is at least this number."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def raised_by_margin(bound: Any) -> Any:
    """Return a slightly raised bound, to cover rounding errors; as plain floats for numbers.

    A bound beyond the range of doubles is infinite.
    """
    with np.errstate(over="ignore"):
        raised = np.asarray(bound * (1 + _MARGIN))
    return raised if raised.ndim else float(raised)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for epsilon between N(0, 1) and N(mu, 1), rounded up.

    Here mu is sensitivity over standard deviation, and ``sqrt(T)`` times that for T releases. Delta
    is ``ndtr(-a) - exp(epsilon) ndtr(-a - mu)`` with ``a = epsilon / mu - mu / 2``. With density f
    and Mills' ratio ``M = ndtr(-x) / f(x)`` this is ``f(a) (M(a) - M(a + mu))``, because
    ``exp(epsilon) f(a + mu) = f(a)``. This form is accurate for tiny deltas.
    """
    if mu == 0:
        return 0.0
    shift = epsilon / mu - mu / 2
    if shift < -30:
        # The difference from 1 is below the smallest step of a double.
        return 1.0
    # Farther out, all values are below the smallest double, and this one is returned.
    shift = min(shift, 40.0)
    density = math.exp(-(shift**2) / 2) / math.sqrt(2 * math.pi)
    # The first two are the ends of the interval, and the others the nodes of an integral over it.
    nodes, weights = _QUADRATURE
    x = shift + mu * np.concatenate([[0.0, 2.0], nodes + 1]) / 2
    mills = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    if mu > 0.5:
        drop = mills[0] - mills[1]
    else:
        # The integral of -M' = 1 - x M over a short interval: no difference of nearly equal
        # numbers.
        drop = mu / 2 * float(weights @ (1 - x[2:] * mills[2:]))
    return min(max(density * float(drop) * (1 + _MARGIN), math.ulp(0.0)), 1.0)


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon for delta between N(0, 1) and N(mu, 1), rounded up."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    # delta <= ndtr(-a), so that this epsilon is enough.
    highest = max(mu**2 / 2 - mu * float(ndtri(delta)), 0.0)

    def excess(epsilon: float) -> float:
        return math.log(gaussian_delta(epsilon, mu)) - math.log(delta)

    if excess(highest) >= 0:
        return highest * (1 + _MARGIN)
    return brentq(excess, 0.0, highest, xtol=1e-300, rtol=1e-15) * (1 + _MARGIN)


def check_relation(neighbouring: Any) -> None:
    """Raise unless this names a neighbouring relation."""
    checks.check_choice("neighbouring", neighbouring, RELATIONS)


def for_two_records(event: ev.DpEvent) -> ev.DpEvent:
    """Return an event that holds under "add_remove" as it holds under "replace_one".

    Replacing a record is removing it and adding another, so sensitivities at most double, and
    guarantees follow the rules of groups of two records: multipliers are halved, (epsilon, delta)
    becomes ``(2 epsilon, (1 + exp(epsilon)) delta)``, and (xi, rho)-zero-concentrated privacy
    becomes ``(3 xi, 4 rho)``. The delta at which a plan is sold stays.

    Raises
    ------
    ValueError
        If the converted delta would be 1 or more.

    Notes
    -----
    For P, R, Q where P, R and R, Q are add/remove neighbours, Hölder's inequality gives
    ``D_a(P, Q) <= 2a/(2a-1) D_{2a-1}(P, R) + D_{2a}(R, Q)``. With ``D_a <= xi + rho a`` this is at
    most ``3 xi + 4 rho a``.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, PoissonSampledDpEvent
    >>> from skdpot.privacy.accounting import for_two_records
    >>> for_two_records(PoissonSampledDpEvent(0.1, GaussianDpEvent(4.0)))
    PoissonSampledDpEvent(sampling_probability=0.1, event=GaussianDpEvent(noise_multiplier=2.0))
    """
    match event:
        case ev.GaussianDpEvent() | ev.LaplaceDpEvent():
            # A sum of centred contributions stays one.
            return type(event)(event.noise_multiplier / 2)
        case ev.PureDpEvent():
            return ev.PureDpEvent(2 * event.epsilon)
        case ev.ApproximateDpEvent():
            # Beyond the largest double exp(epsilon) delta is above 1 unless delta is 0.
            growth = 1 + math.exp(event.epsilon) if event.epsilon < 709 else math.inf
            delta = growth * event.delta if event.delta else 0.0
            if delta >= 1:
                raise ValueError(
                    f"{ev.in_words(event)} has no guarantee under 'replace_one': (1 + "
                    f"exp(epsilon)) delta is {delta}, and must be below 1. Take a smaller delta."
                )
            return ev.ApproximateDpEvent(2 * event.epsilon, delta)
        case ev.ZCDpEvent():
            # By Hölder's inequality: see the notes.
            return ev.ZCDpEvent(4 * event.rho, 3 * event.xi)
        case ev.ComposedDpEvent():
            return ev.ComposedDpEvent([for_two_records(part) for part in event.events])
        case ev.NoOpDpEvent():
            return event
        case ev.PlannedDpEvent():
            return ev.PlannedDpEvent(for_two_records(event.event), event.delta)
        case ev.PoissonSampledDpEvent():
            part = for_two_records(event.event)
            return ev.PoissonSampledDpEvent(event.sampling_probability, part)
        case ev.SelfComposedDpEvent():
            return ev.SelfComposedDpEvent(for_two_records(event.event), event.count)
    raise TypeError(f"no rule for a {type(event).__name__}.")


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
    return rounded_up(exact_pure(event))


def exact_pure(event: ev.DpEvent) -> Fraction | float:
    """Return the exact number that `pure_epsilon` rounds up, or infinity."""
    return sum((count * exact_loss(leaf) for leaf, count in ev.leaves(event)), Fraction(0))


def exact_loss(leaf: ev.DpEvent) -> Fraction | float:
    """Return the exact epsilon of one basic or sampled event apart from failures, or infinity."""
    match leaf:
        case ev.PureDpEvent() | ev.ApproximateDpEvent():
            return as_written(leaf.epsilon)
        case ev.LaplaceDpEvent():
            return 1 / Fraction(leaf.noise_multiplier)
        case ev.ZCDpEvent(rho=0):
            return as_written(leaf.xi)
        case ev.PoissonSampledDpEvent():
            whole = exact_pure(leaf.event)
            # This is computed in doubles, with a few roundings.
            sampled = amplified_epsilon(rounded_up(whole), leaf.sampling_probability) * RAISED
            return min(as_written(sampled), whole) if sampled < math.inf else sampled
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


def failure_delta(event: ev.DpEvent) -> Fraction:
    """Return the exact probability with which an event's other guarantees may fail.

    It is the sum of the deltas of its approximate parts, times the sampling rate for a
    Poisson-sampled part. The delta at which a plan is sold does not count.

    Examples
    --------
    >>> from skdpot.privacy import ApproximateDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import failure_delta
    >>> float(failure_delta(SelfComposedDpEvent(ApproximateDpEvent(0.5, 1e-6), 3)))
    3e-06
    """
    failure = Fraction(0)
    for leaf, count in ev.leaves(event):
        # Every kind has its rule: a kind that was forgotten here would fail for free.
        match leaf:
            case ev.ApproximateDpEvent():
                failure += count * as_written(leaf.delta)
            case ev.PoissonSampledDpEvent():
                failure += count * Fraction(leaf.sampling_probability) * failure_delta(leaf.event)
            case ev.GaussianDpEvent() | ev.LaplaceDpEvent() | ev.PureDpEvent() | ev.ZCDpEvent():
                pass
            case _:
                raise TypeError(f"no rule for a {type(leaf).__name__}.")
    return failure


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
    total = 0.0
    for leaf, count in ev.leaves(event):
        if isinstance(leaf, ev.GaussianDpEvent):
            squared = leaf.noise_multiplier**-2.0
        else:
            squared = _squared_mu_of_pure(pure_epsilon(leaf))
            if isinstance(leaf, ev.PoissonSampledDpEvent):
                squared = min(squared_gaussian_mu(leaf.event), squared)
        total += count * squared
    return total


def _squared_mu_of_pure(epsilon: float) -> float:
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 0.1:
        # A logarithm near that of 1/2 would lose the digits of a small epsilon.
        mu = 2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))) * (1 + 1e-14)
    else:
        mu = -2 * float(ndtri_exp(-np.logaddexp(0.0, epsilon)))
    return mu * mu


def renyi_divergence(event: ev.DpEvent, orders: np.ndarray) -> np.ndarray:
    """Return bounds of the Renyi divergences between the outputs of two neighbours.

    There is one bound for every order (above 1), apart from failures (`failure_delta`): exact for
    Gaussian noise and for randomised response, which no pure release exceeds. A Poisson-sampled
    part counts as if it were not sampled, unless it is pure.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, ZCDpEvent
    >>> from skdpot.privacy.accounting import renyi_divergence
    >>> renyi_divergence(GaussianDpEvent(2.0), [2, 4])
    array([0.25, 0.5 ])
    >>> renyi_divergence(ZCDpEvent(0.5, 0.25), [2, 4])
    array([1.25, 2.25])
    """
    orders = np.asarray(orders, dtype=np.float64)
    total = np.zeros_like(orders)
    for leaf, count in ev.leaves(event):
        match leaf:
            case ev.ZCDpEvent():
                total += count * (leaf.xi + leaf.rho * orders)
            case ev.GaussianDpEvent():
                total += count * (orders * leaf.noise_multiplier**-2.0 / 2)
            case ev.PoissonSampledDpEvent() if math.isinf(pure_epsilon(leaf)):
                total += count * renyi_divergence(leaf.event, orders)
            case _:
                total += count * _renyi_of_response(pure_epsilon(leaf), orders)
    return total


def _renyi_of_response(epsilon: float, orders: np.ndarray) -> np.ndarray:
    """Return ``log(cosh((a - 1/2) epsilon) / cosh(epsilon / 2)) / (a - 1)`` for the orders a.

    It is the divergence of randomised response.
    """
    far, near = (orders - 0.5) * epsilon, epsilon / 2
    log_ratio = np.logaddexp(far, -far) - np.logaddexp(near, -near)
    # Where the difference cancels, the bound by concentrated privacy is nearly the same.
    exact = np.where(orders * epsilon < 1e-3, np.inf, log_ratio / (orders - 1))
    return np.minimum(np.minimum(exact * (1 + 1e-9), epsilon), orders * epsilon**2 / 2)


def plan_epsilon(event: ev.DpEvent, delta: float, *, neighbouring: str) -> float:
    """Return the epsilon of a plan at a delta.

    Parameters
    ----------
    event : DpEvent
        All releases. Later ones may depend on earlier results, if their events are fixed
        beforehand.
    delta : float
        From 0 to less than 1.
    neighbouring : {"add_remove", "replace_one"}
        The relation under which the event is described.

    Returns
    -------
    float
        An upper bound, exact up to a share of about 1e-4 for releases with a known privacy loss;
        infinite if there is none.

    Raises
    ------
    TypeError
        If the event cannot be priced.
    ValueError
        If `delta`, or a parameter of the event, is out of its range, or the relation is unknown.

    See Also
    --------
    epsilon_of : The same for steps of Gaussian noise.

    Notes
    -----
    Generic pure releases are priced as randomised response, (epsilon, delta) ones as randomised
    response that fails with probability delta, sampled ones with the epsilon of a sample. Under
    "replace_one" what is Poisson-sampled must keep its parameters also for a record that is added
    to the sample (see :func:`~skdpot.privacy.epsilon_of`). Where it is neither Gaussian nor Laplace
    noise, it is priced by the Gaussian noise that it does not exceed. Zero-concentrated parts add
    to the Renyi divergences of all others, or are sold at a part of delta of their own, whichever
    is better [1]_.

    References
    ----------
    .. [1] C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy",
       NeurIPS 2020, proposition 12. :arxiv:`2004.00010`

    Examples
    --------
    >>> from skdpot.privacy import PureDpEvent, SelfComposedDpEvent
    >>> from skdpot.privacy.accounting import plan_epsilon
    >>> releases = SelfComposedDpEvent(PureDpEvent(0.5), 50)
    >>> round(plan_epsilon(releases, 1e-5, neighbouring="replace_one"), 1)
    18.9
    """
    check_relation(neighbouring)
    checks.check_probability("delta", delta)
    return _plan_epsilon(ev.event_to_json(event), float(delta), neighbouring)


@lru_cache(maxsize=1024)
def _plan_epsilon(event_text: str, delta: float, neighbouring: str) -> float:
    event = ev.event_from_json(event_text)
    failure, allowed = failure_delta(event), as_written(delta)
    if failure > allowed:
        return math.inf
    bounds = [pure_epsilon(event)]
    # The rest, without failures.
    delta = rounded_down((allowed - failure) / (1 - failure))
    if delta > 0:
        mu = math.sqrt(squared_gaussian_mu(event))
        bounds.append(gaussian_epsilon(delta, mu) if mu < math.inf else math.inf)
        bounds.append(_epsilon_from_renyi(renyi_divergence(event, _ORDERS), delta))
        for amplified in (True, False):
            losses, rho, xi = _losses_of(event, amplified)
            if rho == 0:
                bounds.append(_composed_epsilon(losses, delta, neighbouring))
            else:
                bounds += [
                    _composed_epsilon(losses, share * delta, neighbouring)
                    + _epsilon_from_renyi(xi + rho * _ORDERS, (1 - share) * delta)
                    for share in (1e-4, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999)
                ]
    return float(min(bounds))


def _epsilon_from_renyi(divergences: np.ndarray, delta: float) -> float:
    """Return the smallest epsilon at delta that Renyi divergences at `_ORDERS` imply."""
    epsilons = divergences + np.log1p(-1 / _ORDERS) - np.log(delta * _ORDERS) / (_ORDERS - 1)
    return max(0.0, float(epsilons.min()))


# The pair of distributions that dominates a release, perhaps of a Poisson sample: its kind, its
# size, and the rate of the sample. The kind is "gaussian" noise or "centred" Gaussian noise with mu
# as its size, or "laplace" noise or a randomised "response" with epsilon as its size.
_Loss = tuple[str, float, float]


def _spread(kind: str, size: float, rate: float) -> float:
    """Return about the standard deviation of the loss."""
    if rate == 1:
        return size
    # As if the loss of the whole were Gaussian: from the chi-square divergence. That is too
    # much where losses are rare and large.
    size = max(size / 2 if kind == "centred" else size, 1e-150)
    log_chi_square = size**2 + math.log(-math.expm1(-(size**2)))
    squared = float(np.logaddexp(0, 2 * math.log(rate) + log_chi_square))
    large = max(size**2 / 2 + math.log(rate), 0.0)
    return min(math.sqrt(squared), math.sqrt(rate) * math.hypot(large, 2 * size))


def _highest(kind: str, size: float, rate: float) -> float:
    """Return a loss that is exceeded with negligible probability."""
    is_normal = kind in ("gaussian", "centred")
    highest = size**2 / 2 + 10 * size if is_normal else size
    if rate == 1:
        return highest
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + highest))


def _on_grid(kind: str, size: float, rate: float, step: float, neighbouring: str) -> Any:
    """Return dp_accounting's distribution of the loss, on a grid of this width."""
    settings: dict[str, Any] = {"sampling_prob": rate, "value_discretization_interval": step}
    if kind == "centred":
        # Its sensitivity is that of a record which is added, half of ours.
        settings |= {"sensitivity": 0.5, "neighboring_relation": NeighboringRelation.REPLACE_ONE}
    if kind == "response":
        highest = size

        def deltas(epsilons: np.ndarray) -> np.ndarray:
            return -np.expm1(np.minimum(epsilons - highest, 0)) / (1 + math.exp(-highest))

    elif neighbouring == "add_remove" and kind == "laplace":
        return privacy_loss_distribution.from_laplace_mechanism(1 / size, **settings)
    elif neighbouring == "add_remove" or kind == "centred":
        return privacy_loss_distribution.from_gaussian_mechanism(1 / size, **settings)
    else:
        noise = LaplacePrivacyLoss if kind == "laplace" else GaussianPrivacyLoss
        loss = noise(1 / size, sampling_prob=rate)
        highest, deltas = loss.connect_dots_bounds().epsilon_upper, loss.get_delta_for_epsilon
    # A symmetric pair: the deltas above 0 are those of a record that is removed, and those
    # below 0 follow (:ref:`proof-accounting`).
    last = max(math.ceil(highest / step), 1)
    epsilons = np.arange(last + 1) * step
    above = deltas(epsilons)
    below = -np.expm1(-epsilons) + np.exp(-epsilons) * above
    both = np.clip(np.concatenate([below[:0:-1], above]), 0.0, 1.0)
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -last, last, both)
    )


def _losses_of(event: ev.DpEvent, amplified: bool) -> tuple[Counter[_Loss], float, float]:
    """Return the losses of an event, and rho and xi of its parts that have no known losses.

    With `amplified`, a sampled series of releases counts as sampled Gaussian noise that it does not
    exceed; without, as if it were not sampled.
    """
    losses: Counter[_Loss] = Counter()
    squared_mu = rho = xi = 0.0
    for leaf, count in _unsampled(event, amplified):
        match leaf:
            case tuple():
                losses[leaf] += count
            case ev.GaussianDpEvent():
                squared_mu += count * leaf.noise_multiplier**-2.0
            case ev.LaplaceDpEvent():
                losses["laplace", 1 / leaf.noise_multiplier, 1.0] += count
            case ev.ZCDpEvent(rho=more) if more > 0:
                rho, xi = rho + count * more, xi + count * leaf.xi
            case _ if (epsilon := pure_epsilon(leaf)) > 0:
                losses["response", epsilon, 1.0] += count
    if squared_mu:
        losses["gaussian", math.sqrt(squared_mu), 1.0] += 1
    return losses, rho, xi


def _unsampled(event: ev.DpEvent, amplified: bool) -> Iterator[tuple[Any, int]]:
    """Yield basic events, and losses in place of sampled ones, with their counts."""
    for leaf, count in ev.leaves(event):
        if isinstance(leaf, ev.PoissonSampledDpEvent):
            for part, times in _sampled(leaf.sampling_probability, leaf.event, amplified):
                yield part, count * times
        else:
            yield leaf, count


def _sampled(rate: float, event: ev.DpEvent, amplified: bool) -> Iterator[tuple[Any, int]]:
    """Yield the loss of a sampled event, or its parts if they count as if not sampled."""
    released = list(ev.leaves(event))
    if rate == 0 or not released:
        return
    single = len(released) == 1 and released[0][1] == 1
    if single:
        event = released[0][0]
    mu = math.sqrt(squared_gaussian_mu(event))
    kinds = {type(leaf) for leaf, _ in released}
    is_centred = kinds == {ev.CentredGaussianDpEvent}
    is_normal = kinds <= {ev.GaussianDpEvent, ev.CentredGaussianDpEvent}
    if isinstance(event, ev.PoissonSampledDpEvent):
        # A sample of a sample is a smaller sample.
        yield from _sampled(rate * event.sampling_probability, event.event, amplified)
    elif rate == 1:
        yield from _unsampled(event, amplified)
    elif isinstance(event, ev.LaplaceDpEvent):
        yield ("laplace", 1 / event.noise_multiplier, max(rate, _RAREST)), 1
    elif single and pure_epsilon(event) < math.inf:
        yield ("response", amplified_epsilon(pure_epsilon(event), rate), 1.0), 1
    elif (is_normal or amplified) and 0 < mu < math.inf:
        yield ("centred" if is_centred else "gaussian", mu, max(rate, _RAREST)), 1
    else:
        yield from _unsampled(event, amplified)


def _composed_epsilon(losses: Counter[_Loss], delta: float, neighbouring: str) -> float:
    """Return the epsilon of a composition at delta; infinity if a grid cannot tell."""
    if not losses:
        return 0.0
    # The transforms may have lost this much of delta.
    delta -= _ROUNDING * losses.total()
    composed = _composed(tuple(sorted(losses.items())), neighbouring) if delta > 0 else None
    if composed is None:
        return math.inf
    with np.errstate(all="ignore"):
        epsilon = float(composed.get_epsilon_for_delta(delta))
    return math.inf if math.isnan(epsilon) else epsilon


@lru_cache(maxsize=8)
def _composed(losses: tuple[tuple[_Loss, int], ...], neighbouring: str) -> Any:
    """Return the distribution of the sum of losses; None if they are too far apart for a grid."""
    known = []
    for (kind, size, rate), count in losses:
        # An added record moves a centred sum like any other one.
        if neighbouring == "add_remove" and kind == "centred":
            kind = "gaussian"
        known.append(((kind, max(size, 1e-20), rate), count))
    n_losses = sum(count for _, count in known)
    spread = math.sqrt(sum(count * _spread(*loss) ** 2 for loss, count in known))
    widest = 2 * max(_highest(*loss) for loss, _ in known)
    # Losses that are further apart have no price by a grid.
    if widest > 1e5:
        return None
    # 32 grid points in a standard deviation of the loss of one release: with 64, prices of twelve
    # trainings (multipliers .6 to 4, 100 to 160,000 steps) fall by less than 1e-4 of themselves.
    wanted = spread / math.sqrt(n_losses) / 32
    # At most 2**17 points of one release, and 2**19 of a composition: a second or less.
    step = max(wanted, widest / 2**17, 20 * spread / 2**19)
    with np.errstate(all="ignore"):
        several = [_on_grid(*loss, step, neighbouring).self_compose(count) for loss, count in known]
        return reduce(lambda composed, more: composed.compose(more), several)


def epsilon_of(
    noise_multiplier: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    steps: int = 1,
    neighbouring: str = "add_remove",
    centred: bool = False,
) -> float:
    """Return the epsilon of steps of Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the l2 sensitivity of a step, under
        `neighbouring`. Everything computed from a step's sample counts as one release.
    delta : float
        Above 0 and below 1.
    sampling_rate : float, default=1.0
        Probability that a record is in the sample of a step, independently of all other records
        and steps (Poisson sampling).
    steps : int, default=1
        Number of steps.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation. Without sampling it affects only the sensitivity. With sampling,
        "replace_one" needs a sensitivity that bounds both the effect of a replaced record of the
        sample and that of an added one. For a sum of vectors with norm at most C it is 2 C.
    centred : bool, default=False
        Whether each step releases a sum of vectors, one per record, with norms of at most half of
        the sensitivity under "replace_one", such as clipped gradients (:ref:`centred-sums`). It
        matters only under "replace_one" with sampling.

    Returns
    -------
    float
        An upper bound that grows with steps and sampling rate and falls with noise multiplier and
        delta; with sampling, prices that differ by less than a share of 2e-3 may be in either
        order. Without sampling its relative error is at most 1e-9. With sampling it is about 1e-4
        above the exact value under "add_remove", and more for a delta below 1e-12 for each step.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the relation is unknown.

    See Also
    --------
    calibrate_noise_multiplier : The inverse.
    plan_epsilon : The epsilon of any plan.

    Notes
    -----
    Without sampling, T steps of multiplier s are one Gaussian release with ``mu = sqrt(T) / s``
    [1]_. With it, the privacy losses of a step are put on a grid so that prices can only grow
    [2]_, and convolved. Under "replace_one" a pair of distributions that no replacement exceeds is
    composed: an exact one for centred contributions (:ref:`centred-sums`), and else one derived
    from advanced joint convexity (:ref:`proof-accounting`).

    References
    ----------
    .. [1] B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy:
       analytical calibration and optimal denoising", ICML 2018. :arxiv:`1805.06530`
    .. [2] V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Connect the dots: tighter
       discrete approximations of privacy loss distributions", PoPETs 2022.
       :doi:`10.56553/popets-2022-0122`

    Examples
    --------
    >>> from skdpot.privacy.accounting import epsilon_of
    >>> round(epsilon_of(3.73, 1e-5), 2)
    1.0
    >>> round(epsilon_of(1.84, 1e-5, sampling_rate=0.01, steps=2_000), 2)
    1.0
    >>> steps = {"sampling_rate": 0.02, "steps": 500, "neighbouring": "replace_one"}
    >>> [round(epsilon_of(1.0, 1e-6, **steps, centred=centred), 2) for centred in (False, True)]
    [3.71, 2.0]
    """
    checks.check_positive("noise_multiplier", noise_multiplier)
    checks.check_delta(delta)
    _check_steps(sampling_rate, steps, neighbouring, centred)
    if sampling_rate == 0:
        return 0.0
    if noise_multiplier < _LEAST_NOISE:
        return math.inf
    whole = gaussian_epsilon(delta, math.sqrt(steps) / noise_multiplier)
    # T releases of Gaussian noise are one with 1 / sqrt(T) of it, exactly.
    if sampling_rate == 1:
        return whole
    losses = _sampled_steps(noise_multiplier, sampling_rate, steps, centred)
    # Sampling never raises the price, which a grid may be too coarse to show.
    return min(whole, _composed_epsilon(losses, delta, neighbouring))


def delta_of(
    noise_multiplier: float,
    epsilon: float,
    *,
    sampling_rate: float = 1.0,
    steps: int = 1,
    neighbouring: str = "add_remove",
    centred: bool = False,
) -> float:
    """Return the delta of steps of Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the l2 sensitivity of a step, as for
        `epsilon_of`.
    epsilon : float
        Finite and at least 0.
    sampling_rate : float, default=1.0
        Probability that a record is in the sample of a step.
    steps : int, default=1
        Number of steps.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation, as for `epsilon_of`.
    centred : bool, default=False
        Whether contributions are centred, as for `epsilon_of`.

    Returns
    -------
    float
        An upper bound that grows with steps and sampling rate and falls with noise multiplier
        and epsilon. With sampling it is at least 1e-14 for each step, and prices that differ by
        little may be in either order.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the relation is unknown.

    See Also
    --------
    epsilon_of : The epsilon at a delta.

    Examples
    --------
    >>> from skdpot.privacy.accounting import delta_of
    >>> round(delta_of(1.0, 1.0), 4)
    0.1269
    """
    checks.check_positive("noise_multiplier", noise_multiplier)
    if epsilon != 0:
        checks.check_positive("epsilon", epsilon)
    _check_steps(sampling_rate, steps, neighbouring, centred)
    if sampling_rate == 0:
        return 0.0
    if noise_multiplier < _LEAST_NOISE:
        return 1.0
    whole = gaussian_delta(epsilon, math.sqrt(steps) / noise_multiplier)
    if sampling_rate == 1:
        return whole
    losses = _sampled_steps(noise_multiplier, sampling_rate, steps, centred)
    composed = _composed(tuple(losses.items()), neighbouring)
    if composed is None:
        return whole
    with np.errstate(all="ignore"):
        delta = float(composed.get_delta_for_epsilon(float(epsilon)))
    # Rounded up by what the transforms may have lost.
    return min(whole, delta + _ROUNDING * steps)


def calibrate_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float = 1.0,
    steps: int = 1,
    neighbouring: str = "add_remove",
    centred: bool = False,
) -> float:
    """Return the noise multiplier that steps of Gaussian noise need for a budget.

    Parameters
    ----------
    epsilon : float
        Finite and above 0.
    delta : float
        Above 0 and below 1.
    sampling_rate : float, default=1.0
        Probability that a record is in the sample of a step, above 0.
    steps : int, default=1
        Number of steps.
    neighbouring : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation, as for `epsilon_of`.
    centred : bool, default=False
        Whether contributions are centred, as for `epsilon_of`.

    Returns
    -------
    float
        A multiplier at which `epsilon_of` is at most `epsilon`. It is never too small; the
        relative excess is 1e-9 without sampling and about 5e-4 with it. It grows with steps and
        sampling rate, and falls with epsilon and delta, up to that excess.

    Raises
    ------
    ValueError
        If a parameter is out of its range, `sampling_rate` is 0, or the relation is unknown.

    See Also
    --------
    epsilon_of : The epsilon of a multiplier.

    Examples
    --------
    >>> from skdpot.privacy.accounting import calibrate_noise_multiplier
    >>> round(calibrate_noise_multiplier(1.0, 1e-5), 2)
    3.73
    >>> round(calibrate_noise_multiplier(1.0, 1e-5, sampling_rate=0.01, steps=2_000), 2)
    1.84
    """
    checks.check_positive("epsilon", epsilon)
    checks.check_delta(delta)
    _check_steps(sampling_rate, steps, neighbouring, centred)
    if sampling_rate == 0:
        raise ValueError("sampling_rate must be above 0: records never sampled need no noise.")

    def log_excess(log_mu: float) -> float:
        return math.log(gaussian_delta(epsilon, math.exp(log_mu))) - math.log(max(delta, 1e-310))

    def log_price(log_multiplier: float) -> float:
        price = epsilon_of(
            math.exp(log_multiplier),
            delta,
            sampling_rate=sampling_rate,
            steps=steps,
            neighbouring=neighbouring,
            centred=centred,
        )
        return math.log(min(max(price / epsilon, 1e-9), 1e9))

    log_mu = brentq(log_excess, -700.0, math.log(math.sqrt(2 * epsilon) + 40))
    enough, tolerance = math.log(steps) / 2 - log_mu, 1e-11
    if sampling_rate < 1:
        tolerance = 1e-4
        lowest = enough
        while log_price(lowest) <= 0 and lowest > math.log(_LEAST_NOISE):
            enough, lowest = lowest, lowest - 1
        if lowest < enough:
            enough = brentq(log_price, lowest, enough, xtol=tolerance)
    # The root is near enough; the noise must be sufficient.
    while log_price(enough) > 0:
        enough, tolerance = enough + tolerance, 2 * tolerance
    return math.exp(enough)


def _sampled_steps(
    noise_multiplier: float, sampling_rate: float, steps: int, centred: bool
) -> Counter[_Loss]:
    kind = "centred" if centred else "gaussian"
    return Counter({(kind, 1 / noise_multiplier, max(sampling_rate, _RAREST)): int(steps)})


def _check_steps(sampling_rate: Any, steps: Any, neighbouring: Any, centred: Any) -> None:
    if not 0 <= checks.real_number(sampling_rate) <= 1:
        raise ValueError(f"sampling_rate must be from 0 to 1, got {sampling_rate!r}.")
    checks.check_count("steps", steps)
    check_relation(neighbouring)
    checks.check_flag("centred", centred)
