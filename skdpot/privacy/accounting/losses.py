"""Privacy losses of pairs of distributions that dominate the outputs of two neighbours.

The loss of an output is ``log(P(output) / Q(output))``. Its distributions under P and under Q are
all that matters about a pair: for every set of losses we only ask for the two probabilities.
Between the points of a grid, losses are moved to the two ends so that both probabilities are kept.
The resulting discrete pair dominates the pair itself [1]_, and its price is an upper bound.

References
----------
.. [1] V. Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Connect the dots: tighter
   discrete approximations of privacy loss distributions", PoPETs 2022.
   :doi:`10.56553/popets-2022-0122`
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

# Maximum number of grid points on either side of the loss 0.
_MOST_POINTS = 2**20


@dataclass(frozen=True)
class GridLosses:
    """Probabilities under P of losses that are multiples of a step, or infinite.

    Attributes
    ----------
    first : int
        The lowest loss is ``first * step``.
    mass : ndarray of shape (n_losses,)
        The probability of each multiple of the step from there on.
    infinite : float
        The probability of an infinite loss.
    step : float
        The width of the grid.
    """

    first: int
    mass: np.ndarray
    infinite: float
    step: float


class Pair(ABC):
    """Two distributions whose losses have known probabilities in intervals."""

    @abstractmethod
    def loss_range(self, far: float) -> tuple[float, float]:
        """Return the lowest and the highest loss to consider; noise may be unbounded.

        `far` is the number of standard deviations of Gaussian noise to look at.
        """

    @property
    @abstractmethod
    def spread(self) -> float:
        """Return about the standard deviation of the loss; it grows with the pair's distance."""

    @abstractmethod
    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log probabilities, under P and Q, of losses between increasing edges.

        An interval contains its lower edge and not its upper one, unless that is infinite.
        """

    def on_grid(self, step: float, far: float) -> GridLosses:
        """Return a pair on a grid of width `step` that dominates this one.

        Outputs beyond `far` standard deviations of Gaussian noise count as infinite loss.
        """
        lowest, highest = self.loss_range(far)
        # There is always an edge at 0, where a pair may have a kink. A grid of the maximum size
        # ends early, and higher losses are infinite.
        first = max(min(math.floor(lowest / step), -1), -_MOST_POINTS)
        last = min(max(math.ceil(highest / step), 1), _MOST_POINTS)
        points = np.arange(first, last + 1) * step
        log_p, log_q = self.log_masses(np.concatenate([[-np.inf], points, [np.inf]]))
        with np.errstate(invalid="ignore"):
            log_ratio = np.nan_to_num(log_q[1:-1] + points[:-1] - log_p[1:-1])
        share_up = np.clip(np.expm1(log_ratio) / np.expm1(-step), 0, 1)
        inside = np.exp(log_p[1:-1])
        mass = np.zeros(len(points))
        mass[:-1] += inside * (1 - share_up)
        mass[1:] += inside * share_up
        mass[0] += math.exp(log_p[0])
        # Mass above the grid stays at its end as far as Q allows; the rest has infinite loss.
        above = math.exp(log_p[-1])
        kept = min(math.exp(min(log_q[-1] + points[-1], 0.0)), above)
        mass[-1] += kept
        return GridLosses(first, mass, above - kept, step)


@dataclass(frozen=True)
class GaussianPair(Pair):
    """The pair N(mu, 1) and N(0, 1)."""

    mu: float

    def loss_range(self, far: float) -> tuple[float, float]:
        middle = self.mu**2 / 2
        return middle - far * self.mu, middle + far * self.mu

    @property
    def spread(self) -> float:
        return self.mu

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        standard = edges / self.mu
        return (
            _log_normal_masses(standard - self.mu / 2),
            _log_normal_masses(standard + self.mu / 2),
        )


def _log_normal_masses(edges: np.ndarray) -> np.ndarray:
    """Return the logarithms of standard Gaussian probabilities between edges."""
    below, above = edges[:-1], edges[1:]
    # The upper half is mirrored, where logarithms have all their digits.
    upper = below > 0
    low, high = np.where(upper, -above, below), np.where(upper, -below, above)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_high = log_ndtr(high)
        log_mass = log_high + np.log(-np.expm1(log_ndtr(low) - log_high))
    return np.where(high > low, log_mass, -np.inf)


@dataclass(frozen=True)
class _BoundedPair(Pair):
    """Base of pairs with losses from ``-epsilon`` to ``epsilon``."""

    epsilon: float

    def loss_range(self, far: float) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    @property
    def spread(self) -> float:
        return self.epsilon


class RandomisedResponsePair(_BoundedPair):
    """Randomised response: the truth with odds of ``exp(epsilon)``, for both truths."""

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_true, log_false = -np.logaddexp(0, [-self.epsilon, self.epsilon])
        high, low = _contains(edges, self.epsilon), _contains(edges, -self.epsilon)
        log_p = np.where(high, log_true, np.where(low, log_false, -np.inf))
        log_q = np.where(high, log_false, np.where(low, log_true, -np.inf))
        return log_p, log_q


class LaplacePair(_BoundedPair):
    """Laplace noise of scale ``1 / epsilon`` around 0 and around 1."""

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        epsilon = self.epsilon
        inside = np.clip(edges, -epsilon, epsilon)
        below, above = inside[:-1], inside[1:]
        with np.errstate(divide="ignore"):
            log_width = np.log(-np.expm1((below - above) / 2) / 2)
        at_top, at_bottom = _contains(edges, epsilon), _contains(edges, -epsilon)
        log_p = log_width + (above - epsilon) / 2
        log_q = log_width - (below + epsilon) / 2
        often, rarely = -math.log(2), -math.log(2) - epsilon
        log_p = np.logaddexp(log_p, _log_atoms(at_top, often, at_bottom, rarely))
        log_q = np.logaddexp(log_q, _log_atoms(at_top, rarely, at_bottom, often))
        return log_p, log_q


def _log_atoms(
    at_top: np.ndarray, log_top: float, at_bottom: np.ndarray, log_bottom: float
) -> np.ndarray:
    return np.logaddexp(
        np.where(at_top, log_top, -np.inf), np.where(at_bottom, log_bottom, -np.inf)
    )


def _contains(edges: np.ndarray, loss: float) -> np.ndarray:
    return (edges[:-1] <= loss) & (loss < edges[1:])


@dataclass(frozen=True)
class SampledPair(Pair):
    """The pair that remains of a symmetric pair (B, A) if a record is sampled with probability q.

    Parameters
    ----------
    rate : float
        The probability q, above 0 and below 1.
    base : Pair
        With the record in the sample, and without it. Its losses are distributed alike for (A, B).
    """

    rate: float
    base: Pair

    def loss_range(self, far: float) -> tuple[float, float]:
        lowest, highest = self.base.loss_range(far)
        return self._sampled(lowest), self._sampled(highest)

    @property
    def spread(self) -> float:
        # As if the loss of the base were Gaussian: from the chi-square divergence.
        squared = self.base.spread**2
        log_chi_square = squared + math.log(-math.expm1(-squared))
        return math.sqrt(float(np.logaddexp(0, 2 * math.log(self.rate) + log_chi_square)))

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log probabilities; with the record, the pair is ``(1 - q) A + q B``, A."""
        log_b, log_a = self.base.log_masses(self._unsampled(edges))
        log_mixture = np.logaddexp(math.log1p(-self.rate) + log_a, math.log(self.rate) + log_b)
        return log_mixture, log_a

    def _sampled(self, loss: float) -> float:
        return float(np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + loss))

    def _unsampled(self, losses: np.ndarray) -> np.ndarray:
        """Return the losses of the base that lead to these, minus infinity if there are none."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Near zero, and where exp would overflow.
            near = np.log1p(np.expm1(losses) / self.rate)
            far = losses + np.log(-np.expm1(math.log1p(-self.rate) - losses)) - math.log(self.rate)
        found = np.where(losses < 1, near, far)
        return np.where(losses <= math.log1p(-self.rate), -np.inf, found)


@dataclass(frozen=True)
class CentredPair(Pair):
    """``(1 - q) N(0, 1) + q N(radius, 1)``, and the same with ``-radius``: a replaced record.

    Proof that it dominates: :ref:`centred-sums`.
    """

    rate: float
    radius: float

    def loss_range(self, far: float) -> tuple[float, float]:
        shift = np.array([1.0, -1.0]) * self.radius * (self.radius + far) - self.radius**2 / 2
        ends = np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + shift)
        highest = float(ends[0] - ends[1])
        return -highest, highest

    @property
    def spread(self) -> float:
        # That of a record which is removed: up to half of it, on a grid that is finer for it.
        return SampledPair(self.rate, GaussianPair(self.radius)).spread

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z = self._outputs(edges)
        without = math.log1p(-self.rate) + _log_normal_masses(z)
        log_p, log_q = (
            np.logaddexp(without, math.log(self.rate) + _log_normal_masses(z - centre))
            for centre in (self.radius, -self.radius)
        )
        return log_p, log_q

    def _outputs(self, losses: np.ndarray) -> np.ndarray:
        """Return the outputs with these losses, which are increasing and odd in the output."""
        half = np.abs(losses) / 2
        with np.errstate(divide="ignore"):
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        log_odds = math.log1p(-self.rate) - math.log(self.rate)
        log_x = log_odds + self.radius**2 / 2 + log_sinh
        # In logarithms where x would overflow; there asinh(x) is log(2 x).
        asinh = np.where(log_x < 20, np.arcsinh(np.exp(np.minimum(log_x, 20))), log_x + math.log(2))
        return np.sign(losses) * (half + asinh) / self.radius


@dataclass(frozen=True)
class ReversedPair(Pair):
    """A pair with its two distributions swapped."""

    pair: Pair

    def loss_range(self, far: float) -> tuple[float, float]:
        lowest, highest = self.pair.loss_range(far)
        return -highest, -lowest

    @property
    def spread(self) -> float:
        return self.pair.spread

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_p, log_q = self.pair.log_masses(-edges[::-1])
        return log_q[::-1], log_p[::-1]


@dataclass(frozen=True)
class SymmetricPair(Pair):
    """The positive losses of a pair and their mirror image; the rest of the mass has loss 0."""

    pair: Pair

    def loss_range(self, far: float) -> tuple[float, float]:
        highest = self.pair.loss_range(far)[1]
        return -highest, highest

    @property
    def spread(self) -> float:
        return self.pair.spread

    def log_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        high_p, high_q = self.pair.log_masses(np.maximum(edges, 0))
        low_q, low_p = (log[::-1] for log in self.pair.log_masses(np.maximum(-edges[::-1], 0)))
        log_p, log_q = np.logaddexp(high_p, low_p), np.logaddexp(high_q, low_q)
        positive_p, positive_q = self.pair.log_masses(np.array([0.0, np.inf]))
        rest = 1 - math.exp(positive_p[0]) - math.exp(positive_q[0])
        log_rest = np.where(_contains(edges, 0.0), math.log(max(rest, 1e-300)), -np.inf)
        return np.logaddexp(log_p, log_rest), np.logaddexp(log_q, log_rest)
