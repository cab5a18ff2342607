"""The capped linear program as a whole, by HiGHS: for small problems, and as a reference."""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ._problem import (
    CandidateProblem,
    Certificate,
    into_capped_simplex,
    minorant_of_potential,
)

# Beyond, HiGHS takes minutes.
LARGEST_EXACT = 200_000


def n_couplings(problem: CandidateProblem) -> int:
    """Return the number of pairs of points and candidates, which are variables of the program."""
    return sum(cost.size for cost in problem.costs)


def solve(certificate: Certificate) -> None:
    """Solve the linear program, and certify shares and potentials that it found."""
    problem = certificate.problem
    solution = linprog(**_program(problem), method="highs")
    certificate.n_iter += 1
    if solution.status != 0:
        certificate.evaluate(certificate.shares)
        return
    shares = into_capped_simplex(solution.x[-problem.n_candidates :], problem.n_support)
    ends = np.cumsum([len(masses) for masses in problem.masses])
    potentials = np.split(solution.eqlin.marginals[: ends[-1]], ends[:-1])
    low, high = problem.bounds_of_costs
    certificate.learn(
        [
            minorant_of_potential(cost, masses, low + (high - low) / weight * potential)
            for cost, masses, potential, weight in zip(
                problem.costs, problem.masses, potentials, problem.weights, strict=True
            )
        ]
    )
    certificate.evaluate(shares)
    certificate.report()


def _program(problem: CandidateProblem) -> dict:
    """Return the arguments of `linprog`: couplings group by group, and then the shares.

    Costs are counted from the smallest one, in units of their range.
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
    # That shares have the sum 1 follows.
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
