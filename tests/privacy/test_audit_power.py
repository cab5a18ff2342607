"""Planted bugs: the audit refutes the claim in at least 19 of 20 attempts, and the sound one never.

Every claim is the epsilon that the release would have without the bug, at its delta.
"""

import math
from functools import cache

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from skdpot.privacy.audit import audit
from tests.oracles.privacy_profiles import gaussian_epsilon, gaussian_mu

pytestmark = pytest.mark.experiment

N_ATTEMPTS = 20
DELTA = 1e-5
# The standard deviation of Gaussian noise that makes a sensitivity of 1 (1, DELTA)-private.
GAUSSIAN_SCALE = 1.0 / gaussian_mu(1.0, DELTA)
RECORDS = np.random.default_rng(0).uniform(-0.2, 0.2, size=(10, 8))


def attempts(seed, release, data, neighbour, claim, **options):
    """Return in how many attempts with seeds of their own a claim was refuted."""
    refuted = 0
    for trial_seed in np.random.SeedSequence(seed).generate_state(N_ATTEMPTS):
        result = audit(release, data, neighbour, random_state=int(trial_seed), **options)
        refuted += result.exceeds(claim)
    return refuted


def replaced(record):
    """Return the records with another first one."""
    return np.vstack([record, RECORDS[1:]])


def clipped_sum(records, largest=1.0):
    """Return the sum of records, each shortened to a norm of at most `largest`."""
    norms = np.linalg.norm(records, axis=1, keepdims=True)
    return (records * np.minimum(1.0, largest / norms)).sum(axis=0)


def check(seed, sound, buggy, pair, claim, **options):
    options = {"vectorized": True} | options
    assert attempts(seed, buggy, *pair, claim, **options) >= 19
    assert attempts(seed, sound, *pair, claim, **options) <= 1


def test_laplace_noise_halved(seed):
    # A count: sensitivity 1, epsilon 1.
    def release_at(scale):
        def release(count, n_trials, random_state):
            noise = np.random.default_rng(random_state).laplace(scale=scale, size=n_trials)
            return np.round(count + noise, 6)

        return release

    check(seed, release_at(1.0), release_at(0.5), (41.0, 42.0), claim=1.0)


def test_gaussian_noise_halved(seed):
    # A count: sensitivity 1, (1, 1e-5); with half of the noise epsilon is 2.15.
    def release_at(scale):
        def release(count, n_trials, random_state):
            return count + scale * np.random.default_rng(random_state).standard_normal(n_trials)

        return release

    check(
        seed,
        release_at(GAUSSIAN_SCALE),
        release_at(GAUSSIAN_SCALE / 2),
        (41.0, 42.0),
        claim=1.0,
        delta=DELTA,
        n_trials=200_000,
        log_density_ratio=lambda outputs: -outputs,
    )


def test_sensitivity_off_by_the_root_of_the_number_of_queries(seed):
    # One record moves each of 25 averages by 1, that is all of them by 5; (1, 1e-5) is claimed.
    n_queries = 25

    def release_for(sensitivity):
        def release(values, n_trials, random_state):
            rng = np.random.default_rng(random_state)
            noise = rng.standard_normal((n_trials, n_queries))
            return values + sensitivity * GAUSSIAN_SCALE * noise

        return release

    pair = np.zeros(n_queries), np.ones(n_queries)
    options = {"delta": DELTA, "n_trials": 4000}
    check(seed, release_for(math.sqrt(n_queries)), release_for(1.0), pair, claim=1.0, **options)


def test_a_clip_dropped(seed):
    # Records are clipped to norm 1, so that replacing one moves the sum by 2: (1, 1e-5).
    def release_of(total):
        def release(records, n_trials, random_state):
            noise = np.random.default_rng(random_state).standard_normal((n_trials, 8))
            return total(records) + 2.0 * GAUSSIAN_SCALE * noise

        return release

    pair = replaced(np.full(8, 8.0)), replaced(np.full(8, -8.0))
    unclipped = release_of(lambda records: records.sum(axis=0))
    options = {"delta": DELTA, "n_trials": 4000}
    check(seed, release_of(clipped_sum), unclipped, pair, claim=1.0, **options)


def test_a_seed_reused(seed):
    # Laplace noise for epsilon 1, which a generator made anew gives at every call.
    def reusing(count, n_trials, random_state):
        return np.array([count + np.random.default_rng(7).laplace() for _ in range(n_trials)])

    def sound(count, n_trials, random_state):
        return np.round(count + np.random.default_rng(random_state).laplace(size=n_trials), 6)

    check(seed, sound, reusing, (41.0, 42.0), claim=1.0, n_trials=2000)


N_ROWS, RATE, ROW_SCALE = 100, 0.1, 2.0


@cache
def claimed_for_independent_rows():
    """Return the epsilon of N_ROWS queries, each of a Poisson sample of its own."""
    query = privacy_loss_distribution.from_gaussian_mechanism(ROW_SCALE, sampling_prob=RATE)
    return query.self_compose(N_ROWS).get_epsilon_for_delta(DELTA)


def test_rows_of_one_subsampled_step_accounted_as_queries_of_independent_samples(seed):
    # A record, present in `data` alone, is sampled with probability RATE and moves every one of
    # the rows by 1, with noise of ROW_SCALE on each.
    def release_with(draw):
        def release(record, n_trials, random_state):
            rng = np.random.default_rng(random_state)
            rows = ROW_SCALE * rng.standard_normal((n_trials, N_ROWS))
            return rows + record * draw(rng, n_trials)

        return release

    def shared(rng, n_trials):
        return (rng.random((n_trials, 1)) < RATE).astype(float)

    def independent(rng, n_trials):
        return (rng.random((n_trials, N_ROWS)) < RATE).astype(float)

    claim = claimed_for_independent_rows()
    assert 2.0 < claim < 3.0
    options = {"delta": DELTA, "n_trials": 4000, "log_density_ratio": lambda rows: rows.sum(axis=1)}
    check(seed, release_with(independent), release_with(shared), (1.0, 0.0), claim, **options)


def test_bugs_are_what_they_are_said_to_be():
    assert gaussian_epsilon(DELTA, 1.0 / GAUSSIAN_SCALE) == pytest.approx(1.0)
    assert gaussian_epsilon(DELTA, 2.0 / GAUSSIAN_SCALE) == pytest.approx(2.15, abs=0.01)
    assert np.linalg.norm(RECORDS, axis=1).max() < 1.0
    moved = clipped_sum(replaced(np.full(8, 8.0))) - clipped_sum(replaced(np.full(8, -8.0)))
    assert np.linalg.norm(moved) == pytest.approx(2.0)
