"""Plans of rounds: from public quantities, and better than others."""

import inspect

import numpy as np
import pytest

from skdpot.published import _message_planning
from skdpot.published._message_planning import PENALTIES, ROUNDS, PlainNoise, RoundPlan, plan_rounds
from skdpot.published._message_rounds import DeclaredUtilities, make_noise, private_consensus
from skdpot.transport.consensus import make_network, starting_eta
from tests.oracles.consensus import draw_network, linear_optimum

DECLARED = DeclaredUtilities("linear", 1.0, 5.0)
BUDGET = {"epsilon": 100.0, "delta": 1e-5}


@pytest.fixture
def network(rng):
    return draw_network("case study", rng)


def test_plans_follow_from_public_arguments_alone(network):
    """No argument is private, and no state of the process matters."""
    settings = BUDGET | {"averaging": False}
    first = plan_rounds(network, (DECLARED, DECLARED), **settings)
    state = np.random.get_state()[1].copy()
    np.random.default_rng().normal()
    assert plan_rounds(network, (DECLARED, DECLARED), **settings) == first
    assert np.array_equal(np.random.get_state()[1], state)
    names = {"network", "declared", "epsilon", "delta", "protect", "factors", "n_rounds", "eta",
             "averaging", "random_state"}  # fmt: skip
    assert set(inspect.signature(plan_rounds).parameters) == names


def test_one_message_is_planned_where_utilities_can_be_estimated(network):
    plan = plan_rounds(network, (DECLARED, None), **BUDGET)
    assert plan == RoundPlan(1, queries=("utilities", "utilities"))
    loud = plan_rounds(network, (DECLARED, DECLARED), epsilon=10.0, delta=0.0, protect="node")
    assert loud.queries == ("best", "best")
    quiet = plan_rounds(network, (DECLARED, DECLARED), epsilon=1e4, delta=0.0, protect="node")
    assert quiet.queries == ("utilities", "utilities")
    log = DeclaredUtilities("log", 1.0, 5.0)
    loud = plan_rounds(network, (log, DECLARED), epsilon=10.0, delta=0.0, protect="node")
    assert loud.queries == ("utilities", "best")


def test_given_rounds_and_penalties_are_kept(network):
    both = (DECLARED, DECLARED)
    assert plan_rounds(network, both, n_rounds=7, eta=2.0, **BUDGET) == RoundPlan(
        7, eta=2.0, average_from=4
    )
    start = starting_eta(network, 4.0)
    found = plan_rounds(network, both, n_rounds=7, averaging=False, **BUDGET)
    assert found.n_rounds == 7
    assert found.average_from is None
    assert found.eta / start == pytest.approx(
        min(PENALTIES, key=lambda x: abs(x - found.eta / start))
    )
    found = plan_rounds(network, both, eta=2.0, **BUDGET)
    assert found.n_rounds in ROUNDS
    assert found.eta == 2.0
    assert found.average_from == found.n_rounds // 2 + 1


def test_families_of_users_are_planned_without_calling_them(network):
    def never(values):
        raise AssertionError

    declared = (DeclaredUtilities(never, 0.0, 4.0), None)
    assert plan_rounds(network, declared, **BUDGET).queries is None


def welfare_ratio(plan, seed):
    """Return the share of the optimum, with noise as it is released."""
    rng = np.random.default_rng(seed)
    network = draw_network("case study", rng)
    values = rng.uniform(1, 5, (2, network.n_edges))
    noises = tuple(
        make_noise(side, DECLARED, n_rounds=plan.n_rounds, source=seed, **BUDGET)
        for side in (network.targets, network.sources)
    )
    found = private_consensus(
        network, tuple(map(DECLARED.make, values)), noises, (DECLARED, DECLARED),
        eta=plan.eta, n_rounds=plan.n_rounds, average_from=plan.average_from,
    )  # fmt: skip
    slopes = values.sum(axis=0)
    return slopes @ found.plan / linear_optimum(network, slopes)


def test_planned_rounds_are_better_than_others_on_other_networks(network):
    declared = (DECLARED, DECLARED)
    planned = plan_rounds(network, declared, averaging=False, **BUDGET)
    others = [RoundPlan(1, eta=starting_eta(network, 4.0)), RoundPlan(50, eta=0.1)]
    ratios = [np.mean([welfare_ratio(plan, s) for s in range(3)]) for plan in (planned, *others)]
    assert ratios[0] > 0.85
    assert ratios[0] > max(ratios[1:]) + 0.02


def test_budgets_too_small_for_any_round_are_refused(network):
    with pytest.raises(ValueError, match="too small"):
        plan_rounds(network, (DECLARED, DECLARED), epsilon=1e-4, delta=0.0, averaging=False)
    # A hundred rounds would be too many; fewer are planned.
    plan = plan_rounds(network, (DECLARED, DECLARED), epsilon=0.05, delta=0.0, averaging=False)
    assert plan.n_rounds < 100


@pytest.mark.parametrize("spherical", [True, False])
def test_plain_noise_has_the_law_of_noise_that_is_released(spherical, rng):
    n, degree = 4000, 3
    network = make_network(np.ones((n, degree)), (0, 3), (0, 4))
    delta = 0.0 if spherical else 1e-5
    noise = make_noise(network.targets, DECLARED, epsilon=3.0, delta=delta, n_rounds=2, source=1)
    plain = PlainNoise(noise.standard_deviations(2.0), network.targets.degrees, spherical, rng)
    start = np.full(network.n_edges, 1.0)
    radii = [
        np.sort(np.linalg.norm((of.run(start, 2.0) - 1.0).reshape(n, degree), axis=1))
        for of in (noise, plain)
    ]
    inner = slice(n // 20, -n // 20)
    assert np.allclose(radii[0][inner], radii[1][inner], rtol=0.08)


def test_large_networks_are_thinned(monkeypatch, rng):
    monkeypatch.setattr(_message_planning, "_LARGEST", 60)
    bounds = np.c_[np.zeros(40), rng.uniform(1, 5, 40)]
    network = make_network(np.ones((40, 6)), bounds, (1, 20))
    small, targets = _message_planning._thinned(network, 0)
    assert small.n_edges == 60
    assert small.shape == (10, 6)
    assert np.array_equal(small.targets.upper, network.targets.upper[targets])
    assert small.sources.upper == pytest.approx(20 / 4)
    plan = plan_rounds(network, (DECLARED, None), averaging=False, **BUDGET)
    assert plan.n_rounds in ROUNDS
