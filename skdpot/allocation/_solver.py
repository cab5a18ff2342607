"""The search for the best plan: by messages between nodes, or by a network simplex."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skdpot._base import warn_user
from skdpot._progress import plain_bar
from skdpot.transport.consensus import BipartiteNetwork, consensus, optimal_plan, starting_eta

from ._problem import Problem

_HISTORY = ("n_iter", "eta", "primal_residual", "dual_residual", "welfare", "bound")
# Up to this number of edges, the network simplex takes some seconds.
_FEW_EDGES = 1_000_000


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan, and how it was found. Arrays are on the edges, in the order of the targets.

    Attributes
    ----------
    network : BipartiteNetwork
        The public network.
    compact : bool
        Whether matrices on the edges are returned as sparse arrays.
    plan, prices : ndarray of shape (n_edges,)
        Amounts, and prices.
    n_iter : int
        Number of rounds, or of programs.
    primal_residual, dual_residual : float
        Residuals of the last round.
    history : dict of str to ndarray
        Records of the rounds.
    welfare, gap : float or None
        Welfare of the plan for its utilities, and a bound of its relative distance from the best;
        None if no utilities are known.
    utilities : tuple of ndarray of shape (n_edges,)
        The released utilities.
    """

    network: BipartiteNetwork
    compact: bool
    plan: np.ndarray
    prices: np.ndarray
    n_iter: int
    primal_residual: float
    dual_residual: float
    history: dict[str, np.ndarray]
    welfare: float | None = None
    gap: float | None = None
    utilities: tuple[np.ndarray, ...] = ()

    @classmethod
    def from_agreement(cls, problem: Problem, agreed: Any, **further: Any) -> "Solution":
        """Return the solution that the rounds led to."""
        return cls(
            problem.network, problem.compact, agreed.plan, agreed.prices, agreed.n_iter,
            agreed.primal_residual, agreed.dual_residual, agreed.history, **further,
        )  # fmt: skip


@dataclass(frozen=True)
class Solver:
    """The algorithm that searches for a plan.

    Attributes
    ----------
    max_iter : int
        Largest number of rounds.
    tol : float
        The relative distance of the welfare from the best, at most.
    n_threads : int
        Threads over the sides, at most two.
    progress : dict
        Options of the progress bar over rounds.
    """

    max_iter: int = 20_000
    tol: float = 1e-4
    n_threads: int = 1
    progress: dict[str, Any] = field(default_factory=lambda: {"disable": True})

    def best_plan(self, problem: Problem) -> Solution:
        """Return the best plan for released utilities, found centrally."""
        n_edges, shape = problem.network.n_edges, problem.network.shape
        # Except on huge sparse networks, the network simplex is faster than rounds.
        soon = n_edges <= max(_FEW_EDGES, shape[0] * shape[1] // 2)
        if problem.family != "linear" or not soon:
            return self.agree(problem, utilities=problem.values)
        best = optimal_plan(problem.network, *problem.utilities())
        return Solution(
            problem.network, problem.compact, best.plan, best.prices, best.n_programs, 0.0, 0.0,
            dict.fromkeys(_HISTORY, np.empty(0)), best.welfare, best.gap, problem.values,
        )  # fmt: skip

    def agree(self, problem: Problem, **further: Any) -> Solution:
        """Return the plan that the nodes agree on by messages without noise."""
        spread = max(float(np.ptp(values)) if len(values) else 0.0 for values in problem.values)
        with plain_bar(total=self.max_iter, unit=" rounds", **self.progress) as bar:

            def pass_on(n_iter, eta, *answers):
                """Return answers as they are; it is called once in every round."""
                bar.update()
                return answers

            agreed = consensus(
                problem.network,
                *problem.utilities(),
                eta=starting_eta(problem.network, spread),
                tol=self.tol,
                max_iter=self.max_iter,
                release=pass_on,
                n_threads=self.n_threads,
            )
        if not agreed.converged:
            warn_user(
                f"after {agreed.n_iter} rounds the welfare of the plan is within {agreed.gap:.1e} "
                f"of the largest possible one, and not within {self.tol:g}. Raise max_iter or tol.",
                ConvergenceWarning,
            )
        return Solution.from_agreement(
            problem, agreed, welfare=agreed.welfare, gap=agreed.gap, **further
        )
