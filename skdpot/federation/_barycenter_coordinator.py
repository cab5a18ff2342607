"""The coordinator of a federated barycenter: it asks, and adds up what is answered."""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skdpot.federation._agreement import BarycenterAgreement, Crossing, FederationError
from skdpot.federation._release import RELEASE, GroupRelease
from skdpot.federation._released_barycenter import barycenter_of_groups
from skdpot.federation._rounds import PlainRound, SecureRound
from skdpot.federation._solvers import BarycenterProblem, Step, solve
from skdpot.federation._summing import SecureAggregation, resolution
from skdpot.federation._wire import Packet, WireError, pack, unpack

ALGORITHMS = ("release", "dual", "bregman", "bundle", "free")
MISSING = ("raise", "drop")
_REPLIES = {"hello": "welcome", "step": "answer", "finish": "done"}


@dataclass
class _Leg:
    """What is asked in a leg of a round, and what was answered so far."""

    kind: str
    packets: dict[str, Packet]
    accepted: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    n_tries: int = 0
    n_asked: int = 0
    bytes_down: int = 0
    bytes_up: int = 0

    @property
    def missing(self) -> list[str]:
        """Who was asked, and has not answered."""
        return [name for name in self.packets if name not in self.accepted]


class BarycenterCoordinator:
    """Computes a barycenter with owners who keep their rows.

    It is a machine with states: `messages` are what it wants to be sent, `receive` takes what
    arrives, and `advance` says that nothing more is waited for. :func:`run_barycenter` does this
    with any carrier of messages.

    Parameters
    ----------
    owners : sequence of str
        Names of the owners.
    n_support : int or None
        Number of points of the barycenter. None, for a release, is to leave it with the released
        groups.
    algorithm : {"release", "dual", "bregman", "bundle", "free"}, default="release"
        ``"release"`` asks every owner once, for counts or moments with noise, and calculates
        everything from these: it is private. **The others are not,** whoever sees their messages,
        and secure aggregation does not make them so. ``"dual"`` is the paper's Algorithm 1;
        ``"bregman"`` and ``"bundle"`` need fewer rounds; ``"free"`` moves the support freely.
    release : GroupRelease, default=None
        What owners are asked for, for ``"release"``.
    candidates : array-like of shape (n_candidates, n_features), default=None
        Public points to choose the support from. ``"free"`` can do without, and starts from means
        and covariances of all groups together.
    weights : {"proportional", "uniform"} or array-like of shape (n_groups,), \
            default="proportional"
        Weights of the groups: for ``"release"`` in its order of groups, else in the order of the
        owners, who have one group each.
    bounds : tuple of (array-like, array-like) of shape (n_features,), default=None
        A public box that all rows lie in. Needed for secure sums of other algorithms.
    secure : SecureAggregation, default=None
        None lets the coordinator see what every owner sends.
    tol : float, default=1e-3
        Certified gap, or for ``"free"`` progress, to stop at, relative to the objective.
    max_iter : int, default=None
        Largest number of rounds of the algorithm.
    on_missing : {"raise", "drop"}, default="raise"
        What happens if owners do not answer `n_attempts` times. ``"raise"`` ends with a
        `FederationError`, after which the same coordinator can be run again, and goes on.
        ``"drop"`` goes on without them: a release then is of the others' rows; other algorithms
        begin anew, with the others' groups.
    n_attempts : int, default=3
        How often an owner is asked.
    n_least : int, default=1
        With fewer owners the coordinator does not go on.

    Attributes
    ----------
    finished : bool
        Whether nothing is left to be asked.
    members : tuple of str
        Owners that take part.
    dropped : tuple of str
        Owners that do not any more.
    traffic : list of Crossing
        What crossed the wire so far.
    rejected : Counter
        How many messages were not accepted, by cause. None of them did anything.

    See Also
    --------
    BarycenterClient : An owner.

    Notes
    -----
    What it learns of owners is in `receive` and nowhere else: sums of their vectors, under secure
    aggregation; else every vector. `checkpoint` is the list of sums so far.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpot.federation import (
    ...     BarycenterClient, BarycenterCoordinator, InProcessCarrier, run_barycenter)
    >>> square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> owners = [BarycenterClient("a", square, "men"), BarycenterClient("b", square + 2, "women")]
    >>> coordinator = BarycenterCoordinator(["a", "b"], 4, algorithm="free")
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
        owners: Sequence[str],
        n_support: int | None,
        *,
        algorithm: str = "release",
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
    ) -> None:
        self.members = _checked_names(owners)
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {list(ALGORITHMS)}, got {algorithm!r}.")
        if (algorithm == "release") != (release is not None):
            raise ValueError("release is what algorithm='release' asks for, which needs it.")
        if on_missing not in MISSING:
            raise ValueError(f"on_missing must be one of {list(MISSING)}, got {on_missing!r}.")
        if n_attempts < 1 or n_least < 1:
            raise ValueError("n_attempts and n_least must be at least 1.")
        if release is not None and release.noise == "shared" and secure is None:
            raise ValueError("shared noise is for secure aggregation: give secure, too.")
        if n_support is None and release is None:
            raise ValueError("n_support may be None for a release only.")
        self.n_support, self.algorithm, self.release = n_support, algorithm, release
        self.candidates = None if candidates is None else np.array(candidates, dtype=np.float64)
        self.weights, self.bounds, self.secure = weights, bounds, secure
        self.tol, self.max_iter = tol, max_iter
        self._owners = self.members
        self.on_missing, self.n_attempts, self.n_least = on_missing, n_attempts, n_least
        self.dropped: tuple[str, ...] = ()
        self.traffic: list[Crossing] = []
        self.rejected: Counter = Counter()
        self._outcome: Any = None
        self._leg: _Leg | None
        self._begin()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_members={len(self.members)}, n_support={self.n_support}, "
            f"algorithm={self.algorithm!r})"
        )

    # --------------------------------------------------------------------------- for carriers

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to be asked."""
        return self._leg is None

    @property
    def n_rounds(self) -> int:
        """Return how many rounds were made."""
        return len(self._sums)

    def messages(self) -> dict[str, bytes]:
        """Return what is to be sent now, by owner: to all who have not answered yet."""
        leg = self._leg
        if leg is None:
            return {}
        wanted = {name: pack(leg.packets[name]) for name in leg.missing}
        leg.n_tries += 1
        leg.n_asked += len(wanted)
        leg.bytes_down += sum(map(len, wanted.values()))
        return wanted

    def receive(self, name: str, data: bytes) -> None:
        """Take what arrived from an owner, whatever it is, and whenever; nothing raises.

        Parameters
        ----------
        name : str
            Who sent it, as the carrier knows.
        data : bytes
            What arrived.
        """
        cause = "late" if self._leg is None else self._refused(self._leg, name, data)
        if cause:
            self.rejected[cause] += 1

    def advance(self) -> None:
        """Go on to what is to be asked next, or ask again.

        Raises
        ------
        FederationError
            If owners are missing that the coordinator needs. Run it again to go on.
        """
        leg = self._leg
        if leg is None:
            return
        if leg.missing and leg.n_tries < self.n_attempts and leg.kind != "finish":
            return
        self._note(leg)
        if leg.kind == "hello":
            self._after_hello(leg)
        elif leg.kind == "finish":
            self._leg = None
        else:
            self._after_leg(leg)

    def result(self) -> BarycenterAgreement:
        """Return what was found.

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
            members=self.members,
            dropped=self.dropped,
            traffic=list(self.traffic),
            resolution=self._resolution,
        )

    def checkpoint(self) -> bytes:
        """Return what a new coordinator with the same parameters needs to go on: sums so far.

        Returns
        -------
        bytes
            For `restore`. It holds what the coordinator has learned of the owners, and no more.
        """
        fields = {
            "settings": self._settings(),
            "session": self._session,
            "members": list(self.members),
            "dropped": list(self.dropped),
            "n_rows": self._n_rows,
            "n_features": self._n_features,
            "greeted": self._greeted,
            "contributors": [n for _, n in self._sums],
            "lengths": [len(total) for total, _ in self._sums],
        }
        sums = [total for total, _ in self._sums] or [np.empty(0)]
        return pack(Packet("checkpoint", fields=fields, arrays={"sums": np.concatenate(sums)}))

    def restore(self, checkpoint: bytes) -> None:
        """Go on from where another coordinator was.

        Parameters
        ----------
        checkpoint : bytes
            From `checkpoint`.

        Raises
        ------
        ValueError
            If it is none, or of a coordinator with other parameters.
        """
        packet = unpack(checkpoint)
        fields = packet.fields
        if packet.kind != "checkpoint" or fields.get("settings") != self._settings():
            raise ValueError("the checkpoint is of a coordinator with other parameters.")
        self.members, self.dropped = tuple(fields["members"]), tuple(fields["dropped"])
        self._begin()
        self._session, self._n_rows = fields["session"], fields["n_rows"]
        self._n_features = fields["n_features"]
        self._leg = self._hello()
        if not fields["greeted"]:
            return
        self._start()
        ends = np.cumsum(fields["lengths"]).astype(int)[:-1]
        sums = np.split(packet.arrays["sums"], ends) if fields["lengths"] else []
        for total, n_contributors in zip(sums, fields["contributors"], strict=True):
            self._learn(total, n_contributors)

    # -------------------------------------------------------------------------------- session

    def _begin(self) -> None:
        """Begin a session with the present members."""
        self._session = secrets.token_hex(16)
        self._sums: list[tuple[np.ndarray, int]] = []
        self._n_rows, self._n_features, self._greeted = 0, 0, False
        self._said: dict[str, dict[str, Any]] = {}
        self._leg = self._hello()

    def _hello(self) -> _Leg:
        fields = {
            "release": None if self.release is None else self.release.described(),
            "secure": self.secure is not None,
            "n_members": len(self.members),
        }
        packets = {
            name: self._letter("hello", "", fields | {"member": member}, {})
            for member, name in enumerate(self.members)
        }
        return _Leg("hello", packets)

    def _letter(
        self, kind: str, attempt: str, fields: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> Packet:
        return Packet(kind, self._session, len(self._sums), attempt, "", fields, arrays)

    def _after_hello(self, leg: _Leg) -> None:
        if leg.missing:
            self._go_on_without(leg)
            return
        widths = {said["n_features"] for said in self._said.values()}
        if len(widths) > 1:
            raise FederationError(
                f"owners have rows of {sorted(widths)} features: they must have the same.", {}
            )
        (self._n_features,) = widths
        if self.release is None:
            self._check_groups()
        else:
            self._n_rows = sum(said["n_rows"] for said in self._said.values())
        self._start()

    @property
    def _resolution(self) -> float:
        """Return by how much sums may be wrong, in units of the largest entry."""
        return 0.0 if self.secure is None else resolution(len(self.members))

    def _check_groups(self) -> None:
        owner_of: dict[str, str] = {}
        for name, said in self._said.items():
            other = owner_of.setdefault(said["group"], name)
            if other != name:
                raise FederationError(
                    f"owners {other!r} and {name!r} have rows of one group. What algorithm="
                    f"{self.algorithm!r} is told by a group has a maximum over all of its rows in "
                    "it, which is no sum over owners. Use algorithm='release'.",
                    {},
                )

    def _start(self) -> None:
        """Begin the rounds."""
        self._greeted = True
        self._rounds: Generator[Step, Any, Any]
        if self.release is not None:
            self._rounds = self._release_rounds(self.release)
        else:
            problem = BarycenterProblem(
                n_members=len(self.members),
                n_support=self.n_support or 0,
                n_features=self._n_features,
                weights=self._weights_of_members(),
                candidates=self.candidates,
                bounds=self.bounds,
                algorithm=self.algorithm,
                tol=self.tol,
                max_iter=self.max_iter,
                resolution=self._resolution,
            )
            self._rounds = solve(problem)
        self._ask(next(self._rounds))

    def _release_rounds(
        self, release: GroupRelease
    ) -> Generator[Step, tuple[np.ndarray, int], Any]:
        n_parts = len(self.members)
        size = int(np.prod(release.plan(self._n_rows, n_parts).released_shape))
        self._of_release = {"n_records": self._n_rows, "n_parts": n_parts}
        total, n_contributors = yield Step(RELEASE, {}, size, 0.0)
        groups = release.read(total, self._n_rows, n_parts, n_contributors)
        return barycenter_of_groups(groups, self.weights, self.n_support or 0, self.tol), groups

    def _weights_of_members(self) -> Any:
        if isinstance(self.weights, str) and self.weights == "proportional":
            return self.weights
        given = np.ones(len(self._owners)) if isinstance(self.weights, str) else self.weights
        of_owner = dict(zip(self._owners, np.asarray(given, dtype=np.float64), strict=True))
        kept = np.array([of_owner[name] for name in self.members])
        return kept / kept.sum()

    # --------------------------------------------------------------------------------- rounds

    def _ask(self, step: Step) -> None:
        """Begin a round."""
        self._step = step
        self._attempt()

    def _attempt(self) -> None:
        """Begin a round, or begin it anew, with other masks."""
        step = self._step
        is_release = step.kind == RELEASE
        task: dict[str, Any] = {"kind": step.kind, "size": step.size}
        task["type"] = "int64" if is_release else "float64"
        if is_release:
            task |= self._of_release
        self._round: PlainRound | SecureRound
        if self.secure is None:
            self._round = PlainRound(self.members, task, step.arrays, self._letter)
        else:
            if not is_release:
                task["largest"] = float(step.largest)
            agreed = self.secure.for_members(len(self.members))
            strict = not is_release or self.on_missing == "raise"
            self._round = SecureRound(self.members, task, step.arrays, self._letter, agreed, strict)
        self._leg = _Leg(self._round.legs[0], self._round.messages(self._round.legs[0]))

    def _after_leg(self, leg: _Leg) -> None:
        missing = leg.missing
        tolerant = self.release is not None and self.on_missing == "drop"
        if missing and self._round.needs(leg.kind, missing) and not tolerant:
            self._go_on_without(leg)
            return
        later = self._round.legs[self._round.legs.index(leg.kind) + 1 :]
        try:
            if later:
                self._leg = _Leg(later[0], self._round.messages(later[0]))
                return
            total, n_contributors = self._round.total()
        except RuntimeError as error:
            self._attempt()
            raise FederationError(f"{error} Run it again to go on.", self._why(leg)) from error
        if n_contributors < self.n_least:
            self._attempt()
            raise FederationError(
                f"{n_contributors} owners answered, and n_least={self.n_least} must.",
                self._why(leg),
            )
        absent = [name for name in self.members if name not in self._round.contributors]
        self.members, self.dropped = self._round.contributors, (*self.dropped, *absent)
        self._learn(total, n_contributors)

    def _learn(self, total: np.ndarray, n_contributors: int) -> None:
        """Go on to the next round with a sum, or to the end."""
        self._sums.append((total, n_contributors))
        try:
            step = self._rounds.send(total if self.release is None else (total, n_contributors))
        except StopIteration as end:
            self._outcome = end.value if self.release is not None else (end.value, None)
            self._leg = self._farewell()
            return
        self._ask(step)

    def _farewell(self) -> _Leg:
        found, _ = self._outcome
        arrays = {"support": found.support}
        fields = {"objective": found.objective}
        if self.release is not None:
            total, n_contributors = self._sums[-1]
            arrays["total"] = total
            fields |= self._of_release | {"n_contributors": n_contributors}
        return _Leg(
            "finish",
            dict.fromkeys(self.members, self._letter("finish", "", fields, arrays)),
        )

    # -------------------------------------------------------------------------------- answers

    def _refused(self, leg: _Leg, name: str, data: bytes) -> str | None:
        """Accept an answer, or return why it is none."""
        try:
            packet = unpack(data)
        except WireError:
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
            leg.reasons[name] = str(packet.fields.get("reason", ""))[:500]
            return "refusal"
        try:
            if packet.kind != _REPLIES.get(leg.kind, leg.kind):
                return "late"
            if leg.kind == "hello":
                self._said[name] = self._welcomed(packet.fields)
            elif leg.kind != "finish":
                self._round.accept(leg.kind, name, packet)
        except (ValueError, KeyError):
            return "malformed"
        leg.accepted.add(name)
        leg.bytes_up += len(data)
        return None

    def _welcomed(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return what an owner says of itself, or raise ValueError or KeyError."""
        said = {"n_features": fields["n_features"]}
        said["group" if self.release is None else "n_rows"] = fields[
            "group" if self.release is None else "n_rows"
        ]
        numbers = [value for name, value in said.items() if name != "group"]
        if not all(type(number) is int and 0 <= number < 2**40 for number in numbers):
            raise ValueError("an owner says no number of rows or features.")
        return said

    def _go_on_without(self, leg: _Leg) -> None:
        """Drop the missing owners, or raise."""
        missing, why = leg.missing, self._why(leg)
        left = [name for name in self.members if name not in missing]
        if self.on_missing == "drop" and len(left) >= self.n_least:
            self.members, self.dropped = tuple(left), (*self.dropped, *missing)
            self._begin()
            return
        self._again(leg)
        raise FederationError(
            f"{len(missing)} of {len(self.members)} owners did not answer: "
            f"{', '.join(f'{name} ({reason})' for name, reason in why.items())}. Run the same "
            "coordinator again to go on, or make one with on_missing='drop'.",
            why,
        )

    def _again(self, leg: _Leg) -> None:
        """Let a leg be asked again from the start, when the coordinator is run again."""
        if leg.kind == "hello" or self.secure is None:
            leg.n_tries = 0
        else:
            self._attempt()

    def _why(self, leg: _Leg) -> dict[str, str]:
        return {name: leg.reasons.get(name, "no answer") for name in leg.missing}

    def _note(self, leg: _Leg) -> None:
        """Remember what crossed the wire."""
        step = "" if leg.kind in ("hello", "finish") else self._step.kind
        self.traffic.append(
            Crossing(
                len(self._sums), leg.kind, step, leg.n_asked, len(leg.accepted), leg.bytes_down,
                leg.bytes_up,
            )
        )  # fmt: skip

    def _settings(self) -> str:
        """Return a digest of all parameters that the sums depend on."""
        candidates = None if self.candidates is None else self.candidates.tolist()
        weights = self.weights if isinstance(self.weights, str) else list(self.weights)
        bounds = None if self.bounds is None else [np.asarray(end).tolist() for end in self.bounds]
        settings = [
            list(self._owners), self.n_support, self.algorithm, candidates, weights, bounds,
            None if self.release is None else self.release.described(),
            self.secure is not None, self.tol, self.max_iter,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


def _checked_names(owners: Sequence[str]) -> tuple[str, ...]:
    names = tuple(map(str, owners))
    if not names or len(set(names)) < len(names):
        raise ValueError("owners must be names that differ from each other, one or more.")
    return names
