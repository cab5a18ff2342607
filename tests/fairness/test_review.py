"""Single values, long tails, and extremes of parameters, which must not lead astray."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot import FairBarycenterPreprocessor, PrivacyLedger
from skdpot.fairness import FreeSupport
from skdpot.tables import Table, find_columns


def two_groups(n=60, n_columns=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(["a", "b"], n // 2)
    return rng.uniform(size=(n, n_columns)) + 0.2 * (labels == "b")[:, None], labels


# One record changes nothing of what others are read as
# -----------------------------------------------------


def kinds_of(X, **options):
    options = {"categorical_features": None, "categories": None, "missing": "none"} | options
    columns = find_columns(Table(X), np.arange(X.shape[1]), **options)
    return [column.kind for column in columns]


@pytest.mark.parametrize("form", [None, "from_dtype"])
def test_private_kinds_are_those_declared_whatever_one_value_makes_of_a_type(form):
    numbers, words = [0.5, 0.25], ["x", "x"]
    frames = [
        pd.DataFrame({"u": numbers, "v": words}),
        pd.DataFrame({"u": [0.5, "x"], "v": words}),
        pd.DataFrame({"u": numbers, "v": [1, 2]}),
        pd.DataFrame({"u": [True, True], "v": [None, None]}),
    ]
    for frame in frames:
        kinds = kinds_of(frame, categorical_features=form, categories={"v": ["x"]})
        assert kinds == ["numeric", "nominal"]
    assert kinds_of(np.zeros((2, 2)), categories={1: [0, 1]}) == ["numeric", "nominal"]
    ordered = pd.DataFrame({"u": pd.Categorical(words, ordered=True)})
    assert kinds_of(ordered, categories={"u": ["x", "y"]}) == ["ordinal"]


def test_private_categories_of_polars_keep_a_type_that_works():
    values = pl.Series("c", ["x", "y", "x"] * 20, dtype=pl.Categorical)
    frame = pl.DataFrame([pl.Series("u", np.linspace(0, 1, 60)), values])
    fair = FairBarycenterPreprocessor(
        epsilon=1.0, groups=["a", "b"], bounds=(0, 1), method=FreeSupport(n_support=5),
        categories={"c": ["x", "y"]},
    ).set_output(transform="polars")  # fmt: skip
    repaired = fair.fit_transform(frame, sensitive_features=np.tile(["a", "b"], 30))
    assert repaired.schema["c"] == pl.Categorical
    whole = pl.DataFrame([pl.Series("c", ["x"] * 60, dtype=pl.Enum(["x"]))])
    assert kinds_of(whole, categories={"c": [1, 2]}) == ["nominal"]


# What may fail fails before it is charged
# ----------------------------------------


def test_what_would_fail_after_a_release_is_refused_before():
    X, labels = two_groups()
    ledger = PrivacyLedger(epsilon=1.0, neighbouring="replace_one")
    options = {"epsilon": 1.0, "groups": ["a", "b"], "bounds": (0.0, 1e-310)}
    fair = FairBarycenterPreprocessor(method=FreeSupport(), ledger=ledger, **options)
    with pytest.raises(ValueError, match="bounds must be a pair"):
        fair.fit(X, sensitive_features=labels)
    assert ledger.spent()[0] == 0


# Long tails, and numbers of any size
# -----------------------------------


def test_rows_of_a_long_tail_are_spread_over_the_support():
    rng = np.random.default_rng(1)
    labels = np.repeat(["a", "b"], 500)
    X = np.exp(7 * rng.normal(size=(1000, 1))) * np.where(labels == "b", 2.0, 1.0)[:, None]
    fair = FairBarycenterPreprocessor(method=FreeSupport(n_support=100), random_state=0)
    Z = fair.fit_transform(X, sensitive_features=labels)
    for label in "ab":
        counts = np.unique(Z[labels == label], return_counts=True)[1]
        assert counts.max() <= 20 and len(counts) > 90


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e200])
def test_scaled_columns_may_have_any_unit(unit):
    X, labels = two_groups()
    options = {"method": FreeSupport(n_support=20), "random_state": 0}
    plain, other = (
        FairBarycenterPreprocessor(**options).fit(table, sensitive_features=labels)
        for table in (X, X * unit)
    )
    assert other.objective_ == pytest.approx(plain.objective_)
    np.testing.assert_allclose(other.support_ / unit, plain.support_, rtol=1e-9)


def test_huge_new_rows_get_an_image_without_a_warning_in_threads():
    X, labels = two_groups()
    fair = FairBarycenterPreprocessor(method=FreeSupport(n_support=5), n_jobs=2)
    Z = fair.fit(X, sensitive_features=labels).transform(
        np.full((4, 2), 1e200), sensitive_features=["a", "b", "a", "b"]
    )
    assert np.isfinite(Z).all()


def test_lower_bounds_are_not_negative():
    X, labels = two_groups()
    fair = FairBarycenterPreprocessor(method=FreeSupport(n_support=5), random_state=0)
    fair.fit(1e3 * np.log(X + 1e-3), sensitive_features=labels)
    assert 0 <= fair.lower_bound_ <= fair.objective_
