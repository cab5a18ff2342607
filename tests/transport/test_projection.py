"""Wasserstein projection against a linear program, POT and the published iteration."""

import pickle
from fractions import Fraction

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist

from skdpot.transport import Projector, normalise_rows, transport_costs, wasserstein_projection
from skdpot.transport import projection as kernels
from tests.oracles.projection import entropic_fixed_point, projection_lp

SHAPES = [(1, 7), (7, 1), (12, 30), (30, 25)]
BASES = ["inside", "largest", "smallest", "zeros"]


def make_problem(n_inputs, n_outputs, base_kind, weights_kind, seed):
    rng = np.random.default_rng(seed)
    epsilon = rng.choice([0.1, 1.0, 4.0])
    cost = cdist(rng.random((n_inputs, 2)), rng.random((n_outputs, 2))) ** rng.choice([1, 2])
    base = rng.dirichlet(np.full(n_outputs, 2.0))
    if base_kind == "zeros" and n_outputs > 1:
        base[rng.random(n_outputs) < 0.4] = 0.0
        base[rng.integers(n_outputs)] = 0.5
        base /= base.sum()
    scale = {"largest": 1.0, "smallest": np.exp(-epsilon)}
    base *= scale.get(base_kind, rng.uniform(np.exp(-epsilon), 1.0))
    weights = {
        "dense": rng.dirichlet(np.ones(n_inputs)),
        "sparse": rng.dirichlet(np.full(n_inputs, 0.05)) * (rng.random(n_inputs) < 0.5),
        "dirac": np.eye(n_inputs)[rng.integers(n_inputs)],
        "ties": rng.integers(0, 3, n_inputs).astype(float),
    }[weights_kind]
    if weights.sum() == 0:
        weights[rng.integers(n_inputs)] = 1.0
    return weights / weights.sum(), cost, base, epsilon


def assert_in_polytope(projections, base, epsilon):
    assert (projections >= base).all()
    assert (projections <= np.exp(epsilon) * base).all()
    sums = [abs(sum(map(float, row)) - 1) for row in projections]
    assert max(sums) <= 1e-12


def true_cost(weights, projection, cost):
    used = weights > 0
    return ot.emd2(weights[used], projection / projection.sum(), np.ascontiguousarray(cost[used]))


@pytest.mark.parametrize("weights_kind", ["dense", "sparse", "dirac", "ties"])
@pytest.mark.parametrize("base_kind", BASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_exact_projection_solves_the_linear_program(shape, base_kind, weights_kind):
    weights, cost, base, epsilon = make_problem(*shape, base_kind, weights_kind, 0)
    result = wasserstein_projection(weights, cost, base, epsilon, solver="exact")
    expected = projection_lp(weights, cost, base, epsilon)
    assert_in_polytope(result.projections, base, epsilon)
    assert result.costs[0] == pytest.approx(expected, abs=1e-8)
    assert true_cost(weights, result.projections[0], cost) <= expected + 1e-8
    assert result.lower_bounds[0] <= min(expected + 1e-9, result.costs[0])
    assert result.costs[0] - result.lower_bounds[0] <= 1e-10 * max(1.0, cost.max())


@pytest.mark.parametrize("weights_kind", ["dense", "sparse", "dirac", "ties"])
@pytest.mark.parametrize("base_kind", BASES)
def test_entropic_projection_keeps_its_certificate(base_kind, weights_kind):
    for seed, tol in enumerate([0.1, 1e-3]):
        problem = make_problem(25, 30, base_kind, weights_kind, seed)
        weights, cost, base, epsilon = problem
        result = wasserstein_projection(*problem, solver="entropic", tol=tol)
        expected = projection_lp(*problem)
        assert_in_polytope(result.projections, base, epsilon)
        assert true_cost(weights, result.projections[0], cost) <= expected * (1 + tol) + 1e-9
        assert expected - 1e-9 <= result.costs[0] <= expected * (1 + tol) + 1e-9
        assert result.lower_bounds[0] <= expected + 1e-9


@pytest.mark.experiment
def test_annealing_by_squaring_reaches_the_fixed_point_of_the_published_iteration():
    rng = np.random.default_rng(5)
    positions = rng.random((12, 2))
    cost = cdist(positions, positions)
    weights = rng.dirichlet(np.full(12, 0.5))
    epsilon, base = 1.5, np.full(12, 0.5 / 12)
    kernel, row_minima, reg = kernels.starting_kernel(cost)
    kernel, row_potential, state = kernels._start(
        kernel, row_minima, np.arange(12), weights, base, np.exp(epsilon) * base
    )
    potential = np.zeros(12)
    for level in range(4):
        for _ in range(200):
            kernels._run_sweeps(kernel, state, 10, np.float32(0.0))
        kernels._absorb(reg, weights, state, row_potential, potential)
        if level < 3:
            kernels._halve(kernel, state, level == 0)
            reg *= 0.5
    *_, v, q, _ = state
    expected = entropic_fixed_point(weights, cost, base, epsilon, reg)
    np.testing.assert_allclose(v * q, expected, atol=2e-5)


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(lambda cost: cost * 1e9, id="huge"),
        pytest.param(lambda cost: cost * 1e-9, id="tiny"),
        pytest.param(lambda cost: cost - 3.0, id="negative"),
        pytest.param(lambda cost: np.zeros_like(cost), id="zero"),
        pytest.param(lambda cost: np.ones_like(cost), id="constant"),
        pytest.param(lambda cost: np.round(cost * 3), id="ties"),
        pytest.param(lambda cost: cost**8, id="spread"),
    ],
)
@pytest.mark.parametrize("solver", ["exact", "entropic"])
def test_costs_of_every_kind(transform, solver):
    weights, cost, base, epsilon = make_problem(15, 20, "inside", "ties", 11)
    cost = transform(cost)
    result = wasserstein_projection(weights, cost, base, epsilon, solver=solver)
    scale = np.abs(cost).max() or 1.0
    expected = projection_lp(weights, cost / scale, base, epsilon) * scale
    allowed = 1e-3 * abs(expected) if solver == "entropic" else 0.0
    assert abs(result.costs[0] - expected) <= allowed + 1e-8 * scale
    assert_in_polytope(result.projections, base, epsilon)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_degenerate_integer_problems(data):
    n_inputs, n_outputs = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    counts = data.draw(st.lists(st.integers(0, 3), min_size=n_inputs, max_size=n_inputs))
    if not any(counts):
        counts[0] = 1
    entries = st.lists(st.integers(0, 4), min_size=n_outputs, max_size=n_outputs)
    cost = np.array([data.draw(entries) for _ in range(n_inputs)], dtype=float)
    shares = data.draw(st.lists(st.integers(1, 3), min_size=n_outputs, max_size=n_outputs))
    base = np.array(shares) / sum(shares) * data.draw(st.sampled_from([0.5, 0.75, 1.0]))
    weights = np.array(counts) / sum(counts)
    result = wasserstein_projection(weights, cost, base, np.log(2), solver="exact")
    expected = projection_lp(weights, cost, base, np.log(2))
    assert result.costs[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("epsilon", [1e-6, 10.0, 40.0, 700.0])
@pytest.mark.parametrize("solver", ["exact", "entropic"])
def test_epsilon_of_every_size(epsilon, solver):
    rng = np.random.default_rng(4)
    cost = cdist(rng.random((12, 2)), rng.random((10, 2)))
    weights = rng.dirichlet(np.ones(12))
    base = rng.dirichlet(np.ones(10)) * np.exp(-epsilon / 3)
    result = wasserstein_projection(weights, cost, base, epsilon, solver=solver)
    expected = projection_lp(weights, cost, base, epsilon)
    allowed = 1e-3 * expected if solver == "entropic" else 0.0
    assert expected - 1e-8 <= result.costs[0] <= expected + allowed + 1e-8
    assert true_cost(weights, result.projections[0], cost) <= expected + allowed + 1e-8


def test_certificates_are_tight_where_upper_bounds_are_far_above_all_masses():
    """A bound of exp(40) times a base measure would multiply the rounding of prices."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        cost = cdist(rng.normal(size=(50, 1)), rng.normal(size=(150, 1))) ** 6
        base = rng.dirichlet(np.ones(150)) * np.exp(-rng.uniform(2, 20))
        weights = rng.dirichlet(np.full(50, 0.3), 3)
        result = wasserstein_projection(weights, cost, base, 40.0, solver="exact")
        assert_in_polytope(result.projections, base, 40.0)
        assert (result.costs - result.lower_bounds).max() <= 1e-10 * cost.max()


def test_a_grid_with_its_ties_is_solved_to_optimality():
    grid = np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), -1).reshape(-1, 2)
    cost = cdist(grid, grid)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 2, (20, 144)).astype(float)
    base = np.full(144, 0.5 / 144)
    result = wasserstein_projection(weights, cost, base, 1.5, solver="exact")
    assert ((result.costs - result.lower_bounds) <= 1e-10).all()


def test_many_users_are_projected_one_by_one_and_sparse_equals_dense():
    rng = np.random.default_rng(1)
    cost = cdist(rng.random((20, 2)), rng.random((9, 2)))
    weights = rng.random((30, 20)) * (rng.random((30, 20)) < 0.3)
    weights[:, 0] += 0.01
    base = np.full(9, 0.05)
    together = wasserstein_projection(weights, cost, base, 2.0)
    sparse_input = wasserstein_projection(sparse.csr_matrix(weights * 7), cost, base, 2.0)
    np.testing.assert_allclose(sparse_input.projections, together.projections, atol=1e-12)
    for user in (0, 13, 29):
        alone = wasserstein_projection(weights[user], cost, base, 2.0)
        np.testing.assert_array_equal(alone.projections[0], together.projections[user])


def test_costs_are_not_below_those_of_what_rounding_moved():
    """Every cheap point is full, a little beyond its bound before that is mended."""
    cost = np.array([[0.0] * 40 + [1.0] * 40])
    result = wasserstein_projection([1.0], cost, np.full(80, 0.9 / 80), 0.5, solver="exact")
    exact = sum(map(Fraction, result.projections[0, 40:]))
    assert 0 <= Fraction(result.costs[0]) - exact < Fraction(1, 2**44)


def test_projectors_work_on_arrays_that_cannot_be_written_to():
    """As those are that another process maps from a file; kernels know but one kind of array."""
    projector = Projector([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0]], [0.2, 0.2, 0.2], 1.0)
    buffers = []
    data = pickle.dumps(projector, protocol=5, buffer_callback=buffers.append)
    mapped = pickle.loads(data, buffers=[buffer.raw().toreadonly() for buffer in buffers])
    assert mapped.cost.flags.writeable and mapped.start[0].flags.writeable
    rows = normalise_rows([[1.0, 2.0]])
    expected = projector(rows)
    rows.data.setflags(write=False)
    np.testing.assert_array_equal(mapped(rows), expected)


def test_transport_costs_equal_pot():
    rng = np.random.default_rng(2)
    cost = cdist(rng.random((18, 3)), rng.random((25, 3)))
    weights = rng.dirichlet(np.full(18, 0.3), 6)
    targets = rng.dirichlet(np.full(25, 0.3), 6)
    targets[0] = np.eye(25)[4]
    targets[1, :20] = 0
    expected = [ot.emd2(w, t / t.sum(), cost) for w, t in zip(weights, targets, strict=True)]
    np.testing.assert_allclose(transport_costs(weights, targets, cost), expected, atol=1e-10)


@pytest.mark.parametrize(
    "targets, cost_matrix", [((1, 3), (3, 2)), ((1, 2), (2, 3)), ((2, 3), (2, 3))]
)
def test_shapes_that_do_not_fit_are_named(targets, cost_matrix):
    with pytest.raises(ValueError, match="do not fit: expected"):
        transport_costs(np.ones((1, 2)), np.ones(targets), np.ones(cost_matrix))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weights": [[1.0, np.nan, 0.0]]}, "NaN or infinity"),
        ({"weights": [[1.0, -1.0, 1.0]]}, "non-negative"),
        ({"weights": [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]}, "row 1 is all zero"),
        ({"weights": [[1.0, 2.0]]}, "weights have 2 columns but cost_matrix has 3 rows"),
        ({"cost_matrix": [[0.0, np.inf], [1.0, 0.0], [0.0, 1.0]]}, "NaN or infinity"),
        ({"cost_matrix": [0.0, 1.0]}, "shape"),
        ({"base_measure": [0.5, 0.4, 0.1]}, "one entry per output point"),
        ({"base_measure": [0.9, 0.9]}, "Scale it down"),
        ({"base_measure": [0.1, 0.1]}, "Scale it up"),
        ({"base_measure": [-0.1, 0.9]}, "non-negative"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": np.nan}, "epsilon must be positive"),
        ({"epsilon": 800.0}, "too large"),
        ({"solver": "magic"}, "solver must be one of"),
        ({"tol": 0.0}, "tol must be positive"),
    ],
)
def test_bad_input_is_named(change, message):
    valid = {
        "weights": [[1.0, 1.0, 0.0]],
        "cost_matrix": [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]],
        "base_measure": [0.4, 0.4],
        "epsilon": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        wasserstein_projection(**(valid | change))
