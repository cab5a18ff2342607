"""Utilities that are released once: laws, exact ratios of probabilities, means, and budgets."""

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare, expon, kstest

from skdpot.privacy.accounting import plan_epsilon
from skdpot.privacy.audit import exact_audit
from skdpot.privacy.events import LaplaceDpEvent, PureDpEvent
from skdpot.privacy.random import make_source
from skdpot.releases import UtilityNoise, UtilityResponse, _nodes
from skdpot.releases._nodes import _best_levels, explained_share

KINDS = [UtilityNoise, UtilityResponse]
EPSILONS = [0.3, 1.0, 4.0, 20.0]
# Of the tests that accept: their seeds are made of their names.
RARE = 1e-4


def make(kind, epsilon=1.0, degrees=(3, 0, 2), **settings):
    return kind(epsilon, degrees=degrees, **({"low": 1.0, "high": 5.0} | settings))


# Laplace noise
# -------------


@pytest.mark.parametrize("protect", ["parameter", "node"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_laplace_noise_has_the_scale_of_the_range_or_of_a_whole_node(epsilon, protect, seed):
    n, degree = 3000, 4
    noise = make(UtilityNoise, epsilon, [degree] * n, protect=protect)
    width = 4.0 * (degree if protect == "node" else 1)
    assert noise.sensitivity("replace_one") == width
    scale = width / epsilon
    np.testing.assert_allclose(noise.scales, scale, rtol=1e-9)
    drawn = np.abs(noise.run(np.full(n * degree, 2.0), make_source(seed)) - 2.0)
    for factor, fits in ((0.9, False), (1.0, True), (1.1, False)):
        pvalue = kstest(drawn / (scale * factor), expon.cdf).pvalue
        assert pvalue > RARE if fits else pvalue < 1e-5


@pytest.mark.parametrize("low, high", [(1.0, 5.0), (-0.1, 0.2), (1e-250, 3e-250), (1e15, 1e15 + 3)])
def test_integers_of_parameters_never_exceed_the_units_of_the_range(low, high, monkeypatch, rng):
    """So that no rounding adds to the sensitivity."""
    monkeypatch.setattr(
        _nodes, "rounded_laplace", lambda source, scale, size: np.zeros(size, dtype=np.int64)
    )
    given = [low, high, math.nan, math.inf, -math.inf, np.nextafter(high, 0.0), *rng.random(50)]
    noise = make(UtilityNoise, degrees=[len(given)], low=low, high=high)
    unit = Fraction(noise._units[0])
    n_units = Fraction(high - low) / unit
    assert noise._grid_scales[0] >= n_units
    released = noise.run(given, make_source(0))
    assert released.min() == low
    assert Fraction(released.max()) - Fraction(low) <= n_units * unit + Fraction(np.spacing(high))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_estimates_after_laplace_noise_are_means_of_uniform_parameters(epsilon):
    noise = make(UtilityNoise, epsilon, [9])
    released = np.array([-100.0, 0.0, 1.0, 1.5, 3.0, 4.2, 5.0, 6.0, 300.0])
    a = np.linspace(1.0, 5.0, 200_001)
    distances = np.abs(np.clip(released, 1, 5)[:, None] - a) * epsilon / 4
    density = np.exp(-distances)
    expected = np.trapezoid(density * a, a) / np.trapezoid(density, a)
    np.testing.assert_allclose(noise.estimate(released), expected, atol=1e-6)


# Randomised response
# -------------------


@pytest.mark.parametrize("epsilon", [1e-6, *EPSILONS, 1000.0])
def test_ratios_of_probabilities_are_bounded_exactly_as_integers_are_drawn(epsilon):
    """With the coin, and the bias of a remainder, as they are."""
    response = make(UtilityResponse, epsilon, [1])
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


@pytest.mark.parametrize("epsilon, k", [(1.0, 2), (3.0, 3), (8.0, 14)])
def test_answers_have_their_probabilities_and_not_those_of_another_epsilon(epsilon, k, seed):
    response, n = make(UtilityResponse, epsilon, [60_000]), 60_000
    assert response.n_levels[0] == k
    counts = np.bincount(response.run(np.full(n, 3.0), make_source(seed)), minlength=k)
    true = np.arange(k) == response._levels_of(np.full(n, 3.0))[0]
    pvalues = [
        chisquare(counts, n * np.where(true, e, 1.0) / (e + k - 1)).pvalue
        for e in np.exp(epsilon * np.array([0.9, 1.0, 1.1]))
    ]
    assert pvalues[1] > RARE
    assert max(pvalues[0], pvalues[2]) < RARE


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_estimates_explain_as_much_as_is_said_and_no_number_of_levels_explains_more(
    epsilon, seed, rng
):
    n = 100_000
    response = make(UtilityResponse, epsilon, [n])
    values = rng.uniform(1, 5, n)
    error = np.mean((response.estimate(response.run(values, make_source(seed))) - values) ** 2) / (
        16 / 12
    )
    share = float(explained_share(epsilon, response.n_levels[0]))
    assert 1 - error == pytest.approx(share, abs=0.02)
    assert share == pytest.approx(explained_share(epsilon, np.arange(2, 5000)).max(), rel=1e-3)
    laplace_noise = make(UtilityNoise, epsilon, [n])
    released = laplace_noise.estimate(laplace_noise.run(values, make_source(seed)))
    assert np.mean((released - values) ** 2) / (16 / 12) > error


def test_levels_are_two_where_little_can_be_said_and_limited_where_much():
    assert _best_levels(1e-3) == 2
    assert _best_levels(1e4) == 1 << 20


@pytest.mark.parametrize("epsilon, n_answers", [(1.0, 1), (10.0, 4), (100.0, 30)])
def test_a_node_answers_for_so_many_edges_that_answers_say_something(epsilon, n_answers, seed):
    degrees = [30] * 400
    response = make(UtilityResponse, epsilon, degrees, protect="node")
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
        make(UtilityResponse, 5.0, [20, 10], protect="node").run(values, make_source(seed)) >= 0
        for values in (np.full(30, 1.0), np.linspace(0, 9, 30))
    ]
    np.testing.assert_array_equal(*answered)


# Both
# ----


@pytest.mark.parametrize("protect", ["parameter", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_charged_is_the_worst_node(kind, protect):
    noise = make(kind, 7.0, protect=protect, factors=[0.25, 0.5, 1.0])
    np.testing.assert_allclose(noise.epsilons, [1.75, 3.5, 7.0])
    for node in (0, 2):
        price = plan_epsilon(noise.node_event(node), 0.0, neighbouring="replace_one")
        assert price <= noise.epsilons[node]
        assert price == pytest.approx(noise.epsilons[node], rel=1e-12)
    events = {UtilityNoise: LaplaceDpEvent, UtilityResponse: PureDpEvent}
    assert isinstance(noise.event, events[kind])
    assert plan_epsilon(noise.event, 0.0, neighbouring="replace_one") == pytest.approx(7.0)


@pytest.mark.parametrize("protect", ["parameter", "node"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("degrees", [[0, 30], [30, 1], [30, 7, 0]])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_no_node_costs_more_than_what_is_charged(kind, protect, degrees, delta):
    noise = make(kind, 10.0, degrees, protect=protect)
    charged = plan_epsilon(noise.event, delta, neighbouring="replace_one")
    assert 9.99 < charged <= 10.0
    for node, degree in enumerate(degrees):
        if degree:
            price = plan_epsilon(noise.node_event(node), delta, neighbouring="replace_one")
            assert price <= charged * (1 + 1e-12)


@pytest.mark.parametrize("protect", ["parameter", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_of_a_node_depends_on_its_own_source_alone(kind, protect, seed, rng):
    degrees, values = [7, 1, 0, 5], rng.uniform(0, 6, 13)
    root = make_source(seed)
    sources = [root.for_user(p) for p in range(4)]
    together = make(kind, 5.0, degrees, protect=protect).run(values, sources)
    parts = np.split(values, np.cumsum(degrees)[:-1])
    alone = [
        make(kind, 5.0, [d], protect=protect).run(part, [root.for_user(p)])
        for p, (d, part) in enumerate(zip(degrees, parts, strict=True))
    ]
    np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_out_of_the_range_count_as_its_ends(kind):
    given = [1.0, 1.0, 1.0, 5.0, 5.0], [-9.0, math.nan, -math.inf, 9.0, math.inf]
    released = [make(kind, degrees=[5]).run(values, make_source(3)) for values in given]
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
        assert np.isfinite(make(kind, degrees=[2]).run([value, 3.0], make_source(0))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings, match",
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"low": 5.0}, "low < high"),
        ({"high": math.inf}, "finite"),
        ({"low": -1.7e308, "high": 1.7e308}, "finite"),
        ({"degrees": [[1]]}, "degrees"),
        ({"protect": "edge"}, "protect"),
        ({"factors": 2.0}, "factors"),
    ],
)
def test_parameters_out_of_their_range_are_refused(kind, settings, match):
    with pytest.raises(ValueError, match=match):
        make(kind, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_one_parameter_per_edge(kind):
    with pytest.raises(ValueError, match="each of 5 edges"):
        make(kind).run(np.zeros(4), make_source(0))


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_one_source_for_all_nodes_or_for_each(kind):
    with pytest.raises(ValueError, match="1 sources of noise for 3 nodes"):
        make(kind).run(np.zeros(5), [make_source(0)])
