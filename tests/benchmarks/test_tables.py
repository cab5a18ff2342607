"""Ordinary models that learn from private tables, the marginals of these, and times.

Run with ``SKDPOT_ADULT=path python -m pytest tests/benchmarks -m benchmark -s -k test_tables``; the
path is what `load_adult` reads. Nothing is asserted about time or accuracy. A
row of the comparison fits a generator to the 32,561 records to train with, draws as many, and
trains classifiers on these, which are tested on the other 16,281 records. Marginals are compared
over the cells of EDGES, by their distance in total variation: the mean over columns, over pairs of
columns, and over pairs of which one is the target. With ``SKDPOT_PEER=folder`` tables with a header
(``*.csv``), which another method drew from the same records, are more rows. On one core of a CPU
all rows take ten minutes.

smartnoise-synth needs other versions of what both depend on. Let ``SKDPOT_SYNTH_PYTHON`` name the
interpreter of an environment that has it, and MST is compared with on a made table of categories.
It is asked for records that are drawn independently, given its marginals: as it is shipped, values
come out in order.
"""

import os
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from skdpot import DPSinkhornGenerator
from skdpot.datasets import load_adult
from tests.benchmarks.contest import Contestant
from tests.benchmarks.other_interpreter import OtherInterpreter

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("default")]
needs_adult = pytest.mark.skipif("SKDPOT_ADULT" not in os.environ, reason="SKDPOT_ADULT: no path")

EPSILONS = (10.0, 1.0, 0.2)
N_FITS = 3
TARGET, RICH = "income", ">50K"
NUMBERS = {
    "age": range(17, 91),
    "fnlwgt": range(10_000, 1_500_001),
    "education_num": range(1, 17),
    "capital_gain": range(0, 100_000),
    "capital_loss": range(0, 4_501),
    "hours_per_week": range(1, 100),
}
# A cell begins at each of these.
EDGES = {
    "age": range(17, 91, 4),
    "fnlwgt": [0, *range(50_000, 250_001, 25_000), 300_000, 350_000, 450_000],
    "education_num": range(1, 17),
    "capital_gain": [0, 1, *range(1_000, 6_000, 1_000), 7_000, 8_000, 10_000, 15_000, 20_000],
    "capital_loss": [0, 1, 1_000, 1_400, *range(1_550, 2_051, 100), 2_200, 2_500],
    "hours_per_week": [1, 10, 20, 25, 30, 35, 40, 41, 45, 50, 55, 60, 70],
}
HEADINGS = ("boosting", "AUC", "logistic", "AUC", "one-way", "two-way", "with target")
N_ROWS, N_COLUMNS = 1_000_000, 20


def read_adult():
    """Return the records to train with, those to test with, and the schema of both."""
    data = load_adult(os.environ["SKDPOT_ADULT"])
    frame = pd.DataFrame(data.data.astype(np.int64), columns=data.feature_names)
    schema = dict(NUMBERS)
    for name, words in data.categories.items():
        frame[name] = pd.Series([word or None for word in words.tolist()], dtype=object)
        schema[name] = {"categories": sorted(set(words) - {""}), "missing": bool("" in words)}
    frame[TARGET] = np.array(data.target_names)[data.target]
    schema[TARGET] = data.target_names
    return frame[~data.is_test], frame[data.is_test], schema


def classifiers(words):
    """Return models of tables, some of whose columns have words."""
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    boosting = HistGradientBoostingClassifier(
        categorical_features=range(len(words)), early_stopping=True, random_state=0
    )
    one_hot = OneHotEncoder(handle_unknown="ignore")
    yield make_pipeline(make_column_transformer((codes, words), remainder="passthrough"), boosting)
    yield make_pipeline(
        make_column_transformer((one_hot, words), remainder=StandardScaler()),
        LogisticRegression(max_iter=300),
    )


def accuracies(made, test):
    """Return accuracies and areas under the curve of models of a table, on real records."""
    words = [name for name in made if name not in NUMBERS and name != TARGET]
    made, test = (frame.fillna(dict.fromkeys(words, "")) for frame in (made, test))
    rich = test[TARGET] == RICH
    for model in classifiers(words):
        model.fit(made.drop(columns=TARGET), made[TARGET] == RICH)
        chances = model.predict_proba(test.drop(columns=TARGET))[:, 1]
        yield np.mean((chances > 0.5) == rich)
        yield roc_auc_score(rich, chances)


def marginal_errors(made, real):
    """Return the mean distances of marginals in total variation."""
    both = pd.concat([made, real], keys=[0, 1])
    codes = {
        name: np.searchsorted(EDGES[name], column.astype(float), side="right")
        if name in EDGES
        else pd.factorize(column, use_na_sentinel=False)[0]
        for name, column in both.items()
    }
    whose = both.index.get_level_values(0)

    def distance(names):
        keys = [codes[name] for name in names]
        shares = pd.crosstab(keys, whose, normalize="columns")
        return (shares[0] - shares[1]).abs().sum() / 2

    pairs = {pair: distance(pair) for pair in combinations(codes, 2)}
    yield np.mean([distance([name]) for name in codes])
    yield np.mean(list(pairs.values()))
    yield np.mean([pairs[pair] for pair in pairs if TARGET in pair])


def show(name, made, train, test):
    figures = [*accuracies(made, test), *marginal_errors(made, train)]
    print(f"{name:24s}" + "".join(f"{figure:12.4f}" for figure in figures), flush=True)
    return figures


def fitted(schema, epsilon, frame, target):
    """Return a generator of a table, and how long its fit took."""
    generator = DPSinkhornGenerator(epsilon=epsilon, schema=schema, target=target)
    start = time.perf_counter()
    generator.fit(frame)
    return generator, time.perf_counter() - start


@needs_adult
def test_what_models_learn_from_a_private_table():
    train, test, schema = read_adult()
    print("\n" + " " * 24 + "".join(f"{heading:>12s}" for heading in HEADINGS))
    show("real", train, train, test)
    for path in sorted(Path(os.environ.get("SKDPOT_PEER", os.devnull)).glob("*.csv")):
        show(path.stem, pd.read_csv(path)[list(train)], train, test)
    for epsilon in EPSILONS:
        rows, times = [], []
        for i in range(N_FITS):
            generator, took = fitted(schema, epsilon, train, TARGET)
            made = generator.sample(len(train))[list(train)]
            rows.append(show(f"epsilon {epsilon:g}, fit {i}", made, train, test))
            times.append(took)
        means = "".join(f"{mean:12.4f}" for mean in np.mean(rows, axis=0))
        print(f"{f'epsilon {epsilon:g}, mean':24s}{means}   a fit takes {np.mean(times):.0f} s")


def test_a_million_rows():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, N_ROWS)
    frame = pd.DataFrame({f"x{j}": 10 * level + rng.normal(0, 5, N_ROWS) for j in range(10)})
    schema = dict.fromkeys(frame, (-50.0, 100.0))
    for j in range(4):
        frame[f"n{j}"], schema[f"n{j}"] = rng.poisson(3 + level), range(0, 60)
    letters = np.array(list("abcdefghij"))
    for j in range(5):
        frame[f"c{j}"] = letters[(level + rng.integers(0, 5, N_ROWS)) % 10]
        schema[f"c{j}"] = letters.tolist()
    frame["y"], schema["y"] = (
        np.where(level + rng.normal(size=N_ROWS) > 2, "yes", "no"),
        ["no", "yes"],
    )
    assert frame.shape == (N_ROWS, N_COLUMNS)
    generator, took = fitted(schema, 1.0, frame, "y")
    start = time.perf_counter()
    generator.sample(N_ROWS)
    print(f"\na fit takes {took:.0f} s, and a sample {time.perf_counter() - start:.0f} s")


MST = """
import functools, tempfile
import pandas as pd
from mbi import MarkovRandomField
from snsynth import Synthesizer

MarkovRandomField.synthetic_data = functools.partialmethod(
    MarkovRandomField.synthetic_data, method="sample"
)

def work(path):
    table = pd.read_csv(path)
    synthesizer = Synthesizer.create("mst", epsilon=1.0, delta=1e-5)
    synthesizer.fit(table, categorical_columns=list(table), preprocessor_eps=0.0)
    made = tempfile.mktemp(".csv")
    synthesizer.sample(len(table)).to_csv(made, index=False)
    return made
"""


def table_of_categories(n, seed):
    """Return records with six levels a column, of which the last one is to be predicted."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 6, n)
    columns = {f"c{j}": (level + rng.binomial(5, 0.1 + 0.1 * j, n)) % 6 for j in range(6)}
    other = rng.integers(0, 6, n)
    columns["other"] = other
    columns["y"] = ((level + (other > 2) + rng.normal(size=n)) > 3).astype(int)
    return pd.DataFrame(columns)


@pytest.mark.quick
def test_table_of_categories(contest, tmp_path):
    n = contest.size(20_000, 5_000)
    train, test = table_of_categories(n, 0), table_of_categories(n, 1)
    path = tmp_path / "train.csv"
    train.to_csv(path, index=False)
    schema = {name: {"categories": [0, 1] if name == "y" else [*range(6)]} for name in train}
    python = os.environ.get("SKDPOT_SYNTH_PYTHON")
    other = OtherInterpreter(python, MST) if python else None

    def ours():
        generator = DPSinkhornGenerator(1.0, 1e-5, schema=schema, target="y")
        return generator.fit(train).sample(n)[list(train)].astype(int)

    def roc_auc(made):
        one_hot = OneHotEncoder(handle_unknown="ignore")
        model = make_pipeline(one_hot, LogisticRegression(max_iter=300))
        model.fit(made.drop(columns="y"), made["y"])
        return roc_auc_score(test["y"], model.predict_proba(test.drop(columns="y"))[:, 1])

    def distances(made):
        """Return the mean distance in total variation of pairs of columns."""
        both = pd.concat([made, test], keys=[0, 1])
        whose = both.index.get_level_values(0)
        shares = [
            pd.crosstab([both[one], both[two]], whose, normalize="columns")
            for one, two in combinations(train, 2)
        ]
        return np.mean([(of[0] - of[1]).abs().sum() / 2 for of in shares])

    contest.compare(
        "DPSinkhornGenerator",
        f"fit to {n:,} records of {train.shape[1]} columns at epsilon 1, and draw as many",
        Contestant("DPSinkhornGenerator", ours),
        [
            # Without an interpreter that has it, it is looked for in this one, which cannot.
            Contestant(
                "smartnoise-synth, MST",
                lambda: pd.read_csv(other(path)),
                None if other else "snsynth",
            )
        ],
        {"AUC on real records": roc_auc, "distance of pairs of columns": distances},
        notes={
            "smartnoise-synth, MST": f"on real records the AUC is {roc_auc(train):.3f}; release "
            + (other.version("smartnoise-synth") if other else "")
        },
        rounds=(1, 3),
        clock=lambda: time.process_time() + (other.seconds if other else 0.0),
    )
    if other:
        other.close()
