"""The published rounds of a barycenter: over a list of owners, and as an app of Flower."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from skdpot.published import BarycenterOwner, barycenter_rounds
from skdpot.transport.barycenter import candidate_barycenter, free_support_barycenter

APP = Path(__file__).parents[2] / "examples" / "federation" / "flower_app"
ROWS = [np.random.default_rng(place).normal(place, 1.0, (12, 2)) for place in range(3)]


def in_turn(owners):
    return lambda m: [owner.answer(sent) for owner, sent in zip(owners, m, strict=True)]


def found_by_rounds(ask=None, **problem):
    ask = ask or in_turn([BarycenterOwner(points) for points in ROWS])
    return barycenter_rounds(ask, 3, 5, n_features=2, **problem)


@pytest.mark.experiment
@pytest.mark.parametrize("method", ["dual", "bundle"])
def test_candidates_are_chosen_as_if_all_rows_were_in_one_place(method):
    candidates = np.random.default_rng(9).normal(1.0, 2.0, (20, 2))
    found = found_by_rounds(method=method, candidates=candidates)
    costs = [((rows[:, None] - candidates) ** 2).sum(axis=2) for rows in ROWS]
    wanted = candidate_barycenter(costs, np.full(3, 1 / 3), 5, candidates=candidates)
    assert found.lower_bound <= wanted.objective * (1 + 1e-9)
    assert wanted.lower_bound <= found.objective * (1 + 1e-9)
    assert found.objective == pytest.approx(wanted.objective, rel=0.05)


def test_points_that_move_freely_are_at_least_as_good():
    found = found_by_rounds(method="free")
    wanted = free_support_barycenter(ROWS, np.full(3, 1 / 3), found.support)
    assert found.objective == pytest.approx(wanted.objective, rel=0.05)


def test_owners_of_one_step_each_go_on_where_the_last_one_ended():
    """As in a process that Flower starts for every message."""
    states = [None] * 3

    def ask(messages):
        answers = []
        for place, message in enumerate(messages):
            owner = BarycenterOwner(ROWS[place])
            if states[place]:
                owner.restore(states[place])
            answers.append(owner.answer(message))
            states[place] = owner.put_away()
        return answers

    one, other = found_by_rounds(method="free"), found_by_rounds(ask, method="free")
    np.testing.assert_array_equal(one.support, other.support)


@pytest.mark.parametrize("keep", [slice(2), slice(1, None)])
def test_missing_answers_are_refused(keep):
    owners = [BarycenterOwner(points) for points in ROWS]
    with pytest.raises(ValueError, match="needs 3 answers"):
        found_by_rounds(lambda messages: in_turn(owners)(messages)[keep], method="free")


CALLS_NOBODY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@pytest.fixture
def rows(tmp_path):
    """Return the files of the owners' rows."""
    files = [tmp_path / f"{place}.npy" for place in range(3)]
    for file, points in zip(files, ROWS, strict=True):
        np.save(file, points)
    return files


@pytest.fixture
def app(monkeypatch, tmp_path):
    """Return the app's module."""
    for name, value in {**CALLS_NOBODY, "FLWR_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    described = importlib.util.spec_from_file_location("barycenter_app", APP / "barycenter_app.py")
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def test_the_app_of_flower_finds_the_same(app, rows, tmp_path):
    """Messages cross in one process, and each finds an owner without memory but for Flower's."""
    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 0
    contexts = {
        node: Context(1, node, {"rows": str(file)}, RecordDict(), {})
        for node, file in enumerate(rows, 10)
    }

    def send_and_receive(messages):
        answers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            answers.insert(0, app.client_app(message, contexts[message.metadata.dst_node_id]))
        return answers

    grid = SimpleNamespace(get_node_ids=lambda: list(contexts), send_and_receive=send_and_receive)
    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config = {**config, "n-support": 5, "output": str(tmp_path / "found.npz")}
    app.coordinate(grid, SimpleNamespace(run_config=config))
    check_found(tmp_path, config["max-iter"])


def check_found(folder, max_iter):
    with np.load(folder / "found.npz") as found:
        wanted = found_by_rounds(method="free", max_iter=max_iter)
        # Nodes have numbers in another order than the files.
        np.testing.assert_allclose(found["support"], wanted.support, rtol=1e-9)


@pytest.mark.experiment
def test_flwr_run_starts_the_app(rows, tmp_path):
    """A SuperLink and three SuperNodes on this machine, each a process of its own."""
    sockets = [socket.socket() for _ in range(4)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    link, *ports = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    (tmp_path / "config.toml").write_text(
        f'[superlink]\ndefault = "loop"\n[superlink.loop]\naddress = "127.0.0.1:{link}"\n'
        "insecure = true\n"
    )
    programs, kept = Path(sys.executable).parent, os.environ.get("PYTHONPATH")
    settings = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        **CALLS_NOBODY,
        "HOME": str(tmp_path),
        "FLWR_HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(APP.parents[2]), kept])),
        "OMP_NUM_THREADS": "1",
    }
    runtime, processes = ["--insecure", "--host", "127.0.0.1"], []

    def begin(program, *arguments):
        log = open(tmp_path / f"{len(processes)}.log", "wb")  # noqa: SIM115
        processes.append(
            subprocess.Popen(
                [programs / program, *arguments], env=settings, cwd=tmp_path, stdout=log,
                stderr=log, start_new_session=True,
            )
        )  # fmt: skip
        log.close()

    try:
        begin("flower-superlink", *runtime, f"--port={link}")
        wait_for(lambda: answers_at(link), processes[0])
        for port, file in zip(ports, rows, strict=True):
            begin(
                "flower-supernode", *runtime, f"--port={port}", f"--superlink=127.0.0.1:{link}",
                f"--node-config=rows={json.dumps(str(file))}",
            )  # fmt: skip
        output = json.dumps(str(tmp_path / "found.npz"))
        config = f"output={output} n-support=5 max-iter=3"
        begin("flwr", "run", str(APP), "loop", "--stream", "--run-config", config)
        wait_for((tmp_path / "found.npz").exists, processes[0], 240)
    finally:
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    check_found(tmp_path, 3)


def answers_at(port):
    with socket.socket() as one:
        return not one.connect_ex(("127.0.0.1", port))


def wait_for(happens, process, seconds=60):
    end = time.monotonic() + seconds
    while not happens():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.2)
