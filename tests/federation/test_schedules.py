"""Whatever happens to messages and processes: the right answer, or who is missing."""

import functools
import os

import numpy as np
import pytest

from skdpot import PrivacyLedger
from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterOwner,
    FederationError,
    GroupRelease,
    InProcessCarrier,
    SecureAggregation,
    SigningKey,
    run_barycenter,
)
from skdpot.federation._wire import unpack
from tests.oracles.faulty_carrier import Crash, FaultyCarrier

pytestmark = pytest.mark.experiment

NAMES = ("a", "b", "c", "d")
KEYS = {name: SigningKey(name.encode() * 32) for name in NAMES}
PUBLICS = {name: key.public for name, key in KEYS.items()}
BOUNDS = ([0.0, 0.0], [4.0, 4.0])
METHODS = ("release", "bregman", "dual", "free")
# SKDPOT_SCHEDULES=2 plays two times as many.
N_SCHEDULES, N_BLOCKS = 48 * int(os.environ.get("SKDPOT_SCHEDULES", "1")), 8
MOST_RUNS = 8


def rows_of(name):
    """Return some rows."""
    return np.random.default_rng(ord(name)).uniform(0, 4, size=(9, 2))


def agreed_release(secure):
    """Return what owners agree to."""
    shared = {"noise": "shared", "n_honest": 2} if secure else {}
    return GroupRelease(4.0, ["red", "blue"], bounds=BOUNDS, delta=1e-3, kind="moments", **shared)


def make_owner(name, method, secure, ledger=None):
    """Return an owner; its noise is the same whenever it is made, and drawn for the first time."""
    if method != "release":
        return BarycenterOwner(name, rows_of(name), name, secure=secure)
    return BarycenterOwner(
        name,
        rows_of(name),
        ["red", "blue", "red"] * 3,
        release=agreed_release(secure),
        ledger=ledger,
        random_state=ord(name),
        **({"key": KEYS[name], "owners": PUBLICS} if secure else {}),
    )


def make_coordinator(method, secure, on_missing, names=NAMES, **options):
    """Return a coordinator of a small problem."""
    candidates = np.random.default_rng(0).uniform(0, 4, size=(12, 2))
    release = method == "release"
    return BarycenterCoordinator(
        {name: PUBLICS[name] for name in names} if release and secure else names,
        4,
        method=method,
        release=agreed_release(secure) if release else None,
        candidates=None if method in ("release", "free") else candidates,
        bounds=None if release else BOUNDS,
        secure=SecureAggregation() if secure else None,
        max_iter={"free": 4}.get(method, 6),
        on_missing=on_missing,
        weights="uniform",
        **options,
    )


class DeafCarrier(InProcessCarrier):
    """A network that takes greetings to some owners, and nothing else."""

    def __init__(self, owners, deaf):
        super().__init__(owners)
        self._deaf = deaf

    def exchange(self, messages, timeout=None):
        """Return what the others answer."""
        heard = {
            name: data
            for name, data in messages.items()
            if name not in self._deaf or unpack(data).kind == "hello"
        }
        return super().exchange(heard)


@functools.cache
def undisturbed(method, secure, asked, contributors):
    """Return what owners find if nothing happens but that some do not answer after the greeting."""
    carrier = DeafCarrier(
        [make_owner(name, method, secure) for name in asked], set(asked) - set(contributors)
    )
    coordinator = make_coordinator(method, secure, "drop", asked)
    found = run_barycenter(coordinator, carrier)
    assert found.owners == contributors
    return found


def strays(method, secure):
    """Return greetings of sessions that end with them."""
    coordinators = [make_coordinator(method, secure, "raise") for _ in range(3)]
    return [data for one in coordinators for data in one.messages().values()]


def run(coordinator, make, carrier, path):
    """Run to the end, beginning anew from the checkpoint after crashes; return both."""
    while True:
        try:
            return coordinator, run_barycenter(coordinator, carrier, checkpoint=path)
        except Crash:
            coordinator = make()
            if path.exists():
                coordinator.restore(path.read_bytes())
        except FederationError as error:
            return coordinator, error


def check_schedule(seed, path):
    """Check one schedule."""
    rng = np.random.default_rng(seed)
    method, secure = METHODS[seed % 4], bool(seed // 4 % 2)
    on_missing = ("raise", "drop")[seed // 8 % 2 ^ seed // 16 % 2]
    rate = float(rng.choice([0.002, 0.01, 0.05]))
    ledgers = {name: PrivacyLedger(delta=0.5, allow_seeded=True) for name in NAMES}
    carrier = FaultyCarrier(
        lambda name: make_owner(name, method, secure, ledgers[name]),
        NAMES,
        rng,
        rate,
        strays(method, secure),
    )
    dead = set(rng.choice(NAMES, 1)) if rng.random() < 0.2 else set()
    dies_at = int(rng.integers(1, 12))

    def make():
        return make_coordinator(method, secure, on_missing)

    exchange = carrier.exchange

    def exchange_until_death(messages, timeout=None):
        if carrier._now >= dies_at:
            carrier.gone |= dead
        return exchange(messages, timeout)

    carrier.exchange = exchange_until_death
    coordinator = make()
    for _ in range(MOST_RUNS):
        coordinator, found = run(coordinator, make, carrier, path)
        if not isinstance(found, FederationError):
            break
        assert found.missing and set(found.missing) <= set(NAMES)
        if carrier.healed and dead and set(found.missing) == dead:
            # It says who is missing for good, and nothing else can be done.
            break
        carrier.heal()
    else:
        pytest.fail("a healed network does not help")
    if isinstance(found, FederationError):
        assert carrier.gone
    else:
        asked = tuple(unpack(coordinator.checkpoint()).fields["asked"])
        assert on_missing == "drop" or found.owners == NAMES
        expected = undisturbed(method, secure, asked, found.owners)
        np.testing.assert_array_equal(found.support, expected.support)
        assert (found.objective, found.n_rounds) == (expected.objective, expected.n_rounds)
    for name in NAMES:
        n_charged = len(ledgers[name].entries())
        assert n_charged == (len(carrier.answered[name]) if method == "release" else 0)
        # Noise is drawn once, whatever happened.
        assert n_charged <= 1


@pytest.mark.parametrize("block", range(N_BLOCKS))
def test_any_schedule_gives_the_right_answer_or_says_who_is_missing(block, tmp_path):
    for seed in range(block, N_SCHEDULES, N_BLOCKS):
        check_schedule(seed, tmp_path / f"{seed}.checkpoint")
