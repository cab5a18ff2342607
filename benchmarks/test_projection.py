"""The projection against a loop over users, against POT and against a linear program by HiGHS.

Run with ``python -m pytest benchmarks -m benchmark -s -k projection``. Nothing is asserted
about time. Ours projects the same users as the peer, which is one of the obvious programs:

- ``ot.emd`` on the balanced problem with every output split into a column that must and one that
  may be filled. Its cost matrix is built once for all users;
- ``scipy.optimize.linprog`` with HiGHS, on the places of a user and all outputs;
- the loop over users, with the published entropic iteration (``K @ v`` over all rows, 60 bisections
  in the logarithm of tau an iteration), at the regularisation of the package's entropic solver, and
  stopped at the excess that this one has to certify (or after 5,000 iterations).

What each reached is the mean relative excess of its cost over the bound that our exact solver
certifies.
"""

import numpy as np
import ot
import pytest
from scipy import sparse
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from benchmarks.contest import Contestant
from skdpot.transport import (
    Projector,
    normalise_rows,
    polytope,
    transport_costs,
    uniform_base_measure,
)
from skdpot.transport.kernels import kernel

pytestmark = pytest.mark.benchmark

# Compiled, as the rest of the loop is NumPy.
dual_bound, round_into_box = kernel(polytope.dual_bound), kernel(polytope.round_into_box)

EPSILONS, EPSILON = (0.5, 2.0, 8.0), 2.0
# Users that each peer serves, of all.
N_LOOP, N_EMD, N_PROGRAM = 3, 20, 1
N_ITERATIONS = 5000
# Relative excess over the optimum: what rounding leaves open, and where the loop stops.
EXACT_TOL, LOOP_TOL = 1e-8, 0.01


def dense_users(rng):
    """1,000 users with dense distributions over 250 points of the plane."""
    points = rng.random((250, 2))
    return cdist(points, points), rng.dirichlet(np.full(250, 0.1), 1000)


def rating_users(rng):
    """943 users with 84 of 1,345 films each, and 250 candidates, by cosine distance."""
    scale = 1 / np.sqrt(1 + np.arange(64))
    films, candidates = rng.normal(size=(1345, 64)) * scale, rng.normal(size=(250, 64)) * scale
    weights = np.zeros((943, 1345))
    for user in weights:
        user[rng.choice(1345, 84, replace=False)] = rng.integers(1, 6, 84)
    return cdist(films, candidates, "cosine"), weights


def grid_users(rng, order):
    """500 users with 29 places each on a grid of 30 x 30."""
    grid = np.stack(np.meshgrid(np.arange(30.0), np.arange(30.0)), -1).reshape(-1, 2)
    weights = np.zeros((500, 900))
    for user in weights:
        odds = np.exp(-((grid - rng.random(2) * 30) ** 2).sum(1) / 50)
        user[rng.choice(900, 29, replace=False, p=odds / odds.sum())] = rng.integers(1, 10, 29)
    return cdist(grid, grid) ** order, weights


CASES = {
    "dense users, 250 x 250": dense_users,
    "sparse users, 1345 x 250": rating_users,
    "users of a grid, 900 x 900, order 2": lambda rng: grid_users(rng, 2),
    "users of a grid, 900 x 900, order 1": lambda rng: grid_users(rng, 1),
}
QUICK = "dense users, 250 x 250"


def plain_iteration(weights, cost, base, reg, excess):
    """Run the published iteration for one user until its excess is certified."""
    upper = np.exp(EPSILON) * base
    kernel = np.exp(-(cost - cost.min()) / reg)
    spread = np.ptp(cost[weights > 0], axis=1).max()
    rows = np.flatnonzero(weights)
    mass, v = weights[rows], np.ones(len(base))
    for iteration in range(N_ITERATIONS):
        u = weights / (kernel @ v)
        q = kernel.T @ u
        if iteration % 10 == 9:
            nu = v * q
            plan_cost = ((u[rows, None] * kernel[rows] * v) * cost[rows]).sum()
            moved = round_into_box(nu, base, upper)
            bound = dual_bound(cost, rows, mass, base, upper, reg * np.log(v))
            if plan_cost + 0.5 * moved * spread - bound <= excess * bound:
                break
        low, high = -700.0, 700.0
        for _ in range(60):
            middle = (low + high) / 2
            if np.clip(np.exp(middle) * q, base, upper).sum() < 1:
                low = middle
            else:
                high = middle
        v = np.clip(np.exp(high) * q, base, upper) / q
    return nu, (plan_cost + 0.5 * moved * spread) / bound - 1


def split_problem(cost, base, epsilon):
    """Return the cost matrix and the column masses of the balanced problem for ``ot.emd``."""
    n_inputs, n_outputs = cost.shape
    split = np.zeros((n_inputs + 1, 2 * n_outputs))
    split[:-1, :n_outputs] = split[:-1, n_outputs:] = cost
    split[-1, :n_outputs] = 2 * cost.max() + 1
    return split, np.concatenate([base, (np.exp(epsilon) - 1) * base])


def by_emd(weights, split, columns):
    """Project one user with POT; return nu."""
    n_outputs = len(columns) // 2
    rows = np.append(weights, columns.sum() - 1)
    plan = ot.emd(rows, columns * (rows.sum() / columns.sum()), split, numItermax=10**7)[:-1]
    return plan[:, :n_outputs].sum(0) + plan[:, n_outputs:].sum(0)


def by_program(weights, cost, base):
    """Project one user with HiGHS; return nu."""
    rows = np.flatnonzero(weights)
    n_rows, n_outputs = len(rows), len(base)
    sums = sparse.kron(sparse.eye_array(n_rows), np.ones((1, n_outputs)), "csr")
    columns = sparse.kron(np.ones((1, n_rows)), sparse.eye_array(n_outputs), "csr")
    found = linprog(
        cost[rows].ravel(),
        A_ub=sparse.vstack([columns, -columns]), b_ub=np.r_[np.exp(EPSILON) * base, -base],
        A_eq=sums, b_eq=weights[rows], method="highs",
    )  # fmt: skip
    return found.x.reshape(n_rows, n_outputs).sum(axis=0)


def loop_regularisation(projector, cost, costs):
    """Return the regularisation at which annealing by halves gets within reach of the tolerance.

    It is never so small that the loop's kernel underflows.
    """
    reg = projector.start[2] * projector.unit
    while reg > 1.5 * LOOP_TOL * costs.mean():
        reg /= 2
    return max(reg, np.ptp(cost) / 600)


def versus(contest, case, epsilon, n_users, solver, name, peer_of, tolerance, **options):
    """Compare with a peer; `peer_of` returns a map of one user, for a cost, a base and costs."""
    cost, weights = CASES[case](np.random.default_rng(0))
    weights = weights[:n_users] / weights[:n_users].sum(axis=1, keepdims=True)
    rows = normalise_rows(weights)
    base = uniform_base_measure(cost, epsilon).base_measure
    best = Projector(cost, base, epsilon, solver="exact").project(rows)
    ours = Projector(cost, base, epsilon, solver=solver, tol=LOOP_TOL)
    project = peer_of(cost, base, best.costs)
    contest.compare(
        "WassersteinProjectionSampler, one projection a user",
        f"project a user, {case.replace('users', '').lstrip(', ')}, epsilon {epsilon:g}",
        Contestant(f"solver {solver}", lambda: ours.project(rows).projections, units=n_users),
        [Contestant(name, lambda: np.array([project(user) for user in weights]), units=n_users)],
        {"excess": lambda nus: np.mean(transport_costs(rows, nus, cost) / best.lower_bounds - 1)},
        tolerance=tolerance,
        **options,
    )


QUICK_CASES = [pytest.param(case, marks=[pytest.mark.quick] * (case == QUICK)) for case in CASES]


@pytest.mark.table
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("case", QUICK_CASES)
def test_projection(case, epsilon, contest):
    def peer_of(cost, base, costs):
        split, columns = split_problem(cost, base, epsilon)
        return lambda user: by_emd(user, split, columns)

    versus(contest, case, epsilon, N_EMD, "exact", "POT, emd", peer_of, EXACT_TOL)


@pytest.mark.parametrize("case", QUICK_CASES)
def test_linear_program(case, contest):
    def peer_of(cost, base, costs):
        return lambda user: by_program(user, cost, base)

    name = "HiGHS, linprog"
    versus(contest, case, EPSILON, N_PROGRAM, "exact", name, peer_of, EXACT_TOL, rounds=(1, 3))


@pytest.mark.parametrize("case", QUICK_CASES)
def test_published_iteration(case, contest):
    def peer_of(cost, base, costs):
        start = Projector(cost, base, EPSILON, solver="entropic", tol=LOOP_TOL)
        reg = loop_regularisation(start, cost, costs)
        return lambda user: plain_iteration(user, cost, base, reg, LOOP_TOL)[0]

    n_users, name = contest.size(N_LOOP, 1), "published iteration, user by user"
    versus(contest, case, EPSILON, n_users, "entropic", name, peer_of, LOOP_TOL, rounds=(1, 3))
