"""Records of runs, and other small files that are replaced as a whole."""

import json
import time
from pathlib import Path
from typing import Any

from .._files import replace_file
from ._party import Party

TICKET, RECORDS = "ticket", "runs"


def record_path(party: Party, ticket: str) -> Path:
    """Return the file that a run's record is written to."""
    return party.folder / RECORDS / f"{ticket}.json"


def last_record(party: Party) -> dict[str, Any] | None:
    """Return the record of the last run, None if there is none."""
    records = sorted((party.folder / RECORDS).glob("*.json"))
    return json.loads(records[-1].read_text()) if records else None


def write_atomically(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file atomically."""
    replace_file(path, f"{json.dumps(content, indent=1)}\n".encode())


def now() -> str:
    """Return the time, in the form of records and logs."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()) + " UTC"
