"""The release of messages with which the nodes of a network agree on an allocation."""

import math
from typing import Any

import numpy as np

from skdpot.privacy.accounting import RAISED
from skdpot.privacy.checks import check_choice, check_count
from skdpot.privacy.events import (
    DpEvent,
    GaussianDpEvent,
    PlannedDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
)
from skdpot.privacy.noise import LARGEST_SCALE, rounded_gaussian
from skdpot.privacy.random import NoiseSource
from skdpot.privacy.sensitivity import (
    PROTECTED,
    computed_message_sensitivity,
    message_sensitivity,
    rounded_message_sensitivity,
)
from skdpot.releases._nodes import (
    LARGEST_SUM,
    NodeBudgets,
    check_degrees,
    check_source,
    check_values,
    draw_for_nodes,
    fineness,
    grid_values,
    rounded_down_share,
)
from skdpot.releases._release import Release, ReleaseSeries
from skdpot.releases._spherical_noise import LONGEST, random_lengths, spherical_slack

# Maximum number of units in a message, so that quotients of doubles are 64-bit integers.
_MOST_UNITS = 2.0**50
# Share of a message's sensitivity that exceeds the error of computed messages in ordinary rounds.
_LEAST_ERROR = 2.0**-30
# Squares of larger caps overflow.
_LARGEST_CAP = 1e150


class MessageReleases(ReleaseSeries):
    """The messages of all nodes of one side of a network, for a total budget of each.

    A node sends ``n_rounds`` messages. A message has the amounts on its edges: the minimiser that
    :func:`~skdpot.privacy.sensitivity.message_sensitivity` describes. All inputs, except the node's
    own utilities, were released before. The noise of a round depends on its penalty. The
    guarantee holds for all messages of a node together. The penalty, and whether there is another
    round, may depend on earlier *released* messages only.

    Parameters
    ----------
    epsilon : float
        Total budget of a node for all rounds, above 0.
    delta : float
        With 0, noise whose density falls exponentially with its Euclidean norm; else Gaussian
        noise.
    n_rounds : int
        How many messages a node sends, at most.
    degrees : array-like of int, shape (n_nodes,)
        Numbers of edges. Messages are given node after node.
    utility_range, cap, least, curvature : float or array-like of shape (n_nodes,)
        As in ``message_sensitivity``; `cap` must be finite.
    protect : {"parameter", "node"}, default="parameter"
        The unit of privacy: the utility of one edge at this end, or all utilities of a node.
    factors : float or array-like of shape (n_nodes,), default=1.0
        Share of epsilon that each node spends, in (0, 1].
    source : random_state, or sequence of NoiseSource, one per node, default=None
        Source of the noise. With one source per node, the noise of a node does not depend on
        others.

    Attributes
    ----------
    epsilons : ndarray of shape (n_nodes,)
        Total of each node.
    n_released : int
        Rounds so far.
    event : DpEvent
        All releases of the node with the largest budget. It is the charge of all nodes together,
        since a unit of privacy belongs to one node.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or a round needs more noise than can be drawn. This
        depends on public numbers only.

    Notes
    -----
    :ref:`proof-private-messages`. Gaussian noise composes to one Gaussian release exactly. The
    other noise is epsilon / n_rounds private in every round; it is drawn as a Gaussian vector times
    the length of another with one more coordinate, and a small part of epsilon pays for the
    digits of that length. Messages become integers in public units, about a millionth of the
    sensitivity; the noise is rounded to the same units exactly.

    References
    ----------
    J. Hughes, J. Chen, "Differentially Private ADMM-Based Distributed Discrete Optimal Transport
    for Resource Allocation", where the rate of the noise is inverted in section III-B, and the
    budget is for one round.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.releases import MessageReleases
    >>> releases = MessageReleases(
    ...     1.0, 1e-5, n_rounds=4, degrees=[2, 3], utility_range=4.0, cap=5.0, source=0
    ... )
    >>> releases.standard_deviations(eta=8.0).round(2)
    array([3.73, 3.73])
    >>> releases.run(np.array([5.0, 0.0, 1.0, 1.0, 1.0]), eta=8.0).shape
    (5,)
    >>> releases.n_released
    1
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        n_rounds: int,
        degrees: Any,
        utility_range: Any,
        cap: Any,
        least: Any = 0.0,
        curvature: Any = 0.0,
        protect: str = "parameter",
        factors: Any = 1.0,
        source: Any = None,
    ) -> None:
        self._degrees = check_degrees(degrees)
        n_nodes = len(self._degrees)
        self._budgets = NodeBudgets.divide(epsilon, delta, factors, n_nodes)
        self._n_rounds = check_count("n_rounds", n_rounds)
        self._source = check_source(source, n_nodes)
        given = {"utility_range": utility_range, "cap": cap, "least": least, "curvature": curvature}
        self._given = {name: _number_per_node(name, x, n_nodes) for name, x in given.items()}
        if (self._given["least"] > self._given["cap"]).any():
            raise ValueError("least must not be above cap.")
        if (self._given["cap"] > _LARGEST_CAP).any():
            raise ValueError("cap must be at most 1e150; use larger units.")
        self._protect = protect
        check_choice("protect", protect, PROTECTED)
        self._multipliers = self._multipliers_of_a_round()
        self._fineness = fineness(self._multipliers)
        self._check_scales()
        self.n_released = 0

    @property
    def epsilons(self) -> np.ndarray:
        """Return the total epsilon of each node."""
        return self._budgets.epsilons.copy()

    @property
    def event(self) -> DpEvent:
        return self.node_event(self._budgets.worst)

    def round_event(self, node: int) -> DpEvent:
        """Return the event of one round of a node."""
        if self._budgets.delta:
            return GaussianDpEvent(float(self._multipliers[node]))
        share = rounded_down_share(self._budgets.epsilons[node], self._n_rounds)
        return PureDpEvent(float(share))

    def node_event(self, node: int) -> DpEvent:
        """Return the event of all rounds of a node."""
        if self._budgets.delta:
            # Several Gaussian releases are one, with this multiplier.
            single = GaussianDpEvent(float(self._budgets.multipliers[node]))
            return PlannedDpEvent(single, self._budgets.delta)
        return SelfComposedDpEvent(self.round_event(node), self._n_rounds)

    def sensitivities(self, eta: Any, relation: str = "replace_one") -> np.ndarray:
        """Return how much an exact message of each node may move, for a penalty."""
        bounds = message_sensitivity(
            _number_per_node("eta", eta, len(self._degrees), above=True),
            degree=self._degrees,
            protect=self._protect,
            relation=relation,
            **self._given,
        )
        return np.asarray(bounds)

    def standard_deviations(self, eta: Any) -> np.ndarray:
        """Return the standard deviation of the noise on each amount of a node, for a penalty.

        It is public, and 0 for nodes without private utilities.
        """
        units, scales = self._grids(eta, 0.0)
        if not self._budgets.delta:
            scales = scales * np.sqrt(self._degrees + 1.0)
        return units * scales

    def round(self, eta: Any, error: Any = 0.0) -> "MessageRelease":
        """Return the release of one round; the round counts when it is run.

        All that the penalty `eta` depends on is public. `error` is how far a computed message may
        be from the exact minimiser in the l2 norm, if that is more than ``2**-30`` of the
        sensitivity: see :func:`~skdpot.privacy.sensitivity.message_error`. It may depend on
        released messages.
        """
        return MessageRelease(self, eta, *self._grids(eta, error))

    def run(self, messages: Any, eta: Any, *, error: Any = 0.0) -> np.ndarray:
        """Return the noisy messages of the next round, see `round` and `MessageRelease`."""
        return self.round(eta, error).run(messages, self._source)

    def _take_round(self) -> None:
        """Count a round, or raise if all were made."""
        if self.n_released == self._n_rounds:
            raise RuntimeError(f"all {self._n_rounds} rounds that the budget was for were made.")
        self.n_released += 1

    def _multipliers_of_a_round(self) -> np.ndarray:
        """Return the multipliers of the sensitivity: of Gaussian noise, or one over its rate."""
        if self._budgets.delta:
            return self._budgets.multipliers * math.sqrt(self._n_rounds) * RAISED
        share = rounded_down_share(self._budgets.epsilons, self._n_rounds)
        left = share - spherical_slack(self._degrees)
        if (left < share / 2).any():
            raise ValueError(
                f"a budget of {share.min():g} per round is too small for noise without a delta: "
                "choose fewer rounds, a larger epsilon, or a delta."
            )
        return RAISED / left

    def _check_scales(self) -> None:
        """Raise if noise could have a larger scale than can be drawn, for any penalty."""
        degrees = self._degrees.astype(np.float64)
        # How far a message moves, in units, and twice the effect of rounding.
        moved = self._fineness + 2.0 * np.sqrt(degrees)
        lengths = 1.0 if self._budgets.delta else np.sqrt(degrees + 1.0) + LONGEST
        if (self._multipliers * moved * lengths > LARGEST_SCALE / 2).any():
            raise ValueError("noise would be too large: choose a larger epsilon or fewer rounds.")

    def _grids(self, eta: Any, error: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the width of each node's grid, and the scale of its noise in grid units."""
        exact = self.sensitivities(eta)
        # In ordinary rounds, the noise therefore depends on the penalty alone.
        errors = np.maximum(_number_per_node("error", error, len(exact)), _LEAST_ERROR * exact)
        caps = self._given["cap"]
        # A node with nothing to hide does not use its grid; any width will do.
        moved = computed_message_sensitivity(exact, errors)
        units = np.maximum(moved / self._fineness, caps / _MOST_UNITS)
        units = np.where(units > 0, units, 1.0)
        rounded = rounded_message_sensitivity(exact, caps, self._degrees, error=errors, unit=units)
        scales = self._multipliers * rounded * RAISED
        return units, np.where(exact > 0, scales, 0.0)

    def _draw(self, source: NoiseSource, scales: np.ndarray, degrees: np.ndarray) -> np.ndarray:
        """Return noise for some nodes, in units of their grids."""
        if not self._budgets.delta:
            scales = scales * random_lengths(source, degrees)
            # Lengths that reach the limit have a probability below exp(-2000).
            scales = np.minimum(scales, LARGEST_SCALE)
        # A node with nothing to hide draws noise, too, and does not use it.
        each = np.repeat(np.where(scales > 0, scales, 1.0), degrees)
        return rounded_gaussian(source, each, each.shape)


class MessageRelease(Release):
    """The release of the messages of one round, made by `MessageReleases.round`.

    The released values are the messages of all nodes, one after another, of shape (n_edges,). They
    are clipped to ``[0, cap]``.
    """

    def __init__(
        self, series: MessageReleases, eta: Any, units: np.ndarray, scales: np.ndarray
    ) -> None:
        self._series, self._eta = series, eta
        self._units, self._scales = units, scales

    @property
    def event(self) -> DpEvent:
        return self._series.round_event(self._series._budgets.worst)

    def sensitivity(self, relation: str) -> float:
        return float(self._series.sensitivities(self._eta, relation).max())

    def run(self, values: Any, source: Any) -> np.ndarray:
        """Return noisy messages, which may be negative or above the cap.

        For a node without private utilities these are its public amounts.
        """
        series, degrees = self._series, self._series._degrees
        messages = check_values(values, int(degrees.sum()))
        series._take_round()
        of_edge = np.repeat(np.arange(len(degrees)), degrees)
        caps, units = series._given["cap"][of_edge], self._units[of_edge]
        integers = grid_values(messages, 0.0, caps, units)
        noise = draw_for_nodes(
            source,
            degrees,
            lambda stream, nodes, edges: series._draw(stream, self._scales[nodes], degrees[nodes]),
        )
        sums = np.clip(integers + noise, -LARGEST_SUM, LARGEST_SUM)
        # The minimiser is public if its bounds leave no choice, or if utilities are not secret.
        public = np.where(series._given["utility_range"][of_edge] > 0, caps, messages)
        hidden = (series.sensitivities(self._eta) > 0)[of_edge]
        return np.where(hidden, sums * units, public)


def _number_per_node(name: str, values: Any, n_nodes: int, *, above: bool = False) -> np.ndarray:
    """Return a finite number of at least 0, or above 0, for each node; or raise."""
    found = np.broadcast_to(np.asarray(values, dtype=np.float64), (n_nodes,))
    if not (np.isfinite(found) & ((found > 0) | ((found == 0) & (not above)))).all():
        raise ValueError(f"{name} must be finite and {'above' if above else 'at least'} 0.")
    return found
