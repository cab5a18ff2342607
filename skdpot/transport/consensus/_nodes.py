r"""Utilities of amounts on edges, and what nodes answer: the amounts that are best for them.

A target with utility u, prices alpha and agreed amounts z minimises over its own edges ::

    -u(x) + alpha x + eta/2 |x - z|^2      over      {x >= 0, lower <= sum(x) <= upper},

and a source does the same with -alpha. Given the node's own multiplier m, the amounts are ::

    x_e(m) = argmax_{x >= 0}  u_e(x) - (alpha_e + m) x - eta/2 (x - z_e)^2,

and their sum decreases in m. If the sum for m = 0 is within the bounds, m is zero; otherwise m is
the root at the violated bound. For the families below the sum is convex in m, so Newton's steps
increase to the root, except perhaps the first one. They start at the multiplier of the last round,
which is near the root.

Sums run over the edges of one node, in their order. So every bit of a node's answer depends only on
its own edges, bounds and messages. Nodes with user-defined utilities are solved in NumPy, by
safeguarded Newton steps: all at once, but each stops by itself.

*The bound that prices prove.* For any prices alpha of the edges and multipliers m of the nodes, no
plan has more welfare than ::

    sum over targets of  max(upper m, lower m) + sum_e max_{0 <= x <= cap} t_e(x) - (alpha_e + m) x
    + the same over sources with -alpha,

because the amounts of a node have a sum between its bounds. The bound holds for any m; the m of
every node is the best one, up to rounding. For linear utilities the inner sum is zero at the
largest ``a_e - alpha_e``, and the bound has a closed form.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..kernels import kernel, part
from ._network import BipartiteNetwork, Side, level_within

FAMILIES = ("linear", "quadratic", "log")
_METHODS = ("value", "derivative", "second_derivative", "take")
# Enough for amounts with an error of 3e-14 of the cap; and the bound of prices is flat at its
# minimum, so that the remaining interval changes it by rounding errors only.
_BISECTIONS = 45
_MAX_STEPS = 200
_PRECISION = 1e-14


class ConcaveUtility(Protocol):
    """Protocol of utilities, for all edges of a side at once; amounts are never negative.

    Each edge's utility must be concave and differentiable, with a finite derivative at zero, and
    must depend only on its own amount. All methods work elementwise.
    """

    def value(self, amounts: np.ndarray) -> np.ndarray:
        """Return the utility of the amount on every edge."""

    def derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the marginal utility, which never increases with the amount."""

    def second_derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the derivative of the marginal utility: never positive."""

    def take(self, edges: np.ndarray) -> "ConcaveUtility":
        """Return the utilities of the edges at some positions, in that order."""


@dataclass(frozen=True, eq=False)
class QuadraticUtility:
    """Utilities ``slope * x - curvature * x**2 / 2``.

    Parameters
    ----------
    slopes : array-like of shape (n_edges,)
        Marginal utility at zero.
    curvatures : array-like of shape (n_edges,)
        Decrease of the marginal utility with every unit of amount; non-negative.

    Examples
    --------
    >>> from skdpot.transport.consensus import QuadraticUtility
    >>> QuadraticUtility([1.0, 3.0], [0.0, 1.0]).value([2.0, 2.0])
    array([2., 4.])
    """

    slopes: np.ndarray
    curvatures: np.ndarray

    def __post_init__(self) -> None:
        # The dataclass is frozen, and users may pass lists.
        object.__setattr__(self, "slopes", _parameters(self.slopes, "slopes"))
        curvatures = _parameters(self.curvatures, "curvatures", len(self.slopes))
        if (curvatures < 0).any():
            raise ValueError("curvatures must be non-negative.")
        object.__setattr__(self, "curvatures", curvatures)

    def value(self, amounts: np.ndarray) -> np.ndarray:
        """Return the utility of the amount on every edge."""
        amounts = np.asarray(amounts)
        return (self.slopes - 0.5 * self.curvatures * amounts) * amounts

    def derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the marginal utility."""
        return self.slopes - self.curvatures * np.asarray(amounts)

    def second_derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the derivative of the marginal utility."""
        return -self.curvatures + np.zeros_like(amounts)

    def take(self, edges: np.ndarray) -> "QuadraticUtility":
        """Return the utilities of the edges at some positions."""
        return QuadraticUtility(self.slopes[edges], self.curvatures[edges])

    def demand(self, prices: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Return the amounts in [0, caps] that are best at given prices."""
        # Linear edges divide by zero here, and get the cap if they gain anything.
        gains = self.slopes - prices
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.where(gains > 0, np.minimum(gains / self.curvatures, caps), 0.0)


class LinearUtility(QuadraticUtility):
    """Utilities ``slope * x``.

    Parameters
    ----------
    slopes : array-like of shape (n_edges,)
        Utility of one unit of amount.

    Examples
    --------
    >>> from skdpot.transport.consensus import LinearUtility
    >>> LinearUtility([1.0, 3.0]).value([2.0, 2.0])
    array([2., 6.])
    """

    def __init__(self, slopes: Any) -> None:
        slopes = _parameters(slopes, "slopes")
        super().__init__(slopes, np.zeros_like(slopes))

    def take(self, edges: np.ndarray) -> "LinearUtility":
        """Return the utilities of the edges at some positions."""
        return LinearUtility(self.slopes[edges])


@dataclass(frozen=True, eq=False)
class LogUtility:
    """Utilities ``weight * log(1 + x / scale)``.

    Parameters
    ----------
    weights : array-like of shape (n_edges,)
        Non-negative factors.
    scales : array-like of shape (n_edges,)
        Amounts whose utility is ``weight * log(2)``; positive. The marginal utility at zero is
        ``weight / scale``.

    Examples
    --------
    >>> from skdpot.transport.consensus import LogUtility
    >>> LogUtility([1.0, 2.0], [1.0, 2.0]).derivative([0.0, 2.0])
    array([1. , 0.5])
    """

    weights: np.ndarray
    scales: np.ndarray

    def __post_init__(self) -> None:
        weights = _parameters(self.weights, "weights")
        scales = _parameters(self.scales, "scales", len(weights))
        if (weights < 0).any():
            raise ValueError(
                "utility='log' takes no weights below 0 from X or utility_bounds; 'quadratic' does."
            )
        if (scales <= 0).any():
            raise ValueError("scales must be positive: with utility='log', utility_scale is.")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "scales", scales)

    def value(self, amounts: np.ndarray) -> np.ndarray:
        """Return the utility of the amount on every edge."""
        return self.weights * np.log1p(np.asarray(amounts) / self.scales)

    def derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the marginal utility."""
        return self.weights / (self.scales + np.asarray(amounts))

    def second_derivative(self, amounts: np.ndarray) -> np.ndarray:
        """Return the derivative of the marginal utility."""
        return -self.weights / (self.scales + np.asarray(amounts)) ** 2

    def take(self, edges: np.ndarray) -> "LogUtility":
        """Return the utilities of the edges at some positions."""
        return LogUtility(self.weights[edges], self.scales[edges])

    def demand(self, prices: np.ndarray, caps: np.ndarray) -> np.ndarray:
        """Return the amounts in [0, caps] that are best at given prices."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            best = np.where(prices > 0, self.weights / prices - self.scales, np.inf)
        return np.where(self.weights > prices * self.scales, np.clip(best, 0.0, caps), 0.0)


def make_utility(family: Any, values: np.ndarray, scale: np.ndarray) -> ConcaveUtility:
    """Return the utility of a family with these parameters, one for every edge."""
    if family == "linear":
        return LinearUtility(values)
    if family == "quadratic":
        return QuadraticUtility(values, scale)
    if family == "log":
        return LogUtility(values, scale)
    # Of a user's own class, only its methods are known.
    found = family(values)
    _check_methods(found, "what a callable utility returns")
    return found


def check_utility(utility: Any, n_edges: int, name: str = "utility") -> None:
    """Raise unless a utility has this number of edges; a user's own class may not check it."""
    _check_methods(utility, name)
    if isinstance(utility, QuadraticUtility):
        shape = utility.slopes.shape
    elif isinstance(utility, LogUtility):
        shape = utility.weights.shape
    else:
        shape = np.shape(utility.derivative(np.zeros(n_edges)))
    if shape != (n_edges,):
        raise ValueError(f"{name} must be of {n_edges} edges, got shape {shape}.")


def _check_methods(utility: Any, name: str) -> None:
    if not all(hasattr(utility, method) for method in _METHODS):
        raise TypeError(
            f"{name} must have the methods {', '.join(_METHODS)}; see ConcaveUtility and "
            "LinearUtility of skdpot.transport.consensus."
        )


def best_demand(utility: ConcaveUtility, prices: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """Return the amounts in [0, caps] that maximise the utility less the price of every edge."""
    # A closed form is exact; others are solved by bisection.
    if hasattr(utility, "demand"):
        return utility.demand(prices, caps)
    low, high = np.zeros_like(caps), caps.copy()
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        rises = utility.derivative(middle) > prices
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return np.where(utility.derivative(caps) >= prices, caps, low)


def _parameters(values: Any, name: str, length: int | None = None) -> np.ndarray:
    """Return parameters as a finite array of doubles with one entry per edge."""
    try:
        values = np.array(values, dtype=np.float64)
    except Exception:
        values = None
    # Raised outside of the handler: the error there quotes values, which may be private.
    if values is None:
        raise ValueError(f"{name} cannot be read as numbers.")
    if values.ndim != 1 or (length is not None and len(values) != length):
        expected = "(n_edges,)" if length is None else f"({length},)"
        raise ValueError(f"{name} must have shape {expected}, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite.")
    return values


@part
def _absorb(first, sent, arrived, sign, rates, agreed, prices, values):
    """Update a node's agreed amounts and prices by the messages of the last round.

    `rates` are eta, the relaxation and the shift of all prices; `values` become
    ``eta agreed - sign prices``.
    """
    eta, relaxation, shift = rates
    step = 0.5 * relaxation * eta * sign
    for k in range(len(values)):
        own = sent[first + k]
        other = arrived[k]
        # Both sides compute the same numbers from the same messages, bit by bit.
        amount = relaxation * (0.5 * (own + other)) + (1.0 - relaxation) * agreed[first + k]
        price = prices[first + k] + (step * (own - other) + shift)
        agreed[first + k] = amount
        prices[first + k] = price
        values[k] = eta * amount - sign * price


def _side(answer):
    """Return a kernel: every node of a side absorbs the last messages and answers.

    `answer` is a part that turns a node's values into its amounts, and returns its multiplier. It
    may also write to `spare`, which is as long. `arrived` are the other side's messages, in the
    order of this side.
    """

    def side(
        indptr, lower, upper, parameters, sent, arrived, sign, rates, agreed, prices, multipliers,
        amounts,
    ):  # fmt: skip
        for node in range(len(lower)):
            first, last = indptr[node], indptr[node + 1]
            if first == last:
                continue
            values, spare = amounts[first:last], arrived[first:last]
            _absorb(first, sent, spare, sign, rates, agreed, prices, values)
            low, high, start = lower[node], upper[node], multipliers[node]
            multipliers[node] = answer(values, spare, first, parameters, rates[0], low, high, start)

    # Kernels of one name would share files on disk, and processes could mix them up.
    side.__qualname__ = f"side{answer.__name__}"
    return kernel(side)


@part
def _quadratic_answer(values, spare, first, parameters, eta, lower, upper, start):
    """Answer with utilities ``a x - b x^2 / 2``, of which linear ones have a b of 0."""
    slopes, curvatures = parameters
    # The other side's messages are read by now, and their place is free.
    weights = spare
    for k in range(len(values)):
        # The answer is a weighted projection: weights are one over the curvature of the node's
        # problem.
        values[k] += slopes[first + k]
        weights[k] = 1.0 / (eta + curvatures[first + k])
    level = level_within(values, weights, lower, upper, start)
    for k in range(len(values)):
        values[k] = weights[k] * max(values[k] - level, 0.0)
    return level


@part
def _log_amount(value, weight, scale, eta):
    """Return the amount x with ``w / (x + c) = eta (x + c) - value``, and minus its derivative."""
    root = math.sqrt(value * value + 4.0 * eta * weight)
    # Two expressions for the same number: each is used where it has no cancellation.
    if value > 0.0:
        shifted = (value + root) / (2.0 * eta)
    else:
        shifted = 2.0 * weight / (root - value) if root > value else 0.0
    if shifted <= scale:
        return 0.0, 0.0
    return shifted - scale, shifted / root


@part
def _log_sum(values, weights, scales, eta, level):
    total = 0.0
    slope = 0.0
    for k in range(len(values)):
        amount, fall = _log_amount(values[k] - level, weights[k], scales[k], eta)
        total += amount
        slope += fall
    return total, slope


@part
def _log_level(values, weights, scales, eta, mass, start):
    """Return the level m at which the amounts sum to `mass`."""
    level = start
    total, slope = _log_sum(values, weights, scales, eta, level)
    if slope == 0.0:
        # The level is above all marginal utilities. The tangent at the largest one leads below
        # the root.
        marginals = values - eta * scales + weights / scales
        best = np.argmax(marginals)
        bend = eta + weights[best] / scales[best] ** 2
        level = marginals[best] - max(mass, 1e-300) * bend
        total, slope = _log_sum(values, weights, scales, eta, level)
        if slope == 0.0:
            return level
    for step in range(_MAX_STEPS):
        higher = level + (total - mass) / slope
        if step > 0 and higher <= level:
            break
        total, new_slope = _log_sum(values, weights, scales, eta, higher)
        if new_slope == 0.0:
            break
        level, slope = higher, new_slope
    return level


@part
def _log_answer(values, spare, first, parameters, eta, lower, upper, start):
    """Answer with utilities ``w log(1 + x / c)``."""
    all_weights, all_scales = parameters
    weights = all_weights[first : first + len(values)]
    scales = all_scales[first : first + len(values)]
    for k in range(len(values)):
        values[k] += eta * scales[k]
    free, _ = _log_sum(values, weights, scales, eta, 0.0)
    mass = min(max(free, lower), upper)
    level = 0.0 if mass == free else _log_level(values, weights, scales, eta, mass, start)
    for k in range(len(values)):
        values[k] = _log_amount(values[k] - level, weights[k], scales[k], eta)[0]
    return level


quadratic_side, log_side = map(_side, (_quadratic_answer, _log_answer))


def general_side(
    indptr, lower, upper, parameters, sent, arrived, sign, rates, agreed, prices, multipliers,
    amounts,
):  # fmt: skip
    """Let every node of a side absorb the last messages and answer, for any utilities."""
    most_doublings = 1000
    sum_precision = 1e-13
    (utility,) = parameters
    eta, relaxation, shift = rates
    # All nodes at once, since a user's utility is called for all edges.
    agreed *= 1.0 - relaxation
    agreed += relaxation * (0.5 * (sent + arrived))
    prices += 0.5 * relaxation * eta * sign * (sent - arrived) + shift
    n_nodes = len(lower)
    nodes = np.repeat(np.arange(n_nodes), np.diff(indptr))
    zero_slopes = utility.derivative(np.zeros_like(prices)) - sign * prices
    # Where Newton's method starts for the first multipliers.
    amounts[:] = np.maximum(agreed, 0.0)

    def ask(levels: np.ndarray, asking: np.ndarray) -> np.ndarray:
        """Set the best amounts at the multipliers of nodes that are asking; return all sums.

        Newton steps within a shrinking bracket start from the last amounts.
        """
        gains = zero_slopes - levels[nodes]
        low = np.zeros_like(gains)
        high = np.maximum(agreed + gains / eta, 0.0)
        x = np.clip(amounts, low, high)
        # Nodes that are done keep their amounts to the last bit, whoever still iterates.
        is_idle = ~asking[nodes]
        is_final = is_idle | (high == 0.0)
        for _ in range(_MAX_STEPS):
            marginal = utility.derivative(x) - sign * prices - levels[nodes]
            slope = marginal - eta * (x - agreed)
            low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
            step = x + slope / (eta - utility.second_derivative(x))
            # Outside of the bracket Newton's step is not believed, and the bracket is halved.
            step = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            is_final |= (high - low <= _PRECISION * high) | (np.abs(step - x) <= _PRECISION * x)
            if is_final.all():
                break
            x = np.where(is_final, x, step)
        x = np.where(gains + eta * agreed > 0, x, 0.0)
        amounts[:] = np.where(is_idle, amounts, x)
        return np.bincount(nodes, amounts, n_nodes)

    free = ask(np.zeros(n_nodes), np.ones(n_nodes, bool))
    mass = np.clip(free, lower, upper)
    bound = (mass != free) & (np.diff(indptr) > 0)
    # With a multiplier above its largest marginal utility, a node wants nothing.
    best = np.full(n_nodes, -np.inf)
    np.maximum.at(best, nodes, zero_slopes + eta * agreed)
    high = np.where(bound & (mass < free), np.maximum(best, 0.0), 0.0)
    # Nodes that need more get negative multipliers, at which the sums reach that.
    # Multipliers below 0 have no natural bound, so one is doubled until it is low enough.
    short = bound & (mass > free)
    low = np.where(short, -1.0, 0.0)
    for _ in range(most_doublings):
        short &= ask(low, short) < mass
        if not short.any():
            break
        low = np.where(short, 2.0 * low, low)
    # The last round's multipliers are near the new ones.
    level = np.where(bound, np.clip(multipliers, low, high), 0.0)
    for _ in range(_MAX_STEPS):
        excess = ask(level, bound) - mass
        low, high = np.where(excess > 0, level, low), np.where(excess > 0, high, level)
        bends = eta - utility.second_derivative(amounts)
        falls = np.bincount(nodes, np.where(amounts > 0, 1.0 / bends, 0.0), n_nodes)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = level + excess / falls
        step = np.where((step > low) & (step < high), step, 0.5 * (low + high))
        is_met = np.abs(excess) <= sum_precision * mass
        width = high - low <= _PRECISION * np.maximum(np.abs(low), np.abs(high))
        bound &= ~(is_met | width)
        if not bound.any():
            break
        level = np.where(bound, step, level)
    multipliers[:] = level


class SideState:
    """The state of a side's nodes on their edges; every array has the order of the side.

    A side may consist of one node. Its amounts are then bit-identical to those in a larger side.

    Parameters
    ----------
    side : Side
        The side.
    utility : ConcaveUtility
        Utilities of the side's edges, in its order.
    sign : {1, -1}
        1 for targets, which pay the prices, and -1 for sources, which receive them.
    start : ndarray of shape (n_edges,)
        The first agreed amounts. They are public.
    """

    def __init__(self, side: Side, utility: ConcaveUtility, sign: int, start: np.ndarray):
        self.side = side
        self.sign = float(sign)
        # Kernels change it in place.
        self.agreed = start.copy()
        self.prices = np.zeros_like(start)
        self.multipliers = np.zeros(side.n_nodes)
        # Two arrays in turn, because the caller still uses the last answer.
        self._answers = np.empty_like(start), np.empty_like(start)
        self._solver, self._parameters = _solver_of(utility)

    def answer(
        self, sent: np.ndarray, received: np.ndarray, eta: float, relaxation: float, shift: float
    ) -> np.ndarray:
        """Update the state by the messages of the last round, and return the new best amounts.

        Parameters
        ----------
        sent, received : ndarray of shape (n_edges,)
            Messages of this side, in its order, and of the other side, in its own order. In the
            first round both are the amounts of the start.
        eta, relaxation, shift : float
            Penalty, factor of over-relaxation, and shift of all prices.
        """
        amounts, last = self._answers
        self._answers = last, amounts
        side, rates = self.side, (eta, relaxation, shift)
        messages = sent, received.take(side.positions)
        given = side.indptr, side.lower, side.upper, self._parameters, *messages, self.sign, rates
        self._solver(*given, self.agreed, self.prices, self.multipliers, amounts)
        return amounts


def _solver_of(utility: ConcaveUtility) -> tuple[Any, tuple]:
    """Return the function that answers for a family of utilities, and the family's parameters."""
    if isinstance(utility, QuadraticUtility):
        return quadratic_side, (utility.slopes, utility.curvatures)
    if isinstance(utility, LogUtility):
        return log_side, (utility.weights, utility.scales)
    return general_side, (utility,)


def welfare(
    target_utility: ConcaveUtility, source_utility: ConcaveUtility, plan: np.ndarray
) -> float:
    """Return the sum of all utilities of a plan, in the order of the targets; not private."""
    return float(np.sum(target_utility.value(plan)) + np.sum(source_utility.value(plan)))


def welfare_bound(
    network: BipartiteNetwork,
    target_utility: ConcaveUtility,
    source_utility: ConcaveUtility,
    prices: np.ndarray,
) -> float:
    """Return an upper bound on the welfare of every feasible plan; not private.

    Any prices give a bound; those of :func:`consensus` come near the optimum.
    """
    order = network.sources.positions
    target_bound = side_bound(network.targets, target_utility, prices)
    return target_bound + side_bound(network.sources, source_utility.take(order), -prices[order])


def side_bound(side: Side, utility: ConcaveUtility, prices: np.ndarray) -> float:
    """Return the largest total gain of a side's nodes at prices, all in the order of the side."""
    connected = side.degrees > 0
    if not connected.any():
        return 0.0
    # `reduceat` needs non-empty stretches.
    starts = side.indptr[:-1][connected]
    lower, upper = side.lower[connected], side.upper[connected]
    if isinstance(utility, LinearUtility):
        # All of a node's mass goes to its best edge, as much as it may or as little as it must.
        best = np.maximum.reduceat(utility.slopes - prices, starts)
        return float(np.where(best > 0, upper * best, lower * best).sum())
    nodes = np.repeat(np.arange(len(starts)), side.degrees[connected])
    caps = upper[nodes]
    # The multipliers that minimise the bound of every node: 0 is best where that mass is within the
    # bounds, and others are found by bisection.
    free = np.bincount(nodes, best_demand(utility, prices, caps))
    mass = np.clip(free, lower, upper)
    high = np.maximum.reduceat(utility.derivative(np.zeros_like(caps)) - prices, starts)
    low = np.minimum.reduceat(utility.derivative(caps) - prices, starts)
    high = np.where(mass < free, np.maximum(high, 0), 0)
    low = np.where(mass > free, np.minimum(low, 0), 0)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        wanted = np.bincount(nodes, best_demand(utility, prices + middle[nodes], caps))
        low, high = np.where(wanted > mass, middle, low), np.where(wanted > mass, high, middle)
    levels = 0.5 * (low + high)
    costs = prices + levels[nodes]
    amounts = best_demand(utility, costs, caps)
    gains = utility.value(amounts) - costs * amounts
    return float(gains.sum() + np.where(levels > 0, upper * levels, lower * levels).sum())
