"""Speed of the mechanisms against diffprivlib's and OpenDP's, with cryptographic noise.

Run with ``python -m pytest benchmarks -m benchmark -s -k mechanisms``. Nothing is asserted
about time. diffprivlib's mechanisms release one number at a time, and what its `Laplace` and
`GaussianAnalytic` release is not private in its last bits; `Snapping` and `GaussianDiscrete`, and
OpenDP's measurements, are meant to be.
"""

import functools
import importlib

import numpy as np
import pytest

from benchmarks.contest import Contestant
from skdpot.privacy import BudgetAccountant
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism

pytestmark = pytest.mark.benchmark

N_VECTOR, N_QUICK = 100_000, 5_000
DELTA = 1e-5


def peers():
    """Import diffprivlib's mechanisms, after its accountant, which is imported with care."""
    assert BudgetAccountant is not None
    return importlib.import_module("diffprivlib.mechanisms")


@functools.cache
def opendp(kind, scale, n):
    """Return OpenDP's measurement of a vector."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    metric = dp.l1_distance if kind == "laplace" else dp.l2_distance
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n), metric(T=float)
    return getattr(dp.m, f"make_{kind}")(*space, scale=scale)


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


ROUNDED = "its last bits are not private"
NOTES = {"diffprivlib, Laplace": ROUNDED, "diffprivlib, GaussianAnalytic": ROUNDED}


def deviation(values):
    return np.std(np.asarray(values) - 1)


@pytest.mark.quick
@pytest.mark.parametrize("kind", ADDITIVE)
def test_additive(kind, contest):
    make, options = ADDITIVE[kind]
    n = contest.size(N_VECTOR, N_QUICK)
    values = np.ones(n)
    vector, given = make(n), values.tolist()
    scale = 1.0 if kind == "laplace" else vector.scale
    others = []
    for name, of in options.items():
        mechanism = getattr(peers(), name)(**of)
        others.append(
            Contestant(
                f"diffprivlib, {name}",
                lambda mechanism=mechanism: [mechanism.randomise(1) for _ in range(n)],
            )
        )
    others.append(
        Contestant("OpenDP, a vector at once", lambda: opendp(kind, scale, n)(given), "opendp")
    )
    contest.compare(
        "Exact noise",
        f"{kind.capitalize()} noise on {n:,} numbers",
        Contestant(f"{type(vector).__name__}.release", lambda: vector.release(values)),
        others,
        {"standard deviation": deviation},
        notes=NOTES,
        rounds=(2, 5),
    )
    single = make(1)
    contest.compare(
        "Exact noise",
        f"{kind.capitalize()} noise on one number",
        Contestant(f"{type(single).__name__}.release", lambda: single.release(1.0)),
        [
            *(
                Contestant(
                    f"diffprivlib, {name}",
                    functools.partial(getattr(peers(), name)(**of).randomise, 1),
                )
                for name, of in options.items()
            ),
            Contestant("OpenDP", lambda: opendp(kind, scale, 1)([1.0]), "opendp"),
        ],
        {},
        notes=NOTES,
        seconds=1.0,
    )
