"""Charges with a token: each release is charged once, whoever repeats its charge and whenever."""

import hashlib
import multiprocessing
import os
import pickle
import signal
import sqlite3

import pytest

from skdpot.privacy import (
    BudgetAccountant,
    BudgetExceededError,
    LedgerTamperedError,
    PrivacyLedger,
    PureDpEvent,
)
from skdpot.privacy import ledger as ledger_module
from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.noise import make_source
from skdpot.privacy.records import Chain

RECORD = {"unit": "record", "label": "a mean"}
COST = PureDpEvent(0.75)
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget"


@pytest.fixture
def ledger(path):
    return PrivacyLedger(1.0, path=path)


def in_children(target, *arguments, how_many=1):
    """Run something in processes at the same time, and return their exit codes."""
    children = [FORK.Process(target=target, args=arguments) for _ in range(how_many)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    return [child.exitcode for child in children]


class TestRepeatedCharge:
    def test_is_no_charge_and_returns_the_first_receipt(self, ledger):
        first = ledger.charge(COST, **RECORD, token="May")
        assert ledger.charge(COST, **RECORD, token="May") == first
        (entry,) = ledger.entries()
        assert (entry.token, entry.label) == ("May", "a mean")
        assert ledger.spent() == (0.75, 0.0)
        assert ledger.verify(first) == 1
        assert str(ledger.report()).count("a mean") == 2  # in its table, and in its appendix

    def test_a_refused_charge_leaves_its_token_free(self, ledger):
        with pytest.raises(BudgetExceededError):
            ledger.charge(PureDpEvent(1.5), **RECORD, token="May")
        ledger.charge(COST, **RECORD, token="May")
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"event": PureDpEvent(0.5)}, "PureDpEvent.epsilon=0.5. per record"),
            ({"unit": "user"}, "per user"),
            ({"label": "a median"}, "not 'a median', "),
        ],
    )
    def test_with_other_content_is_refused(self, ledger, changed, words):
        first = {"event": COST, **RECORD, "token": "May"}
        ledger.charge(**first)
        with pytest.raises(ValueError, match=f"of record 1, .*: 'a mean', .*{words}.*another tok"):
            ledger.charge(**first | changed)
        assert len(ledger.entries()) == 1

    def test_with_another_text_before_its_label_is_refused(self, ledger):
        ledger.labelled("June").charge(COST, **RECORD, token="sum")
        ledger.partition("half", ["left"], fixed_key=True)
        july, token = ledger.labelled("July"), {"left": "sum"}
        for charge in (
            lambda: july.charge(COST, **RECORD, token="sum"),
            lambda: july.charge_parts("half", {"left": COST}, **RECORD, tokens=token),
        ):
            with pytest.raises(ValueError, match="'June: a mean', .*not 'July: a mean', .*label"):
                charge()
        assert len(ledger.entries()) == 1

    def test_of_a_part(self, ledger):
        parts = ledger.partition("half", ["left", "right"], fixed_key=True)
        first = parts["left"].charge(COST, **RECORD, token="May")
        assert parts["left"].charge(COST, **RECORD, token="May") == first
        for other in (ledger, parts["right"]):
            with pytest.raises(ValueError, match="another release: .* in part 'left' of 'half'"):
                other.charge(COST, **RECORD, token="May")

    @pytest.mark.parametrize("token", ["", " ", "two\nlines", 3, b"May"])
    def test_tokens_are_lines_of_text(self, ledger, token):
        with pytest.raises(ValueError, match="token must be a line of printable text"):
            ledger.charge(COST, **RECORD, token=token)

    def test_a_second_record_with_a_token_is_none_that_a_ledger_writes(self, ledger, path):
        receipt = ledger.charge(PureDpEvent(0.25), **RECORD, token="May")
        with sqlite3.connect(path) as connection:
            (text,) = connection.execute("SELECT body FROM records WHERE number = 1").fetchone()
            digest = hashlib.sha256(f"{receipt.digest}\n{text}".encode()).hexdigest()
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", (2, text, digest))
        connection.close()
        with pytest.raises(LedgerTamperedError, match="a token that another record has"):
            ledger.spent()

    def test_of_a_plan(self, ledger):
        plan = ReleasePlan(None, COST, make_source(), "a sample", None)
        for _ in range(2):
            plan.charge_to(ledger, token="May")
        assert ledger.spent() == (0.75, 0.0)

    def test_of_a_plan_to_an_accountant(self):
        accountant = BudgetAccountant(epsilon=1.0, delta=0.0)
        plan = ReleasePlan(None, PureDpEvent(0.75), make_source(), "a sample", None)
        with pytest.raises(ValueError, match="takes no token"):
            plan.charge_to(accountant, token="May")
        assert len(accountant) == 0


class TestAmongProcesses:
    def test_new_objects_and_pickles_know_it(self, ledger, path):
        first = ledger.charge(COST, **RECORD, token="May")
        for other in (PrivacyLedger.open(path), pickle.loads(pickle.dumps(ledger))):
            assert other.charge(COST, **RECORD, token="May") == first
        assert in_children(lambda: ledger.charge(COST, **RECORD, token="May")) == [0]
        assert len(ledger.entries()) == 1

    def test_eight_that_charge_it_at_once_make_one_record(self, tmp_path):
        ledger = PrivacyLedger(None, path=tmp_path / "budget")
        receipts = FORK.Queue()

        def charge_ten():
            for k in range(10):
                receipts.put((k, ledger.charge(COST, **RECORD, token=f"release {k}")))

        assert in_children(charge_ten, how_many=8) == [0] * 8
        found = [receipts.get(timeout=10) for _ in range(80)]
        assert len(ledger.entries()) == len(set(found)) == 10
        assert ledger.verify(receipt for _, receipt in found) == 10

    @pytest.mark.parametrize("place", ["before the commit", "before the return"])
    def test_a_killed_process_is_followed_by_one_that_charges_once(self, path, place):
        ledger = PrivacyLedger(None, path=path)

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        def charge_and_die():
            owner, name = {
                "before the commit": (Chain, "after"),
                "before the return": (ledger_module, "Receipt"),
            }[place]
            setattr(owner, name, die)
            ledger.charge(COST, **RECORD, token="May")

        assert in_children(charge_and_die) == [-signal.SIGKILL]
        is_written = place != "before the commit"
        assert len(PrivacyLedger.open(path).entries()) == is_written
        receipt = ledger.charge(COST, **RECORD, token="May")
        again = PrivacyLedger.open(path, after=receipt)
        assert again.charge(COST, **RECORD, token="May") == receipt
        assert again.verify(receipt) == 1


class TestManyParts:
    names = ("left", "middle", "right")

    @pytest.fixture
    def parts(self, ledger):
        return ledger.partition("third", self.names, fixed_key=True)

    def test_are_charged_as_one_after_the_other(self, parts, ledger, tmp_path):
        events = dict(zip(self.names, map(PureDpEvent, (0.25, 0.5, 0.25)), strict=True))
        tokens = {name: f"of the {name}" for name in self.names}
        receipts = ledger.charge_parts("third", events, **RECORD, tokens=tokens)
        other = PrivacyLedger(1.0, path=tmp_path / "other")
        for name, part in other.partition("third", self.names, fixed_key=True).items():
            part.charge(events[name], **RECORD, token=tokens[name])
        alike = [
            [(each.number, each.part, each.event, each.pair, each.token) for each in some.entries()]
            for some in (ledger, other)
        ]
        assert alike[0] == alike[1]
        assert ledger.spent() == other.spent() == (0.5, 0.0)
        assert list(receipts) == list(self.names)
        assert ledger.verify(receipts.values()) == 3
        for name, part in parts.items():
            assert part.charge(events[name], **RECORD, token=tokens[name]) == receipts[name]

    def test_are_charged_all_or_none(self, parts, ledger):
        events = dict(zip(self.names, map(PureDpEvent, (0.25, 1.5, 0.25)), strict=True))
        with pytest.raises(BudgetExceededError, match=r"asked for .* = \(1.5, 0\)"):
            ledger.charge_parts("third", events, **RECORD)
        assert ledger.entries() == []

    def test_are_charged_for_what_is_not_recorded_yet(self, parts, ledger):
        first = parts["left"].charge(COST, **RECORD, token="left")
        receipts = ledger.charge_parts(
            "third",
            dict.fromkeys(self.names, COST),
            **RECORD,
            tokens=dict(zip(self.names, self.names, strict=True)),
        )
        assert receipts["left"] == first
        assert [entry.part for entry in ledger.entries()] == ["left", "middle", "right"]

    def test_another_release_of_one_token_charges_nothing(self, parts, ledger):
        parts["right"].charge(PureDpEvent(0.5), **RECORD, token="right")
        with pytest.raises(ValueError, match="'right' is that of record 2"):
            ledger.charge_parts(
                "third",
                dict.fromkeys(self.names, COST),
                **RECORD,
                tokens=dict(zip(self.names, self.names, strict=True)),
            )
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize(
        ("name", "events", "tokens", "message"),
        [
            ("third", {}, None, "at least one part"),
            ("third", {"top": COST}, None, "no part 'top' was declared of a partition 'third'"),
            ("half", {"left": COST}, None, "no part 'left' was declared of a partition 'half'"),
            ("third", {"left": COST}, {}, "one token for each part"),
            ("third", {"left": COST, "right": COST}, {"left": "a", "right": "a"}, "all different"),
            ("third", {"left": COST}, {"left": ""}, "token must be a line"),
        ],
    )
    def test_are_checked(self, parts, ledger, name, events, tokens, message):
        with pytest.raises(ValueError, match=message):
            ledger.charge_parts(name, events, **RECORD, tokens=tokens)
        assert ledger.entries() == []
