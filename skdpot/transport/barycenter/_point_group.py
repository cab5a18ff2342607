"""Groups that answer steps with their own points, and the generator of any method.

A group's points stay here, and so does its state of the method: potentials and prices.
Costs are squared Euclidean distances.
"""

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from ..polytope import check_weights
from ._exchange import Arrays, Group, Method, Rounds
from ._point_problem import BarycenterProblem, BarycenterResult


class PointGroup(Group):
    """One group's points, its state of the method, and its answers.

    Parameters
    ----------
    points : array-like of shape (n, n_features)
        The group's points, which leave this object only in answers.
    masses : array-like of shape (n,), default=None
        Masses of the points, non-negative with sum 1. None is equal masses.

    Raises
    ------
    ValueError
        If points are not a non-empty matrix of finite numbers, or masses are no weights.

    Notes
    -----
    *Not private.* Answers, and sums of them, reveal much about single points. Private points must
    be protected before: for example, these points may come from a release with noise.

    *State.* It changes with each step, by the steps only. So a group that was stored
    (:meth:`put_away`) continues as if it had stayed (:meth:`restore`). A step must be answered
    once: an answer that may be asked for again has to be kept.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport.barycenter import PointGroup
    >>> group = PointGroup([[0.0], [2.0]])
    >>> group.answer("size", {}, place=0)
    array([2.])
    """

    def __init__(self, points: Any, masses: Any = None) -> None:
        super().__init__()
        points = np.array(points, dtype=np.float64)
        if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
            raise ValueError("points must be a non-empty matrix of finite numbers.")
        n = len(points)
        self._size = float(n)
        weights = np.full(n, 1.0 / n) if masses is None else check_weights(masses, n, "masses")
        # Points without mass have no part in anything.
        self.points, self.masses = points[weights > 0], weights[weights > 0]

    def answer(self, kind: str, arrays: Arrays, place: int) -> np.ndarray:
        """Return the group's summand, of the length that the step says.

        Parameters
        ----------
        kind : str
            Kind of the step.
        arrays : dict of str to ndarray
            The arrays of the step, the same for all groups.
        place : int
            Position of the group among all, which its weight is found at.

        Returns
        -------
        ndarray of float64
            Already weighted: answers of all groups are to be added up.

        Raises
        ------
        ValueError
            If the step is unknown, or does not follow on those before.
        """
        if kind == "size":
            return np.array([self._size])
        if kind in ("begin", "moments"):
            weight = (
                self._size / arrays["total"][0] if "total" in arrays else arrays["weights"][place]
            )
            self.enter(float(weight), int(arrays["n_groups"][0]), place)
            if kind == "begin":
                self.state["candidates"] = np.array(arrays["candidates"], dtype=np.float64)
                self._measure()
        elif "weight" not in self.state:
            raise ValueError(f"step {kind!r} came before a beginning.")
        return super().answer(kind, arrays, place)

    def put_away(self) -> Arrays:
        """Return copies of the arrays that the next answers depend on, besides the points."""
        return {name: array.copy() for name, array in self.state.items()}

    def restore(self, state: Arrays) -> None:
        """Take on a state of a group with the same points."""
        self.state = {name: np.array(array) for name, array in state.items()}
        self._measure()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _measure(self) -> None:
        """Compute the costs, which are no state: candidates are, and points are kept elsewhere."""
        if "candidates" in self.state:
            self.measure(cdist(self.points, self.state["candidates"], "sqeuclidean"))


def solve(problem: BarycenterProblem) -> Rounds[BarycenterResult]:
    r"""Yield steps, be sent the sums of all groups' answers to them, and return a barycenter.

    Parameters
    ----------
    problem : BarycenterProblem
        The public facts.

    Yields
    ------
    Step
        What groups are to answer.

    Returns
    -------
    BarycenterResult
        The barycenter. `converged` says whether the tolerance was reached in time.

    Raises
    ------
    ValueError
        If the sum that is sent is not of the length that the step says, or not finite.

    Notes
    -----
    It minimises :math:`\sum_s \lambda_s W_2^2(Q_s, q)` over distributions q of a given number of
    points of equal mass: :func:`~skdpot.transport.barycenter.candidate_barycenter` and
    :func:`~skdpot.transport.barycenter.free_support_barycenter` describe the algorithms, which are
    the same generators. But if only sums over all groups are known, "bundle" has one model of the
    sum instead of a model of each group, and "free" moves all groups at once, as Cuturi and Doucet
    do.

    All that is used of the answers is their sum. The same sums lead to the same steps, bit by bit.
    So an interrupted coordinator can continue: send the old sums to a new generator.

    *Not private.* Neither sums nor results are, unless points were made private before.

    Examples
    --------
    >>> from skdpot.transport.barycenter import BarycenterProblem, PointGroup, solve
    >>> groups = [PointGroup([[0.0], [1.0]]), PointGroup([[4.0], [5.0]])]
    >>> rounds = solve(BarycenterProblem(2, 2, n_features=1, method="free"))
    >>> step = next(rounds)
    >>> while True:
    ...     answers = [
    ...         group.answer(step.kind, step.arrays, place) for place, group in enumerate(groups)
    ...     ]
    ...     try:
    ...         step = rounds.send(sum(answers))
    ...     except StopIteration as end:
    ...         result = end.value
    ...         break
    >>> result.support.round(6).tolist(), round(result.objective, 6)
    ([[2.0], [3.0]], 4.0)
    """
    return (yield from Method.known[problem.method]().rounds(problem, problem.exchange()))
