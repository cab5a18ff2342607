"""Estimates of the utilities of a node from a single message."""

from typing import Any

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import chi2

from skdpot.transport.consensus import BipartiteNetwork, SideState

from ._message_rounds import DeclaredUtilities, released_answers

# How nearly linear utilities are along the way that a message moves, and how far amounts may be
# from the choice of one edge.
_NEAR, _FAR = 2.0**10, 2.0**12
# Nodes whose bounds leave less room, relative to the largest node, give no information, or no sum.
_LEAST_ROOM = 1e-6
# Number of quantiles that represent the length of spherical noise.
_N_LENGTHS = 16
# With noise of this many ranges, a message is useless.
_USELESS = 1e4


def estimate_utilities(
    network: BipartiteNetwork,
    utilities: tuple[Any, Any],
    noises: tuple[Any, Any],
    declared: tuple[DeclaredUtilities | None, DeclaredUtilities | None],
    queries: tuple[str, str],
    *,
    delta: float,
) -> list[np.ndarray | None]:
    """Return posterior means of both sides' parameters, from a single round of messages.

    A node answers from amounts and with a penalty that make its answer most informative. With
    ``"utilities"`` the penalty is so large that no bound matters: every amount then moves in
    proportion to its own utility, by as much as the noise is scaled to. With ``"best"``, for linear
    utilities, it is so small that everything goes to the best edge.

    Means are posterior means of independent parameters that are uniform over their range. The plan
    that is best for them is post-processing.
    """
    estimates: list[np.ndarray | None] = []
    orders = (None, network.sources.positions, network.targets.positions)
    for k, side in enumerate((network.targets, network.sources)):
        declared_side, noise = declared[k], noises[k]
        if declared_side is None or noise is None:
            estimates.append(None)
            continue
        utility = utilities[k] if k == 0 else utilities[k].take(orders[1])
        ask = _ask_for_best if queries[k] == "best" else _ask_for_utilities
        estimate = ask(side, utility, noise, declared_side, spherical=not delta)
        estimates.append(estimate if k == 0 else estimate[orders[2]])
    return estimates


def _answer_once(side, utility, noise, declared, eta, start):
    """Return noisy messages that answer a public start at zero prices."""
    state = SideState(side, utility, 1, start)
    # The other side sends the same amounts, so that prices stay 0.
    received = np.empty_like(start)
    received[side.positions] = start
    answer = state.answer(start, received, eta, 1.0, 0.0)
    return released_answers(state, answer, noise, declared, eta)


def _ask_for_utilities(side, utility, noise, declared, *, spherical):
    """Return posterior means of parameters, from answers that no bound of a node cuts off."""
    degrees = np.maximum(side.degrees, 1)
    middle = (side.lower + side.upper) / 2
    if declared.family == "log":
        # Near 0, where a logarithm depends most on its parameter, if nodes may have so little.
        little = np.minimum(middle, degrees * declared.scale / 16)
        middle = np.where(side.lower > 0, middle, little)
    start = (middle / degrees)[side.nodes]
    room = np.minimum(side.upper - middle, middle - side.lower)
    largest = max(side.upper.max(initial=0.0), np.finfo(float).tiny)
    used = (side.upper > _LEAST_ROOM * largest) & (side.degrees > 0)
    fixed = room < _LEAST_ROOM * largest
    rooms = np.where(fixed, middle, np.minimum(room, middle)) / degrees
    size = max(declared.largest_marginal(largest), declared.width)
    eta = _NEAR * size / rooms[used].min() if used.any() and size > 0 else 1.0
    answers = _answer_once(side, utility, noise, declared, eta, start)

    factor, bend = 1.0, 0.0
    if declared.family == "quadratic":
        bend = declared.scale
    elif declared.family == "log":
        factor = declared.scale + start
    observed = factor * (eta * (answers - start) + bend * answers)
    spread = noise.standard_deviations(eta)[side.nodes] * factor * (eta + bend)
    centre = (declared.low + declared.high) / 2
    # If the sum is fixed, answers show only differences; the mean replaces the unknown part.
    means = side.sums(observed) / degrees
    is_fixed_edge = (fixed & used)[side.nodes]
    observed = np.where(is_fixed_edge, observed - means[side.nodes] + centre, observed)
    unknown = declared.width / np.sqrt(12.0 * degrees)[side.nodes]
    spread = np.where(is_fixed_edge, np.hypot(spread, unknown), spread)
    estimates = _means(side, observed, spread, declared, spherical=spherical)
    return np.where(used[side.nodes], estimates, centre)


def _means(side, observed, spread, declared, *, spherical):
    """Return posterior means of uniform parameters with Gaussian noise of these deviations."""
    if not spherical:
        return _truncated(observed, spread, declared)[0]
    # Given its length, spherical noise is Gaussian. Lengths are weighted by the likelihood of all
    # answers of the node.
    shares = (np.arange(_N_LENGTHS) + 0.5) / _N_LENGTHS
    lengths = np.sqrt(chi2.ppf(shares[:, None], side.degrees + 1) / (side.degrees + 1))
    means, likely = [], []
    for length in lengths:
        mean, log_mass = _truncated(observed, spread * length[side.nodes], declared)
        means.append(mean)
        likely.append(side.sums(log_mass))
    weights = np.exp(np.array(likely) - np.max(likely, axis=0))
    weights /= weights.sum(axis=0)
    return np.sum(weights[:, side.nodes] * np.array(means), axis=0)


def _truncated(observed, spread, declared):
    """Return means of truncated Gaussian distributions, and the logarithms of their mass."""
    low, high = declared.low, declared.high
    centre = (low + high) / 2
    spread = np.maximum(spread, np.finfo(float).tiny + 1e-12 * declared.width)
    # By symmetry, the observation may be below the middle of the range.
    sign = np.where(observed > centre, -1.0, 1.0)
    away = np.abs(observed - centre)
    first = (away - declared.width / 2) / spread
    last = (away + declared.width / 2) / spread
    upper, lower = log_ndtr(-first), log_ndtr(-last)
    normal = -0.5 * np.log(2 * np.pi)
    # Far outside of the range, quotients of tails overflow, and the mean is the end of the range.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_mass = upper + np.log(-np.expm1(np.minimum(lower - upper, -1e-300)))
        heights = [np.exp(normal - 0.5 * end**2 - log_mass) for end in (first, last)]
        means = np.clip(observed + sign * spread * (heights[0] - heights[1]), low, high)
    means = np.where(np.isnan(means), np.clip(observed, low, high), means)
    return np.where(spread > _USELESS * declared.width, centre, means), log_mass


def _ask_for_best(side, utility, noise, declared, *, spherical):
    """Return means of linear parameters, from answers that name the best edge of a node."""
    largest = max(side.upper.max(initial=0.0), np.finfo(float).tiny)
    eta = max(declared.width, np.finfo(float).tiny) / (_FAR * largest)
    # From this amount on every edge, the bound of a node is reached for all utilities.
    start = np.full(len(side.nodes), largest + max(0.0, -declared.low) / eta)
    answers = _answer_once(side, utility, noise, declared, eta, start)
    caps, spread = side.upper[side.nodes], noise.standard_deviations(eta)[side.nodes]
    hidden = spread > 0
    spread = np.where(hidden, spread, 1.0)
    if not spherical:
        likely = answers * caps / spread**2
    else:
        squares = side.sums(answers**2)[side.nodes]
        distance = np.sqrt(np.maximum(squares - 2 * answers * caps + caps**2, 0.0))
        likely = -distance * np.sqrt(side.degrees + 1.0)[side.nodes] / spread
    chances = _softmax(side, np.where(hidden, likely, 0.0))
    degrees = side.degrees[side.nodes]
    return declared.low + declared.width * degrees / (2 * (degrees + 1)) * (1 + chances)


def _softmax(side, values):
    """Return shares of the edges of every node."""
    shares = np.exp(values - side.maxima(values)[side.nodes])
    return shares / side.sums(shares)[side.nodes]
