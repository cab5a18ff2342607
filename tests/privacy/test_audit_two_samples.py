"""The audit by trials: its bound holds, its attacks are good, its parameters are checked."""

import math
import re

import numpy as np
import pytest
from scipy.stats import binom

from skdpot.privacy.audit import (
    AuditResult,
    Event,
    audit,
    choose_event,
    epsilon_from_counts,
    lower_rate,
    upper_rate,
)
from tests.oracles.privacy_profiles import gaussian_epsilon
from tests.oracles.releases import gaussian, gaussian_vector, laplace, randomised_response

pytestmark = pytest.mark.experiment

N_REPETITIONS = 300


KNOWN = {
    "randomised response": (randomised_response, (True, False), 0.0, math.log(3), None),
    "Laplace": (laplace, (0.0, 1.0), 0.0, 1.0, lambda outputs: -outputs),
    "Gaussian, delta 0.01": (
        gaussian,
        (0.0, 1.0),
        0.01,
        gaussian_epsilon(0.01, 1.0),
        lambda outputs: -outputs,
    ),
    "Gaussian, delta 1e-5": (
        gaussian,
        (1.0, 0.0),
        1e-5,
        gaussian_epsilon(1e-5, 1.0),
        lambda outputs: outputs,
    ),
}


@pytest.mark.parametrize("known", KNOWN)
def test_bound_is_above_the_known_epsilon_as_rarely_as_promised(known, seed):
    release, pair, delta, epsilon, ratio = KNOWN[known]
    seeds = np.random.SeedSequence(seed).generate_state(N_REPETITIONS)
    bounds = np.array(
        [
            audit(
                release,
                *pair,
                delta=delta,
                n_trials=2000,
                vectorized=True,
                log_density_ratio=ratio,
                random_state=int(trial_seed),
            ).epsilon_lower
            for trial_seed in seeds
        ]
    )
    assert (bounds > epsilon).mean() <= 0.05
    assert bounds.mean() > 0.3 * epsilon


@pytest.mark.parametrize("n_trials", [1, 7, 50])
@pytest.mark.parametrize("risk", [0.3, 0.025, 1e-4])
def test_bounds_of_rates_miss_no_more_often_than_their_risk(n_trials, risk):
    counts = np.arange(n_trials + 1)
    for rate in np.linspace(0.001, 0.999, 331):
        chances = binom.pmf(counts, n_trials, rate)
        assert chances[lower_rate(counts, n_trials, risk) > rate].sum() <= risk * (1 + 1e-9)
        assert chances[upper_rate(counts, n_trials, risk) < rate].sum() <= risk * (1 + 1e-9)


def test_bounds_of_rates_at_the_ends():
    assert lower_rate(0, 10, 0.1) == 0.0
    assert upper_rate(10, 10, 0.1) == 1.0
    assert lower_rate(10, 10, 0.1) == pytest.approx(0.1 ** (1 / 10))
    assert upper_rate(0, 10, 0.1) == pytest.approx(1 - 0.1 ** (1 / 10))


def test_bound_of_epsilon_follows_from_the_definition():
    low, high = lower_rate(60, 100, 0.025), upper_rate(5, 100, 0.025)
    assert epsilon_from_counts(60, 5, 100, 0.2, 0.95) == pytest.approx(math.log((low - 0.2) / high))
    assert epsilon_from_counts(60, 5, 100, low + 1e-12, 0.95) == -math.inf
    assert epsilon_from_counts(0, 5, 100, 0.0, 0.95) == -math.inf


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("data_first", [True, False])
def test_event_is_found_in_either_tail_of_either_data_set(sign, data_first, rng):
    # One of the two has a heavy tail; elsewhere their laws are much the same.
    plain, heavy = rng.standard_normal(2000), rng.standard_normal(2000)
    heavy[:100] += 8.0
    pair = (sign * heavy, sign * plain) if data_first else (sign * plain, sign * heavy)
    event, bound = choose_event(*pair, 0.0, 0.95)
    assert event.tail == ("upper" if sign > 0 else "lower")
    assert event.likelier_on == ("data" if data_first else "neighbour")
    assert 3.0 < abs(event.threshold) < 7.0
    assert bound > 1.5
    counts = event.count(pair[0]), event.count(pair[1])
    assert max(counts) > 90 and min(counts) < 3


def test_event_includes_its_threshold():
    scores = np.array([1.0, 2.0, 2.0, 3.0, -np.inf, np.inf])
    assert Event(2.0, "upper", "data").count(scores) == 4
    assert Event(2.0, "lower", "data").count(scores) == 4
    assert Event(np.inf, "upper", "data").count(scores) == 1


def test_no_classifier_finds_a_difference_where_there_is_none(seed):
    seeds = np.random.SeedSequence(seed).generate_state(20)
    for trial_seed in seeds:
        result = audit(
            gaussian_vector,
            np.zeros(3),
            np.zeros(3),
            vectorized=True,
            n_trials=1000,
            random_state=int(trial_seed),
        )
        assert result.epsilon_lower < 0.3


def test_trials_that_chose_are_not_counted():
    shown = []

    def ratio(outputs):
        shown.append(outputs)
        return outputs

    options = {"n_trials": 101, "vectorized": True, "random_state": 0}
    result = audit(laplace, 0.0, 1.0, log_density_ratio=ratio, **options)
    assert result.n_trials == 101
    assert result.n_held_out == 51
    assert [len(part) for part in shown] == [50, 50, 51, 51]
    assert len(np.unique(np.concatenate(shown))) == 202
    np.testing.assert_array_equal(result.data_scores, np.round(shown[2], 9))
    np.testing.assert_array_equal(result.neighbour_scores, np.round(shown[3], 9))


def test_disjoint_outputs_prove_what_the_number_of_trials_can():
    result = audit(lambda data: data, "yes", "no", n_trials=1000)
    rate = 0.025 ** (1 / 500)
    assert result.counts in [(500, 0), (0, 500)]
    assert result.epsilon_lower == pytest.approx(math.log(rate / (1 - rate)))


def test_equal_outputs_prove_nothing():
    result = audit(lambda data: 0.0, "yes", "no", n_trials=1000)
    assert result.epsilon_lower == 0.0
    assert not result.exceeds(0.0)


def test_repeating_outputs_are_counted_and_others_are_classified(seed):
    options = {"n_trials": 2000, "vectorized": True, "random_state": seed}
    assert audit(randomised_response, 1, 0, **options).statistic == "frequency of atoms"
    assert audit(gaussian, 0.0, 3.0, **options).statistic in (
        "value",
        *(f"classifier ({kind})" for kind in ("linear", "quadratic", "trees")),
    )


@pytest.mark.parametrize("n_features", [1, 5, 30, 100])
def test_classifiers_come_near_the_likelihood_ratio(n_features, seed):
    shift = np.full(n_features, 3.0 / math.sqrt(n_features))
    options = {"delta": 1e-5, "vectorized": True, "n_trials": 10_000, "random_state": seed}
    learned = audit(gaussian_vector, np.zeros(n_features), shift, **options)
    known = audit(
        gaussian_vector,
        np.zeros(n_features),
        shift,
        log_density_ratio=lambda outputs: -outputs @ shift,
        **options,
    )
    assert learned.epsilon_lower > known.epsilon_lower - 1.2
    assert known.epsilon_lower < gaussian_epsilon(1e-5, 3.0)


def test_differences_that_are_not_linear_are_learned(seed):
    def wider(scale, n_trials, random_state):
        return scale * gaussian_vector(np.zeros(3), n_trials, random_state)

    def crossed(sign, n_trials, random_state):
        numbers = gaussian_vector(np.zeros(20), n_trials, random_state)
        numbers[:, 0] = sign * np.abs(numbers[:, 0]) * np.sign(numbers[:, 1])
        return numbers

    for release, pair in [(wider, (1.0, 3.0)), (crossed, (1.0, -1.0))]:
        assert audit(release, *pair, vectorized=True, random_state=seed).exceeds(2.0)


def test_a_ratio_per_output_is_asked_for():
    message = re.escape("must return 10 numbers, one per output, got (10, 1)")
    with pytest.raises(ValueError, match=message):
        audit(lambda data: 0.0, 0, 1, n_trials=20, log_density_ratio=lambda out: out[:, None])


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"delta": -0.1}, "delta must"),
        ({"delta": 1.0}, "delta must"),
        ({"delta": math.nan}, "delta must"),
        ({"delta": "0"}, "delta must"),
        ({"confidence": 0.0}, "confidence must"),
        ({"confidence": 1.0}, "confidence must"),
        ({"confidence": math.nan}, "confidence must"),
        ({"n_trials": 19}, "n_trials must"),
        ({"n_trials": 100.0}, "n_trials must"),
        ({"random_state": -1}, "random_state must"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_released(bad, message):
    def release(data, **keywords):
        pytest.fail("something was released")

    with pytest.raises(ValueError, match=message):
        audit(release, 0, 1, **bad)


def test_what_cannot_be_called_is_no_release():
    with pytest.raises(TypeError, match="release must be callable, got float"):
        audit(1.0, 0, 1)


def test_result_tells_what_was_counted():
    result = audit(randomised_response, True, False, vectorized=True, random_state=0)
    assert isinstance(result, AuditResult)
    hits, false_hits = sorted(result.counts, reverse=True)
    assert result.rate_bounds == (
        lower_rate(hits, 5000, 0.025),
        upper_rate(false_hits, 5000, 0.025),
    )
    low, high = result.rate_bounds
    assert result.epsilon_lower == pytest.approx(math.log(low / high))
    assert result.exceeds(result.epsilon_lower - 1e-9)
    assert not result.exceeds(result.epsilon_lower)
    for said in ("epsilon_lower=1.0", "delta=0.0", "confidence=0.95", f"counts={result.counts}"):
        assert said in repr(result)
    assert "scores" not in repr(result)


def test_trade_off_contains_the_event_and_all_others():
    result = audit(laplace, 0.0, 2.0, n_trials=200, vectorized=True, random_state=3)
    false_positives, false_negatives = result.trade_off()
    assert (false_positives[0], false_negatives[0]) == (1.0, 0.0)
    assert (false_positives[-1], false_negatives[-1]) == (0.0, 1.0)
    assert (np.diff(false_positives) <= 0).all() and (np.diff(false_negatives) >= 0).all()
    hits, false_hits = result.counts if result.likelier_on == "data" else result.counts[::-1]
    points = set(zip(np.round(false_positives, 9), np.round(false_negatives, 9), strict=True))
    assert (round(false_hits / 100, 9), round(1 - hits / 100, 9)) in points
