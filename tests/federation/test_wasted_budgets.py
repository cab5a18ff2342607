"""Budgets under a dishonest owner or a crash: each honest owner is charged once at most."""

import dataclasses

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
    run_barycenter,
)
from skdpot.federation._wire import pack, unpack

NAMES = ("north", "south", "west")
RELEASE = GroupRelease(4.0, groups=["a", "b"], bounds=([-4], [4]), delta=1e-6)


@pytest.fixture
def ledgers():
    """Ledgers with budgets for two releases."""
    return {name: PrivacyLedger(9.0, 1e-5) for name in NAMES}


def owners_with(ledgers, folder=None):
    """Return owners of made-up rows; with a folder, each keeps its answers in a file there."""
    rng = np.random.default_rng(0)
    return [
        BarycenterOwner(
            name,
            rng.normal(size=(500, 1)),
            list(rng.choice(["a", "b"], 500)),
            release=RELEASE,
            ledger=ledger,
            state=None if folder is None else folder / name,
        )
        for name, ledger in ledgers.items()
    ]


def coordinator(names=NAMES, secure=True):
    """Return a coordinator that asks once."""
    aggregation = SecureAggregation() if secure else None
    return BarycenterCoordinator(names, 8, release=RELEASE, secure=aggregation, n_attempts=1)


class WithEvilOwner(InProcessCarrier):
    """A carrier on which the owner ``west`` sends wrong numbers in one leg of a secure sum."""

    def __init__(self, owners, leg, array):
        super().__init__(owners)
        self.leg, self.array = leg, array

    def exchange(self, messages, timeout=None):
        """Return the answers, with those of ``west`` changed."""
        return [
            (name, self.changed(data) if name == "west" else data)
            for name, data in super().exchange(messages)
        ]

    def changed(self, data):
        """Return an answer with a flipped bit, if it belongs to the leg."""
        packet = unpack(data)
        if packet.kind != self.leg:
            return data
        wrong = packet.arrays[self.array].copy()
        wrong[0] ^= wrong.dtype.type(1)
        arrays = packet.arrays | {self.array: wrong}
        return pack(dataclasses.replace(packet, arrays=arrays))


def spent(ledgers):
    """Return the numbers of charges of the honest owners."""
    return {len(ledgers[name].entries()) for name in NAMES if name != "west"}


@pytest.mark.parametrize("array", ["shares", "points"])
def test_wrong_shares_cost_honest_owners_nothing(ledgers, array):
    """Every attempt is a new session, because the coordinator has no checkpoint."""
    carrier = WithEvilOwner(owners_with(ledgers), "shares", array)
    for _ in range(3):
        with pytest.raises(FederationError):
            run_barycenter(coordinator(), carrier)
        assert spent(ledgers) == {0}


@pytest.mark.parametrize(("leg", "array"), [("masked", "masked"), ("reveal", "shares")])
def test_lies_after_the_charge_cost_honest_owners_one_release(tmp_path, ledgers, leg, array):
    """Three coordinators in turn continue one session from its checkpoint."""
    owners = owners_with(ledgers, tmp_path)
    path = tmp_path / "checkpoint"
    for _ in range(3):
        try:
            run_barycenter(coordinator(), WithEvilOwner(owners, leg, array), checkpoint=path)
        except FederationError:
            assert path.exists()
        assert spent(ledgers) == {1}


@pytest.mark.parametrize("why", ["missing", "poor", "spent"])
def test_an_owner_that_cannot_answer_refuses_before_others_are_charged(ledgers, why):
    owners = owners_with(ledgers)
    if why == "missing":
        del owners[-1]
    elif why == "poor":
        owners[-1:] = owners_with({"west": PrivacyLedger(3.0, 1e-5)})
    else:
        owners[-1:] = owners_with({"west": None})
        run_barycenter(coordinator(["west"], secure=False), InProcessCarrier(owners[-1:]))
    for secure in (False, True):
        with pytest.raises(FederationError, match="west"):
            run_barycenter(coordinator(secure=secure), InProcessCarrier(owners))
    assert spent(ledgers) == {0}


def test_a_crash_after_the_charge_loses_no_answer(tmp_path):
    """The budget is enough for one release."""
    ledgers = {"north": PrivacyLedger(5.0, 1e-5)}
    asking = coordinator(["north"], secure=False)
    (owner,) = owners_with(ledgers, tmp_path)
    asking.receive("north", owner.handle(asking.messages()["north"]))
    asking.advance()
    question = asking.messages()["north"]
    # The release is charged, and the process ends before the answer is sent.
    lost = owner.handle(question)
    (again,) = owners_with(ledgers, tmp_path)
    assert again.handle(question) == lost
    assert len(ledgers["north"].entries()) == 1
