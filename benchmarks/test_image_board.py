"""The board of private images: sets, classifiers, measures, methods, and the page."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.image_board import (
    CLASSIFIERS,
    MEASURES,
    OURS,
    PAGE,
    REAL,
    ImageBoard,
    ImageResult,
    accuracies_of,
    measures_of,
    page_of,
)
from benchmarks.image_methods import METHODS, Gaussians
from benchmarks.image_sets import HELD_OUT, TEST, TITLES, ImageSet, load_set

pytest.importorskip("torch")
from benchmarks import image_classifiers as classifiers  # noqa: E402
from benchmarks import image_measures as measured  # noqa: E402

SHAPE = (12, 12)


def bright_halves(n, image_shape):
    """Return noise that is brighter on the left, or on the right, as labels say."""
    rng = np.random.default_rng(0)
    images, labels = 0.5 * rng.random((n, *image_shape)), np.arange(n) % 2
    half = image_shape[1] // 2
    images[labels == 0, :, :half] += 0.5
    images[labels == 1, :, half:] += 0.5
    return images.reshape(n, -1), labels


@pytest.mark.parametrize("image_shape", [(8, 8), (9, 9, 3)])
@pytest.mark.parametrize("name", classifiers.CLASSIFIERS)
def test_classifiers_learn_what_is_plain(name, image_shape):
    X, y = bright_halves(1200, image_shape)
    found = classifiers.accuracies(
        *(X, y, X[1000:], y[1000:]), names=[name], image_shape=image_shape, epochs=4, n_train=1000
    )
    assert found == {name: pytest.approx(100, abs=2)}


def test_the_same_seed_learns_the_same():
    X, _ = bright_halves(200, (8, 8))
    y = np.random.default_rng(1).integers(0, 10, len(X))
    once, again, other = (
        classifiers.CLASSIFIERS["strided"]((8, 8), seed, n_epochs=2).fit(X, y).predict(X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(once, again)
    assert (once != other).any()


def result(method, accuracy, *, epsilon=1.0, seed=0, fine=50.0):
    return ImageResult(
        *("mnist", method, 0.0 if method == REAL else epsilon, seed, HELD_OUT, "few"),
        accuracy=dict.fromkeys(CLASSIFIERS, accuracy) | {"boosting": accuracy - 5},
        measures=dict.fromkeys(MEASURES, 0.5) | {"fine": fine},
        seconds=1.0,
        version="1",
    )


def small_board():
    return ImageBoard([result(OURS, 90.0, fine=70.0), result(REAL, 98.0, fine=60.0)])


def keep_archive(folder, n=30):
    rng = np.random.default_rng(0)
    arrays = {}
    for part, size in (("train", n), ("test", 10)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (size, *SHAPE), dtype=np.uint8)
        arrays[f"y_{part}"] = np.arange(size) % 10
    np.savez(folder / "mnist.npz", **arrays)


def test_held_out_are_the_last_training_images(tmp_path):
    keep_archive(tmp_path)
    chosen, final = (load_set("mnist", [tmp_path], split) for split in (HELD_OUT, TEST))
    assert (len(chosen.X), len(chosen.X_test)) == (25, 5)
    assert (len(final.X), len(final.X_test)) == (30, 10)
    np.testing.assert_array_equal(np.vstack([chosen.X, chosen.X_test]), final.X)
    assert final.image_shape == SHAPE
    assert 0 <= final.X.min() <= final.X.max() <= 1


def test_a_set_whose_archive_is_missing(tmp_path):
    assert load_set("mnist", [tmp_path]) is None


def test_each_method_makes_images_or_says_that_it_cannot():
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 64)).astype(np.float32), np.arange(200) % 10
    images = ImageSet("small", (8, 8), X, y, X, y)
    assert METHODS["ours, pose"](replace(images, image_shape=(8, 8, 1)), 1.0, 0) is None
    for name in ("ours", "ours, dct", "ours, pose", "Gaussians"):
        made, labels = METHODS[name](images, 1.0, 0).fit(X, y).sample(30)
        assert made.shape == (30, 64)
        assert 0 <= made.min() <= made.max() <= 1
        assert set(labels) <= set(range(10))


@pytest.mark.parametrize("image_shape", [(8, 8), (8, 8, 3)])
def test_gaussians_of_many_images_have_their_means(image_shape):
    X, y = bright_halves(2000, image_shape)
    gaussians = Gaussians(
        *(1e3, 0), image_shape=image_shape, n_coefficients=8, classes=range(2)
    ).fit(X / 10 + 0.1, y)
    made, labels = gaussians.sample(2000)
    for c in range(2):
        means = (X[y == c] / 10 + 0.1).mean(axis=0)
        np.testing.assert_allclose(made[labels == c].mean(axis=0), means, atol=0.02)


def test_real_images_are_like_themselves():
    X, _ = bright_halves(1200, SHAPE)
    alike = measured.likeness(X[:600], X[600:], SHAPE)
    other = measured.likeness(1 - X[:600] ** 4, X[600:], SHAPE)
    assert alike["precision"] > 0.7
    assert alike["recall"] > 0.7
    assert other["precision"] < alike["precision"]
    assert other["divergence"] > 2 * alike["divergence"]


def test_powers_are_of_their_bands():
    rows = np.arange(16)
    for name, cycles in (("low", 1), ("middle", 3), ("high", 6)):
        wave = np.tile(np.cos(2 * np.pi * cycles * rows / 16), (16, 1))
        powers = measured.band_powers(0.5 + 0.4 * wave.reshape(1, -1), (16, 16))
        assert max(powers, key=powers.get) == name


def test_fine_structure_has_no_low_cosines():
    images = np.full((3, 144), 0.7)
    np.testing.assert_allclose(measured.fine_structure(images, SHAPE), 0, atol=1e-6)
    board = np.indices(SHAPE).sum(axis=0).reshape(1, -1) % 2 - 0.5
    kept = measured.fine_structure(board, SHAPE)
    assert np.corrcoef(kept.ravel(), board.ravel())[0, 1] > 0.9


def test_a_ripple_of_a_class_is_found_as_a_shortcut():
    X, y = bright_halves(1500, SHAPE)
    y = np.random.default_rng(1).permutation(y)
    ripple = 0.2 * (np.indices(SHAPE).sum(axis=0).reshape(1, -1) % 2)
    betrayed = X + ripple * y[:, None]
    on_made, on_real = measured.fine_accuracies(
        *(betrayed[:1200], y[:1200], (betrayed[1200:], y[1200:]), (X[1200:], y[1200:])),
        image_shape=SHAPE,
    )
    assert on_made > 90
    assert on_real < 65


def test_shortcuts_and_the_worst_classifier_are_shown():
    board = small_board()
    assert board.shortcut(board.select(method=OURS)[0]) == pytest.approx(10)
    assert board.shortcut(result(OURS, 90.0, fine=55.0)) == pytest.approx(-5)
    assert "     - **70.0**" in measures_of(board, board.results)
    lines = accuracies_of(board, board.results)
    assert lines.index("   * - real images") < lines.index("   * - **ours**")
    # The mean of 90 and of 85 for boosting; 8 below real images.
    assert "     - 89.0" in lines
    assert "     - 8.0" in lines


def test_several_seeds_have_standard_errors():
    board = small_board()
    board.add(result(OURS, 92.0, seed=1))
    assert "     - 91.0 (1.0)" in accuracies_of(board, board.results)


def test_results_are_kept_and_replaced(tmp_path):
    board, path = small_board(), tmp_path / "results.json"
    board.save(path)
    kept = ImageBoard.load(path)
    assert kept.results == sorted(board.results, key=lambda one: one.key)
    kept.add(replace(result(OURS, 90.0), seconds=2.0))
    assert [one.seconds for one in kept.select(method=OURS)] == [2.0]


def test_the_page_shows_the_results():
    assert PAGE.read_text() == page_of(ImageBoard.load(), TITLES)
