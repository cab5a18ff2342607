"""The MovieLens example: its pieces, a small made-up run, and the real one where the data are."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.utils import Bunch

pytestmark = pytest.mark.experiment

SMALL = {"n_components": 5, "n_candidates": 15}


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("sampling/plot_movielens.py")


@pytest.fixture(scope="module")
def data():
    """Return ratings of users who like one of three kinds of films and rate few of the others."""
    rng = np.random.default_rng(0)
    kind_of_user, kind_of_film = rng.integers(3, size=80), rng.integers(3, size=120)
    same = kind_of_user[:, None] == kind_of_film
    rated = rng.random(same.shape) < np.where(same, 0.5, 0.1)
    ratings = np.where(same, rng.integers(4, 6, same.shape), rng.integers(1, 4, same.shape))
    genres = rng.random((120, 4)) < 0.3
    genres[:, 3] |= ~genres.any(axis=1)
    return Bunch(ratings=csr_array(np.where(rated, ratings, 0).astype(float)), genres=genres)


@pytest.fixture(scope="module")
def results(example, data):
    """Return what the experiment finds on the made-up ratings."""
    return example.run_experiment(data, epsilons=(1.0, 4.0), seeds=(0, 1), n_scales=3, **SMALL)


def test_split_keeps_films_and_users_apart(example, data):
    split = example.draw_split(data, seed=3, **SMALL)
    assert split.cost_matrix.shape == (96, 15)
    assert split.cost_matrix.min() >= 0 and split.cost_matrix.max() <= 2
    assert (len(split.validation.ids), len(split.test.ids)) == (64, 16)
    assert not set(split.validation.ids) & set(split.test.ids)
    assert split.test.weights.shape == (16, 96)
    assert split.test.likes.shape == (16, 15)


def test_candidates_do_not_depend_on_test_users(example, data):
    split = example.draw_split(data, seed=3, **SMALL)
    changed = data.ratings.toarray()
    changed[split.test.ids] = 1.0
    other = Bunch(ratings=csr_array(changed), genres=data.genres)
    again = example.draw_split(other, seed=3, **SMALL)
    np.testing.assert_array_equal(again.cost_matrix, split.cost_matrix)
    np.testing.assert_array_equal(again.candidate_genres, split.candidate_genres)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_releases_are_distributions_that_keep_the_guarantee(example, data, epsilon):
    split = example.draw_split(data, seed=0, **SMALL)
    scale = np.exp(-epsilon / 2)
    for probabilities in (
        example.wasserstein_release(split, split.validation, epsilon, scale),
        example.genre_release(split, split.validation, epsilon, scale),
        example.exponential_release(split, split.validation, epsilon),
    ):
        assert probabilities.shape == split.validation.likes.shape
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
        ratio = probabilities.max(axis=0) / probabilities.min(axis=0)
        assert ratio.max() <= np.exp(epsilon) * (1 + 1e-12)


def test_small_experiment(example, results):
    assert len(results.users) == 32
    for hits in results.hits.values():
        assert hits.shape == (32,)
        assert hits.min() >= 0 and hits.max() <= 1 + 1e-12
    for (epsilon, _), scales in results.scales.items():
        assert len(scales) == 2
        assert np.exp(-epsilon) < min(scales) and max(scales) < 1
    _, differences = example.summarise(results)
    for name in example.BASELINES:
        mean, error = differences[4.0, name]
        assert mean > 2 * error > 0


def test_table_and_figure(example, results, capsys):
    example.print_table(results)
    printed = capsys.readouterr().out
    assert "32 releases" in printed
    assert all(name in printed for name in (example.WASSERSTEIN, *example.BASELINES))
    figure = example.draw(results)
    lines = [len(axes.containers) for axes in figure.axes]
    assert lines == [3, 2]
    example.plt.close(figure)
