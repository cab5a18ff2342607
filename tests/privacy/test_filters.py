"""Budgets that admit no more than is private, whatever is chosen in the light of answers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.privacy.accounting import as_written, plan_epsilon, written_rounded_up
from skdpot.privacy.events import (
    ApproximateDpEvent,
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from skdpot.privacy.filters import MixtureFilter, PairFilter, Total, sold_pair
from tests.oracles.adaptive import worst_delta

pytestmark = pytest.mark.experiment

RELATION = "replace_one"


def total_of(rule, events):
    """Return what releases add up to under a rule."""
    total = Total()
    for event in events:
        total = total.plus(rule.price(event, RELATION, sold_pair(event, RELATION)))
    return total


def admitted(rule, event, at_most=10**6):
    """Return how many releases of a kind a rule admits."""
    price = rule.price(event, RELATION, sold_pair(event, RELATION))
    total, count = Total(), 0
    while count < at_most and rule.admits(total.plus(price)):
        total, count = total.plus(price), count + 1
    return count


def on_counts(rule, responses, failures):
    """Return whether a rule admits, as a function of counts of two kinds of releases."""
    events = [PureDpEvent(each) for each in responses]
    events += [ApproximateDpEvent(0.0, each) for each in failures]

    def admits(counts):
        repeated = [
            event for event, count in zip(events, counts, strict=True) for _ in range(count)
        ]
        return rule.admits(total_of(rule, repeated))

    return admits


# Budgets, and what an adaptive analyst may choose from.
GAMES = [
    (1.0, 1e-2, (0.1,), (5e-3,), 30),
    (1.0, 1e-2, (0.1, 0.3), (5e-3,), 24),
    (2.0, 5e-2, (0.25,), (2.5e-2,), 24),
    (0.5, 1e-3, (0.05, 0.1), (2.5e-4,), 22),
]


@pytest.mark.parametrize("epsilon, delta, responses, failures, most", GAMES)
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_no_adaptive_analyst_gets_more_than_the_budget(
    epsilon, delta, responses, failures, most, share
):
    rule = MixtureFilter(epsilon, delta, share * delta) if share else PairFilter(epsilon, delta)
    admits = on_counts(rule, responses, failures)
    worst = worst_delta(epsilon, responses, failures, admits, most)
    # Not so far below that the test would pass with a rule that refused everything.
    assert 0.05 * delta < worst <= delta


def test_taking_the_better_of_two_rules_after_the_fact_is_not_private():
    """This is why the rule of a ledger is settled before anything is released."""
    epsilon, delta, responses, failures, most = GAMES[1]
    pairs, mixture = PairFilter(epsilon, delta), MixtureFilter(epsilon, delta, delta)
    by_pairs, by_mixture = (on_counts(rule, responses, failures) for rule in (pairs, mixture))
    worst = worst_delta(
        epsilon, responses, failures, lambda counts: by_pairs(counts) or by_mixture(counts), most
    )
    assert worst > 1.1 * delta


epsilons = st.floats(1e-6, 5.0)
deltas = st.floats(1e-12, 1e-3)
releases = st.one_of(
    epsilons.map(PureDpEvent),
    st.floats(0.2, 50.0).map(LaplaceDpEvent),
    st.builds(ApproximateDpEvent, epsilons, deltas),
    st.builds(SelfComposedDpEvent, epsilons.map(PureDpEvent), st.integers(0, 5)),
)


@given(st.lists(releases, min_size=1, max_size=30))
def test_pairs_that_add_up_to_the_budget_are_admitted_and_no_more(events):
    pairs = [sold_pair(event, RELATION) for event in events]
    epsilon = written_rounded_up(sum(as_written(pair[0]) for pair in pairs))
    delta = written_rounded_up(sum(as_written(pair[1]) for pair in pairs))
    if not 0 < epsilon or delta >= 1:
        return
    rule = PairFilter(epsilon, delta)
    total = total_of(rule, events)
    assert rule.admits(total)
    assert rule.spent(total) == pytest.approx((epsilon, delta))
    assert not rule.admits(total_of(rule, [*events, PureDpEvent(epsilon * 1e-12)]))
    assert not rule.admits(total_of(rule, [*events, ApproximateDpEvent(0.0, 1e-12)]))


noises = st.one_of(
    st.floats(0.02, 1.0).map(PureDpEvent),
    st.floats(1.0, 50.0).map(LaplaceDpEvent),
    st.floats(1.0, 50.0).map(GaussianDpEvent),
    st.floats(1e-4, 0.3).map(ZCDpEvent),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(noises, min_size=1, max_size=6), st.integers(1, 60), st.floats(0.2, 6.0))
def test_what_is_admitted_tightly_is_within_the_price_of_the_same_plan(events, times, epsilon):
    """A plan is priced exactly, so that a filter that admitted more would be wrong."""
    rule, total, history = MixtureFilter(epsilon, 1e-5, 1e-5), None, []
    for event in events * times:
        price = rule.price(event, RELATION, None)
        more = price if total is None else total.plus(price)
        if not rule.admits(more):
            break
        total, history = more, [*history, event]
    if history:
        spent = rule.spent(total)
        assert spent[0] <= epsilon * (1 + 1e-6)
        plan = plan_epsilon(ComposedDpEvent(history), 1e-5, neighbouring=RELATION)
        # The price of a plan is rounded up.
        assert plan <= spent[0] * 1.002


@settings(deadline=None)
@given(st.lists(noises, min_size=1, max_size=8), st.floats(0.2, 6.0), st.floats(1e-8, 1e-3))
def test_refusals_are_final(events, epsilon, slack):
    """Whatever is added to a refused history is refused, and a larger budget admits no less."""
    rule, larger = MixtureFilter(epsilon, slack, slack), MixtureFilter(epsilon * 2, slack, slack)
    admitted_so_far = True
    for count in range(1, len(events) + 1):
        admits = rule.admits(total_of(rule, events[:count]))
        assert admitted_so_far or not admits
        admitted_so_far = admits
        assert larger.admits(total_of(larger, events[:count])) or not admits


@pytest.mark.parametrize(
    "event, at_least",
    [
        # Counts that are admitted, of those of one plan at the same price (all but the first).
        (GaussianDpEvent(20.0), 0.85),
        (PureDpEvent(0.02), 0.7),
        (ZCDpEvent(1e-4), 0.6),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_tight_composition_is_not_far_from_a_plan(event, at_least, epsilon):
    count = admitted(MixtureFilter(epsilon, 1e-5, 1e-5), event)
    plan = count
    while plan_epsilon(SelfComposedDpEvent(event, plan + 1), 1e-5, neighbouring=RELATION) < epsilon:
        plan = plan + max(1, plan // 20)
    assert count >= at_least * plan


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("slack", [1e-10, 1e-5, 1e-2])
def test_tight_composition_admits_many_small_releases_that_sums_refuse(epsilon, slack):
    # Near the budget a sum takes 200 of these, and composition of many of them is much cheaper.
    event = PureDpEvent(epsilon / 200)
    assert admitted(PairFilter(epsilon, slack), event) == 200
    assert admitted(MixtureFilter(epsilon, slack, slack), event, at_most=2000) >= 200


def test_releases_that_may_fail_take_from_what_slack_leaves():
    rule = MixtureFilter(1.0, 1e-5, slack=6e-6)
    assert admitted(rule, ApproximateDpEvent(1e-4, 1e-6), at_most=9) == 4
    total = total_of(rule, [ApproximateDpEvent(0.1, 1e-6)])
    assert rule.left(total)[1] == pytest.approx(3e-6)
    assert rule.spent(total)[1] == pytest.approx(7e-6)


def test_a_plan_of_sampled_noise_counts_as_the_pair_that_it_was_sold_as():
    steps = SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(2.0)), 100)
    rule, whole = (
        MixtureFilter(3.0, 1e-5, slack=5e-6),
        SelfComposedDpEvent(GaussianDpEvent(2.0), 100),
    )
    plan = PlannedDpEvent(steps, 1e-6)
    pair = sold_pair(plan, RELATION)
    total = total_of(rule, [plan])
    assert total == rule.price(ApproximateDpEvent(*pair), RELATION, None)
    assert rule.admits(total) and pair[0] < 1.0
    # Without a plan it counts as if all records were in each sample.
    assert rule.price(steps, RELATION, None) == rule.price(whole, RELATION, None)


def test_left_is_what_one_more_release_may_cost():
    for rule in (PairFilter(1.0, 1e-5), MixtureFilter(1.0, 1e-5, 5e-6)):
        total = total_of(rule, [PureDpEvent(0.25), ApproximateDpEvent(0.25, 1e-6)])
        epsilon, delta = rule.left(total)
        fitting, too_large = (
            rule.price(ApproximateDpEvent(epsilon * share, delta * share), RELATION, None)
            if rule.slack
            else total_of(rule, [ApproximateDpEvent(epsilon * share, delta * share)])
            for share in (1 - 1e-9, 1 + 1e-6)
        )
        assert rule.admits(total.plus(fitting))
        exactly = rule.price(ApproximateDpEvent(epsilon, 0.0), RELATION, (epsilon, 0.0))
        assert rule.admits(total.plus(exactly))
        assert not rule.admits(total.plus(too_large))


def test_unlimited_budget_admits_everything():
    for rule in (PairFilter(math.inf, 0.0), MixtureFilter(math.inf, 1e-5, 1e-5)):
        total = total_of(rule, [PureDpEvent(1e3), GaussianDpEvent(1e-3)])
        assert rule.admits(total)
        assert rule.left(total)[0] == math.inf


def test_before_anything_is_released_nothing_is_spent():
    assert PairFilter(1.0, 1e-5).spent(Total()) == (0.0, 0.0)
    assert PairFilter(1.0, 1e-5).left(Total()) == (1.0, 1e-5)


def test_a_plan_counts_as_the_pair_that_it_was_sold_as():
    rule = PairFilter(1.0, 1e-5)
    plans = [PlannedDpEvent(GaussianDpEvent(5.0), 1e-6)]
    plans = [*plans, ComposedDpEvent(plans), SelfComposedDpEvent(plans[0], 1)]
    for plan in plans:
        total = rule.price(plan, RELATION, (0.25, 1e-6))
        assert (total.epsilon, total.delta) == (Fraction("0.25"), Fraction("1e-6"))
        assert rule.spent(total) == (0.25, 1e-6)
    assert not rule.admits(rule.price(GaussianDpEvent(5.0), RELATION, None))


@pytest.mark.parametrize(
    "event", [PureDpEvent(0.01), GaussianDpEvent(30.0), ZCDpEvent(1e-3), ZCDpEvent(1e-18)]
)
def test_what_is_spent_is_the_smallest_budget_of_the_same_orders(event):
    rule = MixtureFilter(2.0, 1e-5, 1e-5)
    total = total_of(rule, [event] * 40)
    spent = rule.spent(total)[0]
    assert rule._bounds_loss(total, spent * (1 + 1e-12))
    assert not rule._bounds_loss(total, spent * (1 - 1e-6))


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0, 1e4])
def test_divergences_have_orders_above_one(epsilon):
    assert (MixtureFilter(epsilon, 1e-5, 1e-5).orders > 1).all()


def test_sums_beyond_all_doubles_are_infinite():
    total = Total(epsilon=Fraction(10**400), delta=Fraction(0))
    assert PairFilter(1.0, 0.0).spent(total) == (math.inf, 0.0)
    assert not PairFilter(1.0, 0.0).admits(total)


@pytest.mark.parametrize("rho", [0.003, 0.02, 0.1])
@pytest.mark.parametrize("slack", [1e-9, 1e-5, 1e-2])
def test_mixture_covers_every_excess_and_not_only_those_that_are_tried(rho, slack):
    """Between two points of the grid of excess losses the bound holds as well."""
    rule = MixtureFilter(math.inf, 1.0, slack)
    divergences = rule.orders * rho
    total = Total(pure=math.inf, squared_mu=math.inf, renyi=tuple(divergences))
    epsilon = rule.spent(total)[0]
    excess = np.geomspace(1e-6, 100.0, 400_001)
    weight = 0.5 * slack / len(rule.orders)
    exponents = (rule.orders - 1) * (epsilon + excess[:, None] - divergences)
    mixture = (weight * np.exp(np.minimum(exponents, 700.0))).sum(axis=1)
    assert (mixture >= -np.expm1(-excess)).all()
