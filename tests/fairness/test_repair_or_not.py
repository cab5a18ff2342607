"""A repair that would do nothing, or harm, is not made and says so; columns keep what they are."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import ConditionalRepair
from tests.fairness.test_computed import IDENTITIES, table
from tests.oracles.fair_tables import WITHOUT_SEARCH, in_polars


def fitted(X, groups, **params):
    fair = FairBarycenterPreprocessor(random_state=0, **params).set_output(transform="pandas")
    return fair.fit(X, sensitive_features=groups)


@pytest.mark.parametrize("n_columns, asked", [(5, ConditionalRepair(tol=0)), (3, "support")])
def test_a_repair_of_groups_that_are_alike_changes_no_row_and_says_so(n_columns, asked):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(600, n_columns)), columns=list("abcde")[:n_columns])
    groups = rng.choice(["f", "m"], 600)
    with pytest.warns(UserWarning, match="changes no row"):
        fair = fitted(X, groups)
    assert fair.n_rows_changed_ == 0
    assert fair.transform(X, sensitive_features=groups).equals(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        always = fitted(X, groups, method=asked)
    assert always.n_rows_changed_ > 300 + 200 * (asked == "support")
    with pytest.warns(UserWarning, match="changes no row"):
        assert fitted(X[:30], groups[:30]).n_rows_changed_ == 0


@pytest.mark.parametrize("n_columns", [1, 2])
@pytest.mark.parametrize("method", ["auto", "conditional"])
def test_few_rows_of_groups_that_are_far_apart_are_repaired(method, n_columns):
    groups = np.array(["f", "m"] * 15)
    X = np.random.default_rng(0).normal(size=(30, n_columns)) + 6.0 * (groups == "m")[:, None]
    fair = FairBarycenterPreprocessor(method=method, random_state=0)
    moved = fair.fit_transform(X, sensitive_features=groups)
    assert fair.n_rows_changed_ == (moved != X).any(axis=1).sum() == 30
    assert np.abs(moved[::2].mean(axis=0) - moved[1::2].mean(axis=0)).max() < 1.0


def test_a_repair_that_makes_groups_easier_to_find_is_not_made():
    """Its learner sees a broken ratio, which no learner of single columns does."""
    X, groups = table(3000)
    # The groups hardly differ, but all of their columns are moved.
    X = X[["price", "loan"]].assign(ratio=IDENTITIES["a ratio"](X), more=X.price + X.loan)
    groups = np.where(np.random.default_rng(9).random(3000) < 0.8, "a", groups)
    with pytest.warns(UserWarning, match="easier to find"):
        fair = fitted(X, groups, computed={})
    found = fair.certificate_
    assert fair.n_rows_changed_ == 0
    assert fair.transform(X, sensitive_features=groups).equals(X)
    assert found.group_auc > found.group_auc_before
    first, *_ = str(found).splitlines()
    assert first.startswith("AUC of finding the group: before 0.")
    assert first.endswith(", which proves nothing.")
    assert "unrepaired rows to find the group" in str(found)
    forced = fitted(X, groups, computed={}, method=WITHOUT_SEARCH)
    assert forced.n_rows_changed_ > 1000


@pytest.mark.experiment
def test_groups_that_are_alike_share_a_map():
    """Of four groups two and two are alike: rows of either have the same images."""
    rng = np.random.default_rng(0)
    groups = rng.choice(list("abcd"), 2000)
    X = rng.normal(size=(2000, 4)) + 0.8 * np.isin(groups, ["c", "d"])[:, None]
    fair = FairBarycenterPreprocessor(method="conditional", random_state=0)
    fair.fit(X, sensitive_features=groups)
    new = rng.normal(size=(500, 4))
    images = [np.sort(fair.transform(new, sensitive_features=[g] * 500), axis=0) for g in "abcd"]
    assert np.allclose(images[0], images[1], atol=0.05)
    assert np.allclose(images[2], images[3], atol=0.05)
    assert np.abs(images[0] - images[2]).mean() > 0.5


@pytest.mark.parametrize(("of_a", "of_b"), [(0.0, 1.0), (0.1, 0.6), (1.0, 0.0)])
def test_the_share_of_missing_values_is_the_mean_of_those_of_the_groups(of_a, of_b):
    rng = np.random.default_rng(0)
    n = 2000
    other = rng.random(n) < 0.35
    lacks = rng.random(n) < np.where(other, of_b, of_a)
    X = pd.DataFrame(
        {
            "x": rng.normal(size=n) + other,
            "number": np.where(lacks, np.nan, rng.normal(size=n) + 2 * other),
            "word": np.where(lacks, None, rng.choice(["p", "q"], n)),
            "level": np.where(lacks, np.nan, rng.integers(0, 6, n)),
        }
    )
    groups = np.where(other, "b", "a")
    fair = fitted(X, groups, missing="category", method=WITHOUT_SEARCH)
    Z = fair.transform(X, sensitive_features=groups)
    for name in ("number", "word", "level"):
        shares = Z[name].isna().groupby(groups).mean()
        assert np.allclose(shares, 0.65 * of_a + 0.35 * of_b, atol=0.06), name


def test_integers_keep_their_type_where_values_are_whole():
    rng = np.random.default_rng(1)
    X, groups = table(1500)
    X = X.assign(
        small=rng.poisson(3, 1500).astype("uint8"), plain=X.age.astype("int64"), price=X.price / 3,
        gaps=pd.Series(rng.poisson(9, 1500)).astype("Int64").mask(np.arange(1500) % 5 == 0),
    )  # fmt: skip
    fair = fitted(X, groups, missing="category", method=WITHOUT_SEARCH)
    Z = fair.transform(X, sensitive_features=groups)
    assert Z.dtypes.astype(str).to_dict() == X.dtypes.astype(str).to_dict()
    assert Z.gaps.isna().any()
    of_polars = in_polars(X[["price", "gaps"]].assign(x=X.age)).cast(
        {"gaps": pl.Int8, "x": pl.Int16}
    )
    fair = fair.set_output(transform="polars").fit(of_polars, sensitive_features=groups)
    found = fair.transform(of_polars, sensitive_features=groups)
    assert found.schema == of_polars.schema and found["gaps"].has_nulls()


def test_columns_without_values_and_huge_numbers_are_no_error():
    X, groups = table(400)
    X = X.assign(none=np.nan, huge=np.where(np.arange(400) == 0, 1e39, X.age))
    Z = fitted(X, groups, missing="category", method=WITHOUT_SEARCH).transform(
        X, sensitive_features=groups
    )
    assert Z.none.isna().all()
    assert np.isfinite(Z.huge).all()


def test_an_attribute_that_is_a_number_gets_the_advice_to_make_bands():
    X, _ = table(400)
    ages = np.arange(400) / 2.0
    with pytest.raises(ValueError, match=r"400 different numbers.*make bands of it first"):
        fitted(X, ages)


@pytest.mark.experiment
def test_small_groups_are_told_once_and_not_for_each_fold():
    X, groups = table(600)
    groups = groups.astype(object)
    groups[:40] = "few"
    pipeline = make_pipeline(
        FairBarycenterPreprocessor("group", random_state=0), LogisticRegression(max_iter=1000)
    )
    X = X.drop(columns="job").assign(group=groups)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        cross_val_score(pipeline, X, X.price > X.price.median(), cv=3)
    told = [w for w in caught if "rows that are needed" in str(w.message)]
    assert len(told) == 1
