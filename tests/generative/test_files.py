"""Files of generators: what was written is read, or nothing is; and nothing is executed."""

import json
import os
import pickle
import zipfile
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.published import SinkhornGradientGenerator

FOLDER = Path(__file__).parent


def fit_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 40, 200), "sex": rng.choice(["F", "M"], 200)})
    generator = DPSinkhornGenerator(
        schema={"age": range(18, 40), "sex": ["F", "M"]}, target="sex",
        model=TableSketch(12, n_iter=3), random_state=0,
    )  # fmt: skip
    return generator.fit(table, groups=rng.integers(0, 60, 200))


def fit_images():
    X = np.random.default_rng(0).uniform(size=(60, 16))
    generator = DPSinkhornGenerator(
        5.0, bounds=(0, 1), image_shape=(4, 4), classes=[0, 1], random_state=0
    )
    return generator.fit(X, np.arange(60) % 2)


@pytest.fixture(params=[fit_table, fit_images], ids=["table", "images"])
def fitted(request):
    return request.param()


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "generator.npz")
    return tmp_path / "generator.npz"


def drawn(generator):
    parts = generator.set_params(random_state=0).sample(8)
    return [np.asarray(part).tolist() for part in (parts if isinstance(parts, tuple) else [parts])]


def members_of(path):
    with ZipFile(path) as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def write(path, members):
    with ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(ZipInfo(name), data)


def refused(path, message, kind=DPSinkhornGenerator):
    with pytest.raises(ValueError, match=message):
        kind.load(path)


def test_what_was_written_is_read_and_written_again_as_the_same_bytes(fitted, path):
    before = path.read_bytes()
    assert drawn(DPSinkhornGenerator.load(path)) == drawn(fitted)
    fitted.save(path)
    assert path.read_bytes() == before


def test_a_file_is_replaced_at_once_or_not_at_all(fitted, path, monkeypatch):
    before = path.read_bytes()

    def fail(*_):
        raise OSError("the disk is full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="the disk is full"):
            patch.setattr(os, name, fail)
            fitted.save(path)
        assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    link = path.parent / "link"
    link.symlink_to(path.name)
    fitted.save(link)
    assert link.is_symlink() and path.read_bytes() == before


def test_a_damaged_file_is_refused_or_makes_the_same_records(fitted, path, rng):
    whole, expected = path.read_bytes(), drawn(fitted)
    for _ in range(30):
        damaged = bytearray(whole)
        start, length = int(rng.integers(len(whole))), int(rng.integers(1, 30))
        damaged[start : start + length] = rng.bytes(length) if rng.random() < 0.7 else b""
        path.write_bytes(damaged)
        try:
            found = DPSinkhornGenerator.load(path)
        except ValueError:
            continue
        assert drawn(found) == expected


@pytest.mark.parametrize("data", [b"", b"PK", b"\x93NUMPY" + bytes(100), bytes(1000)], ids=str)
def test_other_files_are_refused(data, tmp_path):
    (tmp_path / "other").write_bytes(data)
    refused(tmp_path / "other", "is damaged, or not a file .* its method save has written")
    np.savez(tmp_path / "other.npz", x=np.zeros(2))
    refused(tmp_path / "other.npz", "is not a file of a generator")
    with pytest.raises(FileNotFoundError):
        DPSinkhornGenerator.load(tmp_path / "nothing")


@pytest.mark.parametrize("kind", [DPSinkhornGenerator, SinkhornGradientGenerator])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("version_?/*.npz")), ids=lambda path: path.stem)
def test_files_of_the_first_version_say_how_to_go_on(kind, path):
    refused(path, "was saved by skdpot 0.1, and this version .* fit again", kind)


def test_what_a_header_must_say(fitted, path):
    """Each change of the header, and what the error says."""
    members = members_of(path)
    refused(path, "the file is of a DPSinkhornGenerator", SinkhornGradientGenerator)
    changes = {
        "is not a file of a generator": lambda content: content.update(format="other"),
        "has the version 5, and only version 4": lambda content: content.update(version=5),
        "it lacks 'guarantee'": lambda content: content["header"].pop("guarantee"),
        "must hold the arrays": lambda content: content["arrays"].pop(),
        "unknown class: 3": lambda content: content["header"]["fitted"].update({"class": 3}),
        "'epsilon' parameter": lambda content: content["header"]["parameters"].update(epsilon="x"),
        "unexpected keyword": lambda content: content["header"]["parameters"].update(more=1),
    }
    for message, change in changes.items():
        content = json.loads(members["header.json"])
        change(content)
        write(path, members | {"header.json": json.dumps(content)})
        refused(path, message)
    write(path, members | {"header.json": "{"})
    refused(path, "is damaged, or not a file of a generator")


def test_arrays_that_do_not_fit_are_refused(fitted, path):
    members = members_of(path)
    for name in members.keys() - {"header.json"}:
        write(path, {key: data for key, data in members.items() if key != name})
        refused(path, "must hold the arrays")
    name = next(name for name in members if name.endswith(("means.npy", "model.cells.npy")))
    for wrong in (np.zeros(0), np.zeros((2, 3)), np.zeros((1, 1, 1, 1))):
        np.save(path.parent / "wrong.npy", wrong)
        write(path, members | {name: (path.parent / "wrong.npy").read_bytes()})
        with pytest.raises(ValueError):
            DPSinkhornGenerator.load(path)


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
    members = members_of(path)
    np.save(tmp_path / "harmful.npy", harmful)
    name = next(name for name in members if name.endswith(".npy"))
    write(path, members | {name: (tmp_path / "harmful.npy").read_bytes()})
    refused(path, "is damaged")
    path.write_bytes(pickled)
    refused(path, "is damaged")
    assert not proof.exists()
    assert zipfile.is_zipfile(path) is False
