"""Independent solutions of the projection: a linear program, and the published iteration."""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


def projection_lp(weights, cost, base, epsilon):
    """Return the cost of the projection of one distribution, by scipy's HiGHS.

    Bounds give way by 1e-9 of themselves, so that rounding in a sum of 1 does not make them
    infeasible; weights below 1e-13 are dropped, which the solver cannot tell from 0.
    """
    cost, weights = cost[weights > 1e-13], weights[weights > 1e-13]
    n_inputs, n_outputs = cost.shape
    upper = np.minimum(np.exp(epsilon) * base, 1.0)
    rows = sparse.kron(sparse.eye(n_inputs), np.ones((1, n_outputs)))
    columns = sparse.kron(np.ones((1, n_inputs)), sparse.eye(n_outputs))
    result = linprog(
        cost.ravel(),
        A_eq=rows,
        b_eq=weights,
        A_ub=sparse.vstack([columns, -columns]),
        b_ub=np.concatenate([upper * (1 + 1e-9), -base * (1 - 1e-9)]),
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.status == 0, result.message
    return result.fun


def scale_of(q, base, epsilon):
    """Return tau with ``sum clip(tau q, s, E s) = 1``, by bisection in its logarithm."""
    low, high = -800.0, 800.0
    for _ in range(200):
        middle = (low + high) / 2
        with np.errstate(over="ignore"):
            total = np.clip(np.exp(middle) * q, base, np.exp(epsilon) * base).sum()
        low, high = (middle, high) if total < 1 else (low, middle)
    return np.exp((low + high) / 2)


def entropic_fixed_point(weights, cost, base, epsilon, reg, n_iter=20_000):
    """Return the entropic projection by the published iteration, in double precision."""
    kernel = np.exp(-cost / reg)
    v = np.ones(len(base))
    for _ in range(n_iter):
        u = weights / (kernel @ v)
        q = kernel.T @ u
        nu = np.clip(scale_of(q, base, epsilon) * q, base, np.exp(epsilon) * base)
        if np.abs(nu - v * q).sum() < 1e-12:
            break
        v = nu / q
    return nu
