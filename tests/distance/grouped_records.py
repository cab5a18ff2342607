"""Groups of records, and releases of the distance between them, for the tests of its estimator."""

import math

import numpy as np
import pandas as pd

from skdpot import PrivateSinkhornDistance

DELTA = 1e-5
MECHANISMS = {
    "output": {},
    "histogram": {"mechanism": "histogram", "grid": 3},
}
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
    settings = {"bounds": (0.0, 1.0), "tol": 1e-8, "random_state": 0} | params
    return PrivateSinkhornDistance(1e10, **settings).fit(X, y)


def asymmetric(x, y):
    return max(y[0] - x[0], 0.0) + 3.0


def failing(x, y):
    return math.nan if x[0] > 0.8 else 1 / 0 if y[0] < 0.2 else 5 * abs(x[0] - y[0])
