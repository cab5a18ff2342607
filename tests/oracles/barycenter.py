"""The barycenter on candidates as one linear program, by scipy's HiGHS."""

from itertools import combinations

import numpy as np
import ot
from scipy import sparse
from scipy.optimize import linprog


def capped_barycenter_value(costs, group_weights, n_support, masses=None):
    """Return the least weighted cost of transport to one distribution of masses <= 1 / n_support.

    Written with the shares eliminated: all groups' columns equal those of the first group.
    """
    n_candidates = np.shape(costs[0])[1]
    if masses is None:
        masses = [np.full(len(cost), 1.0 / len(cost)) for cost in costs]
    rows, columns = [], []
    for cost in costs:
        n = len(cost)
        rows.append(sparse.kron(sparse.eye(n), np.ones((1, n_candidates))))
        columns.append(sparse.kron(np.ones((1, n)), sparse.eye(n_candidates)))
    balances = [
        [columns[0]] + [-columns[s] if t == s else None for t in range(1, len(costs))]
        for s in range(1, len(costs))
    ]
    blocks = [sparse.block_diag(rows)]
    if balances:
        blocks.append(sparse.bmat(balances))
    right = np.concatenate([*masses, np.zeros(n_candidates * (len(costs) - 1))])
    others = sparse.csr_array((n_candidates, sum(map(np.size, costs[1:]))))
    objective = [weight * np.ravel(cost) for weight, cost in zip(group_weights, costs, strict=True)]
    result = linprog(
        np.concatenate(objective),
        A_eq=sparse.vstack(blocks).tocsr(),
        b_eq=right,
        A_ub=sparse.hstack([columns[0], others]).tocsr(),
        b_ub=np.full(n_candidates, 1.0 / n_support),
        method="highs",
    )
    assert result.status == 0, result.message
    return result.fun


def best_choice(costs, group_weights, n_support, masses=None):
    """Return the least objective over all choices of distinct candidates, by trying them all."""
    n_candidates = np.shape(costs[0])[1]
    return min(
        objective_of(chosen, costs, group_weights, masses)
        for chosen in combinations(range(n_candidates), n_support)
    )


def objective_of(chosen, costs, group_weights, masses=None):
    """Return the weighted cost of transport to equal masses on a choice, by POT."""
    if masses is None:
        masses = [np.full(len(cost), 1.0 / len(cost)) for cost in costs]
    # POT takes small numbers for nothing, and negative ones for a mistake.
    low = min(np.min(cost) for cost in costs)
    unit = max(np.max(cost) for cost in costs) - low or 1.0
    equal = np.full(len(chosen), 1.0 / len(chosen))
    return low + unit * sum(
        weight * ot.emd2(mass, equal, (np.asarray(cost)[:, list(chosen)] - low) / unit)
        for weight, cost, mass in zip(group_weights, costs, masses, strict=True)
    )
