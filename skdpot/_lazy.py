"""Packages that import a name on first use."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package that imports its names on first use.

    `homes` are modules of the package, and which of their names are the package's own, too. Modules
    whose own name has no underscore in front are its attributes. A type checker does not run them,
    so that a package also imports its names where ``typing.TYPE_CHECKING`` is true.

    Examples
    --------
    >>> from skdpot._lazy import lazy_names
    >>> get, names = lazy_names("skdpot", {"privacy": ["PrivacyLedger"], "display": []})
    >>> get("PrivacyLedger").__module__, get("display").__name__
    ('skdpot.privacy.ledger', 'skdpot.display')
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    rooms = {home for home in homes if not home.startswith("_")}

    def get(name: str) -> Any:
        if name in home_of:
            value = getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)
            # So that it is looked up but once.
            setattr(sys.modules[package], name, value)
            return value
        if name in rooms:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *rooms, *home_of})

    return get, names
