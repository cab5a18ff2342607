"""Barycenters on a line, in closed form: means of quantile functions."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..exact import common_masses
from ..polytope import check_masses, check_numbers, check_range, check_weights
from ._relaxation import BarycenterResult


def quantile_barycenter(
    samples: Sequence[Any],
    group_weights: Any,
    *,
    masses: Sequence[Any] | None = None,
    n_support: int | None = None,
) -> BarycenterResult:
    r"""Return the barycenter of groups of numbers, exactly.

    It minimises :math:`\sum_s \lambda_s W_2^2(Q_s, q)` over all distributions q, or over those of
    a given number of points of equal mass.

    Parameters
    ----------
    samples : sequence of array-like of shape (n_s,)
        The groups' points.
    group_weights : array-like of shape (n_groups,)
        Non-negative weights with sum 1.
    masses : sequence of array-like of shape (n_s,) or None, default=None
        Masses of the groups' points, non-negative with sum 1. None is equal masses.
    n_support : int, default=None
        Number of support points, each of mass ``1 / n_support``. None uses as many as necessary,
        with any masses.

    Returns
    -------
    BarycenterResult
        With ``support``, ``masses``, ``levels`` and ``objective``. Without a given number of points
        ``lower_bound`` equals the objective.

    Raises
    ------
    ValueError
        If points are not finite, weights or masses are no weights, or a parameter is out of
        range.

    Notes
    -----
    *Optimality.* On a line, :math:`W_2^2(Q, q) = \int_0^1 |F_Q^{-1}(u) - F_q^{-1}(u)|^2 du`, so
    that the sum is at least

    .. math:: \int_0^1 \min_z \sum_s \lambda_s |F_s^{-1}(u) - z|^2 \, du.

    The minimum is attained by the weighted mean of the quantiles, which ascends in u. So it is a
    quantile function, and no distribution is better. With M points of equal mass, point j is the
    quantile for all levels between (j - 1) / M and j / M, and the sum separates in the points: the
    best one is the mean of the barycenter's quantiles over its levels. Again these ascend, so this
    is the best of all choices, too.

    *Levels* where a quantile changes are merged as integers, and so exactly if masses are equal
    within each group and the least common multiple of all numbers of points is below 2**52;
    otherwise masses are rounded to multiples of 2**-52.

    *Not private*: the support is a function of the points.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, equation (3) on a line, and equation (5), of which it gives the best fair
    predictions.

    F. Santambrogio, "Optimal Transport for Applied Mathematicians", proposition 2.17.

    Examples
    --------
    >>> from skdpot.transport.barycenter import quantile_barycenter
    >>> result = quantile_barycenter([[0.0, 1.0], [4.0, 7.0, 10.0]], [0.5, 0.5])
    >>> result.support
    array([2. , 3.5, 4. , 5.5])
    >>> result.levels
    array([0.33333333, 0.5       , 0.66666667, 1.        ])
    >>> quantile_barycenter([[0.0, 1.0], [4.0, 7.0, 10.0]], [0.5, 0.5], n_support=1).support
    array([3.75])
    """
    weights = check_weights(group_weights, len(samples), "group_weights")
    arrays = [check_numbers(one, f"samples[{s}]", 1) for s, one in enumerate(samples)]
    if n_support is not None and not operator.index(n_support) >= 1:
        raise ValueError(f"n_support must be at least 1, got {n_support}.")
    low, high = min(array.min() for array in arrays), max(array.max() for array in arrays)
    check_range(low, high, "points", 2)
    shares = check_masses(masses, arrays)
    # Points of equal mass end at levels of their own, which are merged with those of the groups.
    slices = [] if n_support is None else [np.full(n_support, 1 / n_support)]
    integers = common_masses([*shares, *slices])
    # Quantiles are functions of levels that are constant on pieces, which all of them share.
    orders = [np.argsort(array, kind="stable") for array in arrays]
    steps = [np.cumsum(one[order]) for one, order in zip(integers, orders, strict=False)]
    cuts = [np.cumsum(one) for one in integers[len(arrays) :]]
    # As integers, equal levels are equal; as doubles, rounding would make two of one.
    ends = np.unique(np.concatenate([*steps, *cuts]))
    ends = ends[ends > 0]
    members = [own[np.searchsorted(step, ends)] for own, step in zip(orders, steps, strict=True)]
    quantiles = np.stack([array[member] for array, member in zip(arrays, members, strict=True)])
    lengths = np.diff(ends, prepend=0) / ends[-1]
    pieces = np.arange(len(ends))
    best = _means(quantiles, weights, lengths, pieces)
    point_ends = ends if n_support is None else cuts[0]
    points = np.searchsorted(point_ends, ends)
    support = best if n_support is None else _means(quantiles, weights, lengths, points)
    return BarycenterResult(
        support=support,
        masses=np.diff(point_ends, prepend=0) / ends[-1],
        levels=point_ends / ends[-1],
        objective=_objective(quantiles, weights, lengths, support[points]),
        lower_bound=_objective(quantiles, weights, lengths, best),
    )


def _means(
    quantiles: np.ndarray, weights: np.ndarray, lengths: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Return for each point the mean of the quantiles on its pieces."""
    # A point's pieces have shares with sum 1, also where masses were rounded.
    shares = lengths / np.bincount(points, lengths)[points]
    # Sums one by one keep the order of what is summed, which a matrix product need not.
    low = quantiles.min()
    means = np.zeros(quantiles.shape[1])
    for weight, one in zip(weights, quantiles, strict=True):
        means += weight * (one - low)
    return np.maximum.accumulate(low + np.bincount(points, shares * means))


def _objective(
    quantiles: np.ndarray, weights: np.ndarray, lengths: np.ndarray, centres: np.ndarray
) -> float:
    """Return the weighted sum of the costs of moving each group's quantiles to the centres."""
    return float(weights @ (np.abs(quantiles - centres) ** 2 @ lengths))
