"""Private fair predictions beside the published method.

Run with ``python -m pytest benchmarks/test_private_fairness.py -m benchmark -s``. With
``SKDPOT_FAIR_TABLES=folder`` rows are those of the public tables that `fair_tables` reads from it:
Adult, by sex and by race; grades of law students, by race; and crime in communities. Otherwise they
are made. A model is trained on a third of the rows, made fair with another third, and judged on the
last. What is printed are means over seeds: the largest Kolmogorov-Smirnov distance between groups,
the mean squared error, and the area under the curve (of targets above their median, for numbers).
"""

import os

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.fair_tables import load_fair_table
from benchmarks.private_regression import PublishedRegression
from skdpot import FairBarycenterClassifier, FairBarycenterRegressor
from skdpot.fairness.metrics import ks_between_groups

pytestmark = pytest.mark.benchmark

FOLDER = os.environ.get("SKDPOT_FAIR_TABLES")
EPSILONS = (0.1, 1.0, 10.0)
BINS = (6, 12, 24, 36)
N_SEEDS = 20


def made_scores():
    rng = np.random.default_rng(7)
    group = rng.integers(0, 3, 15_000)
    x = rng.normal(size=len(group)) * np.array([0.6, 1.0, 0.8])[group]
    X = pd.DataFrame({"x": x + np.array([0.0, 0.8, -0.5])[group], "group": group})
    return X, group, X["x"].to_numpy() + 0.5 * rng.normal(size=len(group)), (-5.0, 5.0)


def made_probabilities():
    rng = np.random.default_rng(8)
    group = rng.choice(3, 15_000, p=[0.6, 0.3, 0.1])
    x = rng.normal(size=len(group)) + np.array([0.0, 1.0, -1.0])[group]
    X = pd.DataFrame({"x": x, "group": group})
    return X, group, (rng.random(len(group)) < 1 / (1 + np.exp(2 - x))).astype(int), (0.0, 1.0)


def adult_by(attribute):
    table = load_fair_table("adult", FOLDER)
    groups = table.groups if attribute == "sex" else table.X["race"]
    return table.X, np.unique(groups, return_inverse=True)[1], table.target, (0.0, 1.0)


def law_grades():
    """Return grades of the first year, to be predicted from what was known before it."""
    X = load_fair_table("bar", FOLDER).X
    groups = np.unique(load_fair_table("bar", FOLDER).groups, return_inverse=True)[1]
    known = X["zfygpa"].notna()
    before = X.loc[known, ["lsat", "ugpa", "fam_inc", "tier", "fulltime", "gender"]]
    return before, groups[known], X.loc[known, "zfygpa"].to_numpy(), (-3.0, 3.0)


def communities():
    table = load_fair_table("communities", FOLDER)
    return table.X, np.unique(table.groups, return_inverse=True)[1], table.target, (0.0, 1.0)


PROBLEMS = {"made numbers": made_scores, "made probabilities": made_probabilities}
if FOLDER:
    PROBLEMS = {
        "Adult by sex": lambda: adult_by("sex"),
        "Adult by race": lambda: adult_by("race"),
        "law grades by race": law_grades,
        "communities": communities,
    }


def linear_model(X, is_classifier):
    words = make_column_selector(dtype_exclude="number")
    numbers = make_column_selector(dtype_include="number")
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), words),
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
    )
    model = LogisticRegression(max_iter=1000) if is_classifier else Ridge()
    return make_pipeline(columns, model)


def parts(n, rng):
    order = rng.permutation(n)
    return order[: n // 3], order[n // 3 : 2 * n // 3], order[2 * n // 3 :]


def judge(predictions, y, groups):
    above = y if set(np.unique(y)) <= {0, 1} else y > np.median(y)
    return (
        ks_between_groups(predictions, sensitive_features=groups),
        np.mean((predictions - y) ** 2),
        roc_auc_score(above, predictions),
    )


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_private_predictions(name, epsilon):
    X, groups, y, bounds = PROBLEMS[name]()
    is_classifier = set(np.unique(y)) <= {0, 1}
    found = {}
    for seed in range(N_SEEDS):
        rng = np.random.default_rng(10_000 + seed)
        train, fit, test = parts(len(y), rng)
        model = linear_model(X, is_classifier).fit(X.iloc[train], y[train])
        scores = model.predict_proba(X)[:, 1] if is_classifier else model.predict(X)

        def keep(method, predictions, test=test):
            found.setdefault(method, []).append(judge(predictions, y[test], groups[test]))

        keep("the model's own", scores[test])
        made = FairBarycenterClassifier if is_classifier else FairBarycenterRegressor
        fair = made(
            FrozenEstimator(model), epsilon=epsilon, groups=range(groups.max() + 1),
            bounds=None if is_classifier else bounds, random_state=seed,
        )  # fmt: skip
        fair.fit(X.iloc[fit], y[fit], sensitive_features=groups[fit])
        predict = fair.predict_proba if is_classifier else fair.predict
        moved = predict(X.iloc[test], sensitive_features=groups[test])
        keep("ours", moved[:, 1] if is_classifier else moved)
        for n_bins in BINS:
            published = PublishedRegression(bounds, n_bins, epsilon)
            published.fit(scores[fit], groups[fit], rng)
            keep(f"published, {n_bins} bins", published.predict(scores[test], groups[test], rng))
    print(f"\n{name}, {len(y) // 3} rows, epsilon {epsilon:g}")
    for method, results in found.items():
        mean, error = np.mean(results, axis=0), np.std(results, axis=0) / N_SEEDS**0.5
        told = zip(("KS", "MSE", "AUC"), mean, error, strict=True)
        print(f"  {method:20s} " + "  ".join(f"{n} {m:.4f} ({e:.4f})" for n, m, e in told))
