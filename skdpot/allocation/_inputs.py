"""The release of utilities by their nodes, once, before a plan is computed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent
from skdpot.privacy.preview import ExpectedError
from skdpot.privacy.random import NoiseSource
from skdpot.releases import UTILITY_MECHANISMS, Release
from skdpot.transport.consensus import BipartiteNetwork


@dataclass(frozen=True, eq=False)
class UtilityReleases(Release):
    """The releases of utilities by the nodes of both sides.

    Attributes
    ----------
    network : BipartiteNetwork
        The public network.
    sides : tuple of {UtilityResponse, UtilityNoise}
        The releases of the targets, and those of the sources if they have utilities.
    """

    network: BipartiteNetwork
    sides: tuple[Any, ...]

    @classmethod
    def plan(
        cls,
        mechanism: str,
        network: BipartiteNetwork,
        *,
        epsilon: float,
        ranges: Any,
        protect: str,
        factors: Any,
        n_sides: int,
    ) -> "UtilityReleases":
        """Return the releases of the sides, with a range and budgets for each of them."""
        sides = (network.targets, network.sources)[:n_sides]
        return cls(
            network,
            tuple(
                UTILITY_MECHANISMS[mechanism](
                    epsilon, low=low, high=high, degrees=side.degrees, protect=protect,
                    factors=of_nodes,
                )
                for side, (low, high), of_nodes in zip(sides, ranges, factors, strict=False)
            ),
        )  # fmt: skip

    @property
    def event(self) -> DpEvent:
        """Return the event of the node that spends most: a unit of privacy belongs to one node."""
        return max(self.sides, key=lambda side: side.epsilons.max(initial=0.0)).event

    @property
    def epsilons(self) -> tuple[np.ndarray, ...]:
        """Return the epsilon of each target, and of each source."""
        return tuple(side.epsilons for side in self.sides)

    def expected_errors(self, n_records: int) -> tuple[ExpectedError, ...]:
        """Return the standard errors of a utility; the scale is the error without a release."""
        return tuple(
            ExpectedError(
                f"standard error of a utility of a {node}", side.standard_error, side.spread
            )
            for node, side in zip(("target", "source"), self.sides, strict=False)
        )

    def sensitivity(self, relation: str) -> float:
        """Return the larger sensitivity of both sides, in units of their releases."""
        return max(side.sensitivity(relation) for side in self.sides)

    def run(self, values: Any, source: NoiseSource) -> tuple[np.ndarray, ...]:
        """Return posterior means of the utilities, in the order of the targets."""
        orders = (slice(None), self.network.sources.positions)
        back = (slice(None), self.network.targets.positions)
        return tuple(
            release.estimate(release.run(side_values[order], source))[again]
            for release, side_values, order, again in zip(
                self.sides, values, orders, back, strict=False
            )
        )
