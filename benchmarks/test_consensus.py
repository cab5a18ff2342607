"""Speed of consensus on a transport plan beside HiGHS and the network simplex of POT.

Run with ``python -m pytest benchmarks -m benchmark -s -k consensus``: prints times of a
round, of a check and of the way to a gap of 1e-3, with the processor's times, of all threads
together; and compares plans that are as good. Nothing is asserted about time. ``ot.emd`` gets a
dummy node on each side, which takes what is left, and where edges are missing, sparse costs. HiGHS
has a limit of time.
"""

import time
from functools import partial

import numpy as np
import ot
import pytest
from scipy import sparse

from benchmarks.contest import Contestant, Row
from skdpot.transport.consensus import (
    LinearUtility,
    consensus,
    make_network,
    optimal_plan,
    starting_eta,
)
from tests.oracles.consensus import linear_optimum

pytestmark = pytest.mark.benchmark

NODES, N_QUICK = 1000, 150
ROUNDS = 20
# Seconds after which HiGHS gives up, and the largest networks that it is asked about in turns.
LIMIT, HIGHS_EDGES = 60.0, 100_000


def dense_network(rng, n):
    bounds = [np.c_[np.zeros(n), rng.uniform(1, 5, n)] for _ in range(2)]
    return make_network(np.ones((n, n)), *bounds)


def sparse_network(rng, n_dense):
    """As many edges between 20 times as many nodes."""
    n = 20 * n_dense
    adjacency = sparse.random_array((n, n), density=n_dense**2 / n**2, rng=rng) > 0
    return make_network(adjacency, *(np.c_[np.zeros(n), rng.uniform(1, 5, n)] for _ in range(2)))


def timed(function, *args, **settings):
    """Return a result, the time it took, and the processor's."""
    start, busy = time.perf_counter(), time.process_time()
    result = function(*args, **settings)
    return result, np.array([time.perf_counter() - start, time.process_time() - busy])


def shown(seconds):
    return "{:.3f} s ({:.3f} s of processors)".format(*seconds)


def emd_optimum(network, slopes):
    """Return the largest welfare on a complete network without lower bounds."""
    targets, sources = network.targets.upper, network.sources.upper
    cost = np.zeros((len(targets) + 1, len(sources) + 1))
    cost[:-1, :-1] = -slopes.reshape(network.shape)
    masses = np.append(targets, sources.sum()), np.append(sources, targets.sum())
    return -ot.emd2(*masses, cost, numItermax=10**8)


def sparse_emd_optimum(network, slopes):
    """Return the largest welfare on a network without lower bounds, from costs of its edges."""
    targets, sources = network.targets.upper, network.sources.upper
    n, m = network.shape
    rows = np.concatenate([network.targets.nodes, np.arange(n + 1), np.full(m, n)])
    columns = np.concatenate([network.targets.neighbours, np.full(n + 1, m), np.arange(m)])
    # All masses are moved, so that a number that is added to all costs changes no plan. A cost of
    # 0 could be taken for a missing edge.
    added = slopes.max() + 1.0
    costs = np.concatenate([added - slopes, np.full(n + m + 1, added)])
    masses = np.append(targets, sources.sum()), np.append(sources, targets.sum())
    cost = sparse.coo_array((costs, (rows, columns)), shape=(n + 1, m + 1))
    return added * masses[0].sum() - ot.emd2(*masses, cost, numItermax=10**8)


@pytest.mark.parametrize("draw", [dense_network, sparse_network])
def test_speed(draw, benchmark, rng):
    network = draw(rng, NODES)
    utilities = [LinearUtility(rng.uniform(1, 5, network.n_edges)) for _ in range(2)]
    eta = starting_eta(network, 4.0)
    consensus(network, *utilities, max_iter=2)
    settings = {"eta": eta, "max_iter": 1 + ROUNDS}
    _, short = timed(consensus, network, *utilities, eta=eta, tol=None, max_iter=1)
    _, long = timed(consensus, network, *utilities, tol=None, **settings)
    checks = {"tol": 0.0}
    _, checked = timed(consensus, network, *utilities, **settings, **checks)
    _, once = timed(consensus, network, *utilities, eta=eta, max_iter=1, **checks)
    result, certified = benchmark.pedantic(
        timed, (consensus, network, *utilities), {"eta": eta, "tol": 1e-3}, rounds=1
    )
    a_round = (long - short) / ROUNDS
    print(f"\n{draw.__name__} of {network.shape} nodes and {network.n_edges} edges")
    print(f"a round {shown(a_round)}, a check {shown((checked - once) / ROUNDS - a_round)}")
    print(f"to a gap of {result.gap:.1e}: {result.n_iter} rounds, {shown(certified)}")


def versus(contest, rng, draw, nodes, name, solve, tolerance, rounds):
    """Compare plans with those of the network simplex and of HiGHS, by their gap."""
    network = draw(rng, nodes)
    slopes = rng.uniform(2, 10, network.n_edges)
    utilities = LinearUtility(slopes), LinearUtility(np.zeros_like(slopes))
    is_dense = draw is dense_network
    simplex = emd_optimum if is_dense else sparse_emd_optimum
    highs = Contestant("HiGHS, linprog", lambda: linear_optimum(network, slopes, time_limit=LIMIT))
    name_of_emd = "POT, emd" if is_dense else "POT, emd of sparse costs"
    # The central solver calls POT itself.
    calls_emd = solve is optimal_plan
    peers = [Contestant(name_of_emd, lambda: simplex(network, slopes))] * (not calls_emd)
    peers += [highs] * (network.n_edges <= HIGHS_EDGES)
    best = optimal_plan(network, *utilities).welfare
    estimator = "PrivateADMMTransport, without privacy"
    work = f"best plan, {'complete' if is_dense else 'sparse'} network of {network.n_edges:,} edges"
    contest.compare(
        estimator,
        work,
        Contestant(name, lambda: solve(network, *utilities).welfare),
        peers,
        {"gap to the optimum": lambda welfare: 1 - welfare / best},
        tolerance=tolerance,
        rounds=rounds,
    )
    if highs not in peers:
        found, took = timed(highs.call)
        note = f"{'not ' * (found is None)}finished in {LIMIT if found is None else took[1]:.0f} s"
        contest.rows.append(Row(estimator, work, name, highs.name, note))
        print(contest.rows[-1])


@pytest.mark.table
@pytest.mark.parametrize(
    ("draw", "nodes"),
    [
        pytest.param(draw, nodes, marks=[pytest.mark.quick] * (nodes == N_QUICK))
        for draw in (dense_network, sparse_network)
        for nodes in (N_QUICK, 316, NODES)
    ],
)
def test_best_plans(draw, nodes, contest, rng):
    versus(contest, rng, draw, nodes, "optimal_plan", optimal_plan, 1e-9, (10, 15))


@pytest.mark.quick
@pytest.mark.parametrize("draw", [dense_network, sparse_network])
def test_consensus_as_good(draw, contest, rng):
    """To a gap of 1e-3, which HiGHS does not stop at."""
    nodes, solve = contest.size(NODES, N_QUICK), partial(consensus, tol=1e-3)
    versus(contest, rng, draw, nodes, "consensus (ADMM)", solve, 1e-3, (3, 7))
