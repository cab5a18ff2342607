"""Charges of a ledger: each is priced, checked against the budget and recorded at once."""

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

from skdpot.privacy._anchored_ledger import AnchoredLedger
from skdpot.privacy._charges_of_call import note_charge
from skdpot.privacy._history import History, charge_body, content_of, now
from skdpot.privacy._ledger_checks import RELATIONS, UNITS, check_text, format_pair
from skdpot.privacy._ledger_reader import Receipt
from skdpot.privacy._store import Link, Pen, Record
from skdpot.privacy.accounting import convert_event
from skdpot.privacy.checks import check_choice
from skdpot.privacy.errors import BudgetExceededError
from skdpot.privacy.events import DpEvent, PlannedDpEvent, event_from_json, in_words, plain_event
from skdpot.privacy.filters import Pair, sold_pair

# Releases of at most this part of the budget are small.
_SMALL = 0.1


class Claim(NamedTuple):
    """A release to be charged."""

    event: DpEvent
    text: str
    place: tuple[str | None, str | None]
    token: str | None


class ChargedLedger(AnchoredLedger):
    """The part of a ledger that records charges, or refuses them."""

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
                f"{self.neighbouring!r}. Describe it for the relation of the ledger, or pass "
                "convert=True to pay the price of a conversion."
            )
        return convert_event(event, neighbouring, self.neighbouring)

    def _charge(self, claims: list[Claim], unit: str, label: str, seeded: bool) -> list[Receipt]:
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
        claims: list[Claim],
        pairs: dict[str, Pair | None],
        unit: str,
        label: str,
        seeded: bool,
    ) -> tuple[list[Link], list[Record]]:
        """Append claims if the budget allows it; return the links of all, and the new records.

        Claims that are recorded with the same token are not appended.
        """
        links, records, time = [], [], now()
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
            f"the budget does not allow {in_words(event)}: asked for (epsilon, delta) = "
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
                " The remaining delta is less than this release asks for: pass a smaller delta, or "
                "create the ledger with a larger one."
            )
        if pair is not None and pair[0] > self.epsilon:
            return " This release alone asks for more than the whole epsilon: lower its epsilon."
        if slack == 0 and self.delta > 0 and (pair is None or pair[0] <= self.epsilon * _SMALL):
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


def _format_content(content: tuple) -> str:
    """Return the content of a token for a message."""
    unit, event, seeded, partition, part = content
    where = "" if partition is None else f" in part {part!r} of {partition!r}"
    return f"{event_from_json(event)} per {unit}{where}{' (seeded)' if seeded else ''}"
