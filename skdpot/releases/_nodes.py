"""Budgets, sources of noise, and grids that the releases of network nodes share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.privacy.accounting import calibrate_noise_multiplier, inverse_rounded_up
from skdpot.privacy.checks import check_delta, check_positive, private_doubles
from skdpot.privacy.random import NoiseSource, make_source

# Bits of the units of a grid in the sensitivity or range, unless the scale of the noise needs
# fewer.
_FINENESS_BITS, _LARGEST_SCALE_BITS = 20, 36
# Minimum width of a range whose units have all the digits of a double.
_LEAST_WIDTH = 1e-280
# The inverse of a smaller epsilon overflows.
_LEAST_EPSILON = 1e-300
# Sums are clipped to this: they exceed it only if the noise saturated.
LARGEST_SUM = 1 << 61


@dataclass(frozen=True)
class NodeBudgets:
    """The epsilons of nodes, and their Gaussian noise.

    Attributes
    ----------
    epsilons : ndarray of shape (n_nodes,)
        Total epsilon of each node.
    delta : float
        The same for all; 0 for noise without one.
    multipliers : ndarray of shape (n_nodes,)
        With a delta, of Gaussian noise in a single release. Without one, ``1 / epsilons``.
    """

    epsilons: np.ndarray
    delta: float
    multipliers: np.ndarray

    @classmethod
    def divide(cls, epsilon: Any, delta: Any, factors: Any, n_nodes: int) -> "NodeBudgets":
        """Return the budgets of nodes that each have a share of the total, at most all of it."""
        epsilon = check_positive("epsilon", epsilon)
        delta = check_delta(delta) if delta else 0.0
        shares = np.broadcast_to(np.asarray(factors, dtype=np.float64), (n_nodes,))
        if not ((shares > 0) & (shares <= 1)).all():
            raise ValueError("factors must be above 0 and at most 1.")
        epsilons = epsilon * shares
        if not (epsilons > _LEAST_EPSILON).all():
            raise ValueError(f"epsilon must be above {_LEAST_EPSILON:g} for every node.")
        each, where = np.unique(epsilons, return_inverse=True)
        if delta == 0:
            found = np.array([inverse_rounded_up(value) for value in each.tolist()])
        else:
            found = np.array([calibrate_noise_multiplier(value, delta) for value in each.tolist()])
        return cls(epsilons, delta, found[where.reshape(n_nodes)])

    @property
    def worst(self) -> int:
        """Return the node with the largest epsilon."""
        return int(np.argmax(self.epsilons))


def check_degrees(degrees: Any) -> np.ndarray:
    """Return numbers of edges as integers, or raise."""
    found = np.asarray(degrees)
    if found.ndim != 1 or found.size == 0 or found.dtype.kind not in "iu" or (found < 0).any():
        raise ValueError("degrees must be integers of at least 0, one per node.")
    return found.astype(np.int64)


def check_source(source: Any, n_nodes: int) -> NoiseSource | Sequence[NoiseSource]:
    """Return one source for all nodes, or a source for each node."""
    if not isinstance(source, Sequence) or isinstance(source, str):
        return make_source(source)
    if len(source) != n_nodes:
        raise ValueError(f"there are {len(source)} sources of noise for {n_nodes} nodes.")
    return [make_source(one) for one in source]


def draw_for_nodes(
    source: NoiseSource | Sequence[NoiseSource],
    degrees: np.ndarray,
    draw: Callable[[NoiseSource, slice, slice], np.ndarray],
) -> np.ndarray:
    """Return integers for all edges: ``draw(source, nodes, edges)``, at once or node by node.

    With one source per node, the draws of a node depend only on its own source.
    """
    source = check_source(source, len(degrees))
    if isinstance(source, NoiseSource):
        return draw(source, slice(None), slice(None))
    ends = np.concatenate([[0], np.cumsum(degrees)])
    parts = [
        draw(stream, slice(p, p + 1), slice(int(ends[p]), int(ends[p + 1])))
        for p, stream in enumerate(source)
    ]
    return np.concatenate(parts)


def fineness(multipliers: np.ndarray) -> np.ndarray:
    """Return the number of units, a power of two, that a range with such noise is divided into."""
    exponents = np.frexp(multipliers)[1]
    bits = np.minimum(_FINENESS_BITS, _LARGEST_SCALE_BITS - exponents)
    if (bits < 1).any():
        raise ValueError("noise would be more than 2**35 times the range: choose a larger epsilon.")
    return np.ldexp(1.0, bits)


def grid_values(values: np.ndarray, low: Any, high: Any, units: np.ndarray) -> np.ndarray:
    """Return values above `low` in grid units, as integers; NaN counts as `low`."""
    inside = np.clip(np.where(np.isnan(values), low, values), low, high)
    return np.floor((inside - low) / units + 0.5).astype(np.int64)


def check_range(low: Any, high: Any) -> tuple[float, float]:
    """Return the ends of a range as floats, or raise."""
    ends = float(low), float(high)
    width = ends[1] - ends[0]
    if not (ends[0] < ends[1] and _LEAST_WIDTH < width < math.inf):
        raise ValueError(f"the range must be finite, with low < high, got {low!r} and {high!r}.")
    return ends


def check_values(values: Any, n_edges: int) -> np.ndarray:
    """Return one double per edge; raise only for a public mistake, not for private values."""
    found = private_doubles(values)
    if found.shape != (n_edges,):
        raise ValueError(f"there must be one number for each of {n_edges} edges.")
    return found


def rounded_down_share(epsilon: np.ndarray, count: Any) -> np.ndarray:
    """Return an amount that, added up `count` times, is at most epsilon."""
    return epsilon / count / (1 + math.ulp(1.0) * 4)
