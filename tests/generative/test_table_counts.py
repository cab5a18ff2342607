"""Counts of columns in all classes, and parities: their noise, and models that have them."""

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, multivariate_normal
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative import _counts as parities
from skdpot.generative._counts import (
    _equations,
    _solution,
    column_halves,
    deviation_in_classes,
    likely_counts,
    parity_sums,
    scanned_subsets,
    smooth_counts,
    standing_out,
    sums_of_pairs,
    with_totals,
)
from skdpot.generative._mixture import fit_table
from skdpot.generative._records import TableSpace, sketch_budget
from skdpot.generative._table import TableReleases, release_marginals, share_marginals
from skdpot.privacy.noise import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_schema
from tests.oracles.sketch import moved_by, transcript_of

SCHEMA = {"wage": (0.0, 400.0), "city": [*"ABCDEF"], "region": ["N", "S"], "job": [*"abcd"]}


def make_table(n, seed=0):
    rng = np.random.default_rng(seed)
    job, city = rng.integers(0, 4, n), rng.choice(6, n, p=[0.4, 0.3, 0.15, 0.1, 0.04, 0.01])
    return pd.DataFrame(
        {
            "wage": np.clip(60 + 5 * job + 8 * rng.normal(size=n), 0, 400),
            "city": np.array(list("ABCDEF"))[city],
            "region": np.where(city < 2, "N", "S"),
            "job": np.array(list("abcd"))[job],
        }
    )


def release(seed, *, totals, n=4_000):
    """Return what is released with noise, and the exact counts of the same cells."""
    schema = read_schema(SCHEMA, "job")
    table = make_table(n)
    codes = np.column_stack([c.codes(table[c.name].to_numpy()) for c in schema.columns])
    shares = share_marginals(schema, totals=totals)
    releases = SketchReleases(4.0, shares, "add_remove", make_source(seed))
    released = release_marginals(codes, schema, releases, totals=totals)
    exact, ends = [], np.cumsum(released["n_cells"])
    for j, (end, size) in enumerate(zip(ends, released["n_cells"], strict=True)):
        cell = np.searchsorted(released["stops"][end - size : end], codes[:, j], side="right")
        exact.append(np.bincount(cell, minlength=size))
    return schema, released, np.concatenate(exact)


def combined_counts(counts, deviations, sums):
    return _solution(*_equations(counts, deviations, sums))


def test_equations_are_those_of_least_squares(rng):
    counts, deviations = rng.normal(50, 9, 6), rng.uniform(1, 5, 6)
    parts, others = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 2, 2])
    sums = [(parts, rng.normal(150, 9, 2), 2.0), (others, rng.normal(100, 9, 3), 1.5)]
    rows, right = [np.eye(6) / deviations[:, None]], [counts / deviations]
    for part, of_parts, deviation in sums:
        rows.append((np.arange(len(of_parts))[:, None] == part) / deviation)
        right.append(of_parts / deviation)
    expected = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)[0]
    np.testing.assert_allclose(combined_counts(counts, deviations, sums), expected)


def test_counts_of_classes_are_those_of_least_squares_with_their_totals(rng):
    counts, totals = rng.normal(50, 9, (5, 3)), rng.normal(150, 9, 5)
    possible = np.array([[1, 1, 1], [1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]], dtype=bool)
    found = with_totals(counts * possible, totals, 4.0, 2.0, possible)
    for count, total, of, made in zip(counts, totals, possible, found, strict=True):
        rows = np.vstack([np.eye(3)[:, of] / 4, of[of][None] / 2])
        right = np.append(count * of / 4, total / 2)
        assert (made[~of] == 0).all()
        np.testing.assert_allclose(made[of], np.linalg.lstsq(rows, right, rcond=None)[0])
    noise = rng.normal(0, 4, (40_000, 3)), rng.normal(0, 2, 40_000)
    seen = np.std(with_totals(*noise, 4.0, 2.0), axis=0)
    # Five standard errors.
    np.testing.assert_allclose(seen, deviation_in_classes(4.0, 2.0, 3), rtol=5 / np.sqrt(80_000))


def test_likely_counts_of_clear_categories_are_nearly_those_of_least_squares(rng):
    exact, group = np.array([400.0, 150, 300, 0, 500]), np.array([0, 0, 1, 1, 2])
    counts, deviations = exact + rng.normal(0, 10, 5), np.full(5, 10.0)
    sums = [(group, np.bincount(group, exact) + rng.normal(0, 3, 3), 3.0)]
    found = likely_counts(counts, deviations, sums, None, exact == 0)
    np.testing.assert_allclose(found, combined_counts(counts, deviations, sums), atol=12)
    assert found[3] == 0 and (found >= 0).all()


@pytest.mark.parametrize("widths", [None, np.ones(101)])
def test_likely_counts_are_nearer_than_without_a_guess_where_cells_are_hidden(rng, widths):
    """A hundred cells of three records each, in noise of twenty, beside one that is clear."""
    exact, group = np.append(1000.0, np.full(100, 3.0)), np.append(0, np.repeat([1, 2], 50))
    errors = []
    for _ in range(30):
        counts = exact + rng.normal(0, 20, 101)
        sums = [(group, np.bincount(group, exact) + rng.normal(0, 40, 3), 40.0)]
        found = likely_counts(counts, np.full(101, 20.0), sums, widths, np.zeros(101, dtype=bool))
        plain = np.maximum(combined_counts(counts, np.full(101, 20.0), sums), 0)
        of_all = [np.abs(of.sum() - exact.sum()) for of in (found, plain)]
        errors.append([*of_all, *(np.abs(of - exact).sum() for of in (found, plain))])
    of_sum, plain_sum, of_cells, plain_cells = np.mean(errors, axis=0)
    assert of_sum < 0.25 * plain_sum and of_cells < 0.5 * plain_cells


@pytest.mark.parametrize("shape", ["bell", "slope", "spikes", "a few"])
def test_smooth_counts_are_nearer_where_neighbours_are_similar_and_else_stay(rng, shape):
    places, widths = np.arange(40) / 40, np.repeat([1.0, 3.0], 20)
    exact = {
        "bell": 900 * np.exp(-(((places - 0.4) / 0.15) ** 2)) * widths,
        "slope": (100 + 400 * places) * widths,
        "spikes": rng.permutation(np.geomspace(200, 20_000, 40)),
        "a few": np.where(np.arange(40) % 9, 0.0, 3_000.0),
    }[shape]
    mixing = np.eye(40) + 0.3 * np.eye(40, k=1)
    covariances, moved, errors = 400 * mixing @ mixing.T, [], []
    for _ in range(20):
        noise = 20 * mixing @ rng.normal(size=40)
        found = smooth_counts(exact + noise, covariances, widths)
        errors.append([np.abs(found - exact).sum(), np.abs(noise).sum()])
        moved.append(np.abs(found - exact - noise).mean())
    smoothed, plain = np.mean(errors, axis=0)
    assert smoothed < (0.8 if shape in ("bell", "slope") else 1.03) * plain
    assert shape != "spikes" or np.mean(moved) < 4


def test_smooth_counts_are_the_mean_of_a_gaussian_posterior(rng):
    """With latent trend, second differences and deviations, drawn apart and conditioned on all."""
    covariances, widths = np.diag(rng.uniform(50, 150, 6)), rng.uniform(1, 3, 6)
    counts = widths * (100 + 10 * rng.normal(size=6))
    levels, widths_of_mean = np.full(6, np.sqrt(np.mean(counts**2))), widths / widths.mean()
    for _ in range(3):
        fits, evidence = [], []
        for smooth, apart in product((0.03, 0.1, 0.3, 1.0), (0.0, 0.1, 0.3, 0.8)):
            paths = np.zeros((6, 12))
            for i in range(6):
                paths[i, :2] = 10 * np.sqrt(np.mean(counts**2)) * np.array([i / 6, 1])
                # A second difference at one place makes all that follow rise.
                paths[i, 2:6] = [smooth * levels[k] * max(i - k + 1, 0) for k in range(2, 6)]
            paths[:, :6] *= widths_of_mean[:, None]
            paths[:, 6:] = np.diag(apart * levels)
            precision = np.eye(12) + paths.T @ np.linalg.solve(covariances, paths)
            latent = np.linalg.solve(precision, paths.T @ np.linalg.solve(covariances, counts))
            fits.append(paths @ latent)
            law = multivariate_normal(np.zeros(6), covariances + paths @ paths.T)
            evidence.append(law.logpdf(counts))
        weights = np.exp(np.array(evidence) - max(evidence))
        fitted = weights @ np.array(fits) / weights.sum()
        levels = np.maximum(fitted, np.sqrt(np.diag(covariances).mean()) / 4)
    np.testing.assert_allclose(smooth_counts(counts, covariances, widths), fitted, rtol=1e-3)


def test_sums_of_pairs_have_the_noise_that_they_say(rng):
    sizes, n_classes, deviation = [4, 2, 3], 2, 3.0
    shapes = [(4, 2, 2), (4, 3, 2), (2, 3, 2)]
    found = []
    for _ in range(3_000):
        pairs = [rng.normal(0, deviation, np.prod(shape)) for shape in shapes]
        found.append(list(sums_of_pairs(pairs, sizes, n_classes, deviation)))
    for j in range(3):
        told = found[0][j][1]
        seen = np.std([of_run[j][0] for of_run in found], axis=0)
        # Five standard errors.
        np.testing.assert_allclose(seen, told, rtol=5 / np.sqrt(2 * 3_000))


@pytest.mark.parametrize("totals", [False, True])
def test_totals_are_nearer_to_the_counts_than_sums_over_classes(totals):
    errors = []
    for seed in range(5):
        _, released, exact = release(seed, totals=totals)
        apart = [of - exact for of in (released["totals"], released["counts"].sum(axis=1))]
        errors.append([np.sqrt(np.mean(of**2)) for of in apart])
    own, sums = np.mean(errors, axis=0)
    assert own < (0.7 if totals else 0.6) * sums


def test_a_model_has_the_distributions_of_columns():
    schema, released, _ = release(0, totals=True)
    model = fit_table(released, schema, 24, 60)
    of_cells = model["weights"] @ model["cells"]
    for column in np.split(np.arange(len(of_cells)), np.cumsum(released["n_cells"])[:-1]):
        totals, group = released["totals"][column], released["groups"][column]
        of_groups = np.maximum(np.bincount(group, totals), 0)
        made = np.bincount(group, of_cells[column])
        np.testing.assert_allclose(made, of_groups / of_groups.sum(), atol=0.01)


def test_wide_bounds_do_not_change_means_and_spreads():
    table = make_table(6_000)
    schema = {**SCHEMA, "wage": (-50_000.0, 50_000.0)}
    generator = DPSinkhornGenerator(
        1.0, 1e-6, schema=schema, target="region", model=TableSketch(24, n_iter=60), random_state=0
    ).fit(table)
    made = generator.sample(6_000)["wage"]
    # One record in a thousand that noise puts into the empty part has a spread of 900.
    assert made.std() < 60
    assert made.mean() == pytest.approx(table["wage"].mean(), abs=15)


@pytest.mark.parametrize(
    ("target", "epsilon", "counted"),
    [("job", 1, True), ("job", 10, False), ("region", 1, True), (None, 1, False)],
)
def test_totals_are_counted_where_there_are_classes_and_noise_is_large(target, epsilon, counted):
    space = TableSpace(read_schema(SCHEMA, target), "array", False)
    budget = sketch_budget(epsilon, 1e-6, "add_remove")
    assert ("totals" in TableReleases(space, budget, 1, 1, None).planned) == counted


@pytest.mark.parametrize(("n", "fewest", "most"), [(400, 12, 30), (20_000, 60, 300)])
def test_cells_of_few_records_are_wider(n, fewest, most):
    schema = read_schema({f"x{j}": (0.0, 1.0) for j in range(8)})
    codes = np.random.default_rng(0).integers(0, schema.columns[0].n_codes, (n, 8))
    releases = SketchReleases(4.0, share_marginals(schema), "add_remove", make_source(0))
    released = release_marginals(codes, schema, releases)
    assert (released["n_cells"] >= fewest).all() and (released["n_cells"] <= most).all()
    ends = np.cumsum(released["n_cells"])
    starts, stops = (np.split(released[of], ends[:-1]) for of in ("starts", "stops"))
    for start, stop in zip(starts, stops, strict=True):
        # Either bound has its own.
        assert start[0] == 0 and stop[0] == 1 and stop[-1] - start[-1] == 1
        np.testing.assert_array_equal(start[1:], stop[:-1])


RARE = 1e-4
COLUMNS = 6
COINS = {f"x{j}": [0, 1] for j in range(COLUMNS)} | {"y": [0, 1, 2]}


def some_codes(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, 2, (n, COLUMNS)), rng.integers(0, 3, n)])


def hidden(n, columns, flipped=0.05, seed=0):
    """Return a table of coins, of which some have a parity that tells the class."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f"x{j}": rng.integers(0, 2, n) for j in range(COLUMNS)})
    parity = table[[f"x{j}" for j in columns]].sum(axis=1) % 2
    return table.assign(y=np.where(rng.random(n) < flipped, 1 - parity, parity))


def released_with(releases, codes, schema):
    return release_marginals(codes, schema, releases, parities=True)


def make_releases(source, noise=4.0):
    shares = share_marginals(read_schema(COINS, "y"), parities=True)
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


def test_parities_of_classes_differ_only_if_noise_does_not_explain_it():
    subsets, noise = [np.array([[0, 1, 2], [3, 4, 5]])], np.array([0.02, 0.04])
    seen = np.array([[0.5, 0.6], [0.9, -0.9]])
    (_, apart), (_, alike) = standing_out(seen, np.zeros((2, 2)), noise, np.ones(2), subsets)
    np.testing.assert_allclose(apart, [0.9, -0.9], atol=0.03)
    # Four fifths of the weight are those of the class with half of the noise.
    np.testing.assert_allclose(alike, [0.52, 0.52])


def move_of_a_record():
    """Return by how much a record more moves the release of parities, of its sensitivity."""
    schema, codes = read_schema(COINS, "y"), some_codes(300)

    def release(rows):
        return lambda: released_with(make_releases(make_source(0)), rows, schema)

    first = transcript_of(release(codes))
    more = transcript_of(release(np.vstack([codes, [0, 1, 0, 1, 1, 0, 2]])), given=first)
    return moved_by(more, first)["parities"]


def test_a_record_moves_parities_by_their_sensitivity_and_a_bug_is_caught(monkeypatch):
    assert move_of_a_record() == pytest.approx(1)
    honest = parities.parity_sums
    # Parities of a record that are not of its class alone.
    planted = [
        lambda *args: honest(*args) + honest(*args)[:, ::-1],
        lambda upper, classes, n_classes, subsets: honest(
            np.hstack([upper, upper[:, -1:]]), np.append(classes, 0), n_classes, subsets
        ),
    ]
    for bug in planted:
        monkeypatch.setattr(parities, "parity_sums", bug)
        assert move_of_a_record() > 1.4


def test_the_noise_of_parities_is_as_declared():
    schema, codes = read_schema(COINS, "y"), some_codes(3000)
    subsets = scanned_subsets(COLUMNS, 6)
    exact = parity_sums(codes[:, :-1].T.astype(bool), codes[:, -1], 3, subsets)
    errors = []
    for seed in range(5):
        found = released_with(make_releases(make_source(seed)), codes, schema)
        upper = found["halves"]
        # Counts with noise decide which side of a coin is which half.
        first = 1 - 2 * upper[::2]
        signs = np.concatenate([np.prod(first[of_size], axis=1) for of_size in subsets])
        assert found["max_parity"][0] == 6 and (upper[::2] != upper[1::2]).all()
        noise = found["parities"] - signs[:, None] * exact
        errors.append(noise / found["parity_deviation"][0])
    assert kstest(np.ravel(errors), "norm").pvalue > RARE
    share = share_marginals(schema, parities=True)
    part = share["parities"] / sum(share.values())
    assert found["parity_deviation"][0] == pytest.approx(4 * np.sqrt(42 / part))


def test_noise_alone_stands_out_rarely():
    rng = np.random.default_rng(0)
    subsets = scanned_subsets(12, 4)
    nothing, two = np.zeros((sum(map(len, subsets)), 2)), np.ones(2)
    shown = [
        standing_out(0.2 * rng.normal(size=nothing.shape), nothing, two / 5, two, subsets)
        for _ in range(100)
    ]
    assert sum(map(bool, shown)) < 10


@pytest.mark.parametrize("columns", [(0, 2, 5), (0, 1, 3, 4), (0, 1, 2, 3, 4, 5)])
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


@pytest.mark.experiment
@pytest.mark.parametrize("target", ["classes", "numbers"])
def test_a_target_of_noise_is_not_found_in_samples(target):
    """Classes of the same distribution have noise of their own, which would tell them apart."""
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(3000, 1))
    table = pd.DataFrame(
        {f"x{j}": column for j, column in enumerate((factor + rng.normal(size=(3000, 10)) > 0).T)}
    ).assign(y=rng.integers(0, 2, 3000) if target == "classes" else rng.uniform(size=3000))
    schema = {name: [False, True] for name in table.columns[:-1]}
    schema["y"] = [0, 1] if target == "classes" else (0.0, 1.0)
    generator = DPSinkhornGenerator(1.0, 1e-6, schema=schema, target="y", random_state=0)
    sampled = generator.fit(table).sample(4000).astype(float)
    features, target = sampled.drop(columns="y"), sampled["y"] > 0.5
    trees = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    trees.fit(features[:2000], target[:2000])
    scores = trees.predict_proba(features[2000:])[:, 1]
    # .56 and .59 where classes and bands were fitted to their own noise.
    assert roc_auc_score(target[2000:], scores) < 0.535


@pytest.mark.experiment
def test_columns_of_a_parity_are_as_frequent_in_a_class_as_chance_makes_them(tmp_path):
    """Trees find no parity in a table in which chance favours nothing; totals are even."""
    schema = {f"x{j}": [0, 1] for j in range(COLUMNS)} | {"y": [0, 1]}
    fitted = DPSinkhornGenerator(
        10.0, 1e-6, schema=schema, target="y", random_state=0,
        model=TableSketch(n_components=40, n_iter=150),
    ).fit(hidden(20_000, (0, 2, 5)))  # fmt: skip
    fitted.save(tmp_path / "table.npz")
    for generator in (fitted, DPSinkhornGenerator.load(tmp_path / "table.npz")):
        released = generator._fitted
        tables = [released.sample(1000, None, None, np.random.RandomState(i)) for i in range(20)]
        # With both totals fixed, the number in both is hypergeometric.
        in_both = [(rows["x0"] * rows["y"]).sum() for rows in tables]
        assert 0.5 < np.std(in_both) / np.sqrt(1000 / 16) < 1.6
        assert max(np.std([rows[name].sum() for rows in tables]) for name in ("x0", "y")) < 2


def test_a_column_of_one_value_leaves_a_model_that_can_be_drawn_from():
    X = hidden(3000, (0, 1, 2)).assign(x3=0)
    generator = DPSinkhornGenerator(
        3.0, schema=COINS, model=TableSketch(8, n_iter=5), random_state=0
    ).fit(X)
    assert np.isfinite(generator._fitted.model["cells"]).all()
    assert generator.sample(10).notna().all(axis=None)


def test_noise_makes_no_missing_values():
    """The positive noise of thirty columns once doubled the number of missing values."""
    schema = read_schema({str(j): {"levels": [0, 1], "missing": True} for j in range(30)})
    codes = np.random.default_rng(0).integers(0, 2, (2000, 30))
    codes[:10], n_missing = 2, []
    for seed in range(10):
        releases = SketchReleases(5.0, share_marginals(schema), "add_remove", make_source(seed))
        n_missing.append(release_marginals(codes, schema, releases)["totals"][2::3].sum())
    assert 100 < np.mean(n_missing) < 400
