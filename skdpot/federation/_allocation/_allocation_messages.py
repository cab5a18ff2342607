"""The messages of an allocation: only integers and floats, which any engine can carry."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROLES = ("target", "source")
# Squares and products of smaller numbers do not overflow, for any number of rounds.
LARGEST_NUMBER = 1e50
# Number of names that an error shows.
_SHOWN = 5


@dataclass(frozen=True)
class Announcement:
    """Announcement of a round to all nodes: a function of their earlier messages.

    Parameters
    ----------
    round : int
        Number of the round, from one.
    eta : float
        Penalty of a squared difference of amounts, positive.
    shift : float
        Amount added to all prices.
    relaxation : float
        Factor of over-relaxation, in (0, 2); 1 is the plain iteration.

    Examples
    --------
    >>> from skdpot.federation import Announcement
    >>> Announcement(round=1, eta=2.0, shift=0.0, relaxation=1.8).eta
    2.0
    """

    round: int
    eta: float
    shift: float
    relaxation: float


@dataclass(frozen=True)
class AllocationMessage:
    """Amounts on the edges of one node: those it sends, or those that reach it.

    Parameters
    ----------
    round : int
        The round in which they were sent; 0 for the amounts that all start from.
    amounts : dict
        Amount, in units of the resource, by the neighbour at the edge's other end.

    Notes
    -----
    The message of a node with a budget may be published. Other messages are **not private**: many
    of them reveal the node's utility.

    Examples
    --------
    >>> from skdpot.federation import AllocationMessage
    >>> AllocationMessage(round=0, amounts={0: 0.5, 2: 1.0}).amounts[2]
    1.0
    """

    round: int
    amounts: dict[Any, float]


def read_amounts(
    message: Any, expected_round: int, neighbours: Sequence[Hashable], subject: str
) -> np.ndarray:
    """Return the finite amounts of a message in the order of some neighbours, or raise.

    Errors call the message `subject`. Raises TypeError if it is no AllocationMessage. Raises
    ValueError if it is of another round, a neighbour is missing or unknown, or an amount is not a
    finite number below 1e50. An error names neighbours, and shows no amounts.
    """
    if not isinstance(message, AllocationMessage) or not isinstance(message.amounts, Mapping):
        raise TypeError(f"{subject} must be an AllocationMessage, got {type(message).__name__}.")
    if message.round != expected_round:
        raise ValueError(f"{subject} must be of round {expected_round}, got {message.round!r}.")
    known = set(neighbours)
    unknown = [name for name in message.amounts if name not in known]
    if unknown:
        raise ValueError(f"{subject} has amounts of no neighbours: {_shown(unknown)}.")
    missing = [name for name in neighbours if name not in message.amounts]
    if missing:
        raise ValueError(f"{subject} lacks the amounts of {_shown(missing)}.")
    values = [_number(message.amounts[name]) for name in neighbours]
    wrong = [name for name, x in zip(neighbours, values, strict=True) if not is_moderate(x)]
    if wrong:
        raise ValueError(
            f"{subject} must have finite amounts below {LARGEST_NUMBER:g}; those of "
            f"{_shown(wrong)} are not."
        )
    return np.array(values, dtype=np.float64)


def check_announcement(announcement: Announcement, expected_round: int) -> None:
    """Raise unless an announcement belongs to this round, and its numbers are valid."""
    if not isinstance(announcement, Announcement):
        raise TypeError(f"announcement must be an Announcement, got {type(announcement).__name__}.")
    if announcement.round != expected_round:
        raise ValueError(
            f"announcement must be of round {expected_round}, got {announcement.round!r}."
        )
    eta, shift, relaxation = announcement.eta, announcement.shift, announcement.relaxation
    if not 1 / LARGEST_NUMBER < _number(eta) < LARGEST_NUMBER:
        raise ValueError(f"eta must be positive, and between 1e-50 and 1e50, got {eta!r}.")
    if not is_moderate(_number(shift)):
        raise ValueError(f"shift must be finite and below 1e50, got {shift!r}.")
    if not 0 < _number(relaxation) < 2:
        raise ValueError(f"relaxation must be between 0 and 2, got {relaxation!r}.")


def address_of(role: str, node: Any) -> str:
    """Return the name of a node among all nodes, as carriers use it."""
    return f"{role} {node}"


def check_role(role: str) -> None:
    """Raise unless a role is one of the two."""
    if role not in ROLES:
        raise ValueError(f"role must be 'target' or 'source', got {role!r}.")


def is_moderate(value: float) -> bool:
    """Tell whether a number is finite and not so large that calculations overflow."""
    return abs(value) < LARGEST_NUMBER


def _number(value: Any) -> float:
    """Return a value as a float, NaN if it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _shown(names: Sequence[Hashable]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
