"""Parities of several columns: what a record changes, what is found, and what tables have of it."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative import _counts as parities
from skdpot.generative import _table as marginals
from skdpot.generative._counts import column_halves, parity_sums, scanned_subsets, standing_out
from skdpot.generative._mixture import JointTable, fit_mixture
from skdpot.generative._table import release_marginals, share_marginals
from skdpot.privacy.random import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_schema
from tests.oracles.sketch import moved_by, transcript_of

RARE = 1e-4
COLUMNS = 6
SCHEMA = {f"x{j}": [0, 1] for j in range(COLUMNS)} | {"y": [0, 1, 2]}


def some_units(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, 2, (n, COLUMNS)), rng.integers(0, 3, n)])


def hidden(n, columns, flipped=0.05, seed=0):
    """Return a table of coins, of which some have a parity that tells the class."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f"x{j}": rng.integers(0, 2, n) for j in range(COLUMNS)})
    parity = table[[f"x{j}" for j in columns]].sum(axis=1) % 2
    return table.assign(y=np.where(rng.random(n) < flipped, 1 - parity, parity))


def released_with(releases, units, schema):
    return release_marginals(units, schema, releases, parities=True)


def make_releases(source, noise=4.0):
    shares = share_marginals(read_schema(SCHEMA, "y"), parities=True)
    return SketchReleases(noise, shares, "add_remove", source)


def test_sums_are_those_of_products_of_signs(monkeypatch):
    rng = np.random.default_rng(0)
    upper, classes = rng.integers(0, 2, (7, 300)).astype(bool), rng.integers(0, 3, 300)
    subsets = scanned_subsets(7, 5)
    monkeypatch.setattr(parities, "_RECORDS_OF_BLOCK", 71)
    monkeypatch.setattr(parities, "_TESTS_OF_BLOCK", 4)
    found = parity_sums(upper, classes, 3, subsets)
    signs = 1 - 2 * upper.astype(int)
    expected = [
        [signs[list(subset)].prod(axis=0)[classes == c].sum() for c in range(3)]
        for size in (3, 4, 5)
        for subset in combinations(range(7), size)
    ]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int64


def test_halves_have_about_half_of_the_records():
    schema = read_schema({"a": range(5), "b": ["p", "q", "r", "s"], "c": ["only"]})
    masses = [np.array([5.0, 20, 30, 25, 20]), np.array([10.0, 40, 0, 45]), np.array([100.0])]
    halves = column_halves(masses, schema)
    assert halves[0].tolist() == [False, False, False, True, True]
    assert halves[1].tolist() in ([True, True, True, False], [True, True, False, False])
    assert halves[2].tolist() == [False]


def move_of_a_record():
    """Return by how much a record more moves the release of parities, of its sensitivity."""
    schema, units = read_schema(SCHEMA, "y"), some_units(300)

    def release(rows):
        return lambda: released_with(make_releases(make_source(0)), rows, schema)

    first = transcript_of(release(units))
    more = transcript_of(release(np.vstack([units, [0, 1, 0, 1, 1, 0, 2]])), given=first)
    return moved_by(more, first)["parities"]


def test_a_record_moves_parities_by_their_sensitivity_and_a_bug_is_caught(monkeypatch):
    assert move_of_a_record() == pytest.approx(1)
    honest = marginals.parity_sums
    # Parities of a record that are not of its class alone.
    planted = [
        lambda *args: honest(*args) + honest(*args)[:, ::-1],
        lambda upper, classes, n_classes, subsets: honest(
            np.hstack([upper, upper[:, -1:]]), np.append(classes, 0), n_classes, subsets
        ),
    ]
    for bug in planted:
        monkeypatch.setattr(marginals, "parity_sums", bug)
        assert move_of_a_record() > 1.4


def test_the_noise_of_parities_is_as_declared():
    schema, units = read_schema(SCHEMA, "y"), some_units(3000)
    subsets = scanned_subsets(COLUMNS, 5)
    exact = parity_sums(units[:, :-1].T.astype(bool), units[:, -1], 3, subsets)
    errors = []
    for seed in range(5):
        found = released_with(make_releases(make_source(seed)), units, schema)
        upper = found["halves"][found["groups"]]
        # Counts with noise decide which side of a coin is which half.
        first = 1 - 2 * upper[::2]
        signs = np.concatenate([np.prod(first[of_size], axis=1) for of_size in subsets])
        assert found["largest_parity"][0] == 5 and (upper[::2] != upper[1::2]).all()
        noise = found["parities"] - signs[:, None] * exact
        errors.append(noise / found["parity_deviation"][0])
    assert kstest(np.ravel(errors), "norm").pvalue > RARE
    share = share_marginals(schema, parities=True)
    part = share["parities"] / sum(share.values())
    assert found["parity_deviation"][0] == pytest.approx(4 * np.sqrt(41 / part))


def test_noise_alone_stands_out_rarely():
    rng = np.random.default_rng(0)
    subsets = scanned_subsets(12, 4)
    nothing, two = np.zeros((sum(map(len, subsets)), 2)), np.ones(2)
    shown = [
        standing_out(0.2 * rng.normal(size=nothing.shape), nothing, two / 5, two, subsets)
        for _ in range(100)
    ]
    assert sum(map(bool, shown)) < 10


def test_a_mixture_is_split_where_parities_say_so():
    half = np.array([0.5, 0.5])
    contrast = np.array([1, -1, -1, 1, -1, 1, 1, -1], dtype=np.float32)
    known = [half] * 3, np.full(12, 0.25), (0.002, 0.002)
    pairs = fit_mixture(*known, 10, 100, np.random.RandomState(0))
    parity = JointTable((0, 1, 2), [np.eye(2, dtype=np.float32)] * 3, -0.7, 0.002, contrast)
    weights, profiles = fit_mixture(
        *known, 0, 100, np.random.RandomState(0), start=pairs, joints=[parity]
    )
    assert len(weights) == 14 and weights.sum() == pytest.approx(1)
    signs = profiles[:, ::2] - profiles[:, 1::2]
    assert weights @ signs.prod(axis=1) == pytest.approx(-0.7, abs=0.05)
    np.testing.assert_allclose(weights @ signs, 0, atol=0.05)
    np.testing.assert_allclose((weights[:, None] * signs).T @ signs - np.diag(
        np.diag((weights[:, None] * signs).T @ signs)), 0, atol=0.05)  # fmt: skip


@pytest.mark.parametrize("columns", [(0, 2, 5), (0, 1, 3, 4)])
@pytest.mark.parametrize("target", ["y", None])
def test_sampled_tables_have_the_parity(columns, target):
    """Of the class, or of one column more."""
    schema = {f"x{j}": [0, 1] for j in range(COLUMNS)} | {"y": [0, 1]}
    generator = DPSinkhornGenerator(
        1.0, 1e-6, schema=schema, target=target, random_state=0,
        model=TableSketch(n_components=40, n_iter=150),
    )  # fmt: skip
    sampled = generator.fit(hidden(20_000, columns)).sample(4000).astype(int)
    odd = sampled[[f"x{j}" for j in columns]].sum(axis=1) % 2
    assert (odd == sampled["y"]).mean() > 0.88
    # Also under conditions.
    given = {f"x{j}": 1 for j in columns}
    rows = generator.sample(400, given=given).astype(int)
    assert (rows["y"] == len(columns) % 2).mean() > 0.85


def test_components_of_a_parity_are_as_frequent_as_chance_makes_them(tmp_path):
    """Trees find no parity in a table in which chance favours nothing."""
    schema = {f"x{j}": [0, 1] for j in range(COLUMNS)} | {"y": [0, 1]}
    fitted = DPSinkhornGenerator(
        10.0, 1e-6, schema=schema, target="y", random_state=0,
        model=TableSketch(n_components=40, n_iter=150),
    ).fit(hidden(20_000, (0, 2, 5)))  # fmt: skip
    fitted.save(tmp_path / "table.npz")
    for generator in (fitted, DPSinkhornGenerator.load(tmp_path / "table.npz")):
        released = generator._fitted
        tables = [released.sample(1000, None, None, np.random.RandomState(i)) for i in range(20)]
        assert 0.5 < np.std([rows["y"].sum() for rows in tables]) / np.sqrt(250) < 1.6


def test_a_column_of_one_value_leaves_a_model_that_can_be_drawn_from():
    X = hidden(3000, (0, 1, 2)).assign(x3=0)
    generator = DPSinkhornGenerator(
        3.0, schema=SCHEMA, model=TableSketch(8, n_iter=5), random_state=0
    ).fit(X)
    statistics, model = generator._fitted.statistics, generator._fitted.model
    assert "parities" in statistics and np.isfinite(model["cells"]).all()
    assert generator.sample(10).notna().all(axis=None)
