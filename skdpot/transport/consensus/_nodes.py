r"""Compiled answers of nodes: the amounts that are best for them, near the agreed amounts.

A target with utility u, prices alpha and agreed amounts z minimises over its own edges ::

    -u(x) + alpha x + eta/2 |x - z|^2      over      {x >= 0, lower <= sum(x) <= upper},

and a source does the same with -alpha. Given the node's own multiplier m, the amounts are ::

    x_e(m) = argmax_{x >= 0}  u_e(x) - (alpha_e + m) x - eta/2 (x - z_e)^2,

and their sum decreases in m. If the sum for m = 0 is within the bounds, m is zero; otherwise m is
the root at the violated bound. For the families below the sum is convex in m, so Newton's steps
increase to the root, except perhaps the first one. They start at the multiplier of the last round,
which is near the root.

Sums run over the edges of one node, in their order. So every bit of a node's answer depends only on
its own edges, bounds and messages.
"""

import math

import numpy as np

from ..kernels import kernel, longest_row, part

# Fast-math flags for sums over the edges of one node.
_SUMS = {"nnan", "nsz", "reassoc"}
_MAX_STEPS = 200
# Edges whose messages are fetched together.
_BLOCK = 4096


@part
def _gather(first, last, positions, received, arrived):
    """Fetch the messages of the edges from `first`, at least up to `last`; return the end.

    They are scattered in memory, so fetching many at a time is faster.
    """
    end = min(max(last, first + _BLOCK), len(positions))
    for edge in range(first, end):
        arrived[edge - first] = received[positions[edge]]
    return end


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
        amount = relaxation * (0.5 * (own + other)) + (1.0 - relaxation) * agreed[first + k]
        price = prices[first + k] + (step * (own - other) + shift)
        agreed[first + k] = amount
        prices[first + k] = price
        values[k] = eta * amount - sign * price


@part(fastmath=_SUMS)
def _positive_sum(values):
    total = 0.0
    for k in range(len(values)):
        total += max(values[k], 0.0)
    return total


@part
def _largest_place(values):
    """Return the largest value and its first position."""
    place = 0
    for k in range(1, len(values)):
        if values[k] > values[place]:
            place = k
    return values[place], place


@part(fastmath=_SUMS)
def _above(values, level):
    """Return the sum and the number of the values above a level."""
    total = 0.0
    count = 0.0
    for k in range(len(values)):
        if values[k] > level:
            total += values[k]
            count += 1.0
    return total, count


@part
def _water_level(values, mass, start):
    """Return the level m with ``sum(max(values - m, 0)) == mass``."""
    level = start
    total, count = _above(values, level)
    if count == 0.0:
        level = _largest_place(values)[0] - mass
        total, count = _above(values, level)
        if count == 0.0:
            return level
    for _ in range(_MAX_STEPS):
        level = (total - mass) / count
        total, new_count = _above(values, level)
        # Levels increase, so values only leave the set above: equal counts mean equal sets.
        if new_count == count or new_count == 0.0:
            break
        count = new_count
    return level


@part
def _level_within(values, least, most, start):
    """Return the level with a mass above it within bounds; zero if zero is such a level."""
    mass = _positive_sum(values)
    if mass > most:
        return _water_level(values, most, start)
    if mass < least:
        return _water_level(values, least, start)
    return 0.0


@kernel
def nearest_on_side(indptr, lower, upper, values, multipliers, amounts):
    """Project the values of every node onto its feasible amounts, in the order of the side."""
    for node in range(len(lower)):
        first, last = indptr[node], indptr[node + 1]
        if first == last:
            continue
        level = _level_within(values[first:last], lower[node], upper[node], multipliers[node])
        multipliers[node] = level
        for edge in range(first, last):
            amounts[edge] = max(values[edge] - level, 0.0)


def _side(answer):
    """Return a kernel: every node of a side absorbs the last messages and answers.

    `answer` is a part that turns a node's values into its amounts, and returns its multiplier. It
    may also write to `spare`, which is as long.
    """

    def side(
        indptr, positions, lower, upper, parameters, sent, received, sign, rates, agreed, prices,
        multipliers, amounts,
    ):  # fmt: skip
        arrived = np.empty(longest_row(indptr) + _BLOCK)
        start, end = 0, 0
        for node in range(len(lower)):
            first, last = indptr[node], indptr[node + 1]
            if first == last:
                continue
            if last > end:
                start, end = first, _gather(first, last, positions, received, arrived)
            values, spare = amounts[first:last], arrived[first - start : last - start]
            _absorb(first, sent, spare, sign, rates, agreed, prices, values)
            multipliers[node] = answer(
                values, spare, first, parameters, rates[0], lower[node], upper[node],
                multipliers[node],
            )  # fmt: skip

    # Kernels of one name would share files on disk, and processes could mix them up.
    side.__qualname__ = f"side{answer.__name__}"
    return kernel(side)


@part
def _linear_answer(values, spare, first, parameters, eta, least, most, start):
    """Answer with utilities ``a x``."""
    (slopes,) = parameters
    for k in range(len(values)):
        values[k] += slopes[first + k]
    level = _level_within(values, eta * least, eta * most, start)
    for k in range(len(values)):
        values[k] = max(values[k] - level, 0.0) / eta
    return level


@part(fastmath=_SUMS)
def _weighted_above(values, weights, level):
    """Return the weighted sum of the values above a level, and the sum of their weights."""
    total = 0.0
    weight = 0.0
    for k in range(len(values)):
        if values[k] > level:
            total += weights[k] * values[k]
            weight += weights[k]
    return total, weight


@part
def _weighted_level(values, weights, mass, start):
    """Return the level m with ``sum(weights * max(values - m, 0)) == mass``."""
    level = start
    total, weight = _weighted_above(values, weights, level)
    if weight == 0.0:
        largest, best = _largest_place(values)
        level = largest - mass / weights[best]
        total, weight = _weighted_above(values, weights, level)
        if weight == 0.0:
            return level
    for _ in range(_MAX_STEPS):
        level = (total - mass) / weight
        total, new_weight = _weighted_above(values, weights, level)
        if new_weight == weight or new_weight == 0.0:
            break
        weight = new_weight
    return level


@part
def _quadratic_answer(values, spare, first, parameters, eta, least, most, start):
    """Answer with utilities ``a x - b x^2 / 2``."""
    slopes, curvatures = parameters
    weights = spare
    for k in range(len(values)):
        values[k] += slopes[first + k]
        weights[k] = 1.0 / (eta + curvatures[first + k])
    total, weight = _weighted_above(values, weights, 0.0)
    level = 0.0
    if total > most:
        level = _weighted_level(values, weights, most, start)
    elif total < least:
        level = _weighted_level(values, weights, least, start)
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
        best, largest = 0, -np.inf
        for k in range(len(values)):
            marginal = values[k] - eta * scales[k] + weights[k] / scales[k]
            if marginal > largest:
                best, largest = k, marginal
        bend = eta + weights[best] / scales[best] ** 2
        level = largest - max(mass, 1e-300) * bend
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
def _log_answer(values, spare, first, parameters, eta, least, most, start):
    """Answer with utilities ``w log(1 + x / c)``."""
    all_weights, all_scales = parameters
    weights = all_weights[first : first + len(values)]
    scales = all_scales[first : first + len(values)]
    for k in range(len(values)):
        values[k] += eta * scales[k]
    total, slope = _log_sum(values, weights, scales, eta, 0.0)
    level = 0.0
    if total > most:
        level = _log_level(values, weights, scales, eta, most, start)
    elif total < least:
        level = _log_level(values, weights, scales, eta, least, start)
    for k in range(len(values)):
        values[k] = _log_amount(values[k] - level, weights[k], scales[k], eta)[0]
    return level


linear_side, quadratic_side, log_side = map(_side, (_linear_answer, _quadratic_answer, _log_answer))
