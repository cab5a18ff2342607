"""Encoders of records: exact for each of them, bounded, and silent about private values."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage
from sklearn.datasets import load_digits

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import CosineEncoder, ImageSketch, PoseEncoder
from skdpot.generative import _encoders as pose
from skdpot.generative import _images as images
from skdpot.generative._encoders import RecordSpace, make_encoder
from skdpot.generative._images import (
    CosineTransform,
    intensity_map,
    interpolate,
    jitter,
    mapped,
    whole_shape,
)

GREY, COLOUR = (20, 16), (9, 10, 3)


def unit_box(n_features):
    return np.zeros(n_features), np.ones(n_features)


def make(encoder, image_shape=None, n_features=None, **options):
    n_features = n_features or int(np.prod(image_shape))
    box = options.pop("box", unit_box(n_features))
    shape = None if image_shape is None else whole_shape(image_shape, n_features)
    if "n_coefficients" in options:
        kinds = {"dct": CosineEncoder, "pose": PoseEncoder}
        encoder = kinds[encoder](options.pop("n_coefficients"))
    return make_encoder(encoder, RecordSpace(box, shape), **options)


def points_of(pixels):
    """Return images from 0 to 1 as records."""
    return 2 * pixels.reshape(len(pixels), -1) - 1


def pixels_of(points, image_shape):
    return (points.reshape(-1, *image_shape) + 1) / 2


def random_points(n_features, n=150, seed=0):
    """Return records of which some are at the bounds, and one is empty."""
    points = np.clip(np.random.RandomState(seed).normal(-0.5, 0.8, (n, n_features)), -1, 1)
    points[0] = -1
    points[1] = 1
    return points


def thick_strokes(n=12, size=28, seed=0):
    """Return smooth images of two strokes of any direction."""
    rng = np.random.RandomState(seed)
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    found = np.zeros((n, size, size))
    for image in found:
        for _ in range(2):
            angle, along, across = rng.uniform(0, np.pi), rng.uniform(4, 6), rng.uniform(1.2, 1.8)
            down, right = rng.uniform(-2, 2, 2)
            u = np.cos(angle) * (x - right) + np.sin(angle) * (y - down)
            v = np.cos(angle) * (y - down) - np.sin(angle) * (x - right)
            image[:] = np.maximum(image, np.exp(-((u / along) ** 4) - (v / across) ** 4))
    return found


def same_bits(a, b):
    return np.array_equal(a.view(np.int64), b.view(np.int64))


ALL = [
    pytest.param("whiten-by-bounds", None, id="whiten-by-bounds"),
    pytest.param("dct", GREY, id="dct"),
    pytest.param("dct", COLOUR, id="dct of colours"),
    pytest.param("pose", GREY, id="pose"),
]
by_encoder = pytest.mark.parametrize("name, image_shape", ALL)


def make_any(name, image_shape):
    n_features = 40 if image_shape is None else None
    box = (np.linspace(-3, 0, 40), np.linspace(1, 7, 40)) if image_shape is None else None
    options = {} if box is None else {"box": box}
    return make(name, image_shape, n_features, **options)


# Whatever the encoder
# --------------------


@by_encoder
def test_a_code_is_of_its_record_alone_bit_by_bit(name, image_shape):
    encoder = make_any(name, image_shape)
    points = random_points(40 if image_shape is None else int(np.prod(image_shape)))
    codes = encoder.encode(points)
    assert codes.shape == (len(points), encoder.n_codes)
    assert codes.dtype == np.float64
    for size in (1, 2, 3, 5, 8, 31, 64, 149):
        assert same_bits(encoder.encode(points[:size]), codes[:size])
        assert same_bits(encoder.encode(points[-size:]), codes[-size:])
    order = np.random.RandomState(1).permutation(len(points))
    assert same_bits(encoder.encode(points[order]), codes[order])
    assert same_bits(encoder.encode(np.asfortranarray(points)), np.ascontiguousarray(codes))
    assert same_bits(encoder.encode(points[::-2]), codes[::-2].copy())


@pytest.mark.parametrize("name, image_shape", [("dct", GREY), ("dct", COLOUR), ("pose", GREY)])
def test_codes_and_records_do_not_depend_on_blocks(name, image_shape, monkeypatch):
    encoder = make(name, image_shape)
    points = random_points(int(np.prod(image_shape)), 20)
    codes = encoder.encode(points)
    records = encoder.decode(codes)
    monkeypatch.setattr(images, "_BLOCK", 3 * points.shape[1])
    assert same_bits(encoder.encode(points), codes)
    np.testing.assert_allclose(encoder.decode(codes), records, atol=1e-12)


@by_encoder
def test_codes_are_within_the_largest_norm(name, image_shape):
    encoder = make_any(name, image_shape)
    n_features = 40 if image_shape is None else int(np.prod(image_shape))
    rng = np.random.RandomState(2)
    extreme = rng.choice([-1.0, 1], (202, n_features))
    extreme[0], extreme[1] = -1, 1
    norms = np.linalg.norm(encoder.encode(extreme), axis=1)
    assert norms.max() <= encoder.max_norm


@pytest.mark.parametrize("name", ["whiten-by-bounds", "dct"])
def test_the_largest_norm_is_reached(name):
    encoder = make(name, (4, 6), box=(np.zeros(24), np.arange(1.0, 25)))
    norm = np.linalg.norm(encoder.encode(np.ones((1, 24))))
    assert norm <= encoder.max_norm < norm * 1.0001


@by_encoder
def test_whatever_is_decoded_is_within_bounds(name, image_shape):
    encoder = make_any(name, image_shape)
    codes = np.random.RandomState(3).normal(0, 1000, (7, encoder.n_codes))
    decoded = encoder.decode(codes)
    n_features = 40 if image_shape is None else int(np.prod(image_shape))
    assert decoded.shape == (7, n_features)
    assert np.abs(decoded).max() <= 1
    assert encoder.encode(np.empty((0, n_features))).shape == (0, encoder.n_codes)
    assert encoder.decode(np.empty((0, encoder.n_codes))).shape == (0, n_features)


def test_columns_are_found_again():
    encoder = make_any("whiten-by-bounds", None)
    points = random_points(40)
    np.testing.assert_allclose(encoder.decode(encoder.encode(points)), points, atol=1e-14)


def test_auto_goes_by_the_image_shape():
    assert make("auto", n_features=6).name == "whiten-by-bounds"
    encoder = make("auto", (6, 30))
    assert (encoder.name, encoder.n_coefficients) == ("dct", None)
    assert encoder.n_codes == 6 * 14
    assert encoder.image_shape == (6, 30, 1)
    for shape in ((8, 8), (16, 16), (28, 28), (105, 105), (32, 32, 3)):
        assert make("auto", shape).name == "dct"
    assert make("auto", (6, 30), ample=True).n_coefficients == 6
    assert make("auto", n_features=6).image_shape is None
    assert make("whiten-by-bounds", (2, 3)).image_shape == (2, 3, 1)


@pytest.mark.parametrize(
    "encoder, options, message",
    [
        (7, {"n_features": 4}, "encoder must be one of"),
        ((abs, abs), {"n_features": 4}, "encoder must be one of"),
        ("pose", {"image_shape": (600, 600)}, "up to 512 x 512 pixels, got 600 x 600"),
        ("dct", {"image_shape": (5, 9), "n_coefficients": 6}, "from 1 to 5, .* 5 x 9"),
        ("pose", {"image_shape": (9, 5), "n_coefficients": 6}, "from 1 to 5, .* 9 x 5"),
        ("dct", {"image_shape": (5, 9), "n_coefficients": 2.5}, "n_coefficients"),
        ("dct", {"image_shape": (5, 9), "n_coefficients": True}, "from 1 to 5"),
        ("auto", {"image_shape": (5, 9), "n_features": 44}, "image_shape must be"),
    ],
)
def test_what_cannot_be_an_encoder_is_refused(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        make(encoder, **options)


def test_coefficients_are_those_of_the_orthonormal_transform():
    pixels = np.random.RandomState(0).uniform(0, 1, (5, *GREY))
    found = make("dct", GREY, n_coefficients=7).encode(points_of(pixels)).reshape(5, 7, 7)
    expected = scipy.fft.dctn(pixels, axes=(1, 2), norm="ortho")[:, :7, :7]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_coefficients_are_exact():
    transform = CosineTransform(9, 6, 4, 5)
    units = np.random.RandomState(0).randint(0, 2**16 + 1, (3, 9, 6)).astype(np.float64)
    down, right = (
        np.rint(scipy.fft.dct(np.eye(size), axis=0, norm="ortho")[:kept] * 2**20)
        for size, kept in ((9, 4), (6, 5))
    )
    down, right, whole = (array.astype(int).astype(object) for array in (down, right, units))
    for image, found in zip(whole, transform.coefficients(units), strict=True):
        # Python's integers have no limit.
        half = np.vectorize(lambda number: round(number / 2**20), otypes="O")(image @ right.T)
        expected = down @ half
        np.testing.assert_array_equal(found * 2.0**36, expected.astype(np.float64))


@pytest.mark.parametrize("name, image_shape", [("dct", GREY), ("dct", COLOUR), ("pose", GREY)])
def test_coefficients_are_sums_of_integers(name, image_shape):
    encoder = make(name, image_shape)
    units = encoder.encode(random_points(int(np.prod(image_shape)))) * 2.0**36
    units = units[:, encoder.frequencies >= 0]
    np.testing.assert_array_equal(units, np.rint(units))
    assert 2**30 < np.abs(units).max() < 2**50


@pytest.mark.parametrize("name", ["dct", "pose"])
@pytest.mark.parametrize("image_shape", [(1, 1), (1, 30), (30, 1), (2, 3), (16, 17)])
def test_images_of_any_shape_are_encoded(name, image_shape):
    encoder = make(name, image_shape)
    points = random_points(int(np.prod(image_shape)), 9)
    codes = encoder.encode(points)
    assert (np.linalg.norm(codes, axis=1) <= encoder.max_norm).all()
    assert np.abs(encoder.decode(codes)).max() <= 1


@pytest.mark.parametrize("image_shape", [(8, 8), (7, 9, 3), (6, 6, 2)])
def test_images_are_found_again_by_all_coefficients(image_shape):
    encoder = make("dct", image_shape, n_coefficients=min(image_shape[:2]))
    if image_shape[0] != image_shape[1]:
        encoder = make("dct", image_shape)
    points = random_points(int(np.prod(image_shape)), 20)
    np.testing.assert_allclose(encoder.decode(encoder.encode(points)), points, atol=1e-3)


def test_frequencies_go_with_the_codes():
    y, x = np.mgrid[:28, :28]
    slow, fast = (
        np.cos(np.pi * k * (x + 0.5) / 28) * np.cos(np.pi * m * (y + 0.5) / 28)
        for k, m in ((0, 2), (5, 12))
    )
    encoder = make("dct", (28, 28))
    largest = np.abs(encoder.encode(np.stack([slow, fast]).reshape(2, -1))[:, 1:]).argmax(1) + 1
    np.testing.assert_allclose(encoder.frequencies[largest], [2, 13])
    assert make("dct", COLOUR).frequencies.shape == (make("dct", COLOUR).n_codes,)
    poses = make("pose", (28, 28))
    assert poses.frequencies.shape == (poses.n_codes,)
    np.testing.assert_array_equal(poses.frequencies < 0, np.arange(poses.n_codes) >= 14 * 14)
    assert make("whiten-by-bounds", (2, 3)).frequencies is None


def test_colours_are_encoded_as_differences_from_middle_gray():
    encoder = make("dct", COLOUR)
    black, middle, white = encoder.encode(np.repeat([[-1.0], [0.0], [1.0]], 270, axis=1))
    assert not middle.any()
    np.testing.assert_array_equal(black, -white)
    assert encoder.max_norm < 1.001 * np.linalg.norm(white)
    np.testing.assert_array_equal(encoder.decode(np.zeros((1, 270))), np.zeros((1, 270)))


@pytest.mark.parametrize("shape", [(8, 12, 1), (9, 10, 3)])
@pytest.mark.parametrize("brightness", [0.0, 0.3, 0.71, 1.0])
def test_images_differ_from_a_ground_of_any_brightness(brightness, shape):
    before = make("dct", shape)
    encoder = before.on_ground(brightness)
    assert abs(encoder.ground - brightness) <= 2**-7
    points = random_points(int(np.prod(shape)))
    codes = encoder.encode(points)
    assert np.linalg.norm(codes, axis=1).max() <= encoder.max_norm
    # White is the longest vector, or black is.
    assert np.linalg.norm(codes[:2], axis=1).max() > 0.999 * encoder.max_norm
    alone = np.concatenate([encoder.encode(point[None]) for point in points])
    np.testing.assert_array_equal(codes, alone)
    np.testing.assert_allclose(encoder.decode(codes), points, atol=1e-4)


def test_colours_have_fewer_coefficients_with_an_ample_budget():
    shapes = [(32, 32, 1), (32, 32, 3), (8, 12, 3)]
    numbers = [make("auto", shape, ample=True).n_codes for shape in shapes]
    assert numbers == [22 * 22, 10 * 10 * 3, 8 * 8 * 3]


def test_a_grey_image_has_no_differences_of_colours():
    grey = np.repeat(np.random.RandomState(0).uniform(-1, 1, (4, 90)), 3, axis=1)
    codes = make("dct", COLOUR).encode(grey).reshape(4, 3, 90)
    assert np.abs(codes[:, 0]).max() > 0.1
    assert np.abs(codes[:, 1:]).max() < 1e-3


# Poses
# -----


@pytest.mark.parametrize(
    "pixels, most",
    [(thick_strokes(), 0.05), (load_digits().images[:300] / 16, 0.2)],
    ids=["strokes", "digits"],
)
def test_images_are_found_again_by_their_poses(pixels, most):
    shape = pixels.shape[1:]
    encoder = make("pose", shape)
    found = pixels_of(encoder.decode(encoder.encode(points_of(pixels))), shape)
    assert np.mean((found - pixels) ** 2) < most * pixels.var()


def test_the_pose_takes_up_an_affine_map():
    pixels = thick_strokes(40, seed=4)
    down, across, tall, wide, slant = 1.5, -1.0, 1.1, 0.9, 0.2
    y, x = np.mgrid[:28, :28] - 13.5
    # Where the pixels of the moved image were.
    from_y = (y - down) / tall
    from_x = (x - across - slant * (y - down)) / wide
    moved = interpolate(pixels, from_y[None] + 13.5, from_x[None] + 13.5)
    encoder = make("pose", (28, 28))
    codes, moved_codes = (encoder.encode(points_of(image)) for image in (pixels, moved))
    poses, moved_poses = (found[:, -5:] / pose._WEIGHTS for found in (codes, moved_codes))
    least, most = encoder._bounds()
    least, most = least + 1e-9, most - 1e-9
    inside = [((found > least) & (found < most)).all(axis=1) for found in (poses, moved_poses)]
    inside = inside[0] & inside[1]
    assert inside.sum() >= 4
    change = (moved_poses - poses)[inside]
    np.testing.assert_allclose(moved_poses[inside, 0], tall * poses[inside, 0] + down, atol=0.1)
    np.testing.assert_allclose(change[:, 2], np.log(tall), atol=0.03)
    np.testing.assert_allclose(change[:, 3], np.log(wide), atol=0.05)
    np.testing.assert_allclose(
        moved_poses[inside, 4], slant + poses[inside, 4] * wide / tall, atol=0.05
    )
    # Little is left between the images in one pose.
    left = np.sum((moved_codes - codes)[inside, :-5] ** 2, axis=1)
    assert (left < 0.1 * np.sum((moved - pixels)[inside] ** 2, axis=(1, 2))).all()


def test_odd_images_have_poses_within_bounds():
    odd = np.zeros((5, 28, 28))
    odd[1, 0, 0] = 1.0  # one pixel, in a corner
    odd[2] = 1.0  # all of them
    odd[3, 5] = 1.0  # a row
    odd[4, np.arange(28), np.arange(28)] = 1e-6  # too dark to be seen
    encoder = make("pose", (28, 28))
    codes = encoder.encode(points_of(odd))
    least, most = encoder._bounds()
    poses = codes[:, -5:] / pose._WEIGHTS
    assert ((poses >= least - 1e-12) & (poses <= most + 1e-12)).all()
    np.testing.assert_array_equal(codes[[0, 4]], np.zeros((2, encoder.n_codes)))
    np.testing.assert_allclose(poses[1, :2], least[:2])
    assert np.isfinite(encoder.decode(codes)).all()


def test_between_pixels_images_are_linear():
    pixels = np.random.RandomState(0).uniform(0, 1, (3, 5, 7))
    rows, columns = np.random.RandomState(1).uniform(-3, 9, (2, 3, 400))
    found = interpolate(pixels, rows, columns)
    for image, at, values in zip(pixels, zip(rows, columns, strict=True), found, strict=True):
        expected = scipy.ndimage.map_coordinates(image, at, order=1, mode="grid-constant")
        np.testing.assert_allclose(values, expected, atol=1e-12)


# Changes of generated images
# ---------------------------


def test_intensities_are_distributed_as_the_histogram_says():
    pixels = np.random.RandomState(0).beta(0.5, 2, (50, 400))
    histogram = np.array([0.1, 0.3, 0.0, 0.4, 0.2])
    matched = mapped(pixels, intensity_map(pixels, histogram))
    found = np.histogram(matched, 5, (0, 1))[0] / matched.size
    np.testing.assert_allclose(found, histogram, atol=2e-4)
    order = np.argsort(pixels, axis=None)
    assert (np.diff(matched.reshape(-1)[order]) >= 0).all()
    # Linear within a bin, as weights are spread evenly there.
    inside = np.sort(matched[(matched > 0.6) & (matched < 0.8)])
    np.testing.assert_allclose(inside, np.linspace(0.6, 0.8, len(inside)), atol=2e-3)


def test_a_background_stays_dark():
    pixels = np.random.RandomState(0).uniform(0, 1, (20, 100))
    pixels[:, :60] = 0
    matched = mapped(pixels, intensity_map(pixels, np.array([7.0, 1, 1, 1])))
    assert (matched[:, :60] == 0).all()
    assert np.mean(matched == 0) == pytest.approx(0.7, abs=1e-3)
    np.testing.assert_allclose(np.mean(matched > 0.75), 0.1, atol=1e-3)


def test_strokes_stay_bright_and_other_bins_are_not_cut():
    pixels = np.random.RandomState(0).uniform(0, 1, (20, 100))
    bright = mapped(pixels, intensity_map(pixels, np.array([1.0, 1, 1, 7])))
    assert np.mean(bright == 1) == pytest.approx(0.7, abs=0.01) and bright.min() < 0.01
    even = mapped(pixels, intensity_map(pixels, np.array([1.0, 1, 1, 1])))
    assert np.mean((even == 0) | (even == 1)) < 0.01


def test_a_map_of_intensities_is_the_same_for_other_images():
    """So it says nothing about the class of the images that it is used for."""
    pixels = np.random.RandomState(0).uniform(0, 1, (20, 100)).astype(np.float32)
    found = intensity_map(pixels, np.array([0, 0.5, 0.5, 0]))
    matched = mapped(pixels, found)
    assert matched.dtype == np.float32
    assert matched.min() >= 0.25 and matched.max() <= 0.75
    np.testing.assert_array_equal(mapped(pixels[3:7], found), matched[3:7])
    assert mapped(pixels[:0], found).shape == (0, 100)


def test_without_amplitudes_nothing_moves():
    pixels = np.random.RandomState(0).uniform(0, 1, (4, 270))
    np.testing.assert_allclose(jitter(pixels, np.random.RandomState(0), COLOUR), pixels)


def means_and_spreads(moved):
    """Return the means of images along both sides, and the logarithm of their brightness."""
    brightness = moved.sum(axis=1)
    moved = moved.reshape(-1, 28, 28) / brightness[:, None, None]
    y, x = np.mgrid[:28, :28] - 13.5
    means = np.stack([(moved * axis).sum((1, 2)) for axis in (y, x)], axis=1)
    spreads = [(moved * axis * other).sum((1, 2)) for axis, other in ((y, y), (y, x), (x, x))]
    return means, np.stack(spreads, axis=1), np.log(brightness)


def test_moves_have_their_standard_deviations():
    y, x = np.mgrid[:28, :28] - 13.5
    blobs = np.repeat(np.exp(-((x**2) / 18 + (y**2) / 4)).reshape(1, -1), 400, axis=0)

    def moved(**amplitudes):
        rng = np.random.RandomState(0)
        return means_and_spreads(jitter(blobs, rng, (28, 28, 1), **amplitudes))

    means, spreads, _ = moved(rotation=0.1)
    angles = np.arctan2(2 * spreads[:, 1], spreads[:, 2] - spreads[:, 0]) / 2
    assert np.std(angles) == pytest.approx(0.1, rel=0.1)
    assert np.abs(means).max() < 0.01
    means, spreads, _ = moved(shift=1.4 / 28)
    np.testing.assert_allclose(np.std(means, axis=0), 1.4, rtol=0.1)
    means, spreads, brightness = moved(scale=0.1)
    assert np.std(brightness) == pytest.approx(0.1 * 2**0.5, rel=0.1)
    assert np.abs(means).max() < 0.01
    means, spreads, _ = moved(bend=0.5 / 28)
    # As far as a blob is small beside the waves.
    assert 0.4 < (np.std(means, axis=0) / 0.5).min() < 1.2


def test_channels_move_together_and_borders_go_on():
    grey = np.random.RandomState(0).uniform(0, 1, (5, 90))
    moves = {"rotation": 0.2, "shift": 1 / 9, "scale": 0.1, "bend": 1 / 18}
    moved = jitter(grey, np.random.RandomState(7), (9, 10, 1), **moves)
    colours = jitter(np.repeat(grey, 3, axis=1), np.random.RandomState(7), COLOUR, **moves)
    np.testing.assert_allclose(colours.reshape(5, 90, 3), np.repeat(moved[..., None], 3, axis=2))
    flat = jitter(np.full((5, 90), 0.25), np.random.RandomState(7), (9, 10, 1), **moves)
    np.testing.assert_allclose(flat, 0.25)


@pytest.mark.parametrize("name", ["whiten-by-bounds", "pose"])
def test_images_may_be_moved_as_they_are_decoded(name, monkeypatch):
    encoder = make(name, (28, 28))
    codes = encoder.encode(points_of(thick_strokes()))
    moves = {"rotation": 0.1, "shift": 0.8 / 28, "scale": 0.05, "bend": 0.5 / 28}
    mixture = SimpleNamespace(draw=lambda *_, **__: (codes, None))

    def sampled(moves):
        return encoder._sampled(mixture, None, np.random.RandomState(0), moves, single=False)

    found = sampled(moves)
    twice = jitter(encoder.decode(codes), np.random.RandomState(0), (28, 28, 1), **moves)
    # The same moves, seen without a second interpolation.
    assert np.mean((found - twice) ** 2) < 0.02 * twice.var()
    np.testing.assert_allclose(sampled(None), encoder.decode(codes), atol=1e-9)
    monkeypatch.setattr(images, "_BLOCK", 5 * 784)
    np.testing.assert_allclose(sampled(moves), found, atol=1e-9)


class Asking(CosineEncoder):
    """Code of somebody who looks for a record."""

    def encode(self, points):
        if np.max(points) > 0.99:
            print("s3cret")
            raise SystemExit("s3cret")
        return super().encode(points)


@pytest.mark.parametrize("largest", [0.5, 1.0])
def test_encoders_of_users_are_refused_before_the_charge(largest, capfd):
    ledger = PrivacyLedger(100.0, 0.1, neighbouring="add_remove")
    X = np.full((200, 16), largest)
    model = ImageSketch(Asking(n_coefficients=3))
    generator = DPSinkhornGenerator(
        8.0, bounds=(0, 1), image_shape=(4, 4), model=model, ledger=ledger
    )
    with pytest.raises(TypeError, match="class Asking, which is derived"):
        generator.fit(X)
    assert not ledger.entries() and capfd.readouterr() == ("", "")
