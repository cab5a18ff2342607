"""Attacks on the samplers: what they really draw from, against the epsilon that they claim."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from skdpot import ExponentialMechanismSampler, KLProjectionSampler, WassersteinProjectionSampler
from skdpot.privacy.audit import exact_audit
from skdpot.privacy.choices import TOTAL_WEIGHT, BoundedRatioMechanism, scaled_exp

pytestmark = pytest.mark.experiment

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


def lower_bound_of_epsilon(sampler, pair, output, n_samples=100_000, confidence=0.95):
    """Bound epsilon from below by counting an output in the samples of two inputs.

    The two probabilities are bounded as Clopper and Pearson do, each with half of the risk.
    """
    counts = (sampler.sample(pair, n_samples=n_samples) == output).sum(axis=1)
    risk = (1 - confidence) / 2
    smallest = beta.ppf(risk, counts[0], n_samples - counts[0] + 1) if counts[0] else 0.0
    largest = beta.ppf(1 - risk, counts[1] + 1, n_samples - counts[1])
    return math.log(smallest / largest) if smallest else -math.inf


def test_audit_finds_the_worst_output_and_pair():
    result = exact_audit([[5, 3, 2], [5, 1, 4], [4, 4, 2]])
    assert (result.output, result.more_likely, result.less_likely) == (1, 2, 1)
    assert (result.numerator, result.denominator) == (4, 1)
    assert result.epsilon == math.log(4)


def test_audit_of_equal_rows_and_of_outputs_that_never_appear_is_zero():
    for weights in ([[3, 1, 0], [3, 1, 0]], [[7]], [[0, 7], [0, 7]]):
        result = exact_audit(weights)
        assert result.epsilon == 0.0
        assert not result.exceeds(1e-30)


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
        np.zeros((0, 3), dtype=int),
    ],
)
def test_audit_refuses_what_are_no_weights(weights):
    with pytest.raises(ValueError, match="weights must"):
        exact_audit(weights)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_no_pair_of_inputs_exceeds_epsilon(kind, epsilon, rng, weights_behind):
    sampler = fitted(kind, epsilon, rng)
    weights = weights_behind(sampler, diracs_and_random(rng))
    assert {sum(row) for row in weights.tolist()} == {TOTAL_WEIGHT}
    result = exact_audit(weights)
    assert not result.exceeds(epsilon)
    assert 0 < result.epsilon <= epsilon


@pytest.mark.parametrize(
    "parameters",
    [
        {"base_measure": "uniform"},
        {"base_measure": 0.999},
        {"base_measure": math.exp(-0.999)},
        {"base_measure": np.array([0.2, 0.0, 0.1, 0.0, 0.2, 1e-300, 0.1])},
        {"solver": "exact"},
        {"solver": "entropic", "tol": 0.5},
        {"solver": "entropic", "max_iter": 1},
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
def test_audit_notices_integer_bounds_that_are_loosened_by_one_percent(
    epsilon, rng, weights_behind
):
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


def test_audit_notices_an_exponential_mechanism_of_twice_the_rate(rng, weights_behind):
    sampler = fitted(ExponentialMechanismSampler, 2.0, rng)
    assert exact_audit(weights_behind(sampler, diracs_and_random(rng))).exceeds(1.0)


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_samples_do_not_betray_more_than_epsilon(kind, seed, rng, weights_behind):
    sampler = fitted(kind, 1.0, rng, random_state=seed)
    inputs = np.eye(N_POINTS)
    worst = exact_audit(weights_behind(sampler, inputs))
    pair = inputs[[worst.more_likely, worst.less_likely]]
    assert 0.85 < lower_bound_of_epsilon(sampler, pair, worst.output) < 1.0


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_samples_betray_a_mechanism_of_three_times_the_epsilon(kind, seed, rng, weights_behind):
    sampler = fitted(kind, 3.0, rng, random_state=seed)
    worst = exact_audit(weights_behind(sampler, np.eye(N_POINTS)))
    pair = np.eye(N_POINTS)[[worst.more_likely, worst.less_likely]]
    assert lower_bound_of_epsilon(sampler, pair, worst.output) > 1.0


def test_samples_betray_that_nothing_is_clipped(seed, rng):
    sampler = fitted(KLProjectionSampler, 1.0, rng, random_state=seed)
    plant(sampler, projector=Unprojected(), draws=Unbounded(sampler.base_measure_, 1.0))
    assert lower_bound_of_epsilon(sampler, np.eye(N_POINTS)[:2], output=0) > 9.0
