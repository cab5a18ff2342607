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
    """Error: the budget does not allow a charge. Nothing is recorded and nothing is released.

    Parameters
    ----------
    message : str
        The full message.
    asked, spent, left : tuple of two float
        Pairs (epsilon, delta): of the charge, of the earlier releases, and of the remaining
        budget.
    """

    def __init__(self, message: str, asked: Any, spent: Any, left: Any) -> None:
        super().__init__(message, asked, spent, left)
        self.asked, self.spent, self.left = asked, spent, left

    def __str__(self) -> str:
        return str(self.args[0])


class PrivacyLedger(LedgerReader):
    """A durable record of releases that enforces a budget.

    One ledger serves all estimators: pass it to each as ``ledger=``. A release is charged *before*
    it happens, in one transaction with the check of the budget. The record is on disk when
    `charge` returns. Clones and deep copies of a ledger are the ledger itself, and a pickle is a
    reference to its file, so worker processes spend the same budget.

    Units (records, users, edges, nodes) are never added up: each has the whole budget.

    Parameters
    ----------
    epsilon : float, default=inf
        The budget of every unit, above 0. With infinity the ledger only records, and never
        refuses.
    delta : float, default=0.0
        The delta of the budget, at least 0 and below 1.
    path : str or Path, default=None
        File of the ledger. If it exists, it must contain a ledger with this budget, which is
        continued. None makes a temporary file, which exists while a process uses it.
    neighbouring : {"replace_one", "add_remove"}, default="replace_one"
        The neighbouring relation of all prices: one unit is replaced by any other, or one is added
        or removed.
    allow_seeded : bool, default=False
        Whether releases with a `random_state` are accepted. They can be reproduced, so they are
        not private. By default they are refused.
    slack : float, default=None
        Part of `delta` that is used for tight composition (Renyi and Gaussian differential
        privacy). The rest is for releases with their own delta. With 0, pairs (epsilon, delta) are
        added up. None decides at the first charge, before anything is released: 0 if that release
        has its own (epsilon, delta), and all of `delta` if it does not, like Gaussian noise
        without a plan.
    key : bytes, default=None
        Secret key that authenticates records. Without a key, the chain of digests detects damage,
        edits and (with a receipt) missing records, but not a file that was rewritten from the
        start. The key is part of pickles, but never of the file.
    anchor : str, Path or callable, default=None
        A second place for the newest record: a file on another disk or share that is not restored
        together with the ledger. With it, all processes detect a ledger that was deleted,
        truncated, or replaced by an old or another copy. A ledger with an anchor cannot be charged
        without it. A callable ``anchor(new=None, old=None)`` returns the stored text, or None.
        With arguments, it first stores the text `new` if the stored text is `old`. Worker
        processes get a pickle of it.

    Attributes
    ----------
    identity : str
        Random name of the ledger.
    path : Path
        Its file.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the ledger in the file has another budget or
        relation.
    LedgerError
        If the file cannot be used as a ledger: it is another kind of file, read-only, damaged, or
        on a network file system.
    LedgerTamperedError
        If the chain of records is broken.

    Notes
    -----
    The rule that admits charges is valid under fully adaptive composition: each charge may depend
    on all earlier releases (:ref:`proof-filters`). Numbers have their decimal value and are added
    up exactly: ten times 0.1 fit into a budget of 1. Eleven times ``1 / 11``, which is
    0.09090909090909091, do not. Spent amounts are rounded up, and remaining amounts are rounded
    down.

    The ledger records nothing private: events, labels and the names of parts are public.

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
        """Open the ledger in a file, with any budget.

        Parameters
        ----------
        path : str or Path
            File of a ledger.
        key : bytes, default=None
            The key that it was created with, if any.
        anchor : str, Path or callable, default=None
            The anchor of the ledger. An empty anchor becomes the anchor from now on. Without its
            anchor, a ledger can be read, but not charged.

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
        """Declare that this file is the right one, with a new anchor from now on.

        Use it after the file was restored from a copy that is older than the anchor, or if the
        anchor was lost. Releases that are missing in the file still count: charge them by hand.
        The declaration is recorded and appears in every report.

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
            If there is no reason, or the anchor is invalid.
        LedgerError
            If the anchor belongs to another ledger, or cannot be used.

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
            The unit that the event protects.
        label : str
            Description in words; public.
        neighbouring : {"replace_one", "add_remove"}, default=None
            The relation under which the event is described; None is the ledger's.
        convert : bool, default=False
            Whether an event described under "add_remove" may be charged to a ledger for
            "replace_one", with doubled sensitivity. By default another relation than the ledger's
            is refused.
        seeded : bool, default=False
            Whether the release can be reproduced.
        token : str, default=None
            A public name of this release, at most 200 characters, unique in the ledger. A second
            charge with the same token, by any process at any time, charges nothing and returns the
            receipt of the first. So a program that repeats a charge after a crash must release
            exactly the same output; a new output needs a new token.

        Returns
        -------
        Receipt
            Proof of the charge, which is on disk.

        Raises
        ------
        BudgetExceededError
            If the budget does not allow it. The error states what was asked, spent and left.
        TypeError, ValueError
            If the event, unit, label, relation or token is invalid, the token belongs to another
            event, unit or part, or the release is seeded.
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

        Like `charge` on the ledger of every part, but in one transaction.

        Parameters
        ----------
        name : str
            Name of a declared partition.
        events : mapping of str to DpEvent
            For each part, the event of its release.
        unit : {"record", "user", "edge", "node"}
            The unit that all these events protect.
        label : str
            Description in words; public.
        neighbouring : {"replace_one", "add_remove"}, default=None
            The relation under which they are described, as in `charge`.
        convert : bool, default=False
            Whether another relation may be converted, as in `charge`.
        seeded : bool, default=False
            Whether the releases can be reproduced.
        tokens : mapping of str to str, default=None
            For each part, the token of its release, as in `charge`. Parts with a recorded token
            are not charged again.

        Returns
        -------
        dict of str to Receipt
            For each part, proof of its charge.

        Raises
        ------
        BudgetExceededError, TypeError, ValueError, LedgerError
            As in `charge`. Then no part is charged. ValueError also if the partition or a part
            does not exist, or there is not one token for each part.

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

        Claims that are recorded with the same token are not appended.
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
        """Return what would be spent after a charge, by the rule of the ledger.

        Nothing is charged.

        Parameters
        ----------
        event : DpEvent
            What would be released, described under the ledger's relation.
        unit : {"record", "user", "edge", "node"}
            The unit that the event protects.

        Returns
        -------
        tuple of two float
            (epsilon, delta), as of :meth:`spent`.

        Raises
        ------
        BudgetExceededError
            If the budget does not allow it. The error states what was asked, spent and left.
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
        """Raise if a release is seeded and the ledger refuses seeded releases.

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
        """Declare that releases use only one part of the data each.

        The parts are public, and so is the part that a release uses. Each unit is in one part, so
        a partition costs as much as its most expensive part. If a replaced unit may move to
        another part, it costs as much as the two most expensive parts together. The event that is
        charged to a part must hold for neighbours of the *whole* data, also if a unit enters or
        leaves the part. So not even the size of a part may be treated as public.

        Parameters
        ----------
        name : str
            Name of the partition; declaring it again returns the same parts.
        parts : iterable of str
            Names of all parts, public and not learned from private data.
        fixed_key : bool, default=False
            Whether the part of a unit is public and stays the same if the unit is replaced. It
            matters only under "replace_one". Local samplers need it, because for them it is public
            which users take part.

        Returns
        -------
        dict of str to PrivacyLedger
            For every part, a view of this ledger that charges releases from that part.

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
        """Return this ledger with a text in front of the labels of its charges.

        Estimators label their charges with their own name. The text says which release it was.

        Parameters
        ----------
        label : str
            One line of text. Public, like all labels.

        Returns
        -------
        PrivacyLedger
            A view of this ledger, with the same budget. Labels begin with `label` and a colon.

        Raises
        ------
        ValueError
            If the label is not one line of text.

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
        """Close this object for further charges; the file can be opened again."""
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
