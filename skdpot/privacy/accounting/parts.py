"""The parts of a plan: pairs of distributions, and zero-concentrated privacy."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from skdpot.privacy import events as ev
from skdpot.privacy.accounting.guarantees import consists_of, squared_gaussian_mu
from skdpot.privacy.accounting.losses import (
    CentredPair,
    GaussianPair,
    LaplacePair,
    Pair,
    RandomisedResponsePair,
    SampledPair,
)
from skdpot.privacy.accounting.pricing import composed_epsilon, directed

# Events that are a single pair when they are sampled.
_SINGLE = (ev.ApproximateDpEvent, ev.GaussianDpEvent, ev.LaplaceDpEvent, ev.PureDpEvent)


@dataclass
class Parts:
    """Pairs that dominate the releases of a plan, apart from failures.

    Attributes
    ----------
    neighbouring : {"add_remove", "replace_one"}
        The relation.
    amplified : bool
        Whether a sampled series of releases counts as sampled Gaussian noise that it does not
        exceed, rather than as if it were not sampled.
    pairs : Counter of Pair
        The pairs, and the number of each.
    rho, xi : float
        Sums over the parts that are known by their zero-concentrated privacy alone.
    """

    neighbouring: str
    amplified: bool
    pairs: Counter[Pair] = field(default_factory=Counter)
    rho: float = 0.0
    xi: float = 0.0
    _squared_mu: float = 0.0

    @classmethod
    def alternatives(cls, event: ev.DpEvent, neighbouring: str) -> list["Parts"]:
        """Return the parts of an event, in all decompositions with a price of their own."""
        found: list[Parts] = []
        for amplified in (True, False):
            parts = cls(neighbouring, amplified)
            parts._add(event, 1)
            if parts._squared_mu:
                parts.pairs[GaussianPair(math.sqrt(parts._squared_mu))] += 1
            if not found or found[0].pairs != parts.pairs:
                found.append(parts)
        return found

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the pairs at delta, and 0 if there are none."""
        directions = directed(self.pairs, self.neighbouring)
        return max((composed_epsilon(pairs, delta) for pairs in directions), default=0.0)

    def _add(self, event: Any, count: int) -> None:
        for leaf, times in ev.leaves(event):
            self._add_leaf(leaf, count * times)

    def _add_leaf(self, leaf: Any, count: int) -> None:
        match leaf:
            case ev.GaussianDpEvent():
                self._squared_mu += count * squared_gaussian_mu(leaf)
            case ev.ZCDpEvent(rho=rho, xi=xi) if rho > 0:
                self.rho += count * rho
                self.xi += count * xi
            case ev.PoissonSampledDpEvent():
                self._add_sampled(leaf.sampling_probability, leaf.event, count)
            case _:
                self._add_pair(_whole_pair(leaf), count)

    def _add_sampled(self, rate: float, event: Any, count: int) -> None:
        released = list(ev.leaves(event))
        if len(released) == 1 and released[0][1] == 1:
            event = released[0][0]
        if isinstance(event, ev.PoissonSampledDpEvent):
            self._add_sampled(rate * event.sampling_probability, event.event, count)
        elif rate > 0:
            single = isinstance(event, _SINGLE) or consists_of(event, ev.GaussianDpEvent)
            known = math.isfinite(squared_gaussian_mu(event)) and (single or self.amplified)
            pair = _whole_pair(event) if known and rate < 1 else None
            if pair is None:
                # Counting the event without the sampling is an upper bound.
                self._add(event, count)
            elif self.neighbouring == "replace_one" and consists_of(
                event, ev.CentredGaussianDpEvent
            ):
                self._add_pair(CentredPair(rate, math.sqrt(squared_gaussian_mu(event)) / 2), count)
            else:
                self._add_pair(SampledPair(rate, pair), count)

    def _add_pair(self, pair: Pair | None, count: int) -> None:
        if pair is not None:
            self.pairs[pair] += count


def _whole_pair(event: Any) -> Pair | None:
    """Return a symmetric pair that dominates a release, or None if the release is empty."""
    match event:
        case ev.LaplaceDpEvent():
            return LaplacePair(1 / event.noise_multiplier)
        case ev.PureDpEvent() | ev.ApproximateDpEvent():
            return RandomisedResponsePair(float(event.epsilon)) if event.epsilon else None
        case ev.ZCDpEvent():
            return RandomisedResponsePair(float(event.xi)) if event.xi else None
    mu = math.sqrt(squared_gaussian_mu(event))
    return GaussianPair(mu) if mu else None
