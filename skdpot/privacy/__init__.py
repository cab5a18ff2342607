"""What can be wrong about a privacy guarantee lives here, and only here."""

from typing import Any

from skdpot.privacy._diffprivlib import (
    ACCOUNTANT_NAMES,
    is_budget_accountant,
    load_accountant,
)

__all__ = [*ACCOUNTANT_NAMES, "is_budget_accountant"]


def __getattr__(name: str) -> Any:
    """Import diffprivlib only once one of its classes is asked for."""
    if name in ACCOUNTANT_NAMES:
        return load_accountant(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
