"""The board of fair tables: its peers and attackers, verdicts, and the tables of its page."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.fair_board import UNTOUCHED, brief
from benchmarks.fair_repairs import (
    OURS,
    REPAIRS,
    add,
    by_columns,
    draw,
    harms_of,
    load,
    measure,
    verdicts_of,
    with_ratios,
    write,
)
from benchmarks.fair_tables import SOURCES, FairTable, load_fair_table


def test_numbers_carry_their_standard_error():
    assert brief([0.8, 0.82]) == ".810(10)"
    assert brief([0.8]) == ".800"
    assert brief([-0.5, -0.5]) == "-.500(0)"
    assert brief([12.0, 12.0], 1) == "12.0(0)"


def table_of_two(n=2000):
    rng = np.random.default_rng(0)
    group, age = rng.integers(0, 2, n), rng.integers(20, 60, n)
    age = age + 5 * group
    word = np.where(rng.random(n) < 0.3 + 0.4 * group, "yes", "no")
    X = pd.DataFrame({"age": age, "square": age**2, "word": word})
    X.loc[(group == 1) & (rng.random(n) < 0.3), "age"] = np.nan
    return FairTable("adult", X, group.astype(str), (age + rng.normal(size=n) > 42).astype(int))


def test_a_map_by_column_makes_every_column_alike():
    split = draw(table_of_two(20_000), 10_000, 0)
    repaired = by_columns(split)
    for column in repaired.test.T:
        means = [column[split.test.groups == group].mean() for group in "01"]
        assert np.ptp(means) < 0.12 * column.std()


def test_a_broken_identity_is_seen():
    X = np.random.default_rng(0).uniform(1, 3, (200, 3))
    X[:, 2] = X[:, 0] / X[:, 1]
    # Three columns, and a difference and two ratios of each pair come first.
    assert np.ptp(with_ratios(X, [0, 1, 2])[:, 12]) < 1e-4
    X[0, 2] += 1
    assert np.ptp(with_ratios(X, [0, 1, 2])[:, 12]) > 0.5


def test_results_of_repairs_are_kept_and_compared(tmp_path):
    table, path = table_of_two(), tmp_path / "results.json"
    for contender in REPAIRS[:3]:
        add(path, list(measure(table, 500, draw(table, 500, 0), contender)))
    results = load(path)
    assert len(results) == 6
    assert harms_of(results)[500, "adult"] < 0.1
    verdicts = verdicts_of(results)
    assert set(verdicts["comparison"]) <= {"rows, by group AUC", "rows, by KS"}
    # A peer that is far better, and reaches the same gap.
    better = results[results["contender"] == OURS].assign(contender="peer", AUC=1.0, is_ours=False)
    verdicts = verdicts_of(pd.concat([results, better]))
    assert set(verdicts["peer"]) == {"peer"}
    assert set(verdicts["verdict"]) == {"LOST"}


def test_the_tables_of_the_page_are_written(tmp_path):
    results = pd.DataFrame(
        [
            {
                **{"n_rows": 500, "table": "adult", "contender": name, "kind": "repair"},
                **{"is_ours": name == OURS, "model": model, "split": 0, "accuracy": 0.8},
                **{"AUC": utility, "gap": 0.1, "KS": 0.2, "group": 0.6},
            }
            for name, utility in ((UNTOUCHED, 0.9), (OURS, 0.8))
            for model in ("linear", "boosting")
        ]
    )
    write(results, tmp_path)
    means = (tmp_path / "fair_tables_500.csv").read_text().splitlines()
    assert means[1] == "no repair,.900 / .900,.800 / .800,.100 / .100,.200 / .200,.600,1"
    assert "adult,500,.900 / .900,.800 / .800" in (tmp_path / "fair_tables.csv").read_text()
    lost = (tmp_path / "fair_tables_lost.csv").read_text().splitlines()
    assert lost[1] == '500,adult,linear,"rows, by group AUC",-.100,no repair'


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_table_says_where_it_is(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Get it: https://"):
        load_fair_table(name, tmp_path)


def test_another_table_is_refused(tmp_path):
    lines = ["age,sex,bmi,children,smoker,region,charges", "19,female,27.9,0,yes,southwest,16884.9"]
    (tmp_path / "insurance.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="another table than the one that was measured"):
        load_fair_table("insurance", tmp_path)
