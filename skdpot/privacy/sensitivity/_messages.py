r"""Sensitivities of the messages of a node in an allocation network, to its private utilities.

Every bound is proven in :ref:`proof-message-sensitivity`, sharp, and raised by a share of 1e-12,
which covers its rounding errors.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from skdpot.privacy.checks import check_choice
from skdpot.privacy.rounding import RAISED, raised_by_margin
from skdpot.privacy.sensitivity._relation import check_replaced
from skdpot.privacy.sensitivity._utilities import PROTECTED

# Relative rounding error of the quotient of an amount and the width of a grid.
_ROUNDING_OF_QUOTIENTS = 2.0**-51
# Rounding error of a solver for each operation of a sum, relative to its largest number: eight
# times that of sums and quotients alone, and that of nested iterations that stop near a root.
_ROUNDING, _ROUNDING_OF_ITERATIONS = 2.0**-50, 2.0**-42


def message_sensitivity(
    eta: Any,
    utility_range: Any,
    cap: Any,
    degree: Any,
    *,
    least: Any = 0.0,
    curvature: Any = 0.0,
    protect: str = "parameter",
    relation: str = "replace_one",
) -> Any:
    r"""Return how much private utilities can move one message of a node, in the l2 norm.

    The message is the unique minimiser of ``sum_j -u_j(x_j) + <c, x> + eta/2 |x - z|^2`` over all
    ``x >= 0`` with ``least <= sum(x) <= cap``. The utilities u are private; c and z are the same
    for both neighbours. All arguments but `protect` are broadcast, with one entry per node.

    Parameters
    ----------
    eta : float or array-like
        Penalty of the round, above 0.
    utility_range : float or array-like
        Largest difference R of the marginal utilities of two neighbours, at any amount between 0
        and `cap`. For linear utilities it is the width of the range of their slopes.
    cap : float or array-like
        Upper bound of the sum of the node's amounts, or infinity.
    degree : int or array-like of int
        Number d of the node's edges.
    least : float or array-like, default=0.0
        Lower bound of that sum.
    curvature : float or array-like, default=0.0
        Lower bound of minus the second derivative of every utility, between 0 and `cap`.
    protect : {"parameter", "node"}, default="parameter"
        Whether the utility of one edge is replaced, or those of all edges of the node.
    relation : {"replace_one"}, default="replace_one"
        The neighbouring relation. The network is public.

    Returns
    -------
    float or ndarray
        With ``s = R / (eta + curvature)``, the smallest of ``s``, ``sqrt(s cap)`` and ``sqrt(2)
        cap`` for a parameter, and of ``sqrt(d) s``, ``sqrt(2 s cap)`` and ``sqrt(2) cap`` for a
        node. A single edge has ``cap - least`` for the last of them. With equal bounds the first is
        ``sqrt(1 - 1/d) s``, or ``sqrt(d - 1/d) s`` for a node of odd degree. It is 0 for a single
        edge with equal bounds, of which nothing is decided, and for a node without edges.

    Raises
    ------
    ValueError
        If `protect` is neither, or `least` is above `cap`.

    See Also
    --------
    marginal_bounds : The range and the curvature of families of utilities.

    Notes
    -----
    Proof: :ref:`proof-message-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import message_sensitivity
    >>> round(message_sensitivity(8.0, 4.0, 5.0, 30), 6)
    0.5
    >>> round(message_sensitivity(8.0, 4.0, 5.0, 30, protect="node"), 6)
    2.236068
    >>> message_sensitivity(0.1, 4.0, [5.0, 10.0, 1000.0], 4).round(3)
    array([ 7.071, 14.142, 40.   ])
    """
    check_choice("protect", protect, PROTECTED)
    check_replaced(relation, "the network is public")
    eta, utility_range, cap, degree, least, curvature = (
        np.asarray(value, dtype=np.float64)
        for value in (eta, utility_range, cap, degree, least, curvature)
    )
    if (least > cap).any():
        raise ValueError("least must not be above cap.")
    step = utility_range / (eta + curvature)
    single, equal, edges = degree == 1, least == cap, np.maximum(degree, 1.0)
    if protect == "parameter":
        lengthened = np.where(equal, np.sqrt(1.0 - 1.0 / edges), 1.0)
        along = 1.0
    else:
        odd = equal & (edges % 2 == 1)
        lengthened = np.sqrt(edges - np.where(odd, 1.0 / edges, 0.0))
        along = 2.0
    diameter = np.where(single, cap - least, np.sqrt(2.0) * cap)
    # If the range is 0, no message moves, even without a cap, where the product is undefined.
    with np.errstate(invalid="ignore"):
        # A product of roots: the product of the numbers may underflow.
        mean = np.fmin(np.sqrt(along * step) * np.sqrt(cap), diameter)
    bound = np.minimum(lengthened * step, mean)
    return raised_by_margin(np.where(degree == 0, 0.0, bound))


def message_error(
    eta: Any,
    cap: Any,
    degree: Any,
    *,
    reach: Any,
    largest_marginal: Any,
    largest_scale: Any = 0.0,
    iterative: bool = False,
) -> np.ndarray:
    r"""Return how far a node's computed message may be from the exact one, in the l2 norm.

    All arguments are public, and broadcast, with one entry per node.

    Parameters
    ----------
    eta : float or array-like
        Penalty of the round, above 0.
    cap : float or array-like
        Upper bound of the sum of the node's amounts.
    degree : int or array-like of int
        Number d of the node's edges.
    reach : float or array-like
        The largest ``|eta z| + |alpha|`` of an edge, with the amounts z and the prices alpha that
        the message is the answer to.
    largest_marginal : float or array-like
        Declared upper bound of absolute marginal utilities.
    largest_scale : float or array-like, default=0.0
        Upper bound of the scales of logarithmic utilities.
    iterative : bool, default=False
        Whether amounts are found by iteration, other than sums and quotients.

    Returns
    -------
    ndarray
        ``sqrt(d) (d + 16) M / eta`` times some roundings, with the sum M of the solver's terms; at
        most half of the largest distance of two messages within the bounds.

    Notes
    -----
    Proof: :ref:`proof-message-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import message_error
    >>> float(message_error(1.0, 5.0, 30, reach=100.0, largest_marginal=5.0)) < 1e-10
    True
    """
    eta, cap, degree = (np.asarray(value, dtype=np.float64) for value in (eta, cap, degree))
    size = reach + largest_marginal + eta * (cap + largest_scale)
    share = _ROUNDING_OF_ITERATIONS if iterative else _ROUNDING
    error = share * np.sqrt(degree) * (degree + 16.0) * size / eta
    return np.asarray(np.minimum(error, np.sqrt(degree) * cap / 2.0))


def rounded_message_sensitivity(
    exact: Any, cap: Any, degree: Any, *, error: Any, unit: Any
) -> np.ndarray:
    """Return how much a message that is computed and rounded to a grid can move.

    Parameters
    ----------
    exact : float or array-like
        The result of `message_sensitivity` with the same `cap` and `degree`.
    cap : float or array-like
        Upper bound of the sum of the node's amounts.
    degree : int or array-like of int
        Number of the node's edges.
    error : float or array-like
        How far the computed message may be from the exact one, in the l2 norm.
    unit : float or array-like
        Width of the grid.

    Returns
    -------
    ndarray
        In units of the grid, in the l2 norm.

    Notes
    -----
    Proof: :ref:`proof-private-messages`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import rounded_message_sensitivity
    >>> float(rounded_message_sensitivity(1.0, 5.0, 4, error=0.0, unit=0.5).round(6))
    4.0
    """
    moved = computed_message_sensitivity(exact, error)
    # Rounding moves each amount by at most half a unit, plus the error of its quotient.
    rounding = np.sqrt(degree) * (1.0 + _ROUNDING_OF_QUOTIENTS * (cap / unit + 1.0))
    return moved / unit + rounding


def computed_message_sensitivity(exact: Any, error: Any) -> Any:
    """Return how much a message that is computed with an error can move, in the l2 norm.

    Parameters
    ----------
    exact : float or array-like
        The result of `message_sensitivity`.
    error : float or array-like
        How far the computed message may be from the exact one, in the l2 norm.

    Returns
    -------
    float or ndarray
        Rounded up.

    Notes
    -----
    Proof: :ref:`proof-message-sensitivity`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import computed_message_sensitivity
    >>> round(computed_message_sensitivity(1.0, 0.25), 9)
    1.5
    """
    return (exact + 2.0 * error) * RAISED


def marginal_bounds(
    family: str, ranges: Mapping[str, tuple[float, float]], cap: float
) -> tuple[float, float]:
    """Return the range of marginal utilities of a family, and their minimum curvature.

    Parameters
    ----------
    family : {"linear", "quadratic", "log"}
        Utilities ``a x``, ``a x - b x^2 / 2``, or ``a log(1 + x / c)``.
    ranges : mapping of str to (float, float)
        The least and the largest value of every parameter, by its name. One that is public may have
        its own range on every edge: give the widest here, or call once for every edge.
    cap : float
        The largest amount.

    Returns
    -------
    utility_range : float
        Largest difference of the marginal utilities of two members, at any amount up to the cap.
    curvature : float
        Lower bound of minus the second derivative of every member.

    Raises
    ------
    ValueError
        If the family is none, a range is missing, crossed or not finite, or utilities need not be
        concave (b below 0, or a below 0 or c not above 0 for the logarithm).

    Notes
    -----
    Proof: :ref:`proof-allocations`.

    Examples
    --------
    >>> from skdpot.privacy.sensitivity import marginal_bounds
    >>> marginal_bounds("quadratic", {"a": (1.0, 5.0), "b": (0.5, 1.0)}, cap=2.0)
    (5.0, 0.5)
    >>> marginal_bounds("log", {"a": (1.0, 5.0), "c": (1.0, 1.0)}, cap=1.0)
    (4.0, 0.25)
    """
    check_choice("family", family, ("linear", "quadratic", "log"))
    a_low, a_high = _range(ranges, "a")
    if family == "linear":
        return a_high - a_low, 0.0
    if family == "quadratic":
        b_low, b_high = _range(ranges, "b")
        if b_low < 0:
            raise ValueError("quadratic utilities are concave with b of at least 0 only.")
        # A public b adds nothing, even without a cap.
        of_curvature = (b_high - b_low) * cap if b_high > b_low else 0.0
        return (a_high - a_low) + of_curvature, b_low
    c_low, c_high = _range(ranges, "c")
    if a_low < 0 or c_low <= 0:
        raise ValueError("logarithms are concave utilities with a >= 0 and c > 0 only.")
    # This form avoids the difference of two quotients that are nearly equal.
    of_scale = a_low * (c_high - c_low) / (c_low * c_high) if c_high > c_low else 0.0
    return (a_high - a_low) / c_low + of_scale, a_low / (c_high + cap) ** 2


def _range(ranges: Mapping[str, tuple[float, float]], name: str) -> tuple[float, float]:
    if name not in ranges:
        raise ValueError(f"the range of the parameter {name!r} is missing.")
    low, high = (float(end) for end in ranges[name])
    if not -np.inf < low <= high < np.inf:
        raise ValueError(f"the range of {name!r} must be finite, with low <= high.")
    return low, high
