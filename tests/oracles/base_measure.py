"""The linear programs behind a base measure, written out in full and left to a general solver."""

import math

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


def smallest_worst_case_cost(cost_matrix, epsilon):
    """Minimise over s, and over one distribution between s and exp(epsilon) s for every Dirac.

    The unknowns are the base measure, the distributions row after row, and the worst-case cost.
    """
    n_inputs, n_outputs = cost_matrix.shape
    diracs, n_unknowns = sparse.eye(n_inputs), n_inputs * n_outputs
    every_base = sparse.vstack([sparse.eye(n_outputs)] * n_inputs)
    column_of_zeros = sparse.csr_matrix((n_unknowns, 1))
    upper_bounded = sparse.vstack(
        [
            sparse.hstack([every_base, -sparse.eye(n_unknowns), column_of_zeros]),
            sparse.hstack(
                [-math.exp(epsilon) * every_base, sparse.eye(n_unknowns), column_of_zeros]
            ),
            sparse.hstack(
                [
                    sparse.csr_matrix((n_inputs, n_outputs)),
                    sparse.block_diag([row[None] for row in cost_matrix]),
                    -np.ones((n_inputs, 1)),
                ]
            ),
        ]
    )
    total_masses = sparse.hstack(
        [
            sparse.csr_matrix((n_inputs, n_outputs)),
            sparse.kron(diracs, np.ones((1, n_outputs))),
            sparse.csr_matrix((n_inputs, 1)),
        ]
    )
    objective = np.zeros(n_outputs + n_unknowns + 1)
    objective[-1] = 1.0
    solution = linprog(
        objective,
        A_ub=upper_bounded.tocsr(),
        b_ub=np.zeros(upper_bounded.shape[0]),
        A_eq=total_masses.tocsr(),
        b_eq=np.ones(n_inputs),
        bounds=[(0, None)] * (n_outputs + n_unknowns) + [(None, None)],
        method="highs",
    )
    assert solution.status == 0, solution.message
    return solution.fun


def dirac_cost(costs, base_measure, epsilon):
    """Least cost of a distribution between the base measure and exp(epsilon) times it."""
    solution = linprog(
        costs,
        A_eq=np.ones((1, len(costs))),
        b_eq=[1.0],
        bounds=np.column_stack([base_measure, math.exp(epsilon) * base_measure]),
        method="highs",
    )
    assert solution.status == 0, solution.message
    return solution.fun
