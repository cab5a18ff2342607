"""Sums of parts under attack: no lower bound exceeds what is claimed, and planted bugs are found.

All audits of this file together are wrong with a probability of at most 5 %.
"""

import functools
import math

import numpy as np
import pytest

from skdpot.privacy.audit import audit
from skdpot.privacy.exact_noise import rounded_gaussian
from skdpot.privacy.random import make_source
from skdpot.privacy.sensitivity import histogram_sensitivities
from skdpot.releases import SharedRelease, SummedRelease, UnitLayout, plan_release
from skdpot.releases import _owners as shared_noise
from tests.oracles.sensitivities import declared

pytestmark = pytest.mark.experiment

EPSILONS = [0.5, 1.0, 4.0]
# As large as it takes for attacks on normal noise to succeed.
DELTA = 0.1
N_TRIALS = 10_000
AUDITS = 60
CONFIDENCE = 1 - 0.05 / AUDITS
N_PARTS = 3
L2 = math.nextafter(math.sqrt(2.0), 2.0)

# What one owner counts: a record changes its group, or leaves or joins all groups.
COUNTS = {"group": ([5, 4], [4, 5]), "declared or not": ([5, 4], [4, 4])}


def make(kind, epsilon, delta, n_parts=N_PARTS, **options):
    return kind(
        epsilon, delta, histogram_sensitivities, n_coordinates=2 * N_TRIALS, largest=100.0,
        n_parts=n_parts, **options,
    )  # fmt: skip


def bound(noise, pair, delta, seed, n_honest, silent=0, scores=None):
    """Return the lower bound on epsilon that is found by who knows all parts but the honest ones.

    What they know is subtracted. One honest owner has the counts of the pair, and all others
    constants. `silent` owners that are counted as honest send their values as they are.
    """

    def draw(which, n_trials, random_state):
        source = make_source(random_state)
        first, others = np.broadcast_to(pair[which], (n_trials, 2)), np.full((n_trials, 2), 3)
        total = noise.run(first, source)
        for _ in range(n_honest - 1 - silent):
            total = total + noise.run(others, source)
        return noise.read_sum(total) - 3 * (n_honest - 1 - silent)

    power = 1 if delta == 0 else 2

    def ratio(outputs):
        off = [np.sum(np.abs(outputs - value) ** power, axis=1) for value in np.array(pair)]
        return (off[1] - off[0]) / noise.standard_deviation**power

    result = audit(
        draw, 0, 1, delta=delta, n_trials=N_TRIALS, confidence=CONFIDENCE, vectorized=True,
        random_state=seed, log_density_ratio=scores or ratio,
    )  # fmt: skip
    return result.epsilon_lower


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("n_honest", [1, 2, 3])
@pytest.mark.parametrize("counts", COUNTS)
def test_no_attack_on_honest_shares_refutes_the_claim(counts, n_honest, epsilon, seed):
    """All but n_honest owners collude with the coordinator."""
    noise = make(SharedRelease, epsilon, DELTA, n_honest=n_honest)
    found = bound(noise, COUNTS[counts], DELTA, seed, n_honest)
    assert found <= epsilon
    if counts == "group":
        assert found > 0.25 * epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_more_honest_owners_than_promised_only_hide_more(epsilon, seed):
    noise = make(SharedRelease, epsilon, DELTA, n_honest=1)
    assert bound(noise, COUNTS["group"], DELTA, seed, 3) <= epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("n_honest", [1, 3])
def test_no_attack_on_summed_noise_refutes_the_claim(n_honest, delta, epsilon, seed):
    """A part on its own, and the sum of all parts."""
    noise = make(SummedRelease, epsilon, delta)
    found = bound(noise, COUNTS["group"], delta, seed, n_honest)
    assert found <= epsilon
    if n_honest == 1:
        assert found > 0.25 * epsilon


@pytest.mark.parametrize("make_noise, n_honest", [(SharedRelease, 2), (SummedRelease, 1)])
def test_noise_that_a_plan_made_refutes_no_claim(make_noise, n_honest, seed):
    options = {"n_honest": 2} if make_noise is SharedRelease else {}
    plan = plan_release(
        "histogram", UnitLayout((0,), ()), 2, 20, 1.0, DELTA,
        make_noise=functools.partial(make_noise, n_parts=N_PARTS, **options),
    )  # fmt: skip
    tables = [(np.full((9, 1), 0.3), np.repeat([0, 1], [k, 9 - k])) for k in (5, 4)]
    exact = [plan.values(*table) for table in tables]
    where = np.flatnonzero((exact[0] != exact[1]).ravel())
    assert len(where) == 2
    pair = [values.ravel()[where] for values in exact]
    noise = plan._noise
    noise.n_coordinates = 2 * N_TRIALS
    if make_noise is SummedRelease:
        noise._noise._mechanism.n_coordinates = 2 * N_TRIALS
    found = bound(noise, pair, DELTA, seed, n_honest)
    assert 0.25 < found <= 1.0


# What is planted
# ---------------


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_shares_that_are_divided_by_the_number_and_not_by_its_root_are_noticed(epsilon, seed):
    noise = make(SharedRelease, epsilon, DELTA, n_parts=4, n_honest=4)
    noise.scale /= math.sqrt(4)
    assert bound(noise, COUNTS["group"], DELTA, seed, 4) > epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_half_of_the_noise_of_shares_is_noticed(epsilon, seed, monkeypatch):
    monkeypatch.setattr(
        shared_noise, "rounded_gaussian", lambda *args: rounded_gaussian(*args) // 2
    )
    noise = make(SharedRelease, epsilon, DELTA, n_honest=2)
    assert bound(noise, COUNTS["group"], DELTA, seed, 2) > epsilon


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_half_of_the_noise_of_parts_is_noticed(delta, epsilon, seed):
    noise = SummedRelease(
        epsilon,
        delta,
        declared((1.0, L2 / 2)),
        n_coordinates=2 * N_TRIALS,
        largest=100.0,
        n_parts=3,
    )
    assert bound(noise, COUNTS["group"], delta, seed, 1) > epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_an_owner_that_adds_nothing_but_is_counted_as_honest_is_noticed(epsilon, seed):
    """So is one more owner that colludes than was declared."""
    noise = make(SharedRelease, epsilon, DELTA, n_honest=2)
    assert bound(noise, COUNTS["group"], DELTA, seed, 2, silent=1) > epsilon


def test_a_share_on_its_own_is_noticed(seed):
    """Without secure aggregation the coordinator sees parts."""
    noise = make(SharedRelease, 1.0, DELTA, n_honest=3)
    assert bound(noise, COUNTS["group"], DELTA, seed, 1) > 1.0


def test_shares_of_the_variance_of_all_parts_instead_of_the_honest_are_noticed(seed):
    """Noise that only suffices if nobody colludes."""
    noise = make(SharedRelease, 1.0, DELTA, n_honest=3)
    assert bound(noise, COUNTS["group"], DELTA, seed, 2) > 1.0


def test_a_grid_without_rounding_shows_the_value(seed, monkeypatch):
    """Bits below the grid tell neighbours apart whatever the noise is."""

    class Floating(SharedRelease):
        def run(self, values, source):
            noise = source.normal(np.shape(values)) * self.scale * self.step
            return np.asarray(values) * (1.0 + 2.0**-30) + np.rint(noise / self.step) * self.step

        def read_sum(self, total):
            return total

    noise = make(Floating, 1.0, DELTA, n_honest=1)

    def fractions(outputs):
        steps = outputs / noise.step
        return (steps - np.rint(steps))[:, 0]

    assert bound(noise, COUNTS["group"], DELTA, seed, 1, scores=fractions) > 4.0
