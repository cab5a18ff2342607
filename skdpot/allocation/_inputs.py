"""Utilities that their nodes release themselves, once, before anyone plans with them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from skdpot.privacy.random import NoiseSource
from skdpot.releases import UtilityNoise, UtilityResponse
from skdpot.transport.consensus import BipartiteNetwork

MECHANISMS: dict[str, Any] = {"input": UtilityResponse, "input_laplace": UtilityNoise}


def make_releases(
    mechanism: str,
    network: BipartiteNetwork,
    *,
    epsilon: float,
    ranges: Sequence[tuple[float, float]],
    protect: str,
    factors: Sequence[Any],
    both: bool,
) -> list[Any]:
    """Return how the targets release their utilities, and the sources, if `both` do.

    Parameters
    ----------
    mechanism : {"input", "input_laplace"}
        Randomised response, or Laplace noise.
    network : BipartiteNetwork
        The public network.
    epsilon : float
        Budget of every node.
    ranges : pair of (low, high)
        Declared ranges, of the targets and of the sources.
    protect : {"parameter", "node"}
        The unit of privacy.
    factors : pair of float or array-like
        What part of epsilon each node spends.
    both : bool
        Whether sources have utilities.

    Returns
    -------
    list of {UtilityResponse, UtilityNoise}
        One for each side that has something to release.
    """
    sides = (network.targets, network.sources)[: 1 + both]
    return [
        MECHANISMS[mechanism](
            epsilon, low=low, high=high, degrees=side.degrees, protect=protect, factors=of_nodes
        )
        for side, (low, high), of_nodes in zip(sides, ranges, factors, strict=False)
    ]  # fmt: skip


def release_utilities(
    releases: Sequence[Any],
    network: BipartiteNetwork,
    values: Sequence[np.ndarray],
    source: NoiseSource,
) -> list[np.ndarray]:
    """Return what everybody may know of the utilities: their means, given what was released.

    Parameters
    ----------
    releases : sequence of {UtilityResponse, UtilityNoise}
        As of :func:`make_releases`.
    network : BipartiteNetwork
        The public network.
    values : sequence of ndarray of shape (n_edges,)
        Private: of the targets, and of the sources, in the order of the targets.
    source : NoiseSource
        Of all noise.

    Returns
    -------
    list of ndarray of shape (n_edges,)
        Within the declared ranges, in the order of the targets.
    """
    told = [releases[0].estimate(releases[0].run(values[0], source))]
    if len(releases) > 1:
        in_order = values[1][network.sources.positions]
        answers = releases[1].estimate(releases[1].run(in_order, source))
        told.append(answers[network.targets.positions])
    return told
