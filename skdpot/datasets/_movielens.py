"""The MovieLens 100k ratings, read from files that the user has downloaded."""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

# Meaning of the flags at the end of every line of u.item, in order.
_GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip
# The number, the title, two dates and a web address come before the flags.
_FIELDS_BEFORE_GENRES = 5
_ARRAYS = ("user_id", "item_id", "rating", "item_genre", "item_title", "genre_names")
_WHERE_TO_GET_IT = (
    "Download MovieLens 100k from https://grouplens.org/datasets/movielens/100k/ and give the "
    "folder that holds u.data and u.item. Its licence does not allow redistribution, so it is "
    "not part of this package."
)


def load_movielens100k(path):
    r"""Load the MovieLens 100k ratings from a folder or an archive on disk.

    The data set holds 100,000 ratings (1 to 5) of 1,682 films by 943 users. Its licence allows
    research and forbids redistribution and commercial use without permission, so it does not come
    with this package: download it from https://grouplens.org/datasets/movielens/100k/. The result
    contains the data of the files, without noise.

    Parameters
    ----------
    path : str or path-like
        Folder that holds the original files ``u.data`` and ``u.item``; or an ``.npz`` archive of
        the arrays ``user_id`` and ``item_id`` (both counted from 1), ``rating``, ``item_genre``
        (0 or 1, a film a row), ``item_title`` and ``genre_names``.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        ratings : csr_array of shape (n_users, n_films)
            Ratings from 1 to 5; a film that a user has not rated is not stored.
        genres : ndarray of shape (n_films, n_genres), dtype=bool
            Which genres a film belongs to: at least one, often several.
        genre_names : ndarray of shape (n_genres,)
            Names of the genres.
        titles : ndarray of shape (n_films,)
            Titles of the films, with their years.

    Raises
    ------
    FileNotFoundError
        If the files are not there; the message says where to get them.
    ValueError
        If the files exist but have another format.

    References
    ----------
    F. M. Harper and J. A. Konstan, "The MovieLens Datasets: History and Context", ACM Transactions
    on Interactive Intelligent Systems 5(4), 2015. :doi:`10.1145/2827872`

    Examples
    --------
    A made-up folder with two users and two films:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.datasets import load_movielens100k
    >>> comedy, western = ["|".join("1" if k == g else "0" for k in range(19)) for g in (5, 18)]
    >>> with TemporaryDirectory() as folder:
    ...     lines = ["1\t1\t5\t880000000", "2\t1\t3\t880000000", "2\t2\t4\t880000000"]
    ...     _ = Path(folder, "u.data").write_text("\n".join(lines))
    ...     lines = [f"1|A Joke (1995)||||{comedy}", f"2|A Horse (1996)||||{western}"]
    ...     _ = Path(folder, "u.item").write_text("\n".join(lines))
    ...     data = load_movielens100k(folder)
    >>> data.ratings.toarray()
    array([[5., 0.],
           [3., 4.]])
    >>> data.genre_names[data.genres[1]]
    array(['Western'], dtype='<U11')
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {str(path)!r}. {_WHERE_TO_GET_IT}")
    return _read_folder(path) if path.is_dir() else _read_archive(path)


def _read_folder(folder):
    for name in ("u.data", "u.item"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"There is no {name} in {str(folder)!r}. {_WHERE_TO_GET_IT}")
    try:
        events = np.loadtxt(folder / "u.data", dtype=np.int64, ndmin=2, usecols=(0, 1, 2))
    except ValueError as error:
        raise ValueError(
            f"{str(folder / 'u.data')!r} must hold a user, a film and a rating a line: {error}"
        ) from error
    titles, genres = _read_films(folder / "u.item")
    users, films, ratings = events.T
    return _as_bunch(users, films, ratings, genres, titles, np.array(_GENRES))


def _read_films(file):
    """Return the titles and the genre flags of the films, which u.item lists in order."""
    width = _FIELDS_BEFORE_GENRES + len(_GENRES)
    lines = [line for line in file.read_text(encoding="latin-1").split("\n") if line.strip()]
    films = [line.strip().split("|") for line in lines]
    for number, film in enumerate(films, start=1):
        if len(film) != width or film[0] != str(number):
            raise ValueError(
                f"film {number} of {str(file)!r} must be a line of {width} fields that starts "
                f"with {number}, got {lines[number - 1]!r}."
            )
    titles = np.array([film[1] for film in films])
    flags = np.array([film[_FIELDS_BEFORE_GENRES:] for film in films])
    return titles, flags == "1"


def _read_archive(file):
    try:
        with file.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            named = isinstance(archive, np.lib.npyio.NpzFile)
            arrays = {name: archive[name] for name in _ARRAYS if named and name in archive}
    except (BadZipFile, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{str(file)!r} is not an array archive. {_WHERE_TO_GET_IT}") from error
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise ValueError(f"{str(file)!r} lacks the arrays {missing}. {_WHERE_TO_GET_IT}")
    users, films, ratings, genres, titles, genre_names = (arrays[name] for name in _ARRAYS)
    return _as_bunch(users, films, ratings, genres.astype(bool), titles, genre_names)


def _as_bunch(users, films, ratings, genres, titles, genre_names):
    """Check users and films, which are numbered from 1, and return the data set."""
    n_films = len(titles)
    if len(users) == 0 or users.min() < 1 or films.min() < 1 or films.max() > n_films:
        raise ValueError(f"users must be numbered from 1, and films from 1 to {n_films}.")
    if genres.shape != (n_films, len(genre_names)) or not genres.any(axis=1).all():
        raise ValueError("every film must belong to one of the genres, or to several.")
    if not np.isin(ratings, (1, 2, 3, 4, 5)).all():
        raise ValueError("ratings must be whole numbers from 1 to 5.")
    shape = (int(users.max()), n_films)
    positions = (users.astype(np.int64) - 1, films.astype(np.int64) - 1)
    matrix = sparse.coo_array((ratings.astype(np.float64), positions), shape=shape).tocsr()
    if matrix.nnz != len(ratings):
        raise ValueError("a user has rated the same film twice.")
    return Bunch(ratings=matrix, genres=genres, genre_names=genre_names, titles=titles)
