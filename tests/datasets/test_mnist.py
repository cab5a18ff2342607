"""Reading MNIST from an archive."""

import os

import numpy as np
import pytest

from skdpot.datasets import load_mnist

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
GOOD = {"x_train": IMAGES, "y_train": [1, 0], "x_test": IMAGES[:1], "y_test": [5]}


@pytest.fixture
def write(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return write


def test_images_are_rows_from_zero_to_one(write):
    data = load_mnist(write(**GOOD))
    np.testing.assert_allclose(data.data, IMAGES.reshape(2, 12) / 255, rtol=1e-6)
    np.testing.assert_array_equal(data.target, [1, 0])
    assert data.data_test.shape == (1, 12) and data.target_test.tolist() == [5]
    assert data.image_shape == (3, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"x_train": IMAGES.astype(float)},
        {"x_train": IMAGES[0]},
        {"y_train": [1]},
        {"y_test": [[5]]},
    ],
)
def test_other_shapes_and_types_are_refused(write, wrong):
    with pytest.raises(ValueError, match="must hold images of shape"):
        load_mnist(write(**GOOD | wrong))


def test_other_files_are_refused(write, tmp_path):
    with pytest.raises(ValueError, match="is no such archive. Give an .npz archive"):
        load_mnist(write(x_train=IMAGES))
    with pytest.raises(ValueError, match="is no such archive"):
        load_mnist(write(**GOOD | {"y_train": np.array([{}, 1], dtype=object)}))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load_mnist(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04"])
def test_files_that_are_no_archives_are_refused(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no such archive. Give an .npz archive"):
        load_mnist(path)


def test_damaged_archives_are_refused(write):
    path = write(**GOOD)
    content = bytearray(path.read_bytes())
    content[content.index(IMAGES.tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is no such archive. Give an .npz archive"):
        load_mnist(path)


def test_single_array_is_no_archive(tmp_path):
    np.save(tmp_path / "data.npy", IMAGES)
    with pytest.raises(ValueError, match="is no such archive. Give an .npz archive"):
        load_mnist(tmp_path / "data.npy")


@pytest.mark.skipif("SKDPOT_MNIST" not in os.environ, reason="SKDPOT_MNIST names no archive")
def test_the_data_set_itself():
    data = load_mnist(os.environ["SKDPOT_MNIST"])
    assert data.data.shape == (60_000, 784) and data.data_test.shape == (10_000, 784)
    assert np.bincount(data.target).tolist()[:3] == [5923, 6742, 5958]
