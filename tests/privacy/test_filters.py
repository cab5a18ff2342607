"""Budgets: what they admit, how totals are kept, and how they are rounded."""

import json
import math
import pickle
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.privacy import (
    ApproximateDpEvent,
    BudgetExceededError,
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PlannedDpEvent,
    PrivacyLedger,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from skdpot.privacy.accounting import (
    as_written,
    inverse_rounded_up,
    plan_epsilon,
    rounded_down,
    rounded_up,
    sum_rounded_up,
)
from skdpot.privacy.events import PoissonSampledDpEvent, event_from_json, event_to_json
from skdpot.privacy.filters import MixtureFilter, PairFilter, Total, stated_epsilon_delta
from skdpot.privacy.records import History, Record, charge_body
from tests.oracles.adaptive import worst_delta

RELATION = "replace_one"


def total_of(rule, events):
    """Return what releases add up to under a rule."""
    total = Total()
    for event in events:
        total = total.plus(rule.price(event, stated_epsilon_delta(event, RELATION)))
    return total


def admitted(rule, event, at_most=10**6):
    """Return how many releases of a kind a rule admits."""
    price = rule.price(event, stated_epsilon_delta(event, RELATION))
    total, count = Total(), 0
    while count < at_most and rule.admits(total.plus(price)):
        total, count = total.plus(price), count + 1
    return count


def on_counts(rule, responses, failures):
    """Return whether a rule admits, as a function of counts of two kinds of releases."""
    events = [PureDpEvent(each) for each in responses]
    events += [ApproximateDpEvent(0.0, each) for each in failures]

    def admits(counts):
        repeated = [event for event, c in zip(events, counts, strict=True) for _ in range(c)]
        return rule.admits(total_of(rule, repeated))

    return admits


# Budgets, and what an adaptive analyst may choose from.
GAMES = [
    (1.0, 1e-2, (0.1,), (5e-3,), 30),
    (1.0, 1e-2, (0.1, 0.3), (5e-3,), 24),
    (2.0, 5e-2, (0.25,), (2.5e-2,), 24),
    (0.5, 1e-3, (0.05, 0.1), (2.5e-4,), 22),
]


@pytest.mark.experiment
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


noises = st.one_of(
    st.floats(0.02, 1.0).map(PureDpEvent),
    st.floats(1.0, 50.0).map(LaplaceDpEvent),
    st.floats(1.0, 50.0).map(GaussianDpEvent),
    st.floats(1e-4, 0.3).map(ZCDpEvent),
)


@pytest.mark.experiment
@settings(max_examples=40, deadline=None)
@given(st.lists(noises, min_size=1, max_size=6), st.integers(1, 60), st.floats(0.2, 6.0))
def test_what_is_admitted_tightly_is_within_the_price_of_the_same_plan(events, times, epsilon):
    """A plan is priced exactly, so that a filter that admitted more would be wrong."""
    rule, total, history = MixtureFilter(epsilon, 1e-5, 1e-5), None, []
    for event in events * times:
        price = rule.price(event, None)
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


@pytest.mark.experiment
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
    pair = stated_epsilon_delta(plan, RELATION)
    total = total_of(rule, [plan])
    assert total == rule.price(ApproximateDpEvent(*pair), None)
    assert rule.admits(total) and pair[0] < 1.0
    # Without a plan it counts as if all records were in each sample.
    assert rule.price(steps, None) == rule.price(whole, None)


def test_a_plan_counts_as_the_pair_that_it_was_sold_as():
    rule = PairFilter(1.0, 1e-5)
    plans = [PlannedDpEvent(GaussianDpEvent(5.0), 1e-6)]
    plans = [*plans, ComposedDpEvent(plans), SelfComposedDpEvent(plans[0], 1)]
    for plan in plans:
        total = rule.price(plan, (0.25, 1e-6))
        assert (total.epsilon, total.delta) == (Fraction("0.25"), Fraction("1e-6"))
        assert rule.spent(total) == (0.25, 1e-6)
    assert not rule.admits(rule.price(GaussianDpEvent(5.0), None))


@pytest.mark.experiment
@pytest.mark.parametrize(
    "event", [PureDpEvent(0.01), GaussianDpEvent(30.0), ZCDpEvent(1e-3), ZCDpEvent(1e-18)]
)
def test_what_is_spent_is_the_smallest_budget_of_the_same_orders(event):
    rule = MixtureFilter(2.0, 1e-5, 1e-5)
    total = total_of(rule, [event] * 40)
    spent = rule.spent(total)[0]
    # The orders stay those of the first budget.
    rule.epsilon = spent * (1 + 1e-12)
    assert rule.admits(total)
    rule.epsilon = spent * (1 - 1e-6)
    assert not rule.admits(total)


@pytest.mark.experiment
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


amounts = st.floats(1e-12, 1e3)


def price(rule, event):
    return rule.price(event, stated_epsilon_delta(event, RELATION))


def fill(rule, event, at_most):
    """Return how often a rule admits a release, and the total."""
    total, cost = Total(), price(rule, event)
    for count in range(at_most):
        if not rule.admits(total.plus(cost)):
            return count, total
        total = total.plus(cost)
    return at_most, total


@pytest.mark.parametrize(
    "epsilon, budget, times",
    [(1e-4, 1.0, 10**4), (0.1, 1.0, 10), (0.1, 0.3, 3), (0.7, 2.1, 3), (1 / 3, 1.0, 3)],
)
def test_what_adds_up_to_the_budget_is_admitted_and_not_a_grain_more(epsilon, budget, times):
    rule = PairFilter(budget, 0.0)
    count, total = fill(rule, PureDpEvent(epsilon), times)
    assert count == times
    spent, left = rule.spent(total)[0], rule.left(total)[0]
    assert spent <= budget
    assert left <= budget * 2**-50
    assert not rule.admits(total.plus(price(rule, PureDpEvent(left + 1e-19))))


def test_more_than_the_budget_by_a_rounding_is_refused():
    rule = PairFilter(1.0, 0.0)
    count, total = fill(rule, PureDpEvent(1 / 11), 11)
    assert count == 10
    assert rule.spent(total)[0] + rule.left(total)[0] <= 1.0
    assert rule.admits(total.plus(price(rule, PureDpEvent(rule.left(total)[0]))))


def test_a_refusal_by_digits_that_are_not_shown_shows_them():
    ledger = PrivacyLedger(1.0)
    ledger.charge(PureDpEvent(0.9), unit="record", label="most")
    with pytest.raises(BudgetExceededError, match=r"not shown: \(0\.1, 0\.0\) is left"):
        ledger.charge(PureDpEvent(0.10000000000000002), unit="record", label="a grain too many")


@given(st.lists(amounts, min_size=1, max_size=20), amounts, st.floats(0.0, 1e-3))
def test_what_is_left_can_be_charged_and_nothing_beyond(epsilons, budget, delta):
    rule = PairFilter(budget, delta)
    total, exact = Total(), Fraction(0)
    for epsilon in epsilons:
        more = total.plus(price(rule, ApproximateDpEvent(epsilon, 1e-5)))
        if not rule.admits(more):
            continue
        total, exact = more, exact + as_written(epsilon)
    spent, left = rule.spent(total)[0], rule.left(total)[0]
    assert exact <= as_written(spent) <= as_written(budget)
    assert 0 <= as_written(left) <= as_written(budget) - exact
    assert rule.admits(total.plus(price(rule, ApproximateDpEvent(left, rule.left(total)[1]))))
    next_one = math.nextafter(left, math.inf)
    assert not rule.admits(total.plus(price(rule, PureDpEvent(next_one))))


@pytest.mark.experiment
@settings(max_examples=25)
@given(st.lists(st.floats(5.0, 50.0), max_size=6), st.floats(0.1, 5.0), st.floats(0.0, 1.0))
def test_tight_composition_reports_no_more_than_its_budget(multipliers, budget, share):
    rule = MixtureFilter(budget, 1e-5, 1e-5)
    total = Total()
    for multiplier in multipliers:
        more = total.plus(rule.price(GaussianDpEvent(multiplier), None))
        total = more if rule.admits(more) else total
    assert rule.spent(total)[0] <= budget
    left = rule.left(total)[0]
    assert 0 <= left <= budget
    assert rule.admits(total.plus(price(rule, PureDpEvent(left * share))))


@given(amounts, amounts)
def test_sums_of_doubles_are_rounded_up(a, b):
    found = sum_rounded_up(a, b)
    assert Fraction(found) >= Fraction(a) + Fraction(b)
    assert Fraction(math.nextafter(found, 0.0)) < Fraction(a) + Fraction(b)


@given(st.fractions(Fraction(1, 10**15), 10**6))
def test_rounding_goes_one_way(exact):
    up, down = rounded_up(exact), rounded_down(exact)
    assert as_written(down) <= exact <= as_written(up)
    assert up <= math.nextafter(down, math.inf)
    assert Fraction(inverse_rounded_up(up)) * min(Fraction(up), as_written(up)) >= 1


PARTS = [f"part {k}" for k in range(5)]


def records_of(bodies):
    return [Record(number, json.dumps(body), "") for number, body in enumerate(bodies)]


def bodies_of(neighbouring, slack, partitions, charges):
    """Return the records of a ledger of some charges: unit, partition, part and event."""
    yield {
        **{"kind": "ledger", "format": 1, "identity": "00", "epsilon": 2.0, "delta": 1e-5},
        **{"neighbouring": neighbouring, "slack": slack, "allow_seeded": False},
    }
    for number, fixed_key in enumerate(partitions):
        yield {"kind": "partition", "name": f"{number}", "parts": PARTS, "fixed_key": fixed_key}
    for unit, partition, part, event in charges:
        partition = partition if partition is not None and partition < len(partitions) else None
        place = (None, None) if partition is None else (f"{partition}", PARTS[part])
        pair = stated_epsilon_delta(event, neighbouring)
        yield charge_body(unit, "x", event_to_json(event), pair, False, place)


def recomputed(bodies, unit, rule):
    """Return what a unit's whole history costs: sums by part, and of them the largest."""
    neighbouring = bodies[0]["neighbouring"]
    fixed = {body["name"]: body["fixed_key"] for body in bodies if body["kind"] == "partition"}
    by_part = {}
    for body, event in ((body, body["event"]) for body in bodies if body["kind"] == "charge"):
        if body["unit"] == unit:
            pair = body["pair"] and tuple(body["pair"])
            price = rule.price(event_from_json(event), pair)
            parts = by_part.setdefault(body["partition"], {})
            before = parts.get(body["part"])
            parts[body["part"]] = price if before is None else before.plus(price)
    terms = []
    for partition, parts in by_part.items():
        moves = neighbouring == "replace_one" and partition is not None and not fixed[partition]
        columns = zip(*(total.amounts for total in parts.values()), strict=True)
        ordered = [Total.of(amounts) for amounts in zip(*map(sorted, columns), strict=True)]
        terms.append(reduce(Total.plus, ordered[-2 if moves else -1 :]))
    return reduce(Total.plus, terms, Total())


numbers = st.floats(1e-6, 2.0)
simple = st.one_of(
    numbers.map(PureDpEvent),
    st.builds(ApproximateDpEvent, numbers, st.floats(1e-12, 1e-6)),
    st.floats(0.5, 50.0).map(LaplaceDpEvent),
    st.floats(1.0, 50.0).map(GaussianDpEvent),
    st.floats(1e-5, 0.1).map(ZCDpEvent),
)
events = st.one_of(
    simple,
    st.lists(simple, min_size=1, max_size=3).map(ComposedDpEvent),
    st.builds(SelfComposedDpEvent, simple, st.integers(1, 4)),
    st.floats(1.0, 9.0).map(lambda noise: PlannedDpEvent(GaussianDpEvent(noise), 1e-7)),
)
charges = st.lists(
    st.tuples(
        st.sampled_from(["record", "user"]),
        st.sampled_from([None, 0, 1, 2, 3, 4]),
        st.integers(0, len(PARTS) - 1),
        events,
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(["replace_one", "add_remove"]),
    st.sampled_from([None, 0.0, 5e-6]),
    st.lists(st.booleans(), max_size=5),
    charges,
)
def test_running_totals_are_those_of_the_whole_history(neighbouring, slack, partitions, charges):
    bodies = list(bodies_of(neighbouring, slack, partitions, charges))
    history = History()
    for number, record in enumerate(records_of(bodies), 1):
        history = history.after([record])
        for unit in history.units():
            expected = recomputed(bodies[:number], unit, history.rule)
            found = history.combined(unit)
            agree(found, expected)
    at_once = History().after(records_of(bodies))
    for unit in history.units():
        agree(at_once.combined(unit), history.combined(unit))


def agree(found, expected):
    exact = ("epsilon", "delta", "pure", "failure")
    assert [getattr(found, name) for name in exact] == [getattr(expected, name) for name in exact]
    for name in ("renyi", "squared_mu"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-15)


@pytest.fixture
def read(monkeypatch):
    """Records that any ledger reads."""
    found, real = [], History.after

    def after(self, records, **options):
        found.extend(records)
        return real(self, records, **options)

    monkeypatch.setattr(History, "after", after)
    return found


def test_charges_through_parts_read_no_record_twice(read):
    """Else each of many parts would read the whole file once."""
    ledger = PrivacyLedger(epsilon=1e6)
    parts = ledger.partition("day", [f"{day}" for day in range(30)], fixed_key=True)
    read.clear()
    for part in parts.values():
        part.labelled("a day").charge(PureDpEvent(0.5), unit="record", label="x")
        part.receipt()
    # Each once to see whether it is within the budget, and once when it is on disk.
    assert len(read) == 2 * 30


def test_pickles_in_a_process_go_on_from_what_others_there_have_read(read):
    """Workers get one with every task."""
    ledger = PrivacyLedger(epsilon=1e6)
    for _ in range(20):
        ledger.charge(PureDpEvent(0.5), unit="record", label="x")
    task = pickle.dumps(ledger)
    read.clear()
    for _ in range(10):
        pickle.loads(task).charge(PureDpEvent(0.5), unit="record", label="x")
    # The first reads all that there is.
    assert len(read) == 21 + 2 * 10
    assert ledger.spent() == (15.0, 0.0)
