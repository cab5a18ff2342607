"""Allocations on Flower, and between real processes that are killed: the same numbers."""

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from skdpot.federation import (
    AllocationCoordinator,
    FederationError,
    allocation_nodes,
    run_allocation,
)
from skdpot.privacy import PrivacyLedger
from skdpot.transport.consensus import LinearUtility, make_network
from tests.oracles.direct_grid import RUN, DirectGrid

# Flower's environment is set by the import above.
from flwr.app import Context, RecordDict  # isort: skip
from skdpot.federation import flower  # isort: skip

PROJECT = Path(__file__).parents[2]
N_ROUNDS = 12
WORTH = np.array([[5.0, 1.0], [4.0, 2.0], [1.0, 3.0]])
NETWORK = make_network(np.ones((3, 2)), (0, 2), [(0, 3), (0, 2)])
PRIVATE = {"epsilon": 2.0, "delta": 1e-6, "marginals": "0, 6", "rounds": N_ROUNDS}


def in_process(n_rounds=N_ROUNDS):
    nodes = allocation_nodes(NETWORK, LinearUtility(WORTH.ravel()))
    return run_allocation(nodes, AllocationCoordinator(NETWORK, n_rounds=n_rounds))


@pytest.fixture
def nodes(tmp_path):
    """Configurations of SuperNodes: three targets and two sources, without an epsilon."""
    made = {}
    for role, worth, neighbours, bounds in (
        ("target", WORTH, "0, 1", ["0, 2"] * 3),
        ("source", np.zeros((2, 3)), "0, 1, 2", ["0, 3", "0, 2"]),
    ):
        for index, (own, of_node) in enumerate(zip(worth, bounds, strict=True)):
            name = f"{role} {index}"
            np.savez(tmp_path / f"{name}.npz", utilities=own)
            made[10 + len(made)] = {
                "task": "allocation",
                "name": name,
                "neighbours": neighbours,
                "bounds": of_node,
                "data": str(tmp_path / f"{name}.npz"),
                "state": str(tmp_path / f"state of {name}"),
                "outcome": str(tmp_path / f"part of {name}.npz"),
            }
    return made


@pytest.fixture
def ledgers(nodes, tmp_path):
    """Give the targets a budget, and return their ledgers."""
    found = []
    for node in (10, 11, 12):
        path = tmp_path / f"ledger {node}"
        found.append(PrivacyLedger(3.0, 1e-5, path=path))
        nodes[node] |= PRIVATE | {"ledger": str(path)}
    return found


def run_server(grid, tmp_path, **settings):
    path = tmp_path / "network.npz"
    np.savez(
        path,
        adjacency=np.ones((3, 2)),
        target_bounds=[0.0, 2.0],
        source_bounds=[[0.0, 3.0], [0.0, 2.0]],
    )
    config = {
        "task": "allocation",
        "network": str(path),
        "rounds": N_ROUNDS,
        "timeout": 1.0,
        "output": str(tmp_path / "found.npz"),
        "checkpoint": str(tmp_path / "checkpoint"),
        **settings,
    }
    context = Context(run_id=RUN, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    flower.server_app(grid, context)


def direct_grid(nodes):
    return DirectGrid(lambda: flower.client_app, nodes)


def test_flower_comes_to_the_same_plan_and_tells_every_node_its_part(nodes, tmp_path, capfd):
    run_server(direct_grid(nodes), tmp_path)
    wanted = in_process()
    with np.load(tmp_path / "found.npz") as found:
        assert (found["plan"] == wanted.plan).all() and (found["prices"] == wanted.prices).all()
        assert found["targets"].tolist() == [0, 0, 1, 1, 2, 2]
        assert found["sources"].tolist() == [0, 1, 0, 1, 0, 1]
    with np.load(tmp_path / "part of source 1.npz") as part:
        assert (part["plan"] == wanted.plan.reshape(3, 2)[:, 1]).all()
    said = capfd.readouterr().out
    assert "3 targets and 2 sources" in said and "NOT PRIVATE" in said
    assert f"after {N_ROUNDS} rounds" in said


def test_a_run_that_stopped_goes_on_and_is_charged_once(nodes, ledgers, tmp_path, capfd):
    grid = direct_grid(nodes)
    push = grid.push_messages

    def push_until_tired(messages):
        if len(grid.delivered) > 25:
            grid.silent.add(13)
        return push(messages)

    grid.push_messages = push_until_tired
    settings = {"n-attempts": 1, "timeout": 0.1}
    with pytest.raises(FederationError, match="source 0 .no answer"):
        run_server(grid, tmp_path, **settings)
    # All SuperNodes are started anew, with other identifiers.
    run_server(direct_grid({node + 50: of for node, of in nodes.items()}), tmp_path, **settings)
    assert "going on after" in capfd.readouterr().out
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]
    # The next run is another one, and there is no budget for it.
    with pytest.raises(FederationError, match="ledger does not allow"):
        run_server(direct_grid(nodes), tmp_path, **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "depot 1"}, "'target' or 'source' and an index"),
        ({"state": ""}, "state= must be a file"),
        ({"bounds": "0"}, "least and the largest amount"),
        ({"bounds": "2, 1"}, "bounds must be finite"),
        ({"neighbours": "0"}, "a number for each neighbour"),
        ({"neighbours": "0, x"}, "neighbours must be numbers"),
        ({"utility": "cubic"}, "utility must be one of"),
        ({"epsilon": 1.0}, "marginals"),
        ({"epsilon": 1.0, "marginals": "0, 4"}, "outside of its declared marginal_bounds"),
        ({"colour": "red"}, "keys that are none: colour"),
        ({"task": "transport"}, "task must be"),
    ],
)
def test_wrong_settings_of_a_node_are_said_without_its_utilities(nodes, changes, message):
    with pytest.raises(flower.SettingsError, match=message) as error:
        flower._read(nodes[10] | changes)
    assert "5.0" not in str(error.value)


@pytest.mark.parametrize("family", ["quadratic", "log"])
def test_families_are_private_with_a_public_scale(nodes, family):
    changes = PRIVATE | {"utility": family, "utility-scale": 0.5, "marginals": "0, 12"}
    assert flower._read(nodes[11] | changes).owner.epsilon == 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "n_rounds"),
        ({"timeout": 0.0}, "timeout"),
        ({"network": "nowhere.npz"}, "network"),
        ({"eta": -1.0}, "eta"),
    ],
)
def test_wrong_settings_of_a_run_are_found_before_anything_is_asked(settings, message, tmp_path):
    with pytest.raises(flower.SettingsError, match=message):
        run_server(direct_grid({}), tmp_path, **settings)


# ------------------------------------------------------------------------------- real processes

PARTY = """
import ast, struct, sys
from skdpot.federation import flower
config = ast.literal_eval(sys.argv[1])
while True:
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        break
    data = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
    answer = flower._read(config).owner.handle(data)
    sys.stdout.buffer.write(struct.pack("<I", len(answer)) + answer)
    sys.stdout.buffer.flush()
"""


class Processes:
    """A carrier to real processes, some of which are killed while they answer."""

    def __init__(self, nodes, rng, share):
        self.configs = {config["name"]: config for config in nodes.values()}
        self.rng, self.share, self.running, self.n_killed = rng, share, {}, 0

    def process(self, name):
        if name in self.running and self.running[name].poll() is not None:
            self.end(self.running.pop(name))
        if name not in self.running:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-c", PARTY, repr(self.configs[name])],
                cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        return self.running[name]

    def exchange(self, messages, timeout=None):
        arrived = []
        for name, data in messages.items():
            process = self.process(name)
            if self.rng.random() < self.share:
                self.n_killed += 1
                delay = float(self.rng.exponential(0.02))
                threading.Timer(delay, process.kill).start()
            try:
                process.stdin.write(len(data).to_bytes(4, "little") + data)
                process.stdin.flush()
                size = process.stdout.read(4)
                answer = process.stdout.read(int.from_bytes(size, "little")) if size else b""
            except OSError:
                answer = b""
            if answer:
                arrived.append((name, answer))
            else:
                # It is waited for: while it dies, it would be asked in vain again and again.
                self.end(self.running.pop(name))
        return arrived

    def end(self, process):
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            # What was not written cannot be written any more.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def stop(self):
        for process in self.running.values():
            self.end(process)


@pytest.mark.experiment
@pytest.mark.parametrize("seed", range(3))
def test_processes_that_are_killed_come_to_the_same_plan(seed, nodes, tmp_path):
    carrier = Processes(nodes, np.random.default_rng(seed), 0.1)
    run = AllocationCoordinator(NETWORK, n_rounds=N_ROUNDS)
    try:
        found = run_allocation(carrier, run, n_attempts=30, checkpoint=tmp_path / "checkpoint")
    finally:
        carrier.stop()
    assert carrier.n_killed > 3 and (found.plan == in_process().plan).all()


@pytest.mark.experiment
def test_processes_that_are_killed_are_charged_once(nodes, ledgers, tmp_path):
    carrier = Processes(nodes, np.random.default_rng(7), 0.15)
    run = AllocationCoordinator(NETWORK, n_rounds=N_ROUNDS)
    try:
        run_allocation(carrier, run, n_attempts=50, checkpoint=tmp_path / "checkpoint")
    finally:
        carrier.stop()
    assert carrier.n_killed > 3
    assert [len(ledger.entries()) for ledger in ledgers] == [1, 1, 1]
