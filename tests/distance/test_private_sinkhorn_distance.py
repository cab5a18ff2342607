"""The private distance between groups, as a user meets it."""

import copy
import math
import pickle
import traceback
import warnings
from itertools import combinations

import numpy as np
import ot
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.stats import kstest, laplace, norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils import estimator_html_repr

from skdpot import PrivacyLedger, PrivateSinkhornDistance, private_ot_cost
from skdpot.distance import _output
from skdpot.distance._histogram import HistogramRelease
from skdpot.distance._noisy_release import NoisySinkhornRelease
from skdpot.distance._output import OutputRelease
from skdpot.distance._release import as_matrix
from skdpot.privacy import BudgetAccountant, BudgetError, BudgetExceededError, NoGuaranteeWarning
from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.privacy.events import (
    ApproximateDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PlannedDpEvent,
)
from skdpot.transport import nearest_distribution
from tests.oracles import distance_releases
from tests.oracles.entropic_transport import entropic_transport

DELTA = 1e-5
# Of the tests that accept: their seeds are fixed.
RARE = 1e-4
RELEASES = {
    "output": OutputRelease,
    "histogram": HistogramRelease,
    "noisy_sinkhorn": NoisySinkhornRelease,
}
MECHANISMS = {
    "output": {},
    "histogram": {"mechanism": "histogram", "grid": 3},
    "noisy_sinkhorn": {"mechanism": "noisy_sinkhorn", "delta": DELTA, "reg": 1.0},
}
PRIVATE = {"labels": "private", "groups": ["a", "b"], "min_group_size": 4}


def make_groups(*sizes, n_features=2, seed=0):
    """Return points of the unit cube, in groups with the names a, b, ..., in no order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([*"abcdefgh"[: len(sizes)]], sizes))
    # The groups differ, so that distances do.
    return rng.random((len(y), n_features)) ** (1.0 + (y == "b"))[:, None], y


def exact(X, y, **params):
    """Return the estimator that was fitted with next to no noise, and no error that is allowed."""
    settings = {"bounds": (0.0, 1.0), "tol": 1e-8, "random_state": 0} | params
    return PrivateSinkhornDistance(1e10, **settings).fit(X, y)


def emd(cost):
    return ot.emd2(np.full(len(cost), 1 / len(cost)), np.full(len(cost.T), 1 / len(cost.T)), cost)


def spent(ledger):
    return ledger.spent()[0]


# Values
# ------


METRICS = [
    ("sqeuclidean", {}),
    ("euclidean", {}),
    ("cityblock", {}),
    ("chebyshev", {}),
    ("minkowski", {"p": 3.0, "w": [1.0, 2.0]}),
    ("seuclidean", {"V": [0.5, 2.0]}),
    ("mahalanobis", {"VI": np.array([[2.0, 0.5], [0.5, 1.0]])}),
    ("cosine", {}),
    ("canberra", {}),
    ("hamming", {}),
]


@pytest.mark.parametrize("metric, params", METRICS, ids=[name for name, _ in METRICS])
def test_exact_cost_is_that_of_pot(metric, params):
    X, y = make_groups(12, 9)
    fitted = exact(X, y, metric=metric, metric_params=params)
    expected = emd(cdist(X[y == "a"], X[y == "b"], metric, **params))
    assert fitted.distance_ == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", ["sqeuclidean", "cityblock"])
def test_exact_cost_on_a_line(metric):
    X, y = make_groups(50, 35, n_features=1)
    expected = emd(cdist(X[y == "a"], X[y == "b"], metric))
    assert exact(X, y, metric=metric).distance_ == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_features", [1, 2, 10])
@pytest.mark.parametrize("reg", [0.05, 0.3, 10.0])
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


@pytest.mark.parametrize("metric", ["sqeuclidean", "canberra"])
def test_debiased_divergence(metric):
    X, y = make_groups(7, 9)
    samples = X[y == "a"], X[y == "b"]
    found = exact(X, y, metric=metric, reg=0.2, divergence="sinkhorn").distance_

    def cost(g, h):
        return entropic_transport(cdist(samples[g], samples[h], metric), 0.2)[0]

    assert found == pytest.approx(cost(0, 1) - (cost(0, 0) + cost(1, 1)) / 2, abs=1e-7)


@pytest.mark.parametrize("reg", [0.01, 1.0])
def test_debiased_divergence_of_equal_samples_is_zero(reg):
    sample, _ = make_groups(15)
    X, y = np.vstack([sample, sample[::-1]]), np.repeat([0, 1], 15)
    assert exact(X, y, reg=reg, divergence="sinkhorn").distance_ == pytest.approx(0, abs=1e-7)
    assert exact(X, y).distance_ == pytest.approx(0, abs=1e-9)


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


def test_gaussian_samples_are_as_far_apart_as_gaussians():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, 1, (400, 2)), rng.normal([1, 0], 1.5, (400, 2))])
    y = np.repeat([0, 1], 400)
    fitted = PrivateSinkhornDistance(100.0, bounds=(-6, 6), order=2, random_state=0).fit(X, y)
    assert fitted.distance_ == pytest.approx(math.sqrt(1 + 2 * 0.5**2), abs=0.15)


def asymmetric(x, y):
    return max(y[0] - x[0], 0.0) + 3.0


def failing(x, y):
    return math.nan if x[0] > 0.8 else 1 / 0 if y[0] < 0.2 else 5 * abs(x[0] - y[0])


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
    for absent in ("distance_", "plan_", "potentials_"):
        assert not hasattr(fitted, absent)


def test_values_between_several_groups():
    X, y = make_groups(9, 7, 12)
    names = ["c", "a", "b"]
    fitted = exact(X, y, groups=names)
    assert fitted.groups_.tolist() == names
    for g, h in combinations(range(3), 2):
        cost = cdist(X[y == names[g]], X[y == names[h]], "sqeuclidean")
        assert fitted.distances_[g, h] == pytest.approx(emd(cost), abs=1e-9)


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


# Noise
# -----


def assert_scale(noise, law, scale, off=0.1):
    """Accept the scale of noise, and reject ones that are a tenth off, or as much as it says."""
    assert kstest(noise / scale, law.cdf).pvalue > RARE
    for factor in (1 - off, 1 + off):
        assert kstest(noise / (factor * scale), law.cdf).pvalue < RARE


def noise_of(estimator, X, y, n_releases=20_000):
    """Return what was added to every cost, or count, by as many releases."""
    release, X = distance_releases.plan(estimator, X, y)
    values, _ = distance_releases.exact_values(release, X)
    return distance_releases.noisy_values(release, values, n_releases, 0) - values, release


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("labels", [{}, PRIVATE])
@pytest.mark.parametrize("question", [{}, {"reg": 0.1}, {"reg": 0.1, "divergence": "sinkhorn"}])
def test_noise_has_the_scale_that_the_theory_asks_for(delta, labels, question):
    X, y = make_groups(10, 6)
    estimator = PrivateSinkhornDistance(0.5, delta, bounds=([0, 0], [1, 2]), **labels, **question)
    fitted = clone(estimator).fit(X, y)
    sensitivity = (
        5.0 * (1 / 4 + 1 / 4 if labels else 1 / 6) * (2 if "divergence" in question else 1)
    )
    spread = math.sqrt(2) / 0.5 if delta == 0 else calibrate_noise_multiplier(0.5, delta)
    assert 1 < fitted.standard_error_ / (sensitivity * spread) < 1.0011
    noise, release = noise_of(estimator, X, y)
    noise *= release.sensitivities
    law, scale = (laplace, fitted.standard_error_ / math.sqrt(2)) if delta == 0 else (
        norm, fitted.standard_error_
    )  # fmt: skip
    assert_scale(noise[:, 0], law, scale)
    # The very same noise is in what a fit releases.
    low, high = fitted.noise_interval_
    assert (low + high) / 2 == pytest.approx(fitted.distance_)
    inside = np.mean(np.abs(noise) < (high - low) / 2)
    assert inside == pytest.approx(0.95, abs=0.006)


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_a_fit_adds_the_noise_that_it_declares(delta):
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
@pytest.mark.parametrize("k", [3, 5])
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
    expected = as_matrix(math.sqrt(2) * together / 2.0 * sensitivities, 3)
    np.testing.assert_allclose(fitted.standard_error_, expected, rtol=1.1e-3)
    assert (fitted.standard_error_ >= expected).all()


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_noise_on_counts(delta):
    """With so small an epsilon that rounding to whole numbers does not matter."""
    X, y = make_groups(10, 6)
    estimator = PrivateSinkhornDistance(0.01, delta, bounds=(0, 1), **MECHANISMS["histogram"])
    noise, _ = noise_of(estimator, X, y, 2000)
    if delta == 0:
        assert_scale(noise.ravel(), laplace, 2 / 0.01)
    else:
        scale = math.sqrt(2) * calibrate_noise_multiplier(0.01, delta)
        assert_scale(noise.ravel(), norm, scale)


@pytest.mark.parametrize("name", ["histogram", "noisy_sinkhorn"])
def test_noise_of_other_mechanisms_is_not_known(name):
    X, y = make_groups(10, 6)
    fitted = PrivateSinkhornDistance(bounds=(0, 1), **MECHANISMS[name]).fit(X, y)
    assert np.isnan([fitted.standard_error_, *fitted.noise_interval_]).all()


# Private labels
# --------------


def padded(sample, size):
    return np.vstack([sample, np.full((max(size - len(sample), 0), sample.shape[1]), 0.5)])


@pytest.mark.parametrize("sizes", [[10, 6], [3, 9], [2, 1]])
@pytest.mark.parametrize("declared", [4, [5, 7]])
def test_small_groups_are_filled_up_with_the_middle_of_the_bounds(sizes, declared):
    X, y = make_groups(*sizes, 9)
    fitted = exact(X, y, **PRIVATE | {"min_group_size": declared})
    first, second = np.broadcast_to(declared, 2)
    cost = cdist(padded(X[y == "a"], first), padded(X[y == "b"], second), "sqeuclidean")
    assert fitted.distance_ == pytest.approx(emd(cost), abs=1e-9)


@pytest.mark.parametrize("params", [{}, {"mechanism": "histogram", "grid": 3}])
def test_groups_may_be_empty(params):
    X, _ = make_groups(10)
    options = PRIVATE | {"bounds": (0, 1)} | params
    fitted = PrivateSinkhornDistance(**options).fit(X, ["nobody"] * 10)
    assert math.isfinite(fitted.distance_)
    if not params:
        assert exact(X, ["nobody"] * 10, **PRIVATE).distance_ == pytest.approx(0, abs=1e-9)


ODD_LABELS = [
    "c", None, math.nan, 3, 0.5, 2.0**70, 1j, (1, 2), [1], ["a"], {}, {"a"}, np.array([1, 2]),
    pd.NA, pd.NaT, b"a", True,
]  # fmt: skip


@pytest.mark.parametrize("label", ODD_LABELS, ids=repr)
@pytest.mark.parametrize("groups", [["a", "b"], [0, 2**53 + 1]], ids=str)
def test_a_label_that_is_no_group_concerns_its_record_alone(label, groups):
    """Among labels in a list, one must not change the type of the others."""
    X, y = make_groups(10, 6)
    labels = [groups[name == "b"] for name in y.tolist()]
    options = PRIVATE | {"groups": groups}
    without = exact(X[1:], labels[1:], **options).distance_
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
        # The labels that a fit returns are found by `score`.
        assert math.isfinite(fitted.score(X, given_labels))


@pytest.mark.parametrize(
    "kind", ["text", "categories", "nullable numbers", "truth values", "dates"]
)
def test_public_groups_are_those_in_y(kind):
    names, form = LABELS[kind]
    X, y = make_groups(10, 6)
    fitted = exact(X, form([names[int(name == "b")] for name in y]))
    assert fitted.groups_.tolist() == np.unique(np.array(names)).tolist()
    assert fitted.distance_ == pytest.approx(exact(X, y).distance_, abs=1e-9)


# Ledgers
# -------


@pytest.mark.parametrize("method", ["fit", "score"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_charge_comes_before_the_release(name, method, monkeypatch):
    X, y = make_groups(10, 6)
    ledger = PrivacyLedger(1.5, 0.1, allow_seeded=True)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), random_state=0, **MECHANISMS[name])
    if method == "score":
        estimator.fit(X, y)
    estimator.set_params(ledger=ledger)
    charged = []

    def fail(*args, **kwargs):
        charged.append(len(ledger.entries()))
        raise MemoryError

    release = RELEASES["output" if method == "score" else name]
    monkeypatch.setattr(release, "run", fail)
    before = vars(estimator).keys()
    with pytest.raises(MemoryError):
        getattr(estimator, method)(X, y)
    assert charged == [1]
    # Spent is spent, and what is refused is never computed.
    with pytest.raises(BudgetExceededError):
        getattr(estimator, method)(X, y)
    assert charged == [1] and len(ledger.entries()) == 1
    assert vars(estimator).keys() <= before | {"n_features_in_"}


def the_event(**params):
    X, y = make_groups(10, 6, *params.pop("further_sizes", ()))
    ledger = PrivacyLedger(neighbouring="replace_one", epsilon=9.0, delta=0.1)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), ledger=ledger, **params).fit(X, y)
    (entry,) = ledger.entries()
    assert entry.unit == "record" and not entry.seeded
    assert entry.label == f"PrivateSinkhornDistance, {estimator.labels} labels"
    assert 0.95 * estimator.epsilon < spent(ledger) <= estimator.epsilon
    return entry.event


@pytest.mark.parametrize("sizes", [(), (7, 8)])
def test_events_are_exact(sizes):
    gaussian = GaussianDpEvent(calibrate_noise_multiplier(0.5, DELTA))
    for params in (MECHANISMS["output"], MECHANISMS["histogram"]):
        event = the_event(epsilon=0.5, further_sizes=sizes, **params)
        assert event == LaplaceDpEvent(2.0)
        event = the_event(epsilon=0.5, delta=DELTA, further_sizes=sizes, **params)
        assert event == PlannedDpEvent(gaussian, DELTA)
    event = the_event(epsilon=0.5, further_sizes=sizes, **MECHANISMS["noisy_sinkhorn"])
    if sizes:
        assert event == ApproximateDpEvent(0.5, DELTA)
    else:
        assert isinstance(event, PlannedDpEvent) and event.delta == DELTA


def test_private_labels_are_named_in_the_ledger():
    assert the_event(epsilon=0.5, **PRIVATE) == LaplaceDpEvent(2.0)


def test_a_fit_and_every_score_are_charged():
    X, y = make_groups(10, 6)
    for params in MECHANISMS.values():
        ledger = PrivacyLedger(10.0, 0.1)
        estimator = PrivateSinkhornDistance(2.0, bounds=(0, 1), ledger=ledger)
        estimator.set_params(**params).fit(X, y)
        estimator.score(X, y)
        estimator.score(X, y)
        assert [entry.epsilon for entry in ledger.entries()] == pytest.approx([2.0] * 3, rel=0.03)
        if estimator.mechanism == "histogram":
            estimator.transform(X)
        assert len(ledger.entries()) == 3


@pytest.mark.parametrize("name", MECHANISMS)
def test_budget_accountants_are_charged(name):
    X, y = make_groups(10, 6)
    accountant = BudgetAccountant(epsilon=1.5, delta=0.1)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), ledger=accountant, **MECHANISMS[name])
    estimator.fit(X, y)
    assert 0.95 < accountant.total()[0] <= 1.0 and accountant.total()[1] == estimator.delta
    with pytest.raises(BudgetError):
        estimator.fit(X, y)
    for duplicate in (copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
        with pytest.raises(RuntimeError, match=r"cannot follow(.|\n)*set_params\(ledger="):
            duplicate.fit(X, y)
    assert len(accountant) == 1


def test_clones_and_copies_share_the_ledger():
    X, y = make_groups(10, 6)
    ledger = PrivacyLedger(10.0)
    estimator = PrivateSinkhornDistance(0.5, bounds=(0, 1), ledger=ledger)
    copies = [clone(estimator), copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))]
    for duplicate in copies:
        duplicate.fit(X, y)
    assert spent(ledger) == pytest.approx(1.5)


def shifted(X, level=0.0):
    """Return the first column, moved by a level where the second says so: a repair in miniature."""
    return X[:, :1] - level * X[:, 1:]


def repair_search(ledger, levels=(0.0, 0.25, 0.5), **options):
    """Return a search for the repair of groups that are 0.25 apart, and their data."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 100)
    X = np.column_stack([rng.uniform(0.2, 0.6, 100) + 0.25 * group, group])
    pipeline = make_pipeline(
        FunctionTransformer(shifted, kw_args={"level": 0.0}),
        PrivateSinkhornDistance(20.0, bounds=(0, 1), ledger=ledger),
    )
    grid = {"functiontransformer__kw_args": [{"level": level} for level in levels]}
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    return GridSearchCV(pipeline, grid, cv=folds, error_score="raise", **options), X, group


def test_a_search_over_a_preceding_step_finds_the_repair():
    ledger = PrivacyLedger()
    search, X, group = repair_search(ledger)
    search.fit(X, group)
    assert search.best_params_ == {"functiontransformer__kw_args": {"level": 0.25}}
    # Each candidate released two halves twice, to fit and to score; the best then the whole.
    assert spent(ledger) == pytest.approx(20.0 * (3 * 4 + 1))
    with parallel_config(backend="threading", n_jobs=2):
        repair_search(ledger)[0].fit(X, group)
    assert spent(ledger) == pytest.approx(2 * 20.0 * (3 * 4 + 1))


def test_a_search_stops_where_the_budget_ends():
    ledger = PrivacyLedger(50.0)
    search, X, group = repair_search(ledger)
    with pytest.raises(BudgetExceededError):
        search.fit(X, group)
    assert spent(ledger) == pytest.approx(40.0)


def test_a_search_in_other_processes_spends_the_same_budget():
    # On a line, no process has to import POT.
    X, y = make_groups(10, 6, n_features=1)
    ledger = PrivacyLedger()
    estimator = PrivateSinkhornDistance(2.0, bounds=(0, 1), ledger=ledger)
    folds = StratifiedKFold(2)
    search = GridSearchCV(estimator, {"order": [1]}, cv=folds, n_jobs=2, error_score="raise")
    try:
        with parallel_config(backend="loky"):
            search.fit(X, y)
    finally:
        get_reusable_executor().shutdown(wait=True)
    assert spent(ledger) == pytest.approx(2.0 * (4 + 1))


def test_ledgers_of_other_kinds_are_refused():
    X, y = make_groups(10, 6)
    hiding = PrivacyLedger(10.0)
    parts = hiding.partition("region", ["north", "south"])
    for ledger, params, message in (
        (parts["north"], {}, "which part a unit is in is not public"),
        (PrivacyLedger(10.0, neighbouring="add_remove"), {}, "private under neighbouring="),
        (PrivacyLedger(10.0), {"random_state": 0}, "allow_seeded"),
    ):
        estimator = PrivateSinkhornDistance(bounds=(0, 1), ledger=ledger, **params)
        with pytest.raises(ValueError, match=message):
            estimator.fit(X, y)
        assert not ledger.entries()
        estimator.set_params(ledger=None).fit(X, y).set_params(ledger=ledger)
        with pytest.raises(ValueError, match=message):
            estimator.score(X, y)
        assert not ledger.entries()
    fixed = PrivacyLedger(10.0).partition("region", ["north"], fixed_key=True)["north"]
    PrivateSinkhornDistance(bounds=(0, 1), ledger=fixed).fit(X, y)
    seeded = PrivacyLedger(10.0, allow_seeded=True)
    PrivateSinkhornDistance(bounds=(0, 1), ledger=seeded, random_state=0).fit(X, y)
    assert [entry.seeded for entry in seeded.entries()] == [True]


# Guarantees
# ----------


@pytest.mark.parametrize("name", MECHANISMS)
def test_guarantee(name):
    X, y = make_groups(10, 6)
    fitted = PrivateSinkhornDistance(0.5, bounds=(0, 1)).set_params(**MECHANISMS[name]).fit(X, y)
    guarantee = fitted.privacy_guarantee_
    assert (guarantee.epsilon, guarantee.delta) == (0.5, fitted.delta)
    assert (guarantee.neighbouring, guarantee.unit) == ("replace_one", "record")
    amount = "(0.5, 1e-05)" if fitted.delta else "0.5"
    assert str(guarantee) == (
        f"{amount}-differentially private for every record (replace_one); not protected: the group "
        "of each record, the size of each group"
    )
    assert clone(fitted).set_params(random_state=0).fit(X, y).privacy_guarantee_ is None


def test_guarantee_with_private_labels():
    X, y = make_groups(10, 6)
    fitted = PrivateSinkhornDistance(2.0, bounds=(0, 1), **PRIVATE).fit(X, y)
    assert not fitted.privacy_guarantee_.not_protected
    assert str(fitted.privacy_guarantee_).endswith("private for every record (replace_one)")


PAPER = MECHANISMS["noisy_sinkhorn"] | {"accounting": "paper", "bounds": (0, 1), "reg": 5.0}


@pytest.mark.parametrize("further", [{}, {"adaptive_noise": 0.5, "n_iter": 2}])
def test_published_accounting_guarantees_nothing(further):
    X, y = make_groups(10, 6)
    estimator = PrivateSinkhornDistance(**PAPER | further)
    with pytest.warns(NoGuaranteeWarning, match="what is released is not private") as caught:
        estimator.fit(X, y)
    assert caught[0].filename == __file__
    assert estimator.privacy_guarantee_ is None
    assert math.isfinite(estimator.distance_)
    for ledger in (PrivacyLedger(100.0, 0.5), BudgetAccountant()):
        estimator.set_params(ledger=ledger)
        for method in (estimator.score, estimator.fit):
            with pytest.raises(ValueError, match="accounting='paper' guarantees nothing"):
                method(X, y)
        # A fit that was refused is none.
        with pytest.raises(NotFittedError):
            estimator.score(X, y)
        with pytest.warns(NoGuaranteeWarning):
            estimator.set_params(ledger=None).fit(X, y)
        assert spent(ledger) == 0 if isinstance(ledger, PrivacyLedger) else len(ledger) == 0


def test_a_refit_leaves_nothing_of_the_last_one():
    X, y = make_groups(10, 6)
    X3, y3 = make_groups(10, 6, 5)
    estimator = PrivateSinkhornDistance(bounds=(0, 1))
    always = {
        "distances_", "standard_error_", "noise_interval_", "groups_", "privacy_guarantee_",
        "n_features_in_",
    }  # fmt: skip
    of_histograms = {"support_", "histograms_"}
    of_two_histograms = of_histograms | {"distance_", "plan_", "potentials_"}
    for params, data, further in (
        (MECHANISMS["histogram"], (X, y), of_two_histograms),
        (MECHANISMS["histogram"], (X3, y3), of_histograms),
        (MECHANISMS["noisy_sinkhorn"], (X, y), {"distance_", "potentials_"}),
        (MECHANISMS["noisy_sinkhorn"], (X3, y3), set()),
        ({"mechanism": "output"}, (X, y), {"distance_"}),
        (MECHANISMS["histogram"], (X, y), of_two_histograms),
        ({"mechanism": "output"}, (X3, y3), set()),
    ):
        estimator.set_params(**params).fit(*data)
        assert {name for name in vars(estimator) if name.endswith("_")} == always | further
        assert ("_transport" in vars(estimator)) == ("plan_" in further)


@pytest.mark.parametrize("name", MECHANISMS)
def test_nothing_private_is_kept(name):
    """What a fitted estimator holds is what it released, and what was public."""
    X, y = make_groups(10, 6)
    fitted = PrivateSinkhornDistance(bounds=(0, 1), **MECHANISMS[name]).fit(X, y)
    state = pickle.dumps(fitted)
    for record in X:
        assert record[:1].tobytes() not in state
    known = PrivateSinkhornDistance().get_params().keys()
    shown = {key for key in vars(fitted) if key not in known and key.startswith("_")}
    assert shown == ({"_transport"} if name == "histogram" else set())
    assert "PrivateSinkhornDistance" in estimator_html_repr(fitted)


# Randomness, threads, progress
# -----------------------------


@pytest.mark.parametrize("name", MECHANISMS)
def test_seeds_reproduce_and_their_absence_does_not(name):
    X, y = make_groups(10, 6, 7)
    # Where less noise is needed, for distances to stay within the range of the cost.
    epsilon = 1e3 if name == "noisy_sinkhorn" else 1.0

    def distances(**params):
        estimator = PrivateSinkhornDistance(epsilon, bounds=(0, 1), **MECHANISMS[name] | params)
        return estimator.fit(X, y).distances_

    np.testing.assert_array_equal(distances(random_state=1), distances(random_state=1))
    assert (distances(random_state=1) != distances(random_state=2)).any()
    np.random.seed(0)
    first = distances()
    np.random.seed(0)
    assert (distances() != first).any()
    state = np.random.RandomState(0)
    assert (distances(random_state=state) != distances(random_state=state)).any()


@pytest.mark.parametrize("further", [{}, {"reg": 0.1}, {"reg": 0.1, "divergence": "sinkhorn"}])
@pytest.mark.parametrize("name", ["output", "histogram"])
def test_results_do_not_depend_on_the_number_of_jobs(name, further):
    assert_jobs_do_not_matter(further | MECHANISMS[name])


def test_results_of_noisy_sinkhorn_do_not_depend_on_the_number_of_jobs():
    assert_jobs_do_not_matter(MECHANISMS["noisy_sinkhorn"] | {"epsilon": 1e3})


def assert_jobs_do_not_matter(params):
    X, y = make_groups(30, 20, 25)
    options = {"bounds": (0, 1), "random_state": 0} | params
    expected = PrivateSinkhornDistance(**options).fit(X, y)
    score = expected.score(X, y)
    for n_jobs in (1, 2, -1):
        fitted = PrivateSinkhornDistance(n_jobs=n_jobs, **options).fit(X, y)
        np.testing.assert_array_equal(fitted.distances_, expected.distances_)
        assert fitted.score(X, y) == score


@pytest.mark.parametrize("name", MECHANISMS)
def test_progress_bar_changes_nothing_and_tells_nothing(name, capsys):
    X, y = make_groups(10, 6, 7)
    options = MECHANISMS[name] | {"bounds": (0, 1), "random_state": 0}
    expected = PrivateSinkhornDistance(**options).fit(X, y).distances_
    assert capsys.readouterr() == ("", "")
    shown = PrivateSinkhornDistance(verbose=1, **options).fit(X, y)
    np.testing.assert_array_equal(shown.distances_, expected)
    printed = capsys.readouterr()
    assert printed.out == ""
    last = printed.err.split("\r")[-1]
    assert last.startswith("PrivateSinkhornDistance: 100%") and "| 3/3 [" in last
    shown.score(X, y)
    assert capsys.readouterr() == ("", "")


# Score
# -----


def test_score_is_minus_the_mean_divergence_of_scaled_features():
    X, y = make_groups(12, 9, 7)
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 4.0])
    fitted = exact(X, y, bounds=(low, high), tol=1e-3)
    samples = [(X[y == name] - low) / (high - low) for name in "abc"]

    def cost(g, h):
        return entropic_transport(cdist(samples[g], samples[h], "sqeuclidean") / 2, 0.05)[0]

    divergences = [cost(g, h) - (cost(g, g) + cost(h, h)) / 2 for g, h in combinations(range(3), 2)]
    score = fitted.score(X, y)
    assert isinstance(score, float)
    # It is computed up to a thousandth of its sensitivity.
    assert score == pytest.approx(-np.mean(divergences), abs=1e-3 / 7)


CANDIDATES = [
    {"metric": "cityblock"},
    {"reg": 2.0},
    {"reg": 2.0, "divergence": "sinkhorn"},
    {"order": 2.0},
    {"tol": 0.5},
    MECHANISMS["histogram"],
    {"metric": asymmetric, "cost_range": (3, 4)},
]


@pytest.mark.parametrize("params", CANDIDATES)
def test_score_compares_candidates_by_one_measure(params):
    X, y = make_groups(12, 9)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), random_state=0).fit(X, y)
    other = PrivateSinkhornDistance(bounds=(0, 1), random_state=0, **params).fit(X, y)
    assert other.score(X, y) == estimator.score(X, y)


def test_noise_of_the_score(monkeypatch):
    X, y = make_groups(12, 9)
    estimator = PrivateSinkhornDistance(0.5, bounds=(-1, 3), random_state=np.random.RandomState(0))
    without = exact(X, y, bounds=(-1, 3)).score(X, y)
    estimator.fit(X, y)
    monkeypatch.setattr(_output, "answers", lambda *args, **options: np.array([-2 * without]))
    noise = np.array([estimator.score(X, y) for _ in range(1500)]) - without
    # The mean over features of squared differences ranges over 1, and the divergence twice that.
    assert_scale(noise, laplace, 2 / 9 / 0.5, off=0.4)


def test_score_of_equal_groups_is_highest():
    X, y = make_groups(30, 30)
    fitted = exact(X, y)
    twins = np.vstack([X[:30], X[:30]]), np.repeat(["a", "b"], 30)
    best = fitted.score(*twins)
    assert best == pytest.approx(0, abs=1e-3 / 30)
    assert best > fitted.score(X, y)


def test_score_is_of_the_groups_of_the_fit():
    X, y = make_groups(12, 9)
    fitted = exact(X, y, groups=["b", "a"])
    with pytest.raises(ValueError, match="y holds 'c', which is none of the declared groups"):
        fitted.score(X, np.where(y == "a", "c", y))
    with pytest.raises(ValueError, match="there is no record of group 'a' in y"):
        fitted.score(X[y == "b"], y[y == "b"])


# Histograms
# ----------


def histogram(X, y, epsilon=1e10, **params):
    settings = {"bounds": (0.0, 1.0), "mechanism": "histogram"} | params
    return PrivateSinkhornDistance(epsilon, **settings).fit(X, y)


POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 0.9]])


@pytest.mark.parametrize("params", [{}, {"reg": 0.05}, {"reg": 0.5, "divergence": "sinkhorn"}])
@pytest.mark.parametrize("grid", [3, POINTS], ids=["regular", "explicit"])
def test_histograms_plan_and_cost(params, grid):
    X, y = make_groups(40, 25)
    fitted = histogram(X, y, grid=grid, **params)
    support = fitted.support_
    middles = np.array([1, 3, 5]) / 6
    regular = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(support, POINTS if grid is POINTS else regular)
    cells = cdist(X, support).argmin(axis=1)
    counts = [np.bincount(cells[y == name], minlength=len(support)) for name in "ab"]
    a, b = (count / count.sum() for count in counts)
    np.testing.assert_allclose(fitted.histograms_, [a, b], atol=1e-8)
    assert (fitted.histograms_ >= 0).all()
    np.testing.assert_allclose(fitted.histograms_.sum(axis=1), 1, rtol=1e-12)
    cost = cdist(support, support, "sqeuclidean")
    plan, (phi, psi) = fitted.plan_, fitted.potentials_
    np.testing.assert_allclose(plan.sum(axis=1), a, atol=1e-7)
    np.testing.assert_allclose(plan.sum(axis=0), b, atol=1e-7)
    if not params:
        assert fitted.distance_ == pytest.approx(ot.emd2(a, b, cost), abs=1e-8)
        assert np.sum(plan * cost) == pytest.approx(fitted.distance_, abs=1e-8)
        assert (phi[:, None] + psi <= cost + 1e-9).all()
    elif "divergence" not in params:
        inside = np.ix_(a > 0, b > 0)
        penalty = np.sum(plan[inside] * np.log(plan[inside] / np.outer(a, b)[inside]))
        value = np.sum(plan * cost) + params["reg"] * penalty
        assert fitted.distance_ == pytest.approx(value, abs=1e-6)
    if "divergence" not in params:
        assert a @ phi + b @ psi == pytest.approx(fitted.distance_, abs=1e-6)


def test_divergence_of_equal_histograms_is_zero():
    sample, _ = make_groups(40)
    X, y = np.vstack([sample, sample]), np.repeat([0, 1], 40)
    found = histogram(X, y, grid=4, reg=0.1, divergence="sinkhorn").distance_
    assert found == pytest.approx(0, abs=1e-7)


def test_costs_of_histograms_may_begin_above_zero():
    X, y = make_groups(40, 25)
    options = {"metric": "cityblock", "cost_range": (0.5, 1.5), "grid": 3}
    for reg in (0.0, 0.3):
        fitted = histogram(X, y, reg=reg, **options)
        cost = np.clip(cdist(fitted.support_, fitted.support_, "cityblock"), 0.5, 1.5)
        plan, (phi, psi) = fitted.plan_, fitted.potentials_
        a, b = fitted.histograms_
        assert a @ phi + b @ psi == pytest.approx(fitted.distance_, abs=1e-6)
        if reg == 0:
            assert fitted.distance_ == pytest.approx(np.sum(plan * cost), abs=1e-8)
        else:
            density = np.exp((phi[:, None] + psi - cost) / reg)
            np.testing.assert_allclose(plan, np.outer(a, b) * density, atol=1e-12)


@pytest.mark.parametrize("reg", [0.0, 1e-3])
def test_equal_groups_are_mapped_to_themselves(reg):
    sample, _ = make_groups(300)
    X, y = np.vstack([sample, sample]), np.repeat([0, 1], 300)
    fitted = histogram(X, y, grid=5, reg=reg)
    images = fitted.transform(sample)
    nearest = fitted.support_[cdist(sample, fitted.support_).argmin(axis=1)]
    if reg == 0:
        np.testing.assert_allclose(images, nearest, atol=1e-6)
    assert np.abs(images - sample).max() <= 0.1 + 1e-6
    # What is outside is moved to the bounds first.
    np.testing.assert_array_equal(fitted.transform([[-5, 9.0]]), fitted.transform([[0, 1.0]]))


@pytest.mark.parametrize("reg", [0.0, 1e-3, 0.1])
def test_the_map_takes_one_group_to_the_other(reg):
    rng = np.random.default_rng(0)
    first = rng.uniform(0, 0.5, (400, 1))
    X, y = np.vstack([first, first + 0.4]), np.repeat([0, 1], 400)
    fitted = histogram(X, y, grid=20, reg=reg)
    images = fitted.transform(first)
    assert images.mean() == pytest.approx(first.mean() + 0.4, abs=0.02)
    if reg < 0.1:
        assert np.abs(images - first - 0.4).max() < 0.06
    assert ((0 <= images) & (images <= 1)).all()


@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_rows_are_mapped_from_where_no_record_was(reg):
    X = np.repeat([[0.1, 0.1], [0.9, 0.1]], 20, axis=0)
    fitted = histogram(X, np.repeat([0, 1], 20), grid=2, reg=reg, epsilon=1e6)
    assert fitted.transform([[0.9, 0.9], [0.1, 0.9]]).shape == (2, 2)
    np.testing.assert_allclose(fitted.transform([[0.1, 0.1]]), [[0.75, 0.25]], atol=1e-3)


def test_rows_are_transformed_by_histograms_of_two_groups_alone():
    X, y = make_groups(10, 6)
    X3, y3 = make_groups(10, 6, 5)
    for params in (MECHANISMS["output"], MECHANISMS["noisy_sinkhorn"]):
        ledger = PrivacyLedger(10.0, 0.1)
        fitted = PrivateSinkhornDistance(bounds=(0, 1), ledger=ledger, **params).fit(X, y)
        for method in ("transform", "fit_transform"):
            assert not hasattr(fitted, method)
        with pytest.raises(AttributeError):
            fitted.fit_transform(X, y)
        assert len(ledger.entries()) == 1
        with pytest.raises(NotFittedError):
            fitted.set_params(mechanism="histogram").transform(X)
    with pytest.raises(ValueError, match="between two groups, and there are 3"):
        histogram(X3, y3, grid=2).transform(X)
    with pytest.raises(NotFittedError):
        PrivateSinkhornDistance(mechanism="histogram").transform(X)
    assert PrivateSinkhornDistance(**MECHANISMS["histogram"], bounds=(0, 1)).fit_transform(
        X, y
    ).shape == (16, 2)


@pytest.mark.parametrize(
    "n_records, epsilon, n_features, n_cells",
    [(100, 1.0, 1, 10), (1000, 1.0, 2, 9**2), (10**4, 2.0, 2, 27**2), (10**4, 1.0, 1, 100),
     (10**4, 1e4, 2, 32**2), (10**4, 1e4, 1, 1024), (4, 1e-3, 3, 2**3), (10, 0.1, 10, 2**10)],
)  # fmt: skip
def test_the_automatic_grid_depends_on_public_numbers(n_records, epsilon, n_features, n_cells):
    estimator = PrivateSinkhornDistance(epsilon, bounds=(0, 1), mechanism="histogram")
    X, y = np.zeros((n_records, n_features)), np.arange(n_records) % 2
    release, _ = distance_releases.plan(estimator, X, y)
    assert release.support.shape == (n_cells, n_features)


@pytest.mark.parametrize("labels", [{}, PRIVATE])
def test_a_record_changes_two_counts(labels):
    rng = np.random.default_rng(0)
    X, y = make_groups(6, 5)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), **MECHANISMS["histogram"], **labels)

    def counts(X, y):
        release, X = distance_releases.plan(estimator, X, y)
        return distance_releases.exact_values(release, X)[0]

    found, largest = counts(X, y), 0.0
    for _ in range(40):
        other, other_y, i = X.copy(), y.copy(), rng.integers(len(y))
        other[i] = rng.choice([-1e300, -0.2, 0.0, 0.4, 1.0, 1e300], 2)
        if labels:
            other_y[i] = rng.choice(["a", "b", "c"])
        change = (counts(other, other_y) - found).ravel()
        assert np.abs(change).sum() <= 2 and np.sum(change**2) <= 2
        largest = max(largest, np.abs(change).sum())
    assert largest == 2


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=8))
def test_nearest_distribution(weights):
    weights = np.array(weights)
    found = nearest_distribution(weights)
    assert (found >= 0).all() and found.sum() == pytest.approx(1, rel=1e-12)

    def excess(constant):
        return np.maximum(weights - constant, 0).sum() - 1

    constant = brentq(excess, weights.max() - 1.5, weights.max(), xtol=1e-300)
    tolerance = 1e-9 + 4 * np.spacing(np.abs(weights).max())
    np.testing.assert_allclose(found, np.maximum(weights - constant, 0), atol=tolerance)


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


def test_pipeline_after_a_column_transformer():
    people, year = make_people()
    work = ["none", "own", "public"]
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(categories=[work], sparse_output=False), ["work"]),
            ("passthrough", ["age", "hours"]),
        ),
        PrivateSinkhornDistance(1e8, bounds=([0, 0, 0, 18, 0], [1, 1, 1, 90, 60])),
    )
    pipeline.fit(people, year)
    columns = [people["work"] == kind for kind in work]
    encoded = np.column_stack([*columns, people["age"], people["hours"]]).astype(float)
    cost = cdist(encoded[year == "2024"], encoded[year == "2025"], "sqeuclidean")
    assert pipeline[-1].distance_ == pytest.approx(emd(cost), abs=1e-3)
    assert pipeline[-1].n_features_in_ == 5
    assert pipeline.score(people, year) < 0
    assert not hasattr(pipeline, "transform")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    people, year = make_people()
    frame = people[["age", "hours"]]
    options = {"bounds": ([18, 0], [90, 60]), "mechanism": "histogram", "grid": 4}
    fitted = PrivateSinkhornDistance(random_state=0, **options).fit(frame, pd.Series(year))
    assert (
        list(fitted.feature_names_in_) == list(fitted.get_feature_names_out()) == ["age", "hours"]
    )
    expected = fitted.transform(frame)
    moved = fitted.set_output(transform=library).transform(frame)
    assert type(moved).__module__.split(".")[0] == library
    assert list(moved.columns) == ["age", "hours"]
    np.testing.assert_array_equal(moved.to_numpy(), expected)
    for method in (fitted.transform, lambda X: fitted.score(X, year)):
        with pytest.raises(ValueError, match="feature names should match"):
            method(frame[frame.columns[::-1]])
    by_array = PrivateSinkhornDistance(random_state=0, **options).fit(frame.to_numpy(), year)
    np.testing.assert_array_equal(by_array.histograms_, fitted.histograms_)


# What fails must not depend on what is private
# ---------------------------------------------


SEARCHED = {
    "exact": {},
    "on a line": {"metric": "euclidean"},
    "canberra": {"metric": "canberra"},
    "braycurtis": {"metric": "braycurtis", "cost_range": (0, 1)},
    "entropic": {"reg": 0.05},
    "entropic, many features": {"reg": 0.5, "metric": "cityblock"},
    "debiased": {"reg": 0.5, "divergence": "sinkhorn", "delta": DELTA},
    "callable": {"metric": failing, "cost_range": (0, 1)},
    "histogram": {"mechanism": "histogram", "grid": 2},
    "histogram, entropic": {"mechanism": "histogram", "grid": 2, "reg": 0.1, "delta": DELTA},
    "noisy Sinkhorn": MECHANISMS["noisy_sinkhorn"],
}
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 1.0, 0.5, 5e-324, 1e-160, 1e-310, -0.0, 1.7e308, -1.7e308]
)


def outcome(estimator, X, y):
    """Return how a fit and a score end, and of what they warn, for callers who want to know all."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            estimator.fit(X, y).score(X, y)
            end = "released"
        except Exception as error:
            end = repr(error)
    return end, [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    "name, labels",
    [
        (name, labels)
        for name in SEARCHED
        for labels in ("public", "private")
        if (name, labels) != ("noisy Sinkhorn", "private")
    ],
)
def test_no_record_makes_a_release_fail_or_warn(name, labels):
    n_features = 1 if name == "on a line" else 9 if "many" in name else 2
    X, y = make_groups(5, 4, n_features=n_features)
    options = {"bounds": (0, 1)} | (PRIVATE if labels == "private" else {}) | SEARCHED[name]
    estimator = PrivateSinkhornDistance(**options)
    strange = st.sampled_from(ODD_LABELS + ["a", "b"]) if labels == "private" else st.nothing()

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(
        st.integers(0, len(y) - 1),
        st.lists(NUMBERS, min_size=n_features, max_size=n_features),
        st.none() | strange.map(lambda label: [label]),
    )
    def search(i, record, label):
        other, other_y = X.copy(), y.tolist()
        other[i] = record
        if label is not None:
            other_y[i] = label[0]
        assert outcome(estimator, other, other_y) == ("released", [])

    search()


def test_no_sum_of_features_warns():
    """One record's values, whose sums are both infinities, are finite all the same."""
    X, y = make_groups(5, 4, n_features=16)
    X[3] = np.tile([1.7e308, -1.7e308], 8)
    estimator = PrivateSinkhornDistance(bounds=(0, 1))
    assert outcome(estimator, X, y) == ("released", [])


# Bad input
# ---------

# Every number and label begins with these digits, which no message may show.
SECRET = 3.14159
TEXT = "'{}' parameter of PrivateSinkhornDistance"


def nowhere(x, y):
    raise ArithmeticError("no distance")


TWO_POINTS = {"mechanism": "histogram", "grid": [[0.5, 0.5], [0.5, np.nan]]}
BAD_PARAMETERS = [
    ({"bounds": None}, "bounds must be declared"),
    ({"bounds": (1, 0)}, r"bounds must be a pair .* with low < high .* got \(1, 0\)"),
    ({"bounds": (1, 1)}, "bounds must be a pair"),
    ({"bounds": (0, np.nan)}, "bounds must be a pair"),
    ({"bounds": (0, np.inf)}, "bounds must be a pair"),
    ({"bounds": ([0, 1], [1, 1])}, "bounds must be a pair"),
    ({"bounds": ([0, 0, 0], 1)}, "one number for each of the 2 features"),
    ({"bounds": (0, 1, 2)}, "bounds must be a pair"),
    ({"bounds": ("a", "b")}, "bounds must be a pair"),
    ({"bounds": (-1.7e308, 1.7e308)}, "bounds must be a pair"),
    ({"bounds": (0, 1e200)}, "magnitudes up to 1e150"),
    ({"bounds": 5}, TEXT.format("bounds")),
    ({"bounds": "ab"}, TEXT.format("bounds")),
    ({"epsilon": 0}, TEXT.format("epsilon")),
    ({"epsilon": -1.0}, TEXT.format("epsilon")),
    ({"epsilon": np.nan}, TEXT.format("epsilon")),
    ({"epsilon": np.inf}, TEXT.format("epsilon")),
    ({"epsilon": "1"}, TEXT.format("epsilon")),
    ({"epsilon": 1e-300}, "scale of the noise|noise of scale"),
    ({"epsilon": 1e-14, "mechanism": "histogram", "grid": 2}, "the scale of the noise"),
    ({"delta": 1.0}, TEXT.format("delta")),
    ({"delta": -0.1}, TEXT.format("delta")),
    ({"delta": np.nan}, TEXT.format("delta")),
    ({"labels": "secret"}, TEXT.format("labels")),
    ({"groups": ["a"]}, "needs two or more groups, got 1"),
    ({"groups": ["a", "a"]}, "groups must be a list of different labels"),
    ({"groups": [["a"], ["b"]]}, "groups must be a list of different labels"),
    ({"groups": np.array([["a"], ["b"]])}, "groups must be a list of different labels"),
    ({"groups": ["a", ["b", "c"]]}, "groups must be a list of different labels"),
    ({"groups": [np.nan, "a"]}, "groups must be a list of different labels"),
    ({"groups": [pd.NA, "a"]}, "groups must be a list of different labels"),
    ({"groups": ["a", "c"]}, r"y holds 'b', which is none of the declared groups \['a', 'c'\]"),
    ({"groups": ["a", "b", "c"]}, "there is no record of group 'c' in y"),
    ({"groups": "ab"}, TEXT.format("groups")),
    ({"min_group_size": 0}, TEXT.format("min_group_size")),
    ({"min_group_size": 2.5}, TEXT.format("min_group_size")),
    ({"min_group_size": [4, 0]}, "min_group_size must be a positive integer, or one for each"),
    ({"min_group_size": [4.5, 3]}, "min_group_size must be a positive integer, or one for each"),
    ({"min_group_size": [4, 4, 4]}, "one for each of the 2 groups"),
    ({"min_group_size": 9}, "group 'b' has 6 records, fewer than min_group_size=9"),
    (PRIVATE | {"groups": None}, "labels='private' needs groups: .* not be learned from y"),
    (PRIVATE | {"min_group_size": None}, "labels='private' needs min_group_size"),
    (PRIVATE | {"groups": ["a"]}, "needs two or more groups, got 1"),
    (PRIVATE | {"min_group_size": [4, 4, 4]}, "one for each of the 2 groups"),
    (PRIVATE | {"min_group_size": 9}, "min_group_size adds up to 18 .* there are 16 in all"),
    (PRIVATE | MECHANISMS["noisy_sinkhorn"], "sizes of groups are public"),
    ({"metric": "crow"}, "metric='crow' is not known"),
    ({"metric": "precomputed"}, "has no meaning here"),
    ({"metric": 3}, TEXT.format("metric")),
    ({"metric": "seuclidean"}, "needs the variances of the features"),
    ({"metric": "mahalanobis"}, "needs an inverse covariance matrix"),
    ({"metric": "minkowski", "metric_params": {"p": 0.5}}, "must be a finite number >= 1"),
    ({"metric_params": {"p": 2}}, "takes none"),
    ({"metric": "jaccard"}, "no proven range"),
    ({"metric": asymmetric}, "a callable metric needs cost_range"),
    ({"metric": nowhere, "cost_range": (0, 1)}, "returned no number for the two corners"),
    ({"cost_range": (1, 0)}, "cost_range must be two finite numbers"),
    ({"cost_range": (0, np.nan)}, "cost_range must be two finite numbers"),
    ({"cost_range": (0, 1, 2)}, "cost_range must be two finite numbers"),
    ({"cost_range": ("0", "1")}, "cost_range must be two finite numbers"),
    ({"cost_range": (2, 3)}, "leaves one cost only"),
    ({"cost_range": 1.0}, TEXT.format("cost_range")),
    ({"reg": -0.1}, TEXT.format("reg")),
    ({"reg": np.nan}, TEXT.format("reg")),
    ({"reg": np.inf}, TEXT.format("reg")),
    ({"reg": 1e-15}, "double precision certifies no less than .* Raise reg, or tol"),
    ({"reg": 1e-300}, "double precision certifies no less than"),
    ({"reg": 1e-15, "mechanism": "histogram", "grid": 2}, "double precision certifies no less"),
    ({"divergence": "sinkhorn"}, "needs reg > 0"),
    ({"divergence": "sinkhorn", "mechanism": "histogram"}, "needs reg > 0"),
    ({"divergence": "renyi"}, TEXT.format("divergence")),
    ({"tol": 0}, TEXT.format("tol")),
    ({"tol": 1}, TEXT.format("tol")),
    ({"tol": 1e-15}, "double precision certifies no less than"),
    ({"order": 0.5}, TEXT.format("order")),
    ({"mechanism": "input"}, TEXT.format("mechanism")),
    ({"accounting": "hopeful"}, TEXT.format("accounting")),
    ({"accounting": "paper", "ledger": None}, "is that of mechanism='noisy_sinkhorn'"),
    ({"accounting": "paper"}, "accounting='paper' guarantees nothing"),
    (MECHANISMS["noisy_sinkhorn"] | {"delta": 0.0}, "delta must be above 0, got 0"),
    (MECHANISMS["noisy_sinkhorn"] | {"reg": 0.0}, "reg must be"),
    (MECHANISMS["noisy_sinkhorn"] | {"reg": 1e-3}, "reg=0.001 is too small for potentials"),
    (MECHANISMS["noisy_sinkhorn"] | {"divergence": "sinkhorn"}, "knows no debiased divergence"),
    (MECHANISMS["noisy_sinkhorn"] | {"adaptive_noise": 0.1}, "has no proof of privacy"),
    (MECHANISMS["noisy_sinkhorn"] | {"adaptive_noise": 1.0}, TEXT.format("adaptive_noise")),
    (MECHANISMS["noisy_sinkhorn"] | {"n_iter": 0}, TEXT.format("n_iter")),
    (MECHANISMS["noisy_sinkhorn"] | {"noise_variance": 0}, TEXT.format("noise_variance")),
    (MECHANISMS["noisy_sinkhorn"] | {"potential_bound": 0}, TEXT.format("potential_bound")),
    (
        MECHANISMS["noisy_sinkhorn"] | {"n_iter": 5, "noise_variance": 1.0},
        "leave nothing for the cost of the plan",
    ),
    ({"mechanism": "histogram", "grid": 0}, TEXT.format("grid")),
    ({"mechanism": "histogram", "grid": 2.5}, TEXT.format("grid")),
    ({"mechanism": "histogram", "grid": 65}, "a grid of 65 cells for each of 2 features"),
    ({"mechanism": "histogram", "grid": 10**400}, "a grid of 10+ cells for each of 2 features"),
    ({"mechanism": "histogram", "grid": [[0.5, 0.5]]}, "an array of 2 to 4096 points"),
    ({"mechanism": "histogram", "grid": [[0.5], [0.2]]}, r"of shape \(n_cells, 2\), got"),
    ({"mechanism": "histogram", "grid": [0.5, 0.2]}, r"of shape \(n_cells, 2\), got"),
    ({"mechanism": "histogram", "grid": [[0.5, 0.5], [0.5, 1.2]]}, "lie within the bounds"),
    (TWO_POINTS, "lie within the bounds"),
    ({"n_jobs": 0}, "n_jobs == 0"),
    ({"n_jobs": 1.5}, TEXT.format("n_jobs")),
    ({"random_state": "seed"}, TEXT.format("random_state")),
    ({"random_state": -1}, TEXT.format("random_state")),
    ({"verbose": -1}, TEXT.format("verbose")),
    ({"ledger": 1.0}, "must be None, a skdpot.PrivacyLedger or a diffprivlib"),
]


def refuse_without_telling(release, message):
    """Check that a release is refused, with this message, in which nothing private is shown."""
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        release()
    shown = traceback.format_exception(caught.value, limit=0)
    assert str(SECRET)[:4] not in "".join(shown)


@pytest.mark.parametrize("params, message", BAD_PARAMETERS)
@pytest.mark.filterwarnings("ignore:accounting='paper':skdpot.privacy.NoGuaranteeWarning")
def test_bad_parameters_are_refused_before_the_charge(params, message):
    _, y = make_groups(10, 6)
    ledger = PrivacyLedger(10.0, 0.5)
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger)
    estimator.set_params(**{"bounds": (0, 1)} | params)
    refuse_without_telling(lambda: estimator.fit(np.full((16, 2), SECRET), y), message)
    assert not ledger.entries()
    assert not hasattr(estimator, "groups_")


@pytest.mark.parametrize(
    "params, message",
    [
        ({"epsilon": -1.0}, TEXT.format("epsilon")),
        ({"epsilon": 1e-300}, "noise of scale"),
        ({"n_jobs": 0}, "n_jobs == 0"),
        ({"random_state": "seed"}, TEXT.format("random_state")),
        ({"bounds": None}, "bounds must be declared"),
        ({"bounds": ([0, 0, 0], 1)}, "one number for each of the 2 features"),
        ({"min_group_size": 9}, "fewer than min_group_size=9"),
        ({"labels": "private"}, "needs min_group_size"),
        ({"ledger": "book"}, "must be None, a skdpot.PrivacyLedger"),
    ],
)
def test_bad_parameters_set_after_fit_are_refused_before_the_charge(params, message):
    X, y = make_groups(10, 6)
    ledger = PrivacyLedger(10.0, 0.5)
    fitted = exact(X, y).set_params(ledger=ledger, epsilon=1.0, random_state=None)
    fitted.set_params(**params)
    refuse_without_telling(lambda: fitted.score(SECRET * X, y), message)
    assert not ledger.entries()
    with pytest.raises(NotFittedError):
        PrivateSinkhornDistance(bounds=(0, 1), ledger=ledger).score(X, y)


ROWS = np.full((4, 2), SECRET)
BAD_X = {
    "NaN": (np.where(np.eye(4, 2), np.nan, ROWS), "Input X contains NaN"),
    "infinite": (np.where(np.eye(4, 2), np.inf, ROWS), "Input X contains infinity"),
    "flat": (ROWS[:, 0], "two-dimensional"),
    "scalar": (SECRET, "two-dimensional"),
    "complex": (ROWS + 1j, "Complex data not supported"),
    "text": ([[f"{SECRET} euros", "1"]] * 4, "X holds text .* Convert it to numbers"),
    "objects": (np.array([[{SECRET: 1}, 1]] * 4, dtype=object), "argument must be a string or a"),
    "ragged": ([[SECRET, 1.0], [SECRET]] * 2, "inhomogeneous"),
    "sparse": (sparse.csr_array(ROWS), "Sparse data was passed"),
    "empty": (np.empty((0, 2)), r"0 sample\(s\)"),
    "one record": (ROWS[:1], "1 sample"),
    "no features": (np.empty((4, 0)), r"0 feature\(s\)"),
    "too few labels": (np.full((5, 2), SECRET), "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("labels", [{}, PRIVATE | {"min_group_size": 1}], ids=["public", "private"])
@pytest.mark.parametrize("kind", BAD_X)
def test_bad_records_are_refused_before_the_charge(kind, labels):
    X, message = BAD_X[kind]
    ledger = PrivacyLedger(10.0)
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger, **labels)
    y = [*"abab"][: 1 if kind == "one record" else 0 if kind == "empty" else 4]
    refuse_without_telling(lambda: estimator.fit(X, y), message)
    estimator.set_params(ledger=None).fit(ROWS, [*"abab"]).set_params(ledger=ledger)
    refuse_without_telling(lambda: estimator.score(X, y), message)
    assert not ledger.entries()
    if kind not in ("too few labels", "one record"):
        options = {"bounds": (0, 4), "ledger": ledger}
        refuse_without_telling(lambda: private_ot_cost(X, ROWS, **options), message)
        refuse_without_telling(lambda: private_ot_cost(ROWS, X, **options), message)
        assert not ledger.entries()


BAD_Y = {
    "none": (None, "requires y to be passed, but the target y is None"),
    "one group": (["a"] * 4, "needs two or more groups, got 1"),
    "NaN": ([0.0, 1.0, np.nan, 1.0], "y contains NaN"),
    "missing": (pd.Series([0, 1, None, 1], dtype="Int64"), "y contains NaN"),
    "None": (["a", "b", None, "b"], "cannot be sorted together"),
    "objects": (np.array(["a", 1, 2, "b"], dtype=object), "cannot be sorted together"),
    "table": (np.zeros((4, 2)), "y should be a 1d array"),
    "too long": ([0, 1, 0, 1, 0], "inconsistent numbers of samples"),
}


@pytest.mark.parametrize("kind", BAD_Y)
def test_bad_public_labels_are_refused_before_the_charge(kind):
    y, message = BAD_Y[kind]
    ledger = PrivacyLedger(10.0)
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger)
    refuse_without_telling(lambda: estimator.fit(ROWS, y), message)
    assert not ledger.entries()


@pytest.mark.parametrize(
    "y, message",
    [
        (None, "requires y to be passed"),
        (np.full((4, 2), SECRET), "y should be a 1d array"),
        ([f"{SECRET} euros"] * 5, "inconsistent numbers of samples"),
    ],
)
def test_errors_about_private_labels_do_not_quote_them(y, message):
    ledger = PrivacyLedger(10.0)
    estimator = PrivateSinkhornDistance(bounds=(0, 4), ledger=ledger, **PRIVATE)
    refuse_without_telling(lambda: estimator.fit(ROWS, y), message)
    assert not ledger.entries()


@pytest.mark.parametrize(
    "n_records, params, message",
    [
        (24_000, {}, "between 12000 and 12000 records needs too much memory. Use reg > 0"),
        (24_000, PRIVATE, "between 12004 and 12004 records needs too much memory"),
        (17_000, MECHANISMS["noisy_sinkhorn"], "needs too much memory. Use mechanism='output'"),
    ],
)
def test_what_needs_too_much_memory_is_refused_before_the_charge(n_records, params, message):
    ledger = PrivacyLedger(10.0, 0.5)
    X, y = np.zeros((n_records, 2)), np.resize(["a", "b"], n_records)
    estimator = PrivateSinkhornDistance(bounds=(0, 1), ledger=ledger, **params)
    refuse_without_telling(lambda: estimator.fit(X, y), message)
    assert not ledger.entries()
