"""Coverage of intervals from synthetic sets, beside those of one synthetic table treated as real.

Run with ``SKDPOT_ADULT=path python -m pytest tests/benchmarks -m benchmark -s -k test_intervals``;
``SKDPOT_RUNS`` is the number of runs. Each simulates a private table of 10,000 records, at an
epsilon of 1. A run of all families takes 2 s of the processor. With ``SKDPOT_INTERVALS=folder``
runs are kept in files there, and those that were kept are not made again. `interval_results.json`
has the figures of the page on tables.
"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.datasets import load_adult
from skdpot.generative import TableSketch, combine

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("default")]

N_RECORDS, N_ROWS, N_SETS = 10_000, 30_000, 10
N_RUNS = int(os.environ.get("SKDPOT_RUNS", "20"))
# Of three tables: the 10 sets, one synthetic table taken for records, and the records themselves.
KEPT = [
    "estimate",
    "low",
    "high",
    "error",
    "of_one",
    "error_of_one",
    "of_records",
    "error_of_records",
]
N_KEPT_AT_ONCE = 20
RESULTS = Path(__file__).with_name("interval_results.json")


def logistic(z):
    return 1 / (1 + np.exp(-z))


def linear_model(columns, y):
    """Return the slopes of a linear model, and their robust variances."""
    rows = np.column_stack([np.ones(len(y)), *columns])
    inverse = np.linalg.inv(rows.T @ rows)
    slopes = inverse @ (rows.T @ y)
    scores = rows * (y - rows @ slopes)[:, None]
    return list(zip(slopes, np.diag(inverse @ (scores.T @ scores) @ inverse), strict=True))[1:]


def logistic_model(columns, y):
    """Return the slopes of a logistic model, and their robust variances."""
    rows = np.column_stack([np.ones(len(y)), *columns])
    slopes = np.zeros(rows.shape[1])
    for _ in range(12):
        p = logistic(rows @ slopes)
        inverse = np.linalg.inv((rows * (p * (1 - p) + 1e-9)[:, None]).T @ rows)
        slopes += inverse @ (rows.T @ (y - p))
    scores = rows * (y - logistic(rows @ slopes))[:, None]
    return list(zip(slopes, np.diag(inverse @ (scores.T @ scores) @ inverse), strict=True))[1:]


def mean(values):
    return values.mean(), values.var(ddof=1) / len(values)


def difference(values, of):
    first, second = values[of], values[~of]
    variance = first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second)
    return first.mean() - second.mean(), variance


class Survey:
    """Answers that three latent types give."""

    target = None
    shares = (
        [[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]],
        [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]],
        [[0.6, 0.2, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.1, 0.1, 0.2, 0.6]],
        [[0.8, 0.2], [0.5, 0.5], [0.3, 0.7]],
        [[0.4, 0.3, 0.2, 0.1], [0.3, 0.3, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]],
    )
    schema = {f"q{j}": range(len(of[0])) for j, of in enumerate(shares)}

    def make(self, n, rng):
        types = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        answers = {
            f"q{j}": (rng.random(n)[:, None] > np.cumsum(of, axis=1)[types, :-1]).sum(axis=1)
            for j, of in enumerate(self.shares)
        }
        return pd.DataFrame(answers)

    def analyse(self, table):
        q = [table[f"q{j}"].to_numpy(dtype=float) for j in range(5)]
        return {
            "means": [mean(q[0]), mean(q[2] == 3.0), mean(q[4])],
            "differences": [difference(q[0], q[3] == 1)],
            "slopes": linear_model([q[0], q[1], q[3]], q[4]),
        }


class Numbers:
    """Correlated numbers, one of which has a long tail."""

    target = None
    schema = {
        "age": (18.0, 90.0), "wage": (0.0, 120.0), "score": (0.0, 100.0), "stress": (0.0, 10.0),
    }  # fmt: skip
    correlations = [[1, 0.5, 0.3, 0.2], [0.5, 1, 0.4, 0], [0.3, 0.4, 1, -0.3], [0.2, 0, -0.3, 1]]

    def make(self, n, rng):
        a, w, s, t = np.linalg.cholesky(self.correlations) @ rng.normal(size=(4, n))
        numbers = (45 + 12 * a, 20 * np.exp(0.5 * w), 50 + 15 * s, 5 + 2 * t)
        columns = zip(self.schema.items(), numbers, strict=True)
        return pd.DataFrame({name: np.clip(of, *bounds) for (name, bounds), of in columns})

    def analyse(self, table):
        age, wage, score, stress = (table[name].to_numpy(dtype=float) for name in self.schema)
        return {
            "means": [mean(age), mean(wage), mean(wage > 30)],
            "differences": [difference(score, age > 50)],
            "slopes": linear_model([age, wage, stress], score),
        }


class Study:
    """A study with an outcome."""

    target = "ill"
    schema = {
        "age": range(30, 80), "sex": ["F", "M"], "smoke": ["no", "yes"], "treat": ["no", "yes"],
        "bmi": (15.0, 45.0), "ill": ["no", "yes"],
    }  # fmt: skip

    def make(self, n, rng):
        age, sex, treat = rng.integers(30, 80, n), rng.choice(2, n), rng.choice(2, n)
        smoke = rng.random(n) < logistic(-0.5 + 0.4 * sex - 0.02 * (age - 55))
        bmi = np.clip(24 + 0.06 * (age - 55) + 1.5 * smoke + 4 * rng.normal(size=n), 15, 45)
        risk = -1 + 0.04 * (age - 55) + 0.3 * sex + 0.6 * smoke - 0.5 * treat + 0.05 * (bmi - 25)
        table = {"age": age, "sex": np.where(sex, "M", "F"), "bmi": bmi}
        for name, of in {
            "smoke": smoke,
            "treat": treat,
            "ill": rng.random(n) < logistic(risk),
        }.items():
            table[name] = np.where(of, "yes", "no")
        return pd.DataFrame(table)[list(self.schema)]

    def analyse(self, table):
        age, bmi = (table[name].to_numpy(dtype=float) for name in ("age", "bmi"))
        smoke, treat, ill = (
            (table[name] == "yes").to_numpy() for name in ("smoke", "treat", "ill")
        )
        male = (table["sex"] == "M").to_numpy()
        return {
            "means": [mean(bmi), mean(ill * 1.0)],
            "differences": [difference(ill * 1.0, treat), difference(bmi, smoke)],
            "slopes": logistic_model(
                [(age - 55) / 10, male, smoke, treat, (bmi - 25) / 4], ill * 1.0
            ),
        }


class Adult:
    """Records of the Adult census, drawn with replacement."""

    target = "income"
    schema = {
        "age": range(17, 91), "school": range(1, 17), "hours": range(1, 100),
        "sex": ["Female", "Male"], "married": ["no", "yes"], "income": ["<=50K", ">50K"],
    }  # fmt: skip

    def __init__(self):
        data = load_adult(os.environ["SKDPOT_ADULT"])
        numbers = pd.DataFrame(data.data.astype(int), columns=data.feature_names)
        married = np.char.startswith(
            np.asarray(data.categories["marital_status"]).astype(str), "Married-civ"
        )
        columns = (
            numbers["age"], numbers["education_num"], numbers["hours_per_week"],
            data.categories["sex"], np.where(married, "yes", "no"),
            np.array(data.target_names)[data.target],
        )  # fmt: skip
        self.records = pd.DataFrame(dict(zip(self.schema, columns, strict=True)))

    def make(self, n, rng):
        if n > len(self.records):
            return self.records
        return self.records.iloc[rng.integers(0, len(self.records), n)].reset_index(drop=True)

    def analyse(self, table):
        age, school, hours = (
            table[name].to_numpy(dtype=float) for name in ("age", "school", "hours")
        )
        male, married = (table["sex"] == "Male").to_numpy(), (table["married"] == "yes").to_numpy()
        rich = (table["income"] == ">50K").to_numpy()
        columns = [(age - 38) / 10, school - 10, (hours - 40) / 10, male, married]
        return {
            "means": [mean(age), mean(hours), mean(rich * 1.0), mean(school >= 13)],
            "differences": [difference(rich * 1.0, male), difference(hours, male)],
            "slopes": [
                *logistic_model(columns, rich * 1.0),
                *linear_model([(age - 38) / 10, school - 10, male], hours),
            ],
        }


def flat(analysis):
    """Return the estimates and the variances of all parameters."""
    return np.array([pair for pairs in analysis.values() for pair in pairs]).T


def make_run(family, seed):
    """Return what is kept of a run, of each parameter."""
    table = family.make(N_RECORDS, np.random.default_rng(seed))
    generator = DPSinkhornGenerator(
        schema=family.schema, target=family.target, model=TableSketch(60, n_iter=150),
        random_state=seed,
    ).fit(table)  # fmt: skip
    one, real = (flat(family.analyse(of)) for of in (generator.sample(N_RECORDS), table))
    sets = [flat(family.analyse(made)) for made in generator.sample(N_ROWS, n_sets=N_SETS)]
    combined = combine(*np.swapaxes(sets, 0, 1))
    of_tables = [part for q, u in (one, real) for part in (q, np.sqrt(u))]
    return [combined.estimate, *combined.interval(), combined.standard_error, *of_tables]


def make_runs(family):
    """Return runs of a family, of shape (n_runs, n_kept, n_parameters)."""
    folder = os.environ.get("SKDPOT_INTERVALS")
    kept = None if folder is None else Path(folder) / f"{type(family).__name__.lower()}.npy"
    runs = list(np.load(kept)) if kept is not None and kept.exists() else []
    for seed in range(len(runs), N_RUNS):
        runs.append(make_run(family, seed))
        if kept is not None and (len(runs) % N_KEPT_AT_ONCE == 0 or len(runs) == N_RUNS):
            np.save(kept, runs)
    return np.array(runs[:N_RUNS])


def summarise(runs, truth):
    """Return figures of each parameter."""
    of = dict(zip(KEPT, np.swapaxes(runs, 0, 1), strict=True))
    estimate = of["estimate"]
    return {
        "truth": truth,
        "bias": estimate.mean(axis=0) - truth,
        "deviation": estimate.std(axis=0, ddof=1),
        "standard_error": np.sqrt(np.mean(of["error"] ** 2, axis=0)),
        "covered": np.mean((of["low"] <= truth) & (of["high"] >= truth), axis=0),
        "covered_by_one": np.mean(
            np.abs(of["of_one"] - truth) <= 1.96 * of["error_of_one"], axis=0
        ),
        "covered_by_records": np.mean(
            np.abs(of["of_records"] - truth) <= 1.96 * of["error_of_records"], axis=0
        ),
        "width": np.median(of["high"] - of["low"], axis=0),
        "width_of_one": 2 * 1.96 * np.median(of["error_of_one"], axis=0),
        "width_of_records": 2 * 1.96 * np.median(of["error_of_records"], axis=0),
    }


@pytest.mark.parametrize("family", [Survey, Study, Numbers, Adult])
def test_coverage(family):
    if family is Adult and "SKDPOT_ADULT" not in os.environ:
        pytest.skip("SKDPOT_ADULT: no path")
    family, rng = family(), np.random.default_rng(99)
    truths = [family.analyse(family.make(400_000, rng)) for _ in range(10)]
    truth = np.mean([flat(of)[0] for of in truths], axis=0)
    names = [f"{kind} {i + 1}" for kind, pairs in truths[0].items() for i in range(len(pairs))]
    figures = summarise(make_runs(family), truth)
    print(f"\n{type(family).__name__}, {N_RUNS} runs\n{'':14}", *(f"{key:>18}" for key in figures))
    for i, name in enumerate(names):
        print(f"{name:14}", *(f"{figures[key][i]:18.4f}" for key in figures))
    if "SKDPOT_INTERVALS" in os.environ:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        of_names = {
            name: {key: float(f"{of[i]:.4g}") for key, of in figures.items()}
            for i, name in enumerate(names)
        }
        results[type(family).__name__.lower()] = {"n_runs": N_RUNS, "parameters": of_names}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
