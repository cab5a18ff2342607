"""Private groups: what is never told, what is chosen, and how near released groups are."""

import warnings

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.privacy.random import make_source
from skdpot.releases import HistogramRelease, UnitLayout, group_weights
from skdpot.releases._groups import denoised
from tests.oracles.private_groups import DELTA, LAYOUTS, make_plan, noisy_values, random_records

by_delta = pytest.mark.parametrize("delta", [0.0, DELTA])


# ------------------------------------------------------------------------------- what is told


def assert_valid(layout, groups, n_groups):
    assert groups.sizes.shape == (n_groups,) and (groups.sizes >= 1).all()
    for points, masses in zip(groups.points, groups.masses, strict=True):
        assert points.dtype == masses.dtype == np.float64
        assert points.shape == (len(masses), layout.n_coordinates)
        assert (masses > 0).all() and abs(masses.sum() - 1) < 1e-9
        numbers = points[:, : layout.n_numbers]
        assert ((numbers >= 0) & (numbers <= 1)).all()
        np.testing.assert_array_equal(layout.to_levels(numbers), numbers)
        for block in layout.block_slices:
            assert np.isin(points[:, block], [0.0, 1.0]).all()
            assert (points[:, block].sum(axis=1) == 1).all()


@by_delta
@pytest.mark.parametrize("epsilon", [1e-3, 1e6])
@pytest.mark.parametrize("name", LAYOUTS)
def test_whatever_the_records_are_nothing_raises_or_warns(delta, epsilon, name):
    plan = make_plan(name, n_records=40, epsilon=epsilon, delta=delta)
    rng = np.random.default_rng(4)
    d = plan.layout.n_coordinates
    tables = {
        "no group": (random_records(plan.layout, 40, rng), np.full(40, -1)),
        "one group": (random_records(plan.layout, 40, rng), np.zeros(40, dtype=int)),
        "no category": (random_records(plan.layout, 40, rng, 1.0), rng.integers(0, 3, 40)),
        "one point": (np.tile(random_records(plan.layout, 1, rng, 0), (40, 1)), np.arange(40) % 3),
        "no numbers": (np.full((40, d), np.nan), np.arange(40) % 3),
        "no bounds": (rng.choice([np.inf, -np.inf, 1e300], (40, d)), np.arange(40) % 3),
    }
    before = {key: repr(value) for key, value in vars(plan).items() if key != "_noise"}
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for V, codes in tables.values():
            assert_valid(plan.layout, plan.run((V, codes), make_source(5)), 3)
    after = {key: repr(value) for key, value in vars(plan).items() if key != "_noise"}
    assert {key: after[key] for key in before} == before


def test_records_are_read_as_the_nearest_valid_ones_or_without_a_category():
    layout = UnitLayout((0, 3, 2, 1), (2, 3))
    V = np.array(
        [
            [0.3, 0.3, 0.4, 0.4, 0, 1, 0, 0, 1],
            [np.nan, np.nan, 0.6, 0.4, 1, 1, 0, 0, 0],
            [-1.0, 2.0, np.inf, 0.4, 0.5, 0.5, 1, 0, np.nan],
        ]
    )
    numbers, categories = layout.read(V)
    expected = [[0.3, 0.5, 0.0, 0.4], [0.5, 0.5, 1.0, 0.4], [0.0, 1.0, 1.0, 0.4]]
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(categories, [[1, -1, -1], [2, -1, -1]])


@pytest.mark.parametrize("levels", [(0, 5), (9, 3), (4, 0)])
def test_a_point_of_a_cell_is_counted_in_that_cell(levels):
    plan = HistogramRelease(UnitLayout(levels, (3,)), 1, 300, 0.05, 0.0)
    middles = plan.middles
    counts = [plan.values(middle[None], np.zeros(1, dtype=int)).ravel() for middle in middles]
    np.testing.assert_array_equal(counts, np.eye(len(middles)))
    ends = np.array([[0.0, 0.0, 1, 0, 0], [1.0, 1.0, 1, 0, 0]])
    counts = plan.values(ends, np.zeros(2, dtype=int))[0, ..., 0]
    assert counts[0, 0] == counts[-1, -1] == 1.0


def test_groups_are_a_function_of_the_release():
    """What another plan of the same public quantities makes of the noisy values is the same."""
    plan, other = make_plan(), make_plan()
    rng = np.random.default_rng(6)
    V, codes = random_records(plan.layout, 500, rng), rng.integers(-1, 3, 500)
    released = plan.run((V, codes), make_source(7))
    again = other.groups_of(noisy_values(plan, V, codes, 7).reshape(plan.released_shape))
    np.testing.assert_array_equal(released.sizes, again.sizes)
    for one, two in zip(
        [*released.points, *released.masses], [*again.points, *again.masses], strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_an_empty_group_is_uniform_over_all_cells():
    plan = make_plan("plane", n_groups=2, epsilon=1e4)
    groups = plan.run((np.full((500, 2), 0.3), np.zeros(500, dtype=int)), make_source(8))
    assert groups.sizes.tolist() == [500.0, 1.0]
    assert len(groups.points[0]) == 1
    np.testing.assert_allclose(groups.masses[1], 1 / len(plan.middles))


# ------------------------------------------------------------------------------- choices


@pytest.mark.parametrize(
    "layout",
    [UnitLayout((0,) * 13, ()), UnitLayout((2,) * 13, ()), UnitLayout((), (100, 41))],
    ids=str,
)
def test_too_many_cells_are_refused_with_advice(layout):
    advice = "more than 4096 cells.*method='conditional' with a delta"
    with pytest.raises(ValueError, match=advice):
        HistogramRelease(layout, 2, 1000, 1.0, DELTA)


def test_as_many_cells_as_are_possible_are_released():
    shape = HistogramRelease(UnitLayout((0,) * 10, (4,)), 2, 1000, 1.0, DELTA).shape
    assert shape == (2,) * 10 + (4,)


def test_bins_follow_the_budget_and_levels_are_kept_or_merged():
    shapes = [
        HistogramRelease(UnitLayout((0, 5), (3,)), 2, 10_000, epsilon, 0.0).shape
        for epsilon in (0.01, 0.1, 10.0)
    ]
    assert shapes[0] < shapes[1] < shapes[2] and shapes[2][1:] == (5, 3)
    merged = HistogramRelease(UnitLayout((9,), ()), 2, 300, 0.01, 0.0)
    assert merged.shape[0] < 9
    np.testing.assert_array_equal(merged.layout.to_levels(merged.middles), merged.middles)


@pytest.mark.parametrize("name", ["plane", "mixed", "blocks"])
def test_random_points_are_as_far_apart_as_is_said(name):
    layout, rng = LAYOUTS[name], np.random.default_rng(16)
    n = 100_000
    U, V = (
        layout.points(
            rng.random((n, layout.n_numbers)), [rng.integers(0, k, n) for k in layout.blocks]
        )
        for _ in range(2)
    )
    found = ((U - V) ** 2).sum(axis=1).mean()
    assert layout.random_distance == pytest.approx(found, rel=0.02)


@by_delta
@pytest.mark.parametrize("name", ["plane", "mixed", "blocks"])
def test_expected_errors_fall_with_the_budget_from_that_of_random_points(delta, name):
    layout = LAYOUTS[name]
    errors = [
        HistogramRelease(layout, 2, 10_000, epsilon, delta).expected_errors(10_000)[0].error
        for epsilon in (1e-8, 0.1, 1.0, 10.0)
    ]
    assert (np.diff(errors) < 0).all()
    assert errors[0] ** 2 == pytest.approx(layout.random_distance)


@pytest.mark.parametrize("weights", [[3.0, 1.0], {"b": 1.0, "a": 3.0}, [1.5e308, 0.5e308]])
def test_weights_of_groups_are_shares_of_what_was_asked_for(weights):
    found = group_weights(weights, np.array([10, 30]), np.array(["a", "b"]))
    np.testing.assert_allclose(found, [0.75, 0.25])


@pytest.mark.parametrize("weights", [[1.0], [[1.0, 1.0]], {"a": 1.0}, {"a": 1, "b": 1, "c": 1}])
def test_there_is_one_weight_for_each_group(weights):
    with pytest.raises(ValueError, match="weights must"):
        group_weights(weights, np.array([10, 30]), np.array(["a", "b"]))


# ------------------------------------------------------------------------------- post-processing


@settings(derandomize=True, max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-6, 1.0, 1e3]),
)
def test_denoised_counts_are_distributions_and_without_noise_exact(shape, n_numbers, seed, spread):
    rng = np.random.default_rng(seed)
    n_numbers = min(n_numbers, len(shape))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        masses = denoised(rng.normal(scale=spread, size=(2, *shape)), 1.0, n_numbers)
    assert (masses >= 0).all()
    np.testing.assert_allclose(masses.reshape(2, -1).sum(axis=1), 1.0)
    counts = rng.integers(0, 5, (2, *shape)) + 1.0 * (rng.random((2, *shape)) < 0.5)
    counts[(slice(None), *[0] * len(shape))] += 1.0
    totals = counts.reshape(2, -1).sum(axis=1).reshape(2, *[1] * len(shape))
    np.testing.assert_allclose(denoised(counts, 1e-9, n_numbers), counts / totals, atol=1e-9)


def test_what_noise_adds_is_taken_away_again():
    """One half of the line is empty, the other flat."""
    rng = np.random.default_rng(10)
    counts = np.repeat([100.0, 0.0], 32)
    noisy = counts + rng.normal(scale=20.0, size=(50, 64))
    found = np.abs(denoised(noisy, 20.0, 1) - counts / counts.sum()).sum(axis=1).mean()
    nearest = np.maximum(noisy, 0) / np.maximum(noisy, 0).sum(axis=1, keepdims=True)
    assert found < 0.02 and np.abs(nearest - counts / counts.sum()).sum(axis=1).mean() > 0.2


# ------------------------------------------------------------------------------- utility

MEANS = np.array([[-2, -2], [2, 2], [2, -2], [-2, 2], [0, 0]])


@pytest.fixture(scope="module")
def five_groups():
    """Return the five normal laws of the paper in the box from -5 to 5, in unit coordinates."""
    rng = np.random.default_rng(12)
    covariance = [[0.5, -0.2], [-0.2, 0.5]]
    X = np.vstack([rng.multivariate_normal(mean, covariance, 2000) for mean in MEANS])
    return np.clip(X / 10 + 0.5, 0, 1), np.repeat(np.arange(5), 2000)


def mean_distance(V, codes, groups):
    """Return the mean squared transport distance, in the units of the box from -5 to 5."""
    found = []
    for s, (points, masses) in enumerate(zip(groups.points, groups.masses, strict=True)):
        members = V[codes == s][:400]
        cost = 100 * ot.dist(members, points)
        found.append(ot.emd2(ot.unif(len(members)), masses, cost, numItermax=10**6))
    return np.mean(found)


@by_delta
def test_released_groups_are_near_the_true_ones(five_groups, delta):
    """Another sample of 400 records is 0.03 away; a bound is about twice what was measured."""
    V, codes = five_groups
    for epsilon, bound in {1.0: 0.5, 5.0: 0.25, 10.0: 0.2}.items():
        plan = HistogramRelease(UnitLayout((0, 0), ()), 5, len(V), epsilon, delta)
        groups = plan.run((V, codes), make_source(13))
        assert mean_distance(V, codes, groups) < bound
        assert np.abs(groups.sizes / 2000 - 1).max() < 0.2
