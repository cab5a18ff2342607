"""Exact sums over records: their bounds, the budget that releases share, and their noise."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from skdpot.privacy.accounting import calibrate_noise_multiplier, epsilon_of, plan_epsilon
from skdpot.privacy.events import ComposedDpEvent, GaussianDpEvent
from skdpot.privacy.noise import make_source
from skdpot.privacy.sensitivity import ball_sum_sensitivity
from skdpot.releases import RADIUS, SketchReleases, ball_points, check_exact_sums, sum_of_blocks
from skdpot.releases import _sums as record_sums
from tests.oracles.sketch import squared_norm

EPSILONS = [0.2, 1.0, 10.0]
DELTA = 1e-5
# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


# Rows in a ball
# --------------

anything = st.floats(width=64)
some_rows = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=anything)
any_radius = st.floats(min_value=5e-324, allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=150)
@given(some_rows, any_radius)
@example(np.array([[1e308, 1e308], [5e-324, 0.0]]), 5e-324)
@example(np.array([[1e308, -1e308], [5e-324, 0.0]]), 1.7e308)
@example(np.array([[math.nan, 1.0], [math.inf, -math.inf]]), 1.0)
def test_whatever_rows_are_they_become_integers_in_the_ball(rows, radius):
    """Rounding after clipping cannot exceed the sensitivity."""
    found = ball_points(rows, radius)
    assert found.shape == rows.shape
    np.testing.assert_array_equal(found, np.rint(found))
    for row in found:
        assert squared_norm(row.astype(np.int64)) <= RADIUS**2
    for i in range(len(rows)):
        np.testing.assert_array_equal(ball_points(rows[i : i + 1], radius), found[i : i + 1])


def worst_rows(n_dimensions, rng):
    """Return rows at and beyond the sphere, many of whose entries are rounded away from zero."""
    halves = np.full(n_dimensions, 0.5) + rng.integers(0, 3, n_dimensions)
    axis = np.zeros(n_dimensions)
    axis[0] = 1e9
    return np.stack(
        [
            axis,
            np.full(n_dimensions, -1e9),
            rng.choice([-1.0, 1.0], n_dimensions) * 1e3,
            rng.standard_normal(n_dimensions) * 1e300,
            halves * (RADIUS / np.linalg.norm(halves)),
            halves,
            np.full(n_dimensions, (RADIUS / math.sqrt(n_dimensions)) * (1 - 1e-9)),
            np.full(n_dimensions, math.ceil(RADIUS / math.sqrt(n_dimensions)) - 0.5),
        ]
    )


@pytest.mark.parametrize("n_dimensions", [1, 2, 3, 10, 201, 784, 10_000, 100_000])
def test_rounding_after_clipping_cannot_exceed_the_radius_and_hardly_falls_short(n_dimensions, rng):
    found = ball_points(worst_rows(n_dimensions, rng), float(RADIUS))
    norms = np.sqrt([squared_norm(row.astype(np.int64)) for row in found])
    assert 0.95 * RADIUS < norms.max() <= RADIUS


@pytest.mark.parametrize("n_dimensions", [3, 4, 5, 63, 64, 65, 400])
def test_where_rounding_would_take_too_much_entries_are_cut_off(n_dimensions, rng, monkeypatch):
    """With a radius so small that a few dimensions are very many."""
    monkeypatch.setattr(record_sums, "RADIUS", 8)
    for rows in (worst_rows(n_dimensions, rng), rng.standard_normal((50, n_dimensions)) * 20):
        found = ball_points(rows, 8.0)
        np.testing.assert_array_equal(found, np.rint(found))
        assert (np.sum(found**2, axis=1) <= 8**2).all()


@pytest.mark.parametrize("n_dimensions", [1, 2, 7, 8, 9, 129, 784])
def test_a_row_in_the_ball_depends_on_no_other_bit_by_bit(n_dimensions, rng):
    rows = rng.standard_normal((40, n_dimensions))
    radius = 0.9 * math.sqrt(n_dimensions)
    found = ball_points(rows, radius)
    order = rng.permutation(len(rows))
    np.testing.assert_array_equal(ball_points(rows[order], radius), found[order])
    for part in (rows[3:20], np.asfortranarray(rows)[3:20], np.repeat(rows, 2, axis=1)[3:20, ::2]):
        np.testing.assert_array_equal(ball_points(part, radius), found[3:20])


def products(left, right):
    return sum_of_blocks(lambda block: left[block].T @ right[block], len(left))


def test_sums_of_products_are_exact_for_as_many_records_as_there_may_be(rng):
    """With rows whose products add up to the last bit of a double."""
    most = 2**62 // RADIUS**2
    check_exact_sums(most)
    with pytest.raises(ValueError, match="68719476736 records"):
        check_exact_sums(most + 1)
    n = 1 << 14
    left = rng.integers(-RADIUS, RADIUS + 1, (n, 2)).astype(np.float64)
    right = rng.integers(-RADIUS, RADIUS + 1, (n, 3)).astype(np.float64)
    expected = left.astype(np.int64).astype(object).T @ right.astype(np.int64).astype(object)
    found = products(left, right)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found.astype(object), expected)
    order = rng.permutation(n)
    np.testing.assert_array_equal(products(left[order], right[order]), found)


def test_sums_of_blocks_are_those_of_all(rng, monkeypatch):
    left, right = rng.integers(-RADIUS, RADIUS + 1, (2, 50, 3)).astype(np.float64)
    expected = products(left, right)
    monkeypatch.setattr(record_sums, "_MOST_PRODUCTS", 7)
    np.testing.assert_array_equal(products(left, right), expected)
    monkeypatch.setattr(record_sums, "_LARGEST_PRODUCT", RADIUS)
    np.testing.assert_array_equal(products(left, right), np.clip(expected, -RADIUS, RADIUS))


# A budget that is divided
# ------------------------


def ball(radius):
    """Return the sensitivity of sums of vectors in a ball."""
    return partial(ball_sum_sensitivity, radius=radius)


def multiplier_of(releases, name, neighbouring):
    """Return the multiplier of a release's noise, as a fraction."""
    doubled = 2 if neighbouring == "replace_one" else 1
    return Fraction(releases.standard_deviation(name, ball(1.0))) / doubled


def divided(noise_multiplier, neighbouring, rng, random_state=0):
    """Return releases whose budget was divided at random, and what they are called."""
    shares = {f"first {i}": float(share) for i, share in enumerate(rng.exponential(size=4) ** 4)}
    source = make_source(random_state)
    releases = SketchReleases(noise_multiplier, shares, neighbouring, source)
    names = list(shares)
    for depth in range(3):
        parts = {f"{depth}, {i}": float(x) for i, x in enumerate(rng.exponential(size=5) ** 4)}
        releases.divide(names.pop(0), parts)
        names = [*parts, *names]
    return releases, names


@pytest.mark.parametrize("neighbouring", ["add_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_divided_budgets_add_up_to_the_whole_and_not_to_more(epsilon, neighbouring, rng):
    noise_multiplier = calibrate_noise_multiplier(epsilon, DELTA)
    whole = 1 / Fraction(noise_multiplier) ** 2
    for _ in range(20):
        releases, names = divided(noise_multiplier, neighbouring, rng)
        assert len(names) == 16
        spent = sum(1 / multiplier_of(releases, name, neighbouring) ** 2 for name in names)
        assert (1 - Fraction(1, 2**35)) * whole < spent <= whole


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_releases_cost_together_what_was_asked(epsilon, rng):
    """By the exact price of the whole, and by the composed losses of its parts."""
    noise_multiplier = calibrate_noise_multiplier(epsilon, DELTA)
    releases, names = divided(noise_multiplier, "add_remove", rng)
    assert releases.event == GaussianDpEvent(noise_multiplier)
    assert epsilon_of(noise_multiplier, DELTA) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of(noise_multiplier, DELTA) <= epsilon
    multipliers = [float(multiplier_of(releases, name, "add_remove")) for name in names]
    events = [GaussianDpEvent(multiplier) for multiplier in multipliers]
    price = plan_epsilon(ComposedDpEvent(events), DELTA, neighbouring="add_remove")
    assert price == pytest.approx(epsilon, rel=1e-6)
    losses = PLDAccountant(value_discretization_interval=1e-3)
    for event in events:
        # Those of next to no losses would be rounded up to the width of the grid.
        if event.noise_multiplier < 1e3 * noise_multiplier:
            losses.compose(event)
    assert losses.get_epsilon(DELTA) == pytest.approx(epsilon, rel=0.02)


def make_releases(shares, noise_multiplier=1.0, neighbouring="add_remove"):
    return SketchReleases(noise_multiplier, shares, neighbouring, make_source(0))


def test_a_release_is_made_once_and_from_its_own_share():
    releases = make_releases({"a": 1.0, "b": 1.0})
    releases.run("a", np.zeros(2, dtype=np.int64), ball(1.0))
    with pytest.raises(RuntimeError, match="'a' has been made"):
        releases.run("a", np.zeros(2, dtype=np.int64), ball(1.0))
    with pytest.raises(RuntimeError, match="'a' has been made"):
        releases.divide("a", {"c": 1.0})
    releases.divide("b", {"c": 1.0})
    for name in ("b", "d"):
        with pytest.raises(KeyError):
            releases.run(name, np.zeros(2, dtype=np.int64), ball(1.0))
    with pytest.raises(ValueError, match="one share"):
        releases.divide("c", {"a": 1.0})


def test_without_noise_sums_are_released_as_they_are():
    released = make_releases({"a": 1.0}, 0.0).run("a", np.array([3, 4]), ball(5.0))
    assert released.dtype == np.float64
    np.testing.assert_array_equal(released, [3.0, 4.0])


# Noise
# -----


def test_noise_of_different_releases_and_entries_is_independent(seed):
    releases = SketchReleases(5.0, {"a": 1.0, "b": 1.0}, "add_remove", make_source(seed))
    a, b = (releases.run(name, np.zeros((2, 5000), dtype=np.int64), ball(8.0)) for name in "ab")
    correlations = np.corrcoef(np.concatenate([a, b]))
    assert np.abs(correlations - np.eye(4)).max() < 5 / math.sqrt(5000)
