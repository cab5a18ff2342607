"""The ledger: what it records, admits and refuses, and what it says of a file it cannot trust."""

import contextlib
import copy
import hashlib
import json
import math
import os
import pickle
import shutil
import sqlite3
import stat
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from skdpot import WassersteinProjectionSampler
from skdpot.privacy import (
    ApproximateDpEvent,
    BudgetExceededError,
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    LedgerError,
    LedgerTamperedError,
    PlannedDpEvent,
    PoissonSampledDpEvent,
    PrivacyLedger,
    PureDpEvent,
    Receipt,
    SelfComposedDpEvent,
    ZCDpEvent,
)
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.accounting import plan_epsilon
from skdpot.privacy.events import event_from_json

RECORD = {"unit": "record", "label": "a mean"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


def admitted(ledger, event, at_most, **about):
    """Return how many charges of an event a ledger admits before it refuses one."""
    for count in range(at_most):
        try:
            ledger.charge(event, **(about or RECORD))
        except BudgetExceededError:
            return count
    return at_most


def rewrite(path, statement, *values):
    """Change a ledger's file behind its back."""
    with sqlite3.connect(path) as connection:
        for trigger in ("records_are_not_changed", "records_are_not_deleted"):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement, values)
    connection.close()


class SameTime:
    """A clock that stands still."""

    @staticmethod
    def now(zone):
        return datetime(2031, 3, 5, tzinfo=zone)


class TestCharging:
    def test_charge_is_recorded_with_all_that_was_said(self):
        ledger = PrivacyLedger(epsilon=1.0)
        receipt = ledger.charge(PureDpEvent(0.25), unit="user", label="a sample")
        (entry,) = ledger.entries()
        assert (entry.unit, entry.label, entry.event) == ("user", "a sample", PureDpEvent(0.25))
        assert (entry.epsilon, entry.delta, entry.seeded) == (0.25, 0.0, False)
        assert (entry.number, entry.digest) == (receipt.number, receipt.digest)
        assert receipt.ledger == ledger.identity

    def test_refusal_says_what_was_asked_spent_and_left_and_records_nothing(self):
        ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
        ledger.charge(ApproximateDpEvent(0.75, 1e-6), **RECORD)
        with pytest.raises(BudgetExceededError, match=r"= \(0.5, 0\).*Nothing was") as caught:
            ledger.charge(PureDpEvent(0.5), **RECORD)
        assert caught.value.asked == (0.5, 0.0)
        assert caught.value.spent == (0.75, 1e-6)
        assert caught.value.left == pytest.approx((0.25, 9e-6))
        assert len(ledger.entries()) == 1
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.left) == (str(caught.value), caught.value.left)

    def test_a_release_that_is_sure_to_fail_is_refused_like_any_other(self):
        """Its delta is above 1."""
        with pytest.raises(BudgetExceededError, match=r"asked for .* = \(0, 1.8\)"):
            PrivacyLedger(10.0, 1e-6).charge(
                SelfComposedDpEvent(ApproximateDpEvent(0.0, 0.9), 2), **RECORD
            )
        ledger = PrivacyLedger(None)
        ledger.charge(SelfComposedDpEvent(ApproximateDpEvent(0.0, 0.9), 2), **RECORD)
        assert ledger.spent() == (0.0, 1.8)

    @pytest.mark.parametrize(
        "event, pair",
        [
            (PoissonSampledDpEvent(0.5, ApproximateDpEvent(0.0, 1e-6)), (0.0, 5e-7)),
            (LaplaceDpEvent(4.0), (0.25, 0.0)),
            (SelfComposedDpEvent(PureDpEvent(0.1), 3), (0.3, 0.0)),
            (ComposedDpEvent([PureDpEvent(0.5), ApproximateDpEvent(0.25, 1e-7)]), (0.75, 1e-7)),
            (
                PlannedDpEvent(GaussianDpEvent(5.0), 1e-6),
                (plan_epsilon(GaussianDpEvent(5.0), 1e-6, neighbouring="replace_one"), 1e-6),
            ),
            (ComposedDpEvent([]), (0.0, 0.0)),
        ],
    )
    def test_pair_as_which_an_event_counts(self, event, pair):
        ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
        ledger.charge(event, **RECORD)
        assert ledger.spent() == pytest.approx(pair)
        assert ledger.entries()[0].pair == pytest.approx(pair)
        assert ledger.entries()[0].event == event

    def test_event_without_a_delta_counts_at_half_of_what_is_left_of_it(self):
        ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
        ledger.charge(PureDpEvent(0.5), **RECORD)
        for delta in (5e-6, 2.5e-6):
            ledger.charge(ZCDpEvent(0.01), **RECORD)
            assert ledger.entries()[-1].delta == delta
            expected = plan_epsilon(ZCDpEvent(0.01), delta, neighbouring="replace_one")
            assert ledger.entries()[-1].epsilon == expected
        # A ledger of the same file that has read nothing yet comes to the same.
        pickle.loads(pickle.dumps(ledger)).charge(ZCDpEvent(0.01), **RECORD)
        assert ledger.entries()[-1].delta == 1.25e-6

    def test_refusals_say_what_to_do(self):
        tight = PrivacyLedger(epsilon=3.0, delta=1e-5)
        tight.charge(GaussianDpEvent(15.0), **RECORD)
        for event, advice in [
            (ApproximateDpEvent(0.1, 1e-7), "All of delta is set aside as slack"),
            (GaussianDpEvent(1.0), r"with it, \(\d\.\d+, 1e-05\) would be spent"),
        ]:
            with pytest.raises(BudgetExceededError, match=advice):
                tight.charge(event, **RECORD)
        sums = PrivacyLedger(epsilon=1.0, delta=1e-5)
        pure = PrivacyLedger(epsilon=1.0)
        for ledger in (sums, pure):
            with pytest.raises(BudgetExceededError, match="lower its epsilon") as refused:
                ledger.charge(PureDpEvent(2.0), **RECORD)
            assert "slack" not in str(refused.value)
        full = PrivacyLedger(epsilon=1.0, delta=1e-5)
        full.charge(PureDpEvent(1.0), **RECORD)
        with pytest.raises(BudgetExceededError, match="is created with slack, a part of its delta"):
            full.charge(PureDpEvent(0.1), **RECORD)
        with pytest.raises(BudgetExceededError, match="Nothing is left of epsilon"):
            full.charge(PureDpEvent(0.5), **RECORD)
        half = PrivacyLedger(epsilon=1.0)
        half.charge(PureDpEvent(0.5), **RECORD)
        with pytest.raises(BudgetExceededError, match="more noise, and so a smaller epsilon"):
            half.charge(PureDpEvent(0.7), **RECORD)
        sums.charge(ApproximateDpEvent(0.1, 1e-5), **RECORD)
        for ledger in (sums, pure):
            with pytest.raises(BudgetExceededError, match="pass a smaller delta"):
                ledger.charge(ApproximateDpEvent(0.1, 1e-6), **RECORD)

    @pytest.mark.parametrize(
        "event, words",
        [
            (PureDpEvent(2.0), "a release with epsilon 2"),
            (
                PlannedDpEvent(SelfComposedDpEvent(GaussianDpEvent(2.0), 20), 1e-6),
                "20 releases with Gaussian noise of multiplier 2",
            ),
            (
                ComposedDpEvent([PoissonSampledDpEvent(0.5, GaussianDpEvent(0.2)), PureDpEvent(1)]),
                "a release with Gaussian noise of multiplier 0.2, on a sample of share 0.5, and a "
                "release with epsilon 1",
            ),
            (ComposedDpEvent([PureDpEvent(i) for i in range(4)]), "4 releases"),
        ],
    )
    def test_refusals_say_in_words_what_was_refused(self, event, words):
        with pytest.raises(BudgetExceededError) as refused:
            PrivacyLedger(epsilon=1.0, delta=1e-5).charge(event, **RECORD)
        assert str(refused.value).startswith(f"the budget does not allow {words}: asked for")

    def test_event_without_any_finite_epsilon_is_refused_at_delta_zero(self):
        ledger = PrivacyLedger(epsilon=100.0)
        with pytest.raises(BudgetExceededError, match="no finite epsilon at delta=0") as refused:
            ledger.charge(GaussianDpEvent(1.0), **RECORD)
        assert refused.value.asked == (math.inf, 0.0)
        assert ledger.entries() == []

    def test_without_a_budget_everything_is_recorded_and_nothing_refused(self):
        ledger = PrivacyLedger(None)
        for event in (PureDpEvent(1e100), GaussianDpEvent(0.1), ApproximateDpEvent(1.0, 1e-6)):
            ledger.charge(event, **RECORD)
        ledger.charge(PlannedDpEvent(PureDpEvent(1e100), 1e-6), **RECORD)
        assert ledger.spent() == (math.inf, 2e-6)
        assert ledger.remaining() == (math.inf, 0.0)
        assert len(ledger.entries()) == 4
        assert "inf" in str(ledger.report())

    def test_units_are_never_added_up(self):
        ledger = PrivacyLedger(epsilon=1.0, units=["user", "record", "edge"])
        units = ("record", "user", "edge", "node")
        for unit, epsilon in zip(units[:3], [0.75, 1.0, 0.5], strict=True):
            ledger.charge(PureDpEvent(epsilon), unit=unit, label="x")
        assert [ledger.spent(unit=unit)[0] for unit in units] == [0.75, 1.0, 0.5, 0.0]
        with pytest.raises(ValueError, match=r"per node, and the ledger is per edge and record"):
            ledger.charge(PureDpEvent(0.1), unit="node", label="x")
        assert ledger.spent() == (1.0, 0.0)
        assert ledger.remaining() == (0.0, 0.0)
        assert ledger.remaining(unit="record") == (0.25, 0.0)

    def test_gaussian_releases_first_are_composed_tightly(self):
        ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
        count = admitted(ledger, GaussianDpEvent(40.0), 200)
        # One plan of 115 such releases is within the budget, one of 116 is not.
        assert 104 <= count <= 115
        assert 0.98 < ledger.spent()[0] <= 1.0
        assert ledger.spent()[1] == 1e-5
        exact = plan_epsilon(
            SelfComposedDpEvent(GaussianDpEvent(40.0), count), 1e-5, neighbouring="replace_one"
        )
        assert ledger.spent(delta=1e-5)[0] == pytest.approx(exact)

    def test_slack_is_spent_on_tight_composition_and_the_rest_of_delta_on_failures(self):
        ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, slack=9e-6)
        assert admitted(ledger, ApproximateDpEvent(0.01, 1e-7), 11) == 10
        assert admitted(ledger, PureDpEvent(0.02), 200) > 60
        assert ledger.spent()[1] == pytest.approx(1e-5)

    def test_a_plan_of_sampled_noise_is_charged_as_its_pair_in_tight_composition(self):
        step = PoissonSampledDpEvent(0.01, GaussianDpEvent(2.0))
        plan = PlannedDpEvent(SelfComposedDpEvent(step, 100), 1e-7)
        tight = PrivacyLedger(epsilon=1.0, delta=1e-5, neighbouring="add_remove", slack=9e-6)
        assert 3 <= admitted(tight, plan, 100) <= 10
        # All of delta is slack, so that nothing may have a delta of its own.
        full = PrivacyLedger(epsilon=1.0, delta=1e-5, neighbouring="add_remove", slack=1e-5)
        with pytest.raises(BudgetExceededError, match="All of delta is set aside as slack"):
            full.charge(plan, **RECORD)


class TestReports:
    def test_what_was_spent_after_each_charge_ends_with_what_is_spent(self):
        ledger = PrivacyLedger(epsilon=9.0, delta=1e-5, units=["record", "user"])
        for event in (PureDpEvent(0.25), ApproximateDpEvent(0.5, 1e-6), PureDpEvent(1.0)):
            ledger.charge(event, **RECORD)
        ledger.charge(PureDpEvent(0.5), unit="user", label="a sample")
        spent = [(0.25, 0.0), (0.75, 1e-6), (1.75, 1e-6)]
        assert ledger.spent_after_each() == spent
        assert ledger.spent_after_each(unit="user") == [(0.5, 0.0)]
        assert ledger.spent_after_each(unit="node") == []
        assert ledger.spent() == spent[-1]

    def test_entries_as_a_frame(self):
        pytest.importorskip("pandas")
        ledger = PrivacyLedger(epsilon=1.0)
        assert len(ledger.entries(as_frame=True)) == 0
        ledger.charge(PureDpEvent(0.25), **RECORD)
        frame = ledger.entries(as_frame=True)
        assert frame["epsilon"].tolist() == [0.25]
        assert frame["event"].tolist() == ["PureDpEvent(epsilon=0.25)"]

    def test_repr_shows_the_budget_and_no_key(self, path):
        ledger = PrivacyLedger(epsilon=2.0, path=path, key=b"secret")
        assert "epsilon=2, delta=0, neighbouring='replace_one'" in repr(ledger)
        assert str(path) in repr(ledger) and "secret" not in repr(ledger)


class TestRelations:
    @pytest.mark.parametrize("neighbouring", ["add_remove", "replace_one"])
    def test_event_for_another_relation_is_refused(self, neighbouring):
        ledger = PrivacyLedger(epsilon=1.0, neighbouring=neighbouring)
        other = {"add_remove": "replace_one", "replace_one": "add_remove"}[neighbouring]
        with pytest.raises(ValueError, match=f"described for neighbouring='{other}'"):
            ledger.charge(PureDpEvent(0.1), **RECORD, neighbouring=other)
        assert ledger.entries() == []
        ledger.charge(PureDpEvent(0.1), **RECORD, neighbouring=neighbouring)
        assert ledger.spent() == (0.1, 0.0)

    def test_conversion_doubles_sensitivities(self):
        ledger = PrivacyLedger(epsilon=10.0, delta=1e-5)
        about = {**RECORD, "neighbouring": "add_remove", "convert": True}
        ledger.charge(PureDpEvent(0.5), **about)
        ledger.charge(GaussianDpEvent(4.0), **about)
        events = [entry.event for entry in ledger.entries()]
        assert events == [PureDpEvent(1.0), GaussianDpEvent(2.0)]
        ledger, about["neighbouring"] = PrivacyLedger(1, neighbouring="add_remove"), "replace_one"
        with pytest.raises(ValueError, match="says nothing about data sets of different sizes"):
            ledger.charge(PureDpEvent(0.5), **about)


class TestPartitions:
    def parts(self, neighbouring="replace_one", **options):
        ledger = PrivacyLedger(epsilon=1.0, neighbouring=neighbouring)
        return ledger, ledger.partition("region", ["north", "south", "west"], **options)

    @pytest.mark.parametrize(
        "neighbouring, fixed_key, spent",
        [("add_remove", False, 0.5), ("replace_one", True, 0.5), ("replace_one", False, 0.8)],
    )
    def test_a_partition_costs_its_most_expensive_part_or_the_two_of_them(
        self, neighbouring, fixed_key, spent
    ):
        ledger, parts = self.parts(neighbouring, fixed_key=fixed_key)
        for name, epsilon in [("north", 0.3), ("south", 0.25), ("west", 0.1), ("south", 0.25)]:
            quoted = parts[name].quote(PureDpEvent(epsilon), unit="record")
            parts[name].charge(PureDpEvent(epsilon), **RECORD)
            assert ledger.spent() == quoted
        assert ledger.spent()[0] == pytest.approx(spent)
        assert parts["west"].spent() == ledger.spent()
        ledger.charge(PureDpEvent(0.1), **RECORD)
        assert ledger.spent()[0] == pytest.approx(spent + 0.1)
        assert [entry.part for entry in ledger.entries()][:2] == ["north", "south"]

    def test_the_budget_is_enforced_across_parts(self):
        ledger, parts = self.parts()
        assert admitted(parts["north"], PureDpEvent(0.25), 9) == 4
        with pytest.raises(BudgetExceededError):
            parts["south"].charge(PureDpEvent(0.25), **RECORD)
        ledger, parts = self.parts(fixed_key=True)
        assert [admitted(part, PureDpEvent(0.25), 9) for part in parts.values()] == [4, 4, 4]
        with pytest.raises(BudgetExceededError):
            ledger.charge(PureDpEvent(0.25), **RECORD)

    def test_partition_is_declared_once(self):
        ledger, parts = self.parts()
        assert list(ledger.partition("region", ["north", "south", "west"])) == list(parts)
        for names, options in [(["north"], {}), (["north", "south", "west"], {"fixed_key": True})]:
            with pytest.raises(ValueError, match="which cannot be changed"):
                ledger.partition("region", names, **options)

    @pytest.mark.parametrize("names", ["north", [], ["north", "north"], [1], [""]])
    def test_bad_parts_are_refused(self, names):
        with pytest.raises(ValueError, match="part"):
            PrivacyLedger(epsilon=1.0).partition("region", names)

    def test_a_part_is_not_divided_again(self):
        _, parts = self.parts()
        with pytest.raises(ValueError, match="cannot be divided again"):
            parts["north"].partition("town", ["a", "b"])
        assert "part 'north' of region" in repr(parts["north"])

    def test_local_samplers_need_parts_that_are_public(self):
        """Else the number of their samples tells that a user has gone from one part to another."""
        users = np.eye(2)
        _, parts = self.parts()
        with pytest.raises(ValueError, match="not public"):
            WassersteinProjectionSampler(0.5, cost_matrix=1 - np.eye(2), ledger=parts["north"]).fit(
                users
            )
        _, parts = self.parts(fixed_key=True)
        sampler = WassersteinProjectionSampler(
            0.5, cost_matrix=1 - np.eye(2), ledger=parts["north"]
        )
        sampler.fit(users).transform(users)


class TestCopies:
    @pytest.mark.parametrize("duplicate", [clone, copy.copy, copy.deepcopy])
    def test_copies_are_the_ledger_itself(self, duplicate):
        ledger = PrivacyLedger(epsilon=1.0)
        assert duplicate(ledger) is ledger

    def test_same_path_is_the_same_ledger(self, path, monkeypatch):
        first = PrivacyLedger(epsilon=1.0, path=path)
        first.charge(PureDpEvent(0.75), **RECORD)
        monkeypatch.setenv("HOME", str(path.parent))
        at_home = f"~/{path.name}"
        for again in (PrivacyLedger(epsilon=1.0, path=at_home), PrivacyLedger.open(path)):
            assert again.identity == first.identity
            assert again.remaining() == (0.25, 0.0)

    @pytest.mark.parametrize(
        "other",
        [
            {"epsilon": 2.0},
            {"epsilon": 1.0, "neighbouring": "add_remove"},
            {"epsilon": 1.0, "allow_seeded": True},
            {},
        ],
    )
    def test_two_budgets_for_one_path_are_refused(self, path, other):
        PrivacyLedger(epsilon=1.0, path=path)
        with pytest.raises(ValueError, match=r"a path has one budget. Open it as it is"):
            PrivacyLedger(**{"epsilon": None} | other, path=path)


class TestLabels:
    def test_labels_are_put_in_front_whatever_becomes_of_the_ledger(self):
        ledger = PrivacyLedger(epsilon=10.0)
        march = ledger.labelled("March")
        part = march.partition("region", ["north", "south"])["north"].labelled("draft")
        for seen in (march, clone(march), pickle.loads(pickle.dumps(march)), part):
            seen.charge(PureDpEvent(1.0), unit="record", label="a mean")
        ledger.charge(PureDpEvent(1.0), unit="record", label="a mean")
        labels = [(entry.label, entry.part) for entry in march.entries()]
        told = [("March: a mean", None)] * 3 + [("March: draft: a mean", "north")]
        assert labels == [*told, ("a mean", None)]
        assert march.spent() == ledger.spent() == (5.0, 0.0)
        assert repr(part).endswith("part 'north' of region, labelled 'March', labelled 'draft'>")

    @pytest.mark.parametrize("label", ["", " ", "two\nlines", None, 3])
    def test_what_is_no_label_is_refused(self, label):
        with pytest.raises(ValueError, match="label must be a line of printable text"):
            PrivacyLedger(None).labelled(label)


class TestSeeds:
    def test_seeded_release_is_refused_unless_allowed(self):
        with pytest.raises(ValueError, match="random_state is not private"):
            PrivacyLedger(epsilon=1.0).charge(PureDpEvent(0.1), **RECORD, seeded=True)
        ledger = PrivacyLedger(epsilon=1.0, allow_seeded=True)
        ledger.charge(PureDpEvent(0.1), **RECORD, seeded=True)
        assert ledger.entries()[0].seeded


class TestVerification:
    def spoiled(self, path, statement, *values, **options):
        ledger = PrivacyLedger(epsilon=1.0, path=path, **options)
        receipts = [ledger.charge(PureDpEvent(0.25), **RECORD) for _ in range(3)]
        assert ledger.verify() == ledger.verify(receipts) == ledger.verify(receipts[1]) == 3
        rewrite(path, statement, *values)
        return ledger, receipts

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE records SET body = replace(body, '0.25', '0.05') WHERE number = 2",
            "DELETE FROM records WHERE number = 2",
            "DELETE FROM records WHERE number = 0",
            "UPDATE records SET body = replace(body, '1.0', '9.0') WHERE number = 0",
        ],
    )
    def test_changed_file_is_recognised_and_nothing_charged(self, path, statement):
        ledger, _ = self.spoiled(path, statement)
        with pytest.raises(LedgerTamperedError):
            ledger.verify()
        with pytest.raises(LedgerTamperedError):
            PrivacyLedger.open(path)
        with pytest.raises(LedgerTamperedError):
            pickle.loads(pickle.dumps(ledger)).charge(PureDpEvent(0.1), **RECORD)

    def test_receipt_shows_that_the_end_was_cut_off(self, path):
        ledger, receipts = self.spoiled(path, "DELETE FROM records WHERE number >= 3")
        assert PrivacyLedger.open(path).verify(receipts[1]) == 2
        with pytest.raises(LedgerTamperedError, match="cut off"):
            PrivacyLedger.open(path).verify(receipts[2])
        # Whoever has read further notices without a receipt.
        for call in (ledger.verify, lambda: ledger.charge(PureDpEvent(0.1), **RECORD)):
            with pytest.raises(LedgerTamperedError, match="removed or rewritten"):
                call()

    def test_receipts_can_be_had_of_what_estimators_charge(self, path):
        ledger = PrivacyLedger(epsilon=1.0, path=path, units=["record", "user"])
        with pytest.raises(ValueError, match="no receipt, because nothing was charged"):
            ledger.receipt()
        parts = ledger.partition("cohort", ["spring", "autumn"], fixed_key=True)
        WassersteinProjectionSampler(0.25, ledger=parts["spring"]).fit_transform(np.eye(3))
        first = ledger.receipt()
        second = PrivacyLedger.open(path).charge(PureDpEvent(0.25), **RECORD)
        # The last charge is the last of all, whoever made it, and through whatever part.
        assert ledger.receipt() == parts["autumn"].receipt() == second != first
        kept = [Receipt(ledger.identity, each.number, each.digest) for each in ledger.entries()]
        assert kept == [first, second]
        assert PrivacyLedger.open(path).verify([first, second]) == 2

    @pytest.mark.parametrize("several", [False, True])
    def test_what_is_no_receipt_is_said(self, several):
        ledger = PrivacyLedger(epsilon=1.0)
        ledger.charge(PureDpEvent(0.25), **RECORD)
        for wrong in (ledger.entries()[0], 1, 0, "receipt", ledger.identity):
            with pytest.raises(TypeError, match="must be a Receipt, or several"):
                ledger.verify([ledger.receipt(), wrong] if several else wrong)
        assert ledger.verify([]) == ledger.verify(iter([ledger.receipt()])) == 1

    @pytest.mark.parametrize("key", [None, b"secret"])
    def test_an_old_copy_is_refused_with_a_receipt_that_was_kept(self, path, tmp_path, key):
        """A new process has read nothing, so that nothing else shows it."""
        ledger = PrivacyLedger(epsilon=1.0, path=path, key=key)
        first = ledger.charge(PureDpEvent(0.25), **RECORD)
        shutil.copy(path, tmp_path / "old")
        second = ledger.charge(PureDpEvent(0.75), **RECORD)
        for kept in (first, second, [first, second], iter([second])):
            assert PrivacyLedger.open(path, key=key, after=kept).remaining() == (0.0, 0.0)
        os.replace(tmp_path / "old", path)
        assert PrivacyLedger.open(path, key=key, after=first).remaining() == (0.75, 0.0)
        for kept in (second, [first, second]):
            with pytest.raises(LedgerTamperedError, match="record 2, .* cut off, or replaced"):
                PrivacyLedger.open(path, key=key, after=kept)
        with pytest.raises(TypeError, match="must be a Receipt"):
            PrivacyLedger.open(path, key=key, after=second.digest)

    def test_the_same_charge_to_two_copies_has_two_receipts(self, path, tmp_path, monkeypatch):
        """Else a copy would pass for the file in which a release was recorded."""
        PrivacyLedger(epsilon=1.0, path=path)
        shutil.copy(path, tmp_path / "copy")
        monkeypatch.setattr("skdpot.privacy.records.datetime", SameTime)
        receipts = [
            PrivacyLedger.open(place).charge(PureDpEvent(0.25), **RECORD)
            for place in (path, tmp_path / "copy")
        ]
        with pytest.raises(LedgerTamperedError, match="replaced"):
            PrivacyLedger.open(path, after=receipts[1])

    def test_another_ledger_in_the_place_of_the_file_is_recognised(self, path):
        ledger = PrivacyLedger(epsilon=1.0, path=path)
        stale = pickle.loads(pickle.dumps(ledger))
        receipt = ledger.charge(PureDpEvent(0.25), **RECORD)
        path.unlink()
        PrivacyLedger(epsilon=1.0, path=path)
        for call in (ledger.verify, lambda: stale.charge(PureDpEvent(0.25), **RECORD)):
            with pytest.raises(LedgerTamperedError):
                call()
        with pytest.raises(LedgerTamperedError, match="the receipt is of ledger"):
            PrivacyLedger.open(path).verify(receipt)

    def test_rewritten_chain_is_recognised_by_its_key_alone(self, path):
        """Whoever has no key can make a chain anew, but not one that the key confirms."""
        for key, recognised in [(None, False), (b"secret", True)]:
            ledger = PrivacyLedger(epsilon=1.0, path=path, key=key)
            ledger.charge(PureDpEvent(0.25), **RECORD)
            forge(path)
            if recognised:
                with pytest.raises(
                    LedgerTamperedError, match="another key. Open it with the key that"
                ):
                    PrivacyLedger.open(path, key=key)
            else:
                assert PrivacyLedger.open(path).spent() == (0.05, 0.0)
            path.unlink()

    @pytest.mark.parametrize("key", [None, b"another"])
    def test_wrong_key_is_refused(self, path, key):
        PrivacyLedger(epsilon=1.0, path=path, key=b"secret")
        with pytest.raises(LedgerTamperedError):
            PrivacyLedger.open(path, key=key)

    @pytest.mark.parametrize(
        "body",
        [
            {"kind": "ledger", "epsilon": 9.0},
            {"kind": "refund"},
            {"kind": "charge", "pair": [-7.0, 0.0]},
            {"kind": "charge", "partition": "region", "part": "north"},
            {"kind": "charge", "event": '{"PureDpEvent": {"epsilon": -7.0}}'},
            {"time": "yesterday"},
            {"unit": "person"},
            {"label": "two\nlines"},
            {"seeded": []},
            {"event": None},
            {"pair": "x"},
            {"partition": {}, "part": []},
            [],
        ],
    )
    def test_record_that_no_ledger_writes_is_recognised(self, path, body):
        """Without a key anyone can append, but not just anything."""
        ledger = PrivacyLedger(epsilon=1.0, path=path)
        receipt = ledger.charge(PureDpEvent(0.25), **RECORD)
        with sqlite3.connect(path) as connection:
            (last,) = connection.execute("SELECT body FROM records WHERE number = 1").fetchone()
            text = json.dumps({**json.loads(last), **body} if body else body)
            row = (2, text, digest_after(receipt.digest, text))
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", row)
        connection.close()
        for call in (
            ledger.verify,
            ledger.report,
            lambda: ledger.charge(PureDpEvent(0.1), **RECORD),
        ):
            with pytest.raises(LedgerTamperedError, match="not one that a ledger writes"):
                call()

    def test_file_of_an_earlier_version_is_read_and_goes_on(self, path):
        """Written by the first version, with the key b"old"."""
        connection = sqlite3.connect(path)
        connection.executescript((Path(__file__).parent / "earlier_ledger.sql").read_text())
        connection.close()
        ledger = PrivacyLedger(4.0, 1e-5, path=path, allow_seeded=True, key=b"old")
        digest = "026693a715285e2621559290f3fbd90c95cde15624bdcd82f5b06da53b84f9b3"
        last = Receipt("25b1ab61c187cb782e3590af600ed7ca", 4, digest)
        assert ledger.verify(last) == 3
        labels = ["median", "training", "counts"]
        assert [entry.label for entry in ledger.entries()] == labels
        assert ledger.spent(unit="record") == (2.035238993293998, 1e-06)
        assert ledger.spent(unit="user") == (0.5, 1e-07)
        # What was recorded without a word about contributions keeps its price.
        training = ledger.entries()[1]
        assert training.pair == pytest.approx(
            (plan_epsilon(training.event, 1e-6, neighbouring="replace_one"), 1e-6), rel=1e-4
        )
        ledger.charge(PureDpEvent(1.0), **RECORD)
        with pytest.raises(BudgetExceededError):
            ledger.charge(PureDpEvent(1.0), **RECORD)
        with pytest.raises(LedgerTamperedError):
            PrivacyLedger.open(path, key=b"new")

    def test_ledger_that_had_an_anchor_opens_with_a_sentence_and_goes_on(self, path):
        connection = sqlite3.connect(path)
        connection.executescript((Path(__file__).parent / "anchored_ledger.sql").read_text())
        connection.close()
        for opened in (lambda: PrivacyLedger.open(path), lambda: PrivacyLedger(2.0, path=path)):
            with pytest.warns(UserWarning, match="the newest receipt.*disk of the anchor") as seen:
                ledger = opened()
            assert [each.filename for each in seen] == [__file__]
        assert (ledger.spent(unit="record"), ledger.spent(unit="user")) == ((0.5, 0), (0.25, 0))
        receipt = ledger.charge(PureDpEvent(1.5), **RECORD)
        with pytest.raises(BudgetExceededError):
            PrivacyLedger.open(path, after=receipt).charge(PureDpEvent(0.5), **RECORD)

    def test_charges_that_were_recorded_with_too_small_a_delta_count_in_full(self, path):
        """Version 0.1.0 recorded no delta for Poisson samples of approximate releases."""
        connection = sqlite3.connect(path)
        connection.executescript((Path(__file__).parent / "underpriced_ledger.sql").read_text())
        connection.close()
        said = (
            r"2 charges .* too small a delta: .* Spent: \(0.25, 0.25\) per record, "
            r"\(0.447078, 3.5e-07\) per user, of \(1, 1e-06\). .* charged for nothing more"
        )
        for opened in (
            lambda: PrivacyLedger.open(path),
            lambda: PrivacyLedger(1.0, 1e-6, path=path, neighbouring="add_remove"),
        ):
            with pytest.warns(UserWarning, match=said) as caught:
                ledger = opened()
            assert [each.filename for each in caught] == [__file__]
        assert ledger.spent(unit="record") == (0.25, 0.25)
        assert ledger.spent(unit="user") == (0.4470784241868516, 3.5e-07)
        assert ledger.spent(1e-6, unit="record")[0] == math.inf
        pairs = [(0.0, 0.25), (0.25, 0.0), (0.4470784241868516, 3.5e-07)]
        assert [entry.pair for entry in ledger.entries()] == pairs
        with pytest.raises(BudgetExceededError, match=r"spent \(0.25, 0.25\), left \(0.75, 0\)"):
            ledger.charge(PureDpEvent(0.1), **RECORD)
        ledger.charge(ApproximateDpEvent(0.5, 6.5e-7), unit="user", label="what is left")
        assert ledger.verify() == 4

    def test_file_of_a_newer_version_is_refused(self, path, monkeypatch):
        monkeypatch.setattr(ledger_module, "FORMAT", 2)
        with pytest.raises(LedgerError, match="of format 2, and this version"):
            PrivacyLedger(epsilon=1.0, path=path)

    def test_file_with_two_names_is_refused(self, path):
        """SQLite locks files, and keeps what is new under their names: both would be charged."""
        ledger = PrivacyLedger(epsilon=1.0, path=path)
        os.link(path, path.with_name("other"))
        for place in (path, path.with_name("other")):
            with pytest.raises(LedgerError, match="another name"):
                PrivacyLedger.open(place)
        path.with_name("other").unlink()
        path.with_name("link").symlink_to(path)
        PrivacyLedger.open(path.with_name("link")).charge(PureDpEvent(0.25), **RECORD)
        assert ledger.spent() == (0.25, 0.0)

    def test_records_cannot_be_changed_by_accident(self, path):
        PrivacyLedger(epsilon=1.0, path=path)
        with sqlite3.connect(path) as connection:
            for statement in ("DELETE FROM records", "UPDATE records SET digest = ''"):
                with pytest.raises(sqlite3.DatabaseError, match="only ever appended to"):
                    connection.execute(statement)
        connection.close()


def bodies_of(path):
    """Return the records in a ledger's file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT body FROM records ORDER BY number").fetchall()
    return [json.loads(body) for (body,) in rows]


def digest_after(digest, body):
    """Return the digest of a record without a key, as anybody can compute it."""
    return hashlib.sha256(f"{digest}\n{body}".encode()).hexdigest()


def forge(path):
    """Rewrite a ledger with a smaller epsilon, and with a chain that fits."""
    digest = ""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT number, body FROM records ORDER BY number").fetchall()
    for number, body in rows:
        body = body.replace("0.25", "0.05")
        digest = digest_after(digest, body)
        rewrite_once(path, number, body, digest)


def rewrite_once(path, number, body, digest):
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS records_are_not_changed")
        connection.execute(
            "UPDATE records SET body = ?, digest = ? WHERE number = ?", (body, digest, number)
        )
    connection.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_all_files_are_made_for_their_owner_alone(path, umask, monkeypatch):
    seen, connect = {}, sqlite3.connect

    def look():
        for file in path.parent.iterdir():
            seen.setdefault(file.name, stat.S_IMODE(file.stat().st_mode))

    class Watched(sqlite3.Connection):
        def execute(self, *args):
            look()
            return super().execute(*args)

    def connect_and_look(*args, **options):
        connection = connect(*args, **options, factory=Watched)
        look()
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_and_look)
    before = os.umask(umask)
    try:
        PrivacyLedger(epsilon=1.0, path=path).charge(PureDpEvent(0.25), **RECORD)
    finally:
        os.umask(before)
    assert {path.name, f"{path.name}-wal", f"{path.name}-shm"} <= set(seen)
    assert set(seen.values()) == {0o600}


class TestBadInput:
    @pytest.mark.parametrize(
        "settings, said",
        [
            ({"epsilon": -1.0}, "epsilon must be above 0"),
            ({"epsilon": "1"}, "epsilon must be above 0.* got '1'"),
            ({"epsilon": 10**400}, "epsilon must be above 0"),
            ({"allow_seeded": "False"}, "allow_seeded must be True or False"),
            ({"delta": -1e-9}, "delta must be at least 0 and below 1"),
            ({"neighbouring": "swap"}, "neighbouring must be one of"),
            ({"delta": 1e-6, "slack": 1e-5}, "slack must be None or from 0 to delta"),
            ({"key": "text"}, "key must be None or bytes"),
        ],
    )
    def test_bad_settings_are_refused(self, settings, said, path):
        with pytest.raises(ValueError, match=said):
            PrivacyLedger(**{"epsilon": 1.0} | settings, path=path)
        assert not path.exists()

    @pytest.mark.parametrize(
        "charge, said",
        [
            ({"event": PureDpEvent(-1.0)}, "epsilon of a PureDpEvent"),
            ({"event": PureDpEvent(math.nan)}, "epsilon of a PureDpEvent"),
            ({"event": PureDpEvent(10**400)}, "epsilon of a PureDpEvent"),
            ({"event": SelfComposedDpEvent(PureDpEvent(1.0), 10**400)}, "count of a SelfComposed"),
            ({"event": ApproximateDpEvent(1.0, 1.0)}, "delta of a ApproximateDpEvent"),
            ({"event": ComposedDpEvent([PureDpEvent("1")])}, "epsilon of a PureDpEvent"),
            ({"event": PlannedDpEvent(GaussianDpEvent(1.0), 0.0)}, "delta of a PlannedDpEvent"),
            ({"unit": "person"}, "unit must be one of"),
            ({"label": " "}, "label must be a line"),
            ({"label": "x\n  user: spent (0, 0)"}, "label must be a line"),
            ({"neighbouring": "swap"}, "neighbouring must be one of"),
        ],
    )
    def test_bad_charges_are_refused(self, charge, said):
        ledger = PrivacyLedger(None)
        with pytest.raises(ValueError, match=said):
            ledger.charge(**{"event": PureDpEvent(0.1), **RECORD} | charge)
        assert ledger.entries() == []

    @pytest.mark.parametrize("text", ["", "1", "{}", '{"PureDpEvent": {"epsilon": -1.0}}'])
    def test_text_that_is_no_event_is_said(self, text):
        with pytest.raises(ValueError, match="this is no recorded event"):
            event_from_json(text)

    def test_event_that_is_changed_meanwhile_is_recorded_as_it_was_priced(self, monkeypatch):
        parts = [PureDpEvent(0.25)]
        ledger = PrivacyLedger(epsilon=1.0)
        pair_for = ledger_module.stated_epsilon_delta

        def slip_in(event, neighbouring):
            parts.extend([PureDpEvent(5.0)] * 9)
            return pair_for(event, neighbouring)

        monkeypatch.setattr(ledger_module, "stated_epsilon_delta", slip_in)
        ledger.charge(ComposedDpEvent(parts), **RECORD)
        assert ledger.entries()[0].event == ComposedDpEvent([PureDpEvent(0.25)])

    @pytest.mark.parametrize("event", [0.5, (0.5, 0.0), None, "PureDpEvent"])
    def test_what_is_no_event_is_refused(self, event):
        with pytest.raises(TypeError, match="an event must be one of"):
            PrivacyLedger(None).charge(event, **RECORD)

    @pytest.mark.parametrize("content", [b"", b"some text that is no database\n" * 100])
    def test_file_that_is_no_ledger_is_refused_and_left_alone(self, path, content):
        path.write_bytes(content)
        for make in (
            lambda: PrivacyLedger(epsilon=1.0, path=path),
            lambda: PrivacyLedger.open(path),
        ):
            with pytest.raises(LedgerError, match="is not a ledger.*give another path"):
                make()
        assert path.read_bytes() == content

    def test_missing_file_or_folder_is_said(self, tmp_path):
        with pytest.raises(LedgerError, match="no ledger at.* to keep a ledger, give a path"):
            PrivacyLedger.open(tmp_path / "nowhere.sqlite")
        with pytest.raises(LedgerError, match="cannot be opened or written to"):
            PrivacyLedger(epsilon=1.0, path=tmp_path / "nowhere" / "ledger.sqlite")
        with pytest.raises(LedgerError, match="is a folder: give the path of a file"):
            PrivacyLedger(epsilon=1.0, path=tmp_path)

    def test_file_that_vanished_is_said(self, path):
        ledger = PrivacyLedger(epsilon=1.0, path=path)
        path.unlink()
        with pytest.raises(LedgerError, match="there is no ledger at"):
            ledger.charge(PureDpEvent(0.1), **RECORD)
        assert not path.exists()
