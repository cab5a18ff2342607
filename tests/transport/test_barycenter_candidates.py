"""Barycenters on candidates: bounds against linear programs, rounding, edges, and bad input."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist

from skdpot.transport import TransportConvergenceWarning, exact_transport
from skdpot.transport.barycenter import BarycenterResult, PointGroup, candidate_barycenter
from tests.oracles.barycenter import best_choice, capped_barycenter_value, objective_of

MEANS = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
COVARIANCE = [[0.5, -0.2], [-0.2, 0.5]]
PAPERS_WEIGHTS = (0.7, 0.1, 0.05, 0.05, 0.1)
METHODS = ("auto", "bundle", "dual", "exact")


def barycenter(costs, group_weights, n_support, **options):
    """Choose candidates; where these have no coordinates, costs to a few points will do."""
    if "candidates" not in options:
        options["candidates"] = np.asarray(costs[0])[:4].T if len(costs) else [[0.0]]
    return candidate_barycenter(costs, group_weights, n_support, **options)


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
    assert isinstance(result, BarycenterResult)
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
    barycenter([cost[:5, :9] for cost in costs], PAPERS_WEIGHTS, 3, method="bundle")
    start = time.process_time()
    result = barycenter(costs, PAPERS_WEIGHTS, 250, candidates=candidates)
    assert time.process_time() - start < 5
    assert result.converged and result.n_iter <= 100
    assert result.relaxed_objective - result.lower_bound <= 1e-3 * result.relaxed_objective
    assert result.objective <= 1.01 * result.lower_bound
    assert_consistent(result, costs, PAPERS_WEIGHTS, 250)


@pytest.mark.parametrize("weights", [PAPERS_WEIGHTS, (0.2,) * 5])
def test_cutting_planes_reach_the_value_of_the_linear_program(weights):
    # At n=500 and K=1000 HiGHS would need minutes.
    costs, _ = papers_problem(25, 50, seed=1)
    value = capped_barycenter_value(costs, weights, 12)
    result = barycenter(costs, weights, 12, method="bundle", tol=1e-7)
    assert result.converged
    assert result.relaxed_objective == pytest.approx(value, rel=2e-7)
    assert result.lower_bound == pytest.approx(value, rel=2e-7)
    assert_brackets(result, value, costs)


@pytest.mark.parametrize("method", METHODS)
def test_every_solver_brackets_the_linear_program(method):
    costs, _ = papers_problem(20, 40, seed=2)
    value = capped_barycenter_value(costs, PAPERS_WEIGHTS, 10)
    # The subgradient steps get near the optimum, but only so far.
    tol = 5e-3 if method == "dual" else 1e-3
    result = barycenter(costs, PAPERS_WEIGHTS, 10, method=method, tol=tol)
    assert result.converged
    assert_brackets(result, value, costs)
    assert_consistent(result, costs, PAPERS_WEIGHTS, 10)


def test_the_cap_is_part_of_the_problem():
    """Without it, the barycenter with fixed support is cheaper than any choice can be."""
    costs, _ = papers_problem(30, 60)
    fixed = capped_barycenter_value(costs, PAPERS_WEIGHTS, 1)
    result = barycenter(costs, PAPERS_WEIGHTS, 40)
    assert fixed < 0.97 * result.lower_bound


# ------------------------------------------------------------------------- other problems


@pytest.mark.parametrize(
    "n_groups, n, n_candidates, n_support, n_features, order",
    [
        (1, 20, 30, 10, 2, 2),
        (2, 15, 20, 6, 1, 1),
        (8, 6, 15, 4, 5, 1),
        (3, 10, 12, 1, 2, 2),
        (2, 5, 1, 1, 2, 2),
    ],
)
@pytest.mark.parametrize("method", ["bundle", "exact"])
def test_problems_of_other_shapes(method, n_groups, n, n_candidates, n_support, n_features, order):
    costs, _ = random_problem(n_groups, n, n_candidates, n_features, order, seed=n_groups)
    weights = np.random.default_rng(n).dirichlet(np.ones(n_groups))
    value = capped_barycenter_value(costs, weights, n_support)
    result = barycenter(costs, weights, n_support, method=method)
    assert result.converged
    assert_brackets(result, value, costs)
    assert_consistent(result, costs, weights, n_support)


@pytest.mark.parametrize("method", METHODS)
def test_unequal_and_absent_masses_and_weights(method):
    costs, _ = random_problem(3, 10, 20, seed=3)
    rng = np.random.default_rng(4)
    masses = [rng.dirichlet(np.ones(10)) for _ in costs]
    masses[0][:4] = 0.0
    masses[0] /= masses[0].sum()
    weights = np.array([0.6, 0.0, 0.4])
    value = capped_barycenter_value(costs, weights, 7, masses)
    result = barycenter(costs, weights, 7, masses=masses, method=method, tol=0.02)
    assert result.converged
    assert_brackets(result, value, costs)
    assert_consistent(result, costs, weights, 7, masses)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_choice_is_recognised(method):
    costs, _ = random_problem(2, 10, 12)
    result = barycenter(costs, [0.5, 0.5], 12, method=method)
    np.testing.assert_array_equal(result.chosen, np.arange(12))
    assert result.n_iter == 1 and result.converged
    assert result.objective == pytest.approx(result.lower_bound, rel=1e-9)


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
def test_costs_of_every_kind(transform):
    costs, _ = random_problem(2, 12, 18, seed=8)
    costs = [transform(cost) for cost in costs]
    result = barycenter(costs, [0.4, 0.6], 7, method="bundle")
    assert result.converged
    assert_consistent(result, costs, [0.4, 0.6], 7)


@settings(max_examples=15, deadline=None, derandomize=True)
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
    result = barycenter(costs, weights, n_support, method="bundle", tol=1e-6)
    assert result.converged
    assert_brackets(result, value, [*costs, np.array([[0.0, 3.0]])])
    assert result.objective >= best_choice(costs, weights, n_support) - 1e-9


# ------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("n_features", [1, pytest.param(5, marks=pytest.mark.experiment)])
def test_choices_are_near_the_relaxed_optimum(n_features):
    costs, candidates = random_problem(3, 60, 120, n_features, seed=2)
    result = barycenter(costs, [0.4, 0.3, 0.3], 30, candidates=candidates, tol=5e-3)
    assert result.converged
    assert result.objective <= 1.08 * result.lower_bound


@pytest.mark.experiment
def test_relocation_does_not_need_an_assignment(monkeypatch):
    costs, candidates = random_problem(2, 60, 120, seed=5)
    with_assignment = barycenter(costs, [0.5, 0.5], 24, candidates=candidates)
    monkeypatch.setattr("skdpot.transport.barycenter._candidates._LARGEST_ASSIGNMENT", 0)
    greedy = barycenter(costs, [0.5, 0.5], 24, candidates=candidates)
    assert greedy.objective <= 1.02 * with_assignment.objective


# ------------------------------------------------------------------------- solvers


def test_the_dual_message_is_the_papers():
    """T of equation (15), and the dual value (13) at the best theta_0."""
    rng = np.random.default_rng(0)
    candidates, weights = rng.normal(size=(20, 2)), np.array([0.3, 0.7])
    beginning = {"n_support": np.array([6]), "n_groups": np.array([2])}
    usefulness, message = 0.0, 0.0
    for place, weight in enumerate(weights):
        points, phi = rng.normal(size=(12, 2)), rng.normal(size=12)
        group = PointGroup(points)
        told = {**beginning, "weights": weights, "candidates": candidates}
        group.answer("begin", told, place)
        group.restore({**group.put_away(), "potential": phi})
        usefulness = usefulness + group.answer("dual", {}, place)
        theta, w = weight / 6 * phi, weight / 6
        cost = cdist(points, candidates, "sqeuclidean")
        message = message + (theta[:, None] - w * cost).max(axis=0) - theta.mean()
    np.testing.assert_allclose(usefulness, message, rtol=1e-12)
    dual_values = [-np.maximum(message - theta, 0).sum() - 6 * theta for theta in message]
    assert -np.sort(usefulness)[-6:].sum() == pytest.approx(max(dual_values), rel=1e-12)


def test_subgradient_steps_end_certified_on_the_papers_problem():
    costs, candidates = papers_problem(50, 100)
    options = {"candidates": candidates, "method": "dual", "tol": 0.02}
    result = barycenter(costs, PAPERS_WEIGHTS, 25, **options)
    assert result.converged and result.n_iter < 500
    assert result.objective <= 1.05 * result.lower_bound


def test_batches_of_candidates_are_enough_for_subgradient_steps():
    costs, _ = papers_problem(30, 60)
    rng = np.random.default_rng(0)
    batches = [rng.choice(60, 30, replace=False) for _ in range(600)]
    result = barycenter(costs, PAPERS_WEIGHTS, 15, method="dual", tol=0.1, batches=iter(batches))
    assert result.converged
    with pytest.warns(TransportConvergenceWarning, match="3 rounds"):
        few = barycenter(
            costs, PAPERS_WEIGHTS, 15, method="dual", batches=batches[:2], primal_recovery=2
        )
    assert_consistent(few, costs, PAPERS_WEIGHTS, 15)


def test_groups_beyond_some_number_share_models(monkeypatch):
    costs, _ = random_problem(6, 8, 15, seed=6)
    weights = np.full(6, 1 / 6)
    value = capped_barycenter_value(costs, weights, 5)
    monkeypatch.setattr("skdpot.transport.barycenter._candidates._MOST_PARTS", 2)
    result = barycenter(costs, weights, 5, method="bundle", tol=1e-5)
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
            result = barycenter(costs, [0.5, 0.5], 10, method=method, tol=1e-9)
        assert_consistent(result, costs, [0.5, 0.5], 10)


def test_the_callback_sees_gaps_close():
    costs, _ = papers_problem(20, 40)
    seen = []
    result = barycenter(costs, PAPERS_WEIGHTS, 10, tol=1e-6, callback=lambda *s: seen.append(s))
    rounds, lower, upper = map(np.array, zip(*seen, strict=True))
    assert (np.diff(rounds) > 0).all() and rounds[-1] == result.n_iter
    assert (np.diff(lower) >= 0).all() and (np.diff(upper) <= 0).all()
    assert upper[-1] == result.relaxed_objective


@pytest.mark.parametrize("method", ["bundle", "dual"])
@pytest.mark.parametrize("max_iter", [1, 10])
def test_rounds_are_limited_and_what_is_missing_is_said(method, max_iter):
    costs, _ = papers_problem(30, 60)
    with pytest.warns(TransportConvergenceWarning, match=r"gap of .* above tol=1e-09"):
        result = barycenter(costs, PAPERS_WEIGHTS, 15, method=method, tol=1e-9, max_iter=max_iter)
    assert not result.converged and result.n_iter <= max(max_iter, 2)
    assert_consistent(result, costs, PAPERS_WEIGHTS, 15)


# ------------------------------------------------------------------------- bad input


COSTS = [np.arange(12.0).reshape(3, 4), np.ones((2, 4))]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"costs": []}, "one matrix per group"),
        ({"costs": [COSTS[0], np.full((2, 4), np.nan)]}, r"costs\[1\] must be a non-empty matrix"),
        ({"costs": [np.array([[1e308, -1e308, 0, 0]]), COSTS[1]]}, "more than a double"),
        ({"costs": [COSTS[0], np.ones((2, 3))]}, "same candidates"),
        ({"group_weights": [0.5, 0.6]}, "group_weights must hold"),
        ({"group_weights": [1.0]}, "group_weights must have shape"),
        ({"n_support": 0}, "n_support must be between 1"),
        ({"n_support": 5}, "n_support must be between 1 and the number of candidates, 4"),
        ({"masses": [[1, 0, 0]]}, "masses are of 1 groups"),
        ({"masses": [[1, 0, 0], [0.5, 0.6]]}, r"masses\[1\] must hold"),
        ({"masses": [[1, 0], [0.5, 0.5]]}, r"masses\[0\] must have shape \(3,\)"),
        ({"method": "simplex"}, "method must be one of"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"tol": np.nan}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"candidates": np.ones((3, 2))}, "candidates must have shape"),
        ({"candidates": np.ones(4)}, "candidates must be a non-empty matrix"),
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
        barycenter(**options)


def test_sizes_that_the_linear_program_cannot_do_are_refused():
    costs = [np.zeros((500, 500))]
    with pytest.raises(ValueError, match="at most 200000 pairs"):
        barycenter(costs, [1.0], 10, method="exact")
