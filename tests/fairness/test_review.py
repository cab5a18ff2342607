"""Single values, long tails, and extremes of parameters, which must not lead astray."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skdpot import FairBarycenterPreprocessor, PrivacyLedger
from skdpot.fairness import CandidateSupport, FoundGroups, FreeSupport
from skdpot.fairness._groups import read_labels
from skdpot.fairness._supports import nearest
from skdpot.releases import HistogramRelease, UnitLayout, group_weights
from skdpot.tables import Table, find_columns


def two_groups(n=60, n_columns=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(["a", "b"], n // 2)
    return rng.uniform(size=(n, n_columns)) + 0.2 * (labels == "b")[:, None], labels


# One record changes nothing of what others are read as
# -----------------------------------------------------


def kinds_of(X, **options):
    options = {"categorical_features": None, "categories": None, "missing": "none"} | options
    columns = find_columns(Table(X), np.arange(X.shape[1]), private=True, **options)
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


@pytest.mark.parametrize("odd", [["a", [1, 2]], [[1], [2, 3]], np.zeros((2, 2))], ids=str)
def test_private_labels_of_any_nesting_do_not_raise(odd):
    labels = read_labels(["a", odd, "b"], check=False)
    assert len(labels) == 3 and labels[0] == "a" and labels[2] == "b"


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


TOO_MUCH = {
    "order": {"method": CandidateSupport(order=2000)},
    "order and units": {"method": CandidateSupport(order=200, scale=False), "bounds": (-1e3, 1e3)},
    "candidates": {"method": CandidateSupport(np.full((9, 2), 1e160), n_support=1)},
    "bounds": {"bounds": (0.0, 1e-310)},
    "exact": {"method": CandidateSupport(n_support=10**6, method="exact")},
}


@pytest.mark.parametrize("params", TOO_MUCH.values(), ids=TOO_MUCH)
def test_what_would_fail_after_a_release_is_refused_before(params):
    X, labels = two_groups()
    ledger = PrivacyLedger(epsilon=1.0, neighbouring="replace_one")
    options = {"epsilon": 1.0, "groups": ["a", "b"], "bounds": (0, 1), "method": FreeSupport()}
    options |= params
    fair = FairBarycenterPreprocessor(ledger=ledger, **options)
    with pytest.raises(ValueError, match="range of doubles|pairs of points and candidates"):
        fair.fit(X, sensitive_features=labels)
    assert ledger.spent()[0] == 0


def test_huge_weights_have_a_sum():
    names = np.array(["a", "b"], dtype=object)
    np.testing.assert_array_equal(group_weights([1e308, 1e308], np.ones(2), names), 0.5)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_constant_category_costs_no_budget(delta):
    alone, beside = UnitLayout((0,), ()), UnitLayout((0,), (1,))
    shapes = [HistogramRelease(layout, 2, 1000, 1.0, delta).shape for layout in (alone, beside)]
    assert shapes[1] == (*shapes[0], 1)
    nothing = HistogramRelease(UnitLayout((), (1,)), 2, 1000, 1.0, delta)
    assert np.isfinite(nothing.expected_errors(1000)[0].error)


# Long tails, and numbers of any size
# -----------------------------------


def test_nearest_points_are_found_in_long_tails():
    rng = np.random.default_rng(0)
    for n_columns in (1, 3):
        points = np.exp(9 * rng.normal(size=(500, n_columns)))
        assert (nearest(points, points) == np.arange(500)).all()
        rows = np.exp(9 * rng.normal(size=(300, n_columns)))
        chosen = np.linalg.norm(rows - points[nearest(rows, points)], axis=1)
        every = np.linalg.norm(rows[:, None] - points, axis=2)
        np.testing.assert_allclose(chosen, every.min(axis=1), rtol=1e-6)


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


@pytest.mark.parametrize("method", ["coupling", "barycentric", "laguerre"])
def test_huge_new_rows_get_an_image_without_a_warning_in_threads(method):
    X, labels = two_groups()
    support = FreeSupport(n_support=5, transform_method=method)
    fair = FairBarycenterPreprocessor(method=support, n_jobs=2)
    Z = fair.fit(X, sensitive_features=labels).transform(
        np.full((4, 2), 1e200), sensitive_features=["a", "b", "a", "b"]
    )
    assert np.isfinite(Z).all()


def test_lower_bounds_are_not_negative():
    X, labels = two_groups()
    fair = FairBarycenterPreprocessor(
        method=CandidateSupport(n_support=5, order=30, method="bundle"), random_state=0
    )
    fair.fit(1e3 * np.log(X + 1e-3), sensitive_features=labels)
    assert 0 <= fair.lower_bound_ <= fair.objective_


def test_dropping_all_groups_is_refused():
    X, _ = two_groups(6)
    with pytest.raises(ValueError, match="leaves out all"):
        FairBarycenterPreprocessor(groups=FoundGroups(small="drop")).fit(
            X, sensitive_features=np.arange(6)
        )
