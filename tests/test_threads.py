"""Threads of libraries: small fits use one, whatever the machine has."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skdpot import DPSinkhornGenerator
from skdpot.generative import ImageSketch, TableSketch
from skdpot.generative import _mixture as latent_classes


def most_threads():
    # PyTorch, if a test has imported it since, has a pool of its own, which fits do not use.
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def fit_table(rng):
    schema = {"age": range(0, 9), "job": range(0, 9)}
    records = rng.integers(0, 9, (300, 2)).astype(float)
    model = TableSketch(n_components=4, n_iter=20)
    DPSinkhornGenerator(epsilon=4.0, schema=schema, model=model).fit(records)


def test_the_fit_of_a_table_uses_one_thread(monkeypatch):
    seen, softmax = [], latent_classes.softmax

    def watched(*args):
        seen.append(most_threads())
        return softmax(*args)

    monkeypatch.setattr(latent_classes, "softmax", watched)
    with threadpool_limits(2):
        fit_table(np.random.default_rng(0))
    # The last call of a table's fit comes after its products of matrices.
    assert seen and set(seen[:-2]) == {1}


@pytest.mark.parametrize("encoder", ["dct", "pose"])
def test_seeded_images_are_the_same_however_many_threads_there_are(encoder):
    images, found = np.random.default_rng(0).random((400, 28 * 28)) ** 4, []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            generator = DPSinkhornGenerator(
                50.0, image_shape=(28, 28), model=ImageSketch(encoder), random_state=3
            ).fit(images)
            found.append(generator.sample(100))
    np.testing.assert_array_equal(*found)
