"""Barycenters on a line: closed forms, linear programs, and the other solvers."""

import itertools

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import norm

from skdpot.transport.barycenter import free_support_barycenter, quantile_barycenter


def objective_of(samples, weights, support, masses, sample_masses=None):
    """Return the weighted sum of the costs of moving each group to a distribution, by POT."""
    given = [None] * len(samples) if sample_masses is None else sample_masses
    return sum(
        weight * ot.emd2_1d(one, support, mass, masses, metric="sqeuclidean")
        for weight, one, mass in zip(weights, samples, given, strict=True)
    )


def lp_objective(samples, weights, candidates):
    """Return the objective of the best distribution on candidates, by a linear program."""
    n_candidates = len(candidates)
    sizes = [len(one) for one in samples]
    costs = [
        weight * cdist(one[:, None], candidates[:, None], "sqeuclidean")
        for weight, one in zip(weights, samples, strict=True)
    ]
    rows, sides = [], []
    n_variables = sum(cost.size for cost in costs) + n_candidates
    start = 0
    for size in sizes:
        for i in range(size):
            row = np.zeros(n_variables)
            row[start + i * n_candidates : start + (i + 1) * n_candidates] = 1
            rows.append(row)
            sides.append(1 / size)
        for k in range(n_candidates):
            row = np.zeros(n_variables)
            row[start + k : start + size * n_candidates : n_candidates] = 1
            row[n_variables - n_candidates + k] = -1
            rows.append(row)
            sides.append(0)
        start += size * n_candidates
    cost = np.concatenate([*(one.ravel() for one in costs), np.zeros(n_candidates)])
    return linprog(cost, A_eq=np.array(rows), b_eq=sides, method="highs").fun


def make_samples(rng, sizes, ties):
    samples = [rng.normal(size=n) * rng.lognormal() + rng.normal() for n in sizes]
    return [np.round(one) for one in samples] if ties else samples


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    n_support=st.none() | st.integers(1, 15),
    ties=st.booleans(),
    equal=st.booleans(),
)
def test_what_is_returned_belongs_together(seed, sizes, n_support, ties, equal):
    rng = np.random.default_rng(seed)
    samples = make_samples(rng, sizes, ties)
    weights = rng.dirichlet(np.ones(len(sizes)))
    masses = None if equal else [rng.dirichlet(np.ones(n)) for n in sizes]
    result = quantile_barycenter(samples, weights, masses=masses, n_support=n_support)
    assert (np.diff(result.support) >= 0).all()
    assert (result.masses > 0).all()
    assert result.levels[-1] == 1
    np.testing.assert_allclose(result.levels, np.cumsum(result.masses), atol=1e-12)
    if n_support is not None:
        np.testing.assert_allclose(result.masses, 1 / n_support, atol=1e-14)
    expected = objective_of(samples, weights, result.support, result.masses, masses)
    assert result.objective == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert result.lower_bound <= result.objective + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_no_distribution_is_better(seed):
    rng = np.random.default_rng(seed)
    samples = make_samples(rng, (3, 4, 2), ties=False)
    weights = rng.dirichlet(np.ones(3))
    result = quantile_barycenter(samples, weights)
    # The best points are means of one point of each group.
    candidates = np.array(list(itertools.product(*samples))) @ weights
    assert result.objective == pytest.approx(lp_objective(samples, weights, candidates))
    assert result.lower_bound == result.objective


@pytest.mark.parametrize("n_support", [1, 2, 5])
def test_no_points_of_equal_mass_are_better(n_support):
    rng = np.random.default_rng(n_support)
    samples = make_samples(rng, (6, 4, 9), ties=False)
    weights = rng.dirichlet(np.ones(3))
    result = quantile_barycenter(samples, weights, n_support=n_support)
    masses = np.full(n_support, 1 / n_support)
    # The objective is convex in the sorted points: no small step may lower it.
    steps = [step * np.eye(n_support)[j] for j in range(n_support) for step in (-1e-3, 1e-3)]
    for step in [*steps, *0.1 * rng.normal(size=(20, n_support))]:
        moved = objective_of(samples, weights, result.support + step, masses)
        assert moved >= result.objective - 1e-12


def test_quantiles_of_normal_distributions():
    """The barycenter of normal distributions is normal, with the mean of the deviations."""
    levels = (np.arange(2000) + 0.5) / 2000
    means, deviations, weights = np.array([0, 3, -1]), np.array([1, 0.5, 4]), [0.5, 0.3, 0.2]
    samples = [norm.ppf(levels, *both) for both in zip(means, deviations, strict=True)]
    result = quantile_barycenter(samples, weights)
    expected = norm.ppf(levels, means @ weights, deviations @ weights)
    np.testing.assert_allclose(result.support, expected, atol=1e-12)
    moments = np.stack([means, deviations])
    spread = ((moments - (moments @ weights)[:, None]) ** 2 @ weights).sum()
    assert result.objective == pytest.approx(spread, rel=2e-3)


def test_translated_groups():
    rng = np.random.default_rng(0)
    shape, shifts, weights = np.sort(rng.normal(size=30)), np.array([0, 5, 7]), [0.2, 0.3, 0.5]
    samples = [rng.permutation(shape + shift) for shift in shifts]
    mean = quantile_barycenter(samples, weights)
    np.testing.assert_allclose(mean.support, shape + 5.0, atol=1e-12)
    assert mean.objective == pytest.approx(0.2 * 25 + 0.5 * 4)


def test_levels_are_exact_and_give_quantiles():
    result = quantile_barycenter([np.arange(10.0), np.arange(15.0)], [0.5, 0.5])
    cuts = sorted({k / 10 for k in range(1, 11)} | {k / 15 for k in range(1, 16)})
    np.testing.assert_array_equal(result.levels, cuts)
    quantiles = result.support[np.searchsorted(result.levels, [0.1, 0.10001, 1.0])]
    np.testing.assert_array_equal(quantiles, [0.5, 1.0, 11.5])


def test_points_without_mass_and_groups_without_weight():
    result = quantile_barycenter(
        [[0.0, -9.0, 2.0, 99.0], [4.0, 8.0], [1e6]],
        [0.5, 0.5, 0.0],
        masses=[[0.5, 0.0, 0.5, 0.0], None, None],
    )
    np.testing.assert_array_equal(result.support, [2.0, 5.0])
    assert result.objective == 6.5


def test_no_solver_in_the_plane_is_better():
    rng = np.random.default_rng(4)
    samples = make_samples(rng, (40, 60), ties=False)
    points = [one[:, None] for one in samples]
    best = quantile_barycenter(samples, [0.4, 0.6], n_support=20)
    free = free_support_barycenter(points, [0.4, 0.6], rng.normal(size=(20, 1)))
    pot = ot.lp.free_support_barycenter(
        points, [np.full(n, 1 / n) for n in (40, 60)], rng.normal(size=(20, 1)), weights=[0.4, 0.6]
    )
    by_pot = objective_of(samples, [0.4, 0.6], pot.ravel(), None)
    assert best.objective <= min(free.objective, by_pot) + 1e-12
    assert free.lower_bound <= best.lower_bound + 1e-12
    # The points of an optimum are optimal to start from.
    again = free_support_barycenter(points, [0.4, 0.6], best.support[:, None])
    assert again.objective == pytest.approx(best.objective, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"group_weights": [0.5, 0.6]}, "sum 1"),
        ({"group_weights": [1.0]}, "shape"),
        ({"samples": [], "group_weights": []}, "sum 1"),
        ({"samples": [[0.0], [np.nan]]}, r"samples\[1\]"),
        ({"samples": [[0.0], []]}, r"samples\[1\]"),
        ({"samples": [[0.0], [[1.0]]]}, r"samples\[1\]"),
        ({"samples": [[0.0], [1e200]]}, "differ"),
        ({"masses": [[1.0]]}, "masses"),
        ({"masses": [[1.0], [0.5, 0.5]]}, r"masses\[1\]"),
        ({"n_support": 0}, "n_support"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, match):
    arguments = {"samples": [[0.0], [1.0]], "group_weights": [0.5, 0.5], **changes}
    with pytest.raises(ValueError, match=match):
        quantile_barycenter(**arguments)
