"""Messages: what was packed comes out, and nothing else does."""

import json
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skdpot.federation import SigningKey, _wire
from skdpot.federation._wire import Packet, SignatureError, WireError, digest_of, pack, unpack

HEADER = {
    "kind": "step", "arrays": [], "fields": {}, "round": 0, "session": "s", "attempt": "",
    "sender": "",
}  # fmt: skip
names = st.text(max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
arrays = st.sampled_from(["float64", "int64", "uint64", "uint8"]).flatmap(
    lambda dtype: hnp.arrays(
        dtype,
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
        elements={"allow_nan": False, "allow_infinity": False} if dtype == "float64" else None,
    )
)
packets = st.builds(
    Packet,
    names,
    names,
    st.integers(0, 2**31 - 1),
    names,
    names,
    st.dictionaries(names, json_values, max_size=3),
    st.dictionaries(names, arrays, max_size=3),
)


def with_content(content, version=_wire.VERSION):
    """Return a message with any content, and with the check that belongs to it."""
    return _wire._PREFIX.pack(_wire._MAGIC, version, _wire._check(content)) + content


def as_bytes(header, body=b"", version=_wire.VERSION):
    """Return a message with any header, as a text or as its values by name."""
    if isinstance(header, dict):
        more = [value for name, value in header.items() if name not in _wire._HEADER]
        header = [*(header[name] for name in _wire._HEADER), *more]
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return with_content(_wire._compressed(text) + body, version)


def assert_same(first, second):
    """Raise unless two packets are the same, bit by bit."""
    for name in ("kind", "session", "round", "attempt", "sender", "fields"):
        assert getattr(first, name) == getattr(second, name)
    assert list(first.arrays) == list(second.arrays)
    for name, array in first.arrays.items():
        other = second.arrays[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        assert array.tobytes() == other.tobytes()


@given(packets)
def test_what_was_packed_comes_out(packet):
    data = pack(packet)
    assert_same(packet, unpack(data))
    assert pack(unpack(bytearray(data))) == data


@given(packets, st.data())
@settings(max_examples=200)
def test_any_change_that_knows_the_check_gives_a_packet_or_a_wire_error(packet, data):
    content = bytearray(pack(packet)[_wire._PREFIX.size :])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        changed = unpack(with_content(bytes(content)))
    except WireError:
        return
    assert_same(changed, unpack(pack(changed)))


@given(packets, st.data())
@settings(max_examples=200)
def test_any_mutation_is_noticed(packet, data):
    packed = bytearray(pack(packet))
    where = data.draw(st.integers(0, len(packed)))
    what = data.draw(st.binary(max_size=4))
    end = data.draw(st.integers(where, len(packed)))
    mutated = bytes(packed[:where]) + what + bytes(packed[end:])
    if mutated == bytes(packed):
        assert_same(packet, unpack(mutated))
    else:
        with pytest.raises(WireError):
            unpack(mutated)


@given(
    st.binary(max_size=200)
    | st.builds(with_content, st.binary(max_size=200))
    | st.builds(as_bytes, st.binary(max_size=60), st.binary(max_size=9))
)
def test_any_bytes_give_a_packet_or_a_wire_error(data):
    with pytest.raises(WireError):
        unpack(data)


@given(
    st.fixed_dictionaries({}, optional={name: json_values for name in HEADER if name != "arrays"}),
    st.lists(
        st.tuples(
            names, st.sampled_from(["float64", "uint8", "int8"]), st.lists(st.integers(-1, 2**62))
        ),
        max_size=3,
    ),
    st.binary(max_size=32),
)
def test_any_header_gives_a_packet_or_a_wire_error(changed, described, body):
    header = HEADER | changed | {"arrays": described}
    try:
        packet = unpack(as_bytes(header, body))
    except WireError:
        return
    assert_same(packet, unpack(pack(packet)))


# What a message of an earlier version begins with.
FORMER = struct.pack("<17sHI16s", b"skdpot federation", 3, 2, bytes(16)) + b"{}"
BOMB = as_bytes(b" " * 2**25)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("text", "bytes"),
        (None, "bytes"),
        (b"", "not a message"),
        (as_bytes(HEADER, version=6), "version 6 of the protocol, and this is version 5"),
        (FORMER, "version 3 of the protocol, and this is version 5"),
        (FORMER[:18], "not a message"),
        (with_content(b""), "cut off"),
        (with_content(_wire._compressed(json.dumps([*HEADER.values()]).encode())[:-1]), "cut off"),
        (with_content(zlib.compress(b"[]")), "cannot be read"),
        (as_bytes(b" " * (_wire._LARGEST_HEADER + 1)), "larger header"),
        (BOMB, "larger header"),
        (as_bytes(b"[" * 100_000), "cannot be read"),
        (as_bytes(b'{"a":' * 100_000), "cannot be read"),
        (as_bytes(b'{"round": 1' + b"0" * 5000 + b"}"), "cannot be read"),
        (as_bytes(b'{"round": NaN}'), "cannot be read"),
        (as_bytes(b'{"fields": 1e999}'), "cannot be read"),
        (as_bytes(json.dumps(HEADER).encode()), "does not have the fields"),
        (as_bytes(HEADER | {"more": 1}), "does not have the fields"),
        (as_bytes(HEADER | {"round": True}), "'round'"),
        (as_bytes(HEADER | {"round": -1}), "'round'"),
        (as_bytes(HEADER | {"session": "s" * 10_000}), "letters"),
        (as_bytes(HEADER | {"arrays": {}}), "no valid 'arrays'"),
        (as_bytes(HEADER | {"arrays": [["x", "uint8", [0]]] * 65}), "no valid arrays"),
        (as_bytes(HEADER | {"arrays": [["x", "uint8", [0]]] * 2}), "one name"),
        (as_bytes(HEADER | {"arrays": [["x", "object", [1]]]}, bytes(8)), "no message holds"),
        (as_bytes(HEADER | {"arrays": [["x", "uint8", [True]]]}, bytes(1)), "no message holds"),
        (as_bytes(HEADER | {"arrays": [["x", "uint8", [1] * 5]]}, bytes(1)), "no message holds"),
        (as_bytes(HEADER | {"arrays": [["x", "float64", [2**28] * 4]]}), "lacks some"),
        (as_bytes(HEADER | {"arrays": [["x", "float64", [0] + [2**28] * 3]]}), "shape"),
        (as_bytes(HEADER, bytes(1)), "longer"),
        (
            as_bytes(HEADER | {"arrays": [["x", "float64", []]]}, np.float64(np.nan).tobytes()),
            "NaN",
        ),
    ],
)
def test_what_is_no_message_is_refused(data, reason):
    with pytest.raises(WireError, match=reason):
        unpack(data)


@pytest.mark.parametrize(
    "packet",
    [
        Packet("a", fields={"x": np.nan}),
        Packet("a", fields={"x": object()}),
        Packet("a", fields={"x": 10**30}),
        Packet("a", round=-1),
        Packet("a", arrays={"x": np.array([np.inf])}),
        Packet("a", arrays={"x": np.array([1.0], dtype=np.float32)}),
        Packet("a", arrays={"x": np.array([None])}),
        Packet("a", arrays={"x": np.zeros((1,) * 5)}),
        Packet("a", arrays={f"x{i}": np.zeros(1) for i in range(65)}),
        Packet("a", arrays={1: np.zeros(1)}),
        Packet("a" * 300),
    ],
)
def test_what_could_not_be_read_is_not_packed(packet):
    with pytest.raises(WireError):
        pack(packet)


def test_a_message_has_a_largest_size(monkeypatch):
    monkeypatch.setattr(_wire, "LARGEST_MESSAGE", 1000)
    with pytest.raises(WireError, match="too large"):
        pack(Packet("a", arrays={"x": np.zeros(200)}))
    with pytest.raises(WireError, match="not a message"):
        unpack(bytes(1001))


def test_a_header_is_never_larger_in_memory_than_headers_may_be():
    assert len(BOMB) < 2**16
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="larger header"):
            unpack(BOMB)
        assert tracemalloc.get_traced_memory()[1] < 4 * _wire._LARGEST_HEADER
    finally:
        tracemalloc.stop()


def test_nothing_is_read_of_what_is_not_signed():
    key = SigningKey.create()
    for data in (BOMB, with_content(BOMB[_wire._PREFIX.size :] + bytes(64)), pack(Packet("a"))):
        with pytest.raises(SignatureError, match="not signed"):
            unpack(data, key.public)
    # Nor is the signature taken for an array.
    content = _wire._compressed(_wire._content(Packet("a", arrays={"x": np.zeros(8, int)}))[0])
    data = with_content(content + key.sign(_wire._PURPOSE, content))
    with pytest.raises(SignatureError, match="not signed"):
        unpack(data, key.public)


def test_a_digest_does_not_depend_on_how_a_message_is_compressed(monkeypatch):
    packet = Packet("task", fields={"size": 3}, arrays={"x": np.arange(3)})
    data, digest = pack(packet), digest_of(packet)
    monkeypatch.setattr(_wire.zlib, "Z_BEST_COMPRESSION", 0)
    assert pack(packet) != data
    assert digest_of(packet) == digest
    assert_same(unpack(pack(packet)), packet)


def test_arrays_do_not_share_memory_with_the_message():
    data = bytearray(pack(Packet("a", arrays={"x": np.arange(3.0)})))
    array = unpack(data).arrays["x"]
    array += 1.0
    np.testing.assert_array_equal(unpack(data).arrays["x"], [0.0, 1.0, 2.0])
