"""The audit: its bounds hold, its attacks are good, and it refutes claims that are wrong."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import binom

from skdpot import ExponentialMechanismSampler, KLProjectionSampler, WassersteinProjectionSampler
from skdpot.privacy.audit import (
    AuditResult,
    audit,
    choose_event,
    epsilon_from_counts,
    exact_audit,
    lower_rate,
    upper_rate,
)
from skdpot.privacy.choices import TOTAL_WEIGHT, BoundedRatioMechanism, scaled_exp
from tests.oracles.privacy_profiles import gaussian_epsilon, gaussian_mu
from tests.oracles.releases import gaussian, gaussian_vector, laplace, randomised_response

pytestmark = [pytest.mark.experiment, pytest.mark.filterwarnings("ignore:data and neighbour")]

PROJECTIONS = [WassersteinProjectionSampler, KLProjectionSampler]
SAMPLERS = [*PROJECTIONS, ExponentialMechanismSampler]
EPSILONS = [0.5, 1.0, 4.0]
N_POINTS = 7
ONE_PERCENT = math.log(1.01)


def fitted(kind, epsilon, rng, **parameters):
    """Return a sampler over random points of the plane."""
    points = rng.random((N_POINTS, 2))
    return kind(epsilon, input_points=points, **parameters).fit(np.eye(N_POINTS))


def diracs_and_random(rng, n_random=100):
    """Return all Diracs, the uniform distribution, and others from next to Diracs to flat."""
    concentrations = rng.choice([0.02, 0.1, 1.0, 10.0], size=(n_random, 1))
    random = rng.gamma(concentrations, size=(n_random, N_POINTS)) + 1e-30
    steep = 10.0 ** -np.linspace(0, 320, N_POINTS)
    return np.vstack([np.eye(N_POINTS), np.ones(N_POINTS), random, steep, steep[::-1]])


@pytest.fixture
def weights_behind(monkeypatch):
    """Return a function that releases samples and returns the weights they were drawn from."""
    heard = []
    draw = BoundedRatioMechanism.draw

    def overheard_draw(weights, integers):
        heard.append(weights.copy())
        return draw(weights, integers)

    monkeypatch.setattr(BoundedRatioMechanism, "draw", staticmethod(overheard_draw))

    def release(sampler, inputs):
        heard.clear()
        assert sampler.sample(inputs).shape == (len(inputs), 1)
        return np.vstack(heard)

    return release


class Unprojected:
    """A planted bug: the distributions themselves are what is sampled from."""

    def __call__(self, rows):
        return rows.toarray()


class Unbounded(BoundedRatioMechanism):
    """A planted bug: integer weights that keep to no bounds."""

    def __init__(self, base_measure, epsilon):
        super().__init__(base_measure, epsilon)
        self.smallest_ = np.zeros_like(self.smallest_)
        self.largest_ = np.full_like(self.largest_, TOTAL_WEIGHT)
        self._free_weight = TOTAL_WEIGHT


def roomy_base(epsilon):
    """Return a scale of the base measure at which an output may be likelier than the claim."""
    return math.exp(-0.7 * epsilon)


def plant(sampler, *, projector=None, draws=None):
    """Put another projector, or other draws, into a fitted sampler."""
    fitted = sampler._fitted
    projector, draws = projector or fitted.project, draws or fitted.draws
    sampler._fitted = replace(fitted, project=projector, draws=draws)


def loosen_projection(sampler):
    """Plant a bug: the upper bound of the projection is 1.01 exp(epsilon) s."""
    loose = type(sampler)(
        sampler.epsilon + ONE_PERCENT,
        cost_matrix=sampler.cost_matrix_,
        base_measure=sampler.base_measure_,
    )
    plant(sampler, projector=loose.fit(np.eye(N_POINTS))._fitted.project)


def loosen_integers(sampler):
    """Plant a bug: the largest integer weights are 1.01 exp(epsilon) times the smallest ones."""
    loose = BoundedRatioMechanism(sampler.base_measure_, sampler.epsilon + ONE_PERCENT)
    plant(sampler, draws=loose)
    # Samples of a fit with another epsilon are refused.
    sampler.epsilon = loose.epsilon


def search_worst_pair(release, sampler, rng, n_rounds=10, n_children=4):
    """Climb towards inputs that make an output likely, and others that make it unlikely."""
    population = diracs_and_random(rng)
    weights = release(sampler, population)
    for _ in range(n_rounds):
        extreme = np.unique(np.concatenate([weights.argmax(axis=0), weights.argmin(axis=0)]))
        parents = population[np.repeat(extreme, n_children)]
        parents = parents / parents.sum(axis=1, keepdims=True)
        corners = np.eye(N_POINTS)[rng.integers(N_POINTS, size=len(parents))]
        steps = 10.0 ** -rng.uniform(0, 6, size=(len(parents), 1))
        children = (1 - steps) * parents + steps * corners
        sharper = rng.random(len(parents)) < 0.3
        children[sharper] **= rng.uniform(0.5, 3, size=(sharper.sum(), 1))
        population = np.vstack([population[extreme], children])
        weights = release(sampler, population)
    return exact_audit(weights)


def test_audit_finds_the_worst_output_and_pair():
    result = exact_audit([[5, 3, 2], [5, 1, 4], [4, 4, 2]])
    assert (result.output, result.more_likely, result.less_likely) == (1, 2, 1)
    assert (result.numerator, result.denominator) == (4, 1)
    assert result.epsilon == math.log(4)


def test_audit_is_infinite_where_an_input_excludes_an_output():
    for weights in ([[4, 0], [3, 1]], [[1, 3, 0], [2, 1, 1]], [[0, 4], [4, 0]]):
        result = exact_audit(weights)
        assert result.epsilon == math.inf
        assert result.denominator == 0
        assert result.exceeds(700.0)


def test_audit_is_exact_where_doubles_are_not():
    half = TOTAL_WEIGHT // 2
    result = exact_audit([[half, half], [half + 1, half - 1]])
    assert result.epsilon == pytest.approx(1 / half, rel=1e-9)
    assert result.exceeds(0.9 / half)
    assert not result.exceeds(1.1 / half)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_audit_exceeds_from_the_first_integer_above_the_bound(epsilon):
    least = int(TOTAL_WEIGHT / (2 * math.exp(epsilon)))
    most = least * scaled_exp(epsilon) >> 128
    for weight, exceeds in [(most - 1, False), (most, False), (most + 1, True)]:
        rows = [[least, TOTAL_WEIGHT - least], [weight, TOTAL_WEIGHT - weight]]
        result = exact_audit(rows)
        assert result.output == 0
        assert result.exceeds(epsilon) == exceeds
        assert result.epsilon == pytest.approx(epsilon, rel=1e-15)


@pytest.mark.parametrize(
    "weights",
    [
        [[1, 2], [2, 2]],
        [[0, 0], [0, 0]],
        [[-1, 3], [1, 1]],
        [[0.5, 0.5], [0.5, 0.5]],
        [1, 2],
        [[3, 1]],
    ],
)
def test_audit_refuses_what_are_no_weights(weights):
    with pytest.raises(ValueError, match="weights must .*integer_weights|weights must have two"):
        exact_audit(weights)


@pytest.mark.parametrize(
    "parameters",
    [
        {"base_measure": "uniform"},
        {"base_measure": 0.999},
        {"base_measure": math.exp(-0.999)},
        {"base_measure": np.array([0.2, 0.0, 0.1, 0.0, 0.2, 1e-300, 0.1])},
        {"solver": "exact"},
        {"solver": "entropic", "tol": 0.5},
        {"order": 3},
    ],
    ids=lambda parameters: " ".join(parameters),
)
def test_no_choice_of_parameters_exceeds_epsilon(parameters, rng, weights_behind):
    sampler = fitted(WassersteinProjectionSampler, 1.0, rng, **parameters)
    weights = weights_behind(sampler, diracs_and_random(rng))
    assert not exact_audit(weights).exceeds(1.0)
    assert not weights[:, sampler.base_measure_ == 0].any()


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_no_search_for_a_worst_pair_exceeds_epsilon(kind, epsilon, rng, weights_behind):
    result = search_worst_pair(weights_behind, fitted(kind, epsilon, rng), rng)
    assert not result.exceeds(epsilon)
    if kind in PROJECTIONS:
        # The bound is tight: nothing of what is allowed is wasted.
        assert result.epsilon == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", PROJECTIONS)
def test_audit_notices_a_clip_that_is_loosened_by_one_percent(kind, epsilon, rng, weights_behind):
    inputs = diracs_and_random(rng)
    sampler = fitted(kind, epsilon, rng, base_measure=roomy_base(epsilon))
    loosen_projection(sampler)
    # The integers' own bounds are a second lock.
    assert not exact_audit(weights_behind(sampler, inputs)).exceeds(epsilon)
    loosen_integers(sampler)
    result = exact_audit(weights_behind(sampler, inputs))
    assert result.exceeds(epsilon)
    assert result.epsilon == pytest.approx(epsilon + ONE_PERCENT, rel=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_audit_notices_integer_bounds_that_are_loosened_by_1_percent(epsilon, rng, weights_behind):
    sampler = fitted(KLProjectionSampler, epsilon, rng, base_measure=roomy_base(epsilon))
    plant(sampler, projector=Unprojected())
    assert not exact_audit(weights_behind(sampler, diracs_and_random(rng))).exceeds(epsilon)
    loosen_integers(sampler)
    assert exact_audit(weights_behind(sampler, diracs_and_random(rng))).exceeds(epsilon)


def test_audit_notices_that_nothing_is_clipped(rng, weights_behind):
    sampler = fitted(KLProjectionSampler, 1.0, rng)
    plant(sampler, projector=Unprojected(), draws=Unbounded(sampler.base_measure_, 1.0))
    result = exact_audit(weights_behind(sampler, diracs_and_random(rng)))
    assert result.epsilon == math.inf
    assert result.exceeds(1.0)


N_REPETITIONS = 300


KNOWN = {
    "randomised response": (randomised_response, (True, False), 0.0, math.log(3), None),
    "Laplace": (laplace, (0.0, 1.0), 0.0, 1.0, lambda outputs: -outputs),
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
    bound, threshold, tail, likelier_on = choose_event(*pair, 0.0, 0.95)
    assert tail == ("upper" if sign > 0 else "lower")
    assert likelier_on == ("data" if data_first else "neighbour")
    assert 3.0 < abs(threshold) < 7.0
    assert bound > 1.5
    counts = [(sign * part >= sign * threshold).sum() for part in pair]
    assert max(counts) > 90 and min(counts) < 3


def test_no_difference_is_found_where_there_is_none(seed):
    for trial_seed in np.random.SeedSequence(seed).generate_state(20):
        options = {"n_trials": 1000, "vectorized": True, "random_state": int(trial_seed)}
        result = audit(gaussian_vector, np.zeros(3), np.zeros(3), **options)
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


@pytest.mark.parametrize("n_features", [1, 5, 30, 100])
def test_what_is_learned_comes_near_the_likelihood_ratio(n_features, seed):
    shift = np.full(n_features, 3.0 / math.sqrt(n_features))
    options = {"delta": 1e-5, "vectorized": True, "n_trials": 10_000, "random_state": seed}
    learned, known = (
        audit(gaussian_vector, np.zeros(n_features), shift, log_density_ratio=ratio, **options)
        for ratio in (None, lambda outputs: -outputs @ shift)
    )
    assert learned.epsilon_lower > known.epsilon_lower - 1.2
    assert known.epsilon_lower < gaussian_epsilon(1e-5, 3.0)


@pytest.mark.parametrize(
    "bad, message",
    [
        ({"delta": 1.0}, "delta must"),
        ({"confidence": 1.0}, "confidence must"),
        ({"n_trials": 19}, "n_trials must"),
        ({"random_state": -1}, "random_state must"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_released(bad, message):
    def release(data, **keywords):
        pytest.fail("something was released")

    with pytest.raises(ValueError, match=message):
        audit(release, 0, 1, **bad)


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


def test_a_release_that_always_raises_is_an_error_that_says_why():
    with pytest.raises(RuntimeError, match="raised at every trial.*ArithmeticError: cannot rel"):
        audit(refuse, 0, 1, n_trials=20)
    with pytest.raises(RuntimeError, match="unexpected keyword argument 'random_state'"):
        audit(lambda data: data, 0, 1, n_trials=20, random_state=0)


N_ATTEMPTS = 20
DELTA = 1e-5
# The standard deviation of Gaussian noise that makes a sensitivity of 1 (1, DELTA)-private.
GAUSSIAN_SCALE = 1.0 / gaussian_mu(1.0, DELTA)


def attempts(seed, release, data, neighbour, claim, **options):
    """Return in how many attempts with seeds of their own a claim was refuted."""
    refuted = 0
    for trial_seed in np.random.SeedSequence(seed).generate_state(N_ATTEMPTS):
        result = audit(release, data, neighbour, random_state=int(trial_seed), **options)
        refuted += result.exceeds(claim)
    return refuted


def check(seed, sound, buggy, pair, claim, **options):
    options = {"vectorized": True} | options
    assert attempts(seed, buggy, *pair, claim, **options) >= 19
    assert attempts(seed, sound, *pair, claim, **options) <= 1


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
