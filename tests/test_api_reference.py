"""The reference of the documentation lists every public class and function, once."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[1] / "doc" / "api.rst"
MODULE = re.compile(r"\.\. (?:auto|current)module:: (\S+)")
ENTRY = re.compile(r"   (\w+)")

ROOMS = (
    "skdpot",
    "skdpot.display",
    "skdpot.distance",
    "skdpot.fairness",
    "skdpot.fairness.metrics",
    "skdpot.parts",
    "skdpot.generative",
    "skdpot.published",
    "skdpot.model_selection",
    "skdpot.privacy",
    "skdpot.privacy.audit",
    "skdpot.published",
    "skdpot.transport",
    "skdpot.transport.barycenter",
    "skdpot.transport.consensus",
)


def listed():
    """Return the objects that the reference lists, in its order."""
    module, found = None, []
    for line in REFERENCE.read_text().splitlines():
        if match := MODULE.fullmatch(line):
            module = importlib.import_module(match[1])
        elif match := ENTRY.fullmatch(line):
            found.append(getattr(module, match[1]))
    return found


def test_nothing_is_listed_twice():
    found = [f"{value.__module__}.{value.__qualname__}" for value in listed()]
    assert len(found) > 50
    assert sorted(set(found)) == sorted(found)


@pytest.mark.parametrize("room", ROOMS)
def test_everything_public_is_listed(room):
    module = importlib.import_module(room)
    public = {name: getattr(module, name) for name in module.__all__}
    found = listed()
    missing = [
        name
        for name, value in public.items()
        if (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__.startswith("skdpot.")
        and not any(value is other for other in found)
    ]
    assert not missing
