"""One owner's part of a secure sum."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ._crypto import KEY_BYTES, POINT_BYTES, check_public_key, new_secret, point_of, split_secret
from ._masks import (
    MASKING,
    MASKING_ROW,
    SEALED_BYTES,
    SEALING_ROW,
    SEED,
    SHARES_BYTES,
    common_mask,
    own_mask,
    points_of_shares,
    seal_shares,
    unseal_shares,
)
from ._signers import CONSENT, KEYS, Signers, signatures_of, survivors_as_signed
from ._sum_plan import SecureSumError, SumPlan, read_owners, read_payload

_LEGS = ("advertise", "share", "mask", "consent", "reveal")
_Arrays = dict[str, tuple[type, tuple[int | None, ...]]]
_SECRETS: _Arrays = dict.fromkeys(("sealing_key", "masking_key", "seed"), (np.uint8, (KEY_BYTES,)))
_HELD: _Arrays = {"sharers": (np.int64, (None,)), "shares": (np.uint8, (None, SHARES_BYTES))}
# Arrays that an owner keeps, by the number of completed legs.
_KEPT: tuple[_Arrays, ...] = (
    {},
    _SECRETS,
    {
        **_SECRETS,
        "owners": (np.int64, (None,)),
        "keys": (np.uint8, (None, 2, POINT_BYTES)),
        "own_share": (np.uint8, (SHARES_BYTES,)),
    },
    _HELD,
    {**_HELD, "survivors": (np.int64, (None,))},
    {},
)


class SecureSumOwner:
    """One owner's part of one secure sum.

    Call `advertise`, `share`, `mask` and `reveal` once each, in this order, and with signers
    `consent` before the last. An invalid payload is refused before anything changes, so a correct
    one can follow.

    Parameters
    ----------
    plan : SumPlan
        Plan of the sum. It must come from a trusted source, or be checked.
    owner : int
        Number of this owner.
    signers : Signers, default=None
        Public keys of all owners, and the private key of this one.

    Raises
    ------
    ValueError
        If there is no such owner.

    See Also
    --------
    SumPlan : States the guarantees and their conditions.
    SecureSumCoordinator : The coordinator's part.

    Notes
    -----
    For each neighbour, an owner reveals the share of its seed or that of its masking key, never
    both. Both shares from enough owners would unmask the neighbour's vector.

    It can be neither pickled nor copied. `state` stores it between legs. Secrets are dropped from
    it as soon as they are not needed, as far as Python can.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._secure_sum import SecureSumOwner, SecureSumCoordinator, SumPlan
    >>> plan = SumPlan(n_owners=3, size=2, threshold=2, session=bytes(16))
    >>> coordinator = SecureSumCoordinator(plan)
    >>> owners = [SecureSumOwner(plan, owner) for owner in range(3)]
    >>> for i, owner in enumerate(owners):
    ...     coordinator.receive_keys(i, owner.advertise())
    >>> for i, owner in enumerate(owners):
    ...     coordinator.receive_shares(i, owner.share(coordinator.directory(i)))
    >>> for i, owner in enumerate(owners[:2]):  # the last one is gone
    ...     vector = np.array([i + 1, 10], dtype=np.uint64)
    ...     opened = owner.opened(coordinator.delivery(i))
    ...     coordinator.receive_masked(i, owner.mask(vector, opened))
    >>> for i, owner in enumerate(owners[:2]):
    ...     coordinator.receive_reveal(i, owner.reveal(coordinator.request(i)))
    >>> coordinator.total(), coordinator.survivors
    (array([ 3, 20], dtype=uint64), (0, 1))
    """

    def __init__(self, plan: SumPlan, owner: int, signers: Signers | None = None) -> None:
        plan.check_owner(owner)
        self._plan, self._signers = plan, signers
        self._owner = int(owner)
        self._n_done = 0
        self._kept: dict[str, np.ndarray] = {}

    def advertise(self) -> dict[str, np.ndarray]:
        """Draw the secrets, once, and return their public keys.

        That is ``keys``, uint8 of shape (2, 33); with signers also ``signatures``, uint8 of shape
        (1, 64).
        """
        self._check_turn("advertise")
        secrets = {name: new_secret() for name in _SECRETS}
        public = point_of(secrets["sealing_key"]) + point_of(secrets["masking_key"])
        self._finish("advertise", {name: _bytes_array(value) for name, value in secrets.items()})
        return {
            "keys": _bytes_array(public).reshape(2, POINT_BYTES),
            **signatures_of(self._signers, self._plan, self._owner, KEYS, public),
        }

    def share(self, directory: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the secrets split among the neighbours.

        `directory` has ``owners``, int64: those that advertised, in ascending order; and ``keys``,
        uint8 of shape (n, 2, 33), of the neighbours among them, in this order. With signers also
        their ``signatures``, uint8 of shape (n, 64).

        Returns ``shares``, uint8 of shape (n, 80): encrypted for these neighbours; and ``points``,
        uint8 of shape (2 n + 1, 33): first of the shares of the seed, for these neighbours and this
        owner in ascending order; then of the shares of the masking key, for the neighbours.

        Raises ValueError if the directory is invalid or has too few owners, and SecureSumError if
        another method must be called first, or this one was called before.
        """
        self._check_turn("share")
        plan, owner = self._plan, self._owner
        expected: _Arrays = {
            "owners": (np.int64, (None,)),
            "keys": (np.uint8, (None, 2, POINT_BYTES)),
        }
        if self._signers is not None:
            expected["signatures"] = np.uint8, (None, 64)
        named, keys, *signed = read_payload(directory, "the directory", **expected)
        owners = read_owners(named, range(plan.n_owners), "the directory")
        neighbours = self._check_present(owners, "the directory")
        self._check_keys(neighbours, keys, signed)

        split = np.hstack(
            [
                split_secret(self._secret(name), plan.local_threshold, len(plan.holders(owner)))
                for name in ("seed", "masking_key")
            ]
        )
        of_holder = dict(zip(plan.holders(owner), split, strict=True))
        points = {
            holder: points_of_shares(of_holder[holder].tobytes())
            for holder in sorted([owner, *neighbours])
        }
        private = self._secret("sealing_key")
        sealed = b"".join(
            seal_shares(
                plan, owner, other, private, key[SEALING_ROW].tobytes(),
                of_holder[other].tobytes(), points[other],
            )
            for other, key in zip(neighbours, keys, strict=True)
        )  # fmt: skip
        published = [of_two[:POINT_BYTES] for of_two in points.values()]
        # It never reveals its own share of its masking key.
        published += [points[other][POINT_BYTES:] for other in neighbours]
        further = {"owners": named, "keys": keys, "own_share": of_holder[owner].copy()}
        self._finish("share", self._kept | further)
        return {
            "shares": _bytes_array(sealed).reshape(len(neighbours), SEALED_BYTES),
            "points": _bytes_array(b"".join(published)).reshape(-1, POINT_BYTES),
        }

    def opened(self, delivered: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Check and return the shares for this owner, before `mask`.

        `delivered` has ``owners``, int64: those that shared, in ascending order; and ``shares`` and
        ``points``, uint8 of shapes (n, 80) and (n, 2, 33): the sealed shares of the neighbours
        among them for this owner, and their published points, in this order.

        Returns the argument of `mask`: the ``sharers``, and the ``shares`` that this owner holds.

        Raises ValueError if the payload is invalid or has too few owners. It is a FaultyOwnerError
        if shares were not sealed by their sender, for this owner and in this sum, or do not match
        their points. Raises SecureSumError if it is not the turn of `mask`.
        """
        self._check_turn("mask")
        plan, owner, subject = self._plan, self._owner, "what was delivered"
        named, sealed, points = read_payload(
            delivered,
            subject,
            owners=(np.int64, (None,)),
            shares=(np.uint8, (None, SEALED_BYTES)),
            points=(np.uint8, (None, 2, POINT_BYTES)),
        )
        known = self._kept["owners"].tolist()
        neighbours = self._check_present(read_owners(named, known, subject), subject)
        if not len(sealed) == len(points) == len(neighbours):
            raise ValueError(f"{subject} must have shares of {len(neighbours)} neighbours.")
        held, private = {owner: self._kept["own_share"]}, self._secret("sealing_key")
        keys = dict(zip(self._neighbours_among(known), self._kept["keys"], strict=True))
        for other, row, published in zip(neighbours, sealed, points, strict=True):
            public = keys[other][SEALING_ROW].tobytes()
            held[other] = _bytes_array(
                unseal_shares(
                    plan, other, owner, private, public, row.tobytes(), published.tobytes()
                )
            )
        return {"sharers": named, "shares": np.array([held[other] for other in sorted(held)])}

    def mask(self, vector: np.ndarray, opened: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return this owner's vector, uint64 of shape (size,), under masks.

        `opened` is the result of the method `opened`. Returns ``masked``, uint64 of shape (size,).
        Raises ValueError if the vector is invalid, and SecureSumError like `share`.
        """
        self._check_turn("mask")
        plan, owner = self._plan, self._owner
        if not isinstance(vector, np.ndarray) or vector.dtype != np.uint64:
            raise ValueError("vector must be an array of uint64.")
        if vector.shape != (plan.size,):
            raise ValueError(f"vector must have the shape ({plan.size},), got {vector.shape}.")
        masked = vector + own_mask(plan, owner, self._secret("seed"))
        private, known = self._secret("masking_key"), self._kept["owners"].tolist()
        keys = dict(zip(self._neighbours_among(known), self._kept["keys"], strict=True))
        for other in self._neighbours_among(opened["sharers"].tolist()):
            masked += common_mask(plan, owner, other, private, keys[other][MASKING_ROW].tobytes())
        self._finish("mask", opened)
        return {"masked": masked}

    def consent(self, request: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Sign the list of survivors, which is the only one that this owner signs.

        `request` has ``survivors``, int64: owners whose masked vectors arrived, in ascending order.
        Returns, with signers, ``signatures``, uint8 of shape (1, 64).

        Raises ValueError if survivors never shared, are too few, are not connected by neighbours,
        or do not include this owner, and SecureSumError like `share`.
        """
        self._check_turn("consent")
        plan, subject = self._plan, "the request"
        (named,) = read_payload(request, subject, survivors=(np.int64, (None,)))
        survivors = read_owners(named, self._kept["sharers"].tolist(), subject)
        self._check_enough(survivors, subject)
        if not plan.hang_together(survivors):
            raise ValueError(
                f"{subject} names survivors that are not all linked by neighbours: sums over some "
                "of them would become known."
            )
        self._finish("consent", self._kept | {"survivors": named})
        return signatures_of(self._signers, plan, self._owner, CONSENT, survivors_as_signed(named))

    def reveal(self, request: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the shares that unmask the sum.

        `request` has ``survivors``, as for `consent`, which need not be called before without
        signers. With signers also ``signers``, int64: `threshold` owners among the survivors, in
        ascending order; and ``signatures``, uint8 of shape (n, 64): theirs of the same list.

        Returns ``shares``, uint8 of shape (n, 32), of this owner and its neighbours that shared, in
        ascending order: of the seed of a survivor, and of the masking key of any other.

        Raises ValueError if the request is invalid or too few have signed the same list, and
        SecureSumError like `share`.
        """
        if self._signers is None and self._n_done == _LEGS.index("consent"):
            self.consent(request)
        self._check_turn("reveal")
        if self._signers is not None:
            self._check_consents(self._signers, request)
        sharers, survivors = set(self._kept["sharers"].tolist()), self._kept["survivors"].tolist()
        holders = [other for other in self._plan.holders(self._owner) if other in sharers]
        revealed = np.array(
            [
                share[SEED if other in set(survivors) else MASKING]
                for other, share in zip(holders, self._kept["shares"], strict=True)
            ]
        )
        self._finish("reveal", {})
        return {"shares": revealed}

    def state(self) -> dict[str, np.ndarray]:
        """Return the state to continue from in another process.

        Returns
        -------
        dict of str to ndarray
            Arrays of uint8 and int64, with secret keys: store them on this owner's own disk only.
            Keep only the last state: an old one would answer again, and reveal both secrets.
        """
        place = {
            "context": _bytes_array(self._plan.context),
            "position": np.array([self._owner, self._n_done]),
        }
        return place | {name: array.copy() for name, array in self._kept.items()}

    @classmethod
    def from_state(
        cls,
        plan: SumPlan,
        owner: int,
        state: Mapping[str, np.ndarray],
        signers: Signers | None = None,
    ) -> "SecureSumOwner":
        """Return an owner that continues from a state; do not use the former owner any more.

        `state` is the last result of the method `state`. Raises ValueError if it is invalid, or
        from another sum or owner.
        """
        restored = cls(plan, owner, signers)
        place: _Arrays = {"context": (np.uint8, (KEY_BYTES,)), "position": (np.int64, (2,))}
        context, position = read_payload(
            {name: state[name] for name in place if name in state}, "the state", **place
        )
        if context.tobytes() != plan.context or position[0] != owner:
            raise ValueError("the state is that of another sum or of another owner.")
        if not 0 <= position[1] < len(_KEPT):
            raise ValueError("the state is of an unknown leg.")
        expected = _KEPT[position[1]]
        kept = {name: array for name, array in state.items() if name not in place}
        arrays = read_payload(kept, "the state", **expected) if expected or kept else []
        restored._kept = dict(zip(expected, arrays, strict=True))
        restored._n_done = int(position[1])
        return restored

    def __repr__(self) -> str:
        done = _LEGS[: self._n_done]
        return (
            f"{type(self).__name__}(owner={self._owner}, n_owners={self._plan.n_owners}, "
            f"done={done!r})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} holds secrets that are used once, and cannot be pickled or "
            "copied; `state` stores it."
        )

    def _check_turn(self, leg: str) -> None:
        position = _LEGS.index(leg)
        if position < self._n_done:
            raise SecureSumError(f"{leg} was called before: it is answered once in a sum.")
        if position > self._n_done:
            raise SecureSumError(f"{leg} was called before {_LEGS[self._n_done]}.")

    def _finish(self, leg: str, kept: dict[str, np.ndarray]) -> None:
        self._n_done = _LEGS.index(leg) + 1
        self._kept = kept

    def _secret(self, name: str) -> bytes:
        return self._kept[name].tobytes()

    def _neighbours_among(self, owners: list[int]) -> list[int]:
        present = set(owners)
        return [other for other in self._plan.neighbours(self._owner) if other in present]

    def _check_enough(self, owners: list[int], subject: str) -> None:
        """Raise unless this owner and enough others are present."""
        if self._owner not in owners:
            raise ValueError(f"{subject} does not name this owner, {self._owner}.")
        if len(owners) < self._plan.required:
            raise ValueError(
                f"{subject} names {len(owners)} of {self._plan.n_owners} owners, and at least "
                f"{self._plan.required} must take part."
            )

    def _check_present(self, owners: list[int], subject: str) -> list[int]:
        """Return the present neighbours, or raise if they are too few to continue."""
        self._check_enough(owners, subject)
        neighbours = self._neighbours_among(owners)
        needed = self._plan.local_threshold - 1
        if len(neighbours) < needed:
            raise ValueError(
                f"{subject} names {len(neighbours)} neighbours of owner {self._owner}, and at "
                f"least {needed} are needed to take its masks off."
            )
        return neighbours

    def _check_keys(
        self, neighbours: list[int], keys: np.ndarray, signed: list[np.ndarray]
    ) -> None:
        """Raise unless keys are valid, new and signed by their owners."""
        if any(len(rows) != len(neighbours) for rows in (keys, *signed)):
            raise ValueError(f"the directory must have keys of {len(neighbours)} neighbours.")
        seen = {point_of(self._secret(name)) for name in ("sealing_key", "masking_key")}
        for other, pair in zip(neighbours, keys, strict=True):
            for key in pair:
                _check_key(key.tobytes(), seen, other)
        if self._signers is not None:
            for other, pair, signature in zip(neighbours, keys, *signed, strict=True):
                self._signers.check(self._plan, other, KEYS, pair.tobytes(), signature.tobytes())

    def _check_consents(self, signers: Signers, request: Mapping[str, np.ndarray]) -> None:
        """Raise unless as many owners as the threshold have signed the same list as this one."""
        subject = "the request"
        named, signing, signatures = read_payload(
            request,
            subject,
            survivors=(np.int64, (None,)),
            signers=(np.int64, (None,)),
            signatures=(np.uint8, (None, 64)),
        )
        survivors = self._kept["survivors"]
        if not np.array_equal(named, survivors):
            raise ValueError(f"{subject} names other survivors than this owner has signed.")
        owners = read_owners(signing, survivors.tolist(), subject)
        if len(signatures) != len(owners) or len(owners) < self._plan.threshold:
            raise ValueError(
                f"{subject} must have the signatures of {self._plan.threshold} survivors at least."
            )
        listed = survivors_as_signed(named)
        for other, signature in zip(owners, signatures, strict=True):
            signers.check(self._plan, other, CONSENT, listed, signature.tobytes())


def _check_key(key: bytes, seen: set[bytes], other: int) -> None:
    """Raise unless a key is valid and new, and add it to the seen ones."""
    if key in seen:
        raise ValueError(f"the directory has a key of owner {other} a second time.")
    try:
        check_public_key(key)
    except ValueError:
        raise ValueError(f"the directory has no valid key of owner {other}.") from None
    seen.add(key)


def _bytes_array(value: Any) -> np.ndarray:
    return np.frombuffer(value, dtype=np.uint8).copy()
