"""The example of fair premiums: its pieces, the data that are there, and the real data."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tests.oracles.people_files import ADULT_HEADER


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("fairness/plot_fair_premium.py")


@pytest.fixture(scope="module")
def simulated(example):
    """Return what is measured on ten sets of simulated data."""
    return [example.measure(example.simulated_task(4000, seed), seed + 50) for seed in range(10)]


def test_value_of_the_simulated_barycenter(example):
    def spread(rank):
        quantiles = example.INTERCEPTS + example.SLOPES * norm.ppf(rank)
        return example.SHARES @ (quantiles - example.SHARES @ quantiles) ** 2

    assert pytest.approx(quad(spread, 0, 1)[0], rel=1e-6) == example.VALUE


def test_risk_grows_by_the_value_of_the_barycenter(example, simulated):
    increases = np.array([one.increase for one in simulated])
    error = np.sqrt(np.mean([one.standard_error**2 for one in simulated]) / len(simulated))
    assert abs(increases.mean() - example.VALUE) <= 3 * error
    assert error < 0.03 * example.VALUE
    for one in simulated:
        assert one.value == pytest.approx(example.VALUE, rel=0.15)
        assert one.change == pytest.approx(one.value, rel=0.15)
    # Fair predictions differ by chance only.
    within = [one.ks_after <= one.ks_error for one in simulated]
    assert sum(within) >= 8
    assert all(one.ks_before > 5 * one.ks_error for one in simulated)


def test_diabetes(example):
    task = example.diabetes_task()._replace(n_runs=10)
    runs = example.measure_often(task)
    assert task.rows.shape == (442, 10) and set(task.rows["sex"]) == {0, 1}
    assert np.mean([run.ks_after <= run.ks_error for run in runs]) >= 0.8
    increase, error = (np.mean([getattr(run, name) for run in runs])
                       for name in ("increase", "standard_error"))  # fmt: skip
    assert abs(increase - np.mean([run.value for run in runs])) <= 2 * error


def test_adult_predicts_hours(example, tmp_path):
    rows = [
        "39,Private,1,x,13,Single,Sales,Wife,White,Male,5,0,40,Peru,<=50K",
        "50,?,1,x,9,Married,?,Husband,Black,Female,0,7,13,Cuba,>50K",
    ]
    path = tmp_path / "adult.csv"
    path.write_text("\n".join([ADULT_HEADER, *rows]))
    task = example.adult_task(path)
    assert task.target.tolist() == [40, 13]
    assert task.rows["sex"].tolist() == ["Male", "Female"]
    assert "hours_per_week" not in task.rows


def test_tables_and_figure(example, simulated, capsys):
    levels = (0.5, 1.0)
    task = example.simulated_task(4000, 0)
    way = example.along_the_way(task, levels, seed=50)
    assert way[1].increase == simulated[0].increase
    assert way[0].increase < way[1].increase / 2
    example.print_table([simulated, simulated[:1]])
    example.print_way(way, levels)
    printed = capsys.readouterr().out
    assert printed.count("\nSimulated") == 3
    assert f"theory {example.VALUE / 4:.4f}" in printed
    figure = example.draw([simulated[0], example.measure(example.diabetes_task())])
    assert [len(axes.patches) for axes in figure.axes] == [3, 2, 3, 2]
    example.plt.close(figure)


@pytest.mark.usefixtures("no_data")
def test_without_adult_the_rest_is_shown(example, capsys):
    assert [task.title for task in example.load_tasks()] == ["Simulated", "Diabetes"]
    printed = capsys.readouterr().out
    assert printed.startswith("No data for SKDPOT_ADULT") and "https://" in printed
