"""People with several rows: what is kept of them on two public tables, and many of them in parts.

Run with ``SKDPOT_PEOPLE=FOLDER python -m pytest tests/benchmarks -m benchmark -s -k test_people``.
Without the folder, only the time and the memory of a million people are measured, who have ten rows
each, in frames of 10,000 people, one after another and in two processes of Dask.
The folder has ``movielens100k.npz``, the arrays of MovieLens 100k with ages, genders and
occupations of users and the dates of films, and ``CDNOW_master.txt``, purchases of compact discs,
without the line of names.
A fit takes 2 s of the processor; ``SKDPOT_RUNS`` is the number of fits of the ratings.
"""

import os
import resource
from itertools import combinations
from pathlib import Path

import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from dask.distributed import Client, LocalCluster

from skdpot import DPSinkhornGenerator, PrivacyLedger

pytestmark = pytest.mark.benchmark

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


def correlation(one, other, weights):
    """Return the correlation of weighted pairs of numbers."""
    one, other = (of - np.average(of, weights=weights) for of in (one, other))
    variances = [np.average(of**2, weights=weights) for of in (one, other)]
    return np.average(one * other, weights=weights) / np.sqrt(np.prod(variances))


def rows_of_people(rows):
    """Return, of each number, the variance within people, and the correlation with the next row.

    The correlation is once of all people alike, as they are counted, and once of all pairs of rows.
    """
    same, found = rows["user"].to_numpy()[1:] == rows["user"].to_numpy()[:-1], {}
    n_pairs = rows.groupby("user")["user"].transform("size").to_numpy()[1:][same] - 1
    for name in rows.columns[1:]:
        of = rows[name]
        if of.dtype.kind in "if" and name != "age":
            numbers = of.to_numpy(np.float64)
            both = numbers[:-1][same], numbers[1:][same]
            found[name] = (
                rows.groupby("user")[name].var().mean(),
                correlation(*both, 1 / n_pairs),
                correlation(*both, np.ones(len(n_pairs))),
            )
    return pd.DataFrame(found, index=["variance", "correlation", "of all pairs"])


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


@pytest.mark.skipif("SKDPOT_PEOPLE" not in os.environ, reason="SKDPOT_PEOPLE names no folder")
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


N_PARTS, PEOPLE_OF_PART, ROWS_OF_PERSON = 100, 10_000, 10
VISITS = {
    "day": {"bounds": (0.0, 365.0), "order": True},
    "amount": {"bounds": (1.0, 10_000.0), "scale": "log"},
    "stars": range(1, 6),
    "shop": list("ABCDEFGH"),
    "age": {"bounds": (18, 90), "integer": True, "per": "user"},
    "region": {"categories": list("NESW"), "per": "user"},
}


def make_visits(part):
    """Return the visits of some people, which depend on their taste."""
    rng, n = np.random.default_rng(part), PEOPLE_OF_PART
    who = np.repeat(np.arange(n), ROWS_OF_PERSON)
    taste = rng.normal(size=n)[who]
    shop = np.clip(np.round(3.5 + taste + rng.normal(size=len(who))), 0, 7).astype(int)
    return pd.DataFrame(
        {
            "customer": part * n + who,
            "day": rng.uniform(0, 365, len(who)),
            "amount": np.exp(3 + 0.7 * taste + 0.5 * rng.normal(size=len(who))),
            "stars": np.clip(np.round(3 + taste + rng.normal(size=len(who))), 1, 5).astype(int),
            "shop": np.array(VISITS["shop"])[shop],
            "age": rng.integers(18, 91, n)[who],
            "region": rng.choice(VISITS["region"]["categories"], n)[who],
        }
    )


def fit_in_parts(X, n_parts):
    """Fit a generator to a table in so many parts, at one charge."""
    ledger = PrivacyLedger(1.0, 1e-6, neighbouring="add_remove")
    generator = DPSinkhornGenerator(1.0, 1e-6, schema=VISITS, ledger=ledger)
    generator.fit(X, groups="customer")
    assert ledger.spent()[0] <= 1.0
    assert abs(generator.n_records_ / (n_parts * PEOPLE_OF_PART) - 1) < 0.01


def used():
    """Return the seconds of the processor of this process, and its peak in MiB."""
    of = resource.getrusage(resource.RUSAGE_SELF)
    return round(of.ru_utime + of.ru_stime), of.ru_maxrss // 1024


def test_a_million_people_in_frames():
    for n_parts in (N_PARTS // 10, N_PARTS):
        before = used()[0]
        fit_in_parts(map(make_visits, range(n_parts)), n_parts)
        seconds, peak = used()
        print(f"\n{n_parts * PEOPLE_OF_PART:,} people: {seconds - before} s, peak {peak} MiB")


def test_a_million_people_on_dask(tmp_path):
    paths = [tmp_path / f"{part}.parquet" for part in range(N_PARTS)]
    for part, path in enumerate(paths):
        make_visits(part).to_parquet(path)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        before = used()[0]
        fit_in_parts(dask.dataframe.from_map(pd.read_parquet, paths), N_PARTS)
        # Workers do not find this module.
        of_workers = client.run(lambda: resource.getrusage(resource.RUSAGE_SELF)).values()
        for of in of_workers:
            print(f"\na worker: {of.ru_utime + of.ru_stime:.0f} s, peak {of.ru_maxrss // 1024} MiB")
        print(f"this process: {used()[0] - before} s")
