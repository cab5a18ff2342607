"""Encoders of records as they are, each feature in a unit of its own."""

import math

import numpy as np

from skdpot.generative._encoders.encoder import (
    INSIDE,
    LARGEST_NORM,
    SMALLEST_NORM,
    Encoder,
    RecordSpace,
)


class BoundedEncoder(Encoder):
    """Records with every feature in units of its bounds."""

    name = "whiten-by-bounds"
    _parameter_constraints: dict = {}

    @classmethod
    def usual_for(cls, space: RecordSpace) -> bool:
        return cls is BoundedEncoder and space.image_shape is None

    def _prepare(self, space: RecordSpace, ample: bool) -> None:
        self._units = self._units_of(space)
        self.n_codes = space.n_features
        self.largest_norm = math.hypot(*self._units) / INSIDE
        if not SMALLEST_NORM <= self.largest_norm <= LARGEST_NORM:
            raise ValueError(
                "the widths of bounds are out of range for the units of the data: use "
                'encoder="whiten-by-bounds".'
            )

    def _units_of(self, space: RecordSpace) -> np.ndarray:
        return np.ones(space.n_features)

    def _encode(self, points: np.ndarray) -> np.ndarray:
        return points * self._units

    def _decode(self, codes: np.ndarray) -> np.ndarray:
        return np.clip(codes / self._units, -1, 1)


class IdentityEncoder(BoundedEncoder):
    """Records with every feature in the units of the data: wide ranges have more weight."""

    name = "identity"

    def _units_of(self, space: RecordSpace) -> np.ndarray:
        low, high = space.box
        return (high - low) / 2
