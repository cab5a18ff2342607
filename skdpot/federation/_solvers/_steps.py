"""What a group does in a federated barycenter: it answers steps, of which only sums are needed.

A group's points stay here, and so does its state of the algorithm: potentials, prices, couplings.
Every answer is weighted here, so that answers of all groups only have to be added up. Costs are
squared Euclidean distances.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from skdpot.transport.barycenter._bregman import RELAXATION, log_columns
from skdpot.transport.barycenter._dual import MOMENTUM, ascent, useful_candidates
from skdpot.transport.barycenter._masses import common_masses
from skdpot.transport.barycenter._problem import (
    Minorant,
    exact_answer,
    minorant_of_potential,
    minorant_of_prices,
    rounding_allowance,
)
from skdpot.transport.barycenter._warm_transport import WarmTransport
from skdpot.transport.exact import certifiable_gap
from skdpot.transport.polytope import check_weights

_EPS = float(np.finfo(np.float64).eps)
# Which minorants of its own a group is asked for, besides the one that touches its cost.
OF_PRICES, OF_POTENTIAL, OF_BEST_POTENTIAL = range(3)
_TREE = "tree of the last coupling: "
_PLACED = "number of points placed"


class _Placing(NamedTuple):
    """A solver for couplings with supports of one size, and the points that have mass in it."""

    transport: WarmTransport
    used: np.ndarray
    n_support: int


class GroupSteps:
    """One group's points, its state of the algorithm, and its answers.

    Parameters
    ----------
    points : array-like of shape (n, n_features)
        The group's points, which leave this object in no form but that of answers.
    masses : array-like of shape (n,), default=None
        Masses of the points, non-negative with sum 1. None is equal masses.
    size : float, default=None
        What the group counts for if groups are weighted in proportion to their sizes. None is the
        number of points.

    Raises
    ------
    ValueError
        If points are not a non-empty matrix of finite numbers, masses are no weights, or the size
        is not positive.

    Notes
    -----
    *Not private.* Answers, and sums of them, tell much about single points. What is private must
    be so before it gets here: these points may be ones that a release with noise led to.

    *State.* It changes with each step as the steps alone say, so that a group that was put away
    (:meth:`state`) goes on as if it had stayed (:meth:`restore`). A step must be answered once: an
    answer that may be asked for again has to be kept.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._solvers._steps import GroupSteps
    >>> group = GroupSteps([[0.0], [2.0]])
    >>> group.answer("size", {}, member=0)
    array([2.])
    """

    def __init__(self, points: Any, masses: Any = None, *, size: float | None = None) -> None:
        points = np.array(points, dtype=np.float64)
        if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
            raise ValueError("points must be a non-empty matrix of finite numbers.")
        if size is not None and not 0 < size < np.inf:
            raise ValueError("size must be positive and finite.")
        n = len(points)
        own = np.full(n, 1.0 / n) if masses is None else check_weights(masses, n, "masses")
        self._size = float(n if size is None else size)
        # Points without mass have no part in anything.
        self._points, self._masses = points[own > 0], own[own > 0]
        self._state: dict[str, np.ndarray] = {}
        self._cost = np.empty((len(self._points), 0))
        self._placing: _Placing | None = None

    def answer(self, kind: str, arrays: Mapping[str, np.ndarray], member: int) -> np.ndarray:
        """Return the group's summand.

        Parameters
        ----------
        kind : str
            Kind of the step.
        arrays : mapping of str to ndarray
            What the step says, the same to all groups.
        member : int
            Position of the group among the members, which its weight is found at.

        Returns
        -------
        ndarray of float64, of the length that the step says
            Already weighted: answers of all groups are to be added up.

        Raises
        ------
        ValueError
            If there is no such step, or it does not follow on those before.
        """
        if kind == "size":
            return np.array([self._size])
        if kind in ("begin", "moments"):
            self._enter(arrays, member)
        elif "weight" not in self._state:
            raise ValueError(f"step {kind!r} came before a beginning.")
        answers = {
            "begin": self._begin,
            "moments": self._moments,
            "dual": self._dual,
            "bregman": self._bregman,
            "evaluate": self._evaluate,
            "images": self._images,
        }
        if kind not in answers:
            raise ValueError(f"there is no step {kind!r}.")
        self._follow(arrays)
        return answers[kind](arrays)

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of the arrays that the next answers depend on, besides the points."""
        state = {name: array.copy() for name, array in self._state.items()}
        if self._placing is not None:
            state[_PLACED] = np.array([self._placing.n_support])
            tree = self._placing.transport.tree()
            state.update({_TREE + name: array for name, array in tree.items()})
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take on a state of a group with the same points."""
        own = {name: np.array(array) for name, array in state.items()}
        tree = {name.removeprefix(_TREE): own.pop(name) for name in state if name.startswith(_TREE)}
        n_placed = own.pop(_PLACED, None)
        self._state, self._placing = own, None
        self._measure()
        if n_placed is not None:
            self._placing = self._place(int(n_placed[0]))
            self._placing.transport.start_from(tree)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _enter(self, arrays: Mapping[str, np.ndarray], member: int) -> None:
        """Begin anew, with the group's weight."""
        if "total" in arrays:
            weight = self._size / float(arrays["total"][0])
        else:
            weight = float(arrays["weights"][member])
        self._state = {"weight": np.array([weight])}
        self._state["n_members"] = np.array(arrays["n_members"], dtype=np.int64)
        self._placing = None

    @property
    def _weight(self) -> float:
        return float(self._state["weight"][0])

    def _begin(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Measure costs; answer their mean above the smallest, and what hides a cost's digits."""
        candidates = np.array(arrays["candidates"], dtype=np.float64)
        n, n_candidates = len(self._points), len(candidates)
        self._state |= {
            "candidates": candidates,
            "n_support": np.array(arrays["n_support"], dtype=np.int64),
            "potential": np.zeros(n),
            "best_potential": np.zeros(n),
            "momentum": np.zeros(n),
            "prices": np.zeros(n_candidates),
        }
        self._measure()
        noise = 4 * certifiable_gap(n, n_candidates, self._low, self._high)
        return self._weight * np.array([self._cost.mean() - self._low, noise])

    def _measure(self) -> None:
        """Compute the costs, which are no state: candidates are, and points are kept elsewhere."""
        if "candidates" in self._state:
            self._cost = cdist(self._points, self._state["candidates"], "sqeuclidean")
            self._low, self._high = float(self._cost.min()), float(self._cost.max())

    def _moments(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Answer the mean and the covariance matrix."""
        mean = self._masses @ self._points
        centered = self._points - mean
        covariance = (self._masses[:, None] * centered).T @ centered
        return self._weight * np.concatenate([mean, covariance.ravel()])

    def _follow(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Bring the state up to date with what followed from the last answers."""
        state = self._state
        if "selected" in arrays:
            if arrays["is_best"][0]:
                state["best_potential"] = state["potential"].copy()
            points = state["points_that_serve"][arrays["selected"]]
            direction = ascent(self._masses, points, int(state["n_support"][0]))
            state["momentum"] *= MOMENTUM
            state["momentum"] += (1 - MOMENTUM) * direction
            state["potential"] += float(arrays["step"][0]) * state["momentum"]
        if "log_shares" in arrays:
            columns, log_shares = state["log_columns"], arrays["log_shares"]
            state["prices"] += (RELAXATION * float(state["reg"][0])) * (log_shares - columns)
            state["disagreement"] = np.abs(np.exp(columns) - np.exp(log_shares)).sum(keepdims=True)

    def _dual(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Answer the message T of the paper's equation (15)."""
        unit = self._weight / int(self._state["n_support"][0])
        message, points = useful_candidates(
            self._cost, self._masses, unit, self._state["potential"]
        )
        self._state["points_that_serve"] = points.astype(np.int64)
        return message

    def _bregman(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Answer the logarithms of the plan's columns, and how far the last ones were off."""
        state = self._state
        reg = float(arrays["reg"][0])
        columns = log_columns(self._cost, self._low, self._masses, reg, state["prices"])
        state["reg"], state["log_columns"] = np.array([reg]), columns
        disagreement = state.get("disagreement", np.array([2.0]))
        return self._weight * np.concatenate([columns, disagreement])

    def _evaluate(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Answer the cost of shares, the minorant that touches it there, and some others."""
        cost, touching = exact_answer(self._cost, self._masses, arrays["shares"])
        minorants = [touching, *map(self._own_minorant, arrays["minorants"].tolist())]
        rounded_up = self._weight * cost * (1 + self._relative_rounding())
        return np.concatenate([[rounded_up], *map(self._message, minorants)])

    def _own_minorant(self, which: int) -> Minorant:
        """Return a minorant that the state leads to."""
        if which == OF_PRICES:
            return minorant_of_prices(self._cost, self._masses, self._state["prices"])
        name = "potential" if which == OF_POTENTIAL else "best_potential"
        return minorant_of_potential(self._cost, self._masses, self._state[name])

    def _message(self, minorant: Minorant) -> np.ndarray:
        """Return what rounding may add to a minorant in the sum of all, and its prices.

        As shares have the sum 1, the level can be part of the prices.
        """
        n_terms = sum(self._cost.shape) + int(self._state["n_members"][0])
        allowance = rounding_allowance(n_terms, 0.0, self._high, [minorant.potential])
        return self._weight * np.concatenate([[allowance], minorant.prices + minorant.level])

    def _relative_rounding(self) -> float:
        """Return by how much, at most, a sum of products with the weights is off."""
        return (int(self._state["n_members"][0]) + 4) * _EPS

    def _images(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Answer bounds on the cost of a support, and the means of the mass its points receive."""
        support = np.ascontiguousarray(arrays["support"], dtype=np.float64)
        if self._placing is None or self._placing.n_support != len(support):
            self._placing = self._place(len(support))
        points, transport = self._points[self._placing.used], self._placing.transport
        cost = cdist(support, points, "sqeuclidean")
        coupling = transport.solve(cost)
        lower, upper = transport.bounds(cost, coupling)
        received = (coupling.masses * len(support))[:, None] * points[coupling.columns]
        images = [np.bincount(coupling.rows, column, len(support)) for column in received.T]
        rounding = self._relative_rounding()
        bounds = [upper * (1 + rounding), max(lower, 0.0) * (1 - rounding)]
        return self._weight * np.concatenate([bounds, np.stack(images, axis=1).ravel()])

    def _place(self, n_support: int) -> _Placing:
        """Return a solver for supports of so many points."""
        equal = np.full(n_support, 1.0 / n_support)
        rows, columns = common_masses([equal, self._masses])
        used = np.flatnonzero(columns)
        return _Placing(WarmTransport(rows, columns[used]), used, n_support)
