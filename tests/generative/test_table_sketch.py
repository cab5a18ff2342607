"""The sketch of a table: what a record changes, and what is sampled of it."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch
from skdpot.generative import _draws as draws
from skdpot.generative import _mixture as mixture
from skdpot.generative._counts import cut_cells, empty_tails
from skdpot.generative._draws import sample_codes
from skdpot.generative._mixture import (
    clear_of_noise,
    fit_mixture,
    fit_table,
    pool_classes,
    waves_of,
)
from skdpot.generative._table import release_marginals, share_marginals
from skdpot.privacy.noise import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_codes, read_schema, write_table
from tests.oracles.sketch import moved_by, transcript_of
from tests.quick import first_quick

SCHEMA = {
    "gain": {"bounds": (0, 99_999), "integer": True, "missing": True},
    "wage": (0.0, 50.0),
    "age": range(17, 91),
    "grade": {"levels": ["low", "mid", "high"]},
    "job": {"categories": ["clerk", "cook", "judge"], "missing": True},
    "rich": ["no", "yes"],
}


def make_codes(schema, n, seed=0):
    """Return codes of records with a dependence, and of corners of the schema."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(size=(n, 1)) ** 2 + 0.1 * rng.uniform(size=(n, len(schema.columns)))
    sizes = [column.n_codes for column in schema.columns]
    return np.minimum((level / 1.1 * sizes).astype(np.int64), np.array(sizes) - 1)


class NoNoise:
    """Releases without noise."""

    def __init__(self, deviation=0.0):
        self.deviation = deviation

    def run(self, name, sums, sensitivity):
        assert sums.dtype == np.int64
        return sums.astype(np.float64)

    def standard_deviation(self, name, sensitivity):
        return self.deviation * sensitivity(relation="add_remove")


@pytest.mark.parametrize("target", first_quick(["job", "wage", None, "rich", "gain", "age"], 1))
def test_a_record_moves_each_release_by_its_sensitivity(target):
    schema = read_schema(SCHEMA, target)
    codes = make_codes(schema, 200)
    options = {"parities": True, "totals": True}
    shares = share_marginals(schema, **options)

    def release(rows):
        releases = SketchReleases(1.0, shares, "add_remove", make_source(0))
        return lambda: release_marginals(rows, schema, releases, **options)

    base = transcript_of(release(codes))
    assert set(base) == set(shares) and ("totals" in base) == (schema.n_classes > 1)
    sizes = [column.n_codes for column in schema.columns]
    extreme = [np.zeros(len(sizes), dtype=np.int64), np.array(sizes) - 1, codes[3], codes[77]]
    for record in extreme:
        changed = transcript_of(release(np.vstack([codes[:40], record, codes[40:]])), given=base)
        assert all(changed[name].sensitivity == base[name].sensitivity for name in base)
        moved = moved_by(changed, base)
        # A record that misses a value has no sign where both columns of a pair may miss one.
        lost = [
            of.missing and code == of.n_codes - 1
            for of, code in zip(schema.columns, record, strict=True)
        ]
        if any(lost):
            assert 0.9 < moved.pop("signs") <= 1
        assert list(moved.values()) == pytest.approx([1.0] * len(moved), rel=1e-12)


def test_releases_do_not_depend_on_the_order_of_records():
    schema = read_schema(SCHEMA, "rich")
    codes = make_codes(schema, 300)
    found = [release_marginals(rows, schema, NoNoise()) for rows in (codes, codes[::-1])]
    for name in found[0]:
        np.testing.assert_array_equal(found[0][name], found[1][name])


def test_marginals_without_noise_are_the_counts():
    schema = read_schema(SCHEMA, "rich")
    codes = make_codes(schema, 2_000)
    released = release_marginals(codes, schema, NoNoise())
    stops = np.cumsum(released["n_cells"])
    begin = 0
    grouped = []
    for j, size, stop in zip(schema.features, released["n_cells"], stops, strict=True):
        part = slice(stop - size, stop)
        starts, ends = released["starts"][part], released["stops"][part]
        assert starts[0] == 0 and ends[-1] == schema.columns[j].n_codes
        np.testing.assert_array_equal(starts[1:], ends[:-1])
        cell = np.searchsorted(ends, codes[:, j], side="right")
        for c in (0, 1):
            counts = np.bincount(cell[codes[:, -1] == c], minlength=size)
            np.testing.assert_array_equal(released["counts"][part, c], counts)
        groups = released["groups"][part]
        assert set(groups) == set(range(groups.max() + 1))
        grouped.append(groups[cell])
    for a in range(len(grouped)):
        for b in range(a + 1, len(grouped)):
            shape = (grouped[a].max() + 1, grouped[b].max() + 1, 2)
            table = released["pairs"][begin : begin + math.prod(shape)].reshape(shape)
            begin += table.size
            expected = np.zeros(shape)
            np.add.at(expected, (grouped[a], grouped[b], codes[:, -1]), 1)
            np.testing.assert_array_equal(table, expected)
    assert begin == len(released["pairs"])


@pytest.mark.experiment
@pytest.mark.parametrize("target", first_quick(["age", "gain", "wage"], 1))
def test_a_band_of_a_target_of_numbers_is_in_its_class_alone(target):
    schema = read_schema(SCHEMA, target)
    codes = make_codes(schema, 2_000)
    released = release_marginals(codes, schema, NoNoise())
    of_columns = np.split(released["counts"], np.cumsum(released["n_cells"])[:-1])
    # Nothing that is counted is taken for impossible.
    classes = np.bincount(schema.classes_of(codes[:, schema.target]), minlength=schema.n_classes)
    for counts in of_columns:
        np.testing.assert_array_equal(counts.sum(axis=0), classes)
    assert released["pairs"].sum() == math.comb(len(schema.columns), 2) * len(codes)
    source = make_source(0).for_user(0)
    noisy = release_marginals(
        codes, schema, SketchReleases(9.0, share_marginals(schema), "add_remove", source)
    )
    of_columns = np.split(noisy["counts"], np.cumsum(noisy["n_cells"])[:-1])
    assert ((of_columns[schema.target] != 0).sum(axis=1) <= 1).all()
    assert all((of_columns[j] != 0).mean() > 0.8 for j in schema.features if j != schema.target)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_heaps_are_of_round_numbers(scale):
    rng = np.random.default_rng(0)
    weights = rng.normal(75, 9, 20_000).clip(40, 110)
    heaped = rng.uniform(size=20_000) < 0.8
    weights = np.where(heaped, np.round(weights / 5) * 5, weights)[:, None]
    schema = {"weight": {"bounds": (30.0, 200.0), "scale": scale}}
    generator = DPSinkhornGenerator(3.0, 1e-5, schema=schema, random_state=0).fit(weights)
    made = generator.sample(20_000)[:, 0]
    for heap in (65.0, 75.0, 80.0):
        assert (made == heap).mean() == pytest.approx((weights == heap).mean(), abs=0.01)
    # Where nothing is heaped, nothing is rounded.
    smooth = weights[~heaped]
    made = generator.fit(smooth).sample(5_000)[:, 0]
    assert len(np.unique(made)) > 4_000


def test_cells_are_narrow_where_many_records_are():
    schema = read_schema({"gain": {"bounds": (0, 99_999), "integer": True}})
    codes = np.concatenate([np.zeros(9_000), np.arange(0, 100_000, 100)]).astype(np.int64)[:, None]
    released = release_marginals(codes, schema, NoNoise(1.0))
    assert (released["starts"][0], released["stops"][0]) == (0, 1)
    assert released["counts"][0, 0] == 9_001
    assert released["n_cells"][0] < 200


@pytest.mark.parametrize(("final_deviation", "n_cells"), [(0.0, 7), (7.0, 4), (20.0, 1)])
def test_cells_are_so_narrow_that_noise_stays_below_sampling_error(final_deviation, n_cells):
    counts = np.array([200.0, 19_800.0])
    edges = cut_cells(np.array([0, 1000, 2000]), counts, 1.0, final_deviation)
    assert np.searchsorted(edges, 1000) == n_cells


def test_a_mixture_has_the_pairs_it_is_fitted_to():
    rng = np.random.RandomState(3)
    sizes = (3, 2, 4)
    parts = [rng.dirichlet(np.ones(size), 3) for size in sizes]
    weights = np.array([0.5, 0.3, 0.2])
    singles = [weights @ part for part in parts]
    tables = [(parts[a] * weights[:, None]).T @ parts[b] for a, b in ((0, 1), (0, 2), (1, 2))]
    pairs = np.concatenate([table.ravel() for table in tables])
    found, profiles = fit_mixture(singles, pairs, (1e-4, 1e-4), 12, 400, np.random.RandomState(0))
    assert found.sum() == pytest.approx(1)
    columns = np.split(profiles, np.cumsum(sizes)[:-1], axis=1)
    for column in columns:
        np.testing.assert_allclose(column.sum(axis=1), 1)
    for (a, b), table in zip(((0, 1), (0, 2), (1, 2)), tables, strict=True):
        joint = (columns[a] * found[:, None]).T @ columns[b]
        np.testing.assert_allclose(joint, table, atol=0.01)


@pytest.fixture(scope="module", params=[None, "rich"])
def fitted(request):
    """Return a schema, codes and the model of them with little noise."""
    schema = read_schema(SCHEMA, request.param)
    codes = make_codes(schema, 4_000)
    releases = SketchReleases(1.0, share_marginals(schema), "add_remove", make_source(0))
    released = release_marginals(codes, schema, releases)
    return schema, codes, fit_table(released, schema, n_components=20, n_iter=100)


def test_samples_are_like_records_and_hold_what_is_declared(fitted):
    schema, codes, model = fitted
    made = sample_codes(model, schema, 4_000, np.random.RandomState(1))
    sizes = np.array([column.n_codes for column in schema.columns])
    assert made.dtype == np.int64 and (made >= 0).all() and (made < sizes).all()
    np.testing.assert_allclose((made / sizes).mean(axis=0), (codes / sizes).mean(axis=0), atol=0.05)
    assert (np.corrcoef(made.T) > 0.6).all()
    uniforms = np.random.RandomState(2).uniform(size=made.shape)
    frame = write_table("pandas", schema, schema.presented(schema.plain_values(made, uniforms)))
    np.testing.assert_array_equal(read_codes(frame, schema), made)
    assert frame["wage"].between(0, 50).all() and frame["age"].between(17, 90).all()
    assert set(frame["grade"]) <= {"low", "mid", "high"}
    assert str(frame["gain"].dtype) == "Int64"


def tiny_model():
    """Return a schema and a model of three columns, the last of which is the target."""
    schema = read_schema({"a": range(0, 6), "b": ["x", "y"], "c": ["no", "yes"]}, "c")
    a = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.2, 0.6, 0.2]])
    b = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    model = {
        "n_cells": np.array([3, 2]),
        "starts": np.array([0, 1, 3, 0, 1]),
        "stops": np.array([1, 3, 6, 1, 2]),
        "weights": np.array([0.5, 0.2, 0.3]),
        "classes": np.array([0, 0, 1]),
        "cells": np.hstack([a, b]),
    }
    # Cells have 1, 2 and 3 codes.
    of_codes = np.repeat(a, [1, 2, 3], axis=1) / [1, 2, 2, 3, 3, 3]
    joint = np.zeros((6, 2, 2))
    for k, c in enumerate(model["classes"]):
        joint[:, :, c] += model["weights"][k] * np.outer(of_codes[k], b[k])
    return schema, model, joint


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"b": "x"},
        {"c": "yes"},
        {"a": (2, 4)},
        {"a": [0, 2, 5]},
        {"a": 4, "b": "y"},
        {"a": (1, 3), "c": "no"},
        {"a": [1, 2], "b": ["x", "y"], "c": ["no", "yes"]},
    ],
)
def test_conditional_samples_are_those_of_bayes(given):
    schema, model, joint = tiny_model()
    expected = np.zeros_like(joint)
    allowed = [range(n) for n in joint.shape]
    for name, condition in given.items():
        intervals = schema.intervals(name, condition)
        allowed[schema.names.index(name)] = [u for lo, hi in intervals for u in range(lo, hi)]
    for cell in product(*allowed):
        expected[cell] = joint[cell]
    expected /= expected.sum()
    n = 20_000
    made = sample_codes(model, schema, n, np.random.RandomState(0), given)
    found = np.zeros_like(joint)
    np.add.at(found, tuple(made.T), 1 / n)
    assert (found[expected == 0] == 0).all()
    # Six deviations of a share.
    assert (np.abs(found - expected) <= 6 * np.sqrt(expected / n)).all()


def test_labels_and_conditions_together_are_those_of_bayes():
    schema, model, joint = tiny_model()
    labels = np.arange(20_000) % 2
    made = sample_codes(model, schema, 20_000, np.random.RandomState(0), {"b": "y"}, labels)
    np.testing.assert_array_equal(made[:, 2], labels)
    for c in (0, 1):
        expected = joint[:, 1, c] / joint[:, 1, c].sum()
        found = np.bincount(made[labels == c, 0], minlength=6) / 10_000
        assert (np.abs(found - expected) <= 6 * np.sqrt(expected / 10_000)).all()


@pytest.mark.parametrize(
    "schema, target",
    [
        (SCHEMA, "rich"),
        ({"job": ["cook"]}, None),
        ({"wage": (0.0, 1.0)}, None),
        ({"wage": (0.0, 1.0), "rich": ["no", "yes"]}, "rich"),
    ],
)
@pytest.mark.parametrize("n", [1, 50])
@pytest.mark.filterwarnings("error")
def test_noise_alone_makes_valid_tables(schema, target, n):
    schema = read_schema(schema, target)
    codes = make_codes(schema, n)
    shares = share_marginals(schema)
    releases = SketchReleases(100.0, shares, "replace_one", make_source(1))
    released = release_marginals(codes, schema, releases)
    model = fit_table(released, schema, n_components=4, n_iter=5)
    made = sample_codes(model, schema, 20, np.random.RandomState(0))
    assert (made >= 0).all()
    assert (made < [column.n_codes for column in schema.columns]).all()
    assert all(np.isfinite(array).all() for array in model.values())


def test_a_table_of_one_class_can_be_conditioned_on_what_it_never_had():
    schema = read_schema({"job": ["cook", "judge"], "age": range(0, 3)})
    frame = pd.DataFrame({"job": ["cook"] * 30, "age": [1] * 30})
    codes = read_codes(frame, schema)
    model = fit_table(release_marginals(codes, schema, NoNoise()), schema, 4, 10)
    made = sample_codes(model, schema, 10, np.random.RandomState(0), {"job": "judge"})
    assert (made[:, 0] == 1).all()


def test_a_tail_of_many_cells_with_few_records_each_is_kept():
    schema = read_schema({"loss": {"bounds": (-1e6, 1e6), "scale": "log"}})
    counts = np.zeros(100)
    counts[[45, 55]], counts[20:45], counts[55:80] = 500.0, 6.0, 6.0
    counts += np.random.default_rng(0).normal(0, 3, counts.shape)
    starts = [np.arange(100)]
    (tail,) = empty_tails([counts], starts, schema, [3.0])
    assert not tail[20:80].any()
    assert tail[:12].all()
    assert tail[88:].all()
    # Noise alone is no tail.
    (tail,) = empty_tails([counts[:10]], [starts[0][:10]], schema, [3.0])
    assert not tail.any()


def test_linear_scales_keep_what_is_near_to_their_records():
    schema = read_schema({"age": {"bounds": (0.0, 1e3), "missing": True}})
    counts, n_known = np.zeros(101), schema.columns[0].n_known
    counts[[40, 45, 50, 100]] = 500.0
    starts = np.append(np.arange(100) * (n_known // 100), n_known)
    (tail,) = empty_tails([counts], [starts], schema, [3.0])
    np.testing.assert_array_equal(np.flatnonzero(~tail), [*range(29, 62), 100])
    # Beside these, few records in each of many cells are more than noise, together.
    thin = counts + 5.0 * (np.arange(101) < 40)
    assert not empty_tails([thin], [starts], schema, [3.0])[0][:70].any()
    counts[40:51] = 0.0
    assert not empty_tails([counts], [starts], schema, [3.0])[0].any()


@pytest.mark.parametrize("n_others", [0, 540])
def test_no_tail_is_empty_whose_records_the_other_cells_lack(n_others):
    # Noise hides six records in each of many cells, and also all of them together.
    schema = read_schema({"age": range(91), "sex": ["F", "M"]})
    counts = [np.append(np.full(90, n_others / 90), 140.0), np.array([80.0, 60.0 + n_others])]
    (tail, _) = empty_tails(counts, [np.arange(91), np.arange(2)], schema, [21.0, 21.0])
    assert tail.sum() == (0 if n_others else 89)


@pytest.mark.parametrize("labels", [None, np.array([0, 1] * 50)])
def test_an_empty_tail_can_be_given(labels):
    model = {
        "n_cells": np.array([3, 2]),
        "starts": np.array([0, 10, 20, 0, 1]),
        "stops": np.array([10, 20, 60, 1, 2]),
        "weights": np.array([0.4, 0.3, 0.3]),
        "classes": np.array([0, 0, 1]),
        "cells": np.array([[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0.5, 0.5, 0, 1, 0]], dtype=float),
    }
    schema = read_schema({"cost": range(60), "kind": ["a", "b"], "rich": ["no", "yes"]}, "rich")
    rng = np.random.RandomState(0)
    made = sample_codes(model, schema, 100, rng, {"cost": (30, 49)}, labels)
    assert (made[:, 0] >= 30).all()
    assert (made[:, 0] < 50).all()
    assert len(np.unique(made[:, 0])) > 10
    assert made[:, 1].mean() == pytest.approx(0.3 if labels is None else 0.2, abs=0.12)
    if labels is not None:
        np.testing.assert_array_equal(made[:, 2], labels)
    # What is given besides, and no component has together with it, holds as well.
    made = sample_codes(model, schema, 100, rng, {"cost": 40, "kind": "b"}, labels)
    assert (made[:, :2] == [40, 1]).all()


# What classes differ in
# ----------------------


def noisy_classes(shift, noise=15.0, seed=0):
    """Return released counts of two classes of 1,000 records and three columns, with noise."""
    rng = np.random.default_rng(seed)
    even, moved = np.full(4, 0.25), np.full(4, 0.25) + shift * np.array([-1, 0, 0, 1])
    of_columns = [np.array([even, moved]), np.array([even, even]), np.array([even, even])]
    counts = np.concatenate([1000 * shares.T for shares in of_columns])
    pairs = [
        1000 * np.einsum("ca,cb->abc", of_columns[a], of_columns[b]).ravel()
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    return {
        "n_cells": np.array([4, 4, 4]),
        "groups": np.tile(np.arange(4), 3),
        "counts": counts + rng.normal(0, noise, counts.shape),
        "pairs": np.concatenate(pairs) + rng.normal(0, noise, 3 * 4 * 4 * 2),
        "deviations": np.array([noise, noise]),
    }


def class_differences(released):
    shares = released["counts"] / released["counts"].sum(axis=0) * 3
    return (shares[:, 1] - shares[:, 0]).reshape(3, 4)


@pytest.mark.parametrize("seed", range(3))
def test_classes_differ_in_no_more_than_noise_and_chance_leave(seed):
    pooled, deviations = pool_classes(noisy_classes(0.0, seed=seed), 2)
    np.testing.assert_allclose(class_differences(pooled), 0, atol=1e-6)
    first, second = pooled["pairs"].reshape(-1, 2).T
    np.testing.assert_allclose(first / first.sum(), second / second.sum(), atol=1e-6)
    # Two classes together have less noise than one.
    np.testing.assert_allclose(deviations, 15 * 2**0.5 / 2000, rtol=0.1)


def test_few_of_many_pairs_differ_between_classes_by_noise_alone(rng):
    n_columns, noise = 40, 40.0
    n_pairs = n_columns * (n_columns - 1) // 2
    released = {
        "n_cells": np.full(n_columns, 2), "groups": np.tile(np.arange(2), n_columns),
        "counts": np.full((2 * n_columns, 2), 500.0), "deviations": np.array([noise, noise]),
        "pairs": 250 + rng.normal(0, noise, 4 * 2 * n_pairs),
    }  # fmt: skip
    pairs = pool_classes(released, 2)[0]["pairs"].reshape(n_pairs, 4, 2)
    apart = np.abs(pairs[..., 0] - pairs[..., 1]).max(axis=1) > 1
    assert np.count_nonzero(apart) < 0.06 * n_pairs


def test_a_difference_of_classes_is_left_in_the_column_that_has_it():
    released = noisy_classes(0.2)
    pooled, _ = pool_classes(released, 2)
    found = class_differences(pooled)
    np.testing.assert_allclose(found[0], [-0.2, 0, 0, 0.2], atol=0.04)
    np.testing.assert_allclose(found[1:], 0, atol=1e-6)
    # Counts and pairs say the same of a column.
    of_pairs = pooled["pairs"][:32].reshape(4, 4, 2).sum(axis=1)
    np.testing.assert_allclose(of_pairs / 1000, pooled["counts"][:4] / 1000, atol=0.01)


@pytest.mark.parametrize("noise", [0.5, 5.0])
def test_empty_cells_hide_no_difference_of_classes(noise):
    """Nor do they if there is little noise, so that they are known best."""
    rng, shares = np.random.default_rng(0), np.zeros((2, 400))
    shares[0, :10], shares[1, 5:15] = 0.1, 0.1
    released = {
        "n_cells": np.array([400]), "groups": np.arange(400), "pairs": np.zeros(0),
        "counts": 2000 * shares.T + rng.normal(0, noise, (400, 2)),
        "deviations": np.array([noise, 0.0]),
    }  # fmt: skip
    pooled, _ = pool_classes(released, 2)
    np.testing.assert_allclose(pooled["counts"].T[:, :15] / 2000, shares[:, :15], atol=0.02)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("dependent", [True, False])
def test_only_dependence_that_noise_explains_is_removed_from_pairs(ordered, dependent):
    """Of noise alone, less than a tenth is left; dependence is nearer to the truth than before."""
    rng, n_groups, noise = np.random.default_rng(0), 16, 0.001
    places = np.linspace(-1, 1, n_groups)
    waves = [waves_of(n_groups, ordered=ordered, missing=True)] * 2
    expected = np.full((n_groups, n_groups), n_groups**-2.0)
    truth = expected * (1 + dependent * 0.8 * np.outer(places, places))
    errors = []
    for _ in range(20):
        noisy = truth + rng.normal(0, noise, truth.shape)
        found = clear_of_noise(waves, 1.0, (0, 1), noisy, expected, noise)
        errors.append(np.sum((found - truth) ** 2) / np.sum((noisy - truth) ** 2))
    # Groups without an order have dependence of any kind, and half of it is noise.
    assert np.mean(errors) < (0.1 if not dependent else 0.2 if ordered else 0.7)
    unchanged = clear_of_noise(waves, 0.0, (0, 1), noisy, expected, noise)
    np.testing.assert_allclose(unchanged, noisy, atol=1e-12)


@pytest.mark.parametrize("kind", [{"ordered": True}, {"ordered": False}, {"missing": True}])
@pytest.mark.parametrize("n_groups", [1, 2, 5])
def test_waves_are_orthonormal_and_missing_values_have_one_of_their_own(kind, n_groups):
    waves, octaves = waves_of(n_groups, **kind)
    np.testing.assert_allclose(waves @ waves.T, np.eye(n_groups), atol=1e-12)
    if "missing" in kind and n_groups > 1:
        np.testing.assert_array_equal(waves[-1], np.eye(n_groups)[-1])
        assert np.flatnonzero(octaves == octaves[-1]).tolist() == [n_groups - 1]


def test_columns_of_chance_alone_do_not_depend_on_each_other_in_samples():
    """The model of uncleared counts was off by .21 (three seeds)."""
    rng, n = np.random.default_rng(0), 8_000
    table = pd.DataFrame({"town": rng.integers(40, size=n), "month": rng.integers(12, size=n)})
    table["sales"] = table["town"] * 3 + rng.integers(20, size=n)
    table["price"] = rng.integers(100, size=n)
    schema = {"month": range(12), "sales": range(140), "price": range(100)}
    schema = {"town": {"categories": [*range(40)]}} | schema
    model = DPSinkhornGenerator(1.0, 1e-6, schema=schema, random_state=0).fit(table)
    drawn = model.sample(200_000)
    shares = pd.crosstab(drawn["town"], drawn["month"], normalize=True).to_numpy()
    alone = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    assert np.abs(shares - alone).sum() / 2 < 0.05


def test_a_model_of_classes_that_are_alike_has_one_mixture():
    schema = read_schema({"a": [*"wxyz"], "b": [*"wxyz"], "c": [*"wxyz"], "t": [0, 1]}, "t")
    cells = {"starts": np.tile(np.arange(4), 3), "stops": np.tile(np.arange(1, 5), 3)}
    released = noisy_classes(0.0)
    cells["totals"] = np.maximum(released["counts"].sum(axis=1), 0.0)
    model = fit_table(released | cells, schema, 20, 40, pooled=True)
    first, second = (model["cells"][model["classes"] == c] for c in (0, 1))
    np.testing.assert_allclose(first, second, atol=0.01)


# Columns as they are
# -------------------


def test_what_is_missing_together_is_missing_together():
    rng = np.random.default_rng(0)
    gone = rng.random(3000) < 0.3
    declared = {"bounds": (0, 500), "missing": True}
    labels = {"categories": ["x", "y"], "missing": True}
    schema = {"a": declared, "b": declared | {"integer": True}, "c": labels}
    table = pd.DataFrame({"a": rng.uniform(0, 500, 3000), "b": rng.integers(0, 500, 3000) * 1.0})
    table["c"] = rng.choice(["x", "y"], 3000).astype(object)
    table.loc[gone, ["a", "b", "c"]] = None
    # The missing cell is counted apart, whatever others are merged.
    generator = DPSinkhornGenerator(
        2.0, schema=schema, model=TableSketch(30, n_iter=200), random_state=0
    )
    missing = generator.fit(table).sample(4000).isna()
    together = missing.sum(axis=1)
    # Independent columns would have 3 % of all rows without any value, and 44 % with some.
    assert (together == 3).mean() == pytest.approx(gone.mean(), abs=0.08)
    assert together.isin([1, 2]).mean() < 0.2


def test_a_long_tail_is_resolved_on_either_scale():
    rng = np.random.default_rng(0)
    incomes = ((rng.pareto(1.5, 10_000) + 1) * 100).clip(1, 1e6)
    table = pd.DataFrame({"income": incomes, "rich": np.where(incomes > 500, "yes", "no")})
    errors = {}
    for scale in ("linear", "log"):
        schema = {"income": {"bounds": (1, 1e6), "scale": scale}, "rich": ["no", "yes"]}
        generator = DPSinkhornGenerator(
            1.0, schema=schema, model=TableSketch(10, n_iter=20), random_state=0
        )
        made = np.sort(generator.fit(table).sample(10_000)["income"])
        errors[scale] = np.abs(made - np.sort(incomes)).mean() / incomes.std()
    # On either scale no noise is in the empty end, which would make it 1.5.
    assert max(errors.values()) < 0.1


@pytest.mark.experiment
def test_strong_dependence_of_two_columns_is_in_samples():
    rng = np.random.default_rng(0)
    first = rng.normal(size=20_000)
    table = pd.DataFrame({"a": first, "b": 0.9 * first + math.sqrt(0.19) * rng.normal(size=20_000)})
    table["c"] = rng.choice(["x", "y"], len(table))
    schema = {"a": (-4.0, 4.0), "b": (-4.0, 4.0), "c": ["x", "y"]}
    made = DPSinkhornGenerator(epsilon=1.0, schema=schema, random_state=0).fit(table).sample(10_000)
    assert np.corrcoef(made["a"], made["b"])[0, 1] > 0.75


def test_strong_dependence_is_in_samples_beside_many_columns_without_any():
    rng = np.random.default_rng(0)
    first = rng.integers(8, size=20_000)
    table = np.column_stack([first, first, rng.integers(4, size=(20_000, 12))])
    schema = {f"c{j}": range(8 if j < 2 else 4) for j in range(14)}
    model = TableSketch(60, n_iter=150)
    generator = DPSinkhornGenerator(1.0, 1e-5, schema=schema, model=model, random_state=0)
    made = generator.fit(table).sample(5_000)
    # Components that are all pulled together as the noise asks for have 73 %.
    assert (made[:, 0] == made[:, 1]).mean() > 0.85


@pytest.mark.experiment
def test_a_target_of_numbers_depends_on_others_as_it_did():
    rng = np.random.default_rng(0)
    one, other = rng.uniform(size=(2, 8_000))

    def is_dear(one, other):
        return (np.floor(4 * one) + np.floor(4 * other)) % 2 == 1

    # No pair of columns tells anything of the price, and no three halves of them.
    price = np.where(is_dear(one, other), 2, 0) + 0.3 * rng.normal(size=8_000)
    table = np.column_stack([one, other, price])
    schema = {"one": (0.0, 1.0), "other": (0.0, 1.0), "price": (-1.0, 3.0)}
    found = []
    for target in (None, "price"):
        generator = DPSinkhornGenerator(2.0, 1e-5, schema=schema, target=target, random_state=0)
        made = generator.fit(table).sample(8_000)
        found.append((is_dear(made[:, 0], made[:, 1]) == (made[:, 2] > 1)).mean())
    assert found[0] < 0.6 < 0.65 < found[1]


@pytest.mark.experiment
def test_even_samples_are_nearer_to_the_model_and_as_independent():
    rng = np.random.RandomState(0)
    schema = read_schema({"a": range(10), "b": range(10), "c": ["x", "y"]}, target="c")
    edges = np.tile(np.arange(10), 2)
    model = {
        "n_cells": np.array([10, 10]), "starts": edges, "stops": edges + 1,
        "weights": rng.dirichlet(np.ones(30)), "classes": rng.randint(0, 2, 30),
        "cells": np.hstack([rng.dirichlet(np.ones(10), 30), rng.dirichlet(np.ones(10), 30)]),
    }  # fmt: skip
    first, second = model["cells"][:, :10], model["cells"][:, 10:]
    joint = (first * model["weights"][:, None]).T @ second
    n = 3000
    errors: dict = {False: [], True: []}
    mean = np.zeros((10, 10))
    for seed in range(40):
        for evenly, found in errors.items():
            codes = sample_codes(model, schema, n, np.random.RandomState(seed), evenly=evenly)
            table = np.bincount(codes[:, 0] * 10 + codes[:, 1], minlength=100).reshape(10, 10) / n
            found.append(
                [np.abs(table.sum(axis=1) - joint.sum(axis=1)).sum(), np.abs(table - joint).sum()]
            )
            mean += evenly * table / 40
    independent, even = np.mean(errors[False], axis=0), np.mean(errors[True], axis=0)
    assert even[0] < 0.1 * independent[0]
    assert even[1] < 0.9 * independent[1]
    # Each record is drawn as if it were the only one: the mean of many tables is the model.
    deviation = np.sqrt(joint / (40 * n))
    assert (np.abs(mean - joint) < 5 * deviation + 1e-12).all()


def test_even_draws_have_even_totals_and_no_bias():
    rng = np.random.RandomState(0)
    places = np.arange(40)
    # Rows have different entries, and hardly any in common if their centres are far apart.
    weights = np.exp(-(((places - rng.uniform(0, 40, 30)[:, None]) / 6) ** 2)) + 1e-6
    weights /= weights.sum(axis=1, keepdims=True)
    sizes = rng.randint(5, 60, 30)
    rows = np.repeat(np.arange(30), sizes)
    counts, errors, n_tables = np.zeros((30, 40)), [], 1000
    for _ in range(n_tables):
        entries = draws.draw_entries(weights, rows, rng, sizes[None])
        counts += np.bincount(rows * 40 + entries, minlength=1200).reshape(30, 40)
        errors.append(np.bincount(entries, minlength=40) - sizes @ weights)
    # Independent draws have a mean error of 3.6.
    assert np.abs(errors).mean() < 1
    shifts = counts @ places / (n_tables * sizes) - weights @ places
    assert np.sqrt(np.mean(shifts**2)) < 0.07


def test_no_sample_has_what_has_no_weight():
    certain = SimpleNamespace(
        uniform=lambda size: np.full(size, 1 - 2.0**-53), permutation=lambda rows: rows
    )
    weights = np.tile([0.5, 0.5, 0.0], (3000, 1))
    rows = np.arange(3000)
    assert (draws.draw_entries(weights, rows, certain) == 1).all()
    weights = np.tile([[0.5, 0.5, 0.0], [0.0, 0.3, 0.7]], (1500, 1))
    sizes = np.ones((1, 3000))
    for source in (np.random.RandomState(0), certain):
        entries = draws.draw_entries(weights, rows, source, sizes)
        assert (weights[rows, entries] > 0).all()


# Threads
# -------


def most_threads():
    # PyTorch, if a test has imported it since, has a pool of its own, which fits do not use.
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def fit_a_table(rng):
    schema = {"age": range(0, 9), "job": range(0, 9)}
    records = rng.integers(0, 9, (300, 2)).astype(float)
    model = TableSketch(n_components=4, n_iter=20)
    DPSinkhornGenerator(epsilon=4.0, schema=schema, model=model).fit(records)


def test_the_fit_of_a_table_uses_one_thread(monkeypatch):
    seen, softmax = [], mixture.softmax

    def watched(*args):
        seen.append(most_threads())
        return softmax(*args)

    monkeypatch.setattr(mixture, "softmax", watched)
    with threadpool_limits(2):
        fit_a_table(np.random.default_rng(0))
    # The last call of a table's fit comes after its products of matrices.
    assert seen and set(seen[:-2]) == {1}
