"""The training of a generator under attack: no lower bound exceeds what is claimed.

The attacks see every vector that a training releases, and know the network, the records that may
be there, and how often they are sampled. All audits of this file together are wrong with a
probability of at most 5 %.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch

from skdpot.generative._torch import steps
from skdpot.generative._torch.steps import NoisyRelease
from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.audit import audit
from skdpot.privacy.noise import GaussianMechanism, poisson_sample
from skdpot.privacy.random import make_source
from skdpot.published import published_epsilon, sound_epsilon
from tests.oracles.generator_steps import WAYS, batch_of, make_step

pytestmark = pytest.mark.experiment

EPSILONS = [0.5, 1.0, 4.0, 8.0]
# Of attacks on a single step: as large as it takes for attacks on normal noise to succeed.
DELTA = 0.1
# Of attacks on a training.
SMALL_DELTA = 1e-5
# Of each kind of steps at each epsilon, on a training with all records and one with samples, and on
# a single step; and what is planted.
AUDITS = 3 * len(WAYS) * len(EPSILONS) + 20
CONFIDENCE = 1 - 0.05 / AUDITS

by_way = pytest.mark.parametrize("way", WAYS)
by_epsilon = pytest.mark.parametrize("epsilon", EPSILONS)


# Single steps, as often as it takes
# ----------------------------------

NEAR, FAR = [-1.0, -1.0], [1.0, 1.0]
STEP = {"batch_size": 3, "n_features": 2, "centre": -0.9, "spread": 0.0}
N_TRIALS = 30_000


def values_of(way, records, **options):
    """Return what one step of a training hands to its noise, and the declared sensitivity."""
    clip_norm = 0.05 if way == "per record" else 1e-3
    step, vector, recorder = make_step(way, **({"clip_norm": clip_norm} | STEP | options))
    step.backpropagate(batch_of(np.reshape(records, (-1, 2))))
    return recorder.vectors[0].numpy(), vector.sensitivity


def bound_of_step(values, multiplier, declared, delta, seed, rate=1.0):
    """Return the lower bound on epsilon of a step with one record more, sampled at a rate.

    The first values are those of a sample with that record.
    """
    shift = values[0] - values[1]
    mechanism = GaussianMechanism.from_noise_multiplier(
        multiplier, declared, n_coordinates=N_TRIALS * len(shift)
    )

    def draw(has_record, n_trials, random_state):
        source = make_source(random_state)
        centres = np.tile(values[1], (n_trials, 1))
        if has_record:
            centres[poisson_sample(source, n_trials, rate)] = values[0]
        release = NoisyRelease(mechanism, source, torch.device("cpu"), secure=False)
        return release([torch.as_tensor(centres)])[0].numpy()

    def ratio(outputs):
        # For any rate, it increases with this.
        return (outputs - values[1]) @ (shift / np.linalg.norm(shift)) / mechanism.scale

    return audit(
        draw, True, False, delta=delta, n_trials=N_TRIALS, confidence=CONFIDENCE,
        vectorized=True, random_state=seed, log_density_ratio=ratio,
    ).epsilon_lower  # fmt: skip


def multiplier_of(epsilon):
    """Return the noise of a training of one step, as the estimator plans it."""
    return calibrate_noise_multiplier(epsilon, DELTA)


@by_way
@by_epsilon
def test_no_attack_on_a_step_refutes_the_claim(way, epsilon, seed):
    """On neighbours that are as far apart as can be."""
    pair = [values_of(way, records) for records in ([NEAR, FAR], [NEAR])]
    found = bound_of_step(
        [values for values, _ in pair], multiplier_of(epsilon), pair[0][1], DELTA, seed
    )
    assert found <= epsilon
    # With so many trials no more than 7 can be proven.
    assert found > 0.3 * min(epsilon, 7.0)


@by_way
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_half_of_the_noise_is_noticed(way, epsilon, seed):
    pair = [values_of(way, records) for records in ([NEAR, FAR], [NEAR])]
    found = bound_of_step(
        [values for values, _ in pair], multiplier_of(epsilon) / 2, pair[0][1], DELTA, seed
    )
    assert found > epsilon


@by_way
def test_a_dropped_clip_is_noticed_in_a_step(way, seed):
    """Values are those of steps without one, and the noise is for steps with one."""
    pair = [values_of(way, records) for records in ([NEAR, FAR], [NEAR])]
    free = [values_of(way, records, clip_norm=1.0)[0] for records in ([NEAR, FAR], [NEAR])]
    found = bound_of_step(free, multiplier_of(1.0), pair[0][1], DELTA, seed)
    assert found > 1.0


@pytest.mark.parametrize("batch_size, noise_scale, rate", [(50, 1.5, 0.05), (100, 1.0, 0.01)])
def test_accounting_for_points_one_by_one_claims_too_little(batch_size, noise_scale, rate, seed):
    """A record turns the gradients of all points; the others of its sample are near the points.

    How many these are does not matter, as gradients are clipped. The loss is not looked at.
    """
    others = [NEAR] * 5
    options = {"batch_size": batch_size, "centre": -0.99, "clip_norm": 1e-6}
    pair = [values_of("per image", records, **options) for records in ([FAR, *others], others)]
    values = [values[:-1] for values, _ in pair]
    printed = {"batch_size": batch_size, "sampling_rate": rate, "steps": 1}
    claim = published_epsilon(noise_scale, SMALL_DELTA, **printed)
    multiplier = noise_scale / math.sqrt(batch_size)
    found = bound_of_step(values, multiplier, pair[0][1], SMALL_DELTA, seed, rate)
    assert 1.5 * claim < found <= sound_epsilon(noise_scale, SMALL_DELTA, **printed)


# What the shape of a release tells
# ---------------------------------


@pytest.mark.parametrize("planted", [False, True])
def test_as_many_generated_points_as_records_are_noticed(planted, seed, monkeypatch):
    """Then the length of a release is the size of a sample."""
    if planted:
        honest = steps.PointStep.backpropagate

        def follows_the_sample(step, batch):
            size = max(1, len(batch.points))
            step._settings = dataclasses.replace(step._settings, batch_size=size)
            return honest(step, batch)

        monkeypatch.setattr(steps.PointStep, "backpropagate", follows_the_sample)
    multiplier = multiplier_of(0.5)

    def release(records, random_state):
        source = make_source(random_state)
        step, vector, recorder = make_step("per image", batch_size=4, reg=5.0)
        sampled = poisson_sample(source, len(records), 0.95)
        step.backpropagate(batch_of(np.reshape(records, (-1, 2))[sampled]))
        mechanism = GaussianMechanism.from_noise_multiplier(
            multiplier, vector.sensitivity, n_coordinates=1000
        )
        return mechanism.release(recorder.vectors[0].numpy(), source)

    result = audit(
        release, [NEAR] * 3, [NEAR] * 2, delta=DELTA, n_trials=200, confidence=CONFIDENCE,
        random_state=seed,
    )  # fmt: skip
    assert result.exceeds(0.5) == planted
