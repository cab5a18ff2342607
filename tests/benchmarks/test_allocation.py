"""Private messages in the paper's case study: welfare over the optimum of a linear program.

Run with ``python -m pytest tests/benchmarks -m benchmark -s -k allocation``.
Four sources with capacities uniform from 20 to 40, thirty targets with bounds uniform from 1 to 5,
every pair an edge, all slopes uniform from 1 to 5 (or integers); 20 networks, of which means and
standard errors are printed. Epsilon is the total of every node; HiGHS finds the optima.
"""

import numpy as np
import pytest

from skdpot import PrivateADMMTransport
from skdpot.privacy import BudgetAccountant
from skdpot.published._message_estimates import estimate_utilities
from skdpot.published._message_planning import RoundPlan, plan_rounds
from skdpot.published._message_rounds import DeclaredUtilities, make_noise, private_consensus
from skdpot.transport.consensus import LinearUtility, consensus, make_network
from tests.benchmarks.contest import Contestant
from tests.oracles.consensus import linear_optimum, linear_plan

pytestmark = pytest.mark.benchmark

N_NETWORKS = 20
EPSILONS = (1.0, 10.0, 100.0)
DELTA = 1e-5
QUERIES = ("utilities", "best")
DECLARED = (DeclaredUtilities("linear", 1.0, 5.0),) * 2


def case_study(seed, *, integers=False):
    """Return a network, and the slopes of both sides."""
    rng = np.random.default_rng(seed)
    targets = np.c_[np.zeros(30), rng.uniform(1, 5, 30)]
    network = make_network(np.ones((30, 4)), targets, np.c_[np.zeros(4), rng.uniform(20, 40, 4)])
    shape = (2, network.n_edges)
    slopes = rng.integers(1, 6, shape).astype(float) if integers else rng.uniform(1, 5, shape)
    return network, slopes


def best_plan(network, slopes):
    """Return the plan that is best for estimates, as the estimator finds it."""
    of = LinearUtility(slopes)
    return consensus(network, of, LinearUtility(np.zeros_like(slopes)), tol=1e-4).plan


def ratio(network, slopes, plan, budget, seed):
    """Return the welfare of the plan that messages lead to, over the optimum."""
    noises = tuple(
        make_noise(side, of, n_rounds=plan.n_rounds, source=seed, **budget)
        for side, of in zip((network.targets, network.sources), DECLARED, strict=True)
    )
    utilities = tuple(of.make(values) for of, values in zip(DECLARED, slopes, strict=True))
    if plan.queries is not None:
        told = estimate_utilities(
            network, utilities, noises, DECLARED, plan.queries, delta=budget["delta"]
        )
        found = best_plan(network, sum(told))
    else:
        found = private_consensus(
            network, utilities, noises, DECLARED,
            eta=plan.eta, n_rounds=plan.n_rounds, average_from=plan.average_from,
        ).plan  # fmt: skip
    assert network.violation(found) <= 1e-9
    return slopes.sum(0) @ found / linear_optimum(network, slopes.sum(0))


def ratios(choose, budget, **options):
    """Return the ratios of all networks, with a plan for each."""
    found = []
    for seed in range(N_NETWORKS):
        network, slopes = case_study(seed, **options)
        found.append(ratio(network, slopes, choose(network), budget, seed))
    return np.array(found)


def print_row(name, found):
    error = found.std(ddof=1) / np.sqrt(len(found))
    print(f"{name:64s} {found.mean():.3f} +- {error:.3f}")


@pytest.mark.parametrize("protect", ["parameter", "node"])
@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_planned_messages(epsilon, delta, protect):
    """One message of which utilities are estimated, beside rounds of the paper's algorithm."""
    budget = {"epsilon": epsilon, "delta": delta, "protect": protect}
    print(f"\nepsilon {epsilon:g}, delta {delta:g}, {protect}")
    plan = plan_rounds(case_study(0)[0], DECLARED, **budget)
    found = ratios(lambda network: plan_rounds(network, DECLARED, **budget), budget)
    print_row(f"one message, {plan.queries}", found)
    rounds = plan_rounds(case_study(N_NETWORKS)[0], DECLARED, averaging=False, **budget)
    last = ratios(lambda network: rounds, budget)
    print_row(f"rounds, the last of {rounds.n_rounds}, eta {rounds.eta:.2f}", last)
    half = rounds.n_rounds // 2 + 1
    averaged = ratios(lambda network: RoundPlan(rounds.n_rounds, None, rounds.eta, half), budget)
    print_row("rounds, the mean of their second half", averaged)
    assert found.mean() > max(last.mean(), averaged.mean())


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_integer_slopes(delta):
    """The paper's own."""
    print(f"\nslopes that are integers, delta {delta:g}, parameter")
    for epsilon in EPSILONS:
        budget = {"epsilon": epsilon, "delta": delta, "protect": "parameter"}
        plan = RoundPlan(1, queries=("utilities", "utilities"))
        print_row(f"epsilon {epsilon:g}", ratios(lambda network: plan, budget, integers=True))  # noqa: B023


@pytest.mark.parametrize("protect", ["parameter", "node"])
def test_rule_for_queries(protect):
    """What is planned is not much worse than the best pair of queries."""
    for delta in (0.0, DELTA):
        for epsilon in (1.0, 3.0, 10.0, 30.0, 100.0):
            budget = {"epsilon": epsilon, "delta": delta, "protect": protect}
            means = {}
            for pair in ((one, other) for one in QUERIES for other in QUERIES):
                plan = RoundPlan(1, queries=pair)
                means[pair] = ratios(lambda network: plan, budget).mean()  # noqa: B023
            planned = plan_rounds(case_study(0)[0], DECLARED, **budget).queries
            print(f"\nepsilon {epsilon:g}, delta {delta:g}, {protect}: {planned} of", end=" ")
            print({pair: round(float(mean), 3) for pair, mean in means.items()})
            assert means[planned] > max(means.values()) - 0.02


def test_no_information():
    """The plan that is best for the middle of all ranges."""
    found = []
    for seed in range(N_NETWORKS):
        network, slopes = case_study(seed)
        total = slopes.sum(0)
        found.append(
            total @ best_plan(network, np.ones_like(total)) / linear_optimum(network, total)
        )
    print()
    print_row("no information", np.array(found))
    assert 0.7 < np.mean(found) < 0.8


@pytest.mark.quick
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_noise_and_a_program(epsilon, contest):
    """What somebody would write: Laplace noise on each utility, and HiGHS on what comes out."""
    assert BudgetAccountant is not None
    networks = [case_study(seed) for seed in range(N_NETWORKS)]

    def ours():
        found = []
        for seed, (network, slopes) in enumerate(networks):
            allocation = PrivateADMMTransport(
                epsilon, utility_bounds=(1, 5), random_state=seed,
                target_bounds=np.c_[network.targets.lower, network.targets.upper],
                source_bounds=np.c_[network.sources.lower, network.sources.upper],
            )  # fmt: skip
            X, of_sources = (of.reshape(network.shape) for of in slopes)
            allocation.fit(X, source_utilities=of_sources)
            found.append(allocation.plan_.ravel())
        return found

    def theirs():
        from diffprivlib.mechanisms import Laplace

        found = []
        for seed, (network, slopes) in enumerate(networks):
            noise = Laplace(epsilon=epsilon, sensitivity=4.0, random_state=seed)
            noisy = np.array([noise.randomise(of) for of in slopes.ravel()]).reshape(slopes.shape)
            found.append(linear_plan(network, np.clip(noisy, 1, 5).sum(axis=0)))
        return found

    def welfare(plans):
        return np.mean(
            [
                slopes.sum(0) @ plan / linear_optimum(network, slopes.sum(0))
                for (network, slopes), plan in zip(networks, plans, strict=True)
            ]
        )

    contest.compare(
        "PrivateADMMTransport",
        f"{N_NETWORKS} networks of the case study, 120 edges, epsilon {epsilon:g} a utility",
        Contestant("PrivateADMMTransport", ours),
        [Contestant("diffprivlib's Laplace and HiGHS", theirs, "diffprivlib")],
        {"welfare over the optimum": welfare},
        rounds=(2, 5),
    )
