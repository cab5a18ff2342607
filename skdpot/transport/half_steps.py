"""Half steps of Sinkhorn's algorithm over panels of rows, in threads, and a plan that is kept.

A half step answers column potentials by row potentials, and adds up the columns of the plan that
both describe. Potentials are in units of the regularisation, for costs that begin at 0. The results
are as private as the costs and weights.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np

from .costs import Costs

# A plan that is kept is scaled while the potentials change by no more than this many units of reg:
# two products with a matrix are cheaper than exponentials.
REACH = 30.0
_PANEL_SIZE = 1 << 17
_NOTHING = np.empty((0, 0))


def half_step(
    costs: Costs,
    g: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    reg: float,
    executor: Any,
    kept: np.ndarray = _NOTHING,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row potentials that answer g, and the columns of their plan.

    Rows have the weights a, and columns b. The plan's rows, scaled to sum 1, are written to `kept`
    unless that is empty.
    """
    biased = g + np.log(b)
    panels = costs.panels()
    potential = np.empty(costs.shape[0])
    columns = np.zeros((len(panels), costs.shape[1]))

    def work(k: int) -> None:
        costs.answer(panels[k], biased, a, reg, potential, columns[k], kept)

    _run(work, len(panels), executor)
    return potential, columns.sum(axis=0)


class KeptPlan:
    """A plan with exact rows that is scaled as long as the potentials stay near those it has."""

    def __init__(self, costs: Costs, a: np.ndarray, b: np.ndarray, executor: Any) -> None:
        self.costs, self.a, self.b, self._executor = costs, a, b, executor
        self._rows = np.empty(costs.shape)
        height = max(1, _PANEL_SIZE // costs.shape[1])
        self._panels = [slice(start, start + height) for start in range(0, costs.shape[0], height)]
        self._reg, self._g, self._f = math.nan, b, a

    def evaluate(self, g: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the row potentials that answer g, and the columns of their plan."""
        if reg != self._reg or np.abs(g - self._g)[self.b > 0].max() > REACH:
            self._reg, self._g = reg, g
            self._f, columns = half_step(
                self.costs, g, self.a, self.b, reg, self._executor, self._rows
            )
            return self._f, columns
        scaling = np.exp(g - self._g)
        sums = np.empty(len(self.a))
        columns = np.empty((len(self._panels), len(self.b)))

        def work(k: int) -> None:
            rows = self._panels[k]
            sums[rows] = self._rows[rows] @ scaling
            columns[k] = (self.a[rows] / sums[rows]) @ self._rows[rows]

        _run(work, len(self._panels), self._executor)
        return self._f - np.log(sums), scaling * columns.sum(axis=0)

    def overlaps(self, g: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return P' diag(1 / a) P, where P is the plan of g with its columns times weights."""
        scaling, (n, m) = np.exp(g - self._g), self.costs.shape
        result = np.zeros((m, m))
        # As many rows at a time as the result has are no more memory than that.
        for start in range(0, n, m):
            rows = slice(start, start + m)
            sums = self._rows[rows] @ scaling
            plan = self._rows[rows] * (scaling * weights)
            plan *= (np.sqrt(self.a[rows]) / sums)[:, None]
            result += plan.T @ plan
        return result


def threads(n_threads: int) -> Any:
    """Return a context whose value runs panels in threads, and is None for a single one."""
    return nullcontext() if n_threads == 1 else ThreadPoolExecutor(n_threads)


def _run(work: Callable[[int], None], count: int, executor: Any) -> None:
    """Call a function with 0, 1, ..., in threads if there are any; errors come through."""

    def quietly(k: int) -> None:
        # Settings of the caller's thread do not hold in other threads.
        with np.errstate(all="ignore"):
            work(k)

    for _ in (map if executor is None else executor.map)(quietly, range(count)):
        pass
