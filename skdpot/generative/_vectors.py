"""The sketch of vectors and images: its parameters, and its release.

A mixture of Gaussian distributions for each class of vectors, from noisy sums.

`MixtureSketch` lists the releases in order, and the contribution of one record. The proofs are in
:ref:`proof-sketch-releases`. All else is computed from the releases.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import gammaincinv
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, StrOptions, validate_parameters
from skdpot._threads import one_blas_thread
from skdpot.generative._budget import PlannedRelease, SketchBudget, SketchSeries, check_noise
from skdpot.generative._encoders import Encoder, RecordSpace, make_encoder
from skdpot.generative._gaussians import (
    BALL,
    COUNT,
    COUNTED,
    DIAGONAL,
    MOVES,
    N_INTENSITIES,
    ROUND,
    SYMMETRIC,
    WITH_COUNT,
    Centres,
    ClassRows,
    Mixture,
    ReleasedVectors,
    are_moves,
    as_matrix,
    clean_covariance,
    expected_variances,
    fit_norms,
    is_size,
    kept_shares,
    square_roots,
)
from skdpot.generative._images import blocks
from skdpot.generative._network import NetworkTraining, Training
from skdpot.generative._records import Declared, FittedRecords, Points, read_points, unseen_points
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.sensitivity import repeated_count_sensitivity
from skdpot.releases import RADIUS, SketchReleases
from skdpot.transport import nearest_distribution

# The share of records that are not clipped in the search for clusters.
_UNCLIPPED = 0.93
# Regularisation of assignments, in units of the mean variance along these directions.
_REG = 0.6
# The smallest size of a class, and of a cluster, as a part of an equal share.
_LEAST_CLASS, _LEAST_CLUSTER = 0.05, 0.1
# The least and largest factor of distances, which makes up for clipping.
_RESTORED = 0.8, 1.5
# The part of the covariance within clusters of images that is common to all classes. A covariance
# of one class would give its images a texture that reveals the class, and that real images do not
# have. In small classes, where noise makes this worse, all of it is.
_IN_COMMON = 0.5
# The number of leading directions that are shrunk one by one; others are shrunk by tens.
_FIRST = 30


@dataclass(frozen=True)
class MixturePlan:
    """The public plan of a mixture's releases.

    Parameters
    ----------
    n_codes, n_classes, n_clusters, n_directions, n_rounds : int
        Sizes: of vectors, of classes, of clusters of a class, of the directions in which they are
        looked for, and of rounds.
    own_histograms, own_covariances : bool
        Whether every class has its own, or all have one in common.
    least_own : float
        Of images: a class of fewer records has the common covariance within clusters.
    level : float
        The share of vectors that are not clipped.
    frequencies : ndarray of shape (n_codes,) or None
        Of the coordinates of images.
    """

    n_codes: int
    n_classes: int
    n_clusters: int
    n_directions: int
    n_rounds: int
    own_histograms: bool
    own_covariances: bool
    least_own: float
    level: float
    frequencies: np.ndarray | None


class MixtureSketch:
    """The releases of a mixture, one after another, and the knowledge after each of them.

    Parameters
    ----------
    rows : list of ClassRows
        Private: of each class the codes, of norms up to 1. They are changed.
    plan : MixturePlan
        Sizes.
    releases : SketchReleases
        Makes the releases, each once.
    advance : callable
        Is called after every release.

    Attributes
    ----------
    noise : dict of str to ndarray of shape (n_classes,)
        A function of the releases, by `NOISE`; in the unit of the codes.
    """

    def __init__(self, rows, plan, releases, advance):
        self.noise = {}
        self._plan, self._releases, self._advance = plan, releases, advance
        self._rows = rows
        # Before clusters are released, each class has one, around its mean.
        self._weights = np.ones((plan.n_classes, 1))
        self._centres = np.zeros((plan.n_classes, 1, plan.n_codes))
        self._inner_norms = None
        # Images do not get back the variance that clipping took: models learn better without it.
        self._gives_back = plan.frequencies is None

    def release(self, unit, rng):
        """Return a mixture that describes the codes, in their unit.

        Where clusters are looked for at first depends on `rng`, and on no record.
        """
        self._release_counts()
        self._release_means()
        if self._plan.n_clusters > 1:
            self._release_covariances()
            self._release_assignments(rng)
            self._release_clusters()
        self._release_kernels()
        means = self._means[:, None] + self._centres
        # Noise leaves no more digits than these. The memory layout is that of arrays of a file, so
        # that sums have the same rounding errors.
        means, factors = (part.astype(np.float32, order="C") for part in (means, self._factors))
        return Mixture(self._counts, self._weights, means, factors, np.array(unit))

    def _release_counts(self):
        """Release the sizes of classes. A record adds one to that of its own."""
        counts = np.array([len(rows) for rows in self._rows], dtype=np.int64)
        noisy = self._release("counts", counts, COUNTED)
        alike = np.full(len(noisy), noisy.mean())
        noise, all_alike = self._deviation("counts", COUNTED) ** 2, np.zeros(len(noisy))
        counts = alike + kept_shares(noisy - alike, noise, all_alike) * (noisy - alike)
        self._counts = np.maximum(counts, max(_LEAST_CLASS * counts.mean(), 1.0))
        self.noise["size"] = np.sqrt(np.full(len(counts), noise))

    def _release_means(self):
        """Release the sums of classes. A record adds a vector in the ball to that of its own."""
        radii = self._release_norms("norms of records").quantiles(self._plan.level)
        self._clip(radii)
        sums = np.stack([rows.sums() for rows in self._rows])
        units = (radii / RADIUS / self._counts)[:, None]
        means = self._release("means", sums, BALL) * units
        noise = (self._deviation("means", BALL) * units) ** 2
        self.noise |= {"radius": radii, "mean": np.sqrt(noise[:, 0])}
        overall = np.average(means, axis=0, weights=self._counts / radii**2)
        n_classes = len(means)
        if n_classes > 1:
            # The classes vary less around their own mean than around the true one.
            differences = means - overall
            unbiased = differences * np.sqrt(n_classes / (n_classes - 1))
            kept = kept_shares(unbiased, noise, self._coordinate_groups())
            means = overall + kept * differences
        self._means = means
        for rows, mean in zip(self._rows, means, strict=True):
            rows.subtract(mean)

    def _release_covariances(self):
        """Release mean products of residuals. A record adds those of a vector in the ball."""
        norms = self._release_norms("norms of residuals")
        radii = self._radii_of_products(norms)
        self._clip(radii)
        self._covariances = self._release_symmetric("covariances", self._lost(norms, radii))
        self._pooled = np.tensordot(
            self._counts / self._counts.sum(), np.stack(self._by_class(self._covariances)), 1
        )

    def _release_assignments(self, rng):
        """Release rounds. A record adds its shares, and as many times a vector in the ball."""
        plan = self._plan
        centres, bases = [], []
        for rows, unit, covariance in zip(
            self._rows, self._units, self._by_class(self._covariances), strict=True
        ):
            values, vectors = np.linalg.eigh(covariance)
            leading = slice(None, -plan.n_directions - 1, -1)
            scale = np.sqrt(np.maximum(values[leading], 0.0))
            radius = float(np.sqrt(np.sum(scale**2)) * _reach(scale**2))
            rows.project(vectors[:, leading], unit, radius)
            scale *= RADIUS / radius
            start = rng.standard_normal((plan.n_clusters, len(scale))) * scale
            centres.append(Centres(start, _REG * np.mean(scale**2)))
            bases.append(vectors[:, leading].T * (radius / RADIUS))
        for t in range(plan.n_rounds):
            name = f"assignments {t + 1}"
            sums = [rows.round_sums(at) for at, rows in zip(centres, self._rows, strict=True)]
            released = self._release(name, np.stack(sums), ROUND)
            for at, noisy, count in zip(centres, released, self._counts, strict=True):
                at.move(noisy, self._deviation(name, ROUND), count)
        self._centres = np.stack([at.points @ b for at, b in zip(centres, bases, strict=True)])
        for rows, at, class_centres in zip(self._rows, centres, self._centres, strict=True):
            rows.find_nearest(at)
            rows.subtract_nearest(class_centres)

    def _release_clusters(self):
        """Release sizes and sums of clusters. A record adds a count, and a vector in the ball."""
        n_clusters = self._plan.n_clusters
        self._inner_norms = self._release_norms("norms within clusters")
        radii = self._inner_norms.quantiles(self._plan.level)
        self._clip(radii)
        sums = np.stack([rows.counts_and_sums(n_clusters) for rows in self._rows])
        noisy = self._release("clusters", sums, WITH_COUNT)
        counts = noisy[..., 0] / COUNT
        counts = np.maximum(counts, _LEAST_CLUSTER * self._counts[:, None] / n_clusters)
        units = (radii / RADIUS)[:, None] / counts
        steps = noisy[..., 1:] * units[..., None]
        noise = (self._deviation("clusters", WITH_COUNT) * units) ** 2
        self._weights = counts / counts.sum(axis=1, keepdims=True)
        means = self._shrunk(self._centres + steps, noise)
        for rows, step in zip(self._rows, means - self._centres, strict=True):
            rows.subtract_nearest(step)
        self._centres = means

    def _release_kernels(self):
        """Release mean products within clusters. A record adds those of a vector in the ball."""
        if self._inner_norms is None:
            self._inner_norms = self._release_norms("norms of residuals")
        radii = self._radii_of_products(self._inner_norms)
        self._clip(radii)
        kernels = self._release_symmetric("kernels", self._lost(self._inner_norms, radii))
        if self._plan.frequencies is not None and self._plan.own_covariances:
            alike = np.average(kernels, axis=0, weights=self._counts)
            is_small = self._counts < self._plan.least_own
            in_common = np.where(is_small, 1.0, _IN_COMMON)
            kernels += in_common[:, None, None] * (alike - kernels)
        self._factors = square_roots(kernels)
        if self._plan.n_clusters > 1 and self._gives_back:
            self._restore_spread(kernels)

    def _restore_spread(self, kernels):
        """Give clusters and kernels together the variance that was released of classes."""
        shares = self._counts / self._counts.sum()
        totals = [np.trace(covariance) for covariance in self._by_class(self._covariances)]
        within = [np.trace(kernel) for kernel in self._by_class(kernels)]
        between = np.einsum("ck,ckj,ckj->c", self._weights, self._centres, self._centres)
        missing = max(shares @ (np.array(totals) - within), 0.0) / max(shares @ between, 1e-300)
        self._centres = self._centres * np.clip(np.sqrt(missing), *_RESTORED)

    def _clip(self, radii):
        """Take the rows of classes in units of these balls."""
        self._units = radii / RADIUS
        for rows, radius in zip(self._rows, radii, strict=True):
            rows.clip(radius)

    def _release(self, name, sums, sensitivity):
        released = self._releases.run(name, sums, sensitivity)
        self._advance()
        return released

    def _deviation(self, name, sensitivity):
        return self._releases.standard_deviation(name, sensitivity)

    def _release_norms(self, name):
        """Return the distributions of norms. A record adds one to a bin of a histogram."""
        counts = np.stack([rows.norm_counts() for rows in self._rows])
        if not self._plan.own_histograms:
            counts = counts.sum(axis=0, keepdims=True)
        norms = fit_norms(self._release(name, counts, COUNTED), self._deviation(name, COUNTED))
        return norms.of(len(self._rows))

    def _radii_of_products(self, norms):
        """Return radii that are the same for all classes where their covariance is."""
        radii = norms.quantiles(self._plan.level)
        return radii if self._plan.own_covariances else np.full_like(radii, radii.max())

    def _lost(self, norms, radii):
        """Return factors by which covariances of classes are to be larger than clipped ones."""
        return norms.lost(radii) if self._gives_back else np.ones(len(radii))

    def _release_symmetric(self, name, lost):
        """Return covariances without noise as far as possible: of all, or of each class.

        The part that clipping took, `lost`, is given back equally along all directions.
        """
        n_codes, separate = self._plan.n_codes, self._plan.own_covariances
        sums = np.stack([rows.symmetric_sums() for rows in self._rows])
        if not separate:
            sums = sums.sum(axis=0, keepdims=True)
        sums = self._release(name, sums, SYMMETRIC)
        counts = self._counts if separate else self._counts.sum(keepdims=True)
        squared_units = self._units[: len(counts)] ** 2
        noisy = np.stack([as_matrix(entries, n_codes) for entries in sums])
        noisy *= (squared_units / counts)[:, None, None]
        deviations = self._deviation(name, SYMMETRIC) / DIAGONAL * squared_units / counts
        self.noise["variance"] = np.resize(deviations, self._plan.n_classes)
        parts = counts / counts.sum()
        pooled = np.tensordot(parts, noisy, 1)
        deviation = float(np.linalg.norm(parts * deviations))
        variances = expected_variances(np.diag(pooled), deviation, self._plan.frequencies)
        overall = clean_covariance(pooled, deviation, np.diag(variances))
        if not separate:
            return overall[None] * np.average(lost, weights=self._counts)
        cleaned = [
            clean_covariance(s, float(d), overall) for s, d in zip(noisy, deviations, strict=True)
        ]
        return np.stack(cleaned) * lost[:, None, None]

    def _shrunk(self, means, noise):
        """Return means of clusters, around those of classes, without noise as far as possible."""
        vectors = np.linalg.eigh(self._pooled)[1][:, ::-1]
        along = means @ vectors
        ranks = np.arange(len(vectors))
        # Leading directions, which are the most informative, are shrunk one by one.
        groups = (
            np.minimum(ranks, _FIRST + ranks // 10)
            if self._plan.own_histograms
            else (np.minimum(ranks, 4 + (2 * np.log2(ranks + 1)).astype(int)))
        )
        return (kept_shares(along, noise[..., None], groups) * along) @ vectors.T

    def _coordinate_groups(self):
        """Return groups of coordinates in which classes differ alike."""
        frequencies = self._plan.frequencies
        if frequencies is None:
            return np.arange(self._plan.n_codes)
        own_groups = -1 - np.arange(len(frequencies))
        return np.where(frequencies < 0, own_groups, np.rint(frequencies / 2)).astype(int)

    def _by_class(self, covariances):
        return [covariances[c % len(covariances)] for c in range(self._plan.n_classes)]


def _reach(variances: np.ndarray) -> float:
    """Return a length that few normal vectors exceed, in units of their root mean square."""
    halves = np.sum(variances) ** 2 / np.sum(variances**2) / 2
    return np.sqrt(gammaincinv(halves, _UNCLIPPED) / halves)


# Parts of the budget where noise leaves little of a class, but for its mean; where it leaves more;
# and where there is next to none.
_LITTLE = {"counts": 0.03, "radii": 0.03, "intensities": 0.03, "means": 0.61, "kernels": 0.30}
_MORE = {
    **{"counts": 0.003, "radii": 0.012, "intensities": 0.01, "means": 0.08, "covariances": 0.10},
    **{"assignments": 0.10, "clusters": 0.27, "kernels": 0.225},
}
_MUCH = {
    **{"counts": 0.003, "radii": 0.009, "intensities": 0.01, "means": 0.06, "covariances": 0.30},
    **{"assignments": 0.10, "clusters": 0.20, "kernels": 0.30},
}
SHARE_NAMES = tuple(_MUCH)
# Of the whole; the latter is shared out when it is known how many records there are, about.
STAGES = {"size": 0.002, "sketch": 0.998}
# The least noise of a mean of a class, in units of a radius, at which classes share histograms, or
# share covariances: for vectors, and for images, whose classes share half of them anyway.
_SHARED_HISTOGRAMS, _SHARED_COVARIANCES, _SHARED_BY_IMAGES = 0.02, 0.004, 0.03
# The least noise at which a small class of images has only the common covariance, and the part of
# the mean size below which a class is small.
_SHARED_BY_SMALL, _SMALL = 0.02, 0.5
# Clusters are as many as this over the noise, and no more than these.
_CLUSTERS_AT, _MOST_CLUSTERS = 0.25, 30
# A cluster has at least so many records on an average.
_RECORDS_OF_CLUSTER = 30
_N_DIRECTIONS, _N_ROUNDS = 30, 3
# The share of vectors that are not clipped if noise is small, and otherwise. Clipping half of them
# costs less than the noise of a larger radius.
_MOST_KEPT, _HALF_KEPT = 0.8, 0.5
# For all of these numbers of records there must be noise enough; the releases depend on them.
_SIZES = np.logspace(0, 12, 61)


@dataclass(frozen=True)
class VectorPlan:
    """The public facts about a sketch of vectors before any release.

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
    def intensity_sensitivity(self) -> Callable[..., float]:
        """Return by how much a record can change counts of the intensities of its pixels."""
        return partial(repeated_count_sensitivity, n_values=self.n_pixels)

    def check(self, budget: SketchBudget, encoder: Encoder) -> None:
        """Raise where noise would be out of range for some number of records."""
        check_noise(budget, *(self.releases(self.sizes(n, encoder)) for n in _SIZES))

    def sizes(self, n_records: float, encoder: Encoder) -> MixturePlan:
        """Return the sizes of a mixture of about so many records."""
        class_size = max(n_records, 1.0) / self.n_classes
        noise = self.noise_multiplier * math.sqrt(encoder.n_codes) / class_size
        n_clusters = self.n_clusters
        if n_clusters is None:
            affordable = min(_CLUSTERS_AT / max(noise, 1e-9), class_size / _RECORDS_OF_CLUSTER)
            n_clusters = max(1, min(int(affordable), _MOST_CLUSTERS))
        shared = _SHARED_COVARIANCES if encoder.frequencies is None else _SHARED_BY_IMAGES
        return MixturePlan(
            n_codes=encoder.n_codes,
            n_classes=self.n_classes,
            n_clusters=n_clusters,
            n_directions=min(_N_DIRECTIONS, encoder.n_codes),
            n_rounds=_N_ROUNDS,
            own_histograms=noise < _SHARED_HISTOGRAMS,
            own_covariances=noise < shared,
            least_own=min(noise / _SHARED_BY_SMALL, _SMALL) * class_size,
            level=_MOST_KEPT if noise < _SHARED_COVARIANCES else _HALF_KEPT,
            frequencies=encoder.frequencies,
        )

    def releases(self, sizes: MixturePlan) -> dict[str, PlannedRelease]:
        """Return the releases of a mixture, and of intensities."""
        shares = _LITTLE if sizes.n_clusters == 1 else _MUCH if sizes.level == _MOST_KEPT else _MORE
        clustered = sizes.n_clusters > 1
        radii = ["norms of records", "norms of residuals", "norms within clusters"]
        groups: dict[str, tuple[list[str], Any]] = {
            "counts": (["counts"], COUNTED),
            "radii": (radii[: 2 + clustered], COUNTED),
            "intensities": (["intensities"] if self.n_pixels else [], self.intensity_sensitivity),
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


# From this epsilon on, a budget suffices for finer codes of images.
_AMPLE = 5.0


class VectorSketch(BaseEstimator):
    """A sketch of vectors: sums over the codes of records, clustered by balanced transport.

    Parameters
    ----------
    encoder : str or encoder, default="auto"
        Public. How records become codes. ``"whiten-by-bounds"``, which is ``"auto"``, scales
        features by their bounds; ``"identity"`` keeps the units of the data.
    n_clusters : int, default=None
        Number of clusters of a class. None chooses by the released number of records: as many as
        the noise allows, up to 30.
    budget_shares : dict, default=None
        Shares of the budget for the parts of the release, to change the defaults: ``"counts"``,
        ``"radii"``, ``"intensities"``, ``"means"``, ``"covariances"``, ``"assignments"``,
        ``"clusters"`` and ``"kernels"``. They are divided by their sum.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.
    ImageSketch : For images.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import VectorSketch
    >>> generator = DPSinkhornGenerator(bounds=(0, 1), model=VectorSketch(n_clusters=5))
    >>> generator.set_params(model__n_clusters=8).model
    VectorSketch(n_clusters=8)
    """

    _parameter_constraints: dict = {
        "encoder": "no_validation",
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "budget_shares": [dict, None],
    }

    def __init__(self, encoder="auto", *, n_clusters=None, budget_shares=None) -> None:
        self.encoder = encoder
        self.n_clusters = n_clusters
        self.budget_shares = budget_shares

    _read = staticmethod(read_points)
    _unseen = staticmethod(unseen_points)

    def _check(self, declared: Declared) -> None:
        """Raise where parameters are wrong, or something is declared that this is not for."""
        validate_parameters(self)
        declared.refuse("VectorSketch", "image_shape", "schema", "target", "rules", "computed")

    def _plan(
        self,
        space: RecordSpace,
        budget: SketchBudget,
        training: NetworkTraining | None,
        progress: Callable[..., Any],
    ) -> "VectorReleases":
        """Return the release, or raise; no record is looked at."""
        ample = budget.epsilon is None or budget.epsilon >= _AMPLE
        encoder = make_encoder(self.encoder, space, ample=ample)
        plan = VectorPlan(
            n_classes=max(space.n_classes, 1),
            noise_multiplier=budget.noise_multiplier,
            n_clusters=self.n_clusters,
            budget_shares=_read_shares(self.budget_shares),
            n_pixels=space.n_features if encoder.counts_intensities else 0,
        )
        plan.check(budget, encoder)
        augment = self._moves(encoder)
        if training is not None:
            # Raises where there can be no such network.
            Training(training, space).new_network(0)
        return VectorReleases(space, plan, budget, encoder, augment, progress)

    def _moves(self, encoder: Encoder) -> dict[str, float] | None:
        return None


class ImageSketch(VectorSketch):
    """A sketch of images: a sketch of their codes, from which images are drawn.

    Parameters
    ----------
    encoder : str or encoder, default="auto"
        Public. ``"dct"``, which is ``"auto"``, uses the lowest coefficients of an image's cosine
        transform. ``"pose"``, for bright strokes on a dark ground, first turns the image upright,
        and adds its pose to the coefficients: see :ref:`images-encoder`. :class:`CosineEncoder` and
        :class:`PoseEncoder` are the same with parameters. Encoders of vectors work, too.
    n_clusters : int, default=None
        As in :class:`VectorSketch`.
    budget_shares : dict, default=None
        As in :class:`VectorSketch`.
    augment : dict, "auto" or None, default="auto"
        Random changes of sampled images, as standard deviations: ``"rotation"`` in radians,
        ``"scale"`` of the logarithm of a factor, and ``"shift"`` and ``"bend"`` in units of the
        height. If it is publicly known that such changes do not affect the label, models learn
        better from changed images. ``"auto"`` changes images with ``encoder="pose"`` a little, and
        no others.

    See Also
    --------
    skdpot.DPSinkhornGenerator : The generator, which takes it as `model`.

    Examples
    --------
    >>> from skdpot import DPSinkhornGenerator
    >>> from skdpot.generative import ImageSketch
    >>> generator = DPSinkhornGenerator(image_shape=(28, 28), model=ImageSketch("pose"))
    """

    _parameter_constraints: dict = {
        **VectorSketch._parameter_constraints,
        "augment": [dict, StrOptions({"auto"}), None],
    }

    def __init__(
        self, encoder="auto", *, n_clusters=None, budget_shares=None, augment="auto"
    ) -> None:
        super().__init__(encoder, n_clusters=n_clusters, budget_shares=budget_shares)
        self.augment = augment

    def _check(self, declared: Declared) -> None:
        validate_parameters(self)
        declared.refuse("ImageSketch", "schema", "target", "rules", "computed")
        if declared.image_shape is None:
            raise ValueError("ImageSketch is for images, and needs an image_shape.")

    def _moves(self, encoder: Encoder) -> dict[str, float] | None:
        if self.augment == "auto":
            return None if encoder.usual_moves is None else dict(encoder.usual_moves)
        if self.augment is None:
            return None
        if not are_moves(self.augment):
            raise ValueError(
                "augment must be None, 'auto' or a dictionary of numbers of at least 0, by the "
                f"names {sorted(MOVES)}; got {self.augment!r}."
            )
        return {name: float(self.augment.get(name, 0.0)) for name in MOVES}


def _read_shares(shares: Any) -> dict[str, float]:
    """Return the user's own parts of the budget, by group of releases, or raise."""
    shares = {} if shares is None else dict(shares)
    if not (set(shares) <= set(SHARE_NAMES) and all(is_size(x) and x for x in shares.values())):
        raise ValueError(
            "budget_shares must be a dictionary of numbers above 0, by the names "
            f"{', '.join(SHARE_NAMES)}; got {shares!r}."
        )
    return {name: float(share) for name, share in shares.items()}
