"""Points with given means, variances, frequencies and covariances."""

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import qmc

from skdpot.releases._layout import UnitLayout
from skdpot.transport import exact_transport, nearest_distribution

# Distance of means from the ends of [0, 1], and limits of variances.
_FROM_THE_ENDS = 1e-4
_SMALLEST_VARIANCE = 1e-7
_LARGEST_SHARE = 0.999


def points_with_moments(
    layout: UnitLayout,
    mean: np.ndarray,
    variances: np.ndarray,
    covariance: np.ndarray,
    n_points: int,
) -> np.ndarray:
    """Return valid points with these moments, as far as such points exist.

    Parameters
    ----------
    layout : UnitLayout
        The meaning of the coordinates.
    mean : ndarray of shape (n_coordinates,)
        Means of numbers, and of the indicators of categories; invalid ones are moved to valid ones.
    variances : ndarray of shape (n_continuous,)
        Variances of the numbers that are not binary.
    covariance : ndarray of shape (n_coordinates, n_coordinates)
        Covariances of coordinates of different features; no other entry is read.
    n_points : int
        How many.

    Returns
    -------
    ndarray of shape (n_points, n_coordinates)
        Points, all of one mass.

    Notes
    -----
    Evenly spread Gaussian variables, always the same ones, are given the correlations of the
    moments. The k-th smallest of a number's Gaussian variables becomes the k-th of equidistant
    quantiles of the beta distribution with its mean and variance: all of these lie in the box. A
    binary number is 1 for the largest ones. The Gaussian variables of a block are transported to
    the categories in proportion to their frequencies, with the largest sum over the chosen
    categories.

    A discrete variable has smaller covariances than its Gaussian variable. An indicator with share
    p is cut at a quantile, where the density is f, and its correlations shrink by ``f / sqrt(p (1 -
    p))``. So they are first raised by the inverse. For binary variables and numbers this is the
    biserial correlation, and for blocks of more categories an approximation. A second correction,
    by the covariances of the points, did not bring them nearer.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases._moment_points import points_with_moments
    >>> from skdpot.releases._layout import UnitLayout
    >>> layout = UnitLayout(levels=(0, 2), blocks=())
    >>> covariance = np.array([[0.0, 0.03], [0.03, 0.0]])
    >>> mean, variances = np.array([0.4, 0.75]), np.array([0.02])
    >>> points = points_with_moments(layout, mean, variances, covariance, 1024)
    >>> points.mean(axis=0).round(3)
    array([0.4 , 0.75])
    >>> np.cov(points.T).round(3)
    array([[0.02 , 0.029],
           [0.029, 0.188]])
    """
    d = layout.n_numbers
    means = np.clip(mean[:d], _FROM_THE_ENDS, 1.0 - _FROM_THE_ENDS)
    largest = means * (1.0 - means)
    possible = _LARGEST_SHARE * largest[~layout.binary]
    of_numbers = largest.copy()
    of_numbers[~layout.binary] = np.clip(variances, _SMALLEST_VARIANCE, possible)
    frequencies = [nearest_distribution(mean[block]) for block in layout.block_slices]
    correlation = _correlation(layout, means, of_numbers, frequencies, covariance)
    normal = _standard_normal(n_points, layout.n_coordinates) @ _root(correlation).T
    levels = (np.arange(n_points) + 0.5) / n_points
    numbers = np.empty((n_points, d))
    for j, n_levels in enumerate(layout.levels):
        quantiles = _quantiles(levels, means[j], of_numbers[j], n_levels)
        numbers[np.argsort(normal[:, j]), j] = quantiles
    categories = [
        _categories(normal[:, block], shares)
        for block, shares in zip(layout.block_slices, frequencies, strict=True)
    ]
    return layout.points(layout.to_levels(numbers), categories)


def _correlation(
    layout: UnitLayout,
    means: np.ndarray,
    variances: np.ndarray,
    frequencies: list[np.ndarray],
    covariance: np.ndarray,
) -> np.ndarray:
    """Return the correlations of the Gaussian variables."""
    shares = np.concatenate([means, *frequencies])
    of_categories = [p * (1.0 - p) for p in frequencies]
    deviations = np.sqrt(np.concatenate([variances, *of_categories]))
    densities = np.exp(-0.5 * ndtri(shares) ** 2) / np.sqrt(2.0 * np.pi)
    discrete = np.arange(len(shares)) >= layout.n_numbers
    discrete[: layout.n_numbers] = layout.binary
    # A category that always or never occurs has no variance, and no correlations.
    units = np.where(discrete, densities, deviations)
    scale = np.divide(1.0, units, out=np.zeros_like(units), where=deviations > 0)
    correlation = np.clip(covariance * scale * scale[:, None], -1.0, 1.0)
    for block, p in zip(layout.block_slices, frequencies, strict=True):
        odds = np.sqrt(p / np.maximum(1.0 - p, 1e-12))
        correlation[block, block] = np.clip(-odds * odds[:, None], -1.0, 1.0)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _root(correlation: np.ndarray) -> np.ndarray:
    """Return a matrix with rows of length 1 whose products are near these correlations."""
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return root / np.sqrt((root**2).sum(axis=1, keepdims=True))


def _standard_normal(n_points: int, n_dimensions: int) -> np.ndarray:
    """Return evenly spread points with mean 0 and, if they are many, covariance 1."""
    bits = max(n_points - 1, 1).bit_length()
    uniform = qmc.Sobol(n_dimensions, scramble=False).random_base2(bits)[:n_points]
    normal = ndtri(uniform + 0.5 / 2**bits)
    normal -= normal.mean(axis=0)
    if n_dimensions < n_points / 2:
        values, vectors = np.linalg.eigh(normal.T @ normal / n_points)
        normal = normal @ (vectors / np.sqrt(np.maximum(values, 1e-3))) @ vectors.T
    return normal


def _quantiles(levels: np.ndarray, mean: float, variance: float, n_levels: int) -> np.ndarray:
    """Return quantiles of a number with this mean and variance."""
    if n_levels == 2:
        return (levels > 1.0 - mean).astype(np.float64)
    if n_levels:
        # Rounding to levels adds about this much to the variance.
        variance = max(variance - 1.0 / (12.0 * (n_levels - 1) ** 2), variance / 4.0)
    precision = mean * (1.0 - mean) / variance - 1.0
    return betaincinv(mean * precision, (1.0 - mean) * precision, levels)


def _categories(normal: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return a category for every point, by optimal transport to the categories."""
    used = np.flatnonzero(frequencies > 0)
    deviations = np.sqrt(frequencies * (1.0 - frequencies))
    gain = (normal * deviations)[:, used]
    masses = np.full(len(normal), 1.0 / len(normal))
    result = exact_transport(-gain, masses, frequencies[used])
    return used[np.argmax(result.plan.toarray(), axis=1)]
