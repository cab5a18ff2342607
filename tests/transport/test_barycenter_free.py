"""Barycenters with free support: optimal where that is known, and bounds that hold everywhere."""

import itertools

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from skdpot.transport import TransportConvergenceWarning
from skdpot.transport.barycenter import free_support_barycenter


def uniform(n):
    return np.full(n, 1.0 / n)


def squared_distance(x, y, a=None, b=None):
    """Return the squared Wasserstein distance by POT."""
    a = uniform(len(x)) if a is None else a
    b = uniform(len(y)) if b is None else b
    return ot.emd2(a, b, cdist(x, y, "sqeuclidean"))


def objective_by_pot(points, weights, support, masses=None):
    masses = [None] * len(points) if masses is None else masses
    return sum(
        weight * squared_distance(one, support, mass)
        for weight, one, mass in zip(weights, points, masses, strict=True)
    )


def pair_sum(points, weights, distance):
    """Return the sum over pairs of groups that bounds every barycenter from below."""
    return sum(
        weights[s] * weights[t] * distance(points[s], points[t])
        for s, t in itertools.combinations(range(len(points)), 2)
    )


def multimarginal_optimum(points, weights):
    """Return the objective of the best barycenter of all, by the linear program of all tuples."""
    sizes = [len(one) for one in points]
    tuples = np.indices(sizes).reshape(len(points), -1)
    places = np.stack([one[index] for one, index in zip(points, tuples, strict=True)])
    means = np.tensordot(weights, places, 1)
    cost = np.tensordot(weights, ((places - means) ** 2).sum(axis=2), 1)
    rows = [index == i for index, size in zip(tuples, sizes, strict=True) for i in range(size)]
    sides = np.concatenate([uniform(size) for size in sizes])
    return linprog(cost, A_eq=np.array(rows, dtype=float), b_eq=sides, method="highs").fun


def gelbrich(x, y):
    """Return the squared distance of normal distributions with the moments of two samples."""
    covariances = [np.cov(one.T, bias=True) for one in (x, y)]
    root = sqrtm(covariances[0])
    cross = sqrtm(root @ covariances[1] @ root)
    means = x.mean(axis=0) - y.mean(axis=0)
    return means @ means + np.trace(covariances[0] + covariances[1] - 2 * cross.real)


def groups_of(kind, rng):
    """Return groups, their weights, and a start."""
    if kind == "paper":
        means = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
        covariance = np.array([[0.5, -0.2], [-0.2, 0.5]])
        points = [rng.multivariate_normal(mean, covariance, 100) for mean in means]
        return points, np.array([0.7, 0.1, 0.05, 0.05, 0.1]), rng.normal(size=(50, 2)) * 5**0.5
    if kind == "many dimensions":
        points = [rng.normal(size=(60, 8)) @ rng.normal(size=(8, 8)) for _ in range(4)]
        return points, uniform(4), rng.normal(size=(60, 8))
    if kind == "clusters":
        centres = rng.normal(size=(3, 3, 2)) * 3
        points = [one[rng.integers(3, size=90)] + 0.2 * rng.normal(size=(90, 2)) for one in centres]
        return points, np.array([0.5, 0.3, 0.2]), rng.normal(size=(40, 2))
    points = [rng.normal(size=(n, 2)) * [1, n] for n in (7, 12, 5)]
    return points, np.array([0.2, 0.3, 0.5]), rng.normal(size=(30, 2))


KINDS = ["paper", "many dimensions", "clusters", "more support points than points"]


def assert_consistent(result, points, weights, masses=None):
    """Check objective, bounds and plans against each other and against POT."""
    assert result.objective == pytest.approx(
        objective_by_pot(points, weights, result.support, masses), rel=1e-9, abs=1e-12
    )
    assert 0 <= result.gap <= 1e-8 * result.objective + 1e-12
    assert result.lower_bound <= result.objective
    of_plans = 0.0
    for s, (weight, one, plan) in enumerate(zip(weights, points, result.plans, strict=True)):
        mass = uniform(len(one)) if masses is None or masses[s] is None else masses[s]
        np.testing.assert_allclose(plan.sum(axis=1), mass, atol=1e-14)
        np.testing.assert_allclose(plan.sum(axis=0), uniform(len(result.support)), atol=1e-14)
        assert plan.data.min() > 0
        of_plans += weight * plan.multiply(cdist(one, result.support, "sqeuclidean")).sum()
    assert result.objective == pytest.approx(of_plans, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_no_worse_than_pot_from_the_same_start(kind):
    points, weights, start = groups_of(kind, np.random.default_rng(0))
    result = free_support_barycenter(points, weights, start, bound="pairs")
    assert_consistent(result, points, weights)
    assert result.converged
    pot = ot.lp.free_support_barycenter(
        points, [uniform(len(one)) for one in points], start, weights=weights, numItermax=1000
    )
    # Local optima differ by chance, too.
    assert result.objective < 1.0005 * objective_by_pot(points, weights, pot)
    assert result.lower_bound == pytest.approx(pair_sum(points, weights, squared_distance))


@settings(derandomize=True, max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), n=st.integers(1, 30), d=st.integers(1, 4),
    weight=st.floats(0.01, 0.99),
)  # fmt: skip
def test_two_groups_of_equal_size_are_solved_exactly(seed, n, d, weight):
    rng = np.random.default_rng(seed)
    x, y, start = rng.normal(size=(3, n, d)) * rng.lognormal(size=(3, 1, d))
    result = free_support_barycenter([x, y], [weight, 1 - weight], start, bound="pairs")
    optimum = weight * (1 - weight) * squared_distance(x, y)
    assert result.objective == pytest.approx(optimum, rel=1e-9)
    assert result.lower_bound == pytest.approx(optimum, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_bounds_against_the_best_barycenter_of_all(seed):
    rng = np.random.default_rng(seed)
    points = [rng.normal(size=(n, 2)) * rng.lognormal(size=2) for n in (4, 5, 3)]
    weights = rng.dirichlet(np.ones(3))
    optimum = multimarginal_optimum(points, weights)
    by_pairs = free_support_barycenter(points, weights, rng.normal(size=(60, 2)), bound="pairs")
    by_moments = free_support_barycenter(points, weights, rng.normal(size=(60, 2)))
    assert by_moments.lower_bound <= by_pairs.lower_bound + 1e-12 <= optimum + 2e-12
    assert optimum - 1e-12 <= by_pairs.objective < 1.1 * optimum
    assert by_moments.lower_bound == pytest.approx(pair_sum(points, weights, gelbrich))


def test_translated_groups():
    rng = np.random.default_rng(0)
    shape, shifts = rng.normal(size=(40, 3)), rng.normal(size=(4, 3)) * 10
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    points = [rng.permutation(shape) + shift for shift in shifts]
    result = free_support_barycenter(points, weights, shape)
    expected = shape + weights @ shifts
    np.testing.assert_allclose(result.support, expected, atol=1e-12)
    spread = weights @ ((shifts - weights @ shifts) ** 2).sum(axis=1)
    assert result.objective == pytest.approx(spread, rel=1e-12)
    assert result.lower_bound == pytest.approx(spread, rel=1e-9)


def test_far_from_the_origin():
    points, weights, start = groups_of("paper", np.random.default_rng(1))
    # Multiples of 2**-20, so that the shift is exact.
    points, start = [np.round(one * 2**20) / 2**20 for one in points], np.round(start)
    near = free_support_barycenter(points, weights, start)
    shift = np.array([2.0**30, -(2.0**29)])
    far = free_support_barycenter([one + shift for one in points], weights, start)
    assert far.objective == pytest.approx(near.objective, rel=1e-12)
    np.testing.assert_allclose(far.support - shift, near.support, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-140, 1e-9, 1e9, 1e140])
def test_units_do_not_matter(scale):
    points, weights, start = groups_of("clusters", np.random.default_rng(1))
    near = free_support_barycenter(points, weights, start)
    scaled = free_support_barycenter([scale * one for one in points], weights, scale * start)
    assert scaled.objective == pytest.approx(scale**2 * near.objective, rel=1e-9)
    np.testing.assert_allclose(scaled.support, scale * near.support, atol=1e-9 * scale)


def test_one_support_point_is_the_mean():
    points, weights, _ = groups_of("clusters", np.random.default_rng(0))
    result = free_support_barycenter(points, weights, [[7.0, 7.0]])
    mean = sum(weight * one.mean(axis=0) for weight, one in zip(weights, points, strict=True))
    np.testing.assert_allclose(result.support, [mean], atol=1e-14)
    assert_consistent(result, points, weights)


def test_everything_at_one_place():
    ones = [np.ones((n, 2)) for n in (3, 4, 5)]
    result = free_support_barycenter(ones[:2], [0.5, 0.5], ones[2])
    np.testing.assert_array_equal(result.support, 1)
    assert (result.objective, result.lower_bound, result.gap) == (0, 0, 0)
    assert result.converged


def test_groups_and_points_without_weight_have_no_say():
    points, weights, start = groups_of("clusters", np.random.default_rng(0))
    masses = [np.random.default_rng(1).dirichlet(np.ones(len(one))) for one in points]
    alone = free_support_barycenter(points, weights, start, masses=masses, bound="pairs")
    assert_consistent(alone, points, weights, masses)
    wider = [np.vstack([[[1e3, 1e3]], one]) for one in points] + [np.full((6, 2), 1e6)]
    heavier = [np.append(0.0, mass) for mass in masses] + [None]
    ignoring = free_support_barycenter(wider, [*weights, 0.0], start, masses=heavier, bound="pairs")
    np.testing.assert_allclose(ignoring.support, alone.support, atol=1e-9)
    assert ignoring.objective == pytest.approx(alone.objective)
    assert ignoring.lower_bound == pytest.approx(alone.lower_bound)
    np.testing.assert_allclose(ignoring.plans[3].sum(axis=1), 1 / 6)
    np.testing.assert_array_equal(ignoring.plans[0].sum(axis=1)[0], 0)


def test_each_sweep_lowers_the_objective():
    points, weights, start = groups_of("many dimensions", np.random.default_rng(3))
    seen = []
    result = free_support_barycenter(points, weights, start, callback=lambda *a: seen.append(a))
    n_iter, supports, objectives = zip(*seen, strict=True)
    assert n_iter == tuple(range(1, result.n_iter + 1))
    assert (np.diff(objectives) <= 0).all()
    np.testing.assert_array_equal(supports[-1], result.support)
    assert result.objective <= objectives[-1] * (1 + 1e-12)
    assert objective_by_pot(points, weights, supports[0]) <= objectives[0] * (1 + 1e-12)


def test_running_out_of_sweeps_is_said():
    points, weights, start = groups_of("many dimensions", np.random.default_rng(0))
    with pytest.warns(TransportConvergenceWarning, match="max_iter=1"):
        result = free_support_barycenter(points, weights, start, max_iter=1)
    assert not result.converged
    assert_consistent(result, points, weights)


PAIR = [[[0.0, 0.0], [1.0, 1.0]], [[2.0, 2.0]]]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"group_weights": [0.5, 0.6]}, "sum 1"),
        ({"group_weights": [1.5, -0.5]}, "non-negative"),
        ({"group_weights": [1.0]}, "shape"),
        ({"points": [], "group_weights": []}, "sum 1"),
        ({"points": [PAIR[0], [[np.nan, 0.0]]]}, r"points\[1\]"),
        ({"points": [PAIR[0], [1.0, 2.0]]}, r"points\[1\]"),
        ({"points": [PAIR[0], [[1.0]]]}, "columns"),
        ({"points": [[[1e200, 0.0]], [[0.0, 0.0]]]}, "differ"),
        ({"points": [[[1e308, 0.0]], [[-1e308, 0.0]]]}, "differ"),
        ({"start": [[0.0, np.inf]]}, "start"),
        ({"start": np.empty((0, 2))}, "start"),
        ({"start": [[0.0]]}, "columns"),
        ({"masses": [[0.5, 0.5]]}, "masses"),
        ({"masses": [[0.5, 0.6], None]}, r"masses\[0\]"),
        ({"masses": [None, [0.5, 0.5]]}, r"masses\[1\]"),
        ({"tol": -1.0}, "tol"),
        ({"tol": np.nan}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"bound": "none"}, "bound"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, match):
    arguments = {"points": PAIR, "group_weights": [0.5, 0.5], "start": [[0.0, 0.0]], **changes}
    with pytest.raises(ValueError, match=match):
        free_support_barycenter(**arguments)
