"""An owner's answers in the legs of a secure sum."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._keys import SigningKey
from .._secure_aggregation import Coding, SecureAggregation, plan_of, signers_of, task_digest
from .._secure_sum import FaultyOwnerError, SecureSumError, SecureSumOwner
from .._wire import Arrays, Packet, Refusal
from ._group_release import GroupRelease
from ._owner_checks import check_plan, check_round
from ._owner_sessions import Session

_DELIVERED = "delivered "


def begin_sum(
    packet: Packet,
    session: Session,
    release: GroupRelease | None,
    insisted: SecureAggregation | None,
    key: SigningKey | None,
    n_known: int,
) -> tuple[str, dict[str, Any], Arrays]:
    """Begin an attempt at a sum; return kind, fields and arrays of the answer."""
    if packet.attempt in session.attempts:
        raise Refusal("this attempt has begun before.")
    parameters, task = packet.fields.get("plan"), packet.fields.get("task")
    if not isinstance(parameters, dict) or not isinstance(task, str):
        raise Refusal("there is no plan of the sum.")
    check_round(packet, session, task)
    said = {"plan": parameters, "task": task, "round": packet.round}
    plan = valid(plan_of, said, packet.session, packet.attempt, session.roster)
    check_plan(plan, session.n_owners, release, insisted, n_known)
    secure_sum = SecureSumOwner(plan, session.owner, signers_of(session.roster, key))
    keys = secure_sum.advertise()
    session.begin_attempt(packet.attempt, said, secure_sum)
    # If an attempt failed in its last leg, only a sum over the same owners is possible.
    bound = packet.round == session.round and session.survivors
    return "keys", {"survivors": list(session.survivors)} if bound else {}, keys


def check_attempt(packet: Packet, session: Session) -> None:
    """Refuse legs of any attempt but the last one."""
    if session.sum is None or packet.attempt != session.attempts[-1]:
        raise Refusal("this attempt is over, or has not begun.")
    if packet.round != session.plan["round"]:
        raise Refusal("the attempt is one at another round.")


def check_masked(packet: Packet, session: Session) -> tuple[Packet, Arrays]:
    """Return the step, and the shares of others; refuse differences from the announcement.

    All sealed shares are opened and checked before the owner computes or charges anything.
    """
    arrays = packet.arrays
    delivered = {
        name.removeprefix(_DELIVERED): array
        for name, array in arrays.items()
        if name.startswith(_DELIVERED)
    }
    asked = {name: array for name, array in arrays.items() if not name.startswith(_DELIVERED)}
    step = packet.fields.get("step")
    if not isinstance(step, dict) or step.get("size") != session.plan["plan"]["size"]:
        raise Refusal("the sum and the step have different lengths.")
    if task_digest(step, asked) != session.plan["task"]:
        raise Refusal("the owner was told that another task is summed.")
    opened = valid(session.sum.opened, delivered)
    return Packet("step", packet.session, packet.round, fields={"step": step}, arrays=asked), opened


def masked(vector: np.ndarray, step: dict[str, Any], opened: Arrays, session: Session) -> Arrays:
    """Return the vector of the round under masks."""
    try:
        words = Coding(step, session.n_owners).encode(vector)
    except ValueError:
        raise Refusal("a number of the answer is beyond the declared bound.") from None
    return valid(session.sum.mask, words, opened)


def consent(packet: Packet, session: Session) -> Arrays:
    """Return the owner's signature of the list of survivors."""
    _survivors_in(packet, session)
    return valid(session.sum.consent, packet.arrays)


def reveal(packet: Packet, session: Session) -> Arrays:
    """Return the shares that unmask the sum; only one set of owners is accepted in a round."""
    survivors = _survivors_in(packet, session)
    revealed = valid(session.sum.reveal, packet.arrays)
    session.survivors = survivors
    return revealed


def _survivors_in(packet: Packet, session: Session) -> tuple[int, ...]:
    """Return the survivors of this round; refuse other ones than before."""
    named = packet.arrays.get("survivors")
    if named is None or named.ndim != 1:
        raise Refusal("the request names no owner whose masks are to be removed.")
    survivors = tuple(named.tolist())
    if session.survivors and survivors != session.survivors:
        raise Refusal("the owner helped to unmask this round's sum over other owners.")
    return survivors


def valid(take: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call on received data; refuse the data if they are invalid."""
    try:
        return take(*arguments)
    except (ValueError, SecureSumError) as error:
        accused = error.owner if isinstance(error, FaultyOwnerError) else None
        # These errors show no entries of vectors, and no secrets.
        raise Refusal(f"this is no part of the sum: {error}", accused) from None
