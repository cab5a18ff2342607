"""Changes of generated images: the distribution of their intensities, and small moves."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.generative._encoders.images import CosineTransform, blocks, interpolate

# Number of steps of intensities.
_INTENSITIES = 2**16
# Bends are made of so many of the slowest waves along either side.
_WAVES = 4


class IntensityMap:
    """The monotone map of pixels that gives images a histogram of intensities.

    It is the one-dimensional optimal transport of all pixels together. Within a bin it is linear.
    The lowest and the highest bin are exceptions if they have more weight than the next: they hold
    a ground, or strokes, and are sent to 0 and to 1.

    Parameters
    ----------
    images : ndarray of shape (n, n_pixels)
        Pixels from 0 to 1, at least one.
    histogram : ndarray of shape (n_bins,)
        Weights, of at least 0, of bins of equal width from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._encoders.pixels import IntensityMap
    >>> images = np.array([[0.1, 0.2], [0.3, 0.4]])
    >>> IntensityMap(images, np.array([2.0, 1.0, 1.0, 0.0])).of(images)
    array([[0.  , 0.  ],
           [0.375, 0.625]])
    """

    def __init__(self, images: np.ndarray, histogram: np.ndarray) -> None:
        counts = np.zeros(_INTENSITIES + 1)
        for rows in blocks(*images.shape):
            steps = _steps_of_intensity(images[rows])
            counts += np.bincount(steps.reshape(-1), minlength=len(counts))
        # The middle of the ranks of all pixels of one intensity.
        ranks = (np.cumsum(counts) - counts / 2) / images.size
        # Clipped pixels, which are many, keep to the ends.
        ranks[[0, -1]] = 0, 1
        self._table = _quantiles(histogram / histogram.sum(), ranks)

    def of(self, images: np.ndarray) -> np.ndarray:
        """Return images with other intensities."""
        return self._table[_steps_of_intensity(images)].astype(images.dtype, copy=False)


def jitter(
    images: np.ndarray,
    rng: Any,
    image_shape: tuple[int, int, int],
    *,
    rotation: float = 0.0,
    shift: float = 0.0,
    scale: float = 0.0,
    bend: float = 0.0,
) -> np.ndarray:
    """Return images, each moved at random by normally distributed amounts.

    Parameters
    ----------
    images : ndarray of shape (n, n_pixels)
        Of any pixels.
    rng : numpy.random.RandomState or numpy.random.Generator
        Draws Gaussian numbers.
    image_shape : tuple of three int
        Height, width and channels.
    rotation : float, default=0.0
        Standard deviation of the angle, in radians.
    shift : float, default=0.0
        That of the move along either side, in pixels.
    scale : float, default=0.0
        That of the logarithm of the factor along either side.
    bend : float, default=0.0
        That of a smooth displacement along either side, in pixels.

    Returns
    -------
    ndarray of shape (n, n_pixels)
        Pixels beyond the border repeat the border.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._encoders.pixels import jitter
    >>> images = np.zeros((2, 121))
    >>> images[:, 60] = 1.0
    >>> moved = jitter(images, np.random.RandomState(0), (11, 11, 1), shift=0.5)
    >>> moved.shape, moved.sum(axis=1).round(6).tolist()
    ((2, 121), [1.0, 1.0])
    """
    height, width, channels = image_shape
    moves = Moves(rotation, shift, scale, bend)
    draws = moves.draw(rng, len(images))
    moved = np.empty_like(images)
    for rows in blocks(*images.shape):
        y, x = moves.places(draws[rows], image_shape)
        y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
        block = images[rows].reshape(-1, height, width, channels)
        parts = [interpolate(block[..., channel], y, x) for channel in range(channels)]
        moved[rows] = np.stack(parts, axis=-1).reshape(len(block), -1)
    return moved


@dataclass(frozen=True)
class Moves:
    """Small moves of images at random.

    Parameters
    ----------
    rotation, shift, scale, bend : float
        Of `jitter`.
    """

    rotation: float = 0.0
    shift: float = 0.0
    scale: float = 0.0
    bend: float = 0.0

    def draw(self, rng: Any, n_images: int) -> np.ndarray:
        """Return Gaussian numbers for as many images, a row for each."""
        return rng.standard_normal((n_images, 5 + 2 * _WAVES**2))

    def places(
        self, draws: np.ndarray, image_shape: tuple[int, int, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and columns at which moved images show the given ones.

        Parameters
        ----------
        draws : ndarray of shape (n, n_draws)
            Of `draw`.
        image_shape : tuple of three int
            Height, width and channels.

        Returns
        -------
        rows, columns : ndarray of shape (n, height, width)
            Coordinates, which may lie outside of the images.
        """
        height, width, _ = image_shape
        moves, waves = np.split(draws[..., None, None], [5], axis=1)
        angle, tall, wide, down, across = np.moveaxis(moves, 1, 0)
        cosine, sine = np.cos(self.rotation * angle), np.sin(self.rotation * angle)
        y, x = np.arange(height)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
        from_y = (cosine * y + sine * x) * np.exp(self.scale * tall) + (height - 1) / 2
        from_x = (cosine * x - sine * y) * np.exp(self.scale * wide) + (width - 1) / 2
        # Coefficients of one, in a transform that keeps norms, are values of this size.
        size = self.bend * math.sqrt(height * width) / _WAVES
        waves = waves.reshape(-1, 2, _WAVES, _WAVES)
        bent_y, bent_x = np.moveaxis(_smooth(waves, height, width) * size, 1, 0)
        return from_y + self.shift * down + bent_y, from_x + self.shift * across + bent_x


def _smooth(coefficients: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return images with these lowest coefficients of the cosine transform."""
    return CosineTransform(height, width, *coefficients.shape[-2:]).images(coefficients)


def _steps_of_intensity(images: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(images, 0, 1) * _INTENSITIES).astype(np.intp)


def _quantiles(weights: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return the quantiles of a histogram on [0, 1]."""
    edges = np.linspace(0, 1, len(weights) + 1)
    # The quantile function jumps at empty bins; np.interp takes the upper end.
    values = np.interp(ranks, np.concatenate([[0.0], np.cumsum(weights)]), edges)
    if len(weights) > 1 and weights[0] > weights[1]:
        values[ranks <= weights[0]] = 0.0
    if len(weights) > 1 and weights[-1] > weights[-2]:
        values[ranks >= 1 - weights[-1]] = 1.0
    return values
