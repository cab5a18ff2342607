"""Images: transforms, intensities and small moves."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Random = np.random.RandomState | np.random.Generator
# Pixels, from 0 to 1, are integers in this unit, and entries of matrices in the next one. A row of
# an orthonormal matrix has a sum of magnitudes of at most the root of its length. So products with
# both matrices are integers below 2**53 for images of up to 2**34 pixels, and have no rounding
# errors in any order of summation.
PIXEL = 2.0**-16
_ENTRY = 2.0**-20
# Number of pixels in the images of a block, about: memory is bounded.
_BLOCK = 2**18


def whole_shape(image_shape: Any, n_features: int) -> tuple[int, int, int]:
    """Return height, width and channels of an image that is flattened in this order.

    Parameters
    ----------
    image_shape : array-like of int
        (height, width) or (height, width, channels).
    n_features : int
        Their product.

    Returns
    -------
    tuple of three int
        Height, width and channels.

    Raises
    ------
    ValueError
        If it is no such shape.

    Examples
    --------
    >>> from skdpot.generative._images import whole_shape
    >>> whole_shape((28, 28), 784)
    (28, 28, 1)
    """
    shape = tuple(image_shape) if np.iterable(image_shape) else ()
    sizes = all(_is_whole(size) and size >= 1 for size in shape)
    if len(shape) not in (2, 3) or not sizes or math.prod(shape) != n_features:
        raise ValueError(
            "image_shape must be (height, width) or (height, width, channels), with a product of "
            f"{n_features}, the number of features; got {image_shape!r}."
        )
    height, width, channels = map(int, (*shape, 1)[:3])
    # Colour images have three or four channels, and gray ones have one.
    if height in (1, 3, 4) and channels > 4:
        raise ValueError(
            f"image_shape={image_shape!r} has the channels first. Move this axis to the end before "
            "images are flattened, as by np.moveaxis(X, 1, -1), and declare "
            f"image_shape={(width, channels, height)}."
        )
    return height, width, channels


def blocks(n_rows: int, n_features: int) -> Iterator[slice]:
    """Return slices of rows whose sizes bound the memory that is needed for them.

    Parameters
    ----------
    n_rows : int
        How many rows there are.
    n_features : int
        Numbers in each.

    Returns
    -------
    iterator of slice
        Of consecutive rows.

    Examples
    --------
    >>> from skdpot.generative._images import blocks
    >>> list(blocks(3, 2**17))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    size = max(_BLOCK // n_features, 1)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def pixel_units(points: np.ndarray) -> np.ndarray:
    """Return pixels of points as integers: 0 for the lower bound, and 1 / PIXEL for the upper one.

    Parameters
    ----------
    points : ndarray
        From -1 to 1.

    Returns
    -------
    ndarray
        In the same shape; entry by entry, so no record affects another one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._images import pixel_units
    >>> pixel_units(np.array([-1.0, 0.0, 1.0]))
    array([    0., 32768., 65536.])
    """
    return np.rint((points + 1) * (0.5 / PIXEL))


def interpolate(images: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return images between their pixels, linear in both directions, and 0 outside.

    Parameters
    ----------
    images : ndarray of shape (n, height, width)
        Pixels, which are at whole coordinates from 0.
    rows, columns : ndarray that broadcast to shape (n, ...)
        Coordinates, of each image its own.

    Returns
    -------
    ndarray of shape (n, ...)
        Computed entry by entry, so no image affects another one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._images import interpolate
    >>> image = np.array([[[0.0, 1.0], [4.0, 5.0]]])
    >>> interpolate(image, np.array([[0.5, 1.0, 9.0]]), np.array([[0.5, 0.0, 0.0]]))
    array([[2.5, 4. , 0. ]])
    """
    n, height, width = images.shape
    # With a frame of zeros, every pixel has neighbours.
    framed = np.zeros((n, height + 2, width + 2), dtype=images.dtype)
    framed[:, 1:-1, 1:-1] = images
    # Beyond the frame there are zeros only.
    rows, columns = np.clip(rows, -1, height), np.clip(columns, -1, width)
    above = np.minimum(np.floor(rows), height - 1)
    left = np.minimum(np.floor(columns), width - 1)
    down, right = rows - above, columns - left
    first = np.arange(n).reshape(n, *[1] * (rows.ndim - 1)) * ((height + 2) * (width + 2))
    at = first + ((above + 1) * (width + 2) + (left + 1)).astype(np.intp)
    pixels = framed.reshape(-1)
    upper = pixels[at] * (1 - right) + pixels[at + 1] * right
    at += width + 2
    lower = pixels[at] * (1 - right) + pixels[at + 1] * right
    return upper * (1 - down) + lower * down


class CosineTransform:
    """The lowest coefficients of the orthonormal cosine transform of images of one channel.

    Parameters
    ----------
    height, width : int
        Of the images.
    n_rows, n_columns : int
        Number of coefficients along either side.

    Attributes
    ----------
    growth : float
        Above 1: the norm of coefficients is at most this times the norm of their image.
    frequencies : ndarray of shape (n_rows, n_columns)
        Frequencies of coefficients, in half waves along a side (of the geometric mean of both).
    """

    def __init__(self, height: int, width: int, n_rows: int, n_columns: int) -> None:
        self._along_rows = _cosines(height, n_rows)
        self._along_columns = _cosines(width, n_columns)
        # This covers rounding errors of entries, and of pixels of three channels.
        self.growth = 1 + (height + width) * _ENTRY + 2 * PIXEL
        side = math.sqrt(height * width)
        down, across = np.arange(n_rows)[:, None] / height, np.arange(n_columns) / width
        self.frequencies = side * np.sqrt(down**2 + across**2)

    def coefficients(self, units: np.ndarray) -> np.ndarray:
        """Return exact coefficients, which depend only on the record itself.

        Parameters
        ----------
        units : ndarray of shape (n, height, width)
            Integers of magnitude up to a few times ``1 / PIXEL``.

        Returns
        -------
        ndarray of shape (n, n_rows, n_columns)
            For pixels in units of 1.
        """
        rows, columns = (np.rint(m / _ENTRY) for m in (self._along_rows, self._along_columns))
        # Adding zero makes every zero positive.
        half = np.rint((units @ columns.T) * _ENTRY) + 0.0
        return (rows @ half) * (_ENTRY * PIXEL) + 0.0

    def images(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the images that have these coefficients, and zeros for all other ones.

        Parameters
        ----------
        coefficients : ndarray of shape (n, n_rows, n_columns)
            Released or drawn coefficients.

        Returns
        -------
        ndarray of shape (n, height, width)
            Any numbers.
        """
        return self._along_rows.T @ (coefficients @ self._along_columns)


def kept_coefficients(
    image_shape: tuple[int, int, int], n_coefficients: int | None
) -> tuple[int, int]:
    """Return how many coefficients are taken along the height and along the width.

    Parameters
    ----------
    image_shape : tuple of three int
        Height, width and channels.
    n_coefficients : int or None
        Along either side. None is all of them up to 14.

    Returns
    -------
    tuple of two int
        Up to the height, and up to the width.

    Raises
    ------
    ValueError
        If there are fewer.

    Examples
    --------
    >>> from skdpot.generative._images import kept_coefficients
    >>> kept_coefficients((8, 28, 1), None)
    (8, 14)
    """
    height, width, _ = image_shape
    if n_coefficients is None:
        return min(height, 14), min(width, 14)
    if not _is_whole(n_coefficients) or not 1 <= n_coefficients <= min(height, width):
        raise ValueError(
            f"n_coefficients must be an integer from 1 to {min(height, width)}, for images of "
            f"{height} x {width} pixels; got {n_coefficients!r}."
        )
    return int(n_coefficients), int(n_coefficients)


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _cosines(size: int, n_coefficients: int) -> np.ndarray:
    """Return the first rows of the orthonormal matrix of the cosine transform (type 2)."""
    frequencies = np.arange(n_coefficients)[:, None]
    rows = np.cos(np.pi * frequencies * (np.arange(size) + 0.5) / size) * math.sqrt(2 / size)
    rows[0] = 1 / math.sqrt(size)
    return rows


# Number of steps of intensities.
_INTENSITIES = 2**16


def intensity_map(images: np.ndarray, histogram: np.ndarray) -> np.ndarray:
    """Return the monotone map of pixels that gives images a histogram of intensities.

    It is the one-dimensional optimal transport of all pixels together. Within a bin it is linear.
    The lowest and the highest bin are exceptions if they have more weight than the next: they hold
    a ground, or strokes, and are sent to 0 and to 1.

    Parameters
    ----------
    images : ndarray of shape (n, n_pixels)
        Pixels from 0 to 1, at least one.
    histogram : ndarray of shape (n_bins,)
        Weights, of at least 0, of bins of equal width from 0 to 1.

    Returns
    -------
    ndarray
        The new intensity of each step, for `mapped`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._images import intensity_map, mapped
    >>> images = np.array([[0.1, 0.2], [0.3, 0.4]])
    >>> mapped(images, intensity_map(images, np.array([2.0, 1.0, 1.0, 0.0])))
    array([[0.  , 0.  ],
           [0.375, 0.625]])
    """
    counts = np.zeros(_INTENSITIES + 1)
    for rows in blocks(*images.shape):
        steps = _steps_of_intensity(images[rows])
        counts += np.bincount(steps.reshape(-1), minlength=len(counts))
    # The middle of the ranks of all pixels of one intensity.
    ranks = (np.cumsum(counts) - counts / 2) / images.size
    # Clipped pixels, which are many, keep to the ends.
    ranks[[0, -1]] = 0, 1
    weights, edges = histogram / histogram.sum(), np.linspace(0, 1, len(histogram) + 1)
    # The quantile function jumps at empty bins; np.interp takes the upper end.
    values = np.interp(ranks, np.concatenate([[0.0], np.cumsum(weights)]), edges)
    if len(weights) > 1 and weights[0] > weights[1]:
        values[ranks <= weights[0]] = 0.0
    if len(weights) > 1 and weights[-1] > weights[-2]:
        values[ranks >= 1 - weights[-1]] = 1.0
    return values


def mapped(images: np.ndarray, intensities: np.ndarray) -> np.ndarray:
    """Return images with the intensities of a map."""
    return intensities[_steps_of_intensity(images)].astype(images.dtype, copy=False)


def jitter(
    images: np.ndarray, rng: Random, image_shape: tuple[int, int, int], **moves: float
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
    **moves : float
        As of `moved_places`.

    Returns
    -------
    ndarray of shape (n, n_pixels)
        Pixels beyond the border repeat the border.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._images import jitter
    >>> images = np.zeros((2, 121))
    >>> images[:, 60] = 1.0
    >>> moved = jitter(images, np.random.RandomState(0), (11, 11, 1), shift=0.05)
    >>> moved.shape, moved.sum(axis=1).round(6).tolist()
    ((2, 121), [1.0, 1.0])
    """
    height, width, channels = image_shape
    draws = draw_moves(rng, len(images))
    moved = np.empty_like(images)
    for rows in blocks(*images.shape):
        y, x = moved_places(draws[rows], image_shape, **moves)
        y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
        block = images[rows].reshape(-1, height, width, channels)
        parts = [interpolate(block[..., channel], y, x) for channel in range(channels)]
        moved[rows] = np.stack(parts, axis=-1).reshape(len(block), -1)
    return moved


# Bends are made of this number of the slowest waves along either side.
_WAVES = 4


def draw_moves(rng: Random, n_images: int) -> np.ndarray:
    """Return Gaussian numbers for small moves of as many images, a row for each."""
    return rng.standard_normal((n_images, 5 + 2 * _WAVES**2))


def moved_places(
    draws: np.ndarray,
    image_shape: tuple[int, int, int],
    *,
    rotation: float = 0.0,
    shift: float = 0.0,
    scale: float = 0.0,
    bend: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns at which moved images show the given ones.

    Parameters
    ----------
    draws : ndarray of shape (n, n_draws)
        Of `draw_moves`.
    image_shape : tuple of three int
        Height, width and channels.
    rotation : float, default=0.0
        Standard deviation of the angle, in radians.
    shift : float, default=0.0
        That of the move along either side, in parts of the height.
    scale : float, default=0.0
        That of the logarithm of the factor along either side.
    bend : float, default=0.0
        That of a smooth displacement along either side, in parts of the height.

    Returns
    -------
    rows, columns : ndarray of shape (n, height, width)
        Coordinates, which may lie outside of the images.
    """
    height, width, _ = image_shape
    shift, bend = shift * height, bend * height
    moves, waves = np.split(draws[..., None, None], [5], axis=1)
    angle, tall, wide, down, across = np.moveaxis(moves, 1, 0)
    cosine, sine = np.cos(rotation * angle), np.sin(rotation * angle)
    y, x = np.arange(height)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    from_y = (cosine * y + sine * x) * np.exp(scale * tall) + (height - 1) / 2
    from_x = (cosine * x - sine * y) * np.exp(scale * wide) + (width - 1) / 2
    # Coefficients of one, in a transform that keeps norms, are values of this size.
    size = bend * math.sqrt(height * width) / _WAVES
    waves = waves.reshape(-1, 2, _WAVES, _WAVES)
    bends = CosineTransform(height, width, _WAVES, _WAVES).images(waves)
    bent_y, bent_x = np.moveaxis(bends * size, 1, 0)
    return from_y + shift * down + bent_y, from_x + shift * across + bent_x


def _steps_of_intensity(images: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(images, 0, 1) * _INTENSITIES).astype(np.intp)
