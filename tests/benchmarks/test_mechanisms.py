"""Speed of the mechanisms against diffprivlib's, on one thread.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_mechanisms.py -m benchmark -s``:
prints microseconds per number and ratios, all measured in one run, with cryptographic noise.
Nothing is asserted about time. diffprivlib's mechanisms release one number at a time, and what its
`Laplace` and `GaussianAnalytic` release is not private in its last bits; `Snapping` and
`GaussianDiscrete` are the ones that are meant to be.
"""

import importlib
import time

import numpy as np
import pytest

from skdpot.privacy import BudgetAccountant
from skdpot.privacy.mechanisms import (
    ExponentialMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    PermuteAndFlipMechanism,
)

pytestmark = pytest.mark.benchmark

N_SINGLE, N_VECTOR = 1000, 100_000
DELTA = 1e-5


def peers():
    """Import diffprivlib's mechanisms, after its accountant, which is imported with care."""
    assert BudgetAccountant is not None
    return importlib.import_module("diffprivlib.mechanisms")


def microseconds(function, n_calls):
    """Return the least time of a call in three rounds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(n_calls):
            function()
        times.append(time.perf_counter() - start)
    return min(times) / n_calls * 1e6


def report(title, ours, others):
    print(f"\n{title}: {ours:.2f} microseconds")
    for name, taken in others.items():
        print(f"  {name:20s} {taken:9.2f}, ratio {taken / ours:7.2f}")


ADDITIVE = {
    "laplace": (
        lambda n: LaplaceMechanism(1.0, 1.0, n_coordinates=n),
        {
            "Laplace": {"epsilon": 1.0, "sensitivity": 1.0},
            "Snapping": {"epsilon": 1.0, "sensitivity": 1.0, "lower": -100.0, "upper": 100.0},
        },
    ),
    "gaussian": (
        lambda n: GaussianMechanism(1.0, DELTA, 1.0, n_coordinates=n),
        {
            "GaussianAnalytic": {"epsilon": 1.0, "delta": DELTA, "sensitivity": 1.0},
            "GaussianDiscrete": {"epsilon": 1.0, "delta": DELTA, "sensitivity": 1},
        },
    ),
}


@pytest.mark.parametrize("kind", ADDITIVE)
def test_additive(kind, benchmark):
    make, options = ADDITIVE[kind]
    mechanisms = {name: getattr(peers(), name)(**given) for name, given in options.items()}
    others = {
        name: microseconds(lambda mechanism=mechanism: mechanism.randomise(1), N_SINGLE)
        for name, mechanism in mechanisms.items()
    }
    single, vector = make(1), make(N_VECTOR)
    report(f"{kind}, one number", microseconds(lambda: single.release(1.0), N_SINGLE), others)
    benchmark.pedantic(vector.release, args=(np.ones(N_VECTOR),), rounds=5)
    taken = benchmark.stats.stats.min / N_VECTOR * 1e6
    report(f"{kind}, per number of a vector of {N_VECTOR}", taken, others)


SELECTION = {
    "Exponential": ExponentialMechanism,
    "PermuteAndFlip": PermuteAndFlipMechanism,
}


@pytest.mark.parametrize("n_candidates", [3, 100, 10_000])
@pytest.mark.parametrize("name", SELECTION)
def test_selection(name, n_candidates, benchmark):
    """Where utilities are new at every draw, as they are; and many draws from the same."""
    peer = getattr(peers(), name)
    utilities = np.linspace(0.0, 5.0, n_candidates)
    given = utilities.tolist()
    n_calls = max(1000 // n_candidates, 3)
    once = microseconds(
        lambda: peer(epsilon=1.0, sensitivity=1.0, utility=given).randomise(), n_calls
    )
    made = peer(epsilon=1.0, sensitivity=1.0, utility=given)
    again = microseconds(made.randomise, n_calls)
    mechanism = SELECTION[name](1.0, 1.0)
    ours = microseconds(lambda: mechanism.select(utilities), n_calls)
    report(f"{name}, one of {n_candidates}", ours, {f"diffprivlib's {name}": once})
    n_draws = max(100_000 // n_candidates, 10)
    benchmark.pedantic(mechanism.select, args=(utilities,), kwargs={"size": n_draws}, rounds=3)
    taken = benchmark.stats.stats.min / n_draws * 1e6
    report(f"{name}, per draw of {n_draws}", taken, {f"diffprivlib's {name}": again})
