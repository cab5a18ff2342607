"""Steps of Gaussian noise: published prices, monotone in everything, and never too low."""

import math
import time

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from skdpot.privacy.accounting import (
    calibrate_noise_multiplier,
    delta_of,
    epsilon_of,
    gaussian_epsilon,
)

pytestmark = pytest.mark.experiment

RELATIONS = [
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


@pytest.mark.parametrize("rate, steps, row", TABLE)
def test_reference_table(rate, steps, row):
    for epsilon, noise_multiplier in row:
        found = calibrate_noise_multiplier(epsilon, 1e-5, sampling_rate=rate, steps=steps)
        assert found == pytest.approx(noise_multiplier, rel=0.01)
        price = epsilon_of(noise_multiplier, 1e-5, sampling_rate=rate, steps=steps)
        assert price == pytest.approx(epsilon, rel=0.015)


def test_analytic_gaussian_mechanism():
    """Balle and Wang (2018): at epsilon = 1, delta = 1e-5 the noise is 3.730632 sensitivities."""
    assert calibrate_noise_multiplier(1.0, 1e-5) == pytest.approx(3.730632, rel=1e-6)
    # The classical formula asks for sqrt(2 log(1.25 / delta)) / epsilon = 4.84.
    assert epsilon_of(4.84, 1e-5) < 0.76
    assert delta_of(3.730632, 1.0) == pytest.approx(1e-5, rel=1e-5)


def test_steps_without_sampling_are_one_release_with_less_noise():
    for steps in (1, 7, 1000):
        exact = gaussian_epsilon(1e-6, math.sqrt(steps) / 5.0)
        assert exact <= epsilon_of(5.0, 1e-6, steps=steps) <= exact * (1 + 1e-8)


def oracle(
    noise_multiplier, rate, steps, step, pessimistic, sensitivity=1.0, relation="add_remove"
):
    relations = {
        "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sensitivity=sensitivity,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=step,
        sampling_prob=rate,
        neighboring_relation=relations[relation],
        use_connect_dots=pessimistic,
    ).self_compose(steps)


STEPS = [(1.0, 0.01, 1000), (0.7, 0.02, 100), (4.0, 0.05, 500), (2.0, 0.5, 20), (0.9, 0.9, 3)]


@pytest.mark.parametrize("noise_multiplier, rate, steps", STEPS)
def test_prices_lie_between_two_prices_of_dp_accounting(noise_multiplier, rate, steps):
    low = oracle(noise_multiplier, rate, steps, 1e-4, False)
    high = oracle(noise_multiplier, rate, steps, 1e-4, True)
    for delta in (1e-2, 1e-5, 1e-8):
        price = epsilon_of(noise_multiplier, delta, sampling_rate=rate, steps=steps)
        assert low.get_epsilon_for_delta(delta) <= price
        assert price <= high.get_epsilon_for_delta(delta) * 1.001 + 1e-5
    for epsilon in (0.1, 1.0, 3.0):
        price = delta_of(noise_multiplier, epsilon, sampling_rate=rate, steps=steps)
        # It truncates probabilities of 1e-15.
        assert low.get_delta_for_epsilon(epsilon) <= price + 2e-15
        assert price <= high.get_delta_for_epsilon(epsilon) * 1.01 + 2e-11


def subsampled_step_delta(noise_multiplier, rate, epsilon):
    """The exact delta of one Poisson-sampled step under add/remove: the worse direction."""
    mu, far = 1 / noise_multiplier, math.exp(epsilon)

    def mass(z):
        return (1 - rate) * norm.sf(z) + rate * norm.sf(z - mu)

    z = mu / 2 + math.log((far - 1 + rate) / rate) / mu
    return mass(z) - far * norm.sf(z)


@pytest.mark.parametrize("noise_multiplier, rate", [(1.0, 0.1), (0.5, 0.01), (5.0, 0.3)])
def test_one_sampled_step_has_a_closed_form(noise_multiplier, rate):
    for epsilon in (0.01, 0.2, 1.0):
        exact = subsampled_step_delta(noise_multiplier, rate, epsilon)
        price = delta_of(noise_multiplier, epsilon, sampling_rate=rate)
        assert exact <= price <= exact * 1.005 + 1e-13


@pytest.mark.parametrize("noise_multiplier, rate, steps", STEPS)
def test_replacing_costs_at_least_what_known_worst_cases_show(noise_multiplier, rate, steps):
    """Scalar records 0 and D, and -D/2 and D/2, are among what the bound is for."""
    price = epsilon_of(
        noise_multiplier, 1e-5, sampling_rate=rate, steps=steps, neighbouring="replace_one"
    )
    removed = oracle(noise_multiplier, rate, steps, 1e-4, False)
    replaced = oracle(
        noise_multiplier, rate, steps, 1e-4, False, sensitivity=0.5, relation="replace_one"
    )
    assert removed.get_epsilon_for_delta(1e-5) <= price
    assert replaced.get_epsilon_for_delta(1e-5) <= price
    # And never more than what is not sampled.
    assert price <= epsilon_of(noise_multiplier, 1e-5, steps=steps)


@pytest.mark.parametrize("noise_multiplier, rate, steps", STEPS)
def test_centred_sums_cost_what_dp_accounting_says(noise_multiplier, rate, steps):
    """Its sensitivity is that of a record which is added, half of ours."""
    low, high = (
        oracle(noise_multiplier, rate, steps, 1e-4, pessimistic, 0.5, "replace_one")
        for pessimistic in (False, True)
    )
    asked = {"sampling_rate": rate, "steps": steps, "neighbouring": "replace_one"}
    for delta in (1e-2, 1e-5, 1e-8):
        price = epsilon_of(noise_multiplier, delta, **asked, centred=True)
        assert low.get_epsilon_for_delta(delta) <= price
        assert price <= high.get_epsilon_for_delta(delta) * 1.001 + 1e-5
        assert price <= epsilon_of(noise_multiplier, delta, **asked)
    for epsilon in (0.1, 1.0, 3.0):
        price = delta_of(noise_multiplier, epsilon, **asked, centred=True)
        # Of each step it truncates probabilities of 1e-15 or so.
        assert low.get_delta_for_epsilon(epsilon) <= price + 1e-14
        assert price <= high.get_delta_for_epsilon(epsilon) * 1.01 + 2e-11


def test_centred_sums_of_the_theory_page():
    asked = {"sampling_rate": 0.02, "steps": 500, "neighbouring": "replace_one"}
    assert epsilon_of(1.0, 1e-6, **asked) == pytest.approx(3.709, abs=1e-3)
    price = epsilon_of(1.0, 1e-6, **asked, centred=True)
    theirs = oracle(2.0, 0.02, 500, 1e-4, True, relation="replace_one")
    assert price == pytest.approx(theirs.get_epsilon_for_delta(1e-6), abs=1e-3)
    assert price == pytest.approx(2.004, abs=1e-3)
    # Noise is normalised by what adding a record does, and centred or not is the same.
    for rate, relation in [(0.02, "add_remove"), (1.0, "replace_one")]:
        asked = {"sampling_rate": rate, "steps": 500, "neighbouring": relation}
        assert epsilon_of(1.0, 1e-6, **asked, centred=True) == epsilon_of(1.0, 1e-6, **asked)


def replaced_records_delta(noise_multiplier, rate, epsilon, first, second):
    """The delta of one step for scalar records, on a fine grid of outputs."""
    z = np.linspace(-12, 12, 50_001) * noise_multiplier
    densities = [
        (1 - rate) * norm.pdf(z, 0, noise_multiplier) + rate * norm.pdf(z, record, noise_multiplier)
        for record in (first, second)
    ]
    differences = densities[0] - math.exp(epsilon) * densities[1]
    return np.maximum(differences, 0).sum() * (z[1] - z[0])


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


@pytest.mark.parametrize("rate, steps", [(1.0, 1), (1.0, 50), (0.02, 300), (0.3, 5)])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon, delta", [(0.05, 1e-6), (1.0, 1e-5), (8.0, 1e-9)])
def test_calibrated_noise_is_enough_and_hardly_more(rate, steps, relation, epsilon, delta):
    asked = {"sampling_rate": rate, "steps": steps, **relation}
    found = calibrate_noise_multiplier(epsilon, delta, **asked)
    assert epsilon_of(found, delta, **asked) <= epsilon
    assert epsilon_of(found * (1 - (2e-3 if rate < 1 else 1e-8)), delta, **asked) > epsilon


def test_tiny_budgets_are_priced_as_well():
    price = epsilon_of(200.0, 1e-9, sampling_rate=0.01, steps=100)
    found = calibrate_noise_multiplier(price, 1e-9, sampling_rate=0.01, steps=100)
    assert found == pytest.approx(200.0, rel=1e-3)
    # Gaussian in the limit (Dong, Roth and Su, 2022): mu = q sqrt(T (exp(1 / s**2) - 1)).
    mu = 0.01 * math.sqrt(100 * math.expm1(1 / 200**2))
    assert price == pytest.approx(gaussian_epsilon(1e-9, mu), rel=0.02)


def test_ten_thousand_steps_take_less_than_five_seconds():
    start = time.perf_counter()
    calibrate_noise_multiplier(1.0, 1e-5, sampling_rate=0.01, steps=10_000)
    assert time.perf_counter() - start < 5


MULTIPLIERS = st.floats(0.3, 30.0)
LOG_DELTAS = st.floats(-30.0, -1.0)
RATES = st.floats(0.005, 1.0)
NUMBERS = st.integers(1, 300)


def ordered(values):
    return st.tuples(values, values).map(sorted)


def monotone(**strategies):
    """Give a property test that many deterministic examples."""

    def decorate(function):
        return settings(max_examples=20, deadline=None, derandomize=True)(
            given(relation=st.sampled_from(RELATIONS), **strategies)(function)
        )

    return decorate


@monotone(values=ordered(MULTIPLIERS), log_delta=LOG_DELTAS, rate=RATES, steps=NUMBERS)
def test_epsilon_falls_with_the_noise(values, log_delta, rate, steps, relation):
    low, high = (
        epsilon_of(x, math.exp(log_delta), sampling_rate=rate, steps=steps, **relation)
        for x in values
    )
    # Grids of two prices differ.
    assert low >= high * (1 - NEARLY)


@monotone(values=ordered(LOG_DELTAS), multiplier=MULTIPLIERS, rate=RATES, steps=NUMBERS)
def test_epsilon_falls_with_delta(values, multiplier, rate, steps, relation):
    low, high = (
        epsilon_of(multiplier, math.exp(x), sampling_rate=rate, steps=steps, **relation)
        for x in values
    )
    # Grids of two prices differ.
    assert low >= high * (1 - NEARLY)


@monotone(values=ordered(RATES), multiplier=MULTIPLIERS, log_delta=LOG_DELTAS, steps=NUMBERS)
def test_epsilon_grows_with_the_sampling_rate(values, multiplier, log_delta, steps, relation):
    delta = math.exp(log_delta)
    low, high = (
        epsilon_of(multiplier, delta, sampling_rate=x, steps=steps, **relation) for x in values
    )
    assert low <= high * (1 + NEARLY)


@monotone(
    steps=NUMBERS,
    more=st.sampled_from([1, 2, 10, 1000]),
    multiplier=MULTIPLIERS,
    log_delta=LOG_DELTAS,
    rate=RATES,
)
def test_epsilon_grows_with_the_steps(steps, more, multiplier, log_delta, rate, relation):
    delta = math.exp(log_delta)
    low, high = (
        epsilon_of(multiplier, delta, sampling_rate=rate, steps=n, **relation)
        for n in (steps, steps + more)
    )
    assert low <= high * (1 + NEARLY)


@monotone(
    multipliers=ordered(MULTIPLIERS),
    epsilons=ordered(st.floats(0.0, 5.0)),
    rates=ordered(RATES),
    numbers=ordered(NUMBERS),
)
def test_delta_is_monotone(multipliers, epsilons, rates, numbers, relation):
    def price(noise, epsilon, rate, steps):
        return delta_of(noise, epsilon, sampling_rate=rate, steps=steps, **relation)

    base = multipliers[0], epsilons[0], rates[0], numbers[0]
    middle = price(*base)
    most, least = middle * (1 + 0.01) + 1e-11, middle * (1 - 0.01) - 1e-11
    assert price(multipliers[1], *base[1:]) <= most
    assert price(base[0], epsilons[1], *base[2:]) <= most
    assert price(*base[:2], rates[1], base[3]) >= least
    assert price(*base[:3], numbers[1]) >= least


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    epsilons=ordered(st.floats(0.05, 10.0)),
    log_deltas=ordered(st.floats(-25.0, -3.0)),
    rates=ordered(st.floats(0.02, 1.0)),
    numbers=ordered(st.integers(1, 100)),
)
def test_calibrated_noise_is_monotone(epsilons, log_deltas, rates, numbers):
    def noise(epsilon, log_delta, rate, steps):
        return calibrate_noise_multiplier(
            epsilon, math.exp(log_delta), sampling_rate=rate, steps=steps
        )

    base = epsilons[0], log_deltas[0], rates[0], numbers[0]
    middle = noise(*base)
    most, least = middle * (1 + NEARLY), middle * (1 - NEARLY)
    assert noise(epsilons[1], *base[1:]) <= most
    assert noise(base[0], log_deltas[1], *base[2:]) <= most
    assert noise(*base[:2], rates[1], base[3]) >= least
    assert noise(*base[:3], numbers[1]) >= least


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
    ({"noise_multiplier": -1.0}, "noise_multiplier"),
    ({"noise_multiplier": math.nan}, "noise_multiplier"),
    ({"noise_multiplier": math.inf}, "noise_multiplier"),
    ({"noise_multiplier": "1"}, "noise_multiplier"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"delta": math.nan}, "delta"),
    ({"delta": None}, "delta"),
    ({"sampling_rate": 1.1}, "sampling_rate"),
    ({"sampling_rate": -0.1}, "sampling_rate"),
    ({"sampling_rate": math.nan}, "sampling_rate"),
    ({"steps": 0}, "steps"),
    ({"steps": 1.5}, "steps"),
    ({"steps": math.inf}, "steps"),
    ({"steps": math.nan}, "steps"),
    ({"neighbouring": "both"}, "neighbouring"),
]


@pytest.mark.parametrize("bad, name", BAD)
def test_bad_arguments_are_named(bad, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        epsilon_of(**{"noise_multiplier": 1.0, "delta": 1e-5} | bad)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, "1"])
def test_a_bad_epsilon_is_named(epsilon):
    with pytest.raises(ValueError, match="^epsilon must be"):
        delta_of(1.0, epsilon)
    with pytest.raises(ValueError, match="^epsilon must be"):
        calibrate_noise_multiplier(epsilon, 1e-5)


@pytest.mark.parametrize("noise_multiplier", [-1.0, 0.0, math.nan])
def test_a_bad_noise_multiplier_has_no_delta(noise_multiplier):
    with pytest.raises(ValueError, match="^noise_multiplier must be"):
        delta_of(noise_multiplier, 1.0)


def test_nothing_sampled_has_no_noise_to_calibrate():
    with pytest.raises(ValueError, match="^sampling_rate must be above 0"):
        calibrate_noise_multiplier(1.0, 1e-5, sampling_rate=0.0)


@pytest.mark.parametrize("delta", [1 - 1e-7, 1 - 2.0**-53, 1e-300, 5e-324])
def test_noise_is_calibrated_at_any_delta(delta):
    multiplier = calibrate_noise_multiplier(1.0, delta)
    assert epsilon_of(multiplier, delta) <= 1.0
    if 1e-290 < delta < 1 - 1e-15:
        assert epsilon_of(multiplier * (1 - 1e-6), delta) > 1.0


@pytest.mark.parametrize(
    "multiplier, rate, steps",
    [(1e-10, 0.1, 1), (1e300, 0.1, 1), (1.0, 1e-300, 1), (1e-200, 1.0, 1)],
)
def test_extreme_arguments_have_a_price(multiplier, rate, steps):
    price = epsilon_of(multiplier, 1e-5, sampling_rate=rate, steps=steps)
    whole = epsilon_of(max(multiplier, 1e-150), 1e-5, steps=steps)
    assert 0 <= price
    assert price <= whole or math.isinf(whole)
