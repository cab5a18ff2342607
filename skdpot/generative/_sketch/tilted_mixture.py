"""Mixtures whose columns have given distributions, and whose pairs of columns have given moments.

Within a component columns are independent, and each has the distribution that all components share,
times the exponential of a few functions of its cells. These tilts are moved no further than it
takes to have the moments, so that small changes of the moments change the mixture smoothly.
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
# Of all components' distribution of a column, so much is elsewhere than it should be, at most.
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
        Whose products with those of other columns have known means. The first ones are nearly the
        tilts, in their order.
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
    """The fit of mixtures to moments.

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
        self._cells = column_slices(
            [functions_of_column.tilts.shape[1] for functions_of_column in functions]
        )
        self._of_tilts = column_slices(
            [len(functions_of_column.tilts) for functions_of_column in functions]
        )
        self.of_tests = column_slices(
            [len(functions_of_column.tests) for functions_of_column in functions]
        )
        self._tilts = _placed([functions_of_column.tilts for functions_of_column in functions])
        self.tests = _placed([functions_of_column.tests for functions_of_column in functions])
        column = np.repeat(
            np.arange(len(functions)),
            [len(functions_of_column.tests) for functions_of_column in functions],
        )
        self.between = column[:, None] != column
        self._products = [
            (functions_of_column.tests[:, None] * functions_of_column.tilts)
            .reshape(-1, functions_of_column.tilts.shape[1])
            .T
            for functions_of_column in functions
        ]

    def first(
        self, shares: np.ndarray, moments: np.ndarray, precisions: np.ndarray, rng
    ) -> TiltedMixture:
        """Return a mixture that has the moments, made of nothing.

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
        known = np.where(precisions > 0, moments, 0.0)
        values, vectors = np.linalg.eigh(known)
        explained = np.clip(-values.min(initial=0.0), *_EXPLAINED)
        sample = rng.normal(size=(_N_COMPONENTS, len(known)))
        sample -= sample.mean(axis=0)
        if len(known) < _N_COMPONENTS:
            sample = np.linalg.qr(sample)[0] * np.sqrt(_N_COMPONENTS)
        means = sample @ (vectors * np.sqrt(np.maximum(values + explained, 0.0))) @ vectors.T
        tilts = np.zeros((_N_COMPONENTS, len(self._tilts)))
        for of_tilts, of_tests in zip(self._of_tilts, self.of_tests, strict=True):
            n_both = min(of_tilts.stop - of_tilts.start, of_tests.stop - of_tests.start)
            first = means[:, of_tests.start : of_tests.start + n_both]
            tilts[:, of_tilts.start : of_tilts.start + n_both] = first / (1 - explained)
        return self._fitted(tilts, np.log(shares), shares, moments, precisions, _FIRST_STEPS)

    def moved(
        self,
        mixture: TiltedMixture,
        shares: np.ndarray,
        moments: np.ndarray,
        precisions: np.ndarray,
    ) -> TiltedMixture:
        """Return a mixture near another one, with other distributions and moments."""
        logits = mixture.logits + np.log(shares / mixture.shares)
        return self._fitted(mixture.tilts, logits, shares, moments, precisions, _NEXT_STEPS)

    def _fitted(self, tilts, logits, shares, moments, precisions, n_steps):
        """Return a mixture after steps of Gauss and Newton."""
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
            together = profiles.mean(axis=0)
            if np.abs(together - shares).sum() <= _BALANCED * len(self._cells):
                break
            logits = logits + np.log(shares / together)
            profiles = softmax(tilted + logits, self._cells)
        return logits, profiles

    def _means(self, profiles):
        """Return the mean of each test in each component, less that of all."""
        means = profiles @ self.tests.T
        return means - means.mean(axis=0)

    def _step(self, profiles, means, errors, precisions):
        """Return the shortest step of tilts by which errors are as good as gone.

        It is found by conjugate gradients, and `slopes` are the covariances of tests and tilts
        within components, by which a tilt moves the means of tests.
        """
        slopes = self._slopes(profiles)
        # What moves the mean of all components is taken back, since shares of columns stay.
        taken_back = slopes @ np.linalg.pinv(slopes.mean(axis=0))

        def moved_by(step):
            of_means = np.matmul(slopes, step[:, :, None])[:, :, 0]
            of_means = of_means - taken_back @ of_means.mean(axis=0)
            products = of_means.T @ means
            return precisions * (products + products.T) / len(means)

        def back(changes):
            of_means = means @ (precisions * changes) * (2 / len(means))
            of_all = np.einsum("kij,ki->j", taken_back, of_means) / len(means)
            return np.matmul((of_means - of_all)[:, None], slopes)[:, 0]

        left = -back(errors)
        direction, step = left, np.zeros_like(left)
        size = first = np.sum(left**2)
        if not first:
            return step
        damping = _DAMPING * np.sum(moved_by(left) ** 2) / first
        for _ in range(_CONJUGATE_STEPS):
            curved = back(moved_by(direction)) + damping * direction
            length = size / np.sum(direction * curved)
            step, left = step + length * direction, left - length * curved
            size, before = np.sum(left**2), size
            if size <= _SOLVED * first:
                break
            direction = left + size / before * direction
        return step

    def _slopes(self, profiles):
        """Return the covariance of each test and each tilt in each component."""
        slopes = np.zeros((len(profiles), len(self.tests), len(self._tilts)))
        tests, tilts = profiles @ self.tests.T, profiles @ self._tilts.T
        parts = zip(self._cells, self.of_tests, self._of_tilts, self._products, strict=True)
        for cells, of_tests, of_tilts, products in parts:
            shape = (len(profiles), of_tests.stop - of_tests.start, of_tilts.stop - of_tilts.start)
            slopes[:, of_tests, of_tilts] = (
                (profiles[:, cells] @ products).reshape(shape)
                - tests[:, of_tests, None] * tilts[:, None, of_tilts]
            )  # fmt: skip
        return slopes


def _placed(blocks):
    """Return blocks along the diagonal of a matrix that is 0 elsewhere."""
    rows, columns = (column_slices([block.shape[i] for block in blocks]) for i in (0, 1))
    placed = np.zeros(np.sum([block.shape for block in blocks], axis=0))
    for row, column, block in zip(rows, columns, blocks, strict=True):
        placed[row, column] = block
    return placed
