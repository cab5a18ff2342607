"""The fair preprocessor in pipelines, searches and cross-validation, with both attribute ways."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import FreeSupport
from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer
from tests.oracles.fair_tables import in_polars, mixed_frame

NUMBERS = ["number", "whole"]
CATEGORIES = ["color", "word"]
FOLDS = StratifiedKFold(2, shuffle=True, random_state=0)
LEVELS = {"fair__repair_level": [0.0, 1.0]}


@pytest.fixture(scope="module")
def people():
    """Return rows with their group, and labels that follow from rows which tell of the group."""
    frame = mixed_frame(600)[[*NUMBERS, *CATEGORIES, "group"]]
    rng = np.random.default_rng(1)
    score = frame["number"] + 0.3 * frame["whole"] + (frame["word"] == "yes")
    return frame, (score + rng.normal(size=600) > score.median()).astype(int)


def boosting():
    return HistGradientBoostingClassifier(
        categorical_features="from_dtype", max_iter=15, max_leaf_nodes=8, random_state=0
    )


def scaled():
    """Return a transformer that scales numbers, makes words categories, and lets the rest pass."""
    return ColumnTransformer(
        [("numbers", StandardScaler(), NUMBERS), ("categories", OrdinalEncoder(), CATEGORIES)],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")


def fair_model(attribute):
    fair = FairBarycenterPreprocessor(
        attribute, categorical_features=CATEGORIES, method=FreeSupport(n_support=80), random_state=0
    ).set_output(transform="pandas")
    return Pipeline([("columns", scaled()), ("fair", fair), ("model", boosting())])


def assert_finds_the_difference(results):
    """Without a repair groups are treated differently, and with one alike."""
    parity, accuracy = results["mean_test_parity"], results["mean_test_accuracy"]
    assert parity[0] < -0.3 and parity[1] > -0.15
    assert accuracy[0] > 0.65 and accuracy[1] > 0.5


@pytest.mark.experiment
def test_a_search_with_the_attribute_as_a_column(people):
    X, y = people
    scoring = {
        "accuracy": "accuracy",
        "parity": make_fairness_scorer(ks_between_groups, sensitive_features="group"),
    }
    search = GridSearchCV(
        fair_model("group"), LEVELS, scoring=scoring, refit="parity", cv=FOLDS, error_score="raise"
    ).fit(X, y)
    assert_finds_the_difference(search.cv_results_)
    best = search.best_estimator_
    assert search.best_params_ == {"fair__repair_level": 1.0}
    assert best["fair"].feature_names_in_.tolist() == [*NUMBERS, *CATEGORIES, "group"]
    assert best["model"].feature_names_in_.tolist() == [*NUMBERS, *CATEGORIES]
    np.testing.assert_array_equal(search.predict(X), best.predict(X))
    assert best[:-1].get_feature_names_out().tolist() == [*NUMBERS, *CATEGORIES]
    # With no repair, the model is that of the columns without the attribute.
    plain = make_pipeline(scaled(), boosting().set_params(categorical_features=CATEGORIES))
    untouched = clone(best).set_params(
        fair__repair_level=0.0, model__categorical_features=CATEGORIES
    ).fit(X, y)  # fmt: skip
    features = X.drop(columns="group")
    np.testing.assert_array_equal(untouched.predict(X), plain.fit(features, y).predict(features))


def test_both_ways_are_the_same(people):
    X, y = people
    by_column = fair_model("group").fit(X, y).predict(X)
    group = X["group"].to_numpy()
    with config_context(enable_metadata_routing=True):
        model = fair_model(None).fit(X.drop(columns="group"), y, sensitive_features=group)
        by_metadata = model.predict(X.drop(columns="group"), sensitive_features=group)
    np.testing.assert_array_equal(by_column, by_metadata)


@pytest.mark.parametrize("form", [lambda frame: frame, in_polars], ids=["pandas", "polars"])
def test_categories_may_be_encoded_after_the_repair(people, form):
    X, y = people
    container = "pandas" if isinstance(form(X), pd.DataFrame) else "polars"
    fair = FairBarycenterPreprocessor("group", random_state=0).set_output(transform=container)
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), CATEGORIES), remainder=StandardScaler()
    )
    model = make_pipeline(fair, encoder, LogisticRegression()).fit(form(X), y)
    predicted = model.predict(form(X))
    rates = [predicted[X["group"] == name].mean() for name in "fm"]
    assert abs(rates[0] - rates[1]) < 0.1
    before = LogisticRegression().fit(model[1].fit_transform(form(X.drop(columns="group"))), y)
    differ = before.predict(model[1].transform(form(X.drop(columns="group"))))
    assert abs(np.diff([differ[X["group"] == name].mean() for name in "fm"])[0]) > 0.4


def test_names_that_a_transformer_changes_are_said_to_be_missing(people):
    X, y = people
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include=float)), remainder="drop"
    )
    fair = FairBarycenterPreprocessor("group")
    with pytest.raises(ValueError, match=r"no data frame with names(.|\n)*set_output"):
        make_pipeline(columns, fair).fit(X, y)
    columns.set_output(transform="pandas")
    with pytest.raises(ValueError, match="no column 'group'.*verbose_feature_names_out=False"):
        make_pipeline(columns, fair).fit(X, y)
