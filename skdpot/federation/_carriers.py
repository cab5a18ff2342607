"""Carriers of messages within a process, and the loop that drives any carrier."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from joblib import Parallel, delayed

from ._allocation._allocation_coordinator import (
    AllocationAgreement,
    AllocationCoordinator,
    addresses,
)
from ._allocation._allocation_node import AllocationNode
from ._allocation._allocation_run import AllocationRun
from ._barycenter._agreement import BarycenterAgreement
from ._barycenter._barycenter_coordinator import BarycenterCoordinator
from ._barycenter._barycenter_owner import BarycenterOwner
from ._files import replace_file
from ._legs import FederationError
from ._wire import unpack

_log = logging.getLogger(__name__)
# A checkpoint in the working directory.
AUTO = "auto"


class Carrier(Protocol):
    """Interface of carriers, which send messages to owners and return answers.

    See Also
    --------
    InProcessCarrier : Owners in one process.
    skdpot.federation.flower.FlowerCarrier : Owners behind Flower's SuperLink.

    Examples
    --------
    >>> from skdpot.federation import InProcessCarrier
    >>> class Listening(InProcessCarrier):  # counts what crosses the wire
    ...     n_bytes = 0
    ...     def exchange(self, messages, timeout=None):
    ...         self.n_bytes += sum(map(len, messages.values()))
    ...         return super().exchange(messages, timeout)
    >>> Listening([]).exchange({})
    []
    """

    def exchange(
        self, messages: Mapping[str, bytes], timeout: float | None
    ) -> Iterable[tuple[str, bytes]]:
        """Send messages to owners, and return the names and answers that arrive in time.

        `timeout` is the largest time to wait, in seconds; None waits until all have arrived or
        failed. Answers come in any order, and may be missing, late, or repeated.
        """


class InProcessCarrier:
    """Owners, or nodes of an allocation, that are objects of this process.

    Parameters
    ----------
    owners : sequence of BarycenterOwner or of AllocationNode
        The owners, or nodes.
    n_jobs : int, default=None
        Number of threads in which owners answer, as in joblib; None is one after the other.
        Results do not depend on it.

    Raises
    ------
    ValueError
        If two owners have the same name.

    Examples
    --------
    >>> from skdpot.federation import BarycenterOwner, InProcessCarrier
    >>> carrier = InProcessCarrier([BarycenterOwner("a", [[0.0]], "men")])
    >>> carrier.names
    ('a',)
    """

    def __init__(
        self, owners: Sequence[BarycenterOwner | AllocationNode], n_jobs: Any = None
    ) -> None:
        self._owners, self._n_jobs = {owner.address: owner for owner in owners}, n_jobs
        if len(self._owners) < len(owners):
            raise ValueError("owners must have names that differ from each other.")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the owners."""
        return tuple(self._owners)

    @property
    def remembers(self) -> bool:
        """Return whether any owner remembers its answers in a file."""
        return any(getattr(owner, "has_file", False) for owner in self._owners.values())

    def exchange(
        self, messages: Mapping[str, bytes], timeout: float | None = None
    ) -> list[tuple[str, bytes]]:
        """Return the answers of the owners.

        Parameters
        ----------
        messages : mapping of str to bytes
            By owner.
        timeout : float, default=None
            Not used: the method waits for all answers.

        Returns
        -------
        list of (str, bytes)
            Owners and their answers.
        """
        known = [name for name in messages if name in self._owners]
        asked = (delayed(self._owners[name].handle)(messages[name]) for name in known)
        answers = Parallel(n_jobs=self._n_jobs, require="sharedmem")(asked)
        return list(zip(known, answers, strict=True))


def run_barycenter(
    coordinator: BarycenterCoordinator,
    carrier: Carrier,
    *,
    timeout: float | None = None,
    checkpoint: Any = "auto",
) -> BarycenterAgreement:
    """Run a coordinator and owners until the barycenter is found.

    Parameters
    ----------
    coordinator : BarycenterCoordinator
        The coordinator. If it was run before, it continues.
    carrier : Carrier
        Carrier of the messages.
    timeout : float, default=None
        Seconds to wait for answers in a leg of a round.
    checkpoint : "auto", path-like or None, default="auto"
        A file that is written before owners are asked, and after every round. If it exists, a new
        coordinator with the same parameters continues from it, so that owners of a release are not
        charged again after a crash. A named file is kept; remove it before another release. For a
        release, "auto" is ``skdpot-<digest of the parameters>.checkpoint`` in the working
        directory. It contains only values that are public after the release, and is removed at the
        end. "auto" is None for other methods, which are not charged, and for owners in this
        process without a `state`, because their answers end with the process.

    Returns
    -------
    BarycenterAgreement
        The result.

    Raises
    ------
    FederationError
        If owners do not answer and the coordinator may not continue without them. Run it again to
        continue.
    FileExistsError
        If the checkpoint belongs to another session than the one that this coordinator began.
    ValueError
        If the checkpoint belongs to a coordinator with other parameters.

    Examples
    --------
    >>> from skdpot.federation import (
    ...     BarycenterOwner, BarycenterCoordinator, GroupRelease, InProcessCarrier, run_barycenter)
    >>> agreed = GroupRelease(8.0, groups=["men", "women"], bounds=([0], [10]), delta=1e-6)
    >>> north = BarycenterOwner("north", [[1.0]] * 500, ["men"] * 500, release=agreed)
    >>> south = BarycenterOwner("south", [[3.0]] * 500, ["women"] * 500, release=agreed)
    >>> coordinator = BarycenterCoordinator(["north", "south"], 1, release=agreed)
    >>> found = run_barycenter(coordinator, InProcessCarrier([north, south]))
    >>> bool(abs(found.support - 2).max() < 0.5)
    True
    """
    return _conduct(coordinator, lambda: coordinator, carrier, timeout, checkpoint)


def checkpoint_file(
    checkpoint: Any, coordinator: BarycenterCoordinator | AllocationCoordinator, carrier: Carrier
) -> Path | None:
    """Return the file of a run's checkpoint, None for no file."""
    if checkpoint is None:
        return None
    if checkpoint != AUTO:
        return Path(checkpoint)
    forgetful = isinstance(carrier, InProcessCarrier) and not carrier.remembers
    is_open = isinstance(coordinator, BarycenterCoordinator) and coordinator.method != "release"
    if is_open or forgetful:
        return None
    return Path(f"skdpot-{coordinator.digest[:16]}.checkpoint").absolute()


def run_allocation(
    nodes: Iterable[AllocationNode] | Carrier,
    coordinator: AllocationCoordinator,
    n_iter: int | None = None,
    *,
    timeout: float | None = None,
    n_attempts: int = 3,
    checkpoint: Any = "auto",
) -> AllocationAgreement:
    """Run a coordinator and nodes until they agree on an allocation.

    Parameters
    ----------
    nodes : iterable of AllocationNode, or Carrier
        All nodes of the coordinator's network, named by their indices; or a carrier of messages to
        their addresses.
    coordinator : AllocationCoordinator
        The coordinator. If it made rounds with these nodes before, it continues.
    n_iter : int, default=None
        Largest number of rounds; None is the number that the coordinator announces.
    timeout : float, default=None
        Seconds to wait for answers in a round.
    n_attempts : int, default=3
        How often a node is asked before the run stops.
    checkpoint : "auto", path-like or None, default="auto"
        A file that is written after the greeting and every round. If it exists, a new coordinator
        with the same parameters continues from it, so that nodes are not charged again after a
        crash. A named file is kept; remove it before another run. "auto" is ``skdpot-<digest of
        the parameters>.checkpoint`` in the working directory, removed after the last round. It is
        None for nodes in this process without a `state`, because their answers end with the
        process.

    Returns
    -------
    AllocationAgreement
        The result. Without noise and with the same parameters, it is bit-identical to that of
        ``skdpot.transport.consensus.consensus``.

    Raises
    ------
    FederationError
        If nodes do not answer, do not belong to the network, or have budgets for fewer rounds. The
        error names them. Run it again to continue.
    ValueError
        If nodes of the network are missing, or the checkpoint belongs to a coordinator with other
        parameters.
    FileExistsError
        If the checkpoint belongs to another session than the one that this coordinator began.

    Examples
    --------
    >>> from skdpot.federation import AllocationCoordinator, allocation_nodes, run_allocation
    >>> from skdpot.transport.consensus import LinearUtility, make_network
    >>> network = make_network([[1, 1], [1, 1]], (0, 1), (0, 1))
    >>> likes = LinearUtility([3.0, 1.0, 2.0, 1.0])
    >>> nodes = allocation_nodes(network, likes, likes)
    >>> coordinator = AllocationCoordinator(network, n_rounds=200)
    >>> run_allocation(nodes, coordinator, n_iter=40).n_iter
    40
    >>> run_allocation(nodes, coordinator).n_iter
    200
    >>> nodes[0].outcome["plan"]
    array([1., 0.])
    """
    carrier: Any = nodes if hasattr(nodes, "exchange") else _carrier_of(nodes, coordinator)

    def run() -> AllocationRun:
        n_left = coordinator.n_left if n_iter is None else min(coordinator.n_left, n_iter)
        return AllocationRun(coordinator, coordinator.n_iter + n_left, n_attempts)

    return _conduct(coordinator, run, carrier, timeout, checkpoint)


def _carrier_of(nodes: Any, coordinator: AllocationCoordinator) -> InProcessCarrier:
    carrier, names = InProcessCarrier(list(nodes)), set(addresses(coordinator.network))
    if set(carrier.names) != names:
        strange = sorted(set(carrier.names) ^ names)
        raise ValueError(
            f"there must be one node for each of the network's, named by its index: {strange[0]} "
            "is too many, or missing."
        )
    return carrier


def _conduct(
    coordinator: BarycenterCoordinator | AllocationCoordinator,
    make_run: Callable[[], BarycenterCoordinator | AllocationRun],
    carrier: Carrier,
    timeout: float | None,
    checkpoint: Any,
) -> Any:
    """Run a coordinator, after a checkpoint if there is one, and return the result.

    `make_run` is called after the checkpoint was read.
    """
    path = checkpoint_file(checkpoint, coordinator, carrier)
    is_again = path is not None and path.exists()
    if path is not None and is_again and coordinator.is_new:
        _log.warning("Continuing from the checkpoint %s; remove it to start again.", path)
        coordinator.restore(path.read_bytes())
    run = make_run()
    try:
        _exchange(run, carrier, timeout, path)
    except FederationError as error:
        if path is not None and (is_again or run.place[1]):
            error.add_note(
                f"The same run continues from {path}. Remove the file to start again; then owners "
                "of a release pay again."
            )
        elif path is not None and checkpoint == AUTO:
            # Nothing was charged yet.
            path.unlink(missing_ok=True)
        raise
    if path is not None and checkpoint == AUTO and coordinator.finished:
        path.unlink(missing_ok=True)
    return coordinator.result()


def _exchange(
    run: BarycenterCoordinator | AllocationRun,
    carrier: Carrier,
    timeout: float | None,
    checkpoint: Path | None,
) -> None:
    """Exchange messages until the run is finished."""
    if checkpoint is not None:
        _check_file(checkpoint, run)
    place: Any = None
    while not run.finished:
        for name, answer in carrier.exchange(run.messages(), timeout):
            run.receive(name, answer)
        try:
            run.advance()
        finally:
            # Also before owners are asked for a release: in another session they would pay again.
            if checkpoint is not None and run.place != place:
                place = run.place
                replace_file(checkpoint, run.checkpoint())


def _check_file(path: Path, run: BarycenterCoordinator | AllocationRun) -> None:
    """Raise if a file contains another session, for which owners may have paid."""
    if path.exists() and unpack(path.read_bytes()).fields.get("session") != run.place[0]:
        raise FileExistsError(
            f"there is a checkpoint at {path}. Continue from it with a new coordinator, or by "
            "coordinator.restore(path.read_bytes()). Or remove it to start again; then owners of a "
            "release pay again."
        )
