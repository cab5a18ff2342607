"""Metrics of fairness: other packages' figures, closed forms, and their use as scorers."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, wasserstein_distance
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.tree import DecisionTreeClassifier

from skdpot.fairness.metrics import (
    group_auc,
    ks_between_groups,
    make_fairness_scorer,
    wasserstein_between_groups,
)

SCORES = [ks_between_groups, wasserstein_between_groups]


def labels_and_groups(seed=0, n=300):
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], size=n, p=[0.5, 0.3, 0.2])
    y_true = rng.integers(2, size=n)
    y_pred = (rng.random(n) < 0.3 + 0.2 * (groups == "b") + 0.3 * y_true).astype(int)
    return y_true, y_pred, groups


# ----------------------------------------------------------------------------------- decisions


def test_of_decisions_it_is_the_demographic_parity_difference_of_fairlearn():
    metrics = pytest.importorskip("fairlearn.metrics")
    y_true, y_pred, groups = labels_and_groups()
    both = pd.DataFrame({"letter": groups, "number": np.arange(len(groups)) % 2})
    for attribute in (groups, both, pl.DataFrame(both.to_dict("list")), both.values.tolist()):
        theirs = metrics.demographic_parity_difference(
            y_true, y_pred, sensitive_features=groups if attribute is groups else both
        )
        assert ks_between_groups(y_pred, sensitive_features=attribute) == pytest.approx(theirs)


def test_small_groups_are_left_out_if_asked():
    y_pred, groups = [1, 0, 1, 0, 1], list("aabbc")
    assert ks_between_groups(y_pred, sensitive_features=groups, min_group_size=2) == 0.0
    assert ks_between_groups(y_pred, sensitive_features=groups) == 0.5
    with pytest.raises(ValueError, match="two or more with at least 3 rows"):
        ks_between_groups(y_pred, sensitive_features=groups, min_group_size=3)


# ------------------------------------------------------------------------------ distributions


@given(st.integers(0, 10**6), st.booleans())
@settings(derandomize=True, max_examples=30, deadline=None)
def test_distances_equal_those_of_scipy(seed, tied):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, size=3)
    scores = rng.integers(5, size=sizes.sum()) if tied else rng.normal(size=sizes.sum())
    groups = np.repeat([2, 0, 1], sizes)
    pairs = [(scores[groups == i], scores[groups == j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    ks = max(ks_2samp(x, y, method="asymp").statistic for x, y in pairs)
    assert ks_between_groups(scores, sensitive_features=groups) == pytest.approx(ks, abs=1e-12)
    distance = max(wasserstein_distance(x, y) for x, y in pairs)
    ours = wasserstein_between_groups(scores, sensitive_features=groups)
    assert ours == pytest.approx(distance, abs=1e-12)


def test_wasserstein_distances_of_shifted_and_scaled_groups():
    x = np.random.default_rng(0).normal(size=50)
    groups = np.repeat(["a", "b"], 50)
    shifted = np.concatenate([x, x + 3])
    for order in (1, 2, 3.5):
        distance = wasserstein_between_groups(shifted, sensitive_features=groups, order=order)
        assert distance == pytest.approx(3.0)
    scaled = np.concatenate([x, 2 * x])
    distance = wasserstein_between_groups(scaled, sensitive_features=groups, order=2)
    assert distance == pytest.approx(np.sqrt(np.mean(x**2)))


# ------------------------------------------------------------------------------------- AUC


def test_auc_is_that_of_the_best_classifier():
    """Normal features one standard deviation apart: AUC = Phi(1 / sqrt 2) = 0.760."""
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=2000)
    X = (rng.normal(size=2000) + groups)[:, None]
    auc = group_auc(X, groups, estimator=LogisticRegression(), random_state=0)
    assert auc == pytest.approx(0.760, abs=4 * 0.011)
    assert group_auc(X, groups, cv=2, random_state=0) == pytest.approx(0.74, abs=0.05)


@pytest.mark.experiment
def test_auc_sees_what_no_linear_model_does():
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=600)
    X = rng.normal(size=(600, 1)) * (1 + 9 * groups[:, None])
    assert group_auc(X, groups, estimator=LogisticRegression(), random_state=0) < 0.6
    assert group_auc(X, groups, random_state=0) > 0.8


def test_auc_of_unrelated_features_is_one_half():
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(400, 2)), rng.integers(3, size=400)
    assert group_auc(X, groups, cv=2, random_state=0) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_auc_of_words_and_of_what_is_missing(frame):
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=400)
    words = np.where(groups == 1, "x", rng.choice(["y", "z"], size=400)).astype(object)
    words[:20] = None
    X = frame({"word": words.tolist(), "number": rng.normal(size=400).tolist()})
    assert group_auc(X, groups, cv=2, random_state=0) > 0.95
    if frame is pd.DataFrame:
        typed = X.astype({"word": "category"})
        assert group_auc(typed, groups, cv=2, random_state=0) > 0.95


@pytest.mark.experiment
def test_auc_takes_folds_attributes_and_classifiers():
    rng = np.random.default_rng(0)
    both = rng.integers(2, size=(400, 2))
    X = both @ [1.0, 2.0] + 0.1 * rng.normal(size=400)
    auc = group_auc(
        X[:, None], both, estimator=DecisionTreeClassifier(), cv=StratifiedKFold(2), random_state=0
    )
    assert auc > 0.99
    options = {"cv": 2, "random_state": 3}
    assert group_auc(X[:, None], both, **options) == group_auc(X[:, None], both, **options)


def test_auc_refuses_groups_that_are_too_small():
    X, groups = np.zeros((12, 1)), ["a"] * 10 + ["b"] * 2
    with pytest.raises(ValueError, match="2 rows, fewer than cv=5 folds.* by min_group_size, or"):
        group_auc(X, groups)
    with pytest.raises(ValueError, match="sensitive_features has 1"):
        group_auc(X, groups, min_group_size=5)


# ------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize(
    "scores, groups, message",
    [
        ([0.5, np.inf, 1.0], ["a", "b", "b"], "scores must be finite"),
        (["x", "y", "z"], ["a", "b", "b"], "scores must be finite numbers; they are text"),
        ([0.5, 0.7, 1.0], ["a", "b"], "inconsistent numbers of samples"),
        ([], [], "sensitive_features has 0"),
    ],
)
def test_distances_refuse_bad_input(metric, scores, groups, message):
    with pytest.raises(ValueError, match=message):
        metric(scores, sensitive_features=groups)


# --------------------------------------------------------------------------------- scorers


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X, y, (X["sex"] > 0).map({True: "one", False: "other"}).to_numpy()


def test_scorers_read_the_attribute_from_columns(diabetes):
    X, y, _ = diabetes
    scorers = {
        "ks": make_fairness_scorer(ks_between_groups, sensitive_features="sex"),
        "w2": make_fairness_scorer(wasserstein_between_groups, sensitive_features=1, order=2),
    }
    results = cross_validate(LinearRegression(), X, y, scoring=scorers, return_indices=True)
    model = LinearRegression().fit(*(part.iloc[results["indices"]["train"][0]] for part in (X, y)))
    test = X.iloc[results["indices"]["test"][0]]
    predicted = model.predict(test)
    ks = ks_between_groups(predicted, sensitive_features=test["sex"])
    w2 = wasserstein_between_groups(predicted, sensitive_features=test["sex"], order=2)
    assert results["test_ks"][0] == -ks
    assert results["test_w2"][0] == -w2


def test_scorers_take_metrics_of_fairlearn(diabetes):
    metrics = pytest.importorskip("fairlearn.metrics")
    X, y, groups = diabetes
    above = y > y.median()
    model = LogisticRegression().fit(X, above)
    theirs = metrics.demographic_parity_ratio(above, model.predict(X), sensitive_features=groups)
    for metric in (metrics.demographic_parity_ratio, partial(metrics.demographic_parity_ratio)):
        scorer = make_fairness_scorer(metric, sensitive_features="sex")
        copy = pickle.loads(pickle.dumps(scorer))
        assert scorer(model, X, above) == copy(model, X, above) == theirs > 0
