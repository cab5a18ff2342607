"""The private distance under attack: no lower bound exceeds what is claimed, if that can hold.

All audits of this file together are wrong with a probability of at most 5 %.
"""

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import PrivateSinkhornDistance
from skdpot.distance import _releases
from skdpot.distance._costs import CostFunction
from skdpot.distance._releases import CostSettings
from skdpot.privacy.audit import audit
from skdpot.privacy.random import make_source
from skdpot.privacy.sensitivity import pairwise_sensitivities
from skdpot.published import NoisySinkhornDistance
from skdpot.transport import nearest_distribution
from tests.oracles import distance_releases

pytestmark = pytest.mark.experiment

EPSILONS = [0.5, 1.0, 4.0]
# As large as it takes for attacks on normal noise to succeed.
DELTA = 0.1
PAPER_SIZE = 300
QUESTIONS = {
    "exact": {},
    "entropic": {"reg": 0.1},
    # With so much regularisation, a record changes the divergence by twice as much as the cost.
    "debiased": {"reg": 50.0, "divergence": "sinkhorn"},
}


def replaced(*sizes):
    """Return neighbours: the groups are at two ends, but one of the first goes to the other end."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = (y > 0).astype(float)[:, None]
    other = X.copy()
    other[0] = 1.0
    return (X, y), (other, y)


def regrouped(*sizes):
    """Return neighbours that differ in the group of a record.

    Other groups than the first are empty, since all other records are in none that was declared,
    and so are filled up with what is far from all records.
    """
    X, y = np.ones((sum(sizes), 1)), np.full(sum(sizes), -1)
    y[: sizes[0]] = 0
    other = y.copy()
    other[0] = 1
    return (X, y), (X, other)


def differ(x, y):
    """Return 1 for different points: the filler of empty groups is as far from all as can be."""
    return float((x != y).any())


def public(*sizes, **params):
    options = {"bounds": (0, 1), "metric": differ, "cost_range": (0, 1)}
    return PrivateSinkhornDistance(**options, **params), replaced(*sizes)


def noisy(*sizes, **params):
    return NoisySinkhornDistance(bounds=(0, 1), metric="cityblock", **params), replaced(*sizes)


def private(*sizes, **params):
    labels = {"labels": "private", "groups": [*range(len(sizes))], "min_group_size": sizes}
    estimator, _ = public(*sizes, **labels, **params)
    return estimator, regrouped(*sizes)


def tables(*sizes, **params):
    """Return tables in which a row of the first group goes to the other end in every column."""
    pairs = [(np.where(X, None, X), y) for X, y in replaced(*sizes)]
    schema = {"x": {"bounds": (0, 1), "missing": True}}
    return PrivateSinkhornDistance(schema=schema, **params), pairs


HISTOGRAM = {"mechanism": "histogram"}
ATTACKS = {
    **{f"output, {name}": public(20, 30, **params) for name, params in QUESTIONS.items()},
    **{
        f"output, private labels, {name}": private(20, 20, **params)
        for name, params in QUESTIONS.items()
    },
    "output, tables": tables(20, 30),
    "output, three groups": public(20, 20, 20),
    "output, three groups, private labels": private(20, 20, 20),
    "histogram": public(6, 4, **HISTOGRAM),
    "histogram, private labels": private(6, 4, **HISTOGRAM),
}
# Of each attack with two laws of noise, of noisy Sinkhorn, and of what is planted.
AUDITS = 2 * len(ATTACKS) * len(EPSILONS) + len(EPSILONS) + 12
CONFIDENCE = 1 - 0.05 / AUDITS


def bound(estimator, pair, seed, clip=True):
    """Return the lower bound on epsilon that is found with many releases of either data set.

    The attack knows what noise is added to. Without `clip`, records are not moved to the bounds.
    """
    plans = [distance_releases.plan(estimator, X, y) for X, y in pair]
    assert plans[0][0].event == plans[1][0].event
    values = [
        distance_releases.exact_values(release, clipped if clip else X)[0]
        for (release, clipped), (X, _) in zip(plans, pair, strict=True)
    ]
    power = 1 if estimator.delta == 0 else 2

    def draw(which, n_trials, random_state):
        release, _ = plans[which]
        noisy = distance_releases.noisy_values(release, values[which], n_trials, random_state)
        return noisy.reshape(n_trials, -1)

    def ratio(outputs):
        off = [np.sum(np.abs(outputs - value.ravel()) ** power, axis=1) for value in values]
        return (off[1] - off[0]) / np.abs(values[1] - values[0]).max()

    result = audit(
        draw, 0, 1, delta=estimator.delta, n_trials=40_000, confidence=CONFIDENCE,
        vectorized=True, random_state=seed, log_density_ratio=ratio,
    )  # fmt: skip
    return result.epsilon_lower


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_refutes_the_claim(attack, delta, epsilon, seed):
    estimator, pair = ATTACKS[attack]
    found = bound(clone(estimator).set_params(epsilon=epsilon, delta=delta), pair, seed)
    assert found <= epsilon
    assert found > (0.6 if delta == 0 else 0.3) * epsilon


# What is planted
# ---------------


def refutes(attack, seed, **params):
    estimator, pair = ATTACKS[attack]
    return bound(clone(estimator).set_params(epsilon=1.0, **params), pair, seed) > 1.0


def sensitivities(change):
    """Return a function that takes the place of `pairwise_sensitivities`."""

    def changed(*args, **options):
        return change(*pairwise_sensitivities(*args, **options))

    return changed


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("attack", ["output, exact", "output, private labels, debiased"])
def test_half_of_the_noise_is_noticed(attack, delta, seed, monkeypatch):
    half = sensitivities(lambda alone, changes: (alone / 2, changes / 2))
    monkeypatch.setattr(_releases, "pairwise_sensitivities", half)
    assert refutes(attack, seed, delta=delta)


def test_the_noise_of_public_labels_is_noticed_where_a_record_changes_its_group(seed, monkeypatch):
    def of_public_labels(*args, labels, **options):
        return pairwise_sensitivities(*args, **options)

    monkeypatch.setattr(_releases, "pairwise_sensitivities", of_public_labels)
    assert refutes("output, private labels, exact", seed)


@pytest.mark.parametrize("attack", ["output, three groups", "output, three groups, private labels"])
def test_several_pairs_at_the_price_of_one_are_noticed(attack, seed, monkeypatch):
    # In units of its sensitivity, one cost changes by one.
    monkeypatch.setattr(_releases, "cost_vector_sensitivities", lambda *args, **options: (1.0, 1.0))
    assert refutes(attack, seed)


def test_values_beyond_the_bounds_are_noticed(seed, monkeypatch):
    """Records are clipped, and so are costs: either is enough, and neither is not."""
    estimator, ((X, y), (other, _)) = public(20, 30)
    estimator.set_params(metric="euclidean")
    X[y == 0], other[y == 0] = 0.5, 0.5
    other[0] = -2.0
    pair = (X, y), (other, y)
    assert bound(estimator, pair, seed) <= 1.0
    assert bound(estimator, pair, seed, clip=False) <= 1.0
    monkeypatch.setattr(CostFunction, "_clipped", lambda cost, costs: costs)
    assert bound(estimator, pair, seed) <= 1.0
    assert bound(estimator, pair, seed, clip=False) > 1.0


@pytest.mark.parametrize("attack", ["output, three groups", "histogram"])
def test_noise_that_is_drawn_for_many_releases_is_that_of_one(attack):
    estimator, ((X, y), _) = ATTACKS[attack]
    release, records = distance_releases.plan(estimator, X, y)
    values, released = distance_releases.exact_values(release, records)
    (noisy,) = distance_releases.noisy_values(release, values, 1, 0)
    if attack == "histogram":
        found = [nearest_distribution(row) for row in noisy / [[6], [4]]]
        np.testing.assert_array_equal(found, released.attributes["histograms_"])
    else:
        np.testing.assert_array_equal(release.sensitivities * noisy, released.costs)


# Noisy Sinkhorn
# --------------


@pytest.fixture
def one_thread(monkeypatch):
    """Let noisy Sinkhorn run without joblib, which takes longer than so small a run."""
    monkeypatch.setattr(
        CostSettings,
        "map",
        lambda self, calls: [function(*arguments) for function, *arguments in calls],
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_attack_refutes_noisy_sinkhorn(epsilon, seed, one_thread):
    """What tells most of where a record is, is its own potential."""
    estimator, pair = noisy(20, 20, reg=5.0, n_iter=1)
    estimator.set_params(epsilon=epsilon, delta=DELTA)
    plans = [distance_releases.plan(estimator, X, y) for X, y in pair]
    assert plans[0][0].event == plans[1][0].event

    def draw(which, n_trials, random_state):
        release, X = plans[which]
        source = make_source(random_state)
        runs = [release.run(X, source) for _ in range(n_trials)]
        return np.array([[*run.attributes["potentials_"][0], *run.costs] for run in runs])

    result = audit(
        draw, 0, 1, delta=DELTA, n_trials=500, confidence=CONFIDENCE, vectorized=True,
        random_state=seed, log_density_ratio=lambda outputs: outputs[:, 0],
    )  # fmt: skip
    assert result.epsilon_lower <= epsilon
    assert epsilon < 4 or result.epsilon_lower > 0.1 * epsilon


@pytest.mark.filterwarnings("ignore::skdpot.privacy.NoGuaranteeWarning")
def test_published_accounting_claims_too_little(seed, one_thread):
    """A step that only one record makes enlarges the noise of all."""
    X, y = np.zeros((2 * PAPER_SIZE, 1)), np.repeat([0, 1], PAPER_SIZE)
    other = X.copy()
    other[0] = 1.0
    estimator = NoisySinkhornDistance(
        2.5, 1e-5, bounds=(0, 1), metric="cityblock", accounting="paper", reg=5.0, n_iter=1,
        noise_variance=2.0, adaptive_noise=0.9,
    )  # fmt: skip

    def release(data, random_state):
        fitted = clone(estimator).set_params(random_state=random_state).fit(data, y)
        assert fitted.privacy_guarantee_ is None
        phi, psi = fitted.potentials_
        # All but the record's own potential have one mean, and the noise one variance.
        return float(np.var(phi[1:]) + np.var(psi))

    result = audit(
        release, other, X, delta=estimator.delta, n_trials=300, confidence=CONFIDENCE,
        random_state=seed, log_density_ratio=lambda outputs: outputs,
    )  # fmt: skip
    assert result.exceeds(estimator.epsilon)
