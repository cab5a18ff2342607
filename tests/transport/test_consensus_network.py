"""Networks, whether they have a plan, and the plan that is nearest."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpot.transport.consensus import check_feasible, make_network, repair
from tests.oracles.consensus import NETWORKS, draw_network, linear_optimum
from tests.quick import first_quick


def test_orders_of_edges_lead_into_each_other(rng):
    adjacency = rng.random((7, 5)) < 0.5
    for form in (adjacency, sparse.coo_array(adjacency), sparse.csc_matrix(adjacency)):
        network = make_network(form, (0, 1), (0, 1))
        targets, sources = network.targets, network.sources
        plan = rng.random(network.n_edges)
        dense = np.zeros(adjacency.shape)
        dense[targets.nodes, targets.neighbours] = plan
        assert (network.matrix(plan).toarray() == dense).all()
        of_sources = plan[sources.positions]
        assert (dense[sources.neighbours, sources.nodes] == of_sources).all()
        assert (of_sources[targets.positions] == plan).all()
        np.testing.assert_allclose(targets.sums(plan), dense.sum(1))
        np.testing.assert_allclose(sources.sums(of_sources), dense.sum(0))
        for side in (targets, sources):
            assert (np.diff(side.neighbours)[np.diff(side.nodes) == 0] > 0).all()


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([(0, 1), (2, 1)], "target 1 are (2, 1)"),
        ([(-1, 1), (0, 1)], "non-negative"),
        ([(0, np.inf), (0, 1)], "finite"),
        ([(np.nan, 1), (0, 1)], "finite"),
        ([(0, 1)] * 3, "shape (2,) or (2, 2)"),
        ([20, 30], "must be a tuple, or a pair for each"),
        (([0, 0], [20, 30]), "must be pairs, with nodes of (0, 0) left out"),
    ],
)
def test_wrong_bounds_are_refused(bounds, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make_network(np.ones((2, 2)), bounds, (0, 1))


@pytest.mark.parametrize("bounds", [(20, 30), [0, 30], [(0, 0), (0, 30)], [(20, 30), (0, 0)]])
def test_bounds_of_two_nodes_are_pairs(bounds):
    network = make_network(np.ones((2, 2)), bounds, (0, 1))
    assert network.targets.upper.max() == 30


def test_wrong_adjacency_is_refused():
    for adjacency in (np.ones(3), np.array([["a"]])):
        with pytest.raises(ValueError, match="adjacency"):
            make_network(adjacency, (0, 1), (0, 1))


@pytest.mark.parametrize("kind", NETWORKS)
def test_networks_with_a_plan_pass(kind, rng):
    for _ in range(2):
        check_feasible(draw_network(kind, rng))


# The first call compiles.
@pytest.mark.experiment
@settings(deadline=None)
@given(seed=st.integers(0, 2**32), density=st.sampled_from([0.2, 0.5, 1.0]))
def test_feasibility_is_that_of_the_linear_program(seed, density):
    """And the named nodes prove it: they must have more than all their neighbours may give."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 9, 2)
    # Two nodes, of which the first is closed, have bounds that may be meant otherwise.
    bounds = [np.sort(rng.integers(n == 2, 6, (n, 2)) / 3.0, axis=1) for n in shape]
    network = make_network(rng.random(shape) < density, *bounds)
    feasible = linear_optimum(network, np.zeros(network.n_edges)) is not None
    if feasible:
        check_feasible(network)
        return
    with pytest.raises(ValueError, match="no feasible plan") as raised:
        check_feasible(network)
    side, other = network.targets, network.sources
    if "plan: sources" in str(raised.value):
        side, other = other, side
    named, neighbours = (
        np.fromstring(numbers, int, sep=",")
        for numbers in re.findall(r"\[(.*?)\]", str(raised.value))
    )
    expected = np.unique(side.neighbours[np.isin(side.nodes, named)])
    np.testing.assert_array_equal(neighbours, expected)
    assert side.lower[named].sum() > other.upper[neighbours].sum() + 0.1


def test_totals_that_differ_by_rounding_are_feasible():
    network = make_network(np.eye(3) + 1 > 0, [(0.1, 0.1)] * 3, [(0.3, 0.3), (0, 0), (0, 0)])
    check_feasible(network)
    chain = make_network(sparse.eye_array(4) + sparse.eye_array(4, k=1), (0.1, 0.1), (0.1, 0.1))
    check_feasible(chain)


def test_long_chains_are_served_by_long_paths():
    """Greedy service fails on every node of this chain, and the flow must go all along it."""
    n = 300
    adjacency = sparse.eye_array(n) + sparse.eye_array(n, k=-1)
    feasible = make_network(adjacency, (1, 1), (0, 1))
    check_feasible(feasible)
    last = np.ones((n, 2))
    last[0] = 0, 0
    check_feasible(make_network(adjacency, last, (0, 1)))
    last[0] = 2, 2
    with pytest.raises(ValueError, match=re.escape("targets [0] must receive at least 2")):
        check_feasible(make_network(adjacency, last, (0, 1)))


@pytest.mark.parametrize("kind", NETWORKS)
def test_repair_is_the_nearest_plan(kind, rng):
    for scale in (0.1, 30.0):
        network = draw_network(kind, rng)
        amounts = rng.normal(0, scale, network.n_edges)
        plan = repair(network, amounts)
        assert plan.min() >= 0
        assert network.violation(plan) <= 1e-9
        # The projection, and no other plan, sees all plans in one half-space.
        farthest = linear_optimum(network, amounts - plan)
        assert farthest - (amounts - plan) @ plan <= 1e-7 * max(scale, 1) ** 2


@pytest.mark.experiment
def test_repair_leaves_plans_alone_and_knows_its_limits(rng):
    network = draw_network("lower bounds", rng)
    plan = repair(network, rng.random(network.n_edges))
    np.testing.assert_allclose(repair(network, plan), plan, atol=1e-11)
    for wrong in (plan[1:], np.full(network.n_edges, np.nan)):
        with pytest.raises(ValueError, match="amounts must be finite"):
            repair(network, wrong)
    hopeless = make_network([[1, 1]], (3, 4), (0, 1))
    with pytest.raises(ValueError, match=re.escape("targets [0] must receive at least 3")):
        repair(hopeless, [1.0, 1.0])


@pytest.mark.parametrize("kind", first_quick(NETWORKS, 3))
def test_plans_hold_bounds_of_any_size_to_rounding(kind, rng):
    for size in (1e-3, 1.0, 1e4):
        network = draw_network(kind, rng, size)
        amounts = rng.normal(0, rng.choice([0.1, 1.0, 30.0]) * size, network.n_edges)
        # To 1e-13 of the largest bound, of which some are above 1e4 here.
        largest = max(side.upper.max() for side in (network.targets, network.sources))
        assert network.violation(repair(network, amounts)) <= 1e-13 * max(1e4, largest)
