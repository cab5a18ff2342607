"""Estimates from moments with noise of a known size."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class NoisyAverages:
    """Noisy averages over the records of every group; the middle of the box is zero.

    Attributes
    ----------
    sizes : ndarray of shape (n_groups,)
        Noisy counts, raised to 1.
    known : ndarray of shape (n_groups,)
        Whether the count is above two standard deviations of its noise.
    means : ndarray of shape (n_groups, n_coordinates)
        Means of coordinates.
    products : ndarray of shape (n_groups, n_pairs)
        Means of the products of two coordinates.
    spreads : ndarray of shape (n_groups, n_continuous)
        Means of ``v (1 - v)``.
    noise : ndarray of shape (4, n_groups)
        Variances of the noise on a count, divided by the squared size, and on averages of the three
        kinds.
    continuous : ndarray of shape (n_continuous,)
        The coordinates of the spreads.
    pairs : tuple of two ndarray of shape (n_pairs,)
        The coordinates of the products.
    """

    sizes: np.ndarray
    known: np.ndarray
    means: np.ndarray
    products: np.ndarray
    spreads: np.ndarray
    noise: np.ndarray
    continuous: np.ndarray
    pairs: tuple[np.ndarray, np.ndarray]

    @property
    def weights(self) -> np.ndarray:
        """Return sizes, 0 for groups of which nothing is known."""
        return np.where(self.known, self.sizes, 0.0)

    def estimated_means(self) -> np.ndarray:
        """Return means, shrunk towards those of all groups; zero if no group is known."""
        noise = np.broadcast_to(self.noise[1][:, None], self.means.shape)
        return towards_common(self.means, self.weights, noise, np.zeros(self.means.shape[1]))

    def estimated_variances(self) -> np.ndarray:
        """Return variances, shrunk towards those of all groups.

        They are at least half of a standard deviation of the noise for a known group, and uniform
        if no group is known.
        """
        squares = self.means[:, self.continuous] ** 2
        of_counts, of_sums, _, of_spreads = self.noise[:, :, None]
        # The variance is 1/4 - mean^2 - spread, and the noise is passed on by its derivatives.
        noise = of_spreads + 4.0 * squares * of_sums
        noise += (2.0 * squares + self.spreads) ** 2 * of_counts
        uniform = np.full(len(self.continuous), 1.0 / 12.0)
        variances = towards_common(0.25 - squares - self.spreads, self.weights, noise, uniform)
        least = np.where(self.known[:, None], 0.5 * np.sqrt(noise), 0.0)
        return np.maximum(variances, least)

    def estimated_covariances(self) -> np.ndarray:
        """Return covariances, shrunk towards those of all groups, and these towards zero.

        They are zero for pairs without products.
        """
        rows, columns = self.pairs
        crossed = self.means[:, rows] * self.means[:, columns]
        of_counts, of_sums, of_products, _ = self.noise[:, :, None]
        noise = of_products + (self.means[:, rows] ** 2 + self.means[:, columns] ** 2) * of_sums
        noise += (self.products - 2.0 * crossed) ** 2 * of_counts
        nothing = np.zeros(len(rows))
        covariances = towards_common(
            self.products - crossed, self.weights, noise, nothing, shrink=True
        )
        matrices = np.zeros((len(self.sizes), self.means.shape[1], self.means.shape[1]))
        matrices[:, rows, columns] = matrices[:, columns, rows] = covariances
        return matrices


def towards_common(
    values: np.ndarray,
    weights: np.ndarray,
    variances: np.ndarray,
    default: np.ndarray,
    *,
    shrink: bool = False,
) -> np.ndarray:
    """Return vectors of groups, shrunk towards their weighted mean by James and Stein's rule.

    A group of weight 0 is unknown, and gets the weighted mean. All groups get the default if none
    is known, and the weighted mean is moved towards it with `shrink`. Variances are those of the
    noise.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases._moment_estimates import towards_common
    >>> values = np.array([[0.0, 4.0], [2.0, 4.0]])
    >>> towards_common(values, np.ones(2), np.full((2, 2), 0.25), np.zeros(2))
    array([[0.5, 4. ],
           [1.5, 4. ]])
    """
    total = weights.sum()
    if total == 0:
        return np.broadcast_to(default, values.shape)
    shares = weights / total
    common = shares @ values
    if shrink:
        common = default + _without_noise(common - default, shares**2 @ variances)
    moved = [
        _without_noise(row - common, noise) if weight else np.zeros(len(common))
        for row, noise, weight in zip(values, variances, weights, strict=True)
    ]
    return common + np.array(moved)


def _without_noise(difference: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Return the part of a difference that exceeds its noise."""
    energy = float(difference @ difference)
    share = 1.0 - float(variances.sum()) / energy if energy > 0 else 0.0
    return max(share, 0.0) * difference
