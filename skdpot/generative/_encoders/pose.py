"""The encoder of images of strokes, brought into one pose by optimal transport."""

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
    interpolate,
    kept_coefficients,
    pixel_units,
)
from skdpot.generative._encoders.pixels import Moves

# The template's standard deviations, along the height and along a row, in parts of the sides.
_TALL, _WIDE = 0.17, 0.14
# A pose is moved into these bounds: a move in parts of the sides, factors of the template's
# standard deviations (so a thin stroke stays thin), and pixels to the side per pixel down.
_MOVE = 6 / 28
_SCALES_DOWN = (0.6, 1.5)
_SCALES_ACROSS = (0.4, 1.5)
_SLANT = 0.8
# Of a stroke that is thinner than a pixel, in pixels.
_LEAST_VARIANCE = 0.25
# The weights of a pose's numbers, relative to pixels of images of 28 x 28: two moves, in pixels,
# the logarithms of two scales, and a slant.
_WEIGHTS = np.array([0.5, 0.5, 5.0, 5.0, 3.0])
_WEIGHTS_OF_SIZE = 28
# Moments of so many pixels, times the square of the longer side, are integers below 2**53.
_LARGEST = 2**36


class PoseEncoder(Encoder):
    """Bright strokes on a dark ground, in an upright pose: ``encoder="pose"``.

    A pose is the triangular (Knothe) map between Gaussian distributions: from a template to the one
    that has the mean and the covariance of an image's brightness. The image seen through that map
    is encoded by the lowest coefficients of its cosine transform, and behind them are five numbers
    of the pose. Bright backgrounds make poses meaningless. It is for images of one channel.

    Parameters
    ----------
    n_coefficients : int, default=None
        Along either side of an image. None is up to 14.

    See Also
    --------
    skdpot.generative.ImageSketch : The sketch that it is for.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import ImageSketch, PoseEncoder
    >>> model = ImageSketch(PoseEncoder(n_coefficients=10))
    >>> generator = DPSinkhornGenerator(image_shape=(28, 28), model=model)
    """

    name = "pose"
    for_images = True
    usual_moves = {"rotation": 0.12, "scale": 0.1, "shift": 1 / 28, "bend": 1 / 28}
    counts_intensities = True

    _parameter_constraints = {"n_coefficients": [Interval(Integral, 1, None, closed="left"), None]}

    def __init__(self, n_coefficients=None):
        self.n_coefficients = n_coefficients

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        assert space.image_shape is not None
        height, width, channels = self._shape = space.image_shape
        if channels != 1:
            raise ValueError(
                f'encoder="pose" is for images of one channel, got {channels}: use "dct".'
            )
        if not _is_small(height, width):
            raise ValueError(
                f'encoder="pose" is for images of up to 512 x 512 pixels, got {height} x {width}.'
            )
        self._kept = kept_coefficients(space.image_shape, self.n_coefficients)
        self._transform = CosineTransform(height, width, *self._kept)
        self.n_codes = math.prod(self._kept) + len(_WEIGHTS)
        frequencies = self._transform.frequencies.reshape(-1)
        self.frequencies = np.concatenate([frequencies, np.full(len(_WEIGHTS), -1.0)])
        size = math.sqrt(height * width) / _WEIGHTS_OF_SIZE
        self._weights = _WEIGHTS * [1, 1, size, size, size]
        least, most = self._bounds()
        pose = np.maximum(np.abs(least), np.abs(most)) * self._weights
        pixels = math.sqrt(height * width) * self._transform.growth
        self.largest_norm = math.hypot(pixels, *pose) * (1 + PIXEL)

    def _encode(self, points: np.ndarray) -> np.ndarray:
        height, width, _ = self._shape
        units = pixel_units(points).reshape(-1, height, width)
        poses = self._poses(units)
        upright = np.rint(interpolate(units, *self._seen_from_template(poses)))
        coefficients = self._transform.coefficients(upright)
        return np.column_stack([coefficients.reshape(len(units), -1), poses * self._weights])

    def _decode(
        self, codes: np.ndarray, places: tuple[np.ndarray, np.ndarray] | None = None
    ) -> np.ndarray:
        """Return the records of codes, within [-1, 1].

        Parameters
        ----------
        codes : ndarray of shape (n, n_codes)
            Drawn codes.
        places : tuple of two ndarray of shape (n, height, width), default=None
            Rows and columns at which images are evaluated; None means the places of the pixels.

        Returns
        -------
        ndarray of shape (n, height * width)
            Their pixels.
        """
        height, width, _ = self._shape
        if places is None:
            places = np.arange(height)[None, :, None], np.arange(width)[None, None]
        points = np.empty((len(codes), height * width))
        for rows in blocks(*points.shape):
            coefficients, poses = np.split(codes[rows], [math.prod(self._kept)], axis=1)
            upright = self._transform.images(coefficients.reshape(-1, *self._kept))
            poses = np.clip(poses / self._weights, *self._bounds())
            at = [where if len(where) == 1 else where[rows] for where in places]
            images = interpolate(upright, *self._seen_from_image(poses, *at))
            points[rows] = np.clip(2 * images - 1, -1, 1).reshape(len(images), -1)
        return points

    def _sampled(self, drawn: Any, rng: Any, moves: Mapping[str, float] | None) -> np.ndarray:
        codes = drawn.codes
        if moves is None:
            return self._decode(codes)
        moved = Moves(**moves)
        draws = moved.draw(rng, len(codes))
        points = np.empty((len(codes), math.prod(self._shape)))
        for rows in blocks(*points.shape):
            points[rows] = self._decode(codes[rows], moved.places(draws[rows], self._shape))
        return points

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest numbers of a pose."""
        height, width, _ = self._shape
        ranges = [
            (-_MOVE * height, _MOVE * height),
            (-_MOVE * width, _MOVE * width),
            (math.log(_SCALES_DOWN[0]), math.log(_SCALES_DOWN[1])),
            (math.log(_SCALES_ACROSS[0]), math.log(_SCALES_ACROSS[1])),
            (-_SLANT, _SLANT),
        ]
        least, most = np.array(ranges).T
        return least, most

    def _poses(self, units: np.ndarray) -> np.ndarray:
        """Return moves down and across, logarithms of two scales, and slants, within bounds.

        Moments are exact, and poses are computed record by record.
        """
        height, width, _ = self._shape
        # Twice the coordinates, from the centre, are integers.
        y, x = np.arange(1 - height, height, 2)[:, None], np.arange(1 - width, width, 2)
        powers = [y**0 * x**0, y * x**0, y**0 * x, y * y * x**0, y * x, y**0 * x * x]
        weights = np.stack([power.reshape(-1) for power in powers], axis=1).astype(np.float64)
        moments = units.reshape(len(units), -1) @ weights
        mass = np.maximum(moments[:, 0], 1)
        down, across, yy, yx, xx = (moments[:, 1:] / mass[:, None] / [2, 2, 4, 4, 4]).T
        yy, yx, xx = yy - down * down, yx - down * across, xx - across * across
        yy = np.maximum(yy, _LEAST_VARIANCE)
        slant = np.clip(yx / yy, -_SLANT, _SLANT)
        # The variance after the slant has been removed.
        unslanted = np.maximum(xx - 2 * slant * yx + slant * slant * yy, _LEAST_VARIANCE)
        tall = np.sqrt(yy) / (_TALL * height)
        wide = np.sqrt(unslanted) / (_WIDE * width)
        poses = np.stack([down, across, _logarithms(tall), _logarithms(wide), slant], axis=1)
        # An empty image is in the template's pose.
        poses[moments[:, 0] == 0] = 0
        return np.clip(poses, *self._bounds())

    def _seen_from_template(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and columns in their images of the pixels of the template."""
        height, width, _ = self._shape
        down, across, tall, wide, slant = _columns(poses)
        y, x = _centred(height)[:, None], _centred(width)
        y = tall * y
        return down + y + (height - 1) / 2, across + wide * x + slant * y + (width - 1) / 2

    def _seen_from_image(
        self, poses: np.ndarray, rows: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and columns in the template of places in images."""
        height, width, _ = self._shape
        down, across, tall, wide, slant = _columns(poses)
        y, x = (height - 1) / 2, (width - 1) / 2
        from_centre = rows - y - down
        return from_centre / tall + y, (columns - x - across - slant * from_centre) / wide + x


def _is_small(height: int, width: int) -> bool:
    """Tell whether moments of images of this size are exact."""
    return height * width * max(height, width) ** 2 <= _LARGEST


def _centred(size: int) -> np.ndarray:
    """Return the coordinates of pixels, from the middle."""
    return np.arange(size) - (size - 1) / 2


def _columns(poses: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the five numbers of poses, to be used with images, and scales as factors."""
    down, across, tall, wide, slant = (column[:, None, None] for column in poses.T)
    return down, across, _exponentials(tall), _exponentials(wide), slant


def _logarithms(numbers: np.ndarray) -> np.ndarray:
    """Return logarithms one by one, because logarithms of arrays may depend on other entries."""
    return np.fromiter(map(math.log, numbers.tolist()), np.float64, numbers.size)


def _exponentials(numbers: np.ndarray) -> np.ndarray:
    """Return exponentials, as `_logarithms`."""
    values = np.fromiter(map(math.exp, numbers.reshape(-1).tolist()), np.float64, numbers.size)
    return values.reshape(numbers.shape)
