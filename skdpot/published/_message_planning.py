"""The choice of rounds, queries and penalties, from public quantities only."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    Side,
    make_network,
    starting_eta,
)

from ._message_rounds import DeclaredUtilities, make_noise, private_consensus

ROUNDS = (1, 2, 5, 10, 20, 50, 100, 200)
# Penalties that are tried, relative to `starting_eta`.
PENALTIES = (1.0, 4.0, 16.0, 64.0)
# Maximum number of edges of all networks that are simulated for one plan, and of one network.
_SIMULATED_EDGES, _LARGEST = 500, 4000
_MOST_DRAWS = 3
# Factor by which explained variance that tells the best edges is worth more (found in simulations
# of the case study).
_WORTH = 2.0


@dataclass(frozen=True)
class RoundPlan:
    """The rounds, queries and penalty of an agreement.

    Attributes
    ----------
    n_rounds : int
        Number of messages of every node, for which the budget is divided.
    queries : pair of {"utilities", "best"} or None
        The query that a single message of targets and of sources answers, see
        ``estimate_utilities``. None is for rounds of consensus.
    eta : float
        Penalty of the rounds; NaN for a query, which has one of its own.
    average_from : int or None
        The first round that is averaged.
    """

    n_rounds: int
    queries: tuple[str, str] | None = None
    eta: float = math.nan
    average_from: int | None = None


@dataclass(frozen=True, eq=False)
class PlainNoise:
    """Noise for simulations, distributed nearly as in `MessageReleases`.

    It gives no privacy.

    Parameters
    ----------
    spreads : ndarray of shape (n_nodes,)
        Standard deviations.
    degrees : ndarray of shape (n_nodes,)
        Numbers of edges.
    spherical : bool
        Whether its length has the distribution of noise without a delta.
    rng : Generator
        Where it comes from.
    """

    spreads: np.ndarray
    degrees: np.ndarray
    spherical: bool
    rng: np.random.Generator

    def run(self, messages: np.ndarray, eta: float, *, error: Any = 0.0) -> np.ndarray:
        """Return messages with noise."""
        spreads = self.spreads
        if self.spherical:
            lengths = self.rng.chisquare(self.degrees + 1.0) / (self.degrees + 1.0)
            spreads = spreads * np.sqrt(lengths)
        each = np.repeat(spreads, self.degrees)
        return messages + each * self.rng.standard_normal(len(messages))


def plan_rounds(
    network: BipartiteNetwork,
    declared: tuple[DeclaredUtilities | None, DeclaredUtilities | None],
    *,
    epsilon: float,
    delta: float,
    protect: str = "parameter",
    factors: tuple[Any, Any] = (1.0, 1.0),
    n_rounds: int | None = None,
    eta: float | None = None,
    averaging: bool = True,
    random_state: int = 0,
) -> RoundPlan:
    """Return the rounds that lead to most welfare, without a look at the utilities.

    A function of public arguments. With `averaging`, neither `n_rounds` nor `eta`, and utilities of
    a named family, nodes send a single message, from which utilities are estimated.

    *One message.* Let no bound of a node matter, as with a large penalty. Then the message is
    :math:`z + (a - \\alpha) / \\eta`. Noise for :math:`R / \\eta` hides :math:`a` for any
    :math:`\\eta` as well as noise for R hides :math:`a` itself. K rounds of Gaussian noise have the
    same information in total; of spherical noise, less. So one round is enough.
    Whole nodes differ: :math:`\\sqrt d R / \\eta` grows with the degree, and :math:`\\sqrt 2 h`,
    the most by which any message moves, does not. So with much noise a small penalty is better, for
    which a message names the best edge.

    *Rounds* are simulated, with utilities drawn from the declared ranges and plain noise of the
    same standard deviation. Networks with more than 4,000 edges are simulated on some targets.
    """
    named = not any(
        declared_side is not None and callable(declared_side.family) for declared_side in declared
    )
    budget = {"epsilon": epsilon, "delta": delta, "protect": protect}
    if averaging and named and n_rounds is None and eta is None:
        sides = (network.targets, network.sources)
        asked = [
            _query(side, declared_side, factor, budget)
            for side, declared_side, factor in zip(sides, declared, factors, strict=True)
        ]
        return RoundPlan(1, queries=(asked[0], asked[1]))
    start = starting_eta(
        network, max(declared_side.width for declared_side in declared if declared_side is not None)
    )
    counts = ROUNDS if n_rounds is None else (n_rounds,)
    penalties = [start * share for share in PENALTIES] if eta is None else [eta]
    plans = [
        RoundPlan(count, eta=penalty, average_from=count // 2 + 1 if averaging else None)
        for count in counts
        for penalty in penalties
    ]
    if len(plans) == 1:
        return plans[0]
    return _best_of(plans, network, declared, factors, budget, random_state)


def _query(side: Side, declared: DeclaredUtilities | None, factors: Any, budget: dict) -> str:
    """Return the query of the single message of the nodes of a side."""
    if declared is None or declared.family != "linear" or budget["protect"] == "parameter":
        return "utilities"
    caps = side.upper[(side.upper > 0) & (side.degrees > 0)]
    if not declared.width or not len(caps):
        return "utilities"
    noise: Any = make_noise(side, declared, n_rounds=1, factors=factors, source=0, **budget)
    # So large that no bound matters.
    eta = 1e6 * declared.width * side.degrees.max() / caps.min()
    loudness = noise.standard_deviations(eta) * eta / declared.width
    degrees = side.degrees
    # Explained shares of the variance: by Gaussian noise on uniform parameters, and by the name of
    # the best of d edges.
    of_all = 1.0 / (1.0 + 12.0 * loudness**2)
    of_best = 3.0 * (degrees - 1.0) / (degrees + 1.0) ** 2
    asked = (side.upper > 0) & (degrees > 0)
    return "best" if np.median((_WORTH * of_best - of_all)[asked]) > 0 else "utilities"


def _best_of(plans, network, declared, factors, budget, seed):
    """Return the plan with the most welfare in simulations, all with the same utilities."""
    sides = (network.targets, network.sources)
    small, targets = _thinned(network, seed)
    kept = (targets, np.arange(network.shape[1]))
    n_draws = int(np.clip(_SIMULATED_EDGES // max(small.n_edges, 1), 1, _MOST_DRAWS))
    values, failure = [], None
    for plan in plans:
        try:
            noises = [
                make_noise(
                    side, declared_side, n_rounds=plan.n_rounds, factors=factor, source=0, **budget
                )
                for side, declared_side, factor in zip(sides, declared, factors, strict=True)
            ]
        except ValueError as error:
            # The budget of a round is too small for any noise, which is public.
            values.append(-np.inf)
            failure = error
            continue
        spreads = [
            None if noise is None else noise.standard_deviations(plan.eta)[nodes]
            for noise, nodes in zip(noises, kept, strict=True)
        ]
        of_draws = [
            _simulated(plan, small, declared, spreads, not budget["delta"], (seed, draw))
            for draw in range(n_draws)
        ]
        values.append(float(np.mean(of_draws)))
    if failure is not None and max(values) == -np.inf:
        raise failure
    return plans[int(np.argmax(values))]


def _thinned(network: BipartiteNetwork, seed: int) -> tuple[BipartiteNetwork, np.ndarray]:
    """Return a network of some of the targets if there are many edges, and those targets."""
    n_targets, n_sources = network.shape
    if network.n_edges <= _LARGEST:
        return network, np.arange(n_targets)
    n_kept = max(1, n_targets * _LARGEST // network.n_edges)
    targets = np.sort(np.random.default_rng(seed).choice(n_targets, n_kept, replace=False))
    edges = network.matrix(np.ones(network.n_edges))[targets]
    shares = edges.sum(axis=0) / np.maximum(network.sources.degrees, 1)
    given = shares * network.sources.upper
    received = network.targets.upper[targets]
    small = make_network(
        edges, np.c_[np.zeros(n_kept), received], np.c_[np.zeros(n_sources), given]
    )
    return small, targets


def _simulated(plan, network, declared, spreads, spherical, seed):
    """Return the welfare of the plan that rounds lead to, for utilities drawn from their range."""
    rng = np.random.default_rng(seed)
    utilities = [_drawn(declared_side, network.n_edges, rng) for declared_side in declared]
    sides = (network.targets, network.sources)
    noises = [
        None if spread is None else PlainNoise(spread, side.degrees, spherical, rng)
        for spread, side in zip(spreads, sides, strict=True)
    ]
    found = private_consensus(
        network, (utilities[0], utilities[1]), (noises[0], noises[1]), declared,
        eta=plan.eta, n_rounds=plan.n_rounds, average_from=plan.average_from,
    )  # fmt: skip
    return sum(
        float(utility.value(found.plan).sum()) for utility in utilities if utility is not None
    )


def _drawn(declared, n_edges, rng):
    """Return random utilities; for user-defined ones, linear ones with their marginals."""
    if declared is None:
        return None
    values = rng.uniform(declared.low, declared.high, n_edges)
    return LinearUtility(values) if callable(declared.family) else declared.make(values)
