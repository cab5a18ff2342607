"""The audit in one run: its tail bound by an independent computation, its validity, its power."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from skdpot.privacy.audit import OneRunAuditResult, one_run_audit
from skdpot.privacy.audit._one_run import _largest_refuted, probability_of_correct
from skdpot.privacy.random import make_source
from tests.oracles.privacy_profiles import gaussian_epsilon, gaussian_mu

pytestmark = pytest.mark.experiment

N_REPETITIONS = 200
DELTA = 1e-5


def noisy_sum(noise, rng, n_steps=1, largest=1.0, length=1.0):
    """Return a training run whose steps release noisy sums of canaries clipped to a norm.

    The canaries are orthogonal vectors of the given length; noise is relative to a norm of 1.
    """

    def train(included):
        shape = (n_steps, len(included))
        steps = min(length, largest) * included + noise * rng.standard_normal(shape)
        return steps.sum(axis=0)

    return train


def randomised_response(epsilon, rng):
    def train(included):
        return included ^ (rng.random(len(included)) < 1 / (1 + math.exp(epsilon)))

    return train


def refuted_share(make_train, claim, rng, **options):
    """Return in what share of audits a claim is refuted, and the mean bound."""
    bounds = np.array(
        [
            one_run_audit(
                make_train(), random_state=np.random.RandomState(rng.integers(2**32)), **options
            ).epsilon_lower
            for _ in range(N_REPETITIONS)
        ]
    )
    return (bounds > claim).mean(), bounds.mean()


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-4, 0.02])
@pytest.mark.parametrize("n_canaries, n_guesses", [(12, 12), (40, 15)])
def test_tail_bound_is_the_worst_over_all_laws_of_failures(epsilon, delta, n_canaries, n_guesses):
    accuracy = 1 / (1 + math.exp(-epsilon))
    failures = np.arange(n_canaries + 1)
    for n_correct in range(n_guesses + 1):
        values = binom.sf(n_correct - failures - 1, n_guesses, accuracy)
        worst = linprog(
            -values,
            A_ub=[failures],
            b_ub=[2 * n_canaries * delta],
            A_eq=[np.ones_like(values)],
            b_eq=[1.0],
        )
        bound = probability_of_correct(n_canaries, n_guesses, n_correct, epsilon, delta)
        # A law of failures may mix in some that help less, never more.
        assert bound >= -worst.fun - 1e-9
        if bound < 1 and delta * n_canaries < 0.1:
            assert bound == pytest.approx(-worst.fun, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("n_guesses", [None, 100])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_bound_holds_for_randomised_response_where_it_is_tight(epsilon, n_guesses, rng):
    share, mean = refuted_share(
        lambda: randomised_response(epsilon, rng),
        epsilon,
        rng,
        n_canaries=400,
        delta=0.0,
        n_guesses=n_guesses,
    )
    # Where the bound is tight the share may be just 5 %, and more of it by chance.
    assert share <= binom.isf(1e-3, N_REPETITIONS, 0.05) / N_REPETITIONS
    assert mean > 0.3 * epsilon


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("risk", [0.05, 0.3])
def test_randomised_response_is_refuted_exactly_as_rarely_as_promised(epsilon, risk):
    # All guesses are right independently, with the probability that epsilon allows.
    n_guesses = 60
    counts = np.arange(n_guesses + 1)
    chances = binom.pmf(counts, n_guesses, 1 / (1 + math.exp(-epsilon)))
    bounds = [_largest_refuted(n_guesses, n_guesses, count, 0.0, risk) for count in counts]
    refuted = chances[np.array(bounds) > epsilon].sum()
    assert 0.3 * risk < refuted <= risk


@pytest.mark.parametrize("n_steps", [1, 20])
def test_bound_holds_for_noisy_sums(n_steps, rng):
    noise = math.sqrt(n_steps) / 2.0
    claim = gaussian_epsilon(DELTA, 2.0)
    share, mean = refuted_share(
        lambda: noisy_sum(noise, rng, n_steps), claim, rng, n_canaries=500, delta=DELTA
    )
    assert share <= 0.05
    assert mean > 0.2 * claim


def test_bound_holds_where_everything_is_given_away_with_probability_delta(rng):
    delta = 0.04

    def make_train():
        gives_away = rng.random() < delta
        return lambda included: included * gives_away + 0.0

    # Nothing but delta leaks, so that the smallest claim is epsilon = 0.
    share, _ = refuted_share(make_train, 0.0, rng, n_canaries=5, delta=delta, confidence=0.5)
    assert share <= 0.5
    ignored, _ = refuted_share(make_train, 0.0, rng, n_canaries=30, delta=0.0, confidence=0.99)
    assert ignored > 0.01


BUGS = {
    "no noise": {"noise": 0.0},
    "noise of a tenth": {"noise": 0.1},
    "a clip dropped": {"noise": 1.0, "length": 10.0, "largest": math.inf},
    "one of a hundred steps accounted": {"noise": 1.0, "n_steps": 100},
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug, seed):
    options = {"noise": 1.0} | BUGS[bug]
    noise = options.pop("noise") / gaussian_mu(1.0, DELTA)
    caught = 0
    for trial_seed in np.random.SeedSequence(seed).generate_state(20):
        train = noisy_sum(noise, np.random.default_rng(trial_seed), **options)
        result = one_run_audit(train, 1000, delta=DELTA, random_state=int(trial_seed))
        caught += result.exceeds(1.0)
    assert caught >= 19


def test_right_guesses_are_counted_at_both_ends():
    included = make_source(3).bits(1, 8).astype(bool)
    assert 2 < included.sum() < 6
    scores = np.where(included, 1.0, -1.0) * np.arange(1, 9)
    options = {"delta": 0.0, "n_guesses": 4, "random_state": 3}
    result = one_run_audit(lambda given: scores, 8, **options)
    assert (result.n_canaries, result.n_guesses, result.n_correct) == (8, 4, 4)
    np.testing.assert_array_equal(result.included, included)
    np.testing.assert_array_equal(result.scores, scores)
    assert one_run_audit(lambda given: -scores, 8, **options).n_correct == 0
    infinite = np.where(included, np.inf, -np.inf)
    assert one_run_audit(lambda given: infinite, 8, **options).n_correct == 4


def test_bound_is_where_the_probability_reaches_the_risk():
    options = {"delta": 1e-4, "n_guesses": 100, "confidence": 0.9, "random_state": 0}
    result = one_run_audit(lambda included: included, 400, **options)
    assert result.n_correct == 100
    assert result.exceeds(3.0)
    reached = probability_of_correct(400, 100, 100, result.epsilon_lower, 1e-4)
    assert reached == pytest.approx(0.1, rel=1e-6)
    assert not result.exceeds(result.epsilon_lower)


def test_an_open_number_of_guesses_shares_the_risk():
    options = {"delta": 0.0, "random_state": 0}
    result = one_run_audit(lambda included: included, 300, **options)
    # 300, 150, 75, 37, 18 and 9 guesses were tried.
    guesses = result.n_guesses, result.n_correct
    reached = probability_of_correct(300, *guesses, result.epsilon_lower, 0.0)
    assert reached == pytest.approx(0.05 / 6, rel=1e-6)
    few = one_run_audit(lambda included: included, 3, **options)
    assert few.n_guesses == 3


def test_nothing_is_proven_by_constant_scores_or_by_one_canary():
    assert one_run_audit(np.zeros_like, 1000, delta=0.0, random_state=1).epsilon_lower == 0.0
    assert one_run_audit(lambda included: included, 1, delta=0.0).epsilon_lower == 0.0


def test_canaries_are_fresh_unless_seeded():
    def run(random_state=None):
        given = one_run_audit(np.array, 200, delta=0.0, random_state=random_state).included
        return given.tolist()

    assert run() != run()
    assert run(5) == run(5) != run(6)
    assert 60 < sum(run()) < 140


def test_training_cannot_change_what_was_included():
    def train(included):
        scores = included.astype(float)
        included[:] = False
        return scores

    assert one_run_audit(train, 100, delta=0.0, random_state=0).included.any()


def test_result_tells_what_was_counted():
    result = one_run_audit(np.array, 100, delta=1e-6, n_guesses=40, random_state=0)
    assert isinstance(result, OneRunAuditResult)
    for said in ("n_canaries=100", "n_guesses=40", "n_correct=40", "delta=1e-06"):
        assert said in repr(result)
    assert "scores" not in repr(result)


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"n_canaries": 0}, "n_canaries must"),
        ({"n_canaries": 10.0}, "n_canaries must"),
        ({"n_guesses": 0}, "n_guesses must"),
        ({"n_guesses": 101}, "n_guesses must"),
        ({"n_guesses": 2.0}, "n_guesses must"),
        ({"delta": 1.0}, "delta must"),
        ({"delta": math.nan}, "delta must"),
        ({"confidence": 1.0}, "confidence must"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_trained(bad, message):
    def train(included):
        pytest.fail("something was trained")

    with pytest.raises(ValueError, match=message):
        one_run_audit(train, **({"n_canaries": 100, "delta": 0.0} | bad))


@pytest.mark.parametrize(
    "scores", [np.zeros(9), np.zeros((10, 1)), np.full(10, np.nan)], ids=["few", "2d", "nan"]
)
def test_scores_that_are_not_one_number_per_canary_are_refused(scores):
    with pytest.raises(ValueError, match="train must return one number per canary"):
        one_run_audit(lambda included: scores, 10, delta=0.0)
