"""Barycenters on points chosen among given candidates.

*Rounding of shares to distinct candidates.* The largest shares may all lie in one place. If they
are chosen along an order in which neighbours are close, every stretch of candidates gets as many
points as the sum of its shares, up to one. So mass moves only a short way. The choice is then
improved as Lloyd's method does: with the couplings kept, every point moves to the candidate that is
cheapest for the mass it receives.
"""

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog

from ..base_measure import TransportConvergenceWarning
from ..polytope import check_masses, check_numbers, check_range, check_stopping, check_weights
from . import _relaxation

# The largest number of couplings and shares. For larger programs, HiGHS takes minutes.
LARGEST_EXACT = 200_000
# Number of separate sums over groups in cutting planes, so that their linear program stays small.
_MOST_PARTS = 16
# Beyond this number of pairs, an optimal assignment would take longer than the solver did.
_LARGEST_ASSIGNMENT = 2_000_000
# Bounds on the objective of a choice, and a function that returns the costs of all candidates for
# each point, of shape (n_support, n_candidates), up to a constant of each row, with the present
# couplings.
Placement = tuple[float, float, Callable[[], np.ndarray]]


def candidate_barycenter(
    costs: Sequence[Any],
    group_weights: Any,
    n_support: int,
    *,
    masses: Sequence[Any] | None = None,
    method: str = "auto",
    tol: float = 1e-3,
    max_iter: int | None = None,
    candidates: Any,
    batches: Iterable[Any] | None = None,
    primal_recovery: int | None = None,
    callback: Callable[[int, float, float], Any] | None = None,
) -> _relaxation.BarycenterResult:
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
    candidates : array-like of shape (n_candidates, n_features)
        Coordinates of the candidates, for the order in which they are rounded.
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
    BarycenterResult
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
    >>> result = candidate_barycenter(costs, [0.5, 0.5], 4, candidates=candidates[:, None])
    >>> result.chosen
    array([2, 3, 4, 5])
    >>> round(result.objective, 6), result.converged
    (4.0, True)
    """
    arrays, checked, weights = _check_problem(costs, group_weights, n_support, masses)
    options = _check_options(arrays, method, tol, max_iter, batches, primal_recovery)
    points = check_numbers(candidates, "candidates", 2)
    if len(points) != arrays[0].shape[1]:
        raise ValueError(
            f"candidates must have shape ({arrays[0].shape[1]}, n_features), because costs have "
            f"that many columns; got {points.shape}."
        )
    # Groups without weight, and points without mass, have no part in the problem.
    n_weighted = int(np.count_nonzero(weights))
    # A slice is no copy of a large matrix; a mask is.
    kept = [slice(None) if mass.all() else mass > 0 for mass in checked]
    groups = [
        _relaxation.Group(np.ascontiguousarray(cost[used]), mass[used], weight, n_weighted)
        for cost, mass, weight, used in zip(arrays, checked, weights, kept, strict=True)
        if weight > 0
    ]
    if max_iter is None:
        max_iter = _relaxation.METHODS[method if method in _relaxation.METHODS else "bundle"][1]
    relaxation = _relaxation.Relaxation(len(points), int(n_support), tol, max_iter, callback)
    _relax(relaxation, method, options, groups)
    shape = relaxation.n_support, relaxation.n_candidates

    def place(chosen: np.ndarray) -> _relaxation.Rounds[Placement]:
        (answer,) = yield from _relaxation.ask("choice", 1 + math.prod(shape), chosen=chosen)
        return float(answer[0]), -math.inf, lambda: answer[1:].reshape(shape)

    chosen, *_ = _relaxation.drive(choose(place, relaxation.shares, points, n_support), groups)
    if not relaxation.converged:
        warnings.warn(
            f"candidate_barycenter stopped after {relaxation.n_iter} rounds with a gap of "
            f"{relaxation.gap / (abs(relaxation.upper) or 1.0):.3g} of the relaxed objective, "
            f"above tol={tol:g}. The choice is valid; raise max_iter or tol, or try another "
            "method, if this gap is not small enough or the warning is not wanted.",
            TransportConvergenceWarning,
            stacklevel=2,
        )
    couplings = [
        _relaxation.coupling_of_choice(cost, mass, chosen)
        for cost, mass in zip(arrays, checked, strict=True)
    ]
    return _relaxation.BarycenterResult(
        support=points[chosen],
        chosen=chosen,
        objective=math.fsum(weights * [coupling.cost for coupling in couplings]),
        shares=relaxation.shares,
        relaxed_objective=relaxation.upper,
        lower_bound=relaxation.lower,
        n_iter=relaxation.n_iter,
        converged=relaxation.converged,
        plans=[coupling.plan for coupling in couplings],
    )


def _relax(
    relaxation: _relaxation.Relaxation,
    method: str,
    options: dict[str, Any],
    groups: list[_relaxation.Group],
) -> None:
    """Close the gap of the relaxation, or use up the rounds."""
    # Below this number of pairs of points and candidates, HiGHS needs a fraction of a second.
    tiny = 2_000
    # A model of each group is tighter than one of their sum.
    n_parts = min(len(groups), _MOST_PARTS)
    _relaxation.drive(relaxation.begin(), groups, n_parts)
    if relaxation.n_support == relaxation.n_candidates:
        # There is only one choice, and the minorants at it prove that.
        _relaxation.drive(relaxation.evaluate(relaxation.shares), groups, n_parts)
        return
    n_couplings = sum(group.cost.size for group in groups)
    if method == "exact" or (method == "auto" and n_couplings <= tiny):
        shares = _solve_program(groups, relaxation.n_support)
        # A program that failed leaves equal shares, whose certificate is worse but valid.
        shares = relaxation.shares if shares is None else shares
        _relaxation.drive(relaxation.evaluate(shares, 1), groups, n_parts)
    # The program's solution is certified like any other; rounds close what is left of the gap.
    if method != "exact" and not relaxation.finished:
        iterate = _relaxation.METHODS["bundle" if method == "auto" else method][0]
        _relaxation.drive(iterate(relaxation, **options), groups, n_parts)


def _bounds_of(costs: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest cost."""
    return float(min(cost.min() for cost in costs)), float(max(cost.max() for cost in costs))


def _solve_program(groups: list[_relaxation.Group], n_support: int) -> np.ndarray | None:
    """Solve the whole linear program by HiGHS: return shares, and set the groups' potentials.

    None if the solver fails. Variables are couplings, group by group, then shares. The smallest
    cost is subtracted from all costs, which are then divided by their range.
    """
    costs = [group.cost for group in groups]
    n_candidates = costs[0].shape[1]
    # In units of the range, the solver's absolute tolerances act as relative ones.
    low, high = _bounds_of(costs)
    unit = (high - low) or 1.0
    rows = sparse.block_diag(
        [sparse.kron(sparse.eye(len(cost)), np.ones((1, n_candidates))) for cost in costs]
    )
    columns = sparse.block_diag(
        [sparse.kron(np.ones((1, len(cost))), sparse.eye(n_candidates)) for cost in costs]
    )
    equal_shares = sparse.vstack([-sparse.eye(n_candidates)] * len(costs))
    # These constraints imply that shares have the sum 1.
    constraints = sparse.bmat([[rows, None], [columns, equal_shares]]).tocsr()
    objective = [group.weight * ((group.cost.ravel() - low) / unit) for group in groups]
    upper = np.ones(constraints.shape[1])
    upper[-n_candidates:] = 1 / n_support
    solution = linprog(
        np.concatenate([*objective, np.zeros(n_candidates)]),
        A_eq=constraints,
        b_eq=np.concatenate([*(g.masses for g in groups), np.zeros(n_candidates * len(costs))]),
        bounds=np.column_stack([np.zeros(len(upper)), upper]),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        method="highs",
    )
    if solution.status != 0:
        return None
    ends = np.cumsum([len(cost) for cost in costs])
    potentials = np.split(solution.eqlin.marginals[: ends[-1]], ends[:-1])
    for group, potential in zip(groups, potentials, strict=True):
        group.state["potential"] = low + (high - low) / group.weight * potential
    return _relaxation.into_capped_simplex(solution.x[-n_candidates:], n_support)


def space_filling_order(points: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the leaves of a kd-tree from left to right: neighbours in it are near in space.

    Cells are cut at the middle of their shares, across the direction in which they are longest.
    """
    # Cells are stretches of this order, which are sorted in place.
    order = np.arange(len(points))
    cells = [(0, len(points))]
    while cells:
        start, end = cells.pop()
        cell = order[start:end]
        coordinates = points[cell]
        lengths = coordinates.max(axis=0) - coordinates.min(axis=0)
        # Points that coincide stay in their order.
        if end - start < 2 or not lengths.max() > 0:
            continue
        cell = cell[np.argsort(coordinates[:, lengths.argmax()], kind="stable")]
        order[start:end] = cell
        filled = np.cumsum(shares[cell])
        middle = int(np.searchsorted(filled, 0.5 * filled[-1])) + 1
        middle = start + min(max(middle, 1), end - start - 1)
        cells += [(start, middle), (middle, end)]
    return order


def systematic_choice(shares: np.ndarray, order: np.ndarray, n_support: int) -> np.ndarray:
    """Return the candidates at which the running sum of shares passes another half of a point."""
    filled = np.cumsum(shares[order])
    # Half a point is the start: a stretch of half a point's share gets its point in the middle.
    passed = np.floor(filled / filled[-1] * n_support + 0.5)
    steps = np.diff(np.minimum(passed, n_support), prepend=0.0)
    chosen = order[steps > 0]
    # Only rounding lets one candidate take two steps.
    others = np.setdiff1d(np.argsort(-shares, kind="stable"), chosen, assume_unique=True)
    return np.sort(np.concatenate([chosen, others[: n_support - len(chosen)]]))


def choose(
    place: Callable[[np.ndarray], _relaxation.Rounds[Placement]],
    shares: np.ndarray,
    points: np.ndarray,
    n_support: int,
) -> _relaxation.Rounds[tuple[np.ndarray, float, float]]:
    """Return a choice of candidates near the shares that no relocation improves much, and bounds.

    Every relocation lowers the objective: it makes the present couplings cheaper, and new couplings
    are cheaper still. `points` are coordinates of the candidates.
    """
    most_moves = 5
    # Relative: a smaller gain is not worth its time.
    smallest_gain = 3e-4
    chosen = systematic_choice(shares, space_filling_order(points, shares), n_support)
    upper, lower, elsewhere = yield from place(chosen)
    # Where shares are nearly a choice already, the largest are it.
    with_most_mass = np.sort(np.argsort(-shares, kind="stable")[:n_support])
    if not (chosen == with_most_mass).all():
        trial = yield from place(with_most_mass)
        if trial[0] < upper:
            chosen, (upper, lower, elsewhere) = with_most_mass, trial
    for _ in range(most_moves):
        # Couplings stay as they are, and every point may move at once.
        moved = relocated(chosen, elsewhere())
        if (moved == chosen).all():
            break
        trial = yield from place(moved)
        before, reached = upper, trial[0]
        if reached < before:
            chosen, (upper, lower, elsewhere) = moved, trial
        if not before - reached > smallest_gain * abs(reached):
            break
    return chosen, upper, lower


def relocated(chosen: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the best distinct candidates for the chosen points, or better ones."""
    if costs.size <= _LARGEST_ASSIGNMENT:
        return np.sort(linear_sum_assignment(costs)[1])
    free = np.setdiff1d(np.arange(costs.shape[1]), chosen, assume_unique=True)
    moved = chosen.copy()
    targets = costs[:, free].argmin(axis=1)
    gains = costs[np.arange(len(chosen)), chosen] - costs[np.arange(len(chosen)), free[targets]]
    order = np.argsort(-gains, kind="stable")
    # A candidate goes to the point that gains most.
    winners = order[np.unique(targets[order], return_index=True)[1]]
    winners = winners[gains[winners] > 0]
    moved[winners] = free[targets[winners]]
    return np.sort(moved)


def _check_problem(
    costs: Any, group_weights: Any, n_support: Any, masses: Any
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return costs, masses and weights as arrays of doubles, or raise if they are invalid."""
    arrays = [check_numbers(cost, f"costs[{s}]", 2) for s, cost in enumerate(costs)]
    # The first group's matrix says how many candidates there are.
    if not arrays:
        raise ValueError("costs must hold one matrix per group, got none.")
    widths = sorted({cost.shape[1] for cost in arrays})
    if len(widths) > 1:
        raise ValueError(f"all groups need the same candidates: costs have {widths} columns.")
    weights = check_weights(group_weights, len(arrays), "group_weights")
    if not 1 <= operator.index(n_support) <= widths[0]:
        raise ValueError(
            f"n_support must be between 1 and the number of candidates, {widths[0]}, because the "
            f"chosen points are distinct; got {n_support}."
        )
    checked = check_masses(masses, arrays)
    check_range(*_bounds_of(arrays), "costs")
    return arrays, checked, weights


def _check_options(
    costs: Sequence[np.ndarray],
    method: str,
    tol: float,
    max_iter: int | None,
    batches: Iterable[Any] | None,
    primal_recovery: int | None,
) -> dict[str, Any]:
    """Return the options of the method that were given, or raise."""
    if method not in ("auto", "exact", *_relaxation.METHODS):
        choices = sorted(["auto", "exact", *_relaxation.METHODS])
        raise ValueError(f"method must be one of {choices}, got {method!r}.")
    check_stopping(tol, max_iter=max_iter, primal_recovery=primal_recovery)
    n_couplings = sum(cost.size for cost in costs)
    if method == "exact" and n_couplings > LARGEST_EXACT:
        raise ValueError(
            f"method='exact' is for at most {LARGEST_EXACT} pairs of points and candidates, and "
            f"these are {n_couplings}: use method='bundle' with a small tol."
        )
    # Checked when they are drawn, as there may be endlessly many.
    if batches is not None:
        batches = (_check_batch(batch, costs[0].shape[1]) for batch in batches)
    options = {"batches": batches, "primal_recovery": primal_recovery}
    given = {name: value for name, value in options.items() if value is not None}
    if given and method != "dual":
        raise ValueError("batches and primal_recovery are options of method='dual' only.")
    return given


def _check_batch(batch: Any, n_candidates: int) -> np.ndarray:
    # Negative indices would be other candidates, without a word.
    indices = np.asarray(batch)
    if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
        raise ValueError("each batch must be a non-empty array of indices of candidates.")
    if indices.min() < 0 or indices.max() >= n_candidates:
        raise ValueError(
            f"a batch holds indices from {indices.min()} to {indices.max()}, but there are "
            f"{n_candidates} candidates."
        )
    if len(np.unique(indices)) < len(indices):
        raise ValueError("the indices of a batch must be distinct.")
    return indices
