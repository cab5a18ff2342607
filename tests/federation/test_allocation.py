"""Nodes that answer by messages: the same as all at once, and nothing of others in them."""

import copy
import gc
import pickle
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from skdpot.federation import (
    AllocationCoordinator,
    AllocationMessage,
    AllocationNode,
    Announcement,
    NodePrivacy,
    allocation_nodes,
    run_allocation,
)
from skdpot.federation._allocation import _node_work
from skdpot.privacy import BudgetExceededError, PrivacyLedger
from skdpot.privacy.events import PlannedDpEvent, SelfComposedDpEvent
from skdpot.privacy.sensitivity import message_sensitivity
from skdpot.releases import MessageReleases
from skdpot.transport.consensus import (
    LinearUtility,
    LogUtility,
    QuadraticUtility,
    consensus,
    make_network,
    nearest_amounts,
    repair,
)
from tests.oracles.consensus import RootUtility, draw_network

FAMILIES = ("linear", "quadratic", "log")


def draw_utility(family, n_edges, rng):
    slopes = rng.uniform(1, 5, n_edges)
    if family == "linear":
        return LinearUtility(slopes)
    if family == "quadratic":
        return QuadraticUtility(slopes, rng.uniform(0, 2, n_edges))
    if family == "log":
        return LogUtility(slopes, rng.uniform(1.0, 3, n_edges))
    return RootUtility(slopes)


def draw_problem(kind, family, rng):
    network = draw_network(kind, rng)
    return network, *(draw_utility(family, network.n_edges, rng) for _ in range(2))


class Recorder:
    """Keeps what all nodes send in the vectorised iteration, after what `release` makes of it."""

    def __init__(self, release=None):
        self.release = release
        self.rounds = []

    def __call__(self, n_iter, eta, targets, sources):
        sent = targets.copy(), sources.copy()
        if self.release is not None:
            sent = self.release(eta, *sent)
        self.rounds.append((eta, *sent))
        return sent


def one_round(nodes, coordinator):
    """Let all nodes answer, and return what they sent by role and index."""
    announcement = coordinator.announce()
    sent = {"target": {}, "source": {}}
    for node in nodes:
        incoming = coordinator.incoming(node.role, node.name)
        sent[node.role][node.name] = node.answer(announcement, incoming)
    return sent


def step_by_step(nodes, coordinator):
    """Run an allocation, and return eta and all amounts of every round, in orders of the sides."""
    found = []
    while not coordinator.finished:
        eta = coordinator.announce().eta
        sent = one_round(nodes, coordinator)
        coordinator.observe(**{f"{role}s": messages for role, messages in sent.items()})
        sides = [
            np.array([x for message in of.values() for x in message.amounts.values()])
            for of in sent.values()
        ]
        found.append((eta, *sides))
    return found


def assert_same_rounds(found, expected):
    assert len(found) == len(expected)
    for (eta, *sent), (expected_eta, *expected_sent) in zip(found, expected, strict=True):
        assert eta == expected_eta
        for values, others in zip(sent, expected_sent, strict=True):
            assert (values == others).all()


def assert_same_result(agreement, result):
    for name in ("agreed", "prices", "plan"):
        assert (getattr(agreement, name) == getattr(result, name)).all(), name
    for name in ("primal_residual", "dual_residual", "eta", "n_iter", "converged"):
        assert getattr(agreement, name) == getattr(result, name), name
    for name, values in agreement.history.items():
        np.testing.assert_array_equal(values, result.history[name], strict=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("relaxation", [1.8, 1.0])
@pytest.mark.parametrize("kind", ["dense", "sparse", "equalities", "isolated", "one edge"])
def test_nodes_agree_bit_by_bit_with_all_at_once(kind, relaxation, family, rng):
    network, *utilities = draw_problem(kind, family, rng)
    options = {"eta": 0.001, "relaxation": relaxation}
    recorder = Recorder()
    result = consensus(
        network, *utilities, criterion=None, max_iter=60, release=recorder, **options
    )
    nodes = allocation_nodes(network, *utilities)
    coordinator = AllocationCoordinator(network, n_rounds=60, **options)
    found = step_by_step(nodes, coordinator)
    assert_same_rounds(found, recorder.rounds)
    assert_same_result(coordinator.result(), result)
    for node in nodes:
        if node.role == "target" and node.neighbours:
            edges = network.targets.nodes == node.name
            assert list(node.prices.values()) == result.prices[edges].tolist()
    if kind == "dense":
        assert len({eta for eta, *_ in found}) > 1
        unshifted = consensus(network, *utilities, max_iter=60, shifting=False, **options)
        assert (unshifted.agreed != result.agreed).any()


def test_utilities_of_a_user_agree_as_well(rng):
    network = make_network([[1, 1, 0], [0, 1, 1]], (0.5, 1), (0, 1))
    utilities = [draw_utility("user", 4, rng) for _ in range(2)]
    recorder = Recorder()
    result = consensus(network, *utilities, criterion=None, max_iter=5, release=recorder)
    coordinator = AllocationCoordinator(network, n_rounds=5)
    assert_same_rounds(
        step_by_step(allocation_nodes(network, *utilities), coordinator), recorder.rounds
    )
    assert_same_result(coordinator.result(), result)


@pytest.mark.parametrize("options", [{"adaptive": False}, {"shifting": False}, {"tol": 0.03}])
def test_options_are_those_of_all_at_once(options, rng):
    network, *utilities = draw_problem("lower bounds", "linear", rng)
    criterion = "residuals" if "tol" in options else None
    result = consensus(network, *utilities, criterion=criterion, max_iter=600, **options)
    coordinator = AllocationCoordinator(network, n_rounds=600, **options)
    agreement = run_allocation(allocation_nodes(network, *utilities), coordinator)
    assert_same_result(agreement, result)
    assert agreement.converged == ("tol" in options)
    assert (agreement.n_iter < 600) == ("tol" in options)


def test_averages_are_those_of_the_rounds(rng):
    network, *utilities = draw_problem("lower bounds", "linear", rng)
    nodes = allocation_nodes(network, *utilities)
    coordinator = AllocationCoordinator(network, n_rounds=40)
    rounds = []
    while not coordinator.finished:
        coordinator.observe(*one_round(nodes, coordinator).values())
        rounds.append(coordinator.result())
    averaging = AllocationCoordinator(network, n_rounds=40, average_from=31)
    found = run_allocation(allocation_nodes(network, *utilities), averaging)
    for name in ("agreed", "prices"):
        means = np.mean([getattr(one, name) for one in rounds[30:]], axis=0)
        np.testing.assert_allclose(getattr(found, name), means, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.plan, repair(network, found.agreed), atol=1e-12)
    assert np.abs(found.agreed - rounds[-1].agreed).max() > 1e-6


def make_noises(network, epsilon, delta, factors, source, n_rounds, unit):
    """Return the noise of both sides, by the vectorised class, with a source per node."""
    n_targets = network.shape[0]
    return [
        MessageReleases(
            epsilon,
            delta,
            n_rounds=n_rounds,
            degrees=side.degrees,
            utility_range=4.0,
            cap=side.upper,
            least=side.lower,
            protect=unit,
            factors=factors[of],
            source=[source + node for node in range(sum(network.shape))][of],
        )
        for side, of in (
            (network.targets, slice(None, n_targets)),
            (network.sources, slice(n_targets, None)),
        )
    ]


@pytest.mark.parametrize("delta, unit", [(1e-6, "parameter"), (0.0, "node")])
@pytest.mark.parametrize("kind", ["dense", "isolated", "equalities"])
def test_noisy_nodes_agree_bit_by_bit_with_all_at_once(kind, delta, unit, rng, seed):
    network, *utilities = draw_problem(kind, "linear", rng)
    seed, n_rounds = seed % 2**31, 25
    factors = rng.choice([0.25, 0.5, 1.0], sum(network.shape))
    noises = make_noises(network, 40.0, delta, factors, seed, n_rounds, unit)

    def release(eta, *sent):
        noisy = (noise.run(of, eta) for noise, of in zip(noises, sent, strict=True))
        return tuple(map(nearest_amounts, (network.targets, network.sources), noisy))

    recorder = Recorder(release)
    result = consensus(network, *utilities, criterion=None, max_iter=n_rounds, release=recorder)
    budgets = [
        NodePrivacy(
            40.0 * factor,
            (0.0, 5.0),
            n_rounds=n_rounds,
            delta=delta,
            utility_range=4.0,
            protect=unit,
            random_state=seed + node,
        )
        for node, factor in enumerate(factors)
    ]
    nodes = allocation_nodes(network, *utilities, budgets)
    coordinator = AllocationCoordinator(network, n_rounds=n_rounds)
    assert_same_rounds(step_by_step(nodes, coordinator), recorder.rounds)
    assert_same_result(coordinator.result(), result)
    silent = consensus(network, *utilities, criterion=None, max_iter=n_rounds)
    assert np.abs(silent.agreed - result.agreed).max() > 1e-3
    epsilons = np.concatenate([noise.epsilons for noise in noises])
    assert [node.epsilon for node in nodes] == epsilons.tolist()
    assert nodes[0].event == noises[0].node_event(0)
    assert isinstance(nodes[0].event, PlannedDpEvent if delta else SelfComposedDpEvent)


def test_nodes_go_on_from_what_they_released():
    """The state after a round is a function of messages alone: utilities do not enter."""
    incoming = AllocationMessage(0, {0: 0.5, 1: 0.5})
    states = []
    for slopes in ([3.0, 1.0], [1.0, 3.0]):
        privacy = NodePrivacy(1e4, (1.0, 5.0), n_rounds=5, delta=1e-6)
        node = AllocationNode("source", 0, [0, 1], (0.0, 1.0), LinearUtility(slopes), privacy)
        sent = node.answer(Announcement(1, 4.0, 0.0, 1.5), incoming)
        node.answer(Announcement(2, 8.0, 0.25, 1.5), AllocationMessage(1, {0: 2.0, 1: -3.0}))
        for edge, other in ((0, 2.0), (1, -3.0)):
            own = sent.amounts[edge]
            assert node.agreed[edge] == 1.5 * (0.5 * (own + other)) + (1 - 1.5) * 0.5
            assert node.prices[edge] == 0.5 * 1.5 * 8.0 * -1 * (own - other) + 0.25
        states.append(sent.amounts)
    assert states[0] != states[1]


def test_a_node_draws_the_noise_of_its_sensitivity(seed, monkeypatch):
    """And not that of another node, with other bounds."""
    monkeypatch.setattr(_node_work, "nearest_amounts", lambda side, amounts: amounts)
    privacy = NodePrivacy(2.0, (1.0, 5.0), n_rounds=1, delta=1e-6)
    utility = LinearUtility(np.full(2000, 3.0))
    for cap in (1.0, 9.0):
        own = replace(privacy, random_state=seed)
        node = AllocationNode("target", 0, range(2000), (0.0, cap), utility, own)
        sent = np.array(list(answer_of(node, np.zeros(2000)).values()))
        multiplier = node.event.event.noise_multiplier
        expected = multiplier * message_sensitivity(4.0, 4.0, cap, 2000)
        assert sent.std() == pytest.approx(expected, rel=0.08)


def test_nodes_with_one_seed_draw_from_streams_of_their_own(rng, monkeypatch):
    monkeypatch.setattr(_node_work, "nearest_amounts", lambda side, amounts: amounts)
    network, utility, _ = draw_problem("case study", "linear", rng)
    privacy = NodePrivacy(1.0, (1.0, 5.0), random_state=3)
    nodes = allocation_nodes(network, utility, utility, privacy)
    noise = [answer_of(node, np.zeros(len(node.neighbours))) for node in nodes]
    signs = [tuple(np.sign(list(amounts.values()))[:4]) for amounts in noise]
    assert len(set(signs)) > 8
    again = allocation_nodes(network, utility, utility, privacy)
    assert [answer_of(node, np.zeros(len(node.neighbours))) for node in again] == noise


def answer_of(node, start, eta=4.0):
    incoming = AllocationMessage(0, dict(zip(node.neighbours, start, strict=True)))
    return node.answer(Announcement(1, eta, 0.0, 1.0), incoming).amounts


def exact_projection(values, least, most):
    """Return the nearest non-negative rationals with a sum within bounds."""
    free = sum(max(value, 0) for value in values)
    mass = min(max(free, least), most)
    if mass == free:
        return [max(value, Fraction(0)) for value in values]
    level, total = None, Fraction(0)
    for count, value in enumerate(sorted(values, reverse=True), 1):
        total += value
        candidate = (total - mass) / count
        if value > candidate:
            level = candidate
    return [max(value - level, Fraction(0)) for value in values]


@pytest.mark.parametrize("size", [0, 6, 12, 14, 17, 25])
@pytest.mark.parametrize("bounds", [(0.0, 2.0), (1.5, 1.5)])
def test_noise_pays_for_the_errors_that_enormous_messages_cause(size, bounds, rng):
    """Neighbours who send enormous amounts make a message move by more than its sensitivity."""
    worst = 0.0
    for _ in range(60):
        d, eta = int(rng.integers(2, 12)), 2.0 ** rng.integers(-3, 6)
        slopes, start = rng.uniform(1, 5, d), rng.normal(0, 10.0**size, d)
        if size:
            start[1:] = start[0] + rng.normal(0, 1, d - 1)
        privacy = NodePrivacy(1.0, (1.0, 5.0), delta=1e-6)
        node = AllocationNode("target", 0, range(d), bounds, LinearUtility(slopes), privacy)
        answer_of(node, start, eta)
        claimed = node._error(node._work.state, eta)
        silent = AllocationNode("target", 0, range(d), bounds, LinearUtility(slopes))
        found = np.array(list(answer_of(silent, start, eta).values()))
        agreed = np.array(list(silent.agreed.values()))
        values = [
            Fraction(z) + Fraction(a) / Fraction(eta) for z, a in zip(agreed, slopes, strict=True)
        ]
        exact = np.array([float(x) for x in exact_projection(values, *map(Fraction, bounds))])
        off = float(np.linalg.norm(np.clip(found, 0, bounds[1]) - exact))
        widest = np.sqrt(d) * bounds[1]
        # Nothing that is clipped to the bounds moves further.
        assert off <= claimed or 2 * claimed == widest
        worst = max(worst, off)
    if size == 14:
        # There is something to pay for already: more than the sensitivity, for a large penalty.
        assert 1e-3 < worst
    if size == 0:
        # Ordinary messages cost nothing: noise has a margin of more than that.
        assert claimed < 2.0**-30 * node._work.noise.sensitivities(eta)[0]


@pytest.fixture
def node():
    privacy = NodePrivacy(1.0, (1.0, 5.0), n_rounds=2, delta=1e-6)
    utility = LinearUtility([1.2345, 4.5678])
    return AllocationNode("target", "a", ["x", "y"], (0.0, 3.0), utility, privacy)


FIRST = Announcement(1, 2.0, 0.0, 1.8)
START = AllocationMessage(0, {"x": 1.0, "y": 2.0})


@pytest.mark.parametrize(
    ("announcement", "incoming", "error", "message"),
    [
        (FIRST, AllocationMessage(0, {"x": 1.0}), ValueError, "lacks the amounts of 'y'"),
        (FIRST, AllocationMessage(0, {"x": 1.0, "y": 1.0, "z": 1.0}), ValueError, "'z'"),
        (FIRST, AllocationMessage(0, {"x": np.nan, "y": 1.0}), ValueError, "those of 'x' are not"),
        (FIRST, AllocationMessage(0, {"x": 0.0, "y": -np.inf}), ValueError, "those of 'y' are not"),
        (FIRST, AllocationMessage(0, {"x": 0.0, "y": 1e51}), ValueError, "those of 'y' are not"),
        (FIRST, AllocationMessage(0, {"x": 0.0, "y": "much"}), ValueError, "those of 'y' are not"),
        (FIRST, AllocationMessage(1, {"x": 1.0, "y": 1.0}), ValueError, "of round 0, got 1"),
        (FIRST, {"x": 1.0, "y": 1.0}, TypeError, "got dict"),
        (None, START, TypeError, "got NoneType"),
        (Announcement(2, 2.0, 0.0, 1.8), START, ValueError, "of round 1, got 2"),
        (Announcement(1, 0.0, 0.0, 1.8), START, ValueError, "eta must be positive"),
        (Announcement(1, np.nan, 0.0, 1.8), START, ValueError, "eta must be positive"),
        (Announcement(1, 2.0, np.inf, 1.8), START, ValueError, "shift must be finite"),
        (Announcement(1, 2.0, 0.0, 2.0), START, ValueError, "relaxation"),
    ],
)
def test_a_node_refuses_what_it_cannot_use_and_stays_as_it_was(
    node, announcement, incoming, error, message
):
    with pytest.raises(error, match=re.escape(message)) as refusal:
        node.answer(announcement, incoming)
    assert not re.search("1.23|4.56", str(refusal.value))
    assert node.n_rounds == 0
    assert set(node.answer(FIRST, START).amounts) == {"x", "y"}


def test_a_node_answers_a_round_once_and_again_and_no_more_than_were_paid_for(node):
    sent = node.answer(FIRST, START)
    assert node.answer(FIRST, START) == sent
    for wrong in (replace(FIRST, eta=3.0), replace(FIRST, shift=0.1)):
        with pytest.raises(ValueError, match="round 1 was announced with other numbers"):
            node.answer(wrong, START)
    with pytest.raises(ValueError, match="round 1 was announced with other numbers"):
        node.answer(FIRST, replace(START, amounts={"x": 1.0, "y": 2.5}))
    arrived = replace(sent, amounts={"x": 1.0, "y": 1.0})
    second = replace(FIRST, round=2)
    assert node.answer(second, arrived) == node.answer(second, arrived)
    with pytest.raises(ValueError, match="of round 1, got 0"):
        node.answer(second, START)
    with pytest.raises(RuntimeError, match="all 2 rounds"):
        node.answer(replace(FIRST, round=3), replace(arrived, round=2))
    assert node.n_rounds == 2


def test_a_node_refuses_rounds_beyond_its_budget(rng):
    network, *utilities = draw_problem("dense", "linear", rng)
    privacy = NodePrivacy(9.0, (0.0, 6.0), n_rounds=7, delta=1e-6)
    nodes = allocation_nodes(network, *utilities, privacy)
    coordinator = AllocationCoordinator(network, n_rounds=50)
    run_allocation(nodes, coordinator, n_iter=7)
    with pytest.raises(RuntimeError, match="all 7 rounds"):
        nodes[0].answer(coordinator.announce(), coordinator.incoming("target", 0))
    agreement = coordinator.result()
    assert agreement.n_iter == 7
    assert network.violation(agreement.plan) <= 1e-9


def reachable_numbers(thing):
    """Return all floats that can be reached from an object, in arrays or by themselves."""
    found, seen, queue = [], set(), [thing]
    while queue:
        here = queue.pop()
        if id(here) in seen or isinstance(here, type) or callable(here) or is_module(here):
            continue
        seen.add(id(here))
        if isinstance(here, np.ndarray):
            found.append(np.ravel(here).astype(float))
            queue.append(here.base)
        elif isinstance(here, float):
            found.append(np.array([here]))
        queue += gc.get_referents(here)
    return np.concatenate(found)


def is_module(thing):
    return type(thing).__name__ == "module"


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_hold_their_own_utilities_alone_and_the_coordinator_none(family, rng):
    network, *utilities = draw_problem("sparse", family, rng)
    nodes = allocation_nodes(network, *utilities)
    coordinator = AllocationCoordinator(network, n_rounds=40)
    run_allocation(nodes, coordinator)
    back = network.sources.positions
    for node in nodes:
        of_target = node.role == "target"
        side = network.targets if of_target else network.sources
        own = side.nodes == node.name
        held = reachable_numbers(node)
        for number, utility in enumerate(utilities):
            values = next(iter(vars(utility).values()))
            values = values if of_target else values[back]
            expected = own if of_target == (number == 0) else np.zeros_like(own)
            np.testing.assert_array_equal(np.isin(values, held), expected)
        assert len(held) < 100 + 20 * len(node.neighbours)
    every = np.concatenate([of for utility in utilities for of in vars(utility).values()])
    assert not np.isin(every, reachable_numbers(coordinator)).any()


def test_nothing_shows_a_utility(node):
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="hold private data, and release them again"):
            copying(node)
    text = "AllocationNode('target', 'a', n_neighbours=2, bounds=(0.0, 3.0), epsilon=1.0)"
    assert repr(node) == str(node) == text
    assert not any(
        isinstance(value, (np.ndarray, LinearUtility))
        for name, value in vars(node).items()
        if not name.startswith("_")
    )
    assert "17" not in repr(NodePrivacy(1.0, (0.0, 6.0), random_state=17))


def test_messages_travel(node):
    for message in (FIRST, START, node.answer(FIRST, START)):
        assert pickle.loads(pickle.dumps(message)) == message
    assert {type(x) for x in node.prices.values()} == {float}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"role": "bystander"}, "role must be 'target' or 'source'"),
        ({"neighbours": [1, 1]}, "different"),
        ({"bounds": (2.0, 1.0)}, "bounds must be finite"),
        ({"bounds": (0.0, np.inf)}, "bounds must be finite"),
        ({"utility": LinearUtility([1.0])}, "utility must be of 2 edges, got shape (1,)"),
        ({"privacy": NodePrivacy(0.0, (1.0, 5.0))}, "epsilon"),
        ({"privacy": NodePrivacy(1.0, (5.0, 1.0))}, "marginal_bounds must be a pair"),
        ({"privacy": NodePrivacy(1.0, (1.5, 5.0))}, "outside of its declared marginal_bounds"),
        ({"privacy": NodePrivacy(1.0, (0.0, 1.5))}, "outside of its declared marginal_bounds"),
        ({"privacy": NodePrivacy(1.0, (1.0, 5.0), utility_range=np.nan)}, "utility_range"),
        ({"privacy": NodePrivacy(1.0, (1.0, 5.0), utility_range=4.5)}, "utility_range"),
        ({"privacy": NodePrivacy(1.0, (1.0, 5.0), curvature=0.1)}, "less than its declared curv"),
        (
            {
                "utility": LogUtility([1.0, 2.0], [1.0, 1.0]),
                "privacy": NodePrivacy(1.0, (0.0, 5.0)),
            },
            "larger scale than the declared",
        ),
    ],
)
def test_wrong_nodes_are_refused(arguments, message):
    usual = {
        "role": "target",
        "name": 0,
        "neighbours": [0, 1],
        "bounds": (0.0, 1.0),
        "utility": LinearUtility([1.0, 2.0]),
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        AllocationNode(**(usual | arguments))
    with pytest.raises(RuntimeError, match="no round yet"):
        AllocationNode(**usual).prices  # noqa: B018


@pytest.mark.parametrize("role", ["target", "source"])
def test_coordinator_refuses_what_does_not_fit_and_stays_as_it_was(role, rng):
    network, *utilities = draw_problem("sparse", "linear", rng)
    nodes = allocation_nodes(network, *utilities)
    coordinator = AllocationCoordinator(network, n_rounds=2)
    run_allocation(nodes, coordinator, n_iter=1)
    good = one_round(nodes, coordinator)
    message = good[role][4]
    unknown = {99: 1.0} | message.amounts
    missing = dict(list(message.amounts.items())[1:])
    poisoned = dict.fromkeys(message.amounts, np.nan)
    for wrong, error in (
        ({4: replace(message, round=1)}, "of round 2, got 1"),
        ({4: replace(message, amounts=unknown)}, "no neighbours: 99"),
        ({4: replace(message, amounts=missing)}, "lacks"),
        ({4: replace(message, amounts=poisoned)}, "finite"),
        ({99: message}, f"no {role} 99"),
        ({4: None}, "got NoneType"),
    ):
        with pytest.raises((ValueError, TypeError), match=error):
            coordinator.observe(*(good | {role: good[role] | wrong}).values())
    with pytest.raises(ValueError, match=f"no message of {role} 4 in round 2"):
        coordinator.observe(
            *(good | {role: {n: x for n, x in good[role].items() if n != 4}}).values()
        )
    assert coordinator.n_iter == 1
    coordinator.observe(good["target"], good["source"])
    result = consensus(network, *utilities, criterion=None, max_iter=2)
    assert_same_result(coordinator.result(), result)
    with pytest.raises(RuntimeError, match="no other round after 2"):
        coordinator.announce()


def test_wrong_parameters_of_runs_are_refused(rng):
    network, *utilities = draw_problem("dense", "linear", rng)
    for name, value in {
        "n_rounds": 0,
        "eta": 0.0,
        "relaxation": 2.0,
        "tol": np.nan,
        "check_every": 0,
    }.items():
        with pytest.raises(ValueError, match=name):
            AllocationCoordinator(network, **({"n_rounds": 5} | {name: value}))
    with pytest.raises(ValueError, match="no feasible plan"):
        AllocationCoordinator(make_network([[1]], (2, 2), (0, 1)), n_rounds=1)
    nodes = allocation_nodes(network, *utilities)
    coordinator = AllocationCoordinator(network, n_rounds=5)
    with pytest.raises(ValueError, match="source 8 is too many, or missing"):
        run_allocation(nodes[:-1], coordinator)
    with pytest.raises(ValueError, match="names that differ"):
        run_allocation([nodes[0], *nodes], coordinator)
    with pytest.raises(ValueError, match="privacy must have 21 entries"):
        allocation_nodes(network, *utilities, [None])
    with pytest.raises(ValueError, match="role must be"):
        coordinator.incoming("edge", 0)


def test_budgets_are_checked_before_the_first_round(rng):
    network, *utilities = draw_problem("sparse", "linear", rng)
    nodes = allocation_nodes(network, *utilities, NodePrivacy(1.0, (0.0, 6.0), n_rounds=3))
    coordinator = AllocationCoordinator(network, n_rounds=5)
    with pytest.raises(RuntimeError, match="5 rounds to make, and its budget is for 3 more"):
        run_allocation(nodes, coordinator)
    assert coordinator.n_iter == 0
    run_allocation(nodes, coordinator, n_iter=3)
    with pytest.raises(RuntimeError, match="for 0 more"):
        run_allocation(nodes, coordinator, n_iter=1)


@pytest.mark.parametrize(("protect", "unit"), [("parameter", "edge"), ("node", "node")])
def test_a_node_charges_all_its_messages_before_the_first(protect, unit):
    start = AllocationMessage(0, {0: 0.5, 1: 0.5})
    announced = Announcement(1, 4.0, 0.0, 1.0)

    def node_with(ledger):
        privacy = NodePrivacy(
            1.0, (1.0, 5.0), n_rounds=2, delta=1e-6, protect=protect, ledger=ledger
        )
        return AllocationNode("target", 0, [0, 1], (0.0, 1.0), LinearUtility([3.0, 1.0]), privacy)

    ledger = PrivacyLedger(1.5, 1e-5)
    first = node_with(ledger)
    assert not ledger.entries()
    second = first.answer(announced, start)
    first.answer(replace(announced, round=2), replace(second, round=1))
    assert [entry.unit for entry in ledger.entries()] == [unit]
    refused = node_with(ledger)
    with pytest.raises(BudgetExceededError):
        refused.answer(announced, start)
    assert refused.n_rounds == 0 and len(ledger.entries()) == 1
    with pytest.raises(ValueError, match="neighbouring"):
        node_with(PrivacyLedger(2.0, 1e-5, neighbouring="add_remove"))
    network = make_network([[1]], (0, 1), (0, 1))
    with pytest.raises(ValueError, match="a ledger belongs to one node"):
        allocation_nodes(
            network, LinearUtility([3.0]), None, NodePrivacy(1.0, (1.0, 5.0), ledger=ledger)
        )


def test_nodes_do_not_share_their_noise(rng):
    network, *utilities = draw_problem("sparse", "linear", rng)
    same = [NodePrivacy(1.0, (0.0, 6.0), random_state=0)] * sum(network.shape)
    with pytest.raises(ValueError, match="one random_state"):
        allocation_nodes(network, *utilities, same)


def test_a_side_without_utilities_has_nothing_to_hide(rng):
    network, utility, _ = draw_problem("dense", "linear", rng)
    nodes = allocation_nodes(network, utility, None, NodePrivacy(1.0, (0.0, 6.0), n_rounds=4))
    assert {node.epsilon for node in nodes if node.role == "target"} == {1.0}
    assert {node.epsilon for node in nodes if node.role == "source"} == {None}
    assert run_allocation(nodes, AllocationCoordinator(network, n_rounds=4)).n_iter == 4


def test_what_is_no_utility_is_refused():
    with pytest.raises(TypeError, match="see ConcaveUtility"):
        AllocationNode("target", 0, [0, 1], (0.0, 1.0), np.ones(2))
