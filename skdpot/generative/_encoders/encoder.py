"""The interface of encoders, and the space of declared records."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import validate_parameters
from skdpot.generative._encoders.images import blocks
from skdpot.generative._encoders.pixels import jitter

AUTO = "auto"
# Squares of norms beyond, and products of them, are out of the range of doubles.
SMALLEST_NORM, LARGEST_NORM = 1e-100, 1e100
# A vector that is clipped to a norm has at most this part of it, despite rounding.
INSIDE = 1 - 2.0**-40

# Grounds are multiples of one over this.
_STEPS = 64

Box = tuple[np.ndarray, np.ndarray]


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

    box: Box
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

    def points(self, records: np.ndarray) -> np.ndarray:
        """Return records scaled to [-1, 1]; numbers outside are moved there, and NaN to 0."""
        low, high = self.box
        scaled = np.clip(2 * ((records - low) / (high - low)) - 1, -1, 1)
        return np.nan_to_num(scaled, copy=False, nan=0.0)


class Encoder(BaseEstimator, ABC):
    """An encoder of records as vectors of bounded norm, and back.

    A subclass is a file of its own in this folder. Its parameters are public, and it is prepared
    for a space of records before any record is seen. No bit of a code depends on another record,
    and no record causes an error.

    Attributes
    ----------
    n_codes : int
        Numbers in a code.
    largest_norm : float
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
    for_images: ClassVar[bool] = False
    # The sizes of random moves of sampled images with ``augment="auto"``: radians, the logarithm of
    # a factor, and parts of the height.
    usual_moves: ClassVar[Mapping[str, float] | None] = None
    # Whether the intensities of all pixels are released, and those of samples matched to them.
    counts_intensities: ClassVar[bool] = False

    n_codes: int
    largest_norm: float
    frequencies: np.ndarray | None = None
    image_shape: tuple[int, int, int] | None
    ground: float | None = None

    @classmethod
    def usual_for(cls, space: RecordSpace) -> bool:
        """Return whether ``"auto"`` is this encoder.

        Parameters
        ----------
        space : RecordSpace
            Public.

        Returns
        -------
        bool
            True for one encoder of each space.
        """
        return False

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
            With `n_codes` and `largest_norm`.

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
            Its `largest_norm` may differ, too.
        """
        placed = copy.copy(self)
        placed._place(round(brightness * _STEPS) / _STEPS)
        return placed

    def _place(self, ground: float) -> None:
        """Set `ground` and `largest_norm`, of an encoder that has a ground."""
        raise NotImplementedError

    @abstractmethod
    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        """Set `n_codes`, `largest_norm` and private attributes, or raise."""

    def encode(self, points: Any) -> np.ndarray:
        """Return the codes of records. Each bit of a code depends only on its record.

        Parameters
        ----------
        points : ndarray or ScaledRecords of shape (n, n_features)
            Private, scaled to [-1, 1].

        Returns
        -------
        ndarray of shape (n, n_codes)
            Of norms up to `largest_norm`.
        """
        codes = np.empty((len(points), self.n_codes))
        for rows in blocks(*points.shape):
            codes[rows] = self._encode(points[rows])
        return codes

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
        return self._decode(codes)

    def sampled(self, drawn: Any, rng: Any, moves: Mapping[str, float] | None) -> np.ndarray:
        """Return the records of drawn codes; images are moved at random.

        Parameters
        ----------
        drawn : Drawn
            Codes, and the mixture that they were drawn from.
        rng : numpy.random.RandomState or numpy.random.Generator
            Draws Gaussian numbers.
        moves : mapping of str to float or None
            The sizes of random moves; lengths in pixels.

        Returns
        -------
        ndarray of shape (n, n_features)
            Within [-1, 1].
        """
        return self._sampled(drawn, rng, moves)

    def _moved(self, rows: np.ndarray, rng: Any, moves: Mapping[str, float] | None) -> np.ndarray:
        if moves is None or self.image_shape is None:
            return rows
        return jitter(rows, rng, self.image_shape, **moves)

    def header(self) -> dict[str, Any]:
        """Return a header for JSON from which the same encoder is made.

        Returns
        -------
        dict
            With a "name".
        """
        return self._header()

    @abstractmethod
    def _encode(self, points: np.ndarray) -> np.ndarray:
        """Return the codes of a block of records."""

    @abstractmethod
    def _decode(self, codes: np.ndarray) -> np.ndarray:
        """Return records."""

    def _sampled(self, drawn: Any, rng: Any, moves: Mapping[str, float] | None) -> np.ndarray:
        """Return records of a mixture; a subclass may move them in a better way."""
        return self._moved(self._decode(drawn.codes), rng, moves)

    def _header(self) -> dict[str, Any]:
        return {"name": self.name, **self.get_params()}

    def _read(self, header: Mapping[str, Any]) -> None:
        """Read attributes that are no parameters from the header of a file, after `_prepare`."""
