"""Base measures: the greedy worst case, the best uniform one and the certified optimum."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from skdpot.transport.base_measure import (
    TransportConvergenceWarning,
    optimal_base_measure,
    uniform_base_measure,
    worst_case_cost,
)
from tests.oracles.base_measure import dirac_cost, smallest_worst_case_cost


def planar_costs(n_inputs, n_outputs=None, seed=0):
    """Distances between random points of the unit square; the same points without n_outputs."""
    rng = np.random.default_rng(seed)
    inputs = rng.random((n_inputs, 2))
    outputs = inputs if n_outputs is None else rng.random((n_outputs, 2))
    return np.linalg.norm(inputs[:, None] - outputs, axis=2)


def ring_costs(n_points):
    """Distances along a ring of length one."""
    places = np.arange(n_points) / n_points
    distances = np.abs(places[:, None] - places)
    return np.minimum(distances, 1.0 - distances)


def random_base_measure(rng, n_outputs, epsilon, total=None, n_zeros=0):
    """Masses with some zeros and a total anywhere in the feasible range."""
    masses = rng.dirichlet(np.full(n_outputs, 0.5))
    masses[:n_zeros] = 0.0
    total = rng.uniform(math.exp(-epsilon), 1.0) if total is None else total
    return masses * (total / masses.sum())


def assert_is_feasible(base_measure, epsilon):
    assert (base_measure >= 0).all()
    for total in (base_measure.sum(), math.fsum(base_measure)):
        assert total <= 1 <= math.exp(epsilon) * total


class TestWorstCaseCost:
    @pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
    @pytest.mark.parametrize("total", ["inner", "largest", "smallest"])
    @pytest.mark.parametrize("n_zeros", [0, 4])
    def test_is_the_largest_of_the_linear_programs(self, epsilon, total, n_zeros):
        rng = np.random.default_rng(1)
        costs = rng.normal(size=(5, 9))
        total = {"inner": None, "largest": 1.0, "smallest": math.exp(-epsilon)}[total]
        base = random_base_measure(rng, 9, epsilon, total, n_zeros)
        expected = max(dirac_cost(row, base, epsilon) for row in costs)
        assert worst_case_cost(costs, base, epsilon) == pytest.approx(expected, abs=1e-9)

    def test_two_points_in_closed_form(self):
        # s_j <= nu_j <= 3 s_j with s = (1/4, 1/4): the Dirac keeps 3/4 of its mass in place.
        assert worst_case_cost([[0, 1], [1, 0]], [0.25, 0.25], math.log(3)) == pytest.approx(0.25)

    def test_keeps_relative_accuracy_of_tiny_costs(self):
        # Every Dirac keeps all but (m - 1) / E of its mass.
        epsilon, n_points = 30.0, 16
        base = np.full(n_points, math.exp(-epsilon))
        costs = 1.0 - np.eye(n_points)
        expected = (n_points - 1) * math.exp(-epsilon)
        assert worst_case_cost(costs, base, epsilon) == pytest.approx(expected, rel=1e-4)

    @settings(max_examples=25, deadline=None)
    @given(seed=st.integers(0, 9**9), epsilon=st.floats(0.001, 20.0), weight=st.floats(0.0, 1.0))
    def test_is_convex(self, seed, epsilon, weight):
        rng = np.random.default_rng(seed)
        costs = rng.normal(size=(4, 6))
        one, two = (random_base_measure(rng, 6, epsilon, n_zeros=k) for k in (0, 2))
        between = worst_case_cost(costs, weight * one + (1 - weight) * two, epsilon)
        chord = weight * worst_case_cost(costs, one, epsilon)
        chord += (1 - weight) * worst_case_cost(costs, two, epsilon)
        # What a double leaves of a small entry is multiplied by exp(epsilon).
        assert between <= chord + 1e-12 + 1e-15 * np.exp(epsilon)


class TestUniformBaseMeasure:
    @pytest.mark.parametrize("epsilon", [0.001, 2.0, 8.0])
    @pytest.mark.parametrize("shape", [(20, 20), (7, 30), (100, 3), (1, 5), (5, 1)])
    def test_no_other_scale_is_better(self, epsilon, shape):
        costs = np.random.default_rng(3).random(shape)
        result = uniform_base_measure(costs, epsilon)

        def cost_at(scale):
            return worst_case_cost(costs, np.full(shape[1], scale / shape[1]), epsilon)

        grid = np.linspace(math.exp(-epsilon), 1.0, 41)[1:-1]
        searched = minimize_scalar(
            cost_at, bounds=(math.exp(-epsilon), 1.0), method="bounded", options={"xatol": 1e-12}
        )
        assert np.ptp(result.base_measure) == 0
        assert_is_feasible(result.base_measure, epsilon)
        assert result.cost == worst_case_cost(costs, result.base_measure, epsilon)
        assert result.cost <= min(searched.fun, *map(cost_at, grid)) + 1e-12
        assert result.gap <= 1e-12

    @pytest.mark.parametrize(
        "epsilon, scale", [(0.5, 0.782), (1, 0.611), (2, 0.367), (4, 0.145), (8, 0.0325)]
    )
    def test_scale_on_the_ring(self, epsilon, scale):
        masses = uniform_base_measure(ring_costs(100), epsilon).base_measure
        assert masses.sum() == pytest.approx(scale, rel=2e-3)


class TestOptimalBaseMeasure:
    @pytest.mark.parametrize("epsilon", [0.001, 2.0, 5.0])
    @pytest.mark.parametrize("shape", [(20, 20), (8, 25), (25, 8), (1, 6), (6, 1)])
    def test_equals_the_full_linear_program(self, epsilon, shape):
        costs = np.random.default_rng(4).random(shape)
        expected = smallest_worst_case_cost(costs, epsilon)
        result = optimal_base_measure(costs, epsilon)
        assert result.gap <= 1e-6
        assert result.lower_bound - 1e-9 <= expected <= result.cost + 1e-9
        assert result.cost <= expected * (1 + 1e-6)
        assert result.cost == worst_case_cost(costs, result.base_measure, epsilon)
        assert_is_feasible(result.base_measure, epsilon)

    @pytest.mark.parametrize("epsilon", [0.5, 8.0])
    def test_uniform_is_optimal_on_the_ring(self, epsilon):
        costs = ring_costs(24)
        best = optimal_base_measure(costs, epsilon)
        assert best.cost == pytest.approx(uniform_base_measure(costs, epsilon).cost, rel=1e-6)

    @pytest.mark.parametrize("epsilon", [0.001, 1.0, 20.0])
    def test_duplicated_points_change_nothing(self, epsilon):
        costs = planar_costs(15)
        copies = np.random.default_rng(5).permutation(np.repeat(np.arange(15), 3))
        repeated = optimal_base_measure(costs[np.ix_(copies, copies)], epsilon)
        assert repeated.gap <= 1e-6
        assert repeated.cost == pytest.approx(optimal_base_measure(costs, epsilon).cost, rel=2e-6)

    @pytest.mark.parametrize("seed", range(4))
    def test_cost_many_orders_below_the_uniform_one(self, seed):
        rng = np.random.default_rng(seed)
        epsilon = rng.uniform(10.0, 24.0)
        costs = rng.integers(0, 3, size=rng.integers(1, 25, size=2)).astype(float)
        for matrix in (costs, rng.random(costs.shape) ** 20):
            result = optimal_base_measure(matrix, epsilon)
            assert result.gap <= 1e-6
            assert_is_feasible(result.base_measure, epsilon)

    def test_epsilon_at_which_float64_cannot_tell_costs_apart(self):
        result = optimal_base_measure(planar_costs(10), 300.0)
        assert result.gap == 0
        assert_is_feasible(result.base_measure, 300.0)

    @pytest.mark.parametrize("value", [0.0, 3.0, -2.5])
    def test_constant_costs(self, value):
        result = optimal_base_measure(np.full((4, 6), value), 1.0)
        assert (result.cost, result.lower_bound, result.gap) == (value, value, 0.0)
        assert_is_feasible(result.base_measure, 1.0)

    @pytest.mark.parametrize("unit", [1e-200, 1e-3, 1e300])
    def test_unit_of_the_costs_does_not_matter(self, unit):
        costs = planar_costs(30)
        scaled = optimal_base_measure(unit * costs, 2.0)
        assert scaled.gap <= 1e-6
        assert scaled.cost / unit == pytest.approx(optimal_base_measure(costs, 2.0).cost, rel=2e-6)

    @settings(max_examples=20, deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        epsilon=st.floats(0.001, 12.0),
        n_inputs=st.integers(1, 8),
        n_outputs=st.integers(1, 8),
    )
    def test_lower_bound_holds_for_every_base_measure(self, seed, epsilon, n_inputs, n_outputs):
        rng = np.random.default_rng(seed)
        costs = rng.integers(-3, 4, size=(n_inputs, n_outputs)) * rng.choice([1.0, 0.1])
        result = optimal_base_measure(costs, epsilon)
        assert result.lower_bound <= result.cost
        for _ in range(10):
            other = random_base_measure(rng, n_outputs, epsilon)
            assert result.lower_bound <= worst_case_cost(costs, other, epsilon) + 1e-12

    def test_bound_and_gap_are_valid_when_stopped_early(self):
        costs = planar_costs(40)
        with pytest.warns(TransportConvergenceWarning, match="stopped after 1 linear programs"):
            stopped = optimal_base_measure(costs, 3.0, max_iter=1)
        best = optimal_base_measure(costs, 3.0)
        assert stopped.n_iter == 1
        assert stopped.lower_bound <= best.cost <= stopped.cost
        assert stopped.gap == (stopped.cost - stopped.lower_bound) / stopped.cost > 1e-6
        assert_is_feasible(stopped.base_measure, 3.0)

    def test_weights_from_a_careless_solver_cannot_break_the_bound(self, monkeypatch):
        costs, rng = planar_costs(20), np.random.default_rng(6)
        best = optimal_base_measure(costs, 2.0).cost

        def random_master(thresholds, slopes, max_mass, unit):
            return rng.exponential(size=slopes.shape[1]), rng.dirichlet(np.ones(len(thresholds)))

        monkeypatch.setattr("skdpot.transport.base_measure._solve_master", random_master)
        with pytest.warns(TransportConvergenceWarning):
            result = optimal_base_measure(costs, 2.0, max_iter=20)
        assert result.lower_bound <= best <= result.cost
        assert_is_feasible(result.base_measure, 2.0)

    def test_callback_sees_every_round(self):
        seen = []
        result = optimal_base_measure(planar_costs(30), 2.0, callback=seen.append)
        assert [entry.n_iter for entry in seen] == list(range(1, result.n_iter + 1))
        assert all(after.gap <= before.gap for before, after in zip(seen, seen[1:], strict=False))
        assert seen[-1].gap == result.gap

    def test_failing_solver_leaves_the_best_uniform_measure(self, monkeypatch):
        class Failure:
            status = 4

        monkeypatch.setattr("skdpot.transport.base_measure.linprog", lambda *args, **k: Failure())
        costs = planar_costs(10)
        with pytest.warns(TransportConvergenceWarning):
            result = optimal_base_measure(costs, 1.0)
        assert result.cost == uniform_base_measure(costs, 1.0).cost


COSTS = np.array([[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize("function", [optimal_base_measure, uniform_base_measure])
@pytest.mark.parametrize(
    "cost_matrix, epsilon, message",
    [
        ([[0.0, np.nan]], 1.0, "cost_matrix contains NaN or infinity"),
        ([[0.0, np.inf]], 1.0, "cost_matrix contains NaN or infinity"),
        ([0.0, 1.0], 1.0, "shape"),
        (np.empty((0, 3)), 1.0, "non-empty"),
        ([[1e308, -1e308]], 1.0, "overflows float64; rescale it"),
        (COSTS, 0.0, "epsilon must be positive"),
        (COSTS, -1.0, "epsilon must be positive"),
        (COSTS, math.nan, "epsilon must be positive"),
        (COSTS, 1000.0, "overflows"),
    ],
)
def test_bad_geometry_is_refused(function, cost_matrix, epsilon, message):
    with pytest.raises(ValueError, match=message):
        function(cost_matrix, epsilon)


@pytest.mark.parametrize(
    "base_measure, message",
    [
        ([0.5, 0.5, 0.0], "one entry per output point"),
        ([-0.1, 0.6], "non-negative"),
        ([np.nan, 0.6], "finite"),
        ([0.6, 0.6], "more than 1"),
        ([0.1, 0.1], "less than 1"),
    ],
)
def test_bad_base_measure_is_refused(base_measure, message):
    with pytest.raises(ValueError, match=message):
        worst_case_cost(COSTS, base_measure, 1.0)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"tol": 0.0}, "tol must be positive"),
        ({"tol": math.inf}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
    ],
)
def test_bad_stopping_rule_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        optimal_base_measure(COSTS, 1.0, **parameters)
