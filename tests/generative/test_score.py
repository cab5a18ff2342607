"""The score of a generator: minus a distance, the same for all candidates."""

import numpy as np
import pytest

from tests.oracles.gradient_generators import make_gradient_generator

FAST = {"epsilon": None, "n_iter": 2, "batch_size": 6, "random_state": 0}


def fit_to(center, X, **params):
    """Return a generator of records near a center, for records that are elsewhere perhaps."""
    options = FAST | {"n_iter": 40, "learning_rate": 3e-3, "sampling_rate": 1.0} | params
    near = np.random.default_rng(1).normal(center, 0.03, (60, 2))
    return make_gradient_generator(**options).fit(near)


@pytest.mark.experiment
def test_the_better_generator_has_the_higher_score():
    X = np.random.default_rng(0).normal([0.3, 0.6], 0.03, (80, 2))
    centers = [0.3, 0.6], [0.5, 0.6], [0.9, 0.1]
    scores = [fit_to(center, X).score(X) for center in centers]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > -0.02
    # In units of [-1, 1], the mean of the squared distances of two features.
    assert scores[2] == pytest.approx(-4 * (0.6**2 + 0.5**2) / 2, rel=0.3)


@pytest.mark.experiment
def test_scores_of_equal_networks_depend_on_no_parameter_of_the_training():
    X = np.random.default_rng(0).random((50, 2))
    scores = {
        make_gradient_generator(**FAST | {"learning_rate": 1e-30} | other).fit(X).score(X)
        for other in (
            {},
            {"reg": 3.0},
            {"debias": 0.0},
            {"l1_weight": 1.0},
            {"class_scale": 1.0},
            {"gradient": "per_image"},
            {"batch_size": 9},
        )
    }
    assert len(scores) == 1
    assert all(type(score) is float for score in scores)


def test_a_score_can_be_repeated_with_a_seed_and_varies_without():
    X = np.random.default_rng(0).random((50, 2))
    fitted = make_gradient_generator(**FAST).fit(X)
    assert fitted.score(X) == pytest.approx(fitted.score(X))
    fitted.set_params(random_state=None)
    assert fitted.score(X) != fitted.score(X)


@pytest.mark.experiment
def test_labels_count_in_the_score():
    """Records are generated for the labels of the given ones, whatever shares the classes have."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.normal(np.where(y, 0.8, 0.2)[:, None], 0.03, (100, 1))
    options = {"n_iter": 60, "learning_rate": 3e-3, "batch_size": 20, "sampling_rate": 1.0}
    fitted = make_gradient_generator(**FAST | options, classes=[0, 1]).fit(X, y)
    for kept in (slice(None), slice(40, 100), slice(50)):
        assert fitted.score(X[kept], y[kept]) > -0.05
        assert fitted.score(X[kept], 1 - y[kept]) < -0.5


@pytest.mark.parametrize("score_reg", [0.005, 5.0])
def test_score_reg_may_be_chosen(score_reg):
    X = np.random.default_rng(0).random((30, 2))
    fitted = make_gradient_generator(**FAST, score_reg=score_reg).fit(X)
    assert -2 < fitted.score(X) < 0.01
    assert fitted.score(X) != fitted.set_params(score_reg=0.05).score(X)
