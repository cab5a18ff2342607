"""A sketch as what a file can hold, and back."""

from dataclasses import fields
from typing import Any

import numpy as np

from skdpot.generative._sketch.encoders import Box, encoder_from_header
from skdpot.generative._sketch.mixture import Mixture
from skdpot.generative._sketch.table_sketch import TableSketch, table_sketch_of
from skdpot.generative._sketch.vectors import VectorSketch, are_moves

Sketch = VectorSketch | TableSketch
_OF_MIXTURE = tuple(field.name for field in fields(Mixture))


def sketch_to_file(sketch: Sketch) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a sketch.

    Parameters
    ----------
    sketch : VectorSketch or TableSketch
        All of it was released, or is public.

    Returns
    -------
    header : dict
        What JSON can hold.
    arrays : dict of str to ndarray
        Numbers.
    """
    if isinstance(sketch, TableSketch):
        return {"table": sketch.header()}, dict(sketch.model)
    arrays = {name: getattr(sketch.mixture, name) for name in _OF_MIXTURE}
    if sketch.intensities is not None:
        arrays["intensities"] = sketch.intensities
    augment = None if sketch.augment is None else dict(sketch.augment)
    return {"encoder": sketch.encoder.header(), "augment": augment}, arrays


def sketch_from_file(
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    n_features: int,
    box: Box,
    encoder: Any,
) -> Sketch:
    """Return the sketch of a file.

    Parameters
    ----------
    header, arrays : dict
        Of `sketch_to_file`.
    n_features : int
        Numbers in a record.
    box : tuple of two ndarray of shape (n_features,)
        The declared bounds.
    encoder : transformer or pair of callables, or None
        The encoder of the user's own, where it was one.

    Returns
    -------
    VectorSketch or TableSketch
        As it was.

    Raises
    ------
    ValueError
        If the file does not hold one.
    """
    if "table" in header:
        return table_sketch_of(header["table"], arrays)
    mixture = Mixture(**{name: arrays.pop(name) for name in _OF_MIXTURE})
    intensities = arrays.pop("intensities", None)
    made = encoder_from_header(header["encoder"], n_features=n_features, box=box, encoder=encoder)
    augment = header["augment"]
    if (
        arrays
        or not _is_mixture(mixture, made.n_codes)
        or not (intensities is None or _are_shares(intensities, len(mixture.counts)))
        or not (augment is None or (made.is_image and are_moves(augment)))
    ):
        raise ValueError("the file does not hold a sketch.")
    return VectorSketch(made, mixture, intensities, augment)


def _is_mixture(mixture: Mixture, n_codes: int) -> bool:
    """Tell whether arrays are a mixture of vectors of this length."""
    counts, weights = mixture.counts, mixture.weights
    means, factors = mixture.means, mixture.factors
    return bool(
        counts.ndim == 1
        and mixture.unit.ndim == 0
        and means.ndim == factors.ndim == 3
        and means.shape[:2] == weights.shape
        and len(means) == len(counts)
        and len(factors) in (1, len(counts))
        and means.shape[2] == factors.shape[2] == n_codes
        and all(np.isfinite(getattr(mixture, name)).all() for name in _OF_MIXTURE)
        and (counts > 0).all()
        and mixture.unit > 0
        and (weights >= 0).all()
        and np.allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-9)
    )


def _are_shares(intensities: np.ndarray, n_classes: int) -> bool:
    """Tell whether an array holds the shares of intensities, of each class or of all."""
    return bool(
        intensities.ndim == 2
        and len(intensities) in (1, n_classes)
        and (intensities >= 0).all()
        and np.allclose(intensities.sum(axis=1), 1)
    )
