"""The example of repaired tables: its pieces, a small run, and the real data."""

import os

import numpy as np
import pandas as pd
import pytest

from tests.oracles.people_files import ADULT_HEADER, COMPAS_HEADER

pytestmark = pytest.mark.experiment

VARIABLES = ("SKDPOT_ADULT", "SKDPOT_COMPAS")


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


def test_rows_are_held_out_once(example, table):
    train, test = example.divide(table, seed=3)
    assert len(train.rows) + len(test.rows) == len(table.rows)
    assert len(test.rows) == pytest.approx(0.3 * len(table.rows), rel=0.15)
    assert not np.array_equal(table.split(3), table.split(4))


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


def test_correlation_remover_leaves_no_correlation(example, table):
    train, test = example.divide(table, seed=0)
    rows, new_rows = example.remove_correlation(train, test)
    assert rows.shape[1] == new_rows.shape[1] == 4
    in_group = train.groups == "b"
    np.testing.assert_allclose(rows[in_group].mean(), rows[~in_group].mean(), atol=1e-9)


def test_chance_is_what_two_equal_groups_differ_by(example):
    groups = np.repeat(["a", "b", "small"], [1000, 3000, 10])
    chance = example.parity_by_chance(0.2, groups, min_group_size=500, n_draws=20_000)
    expected = 1.96 * np.sqrt(0.2 * 0.8 * (1 / 1000 + 1 / 3000))
    assert chance == pytest.approx(expected, rel=0.05)


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


@pytest.mark.usefixtures("no_data")
def test_without_data_the_example_says_so(example, capsys):
    example.main()
    lines = capsys.readouterr().out.splitlines()
    for line, variable in zip(lines, VARIABLES, strict=True):
        assert line.startswith(f"No data for {variable}") and "https://" in line


def real_table(example, variable, **options):
    """Return a table of the real data, or skip the test."""
    path = os.environ.get(variable)
    address, load = example.SOURCES[variable]
    if path is None:
        pytest.skip(f"set {variable} to the path of the data, which are to be had from {address}")
    return load(path, **options)


@pytest.mark.parametrize("variable", VARIABLES)
def test_repair_on_the_real_data(example, variable):
    options = {"SKDPOT_ADULT": {}, "SKDPOT_COMPAS": {"n_groups": 2}}[variable]
    table = real_table(example, variable, **options)._replace(is_test=None)
    parts = [
        example.Part(part.rows.iloc[:4000], part.target[:4000], part.groups[:4000])
        for part in example.divide(table, 0)
    ]
    before = example.judge(*parts, example.leave)
    support = example.FreeSupport(n_support=400)
    after = example.judge(
        *parts, lambda *parts, seed: example.move_to_barycenter(*parts, seed, method=support)
    )
    assert after.parity <= 0.03 + after.chance < before.parity + 0.03
    assert after.auc <= 0.6 < before.auc
    assert before.accuracy - after.accuracy <= 0.04
