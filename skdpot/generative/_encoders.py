"""Encoders of records as vectors of bounded norm."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, validate_parameters
from skdpot.generative import _images
from skdpot.generative._images import Random

if TYPE_CHECKING:
    from skdpot.generative._gaussians import Mixture
    from skdpot.generative._records import PrivateRecords

# The sizes of random moves of images, by name.
Moves = Mapping[str, float] | None


@dataclass(frozen=True, eq=False)
class RecordSpace:
    """The public declaration of records.

    Attributes
    ----------
    box : tuple of two ndarray of shape (n_features,)
        The declared bounds.
    image_shape : tuple of three int or None
        Height, width and channels of a record that is an image.
    classes : ndarray or None
        The declared labels.
    """

    box: tuple[np.ndarray, np.ndarray]
    image_shape: tuple[int, int, int] | None = None
    classes: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """Return how many numbers a record has."""
        return len(self.box[0])

    @property
    def n_classes(self) -> int:
        """Return how many labels there are; 0 without labels."""
        return 0 if self.classes is None else len(self.classes)

    def records(self, points: np.ndarray) -> np.ndarray:
        """Return points of [-1, 1] in the units of the data."""
        low, high = self.box
        return np.clip(low + (points + 1) / 2 * (high - low), low, high)


class Encoder(BaseEstimator, ABC):
    """An encoder of records as vectors of bounded norm, and back.

    There are no others than those of this module. Its parameters are public, and it is prepared
    for a space of records before any record is seen. No bit of a code depends on another record,
    and no record causes an error.

    Attributes
    ----------
    n_codes : int
        Numbers in a code.
    max_norm : float
        Public. No code of a record has a larger norm.
    frequencies : ndarray of shape (n_codes,) or None
        Of codes that are coefficients of an image's waves; below 0 for others, None without any.
    image_shape : tuple of three int or None
        Of records that are images.
    ground : float or None
        The brightness, from 0 to 1, that codes of images are relative to; None for other codes.
    """

    # The name in ``encoder="..."``.
    name: ClassVar[str]
    # Of images, the intensities of all pixels are released, and those of samples matched to them.
    for_images: ClassVar[bool] = False
    # The sizes of random moves of sampled images with ``augment="auto"``: radians, the logarithm of
    # a factor, and parts of the height.
    usual_moves: ClassVar[Moves] = None

    n_codes: int
    max_norm: float
    frequencies: np.ndarray | None = None
    image_shape: tuple[int, int, int] | None
    ground: float | None = None

    def prepared(self, space: RecordSpace, *, ample: bool = False) -> Self:
        """Return a copy for records of a space, without reading records.

        Parameters
        ----------
        space : RecordSpace
            Public.
        ample : bool, default=False
            Whether the budget is ample, so that finer codes are worth their noise.

        Returns
        -------
        Encoder
            With `n_codes` and `max_norm`.

        Raises
        ------
        ValueError
            If the encoder does not exist for these records.
        """
        validate_parameters(self)
        if self.for_images and space.image_shape is None:
            raise ValueError(f'encoder="{self.name}" is for images, and needs an image_shape.')
        prepared = copy.copy(self)
        prepared.image_shape = space.image_shape
        prepared._prepare(space, ample)
        return prepared

    def on_ground(self, brightness: float) -> Self:
        """Return a copy with another ground, of an encoder whose `ground` is not None.

        Parameters
        ----------
        brightness : float
            From 0 to 1. It is rounded to a multiple of 1/64, which keeps pixels whole numbers.

        Returns
        -------
        Encoder
            Its `max_norm` may differ, too.
        """
        placed = copy.copy(self)
        # Grounds are multiples of one over this.
        steps = 64
        placed._place(round(min(max(brightness, 0.0), 1.0) * steps) / steps)
        return placed

    def _place(self, ground: float) -> None:
        """Set `ground` and `max_norm`, of an encoder that has a ground."""
        raise NotImplementedError

    @abstractmethod
    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        """Set `n_codes`, `max_norm` and private attributes, or raise."""

    def encode(self, points: "np.ndarray | PrivateRecords") -> np.ndarray:
        """Return the codes of records. Each bit of a code depends only on its record.

        Parameters
        ----------
        points : ndarray or PrivateRecords of shape (n, n_features)
            Private, scaled to [-1, 1].

        Returns
        -------
        ndarray of shape (n, n_codes)
            Of norms up to `max_norm`.
        """
        # In blocks, since records that are scaled take several times their memory.
        codes = np.empty((len(points), self.n_codes))
        for rows in _images.blocks(*points.shape):
            codes[rows] = self._encode(points[rows])
        return codes

    @abstractmethod
    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the records of codes.

        Parameters
        ----------
        codes : ndarray of shape (n, n_codes)
            The drawn codes.

        Returns
        -------
        ndarray of shape (n, n_features)
            Within [-1, 1].
        """

    def _sampled(
        self, mixture: "Mixture", labels: np.ndarray, rng: Random, moves: Moves, *, single: bool
    ) -> np.ndarray:
        """Return records whose codes are drawn; images are moved at random.

        Parameters
        ----------
        mixture : Mixture
            Of codes.
        labels : ndarray of shape (n,)
            The class of each record.
        rng : numpy.random.RandomState or numpy.random.Generator
            Draws codes and moves.
        moves : mapping of str to float or None
            The sizes of random moves of images; lengths in parts of the height.
        single : bool
            Whether codes may be in single precision.

        Returns
        -------
        ndarray of shape (n, n_features)
            Within [-1, 1].
        """
        codes, _ = mixture.draw(labels, rng, single=single)
        points = self.decode(codes)
        if moves is None or self.image_shape is None:
            return points
        return _images.jitter(points, rng, self.image_shape, **moves)

    @abstractmethod
    def _encode(self, points: np.ndarray) -> np.ndarray:
        """Return the codes of a block of records."""


class BoundedEncoder(Encoder):
    """Records with every feature in units of its bounds."""

    name = "whiten-by-bounds"
    _parameter_constraints: dict = {}

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        self.n_codes = space.n_features
        # A vector that is clipped to a norm has at most this part of it, despite rounding.
        self.max_norm = math.sqrt(space.n_features) / (1 - 2.0**-40)

    def _encode(self, points: np.ndarray) -> np.ndarray:
        return points

    def decode(self, codes: np.ndarray) -> np.ndarray:
        return np.clip(codes, -1, 1)


# Brightness, and two differences of colours: orthonormal.
_OPPONENTS = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])


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
    >>> generator = DPSinkhornGenerator(bounds=(0, 1), image_shape=(8, 8), model=model)
    >>> generator.get_params()["model__encoder__n_coefficients"]
    6
    """

    name = "dct"
    for_images = True

    _parameter_constraints = {"n_coefficients": [Interval(Integral, 1, None, closed="left"), None]}

    ground: float

    def __init__(self, n_coefficients=None):
        self.n_coefficients = n_coefficients

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        assert space.image_shape is not None
        height, width, channels = self._shape = space.image_shape
        if self.n_coefficients is None and ample:
            # Numbers of coefficients along either side where the budget is ample: of gray images,
            # and of colours. Then noise leaves each class of photographs a covariance of its own,
            # which is worth more than fine structure.
            fine, colours = 22, 10
            self.n_coefficients = min(height, width, colours if channels == 3 else fine)
        self._kept = _images.kept_coefficients(space.image_shape, self.n_coefficients)
        self._transform = _images.CosineTransform(height, width, *self._kept)
        self._whole_transform = _images.CosineTransform(height, width, height, width)
        self.n_codes = math.prod(self._kept) * channels
        self.frequencies = np.tile(self._transform.frequencies.reshape(-1), channels)
        if channels == 3:
            # Differences of colours vary much less than brightness.
            self.frequencies[len(self.frequencies) // 3 :] = -1
        # Codes are relative to a ground of one brightness, since shorter vectors have less noise.
        # For photographs the guess is the middle.
        self._place(0.5 if channels == 3 else 0.0)

    def _place(self, ground: float) -> None:
        self.ground = ground
        max_norm = math.sqrt(math.prod(self._shape)) * max(ground, 1 - ground)
        self.max_norm = max_norm * self._transform.growth

    def _encode(self, points: np.ndarray) -> np.ndarray:
        # Integers, so that a code depends on no other record in a product of matrices.
        units = _images.pixel_units(points) - self.ground / _images.PIXEL
        channels = list(np.moveaxis(units.reshape(-1, *self._shape), -1, 0))
        if len(channels) == 3:
            # Entry by entry.
            red, green, blue = channels
            channels = [np.rint(a * red + b * green + c * blue) for a, b, c in _OPPONENTS]
        parts = [self._transform.coefficients(channel) for channel in channels]
        return np.stack(parts, axis=1).reshape(-1, self.n_codes)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the images of codes, within [-1, 1].

        Parameters
        ----------
        codes : ndarray of shape (n, n_codes)
            As of `encode`.

        Returns
        -------
        ndarray of shape (n, n_features)
            The images.
        """
        points = self._intensities(codes) + self.ground
        # In place, since images may fill most of the memory.
        points *= 2
        points -= 1
        return np.clip(points, -1, 1, out=points)

    def _sampled(
        self, mixture: "Mixture", labels: np.ndarray, rng: Random, moves: Moves, *, single: bool
    ) -> np.ndarray:
        codes, clusters = mixture.draw(labels, rng, single=single)
        fine = self._fine_deviations(mixture.mean_squares())
        points = np.empty((len(codes), math.prod(self._shape)))
        fine_variance = np.sum(fine**2) / points.shape[1]
        classes, class_positions = np.unique(labels, return_inverse=True)
        means = np.empty((len(classes), mixture.means.shape[1], points.shape[1]))
        spreads = np.empty((len(classes), points.shape[1]))
        for i, c in enumerate(classes):
            centres, root = (self._intensities(part) for part in mixture.around(c))
            means[i] = centres + self.ground
            spreads[i] = np.sqrt(np.sum(root**2, axis=0) + fine_variance)
        for rows in _images.blocks(*points.shape):
            images = self._intensities(codes[rows]) + self.ground
            # Random waves, with the same distribution in all classes and clusters.
            # Without a name, they need no memory any more when values are moved below.
            images += self._pixels(
                self._whole_transform.images(rng.standard_normal((len(images), *fine.shape)) * fine)
            )
            row_classes, row_clusters = class_positions[rows], clusters[rows]
            own_means = means[row_classes, row_clusters]
            varied = vary_within_range(images, own_means, spreads[row_classes])
            points[rows] = 2 * varied - 1
        return points if moves is None else _images.jitter(points, rng, self._shape, **moves)

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
        known = 0.4, 0.8
        first, last = (part * highest for part in known)
        frequencies = self._whole_transform.frequencies
        kept_frequencies = self._transform.frequencies
        is_known = (kept_frequencies >= first) & (kept_frequencies < last)
        if not is_known.any():
            return np.zeros((channels, height, width))
        # Mean squares of the coefficients of images with edges fall off by this power of the
        # frequency. Noise leaves enough of frequencies between these parts of the highest kept one
        # to estimate their size.
        decay = 3
        levels = np.mean(kept_squares[:, is_known] * kept_frequencies[is_known] ** decay, axis=1)
        expected = np.zeros((channels, height, width))
        fine = frequencies >= last
        expected[:, fine] = levels[:, None] / frequencies[fine] ** decay
        expected[:, :n_rows, :n_columns] -= kept_squares
        return np.sqrt(np.maximum(expected, 0))

    def _intensities(self, codes: np.ndarray) -> np.ndarray:
        """Return the pixels of codes, relative to the ground: a linear map of codes."""
        height, width, channels = self._shape
        pixels = np.empty((len(codes), height * width * channels))
        for rows in _images.blocks(*pixels.shape):
            parts = codes[rows].reshape(-1, channels, *self._kept)
            pixels[rows] = self._pixels(self._transform.images(parts))
        return pixels

    def _pixels(self, images: np.ndarray) -> np.ndarray:
        """Return the pixels of images of brightness and of differences of colours."""
        pixels = np.moveaxis(images, 1, -1)
        if pixels.shape[-1] == 3:
            pixels = pixels @ _OPPONENTS
        return pixels.reshape(len(pixels), -1)


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
    >>> from skdpot.generative._encoders import vary_within_range
    >>> vary_within_range(np.array([[0.5, 0.4]]), np.array([[0.5, 0.0]]), np.ones(2))
    array([[0.5  , 0.008]])
    """
    centres = np.clip(means, 0, 1)
    # Of the largest standard deviation that pixels of a mean can have, and in addition to it.
    spread, min_spread = 0.6, 0.02
    room = spread * np.sqrt(centres * (1 - centres)) + min_spread
    deviations = (images - means) * np.minimum(1, room / np.maximum(spreads, 1e-12))
    return np.clip(centres + deviations, 0, 1)


# The template's standard deviations, along the height and along a row, in parts of the sides.
_TALL, _WIDE = 0.17, 0.14
_SLANT = 0.8
# The weights of a pose's numbers, relative to pixels of images of 28 x 28: two moves, in pixels,
# the logarithms of two scales, and a slant.
_WEIGHTS = np.array([0.5, 0.5, 5.0, 5.0, 3.0])


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
    >>> generator = DPSinkhornGenerator(bounds=(0, 1), image_shape=(28, 28), model=model)
    """

    name = "pose"
    for_images = True
    usual_moves = {"rotation": 0.12, "scale": 0.1, "shift": 1 / 28, "bend": 1 / 28}

    _parameter_constraints = {"n_coefficients": [Interval(Integral, 1, None, closed="left"), None]}

    def __init__(self, n_coefficients=None):
        self.n_coefficients = n_coefficients

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        assert space.image_shape is not None
        height, width, n = self._shape = space.image_shape
        if n != 1:
            raise ValueError(f'encoder="pose" is for images of one channel, got {n}: use "dct".')
        # Moments of this many pixels, times the square of the longer side, are integers below
        # 2**53.
        max_work = 2**36
        if height * width * max(height, width) ** 2 > max_work:
            raise ValueError(
                f'encoder="pose" is for images of up to 512 x 512 pixels, got {height} x {width}.'
            )
        self._kept = _images.kept_coefficients(space.image_shape, self.n_coefficients)
        self._transform = _images.CosineTransform(height, width, *self._kept)
        self.n_codes = math.prod(self._kept) + len(_WEIGHTS)
        frequencies = self._transform.frequencies.reshape(-1)
        self.frequencies = np.concatenate([frequencies, np.full(len(_WEIGHTS), -1.0)])
        weights_of_size = 28
        size = math.sqrt(height * width) / weights_of_size
        self._weights = _WEIGHTS * [1, 1, size, size, size]
        lowest, highest = self._bounds()
        pose = np.maximum(np.abs(lowest), np.abs(highest)) * self._weights
        pixels = math.sqrt(height * width) * self._transform.growth
        self.max_norm = math.hypot(pixels, *pose) * (1 + _images.PIXEL)

    def _encode(self, points: np.ndarray) -> np.ndarray:
        height, width, _ = self._shape
        units = _images.pixel_units(points).reshape(-1, height, width)
        poses = self._poses(units)
        # Integers again, as the transform takes them.
        upright = np.rint(_images.interpolate(units, *self._seen_from_template(poses)))
        coefficients = self._transform.coefficients(upright)
        return np.column_stack([coefficients.reshape(len(units), -1), poses * self._weights])

    def decode(self, codes: np.ndarray, places: tuple | None = None) -> np.ndarray:
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
        for rows in _images.blocks(*points.shape):
            coefficients, poses = np.split(codes[rows], [math.prod(self._kept)], axis=1)
            upright = self._transform.images(coefficients.reshape(-1, *self._kept))
            poses = np.clip(poses / self._weights, *self._bounds())
            at = [where if len(where) == 1 else where[rows] for where in places]
            images = _images.interpolate(upright, *self._seen_from_image(poses, *at))
            points[rows] = np.clip(2 * images - 1, -1, 1).reshape(len(images), -1)
        return points

    def _sampled(
        self, mixture: "Mixture", labels: np.ndarray, rng: Random, moves: Moves, *, single: bool
    ) -> np.ndarray:
        if moves is None:
            return super()._sampled(mixture, labels, rng, moves, single=single)
        codes, _ = mixture.draw(labels, rng, single=single)
        draws = _images.draw_moves(rng, len(codes))
        points = np.empty((len(codes), math.prod(self._shape)))
        for rows in _images.blocks(*points.shape):
            places = _images.moved_places(draws[rows], self._shape, **moves)
            points[rows] = self.decode(codes[rows], places)
        return points

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest numbers of a pose."""
        height, width, _ = self._shape
        # A pose is moved into these bounds: a move in parts of the sides, factors of the template's
        # standard deviations (so a thin stroke stays thin), and pixels to the side per pixel down.
        move = 6 / 28
        lowest = [-move * height, -move * width, math.log(0.6), math.log(0.4), -_SLANT]
        highest = [move * height, move * width, math.log(1.5), math.log(1.5), _SLANT]
        return np.array(lowest), np.array(highest)

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
        # Of a stroke that is thinner than a pixel, in pixels.
        min_variance = 0.25
        yy = np.maximum(yy, min_variance)
        slant = np.clip(yx / yy, -_SLANT, _SLANT)
        # The variance after the slant has been removed.
        unslanted = np.maximum(xx - 2 * slant * yx + slant * slant * yy, min_variance)
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
        y, x = np.arange(height)[:, None] - (height - 1) / 2, np.arange(width) - (width - 1) / 2
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


def _columns(poses: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the five numbers of poses, to be used with images, and scales as factors."""
    down, across, tall, wide, slant = (column[:, None, None] for column in poses.T)
    return down, across, _exponentials(tall), _exponentials(wide), slant


# One by one, because logarithms and exponentials of arrays may depend on other entries.
_logarithms = np.vectorize(math.log, otypes=[np.float64])
_exponentials = np.vectorize(math.exp, otypes=[np.float64])


def named_encoders() -> dict[str, type[Encoder]]:
    """Return all classes of encoders by name."""
    kinds = (BoundedEncoder, CosineEncoder, PoseEncoder)
    return {kind.name: kind for kind in kinds}


def make_encoder(encoder: Any, space: RecordSpace, *, ample: bool = False) -> Encoder:
    """Return an encoder for records of a space, or raise; no record is looked at.

    Parameters
    ----------
    encoder : str or Encoder
        A name, or an encoder with parameters.
    space : RecordSpace
        Public.
    ample : bool, default=False
        Whether the budget is ample, so that finer codes are worth their noise.
    """
    kinds = named_encoders()
    if isinstance(encoder, str) and encoder in ("auto", *kinds):
        usual = "whiten-by-bounds" if space.image_shape is None else "dct"
        encoder = kinds[usual if encoder == "auto" else encoder]()
    if not isinstance(encoder, Encoder):
        names = ", ".join(f'"{name}"' for name in ("auto", *sorted(kinds)))
        raise ValueError(
            f"encoder must be one of {names}, or an encoder of skdpot.generative; got {encoder!r}."
        )
    if type(encoder) not in kinds.values():
        raise TypeError(
            f"encoder is of the class {type(encoder).__name__}, which is derived from an encoder "
            "of skdpot.generative: only these themselves are accepted. Code of your own would see "
            "private records, and could print them or fail."
        )
    return encoder.prepared(space, ample=ample)
