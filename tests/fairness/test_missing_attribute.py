"""Rows without the sensitive attribute: repairs by the posterior, unaware repairs, and errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression

from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.fairness import ConditionalRepair, DeclaredGroups, FoundGroups
from skdpot.fairness._attribute import read_labels
from skdpot.fairness._groups import find_groups
from skdpot.fairness.metrics import group_auc, ks_between_groups, make_fairness_scorer

COLUMNS = ["x", "y", "count", "word", "noise"]
BY_POSTERIOR = FoundGroups(unknown="posterior")


def make_people(n_rows, seed=0):
    """Return a table with a group, and columns that depend on it, except ``noise``."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], n_rows, p=[0.5, 0.3, 0.2])
    number = np.searchsorted(["a", "b", "c"], group)
    x, y = rng.normal(size=(2, n_rows)) + [1.5 * number, 1.5 * (number == 1)]
    frame = pd.DataFrame({"group": group, "x": x, "y": y})
    frame["count"] = rng.poisson(2 + number)
    frame["word"] = np.where(rng.random(n_rows) < 0.3 + 0.2 * number, "yes", "no")
    frame["noise"] = rng.normal(size=n_rows)
    return frame


def fitted(people, **params):
    fair = FairBarycenterPreprocessor("group", random_state=0, **params)
    return fair.set_output(transform="pandas").fit(people)


def found_by_trees(rows, group):
    rows = rows.assign(word=rows["word"] == "yes") if "word" in rows else rows
    forest = RandomForestClassifier(50, min_samples_leaf=10)
    return group_auc(rows, group, estimator=forest, cv=3, random_state=0)


@pytest.fixture(scope="module")
def people():
    return make_people(1500), make_people(900, seed=1)


@pytest.mark.parametrize("method", ["support", "conditional"])
def test_rows_without_a_label_are_repaired_by_their_posterior(people, method):
    train, new = people
    numbers = method == "support"
    kept = ["group", "x", "y"] if numbers else ["group", *COLUMNS]
    train, new = train[kept], new[kept]
    fair = fitted(train, method=method, groups=BY_POSTERIOR)
    known = fair.transform(new)
    some = new.copy()
    some.loc[::3, "group"] = np.nan
    repaired = fair.transform(some)
    pd.testing.assert_frame_equal(repaired[some["group"].notna()], known[some["group"].notna()])
    none = new.assign(group=None)
    without = fair.transform(none)
    untouched = found_by_trees(new[kept[1:]], new["group"])
    with_posterior = found_by_trees(without, new["group"])
    assert found_by_trees(known, new["group"]) < with_posterior < untouched - 0.04
    if not numbers:
        assert set(without["word"]) == {"yes", "no"}


def test_a_label_that_is_certain_is_as_good_as_a_label():
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b"], 300)
    told = np.where(group == "a", "left", "right")
    frame = pd.DataFrame({"group": group, "told": told, "x": rng.normal(size=600), "z": 0.0})
    frame["x"] += 2 * (group == "b")
    fair = fitted(frame, groups=BY_POSTERIOR, method="conditional")
    known, unknown = fair.transform(frame), fair.transform(frame.assign(group=np.nan))
    # Draws may differ between the two calls, so a few rows may be further apart.
    assert np.mean(np.abs(unknown["x"] - known["x"]) < 0.3) > 0.95


def test_the_attribute_may_be_left_out_beside_X(people):
    train, new = people
    rows, group = train[COLUMNS], train["group"]
    fair = FairBarycenterPreprocessor(groups=BY_POSTERIOR, random_state=0)
    fair.fit(rows, sensitive_features=group)
    left_out = fair.transform(new[COLUMNS])
    missing = fair.transform(new[COLUMNS], sensitive_features=[None] * len(new))
    np.testing.assert_array_equal(left_out, missing)
    strict = FairBarycenterPreprocessor(random_state=0).fit(rows, sensitive_features=group)
    with pytest.raises(ValueError, match="needs the sensitive attribute"):
        strict.transform(new[COLUMNS])
    with pytest.raises(ValueError, match="contains NaN"):
        strict.transform(new[COLUMNS], sensitive_features=[None] * len(new))


def test_an_unaware_repair_needs_no_attribute_and_hides_the_group(people):
    train, new = people
    fair = fitted(train, method=ConditionalRepair(unaware=True))
    repaired = fair.transform(new)
    pd.testing.assert_frame_equal(repaired, fair.transform(new.assign(group=np.nan)))
    pd.testing.assert_frame_equal(repaired, fair.transform(new.assign(group="martian")))
    assert found_by_trees(new[COLUMNS], new["group"]) > 0.8
    by_posterior = fitted(train, groups=BY_POSTERIOR).transform(new.assign(group=None))
    hidden = found_by_trees(repaired, new["group"])
    assert hidden < 0.68 and hidden < found_by_trees(by_posterior, new["group"]) - 0.02


def test_an_unaware_repair_leaves_what_tells_nothing():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 5)), columns=[*"vwxyz"])
    frame["group"] = rng.choice(["a", "b"], 600)
    fair = fitted(frame, method=ConditionalRepair(unaware=True))
    np.testing.assert_array_equal(fair.transform(frame), frame[[*"vwxyz"]])


def test_rows_of_groups_that_are_left_out_stay_whole_in_an_unaware_repair(people):
    train = people[0].copy()
    train.loc[:4, "group"] = "z"
    groups = FoundGroups(min_size=20, small="drop")
    method = ConditionalRepair(unaware=True)
    fair = FairBarycenterPreprocessor("group", method=method, groups=groups, random_state=0)
    rows, _ = fair.repair(train, np.arange(len(train)) % 2)
    np.testing.assert_array_equal(rows[:5], train[COLUMNS][:5].astype(object).to_numpy())
    assert (rows[5:, 0] != train["x"][5:]).mean() > 0.9


def test_labels_are_needed_by_fit_and_by_what_cannot_do_without(people):
    train, _ = people
    with pytest.raises(ValueError, match="contains NaN"):
        fitted(train.assign(group=[None, *train["group"][1:]]), groups=BY_POSTERIOR)
    with pytest.raises(ValueError, match="open fits of FairBarycenterPreprocessor"):
        FairBarycenterRegressor(sensitive_features="group", groups=BY_POSTERIOR).fit(
            train[["group", "x"]], train["y"]
        )
    declared = DeclaredGroups(["a", "b", "c"], unknown="posterior")
    options = {"epsilon": 1.0, "bounds": (-5, 5), "groups": declared}
    with pytest.raises(ValueError, match="open fits of FairBarycenterPreprocessor"):
        fitted(train[["group", "x", "y"]], **options)


# Errors about missing labels, and policies that accept them
# ----------------------------------------------------------

MISSING = {"None": None, "NaN": np.nan, "NA": pd.NA}
SEX = ["f", "m", "f", "m", "f", "m", "f", "m"]
VALUES = np.arange(8.0)
# Policies for new rows of unknown groups: the nearest known group, or no repair.
POLICIES = {
    "nearest": FoundGroups(unknown="nearest"),
    "none": FoundGroups(unknown="none"),
    "declared": DeclaredGroups(["f", "m"], unknown="none"),
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
        known, found = images(estimator, a_table()), images(estimator, some)
        others = np.setdiff1d(np.arange(8), [2, 5])
        np.testing.assert_array_equal(found[others], known[others])
        if policy != "nearest":
            untouched = VALUES
            if isinstance(estimator, FairBarycenterRegressor):
                untouched = estimator.estimator_.predict(some[["value"]])
            np.testing.assert_allclose(found[[2, 5]], untouched[[2, 5]], atol=1e-9)


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
        estimator.set_params(groups=DeclaredGroups(["f", "m"], unknown="none"))
        assert np.isfinite(images(estimator, some)).all()
