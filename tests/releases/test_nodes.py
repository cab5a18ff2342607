"""Releases of nodes of a network: noise on messages and utilities, budgets, what is public."""

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta, chi, kstest

from skdpot.privacy.accounting import plan_epsilon
from skdpot.privacy.audit import exact_audit
from skdpot.privacy.events import LaplaceDpEvent, PlannedDpEvent, PureDpEvent, SelfComposedDpEvent
from skdpot.privacy.noise import make_source
from skdpot.privacy.sensitivity import message_sensitivity
from skdpot.releases import MessageReleases, UtilityNoise, UtilityResponse, _nodes
from skdpot.releases._nodes import explained_share, random_lengths, spherical_slack

DELTA = 1e-6
# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4
SETTINGS = {"utility_range": 4.0, "cap": 5.0, "n_rounds": 4}


def of_messages(epsilon=1.0, delta=DELTA, degrees=(3, 1, 2), source=0, **settings):
    return MessageReleases(epsilon, delta, degrees=degrees, source=source, **(SETTINGS | settings))


@pytest.mark.parametrize("degree, n_rounds", [(1, 3), (5, 1)])
def test_spherical_noise_has_its_standard_deviation_and_any_direction(degree, n_rounds, seed):
    eta, n = 2.0, 12_000
    noise = of_messages(2.0, 0.0, degrees=[degree] * n, n_rounds=n_rounds, source=seed)
    released = noise.run(np.full(n * degree, 1.0), eta).reshape(n, degree) - 1.0
    radii = np.linalg.norm(released, axis=1)
    scale = message_sensitivity(eta, 4.0, 5.0, degree) * n_rounds / 2.0
    expected = scale * math.sqrt(degree + 1)
    assert noise.standard_deviations(eta)[0] == pytest.approx(expected, rel=6e-3)
    assert released.std() == pytest.approx(expected, rel=0.05)
    if degree > 1:
        along = (released[:, 0] / radii) ** 2
        assert kstest(along, beta(0.5, (degree - 1) / 2).cdf).pvalue > RARE
    assert abs((released[:, 0] > 0).mean() - 0.5) < 4 * 0.5 / math.sqrt(n)


def test_lengths_are_those_of_vectors_with_a_coordinate_more_and_node_by_node(seed):
    degrees = np.tile([1, 2, 0, 6], 3000)
    lengths = random_lengths(make_source(seed), degrees)
    for degree in (0, 1, 2, 6):
        assert kstest(lengths[degrees == degree], chi(degree + 1).cdf).pvalue > RARE


@pytest.mark.parametrize("degree", [1, 30, 10**5])
def test_slack_is_that_of_the_best_shortest_length(degree):
    """Of ``k (2.4 d + 2000) + 3 h`` with the relative error k of lengths from h on."""
    shift = math.sqrt(degree + 1) / 2**38
    shortest = np.geomspace(1e-8, 1 / 3, 20_001)
    relative = (1 + shift / shortest) * (1 + 2.0**-28) - 1
    best = (relative * (2.4 * degree + 2000) + 3 * shortest).min()
    assert best * (1 - 1e-6) <= spherical_slack(degree) <= best * (1 + 1e-6)


def test_noise_follows_the_penalty_of_the_round_and_of_the_node():
    noise = of_messages()
    each = noise.standard_deviations(8.0)
    np.testing.assert_allclose(noise.standard_deviations(16.0), each / 2, rtol=1e-5)
    mixed = noise.standard_deviations([8.0, 16.0, 8.0])
    np.testing.assert_array_equal(mixed[[0, 2]], each[[0, 2]])
    assert mixed[1] < 0.51 * each[1]


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_roundings_of_computed_messages_do_not_show_in_the_noise(delta):
    bound = of_messages(delta=delta).sensitivities(8.0)
    released = [
        of_messages(delta=delta, source=3).run(np.full(6, 2.0), 8.0, **error)
        for error in ({}, {"error": 0.0}, {"error": 2.0**-31 * bound})
    ]
    np.testing.assert_array_equal(released[0], released[1])
    np.testing.assert_array_equal(released[0], released[2])


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_what_is_charged_is_the_total_of_the_worst_node(epsilon, delta):
    noise = of_messages(epsilon, delta, factors=[0.25, 1.0, 0.5])
    np.testing.assert_allclose(noise.epsilons, epsilon * np.array([0.25, 1.0, 0.5]))
    for node, total in enumerate(noise.epsilons):
        price = plan_epsilon(noise.node_event(node), delta, neighbouring="replace_one")
        assert price <= total * (1 + 1e-12)
        assert price == pytest.approx(total, rel=1e-6)
    assert noise.event == noise.node_event(1)
    deviations = noise.standard_deviations(8.0)
    assert deviations[0] > deviations[1]
    kind = PlannedDpEvent if delta else SelfComposedDpEvent
    assert isinstance(noise.event, kind)


def test_rounds_end_with_the_budget():
    noise = of_messages(n_rounds=2)
    for _ in range(2):
        noise.run(np.zeros(6), 8.0)
    with pytest.raises(RuntimeError, match="all 2 rounds"):
        noise.run(np.zeros(6), 8.0)
    assert noise.n_released == 2


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("secret", [4.0, 0.5])
def test_what_is_public_gets_no_noise_and_shows_no_rounding(delta, secret):
    """An edge with equal bounds, a node without capacity, and utilities that are no secret."""
    given = {"cap": [2.0, 0.0, 3.0], "least": [2.0, 0.0, 0.0]}
    given["utility_range"] = [secret, secret, 0.0]
    noise = of_messages(delta=delta, degrees=[1, 2, 1], **given)
    released = noise.run([2.0 + 1e-15, 1e-17, 0.0, 1.5], 8.0)
    np.testing.assert_array_equal(released, [2.0, 0.0, 0.0, 1.5])
    np.testing.assert_array_equal(noise.standard_deviations(8.0), [0.0, 0.0, 0.0])


@pytest.fixture
def no_noise(monkeypatch):
    """Take all noise away: what is left are messages on their grids."""
    monkeypatch.setattr(_nodes, "rounded_gaussian", lambda s, e, k: np.zeros(k, dtype=np.int64))


@pytest.mark.parametrize("cap", [5.0, 5e4, 5e13, 1e-200])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_integers_of_neighbours_are_no_further_apart_than_noise_is_scaled_for(
    cap, delta, no_noise, rng
):
    """Messages at the bound, at the ends and in the middle of the range, on fine grids."""
    eta, shape = 8.0, (500, 3)
    degrees = np.full(500, 3)
    noise = of_messages(delta=delta, n_rounds=2000, cap=cap, degrees=degrees, epsilon=100 / 8)
    units, scales = noise._grids(eta, 0.0)
    allowed = scales[0] / noise._multipliers[0]
    bound = noise.sensitivities(eta)[0]
    direction = rng.standard_normal(shape)
    marks, anywhere = rng.choice([0.0, 0.5, 1.0], shape), rng.random(shape)
    start = np.where(rng.random(shape) < 0.75, marks, anywhere) * cap
    other = start + direction * bound / np.linalg.norm(direction, axis=1, keepdims=True)
    pair = [noise.run(x.ravel(), eta) / units[0] for x in np.clip([start, other], 0, cap)]
    assert (np.linalg.norm((pair[0] - pair[1]).reshape(shape), axis=1) <= allowed).all()


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"cap": math.inf}, "cap"),
        ({"utility_range": math.nan}, "utility_range"),
        ({"delta": 0.0, "n_rounds": 100_000}, "too small"),
        ({"epsilon": 1e-15, "delta": 1e-16}, "larger epsilon"),
    ],
)
def test_parameters_of_messages_out_of_their_range_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        of_messages(**settings)


@pytest.mark.parametrize("eta", [0.0, math.nan, math.inf])
def test_penalties_are_above_zero_and_finite(eta):
    with pytest.raises(ValueError, match="eta"):
        of_messages().run(np.zeros(6), eta)
    with pytest.raises(ValueError, match="one number for each of 6"):
        of_messages().run(np.zeros(5), 1.0)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"epsilon": 1e-9, "delta": 1e-12, "degrees": [10**6]}, "larger"),
        ({"delta": 0.0, "degrees": [10**15]}, "too small for noise without a delta"),
    ],
)
def test_noise_that_cannot_be_drawn_is_refused_before_any_round(settings, message):
    given = {
        "epsilon": 1.0, "delta": 1e-5, "n_rounds": 1, "degrees": [4], "utility_range": 1.0,
        "cap": 1.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        MessageReleases(**given | settings)


KINDS = [UtilityNoise, UtilityResponse]
EPSILONS = [0.3, 1.0, 4.0, 20.0]


def of_utilities(kind, epsilon=1.0, degrees=(3, 0, 2), **settings):
    return kind(epsilon, degrees=degrees, **({"low": 1.0, "high": 5.0} | settings))


# Laplace noise
# -------------


@pytest.mark.parametrize("low, high", [(1.0, 5.0), (-0.1, 0.2), (1e-250, 3e-250), (1e15, 1e15 + 3)])
def test_integers_of_parameters_never_exceed_the_units_of_the_range(low, high, monkeypatch, rng):
    """So that no rounding adds to the sensitivity."""
    monkeypatch.setattr(_nodes, "rounded_laplace", lambda s, e, k: np.zeros(k, dtype=np.int64))
    given = [low, high, math.nan, math.inf, -math.inf, np.nextafter(high, 0.0), *rng.random(50)]
    noise = of_utilities(UtilityNoise, degrees=[len(given)], low=low, high=high)
    unit = Fraction(noise._units[0])
    n_units = Fraction(high - low) / unit
    assert noise._grid_scales[0] >= n_units
    released = noise.run(given, make_source(0))
    assert released.min() == low
    assert Fraction(released.max()) - Fraction(low) <= n_units * unit + Fraction(np.spacing(high))


# Randomised response
# -------------------


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 20.0, 1000.0])
def test_ratios_of_probabilities_are_bounded_exactly_as_integers_are_drawn(epsilon):
    """With the coin, and the bias of a remainder, as they are."""
    response = of_utilities(UtilityResponse, epsilon, [1])
    k = int(response.n_levels[0])
    kept = Fraction(math.floor(math.ldexp(response._keep[0], 62)), 1 << 62)
    rarest = Fraction((1 << 62) // k, 1 << 62)
    ratio = 1 + kept / ((1 - kept) * rarest)
    assert math.log(ratio) <= epsilon
    if epsilon < 20:
        assert math.log(ratio) == pytest.approx(epsilon, rel=1e-5)
        others = int((1 - kept) * (1 << 60) / k)
        weights = np.full((k, k), others) + np.eye(k, dtype=int) * ((1 << 60) - k * others)
        assert exact_audit(weights).epsilon == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_estimates_explain_as_much_as_is_said_and_no_number_of_levels_explains_more(
    epsilon, seed, rng
):
    n = 40_000
    response = of_utilities(UtilityResponse, epsilon, [n])
    values = rng.uniform(1, 5, n)
    error = np.mean((response.estimate(response.run(values, make_source(seed))) - values) ** 2) / (
        16 / 12
    )
    share = float(explained_share(epsilon, response.n_levels[0]))
    assert 1 - error == pytest.approx(share, abs=0.02)
    assert share == pytest.approx(explained_share(epsilon, np.arange(2, 5000)).max(), rel=1e-3)
    laplace_noise = of_utilities(UtilityNoise, epsilon, [n])
    released = laplace_noise.estimate(laplace_noise.run(values, make_source(seed)))
    assert np.mean((released - values) ** 2) / (16 / 12) > error


@pytest.mark.parametrize("epsilon, n_answers", [(1.0, 1), (10.0, 4), (100.0, 30)])
def test_a_node_answers_for_so_many_edges_that_answers_say_something(epsilon, n_answers, seed):
    degrees = [30] * 400
    response = of_utilities(UtilityResponse, epsilon, degrees, protect="node")
    assert (response.n_answers == n_answers).all()
    levels = response.run(np.full(30 * 400, 5.0), make_source(seed)).reshape(400, 30)
    answered = levels >= 0
    assert (answered.sum(axis=1) == n_answers).all()
    expected, spread = 400 * n_answers / 30, math.sqrt(400 * n_answers / 30)
    assert (np.abs(answered.sum(axis=0) - expected) <= 5 * spread).all()
    estimates = response.estimate(levels.ravel()).reshape(400, 30)
    assert (estimates[~answered] == 3.0).all()
    assert (estimates[answered] != 3.0).any()


def test_who_answers_does_not_depend_on_parameters(seed):
    answered = [
        of_utilities(UtilityResponse, 5.0, [20, 10], protect="node").run(values, make_source(seed))
        >= 0
        for values in (np.full(30, 1.0), np.linspace(0, 9, 30))
    ]
    np.testing.assert_array_equal(*answered)


# Both
# ----


@pytest.mark.parametrize("protect", ["parameter", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_charged_is_the_worst_node(kind, protect):
    noise = of_utilities(kind, 7.0, protect=protect, factors=[0.25, 0.5, 1.0])
    np.testing.assert_allclose(noise.epsilons, [1.75, 3.5, 7.0])
    for node in (0, 2):
        price = plan_epsilon(noise.node_event(node), 0.0, neighbouring="replace_one")
        assert price <= noise.epsilons[node]
        assert price == pytest.approx(noise.epsilons[node], rel=1e-12)
    events = {UtilityNoise: LaplaceDpEvent, UtilityResponse: PureDpEvent}
    assert isinstance(noise.event, events[kind])
    assert plan_epsilon(noise.event, 0.0, neighbouring="replace_one") == pytest.approx(7.0)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_out_of_the_range_count_as_its_ends(kind):
    given = [1.0, 1.0, 1.0, 5.0, 5.0], [-9.0, math.nan, -math.inf, 9.0, math.inf]
    released = [of_utilities(kind, degrees=[5]).run(values, make_source(3)) for values in given]
    np.testing.assert_array_equal(released[0], released[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value",
    [None, 10**400, Decimal("sNaN"), np.longdouble("1e4000"), np.uint64(2**63)],
    ids=["missing", "int", "Decimal", "longdouble", "uint64"],
)
def test_no_number_makes_a_release_fail_or_warn(kind, value):
    """An error would tell of it after the charge."""
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(of_utilities(kind, degrees=[2]).run([value, 3.0], make_source(0))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings, match", [({"epsilon": 0.0}, "epsilon"), ({"protect": "edge"}, "protect")]
)
def test_parameters_out_of_their_range_are_refused(kind, settings, match):
    with pytest.raises(ValueError, match=match):
        of_utilities(kind, **settings)
