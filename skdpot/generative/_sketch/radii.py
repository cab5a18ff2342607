"""The radii that vectors are clipped to, from noisy histograms of their norms."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaincc, gammaincinv

from skdpot.generative._sketch.shrinkage import kept_shares

# Bins of a geometric grid of norms, each this much wider than the one before.
_N_BINS = 48
_RATIO = 2.0**0.25
# Limit of the factor by which clipping is compensated.
_MOST_LOST = 3.0
# The distributions that norms may have: the root of their mean square, in bins, and of how many
# independent Gaussian numbers of the same variance they could be the norms.
_SCALES, _FREEDOMS = (
    grid.ravel() for grid in np.meshgrid(np.arange(-48, 2, 0.5), 2.0 ** np.arange(-1, 7, 0.5))
)


def norm_counts(norms: np.ndarray) -> np.ndarray:
    """Return how many norms, at most 1, are in each of 48 bins.

    The norms are private. A record more or less changes one count by one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.radii import norm_counts
    >>> norm_counts(np.array([0.0, 0.9, 1.0]))[[0, -2, -1]]
    array([1, 0, 2])
    """
    bins = np.searchsorted(_RATIO ** np.arange(1.0 - _N_BINS, 0.0), norms)
    return np.bincount(bins, minlength=_N_BINS).astype(np.int64)


@dataclass(frozen=True)
class NormDistributions:
    """The distributions of the norms of classes, as of vectors of independent Gaussian numbers.

    Parameters
    ----------
    scales : ndarray of shape (n_classes,)
        Roots of the mean squared norms.
    freedoms : ndarray of shape (n_classes,)
        How many Gaussian numbers of the same variance a vector could have.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.radii import norm_counts, fit_norms
    >>> norms = np.linalg.norm(np.random.default_rng(0).standard_normal((1000, 3)), axis=1) / 9
    >>> found = fit_norms(norm_counts(norms)[None], 0.0)
    >>> (radius,) = found.quantiles(0.5)
    >>> bool(abs(radius / np.median(norms) - 1) < 0.1)
    True
    >>> kept = np.mean(np.minimum(norms, radius) ** 2) / np.mean(norms**2)
    >>> bool(abs(found.lost(np.array([radius]))[0] * kept - 1) < 0.1)
    True
    """

    scales: np.ndarray
    freedoms: np.ndarray

    def of(self, n_classes: int) -> "NormDistributions":
        """Return the distribution of every class, where there may be one in common."""
        scales, freedoms = (np.resize(values, n_classes) for values in (self.scales, self.freedoms))
        return NormDistributions(scales, freedoms)

    def quantiles(self, level: float) -> np.ndarray:
        """Return a radius for every class, below which this share of its norms lies, about."""
        halves = self.freedoms / 2
        radii = self.scales * np.sqrt(gammaincinv(halves, level) / halves)
        return np.minimum(radii, 1.0)

    def lost(self, radii: np.ndarray) -> np.ndarray:
        """Return how much larger mean squared norms are than those of clipped vectors, about."""
        # Squared norms are distributed as a gamma variable.
        halves, squares = self.freedoms / 2, (radii / self.scales) ** 2
        ends = halves * squares
        clipped = gammainc(halves + 1, ends) + squares * gammaincc(halves, ends)
        return np.clip(1 / np.maximum(clipped, 1e-300), 1.0, _MOST_LOST)


def fit_norms(counts: np.ndarray, deviation: float) -> NormDistributions:
    """Return the distributions of norms that noisy counts are most like.

    `counts` of shape (n_classes, 48) are those of `norm_counts`, with noise of this standard
    deviation. They are fitted by least squares. The noise of all counts then averages out, whereas
    a quantile of the counts themselves would add it up. Classes that are mostly noise get the
    distribution of all classes.
    """
    total = counts.sum(axis=0)
    share = np.maximum(counts.sum(axis=1, keepdims=True), 0.0) / max(total.sum(), 1e-300)
    alike = np.minimum(share, 1.0) * total
    noise = np.full(_N_BINS, deviation**2)
    shares = [kept_shares(differences, noise, np.zeros(_N_BINS)) for differences in counts - alike]
    likely = alike + np.stack(shares) * (counts - alike)
    shapes = _shapes()
    best = np.argmax(np.maximum(likely @ shapes, 0.0) / np.linalg.norm(shapes, axis=0), axis=1)
    return NormDistributions(_RATIO ** _SCALES[best], _FREEDOMS[best])


def _shapes() -> np.ndarray:
    """Return the bins of every distribution, up to a factor: columns of shape (48,)."""
    centres = np.arange(-_N_BINS, 0)[:, None] + 0.5
    logarithms = (centres - _SCALES) * math.log(_RATIO)
    return np.exp(_FREEDOMS / 2 * (2 * logarithms - np.expm1(2 * logarithms)))
