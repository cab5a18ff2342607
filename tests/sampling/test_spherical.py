"""Private unit vectors: the estimator around the mechanism."""

import pickle

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from skdpot import SphericalProjectionSampler
from skdpot.privacy import BudgetAccountant, BudgetError
from skdpot.sampling import _base
from skdpot.transport import sphere_base_measure
from tests.oracles.sphere import unit_vectors


@pytest.mark.parametrize("method", ["auto", "rejection", "direct"])
@pytest.mark.parametrize("order", [1, 2])
def test_attributes_and_mean_cost(method, order):
    X = unit_vectors(4000, 6)
    sampler = SphericalProjectionSampler(3.0, order=order, method=method, random_state=0).fit(X)
    base = sphere_base_measure(6, 3.0, order=order)
    assert (sampler.scale_, sampler.threshold_) == (base.scale, base.threshold)
    assert sampler.worst_case_cost_ == base.cost
    assert sampler.n_features_in_ == 6
    costs = np.linalg.norm(sampler.transform(X) - X, axis=1) ** order
    assert abs(costs.mean() - base.cost) < 4 * costs.std() / np.sqrt(len(costs))


def test_shapes_and_feature_names():
    X = unit_vectors(5, 3)
    sampler = SphericalProjectionSampler(random_state=0).fit(X)
    assert sampler.transform(X).shape == (5, 3)
    assert sampler.sample(X, n_samples=4).shape == (5, 4, 3)
    assert list(sampler.get_feature_names_out()) == [
        f"sphericalprojectionsampler{i}" for i in range(3)
    ]
    frame = sampler.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == list(sampler.get_feature_names_out())


@pytest.mark.parametrize(
    "n_features, epsilon, method",
    [(1000, 8.0, "rejection"), (3, 20.0, "rejection"), (1000, 30.0, "direct"), (2, 50.0, "direct")],
)
def test_automatic_choice_depends_on_public_quantities_alone(n_features, epsilon, method):
    for seed in range(2):
        X = unit_vectors(2, n_features, seed)
        assert SphericalProjectionSampler(epsilon).fit(X).method_ == method


@pytest.mark.parametrize("method", ["rejection", "direct"])
def test_seeded_results_do_not_depend_on_chunks_workers_or_backends(method, monkeypatch):
    X = unit_vectors(23, 4)
    sampler = SphericalProjectionSampler(2.0, method=method, random_state=5).fit(X)
    expected = sampler.sample(X, n_samples=2)
    for n_jobs in (1, 2, 3):
        sampler.set_params(n_jobs=n_jobs)
        np.testing.assert_array_equal(sampler.sample(X, n_samples=2), expected)
        with parallel_config(backend="threading", n_jobs=n_jobs):
            np.testing.assert_array_equal(sampler.sample(X, n_samples=2), expected)
    monkeypatch.setattr(_base, "_CHUNK_SIZE", 1)
    np.testing.assert_array_equal(sampler.sample(X, n_samples=2), expected)
    np.testing.assert_array_equal(sampler.sample(X[:7], n_samples=2), expected[:7])


def test_mechanism_and_sources_travel_to_other_processes():
    X = unit_vectors(4, 3)
    sampler = SphericalProjectionSampler(random_state=1).fit(X)
    copy = pickle.loads(pickle.dumps(sampler))
    np.testing.assert_array_equal(copy.transform(X), sampler.transform(X))


def test_seeds_reproduce_and_their_absence_does_not():
    X = unit_vectors(6, 3)
    seeded = SphericalProjectionSampler(random_state=2).fit(X)
    np.testing.assert_array_equal(seeded.transform(X), seeded.transform(X))
    other = clone(seeded).set_params(random_state=3).fit(X)
    assert (seeded.transform(X) != other.transform(X)).all()
    fresh = SphericalProjectionSampler().fit(X)
    assert (fresh.transform(X) != fresh.transform(X)).all()
    advancing = SphericalProjectionSampler(random_state=np.random.RandomState(0)).fit(X)
    assert (advancing.transform(X) != advancing.transform(X)).all()


def test_users_with_the_same_vector_get_different_samples():
    X = np.repeat(unit_vectors(1, 3), 50, axis=0)
    outputs = SphericalProjectionSampler(random_state=0).fit(X).transform(X)
    assert len(np.unique(outputs, axis=0)) == 50


def test_progress_bar_changes_nothing(capsys):
    X = unit_vectors(6, 3)
    sampler = SphericalProjectionSampler(random_state=0).fit(X)
    expected = sampler.transform(X)
    np.testing.assert_array_equal(sampler.set_params(verbose=1).transform(X), expected)
    assert "SphericalProjectionSampler" in capsys.readouterr().err


def test_fit_keeps_nothing_of_the_values():
    first, second = (
        SphericalProjectionSampler(random_state=0).fit(unit_vectors(8, 3, seed)) for seed in (0, 1)
    )
    assert pickle.dumps(first) == pickle.dumps(second)


def test_every_sample_is_charged_before_it_is_drawn():
    X = unit_vectors(3, 3)
    ledger = BudgetAccountant(epsilon=2.0, delta=0.0)
    sampler = SphericalProjectionSampler(0.5, ledger=ledger).fit(X)
    sampler.score(X)
    assert ledger.total()[0] == 0
    sampler.transform(X)
    sampler.sample(X, n_samples=2)
    assert ledger.total()[0] == pytest.approx(1.5)
    with pytest.raises(BudgetError):
        sampler.sample(X, n_samples=2)
    with pytest.raises(ValueError, match="row 0 is all zero"):
        sampler.transform(0 * X)
    assert ledger.total()[0] == pytest.approx(1.5)
    # A clone spends the same budget.
    clone(sampler).fit(X).transform(X)
    assert ledger.total()[0] == pytest.approx(2.0)


def test_score_is_the_exact_mean_distance_whatever_the_order():
    X = unit_vectors(5000, 4)
    sampler = SphericalProjectionSampler(2.0, order=1, random_state=0).fit(X)
    assert sampler.score(X) == pytest.approx(-sampler.worst_case_cost_, rel=1e-9)
    assert sampler.score(X) == sampler.score(-X[:2])
    other = SphericalProjectionSampler(2.0, order=4, random_state=0).fit(X)
    assert other.score(X) < sampler.score(X)
    mean = np.linalg.norm(other.transform(X) - X, axis=1).mean()
    assert other.score(X) == pytest.approx(-mean, rel=0.02)
    squared = SphericalProjectionSampler(2.0, order=2, score_order=2).fit(X)
    assert squared.score(X) == pytest.approx(-squared.worst_case_cost_, rel=1e-9)


def test_grid_search_and_pipelines():
    X = unit_vectors(30, 3)
    search = GridSearchCV(
        SphericalProjectionSampler(), {"epsilon": [1.0, 2.0], "order": [1, 3]}, cv=2
    ).fit(X)
    assert search.best_params_ == {"epsilon": 2.0, "order": 1}
    pipeline = make_pipeline(
        Normalizer(),
        SphericalProjectionSampler(8.0, random_state=0),
        StandardScaler(),
        KMeans(2, n_init=1, random_state=0),
    )
    assert set(pipeline.fit_predict(3 * X)) == {0, 1}


def test_single_precision_and_lists_are_welcome():
    X = unit_vectors(10, 300).astype(np.float32)
    sampler = SphericalProjectionSampler(random_state=0).fit(X)
    assert sampler.transform(X).dtype == np.float64
    assert SphericalProjectionSampler().fit_transform([[0, 1], [1, 0]]).shape == (2, 2)


@pytest.mark.parametrize("norm", [1.0 + 1e-5, 7.0, 1e-200, 1e-315, 1e300])
def test_the_direction_of_a_vector_counts_alone(norm):
    X = unit_vectors(40, 3)
    sampler = SphericalProjectionSampler(random_state=0).fit(X)
    # Of numbers this small, a few bits are left.
    tolerance = 1e-6 if norm == 1e-315 else 1e-14
    directions = sampler._validate_users(norm * X)
    np.testing.assert_allclose(directions, X, atol=tolerance)
    assert sampler.score(norm * X) == sampler.score(X)
    np.testing.assert_array_equal(sampler.transform(8 * X), sampler.transform(X))


def test_a_vector_without_a_direction_is_named():
    X = unit_vectors(4, 3)
    sampler = SphericalProjectionSampler().fit(X)
    X[2] = 0.0
    for release in (sampler.transform, sampler.sample, sampler.score):
        with pytest.raises(ValueError, match="row 2 is all zero, so it has no direction"):
            release(X)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"epsilon": 0.0}, "'epsilon' parameter"),
        ({"epsilon": 1e4}, "overflows"),
        ({"order": 0}, "'order' parameter"),
        ({"order": 1e5}, "smaller order"),
        ({"method": "fast"}, "'method' parameter"),
        ({"epsilon": 40.0, "method": "rejection"}, "rejection is out of reach"),
        ({"score_order": -1}, "'score_order' parameter"),
        ({"random_state": "seed"}, "'random_state' parameter"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        SphericalProjectionSampler(**parameters).fit(np.eye(3))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="n_features=1"):
        SphericalProjectionSampler().fit([[1.0], [1.0]])
    with pytest.raises(ValueError, match="NaN"):
        SphericalProjectionSampler().fit([[np.nan, 1.0]])
    with pytest.raises(TypeError, match="BudgetAccountant"):
        SphericalProjectionSampler(ledger=3.0).fit(np.eye(3))
    with pytest.raises(NotFittedError):
        SphericalProjectionSampler().transform(np.eye(3))
    sampler = SphericalProjectionSampler().fit(np.eye(3))
    with pytest.raises(ValueError, match="3 features"):
        sampler.transform(np.eye(4))
    for n_samples in (0, 1.5):
        with pytest.raises(ValueError, match="n_samples must be a positive integer"):
            sampler.sample(np.eye(3), n_samples=n_samples)
