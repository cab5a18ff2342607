"""An owner's memory of its sessions."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._keys import SigningKey
from .._secure_aggregation import SECURE_LEGS, SIGNED_LEGS, plan_of, signers_of
from .._secure_sum import SecureSumOwner
from .._session_names import is_from_before, later
from .._wire import Arrays, Packet, pack, unpack

# A message that went astray may begin a session that nobody goes on with, so that there must be
# room for some beside the one that counts; and for names of sessions and attempts that are over.
_MOST_SESSIONS = 8
_MOST_PAST = 512
_MOST_ATTEMPTS = 64

_FIELDS = (
    "name", "owner", "n_owners", "secure", "roster", "round", "task", "attempts", "plan", "token",
    "sizes", "charged",
)  # fmt: skip


@dataclass(repr=False, eq=False)
class Session:
    """How far an owner is in a session: what it was asked last, and what it answered.

    Attributes
    ----------
    name : str
        That of the session.
    owner, n_owners : int
        Which of how many owners the owner is.
    secure : bool
        Whether sums are secure in it.
    roster : list of [str, str]
        Names and public keys of all owners, if they have keys.
    round : int
        Number of the last round that was answered, -1 before the first.
    task : str
        What was asked in it.
    vector : ndarray
        What was answered: private, unless it is a part with all of its noise.
    token : str
        Under which the release that was answered is charged, empty where none was drawn.
    sizes : list of int
        Numbers of records and parts of this release.
    charged : bool
        Whether the release is charged; until then nothing leaves.
    survivors : tuple of int
        Over which owners the owner helped to unmask the sum of this round.
    attempts : list of str
        Attempts at secure sums that have begun; the last one may go on.
    plan : dict
        What was said of the last one.
    sum : SecureSumOwner or None
        The owner's part in it.
    replies : dict of str to (str, bytes)
        Digest of what was asked in every leg of it, and the reply.
    steps : dict of str to ndarray
        State of the algorithm, while another session is present.
    """

    name: str
    owner: int
    n_owners: int
    secure: bool
    roster: list[list[str]] = field(default_factory=list)
    round: int = -1
    task: str = ""
    vector: np.ndarray = field(default_factory=lambda: np.empty(0))
    token: str = ""
    sizes: list[int] = field(default_factory=list)
    charged: bool = False
    survivors: tuple[int, ...] = ()
    attempts: list[str] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)
    sum: Any = None
    replies: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    steps: Arrays = field(default_factory=dict)

    @property
    def is_owed(self) -> bool:
        """Whether a release was drawn that is not charged."""
        return bool(self.token) and not self.charged

    @property
    def legs(self) -> tuple[str, ...]:
        """Return the legs of a round."""
        if not self.secure:
            return ("step",)
        return SIGNED_LEGS if self.roster else SECURE_LEGS

    def begin_attempt(self, attempt: str, plan: dict[str, Any], secure_sum: Any) -> None:
        """Begin a secure sum, and forget all secrets of the one before."""
        self.attempts = [*self.attempts, attempt][-_MOST_ATTEMPTS:]
        self.plan, self.sum, self.replies = plan, secure_sum, {}

    def as_bytes(self, steps: Arrays) -> bytes:
        """Return all of it, with the state of the algorithm; private."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields["survivors"] = list(self.survivors)
        fields["digests"] = {leg: digest for leg, (digest, _) in self.replies.items()}
        arrays = {"vector": self.vector}
        arrays |= {
            f"reply {leg}": np.frombuffer(reply, np.uint8)
            for leg, (_, reply) in self.replies.items()
        }
        arrays |= {f"steps {name}": array for name, array in steps.items()}
        if self.sum is not None:
            arrays |= {f"sum {name}": array for name, array in self.sum.state().items()}
        return pack(Packet("session", fields=fields, arrays=arrays))

    @classmethod
    def from_bytes(cls, data: bytes, key: SigningKey | None = None) -> "Session":
        """Return what was put away; raise ValueError or KeyError if it is nothing like that."""
        packet = unpack(data)
        fields, arrays = dict(packet.fields), packet.arrays
        digests, survivors = fields.pop("digests"), tuple(fields.pop("survivors"))
        replies = {
            leg: (digest, arrays[f"reply {leg}"].tobytes()) for leg, digest in digests.items()
        }
        steps = _beginning_with("steps ", arrays)
        session = cls(
            **fields, vector=arrays["vector"], survivors=survivors, replies=replies, steps=steps
        )
        secrets = _beginning_with("sum ", arrays)
        if secrets:
            plan = plan_of(session.plan, session.name, session.attempts[-1], session.roster)
            signers = signers_of(session.roster, key)
            session.sum = SecureSumOwner.from_state(plan, session.owner, secrets, signers)
        return session


class Sessions:
    """The sessions that an owner takes part in, a few at most, and names of former ones."""

    def __init__(self) -> None:
        self._present: dict[str, Session] = {}
        self._past: list[str] = []
        # The one that began last of those whose names are not known any more.
        self._forgotten = ""

    def find(self, name: str) -> Session | None:
        """Return a session that the owner takes part in, which becomes the last one in use."""
        session = self._present.pop(name, None)
        if session is not None:
            self._present[name] = session
        return session

    def peek(self, name: str) -> Session | None:
        """Return a session that the owner takes part in, in whatever order they were in use."""
        return self._present.get(name)

    def is_past(self, name: str) -> bool:
        """Return whether the owner took part in a session, and does not any more."""
        return name in self._past or is_from_before(name, self._forgotten)

    def enter(self, session: Session) -> None:
        """Take part in a session; leave the one that was not in use for the longest time.

        Greetings alone do not end a session in which something was answered, and paid for.
        """
        oldest = next(iter(self._present), "")
        oldest = next((name for name, one in self._present.items() if one.round < 0), oldest)
        self._present[session.name] = session
        if len(self._present) > _MOST_SESSIONS:
            if self._present.pop(oldest).round < 0:
                # There is nothing in it to be repeated, and its name may tell any time.
                return
            past = [*self._past, oldest]
            for name in past[:-_MOST_PAST]:
                self._forgotten = later(name, self._forgotten)
            self._past = past[-_MOST_PAST:]

    @property
    def last(self) -> Session | None:
        """Return the session that was in use last."""
        return next(reversed(self._present.values()), None)

    def as_packet(self, steps_of: dict[str, Arrays]) -> tuple[dict[str, Any], Arrays]:
        """Return fields and arrays, of a message that stays with the owner, that hold all of it.

        `steps_of` are states of the algorithm that sessions do not hold themselves.
        """
        arrays = {
            f"session {place}": np.frombuffer(
                session.as_bytes(steps_of.get(session.name, session.steps)), np.uint8
            )
            for place, session in enumerate(self._present.values())
        }
        return {"past": self._past, "forgotten": self._forgotten}, arrays

    @classmethod
    def from_packet(
        cls, fields: dict[str, Any], arrays: Arrays, key: SigningKey | None = None
    ) -> "Sessions":
        """Return what `as_packet` put away."""
        sessions = cls()
        sessions._past = list(fields["past"])
        sessions._forgotten = str(fields.get("forgotten", ""))
        for data in _beginning_with("session ", arrays).values():
            session = Session.from_bytes(data.tobytes(), key)
            sessions._present[session.name] = session
        return sessions


def _beginning_with(prefix: str, arrays: Arrays) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
