"""Counts of columns in all classes together, and models that have them."""

import numpy as np
import pandas as pd
import pytest

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative._sketch.column_totals import combined_counts, sums_of_pairs
from skdpot.generative._sketch.marginals import release_marginals, share_marginals
from skdpot.generative._sketch.plan import sketch_budget
from skdpot.generative._sketch.table_model import fit_table
from skdpot.generative._sketch.table_sketch import TableReleases, TableSpace
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


def test_combined_counts_are_those_of_least_squares(rng):
    counts, deviations = rng.normal(50, 9, 6), rng.uniform(1, 5, 6)
    parts, others = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 2, 2])
    sums = [(parts, rng.normal(150, 9, 2), 2.0), (others, rng.normal(100, 9, 3), 1.5)]
    rows, right = [np.eye(6) / deviations[:, None]], [counts / deviations]
    for part, of_parts, deviation in sums:
        rows.append((np.arange(len(of_parts))[:, None] == part) / deviation)
        right.append(of_parts / deviation)
    expected = np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)[0]
    np.testing.assert_allclose(combined_counts(counts, deviations, sums), expected)


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


@pytest.mark.parametrize(("target", "epsilon", "counted"), [("job", 1, True), ("job", 10, False),
                                                          ("region", 1, False)])  # fmt: skip
def test_totals_are_counted_where_classes_are_many_and_noise_is_large(target, epsilon, counted):
    space = TableSpace(read_schema(SCHEMA, target), "array", False)
    budget = sketch_budget(epsilon, 1e-6, "add_remove")
    assert ("totals" in TableReleases(space, budget, 1, 1, None).planned) == counted
