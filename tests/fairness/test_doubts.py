"""Warnings of what is public or not private, and likely to be wrong; and silence of all else."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from skdpot import (
    DPSinkhornGenerator,
    FairBarycenterPreprocessor,
    FairBarycenterRegressor,
    PrivateSinkhornDistance,
)
from skdpot.fairness import DeclaredGroups, FoundGroups, FreeSupport


def people(n=600, n_columns=2, seed=0):
    """Return normal data: a group, numbers that tell of it, and words."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    numbers = rng.normal(size=(n, n_columns)) + 0.5 * (sex == "m")[:, None]
    frame = pd.DataFrame(numbers, columns=[f"x{j}" for j in range(n_columns)])
    return frame.assign(work=rng.choice(["office", "home", "road"], n), sex=sex)


def repair(**params):
    return FairBarycenterPreprocessor("sex", random_state=0, **params)


def warned(fit):
    """Return all that was warned of, with the file that it points to."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(one.message) for one in caught], {one.filename for one in caught}


NORMAL = {
    "conditional": lambda: repair().fit_transform(people()),
    "support": lambda: repair(method="support").fit_transform(people().drop(columns="work")),
    "support, of words": lambda: repair(method="support").fit(people()),
    "candidates": lambda: repair(method=FreeSupport(n_support=60)).fit(people(300)),
    "regressor": lambda: FairBarycenterRegressor(
        LinearRegression(), sensitive_features="sex", sensitive_in_estimator=False
    ).fit(people().drop(columns="work"), people()["x0"]),
    "exponential": lambda: repair(method="support").fit(
        people().assign(x0=np.exp(people()["x0"] / 2)).drop(columns="work")
    ),
    "distance": lambda: PrivateSinkhornDistance(
        schema={"x0": (-4, 4), "x1": (-4, 4), "work": ["office", "home", "road"]}
    ).fit(people().drop(columns="sex"), people()["sex"]),
    "generator": lambda: DPSinkhornGenerator(None, bounds=(-4, 4)).fit(people()[["x0", "x1"]]),
}


@pytest.mark.parametrize("name", NORMAL)
def test_of_normal_data_nothing_is_said(name):
    assert warned(NORMAL[name]) == ([], set())


@pytest.mark.parametrize(
    "groups", [None, DeclaredGroups(["a", "f", "m"])], ids=["found", "declared"]
)
def test_a_group_that_is_too_small_is_warned_of_once(groups):
    rows = people()
    rows.loc[:11, "sex"] = "a"
    numbers = rows.drop(columns="work")
    regressor = FairBarycenterRegressor(
        sensitive_features="sex", sensitive_in_estimator=False, groups=groups
    )
    for fit in (
        lambda: repair(groups=groups, method="support").fit(numbers),
        lambda: repair(groups=groups).repair(rows, rows["x0"]),
        lambda: clone(regressor).fit(numbers, rows["x0"]),
    ):
        (message,), files = warned(fit)
        assert "the group 'a' has fewer than the 47 rows that are needed" in message
        assert "FoundGroups(min_size=47, small='merge')" in message
        assert files == {__file__}


@pytest.mark.experiment
def test_who_sets_a_size_of_groups_has_seen_to_them():
    rows = people()
    rows.loc[:11, "sex"] = "a"
    for groups in (FoundGroups(min_size=3), FoundGroups(min_size=47, small="merge")):
        assert warned(lambda groups=groups: repair(groups=groups).fit(rows)) == ([], set())
    declared = {"epsilon": 5.0, "bounds": (-4, 4), "groups": ["a", "f", "m"]}
    # With epsilon sizes are private.
    private = repair(method="support", **declared)
    assert warned(lambda: private.fit(rows.drop(columns="work"))) == ([], set())
