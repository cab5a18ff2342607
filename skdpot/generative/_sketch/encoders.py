"""Encoders: public maps from records to vectors whose Euclidean distances mean something."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from skdpot.generative._records import from_unit_box
from skdpot.generative._sketch.images import CosineEncoder, whole_shape
from skdpot.generative._sketch.strokes import PoseEncoder

__all__ = ["Encoder", "encoder_from_header", "make_encoder"]

_NAMES = ("auto", "identity", "whiten-by-bounds", "dct", "pose")
_FOR_IMAGES: dict[str, Any] = {"dct": CosineEncoder, "pose": PoseEncoder}
_OWN = "own"
# A vector that is clipped to a norm has at most this part of it, whatever rounding does.
_INSIDE = 1 - 2.0**-40
# Squares of norms beyond, and products of them, are out of the range of doubles.
_SMALLEST_NORM, _LARGEST_NORM = 1e-100, 1e100

Box = tuple[np.ndarray, np.ndarray]


class Encoder(Protocol):
    """What every encoder has.

    Attributes
    ----------
    n_codes : int
        Numbers in a code.
    largest_norm : float
        Public. No code of a record has a larger norm.
    image_shape : tuple of three int or None
        Height, width and channels of a record that is an image.
    is_image : bool
        Whether there is one.
    frequencies : ndarray of shape (n_codes,) or None
        Of codes that are coefficients of an image's waves; below 0 for others, None without any.
    """

    n_codes: int
    largest_norm: float

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Return height, width and channels, or None."""

    @property
    def is_image(self) -> bool:
        """Return whether records are images."""

    @property
    def frequencies(self) -> np.ndarray | None:
        """Return those of waves, or None."""

    def encode(self, points: np.ndarray) -> np.ndarray:
        """Return the codes of records, which are scaled to [-1, 1]; each of its record alone."""

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the records, within [-1, 1], that codes stand for."""

    def header(self) -> dict[str, Any]:
        """Return what `encoder_from_header` takes, as JSON can hold it."""


def make_encoder(
    encoder: Any,
    *,
    n_features: int,
    image_shape: tuple[int, ...] | None,
    box: Box,
    n_coefficients: int | None = None,
    encoder_norm: float | None = None,
) -> Encoder:
    """Return an encoder, or raise; no record is looked at.

    Parameters
    ----------
    encoder : str, transformer or pair of callables
        ``"whiten-by-bounds"`` takes records as they are scaled, ``"identity"`` in the units of the
        data, so that columns with a wide range have more weight. ``"dct"`` takes the lowest
        coefficients of an image's cosine transform, ``"pose"`` those of an image of strokes in one
        pose, and the pose. ``"auto"`` is ``"dct"`` for images and ``"whiten-by-bounds"`` otherwise.
        A transformer is fitted already, on public data, and has ``transform`` and
        ``inverse_transform``; a pair is (encode, decode). Both are given records in the units of
        the data.
    n_features : int
        Numbers in a record.
    image_shape : tuple of int or None
        (height, width) or (height, width, channels) where a record is an image.
    box : tuple of two ndarray of shape (n_features,)
        The declared bounds.
    n_coefficients : int, default=None
        For "dct" and "pose": along either side of an image. None is all of them up to 14.
    encoder_norm : float, default=None
        The largest norm of a code, for encoders of the user's own that have no attribute
        `largest_norm`. Longer codes are made shorter.

    Returns
    -------
    Encoder
        Whose methods raise nothing because of what a record is.

    Raises
    ------
    ValueError
        If it cannot be made, or one of the user's own does not send the middle and the corners of
        the box to vectors of finite numbers, and these to records.

    Notes
    -----
    An encoder of the user's own is public, and must be a function of the record. It is given one
    record at a time, because products of matrices depend in their last digits on what else is in
    them. Where it fails on a record, or returns something else than finite numbers, the code is
    zero, silently, since an error would tell of the record.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.encoders import make_encoder
    >>> box = np.array([0.0, 0.0]), np.array([2.0, 10.0])
    >>> encoder = make_encoder("identity", n_features=2, image_shape=None, box=box)
    >>> encoder.encode(np.array([[1.0, -0.5]]))
    array([[ 1. , -2.5]])
    """
    shape = None if image_shape is None else whole_shape(image_shape, n_features)
    named = isinstance(encoder, str)
    if named and encoder == "auto":
        encoder = "whiten-by-bounds" if shape is None else "dct"
    if named and encoder not in _NAMES:
        raise ValueError(_message(encoder))
    if n_coefficients is not None and not (named and encoder in _FOR_IMAGES):
        raise ValueError('n_coefficients is for encoder="dct" and encoder="pose" only.')
    if not named:
        return OwnEncoder(encoder, shape, box, encoder_norm)
    if encoder_norm is not None:
        raise ValueError("encoder_norm is for an encoder of your own: others know theirs.")
    if encoder not in _FOR_IMAGES:
        return ColumnEncoder(encoder, shape, box)
    if shape is None:
        raise ValueError(f'encoder="{encoder}" is for images, and needs an image_shape.')
    return _FOR_IMAGES[encoder](shape, n_coefficients)


def encoder_from_header(
    header: Mapping[str, Any], *, n_features: int, box: Box, encoder: Any = None
) -> Encoder:
    """Return the encoder that a header describes.

    Parameters
    ----------
    header : mapping
        Of `Encoder.header`, as it was read from a file.
    n_features, box
        Of `make_encoder`.
    encoder : transformer or pair of callables, default=None
        The encoder of the user's own, where it was one; ignored otherwise.

    Returns
    -------
    Encoder
        As it was.

    Raises
    ------
    ValueError
        If there is none, or it is another one than before.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.encoders import encoder_from_header, make_encoder
    >>> settings = {"n_features": 64, "box": (np.zeros(64), np.ones(64))}
    >>> encoder = make_encoder("dct", image_shape=(8, 8), n_coefficients=4, **settings)
    >>> encoder_from_header(encoder.header(), **settings).n_codes
    16
    """
    name, shape = header.get("name"), header.get("image_shape")
    if name != _OWN:
        return make_encoder(
            str(name),
            n_features=n_features,
            image_shape=shape,
            box=box,
            n_coefficients=header.get("n_coefficients"),
        )
    if encoder is None:
        raise ValueError("the encoder was one of the user's own: give it again, as encoder=...")
    made = make_encoder(
        encoder,
        n_features=n_features,
        image_shape=shape,
        box=box,
        encoder_norm=header.get("largest_norm"),
    )
    if made.n_codes != header.get("n_codes"):
        raise ValueError(
            f"the encoder makes {made.n_codes} numbers of a record, and made "
            f"{header.get('n_codes')} when the generator was fitted."
        )
    return made


class _OfAnyRecords:
    """An encoder that leaves it to the user whether records are images."""

    image_shape: tuple[int, int, int] | None
    frequencies = None

    @property
    def is_image(self) -> bool:
        """Return whether records are images."""
        return self.image_shape is not None

    def _shape_in_header(self) -> list[int] | None:
        return None if self.image_shape is None else list(self.image_shape)


class ColumnEncoder(_OfAnyRecords):
    """Records as they are, each feature in a unit of its own.

    Parameters
    ----------
    name : {"identity", "whiten-by-bounds"}
        Whether the unit is that of the data, or half of the declared range.
    image_shape : tuple of three int or None
        Where a record is an image.
    box : tuple of two ndarray of shape (n_features,)
        The declared bounds.
    """

    def __init__(self, name: str, image_shape: tuple[int, int, int] | None, box: Box) -> None:
        self.image_shape = image_shape
        self._name = name
        low, high = box
        self._units = (high - low) / 2 if name == "identity" else np.ones_like(low)
        self.n_codes = len(low)
        self.largest_norm = math.hypot(*self._units) / _INSIDE
        if not _SMALLEST_NORM <= self.largest_norm <= _LARGEST_NORM:
            raise ValueError(
                "the widths of data_bounds are out of range for the units of the data: use "
                'encoder="whiten-by-bounds".'
            )

    def encode(self, points: np.ndarray) -> np.ndarray:
        """Return the codes of records, each a function of its record alone, bit by bit."""
        return points * self._units

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the records that codes stand for, within [-1, 1]."""
        return np.clip(codes / self._units, -1, 1)

    def header(self) -> dict[str, Any]:
        """Return what makes the same encoder again, as JSON can hold it."""
        return {"name": self._name, "image_shape": self._shape_in_header()}


class OwnEncoder(_OfAnyRecords):
    """An encoder of the user's own, whose codes are clipped to a declared norm.

    Parameters
    ----------
    encoder : transformer or pair of callables
        Of `make_encoder`.
    image_shape : tuple of three int or None
        Where a record is an image.
    box : tuple of two ndarray of shape (n_features,)
        The declared bounds.
    encoder_norm : float or None
        The largest norm of a code; None where the encoder has an attribute `largest_norm`.

    Raises
    ------
    ValueError
        As `make_encoder`.
    """

    def __init__(
        self,
        encoder: Any,
        image_shape: tuple[int, int, int] | None,
        box: Box,
        encoder_norm: float | None,
    ) -> None:
        self.image_shape = image_shape
        self._box = box
        self._encode, self._decode = _two_ways(encoder)
        self.largest_norm = _read_norm(encoder, encoder_norm)
        low, high = box
        self.n_codes = self._try_on(np.stack([low + (high - low) / 2, low, high]))

    def encode(self, points: np.ndarray) -> np.ndarray:
        """Return the codes of records, each made without the others."""
        records = from_unit_box(points, self._box)
        codes = np.zeros((len(records), self.n_codes))
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # A warning, as an error, may say something about a record.
            warnings.simplefilter("ignore")
            for code, record in zip(codes, records, strict=True):
                self._encode_into(code, record)
        return codes

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the records that codes stand for, within [-1, 1]."""
        low, high = self._box
        if not len(codes):
            return np.empty((0, len(low)))
        records = np.asarray(self._decode(codes), dtype=np.float64)
        if records.shape != (len(codes), len(low)):
            raise ValueError(
                f"the encoder must turn {len(codes)} codes into an array of shape "
                f"{(len(codes), len(low))}, got {records.shape}."
            )
        points = np.nan_to_num(2 * ((records - low) / (high - low)) - 1, nan=0.0)
        return np.clip(points, -1, 1)

    def header(self) -> dict[str, Any]:
        """Return what the same encoder must be like, as JSON can hold it."""
        return {
            "name": _OWN,
            "image_shape": self._shape_in_header(),
            "n_codes": self.n_codes,
            "largest_norm": self.largest_norm,
        }

    def _encode_into(self, code: np.ndarray, record: np.ndarray) -> None:
        """Write the code of a record, or leave zeros where there is none."""
        try:
            # A copy, because instructions of processors go by where in memory a row begins.
            found = np.asarray(self._encode(record[None].copy()), dtype=np.float64)
        except Exception:
            return
        if found.shape == (1, self.n_codes) and np.isfinite(found).all():
            norm = math.hypot(*found[0])
            code[:] = found[0]
            if norm > self.largest_norm * _INSIDE:
                # In two steps, because the norm may be beyond the range of doubles.
                code /= np.abs(code).max()
                code *= self.largest_norm / math.hypot(*code) * _INSIDE

    def _try_on(self, records: np.ndarray) -> int:
        """Return the length of a code, going by records that are public, or raise."""
        found = [np.asarray(self._encode(record[None].copy())) for record in records]
        n_codes = found[0].shape[-1] if found[0].ndim == 2 else 0
        numbers = all(code.dtype.kind in "fiu" for code in found)
        if not n_codes or not numbers or any(code.shape != (1, n_codes) for code in found):
            raise ValueError(
                "the encoder must return an array of numbers of shape (n_records, n_codes), got "
                f"the shapes {[code.shape for code in found]} for one record each."
            )
        codes = np.concatenate(found).astype(np.float64)
        if not np.isfinite(codes).all():
            raise ValueError(
                "the encoder must return finite numbers for records within data_bounds, and does "
                "not for the middle or a corner of them."
            )
        self.decode(codes)
        return n_codes


def _message(encoder: Any) -> str:
    names = ", ".join(f'"{name}"' for name in _NAMES)
    return (
        f"encoder must be one of {names}, a fitted transformer with transform and "
        f"inverse_transform, or a pair of callables (encode, decode); got {encoder!r}."
    )


def _two_ways(
    encoder: Any,
) -> tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any]]:
    """Return the functions of an encoder of the user's own."""
    if isinstance(encoder, tuple | list):
        ways = tuple(encoder)
    else:
        ways = tuple(getattr(encoder, way, None) for way in ("transform", "inverse_transform"))
    if len(ways) != 2 or not all(callable(way) for way in ways):
        raise ValueError(_message(encoder))
    return ways


def _read_norm(encoder: Any, encoder_norm: float | None) -> float:
    """Return the largest norm of a code, as it is declared."""
    norm = getattr(encoder, "largest_norm", None) if encoder_norm is None else encoder_norm
    if norm is None:
        raise ValueError(
            "the norm of what an encoder of your own returns is not bounded: declare a bound, as "
            "encoder_norm=... Longer codes are made shorter, and noise is scaled to it."
        )
    number = isinstance(norm, int | float | np.number) and not isinstance(norm, bool)
    if not number or not _SMALLEST_NORM <= norm <= _LARGEST_NORM:
        raise ValueError(f"encoder_norm must be a number from 1e-100 to 1e100, got {norm!r}.")
    return float(norm)
