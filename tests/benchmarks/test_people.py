"""People with several rows: what is kept of the rows of a person, on two public tables.

Run with ``SKDPOT_PEOPLE=FOLDER python -m pytest tests/benchmarks -m benchmark -s -k test_people``.
The folder has ``movielens100k.npz``, the arrays of MovieLens 100k with ages, genders and
occupations of users and the dates of films, and ``CDNOW_master.txt``, purchases of compact discs.
A fit takes 2 s of the processor; ``SKDPOT_RUNS`` is the number of fits of the ratings.
"""

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif("SKDPOT_PEOPLE" not in os.environ, reason="SKDPOT_PEOPLE names no folder"),
]

EPSILON, DELTA = 2.0, 1e-6
N_RUNS = int(os.environ.get("SKDPOT_RUNS", "10"))
DAY = 86_400
# In how many bins each number is counted for errors of columns that are taken together.
N_BINS = 7
RATINGS = {
    "time": {"bounds": (0.0, 220.0), "order": True},
    "stars": range(1, 6),
    "hour": range(24),
    "year": range(1920, 1999),
    "age": {"bounds": (7, 75), "integer": True, "per": "user"},
    "sex": {"categories": ["F", "M"], "per": "user"},
}
PURCHASES = {
    "day": {"bounds": (0, 550), "integer": True, "order": True},
    "number": {"bounds": (1, 100), "integer": True, "scale": "log"},
    "price": {"bounds": (1.0, 1500.0), "scale": "log"},
}


def read_ratings(folder):
    """Return the ratings of films with the time of each, and the schema."""
    data = np.load(folder / "movielens100k.npz")
    user, times = data["user_id"] - 1, data["timestamp"]
    years = [int(text[-4:]) if text[-4:].isdigit() else 1995 for text in data["item_release"]]
    jobs = sorted(set(data["user_occupation"].tolist()))
    rows = pd.DataFrame(
        {
            "user": user,
            "time": (times - times.min() // DAY * DAY) / DAY,
            "stars": data["rating"].astype(int),
            "hour": times % DAY // 3600,
            "year": np.array(years)[data["item_id"] - 1],
            "age": data["user_age"][user].astype(int),
            "sex": data["user_gender"][user],
            "job": data["user_occupation"][user],
        }
    )
    schema = RATINGS | {"job": {"categories": jobs, "per": "user"}}
    return rows.sort_values(["user", "time"], kind="stable", ignore_index=True), schema


def read_purchases(folder):
    """Return purchases with the day of each, and the schema."""
    names = ["user", "date", "number", "price"]
    rows = pd.read_csv(folder / "CDNOW_master.txt", sep=r"\s+", header=None, names=names)
    dates = pd.to_datetime(rows.pop("date").astype(str))
    rows.insert(1, "day", (dates - dates.min()).dt.days)
    return rows.sort_values(["user", "day"], kind="stable", ignore_index=True), PURCHASES


def rows_of_people(rows):
    """Return, of each number, the variance within people, and the correlation with the next row."""
    same, found = rows["user"].to_numpy()[1:] == rows["user"].to_numpy()[:-1], {}
    for name in rows.columns[1:]:
        of = rows[name]
        if of.dtype.kind in "if" and name != "age":
            numbers = of.to_numpy(np.float64)
            next_one = np.corrcoef(numbers[:-1][same], numbers[1:][same])[0, 1]
            found[name] = rows.groupby("user")[name].var().mean(), next_one
    return pd.DataFrame(found, index=["variance", "correlation"])


def shares(rows, edges, size):
    """Return the shares of bins of so many columns, where all people weigh as much."""
    weights = 1 / rows.groupby("user")["user"].transform("size").to_numpy()
    codes = {name: np.searchsorted(of, rows[name], side="left") for name, of in edges.items()}
    found = []
    for columns in combinations(edges, size):
        together = 0
        for name in columns:
            together = together * (len(edges[name]) + 1) + codes[name]
        n_cells = np.prod([len(edges[name]) + 1 for name in columns])
        found.append(np.bincount(together, weights / weights.sum(), minlength=n_cells))
    return found


def edges_of(rows):
    """Return what bins of each column are between: about even ones of numbers, or all labels."""
    edges = {}
    for name in rows.columns[1:]:
        of = rows[name].to_numpy()
        even = np.quantile(of, np.arange(1, N_BINS) / N_BINS) if of.dtype.kind in "if" else of
        edges[name] = np.unique(even)
    return edges


def logarithms(rows):
    """Return rows with the logarithms of what has a logarithmic scale."""
    names = [name for name in ("number", "price") if name in rows]
    return rows.assign(**{f"log {name}": np.log(rows[name]) for name in names})


@pytest.mark.parametrize(
    ("read", "n_runs"), [(read_ratings, N_RUNS), (read_purchases, max(N_RUNS // 3, 1))]
)
def test_people(read, n_runs):
    rows, schema = read(Path(os.environ["SKDPOT_PEOPLE"]))
    if "price" in rows:
        rows["price"] = rows["price"].clip(1.0)
    edges, off, errors = edges_of(rows), [], []
    for seed in range(n_runs):
        generator = DPSinkhornGenerator(EPSILON, DELTA, schema=schema, random_state=seed)
        made = generator.fit(rows, groups="user").sample(n_users=max(rows["user"].nunique(), 2000))
        of_both = [rows_of_people(logarithms(of)) for of in (made, rows)]
        off.append(100 * (of_both[0] / of_both[1] - 1))
        errors.append([
            np.mean([np.abs(a - b).sum() / 2 for a, b in zip(*both, strict=True)])
            for both in ([shares(of, edges, size) for of in (made, rows)] for size in (2, 3))
        ])  # fmt: skip
    off = np.array(off)
    print(f"\n{read.__name__}: pairs, triples", np.mean(errors, axis=0).round(3))
    for what, of in (("means", off.mean(axis=0)), ("rms", np.sqrt((off**2).mean(axis=0)))):
        print(what, "%", pd.DataFrame(of.round(), *of_both[0].axes).to_string())
    assert np.isfinite(errors).all()
