"""Ordinary models that learn from sketches of private images, beside other ways to make images.

Run with ``SKDPOT_MNIST=mnist.npz SKDPOT_FASHION=fashion_mnist.npz OMP_NUM_THREADS=1 python -m
pytest benchmarks/test_sketch.py -m benchmark -s``. Nothing is asserted about time or
accuracy. Every row makes 60,000 images from the 60,000 real ones and trains classifiers on them,
which are tested on the 10,000 real images held out for that; with ``SKDPOT_VALIDATION=1`` the last
10,000 of the training images take their place, to choose by. ``SKDPOT_SEEDS=5`` sets the number of
seeds, ``SKDPOT_MODELS=cnn`` leaves out other classifiers than the convolutional network, and
``SKDPOT_PICTURES=folder`` keeps grids of images there. On one core of a CPU a row takes about two
minutes with a seed.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import euclidean_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.neural_network import MLPClassifier
from sklearn.utils import Bunch

from benchmarks.image_methods import Gaussians, make_published
from benchmarks.images import load_images
from skdpot import DPSinkhornGenerator
from skdpot.generative import ImageSketch
from skdpot.generative._records import sinkhorn_divergence

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("default")]

FILES = {"MNIST": "SKDPOT_MNIST", "Fashion-MNIST": "SKDPOT_FASHION"}
SEEDS = range(int(os.environ.get("SKDPOT_SEEDS", "1")))
EPSILONS = (10.0, 1.0, 0.2)
DELTA = 1e-5
N_DRAWN = 60_000
SIDE = 28
CLASSES = range(10)
GRAY = Bunch(image_shape=(SIDE, SIDE), classes=CLASSES)


def convolutions(seed):
    from benchmarks.image_classifiers import CLASSIFIERS

    return CLASSIFIERS["strided"]((SIDE, SIDE), seed, n_epochs=3)


MODELS = {
    "LogReg": lambda seed: LogisticRegression(max_iter=100),
    "MLP": lambda seed: MLPClassifier(early_stopping=True, random_state=seed, max_iter=30),
    "CNN": convolutions,
}
WANTED = [n for n in MODELS if n.lower() in os.environ.get("SKDPOT_MODELS", "logreg,mlp,cnn")]


def make_sketch(name, epsilon, seed, **parameters):
    encoder = "pose" if name == "MNIST" else "auto"
    return DPSinkhornGenerator(
        epsilon, DELTA, classes=CLASSES, image_shape=(SIDE, SIDE), bounds=(0, 1), random_state=seed,
        model=ImageSketch(encoder, **parameters),
    )  # fmt: skip


WAYS = {
    "sketch": make_sketch,
    "sketch, not moved": lambda *args: make_sketch(*args, augment=None),
    "Gaussians": lambda name, *args: Gaussians(*args),
    "published": lambda name, *args: make_published(GRAY, *args),
}


@pytest.fixture(scope="module", params=FILES)
def images(request):
    if FILES[request.param] not in os.environ:
        pytest.skip(f"{FILES[request.param]} names no archive")
    data = load_images(os.environ[FILES[request.param]])
    if "SKDPOT_VALIDATION" in os.environ:
        data.data, data.data_test = data.data[:50_000], data.data[50_000:]
        data.target, data.target_test = data.target[:50_000], data.target[50_000:]
    return request.param, data


def accuracies(data, X, y, seed):
    """Return what classifiers trained on these images get right of real ones, in per cent."""
    X = X.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = [MODELS[name](seed).fit(X, y) for name in WANTED]
    return [100 * np.mean(m.predict(data.data_test) == data.target_test) for m in fitted]


def likeness(data, X, y, n=2000, k=5):
    """Return a Sinkhorn divergence to held-out images, and precision and recall, of some images."""
    rows, columns = X[:n], data.data_test[:n].astype(np.float64)
    labels = [np.asarray(of[:n], dtype=np.int64) for of in (y, data.target_test)]
    divergence = sinkhorn_divergence(2 * rows - 1, 2 * columns - 1, *labels, reg=0.05)

    def share_near(points, others):
        """Return how many points are nearer to one of others than its k-th neighbour is."""
        radii = NearestNeighbors(n_neighbors=k + 1).fit(others).kneighbors(others)[0][:, -1]
        return np.mean((euclidean_distances(points, others) <= radii).any(axis=1))

    return divergence, share_near(rows, columns), share_near(columns, rows)


def keep_picture(X, y, name):
    """Save a grid of images, a class a column, where a folder is given."""
    if "SKDPOT_PICTURES" in os.environ:
        from matplotlib import pyplot as plt

        rows = np.stack([X[y == c][:8] for c in CLASSES], axis=1).reshape(8, 10, SIDE, SIDE)
        grid = rows.transpose(0, 2, 1, 3).reshape(8 * SIDE, -1)
        file = Path(os.environ["SKDPOT_PICTURES"], name.replace(", ", "_") + ".png")
        plt.imsave(file, grid, cmap="gray", vmin=0, vmax=1)


def report(title, found):
    """Print means and standard errors over seeds."""
    found = np.array(found)
    errors = found.std(axis=0, ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0 * found[0]
    shown = [f"{m:.2f} ({e:.2f})" for m, e in zip(found.mean(axis=0), errors, strict=True)]
    names = [*WANTED, "divergence", "precision", "recall", "seconds"]
    print(f"\n{title}: " + ", ".join(f"{n} {s}" for n, s in zip(names, shown, strict=True)))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("way", WAYS)
def test_images_of(images, way, epsilon):
    name, data = images
    if way == "sketch, not moved" and name != "MNIST":
        pytest.skip("clothes are never moved")
    found = []
    for seed in SEEDS:
        started = time.perf_counter()
        generator = WAYS[way](name, epsilon, seed).fit(data.data, data.target)
        seconds = time.perf_counter() - started
        X, y = generator.sample(N_DRAWN)
        keep_picture(X, y, f"{name}, {way}, {epsilon:g}")
        found.append([*accuracies(data, X, y, seed), *likeness(data, X, y), seconds])
        print(f"\n{name}, {way}, epsilon {epsilon:g}, seed {seed}: {np.round(found[-1], 3)}")
    report(f"{name}, {way}, epsilon {epsilon:g}", found)


def test_real_images(images):
    name, data = images
    likely = likeness(data, data.data, data.target)
    found = [[*accuracies(data, data.data, data.target, seed), *likely, 0.0] for seed in SEEDS]
    keep_picture(data.data, data.target, f"{name}, real")
    report(f"{name}, real images", found)
