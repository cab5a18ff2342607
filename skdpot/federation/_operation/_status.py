"""State of a party's engine, its owners, its ledger and the last run, in words."""

from collections.abc import Iterator
from typing import Any

from skdpot.privacy.ledger import PrivacyLedger

from ._engine import connected_owners, is_healthy, serving
from ._party import Party
from ._records import last_record


def status(party: Party) -> Iterator[str]:
    """Yield lines on the state of a party, which reveal nothing about rows."""
    told = serving(party)
    what = f"the owner {party.name}" if party.is_owner else "the coordinator"
    since = f" since {told['since']}" if "since" in told else ""
    why = f": it {told['why']}" if told.get("why") and told["state"] != "running" else ""
    yield f"{what}: {told['state']}{since}{why}"
    yield from _of_owner(party) if party.is_owner else _of_coordinator(party)


def _of_owner(party: Party) -> Iterator[str]:
    yield (
        _of_ledger(PrivacyLedger.open(party.path("files", "ledger")))
        if party.has_ledger
        else ("ledger: none, and nothing is PRIVATE")
    )
    outcome = party.tables["files"]["outcome"]
    if outcome and (path := party.folder / outcome).exists():
        yield f"last result: {path}"


def _of_ledger(ledger: PrivacyLedger) -> str:
    spent, left = ledger.spent(), (ledger.epsilon, ledger.delta)
    return (
        f"ledger: {len(ledger.entries())} releases, epsilon {spent[0]:g} of {left[0]:g} and delta "
        f"{spent[1]:g} of {left[1]:g} spent"
    )


def _of_coordinator(party: Party) -> Iterator[str]:
    if is_healthy(party):
        owners = connected_owners(party)
        for state, connected in (("connected", True), ("not connected", False)):
            names = [
                name for name in party.tables["owners"] if owners.get(name, False) is connected
            ]
            yield f"{state}: {', '.join(names) or 'nobody'}"
    else:
        yield "the SuperLink does not answer"
    yield from _of_run(last_record(party))


def _of_run(record: dict[str, Any] | None) -> Iterator[str]:
    if record is None:
        yield "last run: none"
    elif record["outcome"] == "completed":
        seen = record["seen"]
        up = sum(leg["bytes_up"] for leg in seen["legs"])
        yield (
            f"last run: completed, {record['ended']}, {len(seen['owners'])} owners, "
            f"{record.get('found', 'a barycenter')}, {up} bytes from owners"
        )
    else:
        yield f"last run: failed, {record['ended']}: {record['reason']}"
