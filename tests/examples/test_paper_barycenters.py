"""The example of the paper's barycenters, on few points."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("fairness/plot_paper_barycenters.py")


@pytest.fixture(scope="module")
def results(example):
    """Return the results for few points, candidates and rounds."""
    return example.run_experiment(
        n_points=60, grid_shape=(12, 10), n_chosen=30, n_candidates=100, n_support=30, n_rounds=3
    )


@pytest.mark.experiment
def test_choices_are_candidates_and_near_their_bounds(results):
    assert results.grid.shape == (120, 2)
    grid = {tuple(point) for point in results.grid}
    for one in [*results.five, results.ten]:
        assert one.support.shape == (30, 2)
        assert {tuple(point) for point in one.support} <= grid
        assert len(np.unique(one.support, axis=0)) == 30
        assert one.lower_bound <= one.objective < 1.02 * one.lower_bound
    assert len(results.ten.groups) == len(results.ten.weights) == 10


@pytest.mark.experiment
def test_skewed_weights_pull_the_barycenter_to_their_group(example, results):
    centres = np.array([one.support.mean(axis=0) for one in results.five])
    expected = np.array(example.WEIGHTINGS) @ example.MEANS
    np.testing.assert_allclose(centres, expected, atol=0.5)


@pytest.mark.experiment
def test_free_supports_beat_chosen_ones_and_ours_is_the_best(example, results):
    values = {name: row.value for name, row in results.table.items()}
    assert set(example.PAPER) <= set(values)
    assert min(values, key=values.get) == "free support"
    assert values["POT, exact"] < min(values["dual, candidates"], values["best, candidates"])
    assert values["best, candidates"] <= 1.001 * values["dual, candidates"]


@pytest.mark.experiment
def test_table_and_figures(example, results, capsys):
    example.print_table(results)
    printed = capsys.readouterr().out
    assert all(name in printed for name in results.table)
    assert "2397.21    1000    4.43" in printed
    for draw, n_panels in (
        (example.draw_choices, 4),
        (example.draw_ten_groups, 2),
        (example.draw_methods, 8),
    ):
        figure = draw(results)
        assert len(figure.axes) == n_panels
        example.plt.close(figure)
