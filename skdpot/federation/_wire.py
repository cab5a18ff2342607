"""The wire format of messages: a compressed JSON header and plain arrays, without pickles."""

import hashlib
import json
import math
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._keys import SIGNATURE_BYTES, SigningKey, is_signed

__all__ = [
    "LARGEST_MESSAGE",
    "MOST_ROWS",
    "Arrays",
    "Packet",
    "Refusal",
    "SignatureError",
    "WireError",
    "digest_of",
    "pack",
    "unpack",
]

Arrays = dict[str, np.ndarray]

VERSION = 5
_NOT_SIGNED = "the message is not signed with the key of who must have sent it."
# Purpose of the signature of a message.
_PURPOSE = f"message {VERSION}"
# Size of the largest message of the protocols; a larger one is refused.
LARGEST_MESSAGE = 1 << 28
# Largest number of rows or features; a larger one is refused.
MOST_ROWS = 1 << 40
_MAGIC = b"SKDP"
# The check detects only accidental damage, because anybody can compute it.
_CHECK_BYTES = 4
_PREFIX = struct.Struct(f"<{len(_MAGIC)}sB{_CHECK_BYTES}s")
# The beginning of messages of versions 1 to 3.
_FORMER = struct.Struct("<17sH")
_FORMER_MAGIC = b"skdpot federation"
_LARGEST_HEADER = 1 << 22
_MOST_ARRAYS = 64
_MOST_AXES = 4
_LONGEST_NAME = 200
_LONGEST_INTEGER = 20
# Types by their name in a header, and their little-endian form in a message.
_TYPES = {"float64": "<f8", "int64": "<i8", "uint64": "<u8", "uint8": "u1"}
# Dictionary for the compression of headers: common parts of headers, the most frequent ones last.
# Changing it needs a new version.
_PHRASES = b"".join(
    (
        b'["refusal",[],{"accused":"reason":"the owner ',
        b'["hello",[],{"node":"source ","target ","bounds":[],"n_rounds":null}',
        b'["round",[["amounts","float64",[]]],{"eta":1.0,"node":"target ","relaxation":1.8,"shift"',
        b'["finish",[["plan","float64",[]],["prices","float64",[]]],{"node":"target "},',
        b'["welcome",[["neighbours","int64",[]]],{"bounds":[0.0,"n_rounds":null},0,"',
        b'["hello",[],{"max_rows":10000000,"n_owners":,"name":"","owner":0,"release":{"bounds":[[',
        b'],"delta":1e-06,"epsilon":.0,"groups":["str \'"],"kind":"histogram","layout":[[0,0],[]],',
        b'"kind":"moments","n_honest":null,"noise":"shared","own","owners_per_group":[]},"roster":[["',
        b'"],["","ed25519:="]],"secure":false,true},0,"',
        b'["finish",[["support","float64",[]],["total","int64",[]]],{"n_contributors":,"n_parts":,',
        b'"n_records":,"objective":0.,"rows":[]},1,"","","welcome",[],{"group":"n_features":},0,"',
        b'["step",["answer",[["vector","float64",[]]],{},["vector","int64",[]]],{},',
        b'["keys",[],{"plan":{"all_or_nothing":true,false,"n_neighbours":null,"n_owners":3,"size":,',
        b'"threshold":3},"task":"["shares",[["owners","int64",[3]],["keys","uint8",[2,2,33]],',
        b'["signatures","uint8",[2,64]]],{},0,"',
        b'["check",[["delivered owners","int64",[3]],["delivered shares","uint8",[2,80]],',
        b'["delivered points","uint8",[2,2,33]]],{"step":{"kind":"release","largest":"n_parts":3,',
        b'"n_records":"size":"type":"float64""int64"}},0,"["consistency",[["survivors","int64",[3]]],',
        b'["reveal",[["survivors","int64",[3]],["signers","int64",[3]],["signatures","uint8",[3,64',
        b'["answer",[["amounts","float64",[]]],{},["welcome",[],{"n_features":,"n_rows":},0,"',
        b'["done",[],{},1,"","","["check",[],{},0,"["masked",[["masked","uint64",[]]],{},0,"',
        b'["consistency",[["signatures","uint8",[1,64]]],{},0,"["reveal",[["shares","uint8",[3,32]]],',
        b'{},0,"["shares",[["shares","uint8",[2,80]],["points","uint8",[5,33]]],{},0,"',
        b'["keys",[["keys","uint8",[2,33]],["signatures","uint8",[1,64]]]',
        b',{},0,"","","',
    )
)


class WireError(ValueError):
    """Data are not a complete message of this protocol and version."""


class Refusal(Exception):
    """An owner refuses to answer, for a public reason.

    Parameters
    ----------
    reason : str
        The reason.
    accused : int, default=None
        The owner whose fault it is.
    """

    def __init__(self, reason: str, accused: int | None = None) -> None:
        super().__init__(reason)
        self.fields = {"reason": reason} | ({} if accused is None else {"accused": accused})


class SignatureError(WireError):
    """A message is not signed with the required key."""


@dataclass(frozen=True, eq=False)
class Packet:
    """A message of a protocol.

    Parameters
    ----------
    kind : str
        Kind of the message: a step, an answer, a refusal.
    session : str
        Name of the run of the protocol.
    round : int
        Number of the round, from 0; below ``2**31``.
    attempt : str
        Name of the attempt; a round is repeated if answers did not arrive.
    sender : str
        Name of the sender.
    fields : dict
        Values of JSON: strings, finite numbers, booleans, None, lists, and dicts of these.
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
        """Return an answer to this message, with the same session, round and attempt."""
        return Packet(kind, self.session, self.round, self.attempt, sender, fields, arrays or {})


def pack(packet: Packet, key: SigningKey | None = None) -> bytes:
    """Return a message as at most ``LARGEST_MESSAGE`` bytes, the same on all machines.

    The key signs the whole message: sender, session, round, attempt and content. Raises a WireError
    if the packet contains something that a message cannot hold.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation._wire import Packet, pack, unpack
    >>> data = pack(Packet("answer", round=3, arrays={"vector": np.array([0.5, 1.0])}))
    >>> unpack(data).round, unpack(data).arrays["vector"]
    (3, array([0.5, 1. ]))
    """
    text, body = _content(packet)
    # A message that nobody could read is not sent.
    _read_header(text)
    content = _compressed(text) + body
    if key is not None:
        content += key.sign(_PURPOSE, content)
    data = _PREFIX.pack(_MAGIC, VERSION, _check(content)) + content
    if len(data) > LARGEST_MESSAGE or len(text) > _LARGEST_HEADER:
        raise WireError(f"a message of {len(data)} bytes is too large.")
    return data


def digest_of(packet: Packet) -> str:
    """Return a digest of a message, which does not depend on its compression."""
    return hashlib.sha256(b"".join(_content(packet))).hexdigest()


def unpack(data: Any, public: str | None = None) -> Packet:
    """Return the message in bytes, or raise; no code in the bytes is executed.

    `public` is the public key of the required signer. None accepts messages without a signature,
    and does not verify one. The arrays are copies.

    Raises only WireError: if the bytes are no message of this version, sizes differ from the
    announced ones, or a number is not finite. It is a SignatureError if the message is not signed
    with the key.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise WireError(f"a message is made of bytes, got {type(data).__name__}.")
    data = bytes(data)
    if not _PREFIX.size <= len(data) <= LARGEST_MESSAGE:
        raise WireError(f"{len(data)} bytes are not a message of this protocol.")
    magic, version, check = _PREFIX.unpack_from(data)
    if data.startswith(_FORMER_MAGIC) and len(data) >= _FORMER.size:
        _, version = _FORMER.unpack_from(data)
    elif magic != _MAGIC:
        raise WireError("these bytes are not a message of this protocol.")
    if version != VERSION:
        raise WireError(
            f"the message is of version {version} of the protocol, and this is version {VERSION}: "
            "all owners and the coordinator need the same."
        )
    if _check(data[_PREFIX.size :]) != check:
        raise WireError("the message was changed on its way.")
    if public is not None:
        # Before the header is read, because a small one may decompress to a large one.
        content, signature = data[_PREFIX.size : -SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if not is_signed(public, _PURPOSE, content, signature):
            raise SignatureError(_NOT_SIGNED)
    text, start = _uncompressed(data)
    header = _read_header(text)
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
    if public is not None and not signature:
        raise SignatureError(_NOT_SIGNED)
    return Packet(**header, arrays=arrays)


def _content(packet: Packet) -> tuple[bytes, bytes]:
    """Return the header and the arrays of a message, the same on all machines."""
    arrays = {name: np.asarray(array, order="C") for name, array in packet.arrays.items()}
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise WireError(f"array {name!r} is of type {array.dtype}, which no message holds.")
        _check_finite(name, array)
    described = [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]
    header = [described if name == "arrays" else getattr(packet, name) for name in _HEADER]
    try:
        text = json.dumps(header, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError):
        raise WireError("fields of a message must be values of JSON.") from None
    return text, b"".join(a.astype(_TYPES[a.dtype.name]).tobytes() for a in arrays.values())


def _compressed(text: bytes) -> bytes:
    machine = zlib.compressobj(zlib.Z_BEST_COMPRESSION, wbits=-zlib.MAX_WBITS, zdict=_PHRASES)
    return machine.compress(text) + machine.flush()


def _uncompressed(data: bytes) -> tuple[bytes, int]:
    """Return the header of a message, of limited size, and the position of its arrays."""
    machine = zlib.decompressobj(-zlib.MAX_WBITS, _PHRASES)
    try:
        text = machine.decompress(memoryview(data)[_PREFIX.size :], _LARGEST_HEADER)
    except zlib.error:
        raise WireError("the header of the message cannot be read.") from None
    if not machine.eof:
        raise WireError("the message is cut off, or has a larger header than any.")
    return text, len(data) - len(machine.unused_data)


def _check(content: bytes) -> bytes:
    """Return a check value, which detects accidental damage only."""
    return hashlib.blake2b(content, digest_size=_CHECK_BYTES).digest()


def _read_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_read_finite, parse_int=_read_integer
        )
    except (ValueError, RecursionError):
        raise WireError("the header of the message cannot be read.") from None
    if not isinstance(header, list) or len(header) != len(_HEADER):
        raise WireError("the header of the message does not have the fields of this protocol.")
    header = dict(zip(_HEADER, header, strict=True))
    wrong = [name for name, kind in _HEADER.items() if type(header[name]) is not kind]
    if wrong:
        raise WireError(f"the header of the message has no valid {wrong[0]!r}.")
    if not 0 <= header["round"] < 2**31:
        raise WireError("the header of the message has no valid 'round'.")
    if max(len(header[name]) for name, kind in _HEADER.items() if kind is str) > _LONGEST_NAME:
        raise WireError(f"a name in the message has more than {_LONGEST_NAME} letters.")
    described = header["arrays"]
    if len(described) > _MOST_ARRAYS:
        raise WireError("the header of the message describes no valid arrays.")
    if not all(_is_described(one) for one in described):
        raise WireError("the header of the message describes an array that no message holds.")
    if len({name for name, _, _ in described}) < len(described):
        raise WireError("two arrays of the message have one name.")
    return header


_HEADER = {
    "kind": str, "arrays": list, "fields": dict, "round": int, "session": str, "attempt": str,
    "sender": str,
}  # fmt: skip


def _is_described(one: Any) -> bool:
    """Tell whether this is a name, a known type, and a plausible shape."""
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
    raise ValueError(f"{name} is not a finite number.")


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
