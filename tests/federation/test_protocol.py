"""Refusals of owners, and of coordinators, whoever sends what."""

import copy
import dataclasses
import pickle
import time

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
from skdpot.federation._barycenter import _coordinator_session, _owner_checks
from skdpot.federation._barycenter._greetings import check_width
from skdpot.federation._secure_aggregation import plan_of, task_digest
from skdpot.federation._secure_sum import SecureSumCoordinator, Signers
from skdpot.federation._session_names import new_session
from skdpot.federation._wire import Packet, pack, unpack
from skdpot.privacy import PureDpEvent
from skdpot.transport.barycenter import Step, solve

NAMES = ("a", "b", "c")
SECRET = 3.21875
BOUNDS = ([0.0, 0.0], [4.0, 4.0])
RELEASE = GroupRelease(2.0, ["red", "blue"], bounds=BOUNDS, delta=1e-3)
SHARED = GroupRelease(2.0, ["red", "blue"], bounds=BOUNDS, delta=1e-3, noise="shared", n_honest=2)
KEYS = {name: SigningKey(name.encode() * 32) for name in "abcdef"}
PUBLICS = {name: key.public for name, key in KEYS.items()}
ROSTER = [[name, PUBLICS[name]] for name in NAMES]
MANY_HONEST = dataclasses.replace(SHARED, n_honest=3)


def rows_of(name):
    """Return private rows."""
    rows = np.random.default_rng(ord(name)).uniform(0, 4, size=(8, 2))
    rows[0, 0] = SECRET
    return rows


def owner_of(name, release=RELEASE, **options):
    """Return an owner of eight rows."""
    group = name if release is None else ["red", "blue"] * 4
    if release is not None and release.noise == "shared":
        options = {"key": KEYS[name], "owners": dict(ROSTER)} | options
    return BarycenterOwner(name, rows_of(name), group, release=release, **options)


def ledger():
    """Return a ledger with room for many releases."""
    return PrivacyLedger(delta=0.5, allow_seeded=True)


def ask(owner, kind, fields=None, arrays=None, *, session="s", number=0, attempt=""):
    """Return what an owner answers to a message."""
    message = Packet(kind, session, number, attempt, "", fields or {}, arrays or {})
    return unpack(owner.handle(pack(message)))


def greet(owner, /, agreed=RELEASE, session="s", **changed):
    """Return what an owner answers to a greeting."""
    told = {
        "name": owner.name,
        "release": None if agreed is None else agreed.described(),
        "secure": False,
        "owner": 0,
        "n_owners": 3,
    }
    if agreed is not None and agreed.noise == "shared":
        told["roster"] = ROSTER
    return ask(owner, "hello", told | changed, session=session)


def release_step(release=RELEASE, n_records=24, n_parts=3, **changed):
    """Return what is asked in a release."""
    size = int(np.prod(release.plan(n_records, n_parts).released_shape))
    step = {"kind": "release", "size": size, "type": "int64"}
    return {"step": step | {"n_records": n_records, "n_parts": n_parts} | changed}


def assert_refused(reply, reason=""):
    """Raise unless a reply is a refusal for a reason that tells nothing private."""
    assert reply.kind == "refusal", reply.kind
    assert reason in reply.fields["reason"]
    assert str(SECRET) not in reply.fields["reason"]
    assert not reply.arrays


# ------------------------------------------------------------------------------------ an owner


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"release": None}, "answers nothing else"),
        ({"release": "everything"}, "requested release is invalid"),
        ({"release": RELEASE.described() | {"epsilon": 3.0}}, "values of epsilon"),
        ({"release": RELEASE.described() | {"bounds": None, "kind": "x"}}, "bounds, kind"),
        ({"release": {}}, "other values"),
        ({"name": "b"}, "another name"),
        ({"owner": 3}, "which of the owners"),
        ({"owner": True}, "which of the owners"),
        ({"n_owners": "3"}, "which of the owners"),
        ({"secure": None}, "whether sums are secure"),
        ({"session": ""}, "name"),
        ({"session": "s" * 100}, "name"),
    ],
)
def test_greetings_that_are_refused(changed, reason):
    assert_refused(greet(owner_of("a"), **changed), reason)


def test_an_owner_says_its_rows_only_after_a_release_was_agreed_on():
    assert greet(owner_of("a")).fields == {"n_features": 2, "n_rows": 8}
    assert set(greet(owner_of("a", None), None).fields) == {"n_features", "group"}
    assert_refused(greet(owner_of("a", None)), "no private release")


def test_a_second_greeting_says_the_same():
    owner = owner_of("a", None)
    assert greet(owner, None).kind == greet(owner, None).kind == "welcome"
    for changed in ({"owner": 1}, {"n_owners": 2}, {"secure": True}):
        assert_refused(greet(owner, None, **changed), "another greeting")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (release_step(n_records=7), "fewer rows"),
        (release_step(n_parts=2), "another number of owners"),
        (release_step(n_parts=4), "another number of owners"),
        (release_step(n_records=2**41), "positive integers"),
        (release_step(n_records=True), "positive integers"),
        (release_step() | {"step": release_step()["step"] | {"n_records": 24.5}}, "integers"),
        (release_step(size=1), "another length"),
        (release_step(type="float64"), "of integers"),
        (release_step(type="float64", largest=1.0), "nothing else"),
        (release_step(kind="images"), "nothing else"),
        ({"step": {"kind": "size", "size": 1, "type": "float64"}}, "nothing else"),
        ({"step": []}, "nothing is asked"),
        ({}, "nothing is asked"),
    ],
)
def test_nothing_but_the_release_is_answered_and_nothing_refused_is_charged(step, reason):
    account = ledger()
    owner = owner_of("a", ledger=account)
    greet(owner)
    assert_refused(ask(owner, "step", step), reason)
    assert account.entries() == []
    assert ask(owner, "step", release_step()).kind == "answer"
    assert len(account.entries()) == 1


def test_a_release_has_one_round():
    account = ledger()
    owner = owner_of("a", ledger=account)
    greet(owner)
    first = ask(owner, "step", release_step()).arrays["vector"]
    assert_refused(ask(owner, "step", release_step(), number=1), "one round")
    assert_refused(ask(owner, "step", release_step(n_records=25)), "another task")
    assert_refused(ask(owner, "step", release_step(), {"x": np.zeros(1)}), "another task")
    # Another attempt gets the same numbers, and costs nothing.
    again = ask(owner, "step", release_step(), attempt="second").arrays["vector"]
    np.testing.assert_array_equal(first, again)
    assert len(account.entries()) == 1


def test_sessions_are_charged_and_without_a_ledger_there_is_one():
    account = ledger()
    paying, other = owner_of("a", ledger=account), owner_of("a")
    parts = []
    for session in ("s", "t"):
        for owner in (paying, other):
            greet(owner, session=session)
        parts.append(ask(paying, "step", release_step(), session=session).arrays["vector"])
    assert len(account.entries()) == 2 and (parts[0] != parts[1]).any()
    assert ask(other, "step", release_step(), session="s").kind == "answer"
    assert_refused(ask(other, "step", release_step(), session="t"), "no ledger")
    # It is remembered, and the first one can still be had.
    restored = owner_of("a")
    restored.restore(other.state())
    assert_refused(ask(restored, "step", release_step(), session="t"), "no ledger")
    assert ask(restored, "step", release_step(), session="s").kind == "answer"


def test_an_owner_that_agreed_to_no_release_takes_no_ledger():
    with pytest.raises(ValueError, match="nothing is guaranteed"):
        BarycenterOwner("a", rows_of("a"), "x", ledger=ledger())


def test_a_ledger_that_does_not_allow_a_release_says_no_more(monkeypatch):
    account = PrivacyLedger(epsilon=2.5, delta=0.5)
    owner = owner_of("a", ledger=account)
    greet(owner)
    # What another program spends since then.
    account.charge(PureDpEvent(1.0), unit="record", label="elsewhere")
    for _ in range(2):
        reply = ask(owner, "step", release_step())
        assert_refused(reply, "ledger does not allow")
        assert "1.5" not in reply.fields["reason"]
    assert (owner.n_answered, len(account.entries())) == (0, 1)


def test_a_release_that_cannot_be_paid_is_refused_before_anything_is_asked():
    poor = PrivacyLedger(epsilon=1.5, delta=0.5)
    assert_refused(greet(owner_of("a", ledger=poor)), "ledger does not allow")
    once = owner_of("a")
    greet(once)
    ask(once, "step", release_step())
    assert_refused(greet(once, session="t"), "no ledger")


def test_an_answer_that_cannot_be_made_costs_nothing(monkeypatch):
    account = ledger()
    owner = owner_of("a", ledger=account, random_state=0)
    greet(owner)

    def fail(*arguments):
        raise ValueError(f"row {SECRET}")

    with monkeypatch.context() as patch:
        patch.setattr(type(RELEASE.plan(24, 3)), "part", fail)
        assert_refused(ask(owner, "step", release_step()), "cannot answer")
    assert account.entries() == []


def test_nothing_leaves_before_it_is_charged(monkeypatch):
    account = ledger()
    owner = owner_of("a", ledger=account)
    greet(owner)

    def fail(*arguments, **options):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(PrivacyLedger, "charge", fail)
        assert_refused(ask(owner, "step", release_step()), "ledger does not allow")
    assert ask(owner, "step", release_step()).kind == "answer"
    assert len(account.entries()) == 1


def test_what_is_repeated_or_refused_changes_nothing_that_is_remembered(tmp_path):
    owner = owner_of("a", ledger=ledger(), state=tmp_path / "state")
    greet(owner)
    first = ask(owner, "step", release_step())
    remembered = owner.state()
    assert_refused(ask(owner, "step", release_step(n_records=7)))
    assert_refused(ask(owner, "step", release_step(), number=1))
    assert_refused(ask(owner, "masked", release_step()))
    assert_refused(unpack(owner.handle(b"noise")))
    for _ in range(2):
        again = ask(owner, "step", release_step())
        np.testing.assert_array_equal(first.arrays["vector"], again.arrays["vector"])
        assert owner.state() == remembered
    another = owner_of("a", ledger=ledger(), state=tmp_path / "state")
    assert_refused(ask(another, "step", release_step(n_records=7)))
    assert another.state() == remembered


def test_values_decide_nothing_but_numbers():
    far = BarycenterOwner("a", np.full((8, 2), 1e300), ["none"] * 8, release=RELEASE)
    near = owner_of("a")
    for owner in (far, near):
        greet(owner)
    replies = [ask(owner, "step", release_step()) for owner in (far, near)]
    assert replies[0].kind == replies[1].kind == "answer"
    assert replies[0].arrays["vector"].shape == replies[1].arrays["vector"].shape


@pytest.mark.parametrize(
    ("step", "arrays", "reason"),
    [
        ({"kind": "size", "size": 2, "type": "float64"}, {}, "another length"),
        ({"kind": "size", "size": 1, "type": "int64"}, {}, "doubles"),
        ({"kind": "size", "size": True, "type": "float64"}, {}, "length"),
        ({"kind": "size", "size": 2**40, "type": "float64"}, {}, "length"),
        ({"kind": ["size"], "size": 1, "type": "float64"}, {}, "doubles"),
        (
            {"kind": "size", "size": 1, "type": "float64", "more": 1},
            {},
            "step of the algorithm is invalid",
        ),
        ({"kind": "bregman", "size": 1, "type": "float64"}, {}, "cannot answer"),
        ({"kind": "x", "size": 1, "type": "float64"}, {}, "cannot answer"),
        ({"kind": "size", "size": 1, "type": "float64"}, {"x": np.zeros(1001)}, "too large"),
    ],
)
def test_steps_of_algorithms_that_are_refused(step, arrays, reason, monkeypatch):
    monkeypatch.setattr(_owner_checks, "_LARGEST_MATRIX", 8 * 1000)
    owner = owner_of("a", None)
    greet(owner, None)
    assert_refused(ask(owner, "step", {"step": step}, arrays), reason)
    good = {"kind": "size", "size": 1, "type": "float64"}
    assert_refused(ask(owner, "step", {"step": good}, number=1), "not the one after")
    assert ask(owner, "step", {"step": good}).arrays["vector"] == 8


def test_sums_of_a_session_are_all_secure_or_none_is():
    plain, masked = owner_of("a", None), owner_of("a", None)
    greet(plain, None), greet(masked, None, secure=True)
    step = {"step": {"kind": "size", "size": 1, "type": "float64"}}
    assert_refused(ask(masked, "step", step), "either all sums")
    assert_refused(ask(plain, "keys", plan_for(step["step"])), "either all sums")
    insisting = owner_of("a", None, secure=True)
    assert_refused(greet(insisting, None), "under secure aggregation only")
    assert_refused(greet(owner_of("a", SHARED), SHARED), "under secure aggregation only")


def plan_for(step, **changed):
    """Return what begins a secure sum."""
    plan = {"n_owners": 3, "size": step["size"], "threshold": 2}
    plan |= {"n_neighbours": None, "all_or_nothing": True}
    return {"plan": plan | changed, "task": task_digest(step, {})}


@pytest.mark.parametrize(
    ("release", "secure", "changed", "reason"),
    [
        (None, True, {"n_owners": 2}, "another number of owners"),
        (None, True, {"all_or_nothing": False}, "over all owners"),
        (None, True, {"threshold": 1}, "threshold"),
        (None, True, {"n_owners": "3"}, "must be an integer"),
        (None, True, {"n_neighbours": 2, "n_owners": 3}, "with more of the others"),
        (None, SecureAggregation(3), {"threshold": 2}, "than this owner requires"),
        (MANY_HONEST, False, {"threshold": 2}, "must be honest"),
        (SHARED, False, {"n_owners": 6, "threshold": 4}, "could unmask the vector of one owner"),
    ],
)
def test_plans_that_are_refused(release, secure, changed, reason):
    options = {} if release is None else {"owners": PUBLICS}
    owner = owner_of("a", release, secure=secure, **options)
    told = {"secure": True}
    if changed.get("n_owners") == 6:
        told |= {"n_owners": 6, "roster": list(PUBLICS.items())}
    greet(owner, release, **told)
    step = {"kind": "size", "size": 1, "type": "float64"}
    assert_refused(ask(owner, "keys", plan_for(step, **changed), attempt="1"), reason)


def masked_sum(owners, step, *, attempt="1", survivors=None, changed=None):
    """Return the sum of owners' answers, or the first refusal."""
    changed = changed or {}
    said = [plan_for(changed.get(i, step), all_or_nothing=False) for i in range(len(owners))]
    true = plan_for(step, all_or_nothing=False) | {"round": 0}
    signers = Signers(tuple(public for _, public in ROSTER))
    total = SecureSumCoordinator(plan_of(true, "s", attempt, ROSTER), signers)
    for i, owner in enumerate(owners):
        reply = ask(owner, "keys", said[i], attempt=attempt)
        total.receive_keys(i, reply.arrays)
    for i, owner in enumerate(owners):
        reply = ask(owner, "shares", {}, total.directory(i), attempt=attempt)
        total.receive_shares(i, reply.arrays)
    for i, owner in enumerate(owners):
        delivered = {f"delivered {name}": array for name, array in total.delivery(i).items()}
        if survivors is None or i in survivors:
            asked = {"step": changed.get(i, step)}
            reply = ask(owner, "masked", asked, delivered, attempt=attempt)
            if reply.kind == "refusal":
                return reply
            total.receive_masked(i, reply.arrays)
    for i in total.survivors:
        reply = ask(owners[i], "consistency", {}, total.request(i), attempt=attempt)
        if reply.kind == "refusal":
            return reply
        total.receive_consistency(i, reply.arrays)
    for i in total.survivors:
        reply = ask(owners[i], "reveal", {}, total.evidence(i), attempt=attempt)
        if reply.kind == "refusal":
            return reply
        total.receive_reveal(i, reply.arrays)
    return total.total().view(np.int64)


def secure_owners():
    """Return owners that were greeted, and what they are asked."""
    options = {"secure": SecureAggregation(2)}
    owners = [owner_of(name, SHARED, random_state=ord(name), **options) for name in NAMES]
    for i, owner in enumerate(owners):
        greet(owner, SHARED, secure=True, owner=i)
    return owners, release_step(SHARED)["step"]


def test_a_round_is_unmasked_over_one_set_of_owners():
    owners, step = secure_owners()
    first = masked_sum(owners, step, survivors=(0, 1))
    # With the third one, the difference of two sums would be what it sent.
    assert_refused(masked_sum(owners, step, attempt="2"), "over other owners")
    np.testing.assert_array_equal(masked_sum(owners, step, attempt="3", survivors=(0, 1)), first)
    told = ask(owners[0], "keys", plan_for(step), attempt="4").fields
    assert told == {"survivors": [0, 1]}


def test_owners_who_are_asked_different_things_have_no_sum():
    owners, step = secure_owners()
    with pytest.raises(ValueError, match="owner 2 has not signed its keys"):
        masked_sum(owners, step, changed={2: step | {"n_records": 25}})
    owners, step = secure_owners()
    said = plan_for(step)
    for owner in owners:
        ask(owner, "keys", said, attempt="1")
    other = {"step": step | {"n_records": 25}}
    assert_refused(ask(owners[0], "masked", other, attempt="1"), "another task")


def test_legs_of_a_sum_are_answered_once_and_in_their_attempt():
    owners, step = secure_owners()
    keys = ask(owners[0], "keys", plan_for(step), attempt="1")
    again = ask(owners[0], "keys", plan_for(step), attempt="1")
    np.testing.assert_array_equal(keys.arrays["keys"], again.arrays["keys"])
    other = plan_for(step, all_or_nothing=False)
    assert_refused(ask(owners[0], "keys", other, attempt="1"), "begun before")
    for kind in ("shares", "masked", "reveal"):
        assert_refused(ask(owners[0], kind, {"step": step}, attempt="2"), "over, or has not begun")
        assert_refused(ask(owners[0], kind, {"step": step}, attempt="1"))
    ask(owners[0], "keys", plan_for(step), attempt="2")
    # A late message of the first attempt does not end the second.
    assert_refused(ask(owners[0], "keys", plan_for(step), attempt="1"), "begun before")
    assert_refused(ask(owners[0], "keys", plan_for(step) | {"task": 1}, attempt="3"), "no plan")
    assert_refused(ask(owners[0], "keys", {}, attempt="3"), "no plan")
    size = plan_for(step, size=5)
    ask(owners[0], "keys", size, attempt="4")
    assert_refused(ask(owners[0], "masked", {"step": step}, attempt="4"), "different lengths")


def test_late_greetings_do_not_end_a_session_and_old_sessions_end():
    owner = owner_of("a", None)
    size = {"step": {"kind": "size", "size": 1, "type": "float64"}}
    moments = {"step": {"kind": "moments", "size": 6, "type": "float64"}}
    news = {"n_groups": np.array([3]), "total": np.array([24.0])}
    greet(owner, None)
    ask(owner, "step", size)
    first = ask(owner, "step", moments, news, number=1).arrays["vector"]
    for session in ("t", "u"):
        greet(owner, None, session)
        ask(owner, "step", size, session=session)
    restored = owner_of("a", None)
    restored.restore(owner.state())
    for one in (owner, restored):
        again = ask(one, "step", moments, news, number=1).arrays["vector"]
        np.testing.assert_array_equal(first, again)
        assert one.n_answered == 2
        for session in "0123456789":
            greet(one, None, session)
            ask(one, "step", size, session=session)
        assert_refused(ask(one, "step", size), "is over")
        assert_refused(greet(one, None), "is over")
        assert_refused(ask(one, "step", size, session="never"), "no session")


def test_a_greeting_from_before_all_that_is_remembered_is_refused():
    """Else who has kept the messages of a session could let it be paid for again."""
    owner, old, ahead = owner_of("a", None), f"t{0:021x}", f"t{'f' * 11}{'0' * 10}"
    size = {"step": {"kind": "size", "size": 1, "type": "float64"}}
    for session in (old, ahead):
        assert greet(owner, None, session).kind == "welcome"
        assert ask(owner, "step", size, session=session).kind == "answer"
    for number in range(1, 541):
        greet(owner, None, f"t{number:021x}")
        ask(owner, "step", size, session=f"t{number:021x}")
    restored = owner_of("a", None)
    restored.restore(owner.state())
    for one in (owner, restored):
        assert_refused(greet(one, None, old), "is over")
        # A time that cannot be does not keep others out.
        assert greet(one, None, new_session()).kind == "welcome"


def test_greetings_keep_nobody_out():
    """They cost nothing, and their times may be those of nobody's clock."""
    owner, soon = owner_of("a", None), time.time_ns() // 1_000_000
    for ahead in (60_000, 3_600_000):
        for number in range(540):
            greet(owner, None, f"t{soon + ahead:011x}{number:010x}")
    assert greet(owner, None, new_session()).kind == "welcome"


def test_who_is_asked_alone_with_rows_of_another_width_is_named():
    with pytest.raises(FederationError, match="a: rows of 3 features") as error:
        check_width({"a": {"n_features": 3}}, RELEASE.bounds)
    assert set(error.value.missing) == {"a"}


def test_greetings_alone_do_not_end_a_session_that_was_paid_for():
    account = ledger()
    owner = owner_of("a", ledger=account)
    greet(owner)
    part = ask(owner, "step", release_step()).arrays["vector"]
    for number in range(20):
        greet(owner, session=f"stray {number}")
    again = ask(owner, "step", release_step()).arrays["vector"]
    np.testing.assert_array_equal(part, again)
    assert len(account.entries()) == 1


def test_who_loses_its_memory_pays_for_what_it_says_then(tmp_path):
    account, parts = ledger(), []
    for place in ("one", "another"):
        owner = owner_of("a", ledger=account, state=tmp_path / place)
        greet(owner)
        parts.append(ask(owner, "step", release_step()).arrays["vector"])
    # The same round of the same session, and other noise.
    assert (parts[0] != parts[1]).any()
    assert len(account.entries()) == 2


def test_two_sessions_at_once_do_not_disturb_each_other():
    carrier = InProcessCarrier([owner_of(name, None) for name in NAMES])
    pair = [BarycenterCoordinator(NAMES, n, method="free", max_iter=6) for n in (3, 4)]
    alone = [
        run_barycenter(
            BarycenterCoordinator(NAMES, n, method="free", max_iter=6),
            InProcessCarrier([owner_of(name, None) for name in NAMES]),
        )
        for n in (3, 4)
    ]
    while not all(one.finished for one in pair):
        for one in pair:
            for name, answer in carrier.exchange(one.messages()):
                one.receive(name, answer)
            one.advance()
    for one, expected in zip(pair, alone, strict=True):
        np.testing.assert_array_equal(one.result().support, expected.support)


@pytest.mark.parametrize(
    ("fields", "arrays"),
    [
        ({}, {}),
        ({"objective": "low"}, {"support": np.zeros((4, 2))}),
        ({"objective": 1.0}, {"support": np.zeros(4)}),
        ({"objective": 1.0}, {"support": np.zeros((4, 3))}),
        ({"objective": 1.0}, {"support": np.zeros((4, 2), dtype=np.int64)}),
        ({"objective": 1.0, "more": 1}, {"support": np.zeros((4, 2))}),
        ({"objective": 1.0}, {"support": np.zeros((4, 2)), "more": np.zeros(9)}),
    ],
)
def test_what_is_no_outcome_is_not_kept(fields, arrays):
    owner = owner_of("a", None)
    greet(owner, None)
    good = {"objective": 1.0}, {"support": np.zeros((4, 2))}
    assert_refused(ask(owner, "finish", *good), "nothing was asked")
    ask(owner, "step", {"step": {"kind": "size", "size": 1, "type": "float64"}})
    assert_refused(ask(owner, "finish", fields, arrays), "not a barycenter")
    assert owner.outcome == {}
    assert ask(owner, "finish", *good).kind == "done"
    assert owner.outcome["objective"] == 1.0


@pytest.mark.parametrize("data", [b"", b"x" * 1000, "text", None, 5, np.zeros(3)])
def test_whatever_arrives_an_owner_answers(data):
    assert_refused(unpack(owner_of("a").handle(data)))


def test_an_owner_shows_and_hands_out_nothing():
    owner = owner_of("a", ledger=ledger())
    greet(owner)
    ask(owner, "step", release_step())
    assert repr(owner) == "BarycenterOwner('a', n_features=2, epsilon=2.0)"
    assert str(SECRET) not in repr(owner._sessions.last)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(owner)


def test_states_are_those_of_the_same_owner():
    with pytest.raises(ValueError, match="no state of this owner"):
        owner_of("a").restore(owner_of("b").state())
    with pytest.raises(ValueError, match="no state of this owner"):
        owner_of("a").restore(pack(Packet("state", sender="a")))
    with pytest.raises(ValueError):
        owner_of("a").restore(b"")


def test_owners_need_rows_and_labels():
    for points in ([[np.nan]], [[]], [1.0], np.empty((0, 2))):
        with pytest.raises(ValueError, match="two-dimensional"):
            BarycenterOwner("a", points, "x")
    with pytest.raises(ValueError, match="group must be"):
        BarycenterOwner("a", [[1.0]], None)
    with pytest.raises(ValueError, match=r"rows of several groups.* need release=GroupRelease"):
        BarycenterOwner("a", [[1.0], [2.0]], ["x", "y"])
    with pytest.raises(ValueError, match="no masses"):
        BarycenterOwner("a", [[1.0, 1.0]], "red", release=RELEASE, masses=[1.0])
    with pytest.raises(ValueError, match="features"):
        BarycenterOwner("a", [[1.0]], "red", release=RELEASE)
    with pytest.raises(ValueError, match="one label, or 1"):
        BarycenterOwner("a", [[1.0, 1.0]], ["red", "blue"], release=RELEASE)
    codes = RELEASE.codes_of(("red", "blue", "green"), 3)
    np.testing.assert_array_equal(codes, [0, 1, -1])
    tuples = dataclasses.replace(RELEASE, groups=[("red", 1), ("blue", 2)])
    np.testing.assert_array_equal(tuples.codes_of(("red", 1), 2), [0, 0])
    numpy_labels = dataclasses.replace(RELEASE, groups=np.array(["red", "blue"]))
    assert numpy_labels.described() == RELEASE.described()


# ------------------------------------------------------------------------------- a coordinator


def coordinator_of(method="free", **options):
    """Return a coordinator of a small problem."""
    options = {"method": method, "release": RELEASE if method == "release" else None} | options
    noise = getattr(options["release"], "noise", None)
    owners = dict(ROSTER) if noise == "shared" and options.get("secure") else NAMES
    return BarycenterCoordinator(options.pop("owners", owners), 4, **options)


def begun(**options):
    """Return a coordinator that waits for answers in its first round, and its messages."""
    coordinator = coordinator_of(max_iter=3, **options)
    owners = {name: owner_of(name, coordinator._settings.release) for name in NAMES}
    for name, message in coordinator.messages().items():
        coordinator.receive(name, owners[name].handle(message))
    coordinator.advance()
    return coordinator, owners, coordinator.messages()


def answer(message, kind="answer", sender="a", vector=(8.0,), **changed):
    """Return an answer to a message, as anybody may write it."""
    asked = unpack(message)
    told = {"session": asked.session, "round": asked.round, "attempt": asked.attempt} | changed
    return pack(Packet(kind, **told, sender=sender, arrays={"vector": np.asarray(vector)}))


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"vector": [1.0, 2.0]}, "malformed"),
        ({"vector": 1.0}, "malformed"),
        ({"vector": [8]}, "malformed"),
        ({"vector": [1e200]}, "malformed"),
        ({"kind": "welcome"}, "late"),
        ({"kind": "done"}, "late"),
        ({"session": "another"}, "late"),
        ({"round": 1}, "late"),
        ({"attempt": "another"}, "late"),
        ({"sender": "b"}, "unknown sender"),
        ({"kind": "refusal"}, "refusal"),
    ],
)
def test_what_is_no_answer_does_nothing(changed, cause):
    coordinator, owners, messages = begun()
    coordinator.receive("a", answer(messages["a"], **changed))
    coordinator.receive("a", b"")
    assert dict(coordinator.rejected) == {cause: 1} | ({"malformed": 1 + (cause == "malformed")})
    for name in NAMES:
        coordinator.receive(name, owners[name].handle(messages[name]))
    coordinator.receive("a", answer(messages["a"], vector=[9.0]))
    assert coordinator.rejected["repeated"] == 1
    coordinator.receive("stranger", answer(messages["a"], sender="stranger"))
    assert coordinator.rejected["unknown sender"] == 1 + (cause == "unknown sender")
    coordinator.advance()
    assert unpack(coordinator.messages()["a"]).arrays["total"] == 24


def test_integers_that_would_leave_the_range_of_a_sum_are_no_answer():
    coordinator, _, messages = begun(method="release")
    size = unpack(messages["a"]).fields["step"]["size"]
    coordinator.receive("a", answer(messages["a"], vector=np.full(size, -(2**63))))
    coordinator.receive("a", answer(messages["a"], vector=np.full(size, 2**62)))
    assert coordinator.rejected["malformed"] == 2


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"n_features": 2},
        {"n_features": 2, "group": []},
        {"n_features": 2.0, "group": "x"},
        {"n_features": -1, "group": "x"},
        {"n_features": 2**50, "group": "x"},
    ],
)
def test_what_is_no_welcome_does_nothing(said):
    coordinator = coordinator_of(n_attempts=1)
    asked = unpack(coordinator.messages()["a"])
    coordinator.receive("a", pack(Packet("welcome", asked.session, 0, "", "a", said)))
    assert coordinator.rejected["malformed"] == 1
    with pytest.raises(FederationError, match="does not fit the question") as caught:
        coordinator.advance()
    assert set(caught.value.missing) == set(NAMES)


def test_an_owner_writes_no_lines_into_errors():
    coordinator = coordinator_of(n_attempts=1)
    asked = unpack(coordinator.messages()["a"])
    reason = {"reason": "no\nERROR: \x1b[31mall is lost" + "!" * 10_000}
    coordinator.receive("a", pack(Packet("refusal", asked.session, 0, "", "a", reason)))
    with pytest.raises(FederationError) as caught:
        coordinator.advance()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


def test_sums_that_make_no_sense_are_an_error_and_the_round_is_asked_again(monkeypatch):
    def fussy(problem):
        total = yield Step("size", {}, 1, 1e9)
        if total[0] != 24:
            raise ZeroDivisionError
        return (yield from solve(problem))

    monkeypatch.setattr(_coordinator_session, "solve", fussy)
    coordinator, owners, messages = begun()
    for name in NAMES:
        coordinator.receive(name, answer(messages[name], sender=name, vector=[-1e8]))
    with pytest.raises(FederationError, match="is impossible"):
        coordinator.advance()
    found = run_barycenter(coordinator, InProcessCarrier(list(owners.values())))
    assert found.owners == NAMES


def test_groups_and_widths_must_go_together():
    two = [BarycenterOwner(name, rows_of(name), "x") for name in "ab"]
    coordinator = BarycenterCoordinator(["a", "b"], 3, method="free")
    with pytest.raises(FederationError, match="'a' and 'b' have rows of one group.*not a sum"):
        run_barycenter(coordinator, InProcessCarrier(two))
    same = BarycenterOwner("a", rows_of("a"), np.str_("x"))
    with pytest.raises(FederationError, match="one group"):
        run_barycenter(coordinator, InProcessCarrier([same, two[1]]))
    wide = BarycenterOwner("b", np.zeros((3, 5)), "y")
    with pytest.raises(FederationError, match="2 at a; 5 at b"):
        run_barycenter(coordinator, InProcessCarrier([two[0], wide]))
    right = BarycenterOwner("b", rows_of("b"), "y")
    assert run_barycenter(coordinator, InProcessCarrier([two[0], right])).owners == ("a", "b")
    narrow = BarycenterCoordinator(["a", "b"], 1, method="dual", candidates=[[0.0]])
    with pytest.raises(FederationError, match="have 1"):
        run_barycenter(narrow, InProcessCarrier([two[0], right]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"method": "fast"}, "method must be"),
        ({"method": "release", "release": None}, "needs release=GroupRelease"),
        ({"release": RELEASE}, "needs release=GroupRelease"),
        ({"n_least": 4}, "n_least from 1"),
        ({"n_attempts": 0}, "n_attempts"),
        ({"on_missing": "wait"}, "on_missing"),
        ({"weights": "fair"}, "weights must be"),
        ({"weights": [1.0, 1.0]}, "one for every owner"),
        ({"weights": [0.0, 0.0, 0.0]}, "no positive sum"),
        ({"method": "release", "weights": [1.0, 1.0, 1.0]}, "2 numbers, one per group"),
        ({"tol": 0.0}, "tol"),
        ({"method": "dual"}, "needs candidates"),
        ({"secure": SecureAggregation()}, "bounds of the rows"),
        ({"secure": SecureAggregation(4), "bounds": BOUNDS}, "threshold from 2 to 3"),
        ({"secure": SecureAggregation(2, 3), "bounds": BOUNDS}, "even"),
        ({"method": "release", "release": SHARED}, "set secure"),
        (
            {
                "method": "release",
                "release": SHARED,
                "secure": SecureAggregation(),
                "owners": NAMES,
            },
            "mapping of names to public keys",
        ),
        (
            {
                "method": "release",
                "release": dataclasses.replace(SHARED, n_honest=4),
                "secure": SecureAggregation(),
            },
            "exceeds the 3 owners",
        ),
        (
            {"method": "release", "release": MANY_HONEST, "secure": SecureAggregation(2)},
            "threshold from 3 to 3",
        ),
    ],
)
def test_settings_are_checked_before_anybody_is_asked(options, reason):
    with pytest.raises(ValueError, match=reason):
        coordinator_of(**options)


@pytest.mark.parametrize("n_honest", range(1, 11))
def test_who_need_not_be_honest_cannot_unmask_a_part(n_honest):
    threshold = SecureAggregation().for_owners(10, n_honest).threshold
    assert threshold >= n_honest
    # A part that has all of the noise needs no mask.
    assert n_honest == 1 or 10 - n_honest < threshold
    if n_honest > 1:
        with pytest.raises(ValueError, match="threshold from"):
            SecureAggregation(max(10 - n_honest, 6 - 1)).for_owners(10, n_honest)


def test_labels_that_cannot_be_looked_up_are_of_no_group():
    labels = ["red", ["blue"], ("red", []), None, float("nan"), "blue"]
    assert RELEASE.codes_of(labels, 6).tolist() == [0, -1, -1, -1, -1, 1]


def test_the_number_of_rows_is_not_told_where_it_is_protected():
    parts = ledger().partition("where", ["here", "there"], fixed_key=False)
    with pytest.raises(ValueError, match="fixed_key=True"):
        owner_of("a", ledger=parts["here"])
    fixed = ledger().partition("where", ["here", "there"], fixed_key=True)
    owner = owner_of("a", ledger=fixed["here"])
    greet(owner)
    assert ask(owner, "step", release_step()).kind == "answer"


def test_one_owner_and_names():
    alone = BarycenterCoordinator(["a"], 4, release=RELEASE, n_least=1)
    found = run_barycenter(alone, InProcessCarrier([owner_of("a")]))
    assert found.owners == ("a",) and found.support.shape == (4, 2)
    with pytest.raises(ValueError, match="n_least"):
        BarycenterCoordinator(["a"], 4, release=RELEASE, n_least=2)
    for names in ([], ["a", "a"], "ab"):
        with pytest.raises(ValueError, match="names that differ"):
            BarycenterCoordinator(names, 4, release=RELEASE, n_least=1)
    with pytest.raises(ValueError, match="differ"):
        InProcessCarrier([owner_of("a"), owner_of("a")])


def test_weights_are_of_owners_and_nothing_else():
    def found(weights, names=NAMES):
        owners = [owner_of(name, None) for name in names]
        coordinator = BarycenterCoordinator(names, 4, method="free", weights=weights)
        return run_barycenter(coordinator, InProcessCarrier(owners)).objective

    assert found("uniform") == found([2, 2, 2])
    assert found("proportional") == pytest.approx(found("uniform"), rel=1e-12)
    assert found([1.0, 0.0, 1.0]) == pytest.approx(found("uniform", ("a", "c")), rel=1e-6)


def test_results_do_not_depend_on_who_answers_first_nor_on_threads():
    class Backwards(InProcessCarrier):
        def exchange(self, messages, timeout=None):
            return super().exchange(messages)[::-1]

    carriers = [InProcessCarrier, Backwards]
    carriers += [lambda owners, n=n: InProcessCarrier(owners, n_jobs=n) for n in (1, 2)]
    for method in ("release", "free"):
        supports = []
        for carrier in carriers:
            release = RELEASE if method == "release" else None
            owners = [owner_of(name, release, random_state=ord(name)) for name in NAMES]
            found = run_barycenter(coordinator_of(method), carrier(owners))
            supports.append(found.support)
        for support in supports[1:]:
            np.testing.assert_array_equal(support, supports[0])


class Without(InProcessCarrier):
    """A network without some owners, or without some of their legs."""

    def __init__(self, owners, missing=(), lost=()):
        super().__init__(owners)
        self.missing, self.lost = set(missing), set(lost)

    def exchange(self, messages, timeout=None):
        """Return what arrives."""
        answers = super().exchange({n: m for n, m in messages.items() if n not in self.missing})
        return [(n, a) for n, a in answers if (n, unpack(a).kind) not in self.lost]


def test_a_lost_last_leg_does_not_bar_the_sum_for_ever(tmp_path):
    secure = SecureAggregation(2)
    owners = [
        owner_of(n, SHARED, random_state=ord(n), ledger=ledger(), secure=secure) for n in NAMES
    ]
    options = {"secure": secure, "on_missing": "drop", "n_attempts": 1}
    coordinator = coordinator_of("release", **options | {"release": SHARED})
    # Two unmask their sum, and their replies are lost; then the third one is back.
    lost = {("a", "reveal"), ("b", "reveal"), ("c", "masked")}
    path = tmp_path / "checkpoint"
    with pytest.raises(FederationError, match="too few survived") as caught:
        run_barycenter(coordinator, Without(owners, lost=lost), checkpoint=path)
    assert set(caught.value.missing) == set(NAMES)
    restarted = coordinator_of("release", **options | {"release": SHARED})
    restarted.restore(path.read_bytes())
    # Without one of the two there is no sum, and it says so.
    for one in (coordinator, restarted):
        with pytest.raises(FederationError) as caught:
            run_barycenter(one, Without(owners, missing=["a"]))
        assert "a" in caught.value.missing
        assert run_barycenter(one, InProcessCarrier(owners)).owners == ("a", "b")
    assert all(len(owner._ledger.entries()) == 1 for owner in owners)


def test_a_finished_release_without_an_owner_is_restored(tmp_path):
    coordinator = coordinator_of("release", on_missing="drop")
    path = tmp_path / "checkpoint"
    owners = [owner_of(name, random_state=ord(name)) for name in NAMES]
    found = run_barycenter(coordinator, Without(owners, lost=[("c", "answer")]), checkpoint=path)
    assert found.owners == ("a", "b") and found.dropped == ("c",)
    again = coordinator_of("release", on_missing="drop")
    again.restore(path.read_bytes())
    assert again.owners == ("a", "b")
    restored = run_barycenter(again, InProcessCarrier(owners))
    np.testing.assert_array_equal(restored.support, found.support)
    assert restored.dropped == ("c",)
    told = owners[0].outcome
    read = RELEASE.read(told["total"], told["n_records"], told["n_parts"], told["n_contributors"])
    np.testing.assert_array_equal(read.sizes, found.released.sizes)


def test_checkpoints_are_of_the_same_parameters():
    checkpoint = coordinator_of(weights=np.array([1, 2, 3])).checkpoint()
    coordinator_of(weights=[1.0, 2.0, 3.0]).restore(checkpoint)
    for options in ({}, {"weights": [1, 2, 4]}, {"tol": 1e-4, "weights": [1, 2, 3]}):
        with pytest.raises(ValueError, match="other parameters"):
            coordinator_of(**options).restore(checkpoint)
    with pytest.raises(ValueError):
        coordinator_of().restore(b"")
    with pytest.raises(ValueError, match="other parameters"):
        coordinator_of().restore(owner_of("a").state())


def test_the_outcome_is_told_again_where_it_was_lost():
    owners = [owner_of(name, None) for name in NAMES]

    class LosesFirst(InProcessCarrier):
        n_finishes = 0

        def exchange(self, messages, timeout=None):
            if any(unpack(message).kind == "finish" for message in messages.values()):
                self.n_finishes += 1
                return [] if self.n_finishes == 1 else super().exchange(messages)
            return super().exchange(messages)

    found = run_barycenter(coordinator_of(max_iter=2), LosesFirst(owners))
    for owner in owners:
        np.testing.assert_array_equal(owner.outcome["support"], found.support)


def test_nothing_is_told_before_the_end():
    coordinator = coordinator_of()
    with pytest.raises(RuntimeError, match="not finished"):
        coordinator.result()
    assert repr(coordinator) == ("BarycenterCoordinator(n_owners=3, n_support=4, method='free')")


# ------------------------------------------------------------------------- one group each


def one_group_each(kind="histogram", epsilon=3.0, owners_per_group=(1, 2)):
    """Return a release of two groups, and three owners, the last two of one group."""
    release = GroupRelease(
        epsilon, ["a", "b"], bounds=([0, 0], [1, 1]), delta=1e-6, kind=kind,
        owners_per_group=owners_per_group,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    owners = [
        BarycenterOwner(name, rng.uniform(size=(400, 2)), label, release=release)
        for name, label in [("x", "a"), ("y", "b"), ("z", "b")]
    ]
    return release, owners


@pytest.mark.parametrize("kind", ["histogram", "moments"])
def test_owners_of_one_group_say_nothing_of_others(kind):
    release, owners = one_group_each(kind)
    coordinator = BarycenterCoordinator(["x", "y", "z"], 10, release=release)
    found = run_barycenter(coordinator, InProcessCarrier(owners))
    assert found.released.sizes == pytest.approx([400, 800], rel=0.2)
    plan = release.plan(1200, 3)
    for owner, code in zip(owners, [0, 1, 1], strict=True):
        part = owner._sessions.last.vector.reshape(plan.released_shape)
        assert part[code].any() and not part[1 - code].any()


def test_noise_that_is_not_added_is_not_reckoned_with():
    release, owners = one_group_each("moments", epsilon=1.0, owners_per_group=(1, 1))
    mixed = dataclasses.replace(release, owners_per_group=None)
    coordinator = BarycenterCoordinator(["x", "y"], 5, release=release)
    run_barycenter(coordinator, InProcessCarrier(owners[:2]))
    alone = release.plan(800, 2).noise.standard_deviation
    assert mixed.plan(800, 2).noise.standard_deviation == pytest.approx(alone * 2**0.5)


def test_owners_of_one_group_have_a_declared_one():
    release, _ = one_group_each()
    for wrong in ("c", ["a", "a"], ["a", "b"]):
        with pytest.raises(ValueError, match="owners_per_group"):
            BarycenterOwner("x", np.zeros((2, 2)), wrong, release=release)
    with pytest.raises(ValueError, match="add up"):
        BarycenterCoordinator(["x", "y"], 5, release=release)
    for numbers in [(1,), (0, 3), (1, 1, 1)]:
        with pytest.raises(ValueError, match="number for each group"):
            one_group_each(owners_per_group=numbers)
    with pytest.raises(ValueError, match="noise of their own"):
        dataclasses.replace(release, noise="shared", n_honest=2)


def test_shared_noise_is_summed_with_keys_of_all_pairs():
    with pytest.raises(ValueError, match="shares keys with all others"):
        SecureAggregation(n_neighbours=4).for_owners(9, n_honest=5)
    assert SecureAggregation(n_neighbours=4).for_owners(9).n_neighbours == 4
    # With four neighbours of four others, they are all others.
    assert SecureAggregation(n_neighbours=4).for_owners(5, n_honest=3).n_neighbours is None


def test_a_checkpoint_of_another_session_is_not_overwritten(tmp_path):
    path = tmp_path / "sums"
    release, owners = one_group_each()

    def make():
        return BarycenterCoordinator(["x", "y", "z"], 5, release=release)

    found = run_barycenter(make(), InProcessCarrier(owners), checkpoint=path)
    begun = make()
    begun.messages()
    with pytest.raises(FileExistsError, match="restore"):
        run_barycenter(begun, InProcessCarrier(owners), checkpoint=path)
    # A new one continues from it, here to the same end.
    again = run_barycenter(make(), InProcessCarrier(owners), checkpoint=path)
    np.testing.assert_array_equal(found.support, again.support)


class Elsewhere:
    """Owners behind a carrier of another kind, of which one may be gone."""

    def __init__(self, owners, gone=()):
        self.carrier, self.gone = InProcessCarrier(owners), gone

    def exchange(self, messages, timeout=None):
        """Return what is answered; a greeting by all."""
        return [
            (name, answer)
            for name, answer in self.carrier.exchange(messages)
            if name not in self.gone or unpack(answer).kind == "welcome"
        ]


@pytest.mark.parametrize("with_files", [False, True])
def test_a_release_has_a_checkpoint_wherever_owners_outlive_the_coordinator(
    tmp_path, monkeypatch, with_files
):
    monkeypatch.chdir(tmp_path)
    accounts = {name: PrivacyLedger(epsilon=2.5, delta=0.5) for name in NAMES}

    def make_owners():
        return [
            owner_of(name, ledger=accounts[name], state=name if with_files else None)
            for name in NAMES
        ]

    owners = make_owners()
    carrier = InProcessCarrier if with_files else Elsewhere
    lossy = Without(owners, lost=[("c", "answer")]) if with_files else Elsewhere(owners, "c")
    with pytest.raises(FederationError) as caught:
        run_barycenter(coordinator_of("release"), lossy)
    (path,) = tmp_path.glob("skdpot-*.checkpoint")
    assert str(path) in caught.value.__notes__[0] and "continues from" in caught.value.__notes__[0]
    owners = make_owners() if with_files else owners
    assert run_barycenter(coordinator_of("release"), carrier(owners)).owners == NAMES
    assert [len(account.entries()) for account in accounts.values()] == [1, 1, 1]
    # The next run is another release.
    assert not path.exists()
    with pytest.raises(FederationError, match="ledger does not allow"):
        run_barycenter(coordinator_of("release", n_attempts=1), carrier(owners))
    assert not path.exists()


def test_what_ends_with_the_process_or_costs_nothing_has_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lossy = Without([owner_of(name) for name in NAMES], lost=[("c", "answer")])
    with pytest.raises(FederationError):
        run_barycenter(coordinator_of("release"), lossy)
    with pytest.raises(FederationError):
        run_barycenter(coordinator_of(), Elsewhere([owner_of(n, None) for n in NAMES], "c"))
    assert list(tmp_path.iterdir()) == []


def test_owners_of_other_features_than_the_release_has_are_not_asked():
    coordinator = coordinator_of("release")
    for name, message in coordinator.messages().items():
        coordinator.receive(
            name, answer(message, "welcome", name, fields={"n_features": 3, "n_rows": 8})
        )
    with pytest.raises(FederationError, match="rows of 3 features, and the release .* of 2"):
        coordinator.advance()
