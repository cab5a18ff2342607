"""Flower's processes, prevented from running code that arrives over the network.

A run of Flower contains code, which SuperLink and SuperNode would execute; and anybody who reaches
a SuperLink may start runs and admit nodes. Processes that are started by this module execute only
the apps of this package, and a SuperLink can be controlled only from its own machine.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

# Programs that Flower starts for a run, by the names that it looks for on the PATH.
SERVER_APP, OWNER_APP = "flwr-serverapp", "flwr-clientapp"
FORBIDDEN = ("flwr-agentapp", "flwr-model", "flwr-connector", "flwr-simulation")
PARTY = "SKDPOT_PARTY"
# The pipe in Flower's folder that asks a SuperNode for an app's process.
ASKED = "asked"
# Seconds between two signs of life of a SuperNode; Flower's 30 make a new start wait for a minute.
HEARTBEAT = 15
_LOOPBACK = ("127.0.0.1", "::1")
_OPEN_TO_ALL = ("/v1/fleet/", "/health")


class OnlyOwnersFromOutside:
    """Filter that lets other machines reach only a SuperLink's interface for SuperNodes.

    Parameters
    ----------
    app : callable
        An ASGI application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer 403, or pass the request to the application."""
        peer = (scope.get("client") or ("",))[0]
        if scope["type"] == "lifespan" or peer in _LOOPBACK or self._is_open(scope):
            return await self._app(scope, receive, send)
        await send({"type": "http.response.start", "status": 403, "headers": []})
        return await send({"type": "http.response.body", "body": b""})

    @staticmethod
    def _is_open(scope: dict[str, Any]) -> bool:
        return scope["type"] == "http" and scope["path"].startswith(_OPEN_TO_ALL)


def launch(program: str, arguments: list[str]) -> None:
    """Become one of Flower's programs, with these arguments."""
    sys.argv = [program, *arguments]
    {"flower-superlink": _superlink, "flower-supernode": _supernode, "flwr-serverapp": _server_app}[
        program
    ]()


def _superlink() -> None:
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    middleware = (Middleware(OnlyOwnersFromOutside),)
    _replace("flwr.superlink.extensions", "get_middleware", lambda: middleware)
    _end_with_the_parent()
    flower_superlink()


def _supernode() -> None:
    asked = Path(os.environ["FLWR_HOME"]) / ASKED
    asked.unlink(missing_ok=True)
    os.mkfifo(asked, 0o600)
    # Before this process has threads.
    if os.fork() == 0:
        return _answer_apps(asked)

    from flwr.supernode.cli import flower_supernode

    for module in ("flwr.supercore.heartbeat", "flwr.supernode.fleet_http_connection"):
        _replace(module, "HEARTBEAT_DEFAULT_INTERVAL", HEARTBEAT)
    _end_with_the_parent()
    return flower_supernode()


def _answer_apps(asked: Path) -> None:
    """Fork a process for every line of a pipe, which saves the seconds that imports take.

    No randomness is shared by forks: all noise and keys come from the operating system.
    """
    app = _client_app()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Also open for writing, so that the pipe never ends.
    with open(asked, "r+b", buffering=0) as pipe, open(pipe.fileno(), "rb", closefd=False) as lines:
        for line in lines:
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                sys.argv = line.decode().split()
                return app()


def _server_app() -> None:
    from flwr.superlink.cli import flwr_serverapp

    _replace("flwr.superlink.runtime.run_serverapp", "run_", _run_of_this_party)
    flwr_serverapp()


def _run_of_this_party(*, grid: Any, context: Any, **fab: Any) -> Any:
    """Conduct the run of the party's own file; of the received run, only the ticket is used."""
    from ._conduct import conduct_for_party

    conduct_for_party(Path(os.environ[PARTY]), str(context.run_config.get("ticket", "")), grid)
    return context


def _client_app() -> Callable[[], None]:
    from flwr.supernode.cli import flwr_clientapp

    from .. import flower

    module = "flwr.supernode.runtime.run_clientapp"
    _replace(module, "get_load_client_app_fn", lambda **_: lambda *fab: flower.client_app)
    return flwr_clientapp


def _replace(module: str, name: str, replacement: Any) -> None:
    """Replace what a module of Flower has; if it has no such thing, nothing is started."""
    found = importlib.import_module(module)
    if not isinstance(getattr(found, name, None), type(replacement)):
        raise SystemExit(f"skdpot: this version of Flower has no {module}.{name}.")
    setattr(found, name, replacement)


def _end_with_the_parent() -> None:
    """End this process when its standard input ends, which is a pipe from the parent."""

    def wait() -> None:
        # Not sys.stdin, which could not be closed if the process ends meanwhile.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    launch(sys.argv[1], sys.argv[2:])
