"""Totals that a ledger keeps up to date, against those of its whole history."""

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
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PlannedDpEvent,
    PrivacyLedger,
    PureDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from skdpot.privacy.events import event_from_json, event_to_json
from skdpot.privacy.filters import MixtureFilter, Total, sold_pair
from skdpot.privacy.records import History, Record, charge_body

PARTS = [f"part {k}" for k in range(5)]


def records_of(bodies):
    return [Record(number, json.dumps(body), "") for number, body in enumerate(bodies)]


def bodies_of(neighbouring, slack, partitions, charges):
    """Return the records of a ledger of some charges: unit, partition, part and event."""
    yield {
        **{"kind": "ledger", "format": 1, "identity": "x", "epsilon": 2.0, "delta": 1e-5},
        **{"neighbouring": neighbouring, "slack": slack, "allow_seeded": False},
    }
    for number, fixed_key in enumerate(partitions):
        yield {"kind": "partition", "name": f"{number}", "parts": PARTS, "fixed_key": fixed_key}
    for unit, partition, part, event in charges:
        partition = partition if partition is not None and partition < len(partitions) else None
        place = (None, None) if partition is None else (f"{partition}", PARTS[part])
        pair = sold_pair(event, neighbouring)
        yield charge_body(unit, "x", event_to_json(event), pair, False, place)


def recomputed(bodies, unit, rule):
    """Return what a unit's whole history costs: sums by part, and of them the largest."""
    neighbouring = bodies[0]["neighbouring"]
    fixed = {body["name"]: body["fixed_key"] for body in bodies if body["kind"] == "partition"}
    by_part = {}
    for body, event in ((body, body["event"]) for body in bodies if body["kind"] == "charge"):
        if body["unit"] == unit:
            pair = body["pair"] and tuple(body["pair"])
            price = rule.price(event_from_json(event), neighbouring, pair)
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


@settings(deadline=None, max_examples=60)
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


@pytest.mark.parametrize("fixed_key", [True, False])
def test_the_largest_are_taken_in_every_currency_for_itself(fixed_key):
    events = [GaussianDpEvent(5.0), PureDpEvent(0.5), ApproximateDpEvent(0.1, 1e-6)]
    charged = [("record", 0, part, event) for part, event in enumerate(events)]
    bodies = list(bodies_of("replace_one", 5e-6, [fixed_key], charged))
    found = History().after(records_of(bodies)).combined("record")
    rule = MixtureFilter(2.0, 1e-5, 5e-6)
    prices = [rule.price(event, "replace_one", None) for event in events]
    largest = [
        sorted(each)[-1 if fixed_key else -2 :]
        for each in zip(*(price.renyi for price in prices), strict=True)
    ]
    assert found.failure == Fraction("1e-6")
    assert found.pure == math.inf
    np.testing.assert_allclose(found.renyi, np.sum(largest, axis=1))


def test_what_was_refused_is_not_known_to_any_part():
    """All parts share what is known, and a charge is tried before it is."""
    ledger = PrivacyLedger(1.0)
    parts = ledger.partition("region", ["north", "south"], fixed_key=True)
    about = {"unit": "record", "label": "x"}
    parts["north"].charge(PureDpEvent(0.75), **about)
    for part in parts.values():
        with pytest.raises(ValueError, match="does not allow"):
            part.charge(PureDpEvent(1.5), **about)
    assert parts["south"].spent() == ledger.spent() == (0.75, 0.0)
    parts["south"].charge(PureDpEvent(0.5), **about)
    assert parts["north"].remaining() == (0.25, 0.0)


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
