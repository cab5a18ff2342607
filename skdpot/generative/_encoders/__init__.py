"""Encoders of records, one class a file; a class is found by its name."""

import importlib
import pkgutil
from typing import Any

from skdpot.generative._encoders.encoder import AUTO, Encoder, RecordSpace

__all__ = ["Encoder", "RecordSpace", "encoder_from_header", "make_encoder"]

# The encoders of users in files of earlier versions.
_OWN = "own"

# A new encoder is a new file of this folder; no list names it.
for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")


def _named() -> dict[str, type[Encoder]]:
    """Return all classes of encoders by name."""
    found, waiting = {}, Encoder.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found[kind.name] = kind
    return found


def make_encoder(encoder: Any, space: RecordSpace, *, ample: bool = False) -> Encoder:
    """Return an encoder for records of a space, or raise; no record is looked at.

    Parameters
    ----------
    encoder : str or Encoder
        A name, or an encoder with parameters.
    space : RecordSpace
        Public.
    ample : bool, default=False
        Whether the budget is ample, so that finer codes are worth their noise.
    """
    if isinstance(encoder, str):
        name, kinds = encoder, _named()
        if name == AUTO:
            name = next(kind.name for kind in kinds.values() if kind.usual_for(space))
        if name not in kinds:
            raise ValueError(_message(encoder, kinds))
        encoder = kinds[name]()
    elif not isinstance(encoder, Encoder):
        raise ValueError(_message(encoder, _named()))
    return encoder.prepared(space, ample=ample)


def encoder_from_header(header: dict[str, Any], space: RecordSpace) -> Encoder:
    """Return the encoder of a file."""
    name, kinds = header.get("name"), _named()
    if name == _OWN:
        raise ValueError(
            "the file was saved with an encoder of your own, and these are gone: load it with "
            "skdpot 0.1.0, and draw from it there."
        )
    if name not in kinds:
        raise ValueError(f"the file names an unknown encoder: {name!r}.")
    kind = kinds[name]
    parameters = {key: header.get(key) for key in kind().get_params()}
    encoder = kind(**parameters).prepared(space)
    encoder._read(header)
    return encoder


def _message(encoder: Any, kinds: dict[str, type[Encoder]]) -> str:
    names = ", ".join(f'"{name}"' for name in (AUTO, *sorted(kinds)))
    return f"encoder must be one of {names}, or an encoder of skdpot.generative; got {encoder!r}."
