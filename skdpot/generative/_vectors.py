"""The sketch of vectors and images: its parameters, and its release.

`VectorReleases.run` has the releases in order, and the contribution of one record to each. The
proofs are in :ref:`proof-sketch-releases`. All else is computed from the releases.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaincinv
from sklearn.base import BaseEstimator

from skdpot._base import warn_of_bounds, warn_of_empty
from skdpot._sklearn_compat import Interval, StrOptions, one_blas_thread, validate_parameters
from skdpot.generative import _gaussians, _records
from skdpot.generative._counts import CountReleases, SumsOfParts, kept_shares
from skdpot.generative._encoders import Encoder, Moves, RecordSpace, make_encoder
from skdpot.generative._gaussians import BALL, COUNTED, DIAGONAL, ROUND, SYMMETRIC, WITH_COUNT
from skdpot.generative._images import blocks
from skdpot.generative._network import NetworkTraining, load_engine
from skdpot.generative._records import FittedRecords, PrivateRecords, SketchBudget, SketchSeries
from skdpot.privacy.charging import ExpectedError
from skdpot.privacy.checks import check_memory
from skdpot.privacy.noise import NoiseSource, make_source
from skdpot.privacy.sensitivity import repeated_count_sensitivity
from skdpot.releases import RADIUS, SketchReleases
from skdpot.transport import nearest_distribution

# By how much a record changes sums, for the keyword `relation`.
Sensitivity = Callable[..., float]
# Noisy sums, and the standard deviation of their noise.
Released = tuple[np.ndarray, float]
Release = Callable[[str, np.ndarray, Sensitivity], Released]
Arrays = dict[str, np.ndarray]
# The least noise of a mean of a class, in units of a radius, at which classes share histograms, or
# share covariances: for vectors, and for images, whose classes share half of them anyway.
_SHARED_HISTOGRAMS, _SHARED_COVARIANCES, _SHARED_BY_IMAGES = 0.02, 0.004, 0.03
_N_ROUNDS = 3
# The smallest size of a class, and of a cluster, as a part of an equal share.
_LEAST_CLASS, _LEAST_CLUSTER = 0.05, 0.1
# The share of vectors that are not clipped if noise is small, and otherwise. Clipping half of them
# costs less than the noise of a larger radius.
_MOST_KEPT, _HALF_KEPT = 0.8, 0.5


@dataclass(frozen=True)
class VectorReleases(SketchSeries):
    """The releases of a sketch of vectors: public.

    Parameters
    ----------
    space : RecordSpace
        The declaration of records.
    budget : SketchBudget
        Their noise.
    encoder : Encoder
        Of records, prepared for the space.
    n_clusters : int or None
        Clusters of a class; None chooses.
    augment : mapping of str to float or None
        The sizes of random moves of images that are drawn.
    progress : callable
        Makes a progress bar.
    """

    space: RecordSpace
    budget: SketchBudget
    encoder: Encoder
    n_clusters: int | None
    augment: Moves
    progress: Callable[..., Any]

    label = "a sketch"
    # The latter is shared out when it is known about how many records there are.
    _shares: ClassVar = {"size": 0.002, "sketch": 0.998}

    @property
    def n_classes(self) -> int:
        """Return the number of classes, at least 1."""
        return max(self.space.n_classes, 1)

    @property
    def n_pixels(self) -> int:
        """Return of how many pixels intensities are counted; 0 for none."""
        return self.space.n_features if self.encoder.for_images else 0

    @property
    def intensity_sensitivity(self) -> Sensitivity:
        """Return by how much a record can change counts of the intensities of its pixels."""
        return partial(repeated_count_sensitivity, n_values=self.n_pixels)

    def check(self) -> None:
        """Raise where noise would be out of range for some number of records."""
        # For all of these numbers of records there must be noise enough; the releases depend on
        # them.
        sizes = np.logspace(0, 12, 61)
        _records.check_noise(self.budget, *map(self.planned, sizes))
        n_codes = self.encoder.n_codes
        what = f"the covariance of {n_codes:,} features (classes: {self.n_classes:,})"
        check_memory(8 * n_codes**2 * (20 + 4 * self.n_classes), what, "Use fewer features.")

    def class_size(self, n_records: float) -> float:
        """Return the mean size of a class, of about this many records."""
        # The released number may be 0 or less, by its noise.
        return max(n_records, 1.0) / self.n_classes

    def noise_of_mean(self, n_records: float) -> float:
        """Return the noise of a class's mean in units of a radius, of about this many records."""
        noise = self.budget.noise_multiplier * math.sqrt(self.encoder.n_codes)
        return noise / self.class_size(n_records)

    def clusters_of_class(self, n_records: float) -> int:
        """Return the number of clusters of a class, of about this many records."""
        if self.n_clusters is not None:
            return self.n_clusters
        # Clusters are as many as this over the noise, and no more than these.
        clusters_at, most_clusters = 0.25, 30
        # A cluster has at least this many records on average.
        records_of_cluster = 30
        noise, size = self.noise_of_mean(n_records), self.class_size(n_records)
        affordable = min(clusters_at / max(noise, 1e-9), size / records_of_cluster)
        return max(1, min(int(affordable), most_clusters))

    def planned(self, n_records: float) -> dict[str, _records.PlannedRelease]:
        """Return the releases after that of the size, with their shares and sensitivities.

        They are public functions of the released number of records.
        """
        # Shares where noise leaves little of a class but its mean, where it leaves more, and where
        # there is next to none.
        of_round = 0.0, 0.1 / _N_ROUNDS, 0.1 / _N_ROUNDS, ROUND
        releases: dict[str, tuple[float, float, float, Sensitivity]] = {
            "intensities": (0.03, 0.01, 0.01, self.intensity_sensitivity),
            "counts": (0.03, 0.003, 0.003, COUNTED),
            "norms of records": (0.015, 0.004, 0.003, COUNTED),
            "means": (0.61, 0.08, 0.06, BALL),
            "norms of residuals": (0.015, 0.004, 0.003, COUNTED),
            "covariances": (0.0, 0.10, 0.30, SYMMETRIC),
            **{f"assignments {t + 1}": of_round for t in range(_N_ROUNDS)},
            "norms within clusters": (0.0, 0.004, 0.003, COUNTED),
            "clusters": (0.0, 0.27, 0.20, WITH_COUNT),
            "kernels": (0.30, 0.225, 0.30, SYMMETRIC),
        }
        is_precise = self.noise_of_mean(n_records) < _SHARED_COVARIANCES
        noise_is = 0 if self.clusters_of_class(n_records) == 1 else 2 if is_precise else 1
        return {
            name: (shares[noise_is], sensitivity)
            for name, (*shares, sensitivity) in releases.items()
            if shares[noise_is] and (self.n_pixels or name != "intensities")
        }

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the size and of the mean of a class."""
        releases = self.releases(None)
        self._divide(releases, n_records)
        return errors_of_classes(releases, n_records / self.n_classes, self.encoder.n_codes)

    def for_parts(self, n_parts: int, columns: Any) -> "MomentsOfParts":
        """Return what each of several owners releases, or raise."""
        if self.encoder.for_images:
            raise ValueError("there are parts of tables and of vectors, and none of images.")
        return MomentsOfParts(self.space, self.budget, self.encoder, n_parts)

    def _divide(self, releases: SketchReleases, n_records: float) -> None:
        """Divide the budget, given an estimate of the number of records."""
        planned = self.planned(n_records)
        releases.divide("sketch", {name: share for name, (share, _) in planned.items()})

    def run(self, records: PrivateRecords, source: NoiseSource) -> FittedRecords:
        """Release the sketch: all that is private, in order.

        Notes
        -----
        Brackets have the sensitivity, and the share of the budget by `planned`. A record is in one
        class, so releases of all classes are as sensitive as of one. Rows are clipped to balls of
        public radii, and rounded to integers, before they are added up.
        """
        # Independent of all records, and of their number; chooses the first centres of clusters.
        rng = np.random.default_rng(source.bits(62, 2).tolist())
        releases, encoder, n_classes = self.releases(source), self.encoder, self.n_classes
        # Products are small, and with one thread rounding does not depend on the machine.
        with one_blas_thread(), self.progress(unit=" releases") as bar:

            def release(name: str, sums: np.ndarray, by: Sensitivity) -> Released:
                bar.update()
                return releases.run(name, sums, by), releases.standard_deviation(name, by)

            # How many are there? A record adds one (COUNTED, 0.2 %). All else is divided by it.
            size = float(release("size", np.array(len(records)), COUNTED)[0])
            self._divide(releases, size)
            n_clusters = self.clusters_of_class(size)

            # How bright are pixels? A record has one intensity for each pixel (1 to 3 %). Of all
            # classes together: with those of each class, pixels alone would distinguish classes.
            further: Arrays = {}
            if self.n_pixels:
                sums = intensity_counts(records)
                noisy, deviation = release("intensities", sums, self.intensity_sensitivity)
                shares = nearest_distribution(noisy / max(noisy.sum(), 1.0))
                noise_of_share = deviation / (max(size, 1.0) * self.n_pixels)
                encoder = encoder_on_ground(encoder, shares, noise_of_share)
                further["intensities"] = shares
            codes = records.codes_of_classes(encoder)
            rows = PrivateVectors(codes, release, self.noise_of_mean(size), encoder)

            # How large are classes? A record adds one to its own (COUNTED, 0.3 to 3 %).
            noisy, deviation = release("counts", rows.sizes(), COUNTED)
            counts, noise = shrunk_counts(noisy, deviation), {"size": np.full(n_classes, deviation)}
            warn_of_empty(np.asarray(self.space.classes).ravel().tolist(), noisy, deviation)

            # Where is each class? A record adds one to the bin of its norm (COUNTED, 0.3 to 1.5 %),
            # and a vector in the ball to the sum of its class (BALL, 6 to 61 %).
            noise["radius"] = radii = rows.release_norms("norms of records").quantiles(rows.level)
            rows.clip(radii)
            found = release("means", rows.sums(), BALL)
            means, noise["mean"] = shrunk_means(found, radii, counts, encoder.frequencies)
            rows.subtract(means[:, None])

            # How far are records from there? A record adds one to a bin (COUNTED, 0.3 to 1.5 %).
            norms = rows.release_norms("norms of residuals")
            self._warn_of_spread(means, rows)
            # Before clusters are released, each class has one, around its mean.
            weights, centres = np.ones((n_classes, 1)), np.zeros((n_classes, 1, encoder.n_codes))
            if n_clusters > 1:
                # Along which directions? A record adds the products of the entries of a vector in
                # the ball (SYMMETRIC, 10 to 30 %).
                covariances, _ = rows.release_products("covariances", norms, counts)
                covariances = np.resize(covariances, (n_classes, *covariances.shape[1:]))
                # What clusters are there? A record adds its shares in them, and as many times a
                # vector in the ball, in each round (ROUND, 10 %).
                centres = rows.release_rounds(covariances, counts, n_clusters, rng)
                rows.subtract(centres)
                # Where are these, and how large? A record adds one to a bin (COUNTED, 0.3 to
                # 0.4 %), and to its cluster a count and a vector in the ball (WITH_COUNT, 20 to
                # 27 %).
                norms = rows.release_norms("norms within clusters")
                rows.clip(norms.quantiles(rows.level))
                weights, shrunk = rows.release_clusters(centres, counts, covariances)
                rows.subtract(shrunk - centres)
                centres, further["covariances"] = shrunk, covariances

            # How do records differ within clusters? Products again (SYMMETRIC, 22 to 30 %).
            kernels, noise["variance"] = rows.release_products("kernels", norms, counts)
        released = {"counts": counts, "weights": weights, "means": means, "centres": centres}
        released |= {"kernels": kernels, **further}
        return self._fitted(encoder, size, rows.own, released, noise)

    def _warn_of_spread(self, means: np.ndarray, rows: "PrivateVectors") -> None:
        """Warn if most released distances of records from their mean are tiny, and it is misplaced.

        That is near 0, or with all features at one end of the bounds, which clips values. Constant
        records elsewhere are well declared. Vectors that are 0 in nine of ten places may be as near
        to each other as a thousandth of the bounds, and images are not.
        """
        records = self.space.records(rows.encoder.decode(means * rows.encoder.max_norm))
        box = np.array(self.space.box)
        near = [np.abs(records) < np.abs(box).max(axis=0) / 8]
        near += [np.abs(records - end) < np.ptp(box, axis=0) / 8 for end in box]
        counts, deviation = rows.released_norms
        # Four bins are a factor of two.
        octaves = 6 if rows.encoder.for_images else 10
        tiny, others = (part.sum() for part in np.split(counts, [-4 * octaves], axis=1))
        is_misplaced = any(each.all() for each in near)
        if self.budget.epsilon is not None and is_misplaced and others < 0.2 * tiny:
            ends, counted = np.array([0.0, 0.5**octaves, 1.0]), np.array([tiny, 0.0])
            name, noise = "distances from the mean", deviation * math.sqrt(len(counts))
            warn_of_bounds([(f"{name}, by bounds,", ends[:-1], ends[1:], counted, 2.0 * noise)])

    def _fitted(
        self, encoder: Encoder, size: float, own: bool, released: Arrays, noise: Arrays
    ) -> FittedRecords:
        """Return the sketch of released numbers: a function of these, and of public ones."""
        counts, weights, centres = (released[name] for name in ("counts", "weights", "centres"))
        kernels, covariances = released["kernels"], released.get("covariances")
        with one_blas_thread():
            if own and encoder.frequencies is not None:
                alike = np.average(kernels, axis=0, weights=counts)
                # Half of the covariance within clusters is common to all classes. A covariance of
                # one class would give its images a texture that reveals the class, and that real
                # images do not have. In small classes, where noise makes this worse, all of it is.
                # The least noise at which a small class has only the common covariance, and the
                # part of the mean size below which a class is small.
                shared_by_small, small = 0.02, 0.5
                min_own = min(self.noise_of_mean(size) / shared_by_small, small)
                in_common = np.where(counts < min_own * self.class_size(size), 1.0, 0.5)
                kernels = kernels + in_common[:, None, None] * (alike - kernels)
            if covariances is not None and encoder.frequencies is None:
                # Clusters and kernels together get the variance that was released of classes.
                shares = counts / counts.sum()
                traces = (np.trace(part, axis1=1, axis2=2) for part in (covariances, kernels))
                totals, within = (np.resize(part, len(counts)) for part in traces)
                between = np.einsum("ck,ckj,ckj->c", weights, centres, centres)
                lacking = max(shares @ (totals - within), 0.0)
                missing = lacking / max(shares @ between, 1e-300)
                centres = centres * np.clip(np.sqrt(missing), 0.8, 1.5)
            means = released["means"][:, None] + centres
            mixture = _gaussians.mixture_of(counts, weights, means, kernels, encoder.max_norm)
        intensities = released.get("intensities")
        sketch = _gaussians.ReleasedVectors(encoder, mixture, intensities, self.augment, noise)
        return FittedRecords(self.space, sketch, None)


@dataclass(eq=False, repr=False)
class PrivateVectors(_gaussians.ClassRows):
    """The codes of private records of each class, and the releases of their sums.

    Parameters
    ----------
    rows : list of ndarray of shape (n, d)
        Private, of norms up to 1. They are changed in place.
    release : callable
        Returns noisy sums, and the standard deviation of their noise. Its arguments are the name of
        the release, the sums, and by how much a record changes them.
    noise_of_mean : float
        The noise of a class's mean in units of a radius.
    encoder : Encoder
        Of records as codes.
    """

    release: Release
    noise_of_mean: float
    encoder: Encoder

    def __post_init__(self) -> None:
        super().__post_init__()
        # Does every class have its own histograms and covariances, or all one in common?
        self.own_norms = self.noise_of_mean < _SHARED_HISTOGRAMS
        most = _SHARED_COVARIANCES if self.encoder.frequencies is None else _SHARED_BY_IMAGES
        self.own = self.noise_of_mean < most
        # The share of vectors that are not clipped.
        self.level = _MOST_KEPT if self.noise_of_mean < _SHARED_COVARIANCES else _HALF_KEPT

    def release_norms(self, name: str) -> _gaussians.NormDistributions:
        """Release histograms of norms. A record adds one to a bin."""
        self.released_norms = self.release(name, self.norm_counts(own=self.own_norms), COUNTED)
        return _gaussians.fit_norms(*self.released_norms, len(self))

    def release_products(
        self, name: str, norms: _gaussians.NormDistributions, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Release mean products. Return them without noise as far as possible, and their noise.

        A record adds the products of the entries of a vector in the ball.
        """
        radii = norms.quantiles(self.level)
        if not self.own:
            # Radii are the same for all classes where their covariance is.
            radii = np.full_like(radii, radii.max())
        self.clip(radii)
        noisy, deviation = self.release(name, self.symmetric_sums(own=self.own), SYMMETRIC)
        sizes = counts if self.own else counts.sum(keepdims=True)
        squared_units = (radii[: len(sizes)] / RADIUS) ** 2
        found = _gaussians.as_matrices(noisy) * (squared_units / sizes)[:, None, None]
        deviations = deviation / DIAGONAL * squared_units / sizes
        frequencies = self.encoder.frequencies
        cleaned = cleaned_covariances(found, deviations, sizes, frequencies, own=self.own)
        # Images do not get back the variance that clipping took: models learn better without it.
        if frequencies is None:
            # Others get it equally along all directions.
            lost = norms.lost(radii)
            lost = lost if self.own else np.average(lost, weights=counts, keepdims=True)
            cleaned = cleaned * lost[:, None, None]
        return cleaned, np.resize(deviations, len(self))

    def release_rounds(
        self, covariances: np.ndarray, counts: np.ndarray, n_clusters: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Release the rounds of a search for clusters, and return their centres.

        A record adds its shares in them, and as many times a vector in the ball.
        """
        # Few leading directions, since the noise of the sums of rounds grows with their number.
        n_leading = min(30, covariances.shape[1])
        # Regularisation of assignments, in units of the mean variance along these directions, and
        # the share of records that are not clipped.
        reg, unclipped = 0.6, 0.93
        ways, reaches, moving = [], [], []
        for covariance in covariances:
            values, vectors = np.linalg.eigh(covariance)
            scale = np.sqrt(np.maximum(values[: -n_leading - 1 : -1], 0.0))
            # A length that few normal vectors exceed.
            variances = scale**2
            halves = np.sum(variances) ** 2 / np.sum(variances**2) / 2
            few = np.sqrt(gammaincinv(halves, unclipped) / halves)
            reach = float(np.sqrt(np.sum(variances)) * few)
            scale *= RADIUS / reach
            start = rng.standard_normal((n_clusters, n_leading)) * scale
            moving.append(_gaussians.Centres(start, reg * np.mean(scale**2)))
            ways.append(vectors[:, : -n_leading - 1 : -1])
            reaches.append(reach)
        self.project(ways, reaches)
        for t in range(_N_ROUNDS):
            noisy, deviation = self.release(f"assignments {t + 1}", self.round_sums(moving), ROUND)
            for of_class, sums, count in zip(moving, noisy, counts, strict=True):
                of_class.move(sums, deviation, count)
        self.find_nearest(moving)
        each = zip(moving, ways, reaches, strict=True)
        return np.stack([at.points @ (way.T * (reach / RADIUS)) for at, way, reach in each])

    def release_clusters(
        self, centres: np.ndarray, counts: np.ndarray, covariances: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Release sizes and sums of clusters around `centres`; a record adds to those of its own.

        Return their weights, and their means without noise as far as possible.
        """
        n_clusters = centres.shape[1]
        noisy, deviation = self.release("clusters", self.counts_and_sums(n_clusters), WITH_COUNT)
        # Noise may make the count of a cluster small or negative, and means are divided by it.
        sizes = noisy[..., 0] / _gaussians.COUNT
        sizes = np.maximum(sizes, _LEAST_CLUSTER * counts[:, None] / n_clusters)
        units = (self.radii / RADIUS)[:, None] / sizes
        pooled = np.tensordot(counts / counts.sum(), covariances, 1)
        vectors = np.linalg.eigh(pooled)[1][:, ::-1]
        along = (centres + noisy[..., 1:] * units[..., None]) @ vectors
        # Leading directions, which are the most informative, are shrunk one by one: more of them
        # where little noise is left, and others by tens.
        ranks, first = np.arange(len(vectors)), 30
        groups = np.minimum(ranks, 4 + (2 * np.log2(ranks + 1)).astype(int))
        if self.own_norms:
            groups = np.minimum(ranks, first + ranks // 10)
        kept = kept_shares(along, ((deviation * units) ** 2)[..., None], groups)
        return sizes / sizes.sum(axis=1, keepdims=True), (kept * along) @ vectors.T


@dataclass(frozen=True)
class MomentsOfParts(SketchSeries):
    """What one of several owners of vectors releases, all at once: public.

    These are the number of the records of each class, a histogram of the norms of codes, and the
    sums of codes and of products of codes. They are functions of her records alone: which ball
    rows should be clipped to is not known yet, so there are sums for each of `radii`. Those of the
    smallest ball that holds most rows are used.

    Parameters
    ----------
    space, budget, encoder : RecordSpace, SketchBudget, Encoder
        As of `VectorReleases`.
    n_parts : int
        The number of owners.
    """

    space: RecordSpace
    budget: SketchBudget
    encoder: Encoder
    n_parts: int

    label = "a sketch of vectors"

    # In units of the largest norm. A radius of a half has a quarter of the noise of a variance, and
    # three of them cost as much as each would with a third of the budget.
    radii = (1.0, 0.5, 0.25)

    def counted(self, sums: np.ndarray) -> tuple[np.ndarray, float]:
        """Return what an owner's released sums count, and the standard deviation of the noise."""
        return self._released(None, self._of_parts(sums))["counts"]

    def read(self, total: np.ndarray) -> FittedRecords:
        """Return the sketch of the sum of all parts: one cluster for each class."""
        released = self._released(None, self._of_parts(total))
        # Nearly no row may be clipped: what clipping takes from sums is not given back.
        min_radius = _gaussians.fit_norms(*released["norms"], 1).quantiles(0.9)[0]
        radius = min(r for r in self.radii if r == 1 or r >= min_radius)
        counts, noise_of_counts = released["counts"]
        counts = np.maximum(counts, max(_LEAST_CLASS * counts.mean(), 1.0))
        radii = np.full(len(counts), radius)
        means, deviations = shrunk_means(released[f"means {radius}"], radii, counts, None)
        products, noise_of_products = released[f"products {radius}"]
        units = (radii / RADIUS) ** 2 / counts
        found = _gaussians.as_matrices(products) * units[:, None, None]
        found -= means[:, :, None] * means[:, None]
        spread = noise_of_products / DIAGONAL * units
        noise_of_mean = np.max(deviations) * math.sqrt(self.encoder.n_codes) / radius
        own = bool(noise_of_mean < _SHARED_COVARIANCES)
        with one_blas_thread():
            kernels = cleaned_covariances(found, spread, counts, None, own=own)
            parts = np.ones((len(counts), 1)), means[:, None], kernels
            mixture = _gaussians.mixture_of(counts, *parts, self.encoder.max_norm)
        noise = {"size": np.full(len(counts), noise_of_counts), "radius": radii}
        noise |= {"mean": deviations, "variance": spread}
        sketch = _gaussians.ReleasedVectors(self.encoder, mixture, None, None, noise)
        return FittedRecords(self.space, sketch, None)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the size and of the mean of a class, of all owners."""
        class_size, means = n_records / max(self.space.n_classes, 1), f"means {self.radii[0]}"
        return errors_of_classes(self._of_parts(), class_size, self.encoder.n_codes, means)

    def run(self, records: PrivateRecords, source: NoiseSource) -> FittedRecords:
        """Return the sketch of one owner alone."""
        return self.read(self.add_noise(self.values(records), source))

    def _released(self, records: PrivateRecords | None, sums: SumsOfParts) -> dict[str, Released]:
        """Return the sums of the codes of each class, by their names, and their noise."""
        codes = [np.empty((0, self.encoder.n_codes))] * max(self.space.n_classes, 1)
        if records is not None:
            codes = records.codes_of_classes(self.encoder)
        rows = _gaussians.ClassRows(codes)
        exact = {"counts": (rows.sizes(), COUNTED), "norms": (rows.norm_counts(own=False), COUNTED)}
        for radius in self.radii:
            rows.clip(np.full(len(rows), radius))
            exact[f"means {radius}"] = rows.sums(), BALL
            exact[f"products {radius}"] = rows.symmetric_sums(own=True), SYMMETRIC
        released = {}
        for name, (array, sensitivity) in exact.items():
            noisy = sums.run(name, array.ravel(), sensitivity).reshape(array.shape)
            released[name] = noisy, sums.standard_deviation(name, sensitivity)
        return released

    @property
    def _shares(self) -> dict[str, float]:
        shares = {"counts": 0.02, "norms": 0.03}
        for radius in self.radii:
            shares |= {f"means {radius}": 0.25, f"products {radius}": 0.7}
        return shares


def errors_of_classes(
    releases: CountReleases, class_size: float, n_codes: int, means: str = "means"
) -> tuple[ExpectedError, ...]:
    """Return the standard errors of the size and of the mean of a class.

    An estimate without data is off by the size of a class, and by the radius of the ball that
    records are moved into.
    """
    count = releases.standard_deviation("counts", COUNTED)
    sum_noise = releases.standard_deviation(means, BALL) * math.sqrt(n_codes)
    mean = sum_noise / RADIUS / class_size
    return (
        ExpectedError("standard error of the number of records of a class", count, class_size),
        ExpectedError("error of the mean of a class, in radii of the records", mean, 1.0),
    )


def intensity_counts(points: PrivateRecords | np.ndarray) -> np.ndarray:
    """Return the histogram of intensities. A record has one pixel for each feature."""
    counts = np.zeros(_gaussians.N_INTENSITIES, dtype=np.int64)
    for rows in blocks(*points.shape):
        scaled = (points[rows] + 1) * (_gaussians.N_INTENSITIES / 2)
        bins = np.minimum(scaled.astype(np.int64), _gaussians.N_INTENSITIES - 1)
        counts += np.bincount(bins.ravel(), minlength=_gaussians.N_INTENSITIES)
    return counts


def encoder_on_ground(encoder: Encoder, intensities: np.ndarray, deviation: float) -> Encoder:
    """Return the encoder with the mean intensity as its ground, as far as it is not noise.

    `deviation` is that of the noise of the released shares of intensities.
    """
    if encoder.ground is None:
        return encoder
    centres = (np.arange(_gaussians.N_INTENSITIES) + 0.5) / _gaussians.N_INTENSITIES
    mean = intensities @ centres
    noise = np.array([np.sum((centres - mean) ** 2) * deviation**2])
    difference = np.array([mean - encoder.ground])
    kept = kept_shares(difference, noise, np.zeros(1))
    return encoder.on_ground(float(encoder.ground + (kept * difference)[0]))


def shrunk_counts(noisy: np.ndarray, deviation: float) -> np.ndarray:
    """Return the sizes of classes, around that of all, without noise as far as possible."""
    differences = noisy - noisy.mean()
    kept = kept_shares(differences, np.array(deviation**2), np.zeros(len(noisy)))
    counts = noisy.mean() + kept * differences
    return np.maximum(counts, max(_LEAST_CLASS * counts.mean(), 1.0))


def shrunk_means(
    sums: Released, radii: np.ndarray, counts: np.ndarray, frequencies: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return means of classes, around that of all, without noise as far as possible.

    Sums are in units of `radii`. The second result has the deviations of the noise.
    """
    units = (radii / RADIUS / counts)[:, None]
    means, deviations = sums[0] * units, sums[1] * units
    n_classes, n_codes = means.shape
    if n_classes == 1:
        return means, deviations[:, 0]
    # Classes differ alike in coordinates of a group.
    groups = np.arange(n_codes)
    if frequencies is not None:
        groups = np.where(frequencies < 0, -1 - groups, np.rint(frequencies / 2)).astype(int)
    overall = np.average(means, axis=0, weights=counts / radii**2)
    differences = means - overall
    # The classes vary less around their own mean than around the true one.
    unbiased = differences * np.sqrt(n_classes / (n_classes - 1))
    return overall + kept_shares(unbiased, deviations**2, groups) * differences, deviations[:, 0]


def cleaned_covariances(
    found: np.ndarray,
    deviations: np.ndarray,
    sizes: np.ndarray,
    frequencies: np.ndarray | None,
    *,
    own: bool,
) -> np.ndarray:
    """Return covariances of classes without noise as far as possible; one of all unless `own`."""
    # What classes have in common is known with less noise.
    parts = sizes / sizes.sum()
    pooled, common = np.tensordot(parts, found, 1), float(np.linalg.norm(parts * deviations))
    guess = _gaussians.expected_variances(np.diag(pooled), common, frequencies)
    cleaned = _gaussians.clean_covariance(pooled, common, np.diag(guess))
    if not own:
        return cleaned[None]
    each = zip(found, deviations, strict=True)
    return np.stack([_gaussians.clean_covariance(matrix, noise, cleaned) for matrix, noise in each])


class VectorSketch(BaseEstimator):
    """A sketch of vectors: sums over the codes of records, clustered by balanced transport.

    Parameters
    ----------
    encoder : str or encoder, default="auto"
        Public. How records become codes. ``"whiten-by-bounds"``, which is ``"auto"``, scales
        features by their bounds.
    n_clusters : int, default=None
        Number of clusters of a class. None chooses by the released number of records: as many as
        the noise allows, up to 30.

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
    }

    def __init__(self, encoder="auto", *, n_clusters=None) -> None:
        self.encoder = encoder
        self.n_clusters = n_clusters

    # What may not be declared.
    _not_for: ClassVar[tuple[str, ...]] = ("image_shape", "schema", "target", "rules", "computed")

    _read = staticmethod(_records.read_points)
    _unseen = staticmethod(_records.unseen_points)

    def _check(self, estimator: Any) -> None:
        """Raise where parameters are wrong, or something is declared that this is not for."""
        validate_parameters(self)
        _records.refuse_declared(estimator, type(self).__name__, *self._not_for)

    def _plan(
        self,
        space: RecordSpace,
        budget: SketchBudget,
        training: NetworkTraining | None,
        progress: Callable[..., Any],
    ) -> "VectorReleases":
        """Return the release, or raise; no record is looked at."""
        # From an epsilon of 5 on, a budget suffices for finer codes of images.
        ample = budget.epsilon is None or budget.epsilon >= 5.0
        encoder = make_encoder(self.encoder, space, ample=ample)
        moves = self._moves(encoder)
        release = VectorReleases(space, budget, encoder, self.n_clusters, moves, progress)
        release.check()
        if training is not None:
            # Raises where there can be no such network.
            validate_parameters(training)
            load_engine().Trainer(training, space).start(make_source(0))
        return release

    def _moves(self, encoder: Encoder) -> Moves:
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
    >>> generator = DPSinkhornGenerator(
    ...     bounds=(0, 255), image_shape=(28, 28), model=ImageSketch("pose")
    ... )
    """

    _parameter_constraints: dict = {
        **VectorSketch._parameter_constraints,
        "augment": [dict, StrOptions({"auto"}), None],
    }

    def __init__(self, encoder="auto", *, n_clusters=None, augment="auto") -> None:
        super().__init__(encoder, n_clusters=n_clusters)
        self.augment = augment

    _not_for = VectorSketch._not_for[1:]

    def _check(self, estimator: Any) -> None:
        super()._check(estimator)
        if estimator.image_shape is None:
            raise ValueError("ImageSketch is for images, and needs an image_shape.")

    def _moves(self, encoder: Encoder) -> Moves:
        if not isinstance(self.augment, dict):
            return self.augment and encoder.usual_moves
        names = ("bend", "rotation", "scale", "shift")
        sizes = (isinstance(x, Real) and 0 <= float(x) < 4 for x in self.augment.values())
        if not set(self.augment) <= set(names) or not all(sizes):
            raise ValueError(
                "augment must be None, 'auto' or a dictionary of numbers from 0 to 4, rotations in "
                f"radians, by the names {list(names)}; got {self.augment!r}."
            )
        return {name: float(self.augment.get(name, 0.0)) for name in names}
