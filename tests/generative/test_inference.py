"""Intervals from synthetic sets: the combining rule, and the sets that it is for."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from skdpot import DPSinkhornGenerator
from skdpot.generative import TableSketch, combine
from skdpot.generative._sketch.inference import _Counts, _Layout, draw_models
from skdpot.generative._sketch.marginals import release_marginals, share_marginals
from skdpot.generative._sketch.tilted_mixture import ColumnFunctions, MomentFit
from skdpot.privacy.random import make_source
from skdpot.releases import SketchReleases
from skdpot.tables import read_schema

SCHEMA = {
    "age": range(20, 80),
    "wage": {"bounds": (0.0, 60.0), "missing": True},
    "sex": ["F", "M"],
    "ill": ["no", "yes"],
}


def make_table(n, rng):
    """Return records whose columns depend on each other in pairs."""
    age = rng.integers(20, 80, n)
    wage = np.clip(20 + 0.2 * (age - 50) + 6 * rng.normal(size=n), 0, 60)
    sex = rng.integers(0, 2, n)
    ill = rng.uniform(size=n) < 0.1 + 0.005 * (age - 20) + 0.1 * sex
    return pd.DataFrame(
        {
            "age": age,
            "wage": np.where(rng.uniform(size=n) < 0.1, np.nan, wage),
            "sex": np.array(["F", "M"])[sex],
            "ill": np.where(ill, "yes", "no"),
        }
    )


def make(**parameters):
    options = {"schema": SCHEMA, "model": TableSketch(10, n_iter=5), "random_state": 0}
    return DPSinkhornGenerator(**(options | parameters))


@pytest.fixture(scope="module")
def fitted():
    return make().fit(make_table(4_000, np.random.default_rng(0)))


# The rule
# --------


def test_the_rule_is_that_of_fully_synthetic_sets():
    rng = np.random.default_rng(0)
    estimates, variances = rng.normal(size=(7, 3, 2)), rng.uniform(0.1, 0.4, size=(7, 3, 2))
    combined = combine(estimates.tolist(), variances)
    for place in np.ndindex(3, 2):
        q = [float(of_set[place]) for of_set in estimates]
        u = sum(float(of_set[place]) for of_set in variances) / 7
        mean = sum(q) / 7
        b = sum((one - mean) ** 2 for one in q) / 6
        total, df = 8 / 7 * b - u, 6 * (1 - u / (8 / 7 * b)) ** 2
        if total <= 0:
            total, df = u, 6
        assert combined.estimate[place] == pytest.approx(mean)
        assert combined.standard_error[place] == pytest.approx(math.sqrt(total))
        assert combined.degrees_of_freedom[place] == pytest.approx(max(df, 1))
    assert combined.estimate.shape == (3, 2)


@pytest.mark.parametrize("n_sets", [2, 3, 10, 30])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_without_chance_in_sets_intervals_are_those_of_student(n_sets, level):
    estimates = np.random.default_rng(n_sets).normal(size=n_sets)
    combined = combine(estimates, np.zeros(n_sets))
    low, high = combined.interval(level)
    error = stats.t(n_sets - 1).ppf((1 + level) / 2) * combined.standard_error
    assert (low + high) / 2 == pytest.approx(estimates.mean())
    assert (high - low) / 2 == pytest.approx(error, rel=2e-3)


@pytest.mark.parametrize("within", [0.02, 0.5, 3.0])
def test_intervals_are_of_what_the_variance_may_be(within):
    """The same integral over the chi-square distribution, by a library for quadrature."""
    estimates = np.random.default_rng(0).normal(size=6)
    b, most = estimates.var(ddof=1), 5 * estimates.var(ddof=1) / within
    half = float(np.subtract(*combine(estimates, np.full(6, within)).interval()[::-1])) / 2

    def missed(x):
        deviation = math.sqrt(7 / 6 * 5 * b / x - within)
        return 2 * stats.norm.sf(half / deviation) * stats.chi2(5).pdf(x)

    found = integrate.quad(missed, 0, most)[0] / stats.chi2(5).cdf(most)
    assert found == pytest.approx(0.05, rel=2e-3)


def test_where_sets_differ_too_little_the_variance_is_not_negative():
    combined = combine([1.0, 1.0, 1.0], [0.04, 0.04, 0.04])
    assert combined.standard_error == pytest.approx(0.2)
    assert combined.degrees_of_freedom == 2
    low, high = combined.interval()
    # Sets differ by no less than the chance in them.
    assert high - low > 2 * 1.96 * math.sqrt(0.04 / 3)
    nearly = combine([1.0, 1.0 + 1e-6, 1.0], [0.04, 0.04, 0.04]).interval()
    assert nearly == pytest.approx((low, high), rel=1e-3)
    alike = combine([1.0, 1.0], [0.0, 0.0]).interval()
    assert alike == (1.0, 1.0)
    assert combine([1.0, 2.0], [0.0, 0.0]).degrees_of_freedom == 1


@pytest.mark.parametrize("n_synthetic", [600, 1_200, 10_000])
def test_intervals_of_exact_draws_cover(n_synthetic):
    """Of a mean whose posterior is known: also where most of it is the chance of drawing rows."""
    rng = np.random.default_rng(0)
    n_runs, n_sets, spread = 4_000, 10, 0.05
    centre = spread * rng.normal(size=n_runs)
    drawn = centre + spread * rng.normal(size=(n_sets, n_runs))
    estimates = drawn + rng.normal(size=(n_sets, n_runs)) / math.sqrt(n_synthetic)
    variances = rng.chisquare(n_synthetic - 1, (n_sets, n_runs)) / (n_synthetic - 1) / n_synthetic
    low, high = combine(estimates, variances).interval()
    covered = np.mean((low <= 0) & (high >= 0))
    # Four standard errors. Of fewer rows than 600 the chance is most of what sets differ by.
    assert 0.936 < covered < 0.965


@pytest.mark.parametrize(
    "estimates, variances, message",
    [
        ([1.0], [1.0], "at least two sets"),
        (1.0, 1.0, "at least two sets"),
        ([1.0, 2.0], [[1.0, 2.0]], "must have one shape"),
        ([1.0, np.nan], [1.0, 1.0], "must be finite"),
        ([1.0, 2.0], [1.0, -1.0], "at least 0"),
    ],
)
def test_what_is_no_estimate_is_refused(estimates, variances, message):
    with pytest.raises(ValueError, match=message):
        combine(estimates, variances)


@pytest.mark.parametrize("level", [0, 1, 95])
def test_what_is_no_level_is_refused(level):
    with pytest.raises(ValueError, match="level must be above 0 and below 1"):
        combine([1.0, 2.0], [0.1, 0.1]).interval(level)


# The sets
# --------


def test_sets_are_tables_and_the_same_for_a_seed(fitted):
    sets = fitted.sample(50, n_sets=3)
    assert len(sets) == 3
    for made, again in zip(sets, fitted.sample(50, n_sets=3), strict=True):
        assert made.columns.tolist() == list(SCHEMA) and len(made) == 50
        pd.testing.assert_frame_equal(made, again)
    assert not sets[0].equals(sets[1])
    given = fitted.sample(20, given={"sex": "F"}, n_sets=2)
    assert all((made["sex"] == "F").all() for made in given)


def test_sets_of_a_file_are_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "generator")
    loaded = DPSinkhornGenerator.load(tmp_path / "generator").set_params(random_state=0)
    for made, again in zip(loaded.sample(30, n_sets=2), fitted.sample(30, n_sets=2), strict=True):
        pd.testing.assert_frame_equal(made, again)


def test_sets_depend_on_nothing_but_what_was_released(fitted):
    """And not on the model that samples are drawn from."""
    other = make(model=TableSketch(3, n_iter=1)).fit(make_table(4_000, np.random.default_rng(0)))
    for made, again in zip(other.sample(30, n_sets=2), fitted.sample(30, n_sets=2), strict=True):
        pd.testing.assert_frame_equal(made, again)


@pytest.mark.parametrize("n_sets", [0, 1, 2.0, True, "2"])
def test_other_numbers_of_sets_are_refused(fitted, n_sets):
    with pytest.raises(ValueError, match="n_sets must be an integer of at least 2"):
        fitted.sample(5, n_sets=n_sets)


def test_sets_are_for_tables():
    rows = np.random.default_rng(0).uniform(size=(50, 2))
    vectors = DPSinkhornGenerator(bounds=(0, 1), random_state=0).fit(rows)
    with pytest.raises(ValueError, match="n_sets is for tables"):
        vectors.sample(5, n_sets=2)


def test_sets_are_not_of_people_with_several_rows():
    table = pd.DataFrame({"visit": [1, 2, 3, 1], "sex": ["F", "F", "M", "M"]})
    generator = make(schema={"visit": range(5), "sex": ["F", "M"]})
    generator.fit(table, groups=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="that are fitted without groups"):
        generator.sample(5, n_sets=2)


@pytest.mark.parametrize("target", [None, "ill"])
def test_what_is_counted_is_what_was_released(target):
    schema = read_schema(SCHEMA, target)
    rng = np.random.default_rng(0)
    units = np.column_stack([rng.integers(0, column.n_units, 500) for column in schema.columns])
    releases = SketchReleases(1e-6, share_marginals(schema), "add_remove", make_source(0))
    released = release_marginals(units, schema, releases)
    counted = _Layout(released, schema).count_units(units)
    np.testing.assert_array_equal(counted.cells, released["counts"])
    np.testing.assert_array_equal(counted.pairs.ravel(), released["pairs"])


def test_models_are_spread_about_what_was_released_by_its_noise_and_by_chance():
    schema = read_schema({"a": ["x", "y"], "b": ["x", "y", "z"]})
    deviation, n = 30.0, 2_000
    shares = np.array([[0.3, 0.1, 0.1], [0.05, 0.15, 0.3]])
    released = {
        "n_cells": np.array([2, 3]), "starts": np.array([0, 1, 0, 1, 2]),
        "stops": np.array([1, 2, 1, 2, 3]), "groups": np.array([0, 1, 0, 1, 2]),
        "counts": n * np.concatenate([shares.sum(axis=1), shares.sum(axis=0)])[:, None],
        "pairs": n * shares.ravel(), "deviations": np.array([deviation, deviation]),
    }  # fmt: skip
    layout = _Layout(released, schema)
    models = draw_models(released, schema, n, 60, np.random.RandomState(0))
    pairs = n * np.array([layout.model_shares(model).pairs[:, 0] for model in models])
    expected = n * shares.ravel()
    np.testing.assert_allclose(pairs.mean(axis=0), expected, atol=20)
    # Least squares of all counts, whose sum is known, and records that are drawn.
    cells = np.eye(6)
    sums = np.concatenate([cells.reshape(2, 3, 6).sum(axis=1), cells.reshape(2, 3, 6).sum(axis=0)])
    free = np.linalg.svd(np.ones((1, 6)))[2][1:]
    weights = free @ (cells + sums.T @ sums) @ free.T / deviation**2
    noise = np.diag(free.T @ np.linalg.solve(weights, free))
    chance = expected * (1 - shares.ravel())
    np.testing.assert_allclose(pairs.std(axis=0), np.sqrt(noise + chance), rtol=0.25)


def test_counts_are_added():
    counts = _Counts(np.ones((2, 1)), np.zeros((3, 1)))
    total = counts.plus(counts, -2.0)
    np.testing.assert_array_equal(total.cells, [[-1.0], [-1.0]])
    np.testing.assert_array_equal(total.pairs, np.zeros((3, 1)))


@pytest.mark.parametrize("schema", [{"a": range(30)}, {"a": range(30), "b": ["x"]}])
def test_sets_of_a_column_that_depends_on_nothing(schema):
    table = pd.DataFrame({"a": np.arange(600) % 30, "b": "x"})[list(schema)]
    sets = make(schema=schema).fit(table).sample(40, n_sets=2)
    assert [made.shape for made in sets] == [(40, len(schema))] * 2


def test_sets_of_exact_counts():
    table = make_table(2_000, np.random.default_rng(0))
    sets = make(epsilon=None).fit(table).sample(2_000, n_sets=2)
    for made in sets:
        assert made["wage"].mean() == pytest.approx(table["wage"].mean(), abs=1)
        assert made["wage"].isna().mean() == pytest.approx(table["wage"].isna().mean(), abs=0.05)


# The mixture
# -----------


def make_fit(n_cells):
    """Return a fit to even cells of two columns, their shares, and one over the noise."""
    places = np.linspace(-1, 1, n_cells)
    along = (places / places.std())[None]
    shares = np.tile(np.full(n_cells, 1 / n_cells), 2)
    return MomentFit([ColumnFunctions(along, along)] * 2), shares, np.array([[0.0, 20], [20, 0]])


@pytest.mark.parametrize("wanted", [-0.8, 0.0, 0.4, 0.85])
def test_a_mixture_has_the_distributions_and_the_moments(wanted):
    fit, shares, precisions = make_fit(12)
    moments = wanted * (1 - np.eye(2))
    mixture = fit.fit_first(shares, moments, precisions, np.random.RandomState(0))
    np.testing.assert_allclose(mixture.profiles.mean(axis=0), shares, atol=2e-4)
    means = mixture.profiles @ fit.tests.T
    assert np.mean(means[:, 0] * means[:, 1]) == pytest.approx(wanted, abs=5e-3)


def test_a_mixture_moves_as_its_moments_do():
    """By as much, and back: small changes of what was released are small changes of the model."""
    fit, shares, precisions = make_fit(12)
    moments = 0.4 * (1 - np.eye(2))
    mixture = fit.fit_first(shares, moments, precisions, np.random.RandomState(0))
    for change in (-0.1, 0.05, 0.1):
        moved = fit.refit(mixture, shares, moments + change * (1 - np.eye(2)), precisions)
        means = moved.profiles @ fit.tests.T
        assert np.mean(means[:, 0] * means[:, 1]) == pytest.approx(0.4 + change, abs=5e-3)
        assert np.abs(moved.tilts - mixture.tilts).max() < 1
    same = fit.refit(mixture, shares, moments, precisions)
    np.testing.assert_allclose(same.tilts, mixture.tilts)


def test_what_is_not_known_of_a_moment_is_not_fitted():
    fit, shares, precisions = make_fit(12)
    mixture = fit.fit_first(shares, np.full((2, 2), 0.9), 0 * precisions, np.random.RandomState(0))
    means = mixture.profiles @ fit.tests.T
    assert abs(np.mean(means[:, 0] * means[:, 1])) < 0.1
