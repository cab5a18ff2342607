"""How far private vectors are from the origin, as a paid histogram, and where to clip them."""

import numpy as np

from skdpot.generative._sketch.shrinkage import kept_shares

# Bins of a geometric grid of norms, each this much wider than the one before.
_N_BINS = 24
_RATIO = 2.0**0.25
# The laws that norms may have, in units of bins.
_CENTRES, _SPREADS = (
    grid.ravel() for grid in np.meshgrid(np.arange(-23.5, 0, 0.5), 2.0 ** np.arange(-1, 3, 0.5))
)


def row_norms(rows: np.ndarray) -> np.ndarray:
    """Return the Euclidean norm of each row, which depends on no other row."""
    return np.sqrt(np.add.reduce(np.square(np.ascontiguousarray(rows)), axis=1))


def norm_counts(norms: np.ndarray, largest: float) -> np.ndarray:
    """Return how many norms are in each bin; a record more or less changes one count by one.

    Parameters
    ----------
    norms : ndarray of shape (n,)
        Private.
    largest : float
        Public bound: the end of the last bin.

    Returns
    -------
    ndarray of shape (24,), dtype int64
        From the smallest to the largest.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.radii import norm_counts
    >>> norm_counts(np.array([0.0, 0.9, 1.0]), 1.0)[[0, -2, -1]]
    array([1, 0, 2])
    """
    bins = np.searchsorted(_edges(largest)[:-1], norms)
    return np.bincount(bins, minlength=_N_BINS).astype(np.int64)


def radii_of(
    counts: np.ndarray, deviation: float, largest: float, n_deviations: float = 0.0
) -> np.ndarray:
    """Return a radius for every class: the median of its norms, about, or a higher quantile.

    Parameters
    ----------
    counts : ndarray of shape (n_classes, 24)
        Of `norm_counts`, with noise.
    deviation : float
        Standard deviation of the noise.
    largest : float
        As there.
    n_deviations : float, default=0.0
        By how many standard deviations of the logarithm the radius is above the median.

    Returns
    -------
    ndarray of shape (n_classes,)
        Above 0 and at most `largest`.

    Notes
    -----
    Log-normal laws are fitted by least squares. The noise of 24 counts then averages out, which a
    quantile of the counts themselves would add up. Classes of which noise leaves little are taken
    for what all of them are like.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.radii import norm_counts, radii_of
    >>> norms = np.random.default_rng(0).lognormal(sigma=0.25, size=1000)
    >>> (radius,) = radii_of(norm_counts(norms, 9.0)[None], 0.0, 9.0)
    >>> bool(abs(radius / np.median(norms) - 1) < 0.05)
    True
    """
    total = counts.sum(axis=0)
    share = np.maximum(counts.sum(axis=1, keepdims=True), 0.0) / max(total.sum(), 1e-300)
    alike = np.minimum(share, 1.0) * total
    noise = np.full(_N_BINS, deviation**2)
    kept = [kept_shares(apart, noise, np.zeros(_N_BINS)) for apart in counts - alike]
    likely = alike + np.stack(kept) * (counts - alike)
    # In units of the logarithm of the ratio: bins are as wide as one, and end at zero.
    centres = np.arange(-_N_BINS, 0)[:, None] + 0.5
    laws = np.exp(-0.5 * ((centres - _CENTRES) / _SPREADS) ** 2)
    best = np.argmax(np.maximum(likely @ laws, 0.0) / np.linalg.norm(laws, axis=0), axis=1)
    ends = np.minimum(_CENTRES[best] + n_deviations * _SPREADS[best], 0.0)
    return largest * _RATIO**ends


def _edges(largest: float) -> np.ndarray:
    return largest * _RATIO ** np.arange(1.0 - _N_BINS, 1.0)
