"""The handshake: each owner's declared schema, validated before the first round."""

from typing import Any

from .._legs import FederationError
from .._wire import MOST_ROWS
from ._round_sums import OutOfRange


def read_welcome(fields: dict[str, Any], of_release: bool, max_rows: int) -> dict[str, Any]:
    """Return what an owner declares in its answer to the greeting.

    That is ``"n_features"``; and ``"n_rows"`` if it agreed to a release, otherwise ``"group"``, a
    digest of its label. Raises KeyError or ValueError if the answer lacks that, and OutOfRange if
    it declares more than `max_rows` rows.
    """
    said = {name: fields[name] for name in ("n_features", "n_rows" if of_release else "group")}
    numbers = [value for name, value in said.items() if name != "group"]
    if not all(type(number) is int and 0 < number < MOST_ROWS for number in numbers):
        raise ValueError("an owner does not state its numbers of rows and features.")
    if type(said.get("group", "")) is not str:
        raise ValueError("an owner names no group.")
    if said.get("n_rows", 0) > max_rows:
        raise OutOfRange(f"it declares {said['n_rows']:,} rows, and max_rows is {max_rows:,}")
    return said


def common_width(said: dict[str, dict[str, Any]]) -> int:
    """Return the number of features that all owners have; raise if they differ."""
    owners_of: dict[int, list[str]] = {}
    for name, one in said.items():
        owners_of.setdefault(one["n_features"], []).append(name)
    if len(owners_of) > 1:
        widths = "; ".join(
            f"{width} at {', '.join(names)}" for width, names in sorted(owners_of.items())
        )
        raise FederationError(f"owners have rows of different numbers of features: {widths}.", {})
    (width,) = owners_of
    return width


def check_width(said: dict[str, dict[str, Any]], bounds: Any) -> None:
    """Raise if owners have another number of features than the bounds of the release."""
    n_features = common_width(said)
    if bounds is not None and n_features != len(bounds[0]):
        why = f"rows of {n_features} features, and the release declares bounds of {len(bounds[0])}"
        raise FederationError(f"{', '.join(said)}: {why}.", dict.fromkeys(said, why))


def check_groups(said: dict[str, dict[str, Any]], method: str) -> None:
    """Raise if two owners have rows of the same group, without a release."""
    owner_of: dict[str, str] = {}
    for name, one in said.items():
        other = owner_of.setdefault(one["group"], name)
        if other != name:
            raise FederationError(
                f"owners {other!r} and {name!r} have rows of one group. method={method!r} needs "
                "a maximum over all rows of a group, which is not a sum over owners. Use "
                "method='release'.",
                {},
            )
