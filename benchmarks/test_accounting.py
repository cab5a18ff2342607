"""Speed of the accounting against dp_accounting's, at the same price.

Run with ``python -m pytest benchmarks -m benchmark -s -k accounting``. Nothing is asserted
about time. The peer is dp_accounting's discretised privacy loss distribution, with the widest grid
whose price is within 1e-4 of ours, and its calibration by bisection.
"""

import time

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from benchmarks.contest import Contestant, coarsest
from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of, plan_epsilon
from skdpot.privacy.events import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
)

pytestmark = pytest.mark.benchmark

DELTA = 1e-5
TOLERANCE = 1e-4
WIDTHS = (1e-2, 1e-3, 1e-4, 1e-5)
SETTINGS = [
    (7.36, 0.01, 2_000),
    (1.84, 0.01, 2_000),
    (0.6, 0.01, 2_000),
    (1.0, 0.01, 10_000),
    (36.5, 0.05, 2_000),
    (1.0, 1e-4, 100_000),
]


def steps_of(noise_multiplier, rate, steps):
    return SelfComposedDpEvent(
        PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier)), steps
    )


def peer(width, event):
    accountant = PLDAccountant(value_discretization_interval=width)
    return accountant.compose(event).get_epsilon(DELTA)


def with_quick(settings, quick):
    """Return parameters of a test of which some are for the quick selection."""
    return [pytest.param(*one, marks=[pytest.mark.quick] * (one in quick)) for one in settings]


@pytest.mark.parametrize("noise_multiplier, rate, steps", with_quick(SETTINGS, SETTINGS[:1]))
def test_price_of_steps(noise_multiplier, rate, steps, contest):
    def ours():
        return epsilon_of(noise_multiplier, DELTA, sampling_rate=rate, steps=steps)

    price, event = ours(), steps_of(noise_multiplier, rate, steps)
    theirs = coarsest(
        WIDTHS, lambda width: peer(width, event), lambda found: found / price - 1, TOLERANCE
    )
    contest.compare(
        "Accounting",
        f"epsilon of {steps:,} steps at a rate of {rate:g}, noise multiplier {noise_multiplier:g}",
        Contestant("epsilon_of", ours),
        [Contestant("dp_accounting, PLDAccountant", theirs)],
        {"epsilon": float},
        tolerance=price * (1 + TOLERANCE),
    )


CALIBRATIONS = [(1.0, 0.01, 2_000), (1.0, 0.01, 10_000)]


@pytest.mark.parametrize("epsilon, rate, steps", with_quick(CALIBRATIONS, CALIBRATIONS[:1]))
def test_calibration(epsilon, rate, steps, contest):
    def ours():
        return calibrate_noise_multiplier(epsilon, DELTA, sampling_rate=rate, steps=steps)

    def theirs():
        return dp_accounting.calibrate_dp_mechanism(
            PLDAccountant,
            lambda noise_multiplier: steps_of(noise_multiplier, rate, steps),
            epsilon,
            DELTA,
            tol=1e-4,
        )

    contest.compare(
        "Accounting",
        f"noise multiplier for epsilon {epsilon:g}, {steps:,} steps at a rate of {rate:g}",
        Contestant("calibrate_noise_multiplier", ours),
        [Contestant("dp_accounting, calibrate_dp_mechanism", theirs)],
        {"noise multiplier": float},
        tolerance=ours() * (1 + 1e-3),
        rounds=(1, 5),
    )


def test_many_small_plans():
    start = time.perf_counter()
    for count in range(1, 201):
        plan_epsilon(SelfComposedDpEvent(PureDpEvent(0.1), count), 1e-6, neighbouring="replace_one")
    print(f"\n200 plans of pure releases: {time.perf_counter() - start:.2f} s")
