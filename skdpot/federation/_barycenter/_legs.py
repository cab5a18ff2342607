"""One leg of a round: the messages to owners, and the answers so far."""

from dataclasses import dataclass, field

from .._wire import Packet, pack
from ._agreement import Crossing

_LONGEST_REASON = 500


@dataclass
class Leg:
    """What is asked in a leg of a round, and what was answered so far.

    Parameters
    ----------
    kind : str
        Which leg it is.
    packets : dict of str to Packet
        What is asked, by owner.
    """

    kind: str
    packets: dict[str, Packet]
    accepted: set[str] = field(default_factory=set)
    n_tries: int = 0
    _reasons: dict[str, str] = field(default_factory=dict)
    _n_asked: int = 0
    _bytes_down: int = 0
    _bytes_up: int = 0

    @property
    def missing(self) -> list[str]:
        """Who was asked, and has not answered."""
        return [name for name in self.packets if name not in self.accepted]

    @property
    def why(self) -> dict[str, str]:
        """Why, by the names of those who are missing."""
        return {name: self._reasons.get(name, "no answer") for name in self.missing}

    def messages(self) -> dict[str, bytes]:
        """Return what is to be sent to those who are missing, once more."""
        packed: dict[int, bytes] = {}
        wanted = {}
        for name in self.missing:
            packet = self.packets[name]
            if id(packet) not in packed:
                packed[id(packet)] = pack(packet)
            wanted[name] = packed[id(packet)]
        self.n_tries += 1
        self._n_asked += len(wanted)
        self._bytes_down += sum(map(len, wanted.values()))
        return wanted

    def accept(self, name: str, n_bytes: int) -> None:
        """Note that an owner answered."""
        self.accepted.add(name)
        self._bytes_up += n_bytes

    def note(self, name: str, reason: str) -> None:
        """Note why an owner's answer is not accepted: it may have written anything."""
        shown = "".join(letter if letter.isprintable() else " " for letter in reason)
        self._reasons[name] = shown[:_LONGEST_REASON]

    def crossing(self, number: int, step: str) -> Crossing:
        """Return what crossed the wire."""
        step = "" if self.kind in ("hello", "finish") else step
        n_answered = len(self.accepted)
        return Crossing(
            number, self.kind, step, self._n_asked, n_answered, self._bytes_down, self._bytes_up
        )
