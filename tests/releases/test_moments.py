"""Noise of private groups: what it has to cover, searched for, and which law it has."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, laplace, norm

from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from skdpot.privacy.sensitivity import moment_sensitivities
from skdpot.releases._moment_weights import importance, weights
from tests.oracles.private_groups import (
    DELTA,
    LAYOUTS,
    SMALL,
    exact_values,
    make_plan,
    noisy_values,
    random_records,
)

RARE = 1e-4
by_layout = pytest.mark.parametrize("name", LAYOUTS)
by_kind = pytest.mark.parametrize("kind", ["histogram", "moments"])
by_delta = pytest.mark.parametrize("delta", [0.0, DELTA])


# ------------------------------------------------------------------------------- sensitivity


def candidates(layout, rng):
    """Return records to start from: ends and middles of numbers, all categories, and none."""
    ends = [[0.0, 0.5, 1.0] if not k else [0.0, 1.0] for k in layout.levels]
    blocks = [np.vstack([np.eye(k), np.zeros(k)]) for k in layout.blocks]
    found = []
    for _ in range(8):
        numbers = [rng.choice(values) for values in ends]
        found.append(
            np.concatenate([numbers, *(block[rng.integers(len(block))] for block in blocks)])
        )
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
    """Search for the two records, and their groups, that change the moments most."""
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


@by_kind
@by_delta
@pytest.mark.parametrize("name", SMALL)
def test_declared_sensitivity_is_reached_and_never_exceeded(kind, delta, name):
    plan = make_plan(kind, name, n_groups=2, delta=delta)
    order = 1 if delta == 0 else 2
    declared = plan._noise._mechanism.sensitivity
    worst = worst_neighbours(plan, order, np.random.default_rng(0))
    assert 0.95 * declared <= worst <= declared


FEATURES = {
    "one number": (1, 0, ()),
    "two numbers": (2, 0, ()),
    "number and binary": (1, 1, ()),
    "block": (0, 0, ((3, 3, 1),)),
    "blocks": (0, 0, ((2, 2, 2), (3, 3, 1))),
    "number and block": (1, 0, ((3, 3, 1),)),
}


@pytest.mark.parametrize("features", FEATURES)
def test_sensitivities_hold_for_all_records_on_a_coarse_grid_and_all_multipliers(features):
    """Also where the multiplier of the counts is so small that it is worst to stay in a group."""
    h, (n_continuous, n_binary, blocks) = 2, FEATURES[features]
    values = [[(u,) for u in range(-h, h + 1)]] * n_continuous + [[(-h,), (h,)]] * n_binary
    for k, own, other in blocks:
        vertices = np.full((k, k), -other) + np.diag([own + other] * k)
        values.append([*map(tuple, vertices.tolist()), (0,) * k])
    records = [[np.array(value) for value in record] for record in itertools.product(*values)]
    sums = np.array([np.concatenate(record) for record in records])
    products = [
        np.concatenate(
            [np.outer(a, b).ravel() for a, b in itertools.combinations(record, 2)] or [[0]]
        )
        for record in records
    ]
    spreads = h**2 - sums[:, :n_continuous] ** 2
    rng = np.random.default_rng(1)
    reached = []
    for _ in range(60):
        k0, k1, k2, k3 = (int(k) for k in rng.integers(0, 12, 4) * rng.integers(0, 2, 4))
        added = np.hstack(
            [np.full((len(records), 1), k0), k1 * sums, k2 * np.array(products), k3 * spreads]
        )
        l1, l2 = moment_sensitivities(
            (k0, k1, k2, k3), h, n_continuous=n_continuous, n_binary=n_binary, blocks=blocks
        )
        lengths, norms = np.abs(added).sum(axis=1), (added**2).sum(axis=1)
        one_l1, one_l2 = moment_sensitivities(
            (k0, k1, k2, k3), h, n_continuous=n_continuous, n_binary=n_binary, blocks=blocks,
            relation="add_remove",
        )  # fmt: skip
        assert lengths.max() <= one_l1 and 2 * one_l1 == pytest.approx(l1)
        assert math.sqrt(norms.max()) <= one_l2 == pytest.approx(math.sqrt(norms.max()))
        staying = ((added[:, None] - added) ** 2).sum(axis=2).max()
        assert 2 * lengths.max() <= l1
        assert math.sqrt(max(2 * norms.max(), staying)) <= l2
        if k1 >= 2 * k3 * h:
            assert 2 * lengths.max() == pytest.approx(l1)
        if l2 == pytest.approx(math.sqrt(2 * norms.max())):
            reached.append("moving")
        elif l2 == pytest.approx(math.sqrt(staying)):
            reached.append("staying")
    assert reached.count("moving") >= 5 and (features != "one number" or "staying" in reached)


@by_kind
@by_delta
def test_records_out_of_all_bounds_change_no_more_than_others(kind, delta):
    plan = make_plan(kind, delta=delta)
    rng = np.random.default_rng(2)
    bad = np.array([np.nan, np.inf, -np.inf, 1e300, -7.0, 0.5, 1.0, 0.0, 5e-324])
    order = 1 if delta == 0 else 2
    for _ in range(200):
        V = rng.choice(bad, (2, plan.layout.n_coordinates))
        values = [exact_values(plan, V[i], np.array([rng.integers(-1, 3)])) for i in (0, 1)]
        assert np.linalg.norm(values[0] - values[1], order) <= plan._noise._mechanism.sensitivity


@pytest.mark.parametrize("n_records", [1, 10**4, 10**9, 10**12])
@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 1e5])
@by_delta
def test_sums_of_as_many_records_as_there_are_stay_exact(n_records, epsilon, delta):
    plan = make_plan("moments", n_records=n_records, epsilon=epsilon, delta=delta)
    assert n_records * plan._sensitivities()()[1] <= 2**52
    assert all(isinstance(k, int) for k in plan.multipliers)
    assert plan._noise._mechanism.granularity == 1.0 and plan._noise._mechanism.on_grid


def test_sums_are_those_of_exact_arithmetic():
    plan, rng = make_plan("moments"), np.random.default_rng(3)
    V, codes = random_records(plan.layout, 500, rng), rng.integers(-1, 3, 500)
    k0, k1, k2, k3 = plan.multipliers
    expected = [[0] * plan.n_moments for _ in range(3)]
    for row, code in zip(plan.on_grid(V).astype(np.int64).tolist(), codes, strict=True):
        if code < 0:
            continue
        products = [k2 * row[i] * row[j] for i, j in zip(*plan.pairs, strict=True)]
        spreads = [k3 * (plan.half_width**2 - row[j] ** 2) for j in plan.continuous]
        added = [k0, *(k1 * u for u in row), *products, *spreads]
        expected[code] = [a + b for a, b in zip(expected[code], added, strict=True)]
    np.testing.assert_array_equal(plan.values(V, codes), expected)


@pytest.mark.parametrize("name", ["plane", "mixed", "wide"])
def test_spreads_are_free_up_to_their_weight(name):
    plan = make_plan("moments", name)
    options = {
        "n_continuous": len(plan.continuous),
        "n_binary": int(plan.layout.binary.sum()),
        "blocks": plan.vertices,
    }
    k0, k1, k2, k3 = plan.multipliers
    _, l2 = plan._sensitivities()()
    _, with_none = moment_sensitivities((k0, k1, k2, 0), plan.half_width, **options)
    _, with_more = moment_sensitivities((k0, k1, k2, 2 * k3), plan.half_width, **options)
    assert l2 == pytest.approx(with_none, rel=0.02) and with_more > 1.1 * l2


@by_layout
@by_delta
def test_no_other_weights_are_much_better(name, delta):
    layout = LAYOUTS[name]
    plan, pays = make_plan("moments", name, delta=delta), importance(layout)

    def error(factors):
        multipliers = tuple(round(k * f) for k, f in zip(plan.multipliers, factors, strict=True))
        norms = moment_sensitivities(
            multipliers,
            plan.half_width,
            n_continuous=len(plan.continuous),
            n_binary=int(layout.binary.sum()),
            blocks=plan.vertices,
        )
        units = np.array(multipliers) * (2.0 * plan.half_width) ** np.array([0, 1, 2, 2])
        used = pays > 0
        return norms[0 if delta == 0 else 1] ** 2 * (pays[used] / units[used] ** 2).sum()

    chosen = error(np.ones(4))
    others = [error(f) for f in itertools.product([0.7, 1.0, 1.4], repeat=4)]
    assert chosen <= 1.15 * min(others)
    assert (weights(layout, delta)[pays > 0] > 0).all()


# ------------------------------------------------------------------------------- noise


@by_delta
@by_kind
def test_noise_has_this_scale_and_no_other(kind, delta):
    """Noise of counts has a deviation of 20 and more here, so that rounding does not show."""
    plan = make_plan(kind, "plane", n_groups=6000, epsilon=0.1, delta=delta)
    V, codes = random_records(plan.layout, 500, np.random.default_rng(0)), np.arange(500)
    noise = noisy_values(plan, V, codes, 1) - exact_values(plan, V, codes)
    mechanism = plan._noise._mechanism
    ideal = mechanism.sensitivity * (1 / 0.1 if delta == 0 else mechanism.noise_multiplier)
    law = laplace if delta == 0 else norm
    # Rounded noise is spread evenly again.
    noise = noise + np.random.default_rng(2).uniform(-0.5, 0.5, len(noise))
    assert kstest(noise[:24_000] / ideal, law.cdf).pvalue > RARE
    for factor in (0.9, 1.1):
        assert kstest(noise[:24_000] / (ideal * factor), law.cdf).pvalue < RARE


@by_delta
def test_noise_of_counts_has_the_exact_probabilities(delta):
    plan = make_plan("histogram", "line", 1000, 10**6, epsilon=4.0, delta=delta)
    V, codes = np.full((1, 1), 0.5), np.array([7])
    noise = noisy_values(plan, V, codes, 3) - exact_values(plan, V, codes)
    law = laplace if delta == 0 else norm
    scale = 2.0 / 4.0 if delta == 0 else math.sqrt(2) * plan._noise._mechanism.noise_multiplier
    reach = 3 if delta == 0 else 6

    def chance(scale):
        inside = np.arange(-reach, reach + 2) - 0.5
        masses = np.diff(law.cdf(inside / scale))
        expected = np.array([*masses, 1 - masses.sum()]) * len(noise)
        inside = np.abs(noise) <= reach
        counts = np.bincount((noise[inside] + reach).astype(int), minlength=2 * reach + 1)
        return chisquare([*counts, (~inside).sum()], expected).pvalue

    assert len(noise) > 20_000 and (noise == np.rint(noise)).all()
    assert chance(scale) > RARE
    assert chance(0.9 * scale) < RARE and chance(1.1 * scale) < RARE


@by_kind
def test_events_are_those_of_the_budget(kind):
    pure, normal = (make_plan(kind, epsilon=2.0, delta=delta).event for delta in (0.0, DELTA))
    assert pure == LaplaceDpEvent(0.5)
    assert isinstance(normal, PlannedDpEvent) and normal.delta == DELTA
    assert isinstance(normal.event, GaussianDpEvent)
