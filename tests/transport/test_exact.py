"""Exact transport: linear programs, certificates whatever the solver says, and points on a line."""

import math
import subprocess
import sys
import warnings

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from skdpot.transport import exact as exact_module
from skdpot.transport.exact import (
    certifiable_gap,
    common_masses,
    exact_transport,
    monotone_transport,
    repeated_transport,
)

EPS = np.finfo(np.float64).eps


def lp_cost(cost, a, b):
    """Return the transport cost by scipy's HiGHS."""
    n, m = cost.shape
    rows = sparse.kron(sparse.eye(n), np.ones((1, m)))
    columns = sparse.kron(np.ones((1, n)), sparse.eye(m))
    result = linprog(
        cost.ravel(),
        A_eq=sparse.vstack([rows, columns]).tocsr()[:-1],
        b_eq=np.concatenate([a, b])[:-1],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.status == 0, result.message
    return result.fun


def uniform(n):
    return np.full(n, 1.0 / n)


def make_problem(kind, n, m, seed):
    rng = np.random.default_rng(seed)
    cost = cdist(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + 0.5, "sqeuclidean")
    if kind == "uniform":
        return cost, uniform(n), uniform(m)
    a, b = rng.dirichlet(np.full(n, 0.3)), rng.dirichlet(np.full(m, 0.3))
    if kind == "zeros":
        a[rng.random(n) < 0.5], b[rng.random(m) < 0.5] = 0.0, 0.0
        a[0], b[-1] = 0.25, 0.25
        return cost, a / a.sum(), b / b.sum()
    return cost, a, b


def assert_certified(result, expected, cost, a, b, gap=1e-9):
    """Check a result against the cost that another solver found, up to what that one may miss."""
    slack = 1e-9 * (np.ptp(cost) or 1.0)
    assert 0 <= result.gap <= gap * (np.ptp(cost) or 1.0) + 4 * EPS * np.abs(cost).max()
    assert result.cost <= expected + slack
    assert expected <= result.cost + result.gap + slack
    phi, psi = result.row_potential, result.column_potential
    assert np.isfinite(phi).all() and np.isfinite(psi).all()
    rounding = 16 * EPS * (np.abs(cost).max() + np.ptp(cost))
    assert (phi[:, None] + psi <= cost + rounding).all()
    assert a @ phi + b @ psi <= result.cost + rounding


# ------------------------------------------------------------------------------- the simplex


@pytest.mark.parametrize("kind", ["uniform", "general", "zeros"])
@pytest.mark.parametrize("n, m", [(1, 6), (5, 1), (20, 20), (17, 40)])
def test_costs_equal_those_of_other_solvers(kind, n, m):
    cost, a, b = make_problem(kind, n, m, 10 * n + m)
    result = exact_transport(cost, a, b)
    assert_certified(result, lp_cost(cost, a, b), cost, a, b)
    assert result.cost == pytest.approx(ot.emd2(a, b, cost), abs=1e-9)
    assert result.gap <= certifiable_gap(n, m, cost.min(), cost.max())
    np.testing.assert_allclose(result.plan.sum(axis=1), a, atol=1e-14)
    np.testing.assert_allclose(result.plan.sum(axis=0), b, atol=1e-14)
    assert (result.plan.data > 0).all()
    assert (result.plan * cost).sum() == pytest.approx(result.cost, abs=1e-9)
    assert result.plan.nnz <= n + m - 1


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_the_certificate_brackets_the_cost_of_degenerate_problems(data):
    n, m = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    entries = st.lists(st.integers(-3, 3), min_size=m, max_size=m)
    cost = np.array([data.draw(entries) for _ in range(n)], dtype=float)
    cost = cost * data.draw(st.sampled_from([1.0, 1e-9, 1e9])) + data.draw(st.sampled_from([0, 50]))
    weights = []
    for size in (n, m):
        counts = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
        counts[0] = counts[0] or 1
        weights.append(np.array(counts) / sum(counts))
    result = exact_transport(cost, *weights)
    # The linear program knows tolerances of its own.
    expected = lp_cost((cost - cost.min()) / (np.ptp(cost) or 1.0), *weights)
    expected = expected * (np.ptp(cost) or 1.0) + cost.min()
    assert_certified(result, expected, cost, *weights)


@pytest.mark.parametrize("metric", ["cityblock", "sqeuclidean", "chebyshev"])
def test_grids_and_duplicates_end_at_the_optimum(metric):
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), -1).reshape(-1, 2)
    rng = np.random.default_rng(0)
    x, y = grid[rng.integers(0, 144, 150)], grid[rng.integers(0, 144, 100)]
    cost = cdist(x, y, metric)
    result = exact_transport(cost, uniform(150), uniform(100))
    expected = ot.emd2(uniform(150), uniform(100), cost, numItermax=10**7)
    assert_certified(result, expected, cost, uniform(150), uniform(100), gap=1e-11)


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(lambda cost: cost * 1e300, id="huge"),
        pytest.param(lambda cost: cost * 1e-300, id="tiny"),
        pytest.param(lambda cost: cost * 1e-318, id="subnormal"),
        pytest.param(lambda cost: cost - 3.0, id="negative"),
        pytest.param(lambda cost: cost + 1e8, id="shifted"),
        pytest.param(lambda cost: np.zeros_like(cost), id="zero"),
        pytest.param(lambda cost: np.full_like(cost, -7.0), id="constant"),
        pytest.param(lambda cost: cost**20, id="spread"),
    ],
)
def test_costs_of_every_kind(transform):
    cost, a, b = make_problem("general", 12, 15, 3)
    cost = transform(cost)
    unit = np.ptp(cost) or 1.0
    result = exact_transport(cost, a, b)
    relative = (cost - cost.min()) / unit
    expected = ot.emd2(a, b, relative) * unit + cost.min()
    assert_certified(result, expected, cost, a, b)


@pytest.mark.parametrize("n, m", [(2, 2), (60, 80)])
def test_the_gap_is_known_beforehand(n, m):
    rng = np.random.default_rng(n)
    for low, high in [(0.0, 1.0), (-5.0, 3.0), (1e6, 1e6 + 1)]:
        cost = rng.choice([low, high, (low + high) / 2], (n, m))
        for weights in [(uniform(n), uniform(m)), (rng.dirichlet(np.ones(n)), uniform(m))]:
            assert exact_transport(cost, *weights).gap <= certifiable_gap(n, m, low, high)
    assert certifiable_gap(20_000, 20_000, 0.0, 1.0) < 1e-9


# ------------------------------------------------------------------------------- no trust in it


@pytest.mark.parametrize("kind", ["nan", "random", "infinite"])
@pytest.mark.parametrize("weights", ["uniform", "zeros"])
def test_prices_that_are_wrong_are_not_believed(monkeypatch, kind, weights):
    cost, a, b = make_problem(weights, 9, 12, 7)
    expected = lp_cost(cost, a, b)

    def garbage(*arguments, **options):
        flow, log = exact(*arguments, **options)
        n = len(log["v"])
        log["v"] = {
            "nan": np.full(n, np.nan),
            "random": 2.0**45 * np.random.default_rng(0).normal(size=n),
            "infinite": np.resize([np.inf, -np.inf, 1e308, -1e308], n),
        }[kind]
        return flow, log

    exact = exact_module.load_solver()
    monkeypatch.setattr(exact_module, "load_solver", lambda: garbage)
    result = exact_transport(cost, a, b)
    assert_certified(result, expected, cost, a, b, gap=2.0)
    assert result.gap > 1e-6


@pytest.mark.parametrize("weights", ["uniform", "zeros"])
def test_a_flow_that_is_not_the_cheapest_is_not_believed(monkeypatch, weights):
    cost, a, b = make_problem(weights, 20, 30, 7)
    exact = exact_module.load_solver()

    def of_other_costs(supplies, demands, cost, **options):
        return exact(supplies, demands, cost.max() - cost, **options)

    monkeypatch.setattr(exact_module, "load_solver", lambda: of_other_costs)
    result = exact_transport(cost, a, b)
    assert_certified(result, lp_cost(cost, a, b), cost, a, b, gap=2.0)
    assert result.gap > 1e-6
    spent = (result.plan * cost).sum()
    assert spent <= result.cost + result.gap
    np.testing.assert_allclose(result.plan.sum(axis=1), a, atol=1e-14)


def test_a_solver_that_gives_up_is_an_error_and_no_warning(monkeypatch):
    cost, a, b = make_problem("general", 20, 30, 7)
    exact = exact_module.load_solver()

    def impatient(*arguments, **options):
        return exact(*arguments, **(options | {"numItermax": 1}))

    monkeypatch.setattr(exact_module, "load_solver", lambda: impatient)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="POT has found no plan: numItermax reached"):
            exact_transport(cost, a, b)


@pytest.mark.experiment
def test_an_import_of_pot_brings_no_other_backend_and_leaves_the_environment():
    script = """
import os, sys
before = dict(os.environ)
from skdpot.transport import exact_transport
assert "ot" not in sys.modules
exact_transport([[0.0, 1.0], [2.0, 1.0]], [0.5, 0.5], [0.25, 0.75])
assert "ot" in sys.modules and not {"torch", "jax"} & set(sys.modules)
assert os.environ == before
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


# ------------------------------------------------------------------------------- masses


def test_common_masses_are_exact_for_equal_weights():
    masses = common_masses([uniform(6), uniform(4), uniform(1)])
    assert [one.tolist() for one in masses] == [[2] * 6, [3] * 4, [12]]
    weights = [uniform(5), np.array([0.3, 0.7])]
    for mass, weight in zip(common_masses(weights), weights, strict=True):
        assert mass.sum() == 2**52
        np.testing.assert_allclose(mass / 2**52, weight, atol=len(weight) * EPS)


# ------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cost": [[0.0, np.nan], [1.0, 0.0]]}, "NaN or infinity"),
        ({"cost": [[-1e308, 1e308], [1.0, 0.0]]}, "more than a double can hold"),
        ({"cost": [0.0, 1.0]}, "shape"),
        ({"a": [0.5, 0.25, 0.25]}, "a must have shape"),
        ({"a": [1.5, -0.5]}, "a must hold non-negative"),
        ({"b": [0.5, 0.6]}, "b must hold non-negative weights with sum 1"),
        ({"b": [np.nan, 0.5]}, "b must hold"),
    ],
)
def test_bad_input_is_named(change, message):
    valid = {"cost": [[0.0, 1.0], [1.0, 0.0]], "a": [0.5, 0.5], "b": [0.25, 0.75]}
    with pytest.raises(ValueError, match=message):
        exact_transport(**(valid | change))


# ------------------------------------------------------------------------------- on a line


@pytest.mark.parametrize("n, m", [(1, 1), (1, 7), (30, 30), (30, 45), (37, 20)])
@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_sorting_is_optimal_on_a_line(n, m, order):
    rng = np.random.default_rng(n + m)
    x, y = np.round(rng.normal(size=n), 1), np.round(rng.normal(size=m), 1)
    cost = np.abs(x[:, None] - y) ** order
    value = monotone_transport(x, y, cost=order)
    assert value == pytest.approx(exact_transport(cost, uniform(n), uniform(m)).cost, abs=1e-9)
    assert monotone_transport(y, x, cost=order) == pytest.approx(value, rel=1e-12)
    if order == 1:
        assert value == pytest.approx(wasserstein_distance(x, y), abs=1e-12)


def test_the_cost_may_be_a_function():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=12), rng.normal(size=18)

    def pinball(x, y):
        return np.maximum(x - y, 3 * (y - x))

    expected = exact_transport(pinball(x[:, None], y), uniform(12), uniform(18)).cost
    assert monotone_transport(x, y, cost=pinball) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 40), st.randoms(use_true_random=False))
def test_equal_weights_are_coupled_exactly(n, m, random):
    x = np.array([random.randrange(5) for _ in range(n)], dtype=float)
    y = np.array([random.randrange(5) for _ in range(m)], dtype=float)
    value = monotone_transport(x, y)
    # Every point repeated until there are equally many.
    long_x, long_y = np.sort(np.repeat(x, m)), np.sort(np.repeat(y, n))
    assert value == pytest.approx(np.abs(long_x - long_y).mean(), abs=1e-13)


def test_costs_on_a_line_that_overflow_are_infinite():
    assert monotone_transport([1e200], [-1e200], cost=2) == math.inf


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": [[0.0]]}, "x must be a non-empty vector"),
        ({"x": []}, "x must be"),
        ({"y": [np.nan]}, "y must be"),
        ({"cost": 0.5}, "order >= 1"),
        ({"cost": np.inf}, "order >= 1"),
        ({"cost": np.nan}, "order >= 1"),
    ],
)
def test_bad_points_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        monotone_transport(**({"x": [0.0, 1.0], "y": [2.0]} | change))


@pytest.mark.parametrize("shape", [(1, 4), (30, 30), (25, 70)])
def test_transport_again_is_that_of_a_first_time(shape):
    """For costs that change little, much, and to ties; plans are optimal and have the masses."""
    rng = np.random.default_rng(0)
    weights = np.full(shape[0], 1 / shape[0]), rng.dirichlet(np.ones(shape[1]))
    again = repeated_transport(*weights)
    x, y = rng.normal(size=(shape[0], 2)), rng.normal(size=(shape[1], 2))
    for move in (0.0, 0.0, 0.01, 3.0, 1e-9, np.inf):
        x = np.zeros_like(x) if move == np.inf else x + move * rng.normal(size=x.shape)
        cost = cdist(x.round() if move == 3.0 else x, y, "sqeuclidean")
        found, wanted = again(cost), exact_transport(cost, *weights)
        assert abs(found.cost - wanted.cost) <= found.gap + wanted.gap
        assert found.gap <= certifiable_gap(*shape, 0.0, float(cost.max()))
        assert found.plan.nnz <= sum(shape) - 1
        for axis, masses in enumerate(weights):
            np.testing.assert_allclose(found.plan.sum(axis=1 - axis), masses, atol=1e-14)
