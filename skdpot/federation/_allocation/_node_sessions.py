"""A node's memory of the sessions that it was greeted in."""

import secrets
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any

from .._session_names import is_from_before, later
from .._wire import Refusal

_LONGEST_SESSION = 64
# Greetings may go astray, and names of sessions that are over are remembered.
_MOST_GREETED, _MOST_PAST = 8, 512


@dataclass(frozen=True)
class NodeSessions:
    """The present session of a node, those that may begin, and past ones.

    When a node is greeted, it draws a random word for the session, before anything is charged. The
    word is part of the charge's token. A node that remembers the word is not charged again. A node
    that has forgotten the word, and with it the noise, is charged again. A node that would draw
    other noise for the same word is also charged again.

    Attributes
    ----------
    present, word : str
        Name of the present session, and its word.
    greeted : dict of str to str
        Words of sessions that may begin.
    past : tuple of str
        Names of sessions that are over.
    forgotten : str
        The latest session that was removed from `past`.
    """

    present: str = ""
    word: str = field(default_factory=lambda: secrets.token_hex(16))
    greeted: dict[str, str] = field(default_factory=dict)
    past: tuple[str, ...] = ()
    forgotten: str = ""

    @property
    def token(self) -> str:
        """Return the token of the present session's charge."""
        return f"allocation {self.present or 'here'} {self.word}"

    def greet(self, name: str) -> "NodeSessions":
        """Return the sessions with one more that may begin."""
        if not (name.isalnum() and name.isascii() and len(name) <= _LONGEST_SESSION):
            raise Refusal("a session needs a name.")
        if name == self.present or name in self.greeted:
            return self
        if name in self.past or is_from_before(name, self.forgotten):
            raise Refusal("this session is over: begin another.")
        greeted = [*self.greeted.items(), (name, secrets.token_hex(16))][-_MOST_GREETED:]
        return replace(self, greeted=dict(greeted))

    def begin(self, name: str) -> "NodeSessions":
        """Return the sessions with a greeted one as the present one, or raise."""
        if name in self.past:
            raise Refusal("this session is over: begin another.")
        if name not in self.greeted:
            raise Refusal("this is no session that the node was greeted in.")
        greeted = {other: word for other, word in self.greeted.items() if other != name}
        past = (*self.past, *filter(None, [self.present]))
        forgotten = reduce(lambda last, one: later(one, last), past[:-_MOST_PAST], self.forgotten)
        return NodeSessions(name, self.greeted[name], greeted, past[-_MOST_PAST:], forgotten)

    def ended(self) -> "NodeSessions":
        """Return the sessions without a present one, which is over."""
        return replace(self, present="", past=(*self.past, *filter(None, [self.present])))

    def charged_anew(self) -> "NodeSessions":
        """Return the sessions with a new word for the present one."""
        return replace(self, word=secrets.token_hex(16))

    def as_fields(self) -> dict[str, Any]:
        """Return all attributes for JSON; private."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "NodeSessions":
        """Return the sessions that `as_fields` described."""
        return cls(**{**fields, "past": tuple(fields["past"])})
