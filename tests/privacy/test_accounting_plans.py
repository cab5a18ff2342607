"""Prices of plans, of steps and of nested events, between exact ones and those of dp_accounting."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom, norm

from skdpot.privacy import BudgetExceededError, PrivacyLedger, events
from skdpot.privacy.accounting import (
    calibrate_noise_multiplier,
    delta_of,
    epsilon_of,
    failure_delta,
    gaussian_delta,
    gaussian_epsilon,
    plan_epsilon,
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
    leaves,
)
from skdpot.privacy.filters import MixtureFilter, PairFilter, stated_epsilon_delta
from tests.quick import first_quick

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


@pytest.mark.experiment
@pytest.mark.parametrize("name", PLANS)
def test_plans_lie_between_two_prices_of_dp_accounting(name):
    event, oracle = PLANS[name]
    low, high = oracle(False), oracle(True)
    for delta in (1e-2, 1e-5):
        price = plan_epsilon(event, delta, neighbouring="add_remove")
        assert low.get_epsilon_for_delta(delta) <= price
        assert price <= high.get_epsilon_for_delta(delta) * (1 + 1e-3)


@pytest.mark.experiment
@pytest.mark.parametrize("seed", range(25))
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


@pytest.mark.experiment
@pytest.mark.parametrize("count", [2, 100])
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


@pytest.mark.experiment
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


@pytest.mark.experiment
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


@pytest.mark.experiment
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


@pytest.mark.experiment
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


# By adding a record, by replacing one, and by replacing one in a sum that is centred.
KINDS_OF_STEPS = [
    {"neighbouring": "add_remove"},
    {"neighbouring": "replace_one"},
    {"neighbouring": "replace_one", "centred": True},
]
# Prices on different grids differ by less than this share.
NEARLY = 2e-3
# Sampling rate, steps, and what noise multipliers go with epsilons at delta = 1e-5.
TABLE = [
    (1.0, 1, [(0.2, 16.30), (1.0, 3.73), (2.33, 1.74), (10.0, 0.500)]),
    (1.0, 10, [(0.2, 51.6), (1.0, 11.8), (2.33, 5.50), (10.0, 1.58)]),
    (1.0, 100, [(0.2, 163.0), (1.0, 37.3), (2.33, 17.4), (10.0, 5.00)]),
    (0.01, 2000, [(0.2, 7.36), (1.0, 1.84), (2.33, 1.06), (10.0, 0.60)]),
    (0.05, 2000, [(0.2, 36.5), (1.0, 8.41), (2.33, 3.99), (10.0, 1.32)]),
]


@pytest.mark.parametrize("rate, steps, row", first_quick(TABLE, 2))
def test_reference_table(rate, steps, row):
    for epsilon, noise_multiplier in row:
        found = calibrate_noise_multiplier(epsilon, 1e-5, sampling_rate=rate, steps=steps)
        assert found == pytest.approx(noise_multiplier, rel=0.01)
        price = epsilon_of(noise_multiplier, 1e-5, sampling_rate=rate, steps=steps)
        assert price == pytest.approx(epsilon, rel=0.015)


def test_steps_without_sampling_are_one_release_with_less_noise():
    for steps in (1, 7, 1000):
        exact = gaussian_epsilon(1e-6, math.sqrt(steps) / 5.0)
        assert exact <= epsilon_of(5.0, 1e-6, steps=steps) <= exact * (1 + 1e-8)


def oracle(noise_multiplier, rate, steps, pessimistic, relation="add_remove"):
    step = gaussian(noise_multiplier, pessimistic, rate, 1e-4, relation, dots=pessimistic)
    return step.self_compose(steps)


STEPS = [(1.0, 0.01, 1000), (0.7, 0.02, 100), (4.0, 0.05, 500), (2.0, 0.5, 20), (0.9, 0.9, 3)]


@pytest.mark.experiment
@pytest.mark.parametrize("relation", [KINDS_OF_STEPS[0], KINDS_OF_STEPS[2]])
@pytest.mark.parametrize("noise_multiplier, rate, steps", STEPS)
def test_prices_of_steps_lie_between_two_of_dp_accounting(noise_multiplier, rate, steps, relation):
    low, high = (
        oracle(noise_multiplier, rate, steps, pessimistic, relation["neighbouring"])
        for pessimistic in (False, True)
    )
    asked = {"sampling_rate": rate, "steps": steps, **relation}
    for delta in (1e-2, 1e-5, 1e-8):
        price = epsilon_of(noise_multiplier, delta, **asked)
        assert low.get_epsilon_for_delta(delta) <= price
        assert price <= high.get_epsilon_for_delta(delta) * 1.001 + 1e-5
        assert price <= epsilon_of(noise_multiplier, delta, **asked | {"centred": False})
    for epsilon in (0.1, 1.0, 3.0):
        price = delta_of(noise_multiplier, epsilon, **asked)
        # Of each step it truncates probabilities of 1e-15 or so.
        assert low.get_delta_for_epsilon(epsilon) <= price + 1e-14
        assert price <= high.get_delta_for_epsilon(epsilon) * 1.01 + 2e-11


@pytest.mark.experiment
@pytest.mark.parametrize("noise_multiplier, rate, steps", STEPS)
def test_replacing_costs_at_least_what_known_worst_cases_show(noise_multiplier, rate, steps):
    """Scalar records 0 and D, and -D/2 and D/2, are among what the bound is for."""
    price = epsilon_of(
        noise_multiplier, 1e-5, sampling_rate=rate, steps=steps, neighbouring="replace_one"
    )
    for relation in RELATIONS:
        known = oracle(noise_multiplier, rate, steps, False, relation)
        assert known.get_epsilon_for_delta(1e-5) <= price
    # And never more than what is not sampled.
    assert price <= epsilon_of(noise_multiplier, 1e-5, steps=steps)


@pytest.mark.experiment
def test_centred_sums_of_the_theory_page():
    asked = {"sampling_rate": 0.02, "steps": 500, "neighbouring": "replace_one"}
    assert epsilon_of(1.0, 1e-6, **asked) == pytest.approx(3.709, abs=1e-3)
    price = epsilon_of(1.0, 1e-6, **asked, centred=True)
    theirs = oracle(1.0, 0.02, 500, True, "replace_one")
    assert price == pytest.approx(theirs.get_epsilon_for_delta(1e-6), abs=1e-3)
    assert price == pytest.approx(2.004, abs=1e-3)
    # Noise is normalised by what adding a record does, and centred or not is the same.
    for rate, relation in [(0.02, "add_remove"), (1.0, "replace_one")]:
        asked = {"sampling_rate": rate, "steps": 500, "neighbouring": relation}
        assert epsilon_of(1.0, 1e-6, **asked, centred=True) == epsilon_of(1.0, 1e-6, **asked)


def test_a_sample_of_sums_of_which_one_is_not_centred_costs_as_if_none_were():
    plain, prices = GaussianDpEvent(4.0), set()
    for noise in (plain, CentredGaussianDpEvent(4.0)):
        sample = PoissonSampledDpEvent(0.02, ComposedDpEvent([noise, plain]))
        every = SelfComposedDpEvent(sample, 100)
        prices.add(plan_epsilon(every, 1e-6, neighbouring="replace_one"))
    assert len(prices) == 1


def replaced_records_delta(noise_multiplier, rate, epsilon, first, second):
    """The delta of one step for scalar records, on a fine grid of outputs."""
    z = np.linspace(-12, 12, 50_001) * noise_multiplier
    densities = [
        (1 - rate) * norm.pdf(z, 0, noise_multiplier) + rate * norm.pdf(z, record, noise_multiplier)
        for record in (first, second)
    ]
    differences = densities[0] - math.exp(epsilon) * densities[1]
    return np.maximum(differences, 0).sum() * (z[1] - z[0])


@pytest.mark.experiment
@pytest.mark.parametrize("noise_multiplier, rate", [(1.0, 0.1), (0.5, 0.4), (3.0, 0.02)])
def test_no_replaced_record_costs_more_in_one_step(noise_multiplier, rate, rng):
    """Any two records at most 1 apart, and at most 1 from 0, which stands for no record."""
    for epsilon in (0.0, 0.05, 0.5, 2.0):
        price = delta_of(noise_multiplier, epsilon, sampling_rate=rate, neighbouring="replace_one")
        records = [1.0, 0.75, 0.5, 0.0, rng.random(), -rng.random()]
        worst = 0.0
        for first in records:
            for second in [first - 1, *records]:
                if abs(first - second) <= 1 and abs(second) <= 1:
                    found = replaced_records_delta(noise_multiplier, rate, epsilon, first, second)
                    worst = max(worst, found)
        assert worst * (1 - 1e-6) <= price
        # At epsilon = 0 the bound is attained: it is the sampled total variation.
        if epsilon == 0:
            assert worst == pytest.approx(price, rel=2e-3)


@pytest.mark.experiment
@pytest.mark.parametrize("rate, steps", [(1.0, 1), (1.0, 50), (0.02, 300), (0.3, 5)])
@pytest.mark.parametrize("relation", KINDS_OF_STEPS)
@pytest.mark.parametrize("epsilon, delta", [(0.05, 1e-6), (1.0, 1e-5), (8.0, 1e-9)])
def test_calibrated_noise_is_enough_and_hardly_more(rate, steps, relation, epsilon, delta):
    asked = {"sampling_rate": rate, "steps": steps, **relation}
    found = calibrate_noise_multiplier(epsilon, delta, **asked)
    assert epsilon_of(found, delta, **asked) <= epsilon
    assert epsilon_of(found * (1 - (2e-3 if rate < 1 else 1e-8)), delta, **asked) > epsilon


MULTIPLIERS = st.floats(0.3, 30.0)
RATES = st.floats(0.005, 1.0)
NUMBERS = st.integers(1, 300)


def ordered(values):
    return st.tuples(values, values).map(sorted)


@pytest.mark.experiment
@pytest.mark.parametrize("price, amounts, nearly, little", [
    # Grids of two prices differ.
    (epsilon_of, st.floats(-30.0, -1.0).map(math.exp), NEARLY, 0.0),
    (delta_of, st.floats(0.0, 5.0), 0.01, 1e-11),
])  # fmt: skip
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_prices_are_monotone(price, amounts, nearly, little, data):
    relation = data.draw(st.sampled_from(KINDS_OF_STEPS))
    kinds = (MULTIPLIERS, amounts, RATES, NUMBERS)
    base, more = zip(*(data.draw(ordered(kind)) for kind in kinds), strict=True)

    def at(noise, amount, rate, steps):
        return price(noise, amount, sampling_rate=rate, steps=steps, **relation)

    middle = at(*base)
    most, least = middle * (1 + nearly) + little, middle * (1 - nearly) - little
    assert at(more[0], *base[1:]) <= most
    assert at(base[0], more[1], *base[2:]) <= most
    assert at(*base[:2], more[2], base[3]) >= least
    assert at(*base[:3], more[3]) >= least


@pytest.mark.experiment
def test_ends_of_the_range():
    assert epsilon_of(1.0, 1e-5, sampling_rate=0.0, steps=100) == 0
    assert delta_of(1.0, 0.0, sampling_rate=0.0, steps=100) == 0
    assert epsilon_of(1e6, 1e-5, sampling_rate=0.1) == 0
    assert delta_of(1e-3, 1.0, sampling_rate=0.5, steps=10) == pytest.approx(1 - 0.5**10, rel=1e-3)
    # A sample that is nearly always whole costs no more than the whole, however coarse the grid.
    whole = epsilon_of(1.0, 1e-5, steps=3)
    assert whole * 0.99 < epsilon_of(1.0, 1e-5, sampling_rate=1 - 1e-9, steps=3) <= whole
    assert epsilon_of(0.001, 1e-5, sampling_rate=0.1, steps=3) <= epsilon_of(0.001, 1e-5, steps=3)


BAD = [
    ({"noise_multiplier": 0.0}, "noise_multiplier"),
    ({"noise_multiplier": math.nan}, "noise_multiplier"),
    ({"noise_multiplier": "1"}, "noise_multiplier"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"sampling_rate": 1.1}, "sampling_rate"),
    ({"sampling_rate": math.nan}, "sampling_rate"),
    ({"steps": 0}, "steps"),
    ({"steps": 1.5}, "steps"),
    ({"neighbouring": "both"}, "neighbouring"),
]


@pytest.mark.parametrize("bad, name", BAD)
def test_bad_arguments_are_named(bad, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        epsilon_of(**{"noise_multiplier": 1.0, "delta": 1e-5} | bad)


@pytest.mark.parametrize("bad", [-0.1, math.nan, "1"])
def test_bad_budgets_are_named(bad):
    with pytest.raises(ValueError, match="^epsilon must be"):
        delta_of(1.0, bad)
    with pytest.raises(ValueError, match="^epsilon must be"):
        calibrate_noise_multiplier(bad, 1e-5)
    for delta in (bad, 1.0):
        with pytest.raises(ValueError, match="^delta must be"):
            plan_epsilon(PureDpEvent(1.0), delta, neighbouring="add_remove")
    with pytest.raises(ValueError, match="^sampling_rate must be above 0"):
        calibrate_noise_multiplier(1.0, 1e-5, sampling_rate=0.0)


@pytest.mark.parametrize("delta", [1 - 1e-7, 1 - 2.0**-53, 1e-300, 5e-324])
def test_noise_is_calibrated_at_any_delta(delta):
    multiplier = calibrate_noise_multiplier(1.0, delta)
    assert epsilon_of(multiplier, delta) <= 1.0
    if 1e-290 < delta < 1 - 1e-15:
        assert epsilon_of(multiplier * (1 - 1e-6), delta) > 1.0


DISCRETE = (NoOpDpEvent(), PureDpEvent(0.5), ApproximateDpEvent(0.25, 1e-3))
LEAVES = (*DISCRETE, LaplaceDpEvent(3.0), GaussianDpEvent(3.0))
MORE_LEAVES = (CentredGaussianDpEvent(4.0), ZCDpEvent(0.01, 0.0), ZCDpEvent(0.0, 0.125))
WRAPPERS = (
    lambda event: PoissonSampledDpEvent(0.25, event),
    lambda event: SelfComposedDpEvent(event, 2),
    lambda event: PlannedDpEvent(event, 0.0078125),
)


def grown(trees):
    """Return trees, and all that are one level higher."""
    pairs = itertools.combinations_with_replacement(trees, 2)
    higher = [wrap(tree) for tree in trees for wrap in WRAPPERS]
    return [*trees, *higher, *map(ComposedDpEvent, map(list, pairs))]


TREES = grown(grown(LEAVES)) + grown(LEAVES + MORE_LEAVES)


def unbounded(event):
    """Return the exact probability of an unbounded loss."""
    match event:
        case ApproximateDpEvent():
            return Fraction(repr(event.delta))
        case PoissonSampledDpEvent():
            return Fraction(event.sampling_probability) * unbounded(event.event)
        case SelfComposedDpEvent():
            return 1 - (1 - unbounded(event.event)) ** event.count
        case ComposedDpEvent():
            return 1 - math.prod(1 - unbounded(part) for part in event.events)
        case PlannedDpEvent():
            return unbounded(event.event)
    return Fraction(0)


def has(event, kind):
    return kind.__name__ in str(event)


def test_trees_are_made_of_all_public_events():
    known = {kind for kind in vars(events).values() if isinstance(kind, type)}
    known = {kind for kind in known if issubclass(kind, DpEvent)} - {DpEvent}
    assert {type(tree) for tree in TREES} == known


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("trees", first_quick([grown(LEAVES), TREES]), ids=["low", "all"])
def test_no_event_costs_less_than_the_probability_of_an_unbounded_loss(trees, relation):
    pairs, mixture = PairFilter(1.0, 0.5), MixtureFilter(1.0, 0.5, 1e-6)
    for event in trees:
        truth, pair = unbounded(event), stated_epsilon_delta(event, relation)
        # Deltas of several parts are added up, which is slightly more than the truth.
        most = Fraction("1.02") * truth
        total = mixture.price(event, pair)
        assert truth <= total.failure, event
        assert has(event, PlannedDpEvent) or total.failure <= most, event
        assert truth <= failure_delta(event), event
        if pair is not None:
            sold = pairs.price(event, pair)
            epsilon, delta = map(Fraction, map(repr, pair))
            assert truth <= sold.delta <= delta and sold.epsilon <= epsilon, event
            assert has(event, PlannedDpEvent) or sold.delta <= most, event
        for delta in (0.0, 0.999 * float(truth)) if truth else ():
            assert plan_epsilon(event, delta, neighbouring=relation) == math.inf, event


def together(distributions):
    """Return the distribution of independent outcomes."""
    joint = {(): 1.0}
    for each in distributions:
        joint = {(*a, b): p * q for a, p in joint.items() for b, q in each.items()}
    return joint


def outcomes(event, has_record):
    """Return the distribution of a discrete release that is as bad as its event allows."""
    match event:
        case PureDpEvent():
            return outcomes(ApproximateDpEvent(event.epsilon, 0.0), has_record)
        case ApproximateDpEvent():
            epsilon = event.epsilon if has_record else -event.epsilon
            yes, no = ((1 - event.delta) * expit(each) for each in (epsilon, -epsilon))
            return {"yes": yes, "no": no, f"has_record={has_record}": event.delta}
        case PlannedDpEvent():
            return outcomes(event.event, has_record)
        case SelfComposedDpEvent():
            return together([outcomes(event.event, has_record)] * event.count)
        case ComposedDpEvent():
            return together(outcomes(part, has_record) for part in event.events)
        case PoissonSampledDpEvent():
            mixture = Counter(outcomes(event.event, False))
            if has_record:
                rate, absent = event.sampling_probability, mixture
                mixture = Counter({key: (1 - rate) * p for key, p in absent.items()})
                for key, p in outcomes(event.event, True).items():
                    mixture[key] += rate * p
            return mixture
    assert event == NoOpDpEvent()
    return {(): 1.0}


def delta_of_discrete(event, epsilon):
    """Return the smallest delta of a discrete release at an epsilon."""
    present, absent = Counter(outcomes(event, True)), Counter(outcomes(event, False))
    return max(
        math.fsum(max(p[key] - math.exp(epsilon) * q[key], 0.0) for key in p)
        for p, q in ((present, absent), (absent, present))
    )


def distinct(trees):
    """Return one of the trees for each combination of basic and sampled events."""
    return list({str(sorted(Counter(map(str, leaves(t))).items())): t for t in trees}.values())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("trees", first_quick([grown(DISCRETE), grown(grown(DISCRETE))]), ids=len)
def test_prices_of_discrete_releases_hold_for_their_exact_distributions(trees, relation):
    """A record that is out of the data is one that it may be replaced by."""
    mixture, delta = MixtureFilter(2.0, 0.5, 1e-4), 0.0625
    for event in trees:
        pair = stated_epsilon_delta(event, relation)
        if pair is not None:
            assert delta_of_discrete(event, pair[0]) <= pair[1] + 1e-14, event
        total = mixture.price(event, pair)
        epsilon = float(total.pure)
        assert delta_of_discrete(event, epsilon) <= float(total.failure) + 1e-14, event
    for event in distinct(trees):
        pair = stated_epsilon_delta(event, relation)
        spent = mixture.spent(mixture.price(event, pair))
        planned = plan_epsilon(event, delta, neighbouring=relation)
        for epsilon, at in (spent, (planned, delta)):
            assert delta_of_discrete(event, epsilon) <= at * (1 + 1e-9), event


@pytest.mark.parametrize("slack", [0.0, 1e-6])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_ledger_refuses_what_fails_more_often_than_its_budget_allows(relation, slack):
    for event in grown(LEAVES + MORE_LEAVES):
        truth, about = float(unbounded(event)), {"unit": "record", "label": "x"}
        if truth:
            delta = 0.999 * truth + slack
            ledger = PrivacyLedger(100.0, delta, neighbouring=relation, slack=slack)
            with pytest.raises(BudgetExceededError):
                ledger.charge(event, **about)
            ledger = PrivacyLedger(100.0, 0.5, neighbouring=relation, slack=slack)
            ledger.charge(event, **about)
            assert ledger.spent()[1] >= truth
            assert ledger.spent(0.0) == (math.inf, 0.0)
            assert ledger.spent(0.999 * truth)[0] == math.inf


class Unlisted(DpEvent):
    """An event that no rule knows."""


PRICES = {
    "pair": lambda event: stated_epsilon_delta(event, "add_remove"),
    "plan": lambda event: plan_epsilon(event, 1e-6, neighbouring="add_remove"),
    "failure": failure_delta,
    "mixture": lambda event: MixtureFilter(1.0, 0.5, 0.5).price(event, (0.0, 0.0)),
    "charge": lambda event: PrivacyLedger(None).charge(event, unit="record", label="x"),
}


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("listed", [False, True])
def test_an_event_without_a_rule_has_no_price(price, listed, monkeypatch):
    if listed:
        # An event of a later version, of which the rules were forgotten.
        monkeypatch.setitem(events._FIELDS, Unlisted, ())
        monkeypatch.setitem(events._CLASSES, "Unlisted", Unlisted)
    for event in grown([Unlisted()]):
        with pytest.raises(TypeError, match="Unlisted"):
            price(event)


def test_the_delta_of_a_plan_is_compared_with_its_failures_exactly():
    """As doubles, three times 0.1 is more than 0.3."""
    plan = SelfComposedDpEvent(ApproximateDpEvent(0.5, 0.1), 3)
    assert plan_epsilon(plan, 0.3, neighbouring="replace_one") == 1.5
    assert plan_epsilon(plan, 0.3 * (1 - 1e-15), neighbouring="replace_one") == math.inf
