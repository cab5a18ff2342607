"""A mixture of Gaussian distributions for each class of vectors, from noisy sums.

`MixtureSketch` lists the releases in order, and the contribution of one record. The proofs are in
:ref:`proof-sketch-releases`. All else is computed from the releases.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from skdpot.generative._sketch.clusters import ROUND, Centres
from skdpot.generative._sketch.moments import (
    BALL,
    COUNT,
    COUNTED,
    DIAGONAL,
    SYMMETRIC,
    WITH_COUNT,
    as_matrix,
)
from skdpot.generative._sketch.radii import fit_norms
from skdpot.generative._sketch.shrinkage import (
    clean_covariance,
    expected_variances,
    kept_shares,
    square_roots,
)
from skdpot.releases import RADIUS

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
# Of the noise of each class: standard deviations of its size, of a coordinate of its mean and of a
# variance within clusters, and the radius to which its records are clipped.
NOISE = ("size", "mean", "variance", "radius")


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


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussian distributions for each class.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Records of each class, about.
    weights : ndarray of shape (n_classes, n_clusters)
        Of the clusters; weights of a class add up to one.
    means : ndarray of shape (n_classes, n_clusters, n_codes)
        Of the clusters.
    factors : ndarray of shape (n_factors, n_directions, n_codes)
        Roots of the covariances within clusters: of each class, or one of all.
    unit : ndarray of shape ()
        The step of which means and factors are multiples.
    """

    counts: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray
    unit: np.ndarray

    def draw(self, labels: np.ndarray, rng: Any, *, single: bool = False) -> "Drawn":
        """Return codes of these classes, in single precision if that is asked for."""
        clusters = np.empty(len(labels), dtype=np.intp)
        shape = len(labels), self.means.shape[2]
        codes = np.empty(shape, dtype=np.float32 if single else np.float64)
        for c in np.unique(labels):
            rows = np.flatnonzero(labels == c)
            clusters[rows] = rng.choice(len(self.weights[c]), len(rows), p=self.weights[c])
            factor = self.factors[c % len(self.factors)]
            normal = rng.standard_normal((len(rows), len(factor)))
            codes[rows] = self.means[c, clusters[rows]] + normal @ factor
        codes *= self.unit
        return Drawn(codes, labels, clusters, self)

    def mean_squares(self) -> np.ndarray:
        """Return the mean squares of the coordinates of codes, in the units of the encoder."""
        class_squares = np.square(self.factors).sum(axis=1)
        within = np.resize(class_squares, (len(self.counts), self.means.shape[2]))
        between = np.einsum("ck,ckj->cj", self.weights, np.square(self.means, dtype=np.float64))
        shares = self.counts / self.counts.sum()
        return shares @ (within + between) * self.unit**2

    def is_sound(self, n_classes: int, n_codes: int) -> bool:
        """Tell whether arrays of a file are a mixture of vectors of this length."""
        counts, weights, means, factors = self.counts, self.weights, self.means, self.factors
        return bool(
            counts.shape == (n_classes,)
            and self.unit.ndim == 0
            and means.ndim == factors.ndim == 3
            and means.shape[:2] == weights.shape
            and len(means) == len(counts)
            and len(factors) in (1, len(counts))
            and means.shape[2] == factors.shape[2] == n_codes
            and all(np.isfinite(part).all() for part in vars(self).values())
            and (counts > 0).all()
            and self.unit > 0
            and (weights >= 0).all()
            and np.allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-9)
        )


@dataclass(frozen=True)
class Drawn:
    """Codes that were drawn from a mixture.

    Parameters
    ----------
    codes : ndarray of shape (n, n_codes)
        In the units of the encoder.
    labels, clusters : ndarray of shape (n,)
        The class and the cluster of each.
    mixture : Mixture
        The mixture that they were drawn from.
    """

    codes: np.ndarray
    labels: np.ndarray
    clusters: np.ndarray
    mixture: Mixture

    def around(self, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of a class's clusters, and the root of the covariance within them."""
        mixture = self.mixture
        factor = mixture.factors[c % len(mixture.factors)]
        return mixture.means[c] * mixture.unit, factor * mixture.unit


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
