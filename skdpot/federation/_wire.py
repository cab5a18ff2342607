"""The wire format of messages: a JSON header and plain arrays, without pickles."""

import hashlib
import json
import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._keys import SIGNATURE_BYTES, SigningKey, is_signed

__all__ = [
    "LARGEST_MESSAGE",
    "MOST_ROWS",
    "Arrays",
    "Packet",
    "SignatureError",
    "WireError",
    "pack",
    "unpack",
]

Arrays = dict[str, np.ndarray]

VERSION = 3
# What the signature of a message is for.
_PURPOSE = "message"
# No message of the protocols is larger; who announces more is not listened to.
LARGEST_MESSAGE = 1 << 28
# No federation has more rows or features: who announces more is not listened to, either.
MOST_ROWS = 1 << 40
_MAGIC = b"skdpot federation"
_CHECK_BYTES = 16
_PREFIX = struct.Struct(f"<{len(_MAGIC)}sHI{_CHECK_BYTES}s")
_LARGEST_HEADER = 1 << 22
_MOST_ARRAYS = 64
_MOST_AXES = 4
_LONGEST_NAME = 200
_LONGEST_INTEGER = 20
# As they are called in a header, and how they lie in a message: the smaller end first.
_TYPES = {"float64": "<f8", "int64": "<i8", "uint64": "<u8", "uint8": "u1"}


class WireError(ValueError):
    """What arrived is no message of this protocol and version, or not a whole one."""


class SignatureError(WireError):
    """A message is not signed by who must have signed it."""


@dataclass(frozen=True, eq=False)
class Packet:
    """A message: who says what, in which round, with which numbers.

    Parameters
    ----------
    kind : str
        What it is: a step, an answer, a refusal.
    session : str
        Of which run of the protocol it is a part.
    round : int
        Number of the round, from 0; below ``2**31``.
    attempt : str
        Which attempt at the round; a round is tried again where answers did not arrive.
    sender : str
        Name of who sent it.
    fields : dict
        What JSON can hold: strings, finite numbers, booleans, None, lists, and dicts of these.
    arrays : dict of str to ndarray
        Arrays of finite doubles, of integers with 64 bits, or of bytes.
    """

    kind: str
    session: str = ""
    round: int = 0
    attempt: str = ""
    sender: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    def reply(
        self, kind: str, sender: str, fields: dict[str, Any], arrays: Arrays | None = None
    ) -> "Packet":
        """Return an answer to this message: one of the same session, round and attempt."""
        return Packet(kind, self.session, self.round, self.attempt, sender, fields, arrays or {})


def pack(packet: Packet, key: SigningKey | None = None) -> bytes:
    """Return a message as bytes, the same on all machines.

    Parameters
    ----------
    packet : Packet
        The message.
    key : SigningKey, default=None
        What signs all of it: who sends it, in which session, round and attempt, and what it says.

    Returns
    -------
    bytes
        At most ``LARGEST_MESSAGE`` of them.

    Raises
    ------
    WireError
        If there is something in it that a message cannot hold.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._wire import Packet, pack, unpack
    >>> data = pack(Packet("answer", round=3, arrays={"vector": np.array([0.5, 1.0])}))
    >>> unpack(data).round, unpack(data).arrays["vector"]
    (3, array([0.5, 1. ]))
    """
    arrays = {name: np.asarray(array, order="C") for name, array in packet.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise WireError(f"array {name!r} is of type {array.dtype}, which no message holds.")
        _check_finite(name, array)
    described = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    header = {
        "kind": packet.kind,
        "session": packet.session,
        "round": packet.round,
        "attempt": packet.attempt,
        "sender": packet.sender,
        "fields": packet.fields,
        "arrays": described,
    }
    try:
        text = json.dumps(header, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError):
        raise WireError("fields of a message must be what JSON can hold.") from None
    body = [array.astype(_TYPES[array.dtype.name]).tobytes() for array in arrays.values()]
    content = b"".join([text, *body])
    if key is not None:
        content += key.sign(_PURPOSE, content)
    data = _PREFIX.pack(_MAGIC, VERSION, len(text), _check(content)) + content
    if len(data) > LARGEST_MESSAGE or len(text) > _LARGEST_HEADER:
        raise WireError(f"a message of {len(data)} bytes is too large.")
    # What nobody could read is not sent.
    _read_header(text)
    return data


def unpack(data: Any, public: str | None = None) -> Packet:
    """Return the message that bytes hold, or raise; whatever the bytes are, nothing is executed.

    Parameters
    ----------
    data : bytes
        What arrived.
    public : str, default=None
        The public key of who must have signed it. None takes messages without a signature, and
        does not look at one.

    Returns
    -------
    Packet
        With arrays of their own.

    Raises
    ------
    WireError
        If it is no message of this version; its sizes are not those that it announces; or a number
        is not finite. As a SignatureError if it is not signed with the key. Nothing else is raised.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise WireError(f"a message is made of bytes, got {type(data).__name__}.")
    data = bytes(data)
    if not _PREFIX.size <= len(data) <= LARGEST_MESSAGE:
        raise WireError(f"{len(data)} bytes are no message of this protocol.")
    magic, version, length, check = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise WireError("these bytes are no message of this protocol.")
    if version != VERSION:
        raise WireError(
            f"the message is of version {version} of the protocol, and this is version {VERSION}: "
            "all owners and the coordinator need the same."
        )
    start = _PREFIX.size + length
    if length > _LARGEST_HEADER or start > len(data):
        raise WireError("the message is cut off, or announces a larger header than it has.")
    if _check(data[_PREFIX.size :]) != check:
        raise WireError("the message was changed on its way.")
    header = _read_header(data[_PREFIX.size : start])
    arrays, end = {}, start
    for name, dtype, shape in header.pop("arrays"):
        n_bytes = math.prod(shape) * np.dtype(_TYPES[dtype]).itemsize
        if end + n_bytes > len(data):
            raise WireError(f"the message is cut off: it lacks some of array {name!r}.")
        flat = np.frombuffer(data, _TYPES[dtype], math.prod(shape), end)
        try:
            arrays[name] = flat.reshape(shape).astype(dtype)
        except ValueError:
            # Numpy has no empty array with axes as long as this.
            raise WireError(f"array {name!r} has a shape that no array has.") from None
        _check_finite(name, arrays[name])
        end += n_bytes
    signature = data[end:]
    if len(signature) not in (0, SIGNATURE_BYTES):
        raise WireError("the message is longer than it announces.")
    if public is not None and not is_signed(public, _PURPOSE, data[_PREFIX.size : end], signature):
        raise SignatureError("the message is not signed with the key of who must have sent it.")
    return Packet(**header, arrays=arrays)


def _check(content: bytes) -> bytes:
    """Return what tells a message from a damaged one; whoever can write one can write this, too."""
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()


def _read_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_read_finite,
            parse_int=_read_integer,
        )
    except (ValueError, RecursionError):
        raise WireError("the header of the message cannot be read.") from None
    if not isinstance(header, dict) or set(header) != {*_HEADER, "arrays"}:
        raise WireError("the header of the message does not have the fields of this protocol.")
    wrong = [name for name, kind in _HEADER.items() if type(header[name]) is not kind]
    if wrong:
        raise WireError(f"the header of the message has no valid {wrong[0]!r}.")
    if not 0 <= header["round"] < 2**31:
        raise WireError("the header of the message has no valid 'round'.")
    if max(len(header[name]) for name, kind in _HEADER.items() if kind is str) > _LONGEST_NAME:
        raise WireError(f"a name in the message has more than {_LONGEST_NAME} letters.")
    described = header["arrays"]
    if not isinstance(described, list) or len(described) > _MOST_ARRAYS:
        raise WireError("the header of the message describes no valid arrays.")
    if not all(_is_described(one) for one in described):
        raise WireError("the header of the message describes an array that no message holds.")
    if len({name for name, _, _ in described}) < len(described):
        raise WireError("two arrays of the message have one name.")
    return header


_HEADER = {
    "kind": str, "session": str, "round": int, "attempt": str, "sender": str, "fields": dict,
}  # fmt: skip


def _is_described(one: Any) -> bool:
    """Tell whether this is a name, a type, and a shape that can be believed."""
    if not isinstance(one, list) or len(one) != 3:
        return False
    name, dtype, shape = one
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return False
    if not isinstance(dtype, str) or dtype not in _TYPES:
        return False
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        return False
    return all(type(length) is int and 0 <= length <= LARGEST_MESSAGE for length in shape)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no finite number.")


def _read_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("there is a number beyond doubles.")
    return number


def _read_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise ValueError("there is an integer beyond 64 bits.")
    return int(text)


def _check_finite(name: str, array: np.ndarray) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise WireError(f"array {name!r} holds NaN or infinity.")
