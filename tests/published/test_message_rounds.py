"""Noisy messages of nodes: nothing else is used, solvers' errors are covered, budgets total."""

import numpy as np
import pytest

from skdpot.privacy.accounting import plan_epsilon
from skdpot.privacy.sensitivity import message_sensitivity
from skdpot.published._message_admm import (
    Agreement,
    DeclaredUtilities,
    error_of_answers,
    make_noise,
    private_consensus,
)
from skdpot.transport.consensus import SideState, check_feasible
from tests.oracles.consensus import draw_network

FAMILIES = ("linear", "quadratic", "log")
DELTA = 1e-5


def declare(family, low=0.5, high=5.0):
    return DeclaredUtilities(family, low, high, 0.7)


def both_noises(network, declared, *, delta=DELTA, n_rounds=1, epsilon=10.0, seed=0, **options):
    sides = (network.targets, network.sources)
    return tuple(
        make_noise(
            side, of, epsilon=epsilon, delta=delta, n_rounds=n_rounds, source=seed, **options
        )
        for side, of in zip(sides, declared, strict=True)
    )


def feasible_network(kind, rng):
    while True:
        network = draw_network(kind, rng)
        try:
            check_feasible(network)
        except ValueError:
            continue
        return network


class Recorder:
    """Releases, remembers what it released, and destroys what it was given."""

    def __init__(self, noise):
        self.noise = noise
        self.told, self.copies, self.errors = [], [], []

    def run(self, messages, eta, *, error):
        released = self.noise.run(messages, eta, error=error)
        messages[:] = np.nan
        self.told.append(released)
        self.copies.append(released.copy())
        self.errors.append(error)
        return released


class Replay:
    """Releases what was recorded, whatever it is given."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.n_released = 0

    def run(self, messages, eta, *, error):
        self.n_released += 1
        assert np.array_equal(error, self.recorder.errors[self.n_released - 1])
        return self.recorder.told[self.n_released - 1]


def assert_same(found, expected):
    """Tell that two agreements are the same, bit by bit."""
    assert isinstance(found, Agreement)
    for name in ("plan", "agreed", "prices"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        assert np.isfinite(getattr(found, name)).all()
    for name, values in expected.history.items():
        assert np.array_equal(found.history[name], values), name


@pytest.mark.parametrize("sides", ["both", "targets", "sources"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("average_from", [None, 3])
def test_agreements_follow_from_what_was_released(family, sides, average_from, rng):
    network = feasible_network("lower bounds", rng)
    of = declare(family)
    declared = tuple(None if sides not in ("both", name) else of for name in ("targets", "sources"))

    def utilities():
        return tuple(d and d.make(rng.uniform(0.5, 5, network.n_edges)) for d in declared)

    noises = both_noises(network, declared, n_rounds=6)
    recorders = tuple(noise and Recorder(noise) for noise in noises)
    settings = {"eta": 0.8, "n_rounds": 6, "relaxation": 1.6, "average_from": average_from}
    found = private_consensus(network, utilities(), recorders, declared, **settings)
    replays = tuple(recorder and Replay(recorder) for recorder in recorders)
    again = private_consensus(network, utilities(), replays, declared, **settings)
    assert_same(again, found)
    for recorder in recorders:
        if recorder is not None:
            assert len(recorder.told) == 6
            # What was released is nobody's scratch.
            assert all(map(np.array_equal, recorder.told, recorder.copies))
            assert np.sum(recorder.errors) > 0
    assert network.violation(found.plan) <= 1e-9


def test_agreements_depend_on_what_was_released(rng):
    """The test above would notice: other messages, another agreement."""
    network = feasible_network("dense", rng)
    declared = (declare("linear"), None)
    utilities = (declared[0].make(rng.uniform(0.5, 5, network.n_edges)), None)
    plans = [
        private_consensus(
            network, utilities, both_noises(network, declared, n_rounds=2, seed=seed), declared,
            eta=1.0, n_rounds=2,
        ).plan
        for seed in (0, 1)
    ]  # fmt: skip
    assert not np.allclose(*plans, atol=0.1)


def exact_answers(state, eta, declared, parameters):
    """Return the minimisers by bisection, in numbers of more digits."""
    side, real = state.side, np.longdouble
    z, prices = state.agreed.astype(real), state.prices.astype(real) * real(state.sign)
    a, scale, eta = parameters.astype(real), real(declared.scale), real(eta)
    bend = scale if declared.family == "quadratic" else real(0)

    def amounts(levels):
        pull = prices + levels[side.nodes]
        if declared.family != "log":
            return np.maximum((eta * z + a - pull) / (eta + bend), 0)
        value = eta * (z + scale) - pull
        root = np.sqrt(value**2 + 4 * eta * a)
        # Of two equal expressions the one without a difference.
        with np.errstate(divide="ignore", invalid="ignore"):
            shifted = np.where(value > 0, (value + root) / (2 * eta), 2 * a / (root - value))
        return np.maximum(shifted - scale, 0)

    def sums(levels):
        totals = np.zeros(side.n_nodes, real)
        np.add.at(totals, side.nodes, amounts(levels))
        return totals

    zero = np.zeros(side.n_nodes, real)
    free = sums(zero)
    mass = np.clip(free, side.lower.astype(real), side.upper.astype(real))
    far = real(1e12)
    low, high = np.where(free < mass, -far, zero), np.where(free > mass, far, zero)
    for _ in range(160):
        middle = (low + high) / 2
        more = sums(middle) > mass
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return amounts((low + high) / 2)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("eta", [1e-3, 0.7, 1e5])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_errors_of_computed_messages_are_within_their_bound(family, eta, size, rng):
    """After rounds with loud noise, from multipliers of other rounds."""
    of = declare(family)
    for kind in ("lower bounds", "dense", "equalities"):
        network = feasible_network(kind, rng)
        side = network.sources
        parameters = rng.uniform(0.5, 5, network.n_edges)
        start = rng.uniform(0, 1, network.n_edges)
        state = SideState(side, of.make(parameters), -1, start)
        sent = received = start
        for _ in range(6):
            answer = state.answer(sent, received, eta, 1.7, 0.0)
            exact = exact_answers(state, eta, of, parameters)
            off = np.sqrt(side.sums(((answer - exact) ** 2).astype(float)))
            bound = error_of_answers(state, of, eta)
            assert (off <= bound).all()
            reach = np.abs(state.agreed).max() + (np.abs(state.prices).max() + 10) / eta
            assert (bound <= 1e-9 * (reach + side.upper.max() + np.sqrt(10 / eta))).all()
            sent, received = size * rng.normal(size=(2, network.n_edges))


def test_errors_are_small_beside_what_utilities_move(rng):
    """So that noise is hardly any louder for them."""
    network = draw_network("case study", rng)
    declared = (declare("linear", 1.0, 5.0),) * 2
    utilities = tuple(of.make(rng.uniform(1, 5, network.n_edges)) for of in declared)
    recorders = tuple(map(Recorder, both_noises(network, declared, n_rounds=10)))
    private_consensus(network, utilities, recorders, declared, eta=1.0, n_rounds=10)
    for side, recorder in zip((network.targets, network.sources), recorders, strict=True):
        moved = message_sensitivity(1.0, 4.0, side.upper, side.degrees)
        assert (np.max(recorder.errors, axis=0) < 1e-6 * moved).all()


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_rounds_together_cost_the_budget(family, delta, rng):
    network = draw_network("case study", rng)
    declared = (declare(family), None)
    utilities = (declared[0].make(rng.uniform(0.5, 5, network.n_edges)), None)
    noises = both_noises(network, declared, delta=delta, n_rounds=4, epsilon=2.0)
    settings = {"eta": 1.0, "n_rounds": 4}
    found = private_consensus(network, utilities, noises, declared, **settings)
    assert noises[0].n_released == 4
    if delta:
        price = plan_epsilon(noises[0].event, delta, neighbouring="replace_one")
        assert 1.98 < price <= 2.0 * (1 + 1e-3)
    else:
        assert noises[0].event.count * noises[0].event.event.epsilon == pytest.approx(2.0)
    assert network.violation(found.plan) <= 1e-9
    assert found.n_iter == len(found.history["eta"]) == 4
    assert found.primal_residual >= 0
    assert found.dual_residual >= 0
    with pytest.raises(RuntimeError, match="all 4 rounds"):
        private_consensus(network, utilities, noises, declared, **settings)


def test_noise_is_that_of_the_declared_range(rng):
    network = draw_network("case study", rng)
    noise = make_noise(
        network.targets, declare("log"), epsilon=1.0, delta=DELTA, n_rounds=1, protect="node"
    )
    width, bend = 4.5 / 0.7, 0.5 / (0.7 + network.targets.upper) ** 2
    expected = message_sensitivity(
        2.0, width, network.targets.upper, 4, curvature=bend, protect="node"
    )
    assert np.allclose(noise.sensitivities(2.0), expected)
    assert make_noise(network.targets, None, epsilon=1.0, delta=0.0, n_rounds=1) is None


def test_utilities_beyond_the_declared_range_are_taken_for_its_ends():
    made = declare("linear").make(np.array([-3.0, 9.0, np.nan, 2.0]))
    assert np.array_equal(made.slopes, [0.5, 5.0, 0.5, 2.0])


@pytest.mark.parametrize("kind", ["one edge", "isolated", "equalities"])
def test_no_network_is_too_odd(kind, rng):
    network = feasible_network(kind, rng)
    declared = (declare("linear", -2.0, 5.0),) * 2
    utilities = tuple(of.make(rng.uniform(-2, 5, network.n_edges)) for of in declared)
    for n_rounds in (1, 3):
        noises = both_noises(network, declared, delta=0.0, n_rounds=n_rounds)
        found = private_consensus(network, utilities, noises, declared, eta=9.0, n_rounds=n_rounds)
        assert network.violation(found.plan) <= 1e-9
