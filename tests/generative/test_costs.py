"""Costs between rows, and their gradients averaged over a plan."""

import itertools

import pytest
import torch

from skdpot.generative._torch import transport as module
from skdpot.generative._torch.transport import GroundCost
from tests.oracles.devices import DEVICES

pytestmark = pytest.mark.experiment

WEIGHTS = [(0.0, 0.0), (0.7, 0.0), (0.0, 1.5), (0.7, 1.5)]


def random_rows(n, d, *, seed=0, dtype=torch.float64, device="cpu"):
    rows = torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * rows - 1).to(device=device, dtype=dtype)


def random_labels(n, *, seed=0, device="cpu"):
    labels = torch.randint(3, (n,), generator=torch.Generator().manual_seed(seed))
    return labels.to(device)


def appended(rows, labels, scale):
    """Return rows with their labels appended, as the paper defines the cost."""
    if labels is None:
        return rows
    return torch.cat([rows, scale * torch.nn.functional.one_hot(labels, 3).to(rows)], dim=1)


def by_definition(cost, X, Y, x_labels=None, y_labels=None):
    X, Y = appended(X, x_labels, cost.class_scale), appended(Y, y_labels, cost.class_scale)
    differences = X[:, None] - Y
    return differences.square().sum(dim=2) + cost.l1_weight * differences.abs().sum(dim=2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("l1_weight, class_scale", WEIGHTS)
@pytest.mark.parametrize("labelled", [False, True])
def test_costs_are_those_of_rows_with_labels_appended(device, l1_weight, class_scale, labelled):
    cost = GroundCost(l1_weight, class_scale)
    X, Y = random_rows(7, 5, seed=1, device=device), random_rows(4, 5, seed=2, device=device)
    labels = (random_labels(7, seed=1, device=device), random_labels(4, seed=2, device=device))
    labels = labels if labelled else (None, None)
    expected = by_definition(cost, X, Y, *labels)
    torch.testing.assert_close(cost.matrix(X, Y, *labels), expected)
    assert cost.matrix(X.float(), Y.float(), *labels).dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
def test_single_precision_keeps_small_distances_far_from_the_origin(device):
    """Images are mostly background, which is -1, and so all of them lie in one corner."""
    X = (0.01 * random_rows(20, 784, seed=1, device=device) - 1).float()
    Y = (0.01 * random_rows(20, 784, seed=2, device=device) - 1).float()
    found = GroundCost().matrix(X, Y).double()
    expected = by_definition(GroundCost(), X.double(), Y.double())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_costs_are_never_negative_and_nearly_zero_between_equal_rows():
    X = random_rows(50, 784).float()
    costs = GroundCost(1.0, 15.0).matrix(X, X, random_labels(50), random_labels(50))
    assert costs.min() >= 0
    assert costs.diagonal().max() < 1e-3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("l1_weight, class_scale", WEIGHTS)
def test_pull_is_the_gradient_of_the_weighted_sum_of_costs(device, l1_weight, class_scale):
    cost = GroundCost(l1_weight, class_scale)
    X, Y = random_rows(7, 5, seed=1, device=device), random_rows(4, 5, seed=2, device=device)
    weights = random_rows(7, 4, seed=3, device=device)
    X.requires_grad_()
    (weights * by_definition(cost, X, Y)).sum().backward()
    found = cost.pull(X, Y, weights)
    torch.testing.assert_close(found, X.grad)
    assert not found.requires_grad


def test_l1_part_has_slope_zero_between_equal_coordinates():
    X, Y = torch.tensor([[0.5, 0.0]]), torch.tensor([[0.5, 1.0]])
    assert GroundCost(2.0).pull(X, Y, torch.ones(1, 1)).tolist() == [[0.0, -4.0]]


@pytest.mark.parametrize("size", [1, 50, 100])
def test_blocks_change_nothing(monkeypatch, size):
    cost = GroundCost(0.7, 1.5)
    X, Y, weights = random_rows(7, 5), random_rows(4, 5, seed=2), random_rows(7, 4, seed=3)
    whole = cost.matrix(X, Y), cost.pull(X, Y, weights)
    monkeypatch.setattr(module, "_BLOCK_IN_CACHE", size)
    torch.testing.assert_close((cost.matrix(X, Y), cost.pull(X, Y, weights)), whole)


@pytest.mark.parametrize("n, m", [(0, 3), (3, 0)])
def test_no_rows_have_no_costs_and_no_pull(n, m):
    cost = GroundCost(0.7)
    X, Y = random_rows(n, 5), random_rows(m, 5)
    assert cost.matrix(X, Y).shape == (n, m)
    assert torch.equal(cost.pull(X, Y, torch.ones(n, m, dtype=torch.float64)), torch.zeros(n, 5))


@pytest.mark.parametrize("l1_weight, class_scale", WEIGHTS)
@pytest.mark.parametrize("has_classes", [False, True])
def test_largest_cost_is_that_of_opposite_corners(l1_weight, class_scale, has_classes):
    cost = GroundCost(l1_weight, class_scale)
    corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=3)), dtype=torch.float64)
    costs = [cost.matrix(corners, corners)]
    if has_classes:
        ones = torch.ones(len(corners), dtype=torch.long)
        costs.append(cost.matrix(corners, corners, ones, 1 - ones))
    assert cost.largest(3, has_classes) == pytest.approx(max(c.max().item() for c in costs))
