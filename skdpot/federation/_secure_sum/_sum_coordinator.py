"""The coordinator of one secure sum."""

from collections.abc import Mapping

import numpy as np

from .._keys import SIGNATURE_BYTES
from ._crypto import (
    KEY_BYTES,
    POINT_BYTES,
    are_of_one_secret,
    check_public_key,
    combine_shares,
    has_point,
)
from ._masks import MASKING_ROW, SEALED_BYTES, common_mask, own_mask
from ._signers import CONSENT, KEYS, Signers, survivors_as_signed
from ._sum_plan import FaultyOwnerError, SecureSumError, SumPlan, read_payload

_KEYS, _SHARES, _MASKED, _CONSENT, _REVEAL = range(5)
_LEG_NAMES = ("keys", "shares", "masked vectors", "signed survivors", "revealed shares")


class SecureSumCoordinator:
    """The coordinator of one secure sum, which sees only the messages.

    Owners may be missing in every leg. The first call for a payload of the next leg ends a leg:
    `directory`, `delivery`, `request` and, with signers, `evidence` are for owners that answered in
    the leg before, and later answers are refused.

    Parameters
    ----------
    plan : SumPlan
        Plan of the sum.
    signers : Signers, default=None
        Public keys of the owners.

    See Also
    --------
    SumPlan : States the guarantees and their conditions.
    SecureSumOwner : An owner's part.

    Notes
    -----
    Owners that are missing in the first two legs are left out. Owners that are missing in the third
    leg are dropped: the masks that they share with others are computed from their masking keys. In
    the last leg, any `local_threshold` shares of every secret are enough. Published points are
    checked in the second leg, those of a masking key together with its public key. Every revealed
    share is compared with its point. So an owner that deals or reveals wrong shares is found at
    once. An owner that sends a wrong vector spoils the sum, as it would without masks.

    Examples
    --------
    See :class:`SecureSumOwner`.

    >>> from skdpot.federation._secure_sum import SecureSumCoordinator, SumPlan
    >>> SecureSumCoordinator(SumPlan(n_owners=3, size=10, threshold=2, session=bytes(16)))
    SecureSumCoordinator(n_owners=3, size=10, n_answers=(0, 0, 0, 0))
    """

    def __init__(self, plan: SumPlan, signers: Signers | None = None) -> None:
        self._plan, self._signers = plan, signers
        self._leg = _KEYS
        self._keys: dict[int, np.ndarray] = {}
        self._signatures: dict[int, np.ndarray] = {}
        self._sealed: dict[int, np.ndarray] = {}
        # Points of the shares of seeds and of masking keys, by dealer and holder.
        self._points: dict[int, tuple[dict[int, bytes], dict[int, bytes]]] = {}
        self._survivors: set[int] = set()
        self._masked_sum = np.zeros(plan.size, dtype=np.uint64)
        self._consents: dict[int, np.ndarray] = {}
        self._revealed: dict[int, dict[int, bytes]] = {}
        self._total: np.ndarray | None = None

    def receive_keys(self, owner: int, payload: Mapping[str, np.ndarray]) -> None:
        """Accept the advertised keys of an owner, which the wire has authenticated.

        Like all receiving methods, it raises ValueError for an invalid, repeated or late payload.
        """
        subject = self._check_sender(owner, _KEYS, range(self._plan.n_owners), self._keys)
        keys, *signed = read_payload(
            payload, subject, keys=(np.uint8, (2, POINT_BYTES)), **self._expected()
        )
        known = {key.tobytes() for pair in self._keys.values() for key in pair}
        if len(known.union(key.tobytes() for key in keys)) < len(known) + len(keys):
            raise ValueError(f"{subject} has a key that is in use already.")
        for key in keys:
            try:
                check_public_key(key.tobytes())
            except ValueError:
                raise ValueError(f"{subject} has a key that is not valid.") from None
        self._take_signature(owner, KEYS, keys.tobytes(), signed)
        self._keys[owner] = keys

    def directory(self, owner: int) -> dict[str, np.ndarray]:
        """Return what `SecureSumOwner.share` needs; no keys are received any more.

        Raises ValueError if the owner did not advertise, and SecureSumError if too few owners did.
        """
        self._close(_KEYS, self._keys)
        self._check_present(owner, self._keys)
        near = self._neighbours(owner, self._keys)
        keys = [self._keys[other] for other in near]
        signed = {}
        if self._signers is not None:
            signed["signatures"] = np.vstack([self._signatures[other] for other in near])
        return {
            "owners": _owners_array(self._keys),
            "keys": np.array(keys, dtype=np.uint8).reshape(-1, 2, POINT_BYTES),
            **signed,
        }

    def receive_shares(self, owner: int, payload: Mapping[str, np.ndarray]) -> None:
        """Accept the encrypted shares that `SecureSumOwner.share` returned.

        The error is a FaultyOwnerError if they are not of one seed and of the advertised masking
        key.
        """
        subject = self._check_sender(owner, _SHARES, self._keys, self._sealed)
        near = self._neighbours(owner, self._keys)
        sealed, published = read_payload(
            payload,
            subject,
            shares=(np.uint8, (len(near), SEALED_BYTES)),
            points=(np.uint8, (2 * len(near) + 1, POINT_BYTES)),
        )
        points = [row.tobytes() for row in published]
        seed = dict(zip(sorted([owner, *near]), points, strict=False))
        masking = dict(zip(near, points[len(seed) :], strict=True))
        if not self._are_dealt(owner, seed, masking):
            raise FaultyOwnerError(f"{subject} are not all of one secret.", owner)
        self._sealed[owner], self._points[owner] = sealed, (seed, masking)

    def delivery(self, owner: int) -> dict[str, np.ndarray]:
        """Return the shares for `SecureSumOwner.opened`; none are received any more.

        Raises ValueError if the owner did not share its secrets, and SecureSumError if too few did.
        """
        self._close(_SHARES, self._sealed)
        self._check_present(owner, self._sealed)
        near = self._neighbours(owner, self._sealed)
        rows = [
            self._sealed[other][self._neighbours(other, self._keys).index(owner)] for other in near
        ]
        points = [half[owner] for other in near for half in self._points[other]]
        return {
            "owners": _owners_array(self._sealed),
            "shares": np.array(rows, dtype=np.uint8).reshape(-1, SEALED_BYTES),
            "points": np.frombuffer(b"".join(points), np.uint8).reshape(-1, 2, POINT_BYTES),
        }

    def receive_masked(self, owner: int, payload: Mapping[str, np.ndarray]) -> None:
        """Add the masked vector that `SecureSumOwner.mask` returned."""
        subject = self._check_sender(owner, _MASKED, self._sealed, self._survivors)
        (masked,) = read_payload(payload, subject, masked=(np.uint64, (self._plan.size,)))
        self._masked_sum += masked
        self._survivors.add(owner)

    def request(self, owner: int) -> dict[str, np.ndarray]:
        """Return the list of survivors; no masked vectors are received any more.

        It is for `SecureSumOwner.reveal`, and with signers for `SecureSumOwner.consent`. Raises
        ValueError if the owner is no survivor, and SecureSumError if too few survived, or they are
        not connected by neighbours.
        """
        if self._leg == _MASKED and not self._plan.hang_together(self._survivors):
            raise SecureSumError(
                "survivors are not all linked by neighbours, so they reveal nothing: sums over "
                "some of them would become known."
            )
        self._close(_MASKED, self._survivors)
        self._check_present(owner, self._survivors)
        return {"survivors": _owners_array(self._survivors)}

    def receive_consistency(self, owner: int, payload: Mapping[str, np.ndarray]) -> None:
        """Accept a survivor's signature of the survivors, from `SecureSumOwner.consent`."""
        subject = self._check_sender(owner, _CONSENT, self._survivors, self._consents)
        signed = read_payload(payload, subject, **self._expected())
        listed = survivors_as_signed(_owners_array(self._survivors))
        self._take_signature(owner, CONSENT, listed, signed)
        self._consents[owner] = self._signatures[owner]

    def evidence(self, owner: int) -> dict[str, np.ndarray]:
        """Return signatures of who survived, for `SecureSumOwner.reveal`; none come any more.

        Raises ValueError if the owner did not sign, and SecureSumError if too few owners did.
        """
        self._close(_CONSENT, self._consents)
        self._check_present(owner, self._consents)
        # As many as the threshold are enough, and every check takes time.
        signing = sorted(self._consents)[: self._plan.threshold]
        return {
            "survivors": _owners_array(self._survivors),
            "signers": np.array(signing, dtype=np.int64),
            "signatures": np.vstack([self._consents[other] for other in signing]),
        }

    def receive_reveal(self, owner: int, payload: Mapping[str, np.ndarray]) -> None:
        """Accept the shares that a survivor revealed, from `SecureSumOwner.reveal`."""
        expected = self._survivors if self._signers is None else self._consents
        subject = self._check_sender(owner, _REVEAL, expected, self._revealed)
        owners = [other for other in self._plan.holders(owner) if other in self._sealed]
        (shares,) = read_payload(payload, subject, shares=(np.uint8, (len(owners), KEY_BYTES)))
        revealed = {other: row.tobytes() for other, row in zip(owners, shares, strict=True)}
        for other, share in revealed.items():
            points = self._points[other][int(other not in self._survivors)]
            if not has_point(share, points[owner]):
                raise ValueError(f"{subject}: that of owner {other} is not what it was dealt.")
        self._revealed[owner] = revealed

    def total(self) -> np.ndarray:
        """Return the sum of the survivors' vectors modulo 2**64, in words.

        Raises a SecureSumError if survivors were not asked for shares yet, or too few shares have
        arrived so far.
        """
        if self._leg < _REVEAL:
            raise SecureSumError("there is no total before survivors are asked to reveal shares.")
        if self._total is None:
            self._total = self._unmasked()
        return self._total.copy()

    @property
    def survivors(self) -> tuple[int, ...]:
        """Return the owners whose vectors arrived, in ascending order."""
        return tuple(sorted(self._survivors))

    def __repr__(self) -> str:
        answers = self._keys, self._sealed, self._survivors, self._revealed
        return (
            f"{type(self).__name__}(n_owners={self._plan.n_owners}, size={self._plan.size}, "
            f"n_answers={tuple(len(of_leg) for of_leg in answers)})"
        )

    def _unmasked(self) -> np.ndarray:
        plan = self._plan
        total = self._masked_sum.copy()
        for owner in self.survivors:
            total -= own_mask(plan, owner, self._recover(owner, "seed"))
        for owner in sorted(set(self._sealed) - self._survivors):
            total += self._masks_against(owner)
        return total

    def _masks_against(self, dropped: int) -> np.ndarray | int:
        """Return the sum of a dropped owner's common masks, which nothing has cancelled yet."""
        neighbours = self._neighbours(dropped, self._survivors)
        if not neighbours:
            return 0
        private = self._recover(dropped, "masking key")
        masks = np.zeros(self._plan.size, dtype=np.uint64)
        for other in neighbours:
            public = self._keys[other][MASKING_ROW].tobytes()
            masks += common_mask(self._plan, dropped, other, private, public)
        return masks

    def _recover(self, owner: int, secret: str) -> bytes:
        """Return an owner's secret, from the revealed shares."""
        needed = self._plan.local_threshold
        holders = self._plan.holders(owner)
        used = [holder for holder in holders if holder in self._revealed][:needed]
        if len(used) < needed:
            raise SecureSumError(
                f"{len(used)} shares of the {secret} of owner {owner} were revealed, and {needed} "
                "are needed: too few survived."
            )
        points = [holders.index(holder) + 1 for holder in used]
        return combine_shares(points, [self._revealed[holder][owner] for holder in used])

    def _are_dealt(self, owner: int, seed: dict[int, bytes], masking: dict[int, bytes]) -> bool:
        """Tell whether the shares behind points give one seed, and the advertised masking key."""
        plan, key = self._plan, self._keys[owner][MASKING_ROW].tobytes()
        at = {holder: position for position, holder in enumerate(plan.holders(owner), 1)}
        try:
            return all(
                are_of_one_secret(known | {at[h]: shares[h] for h in shares}, plan.local_threshold)
                for known, shares in (({}, seed), ({0: key}, masking))
            )
        except ValueError:
            return False

    def _neighbours(self, owner: int, among: Mapping | set[int]) -> list[int]:
        return [other for other in self._plan.neighbours(owner) if other in among]

    def _check_sender(
        self, owner: int, leg: int, expected: Mapping | range | set[int], seen: Mapping | set[int]
    ) -> str:
        """Return the name of an owner's payload for errors; raise if none was expected."""
        self._plan.check_owner(owner)
        if leg != self._leg:
            when = "too late" if leg < self._leg else "too early"
            raise ValueError(f"the {_LEG_NAMES[leg]} of owner {owner} came {when}.")
        self._check_present(owner, expected)
        if owner in seen:
            raise ValueError(f"the {_LEG_NAMES[leg]} of owner {owner} came before.")
        return f"the {_LEG_NAMES[leg]} of owner {owner}"

    def _check_present(self, owner: int, expected: Mapping | range | set[int]) -> None:
        self._plan.check_owner(owner)
        if owner not in expected:
            raise ValueError(f"owner {owner} did not answer in the leg before.")

    def _close(self, leg: int, answers: Mapping | set[int]) -> None:
        """End a leg, unless it has ended; raise if too few owners answered."""
        if self._leg < leg:
            raise SecureSumError(f"no {_LEG_NAMES[leg]} can have arrived yet.")
        if self._leg > leg:
            return
        required = self._plan.threshold if leg == _CONSENT else self._plan.required
        if len(answers) < required:
            raise SecureSumError(
                f"{_LEG_NAMES[leg]} arrived from {len(answers)} of {self._plan.n_owners} owners, "
                f"and at least {required} must take part."
            )
        # Without signers, there is no leg of consistency.
        self._leg = leg + (2 if leg == _MASKED and self._signers is None else 1)

    def _expected(self) -> dict[str, tuple[type, tuple[int | None, ...]]]:
        """Return the type and shape of a payload's signature, if owners have keys."""
        return {} if self._signers is None else {"signatures": (np.uint8, (1, SIGNATURE_BYTES))}

    def _take_signature(
        self, owner: int, purpose: str, content: bytes, signed: list[np.ndarray]
    ) -> None:
        """Record an owner's signature, or raise if it is invalid."""
        if self._signers is not None:
            (self._signatures[owner],) = signed
            self._signers.check(self._plan, owner, purpose, content, signed[0].tobytes())


def _owners_array(owners: Mapping | set[int]) -> np.ndarray:
    return np.array(sorted(owners), dtype=np.int64)
