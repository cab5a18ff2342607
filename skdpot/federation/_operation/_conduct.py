"""One run of a coordinator, by its file."""

import contextlib
import hmac
import importlib.metadata
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skdpot import __version__

from .._legs import FederationError
from .._settings_error import SettingsError
from .._tasks import read_any_run
from ._party import Party, read_party
from ._records import TICKET, now, record_path, write_atomically

_PACKAGES = ("flwr", "cryptography", "numpy")


def conduct_for_party(folder: Path, ticket: str, grid: Any) -> None:
    """Conduct the run that a coordinator's folder describes, if its operator has asked for it.

    The operator's command writes a `ticket` there for one run.
    """
    party = read_party(folder)
    with _recorded(party, _used(party, ticket)) as record:
        from ..flower import conduct

        settings = read_any_run(party.run_config())
        found = conduct(grid, settings)
        record |= {"outcome": "completed", "found": settings.outcome(found)[0]}
        record |= {"seen": json.loads(settings.record(found))}


@contextlib.contextmanager
def _recorded(party: Party, ticket: str) -> Iterator[dict[str, Any]]:
    """Write a record of the run in the block, even if it fails."""
    record: dict[str, Any] = {"began": now(), "outcome": "failed", "reason": "it was interrupted"}
    record |= {"agreement": party.agreement().digest(), "run": party.run_config()}
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    record["software"] = {"skdpot": __version__} | versions
    try:
        yield record
        del record["reason"]
    except FederationError as error:
        record |= {"reason": str(error), "missing": error.missing}
        raise
    except Exception as error:
        # The coordinator's errors contain only public values; it has no rows.
        record["reason"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        record["ended"] = now()
        write_atomically(record_path(party, ticket), record)


def _used(party: Party, ticket: str) -> str:
    """Remove the written ticket and return it; raise if this one is another."""
    path = party.private(TICKET)
    with contextlib.suppress(OSError):
        written = path.read_text()
        if hmac.compare_digest(written.encode(), ticket.encode()):
            os.unlink(path)
            return ticket
    raise SettingsError("this run was not asked for by `python -m skdpot.federation run`.")
