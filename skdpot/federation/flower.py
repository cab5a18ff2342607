"""Federated barycenters and allocations on Flower: a carrier, a ServerApp and a ClientApp.

``flwr run`` starts the apps ``skdpot.federation.flower:server_app`` and ``:client_app``; the page
on federations explains the configuration. Importing this module imports Flower.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from ._allocation._allocation_coordinator import AllocationCoordinator
from ._allocation._allocation_node import AllocationNode
from ._allocation_settings import AllocationSettings
from ._barycenter._barycenter_coordinator import BarycenterCoordinator
from ._barycenter._barycenter_owner import BarycenterOwner
from ._carriers import AUTO, checkpoint_file
from ._flower_settings import OwnerSettings, RunSettings, SettingsError, read_owner, read_run
from ._keys import SigningKey
from ._legs import FederationError
from ._tasks import read_any_owner, read_any_run
from ._wire import Packet, WireError, pack, unpack

__all__ = [
    "FlowerCarrier",
    "SettingsError",
    "client_app",
    "make_client_app",
    "read_owner",
    "read_run",
    "server_app",
]

_MESSAGE, _GREETING = "query.barycenter", "query.barycenter_owner"
_RECORD, _FIELD = "packet", "bytes"
_STATE = "skdpot owner"

server_app = ServerApp()
client_app = ClientApp()


# ------------------------------------------------------------------------------------- carrier


class FlowerCarrier:
    """Owners behind Flower's SuperLink.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The grid of the ServerApp.
    patience : float, default=60.0
        Seconds to wait for missing SuperNodes of owners, before every leg of a round.
    pause : float, default=0.2
        Seconds between two checks for answers.

    Notes
    -----
    A message is an array of bytes, and nothing in it is unpickled. Every SuperNode is asked for
    the name of its owner. If a SuperNode disappears or does not answer, another one with the same
    name may replace it. Flower must check the identity of SuperNodes: use TLS, and the SuperLink's
    authentication of SuperNodes.
    """

    def __init__(self, grid: Grid, *, patience: float = 60.0, pause: float = 0.2) -> None:
        self._grid, self._patience, self._pause = grid, patience, pause
        self._name_of: dict[int, str] = {}

    def exchange(
        self, messages: Mapping[str, bytes], timeout: float | None = None
    ) -> list[tuple[str, bytes]]:
        """Return the names and answers of owners that arrive in time.

        `timeout` is in seconds; None waits until every node has answered or failed. Owners without
        a node, and failed nodes, are left out. Raises a FederationError if two nodes claim to be
        the same owner.
        """
        node_of = self._find(set(messages))
        data_for = {node: messages[owner] for owner, node in node_of.items()}
        answers = self._ask(_MESSAGE, data_for, timeout)
        for node in set(data_for) - {node for node, _ in answers}:
            # The owner may have been restarted, as another node.
            self._name_of.pop(node, None)
        owner_of = {node: owner for owner, node in node_of.items()}
        return [(owner_of[node], data) for node, data in answers]

    def _find(self, wanted: set[str]) -> dict[str, int]:
        """Return the nodes of owners that are found in time, by name."""
        end = time.monotonic() + self._patience
        while True:
            there = set(self._grid.get_node_ids())
            self._name_of = {n: name for n, name in self._name_of.items() if n in there}
            known = [name for name in self._name_of.values() if name in wanted]
            twice = sorted(name for name, count in Counter(known).items() if count > 1)
            if twice:
                why = dict.fromkeys(twice, "two nodes")
                raise FederationError(f"two nodes claim to be the owner {twice[0]!r}.", why)
            left = end - time.monotonic()
            if len(known) == len(wanted) or left <= 0:
                return {name: node for node, name in self._name_of.items() if name in wanted}
            strangers = dict.fromkeys(there - set(self._name_of), pack(Packet("whose")))
            for node, data in self._ask(_GREETING, strangers, left):
                self._name_of[node] = _sender_of(data)
            if not strangers:
                time.sleep(min(self._pause, left))

    def _ask(
        self, kind: str, data_for: Mapping[int, bytes], timeout: float | None
    ) -> list[tuple[int, bytes]]:
        """Return the answers of nodes, as bytes."""
        messages = [
            Message(_record(data), dst_node_id=node, message_type=kind)
            for node, data in data_for.items()
        ]
        pushed = self._grid.push_messages(messages) if messages else []
        # A message that could not be sent has no identifier.
        waiting = {number: node for number, node in zip(pushed, data_for, strict=False) if number}
        answers = []
        end = None if timeout is None else time.monotonic() + timeout
        while waiting:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                # Errors of the SuperLink have another source.
                if node is not None and reply.metadata.src_node_id == node:
                    data = _bytes_in(reply)
                    if data is not None:
                        answers.append((node, data))
            if end is not None and time.monotonic() >= end:
                break
            if waiting:
                time.sleep(self._pause)
        return answers


def _record(data: bytes) -> RecordDict:
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    return RecordDict({_RECORD: ArrayRecord({_FIELD: array})})


def _bytes_in(message: Message) -> bytes | None:
    record = message.content.get(_RECORD) if message.has_content() else None
    array = record.get(_FIELD) if isinstance(record, ArrayRecord) else None
    return None if array is None else bytes(array.data)


def _sender_of(data: bytes) -> str:
    try:
        return unpack(data).sender
    except WireError:
        return ""


# ---------------------------------------------------------------------------------------- owner


@client_app.query("barycenter_owner")
def tell_name(message: Message, context: Context) -> Message:
    """Answer with the owner's name."""
    name = str(context.node_config.get("name", ""))
    return Message(_record(pack(Packet("owner", sender=name))), reply_to=message)


@client_app.query("barycenter")
def answer(message: Message, context: Context) -> Message:
    """Answer a message of the coordinator; every message may find a new process.

    Before an answer is sent, its charge is in the owner's ledger, and its state is in the state
    file. Without a state file, the SuperNode keeps the state for the run.
    """
    return _reply(message, context, read_any_owner)


def make_client_app(
    make_owner: Callable[[Mapping[str, Any]], BarycenterOwner | AllocationNode],
) -> ClientApp:
    """Make a ClientApp for owners that are not read from files (as in `client_app`).

    Parameters
    ----------
    make_owner : callable
        Function from a SuperNode's configuration (a mapping) to its owner or node. It is called
        for every message, in a new process. In the configuration, ``name`` must be the address,
        and ``state`` is the file that keeps the answers.

    Returns
    -------
    flwr.clientapp.ClientApp
        For the top level of a module that ``flwr run`` is pointed to.
    """

    def settings(config: Mapping[str, Any]) -> OwnerSettings:
        if not config.get("state"):
            raise SettingsError("state= must be a file for the owner to remember in.")
        owner, state = make_owner(config), Path(str(config["state"]))
        owner.remember_in(state)
        return OwnerSettings(owner.address, state, None, owner)

    app = ClientApp()
    app.query("barycenter_owner")(tell_name)
    app.query("barycenter")(lambda message, context: _reply(message, context, settings))
    return app


def _reply(
    message: Message, context: Context, read: Callable[[Mapping[str, Any]], OwnerSettings]
) -> Message:
    """Answer a message, or refuse it without private content."""
    request = _bytes_in(message) or b""
    try:
        reply = _answered(request, context, read)
    except SettingsError as error:
        print(f"skdpot: {error}", file=sys.stderr, flush=True)
        reply = _refusal(request, context, "the owner's app is not set up, as its log says.")
    except Exception as error:
        # Flower would send the text of the error to the server, and it may quote rows.
        print(f"skdpot: no answer, due to {type(error).__name__}", file=sys.stderr, flush=True)
        reply = _refusal(request, context, "the owner's app failed.")
    return Message(_record(reply), reply_to=message)


def _answered(
    request: bytes, context: Context, read: Callable[[Mapping[str, Any]], OwnerSettings]
) -> bytes:
    """Return the owner's answer, after its state was stored."""
    settings = read(context.node_config)
    owner = settings.owner
    if settings.state is None:
        # Nothing is charged, so a SuperNode may forget this state.
        kept = _kept_in(context)
        if kept is not None:
            owner.restore(kept)
    reply = owner.handle(request)
    if settings.state is None:
        context.state[_STATE] = ConfigRecord({_FIELD: owner.state()})
    if settings.outcome is not None and owner.outcome:
        np.savez(settings.outcome, **owner.outcome)
    return reply


def _kept_in(context: Context) -> bytes | None:
    """Return the state that a SuperNode keeps in memory for a run, or None."""
    record = context.state.get(_STATE)
    data = record.get(_FIELD) if isinstance(record, ConfigRecord) else None
    return data if isinstance(data, bytes) else None


def _refusal(request: bytes, context: Context, reason: str) -> bytes:
    """Return a refusal, in the form of an answer to the request."""
    name = str(context.node_config.get("name", ""))
    try:
        asked = unpack(request)
    except WireError:
        asked = Packet("")
    return pack(asked.reply("refusal", name, {"reason": reason}), _key_of(context))


def _key_of(context: Context) -> SigningKey | None:
    """Return the owner's key, or None if it cannot be read; then the refusal is not signed."""
    path = str(context.node_config.get("key", ""))
    try:
        return SigningKey.open(path) if path else None
    except (OSError, ValueError):
        return None


# ---------------------------------------------------------------------------------- coordinator


@server_app.main()
def coordinate(grid: Grid, context: Context) -> None:
    """Coordinate the owners in the run's configuration, and log the messages."""
    conduct(grid, read_any_run(context.run_config))


def conduct(grid: Grid, settings: RunSettings | AllocationSettings) -> Any:
    """Run a barycenter or an allocation, write the files of the result, and return it."""
    coordinator = settings.coordinator
    carrier = _Telling(FlowerCarrier(grid, patience=settings.timeout), coordinator)
    checkpoint = checkpoint_file(settings.checkpoint or AUTO, coordinator, carrier)
    if checkpoint is not None and checkpoint.exists():
        coordinator.restore(checkpoint.read_bytes())
        _say(f"continuing after {settings.n_done} rounds, from {checkpoint}")
    for line in settings.about():
        _say(line)
    try:
        found: Any = settings.run(carrier, checkpoint)
    except FederationError as error:
        if checkpoint is not None:
            _say(f"the same run continues from {checkpoint}")
        _say(f"stopped: {error}")
        raise
    finally:
        carrier.tell()
    told, arrays = settings.outcome(found)
    _say(
        f"{told}; in all {sum(crossing.bytes_up for crossing in coordinator.traffic)} bytes from "
        f"owners, {sum(crossing.bytes_down for crossing in coordinator.traffic)} bytes to them"
    )
    if settings.output is not None:
        np.savez(settings.output, **arrays)
        settings.output.with_suffix(".json").write_text(settings.record(found))
    if checkpoint is not None:
        # The next run with this configuration is a new one.
        checkpoint.unlink(missing_ok=True)
    return found


def _say(text: str) -> None:
    print(f"skdpot: {text}", flush=True)


class _Telling:
    """A carrier that prints a record of the messages: legs, kinds and sizes, no contents."""

    def __init__(
        self, carrier: FlowerCarrier, coordinator: BarycenterCoordinator | AllocationCoordinator
    ) -> None:
        self._carrier, self._coordinator, self._n_told = carrier, coordinator, 0

    def exchange(
        self, messages: Mapping[str, bytes], timeout: float | None = None
    ) -> list[tuple[str, bytes]]:
        """Exchange messages, and log the result of the last ones first."""
        self.tell()
        return self._carrier.exchange(messages, timeout)

    def tell(self) -> None:
        """Log new crossings."""
        for crossing in self._coordinator.traffic[self._n_told :]:
            about = f" ({crossing.step})" if crossing.step else ""
            _say(
                f"round {crossing.round}, {crossing.leg}{about}: {crossing.bytes_down} bytes in "
                f"{crossing.n_asked} messages to owners, {crossing.bytes_up} bytes in "
                f"{crossing.n_answered} answers"
            )
        self._n_told = len(self._coordinator.traffic)
