"""Barycenters on the paper's problem: time and value beside POT's, on one thread.

Run with ``python -m pytest benchmarks -m benchmark -s -k test_barycenter``.
Five normal samples of 500 points in the plane, 250 support points; everybody begins with the
points, and the free solvers with the same start. Values are exact transport costs to the support
that was returned, whatever a solver says about itself. POT's Bregman projections are stopped after
30 rounds, before they converge by POT's own rule, which may take minutes.
"""

import time
import warnings

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from benchmarks.contest import Contestant
from skdpot.transport.barycenter import candidate_barycenter, free_support_barycenter

pytestmark = pytest.mark.benchmark

N, N_CANDIDATES, N_SUPPORT = 500, 1000, 250
MEANS = np.array([(-2, -2), (2, 2), (2, -2), (-2, 2), (0, 0)])
COVARIANCE = np.array([[0.5, -0.2], [-0.2, 0.5]])
WEIGHTS = np.array([0.7, 0.1, 0.05, 0.05, 0.1])
SEEDS = range(5)
N_REPEATS = 3
BREGMAN_ROUNDS = 30
# Solver "exact" is for smaller problems.
SOLVERS = ("dual", "bundle", "auto")


def paper_problem(seed):
    """Return the groups and the candidates, of which the first ones are the start."""
    rng = np.random.default_rng(seed)
    groups = [rng.multivariate_normal(mean, COVARIANCE, N) for mean in MEANS]
    return groups, rng.normal(size=(N_CANDIDATES, 2)) * 5**0.5


def uniform(n):
    return np.full(n, 1 / n)


def value(groups, support):
    """Return the exact objective of equal masses on a support."""
    return sum(
        weight * ot.emd2(uniform(len(one)), uniform(len(support)), cdist(one, support) ** 2)
        for weight, one in zip(WEIGHTS, groups, strict=True)
    )


def timed(function, *arguments, repeats=N_REPEATS, **options):
    """Return what a function returns, and its shortest time of a few."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        with warnings.catch_warnings():
            # Whether a solver converged is printed.
            warnings.simplefilter("ignore")
            found = function(*arguments, **options)
        times.append(time.perf_counter() - start)
    return found, min(times)


def pot_exact(groups, start):
    return ot.lp.free_support_barycenter(
        groups, [uniform(N)] * len(groups), start, weights=WEIGHTS, numItermax=1000, log=True
    )


def pot_bregman(groups, start, reg):
    return ot.bregman.free_support_sinkhorn_barycenter(
        groups, [uniform(N)] * len(groups), start, reg, weights=WEIGHTS,
        numItermax=BREGMAN_ROUNDS, log=True,
    )  # fmt: skip


def print_row(name, seconds, reference, rounds, reached, best, more=""):
    print(
        f"{name:28s} {seconds:8.3f} s {seconds / reference:7.2f} x {rounds:5d} rounds  "
        f"value {reached:.5f} ({100 * (reached / best - 1):+.4f} %){more}"
    )


def compile_kernels():
    points = np.random.default_rng(0).normal(size=(4, 2))
    free_support_barycenter([points, points], [0.5, 0.5], points[:2], bound="pairs")
    for solver in SOLVERS:
        timed(candidate_barycenter, [cdist(points, points)], [1.0], 2, method=solver, repeats=1)


@pytest.mark.parametrize("bound", ["moments", "pairs"])
@pytest.mark.parametrize("seed", SEEDS)
def test_free_support(seed, bound, contest):
    compare_free_supports(seed, bound, contest)


@pytest.mark.quick
@pytest.mark.table
def test_free_support_of_one_seed(contest):
    compare_free_supports(0, "moments", contest)


def compare_free_supports(seed, bound, contest):
    """Within 0.1 % of POT's value or better."""
    groups, candidates = paper_problem(seed)
    start = candidates[:N_SUPPORT]
    best = value(groups, pot_exact(groups, start)[0])
    contest.compare(
        "FairBarycenterPreprocessor, barycenter solver",
        f"free support, 5 groups of {N} points, {N_SUPPORT} support points, seed {seed}",
        Contestant(
            f"free_support_barycenter, bound by {bound}",
            lambda: free_support_barycenter(groups, WEIGHTS, start, bound=bound).support,
        ),
        [Contestant("POT, lp.free_support_barycenter", lambda: pot_exact(groups, start)[0])],
        {"objective over POT's": lambda support: value(groups, support) / best},
        tolerance=1.001,
    )


def test_bregman_projections():
    """POT's solver that the paper compares with, and how far its regularisation takes it."""
    groups, candidates = paper_problem(0)
    start = candidates[:N_SUPPORT]
    ours, seconds = timed(free_support_barycenter, groups, WEIGHTS, start)
    best = value(groups, ours.support)
    print("\nfree support by Bregman projections, seed 0, times relative to ours")
    print_row("skdpot", seconds, seconds, ours.n_iter, best, best)
    for reg in (0.5, 0.1, 0.05):
        (pot, log), pot_seconds = timed(pot_bregman, groups, start, reg, repeats=1)
        moved = log["displacement_square_norms"]
        more = f", last displacement {moved[-1]:.0e}"
        name = f"ot.bregman, reg {reg}"
        print_row(name, pot_seconds, seconds, len(moved), value(groups, pot), best, more)


def choose(groups, candidates, solver):
    costs = [cdist(one, candidates, "sqeuclidean") for one in groups]
    return candidate_barycenter(costs, WEIGHTS, N_SUPPORT, method=solver, candidates=candidates)


def choose_and_refine(groups, candidates):
    """Let the chosen candidates move, which is a free-support problem with a good start."""
    chosen = choose(groups, candidates, "auto")
    return free_support_barycenter(groups, WEIGHTS, candidates[chosen.chosen])


def test_candidates():
    """Candidate-restricted values are compared among each other; then candidates may move."""
    compile_kernels()
    groups, candidates = paper_problem(0)
    (pot, log), pot_seconds = timed(pot_exact, groups, candidates[:N_SUPPORT])
    found = {solver: timed(choose, groups, candidates, solver, repeats=1) for solver in SOLVERS}
    best = max(result.lower_bound for result, _ in found.values())
    print("\ncandidates, seed 0: times relative to POT's exact solver, values to the best bound")
    for solver, (result, seconds) in found.items():
        reached = value(groups, candidates[result.chosen])
        assert reached == pytest.approx(result.objective)
        more = (
            f", relaxed {result.relaxed_objective:.5f} in at least {result.lower_bound:.5f}"
            f"{'' if result.converged else ', not converged'}"
        )
        print_row(f"skdpot, {solver}", seconds, pot_seconds, result.n_iter, reached, best, more)
    ours, seconds = timed(choose_and_refine, groups, candidates, repeats=1)
    print_row("skdpot, auto and then free", seconds, pot_seconds, ours.n_iter, ours.objective, best)
    rounds = len(log["displacement_square_norms"])
    print_row("ot.lp, exact, free", pot_seconds, pot_seconds, rounds, value(groups, pot), best)
