"""Penalty and price shift of the iteration, computed only from the messages."""

import math

import numpy as np

from ._bipartite import BipartiteNetwork

# The last rounds in which prices are shifted, and in which penalties change. Later than that, both
# slow convergence.
_LAST_SHIFT, _LAST_CHANGE = 100, 300
# Number of rounds between two changes of the penalty.
_INTERVAL = 20
_RATIO = 4.0
_FACTOR = 2.0
# Prices are not shifted if both sides' totals differ by less, relative to the larger one.
_SETTLED = 1e-3
_LONGER, _SHORTER = 1.5, 0.4
_STATE = ("eta", "shift", "primal_residual", "dual_residual", "_step", "_sign")


class Coordinator:
    """The penalty eta and the shift of all prices, which are announced before every round.

    Both are functions of the messages, so they reveal no more than the messages.

    The shift saves rounds. If all targets together want more than the sources offer, all prices
    must rise, but the iteration raises each in small steps. So the coordinator shifts all prices by
    one step. The step grows while the difference of totals keeps its sign, and shrinks when the
    sign changes. There is no shift if the totals are nearly equal.

    Parameters
    ----------
    network : BipartiteNetwork
        The network.
    eta : float
        Penalty of the first round.
    adaptive : bool
        Whether to change the penalty.
    shifting : bool
        Whether to shift the prices.
    max_iter : int
        The number of rounds. Prices are shifted in the first 100 rounds or the first quarter, and
        the penalty changes in the first 300 or the first half. After that the iteration is the
        plain one, which converges from any state.
    """

    def __init__(
        self, network: BipartiteNetwork, eta: float, adaptive: bool, shifting: bool, max_iter: int
    ):
        self.network = network
        self.eta = eta
        self.shift = 0.0
        self.primal_residual = math.inf
        self.dual_residual = math.inf
        self._adaptive = adaptive
        self._shifting = shifting
        self._max_iter = max_iter
        self._last_shift = min(max_iter / 4, _LAST_SHIFT)
        self._last_change = min(max_iter / 2, _LAST_CHANGE)
        self._step = 0.0
        self._sign = 0.0

    def state(self) -> dict[str, float]:
        """Return the state that changes from round to round."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: dict[str, float]) -> None:
        """Continue from the state of another one with the same parameters."""
        for name in _STATE:
            setattr(self, name, state[name])

    def observe(self, n_iter, targets, sources, last_targets, last_sources, prices):
        """Update the penalty and the shift by the messages of a round and of the one before it.

        Parameters
        ----------
        n_iter : int
            Number of the round, from one.
        targets, sources : ndarray of shape (n_edges,)
            Messages of the two sides, each in its own order.
        last_targets, last_sources : ndarray of shape (n_edges,)
            Their messages in the round before.
        prices : ndarray of shape (n_edges,)
            Prices before this round, in the order of the targets; they follow from the messages.
        """
        self._shift_prices(n_iter, float(targets.sum()), float(sources.sum()))
        if n_iter % _INTERVAL == 0 or n_iter == self._max_iter:
            self._measure(targets, sources, last_targets, last_sources, prices, n_iter)

    def has_settled(
        self, tol: float, targets: np.ndarray, sources: np.ndarray, prices: np.ndarray
    ) -> bool:
        """Tell whether both residuals are small, relative to amounts and differences of prices."""
        amount, spread = _sizes(targets, sources, prices)
        return self.primal_residual <= tol * amount and self.dual_residual <= tol * spread

    def _shift_prices(self, n_iter: int, demand: float, supply: float) -> None:
        self.shift = 0.0
        larger = max(abs(demand), abs(supply))
        if not self._shifting or n_iter > self._last_shift or larger == 0.0:
            return
        if abs(demand - supply) <= _SETTLED * larger:
            return
        sign = math.copysign(1.0, demand - supply)
        if self._step == 0.0:
            # A tenth of the penalty's price for the mean amount of a node.
            nodes = sum(self.network.shape)
            self._step = 0.1 * self.eta * larger / nodes
        else:
            self._step *= _LONGER if sign == self._sign else _SHORTER
        self._sign = sign
        self.shift = sign * self._step

    def _measure(self, targets, sources, last_targets, last_sources, prices, n_iter):
        """Set the residuals, and change the penalty if one residual is much larger."""
        order = self.network.targets.positions
        received = sources[order]
        change = 0.5 * (targets + received) - 0.5 * (last_targets + last_sources[order])
        self.primal_residual = float(np.linalg.norm(targets - received))
        self.dual_residual = self.eta * float(np.linalg.norm(change))
        if not self._adaptive or n_iter > self._last_change:
            return
        amount, spread = _sizes(targets, sources, prices)
        primal, dual = self.primal_residual * spread, self.dual_residual * amount
        if primal > _RATIO * dual:
            self.eta *= _FACTOR
        elif dual > _RATIO * primal:
            self.eta /= _FACTOR


def _sizes(targets: np.ndarray, sources: np.ndarray, prices: np.ndarray) -> tuple[float, float]:
    """Return the norm of the amounts, and of the differences of prices from their mean."""
    amount = float(max(np.linalg.norm(targets), np.linalg.norm(sources)))
    return amount, float(np.std(prices)) * math.sqrt(len(prices))


def check_rates(eta: float, relaxation: float, tol: float | None) -> None:
    """Raise if a parameter of the rounds is invalid."""
    if not 0 < eta < math.inf:
        raise ValueError(f"eta must be positive and finite, got {eta}.")
    if not 0 < relaxation < 2:
        raise ValueError(f"relaxation must be between 0 and 2, both excluded; got {relaxation}.")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol must be at least 0, got {tol}.")
