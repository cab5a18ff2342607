"""Messages: what was packed comes out, and nothing else does."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skdpot.federation import _wire
from skdpot.federation._wire import Packet, WireError, pack, unpack

HEADER = {
    "kind": "step", "session": "s", "round": 0, "attempt": "", "sender": "", "fields": {},
    "arrays": [],
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


def as_bytes(header, body=b"", version=_wire.VERSION, length=None):
    """Return a message with any header, and with the check that belongs to it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    check = _wire._check(text + body)
    return _wire._PREFIX.pack(_wire._MAGIC, version, length, check) + text + body


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


@given(st.binary(max_size=200) | st.builds(as_bytes, st.binary(max_size=60), st.binary(max_size=9)))
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


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("text", "bytes"),
        (None, "bytes"),
        (b"", "no message"),
        (as_bytes(HEADER, version=1), "version 1 of the protocol, and this is version 3"),
        (as_bytes(HEADER, length=2**31), "cut off"),
        (as_bytes(b"[" * 100_000), "cannot be read"),
        (as_bytes(b'{"a":' * 100_000), "cannot be read"),
        (as_bytes(b'{"round": 1' + b"0" * 5000 + b"}"), "cannot be read"),
        (as_bytes(b'{"round": NaN}'), "cannot be read"),
        (as_bytes(b'{"fields": 1e999}'), "cannot be read"),
        (as_bytes([HEADER]), "does not have the fields"),
        (as_bytes(HEADER | {"more": 1}), "does not have the fields"),
        (as_bytes(HEADER | {"round": True}), "'round'"),
        (as_bytes(HEADER | {"round": -1}), "'round'"),
        (as_bytes(HEADER | {"session": "s" * 10_000}), "letters"),
        (as_bytes(HEADER | {"arrays": {}}), "no valid arrays"),
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
    with pytest.raises(WireError, match="no message"):
        unpack(bytes(1001))


def test_arrays_do_not_share_memory_with_the_message():
    data = bytearray(pack(Packet("a", arrays={"x": np.arange(3.0)})))
    array = unpack(data).arrays["x"]
    array += 1.0
    np.testing.assert_array_equal(unpack(data).arrays["x"], [0.0, 1.0, 2.0])
