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
from scipy.special import ndtr

from skdpot.privacy.accounting import gaussian_epsilon
from skdpot.privacy.events import ApproximateDpEvent, PureDpEvent
from skdpot.privacy.noise import GaussianMechanism, LaplaceMechanism
from skdpot.releases._sums import Release

# Prices are raised by this share, which is far above the rounding errors here.
_MARGIN = 1e-10
# With a smaller epsilon, noise would span more of its grid than can be drawn.
_LEAST_EPSILON = 1e-4


def bernoulli(source: Any, probability: Fraction) -> bool:
    """Return True with an exact rational probability.

    It is compared with a uniform real number, whose bits are drawn as needed.
    """
    while True:
        whole, rest = divmod(probability * 2**62, 1)
        drawn = int(source.bits(62, ()))
        if drawn != whole:
            return drawn < whole
        probability = rest


class RepetitionCount:
    """The number of candidates: a truncated negative binomial distribution on 1, 2, 3, ...

    With the stopping probability g and the shape s, the ratio of the weights of k + 1 and k is ``(1
    - g) (k + s) / (k + 1)``. ``shape=1`` is the geometric distribution, and ``shape=0`` the
    logarithmic one.

    Parameters
    ----------
    mean : int
        The expected number, at least 1. The mean is this, or less by a share of 1e-8.
    shape : float, default=1.0
        From 0 to 1. The smaller, the less a selection costs, and the more often few candidates are
        tried, and sometimes very many.

    Attributes
    ----------
    shape : Fraction
        The given shape, exactly.
    stop : Fraction
        The probability g.
    mean : float
        The mean, rounded up.

    Examples
    --------
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.releases._choice import RepetitionCount
    >>> count = RepetitionCount(10)
    >>> count.stop
    Fraction(1, 10)
    >>> [count.draw(make_source(seed)) for seed in range(6)]
    [1, 1, 4, 1, 10, 10]
    """

    def __init__(self, mean: int, shape: float = 1.0) -> None:
        if not 0 <= shape <= 1:
            raise ValueError(f"shape must be from 0 to 1, got {shape!r}.")
        if not mean >= 1:
            raise ValueError(f"the expected number must be at least 1, got {mean!r}.")
        self.shape = Fraction(shape)
        self.stop = _stop_of_mean(int(mean), float(shape))
        self.mean = _mean(float(self.stop), float(shape)) * (1 + _MARGIN)

    def draw(self, source: Any) -> int:
        """Return a number with exactly this distribution; it must stay secret.

        Each k is reached with the probability that its weight gives, relative to the weights
        before. A run that drops out on the way starts again.
        """
        while True:
            count = 1
            while not bernoulli(source, self.stop):
                if not bernoulli(source, (count + self.shape) / (count + 1)):
                    break
                count += 1
            else:
                return count

    def log_density_ratio(self, rank: Any, other_rank: Any) -> Any:
        """Return the logarithm of how much likelier a run is the best at one rank than at another.

        Ranks are the probabilities that another run is better. The ratio is that of the density of
        the selected run with respect to a single run.
        """
        stop = float(self.stop)
        ratio = (stop + (1 - stop) * other_rank) / (stop + (1 - stop) * rank)
        return (1 + float(self.shape)) * np.log(ratio)

    def pure_price(self, epsilon: float) -> float:
        """Return the epsilon of the selection if every run is epsilon-private.

        It is ``epsilon + (1 + s) log((exp(epsilon) + g) / (1 + g exp(epsilon)))``, rounded up,
        which is below ``(2 + s) epsilon``; no smaller number will do for all epsilon-private runs
        (:ref:`proof-pure-runs`).
        """
        stop = float(self.stop)
        if epsilon < 1:
            share = (1 - stop) / (1 + stop * math.exp(epsilon))
            log_ratio = math.log1p(math.expm1(epsilon) * share)
        else:
            log_stop = math.log(stop)
            log_ratio = np.logaddexp(epsilon, log_stop) - np.logaddexp(0.0, log_stop + epsilon)
        return float(epsilon + (1 + float(self.shape)) * log_ratio) * (1 + _MARGIN)

    def gaussian_price(self, mu: float, delta: float) -> float:
        """Return the epsilon, at a delta, if every run is a Gaussian release.

        It is the epsilon of one run at ``delta / mean``, plus the largest change of the ranks of a
        run between neighbours; rounded up. The sensitivity over the deviation of a run's noise is
        mu (:ref:`proof-gaussian-runs`).
        """
        return (gaussian_epsilon(delta / self.mean, mu) + self._gaussian_ranks(mu)) * (1 + _MARGIN)

    def _gaussian_ranks(self, mu: float) -> float:
        """Return the largest log-ratio for ranks that the noise cannot separate further.

        The ranks for a threshold t are the tails beyond -t and beyond -t - mu. The ratio has one
        maximum in t. There the logarithmic derivative h of ``g / (1 - g) + ndtr(t)`` has the same
        value at t and at t + mu, because h rises until ``t + h(t) = 0`` and then falls.
        """
        if self.stop == 1:
            return 0.0
        floor = float(self.stop / (1 - self.stop))

        def slope(t: float) -> float:
            return math.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) / (floor + float(ndtr(t)))

        # Below this, the slope is 0 in double precision, or that of a count that never stops.
        peak = brentq(lambda t: t + slope(t), -37.0, 0.0)
        best = brentq(lambda t: slope(t + mu) - slope(t), peak - mu, peak)
        return float(self.log_density_ratio(ndtr(best), ndtr(best + mu)))


class ChoiceRelease(Release):
    """The release of the best of a random number of candidates, by scores with noise.

    Parameters
    ----------
    n_iter : int
        The expected number of candidates, at least 1.
    epsilon : float
        Privacy parameter of the whole selection, above 0.
    delta : float
        From 0 to less than 1. Noise is Laplace's, and Gaussian if that is less at this delta.
    sensitivity : callable
        A function of :mod:`skdpot.privacy.sensitivity` that returns, for ``relation=``, the largest
        difference of the integer score of any candidate between neighbours. The noise is for
        "replace_one".
    shape : float, default=1.0
        Shape of the distribution of the number of candidates, from 0 to 1.

    Attributes
    ----------
    count : RepetitionCount
        How many candidates are tried.
    mechanism : LaplaceMechanism or GaussianMechanism
        The mechanism of the noise of one score.
    standard_deviation : float
        Standard deviation of that noise.
    epsilon, delta : float
        Guarantee of the selection; delta is 0 with Laplace noise.
    event : PureDpEvent or ApproximateDpEvent
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
    >>> selection = ChoiceRelease(10, 1.0, 0.0, partial(block_score_sensitivity, n_units=1))
    >>> round(selection.standard_deviation, 2)
    3.72
    >>> source = make_source(1)
    >>> count = selection.draw_count(source)
    >>> best, score = selection.run(range(100, 100 + count), source)
    """

    def __init__(
        self,
        n_iter: int,
        epsilon: float,
        delta: float,
        sensitivity: Callable[..., int],
        *,
        shape: float = 1.0,
    ) -> None:
        if not epsilon >= _LEAST_EPSILON:
            raise ValueError(
                f"epsilon must be at least {_LEAST_EPSILON}, got {epsilon!r}: below that, nothing "
                "but noise would be selected."
            )
        self.count = RepetitionCount(n_iter, shape)
        self._sensitivity = sensitivity
        bound = self.sensitivity("replace_one")
        options: dict[str, Any] = {"granularity": 1.0, "on_grid": True}
        run_epsilon = _largest(self.count.pure_price, epsilon)
        self.mechanism: LaplaceMechanism | GaussianMechanism
        self.mechanism = LaplaceMechanism(run_epsilon, bound, **options)
        self.standard_deviation = math.sqrt(2) * self.mechanism.scale
        self.epsilon, self.delta = float(epsilon), 0.0
        if delta > 0:
            mu = _largest(lambda mu: self.count.gaussian_price(mu, delta), epsilon)
            normal = GaussianMechanism.from_noise_multiplier(1 / mu, bound, **options)
            if normal.scale < self.standard_deviation:
                self.mechanism, self.standard_deviation = normal, normal.scale
                self.delta = float(delta)

    @property
    def event(self) -> PureDpEvent | ApproximateDpEvent:
        if self.delta == 0:
            return PureDpEvent(self.epsilon)
        return ApproximateDpEvent(self.epsilon, self.delta)

    def sensitivity(self, relation: str) -> float:
        return self._sensitivity(relation=relation)

    def draw_count(self, source: Any) -> int:
        """Return the number of candidates to try, at least 1; it stays secret for ever."""
        return self.count.draw(source)

    def run(self, values: Any, source: Any) -> tuple[int, int]:
        """Add noise to all scores, and return the position of the best and its score.

        `values` are private integer scores, one for each candidate that was drawn, in the order of
        the draws. Among several best candidates the first is chosen. Only the candidate may be
        shown, and not its position.
        """
        scores = np.asarray(values, dtype=np.int64)
        noisy = scores + self.mechanism.noise(scores.shape, source)
        best = int(noisy.argmax())
        return best, int(noisy[best])


def _mean(stop: float, shape: float) -> float:
    """Return the mean of a truncated negative binomial distribution."""
    if stop == 1:
        return 1.0
    log_stop = math.log(stop)
    if shape < 1e-13:  # nearly the logarithmic distribution: the difference is below the margin
        return (1 - stop) / (stop * -log_stop)
    return shape * (1 - stop) / (stop * -math.expm1(shape * log_stop))


def _stop_of_mean(mean: int, shape: float) -> Fraction:
    """Return the smallest stopping probability on the grid with at most this mean."""
    if mean == 1 or shape == 1:
        return Fraction(1, mean)

    def excess(log_stop: float) -> float:
        return _mean(math.exp(log_stop), shape) - mean

    found = math.exp(brentq(excess, -2 * math.log(mean) - 10, -1e-9))
    # The probability to stop is a multiple of the inverse of this, unless it is a simple fraction.
    stop_units = 2**40
    return Fraction(math.ceil(found * stop_units), stop_units)


def _largest(price: Any, epsilon: float) -> float:
    """Return about the largest argument at which an increasing price is at most epsilon."""

    # Not the logarithm of the price: with a large delta, the price of much noise is 0.
    def excess(log_argument: float) -> float:
        return price(math.exp(log_argument)) / epsilon - 1.0

    low = high = math.log(epsilon)
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    argument = math.exp(brentq(excess, low, high))
    while price(argument) > epsilon:
        argument *= 1 - _MARGIN
    return argument
