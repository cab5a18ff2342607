"""The ring example: the table of reference, cell by cell."""

import numpy as np
import pytest

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("sampling/plot_ring_table.py")


@pytest.fixture(scope="module")
def results(example):
    """Return the table of the reference's draw and those of two others."""
    return example.run_experiment(n_other_draws=2)


def test_distances_are_along_the_ring(example):
    distances = example.ring_distances(4)
    np.testing.assert_array_equal(distances[0], [0, 0.25, 0.5, 0.25])
    np.testing.assert_array_equal(distances, distances.T)


def test_every_cell_agrees_with_the_reference(example, results):
    np.testing.assert_allclose(results.table, example.REFERENCE, rtol=0.06)


def test_wasserstein_projection_wins_for_every_draw(results):
    tables = np.concatenate([results.table[None], results.other_draws])
    _, wasserstein, kl, exponential = np.moveaxis(tables, -1, 0)
    assert (wasserstein < 0.8 * np.minimum(kl, exponential)).all()


def test_table_and_figure(example, results, capsys):
    example.print_table(results)
    printed = capsys.readouterr().out
    assert all(name in printed for name in example.COLUMNS)
    assert "0.0352     0.0352" in printed
    figure = example.draw(results)
    assert len(figure.axes[0].get_legend().get_texts()) == 5
    example.plt.close(figure)
