"""The charges of a call, and the sentence about them in the call's error."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import NamedTuple


class StartedCharge(NamedTuple):
    """A charge that was started and may have been interrupted.

    Attributes
    ----------
    words : str
        The charge in words, for an error message.
    is_charged : callable
        Tells whether the ledger holds the charge.
    """

    words: str
    is_charged: Callable[[], bool]


# Those of the current call; None outside of calls that report their charges.
charges_of_call: ContextVar[list[StartedCharge] | None] = ContextVar(
    "charges_of_call", default=None
)


def note_charge(words: str, is_charged: Callable[[], bool]) -> None:
    """Note a charge that is about to be made."""
    charges = charges_of_call.get()
    if charges is not None:
        charges.append(StartedCharge(words, is_charged))


def add_note_of_charges(
    error: BaseException, started: Iterable[StartedCharge], has_kept: bool
) -> None:
    """Add to an error which charges of its call had been made when it was raised.

    Some of the `started` charges may not have been made; `has_kept` says whether the estimator
    holds the released results.
    """
    try:
        charged = [charge.words for charge in started if charge.is_charged()]
    except Exception:
        error.add_note("Whether the ledger was charged cannot be found out: see its entries.")
        return
    if charged:
        became = (
            "The release is kept in the fitted attributes."
            if has_kept
            else "The release is lost, and another call is charged again."
        )
        error.add_note(
            f"The ledger was charged before this, and stays charged: {'; '.join(charged)}. {became}"
        )
    elif not isinstance(error, Exception):
        error.add_note("Nothing was charged.")
