"""Entropic transport: closed forms, POT, a slow oracle, and certificates whatever the data are."""

import math
import threading
import tracemalloc

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from skdpot.transport import (
    FunctionCosts,
    MatrixCosts,
    PointCosts,
    entropic_transport,
    smallest_tolerance,
)
from skdpot.transport import sinkhorn as solver

EPS = np.finfo(np.float64).eps


def uniform(n):
    return np.full(n, 1.0 / n)


def make_problem(weights, n, m, seed=0):
    rng = np.random.default_rng(seed)
    cost = cdist(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + 0.5)
    if weights == "uniform":
        return cost, uniform(n), uniform(m)
    a, b = rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(m, 0.5))
    if weights == "zeros":
        a[rng.random(n) < 0.4], b[rng.random(m) < 0.4] = 0.0, 0.0
        a[0], b[-1] = 0.25, 0.25
    return cost, a / a.sum(), b / b.sum()


def objective(cost, a, b, plan, reg):
    """Return the cost of a plan, and its relative entropy times the regularisation."""
    product = a[:, None] * b
    used = (plan > 0) & (product > 0)
    entropy = (plan[used] * np.log(plan[used] / product[used])).sum() - plan.sum() + 1.0
    return (plan * cost).sum() + reg * entropy


def log_sum_exp(exponents, axis):
    """Return the logarithms of sums of exponentials, in the precision of the argument."""
    largest = exponents.max(axis=axis, keepdims=True)
    return (largest + np.log(np.exp(exponents - largest).sum(axis=axis, keepdims=True))).squeeze(
        axis
    )


def bracket(cost, a, b, reg, potential):
    """Return bounds on the entropic cost from any column potentials: a dual value and a coupling.

    Both are independent of what any solver says about itself, and computed in extended precision.
    """
    rows, columns = a > 0, b > 0
    cost, a, b, g, reg = (
        np.asarray(array, dtype=np.longdouble)
        for array in (cost[np.ix_(rows, columns)], a[rows], b[columns], potential[columns], reg)
    )
    a, b, low = a / a.sum(), b / b.sum(), cost.min()
    cost = cost - low
    f = -reg * log_sum_exp(np.log(b) + (g - cost) / reg, axis=1)
    g = -reg * log_sum_exp(np.log(a)[:, None] + (f[:, None] - cost) / reg, axis=0)
    plan = a[:, None] * b * np.exp((f[:, None] + g - cost) / reg)
    for weights, axis in ((a, 1), (b, 0)):
        plan *= np.expand_dims(np.minimum(weights / plan.sum(axis=axis), 1), axis)
    missing = np.maximum(a - plan.sum(axis=1), 0), np.maximum(b - plan.sum(axis=0), 0)
    plan += np.outer(*missing) / max(missing[1].sum(), np.finfo(np.longdouble).tiny)
    return low + a @ f + b @ g, low + objective(cost, a, b, plan, reg)


def solve_exactly(cost, a, b, reg):
    """Return bounds on the entropic cost that are as good as double precision."""
    tol = smallest_tolerance(*cost.shape, np.ptp(cost), reg) + 2 * EPS * np.abs(cost).max()
    result = entropic_transport(cost, a, b, reg, tol)
    assert result.gap <= tol
    lower, upper = bracket(cost, a, b, reg, result.column_potential)
    assert lower - 1e-3 * tol <= upper <= lower + tol
    return lower, upper


def assert_potentials_answer_each_other(result, cost, a, b, reg, atol=1e-9):
    answer = -reg * logsumexp((result.row_potential[:, None] - cost) / reg, b=a[:, None], axis=0)
    np.testing.assert_allclose(result.column_potential, answer, rtol=0, atol=atol)
    dual = a @ result.row_potential + b @ result.column_potential
    assert result.cost == pytest.approx(dual, abs=1e-12 + 4 * EPS * np.abs(cost).max())


# Values


@pytest.mark.parametrize("weights", ["uniform", "dirichlet", "zeros"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (25, 40)])
@pytest.mark.parametrize("reg", [0.1, 30.0])
def test_value_equals_pot(shape, weights, reg):
    cost, a, b = make_problem(weights, *shape)
    used = np.ix_(a > 0, b > 0)
    plan = ot.sinkhorn(
        a[a > 0], b[b > 0], cost[used], reg, "sinkhorn_log", numItermax=10_000, stopThr=1e-11
    )
    expected = objective(cost[used], a[a > 0], b[b > 0], plan, reg)
    result = entropic_transport(cost, a, b, reg, 1e-9)
    assert result.cost == pytest.approx(expected, abs=1e-8)
    assert result.gap <= 1e-9
    assert_potentials_answer_each_other(result, cost, a, b, reg)


@pytest.mark.parametrize("reg", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("p, q", [(0.3, 0.8), (1e-6, 0.5), (1.0, 0.4)])
def test_two_points_each_have_a_closed_form(p, q, reg):
    cost, a, b = 1.0 - np.eye(2), np.array([p, 1 - p]), np.array([q, 1 - q])
    # The plan's odds ratio is exp(2 / reg); of the quadratic equation for its first entry, the root
    # that is written so as not to cancel.
    inverse = math.exp(-2 / reg)
    linear = (p + q) * (1 - inverse) + inverse
    discriminant = math.sqrt(linear**2 - 4 * (1 - inverse) * p * q)
    both = 2 * p * q / (linear + discriminant)
    plan = np.array([[both, p - both], [q - both, 1 - p - q + both]])
    result = entropic_transport(cost, a, b, reg, 1e-10)
    assert result.cost == pytest.approx(objective(cost, a, b, plan, reg), abs=1e-10)


def gaussian_cost(shift, first, second, reg):
    """Return the entropic cost between Gaussians, for squared distances (Janati et al., 2020)."""
    noise = reg / 2
    root = sqrtm(first)
    cross = sqrtm(4 * root @ second @ root + noise**2 * np.eye(len(first)))
    _, log_det = np.linalg.slogdet(cross + noise * np.eye(len(first)))
    transport = shift @ shift + np.trace(first) + np.trace(second) - np.trace(cross)
    return transport + noise * (len(first) * (1 - math.log(2 * noise)) + log_det)


@pytest.mark.parametrize("reg", [0.5, 5.0])
@pytest.mark.parametrize(
    "shift, first, second",
    [
        ([0.5], [[1.0]], [[0.25]]),
        ([0.5, -0.2], [[1.0, 0.3], [0.3, 0.5]], [[0.6, -0.2], [-0.2, 0.8]]),
    ],
)
def test_gaussians_have_a_closed_form(shift, first, second, reg):
    shift, first, second = np.array(shift), np.array(first), np.array(second)
    # Densities on a grid: the trapezoidal rule is exact but for the tails.
    axes = [np.linspace(-5.5, 5.5, 27)] * len(shift)
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, len(shift))
    weights = []
    for mean, covariance in ((0 * shift, first), (shift, second)):
        inverse = np.linalg.inv(covariance)
        density = np.exp(-0.5 * cdist(grid, [mean], "mahalanobis", VI=inverse) ** 2)
        weights.append(density[:, 0] / density.sum())
    result = entropic_transport(cdist(grid, grid, "sqeuclidean"), *weights, reg, 1e-6)
    assert result.cost == pytest.approx(gaussian_cost(shift, first, second, reg), abs=1e-5)


def test_the_limits_are_exact_transport_and_the_mean_cost():
    cost, a, b = make_problem("dirichlet", 30, 20)
    exact, entropy = ot.emd2(a, b, cost), math.log(20)
    last = exact
    for reg in (1e-3, 1e-2, 0.1, 1.0, 10.0):
        value = entropic_transport(cost, a, b, reg, 1e-8).cost
        assert exact - 1e-8 <= value <= exact + reg * entropy
        assert value >= last - 1e-8
        last = value
    assert entropic_transport(cost, a, b, 1e6, 1e-5).cost == pytest.approx(a @ cost @ b, abs=1e-5)


# The certificate


@st.composite
def problems(draw):
    """Draw costs and weights: ties, duplicates, clusters, empty rows, one point, shifts, scales."""
    n, m = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    x, y = rng.random((n, 2)), rng.random((m, 2))
    kind = draw(st.sampled_from(["points", "grid", "same", "clusters", "powers", "random"]))
    if kind == "grid":
        x, y = np.round(2 * x), np.round(2 * y)
    elif kind == "same":
        x, y = x[rng.integers(0, n, n)], x[rng.integers(0, n, m)]
    elif kind == "clusters":
        x, y = 1e-3 * x + rng.integers(0, 3, (n, 1)), 1e-3 * y + rng.integers(0, 3, (m, 1))
    elif kind == "powers":
        x, y = 10.0 ** (-6 * x), 10.0 ** (-6 * y)
    cost = rng.random((n, m)) ** 5 if kind == "random" else cdist(x, y)
    cost = cost * 10.0 ** draw(st.sampled_from([0, -6, 6])) + draw(st.sampled_from([0, 1e6, -10]))
    weights = draw(st.sampled_from(["uniform", "counts", "tiny"]))
    if weights == "uniform":
        return cost, uniform(n), uniform(m)
    if weights == "counts":
        a, b = rng.integers(0, 3, n) + np.eye(n)[0], rng.integers(0, 3, m) + np.eye(m)[-1]
    else:
        a, b = 10.0 ** -rng.uniform(0, 300, n), 10.0 ** -rng.uniform(0, 30, m)
    return cost, a / a.sum(), b / b.sum()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    problem=problems(),
    relative_reg=st.sampled_from([1e-4, 1e-3, 1e-2, 0.1, 1.0, 1e3, 1e6]),
    relative_tol=st.sampled_from([0.0, 1e-9, 1e-5, 1e-2, 0.1, 0.5, 2.0]),
)
def test_the_optimum_is_where_the_certificate_says(problem, relative_reg, relative_tol):
    cost, a, b = problem
    cost_range = np.ptp(cost) or 1.0
    reg = relative_reg * cost_range
    rounding = smallest_tolerance(*cost.shape, cost_range, reg) + 2 * EPS * np.abs(cost).max()
    tol = max(relative_tol * cost_range, rounding)
    lower, upper = solve_exactly(cost, a, b, reg)
    result = entropic_transport(cost, a, b, reg, tol)
    assert result.gap <= tol
    # The cost is a lower bound up to rounding, of which the gap takes account.
    assert result.cost <= upper + 0.5 * rounding
    assert lower <= result.cost + result.gap


# The ascent


@pytest.mark.parametrize("method", ["_extrapolated", "_newton"])
@pytest.mark.parametrize("garbage", ["nan", "huge", "far", "constant"])
def test_a_step_that_is_wrong_is_not_believed(monkeypatch, garbage, method):
    rng = np.random.default_rng(0)
    makers = {
        "nan": lambda g: np.full(len(g), np.nan),
        "huge": lambda g: rng.choice([-1e300, 1e300], len(g)),
        "far": lambda g: g + 1e3 * rng.normal(size=len(g)),
        "constant": lambda g: g + 1e12,
    }
    cost, a, b = make_problem("dirichlet", 20, 30)
    lower, upper = solve_exactly(cost, a, b, 0.03)
    calls = []
    monkeypatch.setattr(
        solver._SinkhornIteration, method, lambda self: calls.append(0) or makers[garbage](self.g)
    )
    result = entropic_transport(cost, a, b, 0.03, 1e-9)
    assert calls
    assert result.gap <= 1e-9
    assert result.cost <= upper + 1e-12 and lower <= result.cost + result.gap + 1e-12


@pytest.mark.parametrize("module, name", [(np.linalg, "lstsq"), (solver, "cho_factor")])
def test_linear_algebra_that_fails_is_done_without(monkeypatch, module, name):
    calls = []

    def fail(*args, **kwargs):
        calls.append(0)
        raise np.linalg.LinAlgError("it did not converge")

    cost, a, b = make_problem("uniform", 20, 30)
    expected = entropic_transport(cost, a, b, 0.03, 1e-9).cost
    monkeypatch.setattr(module, name, fail)
    assert entropic_transport(cost, a, b, 0.03, 1e-9).cost == pytest.approx(expected, abs=1e-9)
    assert calls


def clustered(sizes, other_sizes, width, order):
    """Return costs between clusters on a line, with a largest cost of 1."""
    rng = np.random.default_rng(0)
    x, y = (
        np.concatenate([k + width * rng.normal(size=(size, 2)) for k, size in enumerate(counts)])
        for counts in (sizes, other_sizes)
    )
    cost = cdist(x, y) ** order
    return cost / cost.max()


HARD = {
    "one outlier of 60 and of 57": clustered([1, 59], [1, 56], 0.01, 1),
    "two clusters": clustered([30, 30], [28, 29], 0.01, 1),
    "four clusters, squares": clustered([15, 15, 15, 15], [14, 14, 14, 15], 0.01, 2),
    "duplicates": clustered([10] * 6, [9] * 5 + [12], 0.0, 1),
    "geometric": cdist(*[10.0 ** -np.linspace(0, 5, n)[:, None] for n in (40, 37)]),
    "random": np.random.default_rng(0).random((50, 49)),
    "points": cdist(*[np.random.default_rng(n).random((n, 2)) for n in (50, 49)]) / math.sqrt(2),
}


@pytest.mark.parametrize("reg", [0.1, 1e-2, 1e-4])
@pytest.mark.parametrize("case", HARD)
def test_masses_that_go_far_need_no_thousands_of_passes(monkeypatch, case, reg):
    hessians, overlaps = [], solver.KeptPlan.overlaps
    monkeypatch.setattr(solver.KeptPlan, "overlaps", lambda *a: hessians.append(0) or overlaps(*a))
    cost = HARD[case]
    tol = max(smallest_tolerance(*cost.shape, 1.0, reg), 1e-10)
    result = entropic_transport(cost, *map(uniform, cost.shape), reg, tol)
    assert result.gap <= tol
    assert result.n_iter < (60 if reg == 0.1 else 500)
    assert len(hessians) <= result.n_iter / 10


@pytest.mark.parametrize("limit", ["_LARGEST_PLAN", "_LARGEST_HESSIAN"])
@pytest.mark.parametrize("case", ["two clusters", "duplicates", "geometric"])
def test_masses_go_far_without_newtons_method(monkeypatch, case, limit):
    cost = HARD[case]
    expected = entropic_transport(cost, *map(uniform, cost.shape), 1e-3, 1e-8).cost
    monkeypatch.setattr(solver, limit, 0)
    monkeypatch.delattr(solver._SinkhornIteration, "_newton")
    result = entropic_transport(cost, *map(uniform, cost.shape), 1e-3, 1e-6)
    assert result.gap <= 1e-6 and result.n_iter < 1000
    assert -1e-8 <= expected - result.cost <= result.gap


# Whatever is done does not matter


def test_the_order_of_points_does_not_matter():
    cost, a, b = make_problem("dirichlet", 40, 30)
    rows, columns = (
        np.random.default_rng(0).permutation(40),
        np.random.default_rng(1).permutation(30),
    )
    one = entropic_transport(cost, a, b, 0.1, 1e-10)
    other = entropic_transport(cost[rows][:, columns], a[rows], b[columns], 0.1, 1e-10)
    assert other.cost == pytest.approx(one.cost, abs=1e-10)
    transposed = entropic_transport(cost.T, b, a, 0.1, 1e-10)
    assert transposed.cost == pytest.approx(one.cost, abs=1e-10)


@pytest.fixture(params=["kept", "on the fly"])
def memory(request, monkeypatch):
    if request.param == "on the fly":
        monkeypatch.setattr(solver, "_LARGEST_PLAN", 0)


@pytest.mark.parametrize("squared", [False, True])
def test_all_kinds_of_costs_have_one_value(memory, squared):
    rng = np.random.default_rng(0)
    x, y = rng.random((70, 3)), rng.random((50, 3))

    def distances(x, y):
        return cdist(x, y, "sqeuclidean" if squared else "euclidean")

    _, a, b = make_problem("zeros", 70, 50)
    expected = entropic_transport(distances(x, y), a, b, 0.03, 1e-10)
    for costs in (
        MatrixCosts(distances(x, y)),
        FunctionCosts(x, y, distances, low=0.0, high=3.0),
        PointCosts(x, y, squared=squared, high=3.0),
    ):
        result = entropic_transport(costs, a, b, 0.03, 1e-10)
        assert result.cost == pytest.approx(expected.cost, abs=1e-10)
        assert result.gap <= 1e-10
        np.testing.assert_allclose(result.row_potential, expected.row_potential, atol=1e-6)
        assert_potentials_answer_each_other(result, distances(x, y), a, b, 0.03)


@pytest.fixture
def many_panels(monkeypatch):
    monkeypatch.setattr(solver, "_COST_PANEL", 700)
    monkeypatch.setattr(solver, "_PANEL_SIZE", 700)


@pytest.mark.parametrize("reg", [0.3, 1e-3])
def test_threads_change_no_bit(memory, many_panels, reg):
    rng = np.random.default_rng(0)
    x, y = rng.random((80, 2)), rng.random((70, 2))
    _, a, b = make_problem("zeros", 80, 70)
    for costs in (
        MatrixCosts(cdist(x, y)),
        FunctionCosts(x, y, cdist, low=0.0, high=1.5),
        PointCosts(x, y, squared=False, high=1.5),
    ):
        results = [entropic_transport(costs, a, b, reg, 1e-3, n_threads=n) for n in (1, 2, 5)]
        for result in results[1:]:
            assert (result.cost, result.gap) == (results[0].cost, results[0].gap)
            np.testing.assert_array_equal(result.row_potential, results[0].row_potential)
            np.testing.assert_array_equal(result.column_potential, results[0].column_potential)


def test_what_overflows_in_a_thread_is_no_warning(memory, many_panels):
    threads = set()

    def distances(x, y):
        threads.add(threading.current_thread().name)
        return 1 / (1 + np.exp(1e4 * np.abs(x - y.T)))

    x, y = np.random.default_rng(0).random((2, 70, 1))
    costs = FunctionCosts(x, y, distances, low=0.0, high=1.0)
    for n_threads in (1, 2):
        result = entropic_transport(costs, uniform(70), uniform(70), 0.5, 1e-6, n_threads=n_threads)
        assert result.gap <= 1e-6
    assert len(threads) >= 2


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_what_the_caller_does_about_floating_point_errors_does_not_matter(memory, scale):
    cost, a, b = make_problem("zeros", 20, 30)
    cost, reg, tol = cost * scale, 1e-3 * scale, 1e-6 * scale
    expected = entropic_transport(cost, a, b, reg, tol)
    with np.errstate(all="raise"):
        result = entropic_transport(cost, a, b, reg, tol)
    assert (result.cost, result.gap) == (expected.cost, expected.gap)


# The limits of double precision


@pytest.mark.parametrize("weight", [0.5, 1e-100])
@pytest.mark.parametrize("reg", [1e-3, 1e-4])
def test_columns_that_underflow_are_computed_anew(memory, monkeypatch, reg, weight):
    # Without lowering the regularisation in steps, exp(-1 / reg) is what a column begins with.
    monkeypatch.setattr(solver, "_FIRST_REG", 0.0)
    cost = np.array([[0.0, 0.1, 1.0], [0.1, 0.0, 1.0]])
    a, b = np.array([0.5, 0.5]), np.array([(1 - weight) / 3, (1 - weight) / 1.5, weight])
    tol = smallest_tolerance(*cost.shape, 1.0, reg)
    result = entropic_transport(cost, a, b, reg, tol)
    lower, upper = bracket(cost, a, b, reg, result.column_potential)
    assert result.gap <= tol
    assert result.cost <= upper + tol and lower <= result.cost + result.gap
    assert result.cost == pytest.approx(ot.emd2(a, b, cost), abs=2 * reg)
    assert_potentials_answer_each_other(result, cost, a, b, reg)


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("reg", [1e-6, 0.05, 1e4])
def test_the_smallest_tolerance_is_reached_and_less_refused(reg, n):
    cost = HARD["points"][:n].copy()
    cost[0, :2] = 0.0, 1.0
    weights = uniform(n), uniform(cost.shape[1])
    smallest = smallest_tolerance(*cost.shape, 1.0, reg)
    result = entropic_transport(cost, *weights, reg, smallest)
    assert result.gap <= smallest
    for tol in (0.99 * smallest, 0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="cannot be certified in double precision"):
            entropic_transport(cost, *weights, reg, tol)


@pytest.mark.parametrize("n, m", [(30_000, 3), (3, 30_000)])
def test_sums_of_many_terms_are_allowed_for(n, m):
    """A third of the points is at each of three places: the same problem with three points."""
    x, y = (np.arange(k)[:, None] % 3 / 2.0 for k in (n, m))
    reg = 10.0
    tol = smallest_tolerance(n, m, 1.0, reg)
    result = entropic_transport(
        PointCosts(x, y, squared=False, high=1.0), uniform(n), uniform(m), reg, tol
    )
    assert result.gap <= tol
    lower, upper = solve_exactly(cdist(x[:3], y[:3]), uniform(3), uniform(3), reg)
    assert float(lower) <= result.cost + result.gap
    # What rounding does to the lower bound is a part of the gap, too.
    assert result.cost <= float(upper) + tol / 16


def test_on_the_fly_memory_grows_with_the_points_only(monkeypatch):
    monkeypatch.setattr(solver, "_LARGEST_PLAN", 0)
    n = 2000
    x, y = np.random.default_rng(0).random((2, n, 2))
    for costs in (
        PointCosts(x, y, squared=True, high=2.0),
        FunctionCosts(x, y, lambda x, y: np.abs(x[:, :1] - y[:, 0]), low=0.0, high=1.0),
    ):
        tracemalloc.start()
        result = entropic_transport(costs, uniform(n), uniform(n), 0.5, 0.5)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert result.n_iter <= 3
        assert peak < 24e6, "a plan has 32 MB"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cost": [1.0, 2.0]}, "must be a non-empty matrix"),
        ({"cost": [[math.nan, 1.0]]}, "finite numbers"),
        ({"a": [0.5, 0.5]}, r"a must have shape \(1,\)"),
        ({"b": [0.5, 0.6]}, "b must hold non-negative weights with sum 1"),
        ({"b": [1.5, -0.5]}, "b must hold non-negative weights with sum 1"),
        ({"reg": 0.0}, "reg must be a finite number above 0"),
        ({"reg": -1.0}, "reg must be a finite number above 0"),
        ({"reg": math.inf}, "reg must be a finite number above 0"),
        ({"reg": math.nan}, "reg must be a finite number above 0"),
        ({"reg": 1e-300}, "Raise tol or reg"),
        ({"cost": [[-1e308, 1e308]]}, "Raise tol or reg"),
        (
            {"cost": [[1e10, 1e10 + 1]]},
            "costs between 1e.10 and 1e.10, it must be at least 4.4e-06",
        ),
    ],
)
def test_bad_input_is_named(change, message):
    valid = {"cost": [[0.0, 1.0]], "a": [1.0], "b": [0.5, 0.5], "reg": 0.1, "tol": 1e-6}
    with pytest.raises(ValueError, match=message):
        entropic_transport(**(valid | change))
