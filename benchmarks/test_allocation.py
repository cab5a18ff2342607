"""Private messages in the paper's case study: welfare over the optimum of a linear program.

Run with ``python -m pytest benchmarks -m benchmark -s -k allocation``.
Four sources with capacities uniform from 20 to 40, thirty targets with bounds uniform from 1 to 5,
every pair an edge, all slopes uniform from 1 to 5 (or integers); 20 networks, of which means and
standard errors are printed. Epsilon is the total of every node; HiGHS finds the optima.
"""

import numpy as np
import pytest

from benchmarks.contest import Contestant
from skdpot import PrivateADMMTransport
from skdpot.privacy import BudgetAccountant
from skdpot.published import PrivateMessageADMM
from skdpot.transport.consensus import LinearUtility, consensus, make_network, starting_eta
from tests.oracles.consensus import linear_optimum, linear_plan

pytestmark = pytest.mark.benchmark

N_NETWORKS = 20
EPSILONS = (1.0, 10.0, 100.0)
DELTA = 1e-5


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


def ratios(n_rounds, eta_share, averaging, budget):
    """Return the welfare of the plans that messages lead to, over the optimum."""
    found = []
    for seed in range(N_NETWORKS):
        network, slopes = case_study(seed)
        allocation = PrivateMessageADMM(
            **budget, utility_bounds=(1, 5), n_rounds=n_rounds, averaging=averaging,
            eta=eta_share * starting_eta(network, 4.0), random_state=seed,
            target_bounds=np.c_[network.targets.lower, network.targets.upper],
            source_bounds=np.c_[network.sources.lower, network.sources.upper],
        )  # fmt: skip
        X, of_sources = (of.reshape(network.shape) for of in slopes)
        plan = allocation.fit(X, source_utilities=of_sources).plan_.ravel()
        assert network.violation(plan) <= 1e-9
        found.append(slopes.sum(0) @ plan / linear_optimum(network, slopes.sum(0)))
    return np.array(found)


def print_row(name, found):
    error = found.std(ddof=1) / np.sqrt(len(found))
    print(f"{name:64s} {found.mean():.3f} +- {error:.3f}")


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rounds_of_messages(epsilon, delta):
    """Some numbers of rounds and penalties, with the last round and the mean of the second half."""
    budget = {"epsilon": epsilon, "delta": delta, "protect": "parameter"}
    print(f"\nepsilon {epsilon:g}, delta {delta:g}")
    for n_rounds in (1, 5, 20, 100):
        for share in (1.0, 4.0, 16.0):
            for averaging, name in ((False, "last"), (True, "mean")):
                found = ratios(n_rounds, share, averaging, budget)
                print_row(f"{n_rounds} rounds, {share:g} times the penalty, {name}", found)
                assert found.mean() > 0.3


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
