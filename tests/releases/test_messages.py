"""Noise on messages: its laws and scales, what is public, and budgets that are totals."""

import math

import numpy as np
import pytest
from scipy.stats import beta, chi, gamma, kstest, norm

from skdpot.privacy.accounting import plan_epsilon
from skdpot.privacy.events import PlannedDpEvent, PureDpEvent, SelfComposedDpEvent
from skdpot.privacy.noise import rounded_gaussian
from skdpot.privacy.random import make_source
from skdpot.privacy.sensitivity import message_sensitivity
from skdpot.releases import MessageReleases, _nodes
from skdpot.releases._nodes import random_lengths, spherical_slack

DELTA = 1e-6
# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4
SETTINGS = {"utility_range": 4.0, "cap": 5.0, "n_rounds": 4}


def make(epsilon=1.0, delta=DELTA, degrees=(3, 1, 2), source=0, **settings):
    return MessageReleases(epsilon, delta, degrees=degrees, source=source, **(SETTINGS | settings))


def accepted_only(values, law, scale):
    """Tell whether a scale is accepted, and both 0.9 and 1.1 of it are refused."""
    pvalues = [kstest(values / (scale * factor), law).pvalue for factor in (0.9, 1.0, 1.1)]
    return pvalues[0] < 1e-5 and pvalues[1] > RARE and pvalues[2] < 1e-5


@pytest.mark.parametrize("unit", ["parameter", "node"])
@pytest.mark.parametrize("n_rounds", [1, 9])
def test_normal_noise_has_the_scale_of_the_sensitivity_and_of_all_rounds(n_rounds, unit, seed):
    degree, eta, n = 4, 8.0, 3000
    noise = make(degrees=[degree] * n, n_rounds=n_rounds, protect=unit, source=seed)
    released = noise.run(np.full(n * degree, 2.0), eta) - 2.0
    single = noise.node_event(0).event.noise_multiplier
    sensitivity = message_sensitivity(eta, 4.0, 5.0, degree, protect=unit)
    scale = single * math.sqrt(n_rounds) * sensitivity
    assert accepted_only(released, norm.cdf, scale)
    assert noise.standard_deviations(eta)[0] == pytest.approx(scale, rel=1e-5)


@pytest.mark.parametrize("degree", [1, 2, 5])
@pytest.mark.parametrize("n_rounds", [1, 3])
def test_spherical_noise_has_the_radius_of_a_gamma_variable_and_any_direction(
    degree, n_rounds, seed
):
    eta, n = 2.0, 12_000
    noise = make(2.0, 0.0, degrees=[degree] * n, n_rounds=n_rounds, source=seed)
    released = noise.run(np.full(n * degree, 1.0), eta).reshape(n, degree) - 1.0
    radii = np.linalg.norm(released, axis=1)
    scale = message_sensitivity(eta, 4.0, 5.0, degree) * n_rounds / 2.0
    assert accepted_only(radii, gamma(degree).cdf, scale)
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


def test_no_length_is_below_one_that_is_rounded_to_the_same_integers(seed):
    degrees, bits = np.tile([0, 2], 500), _nodes._RADIUS_BITS
    lengths = random_lengths(make_source(seed), degrees)
    drawn = rounded_gaussian(make_source(seed), 2.0**bits, int((degrees + 1).sum()))
    starts = np.cumsum(degrees + 1) - degrees - 1
    longest = np.sqrt(np.add.reduceat((np.abs(drawn) + 0.5) ** 2, starts)) * 2.0**-bits
    assert (lengths >= longest).all()
    np.testing.assert_allclose(lengths[degrees == 0], longest[degrees == 0], rtol=2.0**-28)


def test_slack_is_small_and_grows_with_the_degree():
    slack = spherical_slack(np.array([1, 4, 30, 1000]))
    assert (np.diff(slack) > 0).all()
    assert (slack < [5e-4, 6e-4, 1e-3, 6e-3]).all()


@pytest.mark.parametrize("degree", [1, 4, 30, 1000, 10**5])
def test_slack_is_that_of_the_best_shortest_length(degree):
    """Of ``k (2.4 d + 2000) + 3 h`` with the relative error k of lengths from h on."""
    shift = math.sqrt(degree + 1) / 2**38
    shortest = np.geomspace(1e-8, 1 / 3, 20_001)
    relative = (1 + shift / shortest) * (1 + 2.0**-28) - 1
    best = (relative * (2.4 * degree + 2000) + 3 * shortest).min()
    assert best * (1 - 1e-6) <= spherical_slack(degree) <= best * (1 + 1e-6)


def test_slack_is_infinite_where_no_length_below_a_third_is_best():
    """The best is the root of ``shift (2.4 d + 2000) / 3``."""
    degrees = np.array([11_000_000, 12_000_000])
    best = np.sqrt(np.sqrt(degrees + 1) / 2**38 * (2.4 * degrees + 2000) / 3)
    assert best[0] < 1 / 3 < best[1]
    np.testing.assert_array_equal(np.isfinite(spherical_slack(degrees)), [True, False])


def test_noise_follows_the_penalty_of_the_round_and_of_the_node():
    noise = make()
    each = noise.standard_deviations(8.0)
    np.testing.assert_allclose(noise.standard_deviations(16.0), each / 2, rtol=1e-5)
    mixed = noise.standard_deviations([8.0, 16.0, 8.0])
    np.testing.assert_array_equal(mixed[[0, 2]], each[[0, 2]])
    assert mixed[1] < 0.51 * each[1]


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_roundings_of_computed_messages_do_not_show_in_the_noise(delta):
    bound = make(delta=delta).sensitivities(8.0)
    released = [
        make(delta=delta).round(8.0, *error).run(np.full(6, 2.0), make_source(3))
        for error in ([], [0.0], [2.0**-31 * bound])
    ]
    np.testing.assert_array_equal(released[0], released[1])
    np.testing.assert_array_equal(released[0], released[2])


def test_an_error_of_computed_messages_is_hidden_too():
    noise = make()
    bound = noise.sensitivities(8.0)
    grown = noise.standard_deviations(8.0)
    noise.run(np.zeros(6), 8.0, error=[0.5, 0.0, 0.0])
    _, scales = noise._grids(8.0, [0.5, 0.0, 0.0])
    units, _ = noise._grids(8.0, [0.5, 0.0, 0.0])
    np.testing.assert_allclose((units * scales / grown)[0], (bound[0] + 1.0) / bound[0], rtol=1e-5)
    np.testing.assert_array_equal((units * scales)[1:], grown[1:])


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_what_is_charged_is_the_total_of_the_worst_node(epsilon, delta):
    noise = make(epsilon, delta, factors=[0.25, 1.0, 0.5])
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


def test_pure_shares_never_add_up_to_more():
    for n_rounds in range(1, 60):
        event = make(0.7, 0.0, n_rounds=n_rounds).event
        assert event == SelfComposedDpEvent(PureDpEvent(event.event.epsilon), n_rounds)
        assert event.event.epsilon * n_rounds <= 0.7


def test_rounds_end_with_the_budget():
    noise = make(n_rounds=2)
    for _ in range(2):
        noise.run(np.zeros(6), 8.0)
    with pytest.raises(RuntimeError, match="all 2 rounds"):
        noise.run(np.zeros(6), 8.0)
    assert noise.n_released == 2


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_the_noise_of_a_node_depends_on_its_own_source_alone(delta, seed):
    """Bit by bit, over several rounds, whoever else there is."""
    degrees, caps = [3, 1, 0, 2], np.array([5.0, 2.0, 1.0, 7.0])
    root = make_source(seed)
    together = make(
        delta=delta, degrees=degrees, cap=caps, source=[root.for_user(p) for p in range(4)]
    )
    alone = [
        make(delta=delta, degrees=[d], cap=caps[p], source=[root.for_user(p)])
        for p, d in enumerate(degrees)
    ]
    for eta in (8.0, 3.0, 1.0):
        values = np.random.default_rng(seed).uniform(0, 2, 6)
        parts = np.split(values, np.cumsum(degrees)[:-1])
        own = [node.run(part, eta) for node, part in zip(alone, parts, strict=True)]
        np.testing.assert_array_equal(together.run(values, eta), np.concatenate(own))


@pytest.mark.parametrize("delta", [0.0, DELTA])
@pytest.mark.parametrize("secret", [4.0, 0.5])
def test_what_is_public_gets_no_noise_and_shows_no_rounding(delta, secret):
    """An edge with equal bounds, a node without capacity, and utilities that are no secret."""
    given = {"cap": [2.0, 0.0, 3.0], "least": [2.0, 0.0, 0.0]}
    given["utility_range"] = [secret, secret, 0.0]
    noise = make(delta=delta, degrees=[1, 2, 1], **given)
    released = noise.run([2.0 + 1e-15, 1e-17, 0.0, 1.5], 8.0)
    np.testing.assert_array_equal(released, [2.0, 0.0, 0.0, 1.5])
    np.testing.assert_array_equal(noise.standard_deviations(8.0), [0.0, 0.0, 0.0])


@pytest.fixture
def no_noise(monkeypatch):
    """Take all noise away: what is left are messages on their grids."""
    monkeypatch.setattr(
        _nodes, "rounded_gaussian", lambda source, scale, size: np.zeros(size, dtype=np.int64)
    )


@pytest.mark.parametrize("cap", [5.0, 5e4, 5e13, 1e-200])
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_integers_of_neighbours_are_no_further_apart_than_noise_is_scaled_for(
    cap, delta, no_noise, rng
):
    """Messages at the bound, at the ends and in the middle of the range, on fine grids."""
    eta, degree = 8.0, 3
    noise = make(delta=delta, n_rounds=2000, cap=cap, degrees=[degree], epsilon=100 / 8)
    units, scales = noise._grids(eta, 0.0)
    allowed = scales[0] / noise._multipliers[0]
    bound = noise.sensitivities(eta)[0]
    for _ in range(500):
        direction = rng.standard_normal(degree)
        start = rng.choice([0.0, 0.5, 1.0, rng.random()], degree) * cap
        other = start + direction * bound / np.linalg.norm(direction)
        pair = [noise.run(x, eta) / units[0] for x in np.clip([start, other], 0, cap)]
        assert np.linalg.norm(pair[0] - pair[1]) <= allowed


def test_what_no_message_may_be_is_moved_without_a_word(no_noise):
    noise = make(degrees=[5])
    released = noise.run([-1.0, 9.0, math.nan, math.inf, -math.inf], 8.0)
    np.testing.assert_allclose(released, [0.0, 5.0, 0.0, 5.0, 0.0], atol=1e-6)
    released = make(degrees=[3]).run([None, 10**400, -(10**400)], 8.0)
    np.testing.assert_allclose(released, [0.0, 5.0, 0.0], atol=1e-6)


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"degrees": [1.5]}, "degrees"),
        ({"degrees": []}, "degrees"),
        ({"degrees": [-1]}, "degrees"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"cap": math.inf}, "cap"),
        ({"cap": -1.0}, "cap"),
        ({"least": 6.0}, "least"),
        ({"utility_range": math.nan}, "utility_range"),
        ({"factors": 1.5}, "factors"),
        ({"factors": [1.0, 0.0, 1.0]}, "factors"),
        ({"protect": "edge"}, "protect"),
        ({"source": [None, None]}, "2 sources"),
        ({"delta": 0.0, "n_rounds": 100_000}, "too small"),
        ({"epsilon": 1e-15, "delta": 1e-16}, "larger epsilon"),
    ],
)
def test_parameters_out_of_their_range_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        make(**settings)


@pytest.mark.parametrize("eta", [0.0, math.nan, math.inf])
def test_penalties_are_above_zero_and_finite(eta):
    with pytest.raises(ValueError, match="eta"):
        make().run(np.zeros(6), eta)
    with pytest.raises(ValueError, match="one number for each of 6"):
        make().run(np.zeros(5), 1.0)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"epsilon": 1e-9, "delta": 1e-12, "degrees": [10**6]}, "larger"),
        ({"cap": 1e200}, "at most 1e150"),
        ({"utility_range": np.inf}, "utility_range must be finite"),
        ({"epsilon": 1e-305}, "epsilon must be above"),
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


def test_noise_that_is_not_refused_can_be_drawn():
    """Whatever the penalty is, also for the smallest budget that is not refused."""

    def of_budget(epsilon):
        return make(epsilon, 1e-12, degrees=[10**6], n_rounds=1)

    refused, accepted = 1e-12, 1e-6
    for _ in range(30):
        middle = math.sqrt(refused * accepted)
        try:
            of_budget(middle)
            accepted = middle
        except ValueError:
            refused = middle
    noise = of_budget(accepted)
    scales = [noise._grids(eta, 0.0)[1][0] for eta in (1e-9, 1.0, 1e9)]
    assert 2.0**36 < max(scales) <= 2.0**40
    with pytest.raises(ValueError, match="noise would be too large"):
        of_budget(refused)
