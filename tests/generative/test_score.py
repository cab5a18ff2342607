"""The score of a generator: minus a distance, the same for all candidates."""

import numpy as np
import ot
import pytest

from skdpot.generative import _records as _fitted
from skdpot.generative._records import mean_squared_costs, sinkhorn_divergence
from tests.oracles.entropic_transport import entropic_transport
from tests.oracles.gradient_generators import make_gradient_generator

FAST = {"epsilon": None, "n_iter": 2, "batch_size": 6, "random_state": 0}


def make_rows(n, n_features=3, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, n_features))


def test_costs_do_not_grow_with_the_number_of_features():
    rows, columns = make_rows(5), make_rows(4, seed=1)
    expected = ((rows[:, None] - columns) ** 2).mean(axis=2)
    np.testing.assert_allclose(mean_squared_costs(rows, columns), expected, atol=1e-12)
    one, other = np.array([0, 1, 0, 1, 2]), np.array([1, 1, 0, 2])
    with_labels = mean_squared_costs(rows, columns, one, other)
    np.testing.assert_allclose(with_labels, expected + 4.0 * (one[:, None] != other), atol=1e-12)
    twice = mean_squared_costs(np.tile(rows, 7), np.tile(columns, 7))
    np.testing.assert_allclose(twice, expected, atol=1e-12)


@pytest.mark.parametrize("reg", [0.3, 1.0])
def test_divergence_is_that_of_the_oracle(reg):
    rows, columns = make_rows(9), make_rows(7, seed=1) / 2

    def transport(x, y):
        return entropic_transport(mean_squared_costs(x, y), reg, 1e-6)[0]

    own = transport(rows, rows) + transport(columns, columns)
    expected = transport(rows, columns) - own / 2
    # Up to twice the certified gap of each.
    assert sinkhorn_divergence(rows, columns, reg=reg) == pytest.approx(expected, abs=4e-3)


def test_divergence_is_zero_between_equal_rows_and_symmetric():
    rows, columns = make_rows(20), make_rows(30, seed=1)
    assert sinkhorn_divergence(rows, rows[::-1], reg=0.05) == pytest.approx(0, abs=4e-3)
    there, back = (
        sinkhorn_divergence(*pair, reg=0.05) for pair in [(rows, columns), (columns, rows)]
    )
    assert there == pytest.approx(back, abs=4e-3)


def test_divergence_of_distant_rows_is_about_their_cost():
    rows, columns = make_rows(30) / 20 - 0.5, make_rows(40, seed=1) / 20 + 0.5
    weights = [np.full(len(x), 1 / len(x)) for x in (rows, columns)]
    cost = ot.emd2(*weights, mean_squared_costs(rows, columns))
    assert sinkhorn_divergence(rows, columns, reg=0.05) == pytest.approx(cost, abs=0.02)
    # Where all labels differ, every record has to move to another class.
    labels = np.zeros(30, dtype=int), np.ones(40, dtype=int)
    apart = sinkhorn_divergence(rows, columns, *labels, reg=0.05)
    assert apart == pytest.approx(cost + 4, abs=0.02)


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


def test_many_records_are_represented_by_some(monkeypatch):
    sizes = []

    def divergence(rows, columns, *labels, reg):
        sizes.append((len(rows), len(columns), [len(codes) for codes in labels]))
        return sinkhorn_divergence(rows, columns, *labels, reg=reg)

    monkeypatch.setattr(_fitted, "sinkhorn_divergence", divergence)
    monkeypatch.setattr(_fitted, "SCORED_ROWS", 30)
    X, y = np.random.default_rng(0).random((100, 2)), np.repeat([0, 1], 50)
    fitted = make_gradient_generator(**FAST, classes=[0, 1]).fit(X, y)
    few = fitted.score(X[::5], y[::5])
    some = fitted.score(X, y)
    assert sizes == [(20, 20, [20, 20]), (30, 30, [30, 30])]
    assert some == pytest.approx(few, abs=0.2)


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
