"""Speed and tightness of the accounting against dp_accounting's, on one thread.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_accounting.py -m benchmark -s``:
prints times, and ratios of times measured in one run. Nothing is asserted about time. The peer is
dp_accounting's discretised privacy loss distribution at the widths of the grid that its users would
choose, and its calibration by bisection.
"""

import time

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of, plan_epsilon
from skdpot.privacy.events import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
)

pytestmark = pytest.mark.benchmark

DELTA = 1e-5
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


def timed(function):
    """Return what a function returns, and how long that takes, at best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        value = function()
        times.append(time.perf_counter() - start)
    return value, min(times)


@pytest.mark.parametrize("noise_multiplier, rate, steps", SETTINGS)
def test_price_of_steps(noise_multiplier, rate, steps):
    price, ours = timed(
        lambda: epsilon_of(noise_multiplier, DELTA, sampling_rate=rate, steps=steps)
    )
    print(
        f"\nmultiplier {noise_multiplier}, rate {rate}, {steps} steps: {price:.6f} in {ours:.2f} s"
    )
    for width in (1e-3, 1e-4):
        theirs, took = timed(lambda w=width: peer(w, steps_of(noise_multiplier, rate, steps)))
        print(
            f"    dp_accounting, grid {width:g}: {theirs / price - 1:+.2e} of the price, "
            f"{took / ours:.2f} times as long"
        )


@pytest.mark.parametrize("epsilon, rate, steps", [(1.0, 0.01, 2_000), (1.0, 0.01, 10_000)])
def test_calibration(epsilon, rate, steps):
    found, ours = timed(
        lambda: calibrate_noise_multiplier(epsilon, DELTA, sampling_rate=rate, steps=steps)
    )
    theirs, took = timed(
        lambda: dp_accounting.calibrate_dp_mechanism(
            PLDAccountant,
            lambda noise_multiplier: steps_of(noise_multiplier, rate, steps),
            epsilon,
            DELTA,
            tol=1e-4,
        )
    )
    print(
        f"\nepsilon {epsilon}, rate {rate}, {steps} steps: {found:.5f} in {ours:.2f} s; "
        f"dp_accounting {theirs:.5f}, {took / ours:.2f} times as long"
    )


def test_many_small_plans():
    start = time.perf_counter()
    for count in range(1, 201):
        plan_epsilon(SelfComposedDpEvent(PureDpEvent(0.1), count), 1e-6, neighbouring="replace_one")
    print(f"\n200 plans of pure releases: {time.perf_counter() - start:.2f} s")
