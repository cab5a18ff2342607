"""Owners whose processes are killed, on a network that does anything, and what must hold of them.

An owner lives in a folder: its ledger and its state are files, and nothing else outlives its
process. `PartyHere` kills it within this process, at any call of a function; `PartyElsewhere` is a
process that is sent SIGKILL. What leaves an owner is written down, with the vector behind it.
"""

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing.connection import Client, Listener
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np

from skdpot import PrivacyLedger
from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterOwner,
    FederationError,
    GroupRelease,
    SecureAggregation,
    SigningKey,
    run_barycenter,
)
from skdpot.federation._allocation_settings import read_node
from skdpot.federation._wire import Packet, WireError, pack, unpack
from skdpot.privacy import allow_useless_releases
from tests.oracles.faulty_carrier import arriving

NAMES = ("a", "b", "c")
BOUNDS = ([0.0, 0.0], [4.0, 4.0])
RELEASE = GroupRelease(4.0, ["red", "blue"], bounds=BOUNDS, delta=1e-3, kind="moments")
KEYS = {name: SigningKey(name.encode() * 32) for name in (*NAMES, "k", "x")}
PUBLICS = {name: KEYS[name].public for name in NAMES}
# That of the coordinator, and one that nobody knows.
ASKING, STRANGER = KEYS["k"], KEYS["x"]
MOST_EXCHANGES = 400
MOST_RUNS = 12
# Seconds in which a process answers.
PATIENCE = 60.0
PROJECT = Path(__file__).parents[2]
PROTOCOL = tuple(
    str(PROJECT / "skdpot" / room) for room in ("federation", "privacy/_store", "privacy/ledger")
)


class Killed(BaseException):
    """A process ended, here without one."""


@dataclass(frozen=True)
class Terms:
    """What owners and coordinator of a schedule agreed on."""

    method: str = "release"
    secure: bool = False
    on_missing: str = "raise"
    keys: bool = False


def new_folder(path, ledgers=None):
    """Return a folder for every owner, with a new ledger, or a link to one that there is."""
    for name in NAMES:
        (path / name).mkdir(parents=True)
        if ledgers is None:
            PrivacyLedger(1e9, 0.5, path=path / name / "ledger").close()
        else:
            (path / name / "ledger").symlink_to(ledgers / name / "ledger")
    return path


def ledger_of(path, name):
    """Return an owner's ledger."""
    return PrivacyLedger.open((path / name / "ledger").resolve())


class Party:
    """An owner as its process makes it, from its folder alone."""

    def __init__(self, name, path, terms):
        rows = np.random.default_rng(ord(name)).uniform(0, 4, size=(9, 2))
        groups, given = name, {"secure": terms.secure, "state": path / name / "state"}
        if terms.keys:
            given |= {"key": KEYS[name], "owners": PUBLICS, "coordinator_key": ASKING.public}
        if terms.method == "release":
            groups = ["red", "blue", "red"] * 3
            given |= {"release": RELEASE, "ledger": ledger_of(path, name)}
        self._owner = BarycenterOwner(name, rows, groups, **given)

    def handle(self, data):
        """Return the reply, and the vector that is behind it."""
        reply = self._owner.handle(data)
        packet = unpack(reply)
        if packet.kind not in ("answer", "masked"):
            return reply, None
        return reply, self._sessions[packet.session].vector

    @property
    def _sessions(self):
        return self._owner._sessions._present

    def remembered(self):
        """Return the vectors that it could send again, by session."""
        # Whatever is asked, it reads its state first.
        self._owner.handle(pack(Packet("nothing"), ASKING))
        return {name: one.vector for name, one in self._sessions.items() if one.round >= 0}


def kind_of(data):
    """Return what kind of message bytes are."""
    try:
        return unpack(data).kind
    except WireError:
        return "none"


class PartyHere:
    """An owner in this process, that may be killed at any event that a profiler sees."""

    # How many events a profiler sees where a message of a kind is answered.
    lengths: ClassVar = {}

    def __init__(self, name, path, terms):
        self._make = lambda: Party(name, path, terms)
        self._party, self._lock = None, str(path / name / "state-lock")

    def answer(self, data, moment=None):
        """Return what left the owner: (reply, vector) or None; kill it at a moment in (0, 1)."""
        if moment is None:
            self._party = self._party or self._make()
            return self._party.handle(data)
        kind = kind_of(data)
        # A little more is after the work, and before the answer leaves.
        last = int(1.05 * moment * self.lengths.get(kind, 1e9))
        count = 0

        def watch(frame, _event, _argument):
            nonlocal count
            # Between two steps of the protocol, and not within the numerics of one.
            count += frame.f_code.co_filename.startswith(PROTOCOL)
            if count == last:
                raise Killed

        try:
            sys.setprofile(watch)
            self._party = self._party or self._make()
            self._party.handle(data)
            self.lengths[kind] = count
        except Killed:
            pass
        finally:
            sys.setprofile(None)
            self._party = None
        # What it had open is closed, and what it had locked is free, as it is after a process.
        gc.collect()
        for number in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):
                if os.readlink(f"/proc/self/fd/{number}") == self._lock:
                    os.close(int(number))
        return None

    def stop(self):
        """End it."""
        self._party = None


class Liar:
    """An owner that sends something else than it should, in the name and with the keys it has."""

    def __init__(self, party, lie, rng, log, key):
        self._party, self.lie, self._rng, self._log, self._key = party, lie, rng, log, key

    def answer(self, data, moment=None):
        """Return what left the owner, with the vector that it claims; None if it is hidden."""
        left = self._party.answer(data, moment)
        packet = None if left is None else unpack(left[0])
        if packet is None or packet.kind != LIES[self.lie]:
            return left
        self._log.faults[f"lie: {self.lie}"] += 1
        told = lied(packet, self.lie, self._rng)
        return pack(told, self._key), told.arrays.get("vector")

    def stop(self):
        """End it."""
        self._party.stop()


# What a liar lies about, and in which of its messages.
LIES = {
    "many rows": "welcome",
    "another width": "welcome",
    "zeros": "answer",
    "a constant": "answer",
    "a large constant": "answer",
    "the largest number": "answer",
    "another length": "answer",
    "another type": "answer",
    "keys": "keys",
    "points": "shares",
    "all shares": "shares",
    "a share": "shares",
    "masked": "masked",
    "revealed": "reveal",
}


def lied(packet, lie, rng):
    """Return a lie in the place of an answer."""
    fields, arrays = dict(packet.fields), dict(packet.arrays)
    vector = arrays.get("vector")
    if lie == "many rows":
        fields["n_rows"] = 5 * 10**11
    elif lie == "another width":
        fields["n_features"] = 3
    elif lie in ("zeros", "a constant", "a large constant", "the largest number"):
        of = {"zeros": 0, "a constant": 5, "a large constant": 10**15, "the largest number": 2**60}
        arrays["vector"] = np.full_like(vector, of[lie])
    elif lie == "another length":
        arrays["vector"] = vector[1:]
    elif lie == "another type":
        arrays["vector"] = vector.view(np.uint64)
    elif lie == "keys":
        arrays["keys"] = rng.integers(256, size=arrays["keys"].shape, dtype=np.uint8)
    elif lie == "points":
        arrays["points"] = arrays["points"][::-1].copy()
    elif lie == "all shares" or lie == "revealed":
        arrays["shares"] = arrays["shares"] ^ 1
    elif lie == "a share":
        arrays["shares"] = arrays["shares"].copy()
        arrays["shares"][0, -1] ^= 1
    elif lie == "masked":
        words = rng.integers(2**63, size=arrays["masked"].shape, dtype=np.uint64)
        arrays["masked"] = arrays["masked"] + words
    return replace(packet, fields=fields, arrays=arrays)


class Nursery:
    """A process that has loaded the package, and forks: what begins so begins at once."""

    def __init__(self, path):
        self._listener = Listener(str(path), "AF_UNIX")
        environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", __file__, str(path)]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        # Nobody would ever call if the process failed.
        if not self._process.stdout.readline():
            raise RuntimeError("the process that forks did not start")
        self._pipe = self._listener.accept()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._pipe.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._listener.close()

    def begin(self, role, *arguments):
        """Return the pipe to a new process, and its number."""
        self._pipe.send((role, *arguments))
        pipe = self._listener.accept()
        return pipe, pipe.recv()


def be_the_nursery(path):
    """Fork whenever it is asked for."""
    # Nobody asks how a child ended: it is gone once its pipe is.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    pipe = Client(path, "AF_UNIX")
    with suppress(EOFError), allow_useless_releases():
        while True:
            role, folder, terms, *arguments = pipe.recv()
            if os.fork() == 0:
                pipe.close()
                pipe = Client(path, "AF_UNIX")
                pipe.send(os.getpid())
                ROLES[role](Path(folder), Terms(**terms), pipe, *arguments)
                os._exit(0)


def be_an_owner(path, terms, pipe, name):
    """Answer messages."""
    party = Party(name, path, terms)
    with suppress(EOFError, BrokenPipeError):
        while True:
            pipe.send(party.handle(pipe.recv()))


def be_a_node(_path, _terms, pipe, config):
    """Answer messages as a node of an allocation, which is read anew for each, as on Flower."""
    with suppress(EOFError, BrokenPipeError):
        while True:
            data = pipe.recv()
            pipe.send(read_node(config).owner.handle(data))


class PartyElsewhere:
    """An owner, or a node, in a process that may be sent SIGKILL."""

    # How long work takes, from which moments of death are drawn.
    longest = 0.06

    def __init__(self, nursery, name, path, terms, role="owner"):
        self._nursery = nursery
        self._arguments = role, str(path), asdict(terms), name
        self._pipe = None

    def answer(self, data, moment=None):
        """Return what left the owner: (reply, vector) or None; kill it at a moment in (0, 1)."""
        if self._pipe is None:
            self._pipe, self._pid = self._nursery.begin(*self._arguments)
        self._pipe.send(data)
        if moment is None:
            assert self._pipe.poll(PATIENCE), "an owner hangs"
            return self._pipe.recv()
        time.sleep(moment * self.longest)
        return self.stop()

    def stop(self):
        """End it; return what it had sent before."""
        if self._pipe is None:
            return None
        os.kill(self._pid, signal.SIGKILL)
        pipe, self._pipe = self._pipe, None
        with pipe, suppress(EOFError, ConnectionError):
            return pipe.recv()


def make_coordinator(terms):
    """Return a coordinator, as its process makes it."""
    release = terms.method == "release"
    return BarycenterCoordinator(
        PUBLICS if terms.keys else NAMES,
        4,
        method=terms.method,
        release=RELEASE if release else None,
        candidates=None if release else np.random.default_rng(0).uniform(0, 4, size=(12, 2)),
        bounds=None if release else BOUNDS,
        secure=SecureAggregation() if terms.secure else None,
        max_iter=3,
        on_missing=terms.on_missing,
        weights="uniform",
        key=ASKING if terms.keys else None,
    )


@dataclass
class Log:
    """What happened: faults by their kinds, and what left every owner."""

    faults: Counter = field(default_factory=Counter)
    # (name, session, round) -> vectors that differ from each other.
    spoken: dict = field(default_factory=lambda: defaultdict(list))

    def note(self, name, reply, vector):
        """Write down what left an owner."""
        packet = unpack(reply)
        if packet.kind == "answer":
            # It is what is sent, as far as nothing hides it.
            np.testing.assert_array_equal(packet.arrays["vector"], vector)
        if vector is not None:
            known = self.spoken[name, packet.session, packet.round]
            if not any(np.array_equal(vector, one) for one in known):
                known.append(vector)


class FaultyNetwork:
    """Takes messages to owners, and does what it likes with them and with owners."""

    def __init__(self, parties, rng, rate, terms, log):
        self.parties, self._rng, self._rate, self.log = parties, rng, rate, log
        self._strays, self._past, self._keys = strays(terms), [], terms.keys
        self._to_owners, self._to_coordinator = [], []
        self._now, self.healed, self.gone = 0, False, set()

    def heal(self):
        """Do no more harm, and lose what is on its way: an old question may end an attempt."""
        if not self.healed:
            self.healed, self._to_owners, self._to_coordinator = True, [], []

    def exchange(self, messages, timeout=None):
        """Return what arrives, of this exchange and of former ones."""
        self._now += 1
        assert self._now < MOST_EXCHANGES, "there is no end to this"
        sent = [one for name, data in messages.items() for one in self._fate(name, data)]
        self._past += messages.values()
        for name in NAMES:
            if self._happens("replay"):
                sent.append((self._now, name, self._one_of(self._past)))
            if self._happens("stray"):
                sent.append((self._now, name, self._one_of(self._strays)))
            if self._happens("garbage"):
                sent.append((self._now, name, self._rng.bytes(int(self._rng.integers(200)))))
        for name, data in arriving(self._to_owners, sent, self._now, self._rng):
            if name in self.gone:
                continue
            # Where it answers is where a charge and an answer could part.
            times = 8 if kind_of(data) in ("step", "masked") else 2
            moment = self._rng.random() if self._happens("kill", times) else None
            left = self.parties[name].answer(data, moment)
            if left is not None:
                self.log.note(name, *left)
                self._to_coordinator += self._fate(name, left[0])
        return arriving(self._to_coordinator, [], self._now, self._rng)

    def _one_of(self, things):
        return things[self._rng.integers(len(things))]

    def _happens(self, fault, times=1.0):
        happens = not self.healed and self._rng.random() < times * self._rate
        self.log.faults[fault] += happens
        return happens

    def _fate(self, name, data):
        """Return when a message arrives, how often, from or to whom, and what is left of it."""
        if self._happens("loss", 2):
            return []
        if self._happens("other name"):
            name = self._one_of(NAMES)
        copies = 2 if self._happens("duplicate") else 1
        return [(self._now + self._delay(), name, self._damaged(data)) for _ in range(copies)]

    def _delay(self):
        return int(self._rng.choice([1, 2, 5, 40])) if self._happens("delay") else 0

    def _damaged(self, data):
        if self._happens("cut"):
            return data[: self._rng.integers(len(data))]
        if self._happens("bit"):
            damaged = bytearray(data)
            # More often in the numbers, which are at the end.
            damaged[-1 - int(len(data) * self._rng.random() ** 3)] ^= 1 << self._rng.integers(8)
            return bytes(damaged)
        if self._happens("other message"):
            return other_message(data, self._rng)
        # Without keys whoever has the wire is believed.
        if self._keys and self._happens("forgery", 3):
            return forged(data, self._rng)
        return data


def other_message(data, rng):
    """Return a message as somebody wrote it who knows the format, and has no keys."""
    try:
        packet = unpack(data)
    except WireError:
        return data
    forged = [
        # Of a later one it could believe that it is next, as long as nothing is signed.
        replace(packet, round=max(packet.round - 1, 0)),
        replace(packet, attempt="another"),
        replace(packet, session=packet.session[::-1]),
        replace(packet, sender=str(rng.choice(NAMES))),
    ]
    return pack(forged[rng.integers(len(forged))])


def forged(data, rng):
    """Return a message with other numbers, with a stranger's signature, or the former one's."""
    try:
        packet = unpack(data)
    except WireError:
        return data
    arrays, fields = dict(packet.arrays), dict(packet.fields)
    if arrays:
        name = str(rng.choice(sorted(arrays)))
        arrays[name] = arrays[name] + np.ones((), arrays[name].dtype)
    elif packet.kind == "welcome":
        fields["n_rows"] = 10
    told = replace(packet, arrays=arrays, fields=fields)
    if rng.random() < 0.5:
        return pack(told, STRANGER)
    return pack(told, SimpleNamespace(sign=lambda _purpose, _content: data[-64:]))


def strays(terms):
    """Return greetings of sessions that end with them."""
    coordinators = [make_coordinator(terms) for _ in range(2)]
    return [data for one in coordinators for data in one.messages().values()]


class CoordinatorHere:
    """Runs the coordinator in this process; it may be killed between any two exchanges."""

    def __init__(self, terms, network, rng, rate, path):
        self._terms, self._network, self._path = terms, network, path
        self._rng, self._rate = rng, rate

    def exchange(self, messages, timeout=None):
        """Exchange messages, or die before or after."""
        self._perhaps_die()
        arrived = self._network.exchange(messages, timeout)
        self._perhaps_die()
        return arrived

    def _perhaps_die(self):
        if self._dies():
            raise Killed

    def _dies(self):
        dies = not self._network.healed and self._rng.random() < self._rate
        self._network.log.faults["kill of the coordinator"] += dies
        return dies

    def run(self):
        """Run, from the checkpoint that there is, until it ends; return what was found."""
        while True:
            coordinator = make_coordinator(self._terms)
            try:
                found = run_barycenter(coordinator, self, checkpoint=self._path)
            except Killed:
                continue
            except FederationError as error:
                return error
            return found_of(coordinator, found)


@dataclass
class Found:
    """What a coordinator found."""

    session: str
    owners: tuple
    asked: tuple
    sums: list
    support: np.ndarray
    objective: float


def found_of(coordinator, found):
    """Return it, with the sums that it was found from."""
    fields = unpack(coordinator.checkpoint()).fields
    return Found(
        fields["session"],
        found.owners,
        tuple(fields["asked"]),
        [total for total, _ in coordinator._sums],
        found.support,
        found.objective,
    )


def be_the_coordinator(path, terms, pipe):
    """Run a coordinator from its checkpoint, with a pipe as carrier."""

    class Carrier:
        def exchange(self, messages, timeout=None):
            pipe.send(("exchange", dict(messages)))
            return pipe.recv()

    coordinator = make_coordinator(terms)
    with suppress(EOFError, BrokenPipeError):
        try:
            found = run_barycenter(coordinator, Carrier(), checkpoint=path)
        except FederationError as error:
            pipe.send(("missing", (str(error), error.missing)))
            return
        pipe.send(("found", asdict(found_of(coordinator, found))))


ROLES = {"owner": be_an_owner, "node": be_a_node, "coordinator": be_the_coordinator}


class CoordinatorElsewhere(CoordinatorHere):
    """Runs the coordinator in a process, that may be sent SIGKILL."""

    longest = 0.03

    def __init__(self, nursery, *arguments):
        super().__init__(*arguments)
        self._nursery = nursery

    def run(self):
        """Run, from the checkpoint that there is, until it ends; return what was found."""
        while True:
            found = self._run_once(
                *self._nursery.begin("coordinator", str(self._path), asdict(self._terms))
            )
            if found is not None:
                return found

    def _run_once(self, pipe, pid):
        """Return what was found, None where it was killed before."""
        with pipe:
            while True:
                assert pipe.poll(PATIENCE), "the coordinator hangs"
                what, said = pipe.recv()
                if what == "found":
                    return Found(**said)
                if what == "missing":
                    return FederationError(*said)
                pipe.send(self._network.exchange(said))
                if self._dies():
                    time.sleep(self._rng.random() * self.longest)
                    # It may have found what it looked for, and be gone.
                    with suppress(EOFError, ConnectionError, ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        while True:
                            pipe.recv()
                    return None


def check_schedule(seed, path, ledgers=None, nursery=None):
    """Play a schedule, raise unless all that must hold does; return the faults that happened.

    With a nursery owners and coordinator are processes.
    """
    party, coordinator = PartyHere, CoordinatorHere
    if nursery is not None:
        party = partial(PartyElsewhere, nursery)
        coordinator = partial(CoordinatorElsewhere, nursery)
    rng = np.random.default_rng(seed)
    terms = Terms(
        "dual" if seed % 4 == 3 else "release",
        secure=bool(seed // 4 % 2),
        on_missing=("raise", "drop")[seed // 8 % 2],
        keys=bool(seed // 16 % 2),
    )
    rate = float(rng.choice([0.01, 0.03, 0.06]))
    new_folder(path, ledgers)
    before = {name: n_charges(path, name) for name in NAMES}
    honest = {name: party(name, path, terms) for name in NAMES}
    log = Log()
    network = FaultyNetwork(dict(honest), rng, rate, terms, log)
    runner = coordinator(terms, network, rng, rate, path / "checkpoint")
    culprit = str(rng.choice(NAMES)) if rng.random() < 0.4 else None
    liar = culprit if rng.random() < 0.7 else None
    if liar:
        lies = [
            lie for lie, kind in LIES.items() if (kind in ("answer", "welcome")) != terms.secure
        ]
        key = KEYS[liar] if terms.keys else None
        network.parties[liar] = Liar(honest[liar], str(rng.choice(lies)), rng, log, key)
    # What is there already is no garbage of those that are killed.
    gc.freeze()
    try:
        found = play(runner, network, culprit)
        if isinstance(found, FederationError):
            # What is wrong with one is mended. The same run goes on.
            network.parties, network.gone = honest, set()
            found = play(runner, network, None)
        assert isinstance(found, Found), f"the mended network does not help: {found}"
    finally:
        gc.unfreeze()
        for one in honest.values():
            one.stop()
    check_found(terms, found, log, liar)
    for name in NAMES:
        if name != liar:
            n_charged = n_charges(path, name) - before[name]
            check_owner(Party(name, path, terms), name, terms, log, n_charged)
    shutil.rmtree(path)
    return log.faults


def play(runner, network, culprit):
    """Run until there is a result, or nothing but one owner is in the way of one."""
    for number in range(MOST_RUNS):
        if number == 1 and culprit and not isinstance(network.parties[culprit], Liar):
            network.gone = {culprit}
        found = runner.run()
        if isinstance(found, Found):
            return found
        if network.healed and culprit:
            assert is_named(network.parties[culprit], culprit, found), f"who is it? {found}"
            return found
        if number > 1:
            network.heal()
    raise AssertionError(f"a healed network does not help: {found}")


def is_named(party, culprit, error):
    """Tell whether an error says whose fault it is, where anybody can know."""
    if isinstance(party, Liar) and party.lie == "masked":
        return "of the sum" in str(error)
    return culprit in error.missing or f" at {culprit}." in str(error)


def n_charges(path, name):
    """Return how often an owner was charged."""
    with ledger_of(path, name) as ledger:
        return len(ledger.entries())


def check_found(terms, found, log, liar):
    """Raise unless a result is what the answers of those who took part give."""
    assert set(found.owners) <= set(found.asked) <= set(NAMES)
    if terms.on_missing == "raise":
        assert found.owners == NAMES
    for number, total in enumerate(found.sums):
        said = {name: log.spoken[name, found.session, number] for name in found.owners}
        # Nobody knows what a liar hid behind masks; it is found in no other part of the sum.
        of_liar = said.pop(liar, [np.zeros_like(total)]) or [None]
        assert all(len(vectors) == 1 for vectors in said.values()), "a part never left its owner"
        rest = total - np.sum([vectors[0] for vectors in said.values()], axis=0)
        assert any(one is None or is_close(one, rest) for one in of_liar)


def is_close(one, other):
    """Tell whether vectors agree, but for how secure sums round doubles."""
    if other.dtype.kind != "f":
        return np.array_equal(one, other)
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-9)


def check_owner(party, name, terms, log, n_charged):
    """Raise unless an owner was charged once for what left it, and can send it again."""
    spoken = {key: vectors for key, vectors in log.spoken.items() if key[0] == name}
    assert all(len(vectors) == 1 for vectors in spoken.values()), "two answers in one round"
    if terms.method != "release":
        assert n_charged == 0
        return
    assert n_charged <= 1, f"{name} was charged {n_charged} times in one run"
    remembered = party.remembered()
    assert len(remembered) >= n_charged, f"{name} was charged for what cannot be had any more"
    assert len({session for _, session, _ in spoken}) <= n_charged, "a release was not charged"
    for (_, session, _), (vector,) in spoken.items():
        np.testing.assert_array_equal(remembered[session], vector)


if __name__ == "__main__":
    be_the_nursery(sys.argv[1])
