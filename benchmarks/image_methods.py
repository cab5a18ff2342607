"""Generators of private images: ours with its encoders, and plain ways to make images."""

from functools import partial

import numpy as np
from scipy.fft import dctn, idctn

import skdpot
from benchmarks.image_sets import ImageSet
from skdpot import DPSinkhornGenerator
from skdpot.generative import ImageSketch, NetworkTraining
from skdpot.privacy.accounting import calibrate_noise_multiplier
from skdpot.published import SinkhornGradientGenerator

DELTA = 1e-5


class Gaussians:
    """One Gaussian a class, from a noisy count, mean and second moment of the lowest cosines.

    The radius to which codes are clipped, the number of cosines, and gray in the middle of colour
    photographs, are public choices that suit such images.
    """

    def __init__(
        self, epsilon, seed, *, image_shape=(28, 28), n_coefficients=14, classes=range(10)
    ):
        self.noise = calibrate_noise_multiplier(epsilon, DELTA)
        self.shape, self.side, self.classes = (*image_shape, 1)[:3], n_coefficients, classes
        self.rng = np.random.default_rng(seed)
        self.radius = 10.0 * np.sqrt(np.prod(self.shape)) / 28
        self.ground = 0.0 if self.shape[2] == 1 else 0.5

    def fit(self, X, y):
        images = X.reshape(-1, *self.shape) - self.ground
        spectra = dctn(images, axes=(1, 2), norm="ortho")
        codes = spectra[:, : self.side, : self.side].reshape(len(X), -1)
        norms = np.maximum(np.linalg.norm(codes, axis=1), self.radius)
        codes = codes * (self.radius / norms)[:, None]
        self.moments = [self._moments(codes[y == c]) for c in self.classes]
        return self

    def _moments(self, codes):
        # Variances of noise, over that of one release: their inverses sum to one.
        d, noise = codes.shape[1], self.noise * np.sqrt([100, 4, 1 / 0.74])
        count = max(len(codes) + noise[0] * self.rng.standard_normal(), 1)
        mean = codes.sum(axis=0) + noise[1] * self.radius * self.rng.standard_normal(d)
        symmetric = self.rng.standard_normal((d, d))
        symmetric = (symmetric + symmetric.T) / 2
        second = codes.T @ codes + noise[2] * self.radius**2 * symmetric
        values, vectors = np.linalg.eigh(second / count - np.outer(mean, mean) / count**2)
        return mean / count, vectors * np.sqrt(np.maximum(values, 0))

    def sample(self, n):
        y = np.arange(n) % len(self.classes)
        images = np.zeros((n, *self.shape))
        for c in self.classes:
            mean, root = self.moments[c]
            drawn = mean + self.rng.standard_normal((np.sum(y == c), len(mean))) @ root.T
            images[y == c, : self.side, : self.side] = drawn.reshape(
                -1, self.side, self.side, self.shape[2]
            )
        pixels = idctn(images, axes=(1, 2), norm="ortho") + self.ground
        return np.clip(pixels, 0, 1).reshape(n, -1), y


def make_ours(images: ImageSet, epsilon: float, seed: int, model="auto"):
    return DPSinkhornGenerator(
        epsilon, DELTA, bounds=(0, 1), classes=images.classes, image_shape=images.image_shape,
        random_state=seed, model=model,
    )  # fmt: skip


def make_best(images: ImageSet, epsilon: float, seed: int):
    """Return ours as the guide says: strokes on a dark ground have their own encoder."""
    return make_ours(
        images, epsilon, seed, ImageSketch("pose") if images.name == "mnist" else "auto"
    )


def make_ours_encoded(images: ImageSet, epsilon: float, seed: int, encoder: str):
    """Return ours with ``"dct"`` or ``"pose"``; None for colours."""
    gray = len(images.image_shape) == 2
    return make_ours(images, epsilon, seed, ImageSketch(encoder)) if gray else None


def make_gaussians(images: ImageSet, epsilon: float, seed: int):
    n_coefficients = 14 if images.image_shape[0] == 28 else 8
    return Gaussians(
        epsilon, seed, image_shape=images.image_shape, n_coefficients=n_coefficients,
        classes=images.classes,
    )  # fmt: skip


def make_published(images: ImageSet, epsilon: float, seed: int, n_iter: int = 400):
    """Return the paper's method with noise for what it releases; None for colours."""
    if len(images.image_shape) > 2:
        return None
    network = NetworkTraining(
        sampling_rate=1 / 1200, n_iter=n_iter, l1_weight=1.0, learning_rate=3e-4
    )
    return SinkhornGradientGenerator(
        epsilon, DELTA, classes=images.classes, image_shape=images.image_shape, random_state=seed,
        gradient="per_image", clip_norm=0.5, network=network,
    )  # fmt: skip


# Each returns a generator, or None where it is not for such images; the best known first.
METHODS = {
    "ours": make_best,
    "ours, dct": partial(make_ours_encoded, encoder="dct"),
    "ours, pose": partial(make_ours_encoded, encoder="pose"),
    "Gaussians": make_gaussians,
    "published": make_published,
}
VERSION = f"skdpot {skdpot.__version__}"
