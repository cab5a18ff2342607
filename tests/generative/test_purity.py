"""A fitted sketch is a function of what was released, and of what is public."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from tests.oracles.sketch import transcript_of
from tests.oracles.sketch_generators import make_sketch_generator

SCHEMA = {0: (0.0, 1.0), 1: range(2000), 2: ["a", "b"]}
SIX = {j: [0, 1] for j in range(6)}
MAKERS = {
    "vectors": partial(make_sketch_generator, 5.0, n_clusters=3),
    "labels": partial(make_sketch_generator, 5.0, n_clusters=2, classes=[0, 1]),
    "images": partial(make_sketch_generator, 100.0, image_shape=(2, 2), classes=[0, 1]),
    "strokes": partial(make_sketch_generator, 5.0, image_shape=(2, 2), encoder="pose"),
    "a table": partial(
        DPSinkhornGenerator, 5.0, schema=SCHEMA, target=2, model=TableSketch(24, n_iter=5)
    ),
    "a table with parities": partial(
        DPSinkhornGenerator, 5.0, schema=SIX, target=3, model=TableSketch(8, n_iter=5)
    ),
    "people with a table": partial(
        DPSinkhornGenerator, 5.0, schema=SCHEMA, model=TableSketch(n_components=24, n_iter=5)
    ),
    "people with a table and a target": partial(
        DPSinkhornGenerator, 5.0, schema=SCHEMA, target=1, model=TableSketch(24, n_iter=5)
    ),
    "a table and labels": partial(
        DPSinkhornGenerator, 5.0, schema=SCHEMA, classes=[0, 1], model=TableSketch(24, n_iter=5)
    ),
}


def records_of(kind, n_records, seed):
    """Return records, and labels where there are any; some are far outside of bounds."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_records) if seed else np.zeros(n_records, dtype=int)
    if kind == "a table with parities":
        return (rng.integers(0, 2, (n_records, 6)),)
    if "table" in kind:
        words = np.array(["a", "b"])[y]
        # One cell has all of many records, so that others are clearly empty.
        places = np.full(n_records, 0.2) if seed == 2 else rng.random(n_records)
        rows = zip(places, rng.integers(0, 2000, n_records), words, strict=True)
        X = [list(row) for row in rows]
        if "people" in kind:
            return X, None, rng.integers(0, n_records // 2 + 1, n_records)
    else:
        X = rng.normal(0.5, seed, (n_records, 4))
    return (X, y) if "label" in kind or kind.startswith("images") else (X,)


def made_up(releases, name, sums, sensitivity):
    """Return numbers that depend on a release's name and shape, and on no record."""
    rng = np.random.default_rng(list(name.encode()))
    return rng.normal(300.0, 100.0, np.shape(sums))


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_fitted_depends_on_records_by_what_was_released_alone(kind, tmp_path):
    """However many there are of each class, and wherever they are: to the last bit."""
    left = []
    for n_records, seed in ((1, 0), (2, 1), (400, 2)):
        generator = MAKERS[kind](random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            transcript_of(
                lambda: generator.fit(*records_of(kind, n_records, seed)),  # noqa: B023
                release=made_up,
            )
        generator.save(tmp_path / "file")
        state = {name: vars(generator)[name] for name in sorted(vars(generator))}
        left.append((pickle.dumps(state), (tmp_path / "file").read_bytes(), repr(generator)))
    assert left[0] == left[1] == left[2]
