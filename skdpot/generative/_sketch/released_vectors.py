"""The released sketch of vectors and images, from which records are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from skdpot._threads import one_blas_thread
from skdpot.generative._encoders import Encoder, RecordSpace, encoder_from_header
from skdpot.generative._encoders.images import blocks
from skdpot.generative._encoders.pixels import IntensityMap
from skdpot.generative._sketch.file_parts import part_of, with_kinds, with_prefix
from skdpot.generative._sketch.mixture import NOISE, Mixture

__all__ = ["MOVES", "N_INTENSITIES", "ReleasedVectors", "are_moves", "is_size"]

# Bins of the histogram of intensities, and the number of images that are compared with it.
N_INTENSITIES = 20
_N_COMPARED = 2000
# Random moves of images. Lengths are in parts of the height.
_LENGTHS = ("shift", "bend")
MOVES = ("rotation", "scale", *_LENGTHS)
_MIXTURE_ARRAYS = tuple(field.name for field in fields(Mixture))
_NOISE_PREFIX = "noise."


@dataclass(frozen=True)
class ReleasedVectors:
    """The released sketch of vectors or images, from which records are drawn.

    Parameters
    ----------
    encoder : Encoder
        Public.
    mixture : Mixture
        Of codes.
    intensities : ndarray of shape (20,) or None
        Shares of the intensities of all pixels of all records.
    augment : dict or None
        The sizes of random moves of images.
    noise : mapping of str to ndarray, default=None
        Of `MixtureSketch`. Files of earlier versions have none.
    """

    encoder: Encoder
    mixture: Mixture
    intensities: np.ndarray | None
    augment: Mapping[str, float] | None
    noise: Mapping[str, np.ndarray] | None = None

    @property
    def counts(self) -> np.ndarray:
        """Return an estimate of the number of records of each class."""
        return self.mixture.counts

    @property
    def n_records(self) -> int:
        """Return an estimate of the number of records."""
        return round(float(self.counts.sum()))

    @property
    def known_noise(self) -> Mapping[str, np.ndarray]:
        """Return the noise of the releases, or raise for a file that does not hold it."""
        if self.noise is None:
            raise ValueError(
                "an earlier version saved the generator without the size of the noise: fit again."
            )
        return self.noise

    def prototypes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of all clusters as records, from -1 to 1, and their classes."""
        means = self.mixture.means * self.mixture.unit
        n_classes, n_clusters, n_codes = means.shape
        labels = np.repeat(np.arange(n_classes), n_clusters)
        return self.encoder.decode(means.reshape(-1, n_codes).astype(np.float64)), labels

    def drawn_labels(self, n_samples: int, rng: Any) -> np.ndarray:
        """Return classes, drawn in proportion to their numbers of records."""
        counts = self.counts
        return rng.choice(len(counts), n_samples, p=counts / counts.sum())

    def rows(self, labels: np.ndarray, rng: Any) -> np.ndarray:
        """Return records of these classes, from -1 to 1."""
        with one_blas_thread():
            # Intensities need no more digits, and there may be many codes.
            drawn = self.mixture.draw(labels, rng, single=self.encoder.for_images)
            rows = self.encoder.sampled(drawn, rng, self._moves())
            if self._intensity_map is not None:
                for block in blocks(*rows.shape):
                    rows[block] = 2 * self._intensity_map.of((rows[block] + 1) / 2) - 1
            return rows

    @cached_property
    def _intensity_map(self) -> IntensityMap | None:
        """Return the map to released intensities; it does not depend on the classes drawn."""
        if self.intensities is None:
            return None
        # A fixed seed, so that the map is a function of the release.
        rng = np.random.default_rng(0)
        drawn = self.mixture.draw(self.drawn_labels(_N_COMPARED, rng), rng)
        rows = self.encoder.sampled(drawn, rng, self._moves())
        return IntensityMap((rows + 1) / 2, self.intensities)

    def _moves(self) -> dict[str, float] | None:
        """Return the sizes of random moves, with lengths in pixels."""
        if self.augment is None or self.encoder.image_shape is None:
            return None
        height = self.encoder.image_shape[0]
        return {n: x * height if n in _LENGTHS else x for n, x in self.augment.items()}

    def to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a header that JSON can hold, and arrays."""
        arrays = {name: getattr(self.mixture, name) for name in _MIXTURE_ARRAYS}
        if self.intensities is not None:
            arrays["intensities"] = self.intensities[None]
        arrays |= with_prefix(self.noise, _NOISE_PREFIX)
        augment = None if self.augment is None else dict(self.augment)
        return {"encoder": self.encoder.header(), "augment": augment}, arrays

    @classmethod
    def from_file(
        cls, header: dict[str, Any], arrays: dict[str, np.ndarray], space: RecordSpace
    ) -> "ReleasedVectors":
        """Return the sketch of a file, or raise."""
        mixture = Mixture(**{name: arrays.pop(name) for name in _MIXTURE_ARRAYS})
        shares = arrays.pop("intensities", None)
        noise = part_of(arrays, _NOISE_PREFIX)
        encoder = encoder_from_header(header["encoder"], space)
        augment = header["augment"]
        n_classes = max(space.n_classes, 1)
        if (
            len(arrays) != len(noise)
            or not mixture.is_sound(n_classes, encoder.n_codes)
            or not (not noise or _is_noise(noise, n_classes))
            or not (shares is None or _are_shares(shares, n_classes))
            or not (augment is None or (encoder.image_shape and are_moves(augment)))
        ):
            raise ValueError("the file does not hold a sketch.")
        if shares is not None:
            # Earlier versions released the intensities of every class.
            several = len(shares) > 1
            shares = np.average(shares, axis=0, weights=mixture.counts) if several else shares[0]
        return cls(encoder, mixture, shares, augment, noise or None)


def _is_noise(noise: Mapping[str, np.ndarray], n_classes: int) -> bool:
    """Tell whether arrays of a file hold the noise of each class."""
    typed = with_kinds(noise, dict.fromkeys(NOISE, np.float64))
    return noise.keys() == typed.keys() and all(
        part.shape == (n_classes,) and np.isfinite(part).all() and (part >= 0).all()
        for part in typed.values()
    )


def _are_shares(intensities: np.ndarray, n_classes: int) -> bool:
    """Tell whether an array holds the shares of intensities, of all classes or of each."""
    return bool(
        intensities.shape in ((1, N_INTENSITIES), (n_classes, N_INTENSITIES))
        and (intensities >= 0).all()
        and np.allclose(intensities.sum(axis=1), 1)
    )


def are_moves(augment: Any) -> bool:
    """Tell whether a value holds the sizes of random moves of images."""
    return isinstance(augment, dict) and all(
        name in MOVES and is_size(size) for name, size in augment.items()
    )


def is_size(value: Any) -> bool:
    """Tell whether a value is a number of at least 0 that is not too large."""
    return isinstance(value, Real) and 0 <= float(value) < 1e3
