"""An owner's memory of its sessions."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._keys import SigningKey
from .._secure_aggregation import SECURE_LEGS, SIGNED_LEGS, plan_of, signers_of
from .._secure_sum import SecureSumOwner
from .._session_names import is_from_before, later
from .._wire import Arrays, Packet, pack, unpack

# A misdirected message may begin a session that nobody continues. So there is room for several
# sessions, and for names of sessions and attempts that are over.
_MOST_SESSIONS = 8
_MOST_PAST = 512
_MOST_ATTEMPTS = 64

_FIELDS = (
    "name", "owner", "n_owners", "secure", "roster", "round", "task", "attempts", "plan", "token",
    "sizes", "charged",
)  # fmt: skip


@dataclass(repr=False, eq=False)
class Session:
    """The state of an owner in a session: the last question, and its answer.

    Attributes
    ----------
    name : str
        Name of the session.
    owner, n_owners : int
        Number of this owner, and of all owners.
    secure : bool
        Whether its sums are secure.
    roster : list of [str, str]
        Names and public keys of all owners, if they have keys.
    round : int
        Number of the last answered round, -1 before the first.
    task : str
        Digest of its task.
    vector : ndarray
        The answer: private, unless it is a part with all of its noise.
    token : str
        Token of the charge of the release; empty if none was drawn.
    sizes : list of int
        Numbers of records and of parts of the release.
    charged : bool
        Whether the release is charged; nothing is sent before.
    survivors : tuple of int
        Owners in the sum of this round that this owner helped to unmask.
    attempts : list of str
        Attempts at secure sums that have begun; only the last one may continue.
    plan : dict
        Public parameters of the last attempt.
    sum : SecureSumOwner or None
        The owner's part in the last attempt.
    replies : dict of str to (str, bytes)
        Digest of the question in every leg of the last attempt, and the reply.
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
        """Return whether a release was drawn that is not charged."""
        return bool(self.token) and not self.charged

    @property
    def legs(self) -> tuple[str, ...]:
        """Return the legs of a round."""
        if not self.secure:
            return ("step",)
        return SIGNED_LEGS if self.roster else SECURE_LEGS

    def begin_attempt(self, attempt: str, plan: dict[str, Any], secure_sum: Any) -> None:
        """Begin a secure sum, and drop all secrets of the one before."""
        self.attempts = [*self.attempts, attempt][-_MOST_ATTEMPTS:]
        self.plan, self.sum, self.replies = plan, secure_sum, {}

    def as_bytes(self, steps: Arrays) -> bytes:
        """Return all attributes, with the state of the algorithm; private."""
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
        """Return the session that `as_bytes` described; raise ValueError or KeyError if invalid."""
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
    """The present sessions of an owner, a few at most, and the names of past ones."""

    def __init__(self) -> None:
        self._present: dict[str, Session] = {}
        self._past: list[str] = []
        # The latest session that was removed from the past ones.
        self._forgotten = ""

    def find(self, name: str) -> Session | None:
        """Return a present session, or None; it becomes the last used one."""
        session = self._present.pop(name, None)
        if session is not None:
            self._present[name] = session
        return session

    def peek(self, name: str) -> Session | None:
        """Return a present session, or None, without a change of their order."""
        return self._present.get(name)

    def is_past(self, name: str) -> bool:
        """Return whether a session is over."""
        return name in self._past or is_from_before(name, self._forgotten)

    def enter(self, session: Session) -> None:
        """Join a session; if there are too many, leave the one that was unused for longest.

        Greetings alone do not end a session in which something was answered and charged.
        """
        oldest = next(iter(self._present), "")
        oldest = next((name for name, one in self._present.items() if one.round < 0), oldest)
        self._present[session.name] = session
        if len(self._present) > _MOST_SESSIONS:
            if self._present.pop(oldest).round < 0:
                # It has no answer to repeat. Its name is not trusted, as it may state any time.
                return
            past = [*self._past, oldest]
            for name in past[:-_MOST_PAST]:
                self._forgotten = later(name, self._forgotten)
            self._past = past[-_MOST_PAST:]

    @property
    def last(self) -> Session | None:
        """Return the last used session."""
        return next(reversed(self._present.values()), None)

    def as_packet(self, steps_of: dict[str, Arrays]) -> tuple[dict[str, Any], Arrays]:
        """Return fields and arrays of a packet with all sessions, which stays with the owner.

        `steps_of` are states of the algorithm that are not in the sessions themselves.
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
        """Return the sessions that `as_packet` described."""
        sessions = cls()
        sessions._past = list(fields["past"])
        sessions._forgotten = str(fields.get("forgotten", ""))
        for data in _beginning_with("session ", arrays).values():
            session = Session.from_bytes(data.tobytes(), key)
            sessions._present[session.name] = session
        return sessions


def _beginning_with(prefix: str, arrays: Arrays) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
