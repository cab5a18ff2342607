"""Laplace noise on the utilities of the nodes of a network, which are released once."""

from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent, LaplaceDpEvent
from skdpot.privacy.exact_noise import rounded_laplace
from skdpot.privacy.random import NoiseSource
from skdpot.releases._nodes import (
    LARGEST_SUM,
    RAISED,
    UtilityRelease,
    check_values,
    draw_for_nodes,
    fineness,
    grid_values,
)

__all__ = ["UtilityNoise"]

# Noise so much larger than the range says nothing that doubles could tell from its middle.
_NOTHING_LEARNT = 1e6


class UtilityNoise(UtilityRelease):
    """Laplace noise on a parameter of each edge's utility at one of its ends.

    Parameters are clipped to a declared range, become integers in units of about a millionth of it,
    and get exact integer noise. What is made of them later is post-processing.
    :class:`~skdpot.releases._responses.UtilityResponse` tells more for the same budget.

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
        What part of epsilon each node spends, above 0 and at most 1.
    source : random_state, NoiseSource, or sequence of one per node, default=None
        Where noise comes from. With a source per node, its noise depends on no other node.

    Attributes
    ----------
    epsilons : ndarray of shape (n_nodes,)
        What each node spends.
    scales : ndarray of shape (n_nodes,)
        Mean magnitude of the noise.
    event : DpEvent
        What all nodes together are to be charged as: a unit of privacy belongs to one node.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or asks for more noise than can be drawn.

    Notes
    -----
    The integers lie between 0 and a number of units, U, whatever rounding did, so that a parameter
    moves them by at most U, and all d of a node by at most ``d U`` in the l1 norm
    (:ref:`proof-private-utilities`).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases._utilities import UtilityNoise
    >>> noise = UtilityNoise(2.0, low=1.0, high=5.0, degrees=[2, 1], source=0)
    >>> noise.event
    LaplaceDpEvent(noise_multiplier=0.5)
    >>> noise.scales.round(6)
    array([2., 2.])
    >>> released = noise.release(np.array([5.0, 1.0, 3.0]))
    >>> noise.estimate(released).shape
    (3,)
    """

    def _prepare(self) -> None:
        edges = np.maximum(self._degrees, 1) if self._by_node else np.ones_like(self._degrees)
        multipliers = self._budgets.multipliers * edges
        n_units = fineness(multipliers)
        self._units = (self._high - self._low) / n_units
        self._grid_scales = multipliers * n_units * RAISED

    @property
    def scales(self) -> np.ndarray:
        """Return the scale of each node's noise."""
        return self._grid_scales * self._units

    @property
    def event(self) -> DpEvent:
        """Return what all nodes together are charged as."""
        return self.node_event(self._budgets.worst)

    def node_event(self, node: int) -> DpEvent:
        """Return what the release of one node is.

        Parameters
        ----------
        node : int
            Its index.

        Returns
        -------
        DpEvent
            That of Laplace noise.
        """
        return LaplaceDpEvent(float(self._budgets.multipliers[node]))

    def release(self, parameters: Any) -> np.ndarray:
        """Return parameters with noise; every call is a release of its own.

        Parameters
        ----------
        parameters : array-like of shape (n_edges,)
            Private: of all nodes, one after another. What is beyond the range is moved to its end,
            and NaN to its lower one.

        Returns
        -------
        ndarray of shape (n_edges,)
            Unbiased, and mostly beyond the range where there is much noise.

        Raises
        ------
        TypeError
            If parameters are text, or complex.
        ValueError
            If there is not one parameter per edge.
        """
        values = check_values(parameters, len(self._of_edge))
        units = self._units[self._of_edge]
        # From 0 to the number of units, since rounded differences and quotients are monotone.
        integers = grid_values(values, self._low, self._high, units)
        noise = draw_for_nodes(self._sources, self._degrees, self._draw)
        sums = np.clip(integers + noise, -LARGEST_SUM, LARGEST_SUM)
        return self._low + sums * units

    def estimate(self, released: Any) -> np.ndarray:
        """Return what parameters are on average, given their releases.

        Parameters
        ----------
        released : array-like of shape (n_edges,)
            What `release` returned.

        Returns
        -------
        ndarray of shape (n_edges,)
            The mean of a parameter that was uniform over the declared range before it was released.
            Where welfare is linear in the parameters, and these are independent and uniform, the
            plan that is best for these means has the largest expected welfare of all plans that can
            be made of the releases.

        Raises
        ------
        ValueError
            If there is not one number per edge.

        Notes
        -----
        Post-processing, and private whatever the parameters are.
        """
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
    """Return the mean of a uniform variable on ``[-h, h]`` given it and a Laplace one add up to y.

    The density is ``exp(-|y - a|)``. Beyond the ends it does not depend on y, so that y may be
    clipped to them.
    """
    below, above = centred + half, half - centred
    # Of exp(-s) from 0 to w the mass is 1 - exp(-w), and the first moment that less w exp(-w).
    mass_below, mass_above = -np.expm1(-below), -np.expm1(-above)
    moment_below = mass_below - below * np.exp(-below)
    moment_above = mass_above - above * np.exp(-above)
    return centred + (moment_above - moment_below) / (mass_below + mass_above)
