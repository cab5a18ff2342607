"""Barycenters of groups that keep their points to themselves: problem and result."""

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..polytope import check_weights
from ._exchange import Arrays, Exchange, Method, Rounds

# No sum of sizes is above.
_LARGEST_SIZE = 2.0**40


@dataclass(frozen=True, eq=False)
class BarycenterProblem:
    """The public facts about a barycenter in rounds, with squared Euclidean costs.

    Parameters
    ----------
    n_groups : int
        Number of groups.
    n_support : int
        Number of points of the barycenter, which have equal masses.
    weights : "proportional" or array-like of shape (n_groups,), default="proportional"
        Non-negative weights of the groups with sum 1, or in proportion to their sizes, of which
        only the sum becomes known.
    candidates : array-like of shape (n_candidates, n_features), default=None
        Points to choose from. Algorithm "free" begins with such a choice, or, without candidates,
        with points that are spread like the groups on average.
    bounds : pair of float or array-like of shape (n_features,), default=None
        The box that all points are declared to lie in. Needed for `Step.largest` only.
    method : {"bundle", "dual", "free"}, default="bundle"
        How candidates are chosen, or "free" for points that may lie anywhere.
    tol : float, default=1e-3
        Certified gap, relative to the relaxed objective, at which the choice among candidates
        stops. Algorithm "free" stops at a round that lowers the objective by less than this part.
    max_iter : int, default=None
        Largest number of rounds of the algorithm. Beginning, and choosing candidates by the shares
        that were found, takes up to ten more. None is 3000 for "dual", 100 for "free", else 200.
    n_features : int, default=None
        Number of coordinates, needed if neither candidates nor arrays of bounds determine it.
    resolution : float, default=0.0
        Largest error of the sums that the coordinator gets, in units of `Step.largest`: the
        rounding of fixed-point numbers. Certificates allow for it.

    Raises
    ------
    ValueError
        If a parameter is invalid.

    Examples
    --------
    >>> from skdpot.transport.barycenter import BarycenterProblem
    >>> problem = BarycenterProblem(3, 2, candidates=[[0.0], [1.0], [3.0]], bounds=(0, 4))
    >>> problem.largest_cost
    16.0
    """

    n_groups: int
    n_support: int
    weights: Any = "proportional"
    candidates: Any = None
    bounds: Any = None
    method: str = "bundle"
    tol: float = 1e-3
    max_iter: Any = None
    n_features: Any = None
    resolution: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n_groups", "n_support"):
            if operator.index(getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.method not in Method.known:
            raise ValueError(f"method must be one of {list(Method.known)}, got {self.method!r}.")
        if not 0 < self.tol < math.inf:
            raise ValueError(f"tol must be positive and finite, got {self.tol}.")
        if not 0 <= self.resolution < 1:
            raise ValueError(f"resolution must be at least 0 and below 1, got {self.resolution}.")
        max_iter = (
            Method.known[self.method].default_rounds if self.max_iter is None else self.max_iter
        )
        if operator.index(max_iter) < 1:
            raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
        weights = self.weights
        if not (isinstance(weights, str) and weights == "proportional"):
            weights = check_weights(weights, self.n_groups, "weights")
        candidates = self._checked_candidates()
        bounds, n_features = self._checked_bounds(candidates)
        for name, value in {
            "weights": weights,
            "candidates": candidates,
            "bounds": bounds,
            "max_iter": max_iter,
            "n_features": n_features,
        }.items():
            object.__setattr__(self, name, value)

    def _checked_candidates(self) -> np.ndarray | None:
        if self.candidates is None:
            if Method.known[self.method].needs_candidates:
                raise ValueError(f"method={self.method!r} needs candidates to choose from.")
            return None
        candidates = np.array(self.candidates, dtype=np.float64)
        if candidates.ndim != 2 or not candidates.shape[1] or not np.isfinite(candidates).all():
            raise ValueError("candidates must be a matrix of finite numbers.")
        if len(candidates) < self.n_support:
            raise ValueError(
                f"n_support must not be above the number of candidates, {len(candidates)}, because "
                f"the chosen points are distinct; got {self.n_support}."
            )
        return candidates

    def _checked_bounds(
        self, candidates: np.ndarray | None
    ) -> tuple[tuple[np.ndarray, np.ndarray] | None, int]:
        low, high = np.broadcast_arrays(*(self.bounds if self.bounds is not None else (0.0, 0.0)))
        n_features = low.size if low.ndim == 1 else self.n_features
        n_features = n_features if candidates is None else candidates.shape[1]
        if n_features is None or operator.index(n_features) < 1:
            raise ValueError("n_features is needed if candidates and bounds do not determine it.")
        if self.n_features not in (None, n_features):
            raise ValueError(f"n_features={self.n_features}, but points have {n_features}.")
        if self.bounds is None:
            return None, n_features
        if low.shape not in ((), (n_features,)):
            raise ValueError(f"bounds must be two numbers, or two arrays of {n_features}.")
        low, high = (np.full(n_features, one, dtype=np.float64) for one in (low, high))
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise ValueError("bounds must be finite, and the lower ones not above the upper ones.")
        return (low, high), n_features

    @property
    def n_candidates(self) -> int:
        """Number of candidates, 0 without any."""
        return 0 if self.candidates is None else len(self.candidates)

    @property
    def largest_cost(self) -> float:
        """The largest cost there can be, between two points of the box or to a candidate."""
        if self.bounds is None:
            return math.inf
        low, high = self.bounds
        ends = low[None] if self.candidates is None else np.vstack([low, self.candidates])
        return float(np.square(np.maximum(ends - low, high - ends)).sum(axis=1).max())

    def exchange(self) -> Exchange:
        """Return an exchange with these groups."""
        return Exchange(self.largest_cost, self.largest_coordinate, self.resolution)

    def weighing(self, exchange: Exchange) -> Rounds[Arrays]:
        """Return the arrays from which groups know their weights."""
        n_groups = {"n_groups": np.array([self.n_groups])}
        if isinstance(self.weights, np.ndarray):
            return {**n_groups, "weights": self.weights}
        sizes = yield from exchange.ask("size", 1, _LARGEST_SIZE)
        return {**n_groups, "total": sizes}

    def within(self, points: np.ndarray) -> np.ndarray:
        """Return points moved into the declared box, if there is one."""
        return points if self.bounds is None else np.clip(points, *self.bounds)

    @property
    def largest_coordinate(self) -> float:
        """The largest absolute value of a coordinate there can be."""
        return math.inf if self.bounds is None else float(np.abs(self.bounds).max())


@dataclass(frozen=True, eq=False)
class BarycenterResult:
    """A barycenter, and its certified bounds.

    Attributes
    ----------
    support : ndarray of shape (n_support, n_features)
        Its points, each of mass ``1 / n_support``.
    objective : float
        Weighted sum of the groups' squared Wasserstein distances of order 2 to the support.
    gap : float
        Certified: that sum is at least ``objective - gap``.
    n_rounds : int
        Number of all steps.
    converged : bool
        Whether the tolerance was reached.
    history : list of (int, float, float)
        Number of rounds of the algorithm, lower bound and upper bound whenever these were known.
        The lower one is NaN while points move freely.
    relaxed_objective : float
        Upper bound on the optimum of the relaxed problem. NaN if points moved freely.
    lower_bound : float
        Lower bound on that optimum, and so on the objective of any choice. NaN if points moved
        freely.
    chosen : ndarray of shape (n_support,) or None
        Indices of the candidates that these are, ascending. None if they moved freely.
    shares : ndarray of shape (n_candidates,) or None
        Solution of the relaxed problem, in which no candidate gets more than ``1 / n_support``.
        None if points moved freely.
    """

    support: np.ndarray
    objective: float
    gap: float
    n_rounds: int
    converged: bool
    history: list[tuple[int, float, float]] = field(default_factory=list)
    relaxed_objective: float = math.nan
    lower_bound: float = math.nan
    chosen: np.ndarray | None = None
    shares: np.ndarray | None = None
