"""The price of a composition of pairs: the choice of its grid, and its worst direction."""

import math

from scipy.special import ndtri_exp

from skdpot.privacy.accounting.composition import Composition
from skdpot.privacy.accounting.losses import (
    Pair,
    RandomisedResponsePair,
    ReversedPair,
    SampledPair,
    SymmetricPair,
)

# Grid points in a standard deviation of the loss of one release; more points change a price by less
# than 1e-4 of it. Then the maximum numbers of points of one distribution and of a composition.
_POINTS_PER_SPREAD = 64
_MOST_POINTS, _MOST_COMPOSED_POINTS = 2**20, 2**22
# For smaller spreads, squares of losses underflow.
_LEAST_SPREAD = 1e-150


def directed(pairs: dict[Pair, int], neighbouring: str) -> list[dict[Pair, int]]:
    """Return the pairs to be composed, for every direction in which neighbours differ.

    Under "add_remove" the record is in the first data set of all pairs or in none. Under
    "replace_one" it is in both, and the symmetric closure of a `SampledPair` bounds either
    direction.
    """
    if not pairs:
        return []
    sampled = [pair for pair in pairs if isinstance(pair, SampledPair)]
    if not sampled:
        return [pairs]
    ways = [SymmetricPair] if neighbouring == "replace_one" else [lambda pair: pair, ReversedPair]
    return [
        {(way(pair) if pair in sampled else pair): count for pair, count in pairs.items()}
        for way in ways
    ]


def composed_epsilon(pairs: dict[Pair, int], delta: float) -> float:
    """Return the epsilon of a composition of pairs at delta."""
    log_negligible = math.log(delta) - math.log(1e12 * sum(pairs.values()))
    return _composition(pairs, _far(log_negligible)).epsilon(delta)


def composed_delta(pairs: dict[Pair, int], epsilon: float) -> float:
    """Return the delta of a composition of pairs at epsilon."""
    n_pairs = sum(pairs.values())
    for log_negligible in (-50, -150, -450, -700):
        far = _far(log_negligible - math.log(n_pairs))
        found = _composition(pairs, far).delta(epsilon)
        if found > math.exp(log_negligible + 25):
            break
    return found


def _far(log_probability: float) -> float:
    """Return the number of standard deviations, an integer, that noise exceeds this rarely."""
    return math.ceil(-ndtri_exp(log_probability))


def _composition(pairs: dict[Pair, int], far: float) -> Composition:
    step = _step(pairs)
    return Composition([(pair.on_grid(step, far), count) for pair, count in pairs.items()])


def _step(pairs: dict[Pair, int]) -> float:
    """Return the width of the grid: a power of two, or a fraction of the most frequent losses.

    For one kind of sampled pair it never decreases as the pair's distributions move apart or the
    count grows. Prices are higher on a coarser grid, so they increase as well.
    """
    n_pairs = sum(pairs.values())
    spread = math.sqrt(sum(count * pair.spread**2 for pair, count in pairs.items()))
    # A grid includes the loss 0, however far the losses are from it.
    ranges = [pair.loss_range(12.0) for pair in pairs]
    widest = max(max(high, 0.0) - min(low, 0.0) for low, high in ranges)
    spread = max(spread, _LEAST_SPREAD)
    wanted = spread / math.sqrt(n_pairs) / _POINTS_PER_SPREAD
    needed = max(widest / _MOST_POINTS, 20 * spread / _MOST_COMPOSED_POINTS)
    step = 2.0 ** max(math.floor(math.log2(wanted)), math.ceil(math.log2(needed)))
    responses = [
        pair for pair in pairs if isinstance(pair, RandomisedResponsePair) and pair.epsilon >= step
    ]
    if responses:
        epsilon = max(responses, key=lambda pair: pairs[pair] * pair.epsilon**2).epsilon
        step = epsilon / math.ceil(epsilon / step)
    return step
