"""Combination of estimates from several synthetic sets."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special, stats

__all__ = ["CombinedEstimate", "combine"]

# Where the distribution of a variance is evaluated, in shares of it from the largest on. Its long
# tail there has more nodes.
_STEPS = (np.arange(400) + 0.5) / 400
_NODES, _WEIGHTS = _STEPS**3, 3 * _STEPS**2 / np.sum(3 * _STEPS**2)
# Of a smaller number a chi-square distribution is a power.
_SMALL = 1e-6
_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class CombinedEstimate:
    """An estimate for a population, with its standard error.

    Parameters
    ----------
    estimate : ndarray
        The mean over sets.
    standard_error : ndarray
        Standard error of the estimate. It includes sampling of the private records, the noise of
        the release, and the randomness of the synthetic sets.
    degrees_of_freedom : ndarray
        Degrees of freedom of the square of the standard error, at least 1.
    variances : ndarray of shape (400, ...)
        Possible values of the square of the standard error: quantiles of its distribution, from
        the largest on, with more of them in the tail.
    """

    estimate: np.ndarray
    standard_error: np.ndarray
    degrees_of_freedom: np.ndarray
    variances: np.ndarray = field(repr=False)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of a confidence interval.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level, above 0 and below 1.

        Returns
        -------
        low, high : ndarray
            In the shape of the estimate.

        Raises
        ------
        ValueError
            If the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be above 0 and below 1, got {level!r}.")
        deviations = np.sqrt(self.variances)
        normal = special.ndtri((1 + level) / 2)
        low, high = normal * deviations.min(axis=0), normal * deviations.max(axis=0)
        scale = np.where(deviations > 0, deviations, 1.0)
        for _ in range(_HALVINGS):
            width = (low + high) / 2
            outside = 2 * np.tensordot(_WEIGHTS, special.ndtr(-width / scale), 1)
            too_short = outside > 1 - level
            low, high = np.where(too_short, width, low), np.where(too_short, high, width)
        return self.estimate - high, self.estimate + high


def combine(estimates: Any, variances: Any) -> CombinedEstimate:
    """Combine the estimates from several synthetic sets, with a standard error.

    The sets come from ``sample(n, n_sets=m)``. Fit the same model to each set, as if its rows were
    real, and pass the estimates and their variances.

    Parameters
    ----------
    estimates : array-like of shape (n_sets, ...)
        Estimates of each set (at least 2 sets); further axes are parameters.
    variances : array-like of shape (n_sets, ...)
        The square of the standard error of each estimate.

    Returns
    -------
    CombinedEstimate
        With `estimate`, `standard_error`, `degrees_of_freedom` and ``interval(level)``.

    Raises
    ------
    ValueError
        If there are fewer than two sets, or invalid estimates or variances.

    See Also
    --------
    skdpot.DPSinkhornGenerator : Its ``sample(n, n_sets=m)`` draws such sets.

    Notes
    -----
    The sets must come from different models, as ``n_sets`` makes them: two samples from one model
    are not two sets. With the mean :math:`\\bar u` of the variances and the variance :math:`b`
    between the estimates, the variance is :math:`(1 + 1/m) b - \\bar u`, and :math:`\\bar u` where
    this is not above 0. The interval is that of a Gaussian with an unknown variance: :math:`b` has
    a chi-square distribution, and estimates no less than :math:`\\bar u`. For :math:`\\bar u = 0`
    it is the interval of Student's distribution. With several times as many rows in a set as there
    were records, :math:`\\bar u` is small, and intervals are shorter.

    Intervals are valid for quantities that depend on single columns, and on covariances of pairs
    of columns, within each class of the target. They are not valid for coefficients that are
    adjusted for a column with a correlation above .9, and may fail for patterns of three columns.
    Derivation: :ref:`sketch-inference`; measured coverage: :ref:`tables-inference`.

    References
    ----------
    T. E. Raghunathan, J. P. Reiter and D. B. Rubin, "Multiple Imputation for Statistical Disclosure
    Limitation", Journal of Official Statistics 2003.

    O. Räisä, J. Jälkö, S. Kaski and A. Honkela, "Noise-Aware Statistical Inference with
    Differentially Private Synthetic Data", AISTATS 2023.

    Examples
    --------
    >>> from skdpot.generative import combine
    >>> combined = combine([10.1, 9.6, 10.7, 9.9, 10.2], [0.04, 0.05, 0.04, 0.04, 0.05])
    >>> low, high = combined.interval()
    >>> print(f"{combined.estimate:.2f}, from {low:.2f} to {high:.2f}")
    10.10, from 8.92 to 11.28
    """
    estimates, variances = (np.asarray(part, dtype=np.float64) for part in (estimates, variances))
    if estimates.ndim < 1 or len(estimates) < 2 or estimates.shape != variances.shape:
        raise ValueError(
            "estimates and variances must have one shape, with at least two sets along its first "
            f"axis; got the shapes {estimates.shape} and {variances.shape}."
        )
    if not (
        np.isfinite(estimates).all() and np.isfinite(variances).all() and (variances >= 0).all()
    ):
        raise ValueError("estimates must be finite, and variances finite and at least 0.")
    n_sets = len(estimates)
    within = variances.mean(axis=0)
    spread = estimates.var(axis=0, ddof=1)
    between = (1 + 1 / n_sets) * spread
    positive = between > within
    part = np.divide(within, between, out=np.zeros_like(between), where=positive)
    return CombinedEstimate(
        estimates.mean(axis=0),
        np.sqrt(np.where(positive, between - within, within)),
        np.maximum((n_sets - 1) * (1 - part) ** 2, 1.0),
        (1 + 1 / n_sets) * _totals(spread, within, n_sets - 1) - within,
    )


def _totals(spread, within, freedom):
    """Return quantiles of the variance of sets, which is no less than it is within them.

    `freedom` times the ratio of the estimate and the variance has a chi-square distribution.
    """
    nodes = _NODES.reshape(-1, *[1] * np.ndim(spread))
    most = np.divide(freedom * spread, within, out=np.full_like(spread, np.inf), where=within > 0)
    most = np.where((within == 0) & (spread == 0), 0.0, most)
    drawn = stats.chi2.ppf(nodes * stats.chi2.cdf(most, freedom), freedom)
    of_spread = freedom * spread / np.maximum(drawn, np.finfo(float).tiny)
    return np.where(most > _SMALL, of_spread, within * nodes ** (-2 / freedom))
