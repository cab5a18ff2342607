"""The sketch of vectors and images: its parameters, and its release.

`VectorReleases.run` has the releases in order, and the contribution of one record to each. The
proofs are in :ref:`proof-sketch-releases`. All else is computed from the releases.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.special import gammaincinv
from sklearn.base import BaseEstimator

from skdpot._sklearn_compat import Interval, StrOptions, one_blas_thread, validate_parameters
from skdpot.generative import _gaussians, _records
from skdpot.generative._counts import kept_shares
from skdpot.generative._encoders import Encoder, RecordSpace, make_encoder
from skdpot.generative._gaussians import BALL, COUNTED, DIAGONAL, ROUND, SYMMETRIC, WITH_COUNT
from skdpot.generative._images import blocks
from skdpot.generative._network import NetworkTraining, load_engine
from skdpot.generative._records import FittedRecords, PrivateRecords, SketchBudget, SketchSeries
from skdpot.generative._table import SumsOfParts
from skdpot.privacy.charging import ExpectedError
from skdpot.privacy.checks import check_memory
from skdpot.privacy.sensitivity import repeated_count_sensitivity
from skdpot.releases import RADIUS, SketchReleases
from skdpot.transport import nearest_distribution

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
    augment: Mapping[str, float] | None
    progress: Callable[..., Any]

    label = "a sketch"

    @property
    def n_classes(self) -> int:
        """Return the number of classes, at least 1."""
        return max(self.space.n_classes, 1)

    @property
    def n_pixels(self) -> int:
        """Return of how many pixels intensities are counted; 0 for none."""
        return self.space.n_features if self.encoder.counts_intensities else 0

    @property
    def intensity_sensitivity(self) -> Callable[..., float]:
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
        # Where noise leaves little of a class but its mean, where it leaves more, and where there
        # is next to none.
        shares = {
            "counts": (0.03, 0.003, 0.003),
            "radii": (0.03, 0.012, 0.009),
            "intensities": (0.03, 0.01, 0.01),
            "means": (0.61, 0.08, 0.06),
            "kernels": (0.30, 0.225, 0.30),
            "covariances": (0.0, 0.10, 0.30),
            "assignments": (0.0, 0.10, 0.10),
            "clusters": (0.0, 0.27, 0.20),
        }
        clustered = self.clusters_of_class(n_records) > 1
        is_precise = self.noise_of_mean(n_records) < _SHARED_COVARIANCES
        noise_is = 0 if not clustered else 2 if is_precise else 1
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
            groups["assignments"] = ([f"assignments {t + 1}" for t in range(_N_ROUNDS)], ROUND)
            groups["clusters"] = (["clusters"], WITH_COUNT)
        return {
            name: (shares[group][noise_is] / len(names), sensitivity)
            for group, (names, sensitivity) in groups.items()
            for name in names
        }

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the size and of the mean of a class."""
        releases = self._releases(None)
        self._divide(releases, n_records)
        return errors_of_classes(releases, n_records / self.n_classes, self.encoder.n_codes)

    def for_parts(self, n_parts: int, columns: Any) -> "MomentsOfParts":
        """Return what each of several owners releases, or raise."""
        if self.encoder.for_images:
            raise ValueError("there are parts of tables and of vectors, and none of images.")
        return MomentsOfParts(self.space, self.budget, self.encoder, n_parts)

    def _releases(self, source: Any) -> SketchReleases:
        budget = self.budget
        # Of the whole budget. The latter is shared out when it is known about how many records
        # there are.
        stages = {"size": 0.002, "sketch": 0.998}
        return SketchReleases(budget.noise_multiplier, stages, budget.neighbouring, source)

    def _divide(self, releases: SketchReleases, n_records: float) -> None:
        """Divide the budget, given an estimate of the number of records."""
        planned = self.planned(n_records)
        releases.divide("sketch", {name: share for name, (share, _) in planned.items()})

    def run(self, records: PrivateRecords, source: Any) -> FittedRecords:
        """Release the sketch: all that is private, in order. Shares are those of `planned`.

        Notes
        -----
        A record is in one class, so releases of all classes are as sensitive as of one. Rows are
        clipped to balls of public radii, and rounded to integers, before they are added up.
        """
        # Independent of all records, and of their number; chooses the first centres of clusters.
        rng = np.random.default_rng(source.bits(62, 2).tolist())
        releases, n_classes = self._releases(source), self.n_classes
        encoder, n_codes = self.encoder, self.encoder.n_codes
        frequencies = encoder.frequencies
        # Images do not get back the variance that clipping took: models learn better without it.
        undo_clipping = frequencies is None
        # Products are small, and with one thread rounding does not depend on the machine.
        with one_blas_thread(), self.progress(unit=" releases") as bar:

            def release(name: str, sums: np.ndarray, sensitivity: Any) -> tuple[Any, float]:
                released = releases.run(name, sums, sensitivity)
                bar.update()
                return released, releases.standard_deviation(name, sensitivity)

            # How many records are there? The budget of all else is divided by it.
            size = float(release("size", np.array(len(records)), COUNTED)[0])
            self._divide(releases, size)
            n_clusters, noise_of_mean = self.clusters_of_class(size), self.noise_of_mean(size)
            # Does every class have its own histograms and covariances, or all one in common?
            own_histograms = noise_of_mean < _SHARED_HISTOGRAMS
            most = _SHARED_COVARIANCES if frequencies is None else _SHARED_BY_IMAGES
            own_covariances = noise_of_mean < most
            # The share of vectors that are not clipped.
            level = _MOST_KEPT if noise_of_mean < _SHARED_COVARIANCES else _HALF_KEPT

            # How bright are pixels? A record has one intensity for each pixel. Of all classes
            # together: with intensities of each class, pixels alone would distinguish classes.
            intensities = None
            if self.n_pixels:
                sums = intensity_counts(records)
                noisy, deviation = release("intensities", sums, self.intensity_sensitivity)
                intensities = nearest_distribution(noisy / max(noisy.sum(), 1.0))
                noise_of_share = deviation / (max(size, 1.0) * self.n_pixels)
                encoder = encoder_on_ground(encoder, intensities, noise_of_share)

            rows = [_gaussians.ClassRows(codes) for codes in records.codes_of_classes(encoder)]

            def norms_of_rows(name: str) -> _gaussians.NormDistributions:
                """Release histograms of norms. A record adds one to a bin."""
                counts = np.stack([of_class.norm_counts() for of_class in rows])
                if not own_histograms:
                    counts = counts.sum(axis=0, keepdims=True)
                return _gaussians.fit_norms(*release(name, counts, COUNTED)).of(n_classes)

            def clipped_to(radii: np.ndarray) -> np.ndarray:
                """Take rows in units of these balls, and return the units."""
                for of_class, radius in zip(rows, radii, strict=True):
                    of_class.clip(radius)
                return radii / RADIUS

            def products(name: str, norms: _gaussians.NormDistributions) -> tuple[np.ndarray, ...]:
                """Release mean products. A record adds those of a vector in the ball."""
                radii = norms.quantiles(level)
                if not own_covariances:
                    # Radii are the same for all classes where their covariance is.
                    radii = np.full_like(radii, radii.max())
                units = clipped_to(radii)
                lost = norms.lost(radii) if undo_clipping else np.ones(n_classes)
                sums = np.stack([of_class.symmetric_sums() for of_class in rows])
                if not own_covariances:
                    sums = sums.sum(axis=0, keepdims=True)
                noisy, deviation = release(name, sums, SYMMETRIC)
                sizes = counts if own_covariances else counts.sum(keepdims=True)
                squared_units = units[: len(sizes)] ** 2
                found = np.stack([_gaussians.as_matrix(entries, n_codes) for entries in noisy])
                found *= (squared_units / sizes)[:, None, None]
                deviations = deviation / DIAGONAL * squared_units / sizes
                own = own_covariances
                cleaned = cleaned_covariances(found, deviations, sizes, frequencies, own=own)
                # The part that clipping took is given back equally along all directions.
                restored = lost if own else np.average(lost, weights=counts, keepdims=True)
                return cleaned * restored[:, None, None], np.resize(deviations, n_classes), units

            # How large are classes? A record adds one to its own.
            sums = np.array([len(of_class) for of_class in rows], dtype=np.int64)
            noisy, deviation = release("counts", sums, COUNTED)
            alike = np.full(n_classes, noisy.mean())
            all_alike = np.zeros(n_classes)
            kept = kept_shares(noisy - alike, np.array(deviation**2), all_alike)
            counts = alike + kept * (noisy - alike)
            counts = np.maximum(counts, max(_LEAST_CLASS * counts.mean(), 1.0))
            noise = {"size": np.full(n_classes, deviation)}

            # Where is each class? A record adds a vector in the ball to the sum of its own.
            radii = norms_of_rows("norms of records").quantiles(level)
            units = (clipped_to(radii) / counts)[:, None]
            sums = np.stack([of_class.sums() for of_class in rows])
            noisy, deviation = release("means", sums, BALL)
            means, variances = noisy * units, (deviation * units) ** 2
            noise |= {"radius": radii, "mean": np.sqrt(variances[:, 0])}
            means = shrunk_means(means, variances, counts / radii**2, frequencies)
            for of_class, mean in zip(rows, means, strict=True):
                of_class.subtract(mean)

            # Before clusters are released, each class has one, around its mean.
            weights, centres = np.ones((n_classes, 1)), np.zeros((n_classes, 1, n_codes))
            norms = norms_of_rows("norms of residuals")
            if n_clusters > 1:
                # Along which directions do its records differ?
                covariances, _, units = products("covariances", norms)
                by_class = [covariances[c % len(covariances)] for c in range(n_classes)]

                # What clusters are there? A record adds its shares in them, and as many times a
                # vector in the ball, in each round.
                moving, bases = [], []
                # Regularisation of assignments, in units of the mean variance along these
                # directions.
                reg = 0.6
                for of_class, unit, covariance in zip(rows, units, by_class, strict=True):
                    values, vectors = np.linalg.eigh(covariance)
                    leading = slice(None, -min(30, n_codes) - 1, -1)
                    scale = np.sqrt(np.maximum(values[leading], 0.0))
                    radius = float(np.sqrt(np.sum(scale**2)) * _reach(scale**2))
                    # Few leading directions, since the noise of the sums of rounds grows with their
                    # number.
                    of_class.project(vectors[:, leading], unit, radius)
                    scale *= RADIUS / radius
                    start = rng.standard_normal((n_clusters, len(scale))) * scale
                    moving.append(_gaussians.Centres(start, reg * np.mean(scale**2)))
                    bases.append(vectors[:, leading].T * (radius / RADIUS))
                for t in range(_N_ROUNDS):
                    each = zip(rows, moving, strict=True)
                    sums = np.stack([one.round_sums(at) for one, at in each])
                    noisy, deviation = release(f"assignments {t + 1}", sums, ROUND)
                    for at, released, count in zip(moving, noisy, counts, strict=True):
                        at.move(released, deviation, count)
                centres = np.stack([at.points @ b for at, b in zip(moving, bases, strict=True)])
                for of_class, at, class_centres in zip(rows, moving, centres, strict=True):
                    of_class.find_nearest(at)
                    of_class.subtract_nearest(class_centres)

                # Where are these, and how large? A record adds a count, and a vector in the ball.
                norms = norms_of_rows("norms within clusters")
                units = clipped_to(norms.quantiles(level))[:, None]
                sums = np.stack([one.counts_and_sums(n_clusters) for one in rows])
                noisy, deviation = release("clusters", sums, WITH_COUNT)
                # Noise may make the count of a cluster small or negative, and means are divided by
                # it.
                sizes = noisy[..., 0] / _gaussians.COUNT
                sizes = np.maximum(sizes, _LEAST_CLUSTER * counts[:, None] / n_clusters)
                weights, units = sizes / sizes.sum(axis=1, keepdims=True), units / sizes
                moved = centres + noisy[..., 1:] * units[..., None]
                pooled = np.tensordot(counts / counts.sum(), np.stack(by_class), 1)
                variances = (deviation * units) ** 2
                shrunk = shrunk_centres(moved, variances, pooled, leading=own_histograms)
                for of_class, step in zip(rows, shrunk - centres, strict=True):
                    of_class.subtract_nearest(step)
                centres = shrunk

            # How do records differ within clusters?
            kernels, noise["variance"], _ = products("kernels", norms)

        # From here on, all is computed from released and public numbers.
        with one_blas_thread():
            if frequencies is not None and own_covariances:
                alike = np.average(kernels, axis=0, weights=counts)
                # Half of the covariance within clusters is common to all classes. A covariance of
                # one class would give its images a texture that reveals the class, and that real
                # images do not have. In small classes, where noise makes this worse, all of it is.
                # The least noise at which a small class has only the common covariance, and the
                # part of the mean size below which a class is small.
                shared_by_small, small = 0.02, 0.5
                min_own = min(noise_of_mean / shared_by_small, small) * self.class_size(size)
                in_common = np.where(counts < min_own, 1.0, 0.5)
                kernels += in_common[:, None, None] * (alike - kernels)
            if n_clusters > 1 and undo_clipping:
                # Clusters and kernels together get the variance that was released of classes.
                shares, totals = counts / counts.sum(), [np.trace(one) for one in by_class]
                within = [np.trace(kernels[c % len(kernels)]) for c in range(n_classes)]
                between = np.einsum("ck,ckj,ckj->c", weights, centres, centres)
                lacking = max(shares @ (np.array(totals) - within), 0.0)
                missing = lacking / max(shares @ between, 1e-300)
                centres = centres * np.clip(np.sqrt(missing), 0.8, 1.5)
            # Noise leaves no more digits than these. The memory layout is that of arrays of a
            # file, so that sums have the same rounding errors.
            parts = means[:, None] + centres, _gaussians.square_roots(kernels)
            means, factors = (part.astype(np.float32, order="C") for part in parts)
            norm = np.array(encoder.max_norm)
            mixture = _gaussians.Mixture(counts, weights, means, factors, norm)
            sketch = _gaussians.ReleasedVectors(encoder, mixture, intensities, self.augment, noise)
            return FittedRecords(self.space, sketch, None)


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

    @property
    def _layout(self) -> dict[str, tuple[tuple[int, ...], Any, float]]:
        """Return the shape of each release, by how much a record changes it, and its share."""
        n_classes, n_codes = max(self.space.n_classes, 1), self.encoder.n_codes
        layout: dict[str, tuple[tuple[int, ...], Any, float]] = {
            "counts": ((n_classes,), COUNTED, 0.02),
            "norms": ((1, len(_gaussians.norm_counts(np.empty(0)))), COUNTED, 0.03),
        }
        for radius in self.radii:
            layout[f"means {radius}"] = (n_classes, n_codes), BALL, 0.25
            layout[f"products {radius}"] = (n_classes, n_codes * (n_codes + 1) // 2), SYMMETRIC, 0.7
        return layout

    def values(self, records: PrivateRecords) -> np.ndarray:
        """Return the sums of one owner without noise: private. A record is in one class."""
        rows = [_gaussians.ClassRows(codes) for codes in records.codes_of_classes(self.encoder)]
        counts = np.array([len(of_class) for of_class in rows], dtype=np.int64)
        sums = [counts, np.sum([of_class.norm_counts() for of_class in rows], axis=0)]
        for radius in self.radii:
            for of_class in rows:
                of_class.clip(radius)
            sums += [of_class.sums() for of_class in rows]
            sums += [of_class.symmetric_sums() for of_class in rows]
        return np.concatenate(sums)

    def add_noise(self, values: np.ndarray, source: Any) -> np.ndarray:
        """Return the sums of an owner with all the noise of a fit to her records alone."""
        releases, sums = self._releases(source), self._by_release(values)
        layout = self._layout.items()
        noisy = [releases.run(name, sums[name], one[1]).ravel() for name, one in layout]
        return np.concatenate(noisy)

    def read(self, total: np.ndarray) -> FittedRecords:
        """Return the sketch of the sum of all parts: one cluster for each class."""
        of_all, sums = self._of_all_owners, self._by_release(total)
        noise_of = {
            name: of_all.standard_deviation(name, sensitivity)
            for name, (_, sensitivity, _) in self._layout.items()
        }
        norms = _gaussians.fit_norms(sums["norms"], noise_of["norms"])
        # Nearly no row may be clipped: what clipping takes from sums is not given back.
        least = norms.quantiles(0.9)[0]
        radius = min(r for r in self.radii if r == 1 or r >= least)
        sizes, n_codes = sums["counts"], self.encoder.n_codes
        sizes = np.maximum(sizes, max(_LEAST_CLASS * sizes.mean(), 1.0))
        units = (radius / RADIUS / sizes)[:, None]
        deviations = noise_of[f"means {radius}"] * units
        means = shrunk_means(sums[f"means {radius}"] * units, deviations**2, sizes, None)
        products = sums[f"products {radius}"]
        found = np.stack([_gaussians.as_matrix(entries, n_codes) for entries in products])
        found *= (units * radius / RADIUS)[:, :, None]
        found -= means[:, :, None] * means[:, None]
        spread = noise_of[f"products {radius}"] / DIAGONAL * units[:, 0] * radius / RADIUS
        own = bool(np.max(deviations) * math.sqrt(n_codes) < _SHARED_COVARIANCES * radius)
        with one_blas_thread():
            kernels = cleaned_covariances(found, spread, sizes, None, own=own)
            factors = _gaussians.square_roots(kernels).astype(np.float32, order="C")
        noise = {
            "size": np.full(len(sizes), noise_of["counts"]),
            "radius": np.full(len(sizes), radius),
            "mean": deviations[:, 0],
            "variance": spread,
        }
        mixture = _gaussians.Mixture(
            sizes, np.ones((len(sizes), 1)), means[:, None].astype(np.float32), factors,
            np.array(self.encoder.max_norm),
        )  # fmt: skip
        sketch = _gaussians.ReleasedVectors(self.encoder, mixture, None, None, noise)
        return FittedRecords(self.space, sketch, None)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of the size and of the mean of a class, of all owners."""
        class_size = n_records / max(self.space.n_classes, 1)
        return errors_of_classes(
            self._of_all_owners, class_size, self.encoder.n_codes, f"means {self.radii[0]}"
        )

    @property
    def _of_all_owners(self) -> SumsOfParts:
        return SumsOfParts(self._releases(None), self.n_parts, None, noisy=False)

    def run(self, records: Any, source: Any) -> FittedRecords:
        """Return the sketch of one owner alone."""
        return self.read(self.add_noise(self.values(records), source))

    def _releases(self, source: Any) -> SketchReleases:
        shares, budget = {name: one[2] for name, one in self._layout.items()}, self.budget
        return SketchReleases(budget.noise_multiplier, shares, budget.neighbouring, source)

    def _by_release(self, values: np.ndarray) -> dict[str, np.ndarray]:
        shapes = [shape for shape, *_ in self._layout.values()]
        parts = np.split(values, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        named = zip(self._layout, parts, shapes, strict=True)
        return {name: part.reshape(shape) for name, part, shape in named}


def errors_of_classes(
    releases: SketchReleases | SumsOfParts, class_size: float, n_codes: int, means: str = "means"
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


def intensity_counts(points: Any) -> np.ndarray:
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


def shrunk_means(
    means: np.ndarray, variances: np.ndarray, weights: np.ndarray, frequencies: Any
) -> np.ndarray:
    """Return means of classes, around that of all, without noise as far as possible."""
    n_classes, n_codes = means.shape
    if n_classes == 1:
        return means
    # Classes differ alike in coordinates of a group.
    groups = np.arange(n_codes)
    if frequencies is not None:
        groups = np.where(frequencies < 0, -1 - groups, np.rint(frequencies / 2)).astype(int)
    overall = np.average(means, axis=0, weights=weights)
    differences = means - overall
    # The classes vary less around their own mean than around the true one.
    unbiased = differences * np.sqrt(n_classes / (n_classes - 1))
    return overall + kept_shares(unbiased, variances, groups) * differences


def cleaned_covariances(
    found: np.ndarray, deviations: np.ndarray, sizes: np.ndarray, frequencies: Any, *, own: bool
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


def shrunk_centres(
    centres: np.ndarray, variances: np.ndarray, covariance: np.ndarray, *, leading: bool
) -> np.ndarray:
    """Return means of clusters, around those of classes, without noise as far as possible.

    With `leading`, so little noise is left that more directions are shrunk one by one.
    """
    vectors = np.linalg.eigh(covariance)[1][:, ::-1]
    along, ranks = centres @ vectors, np.arange(len(vectors))
    # Leading directions, which are the most informative, are shrunk one by one.
    groups = np.minimum(ranks, 4 + (2 * np.log2(ranks + 1)).astype(int))
    if leading:
        # The number of leading directions that are shrunk one by one; others are shrunk by tens.
        first = 30
        groups = np.minimum(ranks, first + ranks // 10)
    return (kept_shares(along, variances[..., None], groups) * along) @ vectors.T


def _reach(variances: np.ndarray) -> float:
    """Return a length that few normal vectors exceed, in units of their root mean square."""
    halves = np.sum(variances) ** 2 / np.sum(variances**2) / 2
    # The share of records that are not clipped in the search for clusters.
    unclipped = 0.93
    return np.sqrt(gammaincinv(halves, unclipped) / halves)


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

    _read = staticmethod(_records.read_points)
    _unseen = staticmethod(_records.unseen_points)

    def _check(self, estimator: Any) -> None:
        """Raise where parameters are wrong, or something is declared that this is not for."""
        validate_parameters(self)
        names = ("image_shape", "schema", "target", "rules", "computed")
        _records.refuse_declared(estimator, "VectorSketch", *names)

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
        release = VectorReleases(
            space, budget, encoder, self.n_clusters, self._moves(encoder), progress
        )
        release.check()
        if training is not None:
            # Raises where there can be no such network.
            validate_parameters(training)
            load_engine().Trainer(training, space).new_network(0)
        return release

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

    def _check(self, estimator: Any) -> None:
        validate_parameters(self)
        names = ("schema", "target", "rules", "computed")
        _records.refuse_declared(estimator, "ImageSketch", *names)
        if estimator.image_shape is None:
            raise ValueError("ImageSketch is for images, and needs an image_shape.")

    def _moves(self, encoder: Encoder) -> dict[str, float] | None:
        if self.augment == "auto":
            return None if encoder.usual_moves is None else dict(encoder.usual_moves)
        if self.augment is None:
            return None
        names = ("bend", "rotation", "scale", "shift")
        if not set(self.augment) <= set(names) or not all(map(_is_size, self.augment.values())):
            raise ValueError(
                "augment must be None, 'auto' or a dictionary of numbers of at least 0, by the "
                f"names {list(names)}; got {self.augment!r}."
            )
        return {name: float(self.augment.get(name, 0.0)) for name in names}


def _is_size(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < 1e3
