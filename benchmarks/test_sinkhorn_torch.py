"""Speed of the Sinkhorn loss of training steps against geomloss, at equal accuracy.

Run with ``python -m pytest benchmarks -m benchmark -s -k sinkhorn_torch``. Nothing is
asserted about time. Everybody begins with the points, in single precision, and ends with the value
and its gradient in the points of one side. Errors are relative, to the solution of skdpot.transport
in double precision. geomloss does as many iterations as its `scaling` makes, 0.5 by default; to
each setting ours takes its smallest number of rounds for which both errors are no larger.
"""

import functools

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, zoom
from sklearn.datasets import load_digits

from benchmarks.contest import Contestant, coarsest
from skdpot.transport import entropic_transport, smallest_tolerance

pytestmark = pytest.mark.benchmark

SIZES = (50, 100, 200, 500)
SCALINGS = (0.5, 0.8, 0.95, 0.99)
N_ITER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


@functools.cache
def ground_cost():
    from skdpot.generative._torch.transport import GroundCost

    return GroundCost()


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
        import torch

        costs = ground_cost().matrix(torch.tensor(X), torch.tensor(Y))
        return X, Y, 0.01 * (costs.max() - costs.min()).item()

    return points


CASES = {
    "digits": digits,
    "grey and digits": grey_and_digits,
    "2 columns": low_dimensional(2),
    "10 columns": low_dimensional(10),
}


def ours(X, Y, reg, n_iter):
    from skdpot.generative._torch.transport import sinkhorn

    _, _, value, plan = sinkhorn(ground_cost().matrix(X, Y), reg, n_iter=n_iter)
    return value, ground_cost().gradient(X, Y, plan)


def certified(X, Y, reg):
    import torch

    costs = ground_cost().matrix(X, Y)
    shape, weights = costs.shape, [np.full(size, 1 / size) for size in costs.shape]
    tol = 2 * smallest_tolerance(*shape, costs.max().item(), reg)
    found = entropic_transport(costs.numpy(), *weights, reg, tol)
    f, g = torch.tensor(found.row_potential), torch.tensor(found.column_potential)
    plan = torch.exp((f[:, None] + g - costs) / reg) / shape.numel()
    return torch.tensor(found.cost), ground_cost().gradient(X, Y, plan)


def geomloss(X, Y, reg, scaling):
    """Return geomloss's value and gradient; its cost is half of the squared distance."""
    import torch
    from geomloss import SamplesLoss

    loss = SamplesLoss(
        "sinkhorn", p=2, blur=(reg / 2) ** 0.5, scaling=scaling, debias=False,
        backend="tensorized",
    )  # fmt: skip
    X = X.clone().requires_grad_()
    value = 2 * loss(X, Y)
    return value.detach(), torch.autograd.grad(value, X)[0]


def errors(found, exact):
    """Return the relative errors of the value and of the gradient."""
    pairs = zip(found, exact, strict=True)
    return [((one.double() - other).norm() / other.norm()).item() for one, other in pairs]


def quick_or_not():
    for case in CASES:
        for n in SIZES:
            quick = (case, n) in (("digits", 200), ("2 columns", 500))
            yield pytest.param(case, n, marks=[pytest.mark.quick] * quick)


@pytest.mark.parametrize("case, n", [*quick_or_not()])
def test_value_and_gradient(case, n, contest):
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    X, Y, reg = CASES[case](n, np.random.default_rng(0))
    X, Y = torch.tensor(X), torch.tensor(Y)
    exact = certified(X, Y, reg)
    X, Y = X.float(), Y.float()
    for scaling in SCALINGS:
        peer = Contestant(
            f"geomloss, scaling {scaling}",
            lambda scaling=scaling: geomloss(X, Y, reg, scaling),
            "geomloss",
        )
        target = errors(peer.call(), exact) if peer.is_installed else [0.0, 0.0]
        # Errors in units of those to reach, the larger of both.
        part = np.maximum(target, 1e-6)
        own = coarsest(
            N_ITER,
            lambda n_iter: ours(X, Y, reg, n_iter),
            lambda found, part=part: max(errors(found, exact) / part),
            1.0,
        )
        contest.compare(
            "DPSinkhornGenerator, loss of a training step",
            f"{case}, {n} x {n} points with {X.shape[1]} columns, value and gradient",
            Contestant("sinkhorn, as many rounds as it takes", own),
            [peer],
            {
                "error of the gradient": lambda found: errors(found, exact)[1],
                "error of the value": lambda found: errors(found, exact)[0],
            },
            seconds=1.0,
        )
