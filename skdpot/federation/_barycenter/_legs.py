"""One leg of a round: the messages to owners, and the answers so far."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from .._keys import SigningKey
from .._wire import Packet, pack
from ._agreement import Crossing

_LONGEST_REASON = 500


@dataclass
class Leg:
    """The questions of a leg of a round, and the answers so far.

    Parameters
    ----------
    kind : str
        Name of the leg.
    packets : dict of str to Packet
        Messages, by owner.

    Attributes
    ----------
    accusations : dict of str to str
        The owner that each accusing owner refuses to continue with.
    """

    kind: str
    packets: dict[str, Packet]
    accepted: set[str] = field(default_factory=set)
    n_tries: int = 0
    accusations: dict[str, str] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)
    _n_asked: int = 0
    _bytes_down: int = 0
    _bytes_up: int = 0
    _asked: dict[str, str] = field(default_factory=dict)
    _answered: dict[str, str] = field(default_factory=dict)
    _values_up: str = ""

    @property
    def missing(self) -> list[str]:
        """Return the asked owners that have not answered."""
        return [name for name in self.packets if name not in self.accepted]

    @property
    def why(self) -> dict[str, str]:
        """Return the reasons of the missing owners, by name."""
        return {name: self._reasons.get(name, "no answer") for name in self.missing}

    def messages(self, key: SigningKey | None = None) -> dict[str, bytes]:
        """Return the signed messages to the missing owners; this counts as a try."""
        packed: dict[int, tuple[bytes, str]] = {}
        wanted = {}
        for name in self.missing:
            packet = self.packets[name]
            if id(packet) not in packed:
                data = pack(packet, key)
                packed[id(packet)] = data, _digest(data)
            wanted[name], self._asked[name] = packed[id(packet)]
        self.n_tries += 1
        self._n_asked += len(wanted)
        self._bytes_down += sum(map(len, wanted.values()))
        return wanted

    def accept(self, name: str, data: bytes, packet: Packet) -> None:
        """Record an owner's answer."""
        self.accepted.add(name)
        self.accusations.pop(name, None)
        self._bytes_up += len(data)
        self._answered[name], self._values_up = _digest(data), _values_in(packet)

    def note(self, name: str, reason: str) -> None:
        """Record why an answer is not accepted; the reason may contain any text of the owner."""
        shown = "".join(letter if letter.isprintable() else " " for letter in reason)
        self._reasons[name] = shown[:_LONGEST_REASON]

    def crossing(self, number: int, step: str) -> Crossing:
        """Return the record of the messages."""
        step = "" if self.kind in ("hello", "finish") else step
        values_down = _values_in(next(iter(self.packets.values()), Packet("")))
        return Crossing(
            number, self.kind, step, self._n_asked, len(self.accepted), self._bytes_down,
            self._bytes_up, values_down, self._values_up, self._asked, self._answered,
        )  # fmt: skip


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _values_in(packet: Packet) -> str:
    """Return the number and types of the numbers in a message."""
    sizes: Counter[str] = Counter()
    for array in packet.arrays.values():
        sizes[array.dtype.name] += array.size
    return ", ".join(f"{size} {kind}" for kind, size in sorted(sizes.items()))
