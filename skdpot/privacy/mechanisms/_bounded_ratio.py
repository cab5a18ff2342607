"""Discrete sampling from probability vectors within public bounds."""

import decimal
import math
from functools import lru_cache
from typing import Any

import numpy as np

from skdpot.privacy.checks import check_positive, private_doubles
from skdpot.privacy.events import PureDpEvent

# Weights are integers with this sum. A draw is a uniform integer below it.
WEIGHT_BITS = 62
TOTAL_WEIGHT = 1 << WEIGHT_BITS
_EXP_BITS = 128
# By how much weight the sum of a base measure may miss its bounds: a relative error of 2e-7.
_ROUNDING = 1 << 40


@lru_cache
def scaled_exp(epsilon: float) -> int:
    """Return an integer just below ``exp(epsilon) * 2**128``, by arithmetic with 400 digits."""
    context = decimal.Context(prec=400, rounding=decimal.ROUND_FLOOR)
    exact = context.exp(decimal.Decimal(float(epsilon)))
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
    >>> from skdpot.privacy.mechanisms import BoundedRatioMechanism
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
            before = ends[users, np.minimum(further, n_outputs) - 1]
            np.copyto(outputs, further, where=(further <= n_outputs) & (before <= integers))
        return outputs


def _fill(room: np.ndarray, amount: Any) -> np.ndarray:
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
    if max(excess, lacking) > _ROUNDING or smallest[heaviest] < 1:
        raise ValueError(
            "infeasible base_measure: its sum must be between exp(-epsilon) and 1, so that "
            "distributions lie between it and exp(epsilon) times it."
        )
    while (capacity := _scaled_sum(smallest, ratio)) < TOTAL_WEIGHT:
        # If rounding lost mass where exp(epsilon) sum(s) = 1, all weights grow in proportion.
        lacking = TOTAL_WEIGHT - capacity
        smallest = [weight - (-lacking * weight // capacity) for weight in smallest]
    if sum(smallest) > TOTAL_WEIGHT:
        raise ValueError(
            "epsilon is too small for this number of output points: no integer weights of sum "
            "2**62 lie between the base measure and exp(epsilon) times it."
        )
    return smallest


def _scaled_sum(smallest: list[int], ratio: int) -> int:
    """Return the sum of the largest weights that are allowed with these smallest ones."""
    return sum(weight * ratio >> _EXP_BITS for weight in smallest)
