"""Randomised response about the utilities of the nodes of a network."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from skdpot.privacy.events import DpEvent, PureDpEvent, SelfComposedDpEvent
from skdpot.privacy.random import NoiseSource
from skdpot.privacy.sensitivity import utility_sensitivity
from skdpot.releases._nodes import check_values, draw_for_nodes, rounded_down_share
from skdpot.releases._utilities import UtilityNoise, UtilityRelease

# Maximum number of levels: more would add less than the 2**-40 that rounding takes.
_MOST_LEVELS = 1 << 20
# Bits of a coin, and of a random level.
_BITS = 62
# Relative error of a rounded probability, and of a division by the number of levels.
_ROUNDING = 2.0**-40


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
    >>> from skdpot.privacy.random import make_source
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
            counts = [
                _best_answers(value, degree)
                for value, degree in zip(
                    self._budgets.epsilons.tolist(), self._degrees.tolist(), strict=True
                )
            ]
            self.n_answers = np.array(counts, dtype=np.int64)
        else:
            self.n_answers = self._degrees.copy()
        self._shares = rounded_down_share(self._budgets.epsilons, self._moved("replace_one"))
        levels = [_best_levels(value) for value in self._shares.tolist()]
        self.n_levels = np.array(levels, dtype=np.int64)
        self._keep = _kept(self._shares, self.n_levels) * (1.0 - _ROUNDING)

    def _moved(self, relation: str) -> np.ndarray:
        """Return how many answers of each node a unit of privacy can change."""
        return utility_sensitivity(1, self.n_answers, protect=self._protect, relation=relation)

    def sensitivity(self, relation: str) -> float:
        return float(self._moved(relation).max())

    @property
    def event(self) -> DpEvent:
        # Nodes with one budget may divide it differently, and a node without edges has no answers.
        return PureDpEvent(float(self._budgets.epsilons.max()))

    def node_event(self, node: int) -> DpEvent:
        answer = PureDpEvent(float(self._shares[node]))
        if self._protect == "parameter":
            return answer
        return SelfComposedDpEvent(answer, int(self.n_answers[node]))

    @property
    def standard_error(self) -> float:
        explained = explained_share(self._shares, self.n_levels)[self._of_edge]
        # If an edge does not answer, only the range of its parameter is known.
        answering = (self.n_answers / np.maximum(self._degrees, 1))[self._of_edge]
        return self.spread * math.sqrt(float(np.mean(1.0 - answering * explained)))

    def run(self, values: Any, source: Any) -> np.ndarray:
        """Return levels from 0, and -1 for an edge that does not answer."""
        levels = self._levels_of(check_values(values, len(self._of_edge)))
        return draw_for_nodes(
            source,
            self._degrees,
            lambda stream, nodes, edges: self._answer(stream, levels[edges], nodes),
        )

    def estimate(self, released: Any) -> np.ndarray:
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

    def _answer(self, source: NoiseSource, levels: np.ndarray, nodes: slice) -> np.ndarray:
        degrees = self._degrees[nodes]
        of_edge = np.repeat(np.arange(len(degrees)), degrees)
        words = source.bits(_BITS, (3, len(levels)))
        heads = words[0] < np.floor(np.ldexp(self._keep[nodes], _BITS)).astype(np.int64)[of_edge]
        # The division leaves a bias below 2**-42, which the smaller probability to keep a level
        # covers.
        answers = np.where(heads, levels, words[1] % self.n_levels[nodes][of_edge])
        if self._protect == "parameter":
            return answers
        order = np.lexsort((words[2], of_edge))
        rank = np.empty(len(levels), dtype=np.int64)
        rank[order] = np.arange(len(levels)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        return np.where(rank < self.n_answers[nodes][of_edge], answers, -1)


# Releases of utilities, by the names of their mechanisms.
UTILITY_MECHANISMS: dict[str, Any] = {"input": UtilityResponse, "input_laplace": UtilityNoise}


def explained_share(epsilon: Any, n_levels: Any) -> Any:
    """Return the share of a uniform parameter's variance that an answer explains.

    It is ``p^2 (1 - 1 / k^2)`` for k levels, with ``p = (exp(epsilon) - 1) / (exp(epsilon) + k -
    1)``.

    Examples
    --------
    >>> from skdpot.releases._responses import explained_share
    >>> round(float(explained_share(1.0, 2)), 4)
    0.1602
    """
    k = np.asarray(n_levels, dtype=np.float64)
    return _kept(epsilon, k) ** 2 * (1.0 - 1.0 / k**2)


def _kept(epsilon: Any, n_levels: Any) -> Any:
    """Return the probability with which a level is kept."""
    epsilon = np.asarray(epsilon, dtype=np.float64)
    return -np.expm1(-epsilon) / (1.0 + (n_levels - 1.0) * np.exp(-epsilon))


@lru_cache(maxsize=4096)
def _best_levels(epsilon: float) -> int:
    """Return the number of levels that explains most variance, about ``exp(epsilon / 3)``."""
    centre = math.exp(min(epsilon, 45.0) / 3)
    tried = np.unique(np.rint(centre * np.geomspace(0.25, 4.0, 129)).astype(np.int64))
    tried = np.unique(np.clip(np.concatenate([[2, 3], tried]), 2, _MOST_LEVELS))
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
