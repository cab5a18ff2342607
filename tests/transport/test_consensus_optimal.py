"""The central solver against HiGHS on all edges, and its proof."""

import re

import numpy as np
import pytest

from skdpot.transport.consensus import (
    LinearUtility,
    LogUtility,
    consensus,
    make_network,
    optimal_plan,
    welfare_bound,
)
from skdpot.transport.consensus import _optimal as module
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
    """Check that a plan has the optimum's welfare, and that its prices and multipliers prove it."""
    slopes = utilities[0].slopes + utilities[1].slopes
    optimum = linear_optimum(network, slopes)
    unit = max(1.0, network.targets.upper.max(), network.sources.upper.max())
    scale = max(1.0, np.abs(slopes).max(initial=0.0)) * unit
    assert network.violation(best.plan) <= 1e-13 * unit
    assert best.welfare == pytest.approx(optimum, rel=1e-9, abs=1e-9 * scale)
    assert best.welfare == pytest.approx(slopes @ best.plan)
    assert best.bound == welfare_bound(network, *utilities, best.prices)
    assert best.bound - best.welfare <= 1e-9 * max(abs(optimum), scale)
    side = network.targets
    pay = best.target_multipliers[side.nodes] + best.source_multipliers[side.neighbours]
    assert (slopes <= pay + 1e-9 * scale).all()
    used = best.plan > 1e-9 * unit
    np.testing.assert_allclose(slopes[used], pay[used], atol=1e-9 * scale)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("utility", UTILITIES)
def test_plan_is_that_of_the_linear_program_on_all_edges(kind, utility, rng):
    for size in (1.0, 1e4):
        network = draw_network(kind, rng, size)
        utilities = [LinearUtility(draw_slopes(utility, network, rng)) for _ in range(2)]
        check_optimal(network, optimal_plan(network, *utilities), utilities)


@pytest.mark.parametrize("utility", ["uniform", "two levels"])
@pytest.mark.parametrize("least", [0.0, 0.9, 1.0])
def test_columns_join_until_none_is_missed(utility, least, rng, monkeypatch):
    monkeypatch.setattr(module, "_FIRST", 1)
    monkeypatch.setattr(module, "_MORE", 1)
    amounts = rng.gamma(0.5, 2.0, (30, 40))
    bounds = [np.c_[least * sums, sums] for sums in (amounts.sum(1), amounts.sum(0))]
    network = make_network(np.ones(amounts.shape), *bounds)
    utilities = [LinearUtility(draw_slopes(utility, network, rng)) for _ in range(2)]
    best = optimal_plan(network, *utilities)
    assert best.n_programs > 1
    check_optimal(network, best, utilities)


@pytest.mark.parametrize("least", [0.0, 0.9, 1.0])
def test_simplex_on_all_pairs_is_a_good_start(least, rng, monkeypatch):
    amounts = rng.gamma(0.5, 2.0, (30, 40))
    bounds = [np.c_[least * sums, sums] for sums in (amounts.sum(1), amounts.sum(0))]
    network = make_network(np.ones(amounts.shape), *bounds)
    utilities = [LinearUtility(draw_slopes("products", network, rng)) for _ in range(2)]
    plain = optimal_plan(network, *utilities)
    monkeypatch.setattr(module, "_MANY", 0)
    started = optimal_plan(network, *utilities)
    check_optimal(network, started, utilities)
    assert started.n_programs <= plain.n_programs
    assert least == 0.9 or started.n_programs == 1


@pytest.mark.parametrize("kind", ["dense", "lower bounds", "equalities", "isolated"])
def test_any_start_leads_to_the_optimum(kind, rng):
    network = draw_network(kind, rng)
    utilities = [LinearUtility(draw_slopes("uniform", network, rng)) for _ in range(2)]
    agreed = consensus(network, *utilities, tol=1e-3)
    for start in (agreed.prices, rng.normal(0, 100, network.n_edges)):
        check_optimal(network, optimal_plan(network, *utilities, start=start), utilities)


def test_a_large_network_has_a_proven_plan(rng):
    bounds = [np.c_[np.zeros(n), rng.uniform(1, 5, n)] for n in (150, 200)]
    network = make_network(np.ones((150, 200)), *bounds)
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
    with pytest.raises(ValueError, match="start"):
        optimal_plan(network, likes, likes, start=np.zeros(3))
