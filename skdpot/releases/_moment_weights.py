"""Weights of the kinds of moments, from public quantities."""

from operator import itemgetter

import numpy as np

from skdpot.releases._layout import UnitLayout

# Expected variance of a coordinate: six standard deviations fill the box.
TYPICAL_VARIANCE = 1.0 / 36.0
_TINY = 1e-9
# Weights of v (1 - v) that are tried, as multiples of the weights of coordinates.
_RATIOS = np.geomspace(1.0, 8.0, 19).tolist()


def importance(layout: UnitLayout) -> np.ndarray:
    """Return the cost of noise on each kind of moment.

    It is the squared transport distance per unit of variance of the noise on averages: of the
    count, of coordinates, of products across features, and of ``v (1 - v)`` of numbers that are not
    binary. An error of a mean moves all mass by as much. An error of the count moves the mean in
    proportion: by a third of the largest squared norm, for a uniform distribution. An error D of a
    covariance whose eigenvalues are near v moves a Gaussian by ``|D|^2 / (4 v)``, where v is
    `TYPICAL_VARIANCE`. The coordinate of a block with a single category moves nothing.
    """
    of_squares = 1.0 / (4.0 * TYPICAL_VARIANCE)
    n_continuous = int((~layout.binary).sum())
    varying = np.array([1.0] * layout.n_numbers + [k for k in layout.blocks if k > 1])
    n_pairs = _pair_sum(varying)
    return np.array(
        [
            # Above 0 even if all features are constant: weights of groups need counts.
            max(squared_norms(layout).sum() / 3.0, _TINY),
            varying.sum(),
            2.0 * of_squares * n_pairs,
            of_squares * n_continuous,
        ]
    )


def squared_norms(layout: UnitLayout) -> np.ndarray:
    """Return the largest squared norm of every feature, with zero as its middle."""
    return np.array([0.25] * layout.n_numbers + [1.0 - 1.0 / k for k in layout.blocks])


def weights(layout: UnitLayout, delta: float) -> np.ndarray:
    """Return the multiplier of every kind of moment of `importance`; 0 if it does not occur.

    Errors are small within the budget, of Laplace noise for `delta` 0 and Gaussian noise above.

    Notes
    -----
    The variance of Gaussian noise is proportional to the sum of ``w^2 B`` over the kinds of
    moments, where B is the largest squared norm of a kind. The error is proportional to the sum of
    ``A / w^2``, where A is the importance. The product of both sums is smallest for ``w^2 = sqrt(A
    / B)``. So the share of a kind in the budget is in proportion to ``sqrt(A B)``. The scale of
    Laplace noise is in proportion to the sum of ``w B`` with l1 norms, and then ``w = (A /
    B)^(1/3)``.

    For Gaussian noise ``v (1 - v)`` costs nothing up to some weight, since it is 0 where all other
    moments are largest; it gets that weight. For Laplace noise its weight is a multiple r of that
    of coordinates, and ``w1 (y + r (1/4 - y^2))`` with y from 0 to 1/2 is ``w1 / 2`` at most for r
    below 1, and ``w1 (r + 1 / r) / 4`` above; the best of some r is taken. Counts get a share that
    is so large that a change of the group is the worst case: with less, the l2 sensitivity would be
    larger than needed.
    """
    pays, squares = importance(layout), squared_norms(layout)
    if delta == 0:
        tried = (_laplace_weights(layout, pays, ratio) for ratio in _RATIOS)
        return min(tried, key=itemgetter(0))[1]
    largest = np.array([1.0, squares.sum(), _pair_sum(squares)])
    x0, x1, x2 = np.sqrt(pays[:3] / np.maximum(largest, _TINY))
    x3, n_continuous = 0.0, int((~layout.binary).sum())
    if n_continuous:
        binary_and_blocks = np.append(layout.binary, np.ones(len(layout.blocks), dtype=bool))
        of_others = _pair_sum(squares[binary_and_blocks])
        x3 = 4.0 * x1 + 16.0 * x2 * (largest[2] - of_others) / n_continuous
    opposite = layout.n_numbers / 4.0 + sum(1.0 / k for k in layout.blocks if k > 1)
    if x1 < x2 * opposite:
        opposite = x1 / x2
    against = x1 * opposite - x2 * opposite**2 / 2.0 + x2 * (squares**2).sum() / 2.0
    return np.sqrt([max(x0, against), x1, x2, x3])


def _laplace_weights(
    layout: UnitLayout, pays: np.ndarray, ratio: float
) -> tuple[float, np.ndarray]:
    """Return the error and the weights for Laplace noise, with v (1 - v) at this ratio."""
    lengths = np.array([0.5] * layout.n_numbers + [2.0 - 2.0 / k for k in layout.blocks])
    beyond = (ratio + 1.0 / ratio) / 4.0 - 0.5
    n_continuous = int((~layout.binary).sum())
    largest = np.array([1.0, lengths.sum() + n_continuous * beyond, _pair_sum(lengths)])
    costs = pays[:3] + [0.0, pays[3] / ratio**2, 0.0]
    w0, w1, w2 = np.cbrt(costs / np.maximum(largest, _TINY))
    error = float(np.cbrt(costs * largest**2).sum())
    return error, np.array([w0, w1, w2, ratio * w1 * (n_continuous > 0)])


def _pair_sum(numbers: np.ndarray) -> float:
    """Return the sum of the products of all pairs."""
    return float(numbers.sum() ** 2 - (numbers**2).sum()) / 2.0
