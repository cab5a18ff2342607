"""The ledger: one durable record of all releases and their cost."""

import json
import math
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from skdpot.privacy._anchor import Anchor
from skdpot.privacy._charged_ledger import ChargedLedger, Claim
from skdpot.privacy._history import FORMAT, History, charge_body
from skdpot.privacy._ledger_checks import (
    check_parts,
    check_settings,
    check_text,
    check_token,
    format_settings,
)
from skdpot.privacy._ledger_reader import Receipt
from skdpot.privacy._scratch import keep_scratch_file
from skdpot.privacy.checks import check_flag
from skdpot.privacy.events import DpEvent, event_to_json
from skdpot.privacy.filters import sold_pair


class PrivacyLedger(ChargedLedger):
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
    skdpot.privacy.errors.BudgetExceededError: the budget does not allow ...
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

        Warns
        -----
        UserWarning
            If charges were recorded with too small a delta, as version 0.1.0 did for Poisson
            samples of (epsilon, delta)-private releases. They count in full.
        """
        ledger = cls.__new__(cls)
        ledger._place(Path(path).absolute(), key, anchor)
        if not ledger.path.exists():
            ledger._check_nothing_is_vouched(ledger._chain.vouched())
        ledger._read_all()
        ledger._be_anchored()
        return ledger

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
        claim = Claim(event, event_to_json(event), self._part, token)
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
            Claim(*texts[id(event)], (name, part), tokens[part] if tokens else None)
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

    def _check_is_whole(self) -> None:
        if self._part != (None, None):
            raise ValueError("a part cannot be divided again; use the whole ledger.")


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
