"""The anchor of a ledger: old, cut, deleted and copied files are recognised by new processes."""

import itertools
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from skdpot.privacy import (
    BudgetExceededError,
    LedgerError,
    LedgerTamperedError,
    PrivacyLedger,
    PureDpEvent,
)

RECORD = {"unit": "record", "label": "a mean"}
COST = PureDpEvent(0.25)


class Places:
    """A ledger and its anchor, each in a folder of its own."""

    def __init__(self, folder):
        self.path, self.anchor = folder / "here" / "budget.sqlite", folder / "there" / "anchor"
        for file in (self.path, self.anchor):
            file.parent.mkdir()

    def new(self, **options):
        return PrivacyLedger(epsilon=1.0, path=self.path, anchor=self.anchor, **options)

    def open(self, **options):
        return PrivacyLedger.open(self.path, **{"anchor": self.anchor, **options})

    def copy(self, name):
        place = self.path.with_name(name)
        shutil.copy(self.path, place)
        return place


@pytest.fixture
def places(tmp_path):
    return Places(tmp_path)


def in_a_new_process(places):
    """Open the ledger in another interpreter, and return what is said of it."""
    script = (
        "import sys\nfrom skdpot.privacy import PrivacyLedger\n"
        "print(PrivacyLedger.open(sys.argv[1], anchor=sys.argv[2]).verify())"
    )
    command = [sys.executable, "-c", script, str(places.path), str(places.anchor)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class TestRollback:
    def test_an_anchored_ledger_goes_on_in_new_processes(self, places):
        ledger = places.new()
        ledger.charge(COST, **RECORD)
        assert in_a_new_process(places).stdout == "1\n"
        places.open().charge(COST, **RECORD)
        assert ledger.remaining() == places.new().remaining() == (0.5, 0.0)
        assert [entry.epsilon for entry in ledger.entries()] == [0.25, 0.25]

    @pytest.mark.parametrize("charges_before", [0, 1, 2])
    def test_an_older_file_is_recognised(self, places, charges_before):
        ledger = places.new()
        for _ in range(charges_before):
            ledger.charge(COST, **RECORD)
        old = places.copy("old")
        ledger.charge(COST, **RECORD)
        os.replace(old, places.path)
        if charges_before == 1:
            assert "another copy was charged" in in_a_new_process(places).stderr
        for attempt in (places.open, places.new):
            with pytest.raises(LedgerTamperedError, match="does not hold record"):
                attempt()

    def test_a_file_whose_end_was_cut_off_is_recognised(self, places):
        ledger = places.new()
        for _ in range(3):
            ledger.charge(COST, **RECORD)
        with sqlite3.connect(places.path) as connection:
            connection.execute("DROP TRIGGER records_are_not_deleted")
            connection.execute(
                "DELETE FROM records WHERE number = (SELECT max(number) FROM records)"
            )
        connection.close()
        with pytest.raises(LedgerTamperedError, match="does not hold record 4"):
            places.open()
        assert len(PrivacyLedger.open(places.path).entries()) == 2

    def test_a_deleted_file_is_recognised_and_not_made_anew(self, places):
        places.new().charge(COST, **RECORD)
        places.path.unlink()
        for attempt in (places.new, places.open):
            with pytest.raises(LedgerTamperedError, match="with 3 records: the file was deleted"):
                attempt()
        assert not places.path.exists()

    def test_a_new_ledger_in_the_place_of_the_file_is_recognised(self, places):
        places.new().charge(COST, **RECORD)
        places.path.unlink()
        PrivacyLedger(epsilon=1.0, path=places.path)
        with pytest.raises(
            LedgerTamperedError, match="the file was replaced, or the anchor belongs"
        ):
            places.open()

    def test_a_copy_does_not_spend_the_budget_twice(self, places):
        """Whoever charges first goes on, and the other copy is refused."""
        ledger = places.new()
        ledger.charge(COST, **RECORD)
        copied = PrivacyLedger.open(places.copy("copy"), anchor=places.anchor)
        copied.charge(COST, **RECORD)
        for attempt in (lambda: ledger.charge(COST, **RECORD), places.open, ledger.verify):
            with pytest.raises(LedgerTamperedError, match="another copy was charged"):
                attempt()
        copied.charge(COST, **RECORD)

    def test_two_copies_that_charge_at_once_do_not_both_release(self, places, monkeypatch):
        """Each writes to its own file, and one of them is told so before it releases."""
        ledger = places.new()
        copied = PrivacyLedger.open(places.copy("copy"), anchor=places.anchor)
        chain, learnt = ledger._chain, []
        probe = type(chain)._probe

        def charged_meanwhile(self, pen):
            if self is chain and not learnt:
                learnt.append(copied.charge(COST, **RECORD))
            probe(self, pen)

        monkeypatch.setattr(type(chain), "_probe", charged_meanwhile)
        with pytest.raises(LedgerTamperedError, match="Nothing may be released"):
            ledger.charge(COST, **RECORD)
        assert learnt and copied.verify(learnt[0]) == 1

    def test_without_its_anchor_a_ledger_is_read_and_not_charged(self, places):
        places.new().charge(COST, **RECORD)
        ledger = PrivacyLedger.open(places.path)
        assert ledger.verify() == 1 and ledger.spent() == (0.25, 0.0)
        for attempt in (
            lambda: ledger.charge(COST, **RECORD),
            lambda: ledger.partition("region", ["north"]),
            lambda: ledger.quote(COST, unit="record"),
        ):
            with pytest.raises(LedgerError, match="has an anchor, without which nothing is"):
                attempt()
        assert ledger.verify() == 1

    def test_a_ledger_can_have_an_anchor_from_some_day_on(self, places):
        PrivacyLedger(epsilon=1.0, path=places.path).charge(COST, **RECORD)
        places.open().charge(COST, **RECORD)
        with pytest.raises(LedgerError, match="has an anchor"):
            PrivacyLedger.open(places.path).charge(COST, **RECORD)
        assert places.open().verify() == 2

    def test_with_a_key_the_anchor_is_of_the_authenticated_chain(self, places):
        places.new(key=b"secret").charge(COST, **RECORD)
        places.open(key=b"secret").charge(COST, **RECORD)
        with pytest.raises(LedgerTamperedError):
            places.open(key=b"other")


class TestRestoring:
    def restored(self, places):
        """Return places whose file is two charges older than the anchor."""
        ledger = places.new()
        ledger.charge(COST, **RECORD)
        old = places.copy("old")
        for _ in range(2):
            ledger.charge(COST, **RECORD)
        os.replace(old, places.path)
        return places

    def test_a_restored_file_goes_on_once_somebody_says_so(self, places):
        self.restored(places)
        again = PrivacyLedger.open(places.path).anchor_again(
            places.anchor, reason="restored from the copy of March"
        )
        again.charge(COST, **RECORD)
        assert places.open().verify() == 2
        *_, declared, _ = again._chain.read()
        body = json.loads(declared.body)
        assert (body["reason"], body["knew"]) == ("restored from the copy of March", 4)

    @pytest.mark.parametrize("content", [None, b"", b"\0" * 1024])
    def test_a_lost_anchor_is_not_made_anew_in_silence(self, places, content):
        ledger = places.new()
        ledger.charge(COST, **RECORD)
        places.anchor.unlink()
        if content is not None:
            places.anchor.write_bytes(content)
        for attempt in (places.open, places.new, lambda: ledger.charge(COST, **RECORD)):
            with pytest.raises(LedgerError, match="it was lost, or this is another place"):
                attempt()
        assert PrivacyLedger.open(places.path).verify() == 1
        PrivacyLedger.open(places.path).anchor_again(places.anchor, reason="the disk broke")
        places.open().charge(COST, **RECORD)
        ledger.charge(COST, **RECORD)

    def test_an_anchor_of_another_ledger_is_not_taken_away(self, places, tmp_path):
        places.new()
        other = PrivacyLedger(epsilon=1.0, path=tmp_path / "other")
        with pytest.raises(LedgerError, match="vouches for ledger .* give another place"):
            other.anchor_again(places.anchor, reason="a mistake")
        assert places.open().verify() == 0

    @pytest.mark.parametrize("anchor, reason", [(None, "x"), (7, "x"), ("anchor", " ")])
    def test_what_is_no_anchor_or_no_reason_is_refused(self, places, anchor, reason):
        with pytest.raises(ValueError, match="must be"):
            places.new().anchor_again(anchor, reason=reason)


class TestFiles:
    def test_the_anchor_is_for_its_owner_alone_and_can_be_read_by_people(self, places):
        before = os.umask(0)
        try:
            ledger = places.new()
        finally:
            os.umask(before)
        receipt = ledger.charge(COST, **RECORD)
        assert stat.S_IMODE(places.anchor.stat().st_mode) == 0o600
        text = places.anchor.read_text()
        assert receipt.digest in text and ledger.identity in text and len(text) == 1024

    @pytest.mark.parametrize("half", [0, 1])
    def test_half_of_the_anchor_is_enough(self, places, half):
        """The newest half may be torn, and vouches for no charge that was granted then."""
        ledger = places.new()
        ledger.charge(COST, **RECORD)
        content = bytearray(places.anchor.read_bytes())
        content[512 * half + 100] ^= 1
        places.anchor.write_bytes(content)
        places.open().charge(COST, **RECORD)
        assert ledger.verify() == 2

    def test_a_file_of_something_else_is_left_alone(self, places):
        places.anchor.write_text("a table\n" * 400)
        with pytest.raises(LedgerError, match="not an anchor, or is damaged"):
            places.new()
        assert places.anchor.read_text() == "a table\n" * 400

    def test_an_anchor_that_cannot_be_written_to_charges_nothing(self, places, monkeypatch):
        ledger = places.new()
        real = os.open

        def read_only(path, flags, *mode, **options):
            if Path(path) == places.anchor and flags & os.O_RDWR:
                raise PermissionError(13, "Permission denied")
            return real(path, flags, *mode, **options)

        monkeypatch.setattr(os, "open", read_only)
        with pytest.raises(LedgerError, match="Permission denied.* Nothing was charged"):
            ledger.charge(COST, **RECORD)
        assert ledger.verify() == 0 and ledger.remaining() == (1.0, 0.0)
        monkeypatch.undo()
        ledger.charge(COST, **RECORD)

    def test_what_is_no_anchor_is_refused(self, places):
        for anchor, said in [(7, "a path or a callable"), (places.path, "another file")]:
            with pytest.raises(ValueError, match=said):
                PrivacyLedger(epsilon=1.0, path=places.path, anchor=anchor)
        with pytest.raises(ValueError, match="needs a path"):
            PrivacyLedger(epsilon=1.0, anchor=places.anchor)
        assert not places.path.exists() and not places.anchor.exists()

    def test_a_budget_that_does_not_fit_leaves_the_anchor_alone(self, places):
        PrivacyLedger(epsilon=2.0, path=places.path)
        with pytest.raises(ValueError, match="a path has one budget"):
            places.new()
        assert not places.anchor.exists()

    def test_pickles_parts_and_labels_hold_the_anchor(self, places):
        ledger = places.new()
        part = ledger.partition("region", ["north", "south"])["north"].labelled("March")
        for seen in (pickle.loads(pickle.dumps(ledger)), pickle.loads(pickle.dumps(part)), part):
            seen.charge(COST, **RECORD)
        assert places.open().verify() == 3


class Table:
    """A table elsewhere that keeps the anchor, and may fail."""

    def __init__(self):
        self.stored, self.calls, self.fails_at = None, 0, ()

    def __call__(self, new=None, old=None):
        self.calls += 1
        if self.calls in self.fails_at:
            raise ConnectionError("the service is down")
        if new is not None and self.stored == old:
            self.stored = new
        return self.stored


class TestCallables:
    def test_the_anchor_can_be_kept_by_whatever_keeps_a_text(self, places):
        table = Table()
        ledger = PrivacyLedger(epsilon=1.0, path=places.path, anchor=table)
        old = places.copy("old")
        receipt = ledger.charge(COST, **RECORD)
        kept = {"ledger": ledger.identity, "number": receipt.number, "digest": receipt.digest}
        assert json.loads(table.stored) == kept
        os.replace(old, places.path)
        with pytest.raises(LedgerTamperedError):
            PrivacyLedger.open(places.path, anchor=table)

    def test_a_service_that_fails_before_the_charge_charges_nothing(self, places):
        table = Table()
        ledger = PrivacyLedger(epsilon=1.0, path=places.path, anchor=table)
        for step in (1, 2):
            table.fails_at = [table.calls + step]
            with pytest.raises(LedgerError, match="service is down. Nothing was charged"):
                ledger.charge(COST, **RECORD)
        assert ledger.verify() == 0

    def test_a_service_that_fails_after_the_charge_lets_nothing_be_released(self, places):
        table = Table()
        ledger = PrivacyLedger(epsilon=1.0, path=places.path, anchor=table)
        table.fails_at = [table.calls + 3]
        with pytest.raises(LedgerError, match="is written, and stays so. Nothing may be released"):
            ledger.charge(COST, **RECORD)
        # The next one moves the anchor past both.
        ledger.charge(COST, **RECORD)
        assert json.loads(table.stored)["number"] == ledger.receipt().number == 3
        assert ledger.spent() == (0.5, 0.0)

    def test_a_store_that_keeps_nothing_is_said(self, places):
        with pytest.raises(LedgerError, match="does not keep what is stored in it"):
            PrivacyLedger(epsilon=1.0, path=places.path, anchor=lambda new=None, old=None: None)
        assert PrivacyLedger.open(places.path).verify() == 0

    @pytest.mark.parametrize("text", ["", "7", "{}", '{"number": 1}'])
    def test_a_store_of_something_else_is_said(self, places, text):
        with pytest.raises(LedgerError, match="does not hold a record"):
            PrivacyLedger(epsilon=1.0, path=places.path, anchor=lambda *what: text)


# What changes anything outside of a process, or shows what others have changed.
STEPS = frozenset(
    "open close pwrite write fsync flock fcntl unlink link connect execute executescript commit "
    "fchmod ftruncate rename".split()
)


def killed_at(step, action):
    """Run something in a child that is killed at a step; tell whether it came to its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        steps = itertools.count(1)

        def count(frame, event, function):
            name = getattr(function, "__name__", "")
            if event == "c_call" and name in STEPS and next(steps) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            action()
            sys.setprofile(None)
            os.write(writing, b"done")
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        done = file.read() == b"done"
    os.waitpid(child, 0)
    return done


class TestCrashes:
    def test_a_charge_that_is_killed_at_any_step_neither_bricks_nor_opens_a_rollback(self, places):
        ledger = PrivacyLedger(epsilon=1e3, path=places.path, anchor=places.anchor)
        for step in itertools.count(1):
            count = len(ledger.entries())
            old = places.copy("old")
            done = killed_at(step, lambda: ledger.charge(COST, **RECORD))
            new = places.open()
            assert len(new.entries()) - count in ((1,) if done else (0, 1))
            if done:
                break
            new.charge(COST, **RECORD)
            # Now the old file lacks a charge that was granted.
            now = places.copy("now")
            os.replace(old, places.path)
            with pytest.raises(LedgerTamperedError):
                places.open()
            os.replace(now, places.path)
        assert step > 20
        os.replace(old, places.path)
        with pytest.raises(LedgerTamperedError):
            places.open()

    @pytest.mark.experiment
    def test_a_first_anchor_that_is_killed_at_any_step_is_made_by_the_next_one(self, tmp_path):
        for step in itertools.count(1, 2):
            folder = tmp_path / f"{step}"
            folder.mkdir()
            places = Places(folder)
            done = killed_at(step, places.new)
            places.new().charge(COST, **RECORD)
            assert places.open().verify() == 1
            if done:
                break
        assert step > 20

    @pytest.mark.experiment
    def test_a_restoration_that_is_killed_can_be_declared_again(self, tmp_path):
        for step in itertools.count(1, 3):
            folder = tmp_path / f"{step}"
            folder.mkdir()
            places = TestRestoring().restored(Places(folder))
            ledger = PrivacyLedger.open(places.path)
            done = killed_at(step, partial(ledger.anchor_again, places.anchor, reason="x"))
            ledger.anchor_again(places.anchor, reason="y").charge(COST, **RECORD)
            assert places.open().verify() == 2
            if done:
                break


def charge_often(ledger, times, outcomes):
    admitted = 0
    for _ in range(times):
        try:
            ledger.charge(PureDpEvent(0.01), **RECORD)
            admitted += 1
        except BudgetExceededError:
            pass
    outcomes.put(admitted)


class TestWriters:
    def test_processes_share_a_budget_and_its_anchor(self, places):
        ledger = places.new()
        context = multiprocessing.get_context("fork")
        outcomes = context.Queue()
        processes = [
            context.Process(target=charge_often, args=(ledger, 30, outcomes)) for _ in range(4)
        ]
        for process in processes:
            process.start()
        assert sum(outcomes.get(timeout=60) for _ in processes) == 100
        for process in processes:
            process.join()
        assert places.open().verify() == 100

    def test_threads_share_a_budget_and_its_anchor(self, places):
        ledger = places.new()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: ledger.charge(PureDpEvent(0.01), **RECORD), range(20)))
        assert places.open().verify() == 20

    def test_a_writer_that_was_overtaken_on_its_way_to_the_anchor_goes_on(
        self, places, monkeypatch
    ):
        """Where there is no queue, another writer may come between a charge and its anchor."""
        ledger, other = places.new(), places.open()
        chain, overtaken = type(ledger._chain), []
        move = chain._move_anchor

        def overtaken_once(self, connection, pen, what_holds):
            if self is ledger._chain and not overtaken:
                overtaken.append(True)
                monkeypatch.setattr("skdpot.privacy._queue._AVAILABLE", False)
                other.charge(COST, **RECORD)
            move(self, connection, pen, what_holds)

        monkeypatch.setattr(chain, "_move_anchor", overtaken_once)
        ledger.charge(COST, **RECORD)
        assert places.open().verify() == 2 and overtaken
