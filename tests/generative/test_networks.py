"""Networks: shapes, sizes and first weights, those of users, and weights that come and go."""

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from skdpot.generative._torch import networks as architectures
from skdpot.generative._torch.networks import (
    RowGenerator,
    check_network,
    default_latent_dim,
    load_arrays,
    make_network,
    weights_to_arrays,
)
from tests.oracles.devices import DEVICES, NEEDS_CUDA

pytestmark = pytest.mark.experiment

CASES = [
    ("mlp", None),
    ("mlp", (4, 6, 2)),
    ("dcgan", (8, 8)),
    ("dcgan", (6, 9, 1)),
    ("dcgan", (8, 4, 3)),
    ("residual", (16, 8, 3)),
    ("residual", (5, 9, 2)),
    ("residual", (8, 8)),
]


@pytest.fixture
def narrow(monkeypatch):
    """Have networks of the published form with few maps."""
    monkeypatch.setattr(architectures, "_RESIDUAL_CHANNELS", 8)
    monkeypatch.setattr(architectures, "_DCGAN_CHANNELS", (16, 8, 4))


def make(network="auto", shape=None, *, n_features=7, n_classes=3, latent_dim=5, seed=0):
    return make_network(
        network,
        n_features=n_features if shape is None else math.prod(shape),
        n_classes=n_classes,
        latent_dim=latent_dim,
        image_shape=shape,
        seed=seed,
    )


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


@pytest.mark.parametrize(
    "name, shape, same_as",
    [
        ("auto", None, "mlp"),
        ("auto", (8, 8), "dcgan"),
        ("auto", (8, 8, 1), "dcgan"),
        ("auto", (8, 8, 3), "residual"),
    ],
)
@pytest.mark.usefixtures("narrow")
def test_the_kind_of_network_follows_the_records(name, shape, same_as):
    assert equal_weights(make(name, shape), make(same_as, shape))


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
    assert n_weights(coloured) == (
        2 * 4 + (36 * 256 * 4 * 4 + 256) + 4 * 3 * (256 * 256 * 3 * 3 + 256) + (256 * 3 * 3 * 3 + 3)
    )
    assert default_latent_dim(784, (28, 28)) == default_latent_dim(784, (28, 28, 1)) == 12
    assert default_latent_dim(3072, (32, 32, 3)) == default_latent_dim(50) == 32
    assert default_latent_dim(2) == 2


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name, shape", [("mlp", None), ("dcgan", (8, 8)), ("residual", (8, 8))])
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
    """As rows and columns of zeros and ones, a cut at the bottom and on the right shows."""
    image = torch.arange(64.0).reshape(1, 1, 8, 8)
    cut = architectures._Cropped(6, 7)(image)
    assert torch.equal(cut, image[:, :, :6, :7])
    network = make("dcgan", (6, 7))
    assert network.body[:-1](inputs_of(1)).shape == (1, 1, 8, 8)


def test_normalised_convolutions_are_those_of_torch():
    """With the same singular vectors, outputs and gradients are the same."""
    torch.manual_seed(0)
    ours = architectures._NormalisedConvolution(6)
    theirs = spectral_norm(nn.Conv2d(6, 6, 3, padding=1))
    with torch.no_grad():
        ours.bias.normal_()
        theirs.bias.copy_(ours.bias)
        theirs.parametrizations.weight.original.copy_(ours.weight)
        theirs.parametrizations.weight[0]._v.copy_(ours._right_vector(ours.left_vector))
    images = torch.randn(3, 6, 4, 4)
    for _ in range(3):
        results = [network(images) for network in (ours, theirs)]
        torch.testing.assert_close(*results)
    results[0].square().sum().backward()
    results[1].square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.parametrizations.weight.original.grad)


def test_normalised_convolutions_have_a_largest_singular_value_of_one():
    torch.manual_seed(0)
    network = architectures._NormalisedConvolution(20)
    matrix = network.weight.detach().flatten(1)
    left = network.left_vector
    largest = left @ matrix @ network._right_vector(left)
    assert 0.9 < largest / torch.linalg.matrix_norm(matrix, 2) <= 1 + 1e-6


@pytest.mark.usefixtures("narrow")
def test_records_made_after_training_do_not_depend_on_what_was_made_before():
    network, inputs = make("residual", (8, 8, 3)), inputs_of(4)
    network(inputs)
    network.eval()
    first = network(inputs)
    state = weights_to_arrays(network)
    for _ in range(3):
        network(torch.rand(9, 8))
    assert torch.equal(network(inputs), first)
    again = make("residual", (8, 8, 3), seed=1).eval()
    load_arrays(again, state)
    assert torch.equal(again(inputs), first)


@pytest.mark.usefixtures("narrow")
def test_gradients_may_wait_for_further_outputs():
    network = make("residual", (8, 8, 3))
    outputs = [network(inputs_of(4, seed=seed)) for seed in range(3)]
    sum(output.sum() for output in outputs).backward()


def user_module(n_outputs=7):
    return nn.Sequential(
        nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, n_outputs)
    )


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


def test_checks_leave_a_network_as_it_is():
    network = make(user_module())
    network.body[1].eval()
    before = pickle.dumps(network)
    check_network(network, 8)
    assert pickle.dumps(network) == before


def test_callables_are_told_the_sizes_and_start_from_the_seed():
    asked = []

    def build(n_inputs, n_features):
        asked.append((n_inputs, n_features))
        return nn.Linear(n_inputs, n_features)

    state = torch.get_rng_state()
    first, again, other = (make(build, seed=seed) for seed in (0, 0, 1))
    assert asked == [(8, 7)] * 3
    assert equal_weights(first, again) and not equal_weights(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_callables_may_build_on_the_networks_that_come_along():
    network = make(lambda n_inputs, n_features: make("mlp"))
    check_network(network, 8)
    assert equal_weights(network.body, make("mlp"))


def test_modules_may_make_images_and_anything_is_clipped():
    body = nn.Sequential(nn.Linear(8, 12), nn.Unflatten(1, (3, 2, 2)))
    with torch.no_grad():
        body[0].weight.mul_(50)
    network = make(body, (2, 2, 3))
    check_network(network, 8)
    output = network(inputs_of(50))
    assert output.shape == (50, 12)
    assert (output.min(), output.max()) == (-1, 1)


def test_outputs_have_the_precision_of_inputs():
    class Half(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs).to(torch.bfloat16)

    assert make(Half(8, 7))(inputs_of(2)).dtype == torch.float32


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
        ({"network": nn.Linear}, None, None),
        ({"network": "dcgan"}, ValueError, "network='dcgan' makes images"),
        ({"network": "residual"}, ValueError, "network='residual' makes images"),
        ({"n_features": 0}, ValueError, "at least one feature"),
        ({"latent_dim": 0}, ValueError, "at least one feature and one random number"),
        ({"n_classes": -1}, ValueError, "no negative number of classes"),
    ],
)
def test_what_can_be_a_network(options, error, message):
    if error is None:
        check_network(make(**options), 8)
        return
    with pytest.raises(error, match=message):
        make(**options)


@pytest.mark.parametrize("shape", [(7,), (7, 2), (7, 1, 1, 1), (-7, -1), (0, 7), (7, 1, 2)])
def test_impossible_shapes_of_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"image_shape must be .* with a product of 7"):
        make_network("mlp", n_features=7, n_classes=0, latent_dim=1, image_shape=shape, seed=0)
    with pytest.raises(ValueError, match=r"image_shape must be .* with a product of 7"):
        default_latent_dim(7, shape)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name, shape", [("mlp", None), ("dcgan", (8, 8)), ("residual", (8, 8))])
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


def test_the_rest_of_the_state_comes_and_goes_too():
    one, other = make(user_module()), make(user_module())
    one(inputs_of(9))
    arrays = weights_to_arrays(one)
    assert arrays["body.1.num_batches_tracked"] == 1
    load_arrays(other, arrays)
    assert equal_weights(one, other)


def changed(arrays, **changes):
    return {**arrays, **{name.replace("_", "."): array for name, array in changes.items()}}


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: {}, "of another network: 'bias', 'weight' missing, none unknown"),
        (lambda a: changed(a, more=a["bias"]), "of another network: none missing, 'more' unknown"),
        (
            lambda a: changed(a, weight=a["weight"].T),
            r"'weight' must be float32 of shape \(2, 3\), got float32 of shape \(3, 2\)",
        ),
        (
            lambda a: changed(a, bias=a["bias"].astype(np.float64)),
            r"'bias' must be float32 of shape \(2,\), got float64 of shape \(2,\)",
        ),
        (
            lambda a: changed(a, bias=np.array([0, np.nan], np.float32)),
            "in the network's weights is infinite or not a number",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_change_nothing(change, message):
    network = nn.Linear(3, 2)
    before = weights_to_arrays(network)
    with pytest.raises(ValueError, match=message):
        load_arrays(network, change({name: array + 1 for name, array in before.items()}))
    for name, array in weights_to_arrays(network).items():
        np.testing.assert_array_equal(array, before[name])


class WithMore(nn.Linear):
    def get_extra_state(self):
        return {"more": 1}


@pytest.mark.parametrize(
    "network, name", [(WithMore(3, 2), "_extra_state"), (nn.Linear(3, 2).bfloat16(), "weight")]
)
def test_states_that_no_array_can_hold_are_refused(network, name):
    with pytest.raises(ValueError, match=f"the network's '{name}' cannot be an array"):
        weights_to_arrays(network)
