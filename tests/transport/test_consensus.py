"""Consensus on a transport plan against general solvers, and node by node."""

import numpy as np
import pytest

from skdpot.transport.consensus import (
    LinearUtility,
    LogUtility,
    QuadraticUtility,
    Side,
    SideState,
    consensus,
    starting_amounts,
    starting_eta,
    welfare,
    welfare_bound,
)
from tests.oracles.consensus import (
    NETWORKS,
    RootUtility,
    draw_network,
    linear_optimum,
    smooth_optimum,
)

FAMILIES = ("linear", "quadratic", "log", "user")


class Hidden:
    """A utility whose family cannot be seen."""

    def __init__(self, utility):
        self.utility = utility
        self.value, self.derivative = utility.value, utility.derivative
        self.second_derivative = utility.second_derivative

    def take(self, edges):
        return Hidden(self.utility.take(edges))


def draw_utility(family, n_edges, rng):
    slopes = rng.uniform(0.5, 5, n_edges)
    if family == "linear":
        return LinearUtility(slopes)
    if family == "quadratic":
        return QuadraticUtility(slopes, rng.uniform(0, 2, n_edges) * rng.integers(0, 2, n_edges))
    if family == "log":
        return LogUtility(slopes, rng.uniform(0.3, 3, n_edges))
    return RootUtility(slopes)


def draw_problem(kind, family, rng):
    network = draw_network(kind, rng)
    utilities = [draw_utility(family, network.n_edges, rng) for _ in range(2)]
    return network, *utilities


@pytest.mark.parametrize("kind", NETWORKS)
def test_linear_utilities_reach_the_linear_program(kind, rng):
    network, *utilities = draw_problem(kind, "linear", rng)
    optimum = linear_optimum(network, utilities[0].slopes + utilities[1].slopes)
    eta = starting_eta(network, 4.5)
    result = consensus(network, *utilities, eta=eta, tol=1e-5, max_iter=5000)
    assert result.converged
    assert network.violation(result.plan) <= 1e-9
    assert result.welfare == pytest.approx(optimum, rel=1e-5)
    assert result.bound >= optimum * (1 - 1e-12)
    assert result.welfare == pytest.approx(welfare(*utilities, result.plan))


@pytest.mark.parametrize("family", ["quadratic", "log"])
@pytest.mark.parametrize(
    "kind",
    [
        "lower bounds",
        *(
            pytest.param(k, marks=pytest.mark.experiment)
            for k in ("sparse", "equalities", "isolated")
        ),
    ],
)
def test_other_utilities_reach_a_general_optimiser(kind, family, rng):
    network, *utilities = draw_problem(kind, family, rng)
    result = consensus(network, *utilities, tol=1e-6, max_iter=2000)
    _, optimum = smooth_optimum(network, utilities)
    assert result.converged
    assert network.violation(result.plan) <= 1e-9
    assert result.welfare == pytest.approx(optimum, rel=2e-6)
    assert result.bound >= optimum * (1 - 1e-6)


@pytest.mark.experiment
def test_users_utilities_reach_a_general_optimiser(rng):
    network, *utilities = draw_problem("lower bounds", "user", rng)
    result = consensus(network, *utilities, tol=None, max_iter=100)
    _, optimum = smooth_optimum(network, utilities)
    assert network.violation(result.plan) <= 1e-9
    assert result.welfare == pytest.approx(optimum, rel=1e-4)
    assert optimum * (1 - 1e-6) <= result.bound <= optimum * (1 + 1e-3)


def test_families_agree_where_they_are_the_same(rng):
    network = draw_network("lower bounds", rng)
    slopes = rng.uniform(1, 5, network.n_edges)
    flat = np.zeros(network.n_edges)

    results = [
        consensus(network, utility, utility, tol=None, max_iter=50)
        for utility in (LinearUtility(slopes), QuadraticUtility(slopes, flat))
    ]
    np.testing.assert_allclose(results[0].agreed, results[1].agreed, atol=1e-9)
    curved = QuadraticUtility(slopes, np.ones(network.n_edges))

    results = [
        consensus(network, utility, utility, tol=None, max_iter=20)
        for utility in (curved, Hidden(curved))
    ]
    np.testing.assert_allclose(results[0].agreed, results[1].agreed, atol=1e-9)
    assert results[0].bound == pytest.approx(results[1].bound, rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_answers_the_best_amounts(family, rng):
    """The conditions of Karush, Kuhn and Tucker, for hard prices and any start."""
    for _ in range(6):
        network, utility, _ = draw_problem(rng.choice(NETWORKS), family, rng)
        side, eta = network.targets, 10.0 ** rng.uniform(-2, 2)
        state = SideState(side, utility, 1, rng.normal(0, 3, network.n_edges))
        state.multipliers[:] = rng.normal(0, 10, side.n_nodes)
        state.prices[:] = rng.normal(0, 10, network.n_edges)
        sent = state.agreed.copy()
        other = np.empty_like(sent)
        other[side.positions] = sent
        x = state.answer(sent, other, eta, 1.0, 0.0)
        sums, slack = side.sums(x), 1e-9 * (1 + side.upper)
        assert (x >= 0).all()
        connected = side.degrees > 0
        assert (sums <= side.upper + slack)[connected].all()
        assert (sums >= side.lower - slack)[connected].all()
        levels = state.multipliers
        marginal = utility.derivative(x) - state.prices - eta * (x - state.agreed)
        excess = marginal - levels[side.nodes]
        assert (excess <= 1e-7 * (1 + eta)).all()
        assert (np.abs(excess)[x > 1e-12] <= 1e-7 * (1 + eta)).all()
        # A multiplier pushes only at the bound that it stands for.
        assert (np.abs(sums - side.upper) <= slack)[connected & (levels > 0)].all()
        assert (np.abs(sums - side.lower) <= slack)[connected & (levels < 0)].all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_by_itself_answers_bit_by_bit_the_same(family, rng):
    network, utility, _ = draw_problem("lower bounds", family, rng)
    side, start = network.targets, starting_amounts(network)
    whole = SideState(side, utility, 1, start)
    nodes = []
    for node in range(side.n_nodes):
        edges = np.arange(side.indptr[node], side.indptr[node + 1])
        alone = Side(
            np.array([0, len(edges)]), side.neighbours[edges],
            np.arange(len(edges)),
            side.lower[[node]], side.upper[[node]],
        )  # fmt: skip
        nodes.append((edges, SideState(alone, utility.take(edges), 1, start[edges])))
    sent = start
    for shift in (0.0, 0.3, -0.1, 0.0):
        received = rng.random(network.n_edges)
        answer = whole.answer(sent, received, 0.7, 1.8, shift).copy()
        for edges, state in nodes:
            if len(edges):
                mine = state.answer(sent[edges], received[side.positions[edges]], 0.7, 1.8, shift)
                assert (mine == answer[edges]).all()
                assert (state.prices == whole.prices[edges]).all()
        sent = answer + rng.normal(0, 0.1, network.n_edges)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_prices_prove_a_bound(family, rng):
    network, *utilities = draw_problem("lower bounds", family, rng)
    best = consensus(network, *utilities, tol=1e-3, max_iter=20 if family == "user" else 1000)
    for scale in (0.0, 1.0, 10.0):
        prices = rng.normal(0, scale, network.n_edges)
        assert welfare_bound(network, *utilities, prices) >= best.welfare * (1 - 1e-9)
    assert welfare_bound(network, *utilities, best.prices) >= best.bound * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["case study", "lower bounds"])
def test_published_messages_are_all_that_the_result_depends_on(kind, rng):
    """With the messages replaced, utilities change nothing that is agreed on."""
    network, *utilities = draw_problem(kind, "linear", rng)
    noise = [rng.random((2, network.n_edges)) for _ in range(41)]
    etas = []

    def release(n_iter, eta, targets, sources):
        assert targets.shape == sources.shape == (network.n_edges,)
        etas.append(eta)
        return tuple(noise[n_iter])

    settings = {"tol": None, "max_iter": 40, "release": release}
    first = consensus(network, *utilities, **settings)
    second = consensus(network, *utilities[::-1], **settings)
    assert (first.agreed == second.agreed).all() and (first.prices == second.prices).all()
    assert (first.plan == second.plan).all()
    assert etas[:40] == etas[40:] and len(etas) == 80
    targets, sources = noise[40]
    assert (first.agreed == 0.5 * (targets + sources[network.targets.positions])).all()


def test_threads_change_nothing(rng, monkeypatch):
    network, *utilities = draw_problem("dense", "linear", rng)
    one = consensus(network, *utilities, max_iter=60)
    monkeypatch.setattr("skdpot.transport.consensus._plans._WORTH_A_THREAD", 0)
    two = consensus(network, *utilities, max_iter=60)
    assert (one.agreed == two.agreed).all() and one.welfare == two.welfare


def test_plain_iteration_is_the_published_one(rng):
    """Without relaxation, adaptation and shifts: Algorithm 1, with squares removed."""
    network, *utilities = draw_problem("sparse", "quadratic", rng)
    result = consensus(
        network, *utilities, relaxation=1.0, adaptive=False, tol=None,
        max_iter=30, eta=2.0,
    )  # fmt: skip
    order, back = network.sources.positions, network.targets.positions
    agreed, prices = starting_amounts(network), np.zeros(network.n_edges)
    for _ in range(30):
        states = []
        for side, utility, sign, where in (
            (network.targets, utilities[0], 1, slice(None)),
            (network.sources, utilities[1].take(order), -1, order),
        ):
            state = SideState(side, utility, sign, agreed[where])
            state.prices[:] = prices[where]
            other = network.sources.positions if sign > 0 else back
            states.append(state.answer(agreed[where], agreed[where][other], 2.0, 1.0, 0.0).copy())
        targets, sources = states[0], states[1][back]
        agreed = (targets + sources) / 2
        prices = prices + 2.0 / 2 * (targets - sources)
    np.testing.assert_allclose(result.agreed, agreed, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eta": 0.0}, "eta"),
        ({"relaxation": 2.0}, "relaxation"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_wrong_parameters_are_refused(settings, message, rng):
    network, *utilities = draw_problem("one edge", "linear", rng)
    with pytest.raises(ValueError, match=message):
        consensus(network, *utilities, **settings)
    with pytest.raises(ValueError, match="target_utility"):
        consensus(network, LinearUtility([1.0, 2.0]), utilities[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearUtility([np.nan]), "finite"),
        (lambda: LinearUtility([[1.0]]), "shape"),
        (lambda: QuadraticUtility([1.0], [-1.0]), "curvatures"),
        (lambda: QuadraticUtility([1.0], [1.0, 1.0]), "curvatures"),
        (lambda: LogUtility([-1.0], [1.0]), "weights"),
        (lambda: LogUtility([1.0], [0.0]), "scales"),
    ],
)
def test_wrong_utilities_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
