"""Speed of the Sinkhorn loss of training steps against geomloss, at equal accuracy, on one thread.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks/test_sinkhorn_torch.py -m benchmark
-s``. Nothing is asserted about time. Everybody begins with the points, in single precision, and
ends with the value and its gradient in the points of one side. Errors are relative, to the solution
of skdpot.transport in double precision. geomloss does as many iterations as its `scaling` makes,
0.5 by default; beside each setting stands our smallest number of rounds for which both errors are
no larger.
"""

import time

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, zoom
from sklearn.datasets import load_digits

from skdpot.generative._torch.costs import GroundCost
from skdpot.generative._torch.sinkhorn import DEFAULT_N_ITER, sinkhorn
from skdpot.transport import entropic_transport, smallest_tolerance

pytestmark = pytest.mark.benchmark

COST = GroundCost()
SIZES = (50, 100, 200, 500)
SCALINGS = (0.5, 0.8, 0.95, 0.99)
N_ITER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def digits(n, rng):
    """Return blurred and sharp digits of 28 times 28 pixels: late in training."""
    images = load_digits().images[rng.permutation(1797)[: 2 * n]] / 8 - 1
    images = np.clip(zoom(images, (1, 3.5, 3.5), order=1), -1, 1)
    blurred = gaussian_filter(images[:n], (0, 1, 1)) + 0.1 * rng.normal(size=(n, 28, 28))
    return np.clip(blurred, -1, 1).reshape(n, -1), images[n:].reshape(n, -1), 0.05


def grey_and_digits(n, rng):
    """Return rows that are nearly alike, and digits: early in training."""
    _, images, reg = digits(n, rng)
    common = 0.3 * rng.normal(size=784)
    return np.tanh(common + 0.3 * rng.normal(size=(n, 784))), images, reg


def low_dimensional(d):
    def points(n, rng):
        X, Y = rng.uniform(-0.8, 0.8, (n, d)), np.tanh(0.3 + 0.7 * rng.normal(size=(n, d)))
        costs = COST.matrix(torch.tensor(X), torch.tensor(Y))
        return X, Y, 0.01 * (costs.max() - costs.min()).item()

    return points


CASES = {
    "digits": digits,
    "grey and digits": grey_and_digits,
    "2 columns": low_dimensional(2),
    "10 columns": low_dimensional(10),
}


def ours(X, Y, reg, **options):
    result = sinkhorn(COST.matrix(X, Y), reg, **options)
    return result.value, COST.pull(X, Y, result.plan())


def certified(X, Y, reg):
    costs = COST.matrix(X, Y)
    shape, weights = costs.shape, [np.full(size, 1 / size) for size in costs.shape]
    tol = 2 * smallest_tolerance(*shape, costs.max().item(), reg)
    found = entropic_transport(costs.numpy(), *weights, reg, tol)
    f, g = torch.tensor(found.row_potential), torch.tensor(found.column_potential)
    plan = torch.exp((f[:, None] + g - costs) / reg) / shape.numel()
    return torch.tensor(found.cost), COST.pull(X, Y, plan)


def geomloss(X, Y, reg, scaling):
    """Return geomloss's value and gradient; its cost is half of the squared distance."""
    loss = pytest.importorskip("geomloss").SamplesLoss(
        "sinkhorn", p=2, blur=(reg / 2) ** 0.5, scaling=scaling, debias=False,
        backend="tensorized",
    )  # fmt: skip
    X = X.requires_grad_()
    value = 2 * loss(X, Y)
    return value.detach(), torch.autograd.grad(value, X)[0]


def fastest(function, *arguments, **options):
    """Return what a function returns, and its shortest time in at least three calls."""
    found, times = function(*arguments, **options), []
    while len(times) < 3 or (sum(times) < 0.1 and len(times) < 50):
        start = time.perf_counter()
        function(*arguments, **options)
        times.append(time.perf_counter() - start)
    return found, min(times)


def errors(found, exact):
    """Return the relative errors of the value and of the gradient."""
    pairs = zip(found, exact, strict=True)
    return [((one.double() - other).norm() / other.norm()).item() for one, other in pairs]


def row(name, found_errors, seconds, more=""):
    value, gradient = found_errors
    return f"  {name:16s} {1e3 * seconds:8.2f} ms  value {value:.0e} gradient {gradient:.1e}{more}"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient(case, n):
    pytest.importorskip("geomloss")
    X, Y, reg = CASES[case](n, np.random.default_rng(0))
    X, Y = torch.tensor(X), torch.tensor(Y)
    exact = certified(X, Y, reg)
    X, Y = X.float(), Y.float()
    reached = {}
    for n_iter in N_ITER:
        found, seconds = fastest(ours, X, Y, reg, n_iter=n_iter)
        reached[n_iter] = errors(found, exact), seconds
    print(f"\n{case}: n = m = {n}, d = {X.shape[1]}, reg = {reg:.3g}, value {exact[0].item():.4g}")
    print(row(f"{DEFAULT_N_ITER} rounds", *reached[DEFAULT_N_ITER]))
    for scaling in SCALINGS:
        found, theirs = fastest(geomloss, X, Y, reg, scaling)
        target = errors(found, exact)
        enough = [
            (n_iter, *result)
            for n_iter, result in reached.items()
            if all(np.less_equal(result[0], target))
        ]
        if not enough:
            print(row(f"geomloss {scaling}", target, theirs, "  (more accurate than any of ours)"))
            continue
        n_iter, own, seconds = enough[0]
        print(row(f"geomloss {scaling}", target, theirs))
        print(row(f"    {n_iter} rounds", own, seconds, f"  {theirs / seconds:6.1f} x faster"))
