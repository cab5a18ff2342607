"""Checks of the parameters of a ledger."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from skdpot.privacy._anchor import Anchor
from skdpot.privacy._history import json_number
from skdpot.privacy.accounting import RELATIONS
from skdpot.privacy.checks import check_choice, check_flag, check_probability, real_number

UNITS = ("record", "user", "edge", "node")
_LONGEST_TOKEN = 200
_MOST_SHOWN = 10


def check_settings(
    epsilon: Any, delta: Any, neighbouring: Any, allow_seeded: Any, slack: Any
) -> dict[str, Any]:
    """Return the settings that a new ledger is created with, in the form of its record."""
    if not real_number(epsilon) > 0:
        raise ValueError(f"epsilon of a budget must be a number above 0, got {epsilon!r}.")
    check_probability("delta", delta)
    check_choice("neighbouring", neighbouring, RELATIONS)
    if slack is not None and not 0 <= real_number(slack) <= delta:
        raise ValueError(f"slack must be None or from 0 to delta={delta}, got {slack!r}.")
    check_flag("allow_seeded", allow_seeded)
    return {
        "epsilon": json_number(epsilon),
        "delta": float(delta),
        "neighbouring": neighbouring,
        "allow_seeded": bool(allow_seeded),
        "slack": None if slack is None else float(slack),
    }


def check_anchor(anchor: Any, path: Path | None) -> Anchor | None:
    """Return the anchor of a ledger at a path, or raise."""
    if anchor is None:
        return None
    if path is None:
        raise ValueError("a ledger with an anchor needs a path: a temporary file ends by itself.")
    anchor = anchor if isinstance(anchor, Anchor) else Anchor(anchor)
    if anchor.file == path:
        raise ValueError("anchor must be another file than the ledger.")
    return anchor


def check_text(name: str, value: Any) -> None:
    """Raise unless a value can be a cell of a report or a table."""
    if not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise ValueError(f"{name} must be a line of printable text, not empty, got {value!r}.")


def check_token(token: Any) -> None:
    """Raise unless a value can name a release; None is no name."""
    if token is None:
        return
    check_text("token", token)
    if len(token) > _LONGEST_TOKEN:
        raise ValueError(
            f"token must have at most {_LONGEST_TOKEN} characters, got {len(token)}: use a digest."
        )


def check_parts(parts: Iterable[str]) -> list[str]:
    """Return the names of a partition's parts, or raise."""
    if isinstance(parts, str):
        raise ValueError("parts must be the names of all parts, got one text.")
    names = list(parts)
    for name in names:
        check_text("a part", name)
    if not names or len(set(names)) < len(names):
        raise ValueError("parts must be at least one name, all different.")
    return names


def format_settings(settings: dict[str, Any]) -> str:
    """Return settings for a message; of a long list only the beginning."""
    return ", ".join(f"{name}={_format_value(value)}" for name, value in settings.items())


def _format_value(value: Any) -> str:
    if isinstance(value, list) and len(value) > _MOST_SHOWN:
        return f"{value[:_MOST_SHOWN]!r} and {len(value) - _MOST_SHOWN:,} more"
    return repr(value)


def format_pair(pair: tuple[float, float]) -> str:
    """Return a pair (epsilon, delta) for a message."""
    return f"({pair[0]:.6g}, {pair[1]:.3g})"
