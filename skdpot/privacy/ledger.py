"""The ledger: one durable record of all releases and their cost."""

import contextlib
import json
import math
import os
import reprlib
import shutil
import tempfile
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing import util
from pathlib import Path
from typing import Any

from skdpot.privacy import events as ev
from skdpot.privacy import records as rec
from skdpot.privacy.accounting import check_relation, for_two_records, plan_epsilon
from skdpot.privacy.checks import check_choice, check_flag, check_probability, to_display
from skdpot.privacy.filters import Pair, stated_epsilon_delta
from skdpot.privacy.records import FORMAT
from skdpot.privacy.report import LedgerReport

_Place = tuple[str | None, str | None]
_WHOLE: _Place = (None, None)


@dataclass(frozen=True)
class Receipt:
    """Proof that a charge was recorded: store it away from the ledger's file.

    Parameters
    ----------
    ledger : str
        Identity of the ledger.
    number : int
        Number of the record.
    digest : str
        Digest of the record and of all before it.

    Examples
    --------
    >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
    >>> ledger = PrivacyLedger(1.0)
    >>> receipt = ledger.charge(PureDpEvent(0.5), unit="record", label="a mean")
    >>> receipt.number, receipt.ledger == ledger.identity, ledger.verify(receipt)
    (1, True, 1)
    """

    ledger: str
    number: int
    digest: str


class _Parts(dict):
    """The ledgers of a partition, by the names of its parts."""

    def __missing__(self, name: Any) -> "PrivacyLedger":
        raise KeyError(f"there is no part {to_display(name)}: the parts are {list(self)}")


class PrivacyLedger:
    """A durable record of releases that enforces a budget.

    One ledger serves all estimators: pass it to each as ``ledger=``. A release is charged *before*
    it happens, in one transaction with the check of the budget. The record is on disk when
    `charge` returns. Clones and deep copies of a ledger are the ledger itself, and a pickle is a
    reference to its file, so worker processes spend the same budget.

    Units (records, users, edges, nodes) are never added up: each has the whole budget. So a ledger
    is for the unit of its first charge, unless further ones are declared.

    Parameters
    ----------
    epsilon : float or None, default=0.0
        The budget of every unit, above 0: it must be given. With None, or infinity, the ledger only
        records, and never refuses for its budget.
    delta : float, default=0.0
        The delta of the budget, at least 0 and below 1.
    path : str or Path, default=None
        File of the ledger. If it exists, it must contain a ledger with this budget, which is
        continued; "~" is the home folder. It must lie on a local disk: locks of network file
        systems fail. None makes a temporary file, which exists while the process that made it runs.
    units : str or list of str, default=None
        The units of all charges, such as ``["record", "user"]``. A person whose data are in
        releases for two units may then lose up to the budget twice. None is the unit of the first
        charge; charges of another one are refused.
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
        If the file cannot be used as a ledger: it is another kind of file, read-only or damaged.
    LedgerTamperedError
        If the chain of records is broken.

    Warns
    -----
    UserWarning
        If the file was used with an anchor, as earlier versions could, or holds charges with too
        small a delta: see `open`.

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
    skdpot.privacy.records.BudgetExceededError: the budget does not allow ...
    >>> [entry.label for entry in ledger.entries()]
    ['median income', 'mean age']
    >>> ledger.verify(receipt)
    2
    """

    def __init__(
        self,
        epsilon: float | None = 0.0,
        delta: float = 0.0,
        *,
        path: str | os.PathLike | None = None,
        units: str | Iterable[str] | None = None,
        neighbouring: str = "replace_one",
        allow_seeded: bool = False,
        slack: float | None = None,
        key: bytes | None = None,
    ) -> None:
        settings = rec.check_settings(epsilon, delta, units, neighbouring, allow_seeded, slack)
        if epsilon is not None and epsilon < 1e-3 and delta > 0.1:
            raise ValueError(f"are they swapped? epsilon={epsilon!r} comes before delta={delta!r}.")
        self._place(None if path is None else Path(path).expanduser().absolute(), key)
        # Another process may create the file at the same time.
        if not os.path.exists(self.path):
            identity = os.urandom(16).hex()
            body = {"kind": "ledger", "format": FORMAT, "identity": identity, **settings}
            self._chain.create(body)
        self._read_all(None)
        found = {name: self._known[0].settings.get(name) for name in settings}
        if found != settings:
            raise ValueError(
                f"the ledger at {self.path} was created with {_format_settings(found)}, not with "
                f"{_format_settings(settings)}: a path has one budget. Open it as it is with "
                "PrivacyLedger.open(path), or give another path."
            )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike,
        *,
        key: bytes | None = None,
        after: Receipt | Iterable[Receipt] | None = None,
    ) -> "PrivacyLedger":
        """Open the ledger in a file, with any budget.

        Parameters
        ----------
        path : str or Path
            File of a ledger.
        key : bytes, default=None
            The key that it was created with, if any.
        after : Receipt or iterable of Receipt, default=None
            The newest receipt, kept in another place: a file that lacks its record, because an old
            copy was put in its place, is refused.

        Returns
        -------
        PrivacyLedger
            The ledger, checked as `verify` does.

        Raises
        ------
        LedgerError
            If there is no ledger.
        LedgerTamperedError
            If a record was changed, or a record with a receipt is missing.

        Warns
        -----
        UserWarning
            If charges were recorded with too small a delta, as version 0.1.0 did for Poisson
            samples of (epsilon, delta)-private releases. They count in full. Or if the file was
            used with an anchor, as earlier versions could, and there is no `after`.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> path = Path(tempfile.mkdtemp()) / "budget.sqlite"
        >>> ledger = PrivacyLedger(2.0, path=path)
        >>> receipt = ledger.charge(PureDpEvent(0.5), unit="record", label="a mean")
        >>> PrivacyLedger.open(path, after=receipt).remaining()
        (1.5, 0.0)
        """
        ledger = cls.__new__(cls)
        ledger._place(Path(path).expanduser().absolute(), key)
        ledger._read_all(after)
        return ledger

    def _place(self, path: Path | None, key: bytes | None) -> None:
        """Set all attributes of a ledger except its history."""
        if key is not None and not (isinstance(key, bytes) and key):
            raise ValueError("key must be None or bytes, and not empty.")
        self.path = _temporary_file() if path is None else path
        self._where = "a temporary file" if path is None else str(path)
        self._chain = rec.Chain(self.path, key)
        self._part: _Place = _WHOLE
        self._labels: tuple[str, ...] = ()

    def _read_all(self, after: Receipt | Iterable[Receipt] | None) -> None:
        records = self._chain.read()
        # A list of one, which parts and labelled views share: what one of them reads, all know.
        history = rec.History().after(records)
        self._known = [history]
        self.identity: str = history.settings["identity"]
        # Before any total is shown: those of an old copy are too small.
        self._check_receipts(after, records)
        if history.corrected:
            spent = [f"{format_pair(history.spent(unit))} per {unit}" for unit in history.units()]
            warnings.warn(
                f"{history.corrected} charges in the ledger at {self.path} were recorded with "
                "too small a delta: skdpot 0.1.0 counted none for Poisson samples of (epsilon, "
                f"delta)-private releases. They count in full now. Spent: {', '.join(spent)}, of "
                f"{format_pair((self.epsilon, self.delta))}. A unit that has spent more than the "
                "budget is charged for nothing more.",
                stacklevel=3,
            )
        if history.anchors and after is None:
            reasons = [each["reason"] for each in history.anchors if each["reason"]]
            lost = f" It was restored, or its anchor lost ({'; '.join(reasons)}): releases that "
            lost += "are missing from it are spent in addition."
            warnings.warn(
                f"the ledger at {self.path} was used with an anchor, which this version does not "
                "read: it cannot tell whether the file is an old copy. From now on keep the newest "
                "receipt, ledger.receipt(), in another place, and open the ledger with "
                "PrivacyLedger.open(path, after=receipt). The anchor holds the values of such a "
                f"receipt as text: you can check this file with it once.{lost if reasons else ''}",
                stacklevel=3,
            )

    # Read-only: the budget is that of the first record, whatever a program would like to assign.
    @property
    def epsilon(self) -> float:
        """Return the epsilon of the budget."""
        return float(self._known[0].settings["epsilon"])

    @property
    def delta(self) -> float:
        """Return the delta of the budget."""
        return float(self._known[0].settings["delta"])

    @property
    def neighbouring(self) -> str:
        """Return the relation under which releases are priced."""
        return str(self._known[0].settings["neighbouring"])

    @property
    def allow_seeded(self) -> bool:
        """Return whether reproducible releases are recorded rather than refused."""
        return bool(self._known[0].settings["allow_seeded"])

    def _seen_as(self, part: _Place, labels: tuple[str, ...]) -> "PrivacyLedger":
        """Return an object for the same file and history that charges a part."""
        ledger = type(self).__new__(type(self))
        vars(ledger).update(vars(self), _part=part, _labels=labels)
        return ledger

    def charge(
        self,
        event: ev.DpEvent,
        *,
        unit: str,
        label: str,
        neighbouring: str | None = None,
        convert: bool = False,
        seeded: bool = False,
        token: str | None = None,
        pending: bool = False,
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
            charge with the same token and label, by any process at any time, charges nothing and
            returns the receipt of the first. So a program that repeats a charge after a crash must
            release exactly the same output; a new output needs a new token.
        pending : bool, default=False
            Whether the charge is listed as "charged, not released" until `finish` is called.

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
            label, event, unit or part, or the release is seeded.
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
        about = unit, label, neighbouring, convert, seeded, pending
        return self._charge({self._part: (event, token)}, *about)[self._part]

    def finish(self, receipt: Receipt) -> None:
        """Record that the release of a pending charge is made; estimators call it.

        Parameters
        ----------
        receipt : Receipt
            What `charge` returned. If this cannot be recorded, the charge stays listed as "charged,
            not released", and nothing is raised: the release is there.
        """
        with contextlib.suppress(rec.LedgerError), self._appending(False, receipt.number):
            pass

    def charge_parts(
        self,
        name: str,
        events: Mapping[str, ev.DpEvent],
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
        self._check_is_whole()
        if not events:
            raise ValueError("events must have at least one part.")
        if tokens is None:
            tokens = {}
        elif set(tokens) != set(events) or len(set(tokens.values())) < len(tokens):
            raise ValueError("tokens must have one token for each part of events, all different.")
        known = self._refresh()
        # Otherwise the record would be refused as one that no ledger writes.
        for part in events:
            if not known.has_part(name, part):
                raise ValueError(f"no part {part!r} was declared of a partition {name!r}.")
        releases: dict[_Place, tuple[ev.DpEvent, str | None]]
        releases = {(name, part): (event, tokens.get(part)) for part, event in events.items()}
        about = unit, label, neighbouring, convert, seeded, False
        receipts = self._charge(releases, *about)
        return {part: receipts[name, part] for part in events}

    def quote(self, event: ev.DpEvent, *, unit: str) -> tuple[float, float]:
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
            If its file cannot be read.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(2.0)
        >>> ledger.quote(PureDpEvent(0.75), unit="record"), ledger.spent()
        ((0.75, 0.0), (0.0, 0.0))
        """
        check_choice("unit", unit, rec.UNITS)
        event = ev.check_event(event)
        before = self._refresh()
        pair = stated_epsilon_delta(event, self.neighbouring) or self._pair_for(event, unit)
        body = rec.charge_body(unit, "", ev.event_to_json(event), pair, False, self._part)
        # As a charge does, on a history that is dropped afterwards.
        after = before.after(self._chain.after(before.last, [body]))
        self._check_budget(event, pair, unit, after)
        return after.spent(unit)

    @property
    def part_is_secret(self) -> bool:
        """Whether the part that a unit lies in is itself protected."""
        # The whole needs no look at the file.
        return self._part != _WHOLE and self._refresh().parts_change(self._part[0])

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
        check_flag("fixed_key", fixed_key)
        names = [] if isinstance(parts, str) else list(parts)
        for each in names:
            _check_text("a part", each)
        if not names or len(set(names)) < len(names):
            raise ValueError("parts must be a list of at least one name, all different.")
        declared: dict[str, Any] = {"parts": names, "fixed_key": bool(fixed_key)}
        _check_text("name", name)
        self._check_is_whole()

        # In a transaction: another process may declare it at the same time.
        with self._appending(False) as records:
            if name not in self._known[0].partitions:
                body = {"kind": "partition", "name": name, **declared}
                records += self._chain.after(self._known[0].last, [body])
        found = self._known[0].partitions[name]
        found = {**found, "parts": list(found["parts"])}
        if found != declared:
            raise ValueError(
                f"there is a partition {name!r} with {_format_settings(found)}, which "
                "cannot be changed; use another name."
            )
        # Views: all parts share the file, the history and the budget of the whole.
        return _Parts({part: self._seen_as((name, part), self._labels) for part in names})

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
        _check_text("label", label)
        return self._seen_as(self._part, (*self._labels, label))

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

    def _in_own_relation(
        self, event: ev.DpEvent, neighbouring: str | None, convert: bool
    ) -> ev.DpEvent:
        """Return a copy of an event under the ledger's relation; raise if it cannot be charged."""
        # A copy: an event that changes meanwhile must be recorded as it was priced.
        event = ev.check_event(event)
        if neighbouring is None or neighbouring == self.neighbouring:
            return event
        check_relation(neighbouring)
        if not convert:
            raise ValueError(
                f"the event is described for neighbouring={neighbouring!r}, and the ledger is for "
                f"{self.neighbouring!r}. Describe it for that, or pass convert=True to pay more."
            )
        if neighbouring == "replace_one":
            raise ValueError(
                "an event under 'replace_one' says nothing about data sets of different sizes: "
                "describe the release by its sensitivity to a record that is added or removed."
            )
        return for_two_records(event)

    def _charge(
        self,
        releases: Mapping[_Place, tuple[ev.DpEvent, str | None]],
        unit: str,
        label: str,
        neighbouring: str | None,
        convert: bool,
        seeded: bool,
        pending: bool,
    ) -> dict[_Place, Receipt]:
        """Record events of parts, with their tokens, at once; none whose token is recorded."""
        check_choice("unit", unit, rec.UNITS)
        _check_text("label", label)
        self.check_seeded(seeded)
        # Most parts have the same event, which is checked and priced once. By identity, because
        # events that hold lists have no hash.
        plain: dict[int, ev.DpEvent] = {}
        for event, token in releases.values():
            if id(event) not in plain:
                plain[id(event)] = self._in_own_relation(event, neighbouring, convert)
            if token is not None:
                _check_text("token", token, longest=200)
        texts = {key: ev.event_to_json(event) for key, event in plain.items()}
        relation = self._known[0].settings["neighbouring"]
        pairs = {key: stated_epsilon_delta(event, relation) for key, event in plain.items()}
        label = ": ".join((*self._labels, label))
        receipts: dict[_Place, Receipt] = {}
        bodies = {}
        with self._appending(pending) as records:
            known = self._known[0]
            # Others may have charged meanwhile: what is left of delta is known only now.
            for key, event in plain.items():
                pairs[key] = pairs[key] or self._pair_for(event, unit)
            for place, (event, token) in releases.items():
                about = unit, label, texts[id(event)], pairs[id(event)], bool(seeded), place, token
                body = rec.charge_body(*about)
                if token not in known.tokens:
                    bodies[place] = body
                    continue
                # Its release was charged then. Another one under this name would be free.
                (number, digest), content = known.tokens[token]
                receipts[place] = Receipt(self.identity, number, digest)
                if content != rec.content_of(body):
                    raise ValueError(
                        f"the token {token!r} is that of record {number}, which is another "
                        f"release: {_format_content(content)}, and not "
                        f"{_format_content(rec.content_of(body))}. Nothing was charged. Take "
                        "another token, or repeat that release with its label and settings."
                    )
            # They are written together when the block ends, or none is.
            records += self._chain.after(known.last, bodies.values())
            if records:
                dearest = max(plain, key=lambda key: pairs[key] or (math.inf, 0.0))
                after = known.after(records)
                self._check_budget(plain[dearest], pairs[dearest], unit, after)
        for place, record in zip(bodies, records, strict=True):
            receipts[place] = Receipt(self.identity, record.number, record.digest)
        return receipts

    @contextlib.contextmanager
    def _appending(self, pending: bool, done: int | None = None) -> Iterator[list[rec.Record]]:
        """Give the list of the records to append, once all that others have recorded is known."""
        with rec.one_at_a_time:
            with self._chain.appending(self._known[0].last, pending, done) as (news, records):
                self._learn(news)
                yield records
            # Not before: only what is on disk is known.
            self._learn(records)

    def _pair_for(self, event: ev.DpEvent, unit: str) -> Pair | None:
        """Return the pair of an event that states no delta: at half of the remaining delta."""
        rule = self._known[0].rule_without_pair
        # Half, so that the next release of this kind has a delta, too.
        delta = rule.delta_left(self._known[0].combined(unit)) / 2
        if delta == 0 or math.isinf(rule.epsilon):
            return None
        return stated_epsilon_delta(ev.PlannedDpEvent(event, delta), self.neighbouring)

    def _check_budget(
        self, event: ev.DpEvent, pair: Pair | None, unit: str, after: rec.History
    ) -> None:
        """Raise unless the budget allows the history after charges; the dearest is named."""
        known, rule = self._known[0], after.rule
        # Ledgers of earlier versions declare no units: those that were charged are.
        units = known.settings.get("units") or sorted({each for each, *_ in known.totals}) or [unit]
        if unit not in units:
            raise ValueError(
                f"this release is charged per {unit}, and the ledger is per {' and '.join(units)}: "
                f"a person would have the whole budget per {unit} as well. Nothing was charged. "
                f"If you accept that, create a ledger with units={[*units, unit]}; otherwise make "
                "all releases for one unit (groups= protects users)."
            )
        if rule.admits(after.combined(unit)):
            return
        # The error leaves the transaction, in which nothing was written.
        total = known.combined(unit)
        asked = pair or (math.inf, 0.0)
        spent, left = rule.spent(total), rule.left(total)
        raise rec.BudgetExceededError(
            f"the budget does not allow {ev.in_words(event)}: asked for (epsilon, delta) = "
            f"{format_pair(asked)}, spent {format_pair(spent)}, left {format_pair(left)} of "
            f"{format_pair((self.epsilon, self.delta))} per {unit}, by {rule.name}; with it, "
            f"{format_pair(after.spent(unit))} would be spent. Nothing was charged."
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
                " The remaining delta is less than this release asks for: pass a smaller delta, or "
                "create the ledger with a larger one."
            )
        if pair is not None and pair[0] > self.epsilon:
            return " This release alone asks for more than the whole epsilon: lower its epsilon."
        if slack == 0 and self.delta > 0 and (pair is None or pair[0] <= self.epsilon / 10):
            return (
                " Many small releases cost less in a ledger that is created with slack, a part of "
                "its delta: PrivacyLedger(epsilon, delta, slack=delta / 2)."
            )
        if slack == self.delta > 0:
            return (
                " All of delta is set aside as slack, so that no release may have a delta of its "
                "own. Create a ledger with a smaller slack."
            )
        if left[0] == 0:
            return " Nothing is left of epsilon, so the ledger allows no further release."
        return " Give the release more noise, and so a smaller epsilon."

    def spent(self, delta: float | None = None, *, unit: str | None = None) -> tuple[float, float]:
        """Return the cost of the releases so far.

        Parameters
        ----------
        delta : float, default=None
            None returns the used part of the budget, by the rule that admits charges.
        unit : str, default=None
            None is the unit that has spent most. Units are not added up.

        Returns
        -------
        tuple of two float
            (epsilon, delta). With a `delta`, the smallest known epsilon at this delta, for releases
            that were fixed beforehand, as if all parts were one; infinity if none is known.

        Raises
        ------
        ValueError
            If `delta` or `unit` is invalid.
        """
        history = self._refresh()
        if delta is None:
            return max(map(history.spent, _units(history, unit)))
        check_probability("delta", delta)
        costs, entries = [0.0], self.entries()
        for each in _units(history, unit):
            events = [entry.event for entry in entries if entry.unit == each]
            every = ev.ComposedDpEvent(events)
            planned = plan_epsilon(every, delta, neighbouring=self.neighbouring)
            admitted, failure = history.spent(each)
            costs.append(min(planned, admitted if failure <= delta else math.inf))
        return max(costs), float(delta)

    def spent_after_each(self, *, unit: str | None = None) -> list[tuple[float, float]]:
        """Return the used part of the budget after each charge, oldest first.

        Parameters
        ----------
        unit : str, default=None
            The unit of the charges. None is the unit that has spent most.

        Returns
        -------
        list of tuple of two float
            (epsilon, delta) by the rule that admits charges, after each of the unit's entries.

        Raises
        ------
        ValueError
            If `unit` is invalid.
        """
        records = self._chain.read()
        whole = self._refresh()
        unit = max(_units(whole, unit), key=whole.spent)
        history, spent = rec.History(), []
        for record in records:
            history = history.after([record])
            entry = rec.entry_of(record)
            if entry is not None and entry.unit == unit:
                spent.append(history.spent(unit))
        return spent

    def remaining(self, *, unit: str | None = None) -> tuple[float, float]:
        """Return the largest cost of one further release of a generic kind.

        Parameters
        ----------
        unit : str, default=None
            None is the unit that has spent most.

        Returns
        -------
        tuple of two float
            (epsilon, delta).

        Raises
        ------
        ValueError
            If `unit` is invalid.
        """
        history = self._refresh()
        return min(map(history.left, _units(history, unit)))

    def entries(self, *, as_frame: bool = False) -> Any:
        """Return the recorded charges, oldest first.

        Parameters
        ----------
        as_frame : bool, default=False
            Whether to return a ``DataFrame`` of pandas.

        Returns
        -------
        list of Entry or DataFrame
            One element or row for each charge.
        """
        entries = _charges(self._chain.read(), self._chain.pending())
        if not as_frame:
            return entries
        import pandas as pd

        rows = [{**vars(entry), "event": str(entry.event)} for entry in entries]
        return pd.DataFrame(rows, columns=rec.Entry.__match_args__).set_index("number")

    def report(self) -> LedgerReport:
        """Return a report: who is protected, what was released, and what is left.

        Spent amounts are rounded up, and remaining amounts are rounded down: to two decimals, or
        two digits if they are small. A share of 1e-8, which comes from the rounding of prices, is
        ignored. The technical appendix and `as_dict` have all digits.

        Returns
        -------
        LedgerReport
            The report: text if printed, and HTML in a notebook. ``save`` writes text, HTML or JSON.
            ``as_dict`` returns plain values.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(2.0)
        >>> receipt = ledger.charge(PureDpEvent(0.5), unit="user", label="a sample")
        >>> report = ledger.report()
        >>> print(report.as_dict()["units"][0]["sentence"])
        Every user is protected: replacing the data of one user changes the probability of any
        outcome of all releases by a factor of at most 1.65 (epsilon 0.50).
        """
        history = self._refresh()
        return LedgerReport(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            identity=self.identity,
            place=self._where,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbouring=self.neighbouring,
            rule=history.rule.name,
            units={unit: (history.spent(unit), history.left(unit)) for unit in history.units()},
            entries=self.entries(),
        )

    def backup(self, path: str | os.PathLike) -> None:
        """Copy the ledger to a new file, also while other processes charge it.

        A copy of the file by other means may lack the newest charges, which can be in a second
        file beside it. Keep a newer receipt: after the copy was put in the place of the ledger,
        `open` tells by it whether charges are missing.

        Parameters
        ----------
        path : str or Path
            The copy. It must not exist.

        Raises
        ------
        FileExistsError
            If there is a file.
        LedgerError
            If the ledger cannot be read, or the copy cannot be written.
        """
        self.verify()
        self._chain.copy(Path(path).expanduser().absolute())

    def receipt(self) -> Receipt:
        """Return the receipt of the last charge, by any process.

        Estimators charge the ledger, and keep no receipt. Take the receipt right after the release,
        and store it away from the file. It proves that its record, and all records before it, have
        not changed since. It proves nothing about earlier changes.

        Returns
        -------
        Receipt
            The receipt that `charge` has returned.

        Raises
        ------
        ValueError
            If nothing was charged.
        LedgerTamperedError
            If a record was changed, or a record that was read before is missing.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpot import PrivacyLedger, WassersteinProjectionSampler
        >>> ledger = PrivacyLedger(epsilon=1.0)
        >>> sampler = WassersteinProjectionSampler(0.5, ledger=ledger)
        >>> release = sampler.fit_transform(np.eye(3))
        >>> receipt = ledger.receipt()
        >>> ledger.verify(receipt)
        1
        """
        last = self._refresh().last_charge
        if last is None:
            raise ValueError("there is no receipt, because nothing was charged.")
        return Receipt(self.identity, last.number, last.digest)

    def verify(self, receipt: Receipt | Iterable[Receipt] | None = None) -> int:
        """Check the whole file, and that receipts belong to records in it.

        Parameters
        ----------
        receipt : Receipt or iterable of Receipt, default=None
            Receipts of charges that must be recorded. The newest receipt is enough to prove that no
            earlier record is missing.

        Returns
        -------
        int
            The number of charges.

        Raises
        ------
        LedgerTamperedError
            If a record was changed, or a record with a receipt is missing.
        TypeError
            If `receipt` has another type.
        """
        self._refresh()
        records = self._chain.read()
        rec.History().after(records)
        self._check_receipts(receipt, records)
        return len(_charges(records))

    def _check_receipts(self, receipt: Any, records: list[rec.Record]) -> None:
        """Raise unless all records of the file, which are given, include those with receipts."""
        if receipt is None:
            return
        for each in receipt if isinstance(receipt, Iterable) else [receipt]:
            if not isinstance(each, Receipt):
                raise TypeError(f"receipt must be a Receipt, or several, got {type(each)}.")
            if each.ledger != self.identity:
                raise rec.LedgerTamperedError(f"the receipt is of ledger {each.ledger}, not this.")
            # Records are numbered from 0: the chain was checked.
            if each.number >= len(records) or records[each.number].digest != each.digest:
                raise rec.LedgerTamperedError(
                    f"record {each.number}, for which there is a receipt, is missing from the "
                    "ledger or was rewritten: the file was cut off, or replaced."
                )

    def _refresh(self) -> rec.History:
        """Read new records, and return all known facts."""
        self._learn(self._chain.read(self._known[0].last))
        return self._known[0]

    def _learn(self, records: Iterable[rec.Record]) -> None:
        """Add facts of the file, unless another thread has read further by now."""
        with rec.one_at_a_time:
            known = self._known[0]
            news = [record for record in records if record.number > known.last.number]
            if news:
                history = known.after(news)
                if history.settings["identity"] != self.identity:
                    raise rec.LedgerTamperedError(f"{self.path} holds another ledger now.")
                # One assignment, which no signal interrupts halfway.
                self._known[0] = history

    def __deepcopy__(self, memo: dict | None = None) -> "PrivacyLedger":
        return self

    __copy__ = __sklearn_clone__ = __deepcopy__

    def __getstate__(self) -> dict[str, Any]:
        # With the key, without which a worker could not continue the chain, and without what was
        # read: a worker reads the file.
        return {**vars(self), "_known": self._known[0].settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        settings = json.dumps(state["_known"], sort_keys=True)
        # Tasks of one worker go on from what earlier ones have read.
        self._known = _known_in_this_process(self.identity, self._chain.key, settings)

    def __repr__(self) -> str:
        part = "" if self._part == _WHOLE else f", part {self._part[1]!r} of {self._part[0]}"
        label = "".join(f", labelled {label!r}" for label in self._labels)
        return (
            f"<PrivacyLedger epsilon={self.epsilon:g}, delta={self.delta:g}, "
            f"neighbouring={self.neighbouring!r}, in {self._where}{part}{label}>"
        )

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def _check_is_whole(self) -> None:
        if self._part != _WHOLE:
            raise ValueError("a part cannot be divided again; use the whole ledger.")


@lru_cache(maxsize=32)
def _known_in_this_process(identity: str, key: bytes | None, settings: str) -> list[rec.History]:
    """Return the shared history of all unpickled ledgers of a file in this process."""
    return [rec.History(json.loads(settings))]


def _temporary_file() -> Path:
    """Return the path of a file in a new folder, which ends with this process."""
    folder = tempfile.mkdtemp(prefix="skdpot-")
    # Processes of multiprocessing skip functions that are registered with atexit.
    util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)
    return Path(folder) / "ledger.sqlite"


def _check_text(name: str, value: Any, longest: float = math.inf) -> None:
    """Raise unless a value can be a cell of a report or a table."""
    if not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise ValueError(f"{name} must be a line of printable text, not empty, got {value!r}.")
    if len(value) > longest:
        raise ValueError(f"{name} has {len(value)} characters, more than {longest}: use a digest.")


def _format_settings(settings: dict[str, Any]) -> str:
    """Return settings for a message; of a long list only the beginning."""
    return ", ".join(f"{name}={reprlib.repr(value)}" for name, value in settings.items())


def format_pair(pair: tuple[float, float]) -> str:
    """Return a pair (epsilon, delta) for a message."""
    return f"({pair[0]:.6g}, {pair[1]:.3g})"


def _format_content(content: tuple) -> str:
    """Return the content of a token for a message."""
    label, unit, event, seeded, partition, part = content
    where = "" if partition is None else f" in part {part!r} of {partition!r}"
    return f"{label!r}, {ev.event_from_json(event)} per {unit}{where}{' (seeded)' * seeded}"


def _units(history: rec.History, unit: str | None) -> list[str]:
    """Return the requested unit, or all units of charges."""
    if unit is None:
        return history.units() or [rec.UNITS[0]]
    check_choice("unit", unit, rec.UNITS)
    return [unit]


def _charges(records: Iterable[rec.Record], pending: Container[int] = ()) -> list[rec.Entry]:
    return [entry for record in records if (entry := rec.entry_of(record, pending)) is not None]
