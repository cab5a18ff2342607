"""The example of repaired tables: its pieces, a small run, and the real data."""

import numpy as np
import pandas as pd
import pytest

from tests.oracles.people_files import ADULT_HEADER, COMPAS_HEADER

pytestmark = pytest.mark.experiment


@pytest.fixture(scope="module")
def example(load_example):
    """Return the example as a module."""
    return load_example("fairness/plot_fair_tables.py")


@pytest.fixture(scope="module")
def table(example):
    """Return a made-up table: one column that tells the group, one the target, and words."""
    rng = np.random.default_rng(100)
    groups = np.where(rng.random(1500) < 0.4, "a", "b")
    shift = 1.5 * (groups == "a")
    ability = rng.normal(size=1500)
    jobs = np.where(rng.random(1500) < 0.3 + 0.4 * (groups == "a"), "x", "y")
    rows = pd.DataFrame(
        {
            "height": np.round(rng.normal(size=1500) + shift, 1),
            "skill": np.round(ability + shift, 1),
            "job": pd.Categorical(jobs),
        }
    )
    target = (ability + 0.5 * shift + 0.3 * rng.normal(size=1500) > 0.8).astype(int)
    return example.Table("Made up", rows, target, groups)


@pytest.fixture(scope="module")
def results(example, table):
    """Return what the experiment finds on the made-up table."""
    return example.run_experiment(table, n_runs=1, min_group_size=50)


def test_adult_has_groups_of_one_attribute_or_two(example, tmp_path):
    rows = [
        "39,Private,1,x,13,Single,Sales,Wife,White,Male,5,0,40,Peru,<=50K,train",
        "50,?,1,x,9,Married,?,Husband,Black,Female,0,7,13,Cuba,>50K,test",
    ]
    path = tmp_path / "adult.csv"
    path.write_text("\n".join([f"{ADULT_HEADER},split", *rows]))
    table = example.adult_table(path)
    assert table.rows.to_numpy().tolist() == [[39, 13, 5, 0, 40], [50, 9, 0, 7, 13]]
    assert table.groups.tolist() == ["Male", "Female"]
    assert table.split(0).tolist() == [False, True]
    table = example.adult_table(path, attributes=("sex", "race"), categories=True)
    assert table.groups.tolist() == ["Male White", "Female Black"]
    assert list(table.rows)[5:] == example.ADULT_CATEGORIES
    assert table.rows["workclass"].tolist() == ["Private", ""]
    assert list(example.adult_table(path, ("race",), categories=True).rows)[-1] == "sex"


def test_compas_keeps_the_largest_groups(example, tmp_path):
    races = ["Other", "Caucasian", "African-American", "Caucasian", "African-American"]
    rows = [f"Male,{30 + n},x,{race},0,4,0,0,{n},0,F,0,Low,1" for n, race in enumerate(races)]
    path = tmp_path / "compas.csv"
    path.write_text("\n".join([COMPAS_HEADER, *rows]))
    assert example.compas_table(path).groups.tolist() == races
    table = example.compas_table(path, n_groups=2)
    assert table.groups.tolist() == races[1:]
    assert table.rows["priors_count"].tolist() == [1, 2, 3, 4]
    assert table.rows["sex"].tolist() == ["Male"] * 4


def test_quantiles_of_groups_agree_on_continuous_features(example):
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b"], [300, 700])
    values = rng.normal(size=1000) + 2 * (groups == "a")
    part = example.Part(pd.DataFrame({"x": values}), np.zeros(1000), groups)
    repaired, again = example.average_quantiles(part, part, values, values)
    np.testing.assert_array_equal(repaired, again)
    for level in (0.1, 0.5, 0.9):
        mean = 0.3 * np.quantile(values[:300], level) + 0.7 * np.quantile(values[300:], level)
        for name in "ab":
            assert np.quantile(repaired[groups == name], level) == pytest.approx(mean, abs=0.03)


def test_fair_thresholds_have_equal_rates_and_the_best_one(example, table):
    train, test = example.divide(table, seed=0)
    best = example.accuracy_of_fair_thresholds(train, test)
    assert best >= example.accuracy_of_fair_thresholds(train, test, rates=[0.7]) + 0.05
    fixed = [example.accuracy_of_fair_thresholds(train, train, rates=[rate])
             for rate in example.RATES]  # fmt: skip
    assert example.accuracy_of_fair_thresholds(train, train) == max(fixed)


def test_only_the_barycenter_hides_the_groups(example, results):
    scores = {name: [np.mean(value) for value in values]
              for name, values in results.scores.items()}  # fmt: skip
    scores = {name: example.Scores(*values) for name, values in scores.items()}
    hidden = scores.pop("barycenter")
    assert hidden.auc < 0.6 < min(other.auc for other in scores.values())
    assert hidden.parity < 2 * hidden.chance < scores["no repair"].parity
    assert scores["no repair"].accuracy > results.thresholds[0]
    assert hidden.accuracy > 0.6


def test_table_and_figure(example, table, results, capsys):
    example.print_results(results)
    twice = {name: example.Scores(*np.repeat(scores, 2, axis=1))
             for name, scores in results.scores.items()}  # fmt: skip
    example.print_results(results._replace(scores=twice, thresholds=np.repeat(0.8, 2)))
    printed = capsys.readouterr().out
    assert "Made up: 1500 rows, 2 groups; accuracy of fair thresholds 0.800 ± 0.000" in printed
    assert all(printed.count(f"\n{name} ") == 2 for name in example.REPAIRS)
    levels = (0.0, 1.0)
    path = example.along_the_way(table, min_group_size=50, levels=levels)
    for steps in path.values():
        assert steps[0].parity == results.scores["no repair"].parity[0]
        assert steps[1].parity == results.scores["barycenter"].parity[0]
    figure = example.draw(results, path, levels)
    assert [len(axes.lines) for axes in figure.axes] == [6, 6]
    example.plt.close(figure)
