"""Noisy messages of nodes: nothing else is used, solvers' errors are covered, budgets total."""

import numpy as np
import pytest

from skdpot import PrivacyLedger
from skdpot.privacy.sensitivity import message_sensitivity
from skdpot.published import PrivateMessageADMM
from skdpot.releases import MessageReleases
from skdpot.transport.consensus import starting_amounts
from tests.oracles.consensus import draw_network
from tests.oracles.transcripts import differences

FAMILIES = ("linear", "quadratic", "log")
DELTA = 1e-5
SCALE, LOW, HIGH = 0.7, 0.5, 5.0


def fit(network, likes, of_sources=None, epsilon=10.0, delta=DELTA, **params):
    """Return an allocation on a network, for utilities of the edges in the order of the targets."""
    options = {
        "utility_bounds": (LOW, HIGH), "utility_scale": SCALE, "n_rounds": 6, "eta": 0.8,
        "target_bounds": np.c_[network.targets.lower, network.targets.upper],
        "source_bounds": np.c_[network.sources.lower, network.sources.upper],
        "adjacency": network.matrix(np.ones(network.n_edges)).toarray(), "random_state": 0,
    }  # fmt: skip
    matrices = [
        None if values is None else network.matrix(values).toarray()
        for values in (likes, of_sources)
    ]
    estimator = PrivateMessageADMM(epsilon, delta, **options | params)
    return estimator.fit(matrices[0], source_utilities=matrices[1])


def violation(network, fitted):
    """Return the largest violation of a bound by a fitted plan."""
    return network.violation(fitted.plan_[network.targets.nodes, network.targets.neighbours])


@pytest.fixture
def recorded(monkeypatch):
    """Return all calls for noise, which keep what was released and destroy what was given."""
    calls, release = [], MessageReleases.run

    def run(self, messages, eta, *, error=0.0):
        released = release(self, messages, eta, error=error)
        calls.append((self, messages.copy(), eta, error, released, released.copy()))
        messages[:] = np.nan
        return released

    monkeypatch.setattr(MessageReleases, "run", run)
    return calls


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("averaging, delta", [(True, 0.0), (False, DELTA)])
def test_a_fit_follows_from_what_was_released(
    family, both, averaging, delta, rng, recorded, monkeypatch
):
    network = draw_network("lower bounds", rng)
    n_sides = 1 + both
    first, other = rng.uniform(LOW, HIGH, (2, 2, network.n_edges))
    options = {"utility": family, "averaging": averaging, "delta": delta}
    found = fit(network, *first[:n_sides], **options)
    assert len(recorded) == 6 * n_sides
    # What was released is nobody's scratch.
    assert all(np.array_equal(told, kept) for *_, told, kept in recorded)
    assert violation(network, found) <= 1e-9
    replay = iter(recorded)

    def run(self, messages, eta, *, error=0.0):
        _, _, _, expected, _, kept = next(replay)
        assert np.array_equal(error, expected) and np.sum(error) > 0
        return kept

    monkeypatch.setattr(MessageReleases, "run", run)
    again = fit(network, *other[:n_sides], **options)
    assert differences(vars(again), vars(found)) == []
    for values in found.history_.values():
        assert np.isfinite(values).all() and len(values) == 6


def test_fits_depend_on_what_was_released(rng):
    """The test above would notice: other messages, another agreement."""
    network = draw_network("dense", rng)
    likes = rng.uniform(LOW, HIGH, network.n_edges)
    plans = [fit(network, likes, random_state=seed).plan_ for seed in (0, 1)]
    assert not np.allclose(*plans, atol=0.1)


def exact_answers(side, family, eta, z, prices, parameters):
    """Return the minimisers of the nodes of a side by bisection, in numbers of more digits."""
    real = np.longdouble
    z, prices, a = z.astype(real), prices.astype(real), parameters.astype(real)
    scale, eta = real(SCALE), real(eta)
    bend = scale if family == "quadratic" else real(0)

    def amounts(levels):
        pull = prices + levels[side.nodes]
        if family != "log":
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
    for _ in range(120):
        middle = (low + high) / 2
        more = sums(middle) > mass
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return amounts((low + high) / 2)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("eta, epsilon", [(1e-3, 1e-4), (0.7, 1e-3), (1e5, 10.0)])
def test_errors_of_computed_messages_are_within_their_bound(family, eta, epsilon, rng, recorded):
    """After rounds with loud noise, from multipliers of other rounds."""
    for kind in ("lower bounds", "equalities"):
        network = draw_network(kind, rng)
        sides, order = (network.targets, network.sources), network.sources.positions
        likes = rng.uniform(LOW, HIGH, (2, network.n_edges))
        recorded.clear()
        fit(network, *likes, epsilon=epsilon, utility=family, eta=eta)
        # Agreed amounts and prices, in the order of the targets, follow from the messages.
        z, prices = starting_amounts(network), np.zeros(network.n_edges)
        for targets, sources in zip(recorded[::2], recorded[1::2], strict=True):
            for side, call, sign in zip(sides, (targets, sources), (1, -1), strict=True):
                _, answer, _, bound, *_ = call
                order_of_side = slice(None) if sign == 1 else order
                inputs = [x[order_of_side] for x in (z, sign * prices, likes[int(sign < 0)])]
                exact = exact_answers(side, family, eta, *inputs)
                off = np.sqrt(side.sums(((answer - exact) ** 2).astype(float)))
                assert (off <= bound).all()
                reach = np.abs(inputs[0]).max() + (np.abs(prices).max() + 10) / eta
                assert (bound <= 1e-9 * (reach + side.upper.max() + np.sqrt(10 / eta))).all()
            told, back = targets[-1], sources[-1][network.targets.positions]
            z, prices = 0.5 * (told + back), prices + 0.5 * eta * (told - back)


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("family", ["linear", "log"])
def test_all_rounds_together_cost_the_budget(family, delta, rng):
    network, ledger = draw_network("case study", rng), PrivacyLedger(5.0, 0.1)
    likes = rng.uniform(LOW, HIGH, network.n_edges)
    options = {"utility": family, "epsilon": 2.0, "n_rounds": 4, "random_state": None}
    found = fit(network, likes, delta=delta, ledger=ledger, **options)
    (entry,) = ledger.entries()
    assert entry.unit == "edge" and 1.98 < ledger.spent()[0] <= 2.0 * (1 + 1e-9)
    assert ledger.spent()[1] == delta
    assert found.privacy_guarantee_.epsilon == 2.0
    assert violation(network, found) <= 1e-9
    assert found.n_iter_ == len(found.history_["eta"]) == 4


def test_noise_is_that_of_the_declared_range_and_hardly_louder_for_errors(rng, recorded):
    network = draw_network("case study", rng)
    likes = rng.uniform(LOW, HIGH, network.n_edges)
    fit(network, likes, utility="log", protect="node", n_rounds=2, eta=2.0)
    width, bend = (HIGH - LOW) / SCALE, LOW / (SCALE + network.targets.upper) ** 2
    expected = message_sensitivity(
        2.0, width, network.targets.upper, 4, curvature=bend, protect="node"
    )
    for noise, _, eta, error, *_ in recorded:
        assert np.allclose(noise.sensitivities(eta), expected)
        assert (error < 1e-6 * expected).all()


def test_utilities_beyond_the_declared_range_are_taken_for_its_ends(rng):
    network = draw_network("dense", rng)
    likes = rng.uniform(LOW - 3, HIGH + 3, network.n_edges)
    found, clipped = (fit(network, values) for values in (likes, likes.clip(LOW, HIGH)))
    assert np.array_equal(found.plan_, clipped.plan_)


@pytest.mark.parametrize("kind", ["one edge", "isolated", "equalities"])
@pytest.mark.parametrize("n_rounds", [1, 3])
def test_no_network_is_too_odd(kind, n_rounds, rng):
    network = draw_network(kind, rng)
    likes = rng.uniform(-2, HIGH, (2, network.n_edges))
    found = fit(network, *likes, delta=0.0, utility_bounds=(-2, HIGH), n_rounds=n_rounds, eta=None)
    assert violation(network, found) <= 1e-9
