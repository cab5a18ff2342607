"""Prices of nested events, against the exact distributions of what they describe."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import reduce

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import expit

from skdpot.privacy import BudgetExceededError, PrivacyLedger, events
from skdpot.privacy.accounting import failure_delta, plan_epsilon
from skdpot.privacy.events import (
    ApproximateDpEvent,
    CentredGaussianDpEvent,
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NoOpDpEvent,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
    leaves,
)
from skdpot.privacy.filters import MixtureFilter, PairFilter, sold_pair

# A grid of losses that has 0.25, which is the epsilon of a leaf.
STEP = 2.0**-7
RELATIONS = ("add_remove", "replace_one")
DISCRETE = (NoOpDpEvent(), PureDpEvent(0.5), ApproximateDpEvent(0.25, 1e-3))
LEAVES = (*DISCRETE, LaplaceDpEvent(3.0), GaussianDpEvent(3.0))
MORE_LEAVES = (CentredGaussianDpEvent(4.0), ZCDpEvent(0.01, 0.0), ZCDpEvent(0.0, 0.125))
WRAPPERS = (
    lambda event: PoissonSampledDpEvent(0.25, event),
    lambda event: SelfComposedDpEvent(event, 2),
    lambda event: PlannedDpEvent(event, 0.0078125),
)


def grown(trees):
    """Return trees, and all that are one level higher."""
    pairs = itertools.combinations_with_replacement(trees, 2)
    higher = [wrap(tree) for tree in trees for wrap in WRAPPERS]
    return [*trees, *higher, *map(ComposedDpEvent, map(list, pairs))]


TREES = grown(grown(LEAVES)) + grown(LEAVES + MORE_LEAVES)


def unbounded(event):
    """Return the exact probability of an unbounded loss."""
    match event:
        case ApproximateDpEvent():
            return Fraction(repr(event.delta))
        case PoissonSampledDpEvent():
            return Fraction(event.sampling_probability) * unbounded(event.event)
        case SelfComposedDpEvent():
            return 1 - (1 - unbounded(event.event)) ** event.count
        case ComposedDpEvent():
            return 1 - math.prod(1 - unbounded(part) for part in event.events)
        case PlannedDpEvent():
            return unbounded(event.event)
    return Fraction(0)


def has(event, kind):
    return kind.__name__ in str(event)


def test_trees_are_made_of_all_public_events():
    known = {kind for kind in vars(events).values() if isinstance(kind, type)}
    known = {kind for kind in known if issubclass(kind, DpEvent)} - {DpEvent}
    assert {type(tree) for tree in TREES} == known


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_event_costs_less_than_the_probability_of_an_unbounded_loss(relation):
    pairs, mixture = PairFilter(1.0, 0.5), MixtureFilter(1.0, 0.5, 1e-6)
    for event in TREES:
        truth, pair = unbounded(event), sold_pair(event, relation)
        # Deltas of several parts are added up, which is slightly more than the truth.
        most = Fraction("1.02") * truth
        total = mixture.price(event, relation, pair)
        assert truth <= total.failure, event
        assert has(event, PlannedDpEvent) or total.failure <= most, event
        assert truth <= Fraction(repr(failure_delta(event))), event
        if pair is not None:
            sold = pairs.price(event, relation, pair)
            assert truth <= sold.delta <= Fraction(repr(pair[1])), event
            assert has(event, PlannedDpEvent) or sold.delta <= most, event
        for delta in (0.0, 0.999 * float(truth)) if truth else ():
            assert plan_epsilon(event, delta, neighbouring=relation) == math.inf, event


def together(distributions):
    """Return the distribution of independent outcomes."""
    joint = {(): 1.0}
    for each in distributions:
        joint = {(*a, b): p * q for a, p in joint.items() for b, q in each.items()}
    return joint


def outcomes(event, has_record):
    """Return the distribution of a discrete release that is as bad as its event allows."""
    match event:
        case PureDpEvent():
            return outcomes(ApproximateDpEvent(event.epsilon, 0.0), has_record)
        case ApproximateDpEvent():
            epsilon = event.epsilon if has_record else -event.epsilon
            yes, no = ((1 - event.delta) * expit(each) for each in (epsilon, -epsilon))
            return {"yes": yes, "no": no, f"has_record={has_record}": event.delta}
        case PlannedDpEvent():
            return outcomes(event.event, has_record)
        case SelfComposedDpEvent():
            return together([outcomes(event.event, has_record)] * event.count)
        case ComposedDpEvent():
            return together(outcomes(part, has_record) for part in event.events)
        case PoissonSampledDpEvent():
            mixture = Counter(outcomes(event.event, False))
            if has_record:
                rate, absent = event.sampling_probability, mixture
                mixture = Counter({key: (1 - rate) * p for key, p in absent.items()})
                for key, p in outcomes(event.event, True).items():
                    mixture[key] += rate * p
            return mixture
    assert event == NoOpDpEvent()
    return {(): 1.0}


def exact_delta(event, epsilon):
    """Return the smallest delta of a discrete release at an epsilon."""
    present, absent = Counter(outcomes(event, True)), Counter(outcomes(event, False))
    return max(
        math.fsum(max(p[key] - math.exp(epsilon) * q[key], 0.0) for key in p)
        for p, q in ((present, absent), (absent, present))
    )


def distinct(trees):
    """Return one of the trees for each combination of basic and sampled events."""
    return list(
        {str(sorted(Counter(map(str, leaves(tree))).items())): tree for tree in trees}.values()
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_prices_of_discrete_releases_hold_for_their_exact_distributions(relation):
    """A record that is out of the data is one that it may be replaced by."""
    mixture, delta = MixtureFilter(2.0, 0.5, 1e-4), 0.0625
    for event in grown(grown(DISCRETE)):
        pair = sold_pair(event, relation)
        if pair is not None:
            assert exact_delta(event, pair[0]) <= pair[1] + 1e-14, event
        total = mixture.price(event, relation, pair)
        epsilon = float(total.pure)
        assert exact_delta(event, epsilon) <= float(total.failure) + 1e-14, event
    found = distinct(grown(grown(DISCRETE)))
    for event in found:
        pair = sold_pair(event, relation)
        spent = mixture.spent(mixture.price(event, relation, pair))
        planned = plan_epsilon(event, delta, neighbouring=relation)
        for epsilon, at in (spent, (planned, delta)):
            assert exact_delta(event, epsilon) <= at * (1 + 1e-9), event


def losses(leaf, about):
    """Return the privacy losses of an event by dp_accounting, None where it has no price."""
    rate = {}
    if isinstance(leaf, PoissonSampledDpEvent):
        rate, leaf = {"sampling_prob": leaf.sampling_probability}, leaf.event
    match leaf:
        case GaussianDpEvent():
            return pld.from_gaussian_mechanism(leaf.noise_multiplier, **rate, **about)
        case LaplaceDpEvent():
            return pld.from_laplace_mechanism(leaf.noise_multiplier, **rate, **about)
        case ApproximateDpEvent() if not rate:
            # Its losses are multiples of the step.
            place = round(leaf.epsilon / STEP)
            true = (1 - leaf.delta) / (1 + math.exp(-leaf.epsilon))
            return pld.PrivacyLossDistribution.create_from_rounded_probability(
                {place: true, -place: 1 - leaf.delta - true},
                leaf.delta,
                STEP,
                pessimistic_estimate=about["pessimistic_estimate"],
            )
    return None


def composed_losses(event, *, pessimistic):
    """Return the losses, rounded up or down, as a record is added or removed; None without any."""
    about = {
        "pessimistic_estimate": pessimistic,
        "use_connect_dots": False,
        "value_discretization_interval": STEP,
    }
    parts = [(losses(leaf, about), count) for leaf, count in leaves(event)]
    if not parts or any(part is None for part, _ in parts):
        return None
    return reduce(lambda a, b: a.compose(b), (part.self_compose(n) for part, n in parts))


def test_prices_lie_between_two_prices_of_dp_accounting():
    compared, delta = 0, 0.0625
    for event in distinct(grown(grown(LEAVES[2:]))):
        low, high = (composed_losses(event, pessimistic=each) for each in (False, True))
        if low is None:
            continue
        compared += 1
        planned = plan_epsilon(event, delta, neighbouring="add_remove")
        assert low.get_epsilon_for_delta(delta) <= planned * (1 + 1e-6), event
        assert planned <= high.get_epsilon_for_delta(delta) * (1 + 1e-3), event
        pair = sold_pair(event, "add_remove")
        if pair is not None:
            assert low.get_delta_for_epsilon(pair[0]) <= pair[1] + 1e-9, event
    assert compared > 100


@pytest.mark.parametrize("slack", [0.0, 1e-6])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_ledger_refuses_what_fails_more_often_than_its_budget_allows(relation, slack):
    for event in grown(LEAVES + MORE_LEAVES):
        truth, about = float(unbounded(event)), {"unit": "record", "label": "x"}
        if truth:
            delta = 0.999 * truth + slack
            ledger = PrivacyLedger(100.0, delta, neighbouring=relation, slack=slack)
            with pytest.raises(BudgetExceededError):
                ledger.charge(event, **about)
            ledger = PrivacyLedger(100.0, 0.5, neighbouring=relation, slack=slack)
            ledger.charge(event, **about)
            assert ledger.spent()[1] >= truth
            assert ledger.spent(0.0) == (math.inf, 0.0)
            assert ledger.spent(0.999 * truth)[0] == math.inf


class Unlisted(DpEvent):
    """An event that no rule knows."""


PRICES = {
    "pair": lambda event: sold_pair(event, "add_remove"),
    "plan": lambda event: plan_epsilon(event, 1e-6, neighbouring="add_remove"),
    "failure": failure_delta,
    "mixture": lambda event: MixtureFilter(1.0, 0.5, 0.5).price(event, "add_remove", (0.0, 0.0)),
    "charge": lambda event: PrivacyLedger().charge(event, unit="record", label="x"),
}


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("listed", [False, True])
def test_an_event_without_a_rule_has_no_price(price, listed, monkeypatch):
    if listed:
        # An event of a later version, of which the rules were forgotten.
        monkeypatch.setitem(events._FIELDS, Unlisted, ())
        monkeypatch.setitem(events._CLASSES, "Unlisted", Unlisted)
    for event in grown([Unlisted()]):
        with pytest.raises(TypeError, match="Unlisted"):
            price(event)


def test_the_delta_of_a_plan_is_compared_with_its_failures_exactly():
    """As doubles, three times 0.1 is more than 0.3."""
    plan = SelfComposedDpEvent(ApproximateDpEvent(0.5, 0.1), 3)
    assert plan_epsilon(plan, 0.3, neighbouring="replace_one") == 1.5
    assert plan_epsilon(plan, 0.3 * (1 - 1e-15), neighbouring="replace_one") == math.inf


def test_a_sample_of_everything_costs_its_parts_exactly():
    """As doubles, ten times 0.1 is less than 1 if they are added one by one."""
    series = PoissonSampledDpEvent(1.0, ComposedDpEvent([PureDpEvent(0.1)] * 10))
    assert sold_pair(series, "replace_one") == (1.0, 0.0)
