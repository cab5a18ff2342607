"""Where the groups are moved: the support of their barycenter, and their couplings with it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from skdpot._sklearn_compat import Interval, StrOptions
from skdpot.fairness._maps import GroupMap, powers
from skdpot.fairness._space import ColumnSpace
from skdpot.transport.barycenter import (
    candidate_barycenter,
    couple_with_support,
    free_support_barycenter,
    quantile_barycenter,
)

LARGEST_AUTOMATIC_SUPPORT = 1000
# What a solver stops at if nothing else is said, relative to the objective.
_TOLERANCE = 1e-3
# So many batches a stochastic solver looks at, if it is not said how many.
_DEFAULT_BATCHES = 3000
# So many candidates for each support point, if none are given.
CANDIDATES_PER_POINT = 2
OPTIONS = {
    "free": {"tol", "max_iter", "bound"},
    "auto": {"tol", "max_iter"},
    "exact": {"tol"},
    "bregman": {"tol", "max_iter"},
    "bundle": {"tol", "max_iter"},
    "dual": {"tol", "max_iter", "batch_size", "primal_recovery", "rounding"},
}
_COUNT = Interval(Integral, 1, None, closed="left")
# What may be given for them; kernels would refuse it only after a budget is charged.
VALUES = {
    "tol": Interval(Real, 0, None, closed="neither"),
    "max_iter": _COUNT,
    "bound": StrOptions({"moments", "pairs"}),
    "batch_size": _COUNT,
    "primal_recovery": _COUNT,
    "rounding": StrOptions({"draw"}),
}


@dataclass(frozen=True, eq=False)
class Barycenter:
    """The groups' barycenter as valid rows, and how to get there.

    Attributes
    ----------
    codes : ndarray of shape (n_support, n_columns)
        The support, as codes of rows.
    objective : float
        Weighted sum of the groups' transport costs to it.
    lower_bound : float
        No barycenter with as many points, of the candidates if there are some, costs less.
    n_iter : int
        Rounds of the solver.
    maps : list of GroupMap
        One for each group.
    """

    codes: np.ndarray
    objective: float
    lower_bound: float
    n_iter: int
    maps: list[GroupMap]


@dataclass(frozen=True, eq=False)
class Question:
    """Which barycenter is asked for, of which groups.

    Attributes
    ----------
    space : ColumnSpace
        Where distances are taken.
    points, masses : list of ndarray
        Different points of every group, and their masses with sum 1.
    weights : ndarray of shape (n_groups,)
        Weights of the groups, with sum 1.
    n_support : int
        How many points the support has.
    order : float
        Costs are distances to this power.
    solver : str
        One of `OPTIONS`.
    options : dict
        Of the solver.
    candidates : ndarray of shape (n_candidates, n_columns) or None
        Rows to choose from as codes, if they were given.
    """

    space: ColumnSpace
    points: list[np.ndarray]
    masses: list[np.ndarray]
    weights: np.ndarray
    n_support: int
    order: float
    solver: str
    options: dict[str, Any]
    candidates: np.ndarray | None

    def solve(self, rng: Any, *, n_jobs: Any = None, callback: Any = None) -> Barycenter:
        """Return the barycenter.

        Parameters
        ----------
        rng : numpy.random.RandomState
            Draws start or candidates, and categories of averages.
        n_jobs : int, default=None
            Groups worked on in parallel, at the end.
        callback : callable, default=None
            Called with the number of rounds.

        Returns
        -------
        Barycenter
            Support, certificate and couplings.
        """
        find = self._free if self.solver == "free" else self._chosen
        codes, lower_bound, n_iter = find(rng, callback)
        support = self.space.encode(codes)
        parallel = Parallel(n_jobs=n_jobs, prefer="threads")
        found = parallel(
            delayed(_coupling)(points, masses, support, self.order)
            for points, masses in zip(self.points, self.masses, strict=True)
        )
        objective = math.fsum(
            weight * cost for weight, (cost, _) in zip(self.weights, found, strict=True)
        )
        return Barycenter(
            codes,
            objective,
            min(max(lower_bound, 0.0), objective),
            n_iter,
            [group_map for _, group_map in found],
        )

    def _free(self, rng: Any, callback: Any) -> tuple[np.ndarray, float, int]:
        """Return codes of a support that moved freely, a lower bound, and the number of rounds."""
        if self.points[0].shape[1] == 1:
            line = quantile_barycenter(
                [points[:, 0] for points in self.points],
                self.weights,
                masses=self.masses,
                n_support=self.n_support,
            )
            return self.space.decode(line.support[:, None]), line.lower_bound, 1
        options: dict[str, Any] = {"tol": _TOLERANCE} | self.options
        result = free_support_barycenter(
            self.points,
            self.weights,
            self._drawn(rng, self.n_support, each_once=False),
            masses=self.masses,
            callback=None if callback is None else lambda n_iter, *_: callback(n_iter),
            **options,
        )
        uniforms = rng.uniform(size=(self.n_support, len(self.space.layout.blocks)))
        return self.space.decode(result.support, uniforms), result.lower_bound, result.n_iter

    def _chosen(self, rng: Any, callback: Any) -> tuple[np.ndarray, float, int]:
        """Return codes of chosen candidates, a lower bound, and the number of rounds."""
        codes = self.candidates
        if codes is None:
            n_candidates = CANDIDATES_PER_POINT * self.n_support
            codes = self.space.decode(self._drawn(rng, n_candidates, each_once=True))
        candidates = self.space.encode(codes)
        options: dict[str, Any] = {"tol": _TOLERANCE} | self.options
        batch_size, rounding = options.pop("batch_size", None), options.pop("rounding", None)
        if batch_size is not None:
            n_batches = options.get("max_iter") or _DEFAULT_BATCHES
            options["batches"] = islice(_batches(rng, len(candidates), batch_size), n_batches)
        n_support = min(self.n_support, len(candidates))
        result = candidate_barycenter(
            [powers(points, candidates, self.order) for points in self.points],
            self.weights,
            n_support,
            masses=self.masses,
            method=self.solver,
            candidates=candidates,
            callback=None if callback is None else lambda n_iter, *_: callback(n_iter),
            **options,
        )
        chosen = result.chosen
        if rounding == "draw":
            chosen = _drawn_by(result.shares, n_support, rng)
        return codes[chosen], result.lower_bound, result.n_iter

    def _drawn(self, rng: Any, size: int, *, each_once: bool) -> np.ndarray:
        """Return points drawn from the mixture of the groups: different ones, if there are enough.

        If not, equal ones make up for it, so that a point may get more than one support point's
        mass; first comes each of them, if that is asked for.
        """
        points = np.concatenate(self.points)
        masses = np.concatenate(
            [weight * mass for weight, mass in zip(self.weights, self.masses, strict=True)]
        )
        masses /= masses.sum()
        available = np.flatnonzero(masses)
        if len(available) >= size:
            return points[rng.choice(len(points), size, replace=False, p=masses)]
        first = available[: len(available) * each_once]
        further = rng.choice(len(points), size - len(first), p=masses)
        return points[np.concatenate([first, further])]


def _batches(rng: Any, n_candidates: int, batch_size: int) -> Iterator[np.ndarray]:
    while True:
        yield rng.choice(n_candidates, min(batch_size, n_candidates), replace=False)


def _drawn_by(shares: np.ndarray, n_support: int, rng: Any) -> np.ndarray:
    """Return different candidates, drawn in proportion to their shares."""
    shares = np.maximum(shares, 1e-12 / len(shares))
    return np.sort(rng.choice(len(shares), n_support, replace=False, p=shares / shares.sum()))


@np.errstate(all="ignore")
def _coupling(
    points: np.ndarray, masses: np.ndarray, support: np.ndarray, order: float
) -> tuple[float, GroupMap]:
    """Return the cost of the optimal coupling of a group with the support, and the coupling."""
    coupling = couple_with_support(powers(points, support, order), masses)
    return coupling.cost, GroupMap(points, coupling.plan, coupling.prices, support, order)
