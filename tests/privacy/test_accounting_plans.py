"""The price of plans: whatever is released, between two prices of another accountant."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import common, privacy_loss_distribution
from scipy.stats import binom

from skdpot.privacy.accounting import epsilon_of, gaussian_delta, gaussian_epsilon, plan_epsilon
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
)

pytestmark = pytest.mark.experiment

RELATIONS = ("add_remove", "replace_one")
STEP = 1e-3


def times(event, count):
    return SelfComposedDpEvent(event, count)


def sampled(rate, event):
    return PoissonSampledDpEvent(rate, event)


def composed(*events):
    return ComposedDpEvent(list(events))


# The same by dp_accounting, rounded up or down.
def gaussian(noise_multiplier, pessimistic, rate=1.0, step=STEP, relation="add_remove", dots=False):
    replaced = relation == "replace_one"
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        # What its relations ask for: how far a record that is added moves a sum.
        sensitivity=0.5 if replaced else 1.0,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=step,
        sampling_prob=rate,
        use_connect_dots=dots,
        neighboring_relation=NeighboringRelation.REPLACE_ONE
        if replaced
        else NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


def laplace(parameter, pessimistic, rate=1.0):
    return privacy_loss_distribution.from_laplace_mechanism(
        parameter,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=STEP,
        sampling_prob=rate,
        use_connect_dots=False,
    )


def response(epsilon, pessimistic, delta=0.0):
    if pessimistic:
        return privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, delta), STEP
        )
    rounded = math.floor(epsilon / STEP), math.floor(-epsilon / STEP)
    true = (1 - delta) / (1 + math.exp(-epsilon))
    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        {rounded[0]: true, rounded[1]: 1 - delta - true}, delta, STEP, pessimistic_estimate=False
    )


PLANS = {
    "pure": (times(PureDpEvent(0.5), 50), lambda p: response(0.5, p).self_compose(50)),
    "small pure": (times(PureDpEvent(0.03), 40), lambda p: response(0.03, p).self_compose(40)),
    "approximate": (
        times(ApproximateDpEvent(0.4, 1e-7), 10),
        lambda p: response(0.4, p, 1e-7).self_compose(10),
    ),
    "laplace": (times(LaplaceDpEvent(2.0), 50), lambda p: laplace(2.0, p).self_compose(50)),
    "sampled laplace": (
        times(sampled(0.1, LaplaceDpEvent(1.5)), 30),
        lambda p: laplace(1.5, p, 0.1).self_compose(30),
    ),
    "a little of everything": (
        composed(
            GaussianDpEvent(2.0),
            times(PureDpEvent(0.25), 3),
            LaplaceDpEvent(3.0),
            ApproximateDpEvent(0.1, 1e-7),
            times(sampled(0.05, GaussianDpEvent(1.0)), 20),
        ),
        lambda p: (
            gaussian(2.0, p)
            .compose(response(0.25, p).self_compose(3))
            .compose(laplace(3.0, p))
            .compose(response(0.1, p, 1e-7))
            .compose(gaussian(1.0, p, 0.05).self_compose(20))
        ),
    ),
    "two rates": (
        composed(
            times(sampled(0.01, GaussianDpEvent(0.8)), 100),
            times(sampled(0.2, GaussianDpEvent(4.0)), 50),
        ),
        lambda p: (
            gaussian(0.8, p, 0.01).self_compose(100).compose(gaussian(4.0, p, 0.2).self_compose(50))
        ),
    ),
    "sampled twice": (
        sampled(0.5, times(sampled(0.2, GaussianDpEvent(1.0)), 1)),
        lambda p: gaussian(1.0, p, 0.1),
    ),
    "queries on one sample": (
        times(sampled(0.1, times(GaussianDpEvent(2.0), 4)), 10),
        lambda p: gaussian(1.0, p, 0.1).self_compose(10),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_lie_between_two_prices_of_dp_accounting(name):
    event, oracle = PLANS[name]
    low, high = oracle(False), oracle(True)
    for delta in (1e-2, 1e-5):
        price = plan_epsilon(event, delta, neighbouring="add_remove")
        assert low.get_epsilon_for_delta(delta) <= price
        assert price <= high.get_epsilon_for_delta(delta) * (1 + 1e-3)


@pytest.mark.parametrize("seed", range(55))
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("is_sampled", [True, False])
def test_random_plans_cost_what_dp_accounting_says(is_sampled, relation, seed):
    """One or two kinds of steps, of centred sums where they are sampled."""
    rng = np.random.default_rng(seed)
    noise = CentredGaussianDpEvent if is_sampled else GaussianDpEvent
    plan, theirs = [], {}
    for count in rng.integers(1, 200, size=rng.integers(1, 3)).tolist():
        rate = float(np.exp(rng.uniform(np.log(1e-3), np.log(0.5)))) if is_sampled else 1.0
        multiplier = float(rng.uniform(0.7, 3.0) * (1 if is_sampled else np.sqrt(count)))
        plan.append(times(sampled(rate, noise(multiplier)), count))
        for dots in (False, True):
            step = gaussian(multiplier, dots, rate, 5e-4, relation, dots=dots).self_compose(count)
            theirs[dots] = step.compose(theirs[dots]) if dots in theirs else step
    delta = float(np.exp(rng.uniform(np.log(1e-8), np.log(1e-2))))
    price = plan_epsilon(composed(*plan), delta, neighbouring=relation)
    assert theirs[False].get_epsilon_for_delta(delta) <= price
    # Two steps of their grid.
    assert price == pytest.approx(theirs[True].get_epsilon_for_delta(delta), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_pure_releases_are_priced_as_randomised_response_not_as_laplace_noise(relation):
    pure = plan_epsilon(times(PureDpEvent(0.5), 50), 1e-5, neighbouring=relation)
    laplace = plan_epsilon(times(LaplaceDpEvent(2.0), 50), 1e-5, neighbouring=relation)
    assert pure == pytest.approx(18.9, rel=0.01)
    assert laplace == pytest.approx(17.5, rel=0.01)


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_pure_releases_have_the_published_optimal_composition(epsilon, count):
    """Theorem 3.3 of Kairouz, Oh and Viswanath (2015): deltas at epsilons ``(k - 2i) epsilon``."""
    event = times(PureDpEvent(epsilon), count)
    for i in range(1, count // 2 + 1, max(1, count // 8)):
        k = np.arange(i)
        gains = -np.expm1((count - 2 * i) * epsilon - (count - 2 * k) * epsilon)
        delta = binom.pmf(k, count, 1 / (1 + math.exp(epsilon))) @ gains
        if delta < 1e-9:
            # Rounding errors of transforms are subtracted from delta.
            continue
        found = plan_epsilon(event, float(delta), neighbouring="replace_one")
        assert found == pytest.approx((count - 2 * i) * epsilon, rel=1e-4, abs=1e-8)
        assert found >= (count - 2 * i) * epsilon * (1 - 1e-9)


def test_gaussian_plans_have_an_exact_price():
    event = composed(GaussianDpEvent(2.0), times(GaussianDpEvent(5.0), 10), NoOpDpEvent())
    mu = math.sqrt(0.25 + 10 / 25)
    for relation in RELATIONS:
        assert plan_epsilon(event, 1e-6, neighbouring=relation) == gaussian_epsilon(1e-6, mu)
        failing = composed(event, ApproximateDpEvent(0.0, 4e-7))
        found = plan_epsilon(failing, 1e-6, neighbouring=relation)
        assert found == pytest.approx(gaussian_epsilon(6e-7, mu), rel=1e-3)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rate, noise_multiplier", [(0.1, 0.5), (0.4, 1.0)])
def test_one_sample_costs_what_the_worse_of_two_directions_does(rate, noise_multiplier, relation):
    """To remove a record and to add it are told apart by different amounts, in closed form."""
    event, mu = sampled(rate, GaussianDpEvent(noise_multiplier)), 1 / noise_multiplier

    def to_remove(epsilon):
        return rate * gaussian_delta(math.log1p(math.expm1(epsilon) / rate), mu)

    def to_add(epsilon):
        if -math.expm1(-epsilon) >= rate:
            return 0.0
        kept = rate * gaussian_delta(math.log1p(math.expm1(-epsilon) / rate), mu)
        return -math.expm1(epsilon) + math.exp(epsilon) * kept

    for epsilon in (0.1, 0.5):
        delta = to_remove(epsilon)
        assert delta > 1.1 * to_add(epsilon)
        found = plan_epsilon(event, delta, neighbouring=relation)
        assert epsilon <= found <= epsilon * 1.01


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_centred_sums_are_composed_with_everything(rate):
    steps = times(sampled(rate, CentredGaussianDpEvent(2.0)), 20)
    for more in (GaussianDpEvent(3.0), sampled(0.1, GaussianDpEvent(2.0)), ZCDpEvent(0.02)):
        whole, part = (
            plan_epsilon(event, 1e-5, neighbouring="replace_one")
            for event in (composed(steps, more), steps)
        )
        assert part < whole < part + plan_epsilon(more, 1e-7, neighbouring="replace_one") + 0.1


def test_nothing_costs_nothing():
    assert plan_epsilon(NoOpDpEvent(), 1e-5, neighbouring="add_remove") == 0
    assert plan_epsilon(times(PureDpEvent(1.0), 0), 0.0, neighbouring="add_remove") == 0


@pytest.mark.parametrize("relation", RELATIONS)
def test_steps_of_noise_cost_what_epsilon_of_says(relation):
    event = times(sampled(0.02, GaussianDpEvent(0.9)), 200)
    found = plan_epsilon(event, 1e-5, neighbouring=relation)
    steps = epsilon_of(0.9, 1e-5, sampling_rate=0.02, steps=200, neighbouring=relation)
    assert found == pytest.approx(steps, rel=1e-4)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "event, epsilon",
    [
        (NoOpDpEvent(), 0),
        (composed(), 0),
        (times(GaussianDpEvent(1.0), 0), 0),
        (PureDpEvent(0.0), 0),
        (sampled(0.0, GaussianDpEvent(1.0)), 0),
        (PureDpEvent(1.0), 1),
        (times(PureDpEvent(0.25), 4), 1),
        (LaplaceDpEvent(0.5), 2),
        (ZCDpEvent(0.0, 0.7), 0.7),
        (ApproximateDpEvent(1.0, 1e-5), math.inf),
        (GaussianDpEvent(1.0), math.inf),
        (sampled(0.1, PureDpEvent(1.0)), math.log(1 + 0.1 * (math.e - 1))),
    ],
)
def test_prices_without_a_delta(event, epsilon, relation):
    assert plan_epsilon(event, 0.0, neighbouring=relation) == pytest.approx(epsilon)


@pytest.mark.parametrize("relation", RELATIONS)
def test_approximate_releases_keep_what_they_promise(relation):
    event = ApproximateDpEvent(1.0, 1e-5)
    assert plan_epsilon(event, 1e-5, neighbouring=relation) <= 1
    assert plan_epsilon(event, 0.9e-5, neighbouring=relation) == math.inf
    # A sample of one record in ten: a tenth of the failures.
    assert plan_epsilon(sampled(0.1, event), 1.01e-6, neighbouring=relation) < 1.0
    assert plan_epsilon(sampled(0.1, event), 0.9e-6, neighbouring=relation) == math.inf


def test_concentrated_privacy_has_the_price_of_its_divergences():
    """Canonne, Kamath and Steinke (2020), proposition 12, minimised over all orders."""
    orders = 1 + np.geomspace(1e-2, 1e4, 200_001)
    for rho, xi in [(0.1, 0.0), (0.005, 0.0), (2.0, 0.3)]:
        epsilons = xi + rho * orders + np.log1p(-1 / orders) - np.log(1e-6 * orders) / (orders - 1)
        found = plan_epsilon(ZCDpEvent(rho, xi), 1e-6, neighbouring="replace_one")
        assert epsilons.min() <= found + 1e-9
        assert found == pytest.approx(epsilons.min(), rel=1e-3)
        # What Gaussian noise with the same divergences costs is a little less.
        assert gaussian_epsilon(1e-6, math.sqrt(2 * rho)) < found


@pytest.mark.parametrize("relation", RELATIONS)
def test_concentrated_privacy_is_composed_with_everything(relation):
    steps = times(sampled(0.05, GaussianDpEvent(2.0)), 50)
    for rho in (1e-6, 0.02, 0.5):
        event = composed(ZCDpEvent(rho), steps)
        price = plan_epsilon(event, 1e-5, neighbouring=relation)
        # No less than if the concentrated part were Gaussian, which it can be.
        gaussian = composed(GaussianDpEvent((2 * rho) ** -0.5), steps)
        assert plan_epsilon(gaussian, 1e-5, neighbouring=relation) <= price
        separate = plan_epsilon(ZCDpEvent(rho), 5e-6, neighbouring=relation)
        assert price <= separate + plan_epsilon(steps, 5e-6, neighbouring=relation) + 1e-9


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "event",
    [
        GaussianDpEvent(1.0),
        LaplaceDpEvent(1.0),
        PureDpEvent(1.0),
        ZCDpEvent(0.2, 0.1),
        composed(GaussianDpEvent(1.0), PureDpEvent(1.0)),
        composed(ZCDpEvent(0.1), PureDpEvent(1.0)),
        sampled(0.5, GaussianDpEvent(1.0)),
        PlannedDpEvent(times(GaussianDpEvent(3.0), 4), 1e-6),
        times(sampled(0.1, PureDpEvent(0.5)), 10),
    ],
)
def test_sampling_never_costs_and_more_releases_do(event, relation):
    def price(event):
        return plan_epsilon(event, 1e-5, neighbouring=relation)

    whole = price(event)
    prices = [price(sampled(rate, event)) for rate in (0.01, 0.1, 0.5, 1.0)]
    assert (np.diff(prices) >= -1e-4 * whole).all()
    assert prices[-1] == pytest.approx(whole, rel=1e-9)
    assert whole < price(times(event, 2)) <= price(times(event, 3))
    assert price(PlannedDpEvent(event, 1e-7)) == whole
    assert price(times(times(event, 2), 3)) == pytest.approx(price(times(event, 6)), rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", PLANS)
def test_price_falls_with_delta_and_delta_with_the_price(name, relation):
    event = PLANS[name][0]
    deltas = np.geomspace(1e-5, 0.3, 6)
    prices = np.array([plan_epsilon(event, delta, neighbouring=relation) for delta in deltas])
    assert (np.diff(prices) <= 0).all()


@pytest.mark.parametrize("name", PLANS)
def test_replacing_costs_no_less_than_adding(name):
    event = PLANS[name][0]
    added = plan_epsilon(event, 1e-5, neighbouring="add_remove")
    assert plan_epsilon(event, 1e-5, neighbouring="replace_one") >= added * (1 - 1e-4)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    "event",
    [GaussianDpEvent(3.0), PureDpEvent(0.5), ZCDpEvent(0.01), LaplaceDpEvent(2.0)],
    ids=repr,
)
def test_a_sample_of_everything_costs_the_whole_and_one_of_nothing_nothing(event, relation):
    whole = plan_epsilon(event, 1e-5, neighbouring=relation)
    assert plan_epsilon(sampled(1.0, event), 1e-5, neighbouring=relation) == whole > 0
    assert plan_epsilon(sampled(0.0, event), 1e-5, neighbouring=relation) == 0


def test_a_sample_of_what_has_no_price_of_its_own_costs_no_less_than_nothing():
    """Nothing finer is known of a sample for concentrated privacy than for the whole."""
    event = ZCDpEvent(0.01)
    whole = plan_epsilon(event, 1e-5, neighbouring="add_remove")
    assert 0 < plan_epsilon(sampled(0.5, event), 1e-5, neighbouring="add_remove") <= whole


def test_extreme_releases_have_a_price():
    for relation in RELATIONS:
        assert plan_epsilon(PureDpEvent(5000.0), 1e-5, neighbouring=relation) <= 5000
        loud = composed(PureDpEvent(300.0), times(sampled(0.01, GaussianDpEvent(0.05)), 5))
        assert 300 < plan_epsilon(loud, 1e-5, neighbouring=relation) < 1500
        quiet = times(sampled(1e-4, PureDpEvent(1e-6)), 10)
        assert plan_epsilon(quiet, 1e-9, neighbouring=relation) < 1e-8
        many = times(sampled(1e-3, GaussianDpEvent(20.0)), 10**6)
        limit = gaussian_epsilon(1e-5, 1e-3 * math.sqrt(1e6 * math.expm1(1 / 400)))
        found = plan_epsilon(many, 1e-5, neighbouring=relation)
        assert found == pytest.approx(limit, rel=0.1)


@pytest.mark.parametrize("delta", [-0.1, 1.0, 2.0, math.nan])
def test_a_bad_delta_is_named(delta):
    with pytest.raises(ValueError, match="^delta must be"):
        plan_epsilon(PureDpEvent(1.0), delta, neighbouring="add_remove")


def test_what_is_no_event_is_not_priced():
    with pytest.raises(TypeError, match="an event must be one of"):
        plan_epsilon(1.0, 1e-5, neighbouring="add_remove")
    with pytest.raises(ValueError, match="neighbouring must be"):
        plan_epsilon(PureDpEvent(1.0), 1e-5, neighbouring="any")
