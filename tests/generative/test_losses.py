"""The semi-debiased loss: its value, its gradients, and batches of any size."""

from functools import partial

import numpy as np
import ot
import pytest
import torch

from skdpot.generative._torch import transport as losses
from skdpot.generative._torch.transport import GroundCost, semi_debiased, sinkhorn
from tests.oracles.devices import DEVICES

pytestmark = pytest.mark.experiment

COST = GroundCost(l1_weight=0.3, class_scale=0.4)
N, M, D, REG = 5, 4, 3, 2.0
SHARES = [0.0, 0.4, 1.0]


def problem(share, *, dtype=torch.float64, device="cpu", seed=0):
    """Return generated and private points, with labels."""
    rng = np.random.default_rng(seed)
    n_points = N + int(N * share)
    X, Y = (torch.tensor(rng.uniform(-1, 1, (size, D))) for size in (n_points, M))
    labels = [torch.tensor(rng.integers(0, 3, size)) for size in (n_points, M)]
    X, Y = (rows.to(device=device, dtype=dtype) for rows in (X, Y))
    return X, labels[0].to(device), Y, labels[1].to(device)


@pytest.fixture(autouse=True)
def more_rounds(monkeypatch):
    """Let plans be nearly optimal, as the oracles are."""
    monkeypatch.setattr(losses, "sinkhorn", partial(sinkhorn, n_iter=30))


def loss_of(X, x_labels, Y, y_labels):
    return semi_debiased(X, x_labels, Y, y_labels, n=N, cost=COST, reg=REG)


def by_pot(costs):
    n, m = costs.shape
    plan = ot.bregman.sinkhorn_log(
        np.full(n, 1 / n), np.full(m, 1 / m), costs.numpy(), REG, stopThr=1e-11, numItermax=20_000
    )
    return (plan * costs.numpy()).sum() + REG * (plan * np.log(plan * n * m)).sum()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("share", SHARES)
def test_values_are_those_of_pot(device, share):
    X, x_labels, Y, y_labels = problem(share)
    loss = loss_of(*problem(share, device=device))
    private = by_pot(COST.matrix(X[:N], Y, x_labels[:N], y_labels))
    public = by_pot(COST.matrix(X[:N], X[-N:], x_labels[:N], x_labels[-N:]))
    assert loss.private_value.item() == pytest.approx(2 * private, rel=1e-9)
    assert loss.public_value.item() == pytest.approx(public, rel=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("labelled", [False, True])
def test_gradients_are_finite_differences_of_the_values(device, share, labelled):
    X, x_labels, Y, y_labels = problem(share, device=device)
    labels = (x_labels, y_labels) if labelled else (None, None)

    def loss(points):
        return loss_of(points, labels[0], Y, labels[1])

    found, step = loss(X), 1e-5
    for i, k in np.ndindex(*X.shape):
        shift = torch.zeros_like(X)
        shift[i, k] = step
        above, below = loss(X + shift), loss(X - shift)
        private = (above.private_value - below.private_value).item() / (2 * step)
        public = (below.public_value - above.public_value).item() / (2 * step)
        gradient = found.private_gradient[i, k].item() if i < N else 0.0
        assert gradient == pytest.approx(private, abs=1e-7)
        assert found.public_gradient[i, k].item() == pytest.approx(public, abs=1e-7)


@pytest.mark.parametrize("device", DEVICES)
def test_an_empty_batch_pulls_nowhere(device):
    X, x_labels, Y, y_labels = problem(0.4, device=device)
    full = loss_of(X, x_labels, Y, y_labels)
    found = loss_of(X, x_labels, Y[:0], y_labels[:0])
    assert not found.private_gradient.any() and not found.private_value.any()
    assert found.private_gradient.shape == (N, D)
    assert torch.equal(found.public_gradient, full.public_gradient)
    assert torch.equal(found.public_value, full.public_value)


def test_public_part_does_not_depend_on_private_points():
    X, x_labels, Y, y_labels = problem(0.4)
    one, other = loss_of(X, x_labels, Y, y_labels), loss_of(X, x_labels, -Y[:2], y_labels[:2])
    assert torch.equal(one.public_gradient, other.public_gradient)
    assert not torch.equal(one.private_gradient, other.private_gradient)


def test_only_the_first_points_meet_private_ones():
    X, x_labels, Y, y_labels = problem(1.0)
    moved = X.clone()
    moved[N:] += 0.1
    one, other = loss_of(X, x_labels, Y, y_labels), loss_of(moved, x_labels, Y, y_labels)
    assert torch.equal(one.private_gradient, other.private_gradient)
    assert not torch.equal(one.public_gradient, other.public_gradient)


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision(device):
    single = loss_of(*problem(0.4, dtype=torch.float32, device=device))
    double = loss_of(*problem(0.4, device=device))
    for found, expected in zip(single, double, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_default_rounds_are_enough_for_a_batch_of_labelled_images(monkeypatch):
    """Blurred squares, one half generated and the other private, with the paper's parameters."""
    rng = np.random.default_rng(0)
    images = rng.random((120, 7, 7)).repeat(4, axis=1).repeat(4, axis=2) > 0.7
    rows = torch.tensor(2.0 * images.reshape(120, 784) - 1, dtype=torch.float64)
    rows[:70] *= torch.tensor(rng.uniform(0.5, 1, (70, 784)))
    labels = torch.tensor(rng.integers(0, 10, 120))
    cost, options = GroundCost(1.0, 15.0), {"n": 50, "reg": 0.05}
    monkeypatch.setattr(losses, "sinkhorn", partial(sinkhorn, n_iter=200))
    exact = semi_debiased(rows[:70], labels[:70], rows[70:], labels[70:], cost=cost, **options)
    monkeypatch.setattr(losses, "sinkhorn", sinkhorn)
    single = rows.float()
    found = semi_debiased(single[:70], labels[:70], single[70:], labels[70:], cost=cost, **options)
    for name in ("private_gradient", "public_gradient"):
        expected = getattr(exact, name)
        assert (getattr(found, name) - expected).norm() < 0.01 * expected.norm()


def test_nothing_is_differentiated():
    X, x_labels, Y, y_labels = problem(0.4)
    loss = loss_of(X.requires_grad_(), x_labels, Y, y_labels)
    assert not any(part.requires_grad for part in loss)


def test_no_operation_depends_on_values():
    """Tensors without values would raise where a number or a branch were made of them."""
    X, x_labels, Y, y_labels = problem(0.4, device="meta")
    loss = loss_of(X, x_labels, Y, y_labels)
    assert loss.private_gradient.shape == (N, D)


@pytest.mark.parametrize("n_points", [N - 1, 2 * N + 1])
def test_numbers_of_points_that_make_no_sense(n_points):
    X, Y = torch.zeros(n_points, D), torch.zeros(M, D)
    with pytest.raises(ValueError, match=f"n to 2 n rows, got 5 and {n_points}"):
        loss_of(X, None, Y, None)
