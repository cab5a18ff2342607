"""Totals of a ledger: exact, and rounded against the user where they are shown."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpot.privacy import (
    ApproximateDpEvent,
    BudgetExceededError,
    GaussianDpEvent,
    LaplaceDpEvent,
    PrivacyLedger,
    PureDpEvent,
)
from skdpot.privacy.accounting import (
    as_written,
    inverse_rounded_up,
    sum_rounded_up,
    written_rounded_down,
    written_rounded_up,
)
from skdpot.privacy.filters import MixtureFilter, PairFilter, Total, sold_pair

RELATION = "replace_one"
numbers = st.floats(1e-12, 1e3)


def price(rule, event):
    return rule.price(event, RELATION, sold_pair(event, RELATION))


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


def test_noise_of_a_third_is_charged_a_third():
    rule = PairFilter(1.0, 0.0)
    assert fill(rule, LaplaceDpEvent(3.0), 5)[0] == 3


def test_a_ledger_takes_no_dust_beyond_its_budget():
    ledger = PrivacyLedger(0.3)
    for _ in range(3):
        ledger.charge(PureDpEvent(0.1), unit="record", label="a tenth")
    assert (ledger.spent(), ledger.remaining()) == ((0.3, 0.0), (0.0, 0.0))
    with pytest.raises(BudgetExceededError):
        ledger.charge(PureDpEvent(1e-19), unit="record", label="dust")


def test_a_refusal_by_digits_that_are_not_shown_shows_them():
    ledger = PrivacyLedger(1.0)
    ledger.charge(PureDpEvent(0.9), unit="record", label="most")
    with pytest.raises(BudgetExceededError, match=r"not shown: \(0\.1, 0\.0\) is left"):
        ledger.charge(PureDpEvent(0.10000000000000002), unit="record", label="a grain too many")


@given(st.lists(numbers, min_size=1, max_size=20), numbers, st.floats(0.0, 1e-3))
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


@settings(max_examples=25)
@given(st.lists(st.floats(5.0, 50.0), max_size=6), st.floats(0.1, 5.0), st.floats(0.0, 1.0))
def test_tight_composition_reports_no_more_than_its_budget(multipliers, budget, share):
    rule = MixtureFilter(budget, 1e-5, 1e-5)
    total = Total()
    for multiplier in multipliers:
        more = total.plus(rule.price(GaussianDpEvent(multiplier), RELATION, None))
        total = more if rule.admits(more) else total
    assert rule.spent(total)[0] <= budget
    left = rule.left(total)[0]
    assert 0 <= left <= budget
    assert rule.admits(total.plus(price(rule, PureDpEvent(left * share))))


@given(numbers, numbers)
def test_sums_of_doubles_are_rounded_up(a, b):
    found = sum_rounded_up(a, b)
    assert Fraction(found) >= Fraction(a) + Fraction(b)
    assert Fraction(math.nextafter(found, 0.0)) < Fraction(a) + Fraction(b)


def test_sums_with_infinity_are_infinite():
    assert sum_rounded_up(math.inf, 1.0) == math.inf
    assert sum_rounded_up(0.0, 0.0) == 0.0


@given(st.fractions(Fraction(1, 10**15), 10**6))
def test_rounding_goes_one_way(exact):
    up, down = written_rounded_up(exact), written_rounded_down(exact)
    assert as_written(down) <= exact <= as_written(up)
    assert up <= math.nextafter(down, math.inf)
    assert Fraction(inverse_rounded_up(up)) * min(Fraction(up), as_written(up)) >= 1


def test_many_multipliers_do_not_make_totals_slow():
    rule = PairFilter(1e9, 0.0)
    total = Total()
    exact = Fraction(0)
    for index in range(300):
        multiplier = 1.0 + index / 7
        total = total.plus(price(rule, LaplaceDpEvent(multiplier)))
        exact += 1 / Fraction(multiplier)
    assert total.epsilon.denominator.bit_length() <= 4096
    assert exact <= total.epsilon <= exact + Fraction(300, 2**2048)
