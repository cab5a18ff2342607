"""Private selection of a candidate with nearly the largest utility."""

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import roots_legendre, softmax

from skdpot.privacy.checks import check_positive, private_doubles
from skdpot.privacy.events import PureDpEvent
from skdpot.privacy.mechanisms._race import EXPONENTIAL, GUMBEL, NoiseKind, noisy_argmax
from skdpot.privacy.random import make_source
from skdpot.privacy.rounding import least_meant

# A score that is more than this below the best one is treated as exactly this far below it. Such a
# candidate is chosen with a probability below exp(-10**6) either way. The limit keeps the
# arithmetic within bounds.
_FURTHEST = 1 << 20
# Random words that are drawn at a time.
_BATCH = 1 << 20


class _SelectionMechanism(ABC):
    """Add noise to scores, which are utilities in units of privacy, and return the largest."""

    _kind: NoiseKind

    def __init__(self, epsilon: float, sensitivity: float, *, monotonic: bool = False) -> None:
        self.epsilon = check_positive("epsilon", epsilon)
        self.sensitivity = check_positive("sensitivity", sensitivity)
        self.monotonic = bool(monotonic)
        exact = least_meant(self.epsilon) / Fraction(self.sensitivity)
        self._exact_factor = exact if self.monotonic else exact / 2
        if not 2.0**-1000 < self._exact_factor < 2.0**1000:
            raise ValueError(
                f"epsilon / sensitivity, {self.epsilon!r} / {self.sensitivity!r}, is out of the "
                "range of double precision."
            )
        self._factor = float(self._exact_factor)

    def __repr__(self) -> str:
        settings = f"{self.epsilon!r}, {self.sensitivity!r}, monotonic={self.monotonic}"
        return f"{type(self).__name__}({settings})"

    @property
    def event(self) -> PureDpEvent:
        """Return the event of one draw."""
        return PureDpEvent(self.epsilon)

    def select(self, utilities: Any, random_state: Any = None, size: int | None = None) -> Any:
        """Return the index of the selected candidate.

        Parameters
        ----------
        utilities : array-like of shape (n_candidates,)
            Private utilities. NaN is worse than all numbers; infinite ones count as the largest or
            smallest double.
        random_state : None, int, numpy.random.RandomState or NoiseSource, default=None
            None draws from the operating system's cryptographic source. Anything seeded is
            reproducible, and so not private.
        size : int, default=None
            Number of independent draws; each costs epsilon.

        Returns
        -------
        int or ndarray of intp, shape (size,)
            The selected candidates.

        Raises
        ------
        ValueError
            If there is no candidate, the shape is wrong, or `size` or `random_state` is invalid.
        """
        if size is not None and (not isinstance(size, (int, np.integer)) or size < 0):
            raise ValueError(f"size must be None or a non-negative integer, got {size!r}.")
        values = _ordered_doubles(utilities)
        source = make_source(random_state)
        n_draws = 1 if size is None else size
        rows = max(_BATCH // len(values), 1)
        winners = [
            noisy_argmax(
                source,
                self._scores(values),
                lambda index: self._exact_score(values, index),
                min(rows, n_draws - start),
                self._kind,
            )
            for start in range(0, n_draws, rows)
        ]
        if size is None:
            return int(winners[0][0])
        return np.concatenate([np.empty(0, dtype=np.intp), *winners])

    def probabilities(self, utilities: Any) -> np.ndarray:
        """Return the selection probabilities of candidates: for audits, *not private*.

        Parameters
        ----------
        utilities : array-like of shape (n_candidates,)
            As in :meth:`select`.

        Returns
        -------
        ndarray of shape (n_candidates,)
            Probabilities, to the precision of doubles.
        """
        return self._probabilities(self._scores(_ordered_doubles(utilities)))

    def _scores(self, values: np.ndarray) -> np.ndarray:
        """Return scores minus the best score, in doubles."""
        with np.errstate(all="ignore"):
            return -np.minimum(self._factor * (values.max() - values), float(_FURTHEST))

    def _exact_score(self, values: np.ndarray, index: int) -> Fraction:
        """Return one score minus the best score, exactly."""
        gap = Fraction(float(values.max())) - Fraction(float(values[index]))
        return -min(self._exact_factor * gap, Fraction(_FURTHEST))

    @abstractmethod
    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Return the probabilities of scores."""


class ExponentialMechanism(_SelectionMechanism):
    """Select a candidate with a probability that grows exponentially with its utility.

    The probability of candidate i is proportional to ``exp(epsilon u_i / (2 sensitivity))``. It is
    drawn as the largest of ``epsilon u_i / (2 sensitivity)`` plus Gumbel noise, in exact
    arithmetic: every candidate has exactly the probability that the formula says, up to the
    assumption that logarithms in double precision are right to 46 of their 53 bits.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one draw, above 0.
    sensitivity : float
        By how much the utility of any one candidate may differ between neighbouring data sets.
    monotonic : bool, default=False
        Whether utilities of neighbouring data sets all differ in the same direction (as counts do
        when a record is added); the factor 2 is then not needed.

    Attributes
    ----------
    epsilon, sensitivity, monotonic
        As given.
    event : PureDpEvent
        What one draw releases, to be charged to a ledger.

    Raises
    ------
    ValueError
        If a parameter is not above 0 and finite, or their ratio is out of the range of doubles.

    See Also
    --------
    PermuteAndFlipMechanism : Selects better candidates at the same epsilon.

    References
    ----------
    .. [1] F. McSherry and K. Talwar, "Mechanism design via differential privacy", FOCS 2007.

    Examples
    --------
    >>> from skdpot.privacy.mechanisms import ExponentialMechanism
    >>> mechanism = ExponentialMechanism(epsilon=2.0, sensitivity=1.0)
    >>> mechanism.probabilities([0.0, 1.0, 2.0]).round(3).tolist()
    [0.09, 0.245, 0.665]
    >>> mechanism.select([0.0, 1.0, 100.0])
    2
    """

    _kind = GUMBEL

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        return softmax(scores)


class PermuteAndFlipMechanism(_SelectionMechanism):
    """Go through the candidates in random order until a coin accepts one.

    Candidate i is accepted with probability ``exp(epsilon (u_i - max u) / (2 sensitivity))``. The
    distribution is that of the largest of ``epsilon u_i / (2 sensitivity)`` plus exponential noise
    [2]_, which is how it is drawn, in exact arithmetic as in :class:`ExponentialMechanism`. On
    average it never selects worse than the exponential mechanism does [1]_.

    Parameters
    ----------
    epsilon : float
        Privacy parameter of one draw, above 0.
    sensitivity : float
        By how much the utility of any one candidate may differ between neighbouring data sets.
    monotonic : bool, default=False
        Whether utilities of neighbouring data sets all differ in the same direction (as counts do
        when a record is added); the factor 2 is then not needed.

    Attributes
    ----------
    epsilon, sensitivity, monotonic
        As given.
    event : PureDpEvent
        What one draw releases, to be charged to a ledger.

    Raises
    ------
    ValueError
        If a parameter is not above 0 and finite, or their ratio is out of the range of doubles.

    See Also
    --------
    ExponentialMechanism : Its probabilities have a simpler form.

    References
    ----------
    .. [1] R. McKenna and D. Sheldon, "Permute-and-flip: a new mechanism for differentially private
       selection", NeurIPS 2020.
    .. [2] Z. Ding, D. Kifer, S. M. S. N. E., T. Steinke, Y. Wang, Y. Xiao and D. Zhang, "The
       permute-and-flip mechanism is identical to report-noisy-max with exponential noise", 2021,
       arXiv:2105.07260.

    Examples
    --------
    >>> from skdpot.privacy.mechanisms import PermuteAndFlipMechanism
    >>> mechanism = PermuteAndFlipMechanism(epsilon=2.0, sensitivity=1.0)
    >>> mechanism.probabilities([0.0, 1.0, 2.0]).round(3).tolist()
    [0.059, 0.176, 0.765]
    >>> mechanism.select([0.0, 1.0, 100.0])
    2
    """

    _kind = EXPONENTIAL

    def _probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Integrate the probability of being first over the times at which candidates are tried.

        Candidates are tried at independent uniform times. A candidate tried at time t is selected
        if its coin accepts it, and no other was tried and accepted before: ``q_i prod_{j != i} (1 -
        t q_j)``, a polynomial in t that Gauss quadrature integrates exactly.
        """
        accepted = np.exp(scores)
        nodes, weights = roots_legendre(math.ceil(len(scores) / 2))
        times = (nodes[:, None] + 1.0) / 2.0
        refused = np.log1p(-times * accepted)
        none_before = np.exp(refused.sum(axis=1, keepdims=True) - refused)
        return accepted * (weights / 2.0 @ none_before)


def _ordered_doubles(utilities: Any) -> np.ndarray:
    """Return utilities as finite doubles, with NaN as the smallest."""
    values = private_doubles(utilities)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"utilities must have shape (n_candidates,), got {values.shape}.")
    largest = np.finfo(np.float64).max
    return np.nan_to_num(values, nan=-largest, posinf=largest, neginf=-largest)
