"""The MovieLens loader, on made-up files of the two layouts that it reads."""

import numpy as np
import pytest

from skdpot.datasets import load_movielens100k

RATINGS = [(1, 1, 5), (1, 3, 2), (3, 2, 4), (3, 1, 1)]
EXPECTED = [[5, 0, 2], [0, 0, 0], [1, 4, 0]]
TITLES = ["Café (1994)", "Two Moons (1995)", "War? (1996)"]
GENRES = np.zeros((3, 19), dtype=int)
GENRES[[0, 1, 2, 2], [5, 8, 8, 17]] = 1


@pytest.fixture
def folder(tmp_path):
    """Return a folder laid out as the original data set is."""
    ratings = "".join(f"{user}\t{film}\t{rating}\t880000000\n" for user, film, rating in RATINGS)
    (tmp_path / "u.data").write_text(ratings)
    films = "".join(
        f"{number}|{title}|01-Jan-1995||http://example.org/{number}|{'|'.join(map(str, flags))}\n"
        for number, (title, flags) in enumerate(zip(TITLES, GENRES, strict=True), start=1)
    )
    (tmp_path / "u.item").write_bytes(films.encode("latin-1"))
    return tmp_path


@pytest.fixture
def arrays():
    """Return the arrays of an archive."""
    users, films, ratings = np.array(RATINGS).T
    return {
        "user_id": users.astype(np.uint16),
        "item_id": films.astype(np.uint16),
        "rating": ratings.astype(np.uint8),
        "item_genre": GENRES.astype(np.uint8),
        "item_title": np.array(TITLES),
        "genre_names": np.array([f"genre {number}" for number in range(19)]),
    }


def saved(path, arrays):
    """Save arrays as an archive and return its path."""
    np.savez(path / "ratings.npz", **arrays)
    return path / "ratings.npz"


def test_original_files(folder):
    data = load_movielens100k(folder)
    assert data.ratings.format == "csr"
    assert data.ratings.nnz == len(RATINGS)
    np.testing.assert_array_equal(data.ratings.toarray(), EXPECTED)
    assert data.titles.tolist() == TITLES
    assert data.genres.dtype == bool
    np.testing.assert_array_equal(data.genres, GENRES)
    assert data.genre_names[data.genres[2]].tolist() == ["Drama", "War"]


def test_archive_holds_the_same(folder, arrays, tmp_path):
    original, archived = (
        load_movielens100k(str(folder)),
        load_movielens100k(saved(tmp_path, arrays)),
    )
    assert set(original) == set(archived)
    np.testing.assert_array_equal(archived.ratings.toarray(), original.ratings.toarray())
    np.testing.assert_array_equal(archived.genres, original.genres)
    np.testing.assert_array_equal(archived.titles, original.titles)
    assert archived.genre_names[0] == "genre 0"


@pytest.mark.parametrize("name", ["u.data", "u.item"])
def test_missing_file_is_named_with_where_to_get_it(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"no {name} in .*grouplens.org.*redistribution"):
        load_movielens100k(folder)


def test_missing_path_says_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*grouplens.org"):
        load_movielens100k(tmp_path / "nowhere")


def test_missing_arrays_are_named(arrays, tmp_path):
    del arrays["rating"]
    with pytest.raises(ValueError, match=r"lacks the arrays \['rating'\]"):
        load_movielens100k(saved(tmp_path, arrays))


@pytest.mark.parametrize("content", [b"user,film,rating\n", b"", b"PK\x03\x04 cut short"])
def test_file_that_is_no_archive(tmp_path, content):
    (tmp_path / "ratings.csv").write_bytes(content)
    with pytest.raises(ValueError, match="not an array archive"):
        load_movielens100k(tmp_path / "ratings.csv")


def test_single_array_is_no_archive(tmp_path):
    np.save(tmp_path / "ratings.npy", np.ones(3))
    with pytest.raises(ValueError, match="lacks the arrays"):
        load_movielens100k(tmp_path / "ratings.npy")


@pytest.mark.parametrize(
    "line, message",
    [
        ("1\t1\tfive\t0", "a user, a film and a rating a line"),
        ("1\t1", "a user, a film and a rating a line"),
        ("0\t1\t5\t0", "numbered from 1"),
        ("1\t4\t5\t0", "from 1 to 3"),
        ("1\t0\t5\t0", "from 1 to 3"),
        ("1\t1\t6\t0", "from 1 to 5"),
        ("1\t1\t5\t0\n1\t1\t4\t0", "the same film twice"),
    ],
)
def test_bad_ratings(folder, line, message):
    (folder / "u.data").write_text(line)
    with pytest.raises(ValueError, match=message):
        load_movielens100k(folder)


@pytest.mark.parametrize("change", [("2|Two", "7|Two"), ("|0\n", "\n")])
def test_bad_films(folder, change):
    file = folder / "u.item"
    file.write_text(file.read_text(encoding="latin-1").replace(*change), encoding="latin-1")
    with pytest.raises(ValueError, match="must be a line of 24 fields that starts with"):
        load_movielens100k(folder)


def test_film_without_genre(arrays, tmp_path):
    arrays["item_genre"][1] = 0
    with pytest.raises(ValueError, match="one of the genres"):
        load_movielens100k(saved(tmp_path, arrays))
