"""The central solver against HiGHS on all edges, and its proof."""

import re

import numpy as np
import pytest

from skdpot.transport.consensus import (
    LinearUtility,
    LogUtility,
    make_network,
    optimal_plan,
    welfare_bound,
)
from tests.oracles.consensus import NETWORKS, draw_network, linear_optimum

UTILITIES = ("uniform", "signed", "two levels", "of sources alone", "products", "zero")


def draw_slopes(kind, network, rng):
    side, (n_targets, n_sources) = network.targets, network.shape
    if kind == "uniform":
        return rng.uniform(1, 5, network.n_edges)
    if kind == "signed":
        return rng.normal(0, 3, network.n_edges)
    if kind == "two levels":
        return rng.choice([2.0, 4.0], network.n_edges)
    if kind == "of sources alone":
        return rng.random(n_sources)[side.neighbours]
    if kind == "products":
        return rng.random(n_targets)[side.nodes] * rng.random(n_sources)[side.neighbours]
    return np.zeros(network.n_edges)


def check_optimal(network, best, utilities):
    """Check that a plan has the optimum's welfare, and that its prices prove it."""
    slopes = utilities[0].slopes + utilities[1].slopes
    optimum = linear_optimum(network, slopes)
    unit = max(1.0, network.targets.upper.max(), network.sources.upper.max())
    scale = max(1.0, np.abs(slopes).max(initial=0.0)) * unit
    assert network.violation(best.plan) <= 1e-13 * unit
    assert best.welfare == pytest.approx(optimum, rel=1e-9, abs=1e-9 * scale)
    assert best.welfare == pytest.approx(slopes @ best.plan)
    assert best.bound == welfare_bound(network, *utilities, best.prices)
    assert best.bound - best.welfare <= 1e-9 * max(abs(optimum), scale)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("size", [1.0, pytest.param(1e4, marks=pytest.mark.experiment)])
def test_plan_is_that_of_the_linear_program_on_all_edges(kind, size, rng):
    for utility in UTILITIES:
        network = draw_network(kind, rng, size)
        utilities = [LinearUtility(draw_slopes(utility, network, rng)) for _ in range(2)]
        check_optimal(network, optimal_plan(network, *utilities), utilities)


def test_the_price_of_a_shortage_rises_until_there_is_none():
    """All targets of a chain give up their best edge, so that the first has what it must."""
    n = 40
    adjacency = np.eye(n, n + 1) + np.eye(n, n + 1, k=1)
    network = make_network(adjacency, (1, 1), [(0, 0)] + [(0, 1)] * n)
    slopes = np.where(network.targets.nodes == network.targets.neighbours, 1.0, -1.0)
    likes = LinearUtility(slopes), LinearUtility(np.zeros_like(slopes))
    best = optimal_plan(network, *likes)
    assert best.n_iter > 1
    check_optimal(network, best, likes)


def test_masses_and_costs_of_all_sizes_are_exact(rng):
    """Bounds and utilities that differ by factors of a billion, and ties."""
    for scale in (1e-9, 1.0, 1e9):
        bounds = [np.c_[np.zeros(n), scale * 10.0 ** rng.integers(-6, 3, n)] for n in (20, 25)]
        network = make_network(np.ones((20, 25)), *bounds)
        slopes = scale * rng.integers(-2, 5, network.n_edges) * 1.0
        best = optimal_plan(network, LinearUtility(slopes), LinearUtility(0.0 * slopes))
        assert abs(best.gap) <= 1e-12
        assert network.violation(best.plan) <= 1e-13 * max(1.0, 100 * scale)


def draw_odd_network(rng):
    """Return a small network of anything, which may have no plan, and whole slopes of any sign."""
    shape = rng.integers(1, 7, 2)
    adjacency = rng.random(shape) < rng.choice([0.0, 0.3, 0.7, 1.0])
    bounds = []
    for n in shape:
        # Two nodes, of which the first is closed, have bounds that may be meant otherwise.
        upper = rng.integers(n == 2, 4, n)
        lower = rng.integers(0, 4, n) * (rng.random(n) < rng.choice([0.0, 0.2, 0.5]))
        bounds.append(np.c_[np.minimum(lower, upper), upper])
    return make_network(adjacency, *bounds)


@pytest.mark.experiment
def test_odd_small_networks_have_best_plans_or_none(rng):
    """Nodes that are alone or may have nothing, equal bounds, ties, and utilities below 0."""
    n_refused = 0
    for _ in range(50):
        network = draw_odd_network(rng)
        size = 10.0 ** rng.integers(-12, 13)
        utilities = [LinearUtility(size * rng.integers(-2, 3, network.n_edges)) for _ in range(2)]
        unit = [LinearUtility(utility.slopes / size) for utility in utilities]
        if linear_optimum(network, sum(utility.slopes for utility in unit)) is None:
            n_refused += 1
            with pytest.raises(ValueError, match="has no feasible plan"):
                optimal_plan(network, *utilities)
            continue
        check_optimal(network, optimal_plan(network, *unit), unit)
        best = optimal_plan(network, *utilities)
        # A best plan of whole bounds is a vertex, and so of whole amounts.
        np.testing.assert_array_equal(best.plan, best.plan.round())
        assert network.violation(best.plan) == 0
        assert best.welfare == pytest.approx(best.bound, rel=1e-12, abs=1e-12 * size)
    assert 5 < n_refused < 35


def test_a_large_network_has_a_proven_plan(rng):
    bounds = [np.c_[np.zeros(n), rng.uniform(1, 5, n)] for n in (60, 80)]
    network = make_network(np.ones((60, 80)), *bounds)
    utilities = [LinearUtility(rng.uniform(1, 5, network.n_edges)) for _ in range(2)]
    check_optimal(network, optimal_plan(network, *utilities), utilities)


def test_networks_without_edges_or_plans(rng):
    empty = make_network(np.zeros((2, 3)), (0, 1), (0, 1))
    best = optimal_plan(empty, LinearUtility([]), LinearUtility([]))
    assert best.welfare == best.bound == 0.0 and best.plan.shape == (0,)
    hopeless = make_network([[1, 1]], (3, 4), (0, 1))
    likes = LinearUtility([1.0, 2.0])
    with pytest.raises(ValueError, match=re.escape("targets [0] must receive at least 3")):
        optimal_plan(hopeless, likes, likes)


def test_wrong_arguments_are_refused():
    network, likes = make_network([[1, 1]], (0, 1), (0, 1)), LinearUtility([1.0, 2.0])
    with pytest.raises(ValueError, match="target_utility"):
        optimal_plan(network, LogUtility([1.0, 1.0], [1.0, 1.0]), likes)
    with pytest.raises(ValueError, match="source_utility"):
        optimal_plan(network, likes, LinearUtility([1.0]))
