"""Data sets that differ in one record: what a release computes, raises and says of them."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn

from skdpot import PrivacyLedger, PrivateSinkhornDistance


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


class Label:
    """A label that tells a secret when it is looked up."""

    def __hash__(self):
        raise RuntimeError("3.75")


def test_private_labels_that_cannot_be_looked_up_are_in_no_group():
    y = np.array([0, 1] * 10, dtype=object)
    y[3] = Label()
    estimator = PrivateSinkhornDistance(
        bounds=(0, 1), labels="private", groups=[0, 1], min_group_size=5
    )
    assert np.isfinite(estimator.fit(np.zeros((20, 1)), y).distance_)


@pytest.mark.parametrize("size", [11, 10**9, 2**62])
def test_more_records_than_there_are_cannot_be_declared(size):
    ledger = PrivacyLedger(1.0)
    estimator = PrivateSinkhornDistance(
        bounds=(0, 1), labels="private", groups=[0, 1], min_group_size=size, ledger=ledger
    )
    with pytest.raises(ValueError, match="min_group_size adds up to .* and there are 20 in all"):
        estimator.fit(np.zeros((20, 1)), [0, 1] * 10)
    assert ledger.spent() == (0.0, 0.0)


def test_a_fit_that_is_refused_keeps_the_one_before():
    X, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 2
    estimator = PrivateSinkhornDistance(bounds=(0, 1), mechanism="histogram").fit(X, y)
    state = pickle.dumps(vars(estimator) | {"bounds": None})
    with pytest.raises(ValueError, match="low < high"):
        estimator.set_params(bounds=(1, 0)).fit(X, y)
    assert pickle.dumps(vars(estimator) | {"bounds": None}) == state


def test_a_plan_survives_a_wide_box():
    X = np.array([[0.0], [1e150], [5e149], [0.0]])
    how = {"mechanism": "histogram", "metric": "euclidean"}
    estimator = PrivateSinkhornDistance(bounds=(0, 1e150), **how)
    assert np.isfinite(estimator.fit(X, [0, 0, 1, 1]).plan_).all()
