"""The queue of a ledger's writers: who comes first writes first, and the dead are skipped."""

import contextlib
import logging
import multiprocessing
import os
import signal
import stat
import sys
import threading
import time

import pytest

from skdpot.privacy import PrivacyLedger, PureDpEvent
from skdpot.privacy import _queue as queue
from skdpot.privacy import _store as store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such locks")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def ledger(path):
    return PrivacyLedger(epsilon=1e6, path=path)


def charge(ledger, label):
    ledger.charge(PureDpEvent(0.5), unit="record", label=label)


def start(target, *args):
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    return process


@contextlib.contextmanager
def kept_busy(ledger):
    """Stand in front of all others until the block ends."""
    with queue.in_turn(ledger.path, 60.0):
        yield


def numbers_drawn(path):
    """Return how many numbers the queue has given out."""
    file = path.with_name(path.name + "-queue")
    return int.from_bytes(file.read_bytes()[:8], sys.byteorder) if file.exists() else 0


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def in_line(ledger, starts):
    """Start one writer after the other, each once the one before it stands in the queue."""
    writers = []
    for number, begin in enumerate(starts, 2):
        writers.append(begin())
        wait_until(lambda number=number: numbers_drawn(ledger.path) == number)
    return writers


def test_who_comes_first_writes_first(ledger):
    labels = [f"writer {k}" for k in range(8)]
    with kept_busy(ledger):
        starts = [lambda label=label: start(charge, ledger, label) for label in labels]
        processes = in_line(ledger, starts)
    for process in processes:
        process.join()
    assert [entry.label for entry in ledger.entries()] == labels


def test_threads_stand_in_the_queue_as_processes_do(ledger):
    labels = [f"writer {k}" for k in range(5)]

    def begin(label):
        thread = threading.Thread(target=charge, args=(ledger, label))
        thread.start()
        return thread

    with kept_busy(ledger):
        threads = in_line(ledger, [lambda label=label: begin(label) for label in labels])
    for thread in threads:
        thread.join()
    assert [entry.label for entry in ledger.entries()] == labels


def test_nobody_waits_for_the_dead(ledger):
    with kept_busy(ledger):
        starts = [lambda label=label: start(charge, ledger, label) for label in "abcd"]
        processes = in_line(ledger, starts)
        for victim in (processes[0], processes[2]):
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
    for process in processes:
        process.join()
    assert [entry.label for entry in ledger.entries()] == ["b", "d"]
    charge(ledger, "e")


def die_in_front(path):
    with queue.in_turn(path, 60.0):
        os.kill(os.getpid(), signal.SIGKILL)


def test_nothing_is_left_at_rest_and_what_the_dead_leave_is_used(ledger, path):
    charge(ledger, "a")
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    start(die_in_front, path).join()
    assert numbers_drawn(path) == 1
    charge(ledger, "b")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_writer_says_for_whom_it_waits(ledger, monkeypatch, caplog):
    monkeypatch.setattr(queue, "_SAYS_SO_AFTER", 0.0)
    caplog.set_level(logging.WARNING)
    with kept_busy(ledger):
        thread = threading.Thread(target=charge, args=(ledger, "a"))
        thread.start()
        wait_until(lambda: caplog.records)
    thread.join()
    said = caplog.records[0].getMessage()
    assert f"process {os.getpid()} writes to it, and at most 0 others" in said
    assert str(ledger.path) in said


def test_a_writer_goes_past_one_that_does_nothing(ledger, monkeypatch, caplog):
    """One that was stopped, for example. What keeps writers apart is the lock of the file."""
    monkeypatch.setattr(store, "_PATIENCE", 0.05)
    with kept_busy(ledger):
        charge(ledger, "a")
        (record,) = caplog.records
        assert f"Process {os.getpid()} stands in front of all" in record.getMessage()
        # Those who come later do not wait for it.
        charge(ledger, "b")
        assert len(caplog.records) == 1
    charge(ledger, "c")
    assert [entry.label for entry in ledger.entries()] == ["a", "b", "c"]


@pytest.mark.experiment
def test_patience_begins_anew_with_everyone_who_is_served(ledger, monkeypatch, caplog):
    """Whoever waits for many waits as long as it takes, and goes past none of them."""
    monkeypatch.setattr(store, "_PATIENCE", 3.0)

    def charge_slowly(label):
        with kept_busy(ledger):
            time.sleep(1.0)
        charge(ledger, label)

    starts = [lambda label=label: start(charge_slowly, label) for label in "abcd"]
    with kept_busy(ledger):
        processes = in_line(ledger, starts)
        last = in_line_last(ledger, 6)
    last.join()
    for process in processes:
        process.join()
    assert len(ledger.entries()) == 5
    assert "goes past" not in caplog.text


def in_line_last(ledger, number):
    last = threading.Thread(target=charge, args=(ledger, "last"))
    last.start()
    wait_until(lambda: numbers_drawn(ledger.path) == number)
    return last


def test_a_fork_takes_no_place_in_the_queue(ledger):
    """It has copies of its parent's open files, and would keep the locks as long as it lives."""
    with kept_busy(ledger):
        thread = threading.Thread(target=charge, args=(ledger, "a"))
        thread.start()
        wait_until(lambda: numbers_drawn(ledger.path) == 2)
        sleeper = start(time.sleep, 60)
    try:
        thread.join()
        charge(ledger, "b")
        assert [entry.label for entry in ledger.entries()] == ["a", "b"]
    finally:
        sleeper.kill()
        sleeper.join()


def test_a_fork_in_the_middle_of_a_charge_does_not_stand_in_for_its_parent(ledger, caplog):
    with kept_busy(ledger):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with queue.in_turn(ledger.path, 0.01):
            assert "stands in front of all" in caplog.text


@pytest.mark.parametrize("error", [PermissionError, None])
def test_without_a_queue_the_lock_of_the_file_is_enough(ledger, monkeypatch, error):
    if error:
        monkeypatch.setattr(queue, "_opened_or_made", lambda *args: os.open("/nowhere/x", 0))
    else:
        monkeypatch.setattr(queue, "_AVAILABLE", False)
    charge(ledger, "a")
    assert ledger.verify() == 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_all_files_are_made_for_their_owner_alone(path, umask, monkeypatch):
    seen = {}

    def look(*args):
        for file in path.parent.iterdir():
            seen.setdefault(file.name.rpartition("-")[2], stat.S_IMODE(file.stat().st_mode))

    follow, connect = store.Chain._follow, store._connect_to_new

    def connect_and_look(draft):
        connection = connect(draft)
        look()
        return connection

    monkeypatch.setattr(store.Chain, "_follow", lambda *args: look() or follow(*args))
    monkeypatch.setattr(store, "_connect_to_new", connect_and_look)
    before = os.umask(umask)
    try:
        ledger = PrivacyLedger(epsilon=1.0, path=path)
        charge(ledger, "a")
        with store.Chain(path, None).writing(store.ORIGIN) as pen:
            pen.append({})
            look()
    finally:
        os.umask(before)
    assert {path.name, "queue", "wal", "shm"} <= set(seen)
    assert set(seen.values()) == {0o600}


def test_a_file_that_is_shared_with_a_group_keeps_its_mode(path, ledger):
    path.chmod(0o660)
    with kept_busy(ledger):
        assert stat.S_IMODE(path.with_name(path.name + "-queue").stat().st_mode) == 0o660
    charge(ledger, "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
