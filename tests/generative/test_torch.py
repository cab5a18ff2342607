"""Networks, and transport between generated points and records."""

import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import ot
import pytest
import torch
from torch import nn

from skdpot.generative import NetworkTraining
from skdpot.generative._encoders import RecordSpace
from skdpot.generative._torch import networks as architectures
from skdpot.generative._torch import transport as module
from skdpot.generative._torch.networks import (
    RowGenerator,
    check_network,
    default_latent_dim,
    load_arrays,
    weights_to_arrays,
)
from skdpot.generative._torch.training import Trainer
from skdpot.generative._torch.transport import GroundCost, semi_debiased, sinkhorn
from tests.oracles.devices import DEVICES, NEEDS_CUDA

pytestmark = pytest.mark.experiment

by_device = pytest.mark.parametrize("device", DEVICES)
by_weights = pytest.mark.parametrize(
    "l1_weight, class_scale", [(0.0, 0.0), (0.7, 0.0), (0.0, 1.5), (0.7, 1.5)]
)
COST = GroundCost(l1_weight=0.3, class_scale=0.4)
N, M, D, REG = 5, 4, 3, 2.0


def random_rows(n, d, *, seed=0, device="cpu"):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.uniform(-1, 1, (n, d)), device=device)


def appended(rows, labels, scale):
    """Return rows with their labels appended, as the paper defines the cost."""
    if labels is None:
        return rows
    return torch.cat([rows, scale * torch.nn.functional.one_hot(labels, 3).to(rows)], dim=1)


def by_definition(cost, X, Y, x_labels=None, y_labels=None):
    X, Y = appended(X, x_labels, cost.class_scale), appended(Y, y_labels, cost.class_scale)
    differences = X[:, None] - Y
    return differences.square().sum(dim=2) + cost.l1_weight * differences.abs().sum(dim=2)


def uniform(n):
    return np.full(n, 1 / n)


def value_by_pot(costs, reg):
    """Return the cost of POT, whose entropy is not relative to the weights."""
    costs, (mu, nu) = costs.cpu().numpy(), map(uniform, costs.shape)
    plan = ot.bregman.sinkhorn_log(mu, nu, costs, reg, stopThr=1e-11, numItermax=20_000)
    return (plan * costs).sum() + reg * (plan * np.log(plan / np.outer(mu, nu))).sum(), plan


# Costs
# -----


@by_device
@by_weights
@pytest.mark.parametrize("labelled", [False, True])
def test_costs_are_those_of_rows_with_labels_appended(device, l1_weight, class_scale, labelled):
    cost = GroundCost(l1_weight, class_scale)
    X, Y = random_rows(7, 5, seed=1, device=device), random_rows(4, 5, seed=2, device=device)
    labels = torch.arange(7, device=device) % 3, torch.arange(4, device=device) % 3
    labels = labels if labelled else (None, None)
    torch.testing.assert_close(cost.matrix(X, Y, *labels), by_definition(cost, X, Y, *labels))
    assert cost.matrix(X.float(), Y.float(), *labels).dtype == torch.float32
    assert cost.matrix(X, X).min() >= 0


@by_device
@by_weights
def test_pull_is_the_gradient_of_the_weighted_sum_of_costs(
    device, l1_weight, class_scale, monkeypatch
):
    monkeypatch.setattr(module, "_BLOCK_IN_CACHE", 50)
    cost = GroundCost(l1_weight, class_scale)
    X, Y = random_rows(7, 5, seed=1, device=device), random_rows(4, 5, seed=2, device=device)
    weights = random_rows(7, 4, seed=3, device=device)
    X.requires_grad_()
    (weights * by_definition(cost, X, Y)).sum().backward()
    found = cost.gradient(X, Y, weights)
    torch.testing.assert_close(found, X.grad)
    assert not found.requires_grad
    assert not cost.gradient(X, Y[:0], weights[:, :0]).any()


@by_weights
@pytest.mark.parametrize("has_classes", [False, True])
def test_largest_cost_is_that_of_opposite_corners(l1_weight, class_scale, has_classes):
    cost = GroundCost(l1_weight, class_scale)
    corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=3)), dtype=torch.float64)
    ones = torch.ones(len(corners), dtype=torch.long)
    labels = (ones, 1 - ones) if has_classes else (None, None)
    expected = cost.matrix(corners, corners, *labels).max().item()
    assert cost.largest(3, has_classes) == pytest.approx(expected)


# Sinkhorn's updates
# ------------------


def random_costs(n, m, *, seed=0, scale=1.0, dtype=torch.float64, device="cpu"):
    rng = np.random.default_rng(seed)
    costs = ((rng.normal(size=(n, 1, 2)) - rng.normal(size=(m, 2))) ** 2).sum(axis=2)
    return torch.tensor(scale * costs).to(device=device, dtype=dtype)


@by_device
@pytest.mark.parametrize("reg", [0.1, 1.0, 100.0])
def test_value_and_plan_are_those_of_pot(device, reg):
    costs = random_costs(8, 6, device=device)
    expected, plan = value_by_pot(costs, reg)
    f, g, value, found = sinkhorn(costs, reg, n_iter=40)
    assert value.item() == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(found.cpu(), plan, atol=1e-8)
    density = torch.exp((f[:, None] + g - costs) / reg).cpu()
    np.testing.assert_allclose(density / 48, plan, atol=1e-8)
    # The same bits every time.
    assert torch.equal(found, sinkhorn(costs.clone(), reg, n_iter=40)[3])


def test_little_regularisation_gives_the_transport_cost():
    costs = random_costs(12, 9)
    expected = ot.emd2(uniform(12), uniform(9), costs.numpy())
    value = sinkhorn(costs, 1e-4, n_iter=100)[2].item()
    # The divergence of a plan is at most the logarithm of the larger number of points.
    assert expected - 1e-6 <= value <= expected + 1e-4 * math.log(12)


@by_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_iter", [1, 2, 16])
def test_values_are_dual_objectives_and_stay_finite(device, dtype, n_iter):
    """However early rounds stop, and however small the regularisation."""
    costs = random_costs(30, 40, scale=1e4, dtype=dtype, device=device)
    _, _, value, plan = sinkhorn(costs, 1e-2, n_iter=n_iter)
    transport = ot.emd2(uniform(30), uniform(40), costs.cpu().double().numpy())
    assert plan.isfinite().all()
    np.testing.assert_allclose(plan.sum(dim=1).cpu(), uniform(30), rtol=1e-4)
    assert value.item() <= transport + 1e-2 * math.log(40) + 1e-5 * costs.max().item()


@pytest.mark.parametrize("seed", range(0, 10, 3))
def test_scalings_stay_in_the_range_of_single_precision(seed):
    """However many updates a kernel is kept for, however far it is from its marginals."""
    generator = torch.Generator().manual_seed(seed)
    costs = 10.0**seed * torch.rand(20, 30, generator=generator)
    found = sinkhorn(costs, 1e-2, n_iter=1, kept_updates=500)
    assert all(part.isfinite().all() for part in found)


@NEEDS_CUDA
def test_nothing_waits_for_the_gpu():
    costs = random_costs(20, 20, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        sinkhorn(costs, 0.1)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# The loss
# --------


def problem(share, *, device="cpu"):
    """Return generated and private points, with labels."""
    rng = np.random.default_rng(0)
    n_points = N + int(N * share)
    X, Y = (torch.tensor(rng.uniform(-1, 1, (size, D))) for size in (n_points, M))
    labels = [torch.tensor(rng.integers(0, 3, size)) for size in (n_points, M)]
    return X.to(device), labels[0].to(device), Y.to(device), labels[1].to(device)


@pytest.fixture
def more_rounds(monkeypatch):
    """Let plans be nearly optimal, as the oracles are."""
    monkeypatch.setattr(module, "sinkhorn", partial(sinkhorn, n_iter=30))


def loss_of(X, x_labels, Y, y_labels):
    return semi_debiased(X, x_labels, Y, y_labels, n=N, cost=COST, reg=REG)


@by_device
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_gradients_are_finite_differences_of_the_values(device, share, more_rounds):
    X, x_labels, Y, y_labels = problem(share, device=device)
    private, public, private_gradient, public_gradient = loss_of(X, x_labels, Y, y_labels)
    expected, _ = value_by_pot(COST.matrix(X[:N], Y, x_labels[:N], y_labels), REG)
    assert private.item() == pytest.approx(2 * expected, rel=1e-9)
    expected, _ = value_by_pot(COST.matrix(X[:N], X[-N:], x_labels[:N], x_labels[-N:]), REG)
    assert public.item() == pytest.approx(expected, rel=1e-9)
    for i, k in np.ndindex(*X.shape):
        shift = torch.zeros_like(X)
        shift[i, k] = 1e-5
        above, below = (loss_of(X + sign * shift, x_labels, Y, y_labels) for sign in (1, -1))
        slopes = [(above[part] - below[part]).item() / 2e-5 for part in (0, 1)]
        gradient = private_gradient[i, k].item() if i < N else 0.0
        assert gradient == pytest.approx(slopes[0], abs=1e-7)
        assert public_gradient[i, k].item() == pytest.approx(-slopes[1], abs=1e-7)


def test_each_part_depends_on_its_own_points_alone():
    X, x_labels, Y, y_labels = problem(1.0)
    full = loss_of(X, x_labels, Y, y_labels)
    other = loss_of(X, x_labels, -Y[:2], y_labels[:2])
    empty = loss_of(X, x_labels, Y[:0], y_labels[:0])
    for found in (other, empty):
        assert torch.equal(found[1], full[1]) and torch.equal(found[3], full[3])
    assert not torch.equal(other[2], full[2])
    assert not empty[0].any() and not empty[2].any() and empty[2].shape == (N, D)
    # Only the first generated points meet private ones.
    moved = X.clone()
    moved[N:] += 0.1
    found = loss_of(moved, x_labels, Y, y_labels)
    assert torch.equal(found[2], full[2]) and not torch.equal(found[3], full[3])
    assert not any(p.requires_grad for p in loss_of(X.requires_grad_(), x_labels, Y, y_labels))


def test_default_rounds_are_enough_for_a_batch_of_labelled_images(monkeypatch):
    """Blurred squares, one half generated and the other private, with the paper's parameters."""
    rng = np.random.default_rng(0)
    images = rng.random((120, 7, 7)).repeat(4, axis=1).repeat(4, axis=2) > 0.7
    rows = torch.tensor(2.0 * images.reshape(120, 784) - 1, dtype=torch.float64)
    rows[:70] *= torch.tensor(rng.uniform(0.5, 1, (70, 784)))
    labels = torch.tensor(rng.integers(0, 10, 120))
    options = {"n": 50, "reg": 0.05, "cost": GroundCost(1.0, 15.0)}
    single = rows.float()
    found = semi_debiased(single[:70], labels[:70], single[70:], labels[70:], **options)
    monkeypatch.setattr(module, "sinkhorn", partial(sinkhorn, n_iter=200))
    exact = semi_debiased(rows[:70], labels[:70], rows[70:], labels[70:], **options)
    for part in (2, 3):
        assert (found[part] - exact[part]).norm() < 0.01 * exact[part].norm()


def test_no_operation_depends_on_values():
    """Tensors without values would raise where a number or a branch were made of them."""
    assert loss_of(*problem(0.4, device="meta"))[2].shape == (N, D)


CASES = [
    ("mlp", None),
    ("mlp", (4, 6, 2)),
    ("dcgan", (8, 8)),
    ("dcgan", (6, 9, 1)),
    ("dcgan", (8, 4, 3)),
    ("dcgan", (5, 9, 2)),
]


@pytest.fixture
def narrow(monkeypatch):
    """Have networks of the published form with few maps."""
    monkeypatch.setattr(architectures, "_DCGAN_CHANNELS", (16, 8, 4))


def make(network="auto", shape=None, *, n_features=7, n_classes=3, latent_dim=5, seed=0):
    size = n_features if shape is None else math.prod(shape)
    classes = np.arange(n_classes) if n_classes else None
    image_shape = None if shape is None else (*shape, 1)[:3]
    space = RecordSpace((np.zeros(size), np.ones(size)), image_shape, classes)
    return Trainer(NetworkTraining(network, latent_dim=latent_dim), space).new_network(seed)


def inputs_of(n, n_classes=3, latent_dim=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    latent = torch.rand((n, latent_dim), generator=generator)
    labels = torch.arange(n) % max(n_classes, 1)
    return torch.cat([latent, torch.eye(n_classes)[labels]] if n_classes else [latent], dim=1)


def n_weights(network):
    return sum(weight.numel() for weight in network.parameters())


def equal_weights(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_classes", [0, 3])
@pytest.mark.parametrize("name, shape", CASES)
def test_outputs_are_rows_from_minus_one_to_one(name, shape, n_classes, device):
    network = make(name, shape, n_classes=n_classes).to(device)
    inputs = inputs_of(6, n_classes).to(device)
    output = network(inputs)
    assert output.shape == (6, 7 if shape is None else math.prod(shape))
    assert (output.dtype, output.device.type) == (torch.float32, device)
    assert output.abs().max() <= 1
    check_network(network, inputs.shape[1])


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name, shape", CASES)
def test_records_differ_by_their_numbers_and_classes_and_not_by_their_neighbours(name, shape):
    network = make(name, shape).eval()
    inputs = inputs_of(6)
    inputs[1] = inputs[0]
    inputs[1, 5:] = torch.tensor([0.0, 0.0, 1.0])
    output = network(inputs)
    assert (output[:, None] - output[None]).abs().amax(dim=2).fill_diagonal_(1.0).min() > 1e-4
    for k in range(6):
        torch.testing.assert_close(network(inputs[k : k + 1])[0], output[k])


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("shape, same_as", [(None, "mlp"), ((8, 8), "dcgan"), ((8, 8, 3), "dcgan")])
def test_the_kind_of_network_follows_the_records(shape, same_as):
    assert equal_weights(make("auto", shape), make(same_as, shape))


def test_published_sizes():
    """Counted by hand from what is published: layers, maps, kernels, and numbers that go in."""
    grey = make("auto", (28, 28), n_classes=10, latent_dim=12)
    assert grey.image_shape == (28, 28, 1)
    assert n_weights(grey) == (
        10 * 4
        + (16 * 256 * 7 * 7 + 256)
        + (256 * 128 * 4 * 4 + 128)
        + (128 * 64 * 4 * 4 + 64)
        + (64 * 1 * 3 * 3 + 1)
    )
    assert grey(inputs_of(2, n_classes=10, latent_dim=12)).shape == (2, 784)
    coloured = make("auto", (32, 32, 3), n_classes=2, latent_dim=32)
    assert coloured(inputs_of(2, n_classes=2, latent_dim=32)).shape == (2, 3072)
    assert default_latent_dim(784, (28, 28, 1)) == 12
    assert default_latent_dim(3072, (32, 32, 3)) == default_latent_dim(50) == 32
    assert default_latent_dim(2) == 2


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name, shape", [("mlp", None), ("dcgan", (8, 8))])
def test_first_weights_follow_from_the_seed_alone(name, shape):
    first = make(name, shape)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    assert equal_weights(first, make(name, shape))
    assert not equal_weights(first, make(name, shape, seed=1))
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            assert equal_weights(first, make(name, shape))
        check_network(first, 8)
    finally:
        torch.set_default_dtype(default)
    assert torch.equal(torch.get_rng_state(), state)
    assert {weight.dtype for weight in first.parameters()} == {torch.float32}


@NEEDS_CUDA
def test_generators_of_gpus_stay_as_they_are():
    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state()
    check_network(make(), 8)
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_first_weights_follow_from_the_seed_in_threads_too():
    expected = [make(seed=seed) for seed in range(16)]
    state = torch.get_rng_state()
    with ThreadPoolExecutor(4) as executor:
        found = list(executor.map(lambda seed: make(seed=seed), range(16)))
    assert all(map(equal_weights, found, expected))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name, shape", CASES)
def test_networks_can_be_pickled_and_trained(name, shape):
    network = make(name, shape)
    assert equal_weights(network, pickle.loads(pickle.dumps(network)))
    inputs, target = inputs_of(6), torch.linspace(-0.5, 0.5, 6)[:, None]
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (network(inputs) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(weight.grad.abs().max() > 0 for weight in network.parameters())


def test_images_are_in_rows_with_their_channels_last():
    images = torch.rand(2, 3, 4, 5)
    rows = RowGenerator(nn.Unflatten(1, (3, 4, 5)), 60, (4, 5, 3))(images.flatten(1))
    expected = np.moveaxis(images.numpy(), 1, -1).reshape(2, -1)
    np.testing.assert_array_equal(rows.numpy(), expected)


def test_images_of_other_sizes_are_cut():
    """The rest is at the bottom and on the right."""
    network = make("dcgan", (6, 7)).eval()
    uncut, cut = network.body[:-1](inputs_of(1)), network.body(inputs_of(1))
    assert uncut.shape == (1, 1, 8, 8) and torch.equal(cut, uncut[..., :6, :7])


def user_module(n_outputs=7):
    last = nn.Linear(4, n_outputs)
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), last)


def test_modules_are_copied_with_their_weights():
    module = user_module().double()
    before = pickle.dumps(module)
    network = make(module)
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    for own, copied in zip(module.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(own.float(), copied, rtol=0, atol=0)
    state = torch.get_rng_state()
    check_network(network, 8)
    assert torch.equal(torch.get_rng_state(), state)
    network(inputs_of(5)).sum().backward()
    torch.optim.SGD(network.parameters(), lr=1.0).step()
    assert pickle.dumps(module) == before


def test_callables_are_told_the_sizes_and_start_from_the_seed():
    asked = []

    def build(n_inputs, n_features):
        asked.append((n_inputs, n_features))
        return nn.Linear(n_inputs, n_features)

    state = torch.get_rng_state()
    first, again, other = (make(build, seed=seed) for seed in (0, 0, 1))
    assert asked == [(8, 7)] * 3
    check_network(first, 8)
    check_network(make(nn.Linear), 8)
    assert equal_weights(first, again) and not equal_weights(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_modules_may_make_images_and_anything_is_clipped():
    body = nn.Sequential(nn.Linear(8, 12), nn.Unflatten(1, (3, 2, 2)))
    with torch.no_grad():
        body[0].weight.mul_(50)
    network = make(body, (2, 2, 3))
    check_network(network, 8)
    output = network(inputs_of(50))
    assert output.shape == (50, 12)
    assert (output.min(), output.max()) == (-1, 1)


class Odd(nn.Module):
    """A module that makes of its output what it is told to."""

    def __init__(self, change):
        super().__init__()
        self.linear = nn.Linear(8, 12)
        self.change = change

    def forward(self, inputs):
        return self.change(self.linear(inputs))


class FailsInTraining(nn.Linear):
    def forward(self, inputs):
        if self.training:
            raise RuntimeError("not while training")
        return super().forward(inputs)


@pytest.mark.parametrize(
    "body, shape, message",
    [
        (nn.Linear(8, 9), None, r"return shape \(2, 12\) for 2 rows, got \(2, 9\)"),
        (nn.Linear(8, 9), (2, 2, 3), r"shape \(2, 12\) or \(2, 3, 2, 2\) for 2 rows, got \(2, 9\)"),
        (Odd(lambda x: x.reshape(2, 3, 2, 2)), None, r"for 2 rows, got \(2, 3, 2, 2\)"),
        (Odd(lambda x: x.reshape(2, 2, 2, 3)), (2, 2, 3), r"for 2 rows, got \(2, 2, 2, 3\)"),
        (Odd(lambda x: x[:1]), None, r"got \(1, 12\)"),
        (Odd(lambda x: (x, x)), None, "for 2 rows, got tuple"),
        (Odd(lambda x: x.detach()), None, "has no gradient to train its weights by"),
        (Odd(lambda x: x.round().long()), None, "has no gradient to train its weights by"),
        (Odd(lambda x: x * math.nan), None, "in the network's output is infinite or not a number"),
        (
            Odd(lambda x: x.square().sub(x.square()).sqrt()),
            None,
            "in the network's gradient is infinite",
        ),
        (
            Odd(lambda x: x.exp().mul_(2)),
            None,
            "fails on an input of shape .* modified by an inplace",
        ),
        (nn.Linear(9, 12), None, r"fails on an input of shape \(2, 8\)"),
        (FailsInTraining(8, 12), None, "not while training"),
        (nn.LazyLinear(12), None, "has weights without a shape"),
        (nn.Identity(), None, "has no weights to train"),
        (nn.Linear(8, 12).requires_grad_(False), None, "has no weights to train"),
    ],
)
def test_networks_that_cannot_be_trained_are_found_before(body, shape, message):
    with pytest.raises(ValueError, match=message):
        check_network(make(body, shape, n_features=12), 8)


@pytest.mark.parametrize("part", ["weight", "running_var"])
def test_weights_that_are_no_numbers_are_found_before(part):
    module = user_module()
    getattr(module[1], part).detach()[0] = math.inf
    with pytest.raises(ValueError, match="in the network's weights is infinite or not a number"):
        check_network(make(module), 8)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"network": "gan"}, ValueError, 'network must be "auto", "mlp"'),
        ({"network": None}, TypeError, "network must be a name"),
        ({"network": lambda n_inputs, n_features: 3}, TypeError, "return a torch.nn.Module, got 3"),
        ({"network": "dcgan"}, ValueError, "network='dcgan' makes images"),
    ],
)
def test_what_cannot_be_a_network(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name, shape", [("mlp", None), ("dcgan", (8, 8))])
def test_weights_come_and_go(name, shape, device):
    one, other = make(name, shape).to(device), make(name, shape, seed=1).to(device)
    arrays = weights_to_arrays(one)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    with torch.no_grad():
        for weight in one.parameters():
            weight.add_(1.0)
    for array in arrays.values():
        array.flags.writeable = False
    load_arrays(other, arrays)
    assert equal_weights(other.cpu(), make(name, shape))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: {}, "of another network: .*Missing key"),
        (lambda a: a | {"more": a["bias"]}, "of another network: .*Unexpected key"),
        (lambda a: a | {"weight": a["weight"].T}, "of another network: .*size mismatch"),
        (lambda a: a | {"bias": a["bias"] * np.nan}, "weights is infinite or not a number"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    network = nn.Linear(3, 2)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_arrays(network, change(weights_to_arrays(network)))


class WithMore(nn.Linear):
    def get_extra_state(self):
        return {"more": 1}


@pytest.mark.parametrize(
    "network, name", [(WithMore(3, 2), "_extra_state"), (nn.Linear(3, 2).bfloat16(), "weight")]
)
def test_states_that_no_array_can_hold_are_refused(network, name):
    with pytest.raises(ValueError, match=f"the network's '{name}' cannot be an array"):
        weights_to_arrays(network)
