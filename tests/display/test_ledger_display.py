"""The plot of a ledger: what is drawn is what it says was spent."""

import numpy as np
import pytest

from skdpot.display import LedgerDisplay
from skdpot.privacy import GaussianDpEvent, PrivacyLedger, PureDpEvent


def rises_of(display, label):
    """Return from where to where the lines of a label go."""
    return [tuple(segment[:, 1]) for segment in display.charges_[label].get_segments()]


@pytest.fixture
def ledger():
    return PrivacyLedger(epsilon=3.0, delta=1e-5, units=["record", "user"])


def charge_all(ledger, charges):
    """Charge epsilons by labels, and return what was spent after each."""
    spent = []
    for label, epsilon in charges:
        ledger.charge(PureDpEvent(epsilon), unit="record", label=label)
        spent.append(ledger.spent(unit="record")[0])
    return spent


def test_charges_are_lines_from_what_was_spent_before_to_what_was_after(ledger, legend_of):
    spent = charge_all(ledger, [("mean", 0.5), ("median", 1.0), ("mean", 0.25)])
    display = LedgerDisplay.from_ledger(ledger)
    np.testing.assert_array_equal(display.line_.get_ydata(), [0.0, *spent])
    np.testing.assert_array_equal(display.line_.get_xdata(), [0, 1, 2, 3])
    assert rises_of(display, "mean") == [(0.0, 0.5), (1.5, 1.75)]
    assert rises_of(display, "median") == [(0.5, 1.5)]
    assert display.limit_.get_ydata()[0] == 3.0
    said = r"budget: $\varepsilon$ = 3, $\delta$ = 1e-05"
    assert legend_of(display.ax_) == ["mean", "median", said]
    assert "record" in display.ax_.get_xlabel()


def test_what_composes_tightly_is_drawn_as_the_ledger_counts_it():
    ledger, spent = PrivacyLedger(epsilon=3.0, delta=1e-5, slack=1e-5), []
    for _ in range(12):
        ledger.charge(GaussianDpEvent(12.0), unit="record", label="step")
        spent.append(ledger.spent()[0])
    display = LedgerDisplay.from_ledger(ledger)
    np.testing.assert_array_equal(display.spent, spent)
    rises = np.diff(display.line_.get_ydata())
    assert rises[-1] < rises[0] / 2


def test_parts_cost_as_much_as_the_most_expensive_one():
    ledger = PrivacyLedger(3.0, neighbouring="add_remove")
    parts = ledger.partition("site", ["north", "south"])
    for name, epsilon in (("north", 1.0), ("south", 0.75), ("south", 0.75)):
        parts[name].charge(PureDpEvent(epsilon), unit="record", label=name)
    display = LedgerDisplay.from_ledger(parts["north"])
    assert rises_of(display, "north") == [(0.0, 1.0)]
    assert rises_of(display, "south") == [(1.0, 1.0), (1.0, 1.5)]


def test_units_are_not_added_up(ledger):
    charge_all(ledger, [("mean", 0.5)])
    for _ in range(2):
        ledger.charge(PureDpEvent(1.0), unit="user", label="place")
    display = LedgerDisplay.from_ledger(ledger)
    assert (display.unit, list(display.spent)) == ("user", [1.0, 2.0])
    assert list(LedgerDisplay.from_ledger(ledger, unit="record").spent) == [0.5]
    with pytest.raises(ValueError, match="unit must be"):
        LedgerDisplay.from_ledger(ledger, unit="household")


def test_labels_beyond_the_sixth_share_a_colour(ledger):
    charges = [(f"query {k}", 0.01 * (k + 1)) for k in range(9)]
    charge_all(ledger, charges)
    display = LedgerDisplay.from_ledger(ledger)
    assert list(display.charges_) == [*(f"query {k}" for k in range(6)), "others"]
    assert len(rises_of(display, "others")) == 3


def test_without_charges_and_without_a_limit():
    display = LedgerDisplay.from_ledger(PrivacyLedger(None))
    assert display.limit_ is None and display.charges_ == {}
    assert "nothing was released" in [text.get_text() for text in display.ax_.texts]
    display = LedgerDisplay.from_ledger(PrivacyLedger(1.0))
    assert display.limit_.get_ydata()[0] == 1.0
    display.figure_.canvas.draw()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5], ["a", "b"]), "2 finite numbers, one per label"),
        (([np.inf], ["a"]), "finite numbers"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        LedgerDisplay(*arguments).plot()


def test_accountants_without_labels_are_refused():
    with pytest.raises(TypeError, match="must be a PrivacyLedger"):
        LedgerDisplay.from_ledger(object())
