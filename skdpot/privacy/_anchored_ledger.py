"""The anchor of a ledger: a second place that holds its newest record."""

from typing import Any, Self

from skdpot.privacy._anchor import Vouched
from skdpot.privacy._history import now
from skdpot.privacy._ledger_checks import check_anchor, check_text
from skdpot.privacy._ledger_reader import LedgerReader
from skdpot.privacy._store import Chain
from skdpot.privacy.errors import LedgerError, LedgerTamperedError


class AnchoredLedger(LedgerReader):
    """The part of a ledger that compares its file with its anchor."""

    def anchor_again(self, anchor: Any, *, reason: str) -> Self:
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
                    "time": now(),
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
                body = {"kind": "anchor", "time": now(), "reason": None, "knew": None}
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
