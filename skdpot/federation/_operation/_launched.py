"""Flower's processes, kept from running code that arrives over the network.

A run of Flower brings code along, which SuperLink and SuperNode would execute; and whoever reaches
a SuperLink may start runs and admit nodes. Processes that are started through this module execute
the apps of this package and nothing else, and a SuperLink lets only its own machine control it.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

# What Flower starts for the work of a run, by the names it looks for on the PATH.
SERVER_APP, OWNER_APP = "flwr-serverapp", "flwr-clientapp"
FORBIDDEN = ("flwr-agentapp", "flwr-model", "flwr-connector", "flwr-simulation")
PARTY = "SKDPOT_PARTY"
# The pipe by which a SuperNode is asked for an app's process, in Flower's folder.
ASKED = "asked"
_LOOPBACK = ("127.0.0.1", "::1")
_OPEN_TO_ALL = ("/v1/fleet/", "/health")


class OnlyOwnersFromOutside:
    """What lets other machines reach a SuperLink's interface for SuperNodes, and no other.

    Parameters
    ----------
    app : callable
        An ASGI application.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer 403, or let the application answer."""
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
    {
        "flower-superlink": _superlink,
        "flower-supernode": _supernode,
        "flwr-serverapp": _server_app,
    }[program]()


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

    _end_with_the_parent()
    return flower_supernode()


def _answer_apps(asked: Path) -> None:
    """Start a process for every line of a pipe: it has what takes seconds to import already.

    Nothing random is drawn before a process begins: all noise and keys are of the operating
    system, and no two processes have the same.
    """
    app = _client_app()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Open for writing, too: so the pipe never ends. Processes in which this is read end together.
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
    """Do what the party's own file says; of what the run brought, look at the ticket alone."""
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
    """Replace what a module of Flower calls; without it, nothing is started."""
    found = importlib.import_module(module)
    if not callable(getattr(found, name, None)):
        raise SystemExit(f"skdpot: this version of Flower has no {module}.{name}.")
    setattr(found, name, replacement)


def _end_with_the_parent() -> None:
    """End this process as soon as its standard input ends: it is a pipe from who started it."""

    def wait() -> None:
        # Not sys.stdin, which a process that ends in the meantime could not close.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    launch(sys.argv[1], sys.argv[2:])
