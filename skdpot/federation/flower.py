"""The federated barycenter on Flower: a carrier, a ServerApp and a ClientApp.

``flwr run`` starts the apps ``skdpot.federation.flower:server_app`` and ``:client_app``; the user
guide says how, and what is configured where. Importing this module imports Flower.
"""

import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from skdpot.federation._barycenter_client import BarycenterClient
from skdpot.federation._barycenter_coordinator import BarycenterCoordinator
from skdpot.federation._carriers import run_barycenter
from skdpot.federation._release import GroupRelease
from skdpot.federation._summing import SecureAggregation
from skdpot.federation._wire import Packet, WireError, pack, unpack
from skdpot.privacy.ledger import PrivacyLedger

__all__ = ["FlowerCarrier", "client_app", "find_owners", "read_owner", "server_app"]

_MESSAGE, _GREETING = "query.barycenter", "query.barycenter_owner"
_RECORD, _FIELD = "packet", "bytes"
_PAUSE = 0.2

server_app = ServerApp()
client_app = ClientApp()


# ------------------------------------------------------------------------------------- carrier


class FlowerCarrier:
    """Owners behind Flower's SuperLink.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        As a ServerApp is given it.
    node_of : mapping of str to int
        The owners' nodes, as :func:`find_owners` returns them.

    Notes
    -----
    A message is one record of bytes, and nothing in it is unpickled. What a node sends is taken to
    be of the owner that has the node; that a node is who it says is Flower's to check: use TLS, and
    the SuperLink's authentication of SuperNodes.
    """

    def __init__(self, grid: Grid, node_of: Mapping[str, int]) -> None:
        self._grid, self._node_of = grid, dict(node_of)
        self._owner_of = {node: owner for owner, node in self._node_of.items()}

    def exchange(
        self, messages: Mapping[str, bytes], timeout: float | None = None
    ) -> list[tuple[str, bytes]]:
        """Return what owners answer within a time.

        Parameters
        ----------
        messages : mapping of str to bytes
            By owner.
        timeout : float, default=None
            Seconds to wait. None waits until every node has answered or failed.

        Returns
        -------
        list of (str, bytes)
            Who answered what. Nodes that fail are left out.
        """
        to_nodes = {self._node_of[owner]: data for owner, data in messages.items()}
        answers = _ask(self._grid, _MESSAGE, to_nodes, timeout)
        return [(self._owner_of[node], data) for node, data in answers]


def find_owners(grid: Grid, names: Iterable[str], timeout: float = 60.0) -> dict[str, int]:
    """Ask nodes for the names of their owners, until all are there.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        As a ServerApp is given it.
    names : iterable of str
        The owners that are wanted.
    timeout : float, default=60.0
        Seconds, after which those that there are will have to do.

    Returns
    -------
    dict of str to int
        Nodes by owner.

    Raises
    ------
    RuntimeError
        If two nodes say that they are one owner.
    """
    wanted, found, asked = set(names), dict[str, int](), set[int]()
    end = time.monotonic() + timeout
    while wanted - set(found) and time.monotonic() < end:
        new = {node: b"" for node in grid.get_node_ids() if node not in asked}
        for node, data in _ask(grid, _GREETING, new, timeout) if new else ():
            asked.add(node)
            owner = _owner_in(data)
            if owner in found:
                raise RuntimeError(f"two nodes say that they are the owner {owner!r}.")
            if owner in wanted:
                found[owner] = node
        if wanted - set(found):
            time.sleep(_PAUSE)
    return found


def _ask(
    grid: Grid, kind: str, to_nodes: Mapping[int, bytes], timeout: float | None
) -> list[tuple[int, bytes]]:
    """Return what nodes answer, as bytes."""
    messages = [
        Message(
            RecordDict({_RECORD: ConfigRecord({_FIELD: data})}),
            dst_node_id=node,
            message_type=kind,
            # What nobody waits for any more need not be delivered.
            ttl=timeout,
        )
        for node, data in to_nodes.items()
    ]
    answers = []
    for reply in grid.send_and_receive(messages, timeout=timeout):
        node = reply.metadata.src_node_id
        if not reply.has_error() and node in to_nodes:
            data = _bytes_of(reply.content.get(_RECORD))
            if data is not None:
                answers.append((node, data))
    return answers


def _bytes_of(record: Any) -> bytes | None:
    """Return the bytes of a record, or None if there are none."""
    data = record.get(_FIELD) if isinstance(record, ConfigRecord) else None
    return data if isinstance(data, bytes) else None


def _owner_in(data: bytes) -> str:
    try:
        return unpack(data).sender
    except WireError:
        return ""


# ---------------------------------------------------------------------------------------- owner


def read_owner(node_config: Mapping[str, Any]) -> BarycenterClient:
    """Make the owner that a SuperNode's configuration describes.

    Parameters
    ----------
    node_config : mapping of str to str, int, float or bool
        ``name``; ``data``, the path of a file of NumPy's (``.npz``) with ``points`` and ``group``,
        one label or one for every row; ``secure`` (false), whether the owner insists on secure
        aggregation; and, for a release, ``epsilon``, ``delta``, ``groups``, ``low``, ``high``,
        ``kind``, ``noise``, ``n-honest``: those of :class:`GroupRelease`, where lists are texts
        with commas; and ``ledger``, the path of the owner's :class:`~skdpot.PrivacyLedger`, which
        exists.

    Returns
    -------
    BarycenterClient
        The owner.

    Raises
    ------
    KeyError
        If there is no name or no data.
    ValueError
        If data or settings are not what they should be.
    """
    with np.load(str(node_config["data"]), allow_pickle=False) as data:
        points, group = data["points"], data["group"]
    ledger = node_config.get("ledger")
    return BarycenterClient(
        str(node_config["name"]),
        points,
        group.item() if group.ndim == 0 else group.tolist(),
        release=_release_in(node_config),
        secure=bool(node_config.get("secure", False)),
        ledger=None if ledger is None else PrivacyLedger.open(str(ledger)),
    )


def _release_in(config: Mapping[str, Any]) -> GroupRelease | None:
    """Return the release that a configuration describes, None without an epsilon."""
    if not config.get("epsilon"):
        return None
    n_honest = int(config.get("n-honest", 0))
    return GroupRelease(
        float(config["epsilon"]),
        [label.strip() for label in str(config["groups"]).split(",")],
        bounds=(_numbers(config["low"]), _numbers(config["high"])),
        delta=float(config.get("delta", 0.0)),
        kind=str(config.get("kind", "auto")),
        noise=str(config.get("noise", "own")),
        n_honest=n_honest or None,
    )


def _numbers(text: Any) -> list[float]:
    return [float(number) for number in str(text).split(",")]


@client_app.query("barycenter_owner")
def tell_name(message: Message, context: Context) -> Message:
    """Answer with the owner's name."""
    name = str(context.node_config.get("name", ""))
    return _reply(message, pack(Packet("owner", sender=name)))


@client_app.query("barycenter")
def answer(message: Message, context: Context) -> Message:
    """Answer a message of the coordinator; every message may find a new process.

    What the owner remembers is in the state that its SuperNode keeps. What it has been charged is
    in its ledger, on its disk.
    """
    try:
        owner = read_owner(context.node_config)
        if _RECORD in context.state:
            owner.restore(_bytes_of(context.state[_RECORD]) or b"")
        data = owner.handle(_bytes_of(message.content.get(_RECORD)) or b"")
        context.state[_RECORD] = ConfigRecord({_FIELD: owner.state()})
    except Exception as error:
        # Flower would send the error's text to the server, and it may quote the data.
        print(f"skdpot: the owner cannot answer: {type(error).__name__}", file=sys.stderr)
        data = pack(Packet("refusal", fields={"reason": "the owner's app failed."}))
    return _reply(message, data)


def _reply(message: Message, data: bytes) -> Message:
    return Message(RecordDict({_RECORD: ConfigRecord({_FIELD: data})}), reply_to=message)


# ---------------------------------------------------------------------------------- coordinator


@server_app.main()
def coordinate(grid: Grid, context: Context) -> None:
    """Coordinate the owners that the run's configuration names.

    Its keys are ``owners``, ``n-support``, ``algorithm``, ``weights``, ``tol``, ``max-iter``,
    ``on-missing``, ``n-attempts``, ``timeout`` (seconds a leg of a round waits), ``secure`` and
    ``threshold``; those of the release, as of :func:`read_owner`; ``candidates``, the path of a
    file of NumPy's (``.npy``); and ``output`` and ``checkpoint``, paths that are written.
    """
    config = context.run_config
    coordinator = _coordinator_of(config)
    timeout = float(config.get("timeout", 120.0))
    print(f"skdpot: waiting for {', '.join(coordinator.members)}", flush=True)
    nodes = find_owners(grid, coordinator.members, timeout)
    checkpoint = str(config.get("checkpoint", "")) or None
    if checkpoint is not None and Path(checkpoint).exists():
        coordinator.restore(Path(checkpoint).read_bytes())
    carrier = _Telling(FlowerCarrier(grid, nodes), nodes)
    found = run_barycenter(coordinator, carrier, timeout=timeout, checkpoint=checkpoint)
    print(
        f"skdpot: objective {found.objective!r} after {found.n_rounds} rounds, "
        f"{sum(crossing.bytes_up for crossing in found.traffic)} bytes up, "
        f"{sum(crossing.bytes_down for crossing in found.traffic)} bytes down",
        flush=True,
    )
    output = str(config.get("output", ""))
    if output:
        np.savez(output, support=found.support, objective=found.objective)


def _coordinator_of(config: Mapping[str, Any]) -> BarycenterCoordinator:
    """Return the coordinator that a run's configuration describes."""
    release = _release_in(config)
    candidates = str(config.get("candidates", ""))
    threshold, max_iter = int(config.get("threshold", 0)), int(config.get("max-iter", 0))
    box = config.get("low", ""), config.get("high", "")
    return BarycenterCoordinator(
        [owner.strip() for owner in str(config["owners"]).split(",")],
        int(config["n-support"]),
        algorithm=str(config.get("algorithm", "release")),
        release=release,
        candidates=np.load(candidates, allow_pickle=False) if candidates else None,
        weights=str(config.get("weights", "proportional")),
        bounds=(_numbers(box[0]), _numbers(box[1])) if all(box) and release is None else None,
        secure=SecureAggregation(threshold or None) if config.get("secure") else None,
        tol=float(config.get("tol", 1e-3)),
        max_iter=max_iter or None,
        on_missing=str(config.get("on-missing", "raise")),
        n_attempts=int(config.get("n-attempts", 3)),
    )


class _Telling:
    """A carrier that says what crosses the wire: kinds and sizes, no contents."""

    def __init__(self, carrier: FlowerCarrier, nodes: Mapping[str, int]) -> None:
        self._carrier, self._nodes = carrier, nodes

    def exchange(
        self, messages: Mapping[str, bytes], timeout: float | None = None
    ) -> list[tuple[str, bytes]]:
        known = {owner: data for owner, data in messages.items() if owner in self._nodes}
        answers = self._carrier.exchange(known, timeout)
        kinds = {unpack(data).kind for data in known.values()}
        number = {unpack(data).round for data in known.values()}
        print(
            f"skdpot: round {max(number, default=0)}, {'/'.join(sorted(kinds))}: "
            f"{sum(map(len, known.values()))} bytes to {len(known)} owners, "
            f"{sum(len(data) for _, data in answers)} bytes from {len(answers)}",
            flush=True,
        )
        return answers
