"""The coordinator of a federated barycenter, as a machine with states."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from skdpot.transport.barycenter import Step, solve

from .._keys import SigningKey
from .._run_defaults import MAX_ROWS
from .._secure_aggregation import SecureAggregation
from .._secure_sum import FaultyOwnerError, SecureSumError
from .._session_names import new_session
from .._wire import Packet, SignatureError, WireError, pack, unpack
from ._agreement import BarycenterAgreement, Crossing, FederationError
from ._coordinator_settings import BarycenterSettings
from ._greetings import check_groups, check_width, common_width, read_welcome
from ._group_release import GroupRelease
from ._legs import Leg
from ._round_sums import MedianRound, OutOfRange, PlainRound, SecureRound, at_fault

# Kinds of answers; in legs of a secure sum they are the names of the legs.
_REPLIES = {"hello": "welcome", "step": "answer", "finish": "done"}
_AGAIN = (
    "Mend that, and run the same coordinator again to go on, or make one that can do without "
    "owners (on_missing='drop')."
)


class BarycenterCoordinator:
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
        self._leg: Leg | None
        self._step: Step | None
        self._rounds: Generator[Step, Any, Any] | None
        # Sums of the rounds, and the owners whose vectors they contain.
        self._sums: list[tuple[np.ndarray, tuple[str, ...]]]
        # Number of rows that each owner of a release declared.
        self._rows: dict[str, int]
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
        cause = "late" if self._leg is None else self._refused(self._leg, name, data)
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
                "the checkpoint is of a coordinator with other parameters: make one with those, or "
                "remove the file to begin anew, for which owners of a release pay again."
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

    # -------------------------------------------------------------------------------- session

    def _begin(self, owners: tuple[str, ...]) -> None:
        """Begin a session with these owners."""
        self.owners = self._asked = owners
        self._session = new_session()
        self._sums = []
        self._rows = {}
        self._n_features = 0
        self._said: dict[str, dict[str, Any]] = {}
        # Reasons of owners that are missing in this round.
        self._absent: dict[str, str] = {}
        # Owners that spoilt an attempt at this round; the next attempt is made without them.
        self._left_out: dict[str, str] = {}
        self._step = None
        self._rounds = None
        self._outcome: Any = None
        self._leg = self._hello()

    @property
    def _roster(self) -> list[list[str]]:
        """Return names and public keys of the asked owners; empty without keys."""
        publics = self._settings.publics
        return [[name, publics[name]] for name in self._asked] if publics else []

    def _hello(self) -> Leg:
        release = self._settings.release
        fields = {
            "release": None if release is None else release.described(),
            "secure": self._settings.secure is not None,
            "n_owners": len(self._asked),
            "roster": self._roster or None,
        }
        packets = {
            name: self._letter("hello", "", fields | self._told(owner, name), {})
            for owner, name in enumerate(self._asked)
        }
        return Leg("hello", packets)

    def _told(self, owner: int, name: str) -> dict[str, Any]:
        """Return the part of a greeting that is for one owner."""
        told = {"owner": owner, "name": name}
        if self._settings.release is None:
            return told
        return told | {"max_rows": self._settings.max_rows(name)}

    @property
    def _n_rows(self) -> int:
        return sum(self._rows.values())

    def _letter(
        self, kind: str, attempt: str, fields: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> Packet:
        return Packet(kind, self._session, len(self._sums), attempt, "", fields, arrays)

    def _after_hello(self, leg: Leg) -> None:
        if leg.missing:
            self._go_on_without(leg, leg.why)
            return
        release = self._settings.release
        try:
            self._n_features = common_width(self._said)
            if release is None:
                check_groups(self._said, self._settings.method)
            else:
                check_width(self._said, release.bounds)
                self._rows = {name: self._said[name]["n_rows"] for name in self._asked}
            self._replay()
        except (FederationError, ValueError) as error:
            # Owners do not fit together, or do not fit the parameters. They may be asked again.
            self._said, self._leg = {}, self._hello()
            if isinstance(error, FederationError):
                raise
            raise FederationError(str(error), {}) from error

    def _replay(self) -> None:
        """Begin the rounds, and repeat those with known sums."""
        if self._settings.release is not None:
            rounds: Generator[Step, Any, Any] = self._settings.release_rounds(
                self._n_rows, len(self._asked)
            )
        else:
            rounds = solve(self._settings.problem(self._asked, self._n_features))
        self._rounds, step = rounds, next(rounds)
        for number in range(len(self._sums)):
            try:
                step = rounds.send(self._what_was_learned(number))
            except StopIteration as end:
                self._finish(end.value)
                return
        self._step = step
        self._attempt(step)

    # --------------------------------------------------------------------------------- rounds

    def _attempt(self, step: Step) -> None:
        """Begin a round, or repeat it with new masks."""
        task, strict = self._settings.task_of(step, self._n_rows, len(self._asked))
        check = self._settings.check_of(step, self._rows)
        options = self._asked, task, step.arrays, self._letter, strict, check
        self._round: PlainRound | SecureRound
        if self._settings.combine == "median":
            self._round = MedianRound(*options, self._rows)
        elif self._settings.secure is None:
            self._round = PlainRound(*options)
        else:
            secure = self._settings.secure_for(len(self._asked))
            self._round = SecureRound(*options, secure, self._left_out, self._roster)
        self._absent = dict(self._left_out)
        self._leg = Leg(self._round.legs[0], self._round.messages(self._round.legs[0]))

    def _after_leg(self, leg: Leg) -> None:
        assert self._step is not None
        if leg.accusations:
            self._try_without(leg)
            return
        self._absent |= leg.why
        if not self._round.close(leg.kind, leg.missing):
            self._go_on_without(leg, self._absent)
            return
        later = self._round.legs[self._round.legs.index(leg.kind) + 1 :]
        try:
            if later:
                self._leg = Leg(later[0], self._round.messages(later[0]))
                return
            total, n_contributors = self._round.total()
        except OutOfRange as error:
            self.rejected["out of range"] += 1
            raise self._too_few(
                f"an owner sent something else than it was asked for: of the sum, {error}. Masks "
                "hide which one it was."
            ) from error
        except SecureSumError as error:
            if error.owner is not None:
                self._absent[self._asked[error.owner]] = "it dealt wrong shares"
            raise self._too_few(str(error)) from error
        least = self._settings.n_least
        if n_contributors < least:
            raise self._too_few(f"{n_contributors} owners answered, and n_least={least} must.")
        self._learn(total)

    def _try_without(self, leg: Leg) -> None:
        """Repeat the round without owners that dealt wrong shares, or raise and name them."""
        assert self._step is not None
        secure = self._settings.secure_for(len(self._asked))
        found = self._left_out | at_fault(leg.accusations, secure.threshold or 0)
        least = max(secure.threshold or 0, self._settings.n_least)
        if self._round.all_or_nothing or len(self._asked) - len(found) < least:
            self._go_on_without(leg, found)
            return
        self._left_out = found
        self._attempt(self._step)

    def _too_few(self, message: str) -> FederationError:
        """Return the error of a round without a sum, after beginning the round again."""
        absent, self._left_out = self._absent, {}
        assert self._step is not None
        self._attempt(self._step)
        return FederationError(f"{message} Missing: {_listed(absent)}. {_AGAIN}", absent)

    def _learn(self, total: np.ndarray) -> None:
        """Continue with the sum of a round: to the next round, or to the end."""
        assert self._rounds is not None
        contributors = self._round.contributors
        self._sums.append((total, contributors))
        try:
            step = self._rounds.send(self._what_was_learned(-1))
        except StopIteration as end:
            absent = [name for name in self._asked if name not in contributors]
            self.owners, self.dropped = contributors, (*self.dropped, *absent)
            self._finish(end.value)
            return
        except Exception as error:
            # Impossible numbers: an owner's answer was not what it was asked for.
            self._sums.pop()
            self._replay()
            raise FederationError(
                "the sum of this round makes no sense: an owner sent something else than it was "
                f"asked for. {_AGAIN}",
                {},
            ) from error
        self._step = step
        self._attempt(step)

    def _what_was_learned(self, number: int) -> Any:
        """Return the value that the generator of rounds gets for a round."""
        total, names = self._sums[number]
        if self._settings.release is None:
            return total
        return total, [self._rows[name] for name in names]

    def _finish(self, outcome: Any) -> None:
        """Begin the last leg, which tells the owners the result."""
        self._outcome = outcome if self._settings.release is not None else (outcome, None)
        found = self._outcome[0]
        arrays = {"support": found.support}
        fields: dict[str, Any] = {"objective": found.objective}
        if self._settings.release is not None:
            total, rows = self._what_was_learned(-1)
            arrays["total"] = total
            fields["n_contributors"] = len(rows)
            fields["rows"] = rows if self._settings.combine == "median" else []
            fields |= {"n_records": self._n_rows, "n_parts": len(self._asked)}
        letter = self._letter("finish", "", fields, arrays)
        self._leg = Leg("finish", dict.fromkeys(self.owners, letter))

    # -------------------------------------------------------------------------------- answers

    def _refused(self, leg: Leg, name: str, data: bytes) -> str | None:
        """Accept an answer, or return why it is refused."""
        try:
            packet = unpack(data, self._settings.publics.get(name))
        except SignatureError:
            leg.note(name, "its answer is not signed with its key")
            return "not signed"
        except WireError:
            leg.note(name, "its answer cannot be read")
            return "malformed"
        asked = leg.packets.get(name)
        if asked is None or packet.sender != name:
            return "unknown sender"
        if (packet.session, packet.round, packet.attempt) != (
            asked.session, asked.round, asked.attempt,
        ):  # fmt: skip
            return "late"
        if name in leg.accepted:
            return "repeated"
        if packet.kind == "refusal":
            leg.note(name, str(packet.fields.get("reason", "")))
            accused = packet.fields.get("accused")
            is_opening = leg.kind in ("check", "masked")
            if is_opening and type(accused) is int and 0 <= accused < len(self._asked):
                leg.accusations[name] = self._asked[accused]
            return "refusal"
        if packet.kind != _REPLIES.get(leg.kind, leg.kind):
            return "late"
        try:
            if leg.kind == "hello":
                of_release = self._settings.release is not None
                most = self._settings.max_rows(name)
                self._said[name] = read_welcome(packet.fields, of_release, most)
            elif leg.kind != "finish":
                self._round.accept(leg.kind, name, packet)
        except OutOfRange as error:
            leg.note(name, f"its answer cannot be: {error}")
            return "out of range"
        except (ValueError, KeyError, TypeError) as error:
            is_known = isinstance(error, FaultyOwnerError)
            leg.note(name, str(error) if is_known else "its answer was not what it was asked for")
            return "malformed"
        leg.accept(name, data, packet)
        return None

    def _go_on_without(self, leg: Leg, why: dict[str, str]) -> None:
        """Drop owners and begin a session without them, or raise."""
        settings, self._left_out = self._settings, {}
        left = tuple(name for name in self._asked if name not in why)
        # Owners that have released would pay for another session.
        free = settings.release is None or leg.kind == "hello"
        if free and settings.can_do_with(left, self._n_features or None):
            self.dropped = (*self.dropped, *why)
            self._begin(left)
            return
        if leg.kind == "hello" or settings.secure is None:
            # Owners that have answered need not answer again.
            leg.n_tries = 0
        else:
            assert self._step is not None
            self._attempt(self._step)
        raise FederationError(
            f"{len(why)} of {len(self._asked)} owners refused or did not answer, or others "
            f"cannot use what they sent: {_listed(why)}. {_AGAIN}",
            why,
        )


def _listed(why: dict[str, str]) -> str:
    """Return names and reasons as a text."""
    reasons = [f"{name} ({reason.rstrip('.')})" for name, reason in why.items()]
    return ", ".join(reasons) or "nobody"
