"""Speed of the projection against a loop over users and against POT, on one thread.

Run with ``OMP_NUM_THREADS=1 python -m pytest tests/benchmarks -m benchmark -s``: prints ratios of
times per user, all measured in one run. Nothing is asserted about time. The peers are the obvious
programs:

- the loop over users, with the published entropic iteration (``K @ v`` over all rows, 60 bisections
  in the logarithm of tau an iteration), at the regularisation of the package's entropic solver, and
  stopped at that one's mean certified excess (or after 5,000 iterations);
- ``ot.emd`` on the balanced problem with every output split into a column that must and one that
  may be filled. Its cost matrix is built once for all users.
"""

import time

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from skdpot.transport import Projector, normalise_rows, transport_costs, uniform_base_measure
from skdpot.transport.polytope import dual_bound, round_into_box

pytestmark = pytest.mark.benchmark

EPSILON = 1.0
# Users that the slow peers serve; the package serves all.
N_LOOP, N_EMD = 3, 20
N_ITERATIONS = 5000
# Certified excess of the entropic solver: a crude one, which is enough for an excess over the exact
# cost of about 1e-3, and the one at which the loop stops.
CRUDE_TOL, LOOP_TOL = 0.1, 0.01


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
    "1000 dense users, 250 x 250": dense_users,
    "943 sparse users, 1345 x 250": rating_users,
    "500 users of a grid, 900 x 900, order 2": lambda rng: grid_users(rng, 2),
    "500 users of a grid, 900 x 900, order 1": lambda rng: grid_users(rng, 1),
}


def plain_iteration(weights, cost, base, reg, excess):
    """Run the published iteration for one user until its excess is certified."""
    upper = np.exp(EPSILON) * base
    kernel = np.exp(-(cost - cost.min()) / reg)
    spread = np.ptp(cost[weights > 0], axis=1).max()
    rows = np.flatnonzero(weights)
    mass, prices = weights[rows], np.empty(len(rows))
    v, column_prices, filling = np.ones(len(base)), np.empty(len(base)), np.empty(len(base))
    for iteration in range(N_ITERATIONS):
        u = weights / (kernel @ v)
        q = kernel.T @ u
        if iteration % 10 == 9:
            nu = v * q
            plan_cost = ((u[rows, None] * kernel[rows] * v) * cost[rows]).sum()
            moved = round_into_box(nu, base, upper)
            bound = dual_bound(
                cost, rows, mass, base, upper, reg * np.log(v), prices, column_prices, filling
            )
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


def split_problem(cost, base):
    """Return the cost matrix and the column masses of the balanced problem for ``ot.emd``."""
    n_inputs, n_outputs = cost.shape
    split = np.zeros((n_inputs + 1, 2 * n_outputs))
    split[:-1, :n_outputs] = split[:-1, n_outputs:] = cost
    split[-1, :n_outputs] = 2 * cost.max() + 1
    return split, np.concatenate([base, (np.exp(EPSILON) - 1) * base])


def by_emd(weights, split, columns):
    """Project one user with POT; return nu."""
    n_outputs = len(columns) // 2
    rows = np.append(weights, columns.sum() - 1)
    plan = ot.emd(rows, columns * (rows.sum() / columns.sum()), split, numItermax=10**7)[:-1]
    return plan[:, :n_outputs].sum(0) + plan[:, n_outputs:].sum(0)


def seconds_per_user(function, users):
    start = time.perf_counter()
    results = [function(user) for user in users]
    return (time.perf_counter() - start) / len(users), results


def best_of_three(function, rows):
    """Return the least seconds per user, and the result."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        result = function(rows)
        times.append(time.perf_counter() - start)
    return min(times) / rows.shape[0], result


def mean_certificate(result):
    return float(np.mean(result.costs / result.lower_bounds - 1))


def loop_regularisation(projector, cost, costs):
    """Return the regularisation at which annealing by halves gets within reach of the tolerance.

    It is never so small that the loop's kernel underflows.
    """
    reg = projector.start[2] * projector.unit
    while reg > 1.5 * LOOP_TOL * costs.mean():
        reg /= 2
    return max(reg, np.ptp(cost) / 600)


@pytest.mark.parametrize("case", CASES)
def test_projection(case, benchmark):
    cost, weights = CASES[case](np.random.default_rng(0))
    weights /= weights.sum(axis=1, keepdims=True)
    rows = normalise_rows(weights)
    base = uniform_base_measure(cost, EPSILON).base_measure
    exact = Projector(cost, base, EPSILON, solver="exact")
    entropic = Projector(cost, base, EPSILON, solver="entropic", tol=LOOP_TOL)
    crude = Projector(cost, base, EPSILON, solver="entropic", tol=CRUDE_TOL)
    for projector in (exact, entropic, crude):
        projector.project(rows[:1])

    solution = benchmark.pedantic(exact.project, args=(rows,), rounds=3)
    exact_time = benchmark.stats.stats.min / len(weights)
    entropic_time, finer = best_of_three(entropic.project, rows)
    crude_time, crude_result = best_of_three(crude.project, rows)

    split, columns = split_problem(cost, base)
    emd_time, emd = seconds_per_user(lambda user: by_emd(user, split, columns), weights[:N_EMD])
    emd_costs = transport_costs(weights[:N_EMD], np.array(emd), cost)
    np.testing.assert_allclose(solution.costs[:N_EMD], emd_costs, rtol=1e-8)
    certified = mean_certificate(finer)
    reg = loop_regularisation(entropic, cost, solution.costs)
    loop_time, loop = seconds_per_user(
        lambda user: plain_iteration(user, cost, base, reg, certified), weights[:N_LOOP]
    )
    reached = float(np.mean([certificate for _, certificate in loop]))
    loop = np.array([nu for nu, _ in loop])

    def excess(projections, n_users):
        costs = transport_costs(weights[:n_users], projections[:n_users], cost)
        return float(np.mean(costs / solution.costs[:n_users] - 1))

    n_users = len(weights)
    print(f"\n{case}, epsilon {EPSILON}; milliseconds per user, mean relative excess over exact")
    crudely = mean_certificate(crude_result)
    for name, seconds, projections, n in [
        ("exact", exact_time, solution.projections, n_users),
        (f"entropic, certified to {certified:.0e}", entropic_time, finer.projections, n_users),
        (f"entropic, certified to {crudely:.0e}", crude_time, crude_result.projections, n_users),
        (f"loop, certified to {reached:.0e}", loop_time, loop, N_LOOP),
        ("ot.emd", emd_time, np.array(emd), N_EMD),
    ]:
        print(f"  {name:34s} {1e3 * seconds:9.3f}  {excess(projections, n):8.1e}")
    print(
        f"  ratios: loop / exact {loop_time / exact_time:.0f}, loop / entropic "
        f"{loop_time / entropic_time:.0f}; ot.emd / exact {emd_time / exact_time:.1f}, "
        f"ot.emd / crude entropic {emd_time / crude_time:.1f}"
    )
