"""Data sets of the examples: read from files that you have downloaded, or simulated.

Nothing is made private here: what is returned is as sensitive as the files.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.utils import Bunch

ADULT_FIELDS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
    "native_country", "income",
)  # fmt: skip
ADULT_NUMBERS = [
    "age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week",
]  # fmt: skip
ADULT_WORDS = [
    "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
    "native_country",
]  # fmt: skip
COMPAS_NUMBERS = [
    "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "decile_score",
    "days_b_screening_arrest", "is_recid",
]  # fmt: skip
COMPAS_WORDS = ["sex", "race", "age_cat", "c_charge_degree", "score_text"]
GENRES = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip


def load_adult(path):
    """Return Adult, records of 48,842 people from the census of the United States in 1994.

    `path` is the folder with ``adult.data`` and ``adult.test``, of
    https://archive.ics.uci.edu/dataset/2/adult, one of these files, or a table with a header. The
    result has `data`, `feature_names`, `categories`, `target` (1 for an income above 50,000
    dollars), `target_names` and `is_test` (the division of its authors). A missing word is empty.
    """
    path = _existing(path, "https://archive.ics.uci.edu/dataset/2/adult")
    files = [path / "adult.data", path / "adult.test"] if path.is_dir() else [path]
    table = pd.concat([_read_people(file, ADULT_FIELDS) for file in files], ignore_index=True)
    # Labels of adult.test end with a full stop.
    is_test = table["income"].str.endswith(".")
    if "split" in table:
        is_test |= table["split"] == "test"
    return Bunch(
        data=table[ADULT_NUMBERS].apply(pd.to_numeric).to_numpy(np.float64),
        feature_names=ADULT_NUMBERS,
        categories=_words(table, ADULT_WORDS),
        target=(table["income"].str.rstrip(".") == ">50K").to_numpy(np.int64),
        target_names=["<=50K", ">50K"],
        is_test=is_test.to_numpy(bool),
    )


def load_compas(path, *, filtered=False):
    """Return ProPublica's records of 7,214 defendants, and whether they were arrested again.

    `path` is the file ``compas-scores-two-years.csv`` of
    https://github.com/propublica/compas-analysis. With `filtered`, only the records are kept that
    ProPublica's own analysis kept. The result has `data`, `feature_names`, `categories` and
    `target` (1 for an arrest within two years).
    """
    table = _read_people(_existing(path, "https://github.com/propublica/compas-analysis"))
    numbers = table[COMPAS_NUMBERS].apply(pd.to_numeric)
    words = table[COMPAS_WORDS].fillna("")
    if filtered:
        kept = (numbers["days_b_screening_arrest"].abs() <= 30) & (numbers["is_recid"] != -1)
        kept &= (words["c_charge_degree"] != "O") & (words["score_text"] != "")
        table, numbers = table[kept], numbers[kept]
    return Bunch(
        data=numbers.to_numpy(np.float64),
        feature_names=COMPAS_NUMBERS,
        categories=_words(table, COMPAS_WORDS),
        target=(table["two_year_recid"] == "1").to_numpy(np.int64),
    )


def _existing(path, address):
    """Return a path, or raise and say where the files come from."""
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no {str(path)!r}: download it from {address}")
    return Path(path)


def _read_people(file, fields=()):
    """Return a table of text; `fields` are the names of its columns where it has no header."""
    table = pd.read_csv(
        file, header=None, dtype=str, skipinitialspace=True, na_values=["?"], comment="|"
    )
    if "age" in table.iloc[0].to_list():
        names, table = table.iloc[0].str.replace("-", "_"), table.iloc[1:]
    else:
        names = pd.Series(fields)
    table.columns = names
    # COMPAS has two columns twice.
    return table.loc[:, ~names.duplicated().to_numpy()].reset_index(drop=True)


def _words(table, names):
    return {name: table[name].fillna("").to_numpy(str) for name in names}


def load_movielens100k(path):
    """Return 100,000 ratings of 1,682 films by 943 users.

    `path` is the folder with ``u.data`` and ``u.item``, of
    https://grouplens.org/datasets/movielens/100k/, whose licence forbids redistribution; or an
    ``.npz`` archive of their arrays. The result has `ratings` (sparse, users by films), `genres`
    (booleans, films by genres), `genre_names` and `titles`.
    """
    path = _existing(path, "https://grouplens.org/datasets/movielens/100k/")
    if path.is_dir():
        events = np.loadtxt(path / "u.data", dtype=np.int64, ndmin=2, usecols=(0, 1, 2))
        text = (path / "u.item").read_text(encoding="latin-1")
        films = [line.strip().split("|") for line in text.split("\n") if line.strip()]
        titles, names = np.array([film[1] for film in films]), np.array(GENRES)
        genres = np.array([film[-len(GENRES) :] for film in films]) == "1"
    else:
        with np.load(path) as arrays:
            events = np.column_stack([arrays[name] for name in ("user_id", "item_id", "rating")])
            titles, names = arrays["item_title"], arrays["genre_names"]
            genres = arrays["item_genre"].astype(bool)
    users, items, ratings = events.T.astype(np.int64)
    positions, shape = (users - 1, items - 1), (users.max(), len(titles))
    matrix = sparse.coo_array((ratings.astype(np.float64), positions), shape=shape).tocsr()
    return Bunch(ratings=matrix, genres=genres, genre_names=names, titles=titles)


def load_checkins(path, *, bounds, n_bins, min_checkins=10):
    """Return the check-ins of the users of a city, on a grid.

    `path` is a file in the format of ``loc-gowalla_totalCheckins.txt.gz`` of
    https://snap.stanford.edu/data/loc-gowalla.html, `bounds` are (south, north, west, east) in
    degrees. Users with fewer than `min_checkins` in these are left out. The result has `weights`
    (sparse: counts of users in cells, which are numbered from west to east and row by row from
    south to north), `cell_centers` and `extent` in kilometres, and `user_id`.
    """
    path = _existing(path, "https://snap.stanford.edu/data/loc-gowalla.html")
    south, north, west, east = bounds
    columns = {0: "user", 2: "latitude", 3: "longitude"}
    checkins = pd.read_csv(path, sep="\t", header=None, usecols=list(columns)).rename(
        columns=columns
    )
    checkins = checkins[
        checkins["latitude"].between(south, north) & checkins["longitude"].between(west, east)
    ]
    checkins = checkins[checkins.groupby("user")["user"].transform("size") >= min_checkins]
    if checkins.empty:
        raise ValueError(f"no user has {min_checkins} check-ins within {bounds}.")
    user_id, users = np.unique(checkins["user"], return_inverse=True)
    # Degrees become kilometres as if the earth were flat: over a city, right to within 1 %.
    per_degree = 6371.0 * math.pi / 180
    scales = np.array([per_degree * math.cos(math.radians((south + north) / 2)), per_degree])
    coordinates = (checkins[["longitude", "latitude"]].to_numpy() - [west, south]) * scales
    size = np.array([east - west, north - south]) * scales
    city = _on_grid(users, coordinates, np.ones(len(users)), n_bins, size)
    return Bunch(**city, user_id=user_id)


def make_city_checkins(n_users=500, n_bins=30, random_state=None):
    """Return simulated check-ins of the users of a city of 15 km by 15 km, as `load_checkins` does.

    Homes, workplaces and venues lie along streets, in six districts. Users are seen at home, at
    work, and at venues that are popular and near to one of the two, at least ten times.
    """
    rng = np.random.RandomState(random_state)
    size, n_venues = 15.0, 1500
    homes_in, work_in = [0.10, 0.24, 0.18, 0.16, 0.22, 0.10], [0.60, 0.06, 0.14, 0.10, 0.04, 0.06]
    venues = _draw_places(np.add(work_in, homes_in), n_venues, size, rng)
    popularity = 1.0 + rng.pareto(2.0, n_venues)
    homes = _draw_places(np.array(homes_in), n_users, size, rng)
    workplaces = _draw_places(np.array(work_in), n_users, size, rng)
    n_checkins = 10 + rng.lognormal(3.0, 1.0, n_users).astype(np.int64)
    near = np.exp(-cdist(homes, venues) / 1.5) + np.exp(-cdist(workplaces, venues) / 0.8)
    attraction = popularity * near
    # Of all check-ins, 15 % are at home and 20 % at work.
    shares = np.full((n_users, 2), [0.15, 0.2])
    shares = np.column_stack([shares, 0.65 * attraction / attraction.sum(axis=1)[:, None]])
    visits = np.array([rng.multinomial(n, row) for n, row in zip(n_checkins, shares, strict=True)])
    users, places = np.nonzero(visits)
    pair = np.stack([homes, workplaces], axis=1)
    coordinates = np.where(
        (places < 2)[:, None], pair[users, np.minimum(places, 1)], venues[np.maximum(places - 2, 0)]
    )
    return _on_grid(users, coordinates, visits[users, places], n_bins, np.array([size, size]))


def _draw_places(shares, n_places, size, rng):
    """Draw places in the districts and move each to the nearest street of one direction."""
    centers = np.array([[7.5, 7.5], [3.5, 10.5], [11.5, 11], [10.5, 3.5], [4, 4], [7, 13]])
    widths = np.array([0.9, 1.3, 1.1, 1.2, 1.5, 1.0])
    street_distance, street_angle, street_width = 1.3, 0.35, 0.04
    districts = rng.choice(len(shares), n_places, p=shares / shares.sum())
    offsets = rng.standard_normal((n_places, 2)) * widths[districts, None]
    cosine, sine = math.cos(street_angle), math.sin(street_angle)
    rotation = np.array([[cosine, -sine], [sine, cosine]])
    along_streets = (centers[districts] + offsets) @ rotation
    direction = rng.randint(2, size=n_places), np.arange(n_places)
    across = along_streets.T[direction]
    nearest = street_distance * np.round(across / street_distance)
    along_streets.T[direction] = nearest + street_width * rng.standard_normal(n_places)
    # Places beyond the city limit are reflected at it.
    return np.clip(size - np.abs(size - np.abs(along_streets @ rotation.T)), 0.0, size)


def _on_grid(users, coordinates, counts, n_bins, size):
    """Count check-ins by user and cell; coordinates start at the south-western corner."""
    columns, rows = np.minimum(coordinates * (n_bins / size), n_bins - 1).astype(int).T
    shape = (int(users.max()) + 1, n_bins**2)
    positions = users, rows * n_bins + columns
    weights = sparse.coo_array((np.asarray(counts, np.float64), positions), shape=shape).tocsr()
    x, y = np.multiply.outer(size, (np.arange(n_bins) + 0.5) / n_bins)
    cell_centers = np.column_stack([np.tile(x, n_bins), np.repeat(y, n_bins)])
    extent = (0.0, float(size[0]), 0.0, float(size[1]))
    return Bunch(weights=weights, cell_centers=cell_centers, extent=extent)
