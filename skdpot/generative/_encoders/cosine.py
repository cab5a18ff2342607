"""The encoder of images as the lowest coefficients of their cosine transform."""

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from skdpot._sklearn_compat import Interval
from skdpot.generative._encoders.encoder import Encoder, RecordSpace
from skdpot.generative._encoders.images import (
    PIXEL,
    CosineTransform,
    blocks,
    kept_coefficients,
    pixel_units,
)

# Brightness, and two differences of colours: orthonormal.
_OPPONENTS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
# So many coefficients along either side where the budget is ample: of gray images, and of colours.
# Then noise leaves each class of photographs a covariance of its own, which is worth more than fine
# structure.
_FINE, _COLOURS = 22, 10
# Codes are relative to a ground of one brightness, since shorter vectors have less noise. For
# photographs the guess is this one.
_MIDDLE = 0.5
# Mean squares of the coefficients of images with edges fall off by this power of the frequency.
# Noise leaves enough of frequencies between these parts of the highest kept one to estimate their
# size.
_FALL = 3
_KNOWN = 0.4, 0.8
# Of the largest standard deviation that pixels of a mean can have, and in addition to it.
_SPREAD, _LEAST_SPREAD = 0.6, 0.02


class CosineEncoder(Encoder):
    """Images as the lowest coefficients of their cosine transform: ``encoder="dct"``.

    Parameters
    ----------
    n_coefficients : int, default=None
        Number of coefficients along each side of an image. None is up to 14; from an epsilon of 5
        on, up to 22, or up to 10 for colours.

    See Also
    --------
    skdpot.generative.ImageSketch : The sketch, which takes it as `encoder`.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import CosineEncoder, ImageSketch
    >>> model = ImageSketch(CosineEncoder(n_coefficients=6))
    >>> generator = DPSinkhornGenerator(image_shape=(8, 8), model=model)
    >>> generator.get_params()["model__encoder__n_coefficients"]
    6
    """

    name = "dct"
    for_images = True
    counts_intensities = True

    _parameter_constraints = {"n_coefficients": [Interval(Integral, 1, None, closed="left"), None]}

    ground: float

    def __init__(self, n_coefficients=None):
        self.n_coefficients = n_coefficients

    @classmethod
    def usual_for(cls, space: RecordSpace) -> bool:
        return space.image_shape is not None

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        assert space.image_shape is not None
        height, width, channels = space.image_shape
        if self.n_coefficients is None and ample:
            self.n_coefficients = min(height, width, _COLOURS if channels == 3 else _FINE)
        self._kept = kept_coefficients(space.image_shape, self.n_coefficients)
        self._transform = CosineTransform(height, width, *self._kept)
        self._whole_transform = CosineTransform(height, width, height, width)
        self.n_codes = math.prod(self._kept) * channels
        self.frequencies = np.tile(self._transform.frequencies.reshape(-1), channels)
        if channels == 3:
            # Differences of colours vary much less than brightness.
            self.frequencies[len(self.frequencies) // 3 :] = -1
        self._place(_MIDDLE if channels == 3 else 0.0)

    def _place(self, ground: float) -> None:
        self.ground = ground
        largest = math.sqrt(math.prod(self._shape)) * max(ground, 1 - ground)
        self.largest_norm = largest * self._transform.growth

    def _encode(self, points: np.ndarray) -> np.ndarray:
        units = pixel_units(points) - self.ground / PIXEL
        channels = _opponents(units.reshape(-1, *self._shape))
        parts = [self._transform.coefficients(channel) for channel in channels]
        return np.stack(parts, axis=1).reshape(-1, self.n_codes)

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        points = self._intensities(codes) + self.ground
        points *= 2
        points -= 1
        return np.clip(points, -1, 1, out=points)

    def _sampled(self, drawn: Any, rng: Any, moves: Mapping[str, float] | None) -> np.ndarray:
        fine = self._fine_deviations(drawn.mixture.mean_squares())
        points = np.empty((len(drawn.codes), math.prod(self._shape)))
        fine_variance = np.sum(fine**2) / points.shape[1]
        classes, class_positions = np.unique(drawn.labels, return_inverse=True)
        means = np.empty((len(classes), drawn.mixture.means.shape[1], points.shape[1]))
        spreads = np.empty((len(classes), points.shape[1]))
        for i, c in enumerate(classes):
            centres, root = (self._intensities(part) for part in drawn.around(c))
            means[i] = centres + self.ground
            spreads[i] = np.sqrt(np.sum(root**2, axis=0) + fine_variance)
        for rows in blocks(*points.shape):
            images = self._intensities(drawn.codes[rows]) + self.ground
            images += self._fine_structure(len(images), fine, rng)
            row_classes, clusters = class_positions[rows], drawn.clusters[rows]
            varied = vary_within_range(images, means[row_classes, clusters], spreads[row_classes])
            points[rows] = 2 * varied - 1
        return self._moved(points, rng, moves)

    def _fine_deviations(self, mean_squares: np.ndarray) -> np.ndarray:
        """Return the variation of coefficients in images with edges that codes do not hold.

        Parameters
        ----------
        mean_squares : ndarray of shape (n_codes,)
            Of codes.

        Returns
        -------
        ndarray of shape (channels, height, width)
            Standard deviations: of coefficients that are not kept, and of kept ones that noise has
            made smaller than expected from the others.
        """
        height, width, channels = self._shape
        n_rows, n_columns = self._kept
        kept_squares = mean_squares.reshape(channels, n_rows, n_columns)
        highest = math.sqrt(height * width) * min(n_rows / height, n_columns / width)
        first, last = (part * highest for part in _KNOWN)
        frequencies, kept_frequencies = (
            self._whole_transform.frequencies,
            self._transform.frequencies,
        )
        is_known = (kept_frequencies >= first) & (kept_frequencies < last)
        if not is_known.any():
            return np.zeros((channels, height, width))
        levels = np.mean(kept_squares[:, is_known] * kept_frequencies[is_known] ** _FALL, axis=1)
        expected = np.zeros((channels, height, width))
        fine = frequencies >= last
        expected[:, fine] = levels[:, None] / frequencies[fine] ** _FALL
        expected[:, :n_rows, :n_columns] -= kept_squares
        return np.sqrt(np.maximum(expected, 0))

    def _fine_structure(self, n_images: int, deviations: np.ndarray, rng: Any) -> np.ndarray:
        """Return random waves, with the same distribution in all classes and clusters."""
        waves = rng.standard_normal((n_images, *deviations.shape)) * deviations
        return self._pixels(self._whole_transform.images(waves))

    def _header(self) -> dict[str, Any]:
        header = super()._header()
        return header | {"ground": self.ground} if self.ground else header

    def _read(self, header: Mapping[str, Any]) -> None:
        # In earlier versions, codes were relative to 0.
        ground = header.get("ground", 0.0)
        if not (isinstance(ground, int | float) and 0 <= ground <= 1):
            raise ValueError("the ground of images in the file is not from 0 to 1.")
        self._place(float(ground))

    @property
    def _shape(self) -> tuple[int, int, int]:
        assert self.image_shape is not None
        return self.image_shape

    def _intensities(self, codes: np.ndarray) -> np.ndarray:
        """Return the pixels of codes, relative to the ground: a linear map of codes."""
        height, width, channels = self._shape
        pixels = np.empty((len(codes), height * width * channels))
        for rows in blocks(*pixels.shape):
            parts = codes[rows].reshape(-1, channels, *self._kept)
            pixels[rows] = self._pixels(self._transform.images(parts))
        return pixels

    def _pixels(self, images: np.ndarray) -> np.ndarray:
        """Return the pixels of images of brightness and of differences of colours."""
        pixels = np.moveaxis(images, 1, -1)
        if pixels.shape[-1] == 3:
            pixels = pixels @ _OPPONENTS
        return pixels.reshape(len(pixels), -1)


def _opponents(units: np.ndarray) -> list[np.ndarray]:
    """Return the channels of images, entry by entry."""
    channels = list(np.moveaxis(units, -1, 0))
    if len(channels) != 3:
        return channels
    red, green, blue = channels
    return [np.rint(a * red + b * green + c * blue) for a, b, c in _OPPONENTS]


def vary_within_range(images: np.ndarray, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Return images with deviations from a mean that leave pixels room between 0 and 1.

    Parameters
    ----------
    images : ndarray of shape (n, n_pixels)
        Around `means`.
    means : ndarray of shape (n, n_pixels)
        Of pixels from 0 to 1, about.
    spreads : ndarray of shape (n_pixels,) or (n, n_pixels)
        Standard deviations of the pixels of images.

    Returns
    -------
    ndarray of shape (n, n_pixels)
        From 0 to 1. No standard deviation is much larger than 0.6 times the largest one of a
        variable from 0 to 1 with this mean.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._encoders.cosine import vary_within_range
    >>> vary_within_range(np.array([[0.5, 0.4]]), np.array([[0.5, 0.0]]), np.ones(2))
    array([[0.5  , 0.008]])
    """
    centres = np.clip(means, 0, 1)
    room = _SPREAD * np.sqrt(centres * (1 - centres)) + _LEAST_SPREAD
    deviations = (images - means) * np.minimum(1, room / np.maximum(spreads, 1e-12))
    return np.clip(centres + deviations, 0, 1)
