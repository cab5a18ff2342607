"""Costs on a box: ranges that hold and are reached, parameters, and values that tell nothing."""

import math
import pickle
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from skdpot import PrivateSinkhornDistance
from skdpot.distance import _releases
from skdpot.distance._costs import SchemaSpace, make_cost
from skdpot.distance._releases import CostSettings, pairwise_costs
from skdpot.privacy.sensitivity import pairwise_sensitivities
from skdpot.tables import read_columns, read_schema
from tests.distance.grouped_records import SCHEMA, make_tables

CONVEX = ["sqeuclidean", "euclidean", "cityblock", "chebyshev"]
LOW, HIGH = np.zeros(3), np.array([1.0, 3.0, 0.25])

AWKWARD = np.array(
    [
        [0.0, 0.0, 0.0],
        [-0.0, 5e-324, 0.0],
        [np.nan, 1.0, 0.0],
        [np.inf, -np.inf, 0.0],
        [1e308, -1e308, 1e308],
        [1e-200, 1e-200, 1e-200],
    ]
)


def cost_of(metric, low=LOW, high=HIGH, **options):
    return make_cost(metric, low, high, **options)


def points_of(low, high, n_random=60):
    """Return the corners of a box and points drawn from it."""
    grids = np.meshgrid(*zip(low, high, strict=True))
    corners = np.stack(grids, axis=-1).reshape(-1, len(low))
    random = np.random.default_rng(0).uniform(low, high, (n_random, len(low)))
    return np.vstack([corners, random])


def scipy_costs(metric, A, B):
    with np.errstate(all="ignore"):
        return cdist(A, B, metric)


# ------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize("metric", CONVEX)
@pytest.mark.parametrize(
    "low, high",
    [
        (LOW, HIGH),
        (np.array([-1.0, 0.5, -2.0]), np.array([3.0, 0.75, -1.0])),
        (np.full(3, 1e6), np.full(3, 1e6) + HIGH),
    ],
)
def test_no_cost_is_beyond_the_proven_range(metric, low, high):
    cost = cost_of(metric, low, high)
    points = points_of(low, high)
    expected = scipy_costs(metric, points, points)
    lowest, highest = cost.range
    assert lowest == 0.0
    assert np.nanmax(expected) <= highest * (1 + 1e-9)
    found = cost(points, points)
    assert found.dtype == np.float64
    assert found.min() >= lowest and found.max() <= highest
    np.testing.assert_allclose(
        found, np.where(np.isnan(expected), highest, expected), rtol=1e-7, atol=1e-9 * highest
    )


@pytest.mark.parametrize("metric", CONVEX)
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_the_proven_range_is_reached(metric, shift):
    cost = cost_of(metric, LOW + shift, HIGH + shift)
    corners = points_of(LOW + shift, HIGH + shift, n_random=0)
    assert scipy_costs(metric, corners, corners).max() == pytest.approx(cost.range[1], rel=1e-9)


# ------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize(
    "metric, kind",
    [("sqeuclidean", "sqeuclidean"), ("euclidean", "euclidean"), ("cityblock", None)],
)
def test_kind_is_the_formula_unless_it_is_clipped(metric, kind):
    assert cost_of(metric).kind == kind
    assert cost_of(metric, cost_range=(-1.0, 1e3)).kind == kind
    assert cost_of(metric, cost_range=(0.0, 0.1)).kind is None
    assert cost_of(metric, cost_range=(0.01, 1e3)).kind is None


@pytest.mark.parametrize("metric", CONVEX)
def test_monotone_costs_are_convex_in_the_difference_of_numbers(metric):
    cost = make_cost(metric, [1.0], [5.0])
    assert cost.monotone and not cost_of(metric).monotone
    assert not make_cost(metric, [1.0], [5.0], cost_range=(0.0, 0.2)).monotone
    x, y = np.random.default_rng(1).uniform(1.0, 5.0, (2, 50))
    expected = np.diag(cost(x[:, None], y[:, None]))
    np.testing.assert_allclose(cost.between(x, y), expected, rtol=1e-12)
    np.testing.assert_array_equal(cost.between(x + 1e9, y), np.full(50, cost.range[1]))
    values = cost.between(np.linspace(1.0, 5.0, 41), np.full(41, 3.0))
    assert (np.diff(values, 2) >= -1e-12).all()


# ------------------------------------------------------------------------------- imposed ranges


def test_of_the_proven_and_the_imposed_range_the_smaller_is_taken():
    assert cost_of("cityblock", cost_range=(0, 1)).range == (0.0, 1.0)
    assert cost_of("cityblock", cost_range=(1, 100)).range == (1.0, 4.25)
    assert cost_of("cityblock", cost_range=[-1, 100]).range == (0.0, 4.25)
    clipped = cost_of("cityblock", cost_range=(0.5, 1.0))
    assert set(clipped(points_of(LOW, HIGH), [LOW]).ravel()) >= {0.5, 1.0}
    with pytest.raises(ValueError, match="leaves one cost only"):
        cost_of("cityblock", cost_range=(5, 6))


@pytest.mark.parametrize("width", [1e200, 1e-200, 1.7e308])
def test_a_range_beyond_double_precision_must_be_imposed(width):
    low, high = np.full(2, -width), np.full(2, width)
    with pytest.raises(ValueError, match="a double can hold"):
        make_cost("sqeuclidean", low, high)
    cost = make_cost("sqeuclidean", low, high, cost_range=(0.0, 1.0))
    assert cost([high], [low])[0, 0] == (1.0 if width > 1 else 0.0)


# ------------------------------------------------------------------------------- values


@pytest.mark.parametrize("metric", CONVEX)
def test_no_value_makes_an_error_or_a_warning(metric):
    cost = cost_of(metric, cost_range=(0.0, 1.5))
    with np.errstate(all="raise"):
        for A, B in [(AWKWARD, AWKWARD), (AWKWARD, points_of(LOW, HIGH)), (AWKWARD[:0], AWKWARD)]:
            found = cost(A, B)
            assert found.shape == (len(A), len(B))
            assert ((found >= cost.range[0]) & (found <= cost.range[1])).all()
    # Whether a comparison or a maximum notices NaN is the metric's affair.
    if metric in ("sqeuclidean", "euclidean", "cityblock"):
        assert (cost(AWKWARD[2:3], AWKWARD) == cost.range[1]).all()


def moody(x, y):
    """Fail, warn or return what is no number, each at another place."""
    place = int(10 * abs(x[0] - y[0]))
    if place == 0:
        return 0.5
    if place == 1:
        raise ArithmeticError("no cost here")
    if place == 2:
        warnings.warn("a private value", stacklevel=2)
        return 0.25
    if place == 3:
        x[0] = 17.0
    if place == 9:
        return np.float32(0.75)
    return {4: None, 5: "0.5", 6: 1j, 7: [0.5], 8: np.nan, 10: 10**400}[place]


def test_a_callable_fails_silently():
    cost = make_cost(moody, [0.0], [0.95], cost_range=(0.0, 2.0))
    A = np.arange(11.0)[:, None] / 10 + 0.01
    with np.errstate(all="raise"):
        found = cost(A, [[0.0]])[:, 0]
    np.testing.assert_array_equal(found, [0.5, 2, 0.25, 2, 2, 2, 2, 2, 2, 0.75, 2])
    np.testing.assert_array_equal(A[:, 0], np.arange(11.0) / 10 + 0.01)


def power_cost(x, y, p):
    return np.sum(np.abs(x - y) ** p)


def test_a_callable_sees_the_points_as_they_are_and_can_be_pickled():
    cost = make_cost(partial(power_cost, p=3), LOW + 1e6, HIGH + 1e6, cost_range=(0.0, 10.0))
    assert cost.range == (0.0, 10.0)
    assert (cost.kind, cost.monotone) == (None, False)
    A, B = points_of(LOW, HIGH)[:9], points_of(LOW, HIGH)[9:20]
    expected = np.clip(cdist(A + 1e6, B + 1e6, "minkowski", p=3) ** 3, 0.0, 10.0)
    for candidate in (cost, pickle.loads(pickle.dumps(cost))):
        np.testing.assert_allclose(candidate(A + 1e6, B + 1e6), expected, rtol=1e-12)


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "result", [None, "0.5", 1j, [1.0], np.ones(2), math.nan, ZeroDivisionError("of the user")]
)
def test_a_callable_is_tried_on_the_corners(result):
    def metric(x, y):
        if isinstance(result, Exception):
            raise result
        return result

    with pytest.raises(ValueError, match="no number for the two corners") as raised:
        make_cost(metric, LOW, HIGH, cost_range=(0.0, 1.0))
    assert isinstance(raised.value.__cause__, Exception)


# --------------------------------------------------------- between rows of a table, and samples


@pytest.mark.parametrize(
    "metric, width",
    [
        ("euclidean", 1e150),
        ("euclidean", 1e-150),
        ("cityblock", 1.0),
        ("chebyshev", 1e5),
        ("sqeuclidean", 1e-74),
        ("sqeuclidean", 1e150),
    ],
)
def test_sorted_points_are_coupled_best_also_where_powers_underflow(metric, width):
    """One record that moves shifts the partners of all others in a sorted sample."""
    cost = make_cost(metric, np.zeros(1), np.full(1, width))
    settings = CostSettings(cost, 0.0, "ot")
    grid = np.linspace(0, width, 101)[:, None]
    values = [
        settings.transport_cost(sample, grid[:100], 0.0)
        for sample in (grid[:100], np.vstack([grid[1:100], grid[-1:]]))
    ]
    assert abs(values[0] - values[1]) <= settings.cost_range / 100 * (1 + 1e-9)


@pytest.mark.parametrize("short", [(1, 0), (0, 1)], ids=["of a sample to itself", "of a pair"])
def test_a_divergence_is_within_its_tolerance_whatever_the_solver_leaves(short, monkeypatch):
    """Its sensitivity is raised by this: the costs of a sample to itself count, too."""

    def as_bad_as_allowed(costs, a, b, reg, tol, **options):
        return SimpleNamespace(cost=1.0 - tol * short[len(a) != len(b)])

    monkeypatch.setattr(_releases, "entropic_transport", as_bad_as_allowed)
    settings = CostSettings(make_cost("euclidean", np.zeros(1), np.ones(1)), 0.1, "sinkhorn")
    samples, tolerances = [np.zeros((n, 1)) for n in (2, 3, 4)], [0.01, 0.02, 0.03]
    errors = np.abs(pairwise_costs(settings, samples, tolerances))
    assert 0 < errors.max() and (errors <= np.array(tolerances) + 1e-12).all()


@pytest.mark.parametrize("reg, solver", [(0.0, "exact_transport"), (0.2, "entropic_transport")])
def test_solvers_leave_open_no_more_than_the_noise_pays_for(monkeypatch, reg, solver):
    """The noise covers an error of a part of the sensitivity; the solver is asked for that."""
    tol = 1e-3
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(90, 2)), np.repeat([0, 1], [60, 30])
    solve, asked, gaps = getattr(_releases, solver), [], []

    def spied(cost, a, b, *args, **options):
        # The exact solver ends within a gap that is checked beforehand.
        asked.extend(args[1:2])
        result = solve(cost, a, b, *args, **options)
        gaps.append(result.gap)
        return result

    monkeypatch.setattr(_releases, solver, spied)
    distance = PrivateSinkhornDistance(1.0, bounds=(0, 1), reg=reg, random_state=0)
    distance.fit(X, y)
    sensitivity = pairwise_sensitivities(2.0, [60, 30])[0][0]
    assert gaps[0] <= tol * sensitivity
    assert asked == [pytest.approx(tol * sensitivity, rel=1e-9)] * (reg > 0)
    assert distance.standard_error_ >= np.sqrt(2) * sensitivity * (1 + tol) * (1 - 1e-9)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_costs_of_many_rows_are_those_of_single_rows(metric):
    X, y = make_tables(400, 200)
    schema = read_schema(SCHEMA)
    rows = SchemaSpace(schema).points(read_columns(X, schema))
    A, B, cost = rows[y == "a"], rows[y == "b"], SchemaSpace(schema).cost(metric)
    assert np.array_equal(cost(A, B), np.vstack([cost(row, B) for row in A[:, None]]))


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_costs_are_metrics_with_values_from_0_to_1(metric):
    schema = read_schema(SCHEMA)
    X, _ = make_tables(30, 20)
    X.loc[0] = [10**6, np.inf, "unknown", None]
    places = SchemaSpace(schema).points(read_columns(X, schema))
    costs = SchemaSpace(schema).cost(metric)(places, places)
    np.testing.assert_array_equal(costs, costs.T)
    np.testing.assert_array_equal(np.diag(costs), 0.0)
    assert 0 < costs.max() <= 1
    distances = np.sqrt(costs) if metric == "sqeuclidean" else costs
    assert (distances[:, None] <= distances[:, :, None] + distances[None] + 1e-12).all()
    ends = [[20, 0, "low", "office"], [60, 10, "high", "home"], [40, None, None, None]]
    places = SchemaSpace(schema).points(read_columns(ends, schema))
    costs = SchemaSpace(schema).cost(metric)(places, places)
    assert costs[0, 1] == pytest.approx(1.0, abs=1e-15)
