"""An owner of rows, who answers a coordinator with one vector a round."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from skdpot.federation._release import NEIGHBOURING, RELEASE, GroupRelease
from skdpot.federation._steps import GroupSteps
from skdpot.federation._summing import SECURE_LEGS, Coding, plan_of
from skdpot.federation._wire import Packet, WireError, pack, unpack
from skdpot.privacy.charging import charge, check_ledger
from skdpot.privacy.ledger import BudgetExceededError
from skdpot.privacy.random import make_source


class _Refusal(Exception):
    """Why an owner does not answer; what it says is public."""


@dataclass
class _Progress:
    """How far an owner is in a session: what it was asked last, and what it answered."""

    session: str = ""
    member: int = 0
    n_members: int = 0
    round: int = -1
    task: str = ""
    vector: np.ndarray = field(default_factory=lambda: np.empty(0))
    attempt: str = ""
    survivors: tuple[int, ...] = ()
    request: str = ""
    reply: bytes = b""


class BarycenterClient:
    """An owner of rows in a federation: it keeps its rows, and answers with sums of them.

    **What leaves depends on `release`.** With it, one vector leaves: counts or moments with noise,
    charged to the owner's own ledger before; the owner answers nothing else. Without it, rows do
    not leave, but **what leaves is not private**: from plain messages of the other algorithms the
    coordinator can calculate many of the rows exactly, and from sums over owners weighted means of
    rows, and some rows. The user guide shows how.

    Parameters
    ----------
    name : str
        As the coordinator calls the owner.
    points : array-like of shape (n_rows, n_features)
        The owner's rows: finite numbers. Private, but for how many they are if there is a release.
    group : hashable or array-like of shape (n_rows,)
        The group of all rows; with a release, perhaps of every row. A group that is spread over
        several owners is for a release only: what other algorithms send has a maximum over all rows
        of a group in it, which is no sum over owners.
    release : GroupRelease, default=None
        What the owner agrees to release.
    masses : array-like of shape (n_rows,), default=None
        Masses of the rows, with sum 1; not with a release. None is equal masses.
    secure : bool, default=False
        Whether the owner insists on secure aggregation. With shared noise it does.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        What a release is charged to.
    random_state : None, int or RandomState, default=None
        Where the noise of a release comes from. None is the cryptographic source; a seeded release
        is reproducible, and not private.

    Attributes
    ----------
    name : str
        As given.
    n_answered : int
        How many rounds of the present session it answered.
    outcome : dict
        What the coordinator said at the end: ``"support"``, ``"objective"``; after a release the
        ``"total"`` of all parts, from which every owner can calculate what the coordinator does.

    See Also
    --------
    BarycenterCoordinator : Asks the owners.
    run_barycenter : Carries messages within a process.

    Notes
    -----
    An owner answers one task in every round, and answers it again where it is repeated, with the
    same numbers: noise is drawn, and charged, once in a session. Under secure aggregation it helps
    to unmask one sum in every round, over one set of owners, so that no difference of two sums
    tells what one owner sent. What it is sent may be anything: it answers, or refuses, with a
    reason in which there is nothing private.

    Examples
    --------
    >>> from skdpot.federation import BarycenterClient, GroupRelease
    >>> agreed = GroupRelease(1.0, groups=["a", "b"], bounds=([0, 0], [1, 1]), delta=1e-6)
    >>> BarycenterClient("north", [[0.2, 0.3], [0.9, 0.1]], ["a", "b"], release=agreed)
    BarycenterClient('north', n_features=2, epsilon=1.0)
    """

    def __init__(
        self,
        name: str,
        points: Any,
        group: Any,
        *,
        release: GroupRelease | None = None,
        masses: Any = None,
        secure: bool = False,
        ledger: Any = None,
        random_state: Any = None,
    ) -> None:
        points = _checked_points(points)
        if group is None:
            raise ValueError("group must be the label of the rows' group, or of every row's.")
        if release is None:
            self._open = GroupSteps(points, masses)
            if not isinstance(group, Hashable):
                raise ValueError(
                    "rows of several groups, or of a group that other owners have rows of, are for "
                    "a release: what other algorithms send is of one whole group. Make a client "
                    "for every group, or agree on a GroupRelease."
                )
        elif masses is not None:
            raise ValueError("a release counts rows: it takes no masses.")
        elif release.bounds is None:
            raise ValueError("the release has a layout: use BarycenterClient.from_units.")
        else:
            if points.shape[1] != release.unit_layout.n_numbers:
                raise ValueError(
                    f"points have {points.shape[1]} features, and the release declares bounds of "
                    f"{release.unit_layout.n_numbers}."
                )
            codes = release.codes_of(group, len(points))
            if len(codes) != len(points):
                raise ValueError(f"group must be one label, or {len(points)}, got {len(codes)}.")
            self._records = release.to_units(points), codes
        self._group = group
        self._keep(name, release, points.shape, secure, ledger, random_state)

    @classmethod
    def from_units(
        cls,
        name: str,
        units: np.ndarray,
        codes: np.ndarray,
        release: GroupRelease,
        *,
        ledger: Any = None,
        random_state: Any = None,
    ) -> "BarycenterClient":
        """Make an owner of rows that are in the unit coordinates of a release's layout.

        Parameters
        ----------
        name : str
            As the coordinator calls the owner.
        units : ndarray of shape (n_rows, n_coordinates)
            Rows. Private.
        codes : ndarray of shape (n_rows,)
            Position of every row's group among those of the release, -1 for none. Private.
        release : GroupRelease
            With a layout.
        ledger, random_state
            As of the class.

        Returns
        -------
        BarycenterClient
            The owner.
        """
        client = cls.__new__(cls)
        client._records = units, codes
        client._group = None
        client._keep(name, release, units.shape, False, ledger, random_state)
        return client

    def _keep(
        self,
        name: str,
        release: GroupRelease | None,
        shape: tuple[int, ...],
        secure: bool,
        ledger: Any,
        random_state: Any,
    ) -> None:
        self.name = str(name)
        self._release, self._ledger = release, ledger
        self._n_rows, self._n_features = shape
        self._secure = secure or (release is not None and release.noise == "shared")
        self._source = make_source(random_state)
        check_ledger(ledger, NEIGHBOURING, seeded=self._source.seeded)
        self.outcome: dict[str, Any] = {}
        self._past: list[str] = []
        self._now = _Progress()
        self._sum: Any = None
        self._plan: dict[str, Any] = {}

    def __repr__(self) -> str:
        epsilon = None if self._release is None else self._release.epsilon
        return (
            f"{type(self).__name__}({self.name!r}, n_features={self._n_features}, "
            f"epsilon={epsilon})"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "an owner is not copied or pickled: a copy would carry its rows elsewhere, and release "
            "them once more. Make it where its rows are; state() is what it must remember."
        )

    @property
    def n_answered(self) -> int:
        """Return how many rounds of the present session the owner answered."""
        return self._now.round + 1

    # ------------------------------------------------------------------------------ messages

    def handle(self, data: bytes) -> bytes:
        """Answer a message.

        Parameters
        ----------
        data : bytes
            What arrived, whatever it is.

        Returns
        -------
        bytes
            The answer, or a refusal with its reason. Nothing raises.
        """
        digest = _digest(data)
        if self._now.request == digest:
            return self._now.reply
        session, number, attempt = "", 0, ""
        try:
            packet = unpack(data)
            session, number, attempt = packet.session, packet.round, packet.attempt
            kind, fields, arrays = self._answer(packet)
        except (_Refusal, WireError) as refusal:
            kind, fields, arrays = "refusal", {"reason": str(refusal)}, {}
        except Exception:
            # What went wrong may be due to private values.
            kind, fields, arrays = "refusal", {"reason": "the owner cannot answer this."}, {}
        reply = pack(Packet(kind, session, number, attempt, self.name, fields, arrays))
        if kind != "refusal":
            self._now.request, self._now.reply = digest, reply
        return reply

    def _answer(self, packet: Packet) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
        """Return kind, fields and arrays of the answer."""
        if packet.kind == "hello":
            return self._welcome(packet)
        if not self._now.session or packet.session != self._now.session:
            raise _Refusal("this is not the session that the owner takes part in.")
        if packet.kind == "finish":
            self.outcome = {**packet.fields, **packet.arrays}
            return "done", {}, {}
        if packet.kind == "step":
            if self._secure:
                raise _Refusal("the owner answers under secure aggregation only.")
            return "answer", {}, {"vector": self._vector_for(packet)}
        if packet.kind in SECURE_LEGS:
            return packet.kind, {}, self._secure_answer(packet)
        raise _Refusal("there is no such message.")

    def _welcome(self, packet: Packet) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
        """Take part in a session, if it is what the owner agreed to."""
        fields = packet.fields
        asked = fields.get("release")
        if not (asked is None or isinstance(asked, dict)):
            raise _Refusal("what is asked for is no release.")
        if (asked is None) != (self._release is None):
            raise _Refusal(
                "the owner agreed to a private release, and answers nothing else."
                if asked is None
                else "the owner agreed to no private release."
            )
        if self._release is not None and asked is not None:
            agreed = self._release.described()
            others = sorted(name for name in agreed if asked.get(name) != agreed[name])
            if others:
                raise _Refusal(f"the owner agreed to other values of {', '.join(others)}.")
        if self._secure and not fields.get("secure"):
            raise _Refusal("the owner answers under secure aggregation only.")
        member, n_members = fields.get("member"), fields.get("n_members")
        if type(member) is not int or type(n_members) is not int or not 0 <= member < n_members:
            raise _Refusal("the owner was not told which of the members it is.")
        if packet.session != self._now.session:
            if packet.session in self._past:
                raise _Refusal("this session is over.")
            self._past.append(packet.session)
            self._now = _Progress(packet.session, member, n_members)
            self._sum = None
            if self._release is None:
                self._open.restore({})
        known: dict[str, Any] = {"n_features": self._n_features}
        if self._release is None:
            known["group"] = _digest(repr(self._group).encode())
        else:
            known["n_rows"] = self._n_rows
        return "welcome", known, {}

    # --------------------------------------------------------------------------------- rounds

    def _vector_for(self, packet: Packet) -> np.ndarray:
        """Return the answer to a step, which is calculated once."""
        now = self._now
        task = _digest(pack(Packet("task", fields=packet.fields["step"], arrays=packet.arrays)))
        if packet.round == now.round:
            if task != now.task:
                raise _Refusal("the owner answered another task in this round.")
            return now.vector
        if packet.round != now.round + 1:
            raise _Refusal(f"round {packet.round} is not the one after {now.round}.")
        step = packet.fields["step"]
        if self._release is not None:
            vector = self._released(step)
        else:
            vector = self._calculated(step, packet.arrays)
        now.round, now.task, now.vector, now.survivors = packet.round, task, vector, ()
        return vector

    def _calculated(self, step: dict[str, Any], arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Return what an algorithm wants to know of the rows; the owner moves on, or stays."""
        before = {name: array.copy() for name, array in self._open.state().items()}
        try:
            vector = self._open.answer(step["kind"], arrays, self._now.member)
            if vector.shape != (step["size"],) or not np.isfinite(vector).all():
                raise _Refusal("what is asked for has another length, or is beyond doubles.")
        except Exception:
            self._open.restore(before)
            raise
        return vector

    def _released(self, step: dict[str, Any]) -> np.ndarray:
        """Return the owner's part of the release, charged before."""
        assert self._release is not None
        n_records, n_parts = step["n_records"], step["n_parts"]
        if step["kind"] != RELEASE or n_records < self._n_rows or n_parts != self._now.n_members:
            raise _Refusal("the release is of fewer rows, or of other owners, than there are.")
        try:
            plan = self._release.plan(n_records, n_parts)
        except ValueError as error:
            raise _Refusal(f"the release cannot be made: {error}") from error
        try:
            charge(
                self._ledger,
                plan.event,
                unit="record",
                label=f"{type(self).__name__}, {plan.kind}",
                neighbouring=NEIGHBOURING,
                seeded=self._source.seeded,
            )
        except BudgetExceededError:
            raise _Refusal("the owner's ledger does not allow the release.") from None
        part = plan.part(*self._records, self._source)
        return part.astype(np.int64).ravel()

    # ---------------------------------------------------------------------- secure aggregation

    def _secure_answer(self, packet: Packet) -> dict[str, np.ndarray]:
        """Return the answer in a leg of secure aggregation."""
        from skdpot.federation._secure_sum import SecureSumClient

        now = self._now
        if packet.kind == "keys":
            if packet.round not in (now.round, now.round + 1):
                raise _Refusal(f"round {packet.round} is not the one after {now.round}.")
            plan = plan_of(packet.fields["plan"], packet.session, packet.round, packet.attempt)
            self._check_plan(plan)
            self._plan = packet.fields["plan"] | {"round": packet.round}
            self._sum, now.attempt = SecureSumClient(plan, now.member), packet.attempt
            return self._sum.advertise()
        if self._sum is None or packet.attempt != now.attempt:
            raise _Refusal("this attempt is over, or has not begun.")
        try:
            if packet.kind == "shares":
                return self._sum.share(packet.arrays)
            if packet.kind == "masked":
                return self._masked(packet)
            self._check_survivors(packet.arrays)
            return self._sum.reveal(packet.arrays)
        except ValueError as error:
            raise _Refusal(str(error)) from error

    def _check_plan(self, plan: Any) -> None:
        """Refuse sums over fewer owners than the owner counts on."""
        if plan.n_members != self._now.n_members:
            raise _Refusal("the sum is over other members than those of the session.")
        if self._release is None:
            if not plan.all_or_nothing:
                raise _Refusal("without a release, a sum must be over all members.")
        elif plan.threshold < (self._release.n_honest or 1):
            raise _Refusal("the sum may be over fewer owners than must be honest.")

    def _masked(self, packet: Packet) -> dict[str, np.ndarray]:
        delivered = {
            name[len("delivered ") :]: array
            for name, array in packet.arrays.items()
            if name.startswith("delivered ")
        }
        asked = {n: a for n, a in packet.arrays.items() if not n.startswith("delivered ")}
        step = Packet("step", round=packet.round, fields=packet.fields, arrays=asked)
        vector = self._vector_for(step)
        words = Coding(packet.fields["step"], self._now.n_members).encode(vector)
        return self._sum.mask(words, delivered)

    def _check_survivors(self, arrays: dict[str, np.ndarray]) -> None:
        """Refuse to unmask a sum of the round's vectors over a second set of owners."""
        survivors = tuple(sorted(arrays["survivors"].tolist()))
        if self._now.survivors and survivors != self._now.survivors:
            raise _Refusal("the owner helped to unmask this round's sum over other members.")
        self._now.survivors = survivors

    # ---------------------------------------------------------------------------------- state

    def state(self) -> bytes:
        """Return what the owner must remember where its process ends between messages.

        It is as private as the rows, and stays with the owner.

        Returns
        -------
        bytes
            For `restore`.
        """
        now = self._now
        fields = {
            name: getattr(now, name)
            for name in ("session", "member", "n_members", "round", "task", "attempt", "request")
        }
        fields["survivors"] = list(now.survivors)
        fields |= {"past": self._past, "plan": self._plan}
        arrays = {"vector": now.vector, "reply": np.frombuffer(now.reply, np.uint8)}
        if self._release is None:
            arrays |= {f"steps {name}": array for name, array in self._open.state().items()}
        if self._sum is not None:
            arrays |= {f"sum {name}": array for name, array in self._sum.state().items()}
        return pack(Packet("state", fields=fields, arrays=arrays))

    def restore(self, state: bytes) -> None:
        """Go on from a state of the same owner.

        Parameters
        ----------
        state : bytes
            From `state`.

        Raises
        ------
        ValueError
            If it is no such state.
        """
        packet = unpack(state)
        if packet.kind != "state":
            raise WireError("these bytes are no state of an owner.")
        fields, arrays = dict(packet.fields), packet.arrays
        fields["survivors"] = tuple(fields["survivors"])
        self._past, self._plan = fields.pop("past"), fields.pop("plan")
        self._now = _Progress(**fields, vector=arrays["vector"], reply=arrays["reply"].tobytes())
        if self._release is None:
            self._open.restore(_beginning_with("steps ", arrays))
        secrets = _beginning_with("sum ", arrays)
        self._sum = None
        if secrets:
            from skdpot.federation._secure_sum import SecureSumClient

            now = self._now
            plan = plan_of(self._plan, now.session, self._plan["round"], now.attempt)
            self._sum = SecureSumClient.from_state(plan, now.member, secrets)


def _beginning_with(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checked_points(points: Any) -> np.ndarray:
    points = np.array(points, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape or not np.isfinite(points).all():
        raise ValueError(
            "points must be a two-dimensional array of finite numbers, with a row at least."
        )
    return points
