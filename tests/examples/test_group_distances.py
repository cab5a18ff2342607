"""The example of distances between groups: its pieces, a small run, and the real data."""

import numpy as np
import ot
import pytest

from tests.oracles.people_files import ADULT_HEADER, COMPAS_HEADER

SMALL = {"output": 60, "histogram": 4, "diffprivlib + POT": 2, "noisy Sinkhorn": 4}


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("distance/plot_group_distances.py")


@pytest.fixture(scope="module")
def groups(example):
    """Return two groups of made-up records."""
    rng = np.random.default_rng(0)
    first, second = rng.beta(2, 4, (150, 3)), rng.beta(3, 3, (200, 3))
    return example.Groups("Made up", ("a", "b"), (first, second))


@pytest.fixture(scope="module")
def results(example, groups):
    """Return what the experiment finds on the made-up groups."""
    return example.run_experiment(groups, epsilons=(1.0, 8.0), n_runs=SMALL)


def test_adult_is_scaled_by_its_bounds(example, tmp_path):
    rows = [
        "90,?,1,x,16,x,x,x,x,Male,0,0,1,x,<=50K",
        "17,?,1,x,1,x,x,x,x,Female,0,0,99,x,>50K",
        "53.5,?,1,x,8.5,x,x,x,x,Female,0,0,50,x,>50K",
    ]
    path = tmp_path / "adult.csv"
    path.write_text("\n".join([ADULT_HEADER, *rows]))
    groups = example.adult_groups(path)
    assert (groups.title, groups.names) == ("Adult", ("Female", "Male"))
    np.testing.assert_allclose(groups.samples[0], [[0, 0, 1], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(groups.samples[1], [[1, 1, 0]])


def test_compas_is_filtered_and_clipped(example, tmp_path):
    rows = [
        "Male,54,x,African-American,1,4,1,0,30,0,F,0,Low,0",
        "Male,95,x,Caucasian,3,4,2,1,10,0,F,0,Low,0",
        "Male,95,x,Caucasian,3,4,2,1,10,99,F,0,Low,0",
        "Male,40,x,Other,0,4,0,0,10,0,F,0,Low,0",
    ]
    path = tmp_path / "compas.csv"
    path.write_text("\n".join([COMPAS_HEADER, *rows]))
    groups = example.compas_groups(path)
    assert groups.names == ("African-American", "Caucasian")
    np.testing.assert_allclose(groups.samples[0], [[0.5, 1, 0.4]])
    np.testing.assert_allclose(groups.samples[1], [[1, 0.5, 1]])


def test_costs_without_privacy(example, groups):
    value, of_plan = example.cost_without_privacy(groups)
    exact = ot.emd2([], [], ot.dist(*groups.samples))
    assert exact < of_plan < value
    assert value == pytest.approx(example.release_cost(groups, 1e7, 0), abs=1e-4)
    _, of_plan = example.cost_without_privacy(groups, reg=1e4)
    assert of_plan == pytest.approx(ot.dist(*groups.samples).mean(), rel=1e-3)


@pytest.mark.experiment
def test_laplace_noise_is_what_theory_says(example, results):
    assert results.expected == {1.0: 3 / 150, 8.0: 3 / 1200}
    ratios = np.concatenate(list(example.measured_over_expected(results).values()))
    assert ratios.mean() == pytest.approx(1, abs=4 / np.sqrt(len(ratios)))


def test_peer_gets_the_cost_of_its_histograms(example, groups):
    assert example.cells_per_feature(groups, 1.0) == int((1.0 * 350) ** 0.25)
    # With hardly any noise, all that is left is rounding to cells.
    released = example.peer_cost(groups, 1e6, 0, n_cells=4)
    rounded = [(np.minimum(np.floor(4 * sample), 3) + 0.5) / 4 for sample in groups.samples]
    expected, _ = example.cost_without_privacy(groups._replace(samples=rounded))
    assert released == pytest.approx(expected, rel=1e-6)


@pytest.mark.experiment
def test_output_has_the_least_error_and_noisy_sinkhorn_the_most(example, results):
    for epsilon in (1.0, 8.0):
        errors = {name: results.errors[epsilon, name].mean() for name in SMALL}
        assert errors[example.OUTPUT] == min(errors.values())
        assert errors[example.NOISY] == max(errors.values())


def test_noisy_sinkhorn_needs_a_large_regularisation(example, groups):
    released = [example.noisy_cost(groups, 8.0, k, reg=example.REG) for k in range(4)]
    assert set(released) <= {0.0, example.COST_RANGE}
    assert abs(example.noisy_cost(groups, 8.0, 0)) < 3


@pytest.mark.experiment
def test_table_and_figure(example, groups, results, capsys):
    example.print_answer(groups, example.release_divergence(groups))
    example.print_table(results)
    printed = capsys.readouterr().out
    assert "Made up, 150 a and 200 b, epsilon = 1: debiased divergence" in printed
    assert "Made up, groups of 150, 200 records" in printed
    assert all(name in printed for name in SMALL)
    for all_results in ([results], [results, results]):
        figure = example.draw(all_results)
        assert [len(axes.lines) for axes in figure.axes] == [6] * len(all_results)
        example.plt.close(figure)
