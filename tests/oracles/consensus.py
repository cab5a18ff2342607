"""Networks, and their best plans by general solvers that know nothing of nodes."""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from skdpot.transport.consensus import make_network

NETWORKS = ("case study", "dense", "sparse", "lower bounds", "equalities", "isolated", "one edge")


class RootUtility:
    """Utilities ``a ((1 + x)^(1/2) - 1)``, as a user may define them."""

    def __init__(self, factors):
        self.factors = factors

    def value(self, amounts):
        return self.factors * (np.sqrt(1 + amounts) - 1)

    def derivative(self, amounts):
        return 0.5 * self.factors / np.sqrt(1 + amounts)

    def second_derivative(self, amounts):
        return -0.25 * self.factors * (1 + amounts) ** -1.5

    def take(self, edges):
        return RootUtility(self.factors[edges])


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


def linear_optimum(network, slopes, **options):
    """Return the largest ``slopes @ plan`` by HiGHS, or None where it finds no plan."""
    plan = linear_plan(network, slopes, **options)
    return None if plan is None else float(slopes @ plan)


def linear_plan(network, slopes, **options):
    """Return a plan with the largest ``slopes @ plan`` by HiGHS on all edges, or None."""
    matrix, (lower, upper) = node_sums(network), node_bounds(network)
    if not network.n_edges:
        return None if lower.any() else np.zeros(0)
    found = linprog(
        -slopes,
        A_ub=sparse.vstack([matrix, -matrix]),
        b_ub=np.concatenate([upper, -lower]),
        method="highs",
        options=options,
    )
    return found.x if found.status == 0 else None


def smooth_optimum(network, utilities, precision=2e-7):
    """Return the best plan for smooth utilities, and its welfare, by cutting planes and HiGHS.

    The utility of every edge is at most each of its tangents; where the program's plan is, one
    more tangent joins those of the edge.
    """
    n = network.n_edges
    matrix, (lower, upper) = node_sums(network), node_bounds(network)
    nothing = sparse.csr_array(matrix.shape)
    sums = sparse.hstack([matrix, nothing])
    caps = np.minimum(
        network.targets.upper[network.targets.nodes],
        network.sources.upper[network.targets.neighbours],
    )

    def value(x):
        return sum(utility.value(x) for utility in utilities)

    def tangents(x):
        """Return rows and right-hand sides of ``height <= u(x) + u'(x) (amount - x)``."""
        slopes = sum(utility.derivative(x) for utility in utilities)
        rows = sparse.hstack([-sparse.diags_array(slopes), sparse.eye_array(n)])
        return rows, value(x) - slopes * x

    planes = [tangents(share * caps) for share in np.linspace(0, 1, 9) ** 2]
    for _ in range(60):
        rows, sides = zip(*planes, strict=True)
        found = linprog(
            np.concatenate([np.zeros(n), -np.ones(n)]),
            A_ub=sparse.vstack([sums, -sums, *rows]),
            b_ub=np.concatenate([upper, -lower, *sides]),
            bounds=[(0, None)] * n + [(None, None)] * n,
            method="highs",
        )
        plan = found.x[:n]
        if -found.fun - value(plan).sum() <= precision * abs(found.fun):
            return plan, -found.fun
        planes.append(tangents(plan))
    raise AssertionError("cutting planes did not converge")


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
