"""Classifiers of images, by which those that a generator made are judged.

Four small convolutional networks of different kinds, since one of them may learn well from images
that mislead another, and gradient boosting on pixels. All are quick on one core of a CPU.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn


class HalfDropout(nn.Module):
    """Dropout with probability one half, of bits: drawing numbers takes as long as all the rest."""

    def __init__(self, rng):
        super().__init__()
        self.rng = rng

    def forward(self, x):
        if not self.training:
            return x
        drawn = np.frombuffer(self.rng.bytes(-(-x.numel() // 8)), dtype=np.uint8)
        kept = torch.from_numpy(np.unpackbits(drawn)[: x.numel()]).to(x.dtype)
        return 2 * x * kept.as_strided(x.shape, x.stride())


class Residual(nn.Module):
    """Two convolutions, the first of which halves the sides, beside a shortcut."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.body = nn.Sequential(
            *[nn.Conv2d(n_in, n_out, 3, 2, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()],
            *[nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)],
        )
        self.shortcut = nn.Conv2d(n_in, n_out, 1, 2, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def strided(n_channels, rng):
    return [
        *[nn.Conv2d(n_channels, 32, 5, 2, 2), nn.ReLU(), HalfDropout(rng)],
        *[nn.Conv2d(32, 64, 5, 2, 2), nn.ReLU(), nn.Flatten(), HalfDropout(rng)],
    ]


def max_pooling(n_channels, rng):
    return [
        *[nn.Conv2d(n_channels, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), HalfDropout(rng)],
        *[nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()],
        *[nn.Flatten(), HalfDropout(rng)],
    ]


def batch_normalisation(n_channels, rng):
    widths = [n_channels, 16, 32, 64]
    layers = [
        [nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.MaxPool2d(2), nn.ReLU()]
        for n, m in zip(widths, widths[1:], strict=False)
    ]
    return [*sum(layers, []), nn.Flatten()]


def residual(n_channels, rng):
    return [
        *[nn.Conv2d(n_channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()],
        *[Residual(16, 16), Residual(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten()],
    ]


class ImageNetwork:
    """A convolutional network, trained with rates of learning that rise and fall.

    Parameters
    ----------
    layers : callable
        Returns the layers before the last one, given the number of channels and a source of bits.
    image_shape : tuple of int
        (height, width), or (height, width, channels).
    """

    def __init__(self, layers: Callable, image_shape: tuple, seed: int = 0, n_epochs: int = 4):
        self.layers, self.shape, self.seed, self.n_epochs = layers, image_shape, seed, n_epochs

    def _images(self, X):
        height, width, n_channels = (*self.shape, 1)[:3]
        images = torch.as_tensor(X, dtype=torch.float32).reshape(-1, height, width, n_channels)
        return images.permute(0, 3, 1, 2)

    def fit(self, X, y):
        torch.manual_seed(self.seed)
        images, labels = self._images(X), torch.as_tensor(np.asarray(y, dtype=np.int64))
        layers = self.layers(images.shape[1], np.random.default_rng(self.seed))
        with torch.no_grad():
            n_features = nn.Sequential(*layers).eval()(images[:1]).shape[1]
        last = nn.Linear(n_features, int(labels.max()) + 1)
        self.network = nn.Sequential(*layers, last).to(memory_format=torch.channels_last).train()
        adam = torch.optim.Adam(self.network.parameters())
        batches = [b for _ in range(self.n_epochs) for b in torch.randperm(len(y)).split(128)]
        rates = torch.optim.lr_scheduler.OneCycleLR(adam, 3e-3, total_steps=len(batches))
        for batch in batches:
            adam.zero_grad()
            loss = nn.functional.cross_entropy(self.network(images[batch]), labels[batch])
            loss.backward()
            adam.step()
            rates.step()
        self.network.eval()
        return self

    @torch.no_grad()
    def predict(self, X):
        scores = [self.network(part) for part in self._images(X).split(1000)]
        return torch.cat(scores).argmax(dim=1).numpy()


class Boosting:
    """Histogram gradient boosting on means of squares of two by two pixels."""

    def __init__(self, image_shape: tuple, seed: int = 0, n_epochs: int = 4):
        self.shape = image_shape
        self.model = HistGradientBoostingClassifier(
            max_iter=8 * n_epochs, learning_rate=0.2, max_leaf_nodes=15, max_bins=32,
            l2_regularization=10.0, early_stopping=False, random_state=seed,
        )  # fmt: skip

    def _means(self, X):
        height, width, n_channels = (*self.shape, 1)[:3]
        images = np.asarray(X).reshape(-1, height, width, n_channels)
        images = images[:, : height // 2 * 2, : width // 2 * 2]
        squares = images.reshape(-1, height // 2, 2, width // 2, 2, n_channels)
        return squares.mean(axis=(2, 4)).reshape(len(images), -1)

    def fit(self, X, y):
        self.model.fit(self._means(X), y)
        return self

    def predict(self, X):
        return self.model.predict(self._means(X))


CLASSIFIERS: dict[str, Callable] = {
    "strided": partial(ImageNetwork, strided),
    "max-pooling": partial(ImageNetwork, max_pooling),
    "batch norm": partial(ImageNetwork, batch_normalisation),
    "residual": partial(ImageNetwork, residual),
    "boosting": Boosting,
}


def accuracies(
    train_x: np.ndarray,
    train_y: np.ndarray,
    test_x: np.ndarray,
    test_y: np.ndarray,
    *,
    names: Iterable[str] = tuple(CLASSIFIERS),
    image_shape: tuple[int, ...] = (28, 28),
    epochs: int = 4,
    n_train: int = 20_000,
    seed: int = 0,
) -> dict[str, float]:
    """Return what each classifier gets right of test images, in per cent.

    Parameters
    ----------
    train_x, test_x : ndarray
        Images with values from 0 to 1; the first `n_train` are learned from.
    train_y, test_y : ndarray of int
        Labels from 0.
    epochs : int
        Passes of networks; boosting has eight trees a class for each.

    Examples
    --------
    A quick look: ``accuracies(X, y, X_test, y_test, n_train=10_000, epochs=3)``.
    """
    train_x, train_y = train_x[:n_train], train_y[:n_train]
    found = {}
    for name in names:
        fitted = CLASSIFIERS[name](image_shape, seed, epochs).fit(train_x, train_y)
        found[name] = 100 * float(np.mean(fitted.predict(test_x) == test_y))
    return found
