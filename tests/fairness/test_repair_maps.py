"""Maps of rows: one distribution for all groups, no atoms, part of the way, and their labels."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency, chisquare, ks_2samp
from sklearn.tree import DecisionTreeClassifier

from skdpot import FairBarycenterPreprocessor
from skdpot.fairness import FreeSupport
from skdpot.fairness.metrics import group_auc, ks_between_groups
from tests.oracles.fair_tables import discrete_table, mixed_frame, shifted_groups

# Of the tests that accept: their seeds are fixed.
RARE = 1e-4


def fit(X, labels, **params):
    params = {"random_state": 0} | params
    return FairBarycenterPreprocessor(**params).fit(X, sensitive_features=labels)


def auc(X, labels):
    """Return how well trees, which find atoms, tell the groups apart."""
    tree = DecisionTreeClassifier(min_samples_leaf=20)
    return group_auc(X, labels, estimator=tree, random_state=0)


# One law for all groups
# ----------------------


def test_images_of_fitted_rows_have_one_law():
    """Masses of points times where couplings send them; then the draws themselves."""
    X, labels = discrete_table(3000)
    fair = fit(X, labels, method=FreeSupport(n_support=12))
    support, place = np.unique(np.round(fair.support_, 9), axis=0, return_inverse=True)
    expected = np.bincount(place.reshape(-1)) / 12
    for name, plan in zip(fair.groups_, fair.couplings_, strict=True):
        _, counts = np.unique(X[labels == name], axis=0, return_counts=True)
        np.testing.assert_allclose(plan.sum(axis=1), counts / counts.sum(), atol=1e-9)
        np.testing.assert_allclose(plan.sum(axis=0), 1 / 12, atol=1e-9)
    Z = np.round(fair.transform(X, sensitive_features=labels), 9)
    for name in fair.groups_:
        rows, counts = np.unique(Z[labels == name], axis=0, return_counts=True)
        np.testing.assert_allclose(rows, support)
        assert chisquare(counts, expected * counts.sum()).pvalue > RARE


def test_each_row_is_drawn_by_its_own_coupling():
    X, labels = discrete_table(2000)
    fair = fit(X, labels, method=FreeSupport(n_support=15), random_state=3)
    group = 1
    points, counts = np.unique(X[labels == group], axis=0, return_counts=True)
    row = points[counts.argmax()]
    images = fair.transform(np.tile(row, (4000, 1)), sensitive_features=np.full(4000, group))
    weights = fair.couplings_[group].toarray()[(points == row).all(axis=1)][0]
    reached = weights > 0
    assert 1 < reached.sum() < 15
    counts = [np.isclose(images, z).all(axis=1).sum() for z in fair.support_[reached]]
    same = [np.isclose(fair.support_[reached], z).all(axis=1) for z in fair.support_[reached]]
    expected = np.array([weights[reached][equal].sum() for equal in same])
    np.testing.assert_allclose(np.array(counts) / 4000, expected / weights.sum(), atol=0.04)
    mean = weights @ fair.support_ / weights.sum()
    np.testing.assert_allclose(images.mean(axis=0), mean, atol=0.05)


@pytest.mark.experiment
def test_new_rows_have_one_law_up_to_sampling():
    X, labels = shifted_groups((400, 500))
    new, groups = shifted_groups((400, 500), seed=1)
    fair = fit(X, labels, method=FreeSupport(n_support=300))
    assert auc(new, groups) > 0.75
    areas = []
    for seed in range(6):
        after = fair.set_params(random_state=seed).transform(new, sensitive_features=groups)
        for j in range(2):
            assert ks_2samp(new[groups == "a", j], new[groups == "b", j]).statistic > 0.3
            assert ks_between_groups(after[:, j], sensitive_features=groups) < 0.1
        areas.append(auc(after, groups))
    assert abs(np.mean(areas) - 0.5) < 0.06


# Part of the way
# ---------------


def test_partial_repair_of_numbers_is_a_straight_line():
    X, labels = shifted_groups((40, 50))
    fair = fit(X, labels, method=FreeSupport(n_support=30))
    whole = fair.transform(X, sensitive_features=labels)
    for level in (0.0, 0.25, 0.5, 1.0):
        part = fair.set_params(repair_level=level).transform(X, sensitive_features=labels)
        np.testing.assert_allclose(part, (1 - level) * X + level * whole, atol=1e-12)
    assert {tuple(z) for z in whole} <= {tuple(z) for z in fair.support_}
    untouched = fair.set_params(repair_level=0).transform(X, sensitive_features=labels)
    np.testing.assert_array_equal(untouched, X)


def test_partial_repair_of_levels_and_categories():
    frame = mixed_frame(400)
    features = frame.columns.drop("group")
    fair = FairBarycenterPreprocessor("group", random_state=0).set_output(transform="pandas")
    whole = fair.fit(frame).transform(frame)
    untouched = fair.set_params(repair_level=0.0).transform(frame)
    for name in features:
        np.testing.assert_array_equal(untouched[name], frame[name])
    part = fair.set_params(repair_level=0.5).transform(frame)
    categories = ["color", "word", "flag"]
    own, moved = ((part[categories] == f[categories]).all(axis=1) for f in (frame, whole))
    assert (own | moved).all()
    assert 0.4 < moved[~(own & moved)].mean() < 0.6
    rank = {"low": 0, "middle": 1, "high": 2}
    start, half, end = (f["level"].map(rank).astype(int) for f in (frame, part, whole))
    assert ((half - (start + end) / 2).abs() <= 0.5).all()
    np.testing.assert_allclose(part["number"], (frame["number"] + whole["number"]) / 2)


# Draws
# -----


def test_a_mixture_moves_rows_wholly_or_not_at_all():
    frame = mixed_frame(600)
    labels = frame.pop("group")
    fair = fit(frame, labels, method=FreeSupport(n_support=30), interpolation="mixture")
    whole = fair.transform(frame, sensitive_features=labels)
    fair.set_params(repair_level=0.25)
    mixed = fair.transform(frame, sensitive_features=labels)
    unmoved = (mixed == frame.to_numpy(dtype=object)).all(axis=1)
    moved = (mixed == whole).all(axis=1)
    assert (moved | unmoved).all()
    assert 0.15 < moved.mean() < 0.4 and 0.6 < unmoved.mean() < 0.85
    fair.set_params(repair_level=0.0)
    untouched = fair.transform(frame, sensitive_features=labels)
    assert (untouched == frame.to_numpy(dtype=object)).all()


def test_only_mixtures_leave_less_of_the_groups_at_every_step():
    X, labels = discrete_table(4000)
    new, new_labels = discrete_table(4000, seed=1)
    left = {}
    for way in ("geodesic", "mixture"):
        fair = fit(X, labels, method=FreeSupport(n_support=40), interpolation=way)
        for level in (0.0, 0.5, 1.0):
            fair.set_params(repair_level=level)
            left[way, level] = auc(fair.transform(new, sensitive_features=new_labels), new_labels)
    assert left["geodesic", 0.5] > left["geodesic", 0.0] + 0.05
    assert left["mixture", 0.0] > left["mixture", 0.5] + 0.05
    assert left["mixture", 0.5] > left["mixture", 1.0] + 0.05


def test_draws_depend_on_the_seed_and_the_place_of_a_row():
    X, labels = discrete_table(300)
    fair = fit(X, labels, method=FreeSupport(n_support=50))
    expected = fair.transform(X, sensitive_features=labels)
    np.testing.assert_array_equal(fair.transform(X, sensitive_features=labels), expected)
    for n_jobs in (2, -1):
        again = fair.set_params(n_jobs=n_jobs).transform(X, sensitive_features=labels)
        np.testing.assert_array_equal(again, expected)
    both = FairBarycenterPreprocessor(random_state=0, method=FreeSupport(n_support=50))
    np.testing.assert_array_equal(both.fit_transform(X, sensitive_features=labels), expected)
    assert (
        fair.set_params(random_state=1).transform(X, sensitive_features=labels) != expected
    ).any()


# Rows with their labels
# ----------------------


@pytest.mark.parametrize("names", [[0, 1], ["no", "yes"], [False, True], ["n", "y", "z"]], ids=str)
def test_classes_are_repaired_with_their_rows(names):
    X, labels = shifted_groups((500, 600))
    rng = np.random.default_rng(1)
    y = np.array(names)[rng.integers(0, len(names) - 1, 1100) + (X.sum(axis=1) > 1)]
    fair = FairBarycenterPreprocessor(random_state=0, method=FreeSupport(n_support=100))
    Z, repaired = fair.repair(X, y, sensitive_features=labels)
    assert Z.shape == X.shape and repaired.dtype == y.dtype and set(repaired) == set(names)
    first = labels == "a"
    for name in names:
        rates = [np.mean(repaired[group] == name) for group in (first, ~first)]
        assert abs(rates[0] - rates[1]) < 0.08
    assert abs(np.mean(y[first] == names[-1]) - np.mean(y[~first] == names[-1])) > 0.2
    # Rows and labels together have one law: as many of each kind in proportion.
    joint = np.column_stack([Z, np.unique(repaired, return_inverse=True)[1]])
    _, kind = np.unique(np.round(joint, 9), axis=0, return_inverse=True)
    counts = np.array([np.bincount(kind.reshape(-1)[group]) for group in (first, ~first)])
    assert chi2_contingency(counts).pvalue > RARE
    # Labels still follow from rows.
    high = Z.sum(axis=1) > 1
    assert np.mean(repaired[high] == names[-1]) > np.mean(repaired[~high] == names[-1]) + 0.15
    assert not hasattr(fair, "support_")


def test_numbers_are_repaired_with_their_rows():
    X, labels = shifted_groups((300, 350))
    y = 100 * X[:, 0] + np.random.default_rng(1).normal(size=650)
    frame = pd.DataFrame(X, columns=["x", "y"]).assign(group=labels)
    fair = FairBarycenterPreprocessor("group", method=FreeSupport(n_support=100), random_state=0)
    Z, repaired = fair.repair(frame, y)
    assert ks_between_groups(y, sensitive_features=labels) > 0.3
    assert ks_between_groups(repaired, sensitive_features=labels) < 0.05
    assert list(Z) == ["x", "y"] and np.corrcoef(Z["x"], repaired)[0, 1] > 0.95
    half = fair.set_params(repair_level=0.5).repair(frame, y)
    np.testing.assert_allclose(half[0], (X + Z) / 2)
    np.testing.assert_allclose(half[1], (y + repaired) / 2)
    none = fair.set_params(repair_level=0).repair(frame, y)
    np.testing.assert_array_equal(none[0], X)
    np.testing.assert_array_equal(none[1], y)


def test_repair_leaves_the_object_as_it_is_and_refuses_what_it_cannot_do():
    X, labels = shifted_groups((40, 50))
    y = (X[:, 0] > 0).astype(int)
    fair = fit(X, labels)
    support = fair.support_
    fair.repair(mixed_frame()[["number"]], np.arange(120) % 3, sensitive_features=[0, 1] * 60)
    assert fair.support_ is support and fair.n_features_in_ == 2
    for params, message in (
        ({"epsilon": 1.0}, "works without epsilon"),
        ({"repair_level": 2}, "The 'repair_level' parameter"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(X, labels).set_params(**params).repair(X, y, sensitive_features=labels)
    with pytest.raises(ValueError, match="repair needs y"):
        fair.repair(X, None, sensitive_features=labels)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fair.repair(X, y[1:], sensitive_features=labels)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        fair.repair(X, np.where(y == 0, np.nan, 0.5), sensitive_features=labels)
