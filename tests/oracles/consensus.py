"""Networks, and their best plans by general solvers that know nothing of nodes."""

import numpy as np
from scipy import sparse
from scipy.optimize import LinearConstraint, linprog, minimize

from skdpot.transport.consensus import make_network

NETWORKS = ("case study", "dense", "sparse", "lower bounds", "equalities", "isolated", "one edge")


def node_sums(network):
    """Return the matrix that takes a plan to the sums at targets and then at sources."""
    edges = np.arange(network.n_edges)
    side = network.targets
    ones = np.ones(network.n_edges)
    n_targets, n_sources = network.shape
    return sparse.vstack(
        [
            sparse.csr_array((ones, (side.nodes, edges)), shape=(n_targets, len(edges))),
            sparse.csr_array((ones, (side.neighbours, edges)), shape=(n_sources, len(edges))),
        ]
    )


def node_bounds(network):
    lower = np.concatenate([network.targets.lower, network.sources.lower])
    return lower, np.concatenate([network.targets.upper, network.sources.upper])


def linear_optimum(network, slopes):
    """Return the largest ``slopes @ plan`` by HiGHS, or None where there is no plan."""
    plan = linear_plan(network, slopes)
    return None if plan is None else float(slopes @ plan)


def linear_plan(network, slopes):
    """Return a plan with the largest ``slopes @ plan`` by HiGHS on all edges, or None."""
    matrix, (lower, upper) = node_sums(network), node_bounds(network)
    if not network.n_edges:
        return None if lower.any() else np.zeros(0)
    found = linprog(
        -slopes,
        A_ub=sparse.vstack([matrix, -matrix]),
        b_ub=np.concatenate([upper, -lower]),
        method="highs",
    )
    return None if found.status == 2 else found.x


def smooth_optimum(network, utilities):
    """Return the best plan for smooth utilities, and its welfare, by SLSQP from some vertex."""
    lower, upper = node_bounds(network)
    matrix, same = node_sums(network).toarray(), lower == upper
    constraints = [
        LinearConstraint(matrix[rows], lower[rows], upper[rows])
        for rows in (same, ~same)
        if rows.any()
    ]
    found = minimize(
        lambda x: -sum(utility.value(x).sum() for utility in utilities),
        linear_plan(network, np.cos(np.arange(network.n_edges))),
        jac=lambda x: -sum(utility.derivative(x) for utility in utilities),
        bounds=[(0, None)] * network.n_edges,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return found.x, -found.fun


def draw_network(kind, rng, size=1.0):
    """Return a network that has a plan, with bounds of some size."""
    if kind == "case study":
        targets = np.c_[np.zeros(30), rng.uniform(0, 5, 30)]
        sources = np.c_[np.zeros(4), rng.uniform(20, 40, 4)]
        return make_network(np.ones((30, 4)), size * targets, size * sources)
    if kind == "one edge":
        return make_network([[1]], (size, 2 * size), (0, 3 * size))
    shape = (12, 9)
    adjacency = np.ones(shape) if kind == "dense" else rng.random(shape) < 0.4
    if kind == "isolated":
        adjacency[2] = False
        adjacency[:, 3] = False
    inside = adjacency * rng.gamma(0.5, 2.0 * size, shape)
    bounds = []
    for sums in (inside.sum(1), inside.sum(0)):
        lower, upper = np.zeros(len(sums)), sums * rng.uniform(0.5, 1.5, len(sums))
        if kind == "lower bounds":
            lower, upper = 0.8 * sums, sums * rng.uniform(1.0, 1.5, len(sums))
        if kind == "equalities":
            lower = upper = sums
        bounds.append(np.c_[lower, upper])
    return make_network(adjacency, *bounds)
