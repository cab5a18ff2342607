"""Legs of rounds: messages to owners, answers, the record of both, and the error of a run."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ._keys import SigningKey
from ._wire import Packet, SignatureError, WireError, pack, unpack

_LONGEST_REASON = 500
# Kinds of answers; in legs of a secure sum they are the names of the legs.
_REPLIES = {"hello": "welcome", "step": "answer", "round": "answer", "finish": "done"}


class FederationError(RuntimeError):
    """Error: owners did not answer or refused, and the coordinator may not continue without them.

    Parameters
    ----------
    message : str
        The problem, and what to do.
    missing : mapping of str to str
        Reason for each missing owner, as the coordinator noticed it or the owner gave it. Reasons
        contain nothing private.
    """

    def __init__(self, message: str, missing: Mapping[str, str]) -> None:
        super().__init__(message)
        self.missing = dict(missing)


@dataclass(frozen=True)
class Crossing:
    """Record of the messages in one leg of a round: types of numbers, without their values.

    Attributes
    ----------
    round : int
        Number of the round, from 0; the greeting before it also has 0.
    leg : str
        ``"hello"``, ``"step"``, ``"finish"``, or a leg of secure aggregation: ``"keys"``,
        ``"shares"``, ``"check"``, ``"masked"``, with keys ``"consistency"``, ``"reveal"``.
    step : str
        The question of the coordinator in the round.
    n_asked : int
        Number of messages to owners, including repeated ones.
    n_answered : int
        Number of accepted answers.
    bytes_down : int
        Size of all messages to owners.
    bytes_up : int
        Size of all accepted answers.
    values_down : str
        Number and types of the numbers in a message to an owner, such as ``"242 int64"``.
    values_up : str
        The same for an answer.
    asked : dict of str to str
        SHA-256 digests of the messages to owners, by owner. They prove which message was sent.
        Comparisons ignore digests, because they differ between sessions.
    answered : dict of str to str
        Digests of the answers, by owner.
    """

    round: int
    leg: str
    step: str
    n_asked: int
    n_answered: int
    bytes_down: int
    bytes_up: int
    values_down: str = ""
    values_up: str = ""
    asked: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    answered: dict[str, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass
class Leg:
    """The questions of a leg of a round, and the answers so far.

    Parameters
    ----------
    kind : str
        Name of the leg.
    packets : dict of str to Packet
        Messages, by owner.
    accusable : sequence of str
        Owners that an owner may accuse, by their positions.

    Attributes
    ----------
    accusations : dict of str to str
        The owner that each accusing owner refuses to continue with.
    """

    kind: str
    packets: dict[str, Packet]
    accusable: Sequence[str] = ()
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
                packed[id(packet)] = data, digest_of_bytes(data)
            wanted[name], self._asked[name] = packed[id(packet)]
        self.n_tries += 1
        self._n_asked += len(wanted)
        self._bytes_down += sum(map(len, wanted.values()))
        return wanted

    def receive(
        self,
        name: str,
        data: bytes,
        public: str | None,
        accept: Callable[[str, Packet], tuple[str, str] | None],
    ) -> str | None:
        """Accept an owner's answer, or return why it is refused.

        The answer must have a valid signature of the key `public`, if one is given. `accept` takes
        the content, or returns the cause of a refusal and an explanation.
        """
        try:
            packet = unpack(data, public)
        except SignatureError:
            return self._refuse(name, "not signed", "its answer is not signed with its key")
        except WireError as error:
            return self._refuse(name, "malformed", f"its answer cannot be read: {error}")
        asked = self.packets.get(name)
        if asked is None or packet.sender != name:
            return "unknown sender"
        if (packet.session, packet.round, packet.attempt) != (
            asked.session, asked.round, asked.attempt,
        ):  # fmt: skip
            return "late"
        if name in self.accepted:
            return "repeated"
        if packet.kind == "refusal":
            accused = packet.fields.get("accused")
            if type(accused) is int and 0 <= accused < len(self.accusable):
                self.accusations[name] = self.accusable[accused]
            return self._refuse(name, "refusal", str(packet.fields.get("reason", "")))
        if packet.kind != _REPLIES.get(self.kind, self.kind):
            return "late"
        wrong = accept(name, packet)
        if wrong is not None:
            return self._refuse(name, *wrong)
        self.accepted.add(name)
        self.accusations.pop(name, None)
        self._bytes_up += len(data)
        self._answered[name], self._values_up = digest_of_bytes(data), _values_in(packet)
        return None

    def _refuse(self, name: str, cause: str, why: str) -> str:
        """Record why an answer is refused, in words that may be any text of the owner."""
        if name in self.packets:
            shown = "".join(letter if letter.isprintable() else " " for letter in why)
            self._reasons[name] = shown[:_LONGEST_REASON]
        return cause

    def crossing(self, number: int, step: str) -> Crossing:
        """Return the record of the messages."""
        step = "" if self.kind in ("hello", "finish") else step
        values_down = _values_in(next(iter(self.packets.values()), Packet("")))
        return Crossing(
            number, self.kind, step, self._n_asked, len(self.accepted), self._bytes_down,
            self._bytes_up, values_down, self._values_up, self._asked, self._answered,
        )  # fmt: skip


def digest_of_bytes(data: bytes) -> str:
    """Return the digest of a message by which both sides record it."""
    return hashlib.sha256(data).hexdigest()


def _values_in(packet: Packet) -> str:
    """Return the number and types of the numbers in a message."""
    sizes: Counter[str] = Counter()
    for array in packet.arrays.values():
        sizes[array.dtype.name] += array.size
    return ", ".join(f"{size} {kind}" for kind, size in sorted(sizes.items()))
