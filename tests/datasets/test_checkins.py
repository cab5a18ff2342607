"""Check-ins on a grid: the loader on tiny made-up files, and the made-up city."""

import gzip

import numpy as np
import pytest

from skdpot.datasets import load_checkins, make_city_checkins

BOUNDS = (30.0, 31.0, -98.0, -97.0)
# User, latitude, longitude. User 3 is once outside, user 5 always.
CHECKINS = [
    (3, 30.1, -97.9), (3, 30.1, -97.1), (3, 30.1, -97.2), (3, 40.7, -74.0),
    (8, 30.9, -97.9), (8, 30.9, -97.1), (5, 52.5, 13.4), (9, 30.2, -97.6),
]  # fmt: skip


def text_of(checkins):
    """Return check-ins as lines of Gowalla's format."""
    return "".join(
        f"{user}\t2010-10-19T23:55:27Z\t{latitude}\t{longitude}\t{number}\n"
        for number, (user, latitude, longitude) in enumerate(checkins)
    )


@pytest.fixture
def file(tmp_path):
    """Return a file of check-ins."""
    (tmp_path / "checkins.txt").write_text(text_of(CHECKINS))
    return tmp_path / "checkins.txt"


def test_check_ins_are_counted_by_user_and_cell(file):
    data = load_checkins(file, bounds=BOUNDS, n_bins=2, min_checkins=2)
    assert data.weights.format == "csr"
    assert data.user_id.tolist() == [3, 8]
    np.testing.assert_array_equal(data.weights.toarray(), [[1, 2, 0, 0], [0, 0, 1, 1]])


@pytest.mark.parametrize("min_checkins, users", [(1, [3, 8, 9]), (2, [3, 8]), (3, [3])])
def test_users_need_check_ins_within_the_bounds(file, min_checkins, users):
    data = load_checkins(file, bounds=BOUNDS, n_bins=3, min_checkins=min_checkins)
    assert data.user_id.tolist() == users
    assert data.weights.shape == (len(users), 9)
    assert data.weights.sum(axis=1).min() >= min_checkins


def test_ten_check_ins_by_default(tmp_path):
    file = tmp_path / "checkins.txt"
    file.write_text(text_of([(1, 30.5, -97.5)] * 9 + [(2, 30.5, -97.5)] * 10))
    assert load_checkins(file, bounds=BOUNDS, n_bins=3).user_id.tolist() == [2]


def test_compressed_file(file, tmp_path):
    compressed = tmp_path / "checkins.txt.gz"
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    plain, unpacked = (
        load_checkins(name, bounds=BOUNDS, n_bins=4, min_checkins=1)
        for name in (str(file), str(compressed))
    )
    np.testing.assert_array_equal(unpacked.weights.toarray(), plain.weights.toarray())


def test_one_check_in(tmp_path):
    (tmp_path / "one.txt").write_text(text_of(CHECKINS[:1]))
    data = load_checkins(tmp_path / "one.txt", bounds=BOUNDS, n_bins=1, min_checkins=1)
    np.testing.assert_array_equal(data.weights.toarray(), [[1]])


def test_corners_belong_to_the_grid(tmp_path):
    corners = [(1, latitude, longitude) for latitude in BOUNDS[:2] for longitude in BOUNDS[2:]]
    (tmp_path / "corners.txt").write_text(text_of(corners))
    data = load_checkins(tmp_path / "corners.txt", bounds=BOUNDS, n_bins=3, min_checkins=4)
    np.testing.assert_array_equal(np.flatnonzero(data.weights.toarray()), [0, 2, 6, 8])


def great_circle(first, second):
    """Return the distance between two places on a sphere of the earth's radius."""
    (a, b), (c, d) = np.radians(first), np.radians(second)
    haversine = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return 2 * 6371 * np.arcsin(np.sqrt(haversine))


@pytest.mark.parametrize("south", [-34.0, 0.0, 30.1, 59.6])
def test_grid_is_in_kilometres(tmp_path, south):
    width = 50 / (111.2 * np.cos(np.radians(south)))
    bounds = (south, south + 0.45, 12.0, 12.0 + width)
    middle = [(1, south + 0.225, 12.0 + width / 2)]
    (tmp_path / "checkins.txt").write_text(text_of(middle))
    data = load_checkins(tmp_path / "checkins.txt", bounds=bounds, n_bins=10, min_checkins=1)
    west, east, lower, upper = data.extent
    assert (west, lower) == (0, 0)
    latitudes = south + 0.45 * data.cell_centers[:, 1] / upper
    longitudes = 12.0 + width * data.cell_centers[:, 0] / east
    places = np.column_stack([latitudes, longitudes])
    for first, second in [(0, 9), (0, 90), (0, 99), (9, 90), (90, 99), (44, 45)]:
        flat = np.linalg.norm(data.cell_centers[first] - data.cell_centers[second])
        assert flat == pytest.approx(great_circle(places[first], places[second]), rel=0.01)


def test_missing_file_says_where_to_get_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*snap.stanford.edu"):
        load_checkins(tmp_path / "nowhere.txt", bounds=BOUNDS, n_bins=2)
    with pytest.raises(FileNotFoundError, match=r"snap.stanford.edu"):
        load_checkins(tmp_path, bounds=BOUNDS, n_bins=2)


def test_empty_file(tmp_path):
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match="is empty"):
        load_checkins(tmp_path / "empty.txt", bounds=BOUNDS, n_bins=2)


@pytest.mark.parametrize(
    "text",
    [
        "1,2010-10-19T23:55:27Z,30.5,-97.5,7\n",
        "me\tnow\t30.5\t-97.5\t7\n",
        "1\tnow\tnorth\t-97\t7\n",
    ],
)
def test_other_formats(tmp_path, text):
    (tmp_path / "other.txt").write_text(text)
    with pytest.raises(ValueError, match="separated by tabs"):
        load_checkins(tmp_path / "other.txt", bounds=BOUNDS, n_bins=2)


@pytest.mark.parametrize("name", ["other.gz", "cut.gz"])
def test_damaged_archives(tmp_path, file, name):
    content = gzip.compress(file.read_bytes())[:-20] if name == "cut.gz" else b"no archive"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="separated by tabs"):
        load_checkins(tmp_path / name, bounds=BOUNDS, n_bins=2)


@pytest.mark.parametrize(
    "bounds",
    [
        (30.0, 31.0, -98.0),
        (31.0, 30.0, -98.0, -97.0),
        (30.0, 31.0, -97.0, -98.0),
        (30.0, 30.0, -98.0, -97.0),
        (30.0, 91.0, -98.0, -97.0),
        (30.0, 31.0, -181.0, -97.0),
        (30.0, np.nan, -98.0, -97.0),
    ],
)
def test_bounds_that_are_none(file, bounds):
    with pytest.raises(ValueError, match=r"bounds must be .*south, north, west, east"):
        load_checkins(file, bounds=bounds, n_bins=2)


def test_nobody_within_the_bounds(file):
    with pytest.raises(ValueError, match=r"no user .* 10 check-ins within .* lower min_checkins"):
        load_checkins(file, bounds=BOUNDS, n_bins=2)
    with pytest.raises(ValueError, match="no user"):
        load_checkins(file, bounds=(0, 1, 0, 1), n_bins=2, min_checkins=1)


@pytest.mark.parametrize("name", ["n_bins", "min_checkins"])
@pytest.mark.parametrize("value, error", [(0, ValueError), (2.5, TypeError)])
def test_numbers_of_the_loader(file, name, value, error):
    parameters = {"n_bins": 2, "min_checkins": 2, name: value}
    with pytest.raises(error, match=name):
        load_checkins(file, bounds=BOUNDS, **parameters)


@pytest.mark.parametrize("name", ["n_users", "n_bins"])
@pytest.mark.parametrize("value, error", [(0, ValueError), (2.5, TypeError)])
def test_numbers_of_the_made_up_city(name, value, error):
    with pytest.raises(error, match=name):
        make_city_checkins(**{name: value})


def test_made_up_city():
    data = make_city_checkins(random_state=0)
    assert data.weights.shape == (500, 900)
    assert data.cell_centers.shape == (900, 2)
    assert data.extent == (0, 15, 0, 15)
    counts = data.weights.sum(axis=1)
    assert counts.min() >= 10
    # A few users check in far more often than most.
    assert counts.max() > 5 * np.median(counts)
    np.testing.assert_array_equal(counts, np.round(counts))
    # Nobody is everywhere, and a map is no sum of equal users.
    cells = np.diff(data.weights.indptr)
    assert 2 <= cells.min() and np.median(cells) < 40


def test_cells_are_numbered_as_in_the_loader():
    data = make_city_checkins(n_users=3, n_bins=4, random_state=0)
    expected = [
        [x, y] for y in (1.875, 5.625, 9.375, 13.125) for x in (1.875, 5.625, 9.375, 13.125)
    ]
    np.testing.assert_allclose(data.cell_centers, expected)


def test_centre_is_busier_than_the_edge():
    data = make_city_checkins(random_state=1)
    shares = data.weights.sum(axis=0).reshape(30, 30) / data.weights.sum()
    assert shares[12:18, 12:18].sum() > 5 * shares[:6, :6].sum()


def test_same_city_for_the_same_seed():
    first, again, other = (make_city_checkins(40, 10, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.weights.toarray(), again.weights.toarray())
    assert (first.weights != other.weights).nnz > 0
    state = np.random.RandomState(3)
    np.testing.assert_array_equal(
        make_city_checkins(40, 10, random_state=state).weights.toarray(), first.weights.toarray()
    )
