"""Networks that make records from random numbers: perceptrons, a published one for images, users'.

None of ours normalises batches, so a record depends on its own input only. Layers start as
PyTorch's do, with small signals. If signals keep their size from layer to layer, the published
learning rate of 1e-4 is too high for images of digits: after fifty steps all were about the same.
"""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch import nn

_DCGAN_CHANNELS = (256, 128, 64)
_transposed = partial(nn.ConvTranspose2d, dtype=torch.float32)


def perceptron(latent_dim: int, n_classes: int, n_features: int) -> nn.Module:
    """Return a network for vectors, with two hidden layers.

    The output has the shape (n, n_features).

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import perceptron
    >>> perceptron(3, 2, n_features=7)(torch.rand(4, 5)).shape
    torch.Size([4, 7])
    """
    hidden_units = 256
    return nn.Sequential(
        nn.Linear(latent_dim + n_classes, hidden_units, dtype=torch.float32),
        nn.ReLU(),
        nn.Linear(hidden_units, hidden_units, dtype=torch.float32),
        nn.ReLU(),
        nn.Linear(hidden_units, n_features, dtype=torch.float32),
        nn.Tanh(),
    )


def dcgan(latent_dim: int, n_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Return the published network [1]_ of transposed convolutions.

    `image_shape` is (height, width, channels). The output has the shape (n, channels, height,
    width).

    Notes
    -----
    It makes a map of a quarter of the image's size of the input, in which a class is embedded in 4
    dimensions, and doubles it twice by transposed convolutions. Where the size is no multiple,
    images are cut at the bottom and on the right.

    References
    ----------
    .. [1] T. Cao, A. Bie, A. Vahdat, S. Fidler and K. Kreis, "Don't Generate Me: Training
       Differentially Private Generative Models with Sinkhorn Divergence", NeurIPS 2021.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import dcgan
    >>> dcgan(3, 2, (28, 28, 1))(torch.rand(4, 5)).shape
    torch.Size([4, 1, 28, 28])
    """
    height, width, channels = image_shape
    first, second, third = _DCGAN_CHANNELS
    inputs = _Inputs(latent_dim, n_classes)
    return nn.Sequential(
        inputs,
        nn.Unflatten(1, (inputs.n_outputs, 1, 1)),
        _transposed(inputs.n_outputs, first, (math.ceil(height / 4), math.ceil(width / 4))),
        nn.ReLU(),
        _transposed(first, second, 4, stride=2, padding=1),
        nn.ReLU(),
        _transposed(second, third, 4, stride=2, padding=1),
        nn.ReLU(),
        _transposed(third, channels, 3, padding=1),
        nn.Tanh(),
        # Cropped at the bottom and on the right: the maps are multiples of four.
        nn.ZeroPad2d((0, -(-width % 4), 0, -(-height % 4))),
    )


class _Inputs(nn.Module):
    """Random numbers as they are, and behind them the class, embedded."""

    def __init__(self, latent_dim: int, n_classes: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.n_outputs = latent_dim
        self.embedding: nn.Module = nn.Identity()
        if n_classes:
            # The published sizes of the classes' embedding, and of the maps between the transposed
            # convolutions.
            embedding_dim = 4
            self.n_outputs += embedding_dim
            self.embedding = nn.Linear(n_classes, embedding_dim, bias=False, dtype=torch.float32)
            nn.init.normal_(self.embedding.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        latent, labels = inputs[:, : self.latent_dim], inputs[:, self.latent_dim :]
        return torch.cat([latent, self.embedding(labels)], dim=1)


def named_network(
    name: str,
    n_features: int,
    n_classes: int,
    latent_dim: int,
    image_shape: tuple[int, int, int] | None,
) -> nn.Module:
    """Return the network of this name, or raise.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import named_network
    >>> named_network("auto", 64, 0, 5, (8, 8, 1))(torch.rand(3, 5)).shape
    torch.Size([3, 1, 8, 8])
    """
    if name == "auto":
        name = "mlp" if image_shape is None else "dcgan"
    if name == "mlp":
        return perceptron(latent_dim, n_classes, n_features)
    if name != "dcgan":
        raise ValueError(
            'network must be "auto", "mlp", "dcgan", a torch.nn.Module or a callable, '
            f"got {name!r}."
        )
    if image_shape is None:
        raise ValueError("network='dcgan' makes images, and needs an image_shape.")
    return dcgan(latent_dim, n_classes, image_shape)


# Fits in several threads would draw from, and restore, each other's state of PyTorch.
_STATE_OF_TORCH = RLock()


def default_latent_dim(n_features: int, image_shape: tuple[int, int, int] | None = None) -> int:
    """Return how many random numbers a record is made of, unless the user says.

    For images these are the published choices: 12 for one channel, 32 for several. For vectors it
    is `n_features`, and at most 32.

    Examples
    --------
    >>> from skdpot.generative._torch.networks import default_latent_dim
    >>> default_latent_dim(784, (28, 28, 1)), default_latent_dim(5)
    (12, 5)
    """
    if image_shape is None:
        return min(n_features, 32)
    return 12 if image_shape[2] == 1 else 32


class RowGenerator(nn.Module):
    """A network whose output is a row of numbers from -1 to 1 for every row of its input.

    Parameters
    ----------
    body : torch.nn.Module
        Its output has one row for every row of its input, or one image, whose channels come first.
        Outputs beyond -1 and 1 are clipped, and have no gradient.
    n_features : int
        Numbers in a row.
    image_shape : tuple of three int, default=None
        (height, width, channels), the order of an image in its row; None without images.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import RowGenerator
    >>> RowGenerator(torch.nn.Identity(), n_features=2)(torch.tensor([[0.5, -3.0]]))
    tensor([[ 0.5000, -1.0000]])
    """

    def __init__(
        self, body: nn.Module, n_features: int, image_shape: tuple[int, int, int] | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.n_features = n_features
        self.image_shape = image_shape

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a row for every row of the input.

        An input has random numbers, with the one-hot label behind them. The result has the
        precision of the input. Raises a ValueError if the network's output has another shape.
        """
        output = self.body(inputs)
        return self._as_rows(output, len(inputs)).clamp(-1.0, 1.0).to(inputs.dtype)

    def _as_rows(self, output: Any, n: int) -> torch.Tensor:
        """Return the output with every record in a row, its channels last."""
        shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        expected = f"({n}, {self.n_features})"
        if shape == (n, self.n_features):
            return output
        if self.image_shape is not None:
            height, width, channels = self.image_shape
            if shape == (n, channels, height, width):
                return output.permute(0, 2, 3, 1).flatten(1)
            expected += f" or ({n}, {channels}, {height}, {width})"
        raise ValueError(f"the network must return shape {expected} for {n} rows, got {shape}.")


def check_network(network: RowGenerator, n_inputs: int) -> None:
    """Check that a network can be trained and can make records, before anything is spent on it.

    A copy of the network is tried. Raises a ValueError if it has nothing to train, fails, has an
    output of a wrong shape or without a gradient, or if anything in it is infinite or not a number.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import RowGenerator, check_network
    >>> check_network(RowGenerator(torch.nn.Linear(3, 2), n_features=2), n_inputs=3)
    >>> check_network(RowGenerator(torch.nn.Linear(3, 2), n_features=2), n_inputs=4)
    Traceback (most recent call last):
        ...
    ValueError: the network fails on an input of shape (2, 4): mat1 and mat2 shapes cannot be ...
    """
    if any(map(nn.parameter.is_lazy, _tensors(network))):
        raise ValueError("the network has weights without a shape: call it once to give them one.")
    if not any(weight.requires_grad for weight in network.parameters()):
        raise ValueError("the network has no weights to train.")
    _check_finite(_tensors(network), "weights")
    # Batch normalisation changes its state with every call, and gradients would stay.
    trial = copy.deepcopy(network)
    device = next(network.parameters()).device
    for training in (False, True):
        inputs = torch.full((2, n_inputs), 0.5, device=device, dtype=torch.float32)
        _check_finite([_output_and_gradient(trial.train(training), inputs)], "output")
    # Weights that a network does not use have none.
    gradients = [weight.grad for weight in trial.parameters() if weight.grad is not None]
    _check_finite(gradients, "gradient")


def weights_to_arrays(network: nn.Module) -> dict[str, Any]:
    """Return all weights of a network, and the rest of its state.

    The arrays are copies, which training does not change. Raises a ValueError if the state holds
    something other than tensors, or has a type that NumPy does not know.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import weights_to_arrays
    >>> {name: array.shape for name, array in weights_to_arrays(torch.nn.Linear(3, 2)).items()}
    {'weight': (2, 3), 'bias': (2,)}
    """
    arrays = {}
    for name, value in network.state_dict().items():
        try:
            arrays[name] = value.detach().cpu().clone().numpy()
        except (AttributeError, TypeError) as error:
            raise ValueError(f"the network's {name!r} cannot be an array: {error}") from error
    return arrays


def load_arrays(network: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Give a network the weights that another one of the same make has had.

    `arrays` are those of `weights_to_arrays`. Raises a ValueError if a name is missing or unknown,
    or an array has another shape than what it replaces, or is not finite.

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.networks import load_arrays, weights_to_arrays
    >>> one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    >>> load_arrays(other, weights_to_arrays(one))
    >>> torch.equal(one.weight, other.weight)
    True
    """
    # On the CPU, whatever the default device of the caller is.
    tensors = {name: torch.tensor(array, device="cpu") for name, array in arrays.items()}
    _check_finite(tensors.values(), "weights")
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"these are the weights of another network: {error}") from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have PyTorch draw from 32 bits of a seed, on the CPU, and leave its state as it was.

    Another thread that draws from PyTorch's own generator meanwhile gets draws of the same seed.
    """
    with _STATE_OF_TORCH, torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # torch.manual_seed would seed the generators of all GPUs, too.
        torch.default_generator.manual_seed(int(seed))
        yield


def _tensors(network: nn.Module) -> list[torch.Tensor]:
    return [*network.parameters(), *network.buffers()]


def _output_and_gradient(network: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return a network's output, once that has been differentiated by its weights."""
    try:
        with seeded(0), torch.enable_grad():
            output = network(inputs)
            if not output.requires_grad:
                raise ValueError("the network's output has no gradient to train its weights by.")
            output.sum().backward()
    except RuntimeError as error:
        raise ValueError(
            f"the network fails on an input of shape {tuple(inputs.shape)}: {error}"
        ) from error
    return output.detach()


def _check_finite(tensors: Iterable[torch.Tensor], what: str) -> None:
    if not all(bool(tensor.isfinite().all()) for tensor in tensors):
        raise ValueError(f"something in the network's {what} is infinite or not a number.")
