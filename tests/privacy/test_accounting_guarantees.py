"""Prices of single events in a filter, and under another relation."""

import math
import timeit
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.stats import norm

from skdpot.privacy.accounting import (
    convert_event,
    failure_delta,
    pure_epsilon,
    renyi_divergence,
    squared_gaussian_mu,
)
from skdpot.privacy.accounting.losses import (
    GaussianPair,
    LaplacePair,
    RandomisedResponsePair,
    SampledPair,
    SymmetricPair,
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
    leaves,
)
from tests.oracles.plan_deltas import plan_delta

RELATIONS = ("add_remove", "replace_one")
GAUSSIAN, LAPLACE, PURE = GaussianDpEvent(2.0), LaplaceDpEvent(2.5), PureDpEvent(0.5)
APPROXIMATE, CONCENTRATED = ApproximateDpEvent(0.3, 1e-6), ZCDpEvent(0.1, 0.2)
SAMPLED = PoissonSampledDpEvent(0.1, GAUSSIAN)
INF = math.inf
ORDERS = np.array([1.01, 1.5, 2, 3.7, 8, 64])


def grid_renyi(pair, order):
    """An upper bound on a pair's divergence, from its losses on a fine grid."""
    grid = pair.on_grid(2.0**-10, 14.0)
    losses = (grid.first + np.arange(len(grid.mass))) * grid.step
    return math.log(grid.mass @ np.exp((order - 1) * losses)) / (order - 1)


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


def test_large_epsilons_do_not_overflow():
    huge = PureDpEvent(5000.0)
    assert pure_epsilon(PoissonSampledDpEvent(0.1, huge)) == pytest.approx(5000 + math.log(0.1))
    assert 0 < squared_gaussian_mu(huge) < math.inf
    np.testing.assert_allclose(renyi_divergence(huge, [1.1, 4], "add_remove"), 5000, rtol=1e-2)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_gaussian_parameter_of_a_pure_release_dominates_it(epsilon):
    """The profile of the Gaussian is above that of randomised response, and touches it at 0."""
    mu = math.sqrt(squared_gaussian_mu(PureDpEvent(epsilon)))
    for loss in np.linspace(-2 * epsilon, 2 * epsilon, 41):
        gaussian = norm.cdf(mu / 2 - loss / mu) - math.exp(loss) * norm.cdf(-mu / 2 - loss / mu)
        true = 1 / (1 + math.exp(-epsilon))
        response = max(true - math.exp(loss) * (1 - true), 0) + max(
            1 - true - math.exp(loss) * true, 0
        )
        assert gaussian >= response - 1e-14
    assert math.erf(mu / math.sqrt(8)) == pytest.approx(math.tanh(epsilon / 2), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 2.0, 30.0])
def test_renyi_divergences_of_pure_releases_and_of_laplace_noise_are_exact(epsilon):
    with mpmath.workdps(50):
        exact = mpmath.mpf(epsilon)
        true = 1 / (1 + mpmath.exp(-exact))
        for order in ORDERS:
            a = mpmath.mpf(float(order))
            response = mpmath.log(
                true**a * (1 - true) ** (1 - a) + (1 - true) ** a * true ** (1 - a)
            )
            laplace = mpmath.log(
                a / (2 * a - 1) * mpmath.exp((a - 1) * exact)
                + (a - 1) / (2 * a - 1) * mpmath.exp(-a * exact)
            )
            for event, value in [
                (PureDpEvent(epsilon), response),
                (ApproximateDpEvent(epsilon, 1e-3), response),
                (LaplaceDpEvent(1 / epsilon), laplace),
            ]:
                found = renyi_divergence(event, order, "replace_one")
                np.testing.assert_allclose(found, float(value / (a - 1)), rtol=1e-8)


@pytest.mark.parametrize(
    "rate, noise_multiplier", [(0.01, 1.0), (1e-5, 2.0), (0.3, 0.5), (0.05, 8.0)]
)
def test_sampled_gaussian_noise_at_integer_orders_is_that_of_dp_accounting(rate, noise_multiplier):
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier))
    orders = [2, 3, 8, 32, 100]
    accountant = RdpAccountant(orders)
    accountant.compose(event)
    found = renyi_divergence(event, orders, "add_remove")
    np.testing.assert_allclose(found, accountant.rdp, rtol=2e-9)
    # Rounded up, up to the rounding errors of the accountant's own sums.
    assert (found >= accountant.rdp * (1 - 1e-11)).all()


def sampled_gaussian_renyi(rate, noise_multiplier, order, relation):
    """The same by integrals with many digits."""
    mu, rate, order = (mpmath.mpf(x) for x in (1 / noise_multiplier, rate, order))

    def likelihood_ratio(z):
        return 1 - rate + rate * mpmath.exp(mu * z - mu**2 / 2)

    def integrand(z):
        w = likelihood_ratio(z)
        if relation == "add_remove":
            return mpmath.npdf(z) * w**order
        if relation == "centred":
            return mpmath.npdf(z) * w**order * likelihood_ratio(-z) ** (1 - order)
        return mpmath.npdf(z) * (w**order + w ** (1 - order) - w - 1)

    mu = mu / 2 if relation == "centred" else mu
    start = mu / 2 if relation == "replace_one" else -15 - order * mu
    integral = mpmath.quad(integrand, mpmath.linspace(start, 2 * order * mu + 15, 40))
    return mpmath.log(integral + (relation == "replace_one")) / (order - 1)


NOISES = [(0.01, 1.0), (1e-5, 2.0), (0.1, 0.7)]


@pytest.mark.parametrize("relation", [*RELATIONS, "centred"])
@pytest.mark.parametrize(
    "rate, noise_multiplier, order",
    [
        *(
            (*noise, a)
            for noise, a in zip(NOISES * 2, (1.02, 1.5, 2.5, 9.3, 2.5, 1.02), strict=True)
        ),
        # Little noise: an integrand with a narrow peak.
        (1e-3, 0.2, 1.02),
    ],
)
def test_sampled_gaussian_noise_at_any_order_is_an_integral(
    rate, noise_multiplier, order, relation
):
    noise = CentredGaussianDpEvent if relation == "centred" else GaussianDpEvent
    event = PoissonSampledDpEvent(rate, noise(noise_multiplier))
    with mpmath.workdps(30):
        exact = sampled_gaussian_renyi(rate, noise_multiplier, order, relation)
        known = relation if relation in RELATIONS else "replace_one"
        found = renyi_divergence(event, order, known)[0]
        assert 0 <= float(found / exact - 1) < 1e-8


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "event, base",
    [
        (GAUSSIAN, GaussianPair(0.5)),
        (LAPLACE, LaplacePair(0.4)),
        (PURE, RandomisedResponsePair(0.5)),
    ],
)
def test_sampled_releases_are_bounded_by_their_pairs(event, base, relation):
    """The divergence of the pair that a plan composes, and not much more for Gaussian noise."""
    pair = SampledPair(0.1, base)
    pair = SymmetricPair(pair) if relation == "replace_one" else pair
    found = renyi_divergence(PoissonSampledDpEvent(0.1, event), ORDERS[:-1], relation)
    exact = np.array([grid_renyi(pair, order) for order in ORDERS[:-1]])
    assert (found >= exact * 0.999).all()
    if event == GAUSSIAN:
        np.testing.assert_allclose(found, exact, rtol=2e-3)


def test_sampling_never_costs_and_whole_samples_are_no_sampling():
    for relation in RELATIONS:
        for event in (GAUSSIAN, LAPLACE, PURE, CONCENTRATED, ComposedDpEvent([GAUSSIAN, PURE])):
            whole = renyi_divergence(event, ORDERS, relation)
            rates = [0.0, 1e-3, 0.1, 0.7, 1.0]
            sampled = [
                renyi_divergence(PoissonSampledDpEvent(rate, event), ORDERS, relation)
                for rate in rates
            ]
            assert (sampled[0] == 0).all()
            assert (np.diff(sampled, axis=0) >= 0).all()
            np.testing.assert_allclose(sampled[-1], whole, rtol=1e-8)


def test_orders_too_large_for_an_integral_have_a_bound():
    event = PoissonSampledDpEvent(0.01, GaussianDpEvent(0.2))
    found = renyi_divergence(event, [1e6], "add_remove")
    assert found == pytest.approx(25 * 1e6 / 2, rel=1e-3)
    assert found <= 25 * 1e6 / 2


def test_divergences_of_composed_events_add_up():
    parts = [GAUSSIAN, SAMPLED, PURE, APPROXIMATE, CONCENTRATED, LAPLACE]
    for relation in RELATIONS:
        total = sum(renyi_divergence(part, ORDERS, relation) for part in parts)
        for whole in (ComposedDpEvent(parts), PlannedDpEvent(ComposedDpEvent(parts), 1e-5)):
            np.testing.assert_allclose(renyi_divergence(whole, ORDERS, relation), total)
        np.testing.assert_allclose(
            renyi_divergence(SelfComposedDpEvent(SAMPLED, 7), ORDERS, relation),
            7 * renyi_divergence(SAMPLED, ORDERS, relation),
        )


def test_many_equal_charges_are_fast():
    orders = np.geomspace(1.5, 512, 50)
    renyi_divergence(SAMPLED, orders, "replace_one")
    assert timeit.timeit(lambda: renyi_divergence(SAMPLED, orders, "replace_one"), number=100) < 1


@pytest.mark.parametrize("orders", [1.0, 0.5, [2, math.inf], [2, math.nan], -3])
def test_orders_are_above_one(orders):
    with pytest.raises(ValueError, match="orders must be finite numbers above 1"):
        renyi_divergence(GAUSSIAN, orders, "add_remove")


@pytest.mark.parametrize("relation", ["replace", None, 3])
def test_relation_is_a_known_one(relation):
    for price in (
        lambda: renyi_divergence(PURE, 2, relation),
        lambda: convert_event(PURE, relation, "replace_one"),
        lambda: convert_event(PURE, "add_remove", relation),
    ):
        with pytest.raises(ValueError, match="neighbouring must be"):
            price()


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
    assert convert_event(event, "add_remove", "replace_one") == converted
    for relation in RELATIONS:
        assert convert_event(event, relation, relation) == event


@pytest.mark.parametrize("event", [GAUSSIAN, LAPLACE, PURE, CONCENTRATED])
def test_converted_divergences_are_those_of_two_steps(event):
    """Hölder's inequality, of which the converted event is the consequence at every order."""
    found = renyi_divergence(
        convert_event(event, "add_remove", "replace_one"), ORDERS, "replace_one"
    )
    first = renyi_divergence(event, 2 * ORDERS - 1, "add_remove") * 2 * ORDERS / (2 * ORDERS - 1)
    second = renyi_divergence(event, 2 * ORDERS, "add_remove")
    if event == CONCENTRATED:
        assert (found >= first + second).all()
    else:
        assert (found <= (first + second) * (1 + 1e-12)).all()


def test_converted_approximate_privacy_is_the_triangle_inequality():
    """Two steps, each as bad as it may be, are what the converted event says."""
    event = ApproximateDpEvent(0.7, 1e-3)
    converted = convert_event(event, "add_remove", "replace_one")
    probability = 0.01
    for _ in range(2):
        probability = math.exp(event.epsilon) * probability + event.delta
    assert probability == pytest.approx(math.exp(converted.epsilon) * 0.01 + converted.delta)
    assert plan_delta(converted, converted.epsilon, neighbouring="replace_one") == converted.delta


def test_nothing_follows_from_replacing_about_adding():
    with pytest.raises(ValueError, match="says nothing about data sets of different sizes"):
        convert_event(PURE, "replace_one", "add_remove")


@pytest.mark.parametrize("event", [ApproximateDpEvent(1.0, 0.5), ApproximateDpEvent(800.0, 1e-300)])
def test_a_guarantee_that_says_nothing_is_not_converted(event):
    with pytest.raises(ValueError, match="has no guarantee under 'replace_one'"):
        convert_event(event, "add_remove", "replace_one")


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


def test_what_is_made_no_times_is_not_released():
    assert list(leaves(SelfComposedDpEvent(PureDpEvent(1.0), 0))) == []


def test_what_is_no_event_has_no_price():
    for price in (failure_delta, squared_gaussian_mu):
        with pytest.raises(TypeError, match="an event must be one of"):
            price("PureDpEvent(1.0)")
    with pytest.raises(ValueError, match="epsilon of a PureDpEvent"):
        pure_epsilon(PureDpEvent(-1.0))


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
    for order in (1.01, 3.0, 500.0):
        a, e = mpmath.mpf(order), mpmath.mpf(epsilon)
        exact = mpmath.log(
            a / (2 * a - 1) * mpmath.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)
        ) / (a - 1)
        (price,) = renyi_divergence(LaplaceDpEvent(1 / epsilon), [order], "add_remove")
        assert 1 - 1e-9 <= price / exact <= 1 + 1e-6


@pytest.mark.parametrize("rate, mu", [(1e-18, 0.5), (1e-9, 1.0), (1e-12, 3.0)])
@mpmath.workdps(40)
def test_rarely_sampled_noise_keeps_its_price(rate, mu):
    def excess(z, order):
        w = 1 + mpmath.mpf(rate) * mpmath.expm1(mu * z - mpmath.mpf(mu) ** 2 / 2)
        return (w**order - 1 - order * (w - 1)) * mpmath.npdf(z)

    for order in (1.5, 4.0):
        points = [-20 + 0.5 * i for i in range(int(2 * (order * mu + 40)))]
        integral = mpmath.quad(lambda z, order=order: excess(z, mpmath.mpf(order)), points)
        exact = mpmath.log1p(integral) / (order - 1)
        event = PoissonSampledDpEvent(rate, GaussianDpEvent(1 / mu))
        (price,) = renyi_divergence(event, [order], "add_remove")
        assert 1 <= price / exact <= 1 + 1e-8


@pytest.mark.parametrize("number", [np.float16(3), np.float32(1.3), Fraction(13, 10)])
def test_numbers_of_any_kind_are_priced_as_doubles(number):
    for event, plain in [
        (LaplaceDpEvent(number), LaplaceDpEvent(float(number))),
        (GaussianDpEvent(number), GaussianDpEvent(float(number))),
    ]:
        assert pure_epsilon(event) == pure_epsilon(plain)
        assert squared_gaussian_mu(event) == squared_gaussian_mu(plain)
        assert convert_event(event, "add_remove", "replace_one") == convert_event(
            plain, "add_remove", "replace_one"
        )
