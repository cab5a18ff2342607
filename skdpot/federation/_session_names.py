"""Names of sessions, which tell which of two began earlier."""

import re
import secrets
import time

# Milliseconds, and a random word.
_NAME = re.compile(r"t([0-9a-f]{11})[0-9a-f]{10}")
# Largest difference of the clocks of honest parties, in milliseconds.
_AHEAD = 600_000


def new_session() -> str:
    """Return the name of a new session, which contains the time."""
    return f"t{_now():011x}{secrets.token_hex(5)}"


def later(name: str, other: str) -> str:
    """Return the later of two sessions; the other one if the name contains no plausible time.

    A time more than ten minutes ahead is not plausible: no session would be later.
    """
    found = _NAME.fullmatch(name)
    return max(name, other) if found and int(found[1], 16) < _now() + _AHEAD else other


def is_from_before(name: str, other: str) -> bool:
    """Tell whether a session began before another one, or is the same; False if unknown."""
    return bool(other and _NAME.fullmatch(name)) and name <= other


def _now() -> int:
    return time.time_ns() // 1_000_000
