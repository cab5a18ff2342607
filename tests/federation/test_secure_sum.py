"""Secure sums: that they are the sums, what else can be seen, and what is refused."""

import copy
import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.stats import chisquare

from skdpot.federation._secure_sum import (
    FaultyOwnerError,
    SecureSumCoordinator,
    SecureSumError,
    SecureSumOwner,
    SumPlan,
    _crypto,
    _masks,
    _sum_owner,
)

SESSION = b"the session of a test"
SIZE = 5
NEVER = 4  # a leg that no owner is missing in
SENDS = ("receive_keys", "receive_shares", "receive_masked", "receive_reveal")


def make_plan(n_owners, threshold=None, size=SIZE, session=SESSION, **others):
    threshold = n_owners // 2 + 1 if threshold is None else threshold
    return SumPlan(n_owners, size, threshold, session, **others)


def draw_vectors(plan, rng):
    return rng.integers(0, 2**64, (plan.n_owners, plan.size), dtype=np.uint64)


def mask(owner, vector, delivered):
    return owner.mask(vector, owner.opened(delivered))


class Run:
    """A sum in which each owner is missing from some leg on, and all that crossed the wire."""

    def __init__(self, plan, vectors, missing=None, n_legs=4, through_state=False):
        self.plan, self.vectors = plan, vectors
        self.missing = {} if missing is None else missing
        self.owners = [SecureSumOwner(plan, owner) for owner in range(plan.n_owners)]
        self.coordinator = SecureSumCoordinator(plan)
        self.sent = [{}, {}, {}, {}]
        self.states = []
        for leg in range(n_legs):
            if through_state:
                self.put_away()
            self.take_leg(leg)

    def put_away(self):
        self.states.append([owner.state() for owner in self.owners])
        self.owners = [
            SecureSumOwner.from_state(self.plan, owner, state)
            for owner, state in enumerate(self.states[-1])
        ]

    def take_leg(self, leg):
        there = [m for m in range(self.plan.n_owners) if self.missing.get(m, NEVER) > leg]
        answers = {owner: self.answer(leg, owner) for owner in there}
        for owner, payload in answers.items():
            self.sent[leg][owner] = payload
            getattr(self.coordinator, SENDS[leg])(owner, payload)

    def answer(self, leg, number):
        owner, vector = self.owners[number], self.vectors[number]
        if leg == 0:
            return owner.advertise()
        incoming = self.incoming(leg, number)
        if leg == 1:
            return owner.share(incoming)
        return mask(owner, vector, incoming) if leg == 2 else owner.reveal(incoming)

    def incoming(self, leg, owner):
        asked = ("", "directory", "delivery", "request")[leg]
        return getattr(self.coordinator, asked)(owner)


def plain_sum(vectors, owners):
    """Return the sum modulo 2**64, by integers of any size."""
    columns = np.asarray(vectors)[list(owners)].T.tolist()
    return np.array([sum(column) % 2**64 for column in columns], dtype=np.uint64)


def assert_uniform(array):
    """Fail if the bytes of an array are not uniform (once in a million, if they are)."""
    counts = np.bincount(np.ascontiguousarray(array).view(np.uint8).ravel(), minlength=256)
    assert counts.sum() >= 256 * 20
    assert chisquare(counts).pvalue > 1e-6


class TestSums:
    @pytest.mark.parametrize("n_owners", [2, 3, 5, 12])
    @pytest.mark.parametrize("all_or_nothing", [False, True])
    def test_total_is_the_sum(self, n_owners, all_or_nothing, rng):
        plan = make_plan(n_owners, all_or_nothing=all_or_nothing)
        run = Run(plan, draw_vectors(plan, rng))
        owners = range(n_owners)
        np.testing.assert_array_equal(
            run.coordinator.total(), plain_sum(run.vectors, owners), strict=True
        )
        assert run.coordinator.survivors == tuple(owners)

    def check_pattern(self, plan, pattern, rng):
        """Run a sum with owners missing, and compare with what the numbers of answers say."""
        vectors = draw_vectors(plan, rng)
        answers = [sum(leg < last for last in pattern) for leg in range(4)]
        needed = [plan.required] * 3 + [plan.threshold]
        if all(n >= least for n, least in zip(answers, needed, strict=True)):
            run = Run(plan, vectors, dict(enumerate(pattern)))
            survivors = tuple(m for m, last in enumerate(pattern) if last > 2)
            assert run.coordinator.survivors == survivors
            np.testing.assert_array_equal(run.coordinator.total(), plain_sum(vectors, survivors))
            return True
        with pytest.raises(SecureSumError, match="must take part|too few survived|no total before"):
            Run(plan, vectors, dict(enumerate(pattern))).coordinator.total()
        return False

    @pytest.mark.experiment
    def test_any_pattern_of_four_owners_missing_from_some_leg_on(self, rng):
        plan = make_plan(4, threshold=3)
        patterns = itertools.product(range(NEVER + 1), repeat=4)
        n_sums = sum(self.check_pattern(plan, pattern, rng) for pattern in patterns)
        assert n_sums == 1 + 4 * 4

    @pytest.mark.parametrize(
        "threshold, all_or_nothing, n_sums", [(2, False, 13), (2, True, 4), (3, False, 1)]
    )
    def test_any_pattern_of_three_owners(self, threshold, all_or_nothing, n_sums, rng):
        plan = make_plan(3, threshold=threshold, all_or_nothing=all_or_nothing)
        patterns = itertools.product(range(NEVER + 1), repeat=3)
        assert sum(self.check_pattern(plan, pattern, rng) for pattern in patterns) == n_sums

    @pytest.mark.parametrize("n_neighbours", [4, 6, 10])
    def test_neighbours_on_a_circle_and_owners_missing(self, n_neighbours, rng):
        for leg in range(4):
            plan = make_plan(12, n_neighbours=n_neighbours, session=bytes([leg]) * 16)
            gone = rng.choice(12, 2, replace=False).tolist()
            run = Run(plan, draw_vectors(plan, rng), {gone[0]: leg, gone[1]: 2})
            survivors = sorted(set(range(12)).difference(gone if leg < 3 else gone[1:]))
            np.testing.assert_array_equal(
                run.coordinator.total(), plain_sum(run.vectors, survivors)
            )

    def test_more_shares_may_arrive_after_too_few(self, rng):
        plan = make_plan(3, threshold=2)
        run = Run(plan, draw_vectors(plan, rng), {0: 3, 1: 3})
        with pytest.raises(SecureSumError, match="1 shares of the seed of owner 0 .* 2 are"):
            run.coordinator.total()
        run.coordinator.receive_reveal(1, run.answer(3, 1))
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, range(3)))

    def test_clients_are_put_away_between_all_legs(self, rng):
        plan = make_plan(5, n_neighbours=4)
        run = Run(plan, draw_vectors(plan, rng), {3: 2}, through_state=True)
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, [0, 1, 2, 4]))
        run.put_away()
        with pytest.raises(SecureSumError, match="reveal was called before"):
            run.answer(3, 0)
        assert {a.dtype.name for s in run.states for m in s for a in m.values()} == {
            "uint8",
            "int64",
        }

    def test_the_total_does_not_change_under_the_callers_hands(self, rng):
        plan = make_plan(2)
        run = Run(plan, draw_vectors(plan, rng))
        run.coordinator.total()[:] = 0
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, range(2)))

    def test_a_mask_of_the_wrong_sign_is_no_mask_that_cancels(self, rng, monkeypatch):
        def wrong(plan, owner, other, private, public):
            mask = _masks.common_mask(plan, owner, other, private, public)
            return np.negative(mask) if owner == 1 else mask

        monkeypatch.setattr(_sum_owner, "common_mask", wrong)
        plan = make_plan(3)
        run = Run(plan, draw_vectors(plan, rng))
        assert np.all(run.coordinator.total() != plain_sum(run.vectors, range(3)))


class TestPlan:
    @pytest.mark.parametrize("n_neighbours", [None, 2, 4, 8])
    def test_graph(self, n_neighbours):
        plan = make_plan(9, n_neighbours=n_neighbours)
        degree = 8 if n_neighbours is None else n_neighbours
        links = {(i, j) for i in range(9) for j in plan.neighbours(i)}
        assert len(links) == 9 * degree
        assert links == {(j, i) for i, j in links if i != j}
        assert plan.local_threshold == -(-plan.threshold * (degree + 1) // 9)
        assert 2 * plan.local_threshold > degree + 1

    def test_another_session_has_another_graph(self):
        of = [make_plan(30, n_neighbours=4, session=bytes([s]) * 16) for s in range(20)]
        neighbours = {tuple(plan.neighbours(0)) for plan in of}
        assert len(neighbours) > 15
        assert len({owner for near in neighbours for owner in near}) > 20

    def test_who_hangs_together(self, rng):
        plan = make_plan(14, n_neighbours=4)
        links = np.array([[j in plan.neighbours(i) for j in range(14)] for i in range(14)])
        found = []
        for _ in range(100):
            owners = rng.choice(14, rng.integers(1, 12), replace=False)
            found.append(plan.hang_together(owners.tolist()))
            assert found[-1] == (connected_components(links[np.ix_(owners, owners)])[0] == 1)
        assert 20 < sum(found) < 80

    @pytest.mark.parametrize(
        "parameters, match",
        [
            ({"n_owners": 1, "threshold": 1}, "n_owners must be an integer at least 2"),
            ({"n_owners": 4.0}, "n_owners"),
            ({"size": 0}, "size must be an integer from 1"),
            ({"threshold": 3}, "threshold must be an integer from 4 to 6, got 3"),
            ({"threshold": 7}, "threshold"),
            ({"session": b"short"}, "session must be at least 16 bytes"),
            ({"session": "a string that is long enough"}, "session"),
            ({"n_neighbours": 3}, "n_neighbours must be even"),
            ({"n_neighbours": 6}, "n_neighbours must be an integer from 2 to 5"),
            ({"all_or_nothing": 1}, "all_or_nothing must be a bool"),
        ],
    )
    def test_parameters_are_checked(self, parameters, match):
        valid = {"n_owners": 6, "size": 2, "threshold": 4, "session": SESSION}
        with pytest.raises(ValueError, match=match):
            SumPlan(**valid | parameters)

    def test_all_that_is_agreed_on_enters_the_keys(self):
        plans = [
            make_plan(6),
            make_plan(7, threshold=4),
            make_plan(6, threshold=5),
            make_plan(6, size=6),
            make_plan(6, session=SESSION + b"2"),
            make_plan(6, n_neighbours=4),
            make_plan(6, all_or_nothing=True),
        ]
        assert len({plan.context for plan in plans}) == len(plans)


class TestWhatIsSeen:
    SIZE = 4000

    def test_masked_vectors_are_uniform_and_never_the_same(self):
        plan = make_plan(3, size=self.SIZE)
        runs = [Run(plan, np.zeros((3, self.SIZE), dtype=np.uint64)) for _ in range(2)]
        for owner in range(3):
            first, second = (run.sent[2][owner]["masked"] for run in runs)
            assert_uniform(first)
            assert_uniform(second - first)
        assert_uniform(runs[0].sent[2][0]["masked"] - runs[0].sent[2][1]["masked"])
        assert_uniform(runs[0].sent[2][0]["masked"] + runs[0].sent[2][1]["masked"])

    def unmask_by_colluder(self, run, honest, colluder):
        """Take off a vector's masks what the coordinator and a colluding owner know."""
        plan = run.plan
        holders = plan.holders(honest)
        at = [run.sent[3][h]["shares"][plan.holders(h).index(honest)].tobytes() for h in holders]
        points = range(1, plan.local_threshold + 1)
        seed = _crypto.combine_shares(points, at[: plan.local_threshold])
        private = run.states[1][colluder]["masking_key"].tobytes()
        public = run.sent[0][honest]["keys"][_masks.MASKING_ROW].tobytes()
        known = _masks.own_mask(plan, honest, seed)
        known = known + _masks.common_mask(plan, honest, colluder, private, public)
        return run.sent[2][honest]["masked"] - known

    def test_a_colluder_and_the_coordinator_see_nothing_but_the_others_sum(self):
        plan = make_plan(3, size=self.SIZE)
        vectors = np.full((3, self.SIZE), 7, dtype=np.uint64)
        run = Run(plan, vectors, through_state=True)
        rests = [self.unmask_by_colluder(run, honest, 2) for honest in (0, 1)]
        for rest in rests:
            assert_uniform(rest)
        np.testing.assert_array_equal(rests[0] + rests[1], plain_sum(vectors, (0, 1)))

    def test_other_inputs_of_the_same_sum_are_as_good_an_explanation(self, rng, monkeypatch):
        """For every other such input there is a mask of the honest pair that gives one transcript.

        With fewer than two secrets of a pair that mask is as likely as the one that was drawn.
        """
        plan = make_plan(3)
        vectors = draw_vectors(plan, rng)
        difference = rng.integers(0, 2**64, plan.size, dtype=np.uint64)
        others = vectors.copy()
        others[0] += difference
        others[1] -= difference
        run = Run(plan, vectors, n_legs=2)
        again = [SecureSumOwner.from_state(plan, m, c.state()) for m, c in enumerate(run.owners)]

        def shifted(plan, owner, other, private, public):
            mask = _masks.common_mask(plan, owner, other, private, public)
            shift = {(0, 1): np.negative(difference), (1, 0): difference}
            return mask + shift.get((owner, other), np.uint64(0))

        run.take_leg(2)
        with monkeypatch.context() as context:
            context.setattr(_sum_owner, "common_mask", shifted)
            for m, owner in enumerate(again):
                masked = mask(owner, others[m], run.coordinator.delivery(m))["masked"]
                np.testing.assert_array_equal(masked, run.sent[2][m]["masked"])
                revealed = owner.reveal(run.coordinator.request(m))
                run.coordinator.receive_reveal(m, revealed)
        for total in (plain_sum(vectors, range(3)), plain_sum(others, range(3))):
            np.testing.assert_array_equal(run.coordinator.total(), total)

    def test_shares_below_the_threshold_are_uniform(self):
        secret = bytes(range(32))
        few = [_crypto.split_secret(secret, 3, 5)[[0, 4]] for _ in range(200)]
        assert_uniform(np.array(few))
        first, last = np.array(few)[:, 0], np.array(few)[:, 1]
        assert_uniform(first ^ last)

    def test_seed_and_masking_key_of_one_owner_would_give_its_vector(self, rng):
        """That both are never revealed of one owner is what all rests on."""
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=3)
        victim = 0
        both = [run.owners[holder].state()["shares"][victim].tobytes() for holder in (1, 2, 3)]
        seed, private = (
            _crypto.combine_shares([2, 3, 4], [text[half] for text in both])
            for half in (_masks.SEED, _masks.MASKING)
        )
        rest = run.sent[2][victim]["masked"] - _masks.own_mask(plan, victim, seed)
        assert np.all(rest != run.vectors[victim])
        for other in plan.neighbours(victim):
            public = run.sent[0][other]["keys"][_masks.MASKING_ROW].tobytes()
            rest -= _masks.common_mask(plan, victim, other, private, public)
        np.testing.assert_array_equal(rest, run.vectors[victim])

    def test_each_secret_is_revealed_of_whom_it_should_be(self, rng):
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), {2: 2}, through_state=True)
        kept = run.states[3][0]["shares"]
        revealed = run.sent[3][0]["shares"]
        for owner in range(4):
            seed_share, key_share = kept[owner, :32], kept[owner, 32:]
            shown, hidden = (key_share, seed_share) if owner == 2 else (seed_share, key_share)
            np.testing.assert_array_equal(revealed[owner], shown)
            assert hidden.tobytes() not in revealed.tobytes()

    def test_secrets_are_forgotten_once_used(self, rng):
        plan = make_plan(3)
        run = Run(plan, draw_vectors(plan, rng), through_state=True)
        run.put_away()
        secrets = {"sealing_key", "masking_key", "seed"}
        names = [set(states[0]) - {"context", "position"} for states in run.states]
        assert names[0] == set()
        assert secrets == names[1] and secrets < names[2]
        assert names[3] == {"sharers", "shares"}
        assert names[4] == set()


class TestPrimitives:
    def test_masks_are_the_stream_of_chacha20(self):
        # RFC 8439, appendix A.1, test vector 1.
        stream = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        words = _crypto.mask_words(bytes(32), 4)
        assert words.astype("<u8").tobytes().hex() == stream
        assert words.dtype == np.uint64

    def test_two_agree_on_a_key_for_each_purpose(self):
        first, second = _crypto.new_secret(), _crypto.new_secret()
        of_first, of_second = _crypto.point_of(first), _crypto.point_of(second)
        keys = [_crypto.agree(first, of_second, purpose) for purpose in (b"one", b"two")]
        assert keys == [_crypto.agree(second, of_first, purpose) for purpose in (b"one", b"two")]
        assert keys[0] != keys[1]

    def test_masks_of_one_sum_are_none_of_another(self):
        private, public = _crypto.new_secret(), _crypto.point_of(_crypto.new_secret())
        plans = make_plan(3), make_plan(3, session=SESSION + b"2")
        masks = []
        for plan in plans:
            masks += [_masks.common_mask(plan, 0, other, private, public) for other in (1, 2)]
            masks += [_masks.own_mask(plan, owner, private) for owner in (0, 1)]
        assert len({mask.tobytes() for mask in masks}) == len(masks)

    @pytest.mark.parametrize("threshold, n_shares", [(2, 2), (2, 5), (3, 4), (7, 11)])
    def test_as_many_shares_as_the_threshold_give_the_secret(self, threshold, n_shares, rng):
        secret = _crypto.new_secret()
        shares = [row.tobytes() for row in _crypto.split_secret(secret, threshold, n_shares)]
        at = (1 + rng.choice(n_shares, threshold, replace=False)).tolist()
        assert _crypto.combine_shares(at, [shares[one - 1] for one in at]) == secret
        if threshold > 2:
            assert _crypto.combine_shares(at[1:], [shares[one - 1] for one in at[1:]]) != secret

    def test_wrong_shares_give_a_wrong_secret(self):
        secret = _crypto.new_secret()
        shares = [row.tobytes() for row in _crypto.split_secret(secret, 3, 4)]
        assert _crypto.combine_shares([1, 2, 3], shares[:3]) == secret
        assert _crypto.combine_shares([1, 2, 4], shares[:3]) != secret
        for positions in ([1, 1, 2], [0, 1, 2]):
            with pytest.raises(ValueError, match="positive and different"):
                _crypto.combine_shares(positions, shares[:3])

    @pytest.mark.parametrize("threshold, n_shares", [(2, 3), (3, 5), (7, 11)])
    def test_points_of_another_secret_are_found(self, threshold, n_shares):
        """Those of any one share, of the secret, and of a polynomial that is too high."""
        secret = _crypto.new_secret()
        shares = _crypto.split_secret(secret, threshold, n_shares)
        points = {at: _crypto.point_of(row.tobytes()) for at, row in enumerate(shares, 1)}
        points[0] = _crypto.point_of(secret)
        assert _crypto.are_of_one_secret(points, threshold)
        assert not _crypto.are_of_one_secret(points, threshold - 1)
        for at in points:
            wrong = points | {at: _crypto.point_of(_crypto.new_secret())}
            assert not _crypto.are_of_one_secret(wrong, threshold)
        with pytest.raises(ValueError):
            _crypto.are_of_one_secret(points | {1: bytes(33)}, threshold)

    def test_libraries_are_imported_when_first_used(self):
        script = """
import sys
from skdpot.federation._secure_sum import SecureSumOwner, SumPlan
owner = SecureSumOwner(SumPlan(2, 1, 2, bytes(16)), 0)
early = {"flwr", "cryptography", "Crypto"} & set(sys.modules)
assert not early, early
owner.advertise()
assert "cryptography" in sys.modules
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("package", ["cryptography", "Crypto"])
    def test_what_is_missing_is_said_with_its_remedy(self, package, monkeypatch):
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"'{package}'.*pip install \"skdpot\[federated\]\""):
            point = _crypto.point_of(_crypto.new_secret())
            _crypto.are_of_one_secret(dict.fromkeys(range(3), point), 2)


def compressed(sign, abscissa):
    return bytes([sign]) + abscissa.to_bytes(32, "big")


# No points of the curve: that far out, beside it, of another form, and at infinity.
NO_POINTS = [compressed(2, 2**256 - 1), compressed(3, 1), compressed(4, 5), bytes(33)]


def changed(payload, name, change):
    array = payload[name].copy()
    result = change(array)
    return payload | {name: array if result is None else result}


def flip(array, index):
    array[index] ^= 1


class TestClientRefuses:
    """What an owner does not accept; afterwards it goes on as if nothing had been sent."""

    def refuse(self, run, leg, payload, match, number=0):
        owner = run.owners[number]
        before = owner.state()
        with pytest.raises(ValueError, match=match):
            if leg == 2:
                mask(owner, run.vectors[number], payload)
            else:
                (owner.share if leg == 1 else owner.reveal)(payload)
        for name, array in owner.state().items():
            np.testing.assert_array_equal(array, before[name], strict=True)

    def go_on(self, run, first_leg):
        for leg in range(first_leg, 4):
            run.take_leg(leg)
        np.testing.assert_array_equal(
            run.coordinator.total(), plain_sum(run.vectors, run.coordinator.survivors)
        )

    def test_a_directory(self, rng):
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=1)
        good = run.incoming(1, 0)
        owners, keys = good["owners"], good["keys"]
        own = run.sent[0][0]["keys"][0]
        for payload, match in [
            ({}, "must have the arrays owners, keys"),
            (good | {"more": owners}, "and no others"),
            (good | {"owners": owners.astype(float)}, "owners must be an array of int64"),
            (good | {"owners": owners[None]}, "must have the shape"),
            (good | {"owners": owners.tolist()}, "owners must be an array"),
            (good | {"owners": owners[::-1].copy()}, "ascending order, each once"),
            (good | {"owners": np.array([0, 1, 1, 2])}, "ascending order, each once"),
            (good | {"owners": np.array([0, 1, 2, 4])}, r"cannot be there: \[4\]"),
            (good | {"owners": np.array([-1, 0, 1, 2])}, r"cannot be there: \[-1\]"),
            ({"owners": owners[1:], "keys": keys}, "does not name this owner"),
            ({"owners": owners[:2], "keys": keys[:1]}, "names 2 of 4 owners, and at least 3"),
            (good | {"keys": keys[:2]}, "must have keys of 3 neighbours"),
            (good | {"keys": keys[:, :, :32]}, "keys must have the shape"),
            (good | {"keys": keys[[0, 0, 1]]}, "a key of owner 2 a second time"),
            (changed(good, "keys", lambda k: k.__setitem__((0, 1), own)), "owner 1 a second time"),
        ]:
            self.refuse(run, 1, payload, match)
        self.go_on(run, 1)

    @pytest.mark.parametrize("point", NO_POINTS)
    @pytest.mark.parametrize("row", [0, 1])
    def test_keys_that_are_no_points(self, point, row, rng):
        plan = make_plan(2)
        run = Run(plan, draw_vectors(plan, rng), n_legs=1)
        payload = run.incoming(1, 0)
        payload["keys"][0, row] = np.frombuffer(point, dtype=np.uint8)
        self.refuse(run, 1, payload, "no valid key of owner 1")

    def test_what_was_not_sealed_for_it(self, rng):
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=2)
        other = Run(make_plan(4, 3, session=SESSION + b"2"), run.vectors, n_legs=2)
        good = run.incoming(2, 0)
        owners, shares = good["owners"], good["shares"]
        for payload, match in [
            (changed(good, "shares", lambda s: flip(s, (1, 0))), "shares of owner 2 were not"),
            (changed(good, "shares", lambda s: flip(s, (0, 40))), "shares of owner 1 were not"),
            (changed(good, "shares", lambda s: flip(s, (2, -1))), "shares of owner 3 were not"),
            (good | {"shares": shares[[1, 0, 2]]}, "of owner 1 were not sealed by it"),
            (run.incoming(2, 1), "in this sum, for owner 0"),
            (other.incoming(2, 0), "in this sum"),
            (good | {"shares": shares[:2]}, "must have shares of 3 neighbours"),
            (good | {"shares": shares[:, :64]}, "must have the shape"),
            (good | {"owners": owners[[0, 1, 3]]}, "must have shares of 2 neighbours"),
            (good | {"owners": owners[:2], "shares": shares[:1]}, "at least 3 must take part"),
            (good | {"points": good["points"][1:]}, "must have shares of 3 neighbours"),
            (changed(good, "points", lambda p: flip(p, (0, 0, 0))), "owner 1 were not sealed"),
            (good | {"owners": owners + 1}, r"cannot be there: \[4\]"),
        ]:
            self.refuse(run, 2, payload, match)
        self.go_on(run, 2)

    @pytest.mark.parametrize("wrong", [bytes(32), bytes(31) + b"\x07"])
    def test_shares_that_are_not_those_of_the_published_points(self, wrong, rng, monkeypatch):
        """The dealer seals them well, and publishes points of others."""
        plan = make_plan(3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=1)

        def seal_another(plan, sender, receiver, private, public, shares, points):
            return _masks.seal_shares(
                plan, sender, receiver, private, public, wrong + shares[32:], points
            )

        for number in range(3):
            with monkeypatch.context() as context:
                if number == 1:
                    context.setattr(_sum_owner, "seal_shares", seal_another)
                answer = run.answer(1, number)
            run.coordinator.receive_shares(number, answer)
        with pytest.raises(FaultyOwnerError, match="do not fit its published points") as caught:
            run.owners[0].opened(run.incoming(2, 0))
        assert caught.value.owner == 1

    def test_shares_replayed_in_another_sum_of_the_same_keys(self, rng):
        """As if the random source of all had failed: sessions are told apart all the same."""
        plan = make_plan(3)
        other_plan = make_plan(3, session=SESSION + b"2")
        run = Run(plan, draw_vectors(plan, rng), n_legs=2)
        context = np.frombuffer(other_plan.context, dtype=np.uint8)
        state = run.owners[0].state() | {"context": context}
        owner = SecureSumOwner.from_state(other_plan, 0, state)
        with pytest.raises(ValueError, match="were not sealed by it, in this sum"):
            mask(owner, run.vectors[0], run.incoming(2, 0))

    def test_owners_who_came_out_of_nowhere(self, rng):
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), {3: 0}, n_legs=2)
        good = run.incoming(2, 0)
        whole = good | {"owners": np.arange(4), "shares": good["shares"][[0, 1, 1]]}
        self.refuse(run, 2, whole, r"cannot be there: \[3\]")

    def test_a_vector(self, rng):
        plan = make_plan(2)
        run = Run(plan, draw_vectors(plan, rng), n_legs=2)
        good = run.vectors[0]
        for vector, match in [
            (good.astype(np.int64), "vector must be an array of uint64"),
            (good.tolist(), "vector must be an array of uint64"),
            (good[:-1], r"must have the shape \(5,\), got \(4,\)"),
        ]:
            with pytest.raises(ValueError, match=match):
                mask(run.owners[0], vector, run.incoming(2, 0))
        self.go_on(run, 2)

    @pytest.mark.parametrize(
        "survivors, match",
        [
            ([0, 1], "names 2 of 5 owners, and at least 3"),
            ([0, 1, 1, 2], "each once"),
            ([0, 2, 1], "ascending"),
            ([0, 1, 2, 4], r"cannot be there: \[4\]"),
            ([0, 1, 2, 9], r"cannot be there: \[9\]"),
            ([1, 2, 3], "does not name this owner, 0"),
            ([], "does not name this owner"),
        ],
    )
    def test_survivors_that_cannot_be(self, survivors, match, rng):
        plan = make_plan(5)
        run = Run(plan, draw_vectors(plan, rng), {4: 1}, n_legs=3)
        self.refuse(run, 3, {"survivors": np.array(survivors, dtype=np.int64)}, match)
        self.go_on(run, 3)

    def test_all_or_nothing(self, rng):
        plan = make_plan(3, all_or_nothing=True)
        run = Run(plan, draw_vectors(plan, rng), n_legs=3)
        self.refuse(run, 3, {"survivors": np.array([0, 1])}, "at least 3 must take part")
        self.go_on(run, 3)

    def test_survivors_in_two_parts(self, rng):
        plan = make_plan(11, threshold=6, n_neighbours=4)
        run = Run(plan, draw_vectors(plan, rng), n_legs=3)
        parts = next(
            kept
            for kept in itertools.combinations(range(11), 7)
            if 0 in kept and not plan.hang_together(kept)
        )
        self.refuse(run, 3, {"survivors": np.array(parts)}, "not all linked by neighbours")
        self.go_on(run, 3)

        gone = dict.fromkeys(set(range(11)).difference(parts), 2)
        parted = Run(plan, run.vectors, gone, n_legs=3)
        with pytest.raises(SecureSumError, match="not all linked by neighbours"):
            parted.coordinator.request(0)

    def test_a_neighbourhood_that_is_nearly_empty(self, rng):
        plan = make_plan(11, threshold=6, n_neighbours=4)
        gone = plan.neighbours(0)[:3]
        run = Run(plan, draw_vectors(plan, rng), dict.fromkeys(gone, 0), n_legs=1)
        self.refuse(run, 1, run.incoming(1, 0), "1 neighbours of owner 0, and at least 2")

    def test_any_leg_twice_or_out_of_turn(self, rng):
        plan = make_plan(3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=0)
        owner = run.owners[0]
        calls = {
            "advertise": owner.advertise,
            "share": lambda: owner.share(run.incoming(1, 0)),
            "mask": lambda: mask(owner, run.vectors[0], run.incoming(2, 0)),
            "reveal": lambda: owner.reveal(run.incoming(3, 0)),
        }
        names = list(calls)
        for leg in range(4):
            for name in names[leg + 1 :]:
                with pytest.raises(SecureSumError):
                    calls[name]()
            run.take_leg(leg)
        requests = [{"survivors": np.array(s)} for s in ([0, 1, 2], [0, 1], [0, 2])]
        for request in requests:
            with pytest.raises(SecureSumError, match="reveal was called before: it is answered o"):
                owner.reveal(request)
        with pytest.raises(SecureSumError, match="mask was called before"):
            mask(owner, run.vectors[1], {})

    def test_states_that_are_not_its_own(self, rng):
        plan = make_plan(3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=2)
        state = run.owners[0].state()
        other = make_plan(3, session=SESSION + b"2")
        for of_plan, owner, wrong, match in [
            (other, 0, state, "another sum or of another owner"),
            (plan, 1, state, "another sum or of another owner"),
            (plan, 0, {}, "must have the arrays"),
            (plan, 0, state | {"more": state["seed"]}, "must have the arrays"),
            (plan, 0, state | {"seed": state["seed"][1:]}, "seed must have the shape"),
            (plan, 0, state | {"position": np.array([0, 6])}, "of an unknown leg"),
            (plan, 0, state | {"position": np.array([0, 0])}, "no others"),
        ]:
            with pytest.raises(ValueError, match=match):
                SecureSumOwner.from_state(of_plan, owner, wrong)

    def test_no_such_owner(self):
        for owner in (-1, 3, 1.0, True):
            with pytest.raises(ValueError, match="owner must be an integer from 0 to 2"):
                SecureSumOwner(make_plan(3), owner)


class TestCoordinatorRefuses:
    def refuse(self, run, leg, owner, payload, match):
        with pytest.raises(ValueError, match=match):
            getattr(run.coordinator, SENDS[leg])(owner, payload)

    def test_what_is_no_answer_of_the_leg(self, rng):
        plan = make_plan(3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=0)
        for leg in range(4):
            answers = [run.answer(leg, owner) for owner in range(3)]
            for name, array in answers[0].items():
                for wrong, match in [
                    (array.astype(np.float64), f"{name} must be an array of uint"),
                    (array[:-1], f"{name} must have the shape"),
                    (array[None], f"{name} must have the shape"),
                    (bytes(32), f"{name} must be an array"),
                ]:
                    self.refuse(run, leg, 0, answers[0] | {name: wrong}, match)
                self.refuse(run, leg, 0, answers[0] | {"more": array}, "and no others")
            self.refuse(run, leg, 0, None, "must have the arrays")
            self.refuse(run, leg, 3, answers[0], "owner must be an integer from 0 to 2")
            for owner, answer in enumerate(answers):
                getattr(run.coordinator, SENDS[leg])(owner, answer)
            self.refuse(run, leg, 0, answers[0], "owner 0 came before")
            for later in range(leg + 1, 4):
                self.refuse(run, later, 0, answers[0], "came too early")
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, range(3)))

    @pytest.mark.parametrize("leg", range(3))
    def test_what_comes_too_late_or_from_who_left(self, leg, rng):
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), {3: leg}, n_legs=leg + 1)
        late = run.answer(leg, 3)
        run.take_leg(leg + 1)
        self.refuse(run, leg, 3, late, "of owner 3 came too late")
        with pytest.raises(ValueError, match="owner 3 did not answer in the leg before"):
            run.incoming(leg + 1, 3)
        self.refuse(run, leg + 1, 3, run.sent[leg + 1][0], "owner 3 did not answer")
        for later in range(leg + 2, 4):
            run.take_leg(later)
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, range(3)))

    @pytest.mark.parametrize("point", NO_POINTS)
    def test_keys_nobody_can_use(self, point):
        coordinator = SecureSumCoordinator(make_plan(2))
        answer = SecureSumOwner(make_plan(2), 0).advertise()
        wrong = copy.deepcopy(answer)
        wrong["keys"][1] = np.frombuffer(point, dtype=np.uint8)
        with pytest.raises(ValueError, match="a key that is not valid"):
            coordinator.receive_keys(0, wrong)
        coordinator.receive_keys(0, answer)
        with pytest.raises(ValueError, match="a key that is in use already"):
            coordinator.receive_keys(1, answer)

    def test_asking_before_its_time(self):
        coordinator = SecureSumCoordinator(make_plan(2))
        for ask in (coordinator.delivery, coordinator.request):
            with pytest.raises(SecureSumError, match="can have arrived yet"):
                ask(0)
        with pytest.raises(SecureSumError, match="no total before"):
            coordinator.total()
        with pytest.raises(SecureSumError, match="keys arrived from 0 of 2 owners"):
            coordinator.directory(0)

    @pytest.mark.parametrize("of", [1, 3])
    def test_who_reveals_a_wrong_share_is_named_and_the_others_are_enough(self, of, rng):
        plan = make_plan(5, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), {3: 2}, n_legs=3)
        for number in (0, 1, 2, 4):
            answer = run.answer(3, number)
            if number == 0:
                wrong = changed(answer, "shares", lambda shares: flip(shares, (of, 5)))
                self.refuse(run, 3, 0, wrong, f"owner 0: that of owner {of} is not what it was d")
            else:
                run.coordinator.receive_reveal(number, answer)
        survivors = run.coordinator.survivors
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, survivors))

    @pytest.mark.parametrize("n_owners, threshold", [(4, 3), (5, 3)])
    @pytest.mark.parametrize("secret", ["seed", "masking_key"])
    def test_shares_that_are_not_of_one_secret(self, n_owners, threshold, secret, rng, monkeypatch):
        """The dealer publishes points of what it seals: of no seed, or of another masking key."""
        plan = make_plan(n_owners, threshold)
        run = Run(plan, draw_vectors(plan, rng), n_legs=1)
        of_liar = run.owners[1]._secret(secret)

        def deal(of, threshold, n_shares):
            if of != of_liar:
                return _crypto.split_secret(of, threshold, n_shares)
            if secret == "seed":
                return _crypto.split_secret(of, threshold + 1, n_shares)
            return _crypto.split_secret(_crypto.new_secret(), threshold, n_shares)

        monkeypatch.setattr(_sum_owner, "split_secret", deal)
        for number in range(n_owners):
            answer = run.answer(1, number)
            if number == 1:
                self.refuse(run, 1, 1, answer, "shares of owner 1 are not all of one secret")
            else:
                run.coordinator.receive_shares(number, answer)
        run.missing = {1: 1}
        run.take_leg(2)
        run.take_leg(3)
        others = [owner for owner in range(n_owners) if owner != 1]
        np.testing.assert_array_equal(run.coordinator.total(), plain_sum(run.vectors, others))

    def test_points_that_are_none(self, rng):
        plan = make_plan(4, threshold=3)
        run = Run(plan, draw_vectors(plan, rng), n_legs=1)
        answer = run.answer(1, 0)
        wrong = changed(answer, "points", lambda points: points.__setitem__(2, 0))
        self.refuse(run, 1, 0, wrong, "are not all of one secret")
        run.coordinator.receive_shares(0, answer)


class TestNothingIsToldBySideChannels:
    def messages(self, rng, session):
        """Return texts and errors of a sum whose secrets and vectors are of this run."""
        plan = make_plan(3, session=session)
        run = Run(plan, draw_vectors(plan, rng), n_legs=2)
        owner, texts = run.owners[0], []
        good = run.incoming(2, 0)
        tampered = changed(good, "shares", lambda shares: flip(shares, (0, 50)))
        texts += [repr(owner), str(owner), repr(run.coordinator)]
        for call in (
            lambda: mask(owner, run.vectors[0][1:], good),
            lambda: mask(owner, run.vectors[0].astype(float), good),
            lambda: mask(owner, run.vectors[0], tampered),
            lambda: mask(owner, run.vectors[0], changed(good, "shares", lambda s: s[:, 1:])),
            lambda: owner.share({}),
            lambda: SecureSumOwner.from_state(plan, 1, owner.state()),
            lambda: SecureSumOwner.from_state(plan, 0, owner.state() | {"seed": np.arange(2)}),
        ):
            with pytest.raises((ValueError, SecureSumError)) as caught:
                call()
            texts.append(str(caught.value))
        return texts

    def test_texts_and_errors_are_the_same_whatever_the_secrets(self, rng):
        assert self.messages(rng, SESSION) == self.messages(rng, SESSION + b"2")

    def test_clients_are_neither_pickled_nor_copied(self):
        owner = SecureSumOwner(make_plan(2), 0)
        owner.advertise()
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                attempt(owner)
