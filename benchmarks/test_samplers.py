"""The samplers beside the programs that users would write with what there is.

Run with ``python -m pytest benchmarks -m benchmark -s -k samplers``. Nothing is asserted
about time. Peers go through the users one by one: with a root of scipy for each projection in
relative entropy, and with diffprivlib's exponential mechanism, in floating-point numbers.
"""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from benchmarks.contest import Contestant
from skdpot import ExponentialMechanismSampler, KLProjectionSampler
from skdpot.privacy import BudgetAccountant

pytestmark = [pytest.mark.benchmark, pytest.mark.quick]

EPSILON, N_PLACES = 1.0, 100


@pytest.fixture
def visits(contest):
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.full(N_PLACES, 0.1), contest.size(1000, 200))


def project_one(weights, base):
    """Return a user's projection in relative entropy; all places have weight."""

    def excess(logarithm):
        return np.clip(np.exp(logarithm) * weights, base, np.exp(EPSILON) * base).sum() - 1

    root = brentq(excess, -50, 700, xtol=1e-12)
    return np.clip(np.exp(root) * weights, base, np.exp(EPSILON) * base)


def test_projection_in_relative_entropy(visits, contest):
    sampler = KLProjectionSampler(EPSILON).fit(visits)
    base = np.full(N_PLACES, 1 / (np.exp(EPSILON) + N_PLACES - 1))

    def divergence(projections):
        terms = np.where(visits > 0, visits * np.log(visits / projections), 0)
        return terms.sum(axis=1).mean()

    best = divergence(sampler.project(visits))
    contest.compare(
        "KLProjectionSampler",
        f"project {len(visits)} users, {N_PLACES} places",
        Contestant("KLProjectionSampler.project", lambda: sampler.project(visits)),
        [
            Contestant(
                "scipy, brentq user by user",
                lambda: np.array([project_one(user, base) for user in visits]),
            )
        ],
        {"excess of the divergence": lambda found: divergence(found) / best - 1},
        tolerance=1e-9,
    )


def test_exponential_mechanism(visits, contest):
    assert BudgetAccountant is not None
    places = np.random.default_rng(0).random((N_PLACES, 2))
    cost = cdist(places, places)
    sampler = ExponentialMechanismSampler(EPSILON, input_points=places, output="index")
    sampler.fit(visits)

    def theirs():
        from diffprivlib.mechanisms import Exponential

        utilities = -visits @ sampler.cost_matrix_
        return [
            Exponential(
                epsilon=EPSILON, sensitivity=sampler.sensitivity_, utility=of.tolist()
            ).randomise()
            for of in utilities
        ]

    contest.compare(
        "ExponentialMechanismSampler",
        f"one private place of {len(visits)} users, {N_PLACES} places",
        Contestant("ExponentialMechanismSampler.transform", lambda: sampler.transform(visits)),
        [Contestant("diffprivlib, Exponential user by user", theirs, "diffprivlib")],
        {
            "mean cost of what is released": lambda found: np.mean(
                (visits @ cost)[np.arange(len(visits)), np.ravel(found).astype(int)]
            )
        },
        notes={"diffprivlib, Exponential user by user": "its probabilities are floating-point"},
    )
