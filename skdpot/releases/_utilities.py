"""The single release of the utilities of network nodes, and its Laplace noise."""

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from skdpot.privacy.accounting import RAISED
from skdpot.privacy.checks import check_choice
from skdpot.privacy.events import DpEvent, LaplaceDpEvent
from skdpot.privacy.noise import rounded_laplace
from skdpot.privacy.random import NoiseSource
from skdpot.privacy.sensitivity import PROTECTED, utility_sensitivity
from skdpot.releases._nodes import (
    LARGEST_SUM,
    NodeBudgets,
    check_degrees,
    check_range,
    check_values,
    draw_for_nodes,
    fineness,
    grid_values,
)
from skdpot.releases._release import Release

# If noise is this much larger than the range, the estimate is the middle of the range.
_NOTHING_LEARNT = 1e6


class UtilityRelease(Release):
    """Base of single releases of one parameter per edge, in a public range.

    The released values are the parameters of all nodes, one after another, of shape (n_edges,).
    Values beyond the range are clipped, and NaN becomes its lower end. A subclass computes its
    public quantities in :meth:`_prepare`. Noise comes from one source, or from one source per node;
    then the noise of a node does not depend on others.
    """

    def __init__(
        self,
        epsilon: float,
        *,
        low: float,
        high: float,
        degrees: Any,
        protect: str = "parameter",
        factors: Any = 1.0,
    ) -> None:
        self._low, self._high = check_range(low, high)
        self._degrees = check_degrees(degrees)
        check_choice("protect", protect, PROTECTED)
        self._protect = protect
        self._budgets = NodeBudgets.divide(epsilon, 0.0, factors, len(self._degrees))
        self._of_edge = np.repeat(np.arange(len(self._degrees)), self._degrees)
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Choose noise or levels."""

    @property
    def epsilons(self) -> np.ndarray:
        """Return the epsilon of each node."""
        return self._budgets.epsilons.copy()

    @property
    def spread(self) -> float:
        """Return the standard deviation of a parameter that is uniform in its range."""
        return (self._high - self._low) / math.sqrt(12.0)

    @property
    @abstractmethod
    def standard_error(self) -> float:
        """Return a bound on the root mean square error of `estimate`, for uniform parameters."""

    @abstractmethod
    def node_event(self, node: int) -> DpEvent:
        """Return the event of one node's release, the charge to a ledger of the node."""

    @abstractmethod
    def estimate(self, released: Any) -> np.ndarray:
        """Return the mean of every edge's parameter, given its release; private by post-processing.

        A parameter is assumed to be uniform over the declared range. If parameters are independent
        and uniform, and welfare is linear in them, then no plan from the releases has a larger
        expected welfare than the best plan for these means. Raises ValueError if there is not one
        number per edge.
        """


class UtilityNoise(UtilityRelease):
    """Laplace noise on a utility parameter of each edge, added by the node at one of its ends.

    Parameters are clipped to a declared range, become integers in units of about a millionth of it,
    and get exact integer noise. Everything computed from them later is post-processing.
    :class:`~skdpot.releases.UtilityResponse` is more informative at the same budget.

    Parameters
    ----------
    epsilon : float
        Budget of a node, above 0.
    low, high : float
        The declared range, which must be public.
    degrees : array-like of int, shape (n_nodes,)
        Numbers of edges. Parameters are given node after node.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the parameter of one edge at this end, or all of a node's.
    factors : float or array-like of shape (n_nodes,), default=1.0
        Share of epsilon that each node spends, in (0, 1].

    Attributes
    ----------
    epsilons : ndarray of shape (n_nodes,)
        Epsilon of each node.
    scales : ndarray of shape (n_nodes,)
        Mean magnitude of the noise.
    event : DpEvent
        The charge of all nodes together: a unit of privacy belongs to one node.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or needs more noise than can be drawn.

    Notes
    -----
    The integers lie between 0 and U, the number of units, despite rounding. So one parameter moves
    them by at most U, and all d parameters of a node move them by at most ``d U`` in the l1 norm
    (:ref:`proof-private-utilities`).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.random import make_source
    >>> from skdpot.releases import UtilityNoise
    >>> noise = UtilityNoise(2.0, low=1.0, high=5.0, degrees=[2, 1])
    >>> noise.event
    LaplaceDpEvent(noise_multiplier=0.5)
    >>> noise.scales.round(6)
    array([2., 2.])
    >>> released = noise.run(np.array([5.0, 1.0, 3.0]), make_source(0))
    >>> noise.estimate(released).shape
    (3,)
    """

    def _prepare(self) -> None:
        # In units of the range.
        multipliers = self._budgets.multipliers * self._moved(1.0, "replace_one")
        n_units = fineness(multipliers)
        self._units = (self._high - self._low) / n_units
        self._grid_scales = multipliers * n_units * RAISED

    def _moved(self, width: float, relation: str) -> np.ndarray:
        return utility_sensitivity(width, self._degrees, protect=self._protect, relation=relation)

    def sensitivity(self, relation: str) -> float:
        return float(self._moved(self._high - self._low, relation).max())

    @property
    def scales(self) -> np.ndarray:
        """Return the scale of each node's noise."""
        return self._grid_scales * self._units

    @property
    def event(self) -> DpEvent:
        return self.node_event(self._budgets.worst)

    def node_event(self, node: int) -> DpEvent:
        return LaplaceDpEvent(float(self._budgets.multipliers[node]))

    @property
    def standard_error(self) -> float:
        # Variance that the best linear estimate leaves; the best estimate leaves less.
        noise, uniform = 2.0 * self.scales[self._of_edge] ** 2, self.spread**2
        return math.sqrt(float(np.mean(noise * uniform / (noise + uniform))))

    def run(self, values: Any, source: Any) -> np.ndarray:
        """Return noisy parameters: unbiased, and often beyond the range."""
        parameters = check_values(values, len(self._of_edge))
        units = self._units[self._of_edge]
        # From 0 to the number of units, since rounded differences and quotients are monotone.
        integers = grid_values(parameters, self._low, self._high, units)
        noise = draw_for_nodes(source, self._degrees, self._draw)
        sums = np.clip(integers + noise, -LARGEST_SUM, LARGEST_SUM)
        return self._low + sums * units

    def estimate(self, released: Any) -> np.ndarray:
        noisy = check_values(released, len(self._of_edge))
        middle = (self._low + self._high) / 2
        scales = self.scales[self._of_edge]
        half = np.maximum((self._high - middle) / scales, 1 / _NOTHING_LEARNT)
        centred = (noisy - middle) / scales
        means = _mean_after_laplace(np.clip(centred, -half, half), half)
        return np.clip(middle + scales * means, self._low, self._high)

    def _draw(self, source: NoiseSource, nodes: slice, edges: slice) -> np.ndarray:
        scales = np.repeat(self._grid_scales[nodes], self._degrees[nodes])
        return rounded_laplace(source, scales, scales.shape)


def _mean_after_laplace(centred: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Return the mean of a uniform variable on ``[-h, h]``, given y, its sum with a Laplace one.

    The density is ``exp(-|y - a|)``. Beyond the ends the mean does not depend on y, so y may be
    clipped.
    """
    below, above = centred + half, half - centred
    # On [0, w], exp(-s) has the mass 1 - exp(-w), and the first moment of that less w exp(-w).
    mass_below, mass_above = -np.expm1(-below), -np.expm1(-above)
    moment_below = mass_below - below * np.exp(-below)
    moment_above = mass_above - above * np.exp(-above)
    return centred + (moment_above - moment_below) / (mass_below + mass_above)
