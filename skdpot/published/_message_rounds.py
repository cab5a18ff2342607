"""Rounds of noisy messages, by which nodes agree on a plan.

A node's utilities leave it in messages of :class:`~skdpot.releases.MessageReleases` only. All
results here are computed from those, and from public numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from skdpot.privacy.foreign import quiet, result_of, silence
from skdpot.privacy.sensitivity import marginal_bounds, message_error
from skdpot.releases import MessageReleases
from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    Side,
    SideState,
    make_utility,
    repair,
    starting_amounts,
)

# With loud noise, the projection of the messages may fail; amounts nearer to the start are tried.
_SHARES = (1.0, 0.3, 0.1)


@dataclass(frozen=True)
class DeclaredUtilities:
    """The public facts about the utilities of one side.

    Attributes
    ----------
    family : str or callable
        ``"linear"``, ``"quadratic"``, ``"log"``, or a function from parameters to utilities.
    low, high : float
        The range of the private parameters; of utilities that a user defines, of their marginal
        utilities at any amount that a node may have.
    scale : float
        Curvature b of quadratic utilities, and c in ``a log(1 + x / c)``.
    """

    family: str | Callable
    low: float
    high: float
    scale: float = 1.0

    @property
    def width(self) -> float:
        """Return the width of the range."""
        return self.high - self.low

    def make(self, values: np.ndarray) -> Any:
        """Return utilities with parameters, which are clipped to the range if they are private."""
        if callable(self.family):
            return self.family(values)
        values = np.clip(np.where(np.isnan(values), self.low, values), self.low, self.high)
        return make_utility(self.family, values, np.full_like(values, self.scale))

    def marginal_bounds(self, cap: float) -> tuple[float, float]:
        """Return the range of marginal utilities up to an amount, and their minimum curvature."""
        if callable(self.family):
            return self.width, 0.0
        ranges = {"a": (self.low, self.high)} | dict.fromkeys("bc", (self.scale, self.scale))
        return marginal_bounds(self.family, ranges, cap)

    def largest_marginal(self, cap: float) -> float:
        """Return the largest absolute marginal utility up to an amount."""
        largest = max(abs(self.low), abs(self.high))
        if self.family == "quadratic":
            return largest + self.scale * cap
        return largest / self.scale if self.family == "log" else largest


@dataclass(frozen=True, eq=False)
class ForeignUtility:
    """Utilities of a user's family with private parameters, for which no failure is visible.

    If the family fails, each edge is asked alone, so that no edge depends on the parameter of
    another. An edge that fails has the least declared marginal utility. Marginal utilities are
    clipped to the declared range, which the noise is scaled to.

    Attributes
    ----------
    declared : DeclaredUtilities
        Public.
    values : ndarray of shape (n_edges,)
        Private.
    """

    declared: DeclaredUtilities
    values: np.ndarray

    def take(self, edges: Any) -> "ForeignUtility":
        """Return the utilities of some edges."""
        return ForeignUtility(self.declared, self.values[edges])

    def derivative(self, x: np.ndarray) -> np.ndarray:
        """Return the marginal utilities of amounts."""
        low, high = self.declared.low, self.declared.high
        return np.clip(self._of("derivative", x, low), low, high)

    def second_derivative(self, x: np.ndarray) -> np.ndarray:
        """Return the slopes of the marginal utilities of amounts."""
        return np.minimum(self._of("second_derivative", x, 0.0), 0.0)

    def _of(self, method: str, x: np.ndarray, default: float) -> np.ndarray:
        ask = partial(_asked, self.declared.family, method)
        with silence():
            whole = result_of(partial(ask, self.values, x), None)
            if whole is not None:
                return np.where(np.isfinite(whole), whole, default)
            alone = [
                result_of(partial(ask, self.values[[e]], x[[e]]), np.full(1, np.nan))
                for e in range(len(x))
            ]
        found = np.concatenate(alone) if alone else np.zeros(0)
        return np.where(np.isfinite(found), found, default)


def _asked(family: Any, method: str, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the result of a method of a user's utility, or raise if it has another shape."""
    found = np.array(getattr(family(values.copy()), method)(x.copy()), dtype=np.float64)
    if found.shape != x.shape:
        raise ValueError("a number for each edge is needed.")
    return found


@dataclass(frozen=True, eq=False)
class Agreement:
    """The result of noisy messages; it is a function of these messages.

    Attributes
    ----------
    plan : ndarray of shape (n_edges,)
        Feasible plan nearest to `agreed`, in the order of the targets.
    agreed : ndarray of shape (n_edges,)
        Mean of both sides' amounts: of the last round, or averaged over rounds.
    prices : ndarray of shape (n_edges,)
        Dual variables, likewise.
    history : dict of str to ndarray
        ``n_iter``, ``eta``, ``primal_residual`` and ``dual_residual`` of every round.
    """

    plan: np.ndarray
    agreed: np.ndarray
    prices: np.ndarray
    history: dict[str, np.ndarray]

    @property
    def n_iter(self) -> int:
        """Return the number of rounds."""
        return len(self.history["n_iter"])

    @property
    def primal_residual(self) -> float:
        """Return the primal residual of the last round."""
        return float(self.history["primal_residual"][-1])

    @property
    def dual_residual(self) -> float:
        """Return the dual residual of the last round."""
        return float(self.history["dual_residual"][-1])


def declare_utilities(
    utility: Any,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    scale: Any,
    network: BipartiteNetwork,
    *,
    both: bool,
) -> tuple[DeclaredUtilities | None, DeclaredUtilities | None]:
    """Return the public facts about the utilities of targets, and of sources if they have any."""
    if np.ndim(scale) or sparse.issparse(scale):
        raise ValueError("utility_scale must be a number with messages: one for all edges.")
    sides = (network.targets, network.sources)[: 1 + both]
    found = []
    for side, (low, high) in zip(sides, ranges, strict=False):
        if callable(utility):
            low, high = _margins(utility, low, high, float(side.upper.max(initial=0.0)))
        found.append(DeclaredUtilities(utility, low, high, float(scale)))
    return (*found, None)[:2]  # type: ignore[return-value]


def _margins(utility: Any, low: float, high: float, cap: float) -> tuple[float, float]:
    """Return bounds of the marginal utilities of a user-defined family."""
    if not hasattr(utility, "marginal_bounds"):
        raise ValueError(
            "a user-defined utility needs a method marginal_bounds(low, high, cap): the least and "
            "the largest possible marginal utility for a parameter from low to high, at any amount "
            "from 0 to cap. Noise is scaled to it."
        )
    least, largest = map(float, utility.marginal_bounds(low, high, cap))
    if not (np.isfinite([least, largest]).all() and least <= largest):
        raise ValueError("marginal_bounds must return two finite numbers (least, largest).")
    return least, largest


def make_noise(
    side: Side,
    declared: DeclaredUtilities | None,
    *,
    epsilon: float,
    delta: float,
    n_rounds: int,
    protect: str = "parameter",
    factors: Any = 1.0,
    source: Any = None,
) -> MessageReleases | None:
    """Return the noise of a side's messages, or None for a side without utilities."""
    if declared is None:
        return None
    bounds = np.array([declared.marginal_bounds(float(cap)) for cap in side.upper])
    # Utilities that differ are never treated as public, however small the difference is.
    bounds[:, 0] = np.maximum(bounds[:, 0], np.finfo(float).tiny)
    return MessageReleases(
        epsilon,
        delta,
        n_rounds=n_rounds,
        degrees=side.degrees,
        utility_range=bounds[:, 0],
        cap=side.upper,
        least=side.lower,
        curvature=bounds[:, 1],
        protect=protect,
        factors=factors,
        source=source,
    )


def error_of_answers(state: SideState, declared: DeclaredUtilities, eta: float) -> np.ndarray:
    """Return how far each node's computed messages may be from the exact minimisers, in l2.

    The state is the public one after the answer.
    """
    side = state.side
    reach = np.zeros(side.n_nodes)
    np.maximum.at(reach, side.nodes, eta * np.abs(state.agreed) + np.abs(state.prices))
    return message_error(
        eta,
        side.upper,
        side.degrees,
        reach=reach,
        largest_marginal=declared.largest_marginal(float(side.upper.max(initial=0.0))),
        largest_scale=declared.scale if declared.family == "log" else 0.0,
        iterative=declared.family not in ("linear", "quadratic"),
    )


def private_consensus(
    network: BipartiteNetwork,
    utilities: tuple[Any, Any],
    noises: tuple[Any, Any],
    declared: tuple[DeclaredUtilities | None, DeclaredUtilities | None],
    *,
    eta: float,
    n_rounds: int,
    relaxation: float = 1.0,
    average_from: int | None = None,
    progress: Callable[[], Any] | None = None,
) -> Agreement:
    """Return the agreement of nodes by rounds of noisy messages; a function of those messages.

    Utilities are in the order of the targets, and None for a side without any, whose answers follow
    from released messages. All rounds are made, for any messages. Amounts and prices are averaged
    from the round `average_from` on; None takes the last.

    A node starts from its last multiplier, which is private; it reaches the same minimiser from any
    start, up to `error_of_answers`, which the noise covers. (Hughes and Chen, Algorithm 2, with the
    corrections of :ref:`differences`.)
    """
    order, back = network.sources.positions, network.targets.positions
    start = starting_amounts(network)
    states = (
        SideState(network.targets, _or_nothing(utilities[0], network), 1, start),
        SideState(network.sources, _or_nothing(utilities[1], network).take(order), -1,
                  start[order]),
    )  # fmt: skip
    sent = [start, start[order]]
    agreed, totals, n_averaged = start, [np.zeros_like(start), np.zeros_like(start)], 0
    rows = []
    for round_ in range(1, n_rounds + 1):
        with quiet():
            answers = [
                state.answer(sent[k], sent[1 - k], eta, relaxation, 0.0)
                for k, state in enumerate(states)
            ]
        sent = [
            released_answers(state, answer, noise, declared_side, eta)
            for state, answer, noise, declared_side in zip(
                states, answers, noises, declared, strict=True
            )
        ]
        before, agreed = agreed, 0.5 * (sent[0] + sent[1][back])
        primal = float(np.linalg.norm(sent[0] - sent[1][back]))
        rows.append((round_, eta, primal, eta * float(np.linalg.norm(agreed - before))))
        if round_ >= (average_from or n_rounds):
            n_averaged += 1
            totals[0] += agreed
            totals[1] += states[0].prices
        if progress is not None:
            progress()
    means = [total / n_averaged for total in totals]
    names = ("n_iter", "eta", "primal_residual", "dual_residual")
    return Agreement(
        plan=_feasible(network, means[0]),
        agreed=means[0],
        prices=means[1],
        history=dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True)),
    )


def _or_nothing(utility: Any, network: BipartiteNetwork) -> Any:
    return LinearUtility(np.zeros(network.n_edges)) if utility is None else utility


def released_answers(
    state: SideState, answer: np.ndarray, noise: Any, declared: DeclaredUtilities | None, eta: float
) -> np.ndarray:
    """Return the message of a side: a new array, since the state overwrites its answers."""
    if noise is None or declared is None:
        return answer.copy()
    return noise.run(answer, eta, error=error_of_answers(state, declared, eta))


def _feasible(network: BipartiteNetwork, amounts: np.ndarray) -> np.ndarray:
    """Return the nearest feasible plan, within the bounds of edges, by alternating projections."""
    targets, sources = network.targets, network.sources
    caps = np.minimum(targets.upper[targets.nodes], sources.upper[targets.neighbours])
    clipped = np.clip(amounts, -caps, 2.0 * caps)
    start = starting_amounts(network)
    for share in _SHARES:
        try:
            return repair(network, start + share * (clipped - start))
        except RuntimeError:
            # The budget is spent, and a plan from a part of the messages is better than none.
            continue
    return repair(network, start)
