"""The whole linear program by HiGHS, for small problems and as a reference."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ._relaxation import into_capped_simplex

# The largest number of couplings and shares. For larger programs, HiGHS takes minutes.
LARGEST_EXACT = 200_000


def solve_program(problem: Any) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """Return the optimal shares and the groups' potentials, or None if the solver fails."""
    solution = linprog(**_program(problem), method="highs")
    if solution.status != 0:
        return None
    shares = into_capped_simplex(solution.x[-problem.n_candidates :], problem.n_support)
    ends = np.cumsum([len(masses) for masses in problem.masses])
    low, high = problem.bounds_of_costs
    potentials = np.split(solution.eqlin.marginals[: ends[-1]], ends[:-1])
    return shares, [
        low + (high - low) / weight * potential
        for potential, weight in zip(potentials, problem.weights, strict=True)
    ]


def _program(problem: Any) -> dict:
    """Return the arguments of `linprog`; variables are couplings, group by group, then shares.

    The smallest cost is subtracted from all costs, which are then divided by their range.
    """
    n_candidates, n_groups = problem.n_candidates, len(problem.costs)
    low, high = problem.bounds_of_costs
    unit = (high - low) or 1.0
    rows = sparse.block_diag(
        [sparse.kron(sparse.eye(len(cost)), np.ones((1, n_candidates))) for cost in problem.costs]
    )
    columns = sparse.block_diag(
        [sparse.kron(np.ones((1, len(cost))), sparse.eye(n_candidates)) for cost in problem.costs]
    )
    equal_shares = sparse.vstack([-sparse.eye(n_candidates)] * n_groups)
    # These constraints imply that shares have the sum 1.
    constraints = sparse.bmat([[rows, None], [columns, equal_shares]]).tocsr()
    objective = [
        weight * ((cost.ravel() - low) / unit)
        for weight, cost in zip(problem.weights, problem.costs, strict=True)
    ]
    upper = np.concatenate(
        [np.ones(constraints.shape[1] - n_candidates), np.full(n_candidates, 1 / problem.n_support)]
    )
    return {
        "c": np.concatenate([*objective, np.zeros(n_candidates)]),
        "A_eq": constraints,
        "b_eq": np.concatenate([*problem.masses, np.zeros(n_candidates * n_groups)]),
        "bounds": np.column_stack([np.zeros(len(upper)), upper]),
        "options": {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    }
