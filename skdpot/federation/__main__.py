"""Command line of a federation's parties: init, check, serve, run and status."""

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._operation._engine import serve
from ._operation._party import TASKS, Party, read_party
from ._operation._records import now
from ._operation._runs import run
from ._settings_error import SettingsError

_DONE, _FAILED, _USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit status."""
    options = _parser().parse_args(arguments)
    code = _FAILED
    try:
        code = options.do(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed the pipe, as in `status | grep -q`. The rest of the output is dropped.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _DONE if options.do is _status else code
    except (SettingsError, OSError) as error:
        print(f"skdpot: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return 130


def _init(options: argparse.Namespace) -> int:
    from ._operation._founding import found_coordinator, found_owner

    (found_owner if options.party == "owner" else found_coordinator)(options, print)
    return _DONE


def _check(options: argparse.Namespace) -> int:
    from ._operation._checks import check

    findings = check(read_party(options.folder))
    wrong = [finding for finding in findings if finding.good is False]
    if options.before_serving:
        findings, wrong = wrong, [finding for finding in wrong if finding.is_fatal]
    for finding in findings:
        print(finding)
    return _FAILED if wrong else _DONE


def _serve(options: argparse.Namespace) -> int:
    party, stop = read_party(options.folder), threading.Event()
    # In its own process: the checks need ten times the memory of a process that serves for weeks.
    looked = [sys.executable, "-P", "-m", "skdpot.federation", "check", "--before-serving"]
    if subprocess.run([*looked, str(party.folder)]).returncode:
        return _FAILED
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    serve(party, stop, _say)
    return _DONE


def _run(options: argparse.Namespace) -> int:
    party = _coordinator(options)
    record = run(party, _say)
    if record["outcome"] != "completed":
        print(f"skdpot: the run failed: {record['reason']}", file=sys.stderr)
        return _FAILED
    _say(f"completed: {party.path('files', 'output')}")
    return _DONE


def _status(options: argparse.Namespace) -> int:
    from ._operation._status import status

    for line in status(read_party(options.folder)):
        print(line)
    return _DONE


def _coordinator(options: argparse.Namespace) -> Party:
    party = read_party(options.folder)
    if party.is_owner:
        raise SettingsError("the coordinator starts runs; an owner serves.")
    return party


def _say(text: str) -> None:
    print(f"{now()}  {text}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m skdpot.federation",
        description="Run a federation. Owners and coordinator each have a folder with a TOML file.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_init(commands.add_parser("init", help="create the folder of an owner or coordinator"))
    for do, name, text in (
        (_check, "check", "report problems of a folder, with remedies"),
        (_serve, "serve", "keep this part of Flower running"),
        (_run, "run", "coordinator: start a run, wait, and write the result"),
        (_status, "status", "report running processes, connected owners, and the remaining budget"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        _add_folder(command)
        command.set_defaults(do=do)
        if do is _check:
            command.add_argument("--before-serving", action="store_true", help=argparse.SUPPRESS)
    return parser


def _add_init(parser: argparse.ArgumentParser) -> None:
    parties = parser.add_subparsers(dest="party", required=True, metavar="PARTY")
    parser.set_defaults(do=_init)
    owner = parties.add_parser("owner", help="first with --name, then with --agreement")
    _add_folder(owner)
    owner.add_argument("--name", help="name for all others; for an allocation such as target-0")
    owner.add_argument(
        "--budget", nargs=2, type=float, metavar=("EPSILON", "DELTA"),
        help="total budget for releases of the owner's rows",
    )  # fmt: skip
    owner.add_argument("--agreement", help="file sent by the coordinator")
    owner.add_argument("--data", help="file with rows or utilities (.npz); use with --agreement")
    coordinator = parties.add_parser("coordinator", help="needs the cards of all owners")
    _add_folder(coordinator)
    coordinator.add_argument("--address", help="host:port of the SuperLink for owners")
    coordinator.add_argument("--listen", help="host:port to listen on")
    coordinator.add_argument("--cards", nargs="+", help="files sent by the owners")
    coordinator.add_argument("--task", choices=TASKS, default=TASKS[0])
    coordinator.add_argument("--network", help="edges and bounds of an allocation (.npz)")
    coordinator.add_argument("--average-from", type=int, default=0, help="first round to average")
    coordinator.add_argument("--n-support", type=int, default=64, help="points of the barycenter")
    coordinator.add_argument("--publish", action="store_true", help="write the agreement again")
    coordinator.add_argument("--renew", action="store_true", help="create a new certificate")
    for name, kind in _AGREED.items():
        coordinator.add_argument(f"--{name}", type=kind)
    coordinator.add_argument("--secure", action=argparse.BooleanOptionalAction)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="default: this folder")


def _texts(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


_AGREED: dict[str, Callable[[str], Any]] = {
    "epsilon": float,
    "delta": float,
    "groups": _texts,
    "low": _numbers,
    "high": _numbers,
    "kind": str,
    "noise": str,
    "n-honest": int,
    "owners-per-group": lambda text: [int(number) for number in text.split(",")],
    "threshold": int,
    "n-neighbours": int,
    "rounds": int,
    "marginals": _numbers,
    "protect": str,
    "mechanism": str,
    "utility": str,
    "utility-scale": float,
    "utilities-of": _texts,
}

if __name__ == "__main__":
    sys.exit(main())
