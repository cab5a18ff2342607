"""Sensitivities of the releases of a training step (:ref:`proof-training-steps`)."""

import math
from fractions import Fraction

from skdpot.privacy.sensitivity._relation import doubled_if_replaced


def clipped_gradient_sensitivity(
    clip_norm: float, *, n_parts: int = 1, loss_range: float = 0.0
) -> float:
    """Return the l2 sensitivity of a gradient with clipped parts, and of a loss beside it.

    A gradient of a transport cost is not a sum over records: one record may turn it as a whole. So
    the sensitivity is the diameter of its range, under any neighbouring relation.

    Parameters
    ----------
    clip_norm : float
        The norm that no part exceeds.
    n_parts : int, default=1
        How many parts are clipped, each on its own: 1 for a gradient that is clipped as a whole,
        and the number of generated points where that of each is. All are computed from the same
        records, so that all may turn at once.
    loss_range : float, default=0.0
        Width of the interval in which the loss lies.

    Returns
    -------
    float
        ``sqrt(n_parts (2 clip_norm)^2 + loss_range^2)``, rounded up.

    Notes
    -----
    Proof: :ref:`proof-gradient-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import clipped_gradient_sensitivity
    >>> clipped_gradient_sensitivity(0.5)
    1.0
    >>> round(clipped_gradient_sensitivity(0.5, n_parts=50), 3)
    7.071
    """
    return _norm(*[2 * clip_norm] * n_parts, loss_range)


def clipped_sum_sensitivity(
    clip_norm: float,
    *,
    count_weight: float = 0.0,
    loss_weight: float = 0.0,
    relation: str = "add_remove",
) -> float:
    """Return the l2 sensitivity of sums over records: of clipped gradients, ones, and losses.

    Parameters
    ----------
    clip_norm : float
        The norm that no record's gradient exceeds.
    count_weight : float, default=0.0
        Multiplier of the number of records.
    loss_weight : float, default=0.0
        Multiplier of a record's loss, which is between 0 and 1.
    relation : {"add_remove", "replace_one"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        ``sqrt(clip_norm^2 + count_weight^2 + loss_weight^2)``, and twice that where a record is
        replaced; rounded up.

    Raises
    ------
    ValueError
        If the relation is unknown.

    Notes
    -----
    Proof: :ref:`proof-record-sums`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import clipped_sum_sensitivity
    >>> clipped_sum_sensitivity(3.0, count_weight=4.0)
    5.0
    >>> clipped_sum_sensitivity(3.0, count_weight=4.0, relation="replace_one")
    10.0
    """
    return doubled_if_replaced(_norm(clip_norm, count_weight, loss_weight), relation)


def _norm(*numbers: float) -> float:
    """Return the Euclidean norm, rounded up."""
    norm = math.hypot(*numbers)
    squared = sum(Fraction(number) ** 2 for number in numbers)
    return norm if Fraction(norm) ** 2 >= squared else math.nextafter(norm, math.inf)
