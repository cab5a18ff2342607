"""Architectures of networks: perceptrons for vectors, and two published ones for images.

None of them normalises batches, so a record depends on its own input only. Layers start as
PyTorch's do, with small signals. If signals keep their size from layer to layer, the published
learning rate of 1e-4 is too high for images of digits: after fifty steps all were about the same.
"""

import math

import torch
from torch import nn

__all__ = ["dcgan", "perceptron", "residual_network"]

# The published sizes of the classes' embedding, of the maps between the transposed convolutions,
# and of the maps of the residual blocks. The last of these is as large as the image.
_EMBEDDING_DIM = 4
_DCGAN_CHANNELS = (256, 128, 64)
_RESIDUAL_CHANNELS = 256
_RESIDUAL_BLOCKS = 4
_HIDDEN_UNITS = 256
# Singular vectors start about as close as training keeps them.
_FIRST_POWER_ITERATIONS = 15


def perceptron(latent_dim: int, n_classes: int, n_features: int) -> nn.Module:
    """Return a network for vectors, with two hidden layers.

    The output has the shape (n, n_features).

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.architectures import perceptron
    >>> perceptron(3, 2, n_features=7)(torch.rand(4, 5)).shape
    torch.Size([4, 7])
    """
    return nn.Sequential(
        nn.Linear(latent_dim + n_classes, _HIDDEN_UNITS, dtype=torch.float32),
        nn.ReLU(),
        nn.Linear(_HIDDEN_UNITS, _HIDDEN_UNITS, dtype=torch.float32),
        nn.ReLU(),
        nn.Linear(_HIDDEN_UNITS, n_features, dtype=torch.float32),
        nn.Tanh(),
    )


def dcgan(latent_dim: int, n_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Return the published network of transposed convolutions.

    `image_shape` is (height, width, channels). The output has the shape (n, channels, height,
    width).

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.architectures import dcgan
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
        _Cropped(height, width),
    )


def residual_network(
    latent_dim: int, n_classes: int, image_shape: tuple[int, int, int]
) -> nn.Module:
    """Return the published network of residual blocks, after that of BigGAN.

    `image_shape` is (height, width, channels). The output has the shape (n, channels, height,
    width).

    Examples
    --------
    >>> import torch
    >>> from skdpot.generative._torch.architectures import residual_network
    >>> residual_network(3, 2, (8, 8, 3))(torch.rand(4, 5)).shape
    torch.Size([4, 3, 8, 8])
    """
    height, width, channels = image_shape
    maps = _RESIDUAL_CHANNELS
    # All blocks but the first double the size.
    scale = 2 ** (_RESIDUAL_BLOCKS - 1)
    inputs = _Inputs(latent_dim, n_classes)
    return nn.Sequential(
        inputs,
        nn.Unflatten(1, (inputs.n_outputs, 1, 1)),
        _transposed(inputs.n_outputs, maps, (math.ceil(height / scale), math.ceil(width / scale))),
        *(_ResidualBlock(maps, doubling=k > 0) for k in range(_RESIDUAL_BLOCKS)),
        nn.ReLU(),
        _transposed(maps, channels, 3, padding=1),
        nn.Tanh(),
        _Cropped(height, width),
    )


class _Inputs(nn.Module):
    """Random numbers as they are, and behind them the class, embedded."""

    def __init__(self, latent_dim: int, n_classes: int) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.n_outputs = latent_dim
        self.embedding: nn.Module = nn.Identity()
        if n_classes:
            self.n_outputs += _EMBEDDING_DIM
            self.embedding = nn.Linear(n_classes, _EMBEDDING_DIM, bias=False, dtype=torch.float32)
            nn.init.normal_(self.embedding.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        latent, labels = inputs[:, : self.latent_dim], inputs[:, self.latent_dim :]
        return torch.cat([latent, self.embedding(labels)], dim=1)


class _Cropped(nn.Module):
    """Images that are cropped at the bottom and on the right."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[..., : self.height, : self.width]


class _ResidualBlock(nn.Module):
    """Images, doubled in size if wanted, plus the result of three convolutions."""

    def __init__(self, channels: int, doubling: bool) -> None:
        super().__init__()
        self.resized = nn.Upsample(scale_factor=2) if doubling else nn.Identity()
        self.convolutions = nn.ModuleList(_NormalisedConvolution(channels) for _ in range(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = self.resized(images)
        added = images
        for convolution in self.convolutions:
            added = convolution(added.relu())
        return images + added


class _NormalisedConvolution(nn.Module):
    """A convolution whose weights, as a matrix, have a largest singular value of about 1.

    PyTorch's own cannot be pickled. The singular vector comes closer with every call in training.
    Otherwise it stays unchanged, so an output depends on its input only.
    """

    left_vector: torch.Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, channels, 3, 3, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(channels, dtype=torch.float32))
        vector = torch.randn(channels, dtype=torch.float32)
        self.register_buffer("left_vector", nn.functional.normalize(vector, dim=0))
        for _ in range(_FIRST_POWER_ITERATIONS):
            self._improve_left_vector()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self._improve_left_vector()
        # A copy, as the gradient of this call wants it back, which may come after the next call.
        left = self.left_vector.clone()
        largest = left @ self.weight.flatten(1) @ self._right_vector(left)
        return nn.functional.conv2d(images, self.weight / largest, self.bias, padding=1)

    @torch.no_grad()
    def _right_vector(self, left: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(left @ self.weight.flatten(1), dim=0)

    @torch.no_grad()
    def _improve_left_vector(self) -> None:
        right = self._right_vector(self.left_vector)
        self.left_vector.copy_(nn.functional.normalize(self.weight.flatten(1) @ right, dim=0))


def _transposed(
    n_inputs: int,
    n_outputs: int,
    kernel_size: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int = 0,
) -> nn.Module:
    return nn.ConvTranspose2d(
        n_inputs, n_outputs, kernel_size, stride, padding, dtype=torch.float32
    )
