"""The sketch of records that an encoder turns into vectors, and records that are drawn from it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from skdpot.generative._sketch.clusters import ROUND
from skdpot.generative._sketch.encoders import Encoder
from skdpot.generative._sketch.images import CosineEncoder
from skdpot.generative._sketch.mixture import Mixture, MixturePlan, release_mixture
from skdpot.generative._sketch.moments import BALL, COUNTED, SYMMETRIC, WITH_COUNT
from skdpot.generative._sketch.pixels import (
    decode_moved,
    jitter,
    match_intensities,
    vary_within_range,
)
from skdpot.generative._sketch.plan import PlannedRelease
from skdpot.privacy.sensitivity import repeated_count_sensitivity
from skdpot.releases import SketchReleases
from skdpot.transport import nearest_distribution

# Bins of the histogram of intensities.
_N_INTENSITIES = 20
# Parts of the budget where noise leaves little of a class, but for its mean; where it leaves
# covariances of all classes in common; and where it leaves those of each class.
_LITTLE = {"counts": 0.03, "radii": 0.03, "intensities": 0.03, "means": 0.61, "kernels": 0.30}
_COMMON = {
    **{"counts": 0.003, "radii": 0.012, "intensities": 0.01, "means": 0.08, "covariances": 0.10},
    **{"assignments": 0.10, "clusters": 0.27, "kernels": 0.225},
}
_OWN = {
    **{"counts": 0.003, "radii": 0.009, "intensities": 0.01, "means": 0.06, "covariances": 0.30},
    **{"assignments": 0.10, "clusters": 0.20, "kernels": 0.30},
}
SHARE_NAMES = tuple(_OWN)
# Of the whole; the latter is shared out when it is known how many records there are, about.
STAGES = {"size": 0.002, "sketch": 0.998}
# The noise of a mean of a class, in units of a radius, from which on classes share histograms, or
# have no covariances of their own.
_SHARED_HISTOGRAMS, _SHARED_COVARIANCES = 0.02, 0.004
# Clusters are as many as this over the noise, and no more than these.
_CLUSTERS_AT, _MOST_CLUSTERS = 0.25, 30
# A cluster has at least so many records on an average.
_RECORDS_OF_CLUSTER = 30
_N_DIRECTIONS, _N_ROUNDS = 30, 3
# The share of vectors that are not clipped, where noise is small, and otherwise: to clip half of
# them costs less than the noise of a larger radius.
_MOST_KEPT, _HALF_KEPT = 0.8, 0.5
# By how much images of strokes are moved at random: radians, the logarithm of a factor, and parts
# of the height.
USUAL_MOVES = {"rotation": 0.12, "scale": 0.1, "shift": 1 / 28, "bend": 1 / 28}


@dataclass(frozen=True)
class VectorPlan:
    """What of a sketch of vectors is public before anything is released.

    Parameters
    ----------
    n_classes : int
        At least 1.
    noise_multiplier : float
        Of the whole sketch.
    n_clusters : int or None
        Clusters of a class; None chooses.
    budget_shares : mapping of str to float
        The user's own parts of the budget.
    n_pixels : int
        Of which intensities are counted; 0 for none.
    """

    n_classes: int
    noise_multiplier: float
    n_clusters: int | None
    budget_shares: Mapping[str, float]
    n_pixels: int

    @property
    def of_intensities(self) -> Callable[..., float]:
        """Return by how much a record can change counts of the intensities of its pixels."""
        return partial(repeated_count_sensitivity, n_values=self.n_pixels)

    def sizes(self, n_records: float, encoder: Encoder) -> MixturePlan:
        """Return the sizes of a mixture of about so many records."""
        of_class = max(n_records, 1.0) / self.n_classes
        noise = self.noise_multiplier * math.sqrt(encoder.n_codes) / of_class
        n_clusters = self.n_clusters
        if n_clusters is None:
            affordable = min(_CLUSTERS_AT / max(noise, 1e-9), of_class / _RECORDS_OF_CLUSTER)
            n_clusters = max(1, min(int(affordable), _MOST_CLUSTERS))
        return MixturePlan(
            n_codes=encoder.n_codes,
            n_classes=self.n_classes,
            n_clusters=n_clusters,
            n_directions=min(_N_DIRECTIONS, encoder.n_codes),
            n_rounds=_N_ROUNDS,
            own_histograms=noise < _SHARED_HISTOGRAMS,
            own_covariances=noise < _SHARED_COVARIANCES,
            level=_MOST_KEPT if noise < _SHARED_COVARIANCES else _HALF_KEPT,
            frequencies=encoder.frequencies,
        )

    def releases(self, sizes: MixturePlan) -> dict[str, PlannedRelease]:
        """Return the releases of a mixture, and of intensities."""
        shares = _LITTLE if sizes.n_clusters == 1 else _OWN if sizes.own_covariances else _COMMON
        clustered = sizes.n_clusters > 1
        radii = ["norms of records", "norms of residuals", "norms within clusters"]
        groups: dict[str, tuple[list[str], Any]] = {
            "counts": (["counts"], COUNTED),
            "radii": (radii[: 2 + clustered], COUNTED),
            "intensities": (["intensities"] if self.n_pixels else [], self.of_intensities),
            "means": (["means"], BALL),
            "kernels": (["kernels"], SYMMETRIC),
        }
        if clustered:
            groups["covariances"] = (["covariances"], SYMMETRIC)
            rounds = [f"assignments {t + 1}" for t in range(sizes.n_rounds)]
            groups["assignments"] = (rounds, ROUND)
            groups["clusters"] = (["clusters"], WITH_COUNT)
        return {
            name: PlannedRelease(
                self.budget_shares.get(group, shares[group]) / len(names), sensitivity
            )
            for group, (names, sensitivity) in groups.items()
            for name in names
        }


@dataclass(frozen=True)
class VectorSketch:
    """What was released of records, and how records are made of it.

    Parameters
    ----------
    encoder : Encoder
        Public.
    mixture : Mixture
        Of codes.
    intensities : ndarray of shape (n_classes, 20) or (1, 20), or None
        Shares of the intensities of pixels: of each class, or of all.
    augment : dict or None
        By how much images are moved at random.
    """

    encoder: Encoder
    mixture: Mixture
    intensities: np.ndarray | None
    augment: Mapping[str, float] | None

    @property
    def counts(self) -> np.ndarray:
        """Return how many records each class has, about."""
        return self.mixture.counts

    def rows(self, labels: np.ndarray, rng: Any) -> np.ndarray:
        """Return records of these classes, from -1 to 1."""
        codes, clusters = self.mixture.draw(labels, rng)
        if isinstance(self.encoder, CosineEncoder):
            rows = self._varied(self.encoder, codes, labels, clusters)
            if self.augment is not None:
                rows = jitter(rows, rng, self.encoder.image_shape, **self._moves())
        elif self.augment is None:
            rows = self.encoder.decode(codes)
        else:
            rows = decode_moved(self.encoder, codes, rng, **self._moves())
        if self.intensities is None:
            return rows
        images = (rows + 1) / 2
        for c in np.unique(labels):
            drawn, of_class = labels == c, self.intensities[c % len(self.intensities)]
            images[drawn] = match_intensities(images[drawn], of_class)
        return 2 * images - 1

    def _varied(
        self, encoder: CosineEncoder, codes: np.ndarray, labels: np.ndarray, clusters: np.ndarray
    ) -> np.ndarray:
        """Return images that vary around those of their clusters by no more than pixels can."""
        images = encoder.intensities(codes)
        for c in np.unique(labels):
            means = encoder.intensities(self.mixture.means[c] * self.mixture.unit)
            factor = self.mixture.factors[c % len(self.mixture.factors)]
            spreads = np.linalg.norm(encoder.intensities(factor * self.mixture.unit), axis=0)
            rows = np.flatnonzero(labels == c)
            images[rows] = vary_within_range(images[rows], means[clusters[rows]], spreads)
        return 2 * images - 1

    def _moves(self) -> dict[str, float]:
        """Return by how much images are moved, with lengths in pixels."""
        height = (self.encoder.image_shape or (1,))[0]
        augment = self.augment or {}
        lengths = ("shift", "bend")
        return {name: x * height if name in lengths else x for name, x in augment.items()}


def are_moves(augment: Any) -> bool:
    """Tell whether something says by how much images are moved."""
    return isinstance(augment, dict) and all(
        name in USUAL_MOVES and is_size(size) for name, size in augment.items()
    )


def is_size(value: Any) -> bool:
    """Tell whether something is a number from 0 on that is not too large."""
    return isinstance(value, Real) and 0 <= float(value) < 1e3


def release_vectors(
    points: np.ndarray,
    labels: np.ndarray,
    encoder: Encoder,
    plan: VectorPlan,
    releases: SketchReleases,
    rng: Any,
    augment: Mapping[str, float] | None,
    advance: Callable[[], Any] = lambda: None,
) -> VectorSketch:
    """Return the sketch of records.

    Parameters
    ----------
    points : ndarray of shape (n, n_features)
        Private, from -1 to 1.
    labels : ndarray of shape (n,)
        Private, from 0 to ``n_classes - 1``.
    encoder : Encoder
        Public.
    plan : VectorPlan
        Public.
    releases : SketchReleases
        Of "size" and "sketch"; the latter is shared out among the releases of the former's plan.
    rng : numpy.random.Generator
        Of numbers that depend on no record.
    augment : dict or None
        Public.
    advance : callable
        Is called after every release.

    Returns
    -------
    VectorSketch
        Made of what was released.
    """
    size = float(releases.run("size", np.array(len(points)), COUNTED))
    advance()
    sizes = plan.sizes(size, encoder)
    planned = plan.releases(sizes)
    releases.divide("sketch", {name: release.share for name, release in planned.items()})
    intensities = None
    if plan.n_pixels:
        intensities = _release_intensities(points, labels, plan, sizes.own_histograms, releases)
        advance()
    # Of norms up to one, so that no square is out of range.
    unit = encoder.largest_norm
    codes = encoder.encode(points) / unit
    mixture = release_mixture(codes, unit, labels, sizes, releases, rng, advance)
    return VectorSketch(encoder, mixture, intensities, augment)


def _release_intensities(
    points: np.ndarray,
    labels: np.ndarray,
    plan: VectorPlan,
    of_each_class: bool,
    releases: SketchReleases,
) -> np.ndarray:
    """Return the shares of the intensities of pixels, of each class or of all."""
    counts = _intensity_counts(points, labels, plan)
    if not of_each_class:
        counts = counts.sum(axis=0, keepdims=True)
    noisy = releases.run("intensities", counts, plan.of_intensities)
    return np.stack([nearest_distribution(row / max(row.sum(), 1.0)) for row in noisy])


def _intensity_counts(points: np.ndarray, labels: np.ndarray, plan: VectorPlan) -> np.ndarray:
    """Return how many pixels of each class are how bright; a record has `n_pixels` of them."""
    counts = np.zeros((plan.n_classes, _N_INTENSITIES), dtype=np.int64)
    for c in range(plan.n_classes):
        scaled = (points[labels == c] + 1) * (_N_INTENSITIES / 2)
        bins = np.minimum(scaled.astype(np.int64), _N_INTENSITIES - 1)
        counts[c] = np.bincount(bins.ravel(), minlength=_N_INTENSITIES)
    return counts
