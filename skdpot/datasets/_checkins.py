"""Check-ins of a city's users on a grid: read from a file, or simulated."""

import math
from numbers import Integral
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.utils import Bunch, check_random_state, check_scalar

_EARTH_RADIUS = 6371.0
_MIN_CHECKINS = 10
_WHERE_TO_GET_IT = (
    "A file of public check-ins is loc-gowalla_totalCheckins.txt.gz of "
    "https://snap.stanford.edu/data/loc-gowalla.html."
)

# The made-up city. All lengths are in kilometres.
_CITY_SIZE = 15.0
_DISTRICTS = np.array([[7.5, 7.5], [3.5, 10.5], [11.5, 11.0], [10.5, 3.5], [4.0, 4.0], [7.0, 13.0]])
_DISTRICT_WIDTHS = np.array([0.9, 1.3, 1.1, 1.2, 1.5, 1.0])
_HOMES_IN_DISTRICTS = np.array([0.10, 0.24, 0.18, 0.16, 0.22, 0.10])
_WORK_IN_DISTRICTS = np.array([0.60, 0.06, 0.14, 0.10, 0.04, 0.06])
_STREET_DISTANCE = 1.3
_STREET_ANGLE = 0.35
_STREET_WIDTH = 0.04
_N_VENUES = 1500
_REACH_FROM_HOME, _REACH_FROM_WORK = 1.5, 0.8
_SHARE_AT_HOME, _SHARE_AT_WORK = 0.15, 0.2


def make_city_checkins(n_users=500, n_bins=30, random_state=None):
    """Make up the check-ins of the users of a city, on a grid.

    Homes, workplaces and venues lie along the streets of a city of 15 km by 15 km with six
    districts. Users are seen at home, at work, and at venues that are popular and near to one of
    the two. The numbers of check-ins of users and the popularity of venues have heavy tails; every
    user has at least ten check-ins. All users are made up, so nothing is private.

    Parameters
    ----------
    n_users : int, default=500
        Number of users.
    n_bins : int, default=30
        Number of cells of the grid along each axis.
    random_state : int, RandomState instance or None, default=None
        Determines everything that is random. Pass an int for a reproducible city.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        weights : csr_array of shape (n_users, n_bins ** 2)
            Number of check-ins of every user in every cell. Cells are numbered from west to east
            and row by row from south to north.
        cell_centers : ndarray of shape (n_bins ** 2, 2)
            Kilometres east and north of the grid's south-western corner.
        extent : tuple of 4 floats
            Limits of the grid in kilometres: west, east, south, north.

    Raises
    ------
    TypeError
        If a number of users or cells is no integer.
    ValueError
        If it is not at least 1.

    See Also
    --------
    load_checkins : Reads real check-ins into the same form.

    Examples
    --------
    >>> from skdpot.datasets import make_city_checkins
    >>> data = make_city_checkins(n_users=20, n_bins=12, random_state=0)
    >>> data.weights.shape, data.cell_centers.shape
    ((20, 144), (144, 2))
    >>> bool(data.weights.sum(axis=1).min() >= 10)
    True
    """
    check_scalar(n_users, "n_users", Integral, min_val=1)
    check_scalar(n_bins, "n_bins", Integral, min_val=1)
    rng = check_random_state(random_state)
    venues = _draw_places(_WORK_IN_DISTRICTS + _HOMES_IN_DISTRICTS, _N_VENUES, rng)
    popularity = 1.0 + rng.pareto(2.0, _N_VENUES)
    homes = _draw_places(_HOMES_IN_DISTRICTS, n_users, rng)
    workplaces = _draw_places(_WORK_IN_DISTRICTS, n_users, rng)
    n_checkins = _MIN_CHECKINS + rng.lognormal(3.0, 1.0, n_users).astype(np.int64)
    attraction = popularity * (
        np.exp(-cdist(homes, venues) / _REACH_FROM_HOME)
        + np.exp(-cdist(workplaces, venues) / _REACH_FROM_WORK)
    )
    visits = _draw_visits(n_checkins, attraction, rng)
    users, places = np.nonzero(visits)
    pair = np.stack([homes, workplaces], axis=1)
    coordinates = np.where(
        (places < 2)[:, None], pair[users, np.minimum(places, 1)], venues[np.maximum(places - 2, 0)]
    )
    return _as_bunch(
        users, coordinates, visits[users, places], (n_users, n_bins), (_CITY_SIZE, _CITY_SIZE)
    )


def _draw_visits(n_checkins, attraction, rng):
    """Return how often each user is at home, at work, and at every venue."""
    n_users = len(n_checkins)
    venues = attraction * ((1 - _SHARE_AT_HOME - _SHARE_AT_WORK) / attraction.sum(axis=1)[:, None])
    probabilities = np.column_stack(
        [np.full(n_users, _SHARE_AT_HOME), np.full(n_users, _SHARE_AT_WORK), venues]
    )
    return np.array(
        [rng.multinomial(n, row) for n, row in zip(n_checkins, probabilities, strict=True)]
    )


def _draw_places(shares, n_places, rng):
    """Draw places in the districts and move each to the nearest street of one direction."""
    districts = rng.choice(len(shares), n_places, p=shares / shares.sum())
    offsets = rng.standard_normal((n_places, 2)) * _DISTRICT_WIDTHS[districts, None]
    cosine, sine = math.cos(_STREET_ANGLE), math.sin(_STREET_ANGLE)
    rotation = np.array([[cosine, -sine], [sine, cosine]])
    along_streets = (_DISTRICTS[districts] + offsets) @ rotation
    direction = rng.randint(2, size=n_places), np.arange(n_places)
    across = along_streets.T[direction]
    nearest = _STREET_DISTANCE * np.round(across / _STREET_DISTANCE)
    along_streets.T[direction] = nearest + _STREET_WIDTH * rng.standard_normal(n_places)
    places = along_streets @ rotation.T
    # Places beyond the city limit are reflected at it.
    return np.clip(_CITY_SIZE - np.abs(_CITY_SIZE - np.abs(places)), 0.0, _CITY_SIZE)


def load_checkins(path, *, bounds, n_bins, min_checkins=10):
    r"""Load the check-ins of the users of a city, on a grid.

    They are counted without noise: the result is as sensitive as the file.

    Parameters
    ----------
    path : str or path-like
        Text file in Gowalla's format, plain or compressed (``.gz``): one check-in a line, with
        the number of the user, the time, latitude and longitude in degrees and the number of the
        location, separated by tabs. Time and location are not used.
    bounds : tuple of 4 floats
        Limits of the grid in degrees: ``(south, north, west, east)``. Check-ins outside it are
        left out. A city may not lie across the 180th meridian.
    n_bins : int
        Number of cells of the grid along each axis.
    min_checkins : int, default=10
        Users with fewer check-ins within the bounds are left out.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        weights : csr_array of shape (n_users, n_bins ** 2)
            Number of check-ins of every user in every cell. Cells are numbered from west to east
            and row by row from south to north.
        cell_centers : ndarray of shape (n_bins ** 2, 2)
            Kilometres east and north of the grid's south-western corner.
        extent : tuple of 4 floats
            Limits of the grid in kilometres: west, east, south, north.
        user_id : ndarray of shape (n_users,)
            The users' numbers in the file.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message says where there is one.
    TypeError
        If `n_bins` or `min_checkins` is no integer.
    ValueError
        If one of these is below 1, the bounds are invalid, the file has another format, or no user
        is left.

    See Also
    --------
    make_city_checkins : Makes up a city, where there is no file.

    Notes
    -----
    Degrees become kilometres as if the earth were flat and as wide everywhere as at the middle
    latitude. Over a city of 50 km and up to 60 degrees from the equator, distances come out right
    to within 1 %.

    References
    ----------
    E. Cho, S. A. Myers and J. Leskovec, "Friendship and Mobility: User Movement in Location-Based
    Social Networks", KDD 2011. :doi:`10.1145/2020408.2020579`

    Examples
    --------
    A made-up file with two users, of whom one has left the city:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skdpot.datasets import load_checkins
    >>> lines = [
    ...     "7\t2010-10-17T01:48:53Z\t30.21\t-97.79\t420315",
    ...     "7\t2010-10-16T06:02:04Z\t30.28\t-97.71\t316637",
    ...     "9\t2010-10-12T15:57:20Z\t40.64\t-73.78\t23261",
    ... ]
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "checkins.txt")
    ...     _ = path.write_text("\n".join(lines))
    ...     data = load_checkins(
    ...         path, bounds=(30.2, 30.3, -97.8, -97.7), n_bins=2, min_checkins=2
    ...     )
    >>> data.user_id
    array([7])
    >>> data.weights.toarray()
    array([[1., 0., 0., 1.]])
    """
    south, north, west, east = _check_bounds(bounds)
    check_scalar(n_bins, "n_bins", Integral, min_val=1)
    check_scalar(min_checkins, "min_checkins", Integral, min_val=1)
    users, latitudes, longitudes = _read_checkins(Path(path))
    inside = (south <= latitudes) & (latitudes <= north)
    inside &= (west <= longitudes) & (longitudes <= east)
    user_id, positions, counts = np.unique(users[inside], return_inverse=True, return_counts=True)
    enough = counts >= min_checkins
    if not enough.any():
        raise ValueError(
            f"no user of {str(path)!r} has {min_checkins} check-ins within bounds={bounds}, which "
            "must be (south, north, west, east) in degrees; widen them, or lower min_checkins."
        )
    kept = enough[positions]
    per_degree = _EARTH_RADIUS * math.pi / 180
    scales = np.array([per_degree * math.cos(math.radians((south + north) / 2)), per_degree])
    coordinates = np.column_stack([longitudes[inside] - west, latitudes[inside] - south]) * scales
    data = _as_bunch(
        (np.cumsum(enough) - 1)[positions[kept]], coordinates[kept], np.ones(kept.sum()),
        (int(enough.sum()), n_bins), np.array([east - west, north - south]) * scales,
    )  # fmt: skip
    return Bunch(**data, user_id=user_id[enough])


def _read_checkins(file):
    """Return users, latitudes and longitudes of all check-ins of a file."""
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {str(file)!r}. {_WHERE_TO_GET_IT}")
    if not file.stat().st_size:
        raise ValueError(f"{str(file)!r} is empty. {_WHERE_TO_GET_IT}")
    columns = np.dtype([("user", "i8"), ("latitude", "f8"), ("longitude", "f8")])
    try:
        checkins = np.loadtxt(
            file, dtype=columns, comments=None, delimiter="\t", usecols=(0, 2, 3), ndmin=1
        )
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{str(file)!r} must hold a user, a time, a latitude, a longitude and a location a "
            f"line, separated by tabs: {error}"
        ) from error
    return checkins["user"], checkins["latitude"], checkins["longitude"]


def _as_bunch(users, coordinates, counts, shape, size):
    """Count check-ins by user and cell; coordinates start at the south-western corner."""
    n_users, n_bins = shape
    columns, rows = np.minimum(coordinates * (n_bins / np.asarray(size)), n_bins - 1).astype(int).T
    positions = (users, rows * n_bins + columns)
    weights = sparse.coo_array(
        (np.asarray(counts, dtype=np.float64), positions), shape=(n_users, n_bins**2)
    ).tocsr()
    x, y = np.multiply.outer(size, (np.arange(n_bins) + 0.5) / n_bins)
    cell_centers = np.column_stack([np.tile(x, n_bins), np.repeat(y, n_bins)])
    extent = (0.0, float(size[0]), 0.0, float(size[1]))
    return Bunch(weights=weights, cell_centers=cell_centers, extent=extent)


def _check_bounds(bounds):
    limits = np.asarray(bounds, dtype=np.float64)
    if limits.shape == (4,):
        south, north, west, east = limits.tolist()
        if -90 <= south < north <= 90 and -180 <= west < east <= 180:
            return south, north, west, east
    raise ValueError(
        "bounds must be (south, north, west, east) in degrees, with south < north within "
        f"[-90, 90] and west < east within [-180, 180], got {bounds!r}."
    )
