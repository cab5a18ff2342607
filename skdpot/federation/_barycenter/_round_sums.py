"""How a round's vectors are added up: as they are, or so that nobody sees more than the sum."""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._secure_aggregation import SECURE_LEGS, Coding, SecureAggregation, plan_of, task_digest
from .._secure_sum import LARGEST_NUMBER, SecureSumCoordinator
from .._wire import Packet

# Makes a message of a kind, of an attempt, from fields and arrays.
Letter = Callable[[str, str, dict[str, Any], dict[str, np.ndarray]], Packet]


class PlainRound:
    """A round in which the coordinator sees every owner's vector.

    Parameters
    ----------
    members : sequence of str
        Who is asked.
    task : dict
        What is asked, without arrays: ``"kind"``, ``"size"`` and ``"type"`` of the vector.
    arrays : dict of str to ndarray
        What comes with it.
    letter : callable
        Makes messages.
    all_or_nothing : bool
        Whether a sum over fewer than all members is of no use.
    """

    legs: tuple[str, ...] = ("step",)

    def __init__(
        self,
        members: Sequence[str],
        task: dict[str, Any],
        arrays: dict[str, Any],
        letter: Letter,
        all_or_nothing: bool,
    ) -> None:
        self._all_or_nothing = all_or_nothing
        self.members, self.task, self.arrays, self._letter = tuple(members), task, arrays, letter
        self.attempt = secrets.token_hex(8)
        self._vectors: dict[str, np.ndarray] = {}

    def messages(self, leg: str) -> dict[str, Packet]:
        """Return what is sent in a leg, by owner."""
        asked = self._letter(leg, self.attempt, {"step": self.task}, self.arrays)
        return dict.fromkeys(self.members, asked)

    def accept(self, leg: str, name: str, packet: Packet) -> None:
        """Take an owner's answer, or raise ValueError if it is none."""
        vector = packet.arrays.get("vector")
        if vector is None or vector.shape != (self.task["size"],):
            raise ValueError("the answer holds no vector of the length that was asked for.")
        if vector.dtype.name != self.task["type"]:
            raise ValueError("the answer is of another type.")
        # Then the sum is not beyond the range, whoever sends what.
        of_doubles = vector.dtype.kind == "f"
        largest = LARGEST_NUMBER if of_doubles else (2**63 - 1) // len(self.members)
        if not ((-largest <= vector) & (vector <= largest)).all():
            raise ValueError("the answer has numbers beyond the range of the sum.")
        self._vectors[name] = vector

    def close(self, leg: str, missing: Sequence[str]) -> bool:
        """End a leg; return whether there can be a sum without the missing owners."""
        return not (missing and self._all_or_nothing)

    def total(self) -> tuple[np.ndarray, int]:
        """Return the sum, in the order of members whatever the order of answers, and of how many.

        Returns
        -------
        total : ndarray of shape (size,)
            Doubles, or integers modulo ``2**64``.
        n_contributors : int
            How many vectors it is of.
        """
        total = np.zeros(self.task["size"], dtype=self.task["type"])
        for name in self.contributors:
            total += self._vectors[name]
        return total, len(self._vectors)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Return whose vectors are in the sum."""
        return tuple(name for name in self.members if name in self._vectors)


class SecureRound:
    """A round in which the coordinator sees masked vectors, and unmasks their sum.

    Parameters
    ----------
    members, task, arrays, letter
        As of a plain round; doubles have a ``"largest"`` magnitude in the task, too.
    all_or_nothing : bool
        Whether a sum over fewer than all members is of no use, and must not be seen.
    secure : SecureAggregation
        With a threshold.
    """

    legs = SECURE_LEGS

    def __init__(
        self,
        members: Sequence[str],
        task: dict[str, Any],
        arrays: dict[str, Any],
        letter: Letter,
        all_or_nothing: bool,
        secure: SecureAggregation,
    ) -> None:
        self.members, self.task, self.arrays, self._letter = tuple(members), task, arrays, letter
        self.attempt = secrets.token_hex(8)
        self._coding = Coding(task, len(members))
        self._all_or_nothing = all_or_nothing
        parameters = {
            "n_members": len(members),
            "size": task["size"],
            "threshold": secure.threshold,
            "n_neighbours": secure.n_neighbours,
            "all_or_nothing": all_or_nothing,
        }
        self._fields = {"plan": parameters, "task": task_digest(task, arrays)}
        begun = letter("keys", self.attempt, self._fields, {})
        self._plan = plan_of(self._fields | {"round": begun.round}, begun.session, begun.attempt)
        self._sum = SecureSumCoordinator(self._plan)
        self._present = self.members
        self._bound: tuple[str, ...] = ()

    def messages(self, leg: str) -> dict[str, Packet]:
        """Return what is sent in a leg, by owner: to those who answered in the leg before."""
        make = {"keys": self._keys, "shares": self._shares, "masked": self._masked}
        make["reveal"] = self._reveal
        return {name: make[leg](self.members.index(name)) for name in self._present}

    def accept(self, leg: str, name: str, packet: Packet) -> None:
        """Take an owner's answer, or raise ValueError if it is none."""
        take = {
            "keys": self._sum.receive_keys,
            "shares": self._sum.receive_shares,
            "masked": self._sum.receive_masked,
            "reveal": self._sum.receive_reveal,
        }
        take[leg](self.members.index(name), packet.arrays)
        if leg == "keys":
            self._bind(name, packet.fields.get("survivors"))

    def _bind(self, name: str, survivors: Any) -> None:
        """Heed that an owner helps to unmask this round's sum over certain members only.

        They are those of an attempt that failed as replies of the last leg were lost.
        """
        if not isinstance(survivors, list) or not all(type(one) is int for one in survivors):
            return
        bound = tuple(other for i, other in enumerate(self.members) if i in survivors)
        if name in bound and len(bound) >= self._plan.threshold:
            self._bound = bound

    def close(self, leg: str, missing: Sequence[str]) -> bool:
        """End a leg; return whether there can be a sum without the missing owners."""
        if leg == "reveal":
            return True
        self._present = tuple(name for name in self._present if name not in missing)
        if self._bound:
            self._present = tuple(name for name in self._present if name in self._bound)
        return set(self._present) >= set(self.members if self._all_or_nothing else self._bound)

    def total(self) -> tuple[np.ndarray, int]:
        """Return the sum and of how many vectors it is; raise RuntimeError if too few answered."""
        words = self._sum.total()
        return self._coding.decode(words), len(self._sum.survivors)

    @property
    def contributors(self) -> tuple[str, ...]:
        """Return whose vectors are in the sum."""
        return tuple(self.members[member] for member in self._sum.survivors)

    def _keys(self, member: int) -> Packet:
        return self._letter("keys", self.attempt, self._fields, {})

    def _shares(self, member: int) -> Packet:
        return self._letter("shares", self.attempt, {}, self._sum.directory(member))

    def _masked(self, member: int) -> Packet:
        delivered = self._sum.delivery(member)
        arrays = self.arrays | {f"delivered {name}": array for name, array in delivered.items()}
        return self._letter("masked", self.attempt, {"step": self.task}, arrays)

    def _reveal(self, member: int) -> Packet:
        return self._letter("reveal", self.attempt, {}, self._sum.request(member))
