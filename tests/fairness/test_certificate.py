"""Certificates hold with the stated confidence, and only for what they say.

Bounds are compared with their definition by enumeration of all samples, and in simulations with a
truth that is known exactly. A simulation of 1,000 runs whose bound holds with probability 0.95 has
fewer than 940 that hold with probability 0.08; bounds for all distributions hold more often.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, norm
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from skdpot import FairBarycenterPreprocessor, PrivacyLedger
from skdpot.fairness import ConditionalRepair, FreeSupport
from skdpot.fairness import _conditional as conditional
from skdpot.fairness import _repair as fitting
from skdpot.fairness._certificate import (
    MOST_ROWS,
    certify,
    gap_bound,
    gap_radius,
    hold_out,
    max_mean,
)
from skdpot.fairness._conditional import group_probabilities
from skdpot.fairness.metrics import ks_between_groups
from skdpot.tables import NOMINAL, NUMERIC, ORDINAL, Column

RISK = 0.05
# Of each bound, to see how often it holds.
N_RUNS = 300


def samples_of(n, probabilities):
    """Return all counts of n draws of few values, and how likely each is."""
    counts = [c for c in itertools.product(range(n + 1), repeat=len(probabilities)) if sum(c) == n]
    likely = [
        math.factorial(n) / math.prod(map(math.factorial, c)) * np.prod(np.power(probabilities, c))
        for c in counts
    ]
    return list(zip(counts, likely, strict=True))


def area(x, y):
    """Return the area under the curve of counts or probabilities of values, by its definition."""
    wins = np.tril(np.ones((len(x), len(x))), -1) + 0.5 * np.eye(len(x))
    theta = np.asarray(x) @ wins @ np.asarray(y) / (np.sum(x) * np.sum(y))
    return max(theta, 1.0 - theta)


@functools.cache
def bound_of_mean(mean, n):
    return max_mean(mean, n, RISK)


def pairs_of_distributions(rng, n_pairs):
    for _ in range(n_pairs):
        yield rng.integers(1, 6, 2), rng.dirichlet(np.full(3, 0.5)), rng.dirichlet(np.full(3, 0.5))


@pytest.mark.parametrize("n", [1, 2, 7, 40, 300])
def test_the_largest_mean_fails_with_no_more_than_the_risk(n):
    bounds = np.array([max_mean(k / n, n, RISK) for k in range(n + 1)])
    for p in np.linspace(0.01, 0.99, 99):
        assert binom.pmf(np.arange(n + 1), n, p)[bounds < p - 1e-7].sum() <= RISK


def test_the_largest_mean_is_sharper_than_hoeffding():
    for n in (10, 100, 5000):
        assert max_mean(0.6, n, RISK) < 0.6 + math.sqrt(math.log(1 / RISK) / (2 * n))
    assert max_mean(1.0, 10, RISK) == 1.0


@pytest.mark.experiment
def test_bounds_of_areas_and_gaps_hold_for_all_samples_of_few_values():
    for (n, m), p, q in pairs_of_distributions(np.random.default_rng(0), 40):
        true_area, true_gap = area(p, q), np.abs(np.cumsum(p) - np.cumsum(q)).max()
        missed = np.zeros(2)
        for (x, of_x), (y, of_y) in itertools.product(samples_of(n, p), samples_of(m, q)):
            bound = bound_of_mean(round(area(x, y), 9), min(n, m))
            values = np.repeat(range(3), x), np.repeat(range(3), y)
            missed += (
                of_x
                * of_y
                * np.array([bound < true_area - 1e-7, gap_bound(*values, RISK) < true_gap - 1e-9])
            )
        assert (missed <= RISK).all()


@pytest.mark.parametrize(("n", "m"), [(6, 6), (40, 40), (30, 200), (200, 30)])
def test_the_radius_of_a_gap_fails_with_no_more_than_the_risk(n, m):
    apart = np.arange(n + 1)[:, None] / n - np.arange(m + 1) / m
    radius, worst = gap_radius(n, m, RISK), 0.0
    for p, q in itertools.product(np.linspace(0.02, 0.98, 17), repeat=2):
        likely = np.outer(binom.pmf(np.arange(n + 1), n, p), binom.pmf(np.arange(m + 1), m, q))
        worst = max(worst, likely[apart < p - q - radius - 1e-12].sum())
    assert worst <= RISK
    assert n == m == 6 or worst > 0.01


@pytest.mark.parametrize("n", [1, 5, 60, 1000])
def test_errors_of_shares_are_below_gaussian_ones(n):
    """The inequality that the radius is found with."""
    counts = np.arange(n)
    for p in np.linspace(0.01, 0.99, 99):
        missed = p - (counts + 1) / n
        tail = norm.cdf(-2 * np.sqrt(n) * missed)
        assert (binom.cdf(counts, n, p) <= tail + 1e-12)[missed >= 0].all()


MIXED = [
    Column("x", NUMERIC),
    Column("level", ORDINAL, values=("low", "middle", "high")),
    Column("job", NOMINAL, values=("a", "b", "c", "d")),
]


def mixed_rows(n, rng, n_groups=2):
    """Return rows with missing values that do not depend on their groups."""
    codes = np.column_stack([rng.normal(size=n), rng.integers(-1, 3, n), rng.integers(-1, 4, n)])
    codes[rng.random(n) < 0.1, 0] = np.nan
    return codes, rng.integers(n_groups, size=n)


def test_rows_are_held_out_of_all_but_small_groups():
    groups = np.repeat([0, 1, 2, -1], [500, 125, 124, 100])
    held_out = hold_out(groups, 0.2, np.random.default_rng(0))
    assert np.bincount(groups[held_out], minlength=3).tolist() == [100, 25, 0]
    assert not held_out[groups < 0].any()
    many = np.repeat([0, 1], [80_000, 20_000])
    held_out = hold_out(many, 0.2, np.random.default_rng(0))
    assert np.bincount(many[held_out]).tolist() == [MOST_ROWS // 2, 4_000]


@pytest.mark.parametrize(
    ("sizes", "share"), [([5000, 120], 0.2), ([5000, 5000], 0.0), ([9000], 0.5)]
)
def test_no_rows_are_held_out_where_nothing_can_be_compared(sizes, share):
    groups = np.repeat(range(len(sizes)), sizes)
    assert not hold_out(groups, share, np.random.default_rng(0)).any()


def test_alike_groups_get_low_bounds_and_different_ones_high_ones():
    rng = np.random.default_rng(0)
    train, new = mixed_rows(2000, rng), mixed_rows(2000, rng)
    alike, _ = certify(*zip(train, new, strict=True), MIXED, ["a", "b"], rng)
    assert alike.group_auc < 0.58
    assert alike.parity_gap < 0.16
    for codes, groups in (train, new):
        codes[groups == 1, 2] = np.where(codes[groups == 1, 1] > 1, 3, codes[groups == 1, 2])
    apart, _ = certify(*zip(train, new, strict=True), MIXED, ["a", "b"], rng)
    assert apart.group_auc > 0.6 and apart.parity_gap > alike.parity_gap + 0.1
    assert apart.n_rows == {g: int((new[1] == i).sum()) for i, g in enumerate("ab")}
    assert "gradient boosting" in str(apart) and "group_auc" in repr(apart)


def test_a_column_of_zeros_has_no_ratio():
    rng = np.random.default_rng(0)
    columns = [Column("zero", NUMERIC), Column("number", NUMERIC)]
    rows = [(rng.normal(size=(500, 2)) * [0, 1], rng.integers(2, size=500)) for _ in range(2)]
    assert certify(*zip(*rows, strict=True), columns, "ab", rng)[0].group_auc < 0.65


def probabilities_are(monkeypatch, probabilities):
    """Let the classifier of a certificate say this of the held-out rows."""
    monkeypatch.setattr(conditional, "group_probabilities", lambda *args: probabilities)


def test_a_group_may_be_found_by_its_own_probability(monkeypatch):
    """Two groups are as likely as each other in every row, and the third tells them apart."""
    groups = np.repeat([0, 1, 2], 200)
    own = np.where(groups == 0, 0.4, 0.1)
    probabilities_are(monkeypatch, np.column_stack([own, own, 1 - 2 * own]))
    rows = mixed_rows(600, np.random.default_rng(0))[0], groups
    assert (
        certify(*zip(rows, rows, strict=True), MIXED, "abc", np.random.default_rng(0))[0].group_auc
        == 1.0
    )
    alike = np.full((600, 3), 1 / 3)
    probabilities_are(monkeypatch, alike)
    found, _ = certify(*zip(rows, rows, strict=True), MIXED, "abc", np.random.default_rng(0))
    assert found.group_auc == pytest.approx(max_mean(0.5, 200, RISK / 2))


def test_a_group_without_held_out_rows_has_no_bounds():
    rng = np.random.default_rng(0)
    train, new = mixed_rows(300, rng, 3), mixed_rows(300, rng, 2)
    found, _ = certify(*zip(train, new, strict=True), MIXED, ["first", "second", ("third", 3)], rng)
    assert found.n_rows["third", 3] == 0
    assert "the groups ('third', 3), which have too few rows" in str(found)


WIDE = FairBarycenterPreprocessor(method="conditional", random_state=0)


def wide_rows(seed=0, n=1200):
    rng = np.random.default_rng(seed)
    groups = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(n, 5)) + (groups == "b")[:, None] * [1, 0, 0.5, 0, 0]
    return np.column_stack([X, rng.integers(3, size=n)]), groups


@pytest.mark.experiment
def test_a_repair_has_a_certificate_of_rows_that_it_held_out():
    X, groups = wide_rows()
    fitted = clone(WIDE).fit(X, sensitive_features=groups)
    found, again = fitted.certificate_, clone(WIDE).fit(X, sensitive_features=groups).certificate_
    sizes = {g: int((groups == g).sum()) for g in "abc"}
    assert found.n_rows == {g: int(0.2 * n) * (n >= 125) for g, n in sizes.items()}
    assert found == again
    assert found.group_auc < 0.75
    codes = np.unique(groups, return_inverse=True)[1]
    kept = hold_out(codes, 0.2, np.random.default_rng(0))
    columns = [Column(j, NUMERIC) for j in range(6)]
    parts = [(X[rows], codes[rows]) for rows in (~kept, kept)]
    untouched, _ = certify(*zip(*parts, strict=True), columns, "abc", np.random.default_rng(0))
    assert untouched.group_auc > found.group_auc + 0.1
    assert untouched.parity_gap > found.parity_gap + 0.1


@pytest.mark.parametrize(
    "parameters",
    [
        {"method": ConditionalRepair(held_out=0)},
        {"method": FreeSupport(n_support=100)},
        {"conditional_on": 5},
    ],
)
def test_a_repair_without_held_out_rows_has_no_certificate(parameters):
    X, groups = wide_rows(n=190)
    fair = clone(WIDE).set_params(**parameters)
    assert fair.fit(X, sensitive_features=groups).certificate_ is None


@pytest.mark.experiment
def test_a_private_repair_has_no_certificate():
    X, groups = wide_rows(n=190)
    fair = FairBarycenterPreprocessor(
        epsilon=5.0, bounds=(-3, 4), groups=["a", "b", "c"], ledger=PrivacyLedger(epsilon=5.0)
    )
    assert fair.fit(X, sensitive_features=groups).certificate_ is None


@pytest.mark.experiment
def test_the_repair_does_not_depend_on_rows_that_are_held_out(monkeypatch):
    fair = clone(WIDE).set_params(method=ConditionalRepair(tol=0.0))
    X, groups = wide_rows()
    masks = []
    monkeypatch.setattr(fitting, "hold_out", lambda *a: masks.append(hold_out(*a)) or masks[-1])
    first = clone(fair).fit(X, sensitive_features=groups)
    changed = X.copy()
    changed[masks[0]] = np.roll(X[masks[0]], 1, axis=1)
    second = clone(fair).fit(changed, sensitive_features=groups)
    new, new_groups = wide_rows(1)
    images = [fitted.transform(new, sensitive_features=new_groups) for fitted in (first, second)]
    np.testing.assert_array_equal(*images)
    assert first.certificate_ != second.certificate_


def test_a_bound_of_the_largest_difference_of_rates():
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=600), np.repeat([0, 1, 2], [400, 150, 50])
    bound = ks_between_groups(scores, sensitive_features=groups, confidence=0.9)
    assert bound == max(
        ks_between_groups(scores[kept], sensitive_features=groups[kept]) + gap_radius(n, m, 0.1)
        for n, m, kept in [
            (400, 150, groups < 2), (400, 50, groups != 1), (150, 50, groups > 0)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("confidence", [0, 1.0, -0.5, 0.05])
def test_a_confidence_is_a_probability(confidence):
    with pytest.raises(ValueError, match="confidence must be from 0.5"):
        ks_between_groups([1, 2], sensitive_features=[0, 1], confidence=confidence)


def gaussian_rows(n, shift, rng):
    groups = rng.integers(3, size=n)
    return rng.normal(size=(n, 4)) + shift * groups[:, None] * [1, 0.5, 0, 0], groups


@pytest.mark.experiment
@pytest.mark.parametrize("shift", [0.0, 0.15, 0.8])
def test_coverage_of_bounds_of_a_linear_score(shift, monkeypatch):
    """Linear scores of Gaussian rows have a known area and gap."""
    direction, n_held = np.array([1.0, 0.2, 0.5, 0.0]), 0
    columns = [Column(j, NUMERIC) for j in range(4)]
    distance = abs(direction @ (shift * np.array([1, 0.5, 0, 0]))) / np.linalg.norm(direction)
    true_auc, true_gap = norm.cdf(distance / math.sqrt(2)), 2 * norm.cdf(distance / 2) - 1
    for run in range(N_RUNS):
        rng = np.random.default_rng(run)
        codes, groups = gaussian_rows(150, shift, rng)
        codes, groups = codes[groups < 2], groups[groups < 2]
        own = norm.cdf(codes @ direction)
        probabilities_are(monkeypatch, np.column_stack([own, 1 - own]))
        held, _ = certify([codes] * 2, [groups] * 2, columns, ["a", "b"], rng)
        n_held += held.group_auc >= true_auc and held.parity_gap >= true_gap
    assert n_held >= 0.94 * N_RUNS


@pytest.mark.experiment
def test_coverage_of_a_certificate_of_a_repair(monkeypatch):
    """The truth is what the same classifier finds in 20,000 further rows."""
    given = []

    def spy(*args):
        given.append(args)
        return group_probabilities(*args)

    monkeypatch.setattr(conditional, "group_probabilities", spy)
    n_held = np.zeros(2, dtype=int)
    for run in range(24):
        fair = FairBarycenterPreprocessor(method="conditional", random_state=run)
        X, groups = wide_rows(run, 700)
        found = fair.fit(X, sensitive_features=groups).certificate_
        new, labels = wide_rows(10_000 + run, 20_000)
        new, labels = new[labels != "c"], labels[labels != "c"]
        # The first of two learners: that of repaired rows comes before that of the others.
        classifier, train, _, n_groups = given[-4 if fair.n_rows_changed_ else -2]
        classifier = clone(classifier).set_params(categorical_features=None)
        given.clear()
        # The same seed: the classifier is that of the certificate.
        repaired = fair.transform(new, sensitive_features=labels)
        said = group_probabilities(classifier, train, repaired, n_groups)
        ratio = said[:, 1] / (said[:, 0] + said[:, 1])
        auc = roc_auc_score(labels == "b", ratio)
        gap = ks_between_groups(ratio, sensitive_features=labels)
        n_held += np.array([found.group_auc, found.parity_gap]) >= [max(auc, 1 - auc), gap]
    assert (n_held >= 23).all()
