"""Barycenters on candidates: bounds against linear programs, rounding, edges, and bad input."""

import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist

from skdpot.transport import TransportConvergenceWarning, exact_transport
from skdpot.transport.barycenter import CandidateBarycenter, candidate_barycenter
from skdpot.transport.barycenter._candidates import (
    coordinates_from_costs,
    space_filling_order,
    systematic_choice,
)
from skdpot.transport.barycenter._relaxation import Group, into_capped_simplex, selected
from tests.oracles.barycenter import best_choice, capped_barycenter_value, objective_of

MEANS = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
COVARIANCE = [[0.5, -0.2], [-0.2, 0.5]]
PAPERS_WEIGHTS = (0.7, 0.1, 0.05, 0.05, 0.1)
METHODS = ("auto", "bundle", "dual", "exact")


def papers_problem(n, n_candidates, seed=0):
    """Return squared distances from five Gaussians of the plane to candidates, and those."""
    rng = np.random.default_rng(seed)
    groups = [rng.multivariate_normal(mean, COVARIANCE, n) for mean in MEANS]
    candidates = rng.normal(size=(n_candidates, 2)) * np.sqrt(5)
    return [cdist(points, candidates, "sqeuclidean") for points in groups], candidates


def random_problem(n_groups, n, n_candidates, n_features=2, order=2, seed=0):
    rng = np.random.default_rng(seed)
    candidates = rng.normal(size=(n_candidates, n_features)) * 2
    groups = [
        rng.normal(size=n_features) * 2 + rng.normal(size=(n, n_features)) for _ in range(n_groups)
    ]
    return [cdist(points, candidates) ** order for points in groups], candidates


def assert_consistent(result, costs, weights, n_support, masses=None):
    """Check everything that a result says about itself by means of other solvers."""
    assert isinstance(result, CandidateBarycenter)
    n_candidates = np.shape(costs[0])[1]
    scale = max(np.ptp(cost) for cost in costs) + 1e-3 * max(np.abs(cost).max() for cost in costs)
    scale = scale or 1e-9
    if masses is None:
        masses = [np.full(len(cost), 1 / len(cost)) for cost in costs]
    assert len(np.unique(result.chosen)) == len(result.chosen) == n_support
    assert 0 <= result.chosen.min() and result.chosen.max() < n_candidates
    expected = objective_of(result.chosen, costs, weights, masses)
    assert result.objective == pytest.approx(expected, abs=1e-8 * scale)
    shares = result.shares
    assert shares.shape == (n_candidates,)
    assert shares.min() >= 0 and shares.max() <= (1 + 1e-12) / n_support
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    value = sum(
        weight * exact_transport(cost, mass, shares).cost
        for weight, cost, mass in zip(weights, costs, masses, strict=True)
    )
    assert result.relaxed_objective == pytest.approx(value, abs=1e-8 * scale)
    assert result.lower_bound <= min(result.relaxed_objective, result.objective + 1e-9 * scale)
    prices = 0.0
    level = 0.0
    for weight, cost, mass, potential in zip(
        weights, costs, masses, result.potentials, strict=True
    ):
        level += weight * (mass @ potential)
        prices = prices + weight * (cost - potential[:, None]).min(axis=0)
    proven = level + np.sort(prices)[:n_support].mean()
    assert result.lower_bound <= proven + 1e-15 * scale + 1e-300
    assert result.lower_bound == pytest.approx(proven, abs=1e-9 * scale)
    for cost, mass, plan in zip(costs, masses, result.plans, strict=True):
        assert isinstance(plan, sparse.csr_array)
        np.testing.assert_allclose(plan.sum(axis=1), mass, atol=1e-12)
        np.testing.assert_allclose(plan.sum(axis=0), 1 / n_support, atol=1e-12)
        optimal = exact_transport(cost[:, result.chosen], mass, np.full(n_support, 1 / n_support))
        spent = (plan * cost[:, result.chosen]).sum()
        assert spent == pytest.approx(optimal.cost, abs=1e-8 * scale)


def assert_brackets(result, value, costs):
    """Check bounds against the value that an oracle found, up to what that one may miss."""
    slack = 1e-9 * max(np.ptp(cost) for cost in costs)
    assert result.lower_bound <= value + slack
    assert result.relaxed_objective >= value - slack


# ------------------------------------------------------------------------- the paper's problem


@pytest.mark.experiment
def test_the_papers_problem_is_solved_in_few_rounds():
    costs, candidates = papers_problem(500, 1000)
    candidate_barycenter([cost[:5, :9] for cost in costs], PAPERS_WEIGHTS, 3, method="bundle")
    start = time.process_time()
    result = candidate_barycenter(costs, PAPERS_WEIGHTS, 250, candidates=candidates)
    assert time.process_time() - start < 5
    assert result.converged and result.n_iter <= 100
    assert result.relaxed_objective - result.lower_bound <= 1e-3 * result.relaxed_objective
    assert result.objective <= 1.01 * result.lower_bound
    assert_consistent(result, costs, PAPERS_WEIGHTS, 250)


@pytest.mark.parametrize(
    "weights", [PAPERS_WEIGHTS, (0.2,) * 5, (0.166, 0.385, 0.063, 0.321, 0.065)]
)
def test_cutting_planes_reach_the_value_of_the_linear_program(weights):
    # At n=500 and K=1000 HiGHS would need minutes.
    costs, _ = papers_problem(50, 120, seed=1)
    value = capped_barycenter_value(costs, weights, 30)
    result = candidate_barycenter(costs, weights, 30, method="bundle", tol=1e-7)
    assert result.converged
    assert result.relaxed_objective == pytest.approx(value, rel=2e-7)
    assert result.lower_bound == pytest.approx(value, rel=2e-7)
    assert_brackets(result, value, costs)


@pytest.mark.parametrize("method", METHODS)
def test_every_solver_brackets_the_linear_program(method):
    costs, _ = papers_problem(30, 60, seed=2)
    value = capped_barycenter_value(costs, PAPERS_WEIGHTS, 15)
    # The subgradient steps get near the optimum, but only so far.
    tol = 5e-3 if method == "dual" else 1e-3
    result = candidate_barycenter(costs, PAPERS_WEIGHTS, 15, method=method, tol=tol)
    assert result.converged
    assert_brackets(result, value, costs)
    assert_consistent(result, costs, PAPERS_WEIGHTS, 15)


def test_the_cap_is_part_of_the_problem():
    """Without it, the barycenter with fixed support is cheaper than any choice can be."""
    costs, _ = papers_problem(30, 60)
    fixed = capped_barycenter_value(costs, PAPERS_WEIGHTS, 1)
    result = candidate_barycenter(costs, PAPERS_WEIGHTS, 40)
    assert fixed < 0.97 * result.lower_bound


# ------------------------------------------------------------------------- other problems


@pytest.mark.parametrize(
    "n_groups, n, n_candidates, n_support, n_features, order",
    [
        (1, 20, 30, 10, 2, 2),
        (2, 25, 40, 12, 1, 2),
        (2, 25, 40, 12, 1, 1),
        (10, 12, 30, 8, 2, 2),
        (3, 20, 40, 10, 5, 1),
        (3, 20, 25, 25, 2, 2),
        (3, 20, 25, 1, 2, 2),
        (2, 1, 10, 4, 2, 2),
        (2, 5, 1, 1, 2, 2),
    ],
)
@pytest.mark.parametrize("method", ["bundle", "exact"])
def test_problems_of_other_shapes(method, n_groups, n, n_candidates, n_support, n_features, order):
    costs, _ = random_problem(n_groups, n, n_candidates, n_features, order, seed=n_groups)
    weights = np.random.default_rng(n).dirichlet(np.ones(n_groups))
    value = capped_barycenter_value(costs, weights, n_support)
    result = candidate_barycenter(costs, weights, n_support, method=method)
    assert result.converged
    assert_brackets(result, value, costs)
    assert_consistent(result, costs, weights, n_support)


@pytest.mark.parametrize("method", METHODS)
def test_unequal_and_absent_masses_and_weights(method):
    costs, _ = random_problem(3, 15, 30, seed=3)
    rng = np.random.default_rng(4)
    masses = [rng.dirichlet(np.ones(15)) for _ in costs]
    masses[0][:7] = 0.0
    masses[0] /= masses[0].sum()
    weights = np.array([0.6, 0.0, 0.4])
    value = capped_barycenter_value(costs, weights, 10, masses)
    result = candidate_barycenter(costs, weights, 10, masses=masses, method=method, tol=0.02)
    assert result.converged
    assert_brackets(result, value, costs)
    assert_consistent(result, costs, weights, 10, masses)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_choice_is_recognised(method):
    costs, _ = random_problem(2, 10, 12)
    result = candidate_barycenter(costs, [0.5, 0.5], 12, method=method)
    np.testing.assert_array_equal(result.chosen, np.arange(12))
    assert result.n_iter == 1 and result.converged
    assert result.objective == pytest.approx(result.lower_bound, rel=1e-9)


def test_a_single_point_is_the_cheapest_candidate():
    costs, _ = random_problem(3, 15, 30)
    weights = [0.5, 0.25, 0.25]
    result = candidate_barycenter(costs, weights, 1)
    means = sum(weight * cost.mean(axis=0) for weight, cost in zip(weights, costs, strict=True))
    assert result.chosen.tolist() == [means.argmin()]
    assert result.objective == pytest.approx(means.min(), rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", [0.0, 3.0, -7.0])
def test_constant_costs(method, level):
    costs = [np.full((6, 9), level), np.full((4, 9), level)]
    result = candidate_barycenter(costs, [0.3, 0.7], 4, method=method)
    assert result.converged
    assert result.objective == pytest.approx(level, abs=1e-12)
    assert_consistent(result, costs, [0.3, 0.7], 4)


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(lambda cost: cost * 1e200, id="huge"),
        pytest.param(lambda cost: cost * 1e-200, id="tiny"),
        pytest.param(lambda cost: cost - 100.0, id="negative"),
        pytest.param(lambda cost: cost + 1e6, id="shifted"),
        pytest.param(lambda cost: cost**6, id="spread"),
        pytest.param(np.round, id="tied"),
    ],
)
@pytest.mark.parametrize("method", ["auto", "bundle"])
def test_costs_of_every_kind(method, transform):
    costs, _ = random_problem(2, 20, 30, seed=8)
    costs = [transform(cost) for cost in costs]
    result = candidate_barycenter(costs, [0.4, 0.6], 12, method=method)
    assert result.converged
    assert_consistent(result, costs, [0.4, 0.6], 12)


def test_points_that_coincide():
    costs = [np.tile([[0.0, 1.0, 4.0]], (7, 1)), np.tile([[4.0, 1.0, 0.0]], (5, 1))]
    result = candidate_barycenter(costs, [0.5, 0.5], 1)
    assert result.chosen.tolist() == [1] and result.objective == pytest.approx(1.0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_degenerate_problems_are_bracketed(data):
    n_groups, n_candidates = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    n_support = data.draw(st.integers(1, n_candidates))
    entries = st.lists(st.integers(0, 3), min_size=n_candidates, max_size=n_candidates)
    costs = [
        np.array([data.draw(entries) for _ in range(data.draw(st.integers(1, 4)))], dtype=float)
        for _ in range(n_groups)
    ]
    counts = data.draw(st.lists(st.integers(0, 3), min_size=n_groups, max_size=n_groups))
    counts[0] = counts[0] or 1
    weights = np.array(counts) / sum(counts)
    value = capped_barycenter_value(costs, weights, n_support)
    result = candidate_barycenter(costs, weights, n_support, method="bundle", tol=1e-6)
    assert result.converged
    assert_brackets(result, value, [*costs, np.array([[0.0, 3.0]])])
    assert result.objective >= best_choice(costs, weights, n_support) - 1e-9


# ------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("n_features", [1, 2, 5])
@pytest.mark.parametrize("with_coordinates", [True, False])
def test_choices_are_near_the_relaxed_optimum(n_features, with_coordinates):
    costs, candidates = random_problem(3, 150, 300, n_features, seed=2)
    weights = [0.4, 0.3, 0.3]
    result = candidate_barycenter(
        costs, weights, 75, candidates=candidates if with_coordinates else None, tol=5e-3
    )
    assert result.converged
    assert result.objective <= 1.06 * result.lower_bound


@pytest.mark.experiment
def test_the_largest_shares_are_a_bad_choice_on_a_line():
    costs, _ = random_problem(2, 150, 300, 1, seed=6)
    result = candidate_barycenter(costs, [0.35, 0.65], 40)
    largest = np.sort(np.argsort(-result.shares)[:40])
    assert objective_of(largest, costs, [0.35, 0.65]) > 1.5 * result.lower_bound
    assert result.objective <= 1.06 * result.lower_bound


def test_a_systematic_choice_gives_each_stretch_its_share():
    rng = np.random.default_rng(0)
    shares = into_capped_simplex(rng.dirichlet(np.ones(200)), 40)
    points = rng.normal(size=(200, 1))
    order = space_filling_order(points, shares)
    assert (np.diff(points[order, 0]) >= 0).all()
    chosen = systematic_choice(shares, order, 40)
    taken = np.isin(order, chosen)
    assert len(chosen) == 40 == taken.sum()
    assert np.abs(np.cumsum(taken) - 40 * np.cumsum(shares[order])).max() <= 0.5 + 1e-9


def test_a_systematic_choice_of_whole_points_is_those():
    shares = np.zeros(50)
    shares[7::5] = 1 / 9
    chosen = systematic_choice(shares, np.random.default_rng(0).permutation(50), 9)
    np.testing.assert_array_equal(chosen, np.arange(7, 50, 5))


def test_neighbours_in_the_order_are_near_each_other():
    rng = np.random.default_rng(0)
    points = rng.random((1000, 2))
    for coordinates in (
        points,
        coordinates_from_costs([cdist(rng.random((50, 2)), points, "sqeuclidean")]),
    ):
        order = space_filling_order(coordinates, np.full(1000, 1e-3))
        np.testing.assert_array_equal(np.sort(order), np.arange(1000))
        steps = np.linalg.norm(np.diff(points[order], axis=0), axis=1)
        assert steps.mean() < 0.1


def test_relocation_does_not_need_an_assignment(monkeypatch):
    costs, candidates = random_problem(2, 100, 200, seed=5)
    with_assignment = candidate_barycenter(costs, [0.5, 0.5], 40)
    monkeypatch.setattr("skdpot.transport.barycenter._candidates._LARGEST_ASSIGNMENT", 0)
    greedy = candidate_barycenter(costs, [0.5, 0.5], 40)
    assert greedy.objective <= 1.02 * with_assignment.objective
    start = systematic_choice(greedy.shares, space_filling_order(candidates, greedy.shares), 40)
    assert greedy.objective < objective_of(start, costs, [0.5, 0.5])


# ------------------------------------------------------------------------- solvers


def test_the_dual_message_is_the_papers():
    """T of equation (15), and the dual value (13) at the best theta_0."""
    costs, _ = random_problem(2, 12, 20)
    weights, masses = [0.3, 0.7], np.full(12, 1 / 12)
    rng = np.random.default_rng(0)
    potentials = [rng.normal(size=12) for _ in costs]
    usefulness = 0.0
    for weight, cost, phi in zip(weights, costs, potentials, strict=True):
        group = Group(cost, masses, weight, 2)
        group.answer("begin", {"n_support": np.array([6])}, 0)
        group.state["potential"] = phi
        usefulness = usefulness + group.answer("dual", {}, 0)
    message = 0.0
    for weight, cost, phi in zip(weights, costs, potentials, strict=True):
        theta, w = weight / 6 * phi, weight / 6
        message = message + (theta[:, None] - w * cost).max(axis=0) - theta.mean()
    thresholds = np.sort(message)
    dual_values = [-np.maximum(message - theta_0, 0).sum() - 6 * theta_0 for theta_0 in thresholds]
    np.testing.assert_allclose(usefulness, message, rtol=1e-12)
    assert -usefulness[selected(usefulness, 6)].sum() == pytest.approx(max(dual_values), rel=1e-12)
    np.testing.assert_array_equal(selected(message, 6), np.sort(np.argsort(message)[-6:]))


def test_subgradient_steps_end_certified_on_the_papers_problem():
    costs, _ = papers_problem(100, 200)
    result = candidate_barycenter(costs, PAPERS_WEIGHTS, 50, method="dual", tol=0.01)
    assert result.converged and result.n_iter < 500
    assert result.objective <= 1.03 * result.lower_bound


def test_batches_of_candidates_are_enough_for_subgradient_steps():
    costs, _ = papers_problem(80, 160)
    rng = np.random.default_rng(0)
    batches = [rng.choice(160, 80, replace=False) for _ in range(600)]
    result = candidate_barycenter(
        costs, PAPERS_WEIGHTS, 40, method="dual", tol=0.05, batches=iter(batches)
    )
    assert result.converged
    with pytest.warns(TransportConvergenceWarning, match="3 rounds"):
        few = candidate_barycenter(
            costs, PAPERS_WEIGHTS, 40, method="dual", batches=batches[:2], primal_recovery=2
        )
    assert_consistent(few, costs, PAPERS_WEIGHTS, 40)


def test_groups_beyond_some_number_share_models(monkeypatch):
    costs, _ = random_problem(6, 12, 30, seed=6)
    weights = np.full(6, 1 / 6)
    value = capped_barycenter_value(costs, weights, 10)
    monkeypatch.setattr("skdpot.transport.barycenter._candidates._MOST_PARTS", 2)
    result = candidate_barycenter(costs, weights, 10, method="bundle", tol=1e-5)
    assert result.converged
    assert_brackets(result, value, costs)


def test_nothing_is_believed_of_a_linear_program_that_fails(monkeypatch):
    costs, _ = random_problem(2, 20, 30)

    class Failure:
        status = 4

    for module in ("_relaxation", "_candidates"):
        monkeypatch.setattr(
            f"skdpot.transport.barycenter.{module}.linprog", lambda *a, **k: Failure
        )
    for method in ("bundle", "exact"):
        with pytest.warns(TransportConvergenceWarning):
            result = candidate_barycenter(costs, [0.5, 0.5], 10, method=method, tol=1e-9)
        assert_consistent(result, costs, [0.5, 0.5], 10)


def test_the_callback_sees_gaps_close():
    costs, _ = papers_problem(40, 80)
    seen = []
    result = candidate_barycenter(
        costs, PAPERS_WEIGHTS, 20, tol=1e-6, callback=lambda *state: seen.append(state)
    )
    rounds, lower, upper = map(np.array, zip(*seen, strict=True))
    assert (np.diff(rounds) > 0).all() and rounds[-1] == result.n_iter
    assert (np.diff(lower) >= 0).all() and (np.diff(upper) <= 0).all()
    assert upper[-1] == result.relaxed_objective


@pytest.mark.parametrize("method", ["auto", "bundle", "dual"])
@pytest.mark.parametrize("max_iter", [1, 3, 10])
def test_rounds_are_limited_and_what_is_missing_is_said(method, max_iter):
    costs, _ = papers_problem(30, 60)
    with pytest.warns(TransportConvergenceWarning, match=r"gap of .* above tol=1e-09"):
        result = candidate_barycenter(
            costs, PAPERS_WEIGHTS, 15, method=method, tol=1e-9, max_iter=max_iter
        )
    assert not result.converged and result.n_iter <= max(max_iter, 2)
    assert_consistent(result, costs, PAPERS_WEIGHTS, 15)


def test_results_do_not_depend_on_the_caller():
    costs, _ = papers_problem(30, 60)
    before = [cost.copy() for cost in costs]
    one = candidate_barycenter(costs, PAPERS_WEIGHTS, 15)
    other = candidate_barycenter(
        [cost.tolist() for cost in costs], list(PAPERS_WEIGHTS), np.int64(15)
    )
    np.testing.assert_array_equal(one.shares, other.shares)
    np.testing.assert_array_equal(one.chosen, other.chosen)
    for cost, copy in zip(costs, before, strict=True):
        np.testing.assert_array_equal(cost, copy)


# ------------------------------------------------------------------------- bad input


COSTS = [np.arange(12.0).reshape(3, 4), np.ones((2, 4))]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"costs": []}, "one matrix per group"),
        ({"costs": [COSTS[0], np.full((2, 4), np.nan)]}, r"costs\[1\] must be a non-empty matrix"),
        ({"costs": [COSTS[0], np.full((2, 4), np.inf)]}, r"costs\[1\] must be a non-empty matrix"),
        ({"costs": [np.array([[1e308, -1e308, 0, 0]]), COSTS[1]]}, "more than a double"),
        ({"costs": [COSTS[0], np.ones((2, 3))]}, "same candidates"),
        ({"costs": [COSTS[0], np.ones(4)]}, r"costs\[1\] must be a non-empty"),
        ({"costs": [COSTS[0], np.ones((0, 4))]}, r"costs\[1\] must be a non-empty"),
        ({"group_weights": [0.5, 0.6]}, "group_weights must hold"),
        ({"group_weights": [1.5, -0.5]}, "group_weights must hold"),
        ({"group_weights": [1.0]}, "group_weights must have shape"),
        ({"n_support": 0}, "n_support must be between 1"),
        ({"n_support": 5}, "n_support must be between 1 and the number of candidates, 4"),
        ({"masses": [[1, 0, 0]]}, "masses are of 1 groups"),
        ({"masses": [[1, 0, 0], [0.5, 0.6]]}, r"masses\[1\] must hold"),
        ({"masses": [[2, -1, 0], [0.5, 0.5]]}, r"masses\[0\] must hold"),
        ({"masses": [[1, 0], [0.5, 0.5]]}, r"masses\[0\] must have shape \(3,\)"),
        ({"method": "simplex"}, "method must be one of"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"tol": np.nan}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"candidates": np.ones((3, 2))}, "candidates must have shape"),
        ({"candidates": np.ones(4)}, "candidates must be a non-empty matrix"),
        ({"candidates": np.full((4, 1), np.nan)}, "candidates must be a non-empty matrix"),
        ({"batches": [[0, 1]]}, "options of method='dual' only"),
        ({"primal_recovery": 3}, "options of method='dual' only"),
        ({"method": "dual", "primal_recovery": 0}, "primal_recovery must be at least 1"),
        ({"method": "dual", "batches": [[0, 4]]}, "indices from 0 to 4"),
        ({"method": "dual", "batches": [[0, 0]]}, "must be distinct"),
        ({"method": "dual", "batches": [[]]}, "non-empty array of indices"),
        ({"method": "dual", "batches": [[0.5]]}, "non-empty array of indices"),
    ],
)
def test_bad_input_is_refused(changes, message):
    options = {"costs": COSTS, "group_weights": [0.5, 0.5], "n_support": 2} | changes
    with pytest.raises(ValueError, match=message):
        candidate_barycenter(**options)


def test_sizes_that_the_linear_program_cannot_do_are_refused():
    costs = [np.zeros((500, 500))]
    with pytest.raises(ValueError, match="at most 200000 pairs"):
        candidate_barycenter(costs, [1.0], 10, method="exact")


def test_quiet_where_it_converges():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        candidate_barycenter(COSTS, [0.5, 0.5], 2)
