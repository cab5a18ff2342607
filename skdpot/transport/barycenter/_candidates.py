"""The barycenter of several groups on points that are chosen from given candidates."""

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from skdpot.transport.base_measure import TransportConvergenceWarning

from . import _bregman, _bundle, _dual, _exact
from ._problem import (
    CandidateProblem,
    Certificate,
    check_problem,
    lower_bound,
    minorant_of_potential,
)
from ._result import CandidateBarycenter
from ._rounding import choose, coordinates_from_costs, couplings, space_filling_order

_DEFAULT_ROUNDS = {"auto": 200, "bregman": 200, "bundle": 200, "dual": 3000, "exact": 1}
# Below this number of pairs of points and candidates, HiGHS needs a fraction of a second.
_TINY = 2_000
# Regularisation, in units of the mean cost, below which cutting planes do better.
_HAND_OVER = 1e-4
_FIRST_CUTS = 8


def candidate_barycenter(
    costs: Sequence[Any],
    group_weights: Any,
    n_support: int,
    *,
    masses: Sequence[Any] | None = None,
    solver: str = "auto",
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
        Masses of each group's points, non-negative and with sum 1. None is equal masses.
    solver : {"auto", "bregman", "bundle", "dual", "exact"}, default="auto"
        How the relaxation is solved, see Notes. "auto" looks at sizes only.
    tol : float, default=1e-3
        Certified gap, relative to the relaxed objective, at which the solver stops.
    max_iter : int, default=None
        Largest number of rounds: a round is one message of n_candidates numbers from each group and
        one to all of them. Iterations take two at least: one for shares, and one for their
        certificate. None is 3000 for "dual" and 200 else.
    candidates : array-like of shape (n_candidates, n_features), default=None
        Coordinates of the candidates, for the order in which they are rounded. None lets costs to
        some landmarks stand in for them.
    batches : iterable of array-like of int, default=None
        Distinct indices of the candidates that each step of solver "dual" looks at: its stochastic
        variant. The solver ends with them.
    primal_recovery : int, default=None
        Number of the last selections whose average are the shares that solver "dual" returns. None
        is 200.
    callback : callable, default=None
        Called with the number of rounds, the lower bound and the relaxed objective so far, whenever
        these were computed.

    Returns
    -------
    CandidateBarycenter
        The choice, the solution of the relaxation, its certificate, and couplings.

    Raises
    ------
    ValueError
        If costs, weights, masses or numbers are not what they should be, or the problem is too
        large for solver "exact".

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
    barycenter with fixed support, which can be cheaper than any choice. Every choice is a q, so
    that the lower bound is one for all of them.

    *Certificate.* For any potentials :math:`\phi_s` of the groups' points, and
    :math:`\psi_{sk} = \min_i c_{sik} - \phi_{si}`, duality of transport gives
    :math:`OT_s(q) \ge \langle a_s, \phi_s \rangle + \langle q, \psi_s \rangle`. A linear function
    has its minimum over the capped simplex at a vertex, so that
    :math:`\sum_s \lambda_s \langle a_s, \phi_s \rangle` and the mean of the M smallest
    :math:`\sum_s \lambda_s \psi_{sk}` bound F from below. What rounding may add is subtracted. This
    is the dual value (13) of the paper at the best :math:`\theta_0`, with
    :math:`\theta_s = \lambda_s \phi_s / M`. The upper bound is F at the shares, by exact transport.

    *Solvers.* "dual" is the paper's Algorithm 1: subgradient steps with momentum .9, of
    length proportional to :math:`1/\sqrt{j}` in units of w, with theta_0 eliminated, the best dual
    value kept, and shares recovered as the average of the last selections. With `batches`, a step
    selects the same fraction of its batch as of all candidates. "bregman" projects plans
    alternately on their rows and on equal, capped columns, while the regularisation falls.
    "bundle" begins with that; then the groups answer shares by their exact transport and its
    subgradient, from which a linear program proposes new shares. "auto" is "exact" for a few
    points and "bundle" else, which ends with the projections if they reach `tol`. "exact" solves
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

    J.-D. Benamou, G. Carlier, M. Cuturi, L. Nenna and G. Peyré, "Iterative Bregman Projections for
    Regularized Transportation Problems", SIAM Journal on Scientific Computing 37(2), 2015.

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
    _check_options(problem, solver, tol, max_iter, batches, primal_recovery)
    points = _check_candidates(candidates, problem)
    essential = problem.essential()
    rounds = _DEFAULT_ROUNDS[solver] if max_iter is None else max_iter
    certificate = Certificate(essential, tol, rounds, callback)
    _solve(certificate, solver, _check_batches(batches, problem), primal_recovery)
    if points is None:
        points = coordinates_from_costs(essential)
    order = space_filling_order(points, certificate.shares)
    chosen = choose(essential, certificate.shares, order)
    if not certificate.converged:
        warnings.warn(
            f"candidate_barycenter stopped after {certificate.n_iter} rounds with a gap of "
            f"{certificate.gap / (abs(certificate.upper) or 1.0):.3g} of the relaxed objective, "
            f"above tol={tol:g}. The choice is valid; raise max_iter or tol, or try another "
            "solver, if this gap is not small enough or the warning is not wanted.",
            TransportConvergenceWarning,
            stacklevel=2,
        )
    return _result(problem, certificate, chosen)


def _solve(
    certificate: Certificate,
    solver: str,
    batches: Iterable[np.ndarray] | None,
    primal_recovery: int | None,
) -> None:
    """Close the gap of the relaxation, or use up the rounds."""
    problem = certificate.problem
    if problem.n_support == problem.n_candidates:
        # There is only one choice, and the minorants at it prove that.
        certificate.n_iter += 1
        certificate.evaluate(certificate.shares)
        return
    if solver == "exact" or (solver == "auto" and _exact.n_couplings(problem) <= _TINY):
        _exact.solve(certificate)
    elif solver == "dual":
        _dual.ascend(certificate, batches, primal_recovery)
    elif solver == "bregman":
        _bregman.anneal(certificate)
    if solver == "bundle" or (solver == "auto" and not certificate.finished):
        known = _bregman.anneal(certificate, _HAND_OVER)
        if not certificate.finished:
            _bundle.descend(certificate, known[-_FIRST_CUTS:])


def _result(
    problem: CandidateProblem, certificate: Certificate, chosen: np.ndarray
) -> CandidateBarycenter:
    """Return what is known about all groups and all points, also those that had no part in it."""
    objective, plans = couplings(problem, chosen)
    potentials = _potentials_of_all(problem, certificate)
    proof = [
        minorant_of_potential(cost, masses, potential)
        for cost, masses, potential in zip(problem.costs, problem.masses, potentials, strict=True)
    ]
    certificate.lower = lower_bound(problem, proof)
    return CandidateBarycenter(
        chosen=chosen,
        objective=objective,
        shares=certificate.shares,
        relaxed_objective=certificate.upper,
        lower_bound=certificate.lower,
        n_iter=certificate.n_iter,
        converged=certificate.converged,
        potentials=potentials,
        plans=plans,
    )


def _potentials_of_all(problem: CandidateProblem, certificate: Certificate) -> list[np.ndarray]:
    """Return the bound's potentials, continued to where no mass is so that no price falls."""
    known = iter(certificate.minorants)
    potentials = []
    for cost, masses, weight in zip(problem.costs, problem.masses, problem.weights, strict=True):
        if weight == 0:
            potentials.append(cost.min(axis=1))
            continue
        potential = np.empty(len(masses))
        minorant = next(known)
        empty = masses == 0
        potential[~empty] = minorant.potential
        own = minorant_of_potential(cost[~empty], masses[~empty], minorant.potential)
        potential[empty] = (cost[empty] - own.prices).min(axis=1)
        potentials.append(potential)
    return potentials


def _check_options(
    problem: CandidateProblem,
    solver: str,
    tol: float,
    max_iter: int | None,
    batches: Iterable[Any] | None,
    primal_recovery: int | None,
) -> None:
    if solver not in _DEFAULT_ROUNDS:
        raise ValueError(f"solver must be one of {sorted(_DEFAULT_ROUNDS)}, got {solver!r}.")
    if not 0 < float(tol) < math.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}.")
    if max_iter is not None and operator.index(max_iter) < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
    if solver != "dual" and (batches is not None or primal_recovery is not None):
        raise ValueError("batches and primal_recovery are options of solver='dual' only.")
    if primal_recovery is not None and operator.index(primal_recovery) < 1:
        raise ValueError(f"primal_recovery must be at least 1, got {primal_recovery}.")
    if solver == "exact" and _exact.n_couplings(problem) > _exact.LARGEST_EXACT:
        raise ValueError(
            f"solver='exact' is for at most {_exact.LARGEST_EXACT} pairs of points and candidates, "
            f"and these are {_exact.n_couplings(problem)}: use solver='bundle' with a small tol."
        )


def _check_candidates(candidates: Any, problem: CandidateProblem) -> np.ndarray | None:
    if candidates is None:
        return None
    points = np.asarray(candidates, dtype=np.float64)
    if points.ndim != 2 or len(points) != problem.n_candidates or not points.shape[1]:
        raise ValueError(
            f"candidates must have shape ({problem.n_candidates}, n_features), as costs have that "
            f"many columns; got {points.shape}."
        )
    if not np.isfinite(points).all():
        raise ValueError("candidates contain NaN or infinity.")
    return points


def _check_batches(
    batches: Iterable[Any] | None, problem: CandidateProblem
) -> Iterable[np.ndarray] | None:
    return None if batches is None else (_check_batch(batch, problem) for batch in batches)


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
