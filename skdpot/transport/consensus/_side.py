"""One side of the network in the consensus iteration: the state of its nodes, and their answers."""

from typing import Any

import numpy as np

from ._bipartite import Side
from ._general import general_side
from ._nodes import linear_side, log_side, quadratic_side
from ._utilities import LinearUtility, LogUtility, QuadraticUtility


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

    def __init__(self, side: Side, utility: Any, sign: int, start: np.ndarray):
        self.side = side
        self.utility = utility
        self.sign = float(sign)
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
        self._solver(
            self.side.indptr, self.side.positions, self.side.lower, self.side.upper,
            self._parameters, sent, received, self.sign, (eta, relaxation, shift), self.agreed,
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
