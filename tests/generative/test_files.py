"""Files of generators: what was written is read, or nothing is; and nothing is executed."""

import json
import os
import pickle
import zipfile
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from skdpot.generative import _files as module
from skdpot.generative._files import read_generator, write_generator

HEADER = {"steps": 10, "epsilon": 0.1, "classes": ["a", "ü", None], "plan": {"private": True}}
ARRAYS = {
    "body.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7),
    "none": np.empty((0, 4), dtype=np.float64),
    "ünïcode name": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "generator.npz"


@pytest.fixture
def written(path):
    """Return the path of a file that holds something."""
    write_generator(path, HEADER, ARRAYS)
    return path


def assert_equal(found, arrays, header=HEADER):
    assert found[0] == header
    assert list(found[1]) == list(arrays)
    for name, array in arrays.items():
        assert found[1][name].dtype == array.dtype
        assert found[1][name].dtype.isnative
        assert found[1][name].flags.writeable
        np.testing.assert_array_equal(found[1][name], array, strict=True)


def with_members(path, members, **options):
    """Write an archive of anything."""
    with ZipFile(path, "w", **options) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, archive.compression)


def members_of(path):
    with ZipFile(path) as archive:
        return [(member.filename, archive.read(member)) for member in archive.infolist()]


def npy(array):
    return module._as_npy("x", np.asarray(array))


def header_member(content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return ("header.json", text)


def whole(arrays=(), header=None, **changes):
    content = {"format": "skdpot generator", "version": 4, "arrays": list(arrays), "header": {}}
    changes |= {} if header is None else {"header": header}
    return header_member({**content, **changes})


def test_what_was_written_is_read(written):
    assert_equal(read_generator(written), ARRAYS)
    assert_equal(read_generator(os.fspath(written)), ARRAYS)


@pytest.mark.parametrize("code", "?bhilqBHILQefd")
@pytest.mark.parametrize("order", "<>")
def test_numbers_of_all_types_and_orders_come_back(path, code, order):
    dtype = np.dtype(code).newbyteorder(order)
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for values in (array, np.asfortranarray(array), array[::-1, ::2, :0], array[0, 0, 0]):
        write_generator(path, {}, {"x": values})
        native = np.array(values, dtype=dtype.newbyteorder("="))
        assert_equal(read_generator(path), {"x": native}, header={})


def test_extreme_numbers_come_back(path):
    info = np.finfo(np.float64)
    floats = np.array([-0.0, info.tiny, info.smallest_subnormal, info.max, np.inf, np.nan])
    write_generator(path, {"epsilon": float(info.smallest_subnormal)}, {"x": floats})
    header, arrays = read_generator(path)
    assert header == {"epsilon": float(info.smallest_subnormal)}
    assert arrays["x"].tobytes() == floats.tobytes()


def test_numpy_reads_the_arrays_too(written):
    with np.load(written, allow_pickle=False) as archive:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(archive[name], array, strict=True)
        assert json.loads(archive["header.json"])["header"] == HEADER


def test_files_are_small_and_the_same_bytes_every_time(written, tmp_path):
    write_generator(tmp_path / "other", HEADER, ARRAYS)
    assert (tmp_path / "other").read_bytes() == written.read_bytes()
    array = np.zeros(10**6, dtype=np.float32)
    write_generator(written, {}, {"x": array})
    assert array.nbytes < written.stat().st_size < array.nbytes + 1000


def test_a_file_is_replaced_at_once_or_not_at_all(written, monkeypatch):
    before = written.read_bytes()

    def fail(*_):
        raise OSError("the disk is full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="the disk is full"):
            patch.setattr(os, name, fail)
            write_generator(written, {}, {})
        assert written.read_bytes() == before
    with pytest.raises(ValueError, match="header"):
        write_generator(written, {"x": object()}, {})
    assert written.read_bytes() == before
    assert os.listdir(written.parent) == [written.name]
    write_generator(written, {}, {})
    assert read_generator(written) == ({}, {})
    assert os.listdir(written.parent) == [written.name]


def test_links_stay_links(written, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(written.name)
    write_generator(link, {"new": True}, {})
    assert link.is_symlink() and read_generator(written) == ({"new": True}, {})


def test_folders_and_files_that_are_not_there_are_errors_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_generator(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        write_generator(tmp_path / "nothing" / "file", {}, {})
    with pytest.raises(OSError):
        read_generator(tmp_path)
    with pytest.raises(OSError):
        write_generator(tmp_path, {}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "header, message",
    [
        ({"x": np.float32(1)}, "must have values of JSON"),
        ({"x": float("nan")}, "must have values of JSON"),
        ({"x": {1}}, "must have values of JSON"),
    ],
)
def test_headers_that_would_be_read_as_others_are_refused(path, header, message):
    with pytest.raises(ValueError, match=message):
        write_generator(path, header, {})
    assert not path.exists()


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}]),
        np.array(["a"]),
        np.array([1j]),
        np.zeros(2, "f4,i4"),
        np.array(["1970"], "M8"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_only_numbers_are_written(path, array):
    with pytest.raises(ValueError, match="the array 'x' must hold truth values, integers"):
        write_generator(path, {}, {"x": array})


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\\b", "\ud800", 3])
def test_names_that_an_archive_would_change_are_refused(path, name):
    with pytest.raises(ValueError, match="names of arrays must be printable"):
        write_generator(path, {}, {name: np.zeros(1)})


def test_strange_names_are_names(path):
    arrays = {name: np.zeros(1) for name in ("", "../x", "/x", "x/", "x.npy", "C:x", " ")}
    write_generator(path, {}, arrays)
    assert_equal(read_generator(path), arrays, header={})


def test_damaged_files_are_read_right_or_refused(path):
    """Every byte is changed in some way, and the file is cut everywhere."""
    arrays = {"a": np.arange(3.0), "b": np.array([1], dtype=np.int16)}
    write_generator(path, {"steps": 3}, arrays)
    intact = path.read_bytes()
    random = np.random.default_rng(0)
    n_read = 0
    for position in range(len(intact)):
        damaged = bytearray(intact)
        damaged[position] ^= int(random.choice([1, 8, 64, 128, random.integers(1, 256)]))
        for data in (damaged, intact[:position]):
            path.write_bytes(data)
            try:
                found = read_generator(path)
            except ValueError:
                continue
            assert_equal(found, arrays, header={"steps": 3})
            n_read += 1
    # Times, attributes and the like of the members do not matter.
    assert 0 < n_read < 0.25 * len(intact)


def test_randomly_damaged_files_are_read_right_or_refused(written):
    intact = written.read_bytes()
    random = np.random.default_rng(1)
    for _ in range(500):
        damaged = bytearray(intact)
        start, other = random.integers(len(intact), size=2)
        length = int(random.integers(1, 30))
        match random.integers(3):
            case 0:
                damaged[start : start + length] = random.bytes(length)
            case 1:
                damaged[start : start + length] = intact[other : other + length]
            case 2:
                del damaged[start : start + length]
        written.write_bytes(damaged)
        try:
            found = read_generator(written)
        except ValueError:
            continue
        assert_equal(found, ARRAYS)


@pytest.mark.parametrize("data", [b"", b"PK", b"\x93NUMPY" + bytes(100), bytes(1000)], ids=str)
def test_other_files_are_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged, or not a file of a generator"):
        read_generator(path)


def test_other_archives_are_refused(path):
    np.savez(path, x=np.zeros(2))
    with pytest.raises(ValueError, match="is not a file of a generator: it has no header"):
        read_generator(path)


@pytest.mark.parametrize(
    "member, message",
    [
        (header_member(b"{"), "is not JSON"),
        (header_member(b"[" * 100_000), "is not JSON"),
        (header_member(b"\xff\xfe\x00"), "is not JSON"),
        (header_member([1]), "is not a file of a generator"),
        (header_member({}), "is not a file of a generator"),
        (whole(format="other"), "is not a file of a generator"),
        (whole(version=5), "has the version 5, and only version 4 can be read"),
        (whole(version=None), "has the version None"),
        (whole(header=[1]), "lacks a header, or"),
    ],
)
def test_other_headers_are_refused(path, member, message):
    with_members(path, [member])
    with pytest.raises(ValueError, match=message):
        read_generator(path)


def as_claimed(claim, data=bytes(24)):
    """Return an .npy file with a beginning that claims something of the data."""
    text = (claim + " " * (-(len(claim) + 11) % 64) + "\n").encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def claim(descr="<f8", order=False, shape=(3,)):
    return f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}"


@pytest.mark.parametrize(
    "text",
    [
        claim("|O"),
        claim("<c16"),
        claim("<U6"),
        claim(order=True),
        claim(shape=(2,)),
        claim(shape=(4,)),
        claim(shape=(-3,)),
        claim(shape=(2**31 - 1,)),
        claim(shape=(2**31 - 1,) * 2),
        claim(shape=(0, 10**30)),
        claim(shape=()),
        claim(shape=3),
        claim("<f4", shape=(3,)),
        "{'descr': '<f8'}",
        "{" * 200,
        "__import__('os')",
        "",
    ],
)
def test_arrays_that_are_not_what_they_claim_are_refused(path, text):
    with_members(path, [whole("x"), ("x.npy", as_claimed(text))])
    with pytest.raises(ValueError, match="array 'x' is damaged, or not an array of numbers"):
        read_generator(path)


def test_members_must_be_those_of_the_header(written):
    intact = members_of(written)
    others = [
        [*intact, ("more.npy", npy([1.0]))],
        [*intact, ("readme.txt", b"")],
        intact[:-1],
        [intact[0], *intact[:0:-1]],
        [("other.npy", data) if name == "count.npy" else (name, data) for name, data in intact],
    ]
    for members in others:
        with_members(written, members)
        with pytest.raises(ValueError, match="must hold the arrays"):
            read_generator(written)


def test_names_occur_once(written):
    with pytest.warns(UserWarning, match="Duplicate name"):
        with_members(written, [*members_of(written), ("count.npy", npy(8))])
    with pytest.raises(ValueError, match="a name occurs twice"):
        read_generator(written)


def test_a_small_file_does_not_become_a_large_array(path):
    """Neither by compression, nor by a wrong size, nor by reading the same bytes several times."""
    zeros = np.zeros(10**6)
    with_members(path, [whole("x"), ("x.npy", npy(zeros))], compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="something in it is compressed"):
        read_generator(path)
    members = [zipfile.ZipInfo(f"{k}") for k in range(3)]
    for member in members:
        member.file_size = member.compress_size = 40
    module._check_directory(members, 120)
    with pytest.raises(ValueError, match="claims to hold more than its own size"):
        module._check_directory(members, 119)


class Intruder:
    """When it is unpickled, a file appears."""

    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return Path.touch, (self.proof,)


def test_nothing_in_a_file_is_executed(path, tmp_path):
    proof = tmp_path / "proof"
    harmful = np.array([Intruder(proof), None])
    pickled = pickle.dumps(harmful)
    pickle.loads(pickled)
    assert proof.exists()
    proof.unlink()

    path.write_bytes(pickled)
    with pytest.raises(ValueError, match="is damaged"):
        read_generator(path)
    np.savez(path, x=harmful)
    harmful_npy = dict(members_of(path))["x.npy"]
    code = f"__import__('pathlib').Path({str(proof)!r}).touch()"
    harmful_text = harmful_npy.replace(b"'descr': '|O'", f"'descr': {code}".encode())
    for data in (harmful_npy, harmful_text, code.encode(), pickled):
        with_members(path, [whole("x"), ("x.npy", data)])
        with pytest.raises(ValueError, match="the array 'x' is"):
            read_generator(path)
    assert not proof.exists()
