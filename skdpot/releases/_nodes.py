"""Releases of network nodes: messages of rounds, and utilities, each with its own budget."""

import math
from abc import abstractmethod
from functools import lru_cache, partial
from typing import Any

import numpy as np

from skdpot.privacy import checks
from skdpot.privacy import events as ev
from skdpot.privacy.accounting import RAISED, calibrate_noise_multiplier, inverse_rounded_up
from skdpot.privacy.noise import (
    LARGEST_SCALE,
    NoiseSource,
    make_source,
    rounded_gaussian,
    rounded_laplace,
)
from skdpot.privacy.sensitivity import (
    computed_message_sensitivity,
    message_sensitivity,
    rounded_message_sensitivity,
    utility_sensitivity,
)
from skdpot.releases._sums import LARGEST_SUM, Release, ReleaseSeries

# Bits of the units of a grid in the sensitivity or range, unless the scale of the noise needs
# fewer.
_FINENESS_BITS, _LARGEST_SCALE_BITS = 20, 36
# The inverse of a smaller epsilon overflows.
_LEAST_EPSILON = 1e-300
# Bits of the resolution of lengths. Lengths beyond 1.4 d + _FAR have a probability below
# exp(-1000), which no double can hold.
_RADIUS_BITS, _FAR = 38, 2000.0
# Bits of a coin, and of a random level.
_BITS = 62
# Relative error of a rounded probability, and of a division by the number of levels.
_ROUNDING = 2.0**-40


def node_budgets(
    epsilon: Any, delta: Any, factors: Any, n_nodes: int
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return the total epsilon of each node, the delta of all, and a multiplier for each node.

    Nodes have shares of the total, at most all of it. With a delta, the multiplier is that of
    Gaussian noise in a single release; without one, it is one over epsilon.
    """
    epsilon = checks.check_positive("epsilon", epsilon)
    delta = checks.check_delta(delta) if delta else 0.0
    epsilons = epsilon * np.broadcast_to(np.asarray(factors, dtype=np.float64), (n_nodes,))
    # They are attributes of releases, which nobody changes.
    epsilons.setflags(write=False)
    if not (epsilons > _LEAST_EPSILON).all():
        raise ValueError(f"epsilon must be above {_LEAST_EPSILON:g} for every node.")
    each, where = np.unique(epsilons, return_inverse=True)
    multiplier = partial(calibrate_noise_multiplier, delta=delta) if delta else inverse_rounded_up
    found = np.array([multiplier(value) for value in each.tolist()])
    return epsilons, delta, found[where.reshape(n_nodes)]


def fineness(multipliers: np.ndarray) -> np.ndarray:
    """Return the number of units, a power of two, that a range with such noise is divided into."""
    exponents = np.frexp(multipliers)[1]
    bits = np.minimum(_FINENESS_BITS, _LARGEST_SCALE_BITS - exponents)
    if (bits < 1).any():
        raise ValueError("noise would be more than 2**35 times the range: choose a larger epsilon.")
    return np.ldexp(1.0, bits)


def grid_values(
    values: np.ndarray, low: float, high: float | np.ndarray, units: np.ndarray
) -> np.ndarray:
    """Return values above `low` in grid units, as integers; NaN counts as `low`."""
    inside = np.clip(np.where(np.isnan(values), low, values), low, high)
    return np.floor((inside - low) / units + 0.5).astype(np.int64)


def check_values(values: Any, n_edges: int) -> np.ndarray:
    """Return one double per edge; raise only for a public mistake, not for private values."""
    found = checks.private_doubles(values)
    if found.shape != (n_edges,):
        raise ValueError(f"there must be one number for each of {n_edges} edges.")
    return found


def rounded_down_share(epsilon: np.ndarray, count: int | np.ndarray) -> np.ndarray:
    """Return an amount that, added up `count` times, is at most epsilon."""
    return epsilon / count / (1 + math.ulp(1.0) * 4)


def spherical_slack(degree: int | np.ndarray) -> np.ndarray:
    """Return the part of a round's epsilon that covers the rounding of a length, in d dimensions.

    It is ``k (2.4 d + 2000) + 3 h`` for the best h, where k bounds the relative error of the length
    of a Gaussian vector with d + 1 coordinates, if the length is at least h. It is infinite in so
    many dimensions that no h is below a third, the limit of the proof
    (:ref:`proof-private-messages`).

    Examples
    --------
    >>> from skdpot.releases._nodes import spherical_slack
    >>> bool(spherical_slack(4) < 5e-4)
    True
    """
    d = np.asarray(degree, dtype=np.float64)
    reach = 2.4 * d + _FAR
    shift = np.sqrt(d + 1.0) * 2.0**-_RADIUS_BITS
    h = np.sqrt(shift * reach / 3.0)
    relative = (1.0 + shift / h) * (1.0 + 2.0**-28) - 1.0
    # The proof sets smaller lengths aside.
    max_short = 1 / 3
    return np.where(h < max_short, relative * reach + 3.0 * h, np.inf)


def random_lengths(source: NoiseSource, degrees: np.ndarray) -> np.ndarray:
    """Return lengths of Gaussian vectors in d + 1 dimensions, or slightly more."""
    sizes = degrees + 1
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    coordinates = rounded_gaussian(source, 2.0**_RADIUS_BITS, int(sizes.sum())).astype(np.float64)
    squares = np.add.reduceat(coordinates * coordinates, starts)
    shift = np.sqrt(sizes) / 2
    return np.ldexp((np.sqrt(squares) + shift) * (1.0 + 2.0**-30), -_RADIUS_BITS)


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
    source : random_state, default=None
        Source of the noise.

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
        self._degrees = np.asarray(degrees, dtype=np.int64)
        n_nodes = len(self._degrees)
        budgets = node_budgets(epsilon, delta, factors, n_nodes)
        self.epsilons, self._delta, self._total_multipliers = budgets
        self._n_rounds = checks.check_count("n_rounds", n_rounds)
        self._source = make_source(source)
        given = {"utility_range": utility_range, "cap": cap, "least": least, "curvature": curvature}
        self._given = {name: _number_per_node(name, x, n_nodes) for name, x in given.items()}
        self._protect = protect
        self._multipliers = self._multipliers_of_a_round()
        self._fineness = fineness(self._multipliers)
        self._check_scales()
        self.n_released = 0

    @property
    def event(self) -> ev.DpEvent:
        return self.node_event(int(np.argmax(self.epsilons)))

    def node_event(self, node: int) -> ev.DpEvent:
        """Return the event of all rounds of a node."""
        if self._delta:
            # Several Gaussian releases are one, with this multiplier.
            single = ev.GaussianDpEvent(float(self._total_multipliers[node]))
            return ev.PlannedDpEvent(single, self._delta)
        share = rounded_down_share(self.epsilons[node], self._n_rounds)
        return ev.SelfComposedDpEvent(ev.PureDpEvent(float(share)), self._n_rounds)

    def sensitivities(self, eta: Any) -> np.ndarray:
        """Return how much an exact message of each node may move, for a penalty."""
        return message_sensitivity(
            _number_per_node("eta", eta, len(self._degrees), above=True),
            degree=self._degrees,
            protect=self._protect,
            relation="replace_one",
            **self._given,
        )

    def standard_deviations(self, eta: Any) -> np.ndarray:
        """Return the standard deviation of the noise on each amount of a node, for a penalty.

        It is public, and 0 for nodes without private utilities.
        """
        units, scales = self._grids(eta, 0.0)
        if not self._delta:
            scales = scales * np.sqrt(self._degrees + 1.0)
        return units * scales

    def run(self, messages: Any, eta: Any, *, error: Any = 0.0) -> np.ndarray:
        """Return the noisy messages of the next round, which may be negative or above the cap.

        Messages are those of all nodes, one after another, of shape (n_edges,), and are clipped to
        ``[0, cap]``. For a node without private utilities the result is its public amounts.

        All that the penalty `eta` depends on is public. `error` is how far a computed message may
        be from the exact minimiser in the l2 norm, if that is more than ``2**-30`` of the
        sensitivity: see :func:`~skdpot.privacy.sensitivity.message_error`. It may depend on
        released messages.
        """
        degrees = self._degrees
        units_of_nodes, scales = self._grids(eta, error)
        messages = check_values(messages, int(degrees.sum()))
        if self.n_released == self._n_rounds:
            raise RuntimeError(f"all {self._n_rounds} rounds that the budget was for were made.")
        self.n_released += 1
        of_edge = np.repeat(np.arange(len(degrees)), degrees)
        caps, units = self._given["cap"][of_edge], units_of_nodes[of_edge]
        integers = grid_values(messages, 0.0, caps, units)
        sums = np.clip(integers + self._draw(scales), -LARGEST_SUM, LARGEST_SUM)
        # The minimiser is public if its bounds leave no choice, or if utilities are not secret.
        public = np.where(self._given["utility_range"][of_edge] > 0, caps, messages)
        hidden = (self.sensitivities(eta) > 0)[of_edge]
        return np.where(hidden, sums * units, public)

    def _multipliers_of_a_round(self) -> np.ndarray:
        """Return the multipliers of the sensitivity: of Gaussian noise, or one over its rate."""
        if self._delta:
            return self._total_multipliers * math.sqrt(self._n_rounds) * RAISED
        share = rounded_down_share(self.epsilons, self._n_rounds)
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
        # A length of Gaussian coordinates exceeds its mean by more with a probability of
        # exp(-2000).
        longest = 64.0
        lengths = 1.0 if self._delta else np.sqrt(degrees + 1.0) + longest
        if (self._multipliers * moved * lengths > LARGEST_SCALE / 2).any():
            raise ValueError("noise would be too large: choose a larger epsilon or fewer rounds.")

    def _grids(self, eta: Any, error: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the width of each node's grid, and the scale of its noise in grid units."""
        exact = self.sensitivities(eta)
        # Share of a message's sensitivity that exceeds the error of computed messages in ordinary
        # rounds.
        min_error = 2.0**-30
        # In ordinary rounds, the noise therefore depends on the penalty alone.
        errors = np.maximum(_number_per_node("error", error, len(exact)), min_error * exact)
        caps = self._given["cap"]
        # A node with nothing to hide does not use its grid; any width will do.
        moved = computed_message_sensitivity(exact, errors)
        # Maximum number of units in a message, so that quotients of doubles are 64-bit integers.
        most_units = 2.0**50
        units = np.maximum(moved / self._fineness, caps / most_units)
        units = np.where(units > 0, units, 1.0)
        rounded = rounded_message_sensitivity(exact, caps, self._degrees, error=errors, unit=units)
        scales = self._multipliers * rounded * RAISED
        return units, np.where(exact > 0, scales, 0.0)

    def _draw(self, scales: np.ndarray) -> np.ndarray:
        """Return the noise of all nodes, in units of their grids."""
        if not self._delta:
            scales = scales * random_lengths(self._source, self._degrees)
            # Lengths that reach the limit have a probability below exp(-2000).
            scales = np.minimum(scales, LARGEST_SCALE)
        # A node with nothing to hide draws noise, too, and does not use it.
        each = np.repeat(np.where(scales > 0, scales, 1.0), self._degrees)
        return rounded_gaussian(self._source, each, each.shape)


def _number_per_node(name: str, values: Any, n_nodes: int, *, above: bool = False) -> np.ndarray:
    """Return a finite number of at least 0, or above 0, for each node; or raise."""
    found = np.broadcast_to(np.asarray(values, dtype=np.float64), (n_nodes,))
    if not (np.isfinite(found) & ((found > 0) | ((found == 0) & (not above)))).all():
        raise ValueError(f"{name} must be finite and {'above' if above else 'at least'} 0.")
    return found


class UtilityRelease(Release):
    """Base of single releases of one parameter per edge, in a public range.

    The released values are the parameters of all nodes, one after another, of shape (n_edges,).
    Values beyond the range are clipped, and NaN becomes its lower end. A subclass computes its
    public quantities in :meth:`_prepare`.
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
        self._low, self._high, self._protect = low, high, protect
        self._degrees = np.asarray(degrees, dtype=np.int64)
        budgets = node_budgets(epsilon, 0.0, factors, len(self._degrees))
        self.epsilons, _, self._multipliers = budgets
        self._of_edge = np.repeat(np.arange(len(self._degrees)), self._degrees)
        # Of every node: as many as it has edges, unless `_prepare` chooses fewer.
        self.n_answers = self._degrees
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Choose noise or levels."""

    def _moved(self, relation: str) -> np.ndarray:
        """Return how many answers of every node its unit may change."""
        return utility_sensitivity(1, self.n_answers, protect=self._protect, relation=relation)

    @property
    def spread(self) -> float:
        """Return the standard deviation of a parameter that is uniform in its range."""
        return (self._high - self._low) / math.sqrt(12.0)

    @property
    @abstractmethod
    def standard_error(self) -> float:
        """Return a bound on the root mean square error of `estimate`, for uniform parameters."""

    @abstractmethod
    def node_event(self, node: int) -> ev.DpEvent:
        """Return the event of one node's release, the charge to a ledger of the node."""

    @abstractmethod
    def estimate(self, released: np.ndarray) -> np.ndarray:
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
    >>> from skdpot.privacy.noise import make_source
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
        multipliers = self._multipliers * self._moved("replace_one")
        n_units = fineness(multipliers)
        self._units = (self._high - self._low) / n_units
        self._grid_scales = multipliers * n_units * RAISED

    def sensitivity(self, relation: str) -> float:
        return float((self._high - self._low) * self._moved(relation).max())

    @property
    def scales(self) -> np.ndarray:
        """Return the scale of each node's noise."""
        return self._grid_scales * self._units

    @property
    def event(self) -> ev.DpEvent:
        return self.node_event(int(np.argmax(self.epsilons)))

    def node_event(self, node: int) -> ev.DpEvent:
        return ev.LaplaceDpEvent(float(self._multipliers[node]))

    @property
    def standard_error(self) -> float:
        # Variance that the best linear estimate leaves; the best estimate leaves less.
        noise, uniform = 2.0 * self.scales[self._of_edge] ** 2, self.spread**2
        return math.sqrt(float(np.mean(noise * uniform / (noise + uniform))))

    def run(self, values: Any, source: NoiseSource) -> np.ndarray:
        """Return noisy parameters: unbiased, and often beyond the range."""
        parameters = check_values(values, len(self._of_edge))
        units = self._units[self._of_edge]
        # From 0 to the number of units, since rounded differences and quotients are monotone.
        integers = grid_values(parameters, self._low, self._high, units)
        scales = self._grid_scales[self._of_edge]
        noise = rounded_laplace(source, scales, scales.shape)
        sums = np.clip(integers + noise, -LARGEST_SUM, LARGEST_SUM)
        return self._low + sums * units

    def estimate(self, released: np.ndarray) -> np.ndarray:
        noisy = check_values(released, len(self._of_edge))
        middle = (self._low + self._high) / 2
        scales = self.scales[self._of_edge]
        # If noise is this much larger than the range, the estimate is the middle of the range.
        nothing_learnt = 1e6
        half = np.maximum((self._high - middle) / scales, 1 / nothing_learnt)
        centred = (noisy - middle) / scales
        means = _mean_after_laplace(np.clip(centred, -half, half), half)
        return np.clip(middle + scales * means, self._low, self._high)


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


class UtilityResponse(UtilityRelease):
    """Report the part of its range that each parameter lies in, or sometimes a random one.

    A range is divided into levels of equal width. A parameter's level is released with a certain
    probability, and otherwise a level drawn from all. Their number is the one for which an answer
    explains most of a uniform parameter, on average. If the unit of privacy is a node, only some
    randomly drawn edges of it answer, so that each answer is informative; which ones is public.

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
    n_levels, n_answers : ndarray of shape (n_nodes,)
        Levels, and how many edges of the node answer.
    event : DpEvent
        The charge of all nodes together: a unit of privacy belongs to one node.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    See Also
    --------
    skdpot.releases.UtilityNoise : Laplace noise instead.

    Notes
    -----
    With k levels a level is kept with the probability ``(exp(e) - 1) / (exp(e) + k - 1)``. So no
    level is more than ``exp(e)`` times as likely with one parameter as with another. The mean of a
    uniform parameter, given the answer, then has ``explained_share(e, k)`` of its variance; Laplace
    noise of the same price leaves far more open. Coins are integers, and nothing depends on
    rounding. (:ref:`proof-private-utilities`.)

    References
    ----------
    P. Kairouz, S. Oh, P. Viswanath, "Extremal Mechanisms for Local Differential Privacy", Journal
    of Machine Learning Research 17, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.privacy.noise import make_source
    >>> from skdpot.releases import UtilityResponse
    >>> response = UtilityResponse(4.0, low=1.0, high=5.0, degrees=[2, 3])
    >>> response.n_levels
    array([4, 4])
    >>> levels = response.run(np.array([1.0, 5.0, 2.5, 3.5, 4.0]), make_source(0))
    >>> levels
    array([0, 3, 1, 2, 3])
    >>> response.estimate(levels).round(2)
    array([1.6 , 4.4 , 2.53, 3.47, 4.4 ])
    """

    def _prepare(self) -> None:
        if self._protect == "node":
            counts = map(_best_answers, self.epsilons.tolist(), self._degrees.tolist())
            self.n_answers = np.array(list(counts), dtype=np.int64)
        self._shares = rounded_down_share(self.epsilons, self._moved("replace_one"))
        self.n_levels = np.array(list(map(_best_levels, self._shares.tolist())), dtype=np.int64)
        self._keep = _kept(self._shares, self.n_levels) * (1.0 - _ROUNDING)

    def sensitivity(self, relation: str) -> float:
        return float(self._moved(relation).max())

    @property
    def event(self) -> ev.DpEvent:
        # Nodes with one budget may divide it differently, and a node without edges has no answers.
        return ev.PureDpEvent(float(self.epsilons.max()))

    def node_event(self, node: int) -> ev.DpEvent:
        answer = ev.PureDpEvent(float(self._shares[node]))
        if self._protect == "parameter":
            return answer
        return ev.SelfComposedDpEvent(answer, int(self.n_answers[node]))

    @property
    def standard_error(self) -> float:
        explained = explained_share(self._shares, self.n_levels)[self._of_edge]
        # If an edge does not answer, only the range of its parameter is known.
        answering = (self.n_answers / np.maximum(self._degrees, 1))[self._of_edge]
        return self.spread * math.sqrt(float(np.mean(1.0 - answering * explained)))

    def run(self, values: Any, source: NoiseSource) -> np.ndarray:
        """Return levels from 0, and -1 for an edge that does not answer."""
        levels = self._levels_of(check_values(values, len(self._of_edge)))
        words = source.bits(_BITS, (3, len(levels)))
        kept = np.floor(np.ldexp(self._keep, _BITS)).astype(np.int64)[self._of_edge]
        # The division leaves a bias below 2**-42, which the smaller probability to keep a level
        # covers.
        others = words[1] % self.n_levels[self._of_edge]
        answers = np.where(words[0] < kept, levels, others)
        if self._protect == "parameter":
            return answers
        # Of each node, the edges with the smallest words answer.
        rank = np.empty(len(levels), dtype=np.int64)
        firsts = np.cumsum(self._degrees) - self._degrees
        rank[np.lexsort((words[2], self._of_edge))] = np.arange(len(levels)) - firsts[self._of_edge]
        return np.where(rank < self.n_answers[self._of_edge], answers, -1)

    def estimate(self, released: np.ndarray) -> np.ndarray:
        numbers = check_values(released, len(self._of_edge))
        n_levels, keep = self.n_levels[self._of_edge], self._keep[self._of_edge]
        width = self._high - self._low
        away = keep * ((numbers + 0.5) / n_levels - 0.5)
        return self._low + width * (0.5 + np.where(numbers < 0, 0.0, away))

    def _levels_of(self, values: np.ndarray) -> np.ndarray:
        """Return true levels; any function of a parameter would be private."""
        inside = np.clip(np.where(np.isnan(values), self._low, values), self._low, self._high)
        n_levels = self.n_levels[self._of_edge]
        parts = (inside - self._low) / (self._high - self._low) * n_levels
        return np.minimum(parts.astype(np.int64), n_levels - 1)


def explained_share(epsilon: float | np.ndarray, n_levels: int | np.ndarray) -> np.ndarray:
    """Return the share of a uniform parameter's variance that an answer explains.

    It is ``p^2 (1 - 1 / k^2)`` for k levels, with ``p = (exp(epsilon) - 1) / (exp(epsilon) + k -
    1)``.

    Examples
    --------
    >>> from skdpot.releases._nodes import explained_share
    >>> round(float(explained_share(1.0, 2)), 4)
    0.1602
    """
    k = np.asarray(n_levels, dtype=np.float64)
    return _kept(epsilon, k) ** 2 * (1.0 - 1.0 / k**2)


def _kept(epsilon: float | np.ndarray, n_levels: np.ndarray) -> np.ndarray:
    """Return the probability with which a level is kept."""
    epsilon = np.asarray(epsilon, dtype=np.float64)
    return -np.expm1(-epsilon) / (1.0 + (n_levels - 1.0) * np.exp(-epsilon))


@lru_cache(maxsize=4096)
def _best_levels(epsilon: float) -> int:
    """Return the number of levels that explains most variance, about ``exp(epsilon / 3)``."""
    centre = math.exp(min(epsilon, 45.0) / 3)
    tried = np.unique(np.rint(centre * np.geomspace(0.25, 4.0, 129)).astype(np.int64))
    # Maximum number of levels: more would add less than the 2**-40 that rounding takes.
    most_levels = 1 << 20
    tried = np.unique(np.clip(np.concatenate([[2, 3], tried]), 2, most_levels))
    return int(tried[np.argmax(explained_share(epsilon, tried))])


@lru_cache(maxsize=4096)
def _best_answers(epsilon: float, degree: int) -> int:
    """Return how many edges of a node share epsilon, so that each has about 2 or 3."""
    most = min(degree, max(1, math.ceil(epsilon)))
    gains = [
        m * float(explained_share(epsilon / m, _best_levels(epsilon / m)))
        for m in range(1, most + 1)
    ]
    return int(np.argmax(gains)) + 1 if gains else 0


# Releases of utilities, by the names of their mechanisms.
UTILITY_MECHANISMS: dict[str, type[UtilityRelease]] = {
    "input": UtilityResponse,
    "input_laplace": UtilityNoise,
}
