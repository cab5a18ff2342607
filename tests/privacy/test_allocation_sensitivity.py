"""Bounds on what private utilities move: no worse case is found, and they are attained."""

import itertools
import math

import numpy as np
import pytest

from skdpot.privacy.sensitivity import marginal_bounds, message_error, message_sensitivity
from tests.oracles.allocation import node_message, project_rows

UNITS = ["parameter", "node"]


def projected(y, least, cap):
    """Return the message of linear utilities, with eta 1 and slopes in y."""
    return node_message("linear", (y,), 0.0, 1.0, np.zeros(len(y)), least, cap)


def test_the_two_oracles_agree(rng):
    points = rng.standard_normal((50, 4)) * 2
    one_by_one = [projected(point, 0.0, 1.0) for point in points]
    np.testing.assert_allclose(project_rows(points, 1.0), one_by_one, atol=1e-12)


def attained_cases():
    """Yield y, g, least, cap, and the unit, where the bound is attained."""
    for d, s in itertools.product([1, 2, 5], [0.1, 0.2]):
        yield np.zeros(d), s * np.eye(d)[0], 0.0, 1.0, "parameter"
        yield np.zeros(d), np.full(d, s), 0.0, d * s, "node"
    for m in (1, 2, 7):
        # All that others have goes to one, which reaches the cap.
        others = np.concatenate([[0.0], np.full(m, 1 / m)])
        yield others, (1 + 1 / m) * np.eye(m + 1)[0], 0.0, 1.0, "parameter"
        halves = np.repeat([0.0, 1 / m], m)
        yield halves, np.repeat([1 / m, -1 / m], m), 0.0, 1.0, "node"
    yield np.array([0.0, 1.0]), np.array([9.0, 0.0]), 0.5, 1.0, "parameter"
    for d in (1, 2, 3, 6):
        level = np.full(d, 1.0 / d)
        signs = np.where(np.arange(d) < (d + 1) // 2, 1.0, -1.0)
        yield level, 0.1 * np.eye(d)[0], 1.0, 1.0, "parameter"
        yield level, 0.1 * signs, 1.0, 1.0, "node"
    for unit in UNITS:
        yield np.array([0.25]), np.array([5.0]), 0.25, 1.0, unit


@pytest.mark.parametrize("y, g, least, cap, unit", list(attained_cases()))
def test_bounds_are_attained(y, g, least, cap, unit):
    moved = np.linalg.norm(projected(y + g, least, cap) - projected(y, least, cap))
    s = np.abs(g).max()
    bound = message_sensitivity(1.0, s, cap, len(y), least=least, protect=unit)
    assert moved == pytest.approx(bound, rel=1e-9, abs=1e-12)


def utilities(family, rng, d, spread):
    """Return parameters of two neighbours' utilities on d edges, at ends of their ranges."""
    ranges = {"a": (1.0, 1.0 + spread)}
    if family == "quadratic":
        ranges["b"] = (0.3, 0.3 + spread / 2)
    if family == "log":
        ranges["c"] = (0.5, 0.5 + spread / 3)
    pairs = [np.array(ranges[name])[rng.integers(0, 2, (2, d))] for name in ranges]
    return ranges, [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def climb(distance, start, rng, n_steps):
    """Return the largest distance that a random search finds."""
    best, found, width = start, distance(start), 0.5
    for _ in range(n_steps):
        step = rng.standard_normal(start.shape) * width * (rng.random(start.shape) < 0.5)
        moved = distance(best + step)
        if moved > found:
            best, found = best + step, moved
        else:
            width = max(0.97 * width, 1e-3)
    return found


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("family", ["linear", "quadratic", "log"])
def test_no_search_finds_a_worse_case(family, unit, rng):
    """Over z and the multipliers of the round, utilities, bounds, degrees and penalties."""
    shares = []
    for _ in range(12):
        d, eta = int(rng.integers(1, 6)), float(np.exp(rng.uniform(-1, 2)))
        cap = float(np.exp(rng.uniform(-1, 1)))
        least = cap * rng.choice([0.0, 0.4, 1.0])
        ranges, ours, theirs = utilities(family, rng, d, float(np.exp(rng.uniform(-2, 2))))
        if unit == "parameter":
            theirs = [np.where(np.arange(d) == 0, n, o) for o, n in zip(ours, theirs, strict=True)]
        spread, curvature = marginal_bounds(family, ranges, cap)
        how = {"least": least, "curvature": curvature, "protect": unit}
        bound = message_sensitivity(eta, spread, cap, d, **how)

        def distance(state, ours=ours, theirs=theirs, eta=eta, least=least, cap=cap):
            sent = [
                node_message(family, u, state[1], eta, state[0], least, cap) for u in (ours, theirs)
            ]
            return np.linalg.norm(sent[0] - sent[1])

        found = climb(distance, rng.standard_normal((2, d)) * cap, rng, 60)
        assert found <= bound * (1 + 1e-9) + 1e-9
        shares.append(found / bound if bound else 1.0)
    assert max(shares) > 0.8


@pytest.mark.parametrize("family", ["linear", "quadratic", "log"])
def test_marginal_bounds_are_those_of_a_grid_of_members(family):
    ranges = {"a": (0.5, 2.0), "b": (0.2, 0.7), "c": (0.4, 1.1)}
    cap, x = 1.5, np.linspace(0, 1.5, 31)
    spread, curvature = marginal_bounds(family, ranges, cap)
    a, b, c = np.meshgrid(*[np.linspace(*ranges[name], 7) for name in "abc"])
    a, b, c = (value.reshape(-1, 1) for value in (a, b, c))
    marginal, bend = {
        "linear": (a + 0 * x, 0 * a * x),
        "quadratic": (a - b * x, b + 0 * x),
        "log": (a / (c + x), a / (c + x) ** 2),
    }[family]
    assert (marginal.max(axis=0) - marginal.min(axis=0)).max() == pytest.approx(spread)
    assert bend.min() == pytest.approx(curvature)


@pytest.mark.parametrize(
    "family, ranges, match",
    [
        ("cubic", {"a": (0, 1)}, "family"),
        ("linear", {}, "missing"),
        ("linear", {"a": (2, 1)}, "low <= high"),
        ("linear", {"a": (0, math.inf)}, "finite"),
        ("quadratic", {"a": (0, 1), "b": (-1, 1)}, "concave"),
        ("log", {"a": (0, 1), "c": (0, 1)}, "concave"),
        ("log", {"a": (-1, 1), "c": (1, 1)}, "concave"),
    ],
)
def test_ranges_that_bound_nothing_are_refused(family, ranges, match):
    with pytest.raises(ValueError, match=match):
        marginal_bounds(family, ranges, 1.0)


@pytest.mark.parametrize("unit", UNITS)
def test_a_curvature_hides_as_much_as_a_penalty(unit):
    """Where there is no cap: s for a parameter, and the root of d times s for a node."""
    bound = message_sensitivity(0.5, 3.0, math.inf, 4, curvature=1.5, protect=unit)
    assert bound == pytest.approx(1.5 * (1.0 if unit == "parameter" else 2.0), rel=1e-11)
    assert type(bound) is float
    bounds = message_sensitivity([0.5, 2.0], 3.0, math.inf, 4, curvature=1.5, protect=unit)
    assert bounds.tolist() == [bound, message_sensitivity(3.5, 3.0, math.inf, 4, protect=unit)]


@pytest.mark.parametrize("iterative, rounding", [(False, 2.0**-50), (True, 2.0**-42)])
def test_errors_of_messages_are_roundings_of_what_is_added_up(iterative, rounding):
    """``sqrt(d) (d + 16) M / eta`` roundings with ``M = reach + marginal + eta (cap + scale)``."""
    options = {"reach": 10.0, "max_marginal": 4.0, "iterative": iterative}
    found = message_error(0.5, [3.0, 0.0], [4, 4], max_scale=1.0, **options)
    size = 10.0 + 4.0 + 0.5 * (3.0 + 1.0)
    assert found[0] == pytest.approx(rounding * 2.0 * 20.0 * size / 0.5)
    assert found[1] == 0.0
    assert message_error(0.5, 3.0, 4, **options) == pytest.approx(rounding * 40.0 * 15.5 / 0.5)
    # Two messages within the bounds are no further apart than this, whatever was computed.
    assert message_error(1e-30, 3.0, 4, **options) == pytest.approx(2.0 * 3.0 / 2.0)
