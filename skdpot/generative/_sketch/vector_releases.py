"""The releases of the sketch of vectors and images."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot._threads import one_blas_thread
from skdpot.generative._encoders import Encoder, RecordSpace
from skdpot.generative._encoders.images import blocks
from skdpot.generative._fitted import FittedRecords
from skdpot.generative._records import Points
from skdpot.generative._sketch.class_rows import ClassRows
from skdpot.generative._sketch.mixture import MixturePlan, MixtureSketch
from skdpot.generative._sketch.moments import BALL, COUNTED
from skdpot.generative._sketch.plan import SketchBudget, SketchSeries
from skdpot.generative._sketch.released_vectors import N_INTENSITIES, ReleasedVectors
from skdpot.generative._sketch.shrinkage import kept_shares
from skdpot.generative._sketch.vector_plan import STAGES, VectorPlan
from skdpot.privacy.preview import ExpectedError
from skdpot.releases import RADIUS, SketchReleases
from skdpot.transport import nearest_distribution

__all__ = ["VectorReleases"]


@dataclass(frozen=True)
class VectorReleases(SketchSeries):
    """The releases of a sketch of vectors: public.

    Parameters
    ----------
    space : RecordSpace
        The declaration of records.
    plan : VectorPlan
        Its releases.
    budget : SketchBudget
        Their noise.
    encoder : Encoder
        Of records, prepared for the space.
    augment : mapping of str to float or None
        The sizes of random moves of images that are drawn.
    progress : callable
        Makes a progress bar.
    """

    space: RecordSpace
    plan: VectorPlan
    budget: SketchBudget
    encoder: Encoder
    augment: Mapping[str, float] | None
    progress: Callable[..., Any]

    label = "a sketch"

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the size and of the mean of a class.

        An estimate without data is off by the size of a class, and by the radius of the ball that
        records are moved into.
        """
        class_size = n_records / self.plan.n_classes
        releases = self._releases(None)
        self._divide(releases, self.plan.sizes(n_records, self.encoder))
        count = releases.standard_deviation("counts", COUNTED)
        sum_noise = releases.standard_deviation("means", BALL) * math.sqrt(self.encoder.n_codes)
        mean = sum_noise / RADIUS / class_size
        return (
            ExpectedError("standard error of the number of records of a class", count, class_size),
            ExpectedError("error of the mean of a class, in radii of the records", mean, 1.0),
        )

    def run(self, records: Points, source: Any) -> FittedRecords:
        """Release the sketch."""
        # Independent of all records, and of their number; chooses the first centres of clusters.
        rng = np.random.default_rng(source.bits(62, 2).tolist())
        releases = self._releases(source)
        # Products are small, and with one thread rounding does not depend on the machine.
        with one_blas_thread(), self.progress(unit=" releases") as bar:
            size = float(releases.run("size", np.array(len(records.points)), COUNTED))
            bar.update()
            encoder = self.encoder
            sizes = self.plan.sizes(size, encoder)
            self._divide(releases, sizes)
            intensities = None
            if self.plan.n_pixels:
                intensities = self._intensities(records, releases)
                encoder = self._on_ground(encoder, intensities, releases, size)
                bar.update()
            # Norms are at most one, so that no square overflows.
            codes = encoder.encode(records.points)
            codes /= encoder.largest_norm
            rows = [ClassRows(codes[records.labels == c]) for c in range(sizes.n_classes)]
            # This array is as large as the copies of its parts.
            del codes
            sums = MixtureSketch(rows, sizes, releases, bar.update)
            mixture = sums.release(encoder.largest_norm, rng)
        sketch = ReleasedVectors(encoder, mixture, intensities, self.augment, sums.noise)
        return FittedRecords(self.space, sketch, None)

    def _releases(self, source: Any) -> SketchReleases:
        budget = self.budget
        return SketchReleases(budget.noise_multiplier, STAGES, budget.neighbouring, source)

    def _divide(self, releases: SketchReleases, sizes: MixturePlan) -> None:
        """Divide the budget, given an estimate of the number of records."""
        planned = self.plan.releases(sizes)
        releases.divide("sketch", {name: release.share for name, release in planned.items()})

    def _intensities(self, records: Points, releases: SketchReleases) -> np.ndarray:
        """Release the shares of the intensities of pixels, of all classes together.

        With intensities of each class, the maps of pixels alone would distinguish classes.
        """
        counts = intensity_counts(records.points)
        noisy = releases.run("intensities", counts, self.plan.intensity_sensitivity)
        return nearest_distribution(noisy / max(noisy.sum(), 1.0))

    def _on_ground(
        self, encoder: Encoder, intensities: np.ndarray, releases: SketchReleases, size: float
    ) -> Encoder:
        """Return the encoder with the mean intensity as its ground, as far as it is not noise."""
        if encoder.ground is None:
            return encoder
        centres = (np.arange(N_INTENSITIES) + 0.5) / N_INTENSITIES
        mean = intensities @ centres
        deviation = releases.standard_deviation("intensities", self.plan.intensity_sensitivity)
        n_pixels = max(size, 1.0) * self.plan.n_pixels
        noise = np.array([np.sum((centres - mean) ** 2) * (deviation / n_pixels) ** 2])
        difference = np.array([mean - encoder.ground])
        kept = kept_shares(difference, noise, np.zeros(1))
        return encoder.on_ground(float(encoder.ground + (kept * difference)[0]))


def intensity_counts(points: Any) -> np.ndarray:
    """Return the histogram of intensities. A record has one pixel for each feature."""
    counts = np.zeros(N_INTENSITIES, dtype=np.int64)
    for rows in blocks(*points.shape):
        scaled = (points[rows] + 1) * (N_INTENSITIES / 2)
        bins = np.minimum(scaled.astype(np.int64), N_INTENSITIES - 1)
        counts += np.bincount(bins.ravel(), minlength=N_INTENSITIES)
    return counts
