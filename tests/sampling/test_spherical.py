"""Private unit vectors: the estimator around the mechanism."""

import numpy as np
import pytest

from skdpot import SphericalProjectionSampler
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
    expected = [f"sphericalprojectionsampler{i}" for i in range(3)]
    assert list(sampler.get_feature_names_out()) == expected
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


def test_score_is_the_exact_mean_distance_whatever_the_order():
    X = unit_vectors(5000, 4)
    sampler = SphericalProjectionSampler(2.0, order=1, random_state=0).fit(X)
    assert sampler.score(X) == pytest.approx(-sampler.worst_case_cost_, rel=1e-9)
    assert sampler.score(X) == sampler.score(-X[:2])
    other = SphericalProjectionSampler(2.0, order=4, random_state=0).fit(X)
    assert other.score(X) < sampler.score(X)
    mean = np.linalg.norm(other.transform(X) - X, axis=1).mean()
    assert other.score(X) == pytest.approx(-mean, rel=0.02)


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
    samples = sampler.set_params(method="direct").fit(X).transform(X)
    np.testing.assert_allclose(sampler.transform(norm * X), samples, atol=10 * tolerance)
    assert sampler.score(norm * X) == sampler.score(X)
    np.testing.assert_array_equal(sampler.transform(8 * X), sampler.transform(X))


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"epsilon": 0.0}, "'epsilon' parameter"),
        ({"epsilon": 1e4}, "overflows"),
        ({"order": 0}, "'order' parameter"),
        ({"order": 1e5}, "smaller order"),
        ({"method": "fast"}, "'method' parameter"),
        ({"epsilon": 40.0, "method": "rejection"}, "rejection is out of reach"),
        ({"random_state": "seed"}, "'random_state' parameter"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        SphericalProjectionSampler(**parameters).fit(np.eye(3))
