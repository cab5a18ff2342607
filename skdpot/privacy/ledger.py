"""The ledger: one durable record of all releases and their cost."""

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from skdpot.privacy._anchor import Anchor, Vouched
from skdpot.privacy._charges_of_call import note_charge
from skdpot.privacy._history import FORMAT, History, charge_body, content_of
from skdpot.privacy._ledger_checks import (
    RELATIONS,
    UNITS,
    check_anchor,
    check_parts,
    check_settings,
    check_text,
    check_token,
    format_pair,
    format_settings,
)
from skdpot.privacy._ledger_reader import LedgerReader, Receipt
from skdpot.privacy._scratch import keep_scratch_file
from skdpot.privacy._store import (
    Chain,
    LedgerError,
    LedgerTamperedError,
    Link,
    Pen,
    Record,
)
from skdpot.privacy.accounting import convert_event
from skdpot.privacy.checks import check_choice, check_flag
from skdpot.privacy.events import (
    DpEvent,
    PlannedDpEvent,
    event_from_json,
    event_to_json,
    plain_event,
)
from skdpot.privacy.filters import Pair, sold_pair


class BudgetExceededError(ValueError):
    """The budget does not allow a charge. Nothing was recorded, and nothing is released.

    Parameters
    ----------
    message : str
        All of it in words.
    asked, spent, left : tuple of two float
        Pairs (epsilon, delta): of the charge, of the releases before it, of what they left.
    """

    def __init__(self, message: str, asked: Any, spent: Any, left: Any) -> None:
        super().__init__(message, asked, spent, left)
        self.asked, self.spent, self.left = asked, spent, left

    def __str__(self) -> str:
        return str(self.args[0])


class PrivacyLedger(LedgerReader):
    """A durable record of releases, which admits further ones only within a budget.

    One ledger serves all estimators: give it to each as ``ledger=``. What is released is charged
    *before* it is released, in one transaction with the check of the budget; the record is on
    disk when `charge` returns. Clones and deep copies of a ledger are the ledger itself, and a
    pickle is a reference to its file, so that worker processes spend the same budget.

    Units (records, users, edges, nodes) are never added up: each has the whole budget.

    Parameters
    ----------
    epsilon : float, default=inf
        The budget of every unit, above 0. Infinity records without ever refusing.
    delta : float, default=0.0
        The delta of the budget, at least 0 and below 1.
    path : str or Path, default=None
        File of the ledger. If it exists, it must hold a ledger with this budget, which goes on.
        None makes a temporary file that is there as long as a process which uses it lives.
    neighbouring : {"replace_one", "add_remove"}, default="replace_one"
        The relation between data sets that all releases are priced under: one unit is replaced by
        any other, or one is added or removed.
    allow_seeded : bool, default=False
        Whether releases with a `random_state` are recorded, which are reproducible and therefore
        not private. Otherwise they are refused.
    slack : float, default=None
        Part of `delta` that pays for composing tightly (Renyi and Gaussian differential privacy);
        the rest pays for releases that are private only up to a delta of their own. With 0, pairs
        (epsilon, delta) are added up. None lets the first charge decide, before anything is
        released: 0 if that release names its own (epsilon, delta), and all of `delta` if, like
        Gaussian noise without a plan, it does not.
    key : bytes, default=None
        Secret with which records are authenticated. Without a key, the chain of digests shows
        damage, edits and (with a receipt) missing records, but not a file that was rewritten from
        the start. The key is part of pickles, and never of the file.
    anchor : str, Path or callable, default=None
        Where the newest record is kept besides the file: another file, on another disk or share
        that is not restored together with the ledger. With it, a ledger that was deleted, cut off,
        or replaced by an old or another copy is recognised, also by new processes; and nothing is
        charged without it. A callable ``anchor(new=None, old=None)`` returns the text that is
        stored elsewhere, or None. With arguments it first stores the text `new`, if what is stored
        is `old`. Worker processes get a pickle of it.

    Attributes
    ----------
    identity : str
        Random name of the ledger.
    path : Path
        Its file.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the file's ledger has another budget or relation.
    LedgerError
        If the file cannot be used as a ledger: it is something else, read-only, damaged, or on a
        network file system.
    LedgerTamperedError
        If the records do not follow from each other.

    Notes
    -----
    The rule that admits charges is valid under fully adaptive composition: each charge may depend
    on all earlier releases (:ref:`proof-filters`). Numbers stand for what they are written as, and
    are added up exactly: ten times 0.1 are within a budget of 1, and eleven times ``1 / 11``, which
    is 0.09090909090909091, are not. What is reported as spent is rounded up, and what is left is
    rounded down.

    Nothing private is recorded: events, labels and the names of parts are public.

    Examples
    --------
    >>> from skdpot.privacy import GaussianDpEvent, PlannedDpEvent, PrivacyLedger, PureDpEvent
    >>> ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    >>> receipt = ledger.charge(PureDpEvent(0.5), unit="record", label="median income")
    >>> plan = PlannedDpEvent(GaussianDpEvent(5.0), delta=1e-6)
    >>> receipt = ledger.charge(plan, unit="record", label="mean age")
    >>> epsilon, delta = ledger.spent()
    >>> round(epsilon, 3), delta
    (1.334, 1e-06)
    >>> ledger.charge(PureDpEvent(1.0), unit="record", label="one too many")
    Traceback (most recent call last):
    skdpot.privacy.ledger.BudgetExceededError: the budget does not allow ...
    >>> [entry.label for entry in ledger.entries()]
    ['median income', 'mean age']
    >>> ledger.verify(receipt)
    2
    """

    def __init__(
        self,
        epsilon: float = math.inf,
        delta: float = 0.0,
        *,
        path: str | os.PathLike | None = None,
        neighbouring: str = "replace_one",
        allow_seeded: bool = False,
        slack: float | None = None,
        key: bytes | None = None,
        anchor: Any = None,
    ) -> None:
        settings = check_settings(epsilon, delta, neighbouring, allow_seeded, slack)
        self._place(None if path is None else Path(path).absolute(), key, anchor)
        identity = os.urandom(16).hex()
        # Another process may create the file at the same time, and then the anchor.
        vouched = self._chain.vouched()
        if path is None or not self.path.exists():
            self._check_nothing_is_vouched(vouched)
            self._chain.create(
                {"kind": "ledger", "format": FORMAT, "identity": identity, **settings}
            )
        self._read_all()
        found = {name: self._settings[name] for name in settings}
        if found != settings:
            raise ValueError(
                f"the ledger at {self.path} was created with {format_settings(found)}, not with "
                f"{format_settings(settings)}: a path has one budget. Open it as it is with "
                "PrivacyLedger.open(path), or give another path."
            )
        self._be_anchored()

    @classmethod
    def open(
        cls, path: str | os.PathLike, *, key: bytes | None = None, anchor: Any = None
    ) -> "PrivacyLedger":
        """Open the ledger of a file, whatever its budget.

        Parameters
        ----------
        path : str or Path
            File of a ledger.
        key : bytes, default=None
            The key that it was created with, if any.
        anchor : str, Path or callable, default=None
            The anchor of the ledger; one that is empty vouches for the ledger from now on. A ledger
            that has an anchor can be read without it, and not charged.

        Returns
        -------
        PrivacyLedger
            The ledger, checked as `verify` does.
        """
        ledger = cls.__new__(cls)
        ledger._place(Path(path).absolute(), key, anchor)
        if not ledger.path.exists():
            ledger._check_nothing_is_vouched(ledger._chain.vouched())
        ledger._read_all()
        ledger._be_anchored()
        return ledger

    def anchor_again(self, anchor: Any, *, reason: str) -> "PrivacyLedger":
        """Declare that this file is the right one, and let an anchor vouch for it from now on.

        Needed after the file was restored from a copy that is older than the anchor, and where the
        anchor was lost. What was released and is not in the file is still spent: charge what you
        know of it by hand. The declaration is recorded, and part of every report.

        Parameters
        ----------
        anchor : str, Path or callable
            An anchor of this ledger, or an empty one.
        reason : str
            Why, in words; public.

        Returns
        -------
        PrivacyLedger
            This ledger with that anchor.

        Raises
        ------
        ValueError
            If there is no reason, or the anchor is none.
        LedgerError
            If the anchor is that of another ledger, or cannot be used.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from skdpot.privacy import PrivacyLedger
        >>> folder = Path(tempfile.mkdtemp())
        >>> ledger = PrivacyLedger(2.0, path=folder / "budget", anchor=folder / "anchor")
        >>> (folder / "anchor").unlink()  # lost
        >>> ledger = PrivacyLedger.open(folder / "budget")
        >>> ledger = ledger.anchor_again(folder / "anchor", reason="the disk of the anchor broke")
        >>> ledger.verify()
        0
        """
        self._check_open()
        check_text("reason", reason)
        ledger = self._seen_as(self._part, self._labels)
        checked = check_anchor(anchor, None if self._temporary else self.path)
        if checked is None:
            raise ValueError("anchor must be a path or a callable, got None.")
        ledger._chain = Chain(self.path, self._chain.key, checked)
        with ledger._chain.writing(self._history.link, is_trusted=True) as pen:
            self._learn(pen.records)
            if pen.vouched is not None and pen.vouched.ledger != self.identity:
                raise LedgerError(
                    f"{checked} vouches for ledger {pen.vouched.ledger}, and this is "
                    f"{self.identity}: give another place. Nothing was changed."
                )
            record = pen.append(
                {
                    "kind": "anchor",
                    "time": _now(),
                    "reason": reason,
                    "knew": pen.vouched.number if pen.vouched and pen.is_missing else None,
                }
            )
        self._learn([record])
        return ledger

    def _be_anchored(self) -> None:
        """Let an empty anchor vouch for this ledger, if it has had none before."""
        if self._chain.anchor is None or self._history.is_anchored and self._chain.vouched():
            return
        with self._chain.writing(self._history.link) as pen:
            self._learn(pen.records)
            appended = []
            if not self._history.is_anchored:
                if pen.vouched is None:
                    pen.vouch()
                body = {"kind": "anchor", "time": _now(), "reason": None, "knew": None}
                appended.append(pen.append(body))
            elif pen.vouched is None:
                raise self._error_of_a_lost_anchor()
        self._learn(appended)

    def _check_nothing_is_vouched(self, vouched: Vouched | None) -> None:
        if vouched is not None:
            raise LedgerTamperedError(
                f"there is no ledger at {self.path}, and its anchor vouches for ledger "
                f"{vouched.ledger} with {vouched.number + 1} records: the file was deleted or "
                "moved. Restore it. A new ledger needs another anchor."
            )

    def _check_anchor(self, vouched: Vouched | None) -> None:
        """Raise unless the anchor vouches for the ledger, if it has one."""
        if not self._history.is_anchored or vouched is not None:
            return
        if self._chain.anchor is not None:
            raise self._error_of_a_lost_anchor()
        raise LedgerError(
            f"the ledger at {self.path} has an anchor, without which nothing is charged: pass "
            "anchor=... to PrivacyLedger or PrivacyLedger.open."
        )

    def _error_of_a_lost_anchor(self) -> LedgerError:
        return LedgerError(
            f"{self._chain.anchor} is empty, and the ledger at {self.path} has had one that was "
            "not: it was lost, or this is another place. Nothing was charged. If it was lost, and "
            "this file is the newest there is, see PrivacyLedger.anchor_again."
        )

    def charge(
        self,
        event: DpEvent,
        *,
        unit: str,
        label: str,
        neighbouring: str | None = None,
        convert: bool = False,
        seeded: bool = False,
        token: str | None = None,
    ) -> Receipt:
        """Record a release that is about to happen, if the budget allows it.

        Parameters
        ----------
        event : DpEvent
            What will be released: an event of ``skdpot.privacy``.
        unit : {"record", "user", "edge", "node"}
            Whom the event protects.
        label : str
            What it is, in words; public.
        neighbouring : {"replace_one", "add_remove"}, default=None
            The relation under which the event is described; None is the ledger's.
        convert : bool, default=False
            Whether an event that is described under "add_remove" may be charged to a ledger for
            "replace_one" as what it is there (sensitivities double). Otherwise another relation
            than the ledger's is refused.
        seeded : bool, default=False
            Whether the release can be reproduced.
        token : str, default=None
            A name of this release, public, at most 200 characters. The whole ledger knows it: a
            second charge with it, by any process and at any time, charges nothing, and returns the
            receipt of the first. A program that repeats a charge after a crash must then release
            the very same output; a new output needs a new token.

        Returns
        -------
        Receipt
            Proof of the charge, which is on disk.

        Raises
        ------
        BudgetExceededError
            If the budget does not allow it; says what was asked, spent and left.
        TypeError, ValueError
            If the event, unit, label, relation or token cannot be charged, the token is that of
            another event, unit or part, or the release is seeded.
        LedgerError
            If the file cannot be written to, or was tampered with.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(2.0)
        >>> for attempt in range(2):
        ...     receipt = ledger.charge(
        ...         PureDpEvent(0.5), unit="record", label="a mean", token="mean of May"
        ...     )
        >>> ledger.spent()
        (0.5, 0.0)
        """
        self._check_open()
        check_token(token)
        event = self._check_charge(event, unit, label, neighbouring, convert, seeded)
        claim = _Claim(event, event_to_json(event), self._part, token)
        (receipt,) = self._charge([claim], unit, label, bool(seeded))
        return receipt

    def charge_parts(
        self,
        name: str,
        events: Mapping[str, DpEvent],
        *,
        unit: str,
        label: str,
        neighbouring: str | None = None,
        convert: bool = False,
        seeded: bool = False,
        tokens: Mapping[str, str] | None = None,
    ) -> dict[str, Receipt]:
        """Record releases from many parts of a partition at once: all of them, or none.

        It does what `charge` does of every part's ledger, in one transaction.

        Parameters
        ----------
        name : str
            Of a declared partition.
        events : mapping of str to DpEvent
            For each part, what will be released from it.
        unit : {"record", "user", "edge", "node"}
            Whom all these events protect.
        label : str
            What they are, in words; public.
        neighbouring : {"replace_one", "add_remove"}, default=None
            The relation under which they are described, as in `charge`.
        convert : bool, default=False
            Whether another relation may be converted, as in `charge`.
        seeded : bool, default=False
            Whether the releases can be reproduced.
        tokens : mapping of str to str, default=None
            For each part the name of its release, as in `charge`. Parts whose token is recorded
            are not charged again.

        Returns
        -------
        dict of str to Receipt
            For each part, proof of its charge.

        Raises
        ------
        BudgetExceededError, TypeError, ValueError, LedgerError
            As in `charge`. Nothing was charged to any part then. ValueError also if there is no
            such partition or part, or not one token for each part.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(2.0)
        >>> months = ledger.partition("month", ["May", "June"], fixed_key=True)
        >>> receipts = ledger.charge_parts(
        ...     "month", dict.fromkeys(months, PureDpEvent(0.5)), unit="user", label="a sample"
        ... )
        >>> ledger.spent()
        (0.5, 0.0)
        """
        self._check_open()
        self._check_is_whole()
        self._check_tokens(events, tokens)
        # Most parts have the same event, which is checked once.
        texts: dict[int, tuple[DpEvent, str]] = {}
        for event in events.values():
            if id(event) not in texts:
                checked = self._check_charge(event, unit, label, neighbouring, convert, seeded)
                texts[id(event)] = checked, event_to_json(checked)
        known = self._refresh()
        for part in events:
            if not known.has_part(name, part):
                raise ValueError(f"no part {part!r} was declared of a partition {name!r}.")
        claims = [
            _Claim(*texts[id(event)], (name, part), tokens[part] if tokens else None)
            for part, event in events.items()
        ]
        return dict(zip(events, self._charge(claims, unit, label, bool(seeded)), strict=True))

    def _check_tokens(self, events: Mapping[str, DpEvent], tokens: Any) -> None:
        if not events:
            raise ValueError("events must have at least one part.")
        if tokens is None:
            return
        if set(tokens) != set(events) or len(set(tokens.values())) < len(tokens):
            raise ValueError("tokens must have one token for each part of events, all different.")
        for token in tokens.values():
            check_token(token)

    def _charge(self, claims: "list[_Claim]", unit: str, label: str, seeded: bool) -> list[Receipt]:
        """Record all claims in one transaction, except those that are recorded already."""
        label = ": ".join((*self._labels, label))
        events = {claim.text: claim.event for claim in claims}
        sold = {text: sold_pair(event, self.neighbouring) for text, event in events.items()}
        all_are_sold = None not in sold.values()
        for attempt in itertools.count():
            known = self._history.link
            pairs = self._pairs_for(events, sold, unit)
            with self._chain.writing(known) as pen:
                self._learn(pen.records)
                self._check_anchor(pen.vouched)
                # A pair that depends on earlier charges is valid if there are no new charges since
                # it was computed. If other writers are quicker twice, it is computed while they
                # wait.
                is_late = self._history.link != known
                if not all_are_sold and is_late and attempt > 1:
                    pairs = self._pairs_for(events, sold, unit)
                if all_are_sold or not is_late or attempt > 1:
                    links, records = self._append(pen, claims, pairs, unit, label, seeded)
                    break
        self._learn(records)
        return [Receipt(self.identity, *link) for link in links]

    def _append(
        self,
        pen: Pen,
        claims: "list[_Claim]",
        pairs: dict[str, Pair | None],
        unit: str,
        label: str,
        seeded: bool,
    ) -> tuple[list[Link], list[Record]]:
        """Append claims if the budget allows it; return the links of all, and the new records.

        What is recorded with the same token is not appended.
        """
        links, records, time = [], [], _now()
        for claim in claims:
            pair = pairs[claim.text]
            body = charge_body(
                time, unit, label, claim.text, pair, seeded, claim.place, claim.token
            )
            link = self._recorded(body)
            if link is None:
                records.append(pen.append(body))
                link = pen.last
            links.append(link)
        if records:
            self._note(records, label, pairs)
            after = self._after(self._history, records)
            if not after.rule.admits(after.combined(unit)):
                dearest = max(claims, key=lambda claim: pairs[claim.text] or (math.inf, 0.0))
                raise self._refusal(dearest.event, pairs[dearest.text], unit, after)
        return links, records

    def _recorded(self, body: dict[str, Any]) -> Link | None:
        """Return the record of the same release, None without one; raise for another release."""
        found = self._history.named(body.get("token"))
        if found is None:
            return None
        link, content = found
        if content != content_of(body):
            raise ValueError(
                f"the token {body['token']!r} is that of record {link.number}, which is another "
                f"release: {_format_content(content)}, and not "
                f"{_format_content(content_of(body))}. Nothing was charged. Give what is released "
                "now another token; or, if it is to be the release of that record, repeat it with "
                "the same settings."
            )
        return link

    def _note(self, records: list[Record], label: str, pairs: dict[str, Pair | None]) -> None:
        """Note charges that are about to be made, for the error of an interrupted call."""
        first, last = records[0].number, records[-1].number
        costs = {
            "those of its event" if each is None else format_pair(each) for each in pairs.values()
        }
        where = f"record {first}" if first == last else f"records {first} to {last}"
        note_charge(
            f"{where}, {label!r}, (epsilon, delta) = {', '.join(sorted(costs))}",
            partial(self._chain.holds, records[-1]),
        )

    def quote(self, event: DpEvent, *, unit: str) -> tuple[float, float]:
        """Return what would be spent after a charge, by the rule that admits charges.

        Nothing is charged.

        Parameters
        ----------
        event : DpEvent
            What would be released, described under the ledger's relation.
        unit : {"record", "user", "edge", "node"}
            Whom the event protects.

        Returns
        -------
        tuple of two float
            (epsilon, delta), as of :meth:`spent`.

        Raises
        ------
        BudgetExceededError
            If the budget does not allow it; says what was asked, spent and left.
        TypeError, ValueError
            If the event or unit cannot be charged.
        LedgerError
            If the ledger has an anchor that was not given, or is lost.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(2.0)
        >>> ledger.quote(PureDpEvent(0.75), unit="record"), ledger.spent()
        ((0.75, 0.0), (0.0, 0.0))
        """
        self._check_open()
        event = self._check_charge(event, unit, "a quote", None, False, False)
        before = self._refresh()
        self._check_anchor(self._chain.vouched())
        pair = sold_pair(event, self.neighbouring) or self._pair_for(event, unit)
        body = charge_body("", unit, "", event_to_json(event), pair, False, self._part)
        after = before.with_charge(body)
        if not after.rule.admits(after.combined(unit)):
            raise self._refusal(event, pair, unit, after)
        return after.rule.spent(after.combined(unit))

    @property
    def hides_the_part(self) -> bool:
        """Whether the part that a unit lies in is itself protected."""
        if self._part == (None, None) or self.neighbouring == "add_remove":
            return False
        return not self._refresh().partition(self._part[0])["fixed_key"]

    def check_seeded(self, seeded: bool) -> None:
        """Raise if a release can be reproduced, and the ledger does not take such ones.

        Parameters
        ----------
        seeded : bool
            Whether the release can be reproduced.

        Raises
        ------
        ValueError
            If it can, and the ledger was created without ``allow_seeded=True``.
        """
        if seeded and not self.allow_seeded:
            raise ValueError(
                "a release with a random_state is not private: anyone who knows the seed can "
                "reproduce it. This ledger refuses it. Leave random_state=None, or, for tests and "
                "teaching, create the ledger with allow_seeded=True."
            )

    def partition(
        self, name: str, parts: Iterable[str], *, fixed_key: bool = False
    ) -> dict[str, "PrivacyLedger"]:
        """Declare that some releases each look at one part of the data only.

        The parts are public, and so is which part a release looks at. A unit lies in one part, so
        a partition costs as much as its most expensive part. Where a replaced unit may move to
        another part, it costs as much as the two most expensive parts together. What is charged to
        a part must hold between neighbours of the *whole* data, also where a unit enters or leaves
        the part. So not even the size of a part may be public.

        Parameters
        ----------
        name : str
            Of the partition; declaring it again returns the same parts.
        parts : iterable of str
            Names of all parts, public and not learned from private data.
        fixed_key : bool, default=False
            Whether the part that a unit lies in is public and stays the same when the unit is
            replaced. It matters under "replace_one" only, where local samplers, for which who takes
            part is public, need it.

        Returns
        -------
        dict of str to PrivacyLedger
            For every part, this ledger with all that is charged to it being a release from that
            part.

        Raises
        ------
        ValueError
            If the name is taken by another partition, or this is itself a part.
        """
        self._check_open()
        check_flag("fixed_key", fixed_key)
        declared: dict[str, Any] = {"parts": check_parts(parts), "fixed_key": bool(fixed_key)}
        check_text("name", name)
        self._check_is_whole()
        self._refresh()
        with self._chain.writing(self._history.link) as pen:
            self._learn(pen.records)
            self._check_anchor(pen.vouched)
            body = {"kind": "partition", "name": name, **declared}
            is_new = self._history.partition(name) is None
            appended = [pen.append(body)] if is_new else []
        self._learn(appended)
        found = self._history.partition(name)
        if found != declared:
            raise ValueError(
                f"there is a partition {name!r} with {format_settings(found)}, which "
                "cannot be changed; use another name."
            )
        return {part: self._seen_as((name, part), self._labels) for part in declared["parts"]}

    def labelled(self, label: str) -> "PrivacyLedger":
        """Return this ledger, with a text in front of the labels of what is charged through it.

        Estimators label what they charge with their own name. By this they can be told which
        release is theirs.

        Parameters
        ----------
        label : str
            A line of text. Public, as all labels.

        Returns
        -------
        PrivacyLedger
            This ledger, whose budget it spends. Labels begin with `label` and a colon.

        Raises
        ------
        ValueError
            If the label is no line of text.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(epsilon=2.0)
        >>> march = ledger.labelled("report of March")
        >>> receipt = march.charge(PureDpEvent(0.5), unit="record", label="median income")
        >>> [entry.label for entry in ledger.entries()]
        ['report of March: median income']
        """
        self._check_open()
        check_text("label", label)
        return self._seen_as(self._part, (*self._labels, label))

    def close(self) -> None:
        """Refuse all further charges through this object; the file can be opened again."""
        self._closed = True

    def __enter__(self) -> "PrivacyLedger":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __sklearn_clone__(self) -> "PrivacyLedger":
        return self

    def __copy__(self) -> "PrivacyLedger":
        return self

    def __deepcopy__(self, memo: dict) -> "PrivacyLedger":
        return self

    def __reduce__(self) -> tuple:
        place = (self.path, self._chain.key, self._settings, self._temporary)
        return _rebuild, (*place, self._part, self._labels, self._closed, self._chain.anchor)

    def __repr__(self) -> str:
        part = "" if self._part == (None, None) else f", part {self._part[1]!r} of {self._part[0]}"
        label = "".join(f", labelled {label!r}" for label in self._labels)
        return f"<PrivacyLedger {self._description()}{part}{label}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerError("this ledger was closed, so nothing is charged and nothing released.")

    def _check_charge(
        self,
        event: DpEvent,
        unit: str,
        label: str,
        neighbouring: str | None,
        convert: bool,
        seeded: bool,
    ) -> DpEvent:
        """Return the event under the ledger's relation; raise if it cannot be charged."""
        event = plain_event(event)
        check_choice("unit", unit, UNITS)
        check_text("label", label)
        self.check_seeded(seeded)
        if neighbouring is None or neighbouring == self.neighbouring:
            return event
        check_choice("neighbouring", neighbouring, RELATIONS)
        if not convert:
            raise ValueError(
                f"the event is described for neighbouring={neighbouring!r}, and the ledger is for "
                f"{self.neighbouring!r}. Describe it for that, or pass convert=True where the "
                "price may be that of the conversion."
            )
        return convert_event(event, neighbouring, self.neighbouring)

    def _check_is_whole(self) -> None:
        if self._part != (None, None):
            raise ValueError("a part cannot be divided again; use the whole ledger.")

    def _pairs_for(
        self, events: dict[str, DpEvent], sold: dict[str, Pair | None], unit: str
    ) -> dict[str, Pair | None]:
        """Return the pairs that events count as, given the pairs that they state."""
        return {text: pair or self._pair_for(events[text], unit) for text, pair in sold.items()}

    def _pair_for(self, event: DpEvent, unit: str) -> Pair | None:
        """Return the pair of an event that states no delta: at half of the remaining delta."""
        rule = self._history.rule_with(None)
        delta = rule.delta_left(self._history.combined(unit, rule)) / 2
        if delta == 0 or not math.isfinite(self.epsilon):
            return None
        return sold_pair(PlannedDpEvent(event, delta), self.neighbouring)

    def _refusal(
        self, event: DpEvent, pair: Pair | None, unit: str, after: History
    ) -> BudgetExceededError:
        rule = self._history.rule_with(pair)
        total = self._history.combined(unit, rule)
        asked = pair or (math.inf, 0.0)
        spent, left = rule.spent(total), rule.left(total)
        would_be = rule.spent(after.combined(unit))
        return BudgetExceededError(
            f"the budget does not allow this {type(event).__name__}: asked for (epsilon, delta) = "
            f"{format_pair(asked)}, spent {format_pair(spent)}, left {format_pair(left)} of "
            f"{format_pair((self.epsilon, self.delta))} per {unit}, by {rule.name}; with it, "
            f"{format_pair(would_be)} would be spent. Nothing was charged."
            + self._advice(pair, left, rule.slack),
            asked,
            spent,
            left,
        )

    def _advice(self, pair: Pair | None, left: Pair, slack: float) -> str:
        if pair is None and self.delta == 0:
            return " This release has no finite epsilon at delta=0: give the ledger a delta."
        if pair is not None and format_pair(pair) == format_pair(left):
            return f" The difference is in digits that are not shown: {left!r} is left."
        if pair is not None and slack == 0 and pair[1] > left[1]:
            return (
                " What is left of delta is less than this release asks for: pass it a smaller "
                "delta, or create the ledger with a larger one."
            )
        if slack == 0 and self.delta > 0:
            return " A ledger with slack above 0 composes many small releases more tightly."
        if slack == self.delta > 0:
            return (
                " All of delta is set aside as slack, so that no release may have a delta of its "
                "own; a ledger that is created with a smaller slack allows that."
            )
        return ""

    def _seen_as(
        self, part: tuple[str | None, str | None], labels: tuple[str, ...]
    ) -> "PrivacyLedger":
        """Return an object for the same file and history that charges a part."""
        ledger = PrivacyLedger.__new__(PrivacyLedger)
        vars(ledger).update(vars(self), _part=part, _labels=labels)
        return ledger


class _Claim(NamedTuple):
    """A release to be charged."""

    event: DpEvent
    text: str
    place: tuple[str | None, str | None]
    token: str | None


def _format_content(content: tuple) -> str:
    """Return the content of a token for a message."""
    unit, event, seeded, partition, part = content
    where = "" if partition is None else f" in part {part!r} of {partition!r}"
    return f"{event_from_json(event)} per {unit}{where}{' (seeded)' if seeded else ''}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@lru_cache(maxsize=32)
def _history_in_this_process(identity: str, key: bytes | None, settings: str) -> History:
    """Return the shared history of all unpickled ledgers of a file in this process."""
    return History.expected(json.loads(settings))


def _rebuild(
    path: Path,
    key: bytes | None,
    settings: Any,
    temporary: bool,
    part: tuple[str | None, str | None],
    labels: tuple[str, ...],
    closed: bool,
    anchor: Anchor | None = None,
) -> PrivacyLedger:
    """Return the ledger of a file, which is first read when the ledger is used."""
    ledger = PrivacyLedger.__new__(PrivacyLedger)
    ledger._place(path, key, anchor)
    ledger._temporary, ledger._part, ledger._labels = temporary, part, labels
    ledger._closed = closed
    ledger.identity = settings["identity"]
    text = json.dumps(settings, sort_keys=True)
    ledger._history = _history_in_this_process(ledger.identity, key, text)
    if temporary:
        keep_scratch_file(path)
    return ledger
