"""The ledger among processes: concurrent writers, crashes, worker processes, full disks."""

import contextlib
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdpot import SphericalProjectionSampler, WassersteinProjectionSampler
from skdpot.privacy import BudgetExceededError, LedgerError, PrivacyLedger, PureDpEvent
from skdpot.privacy import records as chain
from tests.quick import first_quick

RECORD = {"unit": "record", "label": "x"}
COST = PureDpEvent(0.001)
X = np.tile(np.eye(4), (6, 1))


def attempt(ledger):
    """Charge once, and tell whether the budget allowed it."""
    try:
        ledger.charge(COST, **RECORD)
    except BudgetExceededError:
        return False
    return True


def charge_often(ledger, times, outcomes):
    """Charge many times, and send back whether each charge was admitted."""
    outcomes.put([attempt(ledger) for _ in range(times)])


def start(target, *args, method="fork"):
    process = multiprocessing.get_context(method).Process(target=target, args=args)
    process.start()
    return process


def test_eight_processes_share_one_budget(tmp_path):
    ledger = PrivacyLedger(epsilon=0.12, path=tmp_path / "ledger.sqlite")
    outcomes = multiprocessing.get_context("fork").Queue()
    processes = [start(charge_often, ledger, 25, outcomes) for _ in range(8)]
    answers = [answer for _ in processes for answer in outcomes.get(timeout=60)]
    for process in processes:
        process.join()
    assert (len(answers), sum(answers)) == (200, 120)
    assert ledger.verify() == len(ledger.entries()) == 120
    assert ledger.spent() == (0.12, 0.0)


def charge_until_killed(ledger, acknowledged):
    """Charge for ever; write down every receipt as soon as it is there."""
    with open(acknowledged, "wb", buffering=0) as file:
        while True:
            try:
                receipt = ledger.charge(COST, **RECORD)
            except BudgetExceededError:
                return
            file.write(f"{receipt.number} {receipt.digest}\n".encode())


@pytest.mark.experiment
def test_killed_processes_lose_no_acknowledged_charge(tmp_path, rng):
    """A process that is killed at any moment has recorded at most one charge that it never saw."""
    ledger = PrivacyLedger(epsilon=2.4, path=tmp_path / "ledger.sqlite")
    killed, files = 0, []

    def launch():
        files.append(tmp_path / f"acknowledged-{len(files)}")
        # A process may be killed before it opens its file.
        files[-1].touch()
        return start(charge_until_killed, ledger, files[-1])

    running = [launch() for _ in range(8)]
    while killed < 24:
        time.sleep(rng.uniform(0.005, 0.05))
        victim = running.pop(int(rng.integers(len(running))))
        if victim.is_alive():
            os.kill(victim.pid, signal.SIGKILL)
            killed += 1
        victim.join()
        if victim.exitcode == 0:
            break
        running.append(launch())
    for process in running:
        process.join(timeout=60)
    acknowledged = [line.split() for file in files for line in file.read_text().splitlines()]
    recorded = {str(entry.number): entry.digest for entry in ledger.entries()}
    assert all(recorded[number] == digest for number, digest in acknowledged)
    assert len(acknowledged) <= len(recorded) <= len(acknowledged) + killed
    assert ledger.verify() == len(recorded) == 2400
    assert killed >= 8


@pytest.mark.experiment
def test_fork_while_another_thread_charges_does_not_hang():
    ledger = PrivacyLedger(epsilon=1e6)
    stop = threading.Event()

    def charge_on():
        while not stop.is_set():
            ledger.charge(COST, **RECORD)

    thread = threading.Thread(target=charge_on)
    thread.start()
    try:
        outcomes = multiprocessing.get_context("fork").Queue()
        children = [start(charge_often, ledger, 3, outcomes) for _ in range(4)]
        assert [outcomes.get(timeout=60) for _ in children] == [[True] * 3] * 4
    finally:
        stop.set()
        thread.join()
    for child in children:
        child.join()
    assert ledger.verify() == len(ledger.entries())


@pytest.mark.parametrize("n_jobs", first_quick([1, 2]))
@pytest.mark.parametrize("kind", [SphericalProjectionSampler])
def test_grid_search_spends_the_budget_of_the_users_own_ledger(kind, n_jobs):
    ledger = PrivacyLedger(epsilon=100.0)
    pipeline = make_pipeline(kind(0.5, ledger=ledger), KMeans(2, n_init=1, random_state=0))
    name = type(pipeline[0]).__name__.lower()
    search = GridSearchCV(pipeline, {f"{name}__order": [1, 2]}, cv=3, refit=True, n_jobs=n_jobs)
    search.fit(X)
    # For 2 candidates and 3 folds a release to fit and one to score, and one for the refit.
    assert len(ledger.entries()) == 13
    assert ledger.spent() == (6.5, 0.0)
    assert {entry.unit for entry in ledger.entries()} == {"user"}
    assert search.best_estimator_[0].ledger is ledger


@pytest.mark.parametrize("n_jobs", first_quick([1, 4]))
def test_pickled_estimators_in_workers_spend_the_users_budget(n_jobs):
    ledger = PrivacyLedger(epsilon=2.0)
    sampler = WassersteinProjectionSampler(0.5, cost_matrix=1 - np.eye(4), ledger=ledger).fit(X)

    def release(_):
        try:
            return len(sampler.transform(X))
        except BudgetExceededError:
            return 0

    released = Parallel(n_jobs=n_jobs)(delayed(release)(i) for i in range(7))
    assert sorted(released) == [0, 0, 0] + [len(X)] * 4
    assert ledger.remaining() == (0.0, 0.0)


def folder_of_child(ledger, folders):
    """Make a temporary ledger in a child, and tell where it lies."""
    attempt(ledger)
    own = PrivacyLedger(epsilon=1.0)
    attempt(own)
    folders.put(str(own.path.parent))


@pytest.mark.experiment
def test_temporary_file_lives_as_long_as_the_process_that_made_it():
    script = """
import copy, pickle
from skdpot.privacy import PrivacyLedger
ledger = PrivacyLedger(epsilon=1.0)
again = pickle.loads(pickle.dumps(ledger))
print(again.path)
del ledger, again
"""
    how = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", script], **how)
    assert not Path(done.stdout.strip()).parent.exists()
    ledger = PrivacyLedger(epsilon=1.0)
    folders = multiprocessing.get_context("fork").Queue()
    child = start(folder_of_child, ledger, folders)
    theirs = folders.get(timeout=60)
    child.join()
    assert not Path(theirs).exists()
    assert ledger.path.exists() and len(ledger.entries()) == 1


def in_a_child(function):
    """Run a function in a forked child, and return what it prints."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.write(writing, function().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        said = file.read()
    os.waitpid(child, 0)
    return said


def outcome(ledger):
    try:
        ledger.charge(COST, **RECORD)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "charged"


def test_read_only_file_charges_nothing(tmp_path):
    ledger = PrivacyLedger(epsilon=1.0, path=tmp_path / "ledger.sqlite")
    for place, mode in [(ledger.path, 0o444), (tmp_path, 0o555)]:
        place.chmod(mode)
    # Whoever may do anything, as root may, is not kept from writing by a mode.
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)

    def as_nobody():
        if os.getuid() == 0:
            os.setuid(65534)
        return outcome(ledger)

    said = in_a_child(as_nobody)
    tmp_path.chmod(0o755)
    assert said.startswith("LedgerError") and "Nothing was charged" in said
    assert "read-only" in said or "cannot be opened" in said or "Permission denied" in said
    assert ledger.entries() == []


def test_full_disk_charges_nothing(tmp_path):
    """Files that may not grow behave as on a full disk."""
    ledger = PrivacyLedger(epsilon=1.0, path=tmp_path / "ledger.sqlite")

    def with_no_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        return outcome(ledger)

    said = in_a_child(with_no_room)
    assert said.startswith("LedgerError") and "Nothing was charged" in said
    assert "disk" in said
    assert ledger.entries() == []
    assert attempt(ledger)


def test_nothing_is_released_when_the_ledger_fails(tmp_path, monkeypatch):
    ledger = PrivacyLedger(epsilon=1.0, path=tmp_path / "ledger.sqlite")
    sampler = WassersteinProjectionSampler(0.5, cost_matrix=1 - np.eye(4), ledger=ledger).fit(X)
    drawn = []
    monkeypatch.setattr(type(sampler._fitted.draws), "draw", lambda *args: drawn.append(args))
    ledger.path.unlink()
    with pytest.raises(LedgerError):
        sampler.transform(X)
    assert drawn == []


def test_writer_that_is_locked_out_gives_up_with_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "_PATIENCE", 0.2)
    ledger = PrivacyLedger(epsilon=1.0, path=tmp_path / "ledger.sqlite")
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process has kept it locked"):
            ledger.charge(COST, **RECORD)
    assert attempt(ledger)


def test_writer_that_waits_hears_an_interruption(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    ledger = PrivacyLedger(epsilon=1.0, path=tmp_path / "ledger.sqlite")
    before = signal.signal(signal.SIGALRM, interrupt)
    with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begun = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                ledger.charge(COST, **RECORD)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert time.monotonic() - begun < 30
    assert ledger.entries() == []
    assert attempt(ledger)
