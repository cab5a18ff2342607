"""The conditional method of the fair preprocessor: tables of all kinds, pipelines, bad input."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import ConditionalRepair, FreeSupport
from skdpot.fairness.metrics import group_auc, ks_between_groups, make_fairness_scorer
from tests.oracles.fair_tables import WITHOUT_SEARCH, in_polars, mixed_frame

PEOPLE = mixed_frame(500)
FEATURES = [name for name in PEOPLE if name != "group"]


def make_fair(sensitive_features="group", **params):
    params = {"method": WITHOUT_SEARCH, "random_state": 0} | params
    return FairBarycenterPreprocessor(sensitive_features, **params).set_output(transform="pandas")


@pytest.fixture(scope="module")
def fitted():
    return make_fair().fit(PEOPLE)


def with_gaps(frame):
    """Return a frame in which values of all kinds are missing."""
    frame, rng = frame.copy(), np.random.default_rng(1)
    for name in ("number", "level", "color", "word"):
        frame.loc[rng.random(len(frame)) < 0.15, name] = None
    return frame


# Which method
# ------------


def test_a_few_numbers_get_a_support_and_all_else_is_conditional():
    numbers = np.random.default_rng(0).normal(size=(60, 4))
    groups = np.tile(["a", "b"], 30)
    for n_columns in (1, 3):
        fair = FairBarycenterPreprocessor().fit(numbers[:, :n_columns], sensitive_features=groups)
        assert fair.support_.shape[1] == n_columns
    wide = FairBarycenterPreprocessor().fit(numbers, sensitive_features=groups)
    mixed = FairBarycenterPreprocessor("group").fit(PEOPLE[["number", "word", "group"]])
    for fair in (wide, mixed):
        assert not hasattr(fair, "support_") and not hasattr(fair, "couplings_")
    # What a fit by the other method has left is gone.
    wide.set_params(method="support").fit(numbers, sensitive_features=groups)
    assert wide.support_.shape[1] == 4
    wide.set_params(method="conditional").fit(numbers, sensitive_features=groups)
    assert not hasattr(wide, "support_")


@pytest.mark.experiment
def test_a_coupling_of_the_common_part_changes_fewer_cells(fitted):
    method = clone(WITHOUT_SEARCH).set_params(coupling="common")
    rows = PEOPLE[FEATURES]
    by_rank, in_common = (
        (fair.transform(PEOPLE) == rows).to_numpy()
        for fair in (fitted, make_fair(method=method).fit(PEOPLE))
    )
    assert in_common[:, 0].mean() > 0.5 > by_rank[:, 0].mean()
    # A group with all the weight is the target, so its rows stay.
    fair = make_fair(method=method, weights={"f": 1.0, "m": 0.0}).fit(PEOPLE)
    stays = (fair.transform(PEOPLE) == rows).to_numpy().all(axis=1)
    assert stays[PEOPLE["group"] == "f"].all() and not stays.all()


# What leaves
# -----------


def ring_and_blob(n_rows, seed):
    """Return rows of two groups, of which one surrounds the other."""
    rng = np.random.default_rng(seed)
    group, angle = rng.integers(2, size=n_rows), rng.uniform(0, 2 * np.pi, size=n_rows)
    ring, blob = np.column_stack([np.cos(angle), np.sin(angle)]), rng.normal(size=(n_rows, 2))
    return np.where(group[:, None], 2 * ring + 0.25 * blob, blob), group


@pytest.mark.experiment
def test_groups_are_hidden_by_a_support_alone_where_few_rows_depend_on_them_in_no_simple_way():
    """What the automatic choice takes few numbers to a support for."""
    (rows, group), (new, of_new) = ring_and_blob(300, 0), ring_and_blob(800, 1)
    areas = {}
    for method in ("auto", "conditional"):
        fair = FairBarycenterPreprocessor(method=method, random_state=0)
        fair.fit(rows, sensitive_features=group)
        repaired = fair.transform(new, sensitive_features=of_new)
        areas[method] = group_auc(repaired, of_new, random_state=0)
    assert areas["auto"] < 0.65 < 0.75 < areas["conditional"]


@pytest.mark.experiment
def test_types_values_and_the_index_are_kept(fitted):
    repaired = fitted.transform(PEOPLE)
    assert repaired.columns.tolist() == FEATURES == fitted.get_feature_names_out().tolist()
    assert repaired.index.equals(PEOPLE.index)
    for name in ("level", "color", "word", "flag"):
        assert repaired[name].dtype == PEOPLE[name].dtype
        assert set(repaired[name]) <= set(PEOPLE[name])
    assert set(repaired["whole"]) <= set(PEOPLE["whole"])
    ends = PEOPLE["number"].min(), PEOPLE["number"].max()
    assert repaired["number"].between(*ends).all()
    assert group_auc(PEOPLE[FEATURES], PEOPLE["group"], random_state=0) > 0.85
    assert group_auc(repaired, PEOPLE["group"], random_state=0) < 0.6


def test_polars_frames_and_arrays_give_the_same_rows(fitted):
    expected = fitted.transform(PEOPLE)
    categories = {"level": ["low", "middle", "high"]}
    kinds = {"level": "ordinal", "color": "nominal", "word": "nominal", "flag": "nominal"}
    options = {"categorical_features": kinds, "categories": categories}
    of_polars = make_fair(**options).set_output(transform="polars").fit(in_polars(PEOPLE))
    repaired = of_polars.transform(in_polars(PEOPLE))
    assert isinstance(repaired, pl.DataFrame) and repaired.columns == FEATURES
    for name in FEATURES:
        assert repaired[name].to_list() == expected[name].tolist()
    array = PEOPLE.astype(object).to_numpy()
    positions = {FEATURES.index(name): kind for name, kind in kinds.items()}
    options = {"categorical_features": positions, "categories": {2: categories["level"]}}
    of_arrays = FairBarycenterPreprocessor(
        len(FEATURES), method=WITHOUT_SEARCH, random_state=0, **options
    )
    np.testing.assert_array_equal(of_arrays.fit_transform(array), expected.astype(object))


def test_a_row_has_the_same_image_in_whatever_table_it_is(fitted):
    whole = fitted.transform(PEOPLE)
    shuffled = PEOPLE.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(fitted.transform(shuffled), whole.loc[shuffled.index])
    different = PEOPLE.drop_duplicates().iloc[40:60]
    pd.testing.assert_frame_equal(fitted.transform(different), whole.loc[different.index])
    again = pickle.loads(pickle.dumps(fitted)).transform(PEOPLE)
    pd.testing.assert_frame_equal(again, whole)
    pd.testing.assert_frame_equal(clone(fitted).fit(PEOPLE).transform(PEOPLE), whole)


def test_equal_rows_are_drawn_apart(fitted):
    copies = PEOPLE.iloc[[3] * 200]
    images = fitted.transform(copies)
    assert images["word"].nunique() > 1 and images["whole"].nunique() > 1


def test_missing_values_of_all_kinds_stay_possible():
    gaps = with_gaps(PEOPLE)
    with pytest.raises(ValueError, match=r"contains NaN.*missing='category'"):
        make_fair().fit(gaps)
    fair = make_fair(missing="category").fit(gaps)
    new = with_gaps(mixed_frame(400, seed=1))
    repaired = fair.transform(new)
    assert repaired.drop(columns="whole").dtypes.equals(gaps[FEATURES].drop(columns="whole").dtypes)
    for name in ("number", "level", "color", "word"):
        assert 0.05 < repaired[name].isna().mean() < 0.3
    for name in ("whole", "flag"):
        assert not repaired[name].isna().any()
    half = fair.set_params(repair_level=0.5).transform(new)
    untouched = fair.set_params(repair_level=0.0).transform(new)
    pd.testing.assert_frame_equal(untouched, new[FEATURES], check_dtype=False)
    assert 0.05 < half["number"].isna().mean() < 0.3
    of_polars = make_fair(missing="category").set_output(transform="polars")
    gone = of_polars.fit(in_polars(gaps)).transform(in_polars(new))
    assert gone["number"].null_count() > 10 and gone["color"].null_count() > 10


def test_threads_change_nothing(fitted):
    expected = fitted.transform(PEOPLE)
    many = pd.concat([PEOPLE] * 20)
    repaired = make_fair(n_jobs=2).fit(PEOPLE).transform(many)
    np.testing.assert_array_equal(repaired[: len(PEOPLE)], expected)


# Given legitimate columns
# ------------------------


def conditional_table(n_rows, seed):
    """Return rows in which y tells the group only through x, and z by itself, too."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n_rows)
    x = rng.normal(size=n_rows) + (group == "b")
    y = x + rng.normal(size=n_rows)
    z = x + rng.normal(size=n_rows) + 2 * (group == "b")
    return pd.DataFrame({"x": x, "y": y, "z": z, "w": rng.normal(size=n_rows), "group": group})


def test_legitimate_columns_are_left_and_groups_are_alike_given_them():
    train, new = conditional_table(2000, 0), conditional_table(2000, 1)
    fair = make_fair(conditional_on="x").fit(train)
    repaired, group = fair.transform(new), new["group"]
    np.testing.assert_array_equal(repaired["x"], new["x"])
    assert np.abs(repaired["y"] - new["y"]).mean() < 0.25
    rest = repaired["z"] - np.polyval(np.polyfit(repaired["x"], repaired["z"], 1), repaired["x"])
    assert abs(rest[group == "a"].mean() - rest[group == "b"].mean()) < 0.15
    before = new["z"] - np.polyval(np.polyfit(new["x"], new["z"], 1), new["x"])
    assert abs(before[group == "a"].mean() - before[group == "b"].mean()) > 1
    by_position = make_fair(conditional_on=[0]).fit(train).transform(new)
    pd.testing.assert_frame_equal(by_position, repaired)


# Models
# ------


@pytest.mark.experiment
def test_searches_over_methods_and_levels():
    rng = np.random.default_rng(0)
    score = PEOPLE["number"] + 0.3 * PEOPLE["whole"] + (PEOPLE["word"] == "yes")
    y = (score + rng.normal(size=len(PEOPLE)) > score.median()).to_numpy().astype(int)
    X = PEOPLE.astype({"word": "category"})
    booster = HistGradientBoostingClassifier(
        categorical_features="from_dtype", max_iter=15, random_state=0
    )
    grid = {
        "fairbarycenterpreprocessor__method": ["conditional", FreeSupport(n_support=50)],
        "fairbarycenterpreprocessor__repair_level": [0.0, 1.0],
    }
    search = GridSearchCV(
        make_pipeline(make_fair(), booster), grid, cv=2, error_score="raise",
        scoring=make_fairness_scorer(ks_between_groups, sensitive_features="group"),
    ).fit(X, y)  # fmt: skip
    gaps = -search.cv_results_["mean_test_score"]
    assert gaps[[0, 2]].min() > 0.3 and gaps[[1, 3]].max() < 0.15
    assert search.best_estimator_.predict(X).shape == y.shape


# Bad input
# ---------


WRONG = {
    "method": ({"method": "columns"}, "method"),
    "tolerance": ({"method": ConditionalRepair(tol=0.7)}, "tol"),
    "rows": ({"method": ConditionalRepair(max_rows=0)}, "max_rows"),
    "no such column": ({"conditional_on": "wealth"}, "conditional_on names 'wealth'"),
    "the attribute": ({"conditional_on": "group"}, "conditional_on names 'group'"),
    "all columns": ({"conditional_on": FEATURES}, "none is left to repair"),
    "a support": (
        {"conditional_on": "word", "method": FreeSupport()}, "needs method='conditional'"
    ),
    "weights": ({"weights": [1.0]}, "weights"),
}  # fmt: skip


@pytest.mark.parametrize(("params", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused_and_an_earlier_fit_is_kept(fitted, params, told):
    fair = copy.deepcopy(fitted)
    before = fair.transform(PEOPLE.iloc[:5])
    changed = clone(fair).set_params(**params)
    vars(changed).update({name: value for name, value in vars(fair).items() if name[-1] == "_"})
    changed._fitted = fair._fitted
    with pytest.raises(ValueError, match=re.escape(told)):
        changed.fit(PEOPLE)
    kept = changed.set_params(**fair.get_params(deep=False)).transform(PEOPLE.iloc[:5])
    pd.testing.assert_frame_equal(kept, before)
