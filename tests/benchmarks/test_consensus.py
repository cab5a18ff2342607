"""Speed of consensus on a transport plan beside HiGHS and the network simplex of POT.

Run with ``python -m pytest tests/benchmarks -m benchmark -s -k consensus``: prints times of a
round, of a check and of the way to a gap of 1e-3, with the processor's times, of all threads
together; and compares plans that are as good. Nothing is asserted about time. ``ot.emd`` gets a
dummy node on each side, which takes what is left, and where edges are missing, sparse costs. Set
``CONSENSUS_NODES`` for another size than 1,000.
"""

import os
import time

import numpy as np
import ot
import pytest
from scipy import sparse

from skdpot.transport.consensus import (
    LinearUtility,
    consensus,
    make_network,
    optimal_plan,
    starting_eta,
)
from tests.benchmarks.contest import Contestant
from tests.oracles.consensus import linear_optimum

pytestmark = pytest.mark.benchmark

NODES = int(os.environ.get("CONSENSUS_NODES", "1000"))
ROUNDS = 20
# The largest networks that HiGHS is asked about.
HIGHS_EDGES = 100_000


def dense_network(rng):
    bounds = [np.c_[np.zeros(NODES), rng.uniform(1, 5, NODES)] for _ in range(2)]
    return make_network(np.ones((NODES, NODES)), *bounds)


def sparse_network(rng):
    """As many edges between 20 times as many nodes."""
    n = 20 * NODES
    adjacency = sparse.random_array((n, n), density=NODES**2 / n**2, rng=rng)
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
    network = draw(rng)
    utilities = [LinearUtility(rng.uniform(1, 5, network.n_edges)) for _ in range(2)]
    eta = starting_eta(network, 4.0)
    consensus(network, *utilities, max_iter=2)
    settings = {"eta": eta, "max_iter": 1 + ROUNDS}
    _, short = timed(consensus, network, *utilities, eta=eta, criterion=None, max_iter=1)
    _, long = timed(consensus, network, *utilities, criterion=None, **settings)
    checks = {"criterion": "gap", "tol": 0.0, "check_every": 1}
    _, checked = timed(consensus, network, *utilities, **settings, **checks)
    _, once = timed(consensus, network, *utilities, eta=eta, max_iter=1, **checks)
    result, certified = benchmark.pedantic(
        timed, (consensus, network, *utilities), {"eta": eta, "tol": 1e-3}, rounds=1
    )
    a_round = (long - short) / ROUNDS
    print(f"\n{draw.__name__} of {network.shape} nodes and {network.n_edges} edges")
    print(f"a round {shown(a_round)}, a check {shown((checked - once) / ROUNDS - a_round)}")
    print(f"to a gap of {result.gap:.1e}: {result.n_iter} rounds, {shown(certified)}")


@pytest.mark.quick
@pytest.mark.parametrize("draw", [dense_network, sparse_network])
def test_plans_as_good(draw, contest, rng, monkeypatch):
    """To a gap of 1e-3, which HiGHS does not stop at; and to the optimum."""
    monkeypatch.setitem(globals(), "NODES", contest.size(NODES, 150))
    network = draw(rng)
    slopes = rng.uniform(2, 10, network.n_edges)
    utilities = LinearUtility(slopes), LinearUtility(np.zeros_like(slopes))
    simplex = emd_optimum if draw is dense_network else sparse_emd_optimum
    peers = [Contestant("POT, emd", lambda: simplex(network, slopes))]
    if network.n_edges <= HIGHS_EDGES:
        peers.append(Contestant("HiGHS, linprog", lambda: linear_optimum(network, slopes)))
    best = optimal_plan(network, *utilities).welfare
    work = (
        f"{'a complete' if draw is dense_network else 'a sparse'} network of {network.shape[0]:,} "
        f"times {network.shape[1]:,} nodes, {network.n_edges:,} edges"
    )
    for name, solve, tolerance in [
        ("optimal_plan", lambda: optimal_plan(network, *utilities).welfare, 1e-9),
        ("consensus (ADMM)", lambda: consensus(network, *utilities, tol=1e-3).welfare, 1e-3),
    ]:
        contest.compare(
            "PrivateADMMTransport, without privacy",
            work,
            Contestant(name, solve),
            peers,
            {"gap to the optimum": lambda welfare: 1 - welfare / best},
            tolerance=tolerance,
            rounds=(10, 15) if name == "optimal_plan" else (3, 7),
        )
