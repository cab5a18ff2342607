"""Secure sums against a coordinator that tells owners different things, and has some collude."""

import numpy as np
import pytest

from skdpot.federation import SecureAggregation, SigningKey
from skdpot.federation._secure_sum import (
    SecureSumCoordinator,
    SecureSumError,
    SecureSumOwner,
    Signers,
    SumPlan,
    _crypto,
    _masks,
    _signers,
)

KEYS = [SigningKey.create() for _ in range(30)]
PUBLICS = tuple(key.public for key in KEYS)
SIZE = 4


class Sum:
    """A sum up to the leg in which survivors are named; the last owners collude."""

    def __init__(self, n_owners, threshold, n_colluders=0, signed=True):
        self.plan = SumPlan(n_owners, SIZE, threshold, bytes(16))
        self.signed = signed
        publics = PUBLICS[:n_owners]
        self.coordinator = SecureSumCoordinator(self.plan, Signers(publics) if signed else None)
        self.owners = [
            SecureSumOwner(self.plan, i, Signers(publics, KEYS[i]) if signed else None)
            for i in range(n_owners)
        ]
        self.honest = range(n_owners - n_colluders)
        self.colluders = range(n_owners - n_colluders, n_owners)
        self.vectors = np.random.default_rng(0).integers(0, 2**64, (n_owners, SIZE), np.uint64)
        self.public, self.masked = {}, {}
        for i, owner in enumerate(self.owners):
            advertised = owner.advertise()
            self.public[i] = advertised["keys"][_masks.MASKING_ROW].tobytes()
            self.coordinator.receive_keys(i, advertised)
        for i, owner in enumerate(self.owners):
            self.coordinator.receive_shares(i, owner.share(self.coordinator.directory(i)))
        # What colluding owners give away: their own keys, and their shares of all others.
        self.private = {j: self.state(j)["masking_key"].tobytes() for j in self.colluders}
        for i, owner in enumerate(self.owners):
            opened = owner.opened(self.coordinator.delivery(i))
            self.masked[i] = owner.mask(self.vectors[i], opened)["masked"]
            self.coordinator.receive_masked(i, {"masked": self.masked[i]})
        self.seeds = self.shares_held(_masks.SEED)
        self.maskings = self.shares_held(_masks.MASKING)

    def state(self, owner):
        return self.owners[owner].state()

    def shares_held(self, half):
        """Return the shares that colluding owners hold, by whose secret it is and by holder."""
        held = {j: self.state(j)["shares"][:, half] for j in self.colluders}
        return {m: {j: rows[m] for j, rows in held.items()} for m in self.honest}

    def ask(self, told):
        """Take what honest owners reveal, each for the survivors that it is told."""
        requests = {i: {"survivors": np.array(sorted(of))} for i, of in told.items()}
        signatures = self.signatures(requests) if self.signed else {}
        for i, request in requests.items():
            if self.signed:
                rows = signatures[request["survivors"].tobytes()]
                signers = np.array(sorted(rows))
                signed = np.vstack([rows[signer] for signer in signers])
                request |= {"signers": signers, "signatures": signed}
                if len(rows) < self.plan.threshold:
                    with pytest.raises(ValueError, match="must have the signatures of"):
                        self.owners[i].reveal(request)
                    continue
            shares = self.owners[i].reveal(request)["shares"]
            for m in self.honest:
                (self.seeds if m in told[i] else self.maskings)[m][i] = shares[m]

    def signatures(self, requests):
        """Return the signatures of each list: honest owners sign one, colluding ones all."""
        found = {}
        for i, request in requests.items():
            of_list = found.setdefault(request["survivors"].tobytes(), {})
            of_list[i] = self.owners[i].consent(request)["signatures"]
            for j in set(self.colluders) & set(request["survivors"].tolist()):
                content = request["survivors"].astype("<i8").tobytes()
                of_list |= {j: self.signature_of(j, content)}
        return found

    def signature_of(self, owner, content):
        signers = Signers(PUBLICS, KEYS[owner])
        of = _signers.signatures_of(signers, self.plan, owner, _signers.CONSENT, content)
        return of["signatures"]

    def recover(self, shares):
        """Return a secret, None where too few of its shares are known."""
        used = sorted(shares.items())[: self.plan.threshold]
        if len(used) < self.plan.threshold:
            return None
        points = [holder + 1 for holder, _ in used]
        return _crypto.combine_shares(points, [share.tobytes() for _, share in used])

    def sum_of(self, owners):
        """Return the sum of some honest vectors, None where a secret is missing."""
        others = [m for m in self.honest if m not in owners]
        seeds = {m: self.recover(self.seeds[m]) for m in owners}
        private = self.private | {m: self.recover(self.maskings[m]) for m in others}
        if None in [*seeds.values(), *private.values()]:
            return None
        total = sum(self.masked[m] for m in owners)
        for m in owners:
            total = total - _masks.own_mask(self.plan, m, seeds[m])
            for other, key in private.items():
                total = total - _masks.common_mask(self.plan, m, other, key, self.public[m])
        return total

    def splits(self):
        """Tell some owners that the first one survived, and the others that it did not.

        Return whether its vector is known then: both of its secrets are.
        """
        n, t, c = self.plan.n_owners, self.plan.threshold, len(self.colluders)
        first = set(self.honest[: max(t - c, 1)])
        without = set(range(1, n)) if n > t else None
        told = {i: set(range(n)) if i in first else without for i in self.honest}
        # Who is told of fewer than the threshold refuses: these are not asked.
        self.ask({i: of for i, of in told.items() if of is not None})
        alone, private = self.recover(self.seeds[0]), self.recover(self.maskings[0])
        if alone is None or private is None:
            return False
        vector = self.masked[0] - _masks.own_mask(self.plan, 0, alone)
        for other in range(1, n):
            vector = vector - _masks.common_mask(self.plan, 0, other, private, self.public[other])
        np.testing.assert_array_equal(vector, self.vectors[0])
        return True


# Owners, threshold and colluding ones; whether twice the threshold is above n + c.
CASES = [
    (3, 2, 0), (3, 2, 1), (3, 3, 1), (6, 4, 1), (6, 4, 2), (9, 6, 2), (9, 6, 3), (12, 8, 4),
    (12, 8, 3),
]  # fmt: skip


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("n_owners", "threshold", "n_colluders"), CASES)
def test_one_vector_is_seen_exactly_where_the_formula_says(
    n_owners, threshold, n_colluders, signed
):
    cheat = Sum(n_owners, threshold, n_colluders, signed)
    assert cheat.splits() == (2 * threshold <= n_owners + n_colluders)


@pytest.mark.parametrize(("n_owners", "_threshold", "n_colluders"), CASES)
def test_with_keys_it_is_not_seen_for_the_threshold_that_is_the_default(
    n_owners, _threshold, n_colluders
):
    threshold = SecureAggregation().for_owners(n_owners, signed=True).threshold
    assert not Sum(n_owners, threshold, n_colluders).splits()


@pytest.mark.parametrize("signed", [False, True])
def test_a_signed_list_is_not_of_fewer_owners_than_the_threshold(signed):
    """The example on the page of theory: two honest vectors are summed, and not three."""
    cheat = Sum(9, 7, 4, signed)
    left_out = {0: {2, 3}, 1: {2, 4}, 2: {3, 4}, 3: {2, 4}, 4: {2, 3}}
    cheat.ask({i: set(range(9)) - gone for i, gone in left_out.items()})
    found = cheat.sum_of([0, 1])
    if signed:
        assert found is None
    else:
        np.testing.assert_array_equal(found, cheat.vectors[0] + cheat.vectors[1])


@pytest.mark.parametrize("missing", [(), (4,)])
def test_an_honest_coordinator_has_the_sum(missing):
    run = Sum(5, 4)
    there = [i for i in range(5) if i not in missing]
    for i in there:
        run.owners[i] = SecureSumOwner.from_state(
            run.plan, i, run.state(i), Signers(PUBLICS[:5], KEYS[i])
        )
        signed = run.owners[i].consent(run.coordinator.request(i))
        run.coordinator.receive_consistency(i, signed)
    for i in there:
        run.owners[i] = SecureSumOwner.from_state(
            run.plan, i, run.state(i), Signers(PUBLICS[:5], KEYS[i])
        )
        run.coordinator.receive_reveal(i, run.owners[i].reveal(run.coordinator.evidence(i)))
    np.testing.assert_array_equal(run.coordinator.total(), sum(run.vectors))


def test_what_is_not_signed_is_refused():
    run = Sum(4, 3)
    request = run.coordinator.request(0)
    with pytest.raises(SecureSumError, match="reveal was called before consent"):
        run.owners[0].reveal(request)
    first, second = (run.owners[i].consent(request) for i in (0, 1))
    with pytest.raises(SecureSumError, match="consent was called before"):
        run.owners[0].consent({"survivors": np.arange(3)})
    with pytest.raises(ValueError, match="owner 1 has not signed its survivors"):
        run.coordinator.receive_consistency(1, first)
    run.coordinator.receive_consistency(0, first)
    run.coordinator.receive_consistency(1, second)
    with pytest.raises(SecureSumError, match="signed survivors arrived from 2 of 4 owners"):
        run.coordinator.evidence(0)
    run.coordinator.receive_consistency(2, run.owners[2].consent(request))
    evidence = run.coordinator.evidence(0)
    for changed, match in [
        ({"survivors": np.arange(3)}, "other survivors than this owner has signed"),
        ({"signers": np.array([0, 1, 3])}, "owner 3 has not signed"),
        ({"signatures": evidence["signatures"][[0, 0, 2]]}, "owner 1 has not signed"),
        ({"signatures": evidence["signatures"][:2]}, "signatures of 3 survivors at least"),
        ({"signers": np.array([0, 0, 2])}, "each once"),
    ]:
        with pytest.raises(ValueError, match=match):
            run.owners[0].reveal(evidence | changed)
    run.owners[0].reveal(evidence)


@pytest.mark.parametrize("name", ["keys", "signatures"])
def test_advertised_keys_are_those_that_were_signed(name):
    plan = SumPlan(3, SIZE, 2, bytes(16))
    coordinator = SecureSumCoordinator(plan, Signers(PUBLICS[:3]))
    owners = [SecureSumOwner(plan, i, Signers(PUBLICS[:3], KEYS[i])) for i in range(3)]
    for i, owner in enumerate(owners):
        coordinator.receive_keys(i, owner.advertise())
    directory = coordinator.directory(0)
    # Those of the others: the neighbours change places.
    changed = directory[name][::-1].copy()
    with pytest.raises(ValueError, match="owner 1 has not signed its keys"):
        owners[0].share(directory | {name: changed})
    # Nor are those of another sum signed for this one.
    other = SecureSumOwner(SumPlan(3, SIZE, 2, bytes(17)), 1, Signers(PUBLICS[:3], KEYS[1]))
    with pytest.raises(ValueError, match="owner 1 has not signed"):
        SecureSumCoordinator(plan, Signers(PUBLICS[:3])).receive_keys(1, other.advertise())
    owners[0].share(directory)
