"""Random tables, and tables of people, beside their neighbours: nothing but releases differs.

Declarations, options and values are drawn anew for every seed; values are at ends of what is
declared and far beyond, missing, or undeclared where that counts as missing.
"""

import warnings

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.privacy import allow_useless_releases
from tests.oracles.sketch import moved_by, squared_mu, transcript_of

# What is declared of a column, and values that it may have.
COLUMNS = {
    "integer": ({"bounds": (0, 5), "integer": True}, [-3, 0, 1, 2.5, 5, 1e9, np.inf]),
    "many": ({"bounds": (0, 1999), "integer": True}, [0, 3, 700, 701, 1999, -1e308]),
    "real": ({"bounds": (0.0, 1.0), "missing": True}, [0, 1, 0.5, 0.3, -5, 1e308, np.nan]),
    "log": ({"bounds": (1.0, 1e6), "scale": "log"}, [1, 10, 777, 1e6, -1, np.inf]),
    "level": ({"levels": ["low", "mid", "high"]}, ["low", "mid", "high"]),
    "word": ({"categories": ["x", "y"], "missing": True}, ["x", "y", "?", None]),
    "flag": ({"categories": [False, True]}, [False, True]),
    "date": (
        {"bounds": ("2020-01-01", "2024-12-31"), "missing": True},
        ["2020-01-01", "2024-12-31", "1999-05-05", None],
    ),
}


class Case:
    """A generator, and rows of units, which are records or people, for two neighbours."""

    def __init__(self, seed, *, of_people):
        rng = np.random.default_rng([seed, of_people])
        self.kinds = rng.choice(list(COLUMNS), rng.integers(2, 6))
        self.names = [f"{kind} {i}" for i, kind in enumerate(self.kinds)]
        schema = {name: dict(COLUMNS[kind][0]) for name, kind in zip(self.names, self.kinds)}  # noqa: B905
        target = str(rng.choice(self.names)) if rng.random() < 0.6 else None
        self.neighbouring = str(rng.choice(["add_remove", "replace_one"]))
        self.generator = DPSinkhornGenerator(
            float(rng.choice([0.3, 3.0, 1e4])), 1e-5, schema=schema, target=target,
            neighbouring=self.neighbouring, random_state=0,
            model=TableSketch(24, n_iter=1),
        )  # fmt: skip
        n_units = int(rng.choice([2, 3, 30]))
        sizes = rng.choice([1, 2, 5, 1000], n_units + 1) if of_people else [1] * (n_units + 1)
        units = [self.rows(rng, int(size)) for size in sizes]
        self.of_people = of_people
        self.first = units[:n_units]
        last = [] if self.neighbouring == "add_remove" else units[n_units:]
        self.other = [*units[: n_units - 1], *last]

    def rows(self, rng, n):
        """Return rows of one unit; all alike, in turns, or any."""
        made = {}
        together = rng.integers(3)
        for name, kind in zip(self.names, self.kinds, strict=True):
            values = np.array(COLUMNS[kind][1], dtype=object)
            n_drawn = min(n, together + 1) if together < 2 else n
            made[name] = np.resize(rng.choice(values, n_drawn), n)
        return pd.DataFrame(made)

    def fit(self, units):
        table = pd.concat(units, ignore_index=True)
        groups = np.repeat(np.arange(len(units)), [len(rows) for rows in units])
        self.generator.fit(table, groups=groups if self.of_people else None)


@pytest.mark.parametrize("of_people", [False, True], ids=["records", "people"])
@pytest.mark.parametrize("seed", range(6))
def test_neighbours_differ_in_releases_by_what_is_declared_and_in_nothing_else(
    seed, of_people, tmp_path
):
    case, files = Case(seed, of_people=of_people), []

    def fit(units):
        case.fit(units)
        case.generator.save(tmp_path / "file")
        drawn = case.generator.sample(5)
        files.append(((tmp_path / "file").read_bytes(), drawn.to_dict(), drawn.dtypes.to_dict()))

    with allow_useless_releases(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first = transcript_of(lambda: fit(case.first))
        n_said = len(said)
        other = transcript_of(lambda: fit(case.other), given=first)
    assert [str(o.message) for o in said[:n_said]] == [str(o.message) for o in said[n_said:]]
    assert repr(files[0]) == repr(files[1])
    most = 1 if case.neighbouring == "add_remove" else 2
    assert max(moved_by(first, other).values()) <= most * (1 + 1e-12)
    assert squared_mu(first, other) * case.generator.noise_multiplier_**2 <= 1 + 1e-9


def test_a_replaced_record_can_use_up_all_that_is_declared_for_tables():
    """It leaves one cell of each table for another, and turns every parity of three columns.

    Noise hides the signs of pairs of so few records: columns are counted again instead.
    """
    schema = {name: ["no", "yes"] for name in "abc"}
    generator = DPSinkhornGenerator(3.0, 1e-5, schema=schema, neighbouring="replace_one")
    generator.set_params(random_state=0, model=TableSketch(8, n_iter=1))
    here = pd.DataFrame({name: ["no"] * 20 + ["yes"] * 20 for name in "abc"})
    there = here.copy()
    there.loc[0] = "yes"
    first = transcript_of(lambda: generator.fit(here))
    other = transcript_of(lambda: generator.fit(there), given=first)
    assert squared_mu(first, other) * generator.noise_multiplier_**2 == pytest.approx(1)
