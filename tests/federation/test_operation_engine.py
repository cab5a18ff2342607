"""A federation from nothing on Flower's own engine: TLS, three owners, a node that is killed."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from skdpot import PrivacyLedger
from skdpot.federation.__main__ import main
from skdpot.federation._operation import _engine
from skdpot.federation._operation._party import read_party

pytestmark = [pytest.mark.experiment, pytest.mark.benchmark]

PROJECT = Path(__file__).parents[2]
OWNERS = ("north", "south", "west")
HOSTILE = """\
[project]
name = "hostile"
version = "1.0.0"
description = "Code that leaves a trace where it is executed"
license = "BSD-3-Clause"
dependencies = []

[tool.flwr.app]
publisher = "hostile"

[tool.flwr.app.components]
serverapp = "hostile:app"
clientapp = "hostile:app"

[tool.flwr.app.config]
ticket = "guessed"
"""


class Parties:
    """Folders of parties, and the processes that serve them, which end with their block."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()

    def do(self, *arguments):
        """Do what a command line says, in this process; return its status and all it says."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main([str(argument) for argument in arguments])
        print(f"$ {' '.join(map(str, arguments))}\n{said.getvalue()}", flush=True)
        return code, said.getvalue()

    def serve(self, name):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "skdpot.federation", "serve", name],
                cwd=self.folder, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def wait_until_running(self, name):
        """Wait for a party's engine, and return the party's status."""
        end, party = time.monotonic() + 120, read_party(self.folder / name)
        while _engine.serving(party)["state"] != "running":
            if time.monotonic() > end:
                log = (self.folder / f"{name}.log").read_text()
                raise AssertionError(self.do("status", name)[1] + log)
            time.sleep(0.5)
        return self.do("status", name)[1]

    def releases(self):
        ledgers = [PrivacyLedger.open(self.folder / n / "private" / "ledger") for n in OWNERS]
        return [len(ledger.entries()) for ledger in ledgers]

    def found(self):
        with np.load(self.folder / "hub" / "barycenter.npz") as found:
            return found["support"]


def found_all(parties):
    rng = np.random.default_rng(0)
    for name in OWNERS:
        assert parties.do("init", "owner", name, "--name", name, "--budget", 5, 1e-5)[0] == 0
        group = rng.choice(["men", "women"], 2000)
        points = rng.normal(size=(2000, 2)) + (group == "men")[:, None]
        np.savez(parties.folder / name / "rows.npz", points=points, group=group)
    code, _ = parties.do(
        "init", "coordinator", "hub", "--address", f"localhost:{_engine.free_port()}",
        "--cards", *(f"{name}/{name}.card.toml" for name in OWNERS),
        "--epsilon", 4, "--delta", 1e-6, "--groups", "men,women", "--low=-4,-4", "--high=4,4",
        "--kind", "moments", "--n-support", 16,
    )  # fmt: skip
    assert code == 0


def try_hostile_run(parties):
    """Start a run with code of its own, from the coordinator's machine, and return what it says."""
    app = parties.folder / "hostile"
    app.mkdir()
    (app / "pyproject.toml").write_text(HOSTILE)
    trace = f'import os\nif "SKDPOT_PARTY" in os.environ: open("{app}/executed", "w")\napp = None\n'
    (app / "hostile.py").write_text(trace)
    party = read_party(parties.folder / "hub")
    environment = _engine.environment(party)
    del environment["SKDPOT_PARTY"]
    command = _engine.flower(party, "run", str(app), _engine.CONNECTION, "--stream")
    done = subprocess.run(
        command, env=environment, cwd=app, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    return done.stdout


def processes_of(folder):
    return subprocess.run(["pgrep", "-af", str(folder)], capture_output=True, text=True).stdout


def test_a_federation_from_nothing(tmp_path, monkeypatch):
    """A node is killed before the run, and the budgets are for one release."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"PYTHONPATH": str(PROJECT), "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with Parties(tmp_path) as parties:
        found_all(parties)
        for name in OWNERS:
            assert parties.do("init", "owner", name, "--agreement", "hub/agreement.toml")[0] == 0
        for name in ("hub", *OWNERS):
            assert parties.do("check", name)[0] == 0
        parties.serve("hub")
        assert "the coordinator: running" in parties.wait_until_running("hub")
        for name in OWNERS:
            parties.serve(name)
        for name in OWNERS:
            assert f"the owner {name}: running" in parties.wait_until_running(name)
        assert "connected: north, south, west" in parties.do("status", "hub")[1]

        # Flower refuses the new node at first; it is tried again, and the run waits for it.
        os.kill(_engine.serving(read_party(tmp_path / "north"))["engine"], signal.SIGKILL)
        assert "was not asked for" in try_hostile_run(parties)
        assert not (tmp_path / "hostile" / "executed").exists()
        assert parties.releases() == [0, 0, 0]

        begin = time.monotonic()
        assert parties.do("run", "hub")[0] == 0
        print(f"a run takes {time.monotonic() - begin:.0f} s")
        assert "ended with code -9" in (tmp_path / "north.log").read_text()
        assert parties.releases() == [1, 1, 1]
        assert abs(parties.found().mean(axis=0) - 0.5).max() < 0.3
        (path,) = (tmp_path / "hub" / "runs").iterdir()
        record = json.loads(path.read_text())
        up = sum(crossing["bytes_up"] for crossing in record["seen"]["legs"])
        print(f"{up} bytes from owners")
        assert record["seen"]["owners"] == list(OWNERS) and up <= 5000

        code, said = parties.do("run", "hub")
        assert code == 1 and "ledger does not allow the release" in said
        assert parties.releases() == [1, 1, 1]
        assert "last run: failed" in parties.do("status", "hub")[1]
    # Flower's own children end by themselves, a moment after their parents.
    end = time.monotonic() + 20
    while "flower" in (left := processes_of(tmp_path)) and time.monotonic() < end:
        time.sleep(0.2)
    assert "flower" not in left
