"""The coordinator of a federated barycenter, as its carrier and its user see it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._keys import SigningKey
from .._legs import Crossing
from .._run_defaults import MAX_ROWS
from .._secure_aggregation import SecureAggregation
from .._wire import Packet, pack, unpack
from ._agreement import BarycenterAgreement
from ._coordinator_session import CoordinatorSession
from ._coordinator_settings import BarycenterSettings
from ._group_release import GroupRelease


class BarycenterCoordinator(CoordinatorSession):
    """Coordinator of a barycenter of rows that stay with their owners.

    It is a state machine: `messages` returns the messages to send, `receive` accepts an answer,
    and `advance` ends the wait for answers. :func:`run_barycenter` runs it with any carrier of
    messages.

    Parameters
    ----------
    owners : sequence of str, or mapping of str to str
        Names of the owners, or public keys by name. With keys, an owner's answers must be signed
        with its key.
    n_support : int or None
        Number of points of the barycenter. None, for a release, returns only the released groups.
    method : {"release", "dual", "bregman", "bundle", "free"}, default="release"
        ``"release"`` asks every owner once, for noisy counts or moments, and computes everything
        from these: it is private. **The other methods are not private,** even with secure
        aggregation. ``"dual"`` is the paper's Algorithm 1; ``"bregman"`` and ``"bundle"`` need
        fewer rounds; ``"free"`` moves the support freely.
    release : GroupRelease, default=None
        The release that owners are asked for, with ``"release"``.
    candidates : array-like of shape (n_candidates, n_features), default=None
        Public points to choose the support from. ``"free"`` does not need them: it can start from
        means and covariances of all groups together.
    weights : {"proportional", "uniform"} or array-like of shape (n_groups,), \
            default="proportional"
        Weights of the groups: with ``"release"`` in its order of groups, otherwise in the order of
        the owners, who have one group each.
    bounds : tuple of (array-like, array-like) of shape (n_features,), default=None
        A public box that contains all rows. Needed for secure sums with the other methods.
    secure : SecureAggregation, default=None
        With None the coordinator sees the answer of every owner.
    tol : float, default=1e-3
        The run stops at this certified gap (for ``"free"``, this progress), relative to the
        objective.
    max_iter : int, default=None
        Largest number of rounds of the algorithm.
    on_missing : {"raise", "drop"}, default="raise"
        Policy for owners that do not answer `n_attempts` times. ``"raise"`` raises a
        `FederationError`; run the same coordinator again to continue. ``"drop"`` continues without
        them: a release covers the others' rows, and other methods start again with the others'
        groups.
    n_attempts : int, default=3
        How often an owner is asked.
    n_least : int, default=1
        With fewer owners the coordinator stops.
    max_rows : int or mapping of str to int, default=10_000_000
        Largest number of rows that an owner of a release may declare: one number, or one for each
        owner. The coordinator refuses answers that are impossible for the declared rows. So a
        dishonest owner has at most the weight of its declared rows: choose a plausible number.
    combine : {"sum", "median"}, default="sum"
        How the owners' parts of a release are combined. ``"median"`` takes, for every number, the
        median over owners of its value per row, times the number of all rows. Fewer than half of
        the owners cannot move it beyond what the others sent, for any number of declared rows. It
        has more noise, and is biased if owners differ. It needs ``noise="own"``, without `secure`.
    key : SigningKey, default=None
        Key with which the coordinator signs its messages, for owners that require it.

    Attributes
    ----------
    finished : bool
        Whether the run is finished.
    owners : tuple of str
        Owners that take part.
    dropped : tuple of str
        Owners that were dropped.
    traffic : list of Crossing
        Record of the messages so far.
    rejected : Counter
        Number of refused messages, by cause. They had no effect.

    Raises
    ------
    ValueError
        If a parameter is invalid, or parameters do not fit together. No owner is asked in this
        case.

    See Also
    --------
    BarycenterOwner : An owner.

    Notes
    -----
    All that it learns about owners arrives through `receive`: with secure aggregation sums of
    their vectors, otherwise every vector. `checkpoint` contains the sums so far.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, Algorithm 1 and equation (15).

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation import (
    ...     BarycenterOwner, BarycenterCoordinator, InProcessCarrier, run_barycenter)
    >>> square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> owners = [BarycenterOwner("a", square, "men"), BarycenterOwner("b", square + 2, "women")]
    >>> coordinator = BarycenterCoordinator(["a", "b"], 4, method="free")
    >>> found = run_barycenter(coordinator, InProcessCarrier(owners))
    >>> np.unique(found.support.round(6), axis=0)
    array([[1., 1.],
           [1., 2.],
           [2., 1.],
           [2., 2.]])
    >>> round(found.objective, 6)
    2.0
    """

    def __init__(
        self,
        owners: Sequence[str] | Mapping[str, str],
        n_support: int | None,
        *,
        method: str = "release",
        release: GroupRelease | None = None,
        candidates: Any = None,
        weights: Any = "proportional",
        bounds: Any = None,
        secure: SecureAggregation | None = None,
        tol: float = 1e-3,
        max_iter: int | None = None,
        on_missing: str = "raise",
        n_attempts: int = 3,
        n_least: int = 1,
        max_rows: int | Mapping[str, int] = MAX_ROWS,
        combine: str = "sum",
        key: SigningKey | None = None,
    ) -> None:
        self._key = key
        self._settings = BarycenterSettings(
            owners, n_support, method, release, candidates, weights, bounds, secure, tol,
            max_iter, on_missing, n_attempts, n_least, max_rows, combine,
        )  # fmt: skip
        self.owners = self._settings.owners
        self.dropped: tuple[str, ...] = ()
        self.traffic: list[Crossing] = []
        self.rejected: Counter = Counter()
        self._refusals: dict[str, Counter] = {}
        self._begin(self.owners)

    def __repr__(self) -> str:
        settings = self._settings
        return (
            f"{type(self).__name__}(n_owners={len(self.owners)}, "
            f"n_support={settings.n_support}, method={settings.method!r})"
        )

    # --------------------------------------------------------------------------- for carriers

    @property
    def method(self) -> str:
        """Return the algorithm, as given."""
        return self._settings.method

    @property
    def finished(self) -> bool:
        """Return whether the run is finished."""
        return self._leg is None

    @property
    def n_rounds(self) -> int:
        """Return the number of completed rounds."""
        return len(self._sums)

    @property
    def place(self) -> tuple[str, bool, int]:
        """Return a value that changes whenever a new checkpoint is due."""
        return self._session, self._rounds is not None, len(self._sums)

    @property
    def is_new(self) -> bool:
        """Return whether no owner was asked yet."""
        leg = self._leg
        return leg is not None and leg.kind == "hello" and not (leg.n_tries or self.dropped)

    @property
    def digest(self) -> str:
        """Return a digest of all parameters that a checkpoint depends on."""
        return self._settings.digest()

    def messages(self) -> dict[str, bytes]:
        """Return the messages to send now, to all owners that have not answered.

        Returns
        -------
        dict of str to bytes
            Messages by owner.
        """
        return {} if self._leg is None else self._leg.messages(self._key)

    def receive(self, name: str, data: bytes) -> None:
        """Accept data from an owner; invalid or late data are counted, and nothing raises.

        Parameters
        ----------
        name : str
            The sender, as the carrier knows it.
        data : bytes
            The received data.
        """
        cause: str | None = "late"
        if self._leg is not None:
            cause = self._leg.receive(name, data, self._settings.publics.get(name), self._wrong)
        if cause:
            self.rejected[cause] += 1
            self._refusals.setdefault(name, Counter())[cause] += 1

    def advance(self) -> None:
        """Continue with the next step, or repeat the present one.

        Owners that refused are asked again, like owners that did not answer: they may answer when
        a missing message has arrived.

        Raises
        ------
        FederationError
            If necessary owners are missing, or answers contradict each other. Run it again to
            continue.
        """
        leg = self._leg
        if leg is None:
            return
        if leg.missing and leg.n_tries < self._settings.n_attempts:
            return
        self.traffic.append(leg.crossing(self.n_rounds, self._step.kind if self._step else ""))
        if leg.kind == "hello":
            self._after_hello(leg)
        elif leg.kind == "finish":
            self._leg = None
        else:
            self._after_leg(leg)

    def result(self) -> BarycenterAgreement:
        """Return the result.

        Returns
        -------
        BarycenterAgreement
            Support, bounds, and the record of messages.

        Raises
        ------
        RuntimeError
            If the coordinator is not finished.
        """
        if self._outcome is None:
            raise RuntimeError("the coordinator is not finished: run it to the end.")
        found, groups = self._outcome
        return BarycenterAgreement(
            support=found.support,
            objective=found.objective,
            lower_bound=found.lower_bound,
            n_rounds=len(self._sums),
            converged=found.converged,
            history=found.history,
            released=groups,
            owners=self.owners,
            dropped=self.dropped,
            traffic=list(self.traffic),
            rows=dict(self._rows),
            keys=dict(self._settings.publics),
            rejected={name: dict(causes) for name, causes in self._refusals.items()},
            resolution=self._settings.resolution(len(self._asked)),
        )

    def checkpoint(self) -> bytes:
        """Return the sums so far, from which a new coordinator can continue.

        Returns
        -------
        bytes
            Data for `restore`. They contain only what the coordinator has learned about the
            owners.
        """
        fields = {
            "settings": self._settings.digest(),
            "session": self._session,
            "asked": list(self._asked),
            "owners": list(self.owners),
            "dropped": list(self.dropped),
            "rows": self._rows,
            "n_features": self._n_features,
            "greeted": self._rounds is not None,
            "contributors": [list(names) for _, names in self._sums],
            "lengths": [len(total) for total, _ in self._sums],
        }
        sums = [total for total, _ in self._sums] or [np.empty(0)]
        return pack(Packet("checkpoint", fields=fields, arrays={"sums": np.concatenate(sums)}))

    def restore(self, checkpoint: bytes) -> None:
        """Continue from the checkpoint of another coordinator.

        Parameters
        ----------
        checkpoint : bytes
            From `checkpoint`.

        Raises
        ------
        ValueError
            If it is invalid, or from a coordinator with other parameters.
        """
        packet = unpack(checkpoint)
        fields = packet.fields
        if packet.kind != "checkpoint" or fields.get("settings") != self._settings.digest():
            raise ValueError(
                "the checkpoint is from a coordinator with other parameters. Use those "
                "parameters, or remove the file to start again; then owners of a release pay again."
            )
        self._begin(tuple(fields["asked"]))
        self.owners, self.dropped = tuple(fields["owners"]), tuple(fields["dropped"])
        self._session, self._rows = fields["session"], fields["rows"]
        self._n_features = fields["n_features"]
        ends = np.cumsum(fields["lengths"]).astype(int)[:-1]
        sums = np.split(packet.arrays["sums"], ends) if fields["lengths"] else []
        self._sums = list(zip(sums, map(tuple, fields["contributors"]), strict=True))
        if fields["greeted"]:
            self._replay()
        else:
            self._leg = self._hello()

    # -------------------------------------------------------------------------------- answers
