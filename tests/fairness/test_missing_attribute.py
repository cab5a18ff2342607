"""Rows whose attribute is missing: repaired by their posterior, or without it altogether."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from skdpot import FairBarycenterPreprocessor, FairBarycenterRegressor
from skdpot.fairness import ConditionalRepair, DeclaredGroups, FoundGroups
from skdpot.fairness.metrics import group_auc

COLUMNS = ["x", "y", "count", "word", "noise"]
BY_POSTERIOR = FoundGroups(unknown="posterior")


def make_people(n_rows, seed=0):
    """Return a table of which x and y tell the group, and what is learned from it."""
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
    # But for the draws, which differ, numbers move by two at most.
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
