"""Checks of an owner: its parameters, and each message before it answers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from skdpot.privacy.quotes import without_quotes

from .._keys import SigningKey, checked_publics
from .._secure_aggregation import SecureAggregation, default_threshold
from .._secure_sum import LARGEST_NUMBER
from .._wire import LARGEST_MESSAGE, MOST_ROWS, Arrays, Packet, Refusal
from ._group_release import RELEASE, GroupRelease
from ._owner_sessions import Session

# Largest number of doubles in a matrix: 8 GiB.
_LARGEST_MATRIX = 2**30
_LONGEST_SESSION = 64
_OF_RELEASE = {"kind", "size", "type", "n_records", "n_parts"}
_OF_OPEN = {"kind", "size", "type"}

_POINTS = "points must be a two-dimensional array of finite numbers, with at least one row."


def checked_points(points: Any) -> np.ndarray:
    """Return an owner's rows as an array of finite numbers, or raise."""
    points = without_quotes(lambda: np.array(points, dtype=np.float64), _POINTS)
    if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
        raise ValueError(_POINTS)
    return points


def check_keys(
    name: str,
    key: SigningKey | None,
    pinned: Mapping[str, str] | None,
    release: GroupRelease | None,
) -> None:
    """Raise unless all keys that the release needs are given and consistent."""
    known = set(pinned or ()) | {name}
    if pinned is not None and key is None:
        raise ValueError("an owner that pins the keys of others needs a key of its own: give key.")
    if key is not None and (pinned or {}).get(name) not in (None, key.public):
        raise ValueError("the key of this owner in owners differs from its own key.")
    if release is None or release.noise != "shared":
        return
    if pinned is None or len(known) < max(release.n_honest or 0, 2):
        raise ValueError(
            "shared noise needs key=SigningKey.open(...), and owners= with the public keys of "
            "all others. With this owner they must be at least n_honest. Otherwise a coordinator "
            "could invent owners, and remove their parts of the noise."
        )


def check_hello(
    packet: Packet, release: GroupRelease | None, must_be_secure: bool, n_rows: int
) -> None:
    """Refuse a session that differs from the owner's agreement."""
    fields = packet.fields
    if not 0 < len(packet.session) <= _LONGEST_SESSION:
        raise Refusal("a session needs a name.")
    asked = fields.get("release")
    if not (asked is None or isinstance(asked, dict)):
        raise Refusal("the requested release is invalid.")
    if (asked is None) != (release is None):
        raise Refusal(
            "the owner agreed to a private release, and answers nothing else."
            if asked is None
            else "the owner agreed to no private release."
        )
    if release is not None and asked is not None:
        agreed = release.described()
        others = sorted(name for name in agreed if asked.get(name) != agreed[name])
        if others:
            raise Refusal(f"the owner agreed to other values of {', '.join(others)}.")
        most = fields.get("max_rows", n_rows)
        if type(most) is not int or most < n_rows:
            raise Refusal("the owner has more rows than the coordinator's max_rows.")
    if type(fields.get("secure")) is not bool:
        raise Refusal("the owner was not told whether sums are secure.")
    if must_be_secure and not fields["secure"]:
        raise Refusal("the owner answers under secure aggregation only.")
    owner, n_owners = fields.get("owner"), fields.get("n_owners")
    if type(owner) is not int or type(n_owners) is not int or not 0 <= owner < n_owners:
        raise Refusal("the owner was not told which of the owners it is.")


def checked_roster(
    packet: Packet, name: str, key: SigningKey | None, pinned: Mapping[str, str] | None
) -> list[list[str]]:
    """Return names and public keys of all owners; refuse keys that the owner has not pinned."""
    roster, place = packet.fields.get("roster"), packet.fields["owner"]
    if roster is None:
        if pinned is not None:
            raise Refusal("the owner has pinned the keys of the others, and the greeting has none.")
        return []
    if key is None:
        raise Refusal("the owner has no key to sign its answers with.")
    try:
        publics = checked_publics(dict(roster))
    except (ValueError, TypeError):
        raise Refusal("the list of owners must have the name and the public key of each.") from None
    if len(publics) != packet.fields["n_owners"] or list(publics)[place] != name:
        raise Refusal("the list of owners must name each owner once, and this one in its place.")
    if publics[name] != key.public:
        raise Refusal("the key of this owner in the list of owners differs from its own key.")
    for other in publics:
        if pinned is not None and other != name and pinned.get(other) != publics[other]:
            raise Refusal(f"the owner has not pinned this key of {other!r}.")
    return [[other, public] for other, public in publics.items()]


def check_round(packet: Packet, session: Session, task: str) -> None:
    """Refuse a round unless it is the next one, or the last one with the same task."""
    if packet.round not in (session.round, session.round + 1):
        raise Refusal(f"round {packet.round} is not the one after {session.round}.")
    if packet.round == session.round and task != session.task:
        raise Refusal("the owner answered another task in this round.")


def check_release_step(step: Any, packet: Packet, n_rows: int, n_owners: int) -> None:
    """Refuse any step but the release, before anything is charged."""
    if packet.round != 0:
        raise Refusal("a release has one round.")
    if not isinstance(step, dict) or set(step) != _OF_RELEASE or step["kind"] != RELEASE:
        raise Refusal("the owner agreed to a private release, and answers nothing else.")
    numbers = [step[name] for name in ("size", "n_records", "n_parts")]
    if not all(type(number) is int and 0 < number <= MOST_ROWS for number in numbers):
        raise Refusal("sizes of a release are positive integers.")
    if step["n_records"] < n_rows or step["n_parts"] != n_owners:
        raise Refusal("the release has fewer rows than this owner, or another number of owners.")
    if step["type"] != "int64":
        raise Refusal("a release consists of integers.")


def check_open_step(step: Any, arrays: Arrays, n_rows: int, secure: bool) -> None:
    """Refuse a step that is invalid, or too large for the memory of this machine."""
    if not isinstance(step, dict) or set(step) - {"largest"} != _OF_OPEN:
        raise Refusal("the step of the algorithm is invalid.")
    if not isinstance(step["kind"], str) or step["type"] != "float64":
        raise Refusal("steps of algorithms are answered with doubles.")
    if type(step["size"]) is not int or not 0 < step["size"] < LARGEST_MESSAGE // 8:
        raise Refusal("no answer has such a length.")
    largest = step.get("largest", -1)
    if secure and not (type(largest) in (int, float) and 0 <= largest <= LARGEST_NUMBER):
        raise Refusal("a secure sum of doubles needs a bound on them.")
    longest = max([1, *(len(array) for array in arrays.values() if array.ndim)])
    if longest * n_rows > _LARGEST_MATRIX:
        raise Refusal("the step is too large for the owner.")


def check_plan(
    plan: Any,
    n_owners: int,
    release: GroupRelease | None,
    insisted: SecureAggregation | None,
    n_known: int,
) -> None:
    """Refuse sums over fewer owners, or with fewer neighbours, than the owner requires.

    With keys of `n_known` owners it requires the threshold for so many, even if some are left out.
    """
    if plan.n_owners != n_owners:
        raise Refusal("the sum has another number of owners than the session.")
    if release is None and not plan.all_or_nothing:
        raise Refusal("without a release, a sum must be over all owners.")
    if release is not None and plan.threshold < (release.n_honest or 1):
        raise Refusal("the sum may have fewer owners than must be honest.")
    honest = 1 if release is None else release.n_honest or 1
    if honest > 1 and plan.threshold <= n_owners - honest:
        raise Refusal("owners that need not be honest could unmask the vector of one owner.")
    if honest > 1 and plan.n_neighbours is not None:
        raise Refusal("with shared noise an owner shares keys with all others.")
    if insisted is None:
        return
    default = default_threshold(n_known, signed=True) if n_known else 1
    if plan.threshold < (insisted.threshold or default):
        raise Refusal("the sum may have fewer owners than this owner requires.")
    if plan.n_neighbours is not None and plan.n_neighbours < (insisted.n_neighbours or math.inf):
        raise Refusal("the owner requires shared keys with more of the others.")


def checked_outcome(packet: Packet, release: GroupRelease | None, n_features: int) -> dict:
    """Return the final message of the coordinator, or refuse it."""
    fields, arrays = dict(packet.fields), dict(packet.arrays)
    counts = () if release is None else ("n_records", "n_parts", "n_contributors")
    rows = fields.get("rows", [])
    is_valid = (
        set(fields) - {"rows"} == {"objective", *counts}
        and set(arrays) == ({"support", "total"} if counts else {"support"})
        and type(fields["objective"]) in (int, float)
        and all(type(fields[name]) is int for name in counts)
        and isinstance(rows, list)
        and all(type(number) is int for number in rows)
        and arrays["support"].dtype.kind == "f"
        and arrays["support"].shape[1:] == (n_features,)
        and (not counts or (arrays["total"].dtype.name, arrays["total"].ndim) == ("int64", 1))
    )
    if not is_valid:
        raise Refusal("the result is not a barycenter of these groups.")
    return fields | arrays
