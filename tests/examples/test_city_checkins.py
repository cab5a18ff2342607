"""The city example, on a small made-up city and on a small file of check-ins."""

import numpy as np
import pytest

from examples.datasets import make_city_checkins

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("sampling/plot_city_checkins.py")


@pytest.fixture(scope="module")
def city():
    """Return few users on a coarse grid."""
    return make_city_checkins(n_users=150, n_bins=12, random_state=0)


@pytest.fixture(scope="module")
def results(example, city):
    """Return what the planner learns."""
    return example.run_experiment(city, epsilons=(1.0, 4.0), n_runs=3)


def test_locations_are_counted_by_run(example):
    counts = example.count_locations(np.array([[0, 2], [0, 1]]), n_cells=3)
    np.testing.assert_array_equal(counts, [[1, 0, 0], [0, 0.5, 0.5]])


def test_wasserstein_projection_is_nearer(example, results):
    for epsilon in (1.0, 4.0):
        distances = results.distances[epsilon, example.WASSERSTEIN]
        assert distances.shape == (3,)
        assert distances.max() < results.distances[epsilon, example.KL].min()
        assert results.exact.mean() < distances.mean()


def test_table_and_figures(example, city, results, capsys):
    example.print_table(results, city)
    printed = capsys.readouterr().out
    assert "150 released locations" in printed
    assert example.WASSERSTEIN in printed and example.KL in printed
    figure = example.draw_distances(results)
    assert len(figure.axes[0].containers) == 2
    example.plt.close(figure)
    figure = example.draw_maps(results, city, epsilon=4.0)
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shown, results.true_map.reshape(12, 12))
    example.plt.close(figure)


@pytest.mark.parametrize("n_users", [3, 10])
def test_a_real_file_takes_the_place_of_the_made_up_city(example, tmp_path, monkeypatch, n_users):
    rng = np.random.default_rng(0)
    south, north, west, east = example.AUSTIN
    lines = [
        f"{user}\t2010-10-19T23:55:27Z\t{rng.uniform(south, north)}\t{rng.uniform(west, east)}\t1"
        for user in range(5)
        for _ in range(12)
    ]
    (tmp_path / "checkins.txt").write_text("\n".join(lines))
    monkeypatch.setenv("SKDPOT_CHECKINS", str(tmp_path / "checkins.txt"))
    city = example.load_city(n_users=n_users, n_bins=6)
    assert city.weights.shape == (min(n_users, 5), 36)
    np.testing.assert_array_equal(city.weights.sum(axis=1), 12)


def test_without_a_file_the_city_is_made_up(example, monkeypatch):
    monkeypatch.delenv("SKDPOT_CHECKINS", raising=False)
    assert example.load_city(n_users=7, n_bins=5).weights.shape == (7, 25)
