"""Barycenters on points chosen among given candidates."""

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy import sparse

from ..base_measure import TransportConvergenceWarning
from ..exact import exact_transport
from ._bundle import Bundle
from ._candidate_problem import CandidateProblem, check_problem, lower_bound
from ._choice import Choice, choose, coordinates_from_costs
from ._dual import POTENTIAL_MINORANT, DualSubgradient
from ._exchange import Arrays, Exchange, Group, Rounds, drive
from ._minorants import minorant_of_potential
from ._relaxation import Relaxation, RelaxedMethod
from ._whole_program import LARGEST_EXACT, solve_program

# Beside these, "exact" solves the whole program, and "auto" chooses by sizes.
METHODS: dict[str, type[RelaxedMethod]] = {one.name: one for one in (Bundle, DualSubgradient)}
# Below this number of pairs of points and candidates, HiGHS needs a fraction of a second.
_TINY = 2_000
# Number of separate sums over groups in cutting planes, so that their linear program stays small.
_MOST_PARTS = 16


@dataclass(frozen=True, eq=False)
class CandidateBarycenter:
    """A barycenter on candidates, with a certificate.

    Attributes
    ----------
    chosen : ndarray of shape (n_support,)
        Indices of the chosen candidates, distinct and in ascending order.
    objective : float
        Weighted sum of the groups' exact transport costs to equal masses on the chosen candidates.
    shares : ndarray of shape (n_candidates,)
        Solution of the relaxed problem: non-negative masses of at most ``1 / n_support``, sum 1.
    relaxed_objective : float
        Weighted sum of the groups' exact transport costs to `shares`: an upper bound on the
        optimum of the relaxed problem.
    lower_bound : float
        Lower bound on the optimum of the relaxed problem, and so on the objective of any choice.
    n_iter : int
        Number of rounds: one message of n_candidates numbers from each group, and one to all.
    converged : bool
        Whether ``relaxed_objective - lower_bound`` is at most `tol` times `relaxed_objective`.
    potentials : list of ndarray of shape (n_s,)
        Dual potentials of the groups' points, in units of cost: they prove `lower_bound`.
    plans : list of scipy.sparse.csr_array of shape (n_s, n_support)
        Optimal couplings of the groups with the chosen candidates.
    """

    chosen: np.ndarray
    objective: float
    shares: np.ndarray
    relaxed_objective: float
    lower_bound: float
    n_iter: int
    converged: bool
    potentials: list[np.ndarray]
    plans: list[sparse.csr_array]


def candidate_barycenter(
    costs: Sequence[Any],
    group_weights: Any,
    n_support: int,
    *,
    masses: Sequence[Any] | None = None,
    method: str = "auto",
    tol: float = 1e-3,
    max_iter: int | None = None,
    candidates: Any = None,
    batches: Iterable[Any] | None = None,
    primal_recovery: int | None = None,
    callback: Callable[[int, float, float], Any] | None = None,
) -> CandidateBarycenter:
    r"""Choose candidates whose uniform distribution is a barycenter of several groups.

    The objective is the weighted sum of the groups' exact transport costs to equal masses on the
    chosen candidates. Its relaxation, in which no candidate may get more than one point's mass, is
    solved to a certified gap; its solution is then rounded to distinct candidates.

    Parameters
    ----------
    costs : sequence of array-like of shape (n_s, n_candidates)
        For each group, the finite costs between its points and the candidates: any power of any
        distance, for instance.
    group_weights : array-like of shape (n_groups,)
        Non-negative weights of the groups, with sum 1.
    n_support : int
        Number of candidates to choose.
    masses : sequence of array-like of shape (n_s,), default=None
        Masses of each group's points, non-negative and with sum 1. None means equal masses.
    method : {"auto", "bundle", "dual", "exact"}, default="auto"
        Solver of the relaxation, see Notes. "auto" chooses by sizes only.
    tol : float, default=1e-3
        Certified gap, relative to the relaxed objective, at which the solver stops.
    max_iter : int, default=None
        Largest number of rounds: a round is one message of n_candidates numbers from each group
        and one to all of them. An iteration takes at least two rounds: one for shares, and one for
        their certificate. None is 3000 for "dual" and 200 otherwise.
    candidates : array-like of shape (n_candidates, n_features), default=None
        Coordinates of the candidates, for the order in which they are rounded. None uses costs to
        some landmarks instead.
    batches : iterable of array-like of int, default=None
        For each step of method "dual", the distinct indices of the candidates that it uses (its
        stochastic variant). The solver ends with the last batch.
    primal_recovery : int, default=None
        Method "dual" returns the average of this number of last selections as shares. None is 200.
    callback : callable, default=None
        Called with the number of rounds, the lower bound and the relaxed objective, whenever these
        were computed.

    Returns
    -------
    CandidateBarycenter
        The choice, the solution of the relaxation, its certificate, and couplings.

    Raises
    ------
    ValueError
        If costs, weights, masses or numbers are invalid, or the problem is too large for method
        "exact".

    Warns
    -----
    TransportConvergenceWarning
        If the gap is still above `tol` when the solver ends. The result is valid, and so is its
        certificate.

    See Also
    --------
    exact_transport : The transport cost of one group.

    Notes
    -----
    *Relaxation.* With M = n_support, it is to minimise :math:`F(q) = \sum_s \lambda_s OT_s(q)` over
    :math:`0 \le q_k \le 1/M, \sum_k q_k = 1`. The cap is part of it: without the cap this is the
    barycenter with fixed support, which can be cheaper than any choice. Every choice is a q, so the
    lower bound holds for all choices.

    *Certificate.* For any potentials :math:`\phi_s` of the groups' points, and
    :math:`\psi_{sk} = \min_i c_{sik} - \phi_{si}`, duality of transport gives
    :math:`OT_s(q) \ge \langle a_s, \phi_s \rangle + \langle q, \psi_s \rangle`. A linear function
    has its minimum over the capped simplex at a vertex. So
    :math:`\sum_s \lambda_s \langle a_s, \phi_s \rangle` and the mean of the M smallest
    :math:`\sum_s \lambda_s \psi_{sk}` bound F from below. The largest effect of rounding is
    subtracted. This is the dual value (13) of the paper at the best :math:`\theta_0`, with
    :math:`\theta_s = \lambda_s \phi_s / M`. The upper bound is F at the shares, by exact transport.

    *Methods.* "dual" is the paper's Algorithm 1: subgradient steps with momentum .9, of
    length proportional to :math:`1/\sqrt{j}` in units of w, with theta_0 eliminated, the best dual
    value kept, and shares recovered as the average of the last selections. With `batches`, a step
    selects the same fraction of its batch as of all candidates. In "bundle", groups answer shares
    by their exact transport and its subgradient, from which a linear program proposes new shares
    near the best ones. "auto" is "exact" for a few points, and otherwise "bundle". "exact" solves
    one sparse linear program. Gaps are certified alike for all of them.

    *Rounding.* Along a space-filling order of the candidates, one is chosen wherever the running
    sum of shares passes another 1/M. If that is worse than the M largest shares, those are the
    start. Then points are relocated with couplings kept, as in Lloyd's method, which lowers the
    objective in each step.

    Nothing here is private: potentials, shares and messages depend on single points.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, problem (12), dual function (13), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.transport.barycenter import candidate_barycenter
    >>> left, right, candidates = np.arange(4.0), np.arange(4.0) + 4, np.arange(10.0)
    >>> costs = [(points[:, None] - candidates) ** 2 for points in (left, right)]
    >>> result = candidate_barycenter(costs, [0.5, 0.5], 4)
    >>> result.chosen
    array([2, 3, 4, 5])
    >>> round(result.objective, 6), result.converged
    (4.0, True)
    """
    problem = check_problem(costs, group_weights, n_support, masses)
    options = _check_options(problem, method, tol, max_iter, batches, primal_recovery)
    points = _check_candidates(candidates, problem)
    essential = problem.essential()
    if points is None:
        points = coordinates_from_costs(essential.costs)
    groups = [
        _CostGroup(*one, len(essential.costs))
        for one in zip(essential.costs, essential.masses, essential.weights, strict=True)
    ]
    if max_iter is None:
        max_iter = METHODS[method].default_rounds if method in METHODS else Bundle.default_rounds
    n_candidates = problem.n_candidates
    relaxation = Relaxation(Exchange(), n_candidates, n_support, tol, max_iter, callback)
    _relax(relaxation, method, options, essential, groups)
    relaxation.exchange.news = {}
    place = _place_among(relaxation)
    chosen, _ = drive(choose(place, relaxation.shares, points, n_support), groups)
    if not relaxation.converged:
        warnings.warn(
            f"candidate_barycenter stopped after {relaxation.n_iter} rounds with a gap of "
            f"{relaxation.gap / (abs(relaxation.upper) or 1.0):.3g} of the relaxed objective, "
            f"above tol={tol:g}. The choice is valid; raise max_iter or tol, or try another "
            "method, if this gap is not small enough or the warning is not wanted.",
            TransportConvergenceWarning,
            stacklevel=2,
        )
    return _result(problem, relaxation, groups, chosen)


def _relax(
    relaxation: Relaxation,
    method: str,
    options: dict[str, Any],
    problem: CandidateProblem,
    groups: "list[_CostGroup]",
) -> None:
    """Close the gap of the relaxation, or use up the rounds."""
    n_parts = min(len(groups), _MOST_PARTS)
    drive(relaxation.begin(), groups, n_parts)
    if problem.n_support == problem.n_candidates:
        # There is only one choice, and the minorants at it prove that.
        drive(relaxation.evaluate(relaxation.shares), groups, n_parts)
        return
    if method == "exact" or (method == "auto" and problem.n_couplings <= _TINY):
        found = solve_program(problem)
        shares, potentials = found or (relaxation.shares, [])
        for group, potential in zip(groups, potentials, strict=False):
            group.state["potential"] = potential
        drive(relaxation.evaluate(shares, (POTENTIAL_MINORANT,)), groups, n_parts)
    if method != "exact" and not relaxation.finished:
        iterative = METHODS["bundle" if method == "auto" else method](**options)
        drive(iterative.relax(relaxation), groups, n_parts)


class _CostGroup(Group):
    """A group of this process, with any costs: it keeps potentials, and plans of a choice."""

    def __init__(self, cost: np.ndarray, masses: np.ndarray, weight: float, n_groups: int) -> None:
        super().__init__()
        self.measure(cost)
        self.masses, self.kept = masses, []
        self.enter(weight, n_groups)

    def answer(self, kind: str, arrays: Arrays, place: int) -> np.ndarray:
        """Answer a step of a method; or, for a choice, its cost, and its cost with other points."""
        if kind != "choice":
            return super().answer(kind, arrays, place)
        chosen = arrays["chosen"]
        result = _coupling(self.cost, self.masses, chosen)
        elsewhere = result.plan.T @ self.cost
        return self.weight * np.concatenate([[result.cost], elsewhere.ravel()])

    def mixed_potential(self, made_of: dict[tuple[int, int], float]) -> np.ndarray:
        """Return the mixture of potentials of minorants that were answered."""
        assert self.kept is not None
        return np.sum([part * self.kept[e][i] for (e, i), part in made_of.items()], axis=0)


def _coupling(cost: np.ndarray, masses: np.ndarray, chosen: np.ndarray) -> Any:
    """Return the optimal coupling of a group with equal masses on a choice."""
    equal = np.full(len(chosen), 1.0 / len(chosen))
    return exact_transport(cost[:, chosen], masses, equal)


def _place_among(relaxation: Relaxation) -> Callable[[np.ndarray], Rounds[Choice]]:
    """Return the step that asks groups for the cost of a choice."""
    shape = relaxation.n_support, relaxation.n_candidates

    def place(chosen: np.ndarray) -> Rounds[Choice]:
        size = 1 + math.prod(shape)
        answer = yield from relaxation.exchange.ask("choice", size, math.inf, chosen=chosen)
        return Choice(float(answer[0]), -math.inf, lambda: answer[1:].reshape(shape))

    return place


def _result(
    problem: CandidateProblem, relaxation: Relaxation, groups: list[_CostGroup], chosen: np.ndarray
) -> CandidateBarycenter:
    """Return the results for all groups and all points, also for those without weight or mass."""
    results = [
        _coupling(cost, mass, chosen)
        for cost, mass in zip(problem.costs, problem.masses, strict=True)
    ]
    proven = [
        group.mixed_potential(relaxation.proof[s % len(relaxation.proof)].made_of)
        for s, group in enumerate(groups)
    ]
    potentials = _potentials_of_all(problem, proven)
    proof = [
        minorant_of_potential(cost, masses, potential)
        for cost, masses, potential in zip(problem.costs, problem.masses, potentials, strict=True)
    ]
    relaxation.lower = lower_bound(problem, proof)
    return CandidateBarycenter(
        chosen=chosen,
        objective=math.fsum(problem.weights * [result.cost for result in results]),
        shares=relaxation.shares,
        relaxed_objective=relaxation.upper,
        lower_bound=relaxation.lower,
        n_iter=relaxation.n_iter,
        converged=relaxation.converged,
        potentials=potentials,
        plans=[result.plan for result in results],
    )


def _potentials_of_all(problem: CandidateProblem, proven: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return potentials, continued to points without mass so that no price falls."""
    known = iter(proven)
    potentials = []
    for cost, masses, weight in zip(problem.costs, problem.masses, problem.weights, strict=True):
        if weight == 0:
            potentials.append(cost.min(axis=1))
            continue
        potential, empty = np.empty(len(masses)), masses == 0
        potential[~empty] = next(known)
        minorant = minorant_of_potential(cost[~empty], masses[~empty], potential[~empty])
        potential[empty] = (cost[empty] - minorant.prices).min(axis=1)
        potentials.append(potential)
    return potentials


def _check_options(
    problem: CandidateProblem,
    method: str,
    tol: float,
    max_iter: int | None,
    batches: Iterable[Any] | None,
    primal_recovery: int | None,
) -> dict[str, Any]:
    """Return the options of the method that were given, or raise."""
    if method not in ("auto", "exact", *METHODS):
        choices = sorted(["auto", "exact", *METHODS])
        raise ValueError(f"method must be one of {choices}, got {method!r}.")
    if not 0 < float(tol) < math.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}.")
    if max_iter is not None and operator.index(max_iter) < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
    if primal_recovery is not None and operator.index(primal_recovery) < 1:
        raise ValueError(f"primal_recovery must be at least 1, got {primal_recovery}.")
    if method == "exact" and problem.n_couplings > LARGEST_EXACT:
        raise ValueError(
            f"method='exact' is for at most {LARGEST_EXACT} pairs of points and candidates, and "
            f"these are {problem.n_couplings}: use method='bundle' with a small tol."
        )
    if batches is not None:
        batches = (_check_batch(batch, problem) for batch in batches)
    options = {"batches": batches, "primal_recovery": primal_recovery}
    given = {name: value for name, value in options.items() if value is not None}
    if set(given) - {one.name for one in fields(METHODS.get(method, RelaxedMethod))}:
        raise ValueError("batches and primal_recovery are options of method='dual' only.")
    return given


def _check_candidates(candidates: Any, problem: CandidateProblem) -> np.ndarray | None:
    if candidates is None:
        return None
    points = np.asarray(candidates, dtype=np.float64)
    if points.ndim != 2 or len(points) != problem.n_candidates or not points.shape[1]:
        raise ValueError(
            f"candidates must have shape ({problem.n_candidates}, n_features), because costs have "
            f"that many columns; got {points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError("candidates contain NaN or infinity.")
    return points


def _check_batch(batch: Any, problem: CandidateProblem) -> np.ndarray:
    indices = np.asarray(batch)
    if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
        raise ValueError("each batch must be a non-empty array of indices of candidates.")
    if indices.min() < 0 or indices.max() >= problem.n_candidates:
        raise ValueError(
            f"a batch holds indices from {indices.min()} to {indices.max()}, but there are "
            f"{problem.n_candidates} candidates."
        )
    if len(np.unique(indices)) < len(indices):
        raise ValueError("the indices of a batch must be distinct.")
    return indices
