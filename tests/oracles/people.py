"""People with several rows, and generators that are fitted to them in few steps."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch

SCHEMA = {
    "day": (0.0, 100.0),
    "stars": range(1, 6),
    "shop": {"categories": ["A", "B", "C"], "missing": True},
    "spent": {"bounds": (0.0, 1000.0), "missing": True},
}
SMALL = TableSketch(n_components=24, n_iter=5)


def make_people(n_people, seed=0, n_rows=6.0):
    """Return rows of people who differ."""
    rng = np.random.default_rng(seed)
    sizes = rng.poisson(n_rows - 1, n_people) + 1
    person = np.repeat(np.arange(n_people), sizes)
    taste, n = rng.normal(size=n_people)[person], len(person)
    return pd.DataFrame(
        {
            "user": person,
            "day": rng.uniform(0, 100, n),
            "stars": np.clip(np.rint(3 + taste + rng.normal(size=n)), 1, 5).astype(int),
            "shop": np.array(["A", "B", "C"], dtype=object)[rng.integers(0, 3, n)],
            "spent": np.where(rng.random(n) < 0.2, np.nan, np.exp(3 + taste + rng.normal(size=n))),
        }
    )


def fit_people(X, groups="user", epsilon=1.0, **options):
    """Return a generator that was fitted in few steps."""
    options = {"schema": SCHEMA, "model": SMALL, "random_state": 0, **options}
    return DPSinkhornGenerator(epsilon, 1e-6, **options).fit(X, groups=groups)


def refused(match, X, groups, **options):
    ledger = PrivacyLedger(10.0, 1e-4, neighbouring="add_remove")
    with pytest.raises(ValueError, match=match) as error:
        fit_people(X, groups, random_state=None, ledger=ledger, **options)
    assert ledger.spent()[0] == 0
    return str(error.value)
