"""Images of a sketch: dark grounds, fine structure, and what of it betrays the class."""

import tracemalloc

import numpy as np
import pytest
import scipy.fft
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skdpot import DPSinkhornGenerator
from skdpot.generative import CosineEncoder, ImageSketch
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


@pytest.mark.experiment
def test_bright_images_have_no_more_noise_than_the_same_in_negative(bars):
    X, y = make_bars()
    dark, bright = (
        make_sketch_generator(
            epsilon=5.0, classes=[0, 1], image_shape=(SIDE, SIDE), encoder="dct", random_state=0
        ).fit(images, y)._fitted.sketch
        for images in (X, 1 - X)
    )  # fmt: skip
    for sketch, images in ((dark, X), (bright, 1 - X)):
        assert sketch.encoder.ground == pytest.approx(images.mean(), abs=0.05)
    noise = [sketch.noise["mean"] * sketch.encoder.max_norm for sketch in (dark, bright)]
    np.testing.assert_allclose(*noise, rtol=0.2)


def test_noise_alone_changes_no_ground():
    X, y = make_bars(20)
    for seed in range(5):
        generator = make_sketch_generator(
            epsilon=0.1, image_shape=(SIDE, SIDE), encoder="dct", random_state=seed
        )
        encoder = generator.fit(1 - X)._fitted.sketch.encoder
        assert encoder.ground < 0.3


def squares_of_waves(epsilon, share):
    """Return mean squares within classes, each of which varies along a wave of its own.

    A row is a class, and a column is a wave. A share of records is of the second class.
    """
    rng = np.random.default_rng(0)
    y = (np.arange(4000) < share * 4000).astype(int)
    waves = np.cos(np.pi * np.outer([1, 3], np.arange(SIDE) + 0.5) / SIDE)[y][:, None]
    X = 0.5 + 0.1 * rng.standard_normal((4000, 1, 1)) * waves * np.ones((1, SIDE, 1))
    generator = make_sketch_generator(
        epsilon=epsilon, classes=[0, 1], image_shape=(SIDE, SIDE), n_coefficients=KEPT,
        n_clusters=1, random_state=0,
    ).fit(X.reshape(4000, -1), y)  # fmt: skip
    factors = generator._fitted.sketch.mixture.factors
    assert len(factors) == 2
    return np.square(factors).sum(axis=1)[:, [1, 3]]


def test_classes_of_images_have_half_of_their_covariances_in_common():
    own, other = squares_of_waves(200.0, 0.5)
    assert own[0] == pytest.approx(3 * other[0], rel=0.1)
    assert other[1] == pytest.approx(3 * own[1], rel=0.1)


def test_small_classes_of_images_have_all_of_their_covariances_in_common():
    for epsilon, is_common in ((2.0, True), (200.0, False)):
        large, small = squares_of_waves(epsilon, 0.1)
        assert large[0] > 5 * large[1]
        assert (small[0] > 5 * small[1]) == is_common


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


# Memory
# ------


def peak_of(call):
    """Return the largest memory that a call allocates, and what it returns."""
    tracemalloc.start()
    try:
        returned = call()
        return tracemalloc.get_traced_memory()[1], returned
    finally:
        tracemalloc.stop()


@pytest.mark.experiment
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
def test_neither_a_fit_nor_samples_need_memory_for_a_second_copy_of_images(kind):
    n_images, shape = 1000, (32, 32, 3)
    X = np.random.default_rng(0).integers(0, 256, (n_images, 3072), dtype=np.uint8).astype(kind)
    as_doubles = 8 * X.size
    generator = DPSinkhornGenerator(
        5.0, bounds=(0, 255), image_shape=shape, model=ImageSketch(CosineEncoder(6)), random_state=0
    )
    fitting, _ = peak_of(lambda: generator.fit(X))
    assert fitting < as_doubles
    # The map of intensities is made once, of some other samples.
    generator.sample()
    sampling, samples = peak_of(lambda: generator.sample(n_images))
    assert samples.dtype == np.float64
    assert sampling < 2 * as_doubles


@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.int16])
def test_releases_of_images_do_not_depend_on_the_type_of_their_numbers(kind):
    X = np.random.default_rng(0).integers(0, 256, (50, SIDE * SIDE))
    fitted = [
        DPSinkhornGenerator(2.0, bounds=(0, 255), image_shape=(SIDE, SIDE), random_state=0).fit(Z)
        for Z in (X.astype(np.float64), X.astype(kind))
    ]
    one, other = (generator._fitted.sketch.mixture for generator in fitted)
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_array_equal(one.factors, other.factors)


@pytest.mark.experiment
@pytest.mark.parametrize("encoder", ["dct", "pose"])
def test_seeded_images_are_the_same_however_many_threads_there_are(encoder):
    images, found = np.random.default_rng(0).random((400, 28 * 28)) ** 4, []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            made = DPSinkhornGenerator(50.0, bounds=(0, 1), image_shape=(28, 28), random_state=3)
            found.append(made.set_params(model=ImageSketch(encoder)).fit(images).sample(100))
    np.testing.assert_array_equal(*found)
