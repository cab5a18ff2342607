"""A run that the coordinator's operator requests: start, wait, and restart."""

import re
import secrets
import subprocess
import time
from collections.abc import Callable
from typing import Any

from .._files import write_private
from ._engine import CONNECTION, HOME, SILENCE, environment, flower, is_healthy
from ._party import Party
from ._records import RECORDS, TICKET, last_record, record_path

_APP = """\
# The app that `flwr run` sends. It is never executed: all parties run their installed version.
[project]
name = "skdpot-barycenter"
version = "1.0.0"
description = "A private barycenter with owners who keep their rows"
license = "BSD-3-Clause"
dependencies = []

[tool.flwr.app]
publisher = "skdpot"

[tool.flwr.app.components]
serverapp = "skdpot.federation.flower:server_app"
clientapp = "skdpot.federation.flower:client_app"

[tool.flwr.app.config]
ticket = ""
"""
_NO_ANSWER = "no answer"
_ERROR = re.compile(r"\S*(Error|Exception)\b")


def run(party: Party, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the task of a coordinator's file, until it is completed or fails.

    If owners did not answer, or the SuperLink stopped, the run starts again from its checkpoint,
    after the time that a node needs to be admitted again. `say` gets lines to show. Returns the
    record of the last start, whose ``outcome`` is ``"completed"`` or ``"failed"``.
    """
    record = _once(party, say)
    for _ in range(party.tables["run"]["restarts"]):
        if not (record.get("cut_off") or _NO_ANSWER in record.get("missing", {}).values()):
            break
        say(f"{record['reason']} The run is started again in {SILENCE} s.")
        time.sleep(SILENCE)
        record = _once(party, say)
    return record


def _once(party: Party, say: Callable[[str], None]) -> dict[str, Any]:
    """Start a run, wait for its end, and return its record."""
    if not is_healthy(party):
        return _failed("the SuperLink does not answer: start it with `serve`, and see `status`.")
    ticket = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(16)
    for folder in (party.private(HOME) / "app", party.folder / RECORDS):
        folder.mkdir(exist_ok=True)
    (party.private(HOME) / "app" / "pyproject.toml").write_text(_APP)
    party.private(TICKET).unlink(missing_ok=True)
    write_private(party.private(TICKET), ticket.encode())
    told = _streamed(party, ticket, say)
    path = record_path(party, ticket)
    if path.exists():
        return last_record(party) or {}
    reason = f"Flower did not run it to its end: {told}."
    return _failed(reason) | {"cut_off": not is_healthy(party)}


def _streamed(party: Party, ticket: str, say: Callable[[str], None]) -> str:
    """Start the run in Flower, pass on the app's messages, and return its last error."""
    app, config = str(party.private(HOME) / "app"), f'ticket="{ticket}"'
    with subprocess.Popen(
        flower(party, "run", app, CONNECTION, "--stream", "--run-config", config),
        env=environment(party), cwd=party.folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        last = f"see {party.private('superlink.log')}"
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last = line.strip() if _ERROR.match(line) else last
                if "skdpot: " in line:
                    say(line[line.index("skdpot: ") + len("skdpot: ") :].strip())
        finally:
            process.terminate()
    return last


def _failed(reason: str) -> dict[str, Any]:
    return {"outcome": "failed", "reason": reason}
