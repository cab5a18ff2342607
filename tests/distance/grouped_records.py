"""Groups of records, and releases of the distance between them, for the tests of its estimator."""

import math

import numpy as np
import ot
import pandas as pd

from skdpot import PrivateSinkhornDistance
from tests.oracles import distance_releases

DELTA = 1e-5
# Of the tests that accept: their seeds are fixed.
RARE = 1e-4
MECHANISMS = {"output": {}, "histogram": {"mechanism": "histogram"}}
PRIVATE = {"labels": "private", "groups": ["a", "b"], "min_group_size": 4}
ODD_LABELS = [
    "c", None, math.nan, 3, 0.5, 2.0**70, 1j, (1, 2), [1], ["a"], {}, {"a"}, np.array([1, 2]),
    pd.NA, pd.NaT, b"a", True,
]  # fmt: skip


def make_groups(*sizes, n_features=2, seed=0):
    """Return points of the unit cube, in groups with the names a, b, ..., in no order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat([*"abcdefgh"[: len(sizes)]], sizes))
    # The groups differ, so that distances do.
    return rng.random((len(y), n_features)) ** (1.0 + (y == "b"))[:, None], y


def exact(X, y, **params):
    """Return the estimator that was fitted with next to no noise, and no error that is allowed."""
    settings = {"bounds": (0.0, 1.0), "random_state": 0} | params
    return PrivateSinkhornDistance(1e10, **settings).fit(X, y)


SCHEMA = {
    "age": range(20, 61),
    "wage": {"bounds": (0.0, 10.0), "missing": True},
    "grade": {"levels": ["low", "mid", "high"], "missing": True},
    "work": {"categories": ["office", "home"], "missing": True},
}


def make_tables(*sizes, seed=0):
    """Return a table with text, numbers and missing values, in groups as of `make_groups`."""
    X, y = make_groups(*sizes, n_features=4, seed=seed)
    table = pd.DataFrame(
        {
            "age": 20 + np.rint(40 * X[:, 0]).astype(int),
            "wage": np.where(X[:, 1] < 0.2, np.nan, 12 * X[:, 1] - 1),
            "grade": np.array(["low", "mid", "high", None], object)[(3.99 * X[:, 2]).astype(int)],
            "work": np.array(["office", "home", "outside"], object)[(2.99 * X[:, 3]).astype(int)],
        }
    )
    return table, y


def gower(rows, columns, exponent=1):
    """Return means of powers of distances within columns, one pair after the other."""
    widths = {"age": 40.0, "wage": 10.0, "grade": 2.0}
    known = {"grade": ["low", "mid", "high"], "work": ["office", "home"]}

    def value(row, name):
        if name in known:
            return known[name].index(row[name]) if row[name] in known[name] else None
        number = min(max(row[name], 0.0), 10.0) if name == "wage" else row[name]
        return None if math.isnan(number) else number

    def distance(x, y, name):
        u, v = value(x, name), value(y, name)
        if u is None or v is None:
            return float(u is not v)
        return abs(u - v) / widths[name] if name in widths else float(u != v)

    return np.array(
        [
            [
                np.mean([distance(x, y, name) ** exponent for name in SCHEMA])
                for _, y in columns.iterrows()
            ]
            for _, x in rows.iterrows()
        ]
    )  # fmt: skip


def emd(cost):
    """Return the exact cost of transport between samples, as POT finds it."""
    return ot.emd2(np.full(len(cost), 1 / len(cost)), np.full(len(cost.T), 1 / len(cost.T)), cost)


def noise_of(estimator, X, y, n_releases=20_000):
    """Return what was added to every cost, or count, by as many releases."""
    release, X = distance_releases.plan(estimator, X, y)
    values, _ = distance_releases.exact_values(release, X)
    return distance_releases.noisy_values(release, values, n_releases, 0) - values, release


def asymmetric(x, y):
    return max(y[0] - x[0], 0.0) + 3.0


def failing(x, y):
    return math.nan if x[0] > 0.8 else 1 / 0 if y[0] < 0.2 else 5 * abs(x[0] - y[0])
