"""Images of a sketch: dark grounds, fine structure, and what of it betrays the class."""

import numpy as np
import pytest
import scipy.fft
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.oracles.sketch_generators import make_sketch_generator

SIDE, KEPT = 16, 6
FREQUENCIES = np.hypot(*np.mgrid[:SIDE, :SIDE])


def make_bars(n_images=1000, seed=0):
    """Return bars with texture on a dark ground: level ones and, the same turned, upright ones."""
    rng = np.random.default_rng(seed)
    away = np.abs(np.arange(SIDE) - rng.uniform(6, 9, (n_images, 1)))
    bars = np.clip(3.5 - away, 0, 1)[:, :, None] * rng.uniform(0.6, 1, (n_images, 1, 1))
    bars = bars * rng.uniform(0.8, 1, (n_images, SIDE, SIDE))
    upright = rng.integers(0, 2, n_images)
    turned = np.where(upright[:, None, None], bars.transpose(0, 2, 1), bars)
    return turned.reshape(n_images, -1), upright


def fine_power(X):
    """Return the mean power of images in rings of high frequencies, which no turn changes."""
    images = np.reshape(X, (-1, SIDE, SIDE))
    power = scipy.fft.dctn(images, axes=(1, 2), norm="ortho") ** 2
    rings = [(first <= FREQUENCIES) & (first + 2 > FREQUENCIES) for first in range(KEPT, 20, 2)]
    return np.stack([power[:, ring].mean(axis=1) for ring in rings], axis=1)


def told_apart(X, y):
    """Return how often a classifier knows the class by fine structure alone."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    return cross_val_score(classifier, np.log(fine_power(X) + 1e-9), y, cv=3).mean()


def fit_bars(**params):
    generator = make_sketch_generator(
        epsilon=5.0, classes=[0, 1], image_shape=(SIDE, SIDE), n_coefficients=KEPT, random_state=0
    )
    return generator.set_params(**params).fit(*make_bars())


@pytest.fixture(scope="module")
def bars():
    return fit_bars().sample(1500)


def test_fine_structure_tells_classes_apart_no_better_than_that_of_records(bars):
    X, y = bars
    assert told_apart(X, y) <= told_apart(*make_bars()) + 0.06


def test_a_contrast_of_each_class_would_be_seen(bars):
    X, y = bars
    assert told_apart(np.where(y[:, None] == 1, X**1.3, X), y) > 0.6


def test_grounds_are_dark_and_fine_structure_is_as_strong_as_in_records(bars):
    (X, _), (records, _) = bars, make_bars()
    assert np.mean(X == 0) == pytest.approx(np.mean(records < 0.05), abs=0.03)
    assert 0.5 < fine_power(X).sum() / len(X) / (fine_power(records).sum() / len(records)) < 2


@pytest.mark.parametrize("encoder", ["dct", "pose"])
def test_a_class_keeps_its_brightness_when_it_is_sampled_alone(encoder):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = np.zeros((400, 8, 8))
    X[:, 2:6, 3:5] = np.where(y, 0.9, 0.4)[:, None, None]
    generator = make_sketch_generator(
        epsilon=50.0, classes=[0, 1], image_shape=(8, 8), encoder=encoder, random_state=0
    ).fit(X.reshape(400, -1), y)
    dark, bright = (generator.sample(y=np.full(200, c))[0].mean() for c in (0, 1))
    assert dark < 0.6 * bright
