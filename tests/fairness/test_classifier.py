"""The fair classifier: probabilities, decisions by them, and scikit-learn's tools around it."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, make_scorer, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    cross_validate,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skdpot import FairBarycenterClassifier
from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer
from tests.fairness.test_private_regressor import FirstProbability


def people(n, seed):
    """Return rows with a group "f" or "m", and classes that depend on it."""
    rng = np.random.default_rng(seed)
    man = rng.random(n) < 0.6
    X = pd.DataFrame(
        {"sex": np.where(man, "m", "f"), "a": rng.normal(size=n) + man, "b": rng.normal(size=n)}
    )
    score = X["a"] + X["b"] + 0.5 * man + rng.logistic(size=n)
    return X, np.where(score > 1.5, "yes", "no")


MODEL = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["sex"]), remainder=StandardScaler()),
    LogisticRegression(),
)
X, Y = people(900, 0)
NEW, NEW_Y = people(3000, 1)
FAIR = FairBarycenterClassifier(MODEL, sensitive_features="sex", random_state=0)
SCORERS = ["roc_auc", "accuracy", "average_precision", "neg_log_loss", "neg_brier_score"]


def ks(scores, rows):
    return ks_between_groups(scores, sensitive_features=rows["sex"])


@pytest.fixture(scope="module")
def fitted():
    return clone(FAIR).fit(X, Y)


# ------------------------------------------------------------------------- what is computed


def test_probabilities_and_decisions_of_groups_are_alike(fitted):
    before, after = fitted.estimator_.predict_proba(NEW), fitted.predict_proba(NEW)
    assert after.shape == before.shape == (3000, 2)
    assert (after >= 0).all() and (after <= 1).all()
    np.testing.assert_allclose(after.sum(axis=1), 1)
    assert ks(before[:, 1], NEW) > 0.35 and ks(after[:, 1], NEW) < 0.08
    decisions = fitted.predict(NEW)
    np.testing.assert_array_equal(decisions, np.where(after[:, 1] > 0.5, "yes", "no"))
    rates = pd.Series(decisions == "yes").groupby(NEW["sex"].to_numpy()).mean()
    assert abs(rates["f"] - rates["m"]) < 0.06
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.score(NEW, NEW_Y) == accuracy_score(NEW_Y, decisions)
    # The price of parity: what is above guessing stays.
    assert roc_auc_score(NEW_Y, after[:, 1]) > roc_auc_score(NEW_Y, before[:, 1]) - 0.06


def test_without_repair_it_is_the_estimator(fitted):
    plain = clone(fitted).set_params(repair_level=0.0).fit(X, Y)
    np.testing.assert_array_equal(plain.predict_proba(NEW), plain.estimator_.predict_proba(NEW))
    np.testing.assert_array_equal(plain.predict(NEW), plain.estimator_.predict(NEW))


@pytest.mark.parametrize("labels", [("a", "b"), (0, 1), (-1, 1), (False, True), (2.0, 7.0)])
def test_classes_are_labels_of_any_type(labels):
    y = np.where(Y == "yes", labels[1], labels[0])
    fair = clone(FAIR).fit(X, y)
    assert fair.classes_.tolist() == list(labels)
    assert fair.predict(NEW).dtype == y.dtype and set(fair.predict(NEW).tolist()) == set(labels)
    assert fair.score(X, y) > 0.7


def test_no_decisions_with_equal_rates_are_more_accurate():
    """Among all rates, each accepting the most probable of every group (see the page of proofs)."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1], [400, 600])
    p = np.where(groups == 0, rng.beta(1, 3, 1000), rng.beta(3, 2, 1000))
    rows = np.column_stack([p, groups])
    fair = FairBarycenterClassifier(
        FrozenEstimator(FirstProbability().fit()), sensitive_features=1, n_quantiles=1000
    ).fit(rows, np.where(rng.random(1000) < p, "yes", "no"))

    def accuracy(accepted):
        return np.mean(np.where(accepted, p, 1 - p))

    ranks = np.empty(1000)
    for g in (0, 1):
        ranks[groups == g] = np.argsort(np.argsort(p[groups == g])) / (groups == g).sum()
    best = max(accuracy(ranks >= 1 - rate) for rate in np.linspace(0, 1, 201))
    assert accuracy(fair.predict(rows) == "yes") > best - 0.005
    assert best < accuracy(p > 0.5) - 0.03


def test_leaves_have_one_image_without_draws_and_then_tell_the_group():
    tree = make_pipeline(MODEL[0], DecisionTreeClassifier(max_leaf_nodes=6, random_state=0))
    fair = FairBarycenterClassifier(tree, sensitive_features="sex").fit(X, Y)
    drawn = fair.predict_proba(NEW)[:, 1]
    assert (drawn != fair.predict_proba(NEW)[:, 1]).any() and ks(drawn, NEW) < 0.08
    fair.set_params(ties="mean")
    means = fair.predict_proba(NEW)[:, 1]
    np.testing.assert_array_equal(means, fair.predict_proba(NEW)[:, 1])
    leaves = fair.estimator_.predict_proba(NEW)[:, 1]
    for sex in ("f", "m"):
        rows = (NEW["sex"] == sex).to_numpy()
        order = np.argsort(leaves[rows], kind="stable")
        assert (np.diff(means[rows][order]) >= 0).all()
        assert len(set(means[rows])) <= len(set(leaves[rows]))
    assert ks(means, NEW) > 0.2
    by_group = pd.Series(means).groupby(NEW["sex"].to_numpy()).mean()
    assert abs(by_group["f"] - by_group["m"]) < 0.04


# --------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "model, remedy",
    [
        (LinearSVC(), r"got LinearSVC\(\).*CalibratedClassifierCV around it"),
        (LinearRegression(), "must be a classifier.*FairBarycenterRegressor takes regressors"),
    ],
)
def test_a_model_without_probabilities_is_refused(model, remedy):
    fair = FairBarycenterClassifier(model, sensitive_features="sex")
    with pytest.raises(ValueError, match=remedy):
        fair.fit(X, Y)
    with pytest.raises(ValueError, match=remedy):
        fair.preview(100)


def test_the_remedy_for_decision_functions_works():
    calibrated = make_pipeline(MODEL[0], CalibratedClassifierCV(LinearSVC()))
    fair = FairBarycenterClassifier(calibrated, sensitive_features="sex", random_state=0).fit(X, Y)
    assert ks(fair.predict_proba(NEW)[:, 1], NEW) < 0.08 and fair.score(NEW, NEW_Y) > 0.7


@pytest.mark.parametrize(
    "y, message",
    [
        (np.arange(900) % 3, "Only binary classification .* is multiclass.*OneVsRestClassifier"),
        (np.full(900, "yes"), "y has one class, and a classifier needs two"),
        (None, "requires y to be passed"),
        (np.zeros((900, 2)), "1d array"),
    ],
)
def test_targets_that_are_no_two_classes_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        clone(FAIR).fit(X, y)


def test_the_classes_of_a_frozen_model_are_its_own():
    frozen = FrozenEstimator(clone(MODEL).fit(X, Y))
    fair = clone(FAIR).set_params(estimator=frozen).fit(X[:300], np.zeros(300))
    assert fair.classes_.tolist() == ["no", "yes"] and set(fair.predict(NEW)) == {"no", "yes"}
    three = FrozenEstimator(GaussianNB().fit(X[["a", "b"]], np.arange(900) % 3))
    options = {"sensitive_features": "sex", "sensitive_in_estimator": False}
    with pytest.raises(ValueError, match="probabilities of two classes"):
        FairBarycenterClassifier(three, **options).fit(X, Y)


# ------------------------------------------------------------------- as part of scikit-learn


def test_scorers_by_name():
    options = {"scoring": SCORERS, "cv": 3, "error_score": "raise"}
    found, plain = (cross_validate(one, X, Y == "yes", **options) for one in (FAIR, MODEL))
    for name in SCORERS:
        of_fair, of_model = (scores[f"test_{name}"] for scores in (found, plain))
        assert np.isfinite(of_fair).all(), name
        assert of_model.mean() - 0.1 < of_fair.mean() < of_model.mean() + 0.02, name


@pytest.mark.experiment
def test_a_search_finds_the_level_that_a_scorer_likes():
    scoring = {
        "roc_auc": "roc_auc",
        "ks": make_fairness_scorer(
            ks_between_groups, sensitive_features="sex", response_method="predict_proba"
        ),
    }
    grid = {"repair_level": [0.0, 0.5, 1.0]}
    results = GridSearchCV(FAIR, grid, scoring=scoring, refit=False, cv=3).fit(X, Y).cv_results_
    plain = cross_val_score(MODEL, X, Y, scoring="roc_auc", cv=3)
    assert results["mean_test_roc_auc"][0] == pytest.approx(plain.mean())
    assert (np.diff(results["mean_test_roc_auc"]) < 0).all()
    assert (np.diff(results["mean_test_ks"]) > 0).all()
    both = GridSearchCV(FAIR, grid, scoring=scoring, refit="ks", cv=3).fit(X, Y)
    assert both.best_params_ == {"repair_level": 1.0}
    np.testing.assert_array_equal(both.predict(NEW), both.best_estimator_.predict(NEW))


@pytest.mark.experiment
def test_calibration_and_thresholds_around_it_keep_groups_alike():
    calibrated = CalibratedClassifierCV(FAIR, cv=3).fit(X, Y)
    assert calibrated.classes_.tolist() == ["no", "yes"]
    assert ks(calibrated.predict_proba(NEW)[:, 1], NEW) < 0.08
    tuned = TunedThresholdClassifierCV(FAIR, scoring="balanced_accuracy", cv=3).fit(X, Y)
    decisions = tuned.predict(NEW)
    assert ks(decisions == "yes", NEW) < 0.08
    by_half = tuned.estimator_.predict(NEW)
    assert balanced_accuracy_score(NEW_Y, decisions) > balanced_accuracy_score(NEW_Y, by_half)


@pytest.mark.experiment
def test_in_pipelines_and_of_several_classes():
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["sex"]), remainder="passthrough"
    ).set_output(transform="pandas")
    fair = FairBarycenterClassifier(sensitive_features="onehotencoder__sex_m", random_state=0)
    model = make_pipeline(encoder, fair).fit(X, Y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert ks(model.predict_proba(NEW)[:, 1], NEW) < 0.08
    three = np.where(X["b"] > 1, "top", Y)
    several = OneVsRestClassifier(FAIR).fit(X, three)
    assert set(several.predict(NEW)) <= set(three)


def test_the_metrics_of_fairlearn():
    metrics = pytest.importorskip("fairlearn.metrics")
    difference, ratio = metrics.demographic_parity_difference, metrics.demographic_parity_ratio
    y = (Y == "yes").astype(int)
    scoring = {
        "difference": make_fairness_scorer(difference, sensitive_features="sex"),
        "ratio": make_fairness_scorer(ratio, sensitive_features="sex"),
    }
    fair, unfair = (cross_validate(model, X, y, scoring=scoring, cv=3) for model in (FAIR, MODEL))
    assert fair["test_difference"].mean() > -0.12 and unfair["test_difference"].mean() < -0.25
    assert fair["test_ratio"].mean() > 0.6 > unfair["test_ratio"].mean()
    frame = metrics.MetricFrame(
        metrics={"accuracy": accuracy_score, "rate": metrics.selection_rate},
        y_true=NEW_Y == "yes",
        y_pred=clone(FAIR).fit(X, Y).predict(NEW) == "yes",
        sensitive_features=NEW["sex"],
    )
    assert frame.difference()["rate"] < 0.06


def test_metadata_reaches_all_methods_by_default():
    others, sex = X[["a", "b"]], X["sex"]
    fair = FairBarycenterClassifier(random_state=0)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(fair, {"repair_level": [0.0, 1.0]}, cv=3, error_score="raise")
        search.fit(others, Y, sensitive_features=sex)
        assert (search.cv_results_["mean_test_score"] > 0.7).all()
        model = LogisticRegression().set_fit_request(sample_weight=True)
        weights = np.where(Y == "yes", 3.0, 1.0)
        weighted = FairBarycenterClassifier(model).fit(
            others, Y, sensitive_features=sex, sample_weight=weights
        )
        expected = LogisticRegression().fit(others, Y, sample_weight=weights)
        np.testing.assert_allclose(weighted.estimator_.coef_, expected.coef_)
        # The attribute is in X for the classifier, and beside it for the metric.
        scorer = make_scorer(selection_gap).set_score_request(sensitive_features=True)
        fair_by_column = clone(FAIR).set_fit_request(sensitive_features=False)
        gaps = cross_val_score(
            fair_by_column, X, Y, scoring=scorer, cv=3, params={"sensitive_features": sex}
        )
        assert (gaps < 0.2).all()
    model = fair.fit(others, Y, sensitive_features=sex)
    probabilities = model.predict_proba(others, sensitive_features=sex)
    decisions = model.predict(others, sensitive_features=sex)
    np.testing.assert_array_equal(decisions, model.classes_[probabilities.argmax(axis=1)])
    assert model.score(others, Y, sensitive_features=sex) == np.mean(decisions == Y)
    with pytest.raises(ValueError, match="needs the sensitive attribute of every row"):
        model.predict_proba(others)


def selection_gap(y_true, y_pred, sensitive_features):
    rates = [np.mean(y_pred[sensitive_features == group] == "yes") for group in ("f", "m")]
    return abs(rates[0] - rates[1])
