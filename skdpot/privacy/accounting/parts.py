"""What a plan consists of: pairs of distributions, and zero-concentrated privacy."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from skdpot.privacy.accounting.guarantees import consists_of, squared_gaussian_mu
from skdpot.privacy.accounting.losses import (
    CentredPair,
    GaussianPair,
    LaplacePair,
    Pair,
    RandomisedResponsePair,
    SampledPair,
)
from skdpot.privacy.accounting.pricing import composed_delta, composed_epsilon, directed
from skdpot.privacy.events import (
    ApproximateDpEvent,
    CentredGaussianDpEvent,
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)

# What is one pair when it is sampled.
_SINGLE = (ApproximateDpEvent, GaussianDpEvent, LaplaceDpEvent, PureDpEvent)


@dataclass
class Parts:
    """Pairs at least as far apart as what a plan releases; failures aside.

    Attributes
    ----------
    neighbouring : {"add_remove", "replace_one"}
        The relation.
    amplified : bool
        Whether a sampled series of releases counts as sampled Gaussian noise that it does not
        exceed, rather than as if it were not sampled.
    pairs : Counter of Pair
        How many there are of each.
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
    def alternatives(cls, event: DpEvent, neighbouring: str) -> list["Parts"]:
        """Return what an event consists of, in all ways that lead to a price of their own."""
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
        prices = [composed_epsilon(pairs, delta) for pairs in self._directions()]
        return max(prices, default=0.0)

    def delta(self, epsilon: float) -> float:
        """Return the delta of the pairs at epsilon, and 0 if there are none."""
        prices = [composed_delta(pairs, epsilon) for pairs in self._directions()]
        return max(prices, default=0.0)

    def _directions(self) -> list[dict[Pair, int]]:
        return directed(self.pairs, self.neighbouring)

    def _add(self, event: Any, count: int) -> None:
        match event:
            case NoOpDpEvent():
                pass
            case GaussianDpEvent():
                self._squared_mu += count * event.noise_multiplier**-2.0
            case ZCDpEvent(rho=rho) if rho > 0:
                self.rho += count * rho
                self.xi += count * event.xi
            case PureDpEvent() | ApproximateDpEvent() | LaplaceDpEvent() | ZCDpEvent():
                self._add_pair(_whole_pair(event), count)
            case PoissonSampledDpEvent():
                self._add_sampled(event.sampling_probability, event.event, count)
            case PlannedDpEvent():
                self._add(event.event, count)
            case SelfComposedDpEvent():
                self._add(event.event, count * int(event.count))
            case ComposedDpEvent():
                for part in event.events:
                    self._add(part, count)

    def _add_sampled(self, rate: float, event: Any, count: int) -> None:
        event = _only_part(event)
        if isinstance(event, PoissonSampledDpEvent):
            self._add_sampled(rate * event.sampling_probability, event.event, count)
        elif rate > 0:
            single = isinstance(event, _SINGLE) or consists_of(event, GaussianDpEvent)
            known = math.isfinite(squared_gaussian_mu(event)) and (single or self.amplified)
            pair = _whole_pair(event) if known and rate < 1 else None
            if pair is None:
                # To sample first never costs.
                self._add(event, count)
            elif self.neighbouring == "replace_one" and consists_of(event, CentredGaussianDpEvent):
                self._add_pair(CentredPair(rate, math.sqrt(squared_gaussian_mu(event)) / 2), count)
            else:
                self._add_pair(SampledPair(rate, pair), count)

    def _add_pair(self, pair: Pair | None, count: int) -> None:
        if pair is not None and count:
            self.pairs[pair] += count


def _only_part(event: Any) -> Any:
    """Return what is released if it is wrapped in events that add nothing to it."""
    match event:
        case SelfComposedDpEvent(count=1) | PlannedDpEvent():
            return _only_part(event.event)
        case ComposedDpEvent(events=[part]):
            return _only_part(part)
    return event


def _whole_pair(event: Any) -> Pair | None:
    """Return a symmetric pair at least as far apart as a release, or None if it tells nothing."""
    match event:
        case LaplaceDpEvent():
            return LaplacePair(1 / event.noise_multiplier)
        case PureDpEvent() | ApproximateDpEvent():
            return RandomisedResponsePair(float(event.epsilon)) if event.epsilon else None
        case ZCDpEvent():
            return RandomisedResponsePair(float(event.xi)) if event.xi else None
    mu = math.sqrt(squared_gaussian_mu(event))
    return GaussianPair(mu) if mu else None
