"""Every mechanism of the package under attack: no lower bound exceeds what is claimed.

All audits of this file together are wrong with a probability of at most 5 %.
"""

import math

import numpy as np
import pytest

from skdpot import (
    ExponentialMechanismSampler,
    KLProjectionSampler,
    SphericalProjectionSampler,
    WassersteinProjectionSampler,
)
from skdpot.privacy.audit import audit, exact_audit
from skdpot.privacy.choices import BoundedRatioMechanism
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism
from skdpot.privacy.random import make_source

pytestmark = pytest.mark.experiment

EPSILONS = [0.5, 1.0, 4.0]
DELTA = 1e-5
RING = np.exp(2j * np.pi * np.arange(6) / 6).view(np.float64).reshape(6, 2)


def discrete_sampler(kind):
    """Return how a user of a sampler is attacked whose whole distribution was replaced."""

    def attack(epsilon):
        sampler = kind(epsilon, input_points=RING).fit(np.eye(6))

        def release(user, n_trials, random_state):
            seeded = sampler.set_params(random_state=random_state)
            return seeded.sample(user[None], n_samples=n_trials)[0]

        return release, (np.eye(6)[0], np.eye(6)[3]), {}

    return attack


def spherical_sampler(method, learned=False):
    def attack(epsilon):
        x = np.array([0.6, 0.0, 0.8])
        sampler = SphericalProjectionSampler(epsilon, method=method).fit(x[None])

        def release(user, n_trials, random_state):
            seeded = sampler.set_params(random_state=random_state)
            return seeded.sample(user[None], n_samples=n_trials)[0]

        def ratio(outputs):
            inside = ((1 - outputs @ x) / 2 <= sampler.threshold_).astype(float)
            return inside - ((1 + outputs @ x) / 2 <= sampler.threshold_)

        options = {"log_density_ratio": None if learned else ratio, "n_trials": 4000}
        return release, (x, -x), options

    return attack


def noise_on_a_number(make):
    """Return how noise is attacked that is added to a number, by adding it to many at once."""

    def attack(epsilon):
        mechanism = make(epsilon, 3.0, n_coordinates=1000)

        def release(value, n_trials, random_state):
            return mechanism.release(np.full(n_trials, value), random_state)

        return release, (0.0, 3.0), {"delta": delta_of(mechanism)}

    return attack


def noise_on_a_vector(make, order):
    """Return how noise is attacked that is added to a vector as far from another as may be."""

    def attack(epsilon):
        mechanism = make(epsilon, 3.0, n_coordinates=5)

        def release(value, n_trials, random_state):
            source = make_source(random_state)
            return np.array([mechanism.release(value, source) for _ in range(n_trials)])

        far = np.full(5, 3.0 / 5 ** (1 / order))
        return release, (np.zeros(5), far), {"n_trials": 2000, "delta": delta_of(mechanism)}

    return attack


def gaussian(epsilon, sensitivity, **options):
    return GaussianMechanism(epsilon, DELTA, sensitivity, **options)


def delta_of(mechanism):
    return DELTA if isinstance(mechanism, GaussianMechanism) else 0.0


def bounded_ratio_at_the_bounds(epsilon):
    """Return the mechanism, and probabilities that are as different as it allows."""
    base = np.full(4, 1.0 / (math.exp(epsilon) + 3.0))
    inputs = np.where(np.eye(4)[:2] > 0, math.exp(epsilon) * base, base)
    return BoundedRatioMechanism(base, epsilon), inputs


def bounded_ratio(epsilon):
    mechanism, (data, neighbour) = bounded_ratio_at_the_bounds(epsilon)

    def release(probabilities, n_trials, random_state):
        weights = mechanism.integer_weights(probabilities[None])
        integers = make_source(random_state).bits(62, (1, n_trials))
        return mechanism.draw(weights, integers)[0]

    return release, (data, neighbour), {}


ATTACKS = {
    "Wasserstein projection": discrete_sampler(WassersteinProjectionSampler),
    "KL projection": discrete_sampler(KLProjectionSampler),
    "exponential mechanism sampler": discrete_sampler(ExponentialMechanismSampler),
    "sphere, rejection": spherical_sampler("rejection"),
    "sphere, rejection, learned": spherical_sampler("rejection", learned=True),
    "sphere, direct": spherical_sampler("direct"),
    "Laplace": noise_on_a_number(LaplaceMechanism),
    "Laplace, vector": noise_on_a_vector(LaplaceMechanism, order=1),
    "Gaussian": noise_on_a_number(gaussian),
    "Gaussian, vector": noise_on_a_vector(gaussian, order=2),
    "bounded ratio": bounded_ratio,
}
CONFIDENCE = 1 - 0.05 / (len(ATTACKS) * len(EPSILONS))
# Mechanisms whose worst event is likely, so that an audit that works comes near the claim.
TIGHT = {
    "Wasserstein projection",
    "KL projection",
    "sphere, rejection",
    "sphere, direct",
    "Laplace",
    "bounded ratio",
}


def bound(attack, epsilon, seed):
    release, pair, options = ATTACKS[attack](epsilon)
    options = {"n_trials": 20_000, "vectorized": True, "confidence": CONFIDENCE} | options
    return audit(release, *pair, random_state=seed, **options).epsilon_lower


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_refutes_the_claim(attack, epsilon, seed):
    found = bound(attack, epsilon, seed)
    assert found <= epsilon
    if attack in TIGHT:
        assert found > 0.6 * epsilon


@pytest.mark.parametrize("attack", sorted(TIGHT))
def test_the_same_attack_refutes_half_of_what_is_true(attack, seed):
    assert bound(attack, 2.0, seed) > 1.0


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_weights_that_are_drawn_from_keep_the_claim_exactly(epsilon):
    mechanism, inputs = bounded_ratio_at_the_bounds(epsilon)
    result = exact_audit(mechanism.integer_weights(inputs))
    assert not result.exceeds(epsilon)
    assert result.epsilon == pytest.approx(epsilon, rel=1e-12)
