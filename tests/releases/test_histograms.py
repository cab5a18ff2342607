"""Noise of private groups: what it has to cover, searched for, and which law it has."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, laplace, norm

from skdpot.privacy.events import GaussianDpEvent, LaplaceDpEvent, PlannedDpEvent
from tests.oracles.private_groups import (
    DELTA,
    LAYOUTS,
    exact_values,
    make_plan,
    noisy_values,
    random_records,
)

RARE = 1e-4
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


# ------------------------------------------------------------------------------- noise


@by_delta
def test_noise_has_this_scale_and_no_other(delta):
    """Noise of counts has a deviation of 20 and more here, so that rounding does not show."""
    plan = make_plan("plane", n_groups=6000, epsilon=0.1, delta=delta)
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
    plan = make_plan("line", 1000, 10**6, epsilon=4.0, delta=delta)
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


def test_events_are_those_of_the_budget():
    pure, normal = (make_plan(epsilon=2.0, delta=delta).event for delta in (0.0, DELTA))
    assert pure == LaplaceDpEvent(0.5)
    assert isinstance(normal, PlannedDpEvent) and normal.delta == DELTA
    assert isinstance(normal.event, GaussianDpEvent)
