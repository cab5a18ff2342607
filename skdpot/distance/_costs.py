"""Transport costs between samples, each in a certified interval; not private."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from skdpot._progress import progress_bar
from skdpot._threads import one_blas_thread
from skdpot.distance._metrics import CostFunction
from skdpot.transport import (
    Costs,
    FunctionCosts,
    MatrixCosts,
    PointCosts,
    certifiable_gap,
    entropic_transport,
    exact_transport,
    monotone_transport,
    smallest_tolerance,
)

# Up to this dimension, a cost is computed faster than it is read from memory.
_FEW_FEATURES = 8
# The entropic solver does not hold larger cost matrices in memory (256 MiB).
_LARGEST_MATRIX = 1 << 25
# The exact solver needs about four matrices, each of at most this many entries (1 GiB).
_MOST_COSTS = 1 << 27


@dataclass(frozen=True)
class Threads:
    """The number of threads that compute costs, and the title of a progress bar, if any."""

    n_jobs: int | None = None
    title: str | None = None

    def for_each(self, n_calls: int) -> int:
        """Return the number of threads for each of `n_calls` simultaneous calls."""
        return max(1, effective_n_jobs(self.n_jobs) // n_calls)

    def map(self, calls: list[Any]) -> list[Any]:
        """Return the results of functions, each given with its arguments."""
        parallel = Parallel(n_jobs=self.n_jobs, require="sharedmem")
        tasks = (delayed(function)(*arguments) for function, *arguments in calls)
        with (
            one_blas_thread(),
            progress_bar(
                tasks, desc=self.title, total=len(calls), disable=self.title is None
            ) as watched,
        ):
            return parallel(watched)


@dataclass(frozen=True)
class CostSettings:
    """The public settings of the cost between two samples.

    Parameters
    ----------
    cost : CostFunction
        Cost between two points.
    reg : float
        Regularisation; 0 is exact transport.
    divergence : {"ot", "sinkhorn"}
        The cost of transport, or the debiased divergence.
    threads : Threads
        The threads that compute it.
    """

    cost: CostFunction
    reg: float
    divergence: str
    threads: Threads = Threads()

    @property
    def cost_range(self) -> float:
        """Return the width of the range of costs."""
        low, high = self.cost.range
        return high - low

    @property
    def offset(self) -> float:
        """Return the constant to add to results, which are computed for costs from 0."""
        return self.cost.range[0] if self.divergence == "ot" else 0.0

    def check_divergence(self) -> None:
        """Raise if the divergence does not exist for these settings."""
        if self.divergence == "sinkhorn" and self.reg == 0:
            raise ValueError(
                "divergence='sinkhorn' removes the bias of regularisation, and needs reg > 0. "
                "Use divergence='ot' for reg=0."
            )

    def check_tolerance(self, tol: float, largest: tuple[int, int]) -> None:
        """Raise unless costs can be computed up to `tol`, for all data of at most these sizes."""
        if self.reg > 0:
            smallest = smallest_tolerance(*largest, self.cost_range, self.reg)
            advice = "Raise reg" if self.reg < self.cost_range else "Lower reg"
        else:
            smallest = certifiable_gap(*largest, 0.0, self.cost_range)
            advice = "Use reg > 0 or fewer records"
            if not self.cost.monotone and largest[0] * largest[1] > _MOST_COSTS:
                raise ValueError(
                    f"exact transport (reg=0) between {largest[0]} and {largest[1]} records needs "
                    "too much memory. Use reg > 0, for which memory does not grow with the product."
                )
        if tol < smallest:
            raise ValueError(
                f"costs would have to be computed up to {tol:.2g}, and double precision certifies "
                f"no less than {smallest:.2g} with reg={self.reg:g}. {advice}, or tol."
            )

    def transport_cost(self, x: np.ndarray, y: np.ndarray, tol: float, n_threads: int = 1) -> float:
        """Return the transport cost for costs from 0, at most `tol` below the exact one."""
        if self.reg == 0 and self.cost.monotone:
            return monotone_transport(x[:, 0], y[:, 0], cost=self.cost.between)
        a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
        if self.reg == 0:
            return exact_transport(self._from_zero(x, y), a, b).cost
        return entropic_transport(self._costs(x, y), a, b, self.reg, tol, n_threads=n_threads).cost

    def _from_zero(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.cost(x, y) - self.cost.range[0]

    def _costs(self, x: np.ndarray, y: np.ndarray) -> Costs:
        """Return the costs between samples, in the representation that suits their size."""
        if self.cost.kind is not None and x.shape[1] <= _FEW_FEATURES:
            squared = self.cost.kind == "sqeuclidean"
            return PointCosts(x, y, squared=squared, high=self.cost.range[1])
        if len(x) * len(y) <= _LARGEST_MATRIX:
            return MatrixCosts(self._from_zero(x, y))
        return FunctionCosts(x, y, self._from_zero, 0.0, self.cost_range)


def pairwise_costs(
    settings: CostSettings, samples: list[np.ndarray], tolerances: Iterable[float]
) -> np.ndarray:
    """Return the costs or divergences between all pairs of samples, for costs from 0.

    Pairs are in the order of ``itertools.combinations``. The tolerances bound how far transport
    costs may be below the exact ones. If there are few costs, each of them uses several threads.
    """
    pairs = list(combinations(range(len(samples)), 2))
    tolerances = list(tolerances)
    tasks = list(zip(pairs, tolerances, strict=True))
    if settings.divergence == "sinkhorn":
        tasks += [((g, g), min(tolerances)) for g in range(len(samples))]
    n_threads = settings.threads.for_each(len(tasks))
    calls = [
        (settings.transport_cost, samples[g], samples[h], tol, n_threads) for (g, h), tol in tasks
    ]
    costs = dict(zip([pair for pair, _ in tasks], settings.threads.map(calls), strict=True))
    return debiased(costs, pairs)


def debiased(costs: dict[tuple[int, int], float], pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the costs of pairs, minus the mean of their costs to themselves if these are given."""
    return np.array(
        [costs[g, h] - (costs.get((g, g), 0.0) + costs.get((h, h), 0.0)) / 2 for g, h in pairs]
    )
