"""Bounds that rounded noise, and sums of it, exceed with a tiny probability only."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri

# Bounds are raised by this factor, which covers the rounding of doubles.
_SPARE = 1.0 + 1e-9
# Arguments at which bounds are minimised that hold for every positive number.
_SMALL = np.geomspace(1e-9, 0.5, 400)
_BETWEEN = np.concatenate([_SMALL, 1.0 - _SMALL[::-1]])
_ABOVE = np.geomspace(1e-6, 1e3, 800)


@dataclass(frozen=True)
class NoiseTail:
    """The tail of independent integers that are rounded Laplace or Gaussian variables.

    Parameters
    ----------
    laplace : bool
        Whether they are Laplace variables; else Gaussian ones.
    scale : float
        Mean magnitude of the former, standard deviation of the latter, before they are rounded.

    Notes
    -----
    Proof: :ref:`proof-ranges`.

    Examples
    --------
    >>> from skdpot.releases._tails import NoiseTail
    >>> NoiseTail(laplace=True, scale=2.0).of_sum(1, 2.0**-40)
    55.0
    """

    laplace: bool
    scale: float

    def of_sum(self, n_terms: int, probability: float) -> float:
        """Return a bound that the magnitude of a sum exceeds with at most this probability.

        For one term it is the smallest such integer.
        """
        if n_terms == 1:
            quantile = -math.log(probability) if self.laplace else -ndtri(0.5 * probability)
            return float(max(math.ceil(self.scale * quantile * _SPARE - 0.5), 0))
        log_inverse = math.log(2.0 / probability)
        if self.laplace:
            logs = self._log_transforms(0.5, 0.5)
            return _smallest_integer((n_terms * logs + log_inverse) * self.scale / _BETWEEN)
        # Rounding a smaller variable does not make it larger.
        scale = max(self.scale, 1.0)
        price = n_terms * math.log1p(2.1 * math.exp(-2.0 * (math.pi * scale) ** 2))
        return _smallest_integer(
            math.sqrt(2.0 * n_terms * (scale**2 + 1.0 / 12.0) * (log_inverse + price))
        )

    def of_magnitudes(self, n_terms: int, probability: float) -> float:
        """Return a bound that the sum of magnitudes exceeds with at most this probability."""
        log_inverse = -math.log(probability)
        if self.laplace:
            logs, rates = self._log_transforms(1.0, 0.0), _BETWEEN
        else:
            rates = _ABOVE
            logs = math.log(2.0) + 0.5 * rates**2 + log_ndtr(rates) + 0.5 * rates / self.scale
        return _smallest_integer((n_terms * logs + log_inverse) * self.scale / rates)

    def _log_transforms(self, up: float, down: float) -> np.ndarray:
        """Return logarithms of ``E exp(u R / scale)``, where R is positive with a share `up`.

        The magnitude of R is k with the probability ``(1 - q) q**(k - 1/2)``, for k above 0 and
        ``q = exp(-1 / scale)``; so these are geometric series.
        """
        inverse = 1.0 / self.scale
        # Logarithms, since some factors overflow for a small scale.
        log_series = [
            rate - np.log(-np.expm1(rate)) + math.log(share)
            for share, rate in ((up, (_BETWEEN - 1.0) * inverse), (down, -(_BETWEEN + 1) * inverse))
            if share
        ]
        log_first = math.log(-math.expm1(-inverse)) + 0.5 * inverse
        with np.errstate(over="ignore"):
            rest = np.exp(log_first + np.logaddexp.reduce(log_series, axis=0))
        return np.log1p(rest - math.exp(-0.5 * inverse))


def _smallest_integer(bounds: np.ndarray | float) -> float:
    """Return the smallest of several valid bounds, as an integer."""
    return float(math.ceil(np.min(bounds) * _SPARE))
