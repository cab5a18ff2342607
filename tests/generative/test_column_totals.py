"""Counts of columns in all classes together, and models that have them."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative._budget import sketch_budget
from skdpot.generative._counts import (
    _equations,
    _nonnegative,
    deviation_in_classes,
    likely_counts,
    sums_of_pairs,
    with_totals,
)
from skdpot.generative._mixture import fit_table
from skdpot.generative._table import TableReleases, release_marginals, share_marginals
from skdpot.generative._table_space import TableSpace
from skdpot.privacy.random import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_schema

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
    units = np.column_stack(
        [column.units(table[column.name].to_numpy()) for column in schema.columns]
    )
    shares = share_marginals(schema, totals=totals)
    releases = SketchReleases(4.0, shares, "add_remove", make_source(seed))
    released = release_marginals(units, schema, releases, totals=totals)
    exact, ends = [], np.cumsum(released["n_cells"])
    for j, (end, size) in enumerate(zip(ends, released["n_cells"], strict=True)):
        cell = np.searchsorted(released["stops"][end - size : end], units[:, j], side="right")
        exact.append(np.bincount(cell, minlength=size))
    return schema, released, np.concatenate(exact)


def combined_counts(counts, deviations, sums):
    return np.linalg.solve(*_equations(counts, deviations, sums))


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


def test_likely_counts_of_cells_that_are_clear_are_those_of_least_squares(rng):
    exact, group = np.array([400.0, 150, 300, 0, 500]), np.array([0, 0, 1, 1, 2])
    counts, deviations = exact + rng.normal(0, 10, 5), np.full(5, 10.0)
    sums = [(group, np.bincount(group, exact) + rng.normal(0, 3, 3), 3.0)]
    empty = exact == 0
    found = likely_counts(counts, deviations, sums, group, empty)
    sums = [(group[~empty], *sums[0][1:])]
    expected = combined_counts(counts[~empty], deviations[~empty], sums)
    np.testing.assert_allclose(found[~empty], expected)
    assert found[empty] == 0


@pytest.mark.parametrize("n_cells", [1, 3, 40])
def test_counts_none_of_which_is_negative_are_the_nearest(rng, n_cells):
    for _ in range(20):
        counts, deviations = rng.normal(3, 9, n_cells), rng.uniform(1, 5, n_cells)
        possible = rng.random(n_cells) < 0.9
        parts = np.sort(rng.integers(0, 5, n_cells))
        of_sums = rng.normal(10, 9, 5), rng.uniform(1, 9)
        equations = _equations(counts, deviations, [(parts, *of_sums)])
        rows = np.vstack([
            np.diag(1 / deviations), (np.arange(5)[:, None] == parts) / of_sums[1]
        ])[:, possible]  # fmt: skip
        right = np.concatenate([counts / deviations, of_sums[0] / of_sums[1]])
        expected = np.zeros(n_cells)
        if possible.any():
            expected[possible] = nnls(rows, right)[0]
        np.testing.assert_allclose(_nonnegative(*equations, possible), expected, atol=1e-8)


def test_likely_counts_are_nearer_than_without_a_guess_where_cells_are_hidden(rng):
    """A hundred cells of three records each, in noise of twenty, beside one that is clear."""
    exact, group = np.append(1000.0, np.full(100, 3.0)), np.append(0, np.repeat([1, 2], 50))
    errors = []
    for _ in range(30):
        counts = exact + rng.normal(0, 20, 101)
        sums = [(group, np.bincount(group, exact) + rng.normal(0, 40, 3), 40.0)]
        found = likely_counts(counts, np.full(101, 20.0), sums, group, np.zeros(101, dtype=bool))
        plain = np.maximum(combined_counts(counts, np.full(101, 20.0), sums), 0)
        of_all = [np.abs(of.sum() - exact.sum()) for of in (found, plain)]
        errors.append([*of_all, *(np.abs(of - exact).sum() for of in (found, plain))])
    of_sum, plain_sum, of_cells, plain_cells = np.mean(errors, axis=0)
    assert of_sum < 0.25 * plain_sum and of_cells < 0.5 * plain_cells


def test_sums_of_pairs_have_the_noise_that_they_say(rng):
    sizes, n_classes, deviations = [4, 2, 3], 2, [3.0, 1.0, 2.0]
    shapes = [(4, 2, 2), (4, 3, 2), (2, 3, 2)]
    found = []
    for _ in range(3_000):
        pairs = [rng.normal(0, d, np.prod(s)) for d, s in zip(deviations, shapes, strict=True)]
        found.append(list(sums_of_pairs(pairs, sizes, n_classes, deviations)))
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
    assert own < (0.6 if totals else 0.95) * sums


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
    units = np.random.default_rng(0).integers(0, schema.columns[0].n_units, (n, 8))
    releases = SketchReleases(4.0, share_marginals(schema), "add_remove", make_source(0))
    released = release_marginals(units, schema, releases)
    assert (released["n_cells"] >= fewest).all() and (released["n_cells"] <= most).all()
    ends = np.cumsum(released["n_cells"])
    starts, stops = (np.split(released[of], ends[:-1]) for of in ("starts", "stops"))
    for start, stop in zip(starts, stops, strict=True):
        # Either bound has its own.
        assert start[0] == 0 and stop[0] == 1 and stop[-1] - start[-1] == 1
        np.testing.assert_array_equal(start[1:], stop[:-1])
