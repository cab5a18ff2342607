r"""Welfare of a plan, and the upper bound of the welfare of all plans that prices prove.

For any prices alpha of the edges and multipliers m of the nodes, no plan has more welfare than ::

    sum over targets of  max(upper m, lower m) + sum_e max_{0 <= x <= cap} t_e(x) - (alpha_e + m) x
    + the same over sources with -alpha,

because the amounts of a node have a sum between its bounds. The bound holds for any m; the m of
every node is the best one, up to rounding. For linear utilities the inner sum is zero at the
largest ``a_e - alpha_e``, and the bound has a closed form.
"""

from typing import Any

import numpy as np

from ._bipartite import BipartiteNetwork, Side
from ._utilities import LinearUtility, best_demand

# The bound is flat at its minimum, so the remaining interval changes it by rounding errors only.
_BISECTIONS = 45


def welfare(
    network: BipartiteNetwork, target_utility: Any, source_utility: Any, plan: np.ndarray
) -> float:
    """Return the sum of all utilities of a plan, in the order of the targets; not private."""
    return float(np.sum(target_utility.value(plan)) + np.sum(source_utility.value(plan)))


def welfare_bound(
    network: BipartiteNetwork, target_utility: Any, source_utility: Any, prices: np.ndarray
) -> float:
    """Return an upper bound on the welfare of every feasible plan; not private.

    Any prices give a bound; those of :func:`consensus` come near the optimum.
    """
    order = network.sources.positions
    target_bound = side_bound(network.targets, target_utility, prices)
    return target_bound + side_bound(network.sources, source_utility.take(order), -prices[order])


def side_bound(side: Side, utility: Any, prices: np.ndarray) -> float:
    """Return the largest total gain of a side's nodes at prices, all in the order of the side."""
    connected = side.degrees > 0
    if not connected.any():
        return 0.0
    starts = side.indptr[:-1][connected]
    lower, upper = side.lower[connected], side.upper[connected]
    if isinstance(utility, LinearUtility):
        best = np.maximum.reduceat(utility.slopes - prices, starts)
        return float(np.where(best > 0, upper * best, lower * best).sum())
    nodes = np.repeat(np.arange(len(starts)), side.degrees[connected])
    caps = upper[nodes]
    levels = _best_levels(nodes, starts, lower, upper, caps, utility, prices)
    costs = prices + levels[nodes]
    amounts = best_demand(utility, costs, caps)
    gains = utility.value(amounts) - costs * amounts
    return float(gains.sum() + np.where(levels > 0, upper * levels, lower * levels).sum())


def _best_levels(
    nodes: np.ndarray,
    starts: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    caps: np.ndarray,
    utility: Any,
    prices: np.ndarray,
) -> np.ndarray:
    """Return the multipliers that minimise the bound of every node, by bisection."""
    free = np.bincount(nodes, best_demand(utility, prices, caps))
    mass = np.clip(free, lower, upper)
    high = np.maximum.reduceat(utility.derivative(np.zeros_like(caps)) - prices, starts)
    low = np.minimum.reduceat(utility.derivative(caps) - prices, starts)
    high, low = (
        np.where(mass < free, np.maximum(high, 0), 0),
        np.where(mass > free, np.minimum(low, 0), 0),
    )
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        wanted = np.bincount(nodes, best_demand(utility, prices + middle[nodes], caps))
        low, high = np.where(wanted > mass, middle, low), np.where(wanted > mass, high, middle)
    return 0.5 * (low + high)
