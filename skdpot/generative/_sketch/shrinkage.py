"""Empirical Bayes estimates of means and covariances, under noise of a known size.

A number that was released is its true value plus noise of a known variance. True values are taken
for draws around a guess, with a variance that groups of them have in common; its size is estimated
by the mean square of the data minus that of the noise. All of this is computed from releases and
public numbers.
"""

import numpy as np
from scipy.optimize import least_squares

# Groups of eigenvectors double in size, up to this one.
_LAST_GROUP = 7
# Variances are not below this share of the largest, nor below this, in units of the largest norm.
_LEAST_SHARE, _LEAST_VARIANCE = 1e-9, 1e-12
_TINY = 1e-300
# A value surely exceeds noise if it does so by this many standard errors.
_SURE = 2.0
# Directions with so small a part of all variance are not worth keeping.
_LEFT_OUT = 1e-3


def kept_shares(
    observed: np.ndarray, noise: np.ndarray, groups: np.ndarray, *, sure: bool = False
) -> np.ndarray:
    """Return the share of each deviation from a guess that is not noise, estimated by groups.

    `noise` has the variances of the noise of the `observed` deviations, and `groups` the group of
    each coordinate. If `sure`, the mean square must be above that of the noise by more than chance
    allows. Deviations are to be multiplied by the results, which are from 0 to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.shrinkage import kept_shares
    >>> kept_shares(np.array([2.0, -2.0, 1.0]), np.ones(3), np.array([0, 0, 1]))
    array([0.75, 0.75, 0.  ])
    """
    noise = np.broadcast_to(noise, observed.shape) + _TINY
    shares = np.empty(observed.shape)
    for group in np.unique(groups):
        members = groups == group
        group_noise = noise[..., members]
        variance = _excess(observed[..., members] ** 2, group_noise, _SURE if sure else 0.0)
        shares[..., members] = variance / (variance + group_noise)
    return shares


def expected_variances(
    seen: np.ndarray, deviation: float, frequencies: np.ndarray | None
) -> np.ndarray:
    """Return a guess of variances that are mostly noise.

    Parameters
    ----------
    seen : ndarray of shape (d,)
        Variances with noise.
    deviation : float
        Standard deviation of the noise.
    frequencies : ndarray of shape (d,) or None
        Of coordinates of images, along which variances fall off smoothly; -1 for other coordinates.
        None without any.

    Returns
    -------
    ndarray of shape (d,)
        Above 0.

    Notes
    -----
    The largest variance where noise is as large as the variance. The logarithm of those of images
    is fitted as a parabola of that of one plus the frequency.
    """
    guess = np.maximum(seen, max(deviation, _LEAST_SHARE * float(np.max(seen)), _LEAST_VARIANCE))
    if frequencies is None or np.sum(frequencies >= 0) < 8:
        return guess
    smooth = frequencies >= 0
    height, logarithms = np.max(guess[smooth]), np.log1p(frequencies[smooth])

    def variances(t: np.ndarray) -> np.ndarray:
        return height * np.exp(t[0] - t[1] * logarithms - t[2] * logarithms**2)

    def misfit(t: np.ndarray) -> np.ndarray:
        fitted = variances(t)
        return (seen[smooth] - fitted) / (deviation + 0.3 * fitted + _TINY)

    fit = least_squares(misfit, [0.0, 1.5, 0.3], bounds=([-20, -3, 0], [20, 8, 5]), max_nfev=200)
    guess[smooth] = variances(fit.x)
    return np.maximum(guess, max(_LEAST_SHARE * guess.max(), _LEAST_VARIANCE))


def clean_covariance(seen: np.ndarray, deviation: float, guess: np.ndarray) -> np.ndarray:
    """Return an estimate of a covariance from one with noise.

    Parameters
    ----------
    seen : ndarray of shape (d, d)
        Symmetric.
    deviation : float
        Standard deviation of the noise on the diagonal; beside it, it is less by the root of two,
        so that it is the same in every basis.
    guess : ndarray of shape (d, d)
        A covariance.

    Returns
    -------
    ndarray of shape (d, d)
        Positive definite.

    Notes
    -----
    Entries in the basis of the guess's eigenvectors deviate from the guess by multiples of
    ``sqrt(l_i l_j)``, whose variance blocks of leading and trailing eigenvectors have in common.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.shrinkage import clean_covariance
    >>> seen = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> clean_covariance(seen, 0.0, np.eye(2)).round(6)
    array([[2. , 0.5],
           [0.5, 1. ]])
    """
    values, vectors = np.linalg.eigh(guess)
    values = np.maximum(values[::-1], max(_LEAST_SHARE * values[-1], _LEAST_VARIANCE))
    vectors = vectors[:, ::-1]
    deviations = vectors.T @ seen @ vectors - np.diag(values)
    scale = np.outer(values, values)
    on_diagonal = np.eye(len(values), dtype=bool)
    noise = np.where(on_diagonal, 1.0, 0.5) * deviation**2 + _TINY
    group = np.minimum(np.log2(np.arange(len(values)) + 1).astype(int), _LAST_GROUP)
    block = np.where(on_diagonal, -1 - group[:, None], group[:, None] * (_LAST_GROUP + 1) + group)
    shares = np.empty_like(scale)
    for label in np.unique(block):
        members = block == label
        scales, block_noise = scale[members], noise[members]
        # In units of the scale, so large entries do not dominate small ones.
        relative = _excess(deviations[members] ** 2 / scales, block_noise / scales)
        shares[members] = relative * scales / (relative * scales + block_noise)
    return _positive_part(vectors @ (np.diag(values) + shares * deviations) @ vectors.T)


def _positive_part(matrix: np.ndarray) -> np.ndarray:
    """Return the nearest positive definite matrix to a symmetric one."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = max(_LEAST_SHARE * values[-1], _LEAST_VARIANCE)
    return (vectors * np.maximum(values, least)) @ vectors.T


def square_roots(covariances: np.ndarray) -> np.ndarray:
    """Return short matrices F with ``F' F`` nearly equal to covariances.

    The result has the shape (m, q, d). Left-out directions have less than a thousandth of the
    variance of any of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.generative._sketch.shrinkage import square_roots
    >>> square_roots(np.diag([4.0, 1e-4, 9.0])[None]).shape
    (1, 2, 3)
    """
    values, vectors = np.linalg.eigh(covariances)
    values = np.maximum(values, 0.0)
    remaining = np.cumsum(values, axis=1) / np.maximum(values.sum(axis=1), _TINY)[:, None]
    start = int(np.argmax((remaining > _LEFT_OUT).any(axis=0)))
    roots = np.sqrt(values[:, start:, None]) * vectors.transpose(0, 2, 1)[:, start:]
    return roots[:, ::-1]


def _excess(squares: np.ndarray, noise: np.ndarray, errors: float = 0.0) -> float:
    """Return by how much squares exceed the variances of noise, on an average with weights.

    It is less so many standard errors, as if nothing but noise was in the squares.
    """
    weights = (np.min(noise) / noise) ** 2
    chance = errors * float(np.sqrt(2 * np.sum((weights * noise) ** 2)))
    return max((float(np.sum(weights * (squares - noise))) - chance) / float(np.sum(weights)), 0.0)
