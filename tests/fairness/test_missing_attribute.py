"""Rows without the sensitive attribute: errors, and policies that accept them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression

from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.fairness import DeclaredGroups, FoundGroups
from skdpot.fairness._groups import find_groups, read_labels
from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer

MISSING = {"None": None, "NaN": np.nan, "NA": pd.NA}
SEX = ["f", "m", "f", "m", "f", "m", "f", "m"]
VALUES = np.arange(8.0)
# Policies for new rows of unknown groups: the nearest known group.
POLICIES = {
    "found": FoundGroups(unknown="nearest"),
    "declared": DeclaredGroups(["f", "m"], unknown="nearest"),
}


def a_table(missing=(), value=None, empty=False):
    """Return a table with the attribute of some rows missing, or an empty word."""
    sex = pd.Series(SEX, dtype=object)
    sex[list(missing)] = "" if empty else value
    return pd.DataFrame({"sex": sex, "value": VALUES})


def estimators(**options):
    """Return both fair estimators, each with a function that returns its results for a table."""
    repair = FairBarycenterPreprocessor("sex", random_state=0, **options)
    fair = FairBarycenterRegressor(
        sensitive_features="sex", sensitive_in_estimator=False, random_state=0, **options
    )
    return (
        (repair, lambda fitted, table: np.ravel(fitted.transform(table))),
        (fair, lambda fitted, table: fitted.predict(table)),
    )


@pytest.mark.parametrize("value", MISSING.values(), ids=MISSING)
def test_an_error_names_column_count_and_remedy(value):
    some = a_table([2, 5], value)
    said = "the sensitive attribute 'sex' contains NaN or None: it is missing in 2 of 8 rows, the "
    for estimator, images in estimators():
        with pytest.raises(ValueError, match=f"{said}first at position 2.*small='drop'"):
            estimator.fit(some, VALUES)
        estimator.fit(a_table(), VALUES)
        with pytest.raises(ValueError, match=f"{said}.*FoundGroups.unknown="):
            images(estimator, some)
    beside = FairBarycenterRegressor()
    two = pd.DataFrame({"sex": SEX, "age": [1, 2] * 4}).astype(object)
    two.loc[3, "age"] = value
    with pytest.raises(ValueError, match="column 'age' of sensitive_features .* in 1 of 8 rows"):
        beside.fit(VALUES[:, None], VALUES, sensitive_features=two)
    with pytest.raises(ValueError, match="in 1 of 3 rows, the first at position 1.* Leave out"):
        ks_between_groups([1.0, 2.0, 3.0], sensitive_features=["a", value, "b"])
    scorer = make_fairness_scorer(ks_between_groups, sensitive_features="sex")
    with pytest.raises(ValueError, match=f"{said}.*Leave out these rows"):
        scorer(FairBarycenterRegressor(), some, VALUES)


@pytest.mark.parametrize("value", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("policy", POLICIES)
def test_policies_for_unknown_groups_take_missing_labels(policy, value):
    some = a_table([2, 5], value)
    for estimator, images in estimators(groups=POLICIES[policy]):
        with pytest.raises(ValueError, match="in 2 of 8 rows"):
            estimator.fit(some, VALUES)
        estimator.fit(a_table(), VALUES)
        # Both groups are as large; the first is the nearest.
        as_if = a_table([2, 5], "f")
        np.testing.assert_array_equal(images(estimator, some), images(estimator, as_if))


def test_the_nearest_group_of_a_missing_label_is_the_largest_or_by_other_attributes():
    labels = read_labels([["f", 1], ["f", 1], ["f", 2], ["m", 2], ["m", 2], ["m", 2]])
    groups = find_groups(labels)
    new = read_labels([["f", None], [None, 1], [None, None]], may_miss=True)
    found = [groups.names[g] for g in groups.encode(new, "nearest")]
    assert found == [("f", 1), ("f", 1), ("m", 2)]


def test_an_empty_word_is_a_label():
    for estimator, images in estimators():
        estimator.fit(a_table([0, 2, 3, 5], empty=True), VALUES)
        assert estimator.groups_.tolist() == ["", "f", "m"]
        assert np.isfinite(images(estimator, a_table([1], empty=True))).all()


@pytest.mark.parametrize("value", MISSING.values(), ids=MISSING)
def test_rows_without_a_label_are_a_small_group(value):
    some = a_table([2, 5], value)
    for estimator, images in estimators(groups=FoundGroups(small="drop")):
        estimator.fit(some, VALUES)
        assert estimator.groups_.tolist() == ["f", "m"]
        untouched = images(estimator, some)[[2, 5]]
        if isinstance(estimator, FairBarycenterPreprocessor):
            np.testing.assert_array_equal(untouched, VALUES[[2, 5]])
    for estimator, images in estimators(groups=FoundGroups(small="merge")):
        estimator.fit(some, VALUES)
        assert estimator.groups_.tolist() == ["f", "m", "other"]
        assert np.isfinite(images(estimator, some)).all()


def test_with_epsilon_nothing_is_counted():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": SEX * 25, "value": rng.random(200)})
    some = table.copy()
    some.loc[[3, 4], "sex"] = None
    declared = {"bounds": (0, 1), "epsilon": 5.0, "groups": ["f", "m"]}
    ends = pd.DataFrame({"value": [0.0, 1.0]})
    model = FrozenEstimator(LinearRegression().fit(ends, [0.0, 1.0]))
    (repair, repaired), (fair, predicted) = estimators(**declared)
    fair.set_params(estimator=model)
    for estimator, images in ((repair, repaired), (fair, predicted)):
        # Rows without a label are not counted. An error would reveal that there are some.
        estimator.fit(some, some["value"])
        with pytest.raises(ValueError, match="'sex' contains NaN .* in some rows") as caught:
            images(estimator, some)
        assert "position" not in str(caught.value) and "unknown=" in str(caught.value)
        estimator.set_params(groups=DeclaredGroups(["f", "m"], unknown="nearest"))
        assert np.isfinite(images(estimator, some)).all()
