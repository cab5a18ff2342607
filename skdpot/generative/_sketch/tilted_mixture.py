"""Mixtures whose columns have given distributions, and whose pairs of columns have given moments.

Within a component columns are independent, and each has the distribution that all components share,
times the exponential of a few functions of its cells. Tilts change no more than the moments need.
So small changes of the moments change the mixture smoothly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skdpot.generative._sketch.descent import column_slices, softmax

__all__ = ["ColumnFunctions", "MomentFit", "TiltedMixture"]

_N_COMPONENTS = 30
_FIRST_STEPS, _NEXT_STEPS = 24, 8
# Squared errors of moments, in units of their noise, that are small enough.
_SMALL_ERROR = 0.001
_CONJUGATE_STEPS = 25
_DAMPING = 1e-3
_SOLVED = 1e-6
_LONGEST_STEP, _LARGEST_TILT = 1.0, 40.0
# The largest total difference of a column's distribution in all components from its shares.
_BALANCED = 1e-4
_FEW_ROUNDS, _MOST_ROUNDS = 3, 30
# The part of a column's variance that components explain at first.
_EXPLAINED = (0.05, 0.97)


@dataclass(frozen=True, eq=False)
class ColumnFunctions:
    """Functions of the cells of a column.

    Parameters
    ----------
    tilts : ndarray of shape (n_tilts, n_cells)
        By which the column is tilted.
    tests : ndarray of shape (n_tests, n_cells)
        Functions whose products with those of other columns have known means. The first ones are
        nearly the tilts, in their order.
    """

    tilts: np.ndarray
    tests: np.ndarray


@dataclass(frozen=True, eq=False)
class TiltedMixture:
    """A mixture of equally many of each component.

    Parameters
    ----------
    tilts : ndarray of shape (n_components, n_tilts)
        How much of each function is in the exponent.
    logits : ndarray of shape (n_cells,)
        Of the distribution that is tilted.
    shares : ndarray of shape (n_cells,)
        The distribution of each column in all components together.
    profiles : ndarray of shape (n_components, n_cells)
        The distribution of each column in each component.
    """

    tilts: np.ndarray
    logits: np.ndarray
    shares: np.ndarray
    profiles: np.ndarray


class MomentFit:
    """The fit of mixtures to moments of pairs of columns.

    Parameters
    ----------
    functions : sequence of ColumnFunctions
        Of each column.

    Attributes
    ----------
    tests : ndarray of shape (n_tests, n_cells)
        Those of all columns; 0 at cells of others.
    between : ndarray of shape (n_tests, n_tests)
        Which tests are of two columns.
    """

    def __init__(self, functions: Sequence[ColumnFunctions]) -> None:
        self._cells = column_slices([f.tilts.shape[1] for f in functions])
        self._tilt_slices = column_slices([len(f.tilts) for f in functions])
        self.test_slices = column_slices([len(f.tests) for f in functions])
        self._tilts = _placed([f.tilts for f in functions])
        self.tests = _placed([f.tests for f in functions])
        column = np.repeat(np.arange(len(functions)), [len(f.tests) for f in functions])
        self.between = column[:, None] != column
        self._products = [
            (f.tests[:, None] * f.tilts).reshape(-1, f.tilts.shape[1]).T for f in functions
        ]

    def fit_first(
        self, shares: np.ndarray, moments: np.ndarray, precisions: np.ndarray, rng
    ) -> TiltedMixture:
        """Return a mixture that has the moments, fitted from a random start.

        Parameters
        ----------
        shares : ndarray of shape (n_cells,)
            The distribution of each column.
        moments : ndarray of shape (n_tests, n_tests)
            Covariances of tests of different columns.
        precisions : ndarray of shape (n_tests, n_tests)
            One over the deviations of their noise; 0 for those that are not known.
        rng : RandomState
            Source of randomness.

        Returns
        -------
        TiltedMixture
            Its tests are, at first, a sample of a Gaussian with these covariances, and no more
            variance than they need.
        """
        covariances = np.where(precisions > 0, moments, 0.0)
        values, vectors = np.linalg.eigh(covariances)
        explained = np.clip(-values.min(initial=0.0), *_EXPLAINED)
        sample = rng.normal(size=(_N_COMPONENTS, len(covariances)))
        sample -= sample.mean(axis=0)
        if len(covariances) < _N_COMPONENTS:
            sample = np.linalg.qr(sample)[0] * np.sqrt(_N_COMPONENTS)
        means = sample @ (vectors * np.sqrt(np.maximum(values + explained, 0.0))) @ vectors.T
        tilts = np.zeros((_N_COMPONENTS, len(self._tilts)))
        for tilt_slice, test_slice in zip(self._tilt_slices, self.test_slices, strict=True):
            n_common = min(tilt_slice.stop - tilt_slice.start, test_slice.stop - test_slice.start)
            leading = means[:, test_slice.start : test_slice.start + n_common]
            tilts[:, tilt_slice.start : tilt_slice.start + n_common] = leading / (1 - explained)
        return self._fitted(tilts, np.log(shares), shares, moments, precisions, _FIRST_STEPS)

    def refit(
        self,
        mixture: TiltedMixture,
        shares: np.ndarray,
        moments: np.ndarray,
        precisions: np.ndarray,
    ) -> TiltedMixture:
        """Return a mixture near another one, fitted to other distributions and moments."""
        logits = mixture.logits + np.log(shares / mixture.shares)
        return self._fitted(mixture.tilts, logits, shares, moments, precisions, _NEXT_STEPS)

    def _fitted(self, tilts, logits, shares, moments, precisions, n_steps):
        """Return a mixture after Gauss-Newton steps."""
        small = _SMALL_ERROR * np.count_nonzero(precisions)
        logits, profiles = self._balanced(tilts, logits, shares, _FEW_ROUNDS)
        for _ in range(n_steps):
            means = self._means(profiles)
            errors = precisions * (means.T @ means / len(means) - moments)
            if np.sum(errors**2) <= small:
                break
            step = self._step(profiles, means, errors, precisions)
            step /= max(1.0, np.abs(step).max() / _LONGEST_STEP)
            tilts = np.clip(tilts + step, -_LARGEST_TILT, _LARGEST_TILT)
            logits, profiles = self._balanced(tilts, logits, shares, _FEW_ROUNDS)
        logits, profiles = self._balanced(tilts, logits, shares, _MOST_ROUNDS)
        return TiltedMixture(tilts, logits, shares, profiles)

    def _balanced(self, tilts, logits, shares, most_rounds):
        """Return logits and profiles of components that together have the shares."""
        tilted = tilts @ self._tilts
        profiles = softmax(tilted + logits, self._cells)
        for _ in range(most_rounds):
            overall = profiles.mean(axis=0)
            if np.abs(overall - shares).sum() <= _BALANCED * len(self._cells):
                break
            logits = logits + np.log(shares / overall)
            profiles = softmax(tilted + logits, self._cells)
        return logits, profiles

    def _means(self, profiles):
        """Return the mean of each test in each component, less that of all."""
        means = profiles @ self.tests.T
        return means - means.mean(axis=0)

    def _step(self, profiles, means, errors, precisions):
        """Return the shortest step of tilts that removes nearly all errors.

        It is found by conjugate gradients. `slopes` are the covariances of tests and tilts within
        components: by these a tilt changes the means of tests.
        """
        slopes = self._slopes(profiles)
        # The change of the mean of all components is taken back, since shares of columns stay.
        taken_back = slopes @ np.linalg.pinv(slopes.mean(axis=0))

        def change_of(step):
            changes = np.matmul(slopes, step[:, :, None])[:, :, 0]
            changes = changes - taken_back @ changes.mean(axis=0)
            products = changes.T @ means
            return precisions * (products + products.T) / len(means)

        def slopes_of(moments):
            changes = means @ (precisions * moments) * (2 / len(means))
            mean_change = np.einsum("kij,ki->j", taken_back, changes) / len(means)
            return np.matmul((changes - mean_change)[:, None], slopes)[:, 0]

        residual = -slopes_of(errors)
        direction, step = residual, np.zeros_like(residual)
        size = initial_size = np.sum(residual**2)
        if not initial_size:
            return step
        damping = _DAMPING * np.sum(change_of(residual) ** 2) / initial_size
        for _ in range(_CONJUGATE_STEPS):
            curvature = slopes_of(change_of(direction)) + damping * direction
            length = size / np.sum(direction * curvature)
            step, residual = step + length * direction, residual - length * curvature
            size, previous_size = np.sum(residual**2), size
            if size <= _SOLVED * initial_size:
                break
            direction = residual + size / previous_size * direction
        return step

    def _slopes(self, profiles):
        """Return the covariance of each test and each tilt in each component."""
        slopes = np.zeros((len(profiles), len(self.tests), len(self._tilts)))
        tests, tilts = profiles @ self.tests.T, profiles @ self._tilts.T
        parts = zip(self._cells, self.test_slices, self._tilt_slices, self._products, strict=True)
        for cells, test_slice, tilt_slice, products in parts:
            n_tests, n_tilts = (part.stop - part.start for part in (test_slice, tilt_slice))
            slopes[:, test_slice, tilt_slice] = (
                (profiles[:, cells] @ products).reshape(len(profiles), n_tests, n_tilts)
                - tests[:, test_slice, None] * tilts[:, None, tilt_slice]
            )  # fmt: skip
        return slopes


def _placed(blocks):
    """Return blocks along the diagonal of a matrix that is 0 elsewhere."""
    rows, columns = (column_slices([block.shape[i] for block in blocks]) for i in (0, 1))
    placed = np.zeros(np.sum([block.shape for block in blocks], axis=0))
    for row, column, block in zip(rows, columns, blocks, strict=True):
        placed[row, column] = block
    return placed
