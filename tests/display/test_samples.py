"""Images of generators: every pixel is drawn in the column of its class."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from skdpot import DPSinkhornGenerator
from skdpot.display import SampleGridDisplay


def tile(image, row, column, shape=(2, 3)):
    """Return one image of a mosaic, with a pixel between images."""
    top, left = 1 + row * (shape[0] + 1), 1 + column * (shape[1] + 1)
    return np.ma.filled(image.get_array(), np.nan)[top : top + shape[0], left : left + shape[1]]


def headings_of(ax):
    return [tick.get_text() for tick in ax.get_xticklabels()]


def test_each_class_has_a_column_of_its_first_images(rng):
    X, y = rng.random((9, 6)), np.array(list("baabbbaca"))
    display = SampleGridDisplay.from_samples(X, y, image_shape=(2, 3), n_samples_per_class=3)
    image = display.im_
    for column, label in enumerate("abc"):
        first = X[y == label][:3].reshape(-1, 2, 3)
        for row, expected in enumerate(first):
            np.testing.assert_array_equal(tile(image, row, column), expected)
    # There is a single image of the last one.
    assert np.isnan(tile(image, 1, 2)).all()
    assert image.get_array().shape == (1 + 3 * 3, 1 + 3 * 4)
    assert headings_of(display.ax_) == ["a", "b", "c"]
    np.testing.assert_allclose(display.ax_.get_xticks(), [2.0, 6.0, 10.0])
    shown = np.concatenate([X[y == label][:3] for label in "abc"])
    assert image.get_clim() == (shown.min(), shown.max())
    assert image.cmap(0.0)[:3] == (0, 0, 0) and image.cmap(1.0)[:3] == (1, 1, 1)


def test_images_without_labels_are_a_square(rng):
    X = rng.random((9, 6))
    display = SampleGridDisplay.from_samples(X, image_shape=(2, 3), n_samples_per_class=2)
    image = display.im_
    for k in range(4):
        np.testing.assert_array_equal(tile(image, k // 2, k % 2), X[k].reshape(2, 3))
    assert image.get_array().shape == (7, 9)
    assert headings_of(display.ax_) == []
    everything = SampleGridDisplay.from_samples(X, image_shape=(2, 3), n_samples_per_class=None)
    np.testing.assert_array_equal(tile(everything.im_, 2, 2), X[8].reshape(2, 3))


def test_it_goes_where_it_is_told(rng):
    display = SampleGridDisplay.from_samples(rng.random((2, 6)), image_shape=(2, 3))
    ax = pyplot.subplots()[1]
    assert display.plot(ax) is display
    assert display.ax_ is ax and display.figure_ is ax.figure


@pytest.mark.parametrize("channels", [3, 4])
def test_colours_are_scaled_by_the_bounds_and_what_is_between_is_white(rng, channels):
    X = rng.integers(0, 256, (2, 6 * channels)).astype(float)
    display = SampleGridDisplay.from_samples(
        X, [0, 1], image_shape=(2, 3, channels), bounds=(0, 255)
    )
    image = display.im_
    np.testing.assert_allclose(tile(image, 0, 1), X[1].reshape(2, 3, channels) / 255)
    assert (image.get_array()[0] == 1.0).all()


def test_generators_draw_as_many_of_each_class_for_nothing():
    X, y = load_digits(n_class=3, return_X_y=True)
    generator = DPSinkhornGenerator(
        8.0, bounds=(0, 16), classes=[0, 1, 2], image_shape=(8, 8), random_state=0
    ).fit(X, y)
    display = SampleGridDisplay.from_estimator(generator, 2)
    expected, labels = generator.sample(y=np.repeat([0, 1, 2], 2))
    np.testing.assert_array_equal(display.samples, expected)
    image = display.im_
    np.testing.assert_array_equal(tile(image, 1, 2, (8, 8)), expected[5].reshape(8, 8))
    assert image.get_clim() == (0.0, 16.0)
    assert headings_of(display.ax_) == ["0", "1", "2"]


class Unlabelled(BaseEstimator):
    """Draws images without labels, and knows no shape."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def sample(self, n_samples=1):
        return np.arange(6.0 * n_samples).reshape(n_samples, 6)


def test_generators_without_classes_or_a_shape():
    generator = Unlabelled().fit(None)
    display = SampleGridDisplay.from_estimator(generator, 3, image_shape=(2, 3))
    assert len(display.samples) == 9
    with pytest.raises(ValueError, match="has no image_shape"):
        SampleGridDisplay.from_estimator(generator)
    with pytest.raises(ValueError, match="n_samples_per_class must be a positive integer"):
        SampleGridDisplay.from_estimator(generator, 0, image_shape=(2, 3))
    with pytest.raises(NotFittedError):
        SampleGridDisplay.from_estimator(Unlabelled(), image_shape=(2, 3))


@pytest.mark.parametrize("real", [np.full((2, 6), 0.625), pd.DataFrame(np.full((2, 6), 0.625))])
def test_real_images_in_place_of_a_generator_are_not_quoted(real):
    message = f"got {type(real).__name__}; show real images with from_samples"
    with pytest.raises(TypeError, match=message) as error:
        SampleGridDisplay.from_estimator(real, image_shape=(2, 3))
    assert "0.625" not in str(error.value)


@pytest.mark.parametrize(
    ("X", "y", "shape", "message"),
    [
        (np.ones((2, 5)), None, (2, 3), r"images of shape \(2, 3\) have 6 values"),
        (np.ones((2, 12)), None, (2, 3, 2), "with 1, 3 or 4 channels"),
        (np.ones((2, 6)), None, 6, "image_shape must be"),
        (np.ones((2, 6)), [0], (2, 3), "one label for each of 2 images"),
        (np.ones((0, 6)), None, (2, 3), "have 6 values"),
    ],
)
def test_what_is_wrong_is_said(X, y, shape, message):
    with pytest.raises(ValueError, match=message):
        SampleGridDisplay.from_samples(X, y, image_shape=shape)
