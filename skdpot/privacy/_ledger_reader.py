"""The reading side of a ledger: totals, entries, reports, receipts and exports."""

import csv
import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from skdpot.privacy._history import Entry, History, declaration_of, entry_of
from skdpot.privacy._ledger_checks import UNITS, check_anchor, format_pair
from skdpot.privacy._scratch import scratch_file
from skdpot.privacy._store import Chain, Link, Record, one_at_a_time
from skdpot.privacy.checks import check_choice, check_probability
from skdpot.privacy.errors import LedgerError, LedgerTamperedError
from skdpot.privacy.events import event_to_json
from skdpot.privacy.filters import reported_epsilon
from skdpot.privacy.report import LedgerReport, UnitSummary

_ENTRY_FIELDS = [field.name for field in fields(Entry)]


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
    >>> ledger = PrivacyLedger()
    >>> receipt = ledger.charge(PureDpEvent(0.5), unit="record", label="a mean")
    >>> receipt.number, receipt.ledger == ledger.identity, ledger.verify(receipt)
    (1, True, 1)
    """

    ledger: str
    number: int
    digest: str


class LedgerReader:
    """The part of a ledger that only reads.

    Attributes
    ----------
    identity : str
        Random name of the ledger.
    path : Path
        Its file.
    """

    identity: str
    path: Path

    def _place(self, path: Path | None, key: Any, anchor: Any) -> None:
        """Set all attributes of a ledger except its history."""
        if key is not None and not (isinstance(key, bytes) and key):
            raise ValueError("key must be None or bytes, and not empty.")
        anchor = check_anchor(anchor, path)
        self._temporary = path is None
        self.path = scratch_file() if path is None else path
        self._chain = Chain(self.path, key, anchor)
        self._part: tuple[str | None, str | None] = (None, None)
        self._labels: tuple[str, ...] = ()
        self._closed = False

    @property
    def anchor_path(self) -> Path | None:
        """Return the file of the anchor; None without an anchor, and for a callable one."""
        anchor = self._chain.anchor
        return None if anchor is None else anchor.file

    def _read_all(self) -> None:
        self._history = History()
        self._history.after(self._chain.read()).keep()
        self.identity: str = self._settings["identity"]
        if self._history.corrected:
            warnings.warn(self._correction(), stacklevel=3)

    def _correction(self) -> str:
        """Return how many charges were recorded with too small a delta, and the right totals."""
        history, rule = self._history, self._history.rule
        spent = ", ".join(
            f"{format_pair(rule.spent(history.combined(unit)))} per {unit}"
            for unit in history.units()
        )
        return (
            f"{history.corrected} charges in the ledger at {self.path} were recorded with "
            "too small a delta: skdpot 0.1.0 counted none for Poisson samples of (epsilon, "
            f"delta)-private releases. They count in full now. Spent: {spent}, of "
            f"{format_pair((self.epsilon, self.delta))}. A unit that has spent more than the "
            "budget is charged for nothing more."
        )

    @property
    def _settings(self) -> Any:
        return self._history.settings

    @property
    def epsilon(self) -> float:
        """Return the epsilon of the budget."""
        return float(self._settings["epsilon"])

    @property
    def delta(self) -> float:
        """Return the delta of the budget."""
        return float(self._settings["delta"])

    @property
    def neighbouring(self) -> str:
        """Return the relation under which releases are priced."""
        return str(self._settings["neighbouring"])

    @property
    def allow_seeded(self) -> bool:
        """Return whether reproducible releases are recorded rather than refused."""
        return bool(self._settings["allow_seeded"])

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerError("this ledger was closed, so nothing is charged and nothing released.")

    def _seen_as(self, part: tuple[str | None, str | None], labels: tuple[str, ...]) -> Self:
        """Return an object for the same file and history that charges a part."""
        ledger = type(self).__new__(type(self))
        vars(ledger).update(vars(self), _part=part, _labels=labels)
        return ledger

    def _description(self) -> str:
        place = "a temporary file" if self._temporary else str(self.path)
        return (
            f"epsilon={self.epsilon:g}, delta={self.delta:g}, "
            f"neighbouring={self.neighbouring!r}, in {place}"
        )

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
            that were fixed beforehand; infinity if none is known.

        Raises
        ------
        ValueError
            If `delta` or `unit` is invalid.
        """
        if delta is None:
            history = self._refresh()
            rule, units = history.rule, _units(history, unit)
            return max(rule.spent(history.combined(each)) for each in units)
        check_probability("delta", delta)
        history = self._after(History(), self._chain.read(), for_report=True)
        charged = set(history.units()).intersection(_units(history, unit))
        costs = [reported_epsilon(history.combined(each), delta) for each in charged]
        return max(costs, default=0.0), float(delta)

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
        unit = max(_units(whole, unit), key=lambda each: whole.rule.spent(whole.combined(each)))
        history, spent = History(), []
        for record in records:
            self._after(history, [record]).keep()
            entry = entry_of(record)
            if entry is not None and entry.unit == unit:
                spent.append(history.rule.spent(history.combined(unit)))
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
        return min(history.rule.left(history.combined(each)) for each in _units(history, unit))

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
        entries = _charges(self._chain.read())
        if not as_frame:
            return entries
        import pandas as pd

        rows = [{**vars(entry), "event": str(entry.event)} for entry in entries]
        return pd.DataFrame(rows, columns=_ENTRY_FIELDS).set_index("number")

    def report(self) -> LedgerReport:
        """Return a report: who is protected, what was released, and what is left.

        Spent amounts are rounded up, and remaining amounts are rounded down: to two decimals, or
        two digits if they are small. A share of 1e-8, which comes from the rounding of prices, is
        ignored. The technical appendix and `as_dict` have all digits.

        Returns
        -------
        LedgerReport
            The report: text if printed, and HTML in a notebook. ``save`` writes text, HTML or JSON.
            ``as_dict`` returns plain values, and ``registry_entry`` a draft for a public registry.

        Examples
        --------
        >>> from skdpot.privacy import PrivacyLedger, PureDpEvent
        >>> ledger = PrivacyLedger(2.0)
        >>> receipt = ledger.charge(PureDpEvent(0.5), unit="user", label="a sample")
        >>> report = ledger.report()
        >>> print(report.as_dict()["units"][0]["sentence"])
        Every user is protected: of all that was released, no outcome was more than 1.65 times as
        probable with the data of one user as with any other data in their place (epsilon 0.50).
        """
        records = self._chain.read()
        history = self._refresh()
        rule, totals = history.rule, {unit: history.combined(unit) for unit in history.units()}
        return LedgerReport(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            identity=self.identity,
            place="a temporary file" if self._temporary else str(self.path),
            epsilon=self.epsilon,
            delta=self.delta,
            neighbouring=self.neighbouring,
            rule=rule.name,
            units=[
                UnitSummary(unit, rule.spent(total), rule.left(total))
                for unit, total in totals.items()
            ],
            entries=_charges(records),
            declarations=[declared for each in records if (declared := declaration_of(each))],
        )

    def receipt(self, number: int | None = None) -> Receipt:
        """Return the receipt of a recorded charge.

        Estimators charge the ledger, and keep no receipt. Take the receipt right after the release,
        and store it away from the file. It proves that its record, and all records before it, have
        not changed since. It proves nothing about earlier changes.

        Parameters
        ----------
        number : int, default=None
            Number of one of `entries`. None is the last charge, by any process.

        Returns
        -------
        Receipt
            The receipt that `charge` has returned.

        Raises
        ------
        ValueError
            If there is no such charge.
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
        if number is None:
            last = self._refresh().last_charge
        else:
            records = self._chain.read()
            self._refresh()
            found = [each for each in _charges(records) if each.number == number]
            last = Link(found[0].number, found[0].digest) if found else None
        if last is None:
            raise ValueError(
                "there is no receipt, because nothing was charged."
                if number is None
                else f"no charge has the number {number!r}; entries() lists all charges."
            )
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
        receipts = _as_receipts(receipt)
        records = self._chain.read()
        self._after(History(), records)
        self._refresh()
        for each in receipts:
            _check_receipt(each, records, self.identity)
        return len(_charges(records))

    def export(self, path: str | os.PathLike) -> None:
        """Write all records to a file, for auditors.

        Parameters
        ----------
        path : str or Path
            A path that ends with ".json" (all records, with digests) or ".csv" (the charges).

        Raises
        ------
        ValueError
            If the path has another ending.
        """
        path = Path(path)
        if path.suffix == ".json":
            records = [
                {"number": number, "digest": digest, **json.loads(body)}
                for number, body, digest in self._chain.read()
            ]
            path.write_text(json.dumps(records, indent=1), encoding="utf-8")
        elif path.suffix == ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, _ENTRY_FIELDS)
                writer.writeheader()
                writer.writerows(
                    {**asdict(entry), "event": event_to_json(entry.event)}
                    for entry in self.entries()
                )
        else:
            raise ValueError(f"path must end with .json or .csv, got {path.name!r}.")

    def _refresh(self) -> History:
        """Read new records, and return all known facts."""
        self._learn(self._chain.read(self._history.link))
        return self._history

    def _learn(self, records: Iterable[Record]) -> None:
        """Add facts of the file, unless another thread has read further by now."""
        with one_at_a_time:
            known = self._history.link.number
            news = [record for record in records if record.number > known]
            self._after(self._history, news).keep()

    def _after(
        self, history: History, records: Iterable[Record], *, for_report: bool = False
    ) -> History:
        history = history.after(records, for_report=for_report)
        if history.settings["identity"] != self.identity:
            raise LedgerTamperedError(f"the file at {self.path} holds another ledger by now.")
        return history


def _units(history: History, unit: str | None) -> list[str]:
    """Return the requested unit, or all units of charges."""
    if unit is None:
        return history.units() or [UNITS[0]]
    check_choice("unit", unit, UNITS)
    return [unit]


def _charges(records: Iterable[Record]) -> list[Entry]:
    return [entry for record in records if (entry := entry_of(record)) is not None]


def _as_receipts(receipt: Any) -> list[Receipt]:
    if receipt is None:
        return []
    one = isinstance(receipt, Receipt) or not isinstance(receipt, Iterable)
    receipts = [receipt] if one else list(receipt)
    for each in receipts:
        if not isinstance(each, Receipt):
            raise TypeError(
                "receipt must be a Receipt, such as ledger.receipt() returns, or several; got "
                f"{type(each)}."
            )
    return receipts


def _check_receipt(receipt: Receipt, records: list[Record], identity: str) -> None:
    if receipt.ledger != identity:
        raise LedgerTamperedError(f"the receipt is of ledger {receipt.ledger}, not {identity}.")
    # Records are numbered from 0: the chain was checked.
    if receipt.number >= len(records) or records[receipt.number].digest != receipt.digest:
        raise LedgerTamperedError(
            f"record {receipt.number}, for which there is a receipt, is missing from the ledger or "
            "was rewritten: the file was cut off, or replaced."
        )
