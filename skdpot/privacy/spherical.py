"""Private unit vectors: a mechanism that prefers a cap of the sphere around its input.

Its density with respect to the uniform distribution is c outside the cap
``(1 - <x, y>) / 2 <= threshold`` around x and ``exp(epsilon) c`` inside. :class:`CapRejection`
draws from it by rejection, privately down to the last bit; :class:`CapConstruction` builds the
output from the input, fast for every epsilon and private in real arithmetic only
(:ref:`proof-unit-vectors`).
"""

import math
from typing import Any

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

# Maximum mean number of Gaussian variables for one sample by rejection: where there is a choice of
# the method (a second or less), and where there is none (hours).
_COMFORTABLE_DRAWS = 1 << 22
_MOST_DRAWS = 1 << 36
# For a larger epsilon, 63 bits are too few to accept with probability exp(-epsilon).
_LARGEST_EPSILON = 30.0
# A batch holds at least this many Gaussian variables, since overheads prevail below, and at most
# this many proposals beyond one.
_SMALLEST_BATCH = 1 << 6
_LARGEST_BATCH = 1 << 20
# The direction of a proposal with a smaller mean square is too inexact.
_SMALLEST_MEAN_SQUARE = 2.0**-8
# A smaller cap is a flat disc up to rounding, and quantiles of its beta distribution underflow.
_SMALLEST_CURVED_CAP = 1e-12
# Relative rounding error of public numbers that the proof (:ref:`proof-unit-vectors`) allows.
_ROUNDING = 2.0**-30


class CapRejection:
    """Draw uniform vectors, which do not depend on the input, until one is accepted.

    A proposal is accepted inside the cap around the input, and elsewhere with probability `coin`.
    The input only decides which proposal is released, and enters no arithmetic on its coordinates.
    So the output is private in every bit. ``coin`` is larger than ``exp(-epsilon)`` by what
    rounding can change in the probability that a proposal is accepted (:ref:`proof-unit-vectors`).

    Parameters
    ----------
    n_features : int
        Number of coordinates d, at least 2.
    epsilon : float
        Privacy parameter of one draw.
    threshold : float
        Public; the cap is ``(1 - <x, y>) / 2 <= threshold``.

    Attributes
    ----------
    epsilon : float
        The epsilon of one draw.
    coin : int
        A proposal outside the cap is accepted with probability ``coin / 2**63``.
    n_proposals : float
        Mean number of proposals per output.
    doubles_per_user : int
        Memory of a batch of proposals per user, in doubles.

    Raises
    ------
    ValueError
        If epsilon is above 30, or a sample would take hours.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.random import make_source
    >>> from skdpot.privacy.spherical import CapRejection
    >>> mechanism = CapRejection(3, epsilon=2.0, threshold=0.25)
    >>> round(mechanism.n_proposals, 3)
    2.845
    >>> mechanism.draw(np.eye(3)[:1], [make_source(0)], n_samples=2).shape
    (1, 2, 3)
    """

    def __init__(self, n_features: int, epsilon: float, threshold: float) -> None:
        self.n_features = n_features
        self.epsilon = float(epsilon)
        self.n_proposals = mean_proposals(n_features, epsilon, threshold)
        if self.n_proposals * n_features > _MOST_DRAWS or epsilon > _LARGEST_EPSILON:
            raise ValueError(
                f"rejection is out of reach at epsilon={epsilon:g} with n_features={n_features}: "
                f"it serves epsilon <= {_LARGEST_EPSILON:g}, and would take "
                f"{self.n_proposals:.1e} proposals per sample on average. Choose a smaller "
                'epsilon, or the method "direct" (and read what it does not protect).'
            )
        self.squared_radius = 4.0 * threshold
        self.coin = _outside_coin(n_features, epsilon, threshold)
        wanted = max(math.ceil(self.n_proposals / 4), 1 + _SMALLEST_BATCH // n_features)
        self._batch = min(wanted, 1 + _LARGEST_BATCH // n_features)
        self.doubles_per_user = 6 * self._batch * n_features

    def draw(self, points: np.ndarray, sources: Any, n_samples: int) -> np.ndarray:
        """Return `n_samples` private unit vectors for each point, which is a user's.

        Points are unit vectors to within 1e-6. `sources` has the source of each user, or is one for
        all. A user's first vectors do not depend on `n_samples`.
        """
        centres = _normalise(points)
        drawn = np.empty((len(centres), n_samples, self.n_features))
        for position in range(n_samples):
            waiting = np.arange(len(centres))
            while waiting.size:
                proposals, accepted = self._propose(
                    centres[waiting], [sources[user] for user in waiting]
                )
                served = accepted.any(axis=1)
                first = accepted[served].argmax(axis=1)
                drawn[waiting[served], position] = proposals[served, first]
                waiting = waiting[~served]
        return drawn

    def _propose(self, centres: np.ndarray, sources: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch of proposals per user, and which of them the user accepts."""
        d = self.n_features
        bits = np.stack([source.bits(63, (self._batch, 2 * d + 1)) for source in sources])
        normals = _precise_normals(bits[..., :d], bits[..., d:-1])
        squares = np.einsum("...i,...i", normals, normals)
        long_enough = squares >= d * _SMALLEST_MEAN_SQUARE
        squares[~long_enough] = 1.0
        proposals = normals / np.sqrt(squares)[..., None]
        offsets = proposals - centres[:, None]
        inside = np.einsum("...i,...i", offsets, offsets) <= self.squared_radius
        return proposals, long_enough & (inside | (bits[..., -1] < self.coin))


class CapConstruction:
    """Build the output from the input: its distance by inversion, and a random direction.

    Its time does not depend on epsilon. *In real arithmetic* its distribution is that of
    :class:`CapRejection`. In floating point the last bits of the output are computed from the
    input's coordinates, and nothing is proven about what they reveal.

    Parameters
    ----------
    n_features : int
        Number of coordinates d, at least 2.
    epsilon : float
        Privacy parameter of one draw.
    threshold : float
        Public; the cap is ``(1 - <x, y>) / 2 <= threshold``.

    Attributes
    ----------
    epsilon : float
        The epsilon of one draw.
    doubles_per_user : int
        Memory of a draw per user, in doubles.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.random import make_source
    >>> from skdpot.privacy.spherical import CapConstruction
    >>> mechanism = CapConstruction(3, epsilon=2.0, threshold=0.25)
    >>> mechanism.draw(np.eye(3)[:1], [make_source(0)], n_samples=2).shape
    (1, 2, 3)
    """

    def __init__(self, n_features: int, epsilon: float, threshold: float) -> None:
        self.n_features = n_features
        self.epsilon = float(epsilon)
        self.doubles_per_user = 6 * n_features
        self._shape = (n_features - 1) / 2
        self._threshold = threshold
        self._cap = float(betainc(self._shape, self._shape, threshold))
        self._outside = (1.0 - self._cap) / (1.0 + math.expm1(epsilon) * self._cap)

    def draw(self, points: np.ndarray, sources: Any, n_samples: int) -> np.ndarray:
        """Return unit vectors, private in real arithmetic; else as in `CapRejection.draw`."""
        centres = _normalise(points)[:, None]
        shape = (n_samples, self.n_features + 2)
        uniforms = np.stack([source.uniform(shape) for source in sources])
        z = self._distances(uniforms[..., 0], uniforms[..., 1])[..., None]
        directions = ndtri(uniforms[..., 2:])
        for _ in range(2):  # once more, since the first difference may have cancelled
            along = np.einsum("...i,...i", directions, centres)[..., None]
            directions = _normalise(directions - along * centres)
        return _normalise((1.0 - 2.0 * z) * centres + 2.0 * np.sqrt(z * (1.0 - z)) * directions)

    def _distances(self, side: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Return ``(1 - <x, y>) / 2`` by inversion, inside the cap or beyond it."""
        if self._threshold * self._shape < _SMALLEST_CURVED_CAP:
            inside = self._threshold * position ** (1.0 / self._shape)
        else:
            inside = betaincinv(self._shape, self._shape, position * self._cap)
        # By symmetry a quantile of the far side is one minus a quantile of the near side.
        beyond = 1.0 - betaincinv(self._shape, self._shape, position * (1.0 - self._cap))
        return np.where(side < self._outside, beyond, inside)


def mean_proposals(n_features: int, epsilon: float, threshold: float) -> float:
    """Return the mean number of uniform proposals for one accepted output.

    It is the inverse of the probability of acceptance, which is the same for all inputs. The cap is
    ``(1 - <x, y>) / 2 <= threshold``, in at least 2 dimensions.

    Examples
    --------
    >>> import math
    >>> from skdpot.privacy.spherical import mean_proposals
    >>> round(mean_proposals(3, epsilon=math.log(3), threshold=0.5), 9)
    1.5
    """
    shape = (n_features - 1) / 2
    cap, coin = float(betainc(shape, shape, threshold)), math.exp(-epsilon)
    return 1.0 / (coin + (1.0 - coin) * cap)


def rejection_is_affordable(n_features: int, epsilon: float, threshold: float) -> bool:
    """Tell from public quantities whether :class:`CapRejection` needs about a second at most.

    That is if one output takes at most 2**22 Gaussian variables on average, and epsilon <= 30.

    Examples
    --------
    >>> from skdpot.privacy.spherical import rejection_is_affordable
    >>> rejection_is_affordable(3, epsilon=2.0, threshold=0.25)
    True
    """
    draws = mean_proposals(n_features, epsilon, threshold) * n_features
    return draws <= _COMFORTABLE_DRAWS and epsilon <= _LARGEST_EPSILON


def _outside_coin(n_features: int, epsilon: float, threshold: float) -> int:
    """Return the probability of acceptance outside the cap, in units of 2**-63.

    It bounds ``exp(-epsilon)`` times the ratio of two inputs' probabilities of acceptance.
    """
    shape = (n_features - 1) / 2
    radius, blur = 2.0 * math.sqrt(threshold), 2.0**-40 + n_features * 2.0**-50
    missed = n_features * 2.0**-72
    squares = np.clip([radius - blur, radius + blur], 0.0, 2.0) ** 2
    smallest, largest = betainc(shape, shape, squares / 4.0)
    coin = math.exp(-epsilon)
    most = coin + (1.0 - coin) * min(float(largest) + missed, 1.0)
    least = coin + (1.0 - coin) * max(float(smallest) - missed, 0.0)
    return math.ceil(min(coin * (most / least) * (1.0 + _ROUNDING), 1.0) * 2.0**63)


def _precise_normals(words: np.ndarray, finer_words: np.ndarray) -> np.ndarray:
    """Return standard Gaussian doubles from 126 bits, accurate in the tails too."""
    tails = ((words >> 1) + (finer_words + 0.5) * 2.0**-63) * 2.0**-63
    return ndtri(tails) * (1 - 2 * (words & 1))


def _normalise(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt(np.einsum("...i,...i", vectors, vectors))[..., None]
