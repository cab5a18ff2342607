"""Answers of nodes with user-defined utilities, by safeguarded Newton steps in NumPy.

All nodes are solved at once, but each stops by itself, so no node's answer depends on others.
"""

from typing import Any

import numpy as np

_MAX_STEPS = 200
_PRECISION = 1e-14
_SUM_PRECISION = 1e-13


def general_side(
    indptr, positions, lower, upper, parameters, sent, received, sign, rates, agreed, prices,
    multipliers, amounts,
):  # fmt: skip
    """Let every node of a side absorb the last messages and answer; see :mod:`._nodes`."""
    (utility,) = parameters
    eta, relaxation, shift = rates
    other_messages = received[positions]
    agreed *= 1.0 - relaxation
    agreed += relaxation * (0.5 * (sent + other_messages))
    prices += 0.5 * relaxation * eta * sign * (sent - other_messages) + shift
    nodes = np.repeat(np.arange(len(lower)), np.diff(indptr))
    demand = _Demand(utility, sign * prices, agreed, eta, nodes, len(lower))
    _solve_nodes(demand, lower, upper, multipliers)
    amounts[:] = demand.amounts


class _Demand:
    """The amounts of all edges as functions of the multipliers of their nodes.

    `amounts` are the last result, from which the next search starts.
    """

    def __init__(
        self,
        utility: Any,
        prices: np.ndarray,
        agreed: np.ndarray,
        eta: float,
        nodes: np.ndarray,
        n_nodes: int,
    ):
        self.utility = utility
        self.prices = prices
        self.agreed = agreed
        self.eta = eta
        self.nodes = nodes
        self.n_nodes = n_nodes
        self.zero_slopes = utility.derivative(np.zeros_like(prices)) - prices
        self.amounts = np.maximum(agreed, 0.0)

    def __call__(self, multipliers: np.ndarray, asking: np.ndarray) -> np.ndarray:
        """Return the best amounts, by Newton steps within a shrinking bracket.

        Nodes that are not asking keep their amounts.
        """
        gains = self.zero_slopes - multipliers[self.nodes]
        low = np.zeros_like(gains)
        high = np.maximum(self.agreed + gains / self.eta, 0.0)
        x = np.clip(self.amounts, low, high)
        is_idle = ~asking[self.nodes]
        is_final = is_idle | (high == 0.0)
        for _ in range(_MAX_STEPS):
            slope = self._slope(x, multipliers)
            low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
            step = x + slope / (self.eta - self.utility.second_derivative(x))
            step = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            is_final |= (high - low <= _PRECISION * high) | (np.abs(step - x) <= _PRECISION * x)
            if is_final.all():
                break
            x = np.where(is_final, x, step)
        x = np.where(gains + self.eta * self.agreed > 0, x, 0.0)
        self.amounts = np.where(is_idle, self.amounts, x)
        return self.amounts

    def _slope(self, x: np.ndarray, multipliers: np.ndarray) -> np.ndarray:
        marginal = self.utility.derivative(x) - self.prices - multipliers[self.nodes]
        return marginal - self.eta * (x - self.agreed)

    def sums(self, x: np.ndarray) -> np.ndarray:
        """Return the sums at the nodes."""
        return np.bincount(self.nodes, x, self.n_nodes)

    def falls(self, x: np.ndarray) -> np.ndarray:
        """Return by how much the sums fall with the multipliers."""
        bends = self.eta - self.utility.second_derivative(x)
        return np.bincount(self.nodes, np.where(x > 0, 1.0 / bends, 0.0), self.n_nodes)


def _solve_nodes(
    demand: _Demand, lower: np.ndarray, upper: np.ndarray, multipliers: np.ndarray
) -> None:
    """Set the multipliers at which all sums are within their bounds."""
    free = demand.sums(demand(np.zeros_like(multipliers), np.ones(len(lower), bool)))
    mass = np.clip(free, lower, upper)
    bound = (mass != free) & (np.bincount(demand.nodes, minlength=len(lower)) > 0)
    # With a multiplier above its largest marginal utility, a node wants nothing.
    best = np.full(len(lower), -np.inf)
    np.maximum.at(best, demand.nodes, demand.zero_slopes + demand.eta * demand.agreed)
    high = np.where(bound, np.where(mass < free, np.maximum(best, 0.0), 0.0), 0.0)
    low = np.where(bound & (mass > free), _sufficient_levels(demand, mass, bound), 0.0)
    level = np.where(bound, np.clip(multipliers, low, high), 0.0)
    for _ in range(_MAX_STEPS):
        x = demand(level, bound)
        excess = demand.sums(x) - mass
        low, high = np.where(excess > 0, level, low), np.where(excess > 0, high, level)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = level + excess / demand.falls(x)
        step = np.where((step > low) & (step < high), step, 0.5 * (low + high))
        is_met = np.abs(excess) <= _SUM_PRECISION * mass
        width = high - low <= _PRECISION * np.maximum(np.abs(low), np.abs(high))
        bound &= ~(is_met | width)
        if not bound.any():
            break
        level = np.where(bound, step, level)
    multipliers[:] = level


def _sufficient_levels(demand: _Demand, mass: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Return negative multipliers at which the sums reach what the nodes need."""
    level = np.full(len(mass), -1.0)
    for _ in range(1000):
        bound = bound & (demand.sums(demand(level, bound)) < mass)
        if not bound.any():
            break
        level = np.where(bound, 2.0 * level, level)
    return level
