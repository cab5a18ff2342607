"""Prices of single events and of Gaussian noise, against arithmetic with many digits."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from skdpot.privacy.accounting import (
    failure_delta,
    for_two_records,
    gaussian_delta,
    gaussian_epsilon,
    pure_epsilon,
    renyi_divergence,
    squared_gaussian_mu,
)
from skdpot.privacy.events import (
    ApproximateDpEvent,
    CentredGaussianDpEvent,
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
    check_event,
)


def exact_delta(epsilon, mu):
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    far = mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - far


def test_delta_is_exact_over_the_whole_range_and_never_below(rng):
    with mpmath.workdps(60):
        for _ in range(200):
            mu = 10 ** rng.uniform(-8, 2.5)
            epsilon = max(mu**2 / 2 + mu * rng.uniform(-5, 37), 0.0)
            exact = exact_delta(epsilon, mu)
            assert 0 <= float(gaussian_delta(epsilon, mu) / exact - 1) < 1e-11


def test_epsilon_is_exact_over_the_whole_range_and_never_below(rng):
    with mpmath.workdps(260):
        for _ in range(25):
            mu, delta = 10 ** rng.uniform(-6, 2), 10 ** rng.uniform(-200, -0.01)
            epsilon = gaussian_epsilon(delta, mu)
            assert exact_delta(epsilon, mu) <= delta
            if epsilon > 0:
                assert exact_delta(epsilon * (1 - 1e-11), mu) > delta * (1 - 1e-9)


def test_ends_of_the_range():
    for epsilon, mu, delta in ((1.0, 0.0, 0.0), (0.0, 100.0, 1.0), (1.0, 100.0, 1.0)):
        assert gaussian_delta(epsilon, mu) == delta
    # What underflows is not rounded to zero.
    assert 0 < gaussian_delta(50.0, 0.1) < 1e-300
    assert 0 < gaussian_delta(1e6, 1e-6) < 1e-300
    # No epsilon is needed for a delta of the total variation.
    total_variation = math.erf(0.7 / math.sqrt(8))
    assert gaussian_epsilon(total_variation * 1.000001, 0.7) == 0
    assert gaussian_epsilon(total_variation * 0.999999, 0.7) > 0


GAUSSIAN, LAPLACE, PURE = GaussianDpEvent(2.0), LaplaceDpEvent(2.5), PureDpEvent(0.5)
APPROXIMATE, CONCENTRATED = ApproximateDpEvent(0.3, 1e-6), ZCDpEvent(0.1, 0.2)
SAMPLED = PoissonSampledDpEvent(0.1, GAUSSIAN)
INF = math.inf
ORDERS = np.array([1.01, 1.5, 2, 3.7, 8, 64])


@pytest.mark.parametrize(
    "event, pure, failure, squared_mu",
    [
        (NoOpDpEvent(), 0, 0, 0),
        (GAUSSIAN, INF, 0, 0.25),
        (LAPLACE, 0.4, 0, 4 * norm.ppf(1 / (1 + math.exp(0.4))) ** 2),
        (PURE, 0.5, 0, 4 * norm.ppf(1 / (1 + math.exp(0.5))) ** 2),
        (PureDpEvent(0.0), 0, 0, 0),
        (APPROXIMATE, 0.3, 1e-6, 4 * norm.ppf(1 / (1 + math.exp(0.3))) ** 2),
        (CONCENTRATED, INF, 0, INF),
        (ZCDpEvent(0.0, 0.5), 0.5, 0, 4 * norm.ppf(1 / (1 + math.exp(0.5))) ** 2),
        (SAMPLED, INF, 0, 0.25),
        (PoissonSampledDpEvent(0.0, CONCENTRATED), 0, 0, 0),
        (PoissonSampledDpEvent(0.0, APPROXIMATE), 0, 0, 0),
        (
            PoissonSampledDpEvent(0.1, APPROXIMATE),
            math.log(1 + 0.1 * (math.exp(0.3) - 1)),
            1e-7,
            4 * norm.ppf(1 / (2 + 0.1 * (math.exp(0.3) - 1))) ** 2,
        ),
        (SelfComposedDpEvent(GAUSSIAN, 0), 0, 0, 0),
        (
            SelfComposedDpEvent(APPROXIMATE, 3),
            0.9,
            3e-6,
            12 * norm.ppf(1 / (1 + math.exp(0.3))) ** 2,
        ),
        (ComposedDpEvent([GAUSSIAN, GAUSSIAN, APPROXIMATE]), INF, 1e-6, None),
        (ComposedDpEvent([]), 0, 0, 0),
        (PlannedDpEvent(SelfComposedDpEvent(GAUSSIAN, 4), 1e-5), INF, 0, 1),
    ],
)
def test_what_an_event_adds(event, pure, failure, squared_mu):
    assert pure_epsilon(event) == pytest.approx(pure)
    assert failure_delta(event) == pytest.approx(failure)
    if squared_mu is None:
        squared_mu = sum(squared_gaussian_mu(part) for part in event.events)
    assert squared_gaussian_mu(event) == pytest.approx(squared_mu)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 2.0, 30.0])
def test_renyi_divergences_of_pure_releases_are_those_of_randomised_response(epsilon):
    with mpmath.workdps(50):
        true = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        for order in ORDERS:
            a = mpmath.mpf(float(order))
            moment = true**a * (1 - true) ** (1 - a) + (1 - true) ** a * true ** (1 - a)
            exact = float(mpmath.log(moment) / (a - 1))
            for event in (PureDpEvent(epsilon), LaplaceDpEvent(1 / epsilon)):
                found = float(renyi_divergence(event, order))
                assert exact * (1 - 1e-12) <= found <= exact * 1.001


def test_divergences_of_composed_events_add_up():
    parts = [GAUSSIAN, SAMPLED, PURE, APPROXIMATE, CONCENTRATED, LAPLACE]
    total = sum(renyi_divergence(part, ORDERS) for part in parts)
    np.testing.assert_array_equal(renyi_divergence(SAMPLED, ORDERS), ORDERS / 8)
    for whole in (ComposedDpEvent(parts), PlannedDpEvent(ComposedDpEvent(parts), 1e-5)):
        np.testing.assert_allclose(renyi_divergence(whole, ORDERS), total)
    np.testing.assert_array_equal(renyi_divergence(PoissonSampledDpEvent(0.0, PURE), ORDERS), 0)


@pytest.mark.parametrize(
    "event, converted",
    [
        (NoOpDpEvent(), NoOpDpEvent()),
        (GAUSSIAN, GaussianDpEvent(1.0)),
        (LAPLACE, LaplaceDpEvent(1.25)),
        (PURE, PureDpEvent(1.0)),
        (APPROXIMATE, ApproximateDpEvent(0.6, (1 + math.exp(0.3)) * 1e-6)),
        (ApproximateDpEvent(1000.0, 0.0), ApproximateDpEvent(2000.0, 0.0)),
        (ZCDpEvent(0.1), ZCDpEvent(0.4)),
        (CONCENTRATED, ZCDpEvent(0.4, 0.6000000000000001)),
        (CentredGaussianDpEvent(2.0), CentredGaussianDpEvent(1.0)),
        (SAMPLED, PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0))),
        (SelfComposedDpEvent(PURE, 3), SelfComposedDpEvent(PureDpEvent(1.0), 3)),
        (
            ComposedDpEvent([PURE, GAUSSIAN]),
            ComposedDpEvent([PureDpEvent(1.0), GaussianDpEvent(1.0)]),
        ),
        (PlannedDpEvent(GAUSSIAN, 1e-5), PlannedDpEvent(GaussianDpEvent(1.0), 1e-5)),
    ],
)
def test_replacing_is_removing_and_adding(event, converted):
    assert for_two_records(event) == converted


@pytest.mark.parametrize("event", [ApproximateDpEvent(1.0, 0.5), ApproximateDpEvent(800.0, 1e-300)])
def test_a_guarantee_that_says_nothing_is_not_converted(event):
    with pytest.raises(ValueError, match="has no guarantee under 'replace_one'"):
        for_two_records(event)


NOTHING = NoOpDpEvent()


@pytest.mark.parametrize(
    "event, beyond",
    [
        (PureDpEvent(1e100), PureDpEvent(1.1e100)),
        (PureDpEvent(0.0), SelfComposedDpEvent(PureDpEvent(-1e-9), 2)),
        (ZCDpEvent(1e100, 1e100), ZCDpEvent(1.1e100, 0.0)),
        (ZCDpEvent(0.0, 0.0), ZCDpEvent(0.0, 1.1e100)),
        (GaussianDpEvent(1e-50), GaussianDpEvent(0.9e-50)),
        (LaplaceDpEvent(1e100), LaplaceDpEvent(1.1e100)),
        (PoissonSampledDpEvent(1.0, NOTHING), PoissonSampledDpEvent(1.1, NOTHING)),
        (SelfComposedDpEvent(NOTHING, 0), SelfComposedDpEvent(NOTHING, 0.5)),
        (SelfComposedDpEvent(NOTHING, 2**63 - 2**10), SelfComposedDpEvent(NOTHING, 2**63)),
    ],
)
def test_ranges_of_numbers_include_their_ends(event, beyond):
    check_event(event)
    with pytest.raises(ValueError, match="must be"):
        check_event(beyond)


@pytest.mark.parametrize(
    "epsilon, rate",
    [(1.0, 1e-6), (8.0, 1e-12), (3.0, 1e-17), (1e-9, 0.5), (710.0, 1e-300), (800.0, 1e-320)],
)
@mpmath.workdps(60)
def test_sampled_releases_keep_their_price_however_small_it_is(epsilon, rate):
    """What is rounded to nothing, or below itself, would be free if only it came often enough."""
    exact = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(epsilon)))
    price = pure_epsilon(PoissonSampledDpEvent(rate, PureDpEvent(epsilon)))
    assert 1 - 1e-15 <= price / exact <= 1 + 2e-12


@pytest.mark.parametrize("epsilon", [1e-17, 1e-14, 1e-8, 1e-3, 0.0999, 0.1001, 5.0])
@mpmath.workdps(60)
def test_small_pure_releases_keep_their_price(epsilon):
    mu = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(mpmath.mpf(epsilon) / 2))
    assert 1 - 2e-15 <= squared_gaussian_mu(PureDpEvent(epsilon)) / mu**2 <= 1 + 1e-13
