"""Encoders of records, one class a file; a class is found by its name."""

import importlib
import pkgutil
from typing import Any

from skdpot.generative._encoders.encoder import AUTO, Encoder, RecordSpace
from skdpot.generative._encoders.own import OwnEncoder

__all__ = [
    "Encoder",
    "OwnEncoder",
    "RecordSpace",
    "encoder_from_header",
    "make_encoder",
    "make_rival",
]

# A new encoder is a new file of this folder; no list names it.
for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")


def _named() -> dict[str, type[Encoder]]:
    """Return all classes of encoders that have a name."""
    found, waiting = {}, [Encoder]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.name:
            found[kind.name] = kind
    return found


def make_encoder(encoder: Any, space: RecordSpace, *, ample: bool = False) -> Encoder:
    """Return an encoder for records of a space, or raise; no record is looked at.

    Parameters
    ----------
    encoder : str, Encoder, transformer or pair of callables
        A name, an encoder with parameters, or a value that `OwnEncoder` takes.
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
        if not OwnEncoder._accepts(encoder):
            raise ValueError(_message(encoder, _named()))
        encoder = OwnEncoder(encoder)
    return encoder.prepared(space, ample=ample)


def make_rival(encoder: Any, space: RecordSpace, *, ample: bool = False) -> Encoder | None:
    """Return the encoder that a vote of records may put in the place of `make_encoder`'s.

    Parameters
    ----------
    encoder, space, ample
        As there.

    Returns
    -------
    Encoder or None
        None where there is nothing to be voted on.
    """
    if not isinstance(encoder, str) or encoder != AUTO:
        return None
    kinds = (kind for kind in _named().values() if kind.may_replace_usual(space))
    rival = next(kinds, None)
    return None if rival is None else rival().prepared(space, ample=ample)


def encoder_from_header(header: dict[str, Any], space: RecordSpace, given: Any = None) -> Encoder:
    """Return the encoder of a file; `given` is the user's own one, given again."""
    name = header.get("name")
    if name == OwnEncoder.NAME_IN_FILES:
        return OwnEncoder._from_header(given, header, space)
    kinds = _named()
    if name not in kinds:
        raise ValueError(f"the file names an unknown encoder: {name!r}.")
    kind = kinds[name]
    parameters = {key: header.get(key) for key in kind().get_params()}
    encoder = kind(**parameters).prepared(space)
    encoder._read(header)
    return encoder


def _message(encoder: Any, kinds: dict[str, type[Encoder]]) -> str:
    names = ", ".join(f'"{name}"' for name in (AUTO, *sorted(kinds)))
    return (
        f"encoder must be one of {names}, an encoder of skdpot.generative, a fitted transformer "
        f"with transform and inverse_transform, or a pair (encode, decode); got {encoder!r}."
    )
