"""Releases of files whose workers and caller are killed at random moments.

``SKDPOT_KILLS`` sets how many moments there are for joblib, ``SKDPOT_SECONDS`` how long one process
is killed at random events of the system, and ``SKDPOT_SEED`` which ones. The files
of a folder are released by one call after another, until one comes to its end.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from skdpot import PrivacyLedger, WassersteinProjectionSampler

N_KILLS = int(os.environ.get("SKDPOT_KILLS", 3))
N_SECONDS = float(os.environ.get("SKDPOT_SECONDS", 60))
SEED = int(os.environ.get("SKDPOT_SEED", 0))
N_FILES, N_USERS, N_PLACES = 6, 1500, 24
PATIENCE = 120.0


# A call, in a process of its own. It is given the folder.
CALL = """
import os, traceback
import numpy as np
from skdpot import PrivacyLedger, WassersteinProjectionSampler, release_files

(folder / "began").touch()
try:
    sampler = WassersteinProjectionSampler(2.0, base_measure="uniform").fit(np.ones((1, n_places)))
    ledger = PrivacyLedger(2.0, path=folder / "ledger")
    release_files(sampler, *files, ledger=ledger, n_jobs=2)
    (folder / "ended").touch()
except BaseException as error:
    (folder / "error").write_text("".join(traceback.format_exception(error)))
finally:
    # Without waiting for the workers that joblib keeps.
    os._exit(0)
"""


def files_of(folder):
    sources = [folder / f"users-{number}.npy" for number in range(N_FILES)]
    targets = [folder / "samples" / f"{number}.npy" for number in range(N_FILES)]
    return sources, targets


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def children_of(process):
    """Return the processes that one has started, and those that they have."""
    listed = subprocess.run(["ps", "-eo", "ppid,pid"], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()[1:]]
    found = [process]
    for parent in found:
        found += [child for above, child in pairs if above == parent]
    return found[1:]


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def digests(folder):
    """Return what the targets hold that have their name by now."""
    return {
        target: hashlib.sha256(target.read_bytes()).hexdigest()
        for target in files_of(folder)[1]
        if target.exists()
    }


class Killing:
    """Calls that release files, and what is killed while they do."""

    def __init__(self, folder):
        self.folder = folder
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["skdpot.sampling"])
        self.script = str(folder / "call.py")
        Path(self.script).write_text(CALL)
        self.rng = random.Random(SEED)
        self.victims = ["caller", "worker"]
        # Until it is known how long a call takes.
        self.seconds = 5.0
        self.killed = dict.fromkeys(self.victims, 0)

    def start(self, folder):
        (folder / "began").unlink(missing_ok=True)
        given = {"folder": folder, "n_places": N_PLACES, "files": files_of(folder)}
        process = self.context.Process(target=runpy.run_path, args=(self.script, given))
        process.start()
        began = folder / "began"
        wait_for(lambda: began.exists() or process.exitcode, "a call to begin")
        return process

    def end(self, folder, process):
        process.join(PATIENCE)
        assert process.exitcode is not None, "a call goes on for ever"
        return (folder / "ended").exists()

    def kill_one(self, process):
        time.sleep(self.rng.uniform(0.0, self.seconds))
        victim = self.rng.choice(self.victims)
        self.killed[victim] += 1
        if victim == "caller":
            kill(process.pid)
        else:
            workers = children_of(process.pid)
            kill(self.rng.choice(workers) if workers else process.pid)

    def release(self, name, n_kills):
        """Release the files of a new folder, with at most so many kills; return how many."""
        folder = self.folder / name
        folder.mkdir()
        rng = np.random.default_rng(SEED)
        for source in files_of(folder)[0]:
            np.save(source, rng.integers(1, 9, (N_USERS, N_PLACES)))
        kills, seen, has_ended = 0, {}, False
        while not has_ended:
            start, process = time.monotonic(), self.start(folder)
            is_killed = kills < n_kills
            if is_killed:
                self.kill_one(process)
                kills += 1
            has_ended = self.end(folder, process)
            assert has_ended or is_killed, (folder / "error").read_text()
            now = digests(folder)
            assert seen.items() <= now.items(), "a target was replaced"
            seen = now
        if not n_kills:
            self.seconds = time.monotonic() - start
        self.check(folder, seen)
        return kills

    def check(self, folder, seen):
        """Raise unless everything is finished, and was charged once."""
        ledger = PrivacyLedger.open(folder / "ledger")
        assert ledger.spent() == (2.0, 0.0)
        assert len(ledger.entries()) == len(seen) == N_FILES
        assert [np.load(target).shape for target in seen] == [(N_USERS, 1)] * N_FILES
        assert sorted(os.listdir(folder / "samples")) == [f"{k}.npy" for k in range(N_FILES)]
        assert digests(folder) == seen


def kill_at_random_moments(killing):
    # What is compiled once is not a part of how long a call takes.
    users = np.ones((2, N_PLACES))
    WassersteinProjectionSampler(2.0, base_measure="uniform").fit(users).sample(users)
    killing.release("as it should be", 0)
    kills, folders = 0, 0
    while kills < N_KILLS:
        folders += 1
        kills += killing.release(f"folder {folders}", N_KILLS - kills)
    print(f"\n{kills} kills {killing.killed} in {folders} folders of {N_FILES} files: ", end="")
    print(f"nothing was released twice; {killing.seconds:.1f} s for a call without kills")


@pytest.mark.experiment
def test_by_joblib(tmp_path):
    kill_at_random_moments(Killing(tmp_path))


# A process that releases files in forks, each of which dies at an event of the system. Samples
# leave whenever one dies, and the key's file is restored from an older copy of it now and then.
EVENTS = """
import json, os, random, signal, sys, threading, time
from pathlib import Path
import numpy as np
from tqdm import tqdm
from skdpot import PrivacyLedger, WassersteinProjectionSampler, release_files

# Forks would share the lock of bars, which a killed one may hold.
tqdm.set_lock(threading.RLock())
place, seed, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rng, numbers = random.Random(seed), np.random.default_rng(seed)
sampler = WassersteinProjectionSampler(2.0, base_measure="uniform").fit(np.ones((1, 4)))
sampler.sample(np.ones((2, 4)))
left = [None]

def count(event="write", *arguments):
    if left[0] is not None and not event.startswith(("object.", "compile", "exec", "import")):
        left[0] -= 1
        if left[0] < 0:
            left[0] = None
            os.kill(os.getpid(), signal.SIGKILL)

def counted(function):
    def counting(*arguments):
        count()
        result = function(*arguments)
        count()
        return result
    return counting

# Events that are not audited.
os.fsync, os.pwrite = counted(os.fsync), counted(os.pwrite)
sys.addaudithook(count)

def call(folder, n_events):
    process = os.fork()
    if process == 0:
        ledger = PrivacyLedger.open(folder / "ledger")
        left[0] = n_events
        try:
            release_files(
                sampler, sorted(folder.glob("u*")), [folder / f"s{k}.npy" for k in range(3)],
                ledger=ledger,
            )
        except BaseException as error:
            left[0] = None
            print(type(error), error, *getattr(error, "__notes__", ()), file=sys.stderr)
            os._exit(1)
        left[0] = None
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

end, n_kills, n_folders = time.monotonic() + seconds, 0, 0
while time.monotonic() < end:
    folder = place / str(n_folders)
    folder.mkdir()
    n_folders += 1
    for k in range(3):
        np.save(folder / f"u{k}.npy", numbers.random((int(numbers.integers(1, 30)), 4)))
    PrivacyLedger(9.0, path=folder / "ledger")
    key, copies, sent, status = folder / "ledger.files.key", [], {}, -1
    while status:
        status = call(folder, rng.randint(1, 250))
        assert status in (0, -signal.SIGKILL), status
        n_kills += status != 0
        content = key.read_bytes() if key.exists() else b""
        has_key = content[:64] != b"0" * 64
        for target in folder.glob("s*.npy"):
            samples = target.read_bytes()
            assert sent.setdefault(target, samples) == samples, "drawn again"
            # With the key erased, samples do not come again.
            if status and has_key and rng.random() < 0.3:
                target.unlink()
        if content.count(b"\\n") > 1 and has_key:
            copies.append(content)
        if status and copies and rng.random() < 0.2:
            key.write_bytes(rng.choice(copies))
            for target in folder.glob("s*.npy"):
                target.unlink()
    ledger = PrivacyLedger.open(folder / "ledger")
    assert len(sent) == len(ledger.entries()) == 3 and ledger.spent() == (2.0, 0.0)
    # The key was erased, and nothing is left.
    assert key.read_bytes()[:65] == b"0" * 64 + b"\\n"
    assert len(list(folder.iterdir())) == 8
print(json.dumps([n_kills, n_folders]))
"""


def kill_at_events(folder, seconds):
    """Return how often a call was killed, and how many releases there were."""
    done = subprocess.run(
        [sys.executable, "-c", EVENTS, str(folder), str(SEED), str(seconds)],
        capture_output=True, text=True, timeout=seconds + PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.experiment
def test_at_a_few_events(tmp_path):
    n_kills, n_folders = kill_at_events(tmp_path, 1.5)
    assert n_kills > 3 and n_folders > 1


@pytest.mark.experiment
def test_at_many_events(tmp_path):
    n_kills, n_folders = kill_at_events(tmp_path, N_SECONDS)
    print(f"\n{n_kills} kills in {n_folders} releases of 3 files: nothing was drawn twice")
