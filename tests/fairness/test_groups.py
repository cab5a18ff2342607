"""The sensitive attribute, however it is given: groups of labels, and policies for odd ones."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression

from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.fairness import DeclaredGroups, FoundGroups
from skdpot.fairness.metrics import ks_between_groups, make_fairness_scorer

TWICE = np.repeat(np.arange(3), 2)
FRAME = pd.DataFrame(
    {
        "sex": pd.Categorical(["f", "m", "f"]),
        "age": [1.0, 2.0, 3.0],
        "day": pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01"]),
        "hole": pd.array([1, 2, None], dtype="Int64"),
    }
).iloc[TWICE]


def fit(X, columns=None, beside=None, **params):
    fair = FairBarycenterPreprocessor(columns, random_state=0, **params)
    return fair.fit(X, sensitive_features=beside)


def groups_of(labels, **policy):
    """Return a fit to rows of one number with these labels."""
    return fit(np.arange(len(labels))[:, None], None, labels, groups=FoundGroups(**policy))


# Columns, and labels beside them
# -------------------------------


@pytest.mark.parametrize(
    "X, columns, groups, kept",
    [
        (FRAME[["sex", "age"]], "sex", ["f", "m"], ["age"]),
        (FRAME[["sex", "age"]], ["sex"], ["f", "m"], ["age"]),
        (FRAME[["age", "sex"]], np.int64(-1), ["f", "m"], ["age"]),
        (FRAME[["sex", "age"]].assign(x=0.5), ["age", 0], [(1.0, "f"), (2.0, "m"), (3.0, "f")],
         ["x"]),
        (pl.DataFrame({"sex": ["f", "m"] * 2, "age": [1, 2, 3, 4]},
                      schema_overrides={"sex": pl.Enum(["f", "m"])}), ["sex"], ["f", "m"], ["age"]),
        ([["f", 1.5], ["m", 2.5]] * 2, 0, ["f", "m"], ["x1"]),
        (np.array([[1, 0], [0, 2]] * 2), [1], [0, 2], ["x0"]),
    ],
)  # fmt: skip
def test_columns_are_found_by_name_and_by_position(X, columns, groups, kept):
    fair = fit(X, columns)
    assert fair.groups_.tolist() == groups and fair.get_feature_names_out().tolist() == kept


@pytest.mark.parametrize("matrix", [sparse.csr_array, sparse.coo_matrix])
def test_columns_of_sparse_matrices_hold_the_attribute(matrix):
    X = matrix([[1, 0], [3, 2]] * 5)
    fair = FairBarycenterRegressor(sensitive_features=1, cv=None, random_state=0)
    assert fair.fit(X, np.arange(10.0)).groups_.tolist() == [0, 2]


@pytest.mark.parametrize(
    "beside",
    [
        ["f", "m", "f", "m"],
        np.array(["f", "m"] * 2),
        pd.Series(["f", "m"] * 2, index=[7, 8, 9, 9]),
        pl.Series(["f", "m"] * 2),
        [["f"], ["m"]] * 2,
        pd.DataFrame({"sex": ["f", "m"] * 2}),
        ("f", np.str_("m"), "f", "m"),
    ],
    ids=lambda value: type(value).__module__ + "." + type(value).__name__,
)
def test_labels_beside_the_data(beside):
    groups = fit(FRAME[["age"]].iloc[:4], None, beside).groups_.tolist()
    assert groups == ["f", "m"] and {type(label) for label in groups} == {str}


def test_days_are_labels_whatever_holds_them():
    fits = [fit(FRAME[["age"]], None, days, groups=FoundGroups(small="drop"))
            for days in (FRAME["day"], FRAME["day"].to_numpy())]  # fmt: skip
    assert fits[0].groups_.tolist() == fits[1].groups_.tolist() and len(fits[0].groups_) == 2


@pytest.mark.parametrize(
    "X, columns, beside, message",
    [
        (FRAME, "sex", ["f"] * 6, "was given the sensitive attribute twice"),
        (FRAME, ["sex", 0], None, "one column of X, or several different ones"),
        (FRAME, True, None, "must be names or positions"),
        (FRAME, None, [1.0, np.inf, 2.0] * 2, "contains infinity"),
        (FRAME, None, ["f", "m"], "has 2 rows, and X has 6"),
        (FRAME, None, np.zeros((6, 1, 1)), "of shape"),
        (FRAME, None, "fmf", "got a single string"),
        (FRAME, None, [[1], {}, [2]] * 2, "argument must be a string, a number"),
        (FRAME.to_numpy(), "sex", None, "X is no data frame"),
        (np.arange(3.0), 0, None, "Reshape your data"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "a", None, "'a' of X is there twice"),
    ],
)
def test_what_is_wrong_is_said_without_quoting_rows(X, columns, beside, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(X, columns, beside)


# Which groups there are
# ----------------------


def test_equal_labels_are_one_group_and_all_types_are_sorted():
    fair = groups_of([1, "b", 1.0, np.str_("b"), 0.5, True, "a", 0.5, "a"])
    assert fair.groups_.tolist() == [0.5, 1, "a", "b"]
    np.testing.assert_allclose(fair.group_weights_, np.array([2, 3, 2, 2]) / 9)
    mixed = groups_of([("a", 1), ("a", "x"), (2, 1)] * 2)
    assert mixed.groups_.tolist() == [(2, 1), ("a", 1), ("a", "x")]


@pytest.mark.parametrize(
    "labels, groups, sizes",
    [
        ("aaabbcd", ["a", "b", "other"], [3, 2, 2]),
        ("aaabbc", ["a", "b"], [4, 2]),
        (["other", "other", "x", "a", "a"], ["a", "other"], [2, 3]),
    ],
)
def test_small_groups_merge_into_one_or_into_the_largest(labels, groups, sizes):
    fair = groups_of(list(labels), small="merge")
    assert fair.groups_.tolist() == groups
    np.testing.assert_allclose(fair.group_weights_, np.array(sizes) / sum(sizes))


def test_small_groups_can_be_refused_or_left_out():
    with pytest.raises(ValueError, match="2 rows, the smallest 1.*small='merge'.* smaller min"):
        groups_of(list("aabbc"))
    with pytest.raises(ValueError, match="n_samples=1 is fewer than min_size=2"):
        groups_of([1.0], small="merge")
    with pytest.raises(ValueError, match="leaves out all"):
        groups_of(list("abc"), small="drop")
    fair = groups_of(list("aabbc"), small="drop")
    assert fair.groups_.tolist() == ["a", "b"]
    assert fair.transform([[9.0]], sensitive_features=["c"]) == 9.0


def test_unknown_labels_are_refused_or_go_where_the_most_similar_one_is():
    def far(labels, **policy):
        # A row at 0 has an image of its own in every group.
        X = np.linspace(1, 2, len(labels))[:, None] * [[1.0]]
        fair = FairBarycenterRegressor(
            LinearRegression(),
            cv=None,
            repair_level=1,
            random_state=0,
            groups=FoundGroups(**policy),
        )
        return fair.fit(X, X[:, 0] ** 2, sensitive_features=labels)

    def assigned(fair, labels):
        fair.set_params(groups=FoundGroups(unknown="nearest"))
        x = np.array([[1.5]])
        of = {fair.predict(x, sensitive_features=[g]).item(): g for g in fair.groups_}
        assert len(of) == len(fair.groups_)
        return [of[fair.predict(x, sensitive_features=[label]).item()] for label in labels]

    ages = far([20, 30, 40] * 2)
    with pytest.raises(ValueError, match=r"2 rows, the first at position 1.* fit: 7, 12\. Found"):
        ages.predict(np.ones((3, 1)), sensitive_features=[20, 7, 12])
    assert assigned(ages, [33, 36.0, -5]) == [30, 40, 20]
    assert assigned(far(list("ababb")), ["x"]) == ["b"]
    assert assigned(far(list("aaabcc"), min_size=3, small="merge"), ["x"]) == ["other"]
    pairs = far([("f", 20), ("m", 50), ("m", 30)] * 2)
    new = [("f", 60), ("m", 38), ("x", 50), ("x", 24)]
    assert assigned(pairs, new) == [("f", 20), ("m", 30), ("m", 50), ("f", 20)]
    assert assigned(pairs, [("f", None), (None, 50)]) == [("f", 20), ("m", 50)]


# Rows without a label
# --------------------


MISSING = {"None": None, "NaN": np.nan, "NA": pd.NA}
SEX = ["f", "m", "f", "m", "f", "m", "f", "m"]
VALUES = np.arange(8.0)


def a_table(missing=(), value=None):
    """Return a table with another attribute of some rows."""
    sex = pd.Series(SEX, dtype=object)
    sex[list(missing)] = value
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
    two = pd.DataFrame({"sex": SEX, "age": [1, 2] * 4}).astype(object)
    two.loc[3, "age"] = value
    with pytest.raises(ValueError, match="column 'age' of sensitive_features .* in 1 of 8 rows"):
        FairBarycenterRegressor().fit(VALUES[:, None], VALUES, sensitive_features=two)
    with pytest.raises(ValueError, match="in 1 of 3 rows, the first at position 1.* Leave out"):
        ks_between_groups([1.0, 2.0, 3.0], sensitive_features=["a", value, "b"])
    scorer = make_fairness_scorer(ks_between_groups, sensitive_features="sex")
    with pytest.raises(ValueError, match=f"{said}.*Leave out these rows"):
        scorer(FairBarycenterRegressor(), some, VALUES)


@pytest.mark.parametrize(
    "policy", [FoundGroups(unknown="nearest"), DeclaredGroups(["f", "m"], unknown="nearest")]
)
def test_policies_for_unknown_groups_take_missing_labels(policy):
    some = a_table([2, 5], None)
    for estimator, images in estimators(groups=policy):
        with pytest.raises(ValueError, match="in 2 of 8 rows"):
            estimator.fit(some, VALUES)
        estimator.fit(a_table(), VALUES)
        # Both groups are as large; the first is the nearest.
        as_if = a_table([2, 5], "f")
        np.testing.assert_array_equal(images(estimator, some), images(estimator, as_if))


def test_an_empty_word_is_a_label():
    for estimator, images in estimators():
        estimator.fit(a_table([0, 2, 3, 5], ""), VALUES)
        assert estimator.groups_.tolist() == ["", "f", "m"]
        assert np.isfinite(images(estimator, a_table([1], ""))).all()


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
