"""Private groups: what is never told, what is chosen, what noise covers, and how near they are."""

import warnings

import numpy as np
import pytest

from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from skdpot.privacy.noise import make_source
from skdpot.releases import HistogramRelease, UnitLayout
from tests.oracles.private_groups import (
    DELTA,
    LAYOUTS,
    exact_values,
    make_plan,
    noisy_values,
    random_records,
)

by_delta = pytest.mark.parametrize("delta", [0.0, DELTA])


# ------------------------------------------------------------------------------- what is told


def assert_valid(layout, groups, n_groups):
    sizes, places, weights = groups
    assert sizes.shape == (n_groups,) and (sizes >= 1).all()
    for points, masses in zip(places, weights, strict=True):
        assert points.dtype == masses.dtype == np.float64
        assert points.shape == (len(masses), layout.n_coordinates)
        assert (masses > 0).all() and abs(masses.sum() - 1) < 1e-9
        numbers = points[:, : layout.n_numbers]
        assert ((numbers >= 0) & (numbers <= 1)).all()
        np.testing.assert_array_equal(layout.read(points)[0], numbers)
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
    sizes, points, masses = plan.run((V, codes), make_source(7))
    again = other.groups_of(noisy_values(plan, V, codes, 7).reshape(plan.n_groups, *plan.shape))
    for one, two in zip([sizes, *points, *masses], [again[0], *again[1], *again[2]], strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_empty_group_is_uniform_over_all_cells():
    plan = make_plan("plane", n_groups=2, epsilon=1e4)
    values = np.full((500, 2), 0.3), np.zeros(500, dtype=int)
    sizes, points, masses = plan.run(values, make_source(8))
    assert sizes.tolist() == [500.0, 1.0]
    assert len(points[0]) == 1
    np.testing.assert_allclose(masses[1], 1 / len(plan.middles))


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


def test_bins_follow_the_budget_and_levels_are_kept_or_merged():
    shapes = [
        HistogramRelease(UnitLayout((0, 5), (3,)), 2, 10_000, epsilon, 0.0).shape
        for epsilon in (0.01, 0.1, 10.0)
    ]
    assert shapes[0] < shapes[1] < shapes[2] and shapes[2][1:] == (5, 3)
    merged = HistogramRelease(UnitLayout((9,), ()), 2, 300, 0.01, 0.0)
    assert merged.shape[0] < 9
    np.testing.assert_array_equal(merged.layout.read(merged.middles)[0], merged.middles)


@by_delta
@pytest.mark.parametrize("name", ["plane", "mixed", "blocks"])
def test_expected_errors_fall_with_the_budget_from_that_of_random_points(delta, name):
    layout = LAYOUTS[name]
    errors = [
        HistogramRelease(layout, 2, 10_000, epsilon, delta).expected_errors(10_000)[0].error
        for epsilon in (1e-8, 0.3, 1.0, 10.0)
    ]
    assert (np.diff(errors) < 0).all()
    assert errors[0] ** 2 == pytest.approx(layout.random_distance)


# ------------------------------------------------------------------------------- sensitivity


def candidates(layout, rng):
    """Return records to start from: ends and middles of numbers, all categories, and none."""
    ends = [[0.0, 0.5, 1.0] if not k else [0.0, 1.0] for k in layout.levels]
    blocks = [np.vstack([np.eye(k), np.zeros(k)]) for k in layout.blocks]
    found = []
    for _ in range(8):
        numbers = [rng.choice(values) for values in ends]
        found.append(np.concatenate([numbers, *(b[rng.integers(len(b))] for b in blocks)]))
    return found


def variants(layout, v, rng):
    """Yield records that differ from one in a single number or block."""
    for j, levels in enumerate(layout.levels):
        values = np.linspace(0, 1, levels) if levels else [0.0, 0.25, 0.5, 0.75, 1.0, rng.random()]
        for value in values:
            yield np.concatenate([v[:j], [value], v[j + 1 :]])
    for block, k in zip(layout.block_slices, layout.blocks, strict=True):
        for entry in np.vstack([np.eye(k), np.zeros(k)]):
            other = v.copy()
            other[block] = entry
            yield other


def worst_neighbours(plan, order, rng):
    """Search for the two records, and their groups, that change the counts most."""
    layout, worst = plan.layout, 0.0
    for trial, start in enumerate(candidates(layout, rng)):
        pair = [start, candidates(layout, rng)[0]]
        groups = [[0], [trial % 2]]

        def change(pair, groups=groups):
            values = [exact_values(plan, v, np.array(g)) for v, g in zip(pair, groups, strict=True)]
            return np.linalg.norm(values[0] - values[1], order)

        largest, improved = change(pair), True
        while improved:
            improved = False
            for which in (0, 1):
                for v in list(variants(layout, pair[which], rng)):
                    proposal = [*pair]
                    proposal[which] = v
                    if (found := change(proposal)) > largest * (1 + 1e-12):
                        largest, pair, improved = found, proposal, True
        worst = max(worst, largest)
    return worst


@by_delta
@pytest.mark.parametrize("name", LAYOUTS)
def test_declared_sensitivity_is_reached_and_never_exceeded(delta, name):
    plan = make_plan(name, n_groups=2, delta=delta)
    order = 1 if delta == 0 else 2
    declared = plan._noise._mechanism.sensitivity
    worst = worst_neighbours(plan, order, np.random.default_rng(0))
    assert 0.95 * declared <= worst <= declared


@by_delta
def test_records_out_of_all_bounds_change_no_more_than_others(delta):
    plan = make_plan(delta=delta)
    rng = np.random.default_rng(2)
    bad = np.array([np.nan, np.inf, -np.inf, 1e300, -7.0, 0.5, 1.0, 0.0, 5e-324])
    order = 1 if delta == 0 else 2
    for _ in range(200):
        V = rng.choice(bad, (2, plan.layout.n_coordinates))
        values = [exact_values(plan, V[i], np.array([rng.integers(-1, 3)])) for i in (0, 1)]
        assert np.linalg.norm(values[0] - values[1], order) <= plan._noise._mechanism.sensitivity


def test_events_are_those_of_the_budget():
    pure, normal = (make_plan(epsilon=2.0, delta=delta).event for delta in (0.0, DELTA))
    assert pure == LaplaceDpEvent(0.5)
    assert isinstance(normal, PlannedDpEvent) and normal.delta == DELTA
    assert isinstance(normal.event, GaussianDpEvent)
