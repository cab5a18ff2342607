"""Choices: scores of blocks of records, draws within bounds, and points on a sphere."""

import decimal
import math
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import betainc, betaincinv, ndtri

from skdpot.privacy.checks import check_positive, private_doubles
from skdpot.privacy.events import PureDpEvent
from skdpot.privacy.noise import NoiseSource

# Scores whose sum changes by at most a public amount with one record.
#
# Records are assigned to blocks at random, independent of their values. The score of a block is
# computed only from its own records, and moved to a public range. A replaced record changes the
# score of its own block only (:ref:`proof-search`).

# The score of a block is an integer in units of the range divided by this. One record therefore
# changes the sum over blocks by at most this number, in exact arithmetic.
SCORE_UNITS = 2**20


def choose_n_blocks(n_blocks: int | None, cv: Any, n_records: int, noise: float) -> int:
    """Return the number of blocks, from public facts; `noise` is that of a single block.

    By default, there are enough that the noise of a score is 1 % of its range, as long as a block
    has at least 50 records. `cv` divides a block, as in scikit-learn.

    Examples
    --------
    >>> from skdpot.privacy.choices import choose_n_blocks
    >>> [choose_n_blocks(None, None, n_records, 1.8) for n_records in (10, 120, 1000, 100_000)]
    [1, 2, 20, 180]
    """
    if not (cv is None or isinstance(cv, Integral) or hasattr(cv, "split")):
        raise ValueError("cv must be an integer or splitter: a block has no other positions.")
    # None is 5 folds, the default of cross_validate; a splitter needs a record for each part.
    fewest = int(cv) if isinstance(cv, Integral) else 5 if cv is None else 2
    if n_blocks is None:
        n_blocks = max(1, min(math.ceil(noise / 0.01), n_records // max(50, fewest)))
    if n_records < n_blocks * fewest:
        raise ValueError(
            f"n_blocks={n_blocks} with at least {fewest} records each, to be divided by cv, "
            f"cannot be made of n_samples={n_records}. Choose fewer blocks, or a smaller cv."
        )
    return int(n_blocks)


def random_blocks(source: NoiseSource, n_records: int, n_blocks: int) -> list[np.ndarray]:
    """Return the records of each block, drawn at random and independent of their values.

    Every position is in one of the blocks, whose sizes differ by one.

    Examples
    --------
    >>> from skdpot.privacy.choices import random_blocks
    >>> from skdpot.privacy.noise import make_source
    >>> [block.tolist() for block in random_blocks(make_source(0), 7, 3)]
    [[0, 3, 5], [1, 2], [6, 4]]
    """
    return np.array_split(np.argsort(source.bits(63, n_records), kind="stable"), n_blocks)


def in_units(score: Any, low: float, high: float) -> int:
    """Return a block's score as an integer number of units of the range, for any object.

    The range is public and finite. NaN and other objects count as the lowest score; numbers out of
    the range are clipped. No score causes an error or a warning, which would depend on the records.

    Examples
    --------
    >>> from skdpot.privacy.choices import in_units
    >>> [in_units(score, 0.0, 1.0) / 2**20 for score in (0.25, 7.0, float("nan"), "good")]
    [0.25, 1.0, 0.0, 0.0]
    """
    try:
        number = float(score)
    except Exception:  # any error of a foreign object when it is asked for a number
        return 0
    # NaN, too.
    if not number > low:
        return 0
    if number >= high:
        return SCORE_UNITS
    # Halved, so that the difference of two finite numbers cannot overflow.
    share = (number / 2 - low / 2) / (high / 2 - low / 2)
    return min(max(round(share * SCORE_UNITS), 0), SCORE_UNITS)


# Discrete sampling from probability vectors within public bounds.

# Weights are integers with this sum. A draw is a uniform integer below it.
WEIGHT_BITS = 62
TOTAL_WEIGHT = 1 << WEIGHT_BITS
_EXP_BITS = 128


@lru_cache
def scaled_exp(epsilon: float) -> int:
    """Return an integer just below ``exp(epsilon) * 2**128``, by arithmetic with 400 digits."""
    context = decimal.Context(prec=400, rounding=decimal.ROUND_FLOOR)
    # What is charged is the decimal, which may be below the double.
    smaller = min(decimal.Decimal(float(epsilon)), decimal.Decimal(repr(float(epsilon))))
    exact = context.exp(smaller)
    return int(context.multiply(exact, decimal.Decimal(1 << _EXP_BITS))) - 1


def exceeds_exp(numerator: int, denominator: int, epsilon: float) -> bool:
    """Tell whether ``numerator / denominator > exp(epsilon)``, rounded to the safe side."""
    return (int(numerator) << _EXP_BITS) > scaled_exp(epsilon) * int(denominator)


class BoundedRatioMechanism:
    """Draw one of m outputs from probabilities between s and exp(epsilon) s.

    Any two probability vectors between a *public* base measure s and ``exp(epsilon) s`` differ by a
    factor of at most ``exp(epsilon)`` everywhere, so that one draw is epsilon-differentially
    private under local privacy (any two inputs are neighbours; the unit is a user). For this to
    hold on a computer, probabilities are integers N_j with sum ``2**62`` and ``L_j <= N_j <=
    floor(exp(epsilon) L_j)``, where L_j is computed from s alone, and the draw is an exact
    comparison of integers (:ref:`proof-integer-weights`).

    Parameters
    ----------
    base_measure : array-like of shape (n_outputs,)
        Public; non-negative, ``sum(s) <= 1 <= exp(epsilon) sum(s)``.
    epsilon : float
        Privacy parameter of one draw.

    Attributes
    ----------
    epsilon : float
        The epsilon of one draw.
    event : PureDpEvent
        The event of one draw, to be charged to a ledger.
    smallest_, largest_ : ndarray of int64, shape (n_outputs,)
        The bounds on the integer weights.

    Raises
    ------
    ValueError
        If the base measure is no vector of finite, non-negative numbers, its sum is out of its
        range, epsilon is not above 0 and finite, or so small that no integer weights exist.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.choices import BoundedRatioMechanism
    >>> mechanism = BoundedRatioMechanism([0.25, 0.25], np.log(3))
    >>> weights = mechanism.integer_weights([[0.75, 0.25], [0.25, 0.75]])
    >>> bool((weights.max(axis=0) <= 3 * weights.min(axis=0)).all())
    True
    """

    def __init__(self, base_measure: Any, epsilon: float) -> None:
        base = np.asarray(base_measure, dtype=np.float64)
        if not (base.ndim == 1 and base.size and np.isfinite(base).all() and (base >= 0).all()):
            raise ValueError("base_measure must be a vector, not empty, finite and non-negative.")
        epsilon = check_positive("epsilon", epsilon)
        ratio = scaled_exp(epsilon)
        # Rounded up, so that exp(epsilon) times it reaches exp(epsilon) s for the smallest s, too.
        smallest = [math.ceil(s * TOTAL_WEIGHT) if s > 0 else 0 for s in base]
        smallest = _fit_total(smallest, ratio)
        self.epsilon = float(epsilon)
        self.smallest_ = np.array(smallest, dtype=np.int64)
        self._free_weight = TOTAL_WEIGHT - sum(smallest)
        self.largest_ = np.array(
            [min(weight * ratio >> _EXP_BITS, TOTAL_WEIGHT) for weight in smallest], dtype=np.int64
        )

    @property
    def event(self) -> PureDpEvent:
        """Return the event of one draw."""
        return PureDpEvent(self.epsilon)

    def integer_weights(self, probabilities: Any) -> np.ndarray:
        """Return the integer weights from which outputs are drawn.

        Parameters
        ----------
        probabilities : array-like of shape (n_users, n_outputs)
            Probability vectors between the bounds, up to rounding. Other vectors are moved inside,
            silently, since an error or a warning would depend on private values.

        Returns
        -------
        ndarray of int64, shape (n_users, n_outputs)
            Not private. Rows sum to exactly ``2**62``.
        """
        # A copy, and changed in place: to move all users' numbers through memory takes longest.
        inside = private_doubles(probabilities)
        np.fmin(np.fmax(inside, 0.0, out=inside), 1.0, out=inside)
        inside *= TOTAL_WEIGHT
        wanted = np.maximum(inside.astype(np.int64), self.smallest_)
        np.minimum(wanted, self.largest_, out=wanted)
        # Filled up from the smallest weights, so that no row exceeds the total, whatever the input
        # is.
        wanted -= self.smallest_
        weights = _fill(wanted, self._free_weight)
        weights += self.smallest_
        missing = TOTAL_WEIGHT - weights.sum(axis=1, keepdims=True)
        weights += _fill(self.largest_ - weights, missing)
        return weights

    @staticmethod
    def draw(weights: np.ndarray, integers: np.ndarray) -> np.ndarray:
        """Return the outputs that uniform integers select.

        Parameters
        ----------
        weights : ndarray of int64, shape (n_users, n_outputs)
            From :meth:`integer_weights`.
        integers : ndarray of int64, shape (n_users, n_samples)
            Uniform below ``2**62``.

        Returns
        -------
        ndarray of intp, shape (n_users, n_samples)
            Output j where the integer is at least the sum of the weights before j, and less than
            that plus its own. An output of weight 0 is never selected.
        """
        ends = np.cumsum(weights, axis=1)
        users, n_outputs = np.arange(len(ends))[:, None], ends.shape[1]
        # Bisection for all users at a time: the last place whose sum before it is small enough.
        outputs = np.zeros(np.shape(integers), dtype=np.intp)
        for power in range(n_outputs.bit_length() - 1, -1, -1):
            further = outputs + (1 << power)
            # The same comparisons for all weights: their number depends on the outputs alone.
            before = ends[users, np.minimum(further, n_outputs) - 1]
            np.copyto(outputs, further, where=(further <= n_outputs) & (before <= integers))
        return outputs


def _fill(room: np.ndarray, amount: int | np.ndarray) -> np.ndarray:
    """Fill `room` in place from the left until a row holds `amount` (at most 2**62); return it."""
    np.minimum(room, amount, out=room)
    ends = np.cumsum(room, axis=1)
    # The first sum beyond int64 is negative: it and those after it are larger than any amount.
    wrong = np.flatnonzero(ends.min(axis=1) < 0)
    is_beyond = np.logical_or.accumulate(ends[wrong] < 0, axis=1)
    ends[wrong] = np.where(is_beyond, TOTAL_WEIGHT, ends[wrong])
    np.minimum(ends, amount, out=ends)
    room[:, 0] = ends[:, 0]
    np.subtract(ends[:, 1:], ends[:, :-1], out=room[:, 1:])
    return room


def _fit_total(smallest: list[int], ratio: int) -> list[int]:
    """Adjust the smallest weights until integer vectors of sum 2**62 lie between the bounds."""
    excess = max(sum(smallest) - TOTAL_WEIGHT, 0)
    lacking = max(TOTAL_WEIGHT - _scaled_sum(smallest, ratio), 0)
    # If rounding lifted the sum above the total, the heaviest weight is reduced.
    heaviest = smallest.index(max(smallest))
    smallest[heaviest] -= excess
    # By rounding, a sum may miss its bounds by a share of 2e-7, and by no more.
    if max(excess, lacking) > 1 << 40 or smallest[heaviest] < 1:
        raise ValueError("infeasible base_measure: its sum must be between exp(-epsilon) and 1.")
    while (capacity := _scaled_sum(smallest, ratio)) < TOTAL_WEIGHT:
        # If rounding lost mass where exp(epsilon) sum(s) = 1, all weights grow in proportion.
        lacking = TOTAL_WEIGHT - capacity
        smallest = [weight - (-lacking * weight // capacity) for weight in smallest]
    if sum(smallest) > TOTAL_WEIGHT:
        raise ValueError("epsilon is too small for so many output points: no weights exist.")
    return smallest


def _scaled_sum(smallest: list[int], ratio: int) -> int:
    """Return the sum of the largest weights that are allowed with these smallest ones."""
    return sum(weight * ratio >> _EXP_BITS for weight in smallest)


# Private unit vectors: a mechanism that prefers a cap of the sphere around its input.
#
# Its density with respect to the uniform distribution is c outside the cap
# ``(1 - <x, y>) / 2 <= threshold`` around x and ``exp(epsilon) c`` inside. :class:`CapRejection`
# draws from it by rejection, privately down to the last bit; :class:`CapConstruction` builds the
# output from the input, fast for every epsilon and private in real arithmetic only
# (:ref:`proof-unit-vectors`).

# For a larger epsilon, 63 bits are too few to accept with probability exp(-epsilon).
_LARGEST_EPSILON = 30.0


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
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.privacy.choices import CapRejection
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
        # More than 2**36 Gaussian variables for one sample take hours.
        if self.n_proposals * n_features > 2**36 or epsilon > _LARGEST_EPSILON:
            raise ValueError(
                f"rejection is out of reach at epsilon={epsilon:g}: it is for epsilon <= "
                f"{_LARGEST_EPSILON:g}, and would take {self.n_proposals:.1e} proposals. Choose a "
                'smaller epsilon, or the method "direct" (and read what it does not protect).'
            )
        self.squared_radius = 4.0 * threshold
        self.coin = _outside_coin(n_features, epsilon, threshold)
        # Overheads prevail in batches of fewer than 64 Gaussian variables, and large ones take
        # memory.
        wanted = max(math.ceil(self.n_proposals / 4), 1 + 2**6 // n_features)
        self._batch = min(wanted, 1 + 2**20 // n_features)
        self.doubles_per_user = 6 * self._batch * n_features

    def draw(self, points: np.ndarray, sources: list[NoiseSource], n_samples: int) -> np.ndarray:
        """Return `n_samples` private unit vectors for each point, which is a user's.

        Points are unit vectors to within 1e-6. `sources` has the source of each user, or is one for
        all. A user's first vectors do not depend on `n_samples`.
        """
        centres = _normalise(points)
        drawn = np.empty((len(centres), n_samples, self.n_features))
        for position in range(n_samples):
            waiting = np.arange(len(centres))
            while waiting.size:
                of_waiting = [sources[user] for user in waiting]
                proposals, accepted = self._propose(centres[waiting], of_waiting)
                served = accepted.any(axis=1)
                first = accepted[served].argmax(axis=1)
                drawn[waiting[served], position] = proposals[served, first]
                waiting = waiting[~served]
        return drawn

    def _propose(
        self, centres: np.ndarray, sources: list[NoiseSource]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch of proposals per user, and which of them the user accepts."""
        d = self.n_features
        bits = np.stack([source.bits(63, (self._batch, 2 * d + 1)) for source in sources])
        # From the same words whatever the input is: it decides only which proposal is served.
        normals = _precise_normals(bits[..., :d], bits[..., d:-1])
        squares = np.einsum("...i,...i", normals, normals)
        # The direction of a shorter proposal would be too inexact (:ref:`proof-unit-vectors`).
        long_enough = squares >= d * 2.0**-8
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
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.privacy.choices import CapConstruction
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

    def draw(self, points: np.ndarray, sources: list[NoiseSource], n_samples: int) -> np.ndarray:
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
        # A smaller cap is a flat disc up to rounding, and quantiles of its beta distribution
        # underflow.
        if self._threshold * self._shape < 1e-12:
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
    >>> from skdpot.privacy.choices import mean_proposals
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
    >>> from skdpot.privacy.choices import rejection_is_affordable
    >>> rejection_is_affordable(3, epsilon=2.0, threshold=0.25)
    True
    """
    draws = mean_proposals(n_features, epsilon, threshold) * n_features
    return draws <= 2**22 and epsilon <= _LARGEST_EPSILON


def _outside_coin(n_features: int, epsilon: float, threshold: float) -> int:
    """Return the probability of acceptance outside the cap, in units of 2**-63.

    It bounds ``exp(-epsilon)`` times the ratio of two inputs' probabilities of acceptance.
    """
    shape = (n_features - 1) / 2
    radius, blur = 2.0 * math.sqrt(threshold), 2.0**-40 + n_features * 2.0**-50
    missed = n_features * 2.0**-72
    squares = np.clip([radius - blur, radius + blur], 0.0, 2.0) ** 2
    lower_cap, upper_cap = betainc(shape, shape, squares / 4.0)
    coin = math.exp(-epsilon)
    highest = coin + (1.0 - coin) * min(float(upper_cap) + missed, 1.0)
    lowest = coin + (1.0 - coin) * max(float(lower_cap) - missed, 0.0)
    # The proof allows a relative rounding error of 2**-30 of public numbers.
    return math.ceil(min(coin * (highest / lowest) * (1.0 + 2.0**-30), 1.0) * 2.0**63)


def _precise_normals(words: np.ndarray, finer_words: np.ndarray) -> np.ndarray:
    """Return standard Gaussian doubles from 126 bits, accurate in the tails too."""
    tails = ((words >> 1) + (finer_words + 0.5) * 2.0**-63) * 2.0**-63
    return ndtri(tails) * (1 - 2 * (words & 1))


def _normalise(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt(np.einsum("...i,...i", vectors, vectors))[..., None]
