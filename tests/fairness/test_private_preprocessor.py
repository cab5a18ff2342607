"""The private preprocessor: what it holds and says is a function of its release, and charged."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from skdpot import FairBarycenterPreprocessor, PrivacyLedger
from skdpot.fairness import DeclaredGroups, FoundGroups, FreeSupport
from tests.oracles.fair_tables import DECLARED, extreme_tables, shifted_groups

DELTA = 1e-5
FEW = FreeSupport(n_support=15)
NUMBERS = {"epsilon": 1.0, "bounds": (-4, 5), "groups": ["a", "b"], "method": FEW}
MIXED = DECLARED | {"sensitive_features": "group", "epsilon": 1.0, "method": FEW}


def fit(X, labels, **params):
    return FairBarycenterPreprocessor(**NUMBERS | params).fit(X, sensitive_features=labels)


def spent(ledger):
    return ledger.spent()[0]


def seeded_ledger(*budget):
    return PrivacyLedger(*budget or [None], allow_seeded=True)


# What is said does not depend on private values
# ----------------------------------------------


@pytest.mark.parametrize("epsilon, delta", [(0.01, None), (100.0, None), (1.0, DELTA)])
def test_no_table_raises_or_warns(delta, epsilon):
    """Warnings are errors here."""
    options = MIXED | {"method": FEW, "delta": delta, "epsilon": epsilon}
    for name, frame in extreme_tables():
        ledger = seeded_ledger()
        fair = FairBarycenterPreprocessor(random_state=1, ledger=ledger, **options)
        with np.errstate(all="raise"):
            fair.fit(frame)
        assert fair.support_.shape == (15, 5), name
        np.testing.assert_allclose(fair.group_weights_.sum(), 1)
        assert len(ledger.entries()) == 1
        columns = [set(column) for column in fair.support_.T]
        assert -4 - 1e-9 < min(columns[0]) and max(columns[0]) < 5 + 1e-9
        for labels, column in zip(MIXED["categories"].values(), columns[2:], strict=True):
            assert column <= set(labels)


def test_levels_without_a_place_count_as_the_middle():
    X = np.array([["odd", 0.5]] * 100, dtype=object)
    fair = fit(
        X, ["a", "b"] * 50, epsilon=1e6, categorical_features={0: "ordinal"},
        categories={0: ["low", "middle", "high"]}, bounds=(0, 1), method=FEW,
    )  # fmt: skip
    assert set(fair.support_[:, 0]) == {"middle"}


# What is charged
# ---------------


def test_a_seed_after_a_private_fit_repeats_images_and_leaves_the_guarantee():
    X, labels = shifted_groups((30, 40))
    fair = fit(X, labels, epsilon=20.0)
    guarantee, support = fair.privacy_guarantee_, fair.support_
    draws = [fair.transform(X, sensitive_features=labels) for _ in range(2)]
    assert not np.array_equal(*draws)
    fair.set_params(random_state=0)
    draws = [fair.transform(X, sensitive_features=labels) for _ in range(2)]
    np.testing.assert_array_equal(*draws)
    assert fair.privacy_guarantee_ is guarantee and fair.support_ is support
    assert fair.fit(X, sensitive_features=labels).privacy_guarantee_ is None


def test_unknown_labels_of_private_rows_are_not_quoted():
    X, labels = shifted_groups((30, 40))
    with pytest.raises(
        ValueError, match="are in groups that were neither declared nor in the fit[.]"
    ):
        fit(X, labels).transform(X, sensitive_features=["z"] * 70)


def test_bounds_can_be_given_by_column():
    X, labels = shifted_groups((30, 40))
    frame = pd.DataFrame(X, columns=["x", "y"])
    found = [
        fit(frame, labels, bounds=bounds, random_state=0).support_
        for bounds in (([-9, -8], [9, 8]), {"y": (-8, 8), "x": (-9, 9)}, {0: (-9, 9), 1: (-8, 8)})
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    for bounds, message in (
        ({"x": (-9, 9)}, r"declared for the columns \['y'\].* declare categories="),
        ({"z": (-9, 9)}, r"column 'z', which is not one .* that need them: \['x', 'y'\]"),
        ({"x": (9, -9)}, r"bounds\['x'\] must be a pair"),
        (([0, 1, 2], [3, 3, 3]), r"columns without categories are, in order: \['x', 'y'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(frame, labels, bounds=bounds)


BAD = {
    "no bounds": ({"bounds": None}, "bounds must be declared"),
    "other bounds": ({"bounds": (0, [1, 2, 3])}, "must be a pair"),
    "infinite bounds": ({"bounds": (-np.inf, np.inf)}, "must be a pair"),
    "no groups": ({"groups": None}, "groups must be declared"),
    "one group": ({"groups": ["a"]}, "needs two or more groups"),
    "equal groups": ({"groups": ["a", "a"]}, "list of different labels"),
    "no categories": ({"categorical_features": [1]}, "categories must be declared for column 1"),
    "empty categories": ({"categorical_features": [1], "categories": {1: []}}, "are empty"),
    "delta": ({"delta": 1.0}, "'delta' parameter"),
    "delta without epsilon": ({"epsilon": None, "delta": DELTA, "bounds": None}, "for fits with"),
    "bounds without epsilon": ({"epsilon": None}, "delta and bounds are for fits with epsilon"),
    "an option": ({"method": FreeSupport(max_iter=0)}, "must be an int"),
    "found groups": ({"groups": FoundGroups()}, "groups must be declared"),
    "one declared group": ({"groups": DeclaredGroups(["a"])}, "needs two or more groups"),
    "missing": ({"missing": "category"}, "is for fits without epsilon"),
    "rows": ({"method": FreeSupport(max_rows=5)}, "max_rows is for fits without epsilon"),
    "jobs": ({"n_jobs": 0}, "n_jobs"),
    "grid": (
        {"method": FEW, "categorical_features": [1],
         "categories": {1: range(5000)}}, "4096 cells"
    ),
}  # fmt: skip


@pytest.mark.parametrize("params, message", BAD.values(), ids=BAD)
def test_what_is_wrong_raises_before_anything_is_charged(params, message):
    X, labels = shifted_groups((30, 40))
    ledger = PrivacyLedger(None)
    params = {"ledger": ledger} | params
    with pytest.raises((ValueError, TypeError), match=message):
        fit(X, labels, **params)
    with pytest.raises(ValueError, match="has 69 rows, and X has 70"):
        fit(X, labels[1:], ledger=ledger)
    assert not ledger.entries()


# Randomness and utility
# ----------------------


@pytest.mark.experiment
def test_a_large_budget_makes_the_map_that_is_fitted_openly():
    X, labels = shifted_groups((1500, 2500))
    bounds = (-4, 5)
    options = {"random_state": 0, "method": FreeSupport(n_support=200)}
    openly = FairBarycenterPreprocessor(**options).fit(
        np.clip(X, *bounds), sensitive_features=labels
    )
    method = FreeSupport(n_support=200)
    private = fit(X, labels, random_state=0, epsilon=1e5, method=method)
    np.testing.assert_allclose(private.group_weights_, openly.group_weights_, atol=0.01)
    new, groups = shifted_groups((500, 500), seed=1)
    moved = [fair.transform(new, sensitive_features=groups) for fair in (openly, private)]
    for name in "ab":
        means = [rows[groups == name].mean(axis=0) for rows in moved]
        np.testing.assert_allclose(*means, atol=0.12)
    raw = private._fitted.transport.space.factor
    assert private.objective_ / raw[0] ** 2 == pytest.approx(
        openly.objective_ / openly._fitted.transport.space.factor[0] ** 2, rel=0.25
    )


def test_more_budget_is_fairer():
    X, labels = shifted_groups((1000, 1000))
    apart = {}
    for epsilon, seed in product((0.02, 1.0), range(5)):
        fair = fit(
            X,
            labels,
            epsilon=epsilon,
            delta=DELTA,
            method=FreeSupport(n_support=60),
            random_state=seed,
        )
        Z = fair.transform(X, sensitive_features=labels)
        difference = Z[labels == "a"].mean(axis=0) - Z[labels == "b"].mean(axis=0)
        apart.setdefault(epsilon, []).append(np.abs(difference).sum())
    assert np.mean(apart[1.0]) < 0.3 < 2.0
    assert np.mean(apart[1.0]) < np.mean(apart[0.02])


@pytest.mark.refuses_useless
def test_groups_whose_errors_would_show_them_move_like_the_largest():
    X, labels = shifted_groups((1500, 2500, 50), n_columns=1)
    fair = fit(X, labels, groups=[*"abc"], bounds=(-4, 5), method=FreeSupport(n_support=60))
    one, largest, small = fair.couplings_
    assert small is largest and one is not largest
    # If there is but one other group, nothing is left to move.
    two = labels != "a"
    with pytest.warns(UserWarning, match="no row is changed"):
        fair = fit(X[two], labels[two], groups=[*"bc"], bounds=(-4, 5))
    moved = fair.transform(X[two], sensitive_features=labels[two])
    np.testing.assert_array_equal(moved, X[two])


@pytest.mark.parametrize("method", ["support", "conditional"])
def test_a_frame_without_rows_is_refused(method):
    frame = pd.DataFrame({"sex": pd.Series(dtype=object), "age": pd.Series(dtype=float)})
    fair = FairBarycenterPreprocessor(
        "sex", method=method, epsilon=5.0, delta=1e-6, bounds=(0, 1), groups=["f", "m"]
    )
    with pytest.raises(ValueError, match="0 sample"):
        fair.fit(frame)


def test_columns_that_are_only_counted_have_no_types():
    declared = {"bounds": {0: (0, 1)}, "categories": {1: ["x", "y"]}, "groups": ["f", "m"]}
    fair = FairBarycenterPreprocessor(2, epsilon=1.0, method="support", **declared)
    assert fair.preview(1000, 3).epsilon == 1.0
    with pytest.raises(ValueError, match="has numbers or truth values, none of"):
        fair.fit(np.zeros((1000, 3)))
