"""Growth of times: with users, points, groups, edges and records.

Run with ``python -m pytest benchmarks -m benchmark -s -k scaling``: prints times and the
exponents that fit them. Nothing is asserted about time. Peers do the same work as far as is quick.
"""

import numpy as np
import ot
import pandas as pd
import pytest

from benchmarks.contest import Contestant
from benchmarks.test_projection import by_emd, split_problem
from skdpot import DPSinkhornGenerator, WassersteinProjectionSampler
from skdpot.transport import PointCosts, entropic_transport
from skdpot.transport.barycenter import free_support_barycenter
from skdpot.transport.consensus import LinearUtility, make_network, optimal_plan
from tests.oracles.consensus import linear_optimum

pytestmark = [pytest.mark.benchmark, pytest.mark.quick]


def test_users(contest):
    places = np.random.default_rng(0).random((100, 2))
    most = 4096
    visits = np.random.default_rng(1).dirichlet(np.full(100, 0.1), most)
    sampler = WassersteinProjectionSampler(1.0, input_points=places, output="index")
    sampler.fit(visits)
    problem = split_problem(sampler.cost_matrix_, sampler.base_measure_)
    contest.scale(
        "private samples, 100 places",
        "users",
        contest.size([64, 256, 1024, most], [16, 64, 256, 1024]),
        [
            Contestant(
                "WassersteinProjectionSampler", lambda n: lambda: sampler.transform(visits[:n])
            ),
            Contestant(
                "POT, emd user by user",
                lambda n: lambda: [by_emd(user, *problem) for user in visits[:n]],
            ),
        ],
        largest={"POT, emd user by user": contest.size(256, 64)},
    )


def points(n):
    rng = np.random.default_rng(0)
    return rng.random((n, 2)), rng.random((n, 2)), np.full(n, 1 / n)


def test_points_of_entropic_transport(contest):
    def ours(n):
        x, y, a = points(n)
        return lambda: entropic_transport(PointCosts(x, y, squared=True, high=2.0), a, a, 0.1, 1e-4)

    def theirs(n):
        x, y, a = points(n)
        return lambda: ot.sinkhorn(a, a, ot.dist(x, y), 0.1, method="sinkhorn_log", stopThr=1e-4)

    contest.scale(
        "entropic transport, regularisation 0.1",
        "points",
        contest.size([500, 1000, 2000, 4000, 8000], [250, 500, 1000, 2000]),
        [Contestant("entropic_transport", ours), Contestant("POT, sinkhorn_log", theirs)],
        largest={"POT, sinkhorn_log": contest.size(2000, 1000)},
    )


def test_groups(contest):
    def problem(n_groups, n=200):
        rng = np.random.default_rng(0)
        groups = [rng.normal(size=(n, 2)) + 2 * rng.normal(size=2) for _ in range(n_groups)]
        return groups, np.full(n_groups, 1 / n_groups), rng.normal(size=(100, 2))

    def ours(n_groups):
        groups, weights, start = problem(n_groups)
        return lambda: free_support_barycenter(groups, weights, start, tol=1e-3)

    def theirs(n_groups):
        groups, weights, start = problem(n_groups)
        equal = [np.full(len(group), 1 / len(group)) for group in groups]
        return lambda: ot.lp.free_support_barycenter(groups, equal, start, weights=weights)

    contest.scale(
        "barycenter of groups of 200",
        "groups",
        contest.size([2, 4, 8, 16, 32], [2, 4, 8, 16]),
        [
            Contestant("free_support_barycenter", ours),
            Contestant("POT, lp.free_support_barycenter", theirs),
        ],
    )


def test_edges(contest):
    def problem(n_edges):
        rng, n = np.random.default_rng(0), int(n_edges**0.5)
        bounds = [np.c_[np.zeros(n), rng.uniform(1, 5, n)] for _ in range(2)]
        network = make_network(np.ones((n, n)), *bounds)
        return network, rng.uniform(2, 10, network.n_edges)

    def ours(n_edges):
        network, slopes = problem(n_edges)
        nothing = LinearUtility(np.zeros_like(slopes))
        return lambda: optimal_plan(network, LinearUtility(slopes), nothing)

    def theirs(n_edges):
        network, slopes = problem(n_edges)
        return lambda: linear_optimum(network, slopes)

    contest.scale(
        "best plan of a complete network",
        "edges",
        contest.size([1_600, 6_400, 25_600, 102_400, 1_000_000], [1_600, 6_400, 25_600, 102_400]),
        [Contestant("optimal_plan", ours), Contestant("HiGHS, linprog", theirs)],
        largest={"HiGHS, linprog": contest.size(102_400, 25_600)},
    )


def test_records(contest):
    def ours(n):
        rng = np.random.default_rng(0)
        level = rng.integers(0, 5, n)
        frame = pd.DataFrame({f"x{j}": 10 * level + rng.normal(0, 5, n) for j in range(4)})
        frame["y"] = np.where(level > 2, "yes", "no")
        schema = dict.fromkeys(frame, (-50.0, 100.0)) | {"y": ["no", "yes"]}
        generator = DPSinkhornGenerator(1.0, schema=schema, target="y", random_state=0)
        return lambda: generator.fit(frame)

    contest.scale(
        "sketch of a table, 5 columns",
        "records",
        contest.size([1_000, 10_000, 100_000, 1_000_000], [1_000, 10_000, 100_000]),
        [Contestant("DPSinkhornGenerator", ours)],
    )
