"""People with several rows, and generators that are fitted to them in few steps."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator, PrivacyLedger
from skdpot.generative import TableSketch

SCHEMA = {
    "day": {"bounds": (0.0, 100.0), "order": True},
    "stars": range(1, 6),
    "shop": {"categories": ["A", "B", "C"], "missing": True},
    "spent": {"bounds": (0.0, 1000.0), "missing": True},
    "sex": {"categories": ["F", "M"], "per": "user"},
    "age": {"bounds": (18, 80), "integer": True, "per": "user"},
}
SMALL = TableSketch(n_components=24, n_iter=5)


def make_people(n_people, seed=0, n_rows=6.0, first=0):
    """Return rows of people who differ, and whose rows depend on the ones before."""
    rng = np.random.default_rng(seed)
    sizes = rng.poisson(n_rows - 1, n_people) + 1
    person = np.repeat(np.arange(n_people), sizes)
    n = len(person)
    taste = rng.normal(size=n_people)[person]
    mood = rng.normal(size=n)
    for row in range(1, n):
        if person[row] == person[row - 1]:
            mood[row] = 0.6 * mood[row - 1] + 0.8 * mood[row]
    day = rng.uniform(0, 100, n)
    return pd.DataFrame(
        {
            "user": first + person,
            "day": day[np.lexsort((day, person))],
            "stars": np.clip(np.rint(3 + 0.7 * (taste + mood + rng.normal(size=n))), 1, 5).astype(
                int
            ),
            "shop": np.array(["A", "B", "C"], dtype=object)[rng.integers(0, 3, n)],
            "spent": np.where(rng.random(n) < 0.2, np.nan, np.exp(3 + taste + rng.normal(size=n))),
            "sex": np.where(taste > 0, "M", "F"),
            "age": rng.integers(18, 81, n_people)[person],
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
