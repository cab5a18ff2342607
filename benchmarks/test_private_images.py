"""Private images made by ours and by plain methods: what classifiers learn, and how near they are.

Run with ``SKDPOT_IMAGES=FOLDERS OMP_NUM_THREADS=1 python -m pytest benchmarks -m benchmark -s
-k test_private_images``. The folders, separated as those of PATH are, hold an archive for each
name of `image_sets.SOURCES`, such as ``mnist.npz``; a set whose archive is missing is skipped.
Nothing is asserted about who wins. Every result is written into ``image_results.json`` as soon as
it is there, and ``doc/images_measured.inc`` is written from it. Results that the file holds are not
computed again, so a run that was stopped goes on; those of a method are with
``SKDPOT_IMAGES_AGAIN=ours``.

Methods are judged by held-out training images; only ``SKDPOT_IMAGES_SPLIT=test`` uses the test
images. Classifiers learn from 20,000 images in four passes, which takes 105 seconds of a core for
all five. ``SKDPOT_IMAGES_PROTOCOL`` changes this: ``quick`` is 10,000 images in three passes and 40
seconds, ``long`` is 60,000 images in three passes and four minutes. ``SKDPOT_IMAGES_SEEDS`` is the
number of seeds, and ``SKDPOT_IMAGES_ONLY`` names methods, epsilons or sets to be run alone,
separated by semicolons.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.image_board import (
    EPSILONS,
    PAGE,
    REAL,
    ImageBoard,
    ImageResult,
    accuracies_of,
    measures_of,
    page_of,
)
from benchmarks.image_sets import HELD_OUT, NAMES, TITLES, load_set

PROTOCOLS = {"quick": (10_000, 3), "full": (20_000, 4), "long": (60_000, 3)}
N_TRAIN, N_EPOCHS = PROTOCOLS[os.environ.get("SKDPOT_IMAGES_PROTOCOL", "full")]
PROTOCOL = f"{N_TRAIN:,} images in {N_EPOCHS} passes"
SPLIT = os.environ.get("SKDPOT_IMAGES_SPLIT", HELD_OUT)
N_SEEDS = int(os.environ.get("SKDPOT_IMAGES_SEEDS", "5"))
# The quick protocol draws as many as the full one, so that measures are the same.
N_DRAWN = max(20_000, N_TRAIN)


def tasks_of(name, methods):
    """Return what is to be run of a set: real images, methods, epsilons and seeds."""
    only = set(filter(None, os.environ.get("SKDPOT_IMAGES_ONLY", "").split(";")))
    if only & set(NAMES) and name not in only:
        return []
    wanted = [method for method in methods if method in only] or methods
    epsilons = [e for e in EPSILONS if f"{e:g}" in only] or EPSILONS
    tasks = [(REAL, 0.0, 0)]
    return tasks + [(m, e, seed) for seed in range(N_SEEDS) for e in epsilons for m in wanted]


def run(images, method, epsilon, seed):
    """Return the result of a method; None where it is not for such images."""
    from benchmarks.image_classifiers import accuracies
    from benchmarks.image_measures import measures
    from benchmarks.image_methods import METHODS, VERSION

    started = time.process_time()
    if method == REAL:
        made, labels = images.X, images.y
    else:
        generator = METHODS[method](images, epsilon, seed)
        if generator is None:
            return None
        made, labels = generator.fit(images.X, images.y).sample(N_DRAWN)
    seconds = time.process_time() - started
    order = np.random.default_rng(seed).permutation(len(made))
    made, labels = made[order].astype(np.float32), labels[order]
    test, shape = (images.X_test, images.y_test), images.image_shape
    found = measures(made, labels, *test, shape)
    accuracy = accuracies(
        *(made, labels, *test), image_shape=shape, epochs=N_EPOCHS, n_train=N_TRAIN, seed=seed
    )
    return ImageResult(
        *(images.name, method, epsilon, seed, SPLIT, PROTOCOL, accuracy, found, seconds, VERSION)
    )


@pytest.mark.benchmark
@pytest.mark.parametrize("name", NAMES)
def test_private_images(name):
    from benchmarks.image_methods import METHODS

    folders = os.environ.get("SKDPOT_IMAGES", "").split(os.pathsep)
    tasks = tasks_of(name, list(METHODS))
    images = load_set(name, [Path(folder) for folder in folders], SPLIT) if tasks else None
    if images is None:
        pytest.skip("not asked for, or its archive is in no folder of SKDPOT_IMAGES")
    again = os.environ.get("SKDPOT_IMAGES_AGAIN")
    for method, epsilon, seed in tasks:
        board = ImageBoard.load()
        where = {"split": SPLIT, "protocol": PROTOCOL}
        known = board.select(images=name, method=method, epsilon=epsilon, seed=seed, **where)
        if not known or method == again:
            result = run(images, method, epsilon, seed)
            if result is not None:
                print("\n", result)
                board.add(result)
                board.save()
                PAGE.write_text(page_of(board, TITLES))
    here = ImageBoard.load().select(images=name, split=SPLIT, protocol=PROTOCOL)
    print("", name, *accuracies_of(board, here), *measures_of(board, here), sep="\n")
