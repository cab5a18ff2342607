"""An owner of rows, which answers a coordinator with one vector per round."""

import contextlib
import secrets
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from skdpot.privacy.charging import ReleasePlan
from skdpot.privacy.events import DpEvent
from skdpot.privacy.quotes import without_quotes
from skdpot.privacy.random import make_source
from skdpot.transport.barycenter import PointGroup

from .._keys import SigningKey, checked_publics
from .._legs import digest_of_bytes
from .._secure_aggregation import SIGNED_LEGS, SecureAggregation, task_digest
from .._state_file import Remembering
from .._wire import Arrays, Packet, Refusal, pack, unpack
from ._group_release import NEIGHBOURING, GroupRelease, described_label
from ._owner_checks import (
    check_hello,
    check_keys,
    check_open_step,
    check_release_step,
    check_round,
    checked_outcome,
    checked_points,
    checked_roster,
)
from ._owner_secure_sums import (
    begin_sum,
    check_attempt,
    check_masked,
    consent,
    masked,
    reveal,
    valid,
)
from ._owner_sessions import Session, Sessions

# Messages that contain something of the answer: they are sent after the charge.
_OF_RELEASE = ("step", "masked", "reveal")
# Kind, fields and arrays of an answer.
_Answer = tuple[str, dict[str, Any], Arrays]


class BarycenterOwner(Remembering):
    """An owner of rows in a federation, which answers with sums of its rows.

    **With `release`,** the owner sends one vector of noisy counts or moments, which is charged to
    its own ledger before; it refuses all other questions. **Without it, the answers are not
    private,** although rows do not leave. From plain messages the coordinator can compute many rows
    exactly. From sums over owners it can compute weighted means of rows, and some rows. The page on
    federations shows how.

    Parameters
    ----------
    name : str
        Name of the owner, as the coordinator knows it.
    points : array-like of shape (n_rows, n_features)
        The owner's rows: finite numbers. Private; with a release, their number is public.
    group : hashable or array-like of shape (n_rows,)
        The group of all rows; with a release, optionally the group of every row. Only a release
        allows a group at several owners: the other methods need a maximum over all rows of a
        group, which is not a sum over owners.
    release : GroupRelease, default=None
        The release that the owner agrees to. If it has a layout, `points` are rows in its unit
        coordinates, and `group` is the position of every row's group in the release, -1 for none.
    masses : array-like of shape (n_rows,), default=None
        Masses of the rows, with sum 1; not with a release. None means equal masses.
    secure : bool or SecureAggregation, default=False
        Whether the owner requires secure aggregation. With shared noise it always does. True
        requires keys shared with all others. A `SecureAggregation` sets the smallest number of
        owners needed to unmask a sum, and the smallest number of others with which keys are
        shared.
    ledger : PrivacyLedger or diffprivlib.BudgetAccountant, default=None
        Is charged for the release in every session of a coordinator. Without a ledger the owner
        releases once, in one session, and never again.
    state : str or Path, default=None
        A file in which the owner keeps its answers. It is as sensitive as the rows; several owners
        may share it. It is created if it does not exist. With None the owner keeps answers only
        while the process lives: after a crash, a release that was charged and lost is charged
        again.
    random_state : None, int or RandomState, default=None
        Source of the noise of a release. None is the cryptographic source. A seeded release can be
        reproduced and is not private.
    key : SigningKey, default=None
        Key with which the owner signs its answers. The coordinator and other owners know its
        public part, and accept only answers signed with it.
    owners : mapping of str to str, default=None
        Public keys of the other owners, by name, from a source that the owner trusts. The owner
        takes part only with these owners. Required for shared noise: otherwise a coordinator could
        invent owners, and remove their parts of the noise.
    coordinator_key : str, default=None
        Public key of the coordinator: messages that are not signed with it are refused.

    Attributes
    ----------
    name : str
        As given.
    n_answered : int
        Number of rounds answered in the present session.
    outcome : dict
        Final message of the coordinator: ``"support"``, ``"objective"``. After a release also the
        ``"total"`` of all parts, from which every owner can repeat the coordinator's computation;
        ``"rows"`` of owners if it is a median.

    Raises
    ------
    ValueError
        If rows are not finite numbers, lengths or numbers of features differ, parameters do not
        fit together, or the ledger has another relation.
    TypeError
        If the ledger is not a ledger.

    See Also
    --------
    BarycenterCoordinator : Asks the owners.
    run_barycenter : Carries messages within a process.

    Notes
    -----
    An owner handles any message: it answers, or refuses with a reason that contains nothing
    private. It answers one task in every round. If the task is repeated, it repeats the same
    numbers, so noise is drawn and charged once per session. Everything that can be checked is
    checked before the charge. The answer is computed first and written to the state file, then
    charged, then sent. So a process may end at any moment: the next process gives the same answer,
    and the ledger has one record of it.

    Under secure aggregation an owner helps to unmask only one sum per round, over one set of
    owners, and only if all owners were asked the same. So the difference of two sums cannot reveal
    one owner's vector. Without keys this hides the vector only from a coordinator that follows the
    protocol. A coordinator that invents other owners, or gives this owner all the weight, sees the
    vector. If the owner has pinned the keys of all others, the vector is hidden from any
    coordinator, if few enough owners collude with it: see :ref:`proof-colluding-owners`.

    A message of a new session, even a late one, does not end other sessions of the owner, up to
    eight.

    References
    ----------
    Federated Calculation of the Free-Support Transportation Barycenter by Single-Loop Dual
    Decomposition, Algorithm 1 and equation (15).

    Examples
    --------
    >>> from skdpot.federation import BarycenterOwner, GroupRelease
    >>> agreed = GroupRelease(1.0, groups=["a", "b"], bounds=([0, 0], [1, 1]), delta=1e-6)
    >>> BarycenterOwner("north", [[0.2, 0.3], [0.9, 0.1]], ["a", "b"], release=agreed)
    BarycenterOwner('north', n_features=2, epsilon=1.0)
    """

    _called = "owner"

    def __init__(
        self,
        name: str,
        points: Any,
        group: Any,
        *,
        release: GroupRelease | None = None,
        masses: Any = None,
        secure: bool | SecureAggregation = False,
        ledger: Any = None,
        state: Any = None,
        random_state: Any = None,
        key: SigningKey | None = None,
        owners: Mapping[str, str] | None = None,
        coordinator_key: str | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be the text that the coordinator uses, got {name!r}.")
        points = checked_points(points)
        if group is None:
            raise ValueError("group must be the label of the rows' group, or of every row's.")
        self._open = None
        if release is not None:
            if masses is not None:
                raise ValueError("a release counts rows: it takes no masses.")
            self._records = release.to_units(points), release.codes_of(group, len(points))
        else:
            self._open = without_quotes(
                lambda: PointGroup(points, masses),
                "masses must be non-negative numbers with sum 1, one for each row.",
            )
            if not isinstance(group, Hashable):
                raise ValueError(
                    "rows of several groups, or of a group that other owners have rows of, need "
                    "release=GroupRelease(...), on which all owners agree. Without it, an owner "
                    "has all rows of one group."
                )
        self.name, self._group = name, group
        self._release, self._ledger = release, ledger
        self._n_rows, self._n_features = points.shape
        self._insisted: SecureAggregation | None = None
        if secure or (release is not None and release.noise == "shared"):
            told = secure if isinstance(secure, SecureAggregation) else SecureAggregation()
            self._insisted = told
        self._pinned = None if owners is None else checked_publics(owners)
        check_keys(name, key, self._pinned, release)
        self._source = make_source(random_state)
        self._plan_of(None if release is None else release.promise).check(ledger)
        self.outcome: dict[str, Any] = {}
        self._sessions = Sessions()
        # The session that the state of the algorithm belongs to.
        self._at_work = ""
        super().__init__(state, key, coordinator_key)

    def __repr__(self) -> str:
        epsilon = None if self._release is None else self._release.epsilon
        return (
            f"{type(self).__name__}({self.name!r}, n_features={self._n_features}, "
            f"epsilon={epsilon})"
        )

    @property
    def address(self) -> str:
        """Return the owner's name, for carriers."""
        return self.name

    @property
    def n_answered(self) -> int:
        """Return the number of answered rounds of the present session."""
        last = self._sessions.last
        return 0 if last is None or last.is_owed else last.round + 1

    # ------------------------------------------------------------------------------ messages

    def _answer(self, packet: Packet, data: bytes) -> bytes:
        reply = self._reply(packet, data)
        session = self._sessions.peek(packet.session)
        if session is None or not session.is_owed or packet.kind not in _OF_RELEASE:
            self._keep()
            return reply
        if self._ledger is None:
            self._check_is_first()
            self._has_released = session.charged = True
            self._keep()
            return reply
        # If the process ends here, the answer is not lost, and its token prevents a second
        # charge.
        self._keep()
        self._charge(session)
        return reply

    def _reply(self, packet: Packet, data: bytes) -> bytes:
        """Return the reply to a message, which is kept for a leg of a secure sum."""
        if packet.kind == "hello":
            return self._packed(packet, self._welcome(packet))
        session = self._sessions.find(packet.session)
        if session is None:
            over = self._sessions.is_past(packet.session)
            raise Refusal(
                "this session is over: begin another."
                if over
                else "this is no session that the owner takes part in."
            )
        if packet.kind == "finish":
            if session.round < 0:
                raise Refusal("nothing was asked in this session.")
            self.outcome = checked_outcome(packet, self._release, self._n_features)
            return self._packed(packet, ("done", {}, {}))
        if packet.kind not in ("step", *SIGNED_LEGS):
            raise Refusal("there is no such message.")
        if packet.kind not in session.legs:
            raise Refusal("either all sums of a session are secure, or none.")
        if packet.kind == "step":
            vector = self._vector_for(packet, session)
            return self._packed(packet, ("answer", {}, {"vector": vector}))
        digest, (asked, reply) = digest_of_bytes(data), session.replies.get(packet.kind, ("", b""))
        if asked == digest and packet.attempt == session.attempts[-1]:
            return reply
        reply = self._packed(packet, self._secure_answer(packet, session))
        session.replies[packet.kind] = digest, reply
        return reply

    def _packed(self, asked: Packet, answer: _Answer) -> bytes:
        kind, fields, arrays = answer
        return pack(asked.reply(kind, self.name, fields, arrays), self._key)

    def _welcome(self, packet: Packet) -> _Answer:
        """Join a session, if the owner agreed to it."""
        # A misdirected greeting would give this owner the place of another one.
        if packet.fields.get("name") != self.name:
            raise Refusal("the greeting is for an owner of another name.")
        check_hello(packet, self._release, self._insisted is not None, self._n_rows)
        told = {name: packet.fields[name] for name in ("owner", "n_owners", "secure")}
        told["roster"] = checked_roster(packet, self.name, self._key, self._pinned)
        session = self._sessions.find(packet.session)
        if session is None:
            if self._sessions.is_past(packet.session):
                raise Refusal("this session is over: begin another.")
            self._check_can_pay(told["n_owners"])
            self._sessions.enter(Session(packet.session, **told))
        elif any(getattr(session, name) != value for name, value in told.items()):
            raise Refusal("the owner got another greeting for this session before.")
        known: dict[str, Any] = {"n_features": self._n_features}
        if self._release is None:
            known["group"] = digest_of_bytes(described_label(self._group).encode())
        else:
            known["n_rows"] = self._n_rows
        return "welcome", known, {}

    # --------------------------------------------------------------------------------- rounds

    def _vector_for(self, packet: Packet, session: Session) -> np.ndarray:
        """Return the answer to a step, which is computed once."""
        step, arrays = packet.fields.get("step"), packet.arrays
        if not isinstance(step, dict):
            raise Refusal("nothing is asked.")
        task = task_digest(step, arrays)
        check_round(packet, session, task)
        if packet.round == session.round:
            return session.vector
        if self._release is not None:
            check_release_step(step, packet, self._n_rows, session.n_owners)
            vector = self._released(self._release, step, arrays, session)
        else:
            check_open_step(step, arrays, self._n_rows, session.secure)
            vector = self._calculated(step, arrays, session)
        session.round, session.task, session.vector = packet.round, task, vector
        session.survivors = ()
        return vector

    def _calculated(self, step: dict[str, Any], arrays: Arrays, session: Session) -> np.ndarray:
        """Return the answer to a step of an algorithm; after an error its state is unchanged."""
        assert self._open is not None
        before = self._steps_of(session)
        if self._at_work != session.name:
            left = self._sessions.peek(self._at_work)
            if left is not None:
                left.steps = self._open.put_away()
            self._open.restore(before)
            self._at_work, session.steps = session.name, {}
        try:
            vector = self._open.answer(step["kind"], arrays, session.owner)
            if vector.shape != (step["size"],) or not np.isfinite(vector).all():
                raise Refusal("the answer has another length, or numbers beyond doubles.")
        except BaseException:
            self._open.restore(before)
            raise
        return vector

    def _steps_of(self, session: Session) -> Arrays:
        """Return the state of the algorithm in a session."""
        if self._open is None or session.name != self._at_work:
            return session.steps
        return self._open.put_away()

    def _check_asked(self, asked: Packet, session: Session) -> None:
        """Refuse a step that could not be answered, before any owner is charged."""
        step = asked.fields["step"]
        check_round(asked, session, task_digest(step, asked.arrays))
        if self._release is None or asked.round == session.round:
            return
        check_release_step(step, asked, self._n_rows, session.n_owners)
        self._check_price(self._plan_for(self._release, step, asked.arrays).event)

    def _plan_for(self, release: GroupRelease, step: dict[str, Any], arrays: Arrays) -> Any:
        """Return the plan of the requested release, or refuse it."""
        if arrays:
            raise Refusal("a release is of rows alone.")
        try:
            plan = release.plan(step["n_records"], step["n_parts"])
        except ValueError as error:
            # The error depends only on public values.
            raise Refusal(f"the release cannot be made: {error}") from error
        if step["size"] != int(np.prod(plan.released_shape)):
            raise Refusal("the release has another length.")
        return plan

    def _released(
        self, release: GroupRelease, step: dict[str, Any], arrays: Arrays, session: Session
    ) -> np.ndarray:
        """Return the owner's part of the release; it is charged before it is sent."""
        plan = self._plan_for(release, step, arrays)
        vector = release.part(plan, *self._records, self._source)
        # Every draw has its own token, so noise that is forgotten and drawn again is charged again.
        session.token = f"federation {secrets.token_hex(16)}"
        session.sizes, session.charged = [step["n_records"], step["n_parts"]], False
        return vector

    def _charge(self, session: Session) -> None:
        """Charge the release of a session, unless it was charged before; or refuse it."""
        assert self._release is not None
        plan = self._release.plan(*session.sizes)
        about = f"{plan.kind}, session {session.name[:8]}"
        charge = self._plan_of(plan.event, plan, about)
        self._asking_the_ledger(lambda: charge.charge_to(self._ledger, token=session.token))
        session.charged = True

    def _check_can_pay(self, n_owners: int) -> None:
        """Refuse a session whose release could not be charged, before any owner is charged."""
        if self._release is None:
            return
        with contextlib.suppress(ValueError):
            # The price does not depend on the number of rows.
            self._check_price(self._release.plan(self._n_rows, n_owners).event)

    def _check_price(self, event: DpEvent | None) -> None:
        """Refuse a release that could not be charged."""
        if self._ledger is None:
            self._check_is_first()
        else:
            self._asking_the_ledger(lambda: self._plan_of(event).price(self._ledger))

    def _plan_of(
        self, event: DpEvent | None, release: Any = None, about: str = "no release"
    ) -> ReleasePlan:
        """Return the plan of a charge, from public values only."""
        label = f"{type(self).__name__}, {about}"
        return ReleasePlan(release, event, self._source, label, None, neighbouring=NEIGHBOURING)

    # ---------------------------------------------------------------------- secure aggregation

    def _secure_answer(self, packet: Packet, session: Session) -> _Answer:
        """Return the answer in a leg of secure aggregation."""
        if packet.kind == "keys":
            n_known = len({self.name, *(name for name, _ in session.roster), *(self._pinned or ())})
            return begin_sum(
                packet, session, self._release, self._insisted, self._key,
                n_known if session.roster else 0,
            )  # fmt: skip
        check_attempt(packet, session)
        if packet.kind == "check":
            asked, _ = check_masked(packet, session)
            self._check_asked(asked, session)
            return "check", {}, {}
        if packet.kind == "masked":
            asked, opened = check_masked(packet, session)
            vector = self._vector_for(asked, session)
            return "masked", {}, masked(vector, asked.fields["step"], opened, session)
        if packet.kind == "shares":
            return "shares", {}, valid(session.sum.share, packet.arrays)
        if packet.kind == "consistency":
            return "consistency", {}, consent(packet, session)
        return "reveal", {}, reveal(packet, session)

    # ---------------------------------------------------------------------------------- state

    def _state(self) -> bytes:
        last = self._sessions.peek(self._at_work)
        of_work = {} if last is None else {self._at_work: self._steps_of(last)}
        fields, arrays = self._sessions.as_packet(of_work)
        fields["has_released"] = self._has_released
        return pack(Packet("state", sender=self.name, fields=fields, arrays=arrays))

    def _load(self, state: bytes) -> None:
        packet = unpack(state)
        if packet.kind != "state" or packet.sender != self.name:
            raise ValueError("these bytes are no state of this owner.")
        try:
            sessions = Sessions.from_packet(packet.fields, packet.arrays, self._key)
            has_released = bool(packet.fields["has_released"])
        except (KeyError, TypeError):
            raise ValueError("these bytes are no state of this owner.") from None
        self._sessions, self._at_work = sessions, ""
        self._has_released = has_released or self._has_released

    def _forget(self) -> None:
        self._sessions, self._at_work = Sessions(), ""
