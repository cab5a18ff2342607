"""The session of a coordinator: greetings, rounds and answers, as a machine with states."""

from collections import Counter
from collections.abc import Generator
from typing import Any

import numpy as np

from skdpot.transport.barycenter import Step, solve

from .._legs import FederationError, Leg
from .._secure_sum import FaultyOwnerError, SecureSumError
from .._session_names import new_session
from .._wire import Packet
from ._coordinator_settings import BarycenterSettings
from ._greetings import check_groups, check_width, common_width, read_welcome
from ._round_sums import MedianRound, OutOfRange, PlainRound, SecureRound, at_fault

# Legs in which owners open the shares of others, and may accuse those who dealt wrong ones.
_OPENING = ("check", "masked")
_AGAIN = (
    "Correct this and run the same coordinator again to continue. Or create one that can drop "
    "owners (on_missing='drop')."
)


class CoordinatorSession:
    """The part of a coordinator that decides about the next question.

    A *leg* sends one message to every owner and waits for the answers. The first leg greets the
    owners, and the last one tells them the result. A round between them has one leg, or several if
    its sum is secure.
    """

    owners: tuple[str, ...]
    dropped: tuple[str, ...]
    rejected: Counter
    _settings: BarycenterSettings
    _leg: Leg | None
    _step: Step | None
    _rounds: Generator[Step, Any, Any] | None
    # Sums of the rounds, and the owners whose vectors they contain.
    _sums: list[tuple[np.ndarray, tuple[str, ...]]]
    # Number of rows that each owner of a release declared.
    _rows: dict[str, int]

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
    def _n_records(self) -> int:
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
                self._n_records, len(self._asked)
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

    # -------------------------------------------------------------------------------------- rounds

    def _attempt(self, step: Step) -> None:
        """Begin a round, or repeat it with new masks."""
        task, strict = self._settings.task_of(step, self._n_records, len(self._asked))
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
                accusable = self._asked if later[0] in _OPENING else ()
                self._leg = Leg(later[0], self._round.messages(later[0]), accusable)
                return
            total, n_contributors = self._round.total()
        except OutOfRange as error:
            self.rejected["out of range"] += 1
            raise self._too_few(
                f"an owner sent an impossible answer: of the sum, {error}. Masks hide which owner."
            ) from error
        except SecureSumError as error:
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
            # Impossible numbers: an owner's answer was wrong.
            self._sums.pop()
            self._replay()
            raise FederationError(
                f"the sum of this round is impossible: an owner sent a wrong answer. {_AGAIN}", {}
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
            fields |= {"n_records": self._n_records, "n_parts": len(self._asked)}
        letter = self._letter("finish", "", fields, arrays)
        self._leg = Leg("finish", dict.fromkeys(self.owners, letter))

    # ------------------------------------------------------------------------------------- answers

    def _wrong(self, name: str, packet: Packet) -> tuple[str, str] | None:
        """Accept the content of an answer, or return the cause of its refusal, and a reason."""
        assert self._leg is not None
        leg = self._leg.kind
        try:
            if leg == "hello":
                of_release = self._settings.release is not None
                most = self._settings.max_rows(name)
                self._said[name] = read_welcome(packet.fields, of_release, most)
            elif leg != "finish":
                self._round.accept(leg, name, packet)
        except OutOfRange as error:
            return "out of range", f"its answer cannot be: {error}"
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, FaultyOwnerError):
                return "malformed", str(error)
            return "malformed", "its answer does not fit the question"
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
