"""Distances between noisy histograms on a grid: plans and potentials."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from skdpot import PrivateSinkhornDistance
from skdpot.transport import nearest_distribution
from tests.distance.grouped_records import MECHANISMS, PRIVATE, make_groups
from tests.oracles import distance_releases


def histogram(X, y, epsilon=40.0, **params):
    """Return a fit whose counts are exact: their noise is rounded to 0."""
    settings = {"bounds": (0.0, 1.0), "mechanism": "histogram", "random_state": 0} | params
    return PrivateSinkhornDistance(epsilon, **settings).fit(X, y)


@pytest.mark.parametrize("params", [{}, {"reg": 0.05}, {"reg": 0.5, "divergence": "sinkhorn"}])
def test_histograms_plan_and_cost(params):
    X, y = make_groups(40, 25)
    fitted = histogram(X, y, **params)
    support = fitted.support_
    middles = np.arange(1, 26, 2) / 26
    regular = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(support, regular)
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
    found = histogram(X, y, reg=0.1, divergence="sinkhorn").distance_
    assert found == pytest.approx(0, abs=1e-7)


def test_costs_of_histograms_may_begin_above_zero():
    X, y = make_groups(40, 25)
    options = {"metric": "cityblock", "cost_range": (0.5, 1.5)}
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


@pytest.mark.parametrize("reg", [0.0, 1e-3, 0.1])
def test_the_plan_takes_one_group_to_the_other(reg):
    rng = np.random.default_rng(0)
    first = rng.uniform(0, 0.5, (400, 1))
    X, y = np.vstack([first, first + 0.4]), np.repeat([0, 1], 400)
    fitted = histogram(X, y, epsilon=20.0, reg=reg)
    mass = fitted.plan_.sum(axis=1)
    moved = (fitted.plan_ @ fitted.support_)[:, 0] - mass * fitted.support_[:, 0]
    assert moved.sum() == pytest.approx(0.4, abs=0.02)
    if reg < 0.1:
        assert np.abs(moved - 0.4 * mass)[mass > 0].max() < 0.06


@pytest.mark.parametrize(
    "n_records, epsilon, n_features, n_cells",
    [(100, 1.0, 1, 10), (1000, 1.0, 2, 9**2), (10**4, 2.0, 2, 27**2), (10**4, 1.0, 1, 100),
     (10**4, 1e4, 2, 32**2), (10**4, 1e4, 1, 1024), (4, 1e-3, 3, 2**3), (10, 0.1, 10, 2**10)],
)  # fmt: skip
def test_the_grid_depends_on_public_numbers(n_records, epsilon, n_features, n_cells):
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
    release, _ = distance_releases.plan(estimator, X, y)
    assert largest == release.sensitivity("replace_one") == 2
    # Noise that is rounded to integers has a variance of 1/12 more, at most.
    scale = release._noise.standard_deviation / np.sqrt(2)
    assert scale == pytest.approx(2 / estimator.epsilon, rel=1e-6)


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
