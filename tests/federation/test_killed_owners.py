"""Owners and coordinators who are killed at any step: one charge, and the same answer."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from skdpot import PrivacyLedger
from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterOwner,
    GroupRelease,
    InProcessCarrier,
    SecureAggregation,
    run_barycenter,
)
from skdpot.federation._secure_sum import SecureSumOwner
from skdpot.federation._state_file import StateFile
from skdpot.federation._wire import unpack
from skdpot.privacy._store import Pen

NAMES = ("a", "b", "c")
RELEASE = GroupRelease(2.0, ["red", "blue"], bounds=([0], [4]), delta=1e-3, kind="moments")
FORK = multiprocessing.get_context("fork")
# Class, method, and whether the process ends before or after it.
PLACES = {
    "before the answer is drawn": (GroupRelease, "part", True),
    "after the answer was drawn": (GroupRelease, "part", False),
    "before the state is written": (StateFile, "write", True),
    "after the state was written": (StateFile, "write", False),
    "before the charge": (PrivacyLedger, "charge", True),
    "in the charge": (Pen, "append", False),
    "after the charge": (PrivacyLedger, "charge", False),
    "before the answer leaves": (BarycenterOwner, "_answer", False),
}
PLACES_OF_SUMS = {
    "before keys are drawn": (SecureSumOwner, "advertise", True),
    "after keys were drawn": (SecureSumOwner, "advertise", False),
    "after secrets were shared": (SecureSumOwner, "share", False),
    "before the mask": (SecureSumOwner, "mask", True),
    "after the mask": (SecureSumOwner, "mask", False),
    "after the reveal": (SecureSumOwner, "reveal", False),
}


class Processes:
    """Owners of which every message finds a new process; a carrier."""

    def __init__(self, folder):
        self.folder, self.answers, self.deaths = folder, {}, []
        for name in NAMES:
            # Enough for one release, and not for two.
            PrivacyLedger(2.5, 1e-3, path=folder / f"{name} ledger")

    def owner(self, name):
        """Return an owner that begins now."""
        return BarycenterOwner(
            name,
            np.random.default_rng(ord(name)).uniform(0, 4, size=(40, 1)),
            ["red", "blue"] * 20,
            release=RELEASE,
            ledger=PrivacyLedger.open(self.folder / f"{name} ledger"),
            state=self.folder / f"{name} state",
        )

    def answer_of(self, name, data):
        """Return what an owner that begins now answers."""
        return self.owner(name).handle(data)

    def ask(self, name, data, prepare=None, delay=None):
        """Return what a new process answers, None if it is killed."""
        here, there = FORK.Pipe(duplex=False)

        def run():
            if prepare is not None:
                prepare()
            there.send_bytes(self.answer_of(name, data))

        process = FORK.Process(target=run)
        process.start()
        there.close()
        if delay is not None:
            time.sleep(delay)
            os.kill(process.pid, signal.SIGKILL)
        try:
            answer = here.recv_bytes()
        except EOFError:
            answer = None
        process.join()
        self.deaths.append(process.exitcode)
        return answer

    def note(self, name, data, answer):
        """Check that a message that is asked again has the same answer."""
        kind = unpack(answer).kind
        assert kind != "refusal", unpack(answer).fields
        assert self.answers.setdefault((name, data), answer) == answer

    def charges(self):
        """Return how often every owner was charged."""
        ledgers = [PrivacyLedger.open(self.folder / f"{name} ledger") for name in NAMES]
        return [len(ledger.entries()) for ledger in ledgers]


def coordinator_of(secure):
    """Return a coordinator of three owners."""
    aggregation = SecureAggregation() if secure else None
    return BarycenterCoordinator(NAMES, 4, release=RELEASE, secure=aggregation)


def run_through(processes, coordinator, ask):
    """Let the coordinator ask until it is finished; every message is also asked a second time."""
    while not coordinator.finished:
        messages = coordinator.messages()
        for name, data in messages.items():
            answers = [ask(name, data), processes.answer_of(name, data)]
            for answer in answers:
                if answer is not None:
                    processes.note(name, data, answer)
            coordinator.receive(name, answers[1])
        coordinator.advance()
    return coordinator.result()


def dying_once(owner, name, before, n_th):
    """Let a process end before or after its n-th call of a method."""
    method, calls = getattr(owner, name), []

    def dies(*arguments, **options):
        calls.append(name)
        if before and len(calls) == n_th:
            os._exit(9)
        result = method(*arguments, **options)
        if len(calls) == n_th:
            os._exit(9)
        return result

    setattr(owner, name, dies)


@pytest.mark.parametrize(
    ("secure", "place"),
    [(False, "after the charge"), *((True, place) for place in PLACES_OF_SUMS | PLACES)],
)
def test_an_owner_that_dies_in_a_step_is_charged_once_and_says_the_same(tmp_path, secure, place):
    processes = Processes(tmp_path)

    def ask(name, data):
        # One owner dies in every leg in which it comes to this place.
        if name != "b":
            return None
        where = (PLACES_OF_SUMS | PLACES)[place]
        return processes.ask(name, data, lambda: dying_once(*where, 1))

    found = run_through(processes, coordinator_of(secure), ask)
    assert 9 in processes.deaths
    assert found.owners == NAMES and found.released.sizes.sum() > 0
    assert processes.charges() == [1, 1, 1]


@pytest.mark.experiment
@pytest.mark.parametrize("seed", range(10 * int(os.environ.get("SKDPOT_SCHEDULES", "1"))))
def test_owners_that_are_killed_at_random_are_charged_once(tmp_path, seed):
    rng, processes = np.random.default_rng(seed), Processes(tmp_path)

    def ask(name, data):
        # The first one dies at once, however fast this machine answers.
        delay = rng.uniform(0, 0.1) if processes.deaths else 0.0
        return processes.ask(name, data, delay=delay)

    found = run_through(processes, coordinator_of(secure=seed % 2 == 1), ask)
    assert found.owners == NAMES
    assert processes.charges() == [1, 1, 1]
    assert -signal.SIGKILL in processes.deaths


class DyingCarrier(InProcessCarrier):
    """A network between owners in this process and a coordinator that dies at its n-th message."""

    def __init__(self, owners, n_th, before):
        super().__init__(owners)
        self.left, self.before = n_th, before

    def exchange(self, messages, timeout=None):
        """Return what is answered, or die before or after it was."""
        self.left -= 1
        if not self.left and self.before:
            os._exit(9)
        answers = super().exchange(messages)
        if not self.left:
            os._exit(9)
        return answers


@pytest.mark.parametrize("secure", [False, True])
def test_a_coordinator_that_dies_in_every_leg_goes_on_and_nobody_is_charged_twice(
    tmp_path, monkeypatch, secure
):
    """All processes die together, and nothing but files is left; nobody named a checkpoint."""
    processes = Processes(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(n_th, before):
        owners = [processes.owner(name) for name in NAMES]
        found = run_barycenter(coordinator_of(secure), DyingCarrier(owners, n_th, before))
        os._exit(0 if found.owners == NAMES else 1)

    deaths = []
    for n_th in range(1, 9):
        for before in (True, False):
            process = FORK.Process(target=run, args=(n_th, before))
            process.start()
            process.join()
            deaths.append(process.exitcode)
            assert max(processes.charges()) <= 1
            if process.exitcode == 0:
                break
        if deaths[-1] == 0:
            break
    assert set(deaths[:-1]) == {9} and deaths[-1] == 0
    assert processes.charges() == [1, 1, 1]
    assert not list(tmp_path.glob("*.checkpoint"))
