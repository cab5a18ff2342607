"""Sums over owners in one round: of plain vectors, or under secure aggregation."""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpot.releases import median_of_parts

from .._secure_aggregation import (
    SECURE_LEGS,
    SIGNED_LEGS,
    Coding,
    Roster,
    SecureAggregation,
    plan_of,
    signers_of,
    task_digest,
)
from .._secure_sum import LARGEST_NUMBER, SecureSumCoordinator
from .._wire import Packet
from ._group_release import RELEASE

# Takes a vector, and its owner or the owners of a sum; raises OutOfRange if it is impossible.
Check = Callable[[np.ndarray, Sequence[str]], None]
# Makes a message from its kind, attempt, fields and arrays.
Letter = Callable[[str, str, dict[str, Any], dict[str, np.ndarray]], Packet]


class OutOfRange(ValueError):
    """An owner's message is impossible by public facts; the error states the range."""


@dataclass
class PlainRound:
    """A round in which the coordinator sees every owner's vector.

    The task is the question without arrays: ``"kind"``, ``"size"`` and ``"type"`` of the vector;
    for doubles in a secure sum, also the ``"largest"`` magnitude. With `all_or_nothing` a sum over
    fewer than all owners is useless, and must not be unmasked. `check` gets every vector, or the
    sum if vectors are masked.
    """

    owners: tuple[str, ...]
    task: dict[str, Any]
    arrays: dict[str, Any]
    letter: Letter
    all_or_nothing: bool
    check: Check

    def __post_init__(self) -> None:
        self.attempt = secrets.token_urlsafe(8)
        self._vectors: dict[str, np.ndarray] = {}

    @property
    def legs(self) -> tuple[str, ...]:
        """Return the legs of the round."""
        return ("step",)

    def messages(self, leg: str) -> dict[str, Packet]:
        """Return the messages of a leg, by owner."""
        asked = self.letter(leg, self.attempt, {"step": self.task}, self.arrays)
        return dict.fromkeys(self.owners, asked)

    def accept(self, leg: str, name: str, packet: Packet) -> None:
        """Accept an owner's answer, or raise ValueError if it is invalid."""
        vector = packet.arrays.get("vector")
        if vector is None or vector.shape != (self.task["size"],):
            raise ValueError("the answer holds no vector of the length that was asked for.")
        if vector.dtype.name != self.task["type"]:
            raise ValueError("the answer is of another type.")
        # Then no owner can move the sum out of its range.
        of_doubles = vector.dtype.kind == "f"
        largest = LARGEST_NUMBER if of_doubles else (2**63 - 1) // len(self.owners)
        if not ((-largest <= vector) & (vector <= largest)).all():
            raise ValueError("the answer has numbers beyond the range of the sum.")
        self.check(vector, (name,))
        self._vectors[name] = vector

    def close(self, leg: str, missing: Sequence[str]) -> bool:
        """End a leg; return whether there can be a sum without the missing owners."""
        return not (missing and self.all_or_nothing)

    def total(self) -> tuple[np.ndarray, int]:
        """Return the sum of doubles, or of integers modulo ``2**64``, and the number of vectors.

        Vectors are added in the order of owners, not of answers.
        """
        total = np.zeros(self.task["size"], dtype=self.task["type"])
        for name in self.contributors:
            total += self._vectors[name]
        return total, len(self._vectors)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Return the owners whose vectors are in the sum."""
        return tuple(name for name in self.owners if name in self._vectors)


@dataclass
class MedianRound(PlainRound):
    """A round of a release that takes the median over owners, instead of the sum."""

    # Number of rows that each owner declared.
    rows: Mapping[str, int]

    def total(self) -> tuple[np.ndarray, int]:
        """Return the sum if all owners were like the median one, and the number of vectors."""
        parts = np.array([self._vectors[name] for name in self.contributors])
        return median_of_parts(parts, [self.rows[name] for name in self.contributors]), len(parts)


@dataclass
class SecureRound(PlainRound):
    """A round in which the coordinator sees masked vectors, and unmasks their sum."""

    # With a threshold.
    secure: SecureAggregation
    # Owners that spoilt an attempt at this round, and are left out.
    without: Collection[str] = ()
    roster: Roster = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        task, secure = self.task, self.secure
        self._coding = Coding(task, len(self.owners))
        parameters = {
            "n_owners": len(self.owners),
            "size": task["size"],
            "threshold": secure.threshold,
            "n_neighbours": secure.n_neighbours,
            "all_or_nothing": self.all_or_nothing,
        }
        self._fields = {"plan": parameters, "task": task_digest(task, self.arrays)}
        begun = self.letter("keys", self.attempt, self._fields, {})
        said = self._fields | {"round": begun.round}
        self._plan = plan_of(said, begun.session, begun.attempt, self.roster)
        self._sum = SecureSumCoordinator(self._plan, signers_of(self.roster))
        self._present = tuple(name for name in self.owners if name not in self.without)
        self._bound: tuple[str, ...] = ()

    @property
    def legs(self) -> tuple[str, ...]:
        """Return the legs of the round."""
        legs = SIGNED_LEGS if self.roster else SECURE_LEGS
        costs = self.task["kind"] == RELEASE
        return tuple(leg for leg in legs if costs or leg != "check")

    def messages(self, leg: str) -> dict[str, Packet]:
        """Return the messages of a leg, by owner, for owners that answered in the leg before."""
        return {
            name: self.letter(leg, self.attempt, *self._asked(leg, self.owners.index(name)))
            for name in self._present
        }

    def _asked(self, leg: str, owner: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return fields and arrays of the message to an owner in a leg."""
        if leg == "keys":
            return self._fields, {}
        if leg == "shares":
            return {}, self._sum.directory(owner)
        if leg == "reveal" and self.roster:
            return {}, self._sum.evidence(owner)
        if leg in ("consistency", "reveal"):
            return {}, self._sum.request(owner)
        delivered = self._sum.delivery(owner)
        arrays = {f"delivered {name}": array for name, array in delivered.items()}
        return {"step": self.task}, self.arrays | arrays

    def accept(self, leg: str, name: str, packet: Packet) -> None:
        """Accept an owner's answer, or raise ValueError if it is invalid."""
        if leg == "check":
            return
        getattr(self._sum, f"receive_{leg}")(self.owners.index(name), packet.arrays)
        if leg == "keys":
            self._bind(name, packet.fields.get("survivors"))

    def _bind(self, name: str, survivors: Any) -> None:
        """Bind this attempt to the owners for which an owner has already revealed its shares.

        This happens if an attempt failed because replies of its last leg were lost.
        """
        if not isinstance(survivors, list) or not all(type(one) is int for one in survivors):
            return
        bound = tuple(other for i, other in enumerate(self.owners) if i in survivors)
        if name in bound and len(bound) >= self._plan.threshold:
            self._bound = bound

    def close(self, leg: str, missing: Sequence[str]) -> bool:
        """End a leg; return whether there can be a sum without the missing owners."""
        if leg == "reveal":
            return True
        self._present = tuple(name for name in self._present if name not in missing)
        if leg == "consistency":
            return True
        if self._bound:
            self._present = tuple(name for name in self._present if name in self._bound)
        return set(self._present) >= set(self.owners if self.all_or_nothing else self._bound)

    def total(self) -> tuple[np.ndarray, int]:
        """Return the sum, and the number of vectors in it.

        Raises RuntimeError if too few owners answered, and OutOfRange if the sum is impossible.
        """
        total = self._coding.decode(self._sum.total())
        self.check(total, self.contributors)
        return total, len(self._sum.survivors)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Return the owners whose vectors are in the sum."""
        return tuple(self.owners[owner] for owner in self._sum.survivors)


def at_fault(accusations: Mapping[str, str], threshold: int) -> dict[str, str]:
    """Return the owners to leave out of the next attempt, with reasons.

    `accusations` maps an accusing owner to the one whose shares it cannot use. Fewer owners than
    the threshold lie. So if as many as the threshold accuse an owner, one of them is honest, and
    the accused is left out. Otherwise it is unknown who lies, and accuser and accused are left out
    in pairs. Then at most one honest owner is left out for every liar.
    """
    counts, left_out = Counter(accusations.values()), {}
    for accuser, accused in accusations.items():
        says = f"{accuser} says that it dealt wrong shares"
        if counts[accused] >= threshold:
            left_out[accused] = f"{counts[accused]} owners say that it dealt wrong shares"
        elif not {accuser, accused} & set(left_out):
            left_out |= {accused: says, accuser: f"it says that {accused} dealt wrong shares"}
    return left_out
