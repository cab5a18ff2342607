"""How a round's vectors are added up: as they are, or so that nobody sees more than the sum."""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skdpot.federation._summing import SECURE_LEGS, Coding, SecureAggregation, plan_of
from skdpot.federation._wire import Packet

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
    """

    legs: tuple[str, ...] = ("step",)

    def __init__(
        self, members: Sequence[str], task: dict[str, Any], arrays: dict[str, Any], letter: Letter
    ) -> None:
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
        self._vectors[name] = vector

    def needs(self, leg: str, missing: Sequence[str]) -> bool:
        """Return whether there is no sum without the missing owners."""
        return bool(missing)

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
    secure : SecureAggregation
        With a threshold.
    all_or_nothing : bool
        Whether a sum over fewer than all members is of no use, and must not be seen.
    """

    legs = SECURE_LEGS

    def __init__(
        self,
        members: Sequence[str],
        task: dict[str, Any],
        arrays: dict[str, Any],
        letter: Letter,
        secure: SecureAggregation,
        all_or_nothing: bool,
    ) -> None:
        from skdpot.federation._secure_sum import SecureSumCoordinator

        self.members, self.task, self.arrays, self._letter = tuple(members), task, arrays, letter
        self.attempt = secrets.token_hex(8)
        self._coding = Coding(task, len(members))
        self._all_or_nothing = all_or_nothing
        self._fields = {
            "plan": {
                "n_members": len(members),
                "size": task["size"],
                "threshold": secure.threshold,
                "n_neighbours": secure.n_neighbours,
                "all_or_nothing": all_or_nothing,
            }
        }
        begun = letter("keys", self.attempt, self._fields, {})
        plan = plan_of(self._fields["plan"], begun.session, begun.round, begun.attempt)
        self._sum = SecureSumCoordinator(plan)
        self._present = self.members

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

    def needs(self, leg: str, missing: Sequence[str]) -> bool:
        """Return whether there is no sum without the missing owners; else go on without them."""
        if leg != "reveal":
            self._present = tuple(name for name in self._present if name not in missing)
        return bool(missing) and leg != "reveal" and self._all_or_nothing

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
