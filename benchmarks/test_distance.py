"""The entropic transport cost against POT, geomloss and ott-jax, and the private one.

Run with ``python -m pytest benchmarks -m benchmark -s -k distance``. Nothing is asserted
about time. Everybody begins with the points, so that costs between them are a part of the work, and
takes the coarsest of its settings with which the marginals of its plan are wrong by no more than
the tolerance, in the l1 norm, as measured on the potentials that it returns. POT measures its own
error in the l2 norm, and geomloss does a fixed number of iterations.

The private cost is compared with what somebody would write: POT's cost, and diffprivlib's Laplace
noise for the same sensitivity.
"""

import functools
import subprocess
import sys

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from benchmarks.contest import Contestant, coarsest
from skdpot import PrivateSinkhornDistance
from skdpot.privacy import BudgetAccountant
from skdpot.transport import MatrixCosts, PointCosts, entropic_transport

pytestmark = pytest.mark.benchmark

N, N_QUICK, REG = 2000, 1000, 0.05
TOLERANCES = (1e-3, 1e-6, 1e-9)
DECADES = [10.0**-k for k in range(1, 13)]
SCALINGS = (0.5, 0.7, 0.9, 0.95, 0.99)


def uniform_points(rng, n):
    return rng.random((n, 2)), rng.random((n, 2))


def normal_points(rng, n):
    return rng.normal(size=(n, 5)), rng.normal(size=(n, 5)) + 1


def clusters(rng, n):
    places = rng.integers(0, 4, (2, n, 2)) * np.array([1.0, 0.8])[:, None, None]
    x, y = places + rng.normal(size=(2, n, 2)) * 0.05
    return x, y + 0.5


CASES = {"uniform, 2-d": uniform_points, "normal, 5-d": normal_points, "clusters, 2-d": clusters}


def ours(x, y, a, tol):
    costs = PointCosts(x, y, squared=True, high=1.0)
    result = entropic_transport(costs, a, a, REG, tol)
    return result.row_potential, result.column_potential


def ours_with_a_matrix(x, y, a, tol):
    result = entropic_transport(MatrixCosts(cdist(x, y, "sqeuclidean")), a, a, REG, tol)
    return result.row_potential, result.column_potential


def pot(method):
    def solve(x, y, a, tol):
        _, log = ot.sinkhorn(
            a, a, ot.dist(x, y), REG, method=method, stopThr=tol, numItermax=10_000, log=True
        )
        if "log_u" in log:
            scalings = log["log_u"], log["log_v"]
        elif "alpha" in log:
            return log["alpha"] - REG * np.log(a), log["beta"] - REG * np.log(a)
        else:
            scalings = np.log(log["u"]), np.log(log["v"])
        return tuple(REG * (scaling - np.log(a)) for scaling in scalings)

    return solve


def regot(method):
    def solve(x, y, a, tol):
        import regot as package

        cost = np.asfortranarray(cdist(x, y, "sqeuclidean"))
        n = len(a)
        try:
            # They come no closer in more iterations, which take longer and longer.
            dual = getattr(package, method)(cost, a, a, REG, tol=tol, max_iter=100).dual
        except RuntimeError:
            # Its line search fails where rounding hides a decrease.
            return np.full(n, np.nan), np.full(n, np.nan)
        dual = np.ravel(dual)
        shift = REG * np.log(a)
        return dual[:n] - shift, np.append(dual[n:], 0.0)[:n] - shift

    return solve


def lazy_pot(x, y, a, tol):
    found = ot.solve_sample(x, y, a, a, reg=REG, lazy=True, tol=tol, max_iter=10_000)
    return tuple(REG * (np.asarray(potential) - np.log(a)) for potential in found.potentials)


def batched_pot(x, y, a, tol):
    from ot.batch import solve_sample_batch

    found = solve_sample_batch(x[None], y[None], REG, a[None], a[None], tol=tol, max_iter=10_000)
    return tuple(REG * (potential[0] - np.log(a)) for potential in found.potentials)


def geomloss(x, y, a, scaling):
    import torch
    from geomloss import SamplesLoss

    # Its cost is half of the squared distance, of which the regularisation is the squared blur.
    loss = SamplesLoss(
        "sinkhorn", p=2, blur=(REG / 2) ** 0.5, scaling=scaling, debias=False,
        potentials=True, backend="tensorized",
    )  # fmt: skip
    f, g = loss(*(torch.from_numpy(array) for array in (a, x, a, y)))
    return 2 * f.numpy().ravel(), 2 * g.numpy().ravel()


@functools.cache
def ott_solver(tol):
    """Return a compiled solver in double precision."""
    import jax
    from ott.geometry.pointcloud import PointCloud
    from ott.solvers import linear

    jax.config.update("jax_enable_x64", True)

    @jax.jit
    def solve(x, y, a):
        problem = PointCloud(x, y, epsilon=REG)
        found = linear.solve(problem, a, a, threshold=tol, max_iterations=10_000)
        return found.f, found.g

    return solve


def ott(x, y, a, tol):
    return tuple(np.asarray(one) - REG * np.log(a) for one in ott_solver(tol)(x, y, a))


OURS = "entropic_transport, from points"
PEERS = {
    "ours, from a cost matrix": (ours_with_a_matrix, DECADES, None),
    "POT, sinkhorn": (pot("sinkhorn"), DECADES, None),
    "POT, sinkhorn_stabilized": (pot("sinkhorn_stabilized"), DECADES, None),
    "POT, sinkhorn_log": (pot("sinkhorn_log"), DECADES, None),
    "POT, solve_sample(lazy=True)": (lazy_pot, DECADES, None),
    "POT, solve_sample_batch": (batched_pot, DECADES, "ot.batch"),
    "regot, sinkhorn_lbfgs_dual": (regot("sinkhorn_lbfgs_dual"), DECADES, "regot"),
    "regot, sinkhorn_splr": (regot("sinkhorn_splr"), DECADES, "regot"),
    "geomloss, tensorized": (geomloss, SCALINGS, "geomloss"),
    "ott-jax, Sinkhorn": (ott, DECADES, "ott"),
}


def reached(cost, a, f, g):
    """Return the dual objective of potentials, and the l1 error of their plan's marginals."""
    plan = a[:, None] * a * np.exp((f[:, None] + g - cost) / REG)
    error = np.abs(plan.sum(axis=0) - a).sum() + np.abs(plan.sum(axis=1) - a).sum()
    return a @ f + a @ g - REG * (plan.sum() - 1), error


@pytest.mark.parametrize("tolerance", TOLERANCES)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.quick, pytest.mark.table] * (case == "uniform, 2-d"))
        for case in CASES
    ],
)
def test_entropic_cost(case, tolerance, contest):
    n = contest.size(N, N_QUICK)
    x, y = CASES[case](np.random.default_rng(0), n)
    scale = cdist(x, y, "sqeuclidean").max() ** 0.5
    x, y, a = x / scale, y / scale, np.full(n, 1 / n)
    cost = cdist(x, y, "sqeuclidean")
    exact = entropic_transport(cost, a, a, REG, 1e-10).cost

    def contestant(name, solve, settings, package=None):
        def choose():
            return coarsest(
                settings,
                lambda setting: solve(x, y, a, setting),
                lambda found: reached(cost, a, *found)[1],
                tolerance,
            )

        # Whoever is not installed cannot be tried.
        present = Contestant(name, choose, package).is_installed
        return Contestant(name, choose() if present else choose, package)

    contest.compare(
        "PrivateSinkhornDistance, entropic solver",
        f"entropic transport, {case}, {n:,} x {n:,} points, to {tolerance:.0e}",
        contestant(OURS, ours, DECADES),
        [contestant(name, *of) for name, of in PEERS.items()],
        {
            "l1 error of marginals": lambda found: reached(cost, a, *found)[1],
            "error of the cost": lambda found: abs(reached(cost, a, *found)[0] / exact - 1),
        },
        tolerance=tolerance,
        seconds=contest.size(5.0, 2.0),
    )


@pytest.mark.quick
@pytest.mark.parametrize("reg", [0.0, 0.05])
def test_private_cost(reg, contest):
    """The noise of both has the same law, but for what our solver leaves open and pays for."""
    n = contest.size(2000, 1000)
    rng = np.random.default_rng(0)
    X = rng.random((2 * n, 2)) * np.repeat([[1.0], [0.8]], n, axis=0)
    y = np.repeat([0, 1], n)
    distance = PrivateSinkhornDistance(1.0, bounds=(0, 1), reg=reg, random_state=0)
    # Squared distances within the unit square are 2 at most, and a record is 1 / n of its group.
    sensitivity = 2.0 / n
    a = np.full(n, 1 / n)
    assert BudgetAccountant is not None

    def theirs():
        from diffprivlib.mechanisms import Laplace

        costs = ot.dist(X[:n], X[n:])
        if reg:
            plan = ot.sinkhorn(a, a, costs, reg, method="sinkhorn_log", stopThr=1e-6)
            cost = (plan * costs).sum() + reg * (plan * np.log(plan * n**2)).sum()
        else:
            cost = ot.emd2(a, a, costs)
        Laplace(epsilon=1.0, sensitivity=sensitivity).randomise(cost)
        return 2**0.5 * sensitivity

    contest.compare(
        "PrivateSinkhornDistance",
        f"a private cost of two groups of {n:,} records in the plane, "
        + (f"regularisation {reg}" if reg else "exact"),
        Contestant("PrivateSinkhornDistance.fit", lambda: distance.fit(X, y).standard_error_),
        [Contestant("POT and diffprivlib's Laplace", theirs, "diffprivlib")],
        {"standard deviation of the noise": float},
        tolerance=1.01 * 2**0.5 * sensitivity,
        notes={
            "POT and diffprivlib's Laplace": "the noise is floating-point, and the solver's error "
            "is not paid for"
        },
        seconds=contest.size(10.0, 3.0),
    )


LARGE = r"""
import re, time
from pathlib import Path
import numpy as np
from skdpot.transport import PointCosts, entropic_transport

rng = np.random.default_rng(0)
x, y = rng.random((20_000, 2)), rng.random((20_000, 2)) * 0.7
a = np.full(20_000, 1 / 20_000)
start = time.perf_counter()
result = entropic_transport(
    PointCosts(x, y, squared=True, high=2.0), a, a, 0.1, 1e-3 * 2.0 / 20_000, n_threads={threads}
)
seconds = time.perf_counter() - start
# The maximum that getrusage returns begins with the memory of the process that forked this one.
peak = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) // 2**10
print(f"{{seconds:.0f}} s, {{result.n_iter}} passes, peak {{peak}} MiB")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_twenty_thousand_points_in_a_gigabyte(threads):
    """A cost matrix alone would take 3 GiB, and POT holds several of its size."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE.format(threads=threads)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    print(f"\nn = m = 20,000 on {threads} thread(s): {done.stdout.strip()}")
    assert int(done.stdout.split()[-2]) < 1024
