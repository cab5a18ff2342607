"""Prices of trainings, as the paper counts and as the proof allows: by independent computations."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from skdpot.published import published_epsilon, sound_epsilon

pytestmark = pytest.mark.experiment

DELTA = 1e-5
MNIST = {"batch_size": 50, "sampling_rate": 1 / 1200, "steps": 160_000}
FASHION = {"batch_size": 50, "sampling_rate": 1 / 1200, "steps": 280_000}


def renyi_by_binomials(alpha, noise, rate):
    """Return the divergence of a sampled Gaussian at an integer order, by its closed form."""
    k = np.arange(alpha + 1)
    logs = (
        gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)
        + (alpha - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1) / (2 * noise**2)
    )  # fmt: skip
    return logsumexp(logs) / (alpha - 1)


def delta_of_one_step(epsilon, noise, rate):
    """Return the larger delta of adding and of removing a record."""

    def tail(x, mean):
        return norm.sf((x - mean) / noise)

    # With the record, outputs are likelier by exp(epsilon) above a threshold.
    threshold = noise**2 * math.log((math.exp(epsilon) - 1 + rate) / rate) + 0.5
    removed = (
        (1 - rate) * tail(threshold, 0) + rate * tail(threshold, 1)
        - math.exp(epsilon) * tail(threshold, 0)
    )  # fmt: skip
    if math.exp(-epsilon) <= 1 - rate:
        return removed
    threshold = noise**2 * math.log((math.exp(-epsilon) - 1 + rate) / rate) + 0.5
    below = norm.cdf(threshold / noise)
    with_record = (1 - rate) * below + rate * norm.cdf((threshold - 1) / noise)
    return max(removed, below - math.exp(epsilon) * with_record)


def test_printed_settings():
    """The paper prints an epsilon of 10 for both."""
    assert published_epsilon(1.5, DELTA, **MNIST) == pytest.approx(10.0, abs=0.05)
    assert published_epsilon(1.9, DELTA, **FASHION) == pytest.approx(10.0, abs=0.05)
    assert sound_epsilon(1.5, DELTA, **MNIST) == pytest.approx(846, abs=1)
    assert sound_epsilon(1.9, DELTA, **FASHION) == pytest.approx(461, abs=1)


def test_one_step_exceeds_what_is_printed_for_all():
    one = MNIST | {"steps": 1}
    assert published_epsilon(1.5, DELTA, **one) < 1.0
    assert sound_epsilon(1.5, DELTA, **one) > 10.0


@pytest.mark.parametrize("settings, noise", [(MNIST, 1.5), (FASHION, 1.9), (MNIST, 4.0)])
def test_published_epsilon_is_that_of_as_many_queries_as_points(settings, noise):
    """At integer orders, of which the best is no worse than the best of all by much."""
    n_queries = settings["batch_size"] * settings["steps"]
    by_orders = [
        n_queries * renyi_by_binomials(alpha, noise, settings["sampling_rate"])
        + math.log(1 / DELTA) / (alpha - 1)
        for alpha in range(2, 65)
    ]
    found = published_epsilon(noise, DELTA, **settings)
    assert found <= min(by_orders) * (1 + 1e-9)
    assert found > 0.9 * min(by_orders)


def test_published_epsilon_takes_points_for_steps():
    options = {"sampling_rate": 0.01}
    one = published_epsilon(2.0, DELTA, batch_size=50, steps=30, **options)
    other = published_epsilon(2.0, DELTA, batch_size=1, steps=1500, **options)
    assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("noise, rate", [(1.5, 1 / 1200), (1.5, 0.05), (8.0, 0.3), (4.0, 1e-3)])
def test_sound_epsilon_of_a_step_is_that_of_a_mixture_of_two_normal_laws(noise, rate):
    multiplier = noise / math.sqrt(50)
    found = sound_epsilon(noise, DELTA, batch_size=50, sampling_rate=rate, steps=1)
    exact = brentq(lambda e: delta_of_one_step(e, multiplier, rate) - DELTA, 1e-9, 600.0)
    assert exact <= found * (1 + 1e-9)
    assert found == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("steps", [1, 100])
def test_accountings_agree_on_one_point_but_for_their_looseness(steps):
    options = {"batch_size": 1, "sampling_rate": 0.01, "steps": steps}
    sound = sound_epsilon(2.0, DELTA, **options)
    assert sound <= published_epsilon(2.0, DELTA, **options)


def test_more_points_steps_and_records_cost_more_and_more_noise_costs_less():
    options = {"batch_size": 4, "sampling_rate": 0.02, "steps": 50}
    for price in (published_epsilon, sound_epsilon):
        base = price(2.0, DELTA, **options)
        for name in options:
            assert price(2.0, DELTA, **(options | {name: 2 * options[name]})) > base
        assert price(4.0, DELTA, **options) < base
        assert price(2.0, 10 * DELTA, **options) < base


@pytest.mark.parametrize("price", [published_epsilon, sound_epsilon])
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"noise_scale": 0.0}, "noise_(scale|multiplier) .* must be|noise_scale must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": 2.0}, "delta must be above 0 and below 1"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"sampling_rate": 2.0}, "must be from 0 to 1"),
        ({"steps": 0}, "steps must be a"),
    ],
)
def test_arguments_out_of_range_are_refused(price, changes, message):
    arguments = {"noise_scale": 1.5, "delta": DELTA} | MNIST
    with pytest.raises(ValueError, match=message):
        price(**arguments | changes)
