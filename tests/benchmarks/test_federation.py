"""Federated barycenters: rounds, bytes and time, beside solvers that see all points.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_federation.py -m benchmark -s``.
Groups answer one after the other on one thread, so that times are those of all of them together;
nothing travels, and bytes are those of 8 for each number.
"""

import time

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from skdpot.transport.barycenter import BarycenterProblem, PointGroup, solve

pytestmark = pytest.mark.benchmark

N, N_CANDIDATES, N_SUPPORT = 500, 1000, 250
MEANS = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
COVARIANCE = np.array([[0.5, -0.2], [-0.2, 0.5]])
WEIGHTS = np.array([0.7, 0.1, 0.05, 0.05, 0.1])
N_OWNERS, N_OF_OWNER = 100, 1000
GAPS = (1e-2, 1e-3, 1e-4)
BEGINNING = 1


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def draw(means, n, seed=0):
    """Return a sample of each normal distribution, and the candidates."""
    rng = np.random.default_rng(seed)
    groups = [rng.multivariate_normal(mean, COVARIANCE, n) for mean in means]
    return groups, rng.normal(size=(N_CANDIDATES, 2)) * 5**0.5


def run(problem, groups):
    """Return the result, and after each step: seconds, bytes up per owner, bytes down."""
    start = time.perf_counter()
    owners = [PointGroup(group) for group in groups]
    rounds, costs = solve(problem), []
    step = next(rounds)
    while True:
        total = sum(one.answer(step.kind, step.arrays, s) for s, one in enumerate(owners))
        down = sum(array.nbytes for array in step.arrays.values())
        up = 8 * step.size
        try:
            step = rounds.send(total)
        except StopIteration as end:
            return end.value, np.array([*costs, (time.perf_counter() - start, up, down)])
        costs.append((time.perf_counter() - start, up, down))


def value(groups, weights, support):
    """Return the exact objective of equal masses on a support."""
    equal = np.full(len(support), 1 / len(support))
    return sum(
        weight * ot.emd2(np.full(len(one), 1 / len(one)), equal, cdist(one, support) ** 2)
        for weight, one in zip(weights, groups, strict=True)
    )


def compile_kernels():
    points = np.random.default_rng(0).normal(size=(4, 2))
    for method in ("dual", "bundle", "free"):
        problem = BarycenterProblem(1, 2, [1.0], points, method=method, max_iter=40)
        run(problem, [points])


def print_row(name, rounds, costs, more):
    seconds, up, down = costs[rounds - 1, 0], costs[:rounds, 1], costs[:rounds, 2]
    print(
        f"{name:26s} {rounds:5d} rounds {seconds:8.2f} s  per round: up {up.mean():7.0f} B an "
        f"owner, down {down.mean():7.0f} B  all: up {up.sum() / 1e6:6.2f} MB, down "
        f"{down.sum() / 1e6:6.2f} MB  {more}"
    )


def test_gaps_of_papers_problem():
    """Rounds until gaps are certified, and what the rounded choice is worth in the end."""
    compile_kernels()
    groups, candidates = draw(MEANS, N)
    print()
    for method in ("dual", "bregman", "bundle"):
        problem = BarycenterProblem(
            len(groups), N_SUPPORT, WEIGHTS, candidates, method=method, tol=GAPS[-1]
        )
        result, costs = run(problem, groups)
        for gap in GAPS:
            reached = [
                n_iter for n_iter, low, high in result.history if high - low <= gap * abs(high)
            ]
            if reached:
                print_row(f"{method}, gap {gap:g}", BEGINNING + reached[0], costs, "")
            else:
                print(f"{method}, gap {gap:g}: not in {result.history[-1][0]} rounds")
        more = f"objective {result.objective:.5f}, relaxed at least {result.lower_bound:.5f}"
        print_row(f"{method}, with the choice", result.n_rounds, costs, more)
        reached = value(groups, WEIGHTS, result.support)
        assert result.objective == pytest.approx(reached, rel=1e-9)
        assert result.lower_bound <= result.relaxed_objective


def test_free_support_beside_pot():
    """The objective is within 0.5 % of POT's, whether rounds begin with candidates or not."""
    compile_kernels()
    groups, candidates = draw(MEANS, N)
    masses = [np.full(N, 1 / N)] * len(groups)
    start = time.perf_counter()
    pot, log = ot.lp.free_support_barycenter(
        groups, masses, candidates[:N_SUPPORT], weights=WEIGHTS, numItermax=1000, log=True
    )
    seconds, best = time.perf_counter() - start, value(groups, WEIGHTS, pot)
    n_rounds = len(log["displacement_square_norms"])
    print(f"\not.lp, exact, all points in one place: {n_rounds} rounds {seconds:.2f} s {best:.5f}")
    for name, given in (("free", None), ("free, from candidates", candidates)):
        for tol in (1e-3, 1e-5, 1e-7):
            problem = BarycenterProblem(
                len(groups), N_SUPPORT, WEIGHTS, given, method="free", tol=tol, n_features=2
            )
            result, costs = run(problem, groups)
            reached = value(groups, WEIGHTS, result.support)
            more = f"objective {reached:.5f} ({100 * (reached / best - 1):+.3f} %)"
            print_row(f"{name}, tol {tol:g}", result.n_rounds, costs, more)
            assert reached <= 1.005 * best


def test_many_owners():
    """A hundred groups of a thousand points each."""
    compile_kernels()
    means = np.random.default_rng(1).normal(size=(N_OWNERS, 2)) * 2
    groups, candidates = draw(means, N_OF_OWNER)
    print()
    for method, given in (("bregman", candidates), ("free", candidates), ("free", None)):
        problem = BarycenterProblem(
            N_OWNERS, N_SUPPORT, "proportional", given, method=method, n_features=2
        )
        result, costs = run(problem, groups)
        name = method if given is not None else "free, without candidates"
        more = f"objective {result.objective:.5f}, converged: {result.converged}"
        print_row(name, result.n_rounds, costs, more)
        assert result.converged
