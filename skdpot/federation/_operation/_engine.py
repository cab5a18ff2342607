"""Flower's engine as a party runs it: commands, environment, health, and another start."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .._settings_error import SettingsError
from . import _launched
from ._party import NODE_KEY, Party
from ._records import now, write_atomically

SERVING, LOCK, HOME = "serving.json", "serve.lock", "flower"
CONNECTION = "federation"
_REFUSED = "Failed to activate SuperNode"
# Flower regards a SuperNode as connected until it has been silent for so many seconds.
SILENCE = 2 * _launched.HEARTBEAT
_PAUSE, _LONGEST_PAUSE = 2.0, 20.0
_LOOK, _PATIENCE = 0.5, 60.0
_LARGEST_LOG = 10_000_000


@dataclass(frozen=True)
class Engine:
    """The process that a party keeps running.

    Attributes
    ----------
    what : str
        Its name, for messages.
    command : list of str
        The command that starts it.
    is_ready : callable
        Tells from its output since the start whether it works.
    when_ready : callable
        Is called once it works.
    """

    what: str
    command: list[str]
    is_ready: Callable[[str], bool]
    when_ready: Callable[[], None]


def engine_of(party: Party) -> Engine:
    """Return the engine of a party: an owner's SuperNode, or the SuperLink."""
    if party.is_owner:
        port = party.tables["network"]["port"] or free_port()
        return Engine(
            "SuperNode",
            _supernode(party, port),
            lambda said: "SuperNode ID" in said and answers("127.0.0.1", port),
            lambda: None,
        )
    return Engine(
        "SuperLink", _superlink(party), lambda _: is_healthy(party), lambda: admit_owners(party)
    )


def serve(party: Party, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Keep a party's engine running until `stop` is set.

    `say` gets lines to show. Raises a SettingsError if another process serves the folder.
    """
    with _alone(party):
        _write_programs(party)
        engine, pause, n_starts = engine_of(party), _PAUSE, 0
        while not stop.is_set():
            n_starts += 1
            was_ready, why = _run_once(party, engine, n_starts, stop, say)
            if stop.is_set():
                break
            pause = _PAUSE if was_ready else min(2 * pause, _LONGEST_PAUSE)
            say(f"the {engine.what} {why}. It is started again in {pause:.0f} s.")
            _tell(party, "waiting", n_starts, why)
            stop.wait(pause)
        _tell(party, "stopped", n_starts)
        say(f"the {engine.what} has ended.")


def is_served(party: Party) -> bool:
    """Tell whether a process serves this folder."""
    with open(party.private(LOCK), "w") as file:
        return not _locked(file, fcntl.LOCK_SH)


def serving(party: Party) -> dict[str, Any]:
    """Return the state that the serving process has written."""
    try:
        told = json.loads(party.private(SERVING).read_text())
    except (OSError, ValueError):
        return {"state": "stopped"}
    return told if is_served(party) else told | {"state": "stopped"}


def is_healthy(party: Party) -> bool:
    """Tell whether the coordinator's SuperLink answers on this machine."""
    context = ssl.create_default_context(cafile=str(party.path("network", "certificate")))
    # Without any proxy, which would not lead to this machine.
    direct = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        url = f"https://127.0.0.1:{port_of(party)}/health"
        return urllib.request.build_opener(*direct).open(url, timeout=5).status == 200
    except OSError:
        return False


def port_of(party: Party) -> int:
    """Return the port that the SuperLink listens on."""
    return split_address(party.tables["network"]["listen"], "listen")[1]


def split_address(address: str, key: str) -> tuple[str, int]:
    """Return a host and a port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingsError(f"[network] {key} must be a host and a port, got {address!r}.")
    return host.strip("[]"), int(port)


def flower(party: Party, *arguments: str) -> list[str]:
    """Return the command line of one of Flower's commands."""
    return [str(Path(sys.executable).parent / "flwr"), *arguments]


def asked(party: Party, *arguments: str) -> dict[str, Any]:
    """Return the JSON answer of one of Flower's commands."""
    command = flower(party, *arguments, "--format", "json")
    done = subprocess.run(
        command, env=environment(party), cwd=party.folder, capture_output=True, text=True
    )
    try:
        return json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        return {"success": False, "error-message": (done.stderr or done.stdout).strip()}


def admit_owners(party: Party) -> None:
    """Make the SuperLink admit the owners' nodes, and no others."""
    wanted, listed = party.tables["nodes"], {node["node-id"] for node in _nodes(party)}
    known = {name: told for name, told in _admitted(party).items() if told[0] in listed}
    for name, (node, key) in known.items():
        if wanted.get(name) != key:
            asked(party, "supernode", "unregister", node, CONNECTION)
    kept = {name: told for name, told in known.items() if wanted.get(name) == told[1]}
    for name, key in wanted.items():
        if name not in kept:
            public = party.private(f"{name}.pub")
            public.write_text(key + "\n")
            answer = asked(party, "supernode", "register", str(public), CONNECTION, "--name", name)
            if not answer.get("success"):
                raise SettingsError(
                    f"[nodes] {name} is not admitted: {answer.get('error-message')} Without "
                    f"{party.private('superlink.db')}, the SuperLink begins anew."
                )
            kept[name] = [str(answer["node-id"]), key]
    write_atomically(party.private("nodes.json"), kept)


def connected_owners(party: Party) -> dict[str, bool]:
    """Return which owners' nodes are connected, according to the SuperLink."""
    online = {node["node-id"] for node in _nodes(party) if node["status"] == "online"}
    return {name: node in online for name, (node, _) in _admitted(party).items()}


def environment(party: Party) -> dict[str, str]:
    """Return environment variables that keep Flower in the folder, and away from other networks."""
    home = party.private(HOME)
    kept = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
    paths = [str(home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return kept | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        # Seconds between two polls for work; the default is 1. More often costs idle owners more.
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
        _launched.PARTY: str(party.folder),
        "PATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _superlink(party: Party) -> list[str]:
    host, port = split_address(party.tables["network"]["listen"], "listen")
    return [
        *_launcher("flower-superlink"),
        f"--host={host}",
        f"--port={port}",
        f"--ssl-ca-certfile={party.path('network', 'certificate')}",
        f"--ssl-certfile={party.path('network', 'server-certificate')}",
        f"--ssl-keyfile={party.path('network', 'server-key')}",
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        f"--database={party.private('superlink.db')}",
    ]


def _supernode(party: Party, port: int) -> list[str]:
    network = party.tables["network"]
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in party.node_config().items())
    return [
        *_launcher("flower-supernode"),
        "--host=127.0.0.1",
        f"--port={port}",
        f"--superlink={network['superlink']}",
        f"--root-certificates={party.path('network', 'certificate')}",
        f"--auth-supernode-private-key={party.private(NODE_KEY)}",
        f"--node-config={config}",
    ]


def _launcher(program: str) -> list[str]:
    # -P: a file in the folder must not be taken for a module.
    return [sys.executable, "-P", "-m", _launched.__name__, program]


def free_port() -> int:
    """Return an unused port of this machine."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(host: str, port: int) -> bool:
    """Tell whether a program listens on a port."""
    try:
        socket.create_connection((host, port), 2).close()
    except OSError:
        return False
    return True


def _write_programs(party: Party) -> None:
    """Write the programs that replace Flower's own, and the address of the SuperLink."""
    home = party.private(HOME)
    (home / "bin").mkdir(parents=True, exist_ok=True)
    command = " ".join(f"'{part}'" for part in _launcher(_launched.SERVER_APP))
    asked = f'printf \'%s\\n\' "{_launched.OWNER_APP} $*" > "$FLWR_HOME/{_launched.ASKED}"'
    _write_program(home / "bin" / _launched.SERVER_APP, f'exec {command} "$@"')
    _write_program(home / "bin" / _launched.OWNER_APP, asked)
    for name in _launched.FORBIDDEN:
        _write_program(home / "bin" / name, "exit 1")
    if not party.is_owner:
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{port_of(party)}"\n'
            f'root-certificates = "{party.path("network", "certificate")}"\n'
        )


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o700)


def _run_once(
    party: Party, engine: Engine, n_starts: int, stop: threading.Event, say: Callable[[str], None]
) -> tuple[bool, str]:
    """Start the engine and wait for its end; return whether it worked, and why it ended."""
    path = party.private(f"{engine.what.lower()}.log")
    if path.exists() and path.stat().st_size > _LARGEST_LOG:
        path.replace(path.with_suffix(".log.old"))
    with open(path, "ab") as log:
        begin = log.seek(0, os.SEEK_END)
        log.write(f"--- start {n_starts}, {now()}\n".encode())
        log.flush()
        # The pipe ends with this process, and the engine ends with the pipe.
        process = subprocess.Popen(
            engine.command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            env=environment(party), cwd=party.folder, start_new_session=True,
        )  # fmt: skip
    _tell(party, "starting", n_starts)
    try:
        return _watched(party, engine, process, path, begin, n_starts, stop, say)
    finally:
        _end(process)


def _watched(
    party: Party,
    engine: Engine,
    process: subprocess.Popen[bytes],
    log: Path,
    begin: int,
    n_starts: int,
    stop: threading.Event,
    say: Callable[[str], None],
) -> tuple[bool, str]:
    is_ready, seen = False, time.monotonic()
    while not stop.wait(_LOOK if not is_ready else 5 * _LOOK):
        if process.poll() is not None:
            return is_ready, _reason(engine, _said(log, begin), process.returncode)
        if engine.is_ready(_said(log, begin)):
            seen = time.monotonic()
            if not is_ready:
                is_ready = True
                engine.when_ready()
                _tell(party, "running", n_starts, engine=process.pid)
                say(f"the {engine.what} is running; its log is {log}.")
        elif time.monotonic() - seen > _PATIENCE:
            return is_ready, f"did not answer for {_PATIENCE:.0f} s"
    return is_ready, "was stopped"


def _said(log: Path, begin: int) -> str:
    with open(log, "rb") as file:
        file.seek(begin)
        return file.read(100_000).decode(errors="replace")


def _reason(engine: Engine, said: str, code: int) -> str:
    if _REFUSED in said:
        return (
            f"is refused: for up to {SILENCE} s the SuperLink believes the one before to be "
            "connected. Or it has not admitted this key"
        )
    return f"ended with code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children, gently if possible."""
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.terminate()
            process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tell(party: Party, state: str, n_starts: int, why: str = "", engine: int = 0) -> None:
    told = {"state": state, "since": now(), "starts": n_starts, "why": why, "engine": engine}
    write_atomically(party.private(SERVING), told)


@contextlib.contextmanager
def _alone(party: Party) -> Iterator[None]:
    """Keep other processes from serving this folder."""
    with open(party.private(LOCK), "w") as file:
        if not _locked(file, fcntl.LOCK_EX):
            # A process that only tests the lock holds it for an instant.
            time.sleep(0.5)
            if not _locked(file, fcntl.LOCK_EX):
                raise SettingsError(f"another process serves {party.folder}.")
        yield


def _locked(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _nodes(party: Party) -> list[dict[str, str]]:
    """Return the nodes that the SuperLink has admitted."""
    return asked(party, "supernode", "list", CONNECTION).get("nodes", [])


def _admitted(party: Party) -> dict[str, list[str]]:
    try:
        return json.loads(party.private("nodes.json").read_text())
    except (OSError, ValueError):
        return {}
