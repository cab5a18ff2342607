"""The time that a generator takes for a large table, and a comparison with MST on a made one.

Run with ``python -m pytest benchmarks -m benchmark -s -k test_tables``. Nothing is asserted
about time or accuracy. Public tables and more peers are in ``table_run.py``.

smartnoise-synth needs other versions of what both depend on. Let ``SKDPOT_SYNTH_PYTHON`` name the
interpreter of an environment that has it, and MST is compared with on a made table of categories.
It is asked for records that are drawn independently, given its marginals: as it is shipped, values
come out in order.
"""

import os
import time
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from benchmarks.contest import Contestant
from benchmarks.other_interpreter import OtherInterpreter
from skdpot import DPSinkhornGenerator

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("default")]
N_ROWS, N_COLUMNS = 1_000_000, 20


def fitted(schema, epsilon, frame, target):
    """Return a generator of a table, and how long its fit took."""
    generator = DPSinkhornGenerator(epsilon=epsilon, schema=schema, target=target)
    start = time.perf_counter()
    generator.fit(frame)
    return generator, time.perf_counter() - start


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
