"""A sketch as what a file can hold, and back."""

from dataclasses import fields
from typing import Any

import numpy as np

from skdpot.generative._sketch.encoders import Box, encoder_from_header
from skdpot.generative._sketch.mixture import Mixture
from skdpot.generative._sketch.table_sketch import TableSketch, table_sketch_of
from skdpot.generative._sketch.vectors import VectorSketch

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
    _check(mixture, intensities, made.n_codes)
    if arrays or not all(np.isfinite(getattr(mixture, name)).all() for name in _OF_MIXTURE):
        raise ValueError("the file does not hold a sketch.")
    return VectorSketch(made, mixture, intensities, header["augment"])


def _check(mixture: Mixture, intensities: np.ndarray | None, n_codes: int) -> None:
    """Raise unless the arrays of a sketch go together."""
    weights, means, factors = mixture.weights, mixture.means, mixture.factors
    n_classes = len(np.atleast_1d(mixture.counts))
    if (
        mixture.counts.shape != (n_classes,)
        or weights.shape != means.shape[:2]
        or means.ndim != 3
        or len(means) != n_classes
        or means.shape[2] != n_codes
        or factors.ndim != 3
        or factors.shape[2] != n_codes
        or len(factors) not in (1, n_classes)
        or not (weights >= 0).all()
        or not np.allclose(weights.sum(axis=1), 1)
        or not (mixture.counts > 0).all()
        or (intensities is not None and (intensities.ndim != 2 or not (intensities >= 0).all()))
    ):
        raise ValueError("the arrays of the file do not make a sketch.")
