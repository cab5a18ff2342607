"""The best of a random number of candidates, each tried once: the number, price and choice.

A run draws a candidate at random, and releases its score with noise. The best of K runs is kept,
and neither the others nor K are ever shown. The price is bounded, however large K becomes, if K has
the right distribution (:ref:`proof-search`).
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import brentq

from skdpot.privacy.events import PureDpEvent
from skdpot.privacy.noise import LaplaceMechanism, NoiseSource
from skdpot.releases._sums import Release


def bernoulli(source: NoiseSource, probability: Fraction) -> bool:
    """Return True with an exact rational probability.

    It is compared with a uniform real number, whose bits are drawn as needed.
    """
    while True:
        whole, rest = divmod(probability * 2**62, 1)
        drawn = int(source.bits(62, ()))
        if drawn != whole:
            return drawn < whole
        probability = rest


class ChoiceRelease(Release):
    """The release of the best of a random number of candidates, by scores with noise.

    Parameters
    ----------
    n_iter : int
        The expected number of candidates, at least 1. The number follows the geometric
        distribution.
    epsilon : float
        Privacy parameter of the whole selection, at least 1e-4.
    sensitivity : callable
        A function of :mod:`skdpot.privacy.sensitivity` that returns, for ``relation=``, the largest
        difference of the integer score of any candidate between neighbours. The noise is for
        "replace_one".

    Attributes
    ----------
    stop : Fraction
        The probability that a candidate is the last one.
    mechanism : LaplaceMechanism
        The mechanism of the noise of one score.
    standard_deviation : float
        Standard deviation of that noise.
    epsilon : float
        Guarantee of the selection.
    event : PureDpEvent
        Event of the whole selection, charged once.

    See Also
    --------
    skdpot.PrivateSearchCV : The search that it serves.

    Notes
    -----
    The guarantee is for K independent runs of the same kind. Every candidate is drawn from the same
    distribution, and its score depends only on the candidate and the data, not on earlier
    candidates. One score more is released for each candidate, and only the best is ever shown.

    References
    ----------
    J. Liu, K. Talwar, "Private selection from private candidates", STOC 2019. :arxiv:`1811.07971`

    N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022.
    :arxiv:`2110.03620`

    Examples
    --------
    >>> from functools import partial
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.privacy.sensitivity import block_score_sensitivity
    >>> from skdpot.releases import ChoiceRelease
    >>> selection = ChoiceRelease(10, 1.0, partial(block_score_sensitivity, n_units=1))
    >>> round(selection.standard_deviation, 2)
    3.72
    >>> source = make_source(1)
    >>> count = selection.draw_count(source)
    >>> best, score = selection.run(range(100, 100 + count), source)
    """

    def __init__(self, n_iter: int, epsilon: float, sensitivity: Callable[..., int]) -> None:
        # With a smaller epsilon, noise would span more of its grid than can be drawn.
        min_epsilon = 1e-4
        if not epsilon >= min_epsilon:
            raise ValueError(
                f"epsilon must be at least {min_epsilon}, got {epsilon!r}: below that, nothing "
                "but noise would be selected."
            )
        self.stop, self.epsilon = Fraction(1, int(n_iter)), float(epsilon)
        self._sensitivity = sensitivity
        bound = self.sensitivity("replace_one")
        # The price of a selection is between that of one run and three of them.
        share = brentq(lambda share: self.price(share * epsilon) / epsilon - 1.0, 0.25, 1.0)
        run_epsilon = share * epsilon
        # The root is a double near the exact one.
        while self.price(run_epsilon) > epsilon:
            run_epsilon *= 1 - 1e-10
        self.mechanism = LaplaceMechanism(run_epsilon, bound, granularity=1.0, on_grid=True)
        self.standard_deviation = math.sqrt(2) * self.mechanism.scale

    def price(self, epsilon: float) -> float:
        """Return the epsilon of the selection if every run is epsilon-private.

        It is ``epsilon + 2 log((exp(epsilon) + g) / (1 + g exp(epsilon)))`` with the stopping
        probability g, rounded up, which is below ``3 epsilon``; no smaller number will do for all
        epsilon-private runs (:ref:`proof-pure-runs`).
        """
        stop = float(self.stop)
        if epsilon < 1:
            share = (1 - stop) / (1 + stop * math.exp(epsilon))
            log_ratio = math.log1p(math.expm1(epsilon) * share)
        else:
            log_stop = math.log(stop)
            log_ratio = np.logaddexp(epsilon, log_stop) - np.logaddexp(0.0, log_stop + epsilon)
        # Raised by a share that is far above the rounding errors here.
        return float(epsilon + 2 * log_ratio) * (1 + 1e-10)

    @property
    def event(self) -> PureDpEvent:
        return PureDpEvent(self.epsilon)

    def sensitivity(self, relation: str) -> float:
        return self._sensitivity(relation=relation)

    def draw_count(self, source: NoiseSource) -> int:
        """Return the number of candidates to try, at least 1; it stays secret for ever."""
        count = 1
        while not bernoulli(source, self.stop):
            count += 1
        return count

    def run(self, values: Any, source: NoiseSource) -> tuple[int, int]:
        """Add noise to all scores, and return the position of the best and its score.

        `values` are private integer scores, one for each candidate that was drawn, in the order of
        the draws. Among several best candidates the first is chosen. Only the candidate may be
        shown, and not its position.
        """
        scores = np.asarray(values, dtype=np.int64)
        noisy = scores + self.mechanism.noise(scores.shape, source)
        best = int(noisy.argmax())
        return best, int(noisy[best])
