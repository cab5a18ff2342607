"""Data sets that differ in one record: what a release computes, raises and says of them."""

import warnings

import numpy as np
import pytest
import sklearn

from skdpot import PrivateSinkhornDistance


@pytest.mark.parametrize("tiny", [3e-160, 3e-310, 5e-324])
@pytest.mark.parametrize("options", [{}, {"reg": 0.1}, {"metric": "cityblock"}], ids=str)
@pytest.mark.parametrize("n_features", [1, 2])
def test_the_smallest_numbers_make_no_noise_of_arithmetic(tiny, options, n_features):
    X = np.zeros((20, n_features))
    X[0] = tiny
    estimator = PrivateSinkhornDistance(bounds=(0, 1), **options)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        estimator.fit(X, np.arange(20) % 2)


@pytest.mark.parametrize("mechanism", ["output", "histogram"])
def test_no_number_is_the_middle_whatever_is_configured(mechanism):
    X, y = np.random.default_rng(0).random((20, 2)), np.arange(20) % 2
    distances = []
    for value, finite in ((0.5, False), (np.nan, False), (np.nan, True)):
        X[3, 1] = value
        estimator = PrivateSinkhornDistance(bounds=(0, 1), mechanism=mechanism, random_state=0)
        with sklearn.config_context(assume_finite=finite):
            distances.append(estimator.fit(X, y).distance_)
    assert len(set(distances)) == 1


def test_a_plan_survives_a_wide_box():
    X = np.array([[0.0], [1e150], [5e149], [0.0]])
    how = {"mechanism": "histogram", "metric": "euclidean"}
    estimator = PrivateSinkhornDistance(bounds=(0, 1e150), **how)
    assert np.isfinite(estimator.fit(X, [0, 0, 1, 1]).plan_).all()
