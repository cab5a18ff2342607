"""Owners, coordinators and wires that cheat: what they get, and what it costs the honest."""

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
from skdpot.federation._barycenter._round_sums import at_fault
from skdpot.federation._secure_sum import SecureSumOwner, _sum_owner
from skdpot.federation._wire import pack, unpack

AGREED = GroupRelease(4.0, groups=["a", "b"], bounds=([-4], [4]), delta=1e-6)


class Parties:
    """Owners with ledgers, and a coordinator of them."""

    def __init__(self, names="nsw", release=AGREED, **options):
        rng = np.random.default_rng(0)
        self.ledgers = {name: PrivacyLedger(9.0, 1e-5, allow_seeded=True) for name in names}
        self.owners = [
            BarycenterOwner(
                name,
                rng.normal(size=(300, 1)),
                rng.choice(["a", "b"], 300),
                release=release,
                ledger=self.ledgers[name],
                random_state=ord(name),
            )
            for name in names
        ]
        self.coordinator = BarycenterCoordinator(
            list(names), None, release=release,
            **{"secure": SecureAggregation(), "n_attempts": 1} | options,
        )  # fmt: skip

    def spent(self):
        return "".join(name for name, ledger in self.ledgers.items() if ledger.spent()[0])

    def run(self, change):
        """Run to the end, over a wire that changes answers as they are given in readable form."""

        class Wire(InProcessCarrier):
            def exchange(self, messages, timeout=None):
                answers = super().exchange(messages)
                return [(name, pack(change(name, unpack(data)))) for name, data in answers]

        return run_barycenter(self.coordinator, Wire(self.owners))


def deals_wrong_shares(dealer, rows=slice(None)):
    def change(name, packet):
        if name != dealer or packet.kind != "shares":
            return packet
        arrays = {key: array.copy() for key, array in packet.arrays.items()}
        arrays["shares"][rows, 30] ^= 1
        return dataclasses.replace(packet, arrays=arrays)

    return change


def test_wrong_shares_cost_nobody_anything_and_the_error_names_the_dealer():
    for _ in range(3):
        parties = Parties()
        with pytest.raises(FederationError, match="w .2 owners say that it dealt wrong") as caught:
            parties.run(deals_wrong_shares("w"))
        assert set(caught.value.missing) == {"w"}
        assert parties.spent() == ""


def test_who_may_be_missing_is_left_out_where_it_dealt_wrong_shares():
    parties = Parties(on_missing="drop")
    found = parties.run(deals_wrong_shares("w"))
    assert found.owners == ("n", "s") and found.dropped == ("w",)
    assert [len(ledger.entries()) for ledger in parties.ledgers.values()] == [1, 1, 0]


@pytest.mark.parametrize("on_missing", ["raise", "drop"])
def test_shares_that_give_no_secret_are_found_before_anybody_is_charged(on_missing, monkeypatch):
    """They fit their points, and the points no polynomial: any three give another secret."""
    share, split = SecureSumOwner.share, _sum_owner.split_secret

    def deal(owner, directory):
        with monkeypatch.context() as patch:
            if owner._owner == 4:
                patch.setattr(_sum_owner, "split_secret", lambda of, t, n: split(of, t + 1, n))
            return share(owner, directory)

    monkeypatch.setattr(SecureSumOwner, "share", deal)
    parties = Parties("nsuvw", on_missing=on_missing, secure=SecureAggregation(3))
    if on_missing == "drop":
        found = parties.run(lambda name, packet: packet)
        assert found.owners == tuple("nsuv") and parties.spent() == "nsuv"
    else:
        with pytest.raises(FederationError) as caught:
            parties.run(lambda name, packet: packet)
        assert "not all of one secret" in caught.value.missing["w"]
        assert set(caught.value.missing) == {"w"} and parties.spent() == ""


def test_one_word_against_another_leaves_both_out_and_charges_nobody_twice():
    parties = Parties("nsuvw", on_missing="drop", secure=SecureAggregation(3))
    found = parties.run(deals_wrong_shares("w", rows=0))
    assert found.owners == ("s", "u", "v") and set(found.dropped) == {"n", "w"}
    assert parties.spent() == "suv"
    assert all(len(parties.ledgers[name].entries()) == 1 for name in "suv")


def test_a_wrong_share_at_the_end_is_told_from_the_right_ones():
    def change(name, packet):
        if name == "w" and packet.kind == "reveal":
            shares = packet.arrays["shares"] ^ 1
            return dataclasses.replace(packet, arrays={"shares": shares})
        return packet

    parties = Parties()
    found = parties.run(change)
    assert found.owners == ("n", "s", "w")
    assert parties.coordinator.rejected == {"malformed": 1}


@pytest.mark.parametrize(
    ("accusations", "left_out"),
    [
        ({}, ""),
        ({"a": "d", "b": "d", "c": "d"}, "d"),
        ({"a": "d"}, "ad"),
        ({"a": "d", "b": "d"}, "ad"),
        # Three who accuse one each stand for at most as many honest ones.
        ({"d": "a", "e": "b", "f": "c"}, "abcdef"),
        ({"f": "a", "a": "b"}, "af"),
    ],
)
def test_who_is_at_fault(accusations, left_out):
    assert "".join(sorted(at_fault(accusations, threshold=3))) == left_out
