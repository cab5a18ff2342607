"""The fair preprocessor: groups and weights, barycenters and solvers, conventions of estimators."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import FoundGroups, FreeSupport
from tests.oracles.fair_tables import barycenter_cost, shifted_groups


def fit(X, labels, **params):
    params = {"random_state": 0} | params
    return FairBarycenterPreprocessor(**params).fit(X, sensitive_features=labels)


def fitted_attributes(estimator):
    return {name for name in vars(estimator) if name.endswith("_") or name == "_fitted"}


# The attribute
# -------------


def test_the_attribute_is_needed_for_new_rows_too():
    X, labels = shifted_groups((20, 25))
    with pytest.raises(ValueError, match="needs the sensitive attribute of every row"):
        fit(X, labels).transform(X)
    with pytest.raises(ValueError, match="none is left besides the sensitive attribute"):
        FairBarycenterPreprocessor([0, 1]).fit(X)
    with pytest.raises(NotFittedError):
        FairBarycenterPreprocessor(0).transform(X)
    requests = FairBarycenterPreprocessor().get_metadata_routing()
    assert requests.fit.requests == requests.transform.requests == {"sensitive_features": True}


# Groups and weights
# ------------------


def test_groups_are_in_order_and_weights_in_that_of_groups():
    X, labels = shifted_groups((10, 20, 30))
    numbers = np.array([{"a": 10, "b": 9, "c": 2}[label] for label in labels])
    fair = fit(X, numbers)
    assert fair.groups_.tolist() == [2, 9, 10] and fair.groups_.dtype == object
    np.testing.assert_allclose(fair.group_weights_, [1 / 2, 1 / 3, 1 / 6])
    for weights, expected in (
        ("uniform", [1 / 3] * 3), ({10: 1, 2: 2, 9: 5}, [0.25, 0.625, 0.125]), ([1, 1, 6], None),
        (np.array([0.5, 0.0, 0.5]), None), ([1.5e308, 0.5e308, 0.0], [0.75, 0.25, 0.0]),
    ):  # fmt: skip
        found = fit(X, numbers, weights=weights).group_weights_
        expected = np.array(weights) / np.sum(weights) if expected is None else expected
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1, 2, 3], "2 numbers, one per group"),
        ({"a": 1}, "as keys"),
        ([1, -1], "finite and non-negative"),
        ([0, 0], "not all zero"),
    ],
)
def test_weights_that_do_not_match_are_refused(weights, message):
    X, labels = shifted_groups((20, 25))
    with pytest.raises(ValueError, match=message):
        fit(X, labels, weights=weights)


def test_a_group_of_weight_0_has_no_say_but_is_moved():
    X, labels = shifted_groups((20, 30))
    fair = fit(X, labels, weights={"a": 1, "b": 0}, method=FreeSupport(n_support=20))
    assert fair.objective_ == pytest.approx(0, abs=1e-9)
    rows = {tuple(row) for row in np.round(X[labels == "a"], 9)}
    moved = fair.transform(X, sensitive_features=labels)[labels == "b"]
    assert {tuple(row) for row in np.round(moved, 9)} <= rows


def test_small_groups_follow_the_policy():
    X, labels = shifted_groups((20, 25, 1, 3))
    merged = fit(X, labels, groups=FoundGroups(small="merge", min_size=4))
    assert merged.groups_.tolist() == ["a", "b", "other"]
    assert merged.couplings_[2].shape[0] == 4
    dropped = fit(X, labels, groups=FoundGroups(small="drop", min_size=4))
    assert dropped.groups_.tolist() == ["a", "b"]
    np.testing.assert_allclose(dropped.group_weights_.sum(), 1)
    small = np.isin(labels, ["c", "d"])
    np.testing.assert_array_equal(dropped.transform(X, sensitive_features=labels)[small], X[small])
    # What fit leaves out has no part in the scale either.
    big = fit(X[~small], labels[~small])
    assert big.objective_ == pytest.approx(dropped.objective_)


def test_declared_groups_keep_their_order_and_must_have_rows():
    X, labels = shifted_groups((20, 25))
    assert fit(X, labels, groups=["b", "a"]).groups_.tolist() == ["b", "a"]
    with pytest.raises(ValueError, match="declared group 'c' has fewer than 2 rows"):
        fit(X, labels, groups=["a", "b", "c"])
    with pytest.raises(
        ValueError, match="are in groups that were neither declared nor in the fit: 'b'. Declare"
    ):
        fit(X, labels, groups=["a"])


def test_one_group_is_warned_of_where_it_is_fitted():
    X, _ = shifted_groups((10, 10))
    with pytest.warns(UserWarning, match="all rows are in one group") as caught:
        fair = fit(X, ["a"] * 20)
    assert caught[0].filename == __file__
    assert fair.objective_ == pytest.approx(0, abs=1e-9)


# Barycenters
# -----------


@pytest.mark.parametrize("sizes", [(12, 18), (9, 8, 11)])
def test_objective_bound_and_couplings(sizes):
    X, labels = shifted_groups(sizes)
    fair = fit(X, labels, method=FreeSupport(scale=False, n_support=10))
    assert fair.support_.shape == (10, 2)
    assert fair.objective_ == pytest.approx(barycenter_cost(X, labels, fair), rel=1e-6)
    assert 0 <= fair.lower_bound_ <= fair.objective_
    assert fair.n_iter_ >= 1
    for name, plan in zip(fair.groups_, fair.couplings_, strict=True):
        size = np.sum(labels == name)
        np.testing.assert_allclose(plan.sum(axis=0), 0.1, atol=1e-9)
        np.testing.assert_allclose(plan.sum(axis=1), 1 / size, atol=1e-9)
        assert plan.shape == (size, 10) and plan.data.min() >= 0


def test_one_column_has_the_averages_of_quantiles():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=40) ** 3, np.repeat(["a", "b"], 20)
    fair = fit(
        x[:, None], labels, weights=[0.25, 0.75], method=FreeSupport(n_support=20, scale=False)
    )
    expected = 0.25 * np.sort(x[:20]) + 0.75 * np.sort(x[20:])
    np.testing.assert_allclose(np.sort(fair.support_[:, 0]), expected)
    value = 0.25 * 0.75 * np.mean((np.sort(x[:20]) - np.sort(x[20:])) ** 2)
    assert fair.objective_ == pytest.approx(value)
    assert fair.lower_bound_ == pytest.approx(value)


@pytest.mark.experiment
def test_sizes_of_supports():
    X, labels = shifted_groups((30, 40))
    assert fit(X, labels).support_.shape == (50, 2)
    assert fit(X[:45], labels[:45]).support_.shape == (45, 2)
    assert fit(*shifted_groups((300, 400))).support_.shape == (70, 2)
    few = fit(X, labels, method=FreeSupport(max_rows=10))
    assert few.support_.shape == (20, 2)
    assert [plan.shape[0] for plan in few.couplings_] == [10, 10]
    assert few.transform(X, sensitive_features=labels).shape == X.shape
    assert fit(X, labels, method=FreeSupport(n_support=200)).support_.shape == (200, 2)


@pytest.mark.experiment
def test_units_do_not_matter_if_columns_are_scaled_and_offsets_never():
    # Of few rows, differences of columns, in their units, decide whether a repair helps.
    X, labels = shifted_groups((300, 400))
    fair = fit(X, labels)
    other = fit(X * [1000, -0.01] + [5, 7], labels)
    assert other.objective_ == pytest.approx(fair.objective_)
    np.testing.assert_allclose(other.support_, fair.support_ * [1000, -0.01] + [5, 7])
    options = {"method": FreeSupport(scale=False, n_support=20)}
    far = fit(X + 1e8, labels, **options)
    # Up to the tolerance of the method.
    assert far.objective_ == pytest.approx(fit(X, labels, **options).objective_, rel=1e-3)


def test_constant_columns_stay_what_they_are():
    X, labels = shifted_groups((30, 40), n_columns=1)
    # The mean of a hundred tenths is none.
    table = np.column_stack([X, np.full(70, 0.1)])
    fair = fit(table, labels, method=FreeSupport())
    np.testing.assert_allclose(fair.support_[:, 1], 0.1)
    off = fair.transform(table + [0, 0.5], sensitive_features=labels)
    np.testing.assert_allclose(off[:, 1], 0.1)
    line = fit(X, labels, method=FreeSupport())
    assert line.lower_bound_ - 1e-9 <= fair.objective_ < 1.1 * line.objective_


# An estimator
# ------------


def test_clones_pickles_and_parameters():
    X, labels = shifted_groups((20, 25))
    support = FreeSupport(n_support=10)
    fair = fit(X, labels, method=support, weights={"a": 1, "b": 2})
    assert fair.method is support and fair.get_params()["weights"] == {"a": 1, "b": 2}
    expected = fair.transform(X, sensitive_features=labels)
    for copy in (pickle.loads(pickle.dumps(fair)), clone(fair).fit(X, sensitive_features=labels)):
        np.testing.assert_array_equal(copy.transform(X, sensitive_features=labels), expected)
    assert not fitted_attributes(clone(fair))
    assert clone(fair).set_params(method__tol=0.5).method.tol == 0.5


def test_a_refit_forgets_the_earlier_one():
    X, labels = shifted_groups((20, 25, 15))
    frame = pd.DataFrame(X, columns=["x", "y"])
    fair = fit(frame, labels)
    once = fitted_attributes(fair)
    two = labels != "c"
    fair.fit(X[two], sensitive_features=labels[two])
    assert fitted_attributes(fair) == once - {"feature_names_in_"}
    fresh = fit(X[two], labels[two])
    np.testing.assert_array_equal(fair.support_, fresh.support_)
    assert fair.objective_ == fresh.objective_ and len(fair.couplings_) == 2


@pytest.mark.parametrize("max_rows", [None, 15])
def test_seeds_reproduce_whatever_the_number_of_jobs(max_rows):
    X, labels = shifted_groups((20, 25, 15))
    options = {"method": FreeSupport(n_support=12, max_rows=max_rows)}
    fair = fit(X, labels, **options)
    expected = fair.transform(X, sensitive_features=labels)
    for n_jobs in (1, 2, -1):
        again = fit(X, labels, n_jobs=n_jobs, **options)
        np.testing.assert_array_equal(again.support_, fair.support_)
        np.testing.assert_array_equal(again.transform(X, sensitive_features=labels), expected)
    assert (fit(X, labels, random_state=1, **options).support_ != fair.support_).any()


def test_parameters_are_validated_by_both_methods():
    X, labels = shifted_groups((20, 25))
    fair = fit(X, labels)
    with pytest.raises(ValueError, match="The 'tol' parameter of FreeSupport must be a float"):
        fit(X, labels, method=FreeSupport(tol=0))
    for name, value in (("repair_level", 1.5), ("interpolation", "mean"), ("method", 0)):
        bad = clone(fair).set_params(**{name: value})
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            bad.fit(X, sensitive_features=labels)
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            fair.set_params(**{name: value}).transform(X, sensitive_features=labels)
        fair.set_params(**{name: clone(FairBarycenterPreprocessor()).get_params()[name]})
