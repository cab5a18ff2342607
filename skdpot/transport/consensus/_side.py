"""One side of the network in the consensus iteration: what its nodes hold, and their answers."""

from typing import Any

import numpy as np

from ._bipartite import Side
from ._general import general_side
from ._nodes import linear_side, log_side, quadratic_side
from ._utilities import LinearUtility, LogUtility, QuadraticUtility


class SideState:
    """What the nodes of a side hold on their edges; every array has the order of the side.

    A side of one node is a node by itself, and comes to the same amounts bit by bit.

    Parameters
    ----------
    side : Side
        The side.
    utility : ConcaveUtility
        Of the side's edges, in its order.
    sign : {1, -1}
        1 for targets, who pay the prices, and -1 for sources, who are paid them.
    start : ndarray of shape (n_edges,)
        Amounts that are agreed on at first. They are public.
    """

    def __init__(self, side: Side, utility: Any, sign: int, start: np.ndarray):
        self.side = side
        self.utility = utility
        self.sign = float(sign)
        self.agreed = start.copy()
        self.prices = np.zeros_like(start)
        self.multipliers = np.zeros(side.n_nodes)
        # Two arrays take turns, as the caller still holds the last answer.
        self._answers = np.empty_like(start), np.empty_like(start)
        self._solver, self._parameters = _solver_of(utility)

    def answer(
        self, sent: np.ndarray, received: np.ndarray, eta: float, relaxation: float, shift: float
    ) -> np.ndarray:
        """Absorb the messages of the last round and return the amounts that the nodes want now.

        Parameters
        ----------
        sent, received : ndarray of shape (n_edges,)
            What this side sent, in its order, and the other one, in that one's order; at first
            both are the amounts of the start.
        eta, relaxation, shift : float
            Penalty, factor of over-relaxation, and what is added to all prices.
        """
        amounts, last = self._answers
        self._answers = last, amounts
        self._solver(
            self.side.indptr, self.side.positions, self.side.lower, self.side.upper,
            *self._parameters, sent, received, self.sign, (eta, relaxation, shift), self.agreed,
            self.prices, self.multipliers, amounts,
        )  # fmt: skip
        return amounts


def _solver_of(utility: Any) -> tuple[Any, tuple]:
    """Return the function that answers for a family of utilities, and the family's parameters."""
    if isinstance(utility, LinearUtility):
        return linear_side, (utility.slopes,)
    if isinstance(utility, QuadraticUtility):
        return quadratic_side, (utility.slopes, utility.curvatures)
    if isinstance(utility, LogUtility):
        return log_side, (utility.weights, utility.scales)
    return general_side, (utility,)
