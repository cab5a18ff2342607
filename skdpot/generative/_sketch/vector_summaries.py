"""Public summaries of vectors and of images: rows of whole numbers, which records are judged by."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from skdpot.generative._encoders import RecordSpace
from skdpot.generative._encoders.images import PIXEL, blocks, pixel_units
from skdpot.generative._sketch.held_out import Judged
from skdpot.tables import TableSchema, read_schema

# Means are whole numbers below this.
_N_LEVELS = 256
# Numbers of means: of the features of a vector, and along either side of an image, for brightness,
# each channel, and differences of neighbouring pixels.
_OF_VECTOR = 64
_BRIGHTNESS, _COLOUR, _ROUGHNESS = 7, 2, 4
# Pixels are dark or bright within this part of their range.
_ENDS = 1 / 16
_TARGET = "label"


def summary_schema(space: RecordSpace) -> TableSchema:
    """Return the schema of the summaries of records, with the label last if there are classes.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._encoders import RecordSpace
    >>> from skdpot.generative._sketch.vector_summaries import summary_schema
    >>> space = RecordSpace((np.zeros(784), np.ones(784)), (28, 28, 1), np.arange(10))
    >>> names = summary_schema(space).names
    >>> len(names), names[3], names[-1]
    (68, 'brightness, row 1 of 7, column 4 of 7', 'label')
    """
    # Names of summaries do not depend on records.
    names = [name for name, _ in _summaries(np.zeros((1, space.n_features)), space)]
    declared: dict[str, Any] = dict.fromkeys(names, range(_N_LEVELS))
    if space.n_classes < 2:
        return read_schema(declared)
    return read_schema(declared | {_TARGET: list(range(space.n_classes))}, _TARGET)


def summaries(points: np.ndarray, labels: np.ndarray, space: RecordSpace) -> np.ndarray:
    """Return the summaries of records, each in all bits a function of its record only.

    Parameters
    ----------
    points : ndarray of shape (n, n_features)
        Scaled to [-1, 1].
    labels : ndarray of shape (n,)
        Codes of their labels.
    space : RecordSpace
        Public.

    Returns
    -------
    ndarray of shape (n, n_columns), dtype int64
        Of `summary_schema`.
    """
    schema = summary_schema(space)
    units = np.empty((len(points), len(schema.columns)), dtype=np.int64)
    for rows in blocks(*points.shape):
        for j, (_, column) in enumerate(_summaries(points[rows], space)):
            units[rows, j] = column
    if schema.target is not None:
        units[:, schema.target] = labels
    return units


def judged_vectors(space: RecordSpace, sketch: Any) -> Judged:
    """Return the samples that held-out records of a sketch of vectors judge.

    Parameters
    ----------
    space : RecordSpace
        Public.
    sketch : ReleasedVectors
        Of the other records.
    """

    def draw(n_samples: int, rng: Any) -> np.ndarray:
        labels = sketch.drawn_labels(n_samples, rng)
        parts = [
            summaries(sketch.rows(labels[rows], rng), labels[rows], space)
            for rows in blocks(n_samples, space.n_features)
        ]
        return np.concatenate(parts)

    return Judged(summary_schema(space), draw)


def _summaries(points: np.ndarray, space: RecordSpace) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of each summary, and the whole numbers of records.

    Pixels are integers, so that sums of them have no rounding errors.
    """
    units = pixel_units(points).astype(np.int64)
    if space.image_shape is None:
        ends = _ends_of_parts(space.n_features, _OF_VECTOR)
        means = _means(units[:, None, :], np.array([0, 1]), ends)[:, 0]
        for j, (start, stop) in enumerate(pairwise(ends)):
            single = stop == start + 1
            yield f"feature {start}" if single else f"features {start}-{stop - 1}", means[:, j]
        return
    images = units.reshape(-1, *space.image_shape)
    n_channels = images.shape[3]
    brightness = images.sum(axis=3) // n_channels
    yield from _means_of_images("brightness", brightness, _BRIGHTNESS)
    if n_channels > 1:
        for k in range(n_channels):
            yield from _means_of_images(f"channel {k + 1}", images[..., k], _COLOUR)
    # Beyond the last row, and the last column, pixels are as there.
    steps = [np.abs(np.diff(brightness, axis=a, append=_last(brightness, a))) for a in (1, 2)]
    yield from _means_of_images("roughness", (steps[0] + steps[1]) // 2, _ROUGHNESS)
    for name, ends in (
        ("dark pixels", brightness <= _ENDS / PIXEL),
        ("bright pixels", brightness >= (1 - _ENDS) / PIXEL),
    ):
        yield name, _levels(ends.reshape(len(ends), -1).sum(axis=1), ends[0].size)


def _last(images: np.ndarray, axis: int) -> np.ndarray:
    """Return the last row of images, or the last column."""
    return np.take(images, [-1], axis=axis)


def _means_of_images(name: str, images: np.ndarray, n: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield means of parts of images: so many along either side, if there are so many pixels."""
    down, across = (_ends_of_parts(size, n) for size in images.shape[1:])
    levels = _means(images, down, across)
    n_rows, n_columns = levels.shape[1:]
    for i in range(n_rows):
        for j in range(n_columns):
            yield f"{name}, row {i + 1} of {n_rows}, column {j + 1} of {n_columns}", levels[:, i, j]


def _means(images: np.ndarray, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Return the means of the parts of images, as whole numbers."""
    sums = np.add.reduceat(np.add.reduceat(images, down[:-1], axis=1), across[:-1], axis=2)
    n_pixels = np.outer(np.diff(down), np.diff(across))
    return _levels(sums, n_pixels * round(1 / PIXEL))


def _ends_of_parts(size: int, n_parts: int) -> np.ndarray:
    n_parts = min(n_parts, size)
    return np.arange(n_parts + 1) * size // n_parts


def _levels(sums: np.ndarray, largest: Any) -> np.ndarray:
    """Return whole numbers from 0 to below `_N_LEVELS`, in proportion to sums."""
    return np.minimum(sums * _N_LEVELS // largest, _N_LEVELS - 1)
