"""
Run a barycenter over Flower on this machine.

The script starts one SuperLink and three SuperNodes on loopback. Each SuperNode is a process with
data of its own. ``flwr run`` then starts the app in the folder beside this file. All files are in a
temporary folder. The folder and the processes are removed at the end, also after an error or
Ctrl-C.

    python examples/federation/run_flower.py            # both parts, some minutes
    python examples/federation/run_flower.py open       # ten rounds; NOT PRIVATE
    python examples/federation/run_flower.py release    # a private release, with secure aggregation

Flower starts a process for every message to an owner, so a round takes some seconds even if there
is little to compute.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from skdpot import PrivacyLedger
from skdpot.federation import (
    BarycenterCoordinator,
    BarycenterOwner,
    InProcessCarrier,
    run_barycenter,
)

APP = Path(__file__).parent / "flower_app"
PACKAGE = Path(__file__).parents[2]
OWNERS = ("north", "south", "west")
# Two of all rounds start the algorithm: the owners' sizes, then their means and covariances.
ROUNDS = 10
RELEASE = {
    "epsilon": 4.0,
    "delta": 1e-6,
    "groups": "men,women",
    "low": "-4,-4",
    "high": "4,4",
    "kind": "moments",
}
BUDGET = (5.0, 1e-5)
_PATIENCE = 60.0


# ---------------------------------------------------------------------------------------- network


class Network:
    """A SuperLink and SuperNodes on loopback, which end when their ``with`` block ends.

    Parameters
    ----------
    folder : Path
        Folder of the logs and of Flower's files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen] = {}
        self._link, *self._ports = _free_ports(1 + len(OWNERS))
        self._environment = self._make_environment()

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *error: object) -> None:
        for name in reversed(self._processes):
            _stop(self._processes[name])

    def start(self, node_configs: dict[str, dict[str, object]]) -> None:
        """Start all processes, and wait until they are ready."""
        runtime = ["--insecure", "--host", "127.0.0.1"]
        self._begin(
            "superlink",
            "flower-superlink",
            *runtime,
            f"--port={self._link}",
            "--disable-runtime-dependency-installation",
        )
        self._wait("superlink", lambda: _answers(self._link))
        for (name, config), port in zip(node_configs.items(), self._ports, strict=True):
            self._begin(
                name,
                "flower-supernode",
                *runtime,
                f"--port={port}",
                f"--superlink=127.0.0.1:{self._link}",
                f"--node-config={_as_toml(config)}",
            )
        for name in node_configs:
            self._wait(name, lambda name=name: "SuperNode ID" in self.log(name))
        print(f"a SuperLink and {len(node_configs)} SuperNodes are up")

    def run(self, config: dict[str, object]) -> tuple[int, list[str]]:
        """Start the app, print its output, and return whether it failed, and its lines."""
        command = [
            _program("flwr"), "run", str(APP), "loop", "--stream",
            "--run-config", _as_toml(config),
        ]  # fmt: skip
        process = self._popen("run", command, subprocess.PIPE)
        lines, begin = [], time.monotonic()
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            if "skdpot: " in line or "Error" in line:
                lines.append(line[max(line.find("skdpot: "), 0) :])
                print(f"  {time.monotonic() - begin:5.0f} s  {lines[-1]}", flush=True)
        process.wait()
        del self._processes["run"]
        return self._failed(), lines

    def log(self, name: str) -> str:
        """Return the output of a process."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _failed(self) -> int:
        """Return 0 if Flower says that the last run was completed."""
        listed = subprocess.run(
            [_program("flwr"), "list", "loop", "--format", "json"],
            env=self._environment, cwd=self.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        runs = json.loads(listed.stdout)["runs"]
        return int(max(runs, key=lambda run: run["pending-at"])["status"] != "finished:completed")

    def _make_environment(self) -> dict[str, str]:
        """Return variables that keep Flower within the folder and off the network."""
        home = self.folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "loop"\n\n[superlink.loop]\n'
            f'address = "127.0.0.1:{self._link}"\ninsecure = true\n'
        )
        kept = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
        paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return kept | {
            "HOME": str(home),
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            # Seconds between two looks for work; the default is 1.
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            "OMP_NUM_THREADS": "1",
        }

    def _begin(self, name: str, program: str, *arguments: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self._popen(name, [_program(program), *arguments], log)

    def _popen(self, name: str, command: list[str], stdout: object) -> subprocess.Popen:
        # Ctrl-C ends this program, which then stops the others in order.
        self._processes[name] = subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.STDOUT, env=self._environment,
            cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        return self._processes[name]

    def _wait(self, name: str, is_there) -> None:
        end = time.monotonic() + _PATIENCE
        while not is_there():
            if self._processes[name].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} does not start:\n{self.log(name)}")
            time.sleep(0.1)


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _as_toml(config: dict[str, object]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())


def _free_ports(n_ports: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n_ports)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def _stop(process: subprocess.Popen) -> None:
    """End a process and its children, gently if possible."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def network(node_configs: dict[str, dict[str, object]], folder: Path) -> Iterator[Network]:
    """Run a network as long as the block lasts."""
    folder.mkdir()
    with Network(folder) as started:
        started.start(node_configs)
        yield started


# ------------------------------------------------------------------------------------------ parts


def run_in_the_open(folder: Path, n_rounds: int) -> None:
    """Make rounds that are not private, and compare with the same rounds in one process."""
    print(f"\n=== {n_rounds} rounds of an algorithm that is NOT PRIVATE ===")
    print("The coordinator can compute many of the rows from the messages.")
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(place, 1, (40, 2)) for place, name in enumerate(OWNERS)}
    ends = np.linspace(-2, 4, 7)
    candidates = np.stack(np.meshgrid(ends, ends), axis=-1).reshape(-1, 2)
    np.save(folder / "candidates.npy", candidates)
    nodes = {}
    for name, points in rows.items():
        np.savez(folder / f"{name}.npz", points=points, group=name)
        nodes[name] = {
            "name": name,
            "data": str(folder / f"{name}.npz"),
            "state": str(folder / f"{name}.state"),
        }
    settings = {"method": "free", "max-iter": n_rounds - 2, "tol": 1e-12, "n-support": 16}
    config = settings | {
        "owners": ",".join(OWNERS),
        "epsilon": 0.0,
        "low": "",
        "high": "",
        "output": str(folder / "found.npz"),
    }
    with network(nodes, folder / "network") as loop:
        failed, _ = loop.run(config)
    if failed:
        raise RuntimeError("the run has failed.")
    coordinator = BarycenterCoordinator(OWNERS, 16, method="free", max_iter=n_rounds - 2, tol=1e-12)
    owners = [BarycenterOwner(name, points, name) for name, points in rows.items()]
    wanted = run_barycenter(coordinator, InProcessCarrier(owners))
    with np.load(folder / "found.npz") as found:
        same = np.array_equal(found["support"], wanted.support)
        same &= float(found["objective"]) == wanted.objective
    print(f"{wanted.n_rounds} rounds; equal to the rounds in one process, bit by bit: {same}")
    if not same:
        raise RuntimeError("the barycenter differs from that of one process.")


def run_release(folder: Path, _n_rounds: int) -> None:
    """Release groups with noise, under secure aggregation, and try a second time."""
    print("\n=== A private release, epsilon = 4 of a budget of 5, under secure aggregation ===")
    rng = np.random.default_rng(1)
    nodes = {}
    for name in OWNERS:
        group = rng.choice(["men", "women"], 2000)
        points = rng.normal(size=(2000, 2)) + (group == "men")[:, None]
        np.savez(folder / f"{name}.npz", points=points, group=group)
        PrivacyLedger(*BUDGET, path=folder / f"{name}.ledger")
        nodes[name] = {
            "name": name,
            "data": str(folder / f"{name}.npz"),
            "ledger": str(folder / f"{name}.ledger"),
            "state": str(folder / f"{name}.state"),
            "outcome": str(folder / f"{name} knows.npz"),
            **RELEASE,
        }
    config = {"owners": ",".join(OWNERS), "n-support": 16, "secure": True, **RELEASE}
    show_ledgers(folder, "before")
    with network(nodes, folder / "network") as loop:
        failed, _ = loop.run(config | {"output": str(folder / "found.npz")})
        if failed:
            raise RuntimeError("the run has failed.")
        show_ledgers(folder, "after the release")
        check_release(folder)
        print("a second release, which the ledgers refuse, with secure sums or without:")
        failed, lines = loop.run(config | {"n-attempts": 1, "secure": False})
    show_ledgers(folder, "after the refusal")
    if not failed or "ledger does not allow the release" not in "".join(lines):
        raise RuntimeError("the second release should have been refused.")


def show_ledgers(folder: Path, when: str) -> None:
    """Print what every owner was charged."""
    for name in OWNERS:
        ledger = PrivacyLedger.open(folder / f"{name}.ledger")
        epsilon, delta = ledger.spent()
        print(
            f"  ledger of {name}, {when}: {len(ledger.entries())} releases, epsilon = "
            f"{epsilon:g} of {ledger.epsilon:g}, delta = {delta:g} of {ledger.delta:g}"
        )


def check_release(folder: Path) -> None:
    """Check that all owners know the same barycenter, and that it is plausible."""
    with np.load(folder / "found.npz") as found:
        support = found["support"]
    for name in OWNERS:
        with np.load(folder / f"{name} knows.npz") as known:
            if not np.array_equal(known["support"], support):
                raise RuntimeError(f"{name} knows a different barycenter.")
    # Groups have their means at 1 and 0, and equal weights, but for the noise.
    print(f"all owners know the barycenter. Its mean is {support.mean(axis=0).round(2)}")
    if np.abs(support.mean(axis=0) - 0.5).max() > 0.3:
        raise RuntimeError("the barycenter is far from the expected place.")


PARTS = {"open": run_in_the_open, "release": run_release}


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description="Run a barycenter over Flower on loopback.")
    parser.add_argument("part", nargs="?", choices=["all", *PARTS], default="all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the open part")
    options = parser.parse_args()
    wanted = options.part
    # SIGTERM stops the processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name, part in PARTS.items():
        if wanted in ("all", name):
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="skdpot-flower-") as folder:
                part(Path(folder), options.rounds)
            print(f"=== done in {time.monotonic() - begin:.0f} s ===")


if __name__ == "__main__":
    main()
