"""Names that are bound to keys: what forgers, replays and coordinators of their own get."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from skdpot.federation._secure_aggregation import plan_of
from skdpot.federation._wire import SignatureError, WireError, pack, unpack

NAMES = ("north", "south", "west")
KEYS = {name: SigningKey.create() for name in NAMES}
PUBLICS = {name: key.public for name, key in KEYS.items()}
ASKING, STRANGER = SigningKey.create(), SigningKey.create()
OWN = GroupRelease(4.0, groups=["a", "b"], bounds=([-4], [4]), delta=1e-6, kind="moments")
SHARED = dataclasses.replace(OWN, noise="shared", n_honest=2)


def rows_of(name):
    rng = np.random.default_rng(len(name))
    return rng.normal(size=(100, 1)), rng.choice(["a", "b"], 100)


def owner_of(name, release=OWN, **options):
    known = {"key": KEYS.get(name), "owners": PUBLICS, "coordinator_key": ASKING.public}
    return BarycenterOwner(name, *rows_of(name), release=release, random_state=0, **known | options)


def charged(owner):
    """Tell whether an owner has released: without a ledger it does once."""
    return owner._has_released


def coordinator_of(release=OWN, owners=PUBLICS, **options):
    told = {"release": release, "key": ASKING, "n_attempts": 1}
    return BarycenterCoordinator(owners, None, **told | options)


def signed_as(packet, data):
    """Return a packet with the signature that other bytes have."""
    return pack(packet, SimpleNamespace(sign=lambda purpose, content: data[-64:]))


class Wire(InProcessCarrier):
    """A wire on which messages to owners, and their answers, may be changed."""

    def __init__(self, owners, down=None, up=None):
        super().__init__(owners)
        self.down, self.up = down or (lambda name, data: data), up or (lambda name, data: data)

    def exchange(self, messages, timeout=None):
        changed = {name: self.down(name, data) for name, data in messages.items()}
        return [(name, self.up(name, data)) for name, data in super().exchange(changed)]


@pytest.mark.parametrize("secure", [None, SecureAggregation()])
@pytest.mark.parametrize("release", [OWN, SHARED])
def test_owners_with_keys_have_a_sum(release, secure):
    if release.noise == "shared" and secure is None:
        secure = SecureAggregation(3)
    owners = [owner_of(name, release) for name in NAMES]
    coordinator = coordinator_of(release, secure=secure)
    found = run_barycenter(coordinator, InProcessCarrier(owners))
    assert found.owners == NAMES and not coordinator.rejected
    total = sum(owner._sessions.last.vector for owner in owners)
    np.testing.assert_array_equal(owners[0].outcome["total"], total)
    legs = [crossing.leg for crossing in found.traffic]
    assert ("consistency" in legs) == (secure is not None)


def test_three_owners_with_keys_send_less_than_five_kilobytes_for_a_secure_sum():
    release = dataclasses.replace(OWN, bounds=([-4, -4], [4, 4]))
    owners = [
        BarycenterOwner(
            name, np.ones((2000, 2)), ["a"] * 2000, release=release, key=KEYS[name],
            owners=PUBLICS, coordinator_key=ASKING.public,
        )
        for name in NAMES
    ]  # fmt: skip
    coordinator = BarycenterCoordinator(
        PUBLICS, None, release=release, key=ASKING, secure=SecureAggregation()
    )
    found = run_barycenter(coordinator, InProcessCarrier(owners))
    assert len(found.traffic) == 8
    assert sum(crossing.bytes_up for crossing in found.traffic) <= 5000


# ------------------------------------------------------------------------ owners made up


def test_shared_noise_is_refused_without_the_keys_of_all_others():
    for options in (
        {"key": None, "owners": None},
        {"owners": None},
        {"owners": {"north": PUBLICS["north"]}},
    ):
        with pytest.raises(ValueError, match="shared noise needs key="):
            owner_of("north", SHARED, **options)
    with pytest.raises(ValueError, match="needs a key of its own"):
        owner_of("north", key=None)
    with pytest.raises(ValueError, match="differs from its own key"):
        owner_of("north", key=STRANGER)
    with pytest.raises(ValueError, match="one public key"):
        owner_of("north", owners=PUBLICS | {"east": PUBLICS["south"]})
    for wrong in ({"owners": {"south": "ed25519:"}}, {"coordinator_key": "no key"}):
        with pytest.raises(ValueError, match="a public key is like"):
            owner_of("north", **wrong)
    with pytest.raises(ValueError, match="mapping of names to public keys"):
        coordinator_of(SHARED, NAMES, secure=SecureAggregation())


@pytest.mark.parametrize("n_others", [2, 5])
def test_a_coordinator_that_invents_owners_gets_nothing(n_others):
    """With noise that is shared with owners who add none, what is left were too little."""
    real = owner_of("north", SHARED)
    keys = {f"fake{i}": SigningKey.create() for i in range(n_others)}
    publics = {"north": PUBLICS["north"]} | {name: key.public for name, key in keys.items()}
    fakes = [
        owner_of(name, SHARED, key=key, owners=publics, secure=SecureAggregation(n_others))
        for name, key in keys.items()
    ]
    coordinator = coordinator_of(SHARED, publics, secure=SecureAggregation())
    with pytest.raises(FederationError, match="north .the owner has not pinned this key of 'fake0"):
        run_barycenter(coordinator, InProcessCarrier([real, *fakes]))
    # Nor under the names that the owner knows.
    stolen = dict(zip(NAMES, publics.values(), strict=False))
    coordinator = coordinator_of(SHARED, stolen, secure=SecureAggregation())
    with pytest.raises(FederationError, match="has not pinned this key of 'south'"):
        run_barycenter(coordinator, InProcessCarrier([real]))
    assert not charged(real)


@pytest.mark.parametrize(
    ("roster", "reason"),
    [
        (None, "the greeting has none"),
        ([], "name each owner once"),
        ([["north", PUBLICS["north"]]] * 3, "name each owner once"),
        ([[name, PUBLICS["north"]] for name in NAMES], "the name and the public key of each"),
        ([[name, "a key"] for name in NAMES], "the name and the public key of each"),
        ([[name, PUBLICS[name]] for name in NAMES[::-1]], "this one in its place"),
        ([[n, ASKING.public if n == "north" else PUBLICS[n]] for n in NAMES], "from its own key"),
        ([["north"], 3, None], "the name and the public key of each"),
        (7, "the name and the public key of each"),
    ],
)
def test_lists_of_owners_that_are_refused(roster, reason):
    owner = owner_of("north")
    asked = unpack(coordinator_of().messages()["north"])
    changed = dataclasses.replace(asked, fields=asked.fields | {"roster": roster})
    reply = unpack(owner.handle(pack(changed, ASKING)), PUBLICS["north"])
    assert reply.kind == "refusal" and reason in reply.fields["reason"]
    without = owner_of("north", key=None, owners=None)
    reply = unpack(without.handle(pack(asked, ASKING)))
    assert "no key to sign" in reply.fields["reason"]


def test_an_owner_left_out_does_not_lower_the_threshold():
    owners = [owner_of(name, SHARED) for name in NAMES]
    coordinator = coordinator_of(
        SHARED, {name: PUBLICS[name] for name in NAMES[:2]}, secure=SecureAggregation()
    )
    with pytest.raises(FederationError, match="fewer owners than this owner requires"):
        run_barycenter(coordinator, InProcessCarrier(owners))
    assert not any(map(charged, owners))


# -------------------------------------------------------------------- names and coordinators


def test_a_stolen_name_is_no_name():
    """A node with the key of west says that it is north."""
    impostor = owner_of("north", key=KEYS["west"], owners=None)
    owners = [impostor, owner_of("south"), owner_of("west")]
    coordinator = coordinator_of(on_missing="drop")
    found = run_barycenter(coordinator, InProcessCarrier(owners))
    assert found.owners == ("south", "west") and found.dropped == ("north",)
    assert coordinator.rejected == {"not signed": 1} and not charged(impostor)
    with pytest.raises(FederationError, match="north .its answer is not signed with its key"):
        run_barycenter(coordinator_of(), InProcessCarrier(owners))


def test_a_signature_is_of_the_sender_too():
    def up(name, data):
        # West's own answer, in the name of north.
        packet = dataclasses.replace(unpack(data), sender="north")
        return pack(packet, KEYS["west"]) if name == "north" else data

    coordinator = coordinator_of(on_missing="drop")
    found = run_barycenter(coordinator, Wire([owner_of(name) for name in NAMES], up=up))
    assert found.dropped == ("north",) and coordinator.rejected == {"not signed": 1}


@pytest.mark.parametrize("key", [None, STRANGER, KEYS["south"]])
def test_an_owner_answers_its_coordinator_only(key):
    owners = [owner_of(name) for name in NAMES]
    coordinator = coordinator_of(key=key)
    with pytest.raises(FederationError):
        run_barycenter(coordinator, InProcessCarrier(owners))
    reply = unpack(owners[0].handle(coordinator.messages()["north"]))
    assert "not signed with the key" in reply.fields["reason"]
    assert not any(map(charged, owners))


# --------------------------------------------------------------------------------- replays


def recorded(release=OWN, **options):
    """Return what crossed the wire of a whole run, by owner, in both directions."""
    said = {name: [] for name in NAMES}

    def note(name, data):
        said[name].append(data)
        return data

    owners = [owner_of(name, release) for name in NAMES]
    run_barycenter(coordinator_of(release, **options), Wire(owners, note, note))
    return said


@pytest.mark.parametrize("secure", [None, SecureAggregation()])
def test_messages_of_another_session_are_of_no_use(secure):
    old = recorded(secure=secure)

    class Replaying(InProcessCarrier):
        def exchange(self, messages, timeout=None):
            # All that was ever said comes before what is said now, both ways.
            for name in messages:
                for data in old[name]:
                    self._owners[name].handle(data)
            fresh = super().exchange(messages)
            return [(name, data) for name in messages for data in old[name]] + fresh

    # To an owner that remembers nothing, the old session is new, and is paid for once.
    room = PrivacyLedger(90.0, 1e-4, allow_seeded=True)
    owners = [owner_of(name, ledger=room) for name in NAMES]
    coordinator = coordinator_of(secure=secure)
    run_barycenter(coordinator, Replaying(owners))
    assert set(coordinator.rejected) == {"late", "not signed"}
    total = sum(owner._sessions.find(coordinator._session).vector for owner in owners)
    np.testing.assert_array_equal(coordinator._sums[0][0], total)


def test_messages_of_another_round_or_attempt_are_of_no_use():
    box = ([-4], [4])
    owners = [
        BarycenterOwner(n, *(rows_of(n)[0], n), key=KEYS[n], coordinator_key=ASKING.public)
        for n in NAMES
    ]
    said = {name: [] for name in NAMES}

    class Repeating(InProcessCarrier):
        def exchange(self, messages, timeout=None):
            fresh = super().exchange(messages)
            before = [(name, data) for name in messages for data in said[name]]
            for name, data in fresh:
                said[name].append(data)
            return before + fresh

    options = {"method": "free", "release": None, "bounds": box, "max_iter": 3}
    coordinator = BarycenterCoordinator(PUBLICS, 4, key=ASKING, **options)
    found = run_barycenter(coordinator, Repeating(owners))
    alone = run_barycenter(BarycenterCoordinator(PUBLICS, 4, key=ASKING, **options),
                           InProcessCarrier(owners))  # fmt: skip
    np.testing.assert_array_equal(found.support, alone.support)
    assert set(coordinator.rejected) == {"late"}
    # Nor does another session, round or attempt on its front help.
    for name in NAMES:
        for data in said[name]:
            for place in ({"session": "s"}, {"round": 99}, {"attempt": "2"}):
                forged = signed_as(dataclasses.replace(unpack(data), **place), data)
                assert unpack(forged).kind == unpack(data).kind
                with pytest.raises(SignatureError):
                    unpack(forged, PUBLICS[name])


# ------------------------------------------------------------------------------- tampering

# Before any owner is charged: nothing that is wrong is charged for.
EARLY = ("hello", "keys", "shares", "check")
LEGS = (*EARLY, "masked", "consistency", "reveal", "finish")


def tampered(packet, draw):
    """Return a packet of which one thing is different."""
    arrays = {name: array.copy() for name, array in packet.arrays.items()}
    places = [*packet.fields, *arrays, "round", "attempt", "session"]
    place = draw(st.sampled_from(places))
    if place in arrays and arrays[place].size:
        flat = arrays[place].view(np.uint8).reshape(-1)
        flat[draw(st.integers(0, flat.size - 1))] ^= 1 << draw(st.integers(0, 6))
        return dataclasses.replace(packet, arrays=arrays)
    if place in arrays:
        return dataclasses.replace(packet, arrays=arrays | {place: np.ones(1, np.int64)})
    if place in packet.fields:
        value = draw(st.sampled_from([None, -1, 0, 1, 2, "x", [], {}, [0, 1], True]))
        return dataclasses.replace(packet, fields=packet.fields | {place: value})
    other = packet.round + 1 if place == "round" else getattr(packet, place) + "x"
    return dataclasses.replace(packet, **{place: other})


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_no_wrong_sum_is_accepted_and_nobody_pays_for_what_is_seen_to_be_wrong(data):
    """One thing is changed by the wire, by the coordinator, or by an owner; the rest is honest."""
    who = data.draw(st.sampled_from(["wire down", "wire up", "coordinator", "owner"]))
    leg, victim = data.draw(st.sampled_from(LEGS)), data.draw(st.sampled_from(NAMES))
    drops = data.draw(st.booleans())
    key = {"coordinator": ASKING, "owner": KEYS[victim]}.get(who)
    changed = []

    def change(name, packed):
        packet = unpack(packed)
        # The owner's own number of rows and vector are what it may say: these are lies.
        own = {"welcome", "masked"} if who == "owner" else set()
        kind = {"welcome": "hello", "done": "finish"}.get(packet.kind, packet.kind)
        if name != victim or kind != leg or changed or packet.kind in own:
            return packed
        other = tampered(packet, data.draw)
        try:
            changed.append(signed_as(other, packed) if key is None else pack(other, key))
        except WireError:
            return packed
        return changed[0]

    down = who in ("wire down", "coordinator")
    owners = [owner_of(name, secure=SecureAggregation(2)) for name in NAMES]
    wire = Wire(owners, **{"down" if down else "up": change})
    options = {"on_missing": "drop"} if drops else {}
    coordinator = coordinator_of(secure=SecureAggregation(2), n_least=2, **options)
    try:
        found = run_barycenter(coordinator, wire)
    except FederationError:
        assert changed
        assert leg not in EARLY or not any(map(charged, owners))
        return
    vectors = {o.name: o._sessions.find(coordinator._session).vector for o in owners
               if o.name in found.owners}  # fmt: skip
    np.testing.assert_array_equal(coordinator._sums[-1][0], sum(vectors.values()))
    assert len(vectors) >= 2


def test_owners_who_are_told_different_lists_have_no_masks_in_common():
    plan = {"n_owners": 3, "size": 2, "threshold": 3, "n_neighbours": None, "all_or_nothing": True}
    said = {"plan": plan, "task": "", "round": 0}
    rosters = [[], *([[n, PUBLICS[n]] for n in order] for order in (NAMES, NAMES[::-1]))]
    assert len({plan_of(said, "s", "1", roster).context for roster in rosters}) == 3
