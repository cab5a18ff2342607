"""Outputs of audits, and how they are collected."""

import math

import numpy as np
import pytest

from skdpot.privacy.audit import audit
from tests.oracles.releases import laplace

pytestmark = pytest.mark.experiment


def rare(leak, share=0.05):
    """Return a release of standard normal numbers that leaks in a share of its calls."""

    def release(data, random_state):
        rng = np.random.default_rng(random_state)
        number = rng.standard_normal()
        return leak(number) if data and rng.random() < share else number

    return release


def refuse(number):
    raise ArithmeticError(f"cannot release {number}")


@pytest.mark.parametrize(
    "leak",
    [
        refuse,
        lambda number: math.nan,
        lambda number: math.inf,
        lambda number: -math.inf,
        lambda number: None,
        lambda number: "none",
        lambda number: [number, number],
        lambda number: [[number]],
        lambda number: {"mean": number},
        lambda number: np.float32(number),
        lambda number: complex(number),
        lambda number: -0.0,
    ],
    ids=[
        *("error", "nan", "inf", "-inf", "None", "text", "longer", "deeper", "dict", "float32"),
        *("complex", "negative zero"),
    ],
)
def test_what_only_one_data_set_makes_a_release_do_is_found(leak, seed):
    options = {"n_trials": 4000, "random_state": seed}
    assert audit(rare(leak), True, False, **options).exceeds(1.5)
    assert not audit(rare(leak), True, True, **options).exceeds(0.5)


def test_non_finite_numbers_and_errors_are_found_beside_a_density_ratio(seed):
    def ratio(outputs):
        assert isinstance(outputs, np.ndarray)
        return outputs

    for leak in (refuse, lambda number: math.nan):
        options = {"n_trials": 4000, "random_state": seed}
        result = audit(rare(leak), True, False, log_density_ratio=ratio, **options)
        assert result.statistic.startswith("frequency")
        assert result.exceeds(2.0)


def test_sign_of_zero_is_an_output(seed):
    def release(data, n_trials, random_state):
        return np.full(n_trials, -0.0 if data else 0.0)

    result = audit(release, True, False, vectorized=True, random_state=seed)
    assert result.exceeds(7.0)
    assert not audit(release, True, True, vectorized=True, random_state=seed).exceeds(0.1)


def test_texts_are_outputs_whether_released_one_by_one_or_many_at_once(seed):
    def release(bit, n_trials, random_state):
        turned = np.random.default_rng(random_state).random(n_trials) < 0.1
        return np.where(bit ^ turned, "yes", "no")

    options = {"n_trials": 2000, "random_state": seed}
    many = audit(release, True, False, vectorized=True, **options)
    single = audit(
        lambda bit, random_state: str(release(bit, 1, random_state)[0]), True, False, **options
    )
    for result in (many, single):
        assert 1.5 < result.epsilon_lower < math.log(9)
        assert result.statistic == "frequency of atoms"


def test_errors_of_one_data_set_alone_need_no_density_ratio(seed):
    def release(data, random_state):
        return refuse(0.0) if data else 0.0

    result = audit(release, True, False, log_density_ratio=np.abs, n_trials=100, random_state=seed)
    assert result.counts in [(50, 0), (0, 50)]


def test_infinities_within_vectors_are_features(seed):
    def release(place, n_trials, random_state):
        numbers = np.random.default_rng(random_state).standard_normal((n_trials, 4))
        numbers[:, 3] = np.where(numbers[:, 3] > 2.0, np.inf, numbers[:, 3])
        numbers[: n_trials // 4, place] = np.nan
        return numbers

    result = audit(release, 0, 1, n_trials=2000, vectorized=True, random_state=seed)
    assert result.exceeds(3.0)


def test_outputs_of_many_kinds_and_lengths_are_classified(seed):
    def release(length, random_state):
        rng = np.random.default_rng(random_state)
        return rng.standard_normal(rng.integers(1, 4) + length).tolist()

    assert audit(release, 0, 1, n_trials=1000, random_state=seed).exceeds(2.0)


def test_texts_that_never_repeat_prove_nothing_and_break_nothing(seed):
    def release(data, random_state):
        return f"{data}{random_state}"

    assert audit(release, 0, 1, n_trials=400, random_state=seed).epsilon_lower == 0.0


def test_a_density_ratio_is_not_distracted_by_last_bits(seed):
    def ratio(outputs):
        # It is constant on either side of the two values, but for rounding.
        return abs(outputs - 1) - abs(outputs)

    options = {"vectorized": True, "log_density_ratio": ratio}
    bounds = [
        audit(laplace, 0.0, 1.0, random_state=int(trial_seed), **options).epsilon_lower
        for trial_seed in np.random.SeedSequence(seed).generate_state(20)
    ]
    assert 0.8 < np.mean(bounds) < max(bounds) < 1.0


@pytest.mark.parametrize("vectorized", [True, False])
def test_seeded_attacks_do_not_depend_on_the_workers(vectorized, seed):
    def release(value, n_trials=1, random_state=None):
        noise = np.random.default_rng(random_state).laplace(size=n_trials)
        return value + noise if vectorized else value + noise[0]

    def attack(random_state, n_jobs=None):
        options = {"vectorized": vectorized, "n_trials": 500, "n_jobs": n_jobs}
        return audit(release, 0.0, 4.0, random_state=random_state, **options)

    alone, helped, other = attack(seed), attack(seed, n_jobs=2), attack(seed + 1)
    assert alone == helped
    np.testing.assert_array_equal(alone.data_scores, helped.data_scores)
    assert not np.array_equal(alone.data_scores, other.data_scores)


def test_a_random_state_goes_on_and_no_random_state_means_no_keyword(seed):
    heard = []

    def release(data, n_trials, **keywords):
        heard.append(keywords)
        return np.zeros(n_trials)

    state = np.random.RandomState(seed)
    for random_state in (None, state, state):
        audit(release, 0, 1, n_trials=20, vectorized=True, random_state=random_state)
    calls = len(heard) // 3
    assert heard[:calls] == [{}] * calls
    seeds = [keywords["random_state"] for keywords in heard[calls:]]
    assert len(set(seeds)) == 2 * calls
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_every_release_is_asked_for_once():
    asked = []

    def release(data, n_trials):
        asked.append((data, n_trials))
        return np.zeros(n_trials)

    audit(release, "a", "b", n_trials=1003, vectorized=True)
    for data in "ab":
        assert sum(size for name, size in asked if name == data) == 1003


def test_progress_is_shown_on_request(capsys):
    for verbose in (0, 1):
        audit(lambda data: data, 0, 1, n_trials=20, verbose=verbose)
        assert ("releases: 100%" in capsys.readouterr().err) == bool(verbose)


def test_a_release_that_always_raises_is_an_error_that_says_why():
    with pytest.raises(RuntimeError, match="raised at every trial.*ArithmeticError: cannot rel"):
        audit(refuse, 0, 1, n_trials=20)
    with pytest.raises(RuntimeError, match="unexpected keyword argument 'random_state'"):
        audit(lambda data: data, 0, 1, n_trials=20, random_state=0)


def test_a_vectorized_release_that_raises_is_an_error():
    def release(data, n_trials):
        if data:
            raise ArithmeticError("too many")
        return np.zeros(n_trials)

    with pytest.raises(RuntimeError, match="ArithmeticError: too many.*vectorized=False"):
        audit(release, 0, 1, vectorized=True)


def test_outputs_that_are_not_as_many_as_asked_for_are_an_error():
    with pytest.raises(ValueError, match="must return 1 outputs with vectorized=True, got 7"):
        audit(lambda data, n_trials: np.zeros(7), 0, 1, n_trials=20, vectorized=True)
