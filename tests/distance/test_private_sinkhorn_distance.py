"""The private distance between groups, as a user meets it."""

import math
from itertools import combinations

import numpy as np
import ot
import pandas as pd
import polars as pl
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import kstest, laplace, norm
from sklearn.base import clone

from skdpot import PrivacyLedger, PrivateSinkhornDistance, private_ot_cost
from skdpot.privacy.accounting import calibrate_noise_multiplier
from tests.distance.grouped_records import (
    DELTA,
    MECHANISMS,
    ODD_LABELS,
    PRIVATE,
    RARE,
    asymmetric,
    emd,
    exact,
    failing,
    make_groups,
    noise_of,
)
from tests.oracles import distance_releases
from tests.oracles.entropic_transport import entropic_transport

# Values
# ------


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock", "chebyshev"])
def test_exact_cost_is_that_of_pot(metric, n_features):
    X, y = make_groups(12, 9, n_features=n_features)
    fitted = exact(X, y, metric=metric)
    expected = emd(cdist(X[y == "a"], X[y == "b"], metric))
    assert fitted.distance_ == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_features", [1, 10])
@pytest.mark.parametrize("reg", [0.05, 1.0])
def test_entropic_cost_is_that_of_pot_and_of_the_oracle(n_features, reg):
    X, y = make_groups(8, 11, n_features=n_features)
    cost = cdist(X[y == "a"], X[y == "b"], "sqeuclidean")
    found = exact(X, y, reg=reg).distance_
    value, _ = entropic_transport(cost, reg, tol=1e-9)
    assert found == pytest.approx(value, abs=1e-7)
    a, b = np.full(8, 1 / 8), np.full(11, 1 / 11)
    plan = ot.sinkhorn(a, b, cost, reg, method="sinkhorn_log", stopThr=1e-9, numItermax=20_000)
    penalty = np.sum(plan * np.log(plan / np.outer(a, b)))
    assert found == pytest.approx(np.sum(plan * cost) + reg * penalty, abs=1e-7)


@pytest.mark.filterwarnings("ignore:divergence='sinkhorn' of metric")
@pytest.mark.parametrize("metric", ["sqeuclidean", "chebyshev"])
def test_debiased_divergence(metric):
    X, y = make_groups(7, 9)
    samples = X[y == "a"], X[y == "b"]
    found = exact(X, y, metric=metric, reg=0.2, divergence="sinkhorn").distance_

    def cost(g, h):
        return entropic_transport(cdist(samples[g], samples[h], metric), 0.2)[0]

    assert found == pytest.approx(cost(0, 1) - (cost(0, 0) + cost(1, 1)) / 2, abs=1e-7)


def test_order_takes_roots_of_what_was_released():
    X, y = make_groups(20, 30)
    cost = emd(cdist(X[y == "a"], X[y == "b"], "sqeuclidean"))
    assert exact(X, y, order=2).distance_ == pytest.approx(math.sqrt(cost))
    noisy, root = (
        PrivateSinkhornDistance(1e-3, bounds=(0, 1), order=order, random_state=3).fit(X, y)
        for order in (None, 2)
    )
    assert noisy.distance_ < 0 == root.distance_
    assert root.standard_error_ == noisy.standard_error_
    low, high = noisy.noise_interval_
    assert root.noise_interval_ == (0.0, math.sqrt(max(high, 0.0)))
    assert low < 0


@pytest.mark.parametrize("reg", [0.0, 0.5])
def test_callable_costs_are_clipped_into_their_range(reg):
    X, y = make_groups(9, 7)
    x1, x2 = X[y == "a", 0][:, None], X[y == "b", 0]
    cost = np.clip(5 * abs(x1 - x2), 0.1, 2.0)
    cost[(x1 > 0.8) | (x2 < 0.2)] = 2.0
    expected = emd(cost) if reg == 0 else entropic_transport(cost, reg)[0]
    found = exact(X, y, metric=failing, cost_range=(0.1, 2.0), reg=reg).distance_
    assert found == pytest.approx(expected, abs=1e-7)


def test_costs_run_from_the_earlier_group_to_the_later_one():
    X, y = make_groups(9, 7)
    x1, x2 = X[y == "a", 0][:, None], X[y == "b", 0]
    for groups, cost in (("ab", np.maximum(x2 - x1, 0)), ("ba", np.maximum(x1 - x2, 0))):
        options = {"metric": asymmetric, "cost_range": (3.0, 4.0), "groups": [*groups]}
        fitted = exact(X, y, **options)
        assert fitted.groups_.tolist() == [*groups]
        assert fitted.distance_ == pytest.approx(3 + emd(cost), abs=1e-9)
        assert fitted.distances_[0, 1] == fitted.distances_[1, 0] == fitted.distance_


@pytest.mark.parametrize("params", MECHANISMS.values(), ids=MECHANISMS)
def test_all_pairs_of_several_groups(params):
    X, y = make_groups(9, 7, 12)
    fitted = PrivateSinkhornDistance(1e3, bounds=(0, 1), random_state=0, **params).fit(X, y)
    assert fitted.groups_.tolist() == ["a", "b", "c"]
    assert fitted.distances_.shape == fitted.standard_error_.shape == (3, 3)
    assert fitted.noise_interval_.shape == (3, 3, 2)
    np.testing.assert_array_equal(fitted.distances_, fitted.distances_.T)
    np.testing.assert_array_equal(np.diag(fitted.distances_), 0.0)
    assert len(np.unique(fitted.distances_)) == 4
    assert np.isnan(fitted.standard_error_[0, 1]) == bool(params)
    if not params:
        names = ["c", "a", "b"]
        fitted = exact(X, y, groups=names)
        assert fitted.groups_.tolist() == names
        for g, h in combinations(range(3), 2):
            cost = cdist(X[y == names[g]], X[y == names[h]], "sqeuclidean")
            assert fitted.distances_[g, h] == pytest.approx(emd(cost), abs=1e-9)
    for absent in ("distance_", "plan_", "potentials_"):
        assert not hasattr(fitted, absent)


@pytest.mark.parametrize("params", [{}, {"reg": 0.1}, {"reg": 0.1, "divergence": "sinkhorn"}])
def test_the_order_of_records_does_not_matter(params):
    X, y = make_groups(9, 7, 8)
    order = np.random.default_rng(1).permutation(len(y))
    found, permuted = (exact(X[k], y[k], **params) for k in (np.arange(len(y)), order))
    np.testing.assert_allclose(found.distances_, permuted.distances_, atol=1e-7)


@pytest.mark.parametrize("bounds", [(0.2, 0.7), ([0.2, -1.0], 0.7), ([0.2, 0.4], [0.5, 2.0])])
def test_records_outside_of_the_bounds_are_moved_to_them(bounds):
    X, y = make_groups(9, 7)
    X[0], X[1] = -1e300, 1e300
    clipped = np.clip(X, *bounds)
    expected = emd(cdist(clipped[y == "a"], clipped[y == "b"], "sqeuclidean"))
    assert exact(X, y, bounds=bounds).distance_ == pytest.approx(expected, abs=1e-9)


def test_function_and_estimator_are_the_same():
    X, y = make_groups(9, 7)
    options = {"bounds": (0, 1), "reg": 0.1, "order": 2, "random_state": 4}
    value = private_ot_cost(X[y == "a"], X[y == "b"], 0.5, DELTA, **options)
    stacked, labels = np.vstack([X[y == "a"], X[y == "b"]]), np.repeat([0, 1], [9, 7])
    expected = PrivateSinkhornDistance(0.5, DELTA, **options).fit(stacked, labels).distance_
    assert isinstance(value, float) and value == expected
    with pytest.raises(ValueError, match="X has 2 features, and Y has 1; they must agree"):
        private_ot_cost(X, X[:, :1], bounds=(0, 1))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("names", [["b", "a"], ["a", "c"]])
def test_columns_with_other_names_are_refused(frame, names):
    rng = np.random.default_rng(0)
    first, second = ({"a": rng.random(50), "b": rng.random(50)} for _ in range(2))
    other = frame(dict(zip(names, second.values(), strict=True)))
    ledger = PrivacyLedger(5.0)
    with pytest.raises(ValueError, match="Y has (the|other) names"):
        private_ot_cost(frame(first), other, bounds=(0, 1), ledger=ledger)
    assert not ledger.entries()


# Noise
# -----


@pytest.mark.filterwarnings("ignore:noise hides the features")
@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("labels", [{}, PRIVATE])
@pytest.mark.parametrize("question", [{}, {"reg": 0.1, "divergence": "sinkhorn"}])
def test_errors_are_those_that_the_theory_asks_for(delta, labels, question):
    X, y = make_groups(10, 6)
    estimator = PrivateSinkhornDistance(0.5, delta, bounds=([0, 0], [1, 2]), **labels, **question)
    fitted = clone(estimator).fit(X, y)
    twice = 2 if "divergence" in question else 1
    sensitivity = 5.0 * (1 / 4 + 1 / 4 if labels else 1 / 6) * twice
    spread = math.sqrt(2) / 0.5 if delta == 0 else calibrate_noise_multiplier(0.5, delta)
    assert 1 < fitted.standard_error_ / (sensitivity * spread) < 1.0011
    noise, release = noise_of(estimator, X, y)
    low, high = fitted.noise_interval_
    assert (low + high) / 2 == pytest.approx(fitted.distance_)
    inside = np.mean(np.abs(noise * release.sensitivities) < (high - low) / 2)
    assert inside == pytest.approx(0.95, abs=0.006)


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_a_fit_adds_the_noise_that_it_declares(delta):
    """No row of tests/privacy/test_every_mechanism.py, which runs releases without their fits."""
    X, y = make_groups(3, 3, 3, 3, 3, 3)
    estimator = PrivateSinkhornDistance(1.0, delta, bounds=(0, 1), random_state=0)
    release, records = distance_releases.plan(estimator, X, y)
    values, _ = distance_releases.exact_values(release, records)
    state = np.random.RandomState(0)
    fits = [clone(estimator).set_params(random_state=state).fit(X, y) for _ in range(30)]
    above = np.triu_indices(6, 1)
    noise = [fit.distances_[above] - release.sensitivities * values for fit in fits]
    errors = fits[0].standard_error_[above]
    law = laplace(scale=math.sqrt(0.5)) if delta == 0 else norm
    assert kstest(np.ravel(noise / errors), law.cdf).pvalue > RARE
    assert np.std(noise / errors) == pytest.approx(1, abs=0.2)
    inside = [
        (fit.noise_interval_[above][:, 0] < release.sensitivities * values)
        & (release.sensitivities * values < fit.noise_interval_[above][:, 1])
        for fit in fits
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.04)


@pytest.mark.parametrize("labels", ["public", "private"])
@pytest.mark.parametrize("k", [4])
def test_noise_between_several_groups(k, labels):
    """A record takes part in k - 1 releases, which cost as much together."""
    X, y = make_groups(*[6] * k)
    names = sorted(set(y))
    options = {"bounds": (0, 1), "labels": labels, "groups": names, "min_group_size": 6}
    for delta, factor in ((0.0, k - 1), (DELTA, math.sqrt(k - 1))):
        # Where a record moves, one cost changes on both sides.
        moved = math.sqrt((1 + (k - 2) / 2) / (k - 1)) if labels == "private" and delta else 1.0
        all_pairs = PrivateSinkhornDistance(1.0, delta, **options).fit(X, y)
        options_of_two = options | {"groups": names[:2]}
        two = (y == names[0]) | (y == names[1])
        pair = PrivateSinkhornDistance(1.0, delta, **options_of_two).fit(X[two], y[two])
        errors = all_pairs.standard_error_[np.triu_indices(k, 1)]
        np.testing.assert_allclose(errors, moved * factor * pair.standard_error_, rtol=1.1e-3)
        np.testing.assert_array_equal(np.diag(all_pairs.standard_error_), 0.0)


def test_noise_between_groups_of_unequal_sizes():
    X, y = make_groups(4, 10, 40)
    sizes, pairs = np.array([4, 10, 40]), list(combinations(range(3), 2))
    # In units of what the smaller group's records change.
    shares = np.array([[(1 / sizes[g]) * (g in pair) for pair in pairs] for g in range(3)])
    sensitivities = np.array([1 / sizes[list(pair)].min() for pair in pairs])
    together = (shares / sensitivities).sum(axis=1).max()
    fitted = PrivateSinkhornDistance(2.0, bounds=(0, 1), metric="chebyshev").fit(X, y)
    expected = math.sqrt(2) * together / 2.0 * sensitivities
    found = fitted.standard_error_[np.triu_indices(3, 1)]
    np.testing.assert_allclose(found, expected, rtol=1.1e-3)
    assert (found >= expected).all()


# Private labels
# --------------


def padded(sample, size):
    return np.vstack([sample, np.full((max(size - len(sample), 0), sample.shape[1]), 0.5)])


@pytest.mark.parametrize("sizes", [[10, 6], [2, 1]])
@pytest.mark.parametrize("declared", [4, [5, 7]])
def test_small_groups_are_filled_up_with_the_middle_of_the_bounds(sizes, declared):
    X, y = make_groups(*sizes, 9)
    fitted = exact(X, y, **PRIVATE | {"min_group_size": declared})
    first, second = np.broadcast_to(declared, 2)
    cost = cdist(padded(X[y == "a"], first), padded(X[y == "b"], second), "sqeuclidean")
    assert fitted.distance_ == pytest.approx(emd(cost), abs=1e-9)


@pytest.mark.parametrize("params", MECHANISMS.values(), ids=MECHANISMS)
def test_groups_may_be_empty(params):
    X, _ = make_groups(10)
    options = PRIVATE | {"bounds": (0, 1)} | params
    fitted = PrivateSinkhornDistance(**options).fit(X, ["nobody"] * 10)
    assert math.isfinite(fitted.distance_)
    if not params:
        assert exact(X, ["nobody"] * 10, **PRIVATE).distance_ == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("groups", [["a", "b"], [0, 2**53 - 1]], ids=str)
def test_a_label_that_is_no_group_concerns_its_record_alone(groups):
    """Among labels in a list, one must not change the type of the others."""
    X, y = make_groups(10, 6)
    labels = [groups[name == "b"] for name in y.tolist()]
    options = PRIVATE | {"groups": groups}
    without = exact(X[1:], labels[1:], **options).distance_
    for label in ODD_LABELS:
        array = np.empty(16, dtype=object)
        array[:], array[0] = labels, label
        for given_labels in ([label, *labels[1:]], array, pd.Series(array)):
            assert exact(X, given_labels, **options).distance_ == pytest.approx(without, abs=1e-9)


DATES = pd.to_datetime(["2024-01-01", "2024-02-01"])
LABELS = {
    "text": (["a", "b"], list),
    "text array": (["a", "b"], np.array),
    "text series": (["a", "b"], lambda y: pd.Series(y, dtype="string")),
    "text and numbers": (["a", 1], list),
    "categories": (["a", "b"], pd.Categorical),
    "numbers": ([3, 1], list),
    "nullable numbers": ([3, 1], lambda y: pd.Series(y, dtype="Int64")),
    "floats": ([0.5, 1.0], np.array),
    "truth values": ([True, False], np.array),
    "nullable truth values": ([True, False], lambda y: pd.Series(y, dtype="boolean")),
    "dates": (DATES, pd.Series),
    "dates of other units": (DATES.to_numpy().astype("datetime64[M]"), pd.Series),
    "pairs": (["a", ("b", 1)], list),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_are_found(kind):
    names, form = LABELS[kind]
    X, y = make_groups(10, 6)
    given_labels = form([(DATES if "dates" in kind else names)[int(name == "b")] for name in y])
    expected = exact(X, y).distance_
    if kind == "pairs":
        names = np.array([*names, None], dtype=object)[:2]
    for options in ({}, {"labels": "private", "min_group_size": 4}):
        fitted = exact(X, given_labels, groups=names, **options)
        assert fitted.distance_ == pytest.approx(expected, abs=1e-9)
        assert len(fitted.groups_) == 2


# Randomness, threads, progress
# -----------------------------


@pytest.mark.parametrize("further", [{}, {"reg": 0.1, "divergence": "sinkhorn"}])
@pytest.mark.parametrize("name", MECHANISMS)
def test_results_do_not_depend_on_the_number_of_jobs(name, further):
    X, y = make_groups(30, 20, 25)
    options = {"bounds": (0, 1), "random_state": 0} | further | MECHANISMS[name]
    expected = PrivateSinkhornDistance(**options).fit(X, y)
    for n_jobs in (2, -1):
        fitted = PrivateSinkhornDistance(n_jobs=n_jobs, **options).fit(X, y)
        np.testing.assert_array_equal(fitted.distances_, expected.distances_)


# In company
# ----------


def make_people(n=120):
    rng = np.random.default_rng(0)
    people = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "hours": rng.uniform(0, 60, n),
            "work": rng.choice(["none", "own", "public"], n),
        }
    )
    return people, rng.choice(["2024", "2025"], n)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    people, year = make_people()
    frame = people[["age", "hours"]]
    options = {"bounds": ([18, 0], [90, 60]), "mechanism": "histogram"}
    fitted = PrivateSinkhornDistance(random_state=0, **options).fit(frame, pd.Series(year))
    assert list(fitted.feature_names_in_) == ["age", "hours"]
    by_array = PrivateSinkhornDistance(random_state=0, **options).fit(frame.to_numpy(), year)
    np.testing.assert_array_equal(by_array.histograms_, fitted.histograms_)
