"""An allocation problem on a public network, and the search for its best plan."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array

from skdpot._base import refuse_other_order, warn_user
from skdpot._progress import plain_bar
from skdpot.privacy.quotes import shown
from skdpot.tables import as_numbers
from skdpot.transport.consensus import (
    BipartiteNetwork,
    LinearUtility,
    consensus,
    make_network,
    make_utility,
    optimal_plan,
    starting_eta,
)

# Default bounds of what a node may give or receive.
_USUAL_BOUNDS = (0.0, 1.0)
# Products and quotients of some numbers within these limits neither overflow nor underflow.
_LEAST, _LARGEST = 1e-60, 1e60
_NO_NUMBERS = "source_utilities holds values that are not real numbers."


@dataclass(frozen=True, eq=False)
class Problem:
    """An allocation problem. Everything but the values of utilities is public.

    Attributes
    ----------
    network : BipartiteNetwork
        Edges, and bounds of the nodes.
    family : str or callable
        The family of utilities.
    scale : ndarray of shape (n_edges,)
        The public parameter of utilities that have a second one.
    values : tuple of ndarray of shape (n_edges,)
        Utilities of the targets, and of the sources if they have any: private, or released.
    compact : bool
        Whether matrices on the edges are returned as sparse arrays.
    """

    network: BipartiteNetwork
    family: Any
    scale: np.ndarray
    values: tuple[np.ndarray, ...]
    compact: bool = False

    def with_values(self, values: Any) -> "Problem":
        """Return the same problem with other utilities."""
        return replace(self, values=tuple(values))

    def utilities(self) -> list[Any]:
        """Return the utilities of the targets, and those of the sources if they have any."""
        found = [make_utility(self.family, side_values, self.scale) for side_values in self.values]
        return found if len(found) == 2 else [*found, LinearUtility(np.zeros_like(self.scale))]


def read_network(
    X: Any, adjacency: Any, target_bounds: Any, source_bounds: Any, *, private: bool
) -> BipartiteNetwork:
    """Return the public network, from the shape of X and, without privacy, its stored entries."""
    if adjacency is None:
        adjacency = _default_edges(X, private)
    bounds = [
        _USUAL_BOUNDS if bounds_of_side is None else bounds_of_side
        for bounds_of_side in (target_bounds, source_bounds)
    ]
    if np.shape(adjacency) != X.shape:
        raise ValueError(
            f"adjacency must be of shape {X.shape}, that of X, with a row for each target; got "
            f"shape {np.shape(adjacency)}."
        )
    network = make_network(adjacency, *bounds)
    largest = max(side.upper.max(initial=0.0) for side in (network.targets, network.sources))
    if largest > _LARGEST or 0 < largest < _LEAST:
        raise ValueError(f"bounds must be up to {_LARGEST:g}, and one of them at least {_LEAST:g}.")
    return network


def check_order(X: Any, **tables: Any) -> None:
    """Raise if frames have the names of X in another order."""
    if not hasattr(X, "columns"):
        return
    targets, sources = getattr(X, "index", ()), X.columns
    for name, table in tables.items():
        refuse_other_order(name, table, sources if name == "source_bounds" else targets)
        refuse_other_order(name, table, sources, "columns")


def _default_edges(X: Any, private: bool) -> Any:
    """Return all pairs for a dense X, or the stored entries of a sparse X that is not private."""
    if not sparse.issparse(X):
        return np.ones(X.shape, dtype=bool)
    if private:
        raise ValueError(
            "adjacency must be given with a sparse X: the edges are public, so they may not be "
            "taken from private utilities. If it is public which entries X has, pass "
            "adjacency=(X != 0)."
        )
    # A copy: a network sorts its indices in place, and those of X belong to its values.
    edges = sparse.csr_array(X, dtype=bool, copy=True)
    edges.data[:] = True
    return edges


def read_source_utilities(matrix: Any, shape: tuple[int, int], *, private: bool = False) -> Any:
    """Return the sources' utilities as an array or CSR array; errors quote no value.

    If `private`, no value raises: NaN stands for those that are no numbers, or missing. They are
    read like X, so that columns of all types of libraries of tables become numbers.
    """
    found = _as_doubles(lambda: _private_numbers(matrix) if private else matrix)
    if found is None:
        # Raised outside of the handler, whose error quotes what it could not read.
        raise ValueError(_NO_NUMBERS)
    if found.shape != shape:
        raise ValueError(
            f"source_utilities must be of shape {shape}, that of X, with a row for each target; "
            f"got shape {found.shape}."
        )
    if not (private or np.isfinite(found.data if sparse.issparse(found) else found).all()):
        raise ValueError("source_utilities contains NaN or infinity.")
    return found


def _private_numbers(matrix: Any) -> Any:
    with config_context(assume_finite=False):
        return check_array(
            as_numbers(matrix), accept_sparse="csr", dtype=np.float64, ensure_2d=False,
            allow_nd=True, ensure_all_finite=False, ensure_min_samples=0, ensure_min_features=0,
        )  # fmt: skip


def _as_doubles(read: Callable[[], Any]) -> Any:
    """Return an array or a CSR array of doubles, or None if that is impossible."""
    try:
        matrix = read()
        found = sparse.csr_array(matrix) if sparse.issparse(matrix) else np.asarray(matrix)
        return None if np.iscomplexobj(found) else found.astype(np.float64)
    except Exception:
        return None


def on_edges(matrix: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the entries of a matrix on the edges, in the order of the targets.

    Entries that a sparse matrix does not store are 0; stored entries elsewhere are ignored.
    """
    rows, columns = network.targets.nodes, network.targets.neighbours
    if not sparse.issparse(matrix):
        return np.asarray(matrix, dtype=np.float64)[rows, columns]
    # A copy, since duplicates are added in place.
    held = sparse.csr_array(matrix, copy=True)
    held.sum_duplicates()
    return np.asarray(held[rows, columns], dtype=np.float64).ravel()


def read_scale(scale: Any, network: BipartiteNetwork) -> np.ndarray:
    """Return the public scale of quadratic and logarithmic utilities on the edges."""
    if np.ndim(scale) == 0 and not sparse.issparse(scale):
        found = np.full(network.n_edges, float(scale))
    elif np.shape(scale) == network.shape:
        found = on_edges(scale, network)
    else:
        raise ValueError(
            f"utility_scale must be a number or of shape {network.shape}, got shape "
            f"{np.shape(scale)}."
        )
    if not ((found == 0) | ((found >= _LEAST) & (found <= _LARGEST))).all():
        raise ValueError(f"utility_scale must be 0, or between {_LEAST:g} and {_LARGEST:g}.")
    return found


def read_ranges(utility_bounds: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the declared ranges (low, high) of the targets' and of the sources' utilities."""
    if utility_bounds is None:
        raise ValueError(
            "utility_bounds must be declared for a private fit: (low, high), the least and the "
            "largest possible utility of a unit. They scale the noise and may not be learned from "
            "private utilities. (epsilon=None is a fit that protects nothing.)"
        )
    message = (
        "utility_bounds must be a pair (low, high) of finite numbers of sizes up to "
        f"{_LARGEST:g}, with low < high by {_LEAST:g} at least, or two such pairs, of targets and "
        f"of sources; got {shown(utility_bounds)}."
    )
    try:
        ranges = np.array(np.broadcast_to(np.asarray(utility_bounds, dtype=np.float64), (2, 2)))
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    sizes_fit = (np.abs(ranges) <= _LARGEST).all()
    if not (sizes_fit and (ranges[:, 1] - ranges[:, 0] >= _LEAST).all()):
        raise ValueError(message)
    return tuple((float(low), float(high)) for low, high in ranges)  # type: ignore[return-value]


def within_ranges(problem: Problem, ranges: Any) -> Problem:
    """Return private utilities moved into their declared ranges, and their middles for NaN.

    Raise if the family has no utility with the lowest parameter, which is public.
    """
    moved = []
    for values, (low, high) in zip(problem.values, ranges, strict=False):
        make_utility(problem.family, np.full_like(problem.scale, low), problem.scale)
        moved.append(np.where(np.isnan(values), (low + high) / 2, np.clip(values, low, high)))
    return problem.with_values(moved)


def read_factors(node_budgets: Any, network: BipartiteNetwork) -> tuple[Any, Any]:
    """Return the share of epsilon, in (0, 1], that each target and each source spends."""
    pair = (1.0, 1.0) if node_budgets is None else tuple(node_budgets)
    message = (
        "node_budgets must be a pair, for the targets and for the sources: the part of epsilon "
        "that they spend, above 0 and at most 1, as one number or as one for each of "
        f"{network.shape[0]} targets and {network.shape[1]} sources."
    )
    if len(pair) != 2:
        raise ValueError(message)
    try:
        targets, sources = (
            np.broadcast_to(np.asarray(part, dtype=np.float64), (n,))
            for part, n in zip(pair, network.shape, strict=True)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(message) from error
    if not all(((part > 0) & (part <= 1)).all() for part in (targets, sources)):
        raise ValueError(message)
    return targets, sources


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
